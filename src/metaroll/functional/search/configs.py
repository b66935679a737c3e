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
    num_best: Annotated[Whole | None, "Number of directions that move the mean, b; null means all."] = None
    learning_rate: Annotated[Positive, Was("step_size"), "Step size, alpha."] = 0.02
    sigma: Annotated[Positive, Was("noise"), "Standard deviation of the candidates, nu."] = 0.03

    def check(self) -> None:
        super().check()
        if self.num_best is not None and self.num_best > self.num_directions:
            raise self.wrong("num_best", f"lie between 1 and the {self.num_directions} directions")


@dataclass(frozen=True, kw_only=True)
class CEMConfig(Config):
    """Settings of the cross-entropy method."""

    population: Annotated[Whole, Was("n_samples"), "Number of candidates per epoch."]
    init_sigma: Annotated[Positive, Was("init_std"), "Initial standard deviation of the candidates."] = 1.0
    best_frac: Annotated[
        Share, "Share of the candidates that the distribution is fitted to; their number is rounded down."
    ] = 0.05
    extra_std: Annotated[Weight, "Initial standard deviation of extra noise, which decays."] = 1.0
    extra_decay_time: Annotated[Weight, UnusedWhere("extra_std", 0.0), "Epochs until the extra noise is 0."] = 100.0
    covariance: Annotated[
        Literal["diagonal", "full"],
        "Fit one deviation per parameter (diagonal), or the full covariance matrix (full).",
    ] = "diagonal"
    mirrored: Annotated[bool, "Draw candidates in pairs on both sides of the mean."] = False
    elitism: Annotated[bool, "Evaluate the best candidate so far again in each epoch."] = False

    def check(self) -> None:
        super().check()
        if self.num_best < 1:
            hint = f"use {1.0 / self.population:.3g} or more, or more candidates"
            raise self.wrong("best_frac", f"leave at least one of {self.shown('population')} candidates", hint)

    @property
    def num_best(self) -> int:
        """Number of candidates that the distribution is fitted to, robust to rounding in floating point."""
        return math.floor(self.population * self.best_frac + 1e-9)


@dataclass(frozen=True, kw_only=True)
class CMAESConfig(Config):
    """Settings of CMA-ES, and of its restarts."""

    population: Annotated[
        AtLeastTwo | None,
        Was("n_samples"),
        "Number of candidates per epoch; null means 4 + int(3 ln P) for P parameters.",
    ]
    init_sigma: Annotated[Positive, Was("sigma0"), "Initial standard deviation of the candidates."] = 1.0
    separable: Annotated[bool | None, "Learn the diagonal of the covariance only; null means above 500 parameters."] = (
        None
    )
    active: Annotated[
        bool, "Also learn from the worse half of the candidates (with bounds, only for a diagonal covariance)."
    ] = True
    mirrored: Annotated[bool, "Draw candidates in pairs on both sides of the mean."] = False
    elitism: Annotated[bool, "Evaluate the best candidate so far again in each epoch."] = False
    lower: Annotated[Number | None, "Lower bound of every parameter; null means none."] = None
    upper: Annotated[Number | None, "Upper bound of every parameter; null means none."] = None
    restarts: Annotated[
        Literal["none", "ipop", "bipop"],
        "Restart a search that has ended: never (none), with twice as many candidates each time (ipop), or with "
        "alternating large and small populations (bipop).",
    ] = "none"
    max_restarts: Annotated[
        Whole, UnusedWhere("restarts", "none"), "Maximum number of restarts (with large populations)."
    ] = 9
    reevaluated: Annotated[Count, "Number of candidates to evaluate twice, to measure the noise of their ranks."] = 0
    max_repetitions: Annotated[
        float,
        Bounds(1.0),
        UnusedWhere("reevaluated", 0),
        "Maximum factor of the rollouts per candidate where noise dominates.",
    ] = 1.0
    target: Annotated[Number | None, "Return that ends the training; null means none."] = None


@dataclass(frozen=True, kw_only=True)
class HillClimbConfig(Config):
    """Settings of hill climbing."""

    noise: Annotated[
        Literal["normal", "sphere"],
        "Distribution of the candidates: normal (independent noise on each parameter) or sphere (at a fixed distance "
        "from the mean, in a random direction).",
    ] = "normal"
    population: Annotated[
        Whole | None,
        Was("pop_size"),
        "Number of candidates per epoch, besides the mean; null means 4 + int(3 ln P) for P parameters.",
    ] = None
    init_sigma: Annotated[
        Positive, Was("spread"), "Initial standard deviation of the noise, or radius of the sphere."
    ] = 0.5
    min_sigma: Annotated[Positive, Was("spread_min"), "Lower bound of it; below, a radius is reset."] = 0.01
    max_sigma: Annotated[Positive, Was("spread_max"), "Upper bound of it; above, a radius is reset."] = 2.0
    sigma_factor: Annotated[
        float,
        Bounds(1.0),
        Was("spread_factor"),
        "After a success the standard deviation is divided by the square of this, otherwise multiplied by this.",
    ] = 1.05
    stop_std: Annotated[
        Positive | None,
        "Stop training when the standard deviation of the returns of the last stop_window means is below this; null "
        "never stops.",
    ] = None
    stop_window: Annotated[int, Bounds(2), UnusedWhere("stop_std", None), "Number of latest means for stop_std."] = 20

    def check(self) -> None:
        super().check()
        if self.min_sigma > self.max_sigma:
            raise self.wrong("min_sigma", f"be at most {self.shown('max_sigma')}")
        if not self.min_sigma <= self.init_sigma <= self.max_sigma:
            raise self.wrong("init_sigma", f"lie between {self.shown('min_sigma')} and {self.shown('max_sigma')}")


@dataclass(frozen=True, kw_only=True)
class Starts(Config):
    """Number of starts of a search, and the rounds in which the worse ones are dropped."""

    starts: Annotated[
        Whole,
        "Number of starts, evaluated in parallel in every epoch until the worse ones are dropped. The first one starts "
        "from the initial policy.",
    ] = 1
    round_length: Annotated[
        Whole,
        UnusedWhere("starts", 1),
        "Epochs of the first round. Later rounds with fewer starts are longer, so that all have the same number of "
        "candidates.",
    ] = 20
    reduction: Annotated[
        AtLeastTwo,
        UnusedWhere("starts", 1),
        "Factor by which the number of starts is reduced after each round, until one is left.",
    ] = 2
    start_std: Annotated[
        Positive | None,
        UnusedWhere("starts", 1),
        "Standard deviation of the other starts around the first one; null means that of its first candidates (or, if "
        "all parameters have bounds, uniform between them).",
    ] = None

    @property
    def rounds(self) -> tuple[tuple[int, int], ...]:
        """Number of starts and of epochs of each round with more than one start."""
        left, rounds = self.starts, []
        while left > 1:
            rounds.append((left, max(1, round(self.round_length * self.starts / left))))
            left = self.left_of(left)
        return tuple(rounds)

    def left_of(self, count: int) -> int:
        """Number of starts that continue, of ``count``."""
        return math.ceil(count / self.reduction)
