"""``check_learner`` passes on every algorithm that is found, and fails on planted faults with the promise named.

These are ours, those of ``contrib``, the plug-ins of ``examples``, and what is installed here. A new one of ours needs
a case: a run of its smallest size that learns something in its first epochs.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import metaroll
from metaroll import EnvSpec, PolicyEvaluator
from metaroll.configs.table import run_options
from metaroll.data.compare import trees_equal
from metaroll.data.data_format import own_copy
from metaroll.errors import DataError, SnapshotError
from metaroll.learners.base import RLAlgorithm
from metaroll.policies import GaussianMLPPolicy
from metaroll.seeding import derive_seed, torch_generator
from metaroll.testing import ConformanceError, check_learner, check_policy
from metaroll.training.algorithms.registry import ALGORITHM_NAMES, algorithm_names, get_algorithm
from metaroll.training.session import experiments
from pearl_sizes import IN_FOURS
from plugin_sizes import VARIBAD

pytestmark = pytest.mark.usefixtures("lent_pools")

PLUGINS = Path(__file__).parents[2] / "examples" / "plugins"

ON_POLICY = {
    "steps_per_epoch": 40,
    "num_passes": 2,
    "batch_size": 20,
    "max_path_length": 20,
    "hidden_sizes": (6,),
    "num_episodes": 2,
    "evaluate_every": 2,
}
FROM_WORST = {
    **{name: value for name, value in ON_POLICY.items() if name != "steps_per_epoch"},
    "rollouts_per_epoch": 8,
}
GRADIENT = {
    "hidden_sizes": (6,),
    "num_train_tasks": 4,
    "num_test_tasks": 2,
    "meta_batch_size": 3,
    "rollouts_per_task": 3,
    "episodes_per_round": 2,
    "max_path_length": 10,
    "evaluate_every": 2,
}
FURTHER = {**GRADIENT, "num_inner_steps": 2, "normalize_observations": True}
# An odd number of gradient steps before the stop: the policy of TD3 learns in every second one.
OFF_POLICY = {
    "cycles_per_epoch": 3,
    "n_train_steps": 5,
    "buffer_batch_size": 8,
    "min_buffer_size": 16,
    "max_path_length": 7,
    "hidden_sizes": (6,),
    "num_episodes": 2,
    "evaluate_every": 2,
}
REPLAYED = {
    **OFF_POLICY,
    "n_train_steps": 6,
    "n_step": 2,
    "priority_exponent": 0.6,
    "rollout_batch_size": 6,
    "update_to_data": 0.5,
}
SEARCH = {"max_path_length": 10, "hidden_sizes": (4,), "num_episodes": 2, "evaluate_every": 2}
THREE_STARTS = {**SEARCH, "starts": 3, "round_length": 1}
TRIALS = {
    "hidden_sizes": (6,),
    "trials_per_epoch": 6,
    "num_passes": 2,
    "batch_size": 60,
    "num_test_tasks": 3,
    "n_exploration_traj": 2,
    "evaluate_every": 2,
}
PEARL = {**IN_FOURS, "hidden_sizes": (8,), "num_train_tasks": 3, "num_test_tasks": 2, "n_exploration_traj": 2}
# Its replay memory is full in the last epoch, after the stop.
IMAGES = {
    **{**OFF_POLICY, "cycles_per_epoch": 2, "n_train_steps": 2, "buffer_batch_size": 4, "min_buffer_size": 6},
    "replay_size": 40,
    "num_train_tasks": 3,
    "num_test_tasks": 2,
}
GOALS = {
    **{**OFF_POLICY, "n_train_steps": 18, "rollout_batch_size": 6, "max_path_length": 4},
    "num_train_tasks": 4,
    "num_test_tasks": 2,
}
CROSSQ = {**OFF_POLICY, "random_steps": 8, "renorm_warmup_steps": 12, "replay_size": 500}
STUDENT = {**ON_POLICY, "replay_size": 60}
RANDOM = {"randomize_param": ("m=0.5:1.5",)}
CASES: dict[str, tuple[str, Mapping[str, Any]]] = {
    "ars": ("Pendulum-v1", {**SEARCH, "num_directions": 3, "normalize_observations": True}),
    "ars, domains": (
        "qcp-st",
        {**SEARCH, "num_directions": 2, "num_best": 2, "randomize": "default", "tasks_per_epoch": 2},
    ),
    "ars, three starts": ("Pendulum-v1", {**THREE_STARTS, "num_directions": 2}),
    "cem": ("Pendulum-v1", {**SEARCH, "n_samples": 4, "best_frac": 0.5, "covariance": "full"}),
    "cmaes": ("Pendulum-v1", {**SEARCH, "n_samples": 4, "restarts": "bipop"}),
    "cmaes, averaged": ("Pendulum-v1", {**THREE_STARTS, "n_samples": 4, "restarts": "ipop", "mean_epochs": 2}),
    "cmaes, noisy": ("Pendulum-v1", {**SEARCH, "n_samples": 4, "reevaluated": 3, "max_repetitions": 3.0}),
    "crossq:CROSSQ": ("Pendulum-v1", CROSSQ),
    "ddpg": ("Pendulum-v1", OFF_POLICY),
    "dice": ("point-robot", FURTHER),
    "discrete-sac": ("CartPole-v1", OFF_POLICY),
    "distill": ("Pendulum-v1", {**STUDENT, **RANDOM, "tasks_per_epoch": 3}),
    "distill, choices": ("CartPole-v1", {**STUDENT, "network": "mlp", "last_action": False}),
    "distill, choices, gru": ("CartPole-v1", {**STUDENT, "last_action": False}),
    "dqn": ("CartPole-v1", OFF_POLICY),
    "dqn, replay": ("CartPole-v1", {**REPLAYED, "dueling": True, "lr_decay_steps": 20}),
    "epopt": (
        "qcp-st",
        {**FROM_WORST, "randomize": "default", "epsilon": 0.25, "warmup_epochs": 1},
    ),
    "es": ("Pendulum-v1", {**SEARCH, "population": 4}),
    "hill-climbing": ("Pendulum-v1", {**SEARCH, "pop_size": 4}),
    "hill-climbing, sphere": ("Pendulum-v1", {**SEARCH, "pop_size": 4, "noise": "sphere"}),
    "maml": ("point-robot", FURTHER),
    "maml, vpg": ("point-robot", {**GRADIENT, "outer": "vpg", "network": "gru"}),
    "pearl": ("point-robot", PEARL),
    "pearl, posterior": ("point-robot", {**PEARL, "num_steps_posterior": 20, "update_post_train": 2}),
    "pgpe": ("Pendulum-v1", {**SEARCH, "num_pairs": 2}),
    "ppo": ("Pendulum-v1", ON_POLICY),
    "ppo, choices, gru": ("CartPole-v1", {**ON_POLICY, "network": "gru"}),
    "ppo, domains": ("Pendulum-v1", {**ON_POLICY, **RANDOM, "domain_params": ("m",)}),
    "ppo, gru": ("Pendulum-v1", {**ON_POLICY, "network": "gru"}),
    "promp": ("point-robot", {**FURTHER, "learn_inner_lr": True}),
    "rl2": ("point-robot", {**TRIALS, "trials_per_epoch": 4, "episodes_per_trial": 3, "max_path_length": 10}),
    "rl2, list": ("bandit-5", {**TRIALS, "num_train_tasks": 7}),
    "rsac": ("Pendulum-v1", {**OFF_POLICY, "hidden_size": 6, "segment_length": 4, "burn_in": 2}),
    "sac": ("Pendulum-v1", OFF_POLICY),
    "sac, choices": ("CartPole-v1", REPLAYED),
    "sac, images": ("point-robot-pixels", IMAGES),
    "sac, replay": ("Pendulum-v1", REPLAYED),
    "snes": ("Pendulum-v1", {**SEARCH, "population": 4}),
    "td3": ("Pendulum-v1", OFF_POLICY),
    "td3, goals": ("point-goal", GOALS),
    "td3, replay": ("Pendulum-v1", {**OFF_POLICY, "n_step": 2, "exploration_noise": "ornstein-uhlenbeck", **RANDOM}),
    "tqc": ("Pendulum-v1", {**REPLAYED, "num_critics": 2, "num_atoms": 5}),
    "varibad:VARIBAD": ("point-robot", VARIBAD),
    "varibad:VARIBAD, choices": ("bandit-5", VARIBAD),
}
"""Algorithm by name, and variant -> environment, options."""
EXAMPLES = [f"{path.stem}:{path.stem.upper()}" for path in sorted(PLUGINS.glob("*.py"))]
FOUND = [*algorithm_names(), *EXAMPLES]
"""All that is to keep the promises."""
ALONE = {"num_episodes": 2, "steps_per_epoch": 40, "cycles_per_epoch": 3, "gradient_steps": 5, "warmup_steps": 16}
ADAPTS = {"num_train_tasks": 4, "num_test_tasks": 2, "trials_per_epoch": 6}
SHARED = {
    "hidden_sizes": (6,),
    "max_steps": 10,
    "evaluate_every": 2,
    "batch_size": 20,
    "num_passes": 2,
    "population": 10,
}
"""Of what is installed here and has no case, as far as it has such options."""


def built(algo: str, env: str, options: Mapping[str, Any], seed: int) -> experiments.Experiment:
    """All that a run needs, with the same tasks for all seeds."""
    values = {**options, "seed": seed, "task_seed": 3}
    return experiments.build(experiments.resolve(algo, env, [("the test", values)]))


def case_of(algo: str) -> tuple[str, Mapping[str, Any]]:
    """What somebody else's algorithm, which has no case, is tried with."""
    env, more = ("point-robot", ADAPTS) if get_algorithm(algo).adapts else ("Pendulum-v1", ALONE)
    known = {option.name for option in run_options(algo)}
    return env, {name: value for name, value in {**SHARED, **more}.items() if name in known}


