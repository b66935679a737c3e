"""Runs an experiment from its configuration: trains or evaluates, shows progress, writes the results."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from metaroll.data.folders.kinds import RUN
from metaroll.data.folders.taking import take, take_new
from metaroll.envs.lookup.source import EnvSource
from metaroll.errors import (
    DivergedError,
    RolloutError,
    SnapshotError,
    UsageError,
    blame_input,
    command_text,
    option_name,
    said,
)
from metaroll.lab.checking.task_checks import tasks_do_not_differ
from metaroll.lab.display.consoles import escape, show_notes, show_problem
from metaroll.lab.display.progress import EvaluationDisplay, TrainingDisplay, tell_of_many
from metaroll.lab.display.results import (
    closing_panel,
    draw_pictures,
    evaluation_values,
    show_study,
    success_values,
)
from metaroll.lab.display.timing import RunAmounts
from metaroll.lab.runs.run_reports import read_run, read_summary
from metaroll.option_names import GIVEN
from metaroll.rollouts.failures import without_advice
from metaroll.rollouts.workers.ray_session import head_address
from metaroll.tasks.leak_guard import SplitReport, check_split
from metaroll.tasks.task_key import task_text
from metaroll.training.algorithms.building import BuildOptions
from metaroll.training.algorithms.origins import warn_of_changes
from metaroll.training.algorithms.registry import NEXT_RUN, get_algorithm, preset_names
from metaroll.training.evaluation.adaptation_study import AdaptationStudy, study_adaptation
from metaroll.training.evaluation.evaluation_result import EvaluationResult, PolicyEvaluation
from metaroll.training.evaluation.evaluator import PolicyEvaluator
from metaroll.training.evaluation.meta_evaluator import MetaEvaluator
from metaroll.training.session import demo, experiments
from metaroll.training.session.cluster_watch import watched
from metaroll.training.session.run_config import changed
from metaroll.training.session.sizes import size_text
from metaroll.training.session.step_goal import StepGoal
from metaroll.training.store import run_folder
from metaroll.training.store.files import write_json
from metaroll.training.store.metrics_log import read_metrics
from metaroll.training.store.run_store import TASK_SPLIT_FILE, check_metrics
from metaroll.training.store.run_values import (
    OLDER,
    adapts,
    check_same_run,
    flat_values,
    same_request,
)
from metaroll.training.store.snapshots import Snapshot, latest, load_snapshot
from metaroll.training.store.trust import check_built, check_run

__all__ = ["continue_run", "evaluate_run", "measure", "restored_run", "start", "write_evaluation"]

_FINISH_FIRST = 3
"""Episodes that count by Meta-World's rule."""


