"""Callbacks of a session: a run of a given number of environment steps, and its last evaluation."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from metaroll.training.store import run_folder

__all__ = ["LastEvaluation", "StepGoal"]


class StepGoal:
    """Callback of a runner: adds epochs to the run until it has taken enough environment steps.

    Epochs of algorithms that collect a number of episodes are shorter than planned if episodes end early. The run
    has the same bits as one that was started with the epochs that it has in the end.

    Args:
        env_steps: Minimum number of steps from now on; ``None`` adds no epochs.
        config: Configuration of the run, with the minimum number of epochs.
        folder: Folder of the run, whose ``config.yaml`` is updated.
        expect_epochs: Called with the number of epochs whenever it changes.

    Attributes:
        config: The configuration, with the current number of epochs.
    """

    def __init__(
        self, env_steps: int | None, config: dict[str, Any], folder: Path, expect_epochs: Callable[[int], None]
    ) -> None:
        self.config, self._env_steps = config, env_steps
        self._folder, self._expect_epochs = folder, expect_epochs
        self._least: int = config["run"]["epochs"]
        self._done = self._taken = 0

    def continue_from(self, epochs: int, env_steps: int) -> None:
        """The run was resumed after ``epochs`` epochs and ``env_steps`` environment steps."""
        self._done, self._taken = epochs, env_steps

    def on_epoch_end(self, runner: Any, epoch: int, metrics: Mapping[str, float]) -> None:
        """Request as many epochs as the remaining steps need, at the length of those so far."""
        if self._env_steps is None:
            return
        done, taken = epoch + 1, runner.total_env_steps - self._taken
        missing = max(0, self._env_steps - taken)
        more = math.ceil(missing * (done - self._done) / max(1, taken))
        epochs = max(self._least, done + more)
        if epochs == runner.n_epochs:
            return
        runner.ask_for(epochs)
        self.config = {**self.config, "run": {**self.config["run"], "epochs": epochs}}
        run_folder.write_config(self._folder, self.config)
        self._expect_epochs(epochs)


class LastEvaluation:
    """Callback of a runner: keeps the newest evaluation, and after which epoch it was made."""

    def __init__(self) -> None:
        self._newest: Any = None
        self._result: Any = None
        self._num_epochs: int | None = None

    def on_evaluation(self, runner: Any, result: Any) -> None:
        """Keep ``result`` until the epoch is over."""
        self._newest = result

    def on_epoch_end(self, runner: Any, epoch: int, metrics: Mapping[str, float]) -> None:
        """The evaluation is that of ``epoch``, counted from 0."""
        if self._newest is not None:
            self._result, self._newest, self._num_epochs = self._newest, None, epoch + 1

    def result_of(self, num_epochs: int) -> Any:
        """The evaluation after ``num_epochs`` finished epochs; ``None`` if there was none in this session."""
        return self._result if self._num_epochs == num_epochs else None