@pytest.fixture(scope="module")
def teachers(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """Folders of runs that a student can learn from, by their environment."""

    @functools.cache
    def taught(env: str) -> str:
        folder = tmp_path_factory.mktemp("teacher") / "run"
        metaroll.agent("ppo", env, run_dir=folder, epochs=1, **ON_POLICY).learn(progress=False)
        return str(folder)

    return taught


@pytest.mark.parametrize("name", [*CASES, *sorted({*FOUND} - {name.partition(",")[0] for name in CASES})])
def test_algorithms_keep_their_promises(name: str, teachers: Callable[[str], str]) -> None:
    algo = name.partition(",")[0]
    env, options = CASES[name] if name in CASES else case_of(algo)
    if algo == "distill":
        options = {**options, "teacher": teachers(env)}
    first = built(algo, env, options, 0)
    made: list[experiments.Experiment] = []

    def make_evaluator() -> Any:
        made[:] = [built(algo, env, options, 0)]
        return made[0].evaluator

    def make(seed: int) -> Any:
        """The learner that belongs to the evaluator, as in a run, or one of another seed."""
        experiment = made.pop() if made and seed == 0 else built(algo, env, options, seed)
        return experiment.algo

    check_learner(make, first.env, make_evaluator=make_evaluator, stop_after=2)
    policy = first.algo.policy
    if type(policy).__module__.partition(".")[0] != "metaroll":  # ours have cases with their kit
        memory = policy.initial_state([None], [np.random.default_rng(0)]).get("hidden")
        told = [] if memory is None else [{"hidden": np.linspace(-1, 1, memory.shape[1], dtype=np.float32)}]
        check_policy(lambda: built(algo, env, options, 0).algo.policy, policy.env_spec, contexts=[None, *told])


def learner_of(name: str, teachers: Callable[[str], str], seed: int = 0, **changes: Any) -> Any:
    """The learner of a case."""
    (env, options), algo = CASES[name], name.partition(",")[0]
    taught = {"teacher": teachers(env)} if algo == "distill" else {}
    return built(algo, env, {**options, **taught, **changes}, seed).algo


@pytest.fixture(scope="module")
def learners(teachers: Callable[[str], str]) -> Callable[[str, int], Any]:
    """The learner of a case and a seed, for tests that change none."""
    return functools.cache(lambda name, seed: learner_of(name, teachers, seed))


@pytest.mark.parametrize("name", CASES)
def test_a_state_that_does_not_fit_changes_nothing(name: str, learners: Callable[[str, int], Any]) -> None:
    learner, other = learners(name, 0), learners(name, 1)
    before = own_copy(learner.state_dict())
    assert not trees_equal({**before, "seed": None}, {**other.state_dict(), "seed": None}), "another seed, other draws"
    for part in (name for name, value in before.items() if value is not None):
        with pytest.raises(SnapshotError, match="nothing was changed"):
            learner.load_state_dict({**other.state_dict(), part: {"of": "another"}})
        assert trees_equal(learner.state_dict(), before), part
    with pytest.raises(SnapshotError):
        learner.load_state_dict({"weights": 1})
    assert trees_equal(learner.state_dict(), before)


def test_fingerprints_are_those_of_the_settings(learners: Callable[[str, int], Any]) -> None:
    """Snapshots of other settings are refused by them; those of other seeds are not."""
    found = {name: learners(name, 0).fingerprint() for name in CASES}
    assert len({*found.values()}) == len(CASES)
    assert found == {name: learners(name, 1).fingerprint() for name in CASES}


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("cem", {"discount": 0.5}),
        ("cem", {"init_std": 2.0}),
        ("cem", {"max_path_length": 15}),
        ("cem", {"n_samples": 6}),
        ("dqn", {"learning_rate": 0.5}),
        ("epopt", {"epsilon": 0.5}),
        ("maml", {"outer": "vpg"}),
        ("maml", {"scale_actions": False}),
        ("pearl", {"discount": 0.5}),
        ("pearl", {"encoder_hidden_sizes": (9,)}),
        ("pearl", {"use_next_obs_in_context": True}),
        ("ppo", {"clip_range": 0.1}),
        ("ppo", {"gradients": "autograd"}),
        ("ppo", {"hidden_sizes": (9,)}),
        ("ppo", {"network": "gru"}),
        ("promp", {"learn_inner_lr": False}),
        ("rl2", {"across_episodes": False}),
        ("rsac", {"burn_in": 1}),
        ("rsac", {"segment_length": 2}),
        ("sac", {"learning_rate": 0.5}),
        ("tqc", {"dropped_atoms": 1}),
    ],
)
def test_other_settings_have_another_fingerprint(
    name: str, changes: dict[str, Any], teachers: Callable[[str], str], learners: Callable[[str, int], Any]
) -> None:
    assert learner_of(name, teachers, **changes).fingerprint() != learners(name, 0).fingerprint()


