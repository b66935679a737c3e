"""Builds everything of a run from its configuration alone."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import textwrap
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import torch
from threadpoolctl import threadpool_limits

from metaroll.config import MISSING, Option, RunFile, merge_layers, options_of, parts_of, unused
from metaroll.configs.run import RunConfig
from metaroll.configs.table import evaluation_config, run_options
from metaroll.envs.base.task_family import USUAL_TEST_TASKS, USUAL_TRAIN_TASKS
from metaroll.envs.lookup.name_hints import refuse_misread
from metaroll.envs.lookup.registry import family_names, installed
from metaroll.envs.lookup.source import EnvSource, make_env
from metaroll.errors import FileKey, UsageError, for_reader, named_as, option_name, option_text, unknown_name
from metaroll.option_names import GIVEN, understood
from metaroll.policies.own_body import has_own_body
from metaroll.rollouts.configs import EngineConfig, PoolTimeouts, check_address
from metaroll.rollouts.single.rollout import rollout
from metaroll.rollouts.workers.ray_session import check_cluster, require_ray
from metaroll.seeding import derive_seed
from metaroll.tasks.task_sampler import FixedTaskSampler
from metaroll.training.algorithms.algorithm import Algorithm
from metaroll.training.algorithms.building import BuildOptions, is_out_of_memory
from metaroll.training.algorithms.origins import origins
from metaroll.training.algorithms.registry import (
    SIZES,
    WITHOUT_TASKS,
    default_size,
    get_algorithm,
    preset,
    size_values,
)
from metaroll.training.evaluation.evaluator import PolicyEvaluator
from metaroll.training.evaluation.meta_evaluator import MetaEvaluator
from metaroll.training.run.callbacks import EVALUATED, KeepBest, RunCallback, StopAt, TimeBudget
from metaroll.training.run.runner import LocalRunner
from metaroll.training.session.machine import memory
from metaroll.training.store.loggers import (
    MetricLogger,
    TensorBoardLogger,
    WandbLogger,
    require_tensorboard,
    require_wandb,
)
from metaroll.training.store.run_folder import kept_paths
from metaroll.training.store.snapshots import SnapshotConfig
from metaroll.types import EnvUpdate

__all__ = [
    "Experiment",
    "build",
    "build_evaluator",
    "check_names",
    "episodes_of_evaluation",
    "require_at_least",
    "resolve",
    "split_tasks",
    "tested_on_training",
    "torch_threads",
    "with_torch_threads",
]

_REWARD_KEYS = (("algorithm", "context_reward_key"), ("evaluation", "return_reward_key"))
# Per row and unit of the networks: the activation and its gradient, in single precision.
_BYTES_PER_UNIT = 8
_LONG_EPISODE = 200
_NUMBERS_OF_TASKS = ("num_train_tasks", "num_test_tasks")


def check_machine(run: RunConfig) -> None:
    """Raise an error if a run requests something that this machine does not have."""
    most = max(16, 4 * (os.cpu_count() or 1))
    if run.num_workers > most and run.transport != "ray":
        raise ValueError(
            f"{option_name('num_workers')} must be at most {most} on this machine, got {run.num_workers}: more of them "
            f"than processors ({os.cpu_count()}) only take memory"
        )
    check_address(run.ray_address, option_name("ray_address"))
    if run.transport == "ray":
        require_ray()
    if run.tensorboard:
        require_tensorboard()
    if run.wandb is not None:
        require_wandb()
    SnapshotConfig(None, run.snapshot_mode, run.snapshot_gap, run.keep_last)
    services_of(vars(run))
    _check_device(run.device)


def services_of(run: Mapping[str, Any]) -> list[RunCallback]:
    """The callbacks that stop the run and keep its best snapshot, according to its options.

    Raises:
        ValueError: An option is invalid.
    """
    target = 0.0 if run["stop_at"] is None else run["stop_at"]
    with named_as({"metric": option_name("stop_metric")}):
        stop = StopAt(target, run["stop_metric"], window=run["stop_mean_of"])  # also checks options that are not used
    services: list[RunCallback] = [] if run["stop_at"] is None else [stop]
    services += [] if run["budget"] is None else [TimeBudget(run["budget"])]
    with named_as({"metric": option_name("keep_best")}):
        services += [] if run["keep_best"] is None else [KeepBest(run["keep_best"])]
    return services


def require_at_least(values: Mapping[str, int | None], low: int) -> None:
    """Raise an error that names the first of ``values`` (name -> number or ``None``) below ``low``."""
    for name, value in values.items():
        if value is not None and value < low:
            raise ValueError(f"{name} must be at least {low}, got {value}")


def _check_device(name: str) -> None:
    """Raise an error unless networks and generators can be created on the device."""
    try:
        device = torch.device(name)
        if device.type == "cuda" and not torch.cuda.is_available():
            raise RuntimeError("torch sees no CUDA device")
        torch.Generator(device)
        torch.zeros(1, device=device).item()
    except (RuntimeError, NotImplementedError, AssertionError) as error:
        reason = textwrap.shorten(str(error).strip() or type(error).__name__, 100, placeholder=" ...")
        use = option_text("device", "cpu")
        raise ValueError(f"{option_text('device', name)} cannot be used here ({reason}); use {use}") from error


class Experiment(NamedTuple):
    """All parts of a run, ready to train.

    Attributes:
        runner: The runner.
        algo: The learner.
        env: The environment that the runner was set up with: ``source``, or one task of it.
        evaluator: The evaluator.
        source: The environment named in the configuration.
    """

    runner: LocalRunner
    algo: Any
    env: Any
    evaluator: MetaEvaluator | PolicyEvaluator
    source: EnvSource


def check_names(algo: str, env: EnvSource) -> None:
    """Raise an error with the nearest names if there is no such algorithm or environment."""
    adapts, known = get_algorithm(algo).adapts, env.known
    known.refuse_alike()
    if adapts and not known.is_entry_point and not known.has_family:
        refuse_misread(env.name)
        if env.name in gymnasium.registry:
            family = f"TaskFamily.from_params({env.name!r}, {{constant: (low, high)}})"
            hint = for_reader(
                f"Define them, family = metaroll.{family}, and use metaroll.agent({algo!r}, family)",
                f"Define them in a file my_env.py, family = {family}, and train in my_env:family",
            )
            raise UsageError(
                f"{env} is a single environment without tasks, and {algo} learns to adapt to tasks. {hint}; or train "
                f"{WITHOUT_TASKS} in {env}, in all tasks at once with "
                + option_text("randomize_param", ["constant=LOW:HIGH"])
            )
        raise unknown_name("environment", env.name, {*family_names(), *installed()})


def resolve(
    algo: str,
    env: str | EnvSource,
    layers: Iterable[tuple[str, Mapping[str, Any]]] = (),
    command: str = "train",
    size: str | None = None,
    kept: bool = False,
    final: bool = True,
) -> dict[str, Any]:
    """The complete configuration: constructor defaults < task family < preset < size < ``layers``, all written out.

    A schedule of the preset that lasts for its epochs follows the epochs of the run, unless a layer says otherwise.

    Args:
        algo: Name of the algorithm.
        env: The environment, or its name.
        layers: ``(where, values)`` pairs, weakest first; ``where`` names the source in errors.
        command: The command that starts the run.
        size: One of ``SIZES``; ``None`` takes that of the layers, else ``default_size``.
        kept: The layers come from a saved run and are used unchanged: options without effect are no error.
        final: The layers are complete: options that do not fit together are an error.
    """
    env = EnvSource.of(env)
    check_names(algo, env)
    description, options = get_algorithm(algo), run_options(algo)
    layers, names = _named(layers, options, kept)
    known = {option.name for option in options}
    sizes = description.sizes(env)
    own = {name: value for name, value in sizes.items() if name in known and value is not None}
    name, tuned = env.name, preset(algo, env.name)
    size = _size_of(algo, env, layers) if size is None else size
    sized = {"size": size, **_fitting(env, size_values(algo, name, size))}
    usual = merge_layers(options, [("the environment", own), ("the preset", tuned), ("the size", sized)])
    with named_as(names):
        values = _settled(algo, env, usual, tuned, layers, kept) | {"size": size}
        if final:
            check_machine(parts_of(RunConfig, values))
            for kind in (*description.configs, evaluation_config(algo)):
                parts_of(kind, values)
    sections: dict[str, Any] = {"command": command, "algo": algo, "env": name}
    sections |= origins(algo, name, values.get("policy"))
    for option in options:
        sections.setdefault(option.section, {})[option.name] = values[option.name]
    return sections


def _settled(
    algo: str,
    env: EnvSource,
    usual: Mapping[str, Any],
    tuned: Mapping[str, Any],
    layers: Sequence[tuple[str, Mapping[str, Any]]],
    kept: bool,
) -> dict[str, Any]:
    """A value for each option, from ``usual`` defaults and ``layers``; missing or ineffective options are errors."""
    description, options = get_algorithm(algo), run_options(algo)
    values = merge_layers(options, layers, usual)
    for name in description.follows_epochs:
        if name in tuned and not any(name in layer for _, layer in layers):
            values[name] = values["epochs"]
    values |= description.settled(values, {name for _, layer in layers for name in layer})
    asked = set() if kept else {name for where, layer in layers if not isinstance(where, RunFile) for name in layer}
    values |= evaluation_config(algo).settled(values, asked)
    idle = {**unused(options, values), **description.idle(env, values)}
    for option in options:
        name, why = option.name, idle.get(option.name)
        if why is None or name not in asked or values[name] in (option.default, usual[name]):
            continue
        # One name may set several options of which only some apply: learning_rate, for SAC with a fixed temperature.
        if option_name(name) not in {option_name(other.name) for other in options if other.name not in idle}:
            raise ValueError(f"{option_text(name, values[name])} has no effect: {why}")
    missing = [option for option in options if values[option.name] is MISSING]
    if missing:
        flags = ", ".join(option_text(option.name) for option in missing)
        hint = for_reader("", " by flag or with --config FILE")
        raise ValueError(f"{algo} in {env} has no default for {flags}: give a value{hint}")
    if env.is_varied and any(where == GIVEN and layer.get("randomize") == "default" for where, layer in layers):
        asked_for = option_text("randomize", "default")
        raise ValueError(f"{asked_for} is not for {env}, a family of tasks that draws its own: leave it out")
    require_at_least({option_name(name): values[name] for name in _NUMBERS_OF_TASKS if name in values}, 1)
    return values


def names_given(algo: str, layers: Iterable[tuple[str, Mapping[str, Any]]]) -> dict[str, str]:
    """Names of an algorithm's options in the layers of ``resolve``, for later errors (see ``named_as``)."""
    return _named(layers, run_options(algo), kept=True)[1]


