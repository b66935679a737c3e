"""Sample tasks, roll policies out in them, and learn from what comes back.

Names are loaded when they are first used (PEP 562), so that ``import metaroll`` costs next to nothing.
"""

from importlib import import_module as _import_module

__version__ = "0.1.0"

_MODULES = {
    "types": ["EnvSpec", "EnvUpdate", "InOutSpec", "RenderMode", "RolloutPlan"],
    "seeding": ["isolated_rng"],
    "functional.returns": ["discounted_reverse_cumsum"],
    "data.step_sequence": ["DictIndexProxy", "Step", "StepSequence"],
    "data.paths": ["TimeStep", "TrajectoryBatch"],
    "data.replay": ["PathBuffer"],
    "tasks.updates": ["ExistingEnvUpdate", "NewEnvUpdate", "SetTaskUpdate"],
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
    "rollouts.sampler_pool": ["GlobalNamespace", "SamplerPool"],
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
