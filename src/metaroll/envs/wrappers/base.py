"""What all wrappers share, and ways through a chain of them (specs/sampling.md 16.3)."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box

from metaroll.envs.base.batching import is_batched, without_checks
from metaroll.envs.base.env_state import current_observation
from metaroll.envs.base.slot_proxies import SlotsProxy
from metaroll.tasks.updates import env_layers
from metaroll.types import EnvSpec, EnvUpdate, RolloutPlan, Slots, SlotStep

__all__ = [
    "ChainWrapper",
    "WrappedSlots",
    "all_envs",
    "box_of",
    "inner_env",
    "remove_envs",
    "seed_of",
    "spec_of",
    "typed_env",
    "with_applied",
]

APPLIED = "act_applied"
"""Entry of infos: the action that reached what is simulated."""


def all_envs(env: Any) -> list[Any]:
    """``env`` and all that it wraps, from the outermost wrapper to the environment itself."""
    return list(env_layers(env))


def inner_env(env: Any) -> Any:
    """The environment inside all wrappers."""
    return all_envs(env)[-1]


def typed_env(env: Any, kind: type | tuple[type, ...]) -> Any:
    """The outermost layer that is a ``kind``, or ``None``."""
    return next((layer for layer in env_layers(env) if isinstance(layer, kind)), None)


def remove_envs(env: Any, kind: type | tuple[type, ...]) -> Any:
    """``env`` without its wrappers that are a ``kind``.

    Wrappers around one that is taken away are copied (shallowly); ``env`` itself stays as it is.
    """
    if not isinstance(env, gymnasium.Wrapper):
        return env
    inside = remove_envs(env.env, kind)
    if isinstance(env, kind):
        return inside
    if inside is env.env:
        return env
    outside = copy.copy(env)
    outside.env = inside
    return outside


class ChainWrapper(gymnasium.Wrapper):
    """Base of our wrappers: labels and limits of the environment inside are kept, and its batched simulator is used."""

    @property
    def env_spec(self) -> EnvSpec:
        """Spaces as they are here; labels, states and limit of the environment inside."""
        inner = spec_of(self.env)
        return replace(inner, observation_space=self.observation_space, action_space=self.action_space)

    @property
    def can_batch(self) -> bool:
        """Whether the environment inside brings a batched simulator."""
        return is_batched(self.env)

    def accepts_update(self, update: EnvUpdate | None) -> bool:
        """Whether the batched simulator can apply ``update``."""
        return self.can_batch and without_checks(self.env).accepts_update(update)

    def current_observation(self) -> Any:
        """What is observed now."""
        return self._seen_now(current_observation(self.env))

    def _seen_now(self, observation: Any) -> Any:
        """What the wrapper makes of the present observation inside."""
        return observation

    def _inner_slots(self, num_slots: int) -> Slots:
        return without_checks(self.env).batched_slots(num_slots)


class WrappedSlots(SlotsProxy):
    """Slots inside a wrapper; subclasses change plans, actions or results.

    Args:
        slots: The slots inside.
        env_spec: What they look like from outside.
    """

    def __init__(self, slots: Slots, env_spec: EnvSpec) -> None:
        super().__init__(slots)
        self.env_spec = env_spec
        self.info = replace(slots.info, steps_past_end=False, can_keep=False)  # wrappers have rows of their own


def spec_of(env: Any) -> EnvSpec:
    """Spec of what is inside a wrapper."""
    return EnvSpec.from_env(without_checks(env))


def seed_of(plan: RolloutPlan) -> tuple[int, int, int]:
    """The seed triple of a plan that is about to start."""
    if plan.seed is None:
        raise ValueError("plan.seed must be set before a slot is reset: the engine resolves it to a seed triple")
    return plan.seed


def with_applied(result: SlotStep, applied: np.ndarray) -> SlotStep:
    """``result`` that tells the applied actions ``(E, ...)``, unless the simulator does."""
    infos: Any = result.infos
    return result if APPLIED in infos else result._replace(infos={**infos, APPLIED: applied})


def box_of(env: Any, kind: str, wrapper: Any) -> Box:
    """The observation or action space (``kind``) inside a wrapper, which has to be a Box."""
    space = getattr(env, f"{kind}_space")
    if not isinstance(space, Box):
        raise TypeError(f"{type(wrapper).__name__} needs a Box {kind}_space, got {space}")
    return space
