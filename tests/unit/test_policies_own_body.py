"""A torch module of the user's as the body of a policy: what it acts as, what travels to workers, what is refused."""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from torch import Tensor, nn

from metaroll import EnvSpec
from metaroll.errors import ShapeError
from metaroll.policies import (
    CategoricalMLPPolicy,
    DeterministicMLPPolicy,
    GaussianMLPPolicy,
    GreedyQPolicy,
    TanhGaussianMLPPolicy,
)
from metaroll.policies.normalized import NormalizedPolicy
from metaroll.policies.own_body import OwnBody, as_body, check_stacks
from metaroll.rollouts.garage.local_sampler import param_values_of
from metaroll.rollouts.garage.workers import DefaultWorker
from metaroll.seeding import isolated_rng, torch_generator
from metaroll.testing import check_policy

BOX = EnvSpec(gymnasium.spaces.Box(-1, 1, (3,)), gymnasium.spaces.Box(-2, 2, (2,)))
CHOICES = EnvSpec(BOX.observation_space, gymnasium.spaces.Discrete(4))


@pytest.fixture(autouse=True)
def torchs_modules_may_draw() -> Iterator[None]:
    with isolated_rng(0):
        yield


class Normed(nn.Module):
    """Batch normalization, dropout, and a table of indices: moments, a counter, and integers."""

    def __init__(self, spec: EnvSpec) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(spec.obs_dim, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Dropout(0.5))
        self.order: Tensor
        self.register_buffer("order", torch.arange(8).flip(0))

    def forward(self, rows: Tensor) -> Tensor:
        return self.layers(rows)[:, self.order]


def policy_of(kind: Any, spec: EnvSpec, given: Any = Normed) -> Any:
    return kind(spec, (), encoder=as_body(given, spec, torch_generator(1)), generator=torch_generator(2))


def learned(kind: Any, spec: EnvSpec) -> Any:
    """A policy whose moments have been moved by a pass that a gradient is taken of."""
    policy = policy_of(kind, spec)
    policy.features(torch.randn(32, spec.obs_dim, generator=torch_generator(3)))
    return policy


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        (TanhGaussianMLPPolicy, BOX),
        (GaussianMLPPolicy, BOX),
        (DeterministicMLPPolicy, BOX),
        (CategoricalMLPPolicy, CHOICES),
        (GreedyQPolicy, CHOICES),
    ],
)
def test_a_policy_around_a_body_keeps_all_promises_of_policies(kind: Any, spec: EnvSpec) -> None:
    check_policy(lambda: learned(kind, spec), spec)


def test_buffers_are_acting_parameters_and_integers_stay_integers() -> None:
    one, other = learned(TanhGaussianMLPPolicy, BOX), policy_of(TanhGaussianMLPPolicy, BOX)
    names = one.acting_parameter_names()
    assert [name.rpartition(".")[2] for name in names[-5:]] == [
        "passes",
        "order",
        "running_mean",
        "running_var",
        "num_batches_tracked",
    ]
    assert names[:-5] == tuple(name for name, _ in one.named_parameters())
    obs, noise = np.ones((8, 3), np.float32), np.zeros((8, 2), np.float32)
    expected = one.act(obs, {}, noise)[0]
    assert not np.array_equal(other.act(obs, {}, noise)[0], expected)
    np.testing.assert_array_equal(other.act(obs, {}, noise, parameters=one.acting_parameters())[0], expected)
    other.parameter_layout().assign(other, one.acting_parameters())
    np.testing.assert_array_equal(other.act(obs, {}, noise)[0], expected)
    module = other.encoder.module
    assert module.order.dtype == module.layers[1].num_batches_tracked.dtype == torch.int64
    assert int(module.layers[1].num_batches_tracked) == 1


def test_moments_reach_workers_of_garage_with_the_parameters() -> None:
    one, other = (make(TanhGaussianMLPPolicy, BOX) for make in (learned, policy_of))
    worker = DefaultWorker(seed=0, max_path_length=5, worker_number=0)
    worker.update_agent(NormalizedPolicy(other))
    worker.update_agent(param_values_of(NormalizedPolicy(one)))
    np.testing.assert_array_equal(other.acting_parameters(), one.acting_parameters())


