"""One simulation as a Gymnasium environment; it is the batched computation of width 1."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from gymnasium.spaces import Box

from metaroll.envs.base.batched_env import BatchedEnv
from metaroll.envs.sims.config import SimConfig
from metaroll.envs.sims.model import SimModel
from metaroll.envs.sims.simulator import SimSimulator, SimSlots, SimState
from metaroll.envs.sims.tasks import NoTask, SimTask
from metaroll.errors import ShapeError, unknown_name

__all__ = ["SimEnv"]

_MOST_OFF = 0.5
"""Distance that an observation may have from those of all states: a noisy sine and cosine lie off the unit circle."""
_OPTIONS = ("domain_param", "init_state", "max_steps")


class _NominalParams:
    """A method that can be called on an instance (a cart-pole with the pole that was chosen) and on the class."""

    def __get__(self, env: SimEnv | None, kind: Any) -> Callable[[], dict[str, float]]:
        def nominal() -> dict[str, float]:
            try:
                own = kind() if env is None else env
            except TypeError as error:
                raise TypeError(
                    f"{kind.__name__} has no nominal domain parameters without arguments ({error}); ask an instance"
                ) from error
            return own.model.nominal

        return nominal


class SimEnv(BatchedEnv):
    """A simulated system with a task.

    The reward of a step is that of the state before it and of the action as it was given; the system gets the action
    within its bounds, which ``info["act_applied"]`` reports. ``terminated`` means success, or a state outside of
    ``state_space`` (which the last observation then shows), ``truncated`` the horizon.

    ``reset(seed, options)`` takes the options ``init_state``, a state ``(S,)`` or an element of the model's own space
    of initial states, ``domain_param``, a dict, which stays current, and ``max_steps``, where this episode is cut off
    if that is before the horizon. All that can be set survives copying and pickling.

    Args:
        model: The physics.
        task: Rewards.
        dt: Length of a step in s; ``None`` means the model's.
        max_steps: Horizon, a whole number or infinity; ``None`` means the model's.
        domain_param: Domain parameters that differ from the nominal ones.
        init_space: See the attribute.
        render_mode: ``None`` or ``"rgb_array"``.
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 50}  # noqa: RUF012 (Gymnasium's own)

    def __init__(
        self,
        model: SimModel,
        task: SimTask,
        *,
        dt: float | None = None,
        max_steps: float | None = None,
        domain_param: Mapping[str, Any] | None = None,
        init_space: Any = None,
        render_mode: str | None = None,
    ) -> None:
        if not isinstance(model, SimModel):
            raise TypeError(f"model must be a SimModel, got {type(model).__name__}")
        own_options = {
            "dt": model.dt if dt is None else dt,
            "max_steps": model.max_steps if max_steps is None else max_steps,
        }
        config = SimConfig(model, NoTask(), model.dt, model.max_steps, model.nominal)
        config = config.with_(task=task, params=domain_param or {}, initial=init_space, **own_options)
        super().__init__(SimSimulator(config, name=type(self).__name__), render_mode)

    # -- configuration -----------------------------------------------------------------------------------------------

    @property
    def config(self) -> SimConfig:
        """All of the configuration, as an immutable object."""
        return self.simulator.config

    @property
    def plan_options(self) -> tuple[str, ...]:
        """Plan options that a reset needs: the step limit, if rewards count the remaining steps."""
        return ("max_steps",) if self.task.needs_horizon else ()

    @property
    def model(self) -> SimModel:
        """The physics."""
        return self.config.model

    @property
    def task(self) -> SimTask:
        """Rewards; may be set."""
        return self.config.task

    @task.setter
    def task(self, task: SimTask) -> None:
        self._change(task=task)

    @property
    def dt(self) -> float:
        """Length of a step in s; may be set."""
        return self.config.dt

    @dt.setter
    def dt(self, dt: float) -> None:
        self._change(dt=dt)

    @property
    def max_steps(self) -> float:
        """Horizon: a whole number, or infinity; may be set."""
        return self.config.max_steps

    @max_steps.setter
    def max_steps(self, max_steps: float) -> None:
        self._change(max_steps=max_steps)

    @property
    def init_space(self) -> Any:
        """Where episodes start: a ``Box``, a state, or a list of states to choose from with equal chances.

        ``None`` means the model's own, which is shown as the ``Box`` around it. What is set holds until it is set
        again, also when the domain parameters change.
        """
        own = self.config.initial.shown()
        return Box(*self.config.initial_bounds(), dtype=np.float64) if own is None else own

    @init_space.setter
    def init_space(self, init_space: Any) -> None:
        self._change(initial=init_space)

    @property
    def domain_param(self) -> dict[str, float]:
        """All domain parameters (a copy); setting a dict changes those it names."""
        return dict(self.config.params)

    @domain_param.setter
    def domain_param(self, params: Mapping[str, Any]) -> None:
        self._change(params=params)

    get_nominal_domain_param = _NominalParams()
    """Domain parameters of the undisturbed system, a dict; called on the class: as it is by default."""

    @property
    def supported_domain_param(self) -> tuple[str, ...]:
        """Names of all domain parameters."""
        return tuple(self.model.nominal)

    @property
    def state_space(self) -> Box:
        """States in which the task has not failed."""
        return self.env_spec.state_space  # type: ignore[return-value]

    @property
    def obs_space(self) -> Box:
        """The same as ``observation_space``."""
        return self.observation_space  # type: ignore[return-value]

    @property
    def act_space(self) -> Box:
        """The same as ``action_space``."""
        return self.action_space  # type: ignore[return-value]

    # -- episodes ----------------------------------------------------------------------------------------------------

    @property
    def state(self) -> np.ndarray | None:
        """The present state ``(S,)`` (a copy); ``None`` before the first reset."""
        return self._state_row() if self._started else None

    @property
    def curr_step(self) -> int:
        """Steps since the last reset."""
        return int(self._rows.ages[0])

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start an episode (see the class for the options)."""
        options = options or {}
        for name in options:
            if name not in _OPTIONS:
                raise unknown_name("option of reset", str(name), _OPTIONS)
        if options.get("init_state") is not None:
            self.simulator.check_init_state(options["init_state"])
        if options.get("domain_param") is not None:
            self._change(params=options["domain_param"])
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """One step with ``action (A,)``, which is left unchanged."""
        action = np.asarray(action, dtype=np.float64)
        if np.isnan(action).any():
            self.check_started("step()")
            raise ValueError(f"action must not be NaN, got {action.tolist()}; the environment has not moved")
        return super().step(action)

    def observe(self, state: np.ndarray) -> np.ndarray:
        """The observation of ``state (S,)``."""
        state = np.asarray(state, dtype=np.float64)
        if state.shape != (len(self.model.state_labels),):
            raise ShapeError(f"state must have shape ({len(self.model.state_labels)},), got {state.shape}")
        return np.concatenate(self.model.observe(tuple(state[:, None]), np))

    def state_from_observation(self, observations: np.ndarray) -> np.ndarray:
        """The states ``(..., S)`` that show ``observations (..., O)``; see ``SimModel.state_from_observation``.

        Raises:
            NotImplementedError: The observation does not determine the state.
            ValueError: An observation is not finite, or is none of this system, far off what any state shows.
        """
        array, labels = np.asarray(observations, dtype=np.float64), self.model.observation_labels
        if array.ndim == 0 or array.shape[-1] != len(labels):
            raise ShapeError(
                f"observations must have shape (..., {len(labels)}) ({', '.join(labels)}), got {array.shape}"
            )
        rows = array.reshape(-1, len(labels))
        columns = tuple(np.ascontiguousarray(rows.T))
        states = np.stack(self.model.state_from_observation(columns, np), axis=-1)
        shown = np.stack(self.model.observe(tuple(states.T), np), axis=-1)
        wrong = np.argwhere(~(np.abs(shown - rows) <= _MOST_OFF))
        if len(wrong):
            row, entry = wrong[0]
            where = "" if array.ndim == 1 else f" in row {row}"
            if not np.isfinite(rows[row, entry]):
                raise ValueError(f"observations must be finite, {labels[entry]!r} is {rows[row, entry]}{where}")
            raise ValueError(
                f"no state of the {self.model.name} shows {labels[entry]} = {rows[row, entry]:g}{where}: the nearest "
                f"one shows {shown[row, entry]:g}; check units and the order of columns"
            )
        return states.reshape(*array.shape[:-1], len(self.model.state_labels))

    def limit_act(self, act: np.ndarray) -> np.ndarray:
        """``act (A,)`` within its bounds (a copy)."""
        space, act = self.act_space, np.asarray(act, dtype=np.float64)
        if act.shape != space.shape:
            raise ShapeError(f"act must have shape {space.shape}, got {act.shape}")
        return np.clip(act, space.low, space.high)

    def energy(self) -> float:
        """Mechanical energy of the current state in J, for the models that know theirs."""
        self.check_started("energy()")
        state: SimState = self._rows.state
        return float(self.model.energy(state.values, self.config.constants(), np)[0])

    def picture(self) -> np.ndarray:
        """The present state, uint8 ``(H, W, 3)``."""
        from metaroll.envs.sims.drawing import draw

        memory = np.array([column[0] for column in self._rows.state.memory])
        return draw(self.model, self._state_row(), memory, self.domain_param)

    def close(self) -> None:
        """Nothing to release."""

    def __repr__(self) -> str:
        nominal = self.model.nominal
        changed = {name: value for name, value in self.domain_param.items() if value != nominal[name]}
        params = f", domain_param={changed}" if changed else ""
        return f"<{type(self).__name__}: {self.model.name}, dt={self.dt:g}, max_steps={self.max_steps}{params}>"

    def batched_slots(self, num_slots: int) -> SimSlots:
        """Many of this environment, stepped as arrays (defined here, beside ``step``: see ``has_simulator``)."""
        return SimSlots(num_slots, self)

    # -- helpers -----------------------------------------------------------------------------------------------------

    def _change(self, **changes: Any) -> None:
        """Continue with another configuration from the current state."""
        config, before = self.config.with_(**changes), self._rows
        self.use(SimSimulator(config, name=type(self).__name__))
        self._rows.resume(before, before.state._replace(horizon=np.array([config.max_steps], dtype=np.float64)))

    def _state_row(self) -> np.ndarray:
        return self.simulator.state_rows(self._rows.state, np)[0]
