"""A single environment that is the batch of width one of a simulator, so that many of it show the same bits."""

from __future__ import annotations

import copy
from abc import ABC
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Discrete

from metaroll.envs.base.simulator import TaskSimulator
from metaroll.envs.base.simulator_slots import SimulatorRows, SimulatorSlots, check_choices
from metaroll.errors import ShapeError, SlotError
from metaroll.types import EnvUpdate

__all__ = ["BatchedEnv", "check_render_mode"]

_ROW = np.zeros(1, dtype=np.int64)


class BatchedEnv(gymnasium.Env, ABC):
    """One copy of a simulator with tasks. A subclass makes the simulator, and offers ``sample_tasks``.

    ``reset(options={"init_state": (S,)})`` chooses the first state.

    Args:
        simulator: What is simulated; its ``task`` is in force before the first ``set_task``.
        render_mode: ``None``, or one of those in ``metadata`` (here there are none).
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 (Gymnasium's own declaration)

    def __init__(self, simulator: TaskSimulator, render_mode: str | None = None) -> None:
        check_render_mode(self, render_mode)
        self.render_mode = render_mode
        self.simulator = simulator
        self.env_spec = simulator.env_spec
        self.observation_space, self.action_space = self.env_spec.observation_space, self.env_spec.action_space
        self._rows = SimulatorRows(simulator, 1)
        self._started = False

    def set_task(self, task: Mapping[str, Any]) -> None:
        """Put ``task`` into force at once."""
        self.simulator.task = self.simulator.check_task(task)
        self._rows.constants = self.simulator.constants([self.simulator.task], np)

    def get_task(self) -> dict[str, np.ndarray]:
        """The task in force."""
        return {name: value.copy() for name, value in self.simulator.task.items()}

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start an episode; ``options["init_state"]`` is its first state."""
        super().reset(seed=seed)
        init = (options or {}).get("init_state")
        inits = None if init is None else [self.simulator.check_init_state(init)]
        drawn = int(self.np_random.integers(2**31)) if seed is None else seed
        self._rows.begin(_ROW, np.array([drawn]), inits=inits)
        self._started = True
        self.on_step(begins=True)
        return self.current_observation(), {}

    def current_observation(self) -> np.ndarray:
        """What is seen now."""
        self._check_started("current_observation()")
        return self._rows.observe()[0]

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """One step."""
        self._check_started("step()")
        action, space = np.asarray(action), self.action_space
        if action.shape != space.shape:
            raise ShapeError(f"action must have shape {space.shape}, got {action.shape}")
        actions = action[None]
        if isinstance(space, Discrete):
            try:
                actions = check_choices(space, actions)
            except SlotError as error:
                raise error.__cause__ or error from None
        found = self._rows.step(actions)
        self.on_step()
        infos = {name: values[0].item() for name, values in found.infos.items()}
        return self._rows.observe()[0], float(found.rewards[0]), bool(found.terminated[0]), False, infos

    def on_step(self, begins: bool = False) -> None:
        """Called after every step, and where an episode ``begins``, for pictures that show what has been.

        Many that are stepped as arrays do not call it.
        """

    def batched_slots(self, num_slots: int) -> SimulatorSlots:
        """Many of this environment, stepped as arrays."""
        return SimulatorSlots(num_slots, copy.copy(self.simulator))  # a later set_task is this one's alone

    def accepts_update(self, update: EnvUpdate | None) -> bool:
        """Whether ``batched_slots`` can apply ``update``: nothing, or a task of this class, without wrappers."""
        return self.simulator.accepts_update(update)

    def _check_started(self, what: str) -> None:
        if not self._started:
            raise gymnasium.error.ResetNeeded(f"reset() must be called before {what}")


def check_render_mode(env: gymnasium.Env, render_mode: str | None) -> None:
    """Raise a ValueError unless ``render_mode`` is ``None`` or one of those that ``env`` names in its metadata."""
    modes = env.metadata["render_modes"]
    if render_mode is not None and render_mode not in modes:
        drawn = " or ".join(map(repr, modes))
        expected = f"None or {drawn}" if drawn else f"None, {type(env).__name__} draws nothing"
        raise ValueError(f"render_mode must be {expected}, got {render_mode!r}")
