"""The functions of an array namespace that simulators use, for plain Python numbers (baselines, interactive use)."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

__all__ = ["SCALARS"]


def _where(condition: bool, then: Any, otherwise: Any) -> Any:
    return then if condition else otherwise


def _clip(value: float, low: float | None = None, high: float | None = None) -> float:
    if low is not None and value < low:
        return low
    return high if high is not None and value > high else value


def _sign(value: float) -> float:
    return float((value > 0) - (value < 0))


SCALARS = SimpleNamespace(
    sin=math.sin,
    cos=math.cos,
    tan=math.tan,
    exp=math.exp,
    log=math.log,
    sqrt=math.sqrt,
    tanh=math.tanh,
    atan2=math.atan2,
    floor=math.floor,
    abs=abs,
    sign=_sign,
    where=_where,
    clip=_clip,
    minimum=min,
    maximum=max,
    logical_and=lambda left, right: left and right,
    logical_or=lambda left, right: left or right,
    pi=math.pi,
)
"""``xp`` for plain numbers."""
