"""Sample tasks, roll policies out in them, and learn from what comes back.

Names are loaded when they are first used (PEP 562), so that ``import metaroll`` costs next to nothing.
"""

from importlib import import_module as _import_module

__version__ = "0.1.0"

_MODULES = {
    "types": ["EnvSpec", "EnvUpdate", "InOutSpec", "RenderMode", "RolloutPlan"],
    "seeding": ["get_base_seed", "isolated_rng", "set_seed"],
    "functional.minibatches": [
        "gen_ordered_batch_idcs",
        "gen_ordered_batches",
        "gen_shuffled_batch_idcs",
        "shuffled_ordered_batches",
    ],
    "functional.returns": ["discounted_reverse_cumsum"],
    "data.data_format": ["cat_to_format", "new_tuple", "stack_to_format", "to_format"],
    "data.step_sequence": ["DictIndexProxy", "Step", "StepSequence"],
    "data.rollout_values": ["check_act_equal", "discounted_value", "discounted_values", "gae_returns"],
    "data.recordings": ["load_rollout", "load_rollouts", "save_rollout", "save_rollouts"],
    "data.paths": ["TimeStep", "TrajectoryBatch"],
    "data.replay": ["PathBuffer"],
    "tasks.updates": ["ExistingEnvUpdate", "NewEnvUpdate", "SetTaskUpdate"],
    "tasks.domain_params": ["DomainParamUpdate"],
    "tasks.task_sampler": ["FixedTaskSampler", "SetTaskSampler", "TaskSampler"],
    "envs.registry": ["TaskFamily", "get_family"],
    "envs.slot_factory": ["make_slots"],
    "envs.checks": ["check_slots"],
    "policies.gaussian": ["CategoricalMLPPolicy", "GaussianMLPPolicy", "TanhGaussianMLPPolicy"],
    "policies.gru": ["GRUGaussianPolicy"],
    "policies.networks": ["MLPEncoder", "QFunction"],
    "policies.context": ["ContextConditionedPolicy"],
    "policies.adapters": ["ScriptedPolicy", "as_policy"],
    "rollouts.episode": ["rollout"],
    "rollouts.replaying": ["replay"],
    "rollouts.engine": ["RolloutEngine"],
    "rollouts.vector_env": ["SlotsVectorEnv"],
    "rollouts.query": ["after_rollout_query"],
    "rollouts.sampler_pool": ["GlobalNamespace", "PoolTimeouts", "SamplerPool"],
    "rollouts.worker_status": ["WorkerStatus", "format_workers"],
    "rollouts.sampler": ["SamplerBase"],
    "rollouts.parallel_sampler": ["ParallelRolloutSampler"],
    "rollouts.invariance": ["assert_worker_invariant"],
    "rollouts.workers": ["DefaultWorker", "PEARLWorker", "Worker", "WorkerFactory"],
    "rollouts.local_sampler": ["LocalSampler"],
    "learners.base": ["MetaRLAlgorithm", "RLAlgorithm"],
    "learners.pearl": ["PEARL"],
    "training.runner": ["LocalRunner"],
    "training.meta_evaluator": ["MetaEvaluator"],
    "training.snapshots": ["SnapshotConfig", "Snapshotter"],
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}

__all__ = ["__version__", *sorted(_HOME)]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'metaroll' has no attribute {name!r}")
    value = getattr(_import_module(f"metaroll.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
