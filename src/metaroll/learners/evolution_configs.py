"""The settings of learners that search: how candidates are tried, and how long."""

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
    """How the candidates of a search are tried, and what of it acts."""

    rollouts_per_candidate: Annotated[
        Whole | None,
        "Number of rollouts of each candidate (in each task); null means as many as LocalRunner.train is told.",
    ] = None
    common_random_numbers: Annotated[
        bool,
        "Try all candidates in the same initial states, so that their returns differ by less chance. It needs "
        "rollouts_per_candidate, and is not for tasks.",
    ] = True
    deterministic: Annotated[bool, "Act without noise."] = True
    tasks_per_epoch: Annotated[
        Whole,
        "How many tasks each candidate is tried in, of training tasks or random domains; the same ones for all "
        "candidates of an epoch.",
    ] = 1
    epsilon: Annotated[
        _Worst,
        "Share of the worst returns of a candidate whose mean is its fitness (CVaR), in (0, 1]; 1 means all.",
    ] = 1.0
    normalize_observations: Annotated[
        bool, "Normalize observations by the mean and deviation of all before this epoch."
    ] = False
    mean_epochs: Annotated[
        Whole,
        "Epochs over which the mean of the search is averaged; what acts is the average, and the search continues as "
        "without. It helps where returns differ by chance; 1 means the last mean.",
    ] = 1
    evaluate_every = 0


@dataclass(frozen=True, kw_only=True)
class SearchConfig(RolloutLimit):
    """Length and weight of rollouts of learners that search."""

    discount: Annotated[
        Share, "Discount factor of discounted_return in the log; the search maximizes undiscounted returns."
    ] = 1.0


@dataclass(frozen=True, kw_only=True)
class DiscountedSearchConfig(SearchConfig):
    """The same of CEM and CMA-ES, as they are documented."""

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

    num_domains: Annotated[
        Whole, "Number of domains that each candidate acts in, of an environment that is randomized."
    ] = 1
    num_init_states_per_domain: Annotated[Whole, "Number of initial states in each domain."] = 4
    epsilon: Annotated[
        _Worst,
        "Share of the worst returns of a candidate whose mean is compared (CVaR), in (0, 1]; 1 means all of them.",
    ] = 1.0