def test_every_algorithm_has_a_case() -> None:
    assert {name.partition(",")[0] for name in CASES} == {*ALGORITHM_NAMES, *EXAMPLES}


# ---- planted faults --------------------------------------------------------------------------------------------------

SPEC = EnvSpec.from_env(gymnasium.make("Pendulum-v1"))


class Mover(RLAlgorithm):
    """Honest: moves its parameters by momentum, noise of its own, and what it remembers of observations."""

    max_path_length = 8

    def __init__(self, seed: int) -> None:
        self.policy = self.network = GaussianMLPPolicy(SPEC, (4,), generator=torch_generator(seed))
        size = len(self.network.get_param_values())
        self.velocity, self.memory = np.zeros(size, np.float32), np.zeros((0, 3), np.float32)
        self.generator = np.random.default_rng(derive_seed("mover", seed))
        self.calls = 0

    def train(self, runner: Any) -> None:
        for _ in runner.step_epochs():
            for _ in range(2):
                self.learn(runner.obtain_samples(runner.step_itr, 20))
            runner.log({"speed": float(np.abs(self.velocity).mean())})

    def learn(self, rollouts: Any) -> None:
        rewards, seen = self.rewards(rollouts), rollouts.steps_and_final("observations")[0]
        if not (np.isfinite(rewards).all() and np.isfinite(seen).all()):
            raise DataError("rollouts hold NaN or Inf")
        self.remember(seen)
        size = len(self.velocity)
        self.velocity = 0.5 * self.velocity + self.step(rewards) * self.draw(size).astype(np.float32)
        self.calls += 1
        self.network.set_param_values(self.network.get_param_values() + self.rate() * self.velocity)

    def rewards(self, rollouts: Any) -> np.ndarray:
        return rollouts.column("rewards")

    def remember(self, seen: np.ndarray) -> None:
        self.memory = np.concatenate([self.memory, seen])[-30:]

    def step(self, rewards: np.ndarray) -> np.float32:
        return np.float32(1e-3 * (rewards.mean() + self.memory.mean()))

    def draw(self, size: int) -> np.ndarray:
        return self.generator.standard_normal(size)

    def rate(self) -> np.float32:
        return np.float32(1.0 / (1.0 + self.calls))

    def state_dict(self) -> dict[str, Any]:
        return {
            "parameters": self.network.get_param_values(),
            "velocity": self.velocity.copy(),
            "memory": self.memory.copy(),
            "generator": self.generator.bit_generator.state,
            "calls": self.calls,
        }

    def load_state_dict(self, tree: Mapping[str, Any]) -> None:
        self.network.set_param_values(tree["parameters"])
        self.velocity, self.memory, self.calls = tree["velocity"].copy(), tree["memory"].copy(), tree["calls"]
        self.generator.bit_generator.state = tree["generator"]


