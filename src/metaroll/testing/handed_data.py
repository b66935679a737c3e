"""Data that a runner hands to a learner: watched for changes, overwritten after use, or spoiled by bad numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from metaroll.data.data_format import map_leaves, own_copy
from metaroll.data.rollouts import Rollouts
from metaroll.data.step_sequence import StepSequence
from metaroll.errors import ConformanceError
from metaroll.testing.shared import difference_of, overwrite
from metaroll.training.run.runner import LocalRunner

__all__ = ["HandedData", "spoil"]

_CALLS = ("obtain_samples", "advance", "sample_parameters")
"""Methods of a runner that return rollouts; ``obtain_in_parts`` yields them."""


class HandedData:
    """Keeps a copy of the data that a runner returns until the learner is done with them, and then overwrites them.

    A learner is done where it asks for more, or its epoch ends (``on_epoch_end``: this is a callback, too).
    """

    def __init__(self) -> None:
        self._handed: list[tuple[Any, Any]] = []

    def watch(self, runner: LocalRunner) -> None:
        """Replace the methods of ``runner`` that return rollouts, on this object alone."""
        _replace(runner, self.finish, self._keep)

    def on_epoch_end(self, runner: LocalRunner, epoch: int, metrics: Mapping[str, float]) -> None:
        """See ``LocalRunner``."""
        self.finish()

    def finish(self) -> None:
        """Compare the returned data with their copies, and overwrite them.

        Raises:
            ConformanceError: ``mutation``.
        """
        for tree, kept in self._handed:
            difference = difference_of(kept, tree)
            if difference is not None:
                message = f"the learner changed rollouts that it was given: {difference}"
                raise ConformanceError("mutation", message, "compute on copies: rewards = rewards - mean")
            overwrite(tree)
        self._handed = []

    def _keep(self, result: Any) -> None:
        self._handed += [(tree, own_copy(tree)) for tree in _columns_of(result)]


def spoil(runner: LocalRunner, name: str, value: float) -> None:
    """Write ``value`` into the middle of field ``name`` of all that ``runner`` hands out from the second call on.

    Args:
        runner: The runner whose methods are replaced, on this object alone.
        name: ``rewards`` or ``observations``.
        value: NaN or Inf.
    """
    calls = 0

    def write(result: Any) -> None:
        nonlocal calls
        calls += 1
        for tree in _columns_of(result) if calls > 1 else []:
            if name in tree:
                tree[name] = map_leaves(lambda leaf, path: _with_value(leaf, value), tree[name])

    _replace(runner, lambda: None, write)


def _replace(runner: LocalRunner, before: Callable[[], None], see: Callable[[Any], None]) -> None:
    """Call ``before()`` before each method that returns rollouts, and ``see`` with its result."""

    def watched(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            before()
            result = method(*arguments, **options)
            see(result)
            return result

        return call

    def in_parts(*arguments: Any, **options: Any) -> Iterator[Any]:
        for numbers, groups in type(runner).obtain_in_parts(runner, *arguments, **options):
            before()
            see(groups)
            yield numbers, groups

    for name in _CALLS:
        setattr(runner, name, watched(getattr(runner, name)))  # this object alone
    runner.obtain_in_parts = in_parts


def _columns_of(result: Any) -> list[dict[str, Any]]:
    """Fields of rollouts, name -> arrays, wherever they lie in ``result``; those that groups share are there once."""
    return list({id(fields): fields for fields in _all_columns_of(result)}.values())


def _all_columns_of(result: Any) -> Iterator[dict[str, Any]]:
    if isinstance(result, Rollouts):
        yield from (part.fields for part in result.parts)
    elif isinstance(result, dict):  # a path
        yield result
    elif isinstance(result, StepSequence):
        yield {name: result.get_data_values(name) for name in result.data_names}
    elif isinstance(result, Sequence):
        for entry in result:
            yield from _all_columns_of(entry)


def _with_value(leaf: Any, value: float) -> Any:
    if not isinstance(leaf, np.ndarray) or leaf.dtype.kind != "f" or not len(leaf):
        return leaf
    spoiled = leaf.copy()
    spoiled[len(leaf) // 2] = value
    return spoiled
