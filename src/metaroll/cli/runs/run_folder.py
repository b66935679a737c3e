"""The folder of a run: its configuration, and what may be overwritten in it."""

from __future__ import annotations

import contextlib
import platform
import re
import shutil
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from metaroll.errors import MetarollError, RunExistsError, SnapshotError
from metaroll.training.store.run_lock import LOCK_FILE, RunLock
from metaroll.training.store.yaml_files import read_yaml

__all__ = [
    "CONFIG_FILE",
    "GROUP_FILE",
    "LOG_FILE",
    "check_same_run",
    "clear_run",
    "default_group_dir",
    "default_run_dir",
    "file_values",
    "find_run",
    "flat_values",
    "lock_run",
    "package_versions",
    "read_config",
    "refuse_existing",
    "refuse_foreign",
    "write_config",
]

CONFIG_FILE = "config.yaml"
GROUP_FILE = "group.yaml"
"""What one command line asked for that began runs of several seeds, in the folder that holds theirs."""
LOG_FILE = ".output.log"
"""What a run of a group in a process of its own has said."""
_FORMAT = 1
_HEADER = "# Written by metaroll; `metaroll resume` and `metaroll evaluate` rebuild the whole run from this file.\n"
# The configuration last: a removal that is interrupted can be repeated.
_OWN_FILES = (
    "learning_curve.png",
    "adaptation_curve.png",
    "summary.json",
    "evaluation.json",
    "evaluation.png",
    "k_shot_curve.png",
    "watch.mp4",
    "watch.gif",
    "report.html",
    "task_split.json",
    "metrics.jsonl",
    CONFIG_FILE,
)
_OWN_SNAPSHOTS = re.compile(r"\d{6,}(\.abandoned)?|\.\d{6,}\.old|\.tmp-\d{6,}")
_SECTIONS = ("run", "algorithm", "evaluation")
_NOT_OPTIONS = ("metaroll_run", "command", "versions", "algo", "env", "seeds", "jobs")
# Left by a run that ended before it began.
_NOTHING = re.compile(rf"{re.escape(LOCK_FILE)}|{re.escape(LOG_FILE)}|\.{re.escape(CONFIG_FILE)}\.(.+\.)?tmp")
# What a run may change when it goes on; all else of these sections decides what its snapshots hold.
_CHANGEABLE = ("evaluate_every", "memory_limit")
_LASTING_RUN_OPTIONS = ("seed", "task_seed", "hidden_sizes", "init")


def default_run_dir(algo: str, env: str, seed: int) -> Path:
    """``runs/<algo>-<env>-<seed>``, in the current folder; ``metaroll/Pendulum-v0`` or ``module:name`` get dashes."""
    return Path("runs") / f"{algo}-{env.replace('/', '-').replace(':', '-')}-{seed}"


def default_group_dir(algo: str, env: str, first_seed: int, last_seed: int) -> Path:
    """``runs/<algo>-<env>-seeds-<first>-<last>``, in the current folder."""
    folder = default_run_dir(algo, env, last_seed)
    return folder.with_name(f"{folder.name.removesuffix(f'-{last_seed}')}-seeds-{first_seed}-{last_seed}")


def package_versions() -> dict[str, str]:
    """Versions that a result depends on; packages that are not installed are left out."""
    from metaroll import __version__

    versions = {"metaroll": __version__, "python": platform.python_version()}
    for package in ("numpy", "torch", "gymnasium", "mujoco", "metaworld"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    return versions


def refuse_existing(folder: Path) -> None:
    """Error if ``folder`` holds something already."""
    if not _is_empty(folder):
        if (folder / CONFIG_FILE).is_file():
            hint = f"continue it with `metaroll resume {folder}`, or choose another folder with --out"
            raise RunExistsError(f"a run exists already in {folder}: {hint}")
        raise RunExistsError(f"{folder} exists and is not a run of metaroll: choose another folder with --out")


def _is_empty(folder: Path) -> bool:
    with _usable(folder):
        if not folder.exists():
            return True
        return folder.is_dir() and all(_NOTHING.fullmatch(path.name) for path in folder.iterdir())


@contextlib.contextmanager
def _usable(folder: Path) -> Iterator[None]:
    """Errors of the operating system with the folder and a hint."""
    try:
        yield
    except MetarollError:
        raise
    except OSError as error:
        raise OSError(f"{folder} cannot be used ({error.strerror}): choose another folder with --out") from error


def lock_run(folder: Path) -> RunLock:
    """The right to write into ``folder`` (made if needed), which no other process then has."""
    with _usable(folder):
        folder.mkdir(parents=True, exist_ok=True)
        return RunLock(folder)


def refuse_foreign(folder: Path, command: str) -> None:
    """Error if ``folder`` holds anything but a run of ``command``."""
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
            f"{folder / 'snapshots'} holds files that metaroll did not write: move them, or choose another folder "
            "with --out"
        )
    if (folder / "snapshots").exists():
        (folder / "snapshots").rmdir()
    for name in _OWN_FILES:
        (folder / name).unlink(missing_ok=True)


