"""MuJoCo's robots as rows of a simulator: arrays of the quantities that are read, and one ``MjData`` per row."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from metaroll.envs.base.simulator import Columns, NextState, Simulator
from metaroll.envs.mujoco.library import get_physics, load_mujoco, set_physics, unstable
from metaroll.envs.mujoco.model_params import BoundModelParams
from metaroll.envs.mujoco.rules import Arrays, Rules, Step, split_state
from metaroll.envs.mujoco.threads import PhysicsThreads
from metaroll.errors import SlotError
from metaroll.tasks.domain_params import DomainParamUpdate
from metaroll.tasks.updates import SetTaskUpdate
from metaroll.types import EnvSpec, EnvUpdate

__all__ = ["MujocoSimulator"]


class MujocoTask(NamedTuple):
    """A checked task: entries of the model, a task that is set in the model, and the values that functions read."""

    params: dict[str, float] | None
    in_model: Any
    row: dict[str, np.ndarray]


class MujocoState(NamedTuple):
    """Rows of simulations.

    Attributes:
        handle: Which simulation a row is, ``(N,)``.
        now: Arrays read from them, name -> ``(N, ...)``.
        model: Arrays read from their models, name -> ``(N, ...)``.
        unstable: Whether their numbers are no longer finite, ``(N,)``.
    """

    handle: np.ndarray
    now: Arrays
    model: Arrays
    unstable: np.ndarray


class MujocoSimulator(Simulator):
    """Simulations of one MuJoCo model, stepped in a few threads; all else is done on arrays.

    Rollouts are those of the single environment, bitwise. A simulation whose numbers are no longer finite (MuJoCo
    then starts it again from the reference position) shows an observation of NaN, so that its rollout is refused.

    Args:
        model: MuJoCo's model; never changed here.
        rules: Observation, reward and ending.
        env_spec: Spaces and labels.
        init_qpos: Positions around which episodes start.
        init_qvel: Velocities around which they start.
        time_limit: Steps after which an episode is truncated.
        task: The task of plans that set none.
        task_type: Constructor of the single environment, whose ``SetTaskUpdate`` can be applied; ``None``: no tasks.
        name: Name of the environment in rollouts.
        threads: How many threads step them; ``None`` means as ``physics_threads`` sets.
    """

    is_physics = True
    seeds_as_gymnasium = True
    takes = "DomainParamUpdate of entries of the MuJoCo model, and tasks of its own class without a wrapper"

    def __init__(
        self,
        model: Any,
        rules: Rules,
        env_spec: EnvSpec,
        init_qpos: np.ndarray,
        init_qvel: np.ndarray,
        *,
        time_limit: int | None = None,
        task: Any = None,
        task_type: Callable[..., Any] | None = None,
        name: str = "MujocoSimulator",
        threads: int | None = None,
    ) -> None:
        self.model, self.rules, self.env_spec, self.name = model, rules, env_spec, name
        self.time_limit, self._task_type = time_limit, task_type
        self._init_qpos, self._init_qvel = init_qpos, init_qvel
        self.num_uniforms = init_qpos.size + init_qvel.size
        self._own_row = _as_arrays(rules.task_row(task))
        self._threads = PhysicsThreads(threads)
        mujoco = load_mujoco(name)
        contacts = mujoco.mj_rnePostConstraint if rules.contacts else None
        self._physics = _Physics(mujoco.mj_step, rules.frame_skip, contacts)
        self._action_type = env_spec.action_space.dtype
        self._simulations: list[_Simulation] = []
        self._free: deque[int] = deque()
        self._handles, self._stepped = np.zeros(0, dtype=np.int64), _Stepped.of([])

    # -- tasks --------------------------------------------------------------------------------------------------------

    def accepts_update(self, update: EnvUpdate | None) -> bool:
        """Nothing, entries of the model, or a task without wrappers."""
        if type(update) is DomainParamUpdate:
            params = BoundModelParams(SimpleNamespace(model=self.model))
            return all(params.claims(path) for path in update.task)
        if type(update) is SetTaskUpdate and self._task_type is not None:
            return update.env_type == self._task_type and update.wrapper_constructor is None
        return super().accepts_update(update)

    def task_of(self, update: EnvUpdate | None) -> MujocoTask:
        if isinstance(update, SetTaskUpdate):
            in_model = update.task if self.rules.changes_model else None
            return MujocoTask(None, in_model, _as_arrays(self.rules.task_row(update.task)))
        if isinstance(update, DomainParamUpdate) and update.task:
            BoundModelParams(SimpleNamespace(model=self.model)).check(update.task)
            return MujocoTask(dict(update.task), None, self._own_row)
        return MujocoTask(None, None, self._own_row)

    def domain_param(self, task: MujocoTask) -> dict[str, float] | None:
        return None if task.params is None else dict(task.params)

    def constants(self, tasks: Sequence[MujocoTask], xp: Any) -> dict[str, Any]:
        """The tasks themselves, and the values that functions read of them."""
        column = np.empty(len(tasks), dtype=object)
        for i, task in enumerate(tasks):
            column[i] = task
        return {"task": column, "row": {name: np.stack([t.row[name] for t in tasks]) for name in tasks[0].row}}

    def time_step(self, state: MujocoState | None, constants: Any) -> float:
        return float(self._seconds(self.model) if state is None else state.model["dt"][0])

    # -- states -------------------------------------------------------------------------------------------------------

    def draw_rows(self, seeds: np.ndarray) -> np.ndarray:
        """Positions and velocities, ``(N, nq + nv)``."""
        generators = (np.random.Generator(np.random.PCG64(seed)) for seed in seeds.tolist())
        return np.stack([np.concatenate(self.rules.draw(g, self._init_qpos, self._init_qvel)) for g in generators])

    def initial_state(self, uniforms: Columns, constants: Any, xp: Any) -> MujocoState:
        return self._begin(np.stack(uniforms, axis=1), constants["task"])

    def check_init_state(self, init_state: Any) -> np.ndarray:
        """Positions and velocities, ``(nq + nv,)``."""
        return np.concatenate(split_state(init_state, self._init_qpos.size, self._init_qvel.size))

    def state_from_init(self, inits: np.ndarray, constants: Any, xp: Any) -> MujocoState:
        return self._begin(inits, constants["task"])

    def release(self, state: MujocoState) -> None:
        self._free.extend(state.handle.tolist())

    def whole_state(self, state: MujocoState) -> dict[str, np.ndarray]:
        """MuJoCo's integrated state, with the warm start, and the read arrays; never the simulations themselves."""
        simulations = [self._simulations[handle] for handle in state.handle.tolist()]
        whole = np.stack([get_physics(simulation.model, simulation.data) for simulation in simulations])
        now = {f"now/{name}": values for name, values in state.now.items()}
        return {"simulation": whole, "unstable": state.unstable, **now}

    def with_whole_state(self, state: MujocoState, whole: Mapping[str, np.ndarray]) -> MujocoState:
        for handle, values in zip(state.handle.tolist(), whole["simulation"], strict=True):
            set_physics(self._simulations[handle].model, self._simulations[handle].data, values)
        now = {name: np.array(whole[f"now/{name}"]) for name in state.now}
        return state._replace(now=now, unstable=np.array(whole["unstable"]))

    def observe(self, state: MujocoState, constants: Any, xp: Any) -> np.ndarray:
        observations = self.rules.observe(state.now, constants["row"])
        if np.count_nonzero(state.unstable):
            observations[state.unstable] = np.nan
        return observations

    def step(self, state: MujocoState, actions: Any, constants: Any, noise: Columns, xp: Any) -> NextState:
        rules = self.rules
        actions = np.array(actions, dtype=self._action_type)
        controls = rules.controls(actions)
        stepped = self._stepped_by(state.handle)
        failures: list[tuple[int, Exception]] = []
        self._threads.run(_loop(self._physics, stepped.parts, list(controls), failures), range(len(controls)))
        if failures:
            row, error = min(failures, key=lambda failure: failure[0])
            raise SlotError(row) from error
        now = stepped.now() if stepped.parts else state.now  # nothing to step if every row is frozen
        is_unstable = stepped.unstable()
        result = rules.reward_and_termination(Step(state.now, now, actions, controls, state.model, constants["row"]))
        following = MujocoState(state.handle, now, state.model, is_unstable)
        return NextState(following, result.rewards, result.terminated, None, result.infos)

    def _stepped_by(self, handles: np.ndarray) -> _Stepped:
        """The arrays that a step touches; looked up again for new rows, since a start may change the model."""
        if handles is not self._handles:
            simulations = [self._simulations[handle] for handle in handles.tolist()]
            self._handles, self._stepped = handles, _Stepped.of(simulations)
        return self._stepped

    def _begin(self, starts: np.ndarray, tasks: np.ndarray) -> MujocoState:
        """Simulations that start from positions and velocities ``(k, nq + nv)`` under ``tasks (k,)``."""
        while len(self._free) < len(starts):
            self._free.append(len(self._simulations))
            self._simulations.append(_Simulation(self.model, self.rules))
        handles, views, constants = [self._free.popleft() for _ in starts], [], []
        try:
            for handle, start, task in zip(handles, starts, tasks.tolist(), strict=True):
                simulation = self._simulations[handle]
                simulation.start(task, start[: self._init_qpos.size], start[self._init_qpos.size :])
                views.append(simulation.views)
                constants.append({**self.rules.constants(simulation.model), "dt": self._seconds(simulation.model)})
        except BaseException:
            self._free.extend(handles)
            raise
        return MujocoState(
            np.array(handles, dtype=np.int64),
            {name: np.stack([view[name] for view in views]) for name in views[0]},
            {name: np.stack([np.asarray(part[name]) for part in constants]) for name in constants[0]},
            np.zeros(len(handles), dtype=bool),
        )

    def _seconds(self, model: Any) -> float:
        return model.opt.timestep * self.rules.frame_skip


