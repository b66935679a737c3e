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
from metaroll.functional.gradients.actor_critic import bootstrapped, soft_values
from metaroll.functional.gradients.quantiles import quantile_huber_loss, smallest_atoms
from metaroll.functional.search.base import Search, SearchState
from metaroll.learners.off_policy.base import Made, OffPolicyLearner, require_box
from metaroll.learners.off_policy.exploring import BoxExploration, Exploration
from metaroll.learners.off_policy.networks import check_policy, critics_of, encoders_of
from metaroll.learners.off_policy.replay import TransitionBatch
from metaroll.learners.off_policy.soft import (
    PolicyLosses,
    SoftNets,
    SoftObjective,
    SoftTrainer,
    descend_entropy,
    soft_settings,
)
from metaroll.learners.off_policy.trainer import CriticLosses, ReplayTrainer, Trained
from metaroll.learners.training import EpochLearner, Learner, Progress, TrainingTasks, train
from metaroll.seeding import derive_seed, torch_generator
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
    spec_of,
    training_tasks,
)
from metaroll.training.algorithms.evolution import search_row
from metaroll.training.algorithms.off_policy import Networks, actor_and_critics, off_policy_row
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
    "CriticLosses",
    "Domains",
    "EpochLearner",
    "Exploration",
    "GoalReplay",
    "HeldOutTasks",
    "Learner",
    "Made",
    "Networks",
    "Number",
    "OffPolicyLearner",
    "PluginError",
    "PolicyLosses",
    "PolicyNetworks",
    "Positive",
    "Progress",
    "ReluNetworks",
    "Replay",
    "ReplayTrainer",
    "Search",
    "SearchState",
    "Share",
    "SoftNets",
    "SoftObjective",
    "SoftTrainer",
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
    "actor_and_critics",
    "bootstrapped",
    "check_policy",
    "common_arguments",
    "critics_of",
    "derive_seed",
    "descend_entropy",
    "encoders_of",
    "env_sizes",
    "family_sizes",
    "family_tasks",
    "is_continuous",
    "is_discrete",
    "make_policy",
    "network_generator",
    "off_policy_row",
    "parts_of",
    "quantile_huber_loss",
    "require_box",
    "search_row",
    "smallest_atoms",
    "soft_settings",
    "soft_values",
    "spec_of",
    "torch_generator",
    "train",
    "training_tasks",
]