@pytest.mark.parametrize("writeable", [True, False])
def test_a_vector_that_changes_in_place_acts_as_it_then_is(writeable: bool) -> None:
    policy, other = learned(TanhGaussianMLPPolicy, BOX), policy_of(TanhGaussianMLPPolicy, BOX)
    obs, noise = np.ones((8, 3), np.float32), np.zeros((8, 2), np.float32)
    with torch.no_grad():
        other.encoder.module.order.copy_(torch.arange(8))
    live, vector = policy.act(obs, {}, noise)[0], policy.acting_parameters()
    given = vector.view()
    given.flags.writeable = writeable
    for source in (policy, other, policy):
        vector[...] = source.acting_parameters()
        np.testing.assert_array_equal(policy.act(obs, {}, noise, parameters=given)[0], source.act(obs, {}, noise)[0])
        np.testing.assert_array_equal(policy.act(obs, {}, noise)[0], live)


def test_a_part_that_stands_in_several_places_keeps_its_weights_when_others_act() -> None:
    layer = nn.Linear(3, 3)
    policy = policy_of(TanhGaussianMLPPolicy, BOX, nn.Sequential(layer, nn.Tanh(), layer))
    obs, noise = np.ones((8, 3), np.float32), np.zeros((8, 2), np.float32)
    live, vector = policy.act(obs, {}, noise)[0], policy.acting_parameters()
    vector += 0.1
    assert not np.array_equal(policy.act(obs, {}, noise, parameters=vector)[0], live)
    np.testing.assert_array_equal(policy.act(obs, {}, noise)[0], live)


def test_threads_that_act_with_several_vectors_and_live_do_not_see_each_other() -> None:
    policy = learned(TanhGaussianMLPPolicy, BOX)
    obs, noise = np.ones((8, 3), np.float32), np.zeros((8, 2), np.float32)
    first, second = policy.acting_parameters(), policy.acting_parameters()
    second[:-26] += 0.1  # all but the buffers, which hold indices
    sets = [None, first, second, None]
    expected = [policy.act(obs, {}, noise, parameters=each)[0] for each in sets]
    assert not np.array_equal(expected[1], expected[2])

    def acts(which: int) -> bool:
        return all(
            np.array_equal(policy.act(obs, {}, noise, parameters=sets[which])[0], expected[which]) for _ in range(50)
        )

    with ThreadPoolExecutor(len(sets)) as threads:
        assert all(threads.map(acts, range(len(sets))))


def test_only_passes_with_gradient_are_in_training_mode() -> None:
    body = learned(DeterministicMLPPolicy, BOX).encoder
    moments = body.module.layers[1].running_mean.clone()
    rows = torch.randn(16, 3)
    with torch.no_grad():
        assert torch.equal(body(rows), body(rows))  # no dropout
    assert torch.equal(body.module.layers[1].running_mean, moments)
    assert not torch.equal(body(rows), body(rows))
    assert not torch.equal(body.module.layers[1].running_mean, moments)
    assert not any(part.training for part in body.module.modules())


def test_a_gradient_of_one_row_of_batch_normalization_names_the_option() -> None:
    body = policy_of(DeterministicMLPPolicy, BOX).encoder
    with pytest.raises(ValueError, match=r"policy \(Normed\) cannot .* a single row .*batch_size must be 2 or more"):
        body(torch.zeros(1, 3))
    with torch.no_grad():
        assert body(torch.zeros(1, 3)).shape == (1, 8)


def test_dropout_is_drawn_from_the_seed_of_the_run() -> None:
    one, two = (policy_of(DeterministicMLPPolicy, BOX).encoder for _ in range(2))
    rows, before = torch.randn(16, 3), torch.get_rng_state()
    first, second = one(rows), one(rows)
    assert torch.equal(torch.get_rng_state(), before) and not torch.equal(first, second)
    two(rows)
    resumed = as_body(Normed, BOX, torch_generator(9))
    resumed.load_state_dict(two.state_dict())
    assert torch.equal(resumed(rows), second)
    two.load_state_dict({name: value for name, value in one.state_dict().items() if name != "seed"})  # of before
    assert torch.equal(two(rows), one(rows))


def weight_of(body: Any) -> Tensor:
    return body.module.layers[0].weight


