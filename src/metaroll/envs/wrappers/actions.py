"""Wrappers that change actions on their way to the environment (specs/sampling.md 16.3).

``info["act_applied"]`` is the command that reached what is simulated (specs/sampling.md 8 d).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete

from metaroll.checks import plain_number
from metaroll.envs.wrappers.base import APPLIED, ChainWrapper, WrappedSlots, box_of, seed_of, with_applied
from metaroll.errors import ShapeError
from metaroll.tasks.domain_access import domain_params_of, read_domain_params, set_domain_params
from metaroll.tasks.domain_params import DomainParamUpdate
from metaroll.types import EnvSpec, EnvUpdate, RolloutPlan, Slots, SlotStep

__all__ = ["ActDelayWrapper", "ActNormWrapper", "DownsamplingWrapper"]

_LONGEST_DELAY = 10_000

StepResult = tuple[Any, Any, bool, bool, dict[str, Any]]


class ActNormWrapper(ChainWrapper):
    """Actions in [-1, 1] instead of the environment's own bounds, those that it has when it is wrapped.

    Args:
        env: Environment with a bounded Box of actions.
    """

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        space = box_of(env, "action", self)
        if not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
            raise ValueError(f"ActNormWrapper needs finite bounds of actions, got {space}")
        self.action_space = Box(-1.0, 1.0, space.shape, space.dtype.type)  # type: ignore[arg-type]
        self._low, self._high, self._dtype = space.low.copy(), space.high.copy(), space.dtype
        low, high = space.low.astype(np.float64), space.high.astype(np.float64)
        self._middle, self._half = 0.5 * (low + high), 0.5 * (high - low)

    def physical(self, actions: Any) -> np.ndarray:
        """Actions ``(..., *shape)`` as the environment counts them."""
        actions = np.asarray(actions, dtype=self._dtype)
        return (self._middle + self._half * actions).astype(self._dtype)

    def clipped(self, commands: np.ndarray) -> np.ndarray:
        """``commands`` within the environment's bounds."""
        return np.clip(commands, self._low, self._high)

    def step(self, action: Any) -> StepResult:
        """One step with the action scaled to the environment's bounds."""
        command = self.physical(action)
        *rest, info = self.env.step(command)
        return (*rest, {APPLIED: self.clipped(command), **info})  # type: ignore[return-value]

    def batched_slots(self, num_slots: int) -> Slots:
        """Many of this environment, stepped as arrays."""
        return _NormSlots(self._inner_slots(num_slots), self.env_spec, self)


class _NormSlots(WrappedSlots):
    def __init__(self, slots: Slots, env_spec: EnvSpec, wrapper: ActNormWrapper) -> None:
        super().__init__(slots, env_spec)
        self._wrapper = wrapper

    def step(self, actions: Any, active: np.ndarray) -> SlotStep:
        commands = self._wrapper.physical(actions)
        return with_applied(self._slots.step(commands, active), self._wrapper.clipped(commands))


