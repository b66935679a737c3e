"""Shared parts of all kits: watch globals of the process, keep copies, overwrite results, compare bits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from metaroll.checks import entry_text
from metaroll.data.compare import first_difference, trees_equal
from metaroll.data.step_sequence import StepSequence
from metaroll.errors import ConformanceError
from metaroll.seeding import global_states

__all__ = ["check_factory", "difference_of", "globals_untouched", "leaves_of", "overwrite"]

_FILL = 77
"""Written over arrays: neither a usual observation, reward or parameter, nor a number that spreads as NaN does."""


def check_factory(make: Any, form: str, example: str) -> None:
    """Raise unless ``make`` can be called.

    Args:
        make: The argument of the kit.
        form: The required form.
        example: A call of the kit that is right.

    Raises:
        TypeError: It is something else.
    """
    if not callable(make):
        raise TypeError(f"make must be {form}, got {make!r}: {example}")


@contextmanager
def globals_untouched(who: str) -> Iterator[None]:
    """Raise if the block moves a global generator, or changes a setting of torch or NumPy.

    Args:
        who: Name of the code in the block.

    Raises:
        ConformanceError: ``globals``.
    """
    before = _globals()
    yield
    changed = [name for name, value in _globals().items() if not trees_equal(value, before[name])]
    if changed:
        raise ConformanceError(
            "globals",
            f"{who} changed {', '.join(changed)}",
            "draw from a generator that is handed in or derived from a seed; metaroll.isolated_rng(seed) encloses "
            "code of others that draws from global ones",
        )


def _globals() -> dict[str, Any]:
    python, numpy, on_cpu, on_cuda = global_states()
    return {
        "the generator of Python's random": python,
        "the global generator of NumPy": numpy,
        "torch's global generator": on_cpu,
        "torch's generators on CUDA": on_cuda,
        "torch's default dtype": torch.get_default_dtype(),
        "torch's number of threads": torch.get_num_threads(),
        "torch's gradient mode": torch.is_grad_enabled(),
        "NumPy's handling of floating-point errors": np.geterr(),
    }


def leaves_of(tree: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """``(path, leaf)`` of nested mappings, lists, tuples and rollouts; paths read as ``['a'][0]``."""
    if isinstance(tree, StepSequence):
        tree = {name: tree.get_data_values(name) for name in tree.data_names}
    if isinstance(tree, Mapping):
        for key, value in tree.items():
            yield from leaves_of(value, f"{path}[{key!r}]")
    elif isinstance(tree, Sequence) and not isinstance(tree, str | bytes):
        for place, value in enumerate(tree):
            yield from leaves_of(value, f"{path}[{place}]")
    else:
        yield path, tree


def overwrite(tree: Any) -> None:
    """Write other numbers over all arrays and tensors of ``tree`` that can be written."""
    for _, leaf in leaves_of(tree):
        if isinstance(leaf, torch.Tensor):
            with torch.no_grad():
                leaf.fill_(leaf.new_tensor(_FILL))
        elif isinstance(leaf, np.ndarray) and leaf.flags.writeable and leaf.dtype.kind in "biufc":
            leaf.fill(_FILL)


def difference_of(a: Any, b: Any) -> str | None:
    """The difference between two results in words, ``None`` if all bits agree.

    Args:
        a, b: Nested data, which may contain rollouts (``StepSequence``).
    """
    if isinstance(a, StepSequence) and isinstance(b, StepSequence):
        return first_difference(a, b)
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        if a.keys() != b.keys():
            return f"has entries in one case only: {sorted(map(str, a.keys() ^ b.keys()))}"
        return _first((f"[{key!r}]", a[key], b[key]) for key in a)
    if _is_sequence(a) and _is_sequence(b):
        if len(a) != len(b):
            return f"there are {len(a)} entries, and {len(b)}"
        return _first((f"[{place}]", one, two) for place, (one, two) in enumerate(zip(a, b, strict=True)))
    return None if trees_equal(a, b) else _values(a, b)


def _is_sequence(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _first(entries: Iterable[tuple[str, Any, Any]]) -> str | None:
    for place, one, two in entries:
        difference = difference_of(one, two)
        if difference is not None:
            return f"{place} {difference}" if difference[:1] not in "[" else f"{place}{difference}"
    return None


def _values(a: Any, b: Any) -> str:
    arrays = [value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else value for value in (a, b)]
    one, two = arrays
    if not (isinstance(one, np.ndarray) and isinstance(two, np.ndarray)):
        return f"is {entry_text(one)}, and {entry_text(two)}"
    if one.dtype != two.dtype or one.shape != two.shape:
        return f"is {one.dtype} {one.shape}, and {two.dtype} {two.shape}"
    flat = [np.ascontiguousarray(value).reshape(-1) for value in arrays]
    differ = np.flatnonzero([x.tobytes() != y.tobytes() for x, y in zip(*flat, strict=True)])
    if not len(differ):
        return "differs"
    place = int(differ[0])
    first, second = (entry_text(values[place]) for values in flat)
    return f"differs in {len(differ)} of {one.size} numbers, first {first} and {second}"
