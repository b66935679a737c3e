"""The inputs of building an algorithm: options, spaces and sizes of an environment, tasks, policies."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import gymnasium
import torch

from metaroll.envs.lookup.randomization import conservative_randomizer, default_randomizer
from metaroll.envs.lookup.source import EnvSource
from metaroll.errors import about_option, option_name, option_text
from metaroll.policies.acting import ActingPolicy
from metaroll.policies.gaussian import CategoricalMLPPolicy, GaussianMLPPolicy
from metaroll.policies.gru import CategoricalGRUPolicy, GRUGaussianPolicy
from metaroll.policies.own_body import OwnBody, as_body
from metaroll.seeding import derive_seed, torch_generator
from metaroll.tasks.domain_access import check_param_ranges
from metaroll.tasks.domain_randomizer import DomainRandomizer, as_randomizer
from metaroll.tasks.task_sampler import FixedTaskSampler
from metaroll.training.algorithms.own_networks import load_network
from metaroll.training.evaluation.verdict import FEWEST_TASKS
from metaroll.types import EnvSpec, EnvUpdate

__all__ = [
    "BuildOptions",
    "common_arguments",
    "env_sizes",
    "family_sizes",
    "family_tasks",
    "is_continuous",
    "is_discrete",
    "is_out_of_memory",
    "make_policy",
    "network_generator",
    "own_body",
    "parse_ranges",
    "training_tasks",
]

_HELD_OUT = 20
_NO_MEMORY = ("DefaultCPUAllocator: ", "CUDA error: out of memory")
"""Texts of torch's errors that have no type of their own."""
_RANDOMIZERS = {"default": default_randomizer, "conservative": conservative_randomizer}


@dataclass(frozen=True, kw_only=True)
class BuildOptions:
    """The inputs of building an algorithm.

    Attributes:
        env: The environment or the family of tasks.
        values: A value for each of the algorithm's options, by name.
        seed: Seed of networks and training.
        task_seed: Seed of the training and held-out tasks; ``None`` means ``seed``.
        hidden_sizes: Hidden layers of the networks.
        init: Initialization of weights.
        device: Device of gradient steps.
        epochs: Length of training in epochs; ``None`` if unknown.
        held_out: Whether held-out tasks are ``"independent"`` of the number of training tasks, or drawn
            ``"after_training"`` tasks.
    """

    env: EnvSource
    values: Mapping[str, Any]
    seed: int = 0
    task_seed: int | None = None
    hidden_sizes: tuple[int, ...]
    init: str
    device: str = "cpu"
    epochs: int | None = None
    held_out: str = "independent"

    def split(self, num_train: int | None, num_test: int | None) -> tuple[list[EnvUpdate], list[EnvUpdate]]:
        """Training and held-out tasks of the family."""
        later = self.held_out == "after_training"
        return self.env.family.split(num_train, num_test, self.seed_of_tasks, test_after_train=later)

    @property
    def seed_of_tasks(self) -> int:
        """Seed of the tasks."""
        return self.seed if self.task_seed is None else self.task_seed

    @classmethod
    def of(cls, config: Mapping[str, Any], env: EnvSource) -> BuildOptions:
        """The part of a run's configuration (sections ``run`` and ``algorithm``) that building in ``env`` needs.

        Options must have their current names: readers of run files take care of that (``current_names``).
        """
        # Configurations without this entry are from before the current way of holding out tasks.
        run = {"held_out": "after_training", **config["run"], "hidden_sizes": tuple(config["run"]["hidden_sizes"])}
        names = [field.name for field in fields(cls) if field.name not in ("env", "values")]
        return cls(env=env, values=config["algorithm"], **{name: run[name] for name in names})


# ------------------------------------------------------------------------------------------------------- environments
def is_continuous(spec: EnvSpec) -> bool:
    """Whether actions are a Box."""
    return isinstance(spec.action_space, gymnasium.spaces.Box)


def is_discrete(spec: EnvSpec) -> bool:
    """Whether actions are one choice."""
    return isinstance(spec.action_space, gymnasium.spaces.Discrete)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error means that memory for an array was missing, in this machine or on a device."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError) and any(text in str(error) for text in _NO_MEMORY)
    )


def family_sizes(env: EnvSource) -> dict[str, Any]:
    """Values that follow from a task family: numbers of tasks and steps, and the observed and the scored reward.

    If the family has a fixed, finite set of tasks, an evaluation has the number of repetitions that a verdict needs.
    """
    family = env.family
    repeated = {"repetitions": FEWEST_TASKS} if family.all_tasks else {}
    return {
        **repeated,
        "num_train_tasks": family.num_train_tasks,
        "num_test_tasks": family.num_test_tasks,
        "max_steps": family.horizon,
        "context_reward_key": family.observed_reward,
        "return_reward_key": family.scored_reward,
    }


def env_sizes(env: EnvSource) -> dict[str, Any]:
    """Values that follow from the environment: its time limit, or ``family_sizes``."""
    if env.is_varied:
        return family_sizes(env)
    limit = env.spec.max_episode_length
    return {} if limit is None else {"max_steps": limit}


