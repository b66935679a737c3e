"""The settings of PEARL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from metaroll.config import Bounds, Config, Count, Positive, Share, UnusedWhere, Was, Weight, Whole
from metaroll.learners.base import Evaluated

__all__ = ["PEARLConfig", "PEARLUpdate"]


@dataclass(frozen=True, kw_only=True)
class PEARLUpdate(Config):
    """Hyperparameters of collection and learning; with equal ones and equal networks, snapshots are interchangeable."""

    # Learning rates and the weights of the losses.
    policy_lr: Annotated[Positive, "Learning rate of the inner policy."] = 3e-4
    qf_lr: Annotated[Positive, "Learning rate of both Q functions."] = 3e-4
    vf_lr: Annotated[Positive, "Learning rate of the value function."] = 3e-4
    context_lr: Annotated[Positive, "Learning rate of the encoder."] = 3e-4
    policy_mean_reg_coeff: Annotated[Weight, "Weight of the squared mean (before tanh) in the policy's loss."] = 1e-3
    policy_std_reg_coeff: Annotated[Weight, "Weight of the squared log standard deviation."] = 1e-3
    policy_pre_activation_coeff: Annotated[Weight, "Weight of the squared action before tanh."] = 0.0
    tau: Annotated[
        float,
        Bounds(0.0, 1.0, above_low=True),
        Was("soft_target_tau"),
        "Polyak rate of the target value function, per gradient step.",
    ] = 0.005
    kl_lambda: Annotated[
        Weight,
        UnusedWhere("use_information_bottleneck", False),
        "Weight of the KL divergence of the belief from the prior.",
    ] = 0.1
    discount: Annotated[Share, "Discount factor in [0, 1]."] = 0.99
    reward_scale: Annotated[Positive, "Factor of the rewards; acts as an inverse temperature."] = 1.0
    # Data of a gradient step.
    meta_batch_size: Annotated[Whole, "Tasks per gradient step (drawn with replacement)."] = 64
    gradient_steps: Annotated[Whole, Was("num_steps_per_epoch"), "Gradient steps per epoch."] = 1000
    batch_size: Annotated[Whole, "Transitions per task in a gradient step."] = 1024
    embedding_batch_size: Annotated[Whole, "Context entries per task."] = 1024
    embedding_mini_batch_size: Annotated[
        Whole, "Context entries read at a time; equals embedding_batch_size unless the encoder is recurrent."
    ] = 1024
    # Data collection.
    warmup_steps: Annotated[
        Whole, Was("num_initial_steps"), "Environment steps per task before the first gradient step."
    ] = 100
    tasks_per_epoch: Annotated[
        Whole, Was("num_tasks_sample"), "Tasks visited for new data per epoch (drawn with replacement)."
    ] = 100
    num_steps_prior: Annotated[Count, "Steps per visit with z from the prior."] = 100
    num_steps_posterior: Annotated[Count, "Steps per visit with z from the posterior."] = 0
    num_extra_rl_steps_posterior: Annotated[
        Count, "Further steps with z from the posterior, for actor and critic only."
    ] = 100
    max_steps: Annotated[Whole, Was("max_path_length"), "Maximum number of steps of a rollout."] = 1000
    update_post_train: Annotated[
        Whole,
        "Episodes between updates of the posterior during collection. The first of them are collected under the prior.",
    ] = 1
    replay_size: Annotated[
        Whole, Was("replay_buffer_size"), "Maximum number of transitions kept per task and buffer."
    ] = 1_000_000
    context_reward_key: Annotated[
        str | None,
        "Name of an env_info ('sparse_reward') that replaces the reward in the context; actor and critic keep the "
        "reward.",
    ] = None
    # The networks.
    latent_dim: Annotated[Whole, "Length of z."]
    num_train_tasks: Annotated[Whole, "Number of training tasks."]
    use_information_bottleneck: Annotated[bool, "False makes z deterministic: the mean of the encoder's outputs."] = (
        True
    )
    use_next_obs_in_context: Annotated[
        bool,
        Was("use_next_obs"),
        "Whether the context includes next observations (where dynamics differ by task).",
    ] = False

    def check(self) -> None:
        super().check()
        if self.embedding_batch_size % self.embedding_mini_batch_size:
            raise self.wrong("embedding_batch_size", f"be a multiple of {self.shown('embedding_mini_batch_size')}")
        if self.num_steps_prior + self.num_steps_posterior == 0:
            hint = "the context of a visited task would stay empty: collect an episode per visit under one of them"
            raise self.wrong("num_steps_prior", f"be positive with {self.shown('num_steps_posterior')}", hint)
        if self.replay_size < self.max_steps:
            raise self.wrong("replay_size", f"hold one rollout of {self.shown('max_steps')} steps")

    @property
    def num_context_slices(self) -> int:
        """Updates per gradient step: 1, or more for a recurrent encoder that reads its context in slices."""
        return self.embedding_batch_size // self.embedding_mini_batch_size

    def check_encoder(self, recurrent: bool) -> None:
        """Context slices require a recurrent encoder, which remembers the previous slices."""
        if not recurrent and self.num_context_slices != 1:
            expected = f"be as {self.shown('embedding_batch_size')} for an encoder that is not recurrent"
            raise self.wrong("embedding_mini_batch_size", expected, "set both to the same value")

    def most_transitions(self, num_epochs: int) -> int:
        """Maximum number of steps that ``num_epochs`` epochs collect, in all tasks."""
        visit = (self.num_steps_prior, self.num_steps_posterior, self.num_extra_rl_steps_posterior)
        return self.num_train_tasks * self._most(self.warmup_steps) + num_epochs * self.tasks_per_epoch * sum(
            map(self._most, visit)
        )

    def most_context(self) -> int:
        """Maximum number of steps in all contexts at one time: each visit clears those of the previous one."""
        visit = self._most(self.num_steps_prior) + self._most(self.num_steps_posterior)
        return self.num_train_tasks * max(self._most(self.warmup_steps), visit)

    def _most(self, num_steps: int) -> int:
        """Maximum number of steps of the fewest complete rollouts with at least ``num_steps``."""
        return num_steps + self.max_steps - 1 if num_steps else 0


@dataclass(frozen=True, kw_only=True)
class PEARLConfig(PEARLUpdate, Evaluated):
    """Settings of ``PEARL``."""

    complete = True

    num_test_tasks: Annotated[Whole | None, "Number of held-out tasks; null means all."]
    encoder_hidden_sizes: Annotated[tuple[Whole, ...], "Hidden layers of the encoder."]
    evaluate_every = 1
    memory_limit: Annotated[
        Whole | None, "Maximum size of the buffers in bytes, checked beforehand; null means no limit."
    ] = None
