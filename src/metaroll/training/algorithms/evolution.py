"""Rows of evolutionary algorithms: CMA-ES, CEM, ARS and plug-ins, in an environment, random domains or tasks of it.

Hill climbing has no tasks: its random domains come from an environment that randomizes itself.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from metaroll.config import parts_of
from metaroll.configs.algorithms import TanhNetworks
from metaroll.configs.table import CONFIGS, with_search
from metaroll.envs.lookup.source import EnvSource
from metaroll.envs.wrappers.domain_rand import DomainRandWrapperLive
from metaroll.errors import counted, option_name, option_text
from metaroll.functional.search.finite_differences import ARS
from metaroll.functional.search.multi_start import Starts
from metaroll.learners.evolution import CEM, CMAES, Evolution, HillClimbing, SearchLearner
from metaroll.learners.evolution_configs import HillClimbingConfig, SearchConfig, Trials
from metaroll.training.algorithms import building
from metaroll.training.algorithms.algorithm import API, Algorithm, Values, Work
from metaroll.training.algorithms.building import BuildOptions
from metaroll.types import EnvSpec, EnvUpdate

__all__ = ["ROWS", "search_row"]

_USUAL_CANDIDATES = 12
"""Candidates per epoch if their number, 4 + 3 ln P, depends on the number P of parameters, which is unknown yet."""
_USUAL_PARAMETERS = 15
"""P assumed before there is a policy: 15 parameters give 12 candidates."""
_HILL_CLIMBING = "hill-climbing"
Kind = type[SearchLearner[Any]]


def _common_arguments(name: str, spec: EnvSpec, given: BuildOptions, test: Sequence[EnvUpdate]) -> dict[str, Any]:
    """The policy whose parameters are searched, and the arguments common to all learners."""
    networks = parts_of(TanhNetworks, given.values)
    if given.device != "cpu":
        device = option_name("device")
        raise ValueError(f"{name} acts, and takes no gradient steps: {device} must be cpu, got {given.device!r}")
    generator = building.network_generator(given)
    policy = building.make_policy(spec, given, "mlp", networks.hidden_nonlinearity, generator, learn_std=False)
    return {"policy": policy, **building.common_arguments(given, test)}


def _build(
    name: str, learner: Kind, search: type[Any] | None, given: BuildOptions, train: Any, test: Sequence[EnvUpdate]
) -> SearchLearner[Any]:
    spec = given.env.spec
    common = _common_arguments(name, spec, given, test)
    trials = parts_of(Trials, given.values)
    if trials.rollouts_per_candidate is None:
        missing, example = option_name("rollouts_per_candidate"), option_text("rollouts_per_candidate", 1)
        raise ValueError(f"{missing} is missing: {example}, for example")
    arguments = {"trials": trials, "starts": parts_of(Starts, given.values), "task_sampler": train, **common}
    if search is None:
        return learner(spec, parts_of(CONFIGS[name][0], given.values), **arguments)
    return Evolution(spec, parts_of(search, given.values), config=parts_of(SearchConfig, given.values), **arguments)


def _work(num_candidates: Callable[[Values], int], values: Values) -> Work:
    rollouts = (values["rollouts_per_candidate"] or 1) * values["tasks_per_epoch"]
    steps = num_candidates(values) * rollouts * values["max_steps"]
    rounds = parts_of(Starts, values).rounds
    given_up = steps * sum((starts - 1) * epochs for starts, epochs in rounds)
    return Work(given_up, steps, 0, initial="and {} for the starts that are given up", at_most=True)


def _population(values: Values) -> int:
    return values["population"] or _USUAL_CANDIDATES


def _pairs(values: Values) -> int:
    return 2 * values["num_directions"]


def _amount(algo: SearchLearner[Any], values: Values) -> str:
    each = values["rollouts_per_candidate"]
    text = f"{algo.num_candidates} parameter vectors per epoch, {counted(each, 'rollout')} each"
    rounds = algo.starts.rounds
    if not rounds:
        return text
    return f"{text}, from {rounds[0][0]} starts of which one is left after {sum(count for _, count in rounds)} epochs"


def _amount_with_covariance(algo: SearchLearner[Any], values: Values) -> str:
    kind = "the diagonal" if isinstance(algo, CMAES) and algo.is_separable else "all"
    return f"{_amount(algo, values)}, {kind} of their covariance is learned"


def _ended_early(algo: SearchLearner[Any]) -> tuple[int, str] | None:
    return (algo.num_epochs, f"the search has ended: {', '.join(algo.stop_reasons)}") if algo.converged else None


def _row(
    name: str,
    learner: Kind,
    num_candidates: Callable[[Values], int],
    search: type[Any] | None = None,
    amount: Callable[[Any, Values], str] = _amount,
) -> Algorithm:
    """The row of a search.

    Args:
        name: Its name.
        learner: Class of the learner.
        num_candidates: Number of candidates per epoch.
        search: Class of the search, whose settings are options; ``None`` if the learner's config has them all.
        amount: See ``Algorithm``.
    """
    return Algorithm(
        name=name,
        configs=CONFIGS[name],
        learner=learner,
        build=functools.partial(_build, name, learner, search),
        work=functools.partial(_work, num_candidates),
        amount=amount,
        ended_early=_ended_early,
    )


# -- hill climbing, in domains of an environment that randomizes itself ------------------------------------------------


def _no_family(env: EnvSource) -> Values:
    if env.is_varied:
        raise ValueError(
            f"{_HILL_CLIMBING} learns in one environment, or in random domains of it, got the family of tasks "
            f"{env.name!r}; take a Gymnasium id or a simulated system such as qcp-st, or train ppo in the family"
        )
    return building.env_sizes(env)


def _build_climber(given: BuildOptions, train: Any, test: Sequence[EnvUpdate]) -> HillClimbing:
    spec = given.env.spec
    config = parts_of(HillClimbingConfig, given.values)
    return HillClimbing(spec, config, **_common_arguments(_HILL_CLIMBING, spec, given, test))


def _randomizing(given: BuildOptions, train: Any) -> Any:
    """The constructor of an environment that randomizes itself, from whose wrapper the sampler draws domains."""
    return given.env if train is None else functools.partial(_randomized, given.env, train)


def _randomized(env: EnvSource, randomizer: Any) -> Any:
    return DomainRandWrapperLive(env.make(), randomizer)


def _rollouts_of_set(values: Values) -> int:
    return values["num_domains"] * values["num_init_states_per_domain"]


def _work_of_climber(values: Values) -> Work:
    sets = _population(values) + 1
    return Work(0, sets * _rollouts_of_set(values) * values["max_steps"], 0, at_most=True)


def _amount_of_climber(algo: HillClimbing, values: Values) -> str:
    return f"{algo.num_candidates} parameter vectors per epoch, {_rollouts_of_set(values)} rollouts each"


# ----------------------------------------------------------------------------------------------------------------------


def search_row(name: str, search: type[Any], **more: Any) -> Algorithm:
    """The row of a search that is a plug-in: an ``Evolution`` with that search.

    Args:
        name: Its name.
        search: Its class, a config and a ``Search``.
        more: Other attributes of the row.
    """

    def num_candidates(values: Values) -> int:
        made = parts_of(search, values)
        return made.num_candidates(made.start(np.zeros(_USUAL_PARAMETERS)))

    return Algorithm(
        **{
            "name": name,
            "api": API,
            "configs": with_search(search),
            "learner": Evolution,
            "build": functools.partial(_build, name, Evolution, search),
            "work": functools.partial(_work, num_candidates),
            "amount": _amount,
            "ended_early": _ended_early,
            "purpose": f"searches by {search.__name__}",
            "common": {"rollouts_per_candidate": 1},
            **more,
        }
    )


ROWS = {
    row.name: row
    for row in (
        _row("cmaes", CMAES, _population, amount=_amount_with_covariance),
        _row("cem", CEM, _population),
        _row("ars", Evolution, _pairs, ARS),
        Algorithm(
            name=_HILL_CLIMBING,
            configs=CONFIGS[_HILL_CLIMBING],
            learner=HillClimbing,
            build=_build_climber,
            sizes=_no_family,
            environment=_randomizing,
            work=_work_of_climber,
            amount=_amount_of_climber,
            ended_early=_ended_early,
        ),
    )
}
"""The algorithms by name."""
