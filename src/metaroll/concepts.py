"""Names of the settings of a run: each concept, its name here, and its names in other libraries.

One table for all algorithms. A setting that several algorithms have has one name in all of them; what is written for
Stable-Baselines3, garage or the documented constructors is taken where it means the same, and answered where it does
not.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

__all__ = ["CONCEPTS", "Concept", "concept_names", "concepts_named"]


class Concept(NamedTuple):
    """One concept.

    Attributes:
        name: In words.
        fields: Its field in configs. Several fields are parts of one concept: a foreign name sets all that are there.
        documented: Names in the documented constructors (``metaroll.compat``), or in other versions of these.
        sb3: Names in Stable-Baselines3 and its contrib package.
        garage: Names in garage, metarl and ProMP.
        sbi: Names in sbi.
        others: Names in other libraries that mean the same (CleanRL, Tianshou, RLlib, learn2learn, pycma).
        near: Names that mean nearly this, or not for all algorithms: they are answered, not taken.
        beside: Its names in commands and methods that have words of their own.
        unless: Fields beside which foreign names may mean those, so that they are answered, too.
        values: Texts that may follow a foreign name, and what they are here.
        more: What to add about a text that continues after one of these.
        note: How the field is used, after an answer.
        in_python: The same in Python, if that is another text; of a concept without fields, its counterpart there.
        absent: The hint where an algorithm has no such field. Fields in braces are written as its user writes them.
        absent_beside: The same where it has another field: that field -> the hint; the first counts.
        outside: The hint where a learner has no such field, since its runner or caller has it.
    """

    name: str
    fields: tuple[str, ...]
    documented: tuple[str, ...] = ()
    sb3: tuple[str, ...] = ()
    garage: tuple[str, ...] = ()
    sbi: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    near: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()
    values: Mapping[str, Any] = MappingProxyType({})
    more: str = ""
    note: str = ""
    in_python: str = ""
    absent: str = ""
    absent_beside: Mapping[str, str] = MappingProxyType({})
    outside: str = ""

    @property
    def here(self) -> tuple[str, ...]:
        """All of its names here."""
        return self.fields + self.beside

    @property
    def taken(self) -> frozenset[str]:
        """Foreign names that mean the same; documented ones belong to the algorithms whose fields were called so."""
        return frozenset(self.sb3 + self.garage + self.sbi + self.others)


_LENGTH = "agent.learn(100_000) takes that many environment steps, agent.learn(epochs=20) that many epochs"
_NETWORKS = "networks come from the preset, their widths from hidden_sizes"
_NO_REPLAY = "there is no replay buffer: this algorithm learns from new episodes alone"
_NO_TARGETS = "there are no target networks"
_NO_GRADIENTS = "nothing is learned by gradient steps here"
_NO_ENTROPY = "there is no weight of the entropy here"
_NO_TEMPERATURE = "there is no temperature that is learned here"
_NO_CONTEXT = "no context is embedded in a latent variable here"
_NO_CANDIDATES = "there are no candidates here"
_SEARCHES: Mapping[str, str] = dict.fromkeys(
    ("population", "num_directions"), "the search itself explores, by candidates that differ"
)
_ONCE = "observations are stored once, and time limits are never endings, anyway"
_GIVEN_NETWORKS = (
    "a learner is given its networks (policy=...); metaroll.agent(algo, env, hidden_sizes=(64, 64)) makes them"
)
_OF_AGENTS = "it is an option of metaroll.agent(algo, env, ...)"

CONCEPTS: tuple[Concept, ...] = (
    # ---------------------------------------------------------------------------------------------- length of training
    Concept(
        "epochs",
        ("epochs",),
        documented=("num_epochs",),
        others=("n_itr",),
        near=(
            *(
                "n_epochs",
                "max_num_epochs",
                "iterations",
                "generations",
                "n_generations",
                "n_iter",
                "num_iterations",
                "total_timesteps",
                "timesteps",
                "total_steps",
                "env_steps",
            ),
            *("num_env_steps", "num_timesteps", "max_timesteps"),
        ),
        note="an epoch has a fixed number of environment steps, which is shown at the start",
        in_python=_LENGTH,
    ),
    Concept(
        "environment steps of training",
        (),
        near=("total_timesteps", "timesteps", "total_steps", "num_env_steps", "num_timesteps", "steps", "num_steps"),
        beside=("env_steps",),
        in_python=_LENGTH,
    ),
    Concept(
        "environment steps of an epoch",
        ("steps_per_epoch",),
        near=(
            *("n_steps", "num_steps", "rollout_length", "horizon_steps", "steps", "batch_steps", "train_batch_size"),
            "horizon",
        ),
        absent="the length of an epoch follows from other options (docs/options.md)",
    ),
    Concept(
        "cycles of collection and updates in an epoch",
        ("cycles_per_epoch",),
        documented=("steps_per_epoch",),
        garage=("n_epoch_cycles",),
        near=("n_steps", "num_steps"),
    ),
    Concept(
        "longest rollout",
        ("max_steps",),
        documented=("max_path_length",),
        garage=("max_episode_length",),
        others=("max_episode_steps", "time_limit", "episode_length"),
        near=("horizon", "max_episode_len"),
    ),
    Concept(
        "longest rollout of an evaluation",
        ("max_eval_steps",),
        documented=("max_eval_path_length",),
        garage=("max_episode_length_eval",),
    ),
    # ------------------------------------------------------------------------------------------------------ collection
    Concept(
        "warm-up steps",
        ("warmup_steps",),
        documented=("min_buffer_size", "num_initial_steps"),
        garage=("min_buffer_size",),
        others=("num_steps_sampled_before_learning_starts",),
        near=("learning_starts", "start_steps", "random_steps"),
        absent="learning starts with the first epoch",
    ),
    Concept(
        "warm-up steps with random actions",
        ("warmup_steps", "random_steps"),
        sb3=("learning_starts",),
        others=("start_steps", "start_timesteps"),
        absent="learning starts with the first epoch",
    ),
    Concept(
        "steps with random actions",
        ("random_steps",),
        others=("uniform_random_steps",),
    ),
    Concept(
        "rollouts side by side",
        ("num_envs",),
        documented=("rollout_batch_size",),
        sb3=("n_envs",),
        garage=("rollout_batch_size",),
    ),
    Concept(
        "worker processes",
        ("num_workers",),
        documented=("n_parallel", "n_workers"),
        others=("n_cpu", "workers", "num_procs", "n_jobs", "num_processes"),
        near=("n_envs", "num_envs", "cpus", "num_cpus", "nproc"),
    ),
    Concept(
        "environments stepped together in a worker",
        ("slots_per_unit",),
        near=("simulation_batch_size", "num_envs", "n_envs", "envs_per_worker"),
    ),
    Concept("how rollouts are run", ("transport",), others=("engine",)),
    Concept("tasks that an epoch collects in", ("tasks_per_epoch",), documented=("num_tasks_sample",)),
    Concept("tasks of a meta-gradient step", ("meta_batch_size",), others=("meta_bsz", "tasks_per_batch")),
    Concept(
        "rollouts of each task",
        ("rollouts_per_task",),
        documented=("rollouts_per_meta_task",),
        garage=("episodes_per_task",),
        others=("adapt_batch_size", "fast_batch_size"),
        near=("shots", "k_shot"),
    ),
    Concept("training tasks", ("num_train_tasks",), near=("n_train_tasks", "num_tasks", "n_tasks")),
    Concept(
        "held-out tasks",
        ("num_test_tasks",),
        documented=("n_test_tasks",),
        near=("n_eval_tasks", "num_eval_tasks", "n_tasks"),
        beside=("num_tasks",),
    ),
    Concept(
        "replay size",
        ("replay_size",),
        documented=("replay_buffer_size",),
        sb3=("buffer_size",),
        garage=("capacity_in_transitions", "buffer_capacity"),
        others=("replay_capacity", "memory_size", "replay_memory_size"),
        near=("buffer", "replay", "replay_buffer"),
        absent=_NO_REPLAY,
    ),
    # --------------------------------------------------------------------------------------------------- gradient steps
    Concept(
        "gradient steps",
        ("gradient_steps",),
        documented=("n_train_steps", "num_steps_per_epoch"),
        garage=("gradient_steps_per_itr",),
        near=(
            "updates",
            "num_updates",
            "n_train_steps",
            "num_train_steps",
            "num_steps_per_epoch",
        ),  # of an epoch, or of a cycle
        absent="the number of gradient steps is no option here",
    ),
    Concept(
        "passes over the data of an epoch",
        ("num_passes",),
        sb3=("n_epochs",),
        garage=("optimization_epochs", "max_optimization_epochs"),
        others=("update_epochs", "k_epochs", "num_sgd_iter", "n_epochs_per_batch"),
        near=(
            *("gradient_steps", "gradient_steps_per_itr", "updates", "num_updates", "num_train_steps", "max_epochs"),
            "train_pi_iters",
        ),
        absent="there are no passes over the data of an epoch",
    ),
    Concept(
        "gradient steps per environment step",
        ("update_to_data",),
        others=("utd", "utd_ratio", "update_per_step"),
        near=("train_freq", "train_every", "update_every", "update_freq", "updates_per_step"),
        note="a ratio: 0.25 is one gradient step for 4 environment steps",
    ),
    Concept(
        "batch size",
        ("batch_size",),
        documented=("buffer_batch_size",),
        garage=("minibatch_size", "optimization_mini_batch_size"),
        sbi=("training_batch_size",),
        others=("mini_batch", "sgd_minibatch_size"),
        near=("minibatch", "mini_batch_size"),
        absent="there are no minibatches",
    ),
    Concept(
        "number of minibatches",
        ("batch_size",),
        near=(
            *("minibatches", "num_minibatches", "nminibatches", "n_minibatches", "num_mini_batches"),
            "optimization_n_minibatches",
        ),
        note="the size of one, rather than their number",
        absent="there are no minibatches",
    ),
    Concept("batch size of the context", ("embedding_batch_size",), absent=_NO_CONTEXT),
    Concept(
        "temperature",
        ("temperature",),
        sb3=("ent_coef",),
        garage=("fixed_alpha",),
        values={"auto": None},
        more="a temperature that is learned begins with {init_temperature}",
        near=("entropy", "entropy_coeff", "alpha", "ent_coeff", "entropy_coef", "policy_ent_coeff"),
        absent=_NO_ENTROPY,
    ),
    Concept(
        "learning rate",
        ("learning_rate",),
        garage=("optimizer_lr", "outer_lr"),
        others=("lr", "step_size", "meta_lr", "stepsize"),
        near=(
            *("learning_rates", "alpha", "critic_lr", "q_lr", "qf_lr", "actor_lr", "pi_lr", "policy_lr", "vf_lr"),
            *("learning_rate_actor", "learning_rate_critic"),
        ),
        unless=("inner_lr",),
        absent=_NO_GRADIENTS,
    ),
    Concept(
        "learning rates of all networks",
        ("policy_lr", "qf_lr", "vf_lr", "context_lr", "temperature_lr"),
        sb3=("learning_rate",),
        others=("lr", "step_size"),
        near=("learning_rates", "meta_lr", "outer_lr", "optimizer_lr", "stepsize"),
        absent=_NO_GRADIENTS,
    ),
    Concept("learning rate of the policy", ("policy_lr",), others=("actor_lr", "pi_lr", "learning_rate_actor")),
    Concept("learning rate of the critics", ("qf_lr",), others=("critic_lr", "q_lr", "learning_rate_critic")),
    Concept(
        "learning rate of the temperature",
        ("temperature_lr",),
        others=("alpha_lr", "ent_coef_lr"),
        absent=_NO_TEMPERATURE,
    ),
    Concept(
        "learning rate of the context",
        ("context_lr",),
        others=("encoder_lr", "context_encoder_lr"),
        absent=_NO_CONTEXT,
    ),
    Concept(
        "optimizer",
        (),
        near=("optimizer", "optimizer_class", "optimizer_kwargs", "optim", "policy_optimizer", "vf_optimizer"),
        absent="the optimizer belongs to the algorithm, and is no option",
    ),
    Concept(
        "decay of weights",
        ("weight_decay",),
        near=("policy_weight_decay", "l2_reg", "weight_decay_coeff"),
        absent="weights do not decay here",
    ),
    Concept(
        "penalties of the policy's outputs",
        ("policy_mean_reg_coeff", "policy_std_reg_coeff", "policy_pre_activation_coeff"),
        absent="outputs of the policy are not penalized here",
    ),
    Concept("weight of the KL divergence of the latent variable", ("kl_lambda",), absent=_NO_CONTEXT),
    Concept(
        "learning rate of adaptation",
        ("inner_lr",),
        others=("adapt_lr", "fast_lr"),
        near=("lr", "step_size", "alpha", "inner_learning_rate"),
    ),
    Concept(
        "steps of adaptation",
        ("num_inner_steps",),
        garage=("num_grad_updates",),
        others=("adapt_steps",),
        near=("inner_steps", "adaptation_steps", "fast_adaptation_steps"),
    ),
    Concept(
        "limit of the gradient's norm",
        ("max_grad_norm",),
        sbi=("clip_max_norm",),
        others=("grad_clip",),
        absent="gradients are not clipped here",
    ),
    Concept(
        "target rate",
        ("tau",),
        documented=("soft_target_tau",),
        garage=("target_update_tau",),
        others=("target_tau", "soft_update_rate"),
        near=("polyak", "polyak_tau", "target_update"),
        note="the share that is new: 1 - polyak",
        absent=_NO_TARGETS,
    ),
    Concept(
        "gradient steps between target copies",
        ("target_update_steps",),
        near=(
            "target_update_interval",
            "target_update",
            "polyak_tau",
            "target_network_update_freq",
            "tau",
            "polyak",
            "soft_target_tau",
            "target_update_tau",
            "target_tau",
            "soft_update_rate",
        ),
        absent=_NO_TARGETS,
        absent_beside={"tau": "targets move at every gradient step, by {tau}"},
    ),
    # ------------------------------------------------------------------------------------------------------- inference
    Concept("most epochs of a round of inference", ("max_epochs",), sbi=("max_num_epochs",), near=("epochs",)),
    Concept("rounds of inference", ("rounds",), others=("num_rounds", "n_rounds")),
    Concept("density of a posterior", ("model",), near=("density_estimator",)),
    Concept("estimators that are averaged", ("ensemble",), others=("num_ensembles", "ensemble_size")),
    # --------------------------------------------------------------------------------------------------------- returns
    Concept("discount factor", ("discount",), sb3=("gamma",), others=("discount_factor",)),
    Concept("GAE lambda", ("gae_lambda",), garage=("gae_lam",), others=("lam", "lambda", "lmbda"), near=("gae",)),
    Concept(
        "steps of a return",
        ("n_step",),
        sb3=("n_steps",),
        garage=("n_step",),
        others=("multi_step", "estimation_step"),
    ),
    Concept("scale of rewards", ("reward_scale",), others=("reward_scaling",)),
    # ------------------------------------------------------------------------------------------------------------- PPO
    Concept(
        "clip range",
        ("clip_range",),
        garage=("lr_clip_range", "clip_eps"),
        others=("clip_coef", "clip_param", "eps_clip", "clip_ratio"),
        near=("clip",),
        absent="ratios are not clipped here",
    ),
    Concept("clip range of values", ("value_clip_range",), sb3=("clip_range_vf",), near=("vf_clip_param",)),
    Concept("normalized advantages", ("normalize_advantages",), sb3=("normalize_advantage",), garage=("center_adv",)),
    Concept(
        "weight of the entropy",
        ("entropy_coeff",),
        sb3=("ent_coef",),
        garage=("policy_ent_coeff",),
        others=("ent_coeff", "entropy_coef"),
        near=("entropy", "temperature", "fixed_alpha"),
        absent=_NO_ENTROPY,
    ),
    Concept(
        "how entropy counts",
        (),
        near=("entropy_method", "stop_entropy_gradient", "use_softplus_entropy"),
        absent=_NO_ENTROPY,
        absent_beside={
            "entropy_coeff": "entropy is part of the loss, with the weight {entropy_coeff}",
            "temperature": "entropy counts beside rewards, with the weight {temperature}",
        },
    ),
    Concept("weight of the value loss", ("value_coeff",), sb3=("vf_coef",), others=("vf_loss_coeff", "value_coef")),
    Concept("KL divergence that ends an epoch", ("target_kl",)),
    # -------------------------------------------------------------------------------------------------- SAC, TD3, DQN
    Concept(
        "temperature at first",
        ("init_temperature",),
        others=("init_alpha",),
        near=("initial_log_entropy",),
        absent=_NO_TEMPERATURE,
    ),
    Concept(
        "entropy to aim at",
        ("target_entropy",),
        sb3=("target_entropy",),
        values={"auto": None},
        absent=_NO_TEMPERATURE,
    ),
    Concept("delay of the policy", ("policy_delay",), others=("policy_freq", "policy_frequency", "actor_update_freq")),
    Concept(
        "noise of target actions",
        ("smoothing_std",),
        sb3=("target_policy_noise",),
        garage=("policy_noise",),
        others=("policy_noise_std",),
    ),
    Concept(
        "bound of that noise",
        ("smoothing_clip",),
        sb3=("target_noise_clip",),
        garage=("policy_noise_clip",),
        others=("noise_clip",),
    ),
    Concept(
        "noise of exploration",
        ("exploration_noise",),
        near=("action_noise", "exploration", "action_noise_std"),
        note="gaussian or ornstein-uhlenbeck, of size exploration_sigma",
        in_python="'gaussian' or 'ornstein-uhlenbeck', of size exploration_sigma",
        absent="the policy itself explores",
        absent_beside=_SEARCHES,
    ),
    Concept(
        "random actions at first",
        ("max_epsilon",),
        sb3=("exploration_initial_eps",),
        others=("start_e",),
        near=("epsilon_start", "exploration", "action_noise", "action_noise_std", "exploration_noise"),
    ),
    Concept("random actions in the end", ("min_epsilon",), sb3=("exploration_final_eps",), others=("end_e",)),
    Concept(
        "fall of random actions",
        ("epsilon_steps",),
        near=("exploration_fraction", "decay_ratio", "epsilon_decay"),
        note="in environment steps, rather than as a share of all",
        absent="there is no share of random actions here that falls",
    ),
    Concept(
        "atoms left out",
        ("dropped_atoms",),
        sb3=("top_quantiles_to_drop_per_net",),
        absent="there are no critics here",
        absent_beside=dict.fromkeys(
            ("qf_lr", "value_coeff", "double"), "values are single numbers here, rather than quantiles"
        ),
    ),
    # ------------------------------------------------------------------------------------------------------- evolution
    Concept(
        "population",
        ("population",),
        documented=("n_samples", "pop_size"),
        others=("popsize", "population_size", "num_candidates"),
        absent=_NO_CANDIDATES,
    ),
    Concept(
        "pairs of candidates",
        ("num_directions",),
        sb3=("n_delta",),
        others=("num_pairs",),
        near=("population", "n_samples", "pop_size", "popsize", "population_size", "num_candidates"),
        note="pairs: half of the candidates",
        absent=_NO_CANDIDATES,
        absent_beside={"population": "{population} counts all candidates, rather than pairs"},
    ),
    Concept("best directions", ("num_best",), sb3=("n_top",)),
    Concept(
        "standard deviation of candidates at first",
        ("init_sigma",),
        documented=("sigma0", "init_std"),
        others=("sigma", "expl_std_init"),
        near=("noise_std",),
    ),
    Concept("standard deviation of candidates", ("sigma",), sb3=("delta_std",), others=("noise_std",), near=("noise",)),
    Concept(
        "second derivatives",
        ("second_order",),
        near=("first_order",),
        note="the opposite",
        absent="nothing adapts by gradient steps here",
    ),
    # ------------------------------------------------------------------------------------------------------ evaluation
    Concept("epochs between evaluations", ("evaluate_every",), near=("eval_freq", "eval_every", "eval_interval")),
    Concept(
        "episodes of an evaluation",
        ("num_episodes",),
        documented=("n_test_rollouts", "n_eval_trajs"),
        garage=("n_eval_episodes", "n_test_episodes"),
        others=("eval_episodes",),
        near=("num_evaluation_episodes", "num_eval_episodes", "n_evaluation_episodes", "evaluation_episodes"),
        beside=("episodes", "adapted_episodes"),
    ),
    Concept(
        "episodes before adaptation",
        ("num_adaptation_episodes",),
        documented=("n_exploration_traj",),
        garage=("n_exploration_eps",),
        near=("n_eval_episodes", "eval_episodes"),
        beside=("episodes",),
    ),
    # -------------------------------------------------------------------------------------------------------- networks
    Concept(
        "hidden layers",
        ("hidden_sizes",),
        near=(
            "hidden_features",
            "net_arch",
            "layers",
            "hidden",
            "hidden_size",
            "hidden_dim",
            "network_size",
            "policy_kwargs",
            *("num_layers", "n_layers", "num_hidden_layers", "hidden_layers", "layer_sizes", "policy_hidden_sizes"),
        ),
        note="widths are separated by spaces, as in --hidden-sizes 64 64",
        in_python="as in hidden_sizes=(64, 64)",
        outside=_GIVEN_NETWORKS,
    ),
    Concept("width of memories", ("hidden_size",), near=("hidden_sizes",)),
    Concept(
        "width of an estimator's layers",
        ("hidden_features",),
        near=("hidden_sizes", "hidden_size", "hidden_dim", "hidden", "net_arch"),
    ),
    Concept(
        "activation",
        ("hidden_nonlinearity",),
        near=("activation_fn", "activation", "nonlinearity"),
        note="tanh, relu",
        in_python="'tanh', 'relu'",
        absent="the activation of these networks is no option",
        outside=_GIVEN_NETWORKS,
    ),
    Concept(
        "network of one's own",
        ("policy",),
        note="module:attribute of a torch.nn.Module",
        in_python="a torch.nn.Module, or what makes one",
        absent="this algorithm brings its own networks, whose widths are {hidden_sizes}: leave it out",
        outside=_GIVEN_NETWORKS,
    ),
    Concept(
        "kind of network",
        ("network",),
        near=("policy", "policy_class", "policy_type"),
        note="mlp or gru",
        in_python=f"'mlp' or 'gru'; {_NETWORKS}=(64, 64)",
        absent=_NETWORKS,
        outside=_GIVEN_NETWORKS,
    ),
    Concept("width of the latent variable", ("latent_dim",), others=("z_dim", "latent_size", "context_dim")),
    # ------------------------------------------------------------------------------------------------------------- run
    Concept("seed", ("seed",), others=("random_seed", "random_state")),
    Concept(
        "seeds",
        (),
        near=("n_seeds", "num_seeds"),
        beside=("seeds",),
        in_python="an agent for each seed, and metaroll.lab.compare",
    ),
    Concept(
        "folder of the run",
        (),
        near=(
            *("output", "output_dir", "save_dir", "save_path", "logdir", "log_dir", "dir", "folder"),
            *("out_dir", "output_folder", "out_folder", "output_path"),
        ),
        beside=("out", "run_dir"),
        in_python="it is run_dir=... of metaroll.agent",
    ),
    Concept(
        "TensorBoard",
        ("tensorboard",),
        near=("tensorboard_log", "log_tensorboard", "tb_log"),
        in_python="tensorboard=True writes into the run folder",
    ),
    Concept(
        "device",
        ("device",),
        near=("gpu", "cuda", "use_gpu"),
        note="as in --device cuda",
        in_python='as in device="cuda"',
    ),
    Concept(
        "no messages",
        (),
        near=("verbose", "silent", "progress_bar", "show_progress"),
        beside=("quiet", "progress"),
        in_python="agent.learn(..., progress=False) shows nothing",
    ),
    Concept("callbacks", (), near=("callback", "callbacks"), in_python="agent.learn(..., callbacks=[mine])"),
    Concept(
        "options as one object",
        (),
        near=("config", "kwargs", "replay_buffer_kwargs", "rollout_buffer_kwargs"),
        in_python="every option is a keyword: metaroll.agent(algo, env, **options)",
        absent="every option is a flag of its own",
    ),
    Concept("snapshot to load", ("from_epoch",), near=("checkpoint", "step", "epoch_to_load")),
    Concept(
        "epochs between snapshots",
        ("snapshot_gap",),
        near=("save_every", "save_freq", "save_interval", "checkpoint_every", "checkpoint_freq"),
        note="with --snapshot-mode gap",
        in_python="with snapshot_mode='gap'",
    ),
    Concept("snapshots that are kept", ("keep_last",), others=("save_total_limit", "max_to_keep", "keep_checkpoints")),
    Concept(
        "best snapshot",
        ("keep_best",),
        near=("save_best", "best_model_save_path", "keep_best_model"),
        note="as in --keep-best return",
        in_python='as in keep_best="return"',
    ),
    Concept(
        "value at which training ends",
        ("stop_at",),
        others=("target_return", "reward_threshold", "stop_return", "stop_reward"),
        near=("target", "early_stop"),
    ),
    Concept(
        "time that training may take",
        ("budget",),
        near=("max_time", "time_budget", "max_seconds", "max_hours", "wall_time"),
        note="as in --budget 10m",
        in_python='as in budget="10m"',
    ),
    Concept(
        "Weights & Biases",
        ("wandb",),
        near=("track", "use_wandb", "wandb_project"),
        note="with the name of a project",
    ),
    Concept(
        "domain randomization",
        ("randomize",),
        near=("dr", "domain_rand", "domain_randomization", "randomization", "randomisation"),
        absent="tasks are drawn by the family",
        outside=_OF_AGENTS,
    ),
    # --------------------------------------------------------------------------------------- what there is no field for
    Concept(
        "pictures",
        (),
        near=("render", "render_mode", "video", "record_video"),
        absent="`metaroll watch RUN` films what was learned",
    ),
    Concept(
        "arguments of the environment",
        (),
        near=("env_kwargs", "env_args"),
        in_python="env may be a function: metaroll.agent(algo, lambda: gymnasium.make(env_id, ...))",
        absent="a function in a file of yours can make the environment: metaroll train ALGO my_env:make",
    ),
    Concept(
        "what was learned before",
        (),
        near=("resume", "load", "pretrained", "load_path"),
        in_python="metaroll.load(folder).learn() continues",
        absent="`metaroll resume RUN` continues",
    ),
    Concept(
        "state-dependent exploration",
        (),
        near=("use_sde", "sde_sample_freq", "use_sde_at_warmup"),
        absent="noise of the policy is independent from step to step; there is no gSDE",
    ),
    Concept(
        "starting over",
        (),
        near=("reset_num_timesteps",),
        in_python="agent.learn again continues; metaroll.agent(...) starts over",
        absent="metaroll train starts over, metaroll resume RUN continues",
    ),
    Concept(
        "epochs without progress",
        ("stop_after_epochs",),
        near=("patience",),
        absent_beside={"stop_at": "{stop_at} and {budget} end a training early"},
    ),
    Concept(
        "class of a replay buffer",
        (),
        near=("replay_buffer_class",),
        absent=_NO_REPLAY,
        absent_beside={
            "replay_buffer": "a buffer is given by {replay_buffer}",
            "priority_exponent": "priorities ({priority_exponent}) and goals in hindsight ({hindsight_ratio}) are "
            "options of one buffer",
            "hindsight_ratio": "goals in hindsight ({hindsight_ratio}) are an option of the one buffer",
            "replay_size": "the class of the replay buffer is no option; {replay_size} is its size",
        },
    ),
    Concept(
        "class of a rollout buffer",
        (),
        near=("rollout_buffer_class",),
        absent="there is no class of a buffer to choose: the rollouts of an epoch are its data",
        absent_beside={"replay_size": "there is no rollout buffer: steps are replayed, {replay_size} of them"},
    ),
    Concept(
        "memory of a buffer",
        ("memory_limit",),
        near=("optimize_memory_usage", "handle_timeout_termination"),
        note=_ONCE,
        absent=_NO_REPLAY,
        absent_beside={"replay_size": _ONCE},
    ),
    Concept(
        "statistics window",
        (),
        near=("stats_window_size", "log_interval"),
        absent="metrics.jsonl has the numbers of every epoch",
    ),
)
"""All of them; where several know a name, the first that an algorithm has a field for counts."""


@functools.cache
def concept_names() -> tuple[str, ...]:
    """All names of all concepts, in order."""
    names = ((*one.taken, *one.near, *one.documented, *one.here) for one in CONCEPTS)
    return tuple(sorted({name for some in names for name in some}))


@functools.cache
def concepts_named(name: str) -> tuple[Concept, ...]:
    """The concepts that know a name: first those that take it, then those that answer it, or are called so."""
    takes = [concept for concept in CONCEPTS if name in concept.taken]
    alone = any(concept.fields == (name,) for concept in CONCEPTS)  # then other concepts contain it
    knows = [
        concept
        for concept in CONCEPTS
        if name in (*concept.near, *concept.documented, *concept.beside)
        or (name in concept.fields and (len(concept.fields) == 1 or not alone))
    ]
    return (*takes, *(concept for concept in knows if concept not in takes))
