"""The options of each algorithm as keywords of ``metaroll.agent``; written by tools/stubs.py.

Editors show the first explanation of a key, so if several algorithms have it, the explanation is for all of them.
The last overload takes algorithms that are only known at run time, options under names of other libraries, and
misspelled options, for which ``metaroll.agent`` itself raises the error.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack, overload

from metaroll.training.algorithms.algorithm import Algorithm
from metaroll.training.session.agent import Agent

class Folders(TypedDict, total=False):
    run_dir: str | Path | None
    tasks: str | Path | None

class Run(TypedDict, total=False):
    size: Literal["small", "medium", "paper"] | None
    """Size of the run, in fixed numbers: small (minutes on two cores), medium, or paper (the published values, where
    there are some). Without it: the preset of the environment. Without a preset: None."""
    seed: int
    """Seed of everything: networks, tasks, rollouts, updates, evaluation. Without a preset: 0."""
    task_seed: int | None
    """Seed of the training and held-out tasks (None: the seed of the run). Without a preset: None."""
    held_out: Literal["independent", "after_training"]
    """Held-out tasks of a family are the same for all numbers of training tasks (independent), or are drawn after
    these, as runs of before 2026-11-28 have them (after_training). Without a preset: 'independent'."""
    epochs: int
    """Number of epochs. Without a preset: 500."""
    hidden_sizes: Sequence[int]
    """Hidden layers of the policy, the Q-functions and the value function. Without a preset: [300, 300, 300]."""
    init: Literal["xavier_uniform", "oyster", "orthogonal", "fan_in"]
    """How weights are initialized: xavier_uniform, oyster (that of the reference code of PEARL), orthogonal (usual for
    PPO) or fan_in (usual for off-policy learners). Without a preset: 'xavier_uniform'."""
    num_workers: int
    """Rollout worker processes; results do not depend on it. Without a preset: 1."""
    transport: Literal["auto", "serial", "process", "ray"]
    """Where rollouts run: in this process, in worker processes, on a Ray cluster, or chosen by the number of workers.
    Without a preset: 'auto'."""
    ray_address: str | None
    """HOST:PORT of the Ray cluster, auto for one that runs on this machine, or local for a new one (None: the one that
    ray.init has connected, that of RAY_ADDRESS, or a new one on this machine alone, in this order). Without a preset:
    None."""
    step_timeout: float
    """Seconds after which a worker process that is stuck in one step is replaced. Without a preset: 60.0."""
    reset_timeout: float
    """The same, while it builds or resets environments. Without a preset: 300.0."""
    device: str
    """Where gradient steps run, e.g. cpu or cuda. Without a preset: 'cpu'."""
    torch_threads: int | None
    """Threads of gradient steps on the CPU, by torch or NumPy (None: as many as torch chooses at the start; the run
    keeps their number, since another one changes the last bits). Several threads pay for large networks on idle cores;
    beside other busy programs one thread is much faster. Without a preset: None."""
    snapshot_mode: Literal["all", "last", "gap", "gap_overwrite", "gap_and_last", "none"]
    """Which snapshots are kept; without snapshots the run cannot be resumed. Without a preset: 'last'."""
    snapshot_gap: int
    """Epochs between snapshots, for the modes with a gap. Without a preset: 1."""
    keep_last: int
    """Number of newest snapshots to keep, in the modes last, gap_overwrite and gap_and_last. Without a preset: 1."""
    keep_best: str | None
    """Keep the snapshot with the highest value of this number, too, for --from-epoch best: return or success (those of
    evaluations), or any name in metrics.jsonl, as train/return. Without a preset: None."""
    stop_at: float | None
    """End the training where the number of stop_metric is at least this (None: never). Without a preset: None."""
    stop_metric: str
    """Name of that number: return or success (of evaluations), or any name in metrics.jsonl. Without a preset:
    'return'."""
    stop_mean_of: int
    """Average this many latest values of stop_metric. Without a preset: 1."""
    budget: str | None
    """End the training after the epoch in which its total time reaches this, such as 90s, 10m, 1h30m or 2d. Without a
    preset: None."""
    tensorboard: bool
    """Write the numbers for TensorBoard, too, into the folder tensorboard of the run. Without a preset: False."""
    wandb: str | None
    """Send the numbers to this project of Weights & Biases, too (WANDB_MODE=offline keeps them here). Without a preset:
    None."""

class Evaluated(TypedDict, total=False):
    evaluate_every: int
    """Evaluate every n epochs; 0 means never. Without a preset: 10."""

class PEARLUpdate(TypedDict, total=False):
    policy_lr: float
    """pearl: Learning rate of the inner policy. Without a preset: 0.0003.
    ddpg, td3: Learning rate of the policy (Adam). Without a preset: 0.001.
    sac, discrete-sac, tqc, rsac: Learning rate of the policy (Adam). Without a preset: 0.0003."""
    qf_lr: float
    """pearl: Learning rate of both Q functions. Without a preset: 0.0003.
    ddpg, td3: Learning rate of the critics (Adam). Without a preset: 0.001.
    sac, discrete-sac, tqc, rsac: Learning rate of the critics (Adam). Without a preset: 0.0003."""
    vf_lr: float
    """Learning rate of the value function. Without a preset: 0.0003."""
    context_lr: float
    """Learning rate of the encoder. Without a preset: 0.0003."""
    policy_mean_reg_coeff: float
    """Weight of the squared mean (before tanh) in the policy's loss. Without a preset: 0.001."""
    policy_std_reg_coeff: float
    """Weight of the squared log standard deviation. Without a preset: 0.001."""
    policy_pre_activation_coeff: float
    """Weight of the squared action before tanh. Without a preset: 0.0."""
    tau: float
    """pearl: Polyak rate of the target value function, per gradient step. Without a preset: 0.005.
    ddpg, td3, sac, discrete-sac, tqc, rsac: Polyak rate of the target networks, per gradient step. Without a preset:
    0.005."""
    kl_lambda: float
    """Weight of the KL divergence of the belief from the prior. Without a preset: 0.1."""
    discount: float
    """pearl, rl2, maml, promp, dice, ppo, epopt: Discount factor in [0, 1]. Without a preset: 0.99.
    cmaes, cem: Discount factor of discounted_return in the log; the search maximizes undiscounted returns. Without a
    preset: 0.99.
    ars, es, pgpe, snes: Discount factor of discounted_return in the log; the search maximizes undiscounted returns.
    Without a preset: 1.0.
    dqn, ddpg, td3, sac, discrete-sac, tqc, rsac: Discount factor. Without a preset: 0.99."""
    reward_scale: float
    """pearl: Factor of the rewards; acts as an inverse temperature. Without a preset: 1.0.
    dqn, ddpg, td3, sac, discrete-sac, tqc, rsac: Factor applied to rewards in updates; they are stored unscaled.
    Without a preset: 1.0."""
    meta_batch_size: int
    """pearl: Tasks per gradient step (drawn with replacement). Without a preset: 64.
    maml, promp, dice: Tasks per meta-gradient step, drawn in every epoch. Without a preset: 20."""
    gradient_steps: int
    """pearl: Gradient steps per epoch. Without a preset: 1000.
    maml, dice: Gradient steps with the samples of one epoch. Without a preset: 1.
    promp: Gradient steps with the samples of one epoch. Without a preset: 5.
    dqn, ddpg, td3, sac, discrete-sac, tqc, rsac: Gradient steps per cycle. Without a preset: 50."""
    batch_size: int
    """pearl: Transitions per task in a gradient step. Without a preset: 1024.
    rl2, ppo, epopt: Minibatch size in steps; for recurrent policies, complete rollouts with about that many in total.
    Without a preset: 64.
    distill: Steps per gradient step, in complete rollouts. Without a preset: 1000.
    dqn, ddpg, td3, sac, discrete-sac, tqc, rsac: Replayed steps per gradient step. Without a preset: 64."""
    embedding_batch_size: int
    """Context entries per task. Without a preset: 1024."""
    embedding_mini_batch_size: int
    """Context entries read at a time; equals embedding_batch_size unless the encoder is recurrent. Without a preset:
    1024."""
    warmup_steps: int
    """pearl: Environment steps per task before the first gradient step. Without a preset: 100.
    dqn, ddpg, td3, sac, discrete-sac, tqc, rsac: Environment steps to collect before the first gradient step. Without a
    preset: 10000."""
    tasks_per_epoch: int
    """pearl: Tasks visited for new data per epoch (drawn with replacement). Without a preset: 100.
    ppo, distill: Variations drawn per epoch; None means one per full-length rollout that is needed. Without a preset:
    None.
    cmaes, cem, ars, es, pgpe, snes: Number of training tasks or random domains to evaluate each candidate in; the same
    for all candidates of an epoch. Without a preset: 1."""
    num_steps_prior: int
    """Steps per visit with z from the prior. Without a preset: 100."""
    num_steps_posterior: int
    """Steps per visit with z from the posterior. Without a preset: 0."""
    num_extra_rl_steps_posterior: int
    """Further steps with z from the posterior, for actor and critic only. Without a preset: 100."""
    max_steps: int
    """pearl: Maximum number of steps of a rollout. Without a preset: 1000.
    rl2: Maximum number of steps of an episode. Without a preset: None.
    maml, promp, dice, ppo, epopt, distill, ars, es, pgpe, snes, dqn, ddpg, td3, sac, discrete-sac, tqc, rsac,
    hill-climbing: Maximum number of steps of a rollout; None means the environment's time limit. Without a preset:
    None.
    cmaes, cem: Maximum number of steps of a rollout; None means the environment's time limit. Without a preset: 500."""
    update_post_train: int
    """Episodes between updates of the posterior during collection. The first of them are collected under the prior.
    Without a preset: 1."""
    replay_size: int
    """pearl: Maximum number of transitions kept per task and buffer. Without a preset: 1000000.
    distill: Number of latest steps to learn from, in complete rollouts. Without a preset: 40000.
    dqn, ddpg, td3, sac, discrete-sac, tqc, rsac: Capacity of the replay buffer, in steps. Without a preset: 1000000."""
    context_reward_key: str | None
    """pearl: Name of an env_info ('sparse_reward') that replaces the reward in the context; actor and critic keep the
    reward. Without a preset: None.
    rl2: Name of an env_info ('sparse_reward') that the memory sees as last reward; None means the reward itself, which
    training always uses. Without a preset: None.
    maml, promp, dice: Name of an env_info ('sparse_reward') that replaces the reward in inner steps; the outer update
    uses the reward itself. Without a preset: None."""
    latent_dim: int
    """Length of z. Set by the preset."""
    num_train_tasks: int
    """pearl: Number of training tasks. Set by the preset.
    rl2: Number of training tasks of the family; None draws new ones in every epoch, if the family can. Without a
    preset: None.
    maml, promp, dice, ppo, epopt, distill, cmaes, cem, ars, es, pgpe, snes, dqn, ddpg, td3, sac, discrete-sac, tqc,
    rsac: Number of training tasks of a task family. Without a preset: None."""
    use_information_bottleneck: bool
    """False makes z deterministic: the mean of the encoder's outputs. Without a preset: True."""
    use_next_obs_in_context: bool
    """Whether the context includes next observations (where dynamics differ by task). Without a preset: False."""

