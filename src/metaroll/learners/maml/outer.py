"""MAML's outer updates of the initial parameters, given samples before and after adaptation to M tasks.

Meta-parameters are one vector ``(Q,)``: the P parameters of the policy, followed by P inner step sizes if these are
learned. There are K inner steps, and samples of K + 1 stages: before each step, and after the last.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, final

import torch
from torch import Tensor

from metaroll.functional.gradients.meta_gradients import (
    AdamState,
    Adaptation,
    Distribution,
    InnerObjective,
    Samples,
    adam_step,
    adapt,
    averaged,
    clipped_by_norm,
    conjugate_gradient,
    log_prob_of,
    mean_kl,
)
from metaroll.functional.gradients.surrogates import magic_box_objective, ratio_objective
from metaroll.learners.maml.configs import AdamConfig, ProMPConfig, TrustRegionConfig

__all__ = [
    "DICEOuter",
    "EMAMLOuter",
    "MetaLosses",
    "MetaProblem",
    "OuterState",
    "OuterUpdate",
    "ProMPOuter",
    "TRPOOuter",
    "TaskLosses",
    "VPGDICEOuter",
    "VPGOuter",
    "first_state",
    "meta_losses",
]


class OuterState(NamedTuple):
    """State of an outer update: Adam's moments, and K coefficients of the KL penalty."""

    first: Tensor
    second: Tensor
    num_steps: Tensor
    kl_coeffs: Tensor

    @property
    def adam(self) -> AdamState:
        """The state of Adam."""
        return AdamState(self.first, self.second, self.num_steps)


def first_state(meta_parameters: Tensor, num_inner_steps: int, kl_coeff: float) -> OuterState:
    """The state before the first update."""
    zeros = torch.zeros_like(meta_parameters)
    return OuterState(zeros, zeros, zeros.new_zeros(()), zeros.new_full((num_inner_steps,), kl_coeff))


class MetaLosses(NamedTuple):
    """Losses ``(...)``, and ``KL(old || new)`` before each inner step ``(K, ...)`` and after the last ``(...)``.

    Divergences that are not needed are zeros.
    """

    losses: Tensor
    inner_kl: Tensor
    outer_kl: Tensor


@dataclass(frozen=True)
class MetaProblem:
    """The constants of a learner in all its updates.

    Attributes:
        distribution: Action distribution of the policy, a function of flat parameters and observations.
        inner: Objective of inner steps.
        second_order: Whether to differentiate through inner gradients.
        step_sizes: Step sizes of the P parameters, unless they are learned; 0 for those that are not adapted.
        trained: 1 where outer updates change the meta-parameters, else 0, ``(Q,)``.
    """

    distribution: Distribution
    inner: InnerObjective
    second_order: bool
    step_sizes: Tensor
    trained: Tensor

    @property
    def adapted(self) -> Tensor:
        """1 for parameters that inner steps change, else 0, ``(P,)``."""
        return (self.step_sizes != 0.0).to(self.step_sizes.dtype)

    def split(self, meta_parameters: Tensor) -> tuple[Tensor, Tensor]:
        """Parameters of the policy and inner step sizes, both ``(P,)``."""
        count = len(self.step_sizes)
        if len(meta_parameters) == count:
            return meta_parameters, self.step_sizes
        return meta_parameters[:count], meta_parameters[count:]

    def adaptation(self, meta_parameters: Tensor, steps: Sequence[Samples], order: Literal[0, 1, 2]) -> Adaptation:
        """Inner steps on ``steps`` of one task, or of M."""
        parameters, step_sizes = self.split(meta_parameters)
        parameters = parameters.expand(*steps[0].weights.shape[:-2], -1)
        return adapt(parameters, steps, self.distribution, step_sizes, kind=self.inner, order=order)


