"""The configuration of a run as the command line sees it: default folders, files of options, groups of runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from metaroll.config import RunFile, options_of
from metaroll.configs.run import RunConfig
from metaroll.configs.table import current_names, is_known, run_options
from metaroll.data.doors.yaml_files import read_yaml
from metaroll.errors import SnapshotError, UnknownNameError, command_text, flag_of, option_text
from metaroll.training.store import run_folder
from metaroll.training.store.run_folder import CONFIG_FILE, CONFIG_FORMAT, GROUP_FILE
from metaroll.training.store.run_values import CHANGEABLE, CONFIG_SECTIONS, OF_RUNS, OLDER, flat_values

if TYPE_CHECKING:
    from metaroll.envs.lookup.source import EnvSource

__all__ = [
    "SeedGroup",
    "changed",
    "command_after",
    "default_run_dir",
    "file_layer",
    "read_group",
]


def default_run_dir(algo: str, env: EnvSource, seed: int, last_seed: int | None = None) -> Path:
    """``runs/<algo>-<env>-<seed>``, or ``runs/<algo>-<env>-seeds-<first>-<last>`` for a group, in the current folder.

    ``metaroll/Pendulum-v0``, ``module:name`` and ``sim@folder`` (with its last folder) get dashes.
    """
    simulator, folder = env.known.parts
    name = simulator + (folder and f"-{Path(folder).name}")
    seeds = f"{seed}" if last_seed is None else f"seeds-{seed}-{last_seed}"
    return Path("runs") / f"{algo}-{name}-{seeds}".replace("/", "-").replace(":", "-")


def file_layer(path: Path, algo: str, env: str) -> tuple[str, dict[str, Any]]:
    """The file of ``--config`` (a ``RunFile`` if a run has written it), and its options.

    Raises:
        ValueError: It is for another algorithm or environment, or has an option twice.
    """
    document = read_yaml(path)
    for key, wanted in (("metaroll_run", CONFIG_FORMAT), ("algo", algo), ("env", env)):
        if key in document and document[key] != wanted:
            raise ValueError(
                f"{key} in {path} is {document[key]!r}, expected {wanted!r}: use a file that was made for "
                f"`{command_text('train', algo, env)}`, or delete that line"
            )
    written = "metaroll_run" in document
    for key in () if written else ("seeds", "jobs"):
        if key in document:
            flags = " ".join(option_text(name, document.get(name)) for name in ("seeds", "jobs") if name in document)
            raise ValueError(f"{key} in {path} is for a group of runs, and cannot be set in a file: use {flags}")
    try:
        file = str(path)
        if written:  # written by this library, not typed: names may be from an older version
            file, document = RunFile(path), current_names({**document, "algo": algo})
        values = flat_values(document) | {key: document[key] for key in OF_RUNS if key in document and not written}
        return file, run_folder.resolved_paths(values, path.parent)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


@dataclass(frozen=True)
class SeedGroup:
    """Runs requested by one command line, which differ only in their seeds.

    Attributes:
        folder: Folder that contains their folders.
        config: Their configuration, except for the seed.
        seeds: Their seeds.
        jobs: Number of runs at a time, each in its own process; 1 trains in this process.
        trust: Whether its runs may import what they name although they were not created here; not saved.
    """

    folder: Path
    config: Mapping[str, Any]
    seeds: tuple[int, ...]
    jobs: int = 1
    trust: bool = False

    @property
    def folders(self) -> list[Path]:
        """Folder of each run."""
        return [self.folder / f"seed-{seed}" for seed in self.seeds]

    @property
    def missing(self) -> list[Path]:
        """Folders of the runs that have not begun."""
        return [folder for folder in self.folders if not (folder / CONFIG_FILE).is_file()]

    @property
    def resume_command(self) -> str:
        """The command that continues all of them."""
        return command_text("resume", self.folder)

    def write(self) -> None:
        """Write the settings of the group, so that it can be continued from its folder alone."""
        run_folder.write_config(self.folder, {**self.config, "seeds": self.seeds, "jobs": self.jobs}, GROUP_FILE)


def command_after(error: BaseException, folder: Path) -> str:
    """The command that continues the run, or the group, in ``folder`` after ``error``."""
    changes = error.instead if isinstance(error, UnknownNameError) else {}
    words = (word for name, value in changes.items() for word in (flag_of(name), value))
    return command_text("resume", folder, *words)


def read_group(folder: Path) -> SeedGroup | None:
    """The group of runs in ``folder``; ``None`` if there is none."""
    path = folder / GROUP_FILE
    if not path.is_file():
        return None
    from metaroll.checks import check_seed, check_whole  # it loads torch

    document = run_folder.read_config(folder, GROUP_FILE)
    seeds, jobs = document.pop("seeds", None), document.pop("jobs", 1)
    try:
        if not isinstance(seeds, list) or not seeds or len(set(map(repr, seeds))) < len(seeds):
            raise ValueError(f"seeds must be a list of distinct seeds, got {seeds!r}")
        seeds = tuple(check_seed("seeds", seed) for seed in seeds)
        check_whole("jobs", jobs)
        check_whole("epochs", document["run"].get("epochs"))
    except (TypeError, ValueError) as error:
        raise SnapshotError(f"{path}: {error}; restore the file from a copy, or train again") from error
    return SeedGroup(folder, {**document, "run": {**OLDER, **document["run"]}}, seeds, jobs)


def changed(config: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """``config`` with new values of options that may change when a run is continued, each in its section.

    Raises:
        TypeError, ValueError: The algorithm has no such option, or a value is invalid.
    """
    sections = {name: dict(config[name]) for name in CONFIG_SECTIONS}
    algo = config["algo"]  # third-party code is not imported before the run is trusted
    options = {option.name: option for option in (run_options(algo) if is_known(algo) else options_of(RunConfig))}
    for name, value in changes.items():
        if name in CHANGEABLE and name not in sections["algorithm"]:
            raise ValueError(f"{option_text(name)} is no option of {config['algo']}: leave it out")
        sections["algorithm" if name in CHANGEABLE else "run"][name] = (
            options[name].checked(value) if name in options else value
        )
    return {**config, **sections}
