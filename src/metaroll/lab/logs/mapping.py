"""Which columns of a log are observations, actions and time, and in which units: a mapping file, read and checked."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

from metaroll.checks import check_number
from metaroll.data.doors.json_files import read_json_dict
from metaroll.data.doors.yaml_files import read_yaml
from metaroll.errors import LogError, unknown_name

__all__ = ["MANY_TURNS", "UNITS", "LogColumn", "LogMapping", "names_angle", "simulators_unit"]

MANY_TURNS = 6.0 * 2.0 * math.pi
"""Range of an angle without a unit that is too large for radians: probably in degrees."""
_RAD_PER_DEG = math.pi / 180.0
UNITS = {
    "": 1.0,
    "1": 1.0,
    "%": 0.01,
    "s": 1.0,
    "ms": 1e-3,
    "us": 1e-6,
    "ns": 1e-9,
    "min": 60.0,
    "rad": 1.0,
    "deg": _RAD_PER_DEG,
    "rev": 2.0 * math.pi,
    "rad/s": 1.0,
    "deg/s": _RAD_PER_DEG,
    "rpm": 2.0 * math.pi / 60.0,
    "m": 1.0,
    "cm": 1e-2,
    "mm": 1e-3,
    "m/s": 1.0,
    "cm/s": 1e-2,
    "mm/s": 1e-3,
    "kg": 1.0,
    "g": 1e-3,
    "N": 1.0,
    "mN": 1e-3,
    "N m": 1.0,
    "mN m": 1e-3,
    "N mm": 1e-3,
    "V": 1.0,
    "mV": 1e-3,
    "A": 1.0,
    "mA": 1e-3,
}
"""Unit -> its value in units of the simulators; each simulator unit precedes those converted to it."""

_ANY = ("", "1")
_OF_TIME = (*_ANY, "s", "ms", "us", "ns", "min")
_OF_ANGLES = (*_ANY, "rad", "deg", "rev")
_OF_RATES = (*_ANY, "rad/s", "deg/s", "rpm", "m/s", "cm/s", "mm/s")
_OF_TURNING = (*_ANY, "rad/s", "deg/s", "rpm")
_OF_COMMANDS = {
    "torque": (*_ANY, "%", "N m", "mN m", "N mm"),
    "force": (*_ANY, "%", "N", "mN"),
    "voltage": (*_ANY, "%", "V", "mV"),
    "current": (*_ANY, "%", "A", "mA"),
}
"""Prefix of simulators' labels -> units."""
_RATE = "_dot"
"""Suffix of simulators' labels for speeds."""
_ANGLES = ("theta", "alpha", "beta", "phi", "psi")
"""Prefixes of simulators' labels for angles, or (with ``_RATE``) their speeds."""
_ENDS = (*_ANGLES[:-1], "angle", "roll", "pitch", "yaw")
"""Last words of labels for angles (psi may be a pressure), ignoring numbers and sides."""
_SIDES = ("left", "right", "front", "back", "l", "r", "x", "y", "z")
_RATES = ("dot", "ddot", "rate", "speed", "velocity", "vel", "acceleration", "acc", "torque")

_COLUMNS = ("observations", "actions", "states")


@dataclass(frozen=True)
class LogColumn:
    """A column of the log: its values are ``(raw * scale + offset)``, in ``unit``.

    Attributes:
        column: Name in the log.
        unit: One of ``UNITS``; converted to rad, m, s, kg, N or V.
        scale: Factor for the raw values (2 pi / 2048 for encoder counts).
        offset: Added after ``scale``, in ``unit``.
        unwrap: The column is an angle that jumps by full turns: remove the jumps.
        function: ``"sin"`` or ``"cos"``, for observations that contain these of an angle; the angle is unwrapped first.
        bounds: Lowest and highest value of an action, in the simulator's units.
    """

    column: str
    unit: str = ""
    scale: float = 1.0
    offset: float = 0.0
    unwrap: bool = False
    function: Literal["sin", "cos"] | None = None
    bounds: tuple[float, float] | None = None

    @property
    def is_angle(self) -> bool:
        """Whether jumps by full turns are removed."""
        return self.unwrap or self.function is not None


