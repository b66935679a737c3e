"""The command ``metaroll``: reads arguments, runs one command, and turns errors into one clear line each."""

from __future__ import annotations

import contextlib
import sys
import traceback
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.markup import escape

from metaroll.errors import MetarollError, unknown_name

__all__ = ["main"]

_COMMANDS = {
    "demo": "watch PEARL adapt to tasks that it never saw (some minutes)",
    "train ALGO ENV": "train an algorithm in a family of tasks",
    "resume RUN": "continue a run where it stopped, bit for bit",
    "evaluate RUN": "adapt the newest snapshot of a run to held-out tasks",
}
_INTERRUPTED = 130
_TRACEBACK_FLAG = "--traceback"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; the exit status (0 done, 1 internal error, 2 bad input, 130 interrupted).

    Args:
        argv: Arguments without the program's name; ``None`` takes those of the process.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    wants_traceback = _TRACEBACK_FLAG in arguments
    arguments = [a for a in arguments if a != _TRACEBACK_FLAG]
    errors = Console(stderr=True, highlight=False)
    try:
        return _dispatch(arguments)
    except KeyboardInterrupt as interrupt:
        resume = getattr(interrupt, "resume_command", None)
        errors.print(f"[yellow]interrupted[/]; continue with: {escape(resume)}" if resume else "[yellow]interrupted[/]")
        return _INTERRUPTED
    except MetarollError as error:
        if wants_traceback:
            traceback.print_exc()
        errors.print(f"[bold red]error:[/] {escape(str(error))}", soft_wrap=True)
        return 2
    except BrokenPipeError:  # the reader of our output has gone, as in `metaroll ... | head`
        with contextlib.suppress(OSError):
            sys.stdout.close()
        return 1
    except Exception:
        traceback.print_exc()
        errors.print("[bold red]internal error:[/] please report it with the traceback above", soft_wrap=True)
        return 1


def _dispatch(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        _print_help()
        return 0
    if arguments[0] in ("--version", "-V"):
        from metaroll import __version__

        print(f"metaroll {__version__}")
        return 0
    command, rest = arguments[0], arguments[1:]
    names = [usage.split()[0] for usage in _COMMANDS]
    if command not in names:
        kind, known = ("option", ["--help", "--version"]) if command.startswith("-") else ("command", names)
        raise unknown_name(kind, command, known)
    from metaroll.cli import commands

    with _exit_status() as status:
        getattr(commands, command)(rest)
    return status[0]


@contextlib.contextmanager
def _exit_status() -> Iterator[list[int]]:
    """The parser leaves by ``SystemExit`` after ``--help``; give its status back instead."""
    status = [0]
    try:
        yield status
    except SystemExit as leaving:
        status[0] = leaving.code if isinstance(leaving.code, int) else 0


def _print_help() -> None:
    from rich.table import Table

    from metaroll import __version__
    from metaroll.cli.presets import ALGORITHM_NAMES, preset_names

    console = Console(highlight=False)
    console.print(f"[bold]metaroll {__version__}[/]: sample tasks, roll policies out in them, and learn\n")
    console.print("usage: metaroll COMMAND ...\n")
    table = Table.grid(padding=(0, 3))
    for usage, text in _COMMANDS.items():
        table.add_row(f"  [bold cyan]{usage}[/]", escape(text))
    console.print(table)
    console.print("\nalgorithms, and environments with tuned values")
    for algo in ALGORITHM_NAMES:
        console.print(f"  [bold cyan]{algo}[/]   {', '.join(preset_names(algo))}")
    console.print(
        "\nfirst steps\n"
        "  metaroll demo\n"
        "  metaroll train pearl point-robot --seed 1\n"
        "  metaroll train pearl cheetah-vel --help    (all options)\n"
        "  metaroll resume runs/pearl-point-robot-1\n\n"
        "options: --help, --version, --traceback (show where an error comes from)"
    )


if __name__ == "__main__":
    sys.exit(main())
