"""Points an engine at a policy: its parameters alone where the engine holds one of the same build, else the policy."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, cast

import numpy as np

from metaroll.types import Context, Policy

__all__ = ["acting_key", "context_of", "use_policy"]


def acting_key(policy: Any) -> Hashable | None:
    """Equal for policies that differ in parameters and context only; ``None`` for those of which that is unknown."""
    if not isinstance(policy, Policy) or getattr(policy, "slow", False):
        return None  # a foreign object may keep anything in itself
    size = policy.acting_parameters().size
    return (type(policy), type(getattr(policy, "policy", None)), size) if size else None


def context_of(policy: Any) -> Context | None:
    """What ``policy`` believes about its task, as the context of a plan."""
    tell = getattr(policy, "plan_context", None)
    if not isinstance(policy, Policy) or not callable(tell):
        return None
    return cast("Context | None", tell())


def use_policy(engine: Any, policy: Any) -> np.ndarray | None:
    """Make ``engine`` act as ``policy`` does now; the ``parameters`` to hand to its ``run``."""
    key = acting_key(policy)
    if key is None or key != acting_key(engine.policy):
        engine.set_policy(policy)
    return None if key is None else policy.acting_parameters()