class ActDelayWrapper(ChainWrapper):
    """An action takes effect ``act_delay`` steps later; until the first one does, the action is zero.

    Adds the domain parameter ``act_delay``, a whole number of steps, which holds from the next reset on.

    Args:
        env: Environment with a Box of actions.
        delay: Number of steps.
    """

    own_domain_params = ("act_delay",)

    def __init__(self, env: Any, delay: int = 0) -> None:
        super().__init__(env)
        space = box_of(env, "action", self)
        self._low, self._high = space.low.copy(), space.high.copy()
        self._zero = np.clip(np.zeros(space.shape, space.dtype), space.low, space.high).astype(space.dtype)
        self._delay = checked_delay(delay)
        self._queue: list[np.ndarray] = []

    @property
    def domain_param(self) -> dict[str, Any]:
        """Those that the environment tells, and ``act_delay``."""
        return {**(domain_params_of(self.env) or {}), "act_delay": self._delay}

    @domain_param.setter
    def domain_param(self, params: Mapping[str, float]) -> None:
        set_domain_params(self, params)

    def set_domain_param(self, params: Mapping[str, float]) -> None:
        """Set ``act_delay`` here, all others inside."""
        delay, rest = split_delay(params, self._delay)
        if rest:
            set_domain_params(self.env, rest)
        self._delay = delay

    def read_domain_params(self, names: Sequence[str]) -> dict[str, float]:
        """Present values of ``names``."""
        found = read_domain_params(self.env, [name for name in names if name != "act_delay"])
        return {**found, "act_delay": float(self._delay)} if "act_delay" in names else found

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode with zeros on their way; of the option ``domain_param``, ``act_delay`` is set here."""
        delay, params = self._delay, (options or {}).get("domain_param")
        if isinstance(params, Mapping):
            delay, rest = split_delay(params, delay)
            others = {name: value for name, value in (options or {}).items() if name != "domain_param"}
            options = {**others, "domain_param": rest} if rest else others or None
        started = self.env.reset(seed=seed, options=options)
        # Not before: what is inside may have refused the rest of the options.
        self._delay, self._queue = delay, [self._zero] * delay
        return started

    def step(self, action: Any) -> StepResult:
        """One step with the action of ``act_delay`` steps ago."""
        self._queue.append(_own_action(action, self._zero))
        command = self._queue.pop(0)
        *rest, info = self.env.step(command)
        return (*rest, {APPLIED: self.clipped(command), **info})  # type: ignore[return-value]

    def clipped(self, commands: np.ndarray) -> np.ndarray:
        """``commands`` within the environment's bounds."""
        return np.clip(commands, self._low, self._high)

    def accepts_update(self, update: EnvUpdate | None) -> bool:
        """Whether the batched simulator can apply what is left of ``update`` without ``act_delay``."""
        return super().accepts_update(self.inner_update(update))

    def inner_update(self, update: EnvUpdate | None) -> EnvUpdate | None:
        """What ``update`` means for the environment inside."""
        if not isinstance(update, DomainParamUpdate):
            return update
        rest = split_delay(update.task, self._delay)[1]
        return DomainParamUpdate(rest) if rest else None

    def delay_of(self, plan: RolloutPlan) -> int:
        """The delay of a plan's rollout."""
        update = plan.env_update
        return split_delay(update.task, self._delay)[0] if isinstance(update, DomainParamUpdate) else self._delay

    def batched_slots(self, num_slots: int) -> Slots:
        """Many of this environment, stepped as arrays."""
        return _DelaySlots(self._inner_slots(num_slots), self.env_spec, self, self._zero)


class _DelaySlots(WrappedSlots):
    """Keeps the last actions of all slots in a ring, ``(L, E, ...)``; that of step t is in row ``t % L``."""

    def __init__(self, slots: Slots, env_spec: EnvSpec, wrapper: ActDelayWrapper, zero: np.ndarray) -> None:
        super().__init__(slots, env_spec)
        self._wrapper = wrapper
        self._zero = zero
        self._rows = np.arange(self.num_slots)
        self._delays = np.zeros(self.num_slots, dtype=np.int64)
        self._steps = np.zeros(self.num_slots, dtype=np.int64)
        self._ring = np.tile(zero, (1, self.num_slots, *[1] * zero.ndim))

    def domain_param(self, slot: int) -> dict[str, Any] | None:
        """Domain parameters of the rollout in a slot."""
        return {**((self._slots.domain_param(slot)) or {}), "act_delay": int(self._delays[slot])}

    def reset(self, slots: Sequence[int], plans: Sequence[RolloutPlan]) -> Any:
        """Start ``plans[i]`` in slot ``slots[i]`` with zeros on their way."""
        delays = [self._wrapper.delay_of(plan) for plan in plans if seed_of(plan)]
        changed = [plan.with_(env_update=self._wrapper.inner_update(plan.env_update)) for plan in plans]
        rows = self._slots.reset(slots, changed)
        self._lengthen(max(delays, default=0) + 1)
        self._delays[list(slots)], self._steps[list(slots)] = delays, 0
        self._ring[:, list(slots)] = self._zero
        return rows

    def step(self, actions: Any, active: np.ndarray) -> SlotStep:
        """Step active slots with the actions of ``act_delay`` steps ago."""
        actions = np.asarray(actions, dtype=self._zero.dtype).reshape(self.num_slots, *self._zero.shape)
        active = np.asarray(active, dtype=bool)
        length = len(self._ring)
        live = self._rows[active]
        self._ring[self._steps[live] % length, live] = actions[live]
        # What lies before the first step is a row that holds zeros still: no delay is as long as the ring.
        commands = self._ring[(self._steps - self._delays) % length, self._rows]
        self._steps += active
        return with_applied(self._slots.step(commands, active), self._wrapper.clipped(commands))

    def _lengthen(self, length: int) -> None:
        """Room for ``length`` steps, at least; what is on its way stays so."""
        old = self._ring
        if length <= len(old):
            return
        self._ring = np.tile(self._zero, (length, self.num_slots, *[1] * self._zero.ndim))
        for back in range(1, len(old) + 1):
            then = self._steps - back
            self._ring[then % length, self._rows] = old[then % len(old), self._rows]


