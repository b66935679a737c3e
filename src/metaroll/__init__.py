"""Sample tasks, roll out policies in them, and learn from the rollouts.

Names are loaded when they are first used (PEP 562), so that ``import metaroll`` costs next to nothing.
"""

from importlib import import_module as _import_module
from sys import _getframe
from warnings import warn as _warn

from metaroll.exports import missing_attribute as _missing_attribute
from metaroll.exports import register_simulators as _register_simulators

__version__ = "0.2.0"

_MODULES = {
    "types": ["EnvSpec", "EnvUpdate", "InOutSpec", "RenderMode", "RolloutPlan"],
    "seeding": ["get_base_seed", "isolated_rng", "set_seed"],
    "functional.bootstrap": ["bootstrap_ci"],
    "functional.hyper_sphere": ["sample_from_hyper_sphere_surface"],
    "functional.minibatches": [
        "gen_ordered_batch_idcs",
        "gen_ordered_batches",
        "gen_shuffled_batch_idcs",
        "shuffled_ordered_batches",
    ],
    "functional.returns": ["discounted_reverse_cumsum"],
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
    "envs.metaworld.goal_sampler": ["MetaWorldTaskSampler"],
    "envs.metaworld.library": ["MW_TASKS_PER_ENV"],
    "rollouts.single.rollout": ["rollout"],
    "rollouts.single.replay": ["replay"],
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
    "rollouts.garage.workers": ["DefaultWorker", "PEARLWorker", "Worker", "WorkerFactory"],
    "rollouts.garage.local_sampler": ["LocalSampler"],
    "training.session.adapting": ["AdaptedAgent"],
    "training.session.agent": ["Agent", "agent", "load"],
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
    "inference.identification": ["Identification", "identify"],
    "inference.neural": ["BayesSim", "NPDR"],
    "inference.posterior": ["Posterior"],
    "inference.priors": ["Prior", "as_prior"],
    "inference.standardization": ["FeatureStandardizer"],
    "learners.base": ["MetaRLAlgorithm", "NOP", "RLAlgorithm"],
    "learners.evolution": ["Evolution", "HillClimbing"],
    "learners.maml.learner": ["MAML"],
    "learners.maml.outer": ["DICEOuter", "EMAMLOuter", "ProMPOuter", "TRPOOuter", "VPGDICEOuter", "VPGOuter"],
    "compat.constructors": ["CEM", "CMAES", "MetaEvaluator", "PEARL", "OffPolicyRLAlgorithm"],
    "learners.off_policy.choosing": ["DQN"],
    "learners.off_policy.deterministic": ["DDPG", "TD3"],
    "learners.off_policy.soft": ["SAC"],
    "learners.on_policy.ppo": ["PPO"],
    "learners.on_policy.rl2": ["RL2"],
    "training.run.callbacks": ["EvaluateEvery", "KeepBest", "RunCallback", "StopAt", "TimeBudget"],
    "training.run.runner": ["LocalRunner"],
    "training.evaluation.evaluator": ["PolicyEvaluator"],
    "training.store.snapshots": ["SnapshotConfig", "Snapshotter"],
    "training.store.loggers": ["TensorBoardLogger", "WandbLogger"],
}
_ROOMS = ("configs", "contrib", "lab", "plugins", "policies", "search", "sims", "statistics", "testing", "wrappers")
"""Modules with further names, available as attributes without a separate import: ``metaroll.search.CMA``."""
_MOVED = {
    "EstimatorConfig": "configs",
    "Trials": "configs",
    "assert_worker_invariant": "testing",
    "check_slots": "testing",
}
"""Former names of ``metaroll`` in rooms whose other names never were: name -> room."""
_HOME = {name: module for module, names in _MODULES.items() for name in names}

__all__ = ["__version__", *sorted(_HOME)]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> object:
    if name in _ROOMS:
        _register_simulators()
        return _import_module(f"metaroll.{name}")  # which makes it an attribute
    if name not in _HOME:
        if name.startswith("_") or not (room := _room_of(name)):
            raise _missing_attribute(__name__, name, __all__)
        if _getframe(1).f_globals.get("__name__") != "importlib._bootstrap":  # which only looks whether it is there
            _warn(
                f"metaroll.{name} is metaroll.{room}.{name} now; the old name will be removed in the next release",
                DeprecationWarning,
                2,
            )
        return getattr(_import_module(f"metaroll.{room}"), name)
    value = getattr(_import_module(f"metaroll.{_HOME[name]}"), name)
    _register_simulators()
    globals()[name] = value
    return value


def _room_of(name: str) -> str | None:
    """The room that a name of ``metaroll`` has moved to."""
    return _MOVED.get(name) or _names_of_rooms().get(name)


def _names_of_rooms() -> dict[str, str]:
    """The names of rooms that are tables -> the room; the others would import much, also amid an import."""
    rooms = [room for room in _ROOMS if room not in ("configs", "plugins", "testing")]
    return {name: room for room in rooms for name in _import_module(f"metaroll.{room}").__all__}


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME, *_ROOMS})


_register_simulators()