def meta_losses(
    problem: MetaProblem,
    outer: OuterUpdate,
    meta_parameters: Tensor,
    steps: Sequence[Samples],
    state: OuterState,
    *,
    differentiable: bool = True,
    divergences: bool = True,
) -> MetaLosses:
    """Losses of one task ``()``, or of M tasks ``(M,)``, without synchronization with the device.

    Args:
        problem: The constants.
        outer: Defines the loss.
        meta_parameters: ``(Q,)``; they require a gradient.
        steps: The samples of all K + 1 stages.
        state: State of ``outer``.
        differentiable: Whether gradients will be needed.
        divergences: Whether to compute the divergences; otherwise only those that ``outer`` penalizes.
    """
    # Inner steps: theta_{k+1} = theta_k + alpha grad J_k(theta_k), k = 0 ... K - 1, (P,) or (M, P)
    order = (2 if problem.second_order else 1) if differentiable else 0
    adapted = problem.adaptation(meta_parameters, steps[:-1], order)
    # pi_{theta_K}(. | s) at the observations of the last stage, (..., B, L, ...)
    after = problem.distribution(adapted.parameters[-1], steps[-1].observations)
    zeros = torch.zeros_like(steps[-1].score)
    # KL(old || pi_{theta_k}) at each stage before an inner step, (K, ...)
    inner_kl = torch.stack(
        [
            mean_kl(distribution, samples) if divergences or outer.penalizes_kl else zeros
            for distribution, samples in zip(adapted.distributions, steps, strict=False)
        ]
    )
    # The outer loss, from ln pi of all stages, (..., B, L) each
    losses = outer.losses(steps, adapted.log_probs, log_prob_of(after, steps[-1]), inner_kl, state)
    return MetaLosses(losses, inner_kl, mean_kl(after, steps[-1]) if divergences else zeros)


class TaskLosses(Protocol):
    """Means of ``meta_losses`` over all tasks."""

    def gradient(self, meta_parameters: Tensor, state: OuterState) -> tuple[Tensor, MetaLosses]:
        """The gradient ``(Q,)`` of the mean loss with respect to the trained meta-parameters, and the means."""
        ...

    def means(self, meta_parameters: Tensor, state: OuterState) -> MetaLosses:
        """The means only."""
        ...

    def kl_product(self, meta_parameters: Tensor, state: OuterState) -> Callable[[Tensor], Tensor]:
        """Exact products of the Hessian of the mean ``outer_kl`` with vectors ``(Q,)``."""
        ...


class OuterUpdate(ABC):
    """An update of the meta-parameters; it holds settings only.

    Attributes:
        inner: Objective of inner steps in its publication.
        penalizes_kl: Whether its losses include the divergences before inner steps.
        kl_coeff: Initial weight of these.
    """

    inner: ClassVar[InnerObjective] = "ratio"
    penalizes_kl: ClassVar[bool] = False
    kl_coeff: float = 0.0

    @abstractmethod
    def losses(
        self,
        steps: Sequence[Samples],
        before: Sequence[Tensor],
        after: Tensor,
        inner_kl: Tensor,
        state: OuterState,
    ) -> Tensor:
        """The loss of each task, ``(...)``.

        Args:
            steps: The samples of all K + 1 stages.
            before: Log-probabilities of the actions of the first K stages.
            after: Log-probabilities of the last stage, with adapted parameters.
            inner_kl: ``(K, ...)``.
            state: State of the update.
        """

    @property
    @abstractmethod
    def step_limits(self) -> dict[str, float]:
        """Settings that limit the size of an update, to be lowered where updates diverge."""

    @abstractmethod
    def update(
        self, tasks: TaskLosses, meta_parameters: Tensor, state: OuterState
    ) -> tuple[Tensor, OuterState, dict[str, float]]:
        """New meta-parameters ``(Q,)``, new state, and numbers for the log."""


@dataclass(frozen=True, kw_only=True)
class AdamOuter(AdamConfig, OuterUpdate, ABC):
    """Adam steps along the meta-gradient, all on the same samples."""

    @property
    def step_limits(self) -> dict[str, float]:
        return {"learning_rate": self.learning_rate}

    def step_along(
        self, meta_parameters: Tensor, gradient: Tensor, state: OuterState
    ) -> tuple[Tensor, OuterState, Tensor]:
        """One Adam step; also returns the norm of the gradient."""
        # theta <- theta - lr Adam(g min(1, max_norm / |g|)), (Q,)
        gradient, norm = clipped_by_norm(gradient, self.max_grad_norm)
        following, adam = adam_step(meta_parameters, gradient, state.adam, self.learning_rate)
        return following, OuterState(*adam, state.kl_coeffs), norm

    def update(
        self, tasks: TaskLosses, meta_parameters: Tensor, state: OuterState
    ) -> tuple[Tensor, OuterState, dict[str, float]]:
        """``gradient_steps`` steps."""
        losses, norms = [], []
        for _ in range(self.gradient_steps):
            # g = mean over tasks of grad L_m, (Q,); Adam with a clipped norm
            gradient, means = tasks.gradient(meta_parameters, state)
            meta_parameters, state, norm = self.step_along(meta_parameters, gradient, state)
            losses.append(float(means.losses))
            norms.append(float(norm))
        return meta_parameters, state, {"outer_loss": losses[0], "grad_norm": sum(norms) / len(norms)}


