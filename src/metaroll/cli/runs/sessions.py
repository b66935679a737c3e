"""Runs an experiment from its configuration: trains or evaluates, shows progress, writes the results."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from metaroll.cli.display.consoles import escape, make_console
from metaroll.cli.display.evaluation_tables import show_study, success_values
from metaroll.cli.display.progress import TrainingDisplay
from metaroll.cli.display.summary import closing_panel, draw_pictures, evaluation_values, print_json
from metaroll.cli.experiment import demo, experiments
from metaroll.cli.options import UsageError, blame_input
from metaroll.cli.runs.cluster_watch import watched
from metaroll.cli.runs.run_config import check_same_run, flat_values
from metaroll.diagnostics.task_checks import tasks_do_not_differ
from metaroll.envs.lookup.registry import get_family, has_family, is_entry_point, is_varied
from metaroll.errors import SnapshotError
from metaroll.rollouts.workers.ray_session import head_address
from metaroll.tasks.leak_guard import SplitReport, check_split
from metaroll.training.algorithms.description import BuildOptions
from metaroll.training.algorithms.registry import NEXT_RUN, get_algorithm
from metaroll.training.evaluation.adaptation_study import study_adaptation
from metaroll.training.evaluation.meta_evaluator import MetaEvaluator
from metaroll.training.store.files import write_json
from metaroll.training.store.metrics_log import read_metrics
from metaroll.training.store.run_folder import (
    CONFIG_FILE,
    clear_run,
    lock_run,
    package_versions,
    refuse_existing,
    write_config,
)
from metaroll.training.store.run_store import TASK_SPLIT_FILE, check_metrics
from metaroll.training.store.snapshots import Snapshot, latest, load_snapshot

__all__ = ["continue_run", "evaluate_run", "restored_run", "start"]


def start(config: Mapping[str, Any], folder: Path, console: Console, as_json: bool) -> None:
    """Train a new run in ``folder``; the demo replaces its earlier run there."""
    prepare = clear_run if config["command"] == "demo" else _refuse_existing
    _start(config, folder, console, as_json, prepare)


def _refuse_existing(folder: Path, command: str) -> None:
    refuse_existing(folder)


def _start(
    config: Mapping[str, Any],
    folder: Path,
    console: Console,
    as_json: bool,
    prepare: Callable[[Path, str], None] | None = None,
) -> None:
    config = experiments.with_torch_threads(config)
    display = _display(config, console)
    with contextlib.ExitStack() as stack:
        with blame_input():  # all of it before the first file of an earlier run is touched
            experiment = experiments.build(config, folder, callbacks=(display,))
            split = _split_of(config, experiment.algo, experiment.evaluator)
            stack.enter_context(lock_run(folder))
            if prepare is not None:
                prepare(folder, config["command"])
            write_config(folder, config)
            _write_split(folder, split)
        stack.enter_context(_resumable(folder, config))
        stack.enter_context(contextlib.closing(experiment.runner))
        stack.enter_context(experiments.torch_threads(config))
        _announce(config, experiment.algo, folder, console, split)
        _warn_of_equal_tasks(config, console)
        with display:
            experiment.runner.train(n_epochs=config["run"]["epochs"])
        _finish(config, experiment, folder, display, console, as_json, split)


def continue_run(
    config: Mapping[str, Any], folder: Path, console: Console, as_json: bool, from_epoch: int | None = None
) -> None:
    """Continue the run in ``folder`` from a snapshot; one that was killed before the first starts anew."""
    config = _checked(config, folder)
    begun = any((folder / name).exists() for name in ("metrics.jsonl", "summary.json"))
    if from_epoch is None and latest(folder) is None and not begun:
        _start(config, folder, console, as_json)
        return
    display = _display(config, console)
    with contextlib.ExitStack() as stack:
        with blame_input():
            stack.enter_context(lock_run(folder))
            snapshot = _check_snapshot(config, folder, from_epoch)
            check_metrics(folder, snapshot)
            done = snapshot.iteration
            epochs, name = config["run"]["epochs"], escape(str(folder))
            if epochs < done:
                raise UsageError(f"--epochs must be at least {done}, the number of finished epochs, got {epochs}")
            experiment = experiments.build(config, folder, callbacks=(display,))
        stack.enter_context(_resumable(folder, config))
        stack.enter_context(contextlib.closing(experiment.runner))
        stack.enter_context(experiments.torch_threads(config))
        with blame_input():
            experiment.runner.restore(folder, done)
            split = _split_of(config, experiment.algo, experiment.evaluator)
            write_config(folder, config)
        if done >= epochs:
            console.print(
                f"all {done} epochs of {name} are done; `metaroll resume {name} --epochs N` trains more", soft_wrap=True
            )
        else:
            console.print(f"resuming {name} with epoch {done + 1} of {epochs}")
            _show_notes(config, epochs, console)
        display.start_from(done, experiment.runner.total_env_steps, _seconds_so_far(folder, done))
        with display:
            experiment.runner.resume(n_epochs=epochs)
        _finish(config, experiment, folder, display, console, as_json, split)


def evaluate_run(
    config: Mapping[str, Any],
    folder: Path,
    console: Console,
    as_json: bool,
    num_tasks: int | None,
    changes: Mapping[str, Any],
    from_epoch: int | None = None,
    out: Path | None = None,
) -> None:
    """Evaluate a snapshot in ``folder``, and write the results there or to ``out``; the run itself is not changed."""
    config, out = _checked(config, folder), folder if out is None else out
    with blame_input():
        _, test_tasks = experiments.split_tasks(config, num_tasks)
        if num_tasks is not None and not test_tasks:
            raise UsageError(
                f"--num-tasks is for runs with held-out tasks; this one is evaluated in {config['env']} as it is: ask "
                "for more episodes with --episodes N instead"
            )
        evaluator = experiments.build_evaluator(config, test_tasks, **changes)
        experiment = experiments.build(config)
        split = _split_of(config, experiment.algo, evaluator)
    with contextlib.closing(experiment.runner), contextlib.closing(evaluator), experiments.torch_threads(config):
        with blame_input():
            epoch = _restore_newest(config, experiment, folder, from_epoch)
        study = study_adaptation(evaluator, experiment.algo) if isinstance(evaluator, MetaEvaluator) else None
        result = evaluator.evaluate(experiment.algo) if study is None else study.result
    success = {} if study is None else success_values(study.result, first=3)
    summary = {
        **_identity(config),
        "epoch": epoch,
        **evaluation_values(result, config),
        **({} if study is None else study.to_dict()),
        **success,
        **({} if split is None else {"task_split": split.to_dict()}),
        "versions": package_versions(),
    }
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / "evaluation.json", summary)
    if study is not None:
        show_study(console, study, success)
    pictures = draw_pictures(out / "evaluation.png", result, console, study=study)
    console.print(closing_panel(summary, folder, pictures, f"metaroll resume {folder} --epochs N"))
    if as_json:
        print_json(summary)


@contextlib.contextmanager
def restored_run(
    config: Mapping[str, Any], folder: Path, from_epoch: int | None = None
) -> Iterator[tuple[dict[str, Any], experiments.Experiment, int]]:
    """The checked configuration, the experiment as a snapshot in ``folder`` has it, and its number of epochs."""
    checked = _checked(config, folder)
    with blame_input():
        experiment = experiments.build(checked)
    with contextlib.closing(experiment.runner), experiments.torch_threads(checked):
        with blame_input():
            epoch = _restore_newest(checked, experiment, folder, from_epoch)
        yield checked, experiment, epoch


def _checked(config: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The configuration in ``folder``, checked value by value."""
    with blame_input():
        layers = [(str(folder / CONFIG_FILE), flat_values(config))]
        return experiments.resolve(config["algo"], config["env"], layers, config.get("command", "train"))


