"""Loggers of a run's metrics besides ``metrics.jsonl``: TensorBoard, Weights & Biases, users' loggers.

One that fails is left out.
"""

from __future__ import annotations

import importlib.util
import secrets
import warnings
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

from metaroll.checks import described
from metaroll.data.folders.kinds import TENSORBOARD
from metaroll.errors import RunWarning, SnapshotError, install_text, option_name
from metaroll.training.store.files import read_json, to_plain, write_json

__all__ = [
    "LoggerGroup",
    "MetricLogger",
    "MetricRow",
    "TensorBoardLogger",
    "WandbLogger",
    "require_tensorboard",
    "require_wandb",
]

_WANDB_STATE = "wandb.json"
_WANDB_STEPS = "env_steps"


class MetricRow(NamedTuple):
    """One number, the content of a line of ``metrics.jsonl``."""

    iteration: int
    env_steps: int
    phase: str
    task: str | None
    metric: str
    value: float


@runtime_checkable
class MetricLogger(Protocol):
    """Shows the numbers of a run elsewhere, over its environment steps."""

    def open(self, run_dir: Path, env_steps: int) -> None:
        """Begin, or continue after ``env_steps``, so that numbers of later steps no longer count.

        What is needed to continue with the same display (e.g. its id) is kept in the run folder.
        """
        ...

    def write(self, rows: Sequence[MetricRow]) -> None:
        """Take the numbers of an epoch, which are in ``metrics.jsonl`` already."""
        ...

    def close(self) -> None:
        """Send the remaining numbers; nothing if it is not open."""
        ...


def _tag_of(row: MetricRow) -> str:
    """``phase/metric``; numbers of single tasks are separate, as ``phase per task/metric/task``."""
    if row.task is None:
        return f"{row.phase}/{row.metric}"
    return f"{row.phase} per task/{row.metric}/{row.task}"


class LoggerGroup:
    """Loggers that get everything together. One that raises while it runs is left out from then on.

    Args:
        loggers: The loggers, in any number.
    """

    def __init__(self, loggers: Sequence[MetricLogger] = ()) -> None:
        for logger in loggers if isinstance(loggers, Sequence) else (loggers,):
            if not isinstance(loggers, Sequence) or not isinstance(logger, MetricLogger):
                raise TypeError(
                    f"loggers must be a list of objects with open, write and close, got {described(loggers)}"
                )
        self.all = tuple(loggers)
        self._opened: list[MetricLogger] = []

    def open(self, run_dir: Path | None, env_steps: int) -> None:
        """Open all loggers; their errors are raised, since nothing has been trained yet."""
        self.close()
        if not self.all:
            return
        if run_dir is None:
            raise ValueError("loggers need a run folder, which holds their ids: LocalRunner(run_dir=..., loggers=...)")
        for logger in self.all:
            logger.open(run_dir, env_steps)
            self._opened.append(logger)

    def write(self, rows: Sequence[MetricRow]) -> None:
        """Write to all; an error of one is a warning."""
        for logger in tuple(self._opened):
            try:
                logger.write(rows)
            except Exception as error:  # a full disk, a lost connection: training continues without its display
                self._opened.remove(logger)
                warnings.warn(
                    f"{type(logger).__name__} failed and gets no more numbers ({type(error).__name__}: {error}); "
                    "metrics.jsonl has them all",
                    RunWarning,
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
                warnings.warn(message, RunWarning, stacklevel=2)


def require_tensorboard() -> None:
    """An ``ImportError`` with the hint if TensorBoard is not installed."""
    if importlib.util.find_spec("tensorboard") is None:
        raise ImportError(
            f"the TensorBoard logger needs tensorboard, which is not installed: {install_text('tensorboard')}"
        )


class TensorBoardLogger:
    """Writes event files into the folder ``tensorboard`` of the run, with environment steps as steps.

    A resumed run adds a file that takes back what was shown of later steps.
    """

    def __init__(self) -> None:
        require_tensorboard()
        self._writer: Any = None

    def open(self, run_dir: Path, env_steps: int) -> None:
        """Begin a file; see ``MetricLogger``."""
        from torch.utils.tensorboard.writer import SummaryWriter

        self.close()
        first = env_steps + 1 if env_steps else 0
        self._writer = SummaryWriter(str(run_dir / TENSORBOARD), purge_step=first)

    def write(self, rows: Sequence[MetricRow]) -> None:
        """Write numbers, and put them on the disk."""
        for row in rows:
            self._writer.add_scalar(_tag_of(row), row.value, row.env_steps)
        self._writer.flush()

    def close(self) -> None:
        """Close the file."""
        if self._writer is not None:
            writer, self._writer = self._writer, None
            writer.close()


def require_wandb() -> None:
    """An ``ImportError`` with the hint if wandb is not installed."""
    if importlib.util.find_spec("wandb") is None:
        raise ImportError(f"the W&B logger needs wandb, which is not installed: {install_text('wandb')}")


class WandbLogger:
    """Sends numbers to a project of Weights & Biases, drawn over environment steps.

    The id of the W&B run is kept in ``wandb.json`` of the run folder: a resumed run continues in the same one. What it
    computes again is sent again; these are the same numbers at the same steps. ``WANDB_MODE=offline`` keeps everything
    in the run folder.

    Args:
        project: Name of the project.
        config: Configuration to show.
    """

    def __init__(self, project: str, config: Mapping[str, Any] | None = None) -> None:
        if not isinstance(project, str) or not project.strip():
            raise ValueError(f"{option_name('project')} must be the name of a W&B project, got {project!r}")
        require_wandb()
        self._project = project
        self._config = to_plain(config or {})
        self._run: Any = None

    def open(self, run_dir: Path, env_steps: int) -> None:
        """Begin a W&B run, or continue with the one of this run folder; see ``MetricLogger``."""
        import wandb

        self.close()
        path = run_dir / _WANDB_STATE
        state = read_json(path, "delete it to begin a new W&B run") if env_steps and path.is_file() else None
        if state is not None and not (isinstance(state, dict) and isinstance(state.get("id"), str)):
            raise SnapshotError(f"{path} must hold the id of a W&B run, got {state!r}: delete it to begin a new one")
        if state is None or state.get("project") != self._project:
            state = {"project": self._project, "id": secrets.token_hex(8)}
        try:
            run: Any = wandb.init(
                project=self._project,
                id=state["id"],
                name=run_dir.resolve().name,
                config=self._config,
                dir=str(run_dir),
                resume="allow",
                settings={"console": "off"},  # its output is not printed
            )
        except Exception as error:  # no account, no network: its own classes
            reason = " ".join(str(error).split())
            raise ConnectionError(
                f"W&B could not be started ({reason}): log in with `wandb login`, or keep the numbers here with "
                "WANDB_MODE=offline"
            ) from error
        self._run = run
        write_json(path, state)
        self._run.define_metric(_WANDB_STEPS, hidden=True)
        self._run.define_metric("*", step_metric=_WANDB_STEPS)

    def write(self, rows: Sequence[MetricRow]) -> None:
        """Send numbers, those of the same environment steps together."""
        for env_steps, group in groupby(rows, key=lambda row: row.env_steps):
            self._run.log({_WANDB_STEPS: env_steps, **{_tag_of(row): row.value for row in group}})

    def close(self) -> None:
        """Finish the W&B run, which sends the remaining numbers."""
        if self._run is not None:
            run, self._run = self._run, None
            run.finish()
