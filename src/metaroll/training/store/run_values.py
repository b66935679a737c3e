"""Contents of a run's configuration, read without its algorithm: options, entries that runs write, lasting ones."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from metaroll.config import options_of
from metaroll.configs.evaluation import EvaluationConfig, MetaEvaluationConfig
from metaroll.data.folders.kinds import CONFIG_FILE
from metaroll.errors import SnapshotError, option_text

__all__ = [
    "CHANGEABLE",
    "CONFIG_SECTIONS",
    "ENV_PLUGIN",
    "NETWORK",
    "OF_RUNS",
    "OLDER",
    "PLUGIN",
    "SIGNATURE",
    "adapts",
    "address_of",
    "check_same_run",
    "flat_values",
    "kept_origins",
    "network_of",
    "same_request",
]

CONFIG_SECTIONS = ("run", "algorithm", "evaluation")
PLUGIN = "plugin"
"""Entry of ``config.yaml`` for the origin of a foreign algorithm."""
ENV_PLUGIN = "env_plugin"
"""The same of an environment that a distribution declares."""
NETWORK = "own_network"
"""The same of a network of the user's."""
SIGNATURE = "signature"
"""Entry for the installation that has made the run."""
OF_RUNS = ("command", "versions", PLUGIN, ENV_PLUGIN, NETWORK, SIGNATURE)
"""Entries that only a run writes."""
CHANGEABLE = ("evaluate_every", "memory_limit", "lr_decay_epochs")
"""Options of an algorithm that may change when a run continues; all others determine its snapshots."""
OLDER = {"size": None, "held_out": "after_training"}
"""Options of runs of older versions, which do not name them: no size of now, and how tasks were held out then."""
_NOT_OPTIONS = ("metaroll_run", "algo", "env", "seeds", "jobs", *OF_RUNS)
_LASTING_RUN_OPTIONS = ("seed", "task_seed", "held_out", "hidden_sizes", "init")


def adapts(config: Mapping[str, Any]) -> bool:
    """Whether a run is of an algorithm that adapts to tasks, by how it is evaluated: the algorithm is not loaded."""
    plain, adapting = (
        {option.name for option in options_of(kind)} for kind in (EvaluationConfig, MetaEvaluationConfig)
    )
    return not (adapting - plain).isdisjoint(config["evaluation"])


def flat_values(document: Mapping[str, Any]) -> dict[str, Any]:
    """Option name -> value of a configuration with or without sections (``algo``, ``env`` and versions left out)."""
    values: dict[str, Any] = {}
    for key, value in document.items():
        if key in _NOT_OPTIONS:
            continue
        entries = value if key in CONFIG_SECTIONS and isinstance(value, Mapping) else {key: value}
        for name, entry in entries.items():
            if name in values:
                raise ValueError(f"option {name} is given twice, as {values[name]!r} and {entry!r}: keep one of them")
            values[name] = entry
    return values


def same_request(config: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two configurations ask for the same run: same command, bits and number of epochs, wherever they run."""
    same = all(config.get(name) == other.get(name) for name in ("command", "algo", "env"))
    return same and config["run"]["epochs"] == other["run"].get("epochs") and _lasting(config) == _lasting(other)


def network_of(config: Mapping[str, Any]) -> str | None:
    """The user's own network that a run of this configuration is built with; ``None`` without one.

    Raises:
        ValueError: It has an option twice.
    """
    name = flat_values(config).get("policy")
    return None if name is None else str(name)


def address_of(config: Mapping[str, Any]) -> str | None:
    """The Ray cluster that a run of this configuration connects to; ``None`` where it connects to none.

    Raises:
        ValueError: It has an option twice.
    """
    values = flat_values(config)
    address = values.get("ray_address") if values.get("transport") == "ray" else None
    return None if address is None else str(address)


def kept_origins(config: Mapping[str, Any]) -> dict[str, str]:
    """Origins of the plug-ins and the network of a run when it began: entry -> distribution, version and hash."""
    texts: dict[str, str] = {}
    for entry in (PLUGIN, ENV_PLUGIN, NETWORK):
        if isinstance(kept := config.get(entry), Mapping):
            parts = [str(kept[name]) for name in ("distribution", "version") if name in kept]
            parts += [f"sha256:{str(kept['sha256'])[:12]}"] if "sha256" in kept else []
            texts[entry] = " ".join(parts)
    return texts


def check_same_run(config: Mapping[str, Any], saved: Mapping[str, Any] | None, folder: Path) -> None:
    """Raise an error if the configuration differs from that of the snapshot in options that must not change."""
    here, there = _lasting(config), _lasting(saved or {})
    for name, value in here.items():
        if name in there and there[name] != value:
            raise SnapshotError(
                f"{name} in {folder / CONFIG_FILE} is {value!r}, the snapshot was written with {there[name]!r}: set it "
                f"back, or train again with {option_text('run_dir')}"
            )


def _lasting(config: Mapping[str, Any]) -> dict[str, Any]:
    from metaroll.training.store.files import to_plain  # it loads torch

    values = {name: config[name] for name in ("algo", "env") if name in config}
    values |= {name: value for name, value in config.get("algorithm", {}).items() if name not in CHANGEABLE}
    values |= {name: value for name, value in config.get("run", {}).items() if name in _LASTING_RUN_OPTIONS}
    if isinstance(values.get("teacher"), str):
        values["teacher"] = Path(values["teacher"]).name  # it may have been moved together with the run
    return to_plain(values)
