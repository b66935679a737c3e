"""Simulators for simulation-based inference: from parameters to features of rollouts, and from robots to the same."""

from __future__ import annotations

import copy
import functools
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar, final

import numpy as np
import torch
from gymnasium.spaces import Discrete
from torch import Tensor

from metaroll.checks import check_flag, check_path, check_whole, described
from metaroll.config import config_of, options_of, parts_of
from metaroll.data.folders.file_sets import read_set
from metaroll.data.folders.kinds import RECORDINGS
from metaroll.data.recordings import load_rollout, recordings_in
from metaroll.data.step_sequence import StepSequence
from metaroll.envs.lookup.source import EnvSource, is_env_instance
from metaroll.envs.wrappers.domain_rand import outermost_dr_wrapper
from metaroll.errors import RecordingError
from metaroll.policies.playback import PlaybackPolicy
from metaroll.rollouts.configs import EngineConfig, FeaturesConfig, SimulationConfig
from metaroll.rollouts.engine.engine import RolloutEngine
from metaroll.rollouts.engine.extras import module_mode
from metaroll.rollouts.engine.reduction import Reduction
from metaroll.rollouts.failures import DroppedRollout, drop_summary
from metaroll.rollouts.samplers.param_sets import (
    FailedSimulation,
    check_taken_over,
    checked_names,
    checked_spec,
    checked_values,
    seed_of_values,
)
from metaroll.rollouts.samplers.sampler import LAST_SEED, SeedOption, chosen_seed
from metaroll.rollouts.samplers.segment_starts import observed_states
from metaroll.rollouts.samplers.series_features import (
    SeriesEmbedding,
    SeriesFeatures,
    applied_field,
    check_chained,
    check_embedding,
    finite_limit,
    labeled_as,
    segment_lengths,
    series_of,
)
from metaroll.rollouts.samplers.simulated_noise import Sensors, SimulatedNoise, split_names
from metaroll.rollouts.samplers.target_recordings import TargetRecordings, checked_recordings
from metaroll.rollouts.single.rollout import rollout
from metaroll.rollouts.workers.pool import SamplerPool, check_shared
from metaroll.seeding import derive_seed, fresh_seed
from metaroll.tasks.domain_params import DomainParamUpdate
from metaroll.tasks.plan_table import PlanTable
from metaroll.types import EnvSpec, flat_dim

__all__ = [
    "RealRolloutSamplerForSBI",
    "RecRolloutSamplerForSBI",
    "RolloutSamplerForSBI",
    "SimRolloutSamplerForSBI",
]

C = TypeVar("C", bound=FeaturesConfig)


