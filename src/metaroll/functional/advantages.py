"""Generalized advantage estimation (GAE) for one rollout, ragged concatenations and dense batches."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from metaroll.checks import check_unit_interval, entry_text
from metaroll.errors import ShapeError
from metaroll.functional.arrays import Array, like, to_flags, to_numpy
from metaroll.functional.kernels import compiled
from metaroll.functional.returns import check_bounds, reverse_scan, scan_in_place, segment_bounds

__all__ = ["gae", "shaped_advantages"]


def gae(
    rewards: Any,
    values: Any,
    *,
    terminated: Any = None,
    bounds: Any = None,
    lengths: Any = None,
    final_values: Any = None,
    discount: float = 0.99,
    gae_lambda: float = 0.95,
) -> Array:
    """Advantages ``A_t = sum_l (discount * gae_lambda)^l delta_{t+l}`` within each rollout.

    ``delta_t = r_t + discount * V(s_{t+1}) * (1 - terminated_t) - V(s_t)`` (eq. 16 with eq. 10 of Schulman et al. 2016,
    "High-dimensional continuous control using generalized advantage estimation", arXiv:1506.02438). The sum restarts at
    every end of a rollout and after every terminated step. A rollout that was cut off (its last step is not terminated)
    bootstraps with the value of its true last observation.

    Args:
        rewards: ``(T,)`` for one rollout or a concatenation (with ``bounds``), or ``(N, T)`` for rollouts in rows.
        values: State values ``V(s_t)`` in the shape of ``rewards``, or with one more entry along the last axis: the
            value of the last observation (for rows with ``lengths``: at column ``lengths[n]``).
        terminated: Bool (or 0 and 1) in the shape of ``rewards``; ``None`` means that no step ended its rollout.
        bounds: First step of every rollout of a concatenation, then T, shape ``(N+1,)``.
        lengths: Steps of every row ``(N,)``, 1..T; the rest of the row is padding.
        final_values: Values of the last observation of each rollout ``(N,)``; not needed (and not read) where the last
            step is terminated.
        discount: Discount factor in [0, 1].
        gae_lambda: Trade-off between bias (0) and variance (1), in [0, 1].

    Returns:
        Advantages in the shape of ``rewards`` (0 on padding): a tensor on its device if ``rewards`` is one (no gradient
        flows through it), else an array.

    Raises:
        ShapeError: An argument does not have the shape above.
        TypeError: An argument holds no real numbers, or ``terminated`` neither booleans nor numbers.
        ValueError: ``discount`` or ``gae_lambda`` lies outside; ``bounds`` or ``lengths`` do not fit; ``terminated``
            holds numbers other than 0 and 1; or a rollout that was cut off has no value of its last observation.
    """
    discount, gae_lambda = check_unit_interval("discount", discount), check_unit_interval("gae_lambda", gae_lambda)
    r_t, v_t = _numbers("rewards", rewards), _numbers("values", values)
    if r_t.ndim not in (1, 2) or r_t.size == 0:
        raise ShapeError(f"rewards must have shape (T,) or (N, T), with at least one step, got {r_t.shape}")
    with_last = (*r_t.shape[:-1], r_t.shape[-1] + 1)
    if v_t.shape not in (r_t.shape, with_last):
        raise ShapeError(f"values must have shape {r_t.shape} or {with_last} (with the last one), got {v_t.shape}")
    flags = np.zeros(r_t.shape, dtype=bool) if terminated is None else to_flags("terminated", terminated)
    if flags.shape != r_t.shape:
        raise ShapeError(f"terminated must have the shape {r_t.shape} of rewards, got {flags.shape}")
    with np.errstate(over="ignore", invalid="ignore"):
        if r_t.ndim == 1:
            if lengths is not None:
                raise ValueError(
                    "lengths belongs to rewards of shape (N, T); give bounds for a concatenation of shape (T,)"
                )
            starts = check_bounds([0, len(r_t)] if bounds is None else bounds, len(r_t))
            advantages = _ragged(r_t, v_t, flags, starts, final_values, discount, gae_lambda)
        else:
            if bounds is not None:
                raise ValueError("bounds belongs to rewards of shape (T,); give lengths for rollouts in rows (N, T)")
            advantages = _dense(r_t, v_t, flags, _lengths(lengths, r_t.shape), final_values, discount, gae_lambda)
    return like(advantages, rewards, values)


def shaped_advantages(
    advantages: np.ndarray, *, normalize: bool, positive: bool, mask: np.ndarray | None = None
) -> np.ndarray:
    """Advantages with mean 0 and standard deviation 1, and then all positive, each if asked for, in this order.

    ``(a - mean) / (std + 1e-8)``, then ``a - min + 1e-8``, as ProMP's sample processors do (arXiv:1810.06784, code).

    Args:
        advantages: Any shape.
        normalize: Whether to normalize.
        positive: Whether to shift.
        mask: True for entries that count, in the shape of ``advantages``; others become 0. ``None``: all.

    Returns:
        float64 in the shape of ``advantages``, in its own memory.
    """
    valid = advantages.astype(np.float64) if mask is None else advantages[mask].astype(np.float64)
    if normalize:
        valid -= valid.sum() / valid.size
        valid /= np.sqrt(np.square(valid).sum() / valid.size) + 1e-8
    if positive:
        valid = (valid - valid.min()) + 1e-8
    if mask is None:
        return valid
    padded = np.zeros(advantages.shape)
    padded[mask] = valid
    return padded


def _ragged(
    r_t: np.ndarray,
    v_t: np.ndarray,
    terminated: np.ndarray,
    bounds: np.ndarray,
    final_values: Any,
    discount: float,
    gae_lambda: float,
) -> np.ndarray:
    last = bounds[1:] - 1
    final = _final_values(v_t, terminated, (last,), final_values)
    # One buffer for all: fresh memory costs as much as the arithmetic.
    buffer = np.empty(len(r_t) + 1)
    delta_t, v_t = buffer[:-1], v_t[: len(r_t)]
    loop = compiled("td_errors", len(r_t))
    if loop is not None and discount != 0.0:
        loop(
            *(np.require(x, requirements=["C", "W"]) for x in (r_t, v_t, terminated, final, bounds)), discount, delta_t
        )
    else:
        delta_t[:-1] = v_t[1:]
        delta_t[last] = final
        _to_td_errors(delta_t, r_t, v_t, terminated, discount)
    ends = bounds
    if np.count_nonzero(terminated) > np.count_nonzero(terminated[last]):  # some end inside their rollouts
        flags = terminated.copy()
        flags[last] = True
        ends = segment_bounds(flags)
    scan_in_place(buffer, discount * gae_lambda, ends)
    return delta_t


def _dense(
    r_t: np.ndarray,
    v_t: np.ndarray,
    terminated: np.ndarray,
    lengths: np.ndarray,
    final_values: Any,
    discount: float,
    gae_lambda: float,
) -> np.ndarray:
    index = (np.arange(len(r_t)), lengths - 1)
    v_tp1 = np.zeros(r_t.shape)
    v_tp1[:, :-1] = v_t[:, 1 : r_t.shape[1]]
    v_tp1[index] = _final_values(v_t, terminated, index, final_values)
    _to_td_errors(v_tp1, r_t, v_t[:, : r_t.shape[1]], terminated, discount)
    v_tp1[np.arange(r_t.shape[1]) >= lengths[:, None]] = 0.0
    ends = terminated.copy()
    ends[index] = True
    return reverse_scan(v_tp1.T, discount * gae_lambda, ends.T).T


def _to_td_errors(v_tp1: np.ndarray, r_t: np.ndarray, v_t: np.ndarray, terminated: np.ndarray, discount: float) -> None:
    """Values of successors become ``r_t + discount * V(s_{t+1}) - V(s_t)``, in place."""
    if discount == 0.0:
        v_tp1[...] = 0.0  # whatever it is, infinity included
    else:
        # An assignment, not a product: whatever stands behind a terminated step (NaN included) is worth 0.
        np.copyto(v_tp1, 0.0, where=terminated)
        v_tp1 *= discount
    v_tp1 += r_t
    v_tp1 -= v_t


def _final_values(
    v_t: np.ndarray, terminated: np.ndarray, index: tuple[np.ndarray, ...], final_values: Any
) -> np.ndarray:
    """Value of the last observation of each rollout ``(N,)``; 0 where it is neither given nor needed."""
    needed = ~terminated[index]
    num_rollouts = len(needed)
    if final_values is not None:
        final = _numbers("final_values", final_values)
        if final.shape != (num_rollouts,):
            raise ShapeError(f"final_values must have shape ({num_rollouts},), one per rollout, got {final.shape}")
        return final
    if v_t.shape == terminated.shape:
        _require_bootstrap(needed)
        return np.zeros(num_rollouts)
    if v_t.ndim == 2:
        return v_t[index[0], index[1] + 1]
    _require_bootstrap(needed[:-1])  # of a concatenation, only the last rollout has its value here
    final = np.zeros(num_rollouts)
    final[-1] = v_t[-1]
    return final


def _require_bootstrap(needed: np.ndarray) -> None:
    if needed.any():
        raise ValueError(
            f"rollout {int(np.argmax(needed))} does not end with a terminated step, so the value of its last "
            "observation is needed: pass final_values of shape (N,) (or values with one more entry), or mark that "
            "step in terminated"
        )


def _numbers(name: str, data: Any) -> np.ndarray:
    return to_numpy(name, data).astype(np.float64, copy=False)


def _lengths(lengths: Any, shape: tuple[int, ...]) -> np.ndarray:
    if lengths is None:
        return np.full(shape[0], shape[1])
    array = np.asarray(lengths.detach().cpu() if isinstance(lengths, torch.Tensor) else lengths)
    if array.shape != shape[:1] or array.dtype.kind not in "iu" or array.min() < 1 or array.max() > shape[1]:
        raise ValueError(f"lengths must be {shape[0]} integers from 1 to {shape[1]}, got {entry_text(array)}")
    return array.astype(np.int64, copy=False)
