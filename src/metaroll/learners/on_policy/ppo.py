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

from metaroll.checks import check_seed
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
    """Keeps the moments, and the observation normalizer of the policy up to date.

    Args:
        policy: Its ``set_observation_moments`` is told what was learned, if it normalizes observations.
        domain_params: Names of domain parameters that the critic observes.
        known_rows: How many rows the moments count for that the policy has already, if it has any.
    """

    state_parts = parts(observations="_observations", returns="_returns", domain="_domain")

    def __init__(self, policy: NormalizedPolicy, domain_params: Sequence[str], known_rows: int) -> None:
        self._policy = policy
        self._domain_params = tuple(domain_params)
        self._observations = policy.observation_moments(known_rows)
        self._returns = no_moments(1)
        self._domain = no_moments(len(self._domain_params))

    def learn_observations(self, data: OnPolicyData) -> None:
        """Add the observations of ``data``: the policy acts by them from now on."""
        if self._policy.normalize_observations:
            self._observations = add_rows(self._observations, data.observations)
            self._policy.set_observation_moments(self._observations.mean, self._observations.std)

    def scaled_rewards(self, data: OnPolicyData, discount: float) -> np.ndarray:
        """Rewards ``(T,)`` over the standard deviation of their discounted sums (these too), within 10 of 0."""
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

    Every epoch collects whole rollouts, estimates advantages (GAE; a time limit counts the value of the last
    observation, a termination counts 0), and goes over the data several times in minibatches. Small feed-forward
    networks are trained with gradients by hand in NumPy, all others by autograd; recurrent policies by backpropagation
    through whole rollouts.

    Observations are normalized with the moments of all earlier epochs (in the first epoch not at all), so that the data
    were collected with the very policy that the update starts from. Rewards are divided by the standard deviation of
    their discounted sums. Both are part of the snapshot; evaluations use them as they are.

    Args:
        env_spec: Environment or spec.
        config: Settings; ``None`` means the defaults.
        policy: What is trained: ``GaussianMLPPolicy``, ``CategoricalMLPPolicy``, ``GRUGaussianPolicy``,
            ``CategoricalGRUPolicy``, or any policy of metaroll with ``evaluate_actions(obs, actions) -> (log_prob,
            entropy)``. One in a ``NormalizedPolicy`` that knows moments of observations goes on from these, as if
            they came from ten epochs. ``None`` means an MLP with two hidden layers of 64, for a Box or for choices.
        critic: Values, called as ``critic(inputs (..., D)) -> (..., 1)`` with normalized observations and
            ``domain_params`` side by side; ``None`` means an MLP with two hidden layers of 64. One that remembers
            (``GRUCritic``, or another ``RecurrentCritic``) is called with whole rollouts ``(N, T, D) -> (N, T, 1)``.
        task_sampler: Variations of the environment to train in, drawn anew every epoch: a list of ``EnvUpdate``, or a
            sampler of them; ``None`` means the nominal environment.
        test_env_sampler: Task sampler of the evaluations; ``None`` means the nominal environment.
        seed: Source of all randomness of training; ``None`` means fresh entropy. Recorded in ``seed``.
        device: Where the networks live; ``None`` means the CPU.
        options: Settings by name, in place of those of ``config``.
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

        self._told = self.domain_params if given.privileged else ()
        if policy is None:
            seen = widened_spec(self.env_spec, len(self._told)) if self._told else self.env_spec
            policy = _usual_policy(seen, torch_generator(derive_seed("ppo policy", self.seed)))
        self._policy = _wrapped(policy, given.normalize_observations, given.scale_actions, self._told, self.env_spec)
        inputs = self.env_spec.obs_dim + len(self.domain_params)
        draws = torch_generator(derive_seed("ppo critic", self.seed))
        usual = MLP(inputs, 1, (64, 64), "tanh", init="orthogonal", generator=draws)
        self._critic = usual if critic is None else critic
        self._device = torch.device("cpu" if device is None else device)
        self._policy.to(self._device)
        self._critic.to(self._device)
        _check_densities(self._policy)
        check_policy(self._policy, NormalizedPolicy, self.env_spec)
        _check_critic(self._critic, inputs, self._device)
        self._gradients = _kind_of_gradients(given.gradients, self._policy.policy, self._critic)
        self._trainer = self._make_trainer()

        told_to_critic = () if self._told else self.domain_params
        self._normalizer = PPONormalizer(self._policy, told_to_critic, KNOWN_EPOCHS * self.config.steps_per_epoch)
        self._batch_generator = np.random.default_rng(derive_seed("ppo batches", self.seed))
        self._num_epochs = 0

    @property
    def policy(self) -> NormalizedPolicy:
        """What acts: the given policy between normalized observations and the action space."""
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
        """The rollouts of one epoch: ``steps_per_epoch``, or ``num_rollouts``, each in a variation of its own."""
        least = self.config.steps_per_epoch
        num_tasks = num_rollouts or self.config.tasks_per_epoch or -(-least // self.max_path_length)
        return self._tasks.collect(runner, num_tasks, least if num_rollouts is None else None, num_rollouts)

    def update(
        self,
        rollouts: Sequence[StepSequence],
        progress: Progress | None = None,
        *,
        returns_end: np.ndarray | None = None,
    ) -> dict[str, float]:
        """Improve policy and critic with ``rollouts`` of the present policy; what it took and gave.

        Args:
            rollouts, progress: See ``EpochLearner.update``.
            returns_end: Bool ``(T,)``: steps after which nothing counts, though their rollout goes on.

        Raises:
            DivergedError: Weights are not finite any more.
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
        inputs = _side_by_side(firsts, self._normalizer.domains(rollouts, learn=False))
        return self._trainer.nets.values(inputs, inputs, np.arange(len(inputs) + 1))[0]  # rollouts of one step

    def to(self, device: str | torch.device | None = None) -> None:
        """Move the networks and the state of the optimizer to ``device`` (``None``: the CPU)."""
        target = torch.device("cpu" if device is None else device)
        if self._gradients == "numpy" and target.type != "cpu":
            raise ValueError(f"gradients by hand are computed on the CPU, got device {device!r}: use autograd")
        state = self._trainer.nets.state_dict()
        self._device = target
        self._policy.to(target)
        self._critic.to(target)
        self._trainer = self._make_trainer()
        self._trainer.nets.load_state_dict(state)

    @property
    def arithmetic(self) -> int:
        """2 where losses have had gradients at the outputs of networks since version 0.2, else 1."""
        return 2 if self._gradients == "autograd" else 1

    def fingerprint(self) -> str:
        """Class, networks and hyperparameters as a short text; a snapshot fits a PPO with the same one."""
        kinds = [type(self._policy.policy).__name__, type(self._critic).__name__, self._gradients, *self.domain_params]
        shapes = [*shapes_of(self._policy), *shapes_of(self._critic)]
        config = replace(self.config, lr_decay_epochs=None)  # a run that goes on longer may stretch its schedule
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
        """Arrays of ``rollouts``; observations are what the policy sees."""
        data = collect_on_policy(rollouts, self.env_spec)
        return with_domains(data, domain_rows(rollouts, self._told)) if self._told else data

    def _prepare(
        self, data: OnPolicyData, rollouts: Sequence[StepSequence], returns_end: np.ndarray | None
    ) -> tuple[PPOData, float]:
        """Normalized inputs, log-probabilities, advantages and targets; explained variance of the old values."""
        observations = self._policy.normalized(data.observations)
        domain = self._normalizer.domains(rollouts, learn=True)
        inputs = _side_by_side(observations, None if domain is None else np.repeat(domain, data.lengths, axis=0))
        last = _side_by_side(self._policy.normalized(data.last_observations), domain)
        values, last_values = self._trainer.nets.values(inputs, last, data.bounds)
        last_values = last_values if self.config.bootstrap_truncated else np.zeros_like(last_values)
        scaled = self.config.normalize_returns
        rewards = self._normalizer.scaled_rewards(data, self.discount) if scaled else data.rewards
        weights = (self.config.discount, self.config.gae_lambda)
        advantages = data.advantages(values, last_values, rewards, *weights, returns_end).astype(np.float32)
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


def _usual_policy(spec: EnvSpec, generator: torch.Generator) -> ActingPolicy:
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


def _side_by_side(observations: np.ndarray, domain: np.ndarray | None) -> np.ndarray:
    """What the critic sees: ``observations (N, obs_dim)``, and the domain of each row ``(N, D)`` if it observes it."""
    return observations if domain is None else np.concatenate([observations, domain], axis=1)


def _wrapped(
    policy: Any, normalize_observations: bool, scale_actions: bool, told: tuple[str, ...], env_spec: EnvSpec
) -> NormalizedPolicy:
    if not isinstance(policy, NormalizedPolicy):
        more: dict[str, Any] = {"domain_params": told, "env_spec": env_spec} if told else {}
        return NormalizedPolicy(policy, normalize_observations, scale_actions, **more)
    if policy.normalize_observations != normalize_observations:
        raise ValueError(
            f"normalize_observations must be {policy.normalize_observations}, as the given NormalizedPolicy has it, "
            f"got {normalize_observations}"
        )
    if policy.domain_params != told:
        raise ValueError(
            f"policy must observe {told} (privileged, domain_params), got one that observes {policy.domain_params}"
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
