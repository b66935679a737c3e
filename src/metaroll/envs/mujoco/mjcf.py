"""Loads MJCF files as MuJoCo models; errors name file and line, also in included files."""

from __future__ import annotations

import os
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any, NamedTuple

from metaroll.checks import described
from metaroll.data.doors.plain_files import read_text
from metaroll.envs.mujoco.library import load_mujoco
from metaroll.errors import DamagedFileError

__all__ = ["compile_mjcf"]

_LINE = re.compile(r",?\s*line(?: number)?[ =]+(\d+)", flags=re.IGNORECASE)
_INCLUDE = re.compile(r"<include\s[^>]*?file\s*=\s*[\"']([^\"']*)[\"'][^>]*?(?:/>|>\s*</include\s*>)")
_COMMENT = re.compile(r"<!--.*?-->", flags=re.DOTALL)
_ROOT = re.compile(r"\s*(?:<\?.*?\?>\s*)?<\w+[^>]*?(/?)>", flags=re.DOTALL)
_DEEPEST = 20
"""Files that include one another for ever are given up."""
_MOST_BYTES = 2**24


def compile_mjcf(mjcf: str | Path) -> Any:
    """The model of a file or text.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It does not compile; the message begins with the file (that is included, where it is that one) and
            the line, as far as known.
    """
    mujoco = load_mujoco("MujocoEnvDefinition")
    if not isinstance(mjcf, str | os.PathLike):
        raise TypeError(
            f"mjcf must be the path of an MJCF file, or its text (beginning with '<'), got {described(mjcf)}"
        )
    is_text = isinstance(mjcf, str) and mjcf.lstrip().startswith("<")
    place = "the MJCF text" if is_text else str(mjcf)
    if not is_text and not Path(mjcf).is_file():
        raise FileNotFoundError(
            f"mjcf must be the path of an MJCF file, or its text (beginning with '<'), got {place!r}"
        )
    try:
        return mujoco.MjModel.from_xml_string(mjcf) if is_text else mujoco.MjModel.from_xml_path(str(mjcf))
    except ValueError as error:
        text = " ".join(str(error).split())
        try:
            source = str(mjcf) if is_text else read_text(mjcf, _MOST_BYTES)
            where = _where(source, place, Path() if is_text else Path(mjcf).parent, str(error))
        except (OSError, DamagedFileError):
            where = place
        cleaned = re.sub(r",?\s*line 0\b", "", text)  # MuJoCo does not report lines of included files
        raise ValueError(f"{where}: the MJCF does not compile: {cleaned}") from error


def _where(source: str, place: str, folder: Path, message: str) -> str:
    """File and line of an error, in words."""
    line = _LINE.search(message)
    if line is not None and line.group(1) != "0" and "include" not in message.lower():
        return f"{place}, line {line.group(1)}"
    files = _Included(place, source, folder)
    if files.broken is not None:
        return files.broken
    if not files.names:
        return place if line is None or line.group(1) == "0" else f"{place}, line {line.group(1)}"
    return files.line_of(message) or f"{place}, or a file that it includes ({', '.join(files.names)})"


class _Part(NamedTuple):
    text: str
    name: str
    first_line: int


class _Included:
    """A file with all that it includes put in its place, and where every line of that is from.

    Args:
        name: Name of the file in messages.
        source: Its text.
        folder: Where it is.
    """

    def __init__(self, name: str, source: str, folder: Path) -> None:
        self.names: list[str] = []
        """Included files."""
        self.broken: str | None = None
        """Place of the first included file that is missing, empty, or no XML."""
        self._folder = folder
        self._parts: list[_Part] = []
        self._split(name, _without_comments(source), 1, folder, 0)

    def line_of(self, message: str) -> str | None:
        """Place of the error, if all files as one give the same error: then MuJoCo knows its line."""
        try:
            load_mujoco().MjModel.from_xml_string("\n".join(part.text for part in self._parts))
        except ValueError as error:
            line = _LINE.search(str(error))
            if line is None or _LINE.sub("", str(error)).split() != _LINE.sub("", message).split():
                return None
            left = int(line.group(1))
            for part in self._parts:
                count = part.text.count("\n") + 1
                if 0 < left <= count:
                    return f"{part.name}, line {part.first_line + left - 1}"
                left -= count
        return None

    def _split(self, name: str, text: str, first_line: int, folder: Path, depth: int) -> None:
        begin = 0
        for match in _INCLUDE.finditer(text):
            line = first_line + text.count("\n", 0, match.start())
            self._parts.append(_Part(text[begin : match.start()], name, first_line + text.count("\n", 0, begin)))
            self._include(match.group(1), f"{name}, line {line}", folder, depth)
            begin = match.end()
        self._parts.append(_Part(text[begin:], name, first_line + text.count("\n", 0, begin)))

    def _include(self, file: str, asked_by: str, folder: Path, depth: int) -> None:
        path = next((p for p in (folder / file, self._folder / file) if p.is_file()), None)
        if path is None or depth >= _DEEPEST:
            self.broken = self.broken or asked_by
            return
        text, name = read_text(path, _MOST_BYTES), str(path)
        self.names.append(name)
        if "<!ENTITY" in text:  # which can expand to gigabytes
            self.broken = self.broken or name
            return
        try:
            ElementTree.fromstring(text)
        except ElementTree.ParseError as error:
            self.broken = self.broken or f"{name}, line {error.position[0]}"
            return
        text = _without_comments(text)
        root = _ROOT.match(text)
        inner = "" if root is None or root.group(1) else text[root.end() : text.rindex("</")]
        if root is None or "<" not in inner:  # MuJoCo does not take an empty one
            self.broken = self.broken or name
            return
        self._split(name, inner, 1 + text.count("\n", 0, root.end()), path.parent, depth + 1)


def _without_comments(text: str) -> str:
    """``text`` with as many lines as before."""
    return _COMMENT.sub(lambda match: "\n" * match.group().count("\n"), text)
