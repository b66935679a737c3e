"""The log that a real environment writes: a line per step, each on disk before the next step begins.

The first line is a header. The second holds the first observation; every further one a step: its action and outcome. A
last line says why the episode ended. Whatever happens to the writer, earlier lines are complete.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from metaroll.checks import check_number
from metaroll.data.doors.budget import Budget
from metaroll.data.doors.json_files import json_lines
from metaroll.data.doors.plain_files import at_line, damage, open_plain, size_of
from metaroll.data.plain_data import decode, encode, to_json
from metaroll.data.rollouts import TIME_STEP
from metaroll.data.step_sequence import StepSequence
from metaroll.errors import LogError
from metaroll.types import EnvSpec

__all__ = ["ROBOT_LOG_SUFFIX", "RobotLog", "read_robot_log", "steps_to_rollout"]

ROBOT_LOG_SUFFIX = ".jsonl"
_FORMAT, _VERSION = "metaroll robot log", 1
_FACTOR = 16
"""Reading a log may use this many times its size."""
_STEP = ("action", "applied", "observation", "reward", "terminated", "truncated", "time", "repeated", "late", "overrun")
"""Entries of a step."""


class RobotLog:
    """Writes the log of one episode, which must not exist yet.

    Args:
        path: The file, ``.jsonl``.
        env_spec: Spaces and labels of observations and actions.
        dt: Seconds per step.
        notes: Further information about the episode.
        sync: Wait until each line is on disk, so that it survives a crash of the machine; otherwise it survives one of
            the process.

    Raises:
        FileExistsError: The file exists.
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
        """Write the first observation ``(O,)``, measured at ``time`` in s."""
        self._write({"time": time, "observation": observation})

    def write_step(self, entries: Mapping[str, Any]) -> None:
        """Write a step, with all entries of ``read_robot_log``'s rollouts (see ``steps_to_rollout``)."""
        self._write(entries)

    def flush(self) -> None:
        """Wait until everything is on disk, if ``sync`` is set."""
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
    """Read a logged rollout, even if its writer was killed in the middle of a line.

    Raises:
        FileNotFoundError: There is no such file.
        LogError: It is not a log of a ``RealEnv``, holds no step, is damaged before its last line, or its steps are not
            in the order of time; names the line.
    """
    path = Path(path)
    with damage(path, LogError):
        with open_plain(path) as file:
            budget = Budget.of_file(size_of(file), _FACTOR)
            data = file.read()
        lines = json_lines(data, budget)
        return _rollout([next(lines, (0, {}))[1], *(entry for _, entry in lines)], path.name, budget)


def _rollout(parsed: list[dict[str, Any]], name: str, budget: Budget) -> StepSequence:
    """The rollout of the lines of a log."""
    header = parsed[0]
    if header.get("format") != _FORMAT:
        raise LogError("it is not a log of a RealEnv: its first line is not such a header")
    if header.get("version") != _VERSION:
        version = header.get("version")
        raise LogError(f"it has version {version!r} of the format, this metaroll reads {_VERSION}")
    with at_line(1):
        spec, notes, dt = (
            decode(header["env_spec"], budget=budget),
            decode(header["notes"], budget=budget),
            header["dt"],
        )
        if not isinstance(spec, EnvSpec) or not isinstance(notes, dict):
            raise LogError("it does not say what observations and actions are")
        dt = check_number("dt", dt, 0.0, above_low=True)
    first, steps = parsed[1] if len(parsed) > 1 else {}, [entry for entry in parsed[2:] if "action" in entry]
    for number, entry in enumerate(parsed[1:], 2):
        has_place = ("action" in entry) == (number > 2) or ("end" in entry and number == len(parsed))
        if not has_place:
            with at_line(number):
                raise LogError(
                    "the start of an episode (its first observation) belongs into line 2, its steps below, and its end "
                    "into the last line; put the lines back into their order"
                )
    if not steps:
        raise LogError("it holds no step")
    lengths = {"observation": spec.obs_dim}
    if isinstance(steps[0]["action"], list):
        lengths |= dict.fromkeys(("action", "applied"), len(steps[0]["action"]))
    _check_entries(first, 2, ("time", "observation"), lengths)
    time = first["time"]
    for number, entry in enumerate(parsed[2:], 3):
        if "action" in entry:
            _check_entries(entry, number, _STEP, lengths)
            _check_order(time, entry["time"], number)
            time = entry["time"]
    end = parsed[-1].get("end")
    notes = {**notes, "file": name, "end": "not finished" if end is None else end}
    return steps_to_rollout(first, steps, spec, dt, notes)


def _check_entries(entry: Mapping[str, Any], line: int, names: tuple[str, ...], lengths: Mapping[str, int]) -> None:
    """Raise an error unless a line has all entries, of the right lengths."""
    with at_line(line):
        for name in names:
            if name not in entry:
                raise LogError(f"it has no entry {name!r}; it is damaged")
            value = entry[name]
            length = lengths.get(name)
            if length is None:
                fits = isinstance(value, int | float)
            else:
                fits = isinstance(value, list) and len(value) == length
                fits = fits and all(isinstance(number, int | float) for number in value)
            if not fits:
                expected = "a number, or true or false" if length is None else f"a list of {length} numbers"
                raise LogError(f"{name} must be {expected}, got {str(value)[:100]}; it is damaged")


def _check_order(before: float, time: float, line: int) -> None:
    """Raise an error unless a line is later than the one before: the writer appends, and its clock goes forward."""
    if not (math.isfinite(time) and time > before):
        again = "is the same as" if time == before else "is before" if time < before else "does not follow"
        with at_line(line):
            raise LogError(
                f"time stamps must increase, {time:.9g} s {again} {before:.9g} s; put the lines back into their order, "
                "and remove duplicates"
            )


def steps_to_rollout(
    first: Mapping[str, Any], steps: list[Any], spec: EnvSpec, dt: float, notes: Mapping[str, Any]
) -> StepSequence:
    """The rollout of logged entries.

    Args:
        first: ``time`` and ``observation`` of the start.
        steps: For each step the ``action`` of the policy, the ``applied`` one, the outcome (``observation``,
            ``reward``, ``terminated``, ``truncated``, ``time``), whether the observation is ``repeated`` (since none
            arrived) or came ``late``, and by how many seconds the step was too long (``overrun``).
        spec: Spaces and labels of observations and actions.
        dt: Seconds per step.
        notes: Description of the episode.
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
