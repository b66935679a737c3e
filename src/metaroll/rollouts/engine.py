"""THE engine: plans in, StepSequences out, with the same bits for any number of workers, and after any crash."""

from __future__ import annotations

import itertools
import uuid
import weakref
from collections.abc import Sequence
from types import TracebackType
from typing import Any

import cloudpickle
import gymnasium
import numpy as np

from metaroll.data.step_sequence import StepSequence
from metaroll.envs.slot_factory import env_kind, env_source, make_env
from metaroll.errors import RolloutError, ShapeError
from metaroll.policies.adapters import as_policy
from metaroll.rollouts.failures import DroppedRollout
from metaroll.rollouts.messages import encode_command
from metaroll.rollouts.sampler_pool import Job, SamplerPool
from metaroll.rollouts.unit_work import (
    Unit,
    UnitResult,
    UnitRunner,
    run_unit_in_worker,
    set_env,
    set_parameters,
    set_policy,
)
from metaroll.rollouts.units import cut, slots_of_unit, unit_size
from metaroll.seeding import fresh_seed
from metaroll.types import Context, EnvSpec, EnvUpdate, Policy, RolloutPlan, Slots

__all__ = ["RolloutEngine", "resolve_plans"]

_numbers = itertools.count()


class RolloutEngine:
    """Runs rollouts of one policy in one environment (and its variations).

    Args:
        env: Gymnasium id, name of a family of metaroll, constructor, or instance (copied, never stepped itself).
        policy: A ``Policy``, or anything that ``policies.adapters.as_policy`` understands.
        num_workers: Number of workers, if ``pool`` is not given.
        transport: See ``SamplerPool``.
        slots_per_unit: Environments stepped together in a worker; the default suits the kind of environment.
        on_invalid: ``"raise"`` or ``"drop"`` rollouts with NaN or Inf; what was dropped is in ``dropped``.
        pool: A pool to share; it is not stopped by ``close``.
        record_infos: Keep infos of environment and policy in the rollouts.
    """

    def __init__(
        self,
        env: Any,
        policy: Any,
        *,
        num_workers: int = 1,
        transport: str = "auto",
        slots_per_unit: int | None = None,
        on_invalid: str = "raise",
        pool: SamplerPool | None = None,
        record_infos: bool = True,
    ) -> None:
        if on_invalid not in ("raise", "drop"):
            raise ValueError(f"on_invalid must be 'raise' or 'drop', got {on_invalid!r}")
        if slots_per_unit is not None and slots_per_unit < 1:
            raise ValueError(f"slots_per_unit must be at least 1, got {slots_per_unit}")
        self.dropped: list[DroppedRollout] = []
        self._owns_pool = pool is None
        self._pool = SamplerPool(num_workers, transport=transport) if pool is None else pool
        self._key = f"{next(_numbers)}-{uuid.uuid4().hex[:8]}"
        self._slots_per_unit = slots_per_unit
        self._on_invalid = on_invalid
        self._record_infos = record_infos
        self._local = UnitRunner()
        self._sent_policy: bytes | None = None
        self._sent_parameters: np.ndarray | None = None
        self.env: Any = None
        self.policy: Any = None
        self._kind = "list"
        self._finalizer = weakref.finalize(self, _release, self._pool, self._owns_pool, self._key, self._local)
        self.set_env(env)
        self.set_policy(policy)

    @property
    def num_workers(self) -> int:
        return self._pool.num_workers

    @property
    def pool(self) -> SamplerPool:
        return self._pool

    def set_env(self, env: Any) -> None:
        """Use another environment from now on.

        Raises:
            NotPicklableError: It cannot be sent to the workers.
        """
        if not isinstance(env, type | gymnasium.Env) and isinstance(env, Slots):
            raise TypeError(
                "env must make environments; step Slots of your own with metaroll.rollouts.slot_loop.SlotLoop"
            )
        source = env_source(env)
        self._kind = env_kind(env)
        self._env_source = source
        if self._pool.is_serial:
            self._local.set_env(source)
        else:
            self._pool.keep(f"{self._key}/env", set_env, self._key, source, what=f"env {env!r}")
        self.env = env

    def set_policy(self, policy: Any) -> None:
        """Use another policy from now on (changed parameters need no call: ``run`` sends them)."""
        self.policy = policy if isinstance(policy, Policy) else as_policy(policy, self._read_spec())
        self._sent_policy = self._sent_parameters = None
        self._local.policy = self.policy

    def run(self, plans: Sequence[RolloutPlan], parameters: np.ndarray | None = None) -> list[StepSequence]:
        """Run plans; rollouts in the order of the plans (dropped ones are left out).

        Args:
            plans: What to run. Plans without a seed get fresh entropy, recorded in ``rollout_info["plan"]``.
            parameters: Flat policy parameters ``(P,)`` for plans that bring none; ``None`` means the policy's present
            ones.

        Raises:
            RolloutError: An environment or the policy raised; ``error.completed`` holds the rollouts of finished units.
            WorkerLost: Workers died repeatedly.
        """
        plans = resolve_plans(plans)
        shared: np.ndarray = self.policy.acting_parameters() if parameters is None else parameters
        if shared.ndim != 1:
            raise ShapeError(
                f"parameters must be flat (P,), got shape {shared.shape}; a set of its own for each plan goes into "
                "RolloutPlan.parameters"
            )
        if any(plan.parameters is not None for plan in plans):
            plans = [p if p.parameters is not None else p.with_(parameters=shared) for p in plans]
        pieces = cut(plans, unit_size(len(plans), self._kind)) if plans else []
        units = [
            Unit(
                piece, slots_of_unit(len(piece), self._kind, self._slots_per_unit), self._on_invalid, self._record_infos
            )
            for piece in pieces
        ]
        results = self._run_here(units, shared) if self._pool.is_serial else self._run_in_pool(units, shared)
        rollouts: list[StepSequence] = []
        for result in results:
            self.dropped.extend(result.dropped)
            rollouts.extend(r for r in result.rollouts if r is not None)
        return rollouts

    def run_groups(
        self,
        updates: Sequence[EnvUpdate | None],
        *,
        seed: int,
        sub_seed: int = 0,
        max_steps: int | None = None,
        min_steps: int | None = None,
        num_rollouts: int | None = None,
        contexts: Sequence[Context | None] | None = None,
        deterministic: bool = False,
        eval: bool = False,
        parameters: np.ndarray | None = None,
    ) -> list[list[StepSequence]]:
        """Whole rollouts for each of M variations: ``num_rollouts``, or the fewest with at least ``min_steps`` steps.

        Rollout ``j`` of variation ``m`` has the seed ``(seed, sub_seed, j * M + m)``. With ``min_steps``, each
        variation keeps
        the shortest prefix that has enough steps, so that short rollouts are not preferred and the result does not
        depend on the number of workers.
        """
        if (min_steps is None) == (num_rollouts is None):
            raise ValueError(f"give either min_steps or num_rollouts, got {min_steps} and {num_rollouts}")
        for name, value in (("min_steps", min_steps), ("num_rollouts", num_rollouts)):
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        if contexts is not None and len(contexts) != len(updates):
            raise ValueError(f"contexts must have one entry per update ({len(updates)}), got {len(contexts)}")
        base = RolloutPlan(max_steps=max_steps, deterministic=deterministic, eval=eval)
        count = len(updates)

        def plan(j: int, m: int) -> RolloutPlan:
            context = None if contexts is None else contexts[m]
            number = j * count + m
            return base.with_(index=number, seed=(seed, sub_seed, number), env_update=updates[m], context=context)

        groups: list[list[StepSequence]] = [[] for _ in updates]
        if num_rollouts is not None:
            plans = [plan(j, m) for j in range(num_rollouts) for m in range(count)]
            for rollout in self.run(plans, parameters):
                groups[rollout.rollout_info["plan"]["index"] % count].append(rollout)
            return groups
        started = [0] * count
        need = min_steps or 1
        while True:
            plans = []
            for m, group in enumerate(groups):
                more = _rollouts_needed(group, started[m], need, max_steps)
                plans.extend(plan(j, m) for j in range(started[m], started[m] + more))
                started[m] += more
            if not plans:
                return [_prefix(group, need) for group in groups]
            plans.sort(key=lambda p: p.index)
            for rollout in self.run(plans, parameters):
                groups[rollout.rollout_info["plan"]["index"] % count].append(rollout)

    def close(self) -> None:
        """Free environments; stops the pool if the engine made it."""
        self._finalizer()

    def __enter__(self) -> RolloutEngine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- helpers ---------------------------------------------------------------------------------------------------

    def _read_spec(self) -> EnvSpec:
        env = make_env(self._env_source)
        try:
            return EnvSpec.from_env(env)
        finally:
            env.close()

    def _run_here(self, units: Sequence[Unit], parameters: np.ndarray) -> list[UnitResult]:
        self._local.parameters = parameters
        results: list[UnitResult] = []
        for unit in units:
            try:
                results.append(self._local.run(unit))
            except RolloutError as error:
                error.completed = _completed(results)  # type: ignore[attr-defined]
                raise
        return results

    def _run_in_pool(self, units: Sequence[Unit], parameters: np.ndarray) -> list[UnitResult]:
        self._send_policy(parameters)
        jobs = [self._job(number, unit) for number, unit in enumerate(units)]
        try:
            return self._pool.run_jobs(jobs)
        except Exception as error:
            done = getattr(error, "completed", None)
            if isinstance(done, dict):
                error.completed = _completed([done[i] for i in sorted(done)])  # type: ignore[attr-defined]
            raise

    def _job(self, number: int, unit: Unit) -> Job:
        first, last = unit.plans[0], unit.plans[-1]
        seeds = f"seeds {first.seed} to {last.seed}"
        what = f"rollouts {first.index} to {last.index} ({seeds})"
        blob = encode_command(run_unit_in_worker, (self._key, unit), {}, f"a plan of {what} (its env_update, say)")
        return Job(number, blob, what)

    def _send_policy(self, parameters: np.ndarray) -> None:
        # A policy whose parameters are not all in the flat vector (a foreign object) is sent whenever it has changed.
        if self._sent_policy is None or not parameters.size:
            blob = cloudpickle.dumps(self.policy) if self._sent_policy is not None else None
            if blob is None or blob != self._sent_policy:
                what = f"policy {type(self.policy).__name__}"
                self._pool.keep(f"{self._key}/policy", set_policy, self._key, self.policy, what=what)
                self._sent_policy = cloudpickle.dumps(self.policy)
        if self._sent_parameters is None or not np.array_equal(self._sent_parameters, parameters):
            self._pool.keep(f"{self._key}/parameters", set_parameters, self._key, parameters)
            self._sent_parameters = parameters.copy()


