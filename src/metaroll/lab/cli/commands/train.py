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
    folder_is_given,
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
    preset_names,
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
    """Output folder, options file, and groups of runs."""

    out: Annotated[str | None, unset("DIR", "runs/ALGO-ENV-SEED")] = None
    """Folder of the run."""
    config: Annotated[str | None, unset("FILE", "none")] = None
    """YAML file with options: the config.yaml of a run, or lines `name: value`; flags override it."""
    seeds: int = 1
    """Number of runs, with consecutive seeds from --seed, in folders seed-N of --out, which then defaults to
    runs/ALGO-ENV-seeds-FIRST-LAST."""
    jobs: int = 1
    """Number of runs at a time, each in its own process."""
    tasks: Annotated[str | None, unset("FOLDER", "those of the environment")] = None
    """Output folder of metaroll infer (or of a posterior): train in the simulator ENV with parameters drawn from it."""


@dataclass(frozen=True, kw_only=True)
class _Where:
    """Where rollouts run; this does not affect results."""

    engine: Annotated[_Engine | None, unset("{auto,serial,process,ray}", "as before")] = None
    """In this process, in worker processes, on a Ray cluster, or chosen by the number of workers."""
    ray_address: Annotated[str | None, unset("HOST:PORT", "as before")] = None
    """Address of the Ray cluster, or auto for one that runs on this machine."""

    def changes(self) -> dict[str, Any]:
        """The run options that these flags change."""
        changes: dict[str, Any] = {} if self.engine is None else {"transport": self.engine}
        if self.ray_address is not None or self.engine not in (None, "ray"):
            changes["ray_address"] = self.ray_address
        return changes


@dataclass(frozen=True, kw_only=True)
class _DemoArguments:
    seed: int = 0
    """Seed of everything."""
    out: str = "runs/demo"
    """Folder of the run. An interrupted demo in it is continued if it is the same; any other is moved beside it."""
    epochs: Annotated[int | None, unset("INT", "as many as the demo needs")] = None
    """Number of epochs."""
    num_workers: int = 1
    """Rollout worker processes; they do not affect results."""
    output: Output = field(default_factory=Output)


_TextAsBefore = unset("TEXT|none", "as before")


@dataclass(frozen=True, kw_only=True)
class _Services:
    """When the run ends, what it keeps and how often it evaluates: options of train that may change."""

    stop_at: Annotated[str | None, unset("FLOAT|none", "as before")] = None
    """Stop once --stop-metric reaches this value."""
    stop_metric: Annotated[str | None, unset("TEXT", "as before")] = None
    """Metric to watch: return or success (of evaluations), or any name in metrics.jsonl such as train/return."""
    stop_mean_of: _AsBefore = None
    """Average the metric over this many of its newest values."""
    budget: Annotated[str | None, _TextAsBefore] = None
    """Stop after the epoch in which the total training time exceeds this, such as 90s, 10m, 1h30m or 2d; earlier
    sessions count."""
    keep_best: Annotated[str | None, _TextAsBefore] = None
    """Also keep the snapshot with the highest value of this metric."""
    keep_last: _AsBefore = None
    """Number of newest snapshots to keep."""
    snapshot_mode: Annotated[
        SnapshotMode | None, unset("{all,last,gap,gap_overwrite,gap_and_last,none}", "as before")
    ] = None
    """Which snapshots to keep."""
    snapshot_gap: _AsBefore = None
    """Epochs between snapshots, for the modes with a gap."""
    evaluate_every: _AsBefore = None
    """Number of epochs between evaluations; 0 means never."""

    def changes(self) -> dict[str, Any]:
        """The run options that these flags change."""
        settings = {name: value for name, value in vars(self).items() if value is not None}
        settings |= {
            name: None for name in ("stop_at", "budget", "keep_best") if settings.get(name, "").lower() == "none"
        }
        if settings.get("stop_at") is not None:
            settings["stop_at"] = _number("--stop-at", settings["stop_at"])
        return settings


def _number(flag: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"{flag} must be a number or none, got {text!r}") from None


