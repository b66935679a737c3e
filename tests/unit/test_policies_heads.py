"""Heads: one text for NumPy and torch, and what they declare is what a policy can do."""

from __future__ import annotations

import math
import pickle
from typing import Any

import array_api_compat.torch as torch_namespace
import gymnasium
import numpy as np
import pytest
import torch

from metaroll.policies.acting import ActingPolicy
from metaroll.policies.bodies import Recurrent
from metaroll.policies.gaussian import CategoricalMLPPolicy, GaussianMLPPolicy, TanhGaussianMLPPolicy
from metaroll.policies.greedy import DeterministicMLPPolicy, GreedyQPolicy
from metaroll.policies.gru import GRUCell, GRUGaussianPolicy, TanhGaussianGRUPolicy
from metaroll.policies.heads import CategoricalHead, DeterministicHead, GaussianHead, GreedyHead, SquashedHead
from metaroll.policies.networks import MLP, empty_linear
from metaroll.seeding import torch_generator
from metaroll.types import EnvSpec

Box, Discrete, MultiDiscrete = (getattr(gymnasium.spaces, name) for name in ("Box", "Discrete", "MultiDiscrete"))
SEEN = Box(-9, 9, (3,))
CONTINUOUS, DISCRETE = EnvSpec(SEEN, Box(-2, 3, (2,)), 10), EnvSpec(SEEN, Discrete(4), 10)

HEADS = {
    "gaussian": GaussianHead.of(CONTINUOUS, "P", 1.0, 0.5),
    "squashed": SquashedHead.of(CONTINUOUS, "P", (-1.0, 1.0)),
    "categorical": CategoricalHead.of(DISCRETE, "P", "Q"),
    "many choices": CategoricalHead.of(EnvSpec(SEEN, Discrete(20), 10), "P", "Q"),
    "several": CategoricalHead.of(EnvSpec(SEEN, MultiDiscrete([2, 3]), 10), "P", "Q"),
    "deterministic": DeterministicHead.of(CONTINUOUS, "P"),
    "greedy": GreedyHead(4, False),
    "dueling": GreedyHead(5, True),
}


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize("deterministic", [False, True, np.array([True, False] * 4)], ids=["no", "yes", "some"])
def test_numpy_and_torch_choose_alike(name: str, deterministic: Any) -> None:
    head, drawn = HEADS[name], np.random.default_rng(0)
    outputs = drawn.normal(size=(8, head.width)).astype(np.float32)
    draw = drawn.random if head.noise_kind == "uniform" else drawn.standard_normal
    noise, own = draw((8, head.noise_dim), dtype=np.float32), np.array([-2.0, 0.5], np.float32)
    parts = outputs if head.num_parts == 1 else np.stack(np.split(outputs, head.num_parts, axis=1))
    action, infos = head.choose(parts, noise, deterministic, head.prepared(own, np), np)
    flags = deterministic if isinstance(deterministic, bool) else torch.from_numpy(deterministic)
    prepared = head.prepared(torch.from_numpy(own), torch_namespace)
    tensors = head.parts_of(torch.from_numpy(outputs))
    theirs, their_infos = head.choose(tensors, torch.from_numpy(noise), flags, prepared, torch_namespace)
    np.testing.assert_allclose(action, theirs.numpy(), rtol=1e-5, atol=1e-6)
    assert infos.keys() == their_infos.keys()
    for each in infos:
        np.testing.assert_allclose(infos[each], their_infos[each].numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("kind", "spec", "densities", "distributions"),
    [
        (GaussianMLPPolicy, CONTINUOUS, True, True),
        (CategoricalMLPPolicy, DISCRETE, True, True),
        (GRUGaussianPolicy, CONTINUOUS, True, True),
        (TanhGaussianMLPPolicy, CONTINUOUS, False, True),
        (TanhGaussianGRUPolicy, CONTINUOUS, False, True),
        (DeterministicMLPPolicy, CONTINUOUS, False, False),
        (GreedyQPolicy, DISCRETE, False, False),
    ],
)
def test_densities_are_declared(kind: Any, spec: EnvSpec, densities: bool, distributions: bool) -> None:
    policy = kind(spec)
    assert (policy.has_densities, policy.has_distributions) == (densities, distributions)
    obs, action = torch.zeros(1, 2, 3), torch.zeros(1, 2) if spec is DISCRETE else torch.zeros(1, 2, 2)
    for works, call in (
        (densities, lambda: policy.evaluate_actions(obs, action)),
        (distributions, lambda: policy.log_prob(obs, action)),
        (distributions, lambda: policy.action_distribution(dict(policy.named_parameters()), obs)),
    ):
        if works:
            call()
        else:
            with pytest.raises(TypeError, match=kind.__name__):
                call()


