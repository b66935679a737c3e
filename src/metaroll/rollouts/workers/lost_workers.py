"""What is said when workers were lost at the same work until it was given up: how often, why, and what to do."""

from __future__ import annotations

from collections.abc import Sequence

from metaroll.errors import WorkerLost
from metaroll.rollouts.failures import can_run_again, replay_line
from metaroll.types import RolloutPlan

__all__ = ["hint_of_end", "hint_of_silence", "worker_lost"]

_OUT_OF_MEMORY = (
    "If memory ran out (the system's log, dmesg, tells), use fewer workers or environments at a time (slots_per_unit)."
)
_LIMITS = {"start": "start_s", "call": "call_s", "reset": "reset_s"}


def worker_lost(
    what: str, tries: int, reason: str, hint: str, plans: Sequence[RolloutPlan], workers: str
) -> WorkerLost:
    """The error for work that was tried as often as is allowed.

    Args:
        what: The work.
        tries: How often it was tried.
        reason: Why the worker was lost the last time.
        hint: What helps against that.
        plans: The rollouts that it is made of, if it is.
        workers: Table of what all workers did at that time.
    """
    verb = "were" if what.startswith("rollouts ") else "was"
    if tries == 1:
        how_often = f"tried once, and the worker was lost: {reason}"
    else:
        how_often = f"tried {tries} times, each time a worker was lost; the last time {reason}"
    again = ""
    if plans and can_run_again(plans[0]):
        which = "it" if len(plans) == 1 else "the first of them"
        again = f"\nRun {which} again here (this process may be lost by it, too): {replay_line(plans[0])}"
    return WorkerLost(f"{what} {verb} {how_often}. {hint}{again}\nThe workers at that time:\n{workers}", plans)


def hint_of_end(reason: str) -> str:
    """What to do about a worker whose process ended, as ``reason`` says."""
    if "exited with status" in reason:
        return (
            "Something in it ends its process (os._exit, say, or a library that gives up); what it printed last stands "
            "above."
        )
    if "SIGKILL" in reason:
        return _OUT_OF_MEMORY
    if "killed by" in reason:
        return "A library crashed in it: look for an environment or policy that breaks native code."
    return f"What the workers print, or Ray's logs, may tell why. {_OUT_OF_MEMORY}"


def hint_of_silence(phase: str, stopped: bool) -> str:
    """What to do about a worker that was given up since it gave no sign of life."""
    if stopped:
        return "Something stops its process (SIGSTOP, a debugger, a suspended machine); let it go on."
    limit = _LIMITS.get(phase, "step_s")
    return f"If the work is heavy, allow more time, PoolTimeouts({limit}=...); else look for what hangs."
