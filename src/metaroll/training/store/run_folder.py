"""The folder of a run: who may write into it, what belongs to it, and its configuration."""

from __future__ import annotations

import contextlib
import difflib
import errno
import fcntl
import functools
import os
import platform
import re
import shutil
import socket
import stat
import weakref
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from types import TracebackType
from typing import Any

from metaroll.data.atomic_files import temporary_path
from metaroll.errors import MetarollError, RunExistsError, SnapshotError, command_text, option_text, said
from metaroll.training.store.yaml_files import read_yaml, write_yaml

__all__ = [
    "CONFIG_FILE",
    "CONFIG_SECTIONS",
    "EVALUATION_FILE",
    "GROUP_FILE",
    "LOCK_FILE",
    "LOG_FILE",
    "SUMMARY_FILE",
    "TASK_SPLIT_FILE",
    "RunLock",
    "check_writable",
    "clear_run",
    "find_run",
    "is_locked",
    "lock_run",
    "mark_saved",
    "package_versions",
    "read_config",
    "refuse_existing",
    "refuse_foreign",
    "refuse_unsaved",
    "write_config",
]

CONFIG_FILE = "config.yaml"
GROUP_FILE = "group.yaml"
"""What one command line asked for that began runs of several seeds, in the folder that holds theirs."""
TASK_SPLIT_FILE = "task_split.json"
SUMMARY_FILE = "summary.json"
"""Written at the end of training: the last evaluation among other things."""
EVALUATION_FILE = "evaluation.json"
"""Written by an evaluation of a finished or stopped run."""
LOCK_FILE = ".lock"
SAVED_FILE = ".saved"
LOG_FILE = ".output.log"
"""What a run of a group in a process of its own has said."""
CONFIG_SECTIONS = ("run", "algorithm", "evaluation")
CONFIG_FORMAT = 1
_HEADER = "# Written by metaroll; `metaroll resume` and `metaroll evaluate` rebuild the whole run from this file.\n"
_MOST_NAMED = 8
"""Runs that an error lists."""
_TAKEN = (errno.EACCES, errno.EAGAIN)
# The configuration last: a removal that is interrupted can be repeated.
_OWN_FILES = (
    "learning_curve.png",
    "adaptation_curve.png",
    SUMMARY_FILE,
    EVALUATION_FILE,
    "evaluation.png",
    "k_shot_curve.png",
    "watch.mp4",
    "watch.gif",
    "report.html",
    TASK_SPLIT_FILE,
    "metrics.jsonl",
    CONFIG_FILE,
)
_OWN_SNAPSHOTS = re.compile(r"\d{6,}(\.abandoned)?|\.\d{6,}\.old|\.tmp-\d{6,}")
# Left by a run that ended before it began.
_NOTHING = re.compile(rf"{re.escape(LOCK_FILE)}|{re.escape(LOG_FILE)}|\.{re.escape(CONFIG_FILE)}\.(.+\.)?tmp")


# -- who may write -----------------------------------------------------------------------------------------------------


