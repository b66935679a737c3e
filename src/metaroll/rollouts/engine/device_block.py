"""Blocks of lock-steps on torch tensors: simulator, policy and endings on a device, one small read from it per block.

Rows, ages, keys and noise of all rollouts live on the device. A block takes up to 16 lock-steps there without waiting:
endings are masks, limits and the first bad number are found by arithmetic. Then the host reads three numbers per row,
and books lengths, gives rows new plans, or leaves rows behind. What was recorded stays on the device until all plans of
a unit are done, is put in order there, and comes over in one piece.

Integers, masks, first states and uniform numbers are those of ``SlotLoop``; numbers that are computed may differ in
their last bits, so they differ between kinds of devices. On one kind of device the bits of a rollout depend on its plan
and the parameters alone: the policy is called with exactly as many rows as a tile has, and all else is computed number
by number, in arrays that are whole tiles long.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import array_api_compat.torch as torch_namespace
import numpy as np
import torch
from gymnasium.spaces import Discrete
from torch import nn
from torch.func import functional_call

from metaroll.data.rollouts import TIME_STEP, RolloutColumns
from metaroll.envs.base.simulator import Rows, Simulator, map_rows, rows_at
from metaroll.envs.base.slot_proxies import slot_domain_params
from metaroll.functional.linear import BLOCK, RowProducts
from metaroll.functional.philox import torch_normals, torch_uniforms
from metaroll.policies.parameters import ParameterLayout
from metaroll.rollouts.engine.devices import TILES, check_slots_on_device, name_of, policy_on_device
from metaroll.rollouts.engine.extras import add_applied_actions
from metaroll.rollouts.engine.parameter_blocks import ParameterBlocks
from metaroll.rollouts.engine.policy_rows import PolicyRows
from metaroll.rollouts.failures import FAILURES, DroppedRollout, failure_in_slots, finite_rows, invalid_value
from metaroll.rollouts.requests import KEPT, Kept
from metaroll.tasks.plan_table import ENV_NOISE, NO_LIMIT, POLICY_NOISE, PlanTable, env_keys
from metaroll.types import EnvSpec, Policy, RolloutPlan, Slots

__all__ = ["Block", "BlockSettings", "DeviceLoop", "DeviceRows", "OwnSets", "run_block"]

_LOCK_STEPS = 16
"""Lock-steps between two checks for ended rollouts."""

_FULL = 0.75
"""Share of rows at work below which those that have ended get new plans, or are left behind."""

_NEVER = 1 << 30
"""Code of a row without a bad number."""

_LOOKED_AT = ("action", "observation", "reward")
"""Fields that are checked for non-finite numbers, in the order in which they arise within a step."""


# -- on the device -----------------------------------------------------------------------------------------------------


class DeviceRows(NamedTuple):
    """W rollouts on a device, W a whole number of tiles. Rows without a rollout repeat another, and do not count.

    Attributes:
        state, constants: State and constants of the simulator.
        policy: The policy's memory, name -> ``(W, ...)``.
        observations: Shape ``(W, ...)``.
        keys, env_keys: Keys of the streams of plans and environments, int64 ``(W, 4)``.
        ages: Steps of each rollout so far, int64 ``(W,)``.
        limits: Steps after which it ends at the latest, int64 ``(W,)``.
        stops: Whether it ends with the episode, bool ``(W,)``.
        deterministic: Whether it acts deterministically, bool ``(W,)``.
        live: Whether a rollout runs in the row, bool ``(W,)``.
    """

    state: Rows
    constants: Rows
    policy: Rows
    observations: Rows
    keys: Rows
    env_keys: Rows
    ages: Rows
    limits: Rows
    stops: Rows
    deterministic: Rows
    live: Rows


class OwnSets(NamedTuple):
    """Policy parameters of rollouts that bring their own, in blocks of eight rows each (see ``ParameterBlocks``).

    Attributes:
        weights: Name -> ``(B, ...)``.
        source: Row of each of the 8 B rows that act.
        place: Which of these each row is, ``(W,)``.
    """

    weights: dict[str, torch.Tensor]
    source: torch.Tensor
    place: torch.Tensor


@dataclass(frozen=True)
class BlockSettings:
    """The settings that all blocks of a unit share.

    Attributes:
        tile: Rows per call of the policy.
        deterministic: The common value of all rollouts, or ``None`` if they differ.
        kept: As in ``SlotLoop``.
        sets: Where rollouts bring their own parameters.
        products: The policy acts within it, if given (``RowProducts``).
    """

    tile: int
    deterministic: bool | None
    kept: Kept
    sets: OwnSets | None = None
    products: AbstractContextManager[Any] | None = None


class Block(NamedTuple):
    """The result of a block of K lock-steps.

    Attributes:
        rows: After it.
        arrays: Name -> ``(K, W, ...)``; those that begin with ``+`` have one more entry, before the first step.
        summary: Steps of each rollout, whether it is over, and where its first bad number is (the step times three,
            plus the place in ``_LOOKED_AT``), int64 ``(3, W)``.
    """

    rows: DeviceRows
    arrays: dict[str, torch.Tensor]
    summary: torch.Tensor


def run_block(simulator: Simulator, policy: Any, rows: DeviceRows, num_steps: int, settings: BlockSettings) -> Block:
    """``num_steps`` lock-steps of all rows; nothing in here waits for the device."""
    store = _Store(num_steps, _shown(simulator, rows, settings))
    env_noise, noise = _noise_of(simulator, policy, rows, num_steps, settings)
    counts, alive, ages = torch.zeros_like(rows.ages), rows.live, rows.ages
    for step in range(num_steps):
        if settings.kept.extras and "hidden" in rows.policy:
            store.write("hidden_states", step, rows.policy["hidden"])
        actions, remembered, infos = _act(simulator.env_spec, policy, rows, noise[step], settings)
        result = simulator.step(rows.state, actions, rows.constants, env_noise[step], torch_namespace)
        ages = ages + 1
        terminated = torch.zeros_like(alive) if result.terminated is None else result.terminated
        truncated = result.truncated
        if truncated is None:
            truncated = torch.zeros_like(alive) if simulator.time_limit is None else ages >= simulator.time_limit
        at_limit = ages >= rows.limits
        over = ((terminated | truncated) & rows.stops) | at_limit
        store.write("actions", step, actions)
        store.write("rewards", step, result.rewards.to(torch.float64))
        store.write("terminated", step, terminated)
        store.write("truncated", step, truncated | (at_limit & ~terminated))
        for group, values in (("policy_infos", infos), ("env_infos", result.infos)) if settings.kept.infos else ():
            for name, value in values.items():
                store.write(f"{group}/{name}", step, value)
        counts = counts + alive
        alive = alive & ~over
        observations = simulator.observe(result.state, rows.constants, torch_namespace)
        rows = rows._replace(state=result.state, policy=remembered, observations=observations)
        for name, value in _shown(simulator, rows, settings).items():
            store.write(name, step + 1, value)
    bad = _first_bad(store.arrays, counts)
    summary = torch.stack([counts, (~alive).to(torch.int64), bad])
    return Block(rows._replace(ages=ages, live=alive & (bad == _NEVER)), store.arrays, summary)


class _Store:
    """Memory for the results of K lock-steps, allocated when a name first appears."""

    def __init__(self, num_steps: int, before: Mapping[str, torch.Tensor]) -> None:
        self._num_steps = num_steps
        self.arrays: dict[str, torch.Tensor] = {}
        for name, value in before.items():
            self.write(name, 0, value)

    def write(self, name: str, step: int, value: torch.Tensor) -> None:
        if name not in self.arrays:
            entries = self._num_steps + name.startswith("+")
            self.arrays[name] = torch.empty((entries, *value.shape), dtype=value.dtype, device=value.device)
        self.arrays[name][step] = value


def _shown(simulator: Simulator, rows: DeviceRows, settings: BlockSettings) -> dict[str, torch.Tensor]:
    """The arrays recorded before the first step and after each."""
    shown = {"+observations": rows.observations}
    states = simulator.state_rows(rows.state, torch_namespace) if settings.kept.extras else None
    return shown if states is None else {**shown, "+states": states}


def _noise_of(
    simulator: Simulator, policy: Any, rows: DeviceRows, num_steps: int, settings: BlockSettings
) -> tuple[list[tuple[torch.Tensor, ...]], torch.Tensor]:
    """Columns of the simulator for each step, and rows of the policy ``(K, W, noise_dim)``."""
    dim, info = simulator.noise_dim, policy.info
    env_noise: list[tuple[torch.Tensor, ...]] = [()] * num_steps
    if dim:
        flat = torch_uniforms(rows.env_keys, ENV_NOISE, rows.ages * dim, num_steps * dim, torch.float64)
        env_noise = [tuple(flat[step * dim : (step + 1) * dim].unbind(0)) for step in range(num_steps)]
    dim, width = info.noise_dim, len(rows.ages)
    if not dim or settings.deterministic is True:
        return env_noise, torch.zeros((num_steps, width, dim), device=rows.ages.device)
    if info.noise_kind == "normal":
        flat = torch_normals(rows.keys, POLICY_NOISE, rows.ages * dim, num_steps * dim)
    else:
        flat = torch_uniforms(rows.keys, POLICY_NOISE, rows.ages * dim, num_steps * dim, torch.float32)
    return env_noise, flat.reshape(num_steps, dim, width).swapaxes(1, 2).contiguous()


def _act(
    spec: EnvSpec, policy: Any, rows: DeviceRows, noise: torch.Tensor, settings: BlockSettings
) -> tuple[torch.Tensor, dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Actions, memory and infos of all rows, a tile at a time."""
    seen, space, sets, tile = rows.observations, spec.observation_space, settings.sets, settings.tile
    if isinstance(space, Discrete):
        choices = torch.arange(int(space.start), int(space.start + space.n), device=seen.device)
        seen = (seen[:, None] == choices).to(torch.float32)
    flags: Any = rows.deterministic if settings.deterministic is None else settings.deterministic
    inputs = (seen.reshape(len(seen), -1), rows.policy, noise, flags)
    act: Callable[..., Any] = policy.act_on_torch
    if sets is not None:
        blocks = lambda array: array[sets.source].reshape(-1, BLOCK, *array.shape[1:])  # noqa: E731
        inputs, tile = (sets.weights, *map_rows(blocks, inputs)), tile // BLOCK
        in_dims = (0, 0, 0, 0, None if isinstance(flags, bool) else 0)
        act = torch.vmap(lambda weights, *arguments: functional_call(_Acting(policy), weights, arguments), in_dims)
    with settings.products or nullcontext():
        parts = [
            act(*rows_at(inputs, slice(k, k + tile))) for k in range(0, len(inputs[0 if sets is None else 1]), tile)
        ]
    actions, remembered, infos = map_rows(lambda *same: torch.cat(same), *parts)
    if sets is not None:
        order = lambda array: array.flatten(0, 1)[sets.place]  # noqa: E731
        actions, remembered, infos = map_rows(order, (actions, remembered, infos))
    if actions.dtype is torch.float64:
        raise TypeError(
            f"policy must act in float32 or in whole numbers on a device, got float64 from {type(policy).__name__}"
        )
    return actions, remembered, infos


