"""Off-policy learners: the same bits in other numbers of workers, after a lost one, and after a resume, all at once."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from test_learners_off_policy import ALL, Aim, Pick, make

from metaroll.contrib import DiscreteSAC
from metaroll.data.compare import trees_equal
from metaroll.data.replay.replay_buffer import ReplayBuffer
from metaroll.envs.point.point_goal import PointGoalEnv
from metaroll.envs.point.point_pixels import PointRobotPixelsEnv
from metaroll.learners.off_policy.choosing import DQN
from metaroll.learners.off_policy.deterministic import TD3
from metaroll.learners.off_policy.soft import SAC
from metaroll.training.run.runner import LocalRunner
from metaroll.types import EnvSpec

pytestmark = pytest.mark.usefixtures("lent_pools")

CYCLES: dict[str, Any] = {"rollout_batch_size": 6, "n_train_steps": 18, "update_to_data": 1.0, "steps_per_epoch": 2}
"""Three steps of each of six rollouts in a cycle: they lie in the middle of episodes of four steps."""


def _goals() -> Any:
    env = PointGoalEnv()
    spaces = env.observation_space, env.action_space
    buffer = ReplayBuffer(*spaces, 500, num_slots=6, compute_reward=env.compute_reward)
    return TD3(EnvSpec.from_env(env), replay_buffer=buffer, max_path_length=4, seed=3, **_FEW)


def _images() -> Any:
    env = PointRobotPixelsEnv()
    few: dict[str, Any] = {**_FEW, "update_to_data": 0.2}
    return SAC(EnvSpec.from_env(env), replay_size=60, max_path_length=4, seed=3, **few)


_FEW: dict[str, Any] = {
    **CYCLES,
    "n_train_steps": 6,
    "buffer_batch_size": 8,
    "min_buffer_size": 20,
    "evaluate_every": 0,
}

CASES: dict[str, tuple[Callable[[], gymnasium.Env], Callable[[], Any]]] = {
    **{
        kind.__name__: (Pick if kind in (DQN, DiscreteSAC) else Aim, lambda kind=kind: make(kind, **CYCLES))
        for kind in ALL
    },
    "options of DQN": (Pick, lambda: make(DQN, **CYCLES, dueling=True, double=False, n_step=2, priority_exponent=0.6)),
    "goals": (PointGoalEnv, _goals),
    "images": (PointRobotPixelsEnv, _images),
}


QUICK = ("SAC", "DQN", "goals")
"""Of each kind of actions and of goals one; the others differ in their losses alone."""


@pytest.mark.parametrize("case", [one if one in QUICK else pytest.param(one, marks=pytest.mark.slow) for one in CASES])
def test_workers_lost_ones_and_a_resume_change_no_bit(
    case: str, shared_pools: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env, build = CASES[case]

    def run(
        epochs: int, num_workers: int, folder: Path | None = None, *, resume: bool = False, kill: bool = False
    ) -> Any:
        algo = build()
        if kill:
            learn, workers = algo.train_once, shared_pools[num_workers].describe_workers()

            def learn_and_kill(itr: int, paths: Any) -> float:
                if itr == 1:
                    os.kill(workers[0].pid, signal.SIGKILL)
                return learn(itr, paths)

            monkeypatch.setattr(algo, "train_once", learn_and_kill)
        with LocalRunner(seed=5, run_dir=folder, num_workers=num_workers) as runner:
            runner.setup(algo, env)
            if resume:
                runner.restore(tmp_path / "run")
                runner.resume(epochs)
            else:
                runner.train(epochs)
        return algo

    whole = run(3, 1)
    cut = run(2, 2, tmp_path / "run", kill=True)
    again = run(3, 2, resume=True)
    assert whole.num_gradient_steps == again.num_gradient_steps > cut.num_gradient_steps > 0
    assert trees_equal(whole.state_dict(), again.state_dict())
    assert trees_equal(whole.buffers_state_dict(), again.buffers_state_dict())