class Unseeded(Mover):
    def draw(self, size: int) -> np.ndarray:
        return np.random.default_rng().standard_normal(size)


class GlobalGenerator(Mover):
    def draw(self, size: int) -> np.ndarray:
        np.random.normal()
        return super().draw(size)


class Cohorts(Mover):
    """Its step depends on how many workers there are."""

    def train(self, runner: Any) -> None:
        self.share = 1.0 / runner._engine.num_workers
        super().train(runner)

    def step(self, rewards: np.ndarray) -> np.float32:
        return np.float32(self.share) * super().step(rewards)


class ForgetsMomentum(Mover):
    def state_dict(self) -> dict[str, Any]:
        return {name: value for name, value in super().state_dict().items() if name != "velocity"}

    def load_state_dict(self, tree: Mapping[str, Any]) -> None:
        super().load_state_dict({**tree, "velocity": self.velocity})


class ForgetsSchedule(Mover):
    def state_dict(self) -> dict[str, Any]:
        return {name: value for name, value in super().state_dict().items() if name != "calls"}

    def load_state_dict(self, tree: Mapping[str, Any]) -> None:
        super().load_state_dict({**tree, "calls": 0})


class ForgetsGenerator(Mover):
    def state_dict(self) -> dict[str, Any]:
        return {name: value for name, value in super().state_dict().items() if name != "generator"}

    def load_state_dict(self, tree: Mapping[str, Any]) -> None:
        super().load_state_dict({**tree, "generator": self.generator.bit_generator.state})


