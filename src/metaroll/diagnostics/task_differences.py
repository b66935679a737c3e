"""Do the tasks of a family differ at all? A few steps in a few of them, before hours of training in them."""

from __future__ import annotations

import contextlib
import warnings

from metaroll.diagnostics.trials import Trial, close_env, play, random_actions
from metaroll.envs.base.task_family import TaskFamily
from metaroll.seeding import derive_seed, isolated_rng
from metaroll.types import EnvUpdate

__all__ = ["tasks_do_not_differ"]

_TASKS, _STEPS = 3, 30


def tasks_do_not_differ(family: TaskFamily, seed: int = 0) -> str | None:
    """In words, that a few tasks give the same rollout; ``None`` where they differ, or cannot be compared.

    Rollouts have the same seed and the same random actions, each in a new environment. Tasks whose reward is sparse may
    differ all the same.

    Args:
        family: The tasks.
        seed: Of tasks, resets and actions.
    """
    num_steps = min(family.horizon or _STEPS, _STEPS)
    trials: list[Trial] = []
    updates: list[EnvUpdate] = []
    with isolated_rng(seed), warnings.catch_warnings(), contextlib.suppress(Exception):  # training tells of errors
        warnings.simplefilter("ignore")
        held_out = 0 if family.same_tasks else min(1, family.num_test_tasks)
        train, test = family.split(min(_TASKS - held_out, family.num_train_tasks), held_out, seed)
        updates = [*train, *test]
        for update in updates:
            env = update(None)
            try:
                actions = random_actions(env.action_space, num_steps, derive_seed("differ", seed))
                trials.append(play(env, derive_seed("differ", seed), actions))
            finally:
                close_env(env)
    if len(trials) < len(updates) or len(trials) < 2 or not all(trial.same_as(trials[0]) for trial in trials[1:]):
        return None
    steps = len(trials[0].rewards)
    return (
        f"{len(trials)} tasks give the same observations and rewards in {steps} step{'s' * (steps != 1)} of random "
        "actions. Setting a task changes nothing, or the reward is so sparse that this did not show it"
    )