def start(
    config: Mapping[str, Any],
    folder: Path,
    console: Console,
    again: bool = False,
    *,
    callbacks: Sequence[Any] = (),
    built: Callable[[experiments.Experiment], None] | None = None,
    env_steps: int | None = None,
    env: EnvSource | None = None,
) -> dict[str, Any]:
    """Train a new run in ``folder``, and return its summary.

    An earlier demo there goes on if it was stopped and is the same; any other is kept, in a folder beside it.

    Args:
        config: A configuration from ``experiments.resolve``.
        folder: Folder of the run.
        console: Where to show progress.
        again: The folder is that of a run that was killed before its first snapshot.
        callbacks: Objects that the runner tells of epochs and evaluations, beside the display.
        built: Called with what will be trained, before training.
        env_steps: Environment steps to take at least: epochs are added until they are taken.
        env: What the configuration names as environment, where the caller has it.
    """
    is_demo = config["command"] == "demo" and not again
    if is_demo and _goes_on(config, folder):
        console.print(f"the demo in {escape(str(folder))} was stopped: it goes on", soft_wrap=True)
        kept = changed(run_folder.read_config(folder), {"num_workers": config["run"]["num_workers"]})
        return continue_run(kept, folder, console, callbacks=callbacks, built=built, env_steps=env_steps, env=env)
    config = experiments.with_torch_threads(config)
    with contextlib.ExitStack() as stack:
        with blame_input():  # all of it before the first file of an earlier run is touched
            display = _display(config, console)
            goal = StepGoal(env_steps, config, folder, display)
            experiment = experiments.build(config, folder, (goal, display, *callbacks), env)
            split = _split_of(config, experiment.algo, experiment.evaluator)
            if is_demo:
                held, earlier = take_new(folder, RUN, lambda: run_folder.refuse_foreign(folder, "demo"))
                if earlier is not None:
                    kept = f"the earlier demo in {escape(str(folder))} is kept as {escape(str(earlier))}"
                    console.print(kept, soft_wrap=True)
            else:
                held = take(folder, RUN, None if again else lambda: run_folder.refuse_existing(folder))
            stack.enter_context(held)
            run_folder.write_config(folder, config)
            if split is not None:
                texts = [task_text(update.task) for update in experiment.evaluator.draw()]
                write_json(folder / TASK_SPLIT_FILE, {**split.to_dict(), "test_tasks": texts})
        stack.enter_context(_training(config, folder, experiment))
        if built is not None:
            built(experiment)
        _announce(config, experiment, folder, console, split)
        with display:
            display.expect(experiment.algo.update_seconds)
            experiment.runner.train(n_epochs=config["run"]["epochs"])
        return _finish(goal.config, experiment, folder, display, console, split)


def continue_run(
    config: Mapping[str, Any],
    folder: Path,
    console: Console,
    from_epoch: int | str | None = None,
    *,
    callbacks: Sequence[Any] = (),
    built: Callable[[experiments.Experiment], None] | None = None,
    env_steps: int | None = None,
    trust: bool = False,
    env: EnvSource | None = None,
    env_given: bool = False,
) -> dict[str, Any]:
    """Continue the run in ``folder`` from a snapshot; one that was killed before the first starts anew.

    ``callbacks``, ``built`` and ``env_steps``, which count from the snapshot, and ``env`` are those of ``start``,
    ``trust`` and ``env_given`` those of ``check_run``.
    """
    run_folder.check_links(folder)
    config, env = _checked(config, folder, from_epoch, trust, env, env_given)
    begun = any((folder / name).exists() for name in ("metrics.jsonl", run_folder.SUMMARY_FILE))
    if from_epoch is None and latest(folder) is None and not begun:
        told = {"callbacks": callbacks, "built": built, "env_steps": env_steps, "env": env}
        return start(config, folder, console, again=True, **told)
    with contextlib.ExitStack() as stack:
        with blame_input():
            display = _display(config, console)
            goal = StepGoal(env_steps, config, folder, display)
            stack.enter_context(take(folder, RUN))
            snapshot = _check_snapshot(config, folder, from_epoch)
            check_metrics(folder, snapshot)
            done = snapshot.iteration
            epochs, name = config["run"]["epochs"], escape(str(folder))
            if epochs < done:
                name = option_name("epochs")
                raise UsageError(f"{name} must be at least {done}, the number of finished epochs, got {epochs}")
            experiment = experiments.build(config, folder, (goal, display, *callbacks), env)
        stack.enter_context(_training(config, folder, experiment))
        with blame_input():
            experiment.runner.restore(folder, done)
            experiment.runner.check_resumes(epochs)
            split = _split_of(config, experiment.algo, experiment.evaluator)
            run_folder.write_config(folder, config)
        if built is not None:
            built(experiment)
        if done >= epochs:
            console.print(
                f"all {done} epochs of {name} are done; `{escape(command_text('resume', folder, '--epochs', 'N'))}` "
                "trains more",
                soft_wrap=True,
            )
        else:
            steps = 0 if done else experiment.runner.total_env_steps
            inside = f", {steps:,} environment steps into its warm-up" if steps else ""
            console.print(f"resuming {name} with epoch {done + 1} of {epochs}{inside}", soft_wrap=True)
            if not snapshot.has_buffers and experiment.algo.buffers_state_dict(copy=False) is not None:
                console.print("its replay buffer is empty: only the newest snapshot of a run keeps one", soft_wrap=True)
            _show_notes(config, env, console)
        goal.go_on_from(done, experiment.runner.total_env_steps)
        display.start_from(done, experiment.runner.total_env_steps, _seconds_so_far(folder, done))
        with display:
            display.expect(experiment.algo.update_seconds)
            experiment.runner.resume(n_epochs=epochs)
        return _finish(goal.config, experiment, folder, display, console, split)


