"""The algorithms by name, and the values of their options that are known to work: ``presets.yaml``.

A new one is a module beside this one, a line in ``get_algorithm``, and an entry in that file.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from metaroll.errors import unknown_name

if TYPE_CHECKING:
    from metaroll.training.algorithms.description import AlgorithmDescription

__all__ = ["ALGORITHM_NAMES", "FIRST_RUN", "NEXT_RUN", "example_envs", "get_algorithm", "preset", "preset_names"]

_TUNED: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("presets.yaml").read_text("utf-8"))

ALGORITHM_NAMES = tuple(_TUNED)
"""Names of all algorithms."""

FIRST_RUN, NEXT_RUN = "pearl point-robot", "pearl cheetah-vel"
"""What newcomers are shown: algorithm and environment of a run of minutes, and of a serious one."""


def get_algorithm(name: str) -> AlgorithmDescription:
    """The description of an algorithm.

    Raises:
        UnknownNameError: There is none of this name; the message lists the nearest ones.
    """
    _require_known(name)
    # Here, since they load the learners: names and presets can be listed at once.
    from metaroll.training.algorithms.distillation import DistillationDescription
    from metaroll.training.algorithms.hill_climbing import HillClimbingDescription
    from metaroll.training.algorithms.pearl import PEARLDescription
    from metaroll.training.algorithms.ppo import EPOptDescription, PPODescription

    known: tuple[type[AlgorithmDescription], ...] = (
        PEARLDescription,
        PPODescription,
        EPOptDescription,
        DistillationDescription,
        HillClimbingDescription,
    )
    return next(description() for description in known if description.name == name)


def preset(name: str, env: str) -> dict[str, Any]:
    """Option name -> value of the algorithm in ``env``; without a preset for it those that it has everywhere."""
    tuned = _TUNED[name]
    values = tuned.get("presets", {}).get(env, tuned["common"])
    return {option: tuple(value) if isinstance(value, list) else value for option, value in values.items()}


def preset_names(name: str) -> list[str]:
    """Environments that have a preset for the algorithm."""
    _require_known(name)
    return sorted(_TUNED[name].get("presets", ()))


def example_envs(name: str) -> list[str]:
    """Environments to begin with: those that have a preset, else a simulated system that needs none."""
    return preset_names(name) or ["qcp-st"]


def _require_known(name: str) -> None:
    if name not in _TUNED:
        raise unknown_name("algorithm", name, ALGORITHM_NAMES)
