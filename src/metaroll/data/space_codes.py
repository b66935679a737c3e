"""Gymnasium spaces as plain data and back, for the headers of recordings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import numpy as np

__all__ = ["space_from_plain", "space_to_plain"]

spaces = gymnasium.spaces


def space_to_plain(space: gymnasium.Space) -> dict[str, Any] | None:
    """Kind and arguments of a space (which may hold arrays and other spaces); ``None`` for a kind of somebody else."""
    for kind, (cls, describe, _) in _KINDS.items():
        if isinstance(space, cls):
            return {"kind": kind, **describe(space)}
    return None


def space_from_plain(plain: Mapping[str, Any]) -> gymnasium.Space:
    """The space that ``space_to_plain`` described; ``KeyError`` for an unknown kind."""
    arguments = dict(plain)
    return _KINDS[arguments.pop("kind")][2](**arguments)


def _describe_box(space: spaces.Box) -> dict[str, Any]:
    return {
        "low": _shorten(space.low),
        "high": _shorten(space.high),
        "shape": list(space.shape),
        "dtype": np.dtype(space.dtype).str,
    }


def _shorten(bound: np.ndarray) -> np.ndarray:
    """One number if all are the same: the bounds of images are large and dull."""
    return bound.reshape(-1)[0] if bound.size and (bound == bound.reshape(-1)[0]).all() else bound


def _make_box(low: Any, high: Any, shape: list[int], dtype: str) -> spaces.Box:
    kind = np.dtype(dtype)
    bounds = [np.full(shape, bound, kind) if np.ndim(bound) == 0 else bound for bound in (low, high)]
    return spaces.Box(bounds[0], bounds[1], dtype=kind.type)


_KINDS: dict[str, tuple[type, Callable[[Any], dict[str, Any]], Callable[..., gymnasium.Space]]] = {
    "box": (spaces.Box, _describe_box, _make_box),
    "discrete": (spaces.Discrete, lambda s: {"n": int(s.n), "start": int(s.start)}, spaces.Discrete),
    "multi_discrete": (
        spaces.MultiDiscrete,
        lambda s: {"nvec": s.nvec, "dtype": np.dtype(s.dtype).str, "start": s.start},
        spaces.MultiDiscrete,
    ),
    "multi_binary": (
        spaces.MultiBinary,
        lambda s: {"n": list(s.shape)},
        lambda n: spaces.MultiBinary(n if len(n) != 1 else n[0]),
    ),
    "text": (
        spaces.Text,
        lambda s: {"max_length": s.max_length, "min_length": s.min_length, "charset": "".join(s.character_list)},
        spaces.Text,
    ),
    "dict": (
        spaces.Dict,
        lambda s: {"parts": [list(item) for item in s.spaces.items()]},
        lambda parts: spaces.Dict([(key, space) for key, space in parts]),  # of a dict it would sort the keys
    ),
    "tuple": (spaces.Tuple, lambda s: {"spaces": list(s.spaces)}, spaces.Tuple),
    "one_of": (spaces.OneOf, lambda s: {"spaces": list(s.spaces)}, spaces.OneOf),
    "sequence": (spaces.Sequence, lambda s: {"space": s.feature_space, "stack": s.stack}, spaces.Sequence),
    "graph": (
        spaces.Graph,
        lambda s: {"node_space": s.node_space, "edge_space": s.edge_space},
        spaces.Graph,
    ),
}
