"""``Stateful``: a class names the parts of its state once; they are written, and restored all or nothing.

A part is an attribute, and its value decides how it is kept:

- ``None``, numbers, truth values and texts as they are; they come back as the type that is there.
- Arrays and tensors as copies; they come back with the dtype, shape, device and order in memory of those that are
  there. A tensor with a gradient, which an optimizer may hold, is restored in place.
- Generators of NumPy and of torch by their state, modules by their weights and buffers, optimizers of torch by their
  moments and settings; all of these are restored in place.
- Objects with ``state_dict`` and ``load_state_dict``, another ``Stateful`` among them, by these. Among collected data
  the first may take ``copy``, as ``Stateful.buffers_state_dict`` does. It stays unchanged where ``None`` was saved in
  its place.
- Named tuples and dataclasses by their fields, mappings by their keys, lists and tuples by their positions (``"0"``,
  ``"1"``; of plain values alone: as a list). They come back with the entries that are there; only a list of plain
  values may become longer or shorter.
"""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from copy import copy as copy_of
from dataclasses import dataclass
from typing import Any, Protocol, cast, runtime_checkable

import numpy as np

from metaroll.errors import ShapeError, SnapshotError

__all__ = [
    "Part",
    "Parts",
    "Saved",
    "Stateful",
    "check_entries",
    "fingerprint_of",
    "parts",
    "restored",
    "shapes_of",
    "told",
    "tree_of",
]

_PLAIN = (bool, int, float, str)


@dataclass(frozen=True, kw_only=True)
class Part:
    """A part that is kept in its own way.

    Attributes:
        write: Its tree, of the owner.
        restore: Puts a tree into the owner.
    """

    write: Callable[[Any], Any]
    restore: Callable[[Any, Any], None]


Parts = Mapping[str, "str | Part | Parts"]
"""Entry of the tree -> the attribute (``"learner.optimizer"``, ``"moments.0"``), or entries below it."""


def parts(*names: str, **entries: str | Part | Parts) -> Parts:
    """Parts that a class declares.

    Args:
        names: Attributes with the names of their entries.
        entries: Entry -> its attribute, what keeps it, or parts below it.
    """
    return {**dict(zip(names, names, strict=True)), **entries}


@runtime_checkable
class Saved(Protocol):
    """An object with a state that can be saved, declared (``Stateful``) or written by hand."""

    def state_dict(self) -> Any: ...
    def load_state_dict(self, tree: Any, /) -> Any: ...


@runtime_checkable
class _NamedTuple(Protocol):
    def _asdict(self) -> dict[str, Any]: ...


def told(attribute: str) -> Part:
    """A part that is written for readers of the state, and not restored."""
    return Part(write=lambda owner: _written(owner, attribute), restore=lambda owner, tree: None)


class Stateful:
    """Writes and restores the parts that a class names.

    A subclass that adds something by hand extends ``state_dict`` and ``restore_parts``.

    Attributes:
        state_parts: Parts of ``state_dict``, or the one attribute that it is of; ``None``: there is nothing to save.
            A property, where it depends on the object.
        buffer_parts: Parts of ``buffers_state_dict``: collected data, of which only the newest snapshot keeps all.
    """

    # These have no annotation: type checkers would not let a subclass have a property of the name.
    state_parts = cast("Parts | Part | str | None", parts())
    buffer_parts = cast("Parts | Part | str | None", None)

    def state_dict(self) -> dict[str, Any]:
        """The parts as nested dicts of copied arrays, tensors and plain values; without buffers."""
        return _written(self, self.state_parts)

    def load_state_dict(self, tree: Mapping[str, Any]) -> None:
        """Restore ``state_dict``, bitwise identical.

        Raises:
            SnapshotError: ``tree`` does not fit; nothing was changed.
        """
        if _RESTORING.get() is None:
            _load_or_keep(type(self).__name__, self._restore_all, tree, self.state_dict())
        else:  # a part of what is being restored
            self._restore_all(tree)

    def completed_state(self, tree: Mapping[str, Any]) -> Mapping[str, Any]:
        """``tree`` in the form to restore here, if an earlier version or another machine wrote another form."""
        return tree

    def restore_parts(self, tree: Mapping[str, Any]) -> None:
        """Restore the parts one after the other; if this raises, ``load_state_dict`` restores the previous state."""
        _restore(self, self.state_parts, tree)

    def after_restore(self) -> None:
        """Update everything that depends on the parts; called when all of them have been restored."""

    def buffers_state_dict(self, copy: bool = True) -> Mapping[str, Any] | None:
        """Collected data that only the newest snapshot keeps; ``None`` if there are none.

        Args:
            copy: ``False`` allows views, for a caller that writes them to a file at once.
        """
        return _written(self, self.buffer_parts, copy)

    def load_buffers_state_dict(self, tree: Mapping[str, Any]) -> None:
        """Restore ``buffers_state_dict``.

        Raises:
            TypeError: There are no buffers.
            SnapshotError: ``tree`` does not fit; nothing was changed.
        """
        before = self.buffers_state_dict()
        if before is None:
            raise TypeError(f"{type(self).__name__} has no buffers: declare buffer_parts")
        _load_or_keep(type(self).__name__, lambda saved: _restore(self, self.buffer_parts, saved), tree, before)

    def _restore_all(self, tree: Mapping[str, Any]) -> None:
        self.restore_parts(self.completed_state(tree))
        hooks = _RESTORING.get()
        if hooks is not None:
            hooks.append(self.after_restore)


