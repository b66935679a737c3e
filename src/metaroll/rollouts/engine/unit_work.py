"""Work of a worker for the engine: it keeps environments and policy, and runs units of plans."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn

from metaroll.checks import array_of, described
from metaroll.data.rollouts import RolloutColumns, Rollouts
from metaroll.data.step_sequence import StepSequence
from metaroll.envs.lookup.source import EnvSource
from metaroll.envs.mujoco.threads import physics_threads
from metaroll.errors import InvalidValueError, RolloutError, ShapeError
from metaroll.policies.acting import ActingPolicy
from metaroll.policies.adapters import inside_of
from metaroll.rollouts.engine.device_block import DeviceLoop
from metaroll.rollouts.engine.recorder import BlockMemory
from metaroll.rollouts.engine.reduction import Reduction
from metaroll.rollouts.engine.slot_loop import SlotLoop
from metaroll.rollouts.engine.units import list_slots
from metaroll.rollouts.failures import DroppedRollout, without_advice
from metaroll.rollouts.requests import Kept
from metaroll.rollouts.workers.messages import GlobalNamespace, heartbeat_of
from metaroll.tasks.plan_table import PlanTable
from metaroll.types import EnvSpec, Policy, Slots, SlotsKind, flat_dim

__all__ = [
    "Unit",
    "UnitResult",
    "UnitRunner",
    "acting_build",
    "buffers_of",
    "checked_fields",
    "checked_parameters",
    "completed",
    "dropped_in_order",
    "forget",
    "one_torch_thread",
    "run_unit_in_worker",
    "set_env",
    "set_parameters",
    "set_policy",
    "shared_or_own",
    "spaces_of",
    "together",
    "unit_runner",
]

_MOST_KEPT_SLOTS = 4


@dataclass(frozen=True)
class Unit:
    """Plans for a number of slots. ``may_narrow``: fewer slots where these are environments that take long to make."""

    number: int
    plans: PlanTable
    num_slots: int
    kept: Kept
    reduce: Reduction | None = None
    may_narrow: bool = False


@dataclass
class UnitResult:
    """The result of a unit.

    Attributes:
        number: Number of the unit.
        columns: Its rollouts, in the order of its plans; ``None`` if there are none, or they have been reduced.
        kept: Places of their plans in the unit, ``(N,)``.
        dropped: Rollouts that were left out, in the order of the unit's plans.
        reduced: Result of ``Unit.reduce`` for them, ``(n, ...)``.
        groups: Which groups of the unit's plans these rows are of, ``(n,)``.
        num_steps: Steps of all of them.
    """

    number: int
    columns: RolloutColumns | None
    kept: np.ndarray
    dropped: list[DroppedRollout] = field(default_factory=list)
    reduced: np.ndarray | None = None
    groups: np.ndarray | None = None
    num_steps: int = 0


class UnitRunner:
    """Environments, policy and parameters of one engine in one process.

    Args:
        threads: How many threads simulate physics; ``None`` means as ``physics_threads`` sets.
        device: Where units run on torch tensors; ``None``: in NumPy.
    """

    def __init__(self, threads: int | None = None, device: torch.device | None = None) -> None:
        self._threads, self.device = threads, device
        self.env: EnvSource | None = None
        self.policy: Policy | None = None
        self.parameters: np.ndarray | None = None
        self._example: Any = None
        self._making_takes = 0.0
        self._memory = BlockMemory()
        self._slots: dict[tuple[int, SlotsKind], Slots] = {}

    def set_env(self, env: EnvSource) -> None:
        self.close()
        self.env = env

    def acting_policy(self) -> Policy:
        """The policy.

        Raises:
            RuntimeError: None has been set.
        """
        if self.policy is None:
            raise RuntimeError("no policy has been set")
        return self.policy

    def run(self, unit: Unit, heartbeat: Callable[[str], None] | None = None) -> UnitResult:
        """Run a unit; slots are kept for the next one of the same width.

        With ``on_error="drop"`` the rollouts that had not ended when one failed are run again without it: what
        a rollout does depends on its plan alone.
        """
        parts: list[tuple[RolloutColumns, np.ndarray]] = []
        dropped: list[tuple[int, DroppedRollout]] = []
        queue = [np.arange(len(unit.plans))]
        while queue:
            places = queue.pop(0)
            plans = unit.plans if len(places) == len(unit.plans) else unit.plans.take(places)
            loop: SlotLoop | DeviceLoop | None = None
            try:
                loop = self._run_once(unit, plans, heartbeat)
            except RolloutError as error:
                loop = error.loop
                if unit.kept.on_error == "raise" or isinstance(error, InvalidValueError):
                    error.loop = None
                    _gather(parts, dropped, loop, places)
                    error.finished = list(Rollouts([columns for columns, _ in parts]))
                    raise
                queue += _without_failed(plans, places, loop, without_advice(error), dropped)
            _gather(parts, dropped, loop, places)
        return _result(unit, parts, dropped)

    def _run_once(self, unit: Unit, plans: PlanTable, heartbeat: Callable[[str], None] | None) -> SlotLoop | DeviceLoop:
        """Run plans until all are done; an error of a rollout holds the loop in which it occurred."""
        policy = self.acting_policy()
        kind = self._kind(plans, heartbeat)
        num_slots = min(unit.num_slots, len(plans))
        if kind == "list" and unit.may_narrow:
            num_slots = min(num_slots, list_slots(self._making_takes))
        key = (0 if kind == "vector" else num_slots, kind)  # a vector environment has its own number
        slots = self._slots_for(key, heartbeat)
        num_slots = slots.num_slots
        own = bool(plans.set_of[0] >= 0)
        loop: SlotLoop | DeviceLoop | None = None
        settings: dict[str, Any] = {
            "parameters": None if own else self.parameters,
            "kept": unit.kept,
            "heartbeat": heartbeat,
        }
        try:
            with one_torch_thread(self.device is not None or not policy.info.width_independent):
                if self.device is not None:
                    loop = DeviceLoop(slots, policy, plans, self.device, **settings)
                else:
                    loop = SlotLoop(slots, policy, plans, begin=False, memory=self._memory, **settings)
                    loop.fill()
                loop.advance()
        except BaseException as error:
            if isinstance(error, RolloutError):
                error.loop = loop
            # What the failed step left behind must not reach the next unit; an error of close() must not hide this one.
            with suppress(Exception):
                self._slots.pop(key).close()
            raise
        if slots.num_slots != num_slots:  # it was narrowed
            self._slots.pop(key).close()
        return loop

    def live_slots(self, num_slots: int, plans: PlanTable, heartbeat: Callable[[str], None] | None) -> Slots:
        """Separate slots for rollouts that continue over calls; the caller closes them."""
        kind = self._kind(plans, heartbeat)
        with physics_threads(self._threads):
            return self._source.slots(num_slots, env=self._example, kind=kind)

    def close(self) -> None:
        while self._slots:  # one by one: should closing fail, what has been closed must not be used again
            self._slots.pop(next(iter(self._slots))).close()
        self._memory = BlockMemory()
        example, self._example = self._example, None
        if example is not None and self.env is not None:
            self.env.close(example)

    def _kind(self, plans: PlanTable, heartbeat: Callable[[str], None] | None) -> SlotsKind:
        """Whether the environment's own simulator can run all plans of the unit (the bits are the same either way)."""
        if self._example is None:
            if heartbeat is not None:
                heartbeat("reset")  # building environments may take long
            begin = time.perf_counter()
            self._example = self._source.make()
            self._making_takes = time.perf_counter() - begin
        return self._source.kind(plans, self._example)

    @property
    def _source(self) -> EnvSource:
        if self.env is None:
            raise RuntimeError("no environment has been set")
        return self.env

    def _slots_for(self, key: tuple[int, SlotsKind], heartbeat: Callable[[str], None] | None) -> Slots:
        slots = self._slots.pop(key, None)
        if slots is None:
            if heartbeat is not None:
                heartbeat("reset")
            while len(self._slots) >= _MOST_KEPT_SLOTS:
                self._slots.pop(next(iter(self._slots))).close()
            num_slots, kind = key
            with physics_threads(self._threads):
                slots = self._source.slots(max(num_slots, 1), env=self._example, kind=kind)
        self._slots[key] = slots  # last used, last in the order
        return slots


