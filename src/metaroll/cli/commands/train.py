"""The commands ``demo``, ``train``, ``resume`` and ``evaluate``: arguments in, a run folder and a summary out."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from metaroll.cli.options import (
    Output,
    UsageError,
    asks_for_help,
    blame_input,
    file_to_write,
    flags_for,
    flags_of,
    options_class,
    parse_options,
    peek_option,
    take_positionals,
    unset,
)
from metaroll.cli.runs import run_config, seed_group
from metaroll.training.algorithms.registry import ALGORITHM_NAMES, example_envs, get_algorithm
from metaroll.training.store import run_folder

__all__ = ["demo", "evaluate", "resume", "train"]


_AsNeeded = Annotated[int | None, unset("INT", "as many as the demo needs")]
_AsBefore = Annotated[int | None, unset("INT", "as before")]
_Newest = Annotated[int | None, unset("INT", "that of the newest snapshot")]
_AsTrained = Annotated[int | None, unset("INT", "as in training")]
_Folder = Annotated[str | None, unset("DIR", "runs/ALGO-ENV-SEED")]
_RunFolder = Annotated[str | None, unset("DIR", "the folder of the run")]
_File = Annotated[str | None, unset("FILE", "none")]
_Engine = Annotated[Literal["auto", "serial", "process", "ray"] | None, unset("{auto,serial,process,ray}", "as before")]
_Address = Annotated[str | None, unset("HOST:PORT", "as before")]
_SECTIONS = ("run", "algorithm", "evaluation")


@dataclass(frozen=True, kw_only=True)
class _Files:
    """Where a run lies, and where its options come from."""

    out: _Folder = None
    """Folder of the run."""
    config: _File = None
    """YAML file with options, as config.yaml of a run or as lines `name: value`; flags override it."""
    seeds: int = 1
    """Number of runs, with seeds that count up from --seed, in folders seed-N of --out, which then is by default
    runs/ALGO-ENV-seeds-FIRST-LAST."""
    jobs: int = 1
    """Runs at a time, in a process each."""


@dataclass(frozen=True, kw_only=True)
class _Where:
    """Where rollouts are run; results do not depend on it."""

    engine: _Engine = None
    """In this process, in processes, on a Ray cluster, or as the number of workers suggests."""
    ray_address: _Address = None
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
    """Folder of the run; an earlier demo in it is overwritten."""
    epochs: _AsNeeded = None
    """Number of epochs."""
    num_workers: int = 1
    """Processes that collect rollouts; results do not depend on it."""
    output: Output = field(default_factory=Output)


@dataclass(frozen=True, kw_only=True)
class _ResumeArguments:
    epochs: _AsBefore = None
    """Total number of epochs."""
    num_workers: _AsBefore = None
    """Processes that collect rollouts; results do not depend on it."""
    from_epoch: _Newest = None
    """Go on after this epoch; newer snapshots are set aside."""
    jobs: _AsBefore = None
    """Of a group of runs (train --seeds): runs at a time, in a process each."""
    where: _Where = field(default_factory=_Where)
    output: Output = field(default_factory=Output)


@dataclass(frozen=True, kw_only=True)
class _EvaluateArguments:
    episodes: _AsTrained = None
    """Episodes per task (of an algorithm that adapts: exploration episodes)."""
    adapted_episodes: _AsTrained = None
    """Episodes per task after adaptation (of an algorithm that adapts)."""
    num_tasks: _AsTrained = None
    """Number of held-out tasks."""
    repetitions: _AsTrained = None
    """Independent repetitions per task."""
    seed: _AsTrained = None
    """Seed of the evaluation's rollouts."""
    from_epoch: _Newest = None
    """Evaluate the agent as it was after this epoch."""
    out: _RunFolder = None
    """Folder for the results."""
    where: _Where = field(default_factory=_Where)
    output: Output = field(default_factory=Output)


