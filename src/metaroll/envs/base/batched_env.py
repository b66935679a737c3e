"""A single environment that is the batch of width one of a simulator, so that many of it show the same bits."""

from __future__ import annotations

import copy
from abc import ABC
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Discrete

from metaroll.envs.base.simulator import Simulator, map_rows
from metaroll.envs.base.simulator_slots import SimulatorRows, SimulatorSlots, check_choices
from metaroll.errors import ShapeError, SlotError
from metaroll.types import EnvUpdate

__all__ = ["BatchedEnv", "SettableTask"]

_ROW = np.zeros(1, dtype=np.int64)


def _only_row(rows: np.ndarray) -> np.ndarray:
    return rows[0]


class BatchedEnv(gymnasium.Env, ABC):
    """One copy of a simulator. A subclass makes the simulator; with tasks it is a ``SettableTask``, too.

    ``reset(options={"init_state": (S,)})`` chooses the first state.

    Args:
        simulator: The simulator.
        render_mode: ``None``, or one of those in ``metadata`` (here there are none).
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 (Gymnasium's own declaration)
    simulator: Any

    def __init__(self, simulator: Simulator, render_mode: str | None = None) -> None:
        modes = self.metadata["render_modes"]
        if render_mode is not None and render_mode not in modes:
            drawn = " or ".join(map(repr, modes))
            expected = f"None or {drawn}" if drawn else f"None, {type(self).__name__} draws nothing"
            raise ValueError(f"render_mode must be {expected}, got {render_mode!r}")
        self.render_mode = render_mode
        self._started = False
        self.use(simulator)

    def use(self, simulator: Simulator) -> None:
        """Simulate something else from now on."""
        self.simulator, self.env_spec = simulator, simulator.env_spec
        self.observation_space, self.action_space = self.env_spec.observation_space, self.env_spec.action_space
        self._rows = SimulatorRows(simulator, 1)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start an episode; ``options["init_state"]`` is its first state."""
        super().reset(seed=seed)
        options = options or {}
        init, limit = options.get("init_state"), options.get("max_steps")
        inits = None if init is None else [self.simulator.check_init_state(init)]
        limits = None if limit is None else np.array([limit], dtype=np.float64)
        drawn = int(self.np_random.integers(2**31)) if seed is None else seed
        self._rows.begin(_ROW, np.array([drawn]), inits=inits, max_steps=limits)
        self._started = True
        self.on_step(begins=True)
        return self.current_observation(), {}

    def current_observation(self) -> np.ndarray:
        """The present observation."""
        self.check_started("current_observation()")
        return map_rows(_only_row, self._rows.observe())

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """One step."""
        self.check_started("step()")
        action, space = np.asarray(action), self.action_space
        if action.shape != space.shape:
            raise ShapeError(f"action must have shape {space.shape}, got {action.shape}")
        actions = action[None]
        if isinstance(space, Discrete):
            try:
                actions = check_choices(space, actions)
            except SlotError as error:
                raise error.__cause__ or error from None
        result, observations = self._rows.step(actions)
        self.on_step()
        infos = {name: values[0].item() if values.ndim == 1 else values[0] for name, values in result.infos.items()}
        endings = bool(result.terminated[0]), bool(result.truncated[0])
        return map_rows(_only_row, observations), float(result.rewards[0]), *endings, infos

    def on_step(self, begins: bool = False) -> None:
        """Called after every step, and when an episode ``begins``, for pictures that show the past.

        Many that are stepped as arrays do not call it.
        """

    def render(self) -> np.ndarray | None:
        """A picture of the current state, uint8 ``(H, W, 3)``, with ``render_mode="rgb_array"``."""
        if self.render_mode is None and self.metadata["render_modes"]:
            gymnasium.logger.warn(
                "render() draws nothing without a render_mode; make the environment with render_mode='rgb_array'"
            )
            return None
        self.check_started("render()")
        return self.picture()

    def picture(self) -> np.ndarray:
        """The result of ``render``."""
        raise NotImplementedError(f"{type(self).__name__} draws nothing")

    def batched_slots(self, num_slots: int) -> SimulatorSlots:
        """Many of this environment, stepped as arrays."""
        return SimulatorSlots(num_slots, copy.copy(self.simulator))  # a later set_task is this one's alone

    def accepts_update(self, update: EnvUpdate | None) -> bool:
        """Whether ``batched_slots`` can apply ``update``: none, or one that the simulator accepts, without wrappers."""
        return self.simulator.accepts_update(update)

    def check_started(self, what: str) -> None:
        """Raise Gymnasium's ResetNeeded where no episode has begun."""
        if not self._started:
            raise gymnasium.error.ResetNeeded(f"reset() must be called before {what}")


class SettableTask:
    """Mixin of ``BatchedEnv`` with tasks: its simulator is a ``TaskSimulator``; a subclass offers ``sample_tasks``."""

    simulator: Any
    _rows: Any

    def set_task(self, task: Mapping[str, Any]) -> None:
        """Make ``task`` the current one at once."""
        self.simulator.task = self.simulator.check_task(task)
        self._rows.constants = self.simulator.constants([self.simulator.task], np)

    def get_task(self) -> dict[str, np.ndarray]:
        """The current task."""
        return {name: value.copy() for name, value in self.simulator.task.items()}
