"""A part of a collection where its slots are stepped: rollouts that continue over calls, or are built again."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from metaroll.data.rollouts import RolloutColumns
from metaroll.errors import InvalidValueError, ReplayError, RolloutError
from metaroll.rollouts.engine.plan_sources import RunningRollout, SlotPlans
from metaroll.rollouts.engine.slot_loop import SlotLoop
from metaroll.rollouts.engine.unit_work import one_torch_thread, unit_runner
from metaroll.rollouts.failures import DroppedRollout, without_advice
from metaroll.rollouts.requests import Kept
from metaroll.rollouts.workers.messages import GlobalNamespace, heartbeat_of
from metaroll.tasks.plan_table import PlanTable
from metaroll.types import Policy, RolloutPlan, Slots, SlotsResume, SlotStep

__all__ = [
    "LiveShard",
    "PlansOfShard",
    "ShardResult",
    "ShardStart",
    "ShardWork",
    "advance_shard",
    "forget_shards",
    "plan_by_number",
]


@dataclass(frozen=True)
class PlansOfShard:
    """Plans of a shard by their number within it: the plans' maker receives numbers of the whole collection."""

    plan_of: Callable[[int], RolloutPlan]
    first: int
    width: int
    total: int

    def numbers(self, own: np.ndarray) -> np.ndarray:
        """Numbers in the collection of plans ``own (k,)`` of the shard."""
        turns, slots = np.divmod(own, self.width)
        return turns * self.total + self.first + slots

    def own(self, number: int) -> int:
        """Number in the shard of plan ``number`` of the collection."""
        turn, slot = divmod(number, self.total)
        return turn * self.width + slot - self.first

    def __call__(self, own: int) -> RolloutPlan:
        return plan_by_number(self.plan_of, int(self.numbers(np.array(own))))


def plan_by_number(plan_of: Callable[[int], RolloutPlan], number: int) -> RolloutPlan:
    """``plan_of(number)``, which must be a plan with a seed and without parameters.

    Raises:
        ValueError: It is not, or ``plan_of`` raises.
    """
    try:
        plan = plan_of(number)
    except Exception as error:
        raise ValueError(f"plan_of({number}) raised {type(error).__name__}: {error}") from error
    if not isinstance(plan, RolloutPlan) or plan.seed is None or plan.parameters is not None:
        raise ValueError(
            f"plan_of(n) must return a RolloutPlan with a seed and without parameters, got {plan!r} for n = {number}"
        )
    return plan


@dataclass
class ShardStart:
    """All it takes to build a shard.

    Attributes:
        plans: Where its slots get their plans; ``None``: rollouts are started by hand.
        begun: Plans that each slot has begun, ``(E,)``; by hand their number, ``(1,)``.
        running: Rollouts in the middle, with their actions where these are to be taken again.
        policy_state: The policy's memory, name -> ``(E, ...)``.
        observations: The last observations of all slots.
        states: ``Slots.running_state`` of the running rollouts, if these are set.
        skipped: Numbers of plans that are left out.
        kept: Which data of rollouts are kept.
        resumable: Whether results contain what it takes to build the shard again.
    """

    plans: PlansOfShard | None
    begun: np.ndarray
    running: list[RunningRollout]
    policy_state: dict[str, np.ndarray]
    observations: Any
    states: dict[str, np.ndarray] | None
    skipped: frozenset[int]
    kept: Kept
    resumable: bool


@dataclass
class ShardWork:
    """One call of a shard: ``version`` is the number of calls before it, ``start`` comes with the first."""

    key: tuple[str, int]
    version: int
    num_slots: int
    steps: int
    actions: Any = None
    starts: list[tuple[int, RolloutPlan]] = field(default_factory=list)
    start: ShardStart | None = None


def _none() -> np.ndarray:
    return np.zeros(0, dtype=np.int64)


@dataclass
class ShardResult:
    """The result of a call, and the data to continue.

    Attributes:
        unknown: The worker does not have the shard as it is, or a rollout has failed: to be called again with a start.
        failed: Numbers of rollouts that have failed, and why.
        columns: Recorded columns; ``None``: no steps.
        numbers: Numbers of the plans of the columns.
        slots, positions, ages: Slots, numbers of plans and steps of the rollouts that run, ``(k,)``.
        begun, policy_state, observations, states: See ``ShardStart``.
        resumes: How the rollouts continue elsewhere.
        dropped: Rollouts that were left out.
        last_step: Result of the last lock-step, where nothing is recorded.
    """

    unknown: bool = False
    failed: list[tuple[int, DroppedRollout]] = field(default_factory=list)
    columns: RolloutColumns | None = None
    numbers: np.ndarray = field(default_factory=_none)
    slots: np.ndarray = field(default_factory=_none)
    positions: np.ndarray = field(default_factory=_none)
    ages: np.ndarray = field(default_factory=_none)
    begun: np.ndarray = field(default_factory=_none)
    policy_state: dict[str, np.ndarray] = field(default_factory=dict)
    observations: Any = None
    states: dict[str, np.ndarray] | None = None
    resumes: SlotsResume = "nothing"
    dropped: list[DroppedRollout] = field(default_factory=list)
    last_step: SlotStep | None = None


