"""The record of a device's episode: in memory, and in a file that survives the process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, final

import numpy as np

from metaroll.data.step_sequence import StepSequence
from metaroll.errors import DeviceError
from metaroll.lab.logs.robot_log import ROBOT_LOG_SUFFIX, RobotLog, steps_to_rollout
from metaroll.lab.real.timing import Timing
from metaroll.types import EnvSpec

__all__ = ["EpisodeRecord"]


@final
class EpisodeRecord:
    """The steps of one episode.

    Args:
        env_name: Name of the device.
        env_spec: Spaces and labels of observations and actions.
        dt: Seconds per step.
        folder: Folder of its log; ``None`` writes none.
        sync: See ``RobotLog``.

    Attributes:
        path: The log; ``None`` if there is none.
    """

    def __init__(self, env_name: str, env_spec: EnvSpec, dt: float, folder: Path | None, sync: bool) -> None:
        self._spec, self._dt = env_spec, dt
        self._first: dict[str, Any] = {}
        self._steps: list[Mapping[str, Any]] = []
        self._log = None if folder is None else _new_log(folder, env_name, env_spec, dt, sync)
        self.path = None if self._log is None else self._log.path
        self._end = "not finished"

    def __len__(self) -> int:
        return len(self._steps)

    def begin(self, observation: np.ndarray) -> None:
        """Record the first observation."""
        self._first = {"time": 0.0, "observation": observation}
        if self._log is not None:
            self._log.first(observation, 0.0)

    def add(self, step: Mapping[str, Any]) -> None:
        """Record a step (see ``steps_to_rollout``)."""
        self._steps.append(step)
        if self._log is not None:
            self._log.write_step(step)

    def flush(self) -> None:
        """Wait until everything is on disk, if ``sync`` is set."""
        if self._log is not None:
            self._log.flush()

    def end(self, reason: str, timing: Timing) -> None:
        """Record why the episode has ended."""
        self._end = reason
        if self._log is not None:
            self._log.end(reason, asdict(timing))

    def rollout(self) -> StepSequence | None:
        """The episode so far; ``None`` before its first step."""
        if not self._steps:
            return None
        return steps_to_rollout(self._first, list(self._steps), self._spec, self._dt, {"end": self._end})

    def keep_in(self, error: DeviceError) -> None:
        """Attach the steps so far to ``error``, and say in its message where they are."""
        error.rollout, error.log = self.rollout(), self.path
        if self._steps:
            error.args = (f"{error}; {len(self)} steps are kept{f' in {self.path}' if self.path else ''}",)


def _new_log(folder: Path, env_name: str, spec: EnvSpec, dt: float, sync: bool) -> RobotLog:
    folder.mkdir(parents=True, exist_ok=True)
    number = len(list(folder.glob(f"episode_*{ROBOT_LOG_SUFFIX}")))
    while True:
        path = folder / f"episode_{number:04}{ROBOT_LOG_SUFFIX}"
        try:
            return RobotLog(path, spec, dt, {"env_name": env_name}, sync=sync)
        except FileExistsError:
            number += 1
