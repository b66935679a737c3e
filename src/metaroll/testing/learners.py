"""A conformance kit: is a learner's training a function of its seed and its data, which a snapshot can interrupt?"""

from __future__ import annotations

import contextlib
import math
import tempfile
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from metaroll.checks import check_whole
from metaroll.data.compare import trees_equal
from metaroll.data.data_format import own_copy
from metaroll.errors import ConformanceError, MetarollError, SnapshotError
from metaroll.learners.foreign import as_algorithm
from metaroll.testing.handed_data import HandedData, spoil
from metaroll.testing.shared import check_factory, difference_of, globals_untouched, leaves_of
from metaroll.training.run.runner import LocalRunner
from metaroll.training.store.files import is_tree, load_tree, save_tree
from metaroll.training.store.metrics_log import read_metrics
from metaroll.training.store.snapshots import load_snapshot
from metaroll.types import Policy

__all__ = ["check_learner"]

_BAD_NUMBERS = (("rewards", math.nan), ("rewards", math.inf), ("observations", math.nan), ("observations", -math.inf))
"""What is written into training data: field, value."""


def check_learner(
    make: Callable[[int], Any],
    env: Any,
    *,
    make_evaluator: Callable[[], Any] | None = None,
    num_epochs: int = 3,
    stop_after: int = 1,
    batch_size: int | None = None,
    num_workers: int = 2,
    seed: int = 0,
) -> None:
    """Raise a ConformanceError unless a learner trains as runs, snapshots and workers take for granted.

    A few tiny runs of ``LocalRunner``, in temporary folders: make what ``make`` returns as small as it can be.

    - ``form``: ``state_dict`` is a tree of plain values that a snapshot can hold.
    - ``determinism``: learners made with the same seed train to the same bits.
    - ``workers``: so they do with ``num_workers`` workers instead of one.
    - ``resume``: a run that was stopped and continues in a new learner, of another seed, from a snapshot on disk ends
      with the bits of the run that never stopped: state, buffers, metrics, number of environment steps.
    - ``state_dict``: a new learner that took a state over has that state.
    - ``mutation``: rollouts that it is given are not changed.
    - ``memory``: rollouts that are overwritten afterwards change nothing, nor does training change what
      ``state_dict`` has returned.
    - ``globals``: no global generator is moved, and no setting of torch or NumPy changed.
    - ``bad_numbers``: NaN in rewards or observations either raises an error of metaroll
      (``metaroll.errors.InvalidValueError``), a ValueError or ArithmeticError, or leaves no NaN in the state; after an
      error neither.

    Args:
        make: Makes the learner from a seed, with networks and generators of its own; its tasks must be the same for
            all seeds.
        env: What the learner is set up with: see ``LocalRunner.setup``.
        make_evaluator: Makes the evaluator of the runs; ``None`` means what suits the learner.
        num_epochs: Epochs of a whole run; all that a learner does must happen within them.
        stop_after: Epochs after which the other run is stopped, less than ``num_epochs``.
        batch_size: See ``LocalRunner.train``.
        num_workers: Worker processes that take part in one of the runs; 1 leaves them out.
        seed: Seed of learner and runner.

    Raises:
        ConformanceError: A promise is broken.
        TypeError: ``make`` is no function, or makes no learner.
        ValueError: A number makes no sense, or nothing is learned before the run is stopped.
    """
    check_factory(
        make, "a function that makes a learner from a seed", "check_learner(lambda seed: SAC(..., seed=seed), env)"
    )
    check_whole("num_epochs", num_epochs, 2)
    check_whole("stop_after", stop_after, 1, num_epochs - 1)
    check_whole("num_workers", num_workers)
    kit = _Kit(make, env, make_evaluator, num_epochs, stop_after, batch_size, num_workers, seed)
    with tempfile.TemporaryDirectory() as folder:
        kit.check_all(Path(folder))


@dataclass(frozen=True)
class _Outcome:
    """Where a run has ended: all that must be the same in two runs that are alike."""

    state: Any
    buffers: Any
    metrics: list[Any]
    env_steps: int

    def difference(self, other: _Outcome) -> str | None:
        for name in ("env_steps", "metrics", "buffers", "state"):
            difference = difference_of(getattr(self, name), getattr(other, name))
            if difference is not None:
                return f"{name} {difference}"
        return None


