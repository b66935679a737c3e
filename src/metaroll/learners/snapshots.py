"""Which snapshots fit a learner."""

from __future__ import annotations

import hashlib
from typing import Any

from torch import nn

__all__ = ["fingerprint_of", "shapes_of"]


def fingerprint_of(learner: Any, *parts: str) -> str:
    """Class and ``parts`` as a short text."""
    text = "\n".join(parts)
    return f"{type(learner).__name__}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def shapes_of(module: nn.Module) -> list[str]:
    """Names and shapes of all weights and buffers."""
    return [f"{name}{tuple(value.shape)}" for name, value in module.state_dict().items()]
