"""The rollouts of an epoch: in each task, before every inner step and after the last."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from metaroll.data.step_sequence import StepSequence
from metaroll.errors import DivergedError
from metaroll.functional.gradients.meta_gradients import Samples, mean_cosine
from metaroll.learners.maml.configs import MAMLConfig
from metaroll.learners.maml.outer import MetaProblem, OuterState, OuterUpdate
from metaroll.learners.maml.samples import Gathered, SampleSettings, gather
from metaroll.learners.maml.tasks import InnerSteps, inner_steps, task_gradient, with_old
from metaroll.policies.normalized import NormalizedPolicy
from metaroll.types import EnvSpec, EnvUpdate, Runner

__all__ = ["Adapter", "MetaSamples", "collect"]

_MAX_NAMED = 3


@dataclass(frozen=True)
class MetaSamples:
    """The data of one epoch.

    Attributes:
        steps: Samples of the K + 1 stages, each with a leading axis M.
        returns: Mean return of each stage and task, ``(K + 1, M)``.
        inner_kl: ``KL(before || after)`` of each inner step and task, ``(K, M)``.
        cosine: Mean cosine similarity of the tasks' gradients in the first inner step.
        explained_variance: Explained variance of the baselines at the last stage.
        episode_length: Mean over all rollouts.
        observations: All observations, ``(T, obs_dim)``.
        tasks: The tasks.
    """

    steps: list[Samples]
    returns: np.ndarray
    inner_kl: np.ndarray
    cosine: float
    explained_variance: float
    episode_length: float
    observations: np.ndarray
    tasks: Sequence[Any]

    def refuse_non_finite(
        self,
        problem: MetaProblem,
        outer: OuterUpdate,
        before: tuple[Tensor, OuterState],
        after: tuple[Tensor, OuterState],
        numbers: Mapping[str, float],
    ) -> None:
        """Raise if an outer update led from parameters and state ``before`` to non-finite ones.

        Args:
            problem, outer: Constants and outer update of the learner.
            before, after: Meta-parameters and state.
            numbers: Metrics of the update; checked, too, since a line search rejects non-finite losses silently.

        Raises:
            DivergedError: Names the tasks with non-finite gradients, or all tasks if every gradient is finite.
        """
        if all(map(math.isfinite, numbers.values())) and all(map(_is_finite, (after[0], *after[1]))):
            return
        count = len(self.tasks)
        own = [[samples.map(lambda array, m=m: array[m]) for samples in self.steps] for m in range(count)]
        slopes = [task_gradient(problem, outer, before[0], steps, before[1])[0] for steps in own]
        bad = [m for m, slope in enumerate(slopes) if not _is_finite(slope)] or list(range(count))
        raise DivergedError.of(
            f"the outer update is not finite in {len(bad)} of {count} tasks: {_named(bad, self.tasks)} "
            f"({dict(numbers)})",
            outer.step_limits,
        )

    def metrics(self) -> dict[str, float]:
        """Metrics that show whether the policy adapts, or only averages over tasks.

        ``return_before`` and ``return_after`` (also ``return``) are means over tasks, ``gain`` is their difference and
        ``share_worse`` the share of tasks with a lower return after adaptation; ``inner_kl`` is the change of a policy
        by an inner step, ``gradient_cosine`` the similarity of the tasks' gradients: 1 means the same direction.
        """
        before, after = self.returns[0], self.returns[-1]
        return {
            "return": float(after.mean()),
            "return_before": float(before.mean()),
            "return_after": float(after.mean()),
            "gain": float((after - before).mean()),
            "share_worse": float((after < before).mean()),
            "inner_kl": float(self.inner_kl.mean()),
            "gradient_cosine": self.cosine,
            "explained_variance": self.explained_variance,
            "episode_length": self.episode_length,
        }


@dataclass(frozen=True)
class Adapter:
    """Computes adapted parameters from rollouts, in training and in tests alike."""

    problem: MetaProblem
    policy: NormalizedPolicy
    env_spec: EnvSpec
    settings: SampleSettings
    device: torch.device
    inner_lr: float

    def samples(
        self,
        groups: Sequence[Sequence[StepSequence]],
        parameters: Tensor,
        tasks: Sequence[Any] | None = None,
        *,
        is_context: bool = True,
    ) -> tuple[Gathered, Samples]:
        """Samples of the rollouts ``groups[m]`` of policies with ``parameters (P,)`` or ``(M, P)`` in their ``tasks``.

        ``is_context``: the rollouts are used for adaptation, not for the outer objective.
        """
        gathered = gather(groups, self.policy, self.env_spec, self.settings, self.device, tasks, is_context=is_context)
        return gathered, with_old(self.problem, parameters, gathered.samples)

    def inner_step(
        self,
        meta: Tensor,
        parameters: Tensor,
        samples: Samples,
        tasks: Sequence[Any],
        scales: Tensor | None = None,
    ) -> InnerSteps:
        """One inner step in each task; see ``inner_steps``.

        Raises:
            DivergedError: It leads to non-finite policies; names the ``tasks``.
        """
        taken = inner_steps(self.problem, meta, parameters, samples, scales)
        finite = (torch.isfinite(taken.parameters).all(dim=1) & torch.isfinite(taken.kl)).cpu().numpy()
        if finite.all():
            return taken
        bad = np.flatnonzero(~finite).tolist()
        raise DivergedError.of(
            f"an inner step diverges: policies are not finite in {len(bad)} of {len(finite)} tasks: "
            f"{_named(bad, tasks)}",
            {"inner_lr": self.inner_lr},
        )


def _named(numbers: Sequence[int], tasks: Sequence[Any]) -> str:
    num_more = len(numbers) - _MAX_NAMED
    names = ", ".join(f"{i} ({tasks[i]})" for i in numbers[:_MAX_NAMED])
    return names + (f" and {num_more} more" if num_more > 0 else "")


def _is_finite(tensor: Tensor) -> bool:
    return bool(torch.isfinite(tensor).all())


def collect(runner: Runner, tasks: list[EnvUpdate], adapter: Adapter, meta: Tensor, config: MAMLConfig) -> MetaSamples:
    """Rollouts in ``tasks`` before every inner step from ``meta (Q,)``, and after the last.

    Raises:
        DivergedError: See ``Adapter.inner_step``.
    """
    parameters = adapter.problem.split(meta)[0]
    gathered: list[Gathered] = []
    steps: list[Samples] = []
    divergences: list[np.ndarray] = []
    cosine, task_list = float("nan"), [update.task for update in tasks]
    for k in range(config.num_inner_steps + 1):
        groups = runner.obtain_samples(
            runner.step_itr,
            env_update=tasks,
            num_rollouts=config.rollouts_per_task,
            parameters=parameters.cpu().numpy(),
        )
        # Samples of stage k: theta_k collected them, (M, B, L, ...)
        stage, samples = adapter.samples(groups, parameters, task_list, is_context=k < config.num_inner_steps)
        gathered.append(stage)
        steps.append(samples)
        if k < config.num_inner_steps:
            # theta_{k+1} = theta_k + alpha grad J_k(theta_k), (M, P)
            taken = adapter.inner_step(meta, parameters, samples, task_list)
            parameters = taken.parameters
            divergences.append(taken.kl.cpu().numpy())
            cosine = float(mean_cosine(taken.gradients * adapter.problem.adapted)) if k == 0 else cosine
    return MetaSamples(
        steps=steps,
        returns=np.stack([each.returns for each in gathered]),
        inner_kl=np.stack(divergences),
        cosine=cosine,
        explained_variance=gathered[-1].explained_variance,
        episode_length=float(np.concatenate([each.data.lengths for each in gathered]).mean()),
        observations=np.concatenate([each.data.observations for each in gathered]),
        tasks=task_list,
    )
