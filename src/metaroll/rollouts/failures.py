"""Errors of failed rollouts: which one, where, and the line that runs it again."""

from __future__ import annotations

import math
import traceback
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from metaroll.errors import InvalidValueError, RolloutError, SlotError
from metaroll.own_frames import frames_of_user
from metaroll.processes.endings import shortened
from metaroll.types import RolloutPlan

__all__ = [
    "FAILURES",
    "DroppedRollout",
    "all_dropped",
    "can_run_again",
    "describe_plan",
    "drop_summary",
    "error_summary",
    "failure_in_slots",
    "finite_rows",
    "first_invalid",
    "invalid_value",
    "replay_line",
    "without_advice",
]

FAILURES = (Exception, SystemExit)
"""Exceptions that count as failures of environment or policy: a call of ``sys.exit`` must not end the program."""


_DROP = "\nEngines made with on_error='drop' leave such rollouts out."
"""The hint where failed rollouts are not left out already."""

_DROP_INVALID = ". Engines and samplers made with on_invalid='drop' leave such rollouts out."
"""The hint where rollouts with NaN or Inf are not."""

_RUN = "\nRun it again here: "

_OBJECTS = "env: the environment, policy: the acting policy (of an agent: agent.policy)"
"""The meaning of the names in lines that run a rollout again."""

_NAME = "name"
"""Entry of ``RolloutPlan.extras``: the name of the rollout for users who have not made plans or rollouts themselves."""


@dataclass(frozen=True)
class DroppedRollout:
    """A rollout that was left out.

    Attributes:
        plan: Its plan.
        step: Where it ended (-1: while resetting).
        what: ``observation`` (``state`` where observations are not computed), ``reward`` or ``action`` that was NaN or
            Inf (``on_invalid="drop"``), or ``error`` (``on_error="drop"``).
        message: The error message of the environment or policy that raised.
    """

    plan: RolloutPlan
    step: int
    what: str
    message: str = ""


def all_dropped(which: str, hint: str, last: DroppedRollout) -> RolloutError:
    """The error where ``which`` rollouts were all dropped, the ``last`` one of them like the others."""
    if last.what == "error":
        reason = last.message.split("\n")[0]
        return RolloutError(
            f"{which} were dropped, the last since {reason}\n{hint}, or repair it", last.plan, last.step
        )
    return InvalidValueError(
        f"{which} were dropped, the last since its {last.what} was not finite at step {last.step}: "
        f"{describe_plan(last.plan)}. {hint}, or repair the environment",
        last.plan,
        last.step,
    )


def describe_plan(plan: RolloutPlan) -> str:
    """``rollout 7 (task {...}, seed (0, 1, 7))``, or the name that the plan brings."""
    if _NAME in plan.extras:
        return str(plan.extras[_NAME])
    task = "" if plan.task is None else f"task {plan.task}, "
    return f"rollout {plan.index} ({task}seed {plan.seed})"


def can_run_again(plan: RolloutPlan) -> bool:
    """Whether its caller knows the rollout as one (see ``_NAME``), and so can run it again."""
    return _NAME not in plan.extras


def replay_line(plan: RolloutPlan) -> str:
    """One line that runs exactly this rollout again in the calling process."""
    seeds = dict(zip(("seed", "sub_seed", "sub_sub_seed"), plan.seed or (), strict=False))
    options = {"max_steps": plan.max_steps, "eval": plan.eval or None, **seeds}
    text = ", ".join(f"{name}={value}" for name, value in options.items() if value is not None)
    objects = (plan.env_update, plan.context or None, plan.parameters, plan.init_state)
    if all(value is None for value in objects) and plan.stop_on_done and plan.acts_deterministically == plan.eval:
        return f"metaroll.rollout(env, policy, {text})  # {_OBJECTS}"
    return f"metaroll.replay(error.plan, env, policy)  # error: the exception you caught; {_OBJECTS}; {text}"


