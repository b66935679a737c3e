"""Ray's authentication by token, which a new cluster of ``ray.init`` turns on for the whole process, and which
``ray start --head`` demands wherever an earlier Ray has left a token (specs/sampling.md 10)."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
import textwrap
import time

import pytest
import ray
from ray import cluster_utils

from metaroll.errors import ClusterError
from metaroll.rollouts.workers import ray_session
from metaroll.rollouts.workers.cluster_probe import check_answer
from metaroll.rollouts.workers.pool import SamplerPool
from metaroll.seeding import isolated_rng

MODE = "RAY_AUTH_MODE"
TOKEN = "5" * 64

HEAD = """
    import sys
    from ray import cluster_utils
    cluster = cluster_utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    print(cluster.address, flush=True)
    sys.stdin.read()
    cluster.shutdown()
"""
DOUBLE = """
    import os, sys
    from metaroll.rollouts.workers.pool import SamplerPool
    with SamplerPool(1, transport="ray", address=sys.argv[1]) as pool:
        print(pool.run_map(lambda G, x: 2 * x, [1, 2]), os.environ.get("RAY_AUTH_MODE"), flush=True)
        port = sys.argv[1].rpartition(":")[2]
        with SamplerPool(1, transport="ray", address="127.0.0.1:" + port) as other:  # the same one by another name
            other.run_map(lambda G, x: x, [1])
    print(os.environ.get("RAY_AUTH_MODE"))
"""


def start(program, *arguments, **variables):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_AUTH")}
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program), *arguments],
        env={**environment, **variables},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture(scope="module")
def guarded():
    """Address of a cluster that wants a token."""
    with start(HEAD, **{MODE: "token", "RAY_AUTH_TOKEN": TOKEN}) as head:
        assert head.stdout is not None
        yield head.stdout.readline().strip()
        head.communicate(timeout=60)


@pytest.mark.slow
def test_a_cluster_that_wants_a_token_is_given_the_one_at_hand(guarded):
    assert check_answer(guarded) is True
    with start(DOUBLE, guarded, RAY_AUTH_TOKEN=TOKEN) as program:
        out, err = program.communicate(timeout=100)
    assert out.splitlines() == ["[2, 4] token", "None"], err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("variables", "message"),
    [({MODE: "disabled"}, "wants a token (`ray get-auth-token` prints it)"), ({}, "no authentication token was found")],
)
def test_no_token_is_an_error_within_seconds_and_the_pool_stays_usable(guarded, variables, message, tmp_path):
    program = """
        import sys, time
        from metaroll.errors import ClusterError
        from metaroll.rollouts.workers.pool import SamplerPool
        begun = time.monotonic()
        for attempt in range(2):
            try:
                SamplerPool(1, transport="ray", address=sys.argv[1]).run_map(lambda G, x: x, [1])
            except ClusterError as error:
                print(time.monotonic() - begun < 20, error)
    """
    with start(program, guarded, HOME=str(tmp_path), **variables) as running:
        out, err = running.communicate(timeout=100)
    lines = out.splitlines()
    assert len(lines) == 2 and all(line.startswith("True") and message in line for line in lines), (out, err)


@pytest.mark.slow
def test_a_cluster_without_tokens_follows_one_with_them():
    """The pool's own Ray demands tokens; when it has ended, this process takes calls without them again."""
    with SamplerPool(1, transport="ray") as own:
        assert own.run_map(lambda G, x: x + 1, [1]) == [2]
    assert MODE not in os.environ
    with isolated_rng(0):  # it draws ports
        cluster = cluster_utils.Cluster(
            initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False}
        )
    try:
        assert check_answer(str(cluster.address)) is False
        with SamplerPool(1, transport="ray", address=cluster.address, max_retries=0) as pool:
            assert pool.run_map(lambda G, x: 2 * x, [1, 2]) == [2, 4]
            begun = time.monotonic()
            with pytest.raises(ClusterError, match=r"was started without tokens, but RAY_AUTH_MODE=token"):
                with pytest.MonkeyPatch.context() as patch:
                    patch.setenv(MODE, "token")
                    patch.setattr(ray_session, "_current", None)
                    patch.setattr("ray.is_initialized", lambda: False)
                    SamplerPool(1, transport="ray", address=cluster.address).run_map(lambda G, x: x, [1])
            assert time.monotonic() - begun < 5
    finally:
        with isolated_rng(0):
            cluster.shutdown()


def test_auto_means_the_address_that_ray_finds(monkeypatch):
    services = importlib.import_module("ray._private.services")
    monkeypatch.setattr(services, "canonicalize_bootstrap_address", lambda address: "192.0.2.7:6379")
    assert ray_session._resolved_address(ray, "auto") == "192.0.2.7:6379"
    monkeypatch.setattr(services, "canonicalize_bootstrap_address", lambda address: None)
    assert ray_session._resolved_address(ray, "auto") == "auto"  # Ray says that it finds none
    assert ray_session._resolved_address(ray, "head:6379") == "head:6379"


@pytest.mark.slow
def test_a_wrong_token_is_an_error_within_seconds_that_says_what_to_do(guarded):
    program = """
        import sys, time
        from metaroll.errors import ClusterError
        from metaroll.rollouts.workers.pool import SamplerPool
        begun = time.monotonic()
        try:
            SamplerPool(1, transport="ray", address=sys.argv[1]).run_map(lambda G, x: x, [1])
        except ClusterError as error:
            print(time.monotonic() - begun < 10, error)
    """
    with start(program, guarded, RAY_AUTH_TOKEN="6" * 64) as running:
        out, err = running.communicate(timeout=100)
    assert out.startswith("True") and "does not take the token of this machine: set RAY_AUTH_TOKEN" in out, (out, err)
    assert "InvalidAuthToken" not in err


@pytest.mark.slow
@pytest.mark.parametrize("how", ["ends", "hangs"])
def test_a_cluster_that_is_lost_while_it_is_connected_to_is_one_line(how):
    """Ray ends the program without a word, or tries again for ever."""
    program = f"""
        import os, socket, time
        from metaroll.rollouts.workers import ray_session
        ray_session._LOST_S = 0.5
        with socket.create_server(("127.0.0.1", 0)) as server:
            address = f"127.0.0.1:{{server.getsockname()[1]}}"
        with ray_session._connecting_to(address):
            {"os._exit(3)" if how == "ends" else "time.sleep(60)"}
    """
    with start(program) as running:
        out, err = running.communicate(timeout=30)
    assert (out, len(err.splitlines())) == ("", 1)
    assert re.match(r"error: the Ray cluster at \S+ was lost while .*ray start --head", err)
    assert running.returncode == (3 if how == "ends" else 1)


def test_what_ray_does_not_answer_ends_when_the_head_is_lost(monkeypatch):
    session = object.__new__(ray_session.RaySession)
    session._job, session._silent_since, session._next_check, session.lost = ("192.0.2.7:1", ""), None, 0.0, False

    def silent(address):
        raise ClusterError("nothing")

    monkeypatch.setattr(ray_session, "check_answer", silent)
    monkeypatch.setattr(ray_session, "_CHECK_S", 0.4)
    monkeypatch.setattr(ray_session, "_LOST_S", 0.5)
    assert session.call(lambda: 7) == 7
    with pytest.raises(ArithmeticError):
        session.call(lambda: (_ for _ in ()).throw(ArithmeticError("its own")))
    with pytest.raises(ClusterError, match=r"has not answered for 0\.5 s"):
        session.call(lambda: time.sleep(10))
    assert session.lost
