"""A posterior as a folder: a table of draws, the weights of an estimator, and a description of both as JSON.

Training on a posterior needs the draws alone. Nothing is ever unpickled, and a folder is complete or does not exist.
"""

from __future__ import annotations

import contextlib
import json
import os
import zlib
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from metaroll.checks import check_path
from metaroll.data.data_format import array_to_tensor
from metaroll.data.doors.array_files import load_npz
from metaroll.data.doors.json_files import read_json
from metaroll.data.doors.plain_files import damage
from metaroll.data.doors.tensor_files import load_tensors
from metaroll.data.folders import kinds
from metaroll.data.folders.atomic_files import (
    checksum,
    flush_folder,
    named_errors,
    temporary_path,
    write_text,
)
from metaroll.data.folders.contents import foreign_in, named_some, refuse_links, remove_folder, replace_folder, standing
from metaroll.errors import PosteriorError

__all__ = [
    "DESCRIPTION",
    "DRAWS",
    "POSTERIOR",
    "WEIGHTS",
    "Draws",
    "find_posterior",
    "posterior_versions",
    "read_description",
    "read_draws",
    "read_weights",
    "write_folder",
]

DRAWS, WEIGHTS, DESCRIPTION = "draws.npz", "weights.safetensors", "posterior.json"
POSTERIOR = "posterior"
"""The folder of the posterior in that of a run of ``metaroll infer``."""
FORMAT = 1
_CURE = "restore it from a copy, or infer again"
_PACKAGES = ("numpy", "torch", "sbi")


class Draws(NamedTuple):
    """A table of draws.

    Attributes:
        names: Names of the d parameters in the environment.
        values: One set of parameters in each row, ``(n, d)`` float64, all equally likely.
    """

    names: tuple[str, ...]
    values: np.ndarray

    def columns(self, names: Sequence[str] | None, what: str) -> Draws:
        """The draws of some parameters; all where ``names`` is ``None``.

        Raises:
            PosteriorError: ``what``, which errors name, is a posterior of others.
        """
        if names is None:
            return self
        missing = [name for name in names if name not in self.names]
        if missing:
            raise PosteriorError(
                f"{what} is a posterior of {list(self.names)}, not of {missing[0]!r}; name the right folder"
            )
        chosen = [self.names.index(name) for name in names]
        return Draws(tuple(names), np.ascontiguousarray(self.values[:, chosen]))


def write_folder(
    folder: str | Path, draws: Draws, description: Mapping[str, Any], weights: Mapping[str, torch.Tensor] | None = None
) -> Path:
    """Write a posterior; an existing one is replaced when the new one is complete.

    Args:
        folder: Where to; folders above it are made.
        draws: The table.
        description: JSON types; format, versions and checksums are added.
        weights: Weights of the estimator, by name; ``None`` if there is none.

    Raises:
        FileExistsError: There is something else of that name.
    """
    target = check_path("folder", folder)
    layout = kinds.POSTERIOR.layout
    if target.exists() and not (target / DESCRIPTION).is_file() and not (target.is_dir() and not any(target.iterdir())):
        raise FileExistsError(f"{target} exists and holds no posterior; choose another name")
    refuse_links(target, layout)
    if foreign := foreign_in(target, layout):
        raise FileExistsError(f"{target} holds {named_some(foreign)} beside a posterior; choose another name")
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = temporary_path(target.resolve())
    temporary.mkdir()
    try:
        _write_files(temporary, draws, description, weights)
        return replace_folder(temporary, target, layout)
    finally:
        with contextlib.suppress(OSError):
            remove_folder(temporary, layout)  # of an error; it has another name now


def _write_files(
    folder: Path, draws: Draws, description: Mapping[str, Any], weights: Mapping[str, torch.Tensor] | None
) -> None:
    files = {}
    with named_errors(folder / DRAWS), open(folder / DRAWS, "wb") as file:
        np.savez_compressed(file, names=np.array(draws.names, dtype=np.str_), values=draws.values.astype(np.float64))
        file.flush()
        os.fsync(file.fileno())
    files[DRAWS] = checksum(folder / DRAWS)
    if weights is not None:
        path = folder / WEIGHTS
        tensors = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in weights.items()}
        try:
            save_file(tensors, path)
        except SafetensorError as error:  # it hides the error of the operating system, such as a full disk
            raise OSError(f"{path} cannot be written: {error}") from error
        with open(path, "rb+") as written:
            os.fsync(written.fileno())
        path.chmod((folder / DRAWS).stat().st_mode & 0o777)
        files[WEIGHTS] = checksum(path)
    document = {
        "format": FORMAT,
        "versions": posterior_versions(),
        "names": list(draws.names),
        **description,
        "files": files,
    }
    document["crc32"] = _crc(document)
    text = json.dumps(document, indent=2, allow_nan=False, ensure_ascii=False)
    write_text(folder / DESCRIPTION, text + "\n")  # last: a folder that has it is complete
    flush_folder(folder)