def _gather(
    parts: list[tuple[RolloutColumns, np.ndarray]],
    dropped: list[tuple[int, DroppedRollout]],
    loop: SlotLoop | DeviceLoop | None,
    places: np.ndarray,
) -> None:
    """Collect the rollouts that a loop has finished or dropped."""
    if loop is None:
        return
    dropped.extend((int(places[position]), entry) for position, entry in loop.dropped_positions)
    if loop.columns is not None:
        parts.append((loop.columns, places[np.array(loop.positions, dtype=np.int64)]))


def _without_failed(
    plans: PlanTable,
    places: np.ndarray,
    loop: SlotLoop | DeviceLoop | None,
    error: RolloutError,
    dropped: list[tuple[int, DroppedRollout]],
) -> list[np.ndarray]:
    """Which plans are run next after ``error``; those that have failed are dropped."""
    suspects = {id(plan) for plan in error.suspects or [error.plan]}
    messages = {id(plan): message for plan, message in error.others}
    known = suspects | messages.keys()
    done = set() if loop is None else {*loop.positions, *(position for position, _ in loop.dropped_positions)}
    remaining = [i for i in range(len(plans)) if i not in done and id(plans[i]) not in known]
    reported = [(i, messages.get(id(plans[i]))) for i in range(len(plans)) if messages]
    dropped.extend(
        (int(places[i]), DroppedRollout(plans[i], error.step, "error", text)) for i, text in reported if text
    )
    failed = [i for i in range(len(plans)) if id(plans[i]) in suspects]
    if not failed:
        raise error
    if len(failed) == 1:
        entry = DroppedRollout(plans[failed[0]], error.step, "error", str(error))
        dropped.append((int(places[failed[0]]), entry))
        failed = []
    alone = [places[[i]] for i in failed]  # one of several: each is tried separately
    return [*([places[remaining]] if remaining else []), *alone]


