"""What rollouts record besides observations, actions and rewards: applied actions, states, time, domain parameters."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
from torch import nn

from metaroll.data.space_batches import env_actions, to_box_type
from metaroll.data.step_sequence import StepSequence
from metaroll.envs.base.slot_proxies import Tapped
from metaroll.types import EnvSpec, Policy

__all__ = ["add_extras", "module_mode"]

_APPLIED = "act_applied"
"""Entry of an environment's infos: the action that reached what it simulates."""


def add_extras(rollout: StepSequence, tapped: Tapped, env_spec: EnvSpec) -> None:
    """Add ``actions_applied``, and ``states`` and ``time`` if they are known, to a finished rollout.

    ``actions_applied`` is what the environment reports as info ``act_applied``, otherwise the actions clipped to a Box
    (environments get them as they are, and clip them themselves; those of a Box of integers are rounded and clipped
    before), and choices as the environment counts them (``actions`` count from 0, whatever the space starts with).
    ``states (T+1, S)`` and ``time (T+1,)`` end with the entry after the last step, like the observations. Domain
    parameters go into ``rollout_info["domain_param"]``.
    """
    rollout.add_data("actions_applied", _applied(rollout, env_spec.action_space))
    if tapped.states is not None:
        rollout.add_data("states", tapped.states)
    if tapped.dt is not None:
        rollout.add_data("time", np.arange(len(rollout) + 1) * tapped.dt)
    if tapped.domain_params is not None:
        rollout.rollout_info["domain_param"] = tapped.domain_params


def _applied(rollout: StepSequence, space: gymnasium.Space) -> Any:
    if "env_infos" in rollout.data_names and _APPLIED in rollout.env_infos:
        return rollout.env_infos[_APPLIED].copy()
    if not isinstance(space, gymnasium.spaces.Box):
        return env_actions(space, rollout.actions)
    actions = np.asarray(rollout.actions)
    shaped = actions.reshape(len(actions), *space.shape)
    if np.dtype(space.dtype).kind in "iu":
        return to_box_type(space, shaped).reshape(actions.shape)
    return np.clip(shaped, space.low, space.high).reshape(actions.shape).astype(actions.dtype, copy=False)


@contextlib.contextmanager
def module_mode(policy: Any, eval: bool) -> Iterator[None]:
    """A foreign torch module in evaluation mode (dropout off), or in training mode; afterwards it is as it was."""
    if not isinstance(policy, nn.Module) or isinstance(policy, Policy):
        yield
        return
    before = {module: module.training for module in policy.modules()}
    policy.train(not eval)
    try:
        yield
    finally:
        for module, training in before.items():
            module.training = training
