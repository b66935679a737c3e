"""Reports how the rows of a log became steps, in words and in ``rollout_info``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

__all__ = ["Gap", "Timing", "gaps_text", "missing_text", "timing_text"]

_LISTED = 5
"""Gaps that are listed one by one."""
_PPM = 1e-6


class Gap(NamedTuple):
    """A pause in which rows are missing.

    Attributes:
        row: The row after it, counted from 1.
        seconds: Time from the row before the gap to ``row``.
    """

    row: int
    seconds: float


@dataclass(frozen=True)
class Timing:
    """How the rows of a log became steps.

    Attributes:
        rows: ``"rows"``: each row is a step. ``"gathered"``: a step is a whole number of rows. ``"repeated"``: a row
            holds for a whole number of steps. ``"means"``: neither; actions are means over steps.
        dt: Seconds per step.
        row_step: Seconds between rows, by their stamps.
        off: Largest deviation of stamps from the grid of the rows, in s; ``None``: there is no grid, and the stamps are
            used.
        far: Number of rows that are more than a quarter of a step off the grid; for these the stamps are used.
        real: Share of the stamps' deviations that is real, estimated from observations.
        clock: Relative error of the stamps' clock, positive if it is fast; 0 if unknown.
        gaps: Gaps in which rows are missing.
    """

    rows: Literal["rows", "gathered", "repeated", "means"]
    dt: float
    row_step: float
    off: float | None = None
    far: int = 0
    real: float = 0.0
    clock: float = 0.0
    gaps: tuple[Gap, ...] = ()

    def to_info(self) -> dict[str, Any]:
        """The entries of ``rollout_info["log"]``: numbers, text and lists."""
        return {
            "rows": self.rows,
            "row_step": self.row_step,
            "stamps_off": self.off,
            "rows_far_off": self.far,
            "really_off": self.real,
            "clock_error": self.clock,
            "gaps": [[gap.row, gap.seconds] for gap in self.gaps],
        }


def timing_text(info: Mapping[str, Any], dt: float, *, choices: bool = False) -> str:
    """A ``Timing`` in words.

    Args:
        info: The result of ``Timing.to_info``.
        dt: Seconds per step.
        choices: Whether actions are choices.
    """
    acted = "actions are those that held for most of a step" if choices else "actions are means over steps"
    between = _seconds(info["row_step"])
    text = {
        "rows": f"rows were taken as steps of {_seconds(dt)}",
        "gathered": f"rows, {between} apart, were gathered into steps of {_seconds(dt)}: {acted}",
        "repeated": f"rows, {between} apart, were taken as several steps of {_seconds(dt)} each: observations between "
        "them are interpolated linearly",
        "means": f"rows, {between} apart, were resampled to steps of {_seconds(dt)}: {acted}, "
        "observations are interpolated linearly between rows",
    }[info["rows"]]
    notes = []
    if info["stamps_off"] is None:
        notes.append("stamps are uneven, and taken as they are")
    elif info["stamps_off"] > 1e-9:
        notes.append(f"stamps off by at most {_seconds(info['stamps_off'])}")
    if info["really_off"]:
        notes.append(f"which rows really were, to {100 * info['really_off']:.0f} %, as observations tell")
    if info["rows_far_off"]:
        rows = "1 row that is" if info["rows_far_off"] == 1 else f"{info['rows_far_off']} rows that are"
        notes.append(f"but for {rows} farther off: there, stamps count and {acted}")
    if info["clock_error"]:
        notes.append(f"the clock is {_share(abs(info['clock_error']))} {'fast' if info['clock_error'] > 0 else 'slow'}")
    return f"{text} ({'; '.join(notes)})" if notes else text


def gaps_text(gaps: list[list[Any]]) -> str:
    """The rows that follow gaps and the lengths of the gaps, in words; empty if there is none.

    Args:
        gaps: Row after each gap (counted from 1) and its length in s.
    """
    if not gaps:
        return ""
    listed = ", ".join(f"row {row} ({_seconds(seconds)})" for row, seconds in gaps[:_LISTED])
    more = f" and {len(gaps) - _LISTED} more" if len(gaps) > _LISTED else ""
    return (
        f"{len(gaps)} {'gap' if len(gaps) == 1 else 'gaps'} before {listed}{more}: observations there are "
        "interpolated linearly, and actions are those before the gap"
    )


def missing_text(missing: list[list[Any]]) -> str:
    """The missing values that were filled in, in words; empty if there are none.

    Args:
        missing: Label, first and last row (counted from 1), and seconds between the known values around.
    """
    if not missing:
        return ""
    places: dict[tuple[int, int, float], list[str]] = {}
    for label, row, last, seconds in missing:
        places.setdefault((row, last, seconds), []).append(label)
    listed = ", ".join(
        f"{', '.join(dict.fromkeys(labels))} in row {row}" + (f" to {last} ({_seconds(seconds)})" if last > row else "")
        for (row, last, seconds), labels in list(places.items())[:_LISTED]
    )
    more = f" and in {len(places) - _LISTED} more places" if len(places) > _LISTED else ""
    return (
        f"values of {listed}{more} are missing: observations there are interpolated linearly, and actions are those "
        "before. If that lasts longer than a step, inference cuts recordings there, or reports that it does not"
    )


def _seconds(seconds: float) -> str:
    """A time in a readable unit."""
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * factor >= 0.9995:
            return f"{seconds * factor:.4g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def _share(share: float) -> str:
    return f"{share / _PPM:.3g} ppm" if share < 1e-3 else f"{100 * share:.2g} %"
