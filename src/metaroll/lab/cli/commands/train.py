"""The commands ``demo``, ``train``, ``resume`` and ``evaluate``: arguments in, a run folder and a summary out."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from metaroll.configs.run import SnapshotMode
from metaroll.configs.table import is_known, run_options
from metaroll.errors import (
    MetarollError,
    SnapshotError,
    UnknownNameError,
    UsageError,
    blame_input,
    command_text,
    named_as,
    one_line,
    option_name,
    option_text,
)
from metaroll.lab.cli import options as cli
from metaroll.lab.cli.commands.train_help import USAGE, arguments_class, show_algorithm_help, show_general_help
from metaroll.lab.cli.options import AsTrained, Newest, Output, Switch, parse_command, unset
from metaroll.lab.runs.run_reports import read_run, read_summary
from metaroll.option_names import GIVEN, near_options
from metaroll.training.algorithms.other_names import swapped_names
from metaroll.training.algorithms.registry import (
    ALGORITHM_NAMES,
    algorithm_names,
    example_envs,
    get_algorithm,
    require_known,
)
from metaroll.training.store import run_folder
from metaroll.training.store.run_values import adapts, flat_values, same_request

if TYPE_CHECKING:
    from metaroll.envs.lookup.source import EnvSource
    from metaroll.training.session.run_config import SeedGroup

__all__ = ["demo", "evaluate", "resume", "train"]


_AsBefore = Annotated[int | None, unset("INT", "as before")]
_YesOrNo = Annotated[bool | None, unset("{True,False}", "as in training")]
_SNAPSHOT_MODES = "{all,last,gap,gap_overwrite,gap_and_last,none}"
_Engine = Literal["auto", "serial", "process", "ray"]
_MISSING = "the folder of the run is missing"


@dataclass(frozen=True, kw_only=True)
class _Files:
    """The run directory, and where its options come from."""

    out: Annotated[str | None, unset("DIR", "runs/ALGO-ENV-SEED")] = None
    """Folder of the run."""
    config: Annotated[str | None, unset("FILE", "none")] = None
    """YAML file with options, as config.yaml of a run or as lines `name: value`; flags override it."""
    seeds: int = 1
    """Number of runs, with seeds that count up from --seed, in folders seed-N of --out, which then is by default
    runs/ALGO-ENV-seeds-FIRST-LAST."""
    jobs: int = 1
    """Runs at a time, in a process each."""
    tasks: Annotated[str | None, unset("FOLDER", "those of the environment")] = None
    """A run of metaroll infer (or the folder of a posterior): train in the simulator ENV as its draws say it may be."""


@dataclass(frozen=True, kw_only=True)
class _Where:
    """Where rollouts are run; results do not depend on it."""

    engine: Annotated[_Engine | None, unset("{auto,serial,process,ray}", "as before")] = None
    """In this process, in processes, on a Ray cluster, or as the number of workers suggests."""
    ray_address: Annotated[str | None, unset("HOST:PORT", "as before")] = None
    """The Ray cluster, or auto for one that runs on this machine."""

    def changes(self) -> dict[str, Any]:
        """What that changes in the options of the run."""
        changes: dict[str, Any] = {} if self.engine is None else {"transport": self.engine}
        if self.ray_address is not None or self.engine not in (None, "ray"):
            changes["ray_address"] = self.ray_address
        return changes


@dataclass(frozen=True, kw_only=True)
class _DemoArguments:
    seed: int = 0
    """Seed of everything."""
    out: str = "runs/demo"
    """Folder of the run. A demo in it that was stopped goes on, if it is the same; any other is kept beside it."""
    epochs: Annotated[int | None, unset("INT", "as many as the demo needs")] = None
    """Number of epochs."""
    num_workers: int = 1
    """Rollout worker processes; results do not depend on it."""
    output: Output = field(default_factory=Output)


_TextAsBefore = unset("TEXT|none", "as before")


@dataclass(frozen=True, kw_only=True)
class _Services:
    """When the run ends, what it keeps, and how often it evaluates: as of train, from now on."""

    stop_at: Annotated[str | None, unset("FLOAT|none", "as before")] = None
    """End where the number of --stop-metric is at least this."""
    stop_metric: Annotated[str | None, unset("TEXT", "as before")] = None
    """The number: return or success (those of evaluations), or any name in metrics.jsonl, as train/return."""
    stop_mean_of: _AsBefore = None
    """Number of newest values of it that are averaged."""
    budget: Annotated[str | None, _TextAsBefore] = None
    """End after the epoch in which training has taken so long in all, as 90s, 10m, 1h30m or 2d; what it took before
    counts."""
    keep_best: Annotated[str | None, _TextAsBefore] = None
    """Keep the snapshot with the highest value of this number, too."""
    keep_last: _AsBefore = None
    """How many newest snapshots are kept."""
    snapshot_mode: Annotated[
        SnapshotMode | None, unset("{all,last,gap,gap_overwrite,gap_and_last,none}", "as before")
    ] = None
    """Which snapshots are kept."""
    snapshot_gap: _AsBefore = None
    """Epochs between snapshots, for the modes with a gap."""
    evaluate_every: _AsBefore = None
    """Evaluate after every so many epochs; 0 means never."""

    def changes(self) -> dict[str, Any]:
        """What that changes in the options of the run."""
        given = {name: value for name, value in vars(self).items() if value is not None}
        given |= {name: None for name in ("stop_at", "budget", "keep_best") if given.get(name, "").lower() == "none"}
        if given.get("stop_at") is not None:
            given["stop_at"] = _number("--stop-at", given["stop_at"])
        return given


def _number(flag: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"{flag} must be a number, or none, got {text!r}") from None


@dataclass(frozen=True, kw_only=True)
class _ResumeArguments:
    epochs: _AsBefore = None
    """Total number of epochs."""
    num_workers: _AsBefore = None
    """Rollout worker processes; results do not depend on it."""
    from_epoch: Newest = None
    """Go on after this epoch; newer snapshots are set aside."""
    jobs: _AsBefore = None
    """Of a group of runs (train --seeds): runs at a time, in a process each."""
    trust: Switch = False
    """Import the module of the run's environment, though this installation has not made the run: look at it first."""
    services: _Services = field(default_factory=_Services)
    where: _Where = field(default_factory=_Where)
    output: Output = field(default_factory=Output)


