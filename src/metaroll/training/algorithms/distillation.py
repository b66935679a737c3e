"""Distillation by name: the teacher out of the snapshot of its run, and the student."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium

from metaroll.config import parts_of
from metaroll.configs.algorithms import DistilledNetworks, TaughtDomains
from metaroll.configs.table import CONFIGS
from metaroll.errors import option_name, option_text
from metaroll.learners.distillation import Distillation
from metaroll.learners.distillation_config import DistillationConfig
from metaroll.policies.last_action import LastActionPolicy
from metaroll.policies.normalized import NormalizedPolicy, widened_spec
from metaroll.training.algorithms import building, ppo
from metaroll.training.algorithms.algorithm import Algorithm, Values, Work
from metaroll.training.algorithms.building import BuildOptions
from metaroll.training.run.run_state import fingerprint_of, load_algorithm
from metaroll.training.store.snapshots import Snapshot, load_snapshot
from metaroll.types import EnvSpec, EnvUpdate

__all__ = ["ROWS"]


def _tasks(given: BuildOptions, num_test: int | None = None) -> tuple[Any, list[EnvUpdate]]:
    domains = parts_of(TaughtDomains, given.values)
    if domains.randomize == "teacher":
        given_by = parts_of(DistilledNetworks, given.values)
        taught = {} if domains.randomize_param else _teacher_of(given_by).manifest["config"]["algorithm"]
        own = {"randomize": taught.get("randomize", "none")}
        own["randomize_param"] = domains.randomize_param or taught.get("randomize_param", ())
        given = replace(given, values={**given.values, **own})
    return building.training_tasks(given, num_test)


def _build(given: BuildOptions, train: Any, test: Sequence[EnvUpdate]) -> Distillation:
    networks, spec = parts_of(DistilledNetworks, given.values), given.env.spec
    return Distillation(
        spec,
        parts_of(DistillationConfig, given.values),
        teacher=_load_teacher(given, networks),
        student=_student(spec, networks, given),
        task_sampler=train,
        device=given.device,
        **building.common_arguments(given, test),
    )


def _work(values: Values) -> Work:
    steps = values["steps_per_epoch"]
    return Work(0, steps, values["num_passes"] * -(-steps // values["batch_size"]))


def _batch(values: Values) -> int:
    return min(values["batch_size"], values["steps_per_epoch"])


def _amount(algo: Distillation, values: Values) -> str:
    return f"{values['steps_per_epoch']} steps per epoch, labeled by {values['teacher']}"


def _teacher_of(networks: DistilledNetworks) -> Snapshot:
    """The newest snapshot of the teacher's run, which knows its configuration."""
    if not networks.teacher:
        use = option_text("teacher", "runs/teacher")
        raise ValueError(f"{option_name('teacher')} is missing: name the folder of the run of a teacher, {use} say")
    folder = Path(networks.teacher).expanduser()
    if not folder.is_dir():
        raise networks.wrong("teacher", "be the folder of a run", "there is no such folder")
    snapshot = load_snapshot(folder)
    algo = (snapshot.manifest.get("config") or {}).get("algo", "a script")
    if algo not in ppo.ROWS:
        raise networks.wrong("teacher", f"be a run of {' or '.join(ppo.ROWS)}", f"that is one of {algo}")
    return snapshot


def _load_teacher(given: BuildOptions, networks: DistilledNetworks) -> NormalizedPolicy:
    """The policy of the newest snapshot of the teacher's run."""
    snapshot = _teacher_of(networks)
    found = snapshot.manifest["config"]
    if found["env"] != given.env.name:
        raise networks.wrong("teacher", f"have been trained in {given.env}", f"that was in {found['env']}")
    # Its tasks are not needed any more, but tell PPO that there are some.
    algo = ppo.ROWS[found["algo"]].build(
        replace(BuildOptions.of(found, given.env), device="cpu"), [lambda env: env], []
    )
    load_algorithm(snapshot, algo, fingerprint_of(algo))
    return algo.policy


def _student(spec: EnvSpec, networks: DistilledNetworks, given: BuildOptions) -> Any:
    continuous = isinstance(spec.action_space, gymnasium.spaces.Box)
    sees_action = networks.network == "gru" and networks.last_action
    if sees_action and given.hidden_sizes and not continuous:
        raise ValueError(
            f"{option_name('last_action')} is for a Box of actions, got {spec.action_space}: use "
            + option_text("last_action", False)
        )
    policy = building.make_policy(
        widened_spec(spec, spec.act_dim) if sees_action and continuous else spec,
        given,
        networks.network,
        networks.hidden_nonlinearity,
        building.network_generator(given),
        learn_std=False,
        init_std=networks.init_std,
    )
    return LastActionPolicy(policy, spec) if sees_action else policy


ROWS = {
    "distill": Algorithm(
        name="distill",
        configs=CONFIGS["distill"],
        learner=Distillation,
        build=_build,
        work=_work,
        amount=_amount,
        tasks=_tasks,
        largest_batch=_batch,
    )
}
"""The algorithm by name."""
