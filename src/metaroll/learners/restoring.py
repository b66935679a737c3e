"""Restoring the state of a learner: all of it, or nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from metaroll.errors import SnapshotError

__all__ = ["load_or_keep"]


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
    missing = set(before) - set(tree)
    if missing:
        raise SnapshotError(f"the saved state of {name} lacks {sorted(missing)}; it was made by another algorithm")
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
