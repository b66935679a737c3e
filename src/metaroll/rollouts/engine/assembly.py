"""From what the recorder holds of one rollout to a ``StepSequence``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from metaroll.data.data_format import iterate_leaves, map_leaves
from metaroll.data.step_sequence import StepSequence
from metaroll.envs.base.slot_proxies import slot_domain_params
from metaroll.policies.adapters import INFO_ROWS
from metaroll.rollouts.engine.recorder import stack_infos
from metaroll.types import RolloutPlan, Slots

__all__ = ["assemble_rollout", "named_leaves", "rollout_info", "with_rows"]

_GROUPS = ("policy_infos", "env_infos")
_PREFIXES = tuple(f"{group}/" for group in _GROUPS)


def rollout_info(slots: Slots, slot: int, plan: RolloutPlan) -> dict[str, Any]:
    """What is told of a rollout beside its steps: environment, plan, domain parameters, provenance."""
    names = getattr(slots, "names", None)
    name = getattr(slots, "name", type(slots).__name__) if names is None else names[slot]
    info: dict[str, Any] = {"env_name": name, "plan": _plan_summary(plan)}
    params = slot_domain_params(slots, slot, plan)
    if params is not None:
        info["domain_param"] = params
    tell = getattr(slots, "provenance", None)
    provenance = None if tell is None else tell(slot)
    if provenance is not None:
        info["provenance"] = provenance
    return info


def _plan_summary(plan: RolloutPlan) -> dict[str, Any]:
    """What a rollout remembers of its plan (plain data)."""
    return {
        "index": plan.index,
        "seed": plan.seed,
        "task": plan.task,
        "max_steps": plan.max_steps,
        "eval": plan.eval,
        "deterministic": plan.acts_deterministically,
        "stop_on_done": plan.stop_on_done,
        "init_state": plan.init_state,
        "context": plan.context or None,
    }


def named_leaves(name: str, batch: Any) -> dict[str, np.ndarray]:
    """A batch, or the leaves of a structured one, by the names under which the recorder keeps them."""
    if batch.__class__ is np.ndarray:
        return {name: batch}
    return {_leaf_name(name, path): leaf for path, leaf in iterate_leaves(batch)}


def assemble_rollout(
    arrays: dict[str, np.ndarray],
    env_infos: dict[str, np.ndarray],
    observations: Any,
    slot: int,
    action_tree: Any,
    complete: bool,
    rollout_info: dict[str, Any],
) -> StepSequence:
    """A rollout of what the recorder cut out (``arrays``, ``env_infos``) and its last observation.

    Args:
        arrays: Name -> array ``(T, ...)``; structured fields by leaf.
        env_infos: Stacked infos of the environment.
        observations: Observations of all slots after the last step; row ``slot`` is the last one.
        slot: See ``observations``.
        action_tree: Any batch of actions, if they are structured.
        complete: Whether the last step is the end of the rollout.
        rollout_info: What stays constant.
    """
    infos = _infos_taken_from(arrays, env_infos)

    def with_final(leaf: np.ndarray, path: tuple[Any, ...]) -> np.ndarray:
        return np.concatenate([arrays.pop(_leaf_name("observations", path)), leaf[slot : slot + 1]])

    fields: dict[str, Any] = {"rewards": arrays.pop("rewards"), "observations": map_leaves(with_final, observations)}
    if action_tree is not None:
        fields["actions"] = map_leaves(lambda _, path: arrays.pop(_leaf_name("actions", path)), action_tree)
    flags = {"terminated": arrays.pop("terminated"), "truncated": arrays.pop("truncated")}
    length = len(flags["terminated"])
    flags["done"] = np.zeros(length, dtype=bool)
    flags["done"][-1] = complete
    # All of one length by construction: the constructor's checks would cost more than the steps of a cheap rollout.
    fields = {**fields, **arrays, **infos}
    return StepSequence._assemble(fields, {}, flags, np.array([0, length]), rollout_info, "numpy")


def with_rows(batch: Any, slots: Sequence[int], rows: Any, num_slots: int) -> Any:
    """A copy of ``batch`` (``None``: zeros) with ``rows`` in place of those of ``slots``."""
    if batch is None:
        batch = map_leaves(lambda leaf, path: np.zeros((num_slots, *leaf.shape[1:]), leaf.dtype), rows)
    leaves = dict(iterate_leaves(rows))

    def filled(leaf: np.ndarray, path: tuple[Any, ...]) -> np.ndarray:
        new = leaf.astype(np.result_type(leaf, leaves[path]))
        new[slots] = leaves[path]
        return new

    return map_leaves(filled, batch)


def _leaf_name(name: str, path: tuple[Any, ...]) -> str:
    return f"{name}{path!r}" if path else name


def _infos_taken_from(arrays: dict[str, np.ndarray], env_infos: dict[str, np.ndarray]) -> Mapping[str, Any]:
    """``policy_infos`` and ``env_infos``, if there are any; entries ``group/name`` of ``arrays`` move there."""
    groups = {"policy_infos": {}, "env_infos": env_infos}
    for name in [n for n in arrays if n.startswith(_PREFIXES)]:
        group, _, key = name.partition("/")
        groups[group][key] = arrays.pop(name)
    rows = groups["policy_infos"].pop(INFO_ROWS, None)
    if rows is not None:
        groups["policy_infos"].update(stack_infos([row or {} for row in rows]))
    return {group: infos for group, infos in groups.items() if infos}
