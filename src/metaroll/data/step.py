"""Single steps: proxies that read one index of a rollout, or of a dict of sequences, without copying anything."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import torch

from metaroll.data.data_format import new_tuple
from metaroll.data.step_storage import FLAGS, StepStorage
from metaroll.errors import DataError

__all__ = ["DictIndexProxy", "Step"]


class DictIndexProxy:
    """Views a slice through a dict of lists, arrays or tensors.

    ``proxy.name`` and ``proxy["name"]`` are entry ``index`` of ``obj["name"]``, or of ``obj["names"]`` if there is no
    "name". Dicts inside give proxies, tuples give tuples. Nothing is cached. Assigning writes into the sequences;
    a name that is not in ``obj`` becomes a plain attribute of the proxy.

    Args:
        obj: The dict.
        index: Position in each of its sequences.
        path: Where the dict comes from (``"policy_infos.latent"``), for messages.
    """

    def __init__(self, obj: Any, index: int, path: str | None = None) -> None:
        self.__dict__.update(_obj=obj, _index=index, _path=path)

    def _field(self, name: str) -> str | None:
        """The key for ``name``; an exact match goes first."""
        keys = self._keys()
        return name if name in keys else f"{name}s" if f"{name}s" in keys else None

    def _keys(self) -> Any:
        return self._obj

    def _locate(self, key: str) -> tuple[Any, int, str]:
        """Sequence, index in it, and its path, of a key that ``_field`` returned."""
        return self._obj[key], self._index, self._join(key)

    def _join(self, key: str) -> str:
        return f"{self._path}.{key}" if self._path else str(key)

    def _find(self, name: str) -> Any:
        key = self._field(name) if isinstance(name, str) else None
        if key is None:
            where = f" in {self._path!r}" if self._path else ""
            raise DataError(f"there is no field {name!r}{where}; fields: {', '.join(map(str, self._keys()))}")
        return _entry(*self._locate(key))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "_obj" not in self.__dict__:
            raise AttributeError(name)
        try:
            return self._find(name)
        except (IndexError, KeyError, TypeError) as error:
            raise AttributeError(str(error.args[0])) from None

    def __getitem__(self, name: str) -> Any:
        return self._find(name)

    def __setattr__(self, name: str, value: Any) -> None:
        try:
            key = self._field(name)
            target = None if key is None else self._locate(key)
        except KeyError as error:
            raise AttributeError(error.args[0]) from None
        if target is None:
            object.__setattr__(self, name, value)
            return
        sequence, index, path = target
        if isinstance(sequence, dict | tuple):
            raise TypeError(f"{path!r} holds several sequences; assign to one of them")
        sequence[index] = value

    def __setitem__(self, name: str, value: Any) -> None:
        self._find(name)  # raises if there is none
        setattr(self, name, value)

    def __dir__(self) -> list[str]:
        return sorted(str(key) for key in self._keys() if not str(key).startswith("_"))

    def _extras(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_obj", "_index", "_path")}

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (type(self), (self._obj, self._index, self._path), self._extras())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._path or 'dict'}[{self._index}]: {', '.join(dir(self))})"


class Step(DictIndexProxy):
    """A single step of a rollout: ``step.observation`` is the entry of ``rollout.observations`` at this step.

    The prefix ``next_`` gives the entry of the next step, at the end of a rollout its final entry if that is stored
    (``step.next_observation``), else an error: it never comes from another rollout. Fields that really are called
    ``next_...`` go first. ``step.done``, ``step.terminated`` and ``step.truncated`` are bools.

    Args:
        rollout: The sequence that this step belongs to.
        index: Position of the step, negative ones count from the end.
    """

    def __init__(self, rollout: StepStorage, index: int) -> None:
        length, index = len(rollout), operator.index(index)
        if not -length <= index < length:
            raise IndexError(f"step {index} is out of range for a rollout of {length} steps")
        super().__init__(rollout, index + length if index < 0 else index)

    def _keys(self) -> Any:
        return (*self._obj.data_names, *FLAGS)

    def _field(self, name: str) -> str | None:
        key = super()._field(name)
        if key is None and name.startswith("next_"):
            following = super()._field(name[len("next_") :])
            return None if following is None or following in FLAGS else f"next_{following}"
        return key

    def _locate(self, key: str) -> tuple[Any, int, str]:
        if key in self._obj.data_names or key in FLAGS:
            return getattr(self._obj, key), self._index, key
        return *self._obj.locate_next(key[len("next_") :], self._index), key

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (type(self), (self._obj, self._index), self._extras())


def _restore(cls: type[DictIndexProxy], arguments: tuple[Any, ...], extras: dict[str, Any]) -> DictIndexProxy:
    proxy = cls(*arguments)
    proxy.__dict__.update(extras)
    return proxy


def _entry(value: Any, index: int, path: str) -> Any:
    if isinstance(value, dict):
        return DictIndexProxy(value, index, path)
    if isinstance(value, tuple):
        return new_tuple(type(value), [_entry(item, index, path) for item in value])
    if isinstance(value, np.ndarray | torch.Tensor | list):
        return value[index]
    raise TypeError(f"{path!r} is a {type(value).__name__}, not a sequence of steps")
