"""specs/sampling.md 10: the pool; and what design.md 4.3 promises about workers that die, stop or raise."""

from __future__ import annotations

import gc
import os
import re
import signal
import threading
import time

import numpy as np
import pytest
from pool_functions import add_base, die_always, die_once, double, fail_on_three, pids, set_base, sleepy, slow_large
from training_fakes import GoalEnv, make_learner

from metaroll.errors import NotPicklableError, WorkerLost, in_shell
from metaroll.rollouts.configs import EngineConfig, PoolTimeouts
from metaroll.rollouts.workers import transports
from metaroll.rollouts.workers.messages import encode_command
from metaroll.rollouts.workers.pool import Job, RemoteError, SamplerPool
from metaroll.training.run import rollout_source
from metaroll.training.run.runner import LocalRunner


@pytest.mark.parametrize(("workers", "transport"), [(1, "serial"), (1, "process"), (2, "process")])
def test_invoke_all_and_maps(workers, transport):
    """specs/sampling.md 10: invoke_all in worker order, invoke_all_map by worker, run_map in argument order."""
    with SamplerPool(workers, transport=transport) as pool:
        assert pool.invoke_all_map(double, list(range(workers))) == [2 * i for i in range(workers)]
        assert len(set(pool.invoke_all(set_base, 10))) == workers
        assert pool.run_map(add_base, [1, 2, 3, 4, 5]) == [11, 12, 13, 14, 15]
        assert pool.run_map(add_base, []) == []


def test_arguments_are_copies_in_every_transport():
    data = [1, 2]

    def spoil(G, x):
        x.append(3)
        return len(x)

    with SamplerPool(1) as pool:
        assert pool.run_map(spoil, [data]) == [3]
    assert data == [1, 2]


def test_one_argument_per_worker_is_required():
    with SamplerPool(1) as pool:
        with pytest.raises(ValueError, match="one entry per worker"):
            pool.invoke_all_map(double, [1, 2])
        assert pool.invoke_all_map(double, (x for x in [3])) == [6]


@pytest.mark.parametrize(("workers", "transport"), [(1, "serial"), (2, "process")])
def test_an_exception_names_the_argument_and_the_pool_stays_usable(workers, transport):
    with SamplerPool(workers, transport=transport) as pool:
        with pytest.raises(KeyError) as caught:
            pool.run_map(fail_on_three, list(range(8)))
        note = "\n".join(caught.value.__notes__)
        assert "argument 3" in note and "fail_on_three" in note
        assert pool.run_map(double, [1, 2, 3]) == [2, 4, 6]


def test_wrong_functions_and_arguments_are_named():
    with SamplerPool(1) as pool:
        for call in (lambda: pool.run_map(5, [1]), lambda: pool.invoke_all(5), lambda: pool.run_collect(1, 5)):
            with pytest.raises(TypeError, match=r"func must be callable as func\(namespace, ...\), got 5 of type int"):
                call()
        for call in (pool.run_map, pool.invoke_all_map):
            with pytest.raises(TypeError, match="arglist must be a list of arguments, got 3 of type int"):
                call(abs, 3)


def test_what_cannot_be_sent_is_an_error_before_anything_runs():
    lock = threading.Lock()
    with SamplerPool(2) as pool:
        for call in (
            lambda: pool.run_map(lambda G, x: lock, [1]),
            lambda: pool.run_collect(3, lambda G, number: (lock, 1)),
            lambda: pool.invoke_all(double, lock),
        ):
            with pytest.raises(NotPicklableError, match="cannot be sent to a worker"):
                call()
        assert pool.run_map(double, [4]) == [8]


def test_advice_of_a_pool_for_what_cannot_be_sent_is_no_smaller_pool():
    lock = threading.Lock()
    with SamplerPool(1) as pool, pytest.raises(NotPicklableError) as caught:
        pool.run_map(lambda G, x: lock, [1])
    assert "num_workers" not in str(caught.value) and "keep open files, locks and viewers out" in str(caught.value)


@pytest.mark.parametrize(
    ("end", "reason", "hint"),
    [
        (lambda: os._exit(3), "the worker was lost: it exited with status 3", "ends its process"),
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "killed by SIGKILL", "If memory ran out"),
        (lambda: os.kill(os.getpid(), signal.SIGSEGV), "killed by SIGSEGV", "A library crashed in it"),
        (lambda: time.sleep(60), "no sign of life in phase 'call'", r"allow more time, PoolTimeouts\(call_s="),
    ],
    ids=["exit", "kill", "crash", "silence"],
)
def test_a_lost_worker_gets_a_hint_that_fits(end, reason, hint):
    timeouts = PoolTimeouts(call_s=1.0)
    with SamplerPool(1, transport="process", max_retries=0, timeouts=timeouts) as pool:
        with pytest.raises(WorkerLost, match=f"(?s)was tried once.*{reason}.*{hint}"):
            pool.run_map(lambda G, x: end(), [0])


