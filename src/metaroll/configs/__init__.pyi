"""The public configs, and where they are defined; written by tools/stubs.py."""

from metaroll.configs.evaluation import EvaluationConfig, MetaEvaluationConfig
from metaroll.configs.inference import InferenceOptions, LoopOptions
from metaroll.configs.run import RunConfig
from metaroll.contrib.distillation import DistillationConfig
from metaroll.contrib.epopt import EPOptConfig
from metaroll.contrib.openai_es import OpenAIESConfig
from metaroll.contrib.pgpe import PGPEConfig
from metaroll.contrib.recurrent_sac import RecurrentSACConfig
from metaroll.contrib.snes import SNESConfig
from metaroll.contrib.tqc import TQCConfig
from metaroll.functional.search.configs import ARSConfig, Starts
from metaroll.inference.configs import EstimatorConfig
from metaroll.learners.evolution_configs import (
    CEMLearnerConfig,
    CMAESLearnerConfig,
    HillClimbingConfig,
    SearchConfig,
    Trials,
)
from metaroll.learners.maml.configs import AdamConfig, MAMLConfig, ProMPConfig, TrustRegionConfig
from metaroll.learners.off_policy.configs import DDPGConfig, DQNConfig, OffPolicyConfig, SACConfig, TD3Config
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
