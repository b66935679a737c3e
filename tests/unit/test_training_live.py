"""Runner.advance: rollouts that go on over calls, over snapshots in the middle of episodes, and over kill -9."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from engine_envs import Drift, SetDrift
from interruptions import is_interrupted

from metaroll.envs.point.point_robot import PointRobotEnv
from metaroll.errors import ReplayError, RolloutError, ShapeError
from metaroll.learners.base import RLAlgorithm
from metaroll.policies.exploration import OrnsteinUhlenbeckPolicy
from metaroll.policies.gaussian import GaussianMLPPolicy
from metaroll.policies.gru import GRUGaussianPolicy
from metaroll.seeding import torch_generator
from metaroll.tasks.distributions import UniformDomainParam
from metaroll.tasks.domain_randomizer import DomainRandomizer
from metaroll.tasks.task_sampler import SetTaskSampler, TaskSampler
from metaroll.training.run.runner import LocalRunner
from metaroll.types import EnvSpec

pytestmark = pytest.mark.usefixtures("lent_pools")


class OffPolicy(RLAlgorithm):
    """Changes its parameters after every call, and remembers a hash of all that it was given."""

    max_path_length = 25

    def __init__(self, policy: Any, num_slots: int = 6, tasks: Any = None, kill_at: int | None = None) -> None:
        self.policy, self.num_slots, self.tasks, self.kill_at = policy, num_slots, tasks, kill_at
        self.digest, self.calls, self.ends = "", 0, 0

    def train(self, runner: Any) -> None:
        for _ in runner.step_epochs():
            for _ in range(3):
                if self.calls == self.kill_at:
                    os.kill(os.getpid(), signal.SIGKILL)
                rollouts = runner.advance(4, num_slots=self.num_slots, env_updates=self.tasks)
                self.learn(rollouts)
            runner.log({"digest": float(int(self.digest[:8], 16)), "calls": self.calls})

    def learn(self, rollouts: Any) -> None:
        told = hashlib.sha256(self.digest.encode())
        for plan, piece in zip(rollouts.plans, rollouts, strict=True):
            told.update(f"{plan.index} {plan.seed} {plan.task} {piece.done[-1]}".encode())
            told.update(piece.observations.tobytes() + piece.actions.tobytes() + piece.rewards.tobytes())
            self.ends += int(piece.done[-1])
        self.digest, self.calls = told.hexdigest(), self.calls + 1
        shift = np.float32(1e-3 * np.sin(self.calls))
        self.policy.set_param_values(self.policy.get_param_values() + shift)

    def state_dict(self) -> dict[str, Any]:
        numbers = {"digest": self.digest, "calls": self.calls, "ends": self.ends}
        return {**numbers, "parameters": self.policy.get_param_values()}

    def load_state_dict(self, tree: Any) -> None:
        self.digest, self.calls, self.ends = tree["digest"], tree["calls"], tree["ends"]
        self.policy.set_param_values(tree["parameters"])


def make(case: str, **options: Any) -> tuple[OffPolicy, Any]:
    env: Any = {"list, gru": Drift, "simulator, noise": PointRobotEnv, "domains": "Pendulum-v1"}.get(case, case)
    generator = torch_generator(0)
    spec = EnvSpec.from_env(gymnasium.make(env) if isinstance(env, str) else env())
    if case == "list, gru":
        tasks: Any = [SetDrift(0.1 * i) for i in range(3)]
        return OffPolicy(GRUGaussianPolicy(spec, 8, generator=generator), tasks=tasks, **options), env
    policy: Any = GaussianMLPPolicy(spec, (8,), generator=generator)
    if case == "simulator, noise":
        tasks = SetTaskSampler(PointRobotEnv, generator=1)
        return OffPolicy(OrnsteinUhlenbeckPolicy(policy), tasks=tasks, **options), env
    tasks = DomainRandomizer(UniformDomainParam("m", 1.0, 0.2), generator=0) if case == "domains" else None
    return OffPolicy(policy, tasks=tasks, **options), env


def runner_of(case: str, folder: Path | None, num_workers: int = 1, **options: Any) -> tuple[LocalRunner, OffPolicy]:
    algo, env = make(case, **options)
    runner = LocalRunner(run_dir=folder, seed=3, num_workers=num_workers)
    runner.setup(algo, env)
    return runner, algo


CASES = ("list, gru", "simulator, noise", "domains", "Hopper-v5")


@pytest.mark.parametrize("case", CASES)
def test_a_resumed_run_goes_on_in_the_middle_of_episodes(case: str, tmp_path: Path) -> None:
    runner, algo = runner_of(case, None)
    with runner:
        runner.train(6)
        expected, steps = (algo.digest, algo.ends), runner.total_env_steps
    assert algo.ends >= 6 and steps <= 6 * 3 * 4 * 6
    found = None
    for last in (2, 4, 6):
        runner, algo = runner_of(case, tmp_path / "run", num_workers=2 if last == 4 else 1)
        with runner:
            if last == 2:
                runner.train(last)
            else:
                runner.restore(tmp_path / "run")
                runner.resume(last)
            found, total = (algo.digest, algo.ends), runner.total_env_steps
    assert found == expected and total == steps


KILLED = """
import sys
sys.path.insert(0, {folder!r})
from pathlib import Path
from test_training_live import runner_of
runner, algo = runner_of({case!r}, Path({run!r}), kill_at=7)
runner.train(5)
"""


@pytest.mark.parametrize("case", ["list, gru", pytest.param("Hopper-v5", marks=pytest.mark.slow)])
def test_a_killed_run_goes_on_in_the_middle_of_episodes(case: str, tmp_path: Path) -> None:
    runner, algo = runner_of(case, None)
    with runner:
        runner.train(5)
    expected = algo.digest
    text = KILLED.format(folder=str(Path(__file__).parent), case=case, run=str(tmp_path / "run"))
    ended = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    runner, algo = runner_of(case, tmp_path / "run")
    with runner:
        assert runner.restore(tmp_path / "run").start_epoch == 2
        runner.resume()
    assert algo.digest == expected


def test_a_runner_that_was_closed_goes_on() -> None:
    runner, algo = runner_of("list, gru", None)
    with runner:
        for _ in range(6):
            algo.learn(runner.advance(4, num_slots=6, env_updates=algo.tasks))
    expected = algo.digest
    runner, algo = runner_of("list, gru", None)
    for call in range(6):
        if call in (2, 5):
            runner.close()
        algo.learn(runner.advance(4, num_slots=6, env_updates=algo.tasks))
    runner.close()
    assert algo.digest == expected


def test_ctrl_c_where_a_closed_runner_opens_its_rollouts_again_loses_none() -> None:
    """Their state was forgotten before they were open: the next call began with the first plans again."""
    runner, algo = runner_of("simulator, noise", None)

    def advance() -> Any:
        return runner.advance(2, num_slots=3, env_updates=algo.tasks)

    at, stopped = 1, True
    while stopped:
        runner.close()
        stopped = is_interrupted(advance, at, ("/training/run/rollout_source.py",))
        if stopped:
            algo.learn(advance())
            at += 1
    runner.close()
    found = algo.digest
    runner, algo = runner_of("simulator, noise", None)
    with runner:
        for _ in range(1, at):
            algo.learn(advance())
    assert at > 50 and algo.digest == found


class Restless(Drift):
    """Draws from a generator that no reset seeds."""

    def step(self, action: Any) -> Any:
        self._buffer[0] += np.random.default_rng().normal()
        return super().step(action)


def test_environments_that_cannot_be_replayed(tmp_path: Path) -> None:
    policy = GaussianMLPPolicy(EnvSpec.from_env(Drift()), (8,), generator=torch_generator(0))
    for known in (False, True):
        name = f"Restless-{known}-v0"
        gymnasium.register(name, Restless, nondeterministic=known)
        with LocalRunner(run_dir=tmp_path / name, seed=3) as runner:
            runner.setup(OffPolicy(policy), name)
            runner.train(1)
        with LocalRunner(run_dir=tmp_path / name, seed=3) as runner:
            runner.setup(OffPolicy(policy), name)
            runner.restore(tmp_path / name)
            if known:
                runner.resume(2)
            else:
                with pytest.raises(ReplayError, match="shows another observation"):
                    runner.resume(2)


class Own(TaskSampler):
    def sample(self, n_tasks: int, with_replacement: bool = False) -> list[Any]:
        return [SetDrift(0.0)] * n_tasks


def test_bad_input() -> None:
    runner, algo = runner_of("list, gru", None)
    with runner:
        with pytest.raises(TypeError, match="only has its own"):
            runner.advance(4, env_updates=Own())
        with pytest.raises(ValueError, match="at least one update"):
            runner.advance(4, env_updates=[])
        with pytest.raises(TypeError, match="must hold EnvUpdates"):
            runner.advance(4, env_updates=[3])  # type: ignore[list-item]
        for wrong in (5, SetDrift(0.1)):
            with pytest.raises(TypeError, match="env_updates must be a list of EnvUpdates, or a task sampler, got"):
                runner.advance(4, env_updates=wrong)  # type: ignore[arg-type]
        first = runner.advance(4, num_slots=2)
        assert len(first) == 2 and runner.total_env_steps == 8 and runner.step_itr == 0
        with pytest.raises(ValueError, match="num_slots must stay as in the calls of advance before, 2, got 3"):
            runner.advance(4, num_slots=3)
        with pytest.raises(ShapeError, match="parameters must"):
            runner.advance(4, num_slots=2, parameters=np.zeros(3))
        with pytest.raises(ShapeError, match="one row per slot"):
            runner.advance(4, num_slots=2, actions=np.zeros((3, 2)))
        with pytest.raises(ValueError, match="num_steps"):
            runner.advance(0, num_slots=2)
        assert runner.total_env_steps == 8
        given = runner.advance(1, num_slots=2, actions=np.full((2, 2), 0.5, np.float32))
        assert all((piece.actions == 0.5).all() for piece in given)
        assert algo.calls == 0


def test_a_resumed_run_goes_on_with_the_same_arguments(tmp_path: Path) -> None:
    runner, algo = runner_of("list, gru", tmp_path / "run")
    with runner:
        runner.train(1)
    runner, algo = runner_of("list, gru", tmp_path / "run")
    with runner:
        runner.restore(tmp_path / "run")
        with pytest.raises(ValueError, match="env_updates"):
            runner.advance(4, num_slots=6)
        with pytest.raises(ValueError, match="deterministic must"):
            runner.advance(4, num_slots=6, env_updates=algo.tasks, deterministic=True)
        assert len(runner.advance(4, num_slots=6, env_updates=algo.tasks))


def test_an_error_leaves_what_was_collected(tmp_path: Path) -> None:
    class Once(Drift):
        def step(self, action: Any) -> Any:
            if self._t == 5 and not (tmp_path / "done").exists():
                (tmp_path / "done").touch()
                raise ArithmeticError("the motor is on fire")
            return super().step(action)

    policy = GaussianMLPPolicy(EnvSpec.from_env(Drift()), (8,), generator=torch_generator(0))
    digests = []
    for broken in (False, True):
        algo = OffPolicy(policy)
        policy.set_param_values(np.zeros_like(policy.get_param_values()))
        with LocalRunner(seed=3) as runner:
            runner.setup(algo, Once if broken else Drift)
            algo.learn(runner.advance(4, num_slots=6))
            if broken:
                with pytest.raises(RolloutError, match="the motor is on fire"):
                    runner.advance(4, num_slots=6)
                assert runner.total_env_steps == 24
            algo.learn(runner.advance(4, num_slots=6))
        digests.append(algo.digest)
    assert digests[0] == digests[1]


class BadInput(OffPolicy):
    """Gives ``advance`` input that it must refuse before its own calls."""

    def train(self, runner: Any) -> None:
        parameters = np.full_like(self.policy.get_param_values(), np.nan)
        with pytest.raises(ValueError, match="actions must"):
            runner.advance(4, num_slots=2, actions=np.full((2, 2), np.nan))
        with pytest.raises(ValueError, match=r"^parameters .* must be finite"):
            runner.advance(4, num_slots=3, parameters=parameters)
        super().train(runner)


def test_refused_input_changes_nothing() -> None:
    runner, algo = runner_of("list, gru", None)
    with runner:
        runner.train(1)
    first = make("list, gru")
    other = BadInput(first[0].policy, tasks=first[0].tasks)
    with LocalRunner(seed=3) as runner:
        runner.setup(other, first[1])
        runner.train(1)
    assert other.digest == algo.digest
