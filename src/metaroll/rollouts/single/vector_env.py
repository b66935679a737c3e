"""Our slots offered to others: a ``gymnasium.vector.VectorEnv`` with any of the three autoreset modes."""

from __future__ import annotations

import copy
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from metaroll.checks import check_list, check_whole, described
from metaroll.data.space_batches import take_rows
from metaroll.envs.lookup.source import make_slots
from metaroll.policies.adapters import ScriptedPolicy
from metaroll.rollouts.engine.collection import collect_here
from metaroll.seeding import fresh_seed
from metaroll.types import EnvUpdate, RolloutPlan

__all__ = ["SlotsVectorEnv"]


class SlotsVectorEnv(VectorEnv):
    """Many environments for anything that takes Gymnasium's vector environments.

    An environment with its own batched simulator is stepped as one; any other is a list of environments in this
    process. Episode ``k`` of sub-environment ``i`` depends on its seed, ``k`` and its task alone, in every mode.

    Args:
        env: Id, constructor or instance, as for ``RolloutEngine``.
        num_envs: How many.
        autoreset_mode: What happens after an ending: ``"NextStep"`` (the next step resets and ignores the action),
            ``"SameStep"`` (the step itself resets; the true last observation is in ``infos["final_obs"]``) or
            ``"Disabled"`` (``reset`` with ``options={"reset_mask": bool (num_envs,)}`` does).
        env_updates: The variation of each sub-environment (e.g. from a task sampler); ``None`` means the environment
            as it is. ``reset`` takes new ones as ``options={"env_updates": ...}``.
        max_episode_steps: Truncate after this many steps; ``None`` means the environment's own limit.

    ``reset(seed=s)`` gives sub-environment ``i`` the seed ``s + i``; a list gives each its own. What an environment is
    reset with is derived from that seed and the number of its episode, the first one too: starts are others than those
    of ``gymnasium.make_vec`` with the same seed. ``options={"init_state": (num_envs, state_dim)}`` sets where they
    start; ``options={"reset_mask": ...}`` resets some in the other modes, too, as Gymnasium's ``SyncVectorEnv`` does.

    ``get_attr``, ``set_attr`` and ``call`` reach the sub-environments, where these are a list; a batched simulator has
    none. An ``EnvUpdate`` that builds its environment anew for each episode drops what ``set_attr`` has set.
    """

    def __init__(
        self,
        env: Any,
        num_envs: int,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        *,
        env_updates: Sequence[EnvUpdate | None] | None = None,
        max_episode_steps: int | None = None,
    ) -> None:
        self.autoreset_mode = _mode(autoreset_mode)
        check_whole("num_envs", num_envs)
        if max_episode_steps is not None:
            check_whole("max_episode_steps", max_episode_steps)
        self._slots = make_slots(env, num_envs, reachable=True)
        spec = self._slots.env_spec
        self.num_envs = self._slots.num_slots
        self.spec = copy.copy(getattr(self._example(), "spec", None))
        if self.spec is not None and max_episode_steps is not None:
            self.spec.max_episode_steps = int(max_episode_steps)
        self.metadata = {"autoreset_mode": self.autoreset_mode, "render_modes": []}
        self.single_observation_space, self.single_action_space = spec.observation_space, spec.action_space
        batch = gymnasium.vector.utils.batch_space
        self.observation_space = batch(spec.observation_space, self.num_envs)
        self.action_space = batch(spec.action_space, self.num_envs)
        self._limit = max_episode_steps
        self._updates = self._checked_updates(env_updates)
        self._seeds = [fresh_seed() for _ in range(self.num_envs)]
        self._episodes = [0] * self.num_envs
        self._due = np.zeros(self.num_envs, dtype=bool)
        """Sub-environments that have ended and were not reset since."""
        # Actions are given from outside, so the policy is not used.
        self._live = collect_here(self._slots, ScriptedPolicy(_nothing), record=False)
        self._begun = False

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start new episodes in all sub-environments, or in those of ``options["reset_mask"]``."""
        self._check_open()
        if options is not None and not isinstance(options, Mapping):
            raise TypeError(f"options must be a dict, got {described(options)}")
        options = dict(options or {})
        mask = np.asarray(options.pop("reset_mask", np.ones(self.num_envs, dtype=bool)))
        updates, states = options.pop("env_updates", None), options.pop("init_state", None)
        if options:
            raise ValueError(f"options may hold reset_mask, env_updates and init_state, got {sorted(options)}")
        if mask.shape != (self.num_envs,) or mask.dtype != np.bool_ or not mask.any():
            raise ValueError(f"reset_mask must be a bool array ({self.num_envs},) with a True in it, got {mask!r}")
        if not self._begun and not mask.all():
            raise gymnasium.error.ResetNeeded("the first reset must reset all sub-environments")
        updates = self._updates if updates is None else self._checked_updates(updates)
        states = None if states is None else check_list("init_state", states, "states, one per sub-environment")
        if states is not None and len(states) != self.num_envs:
            raise ValueError(f"init_state must have one row per sub-environment ({self.num_envs}), got {len(states)}")
        seeds, rows = self._checked_seeds(seed), np.flatnonzero(mask).tolist()
        self._begun = False  # where an environment fails, or Ctrl-C comes amid the call, all are to be reset
        self._updates = updates
        for i in rows:
            own = seeds[i]
            if own is not None:
                self._seeds[i], self._episodes[i] = own, 0
        self._start(rows, states)
        result = self._observations(), self._reset_infos({}, rows)
        self._begun = True
        return result

    def step(self, actions: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Take one step everywhere; see the class for what happens after an ending."""
        self._check_open()
        if not self._begun:
            raise gymnasium.error.ResetNeeded(
                "call reset before step, also after a call that failed or was interrupted"
            )
        waiting = np.flatnonzero(self._due).tolist()
        if waiting and self.autoreset_mode is AutoresetMode.DISABLED:
            raise gymnasium.error.ResetNeeded(
                f"sub-environments {waiting} have ended; reset them with options={{'reset_mask': ...}} first"
            )
        choices = _to_choices(self.single_action_space, actions)
        rewards = np.zeros(self.num_envs)
        terminated, truncated = (np.zeros(self.num_envs, dtype=bool) for _ in range(2))
        infos: dict[str, Any] = {}
        stepped = self._live.active
        self._begun = False  # as in reset
        if stepped.any():
            self._live.advance(1, actions=choices)
            result = self._live.last_step
            rewards, terminated, truncated = (
                np.array(part) for part in (result.rewards, result.terminated, result.truncated)
            )
            finals = (terminated | truncated) & (self.autoreset_mode is AutoresetMode.SAME_STEP)
            infos = self._infos(result.infos, stepped & ~finals)
            if finals.any():
                infos.update(self._finals(finals), final_info=self._infos(result.infos, finals))
        self._due = terminated | truncated
        if waiting:  # NEXT_STEP: this step was their reset
            self._start(waiting, None)
            infos = self._reset_infos(infos, waiting)
        elif self.autoreset_mode is AutoresetMode.SAME_STEP and self._due.any():
            started = np.flatnonzero(self._due).tolist()
            self._start(started, None)
            infos = self._reset_infos(infos, started)
        observations = self._observations()
        self._begun = True
        return observations, rewards, terminated, truncated, infos

    def render(self) -> tuple[Any, ...] | None:
        """Frames of the sub-environments, where these are a list of environments that render."""
        envs = self._slots.environments()
        return tuple(env.render() for env in envs) if envs and self._slots.info.kind == "list" else None

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """The attribute ``name`` of each sub-environment or of a wrapper of it."""
        return self.call(name)

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Results of the method ``name`` of each sub-environment; of an attribute that is not a method, its value."""
        attributes = [_attribute(env, name) for env in self._envs(name)]
        return tuple(value(*args, **kwargs) if callable(value) else value for value in attributes)

    def set_attr(self, name: str, values: Any) -> None:
        """Set an attribute of the sub-environments: one value each (a list or tuple), or the same for all."""
        values = values if isinstance(values, list | tuple) else [values] * self.num_envs
        if len(values) != self.num_envs:
            raise ValueError(
                f"values must be one value, or a list of one per sub-environment ({self.num_envs}), got {len(values)}"
            )
        for env, value in zip(self._envs(name), values, strict=True):
            (getattr(env, "set_wrapper_attr", None) or functools.partial(setattr, env))(name, value)

    def close_extras(self, **kwargs: Any) -> None:
        """Close the sub-environments."""
        self._live.close()

    # -- helpers -----------------------------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self.closed:
            raise gymnasium.error.ClosedEnvironmentError("this SlotsVectorEnv has been closed; create a new one")

    def _example(self) -> Any:
        """One sub-environment, or the vector environment that is stepped; ``None`` for a batched simulator."""
        return next(iter(self._slots.environments()), None)

    def _envs(self, name: str) -> Sequence[Any]:
        """The sub-environments, made where they have not been used yet."""
        self._check_open()
        if self._slots.info.kind != "list":
            raise AttributeError(
                f"{name!r} cannot be asked of, or set in, single sub-environments: {type(self._slots).__name__} steps "
                "them as one; gymnasium.vector.SyncVectorEnv has sub-environments"
            )
        return self._slots.environments(make=True)

    def _checked_updates(self, updates: Sequence[EnvUpdate | None] | None) -> list[EnvUpdate | None]:
        if updates is None:
            return [None] * self.num_envs
        updates = check_list("env_updates", updates, "EnvUpdates or None")
        if len(updates) != self.num_envs:
            raise ValueError(
                f"env_updates must have one entry per sub-environment ({self.num_envs}), got {len(updates)}"
            )
        for update in updates:
            if update is not None and not callable(update):
                raise TypeError(f"env_updates must hold EnvUpdates or None, got {update!r}")
        return updates

    def _checked_seeds(self, seed: int | Sequence[int | None] | None) -> list[int | None]:
        """A seed for each sub-environment; ``None`` where none is given."""
        if seed is None:
            return [None] * self.num_envs
        if isinstance(seed, int | np.integer) and not isinstance(seed, bool):
            seeds: list[int | None] = [int(seed) + i for i in range(self.num_envs)]
        else:
            seeds = check_list("seed", seed, "seeds, or an integer")
        if len(seeds) != self.num_envs:
            raise ValueError(f"seed must be an integer or a list of {self.num_envs}, got {len(seeds)} entries")
        for own in seeds:
            if own is not None and (isinstance(own, bool) or not isinstance(own, int | np.integer) or own < 0):
                raise ValueError(f"seed must hold integers of at least 0 (or None), got {own!r}")
        return [None if own is None else int(own) for own in seeds]

    def _start(self, rows: list[int], states: Any) -> None:
        plans = [
            RolloutPlan(
                index=i,
                seed=(self._seeds[i], 0, self._episodes[i]),
                env_update=self._updates[i],
                init_state=None if states is None else np.asarray(states[i]),
                max_steps=self._limit,
                extras={"name": f"episode {self._episodes[i]} of sub-environment {i} (seed {self._seeds[i]})"},
            )
            for i in rows
        ]
        self._live.start(rows, plans)
        for i in rows:
            self._episodes[i] += 1
        self._due[rows] = False

    def _observations(self) -> Any:
        return _for_gymnasium(self.single_observation_space, self._live.observations)

    def _infos(self, infos: Any, reporting: np.ndarray) -> dict[str, Any]:
        """Infos of the sub-environments in ``reporting (E,)``, in Gymnasium's format."""
        vector: dict[str, Any] = {}
        if isinstance(infos, Mapping):
            for name, value in infos.items() if reporting.any() else ():
                vector[name], vector[f"_{name}"] = np.array(value), reporting.copy()
            return vector
        for i in np.flatnonzero(reporting).tolist():
            vector = self._add_info(vector, dict(infos[i]), i)
        return vector

    def _reset_infos(self, infos: dict[str, Any], rows: list[int]) -> dict[str, Any]:
        """``infos`` with the infos of sub-environments at their reset, where these are a list of environments."""
        for i in rows:
            infos = self._add_info(infos, dict(self._slots.reset_info(i)), i)
        return infos

    def _finals(self, ended: np.ndarray) -> dict[str, Any]:
        """The true last observations, and which sub-environments have any."""
        last = self._live.observations
        finals = np.full(self.num_envs, None, dtype=object)
        for i in np.flatnonzero(ended).tolist():
            finals[i] = take_rows(last, i)
        return {"final_obs": finals, "_final_obs": ended.copy(), "_final_info": ended.copy()}


