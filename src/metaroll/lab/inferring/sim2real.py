"""The complete loop on a simulated robot: log, posterior, policies trained on it, returns on the robot."""

from __future__ import annotations

import functools
import json
import math
import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from metaroll.configs.inference import InferenceOptions, LoopOptions
from metaroll.data.doors.json_files import parse_json
from metaroll.data.folders.contents import move_folder
from metaroll.data.folders.kinds import CONFIG_FILE, OPTIONS_FILE, SIM2REAL, SUMMARY_FILE
from metaroll.data.folders.taking import HeldFolder, is_empty, take, take_new
from metaroll.data.recordings import save_rollouts
from metaroll.data.step_sequence import StepSequence
from metaroll.errors import MetarollError
from metaroll.functional.bootstrap import bootstrap_ci
from metaroll.inference.estimators import require_sbi
from metaroll.inference.posterior import Posterior
from metaroll.inference.priors import Prior, as_prior
from metaroll.lab.inferring.inferring import infer
from metaroll.lab.results.inference_result import ONE_MORE_ROUND, PAGE, Inference
from metaroll.lab.runs.run_reports import read_run
from metaroll.processes.child import Child, run_children
from metaroll.rollouts.engine.engine import RolloutEngine
from metaroll.rollouts.single.rollout import rollout
from metaroll.seeding import derive_seed
from metaroll.training.run.views import console_view
from metaroll.training.session import agent as agents
from metaroll.training.session.sessions import continue_run
from metaroll.training.session.sim2real import DT, ENV, swing_up
from metaroll.training.store.files import read_json, to_plain, write_json
from metaroll.training.store.metrics_log import read_metrics
from metaroll.training.store.run_folder import read_config
from metaroll.types import RolloutPlan

__all__ = [
    "ENV",
    "TRAINING",
    "UNKNOWN",
    "LoopResult",
    "Training",
    "TrainingFailedError",
    "close_the_loop",
    "draw_robot",
    "inference_options",
    "log_robot",
    "oracle_tasks",
    "swing_up",
    "train_as_child",
    "train_policy",
    "unknown_prior",
]

UNKNOWN = ("mass_pend_pole", "length_pend_pole", "length_rot_pole", "motor_resistance", "motor_back_emf")
"""The parameters that are inferred."""
_SPREAD = 0.5
TRAINING: Mapping[str, Any] = {
    "steps_per_epoch": 5000,
    "num_passes": 10,
    "batch_size": 320,
    "learning_rate": 1e-3,
    "discount": 0.99,
    "gae_lambda": 0.95,
    "hidden_sizes": (64, 64),
    "evaluate_every": 0,
    "torch_threads": 1,
}
"""Options for training policies, except for epochs and seed."""
FILE_NAME = "sim2real.json"
POLICIES = {
    "nominal": "trained with the parameters of the data sheet",
    "uniform": "trained on the whole prior",
    "posterior": "trained on the posterior from the log",
    "oracle": "trained on the true parameters",
}
_COPES = 50.0
"""A policy that swings up and balances earns 200 and more."""


@dataclass(frozen=True)
class LoopResult:
    """The result of the loop.

    Attributes:
        truth: The robot's parameters.
        inference: Their inference from the log.
        returns: Name of a policy -> returns on the robot, ``(E,)``; all use the same episodes.
        folder: Folder with all files.
        options: Sizes.
    """

    truth: Mapping[str, float]
    inference: Inference
    returns: Mapping[str, np.ndarray]
    folder: Path
    options: LoopOptions

    def score(self, name: str) -> float:
        """Share of the way from nominal training to the oracle."""
        means = {policy: float(values.mean()) for policy, values in self.returns.items()}
        way = means["oracle"] - means["nominal"]
        return (means[name] - means["nominal"]) / way if way else math.nan

    @property
    def solved(self) -> bool:
        """Whether the oracle swings up at all: otherwise there is nothing to compare."""
        return bool(self.returns["oracle"].mean() >= _COPES)

    def interval(self, name: str) -> tuple[float, float]:
        """95 % bootstrap interval of the mean return."""
        _, low, high = bootstrap_ci(self.returns[name], np.mean, 2000, 0.05, 2, seed=0)
        return float(np.ravel(low)[0]), float(np.ravel(high)[0])

    def to_dict(self) -> dict[str, Any]:
        """All numbers, JSON types."""
        return {
            "env": ENV,
            "truth": dict(self.truth),
            "inference": self.inference.to_dict(),
            "returns": {name: values.tolist() for name, values in self.returns.items()},
            "means": {name: float(values.mean()) for name, values in self.returns.items()},
            **{f"score_{name}": self.score(name) for name in self.returns if name not in ("nominal", "oracle")},
            "options": asdict(self.options),
        }