def resolve_plans(plans: Sequence[RolloutPlan]) -> list[RolloutPlan]:
    """Plans with checked limits and a seed each; those without one share fresh entropy and differ by position."""
    entropy: int | None = None
    resolved = []
    for position, plan in enumerate(plans):
        if plan.max_steps is not None and plan.max_steps < 1:
            raise ValueError(f"max_steps must be at least 1, got {plan.max_steps} in plan {plan.index}")
        if plan.seed is None:
            entropy = fresh_seed() if entropy is None else entropy
            plan = plan.with_(seed=(entropy, 0, position))
        resolved.append(plan)
    return resolved


def _rollouts_needed(group: Sequence[StepSequence], started: int, need: int, max_steps: int | None) -> int:
    have = sum(len(rollout) for rollout in group)
    if have >= need:
        return 0
    if not started:
        return 1 if max_steps is None else -(-need // max_steps)
    # Rollouts end early: go by their mean length so far (a function of the plans alone, like all else here).
    mean = have / len(group) if group else 1.0
    return max(1, min(started * 2, int(np.ceil((need - have) / max(mean, 1.0)))))


def _prefix(group: Sequence[StepSequence], need: int) -> list[StepSequence]:
    kept, steps = [], 0
    for rollout in group:
        if steps >= need:
            break
        kept.append(rollout)
        steps += len(rollout)
    return kept


def _completed(results: Sequence[UnitResult]) -> list[StepSequence]:
    return [rollout for result in results for rollout in result.rollouts if rollout is not None]


def _release(pool: SamplerPool, owns_pool: bool, key: str, local: UnitRunner) -> None:
    local.close()
    if owns_pool:
        pool.stop()
    else:
        for part in ("env", "policy", "parameters"):
            pool.forget(f"{key}/{part}")
