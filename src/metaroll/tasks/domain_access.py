"""Access to the constants of a simulation through all wrappers: checked, set and read by name.

An environment offers them in one of these ways, looked for in this order:

- a method ``set_domain_param(dict)``, of the environment or a wrapper;
- a property ``domain_param``, a dict of all parameters that can be set;
- entries of the simulator's model, where that is one of ``MODEL_ACCESS`` (MuJoCo);
- attributes that are numbers.

A wrapper that adds or converts parameters has ``own_domain_params`` (the names that it adds),
``set_domain_param(dict)`` and ``read_domain_params(names)``, and asks this module for those of the environment inside.
"""

from __future__ import annotations

import importlib
import operator
import re
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping
from numbers import Real
from typing import Any

from metaroll.errors import DataError, unknown_name
from metaroll.tasks.updates import env_layers, layer_with

__all__ = [
    "check_param_names",
    "check_param_ranges",
    "derived_attributes",
    "domain_params_of",
    "is_possible",
    "read_domain_params",
    "set_domain_params",
    "warn_out_of_reach",
]

_CLASSIC = "gymnasium.envs.classic_control."
MODEL_ACCESS = {"mujoco": "metaroll.envs.mujoco.model_params"}
"""Package of ``env.unwrapped.model`` -> module with ``model_params_of(env)``.

A name, as Gymnasium's entry points are: what is below environments must not import them, nor a simulator.
"""


_DERIVED: dict[str, dict[str, tuple[tuple[str, str], Callable[[float, float], float]]]] = {
    "CartPoleEnv": {
        "total_mass": (("masspole", "masscart"), operator.add),
        "polemass_length": (("masspole", "length"), operator.mul),
    },
}
"""Class of ``gymnasium.envs.classic_control`` -> attribute that its constructor computes -> of which others, how."""


_HAVE_A_SIGN = re.compile("mass|length|inertia|friction|damping|stiffness|radius|density|viscosity|gravity|^[mgl]$")
"""Names of constants for which the other sign is hardly intended."""
_POSITIVE: dict[str, tuple[str, ...]] = {
    "CartPoleEnv": ("masscart", "masspole", "length", "tau"),
    "PendulumEnv": ("m", "l", "dt"),
    "AcrobotEnv": ("LINK_MASS_1", "LINK_MASS_2", "LINK_LENGTH_1", "LINK_LENGTH_2", "LINK_MOI", "dt"),
}
"""Class of ``gymnasium.envs.classic_control`` -> attributes that are masses, lengths or times, not checked there."""


def check_param_names(env: Any, names: Collection[str]) -> None:
    """Raise a DataError (a KeyError) with the nearest names unless all of ``names`` can be set in ``env``."""
    paths = _check_plain_names(env, names)
    if paths:
        _model_params(env).check(paths)


def check_param_ranges(env: Any, ranges: Mapping[str, tuple[float, float]]) -> None:
    """Set both ends of ranges, so that invalid values raise early. Leaves ``env`` at the upper ends.

    Warns where a range changes the sign of a mass, a length, a friction ... that the environment has by itself.

    Args:
        env: The environment.
        ranges: Name -> lowest and highest value.

    Raises:
        DataError: It lacks a parameter.
        ValueError: It refuses an end.
    """
    check_param_names(env, ranges)
    try:
        present = read_domain_params(env, ranges)
    except TypeError:  # it does not report them
        present = {}
    for end in (0, 1):
        set_domain_params(env, {name: span[end] for name, span in ranges.items()})
    for name, value in present.items():
        low, high = ranges.get(name, (value, value))
        if min(low * value, high * value) < 0.0 and _HAVE_A_SIGN.search(name.lower()):
            of = type(getattr(env, "unwrapped", env)).__name__
            warnings.warn(
                f"{name} is {value:g} in {of}, and its range from {low:g} to {high:g} changes the sign: is that meant?",
                stacklevel=3,
            )


def is_possible(kind: str, values: Mapping[str, float]) -> bool:
    """Whether ``values`` of attributes of one of Gymnasium's classic-control environments mean something.

    Args:
        kind: Name of its class.
        values: Some or all of its attributes.
    """
    return all(values[name] > 0.0 for name in _POSITIVE.get(kind, ()) if name in values)


def _check_plain_names(env: Any, names: Collection[str]) -> list[str]:
    """Check all but the paths into the simulator's model, which checks them whenever they are set or read; those."""
    own = {name for layer in env_layers(env) for name in getattr(layer, "own_domain_params", ())}
    open_names = [name for name in names if name not in own]
    owner, paths, model = _owner(env), [], None
    known: Mapping[str, Any] = {}
    if owner is not None:
        known = owner.domain_param
    elif _foreign_setter(env) is not None:
        return []  # it has to check itself
    else:
        model = _model_params(env)
        if model is not None:
            paths = [name for name in open_names if model.claims(name)]
            open_names = [name for name in open_names if name not in paths]
        if open_names:  # to list them takes as long as an episode of a few steps
            known = _numeric_attributes(_innermost(env))
    for name in open_names:
        if name not in known:
            what = f"domain parameter of {type(getattr(env, 'unwrapped', env)).__name__}"
            in_model = [] if model is None else model.attributes()  # hundreds are listed, which is for errors alone
            raise DataError(str(unknown_name(what, name, {*known, *own, *in_model} - {"dt"})))
    return paths


