"""Which of Gymnasium's own classic-control environments can be stepped as arrays."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec as Registration
from gymnasium.spaces import Box, Discrete

from metaroll.envs.base.batching import is_as_defined, unwrapped_and_limit
from metaroll.envs.classic_control.simulators import SIMULATORS, ClassicSimulator
from metaroll.types import EnvSpec

__all__ = ["TESTED_RELEASES", "classic_simulator", "is_classic"]

_MODULE = "gymnasium.envs.classic_control."
TESTED_RELEASES = ("1.1", "1.2", "1.3", "1.4")
"""Releases of Gymnasium whose environments show the bits of the simulators; with others they are stepped as a list."""


def is_classic(source: str | type) -> bool:
    """Whether an id or class makes, as far as it tells, an environment that ``classic_simulator`` knows."""
    if isinstance(source, type):
        return _kind_of(source) is not None
    registered: Registration | None = gymnasium.registry.get(source)
    entry = None if registered is None else registered.entry_point
    return isinstance(entry, str) and entry.startswith(_MODULE) and entry.removeprefix(_MODULE) in SIMULATORS


def classic_simulator(env: Any) -> ClassicSimulator | None:
    """The simulator of copies of ``env``; ``None`` unless it is exactly one of Gymnasium's own, and not drawn.

    Around it may be wrappers that only count and check: ``TimeLimit``, ``OrderEnforcing``, ``PassiveEnvChecker``.
    Attributes may have been changed as far as the simulator reads them.
    """
    inner, limit = unwrapped_and_limit(env)
    kind = _kind_of(type(inner))
    if kind is None or inner.render_mode is not None or not is_as_defined(inner) or not _is_tested():
        return None
    values: dict[str, Any] = {name: getattr(inner, name, None) for name in kind.params}
    same = all(_is_same(getattr(inner, name, None), expected) for name, expected in kind.fixed.items())
    if not same or any(type(value) not in (int, float) for value in values.values()) or not _fits(inner):
        return None
    simulator = kind(values, EnvSpec.from_env(env), limit)
    return simulator if simulator.can_step() else None


def _is_tested() -> bool:
    return ".".join(gymnasium.__version__.split(".")[:2]) in TESTED_RELEASES


def _kind_of(kind: type) -> type[ClassicSimulator] | None:
    if not kind.__module__.startswith(_MODULE):
        return None
    return SIMULATORS.get(f"{kind.__module__.removeprefix(_MODULE)}:{kind.__qualname__}")


def _is_same(value: Any, expected: Any) -> bool:
    return isinstance(value, bool | int | float | str | list) and value == expected


def _fits(inner: Any) -> bool:
    """Whether its spaces are of the kind that it was written with."""
    action, observation = inner.action_space, inner.observation_space
    return (
        isinstance(observation, Box)
        and observation.dtype == np.float32
        and len(observation.shape) == 1
        and (
            (isinstance(action, Box) and action.dtype == np.float32 and action.shape == (1,))
            or (isinstance(action, Discrete) and action.start == 0)
        )
    )
