"""VariBAD as a plug-in: a policy conditioned on observations and a belief about the task.

Zintgraf et al. 2020, arXiv:1910.08348. A recurrent encoder maps the history of a trial to a Gaussian belief over a
latent; a decoder predicts the rewards of the whole trial, past and future, from samples of it. Both are trained on the
evidence lower bound (ELBO) only. The policy has no memory of its own, and is trained by PPO.

    metaroll train varibad:VARIBAD point-robot
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
import torch
from gymnasium.spaces import Box
from torch import Tensor, nn

from metaroll import PPO, EnvSpec, MetaRLAlgorithm
from metaroll.plugins import (
    API,
    MLP,
    ActingPolicy,
    Config,
    Count,
    DiagonalGaussian,
    EpochLearner,
    PolicyState,
    Positive,
    Progress,
    Rollouts,
    Runner,
    Stateful,
    Trained,
    TrialMemoryPolicy,
    TrialParts,
    TrialSizes,
    Weight,
    Whole,
    derive_seed,
    entries_told,
    make_policy,
    network_generator,
    padded_trials,
    parts,
    parts_of,
    remember_trials,
    torch_generator,
    trial_metrics,
    trial_row,
    widened_spec,
)
from metaroll.policies import GRUGaussianPolicy

__all__ = ["VARIBAD", "BeliefPolicy", "VariBAD", "VariBADConfig", "decoder_data"]


@dataclass(frozen=True, kw_only=True)
class VariBADConfig(Config):
    """Settings of ``VariBAD``, beside those of its PPO."""

    trials_per_epoch: Annotated[Whole, "Trials that are collected per epoch, each in a task of its own."] = 40
    latent_size: Annotated[Whole, "Numbers that stand for a task."] = 5
    encoder_size: Annotated[Whole, "Width of the encoder's memory."] = 64
    decoder_sizes: Annotated[tuple[Whole, ...], "Hidden layers of the decoder."] = (32, 32)
    elbo_lr: Annotated[Positive, "Learning rate of encoder and decoder (Adam)."] = 1e-3
    elbo_steps: Annotated[Count, "Gradient steps of encoder and decoder per epoch."] = 12
    elbo_trials: Annotated[Whole, "Trials per gradient step, sampled from the latest ones."] = 25
    elbo_terms: Annotated[Whole, "Steps of each trial whose beliefs enter the ELBO."] = 8
    kl_weight: Annotated[Weight, "Weight of the KL divergence between successive beliefs."] = 0.1
    kept_trials: Annotated[Whole, "Number of latest trials kept to train encoder and decoder."] = 2000


def beliefs_along(belief: GRUGaussianPolicy, trials: Tensor) -> Tensor:
    """Beliefs ``(N, T, 2 L)`` about N trials ``(N, T, D)`` after each observation: mean and ``log_std``."""
    return belief.head(belief.cell.sequence(trials))


class BeliefPolicy(ActingPolicy):
    """``policy`` on observation and belief, as a policy of a ``TrialWrapper``.

    Args:
        belief: The encoder, whose memory is the state, and whose action without noise is the belief.
        policy: Acts on the belief and the observation without last action, reward and ending.
    """

    def __init__(self, belief: GRUGaussianPolicy, policy: ActingPolicy) -> None:
        spec = EnvSpec(belief.env_spec.observation_space, policy.env_spec.action_space)
        info = replace(policy.info, recurrent=True, parameter_blocks=False, parameter_columns=False)
        super().__init__(spec, info)
        self.num_told = entries_told(spec)
        self.belief, self.policy = belief, policy
        self.num_inferring = belief.parameter_layout().size
        self.own_parameters = tuple(f"belief.{name}" for name in belief.acting_parameter_names())

    def initial_state(self, contexts: Any, generators: Any, domain_params: Any = None) -> PolicyState:
        """The memory of the encoder."""
        return self.belief.initial_state(contexts, generators, domain_params)

    def act(
        self,
        obs: np.ndarray,
        state: PolicyState,
        noise: np.ndarray,
        deterministic: bool | np.ndarray = False,
        parameters: np.ndarray | None = None,
    ) -> tuple[np.ndarray, PolicyState, Mapping[str, np.ndarray]]:
        """See ``types.Policy.act``; infos are those of ``policy``."""
        of_belief = of_policy = None
        if parameters is not None:  # the encoder's come first
            of_belief, of_policy = parameters[..., : self.num_inferring], parameters[..., self.num_inferring :]
        belief, next_state, _ = self.belief.act(obs, state, noise, True, of_belief)
        inputs = np.concatenate([obs[:, : -self.num_told], belief], axis=1, dtype=np.float32)
        action, _, infos = self.policy.act(inputs, {}, noise, deterministic, of_policy)
        return action, next_state, infos


def decoder_data(trials: Tensor, num_told: int) -> tuple[Tensor, Tensor]:
    """Observation and action of each step, ``(N, T, ...)``, and its reward ``(N, T)``: the data of the decoder.

    Args:
        trials: Observations of trials ``(N, T + 1, D)``.
        num_told: Number of trailing entries for last action, reward and ending.
    """
    following = trials[:, 1:, -num_told:]
    return torch.cat((trials[:, :-1, :-num_told], following[..., :-2]), dim=-1), following[..., -2]


class VariBAD(Stateful, EpochLearner, MetaRLAlgorithm):
    """Variational Bayes-adaptive deep RL (Zintgraf et al. 2020).

    Adaptation is the update of the encoder's memory, as in ``RL2``.

    Args:
        learner: A PPO whose policy takes observation and belief.
        belief: The encoder.
        decoder: Predicts a reward from latent, observation and action, concatenated.
        config: Settings.
        evaluation_env: Makes the evaluation environment, in which one episode is a rollout.
        train_tasks: Training tasks; ``None`` if they are sampled from a distribution.
    """

    adapts_again = True

    state_parts = parts("learner", "trained", "draws")

    def __init__(
        self,
        learner: PPO,
        belief: GRUGaussianPolicy,
        decoder: MLP,
        config: VariBADConfig,
        *,
        evaluation_env: Any = None,
        train_tasks: Sequence[Any] | None = None,
    ) -> None:
        self.learner, self.belief, self.decoder, self.config = learner, belief, decoder, config
        self.policy = BeliefPolicy(belief, learner.policy)
        self.env_spec, self.num_told = self.policy.env_spec, self.policy.num_told
        self.discount, self.max_path_length = learner.discount, learner.max_path_length
        self.evaluate_every, self.test_env_sampler = learner.evaluate_every, learner.test_env_sampler
        self.evaluation_env, self.train_tasks = evaluation_env, train_tasks
        self.model = nn.ModuleList((belief, decoder))
        self.trained = Trained({"model": self.model}, {"model": config.elbo_lr}, torch.device("cpu"))
        self.draws = torch_generator(derive_seed("varibad", learner.seed))
        self.kept = np.zeros((0, self.max_path_length + 1, self.env_spec.obs_dim), dtype=np.float32)
        self.kept_lengths = np.zeros(0, dtype=np.int64)

    def collect(self, runner: Runner) -> Rollouts:
        """The trials of one epoch."""
        return self.learner.collect(runner, self.config.trials_per_epoch)

    def update(self, rollouts: Any, progress: Progress | None = None) -> dict[str, float]:
        """Update the policy with PPO on the beliefs it acted on, then encoder and decoder."""
        trials = Rollouts.of(rollouts)
        rows, lengths = padded_trials(trials, self.max_path_length)
        numbers = self.learner.update(self.with_beliefs(trials, rows, lengths), progress)
        self.kept = np.concatenate((self.kept, rows))[-self.config.kept_trials :]
        self.kept_lengths = np.concatenate((self.kept_lengths, lengths))[-self.config.kept_trials :]
        return {**numbers, **trial_metrics(trials), **self.improve_beliefs()}

    @torch.no_grad()
    def with_beliefs(self, trials: Rollouts, rows: np.ndarray, lengths: np.ndarray) -> Rollouts:
        """The trials with the policy's inputs as observations; PPO's gradient does not reach the encoder."""
        beliefs = beliefs_along(self.belief, torch.as_tensor(rows)).numpy()
        inputs = np.concatenate((rows[..., : -self.num_told], beliefs), axis=-1)
        return trials.with_column("observations", inputs[np.arange(rows.shape[1]) <= lengths[:, None]])

    def improve_beliefs(self) -> dict[str, float]:
        """Gradient steps of encoder and decoder on the ELBO; averages of its terms."""
        terms = [torch.zeros(2)]
        for _ in range(self.config.elbo_steps):
            indices = torch.randint(len(self.kept), (self.config.elbo_trials,), generator=self.draws).numpy()
            trials, lengths = torch.as_tensor(self.kept[indices]), torch.as_tensor(self.kept_lengths[indices])
            errors, divergence = (part.mean() for part in self.elbo_terms(trials, lengths))
            # -ELBO: E_q[sum_k (r_k - r(m, s_k, a_k))^2] + kl_weight KL(q_t || q_{t-1}), mean over (N, E)
            self.trained.step("model", errors + self.config.kl_weight * divergence)
            terms.append(torch.stack((errors, divergence)).detach())
        errors, divergence = torch.stack(terms).sum(dim=0) / max(1, len(terms) - 1)
        return {"reward_error": float(errors), "belief_kl": float(divergence)}

    def elbo_terms(self, trials: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Terms of the ELBO, ``sum_k (r_k - r(m, s_k, a_k))^2`` and ``KL(q_t || q_{t-1})``, both ``(N, E)``.

        Zintgraf et al. 2020, equations 8 to 10, for E random steps t of each trial, and all its steps k: m is sampled
        from the belief q_t, and the prior of each belief is the previous one, that of the first ``N(0, 1)``.

        Args:
            trials: Observations ``(N, T + 1, D)``.
            lengths: Steps of each trial, ``(N,)``.
        """
        # Beliefs q_t and priors q_{t-1}, with mean and log_std 0 for the first: (N, T + 1, 2 L)
        beliefs = beliefs_along(self.belief, trials)
        priors = torch.cat((torch.zeros_like(beliefs[:, :1]), beliefs[:, :-1]), dim=1)
        # E steps t per trial, uniform in 0 ... length, and their q_t and q_{t-1}, (N, E, L)
        shape = (len(trials), self.config.elbo_terms)
        t = (torch.rand(shape, generator=self.draws) * (lengths[:, None] + 1)).long()
        places = t[..., None].expand(-1, -1, beliefs.shape[-1])
        posterior, prior = (DiagonalGaussian(*each.gather(1, places).chunk(2, dim=-1)) for each in (beliefs, priors))
        # Reparameterized samples m = mean + std noise, (N, E, L)
        noise = torch.randn(posterior.mean.shape, generator=self.draws)
        latents = posterior.mean + posterior.log_std.exp() * noise
        steps, rewards = decoder_data(trials, self.num_told)
        grid = (-1, shape[1], steps.shape[1], -1)  # all pairs of a sample and a step, (N, E, T, ...)
        rows = torch.cat((latents[:, :, None].expand(*grid), steps[:, None].expand(*grid)), dim=-1)
        # Squared reward errors (r_k - r(m, s_k, a_k))^2, 0 at padding, (N, E, T)
        mask = torch.arange(steps.shape[1]) < lengths[:, None]
        errors = (self.decoder(rows)[..., 0] - rewards[:, None]).square() * mask[:, None]
        return errors.sum(dim=-1), posterior.kl(prior)

    def get_exploration_policy(self) -> TrialMemoryPolicy:
        """A copy of the policy with an empty memory."""
        return TrialMemoryPolicy(copy.deepcopy(self.policy), self.num_told)

    def adapt_policy(self, exploration_policy: Any, exploration_trajectories: Any) -> TrialMemoryPolicy:
        """The policy with the belief after the trajectories."""
        return self.adapt_policies([exploration_policy], [exploration_trajectories])[0]

    def adapt_policies(self, policies: Sequence[Any], batches: Sequence[Any]) -> list[Any]:
        """See ``MetaRLAlgorithm``."""
        return remember_trials(policies, batches)

    def fingerprint(self) -> str:
        """A snapshot fits a VariBAD with the same one."""
        return f"{self.learner.fingerprint()} {self.config!r} {self.trained.shapes()}"

    def buffers_state_dict(self, copy: bool = True) -> dict[str, Any]:
        """The latest trials (replaced, never modified in place)."""
        return {"trials": self.kept, "lengths": self.kept_lengths}

    def load_buffers_state_dict(self, tree: Mapping[str, Any]) -> None:
        """Restore ``buffers_state_dict``."""
        self.kept, self.kept_lengths = np.array(tree["trials"]), np.array(tree["lengths"])


