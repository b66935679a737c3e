"""Many random faults into one pool while it samples: every call ends, with the bits of the serial result.

``METAROLL_SOAK_FAULTS`` sets their number, ``METAROLL_SOAK_SILENCE`` the seconds after which a silent worker is given
up (one that has to wait for a processor is silent, too).
"""

from __future__ import annotations

import collections
import os
import signal
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import psutil
import pytest
import torch
from engine_envs import Drift, Trouble
from live_cases import CASES, collected

from metaroll.data.compare import rollouts_equal
from metaroll.errors import RolloutError
from metaroll.policies.gaussian import GaussianMLPPolicy
from metaroll.rollouts.configs import PoolTimeouts
from metaroll.rollouts.engine.engine import RolloutEngine
from metaroll.rollouts.workers.pool import SamplerPool
from metaroll.types import EnvSpec, EnvUpdate, RolloutPlan

NUM_FAULTS = int(os.environ.get("METAROLL_SOAK_FAULTS", "200"))
SEED = 2026
PLACES = ("engine", "run_map", "collection")
# Inside: the worker does it to itself, in the middle of its work. Outside: a signal at a random moment, or afterwards.
INSIDE = ("kill", "stop", "exit", "hang", "raise")
OUTSIDE = {"signal kill": signal.SIGKILL, "signal stop": signal.SIGSTOP}
SILENCE_S = float(os.environ.get("METAROLL_SOAK_SILENCE", "1"))
TIMEOUTS = PoolTimeouts(step_s=SILENCE_S, reset_s=SILENCE_S, call_s=SILENCE_S)
HANG_S = 60.0 * SILENCE_S
"""A call that takes so long has hung."""


class Troubled(EnvUpdate):
    """Puts an environment in the place of the given one that fails once: while ``marker`` does not exist."""

    def __init__(self, kind: str, at_step: int, marker: Path):
        self.kind, self.at_step, self.marker = kind, at_step, str(marker)

    def __call__(self, old_env=None):
        return Trouble(self.kind, self.at_step, self.marker)


@dataclass(frozen=True)
class LivePlans:
    """Plans of a live collection, of which one fails once."""

    number: int
    troubled: int | None
    update: Troubled

    def __call__(self, n):
        update = self.update if n == self.troubled else None
        return RolloutPlan(n, (SEED, self.number, n), update, max_steps=40)


class Piece(NamedTuple):
    """What ``work`` does: ``kind`` of trouble (once) and random numbers of ``seed``."""

    seed: int
    kind: str | None
    marker: str


def work(G, piece):
    draw = np.random.default_rng(piece.seed)
    if piece.kind is not None:
        trouble = Trouble(piece.kind, 0, piece.marker)
        trouble.reset(seed=0)
        trouble.step(np.zeros(2, np.float32))
    return draw.normal(size=200_000).cumsum()


def pids(G):
    return os.getpid()


