"""Rollouts that go on over calls, failures as data, and reduction in the worker (design.md 4.2, 4.3, 4.7)."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import threading
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from engine_envs import Drift, SetDrift, Trouble
from interruptions import NamespaceTransport, is_interrupted
from live_cases import CASES, SLOTS, collected, drift_plan, policy_for, rows
from pool_functions import refuses_short_ones, returns_and_lengths

from metaroll import RolloutEngine, SamplerPool
from metaroll.data.rollouts import Rollouts
from metaroll.envs.point.point_robot import PointRobotEnv
from metaroll.errors import NotPicklableError, ReplayError, RolloutError, ShapeError
from metaroll.policies.exploration import EpsilonGreedyPolicy
from metaroll.policies.greedy import GreedyQPolicy
from metaroll.rollouts.engine import collection as collection_module
from metaroll.rollouts.engine import engine as engine_module
from metaroll.rollouts.engine import shard_record
from metaroll.rollouts.engine.reduction import check_reduce
from metaroll.rollouts.workers import pool as pool_module
from metaroll.seeding import torch_generator
from metaroll.training.store.files import load_tree, save_tree
from metaroll.types import EnvSpec, RolloutPlan


@pytest.mark.parametrize("case", CASES)
def test_pieces_are_those_of_whole_rollouts(case: str) -> None:
    env, policy, plans = CASES[case]
    steps: dict[int, list[Any]] = {}
    done = set()
    with RolloutEngine(env, policy) as engine:
        with engine.open(plans, SLOTS) as collection:
            for _ in range(8):
                pieces = collection.advance(7)
                for plan, piece in zip(pieces.plans, pieces, strict=True):
                    assert plan.index not in done
                    steps.setdefault(plan.index, []).append(piece)
                    done |= {plan.index} if piece.done[-1] else set()
            assert collection.total_steps == sum(len(piece) for parts in steps.values() for piece in parts)
        whole = engine.run([plans(number) for number in sorted(done)])
    assert len(done) >= 3
    for number, rollout in zip(sorted(done), whole, strict=True):
        pieces = steps[number]
        np.testing.assert_array_equal(np.concatenate([piece.actions for piece in pieces]), rollout.actions)
        np.testing.assert_array_equal(pieces[-1].observations[-1], rollout.observations[-1])
        assert not any((piece.terminated | piece.truncated).any() for piece in pieces[:-1])


def test_a_call_steps_every_slot_as_often_as_it_says() -> None:
    """Slots that may be stepped past an ending get their next plan at once, too."""
    spec = EnvSpec.from_env(gymnasium.make("CartPole-v1"))
    policy = EpsilonGreedyPolicy(GreedyQPolicy(spec, (4,), generator=torch_generator(0)), 1.0)
    with RolloutEngine("CartPole-v1", policy) as engine, engine.open(live_plan, 3) as collection:
        pieces = [collection.advance(10) for _ in range(8)]
    assert [part.rewards.size for part in pieces] == [30] * 8
    assert sum(len(part) for part in pieces) > 27  # rollouts have ended within calls


def live_plan(number: int) -> RolloutPlan:
    return RolloutPlan(index=number, seed=(0, 0, number))


@pytest.mark.parametrize("num_workers", [1, 2, 3])
def test_same_bits_for_any_number_of_workers(num_workers: int, shared_pools: Any) -> None:
    for case in CASES:
        assert collected(case, 6, shared_pools[num_workers]) == collected_here(case, 6), case


@functools.cache
def collected_here(case: str, calls: int) -> list[Any]:
    """In this process, which several tests compare with."""
    return collected(case, calls)


@pytest.mark.parametrize("case", ["list, memory", pytest.param("MuJoCo, memory", marks=pytest.mark.slow)])
def test_same_bits_after_lost_workers(case: str, shared_pools: Any) -> None:
    pool = shared_pools[2]

    def kill(call: int) -> None:
        if call in (1, 4):
            victim = pool.describe_workers()[call % 2].pid
            if call == 1:
                send(victim, signal.SIGKILL)
            else:  # in the middle of the call
                threading.Timer(0.004, send, (victim, signal.SIGKILL)).start()

    assert collected(case, 6, pool, kill) == collected_here(case, 6)


def send(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


@pytest.mark.parametrize("case", CASES)
def test_a_snapshot_in_the_middle_of_episodes_goes_on_with_the_same_bits(case: str, tmp_path: Path) -> None:
    env, policy, plans = CASES[case]
    expected = collected_here(case, 7)
    assert collected(case, 7, snapshot_at=(1, 3, 4, 6)) == expected
    assert collected(case, 7, snapshot_at=tuple(range(7))) == expected
    parameters = policy.acting_parameters()
    with RolloutEngine(env, policy) as engine, engine.open(plans, SLOTS) as collection:
        for call in range(3):
            collection.advance(7, parameters + np.float32(0.01 * call))
        save_tree(tmp_path, "live", collection.state_dict())
    with RolloutEngine(env, policy) as engine, engine.open(plans, SLOTS) as again:
        again.load_state_dict(load_tree(tmp_path, "live"))
        for call in range(3, 7):
            assert rows(again.advance(7, parameters + np.float32(0.01 * call))) == expected[call]


class Forgetful(Drift):
    """Draws from a generator that reset leaves alone."""

    generator = np.random.default_rng(0)

    def step(self, action: Any) -> Any:
        self._buffer[0] += self.generator.normal()
        return super().step(action)


def test_environments_that_cannot_be_replayed_are_told() -> None:
    with RolloutEngine(Forgetful, policy_for(Drift())) as engine:
        with engine.open(drift_plan, 2) as collection:
            collection.advance(4)
            state = collection.state_dict()
        with engine.open(drift_plan, 2) as again:
            again.load_state_dict(state)
            with pytest.raises(ReplayError, match=r"shows another observation after its \d recorded actions"):
                again.advance(1)


def test_given_actions_and_bad_input() -> None:
    env, policy, plans = CASES["list, memory"]
    with RolloutEngine(env, policy) as engine:
        collection = engine.open(plans, 3)
        with pytest.raises(ValueError, match="no rollout has begun"):
            collection.observations  # noqa: B018
        pieces = collection.advance(2, actions=np.full((3, 2), 0.5, np.float32))
        assert all((piece.actions == 0.5).all() for piece in pieces)
        assert collection.observations.shape == (3, 3) and collection.active.all()
        with pytest.raises(ValueError, match="steps must be"):
            collection.advance(0)
        assert collection.total_steps == 6
        assert len(collection.advance(1)) == 3 and collection.total_steps == 9
        with pytest.raises(ValueError, match="3 slots, got 4"):
            collection.load_state_dict({**collection.state_dict(), "num_slots": 4})
        collection.close()
        with pytest.raises(RuntimeError, match="has been closed"):
            collection.advance(1)
        with pytest.raises(RuntimeError, match=r"plan_of itself: call advance\(steps\)"):
            engine.open(plans, 3).start([0], [plans(0)])
        for call in (collection.state_dict, lambda: collection.load_state_dict({})):
            with pytest.raises(RuntimeError, match="has been closed"):
                call()
        with pytest.raises(ValueError, match="with a seed"):
            engine.open(lambda number: RolloutPlan(), 2)
        with pytest.raises(ValueError, match="num_slots must be"):
            engine.open(plans, 0)
    with pytest.raises(RuntimeError, match="closed"):
        engine.open(plans, 2)


def test_a_state_must_be_of_such_a_collection() -> None:
    env, policy, plans = CASES["simulator"]
    with RolloutEngine(env, policy) as engine, engine.open(plans, 3) as collection:
        collection.advance(2)
        state = collection.state_dict()
        for wrong in ({}, None, [1]):
            with pytest.raises(ValueError, match=r"state must be what Collection\.state_dict"):
                collection.load_state_dict(wrong)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="each of the shards of state must hold"):
            collection.load_state_dict({**state, "shards": [{}]})
        collection.load_state_dict({name: state[name] for name in ("num_slots", "total_steps", "shards")})  # an old one
        assert len(collection.advance(1)) == 3
    gru = policy_for(PointRobotEnv())
    with RolloutEngine(env, gru) as engine, engine.open(plans, 3) as other:
        with pytest.raises(ValueError, match=r"with policy 'GRU\w+ with \d+ parameters', got 'GaussianMLPPolicy with"):
            other.load_state_dict(state)
        assert len(other.advance(1)) == 3  # nothing has changed
    with RolloutEngine(Drift, policy_for(Drift(), "mlp")) as engine, engine.open(plans, 3) as other:
        with pytest.raises(ValueError, match="with environment 'observations Box of 3"):
            other.load_state_dict(state)
    with RolloutEngine(env, policy) as engine:
        with engine.open(lambda n: plans(n).with_(seed=(6, 0, n)), 3) as other:
            with pytest.raises(ValueError, match=r"with seed of plan 0 '\[6, 0, 0\]', got '\[5, 0, 0\]'"):
                other.load_state_dict(state)


def damaged(state: dict[str, Any], entry: str, value: Any) -> dict[str, Any]:
    first, *others = state["shards"]
    return {**state, "total_steps": 10**6, "shards": [{**first, entry: value}, *others]}


@pytest.mark.parametrize("case", ["list, memory", "simulator", "MuJoCo, memory"])
def test_a_damaged_state_names_its_entry_and_changes_nothing(case: str) -> None:
    env, policy, plans = CASES[case]
    with RolloutEngine(env, policy) as engine, engine.open(plans, 3) as one, engine.open(plans, 3) as other:
        for collection in (one, other):
            collection.advance(4)
        state = one.state_dict()
        other.state_dict()
        entries = state["shards"][0]
        ragged = [[1, 2], [3]]
        no_numbers = ["junk", ["junk"], [0.5], [-1], ragged, 3]
        bad: dict[str, list[Any]] = {
            **{name: [*no_numbers] for name in ("begun", "slots", "positions", "ages", "skipped")},
            "resumes": ["junk", 3, None],
            "observations": ["junk", None, np.zeros((3, 99)), ragged, np.full((3, 2), "junk")],
            "policy_state": ["junk", None, {"hidden": "junk"}, {"hidden": np.zeros((7, 2))}],
            "actions": ["junk", 3, ["junk"], ["junk"] * 3, [np.zeros((99, 2))] * 3, {"a": 1}],
            "states": ["junk", {"age": "junk"}, {"age": np.zeros(99)}],
        }
        assert bad.keys() == entries.keys()
        for entry, values in bad.items():
            for value in values:
                with pytest.raises(ValueError, match=rf"^{entry}.* in a shard of state must"):
                    other.load_state_dict(damaged(state, entry, value))
        for name in ("total_steps", "num_slots", "made_for", "shards"):
            with pytest.raises(ValueError, match=name.replace("num_", "")):
                other.load_state_dict({**state, name: "junk"})
        assert other.total_steps == one.total_steps == 12
        other.load_state_dict({**state, "shards": [dict(shard) for shard in state["shards"]]})
        assert rows(other.advance(5)) == rows(one.advance(5))


@pytest.mark.parametrize("case", ["list, memory", "simulator"])
@pytest.mark.parametrize("on_invalid", ["raise", "drop"])
def test_bad_input_is_the_callers_fault_and_ends_no_rollout(case: str, on_invalid: Any) -> None:
    env, policy, plans = CASES[case]
    own = policy.acting_parameters()
    with RolloutEngine(env, policy, on_invalid=on_invalid) as engine:
        with engine.open(plans, 4) as collection, engine.open(plans, 4) as undisturbed:
            for one in (collection, undisturbed):
                one.advance(3)
            for actions, message in (
                (np.full((4, 2), np.nan), "must be finite, got .* in row 0"),
                (np.full((4, 2), np.inf), "must be finite"),
                (np.zeros((4, 2), complex), "must hold real numbers .*complex128"),
                ([["a", "b"]] * 4, "must hold real numbers"),
                ([[0.0, 0.0]] * 3 + [[0.0]], "must have one row per slot .*all of one shape"),
                (np.zeros((4, 5)), "must have one row per slot"),
                ("junk", "must hold real numbers"),
            ):
                with pytest.raises(ValueError, match=f"^actions {message}"):
                    collection.advance(1, actions=actions)
            for parameters, message in (
                (np.full_like(own, np.nan), "must be finite"),
                (own.astype(complex), "numbers .*dtype complex128"),
                ("junk", "an array of numbers"),
                ([[1.0], [1.0, 2.0]], "must be an array"),
                (own[:3], "must have shape"),
            ):
                with pytest.raises((TypeError, ValueError), match=f"^parameters .*{message}"):
                    collection.advance(1, parameters)  # type: ignore[arg-type]
            assert collection.total_steps == 12 and not collection.dropped and not engine.dropped
            assert rows(collection.advance(4)) == rows(undisturbed.advance(4))


@pytest.mark.parametrize("num_workers", [0, 1])
def test_an_engine_that_changes_ends_its_collections(num_workers: int, shared_pools: Any) -> None:
    env, policy, plans = CASES["simulator"]
    pool = shared_pools[num_workers] if num_workers else None
    with RolloutEngine(env, policy, pool=pool) as engine:
        collection = engine.open(plans, 3)
        engine.set_policy(policy_for(PointRobotEnv()))
        with pytest.raises(RuntimeError, match="policy of the engine has changed since this collection was opened"):
            collection.advance(2)
        engine.set_policy(policy)
        assert len(collection.advance(2)) == 3
        engine.set_env(PointRobotEnv)
        with pytest.raises(RuntimeError, match="env of the engine has changed since this collection was opened"):
            collection.advance(2)
        collection.close()


@pytest.mark.parametrize("num_workers", [0, 1])
def test_plans_that_are_none_are_told_by_number(num_workers: int, shared_pools: Any) -> None:
    env, policy, plans = CASES["simulator"]
    pool = shared_pools[num_workers] if num_workers else None
    with RolloutEngine(env, policy, pool=pool) as engine:
        for wrong in (5, [plans(0)]):
            with pytest.raises(TypeError, match="plan_of must be a function"):
                engine.open(wrong, 2)  # type: ignore[arg-type]
        for bad, text in (
            (lambda n: plans(n) if n < 1 else None, "with a seed and without parameters, got None for n = 1"),
            (lambda n: plans(n) if n < 1 else RolloutPlan(index=n), r"got RolloutPlan\(index=1.* for n = 1"),
            (lambda n: [plans(0)][n], r"plan_of\(1\) raised IndexError: list index out of range"),
            (lambda n: [plans(0), plans(1)][n], r"plan_of\(2\) raised IndexError: list index out of range"),
        ):
            with engine.open(bad, 2) as collection, pytest.raises(ValueError, match=text):
                collection.advance(20)


def test_a_pool_that_was_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "ProcessTransport", NamespaceTransport)
    env, policy, plans = CASES["simulator"]
    pool = SamplerPool(1, transport="process")
    engine = RolloutEngine(env, policy, pool=pool)
    collection = engine.open(plans, 3)
    found = collection.advance(2)
    pool.stop()
    with pytest.raises(RuntimeError, match="has been stopped"):
        collection.advance(2)
    assert len(found) == 3 and collection.total_steps == 6
    with pytest.raises(RuntimeError, match="has been stopped"):
        engine.open(plans, 3)
    collection.close()
    engine.close()
    assert NamespaceTransport.living == 0


@pytest.mark.parametrize("num_workers", [0, 2])
def test_after_an_error_the_next_call_goes_on(num_workers: int, tmp_path: Path, shared_pools: Any) -> None:
    policy = policy_for(Drift())

    def once() -> Trouble:
        return Trouble("raise", 9, str(tmp_path / "marker"))

    def long_plan(number: int) -> RolloutPlan:
        return RolloutPlan(index=number, seed=(1, 0, number), max_steps=20)

    found: list[Any] = []
    with contextlib.ExitStack() as stack:
        pool = shared_pools[num_workers] if num_workers else None
        collection = stack.enter_context(stack.enter_context(RolloutEngine(once, policy, pool=pool)).open(long_plan, 9))
        found.append(rows(collection.advance(7)))
        with pytest.raises(RolloutError, match="the motor is on fire"):
            collection.advance(7)
        found += [rows(collection.advance(7)) for _ in range(2)]
    with RolloutEngine(Drift(end=0.0), policy) as engine, engine.open(long_plan, 9) as straight:
        assert found == [rows(straight.advance(7)) for _ in range(3)]


class Sick(Drift):
    """Fails where its random walk has come too high, two steps in."""

    def step(self, action: Any) -> Any:
        if self._t == 2 and self._buffer[2] > 0.5:
            raise ArithmeticError("it is sick")
        return super().step(action)


def sick_plan(number: int) -> RolloutPlan:
    return RolloutPlan(index=number, seed=(5, 0, number), max_steps=6)


def test_ctrl_c_at_any_statement_leaves_a_collection_where_it_was() -> None:
    """One shard had done its call then, the other not; or plans were new, and the log of actions old."""
    modules = ("/engine/collection.py", "/engine/shard_record.py")
    policy = policy_for(Drift(), "mlp")
    with RolloutEngine(Sick, policy, on_error="drop") as engine, RolloutEngine(Sick, policy, on_error="drop") as twins:
        collection, twin = engine.open(sick_plan, 4), twins.open(sick_plan, 4)
        at = 1
        while is_interrupted(lambda: collection.advance(2), at, modules):
            assert rows(collection.advance(2)) == rows(twin.advance(2)), at
            assert collection.total_steps == twin.total_steps
            dropped, expected = (sorted(entry.plan.index for entry in c.dropped) for c in (collection, twin))
            assert dropped == expected, at
            at += 1
    assert at > 150 and not collection.cut and len(collection.dropped) > 50


def test_a_failure_that_repeats_says_so_and_how_to_go_on() -> None:
    policy = policy_for(Drift())

    def plan(number: int) -> RolloutPlan:
        return RolloutPlan(index=number, seed=(1, 0, number), max_steps=20, env_update=SetDrift(0.25 * (number == 1)))

    for kind, option in (("raise", "on_error"), ("nan", "on_invalid")):
        make = lambda kind=kind: Trouble(kind, 9, only_drift=0.25)  # noqa: E731
        with RolloutEngine(make, policy) as engine, engine.open(plan, 3) as collection:
            first = rows(collection.advance(7))
            with pytest.raises(RolloutError) as failed:
                collection.advance(7)
            assert "The call before" not in str(failed.value)
            for _ in range(2):
                with pytest.raises(RolloutError, match=f"The call before failed .*{option}='drop'") as again:
                    collection.advance(7)
                assert str(again.value).startswith(str(failed.value))
            state = collection.state_dict()
        with RolloutEngine(make, policy, **{option: "drop"}) as engine, engine.open(plan, 3) as collection:  # type: ignore[arg-type]
            collection.load_state_dict(state)
            pieces = collection.advance(7)
            assert first and [entry.plan.index for entry in collection.dropped] == [1]
            assert {plan.index for plan in pieces.plans} >= {0, 2}


def test_pieces_tell_the_time_since_their_rollout_began() -> None:
    env, policy, plans = CASES["MuJoCo, memory"]
    with RolloutEngine(env, policy, record_extras=True) as engine:
        with engine.open(plans, 1) as collection:
            calls = [collection.advance(3) for _ in range(3)]
        whole = engine.run([plans(0)])[0]
    assert [len(pieces) for pieces in calls] == [1, 1, 1] and len(whole) > 9
    for call, pieces in enumerate(calls):
        np.testing.assert_array_equal(pieces[0].time, whole.time[3 * call : 3 * call + 4])
    together = Rollouts.joined(calls)
    assert [piece.time[0] for piece in together.sorted_by(np.array([1, 2, 0]))] == [whole.time[i] for i in (6, 0, 3)]


class Counting:
    """Acts by how often it was asked in this rollout."""

    def reset(self) -> None:
        self.asked = 0

    def get_action(self, obs: Any) -> tuple[Any, dict[str, Any]]:
        self.asked += 1
        return np.full(2, 0.01 * self.asked, np.float32), {}


@pytest.mark.parametrize("num_workers", [0, 1])
def test_objects_that_remember_are_part_of_a_state_as_they_were(num_workers: int, shared_pools: Any) -> None:
    """Also where the collection goes on after its state was taken, or a rollout fails and the call is done again."""

    def plan(number: int) -> RolloutPlan:
        return RolloutPlan(index=number, seed=(1, 0, number), max_steps=20, env_update=SetDrift(0.25 * (number == 1)))

    def make() -> Trouble:
        return Trouble("raise", 9, only_drift=0.25)

    with contextlib.ExitStack() as stack:
        pool = shared_pools[num_workers] if num_workers else None
        engine = stack.enter_context(RolloutEngine(make, Counting(), pool=pool, on_error="drop"))
        one, other = (stack.enter_context(engine.open(plan, 3)) for _ in range(2))
        one.advance(7)
        state = one.state_dict()
        expected = rows(one.advance(7))
        other.load_state_dict(state)
        assert rows(other.advance(7)) == expected
        whole = engine.run([plan(0), plan(2)])
        pieces = other.advance(7)
    for rollout, number in zip(whole, (0, 2), strict=True):
        np.testing.assert_allclose(rollout.actions[:, 0], 0.01 * np.arange(1, 21), rtol=1e-6)
        last = next(piece for p, piece in zip(pieces.plans, pieces, strict=True) if p.index == number)
        np.testing.assert_array_equal(last.actions, rollout.actions[14:])


def test_what_a_collection_shows_is_not_what_it_goes_on_from() -> None:
    env, policy, plans = CASES["simulator"]
    found: list[Any] = []
    for scribble in (False, True):
        with RolloutEngine(env, policy) as engine, engine.open(plans, 3) as one, engine.open(plans, 3) as other:
            one.advance(4)
            if scribble:
                one.observations[...] = 77.0
            other.load_state_dict(one.state_dict())
            found.append(rows(other.advance(4)))
    assert found[0] == found[1]


# -- failures in live collections --------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_workers", [0, 2])
def test_rollouts_that_fail_make_room(num_workers: int, shared_pools: Any) -> None:
    def burning() -> Trouble:
        return Trouble("raise", only_drift=0.25)

    def some_burn(number: int) -> RolloutPlan:
        update = SetDrift(0.25 if number in (1, 3, 8, 15) else 0.0)
        return RolloutPlan(index=number, seed=(1, 0, number), max_steps=12, env_update=update)

    policy = policy_for(Drift())
    done: dict[int, Any] = {}
    with contextlib.ExitStack() as stack:
        pool = shared_pools[num_workers] if num_workers else None
        engine = stack.enter_context(RolloutEngine(burning, policy, pool=pool, on_error="drop"))
        collection = stack.enter_context(engine.open(some_burn, 7))
        for _ in range(12):
            pieces = collection.advance(4)
            for plan, piece in zip(pieces.plans, pieces, strict=True):
                done.setdefault(plan.index, []).append(piece)
        assert sorted(entry.plan.index for entry in collection.dropped) == [1, 3, 8, 15]
        assert {entry.what for entry in collection.dropped} == {"error"}
        assert "the motor is on fire" in collection.dropped[0].message
    with RolloutEngine(Drift(end=0.0), policy) as engine:
        whole = engine.run([some_burn(number) for number in range(7) if number not in (1, 3)])
    for plan, rollout in zip(whole.plans, whole, strict=True):
        np.testing.assert_array_equal(np.concatenate([p.rewards for p in done[plan.index]]), rollout.rewards)


def test_a_call_in_which_everything_fails_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collection_module, "_MOST_FAILURES", 5)
    policy = policy_for(Drift())
    with RolloutEngine(lambda: Trouble("raise", 2), policy, on_error="drop") as engine:
        with engine.open(lambda n: RolloutPlan(seed=(1, 0, n)), 2) as collection:
            with pytest.raises(RolloutError, match=r"5 rollouts failed one after the other, .* the motor is on fire"):
                collection.advance(4)
            assert len(collection.dropped) == 5


# -- what cannot go on elsewhere ---------------------------------------------------------------------------------------


def vector() -> Any:
    return gymnasium.vector.SyncVectorEnv([lambda: Drift(end=0.0)] * 3)


@pytest.mark.parametrize("num_workers", [0, 1])
def test_vector_environments_begin_anew_after_a_snapshot(num_workers: int, shared_pools: Any) -> None:
    policy = policy_for(Drift())

    def long_plan(number: int) -> RolloutPlan:
        return RolloutPlan(index=number, seed=(1, 0, number), max_steps=20)

    with contextlib.ExitStack() as stack:
        pool = shared_pools[num_workers] if num_workers else None
        engine = stack.enter_context(RolloutEngine(vector, policy, pool=pool))
        with pytest.raises(ValueError, match="num_slots must be 3, as many as the vector environment has, got 2"):
            engine.open(long_plan, 2).advance(1)
        collection = stack.enter_context(engine.open(long_plan, 3))
        collection.advance(7)
        state = collection.state_dict()
        assert [(entry.plan.index, entry.step, entry.what) for entry in collection.cut] == [
            (0, 7, "cut"), (1, 7, "cut"), (2, 7, "cut"),
        ]  # fmt: skip
        assert "was ended by a snapshot" in collection.cut[0].message
        straight = [rows(collection.advance(7)) for _ in range(2)]
        assert [index for index, *_ in straight[0]] == [3, 4, 5]
        again = stack.enter_context(engine.open(long_plan, 3))
        again.load_state_dict(state)
        assert [rows(again.advance(7)) for _ in range(2)] == straight


def test_logs_of_actions_are_bounded(monkeypatch: pytest.MonkeyPatch, shared_pools: Any) -> None:
    monkeypatch.setattr(shard_record, "LONGEST_LOG", 10)
    policy = policy_for(Drift())

    def endless(number: int) -> RolloutPlan:
        return RolloutPlan(index=number, seed=(1, 0, number), max_steps=6 if number % 2 else None)

    def kill(pool: SamplerPool) -> None:
        os.kill(pool.describe_workers()[0].pid, signal.SIGKILL)

    pool = shared_pools[1]
    with RolloutEngine(Drift(end=0.0), policy, pool=pool) as engine:
        with engine.open(endless, 2) as collection:
            for _ in range(4):
                collection.advance(4)
            kill(pool)
            with pytest.raises(ReplayError, match="whose actions are not kept"):
                collection.advance(4)
            assert [(entry.plan.index, entry.step) for entry in collection.cut] == [(0, 16)]
            assert rows(collection.advance(4))[0][0] == 2
            collection.advance(4)
            collection.advance(4)
            collection.state_dict()
            assert [entry.plan.index for entry in collection.cut] == [0, 2]
            collection.advance(4)
    with RolloutEngine("Pendulum-v1", policy_for(gymnasium.make("Pendulum-v1"), "mlp")) as engine:  # takes its state
        with engine.open(lambda n: RolloutPlan(seed=(1, 0, n)), 2) as collection:
            for _ in range(4):
                collection.advance(4)
            collection.load_state_dict(collection.state_dict())
            assert len(collection.advance(4)) == 2 and not collection.cut


# -- failures as data --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_workers", [0, 2])
def test_failed_rollouts_are_left_out_and_listed(num_workers: int, shared_pools: Any) -> None:
    def burning() -> Trouble:
        return Trouble("raise", only_drift=0.25)

    plans = [
        RolloutPlan(index=i, seed=(1, 0, i), max_steps=12, env_update=SetDrift(0.25 if i in (3, 17) else 0.0))
        for i in range(20)
    ]
    policy = policy_for(Drift())
    pool = shared_pools[num_workers] if num_workers else None
    with RolloutEngine(burning, policy, pool=pool, on_error="drop") as engine:
        rollouts = engine.run(plans)
        listed = [(entry.plan.index, entry.step, entry.what) for entry in engine.dropped]
        assert "the motor is on fire" in engine.dropped[0].message
    assert listed == [(3, 5, "error"), (17, 5, "error")]
    assert rollouts.indices.tolist() == [i for i in range(20) if i not in (3, 17)]
    with RolloutEngine(Drift(end=0.0), policy) as engine:
        kept = engine.run([plan for plan in plans if plan.index not in (3, 17)])
    for one, other in zip(rollouts, kept, strict=True):
        np.testing.assert_array_equal(one.observations, other.observations)
    with RolloutEngine(burning, policy) as engine, pytest.raises(RolloutError, match="the motor is on fire"):
        engine.run(plans)


def test_a_failure_of_one_of_many_is_found() -> None:
    def steering(obs: Any) -> np.ndarray:
        if obs[2] > 2.0:
            raise ArithmeticError("too far")
        return np.zeros(2, np.float32)

    plans = [RolloutPlan(index=i, seed=(1, 0, i), max_steps=6) for i in range(12)]
    with RolloutEngine(Drift, steering, on_error="drop") as engine:
        rollouts = engine.run(plans)
        dropped = sorted(entry.plan.index for entry in engine.dropped)
    assert dropped and sorted([*dropped, *rollouts.indices.tolist()]) == list(range(12))
    assert all((rollout.observations[:-1, 2] <= 2.0).all() for rollout in rollouts)


# -- reduction ---------------------------------------------------------------------------------------------------------


def test_reduced_rows_are_those_of_the_rollouts(shared_pools: Any) -> None:
    plans = [drift_plan(i) for i in range(40)]
    policy = policy_for(Drift())
    with RolloutEngine(Drift, policy) as engine:
        rollouts = engine.run(plans)
        expected = np.stack([rollouts.returns, rollouts.lengths], axis=1)
        np.testing.assert_allclose(engine.run_reduced(plans, returns_and_lengths), expected)
        made = (plan for plan in plans)  # made, run and forgotten in parts
        np.testing.assert_array_equal(
            engine.run_reduced(made, returns_and_lengths), engine.run_reduced(plans, returns_and_lengths)
        )
        assert not len(engine.run_reduced(iter([]), returns_and_lengths))
        check_reduce(returns_and_lengths, rollouts)
        with pytest.raises(ValueError, match="must treat rollouts one by one, but rollout 0"):
            check_reduce(lambda columns, bounds: np.full(len(bounds) - 1, columns["rewards"].mean()), rollouts)
        with pytest.raises(ShapeError, match="one row per rollout"):
            engine.run_reduced(plans, lambda columns, bounds: columns["rewards"])
        with pytest.raises(ValueError, match="must treat rollouts one by one, but a rollout gives"):
            engine.run_reduced(plans, lambda columns, bounds: np.full(len(bounds) - 1, columns["rewards"].mean()))
        with pytest.raises(ValueError, match="must treat rollouts one by one"):
            engine.run_reduced(plans, lambda columns, bounds: np.zeros((len(bounds) - 1, len(bounds))))
        with pytest.raises(TypeError, match="function of columns and bounds"):
            engine.run_reduced(plans, "mean")  # type: ignore[arg-type]
    with RolloutEngine(Drift, policy, pool=shared_pools[2]) as engine:
        np.testing.assert_array_equal(engine.run_reduced(plans, returns_and_lengths), expected)


@pytest.mark.parametrize("count", [1, 2])
def test_rows_that_were_made_before_an_error_are_told(
    count: int, monkeypatch: pytest.MonkeyPatch, shared_pools: Any
) -> None:
    monkeypatch.setattr(engine_module, "_MADE_AT_ONCE", 16)
    plans = [RolloutPlan(index=i, seed=(1, 0, i), max_steps=8, env_update=SetDrift(0.01)) for i in range(40)]
    burning = [plan.with_(env_update=SetDrift(0.25)) if plan.index == 25 else plan for plan in plans]

    def made() -> Any:
        yield from plans[:20]
        raise KeyError("no more parameters")

    burns = functools.partial(Trouble, "raise", only_drift=0.25)
    pool = shared_pools[count] if count > 1 else None
    with RolloutEngine(burns, policy_for(Drift()), pool=pool) as engine:
        expected = engine.run_reduced(plans, returns_and_lengths)
        with pytest.raises(KeyError) as stopped:
            engine.run_reduced(made(), returns_and_lengths)
        with pytest.raises(RolloutError, match="the motor is on fire") as failed:
            engine.run_reduced(iter(burning), returns_and_lengths)
        with pytest.raises(RolloutError, match="the motor is on fire") as listed:
            engine.run_reduced(burning, returns_and_lengths)
        with pytest.raises(ValueError, match="too short") as broken:
            engine.run_reduced(iter([*plans[:16], plans[16].with_(max_steps=3)]), refuses_short_ones)
    assert vars(stopped.value)["kept"].tolist() == vars(broken.value)["kept"].tolist() == list(range(16))
    assert set(failed.value.kept.tolist()) >= set(range(16))
    for error in (stopped.value, failed.value, listed.value):
        kept = vars(error)["kept"]
        assert 25 not in kept and (np.diff(kept) > 0).all() and len(kept)
        np.testing.assert_array_equal(vars(error)["reduced"], expected[kept])


def test_a_reduce_that_cannot_be_sent_is_named(shared_pools: Any) -> None:
    lock = threading.Lock()
    with RolloutEngine(Drift, policy_for(Drift()), pool=shared_pools[2]) as engine:
        with pytest.raises(NotPicklableError, match=r"^reduce cannot be sent to a worker"):
            engine.run_reduced([drift_plan(0)], lambda columns, bounds: np.diff(bounds) if lock else bounds)


def test_rows_of_dropped_rollouts_hold_nan() -> None:
    def burning() -> Trouble:
        return Trouble("raise", only_drift=0.25)

    plans = [RolloutPlan(index=i, seed=(1, 0, i), max_steps=8, env_update=SetDrift(0.25 * (i == 2))) for i in range(5)]
    with RolloutEngine(burning, policy_for(Drift()), on_error="drop") as engine:
        rows = engine.run_reduced(plans, lambda columns, bounds: np.diff(bounds))
    assert rows.tolist()[:2] == [8.0, 8.0] and np.isnan(rows[2]) and rows.shape == (5,)
