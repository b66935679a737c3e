"""Builds what hill climbing needs from a configuration."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

import gymnasium

from metaroll.checks import check_whole
from metaroll.cli.experiment.ppo_setup import own_arguments, ppo_sizes, spec_of, variations_of
from metaroll.envs.lookup.registry import is_varied
from metaroll.envs.lookup.source import make_env
from metaroll.envs.wrappers.domain_rand import DomainRandWrapperLive
from metaroll.learners.hill_climbing import HillClimbing
from metaroll.policies.gaussian import CategoricalMLPPolicy, GaussianMLPPolicy
from metaroll.seeding import derive_seed, torch_generator
from metaroll.tasks.domain_randomizer import DomainRandomizer
from metaroll.tasks.task_sampler import FixedTaskSampler
from metaroll.types import EnvUpdate

__all__ = ["ClimbingSetup", "build_climbing", "climbing_env", "climbing_sizes", "climbing_tasks"]


@dataclass(frozen=True, kw_only=True)
class ClimbingSetup:
    """What hill climbing is told beside the arguments of its constructor.

    Args:
        hidden_nonlinearity: Activation of the hidden layers.
        randomize: Train in, and evaluate on, random domain parameters of a simulated system.
        randomize_param: A domain parameter that is uniform on a range, NAME=LOW:HIGH; may be given several times, and
            takes the place of randomize.
        num_test_tasks: Number of held-out sets of domain parameters (null: 20 of them).
    """

    hidden_nonlinearity: Literal["tanh", "relu"] = "tanh"
    randomize: Literal["none", "default", "conservative"] = "none"
    randomize_param: Sequence[str] = ()
    num_test_tasks: int | None = None

    def __post_init__(self) -> None:
        if self.num_test_tasks is not None:
            check_whole("num_test_tasks", self.num_test_tasks, 1)

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> ClimbingSetup:
        """Its part of a configuration."""
        given = config["algorithm"]  # of an older run, perhaps, which does not know every name
        return cls(**{field.name: given[field.name] for field in fields(cls) if field.name in given})


def climbing_sizes(env: str) -> dict[str, Any]:
    """Numbers that follow from the environment: its time limit."""
    if is_varied(env):
        raise ValueError(
            f"hill-climbing learns in one environment, or in random domains of it, got the family of tasks {env!r}; "
            "take a Gymnasium id or a simulated system such as qcp-st, or train ppo in the family"
        )
    return ppo_sizes(env)


def climbing_tasks(config: Mapping[str, Any], num_test: int | None = None) -> tuple[Any, list[EnvUpdate]]:
    """What randomizes the environment (``None``: nothing), and held-out domains."""
    setup = ClimbingSetup.of(config)
    held_out = setup.num_test_tasks if num_test is None else num_test
    return variations_of(config, setup.randomize, None, held_out, setup.randomize_param)


def climbing_env(config: Mapping[str, Any], randomizer: DomainRandomizer | None) -> Any:
    """What to train in: the sampler draws domains from the wrapper that randomizes the environment."""
    return config["env"] if randomizer is None else functools.partial(_randomized, config["env"], randomizer)


def _randomized(env: str, randomizer: DomainRandomizer) -> DomainRandWrapperLive:
    return DomainRandWrapperLive(make_env(env), randomizer)


def build_climbing(config: Mapping[str, Any], train: Any, test: Sequence[EnvUpdate]) -> HillClimbing:
    """The learner; all its randomness comes from the seed of the run."""
    setup, run = ClimbingSetup.of(config), config["run"]
    if run["device"] != "cpu":
        raise ValueError(f"hill-climbing acts, and takes no gradient steps: device must be cpu, got {run['device']!r}")
    spec = spec_of(config["env"])
    options: dict[str, Any] = {"init": run["init"], "generator": torch_generator(derive_seed("networks", run["seed"]))}
    sizes, activation = tuple(run["hidden_sizes"]), setup.hidden_nonlinearity
    if isinstance(spec.action_space, gymnasium.spaces.Box):
        policy = GaussianMLPPolicy(spec, sizes, activation, learn_std=False, **options)
    else:
        policy = CategoricalMLPPolicy(spec, sizes, activation, **options)
    return HillClimbing(
        spec,
        policy,
        test_env_sampler=FixedTaskSampler(test) if test else None,
        seed=derive_seed("algorithm", run["seed"]),
        **own_arguments(HillClimbing, config),
    )