def test_weights_follow_from_the_generator_and_nothing_global_moves() -> None:
    before = torch.get_rng_state()
    one, two, three = (weight_of(as_body(Normed, BOX, torch_generator(seed))) for seed in (5, 5, 6))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(one, two) and not torch.equal(one, three)
    given: Any = Normed(BOX)
    kept = as_body(given, BOX, torch_generator(5))
    assert kept.module is not given and torch.equal(weight_of(kept), given.layers[0].weight)
    assert given.training and kept.output_dim == 8
    assert as_body(lambda spec: nn.LazyLinear(5), BOX, torch_generator(5)).output_dim == 5


class Says(nn.Module):
    """Gives what it was told to make of rows."""

    def __init__(self, make: Any) -> None:
        super().__init__()
        self.make, self.layer = make, nn.Linear(3, 4)

    def forward(self, rows: Tensor) -> Any:
        return self.make(self.layer(rows))


class Tracking(nn.Module):
    """Keeps moments outside of its state_dict."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 4)
        self.mean: Tensor
        self.register_buffer("mean", torch.zeros(3), persistent=False)

    def forward(self, rows: Tensor) -> Tensor:
        if self.training:
            self.mean.lerp_(rows.detach().mean(0), 0.1)
        return self.layer(rows - self.mean)


def test_buffers_that_are_not_persistent_are_kept_too() -> None:
    given = nn.Sequential(Tracking(), nn.Tanh())
    body, rows = as_body(given, BOX, torch_generator(0)), torch.randn(8, 3)
    body(rows)
    other = as_body(given, BOX, torch_generator(0))
    other.load_state_dict(body.state_dict())
    assert torch.equal(other(rows), body(rows))
    assert "0.mean" not in given.state_dict()


class Noisy(nn.Module):
    """Adds in training mode what it was told to draw."""

    def __init__(self, draw: Any) -> None:
        super().__init__()
        self.draw, self.layer, self.calls = draw, nn.Linear(3, 4), 0
        self.generator = torch_generator(0)

    def forward(self, rows: Tensor) -> Tensor:
        return self.layer(rows) + (self.draw(self) if self.training else 0)


def count(module: Noisy) -> int:
    module.calls += 1
    return module.calls


@pytest.mark.parametrize("draw", [lambda module: np.random.rand(), lambda module: random.random()])
def test_chance_of_numpy_and_python_follows_from_the_seed_of_the_run_too(draw: Any) -> None:
    one, two = (as_body(Noisy(draw), BOX, torch_generator(0)) for _ in range(2))
    two.load_state_dict(one.state_dict())
    rows = torch.randn(8, 3)
    first = one(rows)
    assert not torch.equal(one(rows), first) and torch.equal(two(rows), first)


@pytest.mark.parametrize(
    "draw",
    [count, lambda module: torch.randn(4, generator=module.generator), lambda _: np.random.default_rng().random()],
)
def test_chance_and_memory_that_no_snapshot_holds_are_refused(draw: Any) -> None:
    with pytest.raises(ValueError, match=r"policy \(Noisy\) gives other features for the same rows, .*register_buffer"):
        as_body(Noisy(draw), BOX, torch_generator(0))


class Spoils(nn.Module):
    """Works on its rows in place."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Sequential(nn.Hardtanh(-0.3, 0.3, inplace=True), nn.Linear(3, 4))

    def forward(self, rows: Tensor) -> Tensor:
        return self.layer(rows.mul_(2))


