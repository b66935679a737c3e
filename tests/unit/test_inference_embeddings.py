"""Embeddings: documented dimensions and features (specs/sampling.md 14), one call for all rollouts, masks, devices."""

from __future__ import annotations

import copy
import pickle

import gymnasium
import numpy as np
import pytest
import torch
from torch import nn

from metaroll.errors import ShapeError, UnknownNameError
from metaroll.functional.series.step_patterns import StepPattern, rabiner_juang
from metaroll.inference.embeddings import (
    AllStepsEmbedding,
    BayesSimEmbedding,
    DeltaStepsEmbedding,
    DynamicTimeWarpingEmbedding,
    Embedding,
    LastStepEmbedding,
    RNNEmbedding,
)
from metaroll.seeding import isolated_rng
from metaroll.types import EnvSpec

BOX = gymnasium.spaces.Box
S, A = 4, 2
D = S + A
SPEC = EnvSpec(
    BOX(-1, 1, (6,)),
    BOX(-1, 1, (A,)),
    state_space=BOX(-1, 1, (S,)),
    state_labels=("theta", "alpha", "theta_dot", "alpha_dot"),
    action_labels=("V", "W"),
)
UNLABELED = EnvSpec(BOX(-1, 1, (S,)), BOX(-1, 1, (A,)))
KINDS = ("last", "all", "delta", "bayes", "dtw", "rnn", "rnn_last")


def make(kind: str, num_steps: int = 20, spec: EnvSpec = SPEC, dim: int = D, **options) -> Embedding:
    if kind in ("all", "delta"):
        return {"all": AllStepsEmbedding, "delta": DeltaStepsEmbedding}[kind](spec, dim, num_steps, **options)
    if kind.startswith("rnn"):
        length = {"only_last_output": True} if kind == "rnn_last" else {"len_rollouts": num_steps}
        return RNNEmbedding(spec, dim, 5, 2, 3, generator=0, **length, **options)
    return {"last": LastStepEmbedding, "bayes": BayesSimEmbedding, "dtw": DynamicTimeWarpingEmbedding}[kind](
        spec, dim, **options
    )


def series(embedding: Embedding, *leading: int, num_steps: int = 20, seed: int = 0, dtype=torch.float32):
    rng = np.random.default_rng(seed)
    return torch.tensor(rng.normal(size=(*leading, num_steps, embedding.dim_step)), dtype=dtype)


def features_by_hand(kind: str, rollout: np.ndarray, states: list[int], actions: list[int]) -> np.ndarray:
    """Of one rollout of kept steps, number by number."""
    s, a = rollout[:, states], rollout[:, actions]
    if kind == "last":
        return s[-1]
    if kind == "all":
        return np.array([value for step in s for value in step])
    changes = [s[t + 1] - s[t] for t in range(len(s) - 1)]
    if kind == "delta":
        return np.concatenate(changes)
    products = [
        sum(a[t][i] * changes[t][j] for t in range(len(changes))) for i in range(a.shape[1]) for j in range(s.shape[1])
    ]
    return np.concatenate([products, np.mean(changes, axis=0), np.var(changes, axis=0)])


@pytest.mark.parametrize("kind", ["last", "all", "delta", "bayes"])
def test_features_are_those_of_a_loop_over_steps(kind: str) -> None:
    """specs/sampling.md 14.1: features of LastStep-, AllSteps-, DeltaSteps- and BayesSimEmbedding, number by number."""
    for num_steps in (2, 3, 11, 20):
        for factor in range(1, num_steps if kind != "last" else num_steps + 3):
            embedding = make(kind, num_steps, downsampling_factor=factor)
            data = series(embedding, 2, 3, num_steps=num_steps, seed=factor, dtype=torch.float64)
            result = embedding(Embedding.pack(data))
            kept = data[:, :, ::factor].numpy()
            expected = [
                np.concatenate([features_by_hand(kind, rollout, [0, 1, 2, 3], [4, 5]) for rollout in rollouts])
                for rollouts in kept
            ]
            assert result.dtype == torch.get_default_dtype()
            np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)