def test_any_body_goes_with_any_head() -> None:
    """A combination that has no name: choices by an MLP that sees a memory and the observation."""

    class Choosing(ActingPolicy):
        def __init__(self) -> None:
            drawn, head = torch_generator(0), CategoricalHead.of(DISCRETE, "Choosing", "Q")
            super().__init__(DISCRETE, body=Recurrent(8, "net", sees_features=True), head=head)
            self.cell = GRUCell(3, 8, init="fan_in", generator=drawn)
            self.net = MLP(8 + 3, head.width, (6,), init="fan_in", generator=drawn)

    policy, obs = Choosing(), np.random.default_rng(1).normal(size=(5, 3)).astype(np.float32)
    state = policy.initial_state([None] * 5, [])
    action, state, infos = policy.act(obs, state, np.full((5, 1), 0.5, np.float32))
    assert state["hidden"].shape == (5, 8) and action.shape == (5,)
    np.testing.assert_allclose(infos["prob"].sum(axis=1), 1.0, rtol=1e-6)
    sequence = torch.from_numpy(obs[:, None])
    log_prob, _ = policy.evaluate_actions(sequence, torch.from_numpy(action)[:, None])
    np.testing.assert_allclose(log_prob[:, 0].exp().detach(), infos["prob"][np.arange(5), action], rtol=1e-5)


@pytest.mark.parametrize("kind", [GaussianMLPPolicy, GRUGaussianPolicy])
def test_modules_that_a_subclass_adds_are_no_layers(kind: Any) -> None:
    class Valued(kind):
        def __init__(self) -> None:
            super().__init__(CONTINUOUS, generator=torch_generator(0))
            self.scale, self.value = torch.nn.Parameter(torch.ones(1)), empty_linear(2, 2)

    plain, valued = kind(CONTINUOUS, generator=torch_generator(0)), Valued()
    obs, noise = np.ones((8, 3), np.float32), np.zeros((8, 2), np.float32)
    state = plain.initial_state([None] * 8, [])
    expected = plain.act(obs, state, noise, True)[0]
    np.testing.assert_array_equal(valued.act(obs, state, noise, True)[0], expected)
    np.testing.assert_array_equal(valued.act(obs, state, noise, True, valued.acting_parameters())[0], expected)


def test_infos_that_are_computed_on_first_access_can_be_pickled_and_joined() -> None:
    policy = CategoricalMLPPolicy(DISCRETE, generator=torch_generator(0))
    infos: Any = policy.act(np.ones((2, 3), np.float32), {}, np.zeros((2, 1), np.float32), True)[2]
    copied = pickle.loads(pickle.dumps(infos))
    assert type(copied) is dict
    np.testing.assert_array_equal(copied["prob"], infos["prob"])
    assert list(infos | {"more": 1}) == ["prob", "more"] and list({"more": 1} | infos) == ["more", "prob"]


def test_bounds_of_the_deviation_are_those_of_the_head() -> None:
    for policy, name in (
        (GaussianMLPPolicy(CONTINUOUS, min_std=0.5), "min_log_std"),
        (GRUGaussianPolicy(CONTINUOUS, min_std=0.5), "min_log_std"),
        (TanhGaussianMLPPolicy(CONTINUOUS, log_std_bounds=(-5, 1)), "log_std_bounds"),
        (TanhGaussianGRUPolicy(CONTINUOUS, log_std_bounds=(-5, 1)), "log_std_bounds"),
    ):
        assert getattr(policy, name) == (math.log(0.5) if name == "min_log_std" else (-5.0, 1.0))
        with pytest.raises(AttributeError):
            setattr(policy, name, 0.0)
