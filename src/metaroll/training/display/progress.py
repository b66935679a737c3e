"""What a user sees while a run trains: a live table in a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

__all__ = ["TrainingDisplay", "duration"]

_ROWS_SHOWN = 12
_COLUMNS: tuple[str, ...] = ("epoch", "env steps", "steps/s", "updates/s", "before", "after adaptation")
# Left out in narrow terminals, where returns would be cut off otherwise: column -> width needed.
_NEEDS_WIDTH = {"steps/s": 76, "updates/s": 76, "env steps": 52}
_WITHOUT_ADAPTATION = {"before": "in training", "after adaptation": "evaluation"}
_STYLES = {"before": "yellow", "after adaptation": "bold green"}


def duration(seconds: float) -> str:
    """``m:ss`` or ``h:mm:ss``."""
    whole = max(0, round(seconds))
    hours, minutes, rest = whole // 3600, whole // 60 % 60, whole % 60
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class TrainingDisplay:
    """Callback of a runner that shows one row per epoch; a context manager, since the table owns the terminal.

    Args:
        console: Where to draw; a terminal gets a live table, anything else one line per epoch.
        title: Head line of the table.
        num_epochs: Epoch count of the whole run.
        updates_per_epoch: Gradient steps per epoch, for the rate.
        clock: Seconds since some moment.
        adapts: Whether the algorithm adapts; of others the return in training and that of evaluations are shown.
    """

    def __init__(
        self,
        console: Console,
        title: str,
        num_epochs: int,
        updates_per_epoch: int,
        clock: Callable[[], float] = time.monotonic,
        adapts: bool = True,
    ) -> None:
        self.last_result: Any = None
        self._adapts = adapts
        self._evaluated_epoch: int | None = None
        self._newest: Any = None
        self._console = console
        self._title = title
        self._num_epochs = num_epochs
        self._updates_per_epoch = updates_per_epoch
        self._clock = clock
        self._done, self._times = 0, ""
        self._rows: deque[tuple[str, ...]] = deque(maxlen=_ROWS_SHOWN)
        self._started = self._epoch_started = clock()
        self._epoch_seconds: list[float] = []
        self._earlier_seconds = self._reported_seconds = 0.0
        self._env_steps: int | None = None
        self._spinner = Spinner("dots", text=Text("building", style="dim"))
        self._live: Live | None = None

    def __enter__(self) -> TrainingDisplay:
        self._started = self._epoch_started = self._clock()
        if self._console.is_terminal and not self._console.quiet:
            self._live = Live(get_renderable=self._table, console=self._console, refresh_per_second=4)
            self._live.__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        if self._live is not None:
            live, self._live = self._live, None
            live.__exit__(*exception)

    @property
    def seconds(self) -> float:
        """Seconds since the display was opened, and those of earlier sessions of a resumed run."""
        return self._clock() - self._started + self._earlier_seconds

    def start_from(self, epoch: int, env_steps: int, seconds: float = 0.0) -> None:
        """Tell where a resumed run stands, so that rates, epochs and seconds count from there."""
        self._done, self._env_steps, self._earlier_seconds = epoch, env_steps, seconds

    def result_of(self, epoch: int) -> Any:
        """The evaluation after ``epoch`` finished epochs, if there was one in this session."""
        return self.last_result if self._evaluated_epoch == epoch else None

    def on_evaluation(self, runner: Any, result: Any) -> None:
        """Keep the newest evaluation for the row of this epoch."""
        self.last_result = self._newest = result

    def on_epoch_end(self, runner: Any, epoch: int, metrics: Mapping[str, float]) -> None:
        """Add the row of ``epoch``."""
        now = self._clock()
        seconds = max(now - self._epoch_started, 1e-9)
        self._epoch_started = now
        self._epoch_seconds.append(seconds)
        self._reported_seconds += metrics.get("time/epoch_seconds", 0.0)
        self._earlier_seconds = max(0.0, metrics.get("time/total_seconds", 0.0) - self._reported_seconds)
        env_steps = int(runner.total_env_steps)
        new_steps, self._env_steps = env_steps - (self._env_steps or 0), env_steps
        done, result = epoch + 1, self._newest
        self._newest = None  # an epoch without an evaluation shows none
        if result is not None:
            self._evaluated_epoch = done
        # The first epoch holds the warm-up: it says nothing about those to come once there are others.
        typical = self._epoch_seconds[1:] or self._epoch_seconds
        left = (self._num_epochs - done) * sum(typical) / len(typical)
        updates = metrics.get("gradient_steps", self._updates_per_epoch)
        before = (result.return_before if result else None) if self._adapts else metrics.get("return")
        interval = " [{:.1f}, {:.1f}]".format(*result.score_interval) if result and result.score_interval else ""
        row = (
            str(done),
            f"{env_steps:,}",
            f"{new_steps / seconds:,.0f}",
            f"{updates / seconds:,.0f}",
            "" if before is None else f"{before:.1f}",
            f"{result.score:.1f}{interval}" if result else "",
        )
        self._done, self._times = done, f"{duration(self.seconds)} elapsed, {duration(left)} left"
        self._rows.append(row)
        if self._live is None:
            self._console.print(self._line(*row), highlight=False, soft_wrap=True)

    def _line(self, epoch: str, steps: str, steps_rate: str, updates_rate: str, before: str, after: str) -> str:
        """The row as one plain line for logs."""
        returns = f"  return {before} -> {after}" if after else ""
        if not self._adapts:
            returns = f"  return {before}" + (f", evaluation {after}" if after else "")
        return (
            f"epoch {epoch}/{self._num_epochs}  {steps} env steps  {steps_rate} steps/s  {updates_rate} updates/s"
            f"{returns}  {self._times}"
        )

    def _table(self) -> Group:
        table = Table(title=self._title, title_style="bold", title_justify="left", box=SIMPLE_HEAD)
        shown = [name for name in _COLUMNS if self._console.width >= _NEEDS_WIDTH.get(name, 0)]
        for name in shown:
            title = name if self._adapts else _WITHOUT_ADAPTATION.get(name, name)
            table.add_column(title, justify="right", style=_STYLES.get(name, ""), no_wrap=True)
        for row in tuple(self._rows):  # this runs in the thread of the live display
            cells = dict(zip(_COLUMNS, row, strict=True))
            table.add_row(*(cells[name] for name in shown))
        if self._live is None or self._done >= self._num_epochs:
            return Group(table)
        waiting = f"epoch {self._done + 1} of {self._num_epochs}: {duration(self._clock() - self._epoch_started)}"
        self._spinner.update(text=Text(f"{waiting}   {self._times}", style="dim"))
        return Group(table, self._spinner)
