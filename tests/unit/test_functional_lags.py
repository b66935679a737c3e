"""Lags of commands: by hand, of linear systems in exact time, of a pendulum, and where nothing tells them."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.linalg

from metaroll import rollout
from metaroll.errors import ShapeError
from metaroll.lab.logs.lags import lag_text, log_lag
from metaroll.lab.logs.series.lags import Lag, estimate_lag, held_later
from metaroll.sims import PendulumEnv


def test_held_commands_by_hand():
    u = np.array([[1.0], [2.0], [4.0]])
    assert held_later(u, 0.0)[:, 0].tolist() == [1.0, 2.0, 4.0]
    np.testing.assert_array_equal(held_later(u, 1.0)[:, 0], [np.nan, 1.0, 2.0])
    np.testing.assert_allclose(held_later(u, 0.25)[:, 0], [np.nan, 1.75, 3.5])  # 3/4 of this one, 1/4 of the last
    np.testing.assert_allclose(held_later(u, 1.5)[:, 0], [np.nan, np.nan, 1.5])


def linear(lag, u, noise, generator):
    """An oscillator with two inputs, integrated exactly in pieces of a tenth of a step."""
    a, b = np.array([[0.0, 1.0], [-4.0, -0.3]]), np.array([[0.0, 0.0], [3.0, -2.0]])
    matrix = scipy.linalg.expm(0.005 * np.block([[a, b], [np.zeros((2, 4))]]))
    x, state = [np.zeros(2)], np.zeros(2)
    for k in range(len(u)):
        for piece in range(10):
            command = u[max(math.floor(k + piece / 10 - lag + 1e-9), 0)]
            state = matrix[:2, :2] @ state + matrix[:2, 2:] @ command
        x.append(state)
    x = np.array(x)
    return x + noise * x.std(axis=0) * generator.normal(size=x.shape)


@pytest.mark.parametrize("lag", [0.0, 0.5, 2.0])
@pytest.mark.parametrize("noise", [0.0, 0.01])
def test_lags_of_linear_systems(lag, noise):
    generator = np.random.default_rng(int(10 * lag))
    u = [generator.uniform(-1.0, 1.0, size=(300, 2)) for _ in range(2)]
    x = [linear(lag, one, noise, generator) for one in u]
    found = estimate_lag(x, u, np.random.default_rng(0))
    assert found.low <= lag <= found.high and abs(found.steps - lag) < 0.15 and found.is_known
    assert estimate_lag(x, u, np.random.default_rng(0)) == found


@pytest.mark.parametrize("lag", [0, 2])
@pytest.mark.parametrize("smooth", [False, True])
def test_lags_of_a_pendulum_that_swings(lag, smooth):
    generator = np.random.default_rng(1)
    u = generator.uniform(-3.0, 3.0, size=(500, 1))
    if smooth:
        u = 3.0 * np.convolve(u[:, 0], np.full(8, 0.125), mode="same")[:, None]
    given = iter(np.concatenate([np.zeros((lag, 1)), u]))
    made = rollout(PendulumEnv(max_steps=500), lambda _: next(given), seed=0)
    x = np.array(made.observations)
    found = estimate_lag([x], [u[: len(x) - 1]], np.random.default_rng(0))
    assert found.low <= lag <= found.high and abs(found.steps - lag) <= 0.3


@pytest.mark.parametrize("smooth", [False, True])
def test_no_lag_is_claimed_of_gymnasiums_pendulum(smooth):
    import gymnasium

    for seed in range(3):
        generator = np.random.default_rng(seed)
        env = gymnasium.make("Pendulum-v1").unwrapped
        x, u = [np.array(env.reset(seed=seed)[0])], generator.uniform(-2.0, 2.0, size=(400, 1))
        if smooth:
            u = np.clip(3.0 * np.convolve(u[:, 0], np.full(8, 0.125), mode="same"), -2.0, 2.0)[:, None]
        x += [np.array(env.step(command)[0]) for command in u]
        assert estimate_lag([np.array(x, dtype=np.float64)], [u], np.random.default_rng(0)).low == 0.0


def test_what_a_log_cannot_tell_is_left_open():
    generator = np.random.default_rng(2)
    u = generator.normal(size=(400, 1))
    nothing = estimate_lag([generator.normal(size=(401, 2))], [u], np.random.default_rng(0))
    assert not nothing.is_known and nothing.high > 3.0  # the commands do nothing
    short = estimate_lag([np.zeros((51, 2))], [u[:50]], np.random.default_rng(0))
    assert math.isnan(short.steps) and (short.low, short.high) == (0.0, 5.0)
    assert not estimate_lag([np.zeros((401, 2))], [u], np.random.default_rng(0)).is_known
    with pytest.raises(ShapeError, match=r"do not fit: \(400, 2\) and \(400, 1\)"):
        estimate_lag([np.zeros((400, 2))], [u], np.random.default_rng(0))


def test_lags_of_rollouts_and_in_words():
    generator = np.random.default_rng(3)
    made = rollout(PendulumEnv(max_steps=400), lambda _: generator.uniform(-3.0, 3.0, size=1), seed=0)
    found = log_lag([made])
    assert found.steps == 0.0 and found.high < 0.3
    for short in ([], [rollout(PendulumEnv(max_steps=207), lambda _: np.zeros(1), seed=0)]):
        with pytest.raises(ValueError, match=r"rollouts must have at least 200 steps .*, got (0|199)$"):
            log_lag(short)
    assert lag_text(Lag(0.0, 0.0, 0.05), 0.02) == "lag of commands: 0 steps (0 ms), 0 to 0.05 with 95 %"
    assert "2 steps (40 ms), 1.9 to 2.1 with 95 %; a simulator needs it too" in lag_text(Lag(2.0, 1.9, 2.1), 0.02)
    assert lag_text(Lag(0.5, 0.0, 4.0), None) == "lag of commands: not identifiable from this log (0 to 4 steps)"


def swinging(command, noise, seed, rows_late=0):
    """Two runs of Gymnasium's pendulum; commands may read what was observed, and stand in a later row."""
    import gymnasium

    x, u = [], []
    for run in range(2):
        generator = np.random.default_rng([seed, run])
        env = gymnasium.make("Pendulum-v1").unwrapped
        state, seen, given = np.array(env.reset(seed=seed + run)[0]), [], []
        for _ in range(400):
            seen.append(state + noise * np.array([1.0, 1.0, 4.0]) * generator.normal(size=3))
            given.append([float(np.clip(command(seen[-1], generator), -2.0, 2.0))])
            state = np.array(env.step(np.array(given[-1]))[0], dtype=np.float64)
        x.append(np.array([*seen, state]))
        u.append(np.array(given[:1] * rows_late + given)[:400])
    return x, u


