"""The settings of distillation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from metaroll.config import Config, Count, Positive, Was, Whole

__all__ = ["DistillationConfig"]


@dataclass(frozen=True, kw_only=True)
class DistillationConfig(Config):
    """Settings of ``Distillation``."""

    steps_per_epoch: Annotated[
        Whole, "Minimum number of environment steps per epoch; rollouts are never cut, so there may be more."
    ] = 4000
    teacher_epochs: Annotated[Count, "Number of first epochs in which the teacher acts."] = 1
    replay_size: Annotated[
        Whole, Was("memory_steps"), "How many of the newest steps are learned from, in whole rollouts."
    ] = 40_000
    num_passes: Annotated[Whole, "Passes over the data of an epoch."] = 4
    batch_size: Annotated[Whole, "Steps of a gradient step, in whole rollouts."] = 1000
    learning_rate: Annotated[Positive, "Learning rate (Adam)."] = 1e-3
    max_grad_norm: Annotated[Positive | None, "Maximum norm of the gradient; null does not limit it."] = 1.0
    max_steps: Annotated[
        Whole | None,
        Was("max_path_length"),
        "Maximum number of steps of a rollout; null means the environment's time limit.",
    ] = None
    tasks_per_epoch: Annotated[
        Whole | None, "Variations drawn per epoch; null means as many as full-length rollouts are needed."
    ] = None
    scale_actions: Annotated[
        bool, "Bring actions from [-1, 1] to the bounds of the action space, and clip them there."
    ] = True
    evaluate_every: Annotated[Count, "Evaluate the student after every so many epochs; 0 means never."] = 10
