"""Which of Gymnasium's own MuJoCo environments can be stepped as a batch, and how."""

from __future__ import annotations

import copy
import importlib
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec as Registration

from metaroll.envs.base.batching import is_as_defined, unwrapped_and_limit
from metaroll.envs.mujoco.gymnasium_rules import RULES
from metaroll.envs.mujoco.library import unstable
from metaroll.envs.mujoco.rules import Rules
from metaroll.envs.mujoco.simulator import MujocoSimulator
from metaroll.types import EnvSpec

__all__ = ["checked_step", "default_camera", "gymnasium_simulator", "is_gymnasium_id"]

_MODULE = "gymnasium.envs.mujoco."


def is_gymnasium_id(name: str) -> bool:
    """Whether Gymnasium makes under this name one of its own MuJoCo environments that can be stepped as a batch."""
    registered: Registration | None = gymnasium.registry.get(name)
    entry = None if registered is None else registered.entry_point
    return (
        registered is not None
        and isinstance(entry, str)
        and entry.startswith(_MODULE)
        and entry.removeprefix(_MODULE) in RULES
        and not registered.additional_wrappers
        and registered.kwargs.get("render_mode") != "human"
    )


def default_camera(module: str) -> dict[str, Any] | None:
    """The camera that a module of ``gymnasium.envs.mujoco`` defines, if any."""
    return getattr(importlib.import_module(f"{_MODULE}{module}"), "DEFAULT_CAMERA_CONFIG", None)


def gymnasium_simulator(env: Any) -> MujocoSimulator | None:
    """The simulator of copies of ``env``; ``None`` unless it is exactly one of Gymnasium's own.

    Around it may be wrappers that only count and check: ``TimeLimit``, ``OrderEnforcing``, ``PassiveEnvChecker``.
    """
    inner, limit = unwrapped_and_limit(env)
    rules = _rules_of(inner)
    if rules is None or inner.render_mode == "human":
        return None
    return MujocoSimulator(
        model=copy.deepcopy(inner.model),
        rules=rules(inner),
        env_spec=EnvSpec.from_env(env),
        init_qpos=inner.init_qpos.copy(),
        init_qvel=inner.init_qvel.copy(),
        time_limit=limit,
    )


def checked_step(env: Any, step: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """``step`` of ``env``, which shows an observation of NaN when MuJoCo's numbers are no longer finite.

    MuJoCo then starts again from the reference position, without a word but a warning in its log. Environments that
    are not MuJoCo's keep their ``step``.
    """
    inner = getattr(env, "unwrapped", None)
    data: Any = getattr(inner, "data", None)
    if type(data).__module__.partition(".")[0] != "mujoco":
        return step
    counts = data.warning.number
    quiet = bytes(counts.nbytes)

    def checked(action: Any) -> Any:
        result = step(action)
        if counts.tobytes() != quiet and unstable(counts[None])[0]:
            observation = result[0]
            if isinstance(observation, np.ndarray) and observation.dtype.kind == "f":
                return (np.full_like(observation, np.nan), *result[1:])
        return result

    return checked


def _rules_of(inner: Any) -> Callable[[Any], Rules] | None:
    kind = type(inner)
    rules = RULES.get(f"{kind.__module__.removeprefix(_MODULE)}:{kind.__qualname__}")
    if rules is None or not kind.__module__.startswith(_MODULE):
        return None
    return rules if is_as_defined(inner) else None
