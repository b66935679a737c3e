"""Small environments whose rules are functions of arrays: one alone, or many stepped together, with the same bits."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import gymnasium
import numpy as np
from gymnasium.spaces import Discrete

from metaroll.errors import ShapeError
from metaroll.seeding import plan_env_seed
from metaroll.tasks.updates import SetTaskUpdate
from metaroll.types import EnvSpec, EnvUpdate, RolloutPlan, SlotStep, TaskNote

__all__ = ["ArrayStep", "BatchedEnv", "BatchedSlots"]

_BLOCK = 64
"""Steps for which noise is drawn at a time, alone and together."""


class ArrayStep(NamedTuple):
    """What ``BatchedEnv.advance`` returns for N copies.

    ``state (N, S)``, ``reward (N,)`` float64, ``infos`` name -> ``(N,)``, and ``terminated (N,)``, where ``None`` means
    that none has ended.
    """

    state: np.ndarray
    reward: np.ndarray
    infos: Mapping[str, np.ndarray] = {}
    terminated: np.ndarray | None = None


class BatchedEnv(gymnasium.Env, ABC):
    """An environment that is the batch of width 1 of rules written for N copies, so that ``BatchedSlots`` equals it.

    A subclass says what a task holds (``checked_task``), where episodes start (``draw_state``), what is seen
    (``observe``) and what a step does (``advance``), and offers ``sample_tasks(num_tasks, generator)``.

    ``reset(options={"init_state": (S,)})`` chooses the first state.

    Args:
        env_spec: Its spaces and labels.
        task: The task in force before the first ``set_task``.
        render_mode: ``None``, or one of those in ``metadata`` (here there are none).
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 (Gymnasium's own declaration)
    state_dim: ClassVar[int]
    state_dtype: ClassVar[type] = np.float64
    noise_dim: ClassVar[int] = 0
    """Random numbers that a step needs."""

    def __init__(self, env_spec: EnvSpec, task: Mapping[str, Any], render_mode: str | None = None) -> None:
        modes = self.metadata["render_modes"]
        if render_mode is not None and render_mode not in modes:
            drawn = " or ".join(map(repr, modes))
            expected = f"None or {drawn}" if drawn else f"None, {type(self).__name__} draws nothing"
            raise ValueError(f"render_mode must be {expected}, got {render_mode!r}")
        self.render_mode = render_mode
        self.env_spec = env_spec
        self.observation_space, self.action_space = env_spec.observation_space, env_spec.action_space
        self._task = self.checked_task(task)
        self._rows = _Rows(self, 1)
        self._started = False

    # -- rules, for N copies ------------------------------------------------------------------------------------------

    @abstractmethod
    def checked_task(self, task: Any) -> dict[str, np.ndarray]:
        """The numbers of ``task`` by name, in memory of their own, or an error that says what is wrong with it."""

    @abstractmethod
    def draw_state(self, generator: np.random.Generator) -> np.ndarray:
        """Where an episode starts, ``(S,)``."""

    @abstractmethod
    def observe(self, state: np.ndarray) -> np.ndarray:
        """What is seen of ``state (N, S)``: ``(N, ...)``, in fresh memory."""

    @abstractmethod
    def advance(
        self, state: np.ndarray, actions: np.ndarray, constants: Mapping[str, np.ndarray], noise: np.ndarray
    ) -> ArrayStep:
        """One step of N copies; arguments are not changed, and no row depends on another.

        Args:
            state: Shape ``(N, S)``.
            actions: Shape ``(N, ...)``, checked.
            constants: ``constants_of`` the tasks, stacked.
            noise: Shape ``(N, K)``, from ``draw_noise``.
        """

    def constants_of(self, task: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """What steps need of a checked task; by default all of it."""
        return task

    def draw_noise(self, generator: np.random.Generator, num_steps: int) -> np.ndarray:
        """Random numbers ``(num_steps, K)`` of the next steps of one copy; by default uniform on [0, 1)."""
        return generator.random((num_steps, self.noise_dim))

    def checked_state(self, init_state: Any) -> np.ndarray:
        """``init_state`` as a state ``(S,)``, or an error that says what is wrong with it."""
        state = np.array(init_state, dtype=np.float64)
        if state.shape != (self.state_dim,):
            raise ShapeError(f"init_state must have shape ({self.state_dim},), got {state.shape}")
        if not np.isfinite(state).all():
            raise ValueError(f"init_state must be finite, got {state}")
        return state.astype(self.state_dtype)

    # -- Gymnasium's interface, and what the engine asks --------------------------------------------------------------

    def set_task(self, task: Mapping[str, Any]) -> None:
        """Put ``task`` into force at once."""
        self._task = self.checked_task(task)
        self._rows.set_constants(0, self.constants_of(self._task))

    def get_task(self) -> dict[str, np.ndarray]:
        """The task in force."""
        return {name: value.copy() for name, value in self._task.items()}

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start an episode; ``options["init_state"]`` is its first state."""
        super().reset(seed=seed)
        self._rows.begin(self, 0, (options or {}).get("init_state"), self.np_random)
        self._started = True
        self.take_note(begins=True)
        return self.current_observation(), {}

    def current_observation(self) -> np.ndarray:
        """What is seen now."""
        if not self._started:
            raise gymnasium.error.ResetNeeded("reset() must be called before current_observation()")
        return self.observe(self._rows.state)[0]

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """One step."""
        if not self._started:
            raise gymnasium.error.ResetNeeded("reset() must be called before step()")
        action = np.asarray(action)
        if action.shape != self.action_space.shape:
            raise ShapeError(f"action must have shape {self.action_space.shape}, got {action.shape}")
        reward, terminated, infos = self._rows.step(self, action[None], np.ones(1, dtype=bool))
        self.take_note()
        told = {name: values[0].item() for name, values in infos.items()}
        return self.current_observation(), float(reward[0]), bool(terminated[0]), False, told

    @property
    def current_state(self) -> np.ndarray:
        """The state now, ``(S,)``, in memory of its own."""
        return self._rows.state[0].copy()

    def take_note(self, begins: bool = False) -> None:
        """Called after every step, and where an episode ``begins``, for pictures that show what has been.

        Many that are stepped as arrays do not call it.
        """

    def batched_slots(self, num_slots: int) -> BatchedSlots:
        """Many of this environment, stepped as arrays."""
        return BatchedSlots(num_slots, self)

    def accepts_update(self, update: EnvUpdate | None) -> bool:
        """Whether ``BatchedSlots`` can apply ``update``: nothing, or a task of this class, without wrappers."""
        if update is None or isinstance(update, TaskNote):
            return True
        return (
            isinstance(update, SetTaskUpdate) and update.env_type is type(self) and update.wrapper_constructor is None
        )


class BatchedSlots:
    """Copies of a ``BatchedEnv`` stepped together: task and start of each slot come from its plan.

    Args:
        num_slots: How many.
        env: The environment of a plan without ``env_update``; it is not stepped.
    """

    def __init__(self, num_slots: int, env: BatchedEnv) -> None:
        if num_slots < 1:
            raise ValueError(f"num_slots must be at least 1, got {num_slots}")
        self.num_slots = num_slots
        self.env_spec = env.env_spec
        self.name = type(env).__name__
        self._env = env
        self._own_constants = env.constants_of(env.get_task())
        self._rows = _Rows(env, num_slots)

    def reset(self, slots: Sequence[int], plans: Sequence[RolloutPlan]) -> np.ndarray:
        """Start ``plans[i]`` in slot ``slots[i]``; first observations ``(len(slots), ...)``."""
        for slot, plan in zip(slots, plans, strict=True):
            if plan.seed is None:
                raise ValueError(
                    "plan.seed must be set before a slot is reset: the engine resolves it to a seed triple"
                )
            self._rows.set_constants(slot, self._constants_of(plan.env_update))
            generator = np.random.Generator(np.random.PCG64(plan_env_seed(plan.seed)))  # as Gymnasium seeds
            self._rows.begin(self._env, slot, plan.init_state, generator)
        return self._env.observe(self._rows.state[list(slots)])

    def step(self, actions: np.ndarray, active: np.ndarray) -> SlotStep:
        """Step active slots with their rows of ``actions (E, ...)``."""
        actions = np.asarray(actions)
        expected = (self.num_slots, *(self._env.action_space.shape or ()))
        if actions.shape != expected:
            raise ShapeError(f"actions must have shape {expected}, got {actions.shape}")
        reward, terminated, infos = self._rows.step(self._env, actions, np.asarray(active, dtype=bool))
        observations = self._env.observe(self._rows.state)
        return SlotStep(observations, reward, terminated, np.zeros(self.num_slots, dtype=bool), infos)

    def close(self) -> None:
        """Nothing to release."""

    def _constants_of(self, update: EnvUpdate | None) -> dict[str, np.ndarray]:
        if not self._env.accepts_update(update):
            kind = type(self._env).__name__
            raise TypeError(
                f"batched {kind} takes SetTaskUpdate({kind}, task) without a wrapper, got {update!r}; "
                "step a list of environments: make_slots(..., plans=plans)"
            )
        if not isinstance(update, SetTaskUpdate):
            return self._own_constants
        return self._env.constants_of(self._env.checked_task(update.task))


class _Rows:
    """State, task and noise of N copies of an environment."""

    def __init__(self, env: BatchedEnv, num: int) -> None:
        self.state = np.zeros((num, env.state_dim), dtype=env.state_dtype)
        self._constants = {
            name: np.repeat(value[None], num, axis=0) for name, value in env.constants_of(env.get_task()).items()
        }
        self._noise = np.zeros((num, _BLOCK, env.noise_dim))
        self._used = np.full(num, _BLOCK)
        self._generators: list[np.random.Generator | None] = [None] * num

    def set_constants(self, row: int, constants: Mapping[str, np.ndarray]) -> None:
        for name, value in constants.items():
            self._constants[name][row] = value

    def begin(self, env: BatchedEnv, row: int, init_state: Any, generator: np.random.Generator) -> None:
        """Start an episode, of which ``generator`` is all randomness."""
        self.state[row] = env.draw_state(generator) if init_state is None else env.checked_state(init_state)
        self._generators[row] = generator
        self._used[row] = _BLOCK

    def step(
        self, env: BatchedEnv, actions: np.ndarray, active: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, Mapping[str, np.ndarray]]:
        """Rewards, endings and infos, zero for rows that are not active, which stay as they are."""
        actions = _checked_choices(env.action_space, actions, active)
        state, reward, infos, terminated = env.advance(
            self.state, actions, self._constants, self._next_noise(env, active)
        )
        terminated = np.zeros(len(active), dtype=bool) if terminated is None else terminated
        if not active.all():
            state = np.where(active[:, None], state, self.state)
            reward, terminated = np.where(active, reward, 0.0), terminated & active
            infos = {name: np.where(active, values, np.zeros_like(values)) for name, values in infos.items()}
        self.state = state
        return reward, terminated, infos

    def _next_noise(self, env: BatchedEnv, active: np.ndarray) -> np.ndarray:
        if env.noise_dim == 0:
            return self._noise[:, 0]
        for row in np.flatnonzero(active & (self._used == _BLOCK)):
            generator = self._generators[row]
            if generator is None:
                raise RuntimeError(f"slot {row} must be reset before it is stepped")
            self._noise[row], self._used[row] = env.draw_noise(generator, _BLOCK), 0
        noise = self._noise[np.arange(len(active)), np.minimum(self._used, _BLOCK - 1)]
        self._used += active
        return noise


def _checked_choices(space: gymnasium.Space, actions: np.ndarray, active: np.ndarray) -> np.ndarray:
    """Actions of a Discrete space ``(N,)`` that can be used as indices; others are left alone."""
    if not isinstance(space, Discrete):
        return actions
    if actions.dtype.kind not in "iu":
        raise TypeError(f"actions must be whole numbers below {space.n}, got {actions.dtype}")
    wrong = active & ((actions < 0) | (actions >= space.n))
    if wrong.any():
        raise ValueError(f"actions must lie between 0 and {space.n - 1}, got {actions[wrong][0]}")
    return np.where(active, actions, 0)
