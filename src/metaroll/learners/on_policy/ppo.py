"""PPO: the library's standard policy-gradient learner."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import nn

from metaroll.checks import check_instance, check_seed
from metaroll.config import ConfigField, config_of, described
from metaroll.data.rollouts import Rollouts
from metaroll.data.step_sequence import StepSequence
from metaroll.functional.running_moments import add_rows, no_moments
from metaroll.learners.base import (
    KNOWN_EPOCHS,
    EpochLearner,
    Progress,
    TrainingTasks,
    episode_metrics,
    horizon_of,
    refuse_non_finite,
)
from metaroll.learners.on_policy.configs import PPOConfig, PPOUpdate
from metaroll.learners.on_policy.ppo_nets import AutogradNets, KernelNets, can_train
from metaroll.learners.on_policy.ppo_trainer import PPOData, PPONets, Trainer, run_passes
from metaroll.policies.acting import ActingPolicy, check_policy
from metaroll.policies.gaussian import CategoricalMLPPolicy, GaussianMLPPolicy
from metaroll.policies.gru import RecurrentCritic
from metaroll.policies.networks import MLP
from metaroll.policies.normalized import NormalizedPolicy, widened_spec
from metaroll.processing.on_policy import OnPolicyData, collect_on_policy, domain_rows, running_returns, with_domains
from metaroll.seeding import derive_seed, fresh_seed, torch_generator
from metaroll.state import Stateful, fingerprint_of, parts, shapes_of
from metaroll.types import EnvSpec, Runner

__all__ = ["PPO", "PPONormalizer"]

_MOST_REWARD = 10.0
_TINY = 1e-8


class PPONormalizer(Stateful):
    """Running moments of observations, returns and domain parameters; updates the policy's observation normalizer.

    Args:
        policy: Receives new moments by ``set_observation_moments``, if it normalizes observations.
        domain_params: Names of domain parameters that the critic observes.
        known_rows: Weight, in rows, of the moments that the policy already has, if any.
    """

    state_parts = parts(observations="_observations", returns="_returns", domain="_domain")

    def __init__(self, policy: NormalizedPolicy, domain_params: Sequence[str], known_rows: int) -> None:
        self._policy = policy
        self._domain_params = tuple(domain_params)
        self._observations = policy.observation_moments(known_rows)
        self._returns = no_moments(1)
        self._domain = no_moments(len(self._domain_params))

    def learn_observations(self, data: OnPolicyData) -> None:
        """Add the observations of ``data``; from now on the policy normalizes with them."""
        if self._policy.normalize_observations:
            self._observations = add_rows(self._observations, data.observations)
            self._policy.set_observation_moments(self._observations.mean, self._observations.std)

    def scaled_rewards(self, data: OnPolicyData, discount: float) -> np.ndarray:
        """Rewards ``(T,)`` divided by the standard deviation of discounted returns (updated first), clipped to +-10."""
        # Running discounted sums of rewards, (T,), and their variance over all data so far
        sums = running_returns(data.rewards, data.bounds, discount)
        self._returns = add_rows(self._returns, sums[:, None])
        scale = math.sqrt(float(self._returns.variance[0]) + _TINY)
        return np.clip(data.rewards / scale, -_MOST_REWARD, _MOST_REWARD)

    def domains(self, rollouts: Sequence[StepSequence], *, learn: bool) -> np.ndarray | None:
        """Normalized domain parameters of each rollout ``(R, D)``; ``None`` if the critic observes none."""
        if not self._domain_params:
            return None
        rows = domain_rows(rollouts, self._domain_params)
        if learn:
            self._domain = add_rows(self._domain, rows)
        std = self._domain.std
        return ((rows - self._domain.mean) / np.where(std > _TINY, std, 1.0)).astype(np.float32)


class PPO(Stateful, EpochLearner):
    """Proximal policy optimization with a clipped objective (Schulman et al. 2017, arXiv:1707.06347).

    Every epoch collects complete rollouts, estimates advantages (GAE; bootstrapped with the value of the last
    observation at a time limit, with 0 at a termination), and makes several passes over the data in minibatches. Small
    feed-forward networks are trained with gradients by hand in NumPy, all others by autograd; recurrent policies by
    backpropagation through complete rollouts.

    Observations are normalized with the moments of all earlier epochs (in the first epoch not at all), so that the
    policy that collected the data is the policy that the update starts from. Rewards are divided by the standard
    deviation of their discounted sums. Both sets of moments are part of the snapshot; evaluations do not update them.

    Args:
        env_spec: Environment or spec.
        config: Settings; ``None`` means the defaults.
        policy: The policy to train: ``GaussianMLPPolicy``, ``CategoricalMLPPolicy``, ``GRUGaussianPolicy``,
            ``CategoricalGRUPolicy``, or any policy of metaroll with ``evaluate_actions(obs, actions) -> (log_prob,
            entropy)``. If it is a ``NormalizedPolicy`` with observation moments, training continues from these, with
            the weight of ten epochs. ``None`` means an MLP with two hidden layers of 64, for a Box or for choices.
        critic: Value function, called as ``critic(inputs (..., D)) -> (..., 1)`` with the concatenation of normalized
            observations and ``domain_params``; ``None`` means an MLP with two hidden layers of 64. A recurrent one
            (``GRUCritic``, or another ``RecurrentCritic``) gets complete rollouts ``(N, T, D) -> (N, T, 1)``.
        task_sampler: Variations of the environment to train in, drawn in every epoch: a list of ``EnvUpdate``, or a
            sampler of them; ``None`` means the nominal environment.
        test_env_sampler: Task sampler of the evaluations; ``None`` means the nominal environment.
        seed: Source of all randomness of training; ``None`` means fresh entropy. Recorded in ``seed``.
        device: Device of the networks; ``None`` means the CPU.
        options: Settings by name; they override those of ``config``.
    """

    state_parts = parts(
        policy="_policy",
        critic="_critic",
        optimizer="_trainer.nets",
        moments="_normalizer",
        variations="_tasks",
        batches="_batch_generator",
        counters=parts("seed", epochs="_num_epochs"),
    )

    def __init__(
        self,
        env_spec: Any,
        config: PPOConfig | None = None,
        *,
        policy: ActingPolicy | None = None,
        critic: nn.Module | None = None,
        task_sampler: Any = None,
        test_env_sampler: Any = None,
        seed: int | None = None,
        device: str | torch.device | None = None,
        **options: Any,
    ) -> None:
        self.env_spec = EnvSpec.from_env(env_spec)
        given = config_of(PPOConfig, config, options, type(self))
        self.config = replace(given, max_steps=horizon_of(given.max_steps, self.env_spec))
        self.evaluate_every, self.bootstrap_truncated = given.evaluate_every, given.bootstrap_truncated
        self.seed = fresh_seed() if seed is None else check_seed("seed", seed)
        self._tasks = TrainingTasks(task_sampler, derive_seed("ppo tasks", self.seed))
        self.task_sampler, self.test_env_sampler = self._tasks.source, test_env_sampler
        self.domain_params = given.domain_params
        if self.domain_params and task_sampler is None:
            raise ValueError("domain_params need a task_sampler: otherwise every rollout has the same ones")

        self._policy_params = self.domain_params if given.privileged else ()
        if policy is None:
            params = self._policy_params
            policy_spec = widened_spec(self.env_spec, len(params)) if params else self.env_spec
            policy = _default_policy(policy_spec, torch_generator(derive_seed("ppo policy", self.seed)))
        self._policy = _wrapped(
            policy, given.normalize_observations, given.scale_actions, self._policy_params, self.env_spec
        )
        inputs = self.env_spec.obs_dim + len(self.domain_params)
        generator = torch_generator(derive_seed("ppo critic", self.seed))
        default_critic = MLP(inputs, 1, (64, 64), "tanh", init="orthogonal", generator=generator)
        self._critic = default_critic if critic is None else check_instance("critic", critic, nn.Module, "a module")
        self._device = torch.device("cpu" if device is None else device)
        self._policy.to(self._device)
        self._critic.to(self._device)
        _check_densities(self._policy)
        check_policy(self._policy, NormalizedPolicy, self.env_spec)
        _check_critic(self._critic, inputs, self._device)
        self._gradients = _kind_of_gradients(given.gradients, self._policy.policy, self._critic)
        self._trainer = self._make_trainer()

        critic_params = () if self._policy_params else self.domain_params
        self._normalizer = PPONormalizer(self._policy, critic_params, KNOWN_EPOCHS * self.config.steps_per_epoch)
        self._batch_generator = np.random.default_rng(derive_seed("ppo batches", self.seed))
        self._num_epochs = 0

    @property
    def policy(self) -> NormalizedPolicy:
        """The behavior policy, with observation normalization and action scaling around the trained policy."""
        return self._policy

    @property
    def critic(self) -> nn.Module:
        """The value function."""
        return self._critic

    discount = ConfigField[float]()
    max_path_length = ConfigField[int]("max_steps")

    @property
    def gradients(self) -> str:
        """How gradients are computed: ``"numpy"`` or ``"autograd"``."""
        return self._gradients

    def collect(self, runner: Runner, num_rollouts: int | None = None) -> Rollouts:
        """The rollouts of one epoch: ``steps_per_epoch``, or ``num_rollouts`` with one variation each."""
        min_steps = self.config.steps_per_epoch
        num_tasks = num_rollouts or self.config.tasks_per_epoch or -(-min_steps // self.max_path_length)
        return self._tasks.collect(runner, num_tasks, min_steps if num_rollouts is None else None, num_rollouts)

    def update(
        self,
        rollouts: Sequence[StepSequence],
        progress: Progress | None = None,
        *,
        returns_end: np.ndarray | None = None,
    ) -> dict[str, float]:
        """Improve policy and critic with ``rollouts`` of the current policy; returns metrics.

        Args:
            rollouts, progress: See ``EpochLearner.update``.
            returns_end: Bool ``(T,)``: steps at which the return ends, though their rollout continues.

        Raises:
            DivergedError: Weights are no longer finite.
        """
        rollouts = Rollouts.of(rollouts)
        data = self._data_of(rollouts)
        batch, explained = self._prepare(data, rollouts, returns_end)
        learning_rate = self.config.learning_rate_at(self._num_epochs)
        metrics = run_passes(self._trainer, batch, learning_rate, self._batch_generator, progress)
        self._normalizer.learn_observations(data)
        self._num_epochs += 1
        weights = itertools.chain(self._policy.parameters(), self._critic.parameters())
        refuse_non_finite(metrics, weights, self._num_epochs, learning_rate)
        return {
            **episode_metrics(data),
            "explained_variance": explained,
            "learning_rate": learning_rate,
            **metrics,
        }

    def values_of(self, rollouts: Sequence[StepSequence]) -> np.ndarray:
        """Values of the first observation of each rollout, ``(R,)``, in the units of the (normalized) returns."""
        data = self._data_of(rollouts)
        firsts = self._policy.normalized(data.observations[data.bounds[:-1]])
        inputs = _critic_inputs(firsts, self._normalizer.domains(rollouts, learn=False))
        return self._trainer.nets.values(inputs, inputs, np.arange(len(inputs) + 1))[0]  # rollouts of one step

    def to(self, device: str | torch.device | None = None) -> None:
        """Move the networks and the state of the optimizer to ``device`` (``None``: the CPU)."""
        target = torch.device("cpu" if device is None else device)
        if self._gradients == "numpy" and target.type != "cpu":
            raise ValueError(f"gradients='numpy' needs the CPU, got device {device!r}: use 'autograd'")
        state = self._trainer.nets.state_dict()
        self._device = target
        self._policy.to(target)
        self._critic.to(target)
        self._trainer = self._make_trainer()
        self._trainer.nets.load_state_dict(state)

    @property
    def arithmetic(self) -> int:
        """2 where losses give gradients at the networks' outputs (since version 0.2), else 1."""
        return 2 if self._gradients == "autograd" else 1

    def fingerprint(self) -> str:
        """Class, networks and hyperparameters as a short text, which a snapshot must match."""
        kinds = [type(self._policy.policy).__name__, type(self._critic).__name__, self._gradients, *self.domain_params]
        shapes = [*shapes_of(self._policy), *shapes_of(self._critic)]
        config = replace(self.config, lr_decay_epochs=None)  # a run that is extended may stretch its schedule
        return fingerprint_of(self, *kinds, *shapes, described(config, PPOUpdate))

    # -- helpers -------------------------------------------------------------------------------------------------------

    def _make_trainer(self) -> Trainer:
        policy: Any = self._policy.policy
        if self._gradients == "numpy":
            nets: PPONets = KernelNets(policy, self._critic, self.config)  # pyright: ignore[reportArgumentType] - can_train
        else:
            nets = AutogradNets(policy, self._critic, self.config, self._device)
        return Trainer(nets, self.config)

    def _data_of(self, rollouts: Sequence[StepSequence]) -> OnPolicyData:
        """Arrays of ``rollouts``; observations include the domain parameters that the policy observes."""
        data = collect_on_policy(rollouts, self.env_spec)
        return with_domains(data, domain_rows(rollouts, self._policy_params)) if self._policy_params else data

    def _prepare(
        self, data: OnPolicyData, rollouts: Sequence[StepSequence], returns_end: np.ndarray | None
    ) -> tuple[PPOData, float]:
        """Normalized inputs, log-probabilities, advantages and targets; explained variance of the old values."""
        # Normalized observations, (T, obs_dim); with domain parameters the input of the critic, (T, obs_dim + D)
        observations = self._policy.normalized(data.observations)
        domain = self._normalizer.domains(rollouts, learn=True)
        inputs = _critic_inputs(observations, None if domain is None else np.repeat(domain, data.lengths, axis=0))
        last = _critic_inputs(self._policy.normalized(data.last_observations), domain)
        # V(s_t), (T,), and V of the observation after the last step of each rollout, (R,)
        values, last_values = self._trainer.nets.values(inputs, last, data.bounds)
        last_values = last_values if self.config.bootstrap_truncated else np.zeros_like(last_values)
        scaled = self.config.normalize_returns
        rewards = self._normalizer.scaled_rewards(data, self.discount) if scaled else data.rewards
        # GAE (Schulman et al. 2016, arXiv:1506.02438): A_t = sum_l (gamma lambda)^l delta_{t+l}, (T,), with
        # delta_t = r_t + gamma V(s_{t+1}) - V(s_t)
        weights = (self.config.discount, self.config.gae_lambda)
        advantages = data.advantages(values, last_values, rewards, *weights, returns_end).astype(np.float32)
        # Targets of the values (TD(lambda) returns): R_t = A_t + V(s_t), (T,)
        targets = advantages + values
        spread = float(targets.var())
        batch = PPOData(
            observations=observations,
            critic_inputs=inputs,
            actions=data.actions,
            log_probs=self._trainer.nets.log_probs(observations, data.actions, data.bounds),
            advantages=advantages,
            targets=targets,
            values=values,
            bounds=data.bounds,
        )
        return batch, 1.0 - float(advantages.var()) / spread if spread > 0 else math.nan


