"""specs/sampling.md 10: what run_collect keeps, against a loop that takes one run after the other."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metaroll.rollouts.workers.pool import SamplerPool


@pytest.fixture(scope="module")
def pools(shared_pools):
    return [SamplerPool(1), shared_pools[2]]


def run(G, number, counts, bad):
    if number == bad:
        raise ArithmeticError(number)
    return f"run {number}", counts[(number - 1) % len(counts)]


@settings(max_examples=40)
@given(
    need=st.integers(1, 12),
    counts=st.lists(st.integers(0, 5), min_size=1, max_size=5).filter(any),
    min_runs=st.none() | st.integers(1, 8),
    bad=st.integers(1, 12),
)
def test_the_result_is_that_of_a_serial_loop(need, counts, min_runs, bad, pools):
    kept, total = [], 0
    while total < need or len(kept) < (min_runs or 1):
        if len(kept) + 1 == bad:
            kept = None
            break
        total += counts[len(kept) % len(counts)]
        kept.append(f"run {len(kept) + 1}")
    for pool in pools:
        if kept is None:
            with pytest.raises(ArithmeticError, match=str(bad)):
                pool.run_collect(need, run, counts, bad, min_runs=min_runs)
        else:
            assert pool.run_collect(need, run, counts, bad, min_runs=min_runs) == (kept, total)
