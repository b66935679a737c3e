"""MAML's outer updates: how initial parameters improve, given samples before and after adaptation to M tasks.

Meta-parameters are one vector ``(Q,)``: the P parameters of the policy, and behind them P inner step sizes if these are
learned. There are K inner steps, and samples of K + 1 moments: before each of them, and after the last.
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
    """What an outer update remembers: Adam's moments, and K coefficients of the KL divergence."""

    first: Tensor
    second: Tensor
    num_steps: Tensor
    kl_coeffs: Tensor

    @property
    def adam(self) -> AdamState:
        """The part that is Adam's."""
        return AdamState(self.first, self.second, self.num_steps)


def first_state(meta_parameters: Tensor, num_inner_steps: int, kl_coeff: float) -> OuterState:
    """That before the first update."""
    none = torch.zeros_like(meta_parameters)
    return OuterState(none, none, none.new_zeros(()), none.new_full((num_inner_steps,), kl_coeff))


class MetaLosses(NamedTuple):
    """What is minimized ``(...)``, and ``KL(old || new)`` before each inner step ``(K, ...)`` and after the last.

    Divergences that nobody needs are zeros.
    """

    losses: Tensor
    inner_kl: Tensor
    outer_kl: Tensor


@dataclass(frozen=True)
class MetaProblem:
    """What of a learner is the same in all updates.

    Attributes:
        distribution: Of the policy, by flat parameters and observations.
        inner: What inner steps maximize.
        second_order: Whether derivatives go through inner gradients.
        step_sizes: Of the P parameters, unless they are learned; 0 for those that are not adapted.
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
    """Losses of one task ``()``, or of M tasks ``(M,)``; nothing waits for the device.

    Args:
        problem: What stays the same.
        outer: Says what is minimized.
        meta_parameters: ``(Q,)``; they require a gradient.
        steps: The samples of all K + 1 moments.
        state: Of ``outer``.
        differentiable: Whether derivatives will be asked for.
        divergences: Whether the divergences are wanted; without, there are those that ``outer`` penalizes.
    """
    order = (2 if problem.second_order else 1) if differentiable else 0
    passed = problem.adaptation(meta_parameters, steps[:-1], order)
    after = problem.distribution(passed.parameters[-1], steps[-1].observations)
    nothing = torch.zeros_like(steps[-1].score)
    inner_kl = torch.stack(
        [
            mean_kl(acts, samples) if divergences or outer.penalizes_kl else nothing
            for acts, samples in zip(passed.distributions, steps, strict=False)
        ]
    )
    losses = outer.losses(steps, passed.log_probs, log_prob_of(after, steps[-1]), inner_kl, state)
    return MetaLosses(losses, inner_kl, mean_kl(after, steps[-1]) if divergences else nothing)


class TaskLosses(Protocol):
    """Means over all tasks of what ``meta_losses`` gives."""

    def gradient(self, meta_parameters: Tensor, state: OuterState) -> tuple[Tensor, MetaLosses]:
        """The gradient ``(Q,)`` of the mean loss by what is trained, and the means."""
        ...

    def means(self, meta_parameters: Tensor, state: OuterState) -> MetaLosses:
        """The means alone."""
        ...

    def kl_product(self, meta_parameters: Tensor, state: OuterState) -> Callable[[Tensor], Tensor]:
        """Exact products of the Hessian of the mean ``outer_kl`` with vectors ``(Q,)``."""
        ...


class OuterUpdate(ABC):
    """One way to improve the meta-parameters; it holds settings only.

    Attributes:
        inner: What inner steps maximize in its publication.
        penalizes_kl: Whether its losses hold the divergences before inner steps.
        kl_coeff: Weight of these at first.
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
        """What is minimized in each task, ``(...)``.

        Args:
            steps: The samples of all K + 1 moments.
            before: Log-probabilities of the actions of the first K.
            after: Those of the last, with adapted parameters.
            inner_kl: ``(K, ...)``.
            state: What is remembered.
        """

    @property
    @abstractmethod
    def step_limits(self) -> dict[str, float]:
        """Settings that say how far an update goes, lower ones where updates diverge."""

    @abstractmethod
    def update(
        self, tasks: TaskLosses, meta_parameters: Tensor, state: OuterState
    ) -> tuple[Tensor, OuterState, dict[str, float]]:
        """Meta-parameters ``(Q,)`` and state afterwards, and numbers for the log."""


