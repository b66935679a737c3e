"""specs/sampling.md 10: run_collect, set_seed, and the report of what workers are doing."""

from __future__ import annotations

import os
import random
import signal
import threading
import time

import numpy as np
import pytest
from pool_functions import dies_once_at, double, draws, fails_at, five, nap, pids, random_amount

from metaroll.errors import WorkerLost
from metaroll.rollouts.configs import PoolTimeouts
from metaroll.rollouts.workers.pool import GlobalNamespace, SamplerPool
from metaroll.rollouts.workers.schedule import WorkerStatus, format_workers


@pytest.fixture(scope="module")
def pools():
    running = {
        "serial": SamplerPool(1, transport="serial"),
        **{str(count): SamplerPool(count, transport="process") for count in (2, 4)},
    }
    for pool in running.values():
        pool.invoke_all(pids)
    yield running
    for pool in running.values():
        pool.stop()


class Bar:
    total = None
    shown = 0

    def update(self, count):
        self.shown += count


# -- run_collect ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [10, 20, 40])
@pytest.mark.parametrize("min_runs", [None, 3, 10])
def test_kept_is_the_shortest_prefix_for_any_number_of_workers(n, min_runs, pools):
    """specs/sampling.md 10 (e): total >= n, the sum of what is kept, and len >= min_runs, the same for all workers."""
    expected: list[int] = []
    while sum(expected) < n or len(expected) < (min_runs or 0):
        expected.append(random_amount(None, len(expected) + 1)[0])
    for pool in pools.values():
        results, total = pool.run_collect(n, random_amount, min_runs=min_runs)
        assert results == expected
        assert total == sum(expected)


def test_the_total_counts_kept_runs_only(pools):
    """specs/sampling.md 10 (d): upstream says 25 for 2 workers, n=20 and 5 per run, and 40 with min_runs=7."""
    for pool in pools.values():
        assert pool.run_collect(20, five, 10, offset=1) == ([11, 21, 31, 41], 20)
        assert pool.run_collect(20, five, 1, min_runs=7) == ([1, 2, 3, 4, 5, 6, 7], 35)
        assert pool.run_collect(1, five, 1) == ([1], 5)


def test_the_bar_gets_its_total_and_never_more(pools):
    for pool in pools.values():
        bar = Bar()
        pool.run_collect(12, five, 1, collect_progressbar=bar)
        assert (bar.total, bar.shown) == (12, 12)


@pytest.mark.parametrize("which", ["serial", "2", "4"])
def test_only_a_failure_that_a_serial_run_would_meet_is_raised(which, pools):
    """specs/sampling.md 10: run 2 is not needed where run 1 has all samples, whether or not it was begun."""
    pool = pools[which]
    assert pool.run_collect(5, fails_at, 2, 5, 0.3) == ([1], 5)
    with pytest.raises(KeyError, match="run 2") as caught:
        pool.run_collect(10, fails_at, 2, 5)
    assert "run 2" in "\n".join(caught.value.__notes__)
    with pytest.raises(KeyError, match="run 1"):
        pool.run_collect(10, fails_at, 1, 5)
    assert pool.run_map(double, [1, 2, 3]) == [2, 4, 6]  # the pool stays usable


def test_a_lost_run_is_run_again(tmp_path):
    marker = str(tmp_path / "died")
    with SamplerPool(2) as pool:
        assert pool.run_collect(6, dies_once_at, 3, marker) == ([1, 2, 3, 4, 5, 6], 6)
    assert os.path.exists(marker)


def test_a_speculative_run_that_kills_its_workers_is_not_needed():
    def die_at_two(G, number):
        if number == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.4)
        return number, 5

    with SamplerPool(2, max_retries=0) as pool:
        pool.invoke_all(pids)
        assert pool.run_collect(5, die_at_two) == ([1], 5)
        with pytest.raises(WorkerLost, match="run 2"):
            pool.run_collect(6, die_at_two)


