"""A conformance kit: are the rollouts of a sampler a function of its seed and the number of the call?"""

from __future__ import annotations

import contextlib
import copy
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from metaroll.checks import check_whole
from metaroll.data.compare import first_difference
from metaroll.data.step_sequence import StepSequence
from metaroll.errors import ConformanceError
from metaroll.processes.children import child_pids
from metaroll.testing.shared import check_factory, difference_of, globals_untouched, overwrite

__all__ = ["check_sampler"]

_END_SECONDS = 5.0
"""Seconds that worker processes may take to end."""


def check_sampler(
    make: Callable[[int], Any],
    sample: Callable[[Any], Any] = lambda sampler: sampler.sample(),
    *,
    num_workers: Sequence[int] = (1, 2),
    num_calls: int = 2,
    repeats: bool = False,
    close: Callable[[Any], Any] | None = lambda sampler: sampler.close(),
    expected: Callable[[int, int], StepSequence] | None = None,
) -> None:
    """Raise a ConformanceError unless a sampler gives the same rollouts wherever they are run.

    - ``form``: each call gives something.
    - ``determinism``: samplers made alike give the same bits, call by call.
    - ``workers``: so do samplers with other numbers of workers.
    - ``calls``: a call gives something else than the one before, or the same with ``repeats``.
    - ``seeds``: rollout ``i`` of call ``k`` is ``expected(k, i)``, as the sampler documents it.
    - ``memory``: what was returned does not change with later calls, nor when the sampler is closed, and overwriting
      it changes no later call.
    - ``globals``: no global generator is moved, and no setting of torch or NumPy changed.
    - ``close``: ``close`` ends all processes that were started, and may be called twice.

    Args:
        make: Makes the sampler for a number of workers, with a fixed seed.
        sample: Calls it; what comes back may be rollouts, arrays, tensors, and any nesting of these.
        num_workers: Numbers of workers to compare.
        num_calls: Calls of each sampler, in turn.
        repeats: Whether every call gives the same, as that of a function with a seed does.
        close: Closes it; ``None`` if there is nothing to close.
        expected: See ``seeds``; ``None`` leaves that out. The plans in ``rollout_info`` are not compared.

    Raises:
        ConformanceError: A promise is broken.
        TypeError: ``make`` or ``sample`` is not a function, or ``make`` returns ``None``.
        ValueError: ``num_workers`` is empty or holds a number below 1, or ``num_calls`` is below 2.
    """
    example = "check_sampler(lambda n: ParallelRolloutSampler(env, policy, n, min_rollouts=4, seed=0))"
    check_factory(make, "a function that makes a sampler from a number of workers", example)
    if not callable(sample):
        raise TypeError(f"sample must be a function of the sampler, got {sample!r}")
    if not num_workers:
        raise ValueError("num_workers must hold at least one number, got none")
    for number in num_workers:
        check_whole("num_workers", number)
    check_whole("num_calls", num_calls, 2)
    kit = _Kit(make, sample, tuple(num_workers), num_calls, repeats, close, expected)
    with globals_untouched("the sampler"):
        kit.check_all()


