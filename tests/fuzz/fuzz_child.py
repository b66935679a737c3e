"""A process that reads damaged files, and tells which of them led to something else than one error of ours.

Usage: python fuzz_child.py FOLDER COUNT SEED KIND ...: ``COUNT`` inputs of each kind, 0 for all that there are. A line
of JSON for each input that failed, and one with the number of inputs at the end.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import resource
import shutil
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fuzz_damages as damages
import fuzz_kinds as kinds
import numpy as np

from metaroll.errors import MetarollError
from metaroll.lab.report import page_parts

GIB, SECONDS = 2**30, 10
PER_DAMAGE = 6
"""Inputs of each damage of bytes, of all inputs of a kind and file."""
MASKED = ("more memory than there is",)
"""What says that our own limits were too late."""


class TooSlow(BaseException):
    pass


def peak() -> int:
    """Most bytes that the process has had since ``reset_peak``."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def reset_peak() -> int:
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return peak()


def links(path: Path) -> Iterator[tuple[str, Callable[[], Any]]]:
    """What stands in the place of a file without being one; it, or the whole file, is kept beside."""
    beside = path.with_name(f".kept.{path.name}")

    def moved() -> None:
        path.rename(beside)

    def link() -> None:
        moved()
        path.symlink_to(beside)

    def loop() -> None:
        moved()
        path.symlink_to(path)

    def zeros() -> None:
        moved()
        path.symlink_to("/dev/zero")

    def fifo() -> None:
        moved()
        os.mkfifo(path)

    def folder() -> None:
        moved()
        path.mkdir()

    def permission() -> None:
        path.chmod(0)

    yield from {
        "link": link,
        "loop": loop,
        "link to /dev/zero": zeros,
        "FIFO": fifo,
        "folder": folder,
        "missing": moved,
        "permission": permission,
    }.items()


