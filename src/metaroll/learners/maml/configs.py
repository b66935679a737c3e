"""The settings of MAML and its relatives: adaptation, and outer updates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from metaroll.config import Bounds, Config, Positive, Share, UnusedWhere, Was, Weight, Whole
from metaroll.learners.base import AdamSteps, Evaluated, RolloutLimit, ScaledActions

__all__ = ["AdamConfig", "InnerConfig", "MAMLConfig", "ProMPConfig", "TrustRegionConfig"]


@dataclass(frozen=True, kw_only=True)
class InnerConfig(RolloutLimit):
    """Amount of data per epoch, and the inner steps."""

    inner: Annotated[
        Literal["ratio", "log-likelihood", "magic-box"] | None,
        "Objective of inner steps (see functional.gradients.meta_gradients); null means that of outer.",
    ] = None
    meta_batch_size: Annotated[Whole, "Tasks per meta-gradient step, drawn in every epoch."] = 20
    rollouts_per_task: Annotated[Whole, "Rollouts per task before each inner step, and after the last."] = 20
    num_inner_steps: Annotated[Whole, "Gradient steps in each task."] = 1
    inner_lr: Annotated[Positive, Was("inner_step_size"), "Learning rate of the inner steps."] = 0.1
    later_inner_lr: Annotated[
        Positive | None,
        Was("later_step_size"),
        "Learning rate of the inner steps after the first, in a test; null means the same. With normalized advantages, "
        "steps do not shrink by themselves close to an optimum.",
    ] = None
    learn_inner_lr: Annotated[
        bool,
        Was("learn_step_sizes"),
        "Learn an inner learning rate for each parameter (Li et al. 2017, arXiv:1707.09835).",
    ] = False
    second_order: Annotated[
        bool, "Whether to differentiate through the inner gradients; otherwise it is first-order MAML."
    ] = True
    adapt: Annotated[
        tuple[str, ...],
        "Prefixes of the names of parameters that inner steps change, such as policy.net.layers.2 (see "
        "policy.parameter_layout().names); none means all. The last layer alone: Raghu et al. 2020, arXiv:1909.09157.",
    ] = ()
    discount: Annotated[Share, "Discount factor in [0, 1]."] = 0.99
    gae_lambda: Annotated[Share, "Trade-off between bias (0) and variance (1) of the advantages."] = 1.0
    normalize_advantages: Annotated[bool, "Normalize the advantages of each task to mean 0 and deviation 1."] = True
    normalize_observations: Annotated[
        bool, "Normalize observations to mean 0 and deviation 1, over all tasks; the statistics are not adapted."
    ] = False


@dataclass(frozen=True, kw_only=True)
class MAMLConfig(InnerConfig, ScaledActions, Evaluated):
    """Settings of ``MAML``, besides those of its outer update."""

    context_reward_key: Annotated[
        str | None,
        "Name of an env_info ('sparse_reward') that replaces the reward in inner steps; the outer update uses the "
        "reward itself.",
    ] = None


@dataclass(frozen=True, kw_only=True)
class TrustRegionConfig(Config):
    """Settings of ``TRPOOuter``."""

    max_kl: Annotated[
        Positive, "Maximum mean KL divergence of the adapted policies from those that collected the samples."
    ] = 0.01
    cg_iterations: Annotated[Whole, "Iterations of the conjugate gradient method (Hessian-vector products)."] = 10
    damping: Annotated[Weight, "Added to the diagonal of the Hessian."] = 1e-5
    backtrack_ratio: Annotated[
        float, Bounds(0.0, 1.0, above_low=True), "Factor of the step between two tries of the line search."
    ] = 0.8
    max_backtracks: Annotated[Whole, "Number of tries of the line search; if all fail, no step is taken."] = 15


@dataclass(frozen=True, kw_only=True)
class AdamConfig(AdamSteps):
    """Settings of outer updates by gradient steps."""

    gradient_steps: Annotated[Whole, Was("num_outer_steps"), "Gradient steps with the samples of one epoch."] = 1


@dataclass(frozen=True, kw_only=True)
class ProMPConfig(AdamConfig):
    """Settings of ``ProMPOuter``."""

    gradient_steps = 5
    clip_range: Annotated[Positive, "Clipping range of the probability ratio after adaptation, around 1."] = 0.3
    kl_coeff: Annotated[Weight, "Weight of the KL divergence."] = 5e-4
    target_kl: Annotated[
        Positive | None,
        UnusedWhere("kl_coeff", 0.0),
        "Halve the weight after an epoch whose divergence is below this / 1.5, double it after one above 1.5 times "
        "this; null keeps it constant.",
    ] = None
