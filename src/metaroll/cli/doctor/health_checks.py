"""Checks of ``metaroll doctor`` that only look: versions, extras, processors, memory, threads, folders."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import platform
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal, NamedTuple

from metaroll.cli.doctor.resources import memory, processors

__all__ = [
    "Check",
    "extra_check",
    "extras_in_use",
    "gibibytes",
    "guarded",
    "memory_check",
    "one_line",
    "packages_check",
    "processors_check",
    "program_check",
    "runs_folder_check",
    "start_method_check",
    "temporary_folder_check",
    "threads_check",
]

# Modules of packages that are called otherwise.
_MODULES = {"array-api-compat": "array_api_compat", "pyyaml": "yaml"}
_SHOWN = ("numpy", "scipy", "torch", "gymnasium")
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
_USE_OF_EXTRA = {
    "fast": "some computations are slower without it",
    "mujoco": "cheetah-vel and Gymnasium's MuJoCo environments need it",
    "metaworld": "Meta-World's benchmarks need it",
    "plot": "runs have no pictures without it",
    "tensorboard": "--tensorboard needs it",
    "video": "videos are GIFs without it",
    "wandb": "--wandb needs it",
}
_LITTLE_MEMORY = 2 * 2**30
_LITTLE_SPACE = 2**30


@dataclass(frozen=True)
class Check:
    """What was found about one thing: ``warn`` costs speed or a feature, with ``fail`` metaroll does not work."""

    name: str
    status: Literal["ok", "warn", "fail"]
    value: str
    hint: str = ""


def guarded(name: str, check: Callable[[], Check], essential: bool = False) -> Check:
    """What ``check`` finds; an exception in it is a finding, too."""
    try:
        return check()
    except Exception as error:
        hint = "this check could not be made; the message says why"
        return Check(name, "fail" if essential else "warn", one_line(error), hint)


def one_line(error: BaseException) -> str:
    """Kind and message of an error, shortened to a line."""
    try:
        message = " ".join(str(error).split())
    except Exception:  # errors of OpenGL cannot always say what they are
        message = ""
    text = f"{type(error).__name__}: {message}" if message else type(error).__name__
    return text if len(text) <= 300 else text[:297] + "..."


def gibibytes(count: int) -> str:
    """Bytes as text."""
    return f"{count / 2**30:.1f} GiB"


class _Requirement(NamedTuple):
    package: str
    lowest: str
    extra: str

    @property
    def text(self) -> str:
        return f"{self.package}>={self.lowest}" if self.lowest else self.package

    def problem(self) -> str:
        """Empty if the package is there in a version that is new enough."""
        try:
            version = metadata.version(self.package)
        except metadata.PackageNotFoundError:
            return f"{self.package} is missing"
        if _numbers_of(version) < _numbers_of(self.lowest):
            return f"{self.package} {version} is older than {self.lowest}"
        return ""


def _requirements() -> Iterator[_Requirement]:
    """What the installed metaroll declares."""
    try:
        lines = metadata.requires("metaroll") or []
    except metadata.PackageNotFoundError:
        raise ModuleNotFoundError("metaroll is only found on the path: install it with pip install -e .") from None
    for line in lines:
        what, _, condition = line.partition(";")
        name = re.match(r"[\w.-]+", what.strip())
        lowest = re.search(r">=\s*([\w.]+)", what)
        extra = re.search(r"extra\s*==\s*['\"]([\w-]+)['\"]", condition)
        if name:
            yield _Requirement(name[0], lowest[1] if lowest else "", extra[1] if extra else "")


def _numbers_of(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version.partition("+")[0])[:3])


def program_check() -> Check:
    """Versions of metaroll, Python and the operating system."""
    from metaroll import __version__

    return Check("metaroll", "ok", f"{__version__}, Python {platform.python_version()}, {platform.platform()}")


def packages_check() -> Check:
    """Whether the packages that metaroll always needs are there, new enough, and can be imported."""
    needed = [requirement for requirement in _requirements() if not requirement.extra]
    broken = {requirement.text: requirement.problem() for requirement in needed}
    broken = {text: problem for text, problem in broken.items() if problem}
    for requirement in needed:
        if requirement.text not in broken:
            try:
                importlib.import_module(_MODULES.get(requirement.package, requirement.package))
            except Exception as error:  # built for other versions, half installed: whatever it raises
                broken[requirement.text] = f"{requirement.package} cannot be imported ({one_line(error)})"
    if broken:
        return Check("packages", "fail", "; ".join(broken.values()), f"pip install {_quoted(broken)}")
    shown = ", ".join(f"{name} {metadata.version(name)}" for name in _SHOWN)
    return Check("packages", "ok", f"{shown} and {len(needed) - len(_SHOWN)} more")


def _quoted(texts: dict[str, str]) -> str:
    return " ".join(f"'{text}'" for text in texts)


def extras_in_use() -> list[str]:
    """Extras that some code of this version uses: those within the extra ``all``."""
    packages: dict[str, set[str]] = {}
    for requirement in _requirements():
        packages.setdefault(requirement.extra, set()).add(requirement.package)
    everything = packages.get("all", set())
    return sorted(name for name, own in packages.items() if name not in ("", "all", "dev") and own <= everything)


def extra_check(extra: str) -> Check:
    """Whether the packages of an extra are installed."""
    name = f"extra {extra}"
    needed = [requirement for requirement in _requirements() if requirement.extra == extra]
    problems = [problem for requirement in needed if (problem := requirement.problem())]
    if problems:
        use = f" ({_USE_OF_EXTRA[extra]})" if extra in _USE_OF_EXTRA else ""
        return Check(name, "warn", f"{'; '.join(problems)}{use}", f"pip install 'metaroll[{extra}]'")
    return Check(name, "ok", ", ".join(f"{r.package} {metadata.version(r.package)}" for r in needed))


def processors_check() -> Check:
    """Processors that this process may use, and how busy they are."""
    found = processors()
    quota = "" if found.quota is None else f", {found.quota:g} of them at a time (container)"
    load = os.getloadavg()[0]
    text = f"{found.allowed} of {found.installed}{quota}; load {load:.1f}"
    if load > found.installed + 0.5:
        hint = "other programs use them: times below are longer than on a quiet machine"
        return Check("processors", "warn", text, hint)
    return Check("processors", "ok", text)


def memory_check() -> Check:
    """Memory that is free for this process."""
    found = memory()
    text = f"{gibibytes(found.available)} free of {gibibytes(found.total)}"
    if found.available < _LITTLE_MEMORY:
        hint = "use small replay data (--replay-buffer-size, --memory-limit), or close other programs"
        return Check("memory", "warn", text, hint)
    return Check("memory", "ok", text)


def threads_check() -> Check:
    """Threads of torch's computations, against the processors there are."""
    import torch

    threads, usable = torch.get_num_threads(), processors().usable
    given = [f"{name}={os.environ[name]}" for name in _THREAD_VARIABLES if name in os.environ]
    text = f"torch {threads}; {', '.join(given) or 'OMP_NUM_THREADS and its like not set'}"
    if threads > usable:
        hint = f"more threads than processors ({usable}) are slow: export OMP_NUM_THREADS={usable}"
        return Check("threads", "warn", text, hint)
    return Check("threads", "ok", text)


