"""Copies of environments with the configuration of the original."""

from __future__ import annotations

import contextlib
import copy
import math
import warnings
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any

import gymnasium
import numpy as np

from metaroll.tasks.updates import env_layers

__all__ = ["copy_env"]

_ABSENT = object()
_PLAIN = (bool, int, float, complex, str, bytes, np.generic, np.ndarray, Enum, gymnasium.Space, type(None))
_DEEPEST = 8  # depth of nested lists and dicts; deeper parts are not compared
_TRIED_STEPS = 3
_HINT = (
    "pass a function that makes it instead of the environment, for instance def make(): env = ...; return env: what "
    "a function makes is used as it is"
)


def copy_env(env: Any) -> Any:
    """A deep copy of ``env`` with the same configuration.

    Environments may define how they are copied: Gymnasium's ``EzPickle`` rebuilds them from the arguments of their
    constructor, so that later changes are lost. Compared are the arrays and options of a simulator's
    model and all attributes of the layers that are plain values (numbers, texts, arrays, spaces, and containers of
    such) and that episodes leave alone: what a reset or a few steps change is state, not configuration. Generators,
    renderers and other objects that cannot be compared do not count.

    Raises:
        TypeError: It cannot be copied.
        ValueError: The copy is configured otherwise; names what differs.
    """
    copied = _deep_copy(env)
    changed = {path: values for path, values in _differences(env, copied)}
    if changed:
        for path in _episode_state(copied, set(changed)):
            del changed[path]
    if changed:
        shown = "; ".join(
            f"{path} is {_shown(a)}, in the copy {_shown(b)}" for path, (a, b) in list(changed.items())[:4]
        )
        raise ValueError(
            f"env of type {type(env).__name__} cannot be copied as it is: {shown}"
            f"{f' (and {len(changed) - 4} more)' if len(changed) > 4 else ''}; {_HINT}"
        )
    return copied


def _deep_copy(env: Any) -> Any:
    try:
        return copy.deepcopy(env)
    except Exception as error:
        raise TypeError(f"env of type {type(env).__name__} cannot be copied ({error}); {_HINT}") from error


def _differences(env: Any, copied: Any) -> Iterator[tuple[str, tuple[Any, Any]]]:
    """Path, original value and copied value of each difference."""
    for path, mine, other in _layer_pairs(env, copied):
        first, second = _attributes(mine), _attributes(other)
        for name in [*first, *(name for name in second if name not in first)]:
            a, b = first.get(name, _ABSENT), second.get(name, _ABSENT)
            if a is _ABSENT or b is _ABSENT:
                there = b if a is _ABSENT else a
                if isinstance(there, _PLAIN) or callable(there):
                    yield path + name, (a, b)
            elif _is_model(a) and _is_model(b):
                for part, (x, y) in _model_differences(a, b):
                    yield f"{path}{name}.{part}", (x, y)
            elif not _same(a, b):
                yield path + name, (a, b)


def _layer_pairs(env: Any, copied: Any) -> Iterator[tuple[str, Any, Any]]:
    path = "env."
    for mine, other in zip(env_layers(env), env_layers(copied), strict=False):
        innermost = getattr(mine, "env", None) is None
        yield "env.unwrapped." if innermost and path != "env." else path, mine, other
        path += "env."


def _attributes(layer: Any) -> dict[str, Any]:
    """Attributes of a layer itself, without metaroll's marks and the wrapped environment."""
    return {
        name: value
        for name, value in getattr(layer, "__dict__", {}).items()
        if name != "env" and not name.startswith("_metaroll_")
    }


def _is_model(value: Any) -> bool:
    """Whether it is the model of a simulator: MuJoCo's ``MjModel``, which holds its own arrays and options."""
    return type(value).__name__ == "MjModel" and type(value).__module__.partition(".")[0] == "mujoco"


def _model_differences(first: Any, second: Any) -> Iterator[tuple[str, tuple[Any, Any]]]:
    for prefix, a, b in (("", first, second), ("opt.", first.opt, second.opt)):
        for name in dir(a):
            if name.startswith("_"):
                continue
            x, y = getattr(a, name), getattr(b, name, _ABSENT)
            if isinstance(x, np.ndarray | int | float) and not _same(x, y):
                yield prefix + name, (x, y)


def _same(first: Any, second: Any, depth: int = 0) -> bool:
    """Whether two values are equal, as far as they can be compared (NaN equals NaN)."""
    if first is second or depth > _DEEPEST:
        return True
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        return first.keys() == second.keys() and all(_same(first[key], second[key], depth + 1) for key in first)
    if isinstance(first, list | tuple) and isinstance(second, list | tuple):
        pairs = zip(first, second, strict=False)
        return len(first) == len(second) and all(_same(a, b, depth + 1) for a, b in pairs)
    if not (isinstance(first, _PLAIN) and isinstance(second, _PLAIN)):
        return True
    if isinstance(first, np.ndarray) or isinstance(second, np.ndarray):
        a, b = np.asarray(first), np.asarray(second)
        if a.dtype.hasobject or b.dtype.hasobject:
            return True
        return np.array_equal(a, b, equal_nan=a.dtype.kind in "fc" and b.dtype.kind in "fc")
    if isinstance(first, float) and isinstance(second, float) and math.isnan(first) and math.isnan(second):
        return True
    return bool(first == second)


def _episode_state(copied: Any, paths: set[str]) -> set[str]:
    """Those of ``paths`` that episodes change: tried with a copy of the copy. All of them, if it does not run."""
    probe = _deep_copy(copied)
    moved: set[str] = set()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for _ in _short_episodes(probe):
                moved |= {path for path, _ in _differences(copied, probe)} & paths
    except Exception:  # it fails in a rollout, too, which raises
        return paths
    finally:
        with contextlib.suppress(Exception):
            probe.close()
    return moved


def _short_episodes(env: Any) -> Iterator[None]:
    """Resets ``env`` and steps it a little; after each of that it yields."""
    env.action_space.seed(0)
    for seed in (0, 1):
        env.reset(seed=seed)
        yield
        for _ in range(_TRIED_STEPS):
            _, _, terminated, truncated, _ = env.step(env.action_space.sample())
            yield
            if terminated or truncated:
                break


def _shown(value: Any) -> str:
    if value is _ABSENT:
        return "absent"
    text = " ".join(np.array2string(value, threshold=6, precision=4).split()) if isinstance(value, np.ndarray) else ""
    return text or (repr(value) if len(repr(value)) < 80 else f"{repr(value)[:77]}...")