class PEARL(PEARLUpdate, Evaluated, total=False):
    evaluate_every: int
    """pearl, dqn, ddpg, td3, sac, discrete-sac, tqc, rsac: Evaluate every n epochs; 0 means never. Without a preset: 1.
    rl2, maml, promp, dice, ppo, epopt, distill, hill-climbing: Evaluate every n epochs; 0 means never. Without a
    preset: 10.
    cmaes, cem, ars, es, pgpe, snes: Evaluate every n epochs; 0 means never. Without a preset: 0."""
    num_test_tasks: int | None
    """pearl: Number of held-out tasks; None means all. Set by the preset.
    rl2, maml, promp, dice: Number of held-out tasks. Without a preset: None.
    ppo, epopt, distill, cmaes, cem, ars, es, pgpe, snes, dqn, ddpg, td3, sac, discrete-sac, tqc, rsac, hill-climbing:
    Number of held-out tasks, or of held-out sets of domain parameters (None: 20 of them). Without a preset: None."""
    encoder_hidden_sizes: Sequence[int]
    """Hidden layers of the encoder. Set by the preset."""
    memory_limit: int | None
    """pearl: Maximum size of the buffers in bytes, checked beforehand; None means no limit. Without a preset: None.
    dqn, ddpg, td3, sac, discrete-sac, tqc, rsac: Maximum size of the replay buffer in bytes; None means the memory of
    this machine. Without a preset: None."""

class OwnNetwork(TypedDict, total=False):
    policy: Any
    """Your own network, as module:attribute: a torch.nn.Module, or a function that makes one from an EnvSpec. It
    replaces the hidden layers of the policy, and the policy's output layer follows it (None: hidden_sizes). Without a
    preset: None."""

class MetaEvaluation(TypedDict, total=False):
    repetitions: int
    """Independent repetitions of the whole procedure per task. Without a preset: 1."""
    deterministic: bool
    """pearl, rl2, maml, promp, dice: Act with the mean action (a latent z is still sampled). Without a preset: True.
    ppo, epopt, distill, dqn, ddpg, td3, sac, discrete-sac, tqc, rsac, hill-climbing: Act by the deterministic policy.
    Without a preset: True.
    cmaes, cem, ars, es, pgpe, snes: Act without noise. Without a preset: True."""
    return_reward_key: str | None
    """Name of an env_info to sum instead of the reward. Without a preset: None."""
    num_adaptation_episodes: int
    """Episodes per task to adapt to. Without a preset: 10."""
    num_episodes: int
    """pearl, rl2, maml, promp, dice: Adapted episodes per task (episodes are counted, not steps). Without a preset: 1.
    ppo, epopt, distill, cmaes, cem, ars, es, pgpe, snes, dqn, ddpg, td3, sac, discrete-sac, tqc, rsac, hill-climbing:
    Episodes per task. Without a preset: 20."""
    posterior_sampling: bool
    """Adapt again after every exploration episode (PEARL's protocol), not once after all of them. Without a preset:
    False."""
    num_prior_episodes: int
    """Episodes under the prior before the first adaptation, with posterior_sampling. Without a preset: 1."""
    deterministic_exploration: bool | None
    """Whether exploration episodes are deterministic; None means the same as deterministic, but with noise for an
    algorithm that needs it (see AlgorithmInfo.deterministic_exploration). Without a preset: None."""
    adaptation_rounds: int | None
    """How often exploration episodes are followed by an adaptation; None means once (or num_adaptation_episodes /
    episodes_per_round times). Without both, an algorithm that learns to adapt in several steps
    (AlgorithmInfo.inner_steps) has one round for each step, from the policy and episodes of the round before. Rounds
    are then equally long, with perhaps a few more than num_adaptation_episodes in all. Without a preset: None."""
    episodes_per_round: int | None
    """Exploration episodes of each round; None means num_adaptation_episodes in all. If both are given,
    num_adaptation_episodes is their product. Without a preset: None."""
    adapt_from: Literal["last", "all"]
    """From the second round on, 'all' adapts an exploration policy from all exploration episodes so far; 'last' adapts
    the policy that made the last round's episodes, from these alone (the next gradient step). Without a preset:
    'all'."""