class _Acting(nn.Module):
    """A policy as a module that acts when it is called."""

    def __init__(self, policy: Any) -> None:
        super().__init__()
        self.policy = policy

    def forward(self, *args: Any) -> Any:
        return self.policy.act_on_torch(*args)


def _first_bad(arrays: Mapping[str, torch.Tensor], counts: torch.Tensor) -> torch.Tensor:
    """Where each row first shows NaN or Inf within the steps that count, int64 ``(W,)``, see ``Block.summary``."""
    first = torch.full_like(counts, _NEVER)
    for order, name in enumerate(("actions", "+observations", "rewards")):
        values = arrays[name]
        if not values.dtype.is_floating_point:
            continue
        values = values[1:] if name.startswith("+") else values
        bad = ~values.isfinite().reshape(*values.shape[:2], -1).all(dim=2)
        steps = torch.arange(len(values), device=counts.device)[:, None]
        codes = torch.where(bad & (steps < counts), steps * len(_LOOKED_AT) + order, _NEVER)
        first = torch.minimum(first, codes.amin(dim=0))
    return first


# -- on the host -------------------------------------------------------------------------------------------------------


class _Recorded(NamedTuple):
    """The record of a block, on the device, and on the host which rollouts (-1: none) it was of, how old these were
    before, and how many of its steps count, ``(W,)`` each.
    """

    arrays: dict[str, torch.Tensor]
    positions: np.ndarray
    ages: np.ndarray
    counts: np.ndarray