@dataclass(frozen=True, kw_only=True)
class _Adaptation:
    """How an algorithm that adapts is evaluated."""

    adapted_episodes: AsTrained = None
    """Episodes per task after adaptation."""
    repetitions: AsTrained = None
    """Independent repetitions per task."""
    adaptation_rounds: AsTrained = None
    """How often exploration episodes are followed by an adaptation."""
    episodes_per_round: AsTrained = None
    """Exploration episodes of each round."""
    adapt_from: Annotated[Literal["last", "all"] | None, unset("{last,all}", "as in training")] = None
    """From the second round on, adapt from the last round's episodes, or from all so far."""
    posterior_sampling: _YesOrNo = None
    """Adapt after every exploration episode, from all so far."""
    deterministic_exploration: _YesOrNo = None
    """Explore with the deterministic policy."""


@dataclass(frozen=True, kw_only=True)
class _EvaluateArguments:
    episodes: AsTrained = None
    """Episodes per task (of an algorithm that adapts: exploration episodes)."""
    num_tasks: AsTrained = None
    """Number of held-out tasks."""
    seed: AsTrained = None
    """Seed of the evaluation's rollouts."""
    from_epoch: Newest = None
    """Evaluate the agent as it was after this epoch."""
    out: Annotated[str | None, unset("DIR", "the folder of the run")] = None
    """Folder for the results."""
    trust: Switch = False
    """Import the module of the run's environment, though this installation has not made the run: look at it first."""
    adaptation: _Adaptation = field(default_factory=_Adaptation)
    where: _Where = field(default_factory=_Where)
    output: Output = field(default_factory=Output)


