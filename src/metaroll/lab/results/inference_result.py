"""The result of an inference: the posterior of a simulator's parameters, and its predictions."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from metaroll.configs.inference import InferenceOptions
from metaroll.inference.posterior import Posterior

__all__ = ["ONE_MORE_ROUND", "PAGE", "Inference", "Traces"]

PAGE = "report.html"
"""The page about an inference, in its folder."""
ONE_MORE_ROUND = "the posterior fails tests that more simulations can fix: one more round"
"""The message when a round beyond ``InferenceOptions.rounds`` begins."""
_IDENTIFIED = 0.5
"""Share of the prior's deviation below which a parameter counts as identified by the data."""


class Traces(NamedTuple):
    """A recorded rollout and simulations of its actions, restarted from its states at every segment.

    Attributes:
        labels: Labels of the S states (or observations).
        dt: Time step in s; ``None`` if not known.
        recorded: ``(T, S)``.
        simulated: One simulation for each of n draws of the posterior, ``(n, T, S)``; NaN where it failed.
        nominal: Simulated with the nominal parameters, ``(T, S)``.
        held_out: Whether it was held out from inference.
    """

    labels: tuple[str, ...]
    dt: float | None
    recorded: np.ndarray
    simulated: np.ndarray
    nominal: np.ndarray
    held_out: bool


@dataclass(frozen=True)
class Inference:
    """The result of ``infer``.

    Attributes:
        env: Name of the simulator.
        posterior: Posterior over its parameters.
        nominal: Name -> nominal value.
        traces: Predictions, the held-out rollouts first.
        failed: Number of parameter sets whose simulation failed, including those of earlier runs.
        options: Its settings.
        folder: Folder with all files.
        checks: Verdicts of the checks, JSON types.
        noise: Sensor noise: ``text``, ``how``, and by label ``std`` (what simulations have) and ``found`` (in the
            rollouts), JSON types; ``found_in_rollouts`` where these differ.
        recordings: Number and length of the rollouts, in words.
        doubts: What looks wrong with them, as reported by ``metaroll import-log``.
    """

    env: str
    posterior: Posterior
    nominal: Mapping[str, float]
    traces: Sequence[Traces]
    failed: int
    options: InferenceOptions
    folder: Path
    checks: Mapping[str, Any] = field(default_factory=dict)
    noise: Mapping[str, Any] = field(default_factory=dict)
    recordings: str = ""
    doubts: Sequence[str] = ()

    @property
    def trusted(self) -> bool:
        """Whether the posterior is fit to train on according to the checks, if there are any."""
        return not self.checks or bool(self.checks["passed"] or self.checks["too_wide"])

    def rows(self) -> list[dict[str, Any]]:
        """For each parameter: prior, nominal value, posterior, and whether the data identifies it."""
        prior, draws = self.posterior.prior, self.posterior.draws
        low, high = np.quantile(draws, [0.05, 0.95], axis=0)
        rows = []
        for i, name in enumerate(self.posterior.names):
            share = float(draws[:, i].std() / prior.std[i])
            rows.append(
                {
                    "name": name,
                    "prior_low": float(prior.low[i]),
                    "prior_high": float(prior.high[i]),
                    "nominal": float(self.nominal[name]),
                    "mean": float(draws[:, i].mean()),
                    "std": float(draws[:, i].std()),
                    "low": float(low[i]),
                    "high": float(high[i]),
                    "share_of_prior_std": share,
                    "identified": share < _IDENTIFIED,
                }
            )
        return rows

    def errors(self) -> dict[str, float]:
        """Root mean squared error of predictions, in standard deviations of the recording: posterior mean and nominal.

        ``noise`` is the error from sensor noise alone, if it was found: no prediction can do better.
        """
        traces = [trace for trace in self.traces if trace.held_out] or list(self.traces)
        rmse: dict[str, list[float]] = {"posterior": [], "nominal": [], "noise": []}
        for trace in traces:
            scale = trace.recorded.std(axis=0) + 1e-12
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)  # rows that no draw could simulate
                mean = np.nanmean(trace.simulated, axis=0)
                for name, guess in (("posterior", mean), ("nominal", trace.nominal)):
                    rmse[name].append(float(np.sqrt(np.nanmean(((guess - trace.recorded) / scale) ** 2))))
                noisy = np.array([std or 0.0 for std in self.noise.get("found", {}).values()])
                rmse["noise"].append(
                    float(np.sqrt(np.mean(np.square(noisy / scale)))) if noisy.shape == scale.shape else 0.0
                )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # rollouts that no draw could simulate
            return {name: float(np.nanmean(values)) for name, values in rmse.items()}

    def error_text(self) -> str:
        """``errors`` in words."""
        errors = self.errors()
        if not math.isfinite(errors["posterior"]):
            return (
                "predictions: none, since all simulations with draws from the posterior failed; the prior may cover "
                "parameters at which the simulator fails, or the posterior is wrong"
            )
        text = f"predictions are off by {errors['posterior']:.3g} standard deviations of a column's entries"
        text += f" with the posterior, {errors['nominal']:.3g} with the nominal parameters"
        if not math.isfinite(errors["nominal"]):
            text = text.rpartition(",")[0] + "; the simulator fails with the nominal parameters"
        return text + (f"; sensor noise alone accounts for {errors['noise']:.3g}" if errors["noise"] else "")

    def to_dict(self) -> dict[str, Any]:
        """All numbers, JSON types."""
        return {
            "env": self.env,
            "options": asdict(self.options),
            "parameters": self.rows(),
            "prediction_errors": self.errors(),
            "failed_simulations": self.failed,
            "checks": dict(self.checks),
            "noise": dict(self.noise),
            "recordings": self.recordings,
            "doubts": list(self.doubts),
        }
