"""Detection of environments with their own batched simulator."""

from __future__ import annotations

from typing import Any

from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit

__all__ = ["has_simulator", "is_as_defined", "is_batched", "unwrapped_and_limit", "without_checks"]


def without_checks(env: Any) -> Any:
    """``env`` without the outermost wrappers that only check how it is used; ``gymnasium.make`` puts them on."""
    while type(env) in (OrderEnforcing, PassiveEnvChecker):
        env = env.env
    return env


def unwrapped_and_limit(
    env: Any, wrappers: tuple[type, ...] = (OrderEnforcing, PassiveEnvChecker, TimeLimit)
) -> tuple[Any, int | None]:
    """The environment inside wrappers that only count and check, and the time limit that is counted."""
    limit: int | None = None
    while type(env) in wrappers:
        if type(env) is TimeLimit:
            own = int(env._max_episode_steps)
            limit = own if limit is None else min(limit, own)
        env = env.env
    return env, limit


def is_as_defined(env: Any) -> bool:
    """Whether ``env`` does not replace a function of its class."""
    return not any(callable(value) for name, value in vars(env).items() if hasattr(type(env), name))


def has_simulator(kind: type) -> bool:
    """Whether a class has ``batched_slots``, and that is still its own: no subclass has changed how it steps."""
    if not hasattr(kind, "batched_slots"):
        return False
    announced = _definer(kind, "batched_slots")
    return all(_definer(kind, name) >= announced for name in ("step", "reset"))


def is_batched(env: Any) -> bool:
    """Whether ``without_checks(env)`` can be stepped as a batch.

    A wrapper declares it in ``can_batch``, since that depends on its inner environment.
    """
    env = without_checks(env)
    return has_simulator(type(env)) and bool(getattr(env, "can_batch", True))


def _definer(kind: type, name: str) -> int:
    """Position in the method resolution order of the class that defines ``name``."""
    return next(i for i, base in enumerate(kind.__mro__) if name in base.__dict__)
