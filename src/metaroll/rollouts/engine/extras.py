"""Records of rollouts besides observations, actions and rewards: applied actions, states, time, domain parameters."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
from torch import nn

from metaroll.data.rollouts import TIME_STEP, RolloutColumns
from metaroll.data.space_batches import env_actions, to_box_type
from metaroll.envs.base.slot_proxies import slot_domain_params
from metaroll.rollouts.engine.recorder import APPLIED
from metaroll.tasks.domain_params import DomainParamUpdate
from metaroll.tasks.plan_table import PlanTable
from metaroll.types import EnvSpec, Policy, Slots

__all__ = ["add_applied_actions", "module_mode", "notes_of"]

_PLAIN = {"env_name", TIME_STEP}
"""Notes that can be compared, and shared where they are equal."""


def add_applied_actions(columns: RolloutColumns, env_spec: EnvSpec, *, copy: bool = True) -> None:
    """Add ``actions_applied`` to columns; without ``copy`` it may share memory with the infos.

    It is what the environment reports as info ``act_applied``, otherwise the actions clipped to a Box (environments get
    them as they are, and clip them themselves; those of a Box of integers are rounded and clipped before), and choices
    as the environment counts them (``actions`` count from 0, for any start of the space).
    """
    reported = columns.fields.get("env_infos", {}).get(APPLIED)
    applied = _as_applied(columns.fields["actions"], env_spec.action_space) if reported is None else reported
    columns.fields["actions_applied"] = applied.copy() if copy and applied is reported else applied
    for own in columns.own or ():
        if APPLIED in own.get("env_infos", {}):
            own["actions_applied"] = own["env_infos"][APPLIED].copy()


def notes_of(envs: Slots, slots: np.ndarray, plans: PlanTable, with_time: bool) -> list[dict[str, Any]]:
    """Constants of the rollouts that have been started in ``slots``; those of one kind share theirs."""
    alike = None if plans.has_extras else envs.alike(slots)
    if alike is None:
        notes = [_noted(envs, slot, plans, row, with_time) for row, slot in enumerate(slots.tolist())]
        plain = all(note.keys() <= _PLAIN for note in notes)
        return [notes[0] if note == notes[0] else note for note in notes] if plain else notes
    kinds = list(zip(alike, plans.update_of.tolist(), strict=True))
    shown = {kind: row for row, kind in enumerate(kinds)}
    by_kind = {kind: _noted(envs, int(slots[row]), plans, row, with_time) for kind, row in shown.items()}
    return [by_kind[kind] for kind in kinds]


def _noted(envs: Slots, slot: int, plans: PlanTable, row: int, with_time: bool) -> dict[str, Any]:
    note: dict[str, Any] = {"env_name": envs.name_of(slot)}
    in_plan = plans.has_extras or isinstance(plans.updates[int(plans.update_of[row])], DomainParamUpdate)
    params = slot_domain_params(envs, slot, plans[row]) if in_plan else envs.domain_param(slot)
    if params is not None:
        note["domain_param"] = params
    provenance = envs.provenance(slot)
    if provenance is not None:
        note["provenance"] = provenance
    dt = envs.time_step(slot) if with_time else None
    if dt is not None:
        note[TIME_STEP] = dt
    return note


def _as_applied(actions: Any, space: gymnasium.Space) -> Any:
    if not isinstance(space, gymnasium.spaces.Box):
        return env_actions(space, actions)
    actions = np.asarray(actions)
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