class _Held:
    """An open lock file. The process has one lock on it, which ends when any of its descriptors is closed."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.close = weakref.finalize(self, os.close, descriptor)


_HELD: weakref.WeakValueDictionary[tuple[int, ...], _Held] = weakref.WeakValueDictionary()
"""The locks of this process, by ``_key`` of their files."""


def _key(status: os.stat_result) -> tuple[int, ...]:
    return os.getpid(), status.st_dev, status.st_ino  # a fork has the object, but not the lock


class RunLock:
    """The right to write into a run folder, held until ``release`` or the end of the process.

    It is a POSIX record lock on ``<run>/.lock``. The kernel frees it when its process ends, however it ends; the file
    stays, and says who held it last. Workers do not inherit it. Within one process it excludes nobody, and is held
    until the last ``RunLock`` of the folder is released.

    Args:
        run_dir: Existing folder of the run.

    Raises:
        RunExistsError: Another process holds it, or ``.lock`` is a link or no file.
    """

    def __init__(self, run_dir: str | Path) -> None:
        self._held: _Held | None = _lock(Path(run_dir))

    def release(self) -> None:
        """Let others write."""
        self._held = None

    def __enter__(self) -> RunLock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def _lock(run_dir: Path) -> _Held:
    path = run_dir / LOCK_FILE
    with contextlib.suppress(FileNotFoundError):
        status = os.lstat(path)
        if not stat.S_ISREG(status.st_mode):  # what it points to, or who reads it, is no business of ours
            raise RunExistsError(f"{path} must be a plain file: remove it, or {_other_folder()}")
        if (held := _HELD.get(_key(status))) is not None:
            return held
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
    held = _Held(descriptor)
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        holder = _holder(descriptor)
        if error.errno in _TAKEN:
            held.close()
            raise RunExistsError(
                f"{run_dir} is in use by {holder}: wait until that process is done or stop it, or {_other_folder()}"
            ) from None
        return held  # a file system without locks: go on without
    with contextlib.suppress(OSError):  # the lock counts, the name is only for the message
        os.truncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()} {socket.gethostname()}\n".encode(), 0)
    _HELD[_key(os.fstat(descriptor))] = held
    return held


def is_locked(run_dir: str | Path) -> bool:
    """Whether another process may write into a run folder now; asks only, so that nobody is refused because of it."""
    path = Path(run_dir) / LOCK_FILE
    try:
        status = os.lstat(path)
        if not stat.S_ISREG(status.st_mode) or _key(status) in _HELD:
            return False
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        os.lockf(descriptor, os.F_TEST, 0)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def _holder(descriptor: int) -> str:
    """Who wrote the lock file."""
    with contextlib.suppress(OSError, ValueError):
        pid, host = os.pread(descriptor, 1000, 0).decode().split()
        return f"process {int(pid)}" + ("" if host == socket.gethostname() else f" on {host}")
    return "another process"


@contextlib.contextmanager
def _usable(folder: Path) -> Iterator[None]:
    """Errors of the operating system with the folder and a hint."""
    try:
        yield
    except MetarollError:
        raise
    except OSError as error:
        raise OSError(f"{folder} cannot be used ({error.strerror}): {_other_folder()}") from error


def lock_run(folder: Path) -> RunLock:
    """The right to write into ``folder`` (made if needed), which no other process then has.

    Raises:
        RunExistsError: Another process holds it.
        OSError: Nothing can be written there.
    """
    with _usable(folder):
        folder.mkdir(parents=True, exist_ok=True)
        return RunLock(folder)


def check_writable(folder: Path) -> None:
    """Error unless files can be made in ``folder``: before a long computation whose result shall lie there.

    Raises:
        OSError: Nothing can be written there.
    """
    with _usable(folder):
        probe = temporary_path(folder / "probe")
        os.close(os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))
        probe.unlink()


# -- what belongs to a run ---------------------------------------------------------------------------------------------


def _other_folder() -> str:
    return f"choose another folder with {option_text('run_dir')}"


def refuse_existing(folder: Path) -> None:
    """Error if ``folder`` holds something already."""
    if not _is_empty(folder):
        if (folder / CONFIG_FILE).is_file():
            resume, load = f"`{command_text('resume', folder)}`", f"metaroll.load({str(folder)!r}).learn()"
            how = said(f"{resume} in a shell goes on in it, {load} in a copy;", f"continue it with {resume},")
            raise RunExistsError(f"a run exists already in {folder}: {how} or {_other_folder()}")
        raise RunExistsError(f"{folder} exists and is not a run of metaroll: {_other_folder()}")


def _is_empty(folder: Path) -> bool:
    with _usable(folder):
        if not folder.exists():
            return True
        return folder.is_dir() and all(_NOTHING.fullmatch(path.name) for path in folder.iterdir())


def refuse_foreign(folder: Path, command: str) -> None:
    """Error if ``folder`` holds anything but a run of ``command``."""
    if _is_empty(folder):
        return
    try:
        ours = read_config(folder).get("command") == command
    except (SnapshotError, FileNotFoundError, NotADirectoryError):
        ours = False
    if not ours:
        raise RunExistsError(f"{folder} exists and was not written by `metaroll {command}`: {_other_folder()}")


def mark_saved(folder: Path) -> None:
    """Note that ``folder`` is a copy that an agent was saved as, which another may replace."""
    (folder / SAVED_FILE).touch()


def refuse_unsaved(folder: Path) -> None:
    """Error if ``folder`` holds anything but a saved agent: a run of its own, say, or files of somebody else."""
    if _is_empty(folder):
        return
    known = {*_OWN_FILES, SAVED_FILE, LOCK_FILE, LOG_FILE, "snapshots", "tensorboard"}
    others = sorted(path.name for path in folder.iterdir() if path.name not in known) if folder.is_dir() else []
    if not (folder / SAVED_FILE).is_file() or others or is_locked(folder):
        what = f"holds {', '.join(others)}" if others else "is no folder that an agent was saved in"
        raise RunExistsError(f"{folder} exists, and {what}: save under another name, or remove it yourself")


def clear_run(folder: Path, command: str) -> None:
    """Remove what an earlier run of ``command`` wrote into ``folder``, and nothing else.

    A folder with other content than such a run is refused. Files beside the run that metaroll did not write stay.
    """
    refuse_foreign(folder, command)
    if _is_empty(folder):
        return
    for snapshot in sorted((folder / "snapshots").glob("*")):
        if _OWN_SNAPSHOTS.fullmatch(snapshot.name):
            shutil.rmtree(snapshot) if snapshot.is_dir() else snapshot.unlink()
    if not _is_empty(folder / "snapshots"):
        raise RunExistsError(
            f"{folder / 'snapshots'} holds files that metaroll did not write: move them, or {_other_folder()}"
        )
    if (folder / "snapshots").exists():
        (folder / "snapshots").rmdir()
    for name in _OWN_FILES:
        (folder / name).unlink(missing_ok=True)


def find_run(path: str | Path) -> Path:
    """The folder of an existing run, or an error that lists the runs nearby."""
    folder = Path(path)
    if (folder / CONFIG_FILE).is_file():
        return folder
    near = list(dict.fromkeys(run for place in (folder, folder.parent, Path("runs")) for run in _runs_in(place)))
    begin = said("metaroll.agent(...).learn()", "`metaroll train`")
    more = f" and {len(near) - _MOST_NAMED} more" if len(near) > _MOST_NAMED else ""
    listed = ", ".join(map(str, near[:_MOST_NAMED])) + more
    hint = f"runs here: {listed}" if near else f"start one with {begin}"
    alike = difflib.get_close_matches(folder.name, list(dict.fromkeys(run.name for run in near)), n=1)
    if alike:
        hint = f"did you mean {str(next(run for run in near if run.name == alike[0]))!r}? {hint}"
    what = "is a file" if folder.is_file() else "does not exist"
    what = f"holds no {CONFIG_FILE}" if folder.is_dir() else what
    raise FileNotFoundError(f"{folder} is not a metaroll run directory ({what}); {hint}")


def _runs_in(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(
        path.parent for pattern in ("", "*/") for path in folder.glob(pattern + CONFIG_FILE) if path.is_file()
    )


# -- configuration -----------------------------------------------------------------------------------------------------


@functools.cache
def package_versions() -> Mapping[str, str]:
    """Versions that a result depends on; packages that are not installed are left out."""
    from metaroll import __version__

    versions = {"metaroll": __version__, "python": platform.python_version()}
    for package in ("numpy", "torch", "gymnasium", "mujoco", "metaworld"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    return versions


def write_config(folder: Path, config: Mapping[str, Any], name: str = CONFIG_FILE) -> None:
    """Write ``config.yaml`` (or a file of another name) into ``folder`` (made if needed), with format and versions."""
    sections = {key: value for key, value in config.items() if key not in ("metaroll_run", "versions")}
    document = {"metaroll_run": CONFIG_FORMAT, **sections, "versions": dict(package_versions())}
    folder.mkdir(parents=True, exist_ok=True)
    write_yaml(folder / name, document, _HEADER)


def read_config(folder: Path, name: str = CONFIG_FILE) -> dict[str, Any]:
    """The configuration of the run in ``folder``, of its ``config.yaml`` (or a file of another name)."""
    path = folder / name
    try:
        document = read_yaml(path)
    except ValueError as error:
        raise SnapshotError(f"{error}; restore the file from a copy, or train anew") from error
    if document.get("metaroll_run") != CONFIG_FORMAT:
        raise SnapshotError(
            f"{path} must have metaroll_run: {CONFIG_FORMAT}, got {document.get('metaroll_run')!r}: it was written by "
            "something else or by another version of metaroll; use that version, or train anew"
        )
    missing = [key for key in ("algo", "env", *CONFIG_SECTIONS) if key not in document]
    if missing:
        raise SnapshotError(f"{path} lacks {', '.join(missing)}: restore the file from a copy, or train anew")
    return document