def _check_snapshot(config: Mapping[str, Any], folder: Path, from_epoch: int | None) -> Snapshot:
    """The snapshot to use, which must be of the run that ``config`` describes."""
    snapshot = load_snapshot(folder, "last" if from_epoch is None else from_epoch)
    check_same_run(config, snapshot.manifest.get("config"), folder)
    return snapshot


def _restore_newest(
    config: Mapping[str, Any], experiment: experiments.Experiment, folder: Path, from_epoch: int | None
) -> int:
    """Number of finished epochs in the snapshot that was restored, of a run that perhaps is training still."""
    while True:
        newest = latest(folder)
        try:
            epoch = _check_snapshot(config, folder, from_epoch).iteration
            return experiment.runner.restore(folder, epoch).start_epoch
        except (SnapshotError, OSError):
            if from_epoch is not None or latest(folder) == newest:
                raise  # otherwise it was replaced by a newer one in the meantime


def _seconds_so_far(folder: Path, done: int) -> float:
    """Seconds of training in the first ``done`` epochs, as far as the metrics tell."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        rows = read_metrics(folder, phase="time", metric="total_seconds")
        return float(max((row["value"] for row in rows if row["iteration"] < done), default=0.0))
    return 0.0


def _display(config: Mapping[str, Any], console: Console) -> TrainingDisplay:
    title = f"{config['algo']} learns {config['env']} (seed {config['run']['seed']})"
    updates = config["algorithm"].get("num_steps_per_epoch", 0)
    return TrainingDisplay(
        console, title, config["run"]["epochs"], updates, adapts=get_algorithm(config["algo"]).adapts
    )


def _announce(config: Mapping[str, Any], algo: Any, folder: Path, console: Console, split: SplitReport | None) -> None:
    algorithm = config["algorithm"]
    amount = get_algorithm(config["algo"]).amount(algo, algorithm)
    _show_notes(config, config["run"]["epochs"], console)
    if split is None:
        num_tasks = algorithm["num_test_tasks"]
        where = f"{num_tasks} held-out tasks" if num_tasks else "the environment as it is"
        draws = algorithm["randomize"] != "none" or bool(algorithm.get("randomize_param"))
        if draws and not is_varied(config["env"]):
            where = "held-out domain parameters"
        console.print(
            f"{config['algo']} on {config['env']}: {amount}\nrun folder {escape(str(folder))}\n"
            f"return: in training, and without noise in {where} [95 % interval]\n",
            soft_wrap=True,
        )
        return
    where = "test tasks" if split.overlaps else "held-out tasks"
    console.print(
        f"{config['algo']} on {config['env']}: {_describe_split(split)}\n"
        f"run folder {escape(str(folder))}; {amount}\n"
        f"return: on {where}, before adaptation -> after it [95 % interval]\n",
        soft_wrap=True,
    )


def _show_notes(config: Mapping[str, Any], epochs: int, console: Console) -> None:
    """What a user should know of the algorithm before training."""
    for note in get_algorithm(config["algo"]).notes(BuildOptions.of(config), epochs):
        console.print(f"[yellow]{escape(note)}[/]", soft_wrap=True)


@contextlib.contextmanager
def _resumable(folder: Path, config: Mapping[str, Any]) -> Iterator[None]:
    """Tell who handles errors and Ctrl-C how the run can be continued; a Ray cluster that is lost is an error."""
    resume = f"metaroll resume {shlex.quote(str(folder))}"

    def lost(address: str) -> None:
        text = f"the Ray cluster at {address} does not answer any more; what was saved is kept; continue with: {resume}"
        make_console(stderr=True).print(f"[bold red]error:[/] {escape(text)}", soft_wrap=True)

    try:
        with watched(head_address, lost) if config["run"]["transport"] == "ray" else contextlib.nullcontext():
            yield
    except SnapshotError:
        raise  # it says itself what can be done
    except BaseException as error:
        # A run that wrote metrics but no snapshot was told to (snapshot_mode none).
        if latest(folder) is not None or not (folder / "metrics.jsonl").exists():
            error.resume_command = resume  # type: ignore[attr-defined]
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
    split: SplitReport | None,
) -> None:
    """Evaluate the finished agent, write ``summary.json`` and the pictures, and say what was learned."""
    result, references = display.result_of(config["run"]["epochs"]), {}
    if config["command"] == "demo":
        evaluator = demo.final_evaluator(config)
        with contextlib.closing(evaluator):
            result = evaluator.evaluate(experiment.algo)
            spec = experiment.algo.env_spec
            references = demo.compare_with_references(result, evaluator, spec, config["run"]["seed"])
    elif result is None:  # nothing was left to train, or the last epoch was not evaluated
        result = experiment.evaluator.evaluate(experiment.algo)
    epochs, ending = config["run"]["epochs"], {}
    ended = get_algorithm(config["algo"]).ended_early(experiment.algo)
    if ended is not None and ended[0] < epochs:
        epochs, ending = ended[0], {"ended_early": True}
        console.print(f"ended after {epochs} epochs: {ended[1]}")
    summary = {
        **_identity(config),
        "epochs": epochs,
        **ending,
        **evaluation_values(result, config),
        **references,
        **({} if split is None else {"task_split": split.to_dict()}),
        "env_steps": int(experiment.runner.total_env_steps),
        "seconds": round(display.seconds, 2),
        "versions": package_versions(),
    }
    write_json(folder / "summary.json", summary)
    pictures = draw_pictures(folder / "adaptation_curve.png", result, console, references, folder)
    further = f"metaroll train {NEXT_RUN}" if config["command"] == "demo" else f"metaroll evaluate {folder}"
    console.print(closing_panel(summary, folder, pictures, further))
    if as_json:
        print_json(summary)


def _split_of(config: Mapping[str, Any], algo: Any, evaluator: Any) -> SplitReport | None:
    """The report of the leak guard; ``None`` for algorithms that do not adapt.

    Held-out tasks that occur in training are an error, unless the evaluator was told that they may.
    """
    if not get_algorithm(config["algo"]).adapts:
        return None
    return check_split(algo.train_tasks, evaluator.draw(), overlap="accept" if evaluator.allow_overlap else "refuse")


def _describe_split(report: SplitReport) -> str:
    """The report in words; where training tasks are tested on, what that means."""
    if not report.overlaps:
        return str(report)
    numbers = f"{report.num_train} training and {report.num_test} test tasks, {len(report.overlaps)} in both"
    return f"{numbers}, as the family was published: returns do not tell what happens in new tasks"


def _write_split(folder: Path, report: SplitReport | None) -> None:
    """Write the report into the folder of the run."""
    if report is not None:
        write_json(folder / TASK_SPLIT_FILE, report.to_dict())


def _warn_of_equal_tasks(config: Mapping[str, Any], console: Console) -> None:
    """Say so if the tasks of a user's own family are all the same in a few steps; ours are known to differ."""
    name = config["env"]
    if not is_entry_point(name) or not has_family(name):
        return
    finding = tasks_do_not_differ(get_family(name), config["run"]["seed"])
    if finding is not None:
        text = f"[yellow]the tasks of {escape(name)} do not differ:[/] {escape(finding)}"
        console.print(f"{text}; `metaroll check {escape(name)}` looks closer\n", soft_wrap=True)