def evaluate_run(
    config: Mapping[str, Any],
    folder: Path,
    console: Console,
    num_tasks: int | None,
    changes: Mapping[str, Any],
    from_epoch: int | str | None,
    out: Path,
    *,
    trust: bool = False,
) -> dict[str, Any]:
    """Evaluate a snapshot in ``folder``, and write the results to ``out``; the run itself is not changed.

    Args:
        config: Configuration of the run.
        folder: Folder of the run.
        console: Where to show the results.
        num_tasks: Number of held-out tasks; ``None`` means as in training.
        changes: Arguments of the evaluator that replace those of the run.
        from_epoch: Finished epochs of the snapshot, or ``"best"``; ``None`` means the newest.
        out: Folder of the results.
        trust: See ``check_run``.
    """
    run_folder.check_results_folder(out)
    with contextlib.ExitStack() as stack:
        config, experiment, epoch = stack.enter_context(restored_run(config, folder, from_epoch, trust))
        with blame_input():
            tell_of_many(console, experiments.episodes_of_evaluation(config, num_tasks, changes))
            _, test_tasks = experiments.split_tasks(config, experiment.source, num_tasks)
            if num_tasks is not None and not test_tasks:
                raise UsageError(
                    f"{option_name('num_tasks')} is for runs with held-out tasks; this one has none, only "
                    f"{config['env']} itself: ask for more episodes with --episodes N instead"
                )
            evaluator = stack.enter_context(
                contextlib.closing(experiments.build_evaluator(config, experiment.source, test_tasks, **changes))
            )
            _split_of(config, experiment.algo, evaluator)
        if epoch == 0:
            console.print(
                "[yellow]this agent is untrained: the run has not finished its first epoch[/]", soft_wrap=True
            )
        result, study = measure(evaluator, experiment.algo, console)
        summary = write_evaluation(config, experiment, evaluator, (result, study), epoch, out)
    if study is not None:
        show_study(console, study, success_values(study.result, first=_FINISH_FIRST))
    pictures = draw_pictures(out / "evaluation.png", result, console, study=study)
    console.print(closing_panel(summary, folder, pictures, command_text("resume", folder, "--epochs", "N")))
    return summary


def measure(
    evaluator: MetaEvaluator | PolicyEvaluator, algo: Any, console: Console, shots: Sequence[int] | None = None
) -> tuple[EvaluationResult | PolicyEvaluation, AdaptationStudy | None]:
    """Evaluate ``algo``, and say how far that is; of one that adapts with the verdict, and the study behind it.

    Args:
        evaluator: How it is evaluated.
        algo: The algorithm.
        console: Where to say how far it is.
        shots: Those of ``study_adaptation``.
    """
    with EvaluationDisplay(console) as display:
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
    """Write what ``measure`` found as ``evaluation.json`` into the folder ``out``; its content."""
    result, study = measured
    success = {} if study is None else success_values(study.result, first=_FINISH_FIRST)
    more = {} if study is None else {**study.to_dict(), **success}
    split, protocol = _split_of(config, experiment.algo, evaluator), evaluator.protocol(experiment.algo)
    summary = _summary(config, experiment.source, result, split, epoch=epoch, protocol=protocol, **more)
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
) -> Iterator[tuple[dict[str, Any], experiments.Experiment, int]]:
    """The checked configuration, the experiment as a snapshot in ``folder`` has it, and its number of epochs.

    The run perhaps is training still, and then replaces its snapshot (the best one, too) by a newer one. ``trust`` and
    ``env_given`` are those of ``check_run``, ``env`` that of ``start``.
    """
    checked, env = _checked(config, folder, from_epoch, trust, env, env_given)
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


