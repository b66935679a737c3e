"""Building blocks of your own algorithm: one file, which ``metaroll.agent(ROW, env)`` and the command line take.

All that a plug-in may use is public: here, in ``metaroll`` and in ``metaroll.configs``. Other modules change at any
time; code with these names keeps working as long as ``API`` is the same number. See docs/plugins.md.

Names are loaded when they are first used, so that a search in NumPy waits for no torch.
"""

from importlib import import_module as _import_module

_MODULES = {
    "checks": ["check_number", "check_seed", "check_whole"],
    "config": [
        "Added",
        "Bounds",
        "Config",
        "Count",
        "Number",
        "Positive",
        "Share",
        "UnusedWhere",
        "UsedWhere",
        "Was",
        "Weight",
        "Whole",
        "config_of",
        "described",
        "parts_of",
    ],
    "configs.algorithms": [
        "DomainRanges",
        "Domains",
        "GoalReplay",
        "HeldOutTasks",
        "OwnNetwork",
        "PolicyNetworks",
        "ReluNetworks",
        "Replay",
        "TanhNetworks",
        "TrainTasks",
        "TrialSizes",
    ],
    "data.data_format": ["map_leaves"],
    "data.replay.transitions": ["TransitionBatch"],
    "data.rollouts": ["Rollouts"],
    "data.space_batches": ["flatten_batch"],
    "envs.lookup.source": ["EnvSource"],
    "errors": ["DataError", "ShapeError", "SnapshotError", "named_as", "option_name", "option_text"],
    "functional.advantages": ["gae"],
    "functional.cvar": ["full_set_metrics", "worst_indices"],
    "functional.distributions": ["ActionDistribution", "Categorical", "DiagonalGaussian", "squashed_sample"],
    "functional.gradients.actor_critic": [
        "bootstrapped",
        "chosen_values",
        "chosen_values_gradient",
        "critics_loss",
        "critics_loss_gradient",
        "expected_values",
        "expected_values_gradient",
        "soft_policy_loss",
        "soft_values",
        "temperature_loss",
    ],
    "functional.gradients.quantiles": ["quantile_huber_loss", "smallest_atoms"],
    "functional.policy_gradients": ["clipped_surrogate", "clipped_value_loss"],
    "functional.running_moments": ["add_rows"],
    "functional.search.base": ["Search", "SearchState", "checked_mean", "default_population"],
    "functional.search.configs": ["AtLeastTwo"],
    "functional.search.gradient_state": ["GradientState", "ascended", "gradient_start"],
    "functional.search.sampling": ["normal_rows"],
    "functional.search.shaping": ["shaped", "utilities"],
    "learners.base": [
        "KNOWN_EPOCHS",
        "EpochLearner",
        "Evaluated",
        "NewData",
        "Progress",
        "RolloutLimit",
        "ScaledActions",
        "TrainingTasks",
        "episode_metrics",
        "horizon_of",
        "refuse_non_finite",
        "train",
    ],
    "learners.off_policy.base": ["Made", "OffPolicyLearner", "require_box", "require_choices"],
    "learners.off_policy.configs": ["RandomFirst", "SoftUpdate"],
    "learners.off_policy.soft": [
        "POLICY_LOSSES",
        "TEMPERATURE_LOSSES",
        "PolicyLosses",
        "SoftNets",
        "SoftObjective",
        "SoftTrainer",
        "Temperature",
        "descend_entropy",
        "soft_settings",
    ],
    "learners.off_policy.trainer": ["CRITIC_LOSSES", "CriticLosses", "ReplayTrainer", "Trained", "critic_losses_of"],
    "learners.on_policy.ppo_trainer": ["PPOData", "PPONets", "Targets", "Trainer", "run_passes"],
    "policies.acting": ["ActingPolicy", "check_policy"],
    "policies.bodies": ["Body", "Perceptron", "Recurrent"],
    "policies.encoders": ["encoders_of", "holds_images"],
    "policies.exploration": ["BoxExploration", "ChoiceExploration", "Exploration"],
    "policies.gru": ["GRUCell", "RecurrentCritic"],
    "policies.heads": [
        "CategoricalHead",
        "DeterministicHead",
        "GaussianHead",
        "GreedyHead",
        "Head",
        "SquashedHead",
    ],
    "policies.networks": ["MLP", "critics_of", "target_of"],
    "policies.normalized": ["widened_spec"],
    "policies.scaling": ["ActionScaling"],
    "policies.trial_memory": ["TrialMemoryPolicy"],
    "processing.on_policy": ["OnPolicyData", "collect_on_policy", "pad_rollouts", "rollout_groups"],
    "processing.relabel": ["label_actions"],
    "processing.trial_rows": ["entries_told", "episode_ends", "padded_trials", "remember_trials", "trial_metrics"],
    "seeding": ["derive_seed", "fresh_seed", "torch_generator"],
    "state": ["Part", "Stateful", "fingerprint_of", "parts", "shapes_of", "told"],
    "training.algorithms.algorithm": ["API", "Algorithm", "Values", "Work"],
    "training.algorithms.building": [
        "BuildOptions",
        "common_arguments",
        "family_sizes",
        "family_tasks",
        "is_continuous",
        "is_discrete",
        "make_policy",
        "network_generator",
        "own_body",
        "training_tasks",
    ],
    "training.algorithms.evolution": ["search_row"],
    "training.algorithms.off_policy": ["Networks", "actor_and_critics", "network_options", "off_policy_row"],
    "training.algorithms.ppo_trials": ["FreshTrials", "TrialParts", "trial_row"],
    "training.algorithms.registry": ["get_algorithm"],
    "training.algorithms.trained": ["TrainedRun"],
    "types": ["Policy", "PolicyInfo", "PolicyState", "Runner"],
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}

__all__ = sorted(_HOME)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(_import_module(f"metaroll.{_HOME[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
