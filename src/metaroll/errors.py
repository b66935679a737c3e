"""Errors of metaroll; each also is the built-in error that it refines, so plain ``except ValueError`` works."""

from __future__ import annotations

import contextlib
import difflib
import json
import reprlib
import shlex
from collections.abc import Iterable, Iterator, Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from pathlib import Path

    from packaging.requirements import Requirement

__all__ = [
    "LARGEST_COUNT",
    "LARGEST_SEED",
    "MOST_THREADS",
    "ClusterError",
    "ConformanceError",
    "DamagedFileError",
    "DataError",
    "DeviceError",
    "DivergedError",
    "FileKey",
    "InvalidValueError",
    "LinkError",
    "LogError",
    "MetarollError",
    "MissingPackageError",
    "NetworkError",
    "NotPicklableError",
    "NotSetupError",
    "PosteriorError",
    "RecordingError",
    "ReplayError",
    "RolloutError",
    "RunExistsError",
    "RunWarning",
    "ShapeError",
    "SlotError",
    "SnapshotError",
    "SpaceError",
    "TaskOverlapError",
    "UnknownNameError",
    "UntrustedRunError",
    "UsageError",
    "WorkerLost",
    "about_option",
    "blame_input",
    "command_text",
    "counted",
    "flag_of",
    "folder_is_given",
    "for_reader",
    "in_shell",
    "install_text",
    "name_given",
    "named_as",
    "near_names",
    "one_line",
    "option_name",
    "option_text",
    "other_folder",
    "requirements",
    "shortened",
    "unknown_name",
]


LARGEST_COUNT = 2**63 - 1
"""Nothing is counted further: arrays, loops in C and files hold no larger number."""
MOST_THREADS = 2**31 - 1
"""An int of C, in which torch counts them."""
LARGEST_SEED = 2**128 - 1
"""Seeds have at most as many bits as the entropy of NumPy's ``SeedSequence``."""
_MOST_LISTED = 40
_LONGEST_TEXT = 5000
"""Characters of names, which come from files, too, in a message."""
_IN_SHELL: ContextVar[bool] = ContextVar("in_shell", default=False)
_FOLDER_IS_GIVEN: ContextVar[bool] = ContextVar("folder_is_given", default=False)
_CALLED: ContextVar[Mapping[str, str]] = ContextVar("called", default=MappingProxyType({}))
_FLAGS = {"run_dir": "--out", "transport": "--engine"}
"""Flags that are not the keyword with dashes."""


class MetarollError(Exception):
    """Base of all errors that metaroll defines."""


class ShapeError(MetarollError, ValueError):
    """An array has another shape than expected."""


class ConformanceError(MetarollError, AssertionError):
    """An implementation breaks a promise of its protocol; raised by the kits of ``metaroll.testing``.

    Attributes:
        rule: Name of the promise, as the docstring of the kit lists it (``rows``, ``resume``).
        seen: The observed behavior.
        hint: The usual cause, or how to fix it; empty where none is known.
    """

    def __init__(self, rule: str, seen: str, hint: str = "") -> None:
        super().__init__(f"{rule}: {seen}" + (f"; {hint}" if hint else ""))
        self.rule, self.seen, self.hint = rule, seen, hint

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.rule, self.seen, self.hint)


class DataError(MetarollError, KeyError):
    """A data field is missing or unknown."""

    def __str__(self) -> str:  # KeyError would show the repr of the message
        return str(self.args[0]) if self.args else ""


class NetworkError(MetarollError, TypeError):
    """A user's own network that cannot be used without changes."""


class SpaceError(MetarollError, TypeError):
    """Observations or actions are of another kind than an algorithm is for."""


class UnknownNameError(MetarollError, ValueError):
    """A name (algorithm, environment, option) is not known; the message lists the nearest ones.

    Attributes:
        instead: Options of a run that name it, and values with which the run can continue; empty for other names.
    """

    instead: Mapping[str, str] = MappingProxyType({})


class MissingPackageError(MetarollError, ImportError):
    """An environment is known, and a package that it needs is missing."""


class TaskOverlapError(MetarollError, ValueError):
    """Held-out tasks occur among the training tasks."""


class NotSetupError(MetarollError, RuntimeError):
    """A runner is used before ``setup`` or ``restore``."""


class NotPicklableError(MetarollError, TypeError):
    """Something cannot be sent to a worker."""


class DamagedFileError(MetarollError, ValueError):
    """A file is damaged, of another kind, no plain file, or takes more memory than it may.

    Attributes:
        path: The file; ``None`` if unknown.
        line: Its line, from 1; ``None`` where it has none.
    """

    def __init__(self, message: str, path: Any = None, line: int | None = None) -> None:
        # Messages quote what files hold, which can be megabytes.
        super().__init__(message if len(message) <= _LONGEST_TEXT else f"{message[:_LONGEST_TEXT]}...")
        self.path = path
        self.line = line