def _named(
    layers: Iterable[tuple[str, Mapping[str, Any]]], options: Sequence[Option], kept: bool
) -> tuple[list[tuple[str, dict[str, Any]]], dict[str, str]]:
    """``layers`` with our names, and the names of options in the strongest layer that sets them.

    Former names cause a warning, unless they come from a saved run (``kept``, or a file it wrote).
    """
    known: list[tuple[str, dict[str, Any]]] = []
    names: dict[str, str] = {}
    for where, layer in layers:
        with warnings.catch_warnings():
            if kept or isinstance(where, RunFile):
                warnings.simplefilter("ignore", DeprecationWarning)
            write = functools.partial(_as_given, where, layer)
            values, written_names = understood(layer, options, write, of_run=True)
        if where != GIVEN:
            written_names = {name: FileKey(written_names.get(name, name), where) for name in values}
        names = {name: called for name, called in names.items() if name not in values} | written_names
        known.append((where, values))
    return known, names


def _as_given(where: str, layer: Mapping[str, Any], name: str) -> str:
    """The name of an option in errors: as written in its layer, else our own name."""
    return FileKey(name, where) if name in layer and where != GIVEN else name


def _size_of(algo: str, env: EnvSource, layers: Sequence[tuple[str, Mapping[str, Any]]]) -> str | None:
    """The size in the strongest of ``layers`` that has one, else the default."""
    for where, layer in reversed(layers):
        if "size" in layer:
            size = layer["size"]
            if size is not None and size not in SIZES:
                name = option_name("size") if where == GIVEN else f"size in {where}"
                raise ValueError(f"{name} must be one of {', '.join(SIZES)}, got {size!r}")
            return size
    return default_size(algo, env.name, own=env.known.is_entry_point)