def inputs(kind: kinds.Kind, path: Path, data: bytes, count: int, rng: np.random.Generator) -> list[tuple[str, Any]]:
    """Name and content of damages of a file; ``count`` of them, every sort among them, 0 for all."""
    found: list[tuple[str, Any]] = [("empty", b"")]
    for name, damage in damages.BYTES.items():
        times = PER_DAMAGE * (4 if name == "flip" else 1) if not count else max(1, count // 14)
        found += [(f"{name} {i}", damage(rng, data)) for i in range(times)]
    found += list(links(path))
    more = list(kind.changes(path, data, not count))
    if kind.texts:
        more += list(damages.TEXTS.items())
    if count and len(more) > count:
        more = [more[i] for i in sorted(rng.choice(len(more), count, replace=False))]
    if not count and len(more) > MOST:
        more = [more[i] for i in sorted(rng.choice(len(more), MOST, replace=False))]
    return found + [(name, content() if callable(content) else content) for name, content in more]


MOST = 250
"""Damages of a format that are tried of each file."""


def outcome(read: Callable[[], Any], whole: str | None, sealed: bool) -> str | None:
    """What is wrong with a reading; ``None``: nothing."""
    before, began = reset_peak(), time.process_time()
    wrong = None
    signal.alarm(6 * SECONDS)  # the machine may be busy
    try:
        value = read()
        if sealed and whole is not None and kinds.digest(value) != whole:
            wrong = "a wrong value was accepted"
        del value
    except TooSlow:
        wrong = "hangs"
    except (MetarollError, FileNotFoundError) as error:
        text = str(error)
        if any(told in text for told in MASKED):
            wrong = f"too much memory: {text[:200]}"
        elif len(text) > 20_000:
            wrong = f"a message of {len(text)} characters"
    except OSError as error:
        if not error.filename and not str(error).count("/"):
            wrong = f"an OSError that names no file: {error}"
    except ValueError as error:
        if type(error) is not ValueError or "Traceback" in str(error) or not str(error).count("/"):
            wrong = f"{type(error).__name__}: {error}"[:300]
    except ImportError as error:
        wrong = None if "pip install" in str(error) else f"ImportError: {error}"
    except BaseException as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        wrong = f"{type(error).__name__}: {str(error)[:800]} ({Path(last.filename).name}:{last.lineno})"
    finally:
        signal.alarm(0)
    grown = peak() - before
    if wrong is None and grown > GIB:
        wrong = f"took {grown / GIB:.2f} GiB"
    if wrong is None and time.process_time() - began > SECONDS:
        wrong = f"took {time.process_time() - began:.0f} s"
    return wrong


def in_place(path: Path, content: Any) -> None:
    if callable(content):
        content()
    else:
        path.write_bytes(content)


def run(root: Path, name: str, count: int, seed: int) -> int:
    """Try a kind; the number of its inputs."""
    if name == "names":
        for each in kinds.NAMES:
            tell(name, repr(each[:60]), outcome(lambda each=each: named(each), None, False))
        return len(kinds.NAMES)
    kind, total = kinds.KINDS[name], 0
    first = root / "whole"
    first.mkdir()
    files = [path.relative_to(first) for path in kind.make(first)]
    whole = kinds.digest(kind.read(first))
    shutil.rmtree(first)
    share = 0 if not count else max(1, count // len(files))
    for number, file in enumerate(files):
        rng = np.random.default_rng([seed, number, len(name)])
        folder = root / "one"
        folder.mkdir()
        kind.make(folder)
        path = folder / file
        if share and count < len(files) and number % (len(files) // count + 1):
            shutil.rmtree(folder)
            continue
        for damage, content in inputs(kind, path, path.read_bytes(), share, rng):
            shutil.rmtree(folder)
            folder.mkdir()
            kind.make(folder)
            in_place(path, content)
            if name == "tree" and path.suffix == ".safetensors" and not callable(content):
                kinds.reseal(path)
            # Only what changes bits without knowing the format has to be found by a checksum.
            sealed = kind.sealed and (callable(content) or damage.split()[0] in (*damages.BYTES, "empty"))
            wrong = outcome(lambda folder=folder: kind.read(folder), whole, sealed)
            tell(name, f"{file} {damage}", wrong)
            if wrong is not None and KEEP is not None and path.is_file() and not path.is_symlink():
                keep(name, file, damage, path)
            total += 1
        with contextlib.suppress(OSError):
            path.chmod(0o600)
        shutil.rmtree(folder)
        if not count:
            gc.collect()
    return total


def named(name: str) -> Any:
    try:
        return kinds.read_name(name)
    except (ValueError, TypeError) as error:
        if isinstance(error, MetarollError):
            raise
        raise MetarollError(str(error)) from error  # it has no file to name


KEEP = os.environ.get("FUZZ_KEEP")
"""A folder for small inputs that failed."""


def keep(kind: str, file: Path, damage: str, path: Path) -> None:
    data = path.read_bytes()
    if len(data) < 20_000:
        mark = "".join(c if c.isalnum() else "-" for c in f"{kind}@{damage}")[:80]
        target = Path(str(KEEP)) / f"{mark}@{file.name}"
        target.write_bytes(data)


def tell(kind: str, damage: str, wrong: str | None) -> None:
    if wrong is not None:
        print(json.dumps({"kind": kind, "damage": damage[:200], "wrong": wrong}), flush=True)


def main() -> None:
    place, count, seed, *names = sys.argv[1:]

    def too_slow(number: int, frame: Any) -> None:
        raise TooSlow

    os.fsync = lambda descriptor: None  # what is written here need not survive anything
    if int(count):  # charts take most of the time of a report, and are drawn where all inputs are tried
        page_parts.svg = lambda chart: ("", chart.explanation)
    signal.signal(signal.SIGALRM, too_slow)
    warnings.simplefilter("ignore")
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 3 * GIB, used + 3 * GIB))
    total = 0
    for name in names:
        root = Path(place) / name.replace(" ", "-")
        root.mkdir(parents=True)
        total += run(root, name, int(count), int(seed))
        shutil.rmtree(root, ignore_errors=True)
    print(json.dumps({"inputs": total}))


if __name__ == "__main__":
    main()
