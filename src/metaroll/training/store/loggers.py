"""Where the numbers of a run go beside ``metrics.jsonl``: what such a logger is, and how one that fails is left out."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

__all__ = ["LoggerGroup", "MetricLogger", "MetricRow", "tag_of"]


class MetricRow(NamedTuple):
    """One number: what a line of ``metrics.jsonl`` holds."""

    iteration: int
    env_steps: int
    phase: str
    task: str | None
    metric: str
    value: float


class MetricLogger(Protocol):
    """Shows the numbers of a run elsewhere, over its environment steps."""

    def open(self, run_dir: Path, env_steps: int) -> None:
        """Begin, or go on after ``env_steps``: what was shown of later steps does not count.

        What is needed to go on with the same display (its id, say) is kept in the run folder.
        """
        ...

    def write(self, rows: Sequence[MetricRow]) -> None:
        """Take the numbers of an epoch, which are in ``metrics.jsonl`` already."""
        ...

    def close(self) -> None:
        """Send what is left; nothing if it is not open."""
        ...


def tag_of(row: MetricRow) -> str:
    """``phase/metric``; numbers of single tasks stand apart, as ``phase per task/metric/task``."""
    if row.task is None:
        return f"{row.phase}/{row.metric}"
    return f"{row.phase} per task/{row.metric}/{row.task}"


class LoggerGroup:
    """Loggers that get everything together. One that raises while it runs is left out from then on.

    Args:
        loggers: The loggers, in any number.
    """

    def __init__(self, loggers: Sequence[MetricLogger] = ()) -> None:
        self.all = tuple(loggers)
        self._opened: list[MetricLogger] = []

    def open(self, run_dir: Path | None, env_steps: int) -> None:
        """Open all; what one of them raises is raised, since nothing has been trained yet."""
        self.close()
        if not self.all:
            return
        if run_dir is None:
            raise ValueError("loggers need a run folder, which holds their ids: LocalRunner(run_dir=..., loggers=...)")
        for logger in self.all:
            logger.open(run_dir, env_steps)
            self._opened.append(logger)

    def write(self, rows: Sequence[MetricRow]) -> None:
        """Tell all; an error of one is a warning."""
        for logger in tuple(self._opened):
            try:
                logger.write(rows)
            except Exception as error:  # a full disk, a lost connection: training is worth more than its display
                self._opened.remove(logger)
                warnings.warn(
                    f"{type(logger).__name__} failed and gets no more numbers ({type(error).__name__}: {error}); "
                    "metrics.jsonl has them all",
                    RuntimeWarning,
                    stacklevel=2,
                )

    def close(self) -> None:
        """Close those that are open; an error of one is a warning."""
        opened, self._opened = self._opened, []
        for logger in opened:
            try:
                logger.close()
            except Exception as error:
                message = f"{type(logger).__name__} could not be closed ({type(error).__name__}: {error})"
                warnings.warn(message, RuntimeWarning, stacklevel=2)
