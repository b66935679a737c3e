"""Runs an experiment from its configuration: trains or evaluates, shows progress, writes the results."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from metaroll.cli import demo, experiments
from metaroll.cli.arguments import blame_input
from metaroll.cli.live import TrainingDisplay
from metaroll.cli.outcome import closing_panel, draw_pictures, evaluation_values, print_json
from metaroll.cli.run_folder import flat_values, package_versions, write_config
from metaroll.training.files import write_json
from metaroll.training.snapshots import latest

__all__ = ["continue_run", "evaluate_run", "start"]


def start(config: Mapping[str, Any], folder: Path, console: Console, as_json: bool) -> None:
    """Train a new run in ``folder``."""
    display = _display(config, console)
    with blame_input():
        experiment = experiments.build(config, folder, callbacks=(display,))
        write_config(folder, config)
    _announce(config, folder, console)
    with contextlib.closing(experiment.runner), _resumable(folder), experiments.torch_threads(config):
        with display:
            experiment.runner.train(n_epochs=config["run"]["epochs"])
        _finish(config, experiment, folder, display, console, as_json)


def continue_run(config: Mapping[str, Any], folder: Path, console: Console, as_json: bool) -> None:
    """Continue the run in ``folder`` from its newest snapshot; one that was killed before the first starts anew."""
    config = _checked(config)
    if latest(folder) is None and not (folder / "metrics.jsonl").exists():
        start(config, folder, console, as_json)
        return
    display = _display(config, console)
    with blame_input():
        experiment = experiments.build(config, folder, callbacks=(display,))
    with contextlib.closing(experiment.runner), _resumable(folder), experiments.torch_threads(config):
        with blame_input():
            done = experiment.runner.restore(folder).start_epoch
        write_config(folder, config)
        epochs, name = config["run"]["epochs"], escape(str(folder))
        if done >= epochs:
            console.print(f"all {done} epochs of {name} are done; `metaroll resume {name} --epochs N` trains more")
        else:
            console.print(f"resuming {name} with epoch {done + 1} of {epochs}")
        display.start_from(done, experiment.runner.total_env_steps)
        with display:
            experiment.runner.resume(n_epochs=max(done, epochs))
        _finish(config, experiment, folder, display, console, as_json)


def evaluate_run(
    config: Mapping[str, Any],
    folder: Path,
    console: Console,
    as_json: bool,
    num_tasks: int | None,
    changes: Mapping[str, Any],
) -> None:
    """Evaluate the newest snapshot in ``folder``; nothing of the run itself is changed."""
    config = _checked(config)
    with blame_input():
        _, test_tasks = experiments.split_tasks(config, num_tasks)
        evaluator = experiments.build_evaluator(config, test_tasks, **changes)
        experiment = experiments.build(config)
    with contextlib.closing(experiment.runner), contextlib.closing(evaluator), experiments.torch_threads(config):
        with blame_input():
            restored = experiment.runner.restore(folder)
        result = evaluator.evaluate(experiment.algo)
    summary = {
        **_identity(config),
        "epoch": restored.start_epoch,
        **evaluation_values(result),
        "versions": package_versions(),
    }
    write_json(folder / "evaluation.json", summary)
    pictures = draw_pictures(folder / "evaluation.png", result, console)
    console.print(closing_panel(summary, folder, pictures, f"metaroll resume {folder}"))
    if as_json:
        print_json(summary)


def _checked(config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration of a file, checked value by value."""
    with blame_input():
        layers = [("the run's config.yaml", flat_values(config))]
        return experiments.resolve(config["algo"], config["env"], layers, config.get("command", "train"))


def _display(config: Mapping[str, Any], console: Console) -> TrainingDisplay:
    title = f"{config['algo']} learns {config['env']} (seed {config['run']['seed']})"
    updates = config["algorithm"].get("num_steps_per_epoch", 0)
    return TrainingDisplay(console, title, config["run"]["epochs"], updates)


def _announce(config: Mapping[str, Any], folder: Path, console: Console) -> None:
    algorithm = config["algorithm"]
    console.print(
        f"{config['algo']} on {config['env']}: {algorithm['num_train_tasks']} training tasks, "
        f"{algorithm['num_test_tasks']} held-out ones\nrun folder {escape(str(folder))}\n"
    )


@contextlib.contextmanager
def _resumable(folder: Path) -> Iterator[None]:
    """Tell who handles Ctrl-C how the run can be continued."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        if any((folder / "snapshots").glob("[0-9]*")):
            interrupt.resume_command = f"metaroll resume {folder}"  # type: ignore[attr-defined]
        raise


def _identity(config: Mapping[str, Any]) -> dict[str, Any]:
    return {"algo": config["algo"], "env": config["env"], "seed": config["run"]["seed"]}


def _finish(
    config: Mapping[str, Any],
    experiment: experiments.Experiment,
    folder: Path,
    display: TrainingDisplay,
    console: Console,
    as_json: bool,
) -> None:
    """Evaluate the finished agent, write ``summary.json`` and the pictures, and say what was learned."""
    result, references = display.last_result, {}
    if config["command"] == "demo":
        evaluator = demo.final_evaluator(config)
        with contextlib.closing(evaluator):
            result = evaluator.evaluate(experiment.algo)
            spec = experiment.algo.env_spec
            references = demo.compare_with_references(result, evaluator, spec, config["run"]["seed"])
    elif result is None:  # nothing was left to train
        result = experiment.evaluator.evaluate(experiment.algo)
    pictures = draw_pictures(folder / "adaptation_curve.png", result, console, references, folder)
    summary = {
        **_identity(config),
        "epochs": config["run"]["epochs"],
        **evaluation_values(result),
        **references,
        "env_steps": int(experiment.runner.total_env_steps),
        "seconds": round(display.seconds, 2),
        "versions": package_versions(),
    }
    write_json(folder / "summary.json", summary)
    further = "metaroll train pearl cheetah-vel" if config["command"] == "demo" else f"metaroll evaluate {folder}"
    console.print(closing_panel(summary, folder, pictures, further))
    if as_json:
        print_json(summary)
