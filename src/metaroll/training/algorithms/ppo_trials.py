"""Rows of learners that PPO trains on trials, in freshly drawn tasks, and evaluates in held-out tasks."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from metaroll.config import Config, parts_of
from metaroll.configs.algorithms import TrialSizes
from metaroll.configs.table import FILLED
from metaroll.envs.base.task_family import TaskFamily
from metaroll.envs.lookup.source import EnvSource
from metaroll.envs.wrappers.base import typed_env
from metaroll.envs.wrappers.trials import TrialUpdate, TrialWrapper
from metaroll.learners.base import MetaRLAlgorithm
from metaroll.learners.on_policy.configs import PPOConfig
from metaroll.learners.on_policy.ppo import PPO
from metaroll.policies.acting import ActingPolicy
from metaroll.tasks.split_sampler import SplitTaskSampler
from metaroll.tasks.updates import NewEnvUpdate
from metaroll.training.algorithms import building
from metaroll.training.algorithms.algorithm import Algorithm, Values, Work
from metaroll.training.algorithms.building import BuildOptions
from metaroll.training.algorithms.ppo import FOLLOWS, ppo_batch, ppo_notes, ppo_work
from metaroll.types import EnvSpec, EnvUpdate

__all__ = ["FreshTrials", "TrialParts", "trial_row"]

_COMMON: Values = {"bootstrap_truncated": False, "posterior_sampling": True, "num_prior_episodes": 1}


class FreshTrials:
    """A sampler of trials in training tasks of a family, newly drawn at every call.

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
        """Updates for ``n_tasks`` trials; all randomness comes from ``generator``."""
        family, share = self._family, self._family.test_share
        assert share is not None
        tasks = SplitTaskSampler(family.tasks, "train", share, test_tasks=family.test_tasks, generator=generator)
        return [TrialUpdate(update, *self._limits) for update in tasks.sample(n_tasks, with_replacement)]


@dataclass(frozen=True, kw_only=True)
class TrialParts:
    """The parts of a learner that PPO trains on trials.

    Attributes:
        given: Environment and options.
        spec: Spaces of a trial, and its step limit.
        train: Training trials, a list or ``FreshTrials``.
        test: Held-out tasks, in which every episode is a rollout.
    """

    given: BuildOptions
    spec: EnvSpec
    train: Any
    test: Sequence[EnvUpdate]

    def ppo(self, policy: ActingPolicy, critic: Any) -> PPO:
        """A PPO with these options that trains on these trials; its observations are those of ``policy``."""
        given = self.given
        return PPO(
            policy.env_spec,
            replace(parts_of(PPOConfig, given.values), max_steps=None),  # the trial has its own limit
            policy=policy,
            critic=critic,
            task_sampler=self.train,
            device=given.device,
            **building.common_arguments(given, self.test),
        )

    @property
    def known(self) -> dict[str, Any]:
        """The arguments ``evaluation_env`` and ``train_tasks`` of ``RL2``."""
        tasks = None if isinstance(self.train, FreshTrials) else [update.task for update in self.train]
        return {"evaluation_env": _trials_of(self.given, 1), "train_tasks": tasks}


def trial_row(
    name: str,
    learner: type[MetaRLAlgorithm],
    config: type[Config],
    make: Callable[[TrialParts], MetaRLAlgorithm],
    **more: Any,
) -> Algorithm:
    """The row of a learner that PPO trains on trials, drawn and evaluated like those of RL2.

    Args:
        name: Its name.
        learner: Its class.
        config: Its options, besides those of trials and PPO; one of them is ``trials_per_epoch``.
        make: Makes the learner.
        more: Other attributes of the row. ``common`` and ``presets`` extend the values that all of these learners need:
            no value is bootstrapped at the end of a trial, and evaluations adapt after every episode, as trials do.
    """
    defaults: dict[str, Any] = {
        "configs": (config, TrialSizes, PPOConfig),
        "filled": FILLED["rl2"],
        "adapts": True,
        "work": _work,
        "amount": _amount,
        "sizes": _sizes,
        "tasks": _tasks,
        "environment": _environment,
        "seen_env": _seen_env,
        "seen_hint": (
            f"{name} sees the last action, reward and ending beside the observation: step and roll out "
            "metaroll.wrappers.TrialWrapper(env, 1, max_episode_steps), which adds them"
        ),
        "follows_epochs": FOLLOWS,
        "largest_batch": functools.partial(ppo_batch, _work),
        "notes": functools.partial(ppo_notes, _work),
    }
    more["common"] = {**_COMMON, **more.get("common", {})}
    more["presets"] = {env: {**_COMMON, **values} for env, values in more.get("presets", {}).items()}
    build = functools.partial(_build, make)
    return Algorithm(**{"name": name, "learner": learner, "build": build, **defaults, **more})


def _build(make: Callable[[TrialParts], Any], given: BuildOptions, train: Any, test: Sequence[EnvUpdate]) -> Any:
    env = _environment(given, train)()
    spec = EnvSpec.from_env(env)
    env.close()
    return make(TrialParts(given=given, spec=spec, train=train, test=test))


def _sizes(env: EnvSource) -> Values:
    sizes = building.family_sizes(env)
    if env.family.test_share is not None:
        del sizes["num_train_tasks"]  # each trial draws its own task
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


def _trials_of(given: BuildOptions, episodes: int) -> TrialUpdate:
    """The update that makes trials of the nominal environment."""
    limits = given.values["max_steps"], given.values.get("context_reward_key")
    return TrialUpdate(NewEnvUpdate(given.env.family.env_constructor), episodes, *limits)


def _seen_env(env: Any, config: Values) -> Any:
    if typed_env(env, TrialWrapper) is not None:
        return env
    values = config["algorithm"]
    return TrialWrapper(env, 1, values["max_steps"], values.get("context_reward_key"))


def _work(values: Values) -> Work:
    return ppo_work(values, values["trials_per_epoch"] * values["episodes_per_trial"] * values["max_steps"])


def _amount(algo: Any, values: Values) -> str:
    return f"{values['trials_per_epoch']} trials of {values['episodes_per_trial']} episodes per epoch"