def failure_in_slots(
    error: BaseException,
    slot_plans: Sequence[RolloutPlan | None],
    active: np.ndarray,
    lengths: np.ndarray,
    where: str,
    resetting: bool,
) -> Exception:
    """The error to raise for an exception inside ``where``, which steps slots together.

    It names the plan of the slot that the exception names, or those of all; one that names its plan already passes
    unchanged.
    """
    slot, other_errors = None, {}
    if isinstance(error, SlotError):
        slot, where, other_errors, error = error.slot, error.where or where, error.others, error.__cause__ or error
    slots = np.flatnonzero(active).tolist() if slot is None else [slot]
    plans = [plan for s in slots if (plan := slot_plans[s]) is not None]
    step = -1 if resetting or not slots else int(lengths[slots[0]])
    if isinstance(error, RolloutError) or (isinstance(error, Exception) and not plans):
        return error
    if not plans:
        return RuntimeError(f"{where} ended with {type(error).__name__}: {error}")
    names = describe_plan(plans[0])
    if len(plans) > 1:
        names = f"one of {len(plans)} that are stepped together, the first being {names}"
    text = shortened("".join(traceback.format_exception(error)))
    message = f"{where} failed {_place(step)} {names}: {type(error).__name__}: {shortened(str(error))}"
    message += "".join(f"\n  in {frame}" for frame in frames_of_user(error))
    if can_run_again(plans[0]):
        message += _DROP
    message += _again(plans[0])
    failed = RolloutError(message, plans[0], step, text)
    failed.suspects = list(plans)
    for number, cause in other_errors.items():
        if (plan := slot_plans[number]) is not None:
            report = (
                f"{where} failed {_place(step)} {describe_plan(plan)}: {type(cause).__name__}: {shortened(str(cause))}"
            )
            failed.others.append((plan, report + _again(plan)))
    return failed


def without_advice(error: RolloutError, *, engines: bool = False) -> RolloutError:
    """``error`` of an engine that leaves failed rollouts out already: its message does not advise that.

    Args:
        error: The error, which is changed.
        engines: Its reader makes no engines: it does not advise anything about them.
    """
    text = str(error).replace(_DROP, "")
    error.args = (text.replace(_DROP_INVALID, "") if engines else text, *error.args[1:])
    return error


def error_summary(error: RolloutError) -> str:
    """The message without advice, for users who have made neither the rollout's plan nor an engine."""
    return str(without_advice(error, engines=True)).partition(_RUN)[0]


def drop_summary(entry: DroppedRollout) -> str:
    """The message without advice, for users who have not made the rollout's plan, and thus cannot run it again."""
    return entry.message.partition(_RUN)[0] or f"{entry.what} was not finite at step {entry.step}"


def finite_rows(values: np.ndarray) -> np.ndarray:
    """Which rows of ``values (E, ...)`` hold neither NaN nor Inf, bool ``(E,)``."""
    return np.all(np.isfinite(values).reshape(len(values), -1), axis=1)


def first_invalid(
    looked_at: Sequence[tuple[str, np.ndarray]], counts: np.ndarray, active: np.ndarray
) -> list[tuple[int, int, str, np.ndarray]]:
    """The first NaN or Inf of each rollout in a block: slot, step, name and value, the earliest first.

    Args:
        looked_at: Names and values ``(K, E, ...)``, in the order in which they come about within a step.
        counts: Steps of the block that count, ``(E,)``.
        active: Slots that run a rollout, bool ``(E,)``.
    """
    numbers = [(what, values) for what, values in looked_at if values.dtype.kind in "fc"]
    if all(math.isfinite(abs(np.vdot(values, values))) for _, values in numbers):
        return []  # the usual case; else NaN or Inf somewhere, or finite numbers whose squares overflow
    first: dict[int, tuple[int, int, str, np.ndarray]] = {}
    for order, (what, values) in enumerate(numbers):
        bad = ~finite_rows(values.reshape(-1, *values.shape[2:])).reshape(values.shape[:2])
        bad &= (np.arange(len(bad))[:, None] < counts) & active
        for slot in np.flatnonzero(bad.any(axis=0)).tolist():
            step = int(bad[:, slot].argmax())
            if slot not in first or (step, order) < first[slot][:2]:
                first[slot] = (step, order, what, values[step, slot])
    ordered = sorted(first.items(), key=lambda item: (item[1][:2], item[0]))
    return [(slot, step, what, value) for slot, (step, _, what, value) in ordered]


def invalid_value(what: str, value: np.ndarray, plan: RolloutPlan, step: int) -> InvalidValueError:
    """The error for NaN or Inf in an observation, a reward or an action."""
    shown = np.array2string(np.atleast_1d(value), threshold=8, precision=4)
    message = f"{what} is not finite {_place(step)} {describe_plan(plan)}: {shown}"
    if _NAME not in plan.extras:
        message += _DROP_INVALID
    return InvalidValueError(message + _again(plan), plan, step, what=what)


def _place(step: int) -> str:
    return "while resetting" if step < 0 else f"at step {step} of"


def _again(plan: RolloutPlan) -> str:
    """How to run a rollout again, for those who know it as one."""
    return f"{_RUN}{replay_line(plan)}" if can_run_again(plan) else ""
