"""The settings of off-policy learners."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from metaroll.config import (
    Config,
    Count,
    Number,
    Positive,
    Share,
    UnusedWhere,
    UsedWhere,
    Was,
    Weight,
    Whole,
)
from metaroll.learners.base import Evaluated, RolloutLimit

__all__ = [
    "ActorCriticRates",
    "DDPGConfig",
    "DQNConfig",
    "DeterministicUpdate",
    "OffPolicyConfig",
    "PrioritiesConfig",
    "RandomFirst",
    "SACConfig",
    "SoftUpdate",
    "TD3Config",
    "ValueUpdate",
]


@dataclass(frozen=True, kw_only=True)
class OffPolicyConfig(RolloutLimit, Evaluated):
    """Collection and batch sizes of off-policy learners."""

    discount: Annotated[Share, "Discount factor."] = 0.99
    cycles_per_epoch: Annotated[
        Whole, Was("steps_per_epoch"), "Cycles per epoch; each collects steps, and then takes gradient steps."
    ] = 20
    max_eval_steps: Annotated[
        Whole | None,
        Was("max_eval_path_length"),
        "Maximum number of steps of a rollout in evaluations; null means max_steps.",
    ] = None
    gradient_steps: Annotated[Whole, Was("n_train_steps"), "Gradient steps per cycle."] = 50
    batch_size: Annotated[Whole, Was("buffer_batch_size"), "Replayed steps per gradient step."] = 64
    warmup_steps: Annotated[
        Count, Was("min_buffer_size"), "Environment steps to collect before the first gradient step."
    ] = 10_000
    num_envs: Annotated[Whole, Was("rollout_batch_size"), "Number of parallel rollouts."] = 1
    reward_scale: Annotated[Positive, "Factor applied to rewards in updates; they are stored unscaled."] = 1.0
    smooth_return: Annotated[
        bool, "Cycles report the average return of all episodes, not just of those of the epoch (as the log does)."
    ] = True
    update_to_data: Annotated[Positive, "Gradient steps per environment step."] = 1.0
    n_step: Annotated[Whole, "Number of rewards to sum before bootstrapping."] = 1
    replay_size: Annotated[Whole, "Capacity of the replay buffer, in steps."] = 1_000_000
    evaluate_every = 1


@dataclass(frozen=True, kw_only=True)
class RandomFirst(Config):
    """Initial random exploration."""

    random_steps: Annotated[Count, Was("uniform_steps"), "Initial environment steps with uniformly random actions."] = 0


@dataclass(frozen=True, kw_only=True)
class AddedNoise(RandomFirst):
    """Action noise of a deterministic policy."""

    exploration_noise: Annotated[
        Literal["gaussian", "ornstein-uhlenbeck"], "Independent Gaussian noise, or a correlated process."
    ] = "ornstein-uhlenbeck"
    exploration_sigma: Annotated[Weight, "Standard deviation of that noise, relative to actions in [-1, 1]."] = 0.2


@dataclass(frozen=True, kw_only=True)
class PrioritiesConfig(Config):
    """Prioritized replay (Schaul et al. 2016, arXiv:1511.05952)."""

    priority_exponent: Annotated[
        Weight | None, "Sample steps in proportion to this power of their last TD errors; null samples uniformly."
    ] = None
    importance_exponent: Annotated[
        Share,
        UnusedWhere("priority_exponent", None),
        "Importance-sampling correction for priorities, from 0 (none) to 1 (full).",
    ] = 0.4

    @property
    def weight_exponent(self) -> float | None:
        """Importance-sampling exponent; ``None``: there are no priorities."""
        return None if self.priority_exponent is None else self.importance_exponent


# ----------------------------------------------------------------------------------------------------- gradient steps
@dataclass(frozen=True, kw_only=True)
class ActorCriticRates(Config):
    """Learning rates of a policy and its critics, and the rate of their targets."""

    tau: Annotated[Share, Was("target_update_tau"), "Polyak rate of the target networks, per gradient step."] = 0.005
    policy_lr: Annotated[Positive, "Learning rate of the policy (Adam)."] = 1e-3
    qf_lr: Annotated[Positive, "Learning rate of the critics (Adam)."] = 1e-3


@dataclass(frozen=True, kw_only=True)
class SoftUpdate(ActorCriticRates):
    """The gradient steps of SAC and its variants (Haarnoja et al. 2018b, arXiv:1812.05905)."""

    target_entropy: Annotated[
        Number | None,
        UsedWhere("temperature", None),
        "Target entropy in nats, for actions in [-1, 1] or for choices; null means minus the number of entries of an "
        "action (0.7 ln n for n choices).",
    ] = None
    temperature: Annotated[
        Positive | None, "Fixed weight of the entropy bonus; null tunes it toward target_entropy."
    ] = None
    init_temperature: Annotated[Positive, UsedWhere("temperature", None), "Initial weight of the entropy bonus."] = 1.0
    policy_lr = 3e-4
    qf_lr = 3e-4
    temperature_lr: Annotated[Positive, UsedWhere("temperature", None), "Learning rate of the temperature (Adam)."] = (
        3e-4
    )


@dataclass(frozen=True, kw_only=True)
class DeterministicUpdate(ActorCriticRates):
    """The gradient steps of TD3 (Fujimoto et al. 2018, arXiv:1802.09477); DDPG has no delay and no smoothing."""

    policy_delay: Annotated[Whole, "Critic steps per step of the policy and the target networks."] = 2
    smoothing_std: Annotated[Weight, "Standard deviation of the noise on target actions, which lie in [-1, 1]."] = 0.2
    smoothing_clip: Annotated[Positive, UnusedWhere("smoothing_std", 0.0), "Bound of that noise."] = 0.5


@dataclass(frozen=True, kw_only=True)
class ValueUpdate(Config):
    """The gradient steps of DQN."""

    learning_rate: Annotated[Positive, Was("qf_lr"), "Learning rate (Adam)."] = 1e-4
    min_learning_rate: Annotated[
        Weight,
        Was("min_qf_lr"),
        UnusedWhere("lr_decay_steps", None),
        "Final learning rate, after lr_decay_steps.",
    ] = 0.0
    lr_decay_steps: Annotated[
        Whole | None,
        Was("qf_lr_steps"),
        "Gradient steps over which the learning rate decays linearly, so that late updates do not undo earlier ones; "
        "null keeps it constant.",
    ] = None
    double: Annotated[bool, "The online network chooses the best next action, the target network evaluates it."] = True
    target_update_steps: Annotated[Whole, "Gradient steps between copies into the target network."] = 1000
    max_grad_norm: Annotated[Positive | None, "Maximum norm of the gradient; null does not limit it."] = 10.0

    def check(self) -> None:
        super().check()
        if self.min_learning_rate > self.learning_rate:
            raise self.wrong("min_learning_rate", f"be at most {self.shown('learning_rate')}, from which it falls")

    def learning_rate_after(self, num_steps: int) -> float:
        """Learning rate after ``num_steps`` gradient steps."""
        if self.lr_decay_steps is None:
            return self.learning_rate
        left = max(0.0, 1.0 - num_steps / self.lr_decay_steps)
        return self.min_learning_rate + left * (self.learning_rate - self.min_learning_rate)


# ----------------------------------------------------------------------------------------------------------- learners
@dataclass(frozen=True, kw_only=True)
class SACConfig(PrioritiesConfig, RandomFirst, SoftUpdate, OffPolicyConfig):
    """Settings of ``SAC`` and ``DiscreteSAC``."""

    complete = True


@dataclass(frozen=True, kw_only=True)
class DDPGConfig(AddedNoise, ActorCriticRates, OffPolicyConfig):
    """Settings of ``DDPG``."""

    complete = True


@dataclass(frozen=True, kw_only=True)
class TD3Config(AddedNoise, DeterministicUpdate, OffPolicyConfig):
    """Settings of ``TD3``."""

    complete = True

    exploration_noise = "gaussian"
    exploration_sigma = 0.1


@dataclass(frozen=True, kw_only=True)
class DQNConfig(PrioritiesConfig, ValueUpdate, OffPolicyConfig):
    """Settings of ``DQN``."""

    complete = True

    dueling: Annotated[bool, "Default policy: dueling network, with a value and advantages."] = False
    max_epsilon: Annotated[Share, "Initial probability of a random action."] = 1.0
    min_epsilon: Annotated[Share, "Final probability of a random action."] = 0.05
    epsilon_steps: Annotated[Count, "Environment steps over which it decays."] = 10_000

    def check(self) -> None:
        super().check()
        if self.min_epsilon > self.max_epsilon:
            raise self.wrong("min_epsilon", f"be at most {self.shown('max_epsilon')}, from which it falls")