class TakesLessThanItGives(Mover):
    def load_state_dict(self, tree: Mapping[str, Any]) -> None:
        super().load_state_dict({**tree, "velocity": self.velocity})


class KeepsRows(Mover):
    """Its memory is the rollouts' own."""

    def learn(self, rollouts: Any) -> None:
        super().learn(rollouts)
        rewards = rollouts.column("rewards")
        self.memory = np.broadcast_to(rewards[:, None], (len(rewards), 3))


class HandsOutItself(Mover):
    """Later training changes a state that was returned before."""

    def learn(self, rollouts: Any) -> None:
        before = self.velocity
        super().learn(rollouts)
        before[:] = self.velocity
        self.velocity = before

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "velocity": self.velocity}


class KeepsLoaded(Mover):
    """Goes on in the very arrays of the tree that it loads."""

    def load_state_dict(self, tree: Mapping[str, Any]) -> None:
        super().load_state_dict(tree)
        self.velocity = tree["velocity"]


class KeepsLoadedWeights(Mover):
    """What it keeps of the tree is looked at in the next step only."""

    loaded: Any = None

    def learn(self, rollouts: Any) -> None:
        if self.loaded is not None:
            self.network.set_param_values(self.loaded)
            self.loaded = None
        super().learn(rollouts)

    def load_state_dict(self, tree: Mapping[str, Any]) -> None:
        super().load_state_dict(tree)
        self.loaded = tree["parameters"]


