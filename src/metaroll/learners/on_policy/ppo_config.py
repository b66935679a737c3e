"""PPO's numbers, checked."""

from __future__ import annotations

from dataclasses import dataclass

from metaroll.checks import check_number, check_whole

__all__ = ["PPOConfig"]


_FLAGS = ("bootstrap_truncated", "normalize_advantages", "normalize_observations", "normalize_returns")


@dataclass(frozen=True)
class PPOConfig:
    """All numbers of a PPO; equal ones and equal networks make snapshots interchangeable."""

    steps_per_epoch: int
    num_passes: int
    batch_size: int
    learning_rate: float
    lr_decay_epochs: int | None
    clip_range: float
    value_clip_range: float | None
    value_coeff: float
    entropy_coeff: float
    max_grad_norm: float | None
    target_kl: float | None
    discount: float
    gae_lambda: float
    bootstrap_truncated: bool
    max_path_length: int
    tasks_per_epoch: int | None
    normalize_advantages: bool
    normalize_observations: bool
    normalize_returns: bool
    adam_eps: float

    def __post_init__(self) -> None:
        for name in ("steps_per_epoch", "num_passes", "batch_size", "max_path_length"):
            check_whole(name, getattr(self, name), 1)
        for name in ("lr_decay_epochs", "tasks_per_epoch"):
            if getattr(self, name) is not None:
                check_whole(name, getattr(self, name), 1)
        for name in ("learning_rate", "clip_range", "adam_eps"):
            check_number(name, getattr(self, name), 0.0, above_low=True)
        for name in ("value_clip_range", "max_grad_norm", "target_kl"):
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name), 0.0, above_low=True)
        for name in ("value_coeff", "entropy_coeff"):
            check_number(name, getattr(self, name), 0.0)
        for name in ("discount", "gae_lambda"):
            check_number(name, getattr(self, name), 0.0, 1.0)
        for name in _FLAGS:
            if not isinstance(getattr(self, name), bool):
                raise TypeError(f"{name} must be True or False, got {getattr(self, name)!r}")

    def learning_rate_at(self, epoch: int) -> float:
        """Learning rate of the epoch (from 0): falls linearly to 0 over ``lr_decay_epochs``, and stays there."""
        if self.lr_decay_epochs is None:
            return float(self.learning_rate)
        return float(self.learning_rate) * max(0.0, 1.0 - epoch / self.lr_decay_epochs)
