"""Policies of the cells of an evaluation: fresh ones, and ones adapted from what a cell has seen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from metaroll.data.paths import TrajectoryBatch
from metaroll.data.step_sequence import StepSequence
from metaroll.seeding import derive_seed, isolated_rng
from metaroll.training.evaluation.held_out_tasks import env_spec_of
from metaroll.types import EnvUpdate

__all__ = ["adapt_policies", "fresh_policies"]


def fresh_policies(algo: Any, count: int, seed: int) -> list[Any]:
    """``count`` exploration policies, the same ones for the same algorithm and seed."""
    with isolated_rng(derive_seed("explore", seed)):  # foreign algorithms may draw from global generators
        return [algo.get_exploration_policy() for _ in range(count)]


def adapt_policies(
    algo: Any,
    policies: Sequence[Any],
    history: Sequence[Sequence[StepSequence]],
    update: EnvUpdate,
    seed: int,
    *,
    fresh: bool,
) -> list[Any]:
    """Policies adapted from the rollouts in ``history``, one cell each.

    Args:
        algo: Who adapts.
        policies: One per cell, given up by the caller.
        history: Rollouts of each cell, the same number of them.
        update: Of the first task; it tells the spaces where the algorithm does not.
        seed: Seed for algorithms that draw from global generators.
        fresh: Adapt new exploration policies in place of ``policies``.
    """
    spec = env_spec_of(algo, update)
    with isolated_rng(derive_seed("adapt", seed, len(history[0]))):
        if fresh:
            policies = [algo.get_exploration_policy() for _ in policies]
        pairs = zip(policies, history, strict=True)
        return [algo.adapt_policy(policy, TrajectoryBatch.from_rollouts(spec, done)) for policy, done in pairs]