def demo(arguments: Sequence[str]) -> None:
    """Train PEARL on point-robot in a few minutes and compare it with a floor and an oracle."""
    given = cli.parse(
        _DemoArguments, arguments, "metaroll demo", "An agent learns to find goals that it does not observe."
    )
    from metaroll.envs.lookup.source import EnvSource
    from metaroll.lab.display.view import ConsoleView
    from metaroll.training.session import run_config
    from metaroll.training.session.demo import DEMO_ENV, demo_config
    from metaroll.training.session.sessions import continue_run, start

    overrides = {"seed": given.seed, "num_workers": given.num_workers, "epochs": given.epochs}
    with blame_input():
        env = EnvSource.of(DEMO_ENV)
        config = demo_config({name: value for name, value in overrides.items() if value is not None}, env)
        folder = _folder(given.out)
        run_folder.refuse_foreign(folder, "demo")
    view = ConsoleView(given.output.console())
    if _is_interrupted(config, folder):
        view.message(f"the demo in {folder} was stopped: it continues")
        kept = run_config.changed(run_folder.read_config(folder), {"num_workers": config["run"]["num_workers"]})
        summary = continue_run(kept, folder, view, env=env)
    else:
        summary = start(config, folder, view, env=env)
    _print_json(summary, given.output)


def _is_interrupted(config: Mapping[str, Any], folder: Path) -> bool:
    """Whether an earlier demo in ``folder`` was stopped before its end, and is the one that ``config`` asks for."""
    if not (folder / run_folder.CONFIG_FILE).is_file():
        return False
    report = read_run(folder)
    if report.state == "damaged" or (report.state == "finished" and read_summary(folder)):
        return False
    try:
        return same_request(config, run_folder.read_config(folder))
    except SnapshotError:
        return False


def train(arguments: Sequence[str]) -> None:
    """Train an algorithm in a task family."""
    (algo, env), rest = _algorithm_and_environment(arguments)
    rest, names = cli.renamed_flags(rest, run_options(algo))
    with named_as(names):
        _train(algo, env, rest)


def _train(algo: str, name: str, rest: list[str]) -> None:
    options = run_options(algo)
    from metaroll.lab.cli.runs import seed_group
    from metaroll.lab.display.sizes import size_text
    from metaroll.lab.display.view import ConsoleView
    from metaroll.training.session import experiments, run_config
    from metaroll.training.session.sessions import start

    try:
        with blame_input():
            env, layers, config = _defaults(algo, name, rest)
    except (Exception, SystemExit) as error:
        if cli.asks_for_help(rest):
            show_algorithm_help(_Files, algo, name, str(error) if isinstance(error, MetarollError) else one_line(error))
        raise
    kind = arguments_class(_Files, options, flat_values(config))
    about = f"{USAGE}\n\nDefaults shown are those of {algo} in {env}.\n\n{size_text(config, env)}"
    given: Any = cli.parse(kind, rest, command_text("train", algo, env.name), about)
    typed = {argument.split("=")[0].replace("_", "-") for argument in rest}
    values = {}
    for option in options:
        value = getattr(getattr(given, option.section), option.name)
        if value != config[option.section][option.name] or typed & cli.flags_for(option):
            values[option.name] = value
    files, console = given.files, given.output.console()
    with blame_input():
        config = experiments.resolve(algo, env, [*layers, (GIVEN, values)])
        experiments.require_at_least({"--seeds": files.seeds, "--jobs": files.jobs}, 1)
        seeds = range(config["run"]["seed"], config["run"]["seed"] + files.seeds)
        last = seeds[-1] if files.seeds > 1 else None
        folder = run_config.default_run_dir(algo, env, seeds[0], last) if files.out is None else _folder(files.out)
        group = run_config.SeedGroup(folder, config, tuple(seeds), files.jobs)
        if files.seeds > 1:
            seed_group.refuse_existing_group(group)
        else:
            run_folder.refuse_existing(folder)
    with named_as(experiments.names_given(algo, [*layers, (GIVEN, values)])):
        if files.seeds > 1:
            _show_group(group, seed_group.train_group(group, env, console), given.output)
        else:
            _print_json(start(config, folder, ConsoleView(console), env=env), given.output)


