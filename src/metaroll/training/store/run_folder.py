"""The folder of a run: its files, and its configuration."""

from __future__ import annotations

import contextlib
import difflib
import functools
import os
import platform
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from metaroll.configs.table import current_names
from metaroll.data.doors.yaml_files import read_yaml
from metaroll.data.folders.contents import foreign_in, named_some, refuse_links, standing
from metaroll.data.folders.kinds import (
    AGENT,
    CONFIG_FILE,
    EVALUATION_FILE,
    GROUP,
    GROUP_FILE,
    LOCK_FILE,
    LOG_FILE,
    MARK_FILE,
    RUN,
    SNAPSHOTS,
    SUMMARY_FILE,
    TASK_SPLIT_FILE,
)
from metaroll.data.folders.taking import is_empty, kind_of
from metaroll.errors import RunExistsError, SnapshotError, command_text, for_reader, other_folder
from metaroll.training.store.ownership import signed
from metaroll.training.store.run_values import CONFIG_SECTIONS, SIGNATURE
from metaroll.training.store.yaml_files import write_yaml

__all__ = [
    "CONFIG_FILE",
    "EVALUATION_FILE",
    "GROUP_FILE",
    "LOG_FILE",
    "SUMMARY_FILE",
    "TASK_SPLIT_FILE",
    "check_links",
    "copy_config",
    "find_run",
    "kept_paths",
    "package_versions",
    "read_config",
    "refuse_existing",
    "refuse_foreign",
    "refuse_unsaved",
    "resolved_paths",
    "write_config",
]

CONFIG_FORMAT = 1
_PATHS = ("teacher",)
"""Options that name folders."""
_HEADER = "# Written by metaroll; `metaroll resume` and `metaroll evaluate` rebuild the whole run from this file.\n"
_MOST_NAMED = 8
"""Runs that an error lists."""

# -- what belongs to a run ---------------------------------------------------------------------------------------------


def check_links(folder: Path) -> None:
    """Error if a name in the folder of a run that something may be written to is a link.

    Raises:
        LinkError: Names it.
    """
    refuse_links(folder, RUN.layout)


def refuse_existing(folder: Path) -> None:
    """Error if ``folder`` holds something already."""
    if not is_empty(folder):
        if folder.is_dir() and kind_of(folder) is RUN:
            resume, load = f"`{command_text('resume', folder)}`", f"metaroll.load({str(folder)!r}).learn()"
            how = for_reader(f"{resume} in a shell continues it, {load} a copy of it;", f"continue it with {resume},")
            raise RunExistsError(f"a run exists already in {folder}: {how} or {other_folder()}")
        raise RunExistsError(f"{folder} exists and is not a run of metaroll{_holding(folder)}: {other_folder()}")


def _holding(folder: Path) -> str:
    """Foreign entries of a folder, or, if there are none, some of its entries."""
    if not folder.is_dir():
        return ""
    names = foreign_in(folder, RUN.layout) or sorted(path.name for path in folder.iterdir())
    return f" (it holds {named_some(names)})"


def refuse_foreign(folder: Path, command: str) -> None:
    """Error if ``folder`` holds anything but a run of ``command``."""
    if is_empty(folder):
        return
    try:
        ours = read_config(folder).get("command") == command
    except (SnapshotError, FileNotFoundError, NotADirectoryError):
        ours = False
    if not ours:
        raise RunExistsError(
            f"{folder} exists and was not written by `metaroll {command}`{_holding(folder)}: {other_folder()}"
        )


def refuse_unsaved(folder: Path) -> None:
    """Error if ``folder`` holds anything but a saved agent: e.g. another run, or foreign files."""
    if is_empty(folder):
        return
    foreign = foreign_in(folder, AGENT.layout) if folder.is_dir() else []
    saved = folder.is_dir() and kind_of(folder) is AGENT
    # Where there is no mark, the copy of an earlier version: if it was locked, it has been trained since.
    trained = (folder / LOCK_FILE).exists() and not (folder / MARK_FILE).exists()
    if not saved or trained or foreign:
        what = f"holds {named_some(foreign)}" if foreign else "was not written by agent.save"
        raise RunExistsError(f"{folder} exists, and {what}: save under another name, or remove it yourself")


