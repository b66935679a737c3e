"""A real device as an environment."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NoReturn

import gymnasium
import numpy as np
from gymnasium.spaces import Box

from metaroll.checks import check_instance, check_number, check_path, check_whole
from metaroll.data.step_sequence import StepSequence
from metaroll.errors import DeviceError, unknown_name
from metaroll.lab.real.episode_record import EpisodeRecord
from metaroll.lab.real.limits import DeviceLimits
from metaroll.lab.real.packets import Packet, PacketReader
from metaroll.lab.real.stopping import Watchdog, stop_at_exit, stop_for_sure
from metaroll.lab.real.timing import Clock, MonotonicClock, RateControl, Timing
from metaroll.types import Device, EnvSpec

__all__ = ["RealEnv"]

_START_TIMEOUT = 5.0
_TIME_TO_SYNC = 0.02
"""Seconds; syncing to disk takes some milliseconds."""


class RealEnv(gymnasium.Env, Device):
    """A device: actions are sent at fixed times, observations come back; its domain parameters are unknown.

    A subclass implements ``send`` and ``receive``. Step k sends its action at once, waits until ``(k + 1) * dt`` after
    the first observation, and returns the newest packet. If none has arrived it waits ``timeout`` longer, and then
    repeats the last observation (info ``repeated``), at most ``max_lost`` times in a row. Steps that take too long are
    counted (``timing``) and do not delay later ones.

    The stop action is sent in all of these cases: an episode ends, is truncated, or is left by ``reset`` or ``close``;
    an observation leaves ``observation_limits``, or a function of ``stop_when`` returns true (``halted_by`` says why);
    anything raises in a step, including Ctrl-C; no step is taken for ``watchdog`` seconds; the program ends. A power
    cut or ``kill -9`` cannot be handled: the device needs its own watchdog.

    With ``log_dir``, each episode is written to ``episode_0000.jsonl``, ..., every step before the next one begins.
    ``metaroll.lab.load_log`` reads it, also after a crash. Infos of steps: ``act_applied``, ``time`` in s,
    ``repeated``, ``late``, ``overrun`` in s, ``stopped``.

    Args:
        env_spec: Box spaces ``(O,)`` and ``(A,)``, labels, and the number of steps after which episodes are truncated.
        dt: Seconds per step.
        stop_action: Action that makes the device safe, ``(A,)``; ``None`` means zeros.
        on_limit: Whether actions outside of the action space are clipped, or refused with an error (after the stop
            action). NaN is always refused.
        observation_limits: Label (or position) -> ``(low, high)``: outside of it the episode is terminated.
        stop_when: Functions of the observation ``(O,)``, called before and after each step; if one returns true (or
            a reason), the episode is truncated. ``StopKey`` is one.
        timeout: Seconds to wait for a late observation; ``None`` means half of ``dt``.
        max_lost: Lost observations in a row that are bridged.
        watchdog: Seconds without a step after which the device is stopped; ``None`` means never.
        log_dir: Folder of the logs; ``None`` writes none.
        sync: Wait until each step is on disk, while the next one waits for its time, so that the log also survives
            a power cut; ``None``: only if a step has time for it (20 ms).
        clock: Replaces the clock in tests.

    Attributes:
        halted_by: Why the last episode has ended.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 (Gymnasium's own declaration)
    plan_options = ("max_steps",)  # for the device, a truncated rollout has ended

    def __init__(
        self,
        env_spec: EnvSpec,
        dt: float,
        *,
        stop_action: Any = None,
        on_limit: Literal["clip", "refuse"] = "clip",
        observation_limits: Mapping[str | int, tuple[float, float]] | None = None,
        stop_when: Sequence[Callable[[np.ndarray], Any]] = (),
        timeout: float | None = None,
        max_lost: int = 3,
        watchdog: float | None = 2.0,
        log_dir: str | Path | None = None,
        sync: bool | None = None,
        clock: Clock | None = None,
    ) -> None:
        check_instance("env_spec", env_spec, EnvSpec, "an EnvSpec")
        self.env_spec, self.dt = env_spec, check_number("dt", dt, 0.0, above_low=True)
        self._limits = DeviceLimits(env_spec, stop_action, on_limit, observation_limits or {}, stop_when)
        self.observation_space, self.action_space = env_spec.observation_space, env_spec.action_space
        self.stop_action = self._limits.stop_action
        self._clock = MonotonicClock() if clock is None else clock
        self._timeout = 0.5 * self.dt if timeout is None else check_number("timeout", timeout, 0.0)
        lost, shape = check_whole("max_lost", max_lost, 0), self.obs_space.shape
        self._packets = PacketReader(self.receive, shape, self._clock, self._timeout, lost)
        self._watchdog_seconds = None if watchdog is None else check_number("watchdog", watchdog, 0.0, above_low=True)
        self._log_dir, self._sync = None if log_dir is None else check_path("log_dir", log_dir), sync
        self._rate = RateControl(self.dt, self._clock)
        self._lock = threading.RLock()  # the watchdog also sends
        self._acting, self._stopped, self._closed, self.halted_by = False, True, False, "it has not been reset"
        self._watchdog = Watchdog(None, self._bark)
        self._record = EpisodeRecord(type(self).__name__, env_spec, self.dt, None, False)
        self._limit, self._last = float("inf"), np.zeros(shape)

    # -- the device ---------------------------------------------------------------------------------------------------

    @abstractmethod
    def send(self, action: np.ndarray) -> None:
        """Send an action ``(A,)`` to the device, without waiting for its effect."""

    @abstractmethod
    def receive(self, timeout: float) -> Packet | None:
        """The next packet that has not been returned yet; ``None`` if none has arrived after ``timeout`` seconds.

        With ``timeout=0``: a packet that has arrived already. ``reset`` first calls it until nothing is left.
        """

    def prepare(self) -> None:
        """Move the device to where an episode starts (homing); from then on it must send observations."""

    def stop(self) -> None:
        """Make the device safe; by default sends the stop action."""
        self.send(self.stop_action)

    def disconnect(self) -> None:
        """Release the connection; called once, after the device has been stopped."""

    def reward(self, observation: np.ndarray, action: np.ndarray, next_observation: np.ndarray) -> float:
        """Reward of a step, for the action as it was passed to ``step``; by default 0."""
        return 0.0

    def is_terminal(self, observation: np.ndarray) -> bool:
        """Whether the task ends at this observation; by default never."""
        return False

    # -- what is known of it ------------------------------------------------------------------------------------------

    @property
    def obs_space(self) -> Box:
        """The same as ``observation_space``."""
        return self.observation_space  # type: ignore[return-value]

    @property
    def act_space(self) -> Box:
        """The same as ``action_space``."""
        return self.action_space  # type: ignore[return-value]

    @property
    def curr_step(self) -> int:
        """Steps since the last reset."""
        return len(self._record)

    @property
    def timing(self) -> Timing:
        """Timing of the steps of this episode (a copy)."""
        return replace(self._packets.timing)

    @property
    def log_path(self) -> Path | None:
        """Log of this episode."""
        return self._record.path

    def recorded(self) -> StepSequence | None:
        """The episode so far; ``None`` before its first step."""
        return self._record.rollout()

    def limit_act(self, act: Any) -> np.ndarray:
        """``act (A,)`` within its bounds (a copy)."""
        return self._limits.clipped(self._limits.checked(act))

    def current_observation(self) -> np.ndarray:
        """The last observation (a copy)."""
        return self._last.copy()

    def set_domain_param(self, params: Mapping[str, float]) -> NoReturn:
        """Raise an error: the domain parameters of a device cannot be set.

        Raises:
            TypeError: Always.
        """
        raise TypeError(f"domain parameters of a real device are not known, {list(params)} cannot be set")

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError("a real device cannot be copied or sent to a worker; use rollout(env, policy)")

    # -- episodes -----------------------------------------------------------------------------------------------------

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start an episode; the option ``max_steps`` truncates it.

        Raises:
            DeviceError: No observation arrives.
            ValueError: An option would change something that cannot be changed.
        """
        super().reset(seed=seed)
        if self._closed:
            raise DeviceError(f"{type(self).__name__} has been closed; make a new one")
        self.halt("reset() began another episode")
        for name in options or {}:
            if name in ("init_state", "domain_param"):
                raise ValueError(f"{name} of a real device cannot be set; leave it out, and place the device by hand")
            if name != "max_steps":
                raise unknown_name("option of reset", str(name), ("max_steps",))
        limits = ((options or {}).get("max_steps"), self.env_spec.max_episode_length)
        self._limit = min((limit for limit in limits if limit is not None), default=float("inf"))
        sync = self.dt >= _TIME_TO_SYNC if self._sync is None else self._sync
        self._record = EpisodeRecord(type(self).__name__, self.env_spec, self.dt, self._log_dir, sync)
        self.halted_by = "reset() failed"
        self._acting, self._stopped = True, False  # from here on the device may move
        stop_at_exit(self)
        try:
            self._packets.clear()
            self.prepare()
            self._last = self._packets.first(max(_START_TIMEOUT, self._timeout))
            self._rate.start()
            self._record.begin(self._last)
            self._watchdog = Watchdog(self._watchdog_seconds, self._bark)
        except BaseException as error:
            self._halt_after(error)
            raise
        return self._last.copy(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Take one step.

        Raises:
            DeviceError: The device has been stopped or no longer sends; the error holds the steps so far.
            ValueError: The action is refused; the device has been stopped.
        """
        try:
            self._check_acting()
            self._watchdog.feed()
            requested = self._limits.checked(action)
            applied = self._limits.applied(requested)
            reason = self._limits.stop_reason(self._last)
            with self._lock:
                self._check_acting()
                if reason:
                    applied = self.stop_action.copy()
                    self.stop()
                else:
                    self.send(applied.copy())
            return self._after_sending(requested, applied, reason)
        except BaseException as error:
            self._halt_after(error)
            if isinstance(error, DeviceError):
                self._record.keep_in(error)
            raise

    def _after_sending(
        self, requested: np.ndarray, applied: np.ndarray, reason: str
    ) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self._record.flush()  # of the previous step, while this one waits for its time
        overrun, skipped = self._rate.wait()
        observation, repeated, late = self._packets.next(self._last)
        self._watchdog.feed()
        self._check_acting()
        time = self._rate.elapsed
        reward = float(self.reward(self._last, requested, observation))
        left = self._limits.left(observation)
        terminated = bool(left) or bool(self.is_terminal(observation))
        reason = left or reason or self._limits.stop_reason(observation)
        truncated = not terminated and (bool(reason) or len(self._record) + 1 >= self._limit)
        if terminated or truncated:  # before anything is written
            self._send_stop()
        self._packets.timing.count_step(overrun, skipped)
        self._last = observation
        flags = {"repeated": repeated, "late": late, "overrun": overrun}
        ending = {"terminated": terminated, "truncated": truncated}
        entry = {"action": requested, "applied": applied, "observation": observation, "reward": reward, "time": time}
        self._record.add({**entry, **ending, **flags})
        if terminated or truncated:
            self.halt(reason or ("terminated" if terminated else "truncated"))
        info = {"act_applied": applied, "time": time, **flags, "stopped": bool(reason)}
        return observation.copy(), reward, terminated, truncated, info

    def halt(self, reason: str = "halted") -> None:
        """Stop the device and end the episode; does nothing if none is running.

        Raises:
            DeviceError: The stop action could not be sent.
        """
        with self._lock:
            if not self._acting:
                return
            try:
                self._send_stop()
            finally:
                self._acting, self.halted_by = False, reason
                self._watchdog.cancel()
                self._record.end(reason, self._packets.timing)

    def close(self) -> None:
        """Stop the device and release the connection."""
        if self._closed:
            return
        try:
            self.halt("close() was called")
        finally:
            self._closed = True
            self.disconnect()

    # -- helpers ------------------------------------------------------------------------------------------------------

    def _send_stop(self) -> None:
        """Stop the device despite interrupts; does nothing if it is stopped already."""
        with self._lock:
            if not self._stopped:
                stop_for_sure(self.stop, type(self).__name__)
                self._stopped = True

    def _halt_after(self, error: BaseException) -> None:
        """Stop the device after ``error``, which stays the error that the caller sees."""
        try:
            self.halt(f"{type(error).__name__}: {error}".rstrip(": "))
        except BaseException as another:
            error.add_note(str(another))

    def _bark(self, watchdog: Watchdog) -> None:
        with self._lock:
            if self._watchdog is watchdog:
                self.halt(f"no step was taken for {self._watchdog_seconds:g} s")

    def _check_acting(self) -> None:
        if not self._acting:
            raise DeviceError(f"{type(self).__name__} has been stopped ({self.halted_by}); reset it")
