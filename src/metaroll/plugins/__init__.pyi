"""The public names of metaroll.plugins, and where they are defined; written by tools/stubs.py."""

from metaroll.checks import check_number, check_seed, check_whole
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
    Was,
    Weight,
    Whole,
    config_of,
    described,
    parts_of,
)
from metaroll.configs.algorithms import (
    DomainRanges,
    Domains,
    GoalReplay,
    HeldOutTasks,
    OwnNetwork,
    PolicyNetworks,
    ReluNetworks,
    Replay,
    TanhNetworks,
    TrainTasks,
    TrialSizes,
)
from metaroll.data.data_format import map_leaves
from metaroll.data.replay.transitions import TransitionBatch
from metaroll.data.rollouts import Rollouts
from metaroll.data.space_batches import flatten_batch
from metaroll.envs.lookup.source import EnvSource
from metaroll.errors import DataError, ShapeError, SnapshotError, named_as, option_name, option_text
from metaroll.functional.advantages import gae
from metaroll.functional.cvar import full_set_metrics, worst_indices
from metaroll.functional.distributions import ActionDistribution, Categorical, DiagonalGaussian, squashed_sample
from metaroll.functional.gradients.actor_critic import (
    bootstrapped,
    chosen_values,
    chosen_values_gradient,
    critics_loss,
    critics_loss_gradient,
    expected_values,
    expected_values_gradient,
    soft_policy_loss,
    soft_values,
    temperature_loss,
)
from metaroll.functional.gradients.quantiles import quantile_huber_loss, smallest_atoms
from metaroll.functional.policy_gradients import clipped_surrogate, clipped_value_loss
from metaroll.functional.running_moments import add_rows
from metaroll.functional.search.base import Search, SearchState, checked_mean, default_population
from metaroll.functional.search.configs import AtLeastTwo
from metaroll.functional.search.gradient_state import GradientState, ascended, gradient_start
from metaroll.functional.search.sampling import normal_rows
from metaroll.functional.search.shaping import shaped, utilities
from metaroll.learners.base import (
    KNOWN_EPOCHS,
    EpochLearner,
    Evaluated,
    NewData,
    Progress,
    RolloutLimit,
    ScaledActions,
    TrainingTasks,
    episode_metrics,
    horizon_of,
    refuse_non_finite,
    train,
)
from metaroll.learners.off_policy.base import Made, OffPolicyLearner, require_box, require_choices
from metaroll.learners.off_policy.configs import RandomFirst, SoftUpdate
from metaroll.learners.off_policy.soft import (
    POLICY_LOSSES,
    TEMPERATURE_LOSSES,
    PolicyLosses,
    SoftNets,
    SoftObjective,
    SoftTrainer,
    Temperature,
    descend_entropy,
    soft_settings,
)
from metaroll.learners.off_policy.trainer import CRITIC_LOSSES, CriticLosses, ReplayTrainer, Trained, critic_losses_of
from metaroll.learners.on_policy.ppo_trainer import PPOData, PPONets, Targets, Trainer, run_passes
from metaroll.policies.acting import ActingPolicy, check_policy
from metaroll.policies.bodies import Body, Perceptron, Recurrent
from metaroll.policies.encoders import encoders_of, holds_images
from metaroll.policies.exploration import BoxExploration, ChoiceExploration, Exploration
from metaroll.policies.gru import GRUCell, RecurrentCritic
from metaroll.policies.heads import CategoricalHead, DeterministicHead, GaussianHead, GreedyHead, Head, SquashedHead
from metaroll.policies.networks import MLP, critics_of, target_of
from metaroll.policies.normalized import widened_spec
from metaroll.policies.scaling import ActionScaling
from metaroll.policies.trial_memory import TrialMemoryPolicy
from metaroll.processing.on_policy import OnPolicyData, collect_on_policy, pad_rollouts, rollout_groups
from metaroll.processing.relabel import label_actions
from metaroll.processing.trial_rows import entries_told, episode_ends, padded_trials, remember_trials, trial_metrics
from metaroll.seeding import derive_seed, fresh_seed, torch_generator
from metaroll.state import Part, Stateful, fingerprint_of, parts, shapes_of, told
from metaroll.training.algorithms.algorithm import API, Algorithm, Values, Work
from metaroll.training.algorithms.building import (
    BuildOptions,
    common_arguments,
    family_sizes,
    family_tasks,
    is_continuous,
    is_discrete,
    make_policy,
    network_generator,
    own_body,
    training_tasks,
)
from metaroll.training.algorithms.evolution import search_row
from metaroll.training.algorithms.off_policy import Networks, actor_and_critics, network_options, off_policy_row
from metaroll.training.algorithms.ppo_trials import FreshTrials, TrialParts, trial_row
from metaroll.training.algorithms.registry import get_algorithm
from metaroll.training.algorithms.trained import TrainedRun
from metaroll.types import Policy, PolicyInfo, PolicyState, Runner