@dataclass(frozen=True, kw_only=True)
class AdamOuter(AdamConfig, OuterUpdate, ABC):
    """Steps of Adam along the meta-gradient, all on the same samples."""

    @property
    def step_limits(self) -> dict[str, float]:
        return {"learning_rate": self.learning_rate}

    def step_along(
        self, meta_parameters: Tensor, gradient: Tensor, state: OuterState
    ) -> tuple[Tensor, OuterState, Tensor]:
        """One step; the norm of the gradient is told, too."""
        gradient, norm = clipped_by_norm(gradient, self.max_grad_norm)
        following, adam = adam_step(meta_parameters, gradient, state.adam, self.learning_rate)
        return following, OuterState(*adam, state.kl_coeffs), norm

    def update(
        self, tasks: TaskLosses, meta_parameters: Tensor, state: OuterState
    ) -> tuple[Tensor, OuterState, dict[str, float]]:
        """``gradient_steps`` steps."""
        losses, norms = [], []
        for _ in range(self.gradient_steps):
            gradient, found = tasks.gradient(meta_parameters, state)
            meta_parameters, state, norm = self.step_along(meta_parameters, gradient, state)
            losses.append(float(found.losses))
            norms.append(float(norm))
        return meta_parameters, state, {"outer_loss": losses[0], "grad_norm": sum(norms) / len(norms)}


@final
@dataclass(frozen=True, kw_only=True)
class VPGOuter(AdamOuter):
    """The plain policy gradient after adaptation (Finn et al. 2017, arXiv:1703.03400, algorithm 3)."""

    def losses(self, steps: Any, before: Any, after: Tensor, inner_kl: Tensor, state: OuterState) -> Tensor:
        return -averaged(after * steps[-1].advantages, steps[-1].weights)


@final
@dataclass(frozen=True, kw_only=True)
class EMAMLOuter(AdamOuter):
    """The policy gradient after adaptation, and of what made the samples before it (Al-Shedivat et al. 2018,
    arXiv:1710.03641; Stadie et al. 2018, arXiv:1803.01118, equation 4): exploration is rewarded for what it led to.
    """

    def losses(self, steps: Any, before: Any, after: Tensor, inner_kl: Tensor, state: OuterState) -> Tensor:
        explored = sum(averaged(log_prob, found.weights) for log_prob, found in zip(before, steps, strict=False))
        return -averaged(after * steps[-1].advantages, steps[-1].weights) - steps[-1].score * explored


@final
@dataclass(frozen=True, kw_only=True)
class DICEOuter(AdamOuter):
    """The estimator with right derivatives of all orders (Foerster et al. 2018, arXiv:1802.05098), inside and out."""

    inner: ClassVar[InnerObjective] = "magic-box"

    def losses(self, steps: Any, before: Any, after: Tensor, inner_kl: Tensor, state: OuterState) -> Tensor:
        return -averaged(magic_box_objective(after, steps[-1].rewards), steps[-1].weights)


@final
@dataclass(frozen=True, kw_only=True)
class VPGDICEOuter(AdamOuter):
    """The plain policy gradient after inner steps along the estimator of Foerster et al. 2018 (arXiv:1802.05098)."""

    inner: ClassVar[InnerObjective] = "magic-box"

    def losses(self, steps: Any, before: Any, after: Tensor, inner_kl: Tensor, state: OuterState) -> Tensor:
        return -averaged(after * steps[-1].advantages, steps[-1].weights)


