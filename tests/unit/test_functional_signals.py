"""Speeds against positions, spikes, and values at a stop."""

from __future__ import annotations

import numpy as np
import pytest

from metaroll.errors import ShapeError
from metaroll.lab.logs.series.signals import circle_error, derivative_fit, spikes, stuck_values


def test_a_derivative_by_hand():
    # One step of 0.5 s: integrals (0 + 2) / 4 = 0.5 and (2 + 4) / 4 = 1.5, changes 1 and 3: the factor is 2.
    fit = derivative_fit([np.array([0.0, 1.0, 4.0])], [np.array([0.0, 2.0, 4.0])], 0.5)
    assert fit.factor == pytest.approx(2.0) and fit.agreement == pytest.approx(1.0)
    assert derivative_fit([np.zeros(3)], [np.ones(3)], 0.5) == (0.0, 0.0)
    with pytest.raises(ShapeError, match="equally long"):
        derivative_fit([np.zeros(3)], [np.zeros(2)], 0.5)


def test_factors_of_units_are_found_beneath_noise():
    t = 0.01 * np.arange(3000)
    generator = np.random.default_rng(0)
    angle, speed = np.sin(2.0 * t), 2.0 * np.cos(2.0 * t)
    noisy = [angle + 0.01 * generator.normal(size=3000)], [speed + 0.04 * generator.normal(size=3000)]
    for scale in (1.0, -1.0, 57.2958, 1.0 / 9.549):
        fit = derivative_fit([scale * noisy[0][0]], noisy[1], 0.01)
        assert fit.factor == pytest.approx(scale, rel=0.02) and fit.agreement > 0.95
    halves = derivative_fit([angle[:1500], angle[1500:]], [speed[:1500], speed[1500:]], 0.01)
    assert halves.factor == pytest.approx(1.0, rel=1e-3)
    assert derivative_fit([generator.normal(size=3000)], noisy[1], 0.01).agreement < 0.05


def test_circles_by_hand():
    assert circle_error(np.array([0.6, 1.0]), np.array([0.8, 0.0])) == pytest.approx(0.0)
    assert circle_error(np.array([1.0, 1.0]), np.array([1.0, 1.0])) == 1.0


def test_spikes_come_back_and_jumps_do_not():
    generator = np.random.default_rng(1)
    values = np.sin(0.05 * np.arange(500)) + 0.01 * generator.normal(size=500)
    values[250:] += 1.0  # stays
    assert spikes(values).size == 0
    values[[100, 300]] += [0.7, -0.9]
    assert spikes(values).tolist() == [100, 300]
    assert spikes(np.zeros(10)).size == 0 and spikes(np.array([0.0, 9.0])).size == 0
    assert spikes(generator.normal(size=2000)).size == 0
    speeds = np.cumsum(np.where(np.arange(400) // 100 % 2, -1.0, 1.0) + 0.01 * generator.normal(size=400))
    assert spikes(speeds).size == 0  # three peaks
    speeds[[1, 150, 398]] += [5.0, 9.0, -8.0]
    assert spikes(speeds).tolist() == [1, 150, 398]


def test_values_at_a_stop_are_frequent():
    generator = np.random.default_rng(2)
    values = np.clip(generator.normal(size=1000), -1.5, None)
    [(value, count)] = stuck_values(values)
    assert value == -1.5 and count == np.count_nonzero(values == -1.5)
    coarse = np.round(20 * np.sin(0.013 * np.arange(5000)))  # a sensor with 41 levels
    assert stuck_values(coarse) == [] and stuck_values(generator.normal(size=1000)) == []
    assert stuck_values(generator.integers(0, 2, size=100)) == []
