"""The functions of a package that a call enters, in order, recorded by a profiler in a separate process.

The profiler (``sys.setprofile``) is called whenever a Python function starts or a generator resumes. Only files of the
package count, and everything is run once beforehand, so that imports and first uses are not recorded. A move is a call
in another file than the previous call. Figures depend on the version of Python, which inlines more from 3.12 on.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Walk", "learn_walk", "rollout_files", "step_walk"]

_FOLLOW = """
import json, os, sys
import numpy as np
import metaroll

NOT_NAMED = ("<genexpr>", "<listcomp>", "<dictcomp>", "<setcomp>", "<lambda>")
calls = []

def entered(frame, event):
    path, name = frame.f_code.co_filename, frame.f_code.co_name
    return event == "call" and "/metaroll/" in path and name != "<module>" and path.rpartition("/metaroll/")[2]

def give():
    sys.setprofile(None)
    print(json.dumps(calls), file=sys.__stdout__, flush=True)
    os._exit(0)  # the rest of the run is not needed
"""

_LEARN = """
def follow(frame, event, arg):
    path, name = entered(frame, event), frame.f_code.co_name
    if path and (name == "step" or (name == "_step" and path.startswith("rollouts/"))):
        give()
    if path and name not in NOT_NAMED:
        calls.append((path, name))

def learn():
    metaroll.agent("ppo", "Pendulum-v1").learn(1)

learn()
sys.setprofile(follow)
learn()  # a second run, in another folder
"""

_STEP = """
import gymnasium

def follow(frame, event, arg):
    path = entered(frame, event)
    if path:
        calls.append((path, frame.f_code.co_name))

def learner():
    env = gymnasium.make("Pendulum-v1")
    sac = metaroll.SAC(env, n_train_steps=1, min_buffer_size=64, buffer_batch_size=64, replay_size=1000, seed=0)
    path = metaroll.rollout(env, lambda observation: np.zeros(1, np.float32), max_steps=200, seed=0)
    sac.replay_buffer.add_path({
        "observation": np.asarray(path.observations[:-1]),
        "action": np.asarray(path.actions),
        "reward": np.asarray(path.rewards),
        "next_observation": np.asarray(path.observations[1:]),
        "terminal": np.zeros(len(path.rewards), dtype=bool),
    })
    return sac

def step(sac):
    sac.trainer.step(sac.sample_batch())

step(learner())
sac = learner()
sys.setprofile(follow)
step(sac)
give()
"""

_ROLLOUT = """
seen, has_begun = set(), False

def follow(frame, event, arg):
    global has_begun
    path, name = entered(frame, event), frame.f_code.co_name
    if not path:
        return
    if FROM_STEP and not has_begun:
        has_begun = name == "step"
    elif not FROM_STEP and name == "step":
        give()
    if has_begun or not FROM_STEP:
        calls.append((path, name))

def walk(env):
    policy = lambda observation: np.zeros(1, dtype=np.float32)
    path = metaroll.rollout(env, policy, max_steps=5, seed=0)
    buffer = metaroll.PathBuffer(100)
    buffer.add_path({"observations": np.asarray(path.observations[:-1]), "rewards": np.asarray(path.rewards)[:, None]})

walk("MountainCarContinuous-v0")
sys.setprofile(follow)
walk("Pendulum-v1")
give()
"""


@dataclass(frozen=True)
class Walk:
    """The calls of a walk in order, ``(file below the package, name of the function)``."""

    entries: list[tuple[str, str]]

    @property
    def files(self) -> int:
        return len({path for path, _ in self.entries})

    @property
    def moves(self) -> int:
        paths = [path for path, _ in self.entries]
        return sum(a != b for a, b in itertools.pairwise(paths))

    @property
    def functions(self) -> int:
        return len(set(self.entries))

    @property
    def calls(self) -> int:
        return len(self.entries)


def learn_walk(package: Path) -> Walk:
    """``agent("ppo", "Pendulum-v1").learn`` until a function named ``step``, or ``_step`` of the slot loop, is entered.

    Comprehensions, generator expressions and lambdas do not count as calls.

    Raises:
        RuntimeError: The package fails to run this; the message has the end of its error output.
    """
    return _walk(package, _LEARN)


def step_walk(package: Path) -> Walk:
    """The first batch of 64 steps that SAC draws, and the gradient step on it; every call counts.

    Raises:
        RuntimeError: As in ``learn_walk``.
    """
    return _walk(package, _STEP)


def rollout_files(package: Path, from_step: bool) -> int:
    """Number of files entered from ``rollout("Pendulum-v1")`` to its first step, or from that to a replay buffer.

    Raises:
        RuntimeError: As in ``learn_walk``.
    """
    return _walk(package, f"FROM_STEP = {from_step}\n{_ROLLOUT}").files


def _walk(package: Path, script: str) -> Walk:
    with tempfile.TemporaryDirectory() as folder:
        variables = {name: os.environ[name] for name in ("PATH", "LANG", "LD_LIBRARY_PATH") if name in os.environ}
        result = subprocess.run(
            [sys.executable, "-c", _FOLLOW + script],
            env={**variables, "PYTHONPATH": str(package.parent), "HOME": folder, "OMP_NUM_THREADS": "1"},
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
    lines = result.stdout.splitlines()
    if result.returncode or not lines:
        raise RuntimeError(f"a walk through {package} failed:\n{result.stderr[-2000:]}")
    return Walk([(path, name) for path, name in json.loads(lines[-1])])
