"""Ways in which environments, policies, callbacks and processes go wrong; each of these once broke the engine."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import psutil
import pytest
import torch
from engine_envs import Drift, SetDrift, Trouble
from pool_functions import double, nap, pids

from metaroll.data.compare import rollouts_equal
from metaroll.envs.lookup.source import make_slots
from metaroll.errors import InvalidValueError, RolloutError, ShapeError, WorkerLost
from metaroll.policies.adapters import ScriptedPolicy
from metaroll.policies.gaussian import GaussianMLPPolicy
from metaroll.rollouts.configs import PoolTimeouts
from metaroll.rollouts.engine.engine import RolloutEngine
from metaroll.rollouts.engine.recorder import stack_infos
from metaroll.rollouts.engine.slot_loop import SlotLoop
from metaroll.rollouts.requests import SampleRequest
from metaroll.rollouts.single.replay import assert_worker_invariant, replay
from metaroll.rollouts.single.rollout import rollout
from metaroll.rollouts.workers.pool import RemoteError, SamplerPool
from metaroll.types import EnvSpec, Policy, PolicyInfo, RolloutPlan

SPEC = EnvSpec.from_env(Drift())


def gaussian():
    return GaussianMLPPolicy(SPEC, hidden_sizes=(8,), generator=torch.Generator().manual_seed(0))


def plans(count, **changes):
    return [RolloutPlan(**{"index": i, "seed": (0, 0, i), "max_steps": 6, **changes}) for i in range(count)]


def still():
    return Drift(end=0.0)


class Plain(Policy):
    """A policy without parameters that stands still."""

    info = PolicyInfo()

    def act(self, obs, state, noise, deterministic=False, parameters=None):
        return np.zeros((len(obs), 2), np.float32), state, {}

    def acting_parameters(self):
        return np.zeros(0, np.float32)


@pytest.fixture(scope="module")
def pool():
    with SamplerPool(2, timeouts=PoolTimeouts(step_s=5.0)) as running:
        running.invoke_all(pids)
        yield running


# -- the pool ------------------------------------------------------------------------------------------------------


def test_results_of_a_call_that_a_callback_broke_do_not_reach_the_next_call():
    class Bar:
        def update(self, count):
            raise ArithmeticError("bar")

    with SamplerPool(2) as own:
        with pytest.raises(ArithmeticError):
            own.run_map(nap, [0.2, 0.4, 0.6, 0.8], progressbar=Bar())
        assert own.run_map(double, [1, 2, 3]) == [2, 4, 6]


def test_a_second_call_at_the_same_time_is_refused(pool):
    class Nested:
        errors: tuple[str, ...] = ()

        def update(self, count):
            try:
                pool.run_map(double, [1])
            except RuntimeError as error:
                self.errors += (str(error),)

    nested = Nested()
    assert pool.run_map(double, [1, 2], progressbar=nested) == [2, 4]
    assert len(nested.errors) == 2 and "SamplerPool per thread" in nested.errors[0]
    other: list[BaseException] = []

    def run_too():
        try:
            pool.run_map(double, [1])
        except RuntimeError as error:
            other.append(error)

    timer = threading.Timer(0.1, run_too)
    timer.start()
    assert pool.run_map(nap, [0.4]) == [0.4]
    timer.join()
    assert len(other) == 1


def test_what_failed_is_not_kept():
    def spoil(G):
        raise OSError("no such module")

    with SamplerPool(1, transport="process") as own:
        victim = own.invoke_all(pids)[0]
        with pytest.raises(OSError):
            own.keep("spoil", spoil)
        os.kill(victim, signal.SIGKILL)
        assert own.run_map(double, [1, 2, 3]) == [2, 4, 6]


def test_a_fork_leaves_the_workers_alone(pool):
    before = pool.invoke_all(pids)
    child = os.fork()
    if child == 0:
        try:
            pool.run_map(double, [1])
        except RuntimeError as error:
            pool.stop()
            os._exit(0 if "create one here" in str(error) else 1)
        os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    assert pool.invoke_all(pids) == before


def test_exits_and_interrupts_of_functions_are_errors(pool):
    before = pool.invoke_all(pids)

    def leave(G, x):
        raise x("out")

    for kind in (SystemExit, KeyboardInterrupt):
        with pytest.raises(RemoteError, match=f"{kind.__name__}: out"):
            pool.run_map(leave, [kind])
    with SamplerPool(1) as serial, pytest.raises(RemoteError, match="SystemExit: out"):
        serial.run_map(leave, [SystemExit])
    assert pool.invoke_all(pids) == before


def test_a_lost_worker_takes_its_own_processes_along():
    def start_and_die(G, path):
        child = subprocess.Popen(["sleep", "60"])
        with open(path, "w") as file:
            file.write(str(child.pid))
        os.kill(os.getpid(), signal.SIGKILL)

    path = f"/tmp/metaroll-test-{os.getpid()}"
    try:
        with SamplerPool(1, transport="process", max_retries=0) as own:
            with pytest.raises(WorkerLost, match="killed by SIGKILL"):
                own.run_map(start_and_die, [path])
            with open(path) as file:
                assert _gone(int(file.read()))
    finally:
        os.unlink(path)


def test_nothing_outlives_a_parent_that_is_killed():
    """Also not a worker that is stopped, nor one in a C function that keeps Python's lock, nor what they started."""
    code = """
        import os, re, signal, subprocess, sys, time
        from metaroll.rollouts.workers.pool import SamplerPool

        def hang(G, x):
            child = subprocess.Popen(["sleep", "60"], stdout=subprocess.DEVNULL)
            os.write(1, f"{os.getpid()} {child.pid}\\n".encode())
            if x == 0:
                os.kill(os.getpid(), signal.SIGSTOP)
            re.match(r"(a+)+$", "a" * 60 + "b")

        SamplerPool(2).run_map(hang, [0, 1])
    """
    parent = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    left = [int(pid) for _ in range(2) for pid in parent.stdout.readline().split()]
    time.sleep(0.2)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    assert len(left) == 4
    assert all(_gone(pid) for pid in left)