class RolloutSamplerForSBI(ABC):
    """Makes features of rollouts, so that an environment can be used as a simulator of ``sbi``.

    The features of all rollouts of a set of parameters are concatenated; all rollouts must have equal length.

    Args:
        env: Environment: the real one, or a simulation.
        policy: The acting policy.
        embedding: Makes features of time series (``metaroll.inference``).
        num_segments, len_segments, stop_on_done: Values other than the defaults override those of ``config``.
        config: How rollouts become features; ``None`` means the defaults.
        seed: Seed of all randomness; ``None`` means fresh entropy. Default: the seed that was given to
            ``metaroll.set_seed`` last.
        options: Settings by name, in place of those of ``config``, e.g. ``features_of="segments"``.

    Attributes:
        config: The settings.

    Raises:
        ValueError: Both or none of ``num_segments`` and ``len_segments`` are given, or an option has no such value.
    """

    def __init__(
        self,
        env: Any,
        policy: Any,
        embedding: SeriesEmbedding,
        num_segments: int | None = None,
        len_segments: int | None = None,
        stop_on_done: bool = True,
        *,
        config: FeaturesConfig | None = None,
        seed: SeedOption = LAST_SEED,
        **options: Any,
    ) -> None:
        check_embedding(embedding)
        documented = {"num_segments": num_segments, "len_segments": len_segments, "stop_on_done": stop_on_done}
        self.config = _config_of(FeaturesConfig, config, documented, options)
        self.env, self.policy, self.embedding = env, policy, embedding
        seed = chosen_seed(seed)
        self.seed = fresh_seed() if seed is None else seed
        self._calls = 0

    @staticmethod
    def get_dim_data(spec: EnvSpec) -> int:
        """Numbers per time step: those of a state (of an observation, where there are no states) and of an action."""
        spec = EnvSpec.from_env(spec)
        shown = spec.observation_space if spec.state_space is None else spec.state_space
        return flat_dim(shown) + (1 if isinstance(spec.action_space, Discrete) else flat_dim(spec.action_space))

    @abstractmethod
    def __call__(self, dp_values: Any) -> Any:
        """Features of rollouts."""

    # -- for samplers ----------------------------------------------------------------------------------------------

    def _state_field(self, spec: EnvSpec | None) -> str:
        if self.config.series is not None:
            return self.config.series
        return "states" if spec is None or spec.state_space is not None else "observations"

    def _cut(self, length: int) -> tuple[int, ...]:
        """Steps of the segments of a rollout of ``length`` steps."""
        return segment_lengths(length, self.config.num_segments, self.config.len_segments)

    def _features(
        self,
        num_rollouts: int,
        length: int,
        fields: tuple[str, str],
        *,
        segments: tuple[int, ...] | None = None,
        target: np.ndarray | None = None,
        entries: np.ndarray | None = None,
        chained: bool = False,
    ) -> SeriesFeatures:
        """The features of sets of ``num_rollouts`` rollouts of ``length`` steps, simulated in ``segments``."""
        cut = self._cut(length)
        pieces = len(cut) if self.config.features_of == "segments" else 1
        if pieces > 1 and len(set(cut)) > 1:
            raise ValueError(
                f"features_of='segments' needs segments of one length, got lengths {sorted(set(cut))}; choose "
                f"num_segments (or len_segments) that divides {length} steps"
            )
        return SeriesFeatures(
            self.embedding,
            num_rollouts,
            segments or (length,),
            *fields,
            pieces=pieces,
            pad_mode=self.config.pad_mode,
            target=target,
            entries=entries,
            chained=chained,
        )


