"""States of learners for snapshots: which fit, weights and optimizers as plain trees, restoring all or nothing."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from metaroll.data.data_format import own_copy
from metaroll.errors import SnapshotError

__all__ = [
    "check_entries",
    "fingerprint_of",
    "load_optimizer_tree",
    "load_or_keep",
    "optimizer_tree",
    "shapes_of",
    "weights_of",
]


def fingerprint_of(learner: Any, *parts: str) -> str:
    """Class and ``parts`` as a short text."""
    text = "\n".join(parts)
    return f"{type(learner).__name__}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def weights_of(module: nn.Module) -> dict[str, Tensor]:
    """Copies of all weights and buffers by name."""
    return {name: value.detach().clone() for name, value in module.state_dict().items()}


def shapes_of(module: nn.Module) -> list[str]:
    """Names and shapes of all weights and buffers."""
    return [f"{name}{tuple(value.shape)}" for name, value in module.state_dict().items()]


def check_entries(name: str, tree: Mapping[str, Any], entries: Iterable[str]) -> None:
    """``SnapshotError`` unless the saved state of ``name`` has these entries."""
    missing = set(entries) - set(tree)
    if missing:
        raise SnapshotError(f"the saved state of {name} lacks {sorted(missing)}; it was made by another algorithm")


def optimizer_tree(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """State of ``optimizer`` as nested dicts of tensors and numbers, with texts as keys."""
    state = optimizer.state_dict()
    groups = [{k: v for k, v in group.items() if k != "params"} for group in state["param_groups"]]
    return {
        "state": {str(i): {k: _saved_value(v) for k, v in entry.items()} for i, entry in state["state"].items()},
        "groups": {str(i): {k: _saved_value(v) for k, v in group.items()} for i, group in enumerate(groups)},
    }


def _saved_value(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().clone()
    return list(value) if isinstance(value, tuple) else value


def load_optimizer_tree(optimizer: torch.optim.Optimizer, tree: Mapping[str, Any]) -> None:
    """Restore ``optimizer_tree``, bitwise identical; ``ValueError`` or ``KeyError`` if it does not fit."""
    current, tree = optimizer.state_dict(), own_copy(tree)  # torch would go on in the very tensors of the tree
    saved_groups, own_groups = tree["groups"], current["param_groups"]
    if len(saved_groups) != len(own_groups):
        raise ValueError(f"{len(saved_groups)} parameter groups were saved, there are {len(own_groups)}")
    groups = []
    for i, own in enumerate(own_groups):
        saved = saved_groups[str(i)]
        # How the update is computed follows this machine, not the one of the snapshot.
        kept = ("fused", "foreach", "capturable")
        restored = {k: tuple(v) if isinstance(own.get(k), tuple) else v for k, v in saved.items() if k not in kept}
        groups.append({**own, **restored, "params": own["params"]})
    state = {int(i): dict(entry) for i, entry in tree["state"].items()}
    _check_shapes(state, [parameter for group in optimizer.param_groups for parameter in group["params"]])
    optimizer.load_state_dict({"state": state, "param_groups": groups})


def _check_shapes(state: Mapping[int, Mapping[str, Any]], parameters: Sequence[Tensor]) -> None:
    """Error unless every moment has the shape of its parameter, which torch finds in the next step only."""
    for i, entry in state.items():
        if not 0 <= i < len(parameters):
            raise ValueError(f"there is no parameter {i} for a saved moment, only {len(parameters)} of them")
        for name, value in entry.items():
            if isinstance(value, Tensor) and value.ndim and value.shape != parameters[i].shape:
                shapes = f"{tuple(parameters[i].shape)}, got {tuple(value.shape)}"
                raise ValueError(f"{name} of parameter {i} must have shape {shapes}")


def load_or_keep(
    name: str, load: Callable[[Mapping[str, Any]], None], tree: Mapping[str, Any], before: Mapping[str, Any]
) -> None:
    """Call ``load(tree)``; where that fails, the learner goes back to its state ``before``.

    Args:
        name: Of the class of the learner.
        load: Restores a state part by part.
        tree: The state to restore.
        before: The present state of the learner; ``tree`` must have the same entries.

    Raises:
        SnapshotError: ``tree`` does not fit the learner, which is as it was.
    """
    if not isinstance(tree, Mapping):
        raise SnapshotError(f"the saved state of {name} must be a dict, as state_dict() gives it, got {tree!r}")
    check_entries(name, tree, before)
    try:
        load(tree)
    except BaseException as error:
        load(before)
        if not isinstance(error, Exception):
            raise
        raise SnapshotError(
            f"the saved state of {name} is damaged, or of one that was built otherwise; nothing was changed "
            f"({type(error).__name__}: {error})"
        ) from error