@dataclass(frozen=True)
class LogMapping:
    """How a log is converted to rollouts.

    Attributes:
        observations: Label -> its column, in the order of the observation's entries.
        actions: Label -> its column.
        states: Label -> its column, if the log holds whole states.
        rewards: Column of rewards; ``None`` means 0.
        time: Column of time stamps; ``None``: rows are ``sample_time`` apart.
        sample_time: Seconds between rows.
        episode: Column whose value identifies the rollout; ``None``: the log is one rollout.
        terminated: Column that is true (not 0) in the row in which a rollout terminated.
        dt: Seconds per step of the rollouts; ``None``: as in the log.
        max_gap: Longest gap to fill, in s: observations by interpolation, actions by the previous ones.
        outside: What to do with actions outside of their bounds.
    """

    observations: Mapping[str, LogColumn]
    actions: Mapping[str, LogColumn]
    states: Mapping[str, LogColumn] = field(default_factory=dict)
    rewards: LogColumn | None = None
    time: LogColumn | None = None
    sample_time: float | None = None
    episode: str | None = None
    terminated: str | None = None
    dt: float | None = None
    max_gap: float = 0.0
    outside: Literal["error", "clip"] = "error"

    @classmethod
    def load(cls, path: str | Path) -> LogMapping:
        """Load a mapping from a YAML or JSON file.

        Raises:
            FileNotFoundError: There is no such file.
            LogError: It is not a mapping; names the entry.
        """
        path = Path(path)
        read = read_json_dict if path.suffix.lower() == ".json" else read_yaml
        try:
            data = read(path, LogError)
        except FileNotFoundError:
            raise FileNotFoundError(f"there is no mapping file {path}") from None
        try:
            return cls.of(data)
        except (TypeError, ValueError) as error:
            raise LogError(f"{path}: {error}", path) from error

    @classmethod
    def of(cls, data: Any) -> LogMapping:
        """A mapping from a dict with the entries of a mapping file: a column is a name or a dict (see ``LogColumn``).

        Raises:
            TypeError: An entry is of another type.
            ValueError: An entry is unknown or missing, or has an invalid value.
        """
        if isinstance(data, LogMapping):
            return data
        if not isinstance(data, Mapping):
            raise TypeError(f"a mapping must be a dict with the entries observations and actions, got {data!r}")
        known = [one.name for one in fields(cls)]
        for name in data:
            if name not in known:
                raise unknown_name("entry of a mapping", str(name), known)
        for name in ("observations", "actions"):
            if not data.get(name):
                raise ValueError(f"{name} must name at least one column, as in `{name}: {{label: column}}`")
        values: dict[str, Any] = {name: _columns(name, data.get(name) or {}) for name in _COLUMNS}
        for name in ("rewards", "time"):
            values[name] = None if data.get(name) is None else _column(name, data[name])
        for name in ("episode", "terminated"):
            values[name] = None if data.get(name) is None else _text(name, data[name])
        for name in ("sample_time", "dt"):
            values[name] = None if data.get(name) is None else check_number(name, data[name], 0.0, above_low=True)
        if (values["time"] is None) == (values["sample_time"] is None):
            raise ValueError("either time (a column) or sample_time (seconds between rows) must be given, not both")
        for name in _COLUMNS:
            for label, column in values[name].items():
                _check_unit(f"{name}.{label}", label, column)
        if values["time"] is not None and values["time"].unit not in _OF_TIME:
            raise ValueError(f"unit of time must be one of {_listed(_OF_TIME)}, got {values['time'].unit!r}")
        values["max_gap"] = check_number("max_gap", data.get("max_gap", 0.0), 0.0)
        values["outside"] = _choice("outside", data.get("outside", "error"), ("error", "clip"))
        return cls(**values)

    def with_dt(self, dt: float | None) -> LogMapping:
        """A copy with ``dt``, unless it is set already."""
        return self if dt is None or self.dt is not None else replace(self, dt=dt)

    @property
    def columns(self) -> dict[str, LogColumn]:
        """Entry (``observations.theta``) -> column of numbers, all of them; time first."""
        by_entry = {} if self.time is None else {"time": self.time}
        for kind, group in zip(_COLUMNS, (self.observations, self.actions, self.states), strict=True):
            by_entry |= {f"{kind}.{label}": column for label, column in group.items()}
        return by_entry if self.rewards is None else {**by_entry, "rewards": self.rewards}


