"""The table: which configs an algorithm has, and all options of a run of it."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

from metaroll.config import Config, Option, options_of
from metaroll.functional.search.configs import (
    ARSConfig,
    OpenAIESConfig,
    PGPEConfig,
    SNESConfig,
    Starts,
)
from metaroll.learners.distillation_config import DistillationConfig
from metaroll.learners.evolution_configs import (
    CEMLearnerConfig,
    CMAESLearnerConfig,
    HillClimbingConfig,
    SearchConfig,
    Trials,
)
from metaroll.learners.maml.configs import AdamConfig, MAMLConfig, ProMPConfig, TrustRegionConfig
from metaroll.learners.off_policy.configs import (
    DDPGConfig,
    DQNConfig,
    RecurrentSACConfig,
    SACConfig,
    TD3Config,
    TQCConfig,
)
from metaroll.learners.on_policy.configs import EPOptConfig, PPOConfig, RL2Config
from metaroll.learners.pearl_config import PEARLConfig
from metaroll.training.settings.algorithms import (
    DICEOuterChoice,
    DistilledNetworks,
    Domains,
    GoalReplay,
    HeldOutDomains,
    HeldOutTasks,
    MAMLOuterChoice,
    MetaNetworks,
    PolicyNetworks,
    ReluNetworks,
    Replay,
    TanhNetworks,
    TaughtDomains,
    TrialSizes,
)
from metaroll.training.settings.evaluation import EvaluationConfig, MetaEvaluationConfig
from metaroll.training.settings.run import RunConfig

__all__ = ["ADAPTING", "CONFIGS", "current_names", "evaluation_config", "run_options"]

Parts = tuple[type[Config], ...]

_OFF_POLICY: Parts = (ReluNetworks, Domains, GoalReplay)
_SEARCH: Parts = (SearchConfig, Trials, Starts, TanhNetworks, Domains)
_META: Parts = (MAMLConfig, MetaNetworks, HeldOutTasks)

CONFIGS: Mapping[str, Parts] = {
    "pearl": (PEARLConfig,),
    "rl2": (RL2Config, TrialSizes, PPOConfig),
    "maml": (MAMLOuterChoice, TrustRegionConfig, AdamConfig, *_META),
    "promp": (ProMPConfig, *_META),
    "dice": (DICEOuterChoice, AdamConfig, *_META),
    "ppo": (PPOConfig, PolicyNetworks, Domains),
    "epopt": (EPOptConfig, PPOConfig, PolicyNetworks, Domains),
    "distill": (DistillationConfig, DistilledNetworks, TaughtDomains),
    "cmaes": (CMAESLearnerConfig, *_SEARCH),
    "cem": (CEMLearnerConfig, *_SEARCH),
    "ars": (ARSConfig, *_SEARCH),
    "es": (OpenAIESConfig, *_SEARCH),
    "pgpe": (PGPEConfig, *_SEARCH),
    "snes": (SNESConfig, *_SEARCH),
    "dqn": (DQNConfig, *_OFF_POLICY),
    "ddpg": (DDPGConfig, *_OFF_POLICY),
    "td3": (TD3Config, *_OFF_POLICY),
    "sac": (SACConfig, *_OFF_POLICY),
    "tqc": (TQCConfig, *_OFF_POLICY),
    "rsac": (RecurrentSACConfig, ReluNetworks, Domains, Replay),
    "hill-climbing": (HillClimbingConfig, TanhNetworks, HeldOutDomains),
}
"""Name of an algorithm -> configs of what can be set, of which the first counts where two have a field."""

ADAPTING = ("pearl", "rl2", "maml", "promp", "dice")
"""Names of algorithms that adapt to tasks."""

_HIDDEN: Mapping[str, frozenset[str]] = {
    # An epoch is a number of trials, each of a task of its own, which the wrapper limits.
    "rl2": frozenset(("domain_params", "gradients", "privileged", "steps_per_epoch", "tasks_per_epoch")),
    "epopt": frozenset(("steps_per_epoch", "tasks_per_epoch")),
    "rsac": frozenset(("n_step",)),
}
"""Fields that an algorithm fills itself."""


def evaluation_config(name: str) -> type[EvaluationConfig | MetaEvaluationConfig]:
    """Settings of the evaluations of an algorithm."""
    return MetaEvaluationConfig if name in ADAPTING else EvaluationConfig


@functools.cache
def run_options(name: str) -> tuple[Option, ...]:
    """All options of a run of an algorithm, in sections ``run``, ``algorithm`` and ``evaluation``."""
    evaluation = evaluation_config(name)
    sections: dict[str, Parts] = {"run": (RunConfig,), "algorithm": CONFIGS[name], "evaluation": (evaluation,)}
    hidden, options = _HIDDEN.get(name, frozenset()), dict[str, Option]()
    for section, configs in sections.items():
        for option in (option for config in configs for option in options_of(config)):
            if option.name not in hidden and option.name not in options:
                options[option.name] = dataclasses.replace(option, section=section)
    return tuple(options.values())


def current_names(config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration of a run with the names that options have now, whatever version has written it."""
    if config.get("algo") not in CONFIGS:
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
    return current
