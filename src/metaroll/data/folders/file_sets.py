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
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, TypeVar

from metaroll.data.doors.json_files import read_json
from metaroll.data.folders.atomic_files import flush_folder, write_atomic, write_files
from metaroll.data.folders.contents import clear, refuse_links, remove_folder
from metaroll.data.folders.kinds import GROWING, NEW_FILES, NEW_LIST, Layout
from metaroll.data.folders.links import refuse_link, remove_file
from metaroll.data.folders.locks import FolderLock
from metaroll.errors import RecordingError, RunExistsError, other_folder

__all__ = ["finish_set", "read_set", "replace_set", "unfinished_set"]

T = TypeVar("T")

_TRIES, _PAUSE_S = 100, 0.02
_SAVING: dict[tuple[int, str], int] = {}
"""(process, folder) -> the thread that saves into it now; the process, since a fork has the dict, but not the lock.

A thread that was interrupted before it could remove its entry can save again.
"""


def replace_set(
    folder: Path, layout: Layout, writers: Mapping[str, Callable[[BinaryIO], object]], check: Callable[[], object]
) -> None:
    """Replace all files of ``layout`` in ``folder`` by new ones; files of others stay.

    Args:
        folder: An existing folder.
        layout: Names of the files, and the folder ``NEW_FILES``.
        writers: Name -> function that writes the content into an open file.
        check: Raises an error if the old set must stay; called once no other writer can change it.

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
            check()
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


def finish_set(folder: Path, layout: Layout, name: str) -> None:
    """Finish moving a set whose writer was killed, before a single file of the set is saved.

    Otherwise that file would be replaced, or removed, when the set is moved later. Nothing happens if there is no such
    set, or if ``name`` is of no set.

    Raises:
        LinkError: Its folder is a link.
        OSError: One cannot be moved.
        RunExistsError: Another process or thread is replacing the set.
    """
    new, inner = folder / NEW_FILES, layout.folder(NEW_FILES) or layout
    refuse_link(new)
    if not _is_of(layout, name) or not new.is_dir():
        return
    with _only_writer(folder):
        _move_into_place(folder, layout)
        remove_folder(new, inner)


def read_set(folder: Path, layout: Layout, read: Callable[[], T], name: str | None = None) -> T:
    """What ``read`` returns, which reads files of a set: called again where another has replaced them meanwhile.

    Args:
        folder: An existing folder.
        layout: Names of the files.
        read: Reads them.
        name: The only file that it reads; ``None`` if it may read all of them.

    Raises:
        RecordingError: They are replaced again and again.
    """
    for _ in range(_TRIES):
        before = _state(folder, layout, name)
        try:
            result = read()
        except Exception:
            if not _is_replaced(before, _state(folder, layout, name)):
                raise
        else:
            if not _is_replaced(before, _state(folder, layout, name)):
                return result
        time.sleep(_PAUSE_S)
    raise RecordingError(f"{folder} is written again and again; read it when that is done")


@contextlib.contextmanager
def _only_writer(folder: Path) -> Iterator[None]:
    """The right to replace a set, for one thread of one process."""
    new, key, thread = folder / NEW_FILES, (os.getpid(), os.path.realpath(folder)), threading.get_ident()
    refuse_link(new)
    try:
        if _SAVING.setdefault(key, thread) != thread:
            raise RunExistsError(f"another thread is saving into {folder}; wait until it is done")
        if new.is_file():
            raise RunExistsError(f"{new} must be a folder, and is a file: remove it, or {other_folder()}")
        try:
            new.mkdir(exist_ok=True)
            lock = FolderLock(new)
        except RunExistsError:
            raise
        except (FileNotFoundError, FileExistsError) as error:  # another process has just removed it
            raise RunExistsError(f"another process is saving into {folder}; wait until it is done") from error
        with lock:
            yield
    finally:
        if _SAVING.get(key) == thread:
            del _SAVING[key]


_State = dict[str, tuple[int, int]]
"""Name of a file -> what changes when it is replaced."""


def _state(folder: Path, layout: Layout, name: str | None) -> _State:
    """Of the files of a set, or of one of them, and of the list of new ones."""
    names = [n for n in os.listdir(folder) if _is_of(layout, n)] if name is None else [name]
    found = {}
    for path in (*(folder / n for n in names), folder / NEW_FILES / NEW_LIST):
        with contextlib.suppress(OSError):  # reading has the better error
            status = path.lstat()
            found[path.name] = status.st_ino, status.st_mtime_ns
    return found


def _is_replaced(before: _State, after: _State) -> bool:
    """Whether a set has been replaced, or moved on, in between; a file that was added to it changes nothing."""
    if not before or NEW_LIST in before:  # files of the first set, or of one that is being moved, look like added ones
        return after != before
    return NEW_LIST in after or any(after.get(name) != status for name, status in before.items())


def unfinished_set(folder: Path, layout: Layout) -> dict[str, Path] | None:
    """Where the files of a set are that is complete, but not yet in place: by name; ``None`` if all are in place.

    Raises:
        LinkError: Its folder is a link.
        RecordingError: Its list of names is damaged, or names a file that does not exist.
    """
    new = folder / NEW_FILES
    refuse_link(new)
    cure = f"remove {new}, and save all files again"
    try:
        names = read_json(new / NEW_LIST, RecordingError, cure)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if not isinstance(names, list) or not all(isinstance(name, str) and _is_of(layout, name) for name in names):
        raise RecordingError(f"{new / NEW_LIST} must hold the names of the files; {cure}", new / NEW_LIST)
    files: dict[str, Path] = {}
    for name in names:  # first where it comes from: a writer may be moving it now
        present = [path for path in (new / name, folder / name) if os.path.lexists(path)]
        if not present:
            raise RecordingError(f"{new / NEW_LIST} names {name}, which does not exist; {cure}", new / NEW_LIST)
        files[name] = present[0]
    return files


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