class PearlOptions(Folders, Run, PEARL, OwnNetwork, MetaEvaluation): ...

class RL2(TypedDict, total=False):
    trials_per_epoch: int
    """Trials collected per epoch, each in a new task. Without a preset: 100."""
    across_episodes: bool
    """Whether the return continues across the ends of episodes, with one discount for the complete trial. Otherwise
    each episode counts for itself, and exploration for later ones is not rewarded. Without a preset: True."""

class TrainTasks(TypedDict, total=False):
    num_train_tasks: int | None
    """Number of training tasks of a task family. Without a preset: None."""

class HeldOutTasks(TrainTasks, total=False):
    num_test_tasks: int | None
    """Number of held-out tasks. Without a preset: None."""

class TrialSizes(HeldOutTasks, total=False):
    num_train_tasks: int | None
    """Number of training tasks of the family; None draws new ones in every epoch, if the family can. Without a preset:
    None."""
    episodes_per_trial: int
    """Episodes of one task that share the memory and are trained on together. Without a preset: 2."""
    max_steps: int | None
    """Maximum number of steps of an episode. Without a preset: None."""
    init_std: float
    """rl2, ppo, epopt: Standard deviation of the actions at first, where they lie in [-1, 1]. Without a preset: 1.0.
    maml, promp, dice: Standard deviation of the actions at first, where they lie in [-1, 1]. Without a preset: 0.5.
    distill: Standard deviation of the student's actions in training, relative to [-1, 1]. Without a preset: 0.1."""
    context_reward_key: str | None
    """Name of an env_info ('sparse_reward') that the memory sees as last reward; None means the reward itself, which
    training always uses. Without a preset: None."""

class AdamSteps(TypedDict, total=False):
    learning_rate: float
    """Learning rate (Adam). Without a preset: 0.001."""
    max_grad_norm: float | None
    """Maximum gradient norm, over all networks; None does not limit it. Without a preset: None."""

class RolloutLimit(TypedDict, total=False):
    max_steps: int | None
    """Maximum number of steps of a rollout; None means the environment's time limit. Without a preset: None."""

class ScaledActions(TypedDict, total=False):
    scale_actions: bool
    """Scale actions from [-1, 1] to the bounds of the action space, and clip them. Without a preset: True."""

class Rl2Options(
    Folders, Run, RL2, TrialSizes, AdamSteps, RolloutLimit, ScaledActions, Evaluated, MetaEvaluation, total=False
):
    learning_rate: float
    """rl2, ppo, epopt: Learning rate (Adam). Without a preset: 0.0003.
    maml, promp, dice, distill: Learning rate (Adam). Without a preset: 0.001.
    ars: Step size, alpha. Without a preset: 0.02.
    es: Learning rate (Adam). Without a preset: 0.02.
    pgpe: Learning rate of the mean (Adam). Without a preset: 0.02.
    snes: Learning rate of the mean. Without a preset: 1.0.
    dqn: Learning rate (Adam). Without a preset: 0.0001."""
    max_grad_norm: float | None
    """rl2, ppo, epopt: Maximum gradient norm, over all networks; None does not limit it. Without a preset: 0.5.
    maml, promp, dice: Maximum gradient norm, over all networks; None does not limit it. Without a preset: None.
    distill: Maximum gradient norm, over all networks; None does not limit it. Without a preset: 1.0.
    dqn: Maximum norm of the gradient; None does not limit it. Without a preset: 10.0."""
    num_passes: int
    """rl2, ppo, epopt: Passes over the data of an epoch. Without a preset: 10.
    distill: Passes over the data of an epoch. Without a preset: 4."""
    batch_size: int
    """Minibatch size in steps; for recurrent policies, complete rollouts with about that many in total. Without a
    preset: 64."""
    lr_decay_epochs: int | None
    """Epochs over which the learning rate decays linearly to 0, after which learning stops; None keeps it constant.
    Without a preset: None."""
    clip_range: float
    """rl2, ppo, epopt: Clipping range of the probability ratio, around 1. Without a preset: 0.2.
    promp: Clipping range of the probability ratio after adaptation, around 1. Without a preset: 0.3."""
    value_clip_range: float | None
    """Clipping range of changes of the value, in units of the value; None does not clip. Without a preset: None."""
    value_coeff: float
    """Weight of the squared value error. Without a preset: 0.5."""
    entropy_coeff: float
    """Weight of the entropy bonus. Without a preset: 0.0."""
    target_kl: float | None
    """rl2, ppo, epopt: Stop the epoch early when the KL divergence from its first policy exceeds 1.5 times this.
    Without a preset: None.
    promp: Halve the weight after an epoch whose divergence is below this / 1.5, double it after one above 1.5 times
    this; None keeps it constant. Without a preset: None."""
    discount: float
    """Discount factor in [0, 1]. Without a preset: 0.99."""
    gae_lambda: float
    """rl2, ppo, epopt: Trade-off between bias (0) and variance (1) of the advantages. Without a preset: 0.95.
    maml, promp, dice: Trade-off between bias (0) and variance (1) of the advantages. Without a preset: 1.0."""
    bootstrap_truncated: bool
    """Bootstrap with the value of the last observation of truncated rollouts, instead of with 0. Without a preset:
    True."""
    normalize_advantages: bool
    """rl2, ppo, epopt: Normalize the advantages of each minibatch to mean 0 and deviation 1. Without a preset: True.
    maml, promp, dice: Normalize the advantages of each task to mean 0 and deviation 1. Without a preset: True."""
    normalize_observations: bool
    """rl2, ppo, epopt: Normalize observations to mean 0 and standard deviation 1. Without a preset: True.
    maml, promp, dice: Normalize observations to mean 0 and deviation 1, over all tasks; the statistics are not adapted.
    Without a preset: False.
    cmaes, cem, ars, es, pgpe, snes: Normalize observations by the mean and deviation of all earlier epochs. Without a
    preset: False."""
    normalize_returns: bool
    """Divide rewards by the standard deviation of their discounted sums. Without a preset: True."""
    adam_eps: float
    """Epsilon of Adam, added to the root of the second moment. Without a preset: 1e-05."""

class MAMLOuterChoice(TypedDict, total=False):
    outer: Literal["trpo", "vpg", "emaml"]
    """maml: By a trust region, by the plain policy gradient, or by the latter with credit for the samples before
    adaptation. max_kl, cg_iterations, damping, backtrack_ratio and max_backtracks belong to the first; learning_rate,
    gradient_steps and max_grad_norm to the others. Without a preset: 'trpo'.
    dice: By DICE's estimator as well, or by the plain policy gradient after inner steps with DICE. Without a preset:
    'dice'."""

class TrustRegion(TypedDict, total=False):
    max_kl: float
    """Maximum mean KL divergence of the adapted policies from those that collected the samples. Without a preset:
    0.01."""
    cg_iterations: int
    """Iterations of the conjugate gradient method (Hessian-vector products). Without a preset: 10."""
    damping: float
    """Added to the diagonal of the Hessian. Without a preset: 1e-05."""
    backtrack_ratio: float
    """Factor of the step between two tries of the line search. Without a preset: 0.8."""
    max_backtracks: int
    """Number of tries of the line search; if all fail, no step is taken. Without a preset: 15."""

class Adam(AdamSteps, total=False):
    gradient_steps: int
    """Gradient steps with the samples of one epoch. Without a preset: 1."""

