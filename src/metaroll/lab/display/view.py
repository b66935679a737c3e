"""The console as a ``View`` of training: messages, progress, tables, pictures and the closing panel."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self, final

from rich.console import Console

from metaroll.envs.lookup.source import EnvSource
from metaroll.errors import command_text, for_reader
from metaroll.lab.checking.task_checks import tasks_do_not_differ
from metaroll.lab.display.consoles import escape, make_console, show_notes, show_problem
from metaroll.lab.display.progress import EvaluationDisplay, TrainingDisplay
from metaroll.lab.display.results import draw_pictures, show_closing, show_study
from metaroll.lab.display.sizes import size_text
from metaroll.lab.display.timing import RunAmounts
from metaroll.lab.figures.charts import kind_of_tasks
from metaroll.lab.figures.plots import plot_learning_curve
from metaroll.tasks.leak_guard import SplitReport
from metaroll.training.algorithms.building import BuildOptions
from metaroll.training.algorithms.registry import get_algorithm, preset_names
from metaroll.training.evaluation.adaptation_study import AdaptationStudy
from metaroll.training.evaluation.evaluation_result import EvaluationResult, PolicyEvaluation
from metaroll.training.run.views import View
from metaroll.training.session.experiments import tested_on_training
from metaroll.training.session.summaries import success_values
from metaroll.training.store.run_values import adapts

__all__ = ["ConsoleView"]

_MANY_EPISODES = 100_000
"""An evaluation with this many episodes is announced."""


@final
class ConsoleView(View):
    """Shows a session on a console."""

    def __init__(self, console: Console) -> None:
        self._console = console

    @classmethod
    def standard(cls, *, quiet: bool = False) -> Self:
        """On standard output; ``quiet`` shows only notes and errors."""
        return cls(make_console(quiet=quiet))

    def message(self, text: str, *, warning: bool = False) -> None:
        """Print a line, a warning in yellow."""
        self._console.print(escape(text), style="yellow" if warning else None, soft_wrap=True)

    def note(self, text: str) -> None:
        """Print a line on standard error."""
        show_notes([text])

    def error(self, text: str) -> None:
        """Print the error on standard error."""
        show_problem("error:", text)

    def training(self, config: Mapping[str, Any]) -> TrainingDisplay:
        """A live table in a terminal, a line per epoch elsewhere."""
        title = f"training {config['algo']} on {config['env']} (seed {config['run']['seed']})"
        values = config["algorithm"]
        work, every = get_algorithm(config["algo"]).work(values), values.get("evaluate_every", 0)
        episodes = config["evaluation"]
        each = episodes.get("num_adaptation_episodes", 0) + episodes["num_episodes"]
        tasks = (values.get("num_test_tasks") or 1) * episodes.get("repetitions", 1)
        amounts = RunAmounts(
            initial_steps=work.initial_steps,
            epoch_steps=work.epoch_steps,
            epoch_updates=work.epoch_updates,
            evaluation_steps=tasks * each * (values.get("max_steps") or 0),
            evaluate_every=every,
        )
        updates = work.epoch_updates if "gradient_steps" in values else 0
        epochs = config["run"]["epochs"]
        return TrainingDisplay(self._console, title, epochs, updates, adapts=adapts(config), amounts=amounts)

    def evaluation(self) -> EvaluationDisplay:
        """A line that is redrawn in a terminal, and printed now and then elsewhere."""
        return EvaluationDisplay(self._console)

    def evaluation_begins(self, num_episodes: int) -> None:
        """Warn before an evaluation that takes very long."""
        if num_episodes >= _MANY_EPISODES:
            text = f"{num_episodes:,} episodes or more to run: Ctrl-C ends the evaluation without keeping any of it"
            self.message(text, warning=True)

    def new_run(
        self, config: Mapping[str, Any], algo: Any, env: EnvSource, folder: Path, split: SplitReport | None
    ) -> Callable[[], None]:
        """Print the algorithm, its tasks and its folder; warn if the tasks of the user's family do not differ."""
        notes = _notes(config, env)
        tasks, returns, amount = _tasks_and_returns(config, algo, env, split)
        text = (
            f"{config['algo']} on {config['env']}: {tasks}\n{size_text(config, env)}\n"
            f"run folder {folder}{amount}\nreturn: {returns} [95 % interval]\n"
        )
        finding = None
        if env.known.is_entry_point and env.known.has_family:  # tasks of built-in families are known to differ
            finding = tasks_do_not_differ(env.family, config["run"]["seed"])

        def show() -> None:
            for note in notes:
                self.message(note, warning=True)
            self.message(text)
            if finding is not None:
                name = config["env"]
                what = f"[yellow]the tasks of {escape(name)} do not differ:[/] {escape(finding)}"
                self._console.print(
                    f"{what}; `{escape(command_text('check', name))}` checks them in detail\n", soft_wrap=True
                )

        return show

    def run_continues(self, config: Mapping[str, Any], env: EnvSource) -> None:
        """Print notes about the algorithm before training."""
        for note in _notes(config, env):
            self.message(note, warning=True)

    def run_ends(
        self,
        summary: Mapping[str, Any],
        result: EvaluationResult | PolicyEvaluation,
        folder: Path,
        next_command: str,
    ) -> None:
        """Draw the adaptation curve and the learning curve, and print the closing panel."""
        kind = kind_of_tasks(summary)
        picture = folder / "adaptation_curve.png"
        pictures = draw_pictures(picture, result, self._console, summary, folder, tested_on=kind)
        show_closing(self._console, summary, folder, pictures, next_command)

    def run_evaluated(
        self,
        summary: Mapping[str, Any],
        result: EvaluationResult | PolicyEvaluation,
        study: AdaptationStudy | None,
        folder: Path,
        out: Path,
        next_command: str,
    ) -> None:
        """Print the tables of the study, draw the evaluation, and print the closing panel."""
        if study is not None:
            show_study(self._console, study, success_values(study.result))
        kind = kind_of_tasks(summary)
        pictures = draw_pictures(out / "evaluation.png", result, self._console, study=study, tested_on=kind)
        show_closing(self._console, summary, folder, pictures, next_command)

    def learning_curve(self, folder: Path) -> Path:
        """Draw ``learning_curve.png``."""
        return plot_learning_curve(folder)


