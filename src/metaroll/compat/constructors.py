"""Documented constructors, with their names and defaults, on configs; written by tools/constructors.py."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal

import torch
from torch import nn

from metaroll.config import config_of, understands
from metaroll.configs.evaluation import MetaEvaluationConfig
from metaroll.functional.search.multi_start import Starts
from metaroll.learners.evolution import CEM as _CEM
from metaroll.learners.evolution import CMAES as _CMAES
from metaroll.learners.evolution_configs import CEMLearnerConfig, CMAESLearnerConfig
from metaroll.learners.off_policy.base import OffPolicyLearner as OffPolicyLearner
from metaroll.learners.off_policy.configs import OffPolicyConfig
from metaroll.learners.pearl import PEARL as _PEARL
from metaroll.learners.pearl_config import PEARLConfig
from metaroll.learners.trials import Trials
from metaroll.policies.acting import ActingPolicy
from metaroll.policies.context import ContextConditionedPolicy
from metaroll.policies.networks import MLPEncoder
from metaroll.rollouts.garage.workers import DefaultWorker, Worker, evaluates_deterministically
from metaroll.tasks.task_sampler import TaskSampler
from metaroll.training.evaluation.meta_evaluator import MetaEvaluator as _MetaEvaluator
from metaroll.types import EnvSpec, EnvUpdate

__all__ = ["CEM", "CMAES", "PEARL", "MetaEvaluator", "OffPolicyRLAlgorithm"]


class OffPolicyRLAlgorithm(OffPolicyLearner[OffPolicyConfig]):
    """Base of off-policy learners of users: see ``OffPolicyLearner``, with the constructor of metarl.

    A subclass implements learning in ``train_once``. Its own attributes must exist before it calls this
    constructor, which ends with ``init_opt()``; ``state_parts`` names the attributes that it learns, for snapshots
    (``metaroll.plugins.parts``).

    Args:
        env_spec: Environment or spec.
        policy: The policy to train and evaluate; ``None`` means the learner's default.
        qf: Its action-value function; ``None`` means the default.
        replay_buffer: A ``ReplayBuffer``, or a buffer with garage's ``add_path`` and ``sample_transitions``; ``None``
            means a ``ReplayBuffer`` of ``replay_size`` steps.
        use_target: Whether to use target networks (for subclasses that can do without).
        discount: Discount factor.
        steps_per_epoch: Cycles per epoch; each collects steps, and then takes gradient steps.
        max_path_length: Maximum number of steps of a rollout; ``None`` means the environment's time limit.
        max_eval_path_length: Maximum number of steps of a rollout in evaluations; ``None`` means max_path_length.
        n_train_steps: Gradient steps per cycle.
        buffer_batch_size: Replayed steps per gradient step.
        min_buffer_size: Environment steps to collect before the first gradient step.
        rollout_batch_size: Number of parallel rollouts.
        reward_scale: Factor applied to rewards in updates; they are stored unscaled.
        smooth_return: Cycles report the average return of all episodes, not just of those of the epoch (as the log
            does).
        exploration_policy: Behavior policy; ``None`` means the default.
        evaluate_every: Evaluate every n epochs; 0 means never.
        update_to_data: Gradient steps per environment step.
        n_step: Number of rewards to sum before bootstrapping.
        n_eval_trajs: Episodes of an evaluation, if the runner was given no evaluator.
        task_sampler: Variations of the environment to train in: a list of ``EnvUpdate``, or a sampler; ``None`` means
            the nominal environment.
        test_env_sampler: Task sampler of the evaluations; ``None`` means the nominal environment.
        seed: Source of all randomness of training; ``None`` means fresh entropy. Recorded in ``seed``.
        device: Device of the networks; ``None`` means the CPU.
    """

    @understands(OffPolicyConfig)
    def __init__(
        self,
        env_spec: Any,
        policy: Any,
        qf: Any,
        replay_buffer: Any,
        *,
        use_target: bool = False,
        discount: float = 0.99,
        steps_per_epoch: int = 20,
        max_path_length: int | None = None,
        max_eval_path_length: int | None = None,
        n_train_steps: int = 50,
        buffer_batch_size: int = 64,
        min_buffer_size: int = 10000,
        rollout_batch_size: int = 1,
        reward_scale: float = 1.0,
        smooth_return: bool = True,
        exploration_policy: Any = None,
        evaluate_every: int = 1,
        update_to_data: float = 1.0,
        n_step: int = 1,
        n_eval_trajs: int | None = None,
        task_sampler: Any = None,
        test_env_sampler: Any = None,
        seed: int | None = None,
        device: str | torch.device | None = None,
    ) -> None:
        self.use_target = use_target
        self.n_eval_trajs = n_eval_trajs
        super().__init__(
            env_spec,
            config_of(
                OffPolicyConfig,
                None,
                {
                    "discount": discount,
                    "steps_per_epoch": steps_per_epoch,
                    "max_path_length": max_path_length,
                    "max_eval_path_length": max_eval_path_length,
                    "n_train_steps": n_train_steps,
                    "buffer_batch_size": buffer_batch_size,
                    "min_buffer_size": min_buffer_size,
                    "rollout_batch_size": rollout_batch_size,
                    "reward_scale": reward_scale,
                    "smooth_return": smooth_return,
                    "evaluate_every": evaluate_every,
                    "update_to_data": update_to_data,
                    "n_step": n_step,
                },
            ),
            policy=policy,
            qf=qf,
            replay_buffer=replay_buffer,
            exploration_policy=exploration_policy,
            task_sampler=task_sampler,
            test_env_sampler=test_env_sampler,
            seed=seed,
            device=device,
        )

    @classmethod
    def __subclasshook__(cls, kind: type) -> Any:
        """Learners of metaroll are subclasses of the documented class, whichever constructor made them."""
        is_known = OffPolicyLearner in kind.__mro__ and cls is OffPolicyRLAlgorithm
        return True if is_known else NotImplemented

    @abstractmethod
    def train_once(self, itr: int, paths: Sequence[Mapping[str, Any]]) -> float:
        """See ``OffPolicyLearner.train_once``."""


class CEM(_CEM):
    """Cross-entropy method: a normal distribution of policy parameters, fitted to the best of its samples.

    The constructor is that of metarl.

    Args:
        env_spec: Environment or spec.
        policy: The policy to train; its parameters that require a gradient are searched.
        baseline: Kept as an attribute for code written for metarl; not used.
        n_samples: Number of candidates per epoch.
        discount: Discount factor of discounted_return in the log; the search maximizes undiscounted returns.
        max_path_length: Maximum number of steps of a rollout; ``None`` means the environment's time limit.
        init_std: Initial standard deviation of the candidates.
        best_frac: Share of the candidates that the distribution is fitted to; their number is rounded down.
        extra_std: Initial standard deviation of extra noise, which decays.
        extra_decay_time: Epochs until the extra noise is 0.
        covariance: Fit one deviation per parameter (diagonal), or the full covariance matrix (full).
        mirrored: Draw candidates in pairs on both sides of the mean.
        elitism: Evaluate the best candidate so far again in each epoch.
        trials: Evaluation of candidates; ``None`` means ``Trials()``.
        starts: Number of starts of the search, of which the best continues; ``None`` means one.
        task_sampler: Variations to evaluate candidates in: a list of ``EnvUpdate``, or a sampler; ``None`` means the
            nominal environment.
        test_env_sampler: Task sampler of the evaluations; ``None`` means the nominal environment.
        seed: Source of all randomness of training; ``None`` means fresh entropy. Recorded in ``seed``.
    """

    @understands(CEMLearnerConfig)
    def __init__(
        self,
        env_spec: Any,
        policy: ActingPolicy,
        baseline: Any,
        n_samples: int,
        discount: float = 0.99,
        max_path_length: int | None = 500,
        init_std: float = 1,
        best_frac: float = 0.05,
        extra_std: float = 1.0,
        extra_decay_time: float = 100,
        *,
        covariance: Literal["diagonal", "full"] = "diagonal",
        mirrored: bool = False,
        elitism: bool = False,
        trials: Trials | None = None,
        starts: Starts | None = None,
        task_sampler: Any = None,
        test_env_sampler: Any = None,
        seed: int | None = None,
    ) -> None:
        self.baseline = baseline
        super().__init__(
            env_spec,
            config_of(
                CEMLearnerConfig,
                None,
                {
                    "n_samples": n_samples,
                    "discount": discount,
                    "max_path_length": max_path_length,
                    "init_std": init_std,
                    "best_frac": best_frac,
                    "extra_std": extra_std,
                    "extra_decay_time": extra_decay_time,
                    "covariance": covariance,
                    "mirrored": mirrored,
                    "elitism": elitism,
                },
            ),
            policy=policy,
            trials=trials,
            starts=starts,
            task_sampler=task_sampler,
            test_env_sampler=test_env_sampler,
            seed=seed,
        )

    @classmethod
    def __subclasshook__(cls, kind: type) -> Any:
        """Learners of metaroll are subclasses of the documented class, whichever constructor made them."""
        is_known = _CEM in kind.__mro__ and cls is CEM
        return True if is_known else NotImplemented


class CMAES(_CMAES):
    """Covariance matrix adaptation evolution strategy over the parameters of a policy.

    The constructor is that of metarl.

    Args:
        env_spec: Environment or spec.
        policy: The policy to train; its parameters that require a gradient are searched.
        baseline: Kept as an attribute for code written for metarl; not used.
        n_samples: Number of candidates per epoch; ``None`` means 4 + int(3 ln P) for P parameters.
        discount: Discount factor of discounted_return in the log; the search maximizes undiscounted returns.
        max_path_length: Maximum number of steps of a rollout; ``None`` means the environment's time limit.
        sigma0: Initial standard deviation of the candidates.
        separable: Learn the diagonal of the covariance only; ``None`` means above 500 parameters.
        active: Also learn from the worse half of the candidates (with bounds, only for a diagonal covariance).
        mirrored: Draw candidates in pairs on both sides of the mean.
        elitism: Evaluate the best candidate so far again in each epoch.
        lower: Lower bound of every parameter; ``None`` means none.
        upper: Upper bound of every parameter; ``None`` means none.
        restarts: Restart a search that has ended: never (none), with twice as many candidates each time (ipop), or with
            alternating large and small populations (bipop).
        max_restarts: Maximum number of restarts (with large populations).
        reevaluated: Number of candidates to evaluate twice, to measure the noise of their ranks.
        max_repetitions: Maximum factor of the rollouts per candidate where noise dominates.
        target: Return that ends the training; ``None`` means none.
        trials: Evaluation of candidates; ``None`` means ``Trials()``.
        starts: Number of starts of the search, of which the best continues; ``None`` means one.
        task_sampler: Variations to evaluate candidates in: a list of ``EnvUpdate``, or a sampler; ``None`` means the
            nominal environment.
        test_env_sampler: Task sampler of the evaluations; ``None`` means the nominal environment.
        seed: Source of all randomness of training; ``None`` means fresh entropy. Recorded in ``seed``.
    """

    @understands(CMAESLearnerConfig)
    def __init__(
        self,
        env_spec: Any,
        policy: ActingPolicy,
        baseline: Any,
        n_samples: int | None,
        discount: float = 0.99,
        max_path_length: int | None = 500,
        sigma0: float = 1.0,
        *,
        separable: bool | None = None,
        active: bool = True,
        mirrored: bool = False,
        elitism: bool = False,
        lower: float | None = None,
        upper: float | None = None,
        restarts: Literal["none", "ipop", "bipop"] = "none",
        max_restarts: int = 9,
        reevaluated: int = 0,
        max_repetitions: float = 1.0,
        target: float | None = None,
        trials: Trials | None = None,
        starts: Starts | None = None,
        task_sampler: Any = None,
        test_env_sampler: Any = None,
        seed: int | None = None,
    ) -> None:
        self.baseline = baseline
        super().__init__(
            env_spec,
            config_of(
                CMAESLearnerConfig,
                None,
                {
                    "n_samples": n_samples,
                    "discount": discount,
                    "max_path_length": max_path_length,
                    "sigma0": sigma0,
                    "separable": separable,
                    "active": active,
                    "mirrored": mirrored,
                    "elitism": elitism,
                    "lower": lower,
                    "upper": upper,
                    "restarts": restarts,
                    "max_restarts": max_restarts,
                    "reevaluated": reevaluated,
                    "max_repetitions": max_repetitions,
                    "target": target,
                },
            ),
            policy=policy,
            trials=trials,
            starts=starts,
            task_sampler=task_sampler,
            test_env_sampler=test_env_sampler,
            seed=seed,
        )

    @classmethod
    def __subclasshook__(cls, kind: type) -> Any:
        """Learners of metaroll are subclasses of the documented class, whichever constructor made them."""
        is_known = _CMAES in kind.__mro__ and cls is CMAES
        return True if is_known else NotImplemented


class PEARL(_PEARL):
    """Probabilistic embeddings for actor-critic reinforcement learning (Rakelly et al. 2019, arXiv:1903.08254).

    The constructor is that of garage.

    Args:
        env: One ``EnvUpdate`` per train task.
        inner_policy: Policy on observation and latent, with actions in [-1, 1]; built from ``augment_env_spec``. Its
            actions are scaled to the bounds of the environment's action space.
        qf: Q function, called ``qf(observation | action, z)``; built from ``augment_env_spec``.
        vf: Value function, called ``vf(observation, z)``; built from ``get_env_spec(..., 'vf')``.
        num_train_tasks: Number of training tasks.
        num_test_tasks: Number of held-out tasks; ``None`` means all.
        latent_dim: Length of z.
        encoder_hidden_sizes: Hidden layers of the encoder.
        test_env_sampler: Task sampler of the meta-test.
        policy_class: Class of the context-conditioned policy.
        encoder_class: Class of the encoder, built with ``input_dim``, ``output_dim`` and ``hidden_sizes``.
        policy_lr: Learning rate of the inner policy.
        qf_lr: Learning rate of both Q functions.
        vf_lr: Learning rate of the value function.
        context_lr: Learning rate of the encoder.
        policy_mean_reg_coeff: Weight of the squared mean (before tanh) in the policy's loss.
        policy_std_reg_coeff: Weight of the squared log standard deviation.
        policy_pre_activation_coeff: Weight of the squared action before tanh.
        soft_target_tau: Polyak rate of the target value function, per gradient step.
        kl_lambda: Weight of the KL divergence of the belief from the prior.
        optimizer_class: Called as ``optimizer_class(parameters, lr=...)`` for each network.
        use_information_bottleneck: False makes z deterministic: the mean of the encoder's outputs.
        use_next_obs_in_context: Whether the context includes next observations (where dynamics differ by task).
        meta_batch_size: Tasks per gradient step (drawn with replacement).
        num_steps_per_epoch: Gradient steps per epoch.
        num_initial_steps: Environment steps per task before the first gradient step.
        num_tasks_sample: Tasks visited for new data per epoch (drawn with replacement).
        num_steps_prior: Steps per visit with z from the prior.
        num_steps_posterior: Steps per visit with z from the posterior.
        num_extra_rl_steps_posterior: Further steps with z from the posterior, for actor and critic only.
        batch_size: Transitions per task in a gradient step.
        embedding_batch_size: Context entries per task.
        embedding_mini_batch_size: Context entries read at a time; equals embedding_batch_size unless the encoder is
            recurrent.
        max_path_length: Maximum number of steps of a rollout.
        discount: Discount factor in [0, 1].
        replay_buffer_size: Maximum number of transitions kept per task and buffer.
        reward_scale: Factor of the rewards; acts as an inverse temperature.
        update_post_train: Episodes between updates of the posterior during collection. The first of them are collected
            under the prior.
        evaluate_every: Evaluate every n epochs; 0 means never.
        context_reward_key: Name of an env_info ('sparse_reward') that replaces the reward in the context; actor and
            critic keep the reward.
        memory_limit: Maximum size of the buffers in bytes, checked beforehand; ``None`` means no limit.
        env_spec: Spec of the nominal environment (not augmented); ``None`` builds ``env[0]()`` to read it.
        qf2: The second Q function; ``None`` means a copy of ``qf`` with newly initialized weights.
        seed: Source of all randomness of training; ``None`` means fresh entropy. Recorded in ``seed``.
        device: Device of the networks; ``None`` means the CPU. Data stay on the CPU.
        num_epochs: Planned number of epochs, for an estimate of the memory of its replay data; ``None`` assumes full
            buffers. Training does not depend on it.
    """

    @understands(PEARLConfig)
    def __init__(
        self,
        env: Sequence[EnvUpdate],
        inner_policy: nn.Module,
        qf: nn.Module,
        vf: nn.Module,
        num_train_tasks: int,
        num_test_tasks: int | None,
        latent_dim: int,
        encoder_hidden_sizes: Sequence[int],
        test_env_sampler: Any,
        policy_class: Callable[..., Any] = ContextConditionedPolicy,
        encoder_class: Callable[..., nn.Module] = MLPEncoder,
        policy_lr: float = 0.0003,
        qf_lr: float = 0.0003,
        vf_lr: float = 0.0003,
        context_lr: float = 0.0003,
        policy_mean_reg_coeff: float = 0.001,
        policy_std_reg_coeff: float = 0.001,
        policy_pre_activation_coeff: float = 0.0,
        soft_target_tau: float = 0.005,
        kl_lambda: float = 0.1,
        optimizer_class: Callable[..., torch.optim.Optimizer] = torch.optim.Adam,
        use_information_bottleneck: bool = True,
        use_next_obs_in_context: bool = False,
        meta_batch_size: int = 64,
        num_steps_per_epoch: int = 1000,
        num_initial_steps: int = 100,
        num_tasks_sample: int = 100,
        num_steps_prior: int = 100,
        num_steps_posterior: int = 0,
        num_extra_rl_steps_posterior: int = 100,
        batch_size: int = 1024,
        embedding_batch_size: int = 1024,
        embedding_mini_batch_size: int = 1024,
        max_path_length: int = 1000,
        discount: float = 0.99,
        replay_buffer_size: int = 1000000,
        reward_scale: float = 1,
        update_post_train: int = 1,
        *,
        evaluate_every: int = 1,
        context_reward_key: str | None = None,
        memory_limit: int | None = None,
        env_spec: EnvSpec | None = None,
        qf2: nn.Module | None = None,
        seed: int | None = None,
        device: str | torch.device | None = None,
        num_epochs: int | None = None,
    ) -> None:
        super().__init__(
            env,
            config_of(
                PEARLConfig,
                None,
                {
                    "num_train_tasks": num_train_tasks,
                    "num_test_tasks": num_test_tasks,
                    "latent_dim": latent_dim,
                    "encoder_hidden_sizes": encoder_hidden_sizes,
                    "policy_lr": policy_lr,
                    "qf_lr": qf_lr,
                    "vf_lr": vf_lr,
                    "context_lr": context_lr,
                    "policy_mean_reg_coeff": policy_mean_reg_coeff,
                    "policy_std_reg_coeff": policy_std_reg_coeff,
                    "policy_pre_activation_coeff": policy_pre_activation_coeff,
                    "soft_target_tau": soft_target_tau,
                    "kl_lambda": kl_lambda,
                    "use_information_bottleneck": use_information_bottleneck,
                    "use_next_obs_in_context": use_next_obs_in_context,
                    "meta_batch_size": meta_batch_size,
                    "num_steps_per_epoch": num_steps_per_epoch,
                    "num_initial_steps": num_initial_steps,
                    "num_tasks_sample": num_tasks_sample,
                    "num_steps_prior": num_steps_prior,
                    "num_steps_posterior": num_steps_posterior,
                    "num_extra_rl_steps_posterior": num_extra_rl_steps_posterior,
                    "batch_size": batch_size,
                    "embedding_batch_size": embedding_batch_size,
                    "embedding_mini_batch_size": embedding_mini_batch_size,
                    "max_path_length": max_path_length,
                    "discount": discount,
                    "replay_buffer_size": replay_buffer_size,
                    "reward_scale": reward_scale,
                    "update_post_train": update_post_train,
                    "evaluate_every": evaluate_every,
                    "context_reward_key": context_reward_key,
                    "memory_limit": memory_limit,
                },
            ),
            inner_policy=inner_policy,
            qf=qf,
            vf=vf,
            test_env_sampler=test_env_sampler,
            policy_class=policy_class,
            encoder_class=encoder_class,
            optimizer_class=optimizer_class,
            env_spec=env_spec,
            qf2=qf2,
            seed=seed,
            device=device,
            num_epochs=num_epochs,
        )

    @classmethod
    def __subclasshook__(cls, kind: type) -> Any:
        """Learners of metaroll are subclasses of the documented class, whichever constructor made them."""
        is_known = _PEARL in kind.__mro__ and cls is PEARL
        return True if is_known else NotImplemented


class MetaEvaluator(_MetaEvaluator):
    """Measures how well an algorithm adapts to tasks that it was not trained on.

    The constructor is that of garage; ``metaroll.training.evaluation.meta_evaluator`` describes the episodes of an
    evaluation.

    Args:
        test_task_sampler: Sampler of held-out tasks. They are drawn once, at the first evaluation.
        max_path_length: Steps per episode at most; ``None`` means the algorithm's.
        n_exploration_traj: Episodes per task to adapt to.
        n_test_tasks: Number of tasks; ``None`` means all of the sampler's.
        n_test_rollouts: Adapted episodes per task (episodes are counted, not steps).
        prefix: First part of the names of metrics.
        test_task_names: Names of the tasks, in the order of the sampler; tasks of one name are reported together.
        worker_class: ``DefaultWorker`` or ``PEARLWorker``, whose behavior the rollout engine reproduces.
        worker_args: Further arguments of the worker; its ``deterministic`` replaces the one below.
        repetitions: Independent repetitions of the whole procedure per task.
        deterministic: Act with the mean action (a latent z is still sampled).
        return_reward_key: Name of an env_info to sum instead of the reward.
        posterior_sampling: Adapt again after every exploration episode (PEARL's protocol), not once after all of them.
        num_prior_episodes: Episodes under the prior before the first adaptation, with posterior_sampling.
        deterministic_exploration: Whether exploration episodes are deterministic; ``None`` means the same as
            deterministic, but with noise for an algorithm that needs it (see AlgorithmInfo.deterministic_exploration).
        adaptation_rounds: How often exploration episodes are followed by an adaptation; ``None`` means once (or
            n_exploration_traj / episodes_per_round times). Without both, an algorithm that learns to adapt in several
            steps (AlgorithmInfo.inner_steps) has one round for each step, from the policy and episodes of the round
            before. Rounds are then equally long, with perhaps a few more than n_exploration_traj in all.
        episodes_per_round: Exploration episodes of each round; ``None`` means n_exploration_traj in all. If both are
            given, n_exploration_traj is their product.
        adapt_from: From the second round on, 'all' adapts an exploration policy from all exploration episodes so far;
            'last' adapts the policy that made the last round's episodes, from these alone (the next gradient step).
        seed: Seed of all episodes.
        allow_overlap: Do not refuse test tasks that are training tasks.
        all_tasks: Whether the test tasks are all there are, and no sample of many (see ``EvaluationResult``).
    """

    names_given: ClassVar[Mapping[str, str]] = {"max_steps": "max_path_length", "num_test_tasks": "n_test_tasks"}

    @understands(MetaEvaluationConfig, max_steps="max_path_length", num_test_tasks="n_test_tasks")
    def __init__(
        self,
        *,
        test_task_sampler: TaskSampler | None = None,
        max_path_length: float | None = None,
        n_exploration_traj: int = 10,
        n_test_tasks: int | None = None,
        n_test_rollouts: int = 1,
        prefix: str = "MetaTest",
        test_task_names: Sequence[str] | None = None,
        worker_class: type[Worker] | None = DefaultWorker,
        worker_args: Mapping[str, Any] | None = None,
        repetitions: int = 1,
        deterministic: bool = True,
        return_reward_key: str | None = None,
        posterior_sampling: bool = False,
        num_prior_episodes: int = 1,
        deterministic_exploration: bool | None = None,
        adaptation_rounds: int | None = None,
        episodes_per_round: int | None = None,
        adapt_from: Literal["last", "all"] = "all",
        seed: int = 0,
        allow_overlap: bool = False,
        all_tasks: bool = False,
    ) -> None:
        self.worker_class = worker_class
        self.worker_args = worker_args
        deterministic = evaluates_deterministically(worker_class, worker_args, deterministic)
        super().__init__(
            config_of(
                MetaEvaluationConfig,
                None,
                {
                    "n_exploration_traj": n_exploration_traj,
                    "n_test_rollouts": n_test_rollouts,
                    "repetitions": repetitions,
                    "deterministic": deterministic,
                    "return_reward_key": return_reward_key,
                    "posterior_sampling": posterior_sampling,
                    "num_prior_episodes": num_prior_episodes,
                    "deterministic_exploration": deterministic_exploration,
                    "adaptation_rounds": adaptation_rounds,
                    "episodes_per_round": episodes_per_round,
                    "adapt_from": adapt_from,
                },
            ),
            test_task_sampler=test_task_sampler,
            max_steps=max_path_length,
            num_test_tasks=n_test_tasks,
            prefix=prefix,
            test_task_names=test_task_names,
            seed=seed,
            allow_overlap=allow_overlap,
            all_tasks=all_tasks,
        )

    @classmethod
    def __subclasshook__(cls, kind: type) -> Any:
        """Learners of metaroll are subclasses of the documented class, whichever constructor made them."""
        is_known = _MetaEvaluator in kind.__mro__ and cls is MetaEvaluator
        return True if is_known else NotImplemented