class Inner(RolloutLimit, total=False):
    inner: Literal["ratio", "log-likelihood", "magic-box"] | None
    """Objective of inner steps (see functional.gradients.meta_gradients); None means that of outer. Without a preset:
    None."""
    meta_batch_size: int
    """Tasks per meta-gradient step, drawn in every epoch. Without a preset: 20."""
    rollouts_per_task: int
    """Rollouts per task before each inner step, and after the last. Without a preset: 20."""
    num_inner_steps: int
    """Gradient steps in each task. Without a preset: 1."""
    inner_lr: float
    """Learning rate of the inner steps. Without a preset: 0.1."""
    later_inner_lr: float | None
    """Learning rate of the inner steps after the first, in a test; None means the same. With normalized advantages,
    steps do not shrink by themselves close to an optimum. Without a preset: None."""
    learn_inner_lr: bool
    """Learn an inner learning rate for each parameter (Li et al. 2017, arXiv:1707.09835). Without a preset: False."""
    second_order: bool
    """Whether to differentiate through the inner gradients; otherwise it is first-order MAML. Without a preset:
    True."""
    adapt: Sequence[str]
    """Prefixes of the names of parameters that inner steps change, such as policy.net.layers.2 (see
    policy.parameter_layout().names); none means all. The last layer alone: Raghu et al. 2020, arXiv:1909.09157. Without
    a preset: []."""
    discount: float
    """Discount factor in [0, 1]. Without a preset: 0.99."""
    gae_lambda: float
    """Trade-off between bias (0) and variance (1) of the advantages. Without a preset: 1.0."""
    normalize_advantages: bool
    """Normalize the advantages of each task to mean 0 and deviation 1. Without a preset: True."""
    normalize_observations: bool
    """Normalize observations to mean 0 and deviation 1, over all tasks; the statistics are not adapted. Without a
    preset: False."""

class MAML(Inner, ScaledActions, Evaluated, total=False):
    context_reward_key: str | None
    """Name of an env_info ('sparse_reward') that replaces the reward in inner steps; the outer update uses the reward
    itself. Without a preset: None."""

class TanhNetworks(OwnNetwork, total=False):
    hidden_nonlinearity: Literal["tanh", "relu"]
    """maml, promp, dice, ppo, epopt, cmaes, cem, ars, es, pgpe, snes, hill-climbing: Activation of the hidden layers.
    Without a preset: 'tanh'.
    distill: Activation of the hidden layers of a feed-forward student. Without a preset: 'tanh'.
    dqn, ddpg, td3, sac, discrete-sac, tqc, rsac: Activation of the hidden layers. Without a preset: 'relu'."""

class PolicyNetworks(TanhNetworks, total=False):
    network: Literal["mlp", "gru"]
    """maml, promp, dice, ppo, epopt: Policy without memory (mlp) or with (gru, as wide as the first of hidden_sizes).
    Without a preset: 'mlp'.
    distill: Recurrent or feed-forward student (gru or mlp; the width of gru is the first of hidden_sizes). Without a
    preset: 'gru'."""
    init_std: float
    """Standard deviation of the actions at first, where they lie in [-1, 1]. Without a preset: 1.0."""

class MetaNetworks(PolicyNetworks, total=False):
    init_std: float
    """Standard deviation of the actions at first, where they lie in [-1, 1]. Without a preset: 0.5."""

class MamlOptions(
    Folders, Run, MAMLOuterChoice, TrustRegion, Adam, MAML, MetaNetworks, HeldOutTasks, MetaEvaluation
): ...

class ProMP(Adam, total=False):
    gradient_steps: int
    """Gradient steps with the samples of one epoch. Without a preset: 5."""
    clip_range: float
    """Clipping range of the probability ratio after adaptation, around 1. Without a preset: 0.3."""
    kl_coeff: float
    """Weight of the KL divergence. Without a preset: 0.0005."""
    target_kl: float | None
    """Halve the weight after an epoch whose divergence is below this / 1.5, double it after one above 1.5 times this;
    None keeps it constant. Without a preset: None."""

class PrompOptions(Folders, Run, ProMP, MAML, MetaNetworks, HeldOutTasks, MetaEvaluation): ...

class DICEOuterChoice(TypedDict, total=False):
    outer: Literal["dice", "vpg-dice"]
    """By DICE's estimator as well, or by the plain policy gradient after inner steps with DICE. Without a preset:
    'dice'."""

class DiceOptions(Folders, Run, DICEOuterChoice, Adam, MAML, MetaNetworks, HeldOutTasks, MetaEvaluation): ...

class NewData(AdamSteps, RolloutLimit, total=False):
    steps_per_epoch: int
    """Minimum number of environment steps per epoch; rollouts are completed, so there may be more. Without a preset:
    4000."""
    tasks_per_epoch: int | None
    """Variations drawn per epoch; None means one per full-length rollout that is needed. Without a preset: None."""
    num_passes: int
    """Passes over the data of an epoch. Without a preset: 4."""

class PPOUpdate(NewData, total=False):
    learning_rate: float
    """Learning rate (Adam). Without a preset: 0.0003."""
    max_grad_norm: float | None
    """Maximum gradient norm, over all networks; None does not limit it. Without a preset: 0.5."""
    steps_per_epoch: int
    """ppo: Minimum number of environment steps per epoch; rollouts are completed, so there may be more. Without a
    preset: 2048.
    distill: Minimum number of environment steps per epoch; rollouts are completed, so there may be more. Without a
    preset: 4000."""
    num_passes: int
    """Passes over the data of an epoch. Without a preset: 10."""
    batch_size: int
    """Minibatch size in steps; for recurrent policies, complete rollouts with about that many in total. Without a
    preset: 64."""
    lr_decay_epochs: int | None
    """Epochs over which the learning rate decays linearly to 0, after which learning stops; None keeps it constant.
    Without a preset: None."""
    clip_range: float
    """Clipping range of the probability ratio, around 1. Without a preset: 0.2."""
    value_clip_range: float | None
    """Clipping range of changes of the value, in units of the value; None does not clip. Without a preset: None."""
    value_coeff: float
    """Weight of the squared value error. Without a preset: 0.5."""
    entropy_coeff: float
    """Weight of the entropy bonus. Without a preset: 0.0."""
    target_kl: float | None
    """Stop the epoch early when the KL divergence from its first policy exceeds 1.5 times this. Without a preset:
    None."""
    discount: float
    """Discount factor in [0, 1]. Without a preset: 0.99."""
    gae_lambda: float
    """Trade-off between bias (0) and variance (1) of the advantages. Without a preset: 0.95."""
    bootstrap_truncated: bool
    """Bootstrap with the value of the last observation of truncated rollouts, instead of with 0. Without a preset:
    True."""
    normalize_advantages: bool
    """Normalize the advantages of each minibatch to mean 0 and deviation 1. Without a preset: True."""
    normalize_observations: bool
    """Normalize observations to mean 0 and standard deviation 1. Without a preset: True."""
    normalize_returns: bool
    """Divide rewards by the standard deviation of their discounted sums. Without a preset: True."""
    adam_eps: float
    """Epsilon of Adam, added to the root of the second moment. Without a preset: 1e-05."""

class PPO(PPOUpdate, ScaledActions, Evaluated, total=False):
    domain_params: Sequence[str]
    """Names of domain parameters that the critic, but not the policy, observes (an asymmetric critic). Without a
    preset: []."""
    privileged: bool
    """The policy also observes domain_params (a teacher for distillation); its network must then fit
    metaroll.plugins.widened_spec. Without a preset: False."""
    gradients: Literal["auto", "numpy", "autograd"]
    """By hand in NumPy, by autograd, or (auto) by hand where the networks allow it. Without a preset: 'auto'."""

