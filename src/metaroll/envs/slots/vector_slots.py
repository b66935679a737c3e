"""Any ``gymnasium.vector.VectorEnv`` as ``Slots``, whichever of the three autoreset modes it has."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

from metaroll.data.data_format import iterate_leaves, map_leaves, own_copy
from metaroll.data.space_batches import action_element, check_elements, empty_batch, take_rows, write_element
from metaroll.envs.base.env_state import read_state, state_owner
from metaroll.errors import ShapeError
from metaroll.tasks.plan_table import plan_env_seeds
from metaroll.types import EnvSpec, RolloutPlan, Slots, SlotsInfo, SlotStep

__all__ = ["VectorEnvSlots"]


class VectorEnvSlots(Slots):
    """A vector environment behind the ``Slots`` protocol; the trajectories are the same in all autoreset modes.

    What the environment itself does after an ending (resetting in the same or in the next step) never reaches a
    rollout: its last observation is the true one, and the next rollout starts with a reset that is seeded by its plan.
    ``SyncVectorEnv`` and ``AsyncVectorEnv``, and any other one whose mode is DISABLED, reset single sub-environments.
    The others can only be reset as a whole, so their slots all start together
    (``SlotsInfo.resets_together``), and a slot whose rollout ends early waits.

    ``SyncVectorEnv`` in its SAME_STEP mode hands out the last observation uncopied: a sub-environment that shows the
    same memory at every step has overwritten it by then. The other modes are safe.
    ``AsyncVectorEnv`` (e.g. of Gymnasium 1.4) loses texts in its shared memory; make it with ``shared_memory=False``.

    A rollout depends on its plan alone if every sub-environment has its own generator. Environments that accept
    just one seed for all of them (e.g. Gymnasium's own vectorized CartPole) are used too, with a warning: there a
    rollout depends on all that started together.

    Args:
        env: The vector environment.
        owned: Whether ``close`` closes it.
    """

    def __init__(self, env: VectorEnv, *, owned: bool = True) -> None:
        self.env, self._owned = env, owned
        self.num_slots = env.num_envs
        self.env_spec = EnvSpec.from_env(env)
        registered = getattr(env.spec, "id", None)
        mode = env.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP)
        if not isinstance(mode, AutoresetMode) and mode not in (known := [m.value for m in AutoresetMode]):
            raise ValueError(f"metadata['autoreset_mode'] must be one of {known}, got {mode!r}")
        self.mode = AutoresetMode(mode)
        self._masked = self.mode is AutoresetMode.DISABLED or isinstance(env.unwrapped, SyncVectorEnv | AsyncVectorEnv)
        name = registered or type(env.unwrapped).__name__
        self.info = SlotsInfo(name, "vector", resets_together=not self._masked, resumes="nothing")
        self._one_seed = False
        self._space, self._actions = env.single_observation_space, env.single_action_space
        self._last: Any = empty_batch(self._space, self.num_slots)
        idle = gymnasium.vector.utils.batch_space(self._actions, 1)  # a copy: its generator must not advance
        idle.seed(0)
        self._idle = next(iter(gymnasium.vector.utils.iterate(idle, idle.sample())))
        """A valid action for slots that have no plan."""
        self._ended = np.ones(self.num_slots, dtype=bool)
        """Sub-environments that must not be stepped before a reset (DISABLED)."""

    def environments(self, *, make: bool = False) -> list[Any]:
        """The vector environment, once per slot."""
        return [self.env] * self.num_slots

    def reset(self, slots: Sequence[int], plans: Sequence[RolloutPlan]) -> Any:
        """Start ``plans[i]`` in slot ``slots[i]``; first observations ``(len(slots), ...)``."""
        for plan in plans:
            if plan.env_update is not None and plan.task is not None:
                raise ValueError(
                    "a vector environment cannot take the task of one sub-environment, got "
                    f"{plan.env_update!r}; give the engine a function that makes one environment"
                )
            if plan.init_state is not None and not self._masked:
                raise ValueError(f"{self.info.name} cannot reset one sub-environment, so init_state must be None")
        seeds = [0] * self.num_slots
        for slot, seed in zip(slots, plan_env_seeds(plans).tolist(), strict=True):
            seeds[slot] = seed
        if self._masked:
            self._reset_masked(slots, plans, seeds)
        else:
            observations, _ = self._reset_all(seeds)
            self._write(observations, np.arange(self.num_slots))
        return take_rows(self._last, list(slots))

    def step(self, actions: Any, active: np.ndarray) -> SlotStep:
        """Step the environment; rows of slots that are not active are ignored."""
        active = np.asarray(active, dtype=bool)
        stale = ~active & self._ended  # they wait for a plan: without autoreset a step would fail there
        if self.mode is AutoresetMode.DISABLED and stale.any():
            self.env.reset(seed=[0] * self.num_slots, options={"reset_mask": stale.copy()})  # type: ignore[arg-type]
            self._ended[stale] = False
        observations, rewards, terminated, truncated, infos = self.env.step(self._batch(actions, active))
        self._ended |= np.array(terminated, dtype=bool) | np.array(truncated, dtype=bool)  # even if it is not asked
        terminated, truncated = (np.array(flags, dtype=bool) & active for flags in (terminated, truncated))
        ended = terminated | truncated
        rows = np.flatnonzero(active)
        self._write(observations, rows)
        dicts = _info_dicts(infos, self.num_slots)
        if self.mode is AutoresetMode.SAME_STEP and ended.any():
            self._take_finals(infos, np.flatnonzero(ended), dicts)
        rewards = np.where(active, np.array(rewards, dtype=np.float64), 0.0)
        own = [info if live else {} for info, live in zip(dicts, active, strict=True)]
        states = self.states() if self.record_states else None
        return SlotStep(take_rows(self._last, slice(None)), rewards, terminated, truncated, own, states)

    def states(self) -> list[np.ndarray | None] | None:
        """``state`` of each sub-environment of a ``SyncVectorEnv`` that reports it as numbers.

        With autoreset in the same step the states at the ends of episodes are gone, so none are reported.
        """
        inner: Any = self.env.unwrapped
        if not isinstance(inner, SyncVectorEnv) or self.mode is AutoresetMode.SAME_STEP:
            return None
        owners = [state_owner(env) for env in inner.envs]
        return [None if owner is None else read_state(owner) for owner in owners]

    def close(self) -> None:
        """Close the environment, unless the caller owns it."""
        if self._owned:
            self.env.close()

    # -- resets ------------------------------------------------------------------------------------------------------

    def _reset_masked(self, slots: Sequence[int], plans: Sequence[RolloutPlan], seeds: list[int]) -> None:
        plain = [slot for slot, plan in zip(slots, plans, strict=True) if plan.init_state is None]
        groups: list[tuple[list[int], dict[str, Any]]] = [(plain, {})] if plain else []
        for slot, plan in zip(slots, plans, strict=True):
            if plan.init_state is not None:
                groups.append(([slot], {"init_state": np.array(plan.init_state)}))
        for rows, options in groups:
            mask = np.zeros(self.num_slots, dtype=bool)
            mask[rows] = True
            if self._ended.all() and not mask.all():
                self._reset_all(seeds)  # some environments need one reset as a whole first
                self._ended[:] = False
            observations, _ = self.env.reset(seed=seeds, options={**options, "reset_mask": mask})  # type: ignore
            self._ended[rows] = False
            self._write(observations, np.array(rows))

    def _reset_all(self, seeds: list[int]) -> tuple[Any, Any]:
        self._ended[:] = False
        if not self._one_seed:
            try:
                return self.env.reset(seed=list(seeds))  # type: ignore[arg-type]
            except (TypeError, ValueError, gymnasium.error.Error):
                self._one_seed = True
                warnings.warn(
                    f"{self.info.name} takes one seed for all its sub-environments: a rollout in it depends on all "
                    "rollouts that start together with it, not on its plan alone",
                    stacklevel=4,
                )
        return self.env.reset(seed=int(np.random.SeedSequence(seeds).generate_state(1)[0]))

    # -- batches -----------------------------------------------------------------------------------------------------

    def _batch(self, actions: Any, active: np.ndarray) -> Any:
        actions = check_elements("actions", self._actions, actions, self.num_slots)
        rows = [
            action_element(self._actions, actions, slot, f"the action of slot {slot}") if live else self._idle
            for slot, live in enumerate(active.tolist())
        ]
        empty = gymnasium.vector.utils.create_empty_array(self._actions, self.num_slots)
        return gymnasium.vector.utils.concatenate(self._actions, rows, empty)

    def _write(self, observations: Any, rows: np.ndarray) -> None:
        """Store ``rows`` of the environment's observations."""
        shown = dict(iterate_leaves(_as_batch(self._last, observations)))

        def kept(leaf: np.ndarray, path: tuple[Any, ...]) -> np.ndarray:
            new = shown[path]
            if new.shape != leaf.shape:
                raise ShapeError(f"observations{list(path)} must have shape {leaf.shape}, got {new.shape}")
            leaf = leaf.copy()
            leaf[rows] = new[rows]
            return leaf

        self._last = map_leaves(kept, self._last)

    def _take_finals(self, infos: Mapping[str, Any], ended: np.ndarray, dicts: list[dict[str, Any]]) -> None:
        finals = infos.get("final_obs", infos.get("final_observation"))
        if finals is None:
            raise ValueError(
                f"{self.info.name} resets in the same step without the last observation in infos['final_obs']"
            )
        final_infos = infos.get("final_info")
        infos_of_slots = _info_dicts(final_infos, self.num_slots) if isinstance(final_infos, Mapping) else final_infos
        shown = getattr(self.env.unwrapped, "_env_obs", None)  # of a SyncVectorEnv: what the resets have returned
        for slot in ended.tolist():
            if shown is not None and finals[slot] is shown[slot]:
                raise ValueError(
                    f"the sub-environments of {self.info.name} show the same memory at every step, which the reset of "
                    "autoreset mode SAME_STEP has overwritten: let them return copies, or use another autoreset mode"
                )
            write_element(self._space, self._last, slot, finals[slot], "the final observation")
            dicts[slot] = (
                {name: own_copy(value, keep_objects=True) for name, value in (infos_of_slots[slot] or {}).items()}
                if infos_of_slots
                else {}
            )


def _as_batch(template: Any, observations: Any) -> Any:
    """Gymnasium's batch of observations as ours: elements that are not arrays come in tuples."""
    if isinstance(template, dict):
        return {key: _as_batch(part, observations[key]) for key, part in template.items()}
    if isinstance(template, tuple):
        return tuple(_as_batch(part, value) for part, value in zip(template, observations, strict=True))
    if template.dtype.hasobject:
        batch = np.full(len(template), None, dtype=object)
        for row, value in enumerate(observations):
            batch[row] = own_copy(value, keep_objects=True)
        return batch
    return np.asarray(observations, dtype=template.dtype)


def _info_dicts(infos: Mapping[str, Any], count: int) -> list[dict[str, Any]]:
    """Gymnasium's dict of arrays (with masks ``_name``) as one dict per sub-environment."""
    dicts: list[dict[str, Any]] = [{} for _ in range(count)]
    for name, values in infos.items():
        if name.startswith("_") or name in ("final_obs", "final_info", "final_observation"):
            continue
        present = np.broadcast_to(np.asarray(infos.get(f"_{name}", True), dtype=bool), (count,))
        if isinstance(values, Mapping):
            values = _info_dicts(values, count)
        elif not hasattr(values, "__len__") or len(values) != count:
            continue  # about the batch as a whole
        for slot in np.flatnonzero(present).tolist():
            dicts[slot][name] = own_copy(values[slot], keep_objects=True)
    return dicts