@final
class SimRolloutSamplerForSBI(RolloutSamplerForSBI):
    """From domain parameters to features: simulates each set of parameters, and never raises for a bad one.

    With ``rollouts_real``, each of them is simulated segment by segment, each segment from its recorded state. Without,
    there is one rollout per set, of as many steps as an episode has at most. All sets, rollouts and segments of a call
    are one batch of plans for a ``RolloutEngine``: stepped together where the environment has a batched simulator, and
    spread over ``num_workers``. Features are made where rollouts run, unit by unit, so that a call holds no more than
    one unit of trajectories per worker.

    A simulation that raises or diverges makes a row of NaN, which ``sbi`` leaves out; ``failed`` lists them, and there
    is a warning where all of a call fail. The caller's environment is not changed. Rows depend on the seed, the number
    of the call, the parameters and their place in the call alone, not on workers. It can be pickled: the copy simulates
    in its own process, and continues counting.

    Args:
        env: Simulation, as for ``RolloutEngine``, without wrappers that randomize it.
        policy: The acting policy where there are no recorded actions; restarts with every segment.
        dp_mapping: Which domain parameter each column is: number -> name; columns are in the order of the numbers.
        embedding, num_segments, len_segments, stop_on_done: See ``RolloutSamplerForSBI``.
        rollouts_real: Rollouts recorded in the target domain, of one length. Where they have no ``states``, and there
            is no ``initial_state``, the environment must give the state of an observation (``state_from_observation``).
        use_rec_act: False overrides that of ``config``.
        config: How sets of parameters are simulated, and rollouts become features; ``None`` means the defaults.
        seed: See ``RolloutSamplerForSBI``.
        initial_state: From a segment of a recorded rollout to the state ``(S,)`` in which its simulation starts;
            ``None``: its first state.
        pool: As for ``RolloutEngine``.
        options: Settings by name, in place of those of ``config``; and ``entries``, ``noise``, ``assumed_noise``: see
            ``Sensors``. A column of ``dp_mapping`` called ``noise.LABEL`` is such a deviation of noise, instead of a
            domain parameter.

    Attributes:
        names: Which domain parameter each column is: a prior matches columns by name, not by position.
        failed: All simulations that have failed so far, a list of ``FailedSimulation``.

    Raises:
        TypeError: A wrapper of ``env`` randomizes it, or ``rollouts_real`` is not a list of ``StepSequence``.
        ShapeError: Rollouts have unequal lengths, or other widths than the environment.
        DataError: There is no such domain parameter, or no field that is needed.
        ValueError: A recorded action lies outside the bounds, segments have one step each, or there is no limit for
            free rollouts.
    """

    def __init__(
        self,
        env: Any,
        policy: Any,
        dp_mapping: Mapping[int, str],
        embedding: SeriesEmbedding,
        num_segments: int | None = None,
        len_segments: int | None = None,
        stop_on_done: bool = True,
        rollouts_real: list[StepSequence] | None = None,
        use_rec_act: bool = True,
        *,
        config: SimulationConfig | None = None,
        seed: SeedOption = LAST_SEED,
        initial_state: Callable[[StepSequence], Any] | None = None,
        pool: SamplerPool | None = None,
        **options: Any,
    ) -> None:
        sensors = Sensors.taken_from(options)
        documented = {"num_segments": num_segments, "len_segments": len_segments, "stop_on_done": stop_on_done}
        config = _config_of(SimulationConfig, config, {**documented, "use_rec_act": use_rec_act}, options)
        super().__init__(env, policy, embedding, config=config, seed=seed)
        if config.chained:
            check_chained(embedding, rollouts_real is not None)
        if config.exact_starts and initial_state is None:
            raise ValueError("exact_starts must be False without initial_state, which returns where rollouts start")
        check_shared(pool, config)
        sensors.check(len(rollouts_real or ()))
        self.failed: list[FailedSimulation] = []
        self._exact_starts, self._plays = config.exact_starts, config.use_rec_act
        self.names = checked_names(dp_mapping)
        self._params, _ = split_names(self.names)
        self._source = EnvSource.of(env)
        spec, self._changes_actions = checked_spec(self._source, self._params)
        if rollouts_real is None:
            self._target = None
            length = finite_limit(spec, "free rollouts", "; or give rollouts_real")
            action_field = "actions" if isinstance(spec.action_space, Discrete) else "actions_applied"
            self._reduce = self._features(1, length, (self._state_field(spec), action_field))
            self._acting = policy
        else:
            target = TargetRecordings.of(
                rollouts_real,
                spec,
                self._state_field(spec),
                self._cut,
                initial_state,
                functools.partial(observed_states, self._source),
                as_given=self._changes_actions,
                entries=sensors.entries,
                noise=sensors.noise,
            )
            if sensors.assumed_noise is not None:
                # (Of other recordings another noise: those held out must be independent of those seen.)
                target = target.with_noise(
                    sensors.assumed_noise, derive_seed("assumed noise", self.seed, target.digest())
                )
            self._target = target
            num_rollouts, length, _ = target.series.shape
            self._reduce = self._features(
                num_rollouts,
                length,
                target.fields,
                segments=target.segments,
                target=target.series.astype(np.float32) if embedding.requires_target_domain_data else None,
                entries=sensors.entries,
                chained=config.chained,
            )
            if config.use_rec_act and not config.clip_actions:
                target.check_actions(spec)
            self._acting = PlaybackPolicy(spec, target.actions) if config.use_rec_act else policy
        labeled = labeled_as(spec, rollouts_real or [])
        self._noise = SimulatedNoise(self.names, labeled, self._reduce.state_field, sensors)
        run = {**vars(config), "on_invalid": "drop", "on_error": "drop"}
        self._engine_config, self._pool = parts_of(EngineConfig, run), pool
        self._engine: RolloutEngine | None = None
        self._reached = False

    def __call__(self, dp_values: Any) -> Tensor:
        """Features of simulations.

        Args:
            dp_values: Sets of domain parameters, ``(B, d)``, or one ``(d,)`` (``(n,)`` are n sets where d is 1), as a
                tensor or an array.

        Returns:
            Float32 on the CPU, ``(B, R * F)`` for R recorded rollouts, ``(B, F)`` without any; NaN in rows of
            simulations that failed.

        Raises:
            ShapeError: There are more or fewer than d parameters.
            TypeError: They are not numbers.
            ValueError: The environment does not take over the parameters (a wrapper that declares it may round them).
        """
        values = checked_values(dp_values, self.names)
        call, self._calls = self._calls, self._calls + 1
        updates = [self._update(row, number, call) for number, row in enumerate(values.tolist())]
        rows = np.array([number for number, update in enumerate(updates) if update is not None], dtype=np.int64)
        features = np.full((len(values), self._reduce.dim_output), np.nan, dtype=np.float32)
        if rows.size:
            with module_mode(self.policy, True):
                engine = self._opened()
                plans = self._plans([update for update in updates if update is not None], values, rows, call)
                self._check_reach(engine, plans, values[rows[0]])
                firsts = None if self._target is None or self._exact_starts else self._target.first_rows
                reduce = replace(self._reduce, noise=self._noise.by_set(values), firsts=firsts)
                reduced = engine.run_reduced(plans, Reduction(reduce, reduce.fields, len(plans) // len(rows)))
            if reduced.ndim == 2:  # else all have failed
                features[rows] = reduced
            self._note_failed(engine.dropped, rows, values, call)
            engine.dropped.clear()
        failed = [entry for entry in self.failed if entry.call == call]
        if failed and len({entry.row for entry in failed}) == len(values):
            warnings.warn(f"all {len(values)} simulations failed, the first: {failed[0].message}", stacklevel=2)
        return torch.from_numpy(features)

    def skip_call(self) -> None:
        """Count a call whose simulations were stored earlier, so that the next call draws its own numbers."""
        self._calls += 1

    def target_features(self) -> Tensor:
        """Features of the recorded rollouts, with which simulations are compared, float32 ``(1, R * F)``.

        Raises:
            ValueError: There are no ``rollouts_real``.
        """
        if self._target is None:
            raise ValueError("target_features needs rollouts_real, got none; RealRolloutSamplerForSBI makes a rollout")
        return torch.from_numpy(self._reduce.of_series(self._target.series.astype(np.float32)[None]))

    def target_digest(self) -> str:
        """Of the recorded rollouts, their segments and where these start: others have another one.

        Raises:
            ValueError: There are no ``rollouts_real``.
        """
        if self._target is None:
            raise ValueError("target_digest needs rollouts_real, got none")
        return self._target.digest()

    def close(self) -> None:
        """End the workers; the next call starts others."""
        if self._engine is not None:
            self._engine.close()
            self._engine = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        # A copy in a worker of joblib simulates there, instead of starting its own workers.
        here = replace(self._engine_config, num_workers=1, transport="auto", address=None)
        return {**self.__dict__, "_engine": None, "_engine_config": here, "_pool": None}

    # -- helpers ---------------------------------------------------------------------------------------------------

    def _update(self, row: list[float], number: int, call: int) -> DomainParamUpdate | None:
        """The update that sets a row; ``None``, and a note, where it cannot."""
        params = dict(zip(self.names, row, strict=True))
        try:
            self._noise.check(params)
            return DomainParamUpdate({name: params[name] for name in self._params})
        except ValueError as error:
            self.failed.append(FailedSimulation(params, str(error), number, -1, -1, -1, call))
            return None

    def _plans(self, updates: list[DomainParamUpdate], values: np.ndarray, rows: np.ndarray, call: int) -> PlanTable:
        """For each set of parameters in ``rows`` all rollouts, and of each all segments."""
        num_sets, lengths = len(rows), np.tile(self._reduce.segments, self._reduce.num_rollouts)
        each = len(lengths)
        seeds = np.empty((num_sets, each, 3), dtype=np.uint64)
        # The values are part of it, so that copies of a sampler that count alike draw different numbers.
        seeds[:, :, 0] = [[seed_of_values(self.seed, values[row])] for row in rows.tolist()]
        seeds[:, :, 1] = call
        seeds[:, :, 2] = rows[:, None] * each + np.arange(each)
        target, flat = self._target, seeds.reshape(-1, 3)
        return PlanTable.of_columns(
            flat,
            updates=updates,
            update_of=np.repeat(np.arange(num_sets), each),
            max_steps=np.tile(lengths, num_sets),
            contexts=target.contexts * num_sets if target is not None and self._plays else None,
            init_states=None if target is None else target.starts.of_simulations(flat),
            eval=True,
            stop_on_done=self.config.stop_on_done,
        )

    def _opened(self) -> RolloutEngine:
        if self._engine is None:
            self._engine = RolloutEngine(
                self._source, self._acting, config=self._engine_config, pool=self._pool, record_extras=True
            )
        return self._engine

    def _check_reach(self, engine: RolloutEngine, plans: PlanTable, values: np.ndarray) -> None:
        """Check once that the environment takes over its parameters, as far as it reports them."""
        if self._reached:
            return
        rollouts = engine.run([plans[0].with_(max_steps=1)])
        engine.dropped.clear()
        if len(rollouts):
            own = [number for number, name in enumerate(self.names) if name in self._params]
            check_taken_over(rollouts[0], self._source, values[own], self._params)
        self._reached = bool(len(rollouts))

    def _note_failed(self, dropped: list[DroppedRollout], rows: np.ndarray, values: np.ndarray, call: int) -> None:
        segments = len(self._reduce.segments)
        each = self._reduce.num_rollouts * segments
        for entry in dropped:
            place, part = divmod(entry.plan.index, each)
            row = int(rows[place])
            params = dict(zip(self.names, values[row].tolist(), strict=True))
            where = divmod(part, segments)
            self.failed.append(FailedSimulation(params, drop_summary(entry), row, *where, entry.step, call))


class RealRolloutSamplerForSBI(RolloutSamplerForSBI):
    """From the target domain to features: one rollout per call, in the form in which simulations come.

    Args:
        env: The real environment, used itself; or a simulation in its place, whose wrappers may randomize it.
        policy: The acting policy, without its noise.
        embedding, num_segments, len_segments, stop_on_done: See ``RolloutSamplerForSBI``; segments matter for
            ``features_of="segments"`` alone.
        config, seed, options: See ``RolloutSamplerForSBI``.
        accept: Called with each rollout; where it returns False, another one is made in its place (e.g. if the
            robot was touched).

    Raises:
        ValueError: There is no limit of steps.
    """

    def __init__(
        self,
        env: Any,
        policy: Any,
        embedding: SeriesEmbedding,
        num_segments: int | None = None,
        len_segments: int | None = None,
        stop_on_done: bool = True,
        *,
        config: FeaturesConfig | None = None,
        seed: SeedOption = LAST_SEED,
        accept: Callable[[StepSequence], bool] | None = None,
        **options: Any,
    ) -> None:
        documented = (num_segments, len_segments, stop_on_done)
        super().__init__(env, policy, embedding, *documented, config=config, seed=seed, **options)
        if accept is not None and not callable(accept):
            raise TypeError(f"accept must be a function of a rollout, got {described(accept)}")
        self._accept = accept
        if env is not None:  # else rollouts are there already
            self._spec: EnvSpec | None = EnvSource.of(env).spec if not is_env_instance(env) else EnvSpec.from_env(env)
            self._length = finite_limit(self._spec, "rollouts")

    def __call__(self, dp_values: Any = None) -> tuple[Tensor, StepSequence]:
        """Features of the next rollout, float32 ``(1, F)``, and the rollout, with tensors, filled up to full length.

        Args:
            dp_values: Ignored: the parameters of the real world cannot be chosen.
        """
        recorded, name = self._next_rollout()
        fields = (self._state_field_of(recorded), applied_field([recorded]))
        features = self._features(1, len(recorded), fields)
        series = series_of(recorded, *fields, name)
        rows = features.of_series(series.astype(np.float32)[None, None])
        recorded.torch()
        return torch.from_numpy(rows), recorded

    def _state_field_of(self, recorded: StepSequence) -> str:
        return self._state_field(self._spec)

    def _next_rollout(self) -> tuple[StepSequence, str]:
        """A new rollout, and its name in errors."""
        randomized = is_env_instance(self.env) and outermost_dr_wrapper(self.env) is not None
        while True:
            number, self._calls = self._calls, self._calls + 1
            new = rollout(
                self.env,
                self.policy,
                eval=not randomized,  # evaluations are not randomized
                deterministic=True,
                max_steps=self._length,
                no_close=True,
                stop_on_done=self.config.stop_on_done,
                seed=self.seed,
                sub_seed=number,
            )
            StepSequence.pad(new, self._length, mode="edge" if self.config.pad_mode == "last" else "constant")
            if self._accept is None or self._accept(new):
                return new, f"rollout {number}"


@final
class RecRolloutSamplerForSBI(RealRolloutSamplerForSBI):
    """Recorded rollouts, one per call, as if they were made just now; after the last one comes the first again.

    Args:
        rollouts_dir: Folder with recordings (``save_rollouts``), of which those count whose names begin with
            ``rollout``, sorted by name.
        embedding, num_segments, len_segments: See ``RealRolloutSamplerForSBI``.
        rand_init_rollout: Begin with a random one, instead of the first.
        config, seed, options: See ``RolloutSamplerForSBI``.

    Raises:
        FileNotFoundError: There is no such folder.
        RecordingError: It holds no recording, or one that cannot be loaded.
        ShapeError: Recordings have unequal lengths.
    """

    def __init__(
        self,
        rollouts_dir: str | Path,
        embedding: SeriesEmbedding,
        num_segments: int | None = None,
        len_segments: int | None = None,
        rand_init_rollout: bool = True,
        *,
        config: FeaturesConfig | None = None,
        seed: SeedOption = LAST_SEED,
        **options: Any,
    ) -> None:
        super().__init__(None, None, embedding, num_segments, len_segments, config=config, seed=seed, **options)
        rand_init_rollout = check_flag("rand_init_rollout", rand_init_rollout)
        folder = check_path("rollouts_dir", rollouts_dir)
        if not folder.is_dir():
            raise FileNotFoundError(f"rollouts_dir must be a folder with recorded rollouts, there is none at {folder}")

        def read() -> tuple[list[Path], list[StepSequence]]:
            paths = [path for path in recordings_in(folder) if path.name.startswith("rollout")]
            return paths, [load_rollout(path) for path in paths]

        paths, rollouts = read_set(folder, RECORDINGS, read)
        if not paths:
            raise RecordingError(f"rollouts_dir must hold files that begin with 'rollout', there are none in {folder}")
        self.rollouts_dir, self._paths = folder, paths
        self._rollouts = checked_recordings(rollouts, [path.name for path in paths])
        first = np.random.default_rng(derive_seed("first recorded rollout", self.seed)).integers(len(paths))
        self._ring_idx = int(first) if rand_init_rollout else 0

    @property
    def num_rollouts(self) -> int:
        """Number of recorded rollouts."""
        return len(self._rollouts)

    @property
    def ring_idx(self) -> int:
        """Index of the rollout that comes next; may be set."""
        return self._ring_idx

    @ring_idx.setter
    def ring_idx(self, idx: int) -> None:
        self._ring_idx = check_whole("ring_idx", idx, 0, self.num_rollouts - 1)

    def _state_field_of(self, recorded: StepSequence) -> str:
        return self.config.series or ("states" if "states" in recorded.data_names else "observations")

    def _next_rollout(self) -> tuple[StepSequence, str]:
        number = self._ring_idx
        self._ring_idx = (number + 1) % self.num_rollouts
        return copy.deepcopy(self._rollouts[number]), self._paths[number].name


def _config_of(kind: type[C], config: C | None, documented: Mapping[str, Any], options: Mapping[str, Any]) -> C:
    """``config_of`` with ``documented`` parameters, too, which replace parts of a config unless at their defaults."""
    defaults = {option.name: option.default for option in options_of(kind)}
    changed = {name: value for name, value in documented.items() if value is not defaults[name]}
    return config_of(kind, config, {**changed, **options})