def test_an_exception_that_cannot_be_sent_arrives_as_text():
    def raise_local(G, x):
        class Odd(Exception):
            def __init__(self, a, b):
                super().__init__("odd")

        raise Odd(1, 2)

    with SamplerPool(1, transport="process") as pool, pytest.raises(RemoteError, match="odd"):
        pool.run_map(raise_local, [0])


def test_a_dead_worker_is_replaced_and_its_work_done_again(tmp_path, capsys):
    marker = str(tmp_path / "died")
    with SamplerPool(2) as pool:
        pool.keep("base", set_base, 100)
        assert pool.run_map(die_once, [(i, marker) for i in range(6)]) == list(range(6))
        assert os.path.exists(marker)
        (text,) = capsys.readouterr().err.splitlines()  # where Python shows warnings unless a script sets up logging
        assert re.match(
            r"worker \d was lost: it exited with status 7; a new one runs die_once, argument 2 again\. ", text
        )
        assert pool.run_map(add_base, [1, 2, 3, 4]) == [101, 102, 103, 104]  # the new worker got what was kept


def test_at_the_command_line_preparing_a_worker_has_no_names_of_functions(tmp_path, capsys):
    with in_shell(), SamplerPool(1, transport="process", max_retries=1) as pool:
        pool.run_map(double, [1])
        pool.keep("base", die_once, (2, str(tmp_path / "died")))
        text = capsys.readouterr().err
        assert "exited with status 7; a new one is started. " in text and "die_once" not in text
        pool.invoke_own(die_once, (2, str(tmp_path / "died again")), in_words="reading the time")
        assert "; a new one repeats reading the time. " in capsys.readouterr().err
        for prepare in (
            lambda: pool.keep("other", die_always, 0),
            lambda: pool.invoke_own(die_always, 0, in_words="preparing a worker"),
        ):
            with pytest.raises(WorkerLost, match=r"^preparing a worker was tried 2 times") as lost:
                prepare()
            assert "die_always" not in str(lost.value)  # in the table of workers, either


def test_at_the_command_line_the_start_of_a_run_has_none_either(monkeypatch):
    monkeypatch.setattr(rollout_source, "be_ready", lambda namespace: os._exit(3))
    with LocalRunner(engine=EngineConfig(num_workers=2, max_retries=0)) as runner, in_shell():
        runner.setup(make_learner(), GoalEnv)
        with pytest.raises(WorkerLost, match=r"^preparing a worker was tried once") as lost:
            runner.train(1)
    assert "lambda" not in str(lost.value)


def test_at_the_command_line_lost_rollouts_are_named(capsys):
    with in_shell(), SamplerPool(1, transport="process", max_retries=1) as pool:
        job = Job(0, encode_command(die_always, (0,), {}, "it"), "rollouts 0 to 7", phase="start")
        with pytest.raises(WorkerLost, match=r"^rollouts 0 to 7 were tried 2 times"):
            pool.run_jobs([job])
        assert "a new one runs rollouts 0 to 7 again" in capsys.readouterr().err


def test_work_that_kills_every_worker_ends_in_worker_lost():
    with SamplerPool(2, max_retries=1) as pool:
        with pytest.raises(
            WorkerLost, match="die_always, argument 0 was tried 2 times, each time a worker was"
        ) as lost:
            pool.run_map(die_always, [0])
        assert "Run it again" not in str(lost.value) and lost.value.plan is None
        assert pool.run_map(double, [5]) == [10]


def test_an_idle_worker_that_is_lost_while_another_works_starts_again_with_its_next_work(capsys):
    def end_others(G, of_all):
        for pid in {*of_all} - {os.getpid()}:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.3)
        return os.getpid()

    with in_shell(), SamplerPool(2) as pool:
        before = pool.invoke_all(pids)
        (alive,) = pool.run_map(end_others, [before])
        lost = before.index(*{*before} - {alive})
        text = capsys.readouterr().err
        assert text.startswith(f"worker {lost} was lost: ") and "; a new one starts with its next work. " in text
        assert "--num-workers" in text  # SIGKILL: too little memory, perhaps
        assert pool.run_map(double, [1, 2, 3]) == [2, 4, 6]
        now = pool.invoke_all(pids)
        assert now[before.index(alive)] == alive and now[lost] != before[lost]


def test_a_worker_killed_while_idle_is_replaced(capsys):
    with SamplerPool(2) as pool:
        for pid in pool.invoke_all(pids):
            os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + 10
        while any(worker.phase != "off" for worker in pool.describe_workers()):
            assert time.monotonic() < deadline
        assert pool.run_map(double, [1, 2, 3]) == [2, 4, 6]
    assert capsys.readouterr().err.count("killed by SIGKILL") == 2