class DomainRanges(TypedDict, total=False):
    randomize_param: Sequence[str]
    """A domain parameter that is uniform on a range, NAME=LOW:HIGH, as length=0.3:0.7 in CartPole-v1, or
    body_mass:torso=3:10 in MuJoCo; may be given several times, and replaces randomize. Without a preset: []."""
    num_test_tasks: int | None
    """Number of held-out tasks, or of held-out sets of domain parameters (None: 20 of them). Without a preset: None."""

class HeldOutDomains(DomainRanges, total=False):
    randomize: Literal["none", "default", "conservative"]
    """ppo, epopt, cmaes, cem, ars, es, pgpe, snes, dqn, ddpg, td3, sac, discrete-sac, tqc, rsac, hill-climbing: Train
    in, and evaluate on, random domain parameters: those usual for a simulated system, or half as wide. Not for task
    families, which draw their own. Without a preset: 'none'.
    distill: Train in, and evaluate on, random domain parameters of a simulated system (teacher: those that the teacher
    was trained with). Without a preset: 'teacher'."""

class Domains(TrainTasks, HeldOutDomains): ...

class Evaluation(TypedDict, total=False):
    deterministic: bool
    """Act by the deterministic policy. Without a preset: True."""
    return_reward_key: str | None
    """Name of an env_info to sum instead of the reward. Without a preset: None."""
    num_episodes: int
    """Episodes per task. Without a preset: 20."""

class PpoOptions(Folders, Run, PPO, PolicyNetworks, Domains, Evaluation): ...

class EPOpt(TypedDict, total=False):
    epsilon: float
    """epopt: Share of the rollouts to learn from: the worst ones, in (0, 1]. Without a preset: 0.1.
    cmaes, cem, ars, es, pgpe, snes: Fitness is the mean of this share of a candidate's worst returns (CVaR), in (0, 1];
    1 means all. Without a preset: 1.0.
    hill-climbing: Score is the mean of this share of a candidate's worst returns (CVaR), in (0, 1]; 1 means all.
    Without a preset: 1.0."""
    warmup_epochs: int
    """Number of initial epochs that use all rollouts. Without a preset: 100."""
    rollouts_per_epoch: int
    """Number of rollouts per epoch. Without a preset: 100."""
    return_discount: float
    """Discount of the returns that rank the rollouts, in [0, 1]. Without a preset: 1.0."""

class EpoptOptions(
    Folders,
    Run,
    EPOpt,
    AdamSteps,
    RolloutLimit,
    ScaledActions,
    Evaluated,
    PolicyNetworks,
    Domains,
    Evaluation,
    total=False,
):
    learning_rate: float
    """Learning rate (Adam). Without a preset: 0.0003."""
    max_grad_norm: float | None
    """Maximum gradient norm, over all networks; None does not limit it. Without a preset: 0.5."""
    num_passes: int
    """Passes over the data of an epoch. Without a preset: 10."""
    batch_size: int
    """Minibatch size in steps; for recurrent policies, complete rollouts with about that many in total. Without a
    preset: 64."""
    lr_decay_epochs: int | None
    """Epochs over which the learning rate decays linearly to 0, after which learning stops; None keeps it constant.
    Without a preset: None."""
    clip_range: float
    """Clipping range of the probability ratio, around 1. Without a preset: 0.2."""
    value_clip_range: float | None
    """Clipping range of changes of the value, in units of the value; None does not clip. Without a preset: None."""
    value_coeff: float
    """Weight of the squared value error. Without a preset: 0.5."""
    entropy_coeff: float
    """Weight of the entropy bonus. Without a preset: 0.0."""
    target_kl: float | None
    """Stop the epoch early when the KL divergence from its first policy exceeds 1.5 times this. Without a preset:
    None."""
    discount: float
    """Discount factor in [0, 1]. Without a preset: 0.99."""
    gae_lambda: float
    """Trade-off between bias (0) and variance (1) of the advantages. Without a preset: 0.95."""
    bootstrap_truncated: bool
    """Bootstrap with the value of the last observation of truncated rollouts, instead of with 0. Without a preset:
    True."""
    normalize_advantages: bool
    """Normalize the advantages of each minibatch to mean 0 and deviation 1. Without a preset: True."""
    normalize_observations: bool
    """Normalize observations to mean 0 and standard deviation 1. Without a preset: True."""
    normalize_returns: bool
    """Divide rewards by the standard deviation of their discounted sums. Without a preset: True."""
    adam_eps: float
    """Epsilon of Adam, added to the root of the second moment. Without a preset: 1e-05."""
    domain_params: Sequence[str]
    """Names of domain parameters that the critic, but not the policy, observes (an asymmetric critic). Without a
    preset: []."""
    privileged: bool
    """The policy also observes domain_params (a teacher for distillation); its network must then fit
    metaroll.plugins.widened_spec. Without a preset: False."""
    gradients: Literal["auto", "numpy", "autograd"]
    """By hand in NumPy, by autograd, or (auto) by hand where the networks allow it. Without a preset: 'auto'."""

class Distillation(NewData, ScaledActions, Evaluated, total=False):
    max_grad_norm: float | None
    """Maximum gradient norm, over all networks; None does not limit it. Without a preset: 1.0."""
    teacher_epochs: int
    """Number of initial epochs with the teacher as behavior policy. Without a preset: 1."""
    replay_size: int
    """Number of latest steps to learn from, in complete rollouts. Without a preset: 40000."""
    batch_size: int
    """Steps per gradient step, in complete rollouts. Without a preset: 1000."""

class DistilledNetworks(TypedDict, total=False):
    teacher: str | None
    """Folder of the run of the teacher: PPO or EPOpt, which may be privileged. Without a preset: None."""
    network: Literal["gru", "mlp"]
    """Recurrent or feed-forward student (gru or mlp; the width of gru is the first of hidden_sizes). Without a preset:
    'gru'."""
    last_action: bool
    """Whether a recurrent student observes its last action (of a Box), in addition to each observation. Without a
    preset: True."""
    hidden_nonlinearity: Literal["tanh", "relu"]
    """Activation of the hidden layers of a feed-forward student. Without a preset: 'tanh'."""
    init_std: float
    """Standard deviation of the student's actions in training, relative to [-1, 1]. Without a preset: 0.1."""

class TaughtDomains(TrainTasks, DomainRanges, total=False):
    randomize: Literal["teacher", "none", "default", "conservative"]
    """Train in, and evaluate on, random domain parameters of a simulated system (teacher: those that the teacher was
    trained with). Without a preset: 'teacher'."""

class DistillOptions(Folders, Run, Distillation, DistilledNetworks, TaughtDomains, Evaluation): ...

class Search(RolloutLimit, total=False):
    discount: float
    """Discount factor of discounted_return in the log; the search maximizes undiscounted returns. Without a preset:
    1.0."""

class DiscountedSearch(Search, total=False):
    max_steps: int | None
    """Maximum number of steps of a rollout; None means the environment's time limit. Without a preset: 500."""
    discount: float
    """Discount factor of discounted_return in the log; the search maximizes undiscounted returns. Without a preset:
    0.99."""

