"""All configs: settings of learners, searches, samplers, evaluations and runs.

Importing them loads no torch, but for those of ``metaroll.contrib``, each of which is in the file of its algorithm.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from metaroll.configs.evaluation import EvaluationConfig, MetaEvaluationConfig
from metaroll.configs.inference import InferenceOptions, LoopOptions
from metaroll.configs.run import RunConfig
from metaroll.exports import missing_attribute as _missing_attribute
from metaroll.functional.search.configs import (
    ARSConfig,
    Starts,
)
from metaroll.inference.configs import EstimatorConfig
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
    OffPolicyConfig,
    SACConfig,
    TD3Config,
)
from metaroll.learners.on_policy.configs import PPOConfig, RL2Config
from metaroll.learners.pearl_config import PEARLConfig
from metaroll.rollouts.configs import (
    EngineConfig,
    ExplorationConfig,
    FeaturesConfig,
    SamplerConfig,
    SimulationConfig,
    WorkersConfig,
)

_CONTRIBUTED = {
    "DistillationConfig": "metaroll.contrib.distillation",
    "EPOptConfig": "metaroll.contrib.epopt",
    "OpenAIESConfig": "metaroll.contrib.openai_es",
    "PGPEConfig": "metaroll.contrib.pgpe",
    "SNESConfig": "metaroll.contrib.snes",
    "RecurrentSACConfig": "metaroll.contrib.recurrent_sac",
    "TQCConfig": "metaroll.contrib.tqc",
}
"""Configs that are in the file of their algorithm, which is loaded when one is first used: name -> module."""

__all__ = [  # pyright: ignore[reportUnsupportedDunderAll]
    "ARSConfig",
    "AdamConfig",
    "CEMLearnerConfig",
    "CMAESLearnerConfig",
    "DDPGConfig",
    "DQNConfig",
    "EngineConfig",
    "EstimatorConfig",
    "EvaluationConfig",
    "ExplorationConfig",
    "FeaturesConfig",
    "HillClimbingConfig",
    "InferenceOptions",
    "LoopOptions",
    "MAMLConfig",
    "MetaEvaluationConfig",
    "OffPolicyConfig",
    "PEARLConfig",
    "PPOConfig",
    "ProMPConfig",
    "RL2Config",
    "RunConfig",
    "SACConfig",
    "SamplerConfig",
    "SearchConfig",
    "SimulationConfig",
    "Starts",
    "TD3Config",
    "Trials",
    "TrustRegionConfig",
    "WorkersConfig",
    *_CONTRIBUTED,
]


def __getattr__(name: str) -> Any:
    if name not in _CONTRIBUTED:
        raise _missing_attribute(__name__, name, __all__)
    value = globals()[name] = getattr(import_module(_CONTRIBUTED[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_CONTRIBUTED})
