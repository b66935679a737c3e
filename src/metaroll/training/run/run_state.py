"""Checks whether a snapshot fits an algorithm, and restores the algorithm's state from it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import metaroll
from metaroll.checks import check_whole
from metaroll.errors import SnapshotError, option_name
from metaroll.learners.base import RLAlgorithm
from metaroll.policies.own_body import has_own_body
from metaroll.state import Saved
from metaroll.tasks.task_key import task_key
from metaroll.training.store.files import is_tree, tree_structure
from metaroll.training.store.snapshots import BUFFERS, Snapshot

__all__ = [
    "TrainArgs",
    "arithmetic_of",
    "check_arithmetic",
    "check_can_save",
    "check_train_tasks",
    "checked_runner_tree",
    "fingerprint_of",
    "load_algorithm",
    "plain_train_tasks",
    "space_texts",
    "trees_of",
]


@dataclass(frozen=True)
class TrainArgs:
    """Arguments of ``LocalRunner.train``, and the epoch to start with."""

    n_epochs: int
    batch_size: int | None = None
    plot: bool = False
    store_paths: bool = False
    pause_for_plot: bool = False
    start_epoch: int = 0

    def __post_init__(self) -> None:
        check_whole("n_epochs", self.n_epochs, 0)
        if self.batch_size is not None:
            check_whole("batch_size", self.batch_size)

    def to_dict(self) -> dict[str, Any]:
        """The content of a snapshot, except for the epoch to start with."""
        return {name: value for name, value in vars(self).items() if name != "start_epoch"}


def check_can_save(algo: RLAlgorithm) -> Saved:
    """``algo``, or an error unless it can give and take its state."""
    if not (algo.info.has_state and isinstance(algo, Saved)):
        raise TypeError(
            f"{algo.info.name} needs state_dict() and load_state_dict(tree) for snapshots; add them, or use "
            "SnapshotConfig(folder, 'none')"
        )
    return algo


def fingerprint_of(algo: RLAlgorithm) -> str:
    """The algorithm's own fingerprint, else one of the names, shapes and dtypes of its state."""
    own = algo.fingerprint()
    if own is not None:
        return own
    structure = tree_structure(check_can_save(algo).state_dict()) if algo.info.has_state else None
    return hashlib.sha256(json.dumps(structure, sort_keys=True).encode()).hexdigest()[:16]


def trees_of(algo: RLAlgorithm) -> dict[str, Any]:
    """The algorithm's part of a snapshot, which may be views: to be written at once."""
    buffers = algo.buffers_state_dict(copy=False)
    return {"algorithm": check_can_save(algo).state_dict(), **({} if buffers is None else {BUFFERS: buffers})}


def space_texts(algo: RLAlgorithm) -> dict[str, str]:
    """The spaces that ``algo`` learns in, as text; empty if it does not know them."""
    spec = algo.env_spec
    if spec is None:
        return {}
    return {"observation_space": str(spec.observation_space), "action_space": str(spec.action_space)}


def plain_train_tasks(algo: RLAlgorithm) -> list[Any] | None:
    """Training tasks of ``algo``, if they are known and plain data."""
    tasks = algo.train_tasks
    return list(tasks) if tasks is not None and is_tree(list(tasks)) else None


_RUNNER_KEYS = {
    "seed",
    "step_itr",
    "total_env_steps",
    "seconds",
    "train_args",
    "evaluator",
    "snapshot_mode",
    "snapshot_gap",
}


def checked_runner_tree(snapshot: Snapshot) -> dict[str, Any]:
    """The runner's part of a snapshot.

    Raises:
        SnapshotError: It is damaged, or that of something else.
    """
    tree = snapshot.tree("runner")
    missing = _RUNNER_KEYS - tree.keys() if isinstance(tree, dict) else _RUNNER_KEYS
    if missing:
        raise SnapshotError(
            f"{snapshot.path / 'runner.json'} lacks {', '.join(sorted(missing))}: restore it from a copy, or choose "
            "another snapshot with from_epoch=..."
        )
    return tree


