"""One rollout in one environment: the engine with one slot."""

from __future__ import annotations

import contextlib
import reprlib
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from metaroll.checks import check_flag, check_whole
from metaroll.data.space_batches import take_rows
from metaroll.data.step_sequence import StepSequence
from metaroll.envs.base.env_state import ResumedEnv, render_mode_of
from metaroll.envs.base.slot_proxies import WatchedSlots
from metaroll.envs.lookup.source import EnvSource, is_env_instance, make_slots
from metaroll.envs.wrappers.base import typed_env
from metaroll.errors import RolloutError
from metaroll.policies.actor import Actor
from metaroll.policies.adapters import as_policy
from metaroll.rollouts.engine.extras import module_mode
from metaroll.rollouts.engine.slot_loop import SlotLoop
from metaroll.rollouts.requests import Kept
from metaroll.seeding import fresh_seed, seed_sequence
from metaroll.tasks.domain_params import DomainParamUpdate
from metaroll.tasks.plan_table import resolve_plans
from metaroll.types import (
    Context,
    Device,
    EnvSpec,
    Policy,
    PolicyInfo,
    PolicyState,
    RenderMode,
    RolloutPlan,
    Slots,
    TaskNote,
)

__all__ = ["rollout"]

_RESET_KWARGS = {"init_state", "domain_param"}


def rollout(
    env: Any,
    policy: Any,
    eval: bool = False,
    max_steps: int | None = None,
    reset_kwargs: Mapping[str, Any] | None = None,
    render_mode: RenderMode = RenderMode(),  # noqa: B008 (an immutable tuple)
    render_step: int = 1,
    no_reset: bool = False,
    no_close: bool = False,
    record_dts: bool = False,
    stop_on_done: bool = True,
    seed: int | None = None,
    sub_seed: int | None = None,
    sub_sub_seed: int | None = None,
    *,
    context: Context | None = None,
    deterministic: bool | None = None,
) -> StepSequence:
    """One rollout of ``policy`` in ``env``, in this process.

    Args:
        env: Gymnasium environment (used itself, not a copy), id, constructor, or name of a family.
        policy: A ``Policy``, or a callable ``obs -> action``, or an object with ``get_action``. Its ``reset`` receives
            the environment's parameters if it takes ``domain_param``.
        eval: Evaluation: the mean action, and a torch module in evaluation mode (for the time of the rollout).
        max_steps: Truncate after this many steps; a TimeLimit of the environment holds as well. ``None`` means without
            further limit, of an agent after as many as its episodes of training have.
        reset_kwargs: ``{"init_state": ..., "domain_param": {...}}``. The environment keeps the domain parameters.
        render_mode: ``text`` writes lines to the standard output, ``render`` shows the environment's window, ``video``
            collects its frames in ``rollout_info["frames"]``, uint8 ``(F, height, width, 3)``.
        render_step: Number of steps from one line, picture or frame to the next; the start is always shown.
        no_reset: Continue from the environment's present state.
        no_close: Leave the environment open (one that is made here is always closed).
        record_dts: Record how many seconds each step took: ``dts_policy``, ``dts_step``, ``dts_remainder``, ``(T,)``.
        stop_on_done: End at the environment's own ending; False needs a limit.
        seed: With ``sub_seed`` and ``sub_sub_seed`` (``None`` counts as 0) the source of all randomness; ``None``
            draws fresh entropy, which ``rollout_info["plan"]["seed"]`` records.
        sub_seed: See ``seed``.
        sub_sub_seed: See ``seed``.
        context: The policy's knowledge of the task, e.g. ``{"z": (latent_dim,)}``; ``None`` means its own
            belief (an adapted policy its posterior), ``{}`` nothing.
        deterministic: Act with the mean of the policy; ``None`` means "as ``eval``".

    Returns:
        The rollout: observations ``(T + 1, ...)``, actions (choices counted from 0), rewards ``(T,)``, terminated,
        truncated, ``env_infos`` and ``policy_infos``; further ``actions_applied`` (the info ``act_applied`` if the
        environment reports it, otherwise the actions clipped to their Box, and choices as the environment counts
        them), ``states (T + 1, S)`` and ``time (T + 1,)`` if the environment has ``state`` and ``dt``, and
        ``hidden_states (T, H)``, what a recurrent policy remembers before each step. Its ``rollout_info`` holds
        ``env_name``, ``env_spec``, ``plan``, and ``domain_param`` if there are any.
        Bit-identical to rollout ``sub_sub_seed`` of a parallel sampler with the same seed.

    Raises:
        RolloutError: Environment or policy raised.
        InvalidValueError: NaN or Inf in an observation, reward or action.
        ValueError: The environment cannot render as requested, or cannot report its present observation.
    """
    eval, no_reset = check_flag("eval", eval), check_flag("no_reset", no_reset)
    stop_on_done = check_flag("stop_on_done", stop_on_done)
    if seed is None and (sub_seed is not None or sub_sub_seed is not None):
        raise ValueError("sub_seed and sub_sub_seed need a seed")
    seed = fresh_seed() if seed is None else seed
    seed_sequence(seed, sub_seed, sub_sub_seed)  # raises for the ones that cannot be used
    options = _checked_reset(reset_kwargs, no_reset)
    update = DomainParamUpdate(options["domain_param"]) if "domain_param" in options else None
    _check_rendering(render_mode, render_step)
    plan = RolloutPlan(
        index=int(sub_sub_seed or 0),
        seed=(seed, sub_seed or 0, sub_sub_seed or 0),
        # A note of what is set in the environment itself; the slots need not (and an uncopyable one could not).
        env_update=None if update is None else TaskNote(update.task),
        init_state=None if options.get("init_state") is None else np.array(options["init_state"]),
        max_steps=max_steps,
        eval=eval,
        deterministic=deterministic,
        stop_on_done=stop_on_done,
        context=context,
        extras={} if update is None else {"domain_param": update.task},
    )
    if max_steps is None and isinstance(policy, Actor) and policy.max_path_length is not None:
        plan = plan.with_(max_steps=policy.max_path_length)  # as in training; a limit of the environment holds, too
    is_instance = is_env_instance(env)
    if is_instance:
        instance = env
    else:
        if isinstance(env, Actor):
            raise TypeError("env must be an environment, got an agent: it comes second, rollout(env, agent)")
        mode, source = _gym_mode(render_mode), EnvSource.of(env)
        instance = (source if mode is None else source.drawable(mode)).make()
    closes = not is_instance or not no_close
    try:
        with module_mode(policy, eval if deterministic is None else deterministic):
            renderer = _Renderer(instance, render_mode, render_step)
            result = _run(instance, policy, plan, update, renderer, no_reset, record_dts)
    except BaseException as error:
        if isinstance(error, RolloutError) and error.plan is not None and update is not None:
            error.plan = error.plan.with_(env_update=update)  # for replay(), which starts from another environment
        device = typed_env(instance, Device)
        if closes or device is not None:  # an error while closing must not hide this one
            with contextlib.suppress(Exception):
                (instance.close if closes else device.halt)()  # a device must not repeat its last action
        raise
    if closes:
        instance.close()
    return result