def _notes(config: Mapping[str, Any], env: EnvSource) -> list[str]:
    """Warnings before training: of the preset and of the algorithm."""
    notes = get_algorithm(config["algo"]).notes(BuildOptions.of(config, env), config["run"]["epochs"])
    return [*_preset_missed(config["algo"], env), *notes]


def _tasks_and_returns(
    config: Mapping[str, Any], algo: Any, env: EnvSource, split: SplitReport | None
) -> tuple[str, str, str]:
    """The training tasks, those of the returns shown, and the amount of training if not yet included."""
    algorithm = config["algorithm"]
    amount = get_algorithm(config["algo"]).amount(algo, algorithm)
    if split is not None:
        tasks, tested = str(split), "held-out tasks"
        if split.overlaps:
            tasks = f"{split.num_train} training and {split.num_test} test tasks, {len(split.overlaps)} in both"
            tasks += ", as the family was published: returns do not predict those in new tasks"
            tested = "test tasks"
        return tasks, f"on {tested}, before adaptation -> after it", f"; {amount}"
    if adapts(config):
        tasks = f"new training tasks in every epoch, {algorithm['num_test_tasks']} held-out tasks"
        return tasks, "on held-out tasks, before adaptation -> after it", f"; {amount}"
    num_tasks, kind = algorithm["num_test_tasks"], "of the training" if tested_on_training(env) else "held-out"
    tested = f"{num_tasks} {kind} tasks" if num_tasks else "the nominal environment"
    draws = algorithm["randomize"] != "none" or bool(algorithm.get("randomize_param"))
    tested = "held-out domain parameters" if draws and not env.is_varied else tested
    return amount, f"in training, and by the deterministic policy in {tested}", ""


def _preset_missed(algo: str, env: EnvSource) -> list[str]:
    """A note that a preset exists but was not used, since the environment was not given by its name."""
    name, why = env.known.id_of_given, "since an environment was given instead of its id"
    if name is None and not env.known.is_given:
        name, why = env.known.newest_version, f"since {env.name!r} is an id without its version"
    if name not in preset_names(algo):
        return []
    call = for_reader(f"metaroll.agent({algo!r}, {name!r})", f"`{command_text('train', algo, name)}`")
    return [f"the preset of {name!r} does not apply, {why}: {call} uses it"]
