"""Gaussian, tanh-Gaussian, categorical and GRU policies: literals and promises."""

import math
import pickle
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from metaroll.errors import ShapeError
from metaroll.policies.gaussian import CategoricalMLPPolicy, GaussianMLPPolicy, TanhGaussianMLPPolicy
from metaroll.policies.gru import CategoricalGRUPolicy, GRUGaussianPolicy
from metaroll.policies.last_action import LastActionPolicy
from metaroll.policies.normalized import NormalizedPolicy
from metaroll.seeding import torch_generator
from metaroll.types import EnvSpec

BOX = gymnasium.spaces.Box
SPEC = EnvSpec(BOX(-1, 1, (4,)), BOX(-1, 1, (2,)))
DISCRETE = EnvSpec(BOX(-1, 1, (4,)), gymnasium.spaces.Discrete(3))
OBS = np.random.default_rng(0).standard_normal((6, 4))
NOISE = np.random.default_rng(1).standard_normal((6, 2))


def _all_policies() -> list[Any]:
    return [
        GaussianMLPPolicy(SPEC, generator=torch_generator(0)),
        TanhGaussianMLPPolicy(SPEC, (16,), generator=torch_generator(0)),
        CategoricalMLPPolicy(DISCRETE, generator=torch_generator(0)),
        GRUGaussianPolicy(SPEC, 8, generator=torch_generator(0)),
        CategoricalGRUPolicy(DISCRETE, 8, generator=torch_generator(0)),
    ]


ALL = pytest.mark.parametrize("policy", _all_policies(), ids=lambda policy: type(policy).__name__)


def _act(policy: Any, obs: np.ndarray = OBS, parameters: np.ndarray | None = None) -> np.ndarray:
    rng = np.random.default_rng(3)
    state = policy.initial_state([None] * len(obs), [rng] * len(obs))
    noise = rng.random((len(obs), policy.noise_dim))
    return policy.act(obs, state, noise, False, parameters)[0]


@ALL
def test_rows_may_be_of_any_number(policy: Any):
    """The kit compares their bits where that is declared: with encoders it is not."""
    assert policy.width_independent and policy.acting_parameters().dtype == np.float32


@ALL
def test_pickle_takes_policies_that_have_acted(policy: Any):
    """The kit pickles as workers do, by cloudpickle, which takes more."""
    before = _act(policy)
    np.testing.assert_array_equal(_act(pickle.loads(pickle.dumps(policy))), before)


@ALL
def test_actions_and_infos_are_separate_memory(policy: Any):
    state = policy.initial_state([None] * 6, [np.random.default_rng(3)] * 6)
    for deterministic in (False, True):
        action, _, infos = policy.act(OBS, state, np.full((6, policy.noise_dim), 0.5), deterministic)
        kept = {name: value.copy() for name, value in infos.items()}
        action[...] = 7
        for name, value in infos.items():
            np.testing.assert_array_equal(value, kept[name])


def test_a_replaced_network_acts():
    policy = GaussianMLPPolicy(SPEC, generator=torch_generator(0))
    other = GaussianMLPPolicy(SPEC, generator=torch_generator(1))
    assert not np.array_equal(_act(policy), _act(other))
    policy.net = other.net
    np.testing.assert_array_equal(_act(policy), _act(other))


def test_parameters_changed_in_place_are_seen_and_float64_is_taken():
    policy = GaussianMLPPolicy(SPEC, generator=torch_generator(0))
    flat = policy.acting_parameters()
    first = _act(policy, parameters=flat)
    np.testing.assert_array_equal(_act(policy, parameters=flat.astype(np.float64)), first)
    flat *= 2
    assert not np.array_equal(_act(policy, parameters=flat), first)
    doubles = flat.astype(np.float64)
    _act(policy, parameters=doubles)
    doubles[:] = policy.acting_parameters()
    np.testing.assert_array_equal(_act(policy, parameters=doubles), first)


@ALL
def test_the_same_generator_seed_gives_the_same_weights(policy: Any):
    other = next(p for p in _all_policies() if type(p) is type(policy))
    np.testing.assert_array_equal(other.get_param_values(), policy.get_param_values())


def test_without_a_generator_weights_differ_every_time():
    first, second = GaussianMLPPolicy(SPEC), GaussianMLPPolicy(SPEC)
    assert not np.array_equal(first.get_param_values(), second.get_param_values())


