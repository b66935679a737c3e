"""Sensor noise of series: numbers worked by hand, other implementations, and noise that was put in."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.signal
import scipy.stats

from metaroll.errors import ShapeError
from metaroll.functional.series.noise import (
    deviation,
    difference_noise,
    fitted_prediction_residuals,
    informative_spans,
    interpolation_residuals,
    noise_differs,
    smoothed_rows,
)


def pendulum(seed: int, steps: int = 200, dt: float = 0.05) -> tuple[np.ndarray, np.ndarray]:
    """What a pendulum shows under another torque with every step of 50 ms, and the torques."""
    generator = np.random.default_rng(seed)
    angle, speed, torques = generator.uniform(-3, 3), generator.uniform(-1, 1), generator.uniform(-2, 2, (steps, 1))
    shown = []
    for torque in torques[:, 0]:
        shown.append((math.cos(angle), math.sin(angle), speed))
        speed = speed + dt * (15.0 * math.sin(angle) + 3.0 * torque)
        angle = angle + dt * speed
    return np.array(shown), torques


def test_a_deviation_is_that_of_a_normal_distribution_and_outliers_do_not_matter():
    np.testing.assert_allclose(
        deviation(np.array([[-1.0], [2.0], [-3.0]])), [math.sqrt(14.0 / 3.0 / 0.9205369)], rtol=1e-6
    )
    edge = 2.0 * 1.4826022185056018  # of what counts of the 100
    by_hand = math.sqrt((4.0 + edge**2) / 5.0 / 0.9205369)
    np.testing.assert_allclose(deviation(np.array([[-1.0], [1.0], [-1.0], [1.0], [100.0]])), [by_hand], rtol=1e-6)
    draws = np.random.default_rng(0).normal(0.0, 0.3, (4000, 2))
    edges = 2.0 * scipy.stats.median_abs_deviation(draws, center=lambda *a, **k: 0.0, scale="normal")
    normal = scipy.stats.norm.expect(lambda z: min(z * z, 4.0))
    reference = np.sqrt(np.square(np.clip(draws, -edges, edges)).mean(axis=0) / normal)
    np.testing.assert_allclose(deviation(draws), reference, rtol=1e-6)
    np.testing.assert_allclose(deviation(draws), 0.3, rtol=0.03)
    draws[::10] = 1e6
    np.testing.assert_allclose(deviation(draws), 0.3, rtol=0.3)  # 10 % of them at 2, and the median of all the rest


def test_differences_of_series_that_jump_up_and_down():
    """Differences of order k of +-1 are +-2^k; the least of 2^k / sqrt((2 k)! / k!^2) is that of order 1, sqrt 2."""
    series = np.tile([1.0, -1.0], 20)[:, None]
    np.testing.assert_allclose(difference_noise([series]), math.sqrt(2.0 / 0.9205369), rtol=1e-6)
    assert difference_noise([np.arange(9.0)[:, None], np.arange(5.0)[:, None] ** 2])[0] < 1e-12
    assert difference_noise([np.zeros((2, 3))]).tolist() == [math.inf] * 3  # nothing can be said
    draws = np.random.default_rng(1).normal(0.0, [0.1, 2.0], (3000, 2))
    np.testing.assert_allclose(difference_noise([draws + np.linspace(0, 50, 3000)[:, None]]), [0.1, 2.0], rtol=0.05)


def interpolation_noise(series: list[np.ndarray], inputs: list[np.ndarray]) -> np.ndarray:
    return deviation(np.concatenate(interpolation_residuals(series, inputs)))


@pytest.mark.parametrize("share", [0.0, 0.005, 0.02])
def test_commands_that_change_with_every_step_are_no_noise(share):
    made = [pendulum(seed) for seed in range(5)]
    width = np.ptp(np.concatenate([shown for shown, _ in made]), axis=0)
    generator = np.random.default_rng(7)
    noisy = [shown + share * width * generator.standard_normal(shown.shape) for shown, _ in made]
    found = interpolation_noise(noisy, [torques for _, torques in made]) / width
    if not share:
        assert (found < 1e-4).all()
        assert (difference_noise(noisy) / width)[2] > 2e-3  # which is how much a torque changes the speed
    else:
        assert (found < 1.2 * share).all() and (found > share / 1.2).all()


def test_a_line_of_neighbors_by_hand():
    """White noise alone: neighbors say nothing of a row, and all of it is its own."""
    draws = np.random.default_rng(2).normal(0.0, 0.5, (4000, 1))
    np.testing.assert_allclose(interpolation_noise([draws], [np.zeros((4000, 1))]), 0.5, rtol=0.05)
    assert interpolation_noise([draws[:2]], [np.zeros((2, 1))]).tolist() == [math.inf]
    assert interpolation_noise([draws[:6]], [np.zeros((6, 1))]).tolist() == [math.inf]  # 7 terms for 4 rows


def test_predictions_tell_noise_and_parameters():
    """Errors e' - G e + S d of a linear system, whose noise and d are known."""
    generator, count, std, change = np.random.default_rng(3), 3000, np.array([0.1, 2.0]), np.array([0.5, -0.25])
    own = np.array([0.75, 0.0])  # sqrt(1 + .75^2) = 1.25
    gains = np.zeros((count, 2, 2))
    gains[:, 0, 0] = own[0]
    before, after = (std * generator.standard_normal((count, 2)) for _ in range(2))
    slopes = generator.uniform(-1, 1, (count, 2, 2))
    errors = after - own * before + slopes @ change
    errors[::20] += 100.0  # steps that nothing explains
    found, told = fitted_prediction_residuals(errors, slopes, gains)
    np.testing.assert_allclose(deviation(found), std, rtol=0.12)
    np.testing.assert_allclose(told, change, atol=0.05)
    exact = slopes @ change
    nothing, all_of_it = fitted_prediction_residuals(exact, slopes, gains)
    assert (deviation(nothing) < 1e-12).all()
    np.testing.assert_allclose(all_of_it, change)
    plain, none = fitted_prediction_residuals(
        np.array([[-1.0], [2.0], [-3.0]]), np.zeros((3, 1, 0)), np.ones((3, 1, 1))
    )
    np.testing.assert_allclose(deviation(plain), [math.sqrt(14.0 / 3.0 / 0.9205369 / 2.0)], rtol=1e-6)
    assert none.shape == (0,)
    with pytest.raises(ShapeError, match="must belong to errors"):
        fitted_prediction_residuals(errors, slopes[:5], gains)