class DeviceLoop:
    """Runs plans on a device; the counterpart of ``SlotLoop``, which uses NumPy.

    Args:
        slots: Rows of the simulator on the host: they check plans and make first states, by NumPy, for each rollout the
            same wherever it runs.
        policy: The acting policy; a copy of it goes to the device.
        plans: The plans to run, in as many rows as there are slots.
        device: Where.
        parameters: Flat policy parameters ``(P,)``; ``None`` means the policy's own.
        kept, heartbeat: As in ``SlotLoop``; all fields are recorded.

    Attributes:
        columns: The rollouts that have ended, in the order of their plans; ``None`` if there are none.
        positions: Place of the plan of each of them.
        dropped, dropped_positions: As in ``SlotLoop``.
    """

    def __init__(
        self,
        slots: Slots,
        policy: Policy,
        plans: PlanTable,
        device: torch.device,
        *,
        parameters: np.ndarray | None = None,
        kept: Kept = KEPT,
        heartbeat: Callable[[str], None] | None = None,
    ) -> None:
        self._slots = check_slots_on_device(slots)
        self.columns: RolloutColumns | None = None
        self.positions: list[int] = []
        self.dropped: list[DroppedRollout] = []
        self.dropped_positions: list[tuple[int, DroppedRollout]] = []
        self._policy, self._plans, self._device = policy, plans, device
        self._twin = policy_on_device(policy, parameters, device)
        self._heartbeat = heartbeat
        flags = set(plans.deterministic.tolist())
        flag = flags.pop() if len(flags) == 1 else None
        self._settings = BlockSettings(
            TILES[device.type],
            flag,
            kept,
            products=RowProducts() if device.type == "cpu" else None,
        )
        default = slots.env_spec.max_episode_length
        limits = np.where(plans.max_steps == NO_LIMIT, NO_LIMIT if default is None else default, plans.max_steps)
        self._plan_limits = limits
        if bool((~plans.stop_on_done & (limits == NO_LIMIT)).any()):
            raise ValueError("a plan with stop_on_done=False and no limit never ends; set its max_steps")
        self._taken = 0
        self._rows: DeviceRows | None = None
        self._width = min(slots.num_slots, len(plans))
        self._blocks = ParameterBlocks(self._width) if plans.set_of[0] >= 0 else None
        """How rows are sorted where plans bring parameters; in a unit, all do or none."""
        self._of = np.full(self._width, -1, dtype=np.int64)
        """Place of the plan of each row, -1 where none runs."""
        self._ages = np.zeros(self._width, dtype=np.int64)
        self._ended: list[tuple[int, int]] = []
        """Place of the plan and length of rollouts that have ended."""
        self._recorded: list[_Recorded] = []
        self._notes: dict[int, dict[str, Any]] = {}
        self._provenance = {"device": name_of(device), "torch": torch.__version__}

    def advance(self) -> None:
        """Run all plans.

        Raises:
            RolloutError, InvalidValueError: As ``SlotLoop.advance``; ``columns`` holds what had ended.
        """
        with torch.no_grad():
            try:
                self._fill()
                while (self._of >= 0).any():
                    self._block()
                    self._fill()
            except Exception:  # not Ctrl-C, which comes amid any statement: rows may be half written
                self._pack()
                raise
            self._pack()

    # -- rows --------------------------------------------------------------------------------------------------------

    def _fill(self) -> None:
        """Give free rows their next plans, or leave them behind when there are no more."""
        while True:
            num_active = int(np.count_nonzero(self._of >= 0))
            if num_active > _FULL * self._width:
                return
            if self._taken == len(self._plans):
                if num_active:
                    self._narrow(np.flatnonzero(self._of >= 0))
                return
            free = np.flatnonzero(self._of < 0)[: len(self._plans) - self._taken]
            positions = np.arange(self._taken, self._taken + len(free))
            self._taken += len(free)
            self._start(free, positions)

    def _narrow(self, rows: np.ndarray) -> None:
        """Continue with ``rows (k,)`` only."""
        if self._rows is None or _padded(len(rows), self._settings.tile) == len(self._rows.live):
            return
        index = _filled_up(np.arange(len(rows)), self._settings.tile)
        kept = torch.as_tensor(rows[index]).to(self._device)
        live = torch.arange(len(index), device=self._device) < len(rows)
        self._rows = rows_at(self._rows, kept)._replace(live=live)
        self._width, self._of, self._ages = len(rows), self._of[rows], self._ages[rows]
        if self._blocks is not None:
            self._blocks.keep(rows)

    def _start(self, rows: np.ndarray, positions: np.ndarray) -> None:
        """Start the plans at ``positions`` in ``rows``: first states are made here, and carried over together."""
        if self._heartbeat is not None:
            self._heartbeat("reset")
        plans = self._plans.take(positions)
        try:
            observations = self._slots.reset(rows.tolist(), plans)
        except FAILURES as error:
            raise self._failure(error, rows, plans, "the environment") from error
        memory = PolicyRows(self._policy, self._slots.num_slots)
        try:
            memory.start(rows, plans, 0, self._slots)
        except FAILURES as error:
            raise self._failure(error, rows, plans, "the policy") from error
        self._note(rows, positions, plans)
        self._of[rows], self._ages[rows] = positions, 0
        if self._blocks is not None:
            self._blocks.start(rows.tolist(), [plans.parameter_sets[number] for number in plans.set_of.tolist()])
        floats = np.asarray(observations).dtype.kind == "f"
        for i in np.flatnonzero(~finite_rows(observations)).tolist() if floats else ():
            self._drop(int(rows[i]), "observation", observations[i], -1)
        host = self._slots.rows
        new = DeviceRows(
            rows_at(host.state, rows),
            rows_at(host.constants, rows),
            {name: value[rows] for name, value in memory.state().items()},
            observations,
            plans.keys.astype(np.int64),
            env_keys(plans.env_seeds).astype(np.int64),
            np.zeros(len(rows), dtype=np.int64),
            self._plan_limits[positions],
            plans.stop_on_done,
            plans.deterministic,
            self._of[rows] >= 0,
        )
        if self._rows is None:
            index = _filled_up(np.arange(len(rows)), self._settings.tile)
            made = self._to_device(rows_at(new, index))
            self._rows = made._replace(live=made.live & (torch.arange(len(index), device=self._device) < len(rows)))
            return
        if self._rows.policy.keys() != new.policy.keys():
            raise ValueError(
                f"the state of a policy must have the same names in all rollouts of a unit, got {sorted(new.policy)} "
                f"after {sorted(self._rows.policy)}; give all plans the same kind of context, or run them in calls of "
                "their own"
            )
        at = torch.as_tensor(rows).to(self._device)
        self._rows = map_rows(lambda old, now: old.index_copy(0, at, now), self._rows, self._to_device(new))

    def _to_device(self, rows: DeviceRows) -> DeviceRows:
        return map_rows(lambda array: torch.as_tensor(np.array(array)).to(self._device), rows)

    def _note(self, rows: np.ndarray, positions: np.ndarray, plans: PlanTable) -> None:
        """Record the constants of the rollouts that have been started."""
        slots = self._slots
        for row, position, plan in zip(rows.tolist(), positions.tolist(), plans, strict=True):
            provenance = {**(slots.provenance(row) or {}), **self._provenance}
            note: dict[str, Any] = {"env_name": slots.name_of(row), "provenance": provenance}
            params = slot_domain_params(slots, row, plan)
            if params is not None:
                note["domain_param"] = params
            dt = slots.time_step(row) if self._settings.kept.extras else None
            if dt is not None:
                note[TIME_STEP] = dt
            self._notes[position] = note

    # -- blocks ------------------------------------------------------------------------------------------------------

    def _block(self) -> None:
        """Run a block, and check its results."""
        if self._heartbeat is not None:
            self._heartbeat("step")
        if self._rows is None:
            raise RuntimeError("no row has been started")
        active = self._of >= 0
        if self._blocks is not None:
            self._sort_sets(self._blocks, active)
        left = self._plan_limits[self._of[active]] - self._ages[active]
        done = run_block(
            self._slots.simulator, self._twin, self._rows, min(_LOCK_STEPS, int(left.max())), self._settings
        )
        self._rows = done.rows
        counts, over, bad = done.summary.cpu().numpy()[:, : self._width]
        counts, over = np.where(active, counts, 0), (over > 0) & active
        invalid = np.flatnonzero(active & (bad < _NEVER))
        counts[invalid], over[invalid] = 0, False
        before, positions = self._ages.copy(), self._of.copy()
        self._recorded.append(_Recorded(done.arrays, positions, before, counts))
        self._ages += counts
        self._ended += zip(self._of[over].tolist(), self._ages[over].tolist(), strict=True)
        self._of[over] = -1
        for row in invalid[np.argsort(bad[invalid], kind="stable")].tolist():
            step, order = divmod(int(bad[row]), len(_LOOKED_AT))
            name = ("actions", "+observations", "rewards")[order]
            value = done.arrays[name][step + (order == 1), row].cpu().numpy()
            self._drop(row, _LOOKED_AT[order], value, int(before[row]) + step)

    def _sort_sets(self, blocks: ParameterBlocks, active: np.ndarray) -> None:
        """Carry over the parameters of the rollouts that run, if these have changed."""
        before = blocks.sets
        blocks.arrange(active)
        if blocks.sets is before or self._rows is None:
            return
        index = _filled_up(np.arange(len(blocks.sets)), self._settings.tile // BLOCK)
        source = np.arange(BLOCK * len(blocks.sets)) if blocks.source is None else blocks.source
        place = np.zeros(len(self._rows.live), dtype=np.int64)
        place[: self._width] = blocks.place
        flat = torch.as_tensor(blocks.sets[index]).to(self._device)
        layout = ParameterLayout.of(self._twin, self._twin.acting_parameter_names())
        weights = {f"policy.{name}": part for name, part in layout.torch_views(flat).items()}
        indices = [torch.as_tensor(rows).to(self._device) for rows in (source.reshape(-1, BLOCK)[index].ravel(), place)]
        self._settings = replace(self._settings, sets=OwnSets(weights, *indices))

    def _drop(self, row: int, what: str, value: np.ndarray, step: int) -> None:
        position = int(self._of[row])
        plan = self._plans[position]
        if self._settings.kept.on_invalid == "raise":
            raise invalid_value(what, value, plan, step)
        self.dropped.append(DroppedRollout(plan, step, what))
        self.dropped_positions.append((position, self.dropped[-1]))
        self._of[row] = -1

    def _failure(self, error: BaseException, rows: np.ndarray, plans: PlanTable, where: str) -> Exception:
        """The error for a failed reset."""
        of_slot: list[RolloutPlan | None] = [None] * self._slots.num_slots
        for row, plan in zip(rows.tolist(), plans, strict=True):
            of_slot[row] = plan
        starting = np.isin(np.arange(len(of_slot)), rows)
        return failure_in_slots(error, of_slot, starting, np.zeros(len(of_slot), dtype=np.int64), where, True)

    # -- results -----------------------------------------------------------------------------------------------------

    def _pack(self) -> None:
        """Sort ended rollouts by plan, on the device, and fetch them."""
        if not self._ended:
            return
        positions, lengths = np.array(sorted(self._ended), dtype=np.int64).T
        bounds = np.concatenate([[0], np.cumsum(lengths)])
        places = [torch.as_tensor(self._places(part, positions, bounds)).to(self._device) for part in self._recorded]
        packed = {name: self._column(name, places, bounds) for name in self._recorded[0].arrays}
        self._recorded.clear()
        arrays = _fetched(packed)
        fields: dict[str, Any] = {}
        for name, column in arrays.items():
            group, _, key = name.removeprefix("+").partition("/")
            if key:
                fields.setdefault(group, {})[key] = column
            else:
                fields[group] = column
        terminated, truncated = fields.pop("terminated"), fields.pop("truncated")
        self.positions = positions.tolist()
        notes = [self._notes[position] for position in self.positions]
        complete = np.ones(len(positions), dtype=bool)
        plans = [self._plans[position] for position in self.positions]
        self.columns = RolloutColumns(fields, terminated, truncated, bounds, complete, notes, plans=plans)
        if self._settings.kept.extras:
            add_applied_actions(self.columns, self._slots.env_spec)

    @staticmethod
    def _places(part: _Recorded, positions: np.ndarray, bounds: np.ndarray) -> np.ndarray:
        """First row among all steps, number of the rollout, and steps, int64 ``(3, W)``; -1 steps: not wanted."""
        piece = np.minimum(np.searchsorted(positions, part.positions), len(positions) - 1)
        wanted = (positions[piece] == part.positions) & (part.counts > 0)
        return np.stack([bounds[piece] + part.ages, piece, np.where(wanted, part.counts, -1)])

    def _column(self, name: str, places: Sequence[torch.Tensor], bounds: np.ndarray) -> torch.Tensor:
        """One name of all rollouts; a last row receives unwanted entries."""
        final = name.startswith("+")
        total = int(bounds[-1]) + final * (len(bounds) - 1)
        first = self._recorded[0].arrays[name]
        column = torch.empty((total + 1, *first.shape[2:]), dtype=first.dtype, device=self._device)
        for part, (begin, piece, counts) in zip(self._recorded, places, strict=True):
            values = part.arrays[name][:, : len(begin)]
            steps = torch.arange(len(values), device=self._device)[:, None]
            rows = begin + final * piece + steps
            rows = torch.where(steps < counts + final, rows, total)
            column.index_copy_(0, rows.reshape(-1), values.reshape(-1, *values.shape[2:]))
        return column[:total]


def _padded(count: int, tile: int) -> int:
    return -(-count // tile) * tile


def _filled_up(index: np.ndarray, tile: int) -> np.ndarray:
    """``index (k,)`` up to a whole number of tiles, with copies of its first entry."""
    return np.concatenate([index, np.repeat(index[:1], _padded(len(index), tile) - len(index))])


def _fetched(columns: Mapping[str, torch.Tensor]) -> dict[str, np.ndarray]:
    """Columns from the device, in one piece; those of wide numbers come first, so that all lie as they must."""
    names = sorted(columns, key=lambda name: -columns[name].element_size())
    flat = torch.cat([columns[name].reshape(-1).view(torch.uint8) for name in names]).cpu().numpy()
    arrays, begin = {}, 0
    for name in names:
        column = columns[name]
        end = begin + column.numel() * column.element_size()
        dtype = torch.empty(0, dtype=column.dtype).numpy().dtype
        arrays[name] = flat[begin:end].view(dtype).reshape(tuple(column.shape))
        begin = end
    return {name: arrays[name] for name in columns}