# -------------------------------------------------------------------------------------------------------------- tasks
def training_tasks(given: BuildOptions, num_test: int | None = None) -> tuple[Any, list[EnvUpdate]]:
    """The training tasks (``None``: the nominal environment), and held-out tasks or domain parameters.

    Args:
        given: The environment, the seed of the tasks, and those of the options ``randomize``, ``randomize_param``,
            ``num_train_tasks`` (of a family) and ``num_test_tasks`` that the algorithm has.
        num_test: Number of held-out tasks; ``None`` means ``num_test_tasks``.
    """
    env, seed, values = given.env, given.seed_of_tasks, given.values
    randomize, ranges = values.get("randomize", "none"), values.get("randomize_param", ())
    held_out = values.get("num_test_tasks") if num_test is None else num_test
    if env.is_varied:
        if ranges or randomize == "conservative":
            option = option_name("randomize_param") if ranges else option_text("randomize", randomize)
            raise ValueError(
                f"{option} is not for {env}, a family of tasks that draws its own: leave it out, with "
                + option_text("randomize", "none")
            )
        return given.split(values.get("num_train_tasks"), held_out)
    if randomize == "none" and not ranges:
        return None, []
    randomizer = _randomizer(env, randomize, ranges, derive_seed("training domains", seed))
    return randomizer, randomizer.sample(held_out or _HELD_OUT, generator=derive_seed("held-out domains", seed))


def family_tasks(given: BuildOptions, num_test: int | None = None) -> tuple[list[EnvUpdate], list[EnvUpdate]]:
    """Training and held-out tasks of a family; see ``training_tasks``."""
    return given.split(
        given.values["num_train_tasks"], given.values["num_test_tasks"] if num_test is None else num_test
    )


_EXAMPLES = {"CartPole-v1": "length=0.3:0.7", "Pendulum-v1": "g=9:11", "MountainCar-v0": "gravity=0.002:0.003"}
"""Examples of the option that varies parameters, for environments that beginners try first."""


def _randomizer(env: EnvSource, randomize: str, texts: Sequence[str], generator: int) -> DomainRandomizer:
    """The randomizer over the usual ranges of ``env``, or over those of ``texts``, whose ends ``env`` must accept."""
    if texts:
        ranges = parse_ranges(texts)
        with contextlib.closing(env.make()) as made, about_option("randomize_param"):
            check_param_ranges(made, ranges)
        return DomainRandomizer(*as_randomizer(ranges).domain_params, generator=generator)
    try:
        return _RANDOMIZERS[randomize](env, generator=generator)
    except ValueError as error:
        example = option_text("randomize_param", [_EXAMPLES.get(env.name, "NAME=LOW:HIGH")], beside="randomize")
        raise ValueError(
            f"{option_text('randomize', randomize)} cannot be used in {env}, for which no usual ranges are known: name "
            f"what varies, as in {example}, or train in the nominal environment with "
            + option_text("randomize", "none")
        ) from error


def parse_ranges(texts: Sequence[str], option: str = "") -> dict[str, tuple[float, float]]:
    """Parse texts ``NAME=LOW:HIGH`` into name -> (low, high).

    Args:
        texts: The texts.
        option: Name of their option in errors; empty means ``randomize_param``.

    Raises:
        ValueError: A text has another form, or two have the same name.
    """
    option = option or option_name("randomize_param")
    ranges: dict[str, tuple[float, float]] = {}
    for text in texts:
        name, _, span = text.rpartition("=")  # names may have colons: body_mass:torso
        try:
            low, high = map(float, span.split(":"))
        except ValueError:
            low = high = math.nan
        if not (name and math.isfinite(low) and math.isfinite(high) and low < high):
            raise ValueError(f"{option} must be NAME=LOW:HIGH with numbers LOW < HIGH, as length=0.3:0.7, got {text!r}")
        if name in ranges:
            raise ValueError(f"{option} names {name!r} twice")
        ranges[name] = low, high
    return ranges


# ---------------------------------------------------------------------------------------------------------- arguments
def common_arguments(given: BuildOptions, test: Sequence[EnvUpdate]) -> dict[str, Any]:
    """Arguments common to all learners: the sampler of held-out tasks, and the seed."""
    return {
        "test_env_sampler": FixedTaskSampler(test) if test else None,
        "seed": derive_seed("algorithm", given.seed),
    }


def network_generator(given: BuildOptions) -> torch.Generator:
    """The generator of initial weights."""
    return torch_generator(derive_seed("networks", given.seed))


def own_body(spec: EnvSpec, given: BuildOptions, generator: torch.Generator) -> OwnBody | None:
    """The user's network that the option ``policy`` names, as ``encoder`` of a policy; ``None`` without one.

    Args:
        spec: Spaces that the policy sees.
        given: The options.
        generator: Source of initial weights; nothing is drawn without such a network.
    """
    name = given.values.get("policy")
    return None if name is None else as_body(load_network(name), spec, generator)


def make_policy(
    spec: EnvSpec, given: BuildOptions, network: str, activation: str, generator: torch.Generator, **of_box: Any
) -> ActingPolicy:
    """A policy for the spaces of ``spec``.

    Args:
        spec: The spaces.
        given: Hidden layers and initialization, or the user's network in place of the hidden layers.
        network: ``"gru"`` (as wide as the first hidden layer) or ``"mlp"``.
        activation: Activation of the hidden layers of an ``"mlp"``.
        generator: Source of initial weights.
        of_box: Further arguments for policies whose actions are a Box.
    """
    sizes: tuple[int, ...] = given.hidden_sizes
    options: dict[str, Any] = {"init": given.init, "generator": generator}
    body = own_body(spec, given, generator)
    continuous = is_continuous(spec)
    if continuous:
        options |= of_box
    if network == "gru":
        if body is not None:
            raise ValueError(
                f"{option_text('policy', given.values['policy'])} has no memory, and is not for "
                f"{option_text('network', 'gru')}: leave one of them out"
            )
        if not sizes:
            name, example = option_name("hidden_sizes"), option_text("hidden_sizes", (64,))
            raise ValueError(f"{name} must name the width of the gru, got none: {example}, for example")
        return (GRUGaussianPolicy if continuous else CategoricalGRUPolicy)(spec, sizes[0], **options)
    kind = GaussianMLPPolicy if continuous else CategoricalMLPPolicy
    return kind(spec, sizes if body is None else (), activation, encoder=body, **options)
