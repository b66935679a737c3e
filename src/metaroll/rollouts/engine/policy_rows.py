"""One policy acting for many slots: state rows, noise rows, parameters, all per slot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, overload

import numpy as np

from metaroll.data.data_format import iterate_leaves, map_leaves, own_copy
from metaroll.data.space_batches import take_rows
from metaroll.envs.base.slot_proxies import slot_domain_params
from metaroll.errors import ShapeError
from metaroll.functional.philox import normals_block, uniforms
from metaroll.rollouts.engine.parameter_blocks import ParameterBlocks
from metaroll.seeding import policy_generator
from metaroll.tasks.plan_table import NO_LIMIT, POLICY_NOISE, PlanTable
from metaroll.types import Context, Policy, PolicyState, Slots

__all__ = ["BLOCK", "PolicyRows"]

BLOCK = 8
"""Rows per call of a policy that does not promise ``width_independent``: below 8 rows BLAS changes the last bits."""

_NOISE_STEPS, _NOISE_ROWS = 32, 2048
"""Lock-steps whose noise is drawn at a time, at most; of few slots more, until there are this many rows."""

_MOST_AHEAD = 2**18
"""Numbers of upcoming rollouts that are drawn together."""


class PolicyRows:
    """Keeps everything of a policy that differs between slots.

    Noise is a function of a rollout's plan and the number of its step. That of all slots is made for some lock-steps at
    a time, so that one step reads one contiguous row block for any step numbers of the slots. Rollouts without noise
    (``deterministic``) show zeros. Without ``with_infos`` there are no infos.
    """

    def __init__(
        self, policy: Policy, num_slots: int, parameters: np.ndarray | None = None, *, with_infos: bool = True
    ) -> None:
        self.policy, self._with_infos = policy, with_infos
        self._num_slots = num_slots
        self._info = policy.info
        self._parameters: np.ndarray | None = None
        self._stacked = False
        self._own_parameters = False
        self._blocks: ParameterBlocks | None = None
        """How rows are sorted where plans bring parameters, for policies that take a set per block."""
        self._state: PolicyState = {}
        self._begun = False
        self._deterministic = np.zeros(num_slots, dtype=bool)
        self._flag: bool | None = False
        """The common value of ``_deterministic`` of all slots, or ``None`` if they differ."""
        self._keys = np.zeros((num_slots, 4), dtype=np.uint32)
        self._begun_at = np.zeros(num_slots, dtype=np.int64)
        """Lock-step before the first step of the rollout in each slot."""
        self._noise = np.zeros((0, num_slots, self._info.noise_dim), dtype=np.float32)
        self._noise_from = 0
        """Lock-step of the first row of ``_noise``."""
        self._ahead: np.ndarray | None = None
        self.until = NO_LIMIT
        """Lock-step after the last one for which noise may be needed: where every rollout will have ended."""
        if parameters is not None:
            self.set_parameters(parameters)

    def set_parameters(self, parameters: np.ndarray) -> None:
        """Parameters ``(P,)`` for all slots, or ``(E, P)``, from the next call on."""
        parameters = np.asarray(parameters)
        if parameters.ndim == 2 and len(parameters) != self._num_slots:
            raise ShapeError(
                f"stacked parameters must have one row per slot ({self._num_slots}, P), got shape {parameters.shape}"
            )
        if parameters.ndim not in (1, 2):
            raise ShapeError(f"parameters must have shape (P,) or (num_slots, P), got {parameters.shape}")
        if self._own_parameters:
            raise ValueError("the plans bring their own parameters; parameters cannot be changed from outside as well")
        self._parameters = parameters
        self._stacked = parameters.ndim == 2

    def draw_ahead(self, plans: PlanTable) -> None:
        """Draw the first noise of rollouts that will start: of many at once it takes a fraction of the time."""
        steps = min(_NOISE_STEPS, int(plans.max_steps.max()))
        if 0 < steps * len(plans) * self._info.noise_dim <= _MOST_AHEAD and not self._silent(plans).all():
            self._ahead = self._drawn(plans.keys, 0, steps)
            self._ahead[:, self._silent(plans)] = 0.0

    def start(
        self, slots: np.ndarray, plans: PlanTable, step: Any, envs: Slots, positions: np.ndarray | None = None
    ) -> None:
        """``plans[i]`` starts in slot ``slots[i]`` of ``envs``, which has been reset, at lock-step ``step``.

        ``step (k,)`` gives it for each; such rollouts have begun in the past. ``positions (k,)`` are their places in
        what ``draw_ahead`` received.
        """
        per_plan: Sequence[Context | None] = [None] * len(plans) if plans.contexts is None else plans.contexts
        contexts = [context or None for context in per_plan]
        params = None
        if self._info.takes_domain_params:
            params = [slot_domain_params(envs, slot, plan) for slot, plan in zip(slots.tolist(), plans, strict=True)]
        self._write_state(slots, self.policy.initial_state(contexts, _PolicyGenerators(plans), params))
        self._deterministic[slots] = self._silent(plans)
        flag = bool(self._deterministic[0])
        self._flag = flag if bool((self._deterministic == flag).all()) else None
        self._keys[slots] = plans.keys
        self._begun_at[slots] = step
        self._take_plan_parameters(slots, plans)
        if np.ndim(step):
            self._noise = self._noise[:0]  # is redrawn, for their ages
        elif self._info.noise_dim:
            self._begin_noise(slots, plans, step, positions)

    def _begin_noise(self, slots: np.ndarray, plans: PlanTable, step: int, positions: np.ndarray | None) -> None:
        ahead = None if self._ahead is None or positions is None else self._ahead[:, positions]
        if ahead is not None and len(slots) == self._num_slots and bool((slots[:-1] < slots[1:]).all()):
            self._noise, self._noise_from = ahead, step
            return
        left = self._noise_from + len(self._noise) - step
        if self._noise_from <= step and left > 0:
            if ahead is None or len(ahead) < left:
                ahead = self._drawn(plans.keys, 0, left)
                ahead[:, self._silent(plans)] = 0.0
            self._noise[step - self._noise_from :, slots] = ahead[:left]

    def keep(self, slots: np.ndarray) -> None:
        """Continue with these slots only."""
        self._num_slots = len(slots)
        self._state = {name: value[slots] for name, value in self._state.items()}
        self._deterministic, self._keys = self._deterministic[slots], self._keys[slots]
        self._begun_at, self._noise = self._begun_at[slots], self._noise[:, slots]
        flag = bool(self._deterministic[0])
        self._flag = flag if bool((self._deterministic == flag).all()) else None
        if self._stacked and self._parameters is not None:
            self._parameters = self._in_order(self._parameters[slots])
        if self._blocks is not None:
            self._blocks.keep(slots)

    def act(self, obs: Any, active: np.ndarray, step: int) -> tuple[Any, dict[str, np.ndarray]]:
        """Actions and infos, one row per slot, at lock-step ``step``.

        ``obs`` are flat observations ``(E, obs_dim)``, or the environment's own batch for a ``structured`` policy.
        """
        if not self._info.noise_dim or self._flag is True:
            noise = np.zeros((self._num_slots, self._info.noise_dim), dtype=np.float32)
        else:
            if not 0 <= step - self._noise_from < len(self._noise):
                self._draw(step)
            noise = self._noise[step - self._noise_from]
        deterministic: bool | np.ndarray = self._deterministic if self._flag is None else self._flag
        if self._blocks is not None:
            return self._act_with_own_sets(self._blocks, active, obs, noise, deterministic)
        if self._info.row_by_row and not active.all():
            return self._act_on(np.flatnonzero(active), obs, noise, deterministic)
        if self._info.width_independent:
            action, self._state, info = self._called(obs, self._state, noise, deterministic, self._parameters)
            return action, info
        return self._act_in_blocks(obs, noise, deterministic)

    def clear(self, slot: int) -> None:
        """Blank the state of a rollout that was dropped: NaN in it must not reach the next call."""
        for name, value in self._state.items():
            if value.dtype.kind in "fc":
                self._state[name] = _scatter(np.zeros_like(value[slot]), [slot], value.copy())

    def state(self) -> PolicyState:
        """The policy's memory of each slot, name -> ``(E, ...)`` (copies)."""
        return {name: own_copy(value) for name, value in self._state.items()}  # objects remember in place

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Replace the policy's memory of each slot, name -> ``(E, ...)``."""
        self._state = {name: own_copy(np.asarray(value)) for name, value in state.items()}

    def remembered(self, name: str) -> np.ndarray | None:
        """One entry of the state ``(E, ...)``, if the policy has it (never written into, so it may be kept)."""
        return self._state.get(name)

    # -- helpers ---------------------------------------------------------------------------------------------------

    def _called(
        self, obs: Any, state: PolicyState, noise: np.ndarray, deterministic: Any, parameters: np.ndarray | None
    ) -> tuple[Any, PolicyState, dict[str, np.ndarray]]:
        action, state, infos = self.policy.act(obs, state, noise, deterministic, parameters)
        return action, state, dict(infos) if self._with_infos else {}

    def _silent(self, plans: PlanTable) -> np.ndarray:
        """Which rollouts act deterministically, without noise, bool ``(k,)``."""
        return np.zeros_like(plans.deterministic) if self._info.always_random else plans.deterministic

    def _in_order(self, stacked: np.ndarray) -> np.ndarray:
        """Parameters ``(N, P)`` as the policy likes them to lie in memory."""
        return np.asfortranarray(stacked) if self._info.parameter_columns else stacked

    def _draw(self, step: int) -> None:
        """Noise of all slots from lock-step ``step`` on."""
        most = max(1, min(max(_NOISE_STEPS, _NOISE_ROWS // self._num_slots), self.until - step))
        self._noise = self._drawn(self._keys, np.maximum(step - self._begun_at, 0), most)
        self._noise[:, self._deterministic] = 0.0
        self._noise_from = step

    def _drawn(self, keys: np.ndarray, ages: Any, num_steps: int) -> np.ndarray:
        """Noise of steps ``ages`` to ``ages + num_steps`` of some rollouts, float32 ``(num_steps, k, noise_dim)``."""
        dim = self._info.noise_dim
        if self._info.noise_kind == "normal":
            return normals_block(keys, POLICY_NOISE, ages, num_steps, dim)
        flat = uniforms(keys, POLICY_NOISE, np.multiply(ages, dim), num_steps * dim, np.float32)
        return np.ascontiguousarray(flat.reshape(len(keys), num_steps, dim).swapaxes(0, 1))

    def _write_state(self, slots: np.ndarray, rows: PolicyState) -> None:
        rows = {name: np.asarray(value) for name, value in rows.items()}
        if self._begun and rows.keys() != self._state.keys():
            raise ValueError(
                f"the state of a policy must have the same names in all rollouts of a unit, got {sorted(rows)} after "
                f"{sorted(self._state)}; give all plans the same kind of context, or run them in calls of their own"
            )
        state: PolicyState = {}
        for name, value in rows.items():
            if value.shape[:1] != (len(slots),):
                raise ShapeError(f"policy state {name!r} must have {len(slots)} rows, got shape {value.shape}")
            old = self._state.get(name, np.zeros((self._num_slots, *value.shape[1:]), value.dtype))
            state[name] = _scatter(value, slots, _room_for(name, value, old))
        self._state, self._begun = state, True

    def _take_plan_parameters(self, slots: np.ndarray, plans: PlanTable) -> None:
        own = plans.set_of >= 0
        if not own.any() and not self._own_parameters:
            return
        if not own.all() or (self._parameters is not None and not self._own_parameters):
            # A shared and a stacked call differ in the last bit, so one loop runs either kind.
            raise ValueError("either every plan of a unit brings parameters, or none and they are given to the loop")
        self._own_parameters = True
        if self._info.parameter_blocks:
            sets = [plans.parameter_sets[number] for number in plans.set_of.tolist()]
            self._blocks = ParameterBlocks(self._num_slots) if self._blocks is None else self._blocks
            self._blocks.start(slots.tolist(), sets)
            return
        used, set_of = np.unique(plans.set_of, return_inverse=True)
        distinct = [np.asarray(plans.parameter_sets[number], dtype=np.float32) for number in used.tolist()]
        if self._parameters is None:
            self._parameters = self._in_order(np.zeros((self._num_slots, len(distinct[0])), dtype=np.float32))
        else:
            self._parameters = self._parameters.copy(order="K")  # policies cache by identity
        self._parameters[slots] = np.stack(distinct)[set_of]
        self._stacked = True

    def _act_with_own_sets(
        self,
        blocks: ParameterBlocks,
        active: np.ndarray,
        obs: np.ndarray,
        noise: np.ndarray,
        deterministic: bool | np.ndarray,
    ) -> tuple[Any, dict[str, np.ndarray]]:
        blocks.arrange(active)
        rows, place = blocks.source, blocks.place
        if rows is None:
            action, self._state, info = self._called(obs, self._state, noise, deterministic, blocks.sets)
            return action, info
        flags = deterministic if isinstance(deterministic, bool) else deterministic[rows]
        state = {name: value[rows] for name, value in self._state.items()}
        action, state, info = self._called(obs[rows], state, noise[rows], flags, blocks.sets)
        self._state = {name: value[place] for name, value in state.items()}
        return action[place], {name: value[place] for name, value in info.items()}

    def _act_on(
        self, rows: np.ndarray, obs: Any, noise: np.ndarray, deterministic: bool | np.ndarray
    ) -> tuple[Any, dict[str, np.ndarray]]:
        parameters = self._parameters[rows] if self._stacked and self._parameters is not None else self._parameters
        flags = deterministic if isinstance(deterministic, bool) else deterministic[rows]
        state = {name: value[rows] for name, value in self._state.items()}
        action, state, info = self._called(take_rows(obs, rows), state, noise[rows], flags, parameters)
        for name, value in state.items():
            old = self._state.get(name, np.zeros((self._num_slots, *value.shape[1:]), value.dtype))
            self._state[name] = _scatter(value, rows, _room_for(name, value, old))
        blank = lambda value: np.zeros((self._num_slots, *value.shape[1:]), value.dtype)  # noqa: E731
        everywhere = map_leaves(lambda leaf, path: _scatter(leaf, rows, blank(leaf)), action)
        return everywhere, {k: _scatter(v, rows, blank(v)) for k, v in info.items()}

    def _act_in_blocks(
        self, obs: Any, noise: np.ndarray, deterministic: bool | np.ndarray
    ) -> tuple[Any, dict[str, np.ndarray]]:
        """Calls with exactly ``BLOCK`` rows, the last one filled up with copies of its first row."""
        parts = []
        for begin in range(0, self._num_slots, BLOCK):
            rows = np.arange(begin, begin + BLOCK)
            rows[rows >= self._num_slots] = begin
            parameters = self._parameters[rows] if self._stacked and self._parameters is not None else self._parameters
            flags = deterministic if isinstance(deterministic, bool) else deterministic[rows]
            state = {name: value[rows] for name, value in self._state.items()}
            parts.append(self._called(take_rows(obs, rows), state, noise[rows], flags, parameters))
        size = self._num_slots
        self._state = {k: np.concatenate([p[1][k] for p in parts])[:size] for k in parts[0][1]}
        infos = {k: np.concatenate([p[2][k] for p in parts])[:size] for k in parts[0][2]}
        trees = [dict(iterate_leaves(p[0])) for p in parts]
        actions = map_leaves(lambda _, path: np.concatenate([tree[path] for tree in trees])[:size], parts[0][0])
        return actions, infos


class _PolicyGenerators(Sequence[np.random.Generator]):
    """Generators for a policy's draws at the start of its rollouts, made on demand: most policies draw none."""

    def __init__(self, plans: PlanTable) -> None:
        self._plans = plans
        self._made: dict[int, np.random.Generator] = {}

    def __len__(self) -> int:
        return len(self._plans)

    @overload
    def __getitem__(self, index: int) -> np.random.Generator: ...
    @overload
    def __getitem__(self, index: slice) -> list[np.random.Generator]: ...
    def __getitem__(self, index: int | slice) -> np.random.Generator | list[np.random.Generator]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        position = range(len(self))[index]
        if position not in self._made:
            self._made[position] = policy_generator(self._plans[position].seed or (0, 0, 0))
        return self._made[position]


def _scatter(values: np.ndarray, rows: np.ndarray | Sequence[int], target: np.ndarray) -> np.ndarray:
    target[rows] = values
    return target


def _room_for(name: str, value: np.ndarray, old: np.ndarray) -> np.ndarray:
    """A copy of ``old`` (policies may hand out their state rows as infos too) that can take rows of ``value``."""
    if old.shape[1:] != value.shape[1:]:
        raise ShapeError(f"policy state {name!r} must have rows of shape {old.shape[1:]}, got {value.shape[1:]}")
    both = np.result_type(old, value)
    if both.kind in "fc" and old.dtype != value.dtype:
        # One rollout would be computed in the type of another, with other last bits than alone.
        raise ValueError(
            f"policy state {name!r} must have one type in all rollouts of a unit, got {value.dtype} after {old.dtype}; "
            "give all contexts the same dtype, and let initial_state return the dtype that act returns"
        )
    return old.astype(both)
