"""The command ``metaroll``: reads arguments, runs one command, and turns errors into one clear line each."""

from __future__ import annotations

import atexit
import contextlib
import importlib
import os
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Iterator, Sequence
from types import FrameType

from metaroll.errors import MetarollError, RunWarning, command_text, in_shell, unknown_name
from metaroll.lab.display.consoles import HelpShown, escape, make_console, show_problem, warning_line
from metaroll.own_code import look_in
from metaroll.own_frames import frames_of_user, innermost
from metaroll.processes.children import guard_program

__all__ = ["main"]

# How a command is typed -> its function, in a module of cli/, and what it does.
_COMMANDS = {
    "demo": ("commands.train:demo", "watch an agent adapt to tasks that it never saw (some minutes)"),
    "train ALGO ENV": ("commands.train:train", "train an algorithm in a family of tasks"),
    "infer SIM": (
        "commands.infer:infer",
        "from a robot's log to a posterior over the simulator's parameters, to train on",
    ),
    "sim2real demo": (
        "commands.infer:sim2real",
        "the whole loop on a simulated robot: log, posterior, policy, evaluation (some minutes)",
    ),
    "resume RUN": ("commands.train:resume", "continue a run where it stopped, bitwise identical"),
    "evaluate RUN": ("commands.train:evaluate", "adapt the newest snapshot of a run to held-out tasks"),
    "watch RUN": ("commands.watch:watch", "a video of held-out tasks: before and after adaptation, side by side"),
    "report RUN": (
        "commands.watch:report",
        "one page with everything about a run: curves, tasks, configuration, pictures",
    ),
    "robustness RUN": (
        "commands.robustness:robustness",
        "return of a run's policy over one or two domain parameters, as a picture and numbers",
    ),
    "compare RUN ...": (
        "commands.compare:compare",
        "groups of runs over their seeds: returns, differences, probability of improvement",
    ),
    "plot RUN ...": ("commands.compare:plot", "learning curves of groups of runs, as a picture"),
    "check ENV": (
        "commands.check:check",
        "look at the tasks of an environment: are they set, kept, different, and hidden from observations",
    ),
    "import-log LOG": (
        "commands.logs:import_log",
        "rollouts of a robot from .csv, .npz, .parquet, Minari or a log of a RealEnv, checked and resampled",
    ),
    "list [WHAT]": (
        "commands.listing:list_command",
        "algorithms, environments, presets, policies, and runs with how far they are",
    ),
    "doctor": ("doctor:doctor", "check this machine: packages, extras, plug-ins, processors, a rollout"),
}
_INTERRUPTED = 130
_UNREAD = 141
"""What a shell tells of programs that end by SIGPIPE."""
_TRACEBACK_FLAG = "--traceback"
_PATIENCE_S = 3.0
"""How long a command that is done waits for threads that an environment has left."""


