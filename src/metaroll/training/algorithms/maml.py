"""MAML, ProMP and DICE by name: their networks, and the tasks that they learn in."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar, final

from metaroll.config import options_of, parts_of
from metaroll.configs.algorithms import MetaNetworks
from metaroll.envs.lookup.registry import get_family
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
from metaroll.training.algorithms.building import BuildOptions
from metaroll.training.algorithms.description import AlgorithmDescription, Work
from metaroll.types import EnvSpec, EnvUpdate

__all__ = ["DICEDescription", "MAMLDescription", "ProMPDescription"]


_OUTERS: dict[str, type[Any]] = {
    "trpo": TRPOOuter,
    "vpg": VPGOuter,
    "emaml": EMAMLOuter,
    "dice": DICEOuter,
    "vpg-dice": VPGDICEOuter,
}


class _MetaDescription(AlgorithmDescription, ABC):
    """What all share: they learn in families of tasks."""

    learner: ClassVar[type] = MAML
    adapts: ClassVar[bool] = True

    @abstractmethod
    def outer(self, values: Mapping[str, Any]) -> OuterUpdate:
        """How initial parameters improve."""

    def sizes(self, env: str) -> Mapping[str, Any]:
        return building.family_sizes(env)

    def settled(self, values: Mapping[str, Any], given: Collection[str]) -> Mapping[str, Any]:
        """Evaluations take all inner steps that are learned for."""
        rounds, steps = values["adaptation_rounds"], values["num_inner_steps"]
        return {} if "adaptation_rounds" in given or rounds is None else {"adaptation_rounds": max(rounds, steps)}

    def tasks(self, given: BuildOptions, num_test: int | None = None) -> tuple[list[EnvUpdate], list[EnvUpdate]]:
        held_out = given.values["num_test_tasks"] if num_test is None else num_test
        return given.split(given.values["num_train_tasks"], held_out)

    def notes(self, given: BuildOptions, epochs: int) -> list[str]:
        known, drawn = given.values["num_train_tasks"], given.values["meta_batch_size"]
        if known is None or drawn <= known:
            return []
        family = get_family(given.env)
        if family.all_tasks or family.same_tasks:  # there are no more
            return []
        more = option_text("num_train_tasks", drawn)
        return [f"every epoch draws {drawn} tasks (meta_batch_size) of {known}: some repeat; {more} has as many"]

    def build(self, given: BuildOptions, train: Sequence[EnvUpdate], test: Sequence[EnvUpdate]) -> MAML:
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
            outer=self.outer(given.values),
            task_sampler=list(train),
            device=given.device,
            **building.common_arguments(given, test),
        )

    def work(self, values: Mapping[str, Any]) -> Work:
        return Work(0, self.largest_batch(values) * (values["num_inner_steps"] + 1), values.get("gradient_steps", 1))

    def largest_batch(self, values: Mapping[str, Any]) -> int:
        return values["meta_batch_size"] * values["rollouts_per_task"] * values["max_steps"]

    def amount(self, algo: MAML, values: Mapping[str, Any]) -> str:
        moments = values["num_inner_steps"] + 1
        return (
            f"{values['meta_batch_size']} tasks per epoch, {moments} x {values['rollouts_per_task']} rollouts in each"
        )


@final
class MAMLDescription(_MetaDescription):
    """MAML with its trust region, or with plain policy gradients."""

    name: ClassVar[str] = "maml"

    def outer(self, values: Mapping[str, Any]) -> OuterUpdate:
        kind = _OUTERS[values["outer"]]
        _refuse_options_of_others(kind, values)
        return parts_of(kind, values)


def _refuse_options_of_others(kind: type[OuterUpdate], values: Mapping[str, Any]) -> None:
    """Error if somebody gave an option that another way to improve has, which would change nothing."""
    own = {option.name for option in options_of(kind)}
    for other, use in ((TrustRegionConfig, "trpo"), (AdamConfig, "vpg")):
        for option in options_of(other):
            name = option.name
            if name in values and name not in own and values[name] != option.default:
                here, there = option_text("outer", values["outer"]), option_text("outer", use)
                raise ValueError(f"{option_text(name, values[name])} is not for {here}: leave it out, or take {there}")


@final
class ProMPDescription(_MetaDescription):
    """ProMP."""

    name: ClassVar[str] = "promp"

    def outer(self, values: Mapping[str, Any]) -> OuterUpdate:
        return parts_of(ProMPOuter, values)


@final
class DICEDescription(_MetaDescription):
    """DICE, with its estimator inside and out, or inside alone."""

    name: ClassVar[str] = "dice"

    def outer(self, values: Mapping[str, Any]) -> OuterUpdate:
        kind = _OUTERS[values["outer"]]
        return parts_of(kind, values)