class _Physics(NamedTuple):
    """The functions that step a simulation.

    Attributes:
        step: Takes model, data and ``frames``.
        frames: Steps of the physics in one of the environment.
        contacts: Computes forces of contacts, where they are read.
    """

    step: Callable[[Any, Any, int], None]
    frames: int
    contacts: Callable[[Any, Any], None] | None


class _Stepped(NamedTuple):
    """The arrays that a step of some simulations touches, looked up once: this costs a tenth of a cheap robot's
    physics.

    Attributes:
        parts: Model, data and controls of each.
        views: Name -> what is read of each.
        warnings: Counters of warnings of each.
        stable: False for each; rows of a state are copied before they are written into.
    """

    parts: list[tuple[Any, Any, np.ndarray]]
    views: dict[str, list[np.ndarray]]
    warnings: list[np.ndarray]
    stable: np.ndarray

    @classmethod
    def of(cls, simulations: Sequence[_Simulation]) -> _Stepped:
        names = simulations[0].views if simulations else ()
        return cls(
            [(simulation.model, simulation.data, simulation.controls) for simulation in simulations],
            {name: [simulation.views[name] for simulation in simulations] for name in names},
            [simulation.warnings for simulation in simulations],
            np.zeros(len(simulations), dtype=bool),
        )

    def now(self) -> Arrays:
        """The arrays read now, name -> ``(N, ...)``."""
        return {name: np.concatenate(rows).reshape(len(rows), *rows[0].shape) for name, rows in self.views.items()}

    def unstable(self) -> np.ndarray:
        """Which simulations have diverged, bool ``(N,)``."""
        if not self.warnings or not np.count_nonzero(np.concatenate(self.warnings)):
            return self.stable
        return unstable(np.stack(self.warnings))