def find_run(path: str | Path) -> Path:
    """The folder of an existing run, or an error that lists the runs nearby."""
    folder = standing(path)
    if (folder / CONFIG_FILE).is_file():
        return folder
    if folder.is_dir() and (kind_of(folder) in (RUN, AGENT) or (folder / SNAPSHOTS).is_dir()):
        raise FileNotFoundError(
            f"{folder / CONFIG_FILE} is missing, and a run cannot be built again without it: restore the file from a "
            "copy (a script with a LocalRunner continues its own run)"
        )
    if folder.is_dir() and kind_of(folder) is GROUP:
        what, begun = "is a group of runs, not one of them", _runs_in(folder)
        named = (
            f"name one: {named_some(begun, _MOST_NAMED)}"
            if begun
            else f"none has begun: {command_text('resume', folder)}"
        )
        raise FileNotFoundError(f"{folder} {what}; {named}")
    near = list(dict.fromkeys(run for place in (folder, folder.parent, Path("runs")) for run in _runs_in(place)))
    begin = for_reader("metaroll.agent(...).learn()", "`metaroll train`")
    hint = f"runs here: {named_some(near, _MOST_NAMED)}" if near else f"start one with {begin}"
    alike = difflib.get_close_matches(folder.name, list(dict.fromkeys(run.name for run in near)), n=1)
    if alike and not folder.exists():
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


def kept_paths(config: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """``config`` as it is written into ``folder``: folders as seen from there, so that both can be moved together."""
    if not isinstance(config.get("algorithm"), Mapping):
        return dict(config)
    values = dict(config["algorithm"])
    for name in _PATHS:
        if isinstance(values.get(name), str) and (path := Path(values[name]).expanduser()).is_dir():
            values[name] = os.path.relpath(path.resolve(), folder.resolve())
    return {**config, "algorithm": values}


def resolved_paths(values: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Options of a file in ``folder``, with folders where they are: relative to it if they exist there."""
    resolved = dict(values)
    for name in _PATHS:
        if isinstance(resolved.get(name), str) and (path := folder / resolved[name]).is_dir():
            resolved[name] = str(path.resolve())
    return resolved


def copy_config(run: Path, folder: Path) -> None:
    """Let ``folder``, a copy of ``run``, name the same folders as that."""
    document = read_config(run)
    if any(document["algorithm"].get(name) for name in _PATHS):
        write_yaml(folder / CONFIG_FILE, kept_paths(document, folder), _HEADER)


def write_config(folder: Path, config: Mapping[str, Any], name: str = CONFIG_FILE) -> None:
    """Write ``config.yaml`` (or a file of another name) into ``folder`` (made if needed), with format and versions."""
    sections = {key: value for key, value in config.items() if key not in ("metaroll_run", "versions", SIGNATURE)}
    permit = signed(config)
    folder.mkdir(parents=True, exist_ok=True)
    sections = kept_paths(sections, folder)
    document = {"metaroll_run": CONFIG_FORMAT, **sections, **permit, "versions": dict(package_versions())}
    write_yaml(folder / name, document, _HEADER)


def read_config(folder: Path, name: str = CONFIG_FILE) -> dict[str, Any]:
    """The configuration of the run in ``folder``, of its ``config.yaml`` (or a file of another name)."""
    path = folder / name
    document = read_yaml(path, SnapshotError, "restore the file from a copy, or train again")
    if document.get("metaroll_run") != CONFIG_FORMAT:
        raise SnapshotError(
            f"{path} must have metaroll_run: {CONFIG_FORMAT}, got {document.get('metaroll_run')!r}: it was written by "
            "something else or by another version of metaroll; use that version, or train again"
        )
    missing = [key for key in ("algo", "env", *CONFIG_SECTIONS) if key not in document]
    if missing:
        raise SnapshotError(f"{path} lacks {', '.join(missing)}: restore the file from a copy, or train again")
    wanted = {**dict.fromkeys(CONFIG_SECTIONS, dict), "algo": str, "env": str}
    for key, kind in wanted.items():
        if not isinstance(document[key], kind):
            raise SnapshotError(
                f"{key} in {path} has the invalid value {document[key]!r}: restore the file from a copy, or train again"
            )
    if isinstance(document["algorithm"], Mapping):
        document["algorithm"] = resolved_paths(document["algorithm"], folder)
    return current_names(document)
