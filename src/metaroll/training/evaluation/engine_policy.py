"""Lets one engine act with many policies: parameters alone where they are of one build, else one after the other."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np
from torch import nn

from metaroll.data.rollouts import Rollouts
from metaroll.policies.adapters import inside_of
from metaroll.types import Context, Policy, RolloutPlan

__all__ = ["acting_key", "context_of", "run_with_policies", "use_policy"]


def acting_key(policy: Any) -> Hashable | None:
    """Equal for policies that differ in parameters and context only; ``None`` for those of which that is unknown."""
    if not isinstance(policy, Policy) or policy.info.slow:
        return None  # a foreign object may keep anything in itself
    size = policy.acting_parameters().size
    return (type(policy), type(inside_of(policy)), size, _build_of(policy)) if size else None


def _build_of(policy: Any) -> Hashable:
    """Structure and settings (activations, bounds, ...) of a torch module, without its parameters."""
    if not isinstance(policy, nn.Module):
        return None
    return tuple(
        (
            name,
            type(module),
            tuple(
                (key, repr(value))
                for key, value in vars(module).items()
                if not key.startswith("_") and isinstance(value, bool | int | float | str | tuple)
            ),
        )
        for name, module in policy.named_modules()
    )


def context_of(policy: Any) -> Context | None:
    """The belief of ``policy`` about its task, as the context of a plan; ``{}`` if it has none.

    A plan without a context would get the belief of the engine's policy, which may be another one of its build.
    """
    return (policy.plan_context() or {}) if isinstance(policy, Policy) else None


def use_policy(engine: Any, policy: Any) -> np.ndarray | None:
    """Make ``engine`` act as ``policy`` does now; the ``parameters`` to hand to its ``run``."""
    key = acting_key(policy)
    if key is None or key != acting_key(engine.policy):
        engine.set_policy(policy)
    return None if key is None else policy.acting_parameters()


def run_with_policies(
    engine: Any,
    policies: Sequence[Any],
    plans: Sequence[Sequence[RolloutPlan]],
    progress: Callable[[int, int], None] | None = None,
) -> list[Rollouts]:
    """Rollouts of ``plans[i]`` under ``policies[i]``; policies of one build share one run of the engine.

    Plans are numbered here, and get their policy's parameters where these differ. ``progress`` is that of
    ``RolloutEngine.run``.
    """
    groups: dict[Hashable, list[int]] = {}
    for i, policy in enumerate(policies):
        key = acting_key(policy)
        groups.setdefault(("object", id(policy)) if key is None else key, []).append(i)
    results = [Rollouts()] * len(policies)
    for members in groups.values():
        shared = use_policy(engine, policies[members[0]])
        own: list[np.ndarray | None] = [None] * len(members)
        if shared is not None:
            each = [policies[i].acting_parameters() for i in members]
            if not all(np.array_equal(parameters, shared) for parameters in each):
                own = list(each)
        batch = [
            plan.with_(parameters=parameters) for i, parameters in zip(members, own, strict=True) for plan in plans[i]
        ]
        batch = [plan.with_(index=index) for index, plan in enumerate(batch)]
        rollouts = engine.run(batch, shared, progress=progress)
        if len(rollouts) != len(batch):
            raise ValueError("all rollouts are needed here, none may be dropped: use an engine with on_invalid='raise'")
        ends = itertools.accumulate((len(plans[i]) for i in members), initial=0)
        for i, (begin, end) in zip(members, itertools.pairwise(ends), strict=True):
            results[i] = rollouts[begin:end]
    return results
