"""Distillation by name: the teacher out of the snapshot of its run, and the student."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, final

import gymnasium

from metaroll.checks import check_number
from metaroll.errors import option_text, said
from metaroll.learners.distillation import Distillation
from metaroll.policies.last_action import LastActionPolicy
from metaroll.policies.normalized import NormalizedPolicy, widened_spec
from metaroll.training.algorithms import building
from metaroll.training.algorithms.building import BuildOptions, setup_of
from metaroll.training.algorithms.description import AlgorithmDescription, Work
from metaroll.training.algorithms.ppo import EPOptDescription, PPODescription
from metaroll.training.run.run_state import fingerprint_of, load_algorithm
from metaroll.training.store.snapshots import Snapshot, load_snapshot
from metaroll.types import EnvSpec, EnvUpdate

__all__ = ["DistillSetup", "DistillationDescription"]

_TEACHERS = {description.name: description for description in (PPODescription(), EPOptDescription())}


@dataclass(frozen=True, kw_only=True)
class DistillSetup:
    """What a distillation takes beside the arguments of its constructor.

    Args:
        teacher: Folder of the run of the teacher: PPO or EPOpt, which may be privileged.
        network: Student with or without memory (gru or mlp; gru is as wide as the first of hidden_sizes).
        last_action: Whether a student with memory sees its last action, of a Box, beside each observation.
        hidden_nonlinearity: Activation of the hidden layers of a student without memory.
        init_std: Standard deviation of the student's actions in training, where they lie in [-1, 1].
        randomize: Train in, and evaluate on, random domain parameters of a simulated system (teacher: as the teacher
            was trained).
        randomize_param: A domain parameter that is uniform on a range, NAME=LOW:HIGH; may be given several times, and
            replaces randomize.
        num_train_tasks: Number of training tasks of a task family.
        num_test_tasks: Number of held-out tasks, or of held-out sets of domain parameters (null: 20 of them).
    """

    teacher: str | None = None
    network: Literal["gru", "mlp"] = "gru"
    last_action: bool = True
    hidden_nonlinearity: Literal["tanh", "relu"] = "tanh"
    init_std: float = 0.1
    randomize: Literal["teacher", "none", "default", "conservative"] = "teacher"
    randomize_param: Sequence[str] = ()
    num_train_tasks: int | None = None
    num_test_tasks: int | None = None

    def __post_init__(self) -> None:
        check_number("init_std", self.init_std, 0.0, above_low=True)


@final
class DistillationDescription(AlgorithmDescription):
    """A student that learns to act as a teacher, which may know more."""

    name: ClassVar[str] = "distill"
    learner: ClassVar[type] = Distillation
    option_sources: ClassVar[Sequence[tuple[type, Collection[str]]]] = ((DistillSetup, ()),)

    def tasks(self, given: BuildOptions, num_test: int | None = None) -> tuple[Any, list[EnvUpdate]]:
        setup = setup_of(DistillSetup, given.values)
        if setup.randomize == "teacher":
            taught = {} if setup.randomize_param else _teacher_of(setup).manifest["config"]["algorithm"]
            own = {"randomize": taught.get("randomize", "none")}
            own["randomize_param"] = setup.randomize_param or taught.get("randomize_param", ())
            given = replace(given, values={**given.values, **own})
        return super().tasks(given, num_test)

    def build(self, given: BuildOptions, train: Any, test: Sequence[EnvUpdate]) -> Distillation:
        setup, spec = setup_of(DistillSetup, given.values), building.spec_of(given.env)
        arguments = building.own_arguments(Distillation, given.values)
        return Distillation(
            spec,
            task_sampler=train,
            device=given.device,
            **building.common_arguments(given, test),
            **{**arguments, "teacher": _load_teacher(given, setup), "student": _student(spec, setup, given)},
        )

    def work(self, values: Mapping[str, Any]) -> Work:
        steps = values["steps_per_epoch"]
        return Work(0, steps, values["num_passes"] * -(-steps // values["batch_size"]))

    def largest_batch(self, values: Mapping[str, Any]) -> int:
        return min(values["batch_size"], values["steps_per_epoch"])

    def amount(self, algo: Distillation, values: Mapping[str, Any]) -> str:
        return f"{values['steps_per_epoch']} steps per epoch, labeled by {values['teacher']}"


def _teacher_of(setup: DistillSetup) -> Snapshot:
    """The newest snapshot of the teacher's run, which knows its configuration."""
    if not setup.teacher:
        use = said('teacher="runs/teacher"', "--teacher RUN")
        raise ValueError(f"teacher is missing: name the folder of the run of a teacher with {use}")
    folder = Path(setup.teacher).expanduser()
    if not folder.is_dir():
        raise ValueError(f"teacher must be the folder of a run, got {str(folder)!r}, which is no folder")
    snapshot = load_snapshot(folder)
    algo = (snapshot.manifest.get("config") or {}).get("algo", "a script")
    if algo not in _TEACHERS:
        raise ValueError(f"teacher must be a run of {' or '.join(_TEACHERS)}, {folder} is one of {algo}")
    return snapshot


def _load_teacher(given: BuildOptions, setup: DistillSetup) -> NormalizedPolicy:
    """The policy of the newest snapshot of the teacher's run."""
    snapshot = _teacher_of(setup)
    found = snapshot.manifest["config"]
    if found["env"] != given.env:
        raise ValueError(f"teacher {setup.teacher} must have been trained in {given.env}, but was in {found['env']}")
    # Its tasks are not needed any more, but tell PPO that there are some.
    algo = _TEACHERS[found["algo"]].build(replace(BuildOptions.of(found), device="cpu"), [lambda env: env], [])
    load_algorithm(snapshot, algo, fingerprint_of(algo))
    return algo.policy


def _student(spec: EnvSpec, setup: DistillSetup, given: BuildOptions) -> Any:
    continuous = isinstance(spec.action_space, gymnasium.spaces.Box)
    sees_action = setup.network == "gru" and setup.last_action
    if sees_action and given.hidden_sizes and not continuous:
        raise ValueError(
            f"last_action is for a Box of actions, got {spec.action_space}: use {option_text('last_action', False)}"
        )
    policy = building.make_policy(
        widened_spec(spec, spec.act_dim) if sees_action and continuous else spec,
        given,
        setup.network,
        setup.hidden_nonlinearity,
        building.network_generator(given),
        learn_std=False,
        init_std=setup.init_std,
    )
    return LastActionPolicy(policy, spec) if sees_action else policy
