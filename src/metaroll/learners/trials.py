"""How candidates of a search are tried as parameters of a policy, which of these they are, and what acts."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from metaroll.checks import check_whole
from metaroll.functional.cvar import check_epsilon
from metaroll.policies.acting import ActingPolicy
from metaroll.policies.normalized import NormalizedPolicy

__all__ = ["Trials", "normalized_for", "searched_places"]


@dataclass(frozen=True, kw_only=True)
class Trials:
    """How the candidates of a search are tried, and what of it acts.

    Args:
        rollouts_per_candidate: Number of rollouts of each candidate (in each task); null means the batch_size of
            LocalRunner.train, in steps of whole rollouts.
        common_random_numbers: Try all candidates in the same initial states, so that their returns differ by less
            chance. It needs rollouts_per_candidate, and is not for tasks.
        deterministic: Act without noise.
        tasks_per_epoch: How many tasks each candidate is tried in, of training tasks or random domains; the same ones
            for all candidates of an epoch.
        epsilon: Share of the worst returns of a candidate whose mean is its fitness (CVaR), in (0, 1]; 1 means all.
        normalize_observations: Normalize observations by the mean and deviation of all before this epoch.
        scale_actions: Bring actions from [-1, 1] to the bounds of the action space, and clip them there.
        mean_epochs: Epochs over which the mean of the search is averaged; what acts is the average, and the search goes
            on as without. It helps where returns differ by chance; 1 means the last mean.
        evaluate_every: Evaluate after every so many epochs; 0 means never.
    """

    rollouts_per_candidate: int | None = None
    common_random_numbers: bool = True
    deterministic: bool = True
    tasks_per_epoch: int = 1
    epsilon: float = 1.0
    normalize_observations: bool = False
    scale_actions: bool = True
    mean_epochs: int = 1
    evaluate_every: int = 0

    def __post_init__(self) -> None:
        if self.rollouts_per_candidate is not None:
            check_whole("rollouts_per_candidate", self.rollouts_per_candidate)
        check_whole("tasks_per_epoch", self.tasks_per_epoch)
        check_whole("mean_epochs", self.mean_epochs)
        check_whole("evaluate_every", self.evaluate_every, 0)
        check_epsilon(self.epsilon)


def searched_places(policy: ActingPolicy) -> np.ndarray:
    """Places in the flat vector ``(P,)`` of the parameters that require a gradient: the others are no weights.

    Raises:
        ValueError: There is none.
    """
    layout, parameters = policy.parameter_layout(), dict(policy.named_parameters())
    wanted = [
        np.full(math.prod(shape), parameters[name].requires_grad)
        for name, shape in zip(layout.names, layout.shapes, strict=True)
    ]
    places = np.flatnonzero(np.concatenate(wanted)) if wanted else np.zeros(0, dtype=int)
    if not len(places):
        inner = policy.policy if isinstance(policy, NormalizedPolicy) else policy
        raise ValueError(f"policy must have parameters that require a gradient, {type(inner).__name__} has none")
    return places


def normalized_for(policy: ActingPolicy, trials: Trials) -> NormalizedPolicy:
    """``policy`` as candidates act: itself, if it is a ``NormalizedPolicy`` already."""
    if isinstance(policy, NormalizedPolicy):
        return policy
    if not isinstance(policy, ActingPolicy):
        raise TypeError(
            f"policy must be one with parameters that are searched, GaussianMLPPolicy say, got {type(policy).__name__}"
        )
    return NormalizedPolicy(policy, trials.normalize_observations, trials.scale_actions)
