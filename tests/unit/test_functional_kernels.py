"""NumPy's ways and numba's loops give the same bits, and numba is loaded by those alone who use it a lot."""

from __future__ import annotations

import sys
from itertools import pairwise

import gymnasium
import numpy as np
import pytest
import torch

from metaroll.envs.classic_control.simulators import classic_simulator
from metaroll.functional import kernels, returns
from metaroll.functional.advantages import gae
from metaroll.functional.philox import integers32, normals, stream_keys
from metaroll.functional.regression import state_features
from metaroll.functional.returns import discounted_reverse_cumsum, discounted_reverse_cumsum_ragged, reverse_scan
from metaroll.functional.series import dtw
from metaroll.functional.series.dtw import dtw_distances
from metaroll.functional.series.step_patterns import Move, StepPattern, rabiner_juang

SKIPS = StepPattern(
    "skips",
    (
        Move(0, 1, ((0, 0, 1.0),)),
        Move(0, 2, ((0, 1, 0.5), (0, 0, 0.5))),
        Move(1, 1, ()),
        Move(2, 0, ((1, 0, 1.5), (0, 0, 1.0))),
        Move(1, 0, ((0, 0, 2.0),)),
    ),
    "N",
)
"""Several moves along a row, and one that costs nothing."""
SPECIAL = np.array([-0.0, 0.0, np.inf, -np.inf, np.nan, 1e308, -1e308])


@pytest.fixture(autouse=True)
def nothing_compiled(monkeypatch):
    monkeypatch.setattr(kernels, "_LOOPS", {})
    monkeypatch.setattr(kernels, "_asked", {})


@pytest.fixture(scope="module")
def numba_loops():
    """Compiled once for this module: a few seconds."""
    before = dict(kernels._LOOPS)
    kernels._LOOPS.clear()
    try:
        assert kernels.compile_all()
        return dict(kernels._LOOPS)
    finally:
        kernels._LOOPS.clear()
        kernels._LOOPS.update(before)


@pytest.fixture(params=[True, False], ids=["special", "plain"])
def rollouts(request) -> dict:
    """Rollouts of 1 to 60 steps, and one of 4,000: a few lanes are left over."""
    rng = np.random.default_rng(0)
    lengths = np.append(rng.integers(1, 61, 200), 4000)
    bounds = np.concatenate([[0], np.cumsum(lengths)])
    rewards, values = rng.normal(size=(2, bounds[-1]))
    if request.param:
        rewards[rng.random(len(rewards)) < 0.02] = rng.choice(SPECIAL)
        for data in (rewards, values):
            where = rng.random(len(data)) < 0.01
            data[where] = rng.choice(SPECIAL, where.sum())
    terminated = rng.random(len(rewards)) < 0.01
    return {
        "rewards": rewards,
        "values": values,
        "terminated": terminated,
        "bounds": bounds,
        "final_values": rng.normal(size=len(lengths)),
    }


def bits(x: np.ndarray) -> np.ndarray:
    """The bits of numbers; all NaN count as one (a sum of two has the sign of either)."""
    x = np.ascontiguousarray(x)
    return np.where(np.isnan(x), np.nan, x).view(f"u{x.dtype.itemsize}")


def test_lanes_equal_single_rollouts(rollouts) -> None:
    data, bounds = rollouts["rewards"], rollouts["bounds"]
    expected = [discounted_reverse_cumsum(data[a:b], 0.9) for a, b in pairwise(bounds)]
    ragged = discounted_reverse_cumsum_ragged(data, bounds, 0.9)
    np.testing.assert_array_equal(bits(ragged), bits(np.concatenate(expected)))
    ends = np.zeros(len(data), dtype=bool)
    ends[bounds[1:] - 1] = True
    np.testing.assert_array_equal(bits(reverse_scan(data, 0.9, ends)), bits(ragged))
    np.testing.assert_array_equal(bits(reverse_scan(data[:, None], 0.9, ends)[:, 0]), bits(ragged))


@pytest.mark.parametrize("chunk", [1, 100, 10**6])
@pytest.mark.parametrize("fewest", [1, 7, 10**6])
def test_no_bit_depends_on_how_lanes_are_cut(rollouts, chunk: int, fewest: int, monkeypatch) -> None:
    data, bounds = rollouts["rewards"], rollouts["bounds"]
    ragged = discounted_reverse_cumsum_ragged(data, bounds, 0.9)
    monkeypatch.setattr(returns, "_CHUNK", chunk)
    monkeypatch.setattr(returns, "_FEWEST_LANES", fewest)
    np.testing.assert_array_equal(bits(discounted_reverse_cumsum_ragged(data, bounds, 0.9)), bits(ragged))


def test_numba_gives_the_bits_of_numpy(rollouts, numba_loops, monkeypatch) -> None:
    data, bounds = rollouts["rewards"], rollouts["bounds"]
    for array in rollouts.values():
        array.flags.writeable = False  # as in results from workers
    cut = {**rollouts, "terminated": None}  # no rollout ends inside

    def results() -> list[np.ndarray]:
        return [
            discounted_reverse_cumsum_ragged(data, bounds, 0.9),
            discounted_reverse_cumsum_ragged(data[::-1], [0, len(data)], 0.9),
            gae(**rollouts),
            gae(**cut, discount=0.9, gae_lambda=1.0),
            gae(**cut, discount=0.0),
        ]

    ours = results()
    monkeypatch.setattr(kernels, "_LOOPS", numba_loops)
    for one, other in zip(ours, results(), strict=True):
        np.testing.assert_array_equal(bits(one), bits(other))