def _fitting(env: EnvSource, values: Mapping[str, Any]) -> dict[str, Any]:
    """Drop task numbers if the family sets its own, has too few tasks or long episodes.

    Also drop repetitions if it has a fixed list of tasks.
    """
    if env.is_varied and env.family.all_tasks:
        values = {name: value for name, value in values.items() if name != "repetitions"}
    train, test = (values.get(name) for name in _NUMBERS_OF_TASKS)
    if train is None and test is None:
        return dict(values)
    family = env.family
    usual = (family.num_train_tasks, family.num_test_tasks) == (USUAL_TRAIN_TASKS, USUAL_TEST_TASKS)
    usual = usual and (family.horizon or 0) <= _LONG_EPISODE
    with contextlib.suppress(ValueError):
        if usual and family.split(train, test):
            return dict(values)
    return {name: value for name, value in values.items() if name not in _NUMBERS_OF_TASKS}


def split_tasks(config: Mapping[str, Any], env: EnvSource, num_test: int | None = None) -> tuple[Any, list[EnvUpdate]]:
    """Training and held-out tasks of a configuration; ``num_test`` asks for another number of held-out ones.

    Without any the algorithm learns in, and is evaluated on, the nominal environment: then the first is ``None``.
    """
    return get_algorithm(config["algo"]).tasks(BuildOptions.of(config, env), num_test)