def _default_policy(spec: EnvSpec, generator: torch.Generator) -> ActingPolicy:
    kind = GaussianMLPPolicy if isinstance(spec.action_space, gymnasium.spaces.Box) else CategoricalMLPPolicy
    return kind(spec, (64, 64), "tanh", init="orthogonal", generator=generator)


def _check_densities(policy: NormalizedPolicy) -> None:
    if not policy.policy.has_densities:
        raise TypeError(
            f"policy must have evaluate_actions(obs, actions) -> (log_prob, entropy), which "
            f"{type(policy.policy).__name__} lacks: use GaussianMLPPolicy, CategoricalMLPPolicy, "
            "GRUGaussianPolicy or CategoricalGRUPolicy"
        )


@torch.no_grad()
def _check_critic(critic: nn.Module, width: int, device: torch.device) -> None:
    if isinstance(critic, RecurrentCritic):
        _check_recurrent_critic(critic, width, device)
        return
    try:
        shape = tuple(critic(torch.zeros(2, width, device=device)).shape)
    except (RuntimeError, ValueError, TypeError) as error:
        raise ValueError(f"critic must take rows of {width} numbers (observation, domain_params): {error}") from error
    if shape != (2, 1):
        raise ValueError(f"critic must give one value per row, shape (2, 1) for two rows, got {shape}")


