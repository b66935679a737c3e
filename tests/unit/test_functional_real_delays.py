"""Rows that are really late, and stamps that only say so."""

from __future__ import annotations

import numpy as np
import pytest

from metaroll.errors import ShapeError
from metaroll.lab.logs.series.real_delays import real_share


def moved(offsets, generator, noise=0.0):
    """A point whose speed is its command, and one that decays: exact at the rows, which are ``offsets`` off a grid."""
    rows = len(offsets)
    u = generator.normal(size=(rows - 1, 1))
    seconds = 0.02 * (1.0 + np.diff(offsets))
    x = np.zeros((rows, 2))
    x[0, 1] = 1.0
    for k in range(rows - 1):
        x[k + 1, 0] = x[k, 0] + seconds[k] * u[k, 0]
        decay = np.exp(-seconds[k])
        x[k + 1, 1] = decay * x[k, 1] + (1.0 - decay) * u[k, 0]
    return x + noise * generator.normal(size=x.shape), u


@pytest.mark.parametrize("noise", [0.0, 1e-4])
def test_late_rows_are_told_from_noise(noise):
    generator = np.random.default_rng(0)
    offsets = generator.uniform(0.0, 0.05, size=600)
    x, u = moved(offsets, generator, noise)
    assert real_share([x], u, offsets) == 1.0
    still, v = moved(np.zeros(600), generator, noise)
    assert real_share([still], v, offsets) == 0.0
    # Half of the variance is noise: of the offsets that stamps show, half is real on average.
    seen = offsets + (offsets.std() * generator.normal(size=600))
    assert real_share([x], u, seen) == pytest.approx(0.5, abs=0.1)


def test_noise_of_sensors_and_short_logs_leave_it_open():
    generator = np.random.default_rng(1)
    offsets = generator.uniform(0.0, 0.05, size=600)
    x, u = moved(offsets, generator, noise=1.0)
    assert real_share([x], u, offsets) == 0.0
    x, u = moved(offsets, generator)
    assert real_share([x[:9]], u[:8], offsets[:9]) == 0.0
    assert real_share([np.ones_like(x)], u, offsets) == 0.0
    x[::7] = np.nan
    offsets[50] = np.nan
    assert real_share([x], u, offsets) == 1.0
    with pytest.raises(ShapeError, match=r"N, N and N-1 rows, got \[600\], 600 and 600"):
        real_share([x], np.zeros((600, 1)), offsets)


def test_what_tells_nothing_of_time_neither_makes_rows_late_nor_hides_that_they_are():
    generator = np.random.default_rng(3)
    offsets, noise = generator.uniform(0.0, 0.05, size=400), generator.uniform(0.0, 0.05, size=400)
    late, u = moved(offsets, generator)
    even, v = moved(np.zeros(400), generator, 1e-4)
    last = np.append(0.0, u[:, 0])[:, None]  # the command of the row before
    stamps = (np.arange(400) + noise)[:, None]
    assert real_share([np.concatenate([late, last, late[:, :1], 0.0 * last], axis=1)], u, offsets) == 1.0
    assert real_share([np.concatenate([even, stamps], axis=1)], v, noise) == 0.0
    assert real_share([late.astype(np.float32)], np.zeros((399, 0)), noise) == 0.0
    # Ten times as many rows at rest, where a step now and then is well told by a model that is poor else.
    for seed in range(5):
        generator = np.random.default_rng(seed)
        x, w = np.zeros((3000, 1)), np.zeros((2999, 1))
        w[1000:1030] = generator.normal(size=(30, 1))
        x[1001:1031] = np.cumsum(w[1000:1030] + 0.4 * generator.normal(size=(30, 1)), axis=0)
        x[1031:] = x[1030]
        assert real_share([x], w, 0.1 * generator.normal(size=3000)) == 0.0


def test_motion_that_is_not_linear_is_told_as_well():
    """A pendulum's turns at its top are not linear in sine, cosine and speed; a position is in the speeds around it."""
    generator = np.random.default_rng(2)
    rows = 120
    offsets = generator.uniform(0.0, 0.05, size=rows)
    u = generator.normal(size=(rows - 1, 1))

    def recorded(late):
        states = [np.array([2.0, 3.0])]
        for k in range(rows - 1):
            pieces, state = 50, states[-1].copy()
            dt = 0.05 * (1.0 + late * (offsets[k + 1] - offsets[k])) / pieces
            for _ in range(pieces):
                state[1] += dt * (15.0 * np.sin(state[0]) + 3.0 * u[k, 0])
                state[0] += dt * state[1]
            states.append(state)
        return np.array(states)

    for late, share in ((1.0, 1.0), (0.0, 0.0)):
        states = recorded(late)
        shown = np.stack([np.cos(states[:, 0]), np.sin(states[:, 0]), states[:, 1]], axis=1)
        assert real_share([shown], u, offsets) == pytest.approx(share, abs=0.1)
        assert real_share([states[:60]], u[:59], offsets[:60]) == pytest.approx(share, abs=0.1)
        # What tells least does not hide what tells more.
        noisy = states + generator.normal(size=states.shape)
        assert real_share([noisy, states], u, offsets) == pytest.approx(share, abs=0.1)