__all__ = [
    "API",
    "CRITIC_LOSSES",
    "KNOWN_EPOCHS",
    "MLP",
    "POLICY_LOSSES",
    "TEMPERATURE_LOSSES",
    "ActingPolicy",
    "ActionDistribution",
    "ActionScaling",
    "Added",
    "Algorithm",
    "AtLeastTwo",
    "Body",
    "Bounds",
    "BoxExploration",
    "BuildOptions",
    "Categorical",
    "CategoricalHead",
    "ChoiceExploration",
    "Config",
    "Count",
    "CriticLosses",
    "DataError",
    "DeterministicHead",
    "DiagonalGaussian",
    "DomainRanges",
    "Domains",
    "EnvSource",
    "EpochLearner",
    "Evaluated",
    "Exploration",
    "FreshTrials",
    "GRUCell",
    "GaussianHead",
    "GoalReplay",
    "GradientState",
    "GreedyHead",
    "Head",
    "HeldOutTasks",
    "Made",
    "Networks",
    "NewData",
    "Number",
    "OffPolicyLearner",
    "OnPolicyData",
    "OwnNetwork",
    "PPOData",
    "PPONets",
    "Part",
    "Perceptron",
    "Policy",
    "PolicyInfo",
    "PolicyLosses",
    "PolicyNetworks",
    "PolicyState",
    "Positive",
    "Progress",
    "RandomFirst",
    "Recurrent",
    "RecurrentCritic",
    "ReluNetworks",
    "Replay",
    "ReplayTrainer",
    "RolloutLimit",
    "Rollouts",
    "Runner",
    "ScaledActions",
    "Search",
    "SearchState",
    "ShapeError",
    "Share",
    "SnapshotError",
    "SoftNets",
    "SoftObjective",
    "SoftTrainer",
    "SoftUpdate",
    "SquashedHead",
    "Stateful",
    "TanhNetworks",
    "Targets",
    "Temperature",
    "TrainTasks",
    "Trained",
    "TrainedRun",
    "Trainer",
    "TrainingTasks",
    "TransitionBatch",
    "TrialMemoryPolicy",
    "TrialParts",
    "TrialSizes",
    "UnusedWhere",
    "UsedWhere",
    "Values",
    "Was",
    "Weight",
    "Whole",
    "Work",
    "actor_and_critics",
    "add_rows",
    "ascended",
    "bootstrapped",
    "check_number",
    "check_policy",
    "check_seed",
    "check_whole",
    "checked_mean",
    "chosen_values",
    "chosen_values_gradient",
    "clipped_surrogate",
    "clipped_value_loss",
    "collect_on_policy",
    "common_arguments",
    "config_of",
    "critic_losses_of",
    "critics_loss",
    "critics_loss_gradient",
    "critics_of",
    "default_population",
    "derive_seed",
    "descend_entropy",
    "described",
    "encoders_of",
    "entries_told",
    "episode_ends",
    "episode_metrics",
    "expected_values",
    "expected_values_gradient",
    "family_sizes",
    "family_tasks",
    "fingerprint_of",
    "flatten_batch",
    "fresh_seed",
    "full_set_metrics",
    "gae",
    "get_algorithm",
    "gradient_start",
    "holds_images",
    "horizon_of",
    "is_continuous",
    "is_discrete",
    "label_actions",
    "make_policy",
    "map_leaves",
    "named_as",
    "network_generator",
    "network_options",
    "normal_rows",
    "off_policy_row",
    "option_name",
    "option_text",
    "own_body",
    "pad_rollouts",
    "padded_trials",
    "parts",
    "parts_of",
    "quantile_huber_loss",
    "refuse_non_finite",
    "remember_trials",
    "require_box",
    "require_choices",
    "rollout_groups",
    "run_passes",
    "search_row",
    "shaped",
    "shapes_of",
    "smallest_atoms",
    "soft_policy_loss",
    "soft_settings",
    "soft_values",
    "squashed_sample",
    "target_of",
    "temperature_loss",
    "told",
    "torch_generator",
    "train",
    "training_tasks",
    "trial_metrics",
    "trial_row",
    "utilities",
    "widened_spec",
    "worst_indices",
]
