"""Settings shared by several algorithms beside their learners: networks, environments, replay, outer updates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from metaroll.config import Config, Positive, Share, Was, Whole
from metaroll.errors import option_text
from metaroll.own_code import is_named

__all__ = [
    "DICEOuterChoice",
    "DomainRanges",
    "Domains",
    "GoalReplay",
    "HeldOutDomains",
    "HeldOutTasks",
    "MAMLOuterChoice",
    "MetaNetworks",
    "OwnNetwork",
    "PolicyNetworks",
    "ReluNetworks",
    "Replay",
    "TanhNetworks",
    "TrainTasks",
    "TrialSizes",
]


# ------------------------------------------------------------------------------------------------------------ networks
@dataclass(frozen=True, kw_only=True)
class OwnNetwork(Config):
    """A user's own network in the policy."""

    policy: Annotated[
        str | None,
        "Your own network, as module:attribute: a torch.nn.Module, or a function that makes one from an EnvSpec. It "
        "replaces the hidden layers of the policy, and the policy's output layer follows it (null: hidden_sizes).",
    ] = None

    def check(self) -> None:
        super().check()
        if self.policy is not None and not is_named(self.policy):
            usual = option_text("hidden_sizes", (64, 64))
            raise self.wrong(
                "policy",
                "be module:attribute of a torch.nn.Module",
                f"leave it out for the usual network, whose widths are {usual}",
            )


@dataclass(frozen=True, kw_only=True)
class ReluNetworks(OwnNetwork):
    """Networks of off-policy learners."""

    hidden_nonlinearity: Annotated[Literal["tanh", "relu"], "Activation of the hidden layers."] = "relu"


@dataclass(frozen=True, kw_only=True)
class TanhNetworks(OwnNetwork):
    """Networks of searches."""

    hidden_nonlinearity: Annotated[Literal["tanh", "relu"], "Activation of the hidden layers."] = "tanh"


@dataclass(frozen=True, kw_only=True)
class PolicyNetworks(TanhNetworks):
    """Networks of policy-gradient learners."""

    network: Annotated[
        Literal["mlp", "gru"],
        "Policy without memory (mlp) or with (gru, as wide as the first of hidden_sizes).",
    ] = "mlp"
    init_std: Annotated[Positive, "Standard deviation of the actions at first, where they lie in [-1, 1]."] = 1.0


@dataclass(frozen=True, kw_only=True)
class MetaNetworks(PolicyNetworks):
    """Networks of learners of the MAML family."""

    init_std = 0.5


# ---------------------------------------------------------------------------------------- environments to train in
@dataclass(frozen=True, kw_only=True)
class TrainTasks(Config):
    """Tasks of a family to train in."""

    num_train_tasks: Annotated[Whole | None, "Number of training tasks of a task family."] = None


@dataclass(frozen=True, kw_only=True)
class DomainRanges(Config):
    """Which domain parameters vary, and how many sets of them are held out."""

    randomize_param: Annotated[
        tuple[str, ...],
        "A domain parameter that is uniform on a range, NAME=LOW:HIGH, as length=0.3:0.7 in CartPole-v1, or "
        "body_mass:torso=3:10 in MuJoCo; may be given several times, and replaces randomize.",
    ] = ()
    num_test_tasks: Annotated[
        Whole | None, "Number of held-out tasks, or of held-out sets of domain parameters (null: 20 of them)."
    ] = None


@dataclass(frozen=True, kw_only=True)
class HeldOutDomains(DomainRanges):
    """Random domain parameters to train in."""

    randomize: Annotated[
        Literal["none", "default", "conservative"],
        "Train in, and evaluate on, random domain parameters: those usual for a simulated system, or half as wide. Not "
        "for task families, which draw their own.",
    ] = "none"


@dataclass(frozen=True, kw_only=True)
class Domains(TrainTasks, HeldOutDomains):
    """Random domain parameters, or tasks of a family, to train in."""


@dataclass(frozen=True, kw_only=True)
class HeldOutTasks(TrainTasks):
    """Tasks of a family that learners adapt to."""

    num_test_tasks: Annotated[Whole | None, "Number of held-out tasks."] = None


@dataclass(frozen=True, kw_only=True)
class TrialSizes(HeldOutTasks):
    """Trials of several episodes of one task."""

    episodes_per_trial: Annotated[Whole, "Episodes of one task that share the memory and are trained on together."] = 2
    max_steps: Annotated[Whole | None, Was("max_path_length"), "Maximum number of steps of an episode."] = None
    init_std: Annotated[Positive, "Standard deviation of the actions at first, where they lie in [-1, 1]."] = 1.0
    context_reward_key: Annotated[
        str | None,
        "Name of an env_info ('sparse_reward') that the memory sees as last reward; null means the reward itself, "
        "which training always uses.",
    ] = None
    num_train_tasks: Annotated[
        Whole | None, "Number of training tasks of the family; null draws new ones in every epoch, if the family can."
    ] = None


@dataclass(frozen=True, kw_only=True)
class Replay(Config):
    """A replay buffer that is built for a run."""

    memory_limit: Annotated[
        Whole | None, "Maximum size of the replay buffer in bytes; null means the memory of this machine."
    ] = None


@dataclass(frozen=True, kw_only=True)
class GoalReplay(Replay):
    """The same, with goals in hindsight."""

    hindsight_ratio: Annotated[
        Share,
        "Share of replayed steps that get a goal which was reached later in their episode (e.g. 0.8), in an "
        "environment with goals in its observations and compute_reward(achieved, desired, info).",
    ] = 0.0


# -------------------------------------------------------------------------------------------------- outer updates
@dataclass(frozen=True, kw_only=True)
class MAMLOuterChoice(Config):
    """How MAML's initial parameters improve."""

    outer: Annotated[
        Literal["trpo", "vpg", "emaml"],
        "By a trust region, by the plain policy gradient, or by the latter with credit for the samples before "
        "adaptation. max_kl, cg_iterations, damping, backtrack_ratio and max_backtracks belong to the first; "
        "learning_rate, gradient_steps and max_grad_norm to the others.",
    ] = "trpo"


@dataclass(frozen=True, kw_only=True)
class DICEOuterChoice(Config):
    """How DICE's initial parameters improve."""

    outer: Annotated[
        Literal["dice", "vpg-dice"],
        "By DICE's estimator as well, or by the plain policy gradient after inner steps with DICE.",
    ] = "dice"