def _result(
    unit: Unit, parts: list[tuple[RolloutColumns, np.ndarray]], left_out: list[tuple[int, DroppedRollout]]
) -> UnitResult:
    """All parts, and the dropped rollouts, in the order of the unit's plans."""
    dropped = [entry for _, entry in sorted(left_out, key=lambda item: item[0])]
    order = np.concatenate([np.zeros(0, dtype=np.int64), *(places for _, places in parts)])
    columns = parts[0][0] if parts else None
    if len(parts) > 1:
        columns = Rollouts([part for part, _ in parts]).sorted_by(order).parts[0]
    kept, steps = np.sort(order), 0 if columns is None else int(columns.bounds[-1])
    if columns is not None:
        columns.plans = None  # they are known where the unit came from
    if unit.reduce is None or columns is None:
        return UnitResult(unit.number, columns, kept, dropped, num_steps=steps)
    if "seeds" in (unit.reduce.fields or ()):
        columns.plans = unit.plans if len(kept) == len(unit.plans) else unit.plans.take(kept)
    rows, groups = unit.reduce.rows_of(columns, kept)
    return UnitResult(unit.number, None, kept, dropped, rows, groups, steps)


def together(units: Sequence[Unit], results: Sequence[UnitResult], pieces: Sequence[np.ndarray]) -> Rollouts:
    """The rollouts of all units in the order of their plans."""
    parts = []
    for unit, result in zip(units, results, strict=True):
        if result.columns is not None:
            every = len(result.kept) == len(unit.plans)
            result.columns.plans = unit.plans if every else unit.plans.take(result.kept)
            parts.append(result.columns)
    rollouts = Rollouts(parts)
    places = [piece[result.kept] for piece, result in zip(pieces, results, strict=True) if len(result.kept)]
    order = np.concatenate([np.zeros(0, dtype=np.int64), *places])
    return rollouts if bool((np.diff(order) > 0).all()) else rollouts.sorted_by(order)


def completed(units: Sequence[Unit], results: Sequence[UnitResult], error: Exception) -> list[StepSequence]:
    """Rollouts of whole units, and those of the one that failed which had ended before."""
    parts = [together([units[r.number]], [r], [np.arange(len(units[r.number].plans))]) for r in results]
    rollouts = [rollout for part in parts for rollout in part]
    rollouts += error.finished if isinstance(error, RolloutError) else []
    return sorted(rollouts, key=lambda rollout: rollout.rollout_info["plan"]["index"])


def checked_fields(fields: Any) -> tuple[str, ...] | None:
    """Names of columns.

    Raises:
        TypeError: They are something else.
    """
    if fields is None:
        return None
    if isinstance(fields, str) or not isinstance(fields, Iterable) or not all(isinstance(name, str) for name in fields):
        raise TypeError(f'fields must be names of columns such as ("rewards",), or None, got {described(fields)}')
    return tuple(fields)


def be_ready(namespace: GlobalNamespace) -> None:
    """Worker side of starting workers before there is work: importing this module takes most of the time."""


def set_env(namespace: GlobalNamespace, key: str, env: EnvSource) -> None:
    """Worker side of ``RolloutEngine``: a new environment."""
    unit_runner(namespace, key).set_env(env)


def set_policy(namespace: GlobalNamespace, key: str, policy: Policy) -> None:
    """Worker side of ``RolloutEngine``: a new policy."""
    unit_runner(namespace, key).policy = policy


def set_parameters(namespace: GlobalNamespace, key: str, parameters: np.ndarray | None) -> None:
    """Worker side of ``RolloutEngine``: new parameters ``(P,)``."""
    unit_runner(namespace, key).parameters = parameters


def forget(namespace: GlobalNamespace, key: str) -> None:
    """Worker side of ``RolloutEngine``: free its objects in this process."""
    runner = vars(namespace).get("_unit_runners", {}).pop(key, None)
    if runner is not None:
        with suppress(Exception):  # errors of close() have no receiver here
            runner.close()


