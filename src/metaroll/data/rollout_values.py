"""Numbers that rollouts boil down to: values, advantages, and whether the same actions were taken."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from metaroll.checks import check_instance
from metaroll.data.compare import trees_equal
from metaroll.data.data_format import Array, cast_floats, cat_arrays, check_data_format, iterate_leaves, to_format
from metaroll.data.final_entries import final_rows
from metaroll.data.rollouts import listed_rollouts
from metaroll.data.step_sequence import StepSequence
from metaroll.errors import DataError, ShapeError
from metaroll.functional.advantages import gae
from metaroll.functional.returns import discounted_reverse_cumsum_ragged

__all__ = ["check_act_equal", "discounted_value", "discounted_values", "gae_returns"]


def discounted_value(rollout: StepSequence, gamma: float) -> Array:
    """Discounted sums of the rewards from each step on.

    Args:
        rollout: One rollout; a concatenation restarts in each of its rollouts.
        gamma: Discount factor in [0, 1].

    Returns:
        ``(N,)``, array or tensor as the rewards are.

    Raises:
        TypeError: ``rollout`` is not a StepSequence.
        ValueError: It is a loose batch, or ``gamma`` is not a number.
    """
    check_instance("rollout", rollout, StepSequence, "a StepSequence")
    return discounted_reverse_cumsum_ragged(_one_per_step(rollout.rewards), rollout.rollout_bounds, gamma)


def discounted_values(rollouts: Sequence[StepSequence], gamma: float, data_format: str | None = "torch") -> Array:
    """Discounted sums of the rewards from each step on, for several rollouts.

    Args:
        rollouts: At least one.
        gamma: Discount factor in [0, 1].
        data_format: "torch" or "numpy"; ``None`` takes that of the first rollout.

    Returns:
        The values of all steps, one rollout after the other, ``(N_1 + N_2 + ...,)``: a tensor in torch's
        default dtype, or an array in the dtype of the rewards.

    Raises:
        ValueError: There is no rollout, or ``gamma`` is not a number.
    """
    rollouts = [rollouts] if isinstance(rollouts, StepSequence) else listed_rollouts(rollouts)
    if not rollouts:
        raise ValueError("rollouts must hold at least one StepSequence, got none")
    fmt = rollouts[0].data_format if data_format is None else check_data_format(data_format)
    values = cat_arrays([discounted_value(rollout, gamma) for rollout in rollouts], fmt)
    return cast_floats(values, torch.get_default_dtype()) if fmt == "torch" else values


def gae_returns(rollout: StepSequence, gamma: float = 0.99, lamb: float = 0.95) -> Array:
    """Generalized advantages of each step; despite the documented name no returns.

    The sum restarts in every rollout of a concatenation. Behind a terminated step the value is 0; a rollout that was
    cut off bootstraps with the final entry of ``values``.

    Args:
        rollout: Steps with a field ``values``: the state values, ``(N,)`` or ``(N, 1)``, with a final entry for every
            rollout that does not end with a terminated step.
        gamma: Discount factor in [0, 1].
        lamb: Trade-off between bias (0) and variance (1), in [0, 1].

    Returns:
        Advantages ``(N,)``, array or tensor as the rewards are.

    Raises:
        DataError: The field ``values`` is missing.
        ValueError: A final value is missing that is needed.
    """
    check_instance("rollout", rollout, StepSequence, "a StepSequence")
    if "values" not in rollout.data_names:
        raise DataError("gae_returns needs the values of the states: add them with rollout.add_data('values', ...)")
    bounds, data = rollout.rollout_bounds, rollout.values
    if isinstance(data, dict | tuple):
        raise ShapeError(f"values must be numbers, one per step, got a {type(data).__name__} of several arrays")
    values, present = final_rows(data, rollout._finals.get(("values",)), bounds)
    lacking = ~present & ~rollout.terminated[bounds[1:] - 1]
    if lacking.any():
        raise ValueError(
            f"rollout {int(np.argmax(lacking))} does not end with a terminated step, so the value of its last "
            "observation is needed: give `values` one entry more than steps"
        )
    return gae(
        _one_per_step(rollout.rewards),
        _one_per_step(data)[: len(rollout)],
        terminated=rollout.terminated,
        bounds=bounds,
        final_values=_one_per_step(values),
        discount=gamma,
        gae_lambda=lamb,
    )


def check_act_equal(
    rollout_1: StepSequence | Sequence[StepSequence],
    rollout_2: StepSequence | Sequence[StepSequence],
    check_applied: bool = False,
) -> bool:
    """Whether two rollouts (or two lists of them, pair by pair) took about the same actions.

    Rollouts of different lengths are compared as far as the shorter one goes; lists must be equally long.

    Args:
        rollout_1: A rollout, or a list.
        rollout_2: The same.
        check_applied: Compare ``actions_applied``, what the environment made of the actions.

    Returns:
        True if all actions agree (``numpy.allclose``).

    Raises:
        TypeError: A rollout is compared with a list.
        ShapeError: The lists are of different lengths.
    """
    if isinstance(rollout_1, StepSequence) != isinstance(rollout_2, StepSequence):
        raise TypeError("compare a rollout with a rollout, or a list of them with a list")
    first = [rollout_1] if isinstance(rollout_1, StepSequence) else listed_rollouts(rollout_1, "rollout_1")
    second = [rollout_2] if isinstance(rollout_2, StepSequence) else listed_rollouts(rollout_2, "rollout_2")
    if len(first) != len(second):
        raise ShapeError(f"both lists must hold the same number of rollouts, got {len(first)} and {len(second)}")
    name = "actions_applied" if check_applied else "actions"
    return all(_agree(_field(a, name), _field(b, name)) for a, b in zip(first, second, strict=True))


def _field(rollout: StepSequence, name: str) -> dict[tuple[Any, ...], np.ndarray]:
    return {path: np.asarray(to_format(leaf, "numpy")) for path, leaf in iterate_leaves(rollout.get_data_values(name))}


def _agree(a: dict[tuple[Any, ...], np.ndarray], b: dict[tuple[Any, ...], np.ndarray]) -> bool:
    if a.keys() != b.keys():
        return False
    for path, left in a.items():
        length = min(len(left), len(b[path]))
        left, right = left[:length], b[path][:length]
        if left.shape != right.shape:
            return False
        numeric = left.dtype.kind in "biufc" and right.dtype.kind in "biufc"
        if not (np.allclose(left, right) if numeric else trees_equal(left.tolist(), right.tolist())):
            return False
    return True


def _one_per_step(data: Any) -> Any:
    """Numbers ``(N,)`` from ``(N,)`` or ``(N, 1)``."""
    return data.reshape(len(data)) if tuple(data.shape) == (len(data), 1) else data
