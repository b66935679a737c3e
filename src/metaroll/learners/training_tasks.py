"""Which variations of the environment a learner trains in, drawn so that a resumed run draws the same."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np

from metaroll.types import EnvUpdate

__all__ = ["TrainingTasks"]


class TrainingTasks:
    """Draws environment updates with replacement.

    A list is drawn from with a generator of its own. A sampler is handed this generator if its ``sample`` takes a
    ``generator`` (as a ``DomainRandomizer`` does); else its own state goes into the snapshot if it has ``state_dict``
    and ``load_state_dict``; one that has neither draws other variations after a resume.

    Args:
        source: A list of ``EnvUpdate``, or a sampler with ``sample(n_tasks, with_replacement)``.
        seed: Seed of the generator.
    """

    def __init__(self, source: Any, seed: int) -> None:
        self._source: Any = list(source) if isinstance(source, list | tuple) else source
        if isinstance(self._source, list):
            if not self._source or not all(callable(update) for update in self._source):
                raise ValueError(f"task_sampler must be a sampler, or a list of at least one EnvUpdate, got {source!r}")
        elif not callable(getattr(source, "sample", None)):
            raise TypeError(f"task_sampler must have sample(n_tasks), got {type(source).__name__}")
        self._generator = np.random.default_rng(seed)

    def draw(self, count: int) -> list[EnvUpdate]:
        """``count`` updates."""
        source, generator = self._source, self._generator
        if isinstance(source, list):
            return [source[i] for i in generator.integers(len(source), size=count)]
        if "generator" in inspect.signature(source.sample).parameters:
            return list(source.sample(count, with_replacement=True, generator=generator))
        return list(source.sample(count, with_replacement=True))

    def state_dict(self) -> dict[str, Any]:
        """State of the generator, and of the sampler if it tells one."""
        tell = getattr(self._source, "state_dict", None)
        return {"generator": self._generator.bit_generator.state, "sampler": tell() if callable(tell) else None}

    def load_state_dict(self, tree: Mapping[str, Any]) -> None:
        """Go on where ``state_dict`` was taken."""
        self._generator.bit_generator.state = tree["generator"]
        take = getattr(self._source, "load_state_dict", None)
        if tree["sampler"] is not None and callable(take):
            take(tree["sampler"])
