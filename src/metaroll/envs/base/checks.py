"""A conformance kit: does an implementation of ``Slots`` keep the promises that exact rollouts rest on?"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np

from metaroll.data.data_format import iterate_leaves
from metaroll.data.space_batches import action_row, element_at, empty_batch, flat_actions
from metaroll.types import RolloutPlan, Slots, SlotStep

__all__ = ["ConformanceError", "check_slots"]


class ConformanceError(AssertionError):
    """Slots break a rule.

    Attributes:
        rule: Its name: ``form``, ``seed``, ``determinism``, ``memory``, ``actions``, ``history``, ``neighbors``,
            ``mask``, ``time_limit`` or ``resume``.
    """

    def __init__(self, rule: str, message: str) -> None:
        super().__init__(f"{rule}: {message}")
        self.rule = rule


def check_slots(
    make: Callable[[int], Slots],
    plans: Sequence[RolloutPlan] | None = None,
    *,
    num_steps: int | None = None,
    time_limit: int | None = None,
    seed: int = 0,
) -> None:
    """Raise a ConformanceError unless the slots behave as every other part of metaroll takes for granted.

    - ``form``: shapes and types of what ``reset`` and ``step`` return.
    - ``seed``: a plan without a seed is refused.
    - ``determinism``: equal plans give equal rollouts, bit for bit.
    - ``memory``: what was returned never changes afterwards, and changing it changes nothing inside.
    - ``actions``: the actions handed in are not changed.
    - ``history``: a rollout does not depend on what its slot did before.
    - ``neighbors``: nor on what other slots do, or on which slot it is (a shared generator, say).
    - ``mask``: a slot that is not active is not stepped; it repeats its observation, with reward 0 and no ending.
    - ``time_limit``: reaching the time limit is truncation, not termination.
    - ``resume``: where slots tell and take their whole state, other slots go on from it with the same bits.

    Any environment is checked with ``check_slots(lambda n: make_slots(env, n))``.

    Args:
        make: Makes slots; called with how many.
        plans: Rollouts to try, at least two; by default four that differ in their seed. Plans with different
            ``env_update`` also check that updates leave no trace.
        num_steps: Longest rollout; by default the time limit, or 50.
        time_limit: Steps after which the environment itself ends an episode; by default
            ``env_spec.max_episode_length``.
        seed: For the actions, and for the default plans.
    """
    plans = [RolloutPlan(i, (seed, 0, i)) for i in range(4)] if plans is None else list(plans)
    if len(plans) < 2:
        raise ValueError(f"plans must hold at least 2 plans, got {len(plans)}")
    kit = _Kit(make, plans, num_steps, time_limit, seed)
    kit.check_seed()
    reference = kit.check_determinism()
    kit.check_memory()
    kit.check_history(reference)
    kit.check_neighbors(reference)
    kit.check_mask(reference)
    kit.check_time_limit(reference)
    kit.check_resume(reference)


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


class _Kit:
    def __init__(
        self,
        make: Callable[[int], Slots],
        plans: list[RolloutPlan],
        num_steps: int | None,
        time_limit: int | None,
        seed: int,
    ) -> None:
        self.make, self.plans = make, plans
        slots = make(1)
        self.spec = slots.env_spec
        slots.close()
        self.time_limit = self.spec.max_episode_length if time_limit is None else time_limit
        self.num_steps = (self.time_limit or 50) if num_steps is None else num_steps
        self.generator = np.random.default_rng(seed)
        self.actions = [_random_actions(self.spec.action_space, self.num_steps, self.generator) for _ in plans]

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
        first, again = ([self._roll(1, {0: i})[0] for i in range(len(self.plans))] for _ in range(2))
        _compare(first, again, "determinism", "the same plan gives another rollout in new slots")
        return first

    def check_memory(self) -> None:
        everyone = {i: i for i in range(len(self.plans))}
        kept: list[tuple[Any, Any]] = []
        plain = self._roll(len(self.plans), everyone, on_return=lambda what: kept.append((what, copy.deepcopy(what))))
        for what, as_it_was in kept:
            if not _same(what, as_it_was):
                raise ConformanceError(
                    "memory", "an observation, reward or info that was returned changed later; return copies"
                )
        scribbled = self._roll(len(self.plans), everyone, on_return=_scribble)
        message = "changing a returned array changes what the slots do later; return copies"
        _compare([plain[i] for i in everyone], [scribbled[i] for i in everyone], "memory", message)

    def check_history(self, reference: list[_Record]) -> None:
        slots = self.make(1)
        order = [*range(len(self.plans)), *reversed(range(len(self.plans)))]
        try:
            found = [self._roll(1, {0: i}, slots=slots)[0] for i in order]
        finally:
            slots.close()
        _compare([reference[i] for i in order], found, "history", "a rollout depends on what its slot did before")

    def check_neighbors(self, reference: list[_Record]) -> None:
        num = len(self.plans)
        for assignment in ({i: i for i in range(num)}, {num - 1 - i: i for i in range(num)}):
            found = self._roll(num, assignment)
            _compare(
                [reference[i] for i in assignment.values()],
                [found[slot] for slot in assignment],
                "neighbors",
                "a rollout depends on the other slots, or on which slot it is in (a shared generator?)",
            )

    def check_mask(self, reference: list[_Record]) -> None:
        num = len(self.plans)
        found = self._roll(num, {i: i for i in range(num)}, pause=True)
        _compare(reference, [found[i] for i in range(num)], "mask", "a slot that is not active was stepped")

    def check_time_limit(self, reference: list[_Record]) -> None:
        for record in reference:
            if record.ended and record.infos[-1].get("TimeLimit.truncated") and not record.endings[-1][1]:
                raise ConformanceError("time_limit", "infos say TimeLimit.truncated, but truncated is False")
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
            num = len(self.plans)
            found = self._roll(num, {i: i for i in range(num)}, move_at=max(1, self.num_steps // 3))
            message = "other slots that go on from running_state do something else"
            _compare(reference, [found[i] for i in range(num)], "resume", message)

    def _roll(
        self,
        num_slots: int,
        assignment: Mapping[int, int],
        *,
        slots: Slots | None = None,
        pause: bool = False,
        move_at: int | None = None,
        on_return: Callable[[Any], None] = lambda what: None,
    ) -> dict[int, _Record]:
        """Run plan ``assignment[slot]`` in each slot; ``pause`` freezes slots now and then.

        After ``move_at`` steps the rollouts go on in new slots, from their states.
        """
        env = self.make(num_slots) if slots is None else slots
        order = list(assignment)
        try:
            first = env.reset(order, [self.plans[i] for i in assignment.values()])
            self._check_observations("reset", first, len(order))
            space = self.spec.observation_space
            records = {slot: _Record([element_at(space, first, row)]) for row, slot in enumerate(order)}
            on_return(first)
            watched, steps = records, 0
            while True:
                open_slots = [s for s, r in records.items() if not r.ended and len(r.rewards) < self.num_steps]
                if not open_slots:
                    return records
                if steps == move_at:
                    env = self._moved(env, assignment, open_slots)
                    watched = {slot: records[slot] for slot in open_slots}
                steps += 1
                active = np.zeros(num_slots, dtype=bool)
                active[open_slots] = True
                if pause:
                    active &= self.generator.random(num_slots) < 0.6
                self._step(env, assignment, watched, active, on_return)
        finally:
            if slots is None:
                env.close()

    def _moved(self, env: Slots, assignment: Mapping[int, int], slots: list[int]) -> Slots:
        """New slots that go on with the rollouts in ``slots``."""
        rows = np.array(slots)
        state = copy.deepcopy(env.running_state(rows))
        new = self.make(env.num_slots)
        env.close()
        new.reset(slots, [self.plans[assignment[slot]] for slot in slots])
        new.resume(rows, state)
        return new

    def _step(
        self,
        env: Slots,
        assignment: Mapping[int, int],
        records: Mapping[int, _Record],
        active: np.ndarray,
        on_return: Callable[[Any], None],
    ) -> None:
        rows = [self.actions[0][0]] * len(active)
        for slot, record in records.items():
            if active[slot]:
                rows[slot] = self.actions[assignment[slot]][len(record.rewards)]
        actions = flat_actions(self.spec.action_space, rows)
        handed, mask = copy.deepcopy(actions), active.copy()
        result = env.step(handed, mask)
        if not (_same(handed, actions) and np.array_equal(mask, active)):
            raise ConformanceError("actions", "step changed the actions or the mask that it was given")
        self._check_form(result, len(active))
        for slot, record in records.items():
            observation = element_at(self.spec.observation_space, result.observations, slot)
            reward = float(result.rewards[slot])
            ending = bool(result.terminated[slot]), bool(result.truncated[slot])
            if active[slot]:
                record.observations.append(observation)
                record.rewards.append(reward)
                record.endings.append(ending)
                record.infos.append(_info_row(result.infos, slot))
            elif not _same(observation, record.observations[-1]) or reward != 0 or any(ending):
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
                    "form", f"{name} must be an array of {kind.__name__} of shape ({num_slots},), got {array!r}"
                )
        infos = result.infos
        sizes = (
            [len(values) for values in infos.values()] if isinstance(infos, Mapping) else [len(infos)]  # type: ignore
        )
        if any(size != num_slots for size in sizes):
            raise ConformanceError("form", f"infos must have a row for each of the {num_slots} slots, got {sizes}")

    def _check_observations(self, method: str, observations: Any, count: int) -> None:
        wanted = dict(iterate_leaves(empty_batch(self.spec.observation_space, count)))
        found = dict(iterate_leaves(observations))
        if found.keys() != wanted.keys():
            raise ConformanceError(
                "form", f"{method} must return observations with the parts of the space, got {found}"
            )
        for path, leaf in found.items():
            if not isinstance(leaf, np.ndarray) or leaf.shape != wanted[path].shape:
                got = getattr(leaf, "shape", type(leaf).__name__)
                part = "" if not path else f" in part {path}"
                raise ConformanceError(
                    "form", f"{method} must return observations of shape {wanted[path].shape}{part}, got {got}"
                )


def _random_actions(space: gymnasium.Space, num_steps: int, generator: np.random.Generator) -> list[Any]:
    """Actions as a policy gives them, row by row."""
    if isinstance(space, gymnasium.spaces.Box):
        low, high = np.maximum(space.low, -1e3), np.minimum(space.high, 1e3)
        low, high = low.reshape(-1).astype(np.float64), high.reshape(-1).astype(np.float64)
        return list(generator.uniform(low, high, size=(num_steps, low.size)).astype(space.dtype))
    if isinstance(space, gymnasium.spaces.Discrete):
        return list(generator.integers(int(space.n), size=num_steps))
    own = copy.deepcopy(space)  # its generator is not to be moved
    own.seed(int(generator.integers(2**31)))
    return [action_row(own, own.sample()) for _ in range(num_steps)]


def _info_row(infos: Any, slot: int) -> dict[str, Any]:
    if isinstance(infos, Mapping):
        return {name: np.array(values[slot]) for name, values in infos.items()}
    return copy.deepcopy(dict(infos[slot]))


def _scribble(what: Any) -> None:
    trees = [what.observations, what.rewards] if isinstance(what, SlotStep) else [what]
    for _, array in (leaf for tree in trees for leaf in iterate_leaves(tree)):
        if array.flags.writeable and not array.dtype.hasobject:
            array.fill(77)


def _same(first: Any, second: Any) -> bool:
    """Whether nested values are equal bit for bit (NaN equals NaN)."""
    if isinstance(first, Mapping):
        return first.keys() == second.keys() and all(_same(first[name], second[name]) for name in first)
    if isinstance(first, list | tuple):
        return len(first) == len(second) and all(_same(a, b) for a, b in zip(first, second, strict=True))
    if isinstance(first, np.ndarray | np.generic | float | int):
        a, b = np.asarray(first), np.asarray(second)
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    try:
        return bool(first == second)
    except (TypeError, ValueError):
        return True  # not comparable: nothing can be said


def _compare(expected: Sequence[_Record], found: Sequence[_Record], rule: str, message: str) -> None:
    for number, (a, b) in enumerate(zip(expected, found, strict=True)):
        for name in ("observations", "rewards", "endings", "infos"):
            first, second = getattr(a, name), getattr(b, name)
            if not _same(first, second):
                at = next((t for t, pair in enumerate(zip(first, second, strict=False)) if not _same(*pair)), "the end")
                raise ConformanceError(rule, f"{message}: {name} of rollout {number} differ from step {at} on")