def test_commands_that_act_before_their_row_by_hand():
    u = np.array([[1.0], [2.0], [4.0]])
    np.testing.assert_array_equal(held_later(u, -1.0)[:, 0], [2.0, 4.0, np.nan])
    np.testing.assert_allclose(held_later(u, -0.25)[:, 0], [1.25, 2.5, np.nan])  # 3/4 of this one, 1/4 of the next


@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("noise", [0.0, 0.03])
def test_commands_that_are_logged_rows_late(rows, noise):
    found = estimate_lag(*swinging(lambda _, g: g.uniform(-2.0, 2.0), noise, 3, rows), np.random.default_rng(0))
    assert found.low <= -rows <= found.high < 0.0 and found.is_known
    row = "in the row after the row from" if rows == 1 else "2 rows after the row from"
    assert row in lag_text(found, 0.05)
    assert lag_text(found, 0.05).endswith("move their columns up by " + ("a row" if rows == 1 else "2 rows"))


@pytest.mark.parametrize("noise", [0.0, 0.01, 0.03, 0.1])
def test_a_controller_that_reads_its_row_is_not_taken_for_commands_that_are_late(noise):
    """Its commands know of the row's noise, by which they tell of observations before they act."""
    for push in (0.1, 0.5):
        made = swinging(lambda x, g, push=push: -0.3 * x[2] - 0.5 * x[1] + push * g.normal(), noise, 3)
        found = estimate_lag(*made, np.random.default_rng(0))
        assert found.high >= 0.0 and (found.low >= 0.0 or not found.is_known)
    # That alone tells no lag at all: older commands speak of older observations.
    found = estimate_lag(*swinging(lambda x, _: -0.3 * x[2] - 0.5 * x[1], noise, 3), np.random.default_rng(0))
    assert math.isnan(found.steps) and not found.is_known


def test_a_row_that_may_be_late_is_not_called_punctual():
    """Commands that are held, and noise: they could be those of a controller that reads its row."""
    kept = [0.0, 0]

    def held(_, generator):
        if kept[1] % 15 == 0:
            kept[0] = generator.uniform(-2.0, 2.0)
        kept[1] += 1
        return kept[0]

    found = estimate_lag(*swinging(held, 0.03, 3, 1), np.random.default_rng(0))
    assert found.low <= -1.0 <= found.high and not found.is_known
