"""The public names of metaroll, and where they are defined; written by tools/stubs.py."""

from metaroll import configs as configs
from metaroll import plugins as plugins
from metaroll import testing as testing
from metaroll._agent import agent
from metaroll.compat.constructors import CEM, CMAES, PEARL, MetaEvaluator, OffPolicyRLAlgorithm
from metaroll.contrib.discrete_sac import DiscreteSAC
from metaroll.contrib.distillation import Distillation
from metaroll.contrib.epopt import EPOpt
from metaroll.contrib.openai_es import OpenAIES
from metaroll.contrib.pgpe import PGPE
from metaroll.contrib.recurrent_sac import RecurrentCritics, RecurrentSAC
from metaroll.contrib.snes import SNES
from metaroll.contrib.tqc import TQC
from metaroll.data.data_format import cat_to_format, new_tuple, stack_to_format, to_format
from metaroll.data.paths import TimeStep, TrajectoryBatch
from metaroll.data.recordings import load_rollout, load_rollouts, save_rollout, save_rollouts
from metaroll.data.replay.path_buffer import PathBuffer
from metaroll.data.replay.replay_buffer import ReplayBatch, ReplayBuffer, SegmentBatch
from metaroll.data.rollout_values import check_act_equal, discounted_value, discounted_values, gae_returns
from metaroll.data.step_sequence import DictIndexProxy, Step, StepSequence
from metaroll.envs.base.checks import check_slots
from metaroll.envs.lookup.randomization import (
    conservative_randomizer,
    default_randomizer,
    empty_randomizer,
    zero_variance_randomizer,
)
from metaroll.envs.lookup.registry import TaskFamily, get_family
from metaroll.envs.lookup.source import make_slots
from metaroll.envs.metaworld.benchmarks import make_metaworld_benchmark
from metaroll.envs.metaworld.goal_sampler import MetaWorldTaskSampler
from metaroll.envs.metaworld.library import MW_TASKS_PER_ENV
from metaroll.envs.mujoco.definition import MujocoEnvDefinition
from metaroll.envs.mujoco.threads import physics_threads
from metaroll.envs.sims.batch import SimBatch
from metaroll.envs.sims.catalog import (
    BallOnBeamEnv,
    CatapultEnv,
    Gaussian2DEnv,
    OneMassOscillatorEnv,
    PendulumEnv,
    QBallBalancerEnv,
    QCartPoleStabEnv,
    QCartPoleSwingUpEnv,
    QQubeStabEnv,
    QQubeSwingUpEnv,
)
from metaroll.envs.sims.sim_env import SimEnv
from metaroll.envs.sims.simulator import SimSlots
from metaroll.envs.sims.tasks import (
    AbsErr,
    DesStateTask,
    ExpQuadrErr,
    FinalRewTask,
    QuadrErr,
    RadiallySymmDesStateTask,
    ScaledExpQuadrErr,
)
from metaroll.envs.wrappers.actions import ActDelayWrapper, ActNormWrapper, DownsamplingWrapper
from metaroll.envs.wrappers.base import all_envs, inner_env, remove_envs, typed_env
from metaroll.envs.wrappers.domain_rand import (
    DomainRandWrapperBuffer,
    DomainRandWrapperLive,
    MetaDomainRandWrapper,
    outermost_dr_wrapper,
    remove_all_dr_wrappers,
)
from metaroll.envs.wrappers.observations import GaussianObsNoiseWrapper, ObsNormWrapper, ObsPartialWrapper
from metaroll.envs.wrappers.own_params import InitStateWrapper
from metaroll.envs.wrappers.transforms import DomainParamTransformWrapper
from metaroll.envs.wrappers.trials import TrialUpdate, TrialWrapper
from metaroll.functional.bootstrap import bootstrap_ci
from metaroll.functional.cvar import conditional_value_at_risk
from metaroll.functional.hyper_sphere import sample_from_hyper_sphere_surface
from metaroll.functional.minibatches import (
    gen_ordered_batch_idcs,
    gen_ordered_batches,
    gen_shuffled_batch_idcs,
    shuffled_ordered_batches,
)
from metaroll.functional.returns import discounted_reverse_cumsum
from metaroll.functional.robust_statistics import (
    interquartile_mean,
    interval_of_improvement,
    interval_of_iqm,
    probability_of_improvement,
    wilson_interval,
)
from metaroll.functional.search.averaging import AveragedMean
from metaroll.functional.search.cma import CMA
from metaroll.functional.search.finite_differences import ARS
from metaroll.functional.search.multi_start import MultiStart, Starts
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
from metaroll.inference.configs import EstimatorConfig
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
from metaroll.lab.checking.report import TaskCheck, TaskEnvReport
from metaroll.lab.checking.task_checks import check_task_env
from metaroll.lab.comparing.comparison import Comparison, compare
from metaroll.lab.display.interactive import after_rollout_query
from metaroll.lab.figures.plots import plot_robustness
from metaroll.lab.figures.video import record_video, write_video
from metaroll.lab.logs.importing import load_log
from metaroll.lab.logs.lags import log_lag
from metaroll.lab.logs.mapping import LogColumn, LogMapping
from metaroll.lab.logs.plausibility import check_log
from metaroll.lab.real.packets import Packet
from metaroll.lab.real.real_env import RealEnv
from metaroll.lab.real.simulated_device import PacketFaults, SimulatedDevice
from metaroll.lab.real.socket_env import SocketEnv
from metaroll.lab.real.stopping import StopKey
from metaroll.lab.report.report import write_report
from metaroll.lab.results.robustness import RobustnessMap, robustness_map
from metaroll.learners.base import NOP, MetaRLAlgorithm, RLAlgorithm
from metaroll.learners.evolution import Evolution, HillClimbing
from metaroll.learners.maml.learner import MAML
from metaroll.learners.maml.outer import DICEOuter, EMAMLOuter, ProMPOuter, TRPOOuter, VPGDICEOuter, VPGOuter
from metaroll.learners.off_policy.choosing import DQN
from metaroll.learners.off_policy.deterministic import DDPG, TD3
from metaroll.learners.off_policy.soft import SAC
from metaroll.learners.on_policy.ppo import PPO
from metaroll.learners.on_policy.rl2 import RL2
from metaroll.learners.trials import Trials
from metaroll.policies.adapters import ScriptedPolicy, as_policy
from metaroll.policies.context import ContextConditionedPolicy
from metaroll.policies.controllers import BallBalancerController, CartPoleController, QubeController
from metaroll.policies.exploration import (
    EpsilonGreedyPolicy,
    GaussianNoisePolicy,
    OrnsteinUhlenbeckPolicy,
    UniformFirstPolicy,
)
from metaroll.policies.gaussian import CategoricalMLPPolicy, GaussianMLPPolicy, TanhGaussianMLPPolicy
from metaroll.policies.greedy import DeterministicMLPPolicy, GreedyQPolicy
from metaroll.policies.gru import CategoricalGRUPolicy, GRUCritic, GRUGaussianPolicy, TanhGaussianGRUPolicy
from metaroll.policies.last_action import LastActionPolicy
from metaroll.policies.networks import Critics, MLPEncoder, QFunction
from metaroll.policies.normalized import NormalizedPolicy
from metaroll.policies.playback import DummyPolicy, IdlePolicy, PlaybackPolicy, TimePolicy
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
from metaroll.rollouts.single.replay import assert_worker_invariant, replay
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
    "ARS",
    "CEM",
    "CMA",
    "CMAES",
    "DDPG",
    "DQN",
    "MAML",
    "MW_TASKS_PER_ENV",
    "NOP",
    "NPDR",
    "PEARL",
    "PGPE",
    "PPO",
    "RL2",
    "SAC",
    "SNES",
    "TD3",
    "TQC",
    "AbsErr",
    "ActDelayWrapper",
    "ActNormWrapper",
    "AdaptedAgent",
    "Agent",
    "AllStepsEmbedding",
    "AveragedMean",
    "BallBalancerController",
    "BallOnBeamEnv",
    "BayesSim",
    "BayesSimEmbedding",
    "BernoulliDomainParam",
    "CVaRSampler",
    "CartPoleController",
    "CatapultEnv",
    "CategoricalGRUPolicy",
    "CategoricalMLPPolicy",
    "Comparison",
    "ConstructEnvsSampler",
    "ContextConditionedPolicy",
    "Critics",
    "DICEOuter",
    "DefaultWorker",
    "DeltaStepsEmbedding",
    "DesStateTask",
    "DeterministicMLPPolicy",
    "DiceMetaSampleProcessor",
    "DiceSampleProcessor",
    "DictIndexProxy",
    "DiscreteSAC",
    "Distillation",
    "DomainParam",
    "DomainParamTransformWrapper",
    "DomainParamUpdate",
    "DomainRandWrapperBuffer",
    "DomainRandWrapperLive",
    "DomainRandomizer",
    "DownsamplingWrapper",
    "DummyPolicy",
    "DynamicTimeWarpingEmbedding",
    "EMAMLOuter",
    "EPOpt",
    "Embedding",
    "EnvPoolSampler",
    "EnvSpec",
    "EnvUpdate",
    "EpsilonGreedyPolicy",
    "EstimatorConfig",
    "EvaluateEvery",
    "Evolution",
    "ExistingEnvUpdate",
    "ExpQuadrErr",
    "FeatureStandardizer",
    "FinalRewTask",
    "FixedTaskSampler",
    "GRUCritic",
    "GRUGaussianPolicy",
    "Gaussian2DEnv",
    "GaussianMLPPolicy",
    "GaussianNoisePolicy",
    "GaussianObsNoiseWrapper",
    "GlobalNamespace",
    "GreedyQPolicy",
    "HillClimbing",
    "Identification",
    "IdlePolicy",
    "InOutSpec",
    "InitStateWrapper",
    "KeepBest",
    "LastActionPolicy",
    "LastStepEmbedding",
    "LinearFeatureBaseline",
    "LinearTimeBaseline",
    "LocalRunner",
    "LocalSampler",
    "LogColumn",
    "LogMapping",
    "LogUniformDomainParam",
    "MLPBaseline",
    "MLPEncoder",
    "MetaDomainRandWrapper",
    "MetaEvaluator",
    "MetaIterativeEnvExecutor",
    "MetaParallelEnvExecutor",
    "MetaRLAlgorithm",
    "MetaSampleProcessor",
    "MetaSampler",
    "MetaWorldTaskSampler",
    "MujocoEnvDefinition",
    "MultiStart",
    "MultivariateNormalDomainParam",
    "NewEnvUpdate",
    "NormalDomainParam",
    "NormalizedPolicy",
    "ObsNormWrapper",
    "ObsPartialWrapper",
    "OffPolicyRLAlgorithm",
    "OneMassOscillatorEnv",
    "OpenAIES",
    "OrnsteinUhlenbeckPolicy",
    "PEARLWorker",
    "Packet",
    "PacketFaults",
    "ParallelRolloutSampler",
    "ParameterExplorationSampler",
    "ParameterSample",
    "ParameterSamplingResult",
    "PathBuffer",
    "PendulumEnv",
    "PlaybackPolicy",
    "PolicyEvaluator",
    "PoolTimeouts",
    "Posterior",
    "PosteriorTaskSampler",
    "Prior",
    "ProMPOuter",
    "QBallBalancerEnv",
    "QCartPoleStabEnv",
    "QCartPoleSwingUpEnv",
    "QFunction",
    "QQubeStabEnv",
    "QQubeSwingUpEnv",
    "QuadrErr",
    "QubeController",
    "RLAlgorithm",
    "RNNEmbedding",
    "RadiallySymmDesStateTask",
    "RandomizationRange",
    "RealEnv",
    "RealRolloutSamplerForSBI",
    "RecRolloutSamplerForSBI",
    "RecurrentCritics",
    "RecurrentSAC",
    "RenderMode",
    "ReplayBatch",
    "ReplayBuffer",
    "RobustnessMap",
    "RolloutEngine",
    "RolloutPlan",
    "RolloutSamplerForSBI",
    "RunCallback",
    "SampleProcessor",
    "Sampler",
    "SamplerBase",
    "SamplerPool",
    "ScaledExpQuadrErr",
    "ScriptedPolicy",
    "SegmentBatch",
    "SetTaskSampler",
    "SetTaskUpdate",
    "SimBatch",
    "SimEnv",
    "SimRolloutSamplerForSBI",
    "SimSlots",
    "SimulatedDevice",
    "SlotsVectorEnv",
    "SnapshotConfig",
    "Snapshotter",
    "SocketEnv",
    "SplitReport",
    "SplitTaskSampler",
    "Starts",
    "Step",
    "StepSequence",
    "StopAt",
    "StopKey",
    "TRPOOuter",
    "TableDomainParam",
    "TanhGaussianGRUPolicy",
    "TanhGaussianMLPPolicy",
    "TaskCheck",
    "TaskEnvReport",
    "TaskFamily",
    "TaskSampler",
    "TensorBoardLogger",
    "TimeBudget",
    "TimePolicy",
    "TimeStep",
    "TrajectoryBatch",
    "TrialUpdate",
    "TrialWrapper",
    "Trials",
    "UniformDomainParam",
    "UniformFirstPolicy",
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
    "all_envs",
    "as_policy",
    "as_prior",
    "assert_worker_invariant",
    "bootstrap_ci",
    "cat_to_format",
    "check_act_equal",
    "check_domain_params",
    "check_log",
    "check_posterior",
    "check_slots",
    "check_split",
    "check_task_env",
    "compare",
    "conditional_value_at_risk",
    "conservative_randomizer",
    "default_randomizer",
    "discounted_reverse_cumsum",
    "discounted_value",
    "discounted_values",
    "empty_randomizer",
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
    "inner_env",
    "interquartile_mean",
    "interval_of_improvement",
    "interval_of_iqm",
    "isolated_rng",
    "load",
    "load_log",
    "load_rollout",
    "load_rollouts",
    "log_lag",
    "make_metaworld_benchmark",
    "make_slots",
    "new_tuple",
    "outermost_dr_wrapper",
    "physics_threads",
    "plot_robustness",
    "probability_of_improvement",
    "record_video",
    "remove_all_dr_wrappers",
    "remove_envs",
    "replay",
    "robustness_map",
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
    "typed_env",
    "wilson_interval",
    "write_report",
    "write_video",
    "zero_variance_randomizer",
]
