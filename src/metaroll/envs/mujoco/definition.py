"""Your own robot: an MJCF file and a few functions of arrays make an environment, and its batched simulator."""

from __future__ import annotations

import copy
import inspect
import secrets
import traceback
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.spaces import Box

from metaroll.envs.mujoco.library import load_mujoco
from metaroll.envs.mujoco.mjcf import compile_mjcf
from metaroll.envs.mujoco.robot_env import RobotEnv
from metaroll.envs.mujoco.rules import Arrays, Rules, Step, StepResult
from metaroll.errors import ShapeError, unknown_name
from metaroll.types import EnvSpec

__all__ = ["MujocoEnvDefinition"]

_FORCES = ("cacc", "cfrc_ext", "cfrc_int")
_STEP_NAMES = ("action", "dt")
_BEFORE = "_before"
_TRIALS = 3


class MujocoEnvDefinition:
    """An environment made of your MJCF file, and of functions for reward, observation and termination.

    Calling the definition makes the environment, so that it can be used wherever a class of environments can::

        def reward(qpos, qpos_before, action, dt):
            return (qpos[:, 0] - qpos_before[:, 0]) / dt - 0.1 * (action**2).sum(axis=1)

        robot = MujocoEnvDefinition("robot.xml", 5, reward, termination=lambda qpos: qpos[:, 2] < 0.3, max_steps=500)
        metaroll.RolloutEngine(robot, policy)

    The functions get what their arguments are called, for E simulations at once, the first axis of every array:

    - ``qpos``, ``qvel``, ``xpos``, ``sensordata``, ``cfrc_ext`` ...: an array of MuJoCo's ``MjData`` after the step;
    - ``qpos_before`` ...: the same before the step (not for observations);
    - ``action (E, nu)`` and ``dt (E,)``, in seconds (not for observations);
    - ``goal`` ...: an entry of the task, ``(E, ...)``.

    A row of what they return must depend on that row of the arguments alone, which is tried at once. The arrays are
    read-only.

    Args:
        mjcf: Path of the file, or its text.
        frame_skip: Steps of MuJoCo per step.
        reward: Returns rewards ``(E,)``, or rewards and infos, a dict of arrays ``(E, ...)``.
        observation: Returns observations ``(E, O)``; by default positions and velocities.
        termination: Returns bool ``(E,)``; by default episodes have no ending.
        task: The current task where none is set, as a dict of numbers and arrays, under names that MuJoCo has not;
            ``None``: there are no tasks.
            Distributions of tasks are given to ``TaskFamily.from_env(definition, tasks)``.
        max_steps: Horizon of an episode; ``None`` leaves it to plans.
        reset_noise: Episodes start within this distance of the file's positions and velocities (uniform).
        camera: Settings of the renderer's camera, as Gymnasium's ``default_camera_config``; ``None`` fits it to the
            model.

    Raises:
        ValueError: The MJCF does not compile (file and line are named), or a function does not fit.
    """

    def __init__(
        self,
        mjcf: str | Path,
        frame_skip: int,
        reward: Callable[..., Any],
        observation: Callable[..., Any] | None = None,
        termination: Callable[..., Any] | None = None,
        *,
        task: Mapping[str, Any] | None = None,
        max_steps: int | None = None,
        reset_noise: float = 0.0,
        camera: Mapping[str, Any] | None = None,
    ) -> None:
        for name, value in (("frame_skip", frame_skip), ("max_steps", max_steps)):
            if (name, value) != ("max_steps", None) and (type(value) is not int or value < 1):
                raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")
        if not (np.isfinite(reset_noise) and reset_noise >= 0):
            raise ValueError(f"reset_noise must be a number of at least 0, got {reset_noise!r}")
        self.model = compile_mjcf(mjcf)
        """MuJoCo's model; environments get copies."""
        self._task = None if task is None else _default_task(task)
        self._camera = camera
        self._key = secrets.token_hex(8)
        self._rules = _FunctionRules(
            self.model,
            frame_skip,
            {"reward": reward, "observation": observation, "termination": termination},
            self._task,
            float(reset_noise),
        )
        observations = self._rules.try_out(self.model)
        self.env_spec = EnvSpec(
            Box(-np.inf, np.inf, observations.shape[1:], np.float64), _action_space(self.model), max_steps
        )

    def __call__(self, render_mode: str | None = None) -> RobotEnv:
        """A new environment."""
        return RobotEnv(
            copy.deepcopy(self.model),
            self._rules,
            self.env_spec,
            task=self._task,
            task_type=self,
            render_mode=render_mode,
            camera=self._camera,
        )

    def __eq__(self, other: object) -> bool:
        """Whether it is this definition, or a copy of it (e.g. in a worker)."""
        return isinstance(other, MujocoEnvDefinition) and other._key == self._key

    def __hash__(self) -> int:
        return hash(self._key)


