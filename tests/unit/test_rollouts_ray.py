"""Ray as the transport of a pool: the bits, errors and recoveries of processes (specs/sampling.md 10).

One cluster for all tests of this module; it gets two more nodes for the test that kills one. What workers run lies in
modules that are imported quickly (``pool_functions``, ``engine_envs``), since each of them imports it anew.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
import ray
import torch
import yaml
from engine_envs import Drift, SetDrift, Slow, Trouble
from live_cases import collected
from pool_functions import add, count, die, once_killed, once_silent, once_stopped, remember, whereabouts
from ray import cluster_utils

from metaroll import BayesSimEmbedding, SimRolloutSamplerForSBI
from metaroll.data.compare import rollouts_equal
from metaroll.envs.lookup.source import make_env
from metaroll.errors import ClusterError, RolloutError, WorkerLost
from metaroll.lab.cli.main import main
from metaroll.policies import IdlePolicy
from metaroll.policies.gaussian import GaussianMLPPolicy
from metaroll.rollouts.configs import PoolTimeouts
from metaroll.rollouts.engine.engine import RolloutEngine
from metaroll.rollouts.requests import SampleRequest
from metaroll.rollouts.samplers.parallel import ParallelRolloutSampler
from metaroll.rollouts.single.replay import assert_worker_invariant, replay
from metaroll.rollouts.workers import cluster_probe, ray_session, ray_transport
from metaroll.rollouts.workers.pool import SamplerPool
from metaroll.rollouts.workers.ray_session import check_cluster
from metaroll.seeding import isolated_rng
from metaroll.types import EnvSpec, RolloutPlan

OURS = ("metaroll.rollouts.workers.worker_main:main", "ray::RayWorker")
SPEC = EnvSpec.from_env(Drift())
PLANS = [
    RolloutPlan(index=i, seed=(3, 1, i), max_steps=30, env_update=SetDrift(0.01 * (i % 5)) if i % 3 else None)
    for i in range(19)
]


def workers_alive(of=None):
    """Actors and worker processes below the process ``of`` (default: this one)."""
    found = []
    for process in psutil.Process(of).children(recursive=True):
        try:
            if any(name in " ".join(process.cmdline()) for name in OURS) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.NoSuchProcess:
            continue
    return found


def eventually(condition, seconds=10.0):
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    return condition()


@pytest.fixture(autouse=True)
def no_process_is_left_behind():
    """Instead of that of conftest.py: the nodes live as long as the cluster, workers of stopped pools do not."""
    before = len(workers_alive())
    yield
    assert eventually(lambda: len(workers_alive()) <= before), "this test left workers behind"


@pytest.fixture(scope="module")
def cluster():
    others = {process.pid for process in psutil.Process().children(recursive=True)}
    running = cluster_utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    yield running
    running.shutdown()
    assert eventually(lambda: {p.pid for p in psutil.Process().children(recursive=True)} <= others)


@pytest.fixture(scope="module")
def pool(cluster):
    with SamplerPool(2, transport="ray", address=cluster.address, timeouts=PoolTimeouts(step_s=20.0)) as running:
        running.invoke_all(whereabouts)
        yield running


def gaussian():
    return GaussianMLPPolicy(SPEC, hidden_sizes=(8,), generator=torch.Generator().manual_seed(0))


def same(left, right):
    return len(left) == len(right) and all(rollouts_equal(a, b) for a, b in zip(left, right, strict=True))


# -- the same as elsewhere -----------------------------------------------------------------------------------------


def test_rollouts_have_the_bits_of_a_serial_run_and_of_replay(pool):
    rollouts = assert_worker_invariant(Drift, gaussian(), PLANS, num_workers=[pool])
    assert len({len(r) for r in rollouts}) > 3  # early ends and time limits both occurred


@pytest.mark.slow
@pytest.mark.parametrize("case", ["list, memory", "simulator, noise", "MuJoCo, memory"])
def test_live_collections_have_the_bits_of_a_serial_one(pool, case):
    def kill(call):
        if call == 2:
            os.kill(pool.describe_workers()[0].pid, signal.SIGKILL)  # which has a part of every collection

    assert collected(case, 5, pool) == collected(case, 5)
    assert collected(case, 5, pool, kill, snapshot_at=(3,)) == collected(case, 5)


def test_groups_and_steps_have_the_bits_of_a_serial_run(pool):
    found = []
    for workers in (None, pool):
        with RolloutEngine(Drift, gaussian(), pool=workers) as engine:
            groups = engine.run_groups(
                SampleRequest(updates=[SetDrift(0.02), None], seed=5, max_steps=20, min_steps=60)
            )
            found.append([rollout for group in groups for rollout in group])
    assert same(*found)
    samples = []
    for workers in (None, pool):
        number = 1 if workers is None else 2
        options = {"min_steps": 150, "seed": 4, "show_progress_bar": False, "pool": workers}
        with ParallelRolloutSampler(Drift, gaussian(), number, **options) as sampler:
            samples.append(sampler.sample())
    assert same(*samples) and sum(map(len, samples[0])) >= 150


def test_simulations_for_inference_have_the_bits_of_a_serial_run(pool):
    env = make_env("pend")
    spec = EnvSpec.from_env(env)
    embedding = BayesSimEmbedding(spec, SimRolloutSamplerForSBI.get_dim_data(spec))
    thetas = np.linspace(0.7, 1.3, 40).reshape(20, 2)
    thetas[3, 0] = -1.0  # no such pendulum
    found = []
    for workers in (None, pool):
        mapping = {0: "pole_mass", 1: "pole_length"}
        options = {"num_segments": 1, "seed": 5, "pool": workers}
        with SimRolloutSamplerForSBI(env, IdlePolicy(spec), mapping, embedding, **options) as sampler:
            found.append(sampler(thetas))
            assert len(sampler.failed)
    torch.testing.assert_close(*found, rtol=0.0, atol=0.0, equal_nan=True)
    assert torch.isnan(found[0]).any(dim=1).tolist() == [i == 3 for i in range(20)]


def test_functions_maps_and_numbered_runs(pool):
    assert pool.invoke_all(remember, 10) == [10, 10]
    assert pool.run_map(add, range(7)) == [10, 11, 12, 13, 14, 15, 16]
    assert pool.invoke_all_map(add, [1, 2]) == [11, 12]
    assert pool.run_collect(20, count, 4) == ([1, 2, 3, 4, 5, 6, 7], 22)
    large = pool.run_map(lambda G, x: x + 1, [np.arange(300_000), np.arange(300_000) + 1])
    assert [entry[-1] for entry in large] == [300_000, 300_001]


def test_workers_have_one_thread_and_the_folder_of_the_program(pool, own_folder_of_module):
    told = pool.invoke_all(lambda G: (torch.get_num_threads(), os.environ["OMP_NUM_THREADS"], os.getcwd()))
    assert told[0] == told[1] and told[0][:2] == (1, "1")
    assert Path(told[0][2]).is_relative_to(own_folder_of_module)  # where the pool was started
    main_thread = pool.invoke_all(lambda G: threading.current_thread() is threading.main_thread())
    assert main_thread == [True, True]
    status = pool.describe_workers()
    assert [worker.phase for worker in status] == ["idle", "idle"] and all(worker.pid for worker in status)


# -- errors and losses ---------------------------------------------------------------------------------------------


def test_an_exception_arrives_with_traceback_and_replay_and_the_engine_goes_on(pool):
    many = [RolloutPlan(i, (7, 2, i), env_update=SetDrift(0.01 * i), max_steps=12) for i in range(8)]
    env = lambda: Trouble("raise", at_step=6, only_drift=0.05)  # noqa: E731
    with RolloutEngine(env, gaussian(), pool=pool) as engine:
        with pytest.raises(RolloutError, match=r"(?s)rollout 5.*the motor is on fire.*metaroll.replay") as caught:
            engine.run(many)
        assert "in _trouble" in caught.value.worker_traceback
        with pytest.raises(RolloutError, match="rollout 5"):
            replay(caught.value.plan, env, engine.policy)
        assert len(engine.run(many[:4])) == 4
    with pytest.raises(ZeroDivisionError) as failed:
        pool.run_map(lambda G, x: 1 // x, [1, 0])
    assert "argument 1; its traceback there" in failed.value.__notes__[0]


@pytest.mark.slow
def test_a_lost_worker_or_actor_is_replaced_and_knows_all_again(cluster, tmp_path, monkeypatch):
    """A worker process that hangs or dies, an actor that is killed or stopped; and bounded retries."""
    monkeypatch.setattr(ray_transport, "_DEAF_S", 1.0)
    limits = PoolTimeouts(step_s=2.0, call_s=2.0)
    with SamplerPool(1, transport="ray", address=cluster.address, timeouts=limits, max_retries=1) as own:
        own.keep("value", remember, 5)
        assert own.run_map(once_silent, [str(tmp_path / "silent")]) == ["done"]
        first = own.invoke_all(whereabouts)
        assert own.run_map(once_killed, [str(tmp_path / "killed")]) == ["done"]
        assert own.run_map(once_stopped, [str(tmp_path / "stopped")]) == ["done"]
        assert own.invoke_all(whereabouts) != first
        assert own.run_map(add, [1, 2]) == [6, 7]  # what is kept was told anew
        with pytest.raises(
            WorkerLost, match=r"die, argument 0 was tried 2 times, each time a worker was lost; .* killed by SIGKILL"
        ):
            own.run_map(die, [0])


@pytest.mark.slow
def test_a_lost_head_is_an_error_before_ray_ends_the_program(cluster, monkeypatch):
    def silent(address):
        raise ClusterError(f"{address} does not answer")

    with SamplerPool(1, transport="ray", address=cluster.address) as own:
        own.invoke_all(whereabouts)
        monkeypatch.setattr(ray_session, "check_answer", silent)
        monkeypatch.setattr(ray_session, "_CHECK_S", 1.0)
        monkeypatch.setattr(ray_session, "_LOST_S", 1.5)
        with pytest.raises(ClusterError, match=r"head of the Ray cluster at .* has not answered.*`ray start --head`"):
            own.run_map(lambda G, x: time.sleep(x), [15])
        monkeypatch.undo()
        assert own.run_map(lambda G, x: 2 * x, [1]) == [2]  # connected anew


@pytest.mark.slow
def test_a_node_that_dies_in_the_middle_of_sampling_changes_no_bit(cluster, pool):
    # The processors of the head belong to ``pool``: those of the new nodes are the only free ones.
    pool.invoke_all(whereabouts)  # also to a worker that an earlier test has killed, and nobody has used since
    with isolated_rng(0):  # it draws ports
        nodes = [cluster.add_node(num_cpus=1, wait=False) for _ in range(2)]
        cluster.wait_for_nodes()
    plans = [plan.with_(index=i, seed=(8, 0, i)) for i, plan in enumerate(PLANS * 4)]
    with RolloutEngine(Slow, gaussian()) as engine:
        expected = engine.run(plans)
    killed = []

    def raylet_of(node):
        return psutil.Process(node.all_processes["raylet"][0].process.pid)

    def kill_one(rollouts, steps):
        busy = next((node for node in nodes if workers_alive(raylet_of(node).pid)), None)
        if not killed and busy is not None:
            raylet = raylet_of(busy)
            killed.extend(workers_alive(raylet.pid))
            for process in [raylet, *raylet.children(recursive=True)]:  # all of it at once, as when a machine fails
                process.kill()
            with isolated_rng(0):
                cluster.remove_node(busy, allow_graceful=False)
            nodes.remove(busy)

    try:
        with SamplerPool(2, transport="ray", address=cluster.address) as own:
            assert sum(node["Alive"] for node in ray.nodes()) == 3
            own.invoke_all(whereabouts)  # both are up: one alone might have done it all
            with RolloutEngine(Slow, gaussian(), pool=own) as engine:
                assert same(engine.run(plans, progress=kill_one), expected)
            assert killed and sum(worker.restarts for worker in own.describe_workers()) >= 1
    finally:
        with isolated_rng(0):
            for node in nodes:
                cluster.remove_node(node)


# -- connections ---------------------------------------------------------------------------------------------------


@pytest.fixture
def silent():
    """Address of something that accepts connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def closed():
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    return address


