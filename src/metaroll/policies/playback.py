"""Open-loop policies, which ignore observations: recordings, functions of time, zeros, random actions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete

from metaroll.checks import check_flag, check_list, check_number, check_whole, is_tensor
from metaroll.errors import DataError, ShapeError, unknown_name
from metaroll.policies.parameters import ParameterFreePolicy
from metaroll.types import Context, EnvSpec, PolicyInfo, PolicyState

__all__ = ["DummyPolicy", "IdlePolicy", "PlaybackPolicy", "TimePolicy"]

_CONTEXT = ("recording", "start")


class PlaybackPolicy(ParameterFreePolicy):
    """Repeats recorded actions, followed by zeros after the end of a recording.

    A context ``{"recording": k, "start": t}`` of a plan (``start`` is optional) chooses the recording of its rollout.
    Without one, as in ``rollout(env, policy)``, rollouts play the recordings in turn, each from its first action;
    with ``no_reset`` it continues where the last one ended, or at ``curr_rec`` and ``curr_step`` if these were set.
    Many rollouts at once have no order: with several recordings, or ``no_reset``, their plans need contexts.

    Args:
        env_spec: Spaces of the environment.
        act_recordings: Arrays ``(T, act_dim)``; ``(T,)`` for Discrete actions, choices counted from 0.
        no_reset: Whether ``reset`` does nothing.
    """

    def __init__(self, env_spec: EnvSpec, act_recordings: Sequence[Any], no_reset: bool = False) -> None:
        self.env_spec = EnvSpec.from_env(env_spec)
        self.no_reset = check_flag("no_reset", no_reset)
        blank = _blank_action(self.env_spec)
        listed = check_list("act_recordings", act_recordings, "arrays of actions")
        self._recordings = [_checked_recording(i, rec, blank) for i, rec in enumerate(listed)]
        if not self._recordings:
            raise ValueError("act_recordings must hold at least one recording, got none")
        self._lengths = np.array([len(recording) for recording in self._recordings])
        longest = int(self._lengths.max())
        # One extra row of zeros, for steps beyond the end of a recording.
        dtype = np.result_type(*self._recordings)
        self._table = np.zeros((len(self._recordings), longest + 1, *blank.shape), dtype=dtype)
        for row, recording in zip(self._table, self._recordings, strict=True):
            row[: len(recording)] = recording
        self._curr_rec, self._curr_step = (0 if no_reset else -1), 0

    @property
    def info(self) -> PolicyInfo:
        """Without noise and draws; observations do not matter."""
        return PolicyInfo(draws=False, looks=False)

    @property
    def act_recordings(self) -> list[np.ndarray]:
        """The recordings ``(T, act_dim)``, or ``(T,)`` of choices (copies)."""
        return [recording.copy() for recording in self._recordings]

    @property
    def curr_rec(self) -> int:
        """Index of the recording that is played in ``rollout``; -1 before the first ``reset``. Setting starts it."""
        return self._curr_rec

    @curr_rec.setter
    def curr_rec(self, curr_rec: int) -> None:
        self._curr_rec, self._curr_step = self._checked_rec("curr_rec", curr_rec), 0

    @property
    def curr_step(self) -> int:
        """Index of the next action of this recording; may be set."""
        return self._curr_step

    @curr_step.setter
    def curr_step(self, curr_step: int) -> None:
        self._curr_step = self._checked_step("curr_step", curr_step, max(self._curr_rec, 0))

    def reset(self, **kwargs: Any) -> None:
        """Go to the beginning of the next recording, unless ``no_reset``."""
        if not self.no_reset:
            self._curr_rec, self._curr_step = (self._curr_rec + 1) % len(self._recordings), 0

    def initial_state(
        self,
        contexts: Sequence[Context | None],
        generators: Sequence[np.random.Generator],
        domain_params: Sequence[Mapping[str, Any] | None] | None = None,
    ) -> PolicyState:
        """Where rollouts start, ``recording`` and ``step (N,)``, and whether they update ``curr_step``: ``own (N,)``.

        Raises:
            DataError: A context does not name the recording.
            ValueError: Rollouts at once need contexts and have none, or there is no such recording or step.
        """
        if len(contexts) > 1 and (self.no_reset or len(self._recordings) > 1) and not all(contexts):
            raise ValueError(
                "parallel rollouts have no order in which to play recordings; choose one in each plan: "
                "RolloutPlan(context={'recording': 0, 'start': 0})"
            )
        distinct = {id(context): context for context in contexts if context}
        places = {key: self._place(context) for key, context in distinct.items()}
        starts = [places[id(context)] if context else self._place(context) for context in contexts]
        rows = np.array(starts, dtype=np.int64).reshape(-1, 2)
        own = np.array([not context for context in contexts])
        return {"recording": rows[:, 0], "step": rows[:, 1], "own": own}

    def act(
        self,
        obs: np.ndarray,
        state: PolicyState,
        noise: np.ndarray,
        deterministic: bool | np.ndarray = False,
        parameters: np.ndarray | None = None,
    ) -> tuple[np.ndarray, PolicyState, dict[str, np.ndarray]]:
        """See ``types.Policy.act``; without infos."""
        recording, step = state["recording"], state["step"]
        last, common = self._table.shape[1] - 1, int(step[0]) if len(step) else 0
        if np.count_nonzero(step == common) == len(step):  # half the time
            actions = self._table[:, min(common, last)].take(recording, axis=0)
        else:
            actions = self._table[recording, np.minimum(step, last)]
        if len(step) == 1 and state["own"][0]:
            self._curr_step = min(int(step[0]) + 1, int(self._lengths[recording[0]]))
        return actions, {**state, "step": step + 1}, {}

    # -- helpers ---------------------------------------------------------------------------------------------------

    def _place(self, context: Context | None) -> tuple[int, int]:
        if not context:
            self.reset()
            return self._curr_rec, self._curr_step
        for name in context:
            if name not in _CONTEXT:
                raise unknown_name("context of a PlaybackPolicy", name, _CONTEXT)
        if "recording" not in context:
            raise DataError("context of a PlaybackPolicy must have 'recording', the index of what is played")
        recording = self._checked_rec("context['recording']", context["recording"])
        return recording, self._checked_step("context['start']", context.get("start", 0), recording)

    def _checked_rec(self, name: str, value: Any) -> int:
        return check_whole(name, np.asarray(value).item(), 0, len(self._recordings) - 1)

    def _checked_step(self, name: str, value: Any, recording: int) -> int:
        high = int(self._lengths[recording])
        return check_whole(f"{name} (of recording {recording})", np.asarray(value).item(), 0, high)


class IdlePolicy(ParameterFreePolicy):
    """Does nothing: actions are zeros.

    Args:
        env_spec: Spaces of the environment.
    """

    def __init__(self, env_spec: EnvSpec) -> None:
        self.env_spec = EnvSpec.from_env(env_spec)
        self._blank = _blank_action(self.env_spec)

    @property
    def info(self) -> PolicyInfo:
        """Without noise and draws; observations do not matter."""
        return PolicyInfo(draws=False, looks=False)

    def act(
        self,
        obs: np.ndarray,
        state: PolicyState,
        noise: np.ndarray,
        deterministic: bool | np.ndarray = False,
        parameters: np.ndarray | None = None,
    ) -> tuple[np.ndarray, PolicyState, dict[str, np.ndarray]]:
        """See ``types.Policy.act``; without infos."""
        return np.zeros((len(noise), *self._blank.shape), dtype=self._blank.dtype), state, {}


class DummyPolicy(ParameterFreePolicy):
    """Uniformly random actions from the action space, in evaluations as well.

    Args:
        env_spec: Spaces of the environment; a Box must be bounded.
    """

    def __init__(self, env_spec: EnvSpec) -> None:
        self.env_spec = EnvSpec.from_env(env_spec)
        blank = _blank_action(self.env_spec)
        space = self.env_spec.action_space
        if isinstance(space, Box) and not space.is_bounded():
            raise ValueError(f"env_spec must have bounded actions to draw them uniformly, got {space}")
        self._num_numbers = blank.size

    @property
    def info(self) -> PolicyInfo:
        """One uniform number per entry of an action, in evaluations as well."""
        return PolicyInfo(self._num_numbers, "uniform", draws=False, looks=False, always_random=True)

    def act(
        self,
        obs: np.ndarray,
        state: PolicyState,
        noise: np.ndarray,
        deterministic: bool | np.ndarray = False,
        parameters: np.ndarray | None = None,
    ) -> tuple[np.ndarray, PolicyState, dict[str, np.ndarray]]:
        """See ``types.Policy.act``; without infos."""
        space, uniform = self.env_spec.action_space, noise.astype(np.float64)
        if isinstance(space, Discrete):
            return np.floor(uniform[:, 0] * int(space.n)).astype(np.int64), state, {}
        low, high = space.low.reshape(-1).astype(np.float64), space.high.reshape(-1).astype(np.float64)  # type: ignore[attr-defined]
        return low + (high - low) * uniform, state, {}


class TimePolicy(ParameterFreePolicy):
    """A policy by a function of time.

    Args:
        env_spec: Spaces of the environment.
        function: ``function(t) -> action (act_dim,)``, where t is in s since the beginning of the rollout.
        dt: Length of a step in s, ``env.dt``.
    """

    def __init__(self, env_spec: EnvSpec, function: Callable[[float], Any], dt: float) -> None:
        self.env_spec = EnvSpec.from_env(env_spec)
        if not callable(function):
            raise TypeError(f"function must be callable as function(t), got {type(function).__name__}")
        self.function = function
        self.dt = check_number("dt", dt, 0.0, above_low=True)
        self._blank = _blank_action(self.env_spec)

    @property
    def info(self) -> PolicyInfo:
        """Without noise and draws; observations do not matter."""
        return PolicyInfo(draws=False, looks=False)

    def initial_state(
        self,
        contexts: Sequence[Context | None],
        generators: Sequence[np.random.Generator],
        domain_params: Sequence[Mapping[str, Any] | None] | None = None,
    ) -> PolicyState:
        """Steps since the beginning, ``{"step": (N,)}``."""
        return {"step": np.zeros(len(contexts), dtype=np.int64)}

    def act(
        self,
        obs: np.ndarray,
        state: PolicyState,
        noise: np.ndarray,
        deterministic: bool | np.ndarray = False,
        parameters: np.ndarray | None = None,
    ) -> tuple[np.ndarray, PolicyState, dict[str, np.ndarray]]:
        """See ``types.Policy.act``; without infos."""
        steps, rows = np.unique(state["step"], return_inverse=True)
        actions = np.stack([self._action(step * self.dt) for step in steps.tolist()])
        return actions[rows], {"step": state["step"] + 1}, {}

    def _action(self, time: float) -> np.ndarray:
        action = np.asarray(self.function(time), dtype=self._blank.dtype)
        if action.size != self._blank.size:
            raise ShapeError(
                f"function must return actions of shape {self._blank.shape}, got {action.shape} at {time} s"
            )
        return action.reshape(self._blank.shape)


def _blank_action(env_spec: EnvSpec) -> np.ndarray:
    """Zeros in the shape of one flat action."""
    space = env_spec.action_space
    if isinstance(space, Box):
        return np.zeros(env_spec.act_dim)
    if isinstance(space, Discrete):
        return np.zeros((), dtype=np.int64)
    raise TypeError(f"env_spec must have a Box or Discrete space of actions, got {space}")


def _checked_recording(index: int, recording: Any, blank: np.ndarray) -> np.ndarray:
    array = np.array(recording.detach().cpu().numpy() if is_tensor(recording) else recording)
    if array.ndim != 1 + blank.ndim or array.shape[1:] != blank.shape or not len(array):
        wanted = "(T,)" if blank.ndim == 0 else f"(T, {blank.size})"
        raise ShapeError(f"act_recordings[{index}] must have shape {wanted} with T of at least 1, got {array.shape}")
    if array.dtype.kind not in ("iu" if blank.ndim == 0 else "iuf"):
        kind = "choices" if blank.ndim == 0 else "numbers"
        raise TypeError(f"act_recordings[{index}] must hold {kind}, got {array.dtype}")
    if not np.isfinite(array).all():
        raise ValueError(f"act_recordings[{index}] must be finite")
    return array if array.dtype.kind == "f" or blank.ndim == 0 else array.astype(np.float64)
