"""The page about an inference: its parameters, whether to trust it, and its predictions."""

from __future__ import annotations

import html
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from metaroll.data.folders.atomic_files import write_text
from metaroll.functional.series.dtw import dtw_path
from metaroll.lab.figures.charts import number_text
from metaroll.lab.figures.posterior_charts import marginal_charts, pair_fields, trace_chart
from metaroll.lab.report.page_parts import banner, figure, figures, folded, page, pairs, section, table
from metaroll.lab.results.inference_result import Inference, Traces

__all__ = ["inference_sections", "write_inference_page"]

_MOST_STATES = 6
_SLIGHT = ("≈", "good")
_MARKS = {
    "passed": ("✓", "good"),
    "acceptable": _SLIGHT,
    "small": _SLIGHT,
    "failed": ("✗", "bad"),
    "note": ("!", "neither"),
}
"""Outcome of a check (``small``: of an earlier version) -> its mark, which needs no color to be understood, and the
class of its color."""
_MUCH = 0.1
"""Share of the prior's deviation below which the data determines a parameter well."""


def write_inference_page(
    inference: Inference, path: str | Path, truth: Mapping[str, float] | None = None, more: Sequence[str] = ()
) -> Path:
    """Write ``report.html`` of an inference.

    Args:
        inference: The inference.
        path: Page to write.
        truth: Name -> true value, if it is known (of a simulated robot).
        more: Further sections in HTML, shown first, below the verdict of the checks.

    Returns:
        ``path``.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    short = inference.env.rpartition(":")[2]
    names, method = inference.posterior.names, inference.options.method
    lead = f"{len(names)} parameters of {inference.env} after recorded rollouts · {method}"
    body = [*_verdict(inference), *more, *inference_sections(inference, truth)]
    write_text(path, page(f"Posterior over {short}", lead, body))
    return path


def inference_sections(inference: Inference, truth: Mapping[str, float] | None = None) -> list[str]:
    """The sections of the page: checks, parameters, predictions, and how it was made."""
    names, draws, prior = inference.posterior.names, inference.posterior.draws, inference.posterior.prior
    bounds = {
        name: (float(low), float(high)) for name, low, high in zip(prior.names, prior.low, prior.high, strict=True)
    }
    marks: dict[str, Mapping[str, float]] = {"nominal": inference.nominal}
    if truth:
        marks["true"] = truth
    marginals = [figure(chart) for chart in marginal_charts(names, draws, bounds, marks)]
    pairs_drawn = [figure(chart) for chart in pair_fields(names, draws)]
    predicted = [part for trace in inference.traces for part in _predictions(trace)]
    return [
        *_checks(inference),
        section("Parameters", _parameter_table(inference, truth) + figures(marginals)),
        section("Pairs of parameters", figures(pairs_drawn, small=True)),
        section("Predictions", _errors(inference) + "".join(predicted)),
        section("How it was made", _provenance(inference)),
    ]


def _provenance(inference: Inference) -> str:
    """Recordings and doubts about them, sensor noise, and settings."""
    texts = [text for text in (inference.recordings, str(inference.noise.get("text", ""))) if text]
    texts += [f"looks wrong: {text}" for text in inference.doubts]
    lines = "".join(f"<p>{html.escape(text[0].upper() + text[1:])}.</p>" for text in texts)
    return lines + folded("Settings", pairs(inference.to_dict()["options"], "Settings"))


def _verdict(inference: Inference) -> list[str]:
    """A banner that says whether to train on the posterior; empty if it was not checked."""
    if not inference.checks:
        return []
    good = bool(inference.checks["passed"])
    head = str(inference.checks.get("text", "checks passed" if good else "checks failed"))
    return [banner(head, good, "✗")]


def _checks(inference: Inference) -> list[str]:
    """A section with the outcome of each check in a line; empty if there was none."""
    items = "".join(_check(str(line)) for line in inference.checks.get("lines", ()))
    return [section("Checks", f'<ul class="checks">{items}</ul>')] if items else []


def _check(line: str) -> str:
    """A line that begins with the outcome of a check, preceded by the mark of that outcome."""
    mark, kind = next((marked for outcome, marked in _MARKS.items() if line.startswith(outcome)), ("·", "neither"))
    return f'<li><span class="{kind}" aria-hidden="true">{mark}</span>{html.escape(line)}</li>'


def _parameter_table(inference: Inference, truth: Mapping[str, float] | None) -> str:
    head = ["parameter", "prior", "nominal", "mean", "90 % of the draws", "of the prior's deviation", "says the data"]
    head += ["true"] if truth else []
    body = []
    for row in inference.rows():
        cells = [
            row["name"],
            f"{number_text(row['prior_low'])} to {number_text(row['prior_high'])}",
            number_text(row["nominal"]),
            number_text(row["mean"]),
            f"{number_text(row['low'])} to {number_text(row['high'])}",
            f"{100 * row['share_of_prior_std']:.3g} %",
            "much" if row["share_of_prior_std"] < _MUCH else "something" if row["identified"] else "little",
        ]
        cells += [number_text(truth[row["name"]])] if truth else []
        body.append(cells)
    return table(head, body, f"What is known after the data, from {len(inference.posterior.draws):,} draws")


def _errors(inference: Inference) -> str:
    if not np.isfinite(inference.errors()["posterior"]):
        return f"<p>{html.escape(inference.error_text().capitalize())}.</p>"
    errors = inference.errors()
    where = (
        "held-out rollouts"
        if any(trace.held_out for trace in inference.traces)
        else "the rollouts that it was inferred from"
    )
    return (
        f"<p>Error of predictions on {where}, in deviations of what was recorded: {errors['posterior']:.3g} with the "
        f"posterior, {errors['nominal']:.3g} with the nominal parameters.</p>"
    )


def _predictions(trace: Traces) -> list[str]:
    """Traces over time, and the same aligned by dynamic time warping, which shows differences of shape alone."""
    dt = 1.0 if trace.dt is None else trace.dt
    time = dt * np.arange(len(trace.recorded))
    kind = "held-out rollout" if trace.held_out else "rollout used for inference"
    about = f"{kind}; {len(trace.simulated)} draws, each segment simulated from its recorded state"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of rows that no draw could simulate
        middle = np.nanmedian(trace.simulated, axis=0)
    plain, aligned = [], []
    for i, label in enumerate(trace.labels[:_MOST_STATES]):
        others = {"nominal": trace.nominal[:, i]}
        plain.append(figure(trace_chart(label, about, time, trace.recorded[:, i], trace.simulated[:, :, i], others)))
        known = np.isfinite(middle[:, i])
        if trace.held_out and known.sum() > 1:
            left, right = dtw_path(trace.recorded[:, i], middle[known, i])
            warped = np.array([middle[known, i][right[left == step]].mean() for step in range(len(time))])
            caption = f"{kind}; median of the simulations, aligned by dynamic time warping"
            aligned.append(figure(trace_chart(label, caption, time, trace.recorded[:, i], warped[None], {})))
    shown = figures(plain, small=True)
    return [shown, folded("Aligned by dynamic time warping", figures(aligned, small=True))] if aligned else [shown]
