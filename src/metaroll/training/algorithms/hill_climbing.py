"""Hill climbing by name: its policy, and what randomizes its environment."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from metaroll.config import parts_of
from metaroll.configs.algorithms import TanhNetworks
from metaroll.configs.table import CONFIGS
from metaroll.envs.lookup.source import EnvSource
from metaroll.envs.wrappers.domain_rand import DomainRandWrapperLive
from metaroll.errors import option_name, option_text
from metaroll.learners.evolution_configs import HillClimbingConfig
from metaroll.learners.hill_climbing import HillClimbing
from metaroll.training.algorithms import building
from metaroll.training.algorithms.algorithm import Algorithm, Values, Work
from metaroll.training.algorithms.building import BuildOptions
from metaroll.types import EnvUpdate

__all__ = ["ROWS"]


_USUAL_SETS = 12
"""Parameter vectors of an epoch, where their number follows from the policy's: 4 + 3 ln P of a few parameters."""


_NAME = "hill-climbing"


def _sizes(env: EnvSource) -> Values:
    if env.is_varied:
        raise ValueError(
            f"{_NAME} learns in one environment, or in random domains of it, got the family of tasks {env.name!r};"
            " take a Gymnasium id or a simulated system such as qcp-st, or train ppo in the family"
        )
    return building.env_sizes(env)


def _build(given: BuildOptions, train: Any, test: Sequence[EnvUpdate]) -> HillClimbing:
    networks, spec = parts_of(TanhNetworks, given.values), given.env.spec
    if given.device != "cpu":
        device = option_name("device")
        raise ValueError(f"{_NAME} acts, and takes no gradient steps: {device} must be cpu, got {given.device!r}")
    generator = building.network_generator(given)
    policy = building.make_policy(spec, given, "mlp", networks.hidden_nonlinearity, generator, learn_std=False)
    config = parts_of(HillClimbingConfig, given.values)
    return HillClimbing(spec, config, policy=policy, **building.common_arguments(given, test))


def _environment(given: BuildOptions, train: Any) -> Any:
    """The sampler draws domains from the wrapper that randomizes the environment."""
    return given.env if train is None else functools.partial(_randomized, given.env, train)


def _randomized(env: EnvSource, randomizer: Any) -> Any:
    return DomainRandWrapperLive(env.make(), randomizer)


def _work(values: Values) -> Work:
    rollouts = values["num_domains"] * values["num_init_states_per_domain"]
    sets = (values["population"] or _USUAL_SETS) + 1
    return Work(0, sets * rollouts * values["max_steps"], 0, at_most=True)


def _amount(algo: HillClimbing, values: Values) -> str:
    each = algo.config.num_domains * algo.config.num_init_states_per_domain
    return f"{algo.pop_size + 1} parameter vectors per epoch, {each} rollouts each"


def _ended_early(algo: HillClimbing) -> tuple[int, str] | None:
    return (algo.num_epochs, f"the last returns are all alike ({option_text('stop_std')})") if algo.converged else None


ROWS = {
    _NAME: Algorithm(
        name=_NAME,
        configs=CONFIGS[_NAME],
        learner=HillClimbing,
        build=_build,
        sizes=_sizes,
        environment=_environment,
        work=_work,
        amount=_amount,
        ended_early=_ended_early,
    )
}
"""The algorithm by name."""
