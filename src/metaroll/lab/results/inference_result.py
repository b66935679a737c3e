"""What an inference has found: the posterior of a simulator's parameters, and what it predicts."""

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
ONE_MORE_ROUND = "the posterior fails tests that more simulations mend: one more round"
"""What is said when a round beyond ``InferenceOptions.rounds`` begins."""
_IDENTIFIED = 0.5
"""Share of the prior's deviation below which data counts as telling something of a parameter."""


class Traces(NamedTuple):
    """A recorded rollout, and what simulations of its actions say, anew from its states with every segment.

    Attributes:
        labels: Of the S states (or observations).
        dt: Time step in s; ``None`` where it is not known.
        recorded: ``(T, S)``.
        simulated: One simulation for each of n draws of the posterior, ``(n, T, S)``; NaN where it failed.
        nominal: With the parameters that the simulator had before, ``(T, S)``.
        held_out: Whether inference did not see it.
    """

    labels: tuple[str, ...]
    dt: float | None
    recorded: np.ndarray
    simulated: np.ndarray
    nominal: np.ndarray
    held_out: bool


@dataclass(frozen=True)
class Inference:
    """What ``infer`` has found.

    Attributes:
        env: Name of the simulator.
        posterior: Over its parameters.
        nominal: Name -> value before.
        traces: Predictions, the held-out rollouts first.
        failed: Sets of parameters whose simulation gave no result, also where it was made by an earlier run.
        options: How it was made.
        folder: Where all of it is.
        checks: Verdicts of the checks, JSON types.
        noise: Of the sensors: ``text``, ``how``, and by label ``std`` (what simulations have) and ``found`` (in the
            rollouts), JSON types; ``found_in_rollouts`` where these differ.
        recordings: How many rollouts there were, and how long they are, in words.
        doubts: What looks wrong with them, as ``metaroll import-log`` says it.
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
        """Whether the checks, where there are any, leave the posterior as something to train on."""
        return not self.checks or bool(self.checks["passed"] or self.checks["too_wide"])

    def rows(self) -> list[dict[str, Any]]:
        """For each parameter: prior, nominal value, posterior, and whether the data says something of it."""
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
        """Root mean squared error of predictions, in deviations of what was recorded: posterior mean and nominal.

        ``noise`` is what noise of sensors alone makes of it: where it was found, none predicts better.
        """
        told = [trace for trace in self.traces if trace.held_out] or list(self.traces)
        found: dict[str, list[float]] = {"posterior": [], "nominal": [], "noise": []}
        for trace in told:
            scale = trace.recorded.std(axis=0) + 1e-12
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)  # of rows that no draw could simulate
                mean = np.nanmean(trace.simulated, axis=0)
                for name, guess in (("posterior", mean), ("nominal", trace.nominal)):
                    found[name].append(float(np.sqrt(np.nanmean(((guess - trace.recorded) / scale) ** 2))))
                noisy = np.array([std or 0.0 for std in self.noise.get("found", {}).values()])
                found["noise"].append(
                    float(np.sqrt(np.mean(np.square(noisy / scale)))) if noisy.shape == scale.shape else 0.0
                )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # of rollouts that none could simulate
            return {name: float(np.nanmean(values)) for name, values in found.items()}

    def error_text(self) -> str:
        """``errors`` in words."""
        told = self.errors()
        if not math.isfinite(told["posterior"]):
            return (
                "predictions: none, since no simulation with draws of the posterior has worked; the prior may reach "
                "where the simulator fails, or the posterior is wrong"
            )
        text = f"predictions are off by {told['posterior']:.3g} of what a column's entries differ by (their deviation)"
        text += f" with the posterior, {told['nominal']:.3g} with the nominal parameters"
        if not math.isfinite(told["nominal"]):
            text = text.rpartition(",")[0] + "; with the nominal parameters the simulator fails"
        return text + (f"; noise of sensors alone makes {told['noise']:.3g}" if told["noise"] else "")

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
