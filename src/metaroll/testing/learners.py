"""A conformance kit: is a learner's training a function of its seed and its data, which a snapshot can interrupt?"""

from __future__ import annotations

import contextlib
import copy
import math
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from metaroll.checks import check_whole
from metaroll.data.compare import trees_equal
from metaroll.data.data_format import own_copy
from metaroll.envs.lookup.source import EnvSource
from metaroll.errors import ConformanceError, MetarollError, SnapshotError, counted
from metaroll.learners.foreign import as_algorithm
from metaroll.policies.adapters import as_policy
from metaroll.state import Saved
from metaroll.testing.handed_data import HandedData, spoil
from metaroll.testing.policies import results_of
from metaroll.testing.shared import check_factory, difference_of, globals_untouched, leaves_of, overwrite
from metaroll.training.run.runner import LocalRunner
from metaroll.training.store.files import is_tree, load_tree, save_tree
from metaroll.training.store.metrics_log import read_metrics
from metaroll.training.store.snapshots import load_snapshot
from metaroll.types import EnvSpec, Policy

__all__ = ["check_learner"]

_BAD_NUMBERS = (("rewards", math.nan), ("rewards", math.inf), ("observations", math.nan), ("observations", -math.inf))
"""Bad values that are written into training data: field, value."""

_COPY_LOADED = "copy what is kept of a tree: array.copy(), tensor.copy_(tree[name]), list(tree[name])"


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
      with the bits of the run that never stopped: state, buffers, metrics, number of environment steps, parameters of
      the policies and what they do.
    - ``state_dict``: a new learner that took a state over has that state, and its policy acts as that of the learner
      which gave it.
    - ``mutation``: rollouts that it is given are not changed.
    - ``memory``: rollouts, and trees that it has loaded, change nothing if they are overwritten afterwards. Nor does
      training change what ``state_dict`` has returned, or what ``load_state_dict`` was given.
    - ``evaluation``: an evaluation changes neither the state nor what the policy does.
    - ``globals``: no global generator is moved, and no setting of torch or NumPy changed.
    - ``bad_numbers``: NaN or Inf in rewards or observations either raises an error of metaroll
      (``metaroll.errors.InvalidValueError``), a ValueError or ArithmeticError, or is left out. In both cases no NaN is
      left in the state.

    Args:
        make: Makes the learner from a seed, with its own networks and generators; its tasks must be the same for
            all seeds. That it uses the seed cannot be checked, since there are learners that draw nothing: if yours
            does draw, ``resume`` cannot notice initial values or generators that ``state_dict`` lacks, unless
            another seed gives others.
        env: The environment for the learner: see ``LocalRunner.setup``.
        make_evaluator: Makes the evaluator of the runs; ``None`` means what suits the learner.
        num_epochs: Epochs of a whole run; all that a learner does must happen within them.
        stop_after: Epochs after which the other run is stopped, less than ``num_epochs``.
        batch_size: See ``LocalRunner.train``.
        num_workers: Worker processes that take part in one of the runs; 1 leaves them out.
        seed: Seed of learner and runner.

    Raises:
        ConformanceError: A promise is broken.
        TypeError: ``make`` is not a function, or makes no learner.
        ValueError: A number makes no sense, or nothing is learned before the run is stopped.
    """
    check_factory(
        make, "a function that makes a learner from a seed", "check_learner(lambda seed: SAC(..., seed=seed), env)"
    )
    check_whole("num_epochs", num_epochs, 2)
    check_whole("stop_after", stop_after, 1, num_epochs - 1)
    check_whole("num_workers", num_workers)
    spec = EnvSource.of(env).spec
    kit = _Kit(make, env, spec, make_evaluator, num_epochs, stop_after, batch_size, num_workers, seed)
    with tempfile.TemporaryDirectory() as folder:
        kit.check_all(Path(folder))


@dataclass(frozen=True)
class _Outcome:
    """The final state of a run: everything that must be the same in two identical runs."""

    state: Any
    buffers: Any
    metrics: dict[str, Any]
    env_steps: int
    policies: dict[str, Any]

    def difference(self, other: _Outcome) -> str | None:
        for name in ("env_steps", "metrics", "buffers", "state", "policies"):
            difference = difference_of(getattr(self, name), getattr(other, name), name)
            if difference is not None:
                return difference
        return None


class _KeptTrees:
    """Trees that training must not change, with copies of them."""

    def __init__(self) -> None:
        self._kept: list[tuple[str, str, Any, Any]] = []

    def on_epoch_end(self, runner: LocalRunner, epoch: int, metrics: Mapping[str, float]) -> None:
        """Keep ``state_dict`` of the first epoch."""
        if not self._kept:
            state = runner.algo.state_dict()
            hint = "return copies: value.detach().clone(), array.copy()"
            self._kept.append(("training changed what state_dict had returned before", hint, state, own_copy(state)))

    @contextlib.contextmanager
    def keep_loaded(self, learner: Any) -> Iterator[None]:
        """Keep the trees that ``learner``, this object alone, loads in the block."""
        names = ("load_state_dict", "load_buffers_state_dict")

        def watched(name: str) -> Callable[[Any], None]:
            load = getattr(learner, name)

            def call(tree: Any) -> None:
                message = f"loading a tree, or training afterwards, changed what {name} was given"
                self._kept.append((message, _COPY_LOADED, tree, own_copy(tree)))
                load(tree)

            return call

        for name in names:
            setattr(learner, name, watched(name))
        try:
            yield
        finally:
            for name in names:
                delattr(learner, name)

    def overwrite(self) -> None:
        """Write other numbers over all that is kept."""
        self.check()
        for _, _, tree, _ in self._kept:
            overwrite(tree)
        self._kept = [(message, hint, tree, own_copy(tree)) for message, hint, tree, _ in self._kept]

    def check(self) -> None:
        """Raise if a tree has changed."""
        for message, hint, tree, kept in self._kept:
            difference = difference_of(kept, tree)
            if difference is not None:
                raise ConformanceError("memory", f"{message}: {difference}", hint)


@dataclass
class _Kit:
    """The arguments of ``check_learner``, and the checks."""

    make: Callable[[int], Any]
    env: Any
    spec: EnvSpec
    make_evaluator: Callable[[], Any] | None
    num_epochs: int
    stop_after: int
    batch_size: int | None
    num_workers: int
    seed: int

    def check_all(self, folder: Path) -> None:
        self.check_form()
        kept = _KeptTrees()
        whole = self.run(folder / "whole", callbacks=(kept,), evaluates=True)
        kept.check()
        resumed = self.run_in_parts(folder / "parts", num_workers=self.num_workers, overwrites=True)
        if whole.difference(resumed) is not None:
            self.explain(whole, folder)
        for name, value in _BAD_NUMBERS:
            self.check_bad_number(whole, name, value)

    def check_form(self) -> None:
        learner = as_algorithm(self.make(self.seed), trains=True)
        if not (learner.info.has_state and isinstance(learner, Saved)):
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

    def run(
        self,
        folder: Path,
        num_workers: int = 1,
        overwrites: bool = False,
        callbacks: Any = (),
        evaluates: bool = False,
    ) -> _Outcome:
        """A run that is never stopped; with ``evaluates``, check that an evaluation afterwards does not change it."""
        handed = [HandedData()] if overwrites else []
        with self.runner(folder, self.seed, num_workers, (*callbacks, *handed)) as runner:
            for data in handed:
                data.watch(runner)
            runner.train(self.num_epochs, self.batch_size)
            outcome = self._outcome(runner, folder)
            if evaluates:
                self._check_evaluation(runner)
            return outcome

    def run_in_parts(self, folder: Path, num_workers: int = 1, overwrites: bool = False) -> _Outcome:
        """A run that is stopped, and continues in a new learner of another seed."""
        handed, loaded = [HandedData()] if overwrites else [], _KeptTrees()
        with self.runner(folder, self.seed, num_workers, handed) as runner:
            for data in handed:
                data.watch(runner)
            before = _parameters(runner.algo)
            runner.train(self.stop_after, self.batch_size)
            if before is not None and trees_equal(before, _parameters(runner.algo)):
                before_stop = counted(self.stop_after, "epoch")
                raise ValueError(
                    f"the runs must be long enough to learn something: in the {before_stop} before one is "
                    "stopped no parameter of the policy changes, so that nothing could be forgotten"
                )
            acting = _acts_of(runner.algo.policy, self.spec)
        with self.runner(folder, self.seed + 1, 1, handed) as runner:
            try:
                with loaded.keep_loaded(runner.algo):
                    runner.restore(folder)
            except SnapshotError as error:
                message = f"a learner made with another seed refuses the snapshot: {error}"
                raise ConformanceError("resume", message, "a fingerprint is the same for all seeds") from error
            hint = "load_state_dict takes over all that state_dict holds, which decides how the policy acts"
            self._check_taken_over(runner.algo, folder, acting, "state_dict", "after a snapshot was loaded", hint)
            if overwrites:
                loaded.overwrite()
                message = "after the trees that were loaded have been overwritten"
                self._check_taken_over(runner.algo, folder, acting, "memory", message, _COPY_LOADED)
            for data in handed:
                data.watch(runner)
            runner.resume(self.num_epochs)
            loaded.check()
            return self._outcome(runner, folder)

    def _check_evaluation(self, runner: LocalRunner) -> None:
        """Raise unless an evaluation leaves the learner unchanged."""
        learner = runner.algo

        def parts() -> dict[str, Any]:
            state, buffers = own_copy(learner.state_dict()), own_copy(learner.buffers_state_dict())
            return {"state": state, "buffers": buffers, "the policy": _acts_of(learner.policy, self.spec)}

        before = parts()
        runner.evaluate(learner)
        difference = difference_of(before, parts())
        if difference is not None:
            raise ConformanceError(
                "evaluation",
                f"an evaluation changes the learner: {difference}",
                "hand out copies of policies, and draw from generators that training does not use",
            )

    def _check_taken_over(
        self, learner: Any, folder: Path, acting: dict[str, Any], rule: str, message: str, hint: str
    ) -> None:
        """Raise unless ``learner`` equals the snapshot in ``folder``, and acts as its writer did."""
        snapshot = load_snapshot(folder, "last")
        parts = [("state_dict", snapshot.tree("algorithm"), _plain(learner.state_dict()))]
        if snapshot.buffers is not None:
            parts.append(("buffers_state_dict", snapshot.buffers, _plain(learner.buffers_state_dict())))
        parts.append(("the policy", acting, _acts_of(learner.policy, self.spec)))
        for name, saved, here in parts:
            difference = difference_of(saved, here)
            if difference is not None:
                raise ConformanceError(rule, f"{message}, {name} is not what was saved: {difference}", hint)

    def _outcome(self, runner: LocalRunner, folder: Path) -> _Outcome:
        """The final state of ``runner``, in copies."""
        learner = runner.algo
        state, buffers = own_copy(learner.state_dict()), own_copy(learner.buffers_state_dict())
        policies = {"policy": learner.policy, "exploration_policy": learner.exploration_policy}
        if learner.info.adapts:  # after the state was taken: it may draw from generators of the learner
            policies["get_exploration_policy()"] = learner.get_exploration_policy()
        acting = {name: _acts_of(policy, self.spec) for name, policy in policies.items()}
        return _Outcome(state, buffers, _metrics_of(folder), runner.total_env_steps, acting)

    def explain(self, whole: _Outcome, folder: Path) -> None:
        """Raise with the promise that makes two runs differ, which is one of several."""
        checks: list[tuple[str, str, str, Callable[[], _Outcome]]] = [
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
                f"a run that was stopped after {counted(self.stop_after, 'epoch')} and resumed differs from the whole "
                "one",
                "state_dict must hold all that training changes: optimizers, schedules, counters, statistics, "
                "averages, generators; what was collected belongs to buffers_state_dict",
                lambda: self.run_in_parts(folder / "resumed"),
            ),
            (
                "memory",
                "overwriting the trees that were loaded, or rollouts thereafter, changes a run that was resumed",
                _COPY_LOADED,
                lambda: self.run_in_parts(folder / "loaded", overwrites=True),
            ),
        ]
        for rule, message, hint, run in checks:
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


def _metrics_of(folder: Path) -> dict[str, Any]:
    """The logged numbers of a run, without measured times, by names that say which number differs."""
    numbers: dict[str, Any] = {}
    names = []
    for row in read_metrics(folder):
        if row["phase"] != "time":
            task = "" if row["task"] is None else f" in task {row['task']}"
            name = f"{row['metric']} ({row['phase']}{task}, epoch {row['iteration'] + 1})"
            key = name + " again" * names.count(name)  # a learner may log it twice
            names.append(name)
            numbers |= {key: row["value"], f"env_steps of {key}": row["env_steps"]}
    return {**numbers, "order": names}


def _parameters(learner: Any) -> np.ndarray | None:
    """Parameters of the acting policy, where they are known."""
    return learner.policy.acting_parameters() if isinstance(learner.policy, Policy) else None


def _acts_of(policy: Any, spec: EnvSpec) -> dict[str, Any]:
    """Parameters of a policy, and its actions for fixed observations; empty if there is none."""
    if policy is None:
        return {}
    own = copy.deepcopy(as_policy(policy, spec))  # a policy with memory must not be affected
    return {"parameters": own.acting_parameters(), "results": results_of(own, spec)}


def _plain(tree: Any) -> Any:
    """``tree`` as it would come back from files."""
    with tempfile.TemporaryDirectory() as folder:
        save_tree(folder, "tree", tree)
        return load_tree(folder, "tree")


def _has_nan(leaf: Any) -> bool:
    values = leaf.detach().cpu().numpy() if isinstance(leaf, torch.Tensor) else leaf
    is_numbers = isinstance(values, float | np.ndarray | np.generic)
    return is_numbers and np.asarray(values).dtype.kind == "f" and bool(np.isnan(values).any())