@final
@dataclass(frozen=True, kw_only=True)
class VPGOuter(AdamOuter):
    """The plain policy gradient after adaptation (Finn et al. 2017, arXiv:1703.03400, algorithm 3)."""

    def losses(self, steps: Any, before: Any, after: Tensor, inner_kl: Tensor, state: OuterState) -> Tensor:
        # L = -mean(ln pi_{theta_K}(a | s) A), (..., B, L) -> (...)
        return -averaged(after * steps[-1].advantages, steps[-1].weights)


@final
@dataclass(frozen=True, kw_only=True)
class EMAMLOuter(AdamOuter):
    """The policy gradient after adaptation, plus that of the exploration before it (Al-Shedivat et al. 2018,
    arXiv:1710.03641; Stadie et al. 2018, arXiv:1803.01118, equation 4): exploration is credited with later returns.
    """

    def losses(self, steps: Any, before: Any, after: Tensor, inner_kl: Tensor, state: OuterState) -> Tensor:
        # sum_k mean(ln pi_{theta_k}(a_k | s_k)), (...): the actions that the task was explored with
        explored = sum(averaged(log_prob, samples.weights) for log_prob, samples in zip(before, steps, strict=False))
        # L = -mean(ln pi_{theta_K}(a | s) A) - R_K sum_k mean(ln pi_{theta_k}), (...)
        return -averaged(after * steps[-1].advantages, steps[-1].weights) - steps[-1].score * explored


@final
@dataclass(frozen=True, kw_only=True)
class DICEOuter(AdamOuter):
    """DiCE in inner and outer steps: unbiased derivatives of all orders (Foerster et al. 2018, arXiv:1802.05098)."""

    inner: ClassVar[InnerObjective] = "magic-box"

    def losses(self, steps: Any, before: Any, after: Tensor, inner_kl: Tensor, state: OuterState) -> Tensor:
        # L = -mean over paths of sum_t magic_box(sum_{t' <= t} ln pi(a_t' | s_t')) r_t, (..., B, L) -> (...)
        return -averaged(magic_box_objective(after, steps[-1].rewards), steps[-1].weights)


@final
@dataclass(frozen=True, kw_only=True)
class VPGDICEOuter(AdamOuter):
    """The plain policy gradient after inner steps with DiCE (Foerster et al. 2018, arXiv:1802.05098)."""

    inner: ClassVar[InnerObjective] = "magic-box"

    def losses(self, steps: Any, before: Any, after: Tensor, inner_kl: Tensor, state: OuterState) -> Tensor:
        # L = -mean(ln pi_{theta_K}(a | s) A), (..., B, L) -> (...)
        return -averaged(after * steps[-1].advantages, steps[-1].weights)


@final
@dataclass(frozen=True, kw_only=True)
class ProMPOuter(ProMPConfig, AdamOuter):
    """Proximal meta-policy search (Rothfuss et al. 2019, arXiv:1810.06784, section 6).

    Several steps along the clipped objective after adaptation, with a penalty on the KL divergence of the policies
    before adaptation from those that collected the samples.
    """

    penalizes_kl: ClassVar[bool] = True

    def losses(self, steps: Any, before: Any, after: Tensor, inner_kl: Tensor, state: OuterState) -> Tensor:
        # min(r A, clip(r, 1 - c, 1 + c) A), r = pi_{theta_K} / pi_old, (..., B, L)
        last = steps[-1]
        clipped = ratio_objective(after, last.old_log_prob, last.advantages, self.clip_range)
        # L = mean_k eta_k KL_k - mean(clipped), (...) (Rothfuss et al. 2019, section 6)
        return torch.tensordot(state.kl_coeffs, inner_kl, 1) / len(inner_kl) - averaged(clipped, last.weights)

    def update(
        self, tasks: TaskLosses, meta_parameters: Tensor, state: OuterState
    ) -> tuple[Tensor, OuterState, dict[str, float]]:
        """``gradient_steps`` steps, then an update of the coefficients from the divergence."""
        following, state, numbers = super().update(tasks, meta_parameters, state)
        means = tasks.means(following, state)
        numbers |= {"outer_loss": float(means.losses)}  # after the steps: before the first one it is always 0
        numbers |= {"outer_kl": float(means.outer_kl), "pre_update_kl": float(means.inner_kl.mean())}
        if self.target_kl is not None:
            state = state._replace(kl_coeffs=self.adapted_coeffs(state.kl_coeffs, means.inner_kl))
            numbers["kl_coeff"] = float(state.kl_coeffs.mean())
        return following, state, numbers

    def adapted_coeffs(self, coeffs: Tensor, inner_kl: Tensor) -> Tensor:
        """Coefficients ``(K,)`` for the next iteration (Schulman et al. 2017, arXiv:1707.06347, section 4)."""
        assert self.target_kl is not None
        # eta_k <- eta_k / 2 if KL_k < target / 1.5, 2 eta_k if KL_k > 1.5 target, else eta_k, (K,)
        lower = torch.where(inner_kl < self.target_kl / 1.5, coeffs * 0.5, coeffs)
        return torch.where(inner_kl > self.target_kl * 1.5, coeffs * 2.0, lower)


