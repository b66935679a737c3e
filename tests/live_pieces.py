"""Pieces as live collection returns them, made up: every observation has a number of its own."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from metaroll.data.rollouts import RolloutColumns, Rollouts
from metaroll.types import RolloutPlan


class Step(NamedTuple):
    """A transition."""

    observation: float
    action: float
    reward: float
    next_observation: float
    terminated: bool
    goes_on: bool


class LivePieces:
    """Slots of rollouts of random lengths and endings, advanced as ``Collection.advance`` does.

    Args:
        num_slots: E.
        generator: What draws.
        longest: Longest rollout.
    """

    def __init__(self, num_slots: int, generator: np.random.Generator, longest: int = 6) -> None:
        self.num_slots, self.generator, self.longest = num_slots, generator, longest
        self.plans = list(range(num_slots))
        self.steps = [0] * num_slots
        self.lengths = [int(generator.integers(1, longest + 1)) for _ in range(num_slots)]
        self.seen = [self._next() for _ in range(num_slots)]
        # What a naive memory holds of each slot: observations, and the step from each (none: a final observation).
        self.rows: list[list[Any]] = [[[seen, None]] for seen in self.seen]

    _count = 0

    def _next(self) -> float:
        self._count += 1
        return float(self._count)

    def advance(self, count: int) -> Rollouts:
        pieces = []
        for slot in range(self.num_slots):
            left = count
            while left:
                taken = min(left, self.lengths[slot] - self.steps[slot])
                pieces.append(self._piece(slot, taken))
                left -= taken
        pieces.sort(key=lambda piece: piece[0])
        names = ("observations", "actions", "rewards")
        fields = {name: np.concatenate([piece[1][name] for piece in pieces]) for name in names}
        bounds = np.cumsum([0, *(len(piece[1]["rewards"]) for piece in pieces)])
        flags = [np.concatenate([piece[1][name] for piece in pieces]) for name in ("terminated", "truncated")]
        return Rollouts(
            [
                RolloutColumns(
                    fields,
                    *flags,
                    bounds,
                    np.array([piece[2] for piece in pieces]),
                    [{}] * len(pieces),
                    plans=[RolloutPlan(index=piece[0], seed=(0, 0, piece[0]), max_steps=9) for piece in pieces],
                    firsts=np.array([piece[3] for piece in pieces]),
                )
            ]
        )

    def _piece(self, slot: int, count: int) -> tuple[int, dict[str, np.ndarray], bool, int]:
        plan, first = self.plans[slot], self.steps[slot]
        ends = first + count == self.lengths[slot]
        terminates = ends and bool(self.generator.integers(2))
        observations, actions, rewards = [self.seen[slot]], [], []
        for i in range(count):
            observations.append(self._next())
            actions.append(observations[-2] / 2)
            rewards.append(float(self.generator.integers(-3, 4)))
            last = i == count - 1
            self.rows[slot][-1][1] = Step(
                observations[-2], actions[-1], rewards[-1], observations[-1], last and terminates, not (last and ends)
            )
            self.rows[slot].append([observations[-1], None])
        self.steps[slot] += count
        self.seen[slot] = observations[-1]
        if ends:
            self.plans[slot] += self.num_slots
            self.steps[slot], self.lengths[slot] = 0, int(self.generator.integers(1, self.longest + 1))
            self.seen[slot] = self._next()
            self.rows[slot].append([self.seen[slot], None])
        flags = np.zeros((2, count), dtype=bool)
        flags[:, -1] = terminates, ends and not terminates
        data = {
            "observations": np.array(observations, dtype=np.float32)[:, None],
            "actions": np.array(actions, dtype=np.float32)[:, None],
            "rewards": np.array(rewards),
            "terminated": flags[0],
            "truncated": flags[1],
        }
        return plan, data, ends, first

    def stored(self, slot: int, num_rows: int) -> list[Any]:
        """Rows that a ring of ``num_rows`` holds; the first observation of a rollout comes with its first step."""
        rows = self.rows[slot] if self.steps[slot] else self.rows[slot][:-1]
        return rows[-num_rows:]