def unknown_prior() -> Prior:
    """The prior: half to one and a half times the values of the data sheet."""
    nominal = swing_up().model.nominal
    return as_prior({name: ((1.0 - _SPREAD) * nominal[name], (1.0 + _SPREAD) * nominal[name]) for name in UNKNOWN})


def draw_robot(seed: int) -> dict[str, float]:
    """Draw the hidden parameters of a robot."""
    values = unknown_prior().sample(1, derive_seed("hidden robot", seed))[0]
    return dict(zip(UNKNOWN, values.tolist(), strict=True))


def log_robot(truth: Mapping[str, float], count: int, seed: int) -> list[StepSequence]:
    """Rollouts of the robot under exciting voltages, with the arm pulled strongly to its center."""
    robot = swing_up(domain_param=truth)
    return [
        rollout(robot, _Excitation(derive_seed("excitation", seed, number)), seed=seed, sub_seed=number, eval=True)
        for number in range(count)
    ]


def inference_options(options: LoopOptions, seed: int, checks: bool = True) -> InferenceOptions:
    """How the robot's parameters are inferred.

    States themselves are compared, ten steps apart: sums of products of actions and changes say little about the
    motor's resistance.
    """
    return InferenceOptions(
        features="all-steps", every=10, rounds=3, num_simulations=options.simulations, seed=seed, checks=checks
    )


class _Excitation:
    """Voltages: a sum of sines plus a PD controller of the arm."""

    def __init__(self, seed: int) -> None:
        generator = np.random.default_rng(seed)
        self._frequencies = generator.uniform(0.5, 3.0, 4)
        self._phases = generator.uniform(0.0, 2.0 * np.pi, 4)
        self._step = 0

    def __call__(self, obs: np.ndarray) -> np.ndarray:
        time = self._step * DT
        self._step += 1
        pull = -15.0 * math.atan2(obs[0], obs[1]) - 0.3 * obs[4]
        push = 3.0 * float(np.sin(2.0 * np.pi * self._frequencies * time + self._phases).sum())
        return np.clip([push + pull], -4.5, 4.5)


class TrainingFailedError(MetarollError, RuntimeError):
    """A training run of the loop failed; the others are kept."""


@dataclass(frozen=True, kw_only=True)
class Training:
    """How a policy of the loop is trained.

    Attributes:
        name: Name of its run.
        options: Differences from the usual training, including ``epochs`` and ``seed``.
        tasks: Folder of a posterior to train on; ``None``: there is none.
        trainings: Number of training runs with different seeds; the one with the highest return is kept.
    """

    name: str
    options: Mapping[str, Any]
    tasks: str | None = None
    trainings: int = 1