@final
@dataclass(frozen=True, kw_only=True)
class TRPOOuter(TrustRegionConfig, OuterUpdate):
    """A trust-region step (Schulman et al. 2015, arXiv:1502.05477), as Finn et al. 2017 use it for MAML.

    The direction solves ``H x = g`` by conjugate gradients with exact products of the Hessian H of the KL divergence
    after adaptation; a line search takes the first step that lowers the loss within the bound on the divergence.
    """

    def losses(self, steps: Any, before: Any, after: Tensor, inner_kl: Tensor, state: OuterState) -> Tensor:
        # L = -mean(pi_{theta_K}(a | s) / pi_old(a | s) A), (..., B, L) -> (...) (Schulman et al. 2015, equation 14)
        last = steps[-1]
        return -averaged(ratio_objective(after, last.old_log_prob, last.advantages), last.weights)

    @property
    def step_limits(self) -> dict[str, float]:
        return {"max_kl": self.max_kl}

    def direction(self, gradient: Tensor, product: Callable[[Tensor], Tensor]) -> Tensor:
        """The largest step ``(Q,)`` along the natural gradient that the quadratic model of the divergence allows."""

        def damped(vector: Tensor) -> Tensor:
            return product(vector) + self.damping * vector

        # x = (H + d I)^-1 g, (Q,), and its curvature x^T (H + d I) x, ()
        solution = conjugate_gradient(damped, gradient, self.cg_iterations)
        curvature = solution.dot(damped(solution))
        # -sqrt(2 delta / x^T H x) x: the quadratic model of the KL is delta there (Schulman et al. 2015, appendix C)
        scale = torch.where(curvature > 0.0, (2.0 * self.max_kl / curvature).sqrt(), 0.0)
        return -scale * solution

    def update(
        self, tasks: TaskLosses, meta_parameters: Tensor, state: OuterState
    ) -> tuple[Tensor, OuterState, dict[str, float]]:
        """One step, or none if the line search fails."""
        # g = mean over tasks of grad L_m, (Q,)
        gradient, means = tasks.gradient(meta_parameters, state)
        # Natural-gradient step -sqrt(2 delta / x^T H x) x with H x = g, (Q,)
        step = self.direction(gradient, tasks.kl_product(meta_parameters, state))
        numbers = {"outer_loss": float(means.losses), "grad_norm": float(gradient.norm())}
        numbers["step_norm"] = float(step.norm())  # before the line search, which rejects non-finite steps
        # Backtracking line search: the first theta + beta^j step with a lower loss and KL(old || new) <= delta
        for tries in range(self.max_backtracks):
            candidate = meta_parameters + self.backtrack_ratio**tries * step  # (Q,)
            means = tasks.means(candidate, state)
            loss, divergence = float(means.losses), float(means.outer_kl)
            if loss < numbers["outer_loss"] and divergence <= self.max_kl:
                numbers["outer_loss"] = loss  # after the step: before it, it is always 0
                return candidate, state, {**numbers, "outer_kl": divergence, "backtracks": float(tries)}
        return meta_parameters, state, {**numbers, "outer_kl": 0.0, "backtracks": float(self.max_backtracks)}
