"""Builds what PPO and EPOpt need from a configuration: networks, and the variations of the environment to train in."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

import gymnasium

from metaroll.checks import check_number, check_whole
from metaroll.cli.experiment.param_ranges import ranges_randomizer
from metaroll.envs.lookup.randomization import conservative_randomizer, default_randomizer
from metaroll.envs.lookup.registry import get_family, is_varied
from metaroll.envs.lookup.source import make_env
from metaroll.learners.epopt import EPOpt
from metaroll.learners.ppo import PPO
from metaroll.policies.gaussian import CategoricalMLPPolicy, GaussianMLPPolicy
from metaroll.policies.gru import CategoricalGRUPolicy, GRUGaussianPolicy
from metaroll.policies.networks import MLP
from metaroll.policies.normalized import widened_spec
from metaroll.seeding import derive_seed, torch_generator
from metaroll.tasks.domain_access import check_domain_params
from metaroll.tasks.domain_randomizer import DomainRandomizer
from metaroll.tasks.task_sampler import FixedTaskSampler
from metaroll.types import EnvSpec, EnvUpdate

__all__ = [
    "EPOPT_SKIPS",
    "PPOSetup",
    "build_epopt",
    "build_ppo",
    "own_arguments",
    "ppo_sizes",
    "ppo_tasks",
    "spec_of",
    "training_randomizer",
    "variations_of",
]

EPOPT_SKIPS = ("steps_per_epoch", "tasks_per_epoch")
"""Arguments of PPO that do not count for EPOpt, which collects a number of rollouts."""

_HELD_OUT = 20
_RANDOMIZERS = {"default": default_randomizer, "conservative": conservative_randomizer}


@dataclass(frozen=True, kw_only=True)
class PPOSetup:
    """What PPO and EPOpt are told beside the arguments of their constructors.

    Args:
        network: Policy without or with memory (mlp or gru; gru is as wide as the first of hidden_sizes).
        hidden_nonlinearity: Activation of the hidden layers.
        init_std: Standard deviation of the actions at first, where they lie in [-1, 1].
        randomize: Train in, and evaluate on, random domain parameters: the usual ones of a simulated system, or half as
            wide. A task family has draws of its own.
        randomize_param: A domain parameter that is uniform on a range, NAME=LOW:HIGH, as length=0.3:0.7 in CartPole-v1,
            or body_mass:torso=3:10 in MuJoCo; may be given several times, and takes the place of randomize.
        num_train_tasks: Number of training tasks of a task family.
        num_test_tasks: Number of held-out tasks, or of held-out sets of domain parameters (null: 20 of them).
    """

    network: Literal["mlp", "gru"] = "mlp"
    hidden_nonlinearity: Literal["tanh", "relu"] = "tanh"
    init_std: float = 1.0
    randomize: Literal["none", "default", "conservative"] = "none"
    randomize_param: Sequence[str] = ()
    num_train_tasks: int | None = None
    num_test_tasks: int | None = None

    def __post_init__(self) -> None:
        check_number("init_std", self.init_std, 0.0, above_low=True)
        for name in ("num_train_tasks", "num_test_tasks"):
            if getattr(self, name) is not None:
                check_whole(name, getattr(self, name), 1)

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> PPOSetup:
        """Its part of a configuration."""
        given = config["algorithm"]  # of an older run, perhaps, which does not know every name
        return cls(**{field.name: given[field.name] for field in fields(cls) if field.name in given})


def ppo_sizes(env: str) -> dict[str, Any]:
    """Numbers that follow from the environment: its time limit, and the tasks of a family."""
    if is_varied(env):
        family = get_family(env)
        return {
            "num_train_tasks": family.num_train_tasks,
            "num_test_tasks": family.num_test_tasks,
            "max_path_length": family.horizon,
        }
    limit = spec_of(env).max_episode_length
    return {} if limit is None else {"max_path_length": limit}


def ppo_tasks(config: Mapping[str, Any], num_test: int | None = None) -> tuple[Any, list[EnvUpdate]]:
    """What to train in (``None``: the environment as it is), and held-out tasks (none: the environment as it is)."""
    setup = PPOSetup.of(config)
    held_out = setup.num_test_tasks if num_test is None else num_test
    return variations_of(config, setup.randomize, setup.num_train_tasks, held_out, setup.randomize_param)


def variations_of(
    config: Mapping[str, Any],
    randomize: str,
    num_train: int | None,
    num_test: int | None,
    ranges: Sequence[str] = (),
) -> tuple[Any, list[EnvUpdate]]:
    """Variations of the environment of ``config`` to train in, and held-out ones, as in ``ppo_tasks``.

    Args:
        config: The configuration.
        randomize: The option of this name.
        num_train: Number of training tasks of a family.
        num_test: Number of held-out tasks, or of held-out sets of domain parameters.
        ranges: The option ``randomize_param``.
    """
    env, run = config["env"], config["run"]
    seed = run["seed"] if run["task_seed"] is None else run["task_seed"]
    if is_varied(env):
        if ranges or randomize == "conservative":
            given = "randomize_param" if ranges else "randomize 'conservative'"
            raise ValueError(
                f"{given} is not for {env}, a family of tasks that draws its own: leave it out, with --randomize none"
            )
        return get_family(env).split(num_train, num_test, seed=seed)
    if randomize == "none" and not ranges:
        return None, []
    randomizer = training_randomizer(env, randomize, seed, ranges)
    return randomizer, randomizer.sample(num_test or _HELD_OUT, generator=derive_seed("held-out domains", seed))


def training_randomizer(env: str, randomize: str, seed: int, ranges: Sequence[str] = ()) -> DomainRandomizer:
    """What the options ``randomize`` and ``randomize_param`` mean in ``env``."""
    generator = derive_seed("training domains", seed)
    if ranges:
        return ranges_randomizer(env, ranges, generator)
    try:
        return _RANDOMIZERS[randomize](env, generator=generator)
    except ValueError as error:
        raise ValueError(
            f"randomize {randomize!r} cannot be used in {env}, for which no usual ranges are known: say what varies, "
            "as in --randomize-param length=0.3:0.7, or train in it as it is with --randomize none"
        ) from error


def build_ppo(config: Mapping[str, Any], train: Any, test: Sequence[EnvUpdate]) -> PPO:
    """The learner; all its randomness comes from the seed of the run."""
    setup, run = PPOSetup.of(config), config["run"]
    arguments = own_arguments(PPO, config)
    spec = spec_of(config["env"])
    if not is_varied(config["env"]):
        _check_names(config["env"], arguments["domain_params"])
    generator = torch_generator(derive_seed("networks", run["seed"]))
    sizes, init = tuple(run["hidden_sizes"]), run["init"]
    activation = setup.hidden_nonlinearity
    width = spec.obs_dim + len(arguments["domain_params"])
    return PPO(
        spec,
        _policy(
            widened_spec(spec, width - spec.obs_dim) if arguments["privileged"] else spec, setup, sizes, init, generator
        ),
        MLP(width, 1, sizes, activation, init=init, generator=generator),
        task_sampler=train,
        test_env_sampler=FixedTaskSampler(test) if test else None,
        seed=derive_seed("algorithm", run["seed"]),
        device=run["device"],
        **arguments,
    )


def build_epopt(config: Mapping[str, Any], train: Any, test: Sequence[EnvUpdate]) -> EPOpt:
    """EPOpt around the PPO of ``config``."""
    return EPOpt(build_ppo(config, train, test), **own_arguments(EPOpt, config))


def _check_names(env: str, domain_params: Sequence[str]) -> None:
    """Error with the nearest names unless the environment has these domain parameters."""
    made = make_env(env)
    try:
        check_domain_params(made, domain_params)
    finally:
        made.close()


def own_arguments(kind: type, config: Mapping[str, Any]) -> dict[str, Any]:
    """Those values of the algorithm that the constructor of ``kind`` takes."""
    taken = inspect.signature(kind).parameters
    return {name: value for name, value in config["algorithm"].items() if name in taken}


def _policy(spec: EnvSpec, setup: PPOSetup, sizes: tuple[int, ...], init: str, generator: Any) -> Any:
    continuous = isinstance(spec.action_space, gymnasium.spaces.Box)
    if setup.network == "gru":
        if not sizes:
            raise ValueError("hidden_sizes must name the width of the gru, got none: --hidden-sizes 64, say")
        if not continuous:
            return CategoricalGRUPolicy(spec, sizes[0], init=init, generator=generator)
        return GRUGaussianPolicy(spec, sizes[0], init_std=setup.init_std, init=init, generator=generator)
    if continuous:
        return GaussianMLPPolicy(
            spec, sizes, setup.hidden_nonlinearity, init_std=setup.init_std, init=init, generator=generator
        )
    return CategoricalMLPPolicy(spec, sizes, setup.hidden_nonlinearity, init=init, generator=generator)


def spec_of(env: str) -> EnvSpec:
    """Spaces and time limit of an environment."""
    made = make_env(env)
    try:
        return EnvSpec.from_env(made)
    finally:
        made.close()
