"""Rollouts as files: ``.npz`` holds everything bitwise, ``.csv`` and ``.parquet`` are tables for other tools.

Nothing is pickled. A file is complete or does not exist, and declares its format, so that loading any other file is an
error.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from metaroll.checks import check_flag, check_path, check_whole
from metaroll.data.doors.budget import MAX_BYTES, Budget
from metaroll.data.doors.plain_files import damage, open_plain, size_of
from metaroll.data.folders.atomic_files import write_files
from metaroll.data.folders.file_sets import finish_set, read_set, replace_set, unfinished_set
from metaroll.data.folders.kinds import RECORDINGS
from metaroll.data.recording_files import (
    prepare_csv,
    prepare_npz,
    prepare_parquet,
    read_csv,
    read_npz,
    read_parquet,
)
from metaroll.data.recording_format import from_recording, to_recording
from metaroll.data.rollouts import listed_rollouts
from metaroll.data.step_sequence import StepSequence
from metaroll.errors import MetarollError, RecordingError, RunExistsError, command_text, counted, name_given

__all__ = ["load_rollout", "load_rollouts", "save_rollout", "save_rollouts"]

_Contents = tuple[dict[str, Any], dict[str, np.ndarray]]
_Kind = tuple[Callable[..., Callable[[BinaryIO], None]], Callable[[BinaryIO, Budget], _Contents]]
_LARGEST_FACTOR = 4
"""A file may take this many times its own size in any case."""
_KINDS: dict[str, _Kind] = {
    ".npz": (prepare_npz, read_npz),
    ".csv": (prepare_csv, read_csv),
    ".parquet": (prepare_parquet, read_parquet),
}


def save_rollout(rollout: StepSequence, path: str | Path, overwrite: bool = False) -> None:
    """Write a rollout (or a concatenation, or a loose batch) to a file, whose suffix gives its kind.

    ``.npz`` carries every dtype, any nesting of dicts and tuples, all ends and final entries, bitwise. ``.csv``
    and ``.parquet`` have one row per step and one for what follows the last step of each rollout, and a column for each
    number in an entry (``observations[0]``); they come back the same but for the bits of NaNs in ``.csv``. Parquet
    needs pyarrow (``pip install -e '.[tables]'``).

    ``rollout_info`` may hold numbers, text, arrays, tensors, an ``EnvSpec``, spaces, and dicts, lists, tuples and sets
    of those. Members of enums are written as their values, other dataclasses as dicts; tensors come back on the CPU.

    Args:
        rollout: The rollout to write.
        path: The file; ``.npz``, ``.csv`` or ``.parquet``. Its folder must exist.
        overwrite: Replace a file that exists already.

    Raises:
        RecordingError: The file cannot carry something in the rollout, or cannot be written. It is as it was before.
        FileExistsError: The file exists; or it is one of those that another process is saving by ``save_rollouts``.
    """
    path, overwrite = check_path("path", path, "file"), check_flag("overwrite", overwrite)
    writer = _prepare(rollout, path.suffix)
    if not path.parent.is_dir():
        raise RecordingError(f"{path} cannot be written: there is no folder {path.parent}; make it first")
    with _named(path):
        finish_set(path.parent, RECORDINGS, path.name)
    if os.path.exists(path) and not overwrite:
        raise FileExistsError(f"{path} exists already; choose another name, or pass {_overwriting()}")
    if _is_pipe_or_device(path):
        raise RecordingError(f"{path} cannot be written: it is a pipe or a device, and would be replaced by a file")
    with _named(path):
        write_files({path: writer})


def load_rollout(path: str | Path, *, max_bytes: int = MAX_BYTES) -> StepSequence:
    """The rollout that ``save_rollout`` wrote.

    Named tuples come back as types of the same name and fields.

    Args:
        path: The file.
        max_bytes: Memory that the rollout may take, if that is more than four times the size of the file. What a file
            declares is checked before it is read, so that a small one that was made to fill the memory does not.

    Raises:
        RecordingError: The file is damaged, of a newer version, no recorded rollout, or takes too much memory.
        FileNotFoundError: There is no such file.
    """
    path = check_path("path", path, "file")
    if path.is_dir():
        raise RecordingError(f"{path}: it is a folder; load_rollouts loads all rollouts in it", path)
    limit = check_whole("max_bytes", max_bytes)
    _kind(path.suffix)  # before anything is looked for
    if not path.parent.is_dir():
        return _read(path, limit)

    def read() -> StepSequence:
        return _read((unfinished_set(path.parent, RECORDINGS) or {}).get(path.name, path), limit)

    return read_set(path.parent, RECORDINGS, read, path.name)


def _read(path: Path, limit: int) -> StepSequence:
    with damage(path, RecordingError), open_plain(path) as file:
        budget = Budget.of_file(size_of(file), _LARGEST_FACTOR, limit, "if you trust it, pass a larger max_bytes")
        return from_recording(*_kind(path.suffix)[1](file, budget))


def save_rollouts(
    rollouts: Iterable[StepSequence], folder: str | Path, overwrite: bool = False, *, suffix: str = ".npz"
) -> list[Path]:
    """Write rollouts to ``rollout_0000.npz``, ``rollout_0001.npz``, ... in a folder, all of them or none.

    If the process is killed, ``load_rollouts`` returns all old rollouts, or all new ones.

    Args:
        rollouts: The rollouts to write; see ``save_rollout``.
        folder: Made if it does not exist.
        overwrite: Replace the rollouts that the folder holds already, all of them.
        suffix: Kind of the files.

    Returns:
        Paths of the files, in order.

    Raises:
        FileExistsError: The folder holds rollouts, and ``overwrite`` is not set; or another process is saving into it.
        RecordingError: A rollout cannot be written; names it. The folder is as it was before.
        TypeError: ``rollouts`` is a single one, or holds something else.
        ValueError: There is none, or no such kind of file.
    """
    folder, rollouts = check_path("folder", folder), listed_rollouts(rollouts)
    overwrite = check_flag("overwrite", overwrite)
    if not rollouts:
        raise ValueError("rollouts must hold at least one StepSequence, got none")
    width = max(4, len(str(len(rollouts) - 1)))
    writers = {f"rollout_{i:0{width}}{suffix}": _prepare(r, suffix, i) for i, r in enumerate(rollouts)}

    def refuse_old() -> None:
        old = [path for path in recordings_in(folder) if re.fullmatch(r"rollout_\d+", path.stem)]
        if old and not overwrite:
            raise RunExistsError(
                f"{folder} holds {counted(len(old), 'rollout')} already; choose another folder, or pass "
                f"{_overwriting()}"
            )

    refuse_old()  # before the folder is made, and again once no other process can save into it
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RecordingError(f"the folder {folder} cannot be made: {error.strerror or error}") from error
    with _named(folder):
        replace_set(folder, RECORDINGS, writers, refuse_old)
    return [folder / name for name in writers]


def load_rollouts(folder: str | Path, *, max_bytes: int = MAX_BYTES) -> list[StepSequence]:
    """All rollouts in a folder (``.npz``, ``.csv`` and ``.parquet``), sorted by name, numbers in it by their size.

    Args:
        folder: The folder.
        max_bytes: Memory that each rollout may take; see ``load_rollout``.

    Raises:
        RecordingError: There is none, or one cannot be loaded.
        FileNotFoundError: There is no such folder.
        NotADirectoryError: It is a file: a log, which has to be imported first.
    """
    folder, limit = check_path("folder", folder), check_whole("max_bytes", max_bytes)
    if not folder.is_dir():
        if folder.is_file():
            raise NotADirectoryError(
                f"{folder} is a file, and no folder of rollouts; a log becomes one by "
                f"{command_text('import-log', folder, '--mapping', 'FILE', '--env', 'SIM')} (load_log in Python)"
            )
        raise FileNotFoundError(f"there is no folder {folder}")

    def read() -> list[StepSequence]:
        paths = recordings_in(folder)
        if not paths:
            raise RecordingError(f"there is no recorded rollout in {folder}: no file ends in {', '.join(_KINDS)}")
        return [_read(path, limit) for path in paths]

    return read_set(folder, RECORDINGS, read)


def _overwriting() -> str:
    """How to ask for it: the flag of a command that has one. Code of the user also runs inside the other commands."""
    return name_given("overwrite") or "overwrite=True"


def _kind(suffix: str) -> _Kind:
    if suffix.lower() not in _KINDS:
        raise ValueError(f"the name of a recording must end in {', '.join(_KINDS)}, got {suffix!r}")
    return _KINDS[suffix.lower()]


def _prepare(rollout: StepSequence, suffix: str, number: int | None = None) -> Callable[[BinaryIO], None]:
    """The function that writes a rollout; its errors name the ``number`` that it has among several."""
    prepare = _kind(suffix)[0]
    which = "a rollout" if number is None else f"rollouts[{number}]"
    if not isinstance(rollout, StepSequence):
        raise TypeError(f"{which} must be a StepSequence, got {type(rollout).__name__}")
    try:
        return prepare(*to_recording(rollout))
    except RecordingError as error:
        if number is None:
            raise
        raise RecordingError(f"{which}: {error}") from error


@contextlib.contextmanager
def _named(target: Path) -> Iterator[None]:
    """Errors of the operating system with the file or folder that was to be written."""
    try:
        yield
    except RunExistsError:
        raise
    except OSError as error:
        unchanged = "what was there before is unchanged"
        with contextlib.suppress(MetarollError, OSError):
            if unfinished_set(target, RECORDINGS) is not None:
                unchanged = "load_rollouts returns the new rollouts, and the next save moves their files into place"
        raise RecordingError(f"{target} cannot be written: {error.strerror or error}; {unchanged}") from error


def _is_pipe_or_device(path: Path) -> bool:
    """Whether reading could block, or have no end."""
    return os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path))


def recordings_in(folder: Path) -> list[Path]:
    """The recorded rollouts in a folder, sorted by name, numbers in it by their size."""
    if not folder.is_dir():
        return []
    paths = {
        path.name: path
        for path in folder.iterdir()
        if path.suffix.lower() in _KINDS and not path.name.startswith(".") and path.is_file()
    }
    unfinished = unfinished_set(folder, RECORDINGS)
    if unfinished is not None:
        paths = {name: path for name, path in paths.items() if RECORDINGS.place_of(name) is None} | unfinished
    return sorted(
        paths.values(), key=lambda path: [int(t) if i % 2 else t for i, t in enumerate(re.split(r"(\d+)", path.name))]
    )
