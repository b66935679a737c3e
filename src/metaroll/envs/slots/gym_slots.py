"""Any Gymnasium environment as ``Slots``: a list of environments, stepped in turn."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.wrappers import OrderEnforcing, TimeLimit

from metaroll.checks import check_whole
from metaroll.data.data_format import iterate_leaves, own_copy
from metaroll.data.space_batches import (
    action_element,
    check_elements,
    empty_batch,
    is_structured,
    same_kind,
    take_rows,
    to_box_type,
    write_element,
)
from metaroll.envs.base.batching import unwrapped_and_limit
from metaroll.envs.base.constructors import close_env, constructor_of, is_env_instance, make_env
from metaroll.envs.base.env_state import (
    check_init_state,
    plan_options,
    read_state,
    reading_init_state,
    state_owner,
    time_step_of,
    wanted_options,
)
from metaroll.envs.mujoco.gymnasium_envs import checked_step
from metaroll.errors import ShapeError, SlotError
from metaroll.tasks.domain_access import domain_params_of
from metaroll.tasks.env_copies import copy_env
from metaroll.tasks.plan_table import plan_env_seeds
from metaroll.tasks.updates import ExistingEnvUpdate, SetTaskUpdate, env_layers
from metaroll.types import EnvSpec, EnvUpdate, RolloutPlan, Slots, SlotsInfo, SlotStep, TaskNote

__all__ = ["GymSlots", "env_name"]

_NEVER = np.iinfo(np.int64).max
_NO_NUMBERS = frozenset({type(None), str, bytes, np.str_, np.bytes_})
"""Types of rewards that NumPy would make NaN or a number of."""

_MOST_PARKED = 2
"""Environments per slot that wait for tasks of their kind; more would cost memory (Meta-World's take 20 MB each)."""


class GymSlots(Slots):
    """A list of environments behind the ``Slots`` protocol.

    What a rollout does depends on its plan alone: every reset is seeded from the plan, and an environment that carries
    an earlier plan's update is put back, or rebuilt, before the next plan starts. Time limits of Gymnasium stay
    truncation, endings termination, and nothing resets itself. Observations, actions and infos are copied, since an
    environment may hand out, or keep, the same memory at every step.

    What fails in an environment raises a ``SlotError`` with the number of its slot; its cause is the error itself.

    Args:
        source: An id, a constructor, or an environment (which is copied for every slot).
        num_slots: How many environments at most; they are built when they are first needed.
        share: Use the given environment itself, in the one slot there is.
    """

    def __init__(self, source: Any, num_slots: int, *, share: bool = False) -> None:
        self.num_slots = check_whole("num_slots", num_slots)
        self._envs = _EnvGroup(source, self.num_slots, share)
        env = self._envs.fresh(0)
        self.env_spec = EnvSpec.from_env(env)
        forgetful = bool(getattr(getattr(env, "spec", None), "nondeterministic", False))  # Gymnasium's option
        self.info = SlotsInfo(env_name(env), can_keep=not share, resumes="nothing" if forgetful else "replay")
        self._spaces = {"observation_space": env.observation_space, "action_space": env.action_space}
        # Whether more than the shape of observations is checked: parts, or numbers that may not fit.
        self._structured = is_structured(env.observation_space)
        self._careful = self._structured or np.dtype(env.observation_space.dtype).kind in "biu"
        self._obs_shape: tuple[int, ...] = env.observation_space.shape or ()
        self._last: Any = empty_batch(env.observation_space, self.num_slots)
        self._holds_objects = any(leaf.dtype.hasobject for _, leaf in iterate_leaves(self._last))
        self._env_actions = _action_converter(env.action_space, self.num_slots)
        self._steps: list[Callable[[Any], Any]] = [_not_reset] * self.num_slots
        self._counts_itself = share
        self._elapsed = np.zeros(self.num_slots, dtype=np.int64)
        self._limits = np.full(self.num_slots, _NEVER)
        """Time limits of the wrappers that ``_steps`` leaves out."""
        self._notes = [_Note(self.info.name) for _ in range(self.num_slots)]

    def environments(self, *, make: bool = False) -> list[Any]:
        """The environments; ``None`` for a slot that has not been used, unless all are to be made."""
        envs = [self._envs.env(slot) for slot in range(self.num_slots)]
        return [self._envs.fresh(i) if env is None else env for i, env in enumerate(envs)] if make else envs

    def name_of(self, slot: int) -> str:
        """The name of the environment in a slot."""
        return self._notes[slot].name

    def reset_info(self, slot: int) -> Mapping[str, Any]:
        """The info of the environment in a slot at its last reset."""
        return self._notes[slot].reset_info

    def states(self) -> list[np.ndarray | None]:
        """``state`` of each environment that reports it as numbers."""
        return [None if note.state_owner is None else read_state(note.state_owner) for note in self._notes]

    def time_step(self, slot: int) -> float | None:
        """Seconds per step, where the environment in a slot declares it (``dt``)."""
        return time_step_of(self._envs.env(slot))

    def provenance(self, slot: int) -> dict[str, Any] | None:
        """The versions and rules of the environment in a slot (``provenance``), or ``None``."""
        declared = (getattr(layer, "provenance", None) for layer in env_layers(self._envs.env(slot)))
        first = next((one for one in declared if one is not None), None)
        return dict(first) if isinstance(first, Mapping) else None

    def domain_param(self, slot: int) -> dict[str, Any] | None:
        """Domain parameters of the rollout in a slot; ``None`` where its environment does not report them."""
        return self._notes[slot].domain_param

    def keep(self, slots: np.ndarray) -> None:
        """Continue with these slots only; the environments of the others are closed."""
        kept = [int(slot) for slot in slots]
        if not self.info.can_keep:
            super().keep(slots)
        self._envs.keep(kept)
        self._last = take_rows(self._last, kept)
        self._elapsed, self._limits = self._elapsed[kept], self._limits[kept]
        self._steps = [self._steps[slot] for slot in kept]
        self._notes = [self._notes[slot] for slot in kept]
        self.num_slots = len(kept)
        self._env_actions = _action_converter(self._spaces["action_space"], self.num_slots)

    def reset(self, slots: Sequence[int], plans: Sequence[RolloutPlan]) -> Any:
        """Start ``plans[i]`` in slot ``slots[i]``; first observations ``(len(slots), ...)``.

        ``plan.init_state`` is handed to the environment as ``options={"init_state": ...}``; one that reports its
        ``state``, and then is in another, has ignored it, which is an error. Wrappers may ask for more of the plan
        (see ``env_state``).

        Raises:
            SlotError: An environment failed.
            ValueError: A plan has no seed.
        """
        rows, seeds, space = list(slots), plan_env_seeds(plans).tolist(), self._spaces["observation_space"]
        for slot, plan, seed in zip(rows, plans, seeds, strict=True):
            if self.beat is not None:
                self.beat("reset")
            try:
                observation = self._start(slot, plan, seed)
                plain = observation.__class__ is np.ndarray and not self._careful
                if plain and observation.shape == self._obs_shape:
                    self._last[slot] = observation
                else:
                    write_element(space, self._last, slot, observation)
            except (Exception, SystemExit) as error:
                raise SlotError(slot) from error
        return take_rows(self._last, rows)

    def step(self, actions: np.ndarray, active: np.ndarray) -> SlotStep:
        """Step the environments where ``active (E,)`` is true with their rows of ``actions``.

        Raises:
            SlotError: An environment failed, or an action is none of its space.
        """
        live = np.asarray(active).nonzero()[0].tolist()
        try:
            rows = self._env_actions(actions, live)
        except ValueError as error:
            raise SlotError(None, "the action given to the environment") from error
        observations = take_rows(self._last, slice(None))
        rewards = np.zeros(self.num_slots)
        terminated = np.zeros(self.num_slots, dtype=bool)
        truncated = np.zeros(self.num_slots, dtype=bool)
        infos: list[dict[str, Any]] = [{}] * self.num_slots
        observations_type = None if self._structured else observations.dtype
        steps, obs_shape, array, space = self._steps, self._obs_shape, np.ndarray, self._spaces["observation_space"]
        careful, holds_objects, truth = self._careful, self._holds_objects, np.bool_
        number, no_numbers = float, _NO_NUMBERS
        slot, result, beat = -1, None, self.beat
        try:
            for slot in live:  # the hot path: any addition here slows every step of every environment
                result = None
                if beat is not None and not slot & 3:
                    beat("step")
                result = steps[slot](rows[slot])
                observation, reward, ended, cut, info = result
                if ended is not False:
                    if ended.__class__ is not bool and ended.__class__ is not truth:
                        ended = _truth_value("terminated", ended)
                    terminated[slot] = ended
                if cut is not False:
                    if cut.__class__ is not bool and cut.__class__ is not truth:
                        cut = _truth_value("truncated", cut)
                    truncated[slot] = cut
                if reward.__class__ is not number and reward.__class__ in no_numbers:
                    raise TypeError("reward is not a number")
                rewards[slot] = reward
                if (
                    observation.__class__ is not array
                    or observation.shape != obs_shape
                    or (careful and observation.dtype != observations_type)
                ):
                    if holds_objects:
                        observation = own_copy(observation, keep_objects=True)
                    write_element(space, observations, slot, observation)
                else:
                    observations[slot] = observation
                if info or info.__class__ is not dict:
                    infos[slot] = {name: own_copy(value, keep_objects=True) for name, value in info.items()}
        except SystemExit as error:
            raise SlotError(slot) from error
        except Exception as error:
            raise SlotError(slot) from (error if result is None else _explained(error, result, space))
        self._last = take_rows(observations, slice(None))
        self._elapsed += active
        truncated |= active & (self._elapsed >= self._limits)
        states = self.states() if self.record_states else None
        return SlotStep(observations, rewards, terminated, truncated, infos, states)

    def close(self) -> None:
        """Close the environments, except those that the caller owns."""
        self._envs.close()
        self._steps = [_not_reset] * self.num_slots

    def _start(self, slot: int, plan: RolloutPlan, seed: int) -> Any:
        before, note = self._envs.env(slot), self._notes[slot]
        env = self._envs.prepare(slot, plan.env_update)
        if env is not before or self._steps[slot] is _not_reset:
            for name, space in self._spaces.items():
                if not same_kind(getattr(env, name), space):
                    raise ShapeError(
                        f"{name} must stay as the environment was given ({space}) in every slot, got "
                        f"{getattr(env, name)} after {plan.env_update!r}; roll out environments of different shapes "
                        "with engines of their own"
                    )
            # The caller's own environment keeps all its wrappers, which count on.
            # Others are stepped below the wrappers that only count and check, which cost a tenth of a cheap one's time.
            inner_env, limit = env, None
            if not self._counts_itself:
                inner_env, limit = unwrapped_and_limit(env, (OrderEnforcing, TimeLimit))
            self._steps[slot] = checked_step(env, inner_env.step)
            self._limits[slot] = _NEVER if limit is None else limit
            note.name, note.wanted = env_name(env), wanted_options(env)
            note.may_choose = any(hasattr(layer, "own_domain_params") for layer in env_layers(env))
        self._elapsed[slot] = 0
        options = plan_options(plan, note.wanted)
        if plan.init_state is not None:
            options["init_state"] = np.array(plan.init_state)
        chooses = plan.init_state is not None or note.may_choose
        with reading_init_state(env) if chooses else contextlib.nullcontext():
            result = env.reset(seed=seed, options=options) if options else env.reset(seed=seed)
        if not isinstance(result, tuple) or len(result) != 2:
            raise TypeError(
                f"reset() of {type(env).__name__} must return (observation, info), the Gymnasium API, "
                f"got {type(result).__name__}"
            )
        observation = result[0]
        if plan.init_state is not None:
            check_init_state(env, np.asarray(plan.init_state))
        note.state_owner, note.domain_param = state_owner(env), domain_params_of(env)
        note.reset_info = {name: own_copy(value, keep_objects=True) for name, value in (result[1] or {}).items()}
        return own_copy(observation, keep_objects=True) if self._holds_objects else observation


@dataclass
class _Note:
    """Facts about the environment in a slot, and its episode.

    Attributes:
        name: Name of the environment, which an update may have replaced.
        wanted: Which entries of plans it wants to hear.
        may_choose: Whether a wrapper may choose where episodes start.
        state_owner: Its layer that has a state.
        reset_info: The info of its last reset.
        domain_param: Its domain parameters.
    """

    name: str
    wanted: frozenset[str] = frozenset()
    may_choose: bool = False
    state_owner: Any = None
    reset_info: Mapping[str, Any] = field(default_factory=dict)
    domain_param: dict[str, Any] | None = None


class _Held(NamedTuple):
    """An environment, the update that it carries, and whether it is ours to close."""

    env: Any
    update: EnvUpdate | None
    owned: bool


class _EnvGroup:
    """The environments of the slots, and which update each of them carries."""

    def __init__(self, source: Any, num_slots: int, share: bool) -> None:
        if share and (not is_env_instance(source) or num_slots != 1):
            raise ValueError(
                f"share=True takes an environment and one slot, got {type(source).__name__} and {num_slots} slots"
            )
        self._shared: Any = source if share else None
        self._template = None if share else constructor_of(source)
        self._held: list[_Held | None] = [None] * num_slots
        self._foreign: set[Hashable] = set()
        """Origins of updates that the source's environments are not of the kind of."""
        self._parked: list[_Held] = []
        """Environments of other kinds than the slots hold now; the oldest first."""

    def env(self, slot: int) -> Any:
        """The environment in ``slot``, or ``None``."""
        held = self._held[slot]
        return None if held is None else held.env

    def prepare(self, slot: int, update: EnvUpdate | None) -> Any:
        """The environment of ``slot`` as ``update`` makes it from the source, independent of the slot's past."""
        if update is None or isinstance(update, TaskNote):
            return self.fresh(slot)
        if update.builds_env:
            self._drop(slot)
            return self._install(slot, update(None), update)
        held = self._held[slot]
        # Unless it declares otherwise, an update may leave traces of the one before: it gets an untouched environment.
        may_stay = held is not None and held.update is not None and update.replaces(held.update)
        if not may_stay and isinstance(update, SetTaskUpdate):
            may_stay = self._unpark(slot, update)
            if not may_stay and update.origin in self._foreign:  # no need to ask an untouched environment again
                return self._install(slot, update(None), update)
        old = self.env(slot) if may_stay else self.fresh(slot)
        if self._template is None:  # a copy of the shared environment, from which plans without an update start
            self._template = constructor_of(self._shared)
        if isinstance(update, SetTaskUpdate) and not update.reuses(old):
            self._foreign.add(update.origin)
            self._drop(slot)
            old = None
        held = self._held[slot]
        if held is not None:  # before it is changed: an error amid that, or Ctrl-C, leaves traces, too
            self._held[slot] = held._replace(update=update)
        return self._install(slot, update(old), update)

    def fresh(self, slot: int) -> Any:
        """The environment of ``slot`` as the source makes it."""
        held = self._held[slot]
        if held is not None and held.update is None:
            return held.env
        self._drop(slot)
        # Without a template: the shared environment, which no update has touched.
        return self._install(slot, self._shared if self._template is None else make_env(self._template), None)

    def keep(self, slots: list[int]) -> None:
        for slot in set(range(len(self._held))).difference(slots):
            self._drop(slot)
        self._held = [self._held[slot] for slot in slots]

    def close(self) -> None:
        for slot in range(len(self._held)):
            self._drop(slot)
        while self._parked:
            close_env(self._parked.pop().env)

    def _unpark(self, slot: int, update: SetTaskUpdate) -> bool:
        """Park the environment of ``slot``, and put one there that needs but its task set; false if there is none.

        So tasks of several kinds of environments (Meta-World's) take turns without any being built again.
        """
        held = self._held[slot]
        if held is not None and held.owned and isinstance(held.update, SetTaskUpdate):
            self._parked.append(held)
            self._held[slot] = None
            if len(self._parked) > _MOST_PARKED * len(self._held):
                close_env(self._parked.pop(0).env)
        for i, parked in enumerate(self._parked):
            if parked.update is not None and update.replaces(parked.update) and update.reuses(parked.env):
                del self._parked[i]
                self._drop(slot)
                self._held[slot] = parked
                return True
        return False

    def _install(self, slot: int, env: Any, update: EnvUpdate | None) -> Any:
        if not is_env_instance(env):
            raise TypeError(f"{update!r} must return an environment, got {env!r} of type {type(env).__name__}")
        shared = self._shared is not None and env.unwrapped is self._shared.unwrapped
        mine = not (shared or isinstance(update, ExistingEnvUpdate))
        if any(held is not None and held.env is env for i, held in enumerate(self._held) if i != slot):
            env, mine = copy_env(env), True  # two slots cannot step one environment
        self._held[slot] = _Held(env, update, mine)
        return env

    def _drop(self, slot: int) -> None:
        held, self._held[slot] = self._held[slot], None
        if held is not None and held.owned:
            close_env(held.env)


def env_name(env: Any) -> str:
    """The id under which an environment was made, else the name of its class."""
    registered = getattr(getattr(env, "spec", None), "id", None)
    return registered or type(getattr(env, "unwrapped", env)).__name__


def _action_converter(space: gymnasium.Space, num_slots: int) -> Callable[[Any, list[int]], list[Any]]:
    """A function that splits a batch of actions into one action per slot, in memory that belongs to the environment."""
    if not isinstance(space, gymnasium.spaces.Box | gymnasium.spaces.Discrete):

        def to_elements(actions: Any, live: list[int]) -> list[Any]:
            actions = check_elements("actions", space, actions, num_slots)
            rows: list[Any] = [None] * num_slots
            for slot in live:
                rows[slot] = action_element(space, actions, slot, f"the action of slot {slot}")
            return rows

        return to_elements
    if isinstance(space, gymnasium.spaces.Discrete):
        n, start = int(space.n), int(space.start)

        def to_choices(actions: np.ndarray, live: list[int]) -> list[Any]:
            actions = np.asarray(actions)
            if actions.shape != (num_slots,):
                raise ShapeError(f"actions must have shape ({num_slots},) for {space}, got {actions.shape}")
            if actions.dtype.kind in "iu" and actions.min() >= 0 and actions.max() < n:
                return (actions + start if start else actions).tolist()
            rows = actions.tolist()
            for slot in live:  # actions of slots that are not stepped may be anything
                index = rows[slot]
                if (index.__class__ is not int and not float(index).is_integer()) or not 0 <= index < n:
                    raise ValueError(f"actions must be indices from 0 to {n - 1}, got {index!r} in slot {slot}")
                rows[slot] = int(index) + start
            return rows

        return to_choices

    shape = (num_slots, *(space.shape or ()))
    # float32 needs only a cast; integers and wider floats need a check of the bounds.
    size, dtype = int(np.prod(shape)), space.dtype if space.dtype == np.float32 else None

    def to_boxes(actions: np.ndarray, live: list[int]) -> list[Any]:
        owned = np.array(actions, dtype=dtype)
        if owned.shape != shape:
            if owned.size != size or owned.ndim == 0 or owned.shape[0] != num_slots:
                raise ShapeError(f"actions must have shape {shape} or ({num_slots}, act_dim), got {owned.shape}")
            owned = owned.reshape(shape)
        return list(owned if dtype is not None else to_box_type(space, owned))

    return to_boxes


def _not_reset(action: Any) -> Any:
    raise gymnasium.error.ResetNeeded("a slot must be reset with a plan before it is stepped")


def _truth_value(name: str, value: Any) -> bool:
    """A truth value of another type than bool: 0 or 1, perhaps in an array."""
    array = np.asarray(value)
    if array.size != 1 or array.dtype.kind not in "biuf" or array.item() not in (0, 1):
        raise _StepError(f"step() must return {name} as True or False, got {value!r} of type {type(value).__name__}")
    return bool(array.item())


class _StepError(TypeError):
    """An error that already explains the wrong result of ``step``."""


def _explained(error: Exception, result: Any, space: gymnasium.Space) -> Exception:
    """A clearer error for a step that went through in the environment but returned something else than expected."""
    if isinstance(error, ShapeError):
        return error
    if isinstance(error, _StepError):
        return TypeError(str(error))
    if not isinstance(result, tuple) or len(result) != 5:
        what = f"a tuple of {len(result)}" if isinstance(result, tuple) else type(result).__name__
        hint = "; wrap an environment of the old Gym API with shimmy" if what == "a tuple of 4" else ""
        return TypeError(
            "step() must return (observation, reward, terminated, truncated, info), the Gymnasium API, "
            f"got {what}{hint}"
        )
    observation, reward, terminated, truncated, info = result
    try:
        write_element(space, empty_batch(space, 1), 0, observation)
    except (ShapeError, ValueError) as wrong:
        return wrong
    if reward is None or isinstance(reward, str | bytes):
        return TypeError(f"step() must return a number as reward, got {reward!r}")
    if not isinstance(info, Mapping):
        return TypeError(f"step() must return a dict as info, got {info!r} of type {type(info).__name__}")
    return TypeError(
        "step() must return an array, a number, two truth values and a dict, got "
        f"reward={reward!r}, terminated={terminated!r}, truncated={truncated!r}, info={info!r} ({error})"
    )
