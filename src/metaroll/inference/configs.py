"""Settings of posterior estimation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal

from metaroll.config import Bounds, Config, Count, Positive, Whole, options_of
from metaroll.errors import PosteriorError, option_name, option_text

__all__ = ["FEWEST_SIMULATIONS", "EstimatorConfig", "check_num_simulations"]

FEWEST_SIMULATIONS = 20
"""Minimum number of simulations in a round to learn anything from it."""


def check_num_simulations(num_simulations: int, rounds: int) -> None:
    """``ValueError`` if a round has too few of the ``num_simulations`` of all rounds to train on."""
    fewest = FEWEST_SIMULATIONS * max(1, 2 * (rounds - 1))
    if num_simulations < fewest:
        each = f" (half of them in the last, and at least {FEWEST_SIMULATIONS} in each)"
        rest = f" in {rounds} rounds{each}" if rounds > 1 else ""
        possible = num_simulations // (2 * FEWEST_SIMULATIONS) + 1
        fewer = f", or {option_text('rounds', possible)}" if num_simulations >= FEWEST_SIMULATIONS else ""
        name = option_name("num_simulations")
        raise ValueError(f"{name} must be at least {fewest}{rest}, got {num_simulations}: increase it{fewer}")


@dataclass(frozen=True, kw_only=True)
class EstimatorConfig(Config):
    """Settings of posterior estimation."""

    complete = True

    method: Annotated[
        Literal["npe", "nle", "fmpe"],
        "Learns the posterior (npe, or fmpe by flow matching), or the likelihood (nle), sampled by slice sampling.",
    ] = "npe"
    model: Annotated[
        Literal["nsf", "maf", "autoregressive_nsf", "mdn"],
        "Density: neural spline flow (with coupling layers: nsf; or autoregressive), masked autoregressive flow (maf) "
        "or mixture of Gaussians (mdn). No effect on fmpe.",
    ] = "nsf"
    hidden_features: Annotated[Whole, "Width of its networks."] = 50
    num_transforms: Annotated[Whole, "Layers of a flow."] = 5
    num_bins: Annotated[Whole, "Bins of a spline."] = 10
    num_components: Annotated[Whole, "Gaussians of a mixture."] = 5
    num_random_features: Annotated[
        Count,
        "Frequencies of quasi-random Fourier features of the observation (BayesSim's quasi-RFF) that the networks see "
        "instead of the features; 0 means the features.",
    ] = 0
    regressions: Annotated[
        bool,
        "With npe, networks see linear regressions of the parameters on the features, one for each parameter, instead "
        "of the features, if validation shows that the first network learns more from these. It often does within a "
        "narrow region, where networks memorize simulations with many features (Fearnhead and Prangle 2012 use such "
        "summaries for ABC). No effect with the proposal posterior in several rounds.",
    ] = False
    ensemble: Annotated[Whole, "Estimators that are trained and averaged."] = 1
    batch_size: Annotated[Whole, "Simulations in a gradient step."] = 100
    learning_rate: Annotated[Positive, "Learning rate (Adam)."] = 5e-4
    validation_fraction: Annotated[
        float, Bounds(0.0, 1.0, above_low=True, below_high=True), "Share of the simulations that decides when to stop."
    ] = 0.1
    stop_after_epochs: Annotated[Whole, "Epochs without progress on those."] = 20
    max_epochs: Annotated[Whole, "Most epochs of a round."] = 500

    def check(self) -> None:
        super().check()
        if self.regressions and (self.method != "npe" or self.num_random_features):
            expected = f"be False with {self.shown('method')} and {self.shown('num_random_features')}"
            raise self.wrong(
                "regressions", expected, f"it needs {option_text('method', 'npe')} without random features"
            )

    def to_plain(self) -> dict[str, Any]:
        """All settings as JSON types."""
        return asdict(self)

    @classmethod
    def from_plain(cls, settings: Mapping[str, Any]) -> EstimatorConfig:
        """The settings from ``to_plain``.

        Raises:
            PosteriorError: An entry is unknown.
        """
        known = {option.name for option in options_of(cls)}
        if not isinstance(settings, Mapping) or not set(settings) <= known:
            raise PosteriorError(f"the settings of an estimator must be some of {sorted(known)}, got {settings!r}")
        return cls(**settings)
