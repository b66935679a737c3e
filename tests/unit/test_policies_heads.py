"""Heads: one text for NumPy and torch, and what they declare is what a policy can do."""

from __future__ import annotations

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
from metaroll.policies.networks import MLP
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
