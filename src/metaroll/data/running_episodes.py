"""Pieces of rollouts as garage's paths, and statistics of the episodes that they are cut from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from metaroll.data.rollouts import Rollouts

__all__ = [
    "RunningEpisodes",
]


class RunningEpisodes:
    """Sums over episodes that continue from call to call; one continues in each of E slots.

    Args:
        num_slots: E; the rollout of number ``n`` runs in slot ``n % E``.
    """

    def __init__(self, num_slots: int) -> None:
        self._num_slots = num_slots
        self._sums: dict[int, tuple[int, float, int, float]] = {}  # slot -> number, return, length, successes

    def paths(self, pieces: Rollouts) -> list[dict[str, Any]]:
        """Each piece as a dict of arrays, which are views.

        ``undiscounted_return``, ``running_length`` and ``success_count`` are of the episode so far, with its earlier
        pieces; ``dones`` marks whether it ends here, by its end or a time limit.
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
        sums = (before[1] + reward, before[2] + length, before[3] + successes)
        self._sums[slot] = (number, *sums)
        return dict(zip(("undiscounted_return", "running_length", "success_count"), sums, strict=True))

    def state_dict(self) -> dict[str, Any]:
        """The sums by slot."""
        return {str(slot): list(sums) for slot, sums in self._sums.items()}

    def load_state_dict(self, tree: Mapping[str, Any]) -> None:
        """Continue where ``state_dict`` was taken."""
        self._sums = {int(s): (int(v[0]), float(v[1]), int(v[2]), float(v[3])) for s, v in tree.items()}


def _steps(seen: Any, rows: slice) -> Any:
    if isinstance(seen, Mapping):
        return {name: _steps(value, rows) for name, value in seen.items()}
    return tuple(_steps(value, rows) for value in seen) if isinstance(seen, tuple) else seen[rows]


def _successes(env_infos: Any) -> float:
    success = env_infos.get("success") if isinstance(env_infos, Mapping) else None
    return 0.0 if success is None else float(np.sum(success))
