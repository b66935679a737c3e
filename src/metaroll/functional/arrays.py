"""Arrays as users give them: lists, arrays and tensors become NumPy arrays, and results go back."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

__all__ = ["Array", "like", "to_flags", "to_numpy"]

Array = np.ndarray | torch.Tensor


def to_numpy(name: str, data: Any) -> np.ndarray:
    """Real numbers as an array of the same shape ``(...)``; tensors from any device, without their gradient.

    bfloat16, which NumPy has not, becomes float32.

    Raises:
        TypeError: They are not real numbers.
    """
    if isinstance(data, torch.Tensor):
        data = data.detach().cpu()
        data = (data.float() if data.dtype == torch.bfloat16 else data).numpy()
    array = np.asarray(data)
    if array.dtype.kind not in "buif":
        raise TypeError(f"{name} must hold real numbers, got dtype {array.dtype}")
    return array


def to_flags(name: str, data: Any) -> np.ndarray:
    """Booleans of the same shape ``(...)``; numbers count where all are 0 or 1.

    Raises:
        TypeError: They are neither booleans nor numbers.
        ValueError: A number is neither 0 nor 1.
    """
    array = to_numpy(name, data)
    if array.dtype.kind == "b":
        return array
    flags = array == 1
    wrong = ~flags & (array != 0)
    if wrong.any():
        raise ValueError(f"{name} must be true or false (1 or 0), got {array[wrong][0]}")
    return flags


def like(result: np.ndarray, data: Any, *others: Any) -> Array:
    """``result`` in the floating dtype of ``data`` (for integers the default one), as a tensor if ``data`` is one.

    Args:
        result: Numbers of any shape ``(...)``.
        data: The argument that they were computed from: array, tensor, list or number.
        others: More of it; the dtype is then the one that holds all of them.
    """
    if isinstance(data, torch.Tensor):
        dtype = data.dtype
        for other in others:
            dtype = torch.promote_types(dtype, other.dtype) if isinstance(other, torch.Tensor) else dtype
        dtype = dtype if dtype.is_floating_point else torch.get_default_dtype()
        # copy=None and order="C", not ascontiguousarray: that would give a single number an axis.
        return torch.from_numpy(np.array(result, order="C", copy=None)).to(dtype=dtype, device=data.device)
    known = [np.float64 if isinstance(x, torch.Tensor) else np.asarray(x).dtype for x in (data, *others)]
    dtype = np.result_type(*known)
    return np.array(result, dtype=dtype if dtype.kind == "f" else np.float64, order="C", copy=None)
