"""Contents of a folder, by the names of its layout: which are foreign, removed, copied, renamed.

No folder is ever removed with what happens to be in it. Files that others have put there stay, and so does then the
folder.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import re
import secrets
import shutil
from collections.abc import Collection, Iterator
from pathlib import Path

from metaroll.data.folders.atomic_files import flush_folder
from metaroll.data.folders.kinds import GROWING, LOCK_FILE, MARK_FILE, SAVED_FILE, Layout
from metaroll.data.folders.links import is_link, link_error, no_file_error, refuse_link, remove_file
from metaroll.errors import LinkError, RunExistsError, other_folder

__all__ = [
    "clear",
    "copy_folder",
    "foreign_in",
    "free_name",
    "move_file",
    "move_folder",
    "named_some",
    "refuse_links",
    "remove_folder",
    "replace_folder",
    "set_aside",
    "standing",
]

_MOST_NAMED = 4
_ATTEMPTS = 100
_OF_ONE_FOLDER = (LOCK_FILE, MARK_FILE, SAVED_FILE)
"""Names that are not copied."""


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    """The entries of a folder, by name; none where there is no folder."""
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _is_folder(entry: os.DirEntry[str]) -> bool:
    return entry.is_dir(follow_symlinks=False)


def refuse_links(folder: str | Path, layout: Layout) -> None:
    """Error if anything in ``folder`` that is written by name is a link, or a folder in the place of a file.

    The folder itself may be a link.

    Raises:
        LinkError: Names it.
    """
    for entry in _entries(Path(folder)):
        inner = layout.folder(entry.name)
        # The lock has its own error.
        if entry.is_symlink() and layout.knows(entry.name) and entry.name != LOCK_FILE:
            raise link_error(entry.path)
        if inner is not None and _is_folder(entry):
            refuse_links(entry.path, inner)
        elif layout.place_of(entry.name) is not None and _is_folder(entry) and not re.fullmatch(GROWING, entry.name):
            raise no_file_error(entry.path)  # growing folders become those of agents and posteriors


def foreign_in(folder: str | Path, layout: Layout) -> list[str]:
    """Paths in ``folder`` that are not of its layout, in order."""
    foreign: list[str] = []
    for entry in _entries(Path(folder)):
        inner = layout.folder(entry.name)
        if inner is not None and _is_folder(entry):
            foreign += [f"{entry.name}/{path}" for path in foreign_in(entry.path, inner)]
        elif inner is not None or layout.place_of(entry.name) is None or _is_folder(entry):
            foreign.append(entry.name)
    return foreign


def named_some(paths: Collection[str | Path], most: int = _MOST_NAMED) -> str:
    """The first of ``paths``, and how many more there are."""
    listed = list(map(str, paths))
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return ", ".join(listed[:most]) + more


# -- removing ----------------------------------------------------------------------------------------------------------


def clear(folder: str | Path, layout: Layout, names: Collection[str] | None = None) -> None:
    """Remove metaroll's files from ``folder``, except for lock and mark; other files stay.

    It can be repeated after it was interrupted at any moment: the file by which the folder is known goes last.

    Args:
        folder: The folder.
        layout: Its names.
        names: Only these files and folders of it.

    Raises:
        LinkError: One of them is a link.
    """
    refuse_links(folder, layout)
    files: list[tuple[int, os.DirEntry[str]]] = []
    for entry in _entries(Path(folder)):
        if (names is not None and entry.name not in names) or entry.name in (LOCK_FILE, MARK_FILE):
            continue
        inner, place = layout.folder(entry.name), layout.place_of(entry.name)
        if inner is not None and _is_folder(entry):
            remove_folder(entry.path, inner)
        elif place is not None and not _is_folder(entry):
            files.append((place, entry))
    for _, entry in sorted(files, key=lambda file: file[0]):
        remove_file(entry.path)


def remove_folder(folder: str | Path, layout: Layout) -> bool:
    """Remove metaroll's files from ``folder``, then the folder; returns whether it is gone (foreign files keep it).

    Args:
        folder: The folder; nothing happens if there is none.
        layout: Its names.

    Raises:
        LinkError: It is a link, or something of the layout in it.
    """
    folder = Path(folder)
    if is_link(folder):
        raise link_error(folder)
    clear(folder, layout)
    if foreign_in(folder, layout):
        return False
    for name in (LOCK_FILE, MARK_FILE):
        remove_file(folder / name)
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            return False
        raise
    return True


def free_name(folder: str | Path, layout: Layout) -> None:
    """Remove metaroll's folder of that name; foreign files in it are kept in a folder of another name."""
    if not remove_folder(folder, layout):
        set_aside(folder)