def _run(
    env: Any,
    policy: Any,
    plan: RolloutPlan,
    update: DomainParamUpdate | None,
    renderer: _Renderer,
    no_reset: bool,
    record_dts: bool,
) -> StepSequence:
    spec = EnvSpec.from_env(env)
    if not plan.stop_on_done and plan.max_steps is None and spec.max_episode_length is None:
        raise ValueError("a rollout with stop_on_done=False and no limit never ends; set its max_steps")
    acting: Any = as_policy(policy, spec)
    (plan,) = resolve_plans([plan], acting)
    if update is not None:
        update(env)
    if record_dts:
        acting = _TimedPolicy(acting)
    slots: Slots = make_slots(ResumedEnv(env) if no_reset else env, 1, share=True)
    settings: dict[str, Any] = {"parameters": acting.acting_parameters(), "kept": Kept(extras=True)}
    if record_dts or renderer.wanted:
        slots = WatchedSlots(slots)
        loop = SlotLoop(slots, acting, [plan], **settings)
        result = _run_watched(loop, slots, acting if record_dts else None, renderer)
    else:
        result = SlotLoop(slots, acting, [plan], **settings).advance()[0]
    result.rollout_info["env_spec"] = spec
    if renderer.frames:
        result.rollout_info["frames"] = np.stack(renderer.frames)
    return result


def _run_watched(loop: SlotLoop, slots: WatchedSlots, timed: _TimedPolicy | None, renderer: _Renderer) -> StepSequence:
    """All steps, one by one, with how long they took if ``timed`` is given."""
    dts: list[tuple[float, float, float]] = []
    if renderer.wanted:
        renderer.start(loop.observations)
    finished: Sequence[StepSequence] = []
    step = 0
    while not loop.done:
        begun = time.perf_counter()
        finished = loop.advance(1)
        total = time.perf_counter() - begun
        step += 1
        if timed is not None:
            dts.append((timed.seconds, slots.seconds, max(0.0, total - timed.seconds - slots.seconds)))
        if renderer.wanted:
            renderer.after_step(step, slots)
    result = finished[0]
    if timed is not None:
        for name, values in zip(("dts_policy", "dts_step", "dts_remainder"), np.array(dts).T.copy(), strict=True):
            result.add_data(name, values)
    return result


