"""Hill climbing by name: its policy, and what randomizes its environment."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, final

from metaroll.config import parts_of
from metaroll.configs.algorithms import TanhNetworks
from metaroll.envs.base.constructors import make_env
from metaroll.envs.lookup.registry import is_varied
from metaroll.envs.wrappers.domain_rand import DomainRandWrapperLive
from metaroll.errors import option_name, option_text
from metaroll.learners.evolution_configs import HillClimbingConfig
from metaroll.learners.hill_climbing import HillClimbing
from metaroll.training.algorithms import building
from metaroll.training.algorithms.building import BuildOptions
from metaroll.training.algorithms.description import AlgorithmDescription, Work
from metaroll.types import EnvUpdate

__all__ = ["HillClimbingDescription"]


_USUAL_SETS = 12
"""Parameter vectors of an epoch, where their number follows from the policy's: 4 + 3 ln P of a few parameters."""


@final
class HillClimbingDescription(AlgorithmDescription):
    """Hill climbing over the parameters of a policy, in one environment or in random domains of it."""

    name: ClassVar[str] = "hill-climbing"
    learner: ClassVar[type] = HillClimbing

    def sizes(self, env: str) -> Mapping[str, Any]:
        if is_varied(env):
            raise ValueError(
                f"hill-climbing learns in one environment, or in random domains of it, got the family of tasks {env!r};"
                " take a Gymnasium id or a simulated system such as qcp-st, or train ppo in the family"
            )
        return super().sizes(env)

    def build(self, given: BuildOptions, train: Any, test: Sequence[EnvUpdate]) -> HillClimbing:
        networks, spec = parts_of(TanhNetworks, given.values), building.spec_of(given.env)
        if given.device != "cpu":
            raise ValueError(
                f"hill-climbing acts, and takes no gradient steps: {option_name('device')} must be cpu, got "
                f"{given.device!r}"
            )
        generator = building.network_generator(given)
        policy = building.make_policy(spec, given, "mlp", networks.hidden_nonlinearity, generator, learn_std=False)
        config = parts_of(HillClimbingConfig, given.values)
        return HillClimbing(spec, config, policy=policy, **building.common_arguments(given, test))

    def environment(self, given: BuildOptions, train: Any) -> Any:
        """The sampler draws domains from the wrapper that randomizes the environment."""
        return given.env if train is None else functools.partial(_randomized, given.env, train)

    def work(self, values: Mapping[str, Any]) -> Work:
        rollouts = values["num_domains"] * values["num_init_states_per_domain"]
        sets = (values["population"] or _USUAL_SETS) + 1
        return Work(0, sets * rollouts * values["max_steps"], 0, at_most=True)

    def amount(self, algo: HillClimbing, values: Mapping[str, Any]) -> str:
        each = algo.config.num_domains * algo.config.num_init_states_per_domain
        return f"{algo.pop_size + 1} parameter vectors per epoch, {each} rollouts each"

    def ended_early(self, algo: HillClimbing) -> tuple[int, str] | None:
        return (
            (algo.num_epochs, f"the last returns are all alike ({option_text('stop_std')})") if algo.converged else None
        )


def _randomized(env: str, randomizer: Any) -> Any:
    return DomainRandWrapperLive(make_env(env), randomizer)
