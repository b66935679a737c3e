"""Shared parts of all kits: watch globals of the process, keep copies, overwrite results, compare bits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from metaroll.data.compare import tree_difference, trees_equal
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


def difference_of(a: Any, b: Any, name: str = "") -> str | None:
    """The difference between two results in words, ``None`` if all bits agree; lists agree with tuples.

    Args:
        a, b: Nested data, which may contain rollouts (``StepSequence``).
        name: How the text calls them.
    """
    return tree_difference(a, b, name, exact=False)