class CMAES(TypedDict, total=False):
    population: int | None
    """cmaes: Number of candidates per epoch; None means 4 + int(3 ln P) for P parameters. Set by the preset.
    cem: Number of candidates per epoch. Set by the preset.
    es: Number of candidates K per epoch. Without a preset: 16.
    snes: Number of candidates per epoch; None means 4 + int(3 ln P) for P parameters. Without a preset: None.
    hill-climbing: Number of candidates per epoch, besides the mean; None means 4 + int(3 ln P) for P parameters.
    Without a preset: None."""
    init_sigma: float
    """cmaes, cem: Initial standard deviation of the candidates. Without a preset: 1.0.
    pgpe: Initial standard deviation of the candidates. Without a preset: 0.1.
    snes: Initial standard deviation of the candidates. Without a preset: 0.5.
    hill-climbing: Initial standard deviation of the noise, or radius of the sphere. Without a preset: 0.5."""
    separable: bool | None
    """Learn the diagonal of the covariance only; None means above 500 parameters. Without a preset: None."""
    active: bool
    """Also learn from the worse half of the candidates (with bounds, only for a diagonal covariance). Without a preset:
    True."""
    mirrored: bool
    """cmaes, cem, snes: Draw candidates in pairs on both sides of the mean. Without a preset: False.
    es: Draw candidates in pairs on both sides of the mean. Without a preset: True."""
    elitism: bool
    """Evaluate the best candidate so far again in each epoch. Without a preset: False."""
    lower: float | None
    """Lower bound of every parameter; None means none. Without a preset: None."""
    upper: float | None
    """Upper bound of every parameter; None means none. Without a preset: None."""
    restarts: Literal["none", "ipop", "bipop"]
    """Restart a search that has ended: never (none), with twice as many candidates each time (ipop), or with
    alternating large and small populations (bipop). Without a preset: 'none'."""
    max_restarts: int
    """Maximum number of restarts (with large populations). Without a preset: 9."""
    reevaluated: int
    """Number of candidates to evaluate twice, to measure the noise of their ranks. Without a preset: 0."""
    max_repetitions: float
    """Maximum factor of the rollouts per candidate where noise dominates. Without a preset: 1.0."""
    target: float | None
    """Return that ends the training; None means none. Without a preset: None."""

class CMAESLearner(CMAES, DiscountedSearch): ...

class Trials(ScaledActions, Evaluated, total=False):
    evaluate_every: int
    """Evaluate every n epochs; 0 means never. Without a preset: 0."""
    rollouts_per_candidate: int | None
    """Number of rollouts per candidate (and task); None means the batch size of LocalRunner.train. Without a preset:
    None."""
    common_random_numbers: bool
    """Evaluate all candidates from the same initial states, which makes comparisons less noisy. It needs
    rollouts_per_candidate, and does not apply to tasks. Without a preset: True."""
    deterministic: bool
    """Act without noise. Without a preset: True."""
    tasks_per_epoch: int
    """Number of training tasks or random domains to evaluate each candidate in; the same for all candidates of an
    epoch. Without a preset: 1."""
    epsilon: float
    """Fitness is the mean of this share of a candidate's worst returns (CVaR), in (0, 1]; 1 means all. Without a
    preset: 1.0."""
    normalize_observations: bool
    """Normalize observations by the mean and deviation of all earlier epochs. Without a preset: False."""
    mean_epochs: int
    """Epochs over which the mean of the search is averaged for the policy; the search itself is not affected. It helps
    where returns are noisy; 1 means the last mean. Without a preset: 1."""

class Starts(TypedDict, total=False):
    starts: int
    """Number of starts, evaluated in parallel in every epoch until the worse ones are dropped. The first one starts
    from the initial policy. Without a preset: 1."""
    round_length: int
    """Epochs of the first round. Later rounds with fewer starts are longer, so that all have the same number of
    candidates. Without a preset: 20."""
    reduction: int
    """Factor by which the number of starts is reduced after each round, until one is left. Without a preset: 2."""
    start_std: float | None
    """Standard deviation of the other starts around the first one; None means that of its first candidates (or, if all
    parameters have bounds, uniform between them). Without a preset: None."""

class CmaesOptions(Folders, Run, CMAESLearner, Trials, Starts, TanhNetworks, Domains, Evaluation): ...

class CEM(TypedDict, total=False):
    population: int
    """Number of candidates per epoch. Set by the preset."""
    init_sigma: float
    """Initial standard deviation of the candidates. Without a preset: 1.0."""
    best_frac: float
    """Share of the candidates that the distribution is fitted to; their number is rounded down. Without a preset:
    0.05."""
    extra_std: float
    """Initial standard deviation of extra noise, which decays. Without a preset: 1.0."""
    extra_decay_time: float
    """Epochs until the extra noise is 0. Without a preset: 100.0."""
    covariance: Literal["diagonal", "full"]
    """Fit one deviation per parameter (diagonal), or the full covariance matrix (full). Without a preset:
    'diagonal'."""
    mirrored: bool
    """Draw candidates in pairs on both sides of the mean. Without a preset: False."""
    elitism: bool
    """Evaluate the best candidate so far again in each epoch. Without a preset: False."""

class CEMLearner(CEM, DiscountedSearch): ...
class CemOptions(Folders, Run, CEMLearner, Trials, Starts, TanhNetworks, Domains, Evaluation): ...

class ARS(TypedDict, total=False):
    num_directions: int
    """ars: Number of directions N, half of the candidates. Without a preset: 8.
    pgpe: Number of directions, half of the candidates. Without a preset: 8."""
    num_best: int | None
    """Number of directions that move the mean, b; None means all. Without a preset: None."""
    learning_rate: float
    """Step size, alpha. Without a preset: 0.02."""
    sigma: float
    """ars: Standard deviation of the candidates, nu. Without a preset: 0.03.
    es: Standard deviation of the candidates. Without a preset: 0.05."""

class ArsOptions(Folders, Run, ARS, Search, Trials, Starts, TanhNetworks, Domains, Evaluation): ...

class OpenAIES(TypedDict, total=False):
    population: int
    """Number of candidates K per epoch. Without a preset: 16."""
    sigma: float
    """Standard deviation of the candidates. Without a preset: 0.05."""
    learning_rate: float
    """Learning rate (Adam). Without a preset: 0.02."""
    weight_decay: float
    """Decay of the mean toward 0. Without a preset: 0.0."""
    mirrored: bool
    """Draw candidates in pairs on both sides of the mean. Without a preset: True."""
    shaping: Literal["ranks", "utilities", "standardized"]
    """Transformation of the fitness. Without a preset: 'ranks'."""

class EsOptions(Folders, Run, OpenAIES, Search, Trials, Starts, TanhNetworks, Domains, Evaluation): ...

class PGPE(TypedDict, total=False):
    num_directions: int
    """Number of directions, half of the candidates. Without a preset: 8."""
    init_sigma: float
    """Initial standard deviation of the candidates. Without a preset: 0.1."""
    learning_rate: float
    """Learning rate of the mean (Adam). Without a preset: 0.02."""
    sigma_learning_rate: float
    """pgpe: Learning rate of the standard deviations. Without a preset: 0.1.
    snes: Learning rate of the standard deviations; None means (3 + ln P) / (5 sqrt P). Without a preset: None."""
    max_sigma_change: float
    """Maximum relative change of a standard deviation per step. Without a preset: 0.2."""
    shaping: Literal["ranks", "utilities", "standardized"]
    """Transformation of the fitness. Without a preset: 'ranks'."""

class PgpeOptions(Folders, Run, PGPE, Search, Trials, Starts, TanhNetworks, Domains, Evaluation): ...

class SNES(TypedDict, total=False):
    population: int | None
    """Number of candidates per epoch; None means 4 + int(3 ln P) for P parameters. Without a preset: None."""
    init_sigma: float
    """Initial standard deviation of the candidates. Without a preset: 0.5."""
    learning_rate: float
    """Learning rate of the mean. Without a preset: 1.0."""
    sigma_learning_rate: float | None
    """Learning rate of the standard deviations; None means (3 + ln P) / (5 sqrt P). Without a preset: None."""
    mirrored: bool
    """Draw candidates in pairs on both sides of the mean. Without a preset: False."""

