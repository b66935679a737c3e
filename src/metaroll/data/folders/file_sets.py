"""Sets of files in a folder that others may use, too: a kill at any moment leaves the whole old set, or the new one.

New files are first completed in a folder inside. The list of their names, which is written last, is what makes them the
set; then they are moved into place. Readers follow the list where that was interrupted, and the next writer
finishes it.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import BinaryIO

from metaroll.data.doors.json_files import read_json
from metaroll.data.folders.atomic_files import flush_folder, write_atomic, write_files
from metaroll.data.folders.contents import clear, refuse_links, remove_folder
from metaroll.data.folders.kinds import NEW_FILES, NEW_LIST, Layout
from metaroll.data.folders.links import refuse_link, remove_file
from metaroll.data.folders.locks import FolderLock
from metaroll.errors import RecordingError, RunExistsError

__all__ = ["replace_set", "unfinished_set"]

_GROWING = re.compile(r"\.(.+)\.\d+-[0-9a-f]{8}\.tmp")


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
        RunExistsError: Another process is replacing the set.
    """
    new, inner = folder / NEW_FILES, layout.folder(NEW_FILES) or layout
    for path in (new, *(folder / name for name in writers)):
        refuse_link(path)
        if path != new and path.is_dir():  # would be noticed only after others have been replaced
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    new.mkdir(exist_ok=True)
    try:
        lock = FolderLock(new)
    except RunExistsError as error:
        raise RunExistsError(f"another process is saving into {folder}; wait until it is done") from error
    with lock:
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
        remove_folder(new, inner)


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
        growing = _GROWING.fullmatch(name)
        is_old = name not in files and _is_of(layout, growing[1] if growing else name)
        if is_old and not (folder / name).is_dir():
            remove_file(folder / name)
    flush_folder(folder)


def _is_of(layout: Layout, name: str) -> bool:
    return any(re.fullmatch(pattern, name) for pattern in layout.files)