# -- renaming ----------------------------------------------------------------------------------------------------------


def move_folder(folder: str | Path, target: str | Path) -> Path:
    """Rename our folder to ``target``, if there is none, or an empty one; ``target``."""
    os.rename(folder, target)
    return Path(target)


def move_file(path: str | Path, target: str | Path) -> Path:
    """Rename our file to ``target`` on the same disk, which is replaced if it is a file; ``target``.

    Raises:
        LinkError: Either is a link.
    """
    refuse_link(path)
    refuse_link(target)
    os.replace(path, target)
    return Path(target)


def set_aside(folder: str | Path) -> Path:
    """Rename a folder to the next free of ``NAME-2``, ``NAME-3``, ... beside it; its new path.

    Raises:
        RunExistsError: It is the current folder, or above that.
    """
    folder = Path(folder)
    if Path.cwd().is_relative_to(folder.resolve()):
        raise RunExistsError(f"{folder} cannot be renamed, since the current folder lies in it: {other_folder()}")
    for number in itertools.count(2):
        target = folder.with_name(f"{folder.name}-{number}")
        if not os.path.lexists(target):
            os.rename(folder, target)
            return target
    raise AssertionError("there always is a free number")


def _replaced_names(folder: Path) -> Iterator[Path]:
    """Where earlier contents of ``folder`` are while it is replaced, newest first."""
    pattern = re.compile(rf"\.{re.escape(folder.name)}\.\d+-[0-9a-f]{{8}}\.old")
    replaced = [entry for entry in _entries(folder.parent) if pattern.fullmatch(entry.name) and _is_folder(entry)]
    for entry in sorted(replaced, key=lambda entry: entry.stat().st_mtime_ns, reverse=True):
        yield Path(entry.path)


def standing(folder: str | Path) -> Path:
    """The folder itself; if its replacement was interrupted, the earlier folder under its current name.

    Readers use this and rename nothing: another process may be replacing the folder now.
    """
    folder = Path(folder)
    if not folder.name or os.path.lexists(folder):
        return folder
    present = next(_replaced_names(folder), folder)
    return folder if os.path.lexists(folder) else present


def replace_folder(new: str | Path, folder: str | Path, layout: Layout) -> Path:
    """Rename a complete folder to replace another one, which is removed; if that is a link, its target is replaced.

    A kill at any moment leaves the old or the new one, which ``standing`` finds.

    Args:
        new: The new folder, on the same disk.
        folder: The name; there need be no folder.
        layout: Names in both.
    """
    target = Path(os.path.realpath(folder))
    left = list(_replaced_names(target))  # of replacements that were interrupted
    if left and not os.path.lexists(target):
        with contextlib.suppress(OSError):  # another process was faster
            os.rename(left[0], target)
    for attempt in range(_ATTEMPTS):
        old = target.with_name(f".{target.name}.{os.getpid()}-{secrets.token_hex(4)}.old")
        with contextlib.suppress(FileNotFoundError):
            os.rename(target, old)
            left.append(old)
        try:
            os.rename(new, target)
            break
        except OSError as error:  # another process has put one there in between
            taken = error.errno in (errno.ENOTEMPTY, errno.EEXIST)
            if not taken or attempt == _ATTEMPTS - 1:
                with contextlib.suppress(OSError):
                    os.rename(old, target)
                raise
    flush_folder(target.parent)
    for replaced in left:
        with contextlib.suppress(OSError):  # the new one is in place
            remove_folder(replaced, layout)
    return Path(folder)


# -- copying -----------------------------------------------------------------------------------------------------------


def copy_folder(folder: str | Path, target: str | Path, layout: Layout) -> Path:
    """Copy metaroll's files in ``folder`` to ``target``, a new folder, without lock and mark; return ``target``.

    Raises:
        LinkError: Something that we write is a link.
    """
    folder, target = Path(folder), Path(target)
    target.mkdir()
    for entry in _entries(folder):
        inner = layout.folder(entry.name)
        known = inner is not None or layout.place_of(entry.name) is not None
        if not known or entry.name in _OF_ONE_FOLDER:
            continue
        if entry.is_symlink():
            raise link_error(entry.path)
        if inner is not None and _is_folder(entry):
            copy_folder(entry.path, target / entry.name, inner)
        elif inner is None and entry.is_file(follow_symlinks=False):
            shutil.copy2(entry.path, target / entry.name, follow_symlinks=False)
        else:
            raise LinkError(f"{entry.path} must be a {'plain file' if inner is None else 'folder'}: move it away")
    return target