def episodes_of_evaluation(config: Mapping[str, Any], num_tasks: int | None, changes: Mapping[str, Any]) -> int:
    """Minimum number of episodes of an evaluation, with ``changes`` of ``build_evaluator`` and a number of tasks.

    0 if a number is invalid: the evaluator reports that.
    """
    kind = evaluation_config(config["algo"])
    changes, _ = understood(changes, options_of(kind))
    settings = {**config["evaluation"], **changes}
    settings |= kind.settled(settings, changes)
    tasks = config["algorithm"].get("num_test_tasks") if num_tasks is None else num_tasks
    each = [settings[name] for name in ("num_episodes", "num_adaptation_episodes") if name in settings]
    numbers = [tasks or 1, settings.get("repetitions", 1), *each]
    if any(type(number) is not int or number < 1 for number in numbers):
        return 0
    return numbers[0] * numbers[1] * sum(each)


def tested_on_training(env: EnvSource) -> bool:
    """Whether the test tasks are training tasks, as the family was published."""
    return env.is_varied and env.family.same_tasks


def build(
    config: Mapping[str, Any],
    run_dir: Path | None = None,
    callbacks: Sequence[Any] = (),
    env: EnvSource | None = None,
) -> Experiment:
    """Algorithm, environment, evaluator and runner of ``config``; nothing is written before training starts.

    Args:
        config: A configuration from ``resolve``.
        run_dir: Folder of the run; ``None`` writes nothing.
        callbacks: Objects that the runner notifies of epochs and evaluations.
        env: The environment named in the configuration, if the caller has it.
    """
    source = EnvSource.of(config["env"]) if env is None else env
    if config["algorithm"].get("max_steps", 0) is None:  # not in resolve, which also serves --help
        limit = option_text("max_steps", 200)
        raise ValueError(f"{config['env']} has no time limit: set one, for example {limit}")
    description, build_options = get_algorithm(config["algo"]), BuildOptions.of(config, source)
    train_tasks, test_tasks = description.tasks(build_options, None)
    learned_in = description.environment(build_options, train_tasks)
    _check_reward_keys(config, learned_in)
    _check_evaluations(config)
    algo = _built(description, build_options, train_tasks, test_tasks)
    evaluator = build_evaluator(config, source, test_tasks)
    run = config["run"]
    if run["transport"] == "ray":
        check_cluster(run["ray_address"])
    kept = config if run_dir is None else kept_paths(config, run_dir)
    loggers: list[MetricLogger] = [TensorBoardLogger()] if run["tensorboard"] else []
    with named_as({"project": option_name("wandb")}):
        loggers += [] if run["wandb"] is None else [WandbLogger(run["wandb"], kept)]
    runner = LocalRunner(
        SnapshotConfig(run_dir, run["snapshot_mode"], run["snapshot_gap"], run["keep_last"]) if run_dir else None,
        seed=run["seed"],
        engine=EngineConfig(
            num_workers=run["num_workers"],
            transport=run["transport"],
            address=run["ray_address"],
            timeouts=PoolTimeouts(step_s=run["step_timeout"], reset_s=run["reset_timeout"]),
        ),
        evaluator=evaluator,
        callbacks=(*(services_of(run) if run_dir else ()), *callbacks),
        config=kept,
        loggers=loggers if run_dir else (),
    )
    runner.setup(algo, learned_in)
    return Experiment(runner, algo, learned_in, evaluator, source)


def _check_evaluations(config: Mapping[str, Any]) -> None:
    """Raise an error if an option depends on evaluations and there are none."""
    run = config["run"]
    waiting = {"keep_best": run["keep_best"], "stop_metric": run["stop_metric"] if run["stop_at"] is not None else None}
    for name, metric in waiting.items():
        if metric in EVALUATED and config["algorithm"].get("evaluate_every") == 0:
            asked, trained = option_text(name, metric), option_text(name, "train/return")
            never, always = option_text("evaluate_every", 0), option_text("evaluate_every", 1)
            raise ValueError(
                f"{asked} is a metric of evaluations, and with {never} there are none: use {always}, or a metric of "
                f"training such as {trained}"
            )


