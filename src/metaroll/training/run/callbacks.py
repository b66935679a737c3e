"""Services of a run: evaluate every n epochs, stop at a target or when the time is up, keep the best snapshot."""

from __future__ import annotations

import math
import re
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol, final

from metaroll.checks import check_number, check_whole, described
from metaroll.errors import RunWarning, UnknownNameError, near_names, option_name
from metaroll.learners.foreign import as_algorithm
from metaroll.state import Part, Stateful, parts, told

__all__ = [
    "EVALUATED",
    "CallbackGroup",
    "EvaluateEvery",
    "KeepBest",
    "RunCallback",
    "RunInProgress",
    "StopAt",
    "TimeBudget",
    "parse_duration",
]

EVALUATED = {"return": ("return_after", "return_mean"), "success": ("SuccessRate",)}
"""Short names of evaluation metrics, for any phase -> their names in the log."""

_EVENTS = ("on_epoch_end", "on_evaluation", "on_train_end", "on_progress")
"""Methods of callbacks."""
_UNITS = {"d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0}
_PARTS = re.compile(r"(\d+(?:\.\d+)?)\s*([dhms])")


class RunInProgress(Protocol):
    """The runner, as callbacks of this module need it; ``LocalRunner`` is one."""

    @property
    def algo(self) -> Any: ...

    @property
    def total_seconds(self) -> float: ...

    def evaluate(self, algo: Any, task_sampler: Any = None) -> float: ...


class RunCallback(Stateful, ABC):
    """A callback that is part of its run: its state is saved in every snapshot and restored with it.

    It is called before the snapshot of an epoch is written, so that a run that is killed and resumed decides as if it
    had never stopped: see ``Stateful``; at the beginning of a run, ``load_state_dict`` gets an empty tree. A subclass
    may also have the methods of other callbacks, such as ``on_evaluation``.
    """

    best: Mapping[str, Any] | None = None
    """``iteration`` (number of finished epochs), ``metric`` and ``value`` of a snapshot that is to be kept, if any."""

    keeps_best = False
    """Whether ``best`` is ever set, which needs snapshots."""

    @abstractmethod
    def before_save(self, runner: RunInProgress, epoch: int, metrics: Mapping[str, float]) -> None:
        """An epoch has ended, and its snapshot comes next.

        Args:
            runner: May evaluate and log now.
            epoch: The epoch, counted from 0.
            metrics: Its numbers by name, ``<phase>/<metric>`` but for those of training.
        """

    def stop_reason(self, runner: RunInProgress) -> str | None:
        """Why training ends here, in words, or ``None``; asked before every snapshot, and where a run is resumed."""
        return None

    def check_metric(self, runner: RunInProgress, epoch: int, read: Callable[[], Mapping[str, float]]) -> None:
        """A run is about to be resumed after ``epoch``: raise an error if a name that is needed is unknown.

        ``read`` returns the newest of each number in the run, by name as in ``before_save``.
        """

    def reset(self) -> None:
        """Forget everything: a run begins."""
        self.best = None
        self.load_state_dict({})

    def forget_best(self) -> None:
        """The snapshot named by ``best`` is gone: keep the best of the following ones."""
        self.best = None


@final
class EvaluateEvery(RunCallback):
    """Evaluates after every ``every``-th epoch, for algorithms that do not do so themselves.

    An epoch that the algorithm has evaluated is not evaluated again.

    Args:
        every: Number of epochs.
        task_sampler: Sampler of held-out tasks; ``None`` means that of the algorithm, see ``LocalRunner.evaluate``.
    """

    def __init__(self, every: int = 1, task_sampler: Any = None) -> None:
        self._every, self._task_sampler = check_whole("every", every), task_sampler

    def before_save(self, runner: RunInProgress, epoch: int, metrics: Mapping[str, float]) -> None:
        """Evaluate, where it is time to."""
        if (epoch + 1) % self._every == 0 and _evaluated(metrics, "return") is None:
            runner.evaluate(runner.algo, self._task_sampler)


@final
class StopAt(RunCallback):
    """Ends the training where a number reaches a target; the epoch is saved, and the run can continue.

    Args:
        target: The value to reach.
        metric: ``"return"`` or ``"success"`` (mean return, share of successful episodes) of evaluations, after
            adaptation if the algorithm adapts; or any name in ``metrics.jsonl``, as ``"train/return"``.
        window: How many of the newest values are averaged.
        minimize: The number is to fall to the target.

    Raises:
        TypeError: ``target`` is not a number, ``metric`` is not a string, or ``window`` is not a whole number.
        ValueError: ``target`` is not finite, ``metric`` empty, or ``window`` below 1.
    """

    state_parts = "_mean"

    def __init__(self, target: float, metric: str = "return", *, window: int = 1, minimize: bool = False) -> None:
        self._target = check_number("target", target, -math.inf)
        self._mean, self._minimize = _MetricMean(metric, window, "stop_metric", "stop_at"), minimize

    def before_save(self, runner: RunInProgress, epoch: int, metrics: Mapping[str, float]) -> None:
        """Take the number, if the epoch has one."""
        self._mean.add(epoch, metrics, as_algorithm(runner.algo))

    def check_metric(self, runner: RunInProgress, epoch: int, read: Callable[[], Mapping[str, float]]) -> None:
        """See ``RunCallback``."""
        self._mean.check_known(epoch, read, as_algorithm(runner.algo))

    def stop_reason(self, runner: RunInProgress) -> str | None:
        """The reason if the target is reached, with the number; else ``None``."""
        value = self._mean.value
        if value is None or not (value <= self._target if self._minimize else value >= self._target):
            return None
        return f"{self._mean} is {value:.6g}, the target {self._target:.6g}"

    def on_train_end(self, runner: RunInProgress) -> None:
        """Warn if the number was never logged."""
        self._mean.warn_if_missing("StopAt")


@final
class TimeBudget(RunCallback):
    """Ends the training after the epoch that uses up a time budget; the epoch is saved, and the run can continue.

    The time of training counts from the beginning of the run, including that before a resume, but neither the time of
    an epoch that a kill has interrupted, nor the time between two parts of the run.

    Args:
        budget: Seconds, or a text such as ``"90s"``, ``"10m"``, ``"1h30m"`` or ``"2d"``.

    Raises:
        TypeError: ``budget`` is neither a number nor a text.
        ValueError: It is not a time above 0.
    """

    def __init__(self, budget: float | str) -> None:
        self._text, self._seconds = str(budget), parse_duration(option_name("budget"), budget)

    def before_save(self, runner: RunInProgress, epoch: int, metrics: Mapping[str, float]) -> None:
        """Nothing: the runner knows the time."""

    def stop_reason(self, runner: RunInProgress) -> str | None:
        """The reason if the time is up; else ``None``."""
        if runner.total_seconds < self._seconds:
            return None
        return f"the time budget of {self._text} is used up ({runner.total_seconds:.0f} s of training)"


@final
class KeepBest(RunCallback):
    """Keeps the snapshot of the epoch with the best number, beside those that the snapshot mode keeps.

    ``restore(folder, "best")``, ``metaroll.load(folder, from_epoch="best")`` and ``--from-epoch best`` find it. Of
    equal values the first counts.

    Args:
        metric, window, minimize: As of ``StopAt``. An epoch that has no such number is not the best one.

    Raises:
        TypeError: ``metric`` is not a string, or ``window`` is not a whole number.
        ValueError: ``metric`` is empty, or ``window`` below 1.
    """

    keeps_best = True
    state_parts = parts(
        mean="_mean",
        best=Part(
            write=lambda service: None if service.best is None else dict(service.best),
            restore=lambda service, best: setattr(service, "best", best),
        ),
    )

    def __init__(self, metric: str = "return", *, window: int = 1, minimize: bool = False) -> None:
        self._mean, self._minimize = _MetricMean(metric, window, "keep_best", "keep_best"), minimize

    def before_save(self, runner: RunInProgress, epoch: int, metrics: Mapping[str, float]) -> None:
        """Take the number, if the epoch has one: it may be the best so far."""
        value = self._mean.value if self._mean.add(epoch, metrics, as_algorithm(runner.algo)) else None
        if value is None or math.isnan(value):
            return
        known = None if self.best is None else float(self.best["value"])
        if known is None or (value < known if self._minimize else value > known):
            self.best = {"iteration": epoch + 1, "metric": str(self._mean), "value": value}

    def check_metric(self, runner: RunInProgress, epoch: int, read: Callable[[], Mapping[str, float]]) -> None:
        """See ``RunCallback``."""
        self._mean.check_known(epoch, read, as_algorithm(runner.algo))

    def completed_state(self, tree: Mapping[str, Any]) -> Mapping[str, Any]:
        """See ``Stateful``: the best of another metric does not count."""
        best = tree.get("best")
        known = best is not None and best["metric"] == str(self._mean)
        return {"mean": tree.get("mean", {}), "best": best if known else None}

    def on_train_end(self, runner: RunInProgress) -> None:
        """Warn if the number was never logged."""
        self._mean.warn_if_missing("KeepBest")


@final
class CallbackGroup(Stateful):
    """All callbacks of a run, called together.

    Args:
        callbacks: ``RunCallback``s, and objects with any of the methods that ``LocalRunner`` names.

    Raises:
        TypeError: One of them has none of these methods, or ``callbacks`` is not a list.
        ValueError: Two of them keep a best snapshot.
    """

    state_parts = "_services"

    def __init__(self, callbacks: Sequence[Any]) -> None:
        known = f"objects with any of {', '.join(_EVENTS)}"
        if not isinstance(callbacks, Sequence):
            raise TypeError(f"callbacks must be a list of {known}, got {described(callbacks)}")
        for callback in callbacks:
            if not isinstance(callback, RunCallback) and not any(hasattr(callback, event) for event in _EVENTS):
                raise TypeError(f"callbacks must hold {known}, got {described(callback)}")
        self._all = tuple(callbacks)
        self._services: dict[str, RunCallback] = {}
        for callback in self._all:
            if isinstance(callback, RunCallback):
                kind = type(callback).__name__
                count = sum(type(other).__name__ == kind for other in self._services.values())
                self._services[f"{kind}-{count + 1}" if count else kind] = callback
        if sum(service.keeps_best for service in self._services.values()) > 1:
            raise ValueError("callbacks must hold at most one that keeps a best snapshot (KeepBest), got several")

    def notify(self, runner: Any, event: str, *args: Any) -> bool:
        """Notify every callback; return whether one of them has answered ``False``."""
        methods = (getattr(callback, event, None) for callback in self._all)  # of the user, with any of them
        answers = [method(runner, *args) for method in methods if method is not None]
        return any(answer is False for answer in answers)

    @property
    def keeps_best(self) -> bool:
        """Whether a best snapshot is to be kept."""
        return any(service.keeps_best for service in self._services.values())

    @property
    def best(self) -> dict[str, Any] | None:
        """The best snapshot so far, see ``RunCallback.best``."""
        return next((dict(service.best) for service in self._services.values() if service.best is not None), None)

    def keep_among(self, iterations: Collection[int]) -> None:
        """Forget a best snapshot that is not among those that there are."""
        best = self.best
        if best is not None and best["iteration"] not in iterations:
            for service in self._services.values():
                service.forget_best()

    def begin(self) -> None:
        """A run begins."""
        for service in self._services.values():
            service.reset()

    def before_save(self, runner: Any, epoch: int, metrics: Mapping[str, float]) -> None:
        """Notify all services of an epoch; ``metrics`` may grow meanwhile, and the next one sees that."""
        for service in self._services.values():
            service.before_save(runner, epoch, dict(metrics))

    def check_metrics(self, runner: Any, epoch: int, read: Callable[[], Mapping[str, float]]) -> None:
        """A run is about to be resumed after ``epoch``; see ``RunCallback.check_metric``."""
        for service in self._services.values():
            service.check_metric(runner, epoch, read)

    def stop_reason(self, runner: Any) -> str | None:
        """The first reason to end the training."""
        reasons = (service.stop_reason(runner) for service in self._services.values())
        return next((reason for reason in reasons if reason is not None), None)

    def completed_state(self, tree: Mapping[str, Any]) -> Mapping[str, Any]:
        """See ``Stateful``: a service that was not there before begins anew."""
        return {name: tree.get(name, {}) for name in self._services}


def parse_duration(name: str, value: float | str) -> float:
    """Seconds of a number, or of a text as ``"1h30m"``.

    Raises:
        TypeError: It is neither a number nor a text.
        ValueError: It is not a time above 0.
    """
    if not isinstance(value, str):
        return check_number(name, value, 0.0, above_low=True)
    text = value.strip().lower()
    parts = _PARTS.findall(text)
    if re.fullmatch(r"\d+(\.\d+)?", text):
        seconds = float(text)
    else:
        whole = "".join(f"{number}{unit}" for number, unit in parts) == re.sub(r"\s+", "", text)
        seconds = sum(float(number) * _UNITS[unit] for number, unit in parts) if whole else 0.0
    if not 0.0 < seconds < math.inf:
        raise ValueError(f"{name} must be a time above 0, as 90s, 10m, 1h30m or 2d, got {value!r}")
    return seconds


class _MetricMean(Stateful):
    """Mean of the newest values of a logged number; ``None`` before there are as many as it takes.

    Args:
        metric, window: As of ``StopAt``.
        option: The option of a run that names the metric.
        switch: The option with which a run continues without it, by the value none.
    """

    state_parts = parts(metric=told("_name"), newest="_newest")

    def __init__(self, metric: str, window: int, option: str, switch: str) -> None:
        self._option, self._switch, self._argument = option, switch, option_name("metric")
        if not isinstance(metric, str):
            raise TypeError(f"{self._argument} must be the name of a number in the log, got {described(metric)}")
        self._given = metric.strip()
        self._name = self._given.removeprefix("train/")
        if not self._name:
            raise ValueError(f"{self._argument} must be the name of a number in the log, got {metric!r}")
        self._is_alias = self._given in EVALUATED
        self._window = check_whole("window", window)
        self._newest: list[float] = []

    def __str__(self) -> str:
        name = self._name if self._is_alias or "/" in self._name else f"train/{self._name}"
        return name if self._window == 1 else f"{name} (mean of {self._window})"

    def completed_state(self, tree: Mapping[str, Any]) -> Mapping[str, Any]:
        """See ``Stateful``: values of another metric do not count."""
        newest = tree["newest"] if tree.get("metric") == self._name else []
        return {"metric": self._name, "newest": [float(value) for value in newest][-self._window :]}

    @property
    def value(self) -> float | None:
        return sum(self._newest) / self._window if len(self._newest) == self._window else None

    def add(self, epoch: int, metrics: Mapping[str, float], algo: Any) -> bool:
        """Take the number of an epoch, if there is one; where the numbers of ``algo`` are complete, there must be."""
        value = self._value_in(metrics)
        if value is not None:
            self._newest = [*self._newest, float(value)][-self._window :]
        else:
            self.check_known(epoch, lambda: metrics, algo)
        return value is not None

    def check_known(self, epoch: int, read: Callable[[], Mapping[str, float]], algo: Any) -> None:
        """Error if there was no number yet, and the complete numbers of ``epoch`` (``read()``) do not have it."""
        if not self._newest and algo.log_is_complete and self._value_in(metrics := read()) is None:
            self._refuse_unknown(epoch, metrics, evaluates=bool(algo.evaluate_every))

    def _value_in(self, metrics: Mapping[str, float]) -> float | None:
        return _evaluated(metrics, self._name) if self._is_alias else metrics.get(self._name)

    def _refuse_unknown(self, epoch: int, metrics: Mapping[str, float], evaluates: bool) -> None:
        """Error if the epoch has numbers of the same phase, and this is none of them."""
        phase = self._name.rpartition("/")[0]
        same_phase = [name for name in metrics if name.rpartition("/")[0] == phase]
        evaluated = _evaluated(metrics, "return") is not None
        if self._is_alias:
            same_phase = [name for name in metrics if "/" in name] if evaluated else []
        if not same_phase:
            return
        # Evaluations that have not been made yet may have either of them.
        short = [name for name in EVALUATED if (_evaluated(metrics, name) is not None if evaluated else evaluates)]
        known = [*short, *sorted(name if "/" in name else f"train/{name}" for name in same_phase)]
        near = near_names(self._given, known)
        hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else "."
        error = UnknownNameError(
            f"{self._argument} {self._given!r} is not among the numbers of epoch {epoch + 1}{hint} "
            f"Known: {', '.join(known)}"
        )
        error.instead = {self._option: near[0]} if near else {self._switch: "none"}
        raise error

    def warn_if_missing(self, who: str) -> None:
        if not self._newest:
            hint = "evaluate (evaluate_every, or EvaluateEvery before it among the callbacks), or name"
            hint = f"{hint} a number of training, train/return say"
            warnings.warn(f"{who} never saw {self} in this run: {hint}", RunWarning, stacklevel=2)


def _evaluated(metrics: Mapping[str, float], name: str) -> float | None:
    """The number of an evaluation in ``metrics`` that ``name`` means, see ``EVALUATED``."""
    wanted = EVALUATED[name]
    values = (value for key, value in metrics.items() if "/" in key and key.rpartition("/")[2] in wanted)
    return next(values, None)
