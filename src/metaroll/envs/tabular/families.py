"""Bandits and tables as families of tasks."""

from __future__ import annotations

from metaroll.envs.base.task_family import TaskFamily, register_family
from metaroll.envs.tabular.bandit import BernoulliBanditEnv, TenArmedBanditEnv
from metaroll.envs.tabular.random_mdp import RandomMDPEnv

__all__: list[str] = []

_DRAWN = {
    "bandit-5": (BernoulliBanditEnv, 200, 200, 1, "Bernoulli bandits with 5 arms; an episode is a pull"),
    "bandit-10": (TenArmedBanditEnv, 200, 200, 1, "Bernoulli bandits with 10 arms; an episode is a pull"),
    "random-mdp": (RandomMDPEnv, 100, 40, 10, "random MDPs with 10 states and 5 actions"),
}

for name, (kind, num_train, num_test, horizon, text) in _DRAWN.items():
    register_family(TaskFamily(name, kind, num_train, num_test, horizon, text, test_share=0.2))
