"""A run that goes on until it has taken so many environment steps, however many epochs these are."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from metaroll.lab.display.progress import TrainingDisplay
from metaroll.training.store import run_folder

__all__ = ["StepGoal"]


class StepGoal:
    """Callback of a runner: adds epochs to the run while too few steps have been taken.

    Of algorithms that ask for a number of episodes, epochs are shorter than planned where episodes end early. The run
    is, in every bit, one that was asked for the epochs that it has in the end.

    Args:
        env_steps: Steps to take from now on, at least; ``None`` adds no epochs.
        config: Configuration of the run, whose epochs are the least.
        folder: Folder of the run, whose ``config.yaml`` follows.
        display: Is told of other numbers of epochs.

    Attributes:
        config: The configuration, with the epochs that the run has now.
    """

    def __init__(self, env_steps: int | None, config: dict[str, Any], folder: Path, display: TrainingDisplay) -> None:
        self.config, self._env_steps = config, env_steps
        self._folder, self._display = folder, display
        self._least: int = config["run"]["epochs"]
        self._done = self._taken = 0

    def go_on_from(self, epochs: int, env_steps: int) -> None:
        """So many epochs and steps of the run were done before."""
        self._done, self._taken = epochs, env_steps

    def on_epoch_end(self, runner: Any, epoch: int, metrics: Mapping[str, float]) -> None:
        """Ask for as many epochs as the rest of the steps takes, at the length of those so far."""
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
        self._display.expect_epochs(epochs)
