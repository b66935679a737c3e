"""Runs an experiment from its configuration: trains or evaluates, and writes the results.

A ``View`` (``training/run/views.py``) shows it to the user.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from metaroll.data.folders.kinds import RUN
from metaroll.data.folders.taking import take, take_new
from metaroll.envs.lookup.source import EnvSource
from metaroll.errors import (
    DivergedError,
    RolloutError,
    SnapshotError,
    UnknownNameError,
    UsageError,
    blame_input,
    command_text,
    counted,
    flag_of,
    for_reader,
    option_name,
)
from metaroll.option_names import GIVEN
from metaroll.rollouts.failures import without_advice
from metaroll.rollouts.workers.ray_session import head_address
from metaroll.tasks.leak_guard import SplitReport, check_split
from metaroll.tasks.task_key import task_text
from metaroll.training.algorithms.origins import warn_of_changes
from metaroll.training.algorithms.registry import NEXT_RUN, get_algorithm
from metaroll.training.evaluation.adaptation_study import AdaptationStudy, study_adaptation
from metaroll.training.evaluation.evaluation_result import EvaluationResult, PolicyEvaluation
from metaroll.training.evaluation.evaluator import PolicyEvaluator
from metaroll.training.evaluation.meta_evaluator import MetaEvaluator
from metaroll.training.run.views import View, console_view
from metaroll.training.session import demo, experiments
from metaroll.training.session.cluster_watch import watched
from metaroll.training.session.run_config import command_after
from metaroll.training.session.step_goal import LastEvaluation, StepGoal
from metaroll.training.session.summaries import success_values, summary_of
from metaroll.training.store import run_folder
from metaroll.training.store.files import write_json
from metaroll.training.store.run_store import TASK_SPLIT_FILE, check_metrics, check_results_folder, results_after
from metaroll.training.store.run_values import OLDER, adapts, check_same_run, flat_values
from metaroll.training.store.snapshots import Snapshot, latest, load_snapshot
from metaroll.training.store.trust import check_built, check_run

__all__ = ["continue_run", "evaluate_run", "measure", "restored_run", "start", "write_evaluation"]


def start(
    config: Mapping[str, Any],
    folder: Path,
    view: View,
    again: bool = False,
    *,
    callbacks: Sequence[Any] = (),
    built: Callable[[experiments.Experiment], None] | None = None,
    env_steps: int | None = None,
    env: EnvSource | None = None,
) -> dict[str, Any]:
    """Train a new run in ``folder``, and return its summary.

    An earlier demo there is moved to a folder beside it.

    Args:
        config: A configuration from ``experiments.resolve``.
        folder: Folder of the run.
        view: Shows progress and results.
        again: The folder belongs to a run that was killed before its first snapshot.
        callbacks: More callbacks of the runner.
        built: Called with the experiment before training.
        env_steps: Minimum number of environment steps: epochs are added until they are taken.
        env: The environment that the configuration names, if the caller has it.
    """
    is_demo = config["command"] == "demo" and not again
    config = experiments.with_torch_threads(config)
    with contextlib.ExitStack() as stack:
        with blame_input():  # before any file of an earlier run is touched
            display, last = view.training(config), LastEvaluation()
            goal = StepGoal(env_steps, config, folder, display.expect_epochs)
            experiment = experiments.build(config, folder, (goal, last, display, *callbacks), env)
            stack.enter_context(contextlib.closing(experiment.runner))
            split = _split_of(config, experiment.algo, experiment.evaluator)
        show_run = view.new_run(config, experiment.algo, experiment.source, folder, split)
        with blame_input():
            if is_demo:
                held, earlier = take_new(folder, RUN, lambda: run_folder.refuse_foreign(folder, "demo"))
                if earlier is not None:
                    view.message(f"the earlier demo in {folder} is kept as {earlier}")
            else:
                held = take(folder, RUN, None if again else lambda: run_folder.refuse_existing(folder))
            stack.enter_context(held)
            run_folder.write_config(folder, config)
            if split is not None:
                texts = [task_text(update.task) for update in experiment.evaluator.draw()]
                write_json(folder / TASK_SPLIT_FILE, {**split.to_dict(), "test_tasks": texts})
        stack.enter_context(_training(config, folder, experiment, view))
        if built is not None:
            built(experiment)
        show_run()
        with display:
            display.expect(experiment.algo.update_seconds)
            experiment.runner.train(n_epochs=config["run"]["epochs"])
        return _finish(goal.config, experiment, folder, last, view, split)


def continue_run(
    config: Mapping[str, Any],
    folder: Path,
    view: View,
    from_epoch: int | str | None = None,
    *,
    callbacks: Sequence[Any] = (),
    built: Callable[[experiments.Experiment], None] | None = None,
    env_steps: int | None = None,
    trust: bool = False,
    env: EnvSource | None = None,
    env_given: bool = False,
) -> dict[str, Any]:
    """Continue the run in ``folder`` from a snapshot; a run that was killed before its first one starts again.

    ``callbacks``, ``built``, ``env_steps`` (counted from the snapshot) and ``env`` are as for ``start``, ``trust`` and
    ``env_given`` as for ``check_run``.
    """
    run_folder.check_links(folder)
    asked = config
    config, env = _checked(config, folder, from_epoch, trust, env, env_given, view)
    begun = any((folder / name).exists() for name in ("metrics.jsonl", run_folder.SUMMARY_FILE))
    if from_epoch is None and latest(folder) is None and not begun:
        return start(config, folder, view, again=True, callbacks=callbacks, built=built, env_steps=env_steps, env=env)
    with contextlib.ExitStack() as stack:
        with blame_input():
            display, last = view.training(config), LastEvaluation()
            goal = StepGoal(env_steps, config, folder, display.expect_epochs)
            stack.enter_context(take(folder, RUN))
            snapshot = _check_snapshot(config, folder, from_epoch)
            check_metrics(folder, snapshot)
            done = snapshot.iteration
            results_after(folder, done)  # one that cannot be read ends this before anything is changed
            epochs = config["run"]["epochs"]
            if epochs < done:
                name = option_name("epochs")
                raise UsageError(f"{name} must be at least {done}, the number of finished epochs, got {epochs}")
            experiment = experiments.build(config, folder, (goal, last, display, *callbacks), env)
        stack.enter_context(_training(config, folder, experiment, view))
        with blame_input():
            experiment.runner.restore(folder, done)
            try:
                experiment.runner.check_resumes(epochs)
            except UnknownNameError:
                if from_epoch is not None or flat_values(asked) != flat_values(run_folder.read_config(folder)):
                    stack.close()  # nothing has changed, so there is nothing to continue
                raise
            split = _split_of(config, experiment.algo, experiment.evaluator)
            run_folder.write_config(folder, config)
        if built is not None:
            built(experiment)
        if done >= epochs:
            more = command_text("resume", folder, "--epochs", "N")
            finished = "the only epoch of" if done == 1 else f"all {done} epochs of"
            view.message(f"{finished} {folder} {'is' if done == 1 else 'are'} done; `{more}` trains further")
        else:
            steps = 0 if done else experiment.runner.total_env_steps
            inside = f", {steps:,} environment steps into its warm-up" if steps else ""
            view.message(f"resuming {folder} at epoch {done + 1} of {epochs}{inside}")
            if not snapshot.has_buffers and experiment.algo.buffers_state_dict(copy=False) is not None:
                view.message("the replay buffer is empty: only the newest snapshot of a run keeps it")
            view.run_continues(config, env)
        goal.continue_from(done, experiment.runner.total_env_steps)
        display.start_from(done, experiment.runner.total_env_steps, experiment.runner.total_seconds)
        with display:
            display.expect(experiment.algo.update_seconds)
            experiment.runner.resume(n_epochs=epochs)
        return _finish(goal.config, experiment, folder, last, view, split)


def evaluate_run(
    config: Mapping[str, Any],
    folder: Path,
    view: View,
    num_tasks: int | None,
    changes: Mapping[str, Any],
    from_epoch: int | str | None,
    out: Path,
    *,
    trust: bool = False,
) -> dict[str, Any]:
    """Evaluate a snapshot in ``folder`` and write the results to ``out``; the run itself is not changed.

    Args:
        config: Configuration of the run.
        folder: Folder of the run.
        view: Shows the results.
        num_tasks: Number of held-out tasks; ``None`` means as in training.
        changes: Arguments of the evaluator that replace those of the run.
        from_epoch: Finished epochs of the snapshot, or ``"best"``; ``None`` means the newest.
        out: Folder of the results.
        trust: See ``check_run``.
    """
    check_results_folder(out, folder)
    with contextlib.ExitStack() as stack:
        config, experiment, epoch = stack.enter_context(restored_run(config, folder, from_epoch, trust, view=view))
        with blame_input():
            view.evaluation_begins(experiments.episodes_of_evaluation(config, num_tasks, changes))
            _, test_tasks = experiments.split_tasks(config, experiment.source, num_tasks)
            if num_tasks is not None and not test_tasks:
                raise UsageError(
                    f"{option_name('num_tasks')} is for runs with held-out tasks; this one has only {config['env']} "
                    "itself: use --episodes N for more episodes"
                )
            evaluator = stack.enter_context(
                contextlib.closing(experiments.build_evaluator(config, experiment.source, test_tasks, **changes))
            )
            _split_of(config, experiment.algo, evaluator)
        if epoch == 0:
            view.message("this agent is untrained: the run has not finished its first epoch", warning=True)
        result, study = measure(evaluator, experiment.algo, view)
        summary = write_evaluation(config, experiment, evaluator, (result, study), epoch, out)
    more = () if (latest(folder) or 0) < config["run"]["epochs"] else ("--epochs", "N")
    view.run_evaluated(summary, result, study, folder, out, command_text("resume", folder, *more))
    return summary


def measure(
    evaluator: MetaEvaluator | PolicyEvaluator, algo: Any, view: View, shots: Sequence[int] | None = None
) -> tuple[EvaluationResult | PolicyEvaluation, AdaptationStudy | None]:
    """Evaluate ``algo``; if it adapts, also return the study that its verdict is based on.

    Args:
        evaluator: How it is evaluated.
        algo: The algorithm.
        view: Shows the progress.
        shots: Those of ``study_adaptation``.
    """
    with view.evaluation() as display:
        if not isinstance(evaluator, MetaEvaluator):
            return evaluator.evaluate(algo, progress=display), None
        study = study_adaptation(evaluator, algo, shots=shots, progress=display)
    return dataclasses.replace(study.result, verdict=study.verdict(), rollouts=None), study


def write_evaluation(
    config: Mapping[str, Any],
    experiment: experiments.Experiment,
    evaluator: MetaEvaluator | PolicyEvaluator,
    measured: tuple[EvaluationResult | PolicyEvaluation, AdaptationStudy | None],
    epoch: int,
    out: Path,
) -> dict[str, Any]:
    """Write the result of ``measure`` as ``evaluation.json`` to the folder ``out``; return its content."""
    result, study = measured
    success = {} if study is None else success_values(study.result)
    more = {} if study is None else {**study.to_dict(), **success}
    split = _split_of(config, experiment.algo, evaluator)
    # Comparisons with an evaluation of training need what its settings leave to the algorithm, too.
    protocols = {
        "protocol": evaluator.protocol(experiment.algo),
        "training_protocol": experiment.evaluator.protocol(experiment.algo),
    }
    summary = summary_of(config, experiment.source, result, split, epoch=epoch, **protocols, **more)
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / run_folder.EVALUATION_FILE, summary)
    return summary


@contextlib.contextmanager
def restored_run(
    config: Mapping[str, Any],
    folder: Path,
    from_epoch: int | str | None = None,
    trust: bool = False,
    env: EnvSource | None = None,
    env_given: bool = False,
    view: View | None = None,
) -> Iterator[tuple[dict[str, Any], experiments.Experiment, int]]:
    """The checked configuration, the experiment restored from a snapshot in ``folder``, and its number of epochs.

    The run may still be training and replace its snapshots (including the best one) meanwhile. ``trust`` and
    ``env_given`` are as for ``check_run``, ``env`` as for ``start``; ``view`` shows what the run imports.
    """
    checked, env = _checked(config, folder, from_epoch, trust, env, env_given, view or console_view())
    with blame_input():
        experiment = experiments.build(checked, env=env)
    with contextlib.closing(experiment.runner), experiments.torch_threads(checked["run"]["torch_threads"]):
        epoch = None
        while epoch is None:
            newest = latest(folder)
            try:
                with blame_input():
                    done = _check_snapshot(checked, folder, from_epoch).iteration
                    epoch = experiment.runner.restore(folder, done).start_epoch
            except (SnapshotError, UsageError):
                if from_epoch not in (None, "best") or latest(folder) == newest:
                    raise
        yield checked, experiment, epoch


def _checked(
    config: Mapping[str, Any],
    folder: Path,
    from_epoch: int | str | None,
    trust: bool,
    env: EnvSource | None,
    env_given: bool,
    view: View,
) -> tuple[dict[str, Any], EnvSource]:
    """The configuration in ``folder``, checked value by value, and its environment (``env``, if the caller has it).

    This first checks whether the modules that it names may be imported.
    """
    with blame_input():
        written = run_folder.read_config(folder)
        for note in check_run(config, written, folder, trust, from_epoch, env_given):
            view.note(note)
        warn_of_changes(written, folder)
        values, kept = flat_values(config), flat_values(written)
        changes = {name: value for name, value in values.items() if name not in kept or kept[name] != value}
        layers = [(str(folder / run_folder.CONFIG_FILE), {**OLDER, **values}), (GIVEN, changes)]
        env = EnvSource.of(config["env"]) if env is None else env
        checked = experiments.resolve(config["algo"], env, layers, config.get("command", "train"), kept=True)
        check_built(checked, config, folder)
        return checked, env


def _check_snapshot(config: Mapping[str, Any], folder: Path, from_epoch: int | str | None) -> Snapshot:
    """The snapshot to use, which must belong to the run that ``config`` describes."""
    snapshot = load_snapshot(folder, "last" if from_epoch is None else from_epoch)
    check_same_run(config, snapshot.manifest.get("config"), folder)
    return snapshot


@contextlib.contextmanager
def _training(
    config: Mapping[str, Any], folder: Path, experiment: experiments.Experiment, view: View
) -> Iterator[None]:
    """Attach the command that continues the run to errors and Ctrl-C, and watch the Ray cluster."""
    resume = command_text("resume", folder)

    def lost(address: str) -> None:
        view.error(f"the Ray cluster at {address} no longer responds; what was saved is kept; continue with: {resume}")

    on_ray = config["run"]["transport"] == "ray"
    try:
        with (
            watched(head_address, lost) if on_ray else contextlib.nullcontext(),
            contextlib.closing(experiment.runner),
            experiments.torch_threads(config["run"]["torch_threads"]),
        ):
            yield
    except SnapshotError:
        raise  # its message already says what to do
    except BaseException as error:
        # Without a snapshot a run starts again, which helps after Ctrl-C, but not after an error. One with metrics but
        # no snapshot was configured so (snapshot_mode none).
        interrupted = isinstance(error, KeyboardInterrupt | BrokenPipeError)
        if isinstance(error, DivergedError):
            error.anew_command = _command_with_lower_value(config, folder, error.lower)  # type: ignore[attr-defined]
        elif latest(folder) is not None or (interrupted and not (folder / "metrics.jsonl").exists()):
            error.resume_command = command_after(error, folder)  # type: ignore[attr-defined]
            error.epochs_kept = latest(folder) or 0  # type: ignore[attr-defined]
        if isinstance(error, RolloutError):
            without_advice(error, engines=True)
        raise


def _command_with_lower_value(config: Mapping[str, Any], folder: Path, lower: Mapping[str, float]) -> str:
    """The command for a new run with the settings of one that diverged, but with the first of ``lower`` reduced."""
    name, value = next(iter(lower.items()))
    changed = (flag_of(name), f"{value / 10:g}")
    kept = folder / run_folder.CONFIG_FILE
    return command_text("train", config["algo"], config["env"], "--config", kept, *changed)


def _finish(
    config: Mapping[str, Any],
    experiment: experiments.Experiment,
    folder: Path,
    last: LastEvaluation,
    view: View,
    split: SplitReport | None,
) -> dict[str, Any]:
    """Evaluate the finished agent, write ``summary.json``, and show the results."""
    epochs, more = config["run"]["epochs"], {}
    result, is_demo = last.result_of(epochs), config["command"] == "demo"
    evaluator: Any = demo.final_evaluator(config, experiment.source) if is_demo else experiment.evaluator
    with contextlib.closing(evaluator):
        if isinstance(evaluator, MetaEvaluator):
            with view.evaluation() as progress:
                study = study_adaptation(evaluator, experiment.algo, shots=[0], progress=progress)  # only the baselines
            result, floor = study.result, None
            if is_demo:
                floor, oracle = demo.floor_and_oracle(result, evaluator, experiment.algo.env_spec)
                more = demo.compare_with_references(result, floor, oracle, config["run"]["seed"])
            more = {**more, "verdict": study.verdict(floor).to_dict()}
        elif result is None:  # there was nothing to train, or the last epoch was not evaluated
            with view.evaluation() as progress:
                result = evaluator.evaluate(experiment.algo, progress=progress)
    stopped = experiment.runner.stopped_after
    ended = get_algorithm(config["algo"]).ended_early(experiment.algo)
    ended = ended if stopped is None else (stopped, experiment.runner.stop_reason)
    if ended is not None and ended[0] < epochs:
        epochs, more = ended[0], {**more, "ended_early": True}
        view.message(f"ended after {counted(epochs, 'epoch')}: {ended[1]}")
    if (best := experiment.runner.best) is not None:
        more["best"] = best
        call = for_reader("metaroll.load(..., from_epoch='best')", "--from-epoch best")
        value = f"best {best['metric']}, {best['value']:.6g}, after {counted(best['iteration'], 'epoch')}"
        view.message(f"{value}: {call} selects it")
    steps, seconds = int(experiment.runner.total_env_steps), round(experiment.runner.total_seconds, 2)
    more = {**more, "protocol": evaluator.protocol(experiment.algo), "env_steps": steps, "seconds": seconds}
    summary = summary_of(config, experiment.source, result, split, epochs=epochs, **more)
    write_json(folder / run_folder.SUMMARY_FILE, summary)
    evaluates = f"{for_reader('agent.evaluate(), or ', '')}{command_text('evaluate', folder)}"
    view.run_ends(summary, result, folder, command_text("train", *NEXT_RUN.split()) if is_demo else evaluates)
    return summary


def _split_of(config: Mapping[str, Any], algo: Any, evaluator: Any) -> SplitReport | None:
    """The report of the leak guard; ``None`` for algorithms that do not adapt, or without a list of training tasks.

    Held-out tasks that occur in training are an error, unless the evaluator allows it.
    """
    if not adapts(config) or algo.train_tasks is None:
        return None
    return check_split(algo.train_tasks, evaluator.draw(), overlap="accept" if evaluator.allow_overlap else "refuse")
