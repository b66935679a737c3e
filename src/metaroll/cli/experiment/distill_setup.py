"""Builds what a distillation needs from a configuration: the teacher out of its run, and the student."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

import gymnasium

from metaroll.checks import check_number, check_whole
from metaroll.cli.experiment.ppo_setup import build_epopt, build_ppo, own_arguments, spec_of, variations_of
from metaroll.learners.distillation import Distillation
from metaroll.policies.gaussian import CategoricalMLPPolicy, GaussianMLPPolicy
from metaroll.policies.gru import CategoricalGRUPolicy, GRUGaussianPolicy
from metaroll.policies.last_action import LastActionPolicy
from metaroll.policies.normalized import NormalisedPolicy, widened_spec
from metaroll.seeding import derive_seed, torch_generator
from metaroll.tasks.task_sampler import FixedTaskSampler
from metaroll.training.run.run_state import fingerprint_of, load_algorithm
from metaroll.training.store.run_folder import find_run, read_config
from metaroll.training.store.snapshots import load_snapshot
from metaroll.types import EnvSpec, EnvUpdate

__all__ = ["DistillSetup", "build_distillation", "distill_tasks", "load_teacher"]

_TEACHERS = {"ppo": build_ppo, "epopt": build_epopt}


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
        check_number("init_std", self.init_std, 0.0, above_low=True)
        for name in ("num_train_tasks", "num_test_tasks"):
            if getattr(self, name) is not None:
                check_whole(name, getattr(self, name), 1)

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> DistillSetup:
        """Its part of a configuration."""
        given = config["algorithm"]  # of an older run, perhaps, which does not know every name
        return cls(**{field.name: given[field.name] for field in fields(cls) if field.name in given})


def distill_tasks(config: Mapping[str, Any], num_test: int | None = None) -> tuple[Any, list[EnvUpdate]]:
    """Variations of the environment to train in, and held-out ones, as in ``ppo_tasks``."""
    setup = DistillSetup.of(config)
    randomize, ranges = setup.randomize, setup.randomize_param
    if randomize == "teacher" and not ranges:
        taught = _teacher_config(setup)[1]["algorithm"]
        randomize, ranges = str(taught.get("randomize", "none")), taught.get("randomize_param", ())
    held_out = setup.num_test_tasks if num_test is None else num_test
    return variations_of(config, randomize, setup.num_train_tasks, held_out, ranges)


def build_distillation(config: Mapping[str, Any], train: Any, test: Sequence[EnvUpdate]) -> Distillation:
    """The learner with its teacher; all its randomness comes from the seed of the run."""
    setup, run = DistillSetup.of(config), config["run"]
    spec = spec_of(config["env"])
    arguments = {name: v for name, v in own_arguments(Distillation, config).items() if name != "teacher"}
    return Distillation(
        spec,
        load_teacher(config, setup),
        _student(spec, setup, run),
        task_sampler=train,
        test_env_sampler=FixedTaskSampler(test) if test else None,
        seed=derive_seed("algorithm", run["seed"]),
        device=run["device"],
        **arguments,
    )


def load_teacher(config: Mapping[str, Any], setup: DistillSetup) -> NormalisedPolicy:
    """The policy of the newest snapshot of the teacher's run."""
    folder, found = _teacher_config(setup)
    if found["env"] != config["env"]:
        raise ValueError(f"teacher {folder} must have been trained in {config['env']}, but was in {found['env']}")
    found = {**found, "run": {**found["run"], "device": "cpu"}}
    # Its variations are not needed any more, but tell PPO that there are some.
    algo = _TEACHERS[found["algo"]](found, [_unchanged], [])
    snapshot = load_snapshot(folder)
    load_algorithm(snapshot, algo, fingerprint_of(algo))
    return algo.policy


def _unchanged(env: Any) -> Any:
    return env


def _teacher_config(setup: DistillSetup) -> tuple[Path, dict[str, Any]]:
    if setup.teacher is None:
        raise ValueError("teacher is missing: name the folder of the run of a teacher with --teacher RUN")
    folder = find_run(Path(setup.teacher).expanduser())
    found = read_config(folder)
    if found["algo"] not in _TEACHERS:
        raise ValueError(f"teacher must be a run of {' or '.join(_TEACHERS)}, {folder} is one of {found['algo']}")
    return folder, found


def _student(spec: EnvSpec, setup: DistillSetup, run: Mapping[str, Any]) -> Any:
    options: dict[str, Any] = {"init": run["init"], "generator": torch_generator(derive_seed("networks", run["seed"]))}
    sizes = tuple(run["hidden_sizes"])
    if setup.network == "gru":
        if not sizes:
            raise ValueError("hidden_sizes must name the width of the gru, got none: --hidden-sizes 64, say")
        if not isinstance(spec.action_space, gymnasium.spaces.Box):
            if setup.last_action:
                raise ValueError(f"last_action is for a Box of actions, got {spec.action_space}: use --no-last-action")
            return CategoricalGRUPolicy(spec, sizes[0], **options)
        options |= {"learn_std": False, "init_std": setup.init_std}
        if not setup.last_action:
            return GRUGaussianPolicy(spec, sizes[0], **options)
        return LastActionPolicy(GRUGaussianPolicy(widened_spec(spec, spec.act_dim), sizes[0], **options), spec)
    if isinstance(spec.action_space, gymnasium.spaces.Box):
        options |= {"learn_std": False, "init_std": setup.init_std}
        return GaussianMLPPolicy(spec, sizes, setup.hidden_nonlinearity, **options)
    return CategoricalMLPPolicy(spec, sizes, setup.hidden_nonlinearity, **options)