class SnesOptions(Folders, Run, SNES, Search, Trials, Starts, TanhNetworks, Domains, Evaluation): ...

class OffPolicy(RolloutLimit, Evaluated, total=False):
    evaluate_every: int
    """Evaluate every n epochs; 0 means never. Without a preset: 1."""
    discount: float
    """Discount factor. Without a preset: 0.99."""
    cycles_per_epoch: int
    """Cycles per epoch; each collects steps, and then takes gradient steps. Without a preset: 20."""
    max_eval_steps: int | None
    """Maximum number of steps of a rollout in evaluations; None means max_steps. Without a preset: None."""
    gradient_steps: int
    """Gradient steps per cycle. Without a preset: 50."""
    batch_size: int
    """Replayed steps per gradient step. Without a preset: 64."""
    warmup_steps: int
    """Environment steps to collect before the first gradient step. Without a preset: 10000."""
    num_envs: int
    """Number of parallel rollouts. Without a preset: 1."""
    reward_scale: float
    """Factor applied to rewards in updates; they are stored unscaled. Without a preset: 1.0."""
    smooth_return: bool
    """Cycles report the average return of all episodes, not just of those of the epoch (as the log does). Without a
    preset: True."""
    update_to_data: float
    """Gradient steps per environment step. Without a preset: 1.0."""
    n_step: int
    """Number of rewards to sum before bootstrapping. Without a preset: 1."""
    replay_size: int
    """Capacity of the replay buffer, in steps. Without a preset: 1000000."""

class ValueUpdate(TypedDict, total=False):
    learning_rate: float
    """Learning rate (Adam). Without a preset: 0.0001."""
    min_learning_rate: float
    """Final learning rate, after lr_decay_steps. Without a preset: 0.0."""
    lr_decay_steps: int | None
    """Gradient steps over which the learning rate decays linearly, so that late updates do not undo earlier ones; None
    keeps it constant. Without a preset: None."""
    double: bool
    """The online network chooses the best next action, the target network evaluates it. Without a preset: True."""
    target_update_steps: int
    """Gradient steps between copies into the target network. Without a preset: 1000."""
    max_grad_norm: float | None
    """Maximum norm of the gradient; None does not limit it. Without a preset: 10.0."""

class Priorities(TypedDict, total=False):
    priority_exponent: float | None
    """Sample steps in proportion to this power of their last TD errors; None samples uniformly. Without a preset:
    None."""
    importance_exponent: float
    """Importance-sampling correction for priorities, from 0 (none) to 1 (full). Without a preset: 0.4."""

class DQN(Priorities, ValueUpdate, OffPolicy, total=False):
    dueling: bool
    """Default policy: dueling network, with a value and advantages. Without a preset: False."""
    max_epsilon: float
    """Initial probability of a random action. Without a preset: 1.0."""
    min_epsilon: float
    """Final probability of a random action. Without a preset: 0.05."""
    epsilon_steps: int
    """Environment steps over which it decays. Without a preset: 10000."""

class ReluNetworks(OwnNetwork, total=False):
    hidden_nonlinearity: Literal["tanh", "relu"]
    """Activation of the hidden layers. Without a preset: 'relu'."""

class Replay(TypedDict, total=False):
    memory_limit: int | None
    """Maximum size of the replay buffer in bytes; None means the memory of this machine. Without a preset: None."""

class GoalReplay(Replay, total=False):
    hindsight_ratio: float
    """Share of replayed steps that get a goal which was reached later in their episode (e.g. 0.8), in an environment
    with goals in its observations and compute_reward(achieved, desired, info). Without a preset: 0.0."""

class DqnOptions(Folders, Run, DQN, ReluNetworks, Domains, GoalReplay, Evaluation): ...

class ActorCriticRates(TypedDict, total=False):
    tau: float
    """Polyak rate of the target networks, per gradient step. Without a preset: 0.005."""
    policy_lr: float
    """Learning rate of the policy (Adam). Without a preset: 0.001."""
    qf_lr: float
    """Learning rate of the critics (Adam). Without a preset: 0.001."""

class RandomFirst(TypedDict, total=False):
    random_steps: int
    """Initial environment steps with uniformly random actions. Without a preset: 0."""

class AddedNoise(RandomFirst, total=False):
    exploration_noise: Literal["gaussian", "ornstein-uhlenbeck"]
    """ddpg: Independent Gaussian noise, or a correlated process. Without a preset: 'ornstein-uhlenbeck'.
    td3: Independent Gaussian noise, or a correlated process. Without a preset: 'gaussian'."""
    exploration_sigma: float
    """ddpg: Standard deviation of that noise, relative to actions in [-1, 1]. Without a preset: 0.2.
    td3: Standard deviation of that noise, relative to actions in [-1, 1]. Without a preset: 0.1."""

class DDPG(AddedNoise, ActorCriticRates, OffPolicy): ...
class DdpgOptions(Folders, Run, DDPG, ReluNetworks, Domains, GoalReplay, Evaluation): ...

class DeterministicUpdate(ActorCriticRates, total=False):
    policy_delay: int
    """Critic steps per step of the policy and the target networks. Without a preset: 2."""
    smoothing_std: float
    """Standard deviation of the noise on target actions, which lie in [-1, 1]. Without a preset: 0.2."""
    smoothing_clip: float
    """Bound of that noise. Without a preset: 0.5."""

class TD3(AddedNoise, DeterministicUpdate, OffPolicy, total=False):
    exploration_noise: Literal["gaussian", "ornstein-uhlenbeck"]
    """Independent Gaussian noise, or a correlated process. Without a preset: 'gaussian'."""
    exploration_sigma: float
    """Standard deviation of that noise, relative to actions in [-1, 1]. Without a preset: 0.1."""

class Td3Options(Folders, Run, TD3, ReluNetworks, Domains, GoalReplay, Evaluation): ...

class SoftUpdate(ActorCriticRates, total=False):
    policy_lr: float
    """Learning rate of the policy (Adam). Without a preset: 0.0003."""
    qf_lr: float
    """Learning rate of the critics (Adam). Without a preset: 0.0003."""
    target_entropy: float | None
    """Target entropy in nats, for actions in [-1, 1] or for choices; None means minus the number of entries of an
    action (0.7 ln n for n choices). Without a preset: None."""
    temperature: float | None
    """Fixed weight of the entropy bonus; None tunes it toward target_entropy. Without a preset: None."""
    init_temperature: float
    """Initial weight of the entropy bonus. Without a preset: 1.0."""
    temperature_lr: float
    """Learning rate of the temperature (Adam). Without a preset: 0.0003."""

class SAC(Priorities, RandomFirst, SoftUpdate, OffPolicy): ...
class SacOptions(Folders, Run, SAC, ReluNetworks, Domains, GoalReplay, Evaluation): ...
class DiscreteSacOptions(Folders, Run, SAC, ReluNetworks, Domains, GoalReplay, Evaluation): ...

class TQC(SAC, total=False):
    num_critics: int
    """Number of critics. Without a preset: 5."""
    num_atoms: int
    """Number of atoms per critic. Without a preset: 25."""
    dropped_atoms: int
    """Atoms per critic to drop from targets: the largest of the pooled atoms. Without a preset: 2."""

class TqcOptions(Folders, Run, TQC, ReluNetworks, Domains, GoalReplay, Evaluation): ...

