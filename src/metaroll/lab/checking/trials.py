"""Rollouts with random actions for checking environments and their tasks; all run on the engine."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np

from metaroll.data.compare import trees_equal
from metaroll.data.space_batches import action_row, flat_actions, flatten_batch, stack_elements, take_rows
from metaroll.data.step_sequence import StepSequence
from metaroll.envs.base.task_family import TaskFamily
from metaroll.policies.parameters import ParameterFreePolicy
from metaroll.rollouts.engine.engine import RolloutEngine
from metaroll.rollouts.single.rollout import rollout
from metaroll.rollouts.workers.pool import SamplerPool
from metaroll.seeding import isolated_rng
from metaroll.types import Context, EnvUpdate, PolicyState, RolloutPlan

__all__ = ["RandomActions", "difference", "distinct", "flat_rows", "play", "play_tasks"]


class RandomActions(ParameterFreePolicy):
    """Plays back sequences of actions drawn beforehand; ``{"recording": k}`` in the context of a plan selects one.

    Args:
        space: Any action space; actions are sampled from all of it.
        seeds: Seed of each sequence.
        num_steps: Length of each sequence.
    """

    def __init__(self, space: gymnasium.Space, seeds: Sequence[int], num_steps: int) -> None:
        own, elements = copy.deepcopy(space), []  # leave the generator of the space itself untouched
        for seed in seeds:
            own.seed(seed)
            elements += [own.sample() for _ in range(num_steps)]
        self.num_recordings, self.num_steps, self._last = len(seeds), num_steps, len(elements) - 1
        self._batch = flat_actions(space, [action_row(space, element) for element in elements])
        self._numbers = flat_rows(space, stack_elements(space, elements, "action"))

    def initial_state(
        self,
        contexts: Sequence[Context | None],
        generators: Sequence[np.random.Generator],
        domain_params: Sequence[Mapping[str, Any] | None] | None = None,
    ) -> PolicyState:
        """Row of the next action, ``{"row": (N,)}``."""
        recordings = [0 if context is None else int(context["recording"]) for context in contexts]
        return {"row": self.num_steps * np.array(recordings, dtype=np.int64)}

    def act(
        self,
        obs: np.ndarray,
        state: PolicyState,
        noise: np.ndarray,
        deterministic: bool | np.ndarray = False,
        parameters: np.ndarray | None = None,
    ) -> tuple[Any, PolicyState, dict[str, np.ndarray]]:
        """See ``types.Policy.act``; without infos."""
        rows = state["row"]
        return take_rows(self._batch, np.minimum(rows, self._last)), {"row": rows + 1}, {}

    def numbers(self, recording: int, length: int) -> np.ndarray:
        """The first ``length`` actions as rows of numbers ``(T, A)``, without columns if they are not numeric."""
        first = recording * self.num_steps
        return np.zeros((length, 0)) if self._numbers is None else self._numbers[first : first + length]


def play(env: Any, policy: RandomActions, seed: int) -> StepSequence:
    """One rollout in ``env`` itself, which stays open.

    Args:
        env: Any environment of the Gymnasium API.
        policy: The behavior policy, with its first recording.
        seed: Seed of the reset.
    """
    return rollout(env, policy, max_steps=policy.num_steps, seed=seed, no_close=True)


def play_tasks(
    family: TaskFamily,
    updates: Sequence[EnvUpdate],
    policy: RandomActions,
    seed: int,
    *,
    num_rollouts: int | None = None,
    same_seeds: bool = True,
    pool: SamplerPool | None = None,
) -> list[list[StepSequence]]:
    """Rollouts in each task, in one environment whose task is changed as in training.

    Args:
        family: Makes the environment.
        updates: The tasks.
        policy: The behavior policy: recording ``i`` in rollout ``i`` of every task (cycling through the recordings).
        seed: Seed of resets.
        num_rollouts: Number of rollouts per task; ``None`` means one per recording.
        same_seeds: Rollout ``i`` has the same seed in all tasks.
        pool: Workers to run them; ``None`` means this process.
    """
    num_rollouts = policy.num_recordings if num_rollouts is None else num_rollouts
    plans = [
        RolloutPlan(
            k * num_rollouts + i,
            (seed, 0 if same_seeds else k, i),
            env_update=update,
            max_steps=policy.num_steps,
            context={"recording": np.array(i % policy.num_recordings)},
        )
        for k, update in enumerate(updates)
        for i in range(num_rollouts)
    ]
    with (
        isolated_rng(seed),
        RolloutEngine(family.env_constructor, policy, pool=pool, transport="serial", slots_per_unit=1) as engine,
    ):
        rollouts = list(engine.run(plans))
    return [rollouts[k : k + num_rollouts] for k in range(0, len(plans), num_rollouts)]


def difference(a: StepSequence, b: StepSequence) -> str | None:
    """The first difference of two rollouts, in words; ``None`` if observations, rewards and ends are bitwise equal."""
    for name in ("observations", "rewards", "terminated", "truncated"):
        if not trees_equal(getattr(a, name), getattr(b, name)):
            break
    else:
        return None
    shorter = min(len(a), len(b))
    for step in range(shorter + 1):
        if not trees_equal(take_rows(a.observations, [step]), take_rows(b.observations, [step])):
            return "at the reset" if step == 0 else f"after step {step}"
        if step < shorter and a.rewards[step] != b.rewards[step]:
            return f"in the reward of step {step + 1}"
    return f"after step {shorter}"


def distinct(rollouts: Sequence[StepSequence]) -> int:
    """Number of different rollouts."""
    kinds: list[StepSequence] = []
    for sequence in rollouts:
        if all(difference(sequence, kind) for kind in kinds):
            kinds.append(sequence)
    return len(kinds)


def flat_rows(space: gymnasium.Space, batch: Any) -> np.ndarray | None:
    """A batch of a space as rows of numbers ``(N, D)``; ``None`` for spaces without a fixed number of them."""
    return flatten_batch(space, batch).astype(np.float64) if space.is_np_flattenable else None
