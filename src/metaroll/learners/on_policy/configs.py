"""The settings of PPO, and of the learners built on it: EPOpt and RL2."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from metaroll.config import Added, Config, Positive, Share, Weight, Whole
from metaroll.errors import option_name, option_text
from metaroll.learners.base import Evaluated, NewData, ScaledActions

__all__ = ["PPOConfig", "PPOUpdate", "RL2Config"]


@dataclass(frozen=True, kw_only=True)
class PPOUpdate(NewData):
    """Hyperparameters of an update and of its data."""

    steps_per_epoch = 2048
    num_passes = 10
    batch_size: Annotated[
        Whole, "Minibatch size in steps; for recurrent policies, complete rollouts with about that many in total."
    ] = 64
    learning_rate = 3e-4
    lr_decay_epochs: Annotated[
        Whole | None,
        "Epochs over which the learning rate decays linearly to 0, after which learning stops; null keeps it constant.",
    ] = None
    clip_range: Annotated[Positive, "Clipping range of the probability ratio, around 1."] = 0.2
    value_clip_range: Annotated[
        Positive | None, "Clipping range of changes of the value, in units of the value; null does not clip."
    ] = None
    value_coeff: Annotated[Weight, "Weight of the squared value error."] = 0.5
    entropy_coeff: Annotated[Weight, "Weight of the entropy bonus."] = 0.0
    max_grad_norm = 0.5
    target_kl: Annotated[
        Positive | None, "Stop the epoch early when the KL divergence from its first policy exceeds 1.5 times this."
    ] = None
    discount: Annotated[Share, "Discount factor in [0, 1]."] = 0.99
    gae_lambda: Annotated[Share, "Trade-off between bias (0) and variance (1) of the advantages."] = 0.95
    bootstrap_truncated: Annotated[
        bool, Added(), "Bootstrap with the value of the last observation of truncated rollouts, instead of with 0."
    ] = True
    normalize_advantages: Annotated[bool, "Normalize the advantages of each minibatch to mean 0 and deviation 1."] = (
        True
    )
    normalize_observations: Annotated[bool, "Normalize observations to mean 0 and standard deviation 1."] = True
    normalize_returns: Annotated[bool, "Divide rewards by the standard deviation of their discounted sums."] = True
    adam_eps: Annotated[Positive, "Epsilon of Adam, added to the root of the second moment."] = 1e-5

    def learning_rate_at(self, epoch: int) -> float:
        """Learning rate of an epoch (from 0): decays linearly to 0 over ``lr_decay_epochs``, and stays there."""
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
        "The policy also observes domain_params (a teacher for distillation); its network must then fit "
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
            vary = option_text("randomize", "default", "privileged")
            raise self.wrong(
                "privileged", f"be left out without {name}", f"or name them, and vary them: {how} with {vary}"
            )


@dataclass(frozen=True, kw_only=True)
class RL2Config(Config):
    """Settings of ``RL2``, besides those of its PPO."""

    trials_per_epoch: Annotated[Whole, "Trials collected per epoch, each in a new task."] = 100
    across_episodes: Annotated[
        bool,
        "Whether the return continues across the ends of episodes, with one discount for the complete trial. "
        "Otherwise each episode counts for itself, and exploration for later ones is not rewarded.",
    ] = True
