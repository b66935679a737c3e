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
    TrialSizes,
)
from metaroll.data.rollouts import Rollouts
from metaroll.envs.lookup.source import EnvSource
from metaroll.functional.advantages import gae
from metaroll.functional.distributions import Categorical, DiagonalGaussian
from metaroll.functional.policy_gradients import clipped_surrogate, clipped_value_loss
from metaroll.functional.search.base import Search, SearchState
from metaroll.learners.off_policy.base import Made, OffPolicyLearner
from metaroll.learners.off_policy.exploring import BoxExploration, Exploration
from metaroll.learners.off_policy.replay import TransitionBatch
from metaroll.learners.off_policy.trainer import ReplayTrainer, Trained
from metaroll.learners.on_policy.ppo_trainer import PPOData, PPONets, Targets, Trainer, run_passes
from metaroll.learners.training import EpochLearner, Learner, Progress, TrainingTasks, train
from metaroll.policies.acting import ActingPolicy
from metaroll.policies.gru import GRUCell, RecurrentCritic
from metaroll.policies.networks import MLP
from metaroll.policies.normalized import widened_spec
from metaroll.policies.trial_memory import TrialMemoryPolicy
from metaroll.processing.on_policy import OnPolicyData, collect_on_policy, pad_rollouts
from metaroll.processing.trial_rows import (
    entries_told,
    episode_ends,
    padded_trials,
    remember_trials,
    trial_metrics,
)
from metaroll.seeding import derive_seed, torch_generator
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
from metaroll.training.algorithms.ppo_trials import FreshTrials, TrialParts, trial_row
from metaroll.types import Policy, PolicyInfo, PolicyState

__all__ = [
    "API",
    "MLP",
    "ActingPolicy",
    "Added",
    "Algorithm",
    "Bounds",
    "BoxExploration",
    "BuildOptions",
    "Categorical",
    "Config",
    "Count",
    "DiagonalGaussian",
    "Domains",
    "EnvSource",
    "EpochLearner",
    "Exploration",
    "FreshTrials",
    "GRUCell",
    "GoalReplay",
    "HeldOutTasks",
    "Learner",
    "Made",
    "Number",
    "OffPolicyLearner",
    "OnPolicyData",
    "PPOData",
    "PPONets",
    "Part",
    "Parts",
    "PluginError",
    "Policy",
    "PolicyInfo",
    "PolicyNetworks",
    "PolicyState",
    "Positive",
    "Progress",
    "RecurrentCritic",
    "ReluNetworks",
    "Replay",
    "ReplayTrainer",
    "Rollouts",
    "Saved",
    "Search",
    "SearchState",
    "Share",
    "Stateful",
    "TanhNetworks",
    "Targets",
    "Trained",
    "Trainer",
    "TrainingTasks",
    "TransitionBatch",
    "TrialMemoryPolicy",
    "TrialParts",
    "TrialSizes",
    "UnusedWhere",
    "UsedWhere",
    "Values",
    "Weight",
    "Whole",
    "Work",
    "clipped_surrogate",
    "clipped_value_loss",
    "collect_on_policy",
    "common_arguments",
    "derive_seed",
    "entries_told",
    "env_sizes",
    "episode_ends",
    "family_sizes",
    "family_tasks",
    "gae",
    "is_continuous",
    "is_discrete",
    "make_policy",
    "network_generator",
    "off_policy_row",
    "pad_rollouts",
    "padded_trials",
    "parts",
    "parts_of",
    "remember_trials",
    "run_passes",
    "search_row",
    "told",
    "torch_generator",
    "train",
    "training_tasks",
    "trial_metrics",
    "trial_row",
    "widened_spec",
]
