"""What environments do to their workers, in runs of plans and in live collections: always the bits of a serial run.

``METAROLL_USUAL_FAULTS`` and ``METAROLL_EVIL_FAULTS`` set how many there are in the long part.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import time

import numpy as np
import psutil
import pytest
import torch
from engine_envs import Drift
from evil_envs import EVIL, RAISES, USUAL, EvilPlans, MakeEvil

from metaroll.data.compare import rollouts_equal
from metaroll.errors import RolloutError, WorkerLost
from metaroll.policies.gaussian import GaussianMLPPolicy
from metaroll.rollouts.configs import PoolTimeouts
from metaroll.rollouts.engine.engine import RolloutEngine
from metaroll.rollouts.workers.pool import RemoteError, SamplerPool
from metaroll.types import EnvSpec

SILENCE_S = float(os.environ.get("METAROLL_SOAK_SILENCE", "1"))
TIMEOUTS = PoolTimeouts(step_s=SILENCE_S, reset_s=SILENCE_S, call_s=SILENCE_S)
HANG_S = 60.0
PLACES = ("plans", "live")
WORKER = "worker_main:main"


def policy():
    return GaussianMLPPolicy(EnvSpec.from_env(Drift()), (8,), generator=torch.Generator().manual_seed(0))


def run(engine, place, plans):
    if place == "plans":
        return list(engine.run([plans(n) for n in range(12)]))
    with engine.open(plans, 8) as collection:
        return [piece for _ in range(3) for piece in collection.advance(15)]


def same(found, expected):
    return len(found) == len(expected) and all(map(rollouts_equal, found, expected))


def left():
    """Processes of our workers, and of what environments start in them."""
    found, sleeper = set(), f"sleep 600.{os.getpid()}"
    for process in psutil.process_iter(["pid", "cmdline", "status"]):
        text = " ".join(process.info["cmdline"] or ())
        ours = sleeper in text or (WORKER in text and f" {os.getpid()} at-once" in text)
        if ours and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.add(process.info["pid"])
    return found


def faults(kind, count, folder, seed=0, kinds=()):
    """What ``count`` faults of a kind (or of ``kinds`` in turn) have done in one pool: a row of numbers."""
    draw, before = np.random.default_rng(seed), left()
    begun = time.monotonic()
    row = {"kind": kind, "count": count, "plans": 0, "live": 0, "wrong bits": 0, "hangs": 0, "errors": 0}
    with (
        SamplerPool(2, transport="process", timeouts=TIMEOUTS, max_retries=5) as pool,
        RolloutEngine(Drift, policy(), pool=pool) as engine,
        RolloutEngine(Drift, policy()) as serial,
    ):
        for number in range(count):
            place, deed = PLACES[number % 2], kinds[number % len(kinds)] if kinds else kind
            marker = folder / f"{deed}-{number}"
            plans = EvilPlans(number, int(draw.integers(8)), MakeEvil(deed, int(draw.integers(30)), marker))
            started = time.monotonic()
            try:
                found = run(engine, place, plans)
            except RolloutError:
                assert deed in RAISES
                found = run(engine, place, plans)
            except (WorkerLost, RemoteError):
                found = []
                row["errors"] += 1
            row["hangs"] += time.monotonic() - started > HANG_S
            assert marker.exists(), f"{deed} did not happen"
            row["wrong bits"] += not same(found, run(serial, place, plans))
            row[place] += 1
    deadline = time.monotonic() + 5.0
    while left() - before and time.monotonic() < deadline:
        time.sleep(0.05)
    return {**row, "left": len(left() - before), "seconds": round(time.monotonic() - begun, 1)}


def good(row):
    return not row["wrong bits"] + row["hangs"] + row["errors"] + row["left"]


def test_environments_that_spoil_their_process_change_nothing(tmp_path):
    kinds = (
        "both go on after a fork",
        "garbage on the socket",
        "an answer twice",
        "children of setsid, then death",
    )
    row = faults("some", len(kinds), tmp_path, kinds=kinds)
    assert good(row), row


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_all_faults_change_nothing(tmp_path, capsys):
    usual = int(os.environ.get("METAROLL_USUAL_FAULTS", "400"))
    evil = int(os.environ.get("METAROLL_EVIL_FAULTS", "60"))
    rows = []
    for kinds, total in ((USUAL, usual), (EVIL, evil)):
        for i, kind in enumerate(kinds):
            rows.append(faults(kind, (total + i) // len(kinds), tmp_path, seed=i))
            with capsys.disabled():
                print(json.dumps(rows[-1]), flush=True)
    assert all(map(good, rows))


@pytest.mark.slow
def test_a_pipe_of_the_parent_that_nobody_reads_stops_nothing(tmp_path):
    program = """
        import sys
        from pathlib import Path
        from evil_envs import EvilPlans, MakeEvil
        from test_rollouts_evil import Drift, RolloutEngine, SamplerPool, TIMEOUTS, policy, run, same

        def main():
            folder = Path(sys.argv[1])
            plans = EvilPlans(0, 2, MakeEvil("fill", 5, folder / "marker"))
            with SamplerPool(2, transport="process", timeouts=TIMEOUTS) as pool:
                with RolloutEngine(Drift, policy(), pool=pool) as engine:
                    found = run(engine, "plans", plans)
            with RolloutEngine(Drift, policy()) as serial:
                (folder / "same").write_text(str(same(found, run(serial, "plans", plans))))
        main()
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-c", textwrap.dedent(program), str(tmp_path)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as process:
        try:
            assert process.wait(60) == 0
        finally:
            process.kill()
    assert (tmp_path / "marker").exists() and (tmp_path / "same").read_text() == "True"


