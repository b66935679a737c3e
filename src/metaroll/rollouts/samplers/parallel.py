"""Samples rollouts of one policy in one environment on several workers (specs/sampling.md 11)."""

from __future__ import annotations

import contextlib
import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any

import numpy as np
from tqdm import tqdm

from metaroll.data.step_sequence import StepSequence
from metaroll.errors import InvalidValueError
from metaroll.rollouts.engine.engine import RolloutEngine, check_limit
from metaroll.rollouts.engine.extras import module_mode
from metaroll.rollouts.failures import DroppedRollout, describe_plan
from metaroll.rollouts.samplers.sampler import SamplerBase
from metaroll.rollouts.samplers.sampler_options import LAST_SEED, SeedOption, check_env_fits, chosen_seed, make_pool
from metaroll.rollouts.workers.pool import PoolTimeouts, SamplerPool
from metaroll.seeding import fresh_seed
from metaroll.tasks.domain_params import DomainParamUpdate
from metaroll.types import EnvUpdate, RolloutPlan

__all__ = ["ParallelRolloutSampler"]

_MOST_DROPPED = 32
"""After so many rollouts without a single valid one, more are not tried."""

_Variation = tuple[np.ndarray | None, EnvUpdate | None]


class ParallelRolloutSampler(SamplerBase):
    """Samples rollouts on several workers; what comes out does not depend on their number.

    Rollout ``i`` of call ``k`` of ``sample`` (both from 0) is the one of ``rollout(env, policy, seed=seed, sub_seed=k,
    sub_sub_seed=i)``; where a number of steps is asked for, ``i`` counts from 1.

    Args:
        env: As for ``RolloutEngine``; an instance is copied, and never stepped itself.
        policy: As for ``RolloutEngine``; may explore.
        num_workers: Number of workers; one works in this process.
        min_rollouts: Least number of rollouts of a call.
        min_steps: Least number of steps of a call.
        show_progress_bar: Show a bar (tqdm) on the standard output.
        seed: Seed of all randomness; ``None`` draws fresh entropy for each call, which the rollouts record. Default:
            the seed that was given to ``metaroll.set_seed`` last.
        transport, address: As for ``SamplerPool``.
        timeouts: When a silent worker is given up.
        on_invalid: ``"raise"``, or ``"drop"`` rollouts with NaN or Inf, in whose place others are sampled.
        slots_per_unit: See ``RolloutEngine``.
        pool: A pool to share, of ``num_workers`` workers, which ``close`` does not stop.
        max_steps: Truncate rollouts after so many steps; ``None`` means the environment's own limit.

    Workers end with ``close()``, at the end of a ``with`` block, or with the sampler. A pickled sampler starts workers
    of its own where it is unpickled, and goes on with the next call.

    Attributes:
        env: The environment.
        policy: The policy.
        seed: The seed.
        max_steps: The limit.
    """

    def __init__(
        self,
        env: Any,
        policy: Any,
        num_workers: int,
        *,
        min_rollouts: int | None = None,
        min_steps: int | None = None,
        show_progress_bar: bool = True,
        seed: SeedOption = LAST_SEED,
        transport: str = "auto",
        address: str | None = None,
        timeouts: PoolTimeouts | None = None,
        on_invalid: str = "raise",
        slots_per_unit: int | None = None,
        pool: SamplerPool | None = None,
        max_steps: int | None = None,
    ) -> None:
        super().__init__(min_rollouts=min_rollouts, min_steps=min_steps)
        self.seed = chosen_seed(seed)
        self.show_progress_bar = bool(show_progress_bar)
        self._options: dict[str, Any] = {
            "transport": transport,
            "address": address,
            "timeouts": timeouts,
            "on_invalid": on_invalid,
            "slots_per_unit": slots_per_unit,
            "max_steps": max_steps,
        }
        if max_steps is not None:
            check_limit(max_steps)
        self.max_steps = max_steps
        self._closed = False
        if pool is None:
            own = pool = make_pool(num_workers, transport, timeouts, address)
        elif timeouts is not None:
            raise ValueError("timeouts belong to the pool; give them to SamplerPool, or leave pool out")
        elif pool.num_workers != num_workers:
            raise ValueError(f"num_workers must be that of the pool ({pool.num_workers}), got {num_workers}")
        else:
            own = None
        self._pool = own
        self.num_workers = pool.num_workers
        self._count = -1
        self._mode = False
        try:
            self._engine = RolloutEngine(
                env, policy, pool=pool, on_invalid=on_invalid, slots_per_unit=slots_per_unit, record_extras=True
            )
            _ = self._engine.env_spec  # what makes no environment is refused here, not by workers later
        except BaseException:
            if own is not None:
                own.stop()
            raise
        self.env, self.policy = env, policy

    def reinit(self, env: Any = None, policy: Any = None) -> None:
        """Take over changes that were made to the environment or the policy, or replace one of them.

        Seed and counter stay. Not needed when only the policy's parameters have changed.

        Args:
            env: New environment; ``None`` keeps the old one. With spaces of another kind or shape it needs a policy.
            policy: New policy; ``None`` keeps the old one.

        Raises:
            ShapeError: The policy that is kept is one for other spaces. After an error the sampler goes on with what it
                had.
        """
        self._check_open()
        if env is not None:
            check_env_fits(env, self._engine.env_spec, keeps_policy=policy is None)
        env = self.env if env is None else env
        policy = self.policy if policy is None else policy
        self._engine.set_env(env)
        try:
            self._engine.set_policy(policy)
        except BaseException:
            self._engine.set_env(self.env)
            raise
        self.env, self.policy = env, policy

    def sample(
        self,
        init_states: Iterable[np.ndarray] | None = None,
        domain_params: Iterable[Mapping[str, Any]] | None = None,
        eval: bool = False,
    ) -> list[StepSequence]:
        """Sample rollouts.

        Given states and domain parameters are repeated until the bounds are met: all of both in pairs, the states
        changing more slowly. With ``min_rollouts`` alone each pair gets equally many rollouts, which may be more than
        the bound. With ``min_steps`` the result is the shortest sequence of first rollouts that meets the bounds.

        Args:
            init_states: Initial states ``(S,)``; ``None`` leaves them to the environment.
            domain_params: Dicts of domain parameters; ``None`` leaves the environment as it is.
            eval: False if the rollouts are for training. True means the mean action, and torch modules in evaluation
                mode.

        Raises:
            RolloutError: Environment or policy raised; ``error.completed`` holds the rollouts that were done.
            WorkerLost: Workers died repeatedly.
        """
        if not isinstance(eval, bool):
            raise TypeError(f"eval must be a bool, got {eval!r}")
        self._check_open()
        variations = _variations(init_states, domain_params)
        self._count += 1
        base = RolloutPlan(eval=eval, max_steps=self.max_steps)
        seed = fresh_seed() if self.seed is None else self.seed

        def plan(number: int) -> RolloutPlan:
            place = number if self.min_steps is None else number + 1
            init_state, update = variations[number % len(variations)]
            triple = (seed, self._count, place)
            return base.with_(index=place, seed=triple, init_state=init_state, env_update=update)

        with module_mode(self.policy, eval):
            if eval != self._mode:  # workers hold a torch module as it was when it was sent
                self._engine.set_policy(self.policy)
                self._mode = eval
            rollouts = self._collect(plan, len(variations))
        for rollout in rollouts:
            rollout.rollout_info["env_spec"] = self._engine.env_spec
        return rollouts

    def close(self) -> None:
        """End the workers; the sampler cannot be used afterwards."""
        self._closed = True
        self._engine.close()
        if self._pool is not None:
            self._pool.stop()

    def __enter__(self) -> ParallelRolloutSampler:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.nullcontext() if error is None else contextlib.suppress(Exception):
            self.close()

    def __reduce__(self) -> Any:
        arguments = {
            "num_workers": self.num_workers,
            "min_rollouts": self.min_rollouts,
            "min_steps": self.min_steps,
            "show_progress_bar": self.show_progress_bar,
            "seed": self.seed,
            **self._options,
        }
        return _rebuilt, (self.env, self.policy, arguments, self._count)

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("this ParallelRolloutSampler has been closed; create a new one")

    # -- collecting ------------------------------------------------------------------------------------------------

    def _collect(self, plan: Callable[[int], RolloutPlan], num_variations: int) -> list[StepSequence]:
        """Run plans 0, 1, 2, ... until there is enough."""
        rollouts: list[StepSequence] = []
        dropped = len(self._engine.dropped)
        started, more = 0, self._first_round(num_variations)
        with self._progress() as progress:
            while more:
                plans = [plan(number) for number in range(started, started + more)]
                try:
                    rollouts.extend(self._engine.run(plans, progress=progress))
                except Exception as error:
                    error.completed = [*rollouts, *getattr(error, "completed", [])]  # type: ignore[attr-defined]
                    raise
                started += more
                if not rollouts and started >= _MOST_DROPPED:
                    raise _all_dropped(self._engine.dropped[dropped:], started)
                more = self._missing(rollouts, started)
        return rollouts if self.min_steps is None else self._prefix(rollouts)

    def _first_round(self, num_variations: int) -> int:
        least = self.min_rollouts or 1
        if self.min_steps is None:
            return num_variations * -(-least // num_variations)
        limit = self.max_steps or self._engine.env_spec.max_episode_length
        # What is sampled too much is dropped, so how many to begin with may depend on the workers.
        return max(least, self.num_workers if limit is None else -(-self.min_steps // limit))

    def _missing(self, rollouts: Sequence[StepSequence], started: int) -> int:
        """How many more rollouts to run."""
        lacking = (self.min_rollouts or 0) - len(rollouts)
        steps = sum(len(rollout) for rollout in rollouts)
        if self.min_steps is None or steps >= self.min_steps:
            return max(0, lacking)
        mean = steps / len(rollouts) if rollouts else 1.0
        return max(1, lacking, min(2 * started, int(np.ceil((self.min_steps - steps) / mean))))

    def _prefix(self, rollouts: Sequence[StepSequence]) -> list[StepSequence]:
        kept: list[StepSequence] = []
        steps = 0
        for rollout in rollouts:
            if steps >= (self.min_steps or 0) and len(kept) >= (self.min_rollouts or 0):
                break
            kept.append(rollout)
            steps += len(rollout)
        return kept

    @contextlib.contextmanager
    def _progress(self) -> Iterator[Callable[[int, int], None] | None]:
        if not self.show_progress_bar:
            yield None
            return
        by_steps = self.min_steps is not None
        total = self.min_steps if by_steps else self.min_rollouts
        with tqdm(total=total, unit="steps" if by_steps else "rollouts", leave=False, file=sys.stdout) as bar:
            yield lambda rollouts, steps: _advance(bar, steps if by_steps else rollouts)


def _advance(bar: tqdm[Any], count: int) -> None:
    if bar.total is not None and bar.n + count > bar.total:
        bar.total = bar.n + count  # more than the least number
    bar.update(count)


def _rebuilt(env: Any, policy: Any, arguments: dict[str, Any], count: int) -> ParallelRolloutSampler:
    """A sampler from its pickle."""
    sampler = ParallelRolloutSampler(env, policy, **arguments)
    sampler._count = count
    return sampler


def _variations(
    init_states: Iterable[np.ndarray] | None, domain_params: Iterable[Mapping[str, Any]] | None
) -> list[_Variation]:
    """Pairs of initial state and update; the states change more slowly."""
    for name, given, kind in (("init_states", init_states, "states"), ("domain_params", domain_params, "dicts")):
        if isinstance(given, Mapping | str):
            raise TypeError(f"{name} must be a list of {kind}, got a {type(given).__name__}; put it into a list")
        if given is not None and not isinstance(given, Iterable):
            raise TypeError(f"{name} must be a list of {kind}, got a {type(given).__name__}")
    states: list[np.ndarray | None] = [None] if init_states is None else [np.array(state) for state in init_states]
    if any(state is not None and state.ndim == 0 for state in states):
        raise ValueError("init_states must be a list of states (S,), got numbers; put a single state into a list")
    params = [None] if domain_params is None else [DomainParamUpdate(entry) for entry in domain_params]
    for name, entries in (("init_states", states), ("domain_params", params)):
        if not entries:
            raise ValueError(f"{name} must hold at least one entry; pass None to leave them out")
    return list(itertools.product(states, params))


def _all_dropped(dropped: Sequence[DroppedRollout], started: int) -> InvalidValueError:
    last = dropped[-1]
    return InvalidValueError(
        f"all {started} rollouts were dropped, the last since its {last.what} was not finite at step {last.step}: "
        f"{describe_plan(last.plan)}. Repair the environment or the policy",
        last.plan,
        last.step,
    )