def _goes_on(config: Mapping[str, Any], folder: Path) -> bool:
    """Whether an earlier demo in ``folder`` was stopped before its end, and is the one that ``config`` asks for."""
    if not (folder / run_folder.CONFIG_FILE).is_file():
        return False
    known = read_run(folder)
    ended = known.state == "finished" and bool(read_summary(folder))
    if ended or known.state == "damaged":
        return False
    try:
        return same_request(config, run_folder.read_config(folder))
    except SnapshotError:
        return False


def _checked(
    config: Mapping[str, Any],
    folder: Path,
    from_epoch: int | str | None,
    trust: bool,
    env: EnvSource | None,
    env_given: bool,
) -> tuple[dict[str, Any], EnvSource]:
    """The configuration in ``folder``, checked value by value, and its environment (``env``, where the caller has it).

    First of all it is checked whether what it names may be imported.
    """
    with blame_input():
        written = run_folder.read_config(folder)
        show_notes(check_run(config, written, folder, trust, from_epoch, env_given))
        warn_of_changes(written, folder)
        values, kept = flat_values(config), flat_values(written)
        changes = {name: value for name, value in values.items() if name not in kept or kept[name] != value}
        layers = [(str(folder / run_folder.CONFIG_FILE), {**OLDER, **values}), (GIVEN, changes)]
        env = EnvSource.of(config["env"]) if env is None else env
        checked = experiments.resolve(config["algo"], env, layers, config.get("command", "train"), kept=True)
        check_built(checked, config, folder)
        return checked, env


def _check_snapshot(config: Mapping[str, Any], folder: Path, from_epoch: int | str | None) -> Snapshot:
    """The snapshot to use, which must be of the run that ``config`` describes."""
    snapshot = load_snapshot(folder, "last" if from_epoch is None else from_epoch)
    check_same_run(config, snapshot.manifest.get("config"), folder)
    return snapshot