def demo(arguments: Sequence[str]) -> None:
    """Train PEARL on point-robot in a few minutes and compare it with a floor and an oracle."""
    given = parse_options(
        _DemoArguments, arguments, "metaroll demo", "An agent learns to find goals that it is never told."
    )
    from metaroll.cli.experiment.demo import demo_config
    from metaroll.cli.runs.sessions import start

    overrides = {"seed": given.seed, "num_workers": given.num_workers}
    if given.epochs is not None:
        overrides["epochs"] = given.epochs
    with blame_input():
        config = demo_config(overrides)
        folder = _folder(given.out)
        run_folder.refuse_foreign(folder, "demo")
    start(config, folder, given.output.console(), given.output.json)


def train(arguments: Sequence[str]) -> None:
    """Train an algorithm in a task family."""
    usage = "metaroll train ALGO ENV [options]"
    (algo, env), rest = _algorithm_and_environment(arguments, usage)
    file = peek_option(rest, "--config")
    from metaroll.cli.experiment import experiments
    from metaroll.cli.runs.sessions import start

    with blame_input():
        layers = [] if file is None else [(file, run_config.file_values(Path(file).expanduser(), algo, env))]
        config = experiments.resolve(algo, env, layers)
    options = experiments.run_options(algo)
    sections = {
        name: options_class(name, [o for o in options if o.section == name], config[name]) for name in _SECTIONS
    }
    kind = dataclasses.make_dataclass("_TrainArguments", [("output", Output), ("files", _Files), *sections.items()])
    about = f"{usage}\n\nDefaults shown are those of {algo} in {env}."
    given: Any = parse_options(kind, rest, f"metaroll train {algo} {env}", about)
    typed = {argument.split("=")[0].replace("_", "-") for argument in rest}
    values = {}
    for option in options:
        value = getattr(getattr(given, option.section), option.name)
        if value != config[option.section][option.name] or typed & flags_for(option):
            values[option.name] = value
    with blame_input():
        config = experiments.resolve(algo, env, [*layers, ("the options", values)])
        experiments.require_at_least({"--seeds": given.files.seeds, "--jobs": given.files.jobs}, 1)
        group = _group(config, given.files) if given.files.seeds > 1 else None
        folder = _default_folder(config) if given.files.out is None else _folder(given.files.out)
        if group is None:
            run_folder.refuse_existing(folder)
        else:
            seed_group.refuse_existing_group(group)
    console = given.output.console()
    if group is None:
        start(config, folder, console, given.output.json)
    else:
        _show_group(group, seed_group.train_group(group, console), given.output)


def _group(config: Mapping[str, Any], files: _Files) -> seed_group.SeedGroup:
    """The runs of several seeds that are asked for."""
    first = config["run"]["seed"]
    seeds = tuple(range(first, first + files.seeds))
    default = run_config.default_group_dir(config["algo"], config["env"], seeds[0], seeds[-1])
    return seed_group.SeedGroup(default if files.out is None else _folder(files.out), config, seeds, files.jobs)


def _show_group(group: seed_group.SeedGroup, summaries: Sequence[Mapping[str, Any]], output: Output) -> None:
    """Say what can be done with the runs of a group that is complete."""
    from metaroll.cli.display.summary import print_json

    output.console().print(f"next: metaroll compare {group.folder}", soft_wrap=True, markup=False)
    if output.json:
        print_json({"runs": list(summaries)})


def _algorithm_and_environment(arguments: Sequence[str], usage: str) -> tuple[tuple[str, str], list[str]]:
    """The two names and the other arguments; ``--help`` works without names, with the first of each."""
    names, rest = take_positionals(arguments, 2)
    algo = get_algorithm(names[0] if names else ALGORITHM_NAMES[0]).name
    if len(names) < 2 and not asks_for_help(rest):
        known = f"algorithms: {', '.join(ALGORITHM_NAMES)}; environments: {', '.join(example_envs(algo))}"
        missing = "the environment is" if names else "both names are"
        raise UsageError(f"{usage}: {missing} missing (before all options). Known {known}")
    return (algo, names[1] if len(names) == 2 else example_envs(algo)[0]), rest


