"""The settings of MAML and its kin: how they adapt, and how what they adapt from improves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from metaroll.config import Bounds, Config, Positive, Share, UnusedWhere, Was, Weight, Whole
from metaroll.learners.base import AdamSteps, Evaluated, RolloutLimit, ScaledActions

__all__ = ["AdamConfig", "InnerConfig", "MAMLConfig", "ProMPConfig", "TrustRegionConfig"]


@dataclass(frozen=True, kw_only=True)
class InnerConfig(RolloutLimit):
    """How much is collected, and how inner steps are taken from it."""

    inner: Annotated[
        Literal["ratio", "log-likelihood", "magic-box"] | None,
        "What inner steps maximize (see functional.gradients.meta_gradients); null means that of outer.",
    ] = None
    meta_batch_size: Annotated[Whole, "Tasks of a meta-gradient step, drawn anew in every epoch."] = 20
    rollouts_per_task: Annotated[Whole, "Rollouts per task and moment."] = 20
    num_inner_steps: Annotated[Whole, "Gradient steps in each task."] = 1
    inner_lr: Annotated[Positive, Was("inner_step_size"), "Learning rate of the inner steps."] = 0.1
    later_inner_lr: Annotated[
        Positive | None,
        Was("later_step_size"),
        "Learning rate of the inner steps after the first, in a test; null means the same. Along normalized advantages "
        "steps do not get shorter by themselves where there is little left to gain.",
    ] = None
    learn_inner_lr: Annotated[
        bool,
        Was("learn_step_sizes"),
        "Learn an inner learning rate for each parameter (Li et al. 2017, arXiv:1707.09835).",
    ] = False
    second_order: Annotated[
        bool, "Whether derivatives go through the inner gradients; without, it is first-order MAML."
    ] = True
    adapt: Annotated[
        tuple[str, ...],
        "Beginnings of the names of parameters that inner steps change, as policy.net.layers.2 (see "
        "policy.parameter_layout().names); none means all. The last layer alone: Raghu et al. 2020, arXiv:1909.09157.",
    ] = ()
    discount: Annotated[Share, "Discount factor in [0, 1]."] = 0.99
    gae_lambda: Annotated[Share, "Trade-off between bias (0) and variance (1) of the advantages."] = 1.0
    normalize_advantages: Annotated[bool, "Give the advantages of each task mean 0 and standard deviation 1."] = True
    normalize_observations: Annotated[
        bool, "Give observations mean 0 and standard deviation 1, over all tasks; the statistics are not adapted."
    ] = False


@dataclass(frozen=True, kw_only=True)
class MAMLConfig(InnerConfig, ScaledActions, Evaluated):
    """Settings of ``MAML``, beside those of its outer update."""

    context_reward_key: Annotated[
        str | None,
        "Name of an env_info ('sparse_reward') that replaces the reward in what inner steps adapt to; the outer update "
        "goes by the reward itself.",
    ] = None


@dataclass(frozen=True, kw_only=True)
class TrustRegionConfig(Config):
    """Settings of ``TRPOOuter``."""

    max_kl: Annotated[
        Positive, "Maximum mean KL divergence of the adapted policies from those that made the samples."
    ] = 0.01
    cg_iterations: Annotated[Whole, "Products with the curvature in the method of conjugate gradients."] = 10
    damping: Annotated[Weight, "Added to the diagonal of the curvature."] = 1e-5
    backtrack_ratio: Annotated[
        float, Bounds(0.0, 1.0, above_low=True), "Factor of the step between two tries of the line search."
    ] = 0.8
    max_backtracks: Annotated[Whole, "Number of tries; after the last one nothing is changed."] = 15


@dataclass(frozen=True, kw_only=True)
class AdamConfig(AdamSteps):
    """Settings of outer updates by gradient steps."""

    gradient_steps: Annotated[Whole, Was("num_outer_steps"), "Gradient steps with the samples of one epoch."] = 1


@dataclass(frozen=True, kw_only=True)
class ProMPConfig(AdamConfig):
    """Settings of ``ProMPOuter``."""

    gradient_steps = 5
    clip_range: Annotated[
        Positive, "How far the probability ratio after adaptation may move from 1 before the objective is clipped."
    ] = 0.3
    kl_coeff: Annotated[Weight, "Weight of the KL divergence."] = 5e-4
    target_kl: Annotated[
        Positive | None,
        UnusedWhere("kl_coeff", 0.0),
        "The weight is halved after an epoch whose divergence is below this over 1.5, and doubled after one above 1.5 "
        "times this; null keeps it.",
    ] = None
