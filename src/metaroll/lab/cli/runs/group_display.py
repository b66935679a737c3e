"""Shows the progress of several runs: one table in a terminal, lines with the names of the runs elsewhere."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.live import Live
from rich.table import Table

from metaroll.lab.display.consoles import escape, printable
from metaroll.lab.display.progress import can_redraw
from metaroll.lab.display.timing import duration, seconds_of
from metaroll.training.evaluation.numbers import short_number

__all__ = ["GroupDisplay", "RunRow"]

_TIME = r"\d+ d \d+ h|[\d:]+"
_EPOCH = re.compile(r"epoch (\d+)/(\d+)")
_PHASE = re.compile(r"epoch \d+/\d+  ([\w -]+? [\d,]+/[\d,]+)(?:  left:|$)")
_RETURN = re.compile(r"  return (.+?)  ")
_LEFT = re.compile(rf"(?:run ({_TIME})$|, ({_TIME}) left$)")


@dataclass
class RunRow:
    """The progress of one run, read from the lines that its display has printed (see ``TrainingDisplay``).

    Attributes:
        state: ``waiting``, ``running``, ``done`` or ``failed``.
        epoch: Current epoch and number of epochs.
        phase: Current phase and its progress.
        returns: Newest return, as printed, marked if it is of training; at the end that of the newest evaluation.
        ends: When it will be done, on the clock of the display; ``None`` if unknown.
    """

    state: str = "waiting"
    epoch: str = ""
    phase: str = ""
    returns: str = ""
    ends: float | None = None

    def read(self, line: str, now: float) -> None:
        """Update the row from a line of output."""
        epoch, phase, returns, left = (pattern.search(line) for pattern in (_EPOCH, _PHASE, _RETURN, _LEFT))
        if epoch is not None:
            self.epoch = f"{epoch[1]}/{epoch[2]}"
        self.phase = "" if phase is None else phase[1]
        if returns is not None:
            trained, mark, evaluated = returns[1].partition("evaluation ")
            trained = trained.removesuffix(", ")  # empty if the epoch finished no episode
            if trained and "->" not in trained:
                trained += " in training"
            self.returns = ", ".join(part for part in (trained, mark + evaluated) if part)
        if left is not None:
            self.ends = now + seconds_of(left[1] or left[2])


class GroupDisplay:
    """Shows all runs of a group; a context manager, since it owns the terminal.

    Args:
        console: Where to draw.
        names: Names of the runs.
        clock: Returns seconds since an arbitrary moment.
    """

    def __init__(self, console: Console, names: Sequence[str], clock: Callable[[], float] = time.monotonic) -> None:
        self.rows = {name: RunRow() for name in names}
        self._console, self._clock = console, clock
        self._live: Live | None = None

    def __enter__(self) -> GroupDisplay:
        if can_redraw(self._console):
            self._live = Live(get_renderable=self._table, console=self._console, refresh_per_second=2)
            self._live.__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        if self._live is not None:
            live, self._live = self._live, None
            live.__exit__(*exception)

    def begin(self, name: str, folder: str) -> None:
        """A run begins in ``folder``."""
        self.rows[name].state = "running"
        if self._live is None:
            self._console.print(f"training {escape(folder)}", soft_wrap=True)

    def read(self, name: str, lines: Sequence[str]) -> None:
        """New lines about the progress of a run."""
        for line in lines:
            self.rows[name].read(line, self._clock())
            if self._live is None:
                self._console.print(escape(f"{name}: {line}"), soft_wrap=True)

    def end(self, name: str, folder: str, error: str | None, newest: float | None = None) -> None:
        """A run has ended; ``error`` is its last message if it failed, ``newest`` the return of its last evaluation."""
        row, returned = self.rows[name], "" if newest is None else short_number(newest)
        row.returns = returned or row.returns
        row.state, row.phase, row.ends = "done" if error is None else "failed", "", None
        if error is not None:
            self._console.print(f"{escape(folder)} [bold red]failed[/]: {escape(error)}", soft_wrap=True)
        elif self._live is None:
            self._console.print(f"{escape(folder)} done{returned and f', return {returned}'}", soft_wrap=True)

    def _table(self) -> Table:
        table = Table(box=SIMPLE_HEAD)
        for name in ("run", "epoch", "now", "return", "left"):
            table.add_column(name, justify="left" if name in ("run", "now") else "right", overflow="fold")
        for name, row in self.rows.items():  # this runs in the thread of the live display
            left = "" if row.ends is None else duration(row.ends - self._clock())
            now = row.phase or (row.state if row.state != "running" or not row.epoch else "")
            table.add_row(printable(name), row.epoch, "starting" if now == "running" else now, row.returns, left)
        return table