def test_noise_of_rollouts_differs_where_chance_does_not_explain_it():
    # With 225 rows a logarithm has a standard error of 0.05: 0.2 of chance, and log(1.25) = 0.223 that do not matter.
    noise, rows = np.ones(4), np.full((2, 4), 225)
    each = np.exp([[0.0, 0.42, 0.43, 0.0], [0.0, -0.1, 0.0, -0.43]])
    assert noise_differs(noise, each, rows).tolist() == [False, False, True, True]
    assert not noise_differs(noise, each, np.full((2, 4), 20)).any()
    assert noise_differs(np.zeros(1), np.array([[0.0], [1e-3]]), rows[:, :1]).tolist() == [True]
    assert not noise_differs(np.zeros(1), np.zeros((2, 1)), rows[:, :1]).any()


def test_a_smooth_motion_is_smoothed_and_a_jerky_one_is_left_alone():
    times = np.arange(60.0)
    clean = np.stack([0.002 * times**2 - 0.1 * times, np.sign(np.sin(1.7 * times))], axis=1)
    noise = np.array([0.1, 0.1])
    series = clean + noise * np.random.default_rng(4).standard_normal(clean.shape)
    values, stds = smoothed_rows(series, [30, 0], noise)
    weights = scipy.signal.savgol_coeffs(11, 2, use="dot"), scipy.signal.savgol_coeffs(11, 2, pos=0, use="dot")
    for row, (part, own) in enumerate(zip((series[25:36, 0], series[:11, 0]), weights, strict=True)):
        assert values[row, 0] == pytest.approx(own @ part)
        assert stds[row, 0] == pytest.approx(0.1 * np.linalg.norm(own))
    np.testing.assert_array_equal(values[:, 1], series[[30, 0], 1])
    np.testing.assert_array_equal(stds[:, 1], noise[[1, 1]])


def test_five_rows_by_hand():
    """(-3, 12, 17, 12, -3) / 35 of Savitzky and Golay; nothing happens without noise, nor in short series."""
    series = np.array([0.0, 1.0, -1.0, 1.0, 0.0])[:, None]
    values, stds = smoothed_rows(series, [2], np.array([2.0]))
    np.testing.assert_allclose(values, [[(12.0 - 17.0 + 12.0) / 35.0]])
    np.testing.assert_allclose(stds, [[2.0 * math.sqrt(17.0 / 35.0)]])
    for short, std in ((series, 0.0), (series[:4], 2.0)):
        values, stds = smoothed_rows(short, [2], np.array([std]))
        assert values.tolist() == [[-1.0]] and stds.tolist() == [[std]]


def test_changes_are_looked_at_over_more_rows_the_more_noise_there_is():
    line = np.arange(100.0)[:, None] * [1.0, 0.0]  # a change of k over k rows; and a channel that rests
    assert informative_spans([line], np.zeros(2), 16) == (1,)
    assert informative_spans([line], np.array([0.07, 0.0]), 16) == (1,)  # 2 * 0.0049 of 1: below a hundredth
    assert informative_spans([line], np.array([0.08, 0.0]), 16) == (1, 2)  # 0.0128 of 1, 0.0032 of 4
    assert informative_spans([line], np.array([0.5, 0.0]), 16) == (1, 2, 4, 8)  # 0.5 of 16, 0.5 of 64
    assert informative_spans([line], np.array([0.0, 0.1]), 16) == (1, 2, 4, 8, 16)  # nothing but noise
    assert informative_spans([line, line[:20]], np.array([0.0, 0.1]), 16) == (
        1,
        2,
        4,
    )  # a quarter of the shortest series
    assert informative_spans([line], np.array([0.5, 0.0]), 5) == (1, 2, 4) and informative_spans(
        [line], np.ones(2), 1
    ) == (1,)