class SnapshotError(DamagedFileError):
    """A snapshot is damaged, or was written by another version, algorithm or configuration."""


class RecordingError(DamagedFileError):
    """A rollout cannot be written, or a file is damaged or holds no recorded rollout."""


class LogError(DamagedFileError):
    """A log of a robot cannot become rollouts; names file, row and column."""


class DeviceError(MetarollError, RuntimeError):
    """A real device cannot be used any further; it has been stopped.

    Attributes:
        rollout: The steps of the episode before the error, a ``StepSequence``; ``None`` if there is none.
        log: The file in which they are, or ``None``.
    """

    def __init__(self, message: str, rollout: Any = None, log: Any = None) -> None:
        super().__init__(message)
        self.rollout = rollout
        self.log = log


class PosteriorError(DamagedFileError):
    """A posterior folder is damaged, of other parameters, or none."""


class RunExistsError(MetarollError, FileExistsError):
    """A folder exists already, and holds other data than those to be written."""


class LinkError(MetarollError, OSError):
    """A file or folder that would be written to is a link, or no plain file."""


class UntrustedRunError(MetarollError, PermissionError):
    """A run that was not made here would import code; names it, and how to allow it."""


class ClusterError(MetarollError, ConnectionError):
    """A cluster does not answer, or cannot be started."""


class WorkerLost(MetarollError, RuntimeError):
    """Workers died or fell silent more often than the bounded retries allow; names the work, and the last reason.

    Attributes:
        plans: The ``RolloutPlan`` of each rollout that was part of the work; empty for functions.
        plan: The first of them, or ``None``.
        completed: All rollouts (of functions, results) of the same call that were done before.
        reduced, kept: As of ``RolloutError``.
    """

    def __init__(self, message: str, plans: Iterable[Any] = ()) -> None:
        super().__init__(message)
        self.completed: list[Any] = []
        self.reduced: Any = None
        self.kept: Any = None
        self.plans = list(plans)
        self.plan = self.plans[0] if self.plans else None


class RolloutError(MetarollError, RuntimeError):
    """A rollout failed inside an environment or a policy.

    Attributes:
        plan: The ``RolloutPlan`` that failed, with its seed.
        step: The step at which it failed (-1: while resetting).
        worker_traceback: Traceback text from the worker.
        finished: Rollouts that had ended before, of those that were stepped together with this one.
        completed: All rollouts of the same call that had ended before.
        reduced: Of ``RolloutEngine.run_reduced``, the rows ``(n, ...)`` that had been made before; else ``None``.
        kept: Places of their plans, ``(n,)``, in order; else ``None``.
        suspects: The plans of which one has failed, where it is not known which.
        others: Further plans that have failed at the same time, and messages.
        loop: The step loop in which it failed, in its own process.
    """

    def __init__(self, message: str, plan: Any = None, step: int = -1, worker_traceback: str = "") -> None:
        super().__init__(message)
        self.plan = plan
        self.step = step
        self.worker_traceback = worker_traceback
        self.finished: list[Any] = []
        self.completed: list[Any] = []
        self.reduced: Any = None
        self.kept: Any = None
        self.suspects: list[Any] = []
        self.others: list[tuple[Any, str]] = []
        self.loop: Any = None

    def __reduce__(self) -> tuple[Any, ...]:
        state = {**self.__dict__, "loop": None}
        return type(self), (self.args[0], self.plan, self.step, self.worker_traceback), state


class InvalidValueError(RolloutError, ValueError):
    """NaN or Inf in an observation, a reward or an action; has the attributes of ``RolloutError``.

    Attributes:
        what: ``observation``, ``reward`` or ``action``; empty where it is something else.
    """

    def __init__(
        self, message: str, plan: Any = None, step: int = -1, worker_traceback: str = "", *, what: str = ""
    ) -> None:
        super().__init__(message, plan, step, worker_traceback)
        self.what = what


class DivergedError(InvalidValueError):
    """Learning, or adapting, has led to numbers that are not finite; a run that is resumed meets the same again.

    Attributes:
        lower: Options of the run that are to be lower, and what they are now.
    """

    def __init__(self, message: str, lower: Mapping[str, float] = MappingProxyType({}), *details: Any) -> None:
        super().__init__(message, *details)
        self.lower = dict(lower)

    @classmethod
    def of(cls, happened: str, lower: Mapping[str, float]) -> Self:
        """The error, followed by advice."""
        names = " or ".join(f"{option_name(name)} (now {value:g})" for name, value in lower.items())
        return cls(
            f"{happened}; lower {names}, and train again: a run keeps its settings, and resumed it meets the same",
            lower,
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.args[0], self.lower), {**self.__dict__, "loop": None}


