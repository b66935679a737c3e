"""States of a batched simulator at every step, cut into rollouts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

__all__ = ["StateLog"]

_CHUNK = 256


class StateLog:
    """Writes down ``slots.states (E, S)`` before every lock-step, whole arrays at a time.

    Args:
        slots: Anything with ``num_slots`` and ``states``.
    """

    def __init__(self, slots: Any) -> None:
        self._slots = slots
        self._blocks: list[np.ndarray] = []
        self._step = 0
        self._begin = np.zeros(slots.num_slots, dtype=np.int64)
        self._lengths = np.zeros(slots.num_slots, dtype=np.int64)

    def start(self, slots: Sequence[int]) -> None:
        """Rollouts have been started in ``slots``: cut out what ran there before you reset them."""
        self._begin[list(slots)] = self._step
        self._lengths[list(slots)] = 0

    def before_step(self, active: np.ndarray) -> None:
        """The slots in ``active (E,)`` are about to be stepped."""
        number, row = divmod(self._step, _CHUNK)
        states = self._slots.states()
        if number == len(self._blocks):
            self._blocks.append(np.empty((_CHUNK, *states.shape), dtype=states.dtype))
        self._blocks[number][row] = states
        self._step += 1
        self._lengths += active

    def cut(self, slot: int, last: np.ndarray) -> np.ndarray:
        """States ``(T+1, S)`` of the rollout in ``slot``, where ``last (E, S)`` are those after the last step."""
        begin, end = int(self._begin[slot]), int(self._begin[slot] + self._lengths[slot])
        parts = []
        while begin < end:
            number, row = divmod(begin, _CHUNK)
            stop = min(_CHUNK, row + end - begin)
            parts.append(self._blocks[number][row:stop, slot])
            begin += stop - row
        return np.concatenate([*parts, last[slot : slot + 1]])