def _attribute(env: Any, name: str) -> Any:
    find = getattr(env, "get_wrapper_attr", None)  # looks into the wrappers, as Gymnasium's own vector environments do
    return getattr(env, name) if find is None else find(name)


def _mode(mode: AutoresetMode | str) -> AutoresetMode:
    try:
        return mode if isinstance(mode, AutoresetMode) else AutoresetMode(mode)
    except ValueError:
        raise ValueError(f"autoreset_mode must be one of {[m.value for m in AutoresetMode]}, got {mode!r}") from None


def _nothing(observations: Any, contexts: Any) -> Any:
    raise RuntimeError("the actions of a vector environment come from its caller")


def _to_choices(space: gymnasium.Space, actions: Any) -> Any:
    """Gymnasium's batch of actions in metaroll's form: choices counted from 0, other types than arrays as objects."""
    spaces = gymnasium.spaces
    if isinstance(space, spaces.Dict):
        return {name: _to_choices(part, actions[name]) for name, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_to_choices(part, value) for part, value in zip(space.spaces, actions, strict=True))
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        choices = np.asarray(actions)
        if choices.dtype.kind not in "biuf":
            raise TypeError(f"actions must be an array of integers for {space}, got {described(actions)}")
        return choices - space.start
    if isinstance(space, spaces.Box | spaces.MultiBinary):
        return np.asarray(actions)
    batch = np.full(len(actions), None, dtype=object)
    for i, action in enumerate(actions):
        batch[i] = action
    return batch


def _for_gymnasium(space: gymnasium.Space, batch: Any) -> Any:
    """A batch of observations in Gymnasium's form: in the types of the space, others than arrays in a tuple."""
    if isinstance(space, gymnasium.spaces.Dict):
        return {name: _for_gymnasium(part, batch[name]) for name, part in space.spaces.items()}
    if isinstance(space, gymnasium.spaces.Tuple):
        return tuple(_for_gymnasium(part, batch[i]) for i, part in enumerate(space.spaces))
    if batch.dtype.hasobject:
        return tuple(batch.tolist())
    return batch.astype(space.dtype, copy=False)