class ReplayError(RolloutError):
    """A rollout that was run again, action by action, shows something else than before."""


class SlotError(MetarollError, RuntimeError):
    """An error in one of many slots that are stepped together: ``raise SlotError(slot, where) from error``.

    Attributes:
        slot: Its number; ``None`` if unknown.
        where: The failed part, in words; empty: the environment.
        others: Further slots that have failed at the same time, and how.
    """

    def __init__(self, slot: int | None = None, where: str = "", others: Mapping[int, Exception] | None = None) -> None:
        super().__init__(slot, where)
        self.slot = slot
        self.where = where
        self.others = {} if others is None else dict(others)

    def __str__(self) -> str:
        place = "a slot" if self.slot is None else f"slot {self.slot}"
        cause = "" if self.__cause__ is None else f": {type(self.__cause__).__name__}: {self.__cause__}"
        return f"{self.where or 'the environment'} failed in {place}{cause}"


class RunWarning(RuntimeWarning):
    """Something about a run that its user should know, and can mend."""


class UsageError(MetarollError, ValueError):
    """The command line (or a configuration file) asks for something that makes no sense."""


@contextlib.contextmanager
def blame_input() -> Iterator[None]:
    """Context of setting up a run, in which built-in errors are errors in the user's arguments."""
    try:
        yield
    except MetarollError:
        raise
    except (ValueError, TypeError, OSError, ImportError) as error:
        raise UsageError(str(error)) from error


class FileKey(str):
    """An option as a file has it: ``discount in my.yaml``, of which ``key`` is the first word."""

    key: str
    __slots__ = ("key",)

    def __new__(cls, key: str, file: str) -> Self:
        made = super().__new__(cls, f"{key} in {file}")
        made.key = key
        return made


@contextlib.contextmanager
def named_as(names: Mapping[str, str]) -> Iterator[None]:
    """Inside, messages call an option as its user did: name here -> name, or flag, that was given."""
    token = _CALLED.set({**_CALLED.get(), **names})
    try:
        yield
    finally:
        _CALLED.reset(token)


@contextlib.contextmanager
def in_shell() -> Iterator[None]:
    """Inside, messages address the command line; everywhere else, Python."""
    token = _IN_SHELL.set(True)
    try:
        yield
    finally:
        _IN_SHELL.reset(token)


def for_reader(in_python: str, in_shell: str) -> str:
    """The one of two texts that the reader of a message can use."""
    return in_shell if _IN_SHELL.get() else in_python


def shortened(value: Any) -> str:
    """``repr(value)``; of a long integer its first and last digits: Python refuses to write thousands of them."""
    try:
        return reprlib.repr(value) if isinstance(value, int) else repr(value)
    except ValueError:
        if not isinstance(value, int):
            return f"an object of type {type(value).__name__}"
        return f"{hex(value)[:20]}... of {value.bit_length()} bits"


def name_given(name: str) -> str | None:
    """The name by which an option was given, inside ``named_as``; ``None`` if unknown."""
    return _CALLED.get().get(name)


@contextlib.contextmanager
def about_option(name: str) -> Iterator[None]:
    """Built-in errors inside are about the value of an option, which they do not know: its name goes before."""
    try:
        yield
    except (ValueError, KeyError) as error:
        raise type(error)(f"{option_name(name)}: {error}") from error


def option_name(name: str, beside: str = "") -> str:
    """The name of an option in messages: ``batch_size`` in Python, ``--batch-size`` at the command line, or as given.

    ``beside`` is that of ``option_text``.
    """
    return name_given(name) or (name if _in_file(beside) else for_reader(name, flag_of(name)))


def _in_file(name: str) -> bool:
    """Whether a file has set an option."""
    return isinstance(name_given(name), FileKey)


def flag_of(name: str) -> str:
    """The flag of an option: ``--batch-size``."""
    return _FLAGS.get(name, "--" + name.replace("_", "-"))


