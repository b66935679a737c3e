"""Gradient-based meta-learning: initial parameters from which a few gradient steps lead to a good policy for a task."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import Tensor

from metaroll.checks import check_seed
from metaroll.config import ConfigField, config_of, described, described_values
from metaroll.data.paths import TrajectoryBatch
from metaroll.data.rollouts import Rollouts
from metaroll.data.step_sequence import StepSequence
from metaroll.errors import option_name
from metaroll.functional.distributions import ActionDistribution
from metaroll.functional.running_moments import add_rows
from metaroll.learners.base import KNOWN_EPOCHS, MetaRLAlgorithm, Progress, TrainingTasks, horizon_of, train
from metaroll.learners.maml.collecting import Adapter, MetaSamples, collect
from metaroll.learners.maml.configs import InnerConfig, MAMLConfig
from metaroll.learners.maml.outer import MetaProblem, OuterUpdate, TRPOOuter, first_state
from metaroll.learners.maml.samples import SampleSettings
from metaroll.learners.maml.tasks import BatchedTasks
from metaroll.policies.acting import ActingPolicy, check_policy
from metaroll.policies.normalized import NormalizedPolicy
from metaroll.policies.own_body import check_stacks, has_own_body
from metaroll.policies.parameters import tensors_of
from metaroll.seeding import derive_seed, fresh_seed
from metaroll.state import Stateful, fingerprint_of, parts, shapes_of
from metaroll.types import EnvSpec, Runner

__all__ = ["MAML"]


class MAML(Stateful, MetaRLAlgorithm):
    """Model-agnostic meta-learning (Finn et al. 2017, arXiv:1703.03400) and its successors.

    Every epoch draws tasks, collects rollouts in each with the current parameters, takes a gradient step in each,
    collects again with the adapted parameters, and so on; the outer update then improves the initial parameters for the
    return after adaptation. ``outer`` is ``TRPOOuter`` (as published), ``VPGOuter``, ``EMAMLOuter``, ``ProMPOuter``,
    ``DICEOuter`` or ``VPGDICEOuter``. Advantages are GAE with a linear baseline, fitted to each task and stage.

    Tests adapt with the same gradient step: ``adapt_policy`` continues from the policy that it receives, so that with
    ``adapt_from="last"`` an evaluator takes one step after another, by default ``num_inner_steps`` of them. Exploration
    needs noise.

    Args:
        env_spec: Environment or spec.
        policy: The policy to train: any of metaroll with ``action_distribution``, perhaps in a ``NormalizedPolicy``.
        config: Settings; ``None`` means the defaults.
        outer: The outer update; ``None`` means ``TRPOOuter()``.
        task_sampler: Training tasks, drawn in every epoch: a list of ``EnvUpdate``, or a sampler of them.
        test_env_sampler: Task sampler of the evaluations.
        seed: Source of all randomness of training; ``None`` means fresh entropy. Recorded in ``seed``.
        device: Device of gradient computations; ``None`` means the CPU.
        options: Settings by name; they override those of ``config``.

    Raises:
        TypeError: The policy has no densities, or observations are dicts or tuples.
        ValueError: A value is out of range, or the policy does not fit ``env_spec``.
    """

    deterministic_exploration = False
    training_return = "return_after"

    state_parts = parts(
        policy="_policy",
        step_sizes="_step_sizes",
        outer="_state",
        moments="_moments",
        tasks="_tasks",
        counters=parts("seed", epochs="_num_epochs"),
    )

    def __init__(
        self,
        env_spec: Any,
        config: MAMLConfig | None = None,
        *,
        policy: ActingPolicy,
        outer: OuterUpdate | None = None,
        task_sampler: Any = None,
        test_env_sampler: Any = None,
        seed: int | None = None,
        device: str | torch.device | None = None,
        **options: Any,
    ) -> None:
        self.env_spec = EnvSpec.from_env(env_spec)
        _refuse_structured(self.env_spec)
        self._outer: OuterUpdate = TRPOOuter() if outer is None else outer
        if not isinstance(self._outer, OuterUpdate):
            raise TypeError(f"outer must be an OuterUpdate, such as ProMPOuter(), got {outer!r}")
        given = config_of(MAMLConfig, config, options, type(self))
        self.config = replace(
            given,
            inner=self._outer.inner if given.inner is None else given.inner,
            max_steps=horizon_of(given.max_steps, self.env_spec),
        )
        self._context_reward_key = given.context_reward_key
        self.inner_steps = given.num_inner_steps
        if task_sampler is None:
            raise ValueError("task_sampler is missing: a single task leaves nothing to adapt to")
        self.evaluate_every = given.evaluate_every
        self.seed = fresh_seed() if seed is None else check_seed("seed", seed)
        self._tasks = TrainingTasks(task_sampler, derive_seed("meta-training tasks", self.seed))
        self.test_env_sampler = test_env_sampler
        self._policy = _wrapped(policy, given.normalize_observations, given.scale_actions, self.env_spec)
        self._device = torch.device("cpu" if device is None else device)
        self._layout = self._policy.parameter_layout()
        self._problem = _problem_of(self._policy, self.config, self._device)
        if has_own_body(self._policy):
            curvature = self.config.second_order or isinstance(self._outer, TRPOOuter)
            check_stacks(self._policy, self._problem.distribution, curvature)
        self._adapter = self._make_adapter()
        self._step_sizes = self._problem.step_sizes.clone()
        self._state = first_state(self._meta_parameters(), given.num_inner_steps, self._outer.kl_coeff)
        known = KNOWN_EPOCHS * self.config.meta_batch_size * self.config.rollouts_per_task
        self._moments = self._policy.observation_moments(known * self.max_path_length)
        self._num_epochs = 0

    # -- properties ----------------------------------------------------------------------------------------------------

    @property
    def policy(self) -> NormalizedPolicy:
        """The policy before adaptation."""
        return self._policy

    @property
    def outer(self) -> OuterUpdate:
        """The outer update."""
        return self._outer

    discount = ConfigField[float]()
    max_path_length = ConfigField[int]("max_steps")

    @property
    def train_tasks(self) -> list[Any] | None:
        """Training tasks, which must not be tested; ``None`` for an infinite set."""
        listed = self._tasks.listed
        return None if listed is None else [update.task for update in listed]

    @property
    def step_sizes(self) -> np.ndarray:
        """Inner step sizes of all parameters ``(P,)``; 0 for those that are not adapted."""
        return self._step_sizes.cpu().numpy().copy()

    # -- training ------------------------------------------------------------------------------------------------------

    def train(self, runner: Runner) -> float | None:
        """See ``metaroll.learners.base.train``; returns are those after adaptation.

        Raises:
            DivergedError: Inner steps or the outer update lead to non-finite parameters.
        """
        return train(self, runner)

    def collect(self, runner: Runner) -> MetaSamples:
        """Rollouts of one epoch: in each task, before every inner step and after the last.

        Raises:
            DivergedError: Inner steps lead to non-finite parameters; names the tasks.
        """
        tasks = self._tasks.draw(self.config.meta_batch_size)
        return collect(runner, tasks, self._adapter, self._meta_parameters(), self.config)

    def update(self, collected: MetaSamples, progress: Progress | None = None) -> dict[str, float]:
        """Improve the initial parameters; returns numbers for the log (``MetaSamples.metrics``).

        Args:
            collected: The result of ``collect``.
            progress: Called as ``progress(done, total)``, where the total is 1.

        Raises:
            DivergedError: Parameters, losses or gradients are no longer finite; nothing was changed.
        """
        if progress is not None:
            progress(0, 1)
        # Outer update: theta <- theta - step(mean over tasks of grad L_m(theta_K(theta))), (Q,)
        tasks = BatchedTasks(self._problem, self._outer, collected.steps)
        before = self._meta_parameters(), self._state
        meta, state, numbers = self._outer.update(tasks, *before)
        collected.refuse_non_finite(self._problem, self._outer, before, (meta, state), numbers)
        self._state = state
        self._take(meta)
        if self.config.normalize_observations:
            self._moments = add_rows(self._moments, collected.observations)
            self._policy.set_observation_moments(self._moments.mean, self._moments.std)
        self._num_epochs += 1
        if progress is not None:
            progress(1, 1)
        return {**collected.metrics(), **numbers}

    # -- adaptation ----------------------------------------------------------------------------------------------------

    def get_exploration_policy(self) -> NormalizedPolicy:
        """A copy of the policy in training, with the initial parameters."""
        return copy.deepcopy(self._policy)

    def adapt_policy(self, exploration_policy: Any, exploration_trajectories: Any) -> NormalizedPolicy:
        """The policy after one inner step from the parameters of ``exploration_policy``.

        Args:
            exploration_policy: From ``get_exploration_policy()``, or from this method.
            exploration_trajectories: ``TrajectoryBatch``, ``StepSequence`` or a sequence of them, all of one task,
                collected with that policy.
        """
        return self.adapt_policies([exploration_policy], [exploration_trajectories])[0]

    def adapt_policies(self, policies: Sequence[Any], batches: Sequence[Any]) -> list[NormalizedPolicy]:
        """See ``MetaRLAlgorithm``: all tasks in one batch.

        Raises:
            DivergedError: A step leads to non-finite parameters.
            TypeError: A policy does not belong to this algorithm.
        """
        for policy in policies:
            if not isinstance(policy, NormalizedPolicy) or policy.parameter_layout() != self._layout:
                raise TypeError(f"exploration_policy must be one of get_exploration_policy(), got {policy!r}")
        groups = [_rollouts_of(batch) for batch in batches]
        flat = torch.from_numpy(np.stack([policy.acting_parameters() for policy in policies])).to(self._device)
        samples = self._adapter.samples(groups, flat)[1]
        meta = self._meta_parameters()
        later = self.config.later_inner_lr
        scales = None
        if later is not None:
            is_first = (flat == self._problem.split(meta)[0]).all(dim=1)
            scales = torch.where(is_first, 1.0, later / self.config.inner_lr)
        taken = self._adapter.inner_step(meta, flat, samples, range(len(policies)), scales)
        for policy, parameters in zip(policies, taken.parameters.cpu(), strict=True):  # in place: policies are consumed
            self._layout.assign(policy, parameters)
        return list(policies)

    # -- states --------------------------------------------------------------------------------------------------------

    def fingerprint(self) -> str:
        """Class, networks and hyperparameters as a short text, which a snapshot must match."""
        outer = f"{type(self._outer).__name__} {sorted(described_values(self._outer).items())!r}"
        kinds = [type(self._policy.policy).__name__, outer, *shapes_of(self._policy)]
        kinds += [] if self._policy.scale_actions else ["scale_actions=False"]
        kinds += [] if self._context_reward_key is None else [f"context_reward_key={self._context_reward_key}"]
        return fingerprint_of(self, *kinds, described(self.config, InnerConfig))

    # -- helpers -------------------------------------------------------------------------------------------------------

    def _make_adapter(self) -> Adapter:
        settings = SampleSettings(
            discount=self.config.discount,
            gae_lambda=self.config.gae_lambda,
            normalize_advantages=self.config.normalize_advantages,
            time_rewards="magic-box" in (self.config.inner, self._outer.inner),
            context_reward_key=self._context_reward_key,
        )
        return Adapter(self._problem, self._policy, self.env_spec, settings, self._device, self.config.inner_lr)

    def _meta_parameters(self) -> Tensor:
        flat = torch.from_numpy(self._policy.acting_parameters()).to(self._device)
        return torch.cat([flat, self._step_sizes]) if self.config.learn_inner_lr else flat

    def _take(self, meta: Tensor) -> None:
        flat = meta[: self._layout.size]
        if self.config.learn_inner_lr:
            self._step_sizes = meta[self._layout.size :].clone()
        self._layout.assign(self._policy, flat.cpu())


def _problem_of(policy: NormalizedPolicy, config: MAMLConfig, device: torch.device) -> MetaProblem:
    layout, parameters = policy.parameter_layout(), tensors_of(policy)
    names = _adapted_names(policy, config.adapt)
    trained = _flags(layout, lambda name: parameters[name].requires_grad)
    adapted = trained * _flags(layout, lambda name: name in names)
    changed = torch.cat([trained, adapted]) if config.learn_inner_lr else trained

    def distribution(flat: Tensor, observations: Tensor) -> ActionDistribution:
        return policy.action_distribution(layout.torch_views(flat), observations)

    sizes = config.inner_lr * adapted
    assert config.inner is not None
    return MetaProblem(distribution, config.inner, config.second_order, sizes.to(device), changed.to(device))


def _wrapped(policy: Any, normalize_observations: bool, scale_actions: bool, env_spec: EnvSpec) -> NormalizedPolicy:
    if not isinstance(policy, ActingPolicy) or not policy.has_distributions:
        raise TypeError(
            f"policy must have action_distribution(parameters, obs), which {type(policy).__name__} lacks: use "
            "GaussianMLPPolicy, CategoricalMLPPolicy, GRUGaussianPolicy or CategoricalGRUPolicy"
        )
    check_policy(policy, ActingPolicy, env_spec)
    if not isinstance(policy, NormalizedPolicy):
        return NormalizedPolicy(policy, normalize_observations, scale_actions)
    if policy.normalize_observations != normalize_observations:
        raise ValueError(
            f"normalize_observations must be {policy.normalize_observations}, as the given NormalizedPolicy has it, "
            f"got {normalize_observations}"
        )
    return policy


def _adapted_names(policy: NormalizedPolicy, prefixes: Sequence[str]) -> set[str]:
    names = [name for name, value in policy.named_parameters() if value.requires_grad]
    for prefix in prefixes:
        if not any(name.startswith(prefix) for name in names):
            known = ", ".join(names)
            raise ValueError(f"{option_name('adapt')} must hold prefixes of names, of {known}, got {prefix!r}")
    return {name for name in names if not prefixes or name.startswith(tuple(prefixes))}


def _flags(layout: Any, chosen: Any) -> Tensor:
    """1 for entries of parameters with chosen names, else 0, ``(P,)``."""
    flat = torch.zeros(layout.size)
    for name, view in layout.torch_views(flat).items():
        view.fill_(float(chosen(name)))
    return flat


def _rollouts_of(batch: Any) -> Rollouts:
    """The rollouts of a ``TrajectoryBatch``, a ``StepSequence``, or a sequence of either."""
    if isinstance(batch, TrajectoryBatch):
        return Rollouts.of(batch.to_rollouts())
    if isinstance(batch, StepSequence):
        return Rollouts.of(batch.iterate_rollouts())
    if isinstance(batch, Rollouts):
        return batch
    rollouts = Rollouts.joined(_rollouts_of(part) for part in batch)
    if not len(rollouts):
        raise ValueError("exploration_trajectories must hold at least one rollout, got none")
    return rollouts


def _refuse_structured(env_spec: EnvSpec) -> None:
    """``TypeError`` unless observations are arrays."""
    space = env_spec.observation_space
    if isinstance(space, gymnasium.spaces.Dict | gymnasium.spaces.Tuple):
        raise TypeError(
            f"MAML needs observations that are arrays (Box, Discrete, ...), got {space}: put the environment into "
            "gymnasium.wrappers.FlattenObservation"
        )
