"""Samples rollouts of one policy in one environment on several workers."""

from __future__ import annotations

import contextlib
import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from tqdm import tqdm

from metaroll.checks import check_flag
from metaroll.config import config_of
from metaroll.data.step_sequence import StepSequence
from metaroll.rollouts.collecting import collect_at_least
from metaroll.rollouts.configs import SamplerConfig, check_num_workers
from metaroll.rollouts.failures import all_dropped
from metaroll.rollouts.samplers.domains import given_params, given_states
from metaroll.rollouts.samplers.sampler import LAST_SEED, EngineSampler, SamplerBase, SeedOption, chosen_seed
from metaroll.rollouts.workers.pool import SamplerPool
from metaroll.seeding import fresh_seed
from metaroll.types import RolloutPlan

__all__ = ["ParallelRolloutSampler"]


class ParallelRolloutSampler(EngineSampler, SamplerBase):
    """Samples rollouts on several workers; the results do not depend on their number.

    Rollout ``i`` of call ``k`` of ``sample`` (both from 0) is the one of ``rollout(env, policy, seed=seed, sub_seed=k,
    sub_sub_seed=i)``; where a number of steps is requested, ``i`` counts from 1.

    Args:
        env: As for ``RolloutEngine``; an instance is copied, and never stepped itself.
        policy: As for ``RolloutEngine``; may explore.
        num_workers: Number of workers, in place of that of ``config``; one works in this process.
        min_rollouts: Minimum number of rollouts of a call.
        min_steps: Minimum number of steps of a call.
        show_progress_bar: Show a bar (tqdm) on the standard output.
        seed: Seed of all randomness; ``None`` draws fresh entropy for each call, which the rollouts record. Default:
            the seed that was given to ``metaroll.set_seed`` last.
        config: How rollouts are run; ``None`` means the defaults. In place of dropped rollouts others are sampled.
        pool: A pool to share, of ``num_workers`` workers, which ``close`` does not stop.
        options: Settings by name, in place of those of ``config``, e.g. ``max_steps=200``.

    Workers end with ``close()``, at the end of a ``with`` block, or with the sampler. A pickled sampler starts its own
    workers where it is unpickled, and continues with the next call.

    Attributes:
        env: The environment.
        policy: The policy.
        seed: The seed.
        config: The settings.
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
        config: SamplerConfig | None = None,
        pool: SamplerPool | None = None,
        **options: Any,
    ) -> None:
        check_num_workers(num_workers, config)
        config = config_of(SamplerConfig, config, {"num_workers": num_workers, **options}, type(self))
        SamplerBase.__init__(self, min_rollouts=min_rollouts, min_steps=min_steps)
        self.seed = chosen_seed(seed)
        self.show_progress_bar = bool(show_progress_bar)
        EngineSampler.__init__(self, env, policy, config, without_domains=False, pool=pool)

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
            domain_params: Dicts of domain parameters; ``None`` leaves the nominal environment.
            eval: False if the rollouts are for training. True means the mean action, and torch modules in evaluation
                mode.

        Raises:
            RolloutError: Environment or policy raised; ``error.completed`` holds the rollouts that were done.
            WorkerLost: Workers died repeatedly.
        """
        eval = check_flag("eval", eval)
        self._check_open()
        states = [None] if init_states is None else given_states("init_states", init_states)
        params = [None] if domain_params is None else given_params("domain_params", domain_params)
        variations = list(itertools.product(states, params))
        self._count += 1
        base = RolloutPlan(eval=eval, max_steps=self.max_steps)
        seed = fresh_seed() if self.seed is None else self.seed

        def plan(number: int) -> RolloutPlan:
            place = number if self.min_steps is None else number + 1
            init_state, update = variations[number % len(variations)]
            triple = (seed, self._count, place)
            return base.with_(index=place, seed=triple, init_state=init_state, env_update=update)

        with self._acting(eval):
            return self._collect(plan, len(variations))

    def _own_options(self) -> dict[str, Any]:
        return {
            "min_rollouts": self.min_rollouts,
            "min_steps": self.min_steps,
            "show_progress_bar": self.show_progress_bar,
            "seed": self.seed,
        }

    # -- collecting ------------------------------------------------------------------------------------------------

    def _collect(self, plan: Callable[[int], RolloutPlan], num_variations: int) -> list[StepSequence]:
        """Run plans 0, 1, 2, ... until there is enough."""
        with self._progress() as progress:
            return collect_at_least(
                lambda number, count: self._run([plan(number + i) for i in range(count)], progress=progress),
                len,
                self._first_round(num_variations),
                min_count=self.min_rollouts,
                min_size=self.min_steps,
                nothing=lambda started: all_dropped(
                    f"all {started} rollouts", "Change the policy", self._engine.dropped[-1]
                ),
            )

    def _first_round(self, num_variations: int) -> int:
        least = self.min_rollouts or 1
        if self.min_steps is None:
            return num_variations * -(-least // num_variations)
        limit = self.max_steps or self._engine.env_spec.max_episode_length
        # Surplus rollouts are dropped, so the initial number may depend on the workers.
        return max(least, self.num_workers if limit is None else -(-self.min_steps // limit))

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