@pytest.fixture
def web():
    """Address of something that answers, but is not Ray."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer():
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(1000)
                    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("silent", "does not answer (nothing within 1 s): check host and port"),
        ("closed", "does not answer (Connection refused): check host and port"),
        ("web", "is not a Ray cluster: check host and port"),
    ],
)
def test_an_address_without_a_cluster_is_an_error_within_seconds(where, message, request, monkeypatch):
    monkeypatch.setattr(cluster_probe, "_ANSWER_S", 1.0)
    address = request.getfixturevalue(where)
    begun = time.monotonic()
    with pytest.raises(ClusterError) as caught:
        check_cluster(address)
    assert time.monotonic() - begun < 5.0
    assert message in str(caught.value) and address in str(caught.value)


def test_a_cluster_on_the_loopback_address_alone_is_an_error_and_not_waited_for(monkeypatch):
    def answers(address):
        if not address.startswith("127.0.0.1"):
            raise ClusterError(f"{address} does not answer")

    monkeypatch.setattr(ray_session, "check_answer", answers)
    monkeypatch.setattr(ray.util, "get_node_ip_address", lambda: "192.0.2.7")
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    with pytest.raises(ClusterError, match=r"not at 192\.0\.2\.7:6379.*--node-ip-address=192\.0\.2\.7"):
        ray_session.RaySession("127.0.0.1:6379", 1)


def test_an_address_that_no_name_can_be_is_an_error():
    with pytest.raises(ClusterError, match=r"at head..example:6379 cannot be found"):
        check_cluster("head..example:6379")


@pytest.mark.slow
def test_a_pool_at_an_address_without_a_cluster_stays_usable(closed):
    program = """
        import os, sys
        from metaroll.rollouts.workers.pool import SamplerPool
        pool = SamplerPool(2, transport="ray", address=sys.argv[1])
        for attempt in range(2):
            try:
                pool.run_map(os.path.join, ["a"])
            except Exception as error:
                say(type(error).__name__, error)
        pool.stop()
    """
    lines = run_program(program, closed)
    assert len(lines) == 2 and lines[0] == lines[1]
    assert lines[0].startswith("ClusterError") and f"{closed} does not answer" in lines[0]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"address": "somewhere"}, ValueError, "address must be 'HOST:PORT' of a Ray cluster"),
        ({"address": "host:99999"}, ValueError, "got 'host:99999'"),
        ({"address": "ray://host:10001"}, ValueError, "Ray Client is not supported"),
        ({"address": 6379}, TypeError, "got 6379"),
        ({"address": "host:1", "transport": "process"}, ValueError, "got 'host:1': or use"),
        ({"transport": "rey"}, ValueError, "got 'rey'; did you mean 'ray'"),
    ],
)
def test_wrong_arguments_are_refused_at_once(options, error, message):
    with pytest.raises(error) as caught:
        SamplerPool(2, **{"transport": "ray", **options})
    assert message in str(caught.value)
    with pytest.raises(error):
        RolloutEngine(Drift, gaussian(), num_workers=2, **{"transport": "ray", **options})


def test_all_pools_of_a_process_share_one_cluster(pool, cluster):
    with pytest.raises(ValueError, match="is not the Ray cluster that this process is connected to"):
        SamplerPool(1, transport="ray", address="elsewhere:6379").invoke_all(whereabouts)
    with SamplerPool(1, transport="ray") as other:  # no address: the one that is connected
        other.invoke_all(remember, 1)
        assert other.run_map(add, [1]) == [2]
    assert ray.is_initialized() and pool.invoke_all(remember, 0) == [0, 0]


def run_program(program, *arguments):
    """What the program said (``say``), in a file: on standard output Ray tells which nodes died."""
    with tempfile.NamedTemporaryFile() as heard:
        begin = f"import functools\nsay = functools.partial(print, file=open({heard.name!r}, 'w'), flush=True)\n"
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", begin + textwrap.dedent(program), *arguments],
            capture_output=True,
            text=True,
            timeout=100,
        )
        assert done.returncode == 0, done.stderr
        return heard.read().decode().splitlines()


@pytest.mark.slow
def test_a_ray_of_our_own_ends_with_the_last_pool_and_changes_nothing():
    program = """
        import os, signal, time, psutil
        from metaroll.rollouts.workers.pool import SamplerPool
        signal.signal(signal.SIGTERM, handler := lambda *_: None)
        before = dict(os.environ)
        one, two = SamplerPool(1, transport="ray"), SamplerPool(1, transport="ray")
        say(one.run_map(lambda G, x: 2 * x, [1, 2, 3]), two.run_map(lambda G, x: -x, [1]))
        import ray
        say(ray.cluster_resources()["CPU"], signal.getsignal(signal.SIGTERM) is handler)
        one.stop()
        say(ray.is_initialized(), two.run_map(lambda G, x: -x, [2]))
        two.stop()
        deadline = time.monotonic() + 10
        while psutil.Process().children(recursive=True) and time.monotonic() < deadline:
            time.sleep(0.1)
        say(ray.is_initialized(), psutil.Process().children(recursive=True), dict(os.environ) == before)
    """
    assert run_program(program) == ["[2, 4, 6] [-1]", "1.0 True", "True [-2]", "False [] True"]


@pytest.mark.slow
def test_a_program_that_has_connected_ray_keeps_its_connection(cluster):
    program = """
        import sys, ray
        from metaroll.rollouts.workers.pool import SamplerPool
        ray.init(address=sys.argv[1], logging_level="ERROR", log_to_driver=False)
        with SamplerPool(1, transport="ray") as pool:
            say(pool.run_map(lambda G, x: 2 * x, [1]))
        say(ray.is_initialized())
        with SamplerPool(1, transport="ray", address=sys.argv[1]) as pool:
            pool.invoke_all(lambda G: None)
            ray.shutdown()
            try:
                pool.invoke_all(lambda G: None)
            except RuntimeError as error:
                say(error)
            say(pool.run_map(lambda G, x: 3 * x, [1]))
        say(ray.is_initialized())
    """
    lines = run_program(program, cluster.address)
    assert lines[:2] + lines[3:] == ["[2]", "True", "[3]", "False"]
    assert lines[2].startswith("Ray was shut down while a SamplerPool used it; the next call")


@pytest.mark.slow
def test_ctrl_c_leaves_nothing_behind(cluster):
    program = """
        import sys, time
        from metaroll.rollouts.workers.pool import SamplerPool

        def sleep(G, x):
            time.sleep(60)

        pool = SamplerPool(2, transport="ray", address=sys.argv[1])
        pool.invoke_all(lambda G: None)
        print("ready", flush=True)
        pool.run_map(sleep, [1, 2])
    """
    before = len(workers_alive())
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program), cluster.address],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with child:
        assert child.stdout is not None and child.stderr is not None
        assert child.stdout.readline() == "ready\n"
        assert len(workers_alive()) == before + 4  # two actors, two processes
        child.send_signal(signal.SIGINT)
        assert "KeyboardInterrupt" in child.stderr.read()
    assert child.returncode == -signal.SIGINT
    assert eventually(lambda: len(workers_alive()) == before)


# -- the command line ----------------------------------------------------------------------------------------------

TINY = ["--epochs", "1", "--steps-per-epoch", "60", "--num-passes", "1", "--num-episodes", "2", "--quiet", "--json"]


@pytest.mark.slow
def test_the_command_line_trains_with_the_same_result(cluster, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    summaries = []
    for folder, engine in (("a", ["serial"]), ("b", ["ray", "--ray-address", cluster.address, "--num-workers", "2"])):
        assert main(["train", "ppo", "Pendulum-v1", *TINY, "--out", folder, "--engine", *engine]) == 0
        out = capsys.readouterr().out
        summaries.append(json.loads(out[out.index("{") :]))  # Ray may print before it that a node of before has died
    assert summaries[0]["returns"] == summaries[1]["returns"]
    weights = [next(Path(folder).glob("snapshots/*/algorithm.safetensors")).read_bytes() for folder in "ab"]
    assert weights[0] == weights[1]
    assert yaml.safe_load((tmp_path / "b" / "config.yaml").read_text())["run"]["transport"] == "ray"
    assert main(["evaluate", "b", "--engine", "serial", "--quiet"]) == 2  # two workers in one process


def test_the_command_line_refuses_a_cluster_that_does_not_answer(closed, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "pearl", "point-robot", "--engine", "ray", "--ray-address", closed]) == 2
    assert f"the Ray cluster at {closed} does not answer" in " ".join(capsys.readouterr().err.split())
    assert main(["train", "pearl", "point-robot", "--ray-address", closed]) == 2
    assert "or use --engine ray" in " ".join(capsys.readouterr().err.split())
    assert list(tmp_path.iterdir()) == []