@pytest.mark.parametrize("which", ["serial", "2"])
@pytest.mark.parametrize(
    ("returned", "error", "text"),
    [
        (3, TypeError, "must return"),
        ((1, 2, 3), TypeError, "must return"),
        ((1, 2.5), TypeError, "whole number"),
        ((1, -1), ValueError, "negative"),
    ],
)
def test_what_is_no_pair_with_a_number_is_refused(which, returned, error, text, pools):
    with pytest.raises(error, match=text):
        pools[which].run_collect(3, lambda G, number: returned)


@pytest.mark.parametrize(
    ("n", "min_runs", "error"), [(0, None, ValueError), (1.5, None, TypeError), (3, 0, ValueError), (3, "2", TypeError)]
)
def test_bad_bounds_are_refused(n, min_runs, error, pools):
    with pytest.raises(error, match=r"n must be|min_runs must be"):
        pools["serial"].run_collect(n, five, 1, min_runs=min_runs)


def test_a_function_that_does_not_take_the_run_number_is_told_how_it_is_called(pools):
    for pool in pools.values():
        with pytest.raises(TypeError, match=r"run_collect calls func\(G, run_num\), which .*lambda.* does not take"):
            pool.run_collect(3, lambda G: (1, 1))
        with pytest.raises(TypeError, match=r"calls func\(G, run_num, int, offset=...\), which fails_at does not take"):
            pool.run_collect(3, fails_at, 1, offset=2)

    def wrong_inside(G, number):
        return five(G)

    with pytest.raises(TypeError, match="five"):  # a TypeError from inside stays what it is
        pools["serial"].run_collect(3, wrong_inside)


# -- other documented members --------------------------------------------------------------------------------------


def test_namespace_is_one_object_per_worker_that_outlives_calls(pools):
    """specs/sampling.md 10: GlobalNamespace is the first argument of every worker function."""

    def count(G):
        assert isinstance(G, GlobalNamespace)
        G.calls = getattr(G, "calls", 0) + 1
        return G.calls

    for pool in pools.values():
        assert pool.invoke_all(count) == [1] * pool.num_workers
        assert pool.invoke_all(count) == [2] * pool.num_workers
    with pytest.raises(AttributeError, match="nothing called 'missing'"):
        GlobalNamespace().missing  # noqa: B018


@pytest.mark.slow
def test_maps_with_17_workers():
    """specs/sampling.md 10 (e): invoke_all_map doubles its arguments with 17 workers, too."""
    with SamplerPool(17) as pool:
        assert pool.invoke_all_map(double, list(range(17))) == [2 * i for i in range(17)]


def test_progress_bar_of_run_map(pools):
    """specs/sampling.md 10: the pool sets the total of the bar; an empty list is an empty result."""
    bar = Bar()
    assert pools["2"].run_map(double, [1, 2, 3], progressbar=bar) == [2, 4, 6]
    assert (bar.total, bar.shown) == (3, 3)
    assert pools["2"].run_map(double, []) == []


def test_stop_ends_the_workers():
    """specs/sampling.md 10: stop() leaves no process, and the pool cannot be used any more."""
    pool = SamplerPool(2)
    workers = pool.invoke_all(pids)
    pool.stop()
    assert not any(os.path.exists(f"/proc/{pid}") for pid in workers)
    with pytest.raises(RuntimeError, match="stopped"):
        pool.run_map(double, [1])
    pool.stop()


# -- set_seed ------------------------------------------------------------------------------------------------------


def test_set_seed_seeds_worker_i_with_seed_plus_i_and_the_stream_goes_on(pools):
    """specs/sampling.md 10: worker i gets set_seed(seed + i); nothing of the caller's generators changes."""
    import torch

    pool = pools["2"]
    pool.set_seed(3)
    first, second = pool.invoke_all(draws), pool.invoke_all(draws)
    assert first[0] != second[0] and first[0] != first[1]
    pool.set_seed(4)
    assert pool.invoke_all(draws)[0] == first[1]
    with SamplerPool(1) as serial:
        before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
        serial.set_seed(3)
        assert serial.invoke_all(draws) == first[:1]
        assert serial.invoke_all(draws) == second[:1]
        assert (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()) == before
    pool.set_seed(None)
    assert pool.invoke_all(draws)[0] not in (first[0], second[0])


