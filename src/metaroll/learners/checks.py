"""Checks of numbers that learners are given."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

__all__ = ["check_number", "check_whole"]


def check_whole(name: str, value: Any, low: int) -> None:
    """Error unless ``value`` is an integer of at least ``low``."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name} must be an integer, got {value!r} of type {type(value).__name__}")
    if value < low:
        raise ValueError(f"{name} must be at least {low}, got {value}")


def check_number(name: str, value: Any, low: float, high: float = math.inf, *, above_low: bool = False) -> None:
    """Error unless ``value`` is a finite number in [low, high], or (low, high] with ``above_low``."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise TypeError(f"{name} must be a number, got {value!r} of type {type(value).__name__}")
    if not math.isfinite(value) or not low <= value <= high or (above_low and value == low):
        opening = "(" if above_low or low == -math.inf else "["
        closing = ")" if high == math.inf else "]"
        raise ValueError(f"{name} must lie in {opening}{low:g}, {high:g}{closing}, got {value}")