def resume(arguments: Sequence[str]) -> None:
    """Continue a run from its newest snapshot, or a group of runs."""
    run, rest = _run_folder_name(_ResumeArguments, arguments, "metaroll resume RUN [options]")
    about = (
        "metaroll resume RUN\n\nContinues as if the run had never been interrupted. RUN may be the folder of a group "
        "(train --seeds): those that have begun are continued, the others started."
    )
    given = parse_options(_ResumeArguments, rest, "metaroll resume", about)
    changes = {name: getattr(given, name) for name in ("epochs", "num_workers") if getattr(given, name) is not None}
    changes |= given.where.changes()
    with blame_input():
        group = seed_group.read_group(Path(run))
    if group is not None:
        _resume_group(group, given, changes)
        return
    with blame_input():
        if given.jobs is not None:
            raise UsageError(f"--jobs is for a group of runs (train --seeds), {run} is none")
        folder = run_folder.find_run(run)
        config = run_folder.read_config(folder)
        config["run"] = {**config["run"], **changes}
    from metaroll.cli.runs.sessions import continue_run

    continue_run(config, folder, given.output.console(), given.output.json, given.from_epoch)


def _resume_group(group: seed_group.SeedGroup, given: _ResumeArguments, changes: Mapping[str, Any]) -> None:
    from metaroll.cli.experiment.experiments import require_at_least

    with blame_input():
        require_at_least({"--jobs": given.jobs, "--epochs": given.epochs}, 1)
        if given.from_epoch is not None:
            raise UsageError(f"--from-epoch is for one run: {', '.join(map(str, group.folders))}")
    if given.jobs is not None:
        group = dataclasses.replace(group, jobs=given.jobs)
    summaries = seed_group.resume_group(group, changes, given.output.console())
    _show_group(group, summaries, given.output)


def evaluate(arguments: Sequence[str]) -> None:
    """Adapt the newest snapshot of a run to held-out tasks."""
    run, rest = _run_folder_name(_EvaluateArguments, arguments, "metaroll evaluate RUN [options]")
    about = "metaroll evaluate RUN\n\nAdapts the newest snapshot to tasks that it was not trained on."
    given = parse_options(_EvaluateArguments, rest, "metaroll evaluate", about)
    with blame_input():
        folder = run_folder.find_run(run)
        config = run_folder.read_config(folder)
        config["run"] = {**config["run"], **given.where.changes()}
    from metaroll.cli.experiment.experiments import require_at_least
    from metaroll.cli.runs.sessions import evaluate_run

    with blame_input():
        counts = {name: getattr(given, name) for name in ("episodes", "adapted_episodes", "num_tasks", "repetitions")}
        require_at_least({"--" + name.replace("_", "-"): value for name, value in counts.items()}, 1)
        require_at_least({"--seed": given.seed}, 0)
    adapts = get_algorithm(config["algo"]).adapts
    for name in () if adapts else ("repetitions", "adapted_episodes"):
        if getattr(given, name) is not None:
            flag = "--" + name.replace("_", "-")
            raise UsageError(f"{flag} is for algorithms that adapt; ask for more episodes with --episodes N")
    episodes = "n_exploration_traj" if adapts else "num_episodes"
    changes = {episodes: given.episodes, "repetitions": given.repetitions, "seed": given.seed}
    changes["n_test_rollouts"] = given.adapted_episodes
    changes = {name: value for name, value in changes.items() if value is not None}
    with blame_input():
        out = folder if given.out is None else _folder(given.out)
        file_to_write("--out", str(out / "evaluation.json"), [".json"])
    console = given.output.console()
    evaluate_run(config, folder, console, given.output.json, given.num_tasks, changes, given.from_epoch, out)


def _run_folder_name(kind: type, arguments: Sequence[str], usage: str) -> tuple[str, list[str]]:
    """The folder, before, between or behind the options of ``kind``, and the other arguments."""
    names, rest = take_positionals(arguments, 1, flags_of(kind, valued_only=True))
    if not names and not asks_for_help(rest):
        raise UsageError(f"{usage}: the folder of the run is missing")
    return (names or [""])[0], rest


def _folder(text: str) -> Path:
    """The folder of ``--out``; shells leave a ``~`` behind ``=`` as it is."""
    if not text:
        raise UsageError("--out must name a folder, got an empty text; leave it out for the default")
    return Path(text).expanduser()


def _default_folder(config: Mapping[str, Any]) -> Path:
    return run_config.default_run_dir(config["algo"], config["env"], config["run"]["seed"])
