"""Physical constants of any Gymnasium MuJoCo environment, by their path in MuJoCo's model.

========================  ==============================================================================================
``body_mass:torso``       one entry: attribute of ``MjModel``, then name (or number) of the body, geom, joint ...
``geom_friction:floor:1`` an entry of an attribute with columns; without column, ``geom_friction`` and
                          ``actuator_gear`` mean the first (sliding friction, gear of the joint)
``dof_damping``           this value for all (of bodies: all but the world)
``dof_damping:*``         all *times* this value; also ``geom_friction:floor:*`` and ``geom_friction:*:0``
``opt_gravity:2``         an entry of ``MjModel.opt``; ``opt_timestep``, ``opt_viscosity`` ...
========================  ==============================================================================================

Without ``*`` values are absolute; with it they are factors of the nominal values, those that the model had before
anything was set here. Every set starts from the nominal values, so that nothing of an earlier one is left; single
entries win over factors. What MuJoCo computes from masses, gears and the like is computed again (``mj_setConst``), and
so are the boxes around geoms of other sizes or places, by which it detects contacts.
A mass is a mass only: ``body_inertia`` stays what it is, and wants the same factor if a body shall be denser.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from metaroll.envs.mujoco.library import BOUNDS, compute_again, compute_bounds_again
from metaroll.errors import DataError, ShapeError, unknown_name

__all__ = ["BoundModelParams", "ModelParams", "forget_params", "model_params_of"]

_KINDS = {
    "body": "body",
    "geom": "geom",
    "jnt": "joint",
    "dof": "joint",
    "actuator": "actuator",
    "site": "site",
    "tendon": "tendon",
    "sensor": "sensor",
    "cam": "camera",
    "light": "light",
    "mat": "material",
    "eq": "equality",
}
"""First word of an attribute -> kind of object of its rows."""

_COUNTS = {"actuator": "nu", "camera": "ncam", "joint": "njnt", "material": "nmat", "equality": "neq"}
_FIRST_COLUMN = ("geom_friction", "actuator_gear")
_POSITIVE = ("body_mass", "body_inertia", "opt_timestep")
_NOT_NEGATIVE = ("dof_damping", "dof_armature", "dof_frictionloss", "geom_friction", "opt_density", "opt_viscosity")
_UNDERIVED = ("dof_damping", "dof_frictionloss", "geom_friction", "geom_solref", "geom_solimp", "geom_margin")
"""Attributes that MuJoCo computes nothing from in advance (nor from options, ``opt_``)."""

_BOUNDING = ("geom_size", "geom_pos", "geom_quat", "geom_margin", "body_ipos", "body_iquat", "site_pos", "site_quat")
"""Attributes on which the boxes around geoms hang, and whether frames are taken for the same."""

_MARK = "_metaroll_model_params"


class _Entry(NamedTuple):
    attribute: str
    rows: Any
    columns: Any
    value: float
    is_factor: bool


def model_params_of(env: Any) -> BoundModelParams:
    """Access to the model of ``env.unwrapped``, which keeps the nominal values."""
    return BoundModelParams(env.unwrapped)


def forget_params(env: Any) -> None:
    """Restore the nominal values of ``env.model``, and forget them: the next values that it gets are nominal."""
    if getattr(env, _MARK, None) is not None:
        BoundModelParams(env).set({})
        delattr(env, _MARK)


class ModelParams:
    """The values set in a model, and those that they replaced."""

    def __init__(self) -> None:
        self.nominal: dict[str, np.ndarray] = {}
        """Attribute -> its values before it was touched."""
        self.settings: dict[str, float] = {}
        """Path -> current value."""
        self.bounds: dict[str, np.ndarray] = {}
        """``BOUNDS`` as they were before any of ``_BOUNDING`` was touched."""
        self.is_half_set = False
        """While values are set, and after an interruption (Ctrl-C) of that."""


class BoundModelParams:
    """Reads and sets entries of one model.

    Args:
        env: The environment with the ``model``; remembers what was set, once something is.
    """

    def __init__(self, env: Any) -> None:
        self._env = env
        self._model = env.model
        self._memory: ModelParams = getattr(env, _MARK, None) or ModelParams()

    def attributes(self) -> list[str]:
        """Names with which a path may begin."""
        model = (name for name in dir(self._model) if _is_floats(getattr(self._model, name, None)))
        options = (name for name in dir(self._model.opt) if _is_option(getattr(self._model.opt, name, None)))
        return [*(n for n in model if not n.startswith("_")), *(f"opt_{n}" for n in options if not n.startswith("_"))]

    def claims(self, path: str) -> bool:
        """Whether ``path`` begins with an attribute of the model, or looks like a path."""
        attribute = path.partition(":")[0]
        return ":" in path or self._array(attribute) is not None

    def check(self, paths: Iterable[str]) -> None:
        """Raise a DataError with the nearest names unless all ``paths`` lead to an entry."""
        for path in paths:
            self._entry(path, 1.0)

    def settings(self) -> dict[str, float]:
        """The present settings."""
        return dict(self._memory.settings)

    def read(self, paths: Iterable[str]) -> dict[str, float]:
        """Current values of ``paths`` (factors: as set, or 1); those of unequal entries are left out."""
        params: dict[str, float] = {}
        for path in paths:
            entry = self._entry(path, 1.0)
            if entry.is_factor:
                params[path] = self._memory.settings.get(path, 1.0)
                continue
            values = np.unique(self._known(entry.attribute)[entry.rows, entry.columns])
            if values.size == 1:
                params[path] = float(values[0])
        return params

    def set(self, params: Mapping[str, float]) -> None:
        """Nominal values everywhere, except for ``params``; a wrong path or value changes nothing."""
        entries = [self._entry(path, value) for path, value in params.items()]
        if not self._model.ngravcomp and any(e.attribute == "body_gravcomp" and e.value for e in entries):
            raise ValueError(
                "body_gravcomp has no effect in this model, since its file gives gravcomp to no body: MuJoCo leaves "
                "the computation out then; give it there"
            )
        entries.sort(key=lambda entry: not entry.is_factor)
        nominal = self._memory.nominal
        touched = dict.fromkeys([*nominal, *(entry.attribute for entry in entries)])
        wanted = {name: nominal[name].copy() if name in nominal else self._known(name).copy() for name in touched}
        originals = {name: values.copy() for name, values in wanted.items()}
        for entry in entries:
            base = originals[entry.attribute][entry.rows, entry.columns]
            wanted[entry.attribute][entry.rows, entry.columns] = base * entry.value if entry.is_factor else entry.value
        again = self._memory.is_half_set
        changed = [name for name in touched if again or not np.array_equal(wanted[name], self._known(name))]
        if not self._memory.bounds and any(name in _BOUNDING for name in changed):
            self._memory.bounds = {name: getattr(self._model, name).copy() for name in BOUNDS}
        self._memory.nominal = originals  # known before the first of them is replaced
        if touched:
            setattr(self._env, _MARK, self._memory)
        self._memory.is_half_set = True
        for name in changed:
            self._write(name, wanted[name])
        self._memory.settings = {path: float(value) for path, value in params.items()}
        if any(name not in _UNDERIVED and not name.startswith("opt_") for name in changed):
            compute_again(self._model)
        if any(name in _BOUNDING for name in changed):
            moved = {n: (wanted[n] != originals[n]).any(axis=1) for n in touched if n in _BOUNDING}
            compute_bounds_again(self._model, self._memory.bounds, moved)
        self._memory.is_half_set = False

    # -- paths -------------------------------------------------------------------------------------------------------

    def _entry(self, path: str, value: float) -> _Entry:
        attribute, *keys = path.split(":")
        array = self._array(attribute)
        if array is None:
            raise DataError(str(unknown_name("attribute of the MuJoCo model", attribute, self.attributes())))
        if len(keys) > 2 or "" in keys:
            raise DataError(
                f"path {path!r} must be attribute, attribute:element or attribute:element:column, "
                "for instance 'geom_friction:floor:0'"
            )
        width = array.shape[1]
        rows = self._rows(attribute, keys[0] if keys else None, len(array))
        is_factor = "*" in keys
        columns: Any = slice(None)
        if len(keys) == 2 and keys[1] != "*":
            columns = _number_of(keys[1], width)
            if columns is None:
                raise DataError(f"{attribute!r} has columns 0 to {width - 1}, got {keys[1]!r} in {path!r}")
        elif width > 1 and not is_factor:
            if attribute not in _FIRST_COLUMN:
                raise ShapeError(
                    f"{attribute!r} has {width} columns; name one as in "
                    f"'{attribute}:{keys[0] if keys else 0}:0', or scale all with '{attribute}:*', got {path!r}"
                )
            columns = 0
        _check_value(attribute, path, value)
        return _Entry(attribute, rows, columns, float(value), is_factor)

    def _rows(self, attribute: str, element: str | None, count: int) -> Any:
        if element == "*":
            return slice(None)
        if element is None:
            return slice(1, None) if attribute.startswith("body_") else slice(None)
        kind = _KINDS.get(attribute.partition("_")[0])
        names = [] if kind is None else self._names(kind)
        if element in names:
            index = names.index(element)
            return np.flatnonzero(self._model.dof_jntid == index) if attribute.startswith("dof_") else index
        number = _number_of(element, count)
        if number is not None:
            return number
        known = [name for name in names if name]
        if not known:
            raise DataError(f"{attribute!r} has elements 0 to {count - 1} without names, got {element!r}")
        raise DataError(str(unknown_name(f"{kind} of the MuJoCo model (in {attribute!r})", element, known)))

    def _names(self, kind: str) -> list[str]:
        count = getattr(self._model, _COUNTS.get(kind, f"n{kind}"))
        find = getattr(self._model, kind)
        return [find(number).name for number in range(count)]

    # -- arrays ------------------------------------------------------------------------------------------------------

    def _array(self, attribute: str) -> np.ndarray | None:
        """The values ``(rows, columns)`` of an attribute, not a copy; ``None`` if there is no such attribute."""
        is_option = attribute.startswith("opt_")
        value = getattr(self._model.opt if is_option else self._model, attribute.removeprefix("opt_"), None)
        if attribute.startswith("_") or not (_is_option(value) if is_option else _is_floats(value)):
            return None
        array = np.asarray(value, dtype=np.float64) if is_option else np.asarray(value)
        return array.reshape(len(array) if array.ndim else 1, -1)

    def _known(self, attribute: str) -> np.ndarray:
        array = self._array(attribute)
        if array is None:
            raise DataError(str(unknown_name("attribute of the MuJoCo model", attribute, self.attributes())))
        return array

    def _write(self, attribute: str, values: np.ndarray) -> None:
        if not attribute.startswith("opt_"):
            target = getattr(self._model, attribute)
            target[...] = values.reshape(target.shape)
            return
        name = attribute.removeprefix("opt_")
        target = getattr(self._model.opt, name)
        if isinstance(target, np.ndarray):
            target[...] = values.reshape(target.shape)
        else:
            setattr(self._model.opt, name, float(values[0, 0]))


def _is_floats(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind == "f" and value.size > 0 and value.ndim in (1, 2)


def _is_option(value: Any) -> bool:
    return _is_floats(value) or isinstance(value, float)


def _number_of(text: str, count: int) -> int | None:
    """A whole number below ``count``, or ``None``."""
    number = int(text) if text.isdecimal() else -1
    return number if 0 <= number < count else None


def _check_value(attribute: str, path: str, value: Any) -> None:
    if attribute in _POSITIVE and not value > 0:
        raise ValueError(f"{path!r} must be positive, got {value}")
    if attribute in _NOT_NEGATIVE and not value >= 0:
        raise ValueError(f"{path!r} must not be negative, got {value}")
