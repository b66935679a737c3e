"""Cuts data into mini-batches: positions of samples, or the samples themselves, in order or shuffled."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np

from metaroll.checks import check_whole
from metaroll.seeding import as_generator

__all__ = [
    "gen_ordered_batch_idcs",
    "gen_ordered_batches",
    "gen_shuffled_batch_idcs",
    "shuffled_ordered_batches",
]

Generator = np.random.Generator | int | Sequence[int] | None


def gen_shuffled_batch_idcs(batch_size: int, data_size: int, *, generator: Generator = None) -> Iterator[list[int]]:
    """Positions of all samples in random order, batch by batch (specs/sampling.md 5).

    Args:
        batch_size: Number of positions in each batch; the last one may hold fewer.
        data_size: Number of samples.
        generator: Source of randomness, or its seed; ``None`` means fresh entropy.

    Returns:
        Iterator of lists, e.g. ``[0, 3], [2, 1], [4]`` for 2 of 5.
    """
    size, total = check_whole("batch_size", batch_size), check_whole("data_size", data_size, low=0)
    order = as_generator(generator).permutation(total).tolist()
    return (order[start : start + size] for start in range(0, total, size))


def gen_ordered_batch_idcs(
    batch_size: int, data_size: int, sorted: bool = True, *, generator: Generator = None
) -> Iterator[list[int]]:
    """Positions of all samples in batches of neighbors (specs/sampling.md 5).

    Args:
        batch_size: Number of positions in each batch; the last stretch of the data may be shorter.
        data_size: Number of samples.
        sorted: False puts the batches in random order (the order within them stays).
        generator: Source of randomness, or its seed; ``None`` means fresh entropy. Not used if ``sorted``.

    Returns:
        Iterator of lists: ``[0, 1], [2, 3], [4]`` for 2 of 5, and e.g. ``[2, 3], [0, 1], [4]`` if not ``sorted``.
    """
    size, total = check_whole("batch_size", batch_size), check_whole("data_size", data_size, low=0)
    starts = np.arange(0, total, size)
    if not sorted:
        starts = as_generator(generator).permutation(starts)
    return (list(range(start, min(start + size, total))) for start in starts.tolist())


def gen_ordered_batches(inp: Iterable[Any], batch_size: int) -> Iterator[list[Any]]:
    """The samples in their order, cut into lists (specs/sampling.md 5).

    Args:
        inp: Samples; taken from as batches are asked for, so it may be endless.
        batch_size: Number of samples in each batch; the last one may hold fewer.

    Returns:
        Iterator of lists.
    """
    size = check_whole("batch_size", batch_size)
    samples = iter(inp)
    return iter(lambda: list(islice(samples, size)), [])


def shuffled_ordered_batches(inp: Iterable[Any], batch_size: int, *, generator: Generator = None) -> list[list[Any]]:
    """The samples cut into lists of neighbors, these in random order (specs/sampling.md 5).

    Args:
        inp: Samples.
        batch_size: Number of samples in each batch; the last stretch of the data may be shorter.
        generator: Source of randomness, or its seed; ``None`` means fresh entropy.

    Returns:
        List of lists.
    """
    batches = list(gen_ordered_batches(inp, batch_size))
    return [batches[i] for i in as_generator(generator).permutation(len(batches)).tolist()]
