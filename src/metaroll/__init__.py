"""Sample tasks, roll policies out in them, and learn from what comes back.

Names are loaded when they are first used (PEP 562), so that ``import metaroll`` costs next to nothing.
"""

import sys as _sys
from importlib import import_module as _import_module

__version__ = "0.2.0"

_MODULES = {
    "types": ["EnvSpec", "EnvUpdate", "InOutSpec", "RenderMode", "RolloutPlan"],
    "seeding": ["get_base_seed", "isolated_rng", "set_seed"],
    "functional.bootstrap": ["bootstrap_ci"],
    "functional.cvar": ["conditional_value_at_risk"],
    "functional.hyper_sphere": ["sample_from_hyper_sphere_surface"],
    "functional.minibatches": [
        "gen_ordered_batch_idcs",
        "gen_ordered_batches",
        "gen_shuffled_batch_idcs",
        "shuffled_ordered_batches",
    ],
    "functional.returns": ["discounted_reverse_cumsum"],
    "functional.robust_statistics": [
        "interquartile_mean",
        "interval_of_improvement",
        "interval_of_iqm",
        "probability_of_improvement",
        "wilson_interval",
    ],
    "functional.search.averaging": ["AveragedMean"],
    "functional.search.cma": ["CMA"],
    "functional.search.finite_differences": ["ARS"],
    "functional.search.multi_start": ["MultiStart", "Starts"],
    "functional.sequences": [
        "sequence",
        "sequence_add_init",
        "sequence_const",
        "sequence_nlog2",
        "sequence_plus_one",
        "sequence_rec_double",
        "sequence_rec_sqrt",
        "sequence_sqrt",
    ],
    "data.data_format": ["cat_to_format", "new_tuple", "stack_to_format", "to_format"],
    "data.step_sequence": ["DictIndexProxy", "Step", "StepSequence"],
    "data.rollout_values": ["check_act_equal", "discounted_value", "discounted_values", "gae_returns"],
    "lab.logs.importing": ["load_log"],
    "lab.logs.lags": ["log_lag"],
    "lab.logs.mapping": ["LogColumn", "LogMapping"],
    "lab.logs.plausibility": ["check_log"],
    "data.recordings": ["load_rollout", "load_rollouts", "save_rollout", "save_rollouts"],
    "data.paths": ["TimeStep", "TrajectoryBatch"],
    "data.replay.path_buffer": ["PathBuffer"],
    "data.replay.replay_buffer": ["ReplayBatch", "ReplayBuffer", "SegmentBatch"],
    "tasks.updates": ["ExistingEnvUpdate", "NewEnvUpdate", "SetTaskUpdate"],
    "tasks.domain_params": ["DomainParamUpdate"],
    "tasks.distributions": [
        "BernoulliDomainParam",
        "DomainParam",
        "LogUniformDomainParam",
        "MultivariateNormalDomainParam",
        "NormalDomainParam",
        "TableDomainParam",
        "UniformDomainParam",
    ],
    "tasks.domain_randomizer": ["DomainRandomizer", "RandomizationRange"],
    "tasks.posterior_sampler": ["PosteriorTaskSampler"],
    "tasks.task_sampler": ["FixedTaskSampler", "SetTaskSampler", "TaskSampler"],
    "tasks.leak_guard": ["SplitReport", "check_split"],
    "tasks.split_sampler": ["SplitTaskSampler"],
    "tasks.finite_samplers": ["ConstructEnvsSampler", "EnvPoolSampler"],
    "envs.lookup.registry": ["TaskFamily", "get_family"],
    "envs.lookup.source": ["make_slots"],
    "envs.base.checks": ["check_slots"],
    "envs.mujoco.definition": ["MujocoEnvDefinition"],
    "envs.mujoco.threads": ["physics_threads"],
    "envs.metaworld.benchmarks": ["make_metaworld_benchmark"],
    "envs.metaworld.goal_sampler": ["MetaWorldTaskSampler"],
    "envs.metaworld.library": ["MW_TASKS_PER_ENV"],
    "lab.real.packets": ["Packet"],
    "lab.real.real_env": ["RealEnv"],
    "lab.real.simulated_device": ["PacketFaults", "SimulatedDevice"],
    "lab.real.socket_env": ["SocketEnv"],
    "lab.real.stopping": ["StopKey"],
    "envs.sims.batch": ["SimBatch"],
    "envs.sims.catalog": [
        "BallOnBeamEnv",
        "CatapultEnv",
        "Gaussian2DEnv",
        "OneMassOscillatorEnv",
        "PendulumEnv",
        "QBallBalancerEnv",
        "QCartPoleStabEnv",
        "QCartPoleSwingUpEnv",
        "QQubeStabEnv",
        "QQubeSwingUpEnv",
    ],
    "envs.sims.sim_env": ["SimEnv"],
    "envs.sims.simulator": ["SimSlots"],
    "envs.sims.tasks": [
        "AbsErr",
        "DesStateTask",
        "ExpQuadrErr",
        "FinalRewTask",
        "QuadrErr",
        "RadiallySymmDesStateTask",
        "ScaledExpQuadrErr",
    ],
    "envs.lookup.randomization": [
        "conservative_randomizer",
        "default_randomizer",
        "empty_randomizer",
        "zero_variance_randomizer",
    ],
    "envs.wrappers.base": ["all_envs", "inner_env", "remove_envs", "typed_env"],
    "envs.wrappers.domain_rand": [
        "DomainRandWrapperBuffer",
        "DomainRandWrapperLive",
        "MetaDomainRandWrapper",
        "outermost_dr_wrapper",
        "remove_all_dr_wrappers",
    ],
    "envs.wrappers.actions": ["ActDelayWrapper", "ActNormWrapper", "DownsamplingWrapper"],
    "envs.wrappers.observations": ["GaussianObsNoiseWrapper", "ObsNormWrapper", "ObsPartialWrapper"],
    "envs.wrappers.own_params": ["InitStateWrapper"],
    "envs.wrappers.transforms": ["DomainParamTransformWrapper"],
    "envs.wrappers.trials": ["TrialUpdate", "TrialWrapper"],
    "policies.exploration": [
        "EpsilonGreedyPolicy",
        "GaussianNoisePolicy",
        "OrnsteinUhlenbeckPolicy",
        "UniformFirstPolicy",
    ],
    "policies.gaussian": ["CategoricalMLPPolicy", "GaussianMLPPolicy", "TanhGaussianMLPPolicy"],
    "policies.greedy": ["DeterministicMLPPolicy", "GreedyQPolicy"],
    "policies.gru": ["CategoricalGRUPolicy", "GRUCritic", "GRUGaussianPolicy", "TanhGaussianGRUPolicy"],
    "policies.last_action": ["LastActionPolicy"],
    "policies.normalized": ["NormalizedPolicy"],
    "policies.networks": ["Critics", "MLPEncoder", "QFunction"],
    "policies.context": ["ContextConditionedPolicy"],
    "policies.adapters": ["ScriptedPolicy", "as_policy"],
    "policies.controllers": ["BallBalancerController", "CartPoleController", "QubeController"],
    "policies.playback": ["DummyPolicy", "IdlePolicy", "PlaybackPolicy", "TimePolicy"],
    "rollouts.single.rollout": ["rollout"],
    "rollouts.single.replay": ["assert_worker_invariant", "replay"],
    "rollouts.engine.engine": ["RolloutEngine"],
    "rollouts.single.vector_env": ["SlotsVectorEnv"],
    "lab.display.interactive": ["after_rollout_query"],
    "rollouts.configs": ["PoolTimeouts"],
    "rollouts.workers.pool": ["GlobalNamespace", "SamplerPool"],
    "rollouts.workers.schedule": ["WorkerStatus", "format_workers"],
    "rollouts.samplers.param_sets": ["check_domain_params"],
    "rollouts.samplers.sampler": ["SamplerBase"],
    "rollouts.samplers.sbi": [
        "RealRolloutSamplerForSBI",
        "RecRolloutSamplerForSBI",
        "RolloutSamplerForSBI",
        "SimRolloutSamplerForSBI",
    ],
    "rollouts.samplers.executors": ["MetaIterativeEnvExecutor", "MetaParallelEnvExecutor"],
    "rollouts.samplers.meta_sampler": ["MetaSampler", "Sampler"],
    "rollouts.samplers.parallel": ["ParallelRolloutSampler"],
    "rollouts.samplers.cvar": ["CVaRSampler", "select_cvar"],
    "rollouts.samplers.parameter_exploration": [
        "ParameterExplorationSampler",
        "ParameterSample",
        "ParameterSamplingResult",
    ],
    "rollouts.samplers.evaluation": [
        "eval_domain_params",
        "eval_domain_params_with_segmentwise_reset",
        "eval_nominal_domain",
        "eval_randomized_domain",
    ],
    "processing.baselines": ["LinearFeatureBaseline", "LinearTimeBaseline", "MLPBaseline", "ZeroBaseline"],
    "processing.sample_processor": [
        "DiceMetaSampleProcessor",
        "DiceSampleProcessor",
        "MetaSampleProcessor",
        "SampleProcessor",
    ],
    "lab.checking.task_checks": ["check_task_env"],
    "lab.checking.report": ["TaskCheck", "TaskEnvReport"],
    "rollouts.garage.workers": ["DefaultWorker", "PEARLWorker", "Worker", "WorkerFactory"],
    "rollouts.garage.local_sampler": ["LocalSampler"],
    "training.session.adapting": ["AdaptedAgent"],
    "training.session.agent": ["Agent", "agent", "load"],
    "lab.comparing.comparison": ["Comparison", "compare"],
    "inference.abc": ["ABCSMC"],
    "inference.checks": ["check_posterior"],
    "inference.verdicts": ["Verdict"],
    "inference.embeddings": [
        "AllStepsEmbedding",
        "BayesSimEmbedding",
        "DeltaStepsEmbedding",
        "DynamicTimeWarpingEmbedding",
        "Embedding",
        "LastStepEmbedding",
        "RNNEmbedding",
    ],
    "inference.configs": ["EstimatorConfig"],
    "inference.identification": ["Identification", "identify"],
    "inference.neural": ["BayesSim", "NPDR"],
    "inference.posterior": ["Posterior"],
    "inference.priors": ["Prior", "as_prior"],
    "inference.standardization": ["FeatureStandardizer"],
    "learners.base": ["MetaRLAlgorithm", "NOP", "RLAlgorithm"],
    "learners.evolution": ["Evolution", "HillClimbing"],
    "contrib.epopt": ["EPOpt"],
    "contrib.openai_es": ["OpenAIES"],
    "contrib.pgpe": ["PGPE"],
    "contrib.snes": ["SNES"],
    "contrib.distillation": ["Distillation"],
    "learners.maml.learner": ["MAML"],
    "learners.maml.outer": ["DICEOuter", "EMAMLOuter", "ProMPOuter", "TRPOOuter", "VPGDICEOuter", "VPGOuter"],
    "compat.constructors": ["CEM", "CMAES", "MetaEvaluator", "PEARL", "OffPolicyRLAlgorithm"],
    "learners.off_policy.choosing": ["DQN"],
    "learners.off_policy.deterministic": ["DDPG", "TD3"],
    "contrib.tqc": ["TQC"],
    "contrib.recurrent_sac": ["RecurrentCritics", "RecurrentSAC"],
    "learners.off_policy.soft": ["SAC"],
    "contrib.discrete_sac": ["DiscreteSAC"],
    "learners.on_policy.ppo": ["PPO"],
    "learners.on_policy.rl2": ["RL2"],
    "learners.trials": ["Trials"],
    "training.run.callbacks": ["EvaluateEvery", "KeepBest", "RunCallback", "StopAt", "TimeBudget"],
    "training.run.runner": ["LocalRunner"],
    "training.evaluation.evaluator": ["PolicyEvaluator"],
    "lab.results.robustness": ["RobustnessMap", "robustness_map"],
    "lab.figures.plots": ["plot_robustness"],
    "training.store.snapshots": ["SnapshotConfig", "Snapshotter"],
    "training.store.loggers": ["TensorBoardLogger", "WandbLogger"],
    "lab.figures.video": ["record_video", "write_video"],
    "lab.report.report": ["write_report"],
}
_ROOMS = ("configs", "plugins", "testing")
"""Modules that are attributes, too, without an import of their own: ``metaroll.testing.check_policy``."""
_HOME = {name: module for module, names in _MODULES.items() for name in names}

__all__ = ["__version__", *sorted(_HOME)]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> object:
    if name in _ROOMS:
        return _import_module(f"metaroll.{name}")  # which makes it an attribute
    if name not in _HOME:
        text = f"module 'metaroll' has no attribute {name!r}"
        if not name.startswith("_"):  # Python itself asks for many of these
            text = _import_module("metaroll.training.algorithms.other_names").unknown_in_module(name, list(_HOME))
        raise AttributeError(text)
    value = getattr(_import_module(f"metaroll.{_HOME[name]}"), name)
    _register_simulators()
    globals()[name] = value
    return value


def _register_simulators() -> None:
    """Register our simulators with Gymnasium, if it is loaded: ``gymnasium.make("metaroll/Pendulum-v0")``."""
    if "gymnasium.vector" in _sys.modules:
        _import_module("metaroll.rollouts.single.gymnasium_ids")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME, *_ROOMS})


_register_simulators()
