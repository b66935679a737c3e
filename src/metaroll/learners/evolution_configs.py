"""The settings of learners by search: evaluation of candidates, and length of rollouts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from metaroll.config import Bounds, Share, Whole
from metaroll.functional.search.configs import CEMConfig, CMAESConfig, HillClimbConfig
from metaroll.learners.base import Evaluated, RolloutLimit, ScaledActions

__all__ = [
    "CEMLearnerConfig",
    "CMAESLearnerConfig",
    "DiscountedSearchConfig",
    "HillClimbingConfig",
    "SearchConfig",
    "Trials",
]

_Worst = Annotated[float, Bounds(0.0, 1.0, above_low=True)]


@dataclass(frozen=True, kw_only=True)
class Trials(ScaledActions, Evaluated):
    """Evaluation of the candidates of a search, and its recommended parameters."""

    rollouts_per_candidate: Annotated[
        Whole | None,
        "Number of rollouts per candidate (and task); null means the batch size of LocalRunner.train.",
    ] = None
    common_random_numbers: Annotated[
        bool,
        "Evaluate all candidates from the same initial states, which makes comparisons less noisy. It needs "
        "rollouts_per_candidate, and does not apply to tasks.",
    ] = True
    deterministic: Annotated[bool, "Act without noise."] = True
    tasks_per_epoch: Annotated[
        Whole,
        "Number of training tasks or random domains to evaluate each candidate in; the same for all candidates of an "
        "epoch.",
    ] = 1
    epsilon: Annotated[
        _Worst,
        "Fitness is the mean of this share of a candidate's worst returns (CVaR), in (0, 1]; 1 means all.",
    ] = 1.0
    normalize_observations: Annotated[
        bool, "Normalize observations by the mean and deviation of all earlier epochs."
    ] = False
    mean_epochs: Annotated[
        Whole,
        "Epochs over which the mean of the search is averaged for the policy; the search itself is not affected. It "
        "helps where returns are noisy; 1 means the last mean.",
    ] = 1
    evaluate_every = 0


@dataclass(frozen=True, kw_only=True)
class SearchConfig(RolloutLimit):
    """Length and discount of rollouts of learners by search."""

    discount: Annotated[
        Share, "Discount factor of discounted_return in the log; the search maximizes undiscounted returns."
    ] = 1.0


@dataclass(frozen=True, kw_only=True)
class DiscountedSearchConfig(SearchConfig):
    """``SearchConfig`` with the documented defaults of CEM and CMA-ES."""

    discount = 0.99
    max_steps = 500


@dataclass(frozen=True, kw_only=True)
class CEMLearnerConfig(CEMConfig, DiscountedSearchConfig):
    """Settings of ``CEM``."""

    complete = True


@dataclass(frozen=True, kw_only=True)
class CMAESLearnerConfig(CMAESConfig, DiscountedSearchConfig):
    """Settings of ``CMAES``."""

    complete = True


@dataclass(frozen=True, kw_only=True)
class HillClimbingConfig(HillClimbConfig, RolloutLimit, ScaledActions, Evaluated):
    """Settings of ``HillClimbing``."""

    complete = True

    discount: ClassVar[float] = 1.0

    num_domains: Annotated[Whole, "Number of domains per candidate, for an environment with domain randomization."] = 1
    num_init_states_per_domain: Annotated[Whole, "Number of initial states in each domain."] = 4
    epsilon: Annotated[
        _Worst,
        "Score is the mean of this share of a candidate's worst returns (CVaR), in (0, 1]; 1 means all.",
    ] = 1.0
