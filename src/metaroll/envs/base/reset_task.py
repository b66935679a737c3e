"""Tasks for environments that are told theirs by ``reset(options={"task": ...})``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium

__all__ = ["ResetTaskMaker", "ResetTaskWrapper"]


class ResetTaskWrapper(gymnasium.Wrapper):
    """Keeps a task, and hands it to the environment at every reset.

    Args:
        env: Environment that reads its task from the options of ``reset``.
        option: Name of the option.
    """

    def __init__(self, env: Any, option: str = "task") -> None:
        super().__init__(env)
        self._option = option
        self._task: Any = None

    def set_task(self, task: Any) -> None:
        """The task of all episodes that are started from now on."""
        self._task = task

    def get_task(self) -> Any:
        """The task that was set last, or ``None``."""
        return self._task

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode of the task; one in ``options`` goes before ours."""
        if self._task is not None:
            options = {self._option: self._task, **(options or {})}
        return self.env.reset(seed=seed, options=options)


class ResetTaskMaker:
    """Makes environments with a ``ResetTaskWrapper``: a picklable constructor.

    Args:
        make_env: Makes the environment inside.
        option: Name of the option.
    """

    def __init__(self, make_env: Callable[[], Any], option: str = "task") -> None:
        if not isinstance(option, str) or not option:
            raise ValueError(f"option must be the name of an option of reset, got {option!r}")
        self.make_env, self.option = make_env, option

    def __call__(self) -> ResetTaskWrapper:
        return ResetTaskWrapper(self.make_env(), self.option)

    def __repr__(self) -> str:
        return f"{self.make_env!r} told its task by options[{self.option!r}] of reset"