class LiveShard:
    """Slots whose rollouts continue over calls.

    Args:
        slots: The slots.
        policy: The acting policy.
        start: Data of the first call.
        heartbeat: Called now and then (the heartbeat of a worker).

    Attributes:
        version: Number of calls that led to the current state; -1 while that is unknown.
    """

    def __init__(
        self, slots: Slots, policy: Policy, start: ShardStart, heartbeat: Callable[[str], None] | None = None
    ) -> None:
        kept = start.kept
        self._drops, self._pieces, self._records = kept.on_error == "drop", kept.pieces, kept.steps
        self.slots, self._plans, self.version = slots, start.plans, -1
        self._resumes: SlotsResume = slots.info.resumes if start.resumable else "nothing"
        self._start: ShardStart | None = start
        plans: Any = () if start.plans is None else start.plans
        self._loop = SlotLoop(
            slots, policy, plans, kept=kept, refill=start.plans is not None, begin=False, heartbeat=heartbeat
        )

    def run(self, work: ShardWork, policy: Policy, parameters: np.ndarray | None) -> ShardResult:
        """One call.

        Raises:
            RolloutError: An environment or the policy raised; the shard is to be built again.
        """
        self.version = -1
        loop = self._loop
        try:
            with one_torch_thread(not policy.info.width_independent):
                loop.use(policy, None if work.actions is not None else parameters)
                if self._start is not None:
                    self._build(self._start)
                if work.starts:
                    loop.start([slot for slot, _ in work.starts], [plan for _, plan in work.starts])
                if work.steps:
                    loop.advance(work.steps, actions=work.actions, segments=self._pieces)
        except RolloutError as error:
            if self._drops:
                without_advice(error)
            number = self._failed(error)
            if number is None:
                raise
            entry = DroppedRollout(error.plan, error.step, "error", str(error))
            return ShardResult(unknown=True, failed=[(number, entry)])
        self._start, self.version = None, work.version + 1
        return self._result(work.steps > 0)

    def _build(self, start: ShardStart) -> None:
        source, plans = self._loop.source, start.plans
        source.begun = start.begun.copy()
        running = start.running
        if plans is not None:
            running = [
                RunningRollout(entry.slot, plans.own(entry.position), entry.plan, entry.age, entry.actions)
                for entry in running
            ]
        if plans is not None and isinstance(source, SlotPlans):
            source.skipped = frozenset(map(plans.own, start.skipped))
        try:
            self._loop.restore(running, start.policy_state, start.observations, start.states)
        except KeyError as error:
            if not running:
                raise
            raise ValueError(
                f"the half-done rollouts are not of this environment and policy: their state lacks {error}"
            ) from error

    def _failed(self, error: RolloutError) -> int | None:
        """Number of the rollout that has failed, if it is one that may be left out."""
        plans, stays = self._plans, isinstance(error, InvalidValueError | ReplayError)
        if not self._drops or plans is None or stays or len(error.suspects) > 1:
            return None
        position = self._loop.position_of(error.plan)
        return None if position is None else int(plans.numbers(np.array(position)))

    def _result(self, stepped: bool) -> ShardResult:
        loop, plans = self._loop, self._plans
        slots, positions, ages = loop.running()
        numbers = np.array(loop.positions if stepped else (), dtype=np.int64)
        columns, dropped = loop.columns if stepped else None, loop.dropped
        loop.dropped = []
        loop.dropped_positions = []
        if plans is not None:
            positions, numbers = plans.numbers(positions), plans.numbers(numbers)
            if columns is not None:
                columns.plans = None  # they are known where the call came from
        known = self._resumes != "nothing"
        begun = loop.source.begun.copy()
        return ShardResult(
            columns=columns,
            numbers=numbers,
            slots=slots,
            positions=positions,
            ages=ages,
            begun=begun,
            policy_state=loop.policy_state() if known else {},
            observations=loop.observations if begun.any() else None,
            states=self.slots.running_state(slots) if self._resumes == "state" and slots.size else None,
            resumes=self._resumes,
            dropped=dropped,
            last_step=None if self._records else loop.last_step,
        )


def advance_shard(namespace: GlobalNamespace, key: str, work: ShardWork) -> ShardResult:
    """Worker side of ``Collection``: one call of a shard."""
    runner = unit_runner(namespace, key)
    shards: dict[Any, LiveShard] = vars(namespace).setdefault("_shards", {})
    name = (key, *work.key)
    shard, policy = shards.get(name), runner.acting_policy()
    if shard is not None and (work.start is not None or shard.version != work.version):
        shards.pop(name).slots.close()
        shard = None
    if work.start is not None:
        shard = shards[name] = _built(runner, work, work.start, policy, heartbeat_of(namespace))
    if shard is None:
        return ShardResult(unknown=True)
    try:
        result = shard.run(work, policy, runner.parameters)
    except BaseException:
        with suppress(Exception):  # an error of close() must not hide this one
            shards.pop(name).slots.close()
        raise
    if result.unknown:
        with suppress(Exception):  # nor one that close() raises since a rollout has failed
            shards.pop(name).slots.close()
    return result


def forget_shards(namespace: GlobalNamespace, key: str, collection: str) -> None:
    """Worker side of ``Collection``: free its slots here."""
    shards = vars(namespace).get("_shards", {})
    for name in [name for name in shards if name[:2] == (key, collection)]:
        shards.pop(name).slots.close()


def _built(
    runner: Any, work: ShardWork, start: ShardStart, policy: Policy, heartbeat: Callable[[str], None] | None
) -> LiveShard:
    if start.plans is None:
        first = [plan for _, plan in work.starts]
    else:
        first = [start.plans(own) for own in range(work.num_slots)]
    slots = runner.live_slots(work.num_slots, PlanTable(first), heartbeat)
    try:
        if slots.num_slots != work.num_slots:
            raise ValueError(
                f"num_slots must be {slots.num_slots}, as many as the vector environment has, got {work.num_slots}"
            )
        return LiveShard(slots, policy, start, heartbeat)
    except BaseException:
        with suppress(Exception):
            slots.close()
        raise
