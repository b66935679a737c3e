"""The base of all wrappers, and ways through a chain of them.

A wrapper defines once what it does, as functions of rows: one environment is stepped with one row
(``ChainWrapper.step``), many with one row each (``WrappedSlots``).
"""

from __future__ import annotations

import copy
from abc import ABC
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

from metaroll.envs.base.batching import is_batched, without_checks
from metaroll.envs.base.env_state import current_observation, state_from_observation
from metaroll.envs.base.slot_proxies import SlotsProxy
from metaroll.errors import DataError, ShapeError
from metaroll.tasks.plan_table import PlanTable
from metaroll.tasks.updates import SetTaskUpdate, env_layers, layer_with
from metaroll.types import EnvSpec, EnvUpdate, RolloutPlan, Slots, SlotStep

__all__ = [
    "ChainWrapper",
    "Memory",
    "RowStep",
    "WrappedSlots",
    "all_envs",
    "box_of",
    "changes_actions",
    "check_wrapped",
    "inner_env",
    "remove_envs",
    "spec_of",
    "taken_params",
    "typed_env",
]

Memory = dict[str, np.ndarray]
"""The memory of a wrapper: name -> array ``(N, ...)``, one row per environment."""

_MEMORY = "memory/"

APPLIED = "act_applied"
"""Entry of infos: the action that reached the simulation."""


def all_envs(env: Any) -> list[Any]:
    """``env`` and all that it wraps, from the outermost wrapper to the environment itself."""
    return list(env_layers(env))


def inner_env(env: Any) -> Any:
    """The environment inside all wrappers."""
    return (all_envs(env) or [env])[-1]


def changes_actions(env: Any) -> bool:
    """Whether a wrapper makes other actions of those that are given: a delay, another scale."""
    return any(
        layer.rows_in is not None if isinstance(layer, ChainWrapper) else isinstance(layer, gymnasium.ActionWrapper)
        for layer in env_layers(env)
    )


def typed_env(env: Any, kind: type | tuple[type, ...]) -> Any:
    """The outermost layer that is a ``kind``, or ``None``."""
    return next((layer for layer in env_layers(env) if isinstance(layer, kind)), None)


def taken_params(env: Any, params: Mapping[str, float]) -> dict[str, Any]:
    """The values that metaroll's wrappers make of domain parameters that are set; the others are unchanged.

    Raises:
        ValueError: A wrapper refuses a value.
    """
    outermost = typed_env(env, ChainWrapper)
    return dict(params) if outermost is None else outermost.taken_params(params)


