"""The public names of metaroll, and where they are defined; written by tools/stubs.py."""

from metaroll import configs as configs
from metaroll import contrib as contrib
from metaroll import lab as lab
from metaroll import plugins as plugins
from metaroll import policies as policies
from metaroll import search as search
from metaroll import sims as sims
from metaroll import statistics as statistics
from metaroll import testing as testing
from metaroll import wrappers as wrappers
from metaroll._agent import agent
from metaroll.compat.constructors import CEM, CMAES, PEARL, MetaEvaluator, OffPolicyRLAlgorithm
from metaroll.data.data_format import cat_to_format, new_tuple, stack_to_format, to_format
from metaroll.data.paths import TimeStep, TrajectoryBatch
from metaroll.data.recordings import load_rollout, load_rollouts, save_rollout, save_rollouts
from metaroll.data.replay.path_buffer import PathBuffer
from metaroll.data.replay.replay_buffer import ReplayBatch, ReplayBuffer, SegmentBatch
from metaroll.data.rollout_values import check_act_equal, discounted_value, discounted_values, gae_returns
from metaroll.data.step_sequence import DictIndexProxy, Step, StepSequence
from metaroll.envs.lookup.registry import TaskFamily, get_family
from metaroll.envs.lookup.source import make_slots
from metaroll.envs.metaworld.goal_sampler import MetaWorldTaskSampler
from metaroll.envs.metaworld.library import MW_TASKS_PER_ENV
from metaroll.functional.bootstrap import bootstrap_ci
from metaroll.functional.hyper_sphere import sample_from_hyper_sphere_surface
from metaroll.functional.minibatches import (
    gen_ordered_batch_idcs,
    gen_ordered_batches,
    gen_shuffled_batch_idcs,
    shuffled_ordered_batches,
)
from metaroll.functional.returns import discounted_reverse_cumsum
from metaroll.functional.sequences import (
    sequence,
    sequence_add_init,
    sequence_const,
    sequence_nlog2,
    sequence_plus_one,
    sequence_rec_double,
    sequence_rec_sqrt,
    sequence_sqrt,
)
from metaroll.inference.abc import ABCSMC
from metaroll.inference.checks import check_posterior
from metaroll.inference.embeddings import (
    AllStepsEmbedding,
    BayesSimEmbedding,
    DeltaStepsEmbedding,
    DynamicTimeWarpingEmbedding,
    Embedding,
    LastStepEmbedding,
    RNNEmbedding,
)
from metaroll.inference.identification import Identification, identify
from metaroll.inference.neural import NPDR, BayesSim
from metaroll.inference.posterior import Posterior
from metaroll.inference.priors import Prior, as_prior
from metaroll.inference.standardization import FeatureStandardizer
from metaroll.inference.verdicts import Verdict
from metaroll.lab.display.interactive import after_rollout_query
from metaroll.learners.base import NOP, MetaRLAlgorithm, RLAlgorithm
from metaroll.learners.evolution import Evolution, HillClimbing
from metaroll.learners.maml.learner import MAML
from metaroll.learners.maml.outer import DICEOuter, EMAMLOuter, ProMPOuter, TRPOOuter, VPGDICEOuter, VPGOuter
from metaroll.learners.off_policy.choosing import DQN
from metaroll.learners.off_policy.deterministic import DDPG, TD3
from metaroll.learners.off_policy.soft import SAC
from metaroll.learners.on_policy.ppo import PPO
from metaroll.learners.on_policy.rl2 import RL2
from metaroll.processing.baselines import LinearFeatureBaseline, LinearTimeBaseline, MLPBaseline, ZeroBaseline
from metaroll.processing.sample_processor import (
    DiceMetaSampleProcessor,
    DiceSampleProcessor,
    MetaSampleProcessor,
    SampleProcessor,
)
from metaroll.rollouts.configs import PoolTimeouts
from metaroll.rollouts.engine.engine import RolloutEngine
from metaroll.rollouts.garage.local_sampler import LocalSampler
from metaroll.rollouts.garage.workers import DefaultWorker, PEARLWorker, Worker, WorkerFactory
from metaroll.rollouts.samplers.cvar import CVaRSampler, select_cvar
from metaroll.rollouts.samplers.evaluation import (
    eval_domain_params,
    eval_domain_params_with_segmentwise_reset,
    eval_nominal_domain,
    eval_randomized_domain,
)
from metaroll.rollouts.samplers.executors import MetaIterativeEnvExecutor, MetaParallelEnvExecutor
from metaroll.rollouts.samplers.meta_sampler import MetaSampler, Sampler
from metaroll.rollouts.samplers.parallel import ParallelRolloutSampler
from metaroll.rollouts.samplers.param_sets import check_domain_params
from metaroll.rollouts.samplers.parameter_exploration import (
    ParameterExplorationSampler,
    ParameterSample,
    ParameterSamplingResult,
)
from metaroll.rollouts.samplers.sampler import SamplerBase
from metaroll.rollouts.samplers.sbi import (
    RealRolloutSamplerForSBI,
    RecRolloutSamplerForSBI,
    RolloutSamplerForSBI,
    SimRolloutSamplerForSBI,
)
from metaroll.rollouts.single.replay import replay
from metaroll.rollouts.single.rollout import rollout
from metaroll.rollouts.single.vector_env import SlotsVectorEnv
from metaroll.rollouts.workers.pool import GlobalNamespace, SamplerPool
from metaroll.rollouts.workers.schedule import WorkerStatus, format_workers
from metaroll.seeding import get_base_seed, isolated_rng, set_seed
from metaroll.tasks.distributions import (
    BernoulliDomainParam,
    DomainParam,
    LogUniformDomainParam,
    MultivariateNormalDomainParam,
    NormalDomainParam,
    TableDomainParam,
    UniformDomainParam,
)
from metaroll.tasks.domain_params import DomainParamUpdate
from metaroll.tasks.domain_randomizer import DomainRandomizer, RandomizationRange
from metaroll.tasks.finite_samplers import ConstructEnvsSampler, EnvPoolSampler
from metaroll.tasks.leak_guard import SplitReport, check_split
from metaroll.tasks.posterior_sampler import PosteriorTaskSampler
from metaroll.tasks.split_sampler import SplitTaskSampler
from metaroll.tasks.task_sampler import FixedTaskSampler, SetTaskSampler, TaskSampler
from metaroll.tasks.updates import ExistingEnvUpdate, NewEnvUpdate, SetTaskUpdate
from metaroll.training.evaluation.evaluator import PolicyEvaluator
from metaroll.training.run.callbacks import EvaluateEvery, KeepBest, RunCallback, StopAt, TimeBudget
from metaroll.training.run.runner import LocalRunner
from metaroll.training.session.adapting import AdaptedAgent
from metaroll.training.session.agent import Agent, load
from metaroll.training.store.loggers import TensorBoardLogger, WandbLogger
from metaroll.training.store.snapshots import SnapshotConfig, Snapshotter
from metaroll.types import EnvSpec, EnvUpdate, InOutSpec, RenderMode, RolloutPlan

