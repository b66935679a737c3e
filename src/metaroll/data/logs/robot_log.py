"""What a real environment writes while it acts: a line per step, each on disk before the next step begins.

The first line says what the log is. The second holds the first observation; every further one a step: its action, and
what followed. A last line says why the episode has ended. Whatever happens to the writer, the lines before are whole.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from metaroll.data.plain_data import decode, encode, to_json
from metaroll.data.rollouts import TIME_STEP
from metaroll.data.step_sequence import StepSequence
from metaroll.errors import LogError
from metaroll.types import EnvSpec

__all__ = ["ROBOT_LOG_SUFFIX", "RobotLog", "read_robot_log", "steps_to_rollout"]

ROBOT_LOG_SUFFIX = ".jsonl"
_FORMAT, _VERSION = "metaroll robot log", 1
_STEP = ("action", "applied", "observation", "reward", "terminated", "truncated", "time", "repeated", "late", "overrun")
"""Entries of a step."""


class RobotLog:
    """Writes the log of one episode, which must not exist yet.

    Args:
        path: The file, ``.jsonl``.
        env_spec: What observations and actions are.
        dt: Seconds per step.
        notes: Whatever else describes the episode.
        sync: Wait until each line is on the disk itself, so that it survives the machine, too; otherwise it survives
            the process.

    Raises:
        FileExistsError: There is such a file.
    """

    def __init__(
        self, path: Path, env_spec: EnvSpec, dt: float, notes: Mapping[str, Any] | None = None, *, sync: bool = True
    ) -> None:
        header = {"format": _FORMAT, "version": _VERSION, "dt": dt, "env_spec": encode(env_spec, "env_spec")}
        text = to_json({**header, "notes": encode(dict(notes or {}), "notes")})
        self.path, self._sync = path, sync
        self._file: int | None = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
        self._line(text)

    def first(self, observation: np.ndarray, time: float) -> None:
        """Write the first observation ``(O,)``, made at ``time`` in s."""
        self._write({"time": time, "observation": observation})

    def write_step(self, entries: Mapping[str, Any]) -> None:
        """Write a step, with all entries of ``read_robot_log``'s rollouts (see ``steps_to_rollout``)."""
        self._write(entries)

    def flush(self) -> None:
        """Wait until all is on the disk, if that is wanted."""
        if self._sync and self._file is not None:
            os.fsync(self._file)

    def end(self, reason: str, report: Mapping[str, Any]) -> None:
        """Write why the episode has ended, and close the file; further calls do nothing."""
        if self._file is None:
            return
        try:
            self._write({"end": reason, "report": dict(report)})
            self.flush()
        finally:
            os.close(self._file)
            self._file = None

    def _write(self, entries: Mapping[str, Any]) -> None:
        plain = {k: v.tolist() if isinstance(v, np.ndarray | np.generic) else v for k, v in entries.items()}
        self._line(json.dumps(plain, separators=(",", ":")))

    def _line(self, text: str) -> None:
        if self._file is None:
            raise ValueError(f"the log {self.path} is closed")
        data = memoryview(f"{text}\n".encode())
        while data:
            data = data[os.write(self._file, data) :]


def read_robot_log(path: str | Path) -> StepSequence:
    """The rollout that was logged, also where the writer was killed in the middle of a line.

    Raises:
        FileNotFoundError: There is no such file.
        LogError: It is no such log, holds no step, or is damaged before its last line; names the line.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    lines = path.read_bytes().split(b"\n")[:-1]  # what follows the last line end was not finished
    parsed = [_parsed(line, number, path.name) for number, line in enumerate(lines, 1)]
    header = parsed[0] if parsed else {}
    if header.get("format") != _FORMAT:
        raise LogError(f"{path.name} is no log of a RealEnv: its first line does not say so")
    if header.get("version") != _VERSION:
        version = header.get("version")
        raise LogError(f"{path.name} has version {version!r} of the format, this metaroll reads {_VERSION}")
    spec = decode(header["env_spec"])
    steps = [entry for entry in parsed[2:] if "action" in entry]
    if len(parsed) < 2 or not steps:
        raise LogError(f"{path.name} holds no step")
    for number, entry in enumerate(steps, 3):
        lacking = [name for name in _STEP if name not in entry]
        if lacking:
            raise LogError(f"{path.name}: line {number} has no entry {lacking[0]!r}; it is damaged")
    end = parsed[-1].get("end")
    notes = {**decode(header["notes"]), "file": path.name, "end": "not finished" if end is None else end}
    return steps_to_rollout(parsed[1], steps, spec, header["dt"], notes)


def steps_to_rollout(
    first: Mapping[str, Any], steps: list[Any], spec: EnvSpec, dt: float, notes: Mapping[str, Any]
) -> StepSequence:
    """The rollout of logged entries.

    Args:
        first: ``time`` and ``observation`` of the start.
        steps: Of each step its ``action`` (as the policy gave it), what was ``applied`` of it, what followed
            (``observation``, ``reward``, ``terminated``, ``truncated``, ``time``), and whether the observation is
            ``repeated`` since none came, came ``late``, and by how many seconds the step was too long (``overrun``).
        spec: What observations and actions are.
        dt: Seconds per step.
        notes: What describes the episode.
    """

    def column(name: str, dtype: Any = np.float64) -> np.ndarray:
        return np.array([step[name] for step in steps], dtype=dtype)

    terminated, truncated = column("terminated", bool), column("truncated", bool)
    truncated[-1] |= not terminated[-1]  # the log ends here
    return StepSequence(
        observations=np.array([first["observation"], *(step["observation"] for step in steps)], dtype=np.float64),
        actions=column("action"),
        rewards=column("reward"),
        terminated=terminated,
        truncated=truncated,
        actions_applied=column("applied"),
        time=np.array([first["time"], *(step["time"] for step in steps)], dtype=np.float64),
        repeated=column("repeated", bool),
        late=column("late", bool),
        overrun=column("overrun"),
        rollout_info={"env_spec": spec, TIME_STEP: dt, "log": dict(notes)},
    )


def _parsed(line: bytes, number: int, name: str) -> dict[str, Any]:
    try:
        entry = json.loads(line)
    except ValueError as error:
        raise LogError(f"{name}: line {number} is damaged: {error}") from error
    if not isinstance(entry, dict):
        raise LogError(f"{name}: line {number} is damaged: it is no JSON object")
    return entry
