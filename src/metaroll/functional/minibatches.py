"""Cuts data into mini-batches: positions of samples, or the samples themselves, in order or shuffled."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np

from metaroll.checks import check_whole, described
from metaroll.seeding import as_generator

__all__ = [
    "draw_followed_steps",
    "gen_ordered_batch_idcs",
    "gen_ordered_batches",
    "gen_shuffled_batch_idcs",
    "ordered_batch_edges",
    "shuffled_ordered_batches",
    "shuffled_rollout_groups",
]

Generator = np.random.Generator | int | Sequence[int] | None


def gen_shuffled_batch_idcs(batch_size: int, data_size: int, *, generator: Generator = None) -> Iterator[list[int]]:
    """Positions of all samples in random order, batch by batch.

    Args:
        batch_size: Number of positions in each batch; the last one may hold fewer.
        data_size: Number of samples.
        generator: Source of randomness, or its seed; ``None`` means fresh entropy.

    Returns:
        Iterator of lists, e.g. ``[0, 3], [2, 1], [4]`` for 2 of 5.

    Raises:
        TypeError: A number is not an integer.
        ValueError: ``batch_size`` is below 1.
    """
    size, total = check_whole("batch_size", batch_size), check_whole("data_size", data_size, low=0)
    order = as_generator(generator).permutation(total).tolist()
    return (order[start : start + size] for start in range(0, total, size))


def gen_ordered_batch_idcs(
    batch_size: int, data_size: int, sorted: bool = True, *, generator: Generator = None
) -> Iterator[list[int]]:
    """Positions of all samples in batches of neighbors.

    Args:
        batch_size: Number of positions in each batch; the last stretch of the data may be shorter.
        data_size: Number of samples.
        sorted: False puts the batches in random order (the order within them stays).
        generator: Source of randomness, or its seed; ``None`` means fresh entropy. Not used if ``sorted``.

    Returns:
        Iterator of lists: ``[0, 1], [2, 3], [4]`` for 2 of 5, and e.g. ``[2, 3], [0, 1], [4]`` if not ``sorted``.

    Raises:
        TypeError: A number is not an integer.
        ValueError: ``batch_size`` is below 1.
    """
    size, total = check_whole("batch_size", batch_size), check_whole("data_size", data_size, low=0)
    starts = np.arange(0, total, size)
    if not sorted:
        starts = as_generator(generator).permutation(starts)
    return (list(range(start, min(start + size, total))) for start in starts.tolist())


def gen_ordered_batches(inp: Iterable[Any], batch_size: int) -> Iterator[list[Any]]:
    """The samples in their order, cut into lists.

    Args:
        inp: Samples; taken from as batches are asked for, so it may be endless.
        batch_size: Number of samples in each batch; the last one may hold fewer.

    Returns:
        Iterator of lists.

    Raises:
        TypeError: A number is not an integer.
        ValueError: ``batch_size`` is below 1.
    """
    size = check_whole("batch_size", batch_size)
    try:
        samples = iter(inp)
    except TypeError as error:
        raise TypeError(f"inp must be a list of samples, or give them one by one, got {described(inp)}") from error
    return iter(lambda: list(islice(samples, size)), [])


def shuffled_ordered_batches(inp: Iterable[Any], batch_size: int, *, generator: Generator = None) -> list[list[Any]]:
    """The samples cut into lists of neighbors, these in random order.

    Args:
        inp: Samples.
        batch_size: Number of samples in each batch; the last stretch of the data may be shorter.
        generator: Source of randomness, or its seed; ``None`` means fresh entropy.

    Returns:
        List of lists.

    Raises:
        TypeError: A number is not an integer.
        ValueError: ``batch_size`` is below 1.
    """
    batches = list(gen_ordered_batches(inp, batch_size))
    return [batches[i] for i in as_generator(generator).permutation(len(batches)).tolist()]


# ---- steps of rollouts -----------------------------------------------------------------------------------------------


def draw_followed_steps(bounds: np.ndarray, batch_size: int, *, generator: Generator = None) -> np.ndarray:
    """Positions ``(batch_size,)`` of random steps that another step of the same rollout follows, none of them twice.

    Args:
        bounds: First step of every rollout, then the number of steps N, shape ``(R+1,)``.
        batch_size: How many.
        generator: Source of randomness, or its seed; ``None`` means fresh entropy.

    Raises:
        ValueError: There are fewer.
    """
    size = check_whole("batch_size", batch_size)
    candidates = np.setdiff1d(np.arange(bounds[-1]), bounds[1:] - 1)
    if size > len(candidates):
        raise ValueError(
            f"batch_size must not exceed the number of steps that another one follows, {len(candidates)} "
            f"(of {bounds[-1]} steps in {len(bounds) - 1} rollouts), got {size}"
        )
    return as_generator(generator).choice(candidates, size, replace=False)


def ordered_batch_edges(length: int, batch_size: int | None = None, num_batches: int | None = None) -> list[int]:
    """Boundaries of batches of neighbors, the last one ``length``; set one of ``batch_size`` and ``num_batches``.

    Args:
        length: Number of samples.
        batch_size: Number of samples in each batch; the last one may hold fewer.
        num_batches: Number of batches; their lengths differ by one at most.

    Raises:
        ValueError: Both are given, or none, or there are more batches than samples.
    """
    if (batch_size is None) == (num_batches is None):
        raise ValueError(
            f"give either batch_size or num_batches, got batch_size={batch_size!r}, num_batches={num_batches!r}"
        )
    if batch_size is not None:
        return [*range(0, length, check_whole("batch_size", batch_size)), length]
    count = check_whole("num_batches", num_batches)
    if count > length:
        raise ValueError(f"num_batches must not exceed the number of steps {length}, got {count}")
    short, longer = divmod(length, count)  # the first `longer` batches hold one more
    return [i * short + min(i, longer) for i in range(count + 1)]


def shuffled_rollout_groups(batch_size: int, bounds: np.ndarray, *, generator: Generator = None) -> list[np.ndarray]:
    """Positions of all rollouts in random order, in groups with at least ``batch_size`` steps but for the last group.

    Args:
        batch_size: Minimum number of steps of a group.
        bounds: First step of every rollout, then the number of steps N, shape ``(R+1,)``.
        generator: Source of randomness, or its seed; ``None`` means fresh entropy.
    """
    order = as_generator(generator).permutation(len(bounds) - 1)
    groups, start, steps = [], 0, 0
    for i, length in enumerate(np.diff(bounds)[order].tolist()):
        steps += length
        if steps >= batch_size:
            groups.append(order[start : i + 1])
            start, steps = i + 1, 0
    return [*groups, order[start:]] if start < len(order) else groups
