"""The algorithms of the command line: what each is told by options, and how it is made from a configuration."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from metaroll.cli.experiment.climbing_setup import (
    ClimbingSetup,
    build_climbing,
    climbing_env,
    climbing_sizes,
    climbing_tasks,
)
from metaroll.cli.experiment.distill_setup import DistillSetup, build_distillation, distill_tasks
from metaroll.cli.experiment.pearl_setup import build_pearl, family_sizes, family_tasks
from metaroll.cli.experiment.ppo_setup import EPOPT_SKIPS, PPOSetup, build_epopt, build_ppo, ppo_sizes, ppo_tasks
from metaroll.cli.options import Option, constructor_options
from metaroll.learners.distillation import Distillation
from metaroll.learners.epopt import EPOpt
from metaroll.learners.hill_climbing import HillClimbing
from metaroll.learners.pearl import PEARL
from metaroll.learners.ppo import PPO
from metaroll.training.evaluation.meta_evaluator import MetaEvaluator
from metaroll.training.evaluation.policy_evaluator import PolicyEvaluator
from metaroll.types import EnvUpdate

__all__ = ["KINDS", "AlgorithmKind"]


def _first_task(config: Mapping[str, Any], train: Any) -> Any:
    """The environment as it is, or that of a family with its first task."""
    return train[0] if isinstance(train, list) else config["env"]


@dataclass(frozen=True)
class AlgorithmKind:
    """How one algorithm is made.

    Attributes:
        documented: Its class.
        sizes: Values of options that follow from the environment.
        tasks: ``tasks(config, num_test)``: what to train in, and held-out tasks.
        build: ``build(config, train, test)``: the algorithm.
        evaluator: Class of its evaluator.
        constructors: What gives options beside ``documented``.
        skips: Options of ``constructors`` that do not count.
        env: ``env(config, train)``: the environment that the runner is set up with.
    """

    documented: type
    sizes: Callable[[str], Mapping[str, Any]]
    tasks: Callable[[Mapping[str, Any], int | None], tuple[Any, list[EnvUpdate]]]
    build: Callable[[Mapping[str, Any], Any, Sequence[EnvUpdate]], Any]
    evaluator: type = PolicyEvaluator
    constructors: tuple[type, ...] = ()
    skips: tuple[str, ...] = ()
    env: Callable[[Mapping[str, Any], Any], Any] = _first_task

    def options(self, taken: Collection[str]) -> list[Option]:
        """All options of the algorithm but those that are ``taken``."""
        options = constructor_options(self.documented, "algorithm", skip=taken)
        for constructor in self.constructors:
            options += constructor_options(constructor, "algorithm", skip={*taken, *self.skips})
        return options


KINDS: dict[str, AlgorithmKind] = {
    "pearl": AlgorithmKind(PEARL, family_sizes, family_tasks, build_pearl, MetaEvaluator),
    "ppo": AlgorithmKind(PPO, ppo_sizes, ppo_tasks, build_ppo, constructors=(PPOSetup,)),
    "epopt": AlgorithmKind(
        EPOpt, ppo_sizes, ppo_tasks, build_epopt, constructors=(PPO, PPOSetup), skips=tuple(EPOPT_SKIPS)
    ),
    "distill": AlgorithmKind(Distillation, ppo_sizes, distill_tasks, build_distillation, constructors=(DistillSetup,)),
    "hill-climbing": AlgorithmKind(
        HillClimbing, climbing_sizes, climbing_tasks, build_climbing, constructors=(ClimbingSetup,), env=climbing_env
    ),
}
"""What ``presets.ALGORITHM_NAMES`` names."""