class DownsamplingWrapper(ChainWrapper):
    """Every action is held for ``factor`` steps; those that come in between have no effect.

    Args:
        env: Environment with a Box or Discrete space of actions.
        factor: Number of steps, at least 1.
    """

    def __init__(self, env: Any, factor: int) -> None:
        super().__init__(env)
        if isinstance(factor, bool) or not isinstance(factor, int | np.integer) or factor < 1:
            raise ValueError(f"factor must be a whole number of at least 1, got {factor!r}")
        if not isinstance(env.action_space, Box | Discrete):
            raise TypeError(f"DownsamplingWrapper needs a Box or Discrete action space, got {env.action_space}")
        self.factor = int(factor)
        self._held: Any = None
        self._count = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode; its first action takes effect."""
        self._count = 0
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> StepResult:
        """One step with the action that is held."""
        held = self._held
        if self._count % self.factor == 0:
            held = np.array(action) if isinstance(self.env.action_space, Box) else action
        *rest, info = self.env.step(held.copy() if isinstance(held, np.ndarray) else held)
        self._held, self._count = held, self._count + 1  # an action that was refused is not held
        return (*rest, {APPLIED: self.applied(self._held), **info})  # type: ignore[return-value]

    def applied(self, held: Any) -> Any:
        """The action or actions that the environment takes ``held`` for."""
        space = self.env.action_space
        return np.clip(held, space.low, space.high) if isinstance(space, Box) else held

    def batched_slots(self, num_slots: int) -> Slots:
        """Many of this environment, stepped as arrays."""
        return _HeldSlots(self._inner_slots(num_slots), self.env_spec, self)


class _HeldSlots(WrappedSlots):
    def __init__(self, slots: Slots, env_spec: EnvSpec, wrapper: DownsamplingWrapper) -> None:
        super().__init__(slots, env_spec)
        self._wrapper = wrapper
        self._counts = np.zeros(self.num_slots, dtype=np.int64)
        self._held: np.ndarray | None = None

    def reset(self, slots: Sequence[int], plans: Sequence[RolloutPlan]) -> Any:
        """Start ``plans[i]`` in slot ``slots[i]``."""
        rows = self._slots.reset(slots, plans)
        self._counts[list(slots)] = 0
        return rows

    def step(self, actions: Any, active: np.ndarray) -> SlotStep:
        """Step active slots with the actions that are held."""
        space = self.env_spec.action_space
        actions = np.array(actions, dtype=space.dtype) if isinstance(space, Box) else np.array(actions)
        active = np.asarray(active, dtype=bool)
        held = actions if self._held is None else self._held
        renewed = active & (self._counts % self._wrapper.factor == 0)
        self._held = held = np.where(renewed.reshape(-1, *[1] * (held.ndim - 1)), actions, held)
        self._counts += active
        # Choices count from 0 in batches, whatever the space starts with.
        meant = held + space.start if isinstance(space, Discrete) else held
        return with_applied(self._slots.step(held.copy(), active), self._wrapper.applied(meant))


def checked_delay(delay: Any) -> int:
    """A number of steps from 0 to 10000."""
    if isinstance(delay, bool):
        raise TypeError(f"act_delay must be a number of steps, got {delay!r}")
    steps = plain_number("act_delay", delay)
    if not steps.is_integer():
        raise ValueError(f"act_delay must be a whole number of steps, got {delay!r}; draw it with roundint=True")
    if not 0 <= steps <= _LONGEST_DELAY:
        raise ValueError(f"act_delay must be from 0 to {_LONGEST_DELAY} steps, got {delay!r}")
    return int(steps)


def split_delay(params: Mapping[str, float], delay: int) -> tuple[int, dict[str, float]]:
    """``act_delay`` of ``params`` (or ``delay``), and the rest."""
    rest = dict(params)
    return checked_delay(rest.pop("act_delay", delay)), rest


def _own_action(action: Any, like: np.ndarray) -> np.ndarray:
    """A copy of ``action``; one of another shape is refused now, not when its turn comes."""
    copied = np.array(action, dtype=like.dtype)
    if copied.shape != like.shape:
        raise ShapeError(f"action must have shape {like.shape}, got {copied.shape}")
    return copied