def test_deterministic_acting_is_the_mean_and_ignores_noise():
    """specs/meta.md Q-27, Q-38"""
    policy = TanhGaussianMLPPolicy(SPEC, (16,), generator=torch_generator(0))
    action, _, info = policy.act(OBS, {}, NOISE, True)
    other, _, _ = policy.act(OBS, {}, -NOISE, True)
    np.testing.assert_array_equal(action, other)
    np.testing.assert_array_equal(action, info["mean"])
    mean, _ = policy.distribution(torch.as_tensor(OBS, dtype=torch.float32))
    np.testing.assert_allclose(action, np.tanh(mean.detach().numpy()), atol=1e-6)


def test_gaussian_std_is_clamped_wherever_it_is_used():
    """specs/meta.md Q-14: ln(min_std) = ln(0.5), also with parameters far below."""
    policy = GaussianMLPPolicy(SPEC, min_std=0.5, generator=torch_generator(0))
    with torch.no_grad():
        policy.log_std.fill_(-9.0)
    action, _, info = policy.act(OBS, {}, NOISE)
    np.testing.assert_allclose(info["log_std"], math.log(0.5), rtol=1e-6)
    np.testing.assert_allclose(action - info["mean"], 0.5 * NOISE, atol=1e-6)
    _, _, adapted = policy.act(OBS, {}, NOISE, parameters=np.stack([policy.acting_parameters()] * 6))
    np.testing.assert_allclose(adapted["log_std"], math.log(0.5), rtol=1e-6)
    assert policy(torch.zeros(1, 4), generator=torch_generator(0)).log_std[0, 0].item() == pytest.approx(math.log(0.5))


@pytest.mark.parametrize("policy_class", [GaussianMLPPolicy, TanhGaussianMLPPolicy])
def test_samples_are_reproducible_and_know_their_density(policy_class: Any):
    policy = policy_class(SPEC, (16,), generator=torch_generator(0))
    obs = torch.as_tensor(OBS, dtype=torch.float32)
    sample = policy(obs, generator=torch_generator(5))
    again = policy(obs, generator=torch_generator(5))
    torch.testing.assert_close(sample.action, again.action)
    assert sample.log_prob.shape == (6, 1)
    torch.testing.assert_close(policy.log_prob(obs, sample.action), sample.log_prob[:, 0], rtol=1e-3, atol=1e-3)
    # Reparameterized, and the regularized moments have gradients (specs/meta.md Q-35).
    for part in (sample.action, sample.mean, sample.log_std, sample.log_prob, sample.pre_tanh):
        assert part.requires_grad


def test_tanh_log_std_lies_in_its_bounds():
    policy = TanhGaussianMLPPolicy(SPEC, (16,), generator=torch_generator(0))
    obs = np.array([[1e6, 0, 0, 0], [-1e6, 0, 0, 0]])
    _, _, info = policy.act(obs, {}, NOISE[:2])
    assert info["log_std"].min() >= -20.0 and info["log_std"].max() <= 2.0
    assert np.abs(info["log_std"]).max() in (2.0, 20.0)
    torch_log_std = policy.distribution(torch.as_tensor(obs, dtype=torch.float32))[1].detach().numpy()
    np.testing.assert_array_equal(info["log_std"], torch_log_std)


@pytest.mark.parametrize("kind", [CategoricalMLPPolicy, CategoricalGRUPolicy])
def test_categorical_inverts_the_distribution_function(kind: Any):
    # Zero weights: three equal actions 0, 1, 2, so uniform numbers in thirds choose them in order.
    policy = kind(DISCRETE, generator=torch_generator(0))
    policy.set_param_values(np.zeros_like(policy.get_param_values()))
    noise = np.array([[0.0], [0.3], [0.34], [0.6], [0.7], [1.0 - 2**-53]])
    action, _, info = policy.act(OBS, policy.initial_state([None] * 6, []), noise)
    np.testing.assert_array_equal(action, [0, 0, 1, 1, 2, 2])
    assert action.dtype == np.int64
    np.testing.assert_allclose(info["prob"], 1 / 3, rtol=1e-6)
    log_prob = policy.log_prob(torch.as_tensor(OBS, dtype=torch.float32), torch.from_numpy(action))
    torch.testing.assert_close(log_prob, torch.full((6,), -math.log(3.0)))


def test_categorical_never_chooses_an_action_of_probability_zero():
    # Logits (0, 200, 0, ...): exp(-200) is 0 in float32, so only action 1 is possible, even for noise 0 and 1.
    policy = CategoricalMLPPolicy(DISCRETE, generator=torch_generator(0))
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.zero_()
        policy.net.layers[-1].bias[1] = 200.0
    action, _, _ = policy.act(OBS[:2], {}, np.array([[0.0], [1.0]]))
    np.testing.assert_array_equal(action, [1, 1])


