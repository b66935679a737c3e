"""One rollout in one environment: the engine with one slot."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from metaroll.data.step_sequence import StepSequence
from metaroll.envs.slot_factory import make_slots
from metaroll.envs.sources import is_env_instance, make_env
from metaroll.policies.adapters import as_policy
from metaroll.rollouts.engine import resolve_plans
from metaroll.rollouts.slot_loop import SlotLoop
from metaroll.seeding import fresh_seed
from metaroll.types import Context, EnvSpec, RolloutPlan

__all__ = ["rollout"]


def rollout(
    env: Any,
    policy: Any,
    eval: bool = False,
    max_steps: int | None = None,
    reset_kwargs: Mapping[str, Any] | None = None,
    *,
    no_close: bool = True,
    stop_on_done: bool = True,
    seed: int | None = None,
    sub_seed: int | None = None,
    sub_sub_seed: int | None = None,
    context: Context | None = None,
) -> StepSequence:
    """One rollout of ``policy`` in ``env``, in this process (specs/sampling.md 8).

    Args:
        env: Gymnasium environment (used itself, not a copy), id, constructor, or name of a family.
        policy: A ``Policy``, or a callable ``obs -> action``, or an object with ``get_action``.
        eval: Evaluation mode: the mean action, no randomisation of the environment.
        max_steps: Truncate after this many steps; a TimeLimit of the environment holds as well.
        reset_kwargs: ``{"init_state": ...}``.
        no_close: Leave the environment open (an environment built here is always closed).
        stop_on_done: End at the environment's own ending.
        seed: With ``sub_seed`` and ``sub_sub_seed`` (``None`` counts as 0) the source of all randomness; ``None``
            draws fresh entropy, which ``rollout_info["plan"]["seed"]`` records.
        sub_seed: See ``seed``.
        sub_sub_seed: See ``seed``.
        context: What the policy is told about the task, e.g. ``{"z": (latent_dim,)}``.

    Returns:
        The rollout: observations ``(T + 1, ...)``, actions, rewards ``(T,)``, terminated, truncated, infos.
        Bit-identical to rollout ``sub_sub_seed`` of a parallel sampler with the same seed.

    Raises:
        RolloutError: Environment or policy raised.
        InvalidValueError: NaN or Inf in an observation, reward or action.
    """
    if not isinstance(eval, bool):
        raise TypeError(f"eval must be a bool, got {eval!r}")
    known = {"init_state"}
    unknown = set(reset_kwargs or ()) - known
    if unknown:
        raise ValueError(f"reset_kwargs may hold {sorted(known)}, got {sorted(unknown)}")
    if seed is None and (sub_seed is not None or sub_sub_seed is not None):
        raise ValueError("sub_seed and sub_sub_seed need a seed")
    given = is_env_instance(env)
    instance = env if given else make_env(env)
    init_state = None if reset_kwargs is None else reset_kwargs.get("init_state")
    plan = RolloutPlan(
        index=int(sub_sub_seed or 0),
        seed=(fresh_seed() if seed is None else seed, sub_seed or 0, sub_sub_seed or 0),
        init_state=None if init_state is None else np.asarray(init_state),
        max_steps=max_steps,
        eval=eval,
        stop_on_done=stop_on_done,
        context=context,
    )
    slots = make_slots(instance, 1, share=True)
    try:
        acting = as_policy(policy, EnvSpec.from_env(instance))
        loop = SlotLoop(slots, acting, resolve_plans([plan]), parameters=acting.acting_parameters())
        return loop.advance()[0]
    finally:
        if not given or not no_close:
            slots.close()