def run_unit_in_worker(namespace: GlobalNamespace, key: str, unit: Unit) -> UnitResult:
    """Worker side of ``RolloutEngine``: run a unit."""
    return unit_runner(namespace, key).run(unit, heartbeat_of(namespace))


def unit_runner(namespace: GlobalNamespace, key: str) -> UnitRunner:
    """The runner of engine ``key`` in this process."""
    runners = vars(namespace).setdefault("_unit_runners", {})
    return runners.setdefault(key, UnitRunner(threads=1))  # workers share the processors


@contextmanager
def one_torch_thread(needed: bool) -> Iterator[None]:
    """One torch thread for policies that act through torch, as in workers: with more the last bits may differ."""
    threads = torch.get_num_threads()
    if not needed or threads == 1:
        yield
        return
    try:
        torch.set_num_threads(1)
        yield
    finally:
        torch.set_num_threads(threads)


def checked_parameters(policy: Policy, parameters: Any, plans: PlanTable) -> np.ndarray:
    """Parameters ``(P,)`` for plans that bring none, the policy's where ``parameters`` is ``None``.

    Raises:
        TypeError: They are not numbers.
        ShapeError: They, or those of a plan, are of another shape.
    """
    own = policy.acting_parameters()
    expected = f"an array of numbers ({own.size},)"
    flat = own if parameters is None else array_of("parameters", parameters, expected)
    if flat.shape != own.shape:
        raise ShapeError(
            f"parameters must be flat (P,), here {own.shape}, got shape {flat.shape}; a set of its own for each plan "
            "goes into RolloutPlan.parameters"
        )
    for number, values in enumerate(plans.parameter_sets):
        if isinstance(values, np.ndarray) and values.shape == own.shape and values.dtype.kind in "fiu":
            continue  # the usual case, for each of many
        index = int(plans.indices[np.flatnonzero(plans.set_of == number)[0]])
        shape = array_of(f"parameters of plan {index}", values, expected).shape
        if shape != own.shape:
            raise ShapeError(f"parameters of plan {index} must be flat (P,), here {own.shape}, got {shape}")
    return flat


def acting_build(policy: Policy) -> str:
    """All that must stay the same where rollouts continue: the kind of policy and its number of parameters."""
    inner = inside_of(policy)
    name = type(policy).__name__ + ("" if inner is None else f" of a {type(inner).__name__}")
    return f"{name} with {policy.acting_parameters().size} parameters"


def spaces_of(spec: EnvSpec) -> str:
    """Spaces of an environment, in words that stay the same over versions of libraries."""
    shown, taken = spec.observation_space, spec.action_space
    return (
        f"observations {type(shown).__name__} of {flat_dim(shown)}, actions {type(taken).__name__} of {flat_dim(taken)}"
    )


def shared_or_own(policy: Policy, parameters: Any, count: int) -> tuple[np.ndarray | None, list[np.ndarray] | None]:
    """Parameters ``(P,)`` for all of ``count`` variations, or an array for each."""
    if parameters is None:
        return None, None
    size = policy.acting_parameters().size
    values = array_of("parameters", parameters, f"an array of numbers ({size},) or ({count}, {size})")
    if values.shape == (size,):
        return values, None
    if values.shape != (count, size):
        raise ShapeError(
            f"parameters must have shape ({size},), or ({count}, {size}) with a row for each variation, got "
            f"{values.shape}"
        )
    return None, list(np.array(values, dtype=np.float32))  # one array for all plans of a variation: a set to share


def dropped_in_order(results: Sequence[UnitResult], pieces: Sequence[np.ndarray]) -> list[DroppedRollout]:
    """The rollouts that all units have left out, in the order of the plans."""
    numbered: list[tuple[int, DroppedRollout]] = []
    for result, piece in zip(results, pieces, strict=True):
        if result.dropped:  # a plan that is not kept is dropped
            numbered += zip(np.delete(piece, result.kept).tolist(), result.dropped, strict=True)
    return [entry for _, entry in sorted(numbered, key=lambda item: item[0])]


def buffers_of(policy: Any) -> bytes:
    """Contents of the buffers with which a torch module acts, but for those that are acting parameters.

    A belief about the task reaches workers in plans.
    """
    inner = inside_of(policy)
    module = policy if inner is None else inner
    if not isinstance(module, nn.Module):
        return b""
    acting = set(module.acting_parameter_names()) if isinstance(module, ActingPolicy) else set[str]()
    buffers = [buffer for name, buffer in module.named_buffers() if name not in acting]
    flat = [buffer.detach().cpu().contiguous().view(-1).view(torch.uint8) for buffer in buffers]
    return b"".join(buffer.numpy().tobytes() for buffer in flat)
