"""PEARL: off-policy meta-reinforcement learning with a probabilistic belief about the task."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import nn

from metaroll.checks import check_seed, check_whole
from metaroll.config import ConfigField, config_of, described
from metaroll.data.replay.path_buffer import memory_estimate
from metaroll.errors import option_name, unknown_name
from metaroll.functional.distributions import gaussian_kl
from metaroll.learners.base import MetaRLAlgorithm, Progress, train
from metaroll.learners.pearl_config import PEARLConfig, PEARLUpdate
from metaroll.learners.pearl_networks import (
    PEARLGenerators,
    PEARLNetworks,
    PEARLOptimizers,
    accepts,
    build_encoder,
    reinitialized_copy,
)
from metaroll.learners.pearl_update import METRICS, check_finite, gradient_step, mean_metrics, seconds_of_step
from metaroll.policies.adapters import ContextEncoder
from metaroll.policies.context import ContextConditionedPolicy
from metaroll.policies.networks import MLPEncoder
from metaroll.policies.scaling import ActionScaling
from metaroll.processing.task_buffers import RowLayout, TaskBuffers, TransitionBatch, context_rows
from metaroll.seeding import derive_seed, fresh_seed
from metaroll.state import Stateful, fingerprint_of, parts
from metaroll.types import Context, EnvSpec, EnvUpdate, InOutSpec, PartsRunner, Runner

__all__ = ["PEARL", "PEARLCollector"]


class PEARL(Stateful, MetaRLAlgorithm):
    r"""Probabilistic embeddings for actor-critic reinforcement learning (Rakelly et al. 2019, arXiv:1903.08254).

    An encoder infers a belief q(z|c) about the task from its context c (recent transitions); soft actor-critic
    (Haarnoja et al. 2018, arXiv:1801.01290) with two Q functions and a value function learns to act given a sample z.

    Args:
        env: One ``EnvUpdate`` per train task.
        config: Settings.
        inner_policy: Policy on observation and latent, with actions in [-1, 1]; built from ``augment_env_spec``. Its
            actions are scaled to the bounds of the environment's action space.
        qf: Q function, called ``qf(observation | action, z)``; built from ``augment_env_spec``.
        vf: Value function, called ``vf(observation, z)``; built from ``get_env_spec(..., 'vf')``.
        test_env_sampler: Task sampler of the meta-test.
        policy_class: Class of the context-conditioned policy.
        encoder_class: Class of the encoder, built with ``input_dim``, ``output_dim`` and ``hidden_sizes``.
        optimizer_class: Called as ``optimizer_class(parameters, lr=...)`` for each network.
        seed: Source of all randomness of training; ``None`` means fresh entropy. Recorded in ``seed``.
        env_spec: Spec of the nominal environment (not augmented); ``None`` builds ``env[0]()`` to read it.
        qf2: The second Q function; ``None`` means a copy of ``qf`` with newly initialized weights.
        device: Device of the networks; ``None`` means the CPU. Data stay on the CPU.
        num_epochs: Planned number of epochs, for an estimate of the memory of its replay data; ``None`` assumes full
            buffers. Training does not depend on it.
        options: Settings by name; they override those of ``config``.

    Note:
        The log-determinant of tanh in the policy's density is exact; the original code ("oyster") adds 1e-6 within the
        logarithm, which bounds it at the ends of the action range.

        Pickling drops the replay data; an unpickled PEARL collects initial data again when it trains.
    """

    adapts_again = True

    # Settings by their documented names.
    num_train_tasks = ConfigField[int]()
    latent_dim = ConfigField[int]()
    encoder_hidden_sizes = ConfigField[tuple[int, ...]]()
    policy_lr = ConfigField[float]()
    qf_lr = ConfigField[float]()
    vf_lr = ConfigField[float]()
    context_lr = ConfigField[float]()
    policy_mean_reg_coeff = ConfigField[float]()
    policy_std_reg_coeff = ConfigField[float]()
    policy_pre_activation_coeff = ConfigField[float]()
    soft_target_tau = ConfigField[float]("tau")
    kl_lambda = ConfigField[float]()
    use_information_bottleneck = ConfigField[bool]()
    use_next_obs_in_context = ConfigField[bool]()
    meta_batch_size = ConfigField[int]()
    num_steps_per_epoch = ConfigField[int]("gradient_steps")
    num_initial_steps = ConfigField[int]("warmup_steps")
    num_tasks_sample = ConfigField[int]("tasks_per_epoch")
    num_steps_prior = ConfigField[int]()
    num_steps_posterior = ConfigField[int]()
    num_extra_rl_steps_posterior = ConfigField[int]()
    batch_size = ConfigField[int]()
    embedding_batch_size = ConfigField[int]()
    embedding_mini_batch_size = ConfigField[int]()
    max_path_length = ConfigField[int]("max_steps")
    discount = ConfigField[float]()
    replay_buffer_size = ConfigField[int]("replay_size")
    reward_scale = ConfigField[float]()
    update_post_train = ConfigField[int]()
    evaluate_every = ConfigField[int]()
    context_reward_key = ConfigField[str | None]()
    memory_limit = ConfigField[int | None]()

    state_parts = parts(
        networks="_networks.saved",
        optimizers="_optimizers.saved",
        generators="_random",
        counters=parts(gradient_steps="_num_gradient_steps"),
    )
    buffer_parts = "_buffers"

    def __init__(
        self,
        env: Sequence[EnvUpdate],
        config: PEARLConfig | None = None,
        *,
        inner_policy: nn.Module,
        qf: nn.Module,
        vf: nn.Module,
        test_env_sampler: Any,
        policy_class: Callable[..., Any] = ContextConditionedPolicy,
        encoder_class: Callable[..., nn.Module] = MLPEncoder,
        optimizer_class: Callable[..., torch.optim.Optimizer] = torch.optim.Adam,
        env_spec: EnvSpec | None = None,
        qf2: nn.Module | None = None,
        seed: int | None = None,
        device: str | torch.device | None = None,
        num_epochs: int | None = None,
        **options: Any,
    ) -> None:
        if num_epochs is not None:
            check_whole("num_epochs", num_epochs, 0)
        self.config = config = config_of(PEARLConfig, config, options, type(self))
        self.seed = fresh_seed() if seed is None else check_seed(option_name("seed"), seed)
        self.test_env_sampler, self.num_epochs = test_env_sampler, num_epochs
        self.num_test_tasks = _count_test_tasks(config.num_test_tasks, test_env_sampler)
        self._updates = _checked_updates(env, config.num_train_tasks)
        self._num_gradient_steps = 0

        self.env_spec = _continuous_spec(self._updates[0] if env_spec is None else env_spec)
        # Policy classes of other libraries pass on the actions of their inner policy.
        self._scales, self._seeds = accepts(policy_class, "action_space"), accepts(policy_class, "seed")
        scaling = ActionScaling.of_squashed(self.env_spec.action_space) if self._scales else None
        self._layout = RowLayout.of(self.env_spec, config.use_next_obs_in_context, scaling)
        self._memory_when_full = _check_memory(config, self._layout, num_epochs, config.memory_limit)

        self._policy_class, self._num_policies = policy_class, 0
        spec = self.get_env_spec(
            self.env_spec,
            config.latent_dim,
            "encoder",
            use_next_obs=config.use_next_obs_in_context,
            use_information_bottleneck=config.use_information_bottleneck,
        )
        encoder = build_encoder(encoder_class, spec, config.encoder_hidden_sizes, self.seed)
        self.config.check_encoder(ContextEncoder(encoder).recurrent)
        self._networks = PEARLNetworks(
            policy=self._make_policy(encoder, inner_policy),
            encoder=encoder,
            inner_policy=inner_policy,
            qf=qf,
            qf2=reinitialized_copy(qf, self.seed) if qf2 is None else qf2,
            vf=vf,
        )
        self._device = self._default_device = torch.device("cpu" if device is None else device)
        self._networks.to(self._device)
        self._networks.check_widths(self.env_spec, self.config, self._device)
        self._optimizers = PEARLOptimizers(self._networks, optimizer_class, self.config)

        self._random = PEARLGenerators(self.seed, self._device)
        self._make_buffers()
        self._reset_belief()

    @classmethod
    def augment_env_spec(cls, env_spec: Any, latent_dim: int) -> EnvSpec:
        """Spec (of an environment or spec) with ``latent_dim`` more observations, all flat Boxes on [-1, 1]."""
        spec = EnvSpec.from_env(env_spec)
        check_whole("latent_dim", latent_dim)
        return EnvSpec(_flat_box(spec.obs_dim + int(latent_dim)), _flat_box(spec.act_dim), spec.max_episode_length)

    @classmethod
    def get_env_spec(
        cls,
        env_spec: Any,
        latent_dim: int,
        module: str,
        *,
        use_next_obs: bool = False,
        use_information_bottleneck: bool = True,
    ) -> InOutSpec | EnvSpec:
        """Spec of one of PEARL's networks.

        Args:
            env_spec: Environment or spec.
            latent_dim: Length of z.
            module: ``'encoder'`` gives an ``InOutSpec``; ``'vf'`` an ``EnvSpec`` whose actions are z, so that a Q
                function's class can serve as V(s, z).
            use_next_obs: Whether the encoder also reads next observations.
            use_information_bottleneck: Whether the encoder outputs mean and variance, or z itself.
        """
        spec, latent_dim = EnvSpec.from_env(env_spec), check_whole("latent_dim", latent_dim)
        if module == "encoder":
            context_dim = spec.obs_dim + spec.act_dim + 1 + (spec.obs_dim if use_next_obs else 0)
            factor_dim = latent_dim * (2 if use_information_bottleneck else 1)
            return InOutSpec(_flat_box(context_dim, np.inf), _flat_box(factor_dim, np.inf))
        if module == "vf":
            return EnvSpec(_flat_box(spec.obs_dim), _flat_box(latent_dim), spec.max_episode_length)
        raise unknown_name("module", str(module), ("encoder", "vf"))

    @property
    def policy(self) -> Any:
        """The context-conditioned policy in training."""
        return self._networks.policy

    @property
    def env(self) -> list[EnvUpdate]:
        """One ``EnvUpdate`` per train task."""
        return list(self._updates)

    @property
    def inner_policy(self) -> nn.Module:
        """The policy on observation and latent."""
        return self._networks.inner_policy

    @property
    def qf(self) -> nn.Module:
        """The first Q function."""
        return self._networks.qf1

    @property
    def qf2(self) -> nn.Module:
        """The second Q function."""
        return self._networks.qf2

    @property
    def vf(self) -> nn.Module:
        """The value function."""
        return self._networks.vf

    @property
    def policy_class(self) -> Callable[..., Any]:
        """Class of the context-conditioned policy."""
        return self._policy_class

    @property
    def encoder_class(self) -> type[nn.Module]:
        """Class of the encoder."""
        return type(self._networks.encoder)

    @property
    def optimizer_class(self) -> type[torch.optim.Optimizer]:
        """Class of the optimizers."""
        return type(self._optimizers.policy)

    @property
    def networks(self) -> list[nn.Module]:
        """Encoder, inner policy, context-conditioned policy, Q1, Q2, V, target of V."""
        return self._networks.as_list()

    def to(self, device: str | torch.device | None = None) -> None:
        """Move networks and optimizer state to ``device`` (``None``: that of the constructor, else CPU)."""
        target = self._default_device if device is None else torch.device(device)
        self._device = target
        self._random.move(target)
        self._networks.to(target)
        self._optimizers.follow_parameters()
        self._reset_belief()

    def get_exploration_policy(self) -> Any:
        """A copy of the policy with the prior as its belief, independent of the policy in training."""
        return self._view(copy.deepcopy(self._networks.encoder), copy.deepcopy(self._networks.inner_policy))

    def get_exploration_policies(self, count: int) -> list[Any]:
        """See ``MetaRLAlgorithm``: each has its own belief; stateless networks are shared in one copy."""
        if not (isinstance(self.policy, ContextConditionedPolicy) and self.policy.encodes_rows):
            return super().get_exploration_policies(count)
        encoder, inner_policy = copy.deepcopy(self._networks.encoder), copy.deepcopy(self._networks.inner_policy)
        return [self._view(encoder, inner_policy) for _ in range(count)]

    def adapt_policy(self, exploration_policy: Any, exploration_trajectories: Any) -> Any:
        """A policy whose belief is the posterior given all steps of the trajectories.

        Args:
            exploration_policy: From ``get_exploration_policy()`` (or from this method, for further rounds). It is
                consumed: the result uses its networks.
            exploration_trajectories: ``TrajectoryBatch``, ``StepSequence`` or a sequence of them, all of one task.
        """
        return self.adapt_policies([exploration_policy], [exploration_trajectories])[0]

    def adapt_policies(self, policies: Sequence[Any], batches: Sequence[Any]) -> list[Any]:
        """See ``MetaRLAlgorithm``: the contexts of all tasks are encoded in one batch."""
        rows = [context_rows(batch, self._layout, self.config.context_reward_key) for batch in batches]
        adapted = [self._view(policy.context_encoder, policy.policy) for policy in policies]
        if _share_encoder(adapted):
            with torch.no_grad():
                beliefs = adapted[0].posterior_of_lists(rows)
            for policy, mean, variance in zip(adapted, *(part.split(1) for part in beliefs), strict=True):
                policy.set_belief(mean, variance, self._random.belief())
        else:
            for policy, context in zip(adapted, rows, strict=True):
                self._infer(policy, context[None])
        return adapted

    def posterior_divergence(self, policy: Any, other: Any = None) -> float | None:
        """See ``HasPosterior``: between Gaussian beliefs, the prior is ``N(0, 1)``; ``None`` without bottleneck."""
        beliefs = [policy] if other is None else [policy, other]
        if not all(isinstance(one, ContextConditionedPolicy) and one.use_information_bottleneck for one in beliefs):
            return None
        with torch.no_grad():
            if other is None:
                return float(policy.compute_kl_div())
            return float(gaussian_kl(policy.z_means, policy.z_vars, other.z_means, other.z_vars))

    def train(self, runner: Runner) -> float | None:
        """See ``metaroll.learners.base.train``.

        Returns:
            Average return of the last meta-test after adaptation; ``None`` without a meta-test.
        """
        return train(self, runner)

    def collect(self, runner: PartsRunner) -> None:
        """Collect initial data of all tasks (once), then visit the tasks of this epoch; fills the buffers."""
        self._collector.collect_initial(runner)  # does nothing after the first call
        self._collector.collect_visits(runner, self._draw_tasks())

    def update(self, collected: None = None, progress: Progress | None = None) -> dict[str, float]:
        """The gradient steps of one epoch; returns averages of their losses.

        Args:
            collected: Not used: the data are in the buffers.
            progress: Called as ``progress(done, total)``, in gradient steps.

        Raises:
            DivergedError: Weights or losses are no longer finite.
        """
        steps = self.config.gradient_steps
        total = torch.zeros(len(METRICS), device=self._device)
        for step in range(steps):
            if progress is not None:
                progress(step, steps)
            tasks = self._random.batches.integers(len(self._updates), size=self.config.meta_batch_size).tolist()
            total += self._gradient_step(tasks)
        if progress is not None:
            progress(steps, steps)
        self._num_gradient_steps += steps
        means = mean_metrics(total, steps)
        check_finite(self._networks, means, self._num_gradient_steps, self.config.reward_scale)
        self._reset_belief()
        return means

    def update_seconds(self) -> float | None:
        """See ``RLAlgorithm``: on copies of the networks, with random data of the right shape."""
        return seconds_of_step(self._networks, self._optimizers, self._layout, self.config, self._device)

    @property
    def train_tasks(self) -> list[Any]:
        """Tasks of the train updates, in order."""
        return [update.task for update in self._updates]

    @property
    def device(self) -> torch.device:
        """Device of the networks."""
        return self._device

    @property
    def memory_when_full(self) -> int:
        """Maximum number of bytes of replay data: after ``num_epochs`` epochs, or when every buffer is full."""
        return self._memory_when_full

    def fingerprint(self) -> str:
        """Class, networks and hyperparameters as a short text, which a snapshot must match."""
        bounds = [] if self._layout.scaling is None else [repr(self._layout.scaling.bounds)]
        name = getattr(self._policy_class, "__name__", "")
        return fingerprint_of(
            self, self._networks.shapes(), described(self.config, PEARLUpdate), name, self._optimizers.kind, *bounds
        )

    def after_restore(self) -> None:
        """Drop replay data: initial data are collected again when training continues, unless buffers are loaded."""
        self.seed = self._random.seed
        self._make_buffers()
        self._reset_belief()

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        for name in ("_buffers", "_collector"):
            del state[name]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._make_buffers()

    def _make_policy(self, encoder: nn.Module, inner_policy: nn.Module) -> Any:
        # A policy used outside the engine (get_action) draws from its own generator.
        self._num_policies += 1
        options: dict[str, Any] = {}
        if self._seeds:
            options["seed"] = derive_seed("pearl policy", self.seed, self._num_policies)
        if self._scales:
            options["action_space"] = self.env_spec.action_space
        return self._policy_class(
            latent_dim=self.config.latent_dim,
            context_encoder=encoder,
            policy=inner_policy,
            use_information_bottleneck=self.config.use_information_bottleneck,
            use_next_obs=self.config.use_next_obs_in_context,
            **options,
        )

    def _make_buffers(self) -> None:
        config = self.config
        self._buffers = TaskBuffers(len(self._updates), config.replay_size, self._layout, config.context_reward_key)
        self._collector = PEARLCollector(self._updates, self._buffers, config, self._posterior_contexts)

    def _reset_belief(self) -> None:
        self.policy.reset_belief(generator=self._random.belief())

    def _view(self, encoder: nn.Module, inner_policy: nn.Module) -> Any:
        """A policy on these networks with its own belief, the prior."""
        view = self._make_policy(encoder, inner_policy)
        view.to(self._device)
        view.reset_belief(generator=self._random.belief())
        return view

    @torch.no_grad()
    def _infer(self, policy: Any, context: np.ndarray) -> None:
        """Set the belief of ``policy`` to the posterior of each row of ``context (X, N, context_dim)``."""
        ContextEncoder(policy.context_encoder).reset()
        policy.infer_posterior(torch.from_numpy(context).to(self._device), generator=self._random.belief())

    def _posterior_contexts(self, tasks: Sequence[int]) -> list[Context]:
        """Belief about each task, inferred from a sample of its context buffer."""
        size = self.config.embedding_batch_size
        context = self._buffers.sample_context(tasks, size, self._random.tasks)
        self._infer(self.policy, context)
        means, variances = (values.detach().cpu().numpy() for values in (self.policy.z_means, self.policy.z_vars))
        return [{"z_mean": mean.copy(), "z_var": var.copy()} for mean, var in zip(means, variances, strict=True)]

    def _draw_tasks(self) -> list[int]:
        count = self.config.tasks_per_epoch
        return self._random.tasks.integers(len(self._updates), size=count).tolist()

    def _gradient_step(self, tasks: Sequence[int]) -> torch.Tensor:
        """Train all networks once on ``tasks``."""
        batches, draws = self.config, self._random.batches
        context = self._to_device(self._buffers.sample_context(tasks, batches.embedding_batch_size, draws))

        def draw() -> TransitionBatch:
            rows = self._buffers.sample_transitions(tasks, batches.batch_size, draws)
            return self._layout.split(self._to_device(rows))

        return gradient_step(self._networks, self._optimizers, context, draw, batches, self._random.noise)

    def _to_device(self, rows: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(rows).to(self._device)


_PRIOR: Context = {}
"""No context: z is drawn from the prior, not from the belief of the policy in training."""


def _waves_of(tasks: Sequence[int]) -> list[list[int]]:
    """Task indices in waves without repetition; each repetition goes to the next wave.

    Two visits of the same task must be sequential (the second clears the context of the first); visits of different
    tasks are independent and may share a call.
    """
    waves: list[list[int]] = []
    visits: dict[int, int] = {}
    for task in tasks:
        visit = visits.get(task, 0)
        visits[task] = visit + 1
        if visit == len(waves):
            waves.append([])
        waves[visit].append(task)
    return waves


class PEARLCollector:
    """Fills the buffers of the train tasks through a runner, many tasks per call.

    Args:
        updates: Environment update of every train task.
        buffers: Receive the rollouts.
        config: Number of steps of each kind.
        posterior: Task indices -> contexts for the policy: the beliefs inferred from the tasks' context buffers.
    """

    def __init__(
        self,
        updates: Sequence[EnvUpdate],
        buffers: TaskBuffers,
        config: PEARLConfig,
        posterior: Callable[[Sequence[int]], list[Context]],
    ) -> None:
        self._updates = updates
        self._buffers = buffers
        self._config = config
        self._posterior = posterior

    def collect_initial(self, runner: PartsRunner) -> None:
        """Collect data of every train task without any, under the prior, before training.

        Each part is stored before the runner yields the next, so that an interrupted run keeps it.
        """
        missing, each, count = self._buffers.empty_tasks, self._config.warmup_steps, len(self._updates)
        if not missing:
            return
        runner.progress("warm-up", (count - len(missing)) * each, count * each)
        parts = runner.obtain_in_parts(runner.step_itr, each, self._updates, contexts=[_PRIOR] * count, missing=missing)
        for tasks, groups in parts:
            self._store(tasks, groups, to_context=True)

    def collect_visits(self, runner: Runner, tasks: Sequence[int]) -> None:
        """Visit ``tasks`` (indices, may repeat): clear the context, then collect prior, posterior and extra data."""
        config = self._config
        visit = config.num_steps_prior + config.num_steps_posterior + config.num_extra_rl_steps_posterior
        runner.progress("sampling", 0, len(tasks) * visit)
        for wave in _waves_of(tasks):
            for task in wave:
                self._buffers.clear_context(task)
            if config.num_steps_prior:
                self._collect_prior(runner, wave, config.num_steps_prior)
            if config.num_steps_posterior:
                self._collect_posterior(runner, wave, config.num_steps_posterior, to_context=True)
            if config.num_extra_rl_steps_posterior:
                self._collect_posterior(runner, wave, config.num_extra_rl_steps_posterior, to_context=False)

    def _collect_prior(self, runner: Runner, tasks: Sequence[int], num_steps: int) -> None:
        self._obtain(runner, tasks, [_PRIOR] * len(tasks), to_context=True, batch_size=num_steps)

    def _collect_posterior(self, runner: Runner, tasks: Sequence[int], num_steps: int, *, to_context: bool) -> None:
        """At least ``num_steps`` per task: the first ``update_post_train`` episodes under the prior, with a new
        posterior after every ``update_post_train`` episodes.
        """
        rate, horizon = self._config.update_post_train, self._config.max_steps
        steps = dict.fromkeys(tasks, 0)
        open_tasks, contexts = list(tasks), [_PRIOR] * len(tasks)
        while open_tasks:
            remaining = rate  # episodes until the posterior is inferred again
            while remaining and open_tasks:
                # No task gets more episodes than it would alone: the task closest to its goal sets the number.
                need = min(-(-(num_steps - steps[task]) // horizon) for task in open_tasks)
                episodes = min(remaining, need)
                taken = self._obtain(runner, open_tasks, contexts, to_context=to_context, num_rollouts=episodes)
                remaining -= episodes
                unfinished = []
                for position, (task, count) in enumerate(zip(open_tasks, taken, strict=True)):
                    steps[task] += count
                    if steps[task] < num_steps:
                        unfinished.append(position)
                open_tasks, contexts = [open_tasks[i] for i in unfinished], [contexts[i] for i in unfinished]
            if open_tasks:
                contexts = list(self._posterior(open_tasks))

    def _obtain(
        self,
        runner: Runner,
        tasks: Sequence[int],
        contexts: Sequence[Context],
        *,
        to_context: bool,
        batch_size: int | None = None,
        num_rollouts: int | None = None,
    ) -> list[int]:
        """Collect rollouts of all ``tasks`` in one call and store them; returns the number of steps per task."""
        groups = runner.obtain_samples(
            runner.step_itr,
            batch_size,
            env_update=[self._updates[task] for task in tasks],
            contexts=list(contexts),
            num_rollouts=num_rollouts,
        )
        return self._store(tasks, groups, to_context=to_context)

    def _store(self, tasks: Sequence[int], groups: Sequence[Sequence[Any]], *, to_context: bool) -> list[int]:
        """Add the rollouts of each of ``tasks`` to its buffers; returns the number of steps per task."""
        if len(groups) != len(tasks):
            raise ValueError(
                f"the runner must return one list of rollouts per task, got {len(groups)} for {len(tasks)}"
            )
        taken = self._buffers.add(tasks, groups, to_context=to_context)
        for task, count in zip(tasks, taken, strict=True):
            if not count:
                raise ValueError(f"the runner returned no steps for train task {task}")
        return taken


def _check_memory(
    config: PEARLConfig,
    layout: RowLayout,
    num_epochs: int | None = None,
    memory_limit: int | None = None,
) -> int:
    """Maximum number of bytes in the buffers of all train tasks after ``num_epochs`` epochs (``None``: when full).

    Raises:
        ValueError: That exceeds ``memory_limit``.
    """
    capacity, num_tasks = config.replay_size, config.num_train_tasks
    collected, context = None, None
    if num_epochs is not None:
        collected, context = config.most_transitions(num_epochs), config.most_context()
    needed = memory_estimate(num_tasks, capacity, layout.width, num_rows=collected)
    needed += memory_estimate(num_tasks, capacity, layout.context_width, num_rows=context)
    if memory_limit is not None and needed > memory_limit:
        fits = memory_limit // memory_estimate(num_tasks, 1, layout.width + layout.context_width)
        hint = f"set replay_buffer_size to at most {fits:,}, " if fits >= 1 else ""
        when, fewer = ("when full", "tasks") if num_epochs is None else (f"for {num_epochs} epochs", "tasks or epochs")
        raise ValueError(
            f"the replay buffers need {needed:,} bytes {when} ({num_tasks} tasks x 2 buffers of {capacity:,} "
            f"transitions), more than memory_limit={memory_limit:,}; {hint}use fewer {fewer}, or raise memory_limit"
        )
    return needed


def _flat_box(width: int, bound: float = 1.0) -> gymnasium.spaces.Box:
    """Box of ``width`` numbers on [-bound, bound]."""
    return gymnasium.spaces.Box(-bound, bound, shape=(width,), dtype=np.float32)


def _count_test_tasks(num_test_tasks: int | None, sampler: Any) -> int:
    """Number of test tasks; ``None`` means as many as the sampler has."""
    count = getattr(sampler, "n_tasks", None) if num_test_tasks is None else num_test_tasks
    if count is None:
        raise ValueError(
            f"num_test_tasks must be given, since test_env_sampler ({type(sampler).__name__}) has no number of tasks "
            f"(its n_tasks is None)"
        )
    return check_whole("num_test_tasks", count, 1)


def _checked_updates(env: Sequence[EnvUpdate], num_train_tasks: int) -> list[EnvUpdate]:
    """The updates as a list, one per train task."""
    updates = list(env) if isinstance(env, Sequence) else []
    if not updates or not all(callable(update) for update in updates):
        raise TypeError(
            f"env must be a list of EnvUpdates, one per train task (from a task sampler), got {type(env).__name__}"
        )
    if len(updates) != num_train_tasks:
        raise ValueError(
            f"env must hold one EnvUpdate per train task, got {len(updates)} with num_train_tasks={num_train_tasks}"
        )
    return updates


def _continuous_spec(source: Any) -> EnvSpec:
    """The spec itself, or that of the environment built by an update (not closed here: a pool may own it)."""
    spec = source if isinstance(source, EnvSpec) else EnvSpec.from_env(source())
    if not isinstance(spec.action_space, gymnasium.spaces.Box):
        raise ValueError(f"PEARL needs continuous actions (a Box), got {spec.action_space}")
    return spec


def _share_encoder(policies: Sequence[Any]) -> bool:
    """Whether one encoder may encode the contexts of all policies: it encodes rows, and all weights are equal."""
    if not all(isinstance(policy, ContextConditionedPolicy) and policy.encodes_rows for policy in policies):
        return False
    first, *remaining = (list(policy.context_encoder.parameters()) for policy in policies)
    return all(len(own) == len(first) and all(map(_same_values, own, first)) for own in remaining)


def _same_values(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one is other or torch.equal(one, other)
