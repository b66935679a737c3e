"""Distillation: a student without privileged observations learns to imitate a privileged teacher."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import gymnasium
import numpy as np
import torch
from torch import nn

from metaroll import EnvSpec, EnvUpdate, StepSequence
from metaroll.plugins import (
    API,
    KNOWN_EPOCHS,
    ActingPolicy,
    Algorithm,
    BuildOptions,
    Config,
    Count,
    DomainRanges,
    EpochLearner,
    Evaluated,
    NewData,
    Policy,
    Positive,
    Progress,
    Rollouts,
    Runner,
    ScaledActions,
    SnapshotError,
    Stateful,
    TrainedRun,
    TrainingTasks,
    TrainTasks,
    Values,
    Was,
    Whole,
    Work,
    add_rows,
    check_policy,
    check_seed,
    collect_on_policy,
    common_arguments,
    config_of,
    derive_seed,
    episode_metrics,
    fingerprint_of,
    fresh_seed,
    horizon_of,
    label_actions,
    make_policy,
    network_generator,
    option_name,
    option_text,
    pad_rollouts,
    parts,
    parts_of,
    refuse_non_finite,
    rollout_groups,
    shapes_of,
    training_tasks,
    widened_spec,
)
from metaroll.policies import LastActionPolicy, NormalizedPolicy

__all__ = ["ROW", "Distillation", "DistillationConfig", "LabeledRollouts"]

_TEACHERS = ("ppo", "epopt")
"""Algorithms whose runs may be teachers."""
_FOLDER = "runs/teacher"
"""Folder of a teacher's run, in messages."""


@dataclass(frozen=True, kw_only=True)
class DistillationConfig(NewData, ScaledActions, Evaluated):
    """Settings of ``Distillation``."""

    complete = True

    teacher_epochs: Annotated[Count, "Number of initial epochs with the teacher as behavior policy."] = 1
    replay_size: Annotated[
        Whole, Was("memory_steps"), "Number of latest steps to learn from, in complete rollouts."
    ] = 40_000
    batch_size: Annotated[Whole, "Steps per gradient step, in complete rollouts."] = 1000
    max_grad_norm = 1.0


@dataclass(frozen=True, kw_only=True)
class DistilledNetworks(Config):
    """Teacher and student of a distillation."""

    teacher: Annotated[str | None, "Folder of the run of the teacher: PPO or EPOpt, which may be privileged."] = None
    network: Annotated[
        Literal["gru", "mlp"],
        "Recurrent or feed-forward student (gru or mlp; the width of gru is the first of hidden_sizes).",
    ] = "gru"
    last_action: Annotated[
        bool, "Whether a recurrent student observes its last action (of a Box), in addition to each observation."
    ] = True
    hidden_nonlinearity: Annotated[
        Literal["tanh", "relu"], "Activation of the hidden layers of a feed-forward student."
    ] = "tanh"
    init_std: Annotated[Positive, "Standard deviation of the student's actions in training, relative to [-1, 1]."] = 0.1


@dataclass(frozen=True, kw_only=True)
class TaughtDomains(TrainTasks, DomainRanges):
    """Random domain parameters, or tasks of a family, to train in."""

    randomize: Annotated[
        Literal["teacher", "none", "default", "conservative"],
        "Train in, and evaluate on, random domain parameters of a simulated system (teacher: those that the teacher "
        "was trained with).",
    ] = "teacher"


