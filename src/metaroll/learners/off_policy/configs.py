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
    """How off-policy learners collect, and how much data a gradient step takes."""

    discount: Annotated[Share, "Discount factor."] = 0.99
    cycles_per_epoch: Annotated[
        Whole, Was("steps_per_epoch"), "Cycles of an epoch; each collects steps, and then takes gradient steps."
    ] = 20
    max_eval_steps: Annotated[
        Whole | None,
        Was("max_eval_path_length"),
        "Maximum number of steps of a rollout in evaluations; null means max_steps.",
    ] = None
    gradient_steps: Annotated[Whole, Was("n_train_steps"), "Gradient steps of each cycle."] = 50
    batch_size: Annotated[Whole, Was("buffer_batch_size"), "Replayed steps of a gradient step."] = 64
    warmup_steps: Annotated[
        Count, Was("min_buffer_size"), "Environment steps to collect before the first gradient step."
    ] = 10_000
    num_envs: Annotated[Whole, Was("rollout_batch_size"), "Number of rollouts that go on side by side."] = 1
    reward_scale: Annotated[
        Positive, "What rewards are multiplied with as they enter an update; they are stored as they are."
    ] = 1.0
    smooth_return: Annotated[
        bool, "Cycles tell the average return of all episodes, rather than of those of the epoch (which the log has)."
    ] = True
    update_to_data: Annotated[Positive, "Gradient steps per environment step."] = 1.0
    n_step: Annotated[Whole, "Rewards to sum before the value of an observation counts."] = 1
    replay_size: Annotated[Whole, "Steps that the replay buffer keeps."] = 1_000_000
    evaluate_every = 1


@dataclass(frozen=True, kw_only=True)
class RandomFirst(Config):
    """How exploration begins."""

    random_steps: Annotated[
        Count, Was("uniform_steps"), "Environment steps at first with uniformly random actions."
    ] = 0


@dataclass(frozen=True, kw_only=True)
class AddedNoise(RandomFirst):
    """Noise that is added to the actions of a deterministic policy."""

    exploration_noise: Annotated[
        Literal["gaussian", "ornstein-uhlenbeck"], "Noise without memory, or a process with memory."
    ] = "ornstein-uhlenbeck"
    exploration_sigma: Annotated[Weight, "Size of that noise, where actions lie in [-1, 1]."] = 0.2


@dataclass(frozen=True, kw_only=True)
class PrioritiesConfig(Config):
    """Prioritized replay (Schaul et al. 2016, arXiv:1511.05952)."""

    priority_exponent: Annotated[
        Weight | None, "Draw steps in proportion to this power of their last errors; null draws uniformly."
    ] = None
    importance_exponent: Annotated[
        Share,
        UnusedWhere("priority_exponent", None),
        "How far weights make up for priorities, from 0 (not at all) to 1.",
    ] = 0.4

    @property
    def weight_exponent(self) -> float | None:
        """How far weights make up for priorities; ``None``: there are none."""
        return None if self.priority_exponent is None else self.importance_exponent


# ----------------------------------------------------------------------------------------------------- gradient steps
@dataclass(frozen=True, kw_only=True)
class ActorCriticRates(Config):
    """Rates of a policy, its critics and their targets."""

    tau: Annotated[
        Share, Was("target_update_tau"), "Target rate: how far target networks move in one gradient step."
    ] = 0.005
    policy_lr: Annotated[Positive, "Learning rate of the policy (Adam)."] = 1e-3
    qf_lr: Annotated[Positive, "Learning rate of the critics (Adam)."] = 1e-3


@dataclass(frozen=True, kw_only=True)
class SoftUpdate(ActorCriticRates):
    """The gradient steps of SAC and its kin (Haarnoja et al. 2018b, arXiv:1812.05905)."""

    target_entropy: Annotated[
        Number | None,
        UsedWhere("temperature", None),
        "The entropy that is aimed at, of actions in [-1, 1], or in nats of choices; null means minus the entries of "
        "an action (0.7 ln n of n choices).",
    ] = None
    temperature: Annotated[
        Positive | None, "What entropy counts beside rewards, fixed; null means that it follows target_entropy."
    ] = None
    init_temperature: Annotated[Positive, UsedWhere("temperature", None), "What entropy counts at first."] = 1.0
    policy_lr = 3e-4
    qf_lr = 3e-4
    temperature_lr: Annotated[Positive, UsedWhere("temperature", None), "Learning rate of the temperature (Adam)."] = (
        3e-4
    )


@dataclass(frozen=True, kw_only=True)
class DeterministicUpdate(ActorCriticRates):
    """The gradient steps of TD3 (Fujimoto et al. 2018, arXiv:1802.09477); those of DDPG delay and smooth nothing."""

    policy_delay: Annotated[Whole, "Gradient steps of the critics for each of the policy and the target networks."] = 2
    smoothing_std: Annotated[
        Weight, "Standard deviation of the noise in actions of the target policy, which lie in [-1, 1]."
    ] = 0.2
    smoothing_clip: Annotated[Positive, UnusedWhere("smoothing_std", 0.0), "Bound of that noise."] = 0.5


@dataclass(frozen=True, kw_only=True)
class ValueUpdate(Config):
    """The gradient steps of DQN."""

    learning_rate: Annotated[Positive, Was("qf_lr"), "Learning rate (Adam)."] = 1e-4
    min_learning_rate: Annotated[
        Weight,
        Was("min_qf_lr"),
        UnusedWhere("lr_decay_steps", None),
        "What the learning rate falls to in lr_decay_steps.",
    ] = 0.0
    lr_decay_steps: Annotated[
        Whole | None,
        Was("qf_lr_steps"),
        "Gradient steps in which the learning rate falls linearly, so that what is learned last is no worse than what "
        "was learned before; null: it stays as it is.",
    ] = None
    double: Annotated[
        bool, "The network that is learned chooses the best next action, the target network says its value."
    ] = True
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

    dueling: Annotated[bool, "Without a policy: make one whose network gives a value and advantages."] = False
    max_epsilon: Annotated[Share, "Probability of a random action at first."] = 1.0
    min_epsilon: Annotated[Share, "The same in the end."] = 0.05
    epsilon_steps: Annotated[Count, "Environment steps in which it falls."] = 10_000

    def check(self) -> None:
        super().check()
        if self.min_epsilon > self.max_epsilon:
            raise self.wrong("min_epsilon", f"be at most {self.shown('max_epsilon')}, from which it falls")
