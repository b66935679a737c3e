"""What leaves an environment as flat rows, and what goes back into it in the environment's own form."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from metaroll.errors import ShapeError

__all__ = ["check_supported", "flat_dim", "flatten_observations", "to_env_action"]


def check_supported(space: gymnasium.Space, name: str) -> None:
    """Raise a TypeError unless ``space`` is a Box or Discrete space."""
    if isinstance(space, gymnasium.spaces.Box | gymnasium.spaces.Discrete):
        return
    cure = {
        "observation_space": "gymnasium.wrappers.FlattenObservation turns it into a Box",
        "action_space": "a gymnasium.ActionWrapper can offer a Box or Discrete space",
    }.get(name, "flatten it")
    raise TypeError(f"{name} must be a Box or Discrete space, got {space}; {cure}")


def flat_dim(space: gymnasium.Space) -> int:
    """Length of a flattened element: entries of a Box, choices of a Discrete space."""
    check_supported(space, "space")
    return int(gymnasium.spaces.flatdim(space))


def flatten_observations(space: gymnasium.Space, batch: np.ndarray) -> np.ndarray:
    """Rows ``(N, obs_dim)`` for a policy: a Box reshaped (a view where possible), a Discrete space one-hot in float32.

    Args:
        space: Space of one observation.
        batch: Observations, shape ``(N, *space.shape)``.
    """
    batch = np.asarray(batch)
    if batch.shape[1:] != space.shape:
        raise ShapeError(f"batch must have shape (N, {', '.join(map(str, space.shape or ()))}), got {batch.shape}")
    if isinstance(space, gymnasium.spaces.Discrete):
        return _one_hot(batch, int(space.start), int(space.n))
    check_supported(space, "observation_space")
    return batch.reshape(batch.shape[0], flat_dim(space))


def to_env_action(space: gymnasium.Space, row: Any) -> np.ndarray | int:
    """The action that an environment gets for one row of a policy's output, in memory of its own.

    Args:
        space: The environment's action space.
        row: Shape ``(act_dim,)`` for a Box (returned with the space's shape and dtype, not clipped); for a Discrete
            space the index of the choice, 0 to n - 1 (returned as a Python int, shifted by the space's ``start``).
    """
    if isinstance(space, gymnasium.spaces.Discrete):
        index = int(np.asarray(row).item())
        if not 0 <= index < space.n:
            raise ValueError(f"action must be an index from 0 to {space.n - 1}, got {index}")
        return index + int(space.start)
    check_supported(space, "action_space")
    action = np.array(row, dtype=space.dtype)
    if action.size != flat_dim(space):
        raise ShapeError(f"action must have {flat_dim(space)} entries for {space}, got shape {action.shape}")
    return action.reshape(space.shape)


def _one_hot(values: np.ndarray, start: int, n: int) -> np.ndarray:
    index = values.astype(np.int64) - start
    if index.size and (index.min() < 0 or index.max() >= n):
        raise ValueError(f"observations must lie from {start} to {start + n - 1}, got {values.min()} to {values.max()}")
    rows = np.zeros((len(index), n), dtype=np.float32)
    rows[np.arange(len(index)), index] = 1.0
    return rows
