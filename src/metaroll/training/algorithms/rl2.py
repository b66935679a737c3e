"""The row of RL2: its recurrent networks."""

from __future__ import annotations

from metaroll.config import parts_of
from metaroll.configs.algorithms import TrialSizes
from metaroll.learners.on_policy.configs import RL2Config
from metaroll.learners.on_policy.rl2 import RL2
from metaroll.policies.gru import GRUCritic
from metaroll.training.algorithms import building
from metaroll.training.algorithms.ppo_trials import TrialParts, trial_row

__all__ = ["ROWS"]


def _make(trial: TrialParts) -> RL2:
    given, spec = trial.given, trial.spec
    generator, std = building.network_generator(given), parts_of(TrialSizes, given.values).init_std
    policy = building.make_policy(spec, given, "gru", "tanh", generator, init_std=std)
    critic = GRUCritic(spec.obs_dim, given.hidden_sizes[0], init=given.init, generator=generator)
    return RL2(trial.ppo(policy, critic), parts_of(RL2Config, given.values), **trial.known)


ROWS = {"rl2": trial_row("rl2", RL2, RL2Config, _make)}
"""The algorithm by name."""