@dataclass(frozen=True, kw_only=True)
class _ResumeArguments:
    epochs: _AsBefore = None
    """Total number of epochs."""
    num_workers: _AsBefore = None
    """Rollout worker processes; they do not affect results."""
    from_epoch: Newest = None
    """Continue after this epoch; newer snapshots are set aside."""
    jobs: _AsBefore = None
    """For a group of runs (train --seeds): number of runs at a time, each in its own process."""
    trust: Switch = False
    """Import the run's environment module although this installation did not create the run: read the code first."""
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
    """Number of rounds of exploration followed by adaptation."""
    episodes_per_round: AsTrained = None
    """Exploration episodes per round."""
    adapt_from: Annotated[Literal["last", "all"] | None, unset("{last,all}", "as in training")] = None
    """From the second round on, adapt on the last round's episodes or on all so far."""
    posterior_sampling: _YesOrNo = None
    """Adapt after every exploration episode, on all episodes so far."""
    deterministic_exploration: _YesOrNo = None
    """Explore with the deterministic policy."""


@dataclass(frozen=True, kw_only=True)
class _EvaluateArguments:
    episodes: AsTrained = None
    """Episodes per task (for algorithms that adapt: exploration episodes)."""
    num_tasks: AsTrained = None
    """Number of held-out tasks."""
    seed: AsTrained = None
    """Seed of the evaluation's rollouts."""
    from_epoch: Newest = None
    """Evaluate the agent from after this epoch."""
    out: Annotated[str | None, unset("DIR", "the folder of the run")] = None
    """Folder for the results."""
    trust: Switch = False
    """Import the run's environment module although this installation did not create the run: read the code first."""
    adaptation: _Adaptation = field(default_factory=_Adaptation)
    where: _Where = field(default_factory=_Where)
    output: Output = field(default_factory=Output)


def demo(arguments: Sequence[str]) -> None:
    """Train PEARL on point-robot in a few minutes and compare it with a floor and an oracle."""
    args = cli.parse(
        _DemoArguments, arguments, "metaroll demo", "Trains an agent to find goals that it cannot observe."
    )
    from metaroll.envs.lookup.source import EnvSource
    from metaroll.lab.display.view import ConsoleView
    from metaroll.training.session import run_config
    from metaroll.training.session.demo import DEMO_ENV, demo_config
    from metaroll.training.session.sessions import continue_run, start

    overrides = {"seed": args.seed, "num_workers": args.num_workers, "epochs": args.epochs}
    with blame_input():
        env = EnvSource.of(DEMO_ENV)
        config = demo_config({name: value for name, value in overrides.items() if value is not None}, env)
        folder = _folder(args.out)
        run_folder.refuse_foreign(folder, "demo")
    view = ConsoleView(args.output.console())
    if _is_interrupted(config, folder):
        view.message(f"continuing the demo in {folder}, which was interrupted")
        resumed_config = run_config.changed(
            run_folder.read_config(folder), {"num_workers": config["run"]["num_workers"]}
        )
        summary = continue_run(resumed_config, folder, view, env=env)
    else:
        summary = start(config, folder, view, env=env)
    _print_json(summary, args.output)


def _is_interrupted(config: Mapping[str, Any], folder: Path) -> bool:
    """Whether ``folder`` holds an unfinished demo with the options of ``config``."""
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
    (algo, env), flags = _algorithm_and_environment(arguments)
    flags, typed_names = cli.renamed_flags(flags, run_options(algo))
    with named_as(typed_names):
        _train(algo, env, flags)


def _train(algo: str, name: str, flags: list[str]) -> None:
    options = run_options(algo)
    from metaroll.lab.cli.runs import seed_group
    from metaroll.lab.display.sizes import size_text
    from metaroll.lab.display.view import ConsoleView
    from metaroll.training.session import experiments, run_config
    from metaroll.training.session.sessions import start

    try:
        with blame_input():
            env, layers, config = _defaults(algo, name, flags)
    except (Exception, SystemExit) as error:
        if cli.asks_for_help(flags):
            show_algorithm_help(_Files, algo, name, str(error) if isinstance(error, MetarollError) else one_line(error))
        raise
    kind = arguments_class(_Files, options, flat_values(config))
    about = f"{USAGE}\n\nThe defaults shown are those of {algo} in {env}.\n\n{size_text(config, env)}"
    args: Any = cli.parse(kind, flags, command_text("train", algo, env.name), about)
    typed = {argument.split("=")[0].replace("_", "-") for argument in flags}
    values = {}
    for option in options:
        value = getattr(getattr(args, option.section), option.name)
        if value != config[option.section][option.name] or typed & cli.flags_for(option):
            values[option.name] = value
    files, console = args.files, args.output.console()
    with blame_input():
        config = experiments.resolve(algo, env, [*layers, (GIVEN, values)])
        experiments.require_at_least({"--seeds": files.seeds, "--jobs": files.jobs}, 1)
        if files.jobs > 1 and files.seeds == 1:
            raise UsageError(f"--jobs {files.jobs} is for a group of runs, and --seeds is 1: add --seeds N")
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
            _show_group(group, seed_group.train_group(group, env, console), args.output)
        else:
            _print_json(start(config, folder, ConsoleView(console), env=env), args.output)


