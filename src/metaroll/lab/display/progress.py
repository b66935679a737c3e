"""The display of a run in training: a live table in a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import importlib.util
import math
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from typing import Any, final

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from metaroll.lab.display.consoles import escape, make_console, unwrapped_width
from metaroll.lab.display.timing import PhaseState, RunAmounts, RunTiming, duration
from metaroll.training.run.views import TrainingView

__all__ = ["EvaluationDisplay", "TrainingDisplay", "can_redraw"]

_ROWS_SHOWN = 12
_COLUMNS: tuple[str, ...] = ("epoch", "env steps", "steps/s", "updates/s", "before", "after adaptation")
# Left out, in this order, if the columns do not fit.
_LEAVE_OUT = (("steps/s", "updates/s"), ("env steps",), ("before",))
_WITHOUT_ADAPTATION = {"before": "in training", "after adaptation": "evaluation"}
_STYLES = {"before": "yellow", "after adaptation": "bold green"}
_LINE_SECONDS = 10.0
"""Seconds between two progress lines if nothing can be redrawn."""
_SOON_SECONDS = 2.0
"""Shorter evaluations do not show their progress."""
_ANNOUNCED_SECONDS = 60.0
"""Runs that take less time than this are not announced."""


def can_redraw(console: Console) -> bool:
    """Whether a live table can be shown: in a terminal, or in a notebook that has widgets."""
    if console.quiet:
        return False
    return console.is_terminal or (console.is_jupyter and importlib.util.find_spec("ipywidgets") is not None)


@final
class TrainingDisplay(TrainingView):
    """Callback of a runner that shows its progress and a row per epoch; a context manager, since it owns the terminal.

    ``with TrainingDisplay() as display: LocalRunner(callbacks=[display], ...)`` shows what the command line shows.

    Args:
        console: Where to draw; a terminal gets a live table, anything else one line per epoch, and in long epochs one
            every ten seconds. ``None`` means the standard output.
        title: Head line of the table.
        num_epochs: Epoch count of the whole run; ``None`` asks the runner.
        updates_per_epoch: Gradient steps per epoch, for the rate.
        clock: Returns seconds since an arbitrary moment.
        adapts: Whether the algorithm adapts; otherwise the returns of training and of evaluations are shown.
        amounts: The amount of work of the run, from which its duration is estimated in the first seconds.
    """

    def __init__(
        self,
        console: Console | None = None,
        title: str = "training",
        num_epochs: int | None = None,
        updates_per_epoch: int = 0,
        clock: Callable[[], float] = time.monotonic,
        adapts: bool = True,
        amounts: RunAmounts | None = None,
    ) -> None:
        self._adapts = adapts
        self._newest: Any = None
        self._console = make_console() if console is None else console
        self._title = title
        self._num_epochs = num_epochs
        self._updates_per_epoch = updates_per_epoch
        self._clock = clock
        self._timing = RunTiming(num_epochs or 0, amounts, clock)
        self._rows: deque[tuple[str, ...]] = deque(maxlen=_ROWS_SHOWN)
        self._next_line = -float("inf")
        self._announced = False
        self._time_update: Callable[[], float | None] | None = None
        self._seconds = 0.0
        self._env_steps: int | None = None
        self._spinner = Spinner("dots", text=Text("building", style="dim"))
        self._live: Live | None = None

    def __enter__(self) -> TrainingDisplay:
        self._timing.start(self._timing.epoch)
        if can_redraw(self._console):
            self._live = Live(get_renderable=self._table, console=self._console, refresh_per_second=4)
            self._live.__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        if self._live is not None:
            live, self._live = self._live, None
            if self._console.is_jupyter:
                live.refresh()  # notebooks do not show the last state of a live table automatically
            live.__exit__(*exception)

    @property
    def seconds(self) -> float:
        """Seconds of training until the last epoch ended, also in earlier sessions: the time that the summary shows."""
        return self._seconds

    def start_from(self, epoch: int, env_steps: int, seconds: float = 0.0) -> None:
        """Rates, epochs and seconds of a resumed run count from here."""
        self._timing.start(epoch)
        self._env_steps, self._seconds = env_steps, seconds

    def expect(self, update_seconds: Callable[[], float | None]) -> None:
        """Call ``update_seconds`` once the first line is shown, to time a gradient step."""
        self._time_update = update_seconds

    def expect_epochs(self, num_epochs: int) -> None:
        """Change the number of epochs of the run."""
        self._num_epochs = self._timing.num_epochs = num_epochs

    def on_progress(self, runner: Any, phase: str, done: int, total: int) -> None:
        """Show the progress of the phase; if nothing can be redrawn, by a line now and then, the first at once."""
        self._set_num_epochs(runner)
        self._timing.progress(phase, done, total)
        self._announce()
        if self._live is None and self._clock() >= self._next_line:
            self._print(self._status())
        if self._time_update is not None and not self._console.quiet:
            time_update, self._time_update = self._time_update, None
            with contextlib.suppress(
                Exception
            ):  # such as networks that cannot be copied: an estimate must not end a run
                self._timing.update_seconds = time_update()
            self._timing.start(self._timing.epoch)  # so that the time of the estimate does not count
            self._timing.progress(phase, done, total)

    def on_evaluation(self, runner: Any, result: Any) -> None:
        """Keep the newest evaluation for the row of this epoch."""
        self._newest = result

    def on_epoch_end(self, runner: Any, epoch: int, metrics: Mapping[str, float]) -> None:
        """Add the row of ``epoch``."""
        self._set_num_epochs(runner)
        seconds = self._timing.end_epoch()
        self._seconds = metrics.get("time/total_seconds", self._seconds + seconds)
        env_steps = int(runner.total_env_steps)
        new_steps, self._env_steps = env_steps - (self._env_steps or 0), env_steps
        done, result = epoch + 1, self._newest
        self._newest = None  # an epoch without an evaluation shows none
        updates = metrics.get("gradient_steps", self._updates_per_epoch)
        before = None if self._adapts else metrics.get("return")
        if self._adapts and result is not None:  # on the episodes of the adapted policy, if that was measured
            before = result.return_before if result.return_unadapted is None else result.return_unadapted
        interval = " [{}, {}]".format(*map(short, result.score_interval)) if result and result.score_interval else ""
        row = (
            str(done),
            f"{env_steps:,}",
            f"{new_steps / seconds:,.0f}",
            f"{updates / seconds:,.0f}" if updates >= seconds / 2 else "",  # few and long updates would show as 0
            "" if before is None else short(before),
            f"{short(result.score)}{interval}" if result else "",
        )
        self._rows.append(row)
        self._announce()
        if self._live is None:
            self._print(self._line(*row))

    # -- helpers -------------------------------------------------------------------------------------------------------

    def _set_num_epochs(self, runner: Any) -> None:
        if self._num_epochs is None:
            self._num_epochs = self._timing.num_epochs = runner.n_epochs

    def _announce(self) -> None:
        """Print how long the run will take, once, as soon as it is known."""
        left = None if self._announced else self._timing.run_left()
        if left is None:
            return
        self._announced, text = True, self._timing.in_words()
        if left >= _ANNOUNCED_SECONDS and text is not None:
            self._console.print(text, highlight=False, soft_wrap=self._live is None)

    def _print(self, line: str) -> None:
        self._next_line = self._clock() + _LINE_SECONDS
        self._console.print(line, highlight=False, soft_wrap=True)

    def _times(self) -> str:
        left = self._timing.run_left()
        return f"{duration(self.seconds)} of training" + ("" if left is None else f", {duration(left)} left")

    def _line(self, epoch: str, steps: str, steps_rate: str, updates_rate: str, before: str, after: str) -> str:
        """The row as one plain line for logs."""
        returns = f"  return {before} -> {after}" if after else ""
        if not self._adapts:
            parts = [before, f"evaluation {after}" if after else ""]
            returns = f"  return {', '.join(filter(None, parts))}" if any(parts) else ""
        return (
            f"epoch {epoch}/{self._num_epochs}  {steps} env steps  {steps_rate} steps/s"
            f"{f'  {updates_rate} updates/s' if updates_rate else ''}{returns}  {self._times()}"
        )

    def _status(self, width: int | None = None) -> str:
        """Epoch, phase and remaining time, as far as they fit."""
        timing, phase = self._timing, self._timing.phase
        head = f"epoch {timing.epoch + 1}/{self._num_epochs}"
        phase_text = "" if phase is None else f"  {phase.name} {phase.done:,}/{phase.total:,}"
        times = {"": timing.phase_left(), "epoch ": timing.epoch_left(), "run ": timing.run_left()}
        times_left = [f"{name}{duration(seconds)}" for name, seconds in times.items() if seconds is not None]
        text = head + phase_text + (f"  left: {', '.join(times_left)}" if times_left else "")
        if width is None or len(text) <= width:
            return text
        return f"{head}{phase_text}  left: {times_left[-1]}" if times_left else head + phase_text

    def _table(self) -> Group:
        left_out: set[str] = set()
        table = self._rows_table(left_out)
        for names in _LEAVE_OUT:
            if unwrapped_width(self._console, table) <= self._console.width:
                break
            left_out.update(names)
            table = self._rows_table(left_out)
        if self._live is None or (self._num_epochs is not None and self._timing.epoch >= self._num_epochs):
            return Group(table)
        waiting = self._status(self._console.width - 2) if self._timing.phase or self._rows else "building"
        self._spinner.update(text=Text(waiting, style="dim", no_wrap=True))
        return Group(table, self._spinner)

    def _rows_table(self, left_out: Collection[str]) -> Table:
        table = Table(title=escape(self._title), title_style="bold", title_justify="left", box=SIMPLE_HEAD)
        shown = [name for name in _COLUMNS if name not in left_out]
        for name in shown:
            title = name if self._adapts else _WITHOUT_ADAPTATION.get(name, name)
            table.add_column(title, justify="right", style=_STYLES.get(name, ""), no_wrap=True)
        for row in tuple(self._rows):  # this runs in the thread of the live display
            cells = dict(zip(_COLUMNS, row, strict=True))
            table.add_row(*(cells[name] for name in shown))
        return table


class EvaluationDisplay:
    """Progress and remaining time of an evaluation: in place in a terminal, elsewhere by a line now and then.

    ``with EvaluationDisplay(console) as display: evaluator.evaluate(algo, progress=display)``. One that is over soon
    prints nothing.
    """

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._console, self._clock = console, clock
        self._phase: PhaseState | None = None
        self._next_line = math.inf
        self._live: Live | None = None

    def __enter__(self) -> EvaluationDisplay:
        self._next_line = self._clock() + _SOON_SECONDS
        if can_redraw(self._console):
            self._live = Live(get_renderable=self._line, console=self._console, refresh_per_second=4, transient=True)
            self._live.__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        if self._live is not None:
            live, self._live = self._live, None
            live.__exit__(*exception)

    def __call__(self, done: int, total: int) -> None:
        """Report that ``done`` of ``total`` episodes are finished."""
        now = self._clock()
        if self._phase is None:
            self._phase = PhaseState("evaluation", done, total, now, now, done)
        self._phase.done, self._phase.total, self._phase.updated = done, total, now
        if self._live is None and now >= self._next_line:
            self._next_line = now + _LINE_SECONDS
            self._console.print(self._line(), soft_wrap=True)

    def _line(self) -> Text:
        phase = self._phase
        if phase is None:
            return Text("evaluation", style="dim")
        left = phase.left(self._clock(), None)
        known = "" if left is None else f"  left: {duration(left)}"
        return Text(f"evaluation {phase.done:,}/{phase.total:,} episodes{known}", style="dim")


def short(value: float) -> str:
    """One decimal; of small numbers three significant digits."""
    return f"{value:.1f}" if abs(value) >= 9.995 or not value else f"{value:#.3g}"
