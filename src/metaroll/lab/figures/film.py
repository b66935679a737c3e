"""Films a rollout after it has been made: its actions again, in an environment that draws."""

from __future__ import annotations

import contextlib
import math
import warnings
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np

from metaroll.checks import short_name
from metaroll.data.step_sequence import StepSequence
from metaroll.envs.base.batched_env import BatchedEnv
from metaroll.envs.base.env_state import frames_per_second, render_mode_of
from metaroll.envs.lookup.source import EnvSource
from metaroll.envs.mujoco.library import is_from_mujoco
from metaroll.envs.wrappers.base import inner_env
from metaroll.policies.playback import PlaybackPolicy
from metaroll.rollouts.single.rollout import rollout as run_rollout
from metaroll.tasks.domain_params import DomainParamUpdate
from metaroll.tasks.updates import NewEnvUpdate, SetTaskUpdate
from metaroll.types import EnvSpec, EnvUpdate, RenderMode

__all__ = ["Film", "drawing_env", "film"]

_VIDEO = RenderMode(video=True)
_FPS = 30.0
_CLOSE = 1e-6


@dataclass(frozen=True)
class Film:
    """Pictures of a rollout with T steps.

    Attributes:
        frames: At the start and after every step, uint8 ``(T + 1, H, W, 3)``.
        fps: Frames per second for playback at the environment's own speed.
    """

    frames: np.ndarray
    fps: float


def film(filmed: StepSequence, source: Any, update: EnvUpdate | None = None) -> Film:
    """Repeat the actions of a rollout of the engine in an environment that draws.

    Args:
        filmed: The rollout; it knows its seed and first state.
        source: Environment that the engine was given: an id, or what makes one.
        update: The task, if the rollout had one.

    Raises:
        ValueError: The environment cannot be drawn, or does not repeat the rollout.
    """
    plan = filmed.rollout_info["plan"]
    env = drawing_env(source, update)
    try:
        seed, sub_seed, sub_sub_seed = plan["seed"]
        spec, limit = EnvSpec.from_env(env), plan.get("max_steps")
        if limit in (None, math.inf) and spec.max_episode_length is None:
            limit = len(filmed)  # one that does not repeat the rollout might never end
        again = run_rollout(
            env,
            PlaybackPolicy(spec, [np.asarray(filmed.actions)]),
            eval=bool(plan.get("eval", False)),
            max_steps=limit,  # that of the rollout: rewards may depend on the number of steps that are left
            reset_kwargs={"init_state": plan.get("init_state")},
            render_mode=_VIDEO,
            no_close=True,
            stop_on_done=bool(plan.get("stop_on_done", True)),
            seed=seed,
            sub_seed=sub_seed,
            sub_sub_seed=sub_sub_seed,
        )
        fps = frames_per_second(env) or _FPS
    finally:
        env.close()
    rewards = np.asarray(filmed.rewards)
    if len(again) != len(filmed) or not np.allclose(again.rewards, rewards, rtol=_CLOSE, atol=_CLOSE):
        raise ValueError(
            f"{_name_of(source)} does not repeat the rollout (rewards differ for the same seed and actions), so the "
            "video would not show what happened; all its randomness must come from reset(seed=...)"
        )
    return Film(again.rollout_info["frames"], fps)


def drawing_env(source: Any, update: EnvUpdate | None = None) -> Any:
    """A new environment with ``render_mode="rgb_array"``, in the task of ``update``.

    Raises:
        ValueError: It cannot be drawn.
    """
    try:
        env = _made(source, update)
    except (ValueError, TypeError, gymnasium.error.Error) as error:
        if _draws_nothing(source, update):
            raise ValueError(f"{_name_of(source)} has no pictures") from error
        raise ValueError(f"{_name_of(source)} cannot be drawn: {error}") from error
    mode = render_mode_of(env)
    if mode != "rgb_array":
        env.close()
        raise ValueError(
            f"{_name_of(source)} cannot be drawn: {type(inner_env(env)).__name__} has render_mode "
            f"{mode!r}, and 'rgb_array' is needed; give its constructor a parameter render_mode, and a method render() "
            "that returns an array (height, width, 3)"
        )
    _try_out(env, _name_of(source))
    return env


def _made(source: Any, update: EnvUpdate | None) -> Any:
    if isinstance(update, SetTaskUpdate):
        return SetTaskUpdate(_source(source, update).drawable(), update.task, update.wrapper_constructor)()
    env = _source(source, update).drawable().make()
    return env if update is None or isinstance(update, NewEnvUpdate) else update(env)


def _source(source: Any, update: EnvUpdate | None) -> EnvSource:
    """What makes the environment of ``update``, before it has its task."""
    if isinstance(update, SetTaskUpdate):
        return EnvSource.of(update.env_type)
    maker = update.env_constructor if isinstance(update, NewEnvUpdate | DomainParamUpdate) else None
    return EnvSource.of(source if maker is None else maker)


def _draws_nothing(source: Any, update: EnvUpdate | None) -> bool:
    """Whether the environment itself declares that there are no pictures of it."""
    try:
        env = _source(source, update).make()
    except (ValueError, TypeError, gymnasium.error.Error):
        return False  # it cannot be made at all
    env.close()
    declaring = inner_env(env)
    return isinstance(declaring, BatchedEnv) and not declaring.metadata["render_modes"]


def _try_out(env: Any, name: str) -> None:
    """Render one picture; the error says what to check if that does not work on this machine."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a driver's first complaint, before another one is tried
            env.reset(seed=0)
            env.render()
    except Exception as error:  # of OpenGL, of MuJoCo, of a missing package: each has its own classes
        with contextlib.suppress(Exception):
            env.close()
        reason = " ".join(str(error).split()) or type(error).__name__
        reason = reason.replace("[classic_control]", "[classic-control]")  # Gymnasium has it both ways
        hint = ""
        if is_from_mujoco(error):
            hint = "; without a screen MuJoCo needs EGL or OSMesa (Debian, Ubuntu: apt install libegl1 or libosmesa6)"
        raise ValueError(f"{name} cannot be drawn on this machine: {reason}{hint}") from error


def _name_of(source: Any) -> str:
    if isinstance(source, EnvSource):
        return source.name or _name_of(source.constructor)
    return source if isinstance(source, str) else short_name(source)
