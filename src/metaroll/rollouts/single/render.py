"""What ``rollout`` shows while it runs: lines of text, Gymnasium's window, or frames for a video."""

from __future__ import annotations

import reprlib
import sys
from typing import Any

import numpy as np

from metaroll.data.space_batches import take_rows
from metaroll.envs.base.slot_proxies import WatchedSlots
from metaroll.types import RenderMode

__all__ = ["Renderer", "gym_mode"]


class Renderer:
    """Shows the environment at the start and after every ``render_step`` steps.

    Args:
        env: The environment.
        mode: What to show.
        render_step: Number of steps from one picture to the next.

    Raises:
        ValueError: The environment was made for another way of rendering.
    """

    def __init__(self, env: Any, mode: RenderMode, render_step: int) -> None:
        self.frames: list[np.ndarray] = []
        self.wanted = mode.text or mode.video or mode.render
        self._env, self._mode, self._every = env, mode, render_step
        self._return = 0.0
        wanted, offered = gym_mode(mode), getattr(env, "render_mode", None)
        if wanted is not None and wanted != offered:
            raise ValueError(
                f"render_mode {mode} needs an environment with render_mode={wanted!r}, but {type(env).__name__} has "
                f"{offered!r}; make it with gymnasium.make(id, render_mode={wanted!r}), or pass the id itself"
            )

    def start(self, observations: Any) -> None:
        """Before the first step; ``observations (1, ...)``."""
        self._show(0, f"observation {_text(observations)}")

    def after_step(self, step: int, watched: WatchedSlots) -> None:
        """After step number ``step`` (from 1)."""
        result = watched.result
        if result is None:
            return
        self._return += float(result.rewards[0])
        if step % self._every == 0:
            self._show(
                step,
                f"action {_text(watched.actions)}  reward {result.rewards[0]:.4g}  "
                f"return {self._return:.4g}  observation {_text(result.observations)}",
            )

    def _show(self, step: int, text: str) -> None:
        if self._mode.text:
            sys.stdout.write(f"step {step:4d}  {text}\n")
        if self._mode.video:
            self.frames.append(np.array(self._env.render()))
        elif self._mode.render:
            self._env.render()


def _text(batch: Any) -> str:
    element = take_rows(batch, 0)
    if isinstance(element, np.ndarray):
        return np.array2string(element, precision=4, threshold=8, separator=", ").replace("\n", "")
    return reprlib.repr(element)


def gym_mode(mode: RenderMode) -> str | None:
    """The ``render_mode`` of environments that can show what is asked for; ``None`` where they need not draw."""
    return "rgb_array" if mode.video else "human" if mode.render else None
