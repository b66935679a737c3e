"""The door to Minari: data sets on this machine as rollouts, or as tables; nothing is downloaded."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.spaces import Discrete

from metaroll.data.data_format import iterate_leaves
from metaroll.data.doors.plain_files import damage, open_plain
from metaroll.data.rollouts import TIME_STEP
from metaroll.data.step_sequence import StepSequence
from metaroll.errors import LogError, install_text
from metaroll.lab.logs.tables import LogTable, array_table
from metaroll.types import EnvSpec

__all__ = ["find_minari", "minari_rollouts", "minari_tables"]

_PREFIX = "minari:"


def _import_minari() -> Any:
    try:
        import minari
    except ImportError as error:
        raise ImportError(f"data sets of Minari need minari: {install_text('minari')}") from error
    return minari


def find_minari(path: str | Path) -> Any:
    """The data set at a folder, or of ``minari:ID``; ``None`` for anything else.

    Raises:
        FileNotFoundError: There is no data set of this id on this machine.
        ImportError: Minari is not installed.
        LogError: It cannot be read.
    """
    text = os.fspath(path)
    named = text.startswith(_PREFIX)
    folder = Path(text).expanduser()
    if not named and not folder.is_dir():
        return None
    if not named and not (folder / "data").is_dir():
        raise LogError(f"{folder} is a folder but not a data set of Minari (it has no folder data); name a file in it")
    minari = _import_minari()
    if not named:
        _check_files(folder / "data")
    try:
        if named:
            return minari.load_dataset(text.removeprefix(_PREFIX))
        return minari.MinariDataset(folder / "data")
    except FileNotFoundError as error:
        raise FileNotFoundError(f"there is no data set {text!r} on this machine: {error}") from error
    except Exception as error:  # files of HDF5 that are damaged can raise anything
        raise LogError(f"the data set {text!r} cannot be read: {type(error).__name__}: {error}") from error


def _check_files(folder: Path) -> None:
    """Raise an error unless a folder holds only plain files, since Minari opens them itself."""
    for path in folder.rglob("*"):
        if path.is_dir() and not path.is_symlink():
            continue
        with damage(path, LogError), open_plain(path):
            pass


def minari_rollouts(data_set: Any, env_spec: EnvSpec | None, dt: float | None) -> list[StepSequence]:
    """All episodes, unchanged.

    Args:
        data_set: From ``find_minari``.
        env_spec: Spec stored with the rollouts; ``None``: the spaces of the data set.
        dt: Seconds per step, if they are known.

    Raises:
        LogError: There is no episode, or one is empty.
    """
    spec = EnvSpec(data_set.observation_space, data_set.action_space) if env_spec is None else env_spec
    rollouts = []
    for episode in data_set.iterate_episodes():
        if len(episode.rewards) < 1:
            raise LogError(f"{_name(data_set)}: episode {episode.id} has no steps")
        start = int(spec.action_space.start) if isinstance(spec.action_space, Discrete) else 0
        info: dict[str, Any] = {"env_spec": spec, "log": {"file": _name(data_set), "episode": str(episode.id)}}
        fields: dict[str, Any] = {}
        if dt is not None:
            info[TIME_STEP] = dt
            fields["time"] = np.arange(len(episode.rewards) + 1) * dt
        terminated = np.asarray(episode.terminations, dtype=bool)
        truncated = np.asarray(episode.truncations, dtype=bool)
        truncated[-1] |= not terminated[-1]  # truncated by the recording
        rollouts.append(
            StepSequence(
                observations=episode.observations,
                actions=episode.actions - start if start else episode.actions,
                rewards=np.asarray(episode.rewards, dtype=np.float64),
                terminated=terminated,
                truncated=truncated,
                rollout_info=info,
                **fields,
            )
        )
    if not rollouts:
        raise LogError(f"{_name(data_set)} holds no episode")
    return rollouts


def minari_tables(data_set: Any) -> Iterator[LogTable]:
    """A table of each episode, with the columns ``observations[0]``, ``actions[0]``, ``rewards`` and so on."""
    for episode in data_set.iterate_episodes():
        arrays = {"rewards": episode.rewards, "terminated": episode.terminations, "truncated": episode.truncations}
        for name in ("observations", "actions"):
            value = {"observations": episode.observations, "actions": episode.actions}[name]
            for path, leaf in iterate_leaves(value):
                arrays[".".join([name, *map(str, path)])] = np.asarray(leaf)
        yield LogTable(f"{_name(data_set)}, episode {episode.id}", array_table(arrays))


def _name(data_set: Any) -> str:
    return str(data_set.spec.dataset_id)
