"""Whether an agent adapts, judged by the paired returns of a study."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np

from metaroll.errors import ShapeError, counted
from metaroll.functional.robust_statistics import fewest_differences, sign_flip_interval
from metaroll.training.evaluation.evaluation_metrics import (
    Interval,
    independent_means,
    interval_of_normalized_score,
    normalized_score,
    without_repeats,
)
from metaroll.training.evaluation.numbers import with_interval

__all__ = [
    "FEWEST_TASKS",
    "HARDLY_CHANGES",
    "HARDLY_DIFFERS",
    "LEAST_EFFECT",
    "Estimate",
    "Verdict",
    "Word",
    "judge",
    "least_effect",
]

Word = Literal["adapts", "improves", "gets worse", "hardly changes", "no evidence", "no verdict"]
"""The outcome of a verdict; sentence, flag, file, color and report follow from it."""

_MOST_NAMED = 5
HARDLY_DIFFERS = 0.1
"""In nats: a smaller mean divergence (from the prior, from another task's posterior) means hardly any information."""
HARDLY_CHANGES = 0.01
"""Share of the standard deviation of returns: smaller differences do not count, however narrow their intervals."""
LEAST_EFFECT = f"{100 * HARDLY_CHANGES:g} % of the standard deviation of returns"
"""``least_effect`` in words."""
_ROUNDING = 1e-6
FEWEST_TASKS = fewest_differences()
"""With fewer tasks (repetitions, if there are no other tasks), chance alone makes all gains positive in over 2.5 % of
evaluations."""


class Estimate(NamedTuple):
    """A mean of paired differences over tasks, with its 95 % interval by sign flips; too few tasks give NaN bounds.

    The interval lies above 0 if the one-sided sign-flip test rejects, at 2.5 %, that the differences are symmetric
    around 0.
    """

    value: float
    interval: Interval

    @property
    def is_known(self) -> bool:
        """Whether there is an interval."""
        return all(map(math.isfinite, self.interval))

    @property
    def is_positive(self) -> bool:
        """Whether the interval lies above 0."""
        return self.is_known and self.interval.low > 0

    def to_dict(self, name: str) -> dict[str, float]:
        """The three numbers as entries ``name``, ``<name>_ci_low``, ``<name>_ci_high``."""
        return {name: self.value, f"{name}_ci_low": self.interval.low, f"{name}_ci_high": self.interval.high}


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Whether an agent adapts, by how much, and because of which data. Differences are paired by test episodes.

    Attributes:
        num_tasks: Number of tasks M.
        num_repetitions: Number of repetitions R that intervals are over, if there are no other tasks; ``None`` if the
            tasks are a sample, and intervals are over tasks.
        gain: Return after adaptation minus return of no adaptation.
        own_data: Whether ``own_data_gain`` has an interval above 0 and is at least ``least_effect``, so that the agent
            adapts because of data from the task, and not because of any data; ``None`` if this was not measured.
        own_data_gain: Return after adaptation minus that after adaptation to another task's data (mismatched context).
        oracle_room: Return of the oracle minus return of no adaptation; ``None`` without an oracle.
        oracle_share: Where the adapted agent is between the floor, or no adaptation if there is no floor (0), and the
            oracle (1); ``None`` if there is no oracle, or if it is no better than the floor.
        posterior_divergence: Mean over tasks of ``KL(posterior || prior)`` in nats; ``None`` for algorithms without a
            posterior (see ``learners.base.HasPosterior``).
        task_divergence: The same for ``KL(posterior || posterior given another task's data)``: a posterior may be far
            from the prior but the same in all tasks.
        failing: Positions of the tasks whose return is lower after adaptation than without it (by more than
            ``least_effect``), the worst first.
        failing_tasks: Descriptions of these tasks.
        least_effect: Smaller differences do not count (see the function of this name).
    """

    num_tasks: int
    gain: Estimate
    own_data: bool | None
    own_data_gain: Estimate | None
    oracle_room: Estimate | None
    oracle_share: Estimate | None
    posterior_divergence: float | None
    task_divergence: float | None
    failing: tuple[int, ...]
    failing_tasks: tuple[str, ...]
    least_effect: float = 0.0
    num_repetitions: int | None = None

    @property
    def word(self) -> Word:
        """The outcome.

        - ``"no verdict"``: fewer than ``FEWEST_TASKS`` tasks (or repetitions, see ``num_repetitions``).
        - ``"no evidence"``: the interval of ``gain`` contains 0.
        - ``"hardly changes"``: it does not, but ``gain`` is smaller in size than ``least_effect``.
        - ``"gets worse"``: it lies below 0.
        - ``"adapts"``: it lies above 0, and ``own_data`` is true.
        - ``"improves"``: it lies above 0, but ``own_data`` is false or unknown.
        """
        low, high = self.gain.interval
        if not self.gain.is_known:
            return "no verdict"
        if low <= 0.0 <= high:
            return "no evidence"
        if abs(self.gain.value) < self.least_effect:
            return "hardly changes"
        if high < 0.0:
            return "gets worse"
        return "adapts" if self.own_data else "improves"

    @property
    def adapts(self) -> bool | None:
        """Whether ``word`` is ``"adapts"``; ``None`` if there is no verdict."""
        return None if self.word == "no verdict" else self.word == "adapts"

    @property
    def posterior_differs(self) -> bool | None:
        """Whether the mean divergence is at least ``HARDLY_DIFFERS``; ``None`` if unknown."""
        return None if self.posterior_divergence is None else self.posterior_divergence >= HARDLY_DIFFERS

    @property
    def posterior_tells_tasks(self) -> bool | None:
        """Whether the mean divergence between tasks is at least ``HARDLY_DIFFERS``; ``None`` if unknown."""
        return None if self.task_divergence is None else self.task_divergence >= HARDLY_DIFFERS

    @property
    def text(self) -> str:
        """The verdict in a sentence: ``adapts: +14.4 [7.9, 20.0] from its own data, 72 % of the way to the oracle``."""
        return _sentence(self)

    def __str__(self) -> str:
        return self.text

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data, the sentence first."""
        entries: dict[str, Any] = {
            "text": self.text,
            "word": self.word,
            "adapts": self.adapts,
            "n_tasks": self.num_tasks,
            "all_tasks": self.num_repetitions is not None,
            **self.gain.to_dict("gain"),
            "least_effect": self.least_effect,
        }
        entries["own_data"] = self.own_data
        for name, estimate in (
            ("own_data_gain", self.own_data_gain),
            ("oracle_room", self.oracle_room),
            ("oracle_share", self.oracle_share),
        ):
            entries |= {} if estimate is None else estimate.to_dict(name)
        if self.posterior_divergence is not None:
            entries["posterior_divergence"] = self.posterior_divergence
            entries["posterior_differs"] = self.posterior_differs
        if self.task_divergence is not None:
            entries["task_divergence"] = self.task_divergence
            entries["posterior_tells_tasks"] = self.posterior_tells_tasks
        entries["n_failing"] = len(self.failing)
        entries["failing_tasks"] = [
            {"index": index, "task": text} for index, text in zip(self.failing, self.failing_tasks, strict=True)
        ]
        return entries


def judge(
    adapted: Any,
    no_adaptation: Any,
    *,
    mismatched: Any = None,
    oracle: Any = None,
    floor: Any = None,
    divergence: Any = None,
    task_divergence: Any = None,
    tasks: Sequence[str] = (),
    all_tasks: bool = False,
) -> Verdict:
    """The verdict on returns per task ``(M,)``, or per task and repetition ``(M, R)``, all of the same test episodes.

    Args:
        adapted: After adaptation to the task's own data.
        no_adaptation: Returns of the same policy without any data.
        mismatched: After adaptation to the data of another task.
        oracle: Returns of a policy that has access to the task.
        floor: Returns of the best policy that does not adapt, if known; ``None`` means ``no_adaptation``.
        divergence: ``KL(posterior || prior)`` in nats.
        task_divergence: ``KL(posterior || posterior given another task's data)``.
        tasks: Descriptions of the tasks; without them they are called ``task 0``, ``task 1``, ...
        all_tasks: Whether there are no other tasks, so that these are not a sample. Then only repetitions differ by
            chance, intervals are over repetitions, and the verdict is about these tasks alone. Repetitions that are
            equal bit by bit count once.

    Raises:
        ShapeError: The arrays have different shapes, or there is no task.
    """
    after, without = (np.asarray(values, dtype=np.float64) for values in (adapted, no_adaptation))
    optional = {"mismatched": mismatched, "oracle": oracle, "floor": floor}
    optional |= {"divergence": divergence, "task_divergence": task_divergence}
    known = {name: np.asarray(values, np.float64) for name, values in optional.items() if values is not None}
    count = len(after) if after.ndim in (1, 2) else 0
    shapes = {"adapted": after.shape, "no_adaptation": without.shape, **{n: v.shape for n, v in known.items()}}
    names = list(tasks) or [f"task {i}" for i in range(count)]
    if not count or not after.size or len(names) != count or set(shapes.values()) != {after.shape}:
        shown = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise ShapeError(
            f"all returns must have shape (M,), one per task, or (M, R), with a text for each task, got {shown}"
        )
    cells = {name: values.reshape(count, -1) for name, values in known.items()}
    after, without = after.reshape(count, -1), without.reshape(count, -1)
    per_task = (after - without).mean(axis=1)
    least = least_effect(after.mean(axis=1), without.mean(axis=1))
    over = partial(independent_means, all_tasks=all_tasks)

    def gap(first: np.ndarray, second: np.ndarray) -> np.ndarray:
        one, other = without_repeats(first, second) if all_tasks else (first, second)
        return over(one - other)

    gains = gap(after, without)
    gain = _estimate(gains)
    own = _estimate(gap(after, cells["mismatched"])) if "mismatched" in cells else None
    failing = tuple(i for i in np.argsort(per_task, kind="stable").tolist() if per_task[i] < -least)
    return Verdict(
        num_tasks=count,
        gain=gain,
        own_data=own.is_positive and own.value >= least if own is not None and own.is_known else None,
        own_data_gain=own,
        oracle_room=_estimate(gap(cells["oracle"], without)) if "oracle" in cells else None,
        oracle_share=_share(*map(over, (after, cells.get("floor", without), cells["oracle"])))
        if "oracle" in cells
        else None,
        posterior_divergence=_mean(known.get("divergence")),
        task_divergence=_mean(known.get("task_divergence")),
        failing=failing,
        failing_tasks=tuple(names[i] for i in failing),
        least_effect=least,
        num_repetitions=len(gains) if all_tasks else None,
    )


def least_effect(adapted: np.ndarray, no_adaptation: np.ndarray) -> float:
    """The smallest difference that counts between returns per task ``(M,)``.

    This is ``HARDLY_CHANGES`` times their standard deviation over the tasks of both arrays, but at least the rounding
    error of single precision in numbers of their size.
    """
    returns = np.concatenate([adapted, no_adaptation])
    return float(max(HARDLY_CHANGES * returns.std(), _ROUNDING * np.abs(returns).max()))


def _mean(values: np.ndarray | None) -> float | None:
    return float(values.mean()) if values is not None and np.isfinite(values).all() else None


def _estimate(differences: np.ndarray) -> Estimate:
    return Estimate(float(differences.mean()), sign_flip_interval(differences))


def _share(after: np.ndarray, floor: np.ndarray, oracle: np.ndarray) -> Estimate | None:
    """The normalized score; ``None`` if the oracle is no better than the floor, where it would be a ratio of noise."""
    room = oracle - floor
    if not (_estimate(room).is_positive if len(room) >= FEWEST_TASKS else (room > 0.0).all()):
        return None
    score = normalized_score(after, floor, oracle)
    return Estimate(score, interval_of_normalized_score(after, floor, oracle))


# -- in words ----------------------------------------------------------------------------------------------------------


def _sentence(verdict: Verdict) -> str:
    """The sentence of ``Verdict.text``."""
    gain = with_interval(verdict.gain.value, verdict.gain.interval, sign="+")
    tasks = counted(verdict.num_tasks, "task")
    if verdict.word == "no verdict":
        return f"no verdict: gain {gain} {_on_few_tasks(verdict, tasks)}"
    if verdict.word == "gets worse":
        failing = f"on {len(verdict.failing)} of {tasks}"
        return f"adapting makes it worse: gain {gain}, {failing}{_about_posterior(verdict)}"
    if verdict.word == "hardly changes":
        least = f"less than {100 * HARDLY_CHANGES:g} % of the spread of returns"
        return f"adapting changes next to nothing: gain {gain}, {least}{_about_posterior(verdict)}"
    if verdict.word == "no evidence":
        parts = [f"no evidence of adaptation: gain {gain}", *_about_room(verdict)]
        return "; ".join(parts) + _about_posterior(verdict)
    if verdict.word == "adapts":
        parts = [f"adapts: {gain} from its own data{_share_of_oracle(verdict)}"]
    else:
        parts = [f"improves, {_without_own_data(verdict, gain)}{_share_of_oracle(verdict)}"]
    if verdict.failing:
        parts.append(f"fails on {len(verdict.failing)} of {tasks}: {_joined(verdict.failing_tasks)}")
    else:
        parts.append(f"helps in all {tasks}")
    if verdict.num_repetitions is not None:
        parts.append(f"for these {tasks} alone, which are all there are ({verdict.num_repetitions} repetitions)")
    return "; ".join(parts) + _about_posterior(verdict)


def _on_few_tasks(verdict: Verdict, tasks: str) -> str:
    number, what = verdict.num_repetitions, f"{FEWEST_TASKS} or more"
    if number is None:
        return f"on {tasks}; it takes {what} to tell it from chance"
    times = counted(number, "repetition")
    return f"in {times} of these {tasks}; it takes {what} repetitions to tell it from chance"


def _without_own_data(verdict: Verdict, gain: str) -> str:
    if verdict.own_data_gain is None:
        return f"but it was not tested whether because of its own data: {gain}"
    difference = with_interval(verdict.own_data_gain.value, verdict.own_data_gain.interval, sign="+")
    return f"but not because of its own data: {gain} (compared to another task's data: {difference})"


def _share_of_oracle(verdict: Verdict) -> str:
    share = verdict.oracle_share
    if share is None:
        return ""
    bounds = f" [{100 * share.interval.low:.0f}, {100 * share.interval.high:.0f}]" if share.is_known else ""
    return f", {100 * share.value:.0f} %{bounds} of the way to the oracle"


def _about_room(verdict: Verdict) -> list[str]:
    room = verdict.oracle_room
    if room is None or not room.is_known or room.is_positive:
        return []
    return [f"nor is there much to gain: the oracle is better by {with_interval(*room, sign='+')}"]


def _about_posterior(verdict: Verdict) -> str:
    """Whether the posterior explains the outcome: it hardly differs from the prior, or from one task to another.

    It is the end of a sentence.
    """
    if verdict.posterior_divergence is None:
        return ""
    if not verdict.posterior_differs:
        return f"; the posterior hardly differs from the prior (KL {verdict.posterior_divergence:.3g} nats)"
    if verdict.posterior_tells_tasks is False:
        return f"; the posterior hardly differs from one task to another (KL {verdict.task_divergence:.3g} nats)"
    known = " and from one task to another" if verdict.posterior_tells_tasks else ""
    size = f"KL {verdict.posterior_divergence:.3g} nats"
    return "" if verdict.adapts else f", although the posterior differs from the prior{known} ({size})"


def _joined(texts: Sequence[str]) -> str:
    """``velocity=2.87, 2.91``: the first tasks, with a name that all of them share given only once."""
    shown = [f"({text})" if text.count("=") > 1 else text for text in texts[:_MOST_NAMED]]
    heads = {text.partition("=")[0] for text in shown}
    if len(heads) == 1 and all(text.count("=") == 1 for text in shown):
        shown[1:] = [text.partition("=")[2] for text in shown[1:]]
    more = len(texts) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")