class _FunctionRules(Rules):
    """Rules made of functions that are called with the arrays that they name."""

    def __init__(
        self,
        model: Any,
        frame_skip: int,
        functions: Mapping[str, Callable[..., Any] | None],
        task: Mapping[str, Any] | None,
        noise: float,
    ) -> None:
        self.frame_skip, self._noise = frame_skip, noise
        self._functions = {name: function for name, function in functions.items() if function is not None}
        self._has_tasks = task is not None
        self._task = {name: _numbers(f"task[{name!r}]", value) for name, value in (task or {}).items()}
        self._arguments = {name: _arguments_of(name, function) for name, function in self._functions.items()}
        known = _fixed_arrays(load_mujoco().MjData(model))
        for name in self._task:
            if name in _STEP_NAMES or name.removesuffix(_BEFORE) in known:
                raise ValueError(
                    f"task must not have an entry {name!r}, which is what functions get of MuJoCo under this name; "
                    f"call it e.g. 'goal_{name}'"
                )
        needed = {"qpos", "qvel"}
        for name, arguments in self._arguments.items():
            for argument in arguments:
                needed |= self._quantity(name, argument, known)
        self._names = sorted(needed - {"qpos", "qvel"})
        self.contacts = any(name in _FORCES for name in self._names)

    def observed(self, model: Any, data: Any) -> dict[str, np.ndarray]:
        return {name: getattr(data, name) for name in self._names}

    def draw(self, generator: np.random.Generator, qpos: np.ndarray, qvel: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if self._noise == 0:
            return qpos, qvel
        noise = generator.uniform(-self._noise, self._noise, qpos.size + qvel.size)
        return qpos + noise[: qpos.size], qvel + noise[qpos.size :]

    def task_row(self, task: Any) -> dict[str, Any]:
        if task is None:
            return dict(self._task)
        if not self._has_tasks:
            raise ValueError(f"this definition has no tasks, got {task!r}; give MujocoEnvDefinition(..., task={{...}})")
        if not isinstance(task, Mapping) or set(task) != set(self._task):
            unknown = [name for name in task if name not in self._task] if isinstance(task, Mapping) else []
            reason = f" ({unknown_name('entry', str(unknown[0]), self._task)})" if unknown else ""
            raise ValueError(f"task must be a mapping with {', '.join(self._task)}, got {task!r}{reason}")
        row = {name: _numbers(f"task[{name!r}]", task[name]) for name in self._task}
        for name, value in row.items():
            if value.size == self._task[name].size == 1:
                row[name] = value = value.reshape(self._task[name].shape)
            if value.shape != self._task[name].shape or not np.isfinite(value).all():
                raise ShapeError(
                    f"task[{name!r}] must be finite, of shape {self._task[name].shape}, got {task[name]!r}"
                )
        return row

    def observe(self, now: Arrays, task: Arrays) -> np.ndarray:
        if "observation" not in self._functions:
            return np.concatenate((now["qpos"], now["qvel"]), axis=1)
        rows = self._call("observation", {**task, **now})
        return _reals("observation", _checked("observation", rows, (len(now["qpos"]), None)))

    def reward_and_termination(self, step: Step) -> StepResult:
        count = len(step.actions)
        before = {name + _BEFORE: values for name, values in step.before.items()}
        available = {**step.task, **before, **step.now, "action": step.actions, "dt": step.constants["dt"]}
        result = self._call("reward", available)
        rewards, infos = result if isinstance(result, tuple) and len(result) == 2 else (result, {})
        if isinstance(result, tuple) and not (len(result) == 2 and isinstance(infos, Mapping)):
            kinds = ", ".join(type(part).__name__ for part in result)
            raise TypeError(
                "reward must return an array of rewards, or a pair: that, and a dict of infos (e.g. "
                f"{{'distance': array}}), got a tuple of {len(result)} ({kinds})"
            )
        rewards = _reals("reward", _checked("reward", rewards, (count,)))
        ended = (
            self._call("termination", available) if "termination" in self._functions else np.zeros(count, dtype=bool)
        )
        ended = _checked("termination", ended, (count,))
        if ended.dtype != np.bool_:
            raise TypeError(
                "termination must return an array of bool, true where an episode ends (e.g. qpos[:, 2] < 0.3), got "
                f"{ended.dtype} {ended}"
            )
        infos = {name: _checked(f"info {name!r}", value, (count, ...)).copy() for name, value in infos.items()}
        return StepResult(rewards, ended.copy(), infos)

    def try_out(self, model: Any) -> np.ndarray:
        """Call all functions with a few simulations, together and alone; the observations."""
        mujoco, generator = load_mujoco(), np.random.default_rng(0)
        views = []
        for _ in range(_TRIALS):
            data = mujoco.MjData(model)
            data.qvel[:] = generator.uniform(-0.1, 0.1, model.nv)
            mujoco.mj_step(model, data)
            views.append({"qpos": data.qpos, "qvel": data.qvel, **self.observed(model, data)})
        now = {name: np.stack([view[name] for view in views]) for name in views[0]}
        task = {name: np.stack([value] * _TRIALS) for name, value in self._task.items()}
        dt = np.full(_TRIALS, model.opt.timestep * self.frame_skip)
        actions = generator.uniform(-1, 1, (_TRIALS, model.nu)).astype(np.float32)
        step = Step(now, now, actions, actions, {"dt": dt}, task)
        together = self._all(step)
        for row in range(_TRIALS):
            alone = self._all(Step(*(_one(part, row) for part in step)))
            for name, values in together.items():
                _compare(name, values[row], alone[name][0])
        for name in ("reward", "observation"):
            numbers = together[name].reshape(_TRIALS, -1)
            never = np.flatnonzero(~np.isfinite(numbers).any(axis=0))
            if never.size:
                what = name if name == "reward" else f"entry {never[0]} of the observation"
                raise ValueError(
                    f"{what} must be a finite number, but was {numbers[:, never[0]]} in {_TRIALS} trials near the "
                    "positions of the file"
                )
        return together["observation"]

    def _all(self, step: Step) -> dict[str, np.ndarray]:
        outcome = self.reward_and_termination(step)
        observation = self.observe(step.now, step.task)
        return {"reward": outcome.rewards, "termination": outcome.terminated, "observation": observation}

    def _call(self, name: str, available: Arrays) -> Any:
        arguments = {argument: _read_only(available[argument]) for argument in self._arguments[name]}
        try:
            return self._functions[name](**arguments)
        except Exception as error:
            if isinstance(error, ValueError) and "read-only" in str(error):
                raise ValueError(
                    f"{name} must leave its arguments as they are ({error}); change a copy: qpos = qpos.copy()"
                ) from error
            *_, place = traceback.extract_tb(error.__traceback__)
            raise ValueError(
                f"{name} raised {type(error).__name__}: {error} ({place.filename}, line {place.lineno})"
            ) from error

    def _quantity(self, function: str, argument: str, known: set[str]) -> set[str]:
        """The array of MuJoCo's that an argument asks for, if any; an error where it cannot be had."""
        if argument in self._task:
            return set()
        of_steps = function != "observation"
        if of_steps and argument in _STEP_NAMES:
            return set()
        quantity = argument.removesuffix(_BEFORE) if of_steps else argument
        if quantity in known:
            return {quantity}
        if not of_steps and (argument in _STEP_NAMES or argument.removesuffix(_BEFORE) in known):
            raise ValueError(f"observation cannot have {argument!r}: there is none before the first step")
        names = {*known, *self._task, *(_STEP_NAMES if of_steps else ())}
        raise ValueError(
            f"{unknown_name(f'argument of {function}', argument, names)}. If {argument!r} is an entry of the task, "
            f"name it: MujocoEnvDefinition(..., task={{{argument!r}: 0.0}})"
        )


def _default_task(task: Any) -> dict[str, Any]:
    if not isinstance(task, Mapping):
        raise TypeError(f"task must be a dict of numbers and arrays such as {{'goal': 1.0}}, got {task!r}")
    for name, value in task.items():
        if not isinstance(name, str) or not name.isidentifier():
            raise ValueError(
                f"task must have names that arguments of functions can have, got {name!r}; entries of the model vary "
                "by TaskFamily.from_params(definition, {'body_mass:torso': (1.0, 2.0)})"
            )
        if not np.isfinite(_numbers(f"task[{name!r}]", value)).all():
            raise ValueError(f"task[{name!r}] must be finite, got {value!r}")
    return dict(task)


def _numbers(name: str, value: Any) -> np.ndarray:
    try:
        return np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} must be a number or an array of numbers, got {value!r}") from error