def option_text(name: str, value: Any = None, beside: str = "") -> str:
    """Text that sets an option: ``device="cpu"``, ``--device cpu`` in a shell, ``device: cpu in my.yaml`` in a file.

    Args:
        name: Its name in Python.
        value: A value to show; ``None`` shows the option alone (``--device``, ``device=...``).
        beside: Another option that it goes with: where a file set that, this one belongs there, too.
    """
    called = name_given(name)
    key = called.key if isinstance(called, FileKey) else name if called is None and _in_file(beside) else ""
    if key:
        place = called.removeprefix(key) if isinstance(called, FileKey) else ""
        return key if value is None else f"{key}: {value if isinstance(value, str) else json.dumps(value)}{place}"
    flag = called if called is not None and called.startswith("--") else flag_of(name)
    name = name if called is None or called == flag else called
    if value is None:
        return for_reader(f"{name}=...", flag)
    if isinstance(value, bool):
        return for_reader(f"{name}={value}", flag if value else f"--no-{flag[2:]}")
    many = isinstance(value, list | tuple)
    typed = shlex.join(map(str, value if many else [value]))
    return for_reader(
        f"{name}={json.dumps(value) if isinstance(value, str | list) else repr(value)}", f"{flag} {typed}"
    )


@contextlib.contextmanager
def folder_is_given() -> Iterator[None]:
    """Inside, a command works in a folder that no option can change: see ``other_folder``."""
    token = _FOLDER_IS_GIVEN.set(True)
    try:
        yield
    finally:
        _FOLDER_IS_GIVEN.reset(token)


def other_folder(given: str = "continue a copy of the folder elsewhere", what: str = "folder") -> str:
    """The hint to choose another folder, or ``given`` where no option does that."""
    if _FOLDER_IS_GIVEN.get():
        return given
    # Every command has --out; in Python only some functions have run_dir, and say so by ``named_as``.
    with_option = f" with {option_text('run_dir')}"
    return f"choose another {what}" + for_reader(with_option if name_given("run_dir") else "", with_option)


def one_line(error: BaseException) -> str:
    """Kind and message of an error, shortened to a line."""
    try:
        message = " ".join(str(error).split())
    except Exception:  # errors of OpenGL cannot always describe themselves
        message = ""
    text = f"{type(error).__name__}: {message}" if message else type(error).__name__
    return text if len(text) <= 300 else text[:297] + "..."


def requirements(extra: str = "") -> list[Requirement]:
    """Requirements of the installed metaroll on this Python: always, or for an extra alone.

    Raises:
        ModuleNotFoundError: metaroll is not installed.
    """
    from importlib import metadata

    from packaging.requirements import Requirement

    try:
        declared = [Requirement(line) for line in metadata.requires("metaroll") or []]
    except metadata.PackageNotFoundError:
        raise ModuleNotFoundError("metaroll is only found on the path: install it with pip install -e .") from None
    always = [r for r in declared if r.marker is None or r.marker.evaluate({"extra": ""})]
    if not extra:
        return always
    return [r for r in declared if r not in always and r.marker is not None and r.marker.evaluate({"extra": extra})]


def install_text(extra: str) -> str:
    """The command that installs the packages of an extra of metaroll: ``pip install 'ray>=2.40'``.

    By their own names: of metaroll there need not be a package in an index.
    """
    texts: list[str] = []
    with contextlib.suppress(ModuleNotFoundError):
        for needed in requirements(extra):
            extras = f"[{','.join(sorted(needed.extras))}]" if needed.extras else ""
            texts.append(f"{needed.name}{extras}{needed.specifier}")
    return "pip install " + " ".join(f"'{text}'" for text in texts or [f"metaroll[{extra}]"])


def counted(number: int, noun: str) -> str:
    """A number with its noun: ``1 epoch``, ``1,200 epochs``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def command_text(command: str, *words: str | Path) -> str:
    """``metaroll COMMAND`` with these words, quoted for a shell: ``metaroll resume 'a b'``.

    Args:
        command: Name of the command.
        *words: The words after it: names, folders, options and placeholders.
    """
    return shlex.join(["metaroll", command, *map(str, words)])


def near_names(name: str, known: Iterable[str]) -> list[str]:
    """Up to 3 of the ``known`` names that ``name`` may be a misspelling of, the nearest first."""
    known = sorted(known)
    return difflib.get_close_matches(name, known, n=3, cutoff=0.5) or [n for n in known if n.lower() == name.lower()]


def unknown_name(what: str, name: Any, known: Iterable[str], *, guess: bool = True) -> UnknownNameError:
    """Error for an unknown ``name``: ``unknown environment 'chetah-vel'; did you mean 'cheetah-vel'? Known: ...``.

    Without ``guess`` it lists what is known, and no more.
    """
    known = sorted(known)
    near = near_names(name, known) if guess and isinstance(name, str) else []
    hint = f"; did you mean {' or '.join(repr(n) for n in near)}?" if near else "."
    # A long list would hide the suggestion, if there is one.
    listed = f"{len(known)} names" if near and len(known) > _MOST_LISTED else ", ".join(known)
    listed, got = (
        text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}..." for text in (listed, shortened(name))
    )
    return UnknownNameError(f"unknown {what} {got}{hint} Known: {listed}")
