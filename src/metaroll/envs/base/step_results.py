"""What ``step`` of an environment returned: values of our own memory, and in words what is wrong with it."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
import torch

from metaroll.data.space_batches import empty_batch, write_element
from metaroll.errors import ShapeError

__all__ = ["explained", "own_copy", "truth_value"]


_FIXED = (int, float, bool, str, bytes, type(None), np.float64, np.float32, np.bool_, np.int64)


def own_copy(value: Any) -> Any:
    """``value`` in memory that the environment does not change later: arrays, tensors, and containers of such.

    Objects of other kinds stay as they are.
    """
    kind = value.__class__
    if kind in _FIXED:
        return value
    if kind is np.ndarray:
        return copy.deepcopy(value) if value.dtype.hasobject else value.copy()
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if kind is dict:
        return {name: own_copy(entry) for name, entry in value.items()}
    if kind is list or kind is tuple:
        return kind(own_copy(entry) for entry in value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):  # a named tuple, such as Gymnasium's GraphInstance
        return kind(*(own_copy(entry) for entry in value))
    if isinstance(value, np.ndarray | Mapping | list | set | bytearray | deque):
        return copy.deepcopy(value)
    return value


def truth_value(name: str, value: Any) -> bool:
    """A truth value of another type than bool: 0 or 1, perhaps in an array."""
    array = np.asarray(value)
    if array.size != 1 or array.dtype.kind not in "biuf" or array.item() not in (0, 1):
        raise _StepError(f"step() must return {name} as True or False, got {value!r} of type {type(value).__name__}")
    return bool(array.item())


class _StepError(TypeError):
    """Says already what is wrong with what ``step`` returned."""


def explained(error: Exception, result: Any, space: gymnasium.Space) -> Exception:
    """A clearer error for a step that went through in the environment but returned something else than expected."""
    if isinstance(error, ShapeError):
        return error
    if isinstance(error, _StepError):
        return TypeError(str(error))
    if not isinstance(result, tuple) or len(result) != 5:
        what = f"a tuple of {len(result)}" if isinstance(result, tuple) else type(result).__name__
        hint = "; wrap an environment of the old Gym API with shimmy" if what == "a tuple of 4" else ""
        return TypeError(
            "step() must return (observation, reward, terminated, truncated, info), the Gymnasium API, "
            f"got {what}{hint}"
        )
    observation, reward, terminated, truncated, info = result
    try:
        write_element(space, empty_batch(space, 1), 0, observation)
    except (ShapeError, ValueError) as wrong:
        return wrong
    if reward is None:
        return TypeError("step() must return a number as reward, got None")
    return TypeError(
        "step() must return an array, a number, two truth values and a dict, got "
        f"reward={reward!r}, terminated={terminated!r}, truncated={truncated!r}, info={info!r} ({error})"
    )
