"""``LocalRunner``: gives an algorithm epochs, rollouts, evaluations, log and snapshots, and resumes a run exactly."""

from __future__ import annotations

import copy
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

from metaroll.checks import check_flag, check_path, check_seed, check_whole, described
from metaroll.config import config_of, understands
from metaroll.configs.evaluation import EvaluationConfig, MetaEvaluationConfig
from metaroll.envs.lookup.source import EnvSource
from metaroll.errors import NotSetupError, named_as, option_name
from metaroll.learners.base import RLAlgorithm
from metaroll.learners.foreign import as_algorithm
from metaroll.option_names import frames_of_ours
from metaroll.rollouts.configs import EngineConfig, PoolTimeouts
from metaroll.seeding import derive_seed, fresh_seed
from metaroll.training.evaluation.evaluator import Evaluator, PolicyEvaluator
from metaroll.training.evaluation.meta_evaluator import MetaEvaluator
from metaroll.training.run.rollout_source import RolloutSource, SamplerChoice
from metaroll.training.run.run_state import (
    TrainArgs,
    arithmetic_of,
    check_arithmetic,
    check_can_save,
    checked_runner_tree,
    fingerprint_of,
    load_algorithm,
    plain_train_tasks,
    space_texts,
    trees_of,
)
from metaroll.training.run.services import RunnerServices, newest_numbers
from metaroll.training.run.views import console_view
from metaroll.training.store.files import to_plain
from metaroll.training.store.loggers import MetricLogger
from metaroll.training.store.run_store import RunStore
from metaroll.training.store.snapshots import Snapshot, SnapshotConfig, load_snapshot

__all__ = ["LocalRunner", "TrainArgs"]

_Evaluation = Evaluator[Any] | EvaluationConfig | MetaEvaluationConfig | Mapping[str, Any] | None

_SNAPSHOT_SECONDS = 10.0
_SNAPSHOT_SHARE = 30.0
"""Minimum time between snapshots within an epoch (of a warm-up): in seconds, and in durations of the last one."""


def _with_engine(keywords: dict[str, Any]) -> dict[str, Any]:
    """Keywords of a ``LocalRunner`` with ``engine`` instead of those that it has replaced since version 0.2."""
    former = {name: keywords[name] for name in ("transport", "address", "engine_args") if name in keywords}
    if not former:
        return keywords
    warnings.warn(
        f"{', '.join(former)} of LocalRunner: write engine=EngineConfig(transport=..., on_error=...) instead; the old "
        "names will be an error in version 0.4",
        DeprecationWarning,
        stacklevel=frames_of_ours(),
    )
    options = {**(former.pop("engine_args", None) or {}), **former}
    remaining = {name: value for name, value in keywords.items() if name not in former and name != "engine_args"}
    return {**remaining, "engine": config_of(EngineConfig, keywords.get("engine"), options)}