def write_config(folder: Path, config: Mapping[str, Any], name: str = CONFIG_FILE) -> None:
    """Write ``config.yaml`` (or a file of another name) into ``folder`` (made if needed), in one piece."""
    import yaml

    from metaroll.training.store.files import write_atomic

    folder.mkdir(parents=True, exist_ok=True)
    sections = {key: _plain(value) for key, value in config.items() if key not in ("metaroll_run", "versions")}
    document = {"metaroll_run": _FORMAT, **sections, "versions": package_versions()}
    text = yaml.dump(document, Dumper=_dumper(), sort_keys=False, allow_unicode=True)
    write_atomic(folder / name, (_HEADER + text).encode())


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


def read_config(folder: Path, name: str = CONFIG_FILE) -> dict[str, Any]:
    """The configuration of the run in ``folder``, of its ``config.yaml`` (or a file of another name)."""
    path = folder / name
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
        if key in _NOT_OPTIONS:
            continue
        entries = value if key in _SECTIONS and isinstance(value, Mapping) else {key: value}
        for name, entry in entries.items():
            if name in values:
                raise ValueError(f"option {name} is given twice, as {values[name]!r} and {entry!r}: keep one of them")
            values[name] = entry
    return values


def file_values(path: Path, algo: str, env: str) -> dict[str, Any]:
    """Options of the file of ``--config``, which must be meant for ``algo`` in ``env`` if it says for what it is."""
    document = read_yaml(path)
    for key, wanted in (("metaroll_run", _FORMAT), ("algo", algo), ("env", env)):
        if key in document and document[key] != wanted:
            raise ValueError(
                f"{key} in {path} is {document[key]!r}, expected {wanted!r}: use a file that was made for `metaroll "
                f"train {algo} {env}`, or delete that line"
            )
    try:
        return flat_values(document)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def check_same_run(config: Mapping[str, Any], saved: Mapping[str, Any] | None, folder: Path) -> None:
    """Error if the configuration differs from that of the snapshot in what may not change within a run."""
    if saved is None:
        return
    here, there = _lasting(config), _lasting(saved)
    for name, value in here.items():
        if name in there and there[name] != value:
            raise SnapshotError(
                f"{name} in {folder / CONFIG_FILE} is {value!r}, the snapshot was written with {there[name]!r}: set it "
                "back, or train anew with --out"
            )


def _lasting(config: Mapping[str, Any]) -> dict[str, Any]:
    from metaroll.training.store.files import to_plain

    values = {name: config.get(name) for name in ("algo", "env")}
    values |= {name: value for name, value in config.get("algorithm", {}).items() if name not in _CHANGEABLE}
    values |= {name: value for name, value in config.get("run", {}).items() if name in _LASTING_RUN_OPTIONS}
    return to_plain(values)


def find_run(path: str | Path) -> Path:
    """The folder of an existing run, or an error that lists the runs nearby."""
    folder = Path(path)
    if (folder / CONFIG_FILE).is_file():
        return folder
    near = list(dict.fromkeys(run for place in (folder, folder.parent, Path("runs")) for run in _runs_in(place)))
    hint = f"runs here: {', '.join(str(run) for run in near[:8])}" if near else "start one with `metaroll train`"
    what = "is a file" if folder.is_file() else "does not exist"
    what = f"holds no {CONFIG_FILE}" if folder.is_dir() else what
    raise FileNotFoundError(f"{folder} is no run of metaroll ({what}); {hint}")


def _runs_in(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(path.parent for pattern in ("", "*/") for path in folder.glob(pattern + CONFIG_FILE))