class _KeptState:
    """Keeps ``state_dict`` of the first epoch, to compare it at the end of the run."""

    def __init__(self) -> None:
        self._taken: tuple[Any, Any] | None = None

    def on_epoch_end(self, runner: LocalRunner, epoch: int, metrics: Mapping[str, float]) -> None:
        if self._taken is None:
            state = runner.algo.state_dict()
            self._taken = state, own_copy(state)

    def check(self) -> None:
        if self._taken is None:
            return
        difference = difference_of(self._taken[1], self._taken[0])
        if difference is not None:
            message = f"training changed what state_dict had returned before: {difference}"
            raise ConformanceError("memory", message, "return copies: value.detach().clone(), array.copy()")


@dataclass
class _Kit:
    """The arguments of ``check_learner``, and the checks."""

    make: Callable[[int], Any]
    env: Any
    make_evaluator: Callable[[], Any] | None
    num_epochs: int
    stop_after: int
    batch_size: int | None
    num_workers: int
    seed: int

    def check_all(self, folder: Path) -> None:
        self.check_form()
        kept = _KeptState()
        whole = self.run(folder / "whole", callbacks=(kept,))
        kept.check()
        resumed = self.run_in_parts(folder / "parts", num_workers=self.num_workers, overwrites=True)
        if whole.difference(resumed) is not None:
            self.explain(whole, folder)
        for name, value in _BAD_NUMBERS:
            self.check_bad_number(whole, name, value)

    def check_form(self) -> None:
        learner = as_algorithm(self.make(self.seed), trains=True)
        if not learner.info.has_state:
            raise ConformanceError("form", f"{learner.info.name} has no state_dict and load_state_dict", "add them")
        for name, tree in (("state_dict", learner.state_dict()), ("buffers", learner.buffers_state_dict(copy=False))):
            if tree is not None and not is_tree(tree):
                raise ConformanceError(
                    "form",
                    f"{name} holds something that no snapshot can: {sorted(tree)}",
                    "nested dicts, lists and tuples of tensors, arrays, numbers and texts",
                )

    # -- running -------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def runner(self, folder: Path | None, seed: int, num_workers: int = 1, callbacks: Any = ()) -> Any:
        """A runner of a new learner."""
        evaluator = None if self.make_evaluator is None else self.make_evaluator()
        with (
            globals_untouched("the learner, or its training"),
            LocalRunner(
                run_dir=folder, seed=seed, num_workers=num_workers, evaluator=evaluator, callbacks=callbacks
            ) as runner,
        ):
            runner.setup(self.make(seed), self.env)
            yield runner

    def run(self, folder: Path, num_workers: int = 1, overwrites: bool = False, callbacks: Any = ()) -> _Outcome:
        """A run that is never stopped."""
        handed = [HandedData()] if overwrites else []
        with self.runner(folder, self.seed, num_workers, (*callbacks, *handed)) as runner:
            for data in handed:
                data.watch(runner)
            runner.train(self.num_epochs, self.batch_size)
            return _outcome(runner, folder)

    def run_in_parts(self, folder: Path, num_workers: int = 1, overwrites: bool = False) -> _Outcome:
        """A run that is stopped, and continues in a new learner of another seed."""
        handed = [HandedData()] if overwrites else []
        with self.runner(folder, self.seed, num_workers, handed) as runner:
            for data in handed:
                data.watch(runner)
            before = _acting(runner.algo)
            runner.train(self.stop_after, self.batch_size)
            if before is not None and trees_equal(before, _acting(runner.algo)):
                raise ValueError(
                    f"the runs must be long enough to learn something: in the {self.stop_after} epochs before one is "
                    "stopped no parameter of the policy changes, so that nothing could be forgotten"
                )
        with self.runner(folder, self.seed + 1, 1, handed) as runner:
            try:
                runner.restore(folder)
            except SnapshotError as error:
                message = f"a learner made with another seed refuses the snapshot: {error}"
                raise ConformanceError("resume", message, "a fingerprint is the same for all seeds") from error
            self._check_taken_over(runner.algo, folder)
            for data in handed:
                data.watch(runner)
            runner.resume(self.num_epochs)
            return _outcome(runner, folder)

    def _check_taken_over(self, learner: Any, folder: Path) -> None:
        snapshot = load_snapshot(folder, "last")
        parts = [("state_dict", snapshot.tree("algorithm"), learner.state_dict())]
        if snapshot.buffers is not None:
            parts.append(("buffers_state_dict", snapshot.buffers, learner.buffers_state_dict()))
        for name, saved, here in parts:
            difference = difference_of(saved, _plain(here))
            if difference is not None:
                message = f"after a snapshot was loaded, {name} is not what was saved: {difference}"
                raise ConformanceError("state_dict", message, "load_state_dict takes over all that state_dict holds")

    def explain(self, whole: _Outcome, folder: Path) -> None:
        """Raise with the promise that makes two runs differ, which is one of several."""
        others: list[tuple[str, str, str, Callable[[], _Outcome]]] = [
            (
                "determinism",
                "learners made with the same seed train to different bits",
                "draw from generators derived from the seed (metaroll.seeding.derive_seed)",
                lambda: self.run(folder / "again"),
            ),
            (
                "workers",
                f"with {self.num_workers} workers the run differs from that with one",
                "do not use the number of workers, the order in which they answer, or a generator that is sent to them",
                lambda: self.run(folder / "workers", self.num_workers),
            ),
            (
                "memory",
                "overwriting rollouts, after the learner has asked for the next ones, changes the run",
                "copy what is kept of rollouts: replay memories, statistics, last observations",
                lambda: self.run(folder / "overwritten", overwrites=True),
            ),
            (
                "resume",
                f"a run that was stopped after {self.stop_after} epochs and resumed differs from the whole one",
                "state_dict must hold all that training changes: optimizers, schedules, counters, statistics, "
                "generators; what was collected belongs to buffers_state_dict",
                lambda: self.run_in_parts(folder / "resumed"),
            ),
        ]
        for rule, message, hint, run in others:
            difference = whole.difference(run())
            if difference is not None:
                raise ConformanceError(rule, f"{message}: {difference}", hint)
        raise ConformanceError(
            "resume",
            f"a run with {self.num_workers} workers that was stopped, and whose rollouts were overwritten, differs",
            "each of these by itself changes nothing",
        )

    # -- bad numbers ---------------------------------------------------------------------------------------------------

    def check_bad_number(self, whole: _Outcome, name: str, value: float) -> None:
        with self.runner(None, self.seed) as runner, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of arithmetic with NaN
            spoil(runner, name, value)
            with contextlib.suppress(MetarollError, ValueError, ArithmeticError):
                runner.train(self.num_epochs, self.batch_size)
            state = runner.algo.state_dict()
        usual = {path for path, leaf in leaves_of(whole.state) if _has_nan(leaf)}
        for path, leaf in leaves_of(state):
            if path not in usual and _has_nan(leaf):
                raise ConformanceError(
                    "bad_numbers",
                    f"{value} in {name} of training data leaves NaN in state_dict(){path}",
                    "raise an InvalidValueError before a step is taken, or leave such data out",
                )


def _acting(learner: Any) -> np.ndarray | None:
    """Parameters of what acts, where they are known."""
    return learner.policy.acting_parameters() if isinstance(learner.policy, Policy) else None


def _outcome(runner: LocalRunner, folder: Path) -> _Outcome:
    learner = runner.algo
    rows = [row for row in read_metrics(folder) if row["phase"] != "time"]
    buffers = learner.buffers_state_dict()
    return _Outcome(own_copy(learner.state_dict()), own_copy(buffers), rows, runner.total_env_steps)


def _plain(tree: Any) -> Any:
    """``tree`` as it would come back from files."""
    with tempfile.TemporaryDirectory() as folder:
        save_tree(folder, "tree", tree)
        return load_tree(folder, "tree")


def _has_nan(leaf: Any) -> bool:
    values = leaf.detach().cpu().numpy() if isinstance(leaf, torch.Tensor) else leaf
    is_numbers = isinstance(values, float | np.ndarray | np.generic)
    return is_numbers and np.asarray(values).dtype.kind == "f" and bool(np.isnan(values).any())
