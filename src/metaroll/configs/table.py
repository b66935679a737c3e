"""The table: which configs an algorithm has, and all options of a run of it."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from metaroll import configs, own_code, own_sources
from metaroll.config import Config, Option, options_of
from metaroll.configs.algorithms import (
    DICEOuterChoice,
    Domains,
    GoalReplay,
    HeldOutDomains,
    HeldOutTasks,
    MAMLOuterChoice,
    MetaNetworks,
    OwnNetwork,
    PolicyNetworks,
    ReluNetworks,
    TanhNetworks,
    TrialSizes,
)

__all__ = [
    "ADAPTING",
    "CONFIGS",
    "FILLED",
    "adapts",
    "add_algorithm",
    "current_names",
    "evaluation_config",
    "is_known",
    "options_with",
    "parts_of_algorithm",
    "run_options",
    "taken_names",
    "with_search",
]

Parts = tuple[type[Config], ...]
_ARGUMENTS = ("algo", "env", "run_dir", "tasks", "out", "config", "seeds", "jobs", "json", "quiet", "traceback", "help")
"""Names of the arguments of ``metaroll.agent`` and ``metaroll train`` that are not options."""

_OFF_POLICY: Parts = (ReluNetworks, Domains, GoalReplay)
_SEARCH: Parts = (configs.SearchConfig, configs.Trials, configs.Starts, TanhNetworks, Domains)
"""Configs of searches: evaluation of candidates, and the policy."""
_META: Parts = (configs.MAMLConfig, MetaNetworks, HeldOutTasks)

CONFIGS: Mapping[str, Parts] = {
    "pearl": (configs.PEARLConfig, OwnNetwork),
    "rl2": (configs.RL2Config, TrialSizes, configs.PPOConfig),
    "maml": (MAMLOuterChoice, configs.TrustRegionConfig, configs.AdamConfig, *_META),
    "promp": (configs.ProMPConfig, *_META),
    "dice": (DICEOuterChoice, configs.AdamConfig, *_META),
    "ppo": (configs.PPOConfig, PolicyNetworks, Domains),
    "cmaes": (configs.CMAESLearnerConfig, *_SEARCH),
    "cem": (configs.CEMLearnerConfig, *_SEARCH),
    "ars": (configs.ARSConfig, *_SEARCH),
    "dqn": (configs.DQNConfig, *_OFF_POLICY),
    "ddpg": (configs.DDPGConfig, *_OFF_POLICY),
    "td3": (configs.TD3Config, *_OFF_POLICY),
    "sac": (configs.SACConfig, *_OFF_POLICY),
    "hill-climbing": (configs.HillClimbingConfig, TanhNetworks, HeldOutDomains),
}
"""Name of an algorithm -> configs of its options; if two have the same field, the first one counts."""

ADAPTING = ("pearl", "rl2", "maml", "promp", "dice")
"""Names of algorithms that adapt to tasks."""

FILLED: Mapping[str, frozenset[str]] = {
    # An epoch is a number of trials, each with its own task and limited by the wrapper.
    "rl2": frozenset(("domain_params", "gradients", "privileged", "steps_per_epoch", "tasks_per_epoch")),
}
"""Fields that an algorithm sets itself, so they are not options."""


class _Plugin(NamedTuple):
    """The entry of an algorithm that is a plug-in."""

    configs: Parts
    adapts: bool
    filled: frozenset[str]


_plugins: dict[str, _Plugin] = {}
"""Loaded plug-ins by name."""


def with_search(search: type[Config]) -> Parts:
    """Configs of the algorithm that uses a class of searches."""
    return (search, *_SEARCH)


def add_algorithm(name: str, source: Any) -> None:
    """Add a plug-in: its ``Algorithm``, or a class of searches."""
    parts, adapting, filled = (
        (with_search(source), False, ()) if isinstance(source, type) else (source.configs, source.adapts, source.filled)
    )
    plugin = _Plugin(parts, adapting, frozenset(filled))
    if _plugins.get(name) != plugin:
        _plugins[name] = plugin
        run_options.cache_clear()


def is_known(name: str) -> bool:
    """Whether the options of an algorithm are known: it is ours, or has been loaded."""
    return name in CONFIGS or name in _plugins or name in own_code.contributed()


def adapts(name: str) -> bool:
    """Whether an algorithm adapts to tasks."""
    return name in ADAPTING if name in CONFIGS else _plugin(name).adapts


def parts_of_algorithm(name: str) -> Parts:
    """Configs of the options of an algorithm; if two have the same field, the first one counts."""
    return CONFIGS[name] if name in CONFIGS else _plugin(name).configs


def _plugin(name: str) -> _Plugin:
    """A loaded plug-in; those that metaroll itself declares are loaded on first use."""
    if name not in _plugins:
        add_algorithm(name, own_code.attribute_of(own_code.contributed()[name], "algorithm"))
    return _plugins[name]


def evaluation_config(name: str) -> type[configs.EvaluationConfig | configs.MetaEvaluationConfig]:
    """Settings of the evaluations of an algorithm."""
    return _evaluation_of(adapts(name))


def _evaluation_of(adapting: bool) -> type[configs.EvaluationConfig | configs.MetaEvaluationConfig]:
    return configs.MetaEvaluationConfig if adapting else configs.EvaluationConfig


@functools.cache
def run_options(name: str) -> tuple[Option, ...]:
    """All options of a run of an algorithm, in sections ``run``, ``algorithm`` and ``evaluation``."""
    filled = FILLED.get(name, frozenset()) if name in CONFIGS else _plugin(name).filled
    return options_with(parts_of_algorithm(name), adapts(name), filled)


def options_with(parts: Parts, adapting: bool, filled: Collection[str] = ()) -> tuple[Option, ...]:
    """All options of a run with these configs; if two have the same field, the first one counts."""
    sections = {"run": (configs.RunConfig,), "algorithm": parts, "evaluation": (_evaluation_of(adapting),)}
    options = dict[str, Option]()
    for section, kinds in sections.items():
        for option in (option for config in kinds for option in options_of(config)):
            if option.name not in filled and option.name not in options:
                options[option.name] = dataclasses.replace(option, section=section)
    return tuple(options.values())


def taken_names(parts: Parts, adapting: bool) -> dict[str, type[Any]]:
    """Fields of foreign configs with names that every run has already: name -> the class that adds it.

    Fields of our own configs may (``deterministic``); they take precedence over those of evaluations.
    """
    beside = (configs.RunConfig, _evaluation_of(adapting))
    taken = {*_ARGUMENTS, *(option.name for kind in beside for option in options_of(kind))}
    taken_by: dict[str, type[Any]] = {}
    for kind in parts:
        for name in (option.name for option in options_of(kind) if option.name in taken):
            bases = [base for base in kind.__mro__ if dataclasses.is_dataclass(base)]
            adds = [base for base in bases if name in {field.name for field in dataclasses.fields(base)}][-1]
            if not own_sources.is_ours(adds):
                taken_by[name] = adds
    return taken_by


def current_names(config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration of a run of any version, with the current names of options."""
    if not is_known(str(config.get("algo"))):
        return dict(config)
    current = dict(config)
    options = run_options(config["algo"])
    for section in ("run", "algorithm", "evaluation"):
        if isinstance(values := config.get(section), Mapping):
            names = {option.was: option.name for option in options if option.was and option.section == section}
            kept = {option.name for option in options}
            current[section] = {
                name if name in kept else names.get(name, name): value for name, value in values.items()
            }
    if isinstance(values := current.get("evaluation"), Mapping):
        current["evaluation"] = {**values, **evaluation_config(config["algo"]).settled(values, ())}
    return current