def _seconds_so_far(folder: Path, done: int) -> float:
    """Seconds of training in the first ``done`` epochs, as far as the metrics tell."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        rows = read_metrics(folder, phase="time", metric="total_seconds")
        return float(max((row["value"] for row in rows if row["iteration"] < done), default=0.0))
    return 0.0


def _display(config: Mapping[str, Any], console: Console) -> TrainingDisplay:
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
    return TrainingDisplay(console, title, config["run"]["epochs"], updates, adapts=adapts(config), amounts=amounts)


def _announce(
    config: Mapping[str, Any],
    experiment: experiments.Experiment,
    folder: Path,
    console: Console,
    split: SplitReport | None,
) -> None:
    env, name, algorithm = experiment.source, config["env"], config["algorithm"]
    amount = get_algorithm(config["algo"]).amount(experiment.algo, algorithm)
    _show_notes(config, env, console)
    if split is None and adapts(config):
        what = f"new training tasks in every epoch, {algorithm['num_test_tasks']} held-out tasks"
        returns, amount = "on held-out tasks, before adaptation -> after it", f"; {amount}"
    elif split is None:
        what, num_tasks = amount, algorithm["num_test_tasks"]
        kind = "of the training" if experiments.tested_on_training(env) else "held-out"
        where = f"{num_tasks} {kind} tasks" if num_tasks else "the nominal environment"
        draws = algorithm["randomize"] != "none" or bool(algorithm.get("randomize_param"))
        where = "held-out domain parameters" if draws and not env.is_varied else where
        returns, amount = f"in training, and by the deterministic policy in {where}", ""
    else:
        what, where, amount = str(split), "held-out tasks", f"; {amount}"
        if split.overlaps:
            what = f"{split.num_train} training and {split.num_test} test tasks, {len(split.overlaps)} in both"
            what += ", as the family was published: returns do not tell what happens in new tasks"
            where = "test tasks"
        returns = f"on {where}, before adaptation -> after it"
    console.print(
        f"{config['algo']} on {name}: {what}\n{escape(size_text(config, env))}\n"
        f"run folder {escape(str(folder))}{amount}\n"
        f"return: {returns} [95 % interval]\n",
        soft_wrap=True,
    )
    if env.known.is_entry_point and env.known.has_family:  # tasks of our own families are known to differ
        finding = tasks_do_not_differ(env.family, config["run"]["seed"])
        if finding is not None:
            text = f"[yellow]the tasks of {escape(name)} do not differ:[/] {escape(finding)}"
            console.print(f"{text}; `{escape(command_text('check', name))}` looks closer\n", soft_wrap=True)


def _show_notes(config: Mapping[str, Any], env: EnvSource, console: Console) -> None:
    """What a user should know of the algorithm before training."""
    own = get_algorithm(config["algo"]).notes(BuildOptions.of(config, env), config["run"]["epochs"])
    for note in [*_preset_missed(config["algo"], env), *own]:
        console.print(f"[yellow]{escape(note)}[/]", soft_wrap=True)


def _preset_missed(algo: str, env: EnvSource) -> list[str]:
    """That there is a preset, where the environment was not given by the name of which that is."""
    found, why = env.known.id_of_given, "since an environment was given rather than its id"
    if found is None and not env.known.is_given:
        found, why = env.known.newest_version, f"since {env.name!r} is an id without its version"
    if found not in preset_names(algo):
        return []
    how = said(f"metaroll.agent({algo!r}, {found!r})", f"`{command_text('train', algo, found)}`")
    return [f"the preset of {found!r} does not apply, {why}: {how} takes it"]


@contextlib.contextmanager
def _training(config: Mapping[str, Any], folder: Path, experiment: experiments.Experiment) -> Iterator[None]:
    """Tell who handles errors and Ctrl-C how the run can be continued; a Ray cluster that is lost is an error."""
    resume = command_text("resume", folder)

    def lost(address: str) -> None:
        text = f"the Ray cluster at {address} does not answer any more; what was saved is kept; continue with: {resume}"
        show_problem("error:", text)

    on_ray = config["run"]["transport"] == "ray"
    try:
        with (
            watched(head_address, lost) if on_ray else contextlib.nullcontext(),
            contextlib.closing(experiment.runner),
            experiments.torch_threads(config["run"]["torch_threads"]),
        ):
            yield
    except SnapshotError:
        raise  # it says itself what can be done
    except BaseException as error:
        # A run that wrote metrics but no snapshot was told to (snapshot_mode none).
        if isinstance(error, DivergedError):
            error.anew_command = _command_anew(config, folder, error.lower)  # type: ignore[attr-defined]
        elif latest(folder) is not None or not (folder / "metrics.jsonl").exists():
            error.resume_command = resume  # type: ignore[attr-defined]
            error.epochs_kept = latest(folder) or 0  # type: ignore[attr-defined]
        if isinstance(error, RolloutError):
            without_advice(error, engines=True)
        raise


def _command_anew(config: Mapping[str, Any], folder: Path, lower: Mapping[str, float]) -> str:
    """What trains another run with the settings of one that has diverged, but for the first that is to be lower."""
    name, value = next(iter(lower.items()))
    changed = (f"--{name.replace('_', '-')}", f"{value / 10:g}")
    kept = folder / run_folder.CONFIG_FILE
    return command_text("train", config["algo"], config["env"], "--config", kept, *changed)


def _summary(
    config: Mapping[str, Any], env: EnvSource, result: Any, split: SplitReport | None, **more: Any
) -> dict[str, Any]:
    """What is written of an evaluation, beside ``more``."""
    head = {"algo": config["algo"], "env": config["env"], "seed": config["run"]["seed"]}
    kind = "training" if experiments.tested_on_training(env) else "held-out"
    tasks: dict[str, Any] = {"tested_on": kind} if any(task is not None for task in result.tasks) else {}
    tasks |= {} if split is None else {"task_split": split.to_dict()}
    return {
        **head,
        **evaluation_values(result, config),
        **more,
        **tasks,
        "versions": run_folder.package_versions(),
    }


def _finish(
    config: Mapping[str, Any],
    experiment: experiments.Experiment,
    folder: Path,
    display: TrainingDisplay,
    console: Console,
    split: SplitReport | None,
) -> dict[str, Any]:
    """Evaluate the finished agent, write ``summary.json`` and the pictures, and say what was learned."""
    epochs, more = config["run"]["epochs"], {}
    result, is_demo = display.result_of(epochs), config["command"] == "demo"
    evaluator: Any = demo.final_evaluator(config, experiment.source) if is_demo else experiment.evaluator
    with contextlib.closing(evaluator):
        if isinstance(evaluator, MetaEvaluator):
            with EvaluationDisplay(console) as told:
                study = study_adaptation(evaluator, experiment.algo, shots=[0], progress=told)  # only the baselines
            result, floor = study.result, None
            if is_demo:
                floor, oracle = demo.floor_and_oracle(result, evaluator, experiment.algo.env_spec)
                more = demo.compare_with_references(result, floor, oracle, config["run"]["seed"])
            more = {**more, "verdict": study.verdict(floor).to_dict()}
        elif result is None:  # nothing was left to train, or the last epoch was not evaluated
            with EvaluationDisplay(console) as told:
                result = evaluator.evaluate(experiment.algo, progress=told)
    stopped = experiment.runner.stopped_after
    ended = get_algorithm(config["algo"]).ended_early(experiment.algo)
    ended = ended if stopped is None else (stopped, experiment.runner.stop_reason)
    if ended is not None and ended[0] < epochs:
        epochs, more = ended[0], {**more, "ended_early": True}
        console.print(f"ended after {epochs} epochs: {ended[1]}", markup=False)
    if (best := experiment.runner.best) is not None:
        more["best"] = best
        how = said("metaroll.load(..., from_epoch='best')", "--from-epoch best")
        found = f"best {best['metric']}, {best['value']:.6g}, after {best['iteration']} epochs"
        console.print(f"{found}: {how} takes that one", markup=False)
    steps, seconds = int(experiment.runner.total_env_steps), round(display.seconds, 2)
    more = {**more, "protocol": evaluator.protocol(experiment.algo), "env_steps": steps, "seconds": seconds}
    summary = _summary(config, experiment.source, result, split, epochs=epochs, **more)
    write_json(folder / run_folder.SUMMARY_FILE, summary)
    pictures = draw_pictures(folder / "adaptation_curve.png", result, console, more, folder)
    evaluates = f"{said('agent.evaluate(), or ', '')}{command_text('evaluate', folder)}"
    further = command_text("train", *NEXT_RUN.split()) if is_demo else evaluates
    console.print(closing_panel(summary, folder, pictures, further))
    return summary


def _split_of(config: Mapping[str, Any], algo: Any, evaluator: Any) -> SplitReport | None:
    """The report of the leak guard; ``None`` for algorithms that do not adapt, or without a list of training tasks.

    Held-out tasks that occur in training are an error, unless the evaluator was told that they may.
    """
    if not adapts(config) or algo.train_tasks is None:
        return None
    return check_split(algo.train_tasks, evaluator.draw(), overlap="accept" if evaluator.allow_overlap else "refuse")