@dataclass
class _Kit:
    """The arguments of ``check_sampler``, and the checks."""

    make: Callable[[int], Any]
    sample: Callable[[Any], Any]
    num_workers: tuple[int, ...]
    num_calls: int
    repeats: bool
    close: Callable[[Any], Any] | None
    expected: Callable[[int, int], StepSequence] | None

    def check_all(self) -> None:
        first, *further = self.num_workers
        calls = self.run(first)
        self.check_form(calls)
        message = "samplers made alike give different rollouts"
        self.compare(calls, self.run(first), "determinism", message, "draw from the seed and the number of the call")
        self.check_calls(calls)
        self.check_seeds(calls)
        message = "overwriting what a call returned changes a later one"
        self.compare(calls, self.run(first, overwrites=True), "memory", message, "return copies")
        for number in further:
            message = f"with {number} workers there are other rollouts than with {first}"
            hint = "seed by the number of the rollout, never by that of the worker, and sort by it"
            self.compare(calls, self.run(number), "workers", message, hint)

    def run(self, num_workers: int, overwrites: bool = False) -> list[Any]:
        """Copies of the results of each call."""
        before = child_pids()
        sampler, copies, results = self.make(num_workers), [], []
        if sampler is None:
            raise TypeError(f"make({num_workers}) must return a sampler, got None")
        try:
            for _ in range(self.num_calls):
                result = self.sample(sampler)
                copies.append(copy.deepcopy(result))
                if overwrites:
                    overwrite(result)
                else:
                    results.append(result)
        except BaseException:
            if self.close is not None:
                with contextlib.suppress(Exception):  # the error of the call is the one to report
                    self.close(sampler)
            raise
        if self.close is not None:
            self._close(self.close, sampler)
        for number, result in enumerate(results):
            difference = difference_of(copies[number], result)
            if difference is not None:
                message = f"what call {number} returned has changed since: {difference}"
                raise ConformanceError("memory", message, "return fresh memory from each call")
        if self.close is not None:
            self._check_ended(before, num_workers)
        return copies

    def _close(self, close: Callable[[Any], Any], sampler: Any) -> None:
        try:
            for _ in range(2):
                close(sampler)
        except Exception as error:
            message = f"close raises {type(error).__name__}: {error}"
            raise ConformanceError("close", message, "closing twice does no harm") from error

    def _check_ended(self, before: set[int], num_workers: int) -> None:
        deadline = time.monotonic() + _END_SECONDS
        while left := child_pids() - before:
            if time.monotonic() > deadline:
                message = f"after close {len(left)} processes of a sampler with {num_workers} workers are left"
                raise ConformanceError("close", f"{message}: {sorted(left)}", "end and wait for them in close")
            time.sleep(0.02)

    def compare(self, expected: list[Any], calls: list[Any], rule: str, message: str, hint: str) -> None:
        for number, (a, b) in enumerate(zip(expected, calls, strict=True)):
            difference = difference_of(a, b)
            if difference is not None:
                raise ConformanceError(rule, f"{message}: in call {number}: {difference}", hint)

    def check_form(self, calls: list[Any]) -> None:
        for number, result in enumerate(calls):
            if result is None or (isinstance(result, Sequence | Mapping) and not result):
                raise ConformanceError("form", f"call {number} returned {result!r}", "each call returns something")

    def check_calls(self, calls: list[Any]) -> None:
        alike = difference_of(_without_plans(calls[0]), _without_plans(calls[1])) is None
        if alike and not self.repeats:
            message = "the second call gives the rollouts of the first again"
            raise ConformanceError("calls", message, "count calls, and let the seed of rollouts depend on the number")
        if self.repeats and not alike:
            difference = difference_of(_without_plans(calls[0]), _without_plans(calls[1]))
            raise ConformanceError("calls", f"the second call differs from the first: {difference}")

    def check_seeds(self, calls: list[Any]) -> None:
        if self.expected is None:
            return
        for number, result in enumerate(calls):
            for place, item in enumerate(_rollouts_in(result)):
                difference = first_difference(self.expected(number, place), item, compare_info=False)
                if difference is not None:
                    message = f"rollout {place} of call {number} is not the one that is documented: {difference}"
                    raise ConformanceError("seeds", message)


def _rollouts_in(result: Any) -> list[StepSequence]:
    if isinstance(result, StepSequence):
        return [result]
    if isinstance(result, Mapping):
        result = list(result.values())
    if isinstance(result, Sequence) and not isinstance(result, str | bytes):
        return [item for entry in result for item in _rollouts_in(entry)]
    return []


def _without_plans(result: Any) -> Any:
    """Data of rollouts alone: their plans know which call they are of."""
    if isinstance(result, StepSequence):
        return {name: result.get_data_values(name) for name in result.data_names}
    if isinstance(result, Mapping):
        return {key: _without_plans(value) for key, value in result.items()}
    if isinstance(result, Sequence) and not isinstance(result, str | bytes):
        return [_without_plans(entry) for entry in result]
    return result