def check_train_tasks(snapshot: Snapshot, saved: Sequence[Any] | None, algo: RLAlgorithm) -> None:
    """Raise an error if ``algo`` has other training tasks than the saved ones: its data would belong to those."""
    here = plain_train_tasks(algo)
    if saved is None or here is None:
        return
    hint = "build it with the same tasks (give the task sampler a seed: SetTaskSampler(..., generator=seed))"
    if len(saved) != len(here):
        raise SnapshotError(
            f"{snapshot.path} was written with {len(saved)} training tasks, here are {len(here)}: {hint}"
        )
    for position, (old, new) in enumerate(zip(saved, here, strict=True)):
        if task_key(old) != task_key(new):
            raise SnapshotError(f"training task {position} is {new!r}, in {snapshot.path} it is {old!r}: {hint}")


def _refuse_other_spaces(snapshot: Snapshot, algo: RLAlgorithm) -> None:
    """Raise an error if the snapshot's environment has other spaces than that of ``algo``."""
    there = snapshot.manifest.get("spaces") or {}  # missing in older snapshots
    here = space_texts(algo)
    differ = [name for name in here if name in there and there[name] != here[name]]
    if differ:
        differences = ", and ".join(f"{name} {there[name]}, here it is {here[name]}" for name in differ)
        raise SnapshotError(
            f"{snapshot.path} was learned in an environment with {differences}: give the environment that the run was "
            "made with, or one with the same spaces"
        )


def arithmetic_of(snapshot: Snapshot) -> int:
    """``RLAlgorithm.arithmetic`` of its writer."""
    return snapshot.manifest.get("arithmetic", 1)


def check_arithmetic(snapshot: Snapshot, algo: RLAlgorithm) -> None:
    """Raise ``SnapshotError`` if training from ``snapshot`` would not give the same bits as in its writer's version."""
    if arithmetic_of(snapshot) != algo.arithmetic:
        writer = f"metaroll {snapshot.manifest.get('metaroll', 'of an unknown version')}"
        raise SnapshotError(
            f"{snapshot.path} was written by {writer}, in which this {algo.info.name} makes other steps, or may "
            f"round them otherwise, than in metaroll {metaroll.__version__}: it can be loaded and evaluated, but not "
            f"trained further. Train it further with {writer}, or start a new run"
        )


def load_algorithm(
    snapshot: Snapshot, algo: RLAlgorithm, fingerprint: str, train_tasks: Sequence[Any] | None = None
) -> None:
    """Give ``algo`` the state of ``snapshot``, after checking that it is the same algorithm, built alike.

    Where the buffers were not kept, ``algo`` collects its initial data again.
    """
    saved, here = snapshot.manifest.get("algorithm"), algo.info.name
    own = ""
    if has_own_body(algo.policy):
        own = f"; {option_name('policy')}, a network of your own, must have the layers that the run was made with"
    writer = f"metaroll {snapshot.manifest.get('metaroll', 'of an unknown version')}"
    if saved != here:
        raise SnapshotError(
            f"{snapshot.path} was written by {saved}, the runner was set up with {here}: set up {saved}"
        )
    if snapshot.manifest.get("fingerprint") != fingerprint:
        _refuse_other_spaces(snapshot, algo)
        raise SnapshotError(
            f"{snapshot.path} was written by another {here} (fingerprint {snapshot.manifest.get('fingerprint')}, "
            f"{writer}) than the one that was set up ({fingerprint}): build it with the same networks and "
            f"hyperparameters as at first, for an environment with the same spaces{own}"
        )
    check_train_tasks(snapshot, train_tasks, algo)
    taking = check_can_save(algo)
    learned, buffers = snapshot.tree("algorithm"), snapshot.buffers  # both are checked before anything is changed
    try:
        before = None if buffers is None else taking.state_dict()
        taking.load_state_dict(learned)
        if buffers is not None:
            try:
                algo.load_buffers_state_dict(buffers)
            except BaseException:
                taking.load_state_dict(before)  # not one without the other
                raise
    except (RuntimeError, KeyError, TypeError, ValueError) as error:
        raise SnapshotError(
            f"{snapshot.path}, written by {writer}, does not fit the {here} that was set up: {error}{own}"
        ) from error
