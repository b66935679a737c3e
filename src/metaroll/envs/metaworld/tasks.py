"""Meta-World's tasks: read without unpickling anything, and shown in a form that people can read."""

from __future__ import annotations

import io
import pickle
from typing import Any, NamedTuple

import numpy as np

from metaroll.envs.metaworld.library import env_classes

__all__ = ["MetaWorldTask", "as_task", "read_task"]

_NUMPY = {
    ("_reconstruct", "multiarray"),
    ("_frombuffer", "numeric"),
    ("scalar", "multiarray"),
}
"""Functions with which NumPy pickles arrays and numbers; they live in ``numpy.core`` or ``numpy._core``."""


class MetaWorldTask(NamedTuple):
    """A task as Meta-World has it, equal to its ``metaworld.Task`` of the same values, but shown by its goal.

    Attributes:
        env_name: Such as ``"reach-v3"``.
        data: Class, random vector and visibility of the goal, pickled by Meta-World.
    """

    env_name: str
    data: bytes

    def __repr__(self) -> str:
        return f"MetaWorldTask({self.env_name!r}, {self._vector()})"

    def __str__(self) -> str:
        return f"{self.env_name} {self._vector()}"

    def _vector(self) -> str:
        try:
            return np.array2string(np.asarray(read_task(self)["rand_vec"]), precision=3, separator=", ")
        except (ValueError, KeyError, ImportError):
            return "unreadable"


def as_task(task: Any) -> MetaWorldTask:
    """``task``, Meta-World's or one read from a file, as our type; anything else is an error."""
    env_name, data = getattr(task, "env_name", None), getattr(task, "data", None)
    if not isinstance(env_name, str) or not isinstance(data, bytes):
        raise TypeError(
            f"task must be one of Meta-World's (env_name, data), got {task!r} of type {type(task).__name__}; "
            "take it from benchmark.train_tasks or a MetaWorldTaskSampler"
        )
    return MetaWorldTask(env_name, data)


def read_task(task: Any) -> dict[str, Any]:
    """The contents of a task: ``env_cls``, ``rand_vec`` and ``partially_observable``, and further entries of its class.

    Meta-World keeps it pickled. Tasks may come from a file, so only arrays and Meta-World's own environment classes
    are let through.
    """
    task = as_task(task)
    try:
        data = _TaskReader(io.BytesIO(task.data)).load()
    except Exception as error:
        raise ValueError(f"task of {task.env_name!r} cannot be read: {error}") from error
    if not isinstance(data, dict) or not {"env_cls", "rand_vec", "partially_observable"} <= data.keys():
        raise ValueError(f"task of {task.env_name!r} must hold env_cls, rand_vec and partially_observable")
    return data


class _TaskReader(pickle.Unpickler):
    """Knows NumPy's arrays and Meta-World's environments, nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        parts = module.split(".")
        if parts[0] == "numpy":
            if (module, name) in (("numpy", "ndarray"), ("numpy", "dtype")):
                return getattr(np, name)
            if parts[1:2] in (["core"], ["_core"]) and (name, parts[-1]) in _NUMPY:
                return super().find_class(module, name)
        for known in env_classes().values() if parts[0] == "metaworld" else ():
            if (known.__module__, known.__qualname__) == (module, name):
                return known
        raise pickle.UnpicklingError(f"a task of Meta-World must not hold {module}.{name}")
