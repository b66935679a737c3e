"""Generalized advantage estimation (GAE) for one rollout, ragged concatenations and dense batches."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from metaroll.checks import check_unit_interval
from metaroll.errors import ShapeError
from metaroll.functional.returns import check_bounds, reverse_scan

__all__ = ["gae"]

Array = np.ndarray | torch.Tensor


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
        terminated: Bool in the shape of ``rewards``; ``None`` means that no step ended its rollout.
        bounds: First step of every rollout of a concatenation, then T, shape ``(N+1,)``.
        lengths: Steps of every row ``(N,)``, 1..T; the rest of the row is padding.
        final_values: Values of the last observation of each rollout ``(N,)``; not needed (and not read) where the last
            step is terminated.
        discount: Discount factor in [0, 1].
        gae_lambda: Trade-off between bias (0) and variance (1), in [0, 1].

    Returns:
        Advantages in the shape of ``rewards`` (0 on padding): a tensor on its device if ``rewards`` is one (no gradient
        flows through it), else an array.
    """
    discount, gae_lambda = check_unit_interval("discount", discount), check_unit_interval("gae_lambda", gae_lambda)
    r_t, v_t = _numbers("rewards", rewards), _numbers("values", values)
    if r_t.ndim not in (1, 2) or r_t.size == 0:
        raise ShapeError(f"rewards must have shape (T,) or (N, T), with at least one step, got {r_t.shape}")
    flags = np.zeros(r_t.shape, dtype=bool) if terminated is None else _flags("terminated", terminated, r_t.shape)
    if r_t.ndim == 1:
        if lengths is not None:
            raise ValueError(
                "lengths belongs to rewards of shape (N, T); give bounds for a concatenation of shape (T,)"
            )
        last = check_bounds([0, len(r_t)] if bounds is None else bounds, len(r_t))[1:] - 1
        valid = None
        index: tuple[np.ndarray, ...] = (last,)
    else:
        if bounds is not None:
            raise ValueError("bounds belongs to rewards of shape (T,); give lengths for rollouts in rows (N, T)")
        last = _lengths(lengths, r_t.shape) - 1
        valid = np.arange(r_t.shape[1]) <= last[:, None]
        index = (np.arange(len(r_t)), last)
    v_t, v_tp1 = _next_values(r_t, v_t, index, flags, final_values)
    ends = flags.copy()
    ends[index] = True
    # where, not a product: whatever stands behind a terminated step (NaN included) is worth 0.
    delta_t = r_t + discount * np.where(flags, 0.0, v_tp1) - v_t
    if valid is not None:
        delta_t = np.where(valid, delta_t, 0.0)
    advantages = reverse_scan(delta_t.T, discount * gae_lambda, ends.T).T
    return _as_input_kind(advantages, rewards, values)


def _next_values(
    r_t: np.ndarray, v_t: np.ndarray, index: tuple[np.ndarray, ...], terminated: np.ndarray, final_values: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Values of the states and of their successors, both in the shape of ``r_t``."""
    num_steps = r_t.shape[-1]
    with_last = (*r_t.shape[:-1], num_steps + 1)
    if v_t.shape not in (r_t.shape, with_last):
        raise ShapeError(f"values must have shape {r_t.shape} or {with_last} (with the last one), got {v_t.shape}")
    v_tp1 = np.zeros(r_t.shape)
    v_tp1[..., :-1] = v_t[..., 1:num_steps]
    needed = ~terminated[index]
    num_rollouts = len(needed)
    if final_values is not None:
        final = _numbers("final_values", final_values)
        if final.shape != (num_rollouts,):
            raise ShapeError(f"final_values must have shape ({num_rollouts},), one per rollout, got {final.shape}")
        v_tp1[index] = final
    elif v_t.shape == with_last:
        if r_t.ndim == 2:
            v_tp1[index] = v_t[index[0], index[1] + 1]
        else:
            v_tp1[-1] = v_t[-1]
            needed = needed[:-1]  # of a concatenation, only the last rollout has its value here
            _require_bootstrap(needed)
    else:
        _require_bootstrap(needed)
    return v_t[..., :num_steps], v_tp1


def _require_bootstrap(needed: np.ndarray) -> None:
    if needed.any():
        raise ValueError(
            f"rollout {int(np.argmax(needed))} does not end with a terminated step, so the value of its last "
            "observation is needed: pass final_values of shape (N,) (or values with one more entry), or mark that "
            "step in terminated"
        )


def _numbers(name: str, data: Any) -> np.ndarray:
    array = data.detach().cpu().numpy() if isinstance(data, torch.Tensor) else np.asarray(data)
    if array.dtype.kind not in "buif":
        raise TypeError(f"{name} must hold real numbers, got dtype {array.dtype}")
    return array.astype(np.float64, copy=False)


def _flags(name: str, data: Any, shape: tuple[int, ...]) -> np.ndarray:
    array = np.asarray(data.detach().cpu() if isinstance(data, torch.Tensor) else data)
    if array.shape != shape:
        raise ShapeError(f"{name} must have the shape {shape} of rewards, got {array.shape}")
    return array.astype(bool)


def _lengths(lengths: Any, shape: tuple[int, ...]) -> np.ndarray:
    if lengths is None:
        return np.full(shape[0], shape[1])
    array = np.asarray(lengths.detach().cpu() if isinstance(lengths, torch.Tensor) else lengths)
    if array.shape != shape[:1] or array.dtype.kind not in "iu" or array.min() < 1 or array.max() > shape[1]:
        raise ValueError(f"lengths must be {shape[0]} integers from 1 to {shape[1]}, got {lengths!r}")
    return array.astype(np.int64, copy=False)


def _as_input_kind(result: np.ndarray, rewards: Any, values: Any) -> Array:
    if isinstance(rewards, torch.Tensor):
        other = values.dtype if isinstance(values, torch.Tensor) else rewards.dtype
        dtype = torch.promote_types(rewards.dtype, other)
        dtype = dtype if dtype.is_floating_point else torch.get_default_dtype()
        return torch.from_numpy(np.ascontiguousarray(result)).to(dtype=dtype, device=rewards.device)
    value_type = np.float64 if isinstance(values, torch.Tensor) else np.asarray(values).dtype
    dtype = np.result_type(np.asarray(rewards).dtype, value_type)
    return np.ascontiguousarray(result).astype(dtype if dtype.kind == "f" else np.float64, copy=False)