_RESTORING: ContextVar[list[Callable[[], None]] | None] = ContextVar("restoring", default=None)
"""``after_restore`` of all that the present ``_load_or_keep`` has restored; ``None`` outside of one."""


def _load_or_keep(
    name: str, load: Callable[[Mapping[str, Any]], None], tree: Mapping[str, Any], before: Mapping[str, Any]
) -> None:
    """Call ``load(tree)``; where that fails, go back to the state ``before``.

    Args:
        name: Name of the class whose state it is.
        load: Restores a state part by part.
        tree: The state to restore.
        before: The present state.

    Raises:
        SnapshotError: ``tree`` does not fit; all is as it was.
    """
    hooks: list[Callable[[], None]] = []
    is_loaded = False
    token = _RESTORING.set(hooks)
    try:
        load(tree)
        is_loaded = True
        for hook in hooks:
            hook()
    except BaseException as error:
        hooks.clear()
        load(before)
        if is_loaded:
            for hook in hooks:
                hook()
        if isinstance(error, SnapshotError) or not isinstance(error, Exception):
            raise
        cause = error.cause if isinstance(error, _PartError) else error
        place = f"{error}: " if isinstance(error, _PartError) and str(error) else ""
        raise SnapshotError(
            f"the saved state of {name} is damaged, or of one that was built otherwise; nothing was changed "
            f"({place}{type(cause).__name__}: {cause})"
        ) from cause
    finally:
        _RESTORING.reset(token)


def check_entries(name: str, tree: Any, entries: Iterable[str]) -> None:
    """``SnapshotError`` unless the saved state of ``name`` has these entries."""
    if not isinstance(tree, Mapping):
        raise SnapshotError(f"the saved state of {name} must be a dict, as state_dict() gives it, got {tree!r}")
    missing = set(entries) - set(tree)
    if missing:
        raise SnapshotError(
            f"the saved state of {name} lacks {sorted(missing)}: it was made by another algorithm; nothing was changed"
        )


# ------------------------------------------------------------------------------------------------ declared parts
class _PartError(Exception):
    """The part at this place does not fit, because of ``cause``."""

    def __init__(self, place: str, cause: Exception) -> None:
        within = isinstance(cause, _PartError)
        super().__init__(".".join(filter(None, (place, str(cause)))) if within else place)
        self.cause: Exception = cause.cause if within else cause


def _written(owner: Any, part: Parts | Part | str | None, copy: bool | None = None) -> Any:
    if part is None:
        return None
    if isinstance(part, str):
        try:
            holder, name = _place(owner, part)
            return tree_of(_get(holder, name), copy)
        except (AttributeError, IndexError, TypeError) as error:
            raise TypeError(f"part {part!r} of {type(owner).__name__} cannot be saved: {error}") from error
    if isinstance(part, Part):
        return part.write(owner)
    return {key: _written(owner, below, copy) for key, below in part.items()}


