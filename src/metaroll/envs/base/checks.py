"""A conformance kit: does an implementation of ``Slots`` keep the promises that exact rollouts rest on?"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from metaroll.checks import described
from metaroll.data.compare import trees_equal
from metaroll.data.data_format import iterate_leaves
from metaroll.data.space_batches import action_row, empty_batch, flat_actions, take_rows
from metaroll.errors import ConformanceError
from metaroll.types import RolloutPlan, Slots, SlotStep

__all__ = ["check_slots"]

_EXAMPLE = "for an environment: check_slots(lambda n: make_slots(env, n))"


def check_slots(
    make: Callable[[int], Slots],
    plans: Sequence[RolloutPlan] | None = None,
    *,
    num_steps: int | None = None,
    time_limit: int | None = None,
    seed: int = 0,
    like: Callable[[int], Slots] | None = None,
) -> None:
    """Raise a ConformanceError unless the slots behave as every other part of metaroll takes for granted.

    - ``form``: shapes and types of what ``reset`` and ``step`` return.
    - ``seed``: a plan without a seed is refused.
    - ``determinism``: equal plans give equal rollouts, bitwise identical.
    - ``numbers``: neither a part of the observations nor the rewards are NaN throughout, which would make the
      comparisons of the other promises empty.
    - ``memory``: what was returned never changes afterwards, and changing it changes nothing inside.
    - ``actions``: the actions handed in are not changed.
    - ``history``: a rollout does not depend on what its slot did before.
    - ``neighbors``: nor on what other slots do, on their resets, or on which slot it is (e.g. a shared generator).
    - ``mask``: a slot that is not active is not stepped; it repeats its observation, with reward 0 and no ending
      (not of a vector environment of others, which steps as a whole).
    - ``time_limit``: reaching the time limit is truncation, not termination.
    - ``resume``: where slots return and accept their whole state, other slots continue from it with the same bits.
    - ``kinds``: slots of another kind, made by ``like``, give the same rollouts, bitwise identical.

    Any environment is checked with ``check_slots(lambda n: make_slots(env, n))``.

    Args:
        make: Makes slots; called with how many.
        plans: Rollouts to try, at least two; by default four that differ in their seed. Plans with different
            ``env_update`` also check that updates leave no trace.
        num_steps: Longest rollout; by default the time limit, or 50.
        time_limit: Steps after which the environment itself ends an episode; by default
            ``env_spec.max_episode_length``.
        seed: For the actions, and for the default plans.
        like: Makes slots of the same environment in another way, one by one where ``make`` steps arrays, say; ``None``
            leaves ``kinds`` out.

    Raises:
        ConformanceError: A rule is broken.
        TypeError: ``make`` is not a function, or makes no slots.
        ValueError: There are fewer than two plans.
    """
    if not callable(make):
        raise TypeError(f"make must be a function from a number to Slots, got {make!r}; {_EXAMPLE}")
    plans = [RolloutPlan(i, (seed, 0, i)) for i in range(4)] if plans is None else list(plans)
    if len(plans) < 2:
        raise ValueError(f"plans must hold at least 2 plans, got {len(plans)}")
    kit = _Kit(make, plans, num_steps, time_limit, seed)
    kit.check_seed()
    reference = kit.check_determinism()
    kit.check_numbers(reference)
    kit.check_memory()
    kit.check_history(reference)
    kit.check_neighbors(reference)
    kit.check_mask(reference)
    kit.check_time_limit(reference)
    kit.check_resume(reference)
    if like is not None:
        kit.check_kinds(reference, like)


@dataclass
class _Record:
    """One rollout as it came."""

    observations: list[Any]
    rewards: list[float] = field(default_factory=list)
    endings: list[tuple[bool, bool]] = field(default_factory=list)
    infos: list[Mapping[str, Any]] = field(default_factory=list)

    @property
    def ended(self) -> bool:
        return bool(self.endings) and any(self.endings[-1])


@dataclass
class _Kit:
    """The arguments of ``check_slots``, and the checks."""

    make: Callable[[int], Slots]
    plans: list[RolloutPlan]
    num_steps: int | None
    time_limit: int | None
    seed: int

    def __post_init__(self) -> None:
        try:
            slots = self.make(1)
        except TypeError as error:  # most often the class of an environment, which takes no number
            raise TypeError(f"make(1) must return Slots, got the error {error!s}; {_EXAMPLE}") from error
        if not isinstance(slots, Slots):
            raise TypeError(f"make(1) must return Slots, got {slots!r} of type {type(slots).__name__}")
        self.spec, self.kind = slots.env_spec, slots.info.kind
        slots.close()
        if self.time_limit is None:
            self.time_limit = self.spec.max_episode_length
        self.longest = (self.time_limit or 50) if self.num_steps is None else self.num_steps
        self.everyone = list(range(len(self.plans)))
        self.generator = np.random.default_rng(self.seed)
        space = copy.deepcopy(self.spec.action_space)  # its generator must not advance
        space.seed(self.seed)
        self.actions = [[action_row(space, space.sample()) for _ in range(self.longest)] for _ in self.plans]

    def check_seed(self) -> None:
        slots = self.make(1)
        try:
            slots.reset([0], [self.plans[0].with_(seed=None)])
        except ValueError:
            return
        finally:
            slots.close()
        raise ConformanceError("seed", "reset must refuse a plan whose seed is None with a ValueError")

    def check_determinism(self) -> list[_Record]:
        first, again = ([self._roll([i])[0] for i in self.everyone] for _ in range(2))
        _compare(first, again, "determinism", "the same plan gives another rollout in new slots")
        return first

    def check_numbers(self, reference: list[_Record]) -> None:
        parts: dict[str, list[np.ndarray]] = {}
        for record in reference:
            parts.setdefault("rewards", []).append(np.asarray(record.rewards))
            for observation in record.observations:
                for path, leaf in iterate_leaves(observation):
                    name = f"observations{list(path)}" if path else "observations"
                    parts.setdefault(name, []).append(np.asarray(leaf))
        for name, arrays in parts.items():
            if any(array.size for array in arrays) and all(map(_all_nan, arrays)):
                raise ConformanceError("numbers", f"{name} are NaN in every step of every rollout")

    def check_memory(self) -> None:
        kept: list[tuple[Any, Any]] = []
        plain = self._roll(self.everyone, on_return=lambda returned: kept.append((returned, copy.deepcopy(returned))))
        if not all(trees_equal(returned, as_it_was) for returned, as_it_was in kept):
            raise ConformanceError(
                "memory", "an observation, reward or info that was returned changed later; return copies"
            )
        scribbled = self._roll(self.everyone, on_return=_scribble)
        message = "changing a returned array changes what the slots do later; return copies"
        _compare(plain, scribbled, "memory", message)

    def check_history(self, reference: list[_Record]) -> None:
        slots = self.make(1)
        order = [*self.everyone, *reversed(self.everyone)]
        try:
            records = [self._roll([i], slots=slots)[0] for i in order]
        finally:
            slots.close()
        _compare([reference[i] for i in order], records, "history", "a rollout depends on what its slot did before")

    def check_neighbors(self, reference: list[_Record]) -> None:
        message = "a rollout depends on the other slots, or on which slot it is in (a shared generator?)"
        for order in (self.everyone, self.everyone[::-1]):
            _compare([reference[i] for i in order], self._roll(order), "neighbors", message)
        if self.kind != "vector":
            records = self._roll(self.everyone, again_at=min(3, self.longest - 1))
            _compare(reference, records, "neighbors", "a rollout depends on the reset of another slot amid it")

    def check_mask(self, reference: list[_Record]) -> None:
        if self.kind == "vector":
            return
        records = self._roll(self.everyone, pause=True)
        _compare(reference, records, "mask", "a slot that is not active was stepped")

    def check_time_limit(self, reference: list[_Record]) -> None:
        for record in reference:
            if record.ended and record.infos[-1].get("TimeLimit.truncated") and not record.endings[-1][1]:
                raise ConformanceError("time_limit", "infos set TimeLimit.truncated, but truncated is False")
        limit = self.time_limit
        if limit is None or limit < 2:
            return
        if all(len(record.endings) == limit and record.endings[-1] == (True, False) for record in reference):
            raise ConformanceError(
                "time_limit", f"every rollout is terminated exactly at the time limit of {limit} steps; truncate it"
            )

    def check_resume(self, reference: list[_Record]) -> None:
        slots = self.make(1)
        resumes = slots.info.resumes
        slots.close()
        if resumes == "state":
            records = self._roll(self.everyone, move_at=max(1, self.longest // 3))
            _compare(reference, records, "resume", "other slots that continue from running_state do something else")

    def check_kinds(self, reference: list[_Record], like: Callable[[int], Slots]) -> None:
        slots = like(len(self.plans))
        try:
            records = self._roll(self.everyone, slots=slots)
        finally:
            slots.close()
        for record in (*reference, *records):
            record.infos = [{name: np.asarray(value) for name, value in info.items()} for info in record.infos]
        message = f"slots of kind {slots.info.kind!r} give another rollout than those of kind {self.kind!r}"
        _compare(reference, records, "kinds", message)

    def _roll(
        self,
        plan_of: Sequence[int],
        *,
        slots: Slots | None = None,
        pause: bool = False,
        move_at: int | None = None,
        again_at: int | None = None,
        on_return: Callable[[Any], None] = lambda returned: None,
    ) -> list[_Record]:
        """Run plan ``plan_of[slot]`` in each slot, reset from last to first; ``pause`` freezes some now and then.

        After ``move_at`` steps the rollouts continue in new slots, from their states. After ``again_at`` steps the
        rollout of the last slot begins again.
        """
        env = self.make(len(plan_of)) if slots is None else slots
        order = list(range(len(plan_of)))[::-1]
        try:
            first = env.reset(order, [self.plans[plan_of[slot]] for slot in order])
            self._check_observations("reset", first, len(order))
            records = [_Record([take_rows(first, row)]) for row in order]
            on_return(first)
            steps = 0
            while True:
                if steps == again_at:
                    slot = order[0]
                    records[slot] = _Record([take_rows(env.reset([slot], [self.plans[plan_of[slot]]]), 0)])
                active = np.array([not r.ended and len(r.rewards) < self.longest for r in records])
                if not active.any():
                    return records
                if steps == move_at:
                    state = copy.deepcopy(env.running_state(np.array(order)))
                    env.close()
                    env = self.make(len(plan_of))
                    env.reset(order, [self.plans[plan_of[slot]] for slot in order])
                    env.resume(np.array(order), state)
                steps += 1
                if pause:
                    active &= self.generator.random(len(active)) < 0.6
                self._step(env, plan_of, records, active, on_return)
        finally:
            if slots is None:
                env.close()

    def _step(
        self,
        env: Slots,
        plan_of: Sequence[int],
        records: list[_Record],
        active: np.ndarray,
        on_return: Callable[[Any], None],
    ) -> None:
        done = [min(len(record.rewards), self.longest - 1) for record in records]
        rows = [self.actions[plan][step] for plan, step in zip(plan_of, done, strict=True)]
        actions = flat_actions(self.spec.action_space, rows)
        handed, mask = copy.deepcopy(actions), active.copy()
        result = env.step(handed, mask)
        if not (trees_equal(handed, actions) and np.array_equal(mask, active)):
            raise ConformanceError("actions", "step changed the actions or the mask that it was given")
        self._check_form(result, len(active))
        for slot, record in enumerate(records):
            observation = take_rows(result.observations, slot)
            reward = float(result.rewards[slot])
            ending = bool(result.terminated[slot]), bool(result.truncated[slot])
            if active[slot]:
                record.observations.append(observation)
                record.rewards.append(reward)
                record.endings.append(ending)
                record.infos.append(_info_row(result.infos, slot))
            elif not trees_equal(observation, record.observations[-1]) or reward != 0 or any(ending):
                raise ConformanceError(
                    "mask",
                    f"slot {slot} was not active, but its observation, reward ({reward}) or ending {ending} moved",
                )
        on_return(result)

    def _check_form(self, result: SlotStep, num_slots: int) -> None:
        self._check_observations("step", result.observations, num_slots)
        for name, kind in (("rewards", np.float64), ("terminated", np.bool_), ("truncated", np.bool_)):
            array = getattr(result, name)
            if not isinstance(array, np.ndarray) or array.shape != (num_slots,) or array.dtype != kind:
                raise ConformanceError(
                    "form",
                    f"{name} must be an array of {kind.__name__} of shape ({num_slots},), got {described(array)}",
                )
        infos: Any = result.infos
        sizes = [len(values) for values in (infos.values() if isinstance(infos, Mapping) else [infos])]
        if any(size != num_slots for size in sizes):
            raise ConformanceError("form", f"infos must have a row for each of the {num_slots} slots, got {sizes}")

    def _check_observations(self, method: str, observations: Any, count: int) -> None:
        wanted = dict(iterate_leaves(empty_batch(self.spec.observation_space, count)))
        leaves = dict(iterate_leaves(observations))
        if leaves.keys() != wanted.keys():
            raise ConformanceError(
                "form",
                f"{method} must return observations with the parts {list(map(list, wanted))} of the space, got "
                f"{list(map(list, leaves))}",
            )
        for path, leaf in leaves.items():
            if not isinstance(leaf, np.ndarray) or leaf.shape != wanted[path].shape:
                got = leaf.shape if isinstance(leaf, np.ndarray) else type(leaf).__name__
                part = "" if not path else f" in part {path}"
                raise ConformanceError(
                    "form", f"{method} must return observations of shape {wanted[path].shape}{part}, got {got}"
                )


def _all_nan(array: np.ndarray) -> bool:
    return array.dtype.kind == "f" and bool(np.isnan(array).all())


def _info_row(infos: Any, slot: int) -> dict[str, Any]:
    if isinstance(infos, Mapping):
        return {name: np.array(values[slot]) for name, values in infos.items()}
    return copy.deepcopy(dict(infos[slot]))


def _scribble(returned: Any) -> None:
    trees = [returned.observations, returned.rewards] if isinstance(returned, SlotStep) else [returned]
    for _, array in (leaf for tree in trees for leaf in iterate_leaves(tree)):
        if array.flags.writeable and not array.dtype.hasobject:
            array.fill(77)


def _compare(expected: Sequence[_Record], records: Sequence[_Record], rule: str, message: str) -> None:
    for number, (a, b) in enumerate(zip(expected, records, strict=True)):
        for name in ("observations", "rewards", "endings", "infos"):
            first, second = getattr(a, name), getattr(b, name)
            if not trees_equal(first, second):
                pairs = enumerate(zip(first, second, strict=False))
                at = next((t for t, pair in pairs if not trees_equal(*pair)), "the end")
                raise ConformanceError(rule, f"{message}: {name} of rollout {number} differ from step {at} on")
