"""The settings of distillation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from metaroll.config import Count, Was, Whole
from metaroll.learners.base import Evaluated, NewData, ScaledActions

__all__ = ["DistillationConfig"]


@dataclass(frozen=True, kw_only=True)
class DistillationConfig(NewData, ScaledActions, Evaluated):
    """Settings of ``Distillation``."""

    complete = True

    teacher_epochs: Annotated[Count, "Number of first epochs in which the teacher acts."] = 1
    replay_size: Annotated[
        Whole, Was("memory_steps"), "How many of the newest steps are learned from, in whole rollouts."
    ] = 40_000
    batch_size: Annotated[Whole, "Steps of a gradient step, in whole rollouts."] = 1000
    max_grad_norm = 1.0