def _defaults(
    algo: str, name: str, rest: Sequence[str]
) -> tuple[EnvSource, list[tuple[str, dict[str, Any]]], dict[str, Any]]:
    """The environment with ``--tasks``, what ``--config`` gives, and the configuration before other flags change it."""
    from metaroll.envs.lookup.posteriors import posterior_name
    from metaroll.envs.lookup.source import EnvSource
    from metaroll.training.session import experiments, run_config

    file, size = cli.peek_option(rest, "--config"), cli.peek_option(rest, "--size")
    if (tasks := cli.peek_option(rest, "--tasks")) is not None:
        name = posterior_name(name, tasks)
    env = EnvSource.of(name)
    layers = [] if file is None else [run_config.file_layer(Path(file).expanduser(), algo, name)]
    if size is not None and layers and layers[0][1].get("size", size) != size:
        raise UsageError(f"--size {size} does not fit {file}, which is of size {layers[0][1]['size']}: omit one")
    # What a file has no effect with, or goes with, flags may add.
    return env, layers, experiments.resolve(algo, env, layers, size=size, kept=True, final=False)


def _algorithm_and_environment(arguments: Sequence[str]) -> tuple[tuple[str, str], list[str]]:
    """The two names and the other arguments; ``--help`` works without the second, or without both."""
    helps = cli.asks_for_help(arguments)
    names, rest = cli.take_positionals([a for a in arguments if not (helps and a in cli.HELP)], 2)
    rest += ["--help"] * helps
    if helps and not names:
        show_general_help(_Files)
    if swapped := swapped_names(names, ALGORITHM_NAMES):
        raise UsageError(f"{names[0]!r} is no algorithm; {swapped}")
    algo = require_known(names[0] if names else ALGORITHM_NAMES[0])
    if not is_known(algo):
        get_algorithm(algo)
    if helps and len(names) < 2:
        show_algorithm_help(_Files, algo)
    if len(names) < 2:
        known = f"algorithms: {', '.join(algorithm_names())}; environments: {', '.join(example_envs(algo))}"
        missing = "the environment is" if names else "both names are"
        raise UsageError(f"{USAGE}: {missing} missing (before all options). Known {known}")
    return (algo, names[1]), rest


def _show_group(group: SeedGroup, summaries: Sequence[Mapping[str, Any]], output: Output) -> None:
    """Say what can be done with the runs of a group that is complete."""
    output.console().print(f"next: {command_text('compare', group.folder)}", soft_wrap=True, markup=False)
    _print_json({"runs": list(summaries)}, output)


