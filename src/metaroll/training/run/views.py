"""The contract of what shows a run to its user: messages, progress, tables and pictures.

Training writes numbers and files by itself. What people look at is the business of ``metaroll.lab``, which is above
training: its entry points name the view, which is imported where something is shown.
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
    """Shows how far a run is; a callback of the runner (``on_progress``, ``on_evaluation``, ``on_epoch_end``)."""

    @abstractmethod
    def start_from(self, epoch: int, env_steps: int, seconds: float = 0.0) -> None:
        """The run continues after ``epoch`` epochs, ``env_steps`` steps and ``seconds`` of training."""

    @abstractmethod
    def expect(self, update_seconds: Callable[[], float | None]) -> None:
        """``update_seconds`` can time a gradient step (``RLAlgorithm.update_seconds``)."""

    @abstractmethod
    def expect_epochs(self, num_epochs: int) -> None:
        """The run has another number of epochs from now on."""


class View(ABC):
    """Shows a session: what is trained, how far it is, and what was learned."""

    @abstractmethod
    def message(self, text: str, *, warning: bool = False) -> None:
        """Show a line of text."""

    @abstractmethod
    def note(self, text: str) -> None:
        """Show a sentence beside the results, on standard error."""

    @abstractmethod
    def error(self, text: str) -> None:
        """Show why the process ends; may come from another thread."""

    @abstractmethod
    def training(self, config: Mapping[str, Any]) -> TrainingView:
        """What shows the progress of the run that ``config`` describes."""

    @abstractmethod
    def evaluation(self) -> AbstractContextManager[Callable[[int, int], None]]:
        """What shows how many episodes of an evaluation are done; within ``with``, called with ``(done, total)``."""

    @abstractmethod
    def evaluation_begins(self, num_episodes: int) -> None:
        """An evaluation of at least ``num_episodes`` comes next."""

    @abstractmethod
    def run_begins(
        self, config: Mapping[str, Any], algo: Any, env: EnvSource, folder: Path, split: SplitReport | None
    ) -> None:
        """A new run in ``folder`` trains ``algo``; ``split`` reports on its tasks, where they are a list."""

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
        """A run is complete, and ``summary.json`` is written; ``next_command`` is what a user may want to do next."""

    @abstractmethod
    def run_evaluated(
        self,
        summary: Mapping[str, Any],
        result: EvaluationResult | PolicyEvaluation,
        study: AdaptationStudy | None,
        folder: Path,
        out: Path,
    ) -> None:
        """A snapshot of the run in ``folder`` was evaluated, and ``evaluation.json`` is written into ``out``."""

    @abstractmethod
    def learning_curve(self, folder: Path) -> Path:
        """Draw the learning curve of a run into its folder; the picture."""


def console_view(*, quiet: bool = False) -> View:
    """The view on the standard output, which ``metaroll.lab`` declares; ``quiet`` shows nothing but errors."""
    return pkgutil.resolve_name(contributed("lab")["console"]).standard(quiet=quiet)
