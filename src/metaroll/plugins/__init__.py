"""What you write an algorithm of your own with: one file, which ``metaroll.agent(ROW, env)`` and the command line take.

All that a plug-in may use is public: here, in ``metaroll`` and in ``metaroll.configs``. Other modules change at any
time; what is written with these names goes on working as long as ``API`` is the same number. See docs/plugins.md.
"""

from __future__ import annotations

from metaroll.config import (
    Added,
    Bounds,
    Config,
    Count,
    Number,
    Positive,
    Share,
    UnusedWhere,
    UsedWhere,
    Weight,
    Whole,
    parts_of,
)
from metaroll.configs.algorithms import (
    Domains,
    GoalReplay,
    HeldOutTasks,
    PolicyNetworks,
    ReluNetworks,
    Replay,
    TanhNetworks,
)
from metaroll.envs.lookup.source import EnvSource
from metaroll.functional.search.base import Search, SearchState
from metaroll.learners.off_policy.base import Made, OffPolicyLearner
from metaroll.learners.off_policy.exploring import BoxExploration, Exploration
from metaroll.learners.off_policy.replay import TransitionBatch
from metaroll.learners.off_policy.trainer import ReplayTrainer, Trained
from metaroll.learners.training import EpochLearner, Learner, Progress, TrainingTasks, train
from metaroll.state import Part, Parts, Saved, Stateful, parts, told
from metaroll.training.algorithms.algorithm import API, Algorithm, Values, Work
from metaroll.training.algorithms.building import (
    BuildOptions,
    common_arguments,
    env_sizes,
    family_sizes,
    family_tasks,
    is_continuous,
    is_discrete,
    make_policy,
    network_generator,
    training_tasks,
)
from metaroll.training.algorithms.evolution import search_row
from metaroll.training.algorithms.off_policy import off_policy_row
from metaroll.training.algorithms.others import PluginError

__all__ = [
    "API",
    "Added",
    "Algorithm",
    "Bounds",
    "BoxExploration",
    "BuildOptions",
    "Config",
    "Count",
    "Domains",
    "EnvSource",
    "EpochLearner",
    "Exploration",
    "GoalReplay",
    "HeldOutTasks",
    "Learner",
    "Made",
    "Number",
    "OffPolicyLearner",
    "Part",
    "Parts",
    "PluginError",
    "PolicyNetworks",
    "Positive",
    "Progress",
    "ReluNetworks",
    "Replay",
    "ReplayTrainer",
    "Saved",
    "Search",
    "SearchState",
    "Share",
    "Stateful",
    "TanhNetworks",
    "Trained",
    "TrainingTasks",
    "TransitionBatch",
    "UnusedWhere",
    "UsedWhere",
    "Values",
    "Weight",
    "Whole",
    "Work",
    "common_arguments",
    "env_sizes",
    "family_sizes",
    "family_tasks",
    "is_continuous",
    "is_discrete",
    "make_policy",
    "network_generator",
    "off_policy_row",
    "parts",
    "parts_of",
    "search_row",
    "told",
    "train",
    "training_tasks",
]