def build(trial: TrialParts) -> VariBAD:
    """Networks and learner."""
    given, spec, config = trial.given, trial.spec, parts_of(VariBADConfig, trial.given.values)
    generator = network_generator(given)
    latent = Box(-np.inf, np.inf, (2 * config.latent_size,), np.float32)  # mean and log_std of a belief
    inferring = EnvSpec(spec.observation_space, latent)
    belief = GRUGaussianPolicy(inferring, config.encoder_size, learn_std=False, generator=generator)
    policy_spec = widened_spec(spec, 2 * config.latent_size - entries_told(spec))
    init_std = parts_of(TrialSizes, given.values).init_std
    policy = make_policy(policy_spec, given, "mlp", "tanh", generator, init_std=init_std)
    critic = MLP(policy_spec.obs_dim, 1, given.hidden_sizes, "tanh", init=given.init, generator=generator)
    width = config.latent_size + spec.obs_dim - 2  # latent, observation, action
    decoder = MLP(width, 1, config.decoder_sizes, "relu", generator=generator)
    return VariBAD(trial.ppo(policy, critic), belief, decoder, config, **trial.known)


COMMON = {
    "hidden_sizes": (64, 64),
    "init": "orthogonal",
    "epochs": 240,
    "episodes_per_trial": 3,
    "num_passes": 8,
    "batch_size": 200,
    "learning_rate": 1e-3,
    "discount": 0.95,
    "gae_lambda": 0.9,
    "num_adaptation_episodes": 2,
}
PULLS = {
    **COMMON,
    **{"epochs": 60, "episodes_per_trial": 10, "trials_per_epoch": 500, "num_adaptation_episodes": 9},
    **{"num_passes": 5, "batch_size": 250, "learning_rate": 2e-3, "discount": 1.0, "gae_lambda": 0.95},
    **{"latent_size": 10, "elbo_lr": 3e-3, "elbo_steps": 30, "elbo_trials": 64, "elbo_terms": 5, "kl_weight": 0.05},
}
VARIBAD = trial_row(
    "varibad",
    VariBAD,
    VariBADConfig,
    build,
    api=API,
    purpose="adapts to the tasks of a family by a belief that is inferred, trained by PPO",
    common=COMMON,
    presets={"bandit-5": PULLS, "bandit-10": PULLS, "point-robot": {**COMMON, "init_std": 0.5}},
)
