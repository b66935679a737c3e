"""The syntax of environment names; everything here follows from their text, without lookup or import."""

from __future__ import annotations

from metaroll.own_code import module_of

__all__ = ["AT", "BENCHMARK", "module_of_env", "simulator_and_posterior"]

AT = "@"
"""Between the name of a simulator and the folder of a posterior."""
BENCHMARK = "metaworld:"
"""Before the name of a benchmark of Meta-World."""


def simulator_and_posterior(name: str) -> tuple[str, str]:
    """Both parts of ``SIM@FOLDER``; the second is empty where there is no posterior."""
    simulator, _, folder = name.partition(AT)
    return simulator, folder


def module_of_env(name: str) -> str | None:
    """The module that the name of an environment asks to import; ``None`` if there is none.

    ``module:attribute`` does, and ``module:Id-v0``, of which Gymnasium imports the module.
    """
    simulator, _ = simulator_and_posterior(name)
    return None if simulator.startswith(BENCHMARK) else module_of(simulator)
