"""Whether environments and episodes have the spaces in which an agent has learned."""

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
"""Bounds in float32 and in float64 are the same ones."""

Tasks = Callable[[], Iterable[EnvUpdate]]


def check_spaces(found: EnvSpec, spec: EnvSpec, tasks: Tasks, where: str = "env") -> None:
    """Error unless an environment has the spaces of ``spec``, and actions within the same bounds.

    Bounds of observations may be others: they change nothing of what is observed.

    Args:
        found: Spaces of the environment.
        spec: Spaces in which the agent has learned.
        tasks: Gives tasks of the agent. Where their bounds differ from those of ``spec`` they belong to the task, and
            any are taken.
        where: What the environment is called.

    Raises:
        ShapeError: It has others.
    """
    pairs = (
        ("observation_space", found.observation_space, spec.observation_space),
        ("action_space", found.action_space, spec.action_space),
    )
    for name, here, wanted in pairs:
        if not _alike(here, wanted):
            raise ShapeError(f"the {name} of {where} must be like {wanted}, in which the agent has learned, got {here}")
    here, wanted = found.action_space, spec.action_space
    if not _same_bounds(here, wanted) and not any(_has_other_bounds(task, wanted) for task in tasks()):
        raise ShapeError(
            f"the action_space of {where} must have the bounds of {wanted}, in which the agent has learned, got {here}"
        )


def check_episode(episode: Any, number: int, spec: EnvSpec, tasks: Tasks) -> None:
    """Error unless ``episode``, at place ``number``, is of an environment with the spaces of ``spec``.

    Raises:
        ShapeError: It is of another one, as its rows or what it tells of its environment show.
        TypeError: It is no ``StepSequence``.
    """
    if not isinstance(episode, StepSequence):
        raise TypeError(
            f"rollouts must hold StepSequences, as agent.explore and metaroll.rollout return them, got "
            f"{type(episode).__name__} at place {number}"
        )
    actions, seen = spec.action_space, spec.observation_space
    for name, space, rows in (("observations", seen, episode.observations), ("actions", actions, episode.actions)):
        found = np.asarray(rows).shape[1:]
        if found != (space.shape or ()):
            raise ShapeError(
                f"{name} of rollout {number} must have rows of shape {space.shape}, got {found}: it is of another "
                "environment than the agent has learned in"
            )
    told = episode.rollout_info.get("env_spec")
    if isinstance(told, EnvSpec):
        check_spaces(told, spec, tasks, f"rollout {number}")


def _alike(found: gymnasium.Space, wanted: gymnasium.Space) -> bool:
    if type(found) is not type(wanted) or found.shape != wanted.shape:
        return False
    return isinstance(found, gymnasium.spaces.Box) or same_kind(found, wanted)


def _same_bounds(found: gymnasium.Space, wanted: gymnasium.Space) -> bool:
    if not (isinstance(found, gymnasium.spaces.Box) and isinstance(wanted, gymnasium.spaces.Box)):
        return True
    pairs = ((found.low, wanted.low), (found.high, wanted.high))
    return all(np.allclose(here, there, rtol=_ROUNDING, atol=0.0) for here, there in pairs)


def _has_other_bounds(task: EnvUpdate, wanted: gymnasium.Space) -> bool:
    with contextlib.closing(task(None)) as env:
        return not _same_bounds(env.action_space, wanted)