def _read_only(array: np.ndarray) -> np.ndarray:
    view = array.view()
    view.flags.writeable = False
    return view


def _one(part: Any, row: int) -> Any:
    if isinstance(part, Mapping):
        return {name: values[row : row + 1] for name, values in part.items()}
    return part[row : row + 1]


def _compare(name: str, together: np.ndarray, alone: np.ndarray) -> None:
    if np.array_equal(together, alone, equal_nan=True):
        return
    if not np.allclose(together, alone, equal_nan=True):
        raise ValueError(
            f"{name} must compute each simulation (row) by itself, but together it gives {together} for one that gives "
            f"{alone} alone; use axis=1 in sums and means"
        )
    warnings.warn(
        f"{name} gives other last bits for a simulation alone than for several together, so rollouts depend on how "
        "many are stepped together; write products of matrices as (a * b).sum(axis=1) or np.vecdot(a, b)",
        stacklevel=5,
    )


def _arguments_of(name: str, function: Callable[..., Any]) -> list[str]:
    if not callable(function):
        raise TypeError(f"{name} must be a function, got {function!r}")
    names = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise ValueError(f"{name} must name its arguments, for instance def {name}(qpos, qvel), got {parameter}")
        if parameter.default is parameter.empty:
            names.append(parameter.name)
    return names


