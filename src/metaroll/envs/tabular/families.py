"""Bandits and tables as families of tasks."""

from __future__ import annotations

from metaroll.envs.base.task_family import TaskFamily, register_family
from metaroll.envs.tabular.bandit import BernoulliBanditEnv, TenArmedBanditEnv
from metaroll.envs.tabular.random_mdp import RandomMDPEnv

__all__: list[str] = []

_DRAWN = {
    "bandit-5": (BernoulliBanditEnv, 200, 200, "Bernoulli bandits with 5 arms, 10 pulls"),
    "bandit-10": (TenArmedBanditEnv, 200, 200, "Bernoulli bandits with 10 arms, 10 pulls"),
    "random-mdp": (RandomMDPEnv, 100, 40, "random MDPs with 10 states and 5 actions"),
}

for name, (kind, num_train, num_test, text) in _DRAWN.items():
    register_family(TaskFamily(name, kind, num_train, num_test, 10, text, test_share=0.2))