def _checked_reset(reset_kwargs: Mapping[str, Any] | None, no_reset: bool) -> dict[str, Any]:
    if reset_kwargs is None:
        return {}
    if not isinstance(reset_kwargs, Mapping):
        raise TypeError(f"reset_kwargs must be a dict or None, got {type(reset_kwargs).__name__}")
    unknown = set(reset_kwargs) - _RESET_KWARGS
    if unknown:
        raise ValueError(f"reset_kwargs may hold {sorted(_RESET_KWARGS)}, got {sorted(map(str, unknown))}")
    options = {name: value for name, value in reset_kwargs.items() if value is not None}
    if options and no_reset:
        raise ValueError(f"reset_kwargs {sorted(options)} need a reset, got no_reset=True; leave one of them out")
    return options


def _check_rendering(render_mode: RenderMode, render_step: int) -> None:
    if not isinstance(render_mode, RenderMode):
        raise TypeError(
            f"render_mode must be a RenderMode, got {render_mode!r}; use e.g. metaroll.RenderMode(text=True)"
        )
    if render_mode.video and render_mode.render:
        raise ValueError("render_mode must not ask for video and render together: an environment offers one of them")
    check_whole("render_step", render_step)


class _Renderer:
    """Shows the environment at the start and after every ``render_step`` steps.

    Args:
        env: The environment.
        mode: The displays to use.
        render_step: Number of steps from one picture to the next.

    Raises:
        ValueError: The environment was made for another way of rendering.
    """

    def __init__(self, env: Any, mode: RenderMode, render_step: int) -> None:
        self.frames: list[np.ndarray] = []
        self.wanted = mode.text or mode.video or mode.render
        self._env, self._mode, self._every = env, mode, render_step
        self._return = 0.0
        wanted, offered = _gym_mode(mode), render_mode_of(env)
        if wanted is not None and wanted != offered:
            raise ValueError(
                f"render_mode {mode} needs an environment with render_mode={wanted!r}, but {type(env).__name__} has "
                f"{offered!r}; make it with gymnasium.make(id, render_mode={wanted!r}), or pass the id itself"
            )

    def start(self, observations: Any) -> None:
        """Before the first step; ``observations (1, ...)``."""
        self._show(0, f"observation {_text(observations)}")

    def after_step(self, step: int, watched: WatchedSlots) -> None:
        """After step number ``step`` (from 1)."""
        result = watched.result
        if result is None:
            return
        self._return += float(result.rewards[0])
        if step % self._every == 0:
            self._show(
                step,
                f"action {_text(watched.actions)}  reward {result.rewards[0]:.4g}  "
                f"return {self._return:.4g}  observation {_text(result.observations)}",
            )

    def _show(self, step: int, text: str) -> None:
        if self._mode.text:
            sys.stdout.write(f"step {step:4d}  {text}\n")
        if self._mode.video:
            self.frames.append(np.array(self._env.render()))
        elif self._mode.render:
            self._env.render()


def _text(batch: Any) -> str:
    element = take_rows(batch, 0)
    if isinstance(element, np.ndarray):
        return np.array2string(element, precision=4, threshold=8, separator=", ").replace("\n", "")
    return reprlib.repr(element)


def _gym_mode(mode: RenderMode) -> str | None:
    """The ``render_mode`` of environments that can show the request; ``None`` where they need not draw."""
    return "rgb_array" if mode.video else "human" if mode.render else None


class _TimedPolicy(Policy):
    """Measures how long the policy takes to act."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.seconds = 0.0
        """Duration of the last call."""

    def act(self, *args: Any, **kwargs: Any) -> Any:
        begun = time.perf_counter()
        result = self._policy.act(*args, **kwargs)
        self.seconds = time.perf_counter() - begun
        return result

    @property
    def info(self) -> PolicyInfo:
        return self._policy.info

    def initial_state(self, *args: Any, **kwargs: Any) -> PolicyState:
        return self._policy.initial_state(*args, **kwargs)

    def acting_parameters(self) -> np.ndarray:
        return self._policy.acting_parameters()

    def with_actions_taken(self, state: PolicyState, actions: Any) -> PolicyState:
        return self._policy.with_actions_taken(state, actions)

    def plan_context(self) -> Context | None:
        return self._policy.plan_context()