def _restore(owner: Any, part: Parts | Part | str | None, tree: Any, where: str = "") -> None:
    if part is None:
        return
    if isinstance(part, Mapping):
        check_entries(".".join(filter(None, (type(owner).__name__, where))), tree, part)
        for key, below in part.items():
            _restore(owner, below, tree[key], f"{where}.{key}" if where else key)
        return
    try:
        if isinstance(part, Part):
            part.restore(owner, tree)
            return
        holder, name = _place(owner, part)
        own = _get(holder, name)
        value = restored(own, tree)
        if value is not own:
            _set(holder, name, value)
    except SnapshotError:
        raise
    except Exception as error:
        raise _PartError(where, error) from error


def _place(owner: Any, path: str) -> tuple[Any, str]:
    """The owner of the attribute at ``path``, and its name there."""
    *holders, name = path.split(".")
    for holder in holders:
        owner = _get(owner, holder)
    return owner, name


def _get(holder: Any, name: str) -> Any:
    return holder[int(name)] if name.isdecimal() else getattr(holder, name)


def _set(holder: Any, name: str, value: Any) -> None:
    if name.isdecimal():
        holder[int(name)] = value
    else:
        setattr(holder, name, value)


# ------------------------------------------------------------------------------------------------ values
def tree_of(value: Any, copy: bool | None = None) -> Any:
    """``value`` as a tree of arrays, tensors and plain values.

    Args:
        value: See above.
        copy: For collected data: whether views will not do. ``None`` means that ``value`` is something else.

    Raises:
        TypeError: It is nothing that can be saved.
    """
    plain = _without_numpy(value)
    if plain is None or isinstance(plain, _PLAIN):
        return plain
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject:
            raise TypeError("an array of objects cannot be saved: keep a list of arrays or numbers")
        return value if copy is False else value.copy()
    if isinstance(value, np.random.Generator):
        return value.bit_generator.state
    if isinstance(value, Stateful):
        return _saved_tree(value, copy)
    entries = _entries(value)
    if entries is None:
        return _torch_tree(value, copy)
    if _is_plain_sequence(value):
        return list(value)
    return {name: tree_of(entry, copy) for name, entry in entries.items()}


def restored(own: Any, tree: Any) -> Any:
    """What ``tree_of`` was taken of, like ``own``, which is changed where it is kept in place.

    Raises:
        KeyError: An entry is missing.
        ShapeError: An array has another shape, or a list another length.
        TypeError: ``own`` is nothing that can be saved.
    """
    if own is None:
        if tree is not None:
            raise TypeError(f"must be None, as it is here, got {type(tree).__name__}")
        return None
    if isinstance(own, _PLAIN):
        return _plain(own, tree)
    if isinstance(own, np.generic):
        return type(own)(_plain(own.item(), tree))
    if isinstance(own, np.ndarray):
        loaded, value = _checked_shape(np.asarray(tree), own), np.empty_like(own)
        with np.errstate(all="ignore"):  # missing entries are an error below
            value[...] = loaded.real if loaded.dtype.kind == "c" and own.dtype.kind != "c" else loaded
        if loaded.dtype != own.dtype:
            rounded = loaded.dtype.kind == own.dtype.kind == "f"
            kept = np.isfinite(value) == np.isfinite(loaded) if rounded else value == loaded
            _check_kept(bool(np.all(kept)), loaded.dtype, own.dtype)
        return value
    if isinstance(own, np.random.Generator):
        own.bit_generator.state = tree
        return own
    if isinstance(own, Stateful):
        return _saved_restored(own, tree)
    entries = _entries(own)
    return _torch_restored(own, tree) if entries is None else _container(own, entries, tree)