class _Simulation:
    """One ``MjData``, and its own model once its physics differ.

    Args:
        base: The model that is shared.
        rules: Define what is read.
    """

    def __init__(self, base: Any, rules: Rules) -> None:
        self.model = self._base = base
        self._rules = rules
        self._own: dict[str, SimpleNamespace] = {}
        self.data = data = load_mujoco().MjData(base)
        # Views into MuJoCo's memory; asking for them again costs more than reading them.
        self.views = {"qpos": data.qpos, "qvel": data.qvel, **rules.observed(base, data)}
        self.controls, self.warnings = data.ctrl, data.warning.number

    def start(self, task: MujocoTask, qpos: np.ndarray, qvel: np.ndarray) -> None:
        mujoco, data = load_mujoco(), self.data
        self.model = self._base
        try:
            if task.params is not None:
                own = self._own_model("params")
                BoundModelParams(own).set(task.params)
                self.model = own.model
            elif task.in_model is not None:
                own = self._own_model("task")
                self._rules.set_in_model(own.model, task.in_model)
                self.model = own.model
        except BaseException:
            self._own = {}  # it may be half changed
            raise
        mujoco.mj_resetData(self.model, data)
        data.qpos[:], data.qvel[:] = qpos, qvel
        if self.model.na == 0:
            data.act[:] = None  # as Gymnasium does
        mujoco.mj_forward(self.model, data)

    def _own_model(self, kind: str) -> SimpleNamespace:
        """A copy of the model for one kind of change; ``model_params`` remembers the changes."""
        if kind not in self._own:
            self._own = {kind: SimpleNamespace(model=copy.deepcopy(self._base))}
        return self._own[kind]


def _loop(
    physics: _Physics,
    parts: Sequence[tuple[Any, Any, np.ndarray]],
    controls: Sequence[np.ndarray],
    failures: list[tuple[int, Exception]],
) -> Callable[[Iterator[int]], None]:
    """A job of one thread: it steps rows until none is left."""
    mj_step, frames, mj_rne = physics

    def loop(rows: Iterator[int]) -> None:
        for row in rows:
            try:
                model, data, own_controls = parts[row]
                own_controls[:] = controls[row]
                mj_step(model, data, frames)
                if mj_rne is not None:
                    mj_rne(model, data)
            except Exception as error:
                failures.append((row, error))

    return loop


def _as_arrays(row: dict[str, Any]) -> dict[str, np.ndarray]:
    return {name: np.asarray(value) for name, value in row.items()}
