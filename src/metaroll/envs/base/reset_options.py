"""What of a plan wrappers hear at a reset, beyond its seed.

A wrapper with an attribute ``plan_options`` gets the entries that it names there in the ``options`` of its ``reset``:

- ``"eval"``: whether the rollout is an evaluation;
- ``"rollout"``: ``(sub_seed, sub_sub_seed)``, which batch it belongs to and its place there;
- ``"max_steps"``: after how many steps the rollout is cut off, or ``None``.

Whoever resets an environment by hand may give the same options. Environments that name nothing get nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from metaroll.tasks.updates import env_layers
from metaroll.types import RolloutPlan

__all__ = ["PLAN_OPTIONS", "inner_options", "plan_options", "wanted_options"]

PLAN_OPTIONS = ("eval", "rollout", "max_steps")


def wanted_options(env: Any) -> frozenset[str]:
    """Names of the options that some layer of ``env`` wants to hear."""
    return frozenset(name for layer in env_layers(env) for name in getattr(layer, "plan_options", ()))


def plan_options(plan: RolloutPlan, wanted: frozenset[str]) -> dict[str, Any]:
    """The entries of ``plan`` that are ``wanted``."""
    if not wanted or plan.seed is None:
        return {}
    told = {"eval": plan.eval, "rollout": (plan.seed[1] or 0, plan.seed[2] or 0), "max_steps": plan.max_steps}
    return {name: told[name] for name in PLAN_OPTIONS if name in wanted}


def inner_options(options: Mapping[str, Any], env: Any) -> dict[str, Any] | None:
    """``options`` for ``env``, the inside of a wrapper: without entries of plans that nothing in it wants."""
    wanted = wanted_options(env)
    rest = {name: value for name, value in options.items() if name not in PLAN_OPTIONS or name in wanted}
    return rest or None