def test_dimensions_of_the_specification() -> None:
    """specs/sampling.md 14.1: the Qube's four states and one action, 20 steps, factors 1 and 3."""
    spec = EnvSpec(BOX(-1, 1, (6,)), BOX(-1, 1, (1,)), state_space=BOX(-1, 1, (4,)))
    found = {
        kind: [make(kind, spec=spec, dim=5, downsampling_factor=factor).dim_output for factor in (1, 3)]
        for kind in KINDS
    }
    assert found == {
        "last": [4, 4],
        "all": [80, 28],
        "delta": [76, 24],
        "bayes": [12, 12],
        "dtw": [4, 4],
        "rnn": [60, 21],
        "rnn_last": [3, 3],
    }


@pytest.mark.parametrize("kind", KINDS)
def test_dim_output_is_the_number_of_features(kind: str) -> None:
    """specs/sampling.md 14.1 and 22 (11): for every length and downsampling factor."""
    for num_steps in (2, 3, 7, 30):
        for factor in range(1, 8):
            needs_two = kind in ("all", "delta", "bayes") and factor >= num_steps
            if needs_two:
                with pytest.raises(ValueError, match="two steps"):
                    embedding = make(kind, num_steps, downsampling_factor=factor)
                    embedding(Embedding.pack(series(embedding, 1, 1, num_steps=num_steps)))
                continue
            embedding = make(kind, num_steps, downsampling_factor=factor)
            result = embedding(Embedding.pack(series(embedding, 2, 3, num_steps=num_steps)))
            assert result.shape == (2, 3 * embedding.dim_output)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_one_call_for_all_equals_calls_row_by_row(kind: str, masked: bool) -> None:
    """specs/sampling.md 14.1: forward, forward_one_batch and summary_statistic agree; rollouts are concatenated."""
    masks = {"state_mask_labels": ("alpha", 2), "act_mask_labels": ["V"]} if masked else {}
    embedding = make(kind, downsampling_factor=3, **masks)
    data = series(embedding, 4, 3)
    together = embedding(Embedding.pack(data))
    kept = data[:, :, ::3]
    for row, rollouts in zip(together, kept, strict=True):
        torch.testing.assert_close(embedding.forward_one_batch(rollouts), row)
        single = torch.cat([embedding.summary_statistic(rollout) for rollout in rollouts])
        torch.testing.assert_close(single.float(), row)
    assert embedding(Embedding.pack(data[:0])).shape == (0, 3 * embedding.dim_output)


def test_names_and_needs() -> None:
    """specs/sampling.md 14.1: name and requires_target_domain_data of each embedding."""
    assert {make(kind).name for kind in KINDS} == {"lsemb", "asemb", "dsemb", "bsemb", "dtwemb", "rnnemb"}
    assert {kind for kind in KINDS if make(kind).requires_target_domain_data} == {"dtw"}
    embedding = DynamicTimeWarpingEmbedding(SPEC, D)
    assert (embedding.dim_data, embedding.dim_step, LastStepEmbedding(SPEC, D).dim_step) == (D, 2 * D, D)
    assert DynamicTimeWarpingEmbedding(SPEC, 2 * D).dim_data == D  # the documents can be read so, too


def test_pack_and_unpack() -> None:
    """specs/sampling.md 14.1: [T,D], [R,T,D] and [B,R,T,D] become [B,R,T*D], and back."""
    data = torch.arange(2 * 3 * 4 * 5.0).reshape(2, 3, 4, 5)
    assert Embedding.pack(data[0, 0]).shape == (1, 1, 20)
    assert Embedding.pack(data[0]).shape == (1, 3, 20)
    assert torch.equal(Embedding.unpack(Embedding.pack(data.transpose(0, 1)), 5), data.transpose(0, 1))
    with pytest.raises(ShapeError, match=r"\(T, D\)"):
        Embedding.pack(data[0, 0, 0])
    for wrong in (data, torch.zeros(2, 3, 21), torch.zeros(2, 3, 0)):
        with pytest.raises(ShapeError, match="D = 5"):
            Embedding.unpack(wrong, 5)


