"""The command ``metaroll``: reads arguments, runs one command, and turns errors into one clear line each."""

from __future__ import annotations

import atexit
import contextlib
import importlib
import logging
import os
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Iterator, Sequence
from types import FrameType

from metaroll.errors import MetarollError, RunWarning, UnknownNameError, command_text, in_shell, unknown_name
from metaroll.lab.display.consoles import HelpShown, escape, make_console, show_problem, warning_line
from metaroll.own_code import look_in
from metaroll.own_frames import frames_of_user, innermost
from metaroll.processes.children import guard_program

__all__ = ["main"]

# Usage of a command -> its function, in a module of cli/, and its help text.
_COMMANDS = {
    "demo": ("commands.train:demo", "watch an agent adapt to tasks it has never seen (takes a few minutes)"),
    "train ALGO ENV": ("commands.train:train", "train an algorithm in an environment or a family of tasks"),
    "infer SIM": (
        "commands.infer:infer",
        "turn a robot's log into a posterior over the simulator's parameters, to train on",
    ),
    "sim2real demo": (
        "commands.infer:sim2real",
        "run the complete loop on a simulated robot: log, posterior, policy, evaluation (a few minutes)",
    ),
    "resume RUN": ("commands.train:resume", "continue a run where it stopped, with bitwise identical results"),
    "evaluate RUN": ("commands.train:evaluate", "evaluate the newest snapshot of a run on held-out tasks"),
    "watch RUN": (
        "commands.watch:watch",
        "record a video of held-out tasks: before and after adaptation, side by side",
    ),
    "report RUN": (
        "commands.watch:report",
        "write one page with everything about a run: curves, tasks, configuration, pictures",
    ),
    "robustness RUN": (
        "commands.robustness:robustness",
        "map the return of a run's policy over one or two domain parameters",
    ),
    "compare RUN ...": (
        "commands.compare:compare",
        "compare groups of runs over their seeds: returns, differences, probability of improvement",
    ),
    "plot RUN ...": ("commands.compare:plot", "plot the learning curves of groups of runs"),
    "check ENV": (
        "commands.check:check",
        "check the tasks of an environment: set, kept, different, and hidden from observations",
    ),
    "import-log LOG": (
        "commands.logs:import_log",
        "import, check and resample robot rollouts from .csv, .npz, .parquet, Minari or a RealEnv log",
    ),
    "list [WHAT]": (
        "commands.listing:list_command",
        "list algorithms, environments, presets, policies, and runs with their progress",
    ),
    "doctor": ("doctor:doctor", "check this machine: packages, extras, plug-ins, processors, a rollout"),
}
_INTERRUPTED = 130
_UNREAD = 141
"""The exit status that shells report for programs ended by SIGPIPE."""
_TRACEBACK_FLAG = "--traceback"
_PATIENCE_S = 3.0
"""Seconds that a finished command waits for threads that an environment has left running."""