class _Terminated(KeyboardInterrupt):
    """SIGTERM (a scheduler's time limit, say), or SIGHUP (the terminal is gone): to end in order, as Ctrl-C does."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.status = 128 + number


class _ExitError(MetarollError):
    """Code of others has called ``sys.exit()``, which would end the command without a word."""

    def __init__(self, error: SystemExit) -> None:
        frames = traceback.extract_tb(error.__traceback__)
        place = f"{frames[-1].filename}, line {frames[-1].lineno}," if frames else "some code"
        super().__init__(
            f"{place} called sys.exit({'' if error.code is None else repr(error.code)}), which ends the program: leave "
            "it out, or move it below `if __name__ == '__main__':`"
        )


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; the exit status.

    0 done, 1 failure, 2 bad input, 129 the terminal is gone, 130 interrupted, 141 the output is read by nobody any
    more, 143 terminated.

    Args:
        argv: Arguments without the program's name; ``None`` takes those of the process.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    if argv is None:
        with contextlib.suppress(OSError):  # the folder may be gone
            look_in(os.getcwd())  # for environments of the user, module:attribute
        warnings.formatwarning = _warning_text
        _print_whatever_names_hold()
        _quiet_libraries()
        guard_program()
    status = _run(arguments, for_good=argv is None)
    if argv is None and _threads_left():
        threading.Thread(target=_end_in_spite_of_threads, args=(status,), daemon=True).start()
    return status


def _run(arguments: list[str], *, for_good: bool) -> int:
    """The exit status; ``for_good``: the process ends behind it."""
    wants_traceback = _TRACEBACK_FLAG in arguments
    arguments = [a for a in arguments if a != _TRACEBACK_FLAG]
    try:
        with _termination_as_interrupt(), in_shell(), _output_for(arguments, for_good=for_good):
            status = _dispatch(arguments)
            if sys.stdout is not None:
                sys.stdout.flush()  # here somebody hears of it where that fails
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
    """Those that Python waits for when the main thread has ended."""
    return [one for one in threading.enumerate() if not one.daemon and one is not threading.main_thread()]


def _end_in_spite_of_threads(status: int) -> None:
    """Leave with ``status`` if threads live on when the main thread has ended; drivers of robots have some for ever."""
    main_thread = threading.main_thread()
    while main_thread.is_alive():
        time.sleep(0.05)
    deadline = time.monotonic() + _PATIENCE_S
    for thread in _threads_left():
        thread.join(max(0.0, deadline - time.monotonic()))
    if not _threads_left():
        return
    atexit._run_exitfuncs()  # which Python runs behind them
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):  # there is none, or it is closed
            stream.flush()
    os._exit(status)


def _print_whatever_names_hold() -> None:
    """What the encoding of standard output lacks is spelled out there, as it is on standard error, and is no error."""
    with contextlib.suppress(AttributeError, OSError, ValueError):  # it is closed, or of another kind
        sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]


def _quiet_libraries() -> None:
    """Pygame does not greet, and SDL does not look for a screen (and complain) where there is none."""
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    if not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")


def _output_for(arguments: Sequence[str], *, for_good: bool) -> contextlib.AbstractContextManager[None]:
    """With ``--json`` nothing but the document reaches standard output, whatever is imported and run."""
    if "--json" not in arguments or not {"-h", "--help"}.isdisjoint(arguments):
        return contextlib.nullcontext()
    from metaroll.lab.display.json_output import only_json

    return only_json(for_good=for_good)


def _warning_text(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    """What concerns the user is one line, as errors are; what concerns code says where."""
    if category in (UserWarning, RunWarning) or (category is DeprecationWarning and " is called " in str(message)):
        return warning_line(str(message))
    return f"{filename}:{lineno}: {category.__name__}: {message}\n"


def _report(error: BaseException, wants_traceback: bool) -> int:
    """Say on standard error what went wrong, and how a run can be continued; the exit status."""
    errors = make_console(stderr=True)
    resume = vars(error).get("resume_command")
    if isinstance(error, BrokenPipeError):  # the reader of our output has gone, as in `metaroll ... | head`
        if sys.stdout is not sys.stderr:  # as with --json
            with contextlib.suppress(OSError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is still buffered goes nowhere
        if resume:
            with contextlib.suppress(BrokenPipeError):
                what = "stopped, since nobody reads the output any more:"
                show_problem(what, f"what was saved is kept; continue with: {resume}", style="yellow")
        return _UNREAD
    learned = vars(error).get("epochs_kept", 1) > 0
    if isinstance(error, SystemExit):
        error = _ExitError(error)
    if isinstance(error, KeyboardInterrupt):
        what = "terminated" if isinstance(error, _Terminated) else "interrupted"
        show_problem(f"{what};" if resume else what, f"continue with: {resume}" if resume else "", style="yellow")
        return error.status if isinstance(error, _Terminated) else _INTERRUPTED
    own = frames_of_user(error)
    internal = not (isinstance(error, MetarollError | OSError) or (own and own[-1] == innermost(error)))
    if wants_traceback or internal:
        traceback.print_exception(error)
    if internal:
        what = ""
        show_problem("internal error:", "please report it with the traceback above")
    else:
        what = str(error) if isinstance(error, MetarollError | OSError) else f"{type(error).__name__}: {error}"
        show_problem("error:", what)
    for frame in (frame for frame in own if str(frame) not in what):  # errors of rollouts name them themselves
        errors.print(f"  in {escape(str(frame))}", soft_wrap=True)
    anew = vars(error).get("anew_command")
    if anew:
        errors.print(f"what was saved is kept; train anew with a lower value, say: {escape(anew)}", soft_wrap=True)
    if resume:
        kept = "what was saved is kept; continue with" if learned else "no epoch was finished; try again with"
        errors.print(f"{kept}: {escape(resume)}", soft_wrap=True)
    return 2 if isinstance(error, MetarollError) else 1


@contextlib.contextmanager
def _termination_as_interrupt() -> Iterator[None]:
    """Inside, SIGTERM and SIGHUP raise in the main thread, so that workers are ended and files closed."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def raise_it(number: int, frame: FrameType | None) -> None:
        raise _Terminated(number)

    before = {signal.SIGTERM: signal.signal(signal.SIGTERM, raise_it)}
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as nohup has it
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
    command, rest = arguments[0], arguments[1:]
    places = {usage.split()[0]: place for usage, (place, _) in _COMMANDS.items()}
    if command not in places:
        kind, known = ("option", ["--help", "--version"]) if command.startswith("-") else ("command", places)
        raise unknown_name(kind, command, known)
    module, _, function = places[command].partition(":")
    run = getattr(importlib.import_module(f"metaroll.lab.cli.{module}"), function)
    return run(rest) or 0


def _print_help() -> None:
    from rich.table import Table

    from metaroll import __version__
    from metaroll.training.algorithms.registry import ALGORITHM_NAMES, FIRST_RUN, NEXT_RUN, preset_names

    first = FIRST_RUN.replace(" ", "-")
    widest = max(map(len, ALGORITHM_NAMES))

    console = make_console()
    console.print(f"[bold]metaroll {__version__}[/]: sample tasks, roll policies out in them, and learn\n")
    console.print("usage: metaroll COMMAND ...\n")
    table = Table.grid(padding=(0, 3))
    for usage, (_, text) in _COMMANDS.items():
        table.add_row(f"  [bold cyan]{escape(usage)}[/]", escape(text))
    console.print(table)
    console.print("\nalgorithms, and environments with tuned values")
    tuned = Table.grid(padding=(0, 3))  # lines that go on stand below their beginning
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