class Distillation(Stateful, EpochLearner):
    """Trains a policy to imitate, from observations alone, a privileged teacher, which observes domain parameters.

    A recurrent student can infer from the last steps what the teacher observes (rapid motor adaptation, Kumar et al.
    2021, arXiv:2107.04034). The student is the behavior policy, the teacher labels each step with its own action, and
    the student maximizes the likelihood of the labels (DAgger: Ross et al. 2011, arXiv:1011.0686): so it learns in the
    states that it visits itself. In the first epochs, the teacher is the behavior policy.

    Args:
        env_spec: Environment or spec.
        config: Settings; ``None`` means the defaults.
        teacher: Any policy of metaroll; not trained. One with ``domain_params`` observes those of each rollout.
        student: The policy to train: ``GRUGaussianPolicy``, or any policy of metaroll with ``evaluate_actions``,
            perhaps in a ``LastActionPolicy``. Observation moments of a ``NormalizedPolicy`` have the weight of ten
            epochs.
        task_sampler: Variations of the environment to train in, drawn in every epoch: a list of ``EnvUpdate``, or a
            sampler of them; ``None`` means the nominal environment.
        test_env_sampler: Task sampler of the evaluations; ``None`` means the nominal environment.
        seed: Source of all randomness of training; ``None`` means fresh entropy. Recorded in ``seed``.
        device: Device of the student; ``None`` means the CPU.
        options: Settings by name; they override those of ``config``.
    """

    state_parts = parts(
        student="_policy",
        teacher="_taught",
        optimizer="_optimizer",
        moments="_moments",
        variations="_tasks",
        batches="_generator",
        counters=parts("seed", epochs="_num_epochs"),
    )
    buffer_parts = "_memory"

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
        self._taught: nn.Module | dict[str, Any] = self.teacher if isinstance(self.teacher, nn.Module) else {}
        self._device = torch.device("cpu" if device is None else device)
        self._policy = (
            student if isinstance(student, NormalizedPolicy) else NormalizedPolicy(student, True, config.scale_actions)
        )
        _check_student(self._policy, self.env_spec)
        self._policy.to(self._device)
        self._weights = [p for p in self._policy.parameters() if p.requires_grad]
        self._optimizer: torch.optim.Optimizer = torch.optim.Adam(self._weights, lr=config.learning_rate, foreach=True)
        self._moments = self._policy.observation_moments(KNOWN_EPOCHS * config.steps_per_epoch)
        self._memory = LabeledRollouts(config.replay_size)
        self._generator = np.random.default_rng(derive_seed("distillation batches", self.seed))
        self._num_epochs = 0

    @property
    def policy(self) -> NormalizedPolicy:
        """The student."""
        return self._policy

    def collect(self, runner: Runner) -> Rollouts:
        """The rollouts of one epoch, by the student or (in the first epochs) the teacher."""
        actor = self.teacher if self._num_epochs < self.config.teacher_epochs else None
        steps = self.config.steps_per_epoch
        num_tasks = self.config.tasks_per_epoch or -(-steps // self.max_path_length)
        return self._tasks.collect(runner, num_tasks, steps, None, actor)

    def update(self, rollouts: Sequence[StepSequence], progress: Progress | None = None) -> dict[str, float]:
        """Label ``rollouts`` with the teacher, and learn from them and earlier ones; returns metrics.

        Raises:
            DivergedError: Weights are no longer finite.
        """
        batch = Rollouts.of(rollouts)
        data = collect_on_policy(batch, self.env_spec)
        # Actions taken, and those of the teacher at the same observations, in units of the student's network, (T, ...)
        applied = batch.column("actions").reshape(data.actions.shape).astype(data.actions.dtype, copy=False)
        taken, labels = (self._own_units(rows) for rows in (applied, label_actions(self.teacher, data, batch)))
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
        """Class, networks and settings as a short text, which a snapshot must match."""
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

    # -- helpers -------------------------------------------------------------------------------------------------------

    def _own_units(self, actions: np.ndarray) -> np.ndarray:
        """Environment actions in the units of the student's network; choices are unchanged."""
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
        """One gradient step on rollouts ``group``; returns the loss before it, the negative log-likelihood per step."""
        # N rollouts, padded to T steps, (N, T, ...), and the mask of their steps, (N, T)
        memory = self._memory
        parts = (memory.observations, memory.taken, memory.labels)
        observations, taken, labels = (pad_rollouts(rows, memory.bounds, group) for rows in parts)
        lengths = torch.as_tensor(np.diff(memory.bounds)[group])
        valid = (torch.arange(observations.shape[1]) < lengths[:, None]).to(self._device)
        # ln pi(a_teacher | s_1, ..., s_t) of the student along each rollout, (N, T)
        rows = torch.as_tensor(self._policy.normalized(observations)).to(self._device)
        log_prob = self._log_prob(
            rows, torch.as_tensor(taken).to(self._device), torch.as_tensor(labels).to(self._device)
        )
        # Behavioral cloning on the student's own states (DAgger): L = -mean ln pi(a_teacher | s), ()
        loss = -log_prob[valid].mean()
        # dL/dtheta of the student, clipped to a norm of max_grad_norm; theta <- theta - lr Adam(dL/dtheta)
        self._optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        if self.config.max_grad_norm is not None:
            nn.utils.clip_grad_norm_(self._weights, self.config.max_grad_norm)
        self._optimizer.step()
        return float(loss.detach())

    def _log_prob(self, rows: torch.Tensor, taken: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Log-likelihood ``(N, T)`` of the labels, given observations ``(N, T, obs_dim)`` and the actions taken."""
        network = self._policy.policy
        if isinstance(network, LastActionPolicy):
            rows, network = network.with_last_actions(rows, taken), network.policy
        return network.evaluate_actions(rows, labels)[0]


def _disagreement(taken: np.ndarray, labels: np.ndarray) -> float:
    """Root mean square difference of actions; for choices, the share that differs."""
    if labels.dtype.kind == "f":
        return float(np.sqrt(np.mean(np.square(taken - labels))))
    return float((taken != labels).mean())


def _checked_teacher(teacher: Any, env_spec: EnvSpec) -> Any:
    if not isinstance(teacher, Policy):
        raise TypeError(f"teacher must be a policy of metaroll (see as_policy), got {type(teacher).__name__}")
    spec = teacher.env_spec if isinstance(teacher, ActingPolicy) else env_spec
    if (spec.obs_dim, spec.act_dim) != (env_spec.obs_dim, env_spec.act_dim):
        raise ValueError(
            f"teacher must be trained in an environment with {env_spec.obs_dim} observations and {env_spec.act_dim} "
            f"actions, like env_spec, got {spec.obs_dim} and {spec.act_dim}"
        )
    return teacher


def _check_student(policy: NormalizedPolicy, env_spec: EnvSpec) -> None:
    if not policy.policy.has_densities:
        raise TypeError(f"student must have evaluate_actions(obs, actions), which {type(policy.policy).__name__} lacks")
    if policy.domain_params:
        raise ValueError(f"student must not observe domain parameters, got one that observes {policy.domain_params}")
    check_policy(policy, NormalizedPolicy, env_spec, "student")


_COLUMNS = ("observations", "taken", "labels")


class LabeledRollouts:
    """Concatenated complete rollouts; the oldest are dropped beyond ``most_steps`` steps.

    Attributes:
        observations: Observations of the environment, ``(T, obs_dim)``.
        taken: Actions taken ``(T, ...)``.
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
        """Append rollouts, and drop the oldest ones beyond ``most_steps``; the newest rollout is always kept."""
        ends = np.concatenate([self.bounds[1:], bounds[1:] + len(self)])
        starts = np.concatenate([[0], ends[:-1]])
        cut = int(starts[min(int(np.searchsorted(starts, int(ends[-1]) - self._most_steps)), len(starts) - 1)])
        for name, rows in zip(_COLUMNS, (observations, taken, labels), strict=True):
            old = getattr(self, name)
            joined = np.concatenate([old, rows]) if len(old) else np.array(rows)
            setattr(self, name, joined[cut:].copy())
        self.bounds = np.concatenate([[0], ends[ends > cut] - cut])

    def state_dict(self, copy: bool = True) -> dict[str, Any]:
        """All arrays; no ``copy`` is needed, since they are replaced, never modified."""
        return {name: getattr(self, name) for name in (*_COLUMNS, "bounds")}

    def load_state_dict(self, tree: Mapping[str, Any]) -> None:
        """Restore ``state_dict``."""
        missing = {*_COLUMNS, "bounds"} - set(tree)
        if missing:
            raise SnapshotError(f"the saved rollouts of a distillation lack {sorted(missing)}")
        for name in (*_COLUMNS, "bounds"):
            setattr(self, name, np.array(tree[name]))


def _tasks(given: BuildOptions, num_test: int | None = None) -> tuple[Any, list[EnvUpdate]]:
    domains = parts_of(TaughtDomains, given.values)
    if domains.randomize == "teacher":
        given_by = parts_of(DistilledNetworks, given.values)
        taught: Values = {} if domains.randomize_param else _teacher_of(given_by, given).options
        own: dict[str, Any] = {"randomize": taught.get("randomize", "none")}
        own["randomize_param"] = domains.randomize_param or taught.get("randomize_param", ())
        given = replace(given, values={**given.values, **own})
    return training_tasks(given, num_test)


def _build(given: BuildOptions, train: Any, test: Sequence[EnvUpdate]) -> Distillation:
    networks, spec = parts_of(DistilledNetworks, given.values), given.env.spec
    return Distillation(
        spec,
        parts_of(DistillationConfig, given.values),
        teacher=_load_teacher(given, networks),
        student=_student(spec, networks, given),
        task_sampler=train,
        device=given.device,
        **common_arguments(given, test),
    )


def _work(values: Values) -> Work:
    steps = values["steps_per_epoch"]
    return Work(0, steps, values["num_passes"] * -(-steps // values["batch_size"]))


def _batch(values: Values) -> int:
    return min(values["batch_size"], values["steps_per_epoch"])


def _amount(algo: Distillation, values: Values) -> str:
    return f"actions labeled by {values['teacher']}"


def _teacher_of(networks: DistilledNetworks, given: BuildOptions) -> TrainedRun:
    """The run of the teacher."""
    if not networks.teacher:
        use = option_text("teacher", _FOLDER)
        raise ValueError(
            f"{option_name('teacher')} is missing: name the folder of a teacher's run, as in {use}. "
            + _how_to_train_one(given)
        )
    folder = Path(networks.teacher).expanduser()
    if not folder.is_dir():
        raise networks.wrong(
            "teacher", "be the folder of a run", f"there is no such folder. {_how_to_train_one(given)}"
        )
    run = TrainedRun(folder)
    if run.algo not in _TEACHERS:
        raise networks.wrong("teacher", f"be a run of {' or '.join(_TEACHERS)}", f"that is one of {run.algo}")
    return run


def _how_to_train_one(given: BuildOptions) -> str:
    """The command that trains a teacher for these options; privileged, if it is known what may vary."""
    words, domains = ["metaroll", "train", "ppo", given.env.name], parts_of(TaughtDomains, given.values)
    randomize = "default" if domains.randomize == "teacher" else domains.randomize
    names: Sequence[str] = ()
    if not given.env.is_varied:
        if given.env.spec.max_episode_length is None:
            words += ["--max-steps", str(given.values["max_steps"])]
        with contextlib.suppress(ValueError):  # no usual ranges are known
            varied, _ = training_tasks(replace(given, values={**given.values, "randomize": randomize}))
            names = () if varied is None else varied.names
    if domains.randomize_param:
        words += [word for text in domains.randomize_param for word in ("--randomize-param", text)]
    elif names:
        words += ["--randomize", randomize]
    words += ["--privileged", "--domain-params", *names] if names else []
    what = "a privileged teacher, which observes what varies" if names else "a teacher"
    return f"Train {what}: {shlex.join([*words, '--out', _FOLDER])}"


def _load_teacher(given: BuildOptions, networks: DistilledNetworks) -> NormalizedPolicy:
    """The policy of the teacher."""
    run = _teacher_of(networks, given)
    if run.env != given.env.name:
        raise networks.wrong("teacher", f"have been trained in {given.env.name}", f"that was in {run.env}")
    # Its tasks are no longer needed, but PPO with domain_params requires some.
    return run.learner(given, [_unchanged], []).policy


def _unchanged(env: Any) -> Any:
    return env


def _student(spec: EnvSpec, networks: DistilledNetworks, given: BuildOptions) -> ActingPolicy:
    continuous = isinstance(spec.action_space, gymnasium.spaces.Box)
    sees_action = networks.network == "gru" and networks.last_action
    if sees_action and given.hidden_sizes and not continuous:
        raise ValueError(
            f"{option_name('last_action')} is for a Box of actions, got {spec.action_space}: use "
            + option_text("last_action", False)
        )
    policy = make_policy(
        widened_spec(spec, spec.act_dim) if sees_action and continuous else spec,
        given,
        networks.network,
        networks.hidden_nonlinearity,
        network_generator(given),
        learn_std=False,
        init_std=networks.init_std,
    )
    return LastActionPolicy(policy, spec) if sees_action else policy


ROW = Algorithm(
    name="distill",
    api=API,
    configs=(DistillationConfig, DistilledNetworks, TaughtDomains),
    learner=Distillation,
    build=_build,
    work=_work,
    amount=_amount,
    tasks=_tasks,
    largest_batch=_batch,
)
