"""Mini-batches of the steps of a sequence: in order, shuffled, and steps together with their successors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from metaroll.checks import check_whole
from metaroll.functional.minibatches import Generator, gen_shuffled_batch_idcs
from metaroll.seeding import as_generator

if TYPE_CHECKING:
    from metaroll.data.step_sequence import StepSequence

__all__ = ["ordered_batches", "sample_with_next", "shuffled_batches"]


def sample_with_next(
    rollout: StepSequence, batch_size: int, generator: Generator = None
) -> tuple[StepSequence, StepSequence]:
    """Random steps, none of them twice, and the steps that follow them; see ``StepSequence.sample_w_next``."""
    size = check_whole("batch_size", batch_size)
    # The last step of a rollout is followed by an observation at most, never by a step.
    candidates = np.setdiff1d(np.arange(len(rollout)), rollout.rollout_bounds[1:] - 1)
    if size > len(candidates):
        raise ValueError(
            f"batch_size must not exceed the number of steps that another one follows, {len(candidates)} "
            f"(of {len(rollout)} steps in {rollout.rollout_count} rollouts), got {size}"
        )
    chosen = as_generator(generator).choice(candidates, size, replace=False)
    return rollout[chosen], rollout[chosen + 1]


def ordered_batches(
    rollout: StepSequence, batch_size: int | None = None, num_batches: int | None = None
) -> Iterator[StepSequence]:
    """Slices that follow one another; see ``StepSequence.split_ordered_batches``."""
    if (batch_size is None) == (num_batches is None):
        raise ValueError(
            f"give either batch_size or num_batches, got batch_size={batch_size!r}, num_batches={num_batches!r}"
        )
    length = len(rollout)
    if batch_size is not None:
        edges = [*range(0, length, check_whole("batch_size", batch_size)), length]
    else:
        count = check_whole("num_batches", num_batches)
        if count > length:
            raise ValueError(f"num_batches must not exceed the number of steps {length}, got {count}")
        short, longer = divmod(length, count)  # the first `longer` batches hold one step more
        edges = [i * short + min(i, longer) for i in range(count + 1)]
    if len(edges) == 2:
        return iter((rollout,))
    return (rollout[edges[i] : edges[i + 1]] for i in range(len(edges) - 1))


def shuffled_batches(
    rollout: StepSequence, batch_size: int, complete_rollouts: bool = False, generator: Generator = None
) -> Iterator[StepSequence]:
    """Batches of random steps or random rollouts; see ``StepSequence.split_shuffled_batches``."""
    size = check_whole("batch_size", batch_size)
    if complete_rollouts and not rollout.continuous:
        raise ValueError(
            "complete_rollouts needs a continuous sequence: a loose batch of steps (continuous=False) has no rollouts"
        )
    if size >= len(rollout):
        return iter((rollout,))
    rng = as_generator(generator)
    if complete_rollouts:
        order = rng.permutation(rollout.rollout_count)
        return (rollout.get_rollout(group) for group in _groups(order, rollout.rollout_lengths[order], size))
    return (rollout[indices] for indices in gen_shuffled_batch_idcs(size, len(rollout), generator=rng))


def _groups(order: np.ndarray, lengths: np.ndarray, size: int) -> Iterator[np.ndarray]:
    """``order`` cut as soon as a group has at least ``size`` steps; the rest comes last."""
    start = steps = 0
    for i, length in enumerate(lengths.tolist()):
        steps += length
        if steps >= size:
            yield order[start : i + 1]
            start, steps = i + 1, 0
    if start < len(order):
        yield order[start:]