def train_policy(training: Training, folder: Path) -> Path:
    """Train PPO and return the folder of its run; of several, the one with the highest return in training.

    Finished training runs are kept, and interrupted ones continue. Their results differ by chance. The choice does not
    use the robot: it compares the mean return of the last tenth of the epochs, in the simulations that the policy was
    trained on.

    Args:
        training: How.
        folder: Folder of the runs.
    """
    run = folder / training.name
    if training.trainings == 1:
        _train(training, run, training.options["seed"])
        return run
    if not _is_finished(run):
        tried = [folder / f"{training.name}-{number + 1}" for number in range(training.trainings)]
        for number, where in enumerate(tried):
            seed = training.options["seed"]
            _train(training, where, derive_seed("training", seed, number) % 2**31 if number else seed)
        move_folder(max(tried, key=_final_return), run)
    return run


def _is_finished(run: Path) -> bool:
    return (run / SUMMARY_FILE).is_file() and read_run(run).state == "finished"


def _train(training: Training, run: Path, seed: int) -> None:
    """Train to the end in the folder ``run``, which may hold the beginning of this training."""
    if _is_finished(run):
        return
    values = {**TRAINING, "lr_decay_epochs": training.options["epochs"], **training.options, "seed": seed}
    with warnings.catch_warnings():  # close_the_loop has reported it
        warnings.filterwarnings("ignore", ".*Do not train on this posterior")
        if (run / CONFIG_FILE).is_file():
            continue_run(read_config(run), run, console_view(quiet=True))
        else:
            agent = agents.agent("ppo", ENV, run_dir=run, tasks=training.tasks, **values)
            agent.learn(progress=False)


def train_as_child() -> int:
    """Run the training described by the arguments of this process, which ``train_all`` has started."""
    folder, training = sys.argv[1:]
    train_policy(Training(**parse_json(training)), Path(folder))
    return 0


