"""Builds what PEARL needs from a configuration: networks, training tasks and held-out ones."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, cast

from metaroll.envs.lookup.registry import TaskFamily, get_family
from metaroll.learners.pearl import PEARL
from metaroll.policies.gaussian import TanhGaussianMLPPolicy
from metaroll.policies.networks import MLPEncoder, QFunction
from metaroll.seeding import derive_seed, torch_generator
from metaroll.tasks.task_sampler import FixedTaskSampler
from metaroll.types import EnvSpec, EnvUpdate

__all__ = ["build_pearl", "family_sizes", "family_tasks"]


def family_sizes(env: str) -> dict[str, Any]:
    """Numbers of tasks and steps that belong to a task family."""
    family = get_family(env)
    return {
        "num_train_tasks": family.num_train_tasks,
        "num_test_tasks": family.num_test_tasks,
        "max_path_length": family.horizon,
    }


def family_tasks(config: Mapping[str, Any], num_test: int | None = None) -> tuple[list[EnvUpdate], list[EnvUpdate]]:
    """Training and held-out tasks of the family."""
    algorithm, run = config["algorithm"], config["run"]
    seed = run["seed"] if run["task_seed"] is None else run["task_seed"]
    family: TaskFamily = get_family(config["env"])
    held_out = algorithm["num_test_tasks"] if num_test is None else num_test
    return family.split(algorithm["num_train_tasks"], held_out, seed=seed)


def build_pearl(config: Mapping[str, Any], train_tasks: Sequence[EnvUpdate], test_tasks: Sequence[EnvUpdate]) -> PEARL:
    """The learner; all its randomness comes from the seed of the run."""
    algorithm, run = config["algorithm"], config["run"]
    latent_dim, sizes, init = algorithm["latent_dim"], run["hidden_sizes"], run["init"]
    environment = train_tasks[0]()
    try:
        spec = EnvSpec.from_env(environment)
    finally:
        environment.close()
    augmented = PEARL.augment_env_spec(spec, latent_dim)
    value_spec = cast(EnvSpec, PEARL.get_env_spec(spec, latent_dim, "vf"))
    generator = torch_generator(derive_seed("networks", run["seed"]))
    algo = PEARL(
        env=train_tasks,
        inner_policy=TanhGaussianMLPPolicy(augmented, hidden_sizes=sizes, init=init, generator=generator),
        qf=QFunction(augmented, hidden_sizes=sizes, init=init, generator=generator),
        vf=QFunction(value_spec, hidden_sizes=sizes, init=init, generator=generator),
        encoder_class=functools.partial(MLPEncoder, init=init),
        test_env_sampler=FixedTaskSampler(test_tasks),
        seed=derive_seed("algorithm", run["seed"]),
        **algorithm,
    )
    algo.to(run["device"])
    return algo
