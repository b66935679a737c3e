"""The folder of a run: its configuration, and what may be overwritten in it."""

from __future__ import annotations

import platform
import re
import shutil
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from metaroll.errors import RunExistsError, SnapshotError

__all__ = [
    "CONFIG_FILE",
    "clear_run",
    "default_run_dir",
    "find_run",
    "flat_values",
    "package_versions",
    "read_config",
    "read_yaml",
    "refuse_existing",
    "write_config",
]

CONFIG_FILE = "config.yaml"
_FORMAT = 1
_HEADER = "# Written by metaroll; `metaroll resume` and `metaroll evaluate` rebuild the whole run from this file.\n"
# The configuration last: a removal that is interrupted can be repeated.
_OWN_FILES = (
    "learning_curve.png",
    "adaptation_curve.png",
    "summary.json",
    "evaluation.json",
    "evaluation.png",
    "metrics.jsonl",
    CONFIG_FILE,
)
_OWN_SNAPSHOTS = re.compile(r"\d{6,}(\.abandoned)?|\.\d{6,}\.old|\.tmp-\d{6,}")
_SECTIONS = ("run", "algorithm", "evaluation")
_NOT_OPTIONS = ("metaroll_run", "command", "versions")


def default_run_dir(algo: str, env: str, seed: int) -> Path:
    """``runs/<algo>-<env>-<seed>``, in the current folder."""
    return Path("runs") / f"{algo}-{env}-{seed}"


def package_versions() -> dict[str, str]:
    """Versions that a result depends on; packages that are not installed are left out."""
    from metaroll import __version__

    versions = {"metaroll": __version__, "python": platform.python_version()}
    for package in ("numpy", "torch", "gymnasium", "mujoco"):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return versions


def refuse_existing(folder: Path) -> None:
    """Error if ``folder`` holds something already."""
    if not _is_empty(folder):
        if (folder / CONFIG_FILE).is_file():
            cure = f"continue it with `metaroll resume {folder}`, or choose another folder with --out"
            raise RunExistsError(f"a run exists already in {folder}: {cure}")
        raise RunExistsError(f"{folder} exists and is not a run of metaroll: choose another folder with --out")


def _is_empty(folder: Path) -> bool:
    return not folder.exists() or (folder.is_dir() and not any(folder.iterdir()))


def clear_run(folder: Path, command: str) -> None:
    """Remove what an earlier run of ``command`` wrote into ``folder``, and nothing else.

    A folder with other content than such a run is refused. Files beside the run that metaroll did not write stay.
    """
    if _is_empty(folder):
        return
    try:
        ours = read_config(folder).get("command") == command
    except (SnapshotError, FileNotFoundError, NotADirectoryError):
        ours = False
    if not ours:
        raise RunExistsError(
            f"{folder} exists and was not written by `metaroll {command}`: choose another folder with --out"
        )
    for snapshot in sorted((folder / "snapshots").glob("*")):
        if _OWN_SNAPSHOTS.fullmatch(snapshot.name):
            shutil.rmtree(snapshot) if snapshot.is_dir() else snapshot.unlink()
    if not _is_empty(folder / "snapshots"):
        raise RunExistsError(
            f"{folder / 'snapshots'} holds files that metaroll did not write: move them, or choose another folder "
            "with --out"
        )
    if (folder / "snapshots").exists():
        (folder / "snapshots").rmdir()
    for name in _OWN_FILES:
        (folder / name).unlink(missing_ok=True)


def write_config(folder: Path, config: Mapping[str, Any]) -> None:
    """Write ``config.yaml`` into ``folder`` (made if needed), in one piece."""
    import yaml

    from metaroll.training.files import write_atomic

    folder.mkdir(parents=True, exist_ok=True)
    sections = {key: _plain(value) for key, value in config.items() if key not in ("metaroll_run", "versions")}
    document = {"metaroll_run": _FORMAT, **sections, "versions": package_versions()}
    text = yaml.dump(document, Dumper=_dumper(), sort_keys=False, allow_unicode=True)
    write_atomic(folder / CONFIG_FILE, (_HEADER + text).encode())


def _dumper() -> type:
    """Writes lists in one line each and everything else in lines of its own."""
    import yaml

    class Dumper(yaml.SafeDumper):
        pass

    Dumper.add_representer(list, lambda dumper, row: dumper.represent_sequence("tag:yaml.org,2002:seq", row, True))
    return Dumper


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return value


def read_yaml(path: Path) -> dict[str, Any]:
    """A YAML file that holds names and values."""
    import yaml

    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        detail = " ".join(str(error).split())
        raise ValueError(f"{path} is not valid YAML: {detail}") from error
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise ValueError(f"{path} must hold lines `name: value`, got {type(document).__name__}")
    return document


def read_config(folder: Path) -> dict[str, Any]:
    """The configuration of the run in ``folder``."""
    path = folder / CONFIG_FILE
    try:
        document = read_yaml(path)
    except ValueError as error:
        raise SnapshotError(f"{error}; restore the file from a copy, or train anew") from error
    if document.get("metaroll_run") != _FORMAT:
        raise SnapshotError(
            f"{path} must have metaroll_run: {_FORMAT}, got {document.get('metaroll_run')!r}: it was written by "
            "something else or by another version of metaroll; use that version, or train anew"
        )
    missing = [key for key in ("algo", "env", *_SECTIONS) if key not in document]
    if missing:
        raise SnapshotError(f"{path} lacks {', '.join(missing)}: restore the file from a copy, or train anew")
    return document


def flat_values(document: Mapping[str, Any]) -> dict[str, Any]:
    """Option name -> value of a configuration with or without sections (``algo``, ``env`` and versions left out)."""
    values: dict[str, Any] = {}
    for key, value in document.items():
        if key in _NOT_OPTIONS or key in ("algo", "env"):
            continue
        if key in _SECTIONS and isinstance(value, Mapping):
            values.update(value)
        else:
            values[key] = value
    return values


def find_run(path: str | Path) -> Path:
    """The folder of an existing run, or an error that lists the runs nearby."""
    folder = Path(path)
    if (folder / CONFIG_FILE).is_file():
        return folder
    near = list(dict.fromkeys(run for place in (folder, folder.parent, Path("runs")) for run in _runs_in(place)))
    hint = f"runs here: {', '.join(str(run) for run in near[:8])}" if near else "start one with `metaroll train`"
    what = f"holds no {CONFIG_FILE}" if folder.is_dir() else "does not exist"
    raise FileNotFoundError(f"{folder} is no run of metaroll ({what}); {hint}")


def _runs_in(folder: Path) -> list[Path]:
    return sorted(path.parent for path in folder.glob(f"*/{CONFIG_FILE}")) if folder.is_dir() else []
