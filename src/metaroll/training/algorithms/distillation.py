"""Distillation by name: the teacher out of the snapshot of its run, and the student."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from metaroll.training.algorithms.description import AlgorithmDescription, BuildOptions, setup_of
from metaroll.training.algorithms.ppo import EPOptDescription, PPODescription

if TYPE_CHECKING:
    from metaroll.learners.distillation import Distillation
    from metaroll.policies.normalized import NormalizedPolicy
    from metaroll.types import EnvSpec, EnvUpdate

__all__ = ["DistillSetup", "DistillationDescription"]

_TEACHERS = {description.name: description for description in (PPODescription(), EPOptDescription())}


@dataclass(frozen=True, kw_only=True)
class DistillSetup:
    """What a distillation is told beside the arguments of its constructor.

    Args:
        teacher: Folder of the run of the teacher: PPO or EPOpt, which may be privileged.
        network: Student with or without memory (gru or mlp; gru is as wide as the first of hidden_sizes).
        last_action: Whether a student with memory sees its last action, of a Box, beside each observation.
        hidden_nonlinearity: Activation of the hidden layers of a student without memory.
        init_std: Standard deviation of the student's actions in training, where they lie in [-1, 1].
        randomize: Train in, and evaluate on, random domain parameters of a simulated system (teacher: as the teacher
            was trained).
        randomize_param: A domain parameter that is uniform on a range, NAME=LOW:HIGH; may be given several times, and
            takes the place of randomize.
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
        from metaroll.checks import check_number

        check_number("init_std", self.init_std, 0.0, above_low=True)


class DistillationDescription(AlgorithmDescription):
    """A student that learns to act as a teacher, which may know more."""

    name = "distill"
    # A GRU of 64 units.
    common: Mapping[str, Any] = {"hidden_sizes": (64,), "init": "orthogonal", "epochs": 50}

    def learner(self) -> type:
        from metaroll.learners.distillation import Distillation

        return Distillation

    def option_sources(self) -> Sequence[tuple[type, Collection[str]]]:
        return ((DistillSetup, ()),)

    def sizes(self, env: str) -> Mapping[str, Any]:
        from metaroll.training.algorithms.building import env_sizes

        return env_sizes(env)

    def tasks(self, given: BuildOptions, num_test: int | None = None) -> tuple[Any, list[EnvUpdate]]:
        from metaroll.training.algorithms.building import training_tasks

        setup = setup_of(DistillSetup, given.values)
        randomize, ranges = setup.randomize, setup.randomize_param
        if randomize == "teacher" and not ranges:
            taught = _teacher_config(setup)["algorithm"]
            randomize, ranges = str(taught.get("randomize", "none")), taught.get("randomize_param", ())
        held_out = setup.num_test_tasks if num_test is None else num_test
        return training_tasks(given, randomize, ranges, setup.num_train_tasks, held_out)

    def build(self, given: BuildOptions, train: Any, test: Sequence[EnvUpdate]) -> Distillation:
        from metaroll.learners.distillation import Distillation
        from metaroll.training.algorithms.building import common_arguments, own_arguments, spec_of

        setup, spec = setup_of(DistillSetup, given.values), spec_of(given.env)
        arguments = {name: v for name, v in own_arguments(Distillation, given.values).items() if name != "teacher"}
        return Distillation(
            spec,
            _load_teacher(given, setup),
            _student(spec, setup, given),
            task_sampler=train,
            device=given.device,
            **common_arguments(given, test),
            **arguments,
        )

    def amount(self, algo: Distillation, values: Mapping[str, Any]) -> str:
        return f"{values['steps_per_epoch']} steps per epoch, labeled by {values['teacher']}"


def _teacher_folder(setup: DistillSetup) -> Path:
    if not setup.teacher:
        raise ValueError("teacher is missing: name the folder of the run of a teacher with --teacher RUN")
    return Path(setup.teacher).expanduser()


def _teacher_config(setup: DistillSetup) -> Mapping[str, Any]:
    """The configuration of the teacher's run, as its newest snapshot knows it."""
    from metaroll.training.store.snapshots import load_snapshot

    folder = _teacher_folder(setup)
    if not folder.is_dir():
        raise ValueError(f"teacher must be the folder of a run, got {str(folder)!r}, which is no folder")
    found = load_snapshot(folder).manifest.get("config") or {}
    algo = found.get("algo", "a script")
    if algo not in _TEACHERS:
        raise ValueError(f"teacher must be a run of {' or '.join(_TEACHERS)}, {folder} is one of {algo}")
    return found


def _load_teacher(given: BuildOptions, setup: DistillSetup) -> NormalizedPolicy:
    """The policy of the newest snapshot of the teacher's run."""
    from metaroll.training.run.run_state import fingerprint_of, load_algorithm
    from metaroll.training.store.snapshots import load_snapshot

    folder, found = _teacher_folder(setup), _teacher_config(setup)
    if found["env"] != given.env:
        raise ValueError(f"teacher {folder} must have been trained in {given.env}, but was in {found['env']}")
    options = dataclasses.replace(BuildOptions.of(found), device="cpu")
    # Its tasks are not needed any more, but tell PPO that there are some.
    algo = _TEACHERS[found["algo"]].build(options, [_unchanged], [])
    load_algorithm(load_snapshot(folder), algo, fingerprint_of(algo))
    return algo.policy


def _unchanged(env: Any) -> Any:
    return env


def _student(spec: EnvSpec, setup: DistillSetup, given: BuildOptions) -> Any:
    import gymnasium

    from metaroll.policies.last_action import LastActionPolicy
    from metaroll.policies.normalized import widened_spec
    from metaroll.training.algorithms.building import make_policy, network_generator

    continuous = isinstance(spec.action_space, gymnasium.spaces.Box)
    sees_action = setup.network == "gru" and setup.last_action
    if sees_action and given.hidden_sizes and not continuous:
        raise ValueError(f"last_action is for a Box of actions, got {spec.action_space}: use --no-last-action")
    policy = make_policy(
        widened_spec(spec, spec.act_dim) if sees_action and continuous else spec,
        given,
        setup.network,
        setup.hidden_nonlinearity,
        network_generator(given),
        learn_std=False,
        init_std=setup.init_std,
    )
    return LastActionPolicy(policy, spec) if sees_action else policy
