"""Numbers of a run for TensorBoard (the extra ``tensorboard``)."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from metaroll.training.store.loggers import MetricRow, tag_of

__all__ = ["FOLDER", "TensorBoardLogger", "require_tensorboard"]

FOLDER = "tensorboard"


def require_tensorboard() -> None:
    """An ``ImportError`` with the hint if TensorBoard is not installed."""
    if importlib.util.find_spec("tensorboard") is None:
        raise ImportError(
            "the TensorBoard logger needs tensorboard, which is not installed: pip install 'metaroll[tensorboard]'"
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
        self._writer = SummaryWriter(str(run_dir / FOLDER), purge_step=first)

    def write(self, rows: Sequence[MetricRow]) -> None:
        """Write numbers, and put them on the disk."""
        for row in rows:
            self._writer.add_scalar(tag_of(row), row.value, row.env_steps)
        self._writer.flush()

    def close(self) -> None:
        """Close the file."""
        if self._writer is not None:
            writer, self._writer = self._writer, None
            writer.close()