def simulators_unit(unit: str) -> str:
    """The simulators' unit for a unit: rad for deg."""
    names = list(UNITS)
    return next(name for name in reversed(names[: names.index(unit) + 1]) if UNITS[name] == 1.0)


def names_angle(label: str) -> bool:
    """Whether a label is for an angle: ``theta_1``, ``hip angle``, ``pitch``; not for its speed or a torque."""
    words = re.findall(r"[a-z]+", label.lower())
    while words and words[-1] in _SIDES:
        words.pop()
    if not words or any(word in _RATES for word in words):
        return False
    return words[0] in _ANGLES or words[-1] in _ENDS


def _columns(name: str, data: Any) -> dict[str, LogColumn]:
    if isinstance(data, list):  # the names of the columns are the labels
        data = {column: column for column in data}
    if not isinstance(data, Mapping):
        raise TypeError(f"{name} must be a dict of labels and columns, or a list of columns, got {data!r}")
    return {_text(f"a label of {name}", label): _column(f"{name}.{label}", one) for label, one in data.items()}


def _column(name: str, data: Any) -> LogColumn:
    if isinstance(data, str):
        return LogColumn(data)
    if not isinstance(data, Mapping):
        raise TypeError(f"{name} must be the name of a column, or a dict with the entry column, got {data!r}")
    known = [one.name for one in fields(LogColumn)]
    for entry in data:
        if entry not in known:
            raise unknown_name(f"entry of {name}", str(entry), known)
    if "column" not in data:
        raise ValueError(f"{name} must name its column, got {dict(data)}")
    values = {"column": _text(f"{name}.column", data["column"])}
    unit = str(data.get("unit", ""))
    if unit not in UNITS:
        raise ValueError(
            f"{unknown_name(f'unit of {name}', unit, filter(None, UNITS))}; for any other unit give a scale"
        )
    if not isinstance(data.get("unwrap", False), bool):
        raise TypeError(f"{name}.unwrap must be true or false, got {data['unwrap']!r}")
    function = data.get("function")
    if data.get("scale") == 0:
        raise ValueError(f"{name}.scale must not be 0, which makes all values equal")
    return LogColumn(
        **values,
        unit=unit,
        scale=check_number(f"{name}.scale", data.get("scale", 1.0), -math.inf),
        offset=check_number(f"{name}.offset", data.get("offset", 0.0), -math.inf),
        unwrap=data.get("unwrap", False),
        function=None if function is None else _choice(f"{name}.function", function, ("sin", "cos")),
        bounds=_bounds(f"{name}.bounds", data.get("bounds")),
    )


def _check_unit(name: str, label: str, column: LogColumn) -> None:
    """Raise ``ValueError`` if a column's unit does not fit its quantity."""
    first = label.partition("_")[0]
    if column.function is not None:
        quantity, known = f"the {column.function} is of an angle", _OF_ANGLES
    elif label.endswith(_RATE):
        turning = first in _ANGLES
        quantity, known = ("it is the speed of an angle", _OF_TURNING) if turning else ("it is a speed", _OF_RATES)
    elif names_angle(label):
        quantity, known = "it is an angle", _OF_ANGLES
    elif first in _OF_COMMANDS:
        quantity, known = f"it is a {first}", _OF_COMMANDS[first]
    else:
        return
    if column.unit not in known:
        raise ValueError(f"unit of {name} must be one of {_listed(known)}, since {quantity}, got {column.unit!r}")


def _listed(units: tuple[str, ...]) -> str:
    return ", ".join(unit for unit in units if unit not in _ANY)


def _bounds(name: str, data: Any) -> tuple[float, float] | None:
    if data is None:
        return None
    if not isinstance(data, list | tuple) or len(data) != 2:
        raise TypeError(f"{name} must be [low, high], got {data!r}")
    low, high = (check_number(name, value, -math.inf) for value in data)
    if not low < high:
        raise ValueError(f"{name} must be [low, high] with low < high, got {data!r}")
    return low, high


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise TypeError(f"{name} must be text, got {value!r}")
    return value


def _choice(name: str, value: Any, choices: tuple[str, ...]) -> Any:
    if value not in choices:
        raise ValueError(f"{name} must be {' or '.join(choices)}, got {value!r}")
    return value
