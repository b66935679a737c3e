"""Observations, rewards and endings of an environment on MuJoCo's physics, for many simulations at once."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from metaroll.errors import ShapeError

__all__ = ["Arrays", "Rules", "Step", "StepResult", "as_rows", "draw_uniform", "row_norms", "split_state"]

Arrays = Mapping[str, np.ndarray]
"""Name -> array ``(E, ...)``, one row per simulation."""


class Step(NamedTuple):
    """One step of E simulations.

    ``before`` and ``now`` hold what ``Rules.observed`` returns; ``constants`` those of ``Rules.constants`` and
    ``dt``, in seconds; ``task`` what ``Rules.task_row`` makes of each simulation's task.
    """

    before: Arrays
    now: Arrays
    actions: np.ndarray
    controls: np.ndarray
    constants: Arrays
    task: Arrays


class StepResult(NamedTuple):
    """``rewards (E,)``, ``terminated (E,)`` and infos, name -> array ``(E, ...)``, in their own memory."""

    rewards: np.ndarray
    terminated: np.ndarray
    infos: dict[str, np.ndarray]


class Rules(ABC):
    """Observation, reward and ending of an environment, as functions of arrays.

    A row of a result must depend on that row of the arguments alone, bitwise, so that a rollout does not depend on
    the simulations that are stepped beside it. Products of rows go through ``np.vecdot``, as ``np.dot`` of one.
    """

    frame_skip: int = 1
    contacts = False
    """Whether forces of contacts are read (``cfrc_ext``), which MuJoCo computes only when asked."""
    changes_model = False
    """Whether a task is set in the model (``set_in_model``), so that each simulation needs its own model."""

    def observed(self, model: Any, data: Any) -> dict[str, np.ndarray]:
        """Views into ``data`` that observation, reward or ending read, besides ``qpos`` and ``qvel``."""
        return {}

    def constants(self, model: Any) -> dict[str, Any]:
        """The parts of the model that they read."""
        return {}

    def controls(self, actions: np.ndarray) -> np.ndarray:
        """Controls of the actuators, ``(E, nu)``."""
        return actions

    def draw(self, generator: np.random.Generator, qpos: np.ndarray, qvel: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Initial state of an episode, near the positions and velocities of the model file (not to be changed)."""
        return qpos, qvel

    @abstractmethod
    def observe(self, now: Arrays, task: Arrays) -> np.ndarray:
        """Observations ``(E, O)``, in their own memory."""

    @abstractmethod
    def reward_and_termination(self, step: Step) -> StepResult:
        """Rewards, endings and infos of a step."""

    def task_row(self, task: Any) -> dict[str, Any]:
        """Numbers of a task that the other functions read; raises where it is no task."""
        return {}

    def set_in_model(self, model: Any, task: Any) -> None:  # noqa: B027 (most change nothing)
        """Change ``model``, which another task may have changed before (``changes_model`` only)."""


def draw_uniform(generator: np.random.Generator, center: np.ndarray, scale: float) -> np.ndarray:
    """``center`` plus uniform noise within ``scale``."""
    return center + generator.uniform(low=-scale, high=scale, size=center.size)


def as_rows(values: np.ndarray) -> np.ndarray:
    """``values (E, ...)`` as rows ``(E, D)``, also where E is 0 (``reshape(E, -1)`` would fail)."""
    return values.reshape(len(values), math.prod(values.shape[1:]))


def row_norms(rows: np.ndarray) -> np.ndarray:
    """Euclidean norms ``(E,)`` of ``rows (E, D)``, each as ``np.linalg.norm`` of that row."""
    return np.sqrt(np.vecdot(rows, rows))


def split_state(init_state: Any, num_q: int, num_v: int) -> tuple[np.ndarray, np.ndarray]:
    """Positions and velocities of an ``init_state (nq + nv,)``."""
    state = np.array(init_state, dtype=np.float64)
    if state.shape != (num_q + num_v,):
        raise ShapeError(f"init_state must have shape ({num_q + num_v},), got {state.shape}")
    return state[:num_q], state[num_q:]