def _gone(pid):
    deadline = time.monotonic() + 5.0
    while time.monotonic() < deadline:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.05)
    return False


def test_modules_in_the_current_folder_do_not_shadow_those_of_the_parent(tmp_path, monkeypatch):
    (tmp_path / "selectors.py").write_text("raise RuntimeError('shadowed')")
    monkeypatch.chdir(tmp_path)
    with SamplerPool(1, transport="process", max_retries=0) as own:
        assert own.run_map(double, [1]) == [2]


# -- engines -------------------------------------------------------------------------------------------------------


def test_workers_free_what_an_engine_had_there(shared_pools):
    pool = shared_pools[2]

    def count(G):
        return len(vars(G).get("_unit_runners", {}))

    gc.collect()  # engines of other tests
    before = pool.invoke_all(count)
    engine = RolloutEngine(Drift, gaussian(), pool=pool)
    assert len(engine.run(plans(4))) == 4
    assert pool.invoke_all(count) == [n + 1 for n in before]
    engine.close()
    engine.close()
    assert pool.invoke_all(count) == before
    with pytest.raises(RuntimeError, match="has been closed"):
        engine.run(plans(1))
    collected = RolloutEngine(Drift, gaussian(), pool=pool)
    assert len(collected.run(plans(2))) == 2
    del collected
    gc.collect()
    assert pool.invoke_all(count) == before


def test_an_engine_that_cannot_be_built_leaves_no_worker():
    before = len(psutil.Process().children())
    with pytest.raises(TypeError, match="policy must") as caught:
        RolloutEngine(Drift, 3, num_workers=2)
    assert len(psutil.Process().children()) == before, caught


@pytest.mark.parametrize("parallel", [False, True])
def test_an_env_that_leaves_the_program_is_an_error_of_its_rollout(parallel, shared_pools):
    class Leaver(Drift):
        def step(self, action):
            raise SystemExit(3)

    with (
        RolloutEngine(Leaver, gaussian(), pool=shared_pools[2] if parallel else None) as engine,
        pytest.raises(RolloutError, match=r"at step 0 of rollout 0 .*: SystemExit: 3"),
    ):
        engine.run(plans(2))


def test_an_env_that_cannot_be_closed_does_not_hide_its_error():
    class Stubborn(Drift):
        def step(self, action):
            raise ArithmeticError("first")

        def close(self):
            raise OSError("second")

    with pytest.raises(RolloutError, match="first"), RolloutEngine(Stubborn, gaussian()) as engine:
        engine.run(plans(1))


def test_plans_with_and_without_parameters_are_as_exact_together_as_alone():
    policy = gaussian()
    own = policy.acting_parameters() * np.float32(1.1)
    mixed = [plan.with_(parameters=own) if plan.index % 2 else plan for plan in plans(10)]
    rollouts = assert_worker_invariant(Drift, policy, mixed, num_workers=())
    assert [r.rollout_info["plan"]["index"] for r in rollouts] == list(range(10))


def test_replay_knows_all_of_a_plan():
    class Settable(Drift):
        def reset(self, *, seed=None, options=None):
            out = super().reset(seed=seed)
            self._buffer[:] += 0.0 if options is None else options["init_state"]
            return out

    given = [RolloutPlan(seed=(0, 0, 5), max_steps=30, stop_on_done=False, init_state=np.full(3, 2.0))]
    with RolloutEngine(lambda: Settable(end=0.3), gaussian()) as engine:
        first = engine.run(given)[0]
    assert len(first) == 30
    assert rollouts_equal(replay(first, lambda: Settable(end=0.3), gaussian()), first)


