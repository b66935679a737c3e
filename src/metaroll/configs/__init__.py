"""All configs: what can be set of learners, searches, samplers, evaluations and runs. Importing them loads no torch."""

from __future__ import annotations

from metaroll.configs.evaluation import EvaluationConfig, MetaEvaluationConfig
from metaroll.configs.inference import InferenceOptions, LoopOptions
from metaroll.configs.run import RunConfig
from metaroll.functional.search.configs import (
    ARSConfig,
    OpenAIESConfig,
    PGPEConfig,
    SNESConfig,
    Starts,
)
from metaroll.inference.configs import EstimatorConfig
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
    OffPolicyConfig,
    RecurrentSACConfig,
    SACConfig,
    TD3Config,
    TQCConfig,
)
from metaroll.learners.on_policy.configs import EPOptConfig, PPOConfig, RL2Config
from metaroll.learners.pearl_config import PEARLConfig
from metaroll.rollouts.configs import (
    EngineConfig,
    ExplorationConfig,
    FeaturesConfig,
    SamplerConfig,
    SimulationConfig,
    WorkersConfig,
)

__all__ = [
    "ARSConfig",
    "AdamConfig",
    "CEMLearnerConfig",
    "CMAESLearnerConfig",
    "DDPGConfig",
    "DQNConfig",
    "DistillationConfig",
    "EPOptConfig",
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
    "OpenAIESConfig",
    "PEARLConfig",
    "PGPEConfig",
    "PPOConfig",
    "ProMPConfig",
    "RL2Config",
    "RecurrentSACConfig",
    "RunConfig",
    "SACConfig",
    "SNESConfig",
    "SamplerConfig",
    "SearchConfig",
    "SimulationConfig",
    "Starts",
    "TD3Config",
    "TQCConfig",
    "Trials",
    "TrustRegionConfig",
    "WorkersConfig",
]