@pytest.mark.parametrize("kind", ["last", "bayes", "rnn_last", "dtw"])
def test_masks_by_label_and_by_number(kind: str) -> None:
    """specs/sampling.md 14.1: masks are booleans, None selects all, and one given mask leaves the other complete."""
    by_label = make(kind, state_mask_labels=["alpha", "theta_dot"], act_mask_labels=("W",))
    by_number = make(kind, state_mask_labels=(np.int64(2), 1), act_mask_labels=["W"])
    assert by_label.state_mask.tolist() == [False, True, True, False, False, False]
    assert by_label.act_mask.tolist() == [False] * 5 + [True]
    assert torch.equal(by_label.data_mask, by_number.data_mask) and by_label.data_mask.dtype == torch.bool
    data = Embedding.pack(series(by_label, 2, 2))
    assert torch.equal(by_label(data), by_number(data))
    one = make(kind, state_mask_labels=["alpha"])
    assert one.data_mask.tolist() == [False, True, False, False, True, True]
    assert one(data).shape == (2, 2 * one.dim_output)
    assert make(kind).data_mask.all()


def test_features_without_actions() -> None:
    embedding = BayesSimEmbedding(SPEC, D, act_mask_labels=[])
    data = series(embedding, 1, 1)
    whole = BayesSimEmbedding(SPEC, D)(Embedding.pack(data))
    assert torch.equal(embedding(Embedding.pack(data)), whole[:, A * S :])


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"state_mask_labels": ["alfa"]}, UnknownNameError, "alpha"),
        ({"state_mask_labels": [4]}, ValueError, "at most 3"),
        ({"act_mask_labels": [-1]}, ValueError, "at least 0"),
        ({"state_mask_labels": [True]}, TypeError, "integer"),
        ({"state_mask_labels": "alpha"}, TypeError, "list of labels"),
        ({"state_mask_labels": []}, ValueError, "at least one state"),
        ({"downsampling_factor": 0}, ValueError, "downsampling_factor"),
        ({"dim": 5}, ValueError, r"4 \+ 2 = 6"),
        ({"dim": 2 * D}, ValueError, "dim_data"),
        ({"dim": 6.0}, TypeError, "dim_data"),
        ({"spec": "Pendulum-v1"}, TypeError, "EnvSpec"),
        (
            {"spec": EnvSpec(BOX(-1, 1, (S,)), BOX(-1, 1, (A,))), "state_mask_labels": ["x"]},
            ValueError,
            "labels nothing",
        ),
    ],
)
def test_bad_arguments_are_named(options: dict, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        make("last", **options)


def test_observations_stand_in_for_states_that_a_spec_does_not_have() -> None:
    spec = EnvSpec(BOX(-1, 1, (3,)), gymnasium.spaces.Discrete(5), observation_labels=("x", "y", "z"))
    assert LastStepEmbedding(spec, 4, state_mask_labels=["y"]).dim_output == 1  # a discrete action as one number
    assert BayesSimEmbedding(spec, 8).dim_output == 3 * 5 + 6  # or as one per choice


def test_lengths_are_checked() -> None:
    """specs/sampling.md 14.1: rollouts that are not as long as the embedding was told are an error."""
    embedding = AllStepsEmbedding(SPEC, D, 20)
    with pytest.raises(ShapeError, match="len_rollouts=20 steps, got 19"):
        embedding(torch.zeros(1, 1, 19 * D))
    with pytest.raises(ShapeError, match="packed series"):
        embedding(torch.zeros(1, 1, 20 * D + 1))
    with pytest.raises(ValueError, match="at least 2"):
        DeltaStepsEmbedding(SPEC, D, 1)


class _Mean(Embedding):
    """As a user writes one, for a rollout at a time."""

    name = "mean"

    def __init__(self, features: int = D) -> None:
        super().__init__(SPEC, D, downsampling_factor=2)
        self.features = features

    @property
    def dim_output(self) -> int:
        return self.features

    def summary_statistic(self, data: torch.Tensor) -> torch.Tensor:
        assert data.ndim == 2
        return data.mean(dim=0)


def test_an_embedding_of_ones_own() -> None:
    """specs/sampling.md 14.1: Embedding, whose abstract members are summary_statistic and dim_output."""
    with pytest.raises(TypeError, match="abstract"):
        Embedding(SPEC, D)
    data = series(_Mean(), 2, 3)
    torch.testing.assert_close(_Mean()(Embedding.pack(data)), data[:, :, ::2].mean(dim=2).flatten(1))
    with pytest.raises(ShapeError, match="dim_output=2"):
        _Mean(2)(Embedding.pack(data))


# ------------------------------------------------------------------------------------------------ warping
def test_warped_distances_are_those_of_dtw_python() -> None:
    """specs/sampling.md 14.3: each state by itself, open end, not normalized; any of its step patterns."""
    import dtw

    for pattern in (None, "asymmetric", dtw.stepPattern.rabinerJuangStepPattern(6, "c"), rabiner_juang(6, "c")):
        embedding = DynamicTimeWarpingEmbedding(
            SPEC, D, pattern, downsampling_factor=2, state_mask_labels=["theta", "alpha_dot"]
        )
        data = series(embedding, 2, 2, dtype=torch.float64)
        reference = dtw.stepPattern.rabinerJuangStepPattern(6, "c") if isinstance(pattern, StepPattern) else pattern
        expected = [
            [
                dtw.dtw(
                    kept[:, i].numpy(), kept[:, D + i].numpy(), step_pattern=reference or "symmetric2", open_end=True
                ).distance
                for kept in rollouts[:, ::2]
                for i in (0, 3)
            ]
            for rollouts in data
        ]
        np.testing.assert_allclose(embedding(Embedding.pack(data)), expected, rtol=1e-6)


def test_the_target_is_at_no_distance_from_itself_and_nan_stays_nan() -> None:
    """specs/sampling.md 14.3 and 19.6: the observed features are exactly 0; a diverged simulation is a row of NaN."""
    embedding = DynamicTimeWarpingEmbedding(SPEC, D)
    data = series(embedding, 3, 1)
    data[..., D:] = data[..., :D]
    assert torch.equal(embedding(Embedding.pack(data)), torch.zeros(3, S))
    data[1, 0, 7, 2] = torch.nan
    found = embedding(Embedding.pack(data))
    assert found[1].isnan().tolist() == [False, False, True, False] and found[[0, 2]].isfinite().all()


@pytest.mark.parametrize("pattern", ["symmetric1", "typeIa", rabiner_juang(3, "b")])
def test_step_patterns_without_a_norm_have_no_open_end(pattern) -> None:
    """specs/sampling.md 23: refused when the embedding is made, by name, with patterns that would do."""
    with pytest.raises(ValueError, match="symmetric2"):
        DynamicTimeWarpingEmbedding(SPEC, D, pattern)


# ------------------------------------------------------------------------------------------------ recurrent
def test_recurrent_features_are_those_of_torch_s_network() -> None:
    """specs/sampling.md 14.2: a linear layer on each kept step, time-major, from hidden zeros; all or only the last."""
    embedding = RNNEmbedding(
        SPEC,
        D,
        hidden_size=7,
        num_recurrent_layers=2,
        output_size=3,
        recurrent_network_type=nn.LSTM,
        len_rollouts=20,
        output_nonlin=torch.tanh,
        downsampling_factor=3,
        state_mask_labels=["alpha"],
        generator=1,
    )
    data = series(embedding, 2, 2)
    found = embedding(Embedding.pack(data)).reshape(2, 2, 7, 3)
    inputs = data[1, 0, ::3][:, [1, 4, 5]]
    outputs, _ = embedding.rnn_layers(inputs)
    torch.testing.assert_close(found[1, 0], torch.tanh(embedding.output_layer(outputs)))
    last = RNNEmbedding(
        SPEC, D, 7, 2, 3, nn.LSTM, True, output_nonlin=torch.tanh, downsampling_factor=3, state_mask_labels=["alpha"]
    )
    last.load_state_dict(embedding.state_dict())
    torch.testing.assert_close(last(Embedding.pack(data)).reshape(2, 2, 3), found[:, :, -1])


def test_recurrent_weights_come_from_what_is_passed_and_stay() -> None:
    """specs/sampling.md 14.2: frozen random weights, no dropout, the same in every pass and after pickling."""
    before = torch.get_rng_state()
    one, same, other = (RNNEmbedding(SPEC, D, 8, 2, 3, dropout=0.5, len_rollouts=20, generator=g) for g in (1, 1, 2))
    fresh = RNNEmbedding(SPEC, D, 8, 2, 3, len_rollouts=20)
    again = RNNEmbedding(SPEC, D, 8, 2, 3, len_rollouts=20, init_param_kwargs={"generator": fresh.seed})
    assert torch.equal(torch.get_rng_state(), before)
    data = Embedding.pack(series(one, 2, 1))
    assert not any(parameter.requires_grad for parameter in one.parameters())
    assert torch.equal(one(data), one.train()(data)) and torch.equal(one(data), same(data))
    assert torch.equal(fresh(data), again(data)) and not torch.equal(one(data), other(data))
    assert torch.equal(one(data), pickle.loads(pickle.dumps(one))(data))
    one.requires_grad_(True).train()
    with isolated_rng(0):
        assert one.training and not torch.equal(one(data), one(data))  # learnable, and so is dropout


def test_init_param_draws_or_sets_all_weights() -> None:
    """specs/sampling.md 14.2: init_param(init_values=None, **kwargs)."""
    embedding = RNNEmbedding(SPEC, D, 4, 1, 2, nn.GRU, True, generator=0, bias=False)
    count = sum(parameter.numel() for parameter in embedding.parameters())
    assert count == 3 * 4 * (D + 4) + 4 * 2 + 2
    embedding.init_param(torch.arange(float(count)))
    assert torch.equal(nn.utils.parameters_to_vector(embedding.parameters()), torch.arange(float(count)))
    embedding.init_param(generator=torch.Generator().manual_seed(3), gain=0.1)
    assert embedding.rnn_layers.weight_hh_l0.abs().max() <= 0.1 / 2 and embedding.seed is None
    with pytest.raises(ShapeError, match="init_values"):
        embedding.init_param(torch.zeros(3))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({}, ValueError, "len_rollouts"),
        ({"len_rollouts": 9, "recurrent_network_type": nn.Linear}, TypeError, "nn.GRU"),
        ({"len_rollouts": 9, "output_nonlin": "tanh"}, TypeError, "output_nonlin"),
        ({"len_rollouts": 9, "batch_first": False}, TypeError, "batch_first"),
        ({"len_rollouts": 9, "dropout": 1.5}, ValueError, "dropout"),
    ],
)
def test_bad_arguments_of_the_recurrent_embedding(options: dict, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        RNNEmbedding(SPEC, D, 4, 1, 2, **options)


# ------------------------------------------------------------------------------------------------ devices
@pytest.mark.parametrize("kind", KINDS)
def test_everything_stays_on_the_device(kind: str) -> None:
    """specs/sampling.md 14.1: device; nothing looks at numbers on the way (meta tensors have none)."""
    embedding = make(kind)
    assert embedding.device == "cpu"
    on_device = copy.deepcopy(embedding).to("meta")
    data = Embedding.pack(series(embedding, 2, 3))
    result = on_device(data)  # moved there, as from the CPU to a GPU
    assert on_device.device == "meta" and result.device.type == "meta"
    assert result.shape == embedding(data).shape


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_the_cpu_computes() -> None:
    """specs/sampling.md 14.1: use_cuda without CUDA is a warning."""
    with pytest.warns(UserWarning, match="CPU"):
        embedding = LastStepEmbedding(SPEC, D, use_cuda=True)
    assert embedding.device == "cpu"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("kind", KINDS)
def test_the_gpu_gives_the_features_of_the_cpu(kind: str) -> None:
    data = Embedding.pack(series(make(kind), 5, 3))
    found = make(kind, use_cuda=True)(data)
    assert found.device.type == "cuda"
    torch.testing.assert_close(found.cpu(), make(kind)(data), rtol=1e-3, atol=1e-4)
