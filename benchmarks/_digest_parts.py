"""What a case of ``digests.py`` records: numbers as they are, arrays as the SHA-256 of their values.

Values do not depend on how a version names or arranges what it computes: floats of any width count as float64, integers
as int64, and weights as a set, sorted by value.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["Cases", "Entry", "Parts", "canonical_bytes", "digest_of", "fields_of_rollout", "names", "sorted_values"]

Entry = float | str
"""A number, a text, or the digest of an array with its shape and mean."""

_ROOMS = ("policies", "sims", "wrappers", "search", "statistics", "lab", "contrib", "configs", "testing")
_SHOWN = 16
"""Hexadecimal digits of a digest that are kept."""


class _Names:
    """Public names of any version of metaroll: from its rooms, or from the package itself, as in earlier versions."""

    def __getattr__(self, name: str) -> Any:
        for room in _ROOMS:
            with contextlib.suppress(ImportError):
                module = importlib.import_module(f"metaroll.{room}")
                if name in getattr(module, "__all__", ()):
                    return getattr(module, name)
        return getattr(importlib.import_module("metaroll"), name)


names = _Names()


def canonical_bytes(value: Any) -> bytes:
    """The bytes of a tree of arrays, numbers and texts.

    Raises:
        TypeError: The tree holds something else.
    """
    if value is None:
        return b"none"
    if isinstance(value, str):
        return b"text" + value.encode()
    if isinstance(value, Mapping):
        entries = sorted((str(key), canonical_bytes(item)) for key, item in value.items())
        return b"dict" + b"".join(key.encode() + b"=" + item for key, item in entries)
    if isinstance(value, list | tuple):
        return b"list" + b"".join(canonical_bytes(item) for item in value)
    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    array = np.asarray(value)
    if array.dtype.kind in "biu":
        array = array.astype("<i8")
    elif array.dtype.kind == "f":
        array = array.astype("<f8")
        array = np.where(np.isnan(array), np.nan, array)  # one of the many bit patterns
    elif array.dtype.kind == "U":
        return canonical_bytes(array.tolist())
    else:
        raise TypeError(f"a digest takes numbers and strings, got {value!r} of type {type(value).__name__}")
    return f"{array.dtype.kind}{array.shape}".encode() + np.ascontiguousarray(array).tobytes()


def digest_of(value: Any) -> str:
    """The beginning of the SHA-256 of ``canonical_bytes``."""
    return hashlib.sha256(canonical_bytes(value)).hexdigest()[:_SHOWN]


def sorted_values(arrays: Iterable[Any]) -> np.ndarray:
    """All numbers of some arrays in rising order, float64 ``(N,)``, regardless of names, order and shapes."""
    flat = [np.asarray(array.detach().cpu() if hasattr(array, "detach") else array).ravel() for array in arrays]
    return np.sort(np.concatenate([np.zeros(0), *(part.astype(np.float64) for part in flat)]))


class Parts:
    """Entries by name, one per epoch if the case has epochs."""

    def __init__(self) -> None:
        self.entries: dict[str, list[Entry]] = {}

    def add(self, name: str, value: Any) -> None:
        """Record a number or a string as it is, and anything else as its digest."""
        self.entries.setdefault(name, []).append(_entry(value))

    def add_all(self, name: str, values: Mapping[str, Any]) -> None:
        """Record each entry of ``values``, its key after ``name``."""
        for key, value in values.items():
            self.add(f"{name} {key}", value)

    def add_weights(self, name: str, arrays: Iterable[Any]) -> None:
        """Record all numbers of ``arrays``, as a set."""
        self.add(name, sorted_values(arrays))

    def add_rollouts(self, name: str, rollouts: Sequence[Any]) -> None:
        """Record observations, actions, rewards and endings of ``StepSequence`` objects."""
        fields = [fields_of_rollout(rollout) for rollout in rollouts]
        for field in fields[0]:
            self.add(f"{name} {field}", [one[field] for one in fields])

    @property
    def digest(self) -> str:
        """The digest of all entries."""
        return hashlib.sha256(json.dumps(self.entries, sort_keys=True).encode()).hexdigest()


Run = Callable[[Parts, Path], None]
"""A case: it records what it computes in ``Parts``, and may write files into the folder."""


class Cases:
    """The cases of a module by name, and those of the short form."""

    def __init__(self) -> None:
        self.runs: dict[str, Run] = {}
        self.quick: list[str] = []

    def add(self, name: str, run: Run, quick: bool = False) -> None:
        """Register a case.

        Raises:
            ValueError: The name is taken.
        """
        if name in self.runs:
            raise ValueError(f"there are two cases {name!r}")
        self.runs[name] = run
        self.quick += [name] if quick else []

    def case(self, name: str, quick: bool = False) -> Callable[[Run], Run]:
        """The same as a decorator."""

        def add(run: Run) -> Run:
            self.add(name, run, quick)
            return run

        return add


def fields_of_rollout(rollout: Any) -> dict[str, Any]:
    """The documented columns of a ``StepSequence``."""
    return {
        "observations": _plain(rollout.observations),
        "actions": _plain(rollout.actions),
        "rewards": np.asarray(rollout.rewards),
        "endings": [bool(np.any(rollout.terminated)), bool(np.any(rollout.truncated))],
    }


def _plain(column: Any) -> Any:
    """A column as nested lists of arrays, for any space."""
    if isinstance(column, np.ndarray) and column.dtype == object:
        return [_plain(row) for row in column]
    return column


def _entry(value: Any) -> Entry:
    if isinstance(value, str | Path):
        return str(value)
    if value is None or isinstance(value, bool | np.bool_):
        return str(value)
    array = np.asarray(value.detach().cpu()) if hasattr(value, "detach") else value
    if isinstance(array, int | float | np.number) or (isinstance(array, np.ndarray) and array.shape == ()):
        number = float(array)
        return number if math.isfinite(number) else str(number)
    if not isinstance(array, np.ndarray):
        return digest_of(value)
    mean = f", mean {array.mean():.6g}" if array.size and array.dtype.kind in "biuf" else ""
    return f"{digest_of(array)} {'x'.join(map(str, array.shape))}{mean}"
