"""The algorithms by name. A new one is a module beside this one, and a line in ``_DESCRIPTIONS``."""

from __future__ import annotations

from metaroll.errors import unknown_name
from metaroll.training.algorithms.description import AlgorithmDescription
from metaroll.training.algorithms.distillation import DistillationDescription
from metaroll.training.algorithms.hill_climbing import HillClimbingDescription
from metaroll.training.algorithms.pearl import PEARLDescription
from metaroll.training.algorithms.ppo import EPOptDescription, PPODescription

__all__ = ["ALGORITHM_NAMES", "FIRST_RUN", "NEXT_RUN", "example_envs", "get_algorithm", "preset_names"]

_DESCRIPTIONS: tuple[AlgorithmDescription, ...] = (
    PEARLDescription(),
    PPODescription(),
    EPOptDescription(),
    DistillationDescription(),
    HillClimbingDescription(),
)
_BY_NAME = {description.name: description for description in _DESCRIPTIONS}

ALGORITHM_NAMES = tuple(_BY_NAME)
"""Names of all algorithms."""

FIRST_RUN, NEXT_RUN = "pearl point-robot", "pearl cheetah-vel"
"""What newcomers are shown: algorithm and environment of a run of minutes, and of a serious one."""


def get_algorithm(name: str) -> AlgorithmDescription:
    """The description of an algorithm.

    Raises:
        UnknownNameError: There is none of this name; the message lists the nearest ones.
    """
    if name not in _BY_NAME:
        raise unknown_name("algorithm", name, ALGORITHM_NAMES)
    return _BY_NAME[name]


def preset_names(name: str) -> list[str]:
    """Environments that have a preset for the algorithm."""
    return sorted(get_algorithm(name).presets)


def example_envs(name: str) -> list[str]:
    """Environments to begin with: those that have a preset, else a simulated system that needs none."""
    return preset_names(name) or ["qcp-st"]
