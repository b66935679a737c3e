"""Part of ``sbi_throughput.py``: dynamic time warping of many pairs of series, beside dtw-python and aeon."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import torch
from _reporting import report, report_missing, versions

from metaroll.functional.kernels import compile_all
from metaroll.functional.series.dtw import dtw_distances

PAIRS, STEPS, DIMS = 100, 500, 4
BARS = {"dtw-python": 10.0, "aeon": 2.0}


def _peers(x: np.ndarray, y: np.ndarray) -> dict[str, Callable[[], list[float]] | str]:
    """Peer -> function that computes all distances one pair at a time, or the reason why it is missing.

    aeon's distance is a different one (least sum of squared distances, all moves have the same weight), so only its
    time is compared.
    """
    peers: dict[str, Callable[[], list[float]] | str] = {}
    try:
        dtw = import_module("dtw").dtw
        peers["dtw-python"] = lambda: [float(dtw(a, b, distance_only=True).distance) for a, b in zip(x, y, strict=True)]
    except ImportError as error:
        peers["dtw-python"] = f"not installed: {error}"
    try:
        distance = import_module("aeon.distances").dtw_distance
        columns = [(np.ascontiguousarray(a.T), np.ascontiguousarray(b.T)) for a, b in zip(x, y, strict=True)]
        peers["aeon"] = lambda: [float(distance(a, b)) for a, b in columns]
    except ImportError as error:
        peers["aeon"] = f"not installed: {error}"
    return peers


def measure_warping(name: str, quick: bool, repeats: int, cores: int) -> bool:
    """Report ours on ``cores`` threads beside each peer on one, in alternating windows; returns whether bars hold."""
    before = torch.get_num_threads()
    torch.set_num_threads(cores)
    try:
        return _measure(name, quick, repeats, cores)
    finally:
        torch.set_num_threads(before)


def _measure(name: str, quick: bool, repeats: int, cores: int) -> bool:
    generator = np.random.default_rng(0)
    x, y = generator.normal(size=(2, PAIRS, STEPS, DIMS))
    known: dict[str, Any] = {
        "metric": "pairs_per_second",
        "unit": "pairs of series/s",
        "slots": None,
        "config": {
            "part": "dtw",
            "pairs": PAIRS,
            "steps": STEPS,
            "dims": DIMS,
            "step_pattern": "symmetric2",
            "cores": cores,
            "numba": compile_all(),
        },
        "versions": versions("metaroll", "numpy", "numba", "dtw-python", "aeon"),
    }
    now = time.process_time if cores == 1 else time.perf_counter  # as for the sampler
    held = True
    for peer, run in _peers(x, y).items():
        if isinstance(run, str):
            report_missing(name, quick, peer=peer, reason=run, ratio=None, **known)
            continue
        theirs_once = run()  # compiles aeon's loop
        if peer == "dtw-python":
            np.testing.assert_allclose(dtw_distances(x, y), theirs_once, rtol=1e-9)
        ours, ratios = [], []
        for _ in range(repeats):
            begin = now()
            dtw_distances(x, y)
            middle = now()
            run()
            ours.append(middle - begin)
            ratios.append((now() - middle) / ours[-1])
        ratio = statistics.median(ratios)
        report(
            name,
            quick,
            peer=peer,
            value=round(PAIRS / statistics.median(ours), 1),
            ratio=round(ratio, 2),
            ratio_range=[round(min(ratios), 2), round(max(ratios), 2)],
            bar=BARS[peer],
            **known,
        )
        held &= ratio >= BARS[peer]
    return held
