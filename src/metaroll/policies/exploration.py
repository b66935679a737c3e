"""Exploration: behavior policies with action noise or random actions, and their schedules in training."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, final

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from scipy import special
from torch import Tensor, nn

from metaroll.checks import check_instance, check_number, check_unit_interval
from metaroll.policies.acting import ActingPolicy
from metaroll.policies.heads import check_box, check_discrete
from metaroll.policies.parameters import as_one_vector
from metaroll.policies.scaling import ActionScaling
from metaroll.types import Context, PolicyState

__all__ = [
    "BoxExploration",
    "ChoiceExploration",
    "EpsilonGreedy",
    "EpsilonGreedyPolicy",
    "Exploration",
    "GaussianNoisePolicy",
    "OrnsteinUhlenbeckPolicy",
    "UniformFirst",
    "UniformFirstPolicy",
]

_STATE = "ornstein_uhlenbeck"


class OrnsteinUhlenbeckPolicy(ActingPolicy):
    """The mean action of ``policy`` plus an Ornstein-Uhlenbeck process, clipped to the bounds of the action space.

    As in DDPG (Lillicrap et al. 2016, arXiv:1509.02971, section 7), the process ``x`` of each entry starts at 0 and
    continues with every step of the rollout: ``x <- x + theta (mean - x) dt + sigma sqrt(dt) n``, with standard normal
    ``n``. Deterministic rollouts get no noise.

    Args:
        policy: Any policy of metaroll for a Box of actions; its parameters are those of this policy.
        sigma: Scale of the noise, in units of the action.
        theta: Rate of mean reversion, per unit of time.
        mean: Long-term mean.
        dt: Length of a step in units of time.
        relative: The noise is relative to half the range of each entry of an action.

    Raises:
        TypeError: ``policy`` is not a policy of metaroll, or its actions are not a Box.
    """

    acts_in_bounds = True
    own_parameters = ()

    def __init__(
        self,
        policy: ActingPolicy,
        sigma: float = 0.3,
        theta: float = 0.15,
        mean: float = 0.0,
        dt: float = 1e-2,
        *,
        relative: bool = False,
    ) -> None:
        _check_inner(policy, type(self).__name__)
        check_box(policy.env_spec, type(self).__name__)
        act_dim = policy.act_dim
        super().__init__(policy.env_spec, replace(policy.info, noise_dim=act_dim, noise_kind="normal"))
        self.policy = policy
        self.sigma, self.theta = check_number("sigma", sigma, 0.0), check_number("theta", theta, 0.0)
        self.mean, self.dt = check_number("mean", mean, -math.inf), check_number("dt", dt, 0.0, above_low=True)
        self._unit = _half_range(policy) if relative else None

    def initial_state(
        self,
        contexts: Sequence[Context | None],
        generators: Sequence[np.random.Generator],
        domain_params: Sequence[Mapping[str, Any] | None] | None = None,
    ) -> PolicyState:
        """State rows of ``policy``, and the processes at 0: ``{"ornstein_uhlenbeck": zeros (N, act_dim)}``."""
        zeros = np.zeros((len(contexts), self.act_dim), dtype=np.float32)
        return {**self.policy.initial_state(contexts, generators, domain_params), _STATE: zeros}

    def act(
        self,
        obs: np.ndarray,
        state: PolicyState,
        noise: np.ndarray,
        deterministic: bool | np.ndarray = False,
        parameters: np.ndarray | None = None,
    ) -> tuple[np.ndarray, PolicyState, Mapping[str, np.ndarray]]:
        """See ``types.Policy.act``; infos are those of ``policy``."""
        no_noise = np.zeros((len(obs), self.policy.noise_dim), dtype=np.float32)
        action, next_state, infos = self.policy.act(obs, state, no_noise, True, parameters)
        # x <- x + theta (mean - x) dt + sigma sqrt(dt) n, (N, act_dim)
        pull, kick = np.float32(self.theta * self.dt), np.float32(self.sigma * np.sqrt(self.dt))
        drawn = np.asarray(noise, dtype=np.float32)
        process = state[_STATE] + pull * (np.float32(self.mean) - state[_STATE]) + kick * drawn
        added = np.where(np.reshape(deterministic, (-1, 1)), np.float32(0.0), process)
        added = added if self._unit is None else added * self._unit
        space = self.env_spec.action_space
        if isinstance(space, Box):
            action = np.clip(action + added, space.low.reshape(-1), space.high.reshape(-1))
        next_state = self.policy.with_actions_taken(next_state, action)
        return action, {**next_state, _STATE: process}, infos


class GaussianNoisePolicy(ActingPolicy):
    """The mean action of ``policy`` plus normal noise, clipped to the bounds of the action space.

    Its standard deviation is an acting parameter without gradient: a learner with a schedule sets it (``set_sigma``),
    and workers receive it with the other parameters. Deterministic rollouts get no noise.

    Args:
        policy: Any policy of metaroll for a Box of actions.
        sigma: Standard deviation, relative to half the range of each entry of an action (1 for entries without bounds).

    Raises:
        TypeError: ``policy`` is not a policy of metaroll, or its actions are not a Box.
    """

    acts_in_bounds = True
    own_parameters = ("sigma",)

    def __init__(self, policy: ActingPolicy, sigma: float = 0.1) -> None:
        _check_inner(policy, type(self).__name__)
        check_box(policy.env_spec, type(self).__name__)
        act_dim = policy.act_dim
        super().__init__(policy.env_spec, replace(policy.info, noise_dim=act_dim, noise_kind="normal"))
        self.sigma = nn.Parameter(torch.tensor([check_number("sigma", sigma, 0.0)]), requires_grad=False)
        self.policy = policy
        self._half_range = _half_range(policy)

    def set_sigma(self, sigma: float) -> None:
        """Set the standard deviation."""
        with torch.no_grad():
            self.sigma.fill_(check_number("sigma", sigma, 0.0))

    def act(
        self,
        obs: np.ndarray,
        state: PolicyState,
        noise: np.ndarray,
        deterministic: bool | np.ndarray = False,
        parameters: np.ndarray | None = None,
    ) -> tuple[np.ndarray, PolicyState, Mapping[str, np.ndarray]]:
        """See ``types.Policy.act``; infos are those of ``policy``."""
        (sigma,), inner = self._split(parameters, len(obs))
        no_noise = np.zeros((len(obs), self.policy.noise_dim), dtype=np.float32)
        action, state, infos = self.policy.act(obs, state, no_noise, True, inner)
        if deterministic is True:
            return action, state, infos
        added = sigma * self._half_range * np.asarray(noise, dtype=np.float32)
        if not isinstance(deterministic, bool):
            added = np.where(np.reshape(deterministic, (-1, 1)), np.float32(0.0), added)
        action = _clipped(self.env_spec.action_space, action + added)
        return action, self.policy.with_actions_taken(state, action), infos


class UniformFirstPolicy(ActingPolicy):
    """Acts like ``policy``, or uniformly at random while its learner requests it (``set_uniform``).

    The switch is an acting parameter without gradient: 1 for actions that are uniform within the bounds of the space, 0
    for those of ``policy``. Both use the noise of ``policy``. An entry without bounds is uniform in [-1, 1].
    Deterministic rollouts are those of ``policy``.

    Args:
        policy: Any policy of metaroll for a Box of actions with normal noise for each of its entries, or for Discrete
            actions with a uniform number for its choice.

    Raises:
        TypeError: ``policy`` is not a policy of metaroll, its actions are neither, or its noise does not suffice.
    """

    acts_in_bounds = True
    own_parameters = ("uniform",)

    def __init__(self, policy: ActingPolicy) -> None:
        _check_inner(policy, type(self).__name__)
        space = policy.env_spec.action_space
        num_actions = int(space.n) if isinstance(space, Discrete) else None
        if num_actions is None:
            check_box(policy.env_spec, type(self).__name__)
            _check_normal_noise(policy)
        else:
            _check_uniform_noise(policy)
        super().__init__(policy.env_spec, replace(policy.info, runs_on_torch=False))
        self._num_actions = num_actions
        self.uniform = nn.Parameter(torch.zeros(1), requires_grad=False)
        self.policy = policy
        self._scaling = ActionScaling.of(policy.env_spec.action_space)

    def set_uniform(self, uniform: bool) -> None:
        """Switch to uniformly random actions, or back to ``policy``."""
        with torch.no_grad():
            self.uniform.fill_(float(uniform))

    def act(
        self,
        obs: np.ndarray,
        state: PolicyState,
        noise: np.ndarray,
        deterministic: bool | np.ndarray = False,
        parameters: np.ndarray | None = None,
    ) -> tuple[np.ndarray, PolicyState, Mapping[str, np.ndarray]]:
        """See ``types.Policy.act``; infos are those of ``policy``."""
        (uniform,), inner = self._split(parameters, len(obs))
        action, state, infos = self.policy.act(obs, state, noise, deterministic, inner)
        if deterministic is True or not uniform.any():
            return action, state, infos
        random = (uniform > 0.5) & ~np.reshape(deterministic, (-1, 1))
        if self._num_actions is not None:
            action = np.where(random[:, 0], _random_choice(noise[:, 0], self._num_actions), action)
            return action, self.policy.with_actions_taken(state, action), infos
        # Uniform in [-1, 1] from normal noise by its distribution function: 2 Phi(n) - 1, (N, act_dim)
        drawn = 2.0 * special.ndtr(np.asarray(noise[:, : self.act_dim], dtype=np.float64)) - 1.0
        uniform_action = drawn.astype(np.float32)
        uniform_action = uniform_action if self._scaling is None else self._scaling.scaled(uniform_action)
        action = np.where(random, uniform_action, action)
        return action, self.policy.with_actions_taken(state, action), infos


class EpsilonGreedyPolicy(ActingPolicy):
    """Acts like ``policy``, or (with probability epsilon at each step) uniformly at random.

    Epsilon is an acting parameter without gradient: a learner with a schedule sets it (``set_epsilon``), and workers
    receive it with the other parameters. Deterministic rollouts are those of ``policy``.

    Args:
        policy: Any policy of metaroll for Discrete actions that uses no noise itself.
        epsilon: The probability.

    Raises:
        TypeError: ``policy`` is not a policy of metaroll, its actions are not Discrete, or it uses noise.
    """

    own_parameters = ("epsilon",)

    def __init__(self, policy: ActingPolicy, epsilon: float = 0.1) -> None:
        _check_inner(policy, type(self).__name__)
        self._num_actions = check_discrete(policy.env_spec, type(self).__name__)
        if policy.noise_dim:
            raise TypeError(f"policy must act without noise, which {type(policy).__name__} does not")
        super().__init__(policy.env_spec, replace(policy.info, noise_dim=2, noise_kind="uniform"))
        self.epsilon = nn.Parameter(torch.tensor([check_unit_interval("epsilon", epsilon)]), requires_grad=False)
        self.policy = policy

    def set_epsilon(self, epsilon: float) -> None:
        """Set the probability of a random action."""
        with torch.no_grad():
            self.epsilon.fill_(check_unit_interval("epsilon", epsilon))

    def act(
        self,
        obs: np.ndarray,
        state: PolicyState,
        noise: np.ndarray,
        deterministic: bool | np.ndarray = False,
        parameters: np.ndarray | None = None,
    ) -> tuple[np.ndarray, PolicyState, Mapping[str, np.ndarray]]:
        """See ``types.Policy.act``; infos are those of ``policy``."""
        (epsilon,), inner = self._split(parameters, len(obs))
        no_noise = np.zeros((len(obs), 0), dtype=np.float32)
        action, state, infos = self.policy.act(obs, state, no_noise, True, inner)
        if deterministic is True:
            return action, state, infos
        drawn = np.asarray(noise, dtype=np.float64)
        random = (drawn[:, 0] < np.reshape(epsilon, -1)) & ~np.asarray(deterministic)
        action = np.where(random, _random_choice(drawn[:, 1], self._num_actions), action)
        return action, self.policy.with_actions_taken(state, action), infos


def _check_inner(policy: Any, outer: str) -> None:
    check_instance("policy", policy, ActingPolicy, f"an ActingPolicy such as GaussianMLPPolicy, which {outer} wraps")


def _check_uniform_noise(policy: ActingPolicy) -> None:
    if policy.noise_kind != "uniform" or not policy.noise_dim:
        raise TypeError(
            f"policy must draw a uniform number for its choice, which {type(policy).__name__} does not: see "
            "EpsilonGreedyPolicy"
        )


def _check_normal_noise(policy: ActingPolicy) -> None:
    if policy.noise_kind != "normal" or policy.noise_dim < policy.act_dim:
        raise TypeError(
            f"policy must draw normal noise for each of the {policy.act_dim} entries of an action, which "
            f"{type(policy).__name__} does not: put it in a GaussianNoisePolicy first"
        )


def _random_choice(drawn: np.ndarray, num_actions: int) -> np.ndarray:
    """Choices ``(N,)`` from uniform numbers ``(N,)``."""
    return np.minimum((np.asarray(drawn, dtype=np.float64) * num_actions).astype(np.int64), num_actions - 1)


def _half_range(policy: ActingPolicy) -> np.ndarray:
    """Half the range of each entry of an action, ``(act_dim,)``; 1 for those without bounds."""
    scaling = ActionScaling.of(policy.env_spec.action_space)
    return np.ones(policy.act_dim, np.float32) if scaling is None else scaling.half_range


def _clipped(space: Any, actions: np.ndarray) -> np.ndarray:
    return np.clip(actions, space.low.reshape(-1), space.high.reshape(-1))


# -- behavior policies of training, and the units of stored actions ----------------------------------------------------


class Exploration(ABC):
    """Behavior policy of training, with its schedule.

    Attributes:
        policy: The behavior policy.
    """

    policy: ActingPolicy
    _vector: Tensor | None = None

    @abstractmethod
    def prepare(self, num_env_steps: int) -> None:
        """Set the values of a schedule after ``num_env_steps``; they are part of the acting parameters."""

    def vector(self) -> np.ndarray:
        """Current flat acting parameters; on the CPU not a copy, unless there are buffers."""
        if any(True for _ in self.policy.buffers()):  # a module may replace its buffers by other tensors
            return self.policy.acting_parameters()
        if self._vector is None:
            self._vector = as_one_vector(self.policy, self.policy.acting_parameter_names())
        return self._vector.cpu().numpy()

    @abstractmethod
    def stored(self, actions: Any) -> Any:
        """Environment actions in the units of the policy."""


class EpsilonGreedy(Exploration):
    """Epsilon-greedy exploration with linear decay.

    Args:
        policy: An ``EpsilonGreedyPolicy``, whose epsilon is set; policies of other classes are not changed.
        first, last: Initial and final epsilon.
        num_steps: Environment steps of the decay.
    """

    def __init__(self, policy: ActingPolicy, first: float, last: float, num_steps: int) -> None:
        self.policy = policy
        self._first, self._last, self._num_steps = first, last, num_steps

    def prepare(self, num_env_steps: int) -> None:
        """See ``Exploration``."""
        if isinstance(self.policy, EpsilonGreedyPolicy):
            share = min(1.0, num_env_steps / self._num_steps) if self._num_steps else 1.0
            self.policy.set_epsilon(self._first + share * (self._last - self._first))

    def stored(self, actions: Any) -> Any:
        """See ``Exploration``: indices from 0."""
        return actions


class UniformFirst(Exploration, ABC):
    """Initial uniformly random actions, then those of a policy.

    Args:
        policy: The trained policy, or a wrapper of it.
        random_steps: Environment steps with random actions.
    """

    def __init__(self, policy: ActingPolicy, random_steps: int) -> None:
        _check_inner(policy, type(self).__name__)
        self._random_steps = random_steps
        self.policy = UniformFirstPolicy(policy) if self._random_steps else policy

    def prepare(self, num_env_steps: int) -> None:
        """See ``Exploration``."""
        if isinstance(self.policy, UniformFirstPolicy):
            self.policy.set_uniform(num_env_steps < self._random_steps)


@final
class BoxExploration(UniformFirst):
    """``UniformFirst`` for Box actions."""

    def __init__(self, policy: ActingPolicy, random_steps: int) -> None:
        super().__init__(policy, random_steps)
        self._scaling = ActionScaling.of_squashed(policy.env_spec.action_space)

    def stored(self, actions: Any) -> Any:
        """See ``Exploration``: in [-1, 1]."""
        rows = np.asarray(actions, dtype=np.float32)
        rows = rows.reshape(len(rows), -1)
        return rows if self._scaling is None else self._scaling.unscaled(rows)


@final
class ChoiceExploration(UniformFirst):
    """``UniformFirst`` for Discrete actions."""

    def stored(self, actions: Any) -> Any:
        """See ``Exploration``: indices from 0."""
        return actions