def _built(description: Algorithm, build_options: BuildOptions, train: Any, test: Sequence[EnvUpdate]) -> Any:
    """Build the algorithm; networks or gradient steps that do not fit into memory raise an error about their sizes."""
    sizes = {"hidden_sizes": build_options.hidden_sizes}
    sizes |= {name: value for name, value in build_options.values.items() if name.endswith("hidden_sizes")}
    most = memory().total
    for name, widths in sizes.items():
        needed = 4 * sum(first * second for first, second in itertools.pairwise(widths))
        if needed > most:
            given_sizes = option_text(name, list(widths))
            raise ValueError(f"{given_sizes} takes {needed:,} bytes per network, more than this machine has")
    try:
        algo = description.build(build_options, train, test)
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        name = option_name("hidden_sizes")
        raise ValueError(f"the networks do not fit into memory, take smaller {name}: {sizes}") from error
    if build_options.values.get("policy") is not None and not has_own_body(algo.policy):
        name = option_name("policy")
        raise ValueError(f"{name} is not for {description.name}, which makes its networks itself: leave it out")
    rows = description.largest_batch(build_options.values)
    needed = _BYTES_PER_UNIT * rows * sum(itertools.chain(*sizes.values()))
    if needed > most:
        raise ValueError(
            f"{option_text('batch_size', build_options.values['batch_size'])} means gradient steps over {rows:,} rows: "
            f"about {needed / 2**30:,.0f} GiB in networks of {sizes}; this machine has {most / 2**30:,.0f} GiB: take "
            f"{option_text('batch_size', 256)}, for example"
        )
    return algo


def with_torch_threads(config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration with the number of torch's threads filled in, so that a resumed run has the same bits."""
    run = config["run"]
    threads = torch.get_num_threads() if run["torch_threads"] is None else run["torch_threads"]
    return {**config, "run": {**run, "torch_threads": threads}}


def _check_reward_keys(config: Mapping[str, Any], env: Any) -> None:
    """Raise an error, before collecting data, if a reward is to be read from an info that the environment lacks."""
    keys = {name: config[section].get(name) for section, name in _REWARD_KEYS}
    if not any(keys.values()):
        return
    environment = make_env(env)
    environment.action_space.seed(0)
    action = environment.action_space.sample()
    seen = rollout(environment, lambda obs: action, max_steps=1, seed=0, no_close=False)
    infos = seen.env_infos if "env_infos" in seen.data_names else {}
    for name, key in keys.items():
        if key is not None and key not in infos:
            known = ", ".join(sorted(infos)) or "none"
            raise ValueError(
                f"{option_name(name)} {key!r} is not among the infos of {config['env']} (it has: {known})"
                "; leave the option out to use the reward itself"
            )


@contextlib.contextmanager
def torch_threads(wanted: int | None) -> Iterator[None]:
    """Run torch and NumPy's matrix products with ``wanted`` threads; ``None`` changes nothing.

    The bits of a run then depend on its configuration and not on ``OMP_NUM_THREADS``, and parallel runs do not wait
    for each other's threads.
    """
    before = torch.get_num_threads()
    if wanted is None:
        yield
        return
    torch.set_num_threads(wanted)
    try:
        with threadpool_limits(wanted, user_api="blas"):
            yield
    finally:
        torch.set_num_threads(before)


def build_evaluator(
    config: Mapping[str, Any], source: EnvSource, test_tasks: Sequence[EnvUpdate], **changes: Any
) -> Any:
    """The evaluator of ``config`` on ``test_tasks`` of an environment.

    ``changes`` replace its settings and keywords.
    """
    keywords: dict[str, Any] = {
        "test_task_sampler": FixedTaskSampler(test_tasks) if test_tasks else None,
        "max_steps": config["algorithm"]["max_steps"],
        "num_test_tasks": len(test_tasks) or None,
        "seed": derive_seed("evaluation", config["run"]["seed"]),
        "allow_overlap": tested_on_training(source),
    }
    description = get_algorithm(config["algo"])
    if description.adapts:
        keywords["all_tasks"] = source.is_varied and source.family.all_tasks
    else:
        keywords["env"] = test_tasks[0] if test_tasks and source.is_varied else source
    settings: Any = parts_of(evaluation_config(config["algo"]), config["evaluation"])
    return description.evaluator(settings, **{**keywords, **changes})
