"""Single numbers as users and randomizers give them: plain, or as arrays and tensors of one entry."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

__all__ = ["number_of"]


def number_of(what: str, value: Any, *, finite: bool = True) -> float:
    """``value`` as a plain number.

    Args:
        what: How messages call it.
        value: Number, or array or tensor of one entry (on any device, with or without gradient).
        finite: Refuse infinity.

    Raises:
        TypeError: Not a number.
        ValueError: NaN, or infinite.
    """
    try:
        array = np.asarray(value.detach().cpu() if isinstance(value, torch.Tensor) else value, dtype=np.float64)
    except (TypeError, ValueError):
        array = np.zeros(0)
    if array.size != 1 or isinstance(value, str):
        raise TypeError(f"{what} must be a number, got {value!r}")
    number = float(array.reshape(()))
    if math.isnan(number) or (finite and not math.isfinite(number)):
        raise ValueError(f"{what} must be {'finite' if finite else 'a number'}, got {number}")
    return number