def test_a_stopped_worker_is_given_up_after_the_timeout():
    with SamplerPool(2, timeouts=PoolTimeouts(step_s=1.0)) as pool:
        victim = pool.invoke_all(pids)[0]
        os.kill(victim, signal.SIGSTOP)
        begun = time.monotonic()
        assert pool.run_map(double, [1, 2, 3, 4]) == [2, 4, 6, 8]
        assert time.monotonic() - begun < 30
        assert victim not in pool.invoke_all(pids)


def test_a_worker_stopped_while_it_sends_a_large_result_does_not_stop_the_parent(tmp_path):
    marker = tmp_path / "pid"
    size = 30_000_000  # 240 MB: far more than a socket holds

    def stop_it():
        while not (marker.exists() and marker.read_text()):
            time.sleep(0.001)
        time.sleep(0.25)
        os.kill(int(marker.read_text()), signal.SIGSTOP)

    with SamplerPool(2, timeouts=PoolTimeouts(step_s=1.0)) as pool:
        pool.invoke_all(pids)
        thread = threading.Thread(target=stop_it)
        thread.start()
        results = pool.run_map(slow_large, [(size, str(marker))])
        thread.join()
        assert np.array_equal(results[0], np.arange(size))


@pytest.mark.parametrize("transport", ["serial", "process"])
def test_large_results_arrive_whole_and_belong_to_the_caller(transport):
    """Arrays travel beside the message: of all sizes, kinds and orders, and of classes that only the script knows."""

    class Box:
        def __init__(self, content):
            self.content = content

    Box.__module__ = "__main__"  # as in a script; a worker would look for it in the module of this test first

    def give(G, shape):
        array = np.arange(np.prod(shape), dtype=np.float64).reshape(shape)
        G.shown = [array, array.T, array[::2], array[:0], array.astype("U8"), array.astype(np.float32), Box(array)]
        return G.shown

    with SamplerPool(1, transport=transport) as pool:
        for shape in ((3, 4), (200, 150)):  # within the message, and beside it
            first, again = pool.run_map(give, [shape, shape])
            array = np.arange(np.prod(shape), dtype=np.float64).reshape(shape)
            kinds = [array, array.T, array[::2], array[:0], array.astype("U8"), array.astype(np.float32)]
            for found, expected in zip(first, kinds, strict=False):
                np.testing.assert_array_equal(found, expected)
                assert found.dtype == expected.dtype and found.flags.writeable
                found[...] = found.dtype.type(7)
            np.testing.assert_array_equal(again[0], array)  # nothing is shared
            np.testing.assert_array_equal(pool.invoke_all(lambda G: G.shown[0])[0], array)
            assert type(again[6]).__name__ == "Box"
            np.testing.assert_array_equal(again[6].content, array)


def test_the_users_own_functions_may_take_their_time():
    with SamplerPool(2, timeouts=PoolTimeouts(step_s=0.2, reset_s=0.2)) as pool:
        assert pool.run_map(sleepy, [0.7, 0.0]) == [0.7, 0.0]


def test_ctrl_c_leaves_no_process_and_the_pool_usable():
    with SamplerPool(2) as pool:
        workers = pool.invoke_all(pids)
        timer = threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            pool.run_map(sleepy, [60, 60])
        timer.join()
        assert not any(os.path.exists(f"/proc/{pid}") for pid in workers)
        assert pool.run_map(double, [1]) == [2]


def test_ctrl_c_amid_the_end_of_workers_leaves_them_to_the_next_call(monkeypatch):
    def interrupt(*arguments):
        raise KeyboardInterrupt

    class Bar:
        total, update = 0, interrupt

    pool = SamplerPool(2)
    for stopped, following in (
        (lambda: pool.run_map(double, [1], Bar()), lambda: pool.run_map(double, [1])),  # Ctrl-C twice
        (pool.stop, pool.stop),
    ):
        workers = pool.invoke_all(pids)
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(transports, "end_all", interrupt)
            stopped()
        assert all(os.path.exists(f"/proc/{pid}") for pid in workers)
        following()
        assert not any(os.path.exists(f"/proc/{pid}") for pid in workers)


def test_collected_pools_leave_no_process():
    pool = SamplerPool(2)
    workers = pool.invoke_all(pids)
    del pool
    gc.collect()
    assert not any(os.path.exists(f"/proc/{pid}") for pid in workers)


def test_a_pool_is_not_pickled():
    import pickle

    with SamplerPool(1) as pool, pytest.raises(RuntimeError, match="cannot be pickled"):
        pickle.dumps(pool)
    with pytest.raises(RuntimeError, match="stopped"):
        pool.invoke_all(pids)


def test_a_worker_that_is_replaced_works_in_the_folder_of_the_first(tmp_path, monkeypatch) -> None:
    with SamplerPool(1, transport="process") as pool:
        [before] = pool.invoke_all(lambda G: (os.getpid(), os.getcwd()))
        monkeypatch.chdir(tmp_path)
        os.kill(before[0], signal.SIGKILL)
        [after] = pool.invoke_all(lambda G: (os.getpid(), os.getcwd()))
    assert after[0] != before[0] and after[1] == before[1] != str(tmp_path)
