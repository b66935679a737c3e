"""Origins of a run's plug-ins and network: their entries in its configuration, and warnings about changes since."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from metaroll.envs.base.names import simulator_and_posterior
from metaroll.envs.lookup import registry
from metaroll.errors import RunWarning
from metaroll.option_names import frames_of_ours
from metaroll.own_code import is_given
from metaroll.training.algorithms.own_networks import origin_given
from metaroll.training.algorithms.plugin_lookup import change_text, is_other, origin
from metaroll.training.store.run_values import ENV_PLUGIN, NETWORK, PLUGIN, network_of

__all__ = ["origins", "warn_of_changes"]


def origins(algo: str, env: str, network: str | None) -> dict[str, dict[str, str]]:
    """Entries of ``config.yaml``: distribution, version and hash of all foreign code; nothing is imported.

    Args:
        algo: Name of the algorithm.
        env: Name of the environment.
        network: Name of a user's network, if there is one.
    """
    entries: dict[str, dict[str, str]] = {}
    simulator, installed = simulator_and_posterior(env)[0], registry.installed()
    if is_other(algo):
        entries[PLUGIN] = origin(algo)
    if simulator in installed:
        entries[ENV_PLUGIN] = origin(simulator, installed)
    if network is not None:
        entries[NETWORK] = origin_given(network) if is_given(network) else origin(network)
    return entries


def warn_of_changes(config: Mapping[str, Any], folder: Path) -> None:
    """Warn (``RunWarning``) of all changes since the run, or the group of runs, in ``folder`` began.

    Args:
        config: Its configuration.
        folder: Its folder.
    """
    algo, env, network = config["algo"], config["env"], network_of(config)
    here = origins(algo, env, network)
    for entry, name in ((PLUGIN, algo), (ENV_PLUGIN, simulator_and_posterior(env)[0]), (NETWORK, network)):
        if name is not None and (news := change_text(name, config.get(entry), here.get(entry, {}))):
            warnings.warn(f"{folder}: {news}", RunWarning, stacklevel=frames_of_ours())
