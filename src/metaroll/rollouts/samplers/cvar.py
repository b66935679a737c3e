"""Samples many rollouts and keeps the worst of them, so that learners improve the bad cases."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from metaroll.checks import check_unit_interval
from metaroll.data.rollouts import Rollouts, listed_rollouts
from metaroll.data.step_sequence import StepSequence
from metaroll.errors import RolloutError, WorkerLost
from metaroll.functional.cvar import check_epsilon, full_set_metrics, least_count, worst_indices
from metaroll.rollouts.collecting import still_missing
from metaroll.rollouts.samplers.sampler import SamplerBase

__all__ = ["CVaRSampler", "select_cvar"]

Log = Callable[[Mapping[str, float]], Any]


def select_cvar(rollouts: Sequence[StepSequence], epsilon: float, gamma: float = 1.0) -> list[StepSequence]:
    """The worst epsilon-fraction of ``rollouts``: their mean return is the conditional value at risk.

    Args:
        rollouts: Single rollouts, at least one. The list stays unchanged.
        epsilon: Share that is kept, in (0, 1]: ``ceil(epsilon * n)`` of n rollouts, at least one.
        gamma: Discount of the returns, in [0, 1].

    Returns:
        The kept rollouts, the worst one first; of rollouts with equal returns those that come first are kept.
    """
    epsilon, gamma = check_epsilon(epsilon), check_unit_interval("gamma", gamma)
    rollouts = listed_rollouts(rollouts)
    if not rollouts:
        raise ValueError("rollouts must hold at least one rollout, got none")
    for position, rollout in enumerate(rollouts):
        if rollout.is_unread:
            continue  # one of those of an engine
        if not rollout.continuous or rollout.rollout_count != 1:
            kind = f"{rollout.rollout_count} rollouts" if rollout.continuous else "a loose batch of steps"
            raise ValueError(f"rollouts must be single rollouts, got {kind} at position {position}; split it first")
    return [rollouts[i] for i in worst_indices(Rollouts.of(rollouts).discounted_returns(gamma), epsilon)]


class CVaRSampler(SamplerBase):
    """Keeps the worst fraction ``epsilon`` of another sampler's rollouts.

    ``min_rollouts`` and ``min_steps`` hold for the kept rollouts: the other sampler samples as many rollouts as that
    takes. The kept rollouts are often short, so where their steps do not suffice, more rollouts are sampled and
    selected from all together, until they do.

    Args:
        wrapped_sampler: The other sampler, whose own bounds are replaced; use it through this one only.
        epsilon: Share that is kept, in (0, 1]; may be set later.
        gamma: Discount of the returns by which rollouts are compared, in [0, 1].
        min_rollouts: Minimum number of kept rollouts.
        min_steps: Minimum number of steps in the kept rollouts together.
        log: Called with the measures of all sampled rollouts after each ``sample`` (e.g. ``runner.log``).

    Attributes:
        full_metrics: Measures of all rollouts of the last ``sample``, kept or not: ``full avg rollout len``, and
            ``full avg return``, ``full median return`` and ``full std return`` of the undiscounted returns.
    """

    def __init__(
        self,
        wrapped_sampler: SamplerBase,
        epsilon: float,
        gamma: float = 1.0,
        *,
        min_rollouts: int | None = None,
        min_steps: int | None = None,
        log: Log | None = None,
    ) -> None:
        if not isinstance(wrapped_sampler, SamplerBase):
            raise TypeError(f"wrapped_sampler must be a sampler (SamplerBase), got {type(wrapped_sampler).__name__}")
        if log is not None and not callable(log):
            raise TypeError(f"log must be callable with a dict of measures, got {log!r}")
        self._wrapped = wrapped_sampler
        self._epsilon = check_epsilon(epsilon)
        self.gamma = check_unit_interval("gamma", gamma)
        self.full_metrics: dict[str, float] = {}
        self._log = log
        super().__init__(min_rollouts=min_rollouts, min_steps=min_steps)

    @property
    def wrapped_sampler(self) -> SamplerBase:
        """The sampler that brings all rollouts."""
        return self._wrapped

    @property
    def epsilon(self) -> float:
        """The share that is kept; setting it changes how many rollouts are sampled, too."""
        return self._epsilon

    @epsilon.setter
    def epsilon(self, epsilon: float) -> None:
        self._epsilon = check_epsilon(epsilon)
        self.set_min_count(self.min_rollouts, self.min_steps)

    def set_min_count(self, min_rollouts: int | None = None, min_steps: int | None = None) -> None:
        """Replace both bounds of the kept amount; ``None`` means no bound.

        Raises:
            ValueError: Both are ``None``, or one is below 1.
        """
        super().set_min_count(min_rollouts, min_steps)
        self._ask(self.min_rollouts, self.min_steps)

    def reinit(self, env: Any = None, policy: Any = None) -> None:
        """Take over changes that were made to the environment or the policy, or replace one of them.

        Args:
            env: New environment; ``None`` keeps the old one.
            policy: New policy; ``None`` keeps the old one.
        """
        self._wrapped.reinit(env=env, policy=policy)

    def sample(self, *args: Any, **kwargs: Any) -> list[StepSequence]:
        """Sample, and keep the worst.

        Args:
            *args: Handed to the wrapped sampler's ``sample``.
            **kwargs: Likewise (``init_states``, ``domain_params`` and ``eval`` of a ``ParallelRolloutSampler``).

        Returns:
            The kept rollouts, the worst one first.
        """
        sample: Callable[..., list[StepSequence]] = self._wrapped.sample
        full = list(sample(*args, **kwargs))
        kept = select_cvar(full, self.epsilon, self.gamma)
        try:
            while missing := self._missing(kept, len(full)):
                self._wrapped.set_min_count(min_rollouts=missing)
                full.extend(sample(*args, **kwargs))
                kept = select_cvar(full, self.epsilon, self.gamma)
        except (RolloutError, WorkerLost) as error:
            error.completed = [*full, *error.completed]
            raise
        finally:
            self._ask(self.min_rollouts, self.min_steps)
        full_set = Rollouts.of(full)
        self.full_metrics = full_set_metrics(full_set.discounted_returns(1.0), full_set.lengths)
        if self._log is not None:
            self._log(dict(self.full_metrics))
        return kept

    def close(self) -> None:
        """Close the wrapped sampler."""
        self._wrapped.close()

    def _ask(self, min_rollouts: int | None, min_steps: int | None) -> None:
        """Bounds of the wrapped sampler for these bounds of the kept amount."""
        rollouts = None if min_rollouts is None else least_count(min_rollouts, self.epsilon)
        steps = None if min_steps is None else least_count(min_steps, self.epsilon)
        self._wrapped.set_min_count(min_rollouts=rollouts, min_steps=steps)

    def _missing(self, kept: Sequence[StepSequence], sampled: int) -> int:
        """How many more rollouts to sample, at most as many as there are."""
        kept_more = still_missing([len(rollout) for rollout in kept], sampled, self.min_rollouts, self.min_steps)
        if not kept_more:  # the wrapped sampler may have brought fewer than it was asked for
            return 0
        return min(max(1, least_count(len(kept) + kept_more, self.epsilon) - sampled), sampled)