class WritesIntoLoaded(Mover):
    """Uses an array of the tree that it loads as scratch memory."""

    scratch: Any = None

    def learn(self, rollouts: Any) -> None:
        super().learn(rollouts)
        if self.scratch is not None:
            np.abs(self.velocity, out=self.scratch)

    def load_state_dict(self, tree: Mapping[str, Any]) -> None:
        super().load_state_dict(tree)
        self.scratch = tree["velocity"]


class AppendsToLoaded(Mover):
    """Keeps a list of the tree that it loads."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.means: list[float] = []

    def learn(self, rollouts: Any) -> None:
        super().learn(rollouts)
        self.means.append(float(self.velocity.mean()))

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "means": list(self.means)}

    def load_state_dict(self, tree: Mapping[str, Any]) -> None:
        super().load_state_dict(tree)
        self.means = tree["means"]

    def fingerprint(self) -> str:
        return "the list grows"


class Steered(GaussianMLPPolicy):
    """Has a gain that is no parameter."""

    gain = 1.0

    def act(self, obs: Any, state: Any, noise: Any, deterministic: Any = False, parameters: Any = None) -> Any:
        action, state, infos = super().act(obs, state, noise, deterministic, parameters)
        return action * np.float32(self.gain), state, infos


class Averages(Mover):
    """What acts in the end is an average of what it explores with, and nowhere saved."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.exploration_policy = self.network
        self.policy = Steered(SPEC, (4,), generator=torch_generator(seed))
        self.updates = 0

    def learn(self, rollouts: Any) -> None:
        super().learn(rollouts)
        self.updates += 1
        self.settle()

    def settle(self) -> None:
        old, new = self.policy.get_param_values(), self.network.get_param_values()
        self.policy.set_param_values(np.float32(0.5) * (old + new))


class CountsTowardsGain(Averages):
    """What acts in the end is also steered by a counter, which is nowhere saved and counts after the stop only."""

    def settle(self) -> None:
        self.policy.set_param_values(self.network.get_param_values())
        self.policy.gain = 1.0 if self.updates < 5 else 0.5

    def load_state_dict(self, tree: Mapping[str, Any]) -> None:
        super().load_state_dict(tree)
        self.policy.set_param_values(tree["parameters"])


class CountsTowardsWeights(CountsTowardsGain):
    """The same of the weights."""

    def settle(self) -> None:
        factor = np.float32(1.0 if self.updates < 5 else 0.5)
        self.policy.set_param_values(factor * self.network.get_param_values())


