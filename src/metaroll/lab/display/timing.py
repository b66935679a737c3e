"""Estimates how long a run takes: the time left of its phase, its epoch and the whole run."""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Self

from metaroll.errors import counted

__all__ = ["PhaseState", "RunAmounts", "RunTiming", "about", "after_epoch", "duration", "seconds_of"]

_EPOCHS_REMEMBERED = 10
_LEAST_SECONDS = 1.0
"""Rates measured for a shorter time are unreliable."""
_SHORTEST_SHOWN = 0.5
"""Phases that take fewer seconds are not mentioned."""
_DAY = 86400
_BIG_UNITS = ((365.25 * _DAY, "year"), (_DAY, "day"), (3600, "hour"), (60, "minute"))


def after_epoch(epoch: int) -> str:
    """How long an agent that is shown has been trained: ``after 3 epochs``."""
    return f"after {counted(epoch, 'epoch')}" if epoch else "before its first epoch: untrained"


def duration(seconds: float) -> str:
    """``m:ss`` or ``h:mm:ss``; from two days on ``9 d 2 h``."""
    whole = max(0, round(seconds))
    hours, minutes, secs = whole // 3600, whole // 60 % 60, whole % 60
    if hours >= 48:
        return f"{hours // 24} d {hours % 24} h"
    return f"{hours}:{minutes:02}:{secs:02}" if hours else f"{minutes}:{secs:02}"


def seconds_of(text: str) -> float:
    """The inverse of ``duration``."""
    if match := re.fullmatch(r"(\d+) d (\d+) h", text):
        return int(match[1]) * float(_DAY) + int(match[2]) * 3600.0
    seconds = 0.0
    for part in text.split(":"):
        seconds = 60.0 * seconds + int(part)
    return seconds


def about(seconds: float) -> str:
    """In words, such as ``about 9 days``; below ten of a unit with one decimal unless that is zero."""
    for size, name in _BIG_UNITS:
        if seconds >= 1.5 * size or name == "minute":
            count = seconds / size
            text = f"{count:.1f}".removesuffix(".0") if count < 10 and name != "minute" else f"{count:,.0f}"
            return f"about {text} {name}{'' if text == '1' else 's'}"
    raise AssertionError("minutes are the last")


@dataclass(frozen=True, kw_only=True)
class RunAmounts:
    """The amount of work of a run, as far as its options determine it.

    Attributes:
        initial_steps: Environment steps of the warm-up.
        epoch_steps: Environment steps of each epoch.
        epoch_updates: Gradient steps of each epoch.
        evaluation_steps: Environment steps of an evaluation, at most.
        evaluate_every: Epochs between evaluations; 0 means that there are none.
    """

    initial_steps: int
    epoch_steps: int
    epoch_updates: int
    evaluation_steps: int
    evaluate_every: int


@dataclass
class PhaseState:
    """The current phase: its name, its progress, and when it began.

    ``updated`` is the time of the last report of ``done``; ``first`` is the value of ``done`` when the phase began.
    """

    name: str
    done: int
    total: int
    began: float
    updated: float
    first: int

    def left(self, now: float, expected: float | None) -> float | None:
        """Seconds until it is done: by its own speed, or by ``expected`` as long as that is unknown."""
        new, spent = self.done - self.first, self.updated - self.began
        if self.done >= self.total:
            return 0.0
        if new > 0 and (spent >= _LEAST_SECONDS or expected is None):
            return max(0.0, spent * (self.total - self.done) / new - (now - self.updated))
        return None if expected is None else max(0.0, expected - (now - self.began))


@dataclass
class _Mean:
    """Seconds that the last epochs took for something."""

    values: deque[float] = field(default_factory=lambda: deque(maxlen=_EPOCHS_REMEMBERED))

    @property
    def value(self) -> float | None:
        return sum(self.values) / len(self.values) if self.values else None