def test_a_module_that_works_in_place_changes_no_row_of_others() -> None:
    given = Spoils()
    body, rows = as_body(given, BOX, torch_generator(0)), torch.randn(8, 3)
    before = rows.clone()
    expected = given.layer[1]((2 * rows).clamp(-0.3, 0.3))
    assert torch.equal(body(rows), expected) and torch.equal(rows, before)
    with torch.no_grad():
        assert torch.equal(body(rows), expected) and torch.equal(rows, before)
    asked = rows.clone().requires_grad_()
    body(asked).sum().backward()
    assert asked.grad is not None and torch.equal(rows, before)


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        (3, TypeError, r"policy must be a torch.nn.Module, or a class or function .* got 3 of type int"),
        (lambda spec: spec, TypeError, r"got EnvSpec.* of <lambda>\(env_spec\)"),
        (lambda: nn.Identity(), TypeError, r"policy \(<lambda>\) cannot be made: .*TypeError.*called with the EnvSpec"),
        (nn.Linear(5, 4), ShapeError, r"policy \(Linear\) must take rows of 3 numbers, and raised RuntimeError"),
        (nn.Flatten, ShapeError, r"called with the EnvSpec, Flatten\(env_spec\): give an instance, .* or a function"),
        (Says(lambda x: (x, x)), TypeError, r"must give a tensor of features .* got tuple"),
        (Says(lambda x: x.sum(dim=1)), ShapeError, r"must give rows \(N, F\) .* got shape \(3,\) for \(3, 3\)"),
        (Says(lambda x: x[:2]), ShapeError, r"got shape \(2, 4\) for \(3, 3\)"),
        (Says(lambda x: x / 0), ValueError, r"policy \(Says\) must give finite numbers, got NaN or Inf"),
        (nn.Linear(3, 4).double(), TypeError, r"must be of float32, got weight of torch.float64: module.float\(\)"),
        (nn.Linear(3, 4).half(), TypeError, r"got weight of torch.float16: module.float\(\)"),
        (nn.Linear(3, 4, device="meta"), TypeError, r"must be made on the CPU, got weight on meta"),
        (Says(lambda x: x.double()), TypeError, r"must give float32, got torch.float64"),
        (Says(lambda x: x.cumsum(dim=0)), ValueError, r"must treat each row independently"),
        (Says(torch.no_grad()(torch.tanh)), TypeError, r"\(Says\) computes no gradient for its parameters: .*no_grad"),
        (Says(torch.detach), TypeError, r"\(Says\) computes no gradient for its parameters: .*requires_grad_\(False\)"),
        (lambda spec: GaussianMLPPolicy(BOX), TypeError, r"policy must be a torch.nn.Module"),
        (GaussianMLPPolicy(BOX), TypeError, r"must be a torch.nn.Module .*pass it to the learner"),
    ],
)
def test_what_is_no_body_is_told_with_shapes_and_a_hint(given: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        as_body(given, BOX, torch_generator(0))


def test_a_module_that_is_not_to_learn_needs_no_gradient() -> None:
    frozen = Says(torch.detach).requires_grad_(False)
    assert as_body(frozen, BOX, torch_generator(0)).output_dim == 4


class Once(torch.autograd.Function):
    """A function whose gradient has no derivative."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x.square()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:
        ctx.save_for_backward(inputs[0])

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        return 2 * ctx.saved_tensors[0] * grad


class Gated(nn.Module):
    """A cell that remembers nothing, which torch.func.vmap has no rule for all the same."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRU(3, 4, batch_first=True)

    def forward(self, rows: Tensor) -> Tensor:
        return self.cell(rows[:, None])[0][:, 0]


def tried(given: Any, second_order: bool = True) -> None:
    policy = NormalizedPolicy(policy_of(GaussianMLPPolicy, BOX, given))
    layout = policy.parameter_layout()
    check_stacks(
        policy, lambda flat, obs: policy.action_distribution(layout.torch_views(flat), obs), second_order=second_order
    )


def test_meta_gradients_need_stacks_and_second_derivatives() -> None:
    tried(nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.ReLU()))
    tried(Says(Once.apply), second_order=False)
    for given, text in (
        (Normed, r"policy \(Normed\) cannot be meta-learned: a gradient over a stack of 2 .* nn.LayerNorm"),
        (Gated(), r"policy \(Gated\) cannot be meta-learned: .*nn.GRU"),
        (
            Says(Once.apply),
            r"policy \(Says\) cannot be meta-learned: the derivative of its gradient is wrong.*second_order=False",
        ),
    ):
        with pytest.raises(TypeError, match=text):
            tried(given)


def test_stacks_give_what_each_set_gives() -> None:
    policy = policy_of(GaussianMLPPolicy, BOX, nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Tanh()))
    layout, obs = policy.parameter_layout(), torch.randn(2, 5, 3)
    sets = torch.from_numpy(policy.acting_parameters()) + torch.tensor([[0.0], [0.1]])
    stacked = policy.action_distribution(layout.torch_views(sets), obs).mean
    for flat, rows, mean in zip(sets, obs, stacked, strict=True):
        torch.testing.assert_close(policy.action_distribution(layout.torch_views(flat), rows).mean, mean)
    assert isinstance(policy.encoder, OwnBody)