class CountsEvaluations(Mover):
    """Steps are shorter the more often it was evaluated."""

    @property
    def evaluation_limit(self) -> int:
        self.calls += 1
        return self.max_path_length


class CentersInPlace(Mover):
    def rewards(self, rollouts: Any) -> np.ndarray:
        rewards = super().rewards(rollouts)
        rewards -= rewards.mean()
        return rewards


class LearnsNaN(Mover):
    def learn(self, rollouts: Any) -> None:
        rewards = self.rewards(rollouts)
        self.velocity += np.float32(1e-3 * rewards.mean())
        self.policy.set_param_values(self.policy.get_param_values() + self.velocity)


class RaisesTooLate(Mover):
    """Raises after the step."""

    def learn(self, rollouts: Any) -> None:
        LearnsNaN.learn(self, rollouts)
        if not np.isfinite(self.velocity).all():
            raise DataError("the step was not finite")


class HoldsAnObject(Mover):
    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "policy": self.policy}


class NoState(RLAlgorithm):
    def __init__(self, seed: int) -> None:
        pass

    def train(self, runner: Any) -> None:
        pass


class Idle(Mover):
    def learn(self, rollouts: Any) -> None:
        pass


PLANTED: dict[type[RLAlgorithm], str] = {
    Unseeded: "determinism",
    GlobalGenerator: "globals",
    Cohorts: "workers",
    ForgetsMomentum: "resume",
    ForgetsSchedule: "resume",
    ForgetsGenerator: "resume",
    TakesLessThanItGives: "state_dict",
    KeepsRows: "memory",
    HandsOutItself: "memory",
    KeepsLoaded: "memory",
    KeepsLoadedWeights: "memory",
    WritesIntoLoaded: "memory",
    AppendsToLoaded: "memory",
    Averages: "state_dict",
    CountsTowardsGain: "resume",
    CountsTowardsWeights: "resume",
    CountsEvaluations: "evaluation",
    CentersInPlace: "mutation",
    LearnsNaN: "bad_numbers",
    RaisesTooLate: "bad_numbers",
    HoldsAnObject: "form",
    NoState: "form",
}


@pytest.mark.parametrize("kind", PLANTED, ids=lambda kind: kind.__name__)
def test_planted_faults_are_named(kind: Any) -> None:
    before = np.random.get_state()
    with pytest.raises(ConformanceError, match=f"^{PLANTED[kind]}: ") as caught:
        check_learner(kind, "Pendulum-v1")
    assert caught.value.rule == PLANTED[kind] and not re.search(r"\bnp\.|\n", caught.value.seen), "plain and short"
    if kind is Unseeded:
        assert re.search(r"metrics\['speed \(train, epoch 1\)'\]: 0\.\d+ and 0\.\d+$", caught.value.seen)
    np.random.set_state(before)


def test_a_snapshot_that_fits_one_seed_only_is_named() -> None:
    class OneSeed(Mover):
        def __init__(self, seed: int) -> None:
            super().__init__(seed)
            self.seed = seed

        def fingerprint(self) -> str:
            return f"mover {self.seed}"

    with pytest.raises(ConformanceError, match=r"^resume: a learner made with another seed refuses the snapshot"):
        check_learner(OneSeed, "Pendulum-v1")


def test_a_correct_learner_passes_and_wrong_arguments_are_errors() -> None:
    check_learner(Mover, "Pendulum-v1", make_evaluator=lambda: PolicyEvaluator(num_episodes=2))
    with pytest.raises(ValueError, match="in the 1 epoch before one is stopped no parameter of the policy changes"):
        check_learner(Idle, "Pendulum-v1")
    with pytest.raises(ValueError, match="stop_after"):
        check_learner(Mover, "Pendulum-v1", num_epochs=2, stop_after=2)
    with pytest.raises(TypeError, match="make must be a function that makes a learner from a seed, got 'ppo'"):
        check_learner("ppo", "Pendulum-v1")  # type: ignore[arg-type]
