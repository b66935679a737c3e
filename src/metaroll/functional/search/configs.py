"""The settings of searches."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal

from metaroll.config import Bounds, Config, Count, Number, Positive, Share, UnusedWhere, Was, Weight, Whole

__all__ = [
    "ARSConfig",
    "AtLeastTwo",
    "CEMConfig",
    "CMAESConfig",
    "HillClimbConfig",
    "Starts",
]

AtLeastTwo = Annotated[int, Bounds(2)]
"""A whole number of at least 2."""


@dataclass(frozen=True, kw_only=True)
class ARSConfig(Config):
    """Settings of augmented random search."""

    num_directions: Annotated[Whole, "Number of directions N, half of the candidates."] = 8
    num_best: Annotated[Whole | None, "How many directions move the mean, b; null means all."] = None
    learning_rate: Annotated[Positive, Was("step_size"), "Size of the step, alpha."] = 0.02
    sigma: Annotated[Positive, Was("noise"), "Standard deviation of the candidates, nu."] = 0.03

    def check(self) -> None:
        super().check()
        if self.num_best is not None and self.num_best > self.num_directions:
            raise self.wrong("num_best", f"lie between 1 and the {self.num_directions} directions")


@dataclass(frozen=True, kw_only=True)
class CEMConfig(Config):
    """Settings of the cross-entropy method."""

    population: Annotated[Whole, Was("n_samples"), "Number of candidates of an epoch."]
    init_sigma: Annotated[Positive, Was("init_std"), "Standard deviation of the candidates at first."] = 1.0
    best_frac: Annotated[
        Share, "Share of the candidates that the distribution is fitted to; their number is rounded down."
    ] = 0.05
    extra_std: Annotated[Weight, "Standard deviation of further noise, which fades."] = 1.0
    extra_decay_time: Annotated[Weight, UnusedWhere("extra_std", 0.0), "Epochs that this takes."] = 100.0
    covariance: Annotated[
        Literal["diagonal", "full"],
        "Fit a deviation for each parameter (diagonal), or how they vary together (full).",
    ] = "diagonal"
    mirrored: Annotated[bool, "Draw candidates in pairs on both sides of the mean."] = False
    elitism: Annotated[bool, "Try the best candidate so far again in each epoch."] = False

    def check(self) -> None:
        super().check()
        if self.num_best < 1:
            hint = f"take {1.0 / self.population:.3g} or more, or more of them"
            raise self.wrong("best_frac", f"leave at least one of {self.shown('population')} candidates", hint)

    @property
    def num_best(self) -> int:
        """Candidates that the distribution is fitted to, without what rounding in floating point takes away."""
        return math.floor(self.population * self.best_frac + 1e-9)


@dataclass(frozen=True, kw_only=True)
class CMAESConfig(Config):
    """Settings of CMA-ES, and of its restarts."""

    population: Annotated[
        AtLeastTwo | None,
        Was("n_samples"),
        "Number of candidates of an epoch; null means 4 + int(3 ln P) for P parameters.",
    ]
    init_sigma: Annotated[Positive, Was("sigma0"), "Standard deviation of the candidates at first."] = 1.0
    separable: Annotated[bool | None, "Learn the diagonal of the covariance only; null means above 500 parameters."] = (
        None
    )
    active: Annotated[
        bool, "Learn from the worse half of the candidates, too (not with bounds, but of a diagonal)."
    ] = True
    mirrored: Annotated[bool, "Draw candidates in pairs on both sides of the mean."] = False
    elitism: Annotated[bool, "Try the best candidate so far again in each epoch."] = False
    lower: Annotated[Number | None, "Lower bound of every parameter; null means none."] = None
    upper: Annotated[Number | None, "Upper bound of every parameter; null means none."] = None
    restarts: Annotated[
        Literal["none", "ipop", "bipop"],
        "Begin again where a search has ended: not (none), each time with twice as many candidates (ipop), or with "
        "many and with few in turns (bipop).",
    ] = "none"
    max_restarts: Annotated[
        Whole, UnusedWhere("restarts", "none"), "How many restarts (with more candidates) are made."
    ] = 9
    reevaluated: Annotated[
        Count, "How many candidates are tried twice, to measure how much chance is in their ranks."
    ] = 0
    max_repetitions: Annotated[
        float,
        Bounds(1.0),
        UnusedWhere("reevaluated", 0),
        "How many times as many rollouts a candidate may get where chance decides.",
    ] = 1.0
    target: Annotated[Number | None, "Return that ends the training; null means none."] = None


@dataclass(frozen=True, kw_only=True)
class HillClimbConfig(Config):
    """Settings of hill climbing."""

    noise: Annotated[
        Literal["normal", "sphere"],
        "How sets are drawn: normal (independent noise on each parameter) or sphere (all at one distance from the "
        "mean, in any direction).",
    ] = "normal"
    population: Annotated[
        Whole | None,
        Was("pop_size"),
        "Number of candidates of an epoch beside the mean; null means 4 + int(3 ln P) for P parameters.",
    ] = None
    init_sigma: Annotated[
        Positive, Was("spread"), "Standard deviation of the noise, or radius of the sphere, at first."
    ] = 0.5
    min_sigma: Annotated[Positive, Was("spread_min"), "Lower bound of it; beyond, a radius begins anew."] = 0.01
    max_sigma: Annotated[Positive, Was("spread_max"), "Upper bound of it; beyond, a radius begins anew."] = 2.0
    sigma_factor: Annotated[
        float,
        Bounds(1.0),
        Was("spread_factor"),
        "After a success the standard deviation is divided by its square, otherwise multiplied by it.",
    ] = 1.05
    stop_std: Annotated[
        Positive | None,
        "End the training when the returns of the last stop_window means have a standard deviation below this; null "
        "never does.",
    ] = None
    stop_window: Annotated[
        int, Bounds(2), UnusedWhere("stop_std", None), "Number of newest means that stop_std is about."
    ] = 20

    def check(self) -> None:
        super().check()
        if self.min_sigma > self.max_sigma:
            raise self.wrong("min_sigma", f"be at most {self.shown('max_sigma')}")
        if not self.min_sigma <= self.init_sigma <= self.max_sigma:
            raise self.wrong("init_sigma", f"lie between {self.shown('min_sigma')} and {self.shown('max_sigma')}")


@dataclass(frozen=True, kw_only=True)
class Starts(Config):
    """How many starts of a search there are, and when the worse ones are given up."""

    starts: Annotated[
        Whole,
        "Number of starts, all of which are tried in every epoch until the worse ones are given up. The first one "
        "begins at the policy as it is.",
    ] = 1
    round_length: Annotated[
        Whole,
        UnusedWhere("starts", 1),
        "Epochs of the first round. The fewer starts are left, the longer a round is, so that all rounds take the same "
        "number of candidates.",
    ] = 20
    reduction: Annotated[
        AtLeastTwo,
        UnusedWhere("starts", 1),
        "One start of so many continues after each round, until one is left.",
    ] = 2
    start_std: Annotated[
        Positive | None,
        UnusedWhere("starts", 1),
        "Standard deviation of the other starts around the first one; null means that of its first candidates (or, "
        "where all parameters have bounds, anywhere between them).",
    ] = None

    @property
    def rounds(self) -> tuple[tuple[int, int], ...]:
        """Number of starts, and of epochs, of each round in which there is more than one start."""
        left, found = self.starts, []
        while left > 1:
            found.append((left, max(1, round(self.round_length * self.starts / left))))
            left = self.left_of(left)
        return tuple(found)

    def left_of(self, count: int) -> int:
        """How many of ``count`` starts go on."""
        return math.ceil(count / self.reduction)
