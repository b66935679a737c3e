"""What descriptions of algorithms build with: spaces and sizes of an environment, tasks to train in, policies."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import torch

from metaroll.envs.base.constructors import make_env
from metaroll.envs.lookup.randomization import conservative_randomizer, default_randomizer
from metaroll.envs.lookup.registry import get_family, is_varied
from metaroll.policies.gaussian import CategoricalMLPPolicy, GaussianMLPPolicy
from metaroll.policies.gru import CategoricalGRUPolicy, GRUGaussianPolicy
from metaroll.seeding import derive_seed, torch_generator
from metaroll.tasks.domain_access import check_domain_params, set_domain_params
from metaroll.tasks.domain_randomizer import DomainRandomizer, as_randomizer
from metaroll.tasks.task_sampler import FixedTaskSampler
from metaroll.training.algorithms.description import BuildOptions
from metaroll.types import EnvSpec, EnvUpdate

__all__ = [
    "check_names",
    "common_arguments",
    "env_sizes",
    "family_sizes",
    "family_tasks",
    "make_policy",
    "network_generator",
    "own_arguments",
    "parse_ranges",
    "spec_of",
    "training_tasks",
]

_HELD_OUT = 20
_RANDOMIZERS = {"default": default_randomizer, "conservative": conservative_randomizer}


# ------------------------------------------------------------------------------------------------------- environments
def spec_of(env: str) -> EnvSpec:
    """Spaces and time limit of an environment."""
    made = make_env(env)
    try:
        return EnvSpec.from_env(made)
    finally:
        made.close()


def family_sizes(env: str) -> dict[str, Any]:
    """Numbers of tasks and steps that belong to a task family."""
    family = get_family(env)
    return {
        "num_train_tasks": family.num_train_tasks,
        "num_test_tasks": family.num_test_tasks,
        "max_path_length": family.horizon,
    }


def env_sizes(env: str) -> dict[str, Any]:
    """Numbers that follow from the environment: its time limit, and the tasks of a family."""
    if is_varied(env):
        return family_sizes(env)
    limit = spec_of(env).max_episode_length
    return {} if limit is None else {"max_path_length": limit}


def check_names(env: str, domain_params: Sequence[str]) -> None:
    """Error with the nearest names unless the environment has these domain parameters."""
    if is_varied(env) or not domain_params:
        return
    made = make_env(env)
    try:
        check_domain_params(made, domain_params)
    finally:
        made.close()


# -------------------------------------------------------------------------------------------------------------- tasks
def family_tasks(given: BuildOptions, num_test: int | None = None) -> tuple[list[EnvUpdate], list[EnvUpdate]]:
    """Training and held-out tasks of the family."""
    held_out = given.values["num_test_tasks"] if num_test is None else num_test
    return get_family(given.env).split(given.values["num_train_tasks"], held_out, seed=given.seed_of_tasks)


def training_tasks(
    given: BuildOptions, randomize: str, ranges: Sequence[str], num_train: int | None, num_test: int | None
) -> tuple[Any, list[EnvUpdate]]:
    """What to train in (``None``: the environment as it is), and held-out tasks or domain parameters.

    Args:
        given: The environment, and the seed of the tasks.
        randomize: The option of this name.
        ranges: The option ``randomize_param``.
        num_train: Number of training tasks of a family.
        num_test: Number of held-out tasks, or of held-out sets of domain parameters.
    """
    env, seed = given.env, given.seed_of_tasks
    if is_varied(env):
        if ranges or randomize == "conservative":
            option = "randomize_param" if ranges else "randomize 'conservative'"
            raise ValueError(
                f"{option} is not for {env}, a family of tasks that draws its own: leave it out, with --randomize none"
            )
        return get_family(env).split(num_train, num_test, seed=seed)
    if randomize == "none" and not ranges:
        return None, []
    randomizer = _randomizer(env, randomize, ranges, derive_seed("training domains", seed))
    return randomizer, randomizer.sample(num_test or _HELD_OUT, generator=derive_seed("held-out domains", seed))


def _randomizer(env: str, randomize: str, ranges: Sequence[str], generator: int) -> DomainRandomizer:
    if ranges:
        return _ranges_randomizer(env, ranges, generator)
    try:
        return _RANDOMIZERS[randomize](env, generator=generator)
    except ValueError as error:
        raise ValueError(
            f"randomize {randomize!r} cannot be used in {env}, for which no usual ranges are known: say what varies, "
            "as in --randomize-param length=0.3:0.7, or train in it as it is with --randomize none"
        ) from error


def parse_ranges(texts: Sequence[str]) -> dict[str, tuple[float, float]]:
    """Name -> (low, high) of each text ``NAME=LOW:HIGH``.

    Raises:
        ValueError: A text has another form, or two have the same name.
    """
    ranges: dict[str, tuple[float, float]] = {}
    for text in texts:
        name, _, span = text.rpartition("=")  # names may have colons: body_mass:torso
        problem = ValueError(
            f"randomize_param must be NAME=LOW:HIGH with numbers LOW < HIGH, as length=0.3:0.7, got {text!r}"
        )
        try:
            low, high = map(float, span.split(":"))
        except ValueError:
            raise problem from None
        if not name or not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise problem
        if name in ranges:
            raise ValueError(f"randomize_param names {name!r} twice")
        ranges[name] = low, high
    return ranges


def _ranges_randomizer(env: str, texts: Sequence[str], generator: int) -> DomainRandomizer:
    """Domain parameters that are uniform on the ranges of ``texts``, both ends of which ``env`` has accepted."""
    ranges = parse_ranges(texts)
    made = make_env(env)
    try:
        check_domain_params(made, ranges)
        for end in (0, 1):
            set_domain_params(made, {name: span[end] for name, span in ranges.items()})
    finally:
        made.close()
    return DomainRandomizer(*as_randomizer(ranges).domain_params, generator=generator)


# ---------------------------------------------------------------------------------------------------------- arguments
def own_arguments(kind: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """Those of ``values`` that the constructor of ``kind`` takes."""
    taken = inspect.signature(kind).parameters
    return {name: value for name, value in values.items() if name in taken}


def common_arguments(given: BuildOptions, test: Sequence[EnvUpdate]) -> dict[str, Any]:
    """Arguments that all learners take: the sampler of held-out tasks, and the seed."""
    return {
        "test_env_sampler": FixedTaskSampler(test) if test else None,
        "seed": derive_seed("algorithm", given.seed),
    }


def network_generator(given: BuildOptions) -> torch.Generator:
    """Where initial weights come from."""
    return torch_generator(derive_seed("networks", given.seed))


def make_policy(
    spec: EnvSpec, given: BuildOptions, network: str, activation: str, generator: torch.Generator, **of_box: Any
) -> Any:
    """A policy for the spaces of ``spec``.

    Args:
        spec: The spaces.
        given: Hidden layers and initialization.
        network: ``"gru"`` (as wide as the first hidden layer) or ``"mlp"``.
        activation: Of the hidden layers of an ``"mlp"``.
        generator: Where initial weights come from.
        of_box: Arguments of policies whose actions are a Box.
    """
    sizes: tuple[int, ...] = given.hidden_sizes
    options: dict[str, Any] = {"init": given.init, "generator": generator}
    continuous = isinstance(spec.action_space, gymnasium.spaces.Box)
    if network == "gru":
        if not sizes:
            raise ValueError("hidden_sizes must name the width of the gru, got none: --hidden-sizes 64, say")
        if continuous:
            return GRUGaussianPolicy(spec, sizes[0], **of_box, **options)
        return CategoricalGRUPolicy(spec, sizes[0], **options)
    if continuous:
        return GaussianMLPPolicy(spec, sizes, activation, **of_box, **options)
    return CategoricalMLPPolicy(spec, sizes, activation, **options)