def test_an_environment_that_always_spoils_its_process_is_named(tmp_path, shared_pools):
    marker = tmp_path / "no folder" / "marker"  # cannot be made

    class Closing(Drift):
        def step(self, action):
            os.closerange(3, 4096)
            return super().step(action)

    with (
        shared_pools.strict(1, timeouts=TIMEOUTS, max_retries=1) as pool,
        RolloutEngine(Closing, policy(), pool=pool) as engine,
        pytest.raises(
            WorkerLost, match=r"rollout.*tried 2 times.*its connection ended. .*descriptors(?s:.)*metaroll\.rollout"
        ) as caught,
    ):
        engine.run([EvilPlans(0, None, MakeEvil("", 0, marker))(n) for n in range(2)])
    assert caught.value.plans


def test_what_cannot_be_unpickled_is_tried_again_and_then_named():
    class Broken:
        def __reduce__(self):
            return int, ("no number",)

    with SamplerPool(2, transport="process", max_retries=1) as pool:
        with pytest.raises(WorkerLost, match=r"tried 2 times.*does not fit: ValueError"):
            pool.run_map(lambda G, x: Broken() if x == 1 else x, [0, 1, 2, 3])
        assert pool.run_map(lambda G, x: x + 1, [1, 2, 3]) == [2, 3, 4]


def test_errors_of_many_megabytes_travel_as_their_beginning_and_end(tmp_path, shared_pools):
    class Talkative(Drift):
        def step(self, action):
            raise ValueError("begin" + "x" * 20_000_000 + "end")

    def talk(G, x):
        error = ValueError("begin" + "x" * 20_000_000 + "end", b"x" * x)
        error.add_note("y" * 20_000_000)
        raise error

    pool = shared_pools[1]
    for size, kind in ((0, ValueError), (20_000_000, RemoteError)):
        with pytest.raises(kind) as caught:
            pool.run_map(talk, [size])
        said = [str(caught.value), *getattr(caught.value, "__notes__", [])]
        assert sum(map(len, said)) < 100_000
        assert "begin" in said[0] and "characters are left out here" in said[0]
    with RolloutEngine(Talkative, policy(), pool=pool) as engine:
        with pytest.raises(RolloutError) as failed:
            engine.run([EvilPlans(0, None, MakeEvil("", 0, tmp_path))(0)])
    assert sum(map(len, [str(failed.value), *failed.value.__notes__])) < 100_000
    assert "ValueError: begin" in str(failed.value)
