"""The interface for showing a run to its user: messages, progress, tables and pictures.

Training itself only writes numbers and files. Displays belong to ``metaroll.lab``, a layer above training: its entry
point names the view, which is imported when something has to be shown.
"""

from __future__ import annotations

import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from metaroll.envs.lookup.source import EnvSource
from metaroll.own_code import contributed
from metaroll.tasks.leak_guard import SplitReport
from metaroll.training.evaluation.adaptation_study import AdaptationStudy
from metaroll.training.evaluation.evaluation_result import EvaluationResult, PolicyEvaluation

__all__ = ["TrainingView", "View", "console_view"]


class TrainingView(AbstractContextManager["TrainingView"], ABC):
    """Shows the progress of a run; a callback of the runner (``on_progress``, ``on_evaluation``, ``on_epoch_end``)."""

    @abstractmethod
    def start_from(self, epoch: int, env_steps: int, seconds: float = 0.0) -> None:
        """The run continues after ``epoch`` epochs, ``env_steps`` steps and ``seconds`` of training."""

    @abstractmethod
    def expect(self, update_seconds: Callable[[], float | None]) -> None:
        """``update_seconds`` can time a gradient step (``RLAlgorithm.update_seconds``)."""

    @abstractmethod
    def expect_epochs(self, num_epochs: int) -> None:
        """The number of epochs of the run has changed."""


class View(ABC):
    """Shows a session: its configuration, progress and results."""

    @abstractmethod
    def message(self, text: str, *, warning: bool = False) -> None:
        """Show a line of text."""

    @abstractmethod
    def note(self, text: str) -> None:
        """Show a sentence beside the results, on standard error."""

    @abstractmethod
    def error(self, text: str) -> None:
        """Show why the process ends; may be called from another thread."""

    @abstractmethod
    def training(self, config: Mapping[str, Any]) -> TrainingView:
        """The display for the progress of the run that ``config`` describes."""

    @abstractmethod
    def evaluation(self) -> AbstractContextManager[Callable[[int, int], None]]:
        """The display for the progress of an evaluation; within ``with``, called with ``(done, total)`` episodes."""

    @abstractmethod
    def evaluation_begins(self, num_episodes: int) -> None:
        """An evaluation of at least ``num_episodes`` follows."""

    @abstractmethod
    def new_run(
        self, config: Mapping[str, Any], algo: Any, env: EnvSource, folder: Path, split: SplitReport | None
    ) -> Callable[[], None]:
        """Prepare to show that a new run in ``folder`` trains ``algo``; the result is called when the folder is taken.

        Code of plug-ins and environments, which may fail, runs before. ``split`` reports on the tasks, if they are a
        list.
        """

    @abstractmethod
    def run_continues(self, config: Mapping[str, Any], env: EnvSource) -> None:
        """A run is resumed."""

    @abstractmethod
    def run_ends(
        self,
        summary: Mapping[str, Any],
        result: EvaluationResult | PolicyEvaluation,
        folder: Path,
        next_command: str,
    ) -> None:
        """A run is complete and ``summary.json`` is written; ``next_command`` is a suggestion for the next step."""

    @abstractmethod
    def run_evaluated(
        self,
        summary: Mapping[str, Any],
        result: EvaluationResult | PolicyEvaluation,
        study: AdaptationStudy | None,
        folder: Path,
        out: Path,
        next_command: str,
    ) -> None:
        """A snapshot of the run in ``folder`` was evaluated, and ``evaluation.json`` is written into ``out``."""

    @abstractmethod
    def learning_curve(self, folder: Path) -> Path:
        """Draw the learning curve of a run into its folder; return the picture."""


def console_view(*, quiet: bool = False) -> View:
    """The view on standard output, which ``metaroll.lab`` declares; ``quiet`` shows only notes and errors."""
    return pkgutil.resolve_name(contributed("lab")["console"]).standard(quiet=quiet)
