"""Numbers of a run for Weights & Biases (the extra ``wandb``)."""

from __future__ import annotations

import importlib.util
import secrets
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from metaroll.errors import SnapshotError
from metaroll.training.store.files import read_json, to_plain, write_json
from metaroll.training.store.loggers import MetricRow, tag_of

__all__ = ["STATE_FILE", "WandbLogger", "require_wandb"]

STATE_FILE = "wandb.json"
_STEPS = "env_steps"


def require_wandb() -> None:
    """An ``ImportError`` with the hint if wandb is not installed."""
    if importlib.util.find_spec("wandb") is None:
        raise ImportError("the W&B logger needs wandb, which is not installed: pip install 'metaroll[wandb]'")


class WandbLogger:
    """Sends numbers to a project of Weights & Biases, drawn over environment steps.

    The id of the W&B run is kept in ``wandb.json`` of the run folder: a resumed run goes on in the same one. What it
    computes again is sent again; these are the same numbers at the same steps. ``WANDB_MODE=offline`` keeps everything
    in the run folder.

    Args:
        project: Name of the project.
        config: Configuration to show.
    """

    def __init__(self, project: str, config: Mapping[str, Any] | None = None) -> None:
        if not isinstance(project, str) or not project.strip():
            raise ValueError(f"project must be the name of a W&B project, got {project!r}")
        require_wandb()
        self._project = project
        self._config = to_plain(config or {})
        self._run: Any = None

    def open(self, run_dir: Path, env_steps: int) -> None:
        """Begin a W&B run, or go on with the one of this run folder; see ``MetricLogger``."""
        import wandb

        self.close()
        path = run_dir / STATE_FILE
        state = _read_state(path) if env_steps and path.is_file() else {}
        if state.get("project") != self._project:
            state = {"project": self._project, "id": secrets.token_hex(8)}
        try:
            run: Any = wandb.init(
                project=self._project,
                id=state["id"],
                name=run_dir.resolve().name,
                config=self._config,
                dir=str(run_dir),
                resume="allow",
                settings={"console": "off"},  # what is printed stays here
            )
        except Exception as error:  # no account, no network: its own classes
            reason = " ".join(str(error).split())
            raise ConnectionError(
                f"W&B could not be started ({reason}): log in with `wandb login`, or keep the numbers here with "
                "WANDB_MODE=offline"
            ) from error
        self._run = run
        write_json(path, state)
        self._run.define_metric(_STEPS, hidden=True)
        self._run.define_metric("*", step_metric=_STEPS)

    def write(self, rows: Sequence[MetricRow]) -> None:
        """Send numbers, those of the same environment steps together."""
        for env_steps, group in groupby(rows, key=lambda row: row.env_steps):
            self._run.log({_STEPS: env_steps, **{tag_of(row): row.value for row in group}})

    def close(self) -> None:
        """Finish the W&B run, which sends what is left."""
        if self._run is not None:
            run, self._run = self._run, None
            run.finish()


def _read_state(path: Path) -> dict[str, Any]:
    state = read_json(path, "delete it to begin a new W&B run")
    if not isinstance(state, dict) or not isinstance(state.get("id"), str):
        raise SnapshotError(f"{path} must hold the id of a W&B run, got {state!r}: delete it to begin a new one")
    return state