def resume(arguments: Sequence[str]) -> None:
    """Continue a run from its newest snapshot, or a group of runs."""
    about = (
        "Continues as if the run had never been interrupted. RUN may be the folder of a group "
        "(train --seeds): those that have begun are continued, the others started."
    )
    try:
        names, given = parse_command(_ResumeArguments, arguments, "metaroll resume RUN [options]", about, _MISSING)
    except UnknownNameError as error:
        _refuse_lasting(arguments)
        raise error
    changes = {"epochs": given.epochs, "num_workers": given.num_workers}
    changes = {name: value for name, value in changes.items() if value is not None}
    changes |= {**given.services.changes(), **given.where.changes()}
    from metaroll.lab.cli.runs import seed_group
    from metaroll.lab.display.consoles import show_notes
    from metaroll.lab.display.view import ConsoleView
    from metaroll.training.session import run_config
    from metaroll.training.session.experiments import require_at_least
    from metaroll.training.session.sessions import continue_run
    from metaroll.training.store.trust import check_group

    console = given.output.console()
    with blame_input():
        group = run_config.read_group(Path(names[0]))
        if group is not None:
            require_at_least({"--jobs": given.jobs, "--epochs": given.epochs}, 1)
            if given.from_epoch is not None:
                raise UsageError(f"--from-epoch is for one run: {', '.join(map(str, group.folders))}")
            changed = run_config.changed(group.config, changes)
            show_notes(check_group(changed, group.config, group.folder, given.trust))
            jobs = group.jobs if given.jobs is None else given.jobs
            group = dataclasses.replace(group, jobs=jobs, trust=given.trust)
        elif given.jobs is not None:
            raise UsageError(f"--jobs is for a group of runs (train --seeds), {names[0]} is none")
    if group is not None:
        _show_group(group, seed_group.resume_group(group, changes, console), given.output)
        return
    with blame_input():
        folder = run_folder.find_run(names[0])
        config = run_config.changed(run_folder.read_config(folder), changes)
    _print_json(continue_run(config, folder, ConsoleView(console), given.from_epoch, trust=given.trust), given.output)


def _refuse_lasting(arguments: Sequence[str]) -> None:
    """Error if something is to change in a run that cannot: an option of ``train`` that decides what it learns."""
    names, rest = cli.take_positionals(arguments, 1, cli.flags_of(_ResumeArguments, valued_only=True))
    folder = Path(names[0]) if names else Path()
    file = run_folder.GROUP_FILE if (folder / run_folder.GROUP_FILE).is_file() else run_folder.CONFIG_FILE
    if not (folder / file).is_file():
        return
    config, changeable = run_folder.read_config(folder, file), cli.flags_of(_ResumeArguments)
    if not is_known(config["algo"]):
        return
    fixed = {flag: option for option in run_options(config["algo"]) for flag in cli.flags_for(option)}
    fixed = {flag: option for flag, option in fixed.items() if flag not in changeable}
    for typed in (argument.split("=")[0].replace("_", "-") for argument in rest if argument.startswith("--")):
        flags = [flag for flag in cli.renamed_flags([typed], run_options(config["algo"]))[0] if flag in fixed]
        if flags:
            kept = {flag: config[fixed[flag].section].get(fixed[flag].name) for flag in flags}
            values = ", ".join(f"{value!r} ({flag})" for flag, value in kept.items())
            values = values if len(flags) > 1 else repr(kept[flags[0]])
            anew = command_text(
                "train", config["algo"], config["env"], "--config", folder / file, typed, "...", "--out", "DIR"
            )
            raise UsageError(
                f"{typed} cannot change in a run that goes on, it is {values} in {folder / file}: `{anew}` trains "
                "another run with it"
            )
        if typed not in changeable and not near_options(typed, "", changeable, absent=False, foreign=False):
            near = near_options(typed, "", [one.name for one in fixed.values()], notes=False, absent=False)
            if near:
                raise UnknownNameError(f"unknown option {typed}; {near} That cannot change in a run that goes on")


def evaluate(arguments: Sequence[str]) -> None:
    """Adapt the newest snapshot of a run to held-out tasks."""
    about = "Adapts the newest snapshot to tasks that it was not trained on."
    words, called = _words_of_evaluate(arguments)
    with named_as(called):
        names, given = parse_command(_EvaluateArguments, words, "metaroll evaluate RUN [options]", about, _MISSING)
        _evaluate(names, given)