class RsacOptions(
    Folders, Run, RandomFirst, SoftUpdate, RolloutLimit, Evaluated, Domains, Replay, Evaluation, total=False
):
    evaluate_every: int
    """Evaluate every n epochs; 0 means never. Without a preset: 1."""
    discount: float
    """Discount factor. Without a preset: 0.99."""
    cycles_per_epoch: int
    """Cycles per epoch; each collects steps, and then takes gradient steps. Without a preset: 20."""
    max_eval_steps: int | None
    """Maximum number of steps of a rollout in evaluations; None means max_steps. Without a preset: None."""
    gradient_steps: int
    """Gradient steps per cycle. Without a preset: 50."""
    batch_size: int
    """Replayed steps per gradient step. Without a preset: 64."""
    warmup_steps: int
    """Environment steps to collect before the first gradient step. Without a preset: 10000."""
    num_envs: int
    """Number of parallel rollouts. Without a preset: 1."""
    reward_scale: float
    """Factor applied to rewards in updates; they are stored unscaled. Without a preset: 1.0."""
    smooth_return: bool
    """Cycles report the average return of all episodes, not just of those of the epoch (as the log does). Without a
    preset: True."""
    update_to_data: float
    """Gradient steps per environment step. Without a preset: 1.0."""
    replay_size: int
    """Capacity of the replay buffer, in steps. Without a preset: 1000000."""
    hidden_size: int
    """Width of the hidden state of default policies and critics. Without a preset: 64."""
    segment_length: int
    """Steps of a segment; batch_size must be a multiple of it. Without a preset: 32."""
    burn_in: int
    """Steps before a segment that only warm up the hidden states. Without a preset: 8."""
    hidden_nonlinearity: Literal["tanh", "relu"]
    """Activation of the hidden layers. Without a preset: 'relu'."""

class HillClimb(TypedDict, total=False):
    noise: Literal["normal", "sphere"]
    """Distribution of the candidates: normal (independent noise on each parameter) or sphere (at a fixed distance from
    the mean, in a random direction). Without a preset: 'normal'."""
    population: int | None
    """Number of candidates per epoch, besides the mean; None means 4 + int(3 ln P) for P parameters. Without a preset:
    None."""
    init_sigma: float
    """Initial standard deviation of the noise, or radius of the sphere. Without a preset: 0.5."""
    min_sigma: float
    """Lower bound of it; below, a radius is reset. Without a preset: 0.01."""
    max_sigma: float
    """Upper bound of it; above, a radius is reset. Without a preset: 2.0."""
    sigma_factor: float
    """After a success the standard deviation is divided by the square of this, otherwise multiplied by this. Without a
    preset: 1.05."""
    stop_std: float | None
    """Stop training when the standard deviation of the returns of the last stop_window means is below this; None never
    stops. Without a preset: None."""
    stop_window: int
    """Number of latest means for stop_std. Without a preset: 20."""

class HillClimbing(HillClimb, RolloutLimit, ScaledActions, Evaluated, total=False):
    num_domains: int
    """Number of domains per candidate, for an environment with domain randomization. Without a preset: 1."""
    num_init_states_per_domain: int
    """Number of initial states in each domain. Without a preset: 4."""
    epsilon: float
    """Score is the mean of this share of a candidate's worst returns (CVaR), in (0, 1]; 1 means all. Without a preset:
    1.0."""

class HillClimbingOptions(Folders, Run, HillClimbing, TanhNetworks, HeldOutDomains, Evaluation): ...

@overload
def agent(algo: Literal["pearl"], env: Any, **options: Unpack[PearlOptions]) -> Agent: ...
@overload
def agent(algo: Literal["rl2"], env: Any, **options: Unpack[Rl2Options]) -> Agent: ...
@overload
def agent(algo: Literal["maml"], env: Any, **options: Unpack[MamlOptions]) -> Agent: ...
@overload
def agent(algo: Literal["promp"], env: Any, **options: Unpack[PrompOptions]) -> Agent: ...
@overload
def agent(algo: Literal["dice"], env: Any, **options: Unpack[DiceOptions]) -> Agent: ...
@overload
def agent(algo: Literal["ppo"], env: Any, **options: Unpack[PpoOptions]) -> Agent: ...
@overload
def agent(algo: Literal["epopt"], env: Any, **options: Unpack[EpoptOptions]) -> Agent: ...
@overload
def agent(algo: Literal["distill"], env: Any, **options: Unpack[DistillOptions]) -> Agent: ...
@overload
def agent(algo: Literal["cmaes"], env: Any, **options: Unpack[CmaesOptions]) -> Agent: ...
@overload
def agent(algo: Literal["cem"], env: Any, **options: Unpack[CemOptions]) -> Agent: ...
@overload
def agent(algo: Literal["ars"], env: Any, **options: Unpack[ArsOptions]) -> Agent: ...
@overload
def agent(algo: Literal["es"], env: Any, **options: Unpack[EsOptions]) -> Agent: ...
@overload
def agent(algo: Literal["pgpe"], env: Any, **options: Unpack[PgpeOptions]) -> Agent: ...
@overload
def agent(algo: Literal["snes"], env: Any, **options: Unpack[SnesOptions]) -> Agent: ...
@overload
def agent(algo: Literal["dqn"], env: Any, **options: Unpack[DqnOptions]) -> Agent: ...
@overload
def agent(algo: Literal["ddpg"], env: Any, **options: Unpack[DdpgOptions]) -> Agent: ...
@overload
def agent(algo: Literal["td3"], env: Any, **options: Unpack[Td3Options]) -> Agent: ...
@overload
def agent(algo: Literal["sac"], env: Any, **options: Unpack[SacOptions]) -> Agent: ...
@overload
def agent(algo: Literal["discrete-sac"], env: Any, **options: Unpack[DiscreteSacOptions]) -> Agent: ...
@overload
def agent(algo: Literal["tqc"], env: Any, **options: Unpack[TqcOptions]) -> Agent: ...
@overload
def agent(algo: Literal["rsac"], env: Any, **options: Unpack[RsacOptions]) -> Agent: ...
@overload
def agent(algo: Literal["hill-climbing"], env: Any, **options: Unpack[HillClimbingOptions]) -> Agent: ...
@overload
def agent(
    algo: str | Algorithm | type[Any],
    env: Any,
    *,
    seed: int = 0,
    run_dir: str | Path | None = None,
    tasks: str | Path | None = None,
    **options: Any,
) -> Agent:
    """Create an agent that can learn; networks and values come from the environment's preset, as on the command line.

    Args:
        algo: Name of the algorithm, such as ``ppo`` (``metaroll list`` shows all),  ``"module:attribute"`` of
            one of yours, its ``Algorithm`` itself, or a class of searches.
        env: A Gymnasium id or a built-in name, ``"module:attribute"``, a ``TaskFamily``, an environment (which is
            copied), or a class or function that makes one.
        seed: Seed of everything.
        run_dir: Folder that ``learn`` writes the run to; by default ``runs/ALGO-ENV-SEED``, with a number appended if
            it exists already.
        tasks: Folder of a posterior (``metaroll infer``, ``Posterior.save``): learn in the simulator ``env`` with
            parameters drawn from it.
        options: Options of ``metaroll train ALGO ENV`` with underscores: ``hidden_sizes=(64, 64)``, ``size="small"``.
            ``policy`` is your own network, in place of the hidden layers of the policy: a ``torch.nn.Module``, a
            class or function that makes one from an ``EnvSpec``, or ``"module:attribute"``.

    Raises:
        UnknownNameError: There is no such algorithm, environment or option; the message lists the nearest ones, and
            the equivalents of names from Stable-Baselines3.
        TypeError: ``algo`` or ``run_dir`` is not a string, or an option has another type.
        ValueError: An option has an invalid value, or the algorithm cannot learn in the environment.
    """