def _defaults(
    algo: str, name: str, flags: Sequence[str]
) -> tuple[EnvSource, list[tuple[str, dict[str, Any]]], dict[str, Any]]:
    """The environment with ``--tasks``, the layer of ``--config``, and the configuration before other flags apply."""
    from metaroll.envs.lookup.posteriors import posterior_name
    from metaroll.envs.lookup.source import EnvSource
    from metaroll.training.session import experiments, run_config

    file, size = cli.peek_option(flags, "--config"), cli.peek_option(flags, "--size")
    if (tasks := cli.peek_option(flags, "--tasks")) is not None:
        name = posterior_name(name, tasks)
    env = EnvSource.of(name)
    layers = [] if file is None else [run_config.file_layer(Path(file).expanduser(), algo, name)]
    if size is not None and layers and layers[0][1].get("size", size) != size:
        raise UsageError(f"--size {size} does not fit {file}, which is of size {layers[0][1]['size']}: omit one")
    # Flags may still add options that those in the file need.
    return env, layers, experiments.resolve(algo, env, layers, size=size, kept=True, final=False)


def _algorithm_and_environment(arguments: Sequence[str]) -> tuple[tuple[str, str], list[str]]:
    """The two names and the remaining arguments; ``--help`` works without the second name or without both."""
    wants_help = cli.asks_for_help(arguments)
    names, flags = cli.take_positionals([a for a in arguments if not (wants_help and a in cli.HELP)], 2)
    flags += ["--help"] * wants_help
    if wants_help and not names:
        show_general_help(_Files)
    if swapped := swapped_names(names, ALGORITHM_NAMES):
        raise UsageError(f"{names[0]!r} is not an algorithm; {swapped}")
    algo = require_known(names[0] if names else ALGORITHM_NAMES[0])
    if not is_known(algo):
        get_algorithm(algo)
    if wants_help and len(names) < 2:
        show_algorithm_help(_Files, algo)
    if len(names) < 2:
        missing = "the environment is" if names else "both names are"
        known = (
            _environments_for(algo)
            if names
            else f"Algorithms: {', '.join(algorithm_names())}. Environments: {_ENVIRONMENTS}"
        )
        raise UsageError(f"{USAGE}: {missing} missing (before all options). {known}")
    return (algo, names[1]), flags


_ENVIRONMENTS = "any Gymnasium id, a name of `metaroll list envs`, or module:attribute of your own"


def _environments_for(algo: str) -> str:
    """Environments with tuned values, or an example if there are none, and what else an algorithm can be trained in."""
    examples = f"{'Presets' if preset_names(algo) else 'For example'}: {', '.join(example_envs(algo))}"
    if get_algorithm(algo).adapts:
        return f"{examples}. Also: any other family of tasks of `metaroll list envs`, or module:attribute of your own"
    return f"{examples}. Also: {_ENVIRONMENTS}"


def _show_group(group: SeedGroup, summaries: Sequence[Mapping[str, Any]], output: Output) -> None:
    """Print what to do next with the runs of a complete group."""
    output.console().print(f"next: {command_text('compare', group.folder)}", soft_wrap=True, markup=False)
    _print_json({"runs": list(summaries)}, output)