def _words_of_evaluate(arguments: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """The flags of this command where those of ``train`` were typed; and these, by the names of what they set here."""
    names, _ = cli.take_positionals(arguments, 1, cli.flags_of(_EvaluateArguments, valued_only=True))
    adapting = False
    with contextlib.suppress(MetarollError, OSError):  # which are told later on
        adapting = bool(names) and adapts(run_folder.read_config(run_folder.find_run(names[0])))
    here = {
        "--num-test-tasks": "--num-tasks",
        "--num-adaptation-episodes": "--episodes",
        "--num-episodes": "--adapted-episodes" if adapting else "--episodes",
    }
    words: list[str] = []
    called: dict[str, str] = {}
    for word in arguments:
        typed, equals, value = word.partition("=")
        flag = here.get(typed.replace("_", "-"), typed)
        if flag != typed:
            called[flag[2:].replace("-", "_")] = typed
        no = typed.startswith("--no-") and f"--{typed[5:]}" in ("--posterior-sampling", "--deterministic-exploration")
        if no:
            called[typed[5:].replace("-", "_")] = typed
        words += [f"--{typed[5:]}", "False"] if no else [f"{flag}{equals}{value}"]
    return words, called


def _evaluate(names: Sequence[str], given: Any) -> None:
    with blame_input():
        folder = run_folder.find_run(names[0])
        config = run_folder.read_config(folder)
        config["run"] = {**config["run"], **given.where.changes()}
    from metaroll.lab.display.view import ConsoleView
    from metaroll.training.session.experiments import require_at_least
    from metaroll.training.session.sessions import evaluate_run

    adaptation = {name: value for name, value in vars(given.adaptation).items() if value is not None}
    counts = {"episodes": given.episodes, "num_tasks": given.num_tasks}
    counts |= {name: value for name, value in adaptation.items() if type(value) is int}
    with blame_input():
        require_at_least({option_name(name): value for name, value in counts.items()}, 1)
        require_at_least({option_name("seed"): given.seed}, 0)
        changes = _evaluator_changes(config, given.episodes, adaptation)
        out = folder if given.out is None else _folder(given.out)
        cli.file_to_write("--out", str(out / run_folder.EVALUATION_FILE), [".json"])
    changes |= {} if given.seed is None else {"seed": given.seed}
    with named_as(_evaluator_flags(adaptation, adapts(config))):
        summary = evaluate_run(
            config,
            folder,
            ConsoleView(given.output.console()),
            given.num_tasks,
            changes,
            given.from_epoch,
            out,
            trust=given.trust,
        )
    _print_json(summary, given.output)


def _evaluator_changes(config: Mapping[str, Any], episodes: int | None, given: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of the evaluator that differ from those of the run; ``given`` are the options of ``_Adaptation``."""
    if not adapts(config):
        for name in given:
            more = option_text("episodes", "N")
            raise UsageError(f"{option_name(name)} is for algorithms that adapt; ask for more episodes with {more}")
        return {} if episodes is None else {"num_episodes": episodes}
    changes = {"num_episodes" if name == "adapted_episodes" else name: value for name, value in given.items()}
    return changes if episodes is None else {**changes, "num_adaptation_episodes": episodes}


def _evaluator_flags(given: Mapping[str, Any], adapting: bool) -> dict[str, str]:
    """Settings of the evaluator by their flags here; ``given`` are the options of ``_Adaptation``."""
    names = {"num_adaptation_episodes": "episodes", "num_episodes": "adapted_episodes" if adapting else "episodes"}
    flags = {name: option_name(here) for name, here in names.items()}
    own = "posterior_sampling" in given
    return flags if own else {**flags, "posterior_sampling": "--posterior-sampling (as in training)"}


def _print_json(summary: Mapping[str, Any], output: Output) -> None:
    if output.json:
        from metaroll.lab.display.json_output import print_json

        print_json(summary)


def _folder(text: str) -> Path:
    """The folder of ``--out``; shells leave a ``~`` behind ``=`` as it is."""
    if not text:
        raise UsageError("--out must name a folder, got an empty text; leave it out for the default")
    return Path(text).expanduser()