def send(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:  # it was replaced meanwhile
        return


class Soak:
    """One pool, one engine on it, and the same engine in this process."""

    def __init__(self, folder, pool, engine, serial):
        self.folder, self.pool, self.engine, self.serial = folder, pool, engine, serial
        self.draw = np.random.default_rng(SEED)
        self.counts: collections.Counter[str] = collections.Counter()

    def fault(self, number):
        place = str(self.draw.choice(PLACES))
        kind = str(self.draw.choice([*INSIDE, *OUTSIDE]))
        self.counts[f"{place}: {kind}"] += 1
        marker = self.folder / f"fault-{number}"
        inside = kind if kind in INSIDE else None
        if place == "run_map":
            call, reference = self.map_call(inside, marker)
        else:
            call, reference = (self.engine_call if place == "engine" else self.live_call)(number, inside, marker)
        marker.touch()
        expected = reference()
        marker.unlink()
        before = time.monotonic()
        if kind in OUTSIDE:
            same = self.under_signal(call, OUTSIDE[kind], expected)
        else:
            same = self.under_trouble(call, kind, expected)
            assert marker.exists(), f"fault {number} ({place}: {kind}) did not happen"
        self.counts["hangs"] += time.monotonic() - before > HANG_S
        self.counts["results that differ"] += not same

    def under_signal(self, call, number, expected):
        victim = int(self.draw.choice(self.pool.invoke_all(pids)))
        timer = threading.Timer(float(self.draw.uniform(0.0, 0.1)), send, (victim, number))
        timer.start()
        result = call()
        timer.join()
        return equal(result, expected)

    def under_trouble(self, call, kind, expected):
        if kind == "raise":
            with pytest.raises((RolloutError, ArithmeticError), match="the motor is on fire"):
                call()
        return equal(call(), expected)

    def engine_call(self, number, kind, marker):
        troubled = int(self.draw.integers(32)) if kind else None
        update = Troubled(kind or "", int(self.draw.integers(-1, 60)), marker)
        plans = [RolloutPlan(i, (SEED, number, i), update if i == troubled else None, max_steps=64) for i in range(32)]
        return (lambda: self.engine.run(plans)), (lambda: self.serial.run(plans))

    def live_call(self, number, kind, marker):
        troubled = int(self.draw.integers(8)) if kind else None  # one of those that begin at once
        plans = LivePlans(number, troubled, Troubled(kind or "", int(self.draw.integers(-1, 30)), marker))

        def collect(engine):
            with engine.open(plans, 8) as collection:
                return [piece for _ in range(3) for piece in collection.advance(15)]

        return (lambda: collect(self.engine)), (lambda: collect(self.serial))

    def map_call(self, kind, marker):
        troubled = int(self.draw.integers(12))
        seeds = self.draw.integers(1 << 31, size=12).tolist()
        pieces = [Piece(seed, kind if i == troubled else None, str(marker)) for i, seed in enumerate(seeds)]
        return (lambda: self.pool.run_map(work, pieces)), (lambda: [work(None, piece) for piece in pieces])


class Killer:
    """Kills a worker before a call, or in the middle of it, as often as told."""

    def __init__(self, pool, calls):
        self.pool, self.calls, self.kills = pool, calls, 0
        self.draw = np.random.default_rng(SEED)
        self.timer = None

    def __call__(self, call):
        if self.timer is not None:
            self.timer.join()
        if call not in self.calls:
            return
        self.kills += 1
        victim = int(self.draw.choice([status.pid for status in self.pool.describe_workers() if status.pid]))
        if call % 2:
            send(victim, signal.SIGKILL)
        else:
            self.timer = threading.Timer(float(self.draw.uniform(0.0, 0.02)), send, (victim, signal.SIGKILL))
            self.timer.start()


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("case", CASES)
def test_kills_and_snapshots_of_live_collections_change_nothing(case, capsys):
    begun = time.monotonic()
    expected = collected(case, 24)
    kills, snapshots = set(range(1, 21)), tuple(range(3, 23, 2))  # 10 kills between calls, 10 during them
    with SamplerPool(2, transport="process", max_retries=5) as pool:
        between = Killer(pool, kills)
        found = collected(case, 24, pool, between, snapshots)
    differing = sum(a != b for a, b in zip(found, expected, strict=True))
    with capsys.disabled():
        seconds = time.monotonic() - begun
        print(f"\n{case}: {between.kills} kills, {len(snapshots)} snapshots, {differing} calls differ, {seconds:.0f} s")
    assert not differing


def equal(left, right):
    if len(left) != len(right):
        return False
    return all(
        a.tobytes() == b.tobytes() if isinstance(b, np.ndarray) else rollouts_equal(a, b)
        for a, b in zip(left, right, strict=True)
    )


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_random_faults_change_nothing(tmp_path, capsys):
    spec = EnvSpec.from_env(Drift())
    policy = GaussianMLPPolicy(spec, hidden_sizes=(8,), generator=torch.Generator().manual_seed(0))
    others = set(psutil.Process().children(recursive=True))
    begun = time.monotonic()
    with (
        SamplerPool(2, transport="process", timeouts=TIMEOUTS, max_retries=5) as pool,
        RolloutEngine(Drift, policy, pool=pool) as engine,
        RolloutEngine(Drift, policy) as serial,
    ):
        soak = Soak(tmp_path, pool, engine, serial)
        for number in range(NUM_FAULTS):
            soak.fault(number)
    left = set(psutil.Process().children(recursive=True)) - others
    counts = soak.counts
    with capsys.disabled():
        faults = ", ".join(f"{name} {count}" for name, count in sorted(counts.items()) if ":" in name)
        print(f"\n{NUM_FAULTS} faults in {time.monotonic() - begun:.0f} s ({faults})")
        print(
            f"hangs {counts['hangs']}, results that differ {counts['results that differ']}, processes left {len(left)}"
        )
    assert (counts["hangs"], counts["results that differ"], left) == (0, 0, set())
