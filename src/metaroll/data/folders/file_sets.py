"""Sets of files in a folder that others may use, too: a kill at any moment leaves the whole old set, or the new one.

New files are first completed in a folder inside. The list of their names, which is written last, is what makes them the
set; then they are moved into place. Readers follow the list where that was interrupted, and the next writer
finishes it. A reader that was overtaken by a writer reads again.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, TypeVar

from metaroll.data.doors.json_files import read_json
from metaroll.data.folders.atomic_files import flush_folder, write_atomic, write_files
from metaroll.data.folders.contents import clear, refuse_links, remove_folder
from metaroll.data.folders.kinds import GROWING, LOCK_FILE, NEW_FILES, NEW_LIST, Layout
from metaroll.data.folders.links import refuse_link, remove_file
from metaroll.data.folders.locks import FolderLock
from metaroll.errors import RecordingError, RunExistsError

__all__ = ["finish_set", "read_set", "replace_set", "unfinished_set"]

T = TypeVar("T")

_TRIES, _PAUSE_S = 100, 0.02
_SAVING: dict[tuple[int, str], object] = {}
"""Folders that this process saves into now; the number of the process, since a fork has the dict, but not the lock."""


def replace_set(folder: Path, layout: Layout, writers: Mapping[str, Callable[[BinaryIO], object]]) -> None:
    """Replace all files of ``layout`` in ``folder`` by new ones; files of others stay.

    Args:
        folder: An existing folder.
        layout: Names of the files, and the folder ``NEW_FILES``.
        writers: Name -> function that writes the content into an open file.

    Raises:
        IsADirectoryError: A folder has the name of a file.
        LinkError: A name is a link.
        OSError: One cannot be written. If ``unfinished_set`` is ``None``, the old set is unchanged.
        RunExistsError: Another process or thread is replacing the set.
    """
    new, inner = folder / NEW_FILES, layout.folder(NEW_FILES) or layout
    for name in writers:
        refuse_link(folder / name)
        if (folder / name).is_dir():  # would be noticed only after others have been replaced
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(folder / name))
    with _only_writer(folder):
        refuse_links(new, inner)
        _move_into_place(folder, layout)  # of a writer that was killed
        clear(new, inner)
        try:
            write_files({new / name: write for name, write in writers.items()})
            flush_folder(new)
            write_atomic(new / NEW_LIST, json.dumps(list(writers)).encode())
            flush_folder(new)
        except BaseException:
            with contextlib.suppress(OSError):
                remove_folder(new, inner)  # the list first: without it, the old set counts
            raise
        _move_into_place(folder, layout)
        with contextlib.suppress(OSError):  # all files are in place; the next writer removes what is left
            remove_folder(new, inner)


def finish_set(folder: Path, layout: Layout) -> None:
    """Move the files of a set into place whose writer was killed; nothing if there is none.

    Raises:
        LinkError: Its folder is a link.
        OSError: One cannot be moved.
        RunExistsError: Another process or thread is replacing the set.
    """
    new, inner = folder / NEW_FILES, layout.folder(NEW_FILES) or layout
    if unfinished_set(folder, layout) is None:
        return
    with _only_writer(folder):
        _move_into_place(folder, layout)
        remove_folder(new, inner)


def read_set(folder: Path, layout: Layout, read: Callable[[], T]) -> T:
    """What ``read`` returns, which reads the files of a set: called again where another has replaced them meanwhile.

    Raises:
        RecordingError: They are replaced again and again.
    """
    for _ in range(_TRIES):
        before = _state(folder, layout)
        try:
            result = read()
        except Exception:
            if _state(folder, layout) == before:
                raise
        else:
            if _state(folder, layout) == before:
                return result
        time.sleep(_PAUSE_S)
    raise RecordingError(f"{folder} is being written again and again by another process; read it when that is done")


@contextlib.contextmanager
def _only_writer(folder: Path) -> Iterator[None]:
    """The right to replace a set, for one thread of one process."""
    new, key, token = folder / NEW_FILES, (os.getpid(), os.path.realpath(folder)), object()
    refuse_link(new)
    if _SAVING.setdefault(key, token) is not token:
        raise RunExistsError(f"another thread is saving into {folder}; wait until it is done")
    try:
        try:
            new.mkdir(exist_ok=True)
            lock = FolderLock(new)
        except (FileNotFoundError, RunExistsError) as error:  # or it has just removed the folder
            raise RunExistsError(f"another process is saving into {folder}; wait until it is done") from error
        with lock:
            if not os.path.lexists(new / LOCK_FILE):  # the other one removed it together with the folder
                raise RunExistsError(f"another process is saving into {folder}; wait until it is done")
            yield
    finally:
        del _SAVING[key]


def _state(folder: Path, layout: Layout) -> list[tuple[str, int, int]]:
    """What changes when files of a set, or the list of new ones, are replaced."""
    found = []
    for path in (*folder.iterdir(), folder / NEW_FILES / NEW_LIST):
        if path.name == NEW_LIST or _is_of(layout, path.name):
            with contextlib.suppress(FileNotFoundError):
                status = path.lstat()
                found.append((path.name, status.st_ino, status.st_mtime_ns))
    return sorted(found)


def unfinished_set(folder: Path, layout: Layout) -> dict[str, Path] | None:
    """Where the files of a set are that is complete, but not yet in place: by name; ``None`` if all are in place.

    Raises:
        LinkError: Its folder is a link.
        RecordingError: Its list of names is damaged.
    """
    new = folder / NEW_FILES
    refuse_link(new)
    if not os.path.lexists(new / NEW_LIST):
        return None
    cure = f"remove {new}, and save all files again"
    names = read_json(new / NEW_LIST, RecordingError, cure)
    if not isinstance(names, list) or not all(isinstance(name, str) and _is_of(layout, name) for name in names):
        raise RecordingError(f"{new / NEW_LIST} must hold the names of the files; {cure}", new / NEW_LIST)
    return {name: new / name if os.path.lexists(new / name) else folder / name for name in names}


def _move_into_place(folder: Path, layout: Layout) -> None:
    """Move new files that are complete, and remove what is left of the old set and of writers that were killed."""
    files = unfinished_set(folder, layout)
    if files is None:
        return
    for name, path in files.items():
        if path.parent != folder:
            os.replace(path, folder / name)
    for name in os.listdir(folder):
        growing = re.fullmatch(GROWING, name)
        if growing is not None and _is_running(int(growing["process"])):
            continue  # another one is saving a single file
        is_old = name not in files and _is_of(layout, growing["name"] if growing else name)
        if is_old and not (folder / name).is_dir():
            remove_file(folder / name)
    flush_folder(folder)


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # of another user
        return True
    return True


def _is_of(layout: Layout, name: str) -> bool:
    return any(re.fullmatch(pattern, name) for pattern in layout.files)
