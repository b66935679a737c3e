"""Gradient steps by hand are those of autograd: the same losses, errors, weights and moments."""

from __future__ import annotations

import copy
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from metaroll.learners.off_policy.deterministic import DDPG, TD3
from metaroll.learners.off_policy.networks import Critics
from metaroll.learners.off_policy.replay import TransitionBatch
from metaroll.learners.off_policy.soft import SAC
from metaroll.policies.deterministic import DeterministicMLPPolicy
from metaroll.policies.gaussian import TanhGaussianMLPPolicy
from metaroll.seeding import torch_generator
from metaroll.types import EnvSpec

SPEC = EnvSpec(gymnasium.spaces.Box(-1.0, 1.0, (3,), np.float32), gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32))


def learner_of(kind: Any, activation: str, **options: Any) -> Any:
    generator = torch_generator(0)
    policy_kind = TanhGaussianMLPPolicy if kind is SAC else DeterministicMLPPolicy
    bounds: dict[str, Any] = {"log_std_bounds": (-0.1, 0.1)} if kind is SAC else {}
    policy = policy_kind(SPEC, (16, 16), activation, generator=generator, **bounds)
    critics = Critics(SPEC, 1 if kind is DDPG else 2, (16, 16), activation, generator=generator)
    options = {
        "buffer_batch_size": 32,
        "replay_size": 100,
        "min_buffer_size": 32,
        "max_path_length": 5,
        "seed": 0,
        **options,
    }
    return kind(SPEC, policy, critics, **options)


def batch_of(seed: int, weighted: bool) -> TransitionBatch:
    generator = torch_generator(seed)
    columns = [torch.randn(32, *shape, generator=generator) for shape in ((3,), (2,), (), (3,), (), ())]
    columns[1].tanh_()
    columns[4] = 0.99 * (columns[4] > -1.0)
    columns[5] = columns[5].abs() if weighted else None  # pyright: ignore[reportArgumentType, reportCallIssue]
    return TransitionBatch(*columns)


def learn(algo: Any, weighted: bool) -> dict[str, Any]:
    trainer = algo.trainer
    errors = [trainer.step(batch_of(seed, weighted)).clone() for seed in range(5)]
    tree = trainer.state_dict()
    return {"errors": errors, "means": trainer.means.take(), **{k: tree[k] for k in ("networks", "optimizers")}}


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize(("kind", "options"), [(DDPG, {}), (TD3, {}), (SAC, {}), (SAC, {"temperature": 0.3})])
def test_a_step_by_hand_is_that_of_autograd(
    kind: Any, options: dict[str, Any], activation: str, weighted: bool
) -> None:
    by_hand, by_autograd = (learner_of(kind, activation, **options) for _ in range(2))
    assert by_hand.trainer.direct is not None
    by_autograd.trainer.direct = None
    found, expected = learn(by_hand, weighted), learn(by_autograd, weighted)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)


def test_a_copy_learns_by_itself() -> None:
    algo = learner_of(TD3, "relu")
    learn(algo, False)
    other = copy.deepcopy(algo.trainer)
    before = [p.detach().clone() for p in algo.policy.parameters()]
    for seed in range(4):
        other.step(batch_of(seed, False))
    assert all(torch.equal(p, q) for p, q in zip(algo.policy.parameters(), before, strict=True))
    for seed in range(4):
        algo.trainer.step(batch_of(seed, False))
    for p, q in zip(algo.policy.parameters(), other.networks.policy.parameters(), strict=True):
        assert torch.equal(p, q) and not torch.equal(p, before[0])


@pytest.mark.parametrize("activation", ["elu", "sigmoid"])
def test_other_networks_learn_by_autograd(activation: str) -> None:
    for kind in (TD3, SAC):
        algo = learner_of(kind, activation)
        assert algo.trainer.direct is None
        assert np.isfinite(list(learn(algo, False)["means"].values())).all()
