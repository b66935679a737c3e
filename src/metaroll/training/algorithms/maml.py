"""MAML, ProMP and DICE by name: their networks, and the tasks that they learn in."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal, final

from metaroll.checks import check_number
from metaroll.envs.lookup.registry import get_family
from metaroll.errors import option_text
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
from metaroll.training.algorithms.building import BuildOptions, setup_of
from metaroll.training.algorithms.description import AlgorithmDescription, Work
from metaroll.types import EnvSpec, EnvUpdate

__all__ = ["DICEDescription", "DICESetup", "MAMLDescription", "MAMLSetup", "MetaSetup", "ProMPDescription"]


@dataclass(frozen=True, kw_only=True)
class MetaSetup:
    """What MAML takes beside the arguments of its constructor.

    Args:
        network: Policy without or with memory (mlp or gru; gru is as wide as the first of hidden_sizes).
        hidden_nonlinearity: Activation of the hidden layers.
        init_std: Standard deviation of the actions at first, where they lie in [-1, 1].
        num_train_tasks: Number of training tasks of a task family.
        num_test_tasks: Number of held-out tasks.
    """

    network: Literal["mlp", "gru"] = "mlp"
    hidden_nonlinearity: Literal["tanh", "relu"] = "tanh"
    init_std: float = 0.5
    num_train_tasks: int | None = None
    num_test_tasks: int | None = None

    def __post_init__(self) -> None:
        check_number("init_std", self.init_std, 0.0, above_low=True)


@dataclass(frozen=True, kw_only=True)
class MAMLSetup:
    """How MAML's initial parameters improve.

    Args:
        outer: By a trust region, by the plain policy gradient, or by this and what made the samples before adaptation;
            of the first are max_kl, cg_iterations, damping, backtrack_ratio and max_backtracks, of the others
            learning_rate, num_outer_steps and max_grad_norm.
    """

    outer: Literal["trpo", "vpg", "emaml"] = "trpo"


@dataclass(frozen=True, kw_only=True)
class DICESetup:
    """How DICE's initial parameters improve.

    Args:
        outer: By DICE's estimator, too, or by the plain policy gradient after inner steps along it.
    """

    outer: Literal["dice", "vpg-dice"] = "dice"


_OUTERS: dict[str, type[OuterUpdate]] = {
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
        setup, arguments = setup_of(MetaSetup, given.values), building.own_arguments(MAML, given.values)
        with contextlib.closing(train[0]()) as environment:
            spec = EnvSpec.from_env(environment)
        generator = building.network_generator(given)
        arguments.pop("outer", None)
        return MAML(
            spec,
            building.make_policy(
                spec, given, setup.network, setup.hidden_nonlinearity, generator, init_std=setup.init_std
            ),
            self.outer(given.values),
            task_sampler=list(train),
            device=given.device,
            **building.common_arguments(given, test),
            **arguments,
        )

    def work(self, values: Mapping[str, Any]) -> Work:
        return Work(0, self.largest_batch(values) * (values["num_inner_steps"] + 1), values.get("num_outer_steps", 1))

    def largest_batch(self, values: Mapping[str, Any]) -> int:
        return values["meta_batch_size"] * values["rollouts_per_task"] * values["max_path_length"]

    def amount(self, algo: MAML, values: Mapping[str, Any]) -> str:
        moments = values["num_inner_steps"] + 1
        return (
            f"{values['meta_batch_size']} tasks per epoch, {moments} x {values['rollouts_per_task']} rollouts in each"
        )


@final
class MAMLDescription(_MetaDescription):
    """MAML with its trust region, or with plain policy gradients."""

    name: ClassVar[str] = "maml"
    option_sources: ClassVar[Sequence[tuple[type, Collection[str]]]] = (
        (MAMLSetup, ()),
        (TRPOOuter, ()),
        (VPGOuter, ()),
        (MetaSetup, ()),
    )

    def outer(self, values: Mapping[str, Any]) -> OuterUpdate:
        kind = _OUTERS[values["outer"]]
        _refuse_options_of_others(kind, values)
        return kind(**building.own_arguments(kind, values))


def _refuse_options_of_others(kind: type[OuterUpdate], values: Mapping[str, Any]) -> None:
    """Error if somebody gave an option that another way to improve has, which would change nothing."""
    own = building.own_arguments(kind, values)
    for other in (TRPOOuter, VPGOuter):
        defaults = {field.name: field.default for field in fields(other)}
        for name in defaults.keys() & values.keys() - own.keys():
            if values[name] != defaults[name]:
                use = "trpo" if other is TRPOOuter else "vpg"
                raise ValueError(
                    f"{name} is not for outer {values['outer']!r}, which does not have it, got {values[name]!r}: leave "
                    f"it out, or take {option_text('outer', use)}"
                )


@final
class ProMPDescription(_MetaDescription):
    """ProMP."""

    name: ClassVar[str] = "promp"
    option_sources: ClassVar[Sequence[tuple[type, Collection[str]]]] = ((ProMPOuter, ()), (MetaSetup, ()))

    def outer(self, values: Mapping[str, Any]) -> OuterUpdate:
        return ProMPOuter(**building.own_arguments(ProMPOuter, values))


@final
class DICEDescription(_MetaDescription):
    """DICE, with its estimator inside and out, or inside alone."""

    name: ClassVar[str] = "dice"
    option_sources: ClassVar[Sequence[tuple[type, Collection[str]]]] = (
        (DICESetup, ()),
        (DICEOuter, ()),
        (MetaSetup, ()),
    )

    def outer(self, values: Mapping[str, Any]) -> OuterUpdate:
        kind = _OUTERS[values["outer"]]
        return kind(**building.own_arguments(kind, values))