class _Terminated(KeyboardInterrupt):
    """SIGTERM (such as a scheduler's time limit) or SIGHUP (the terminal is gone): shut down in order, like Ctrl-C."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.status = 128 + number


class _ExitError(MetarollError):
    """Third-party code called ``sys.exit()``, which would end the command silently."""

    def __init__(self, error: SystemExit) -> None:
        frames = traceback.extract_tb(error.__traceback__)
        place = f"{frames[-1].filename}, line {frames[-1].lineno}," if frames else "some code"
        super().__init__(
            f"{place} called sys.exit({'' if error.code is None else repr(error.code)}), which ends the program: "
            "remove the call, or move it below `if __name__ == '__main__':`"
        )


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status.

    0 success, 1 failure, 2 bad input, 129 terminal closed, 130 interrupted, 141 output pipe closed, 143 terminated.

    Args:
        argv: Arguments without the program's name; ``None`` takes those of the process.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    if argv is None:
        with contextlib.suppress(OSError):  # the folder may be gone
            look_in(os.getcwd())  # for environments of the user, module:attribute
        warnings.formatwarning = _warning_text
        logging.getLogger("metaroll").addHandler(_LogLines(logging.WARNING))
        _escape_unencodable_output()
        _quiet_libraries()
        guard_program()
    status = _run(arguments, for_good=argv is None)
    if argv is None and _threads_left():
        threading.Thread(target=_exit_despite_threads, args=(status,), daemon=True).start()
    return status


def _run(arguments: list[str], *, for_good: bool) -> int:
    """The exit status; ``for_good``: the process ends afterwards."""
    wants_traceback = _TRACEBACK_FLAG in arguments
    arguments = [a for a in arguments if a != _TRACEBACK_FLAG]
    try:
        with _termination_as_interrupt(), in_shell(), _output_for(arguments, for_good=for_good):
            status = _dispatch(arguments)
            if sys.stdout is not None:
                sys.stdout.flush()  # a failure is still reported here
            return status
    except HelpShown:
        return 0
    except BaseException as error:
        if isinstance(error, GeneratorExit):
            raise
        if for_good and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process is about to end: a second Ctrl-C adds nothing
        return _report(error, wants_traceback)


def _threads_left() -> list[threading.Thread]:
    """The threads that Python waits for after the main thread has ended."""
    return [thread for thread in threading.enumerate() if not thread.daemon and thread is not threading.main_thread()]


def _exit_despite_threads(status: int) -> None:
    """Exit with ``status`` even if threads outlive the main thread: some robot drivers never end theirs."""
    main_thread = threading.main_thread()
    while main_thread.is_alive():
        time.sleep(0.05)
    deadline = time.monotonic() + _PATIENCE_S
    for thread in _threads_left():
        thread.join(max(0.0, deadline - time.monotonic()))
    if not _threads_left():
        return
    atexit._run_exitfuncs()  # which Python runs after the threads have ended
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):  # there is none, or it is closed
            stream.flush()
    os._exit(status)


def _escape_unencodable_output() -> None:
    """Escape characters that standard output cannot encode, as standard error does, instead of raising an error."""
    with contextlib.suppress(AttributeError, OSError, ValueError):  # it is closed, or of another kind
        sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]


def _quiet_libraries() -> None:
    """Silence pygame's greeting, and SDL's complaint if there is no display."""
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    if not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")


def _output_for(arguments: Sequence[str], *, for_good: bool) -> contextlib.AbstractContextManager[None]:
    """With ``--json`` only the document reaches standard output, whatever else is imported and run."""
    if "--json" not in arguments or not {"-h", "--help"}.isdisjoint(arguments):
        return contextlib.nullcontext()
    from metaroll.lab.display.json_output import only_json

    return only_json(for_good=for_good)


def _warning_text(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    """One line, like errors, for warnings to the user; with its location for warnings about code."""
    if category in (UserWarning, RunWarning) or (category is DeprecationWarning and " is called " in str(message)):
        return warning_line(str(message))
    return f"{filename}:{lineno}: {category.__name__}: {message}\n"


class _LogLines(logging.Handler):
    """Shows log messages of metaroll like warnings: a worker was replaced, say, which may happen more than once."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line to standard error, which a live table redirects to above itself."""
        with contextlib.suppress(OSError, ValueError):  # it is closed, or its reader is gone; no reason to end a run
            if sys.stderr is not None:
                sys.stderr.write(warning_line(self.format(record)))