def test_the_replay_line_is_only_for_rollouts_that_it_repeats():
    with RolloutEngine(lambda: Trouble("raise", at_step=1), gaussian()) as engine:
        with pytest.raises(RolloutError, match=r"metaroll\.rollout\(env, policy, max_steps=6"):
            engine.run(plans(1))
        for changes in ({"stop_on_done": False}, {"deterministic": True}):
            with pytest.raises(RolloutError, match=r"metaroll\.replay\(error\.plan"):
                engine.run(plans(1, **changes))


def test_live_rollouts_need_no_end():
    endless = SlotLoop(make_slots(Drift, 1), gaussian(), plans(1, max_steps=None, stop_on_done=False))
    assert len(endless.advance(50, segments=True)[0]) == 50  # off-policy learning may go on for ever


def test_variations_without_a_single_valid_rollout_are_given_up():
    def env():
        return Trouble("nan", at_step=1, only_drift=0.5)

    with RolloutEngine(env, gaussian(), on_invalid="drop") as engine:
        assert not len(engine.run(plans(3, env_update=SetDrift(0.5))))
        assert len(engine.dropped) == 3
        with pytest.raises(InvalidValueError, match=r"rollouts of variation 1 were dropped.*observation"):
            engine.run_groups(SampleRequest(updates=[SetDrift(0.0), SetDrift(0.5)], seed=0, max_steps=5, min_steps=20))


# -- policies in the slot loop -------------------------------------------------------------------------------------


def test_contexts_of_different_kinds_are_refused_rather_than_mixed_up():
    policy = ScriptedPolicy(lambda obs, c: np.broadcast_to(np.asarray(c.get("goal", [0, 0]), float), (len(obs), 2)))
    whole, half = {"goal": np.array([1, 0])}, {"goal": np.array([0.5, 0.25])}
    for second, text in ((half, "one type in all rollouts"), (None, "same names in all rollouts")):
        given = [p.with_(context=whole if p.index < 2 else second, max_steps=2 + p.index) for p in plans(3)]
        with pytest.raises(RolloutError, match=f"the policy failed while resetting.*(?s:.)*{text}"):
            SlotLoop(make_slots(still, 2), policy, given).advance()


def test_dropped_rollouts_leave_no_nan_to_the_policy():
    class Strict(Plain):
        def initial_state(self, contexts, generators, domain_params=None):
            return {"sum": np.zeros((len(contexts), 3))}

        def act(self, obs, state, noise, deterministic=False, parameters=None):
            assert np.isfinite(obs).all() and np.isfinite(state["sum"]).all()
            return np.zeros((len(obs), 2), np.float32), {"sum": state["sum"] + obs}, {}

    many = [plan.with_(env_update=SetDrift(0.01 * plan.index)) for plan in plans(8)]
    env = lambda: Trouble("nan", at_step=2, only_drift=0.03)  # noqa: E731
    with RolloutEngine(env, Strict(), on_invalid="drop") as engine:
        assert len(engine.run(many)) == 7


def test_noise_that_a_policy_keeps_stays_as_it_was():
    class Keeper(Plain):
        info = PolicyInfo(noise_dim=1)

        def initial_state(self, contexts, generators, domain_params=None):
            return {"last": np.zeros((len(contexts), 1), np.float32)}

        def act(self, obs, state, noise, deterministic=False, parameters=None):
            action, _, _ = super().act(obs, state, noise)
            return action, {"last": noise}, {"last": state["last"], "now": noise}

    infos = rollout(still(), Keeper(), max_steps=600, seed=0).policy_infos
    np.testing.assert_array_equal(infos["last"][1:], infos["now"][:-1])


@pytest.mark.parametrize(("actions", "infos"), [(np.zeros((2, 3)), {}), (np.zeros(2), {}), ([[0.0]] * 2, {})])
def test_actions_of_another_shape_are_the_policys_error(actions, infos):
    policy = Plain()
    policy.act = lambda obs, state, *rest: (actions, state, infos)  # type: ignore[method-assign]
    with pytest.raises(RolloutError, match=r"the policy failed.*(?s:.)*one row per slot \(2\) with 2 entries"):
        SlotLoop(make_slots(still, 2), policy, plans(2)).advance()


def test_given_actions_are_checked_and_keep_their_values():
    loop = SlotLoop(make_slots(still, 2), gaussian(), plans(2, max_steps=4))
    with pytest.raises(ShapeError, match="actions"):
        loop.advance(1, actions=np.float64(0))
    assert not len(loop.advance(0)) and not len(loop.advance(0, segments=True))
    loop.advance(1, actions=np.zeros((2, 2), int))
    first, _ = loop.advance()
    assert not first.actions[0].any() and np.all(first.actions[1:] % 1 != 0)  # floats after integers stay floats
    assert np.isnan(first.policy_infos["mean"][0]).all() and np.isfinite(first.policy_infos["mean"][1:]).all()


# -- the recorder --------------------------------------------------------------------------------------------------


def test_infos_that_are_ragged_within_a_step_are_kept_as_objects():
    contacts = stack_infos([{"c": [[1], [2, 3]]}, {"c": [[4]]}])["c"]
    assert contacts.tolist() == [[[1], [2, 3]], [[4]]]
