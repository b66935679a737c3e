"""Physical constants of a simulation (domain parameters) as a change to an environment (specs/sampling.md 11, 16.2)."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from typing import Any

import numpy as np

from metaroll.errors import DataError, unknown_name
from metaroll.tasks.updates import env_layers, layer_with, task_key
from metaroll.types import EnvUpdate

__all__ = ["DomainParamUpdate", "domain_params_of"]


class DomainParamUpdate(EnvUpdate):
    """Sets domain parameters, ``{"g": 9.81, "m": 1.2}``.

    The environment, or the outermost wrapper that can, receives them through a method ``set_domain_param(dict)``, or
    else a property ``domain_param`` (a dict of all parameters that can be set). An environment with neither gets them
    as attributes, if it has attributes of these names that are numbers: ``g``, ``m`` and ``l`` of ``Pendulum-v1``.

    Values are absolute, so setting the same names again leaves nothing of the ones before; after other names, the
    engine starts from an untouched environment.

    Args:
        params: Name -> number (also a 0-dimensional or one-element array or tensor).

    Note:
        Attributes of an environment from which others were computed in its constructor do not change those:
        ``CartPole-v1`` keeps its ``total_mass`` when ``masspole`` is set. Set these as well.
    """

    def __init__(self, params: Mapping[str, Any]) -> None:
        if not isinstance(params, Mapping):
            raise TypeError(f"params must be a dict of names and numbers, got {type(params).__name__}")
        self.task = {str(name): _as_number(name, value) for name, value in params.items()}

    def __call__(self, old_env: Any = None) -> Any:
        if old_env is None:
            raise ValueError("DomainParamUpdate changes an environment, got None; make one first")
        if self.task:
            self._apply(old_env)
        return old_env

    def replaces(self, previous: EnvUpdate) -> bool:
        """Whether all that ``previous`` has set is set again."""
        return isinstance(previous, DomainParamUpdate) and previous.task.keys() <= self.task.keys()

    def _apply(self, env: Any) -> None:
        setter = layer_with(env, "set_domain_param")
        owner = _layer_offering(env, "domain_param")
        if owner is not None and isinstance(owner.domain_param, Mapping):
            self._check_known(env, owner.domain_param)
        if setter is not None:
            setter.set_domain_param(dict(self.task))
        elif owner is not None:
            owner.domain_param = dict(self.task)
        else:
            *_, inner = env_layers(env)
            known = _numeric_attributes(inner)
            self._check_known(env, known)
            for name, value in self.task.items():
                whole = type(known[name]) is int and value.is_integer()
                setattr(inner, name, int(value) if whole else value)

    def _check_known(self, env: Any, known: Mapping[str, Any]) -> None:
        for name in self.task:
            if name not in known:
                what = f"domain parameter of {type(getattr(env, 'unwrapped', env)).__name__}"
                raise DataError(str(unknown_name(what, name, known)))

    def __eq__(self, other: object) -> bool:
        if type(other) is not DomainParamUpdate:
            return NotImplemented
        return self.task == other.task

    def __hash__(self) -> int:
        return hash((DomainParamUpdate, task_key(self.task)))

    def __repr__(self) -> str:
        return f"DomainParamUpdate({self.task!r})"


def domain_params_of(env: Any) -> dict[str, Any] | None:
    """The present domain parameters, where the environment or a wrapper offers ``domain_param``; else ``None``."""
    owner = _layer_offering(env, "domain_param")
    params = None if owner is None else owner.domain_param
    return dict(params) if isinstance(params, Mapping) else None


def _layer_offering(env: Any, name: str) -> Any:
    """The outermost layer that itself has the attribute ``name``."""
    return next((layer for layer in env_layers(env) if hasattr(layer, name)), None)


def _numeric_attributes(env: Any) -> dict[str, Any]:
    """Public attributes that are numbers, of the object and its classes; properties are left alone."""
    found: dict[str, Any] = {}
    for kind in reversed(type(env).__mro__):
        found.update(vars(kind))
    found.update(getattr(env, "__dict__", {}))
    return {
        name: value
        for name, value in found.items()
        if isinstance(value, Real) and not isinstance(value, bool) and not name.startswith("_")
    }


def _as_number(name: str, value: Any) -> float:
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        array = np.zeros(0)
    if array.size != 1 or isinstance(value, str):
        raise TypeError(f"domain parameter {name!r} must be a number, got {value!r}")
    number = float(array.reshape(()))
    if not np.isfinite(number):
        raise ValueError(f"domain parameter {name!r} must be finite, got {number}")
    return number
