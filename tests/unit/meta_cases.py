"""A decision process small enough to enumerate: 2 states, 2 actions, 2 steps, and a policy of 2 parameters."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from metaroll.functional.distributions import Categorical
from metaroll.functional.gradients.meta_gradients import Samples

START = np.array([0.6, 0.4])
MOVES = np.array([[[0.7, 0.3], [0.2, 0.8]], [[0.5, 0.5], [0.9, 0.1]]])
"""Probability of the next state, by state and action."""
REWARDS = np.array([[1.0, -0.5], [0.3, 2.0]])
DISCOUNT = 0.9
THETA = torch.tensor([0.3, -0.7], dtype=torch.float64)
PATHS = list(itertools.product(range(2), repeat=4))
"""State, action, state, action."""


def distribution(parameters: Tensor, observations: Tensor) -> Categorical:
    """Action 1 has the logit ``parameters[state]``; observations are one-hot states."""
    logit = (observations * parameters).sum(-1) if parameters.ndim == 1 else None
    if logit is None:
        logit = torch.einsum("mbts,ms->mbt", observations, parameters)
    return Categorical(torch.log_softmax(torch.stack([torch.zeros_like(logit), logit], -1), -1), (2,))


def probabilities(theta: Tensor) -> Tensor:
    """Of the 16 paths; written out with sigmoids."""
    right = torch.sigmoid(theta)
    found = []
    for s, a, s2, a2 in PATHS:
        chosen = (right[s] if a else 1 - right[s]) * (right[s2] if a2 else 1 - right[s2])
        found.append(chosen * (START[s] * MOVES[s, a, s2]))
    return torch.stack(found)


def true_return(theta: Tensor, horizon: int = 2) -> Tensor:
    """The expected discounted return, exactly."""
    gains = [REWARDS[s, a] + (DISCOUNT * REWARDS[s2, a2] if horizon == 2 else 0.0) for s, a, s2, a2 in PATHS]
    return (probabilities(theta) * torch.tensor(gains, dtype=torch.float64)).sum()


def exact_samples(theta: Tensor, *, horizon: int = 2, padding: int = 0) -> Samples:
    """All paths, each weighted by its probability under ``theta``: means over them are expectations."""
    paths = torch.tensor(PATHS)
    states, actions = paths[:, [0, 2]][:, :horizon], paths[:, [1, 3]][:, :horizon]
    rewards = torch.tensor(REWARDS)[states, actions] * torch.tensor([1.0, DISCOUNT], dtype=torch.float64)[:horizon]
    advantages = rewards.flip(-1).cumsum(-1).flip(-1)
    observations = torch.eye(2, dtype=torch.float64)[states]
    weights = probabilities(theta.detach())[:, None].expand(-1, horizon)
    if padding:  # whatever stands there
        more = (len(paths), padding)
        actions = torch.cat([actions, torch.ones(more, dtype=torch.int64)], 1)
        observations = torch.cat([observations, torch.full((*more, 2), 7.0, dtype=torch.float64)], 1)
        rewards, advantages = (torch.cat([x, torch.full(more, 99.0, dtype=x.dtype)], 1) for x in (rewards, advantages))
        weights = torch.cat([weights, torch.zeros(more, dtype=torch.float64)], 1)
    old = distribution(theta.detach(), observations)
    old_log_prob = torch.where(weights != 0, old.log_prob(actions), 0.0)
    score = torch.tensor(0.7, dtype=torch.float64)
    return Samples(observations, actions, weights, advantages, rewards, old, old_log_prob, score)


def stacked(samples: list[Samples]) -> Samples:
    """Samples of several tasks with a leading axis."""
    names = [name for name in vars(samples[0]) if name != "old"]
    fields: dict[str, Any] = {name: torch.stack([getattr(each, name) for each in samples]) for name in names}
    old = replace(samples[0].old, log_probs=torch.stack([each.old.log_probs for each in samples]))
    return Samples(old=old, **fields)


def finite_difference(function: Any, at: Tensor, step: float = 1e-5) -> Tensor:
    """Central differences of a function of ``at (P,)``."""
    found = []
    for k in range(len(at)):
        shift = torch.zeros_like(at)
        shift[k] = step
        found.append((function(at + shift) - function(at - shift)) / (2 * step))
    return torch.stack(found)