def test_a_replaced_worker_is_seeded_again():
    """As one that starts after ``set_seed``, in the same place."""
    with SamplerPool(2) as pool:
        pool.set_seed(0)  # before the workers start
        first = pool.invoke_all(draws)
        os.kill(pool.invoke_all(pids)[1], signal.SIGKILL)
        again = pool.invoke_all(draws)
        assert again[1] == first[1] and again[0] != first[0]


@pytest.mark.parametrize("seed", [1.5, "3", True])
def test_a_seed_must_be_an_integer(seed, pools):
    with pytest.raises(TypeError, match="seed must be an integer"):
        pools["serial"].set_seed(seed)


# -- the report ----------------------------------------------------------------------------------------------------


def test_report_of_idle_and_busy_workers():
    with SamplerPool(2) as pool:
        assert [status.phase for status in pool.describe_workers()] == ["off", "off"]
        workers = pool.invoke_all(pids)
        assert [(s.worker, s.pid, s.phase) for s in pool.describe_workers()] == [
            (0, workers[0], "idle"),
            (1, workers[1], "idle"),
        ]
        seen: list[list[WorkerStatus]] = []
        timer = threading.Timer(0.4, lambda: seen.append(pool.describe_workers()))
        timer.start()
        pool.run_map(nap, [1.0])
        timer.join()
        (busy, idle) = seen[0]
        assert (busy.phase, busy.what, busy.restarts, busy.stopped) == ("call", "nap, argument 0", 0, False)
        assert 0.0 < busy.silent_s < 1.5 and idle.phase == "idle"
        os.kill(workers[0], signal.SIGKILL)
        pool.invoke_all(pids)
        assert [status.restarts for status in pool.describe_workers()] == [1, 0]


def test_report_of_the_serial_pool():
    with SamplerPool(1) as pool:
        pool.invoke_all(pids)
        assert pool.describe_workers() == [WorkerStatus(0, 0, "idle", "", 0.0, False, 0)]
        seen: list[WorkerStatus] = []
        timer = threading.Timer(0.2, lambda: seen.extend(pool.describe_workers()))
        timer.start()
        pool.run_map(nap, [0.5])
        timer.join()
        assert (seen[0].phase, seen[0].what) == ("call", "nap, argument 0") and seen[0].silent_s > 0.05


def test_table_of_workers():
    rows = [
        WorkerStatus(0, 4711, "step", "rollouts 0 to 7", 0.25, False, 0),
        WorkerStatus(1, 4712, "call", "f, argument 3", 61.0, True, 2),
        WorkerStatus(2, 0, "off", "", 0.0, False, 1),
    ]
    assert format_workers(rows).splitlines() == [
        "worker  pid   phase           silent  restarts  work",
        "0       4711  step            0.2 s   0         rollouts 0 to 7",
        "1       4712  call (stopped)  61.0 s  2         f, argument 3",
        "2       -     off             -       1         -",
    ]


def test_errors_tell_what_the_workers_were_doing():
    """A WorkerLost holds the table, and any error of a call in which a silent worker was replaced has it as a note."""

    def stop_self(G, x):
        os.kill(os.getpid(), signal.SIGSTOP)

    def stop_once(G, marker):
        if not os.path.exists(marker):
            open(marker, "w").close()
            os.kill(os.getpid(), signal.SIGSTOP)
        raise ArithmeticError("after all")

    path = f"/tmp/stop-of-metaroll-test-{os.getpid()}"
    with SamplerPool(2, timeouts=PoolTimeouts(step_s=0.6), max_retries=0) as pool:
        with pytest.raises(
            WorkerLost, match=r"(?s)was stopped.*worker +pid +phase.*\(stopped\).*stop_self, argument 0"
        ):
            pool.run_map(stop_self, [0])
    try:
        with SamplerPool(2, timeouts=PoolTimeouts(step_s=0.6)) as pool:
            with pytest.raises(ArithmeticError) as caught:
                pool.run_map(stop_once, [path])
            assert "(stopped)" in "\n".join(caught.value.__notes__)
    finally:
        os.unlink(path)