def _final_return(run: Path) -> float:
    """Mean return of the last tenth of a training."""
    returns = [row["value"] for row in read_metrics(run, phase="train", metric="return")]
    return float(np.mean(returns[-max(len(returns) // 10, 1) :]))


def close_the_loop(
    folder: str | Path, options: LoopOptions | None = None, tell: Callable[[str], None] = lambda text: None
) -> LoopResult:
    """Log the hidden robot, infer its parameters, train policies, and evaluate them on the robot.

    An interrupted loop with the same options in the folder continues, with the same bits. Any other loop there, and one
    that already has a page, is renamed and kept beside it.

    Args:
        folder: Output folder.
        options: Sizes.
        tell: Called with a message for each step.

    Raises:
        MissingPackageError: sbi is not installed; nothing was done.
        RunExistsError: The folder holds something else, or another process is writing to it.
    """
    options, folder = LoopOptions() if options is None else options, Path(folder)
    require_sbi()
    with _taken(folder, options, tell):
        truth = draw_robot(options.seed)
        rollouts = log_robot(truth, options.rollouts, options.seed)
        save_rollouts(rollouts, folder / "log", overwrite=True)
        shortest, longest = min(map(len, rollouts)), max(map(len, rollouts))
        tell(f"logged {len(rollouts)} rollouts of the robot, {shortest} to {longest} steps")
        settings = inference_options(options, options.seed)
        inference = infer(
            ENV, rollouts, unknown_prior(), folder / "inference", settings, progress=_progress(tell, settings)
        )
        if not inference.trusted:
            tell(f"{inference.checks['text']} The demo still trains on it, to show how well it works on the robot.")
        returns = judge(train_all(folder, inference, truth, options, tell), truth, options)
        result = LoopResult(truth, inference, returns, folder, options)
        write_json(folder / FILE_NAME, result.to_dict())
    return result


def _taken(folder: Path, options: LoopOptions, tell: Callable[[str], None]) -> HeldFolder:
    """Take the folder for this process: empty, or with an interrupted loop with these options."""
    settings = {name: value for name, value in asdict(options).items() if name != "jobs"}
    kept = None
    if is_empty(folder) or (not (folder / PAGE).is_file() and _settings_of(folder) == to_plain(settings)):
        held = take(folder, SIM2REAL)
    else:
        held, kept = take_new(folder, SIM2REAL)
    if kept is not None:
        tell(f"the earlier loop in {folder} was moved to {kept}")
    write_json(folder / OPTIONS_FILE, settings)
    return held


def _settings_of(folder: Path) -> Any:
    """Options of the loop in a folder; ``None`` if unknown."""
    path = folder / OPTIONS_FILE
    settings = read_json(path) if path.is_file() else None
    if isinstance(settings, dict) and settings.get("baselines") == []:  # a former option
        del settings["baselines"]
    return settings


def train_all(
    folder: Path, inference: Inference, truth: Mapping[str, float], options: LoopOptions, tell: Callable[[str], None]
) -> dict[str, Path]:
    """Train all of ``POLICIES``; name -> folder of the run."""
    oracle = oracle_tasks(truth, folder / "oracle-tasks", options.seed)
    prior = inference.posterior.prior
    ranges = [f"{name}={low}:{high}" for name, low, high in zip(prior.names, prior.low, prior.high, strict=True)]
    common: dict[str, Any] = {"epochs": options.epochs, "seed": options.seed}
    make = functools.partial(Training, trainings=options.trainings)
    trainings = [
        make(name="nominal", options=common),
        make(name="uniform", options={**common, "randomize_param": ranges}),
        make(name="posterior", options=common, tasks=str(inference.folder)),
        make(name="oracle", options=common, tasks=str(oracle)),
    ]
    runs = {training.name: folder / "policies" / training.name for training in trainings}
    todo = [training for training in trainings if not _is_finished(runs[training.name])]
    if options.jobs == 1:
        for training in todo:
            train_policy(training, folder / "policies")
            tell(f"trained {training.name}: {POLICIES[training.name]}")
        return runs
    errors: dict[str, str] = {}

    def ended(name: str, child: Child) -> None:
        if child.returncode:
            errors[name] = child.last_words()
        else:
            tell(f"trained {name}: {POLICIES[name]}")

    begin = {
        training.name: functools.partial(
            Child,
            "metaroll.lab.inferring.sim2real:train_as_child",
            [str(folder / "policies"), json.dumps(asdict(training))],
        )
        for training in todo
    }
    failed = run_children(begin, options.jobs, ended=ended)
    if failed:
        raise TrainingFailedError(f"training {failed[0]} failed: {errors[failed[0]]}")
    return runs


def judge(runs: Mapping[str, Path], truth: Mapping[str, float], options: LoopOptions) -> dict[str, np.ndarray]:
    """Returns ``(E,)`` of each run's policy on the robot, on the same episodes."""
    plans = [
        RolloutPlan(index, (derive_seed("robot", options.seed), 0, index), eval=True)
        for index in range(options.episodes)
    ]
    robot, returns = functools.partial(swing_up, domain_param=dict(truth)), {}
    for name, run in runs.items():
        with RolloutEngine(robot, agents.load(run)) as engine:
            returns[name] = np.array([episode.undiscounted_return() for episode in engine.run(plans)])
    return returns


def oracle_tasks(truth: Mapping[str, float], folder: Path, seed: int) -> Path:
    """Write a posterior that is concentrated on the true parameters, to a thousandth."""
    generator, prior = np.random.default_rng(derive_seed("oracle", seed)), unknown_prior()
    values = np.array([truth[name] for name in prior.names])
    draws = np.clip(values * generator.normal(1.0, 1e-3, (1000, len(values))), prior.low, prior.high)
    Posterior(prior, draws=draws, description={"algorithm": "oracle"}).save(folder)
    return folder


def _progress(tell: Callable[[str], None], settings: InferenceOptions) -> Callable[[Any], None]:
    def report(state: Any) -> None:
        if state.phase == "simulate" and state.round_number > settings.rounds and not state.done:
            tell(ONE_MORE_ROUND)
        if state.phase == "train":
            where, failed = f"round {state.round_number} of {state.rounds}", f"{state.failed:,} of them failed"
            tell(f"{where}: {state.total:,} simulations, {failed}; learning the posterior")

    return report