def _check_recurrent_critic(critic: nn.Module, width: int, device: torch.device) -> None:
    try:
        shape = tuple(critic(torch.zeros(2, 3, width, device=device)).shape)
    except (RuntimeError, ValueError, TypeError) as error:
        raise ValueError(
            f"a recurrent critic must take rollouts (N, T, {width}) (observation, domain_params): {error}"
        ) from error
    if shape != (2, 3, 1):
        raise ValueError(
            f"a recurrent critic must give one value per step, shape (2, 3, 1) for two rollouts of 3 steps, got {shape}"
        )


def _critic_inputs(observations: np.ndarray, domain: np.ndarray | None) -> np.ndarray:
    """Input of the critic: ``observations (N, obs_dim)`` and, if it observes them, domain parameters ``(N, D)``."""
    return observations if domain is None else np.concatenate([observations, domain], axis=1)


def _wrapped(
    policy: Any, normalize_observations: bool, scale_actions: bool, params: tuple[str, ...], env_spec: EnvSpec
) -> NormalizedPolicy:
    if not isinstance(policy, NormalizedPolicy):
        options: dict[str, Any] = {"domain_params": params, "env_spec": env_spec} if params else {}
        return NormalizedPolicy(policy, normalize_observations, scale_actions, **options)
    if policy.normalize_observations != normalize_observations:
        raise ValueError(
            f"normalize_observations must be {policy.normalize_observations}, as the given NormalizedPolicy has it, "
            f"got {normalize_observations}"
        )
    if policy.domain_params != params:
        raise ValueError(
            f"policy must observe {params} (privileged, domain_params), got one that observes {policy.domain_params}"
        )
    return policy


def _kind_of_gradients(wanted: str, policy: nn.Module, critic: nn.Module) -> str:
    possible = can_train(policy, critic)
    if wanted == "numpy" and not possible:
        raise ValueError(
            "gradients='numpy' needs a GaussianMLPPolicy or a CategoricalMLPPolicy with one choice, and an MLP as "
            f"critic, with tanh or relu, on the CPU, got {type(policy).__name__} and {type(critic).__name__}; use "
            "'auto'"
        )
    return "numpy" if possible and wanted != "autograd" else "autograd"