class LocalRunner(RunnerServices):
    """Drives one algorithm on this machine.

    A run is reproduced bitwise by its ``seed``, and one that was killed at any moment is continued by ``setup``
    (with the same arguments), ``restore`` and ``resume`` as if it had never stopped (CPU).

    Args:
        snapshot_config: Where and when to write snapshots; ``None`` means mode ``last`` in ``run_dir``.
        max_cpus: The documented name of ``num_workers``.
        run_dir: Folder of the run; ``None`` (and no ``snapshot_config``) writes nothing.
        seed: Seed of all rollouts and evaluations; ``None`` means fresh entropy, recorded in ``seed``.
        num_workers: Workers that collect rollouts; the largest of this, ``max_cpus`` and that of ``engine`` counts.
        evaluator: A ``MetaEvaluator`` or a ``PolicyEvaluator``, the config of one, or keywords of the former; ``None``
            means what suits the algorithm.
        exist_ok: Overwrite the run in ``run_dir``.
        callbacks: Objects with any of ``on_epoch_end(runner, epoch, metrics)``, ``on_evaluation(runner, result)``,
            ``on_train_end(runner)`` and ``on_progress(runner, phase, done, total)``, which reports, ten times a second
            at most, the progress of ``"warm-up"``, ``"sampling"`` (both in environment steps, or in rollouts if the
            algorithm requests a number of these), ``"updates"`` (gradient steps) or ``"evaluation"`` (episodes) in the
            epoch. A ``TrainingDisplay`` is one. Training ends if ``on_epoch_end`` returns ``False`` (not ``None``),
            after the snapshot of that epoch. A ``RunCallback`` (``EvaluateEvery``, ``StopAt``, ``TimeBudget``,
            ``KeepBest``) is called before the snapshot, which saves its state.
        config: Kept in snapshots and ``config.yaml``.
        engine: How rollouts are run (``EngineConfig(transport="ray", on_error="drop")``); ``None`` means the defaults.
            Its handling of invalid rollouts and errors only applies to training.
        timeouts: When a silent worker is given up and replaced; ``None`` means those of ``engine``.
        loggers: Further destinations for the numbers of the run (``TensorBoardLogger``, ``WandbLogger``).
    """

    @understands(former=_with_engine)
    def __init__(
        self,
        snapshot_config: SnapshotConfig | None = None,
        max_cpus: int = 1,
        *,
        run_dir: str | Path | None = None,
        seed: int | None = None,
        num_workers: int = 1,
        evaluator: _Evaluation = None,
        exist_ok: bool = False,
        callbacks: Sequence[Any] = (),
        config: Mapping[str, Any] | None = None,
        engine: EngineConfig | None = None,
        timeouts: PoolTimeouts | None = None,
        loggers: Sequence[MetricLogger] = (),
    ) -> None:
        with named_as({"config": "engine"}):
            engine = config_of(EngineConfig, engine, {} if timeouts is None else {"timeouts": timeouts})
        counts = [check_whole(option_name("num_workers"), num_workers), check_whole(option_name("max_cpus"), max_cpus)]
        self._engine = replace(engine, num_workers=max(*counts, engine.num_workers))
        seed = fresh_seed() if seed is None else check_seed(option_name("seed"), seed)
        if config is not None and not isinstance(config, Mapping):
            raise TypeError(f"config must be a dict to keep with the run, or None, got {described(config)}")
        store = _make_store(snapshot_config, run_dir, loggers)
        super().__init__(store, seed, _make_evaluator(evaluator, seed), callbacks)
        self._has_own_evaluator = evaluator is not None
        self._exist_ok = check_flag("exist_ok", exist_ok)
        self._config = config
        self._fingerprint = ""
        self._loggers = tuple(loggers)
        self._restored: tuple[Snapshot, Path] | None = None
        self._origin: Snapshot | None = None
        self._seconds = 0.0
        self._epoch_started = self._saved_at = time.perf_counter()
        self._saving_seconds = 0.0
        self._stopped_after: int | None = None
        self._stop_reason: str | None = None

    # -- the life of a run ---------------------------------------------------------------------------------------------

    def setup(
        self,
        algo: Any,
        env: Any,
        sampler_cls: Any = None,
        sampler_args: Mapping[str, Any] | None = None,
        n_workers: int | None = None,
        worker_class: Any = None,
        worker_args: Mapping[str, Any] | None = None,
    ) -> None:
        """Set the algorithm and the environment that it learns in.

        Args:
            algo: Has ``train(runner)``; sampling needs ``policy`` and ``max_path_length``.
            env: Instance, Gymnasium id, constructor, or ``EnvUpdate`` that makes one.
            sampler_cls: garage sampler class; by default ``algo.sampler_cls``, else the rollout engine.
                ``LocalSampler`` means the engine in this process.
            sampler_args: Further arguments of that class; ``max_path_length`` replaces that of the algorithm.
            n_workers: Replaces ``num_workers``.
            worker_class: garage worker class; ``DefaultWorker`` and ``PEARLWorker`` run on the engine. With others, and
                with samplers of others, a resumed run is not bitwise identical.
            worker_args: Further arguments of the workers.
        """
        algo = as_algorithm(algo, trains=True)
        self.close()
        sampler_cls = algo.sampler_cls if sampler_cls is None else sampler_cls
        env = EnvSource.of(env) if isinstance(env, str) else env
        self._source = RolloutSource(
            algo,
            env,
            SamplerChoice(sampler_cls, sampler_args, worker_class, worker_args),
            self._engine if n_workers is None else replace(self._engine, num_workers=n_workers),
        )
        self._env, self._fingerprint = env, fingerprint_of(algo)
        self._evaluator = self._evaluator_for(algo)

    def train(
        self,
        n_epochs: int,
        batch_size: int | None = None,
        plot: bool = False,
        store_paths: bool = False,
        pause_for_plot: bool = False,
    ) -> Any:
        """Train from the beginning; returns the result of ``algo.train``.

        Args:
            n_epochs: Number of epochs.
            batch_size: Steps per ``obtain_samples`` call, where the algorithm does not say.
            plot: Draw ``learning_curve.png`` in the run folder at the end.
            store_paths: Keep the last rollouts in ``last_paths``.
            pause_for_plot: Accepted for code written for garage; there is no window to wait for.
        """
        algo = self._require_setup("train").algo
        args = TrainArgs(n_epochs, batch_size, plot, store_paths, pause_for_plot)
        self._check_can_write(algo, args)
        self._fix_test_tasks(algo)  # may refuse them: before an old run is overwritten
        with named_as({"run_dir": "run_dir"}):
            self._store.begin(self._exist_ok, self._config)
        self._args, self._restored, self._origin = args, None, None
        self._callbacks.begin()
        self.save(0)  # from here on the run can be killed at any time
        self._store.metrics.loggers.open(self.run_dir, 0)
        return self._run(algo)

    def resume(
        self,
        n_epochs: int | None = None,
        batch_size: int | None = None,
        plot: bool | None = None,
        store_paths: bool | None = None,
        pause_for_plot: bool | None = None,
    ) -> Any:
        """Continue from the restored snapshot; arguments that are not given stay as they were saved.

        Training ends at once if a callback still has a reason to stop (see ``stop_reason``).

        Args:
            n_epochs: Number of epochs, including finished ones; with fewer than these nothing is trained.
            batch_size, plot, store_paths, pause_for_plot: As for ``train``, from now on.

        Raises:
            NotSetupError: Nothing was restored.
            ValueError: An argument is invalid.
        """
        if self._restored is None or self._args is None:
            raise NotSetupError("resume needs restore(from_dir) first (and before it the same setup(algo, env))")
        algo = self._require_setup("resume").algo
        replaced = {
            "n_epochs": n_epochs,
            "batch_size": batch_size,
            "plot": plot,
            "store_paths": store_paths,
            "pause_for_plot": pause_for_plot,
        }
        args = replace(self._args, **{name: value for name, value in replaced.items() if value is not None})
        self._check_can_write(algo, args)
        self.check_resumes(args.n_epochs)
        snapshot, from_dir = self._restored
        self._args, self._restored = args, None
        moved = self._store.continue_from(snapshot, from_dir, self._exist_ok, self._config)
        self._callbacks.keep_among({snapshot.iteration, *self._store.snapshots})
        if moved:
            self.save(snapshot.iteration)
        self._store.metrics.loggers.open(self.run_dir, self._total_env_steps)
        return self._run(algo)

    def check_resumes(self, n_epochs: int) -> None:
        """Raise an error if the restored run cannot be trained up to ``n_epochs``; changes nothing.

        Raises:
            SnapshotError: It was trained with another arithmetic.
            UnknownNameError: Its epochs do not have the number that a callback needs.
        """
        if self._origin is not None and n_epochs > self._origin.iteration:
            check_arithmetic(self._origin, self._require_setup("resume").algo)
        if self._restored is not None and n_epochs > self._restored[0].iteration:
            snapshot, from_dir = self._restored
            epoch = snapshot.iteration - 1
            self._callbacks.check_metrics(self, epoch, lambda: newest_numbers(from_dir, epoch))

    def restore(self, from_dir: str | Path, from_epoch: int | str = "last") -> TrainArgs:
        """Load a snapshot into the algorithm that was set up; the saved arguments of ``train``. Writes nothing.

        Without its own run folder the runner will continue in ``from_dir``, with the snapshot mode of that run.
        Only the newest snapshot holds replay buffers: from an older one training continues with fresh initial data.

        Args:
            from_dir: Folder of the run.
            from_epoch: Number of finished epochs, ``"last"``, ``"first"`` or ``"best"`` (see ``KeepBest``).
        """
        source = self._require_setup("restore")
        algo = source.algo
        from_dir = Path(from_dir)
        snapshot = load_snapshot(from_dir, from_epoch)
        state = checked_runner_tree(snapshot)
        load_algorithm(snapshot, algo, self._fingerprint, state.get("train_tasks"))
        self._seed, self._step_itr = state["seed"], state["step_itr"]
        self._total_env_steps, self._seconds = state["total_env_steps"], state["seconds"]
        self._bind_evaluator(algo)
        self._evaluator.load_state_dict(state["evaluator"])
        source.load_live_state(state.get("live"))
        self._callbacks.load_state_dict(state.get("callbacks", {}))
        if self._store.run_dir is None:
            keep_last = state.get("keep_last", 1)
            self._store = RunStore(
                from_dir, state["snapshot_mode"], state["snapshot_gap"], self._loggers, keep_last=keep_last
            )
        self._args = TrainArgs(**{**state["train_args"], "start_epoch": snapshot.iteration})
        self._restored, self._origin = (snapshot, from_dir), snapshot
        return replace(self._args)

    def save(self, epoch: int) -> Path | None:
        """Write a snapshot after ``epoch`` finished epochs, if there is a folder and its mode asks for one."""
        source = self._require_setup("save")
        algo = source.algo
        snapshotter = self._store.snapshotter
        best = self._callbacks.best
        if snapshotter is not None:
            snapshotter.pinned = None if best is None else best["iteration"]
        if snapshotter is None or not snapshotter.wants(epoch):
            self._store.metrics.flush()
            return None
        self._saved_at = time.perf_counter()
        state = {
            "seed": self._seed,
            "step_itr": self._step_itr,
            "total_env_steps": self._total_env_steps,
            "seconds": self._seconds,
            "train_args": (self._args or TrainArgs(0)).to_dict(),
            "train_tasks": plain_train_tasks(algo),
            "evaluator": self._evaluator.state_dict(),
            "live": source.live_state(),
            "callbacks": self._callbacks.state_dict(),
            "snapshot_mode": snapshotter.snapshot_mode,
            "snapshot_gap": snapshotter.snapshot_gap,
            "keep_last": snapshotter.keep_last,
        }
        manifest = {
            "algorithm": algo.info.name,
            "fingerprint": self._fingerprint,
            "arithmetic": algo.arithmetic if self._origin is None else arithmetic_of(self._origin),
            "spaces": space_texts(algo),
            "config": None if self._config is None else to_plain(self._config),
            "best": best,
        }
        return self._store.save(epoch, {"runner": state, **trees_of(algo)}, manifest)

    def close(self) -> None:
        """Free workers and environments, and close loggers. The runner starts new ones if it is used again."""
        if self._source is not None:
            self._source.close()
        self._evaluator.close()
        self._store.metrics.loggers.close()

    def __enter__(self) -> LocalRunner:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def step_epochs(self) -> Iterator[int]:
        """Epochs to run; after each body metrics are written, a snapshot is saved and callbacks are called."""
        if self._args is None:
            raise NotSetupError("step_epochs is for algorithms while they train: call runner.train(n_epochs)")
        epoch = self._args.start_epoch
        if epoch and self._stops(epoch, self._callbacks.stop_reason(self)):
            return
        while epoch < self._args.n_epochs:  # which callbacks may change
            self.check_resumes(self._args.n_epochs)
            self._log.start(epoch)
            self._progress.forget()
            self._epoch_started, steps = time.perf_counter(), self._total_env_steps
            yield epoch
            self._end_epoch(epoch, self._total_env_steps - steps)
            if self._stopped_after is not None:
                return
            epoch += 1

    @property
    def stopped_after(self) -> int | None:
        """Number of finished epochs at which a callback has ended training; ``None`` if none has."""
        return self._stopped_after

    @property
    def stop_reason(self) -> str | None:
        """Why it ended, in words."""
        return self._stop_reason

    @property
    def total_seconds(self) -> float:
        """Seconds of training in all finished epochs, including those before a resume."""
        return self._seconds

    @property
    def best(self) -> dict[str, Any] | None:
        """``iteration``, ``metric`` and ``value`` of the best snapshot, if a ``KeepBest`` keeps one."""
        return self._callbacks.best

    @property
    def algo(self) -> Any:
        """The algorithm that was set up."""
        return self._require_setup("algo").algo

    @property
    def n_epochs(self) -> int:
        """Number of epochs that ``train`` or ``resume`` was asked for; 0 before."""
        return 0 if self._args is None else self._args.n_epochs

    def ask_for(self, n_epochs: int) -> None:
        """Change the requested number of epochs; for callbacks, while the run trains."""
        if self._args is None:
            raise NotSetupError("ask_for is for callbacks of a run that trains: call runner.train(n_epochs)")
        self._args = replace(self._args, n_epochs=check_whole("n_epochs", n_epochs, 0))

    # -- helpers -------------------------------------------------------------------------------------------------------

    def _check_can_write(self, algo: RLAlgorithm, args: TrainArgs) -> None:
        if self._store.saves:
            check_can_save(algo)
        elif self._callbacks.keeps_best:
            raise ValueError("KeepBest needs snapshots: give a run_dir, and a snapshot_mode other than 'none'")
        if args.plot and self._store.run_dir is None:
            raise ValueError("plot=True needs a run folder to draw into: LocalRunner(run_dir=...)")

    def _fix_test_tasks(self, algo: RLAlgorithm) -> None:
        """Draw the test tasks now, so that overlaps are found before training and every snapshot knows the tasks."""
        if algo.info.adapts or isinstance(self._evaluator, PolicyEvaluator):
            self._bind_evaluator(algo)
            if self._evaluator.test_task_sampler is not None:
                self._evaluator.prepare(algo)

    def _evaluator_for(self, algo: RLAlgorithm) -> Evaluator[Any]:
        """A copy of the given evaluator (that of an earlier algorithm is bound to its tasks), or one that suits."""
        if self._has_own_evaluator or algo.info.adapts:
            return copy.copy(self._given_evaluator)
        config = EvaluationConfig() if algo.n_eval_trajs is None else EvaluationConfig(num_episodes=algo.n_eval_trajs)
        return PolicyEvaluator(config, seed=self._given_evaluator.seed)

    def _run(self, algo: RLAlgorithm) -> Any:
        self._stopped_after = self._stop_reason = None
        if self._source is not None and self._args is not None and self._args.start_epoch < self._args.n_epochs:
            self._source.start_workers()
        result = algo.train(self)
        self._store.metrics.flush()
        if self._args is not None and self._args.plot and self.run_dir is not None:
            console_view(quiet=True).learning_curve(self.run_dir)
        self._notify("on_train_end")
        return result

    def _save_within_epoch(self) -> None:
        now = time.perf_counter()
        if now - self._saved_at < max(_SNAPSHOT_SECONDS, _SNAPSHOT_SHARE * self._saving_seconds):
            return
        before, self._seconds = self._seconds, self._seconds + now - self._epoch_started
        self.save(self._log.epoch)
        self._seconds = before
        self._saved_at = time.perf_counter()
        self._saving_seconds = self._saved_at - now

    def _end_epoch(self, epoch: int, steps: int) -> None:
        self._callbacks.before_save(self, epoch, self._log.numbers)  # which may evaluate
        seconds = time.perf_counter() - self._epoch_started
        self._seconds += seconds
        times = {
            "epoch_seconds": seconds,
            "total_seconds": self._seconds,
            "env_steps_per_second": steps / max(seconds, 1e-9),
        }
        self.log({f"time/{name}": value for name, value in times.items()})
        self.save(epoch + 1)
        ended = self._notify("on_epoch_end", epoch, dict(self._log.numbers))
        by_callback = "on_epoch_end of a callback returned False" if ended else None
        self._stops(epoch + 1, self._callbacks.stop_reason(self) or by_callback)

    def _stops(self, epochs: int, reason: str | None) -> bool:
        """Record the reason to end after ``epochs`` finished epochs, if there is one."""
        if reason is not None:
            self._stopped_after, self._stop_reason = epochs, reason
        return reason is not None


