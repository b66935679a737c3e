"""Pieces of rollouts as garage's paths, what is known of episodes that are cut into them, and how far a run is."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from metaroll.data.rollouts import Rollouts
from metaroll.state import Stateful, parts

__all__ = ["Counts", "RunningEpisodes"]


class RunningEpisodes:
    """Sums over episodes that go on from call to call; one goes on in each of E slots.

    Args:
        num_slots: E; the rollout of number ``n`` runs in slot ``n % E``.
    """

    def __init__(self, num_slots: int) -> None:
        self._num_slots = num_slots
        self._sums: dict[int, tuple[int, float, int, float]] = {}  # slot -> number, return, length, successes

    def paths(self, pieces: Rollouts) -> list[dict[str, Any]]:
        """Each piece as a dict of arrays, which are views.

        ``undiscounted_return``, ``running_length`` and ``success_count`` are of the episode so far, with its earlier
        pieces; ``dones`` says whether it ends here, by its end or a time limit.
        """
        if not len(pieces):
            return []
        numbers, complete = pieces.indices.tolist(), pieces.complete.tolist()
        each = {name: pieces.each(name) for name in ("observations", "actions", "rewards", "terminated", "truncated")}
        infos = [pieces.each(name, {}) for name in ("env_infos", "policy_infos")]
        paths = []
        for i, (number, ends) in enumerate(zip(numbers, complete, strict=True)):
            seen, rewards = each["observations"][i], each["rewards"][i]
            dones = each["terminated"][i] | each["truncated"][i]
            path = {
                "observations": _steps(seen, slice(None, -1)),
                "next_observations": _steps(seen, slice(1, None)),
                "actions": each["actions"][i],
                "rewards": rewards,
                "terminals": each["terminated"][i],
                "dones": dones,
                "env_infos": infos[0][i],
                "agent_infos": infos[1][i],
            }
            path |= self._so_far(number, float(rewards.sum()), len(rewards), _successes(infos[0][i]))
            if ends:
                self._sums.pop(number % self._num_slots)
            paths.append(path)
        return paths

    def _so_far(self, number: int, reward: float, length: int, successes: float) -> dict[str, float]:
        slot = number % self._num_slots
        before = self._sums.get(slot, (number, 0.0, 0, 0.0))
        if before[0] != number:  # the one before was given up half-done
            before = (number, 0.0, 0, 0.0)
        told = (before[1] + reward, before[2] + length, before[3] + successes)
        self._sums[slot] = (number, *told)
        return dict(zip(("undiscounted_return", "running_length", "success_count"), told, strict=True))

    def state_dict(self) -> dict[str, Any]:
        """The sums by slot."""
        return {str(slot): list(sums) for slot, sums in self._sums.items()}

    def load_state_dict(self, tree: Mapping[str, Any]) -> None:
        """Go on where ``state_dict`` was taken."""
        self._sums = {int(s): (int(v[0]), float(v[1]), int(v[2]), float(v[3])) for s, v in tree.items()}


class Counts(Stateful):
    """How far a run is, and the returns of its episodes.

    Attributes:
        cycles, env_steps, gradient_steps: So far.
        cycle: Cycles of this epoch that are over.
        steps_before: Gradient steps before this epoch.
    """

    state_parts = parts("cycles", "env_steps", "gradient_steps", returns="_all")  # at the end of an epoch

    def __init__(self) -> None:
        self.cycles = self.cycle = self.env_steps = self.gradient_steps = self.steps_before = 0
        self._all = (0, 0.0)  # episodes that have ended: number and sum of returns
        self._ended: list[tuple[float, int]] = []  # of this epoch: return and length

    def begin_epoch(self) -> None:
        """Forget the episodes of the epoch before."""
        self._ended, self.steps_before, self.cycle = [], self.gradient_steps, 0

    def end_cycle(self) -> None:
        """Count a cycle."""
        self.cycles, self.cycle = self.cycles + 1, self.cycle + 1

    def note(self, paths: Sequence[Mapping[str, Any]], complete: Sequence[bool]) -> None:
        """Count the episodes that ended with ``paths``."""
        for path, ends in zip(paths, complete, strict=True):
            if ends:
                self._ended.append((path["undiscounted_return"], path["running_length"]))
                self._all = (self._all[0] + 1, self._all[1] + path["undiscounted_return"])

    def average_return(self, smooth: bool) -> float:
        """Average return of all episodes, or (not ``smooth``) those of the epoch; NaN without any."""
        count, total = self._all if smooth else (len(self._ended), sum(told for told, _ in self._ended))
        return total / count if count else math.nan

    @property
    def has_ended(self) -> bool:
        """Whether episodes have ended in this epoch."""
        return bool(self._ended)

    def numbers(self) -> dict[str, float]:
        """What a log tells of the epoch."""
        steps = self.gradient_steps - self.steps_before
        numbers = {"gradient_steps": float(steps), "episodes": float(len(self._ended))}
        if self._ended:
            returns, lengths = zip(*self._ended, strict=True)
            numbers["return"], numbers["episode_length"] = float(np.mean(returns)), float(np.mean(lengths))
        return numbers


def _steps(seen: Any, rows: slice) -> Any:
    if isinstance(seen, Mapping):
        return {name: _steps(value, rows) for name, value in seen.items()}
    return tuple(_steps(value, rows) for value in seen) if isinstance(seen, tuple) else seen[rows]


def _successes(env_infos: Any) -> float:
    told = env_infos.get("success") if isinstance(env_infos, Mapping) else None
    return 0.0 if told is None else float(np.sum(told))