def _report(error: BaseException, wants_traceback: bool) -> int:
    """Print on standard error what went wrong and how to continue the run; return the exit status."""
    errors = make_console(stderr=True)
    resume = vars(error).get("resume_command")
    if isinstance(error, BrokenPipeError):  # the reader of our output is gone, as in `metaroll ... | head`
        if sys.stdout is not sys.stderr:  # as with --json
            with contextlib.suppress(OSError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # discards what is still buffered
        if resume:
            with contextlib.suppress(BrokenPipeError):
                text = "stopped because the output pipe was closed:"
                show_problem(text, f"what was saved is kept; continue with: {resume}", style="yellow")
        return _UNREAD
    learned = vars(error).get("epochs_kept", 1) > 0
    if isinstance(error, SystemExit):
        error = _ExitError(error)
    if isinstance(error, KeyboardInterrupt):
        text = "terminated" if isinstance(error, _Terminated) else "interrupted"
        show_problem(f"{text};" if resume else text, f"continue with: {resume}" if resume else "", style="yellow")
        return error.status if isinstance(error, _Terminated) else _INTERRUPTED
    user_frames = frames_of_user(error)
    internal = not (isinstance(error, MetarollError | OSError) or (user_frames and user_frames[-1] == innermost(error)))
    if wants_traceback or internal:
        traceback.print_exception(error)
    if internal:
        text = ""
        show_problem("internal error:", "please report it with the traceback above")
    else:
        text = str(error) if isinstance(error, MetarollError | OSError) else f"{type(error).__name__}: {error}"
        show_problem("error:", text)
    for frame in (frame for frame in user_frames if str(frame) not in text):  # errors in rollouts already name theirs
        errors.print(f"  in {escape(str(frame))}", soft_wrap=True)
    anew = vars(error).get("anew_command")
    if anew:
        errors.print(f"what was saved is kept; to train again with a lower value: {escape(anew)}", soft_wrap=True)
    if resume:
        message = "what was saved is kept; continue with"
        if not learned:
            again = isinstance(error, UnknownNameError) and error.instead  # the command itself removes the cause
            message = (
                f"no epoch was finished; {'try again with' if again else 'once the cause is removed, continue with'}"
            )
        errors.print(f"{message}: {escape(resume)}", soft_wrap=True)
    return 2 if isinstance(error, MetarollError) else 1


@contextlib.contextmanager
def _termination_as_interrupt() -> Iterator[None]:
    """Make SIGTERM and SIGHUP raise in the main thread, so that workers are stopped and files closed."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def raise_it(number: int, frame: FrameType | None) -> None:
        raise _Terminated(number)

    before = {signal.SIGTERM: signal.signal(signal.SIGTERM, raise_it)}
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # ignored under nohup
        before[signal.SIGHUP] = signal.signal(signal.SIGHUP, raise_it)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _dispatch(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        _print_help()
        return 0
    if arguments[0] in ("--version", "-V"):
        from metaroll import __version__

        print(f"metaroll {__version__}")
        return 0
    command, command_arguments = arguments[0], arguments[1:]
    places = {usage.split()[0]: place for usage, (place, _) in _COMMANDS.items()}
    if command not in places:
        kind, known = ("option", ["--help", "--version"]) if command.startswith("-") else ("command", places)
        raise unknown_name(kind, command, known)
    module, _, function = places[command].partition(":")
    run = getattr(importlib.import_module(f"metaroll.lab.cli.{module}"), function)
    return run(command_arguments) or 0


def _print_help() -> None:
    from rich.table import Table

    from metaroll import __version__
    from metaroll.training.algorithms.registry import ALGORITHM_NAMES, FIRST_RUN, NEXT_RUN, preset_names

    first = FIRST_RUN.replace(" ", "-")
    widest = max(map(len, ALGORITHM_NAMES))

    console = make_console()
    console.print(f"[bold]metaroll {__version__}[/]: sample tasks, roll out policies in them, and learn\n")
    console.print("usage: metaroll COMMAND ...\n")
    table = Table.grid(padding=(0, 3))
    for usage, (_, text) in _COMMANDS.items():
        table.add_row(f"  [bold cyan]{escape(usage)}[/]", escape(text))
    console.print(table)
    console.print("\nalgorithms, and the environments they have tuned presets for")
    tuned = Table.grid(padding=(0, 3))  # continued lines are indented
    for algo in ALGORITHM_NAMES:
        named = ", ".join(preset_names(algo)) or "none yet; any Gymnasium id or simulated system works"
        tuned.add_row(f"  [bold cyan]{algo:{widest}}[/]", escape(named))
    console.print(tuned)
    console.print(
        "\nfirst steps\n"
        "  metaroll demo\n"
        f"  {command_text('train', *FIRST_RUN.split(), '--seed', '1')}\n"
        f"  {command_text('train', *NEXT_RUN.split(), '--help')}    (all options)\n"
        f"  {command_text('resume', f'runs/{first}-1')}\n\n"
        "options: --help, --version, --traceback (show where an error comes from)"
    )


if __name__ == "__main__":
    sys.exit(main())
