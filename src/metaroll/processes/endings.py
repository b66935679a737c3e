"""Texts for the end of a process, with hints against it: the same for workers and trainings."""

from __future__ import annotations

import signal

__all__ = ["ending", "hint_of_ending", "out_of_memory", "shortened"]

_MOST_TEXT = 10_000
"""Characters of a message, or of a traceback, that are passed on."""


def ending(code: int) -> str:
    """The end of a process, in words, from its exit status ``code`` (negative: number of the signal that killed it)."""
    if code >= 0:
        return f"it exited with status {code}"
    try:
        return f"it was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"it was killed by signal {-code}"


def hint_of_ending(reason: str, cure: str) -> str:
    """The hint for a process that ended unexpectedly.

    Args:
        reason: The text of ``ending``, or more.
        cure: A way to need less memory, as in "use fewer workers".
    """
    if "exited with status" in reason:
        return "Something in it ends its process (e.g. os._exit, or a library that gives up); its last output is above."
    if "does not fit" in reason or "connection ended" in reason:
        return "Check for an environment or policy that forks, or touches descriptors that it has not opened."
    if "SIGKILL" in reason:
        return out_of_memory(cure)
    if "killed by" in reason:
        return "A library crashed in it: check for an environment or policy that breaks native code."
    return f"The output of the workers, or Ray's logs, may show why. {out_of_memory(cure)}"


def out_of_memory(cure: str) -> str:
    """The hint where memory may have run out."""
    return f"If memory ran out (see the system's log, dmesg), {cure}."


def shortened(text: str) -> str:
    """Beginning and end of the output of foreign code, which may be any number of megabytes."""
    left_out = len(text) - _MOST_TEXT
    if left_out <= 0:
        return text
    half = _MOST_TEXT // 2
    return f"{text[:half]}\n... ({left_out:,} characters are left out here) ...\n{text[-half:]}"