class RunTiming:
    """Follows a run's phases and estimates how long they take.

    Args:
        num_epochs: Epochs of the whole run.
        amounts: The amount of work of the run; ``None`` means that it is known after the first epoch.
        clock: Returns seconds since an arbitrary moment.

    Attributes:
        phase: The current phase; ``None`` between phases.
        epoch: Number of finished epochs.
        update_seconds: Seconds of a gradient step as timed beforehand.
    """

    def __init__(
        self, num_epochs: int, amounts: RunAmounts | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.num_epochs, self.amounts, self.epoch = num_epochs, amounts, 0
        self.phase: PhaseState | None = None
        self.update_seconds: float | None = None
        self._clock = clock
        self._epoch_began = clock()
        self._spent: dict[str, float] = {}
        self._means: dict[str, _Mean] = {}
        self._other = _Mean()
        self._num_seen = self._num_evaluations = 0
        self._steps, self._step_time = 0.0, 0.0

    @classmethod
    def of_epochs(cls, epoch_seconds: Iterable[float], num_epochs: int) -> Self:
        """Estimates for a run of another process, which has had epochs of these durations."""
        now = 0.0
        timing = cls(num_epochs, clock=lambda: now)
        for seconds in epoch_seconds:
            now += seconds
            timing.end_epoch()
        return timing

    def start(self, epoch: int) -> None:
        """The run continues now, after ``epoch`` epochs."""
        self.epoch, self._epoch_began, self.phase, self._spent = epoch, self._clock(), None, {}

    def progress(self, name: str, done: int, total: int) -> None:
        """Record progress of the run, see ``Runner.progress``."""
        now, phase = self._clock(), self.phase
        if phase is None or phase.name != name or done < phase.done:
            self._leave_phase(now)
            self.phase = PhaseState(name, done, total, now, now, done)
        else:
            phase.done, phase.total, phase.updated = done, total, now

    def end_epoch(self) -> float:
        """Record the end of an epoch; return its duration in seconds."""
        now = self._clock()
        self._leave_phase(now)
        seconds = max(now - self._epoch_began, 1e-9)
        known = sum(self._spent.values())
        self._spent.pop("warm-up", None)
        self._num_evaluations += "evaluation" in self._spent
        for name, spent in self._spent.items():
            self._means.setdefault(name, _Mean()).values.append(spent)
        if self._num_seen == 1:
            self._other.values.clear()  # the first epoch makes environments
        self._other.values.append(max(0.0, seconds - known))
        self.epoch, self._epoch_began, self._spent = self.epoch + 1, now, {}
        self._num_seen += 1
        return seconds

    # -- what is expected ----------------------------------------------------------------------------------------------

    def phase_left(self) -> float | None:
        """Seconds until the current phase is done."""
        return None if self.phase is None else self.phase.left(self._clock(), self._expected(self.phase.name))

    def epoch_left(self) -> float | None:
        """Seconds until the current epoch is done; ``None`` if not known yet."""
        typical = self.expected_phases()
        if typical is None:
            return None
        now = self._clock()
        if self.phase is None:
            begun = now - self._epoch_began - self._spent.get("warm-up", 0.0)
            return max(0.0, sum(typical.values()) - typical["evaluation"] + self._next_evaluation() - begun)
        left = self.phase.left(now, self._expected(self.phase.name)) or 0.0
        order = list(typical)
        after = order[order.index(self.phase.name) + 1 :] if self.phase.name in order else order
        later = sum(typical[name] for name in after if name not in ("evaluation", *self._spent))
        return left + later + (0.0 if self.phase.name == "evaluation" else self._next_evaluation())

    def run_left(self) -> float | None:
        """Seconds until the run is done; ``None`` if not known yet."""
        this, typical = self.epoch_left(), self.expected_phases()
        if this is None or typical is None or self.epoch >= self.num_epochs:
            return None if self.epoch < self.num_epochs else 0.0
        later = max(0, self.num_epochs - self.epoch - 1)
        if self.amounts is None:
            return this + later * sum(typical.values())
        without = sum(seconds for name, seconds in typical.items() if name != "evaluation")
        return this + later * without + self._evaluations_from(self.epoch + 1) * (self._expected("evaluation") or 0.0)

    def expected_phases(self) -> Mapping[str, float] | None:
        """Seconds of each phase in a typical epoch, including a share of an evaluation; ``None`` if not known yet."""
        known = {name: self._expected(name) for name in ("sampling", "updates")}
        if not self._num_seen:
            if self.amounts is None or None in known.values():
                return None
            evaluation = self._expected("evaluation")
            if evaluation is None and self.amounts.evaluate_every:
                return None
        expected = {name: seconds or 0.0 for name, seconds in known.items()}
        expected |= {
            name: mean.value or 0.0 for name, mean in self._means.items() if name not in (*expected, "evaluation")
        }
        expected["other"] = self._other.value or 0.0
        expected["evaluation"] = self._evaluation_share()
        return expected

    def in_words(self) -> str | None:
        """The time that the rest of the run takes on this machine, by phase; ``None`` if not known yet."""
        typical, total = self.expected_phases(), self.run_left()
        if typical is None or total is None:
            return None
        parts = []
        warm_up = self.phase_left() if self.phase is not None and self.phase.name == "warm-up" else None
        if warm_up is not None and warm_up >= _SHORTEST_SHOWN:
            parts.append(f"warm-up {duration(warm_up)}")
        epochs = self.num_epochs - self.epoch
        each = [
            f"{name} {duration(typical[name])}" for name in ("sampling", "updates") if typical[name] >= _SHORTEST_SHOWN
        ]
        parts.append(counted(epochs, "epoch") + (f" of {' and '.join(each)}" if each else ""))
        per_evaluation, count = self._expected("evaluation"), self._evaluations_from(self.epoch)
        if per_evaluation is not None and count and per_evaluation >= _SHORTEST_SHOWN:
            parts.append(f"{counted(count, 'evaluation')} of {duration(per_evaluation)}")
        return f"{about(total)} on this machine: {', '.join(parts)}"

    # -- helpers -------------------------------------------------------------------------------------------------------

    def _leave_phase(self, now: float) -> None:
        phase, self.phase = self.phase, None
        if phase is None:
            return
        self._spent[phase.name] = self._spent.get(phase.name, 0.0) + now - phase.began
        steps = self._steps_of(phase)
        if steps:
            self._steps, self._step_time = self._steps + steps, self._step_time + now - phase.began

    def _steps_of(self, phase: PhaseState) -> float:
        """Environment steps so far in a phase, which may count in another unit."""
        if self.amounts is None or phase.total <= 0:
            return 0.0
        amount = {"warm-up": self.amounts.initial_steps, "sampling": self.amounts.epoch_steps}.get(phase.name, 0)
        return amount * (phase.done - phase.first) / phase.total

    def _step_seconds(self) -> float | None:
        """Seconds per environment step of training, so far."""
        steps, seconds, phase = self._steps, self._step_time, self.phase
        enough = bool(steps)
        if phase is not None and (new := self._steps_of(phase)):
            steps, seconds = steps + new, seconds + phase.updated - phase.began
            enough = enough or seconds >= _LEAST_SECONDS
        return seconds / steps if enough else None

    def _expected(self, name: str) -> float | None:
        """Seconds of a phase: as in the last epochs, otherwise its amount at the speed so far."""
        mean = self._means[name].value if name in self._means else None
        if mean is None and name in self._spent:
            mean = self._spent[name]
        amounts, steps = self.amounts, self._step_seconds()
        if mean is not None or amounts is None:
            return mean
        if name == "updates":
            if not amounts.epoch_updates:
                return 0.0
            per_update, phase = self.update_seconds, self.phase
            if phase is not None and phase.name == name and phase.updated - phase.began >= _LEAST_SECONDS:
                per_update = (phase.updated - phase.began) / max(1, phase.done - phase.first)
            return None if per_update is None else per_update * amounts.epoch_updates
        amount = {"sampling": amounts.epoch_steps, "evaluation": amounts.evaluation_steps}.get(name)
        return None if steps is None or amount is None else steps * amount

    def _evaluations_from(self, epoch: int) -> int:
        """Number of evaluations after ``epoch`` epochs, if known."""
        every = 0 if self.amounts is None else self.amounts.evaluate_every
        return max(0, self.num_epochs // every - epoch // every) if every else 0

    def _evaluation_share(self) -> float:
        """Average seconds of evaluation per epoch."""
        seconds = self._expected("evaluation") or 0.0
        if self.amounts is not None:
            return seconds / self.amounts.evaluate_every if self.amounts.evaluate_every else 0.0
        return seconds * self._num_evaluations / self._num_seen if self._num_seen else 0.0

    def _next_evaluation(self) -> float:
        """Seconds of the evaluation in the current epoch."""
        if "evaluation" in self._spent:
            return 0.0
        every = None if self.amounts is None else self.amounts.evaluate_every
        if every is None:
            return self._evaluation_share()
        return self._expected("evaluation") or 0.0 if every and (self.epoch + 1) % every == 0 else 0.0
