"""Runs of every algorithm: one that was stopped, the same one never stopped, and what its agent did."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch

import metaroll
from corpus.archives import write_json
from metaroll.lab.cli.main import main
from metaroll.lab.comparing.comparison import compare
from metaroll.policies.gaussian import CategoricalMLPPolicy
from metaroll.training.algorithms.registry import get_algorithm
from metaroll.training.store.files import to_plain
from pearl_sizes import IN_SIXTEENS

EPOCHS, STOPPED_AFTER = 3, 2
"""Epochs of a run, and those after which its twin was stopped."""

_SMALL = {"epochs": EPOCHS, "torch_threads": 1, "hidden_sizes": (8,), "evaluate_every": 1}
_ALONE = {**_SMALL, "num_episodes": 2}
_SEARCH = {**_ALONE, "hidden_sizes": (), "max_path_length": 20}
_ON_POLICY = {**_ALONE, "num_passes": 2, "batch_size": 30, "max_path_length": 30}
_REPLAY = {
    **_ALONE,
    "steps_per_epoch": 3,
    "n_train_steps": 8,
    "min_buffer_size": 16,
    "buffer_batch_size": 8,
    "replay_size": 60,
    "max_path_length": 15,
    "rollout_batch_size": 2,
    "update_to_data": 1.0,
}
_BOX_REPLAY = {**_REPLAY, "random_steps": 16}
_FEW_TASKS = {"num_train_tasks": 4, "num_test_tasks": 2, "repetitions": 1}
_GRADIENT_STEPS = {
    **_SMALL,
    **_FEW_TASKS,
    "meta_batch_size": 2,
    "rollouts_per_task": 2,
    "max_path_length": 10,
    "adaptation_rounds": 1,
    "episodes_per_round": 2,
    "n_exploration_traj": 2,
}
_PEARL = {
    **_SMALL,
    **_FEW_TASKS,
    "encoder_hidden_sizes": (8,),
    "latent_dim": 3,
    **IN_SIXTEENS,
    "replay_buffer_size": 100,
}

RUNS: Mapping[str, tuple[str, str, Mapping[str, Any]]] = {
    "pearl": ("pearl", "point-robot", _PEARL),
    "rl2": (
        "rl2",
        "point-robot",
        {**_SMALL, **_FEW_TASKS, "trials_per_epoch": 4, "episodes_per_trial": 2, "batch_size": 40, "num_passes": 2},
    ),
    "rl2-bandit": (
        "rl2",
        "bandit-5",
        {**_SMALL, "num_test_tasks": 3, "trials_per_epoch": 8, "batch_size": 40, "num_passes": 2},
    ),
    "maml": ("maml", "point-navigation", _GRADIENT_STEPS),
    "promp": ("promp", "point-navigation", {**_GRADIENT_STEPS, "learn_inner_lr": True, "gradient_steps": 2}),
    "dice": ("dice", "point-navigation", _GRADIENT_STEPS),
    "ppo": ("ppo", "Pendulum-v1", {**_ON_POLICY, "steps_per_epoch": 60, "lr_decay_epochs": EPOCHS}),
    "ppo-memory": (
        "ppo",
        "qcp-st",
        {**_ON_POLICY, "steps_per_epoch": 60, "network": "gru", "randomize": "default", "num_test_tasks": 2},
    ),
    "epopt": (
        "epopt",
        "qcp-st",
        {**_ON_POLICY, "rollouts_per_epoch": 4, "epsilon": 0.5, "warmup_epochs": 1, "num_test_tasks": 2},
    ),
    "distill": (
        "distill",
        "qcp-st",
        {**_ON_POLICY, "teacher": "teacher", "steps_per_epoch": 60, "replay_size": 90, "num_test_tasks": 2},
    ),
    "cmaes": ("cmaes", "CartPole-v1", {**_SEARCH, "n_samples": 4, "mean_epochs": 2}),
    "cmaes-restarts": ("cmaes", "CartPole-v1", {**_SEARCH, "n_samples": 4, "restarts": "ipop"}),
    "cem": ("cem", "CartPole-v1", {**_SEARCH, "n_samples": 5, "best_frac": 0.4}),
    "ars": ("ars", "CartPole-v1", {**_SEARCH, "num_directions": 3}),
    "es": ("es", "CartPole-v1", {**_SEARCH, "population": 4}),
    "pgpe": ("pgpe", "CartPole-v1", {**_SEARCH, "num_pairs": 3}),
    "snes": ("snes", "Pendulum-v1", {**_SEARCH, "population": 4, "starts": 2, "round_length": 1}),
    "dqn": (
        "dqn",
        "CartPole-v1",
        {**_REPLAY, "dueling": True, "priority_exponent": 0.6, "n_step": 3, "target_update_steps": 10},
    ),
    "ddpg": ("ddpg", "Pendulum-v1", {**_BOX_REPLAY, "exploration_noise": "ornstein-uhlenbeck"}),
    "td3": ("td3", "Pendulum-v1", _BOX_REPLAY),
    "td3-goals": ("td3", "point-goal", {**_BOX_REPLAY, "hindsight_ratio": 0.5, "num_test_tasks": 2}),
    "sac": ("sac", "Pendulum-v1", {**_BOX_REPLAY, "randomize_param": ("m=0.8:1.2",), "num_test_tasks": 2}),
    "sac-discrete": ("sac", "CartPole-v1", {**_BOX_REPLAY, "priority_exponent": 0.6}),
    "tqc": ("tqc", "Pendulum-v1", {**_BOX_REPLAY, "num_atoms": 5, "dropped_atoms": 1}),
    "rsac": (
        "rsac",
        "Pendulum-v1",
        {**_BOX_REPLAY, "hidden_size": 8, "segment_length": 4, "burn_in": 2, "n_train_steps": 4},
    ),
    "hill-climbing": ("hill-climbing", "CartPole-v1", {**_SEARCH, "num_init_states_per_domain": 2, "pop_size": 3}),
}
"""Name of the archive -> algorithm, environment, options."""


class CtrlC:
    """Interrupts the training when so many epochs are saved."""

    def __init__(self, epochs: int) -> None:
        self.epochs = epochs

    def on_epoch_end(self, runner: Any, epoch: int, metrics: Any) -> None:
        if epoch + 1 == self.epochs:
            raise KeyboardInterrupt


def flags_of(options: Mapping[str, Any]) -> list[str]:
    """The options as arguments of ``metaroll train``."""
    flags: list[str] = []
    for name, value in options.items():
        flag = "--" + name.replace("_", "-")
        if isinstance(value, bool):
            flags.append(flag if value else f"--no-{flag[2:]}")
        else:
            flags += [flag, *map(str, value if isinstance(value, tuple) else [value])]
    return flags


def run_command(*arguments: str) -> None:
    """Run a command of ``metaroll`` in this process, quietly.

    Raises:
        RuntimeError: It failed.
    """
    if code := main([*arguments, "--quiet"]):
        raise RuntimeError(f"metaroll {' '.join(arguments)} ended with {code}")


def write_teacher(env: str) -> None:
    """A run in ``teacher`` whose policy observes domain parameters."""
    options = {**_ON_POLICY, "steps_per_epoch": 60, "epochs": 1, "randomize": "default", "privileged": True}
    run_command("train", "ppo", env, "--out", "teacher", *flags_of({**options, "domain_params": ("pole_mass",)}))


def write_run(name: str) -> None:
    """Write ``stopped``, ``run`` and ``expected.json`` into the current folder."""
    algo, env, options = RUNS[name]
    if "teacher" in options:
        write_teacher(env)
    agent = metaroll.agent(algo, env, seed=7, run_dir="stopped", **options)
    try:
        agent.learn(callbacks=[CtrlC(STOPPED_AFTER)], progress=False)
    except KeyboardInterrupt:
        pass
    else:
        raise RuntimeError(f"{name} was not stopped")
    run_command("train", algo, env, "--out", "run", "--seed", "7", *flags_of(options))
    run_command("evaluate", "run")
    write_json(Path("expected.json"), expected_of(Path("run")))


def expected_of(run: Path) -> dict[str, Any]:
    """What the agent of a run does at some observations, one after the other; one that adapts has explored a task."""
    return behavior(metaroll.load(run), None)


def behavior(agent: metaroll.Agent, observations: Sequence[Any] | None) -> dict[str, Any]:
    """Returns while it explored, observations (those given, else some of the space) and actions, as JSON."""
    space = agent.env_spec.observation_space
    if observations is None:
        space.seed(3)
        observations = [plain(space.sample()) for _ in range(4)]
    returns: list[float] = []
    actor: Any = agent
    if agent.test_tasks and get_algorithm(agent.config["algo"]).adapts:
        rollouts = agent.explore(agent.test_tasks[0](), episodes=2, seed=5)
        actor, returns = agent.adapt(rollouts), [rollout.undiscounted_return() for rollout in rollouts]
    actor.reset()
    actions = [np.asarray(actor.act(as_observation(space, seen))).tolist() for seen in observations]
    return {"explored": returns, "observations": list(observations), "actions": actions}


def as_observation(space: gymnasium.Space, value: Any) -> Any:
    """The observation that ``plain`` made JSON of."""
    if isinstance(space, gymnasium.spaces.Dict):
        return {name: as_observation(part, value[name]) for name, part in space.items()}
    return np.asarray(value, space.dtype)


def plain(observation: Any) -> Any:
    """An observation as JSON."""
    if isinstance(observation, Mapping):
        return {name: plain(part) for name, part in observation.items()}
    return np.asarray(observation).tolist()


def write_groups() -> None:
    """Groups of seeds that compare tells apart: two of cem, two of maml; and one of which a run has not begun."""
    for name, std in (("wide", 0.5), ("narrow", 0.05)):
        options = {**RUNS["cem"][2], "init_std": std}
        run_command("train", "cem", "CartPole-v1", "--seeds", "3", "--out", name, *flags_of(options))
    for name, size in (("small-steps", 0.1), ("large-steps", 1.0)):
        options = {**RUNS["maml"][2], "inner_lr": size, "epochs": 1, "task_seed": 0}
        run_command("train", "maml", "point-navigation", "--seeds", "2", "--out", name, *flags_of(options))
    shutil.copytree("wide", "begun")
    shutil.rmtree("begun/seed-2")
    found = {
        "cem": dataclasses.asdict(compare("wide", "narrow")),
        "maml": dataclasses.asdict(compare("small-steps", "large-steps")),
    }
    write_json(Path("expected.json"), to_plain(found))


def write_services() -> None:
    """A run that keeps several snapshots, the best among them, and has a robustness map, a table for each."""
    options = {**RUNS["cem"][2], "epochs": 4, "keep_best": "return", "snapshot_mode": "gap_and_last", "snapshot_gap": 2}
    run_command("train", "cem", "CartPole-v1", "--out", "run", *flags_of(options))
    run_command("robustness", "run", "--param", "length", "0.3:0.7:3", "--episodes", "2")
    snapshots = {str(epochs): behavior(metaroll.load("run", from_epoch=epochs), None) for epochs in (2, "best")}
    write_json(Path("expected.json"), snapshots)


def write_saved_agent() -> None:
    """An agent that was saved, ``agent.save``."""
    algo, env, options = RUNS["ppo"]
    agent = metaroll.agent(algo, env, seed=7, run_dir="run", **options).learn(epochs=1, progress=False)
    agent.save("agent")
    shutil.rmtree("run")
    write_json(Path("expected.json"), expected_of(Path("agent")))


def documented_runner(run: Path | None = None) -> metaroll.LocalRunner:
    """A runner as a program sets it up with documented classes."""
    spec = metaroll.EnvSpec.from_env(gymnasium.make("CartPole-v1"))
    policy = CategoricalMLPPolicy(spec, (), generator=torch.Generator().manual_seed(7))
    algo = metaroll.CEM(spec, policy, None, n_samples=5, best_frac=0.4, max_path_length=20, seed=7)
    config = None if run is None else metaroll.SnapshotConfig(run, "last", keep_last=2)
    runner = metaroll.LocalRunner(config, seed=7, callbacks=[metaroll.EvaluateEvery(1), metaroll.KeepBest()])
    runner.setup(algo, "CartPole-v1")
    return runner


def write_program() -> None:
    """A run of a program, LocalRunner, one with fewer epochs, and its parameters after the last one."""
    for name, epochs in (("stopped", STOPPED_AFTER), ("run", EPOCHS)):
        with documented_runner(Path(name)) as runner:
            runner.train(n_epochs=epochs, batch_size=40)
            parameters = runner.algo.policy.get_param_values()
    write_json(Path("expected.json"), {"parameters": np.asarray(parameters).tolist()})


PARTS: Mapping[str, tuple[str, Callable[[], None]]] = {
    "groups": ("groups", write_groups),
    "services": ("services", write_services),
    "saved-agent": ("saved agent", write_saved_agent),
    "program": ("program", write_program),
}
