"""RL2 by name: its networks with memory, trials in tasks that are drawn anew, and held-out tasks."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from metaroll.config import parts_of
from metaroll.configs.algorithms import TrialSizes
from metaroll.configs.table import CONFIGS
from metaroll.envs.base.task_family import TaskFamily
from metaroll.envs.lookup.source import EnvSource
from metaroll.envs.wrappers.base import typed_env
from metaroll.envs.wrappers.trials import TrialUpdate, TrialWrapper
from metaroll.learners.on_policy.configs import PPOConfig, RL2Config
from metaroll.learners.on_policy.ppo import PPO
from metaroll.learners.on_policy.rl2 import RL2
from metaroll.policies.gru import GRUCritic
from metaroll.tasks.split_sampler import SplitTaskSampler
from metaroll.tasks.updates import NewEnvUpdate
from metaroll.training.algorithms import building
from metaroll.training.algorithms.algorithm import Algorithm, Values, Work
from metaroll.training.algorithms.building import BuildOptions
from metaroll.training.algorithms.ppo import FOLLOWS, ppo_batch, ppo_notes, ppo_work
from metaroll.types import EnvSpec, EnvUpdate

__all__ = ["ROWS", "FreshTrials"]


class FreshTrials:
    """Draws trials in training tasks of a family, new ones at every call.

    Args:
        family: The family.
        episodes_per_trial, max_episode_steps, reward_key: See ``TrialWrapper``.
    """

    def __init__(
        self,
        family: TaskFamily,
        episodes_per_trial: int,
        max_episode_steps: int | None,
        reward_key: str | None = None,
    ) -> None:
        self._family, self._limits = family, (episodes_per_trial, max_episode_steps, reward_key)

    def sample(self, n_tasks: int, with_replacement: bool = True, *, generator: np.random.Generator) -> list[EnvUpdate]:
        """Updates for ``n_tasks`` trials, drawn by ``generator`` alone."""
        family, share = self._family, self._family.test_share
        assert share is not None
        tasks = SplitTaskSampler(family.tasks, "train", share, test_tasks=family.test_tasks, generator=generator)
        return [TrialUpdate(update, *self._limits) for update in tasks.sample(n_tasks, with_replacement)]


def _sizes(env: EnvSource) -> Values:
    sizes = building.family_sizes(env)
    if env.family.test_share is not None:
        del sizes["num_train_tasks"]  # as many as there are trials
    return sizes


def _tasks(given: BuildOptions, num_test: int | None = None) -> tuple[Any, list[EnvUpdate]]:
    family, sizes = given.env.family, parts_of(TrialSizes, given.values)
    held_out = sizes.num_test_tasks if num_test is None else num_test
    drawn = sizes.num_train_tasks is None and family.test_share is not None
    train, test = given.split(0 if drawn else sizes.num_train_tasks, held_out)
    limits = sizes.episodes_per_trial, sizes.max_steps, sizes.context_reward_key
    trials: Any = [TrialUpdate(update, *limits) for update in train]
    if drawn:
        trials = FreshTrials(family, *limits)
    return trials, [TrialUpdate(update, 1, *limits[1:]) for update in test]


def _environment(given: BuildOptions, train: Any) -> TrialUpdate:
    return _trials_of(given, parts_of(TrialSizes, given.values).episodes_per_trial)


def _build(given: BuildOptions, train: Any, test: Sequence[EnvUpdate]) -> RL2:
    sizes = parts_of(TrialSizes, given.values)
    env = _environment(given, train)()
    spec = EnvSpec.from_env(env)
    env.close()
    generator = building.network_generator(given)
    policy = building.make_policy(spec, given, "gru", "tanh", generator, init_std=sizes.init_std)
    critic = GRUCritic(spec.obs_dim, given.hidden_sizes[0], init=given.init, generator=generator)
    config = replace(parts_of(PPOConfig, given.values), max_steps=None)  # that of a trial
    learner = PPO(
        spec,
        config,
        policy=policy,
        critic=critic,
        task_sampler=train,
        device=given.device,
        **building.common_arguments(given, test),
    )
    own = parts_of(RL2Config, given.values)
    tasks = None if isinstance(train, FreshTrials) else [update.task for update in train]
    return RL2(learner, own, evaluation_env=_trials_of(given, 1), train_tasks=tasks)


def _seen_env(env: Any, config: Values) -> Any:
    if typed_env(env, TrialWrapper) is not None:
        return env
    values = config["algorithm"]
    return TrialWrapper(env, 1, values["max_steps"], values.get("context_reward_key"))


def _work(values: Values) -> Work:
    return ppo_work(values, values["trials_per_epoch"] * values["episodes_per_trial"] * values["max_steps"])


def _amount(algo: RL2, values: Values) -> str:
    return f"{values['trials_per_epoch']} trials of {values['episodes_per_trial']} episodes per epoch"


def _trials_of(given: BuildOptions, episodes: int) -> TrialUpdate:
    """What makes trials of the nominal environment."""
    limits = given.values["max_steps"], given.values.get("context_reward_key")
    return TrialUpdate(NewEnvUpdate(given.env.family.env_constructor), episodes, *limits)


ROWS = {
    "rl2": Algorithm(
        name="rl2",
        configs=CONFIGS["rl2"],
        learner=RL2,
        adapts=True,
        build=_build,
        work=_work,
        amount=_amount,
        sizes=_sizes,
        tasks=_tasks,
        environment=_environment,
        seen_env=_seen_env,
        seen_hint=(
            "rl2 sees the last action, reward and ending beside the observation: step and roll out "
            "metaroll.TrialWrapper(env, 1, max_episode_steps), which adds them"
        ),
        follows_epochs=FOLLOWS,
        largest_batch=functools.partial(ppo_batch, _work),
        notes=functools.partial(ppo_notes, _work),
    )
}
"""The algorithm by name."""