__version__: str

__all__ = [
    "ABCSMC",
    "CEM",
    "CMAES",
    "DDPG",
    "DQN",
    "MAML",
    "MW_TASKS_PER_ENV",
    "NOP",
    "NPDR",
    "PEARL",
    "PPO",
    "RL2",
    "SAC",
    "TD3",
    "AdaptedAgent",
    "Agent",
    "AllStepsEmbedding",
    "BayesSim",
    "BayesSimEmbedding",
    "BernoulliDomainParam",
    "CVaRSampler",
    "ConstructEnvsSampler",
    "DICEOuter",
    "DefaultWorker",
    "DeltaStepsEmbedding",
    "DiceMetaSampleProcessor",
    "DiceSampleProcessor",
    "DictIndexProxy",
    "DomainParam",
    "DomainParamUpdate",
    "DomainRandomizer",
    "DynamicTimeWarpingEmbedding",
    "EMAMLOuter",
    "Embedding",
    "EnvPoolSampler",
    "EnvSpec",
    "EnvUpdate",
    "EvaluateEvery",
    "Evolution",
    "ExistingEnvUpdate",
    "FeatureStandardizer",
    "FixedTaskSampler",
    "GlobalNamespace",
    "HillClimbing",
    "Identification",
    "InOutSpec",
    "KeepBest",
    "LastStepEmbedding",
    "LinearFeatureBaseline",
    "LinearTimeBaseline",
    "LocalRunner",
    "LocalSampler",
    "LogUniformDomainParam",
    "MLPBaseline",
    "MetaEvaluator",
    "MetaIterativeEnvExecutor",
    "MetaParallelEnvExecutor",
    "MetaRLAlgorithm",
    "MetaSampleProcessor",
    "MetaSampler",
    "MetaWorldTaskSampler",
    "MultivariateNormalDomainParam",
    "NewEnvUpdate",
    "NormalDomainParam",
    "OffPolicyRLAlgorithm",
    "PEARLWorker",
    "ParallelRolloutSampler",
    "ParameterExplorationSampler",
    "ParameterSample",
    "ParameterSamplingResult",
    "PathBuffer",
    "PolicyEvaluator",
    "PoolTimeouts",
    "Posterior",
    "PosteriorTaskSampler",
    "Prior",
    "ProMPOuter",
    "RLAlgorithm",
    "RNNEmbedding",
    "RandomizationRange",
    "RealRolloutSamplerForSBI",
    "RecRolloutSamplerForSBI",
    "RenderMode",
    "ReplayBatch",
    "ReplayBuffer",
    "RolloutEngine",
    "RolloutPlan",
    "RolloutSamplerForSBI",
    "RunCallback",
    "SampleProcessor",
    "Sampler",
    "SamplerBase",
    "SamplerPool",
    "SegmentBatch",
    "SetTaskSampler",
    "SetTaskUpdate",
    "SimRolloutSamplerForSBI",
    "SlotsVectorEnv",
    "SnapshotConfig",
    "Snapshotter",
    "SplitReport",
    "SplitTaskSampler",
    "Step",
    "StepSequence",
    "StopAt",
    "TRPOOuter",
    "TableDomainParam",
    "TaskFamily",
    "TaskSampler",
    "TensorBoardLogger",
    "TimeBudget",
    "TimeStep",
    "TrajectoryBatch",
    "UniformDomainParam",
    "VPGDICEOuter",
    "VPGOuter",
    "Verdict",
    "WandbLogger",
    "Worker",
    "WorkerFactory",
    "WorkerStatus",
    "ZeroBaseline",
    "__version__",
    "after_rollout_query",
    "agent",
    "as_prior",
    "bootstrap_ci",
    "cat_to_format",
    "check_act_equal",
    "check_domain_params",
    "check_posterior",
    "check_split",
    "discounted_reverse_cumsum",
    "discounted_value",
    "discounted_values",
    "eval_domain_params",
    "eval_domain_params_with_segmentwise_reset",
    "eval_nominal_domain",
    "eval_randomized_domain",
    "format_workers",
    "gae_returns",
    "gen_ordered_batch_idcs",
    "gen_ordered_batches",
    "gen_shuffled_batch_idcs",
    "get_base_seed",
    "get_family",
    "identify",
    "isolated_rng",
    "load",
    "load_rollout",
    "load_rollouts",
    "make_slots",
    "new_tuple",
    "replay",
    "rollout",
    "sample_from_hyper_sphere_surface",
    "save_rollout",
    "save_rollouts",
    "select_cvar",
    "sequence",
    "sequence_add_init",
    "sequence_const",
    "sequence_nlog2",
    "sequence_plus_one",
    "sequence_rec_double",
    "sequence_rec_sqrt",
    "sequence_sqrt",
    "set_seed",
    "shuffled_ordered_batches",
    "stack_to_format",
    "to_format",
]