def set_domain_params(env: Any, params: Mapping[str, float]) -> None:
    """Set parameters, all or (where a name or value is wrong) none of them."""
    _check_plain_names(env, params)
    setter = layer_with(env, "set_domain_param")
    owner = _owner(env)
    if setter is not None:
        setter.set_domain_param(dict(params))
    elif owner is not None:
        if params:
            owner.domain_param = dict(params)
    else:
        _set_innermost(env, params)


def read_domain_params(env: Any, names: Iterable[str]) -> dict[str, float]:
    """Current values of ``names``, and of other entries that have been set in the simulator's model.

    Left out are names of several entries that differ from one another (``dof_damping`` of a robot).
    """
    names = list(names)
    _check_plain_names(env, names)
    for layer in env_layers(env):
        if hasattr(layer, "own_domain_params"):
            return layer.read_domain_params(names)
        if isinstance(getattr(layer, "domain_param", None), Mapping):
            present = layer.domain_param
            return {name: float(present[name]) for name in names}
    if _foreign_setter(env) is not None:
        raise TypeError(
            f"{type(getattr(env, 'unwrapped', env)).__name__} has set_domain_param(dict), but does not report its "
            "domain parameters; give it a property domain_param"
        )
    inner, model = _innermost(env), _model_params(env)
    if model is None:
        return {name: float(getattr(inner, name)) for name in names}
    plain = {name: float(getattr(inner, name)) for name in names if not model.claims(name)}
    return {**model.settings(), **plain, **model.read([name for name in names if model.claims(name)])}


def domain_params_of(env: Any) -> dict[str, Any] | None:
    """The present domain parameters, where the environment or a wrapper offers ``domain_param``, or what has been set
    in the simulator's model; else ``None``.
    """
    for layer in env_layers(env):
        params = getattr(layer, "domain_param", None)
        if params is not None:
            return dict(params) if isinstance(params, Mapping) else None
    model = _model_params(env)
    return None if model is None else model.settings() or None


def _owner(env: Any) -> Any:
    """The outermost layer that itself offers ``domain_param``, other than wrappers that pass on."""
    return next(
        (
            layer
            for layer in env_layers(env)
            if not hasattr(layer, "own_domain_params") and isinstance(getattr(layer, "domain_param", None), Mapping)
        ),
        None,
    )


def _foreign_setter(env: Any) -> Any:
    """The outermost ``set_domain_param`` that is not ours."""
    for layer in env_layers(env):
        if not hasattr(layer, "own_domain_params") and callable(getattr(layer, "set_domain_param", None)):
            return layer
    return None


def _set_innermost(env: Any, params: Mapping[str, float]) -> None:
    inner, model = _innermost(env), _model_params(env)
    plain = dict(params)
    if model is not None:
        model.set({name: plain.pop(name) for name in params if model.claims(name)})
    known = _numeric_attributes(inner) if plain else {}
    kind = next((k.__name__ for k in type(inner).__mro__ if k.__module__.startswith(_CLASSIC)), "")
    for name, value in plain.items():
        if not is_possible(kind, {name: value}):
            raise ValueError(f"{name!r} of {kind} must be positive, got {value}")
    for name, value in plain.items():
        whole = type(known[name]) is int and value.is_integer()
        setattr(inner, name, int(value) if whole else value)
    if plain and kind:
        present = _numeric_attributes(inner)
        for name, value in derived_attributes(kind, present, plain).items():
            setattr(inner, name, value)
        warn_out_of_reach(kind, present, inner.action_space)


def derived_attributes(kind: str, values: Mapping[str, float], changed: Collection[str]) -> dict[str, float]:
    """Attributes that follow from those set in one of Gymnasium's classic-control environments.

    Args:
        kind: Name of its class.
        values: Its current attributes.
        changed: Attributes that have been set, which are excluded from the result.
    """
    return {
        name: compute(*(values[part] for part in parts))
        for name, (parts, compute) in _DERIVED.get(kind, {}).items()
        if name not in changed and any(part in changed for part in parts)
    }


def warn_out_of_reach(kind: str, values: Mapping[str, float], action_space: Any) -> None:
    """Warn of a pendulum's ``max_torque`` beyond its action space, which no policy that acts in bounds can use."""
    if kind == "PendulumEnv" and values["max_torque"] > float(action_space.high.max()):
        warnings.warn(
            "max_torque lies above the action space of PendulumEnv, so policies that act within its bounds are not any "
            "stronger; make the environment with a larger action_space (and max_torque), and vary it below that",
            stacklevel=2,
        )


def _innermost(env: Any) -> Any:
    *_, inner = env_layers(env)
    return inner


def _model_params(env: Any) -> Any:
    """Access to the simulator's model by name, if there is one that is known."""
    model = getattr(getattr(env, "unwrapped", None), "model", None)
    if model is None:
        return None
    module = MODEL_ACCESS.get(type(model).__module__.partition(".")[0])
    return None if module is None else importlib.import_module(module).model_params_of(env)


def _numeric_attributes(env: Any) -> dict[str, Any]:
    """Public attributes that are numbers, of the object and its classes; properties are left alone."""
    attributes: dict[str, Any] = {}
    for kind in reversed(type(env).__mro__):
        attributes.update(vars(kind))
    attributes.update(getattr(env, "__dict__", {}))
    return {
        name: value
        for name, value in attributes.items()
        if isinstance(value, Real) and not isinstance(value, bool) and not name.startswith("_")
    }
