"""Applies a function to the data of a sequence, field by field and rollout by rollout."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from metaroll.data.data_format import Array, iterate_leaves, map_leaves, refuse_gradients, to_format
from metaroll.data.final_entries import FinalEntries, concat_leaves
from metaroll.errors import DataError, ShapeError

if TYPE_CHECKING:
    from metaroll.data.step_sequence import StepSequence

__all__ = ["process_fields"]


def process_fields(
    rollout: StepSequence,
    function: Callable[..., Any],
    argument: str,
    types: type | tuple[type, ...],
    include: Collection[str] | None,
    exclude: Collection[str] | None,
    arguments: Mapping[str, Any],
) -> StepSequence:
    """A new sequence with processed data; see ``StepSequence.process_data``."""
    if not callable(function):
        raise TypeError(f"fcn must be callable, got {function!r}")
    if argument in arguments:
        raise ValueError(f"fcn_arg_name {argument!r} is the argument that takes the data; do not pass a value for it")
    names = _selected(rollout, include, exclude)
    leaves = [leaf for name in names for _, leaf in iterate_leaves(getattr(rollout, name))]
    if leaves and not any(isinstance(leaf, types) for leaf in leaves):
        raise TypeError(
            f"fcn_arg_types {types!r} fits no field of a rollout in format {rollout.data_format!r}: pass "
            f"fcn_arg_types={type(leaves[0]).__name__}, or convert the rollout"
        )

    def call(data: Array, path: tuple[Any, ...]) -> Array:
        where = ".".join(map(str, path))
        # A copy: what works in place must not reach the original.
        data = data.clone() if isinstance(data, torch.Tensor) else data.copy()
        try:
            result = to_format(function(**arguments, **{argument: data}), rollout.data_format)
        except Exception as error:
            error.add_note(f"while processing field {where!r} of a StepSequence; leave it out with exclude_fields")
            raise
        refuse_gradients(where, result)
        if result.ndim == 0 or len(result) != len(data):
            raise ShapeError(
                f"fcn must keep the number of entries, but made shape {tuple(result.shape)} of the "
                f"{tuple(data.shape)} of field {where!r}"
            )
        return result

    return _rebuild(rollout, names, types, call)


def _selected(rollout: StepSequence, include: Collection[str] | None, exclude: Collection[str] | None) -> list[str]:
    for argument, chosen in (("include_fields", include), ("exclude_fields", exclude)):
        if isinstance(chosen, str):
            raise TypeError(f"{argument} must be a list of names, got the text {chosen!r}")
        for name in chosen or ():
            if name not in rollout.data_names:
                raise DataError(f"{argument}: there is no field {name!r}; fields: {', '.join(rollout.data_names)}")
    return [n for n in rollout.data_names if (include is None or n in include) and n not in (exclude or ())]


def _rebuild(
    rollout: StepSequence,
    names: list[str],
    types: type | tuple[type, ...],
    call: Callable[[Array, tuple[Any, ...]], Array],
) -> StepSequence:
    """The sequence with ``call`` applied to each rollout of each leaf, final entries included; the rest is shared."""
    parts = list(rollout.iterate_rollouts()) if rollout.continuous else [rollout]
    ends = [np.array([0, len(part)]) for part in parts]
    pieces = {name: [dict(iterate_leaves(getattr(part, name))) for part in parts] for name in names}
    finals: dict[tuple[Any, ...], FinalEntries] = dict(rollout._finals)

    def process(leaf: Array, path: tuple[Any, ...]) -> Array:
        if not isinstance(leaf, types):
            return leaf
        done = [call(trees[path[1:]], path) for trees in pieces[path[0]]]
        # The last final entry goes where it was: behind the rows of the leaf, or apart.
        apart = len(leaf) == len(rollout)
        rows, rest = concat_leaves(done, [None] * len(done), ends, rollout.data_format, truncate_last=apart)
        finals.pop(path, None)
        if rest is not None:
            finals[path] = rest
        return rows

    fields = {name: getattr(rollout, name) for name in rollout.data_names}
    fields |= {name: map_leaves(process, fields[name], (name,)) for name in names}
    return rollout._with_fields(fields, finals)