@pytest.mark.parametrize(
    ("kind", "spec", "told"), [(GRUGaussianPolicy, SPEC, "mean"), (CategoricalGRUPolicy, DISCRETE, "prob")]
)
def test_gru_remembers_and_forgets(kind: Any, spec: EnvSpec, told: str):
    policy = kind(spec, 8, generator=torch_generator(0))
    state = policy.initial_state([None] * 6, [np.random.default_rng(0)] * 6)
    noise = NOISE[:, : policy.noise_dim]
    _, later, first = policy.act(OBS, state, noise, True)
    _, _, second = policy.act(OBS, later, noise, True)
    assert not np.array_equal(first[told], second[told])
    np.testing.assert_array_equal(policy.act(OBS, state, noise, True)[2][told], first[told])
    with pytest.raises(TypeError, match="call act"):
        policy.get_action(OBS[0])


def test_categorical_gru_of_several_choices_knows_their_probabilities():
    spec = EnvSpec(BOX(-1, 1, (4,)), gymnasium.spaces.MultiDiscrete([2, 3]))
    policy = CategoricalGRUPolicy(spec, 8, generator=torch_generator(0))
    rng = np.random.default_rng(3)
    obs, state = rng.standard_normal((6, 5, 4)), policy.initial_state([None] * 6, [rng] * 6)
    actions, expected = np.empty((6, 5, 2), dtype=np.int64), np.empty((6, 5))
    for t in range(5):
        actions[:, t], state, info = policy.act(obs[:, t], state, rng.random((6, 2)))
        prob = info["prob"]
        np.testing.assert_allclose([prob[:, :2].sum(1), prob[:, 2:].sum(1)], 1.0, rtol=1e-6)
        rows = np.arange(6)
        expected[:, t] = np.log(prob[rows, actions[:, t, 0]] * prob[rows, 2 + actions[:, t, 1]])
    assert set(actions[..., 0].flat) == {0, 1} and set(actions[..., 1].flat) == {0, 1, 2}
    sequence, taken = torch.as_tensor(obs, dtype=torch.float32), torch.from_numpy(actions)
    evaluated, entropy = policy.evaluate_actions(sequence, taken)
    for log_prob in (evaluated, policy.log_prob(sequence, taken)):
        np.testing.assert_allclose(log_prob.detach().numpy(), expected, atol=1e-5)
    assert (entropy > 0).all() and (entropy <= math.log(6) + 1e-6).all()


def test_get_action_takes_one_observation():
    policy = GaussianMLPPolicy(SPEC, generator=torch_generator(0))
    action, info = policy.get_action(OBS[0], generator=np.random.default_rng(4))
    again, _ = policy.get_action(OBS[0], generator=np.random.default_rng(4))
    np.testing.assert_array_equal(action, again)
    assert action.shape == info["mean"].shape == info["log_std"].shape == (2,)
    mean, _ = policy.get_action(OBS[0], deterministic=True)
    np.testing.assert_array_equal(mean, info["mean"])


@ALL
def test_wrong_shapes_are_named(policy: Any):
    state = policy.initial_state([None] * 6, [np.random.default_rng(0)] * 6)
    noise = np.zeros((6, policy.noise_dim))
    with pytest.raises(ShapeError, match="obs must"):
        policy.act(OBS[:, :3], state, noise)
    with pytest.raises(ShapeError, match="parameters must"):
        policy.act(OBS, state, noise, False, np.zeros(3, dtype=np.float32))
    with pytest.raises(ShapeError, match="one row per observation"):
        policy.act(OBS, state, noise, False, np.stack([policy.acting_parameters()] * 5))


@pytest.mark.parametrize(
    ("kind", "spec", "options", "error", "about"),
    [
        *((kind, DISCRETE, {}, TypeError, "Box action space") for kind in (GaussianMLPPolicy, TanhGaussianMLPPolicy)),
        (GRUGaussianPolicy, DISCRETE, {}, TypeError, "Box action space"),
        (CategoricalMLPPolicy, SPEC, {}, TypeError, "CategoricalMLPPolicy needs a Discrete .* see GaussianMLPPolicy"),
        (CategoricalGRUPolicy, SPEC, {}, TypeError, "CategoricalGRUPolicy needs a Discrete .* see GRUGaussian"),
        (CategoricalGRUPolicy, DISCRETE, {"hidden_size": 0}, ValueError, "hidden_size"),
        (GaussianMLPPolicy, SPEC, {"init_std": 0.1, "min_std": 1.0}, ValueError, "min_std"),
    ],
)
def test_mistakes(kind: Any, spec: EnvSpec, options: dict[str, Any], error: type[Exception], about: str):
    with pytest.raises(error, match=about):
        kind(spec, **options)


