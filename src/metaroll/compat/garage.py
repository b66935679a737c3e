"""Names of seed documents 002 and 003: garage's task samplers and PEARL, and the garage classes that they refer to.

A name that is not built yet raises an AttributeError; ``docs/coverage.md`` lists the state of each.
"""

from __future__ import annotations

from metaroll.exports import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(  # pyright: ignore[reportUnsupportedDunderAll]
    __name__,
    built={
        "compat.constructors": ["PEARL", "MetaEvaluator"],
        "data.paths": ["TimeStep", "TrajectoryBatch"],
        "learners.base": ["MetaRLAlgorithm", "RLAlgorithm"],
        "policies.context": ["ContextConditionedPolicy"],
        "policies.networks": ["MLPEncoder"],
        "rollouts.garage.local_sampler": ["LocalSampler"],
        "rollouts.garage.workers": ["DefaultWorker", "PEARLWorker", "Worker", "WorkerFactory"],
        "envs.metaworld.goal_sampler": ["MetaWorldTaskSampler"],
        "envs.metaworld.library": ["MW_TASKS_PER_ENV"],
        "tasks.finite_samplers": ["ConstructEnvsSampler", "EnvPoolSampler"],
        "tasks.task_sampler": ["SetTaskSampler", "TaskSampler"],
        "tasks.updates": ["ExistingEnvUpdate", "NewEnvUpdate", "SetTaskUpdate"],
        "training.run.runner": ["LocalRunner"],
        "training.store.snapshots": ["SnapshotConfig", "Snapshotter"],
        "types": ["EnvSpec", "EnvUpdate", "InOutSpec"],
    },
)