@folder_is_given()
def resume(arguments: Sequence[str]) -> None:
    """Continue a run from its newest snapshot, or a group of runs."""
    about = (
        "Continues as if the run had never been interrupted. RUN may be the folder of a group "
        "(train --seeds): runs that have begun are continued, the others are started."
    )
    try:
        names, args = parse_command(_ResumeArguments, arguments, "metaroll resume RUN [options]", about, _MISSING)
    except UnknownNameError as error:
        _refuse_lasting(arguments)
        raise error
    changes = {"epochs": args.epochs, "num_workers": args.num_workers}
    changes = {name: value for name, value in changes.items() if value is not None}
    changes |= {**args.services.changes(), **args.where.changes()}
    from metaroll.lab.cli.runs import seed_group
    from metaroll.lab.display.consoles import show_notes
    from metaroll.lab.display.view import ConsoleView
    from metaroll.training.session import run_config
    from metaroll.training.session.experiments import require_at_least
    from metaroll.training.session.sessions import continue_run
    from metaroll.training.store.trust import check_group

    console = args.output.console()
    with blame_input():
        group = run_config.read_group(Path(names[0]))
        if group is not None:
            require_at_least({"--jobs": args.jobs, "--epochs": args.epochs}, 1)
            if args.from_epoch is not None:
                raise UsageError(f"--from-epoch is for one run: {', '.join(map(str, group.folders))}")
            changed = run_config.changed(group.config, changes)
            show_notes(check_group(changed, group.config, group.folder, args.trust))
            jobs = group.jobs if args.jobs is None else args.jobs
            group = dataclasses.replace(group, jobs=jobs, trust=args.trust)
        elif args.jobs is not None:
            raise UsageError(f"--jobs is for a group of runs (train --seeds), and {names[0]} is not one")
    if group is not None:
        _show_group(group, seed_group.resume_group(group, changes, console), args.output)
        return
    with blame_input():
        folder = run_folder.find_run(names[0])
        config = run_config.changed(run_folder.read_config(folder), changes)
    _print_json(continue_run(config, folder, ConsoleView(console), args.from_epoch, trust=args.trust), args.output)


def _refuse_lasting(arguments: Sequence[str]) -> None:
    """Raise an error for options of ``train`` that decide what a run learns: these cannot change later."""
    names, flags_typed = cli.take_positionals(arguments, 1, cli.flags_of(_ResumeArguments, valued_only=True))
    folder = Path(names[0]) if names else Path()
    file = run_folder.GROUP_FILE if (folder / run_folder.GROUP_FILE).is_file() else run_folder.CONFIG_FILE
    if not (folder / file).is_file():
        return
    config, changeable = run_folder.read_config(folder, file), cli.flags_of(_ResumeArguments)
    if not is_known(config["algo"]):
        return
    fixed = {flag: option for option in run_options(config["algo"]) for flag in cli.flags_for(option)}
    fixed = {flag: option for flag, option in fixed.items() if flag not in changeable}
    for typed in (argument.split("=")[0].replace("_", "-") for argument in flags_typed if argument.startswith("--")):
        flags = [flag for flag in cli.renamed_flags([typed], run_options(config["algo"]))[0] if flag in fixed]
        if flags:
            kept = {flag: config[fixed[flag].section].get(fixed[flag].name) for flag in flags}
            values = ", ".join(f"{value!r} ({flag})" for flag, value in kept.items())
            values = values if len(flags) > 1 else repr(kept[flags[0]])
            anew = command_text(
                "train", config["algo"], config["env"], "--config", folder / file, typed, "...", "--out", "DIR"
            )
            raise UsageError(
                f"{typed} cannot change in a run that continues, it is {values} in {folder / file}: start a new run "
                f"with `{anew}`"
            )
        if typed not in changeable and not near_options(typed, "", changeable, absent=False, foreign=False):
            near = near_options(typed, "", [one.name for one in fixed.values()], notes=False, absent=False)
            if near:
                raise UnknownNameError(f"unknown option {typed}; {near} That cannot change in a run that continues")


def evaluate(arguments: Sequence[str]) -> None:
    """Adapt the newest snapshot of a run to held-out tasks."""
    about = "Evaluates the newest snapshot on tasks that it was not trained on, after adapting to them if it adapts."
    flags, typed_names = _flags_of_evaluate(arguments)
    with named_as(typed_names):
        usage = "metaroll evaluate RUN [options]"
        names, args = parse_command(_EvaluateArguments, flags, usage, about, _MISSING, other_flags=_FLAGS_OF_TRAIN)
        _evaluate(names, args)


_FLAGS_OF_TRAIN = ("--num-test-tasks", "--num-adaptation-episodes", "--num-episodes")
"""Flags of ``train`` that ``evaluate`` takes for its own."""