def _make_store(
    snapshot_config: SnapshotConfig | None, run_dir: str | Path | None, loggers: Sequence[MetricLogger]
) -> RunStore:
    run_dir = None if run_dir is None else check_path("run_dir", run_dir)
    if snapshot_config is None:
        return RunStore(run_dir, loggers=loggers)
    if not isinstance(snapshot_config, tuple):
        raise TypeError(
            f"snapshot_config must be a SnapshotConfig(snapshot_dir, ...) or None, got {described(snapshot_config)}"
        )
    config = SnapshotConfig(*snapshot_config)
    folder = None if config.snapshot_dir is None else check_path("snapshot_dir", config.snapshot_dir)
    if run_dir is not None and (folder is None or run_dir.resolve() != folder.resolve()):
        raise ValueError(
            f"run_dir and snapshot_config.snapshot_dir must be the same folder, got {run_dir} and {folder}"
        )
    return RunStore(folder, config.snapshot_mode, config.snapshot_gap, loggers, keep_last=config.keep_last)


def _make_evaluator(evaluation: _Evaluation, seed: int) -> Evaluator[Any]:
    if isinstance(evaluation, Evaluator):
        return evaluation
    seed = derive_seed("evaluation", seed)
    if isinstance(evaluation, EvaluationConfig):
        return PolicyEvaluator(evaluation, seed=seed)
    if isinstance(evaluation, MetaEvaluationConfig):
        return MetaEvaluator(evaluation, seed=seed)
    if not isinstance(evaluation, Mapping | None):
        raise TypeError(
            "evaluator must be an evaluator, the config of one, keywords of a MetaEvaluator or None, got "
            f"{described(evaluation)}"
        )
    return MetaEvaluator(**{"seed": seed, **(evaluation or {})})
