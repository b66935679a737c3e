"""Distillation: a student without privileges learns to act as a privileged teacher does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from metaroll.checks import check_seed
from metaroll.config import config_of
from metaroll.data.rollouts import Rollouts
from metaroll.data.step_sequence import StepSequence
from metaroll.errors import SnapshotError
from metaroll.functional.running_moments import Moments, add_rows
from metaroll.learners.distillation_config import DistillationConfig
from metaroll.learners.runner import Runner
from metaroll.learners.snapshots import fingerprint_of, shapes_of
from metaroll.learners.training import (
    KNOWN_EPOCHS,
    EpochLearner,
    Progress,
    TrainingTasks,
    episode_metrics,
    horizon_of,
    refuse_non_finite,
)
from metaroll.policies.acting import ActingPolicy
from metaroll.policies.last_action import LastActionPolicy
from metaroll.policies.normalized import NormalizedPolicy
from metaroll.processing.on_policy import collect_on_policy, pad_rollouts, rollout_groups
from metaroll.processing.relabel import label_actions
from metaroll.seeding import derive_seed, fresh_seed
from metaroll.state import load_optimizer_tree, load_or_keep, optimizer_tree, weights_of
from metaroll.types import EnvSpec, Policy

__all__ = ["Distillation", "LabeledRollouts"]


class Distillation(EpochLearner):
    """Trains a policy to do, from observations alone, what a privileged teacher does, which observes domain parameters.

    A student with memory can find out from the last steps what the teacher observes (rapid motor adaptation, Kumar et
    al. 2021, arXiv:2107.04034). The student acts, the teacher says what it would have done at each step, and the
    student is made to do that with the greatest likelihood (DAgger: Ross et al. 2011, arXiv:1011.0686): so it learns
    in the situations that it brings itself into. In the first epochs the teacher acts.

    Args:
        env_spec: Environment or spec.
        config: Settings; ``None`` means the defaults.
        teacher: Any policy of metaroll; it is not trained. One with ``domain_params`` observes those of each rollout.
        student: What is trained: ``GRUGaussianPolicy``, or any policy of metaroll with ``evaluate_actions``, perhaps in
            a ``LastActionPolicy``. Moments of observations that a ``NormalizedPolicy`` has count for ten epochs.
        task_sampler: Variations of the environment to train in, drawn anew every epoch: a list of ``EnvUpdate``, or a
            sampler of them; ``None`` means the nominal environment.
        test_env_sampler: Task sampler of the evaluations; ``None`` means the nominal environment.
        seed: Source of all randomness of training; ``None`` means fresh entropy. Recorded in ``seed``.
        device: Where the student lives; ``None`` means the CPU.
        options: Settings by name, in place of those of ``config``.
    """

    def __init__(
        self,
        env_spec: Any,
        config: DistillationConfig | None = None,
        *,
        teacher: Any,
        student: ActingPolicy,
        task_sampler: Any = None,
        test_env_sampler: Any = None,
        seed: int | None = None,
        device: str | torch.device | None = None,
        **options: Any,
    ) -> None:
        self.env_spec = EnvSpec.from_env(env_spec)
        self.config = config = config_of(DistillationConfig, config, options, type(self))
        self.max_path_length = horizon_of(config.max_steps, self.env_spec)
        self.evaluate_every, self.test_env_sampler = config.evaluate_every, test_env_sampler
        self.seed = fresh_seed() if seed is None else check_seed("seed", seed)
        self._tasks = TrainingTasks(task_sampler, derive_seed("distillation tasks", self.seed))

        self.teacher = _checked_teacher(teacher, self.env_spec)
        self._device = torch.device("cpu" if device is None else device)
        self._policy = (
            student if isinstance(student, NormalizedPolicy) else NormalizedPolicy(student, True, config.scale_actions)
        )
        _check_student(self._policy, self.env_spec)
        self._policy.to(self._device)
        self._weights = [p for p in self._policy.parameters() if p.requires_grad]
        self._optimizer = torch.optim.Adam(self._weights, lr=config.learning_rate, foreach=True)
        self._moments = self._policy.observation_moments(KNOWN_EPOCHS * config.steps_per_epoch)
        self._memory = LabeledRollouts(config.replay_size)
        self._generator = np.random.default_rng(derive_seed("distillation batches", self.seed))
        self._num_epochs = 0

    @property
    def policy(self) -> NormalizedPolicy:
        """The student."""
        return self._policy

    def collect(self, runner: Runner) -> Rollouts:
        """The rollouts of one epoch, of the student, or (in the first epochs) of the teacher."""
        actor = self.teacher if self._num_epochs < self.config.teacher_epochs else None
        steps = self.config.steps_per_epoch
        num_tasks = self.config.tasks_per_epoch or -(-steps // self.max_path_length)
        return self._tasks.collect(runner, num_tasks, steps, None, actor)

    def update(self, rollouts: Sequence[StepSequence], progress: Progress | None = None) -> dict[str, float]:
        """Have the teacher label ``rollouts``, and learn from them and the last ones; what it took and gave.

        Raises:
            DivergedError: Weights are not finite any more.
        """
        found = Rollouts.of(rollouts)
        data = collect_on_policy(found, self.env_spec)
        applied = found.column("actions").reshape(data.actions.shape).astype(data.actions.dtype, copy=False)
        taken, labels = (self._own_units(rows) for rows in (applied, label_actions(self.teacher, data, found)))
        if self._policy.normalize_observations:
            self._moments = add_rows(self._moments, data.observations)
            self._policy.set_observation_moments(self._moments.mean, self._moments.std)
        self._memory.add(data.observations.astype(np.float32), taken, labels, data.bounds)
        losses = self._passes(progress)
        by_teacher = self._num_epochs < self.config.teacher_epochs
        self._num_epochs += 1
        loss = float(np.mean(losses))
        refuse_non_finite({"loss": loss}, self._weights, self._num_epochs, self.config.learning_rate)
        metrics = {
            **episode_metrics(data),
            "loss": loss,
            "gradient_steps": float(len(losses)),
            "memory_steps": float(len(self._memory)),
            "disagreement": _disagreement(taken, labels),
        }
        return {**metrics, "teacher_return": metrics["return"]} if by_teacher else metrics

    def fingerprint(self) -> str:
        """Class, networks and settings as a short text; a snapshot fits a learner with the same one."""
        kinds = [type(self._policy.policy).__name__, type(self.teacher).__name__, *shapes_of(self._policy)]
        c = self.config
        sizes = {
            "steps_per_epoch": c.steps_per_epoch,
            "memory_steps": c.replay_size,
            "num_passes": c.num_passes,
            "batch_size": c.batch_size,
            "max_path_length": self.max_path_length,
        }
        settings = [*sizes.items(), c.teacher_epochs, c.learning_rate, c.max_grad_norm, c.tasks_per_epoch]
        return fingerprint_of(self, *kinds, *map(repr, settings))

    def state_dict(self) -> dict[str, Any]:
        """Weights of the student and of the teacher, optimizer, moments, generators and counters."""
        return {
            "student": weights_of(self._policy),
            "teacher": weights_of(self.teacher) if isinstance(self.teacher, nn.Module) else {},
            "optimizer": optimizer_tree(self._optimizer),
            "moments": self._moments.to_dict(),
            "variations": self._tasks.state_dict(),
            "batches": self._generator.bit_generator.state,
            "counters": {"seed": self.seed, "epochs": self._num_epochs},
        }

    def load_state_dict(self, tree: Mapping[str, Any]) -> None:
        """Restore ``state_dict``, bitwise identical; the teacher, too, if it is a torch module.

        Raises:
            SnapshotError: ``tree`` does not fit; nothing was changed.
        """
        load_or_keep(type(self).__name__, self._load, tree, self.state_dict())

    def _load(self, tree: Mapping[str, Any]) -> None:
        self._policy.load_state_dict(tree["student"])
        if isinstance(self.teacher, nn.Module) and tree["teacher"]:
            self.teacher.load_state_dict(tree["teacher"])
        load_optimizer_tree(self._optimizer, tree["optimizer"])
        self._moments = Moments.from_dict(tree["moments"], self._policy.input_dim)
        self._tasks.load_state_dict(tree["variations"])
        self._generator.bit_generator.state = tree["batches"]
        self.seed, self._num_epochs = int(tree["counters"]["seed"]), int(tree["counters"]["epochs"])

    def buffers_state_dict(self, copy: bool = True) -> dict[str, Any]:
        """The labeled rollouts."""
        return self._memory.state_dict()

    def load_buffers_state_dict(self, tree: Mapping[str, Any]) -> None:
        """Restore ``buffers_state_dict``."""
        self._memory.load_state_dict(tree)

    # -- helpers -------------------------------------------------------------------------------------------------------

    def _own_units(self, actions: np.ndarray) -> np.ndarray:
        """Actions of the environment as the student's network gives them; choices as they are."""
        return self._policy.unscaled(actions) if actions.dtype.kind == "f" else actions

    def _passes(self, progress: Progress | None) -> list[float]:
        """Losses of the gradient steps of an epoch."""
        losses: list[float] = []
        number = self.config.num_passes
        for _ in range(number):
            groups = self._minibatches()
            for group in groups:
                losses.append(self._step(group))
                if progress is not None:
                    progress(min(len(losses), number * len(groups)), number * len(groups))
        return losses

    def _minibatches(self) -> list[list[int]]:
        order = self._generator.permutation(len(self._memory.bounds) - 1).tolist()
        return list(rollout_groups(order, self._memory.bounds, self.config.batch_size))

    def _step(self, group: list[int]) -> float:
        """One gradient step on rollouts ``group``; the loss before it, the negative log-likelihood per step."""
        memory = self._memory
        parts = (memory.observations, memory.taken, memory.labels)
        seen, taken, labels = (pad_rollouts(rows, memory.bounds, group) for rows in parts)
        lengths = torch.from_numpy(np.diff(memory.bounds)[group])
        valid = (torch.arange(seen.shape[1]) < lengths[:, None]).to(self._device)
        rows = torch.from_numpy(self._policy.normalized(seen)).to(self._device)
        log_prob = self._log_prob(
            rows, torch.from_numpy(taken).to(self._device), torch.from_numpy(labels).to(self._device)
        )
        loss = -log_prob[valid].mean()
        self._optimizer.zero_grad(set_to_none=True)
        loss.backward()
        if self.config.max_grad_norm is not None:
            nn.utils.clip_grad_norm_(self._weights, self.config.max_grad_norm)
        self._optimizer.step()
        return float(loss.detach())

    def _log_prob(self, rows: torch.Tensor, taken: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Log-likelihood ``(N, T)`` of the labels, after observations ``(N, T, obs_dim)`` and the actions taken."""
        network = self._policy.policy
        if isinstance(network, LastActionPolicy):
            rows, network = network.with_last_actions(rows, taken), network.policy
        return network.evaluate_actions(rows, labels)[0]


def _disagreement(taken: np.ndarray, labels: np.ndarray) -> float:
    """Root mean square difference of actions; of choices the share that differs."""
    if labels.dtype.kind == "f":
        return float(np.sqrt(np.mean(np.square(taken - labels))))
    return float(np.mean(taken != labels))


def _checked_teacher(teacher: Any, env_spec: EnvSpec) -> Any:
    if not isinstance(teacher, Policy):
        raise TypeError(f"teacher must be a policy of metaroll (see as_policy), got {type(teacher).__name__}")
    spec = teacher.env_spec if isinstance(teacher, ActingPolicy) else env_spec
    if (spec.obs_dim, spec.act_dim) != (env_spec.obs_dim, env_spec.act_dim):
        raise ValueError(
            f"teacher must be trained in an environment with {env_spec.obs_dim} observations and {env_spec.act_dim} "
            f"actions, as env_spec has them, got {spec.obs_dim} and {spec.act_dim}"
        )
    return teacher


def _check_student(policy: NormalizedPolicy, env_spec: EnvSpec) -> None:
    if not policy.policy.has_densities:
        raise TypeError(f"student must have evaluate_actions(obs, actions), which {type(policy.policy).__name__} lacks")
    if policy.domain_params:
        raise ValueError(f"student must not observe domain parameters, got one that observes {policy.domain_params}")
    if (policy.obs_dim, policy.act_dim) != (env_spec.obs_dim, env_spec.act_dim):
        raise ValueError(
            f"student must be built for the spaces of env_spec ({env_spec.obs_dim} observations, {env_spec.act_dim} "
            f"actions), got {policy.obs_dim} and {policy.act_dim}"
        )


_COLUMNS = ("observations", "taken", "labels")


class LabeledRollouts:
    """Whole rollouts, one after the other; the oldest go when there are more than ``most_steps`` steps.

    Attributes:
        observations: As the environment gave them, ``(T, obs_dim)``.
        taken: Actions that were taken ``(T, ...)``.
        labels: Actions of the teacher ``(T, ...)``.
        bounds: First step of every rollout, then T, ``(R+1,)``.
    """

    def __init__(self, most_steps: int) -> None:
        self._most_steps = most_steps
        self.observations = self.taken = self.labels = np.zeros((0, 0), dtype=np.float32)
        self.bounds = np.zeros(1, dtype=np.int64)

    def __len__(self) -> int:
        return len(self.observations)

    def add(self, observations: np.ndarray, taken: np.ndarray, labels: np.ndarray, bounds: np.ndarray) -> None:
        """Append rollouts, and forget the oldest ones beyond ``most_steps``; the newest rollout always stays."""
        ends = np.concatenate([self.bounds[1:], bounds[1:] + len(self)])
        starts = np.concatenate([[0], ends[:-1]])
        cut = int(starts[min(int(np.searchsorted(starts, ends[-1] - self._most_steps)), len(starts) - 1)])
        for name, rows in zip(_COLUMNS, (observations, taken, labels), strict=True):
            old = getattr(self, name)
            joined = np.concatenate([old, rows]) if len(old) else np.array(rows)
            setattr(self, name, joined[cut:].copy())
        self.bounds = np.concatenate([[0], ends[ends > cut] - cut])

    def state_dict(self) -> dict[str, Any]:
        """All arrays."""
        return {name: getattr(self, name) for name in (*_COLUMNS, "bounds")}

    def load_state_dict(self, tree: Mapping[str, Any]) -> None:
        """Restore ``state_dict``."""
        missing = {*_COLUMNS, "bounds"} - set(tree)
        if missing:
            raise SnapshotError(f"the saved rollouts of a distillation lack {sorted(missing)}")
        for name in (*_COLUMNS, "bounds"):
            setattr(self, name, np.array(tree[name]))