def remove_envs(env: Any, kind: type | tuple[type, ...]) -> Any:
    """``env`` without its wrappers that are a ``kind``.

    Wrappers around one that is taken away are copied (shallowly); ``env`` itself stays unchanged.
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


def check_wrapped(env: Any) -> None:
    """Whether a wrapper can be put around ``env``.

    Raises:
        TypeError: It is not an environment.
    """
    if not isinstance(env, gymnasium.Env):
        raise TypeError(
            f"env must be an environment (a gymnasium.Env; gymnasium.make(id) makes one), got {env!r} of type "
            f"{type(env).__name__}"
        )


class RowStep(NamedTuple):
    """The result of a step of k rows: ``observations (k, ...)``, rewards, endings, and infos that wrappers add.

    ``inner`` are those infos of the environment inside that the wrapper asks for (``ChainWrapper.info_names``).
    """

    observations: Any
    rewards: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    infos: Mapping[str, np.ndarray]
    inner: Mapping[str, np.ndarray] = {}


class ChainWrapper(gymnasium.Wrapper, ABC):
    """Base of our wrappers: labels and limits of the environment inside are kept, and its batched simulator is used.

    A wrapper consists of functions of rows. Those that are ``None`` here are optional methods: a class that has none
    leaves that side of the environment unchanged. ``memory`` holds what the wrapper remembers of each row,
    ``rows (k,)`` selects them; rows do not depend on one another.
    """

    rows_in: Callable[..., np.ndarray] | None = None
    """``rows_in(actions, memory, rows)``: actions for the environments inside, of those that were given ``(k, ...)``;
    choices count from 0."""
    rows_seen: Callable[..., Any] | None = None
    """``rows_seen(observations, memory, rows)``: the wrapper's form of new observations, ``(k, ...)``."""
    restarts: Callable[..., tuple[np.ndarray, np.ndarray] | None] | None = None
    """``restarts(step, memory, rows)``: which of the rows are reset inside after this ``RowStep`` (positions), and with
    which seeds; ``None``: none of them."""
    rows_out: Callable[..., RowStep] | None = None
    """``rows_out(step, memory, rows)``: the ``RowStep`` that the wrapper returns. Without it, ``rows_seen`` makes the
    observations."""
    row_params: Callable[..., dict[str, Any] | None] | None = None
    """``row_params(params, memory, row)``: this wrapper's domain parameters, from those inside."""

    info_names: tuple[str, ...] = ()
    """Infos of the environment inside that ``restarts`` and ``rows_out`` need, in ``RowStep.inner``."""
    reports_applied = True
    """Whether infos report, as ``act_applied``, which actions reached the environment, unless that does so itself."""

    def __init__(self, env: Any) -> None:
        check_wrapped(env)
        super().__init__(env)
        self._commands_space = env.action_space
        self._memory = self.new_memory(1)

    # -- functions of rows --------------------------------------------------------------------------------------------

    def new_memory(self, num_rows: int) -> Memory:
        """Memory of ``num_rows`` rows, before the first episode."""
        return {}

    def plans_in(self, plans: Sequence[RolloutPlan]) -> Sequence[RolloutPlan]:
        """The plans for the environments inside."""
        table = PlanTable.of(plans)
        updates = [self.inner_update(update) for update in table.updates]
        return table if updates == table.updates else table.with_updates(updates)

    def inner_update(self, update: EnvUpdate | None) -> EnvUpdate | None:
        """The update for the environment inside: a task of a wrapper class is a task of the wrapped environment."""
        if type(update) is not SetTaskUpdate or update.env_type is not type(self) or update.wrapper_constructor:
            return update
        owner = layer_with(self, "set_task")
        return update if owner is None or owner is self else SetTaskUpdate(type(owner), update.task)

    def start_rows(
        self, memory: Memory, rows: np.ndarray, env_seeds: np.ndarray | None, plans: Sequence[RolloutPlan] | None = None
    ) -> None:
        """Episodes have been started in ``rows``.

        Args:
            memory: Changed.
            rows: Which, ``(k,)``.
            env_seeds: Seeds of the resets of the environments inside, ``(k,)``; ``None``: no seed was given.
            plans: The result of ``plans_in``; ``None`` if an environment is reset directly.
        """

    def unseen(self, observations: np.ndarray) -> np.ndarray:
        """The observations inside where ``observations (k, ...)`` are shown: the inverse of ``rows_seen`` without
        noise.

        Raises:
            NotImplementedError: That is not known.
        """
        if self.rows_seen is not None or self.rows_out is not None:
            raise NotImplementedError(f"what {type(self).__name__} does to observations cannot be undone")
        return observations

    def taken_params(self, params: Mapping[str, float]) -> dict[str, Any]:
        """Domain parameters that are set here, as ``row_params`` reports them for episodes (e.g. a rounded delay)."""
        return taken_params(self.env, params)

    def row_kinds(self, memory: Memory, rows: np.ndarray) -> Sequence[Hashable] | None:
        """The input of ``row_params`` from ``memory``, an entry for each of ``rows (k,)``; ``None``: not known."""
        return [None] * len(rows) if self.row_params is None else None

    def resume_rows(self, memory: Memory, rows: np.ndarray, saved: Memory) -> None:
        """Continue in ``rows (k,)``, which have been started with the same plans, from the memory of another instance.

        Args:
            memory: Changed.
            rows: Which.
            saved: Name -> ``(k, ...)``.
        """
        for name, values in saved.items():
            memory[name][rows] = values

    # -- one environment ----------------------------------------------------------------------------------------------

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode."""
        observation, info = self.env.reset(seed=seed, options=options)
        self.start_rows(self._memory, _ONE, None if seed is None else np.array([seed]))
        if self.rows_seen is None:
            return observation, info
        return self.rows_seen(np.asarray(observation)[None], self._memory, _ONE)[0], info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """One step."""
        space, memory, commands = self._commands_space, self._memory, None
        if self.rows_out is not None or self.restarts is not None:
            return self._step_as_rows(action)
        if self.rows_in is not None:
            commands = self.rows_in(_row(self.action_space, action), memory, _ONE)
            action = _element(space, commands)
        observation, reward, terminated, truncated, info = self.env.step(action)
        if self.rows_seen is not None:
            observation = self.rows_seen(np.asarray(observation)[None], memory, _ONE)[0]
        if commands is not None and APPLIED not in info:
            info = {APPLIED: _applied(space, commands)[0], **info}
        return observation, reward, terminated, truncated, info  # type: ignore[return-value]

    def _step_as_rows(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        inner_info: dict[str, Any] = {}

        def step(commands: np.ndarray) -> RowStep:
            command = action if self.rows_in is None else _element(self._commands_space, commands)
            observation, reward, terminated, truncated, info = self.env.step(command)
            inner_info.update(info)
            shown, inner = np.asarray(observation)[None], _inner_infos([info], self.info_names, _ONE)
            return RowStep(shown, np.array([reward]), np.array([terminated]), np.array([truncated]), {}, inner)

        def reset(rows: np.ndarray, env_seeds: np.ndarray) -> Any:
            return np.asarray(self.env.reset(seed=int(env_seeds[0]))[0])[None]

        actions = np.zeros((1, 0)) if self.rows_in is None else _row(self.action_space, action)
        out = self.advance(actions, self._memory, _ONE, step, reset)
        added = {name: values[0] for name, values in out.infos.items()}
        outcome = (values[0].item() for values in (out.rewards, out.terminated, out.truncated))
        return (out.observations[0], *outcome, {**added, **inner_info})  # type: ignore[return-value]

    def advance(
        self,
        actions: np.ndarray,
        memory: Memory,
        rows: np.ndarray,
        step: Callable[[np.ndarray], RowStep],
        reset: Callable[[np.ndarray, np.ndarray], Any],
    ) -> RowStep:
        """One step of ``rows``: of one environment, or of many.

        Args:
            actions: Given ones, ``(k, ...)``.
            memory: Changed.
            rows: Which, ``(k,)``.
            step: Steps the environments inside with their actions.
            reset: Resets some of them, given their rows and seeds; returns their observations.
        """
        commands = actions if self.rows_in is None else self.rows_in(actions, memory, rows)
        inside = step(commands)
        again = None if self.restarts is None else self.restarts(inside, memory, rows)
        if again is not None and len(again[0]):
            observations = np.array(inside.observations)
            observations[again[0]] = reset(rows[again[0]], again[1])
            inside = inside._replace(observations=observations)
        if self.rows_out is not None:
            out = self.rows_out(inside, memory, rows)
        elif self.rows_seen is not None:
            out = inside._replace(observations=self.rows_seen(inside.observations, memory, rows))
        else:
            out = inside
        if self.rows_in is not None and self.reports_applied:
            out = out._replace(infos={**out.infos, APPLIED: _applied(self._commands_space, commands)})
        return out

    def current_observation(self) -> Any:
        """The present observation."""
        return self.seen_now(current_observation(self.env))

    def seen_now(self, observation: Any) -> Any:
        """The shown form of the current observation inside, which has been shown before."""
        return observation

    def state_from_observation(self, observations: Any) -> np.ndarray:
        """States ``(..., S)`` inside that show ``observations (..., *shape)`` here."""
        return state_from_observation(self.env, self.unseen(np.asarray(observations, dtype=np.float64)))

    # -- many ---------------------------------------------------------------------------------------------------------

    @property
    def env_spec(self) -> EnvSpec:
        """Spaces of this wrapper; labels, states and limit of the environment inside."""
        inner = spec_of(self.env)
        return replace(inner, observation_space=self.observation_space, action_space=self.action_space)

    @property
    def can_batch(self) -> bool:
        """Whether the environment inside brings a batched simulator."""
        return is_batched(self.env)

    def accepts_update(self, update: EnvUpdate | None) -> bool:
        """Whether the batched simulator can apply ``update``."""
        return self.can_batch and without_checks(self.env).accepts_update(self.inner_update(update))

    def batched_slots(self, num_slots: int) -> Slots:
        """Many of this environment, stepped as arrays."""
        return WrappedSlots(without_checks(self.env).batched_slots(num_slots), self)


class WrappedSlots(SlotsProxy):
    """Slots inside a wrapper, with a row of the wrapper's memory each.

    Args:
        slots: The slots inside.
        wrapper: The wrapper.
    """

    def __init__(self, slots: Slots, wrapper: ChainWrapper) -> None:
        super().__init__(slots)
        self.env_spec = wrapper.env_spec
        self._wrapper = wrapper
        self._memory = wrapper.new_memory(self.num_slots)
        self._all = np.arange(self.num_slots)
        self._plans: list[RolloutPlan | None] = [None] * self.num_slots
        self._last: np.ndarray | None = None
        """The last shown observation of each slot, ``(E, ...)``."""
        self._acts = wrapper.rows_in is not None
        self._shows = not (wrapper.rows_seen is None and wrapper.rows_out is None and wrapper.restarts is None)
        """Whether steps outside are others than those inside."""

    @property
    def wrapper(self) -> ChainWrapper:
        """The wrapper."""
        return self._wrapper

    def domain_param(self, slot: int) -> dict[str, Any] | None:
        """Domain parameters of the rollout in a slot, in the form of the outermost wrapper."""
        params, row_params = self._slots.domain_param(slot), self._wrapper.row_params
        return params if row_params is None else row_params(params, self._memory, slot)

    def alike(self, slots: np.ndarray) -> Sequence[Hashable] | None:
        """Slots are that are alike inside, and of which the wrapper remembers the same domain parameters."""
        inside, own = self._slots.alike(slots), self._wrapper.row_kinds(self._memory, slots)
        return None if inside is None or own is None else list(zip(inside, own, strict=True))

    def reset(self, slots: Sequence[int], plans: Sequence[RolloutPlan]) -> Any:
        """Start ``plans[i]`` in slot ``slots[i]``; first observations ``(len(slots), ...)``."""
        rows, table = np.asarray(list(slots), dtype=np.int64), PlanTable.of(plans)
        env_seeds, inside = table.env_seeds, self._wrapper.plans_in(table)
        observations = self._slots.reset(slots, inside)
        self._wrapper.start_rows(self._memory, rows, env_seeds, inside)
        if not self._shows:
            return observations
        if self._wrapper.restarts is not None:
            for slot, plan in zip(slots, inside, strict=True):
                self._plans[slot] = plan
        rows_seen = self._wrapper.rows_seen
        seen = observations if rows_seen is None else rows_seen(observations, self._memory, rows)
        if self._last is None:
            self._last = np.zeros((self.num_slots, *seen.shape[1:]), dtype=seen.dtype)
        self._last[rows] = seen
        return seen

    def step(self, actions: Any, active: np.ndarray) -> SlotStep:
        """Step active slots; the others repeat their last results."""
        wrapper = self._wrapper
        if not (self._acts or self._shows):
            return self._slots.step(actions, active)
        active = np.asarray(active, dtype=bool)
        everyone = bool(active.all())
        rows = self._all if everyone else np.flatnonzero(active)
        batch: Any = _rows(wrapper.action_space, actions, self.num_slots) if self._acts else actions
        inner: list[SlotStep] = []

        def step(commands: np.ndarray) -> RowStep:
            whole = commands
            if self._acts and not everyone:
                whole = np.zeros((self.num_slots, *commands.shape[1:]), dtype=commands.dtype)
                whole[rows] = commands
            result = self._slots.step(whole, active)
            inner.append(result)
            shown, rewards, terminated, truncated = result[:4]
            infos = _inner_infos(result.infos, wrapper.info_names, rows)
            if everyone:
                return RowStep(shown, rewards, terminated, truncated, {}, infos)
            shown = shown[rows] if self._shows else shown
            return RowStep(shown, rewards[rows], terminated[rows], truncated[rows], {}, infos)

        own = batch if everyone or not self._acts else batch[rows]
        out = wrapper.advance(own, self._memory, rows, step, self._restart)
        return self._whole(inner[0], out, rows, everyone)

    def keep(self, slots: np.ndarray) -> None:
        """Continue with these slots only."""
        super().keep(slots)
        self._memory = {name: values[slots] for name, values in self._memory.items()}
        self._plans = [self._plans[int(slot)] for slot in slots]
        self._last = None if self._last is None else self._last[slots]
        self._all = np.arange(self.num_slots)

    def running_state(self, slots: np.ndarray) -> dict[str, np.ndarray]:
        """The state inside, and the wrapper's memory."""
        own = {f"{_MEMORY}{name}": values[slots] for name, values in self._memory.items()}
        if self._last is not None:
            own[_MEMORY] = self._last[slots]
        return {f"inside/{name}": values for name, values in self._slots.running_state(slots).items()} | own

    def resume(self, slots: np.ndarray, state: Mapping[str, np.ndarray]) -> None:
        """Continue from ``running_state``."""
        inside = {name.removeprefix("inside/"): v for name, v in state.items() if name.startswith("inside/")}
        self._slots.resume(slots, inside)
        saved = {name: state[f"{_MEMORY}{name}"] for name in self._memory}
        self._wrapper.resume_rows(self._memory, np.asarray(slots, dtype=np.int64), saved)
        if self._last is not None:
            self._last[slots] = state[_MEMORY]

    def _whole(self, inner: SlotStep, out: RowStep, rows: np.ndarray, everyone: bool) -> SlotStep:
        """The step of all slots, of that inside and that of the active rows outside."""
        observations, rewards, terminated, truncated, added = out[:5]
        if not everyone:
            added = {name: _spread(values, rows, self.num_slots) for name, values in added.items()}
            rewards, terminated, truncated = inner.rewards.copy(), inner.terminated.copy(), inner.truncated.copy()
            for whole, values in ((rewards, out.rewards), (terminated, out.terminated), (truncated, out.truncated)):
                whole[rows] = values
        if not self._shows:
            observations = inner.observations
        else:
            if not everyone and self._last is not None:
                observations = self._last.copy()
                observations[rows] = out.observations
            self._last = np.array(observations)
        infos: Any = {**added, **inner.infos} if added else inner.infos  # type: ignore[dict-item]
        states = self._slots.states() if inner.states is not None and self._restarted else inner.states
        self._restarted = False
        return SlotStep(observations, rewards, terminated, truncated, infos, states)

    _restarted = False

    def _restart(self, rows: np.ndarray, env_seeds: np.ndarray) -> Any:
        """Reset some slots inside in the middle of their rollouts."""
        plans = [plan for row in rows.tolist() if (plan := self._plans[row]) is not None]
        self._restarted = True
        return self._slots.reset(rows.tolist(), PlanTable(plans).next_episodes(env_seeds))