def test_squashed_actions_fill_the_bounds_of_the_space_with_the_density_of_scaled_actions():
    low, high = np.array([-30.0, 0.0], np.float32), np.array([30.0, 10.0], np.float32)
    wide = EnvSpec(SPEC.observation_space, gymnasium.spaces.Box(low, high))
    policy = TanhGaussianMLPPolicy(wide, (16,), generator=torch_generator(0))
    unit = TanhGaussianMLPPolicy(SPEC, (16,), generator=torch_generator(0))
    obs, noise = np.repeat(OBS, 50, axis=0), np.random.default_rng(3).standard_normal((50 * len(OBS), 2))
    action, _, infos = policy.act(obs, {}, noise)
    inner, _, _ = unit.act(obs, {}, noise)
    np.testing.assert_allclose(action, inner * [30.0, 5.0] + [0.0, 5.0], rtol=1e-5, atol=1e-5)
    assert action[:, 0].max() > 20 and action[:, 1].min() >= 0 and infos["mean"].shape == action.shape
    rows = torch.from_numpy(obs).float()
    drawn = policy(rows, torch.from_numpy(noise).float())
    np.testing.assert_allclose(drawn.action.detach(), action, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(policy.log_prob(rows, drawn.action), drawn.log_prob[:, 0], rtol=1e-2, atol=1e-2)
    of_unit = unit(rows, torch.from_numpy(noise).float()).log_prob
    torch.testing.assert_close(drawn.log_prob, of_unit - math.log(30.0 * 5.0))
    # Between normalized observations and bounds nothing is scaled twice.
    np.testing.assert_array_equal(NormalizedPolicy(policy, False).act(obs, {}, noise)[0], action)


@pytest.mark.parametrize("policy_class", [GRUGaussianPolicy, CategoricalGRUPolicy])
def test_a_context_may_bring_the_first_memory(policy_class):
    policy = policy_class(SPEC if policy_class is GRUGaussianPolicy else DISCRETE, 8, generator=torch_generator(0))
    memory = np.linspace(-1, 1, 8)
    state = policy.initial_state([None, {"hidden": memory}, {}], [np.random.default_rng(0)] * 3)
    np.testing.assert_allclose(state["hidden"], [np.zeros(8), memory, np.zeros(8)], rtol=1e-6)
    with pytest.raises(ShapeError, match="hidden"):
        policy.initial_state([{"hidden": np.zeros(3)}], [np.random.default_rng(0)])


def test_a_last_choice_is_seen_one_hot():
    space = BOX(-np.inf, np.inf, (7,))
    inner = CategoricalGRUPolicy(EnvSpec(space, DISCRETE.action_space), 8, generator=torch_generator(0))
    policy = LastActionPolicy(inner, DISCRETE)
    state = policy.initial_state([None] * 6, [np.random.default_rng(0)] * 6)
    assert not state["last_action"].any()
    first, state, _ = policy.act(OBS, state, np.random.default_rng(1).random((6, 1)))
    np.testing.assert_array_equal(state["last_action"], np.eye(3)[first])
    state = policy.with_actions_taken(state, np.array([0, 1, 2, 0, 1, 2]))
    _, _, infos = policy.act(OBS, state, np.zeros((6, 1)))
    rows = torch.from_numpy(np.stack([OBS, OBS], axis=1)).float()
    taken = torch.tensor([0, 1, 2, 0, 1, 2])[:, None].repeat(1, 2)
    log_prob, _ = policy.evaluate_actions(rows, taken)
    expected = np.take_along_axis(infos["prob"], taken[:, 1:].numpy(), axis=1)[:, 0]
    np.testing.assert_allclose(log_prob[:, 1].exp().detach(), expected, rtol=1e-4)


@pytest.mark.parametrize("policy", [GaussianMLPPolicy, TanhGaussianMLPPolicy])
@pytest.mark.parametrize(
    ("sizes", "error", "text"),
    [
        ((2.5,), TypeError, r"hidden_sizes\[0\] .* got 2.5"),
        ((8, 0), ValueError, r"hidden_sizes\[1\] .* got 0"),
        (64, TypeError, "hidden_sizes must be a sequence .* got 64"),
        ("a", TypeError, "hidden_sizes must be a sequence .* got 'a'"),
    ],
)
def test_wrong_widths_are_refused(policy: Any, sizes: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        policy(SPEC, hidden_sizes=sizes)


def test_a_deviation_that_is_no_number_is_refused() -> None:
    with pytest.raises(TypeError, match="init_std must be a number"):
        GaussianMLPPolicy(SPEC, init_std="a")
