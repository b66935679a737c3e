"""The settings of PPO, and of what stands on it: EPOpt and RL2."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from metaroll.config import Added, Config, Positive, Share, Weight, Whole
from metaroll.errors import option_name, option_text
from metaroll.learners.base import Evaluated, NewData, ScaledActions

__all__ = ["PPOConfig", "PPOUpdate", "RL2Config"]


@dataclass(frozen=True, kw_only=True)
class PPOUpdate(NewData):
    """All numbers of an update, and of what it is made from."""

    steps_per_epoch = 2048
    num_passes = 10
    batch_size: Annotated[
        Whole, "Steps of a gradient step; of a recurrent policy whole rollouts with about so many steps together."
    ] = 64
    learning_rate = 3e-4
    lr_decay_epochs: Annotated[
        Whole | None,
        "Epochs over which the learning rate falls linearly to 0, after which nothing is learned; null keeps it.",
    ] = None
    clip_range: Annotated[
        Positive, "How far the probability ratio may move from 1 before the objective is clipped."
    ] = 0.2
    value_clip_range: Annotated[
        Positive | None, "The same for changes of the value, in its own units; null does not clip."
    ] = None
    value_coeff: Annotated[Weight, "Weight of the squared error of the values."] = 0.5
    entropy_coeff: Annotated[Weight, "Weight of the entropy bonus."] = 0.0
    max_grad_norm = 0.5
    target_kl: Annotated[
        Positive | None, "The epoch ends early when the KL divergence from its first policy is over 1.5 times this."
    ] = None
    discount: Annotated[Share, "Discount factor in [0, 1]."] = 0.99
    gae_lambda: Annotated[Share, "Trade-off between bias (0) and variance (1) of the advantages."] = 0.95
    bootstrap_truncated: Annotated[
        bool, Added(), "Count the value of the last observation of a rollout that was cut off, rather than nothing."
    ] = True
    normalize_advantages: Annotated[bool, "Give the advantages of each minibatch mean 0 and standard deviation 1."] = (
        True
    )
    normalize_observations: Annotated[bool, "Give observations mean 0 and standard deviation 1."] = True
    normalize_returns: Annotated[bool, "Divide rewards by the standard deviation of their discounted sums."] = True
    adam_eps: Annotated[Positive, "Added to the root of Adam's second moment."] = 1e-5

    def learning_rate_at(self, epoch: int) -> float:
        """Learning rate of the epoch (from 0): falls linearly to 0 over ``lr_decay_epochs``, and stays there."""
        if self.lr_decay_epochs is None:
            return self.learning_rate
        return self.learning_rate * max(0.0, 1.0 - epoch / self.lr_decay_epochs)


@dataclass(frozen=True, kw_only=True)
class PPOConfig(PPOUpdate, ScaledActions, Evaluated):
    """Settings of ``PPO``."""

    complete = True

    domain_params: Annotated[
        tuple[str, ...],
        "Names of domain parameters that the critic, but not the policy, observes (an asymmetric critic).",
    ] = ()
    privileged: Annotated[
        bool,
        "The policy observes domain_params, too (a teacher for distillation); its network then is built for "
        "metaroll.plugins.widened_spec.",
    ] = False
    gradients: Annotated[
        Literal["auto", "numpy", "autograd"],
        "By hand in NumPy, by autograd, or (auto) by hand where the networks allow it.",
    ] = "auto"

    def check(self) -> None:
        super().check()
        if len(set(self.domain_params)) != len(self.domain_params):
            raise self.wrong("domain_params", "differ from one another")
        if self.privileged and not self.domain_params:
            name, how = (
                option_name("domain_params", "privileged"),
                option_text("domain_params", ["pole_mass"], "privileged"),
            )
            raise self.wrong("privileged", f"be left out without {name}", f"or name them: {how}")


@dataclass(frozen=True, kw_only=True)
class RL2Config(Config):
    """Settings of ``RL2``, beside those of its PPO."""

    trials_per_epoch: Annotated[Whole, "Trials that are collected per epoch, each in a task of its own."] = 100
    across_episodes: Annotated[
        bool,
        "Whether the return goes on after the end of an episode, with one discount for the whole trial. Without it "
        "every episode is worth what it earns itself, and exploration for later ones is worth nothing.",
    ] = True