_ONE = np.zeros(1, dtype=np.int64)


def _row(space: gymnasium.Space, action: Any) -> np.ndarray:
    """One action as a row ``(1, ...)``; choices count from 0."""
    if isinstance(space, Discrete):
        return np.array([int(action) - int(space.start)])
    row = np.array(action, dtype=space.dtype)
    if row.shape != space.shape:
        raise ShapeError(f"action must have shape {space.shape}, got {row.shape}")
    return row[None]


def _rows(space: gymnasium.Space, actions: Any, num_rows: int) -> np.ndarray:
    """Actions ``(E, ...)`` of slots in the shape and type of ``space``."""
    if isinstance(space, Discrete):
        return np.array(actions)
    array = np.asarray(actions)
    shape = (num_rows, *(space.shape or ()))
    if array.shape != shape:
        if array.size != np.prod(shape) or len(array) != num_rows:
            raise ShapeError(f"actions must have shape {shape}, got {array.shape}")
        array = array.reshape(shape)
    return array.astype(space.dtype)


def _element(space: gymnasium.Space, commands: np.ndarray) -> Any:
    """One action for an environment, in its own memory."""
    return int(commands[0]) + int(space.start) if isinstance(space, Discrete) else commands[0].copy()


def _inner_infos(
    infos: Mapping[str, np.ndarray] | Sequence[Mapping[str, Any]], names: Sequence[str], rows: np.ndarray
) -> dict[str, np.ndarray]:
    """Infos of these names, one entry for each of ``rows``.

    Raises:
        DataError: The environment does not give one of them.
    """
    columns = {}
    for name in names:
        if isinstance(infos, Mapping):
            column = infos[name][rows] if name in infos else None
        else:
            values = [infos[row].get(name) for row in rows]
            column = None if any(value is None for value in values) else np.array(values)
        if column is None:
            known = infos if isinstance(infos, Mapping) else infos[rows[0]]
            raise DataError(
                f"the info {name!r} must be reported with every step, but is not; the environment has: "
                f"{', '.join(sorted(known)) or 'none'}"
            )
        columns[name] = column
    return columns


def _applied(space: gymnasium.Space, commands: np.ndarray) -> np.ndarray:
    """``commands`` as environments apply them: within the bounds of a Box, choices as the environment counts them."""
    if isinstance(space, Discrete):
        return commands + space.start
    return np.minimum(np.maximum(commands, space.low), space.high) if isinstance(space, Box) else commands


def _spread(values: np.ndarray, rows: np.ndarray, num_rows: int) -> np.ndarray:
    whole = np.zeros((num_rows, *values.shape[1:]), dtype=values.dtype)
    whole[rows] = values
    return whole


def spec_of(env: Any) -> EnvSpec:
    """Spec of the environment inside a wrapper."""
    return EnvSpec.from_env(without_checks(env))


def box_of(env: Any, kind: str, wrapper: Any) -> Box:
    """The observation or action space (``kind``) inside a wrapper, which has to be a Box."""
    check_wrapped(env)
    space = getattr(env, f"{kind}_space")
    if not isinstance(space, Box):
        raise TypeError(f"{type(wrapper).__name__} needs a Box {kind}_space, got {space}")
    return space