def posterior_versions() -> dict[str, str]:
    """Versions that a posterior depends on, by package; written into its folder."""
    from metaroll import __version__

    versions = {"metaroll": __version__}
    for package in _PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    return versions


def _crc(document: Mapping[str, Any]) -> int:
    content = {key: value for key, value in document.items() if key != "crc32"}
    return zlib.crc32(json.dumps(content, sort_keys=True).encode())


def find_posterior(folder: str | Path) -> Path:
    """The folder of a posterior, where that of the run of ``metaroll infer`` that made it may be given, too."""
    path = standing(check_path("folder", folder))
    inside = standing(path / POSTERIOR)
    return inside if (inside / DESCRIPTION).is_file() and not (path / DESCRIPTION).is_file() else path


def read_description(folder: str | Path) -> dict[str, Any]:
    """The contents of ``posterior.json``, checked.

    Raises:
        PosteriorError: The folder is not a posterior, is damaged, or of another format.
    """
    folder = find_posterior(folder)
    path = folder / DESCRIPTION
    if not path.is_file():
        problem = f"it has no {DESCRIPTION}"
        if not folder.is_dir():
            problem = "it is a file" if folder.is_file() else "there is no such folder"
        raise PosteriorError(f"{folder} is not a posterior folder: {problem}; name one that inference has written")
    document = read_json(path, PosteriorError, _CURE)
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        actual = document.get("format") if isinstance(document, dict) else document
        writer = document.get("versions") if isinstance(document, dict) else None
        raise PosteriorError(f"{path} must have format {FORMAT}, got {actual!r}: it was written by {writer}; use that")
    if document.get("crc32") != _crc(document):
        raise PosteriorError(f"{path} is damaged (checksum mismatch); {_CURE}")
    files, names = document.get("files"), document.get("names")
    if not isinstance(files, dict) or DRAWS not in files or not all(map(_is_sum, files.values())):
        raise PosteriorError(f"{path} must hold the checksums of its files; {_CURE}", path)
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise PosteriorError(f"{path} must hold the names of parameters; {_CURE}", path)
    return document


def _is_sum(value: Any) -> bool:
    return isinstance(value, dict) and all(type(value.get(name)) is int for name in ("size", "crc32"))


def _checked(folder: Path, name: str, files: Mapping[str, Any]) -> Path:
    """The path of a file of the folder, if it is as it was written."""
    path = folder / name
    if not os.path.lexists(path):
        raise PosteriorError(f"{path} is missing; {_CURE}")
    with damage(path, PosteriorError, _CURE):
        actual = checksum(path)
    if actual != files[name]:
        why = "checksum mismatch"
        if actual["size"] != files[name]["size"]:
            why = f"{actual['size']} bytes instead of {files[name]['size']}"
        raise PosteriorError(f"{path} is damaged ({why}); {_CURE}")
    return path


def read_draws(folder: str | Path, names: Sequence[str] | None = None) -> Draws:
    """The table of draws of a posterior folder, or of a ``draws.npz`` alone.

    Args:
        folder: The folder, or the file.
        names: The parameters that are expected, in the order of the columns wanted; ``None`` means all, as they are.

    Raises:
        PosteriorError: It is damaged, no posterior, or one of other parameters.
    """
    path = find_posterior(folder)
    if path.is_dir() or not os.path.lexists(path):
        document = read_description(path)
        path = _checked(path, DRAWS, document["files"])
    arrays = load_npz(path, PosteriorError, _CURE)
    if not {"names", "values"} <= arrays.keys() or arrays["names"].dtype.kind != "U" or arrays["names"].ndim != 1:
        raise PosteriorError(f"{path} holds no table of draws (names and values); {_CURE}", path)
    own, values = tuple(map(str, arrays["names"].tolist())), arrays["values"]
    shape_fits = values.ndim == 2 and values.shape[1] == len(own) == len(set(own)) and len(values) > 0
    if not shape_fits or values.dtype != np.float64 or not np.isfinite(values).all():
        raise PosteriorError(
            f"{path} must hold finite draws (n, {len(own)}) of {list(own)}, got {values.dtype} {values.shape}; {_CURE}"
        )
    return Draws(own, values).columns(names, str(path))


def read_weights(folder: str | Path) -> dict[str, torch.Tensor] | None:
    """Weights of the estimator by name; ``None`` where the posterior has none.

    Raises:
        PosteriorError: They are damaged.
    """
    path = find_posterior(folder)
    files = read_description(path)["files"]
    if WEIGHTS not in files:
        return None
    arrays = load_tensors(_checked(path, WEIGHTS, files), PosteriorError, _CURE)
    return {name: array_to_tensor(array.values, array.torch_dtype) for name, array in arrays.items()}
