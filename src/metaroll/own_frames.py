"""The place of an error in the user's code: the last lines of the traceback that are in the user's files."""

from __future__ import annotations

import re
import site
import sysconfig
import traceback
from pathlib import Path
from typing import NamedTuple

__all__ = ["Frame", "frames_of_user", "innermost", "is_of_user", "is_raised"]

_MOST = 3
_WORKER_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>\S+)\n(?:    (?P<code>\S.*))?')
_OTHERS = [
    Path(__file__).parent,
    *(Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
    *map(Path, site.getsitepackages()),
]
"""Folders of code that is not the user's."""
_STDLIB, _PACKAGES = Path(sysconfig.get_path("stdlib")), Path(sysconfig.get_path("purelib"))
_LIBRARIES = ("gymnasium", "mujoco", "numpy", "scipy", "torch")
"""Packages whose errors are about their own arguments."""


class Frame(NamedTuple):
    """A line of a traceback."""

    file: str
    line: int
    function: str
    code: str

    def __str__(self) -> str:
        return f"{self.file}, line {self.line}, in {self.function}: {self.code}"


def frames_of_user(error: BaseException) -> list[Frame]:
    """The last frames in the user's files, the innermost last; also for errors in a worker."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        text = str(vars(current).get("worker_traceback", ""))
        frames = [
            Frame(match["file"], int(match["line"]), match["function"], match["code"] or "")
            for match in _WORKER_FRAME.finditer(text)
        ]
        frames += _frames(current)
        own = [frame for frame in frames if is_of_user(frame)]
        if own:
            return list(dict.fromkeys(own))[-_MOST:]
        current = current.__cause__ or current.__context__
    return []


def innermost(error: BaseException) -> Frame | None:
    """The place where ``error`` was raised; ``None`` without a traceback."""
    frames = _frames(error)
    return frames[-1] if frames else None


def is_raised(error: BaseException) -> bool:
    """Whether ``error`` comes from a ``raise`` of metaroll or of the user's code, rather than from a mistake there.

    NumPy and its like raise what they cannot do: e.g. shapes that do not fit together.
    """
    frame = innermost(error)
    if frame is None or not frame.code.startswith("raise"):
        return False
    path = Path(frame.file)
    if path.is_relative_to(_PACKAGES):  # perhaps inside that of Python
        return path.relative_to(_PACKAGES).parts[0] not in _LIBRARIES
    return not path.is_relative_to(_STDLIB)


def _frames(error: BaseException) -> list[Frame]:
    summary = traceback.extract_tb(error.__traceback__)
    return [Frame(frame.filename, frame.lineno or 0, frame.name, frame.line or "") for frame in summary]


def is_of_user(frame: Frame) -> bool:
    """Whether the frame is in a file that belongs neither to metaroll, nor to Python, nor to an installed package."""
    path = Path(frame.file)
    return frame.file.endswith(".py") and not any(path.is_relative_to(folder) for folder in _OTHERS)