def _flags_of_evaluate(arguments: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Flags of ``train`` replaced by those of this command, and typed flags by the names of their options."""
    names, _ = cli.take_positionals(arguments, 1, cli.flags_of(_EvaluateArguments, valued_only=True))
    adapting = False
    with contextlib.suppress(MetarollError, OSError):  # which are reported later
        adapting = bool(names) and adapts(run_folder.read_config(run_folder.find_run(names[0])))
    own = ("--num-tasks", "--episodes", "--adapted-episodes" if adapting else "--episodes")
    here: dict[str, str] = dict(zip(_FLAGS_OF_TRAIN, own, strict=True))
    flags: list[str] = []
    typed_names: dict[str, str] = {}
    for word in arguments:
        typed, equals, value = word.partition("=")
        flag = here.get(typed.replace("_", "-"), typed)
        if flag != typed:
            typed_names[flag[2:].replace("-", "_")] = typed
        no = typed.startswith("--no-") and f"--{typed[5:]}" in ("--posterior-sampling", "--deterministic-exploration")
        if no:
            typed_names[typed[5:].replace("-", "_")] = typed
        flags += [f"--{typed[5:]}", "False"] if no else [f"{flag}{equals}{value}"]
    return flags, typed_names


def _evaluate(names: Sequence[str], args: Any) -> None:
    with blame_input():
        folder = run_folder.find_run(names[0])
        config = run_folder.read_config(folder)
        config["run"] = {**config["run"], **args.where.changes()}
    from metaroll.lab.display.view import ConsoleView
    from metaroll.training.session.experiments import require_at_least
    from metaroll.training.session.sessions import evaluate_run

    adaptation = {name: value for name, value in vars(args.adaptation).items() if value is not None}
    counts = {"episodes": args.episodes, "num_tasks": args.num_tasks}
    counts |= {name: value for name, value in adaptation.items() if type(value) is int}
    with blame_input():
        require_at_least({option_name(name): value for name, value in counts.items()}, 1)
        require_at_least({option_name("seed"): args.seed}, 0)
        changes = _evaluator_changes(config, args.episodes, adaptation)
        out = folder if args.out is None else _folder(args.out)
        cli.file_to_write("--out", args.out, [".json"], folder, run_folder.EVALUATION_FILE)
    changes |= {} if args.seed is None else {"seed": args.seed}
    with named_as(_evaluator_flags(adaptation, adapts(config))):
        summary = evaluate_run(
            config,
            folder,
            ConsoleView(args.output.console()),
            args.num_tasks,
            changes,
            args.from_epoch,
            out,
            trust=args.trust,
        )
    _print_json(summary, args.output)


def _evaluator_changes(
    config: Mapping[str, Any], episodes: int | None, adaptation: Mapping[str, Any]
) -> dict[str, Any]:
    """Arguments of the evaluator that differ from the run's; ``adaptation``: the options of ``_Adaptation``."""
    if not adapts(config):
        for name in adaptation:
            more = option_text("episodes", "N")
            raise UsageError(f"{option_name(name)} is for algorithms that adapt; use {more} for more episodes")
        return {} if episodes is None else {"num_episodes": episodes}
    changes = {"num_episodes" if name == "adapted_episodes" else name: value for name, value in adaptation.items()}
    return changes if episodes is None else {**changes, "num_adaptation_episodes": episodes}


def _evaluator_flags(adaptation: Mapping[str, Any], adapting: bool) -> dict[str, str]:
    """Flags of the evaluator's settings; ``adaptation``: the options of ``_Adaptation``."""
    names = {"num_adaptation_episodes": "episodes", "num_episodes": "adapted_episodes" if adapting else "episodes"}
    flags = {name: option_name(here) for name, here in names.items()}
    own = "posterior_sampling" in adaptation
    return flags if own else {**flags, "posterior_sampling": "--posterior-sampling (as in training)"}


def _print_json(summary: Mapping[str, Any], output: Output) -> None:
    if output.json:
        from metaroll.lab.display.json_output import print_json

        print_json(summary)


def _folder(text: str) -> Path:
    """The folder of ``--out``; shells do not expand a ``~`` after ``=``."""
    if not text:
        raise UsageError("--out must name a folder, got an empty string; leave it out for the default")
    return Path(text).expanduser()
