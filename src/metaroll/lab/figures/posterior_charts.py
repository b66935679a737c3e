"""Charts of a posterior over simulator parameters, and of its predictions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np

from metaroll.lab.figures.charts import BLUE, GRAY, ORANGE, Chart, Curve, Field

__all__ = ["marginal_charts", "pair_fields", "policies_chart", "trace_chart"]

_BINS, _PAIR_BINS = 40, 28
_BAND = 0.9


def marginal_charts(
    names: Sequence[str],
    draws: np.ndarray,
    bounds: Mapping[str, tuple[float, float]],
    marks: Mapping[str, Mapping[str, float]],
) -> list[Chart]:
    """A histogram of each parameter, in the whole range of the prior.

    Args:
        names: Names of the parameters.
        draws: ``(n, d)``.
        bounds: Name -> range of the prior.
        marks: Label (such as nominal or true) -> name -> value.
    """
    charts = []
    for i, name in enumerate(names):
        # A narrow posterior has its own bins: a single bin of the prior's range could be wider than all of it.
        first, last = float(draws[:, i].min()), float(draws[:, i].max())
        narrow = 0.0 < last - first < 0.5 * (bounds[name][1] - bounds[name][0])
        span = (first, last) if narrow else bounds[name]
        counts, edges = np.histogram(draws[:, i], bins=_BINS, range=span, density=True)
        low, high = np.quantile(draws[:, i], [(1.0 - _BAND) / 2.0, (1.0 + _BAND) / 2.0])
        flat = 1.0 / (bounds[name][1] - bounds[name][0])
        x = np.concatenate([bounds[name][:1], np.repeat(edges, 2), bounds[name][1:]])
        y = np.concatenate([[0.0, 0.0], np.repeat(counts, 2), [0.0, 0.0]])
        known = {what: values[name] for what, values in marks.items() if name in values}
        charts.append(
            Chart(
                name,
                f"{len(draws):,} draws",
                name,
                "density",
                [
                    Curve("posterior", x, y, color=BLUE),
                    Curve(
                        "flat over the prior's range", np.array(bounds[name]), np.full(2, flat), color=GRAY, kind="thin"
                    ),
                ],
                marks=known,
                span=(f"{100 * _BAND:.0f} % of the draws", float(low), float(high)),
            )
        )
    return charts


def pair_fields(names: Sequence[str], draws: np.ndarray) -> list[Field]:
    """Histogram of each pair of parameters, as shares of the draws ``(n, d)``."""
    fields = []
    for i, j in itertools.combinations(range(len(names)), 2):
        counts, x, y = np.histogram2d(draws[:, i], draws[:, j], bins=_PAIR_BINS)
        nothing = np.full_like(counts, math.nan)
        varying = draws[:, i].std() > 0.0 < draws[:, j].std()  # otherwise all draws are equal to a bound of the prior
        correlation = f", correlation {np.corrcoef(draws[:, i], draws[:, j])[0, 1]:.2f}" if varying else ""
        fields.append(
            Field(
                f"{names[i]} and {names[j]}",
                f"share of {len(draws):,} draws{correlation}",
                "share",
                {names[i]: 0.5 * (x[1:] + x[:-1]), names[j]: 0.5 * (y[1:] + y[:-1])},
                counts / len(draws),
                nothing,
                nothing,
                "",
            )
        )
    return fields


def trace_chart(
    title: str,
    explanation: str,
    time: np.ndarray,
    observed: np.ndarray,
    simulated: np.ndarray,
    others: Mapping[str, np.ndarray],
) -> Chart:
    """A chart of an observation over time, with simulations by draws of the posterior.

    Args:
        title: Label of the observation.
        explanation: How the numbers came about.
        time: In s, ``(T,)``.
        observed: ``(T,)``.
        simulated: One row for each draw, ``(n, T)``; NaN where a simulation had ended.
        others: Further traces ``(T,)``.
    """
    known = np.isfinite(simulated).any(axis=0)
    low, middle, high = (np.full(len(time), math.nan) for _ in range(3))
    if known.any():  # else no simulation with draws of the posterior has worked
        quantiles = np.nanquantile(simulated[:, known], [(1.0 - _BAND) / 2.0, 0.5, (1.0 + _BAND) / 2.0], axis=0)
        low[known], middle[known], high[known] = quantiles
    # Each line is narrower than the one below, so that all are visible where they coincide.
    curves = [Curve("observed", time, observed, color=ORANGE, kind="wide")]
    curves.append(Curve(f"simulated: median, {100 * _BAND:.0f} %", time, middle, low, high, color=BLUE))
    curves += [Curve(name, time, trace, color="#1c2126", kind="thin") for name, trace in others.items()]
    return Chart(title, explanation, "time (s)", title, curves)


def policies_chart(explanation: str, names: Sequence[str], returns: Mapping[str, np.ndarray]) -> Chart:
    """Mean return of each policy, with an interval.

    Args:
        explanation: Where they were measured.
        names: The policies.
        returns: ``mean``, ``low`` and ``high``, ``(len(names),)`` each.
    """
    places = np.arange(1.0, len(names) + 1.0)
    points = Curve("", places, returns["mean"], returns["low"], returns["high"], kind="points")
    order = ", ".join(f"{i} {name}" for i, name in enumerate(names, 1))
    return Chart("Return on the robot", explanation, order, "return", [points], whole=True)
