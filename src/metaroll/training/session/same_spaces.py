"""Checks whether environments and episodes have the spaces in which an agent has learned."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from typing import Any

import gymnasium
import numpy as np

from metaroll.data.space_batches import same_kind
from metaroll.data.step_sequence import StepSequence
from metaroll.errors import ShapeError
from metaroll.types import EnvSpec, EnvUpdate

__all__ = ["check_episode", "check_spaces"]

_ROUNDING = 1e-6
"""Tolerance for bounds in float32 and float64."""

Tasks = Callable[[], Iterable[EnvUpdate]]


def check_spaces(env_spec: EnvSpec, spec: EnvSpec, tasks: Tasks, where: str = "env") -> None:
    """Raise an error unless an environment has the spaces of ``spec`` and the same bounds of actions.

    Bounds of observations may differ: they do not change what is observed.

    Args:
        env_spec: Spaces of the environment.
        spec: Spaces in which the agent has learned.
        tasks: Returns tasks of the agent. If their bounds differ from those of ``spec``, bounds are part of the task,
            and any are accepted.
        where: Name of the environment in errors.

    Raises:
        ShapeError: They differ.
    """
    pairs = (
        ("observation_space", env_spec.observation_space, spec.observation_space),
        ("action_space", env_spec.action_space, spec.action_space),
    )
    for name, here, wanted in pairs:
        if not _alike(here, wanted):
            raise ShapeError(f"the {name} of {where} must be like {wanted}, in which the agent has learned, got {here}")
    here, wanted = env_spec.action_space, spec.action_space
    if not _same_bounds(here, wanted) and not any(_has_other_bounds(task, wanted) for task in tasks()):
        raise ShapeError(
            f"the action_space of {where} must have the bounds of {wanted}, in which the agent has learned, got {here}"
        )


def check_episode(episode: Any, number: int, spec: EnvSpec, tasks: Tasks) -> None:
    """Raise an error unless ``episode``, number ``number``, comes from an environment with the spaces of ``spec``.

    Raises:
        ShapeError: It comes from another one, according to its rows or its recorded spec.
        TypeError: It is not a ``StepSequence``.
    """
    if not isinstance(episode, StepSequence):
        raise TypeError(
            f"rollouts must hold StepSequences, as agent.explore and metaroll.rollout return them, got "
            f"{type(episode).__name__} at place {number}"
        )
    actions, seen = spec.action_space, spec.observation_space
    for name, space, rows in (("observations", seen, episode.observations), ("actions", actions, episode.actions)):
        shape = np.asarray(rows).shape[1:]
        if shape != (space.shape or ()):
            raise ShapeError(
                f"{name} of rollout {number} must have rows of shape {space.shape}, got {shape}: it comes from another "
                "environment than the agent has learned in"
            )
    recorded = episode.rollout_info.get("env_spec")
    if isinstance(recorded, EnvSpec):
        check_spaces(recorded, spec, tasks, f"rollout {number}")


def _alike(space: gymnasium.Space, wanted: gymnasium.Space) -> bool:
    if type(space) is not type(wanted) or space.shape != wanted.shape:
        return False
    return isinstance(space, gymnasium.spaces.Box) or same_kind(space, wanted)


def _same_bounds(space: gymnasium.Space, wanted: gymnasium.Space) -> bool:
    if not (isinstance(space, gymnasium.spaces.Box) and isinstance(wanted, gymnasium.spaces.Box)):
        return True
    pairs = ((space.low, wanted.low), (space.high, wanted.high))
    return all(np.allclose(here, there, rtol=_ROUNDING, atol=0.0) for here, there in pairs)


def _has_other_bounds(task: EnvUpdate, wanted: gymnasium.Space) -> bool:
    with contextlib.closing(task(None)) as env:
        return not _same_bounds(env.action_space, wanted)
