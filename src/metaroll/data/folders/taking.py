"""Taking a folder: the one way to begin to write into one."""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import final

from metaroll.data.doors.json_files import parse_json
from metaroll.data.folders.atomic_files import write_atomic
from metaroll.data.folders.contents import clear, foreign_in, named_some, refuse_links, set_aside
from metaroll.data.folders.kinds import CONFIG_FILE, GROWING, KINDS, LOCK_FILE, LOG_FILE, MARK_FILE, Kind
from metaroll.data.folders.locks import FolderLock
from metaroll.errors import MetarollError, RunExistsError, other_folder

__all__ = ["HeldFolder", "is_empty", "kind_of", "refuse_foreign", "take", "take_new", "write_mark"]

_FORMAT = 1
_MARK_BYTES = 4096
_HEAD_BYTES = 2**16
_MARK = "restore the file from a copy, or use that version"
# Left by a process that ended before it began.
_NOTHING = re.compile(
    "|".join([*map(re.escape, (LOCK_FILE, LOG_FILE, MARK_FILE)), GROWING]) + rf"|\.{re.escape(CONFIG_FILE)}\.tmp"
)


@contextlib.contextmanager
def _usable(folder: Path) -> Iterator[None]:
    """Errors of the operating system with the folder and a hint."""
    try:
        yield
    except MetarollError:
        raise
    except OSError as error:
        raise OSError(f"{folder} cannot be used ({error.strerror}): {other_folder()}") from error


# -- what it is --------------------------------------------------------------------------------------------------------


def is_empty(folder: str | Path) -> bool:
    """Whether the folder is missing, or holds only leftovers of a process that ended before it began."""
    folder = Path(folder)
    with _usable(folder):
        if not folder.exists():
            return True
        return folder.is_dir() and all(_NOTHING.fullmatch(path.name) for path in folder.iterdir())


def kind_of(folder: str | Path) -> Kind | None:
    """The kind of a folder, by its mark, or, of one that an earlier version wrote, by its signs; ``None`` for others.

    Raises:
        RunExistsError: A later version wrote it.
    """
    folder = Path(folder)
    mark = _mark_of(folder)
    if mark is not None:
        return mark
    return next((kind for kind in KINDS.values() if any(_has(folder, paths) for paths in kind.signs)), None)


def _mark_of(folder: Path) -> Kind | None:
    path = folder / MARK_FILE
    head = _head(path, _MARK_BYTES)
    if not head:
        return None
    try:
        mark = parse_json(head)
        kind, version = KINDS[mark["kind"]], mark["format"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise RunExistsError(f"{path} is damaged, or of a later version: {other_folder(_MARK)}") from None
    if version != _FORMAT:
        raise RunExistsError(f"{path} has format {version!r}, this metaroll knows {_FORMAT}: {other_folder(_MARK)}")
    return kind


def _head(path: Path, size: int) -> bytes:
    """The beginning of a plain file; nothing if there is none."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return b""
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        return b""
    with os.fdopen(descriptor, "rb") as file:
        return file.read(size)


def _has(folder: Path, paths: Sequence[str]) -> bool:
    """Whether all of ``paths`` are there, which are the signs of a kind."""
    for sign in paths:
        path, _, line = sign.partition(": ")
        matches = _matching(folder, path.split("/"))
        if line:
            matches = [file for file in matches if re.search(rf"(?m)^{line}\b".encode(), _head(file, _HEAD_BYTES))]
        if not matches:
            return False
    return True


def _matching(folder: Path, patterns: Sequence[str]) -> list[Path]:
    try:
        matches = [path for path in folder.iterdir() if re.fullmatch(patterns[0], path.name) and not path.is_symlink()]
    except OSError:
        return []
    return matches if len(patterns) == 1 else [below for path in matches for below in _matching(path, patterns[1:])]


def refuse_foreign(folder: str | Path, kind: Kind) -> None:
    """Error if ``folder`` holds anything but one of ``kind``, beside which there may be files of others.

    Raises:
        RunExistsError: Names some of the files.
    """
    folder = Path(folder)
    if is_empty(folder):
        return
    present = kind_of(folder) if folder.is_dir() else None
    if present is None:
        foreign = foreign_in(folder, kind.layout) or sorted(os.listdir(folder)) if folder.is_dir() else []
        what = f"is not {kind.what}: it holds {named_some(foreign)}" if folder.is_dir() else "is a file"
        raise RunExistsError(f"{folder} exists and {what}; move that away, or {other_folder()}")
    if present is not kind and kind.name not in present.becomes:
        raise RunExistsError(f"{folder} exists and is {present.what}, not {kind.what}: {other_folder()}")


def write_mark(folder: Path, kind: Kind) -> None:
    """Mark a folder of ours with its kind."""
    text = json.dumps({"kind": kind.name, "format": _FORMAT}) + "\n"
    if _head(folder / MARK_FILE, _MARK_BYTES) != text.encode():
        write_atomic(folder / MARK_FILE, text.encode())


# -- taking it ---------------------------------------------------------------------------------------------------------


@final
class HeldFolder:
    """A folder that this process alone writes into, until ``release`` or the end of the process.

    Attributes:
        path: The folder.
        kind: Its kind.
    """

    def __init__(self, path: Path, kind: Kind, lock: FolderLock) -> None:
        self.path, self.kind = path, kind
        self._lock = lock

    def clear(self, names: Collection[str] | None = None) -> None:
        """Remove metaroll's files from it, or only files and folders of these ``names``."""
        clear(self.path, self.kind.layout, names)

    def release(self) -> None:
        """Let others write."""
        self._lock.release()

    def __enter__(self) -> HeldFolder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def take(folder: str | Path, kind: Kind, check: Callable[[], object] | None = None) -> HeldFolder:
    """The right to write into ``folder`` as one of ``kind``, which no other process then has.

    The caller has checked all that a user asked for: an error then leaves nothing in the folder, and its files
    stay unchanged. The order is that of the steps here: no name in the folder that is written is a link (the folder
    itself and those above it may be: the user has named them); what is there belongs there; the folder is made, and
    locked; both are checked again; a mark declares the kind of the folder.

    Args:
        folder: Made if needed.
        kind: Its kind, now or later.
        check: Raises where what is in the folder does not belong there; by default ``refuse_foreign`` decides.

    Raises:
        RunExistsError: Another process holds it, or it holds something else.
        LinkError: A name in it is a link.
        OSError: Nothing can be written there.
    """
    folder = Path(folder)

    def check_contents() -> None:
        refuse_links(folder, kind.layout)
        if check is None:
            refuse_foreign(folder, kind)
        else:
            check()

    with _usable(folder):
        check_contents()
        folder.mkdir(parents=True, exist_ok=True)
        lock = FolderLock(folder)
        check_contents()
        write_mark(folder, kind)
    return HeldFolder(folder, kind, lock)


def take_new(
    folder: str | Path, kind: Kind, check: Callable[[], object] | None = None
) -> tuple[HeldFolder, Path | None]:
    """A new folder of ``kind``, and where an earlier one that was there is now: beside it, by another name.

    Args:
        folder: Made if needed.
        kind: Its new kind.
        check: As of ``take``, for the earlier one.
    """
    folder, kept = Path(folder), None
    if not is_empty(folder):
        with take(folder, kind, check), _usable(folder):
            kept = set_aside(folder)

    def refuse_any() -> None:
        if not is_empty(folder):
            raise RunExistsError(f"another process has begun to write into {folder}: {other_folder()}")

    return take(folder, kind, refuse_any), kept
