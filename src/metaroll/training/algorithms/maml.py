"""Rows of MAML, ProMP and DICE: their networks and tasks."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Collection, Sequence
from typing import Any

from metaroll.config import options_of, parts_of
from metaroll.configs.algorithms import MetaNetworks
from metaroll.configs.table import CONFIGS
from metaroll.errors import option_text
from metaroll.learners.maml.configs import AdamConfig, MAMLConfig, TrustRegionConfig
from metaroll.learners.maml.learner import MAML
from metaroll.learners.maml.outer import (
    DICEOuter,
    EMAMLOuter,
    OuterUpdate,
    ProMPOuter,
    TRPOOuter,
    VPGDICEOuter,
    VPGOuter,
)
from metaroll.training.algorithms import building
from metaroll.training.algorithms.algorithm import Algorithm, Values, Work
from metaroll.training.algorithms.building import BuildOptions
from metaroll.types import EnvSpec, EnvUpdate

__all__ = ["ROWS"]


_OUTERS: dict[str, type[Any]] = {
    "trpo": TRPOOuter,
    "vpg": VPGOuter,
    "emaml": EMAMLOuter,
    "dice": DICEOuter,
    "vpg-dice": VPGDICEOuter,
}


def _settled(values: Values, given: Collection[str]) -> Values:
    """At least as many adaptation rounds in evaluations as there are inner steps in training."""
    rounds, steps = values["adaptation_rounds"], values["num_inner_steps"]
    return {} if "adaptation_rounds" in given or rounds is None else {"adaptation_rounds": max(rounds, steps)}


def _notes(given: BuildOptions, epochs: int) -> list[str]:
    known, drawn = given.values["num_train_tasks"], given.values["meta_batch_size"]
    if known is None or drawn <= known:
        return []
    family = given.env.family
    if family.all_tasks or family.same_tasks:  # the family has no further tasks
        return []
    more = option_text("num_train_tasks", drawn)
    return [f"every epoch draws {drawn} tasks (meta_batch_size) of {known}: some repeat; {more} has as many"]


def _build(
    outer: Callable[[Values], OuterUpdate], given: BuildOptions, train: Sequence[EnvUpdate], test: Sequence[EnvUpdate]
) -> MAML:
    networks = parts_of(MetaNetworks, given.values)
    with contextlib.closing(train[0]()) as environment:
        spec = EnvSpec.from_env(environment)
    generator = building.network_generator(given)
    return MAML(
        spec,
        parts_of(MAMLConfig, given.values),
        policy=building.make_policy(
            spec, given, networks.network, networks.hidden_nonlinearity, generator, init_std=networks.init_std
        ),
        outer=outer(given.values),
        task_sampler=list(train),
        device=given.device,
        **building.common_arguments(given, test),
    )


def _work(values: Values) -> Work:
    return Work(0, _batch(values) * (values["num_inner_steps"] + 1), values.get("gradient_steps", 1))


def _batch(values: Values) -> int:
    return values["meta_batch_size"] * values["rollouts_per_task"] * values["max_steps"]


def _amount(algo: MAML, values: Values) -> str:
    moments = values["num_inner_steps"] + 1
    return f"{values['meta_batch_size']} tasks per epoch, {moments} x {values['rollouts_per_task']} rollouts in each"


def _chosen(values: Values) -> OuterUpdate:
    return parts_of(_OUTERS[values["outer"]], values)


def _only_chosen(values: Values) -> OuterUpdate:
    _refuse_foreign_options(_OUTERS[values["outer"]], values)
    return _chosen(values)


def _refuse_foreign_options(kind: type[OuterUpdate], values: Values) -> None:
    """Raise ``ValueError`` if an option of another outer update was set, since it would have no effect."""
    own = {option.name for option in options_of(kind)}
    for other, use in ((TrustRegionConfig, "trpo"), (AdamConfig, "vpg")):
        for option in options_of(other):
            name = option.name
            if name in values and name not in own and values[name] != option.default:
                here, there = option_text("outer", values["outer"]), option_text("outer", use)
                raise ValueError(f"{option_text(name, values[name])} is not for {here}: leave it out, or take {there}")


def _row(name: str, outer: Callable[[Values], OuterUpdate]) -> Algorithm:
    """The row of an algorithm with this outer update of its initial parameters."""
    return Algorithm(
        name=name,
        configs=CONFIGS[name],
        learner=MAML,
        adapts=True,
        build=functools.partial(_build, outer),
        work=_work,
        amount=_amount,
        sizes=building.family_sizes,
        tasks=building.family_tasks,
        settled=_settled,
        largest_batch=_batch,
        notes=_notes,
    )


ROWS = {
    row.name: row
    for row in (
        _row("maml", _only_chosen),
        _row("promp", functools.partial(parts_of, ProMPOuter)),
        _row("dice", _chosen),
    )
}
"""The algorithms by name."""
