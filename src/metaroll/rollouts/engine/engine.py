"""THE engine: plans in, rollouts out, with the same bits for any number of workers, and after any crash."""

from __future__ import annotations

import contextlib
import itertools
import uuid
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any

import cloudpickle
import numpy as np
import torch

from metaroll.checks import array_of, check_whole, described
from metaroll.config import config_of
from metaroll.data.rollouts import Rollouts
from metaroll.envs.lookup.source import EnvSource
from metaroll.errors import NotPicklableError, RolloutError, ShapeError, WorkerLost
from metaroll.policies.adapters import as_policy
from metaroll.policies.own_body import check_picklable
from metaroll.rollouts.collecting import enough, still_missing
from metaroll.rollouts.configs import EngineConfig
from metaroll.rollouts.engine.collection import Collection
from metaroll.rollouts.engine.devices import check_env_on_device, check_policy_on_device, device_of
from metaroll.rollouts.engine.live_shard import ShardResult, ShardWork, advance_shard, forget_shards, plan_by_number
from metaroll.rollouts.engine.reduction import Reduce, ReducedRows, Reduction
from metaroll.rollouts.engine.spaces_seen import warn_of_actions, warn_of_observations
from metaroll.rollouts.engine.unit_work import (
    Unit,
    UnitResult,
    UnitRunner,
    acting_build,
    buffers_of,
    checked_fields,
    checked_parameters,
    completed,
    dropped_in_order,
    forget,
    run_unit_in_worker,
    set_env,
    set_parameters,
    set_policy,
    shared_or_own,
    spaces_of,
    together,
)
from metaroll.rollouts.engine.units import cut, slots_of_unit, unit_size
from metaroll.rollouts.failures import DroppedRollout, all_dropped
from metaroll.rollouts.requests import Kept, SampleRequest
from metaroll.rollouts.workers.messages import GlobalNamespace, encode_command
from metaroll.rollouts.workers.pool import Job, SamplerPool, check_shared
from metaroll.tasks.plan_table import NO_LIMIT, PlanTable, resolve_plans
from metaroll.types import EnvSpec, Policy, RolloutPlan, SlotsKind

__all__ = ["RolloutEngine"]

_numbers = itertools.count()

_HERE = "; or run the rollouts in this process (num_workers=1, with transport='auto' or 'serial')"
"""The engine's hint for objects that cannot be sent."""

_MADE_AT_ONCE = 1 << 16
"""Plans of a generator that are made at a time."""

_EXTRAS = frozenset({"actions_applied", "states", "time", "hidden_states"})
"""Columns of ``record_extras``."""

_MOST_DROPPED = 32
"""After this many rollouts of a variation without a single valid one, more are not tried."""