@final
@dataclass(frozen=True, kw_only=True)
class ProMPOuter(ProMPConfig, AdamOuter):
    """Proximal meta-policy search (Rothfuss et al. 2019, arXiv:1810.06784, equation 10).

    Several steps along a clipped objective after adaptation, with a penalty on the KL divergence of the policies before
    adaptation from those that made the samples.
    """

    penalizes_kl: ClassVar[bool] = True

    def losses(self, steps: Any, before: Any, after: Tensor, inner_kl: Tensor, state: OuterState) -> Tensor:
        last = steps[-1]
        clipped = ratio_objective(after, last.old_log_prob, last.advantages, self.clip_range)
        return torch.tensordot(state.kl_coeffs, inner_kl, 1) / len(inner_kl) - averaged(clipped, last.weights)

    def update(
        self, tasks: TaskLosses, meta_parameters: Tensor, state: OuterState
    ) -> tuple[Tensor, OuterState, dict[str, float]]:
        """``gradient_steps`` steps, then the coefficients follow the divergence."""
        following, state, numbers = super().update(tasks, meta_parameters, state)
        found = tasks.means(following, state)
        numbers |= {"outer_loss": float(found.losses)}  # before the first step it is 0, whatever was sampled
        numbers |= {"outer_kl": float(found.outer_kl), "pre_update_kl": float(found.inner_kl.mean())}
        if self.target_kl is not None:
            state = state._replace(kl_coeffs=self.adapted_coeffs(state.kl_coeffs, found.inner_kl))
            numbers["kl_coeff"] = float(state.kl_coeffs.mean())
        return following, state, numbers

    def adapted_coeffs(self, coeffs: Tensor, inner_kl: Tensor) -> Tensor:
        """Coefficients ``(K,)`` for the next iteration (Schulman et al. 2017, arXiv:1707.06347, section 4)."""
        assert self.target_kl is not None
        lower = torch.where(inner_kl < self.target_kl / 1.5, coeffs * 0.5, coeffs)
        return torch.where(inner_kl > self.target_kl * 1.5, coeffs * 2.0, lower)


@final
@dataclass(frozen=True, kw_only=True)
class TRPOOuter(TrustRegionConfig, OuterUpdate):
    """A step within a trust region (Schulman et al. 2015, arXiv:1502.05477), as Finn et al. 2017 use it for MAML.

    The direction solves ``H x = g`` by conjugate gradients with exact products of the Hessian H of the KL divergence
    after adaptation; a line search takes the first step that lowers the loss and keeps to the divergence.
    """

    def losses(self, steps: Any, before: Any, after: Tensor, inner_kl: Tensor, state: OuterState) -> Tensor:
        last = steps[-1]
        return -averaged(ratio_objective(after, last.old_log_prob, last.advantages), last.weights)

    @property
    def step_limits(self) -> dict[str, float]:
        return {"max_kl": self.max_kl}

    def direction(self, gradient: Tensor, product: Callable[[Tensor], Tensor]) -> Tensor:
        """The step ``(Q,)`` of the largest size that the quadratic model of the divergence allows."""

        def damped(vector: Tensor) -> Tensor:
            return product(vector) + self.damping * vector

        found = conjugate_gradient(damped, gradient, self.cg_iterations)
        curvature = found.dot(damped(found))
        scale = torch.where(curvature > 0.0, (2.0 * self.max_kl / curvature).sqrt(), 0.0)
        return -scale * found

    def update(
        self, tasks: TaskLosses, meta_parameters: Tensor, state: OuterState
    ) -> tuple[Tensor, OuterState, dict[str, float]]:
        """One step, or none where the line search finds none."""
        gradient, found = tasks.gradient(meta_parameters, state)
        step = self.direction(gradient, tasks.kl_product(meta_parameters, state))
        numbers = {"outer_loss": float(found.losses), "grad_norm": float(gradient.norm())}
        numbers["step_norm"] = float(step.norm())  # before the line search, which takes no step that is not finite
        for tries in range(self.max_backtracks):
            candidate = meta_parameters + self.backtrack_ratio**tries * step
            there = tasks.means(candidate, state)
            loss, divergence = float(there.losses), float(there.outer_kl)
            if loss < numbers["outer_loss"] and divergence <= self.max_kl:
                numbers["outer_loss"] = loss  # without a step it is 0, whatever was sampled
                return candidate, state, {**numbers, "outer_kl": divergence, "backtracks": float(tries)}
        return meta_parameters, state, {**numbers, "outer_kl": 0.0, "backtracks": float(self.max_backtracks)}