def start_method_check() -> Check:
    """How Python would start processes; for reports only, since metaroll's workers do not depend on it."""
    chosen = multiprocessing.get_start_method(allow_none=True)
    default = multiprocessing.get_all_start_methods()[0]
    text = chosen or f"{default} (default)"
    return Check("start method", "ok", f"{text}; metaroll's workers are programs of their own")


def runs_folder_check() -> Check:
    """Whether runs can be written below the current folder."""
    runs = Path("runs")
    return _folder_check("runs folder", runs if runs.exists() else Path(), "warn", "choose a place with --out DIR")


def temporary_folder_check() -> Check:
    """Whether there is a folder for temporary files, which workers need."""
    hint = "free some space, or name another folder: export TMPDIR=DIR"
    try:
        folder = Path(tempfile.gettempdir())
    except FileNotFoundError as error:
        return Check("temporary folder", "fail", one_line(error), hint)
    return _folder_check("temporary folder", folder, "fail", hint)


def _folder_check(name: str, folder: Path, unusable: Literal["warn", "fail"], hint: str) -> Check:
    where = str(folder.absolute())
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"metaroll")
            file.flush()
        free = shutil.disk_usage(folder).free
    except OSError as error:
        return Check(name, unusable, f"{where} cannot be written ({error.strerror})", hint)
    text = f"{where}, {gibibytes(free)} free"
    return Check(name, "warn", text, hint) if free < _LITTLE_SPACE else Check(name, "ok", text)