class RolloutEngine:
    """Runs rollouts of one policy in one environment (and its variations).

    Args:
        env: Gymnasium id, name of a family of metaroll, constructor, or instance (copied, never stepped itself).
        policy: A ``Policy``, or anything that ``policies.adapters.as_policy`` understands.
        config: How rollouts are run; ``None`` means the defaults. ``dropped`` lists what was dropped.
        pool: A pool to share, in place of workers of ``config``; it is not stopped by ``close``.
        device: ``None``: NumPy. ``"cuda"`` (or ``"cpu"``, to try it out): torch tensors, in this process, for batched
            simulators under metaroll's MLP and GRU policies (docs/sim_to_real.md).
        record_infos: Keep infos of environment and policy in the rollouts.
        record_extras: Record ``actions_applied``, and ``states``, ``time`` and domain parameters as far as the
            environment reports them (see ``rollout``).
        options: Settings by name, in place of those of ``config``, e.g. ``num_workers=4``.

    Attributes:
        config: The settings.
    """

    def __init__(
        self,
        env: Any,
        policy: Any,
        *,
        config: EngineConfig | None = None,
        pool: SamplerPool | None = None,
        device: str | torch.device | None = None,
        record_infos: bool = True,
        record_extras: bool = False,
        **options: Any,
    ) -> None:
        config = config_of(EngineConfig, config, options, type(self))
        check_shared(pool, config)
        self._device = device_of(device, config, pool)
        self.dropped: list[DroppedRollout] = []
        self._owns_pool = pool is None
        if pool is None:
            pool = SamplerPool(config.num_workers, config=config)
        self._pool = pool
        self._key = f"{next(_numbers)}-{uuid.uuid4().hex[:8]}"
        self.config = config
        self._kept = Kept(
            on_invalid=config.on_invalid, on_error=config.on_error, infos=record_infos, extras=record_extras
        )
        self._local = UnitRunner(device=self._device)
        self._sent_env: EnvSource | None = None
        self._sent_policy: bytes | None = None
        self._sent_buffers = b""
        self._sent_parameters: np.ndarray | None = None
        self.env: Any = None
        self.policy: Any = None
        self._kind: SlotsKind = "list"
        self._env_spec: EnvSpec | None = None
        self._finalizer = weakref.finalize(self, _release, self._pool, self._owns_pool, self._key, self._local)
        try:
            self.set_env(env)
            self.set_policy(policy)
        except BaseException:
            self.close()  # the error may hold this object for long
            raise

    @property
    def num_workers(self) -> int:
        return self._pool.num_workers

    @property
    def pool(self) -> SamplerPool:
        return self._pool

    @property
    def env_spec(self) -> EnvSpec:
        """Spaces and time limit of the environment."""
        if self._env_spec is None:
            self._env_spec = self._env_source.spec
        return self._env_spec

    def set_env(self, env: Any) -> None:
        """Use another environment from now on.

        Raises:
            NotPicklableError: It cannot be sent to the workers.
        """
        source = EnvSource.of(env)
        kind = source.kind()
        if self._device is not None:
            check_env_on_device(source)
        unit_kind = kind if self._device is None else "device"
        if self._pool.is_serial:
            self._local.close()
        else:
            self._send_env(env, source)
        # All of it, or nothing if it cannot be sent; in one statement, since Ctrl-C may come between two.
        known = env, source, source, None, kind, unit_kind, False
        self.env, self._env_source, self._local.env, self._env_spec, self._kind, self._unit_kind, self._looked = known

    def set_policy(self, policy: Any) -> None:
        """Use another policy from now on (changed parameters need no call: ``run`` sends them)."""
        checked = policy if isinstance(policy, Policy) else as_policy(policy, self.env_spec)
        if self._device is not None:
            check_policy_on_device(checked)
        if checked is not self.policy:
            warn_of_actions(checked)
        self._sent_policy = self._sent_parameters = None
        self.policy = self._local.policy = checked

    def run(
        self,
        plans: Sequence[RolloutPlan],
        parameters: np.ndarray | None = None,
        *,
        fields: tuple[str, ...] | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> Rollouts:
        """Run plans; rollouts in the order of the plans (dropped ones are left out; ``dropped`` lists them).

        Args:
            plans: The plans to run. Those without a seed get fresh entropy, recorded in ``rollout_info["plan"]``.
            parameters: Flat policy parameters ``(P,)`` for plans that bring none; ``None`` means the policy's present
                ones.
            fields: Names of the columns that are wanted (e.g. ``("rewards",)``): nothing else is recorded, which
                takes a fraction of the time and memory in batched simulators. ``None``: all, and infos.
            progress: Called as ``progress(rollouts, steps)`` with what is new whenever a unit of work is done.

        Raises:
            RolloutError: An environment or the policy raised; ``error.completed`` holds the rollouts that had ended.
            WorkerLost: Workers died repeatedly.
            ShapeError: ``parameters``, or those of a plan, are not of the policy's shape; nothing was run.
        """
        units, pieces, results = self._results(plans, parameters, None, progress, fields=fields)
        rollouts = together(units, results, pieces)
        if not self._looked and fields is None and len(rollouts):
            self._looked = True
            if not (rollouts[0].rollout_info or {}).get("domain_param"):  # under others, bounds need not hold
                warn_of_observations(self.env_spec.observation_space, rollouts[0].observations)
        return rollouts

    def run_reduced(
        self,
        plans: Sequence[RolloutPlan] | Iterator[RolloutPlan],
        reduce: Reduce | Reduction,
        parameters: np.ndarray | None = None,
        *,
        progress: Callable[[int, int], None] | None = None,
    ) -> np.ndarray:
        """Run plans, and keep only the result of ``reduce`` for each rollout, computed in the process where it ran.

        Args:
            plans, parameters, progress: See ``run``. Of a generator 65,536 plans are made, run and forgotten at a time.
            reduce: From columns (a dict: ``observations``, ``actions``, ``rewards``, ...) and bounds ``(n + 1,)`` of n
                rollouts to an array ``(n, ...)``; picklable. It must treat rollouts one by one, since it is called with
                as many as happen to be together: ``check_reduce`` tests this. ``observations`` (and ``states``) have
                one row more for each rollout: those of rollout ``i`` begin at ``bounds[i] + i``. A ``Reduction`` also
                names the columns that are read, and makes a row of each group of consecutive plans.

        Returns:
            Shape ``(N, ...)`` for N plans (or groups); rows of dropped rollouts hold NaN (integers then become floats).

        Raises:
            Exception: Any error while plans run or are made has ``error.reduced (n, ...)``, the rows of all
                units of work that were done before, and ``error.kept (n,)``, the places of their plans, in order.
            NotPicklableError: ``reduce`` cannot be sent to the workers.
            ShapeError, ValueError: See ``Reduction.rows_of``.
        """
        reduction = Reduction.of(reduce)
        if isinstance(plans, Iterator):
            most = _MADE_AT_ONCE // reduction.group * reduction.group or reduction.group
            parts = iter(lambda: list(itertools.islice(plans, most)), [])
        else:
            parts = iter([plans])
        if not self._pool.is_serial:
            encode_command(reduction.function, (), {}, "reduce", _HERE)  # else its plans would be blamed
        rows = ReducedRows(reduction.group)
        try:
            for part in parts:
                units, _, _ = self._results(part, parameters, reduction, progress, rows)
                rows.count += sum(len(unit.plans) for unit in units) // reduction.group
            return rows.joined()
        except BaseException as error:
            rows.attach_to(error)
            raise

    def _results(
        self,
        plans: Sequence[RolloutPlan],
        parameters: np.ndarray | None,
        reduce: Reduction | None,
        progress: Callable[[int, int], None] | None,
        rows: ReducedRows | None = None,
        fields: tuple[str, ...] | None = None,
    ) -> tuple[list[Unit], list[np.ndarray], list[UnitResult]]:
        """Units, the positions of their plans, and their results."""
        if not self._finalizer.alive:
            raise RuntimeError("this RolloutEngine has been closed; create a new one")
        if progress is not None and not callable(progress):
            raise TypeError(f"progress must be a function of (rollouts, steps) or None, got {described(progress)}")
        table = resolve_plans(plans, self.policy)
        shared = checked_parameters(self.policy, parameters, table)
        fields = checked_fields(fields) if reduce is None else reduce.fields
        extras = self._kept.extras and (fields is None or not _EXTRAS.isdisjoint(fields))
        kept = replace(self._kept, extras=extras, fields=fields)
        pieces = self._pieces(table, reduce, fields)
        units = [
            self._unit(number, table if len(piece) == len(table) else table.take(piece), reduce, kept)
            for number, piece in enumerate(pieces)
        ]

        def done(result: UnitResult) -> None:
            if rows is not None and result.groups is not None:
                rows.add(pieces[result.number], result.groups, result.reduced)
            if progress is not None:
                progress(len(result.kept), result.num_steps)

        run_units = self._run_here if self._pool.is_serial else self._run_in_pool
        results = run_units(units, shared, done)
        self.dropped.extend(dropped_in_order(results, pieces))
        return units, pieces, results

    def run_groups(self, request: SampleRequest) -> list[Rollouts]:
        """The rollouts of each variation of ``request``.

        With ``min_steps``, each variation keeps the shortest prefix that has enough steps, so that short rollouts are
        not preferred and the result does not depend on the number of workers. Rollouts that are dropped are replaced
        with ``min_steps``, but not with ``num_rollouts``: a group then has fewer, or none (see ``dropped``).

        Raises:
            ShapeError: ``parameters`` have another shape.
            TypeError, ValueError: ``only`` holds other things than positions of variations.
            RolloutError, WorkerLost: As in ``run``; ``error.completed`` holds all rollouts so far.
        """
        count, num_rollouts = len(request.updates), request.num_rollouts
        shared, own = shared_or_own(self.policy, request.parameters, count)
        plan_of = request.plan_of(own)

        def run(numbers: Iterable[int]) -> Rollouts:
            return self.run([plan_of(n) for n in numbers], shared, progress=request.progress)

        wanted = request.chosen()
        if num_rollouts is None:
            groups = self._run_until(run, request, wanted)
        else:
            groups = _groups(run(sorted(j * count + m for m in wanted for j in range(num_rollouts))), count)
        return groups if request.only is None else [groups[m] for m in wanted]

    def open(self, plan_of: Callable[[int], RolloutPlan] | None, num_slots: int) -> Collection:
        """Rollouts that continue over calls: ``num_slots`` of them at a time, in slots that stay where they are.

        Args:
            plan_of: From a number to the plan of that number (picklable where there are workers; it must not change).
                Slot ``e`` of E runs the plans ``e``, ``e + E``, ... one after the other. Plans need a seed. ``None``:
                rollouts are started by ``Collection.start``, nothing is recorded (see ``last_step``), and an error or
                a lost worker ends them; actions have to be given.
            num_slots: E.

        Raises:
            RuntimeError: The engine has been closed, or its pool stopped.
            TypeError: ``plan_of`` is not a function.
            ValueError: Plan 0 has no seed, or brings parameters (give them to ``Collection.advance``).
        """
        if not self._finalizer.alive:
            raise RuntimeError("this RolloutEngine has been closed; create a new one")
        if self._pool.is_stopped:
            raise RuntimeError("the SamplerPool of this engine has been stopped; create a new one")
        if self._device is not None:
            raise ValueError(f"device must be None to open a collection, got {str(self._device)!r}; use another engine")
        by_hand = plan_of is None
        if not (by_hand or callable(plan_of)):
            raise TypeError(f"plan_of must be a function from a number to a RolloutPlan, got {described(plan_of)}")
        first = RolloutPlan() if plan_of is None else plan_by_number(plan_of, 0)
        check_whole("num_slots", num_slots)
        name = f"{next(_numbers)}"
        kept = replace(self._kept, steps=not by_hand)
        pool, key = self._pool, self._key
        source, policy, build = self._env_source, self.policy, acting_build(self.policy)
        shape = policy.acting_parameters().shape
        here = GlobalNamespace()
        vars(here)["_unit_runners"] = {key: self._local}

        def advance(works: list[ShardWork], parameters: np.ndarray | None) -> list[ShardResult]:
            if not self._finalizer.alive:
                raise RuntimeError("the RolloutEngine of this collection has been closed; create a new one")
            same_env, same_policy = self._env_source is source, self.policy is policy
            if not same_env or (not same_policy and acting_build(self.policy) != build):
                changed = "policy" if same_env else "env"
                raise RuntimeError(
                    f"{changed} of the engine has changed since this collection was opened; open another one"
                )
            if parameters is None:
                shared = self.policy.acting_parameters()
            else:
                shared = array_of("parameters", parameters, "an array of numbers (P,)")
                if shared.shape != shape:
                    raise ShapeError(f"parameters must have shape {shape}, got {shared.shape}")
            if pool.is_serial:
                self._local.parameters = shared
                return [advance_shard(here, key, work) for work in works]
            self._send_policy(shared)
            return pool.run_jobs([self._shard_job(number, work) for number, work in enumerate(works)])

        def close() -> None:
            if pool.is_serial:
                forget_shards(here, key, name)
            else:
                pool.run_later(forget_shards, key, name)

        def made_for() -> dict[str, str]:
            seed = str(list(first.seed or ()))
            return {"environment": spaces_of(self.env_spec), "policy": build, "seed of plan 0": seed}

        size = -(-num_slots // pool.num_workers) if by_hand else Collection.shard_size(self._kind, num_slots)
        hooks: dict[str, Any] = {"resumable": not by_hand, "made_for": made_for, "spec": lambda: self.env_spec}
        return Collection(advance, plan_of, num_slots, size, name, kept, close, **hooks)

    def _shard_job(self, number: int, work: ShardWork) -> Job:
        what = f"{work.steps} steps of shard {work.key[1]} of a collection"
        blob = encode_command(advance_shard, (self._key, work), {}, "the plans of a collection", _HERE)
        return Job(number, blob, what, worker=work.key[1] % self._pool.num_workers, phase="start")

    def close(self) -> None:
        """Free environments; stops the pool if the engine made it."""
        self._finalizer()

    def __enter__(self) -> RolloutEngine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # An error while closing an environment must not hide the error of the block.
        with contextlib.nullcontext() if error is None else contextlib.suppress(Exception):
            self.close()

    # -- helpers ---------------------------------------------------------------------------------------------------

    def _run_until(
        self, run: Callable[[Iterable[int]], Rollouts], request: SampleRequest, wanted: Sequence[int]
    ) -> list[Rollouts]:
        """Shortest prefixes of variations with at least ``min_steps`` steps each; run ``n`` is of ``n % count``."""
        count, need, limit = len(request.updates), request.min_steps or 1, request.max_steps
        done, kept = Rollouts(), [Rollouts()] * count
        started, more = [0] * count, [0] * count
        for m in wanted:
            more[m] = 1 if limit is None else int(-(-need // limit))
        while any(more):
            numbers = [j * count + m for m in range(count) for j in range(started[m], started[m] + more[m])]
            try:
                rollouts = run(sorted(numbers))
            except (RolloutError, WorkerLost) as error:
                error.completed = [*done, *error.completed]
                raise
            done = done + rollouts
            kept = [old + new for old, new in zip(kept, _groups(rollouts, count), strict=True)]
            started = [old + new for old, new in zip(started, more, strict=True)]
            for m in wanted:
                if not len(kept[m]) and started[m] >= _MOST_DROPPED:
                    last = [entry for entry in self.dropped if entry.plan.index % count == m][-1]
                    raise all_dropped(f"all {started[m]} rollouts of variation {m}", "Leave the variation out", last)
            for m in wanted:
                more[m] = still_missing(kept[m].lengths.tolist(), started[m], None, need)
        return [paths[: enough(paths.lengths.tolist(), None, need)] for paths in kept]

    def _pieces(self, plans: PlanTable, reduce: Reduction | None, fields: tuple[str, ...] | None) -> list[np.ndarray]:
        """Positions of the plans of each unit; plans with their own parameters are in other units than those
        without.

        A call with stacked parameters differs in the last bit from one with shared parameters, so a unit is of one
        kind, as each of its plans is when it runs alone.
        """
        own, shared = np.flatnonzero(plans.set_of >= 0), np.flatnonzero(plans.set_of < 0)
        longest = int(plans.max_steps.max(initial=1))
        if longest == NO_LIMIT:
            longest = self.env_spec.max_episode_length or 1
        size = unit_size(len(plans), self._kind_of_unit(fields), self._pool.num_workers, longest)
        if reduce is not None:
            size = reduce.whole_groups(size, len(plans))
        return [piece for part in (own, shared) if len(part) for piece in cut(part, size)]

    def _unit(self, number: int, plans: PlanTable, reduce: Reduction | None, kept: Kept) -> Unit:
        num_slots = slots_of_unit(len(plans), self._kind_of_unit(kept.fields), self.config.slots_per_unit)
        return Unit(number, plans, num_slots, kept, reduce, may_narrow=self.config.slots_per_unit is None)

    def _kind_of_unit(self, fields: tuple[str, ...] | None) -> str:
        if self._unit_kind != "batched" or fields is None:
            return self._unit_kind
        return "slim" if set(fields) <= {"rewards"} else "lean"

    def _run_here(
        self, units: Sequence[Unit], parameters: np.ndarray, done: Callable[[UnitResult], None]
    ) -> list[UnitResult]:
        self._local.parameters = parameters
        results: list[UnitResult] = []
        for unit in units:
            try:
                results.append(self._local.run(unit))
            except RolloutError as error:
                error.completed = completed(units, results, error)
                raise
            done(results[-1])
        return results

    def _run_in_pool(
        self, units: Sequence[Unit], parameters: np.ndarray, done: Callable[[UnitResult], None]
    ) -> list[UnitResult]:
        self._send_policy(parameters)
        jobs = [self._job(number, unit) for number, unit in enumerate(units)]
        try:
            return self._pool.run_jobs(jobs, lambda job, result: done(result))
        except (RolloutError, WorkerLost) as error:
            error.completed = completed(units, error.completed, error)
            raise

    def _job(self, number: int, unit: Unit) -> Job:
        first, last = unit.plans[0], unit.plans[-1]
        what = f"rollouts {first.index} to {last.index} (seeds {first.seed} to {last.seed})"
        if first is last:
            what = f"rollout {first.index} (seed {first.seed})"
        sent = f"a plan of {what} (e.g. its env_update)"
        blob = encode_command(run_unit_in_worker, (self._key, unit), {}, sent, _HERE)
        return Job(number, blob, what, phase="start", plans=unit.plans)

    # What has been sent is noted when all workers have it: after an error, or Ctrl-C amid it, it is sent again.

    def _send_env(self, env: Any, source: EnvSource) -> None:
        self._sent_env = None
        self._pool.keep(f"{self._key}/env", set_env, self._key, source, what=f"env {env!r}", hint=_HERE)
        self._sent_env = source

    def _send_policy(self, parameters: np.ndarray) -> None:
        if self._sent_env is not self._env_source:
            self._send_env(self.env, self._env_source)
        # A policy whose parameters are not all in the flat vector (a foreign object) is sent whenever it has changed,
        # and one with buffers (statistics of a normalization) whenever these have.
        buffers = buffers_of(self.policy)
        if self._sent_policy is None or not parameters.size or buffers != self._sent_buffers:
            blob = cloudpickle.dumps(self.policy) if self._sent_policy is not None else None
            if blob is None or blob != self._sent_policy:
                self._sent_policy = None
                what = f"policy {type(self.policy).__name__}"
                try:
                    self._pool.keep(f"{self._key}/policy", set_policy, self._key, self.policy, what=what, hint=_HERE)
                except NotPicklableError:
                    check_picklable(self.policy)
                    raise
                self._sent_policy, self._sent_buffers = cloudpickle.dumps(self.policy), buffers
        if self._sent_parameters is None or not np.array_equal(self._sent_parameters, parameters):
            self._sent_parameters = None
            self._pool.keep(f"{self._key}/parameters", set_parameters, self._key, parameters)
            self._sent_parameters = parameters.copy()


def _groups(rollouts: Rollouts, count: int) -> list[Rollouts]:
    """The rollouts of each of ``count`` variations; the plan with index ``n`` is of ``n % count``."""
    if count == 1:
        return [rollouts]
    group = rollouts.indices % max(count, 1)
    order = np.argsort(group, kind="stable")
    return [rollouts.take(numbers) for numbers in np.split(order, np.searchsorted(group[order], range(1, count)))][
        :count
    ]


def _release(pool: SamplerPool, owns_pool: bool, key: str, local: UnitRunner) -> None:
    try:
        local.close()
    finally:
        if owns_pool:
            pool.stop()
        else:
            for part in ("env", "policy", "parameters"):
                pool.forget(f"{key}/{part}")
            if not pool.is_serial:
                pool.run_later(forget, key)
