"""What parameter exploration brings: rollouts, grouped by the policy parameters that acted in them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import NamedTuple, overload

import numpy as np
import torch

from metaroll.data.rollouts import Rollouts
from metaroll.data.step_sequence import StepSequence

__all__ = ["ParameterSample", "ParameterSamplingResult"]


class ParameterSample(NamedTuple):
    """One set of policy parameters and its rollouts.

    Attributes:
        params: Shape ``(P,)``.
        rollouts: Rollouts of the policy with these parameters.
    """

    params: torch.Tensor
    rollouts: list[StepSequence]

    @property
    def mean_undiscounted_return(self) -> float:
        """Mean of the rollouts' undiscounted returns."""
        if not self.rollouts:
            raise ValueError("rollouts must hold at least one rollout for a mean return, got none")
        return float(np.mean(Rollouts.of(self.rollouts).discounted_returns(1.0)))

    @property
    def num_rollouts(self) -> int:
        """Number of rollouts."""
        return len(self.rollouts)


class ParameterSamplingResult(Sequence[ParameterSample]):
    """Samples in the order of the parameter sets.

    An integer index gives a ``ParameterSample``, a slice another result. The properties are computed once; they do not
    follow later changes to rollouts.

    Args:
        samples: The samples.
    """

    def __init__(self, samples: Iterable[ParameterSample]) -> None:
        self._samples = list(samples)
        for position, sample in enumerate(self._samples):
            if not isinstance(sample, ParameterSample):
                raise TypeError(
                    f"samples must be ParameterSample(params, rollouts), got {type(sample).__name__} at position "
                    f"{position}"
                )

    @overload
    def __getitem__(self, index: int) -> ParameterSample: ...
    @overload
    def __getitem__(self, index: slice) -> ParameterSamplingResult: ...
    def __getitem__(self, index: int | slice) -> ParameterSample | ParameterSamplingResult:
        if isinstance(index, slice):
            return ParameterSamplingResult(self._samples[index])
        return self._samples[index]

    def __len__(self) -> int:
        return len(self._samples)

    @cached_property
    def parameters(self) -> torch.Tensor:
        """All parameter sets, shape ``(n, P)``."""
        if not self._samples:
            return torch.empty((0, 0))
        return torch.stack([sample.params for sample in self._samples])

    @cached_property
    def mean_returns(self) -> np.ndarray:
        """Mean undiscounted return of each set, float64 ``(n,)``."""
        return np.array([sample.mean_undiscounted_return for sample in self._samples], dtype=np.float64)

    @cached_property
    def rollouts(self) -> list[list[StepSequence]]:
        """Rollouts of each set."""
        return [sample.rollouts for sample in self._samples]

    @cached_property
    def num_rollouts(self) -> int:
        """Number of rollouts of all sets together."""
        return sum(sample.num_rollouts for sample in self._samples)