def test_numba_gives_the_random_numbers_of_numpy(numba_loops, monkeypatch) -> None:
    keys = stream_keys([(3, i, 2**40 * (i % 2)) for i in range(500)])
    ages = np.random.default_rng(0).integers(0, 2**40, 500)

    def results() -> list[np.ndarray]:
        return [integers32(keys, 3, 33, ages), normals(keys, 3, ages, 33), integers32(keys[:1], 3, 9999)]

    ours = results()
    monkeypatch.setattr(kernels, "_LOOPS", numba_loops)
    for one, other in zip(ours, results(), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    "pattern",
    ["symmetric2", "asymmetric", "symmetricP05", rabiner_juang(1, "a"), SKIPS],
    ids=["symmetric2", "asymmetric", "symmetricP05", "type 1a", "skips"],
)
@pytest.mark.parametrize("dims", [1, 2, 5, 9])
def test_numba_warps_like_numpy(pattern, dims: int, numba_loops, monkeypatch) -> None:
    rng = np.random.default_rng(dims)
    x, y = rng.normal(size=(7, 30, dims)), rng.normal(size=(7, 25, dims))
    x[3, 4] = np.nan
    ours, longer = dtw_distances(x, y, pattern), dtw_distances(y, x, pattern)
    monkeypatch.setattr(kernels, "_LOOPS", numba_loops)
    np.testing.assert_array_equal(dtw_distances(x, y, pattern), ours)
    np.testing.assert_array_equal(dtw_distances(y, x, pattern), longer)
    # In threads, of which torch allows some here.
    monkeypatch.setattr(dtw, "_CELLS_PER_THREAD", 1)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    np.testing.assert_array_equal(dtw_distances(x, y, pattern), ours)
    assert np.isnan(ours[3]) and np.isfinite(np.delete(ours, 3)).all()


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64])
def test_numba_gives_the_features_of_numpy(numba_loops, monkeypatch, dtype) -> None:
    rng = np.random.default_rng(0)
    observations = (rng.normal(size=(50, 3)) * 8).astype(dtype)
    if dtype is not np.int64:
        observations[:6, 1] = [-0.0, 0.0, np.inf, -np.inf, np.nan, 1e38]
    observations.flags.writeable = False

    def results() -> list[np.ndarray]:
        table = np.zeros((60, 12))
        state_features(observations, np.arange(50) % 11, table[5:55, 1:11])  # what lies around stays
        some = state_features(observations, np.arange(20), rows=np.arange(3, 43, 2))
        return [table, some, state_features(observations, np.arange(50) / 4), state_features(observations[:0], [])]

    with np.errstate(over="ignore"):
        ours = results()
        monkeypatch.setattr(kernels, "_LOOPS", numba_loops)
        for one, other in zip(ours, results(), strict=True):
            np.testing.assert_array_equal(bits(one), bits(other))


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
def test_numba_steps_classic_control_like_numpy(env: str, numba_loops, monkeypatch) -> None:
    simulator = classic_simulator(gymnasium.make(env))
    assert simulator is not None
    rng = np.random.default_rng(0)
    constants = simulator.constants([simulator.task_of(None)] * 400, np)
    start = simulator.initial_state(tuple(rng.random((simulator.num_uniforms, 400))), constants, np)
    states = tuple(
        column + rng.normal(size=400) * 3 if column.dtype != bool else rng.random(400) < 0.5 for column in start
    )
    actions = rng.integers(0, 2, 400) if env == "CartPole-v1" else rng.normal(size=(400, 1)).astype(np.float32) * 2
    actions.flags.writeable = False

    def results() -> list[np.ndarray]:
        found = simulator.step(states, actions, constants, (), np)
        return [*found.state, found.rewards, np.zeros(0) if found.terminated is None else found.terminated]

    ours = results()
    monkeypatch.setattr(kernels, "_LOOPS", numba_loops)
    for one, other in zip(ours, results(), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)
    if env == "CartPole-v1":
        assert set(ours[5]) == {0.0, 1.0} and 50 < ours[6].sum() < 400


def test_numba_waits_until_it_pays(monkeypatch) -> None:
    compiled = []
    monkeypatch.setattr(kernels, "_compile", lambda name: compiled.append(name) or kernels._LOOPS.update({name: len}))
    monkeypatch.setattr(kernels, "_HOT", 10_000)
    for _ in range(3):
        assert kernels.compiled("philox", 2000) is None
        assert kernels.compiled("reverse_scan", 10) is None
    assert not compiled
    assert kernels.compiled("philox", 2000) is len and compiled == ["philox"]
    assert kernels.compiled("philox", 10) is len
    assert kernels.compiled("reverse_scan", 10) is None


def test_without_numba_everything_works(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "numba", None)  # importing it is an ImportError
    assert not kernels.compile_all()
    assert discounted_reverse_cumsum_ragged(np.ones(5000), [0, 2500, 5000], 1.0)[0] == 2500.0