def _without_numpy(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _plain(own: bool | int | float | str, tree: Any) -> bool | int | float | str:
    """``tree`` as the type of ``own``: numbers that lose nothing by it, and the same type otherwise."""
    kind = type(own)
    value = tree.item() if isinstance(tree, np.generic | np.ndarray) and tree.ndim == 0 else tree
    if isinstance(value, bool | str) or kind in (bool, str):
        fits = isinstance(value, kind) and isinstance(value, bool) == (kind is bool)
    else:
        fits = isinstance(value, int | float) and (kind is float or value == int(value))
    if not fits:
        raise TypeError(f"must be of type {kind.__name__}, got {value!r}")
    return kind(value)


def _is_plain_sequence(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(entry, _PLAIN) for entry in value)


def _saved_tree(value: Any, copy: bool | None) -> Any:
    takes_copy = copy is not None and "copy" in inspect.signature(value.state_dict).parameters
    return value.state_dict(copy=copy) if takes_copy else value.state_dict()


def _saved_restored(own: Saved, tree: Any) -> Saved:
    if tree is not None:
        own.load_state_dict(tree)
    return own


def _entries(value: Any) -> dict[str, Any] | None:
    """Entries of a container by name."""
    if isinstance(value, Mapping):
        return {str(name): entry for name, entry in value.items()}
    if isinstance(value, _NamedTuple):
        return value._asdict()
    if isinstance(value, list | tuple):
        return {str(number): entry for number, entry in enumerate(value)}
    if dataclasses.is_dataclass(value) and not isinstance(value, Saved):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return None


def _container(own: Any, entries: Mapping[str, Any], tree: Any) -> Any:
    if isinstance(own, list) and _is_plain_sequence(own) and _is_plain_sequence(tree):
        return list(tree)
    if isinstance(tree, list | tuple):
        tree = {str(number): entry for number, entry in enumerate(tree)}
    if isinstance(own, list | tuple) and len(tree) != len(own):
        raise ShapeError(f"there must be {len(own)} entries, got {len(tree)}")
    if unknown := [str(name) for name in tree if name not in entries]:
        raise ShapeError(
            f"there must be the entries that are here ({', '.join(entries) or 'none'}), got also {', '.join(unknown)}"
        )
    values = {}
    for name, entry in entries.items():
        try:
            values[name] = restored(entry, tree[name])
        except SnapshotError:
            raise
        except Exception as error:
            raise _PartError(name, error) from error
    if all(values[name] is entry for name, entry in entries.items()):
        return own
    if isinstance(own, dict):
        made = copy_of(own)
        made.update(zip(own, values.values(), strict=True))
        return made
    if isinstance(own, Mapping):
        return dict(zip(own, values.values(), strict=True))
    if isinstance(own, _NamedTuple) or dataclasses.is_dataclass(own):
        return cast("Any", type(own))(**values)
    return type(own)(values.values())


def _check_kept(kept: bool, loaded: Any, own: Any) -> None:
    if not kept:
        raise ShapeError(f"must have values that {own} can hold, as it is here, got others of {loaded}")


def _checked_shape(value: Any, own: Any) -> Any:
    if value.shape != own.shape:
        raise ShapeError(f"must have shape {tuple(own.shape)}, got {tuple(value.shape)}")
    return value


# ------------------------------------------------------------------------------------------------ torch
def _torch_tree(value: Any, copy: bool | None) -> Any:
    import torch

    if isinstance(value, torch.Tensor):
        return value.detach() if copy is False else value.detach().clone()
    if isinstance(value, torch.Generator):
        return value.get_state()
    if isinstance(value, torch.nn.Module):
        return _weights_of(value)
    if isinstance(value, torch.optim.Optimizer):
        return _optimizer_tree(value)
    if isinstance(value, Saved):
        return _saved_tree(value, copy)
    raise TypeError(f"a {type(value).__name__} cannot be saved: give it state_dict() and load_state_dict(tree)")


def _torch_restored(own: Any, tree: Any) -> Any:
    import torch

    if isinstance(own, torch.Tensor):
        loaded = _checked_shape(torch.as_tensor(tree), own)
        if loaded.dtype != own.dtype:
            value = (loaded.real if loaded.is_complex() and not own.is_complex() else loaded).to(own.dtype)
            rounded = loaded.is_floating_point() and own.is_floating_point()
            kept = value.isfinite() == loaded.isfinite() if rounded else value.to(loaded.dtype) == loaded
            _check_kept(bool(kept.all()), loaded.dtype, own.dtype)
        with torch.no_grad():
            return (own if own.requires_grad else torch.empty_like(own)).copy_(loaded)
    if isinstance(own, torch.Generator):
        own.set_state(tree.cpu())
    elif isinstance(own, torch.nn.Module):
        own.load_state_dict(dict(tree))
    elif isinstance(own, torch.optim.Optimizer):
        _load_optimizer_tree(own, tree)
    elif isinstance(own, Saved):
        return _saved_restored(own, tree)
    else:
        raise TypeError(f"a {type(own).__name__} cannot be restored: give it state_dict() and load_state_dict(tree)")
    return own


def _weights_of(module: Any) -> dict[str, Any]:
    """Copies of all weights and buffers of a ``torch.nn.Module``, by name."""
    return {name: value.detach().clone() for name, value in module.state_dict().items()}


def _optimizer_tree(optimizer: Any) -> dict[str, Any]:
    """State of a ``torch.optim.Optimizer`` as nested dicts of tensors and numbers, with texts as keys."""
    state = optimizer.state_dict()
    groups = [{k: v for k, v in group.items() if k != "params"} for group in state["param_groups"]]
    return {
        "state": {str(i): {k: _saved_value(v) for k, v in entry.items()} for i, entry in state["state"].items()},
        "groups": {str(i): {k: _saved_value(v) for k, v in group.items()} for i, group in enumerate(groups)},
    }


def _saved_value(value: Any) -> Any:
    import torch

    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    return [_saved_value(entry) for entry in value] if isinstance(value, list | tuple) else value


def _load_optimizer_tree(optimizer: Any, tree: Mapping[str, Any]) -> None:
    """Restore ``_optimizer_tree``, bitwise identical; ``ValueError`` or ``KeyError`` if it does not fit."""
    current = optimizer.state_dict()
    saved_groups, own_groups = tree["groups"], current["param_groups"]
    if len(saved_groups) != len(own_groups):
        raise ValueError(f"{len(saved_groups)} parameter groups were saved, there are {len(own_groups)}")
    groups = []
    for i, own in enumerate(own_groups):
        saved = {name: _saved_value(value) for name, value in saved_groups[str(i)].items()}
        # How the update is computed follows this machine, not the one of the snapshot.
        kept = ("fused", "foreach", "capturable")
        known = {k: tuple(v) if isinstance(own.get(k), tuple) else v for k, v in saved.items() if k not in kept}
        if wrong := [k for k, v in known.items() if isinstance(own.get(k), float) and not isinstance(v, int | float)]:
            raise ValueError(f"{wrong[0]} of group {i} must be a number, got {known[wrong[0]]!r}")
        groups.append({**own, **known, "params": own["params"]})
    # Copies: torch would continue writing into the tensors of the tree.
    state = {int(i): {k: _saved_value(v) for k, v in entry.items()} for i, entry in tree["state"].items()}
    _check_shapes(state, [parameter for group in optimizer.param_groups for parameter in group["params"]])
    optimizer.load_state_dict({"state": state, "param_groups": groups})


_LIKE_PARAMETERS = (
    "exp_avg",
    "exp_avg_sq",
    "max_exp_avg_sq",
    "exp_inf",
    "momentum_buffer",
    "square_avg",
    "grad_avg",
    "sum",
)
"""Moments that have an entry for each of a parameter; others (of Adafactor, LBFGS) have other shapes."""


def _check_shapes(state: Mapping[int, Mapping[str, Any]], parameters: Sequence[Any]) -> None:
    """Error unless every moment has the shape of its parameter, which torch finds in the next step only."""
    import torch

    for i, entry in state.items():
        if not 0 <= i < len(parameters):
            raise ValueError(f"there is no parameter {i} for a saved moment, only {len(parameters)} of them")
        for name, value in entry.items():
            if name in _LIKE_PARAMETERS and isinstance(value, torch.Tensor) and value.shape != parameters[i].shape:
                shapes = f"{tuple(parameters[i].shape)}, got {tuple(value.shape)}"
                raise ValueError(f"{name} of parameter {i} must have shape {shapes}")


# ------------------------------------------------------------------------------------------------ which states fit
def fingerprint_of(learner: Any, *parts: str) -> str:
    """Class and ``parts`` as a short text."""
    text = "\n".join(parts)
    return f"{type(learner).__name__}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def shapes_of(module: Any) -> list[str]:
    """Names and shapes of all weights and buffers, without other saved state of modules."""
    named = [*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)]
    known = {name for name, _ in named}
    return [f"{name}{tuple(value.shape)}" for name, value in module.state_dict().items() if name in known]
