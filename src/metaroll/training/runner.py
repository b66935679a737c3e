"""``LocalRunner``: gives an algorithm epochs, rollouts, evaluations, log and snapshots, and resumes a run exactly."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

import cloudpickle

from metaroll.errors import NotSetupError
from metaroll.seeding import fresh_seed, mix_seed
from metaroll.training.epoch_log import EpochLog
from metaroll.training.evaluation_result import EvaluationResult
from metaroll.training.files import to_plain
from metaroll.training.meta_evaluator import MetaEvaluator
from metaroll.training.plots import plot_learning_curve, require_matplotlib
from metaroll.training.rollout_source import RolloutSource, SamplerChoice
from metaroll.training.run_state import TrainArgs, check_can_save, fingerprint_of, load_algorithm, trees_of
from metaroll.training.run_store import RunStore
from metaroll.training.snapshots import Snapshot, SnapshotConfig, load_snapshot
from metaroll.types import Context, EnvUpdate

__all__ = ["LocalRunner", "TrainArgs"]


class LocalRunner:
    """Drives one algorithm on this machine.

    A run is reproduced bit for bit by its ``seed``, and one that was killed at any moment is continued by ``setup``
    (with the same arguments), ``restore`` and ``resume`` as if it had never stopped (CPU).

    Args:
        snapshot_config: Where and when to write snapshots; ``None`` means mode ``last`` in ``run_dir``.
        max_cpus: The documented name of ``num_workers``; the larger of the two counts.
        run_dir: Folder of the run; ``None`` (and no ``snapshot_config``) writes nothing.
        seed: Seed of all rollouts and evaluations; ``None`` means fresh entropy, recorded in ``seed``.
        num_workers: Workers that collect rollouts; results do not depend on it.
        transport: See ``SamplerPool``.
        evaluator: A ``MetaEvaluator``, or arguments for one.
        exist_ok: Overwrite the run in ``run_dir``.
        callbacks: Objects with any of ``on_epoch_end(runner, epoch, metrics)``, ``on_evaluation(runner, result)`` and
            ``on_train_end(runner)``.
        config: Kept in snapshots and ``config.yaml``.
        engine_args: Further arguments for the ``RolloutEngine`` of training (``slots_per_unit``, ``on_invalid``).
    """

    def __init__(
        self,
        snapshot_config: SnapshotConfig | None = None,
        max_cpus: int = 1,
        *,
        run_dir: str | Path | None = None,
        seed: int | None = None,
        num_workers: int = 1,
        transport: str = "auto",
        evaluator: MetaEvaluator | Mapping[str, Any] | None = None,
        exist_ok: bool = False,
        callbacks: Sequence[Any] = (),
        config: Mapping[str, Any] | None = None,
        engine_args: Mapping[str, Any] | None = None,
    ) -> None:
        self._store = _make_store(snapshot_config, run_dir)
        self._seed = fresh_seed() if seed is None else int(seed)
        self._num_workers = max(num_workers, max_cpus)
        self._transport = transport
        self._evaluator = _make_evaluator(evaluator, self._seed)
        self._has_own_sampler = self._evaluator.test_task_sampler is not None
        self._exist_ok = exist_ok
        self._callbacks = tuple(callbacks)
        self._config = config
        self._engine_args = dict(engine_args or {})
        self._algo: Any = None
        self._env: Any = None
        self._source: RolloutSource | None = None
        self._fingerprint = ""
        self._args: TrainArgs | None = None
        self._restored: tuple[Snapshot, Path] | None = None
        self._step_itr = 0
        self._total_env_steps = 0
        self._seconds = 0.0
        self._log = EpochLog()
        self._last_paths: list[Any] = []
        self._last_evaluation: EvaluationResult | None = None

    # -- what is known -------------------------------------------------------------------------------------------------

    @property
    def seed(self) -> int:
        """Seed of the run."""
        return self._seed

    @property
    def run_dir(self) -> Path | None:
        """Folder of the run."""
        return self._store.run_dir

    @property
    def step_itr(self) -> int:
        """Number of ``obtain_samples`` calls so far."""
        return self._step_itr

    @property
    def total_env_steps(self) -> int:
        """Environment steps of training so far (those of evaluations are not counted)."""
        return self._total_env_steps

    @property
    def last_paths(self) -> list[Any]:
        """What the last ``obtain_samples`` returned, if training was started with ``store_paths``."""
        return self._last_paths

    @property
    def last_evaluation(self) -> EvaluationResult | None:
        """The newest result of ``evaluate``."""
        return self._last_evaluation

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
        """Take an algorithm and the environment that it learns in.

        Args:
            algo: Has ``train(runner)``; sampling needs ``policy`` and ``max_path_length``.
            env: Instance, Gymnasium id, constructor, or ``EnvUpdate`` that makes one.
            sampler_cls: garage sampler class; by default ``algo.sampler_cls``, else the rollout engine.
            sampler_args: Further arguments of that class.
            n_workers: Replaces ``num_workers``.
            worker_class: garage worker class; ``DefaultWorker`` and ``PEARLWorker`` run on the engine.
            worker_args: Further arguments of the workers (with a ``sampler_cls`` or another ``worker_class``).
        """
        if not callable(getattr(algo, "train", None)):
            raise TypeError(f"algo must have a method train(runner), got {type(algo).__name__}")
        self.close()
        sampler_cls = getattr(algo, "sampler_cls", None) if sampler_cls is None else sampler_cls
        self._source = RolloutSource(
            algo,
            env,
            SamplerChoice(sampler_cls, sampler_args, worker_class, worker_args),
            self._num_workers if n_workers is None else n_workers,
            self._transport,
            self._engine_args,
        )
        self._algo, self._env, self._fingerprint = algo, env, fingerprint_of(algo)

    def train(
        self,
        n_epochs: int,
        batch_size: int | None = None,
        plot: bool = False,
        store_paths: bool = False,
        pause_for_plot: bool = False,
    ) -> Any:
        """Train from the beginning; what ``algo.train`` returns.

        Args:
            n_epochs: Number of epochs.
            batch_size: Steps per ``obtain_samples`` call, where the algorithm does not say.
            plot: Draw ``learning_curve.png`` in the run folder at the end.
            store_paths: Keep the last rollouts in ``last_paths``.
            pause_for_plot: Accepted for code written for garage; there is no window to wait for.
        """
        self._require_setup("train")
        args = TrainArgs(n_epochs, batch_size, plot, store_paths, pause_for_plot)
        self._check_can_write(args)
        self._store.begin(self._exist_ok, self._config)
        self._args, self._restored = args, None
        self._fix_test_tasks()
        self.save(0)  # from here on the run can be killed at any moment
        return self._run()

    def resume(
        self,
        n_epochs: int | None = None,
        batch_size: int | None = None,
        plot: bool | None = None,
        store_paths: bool | None = None,
        pause_for_plot: bool | None = None,
    ) -> Any:
        """Go on where the restored snapshot was written; arguments that are not given stay as they were saved."""
        if self._restored is None or self._args is None:
            raise NotSetupError("resume needs restore(from_dir) first (and before it the same setup(algo, env))")
        given = {
            "n_epochs": n_epochs,
            "batch_size": batch_size,
            "plot": plot,
            "store_paths": store_paths,
            "pause_for_plot": pause_for_plot,
        }
        args = replace(self._args, **{name: value for name, value in given.items() if value is not None})
        self._check_can_write(args)
        snapshot, from_dir = self._restored
        self._args, self._restored = args, None
        if self._store.go_on_from(snapshot, from_dir, self._exist_ok, self._config):
            self.save(snapshot.iteration)
        return self._run()

    def restore(self, from_dir: str | Path, from_epoch: int | str = "last") -> TrainArgs:
        """Load a snapshot into the algorithm that was set up; the saved arguments of ``train``. Writes nothing.

        Without a run folder of its own the runner will go on in ``from_dir``, with the snapshot mode of that run.

        Args:
            from_dir: Folder of the run.
            from_epoch: Number of finished epochs, ``"last"`` or ``"first"``.
        """
        self._require_setup("restore")
        from_dir = Path(from_dir)
        snapshot = load_snapshot(from_dir, from_epoch)
        state = snapshot.tree("runner")
        load_algorithm(snapshot, self._algo, self._fingerprint)
        self._seed, self._step_itr = state["seed"], state["step_itr"]
        self._total_env_steps, self._seconds = state["total_env_steps"], state["seconds"]
        self._evaluator.bind(getattr(self._algo, "test_env_sampler", None))
        self._evaluator.load_state_dict(state["evaluator"])
        if self._store.run_dir is None:
            self._store = RunStore(from_dir, state["snapshot_mode"], state["snapshot_gap"])
        self._args = TrainArgs(**{**state["train_args"], "start_epoch": snapshot.iteration})
        self._restored = (snapshot, from_dir)
        return replace(self._args)

    def save(self, epoch: int) -> Path | None:
        """Write a snapshot after ``epoch`` finished epochs, if there is a folder and its mode asks for one."""
        self._require_setup("save")
        snapshotter = self._store.snapshotter
        if snapshotter is None or not snapshotter.wants(epoch):
            self._store.metrics.flush()
            return None
        state = {
            "seed": self._seed,
            "step_itr": self._step_itr,
            "total_env_steps": self._total_env_steps,
            "seconds": self._seconds,
            "train_args": (self._args or TrainArgs(0)).to_dict(),
            "evaluator": self._evaluator.state_dict(),
            "snapshot_mode": snapshotter.snapshot_mode,
            "snapshot_gap": snapshotter.snapshot_gap,
        }
        manifest = {
            "algorithm": type(self._algo).__name__,
            "fingerprint": self._fingerprint,
            "config": None if self._config is None else to_plain(self._config),
        }
        return self._store.save(epoch, {"runner": state, **trees_of(self._algo)}, manifest)

    def close(self) -> None:
        """Free workers and environments. The runner starts new ones if it is used again."""
        if self._source is not None:
            self._source.close()
        self._evaluator.close()

    def __enter__(self) -> LocalRunner:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- what an algorithm may ask -------------------------------------------------------------------------------------

    def step_epochs(self) -> Iterator[int]:
        """Epochs to run; after each body metrics are written, a snapshot is saved and callbacks are told."""
        if self._args is None:
            raise NotSetupError("step_epochs is for algorithms while they train: call runner.train(n_epochs)")
        for epoch in range(self._args.start_epoch, self._args.n_epochs):
            self._log.start(epoch)
            started, steps = time.perf_counter(), self._total_env_steps
            yield epoch
            self._end_epoch(epoch, time.perf_counter() - started, self._total_env_steps - steps)

    def obtain_samples(
        self,
        itr: int,
        batch_size: int | None = None,
        agent_update: Any = None,
        env_update: EnvUpdate | Sequence[EnvUpdate] | None = None,
        *,
        contexts: Sequence[Context | None] | None = None,
        num_rollouts: int | None = None,
        deterministic: bool = False,
    ) -> list[Any]:
        """Whole rollouts with at least ``batch_size`` steps (or exactly ``num_rollouts``).

        Args:
            itr: Iteration, for samplers that log it; seeds come from the runner's own counter.
            batch_size: Least number of steps; ``None`` means that of ``train``.
            agent_update: Flat parameters or a policy to act with; ``None`` means the algorithm's
                ``exploration_policy``, else ``policy``.
            env_update: One update, or M of them: then the result is a list of M lists, and the counts hold for each.
            contexts: What the policy is told in each of the M variations.
            num_rollouts: Exact number of rollouts.
            deterministic: Act without noise.
        """
        source = self._require_setup("obtain_samples")
        several = isinstance(env_update, Sequence)
        if batch_size is None and num_rollouts is None and self._args is not None:
            batch_size = self._args.batch_size
        groups = source.obtain(
            list(env_update) if isinstance(env_update, Sequence) else [env_update],
            seed=self._seed,
            counter=self._step_itr,
            itr=itr,
            batch_size=batch_size,
            num_rollouts=num_rollouts,
            agent_update=agent_update,
            contexts=contexts,
            deterministic=deterministic,
        )
        self._step_itr += 1
        self._total_env_steps += sum(_length(rollout) for group in groups for rollout in group)
        result = groups if several else groups[0]
        if self._args is not None and self._args.store_paths:
            self._last_paths = result
        return result

    def evaluate(self, algo: Any, task_sampler: Any = None) -> float:
        """Meta-test ``algo`` on held-out tasks; mean return after adaptation. The result is in ``last_evaluation``.

        Args:
            algo: The algorithm.
            task_sampler: Sampler of held-out tasks, unless the runner's evaluator was given one.
        """
        source = self._require_setup("evaluate")
        evaluator = self._evaluator
        evaluator.bind(task_sampler, getattr(algo, "max_path_length", None), getattr(algo, "num_test_tasks", None))
        elsewhere = task_sampler is not evaluator.test_task_sampler and not self._has_own_sampler
        if task_sampler is not None and elsewhere:
            evaluator = evaluator.for_sampler(task_sampler)
        result = evaluator.evaluate(algo, engine=source.evaluation_engine)
        self._last_evaluation = result
        self._log.add_evaluation(self._store.metrics, self._total_env_steps, result)
        self._tell("on_evaluation", result)
        return result.return_after

    def log(self, metrics: Mapping[str, float]) -> None:
        """Write numbers to the run's metrics, in the phase ``train`` (or that of names ``<phase>/<metric>``)."""
        self._log.add(self._store.metrics, self._total_env_steps, metrics)

    def get_env_copy(self) -> Any:
        """A copy of the environment, as a worker would get it."""
        self._require_setup("get_env_copy")
        return cloudpickle.loads(cloudpickle.dumps(self._env))

    # -- helpers -------------------------------------------------------------------------------------------------------

    def _require_setup(self, what: str) -> RolloutSource:
        if self._source is None:
            raise NotSetupError(f"{what} needs setup(algo, env) first (to resume: the same as in the run's first part)")
        return self._source

    def _check_can_write(self, args: TrainArgs) -> None:
        if self._store.saves:
            check_can_save(self._algo)
        if args.plot:
            if self._store.run_dir is None:
                raise ValueError("plot=True needs a run folder to draw into: LocalRunner(run_dir=...)")
            require_matplotlib()

    def _fix_test_tasks(self) -> None:
        """Draw the test tasks now, so that overlaps are found before training and every snapshot knows the tasks."""
        algo = self._algo
        if callable(getattr(algo, "get_exploration_policy", None)):
            self._evaluator.bind(
                getattr(algo, "test_env_sampler", None),
                getattr(algo, "max_path_length", None),
                getattr(algo, "num_test_tasks", None),
            )
            if self._evaluator.test_task_sampler is not None:
                self._evaluator.prepare(algo)

    def _run(self) -> Any:
        result = self._algo.train(self)
        self._store.metrics.flush()
        if self._args is not None and self._args.plot and self.run_dir is not None:
            plot_learning_curve(self.run_dir)
        self._tell("on_train_end")
        return result

    def _end_epoch(self, epoch: int, seconds: float, steps: int) -> None:
        self._seconds += seconds
        times = {
            "epoch_seconds": seconds,
            "total_seconds": self._seconds,
            "env_steps_per_second": steps / max(seconds, 1e-9),
        }
        self.log({f"time/{name}": value for name, value in times.items()})
        self.save(epoch + 1)
        self._tell("on_epoch_end", epoch, dict(self._log.numbers))

    def _tell(self, event: str, *args: Any) -> None:
        for callback in self._callbacks:
            method = getattr(callback, event, None)
            if method is not None:
                method(self, *args)


def _make_store(snapshot_config: SnapshotConfig | None, run_dir: str | Path | None) -> RunStore:
    if snapshot_config is None:
        return RunStore(run_dir)
    config = SnapshotConfig(*snapshot_config)
    if run_dir is not None and Path(run_dir).resolve() != Path(config.snapshot_dir).resolve():
        raise ValueError(
            f"run_dir and snapshot_config.snapshot_dir must be the same folder, got {run_dir} and {config.snapshot_dir}"
        )
    return RunStore(config.snapshot_dir, config.snapshot_mode, config.snapshot_gap)


def _make_evaluator(evaluator: MetaEvaluator | Mapping[str, Any] | None, seed: int) -> MetaEvaluator:
    if isinstance(evaluator, MetaEvaluator):
        return evaluator
    return MetaEvaluator(**{"seed": mix_seed("evaluation", seed), **dict(evaluator or {})})


def _length(rollout: Any) -> int:
    return len(rollout["rewards"]) if isinstance(rollout, Mapping) else len(rollout.rewards)