def _fixed_arrays(data: Any) -> set[str]:
    """Arrays of numbers that stay where they are in MuJoCo's memory (those of constraints and contacts do not)."""
    names = [name for name in dir(data) if not name.startswith(("_", "efc_", "iefc_"))]
    arrays = {name: getattr(data, name, None) for name in names}
    return {name for name, a in arrays.items() if isinstance(a, np.ndarray) and a.dtype == np.float64 and a.size}


def _checked(name: str, values: Any, shape: tuple[Any, ...]) -> np.ndarray:
    """``values`` as an array that fits ``shape``, where ``None`` is any length and ``...`` anything that follows."""
    array = np.asarray(values)
    fits = array.shape[:1] == shape[:1] if shape[-1] is ... else len(shape) == array.ndim and array.shape[0] == shape[0]
    if not fits:
        wanted = ", ".join({None: "O", ...: "..."}.get(part, str(part)) for part in shape)
        raise ShapeError(f"{name} must return an array of shape ({wanted}), a row per simulation, got {array.shape}")
    return array


def _reals(name: str, array: np.ndarray) -> np.ndarray:
    """A copy as float64, which numbers of other kinds (complex ones, objects) would not survive."""
    if array.dtype.kind not in "biuf":
        raise TypeError(f"{name} must return an array of real numbers, got {array.dtype} {array}")
    return array.astype(np.float64)


def _action_space(model: Any) -> Box:
    """The ranges of the actuators; [-1, 1] where the file gives none."""
    low, high = model.actuator_ctrlrange.astype(np.float32).T
    limited = model.actuator_ctrllimited.astype(bool)
    return Box(np.where(limited, low, -1.0).astype(np.float32), np.where(limited, high, 1.0).astype(np.float32))
