"""Do observations fit the space that an environment declares, and do all its tasks declare the same?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np

from metaroll.data.space_batches import empty_batch, same_kind, take_rows, write_element
from metaroll.types import EnvSpec

__all__ = ["different_spaces", "loose_type", "misfit"]

spaces = gymnasium.spaces
_ARRAYS = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)


def misfit(space: gymnasium.Space, observation: Any) -> str | None:
    """Why a rollout could not hold ``observation``, in words; ``None`` if it can."""
    for name, part, value in _leaves(space, observation, "observation"):
        shape = _shape_of(value)
        if isinstance(part, _ARRAYS) and shape is not None and shape != part.shape:
            return f"{name} has shape {shape}, its space says {part.shape}"
    batch = empty_batch(space, 1)
    try:
        write_element(space, batch, 0, observation)
    except (TypeError, ValueError) as error:
        return str(error)
    for name, part, value in _leaves(space, take_rows(batch, 0), "observation"):
        if isinstance(part, _ARRAYS) and not isinstance(part, spaces.Box) and not part.contains(value):
            return f"{name} is {value}, its space says {part}"
    return None


def loose_type(space: gymnasium.Space, observation: Any) -> str | None:
    """Where numbers of ``observation`` are of a type that loses something in that of its space; ``None``: nowhere."""
    for name, part, value in _leaves(space, observation, "observation"):
        if isinstance(part, spaces.Box):
            found = np.asarray(value).dtype
            if not np.can_cast(found, part.dtype):
                return f"{name} is of {found}, its space says {part.dtype}"
    return None


def different_spaces(specs: Mapping[Any, EnvSpec]) -> str | None:
    """Which tasks have other spaces than the first one, in words; ``None`` if all are of a kind."""
    first, known = next(iter(specs.items()), (None, None))
    for task, spec in specs.items():
        for kind in ("observation", "action"):
            left, right = getattr(known, f"{kind}_space"), getattr(spec, f"{kind}_space")
            if not same_kind(left, right):
                return f"tasks have different {kind} spaces: {first!r} has {left}, {task!r} has {right}"
    return None


def _leaves(space: gymnasium.Space, element: Any, name: str) -> Iterator[tuple[str, gymnasium.Space, Any]]:
    """Name, space and value of all parts that are there."""
    if isinstance(space, spaces.Dict) and isinstance(element, Mapping):
        for key, part in space.spaces.items():
            if key in element:
                yield from _leaves(part, element[key], f"{name}[{key!r}]")
    elif isinstance(space, spaces.Tuple) and isinstance(element, Sequence):
        for i, (part, value) in enumerate(zip(space.spaces, element, strict=False)):
            yield from _leaves(part, value, f"{name}[{i}]")
    elif not isinstance(space, spaces.Dict | spaces.Tuple):
        yield name, space, element


def _shape_of(value: Any) -> tuple[int, ...] | None:
    try:
        return np.shape(value)
    except ValueError:  # rows of different lengths
        return None
