"""Searches on plain arrays: one step of each by hand, what changes nothing, ends, restarts, noise, bounds."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from metaroll.contrib import PGPE, SNES, OpenAIES
from metaroll.errors import ShapeError
from metaroll.functional.adam import adam_moments
from metaroll.functional.search.averaging import AveragedMean, averaged
from metaroll.functional.search.base import Search, best_first, restored_search
from metaroll.functional.search.cem import CEM
from metaroll.functional.search.cma import CMA, STOP_REASONS
from metaroll.functional.search.cma_constants import cma_constants
from metaroll.functional.search.configs import CEMConfig
from metaroll.functional.search.finite_differences import ARS
from metaroll.functional.search.hill_climbing import HillClimb
from metaroll.functional.search.multi_start import MultiStart, Starts
from metaroll.functional.search.rank_noise import rank_noise
from metaroll.functional.search.restarts import RestartedCMA
from metaroll.functional.search.reviewing import Reviewed
from metaroll.functional.search.sampling import normal_rows, reflected
from metaroll.functional.search.shaping import centered_ranks, standardized, utilities
from metaroll.state import tree_of

NAN = math.nan
SEARCHES: dict[str, Search[Any]] = {
    "cma": CMA(population=8),
    "separable": CMA(population=8, separable=True),
    "noisy": CMA(population=8, reevaluated=3),
    "ipop": RestartedCMA(cma=CMA(population=4, tolfun=1.0)),
    "reviewed": Reviewed(search=RestartedCMA(cma=CMA(population=4, tolfun=1.0)), reviews=2),
    "starts": MultiStart(search=CMA(population=8), rules=Starts(starts=3, round_length=4)),
    "averaged": AveragedMean(search=CMA(population=8), window=5),
    "cem": CEM(population=20, best_frac=0.25, extra_std=0.5),
    "full cem": CEM(population=20, best_frac=0.3, covariance="full", extra_std=0.1),
    "ars": ARS(learning_rate=0.1, sigma=0.1),
    "es": OpenAIES(learning_rate=0.1),
    "pgpe": PGPE(learning_rate=0.1, init_sigma=0.2),
    "snes": SNES(population=12),
    "hill climbing": HillClimb(population=12),
    "comma": HillClimb(population=12, plus=False),
}
every_search = pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES.keys())


def sphere(rows: np.ndarray) -> np.ndarray:
    return -np.square(rows).sum(axis=1)


def run(search: Search[Any], mean: Any, generations: int, fitness: Any = sphere, seed: int = 0) -> Any:
    state, generator = search.start(mean), np.random.default_rng(seed)
    for _ in range(generations):
        if search.stop(state):
            break
        rows = search.ask(state, generator)
        state = search.tell(state, rows, fitness(rows))
    return state


# ------------------------------------------------------------------------------------------------------------- shaping
def test_shapes_of_fitness_by_hand():
    assert best_first(np.array([1.0, NAN, 3.0, -math.inf, 3.0])).tolist() == [2, 4, 0, 3, 1]
    assert centered_ranks(np.array([5.0, 1.0, NAN, 5.0, 2.0])).tolist() == [0.375, -0.25, -0.5, 0.375, 0.0]
    assert centered_ranks(np.array([7.0])).tolist() == [0.0]
    assert standardized(np.array([1.0, 3.0, NAN])).tolist() == pytest.approx([-(2**-0.5), 2**0.5, -(2**-0.5)])
    assert standardized(np.array([4.0, 4.0])).tolist() == [0.0, 0.0]
    # K = 4: ln 3 - ln k = 1.0986, 0.4055, 0 (and below): shares 0.7304, 0.2696, 0, 0, less a quarter.
    assert utilities(np.array([0.0, 9.0, NAN, 3.0])) == pytest.approx([-0.25, 0.4804, -0.25, 0.0196], abs=1e-4)
    assert utilities(np.array([3.0, 3.0, 1.0, 0.0])) == pytest.approx([0.25, 0.25, -0.25, -0.25])


def test_mirrored_numbers_come_in_pairs():
    rows = normal_rows(np.random.default_rng(0), 5, 3, mirrored=True)
    assert rows.shape == (5, 3)
    assert np.array_equal(rows[0:4:2], -rows[1:4:2])


def test_rows_are_mirrored_at_bounds():
    lower, upper = np.array([0.0, 0.0, -math.inf, -math.inf]), np.array([1.0, math.inf, 2.0, math.inf])
    rows = np.array([[-0.25, -3.0, 2.5, 9.0], [1.25, 3.0, 1.0, -9.0], [2.75, 0.0, -9.0, 0.0]])
    expected = [[0.25, 3.0, 1.5, 9.0], [0.75, 3.0, 1.0, -9.0], [0.75, 0.0, -9.0, 0.0]]
    assert reflected(rows, lower, upper).tolist() == expected


# ----------------------------------------------------------------------------------------------------- one step by hand
def test_averages_by_hand():
    found, average = [], np.zeros(1)
    for count, value in enumerate([3.0, 5.0, 1.0, 7.0], start=1):
        average = averaged(average, np.array([value]), count, 3)
        found.append(average[0])
    assert found == pytest.approx([3.0, 4.0, 3.0, 3.0 + (7.0 - 3.0) / 3])
    assert averaged(np.array([9.0]), np.array([2.0]), 5, 1) == 2.0


@pytest.mark.parametrize("name", ["cma", "cem", "ars", "hill climbing", "starts"])
def test_an_averaged_search_asks_what_it_would_ask(name):
    """Its mean is that of the last means, as pandas has it where there are more than the window."""
    search, generators = SEARCHES[name], [np.random.default_rng(0), np.random.default_rng(0)]
    same = AveragedMean(search=search, window=4)
    states, means = [search.start(np.full(3, 2.0)), same.start(np.full(3, 2.0))], []
    for generation in range(9):
        rows = [each.ask(state, draw) for each, state, draw in zip((search, same), states, generators, strict=True)]
        assert np.array_equal(*rows)
        states = [search.tell(states[0], rows[0], sphere(rows[0])), same.tell(states[1], rows[1], sphere(rows[1]))]
        means.append(states[0].mean)
        if generation < 4:
            assert states[1].mean == pytest.approx(np.mean(means, axis=0))
    expected = pd.DataFrame([np.mean(means[:4], axis=0), *means[4:]]).ewm(alpha=0.25, adjust=False).mean()
    assert states[1].mean == pytest.approx(expected.to_numpy()[-1])
    assert (states[0].best_fitness, states[0].evaluations) == (states[1].best_fitness, states[1].evaluations)
    assert search.spread(states[0]) == same.spread(states[1])


def test_an_average_begins_anew_with_each_restart():
    search = RestartedCMA(cma=CMA(population=4, tolfun=1.0))
    same, generator, restarts = AveragedMean(search=search, window=50), np.random.default_rng(1), 0
    state = same.start(np.full(2, 3.0))
    while restarts < 2:
        rows = same.ask(state, generator)
        before, state = state, same.tell(state, rows, sphere(rows))
        if state.run.restarts > restarts:
            restarts = state.run.restarts
            assert np.array_equal(state.mean, state.run.mean)
        elif state.run.run.generation > 1:
            count = state.run.run.generation
            assert state.mean == pytest.approx(before.mean + (state.run.mean - before.mean) / count)


def test_constants_of_the_tutorial_by_hand():
    # n = 2, K = 6: w' = ln 3.5 - ln i = 1.2528, 0.5596, 0.1542, -0.1335, -0.3567, -0.5390.
    found = cma_constants(2, 6, False, True)
    assert found.num_parents == 3
    assert found.weights[:3] == pytest.approx([0.6370, 0.2846, 0.0784], abs=1e-4)
    assert found.mueff == pytest.approx(2.0286, abs=1e-4)  # 1.9666^2 / 1.9064
    assert found.cc == pytest.approx((4 + 2.0286 / 2) / (6 + 2.0286), abs=1e-4)
    assert found.cs == pytest.approx(4.0286 / 9.0286, abs=1e-4)
    assert found.damps == pytest.approx(1 + 4.0286 / 9.0286, abs=1e-4)  # sqrt((mueff - 1) / 3) < 1
    assert found.c1 == pytest.approx(2 / (3.3**2 + 2.0286), abs=1e-4)
    assert found.cmu == pytest.approx(2 * (0.25 + 2.0286 + 0.4930 - 2) / (16 + 2.0286), abs=1e-4)
    # The smallest limit is (1 - c1 - cmu) / (n cmu) = 4.42 or 1 + c1 / cmu = 2.81 or 1 + 2 2.4318 / 4.0286 = 2.2073.
    assert -found.weights[3:].sum() == pytest.approx(2.2073, abs=1e-3)
    assert cma_constants(2, 6, False, False).weights[3:].tolist() == [0.0, 0.0, 0.0]
    wide = cma_constants(7, 6, True, True)
    assert wide.c1 == pytest.approx(3 * cma_constants(7, 6, False, True).c1)  # (n + 2) / 3


@pytest.mark.parametrize("separable", [False, True])
def test_one_step_of_cma_by_hand(separable):
    """Equations (41) to (47) with K = 2, in two dimensions: one parent, no active update."""
    search = CMA(population=2, sigma=0.5, active=False, separable=separable)
    state = search.start([1.0, 2.0])
    constants = search.constants(state)
    found = search.tell(state, [[1.5, 2.0], [1.0, 3.0]], [3.0, 1.0])
    step = np.array([1.0, 0.0])  # (1.5 - 1) / sigma
    assert found.mean.tolist() == [1.5, 2.0]
    path = math.sqrt(constants.cs * (2 - constants.cs)) * step  # mueff = 1
    assert found.sigma_path == pytest.approx(path)
    chi = math.sqrt(math.pi / 2)  # E|N(0, I)| in two dimensions
    exponent = constants.cs / constants.damps * (np.linalg.norm(path) / chi - 1)
    assert found.sigma == pytest.approx(0.5 * math.exp(exponent))
    assert found.path == pytest.approx(math.sqrt(constants.cc * (2 - constants.cc)) * step)
    c1, cmu = constants.c1, constants.cmu
    outer = c1 * np.outer(found.path, found.path) + cmu * np.outer(step, step) + (1 - c1 - cmu) * np.eye(2)
    assert found.covariance == pytest.approx(np.diagonal(outer) if separable else outer)
    assert (found.generation, found.evaluations, found.best.tolist(), found.best_fitness) == (1, 2, [1.5, 2.0], 3.0)
    assert (found.best_history.tolist(), found.median_history.tolist(), found.fitness_range) == ([3.0], [2.0], 2.0)


def test_worse_candidates_take_variance_from_their_directions():
    search = CMA(population=4)
    state = search.start([0.0, 0.0])
    rows = [[0.5, 0.0], [0.5, 0.0], [0.0, 5.0], [0.0, -0.05]]
    pair = (search, replace(search, active=False))
    found, passive = (each.tell(state, rows, [4, 3, 2, 1]).covariance for each in pair)
    assert found[1, 1] < passive[1, 1]
    # Both lengths count alike (eq. 46): n / |y|^2 y y^T is 2 in the second direction for either.
    constants = search.constants(state)
    weights = constants.weights[2:]
    kept = 1 - constants.c1 - constants.cmu * constants.weights.sum()
    assert found[1, 1] == pytest.approx(kept + constants.cmu * 2 * weights.sum())


def test_elites_by_hand():
    shares = [(100, 0.29), (180, 0.35), (20, 0.05)]
    assert [CEMConfig(population=count, best_frac=share).num_best for count, share in shares] == [29, 63, 1]
    search = CEM(population=4, best_frac=0.5, extra_std=0.0)
    found = search.tell(search.start([0.0, 0.0]), [[1, 2], [3, 6], [9, 9], [7, 7]], [5.0, 4.0, NAN, -1.0])
    assert (found.mean.tolist(), found.std.tolist()) == ([2.0, 4.0], [1.0, 2.0])
    full = replace(search, covariance="full")
    state = full.tell(full.start([0.0, 0.0]), [[1, 2], [3, 6], [9, 9], [7, 7]], [5.0, 4.0, NAN, -1.0])
    assert state.directions.tolist() == [[-1, -2], [1, 2]]
    drawn = replace(full, population=20_000).ask(state, np.random.default_rng(0))
    assert np.cov(drawn.T) == pytest.approx(np.array([[1.0, 2.0], [2.0, 4.0]]), rel=0.03)


def test_elites_are_candidates_whose_fitness_is_known():
    search = CEM(population=4, best_frac=0.75, extra_std=0.0, covariance="full")
    found = search.tell(search.start([0.0, 0.0]), [[1, 2], [3, 6], [9, 9], [7, 7]], [NAN, 4.0, NAN, 3.0])
    assert (found.mean.tolist(), found.std.tolist()) == ([5.0, 6.5], [2.0, 0.5])
    assert found.directions.tolist() == [[-2.0, -0.5], [2.0, 0.5]]


def test_extra_noise_of_the_cross_entropy_method_fades_in_generations():
    search = CEM(population=3, best_frac=0.4, init_sigma=1e-9, extra_std=2.0, extra_decay_time=10)
    assert [search.extra_variance(e) for e in (0, 5, 10, 11)] == [4.0, 2.0, 0.0, 0.0]
    state = replace(search.start(np.zeros(2000)), generation=5)
    assert search.ask(state, np.random.default_rng(0)).std() == pytest.approx(math.sqrt(2.0), rel=0.03)
    assert np.array_equal(search.ask(search.start(np.ones(3)), np.random.default_rng(0))[0], np.ones(3))


def test_one_step_of_augmented_random_search_by_hand():
    search = ARS(num_directions=3, num_best=2, learning_rate=0.5, sigma=0.1)
    state = search.start([1.0, 1.0])
    rows = 1.0 + 0.1 * np.array([[1, 0], [-1, 0], [0, 1], [0, -1], [1, 1], [-1, -1]])
    # The last direction is the worst of three; the returns of the others have a deviation of sqrt(5).
    found = search.tell(state, rows, [6.0, 2.0, 0.0, 4.0, 1.0, 1.0])
    assert found.mean == pytest.approx(1.0 + 0.5 / (2 * math.sqrt(5.0)) * np.array([4.0, -4.0]))
    lost = search.tell(state, rows, [6.0, NAN, 0.0, 4.0, NAN, 1.0])  # two directions count for nothing
    assert lost.mean == pytest.approx(1.0 + 0.5 / 2.0 * np.array([0.0, -4.0]))
    assert search.tell(state, rows, np.ones(6)).mean.tolist() == [1.0, 1.0]


def test_one_step_of_openai_es_by_hand():
    search = OpenAIES(population=2, sigma=0.5, learning_rate=0.1, weight_decay=0.25)
    found = search.tell(search.start([2.0, 0.0]), [[3.0, 0.5], [1.0, -0.5]], [1.0, 0.0])
    # Normals (2, 1) and (-2, -1), ranks 1/2 and -1/2: 1 / (2 0.5) (2, 1) - 0.25 (2, 0) = (1.5, 1); Adam's first step.
    assert found.first == pytest.approx(0.1 * np.array([1.5, 1.0]))
    assert found.second == pytest.approx(0.001 * np.array([2.25, 1.0]))
    assert found.mean == pytest.approx([2.1, 0.1])


@pytest.mark.parametrize("made", [np.array, torch.tensor])
def test_two_steps_of_adam_by_hand(made):
    zero = made([0.0])
    mean, deviation, first, second = adam_moments(made([2.0]), zero, zero, 1)
    assert (first.tolist(), second.tolist()) == (pytest.approx([0.2]), pytest.approx([0.004]))
    assert (mean.tolist(), deviation.tolist()) == (pytest.approx([2.0]), pytest.approx([2.0]))
    mean, deviation, first, second = adam_moments(made([-1.0]), first, second, 2)
    assert first.tolist() == pytest.approx([0.08]) and second.tolist() == pytest.approx([0.004996])
    assert mean.tolist() == pytest.approx([0.08 / 0.19])
    assert deviation.tolist() == pytest.approx([math.sqrt(0.004996 / 0.001999)])


def test_one_step_of_pgpe_by_hand():
    search = PGPE(num_directions=2, init_sigma=0.5, learning_rate=0.1, sigma_learning_rate=0.2, shaping="standardized")
    state = search.start([0.0, 0.0])
    rows = [[1.0, 0.0], [-1.0, 0.0], [0.0, 0.25], [0.0, -0.25]]  # e / std = (2, 0) and (0, 1/2)
    found = search.tell(state, rows, [3.0, 1.0, 0.0, 0.0])
    values = (np.array([3.0, 1.0, 0.0, 0.0]) - 1.0) / math.sqrt(1.5)
    assert found.first == pytest.approx(0.1 * np.array([(values[0] - values[1]) / 2, 0.0]))
    # Pair means 2 and 0 are 1 above and below the mean of all: (+1 (4 - 1) - 1 (0 - 1)) / 2 and (-1 - 1 (1/4 - 1)) / 2.
    change = 0.2 / math.sqrt(1.5) * np.array([2.0, -0.125])
    assert found.std == pytest.approx(0.5 * (1.0 + np.clip(change, -0.2, 0.2)))


def test_one_step_of_snes_by_hand():
    search = SNES(population=2, init_sigma=0.5, sigma_learning_rate=0.4)
    # u = (1/2, -1/2); s = (2, 0) and (0, 1): u s = (1, -1/2) and u (s^2 - 1) = (2, -1/2).
    found = search.tell(search.start([1.0, 1.0]), [[2.0, 1.0], [1.0, 1.5]], [1.0, 0.0])
    assert found.mean == pytest.approx([1.5, 0.75])
    assert found.std == pytest.approx(0.5 * np.exp(0.2 * np.array([2.0, -0.5])))
    assert SNES().start(np.zeros(4)).std.tolist() == [0.5] * 4


def test_hill_climbing_stays_or_moves_on():
    plus = HillClimb(population=2, sigma_factor=2.0, init_sigma=0.5)
    state = plus.start([0.0])
    rows = plus.ask(state, np.random.default_rng(0))
    assert (rows.shape, rows[0].tolist()) == ((3, 1), [0.0])
    stays = plus.tell(state, rows, [1.0, 1.0, 0.0])
    assert (stays.mean.tolist(), stays.reach) == ([0.0], 1.0)
    moves = plus.tell(state, rows, [1.0, NAN, 2.0])
    assert (moves.mean.tolist(), moves.reach) == (rows[2].tolist(), 0.125)
    comma = HillClimb(population=2, plus=False)
    state = comma.tell(comma.start([0.0]), [[1.0], [2.0]], [5.0, 4.0])
    assert comma.tell(state, [[3.0], [4.0]], [1.0, 2.0]).mean.tolist() == [4.0]  # though it is worse than the last


def test_hill_climbing_ends_when_its_means_are_alike():
    search = HillClimb(population=1, stop_std=0.1, stop_window=2)
    state = search.start([0.0])
    for fitness, reasons in ((1.0, ()), (5.0, ()), (5.1, ("stop_std",)), (6.0, ())):
        state = search.tell(state, search.ask(state, np.random.default_rng(0)), [fitness, 0.0])
        assert search.stop(state) == reasons
    before = {**tree_of(state), "mean_fitness": 6.0}  # as version 0.2 had it
    del before["recent"]
    assert restored_search(state, before).recent.tolist() == [6.0]


# ---------------------------------------------------------------------------------------------------------- of them all
@every_search
def test_it_climbs_and_keeps_the_best(search):
    state = run(search, np.full(6, 2.0), 150)
    assert sphere(state.mean[None])[0] > -2.0  # from -24
    assert state.best_fitness == sphere(state.best[None])[0] > -1.0
    assert 0.0 < search.spread(state) < 3.0


def test_an_average_that_kept_nothing_of_ended_runs_goes_on_to_the_bit():
    """As versions wrote it in which no run was followed by another one that counts."""
    search = AveragedMean(search=CMA(population=8), window=5)
    state = run(search, np.ones(5), 7)
    saved = tree_of(state)
    del saved["left"]
    found = restored_search(search.start(np.zeros(5)), saved)
    rows = search.ask(state, np.random.default_rng(3))
    assert np.array_equal(rows, search.ask(found, np.random.default_rng(3)))
    after, again = (search.tell(one, rows, sphere(rows)) for one in (state, found))
    assert np.array_equal(after.mean, again.mean) and search.finished(again)[0] == 0


@pytest.mark.parametrize(
    "name", ["cma", "separable", "cem", "full cem", "es", "pgpe", "snes", "hill climbing", "comma"]
)
def test_a_candidate_without_fitness_ranks_last(name):
    search = SEARCHES[name]
    state = run(search, np.ones(4), 3)
    rows = search.ask(state, np.random.default_rng(2))
    values = sphere(rows)
    values[1] = NAN
    found, expected = (search.tell(state, rows, each) for each in (values, np.where(np.isnan(values), -1e9, values)))
    assert np.array_equal(found.mean, expected.mean)


def test_a_search_that_was_not_reviewed_goes_on_with_reviews():
    """As versions wrote it that had no reviews."""
    plain = RestartedCMA(cma=CMA(population=4, tolx=0.5))
    search, state = Reviewed(search=plain, reviews=2), run(plain, np.full(2, 3.0), 5)
    found = restored_search(search.start(np.zeros(2)), tree_of(state))
    assert np.array_equal(search.recommended(found), state.mean) and not len(found.contenders)
    assert np.array_equal(search.ask(found, np.random.default_rng(3)), plain.ask(state, np.random.default_rng(3)))


def test_a_state_that_does_not_fit_is_refused():
    search = CMA(population=8)
    saved = tree_of(search.start(np.ones(5)))
    with pytest.raises(ShapeError, match="mean"):
        restored_search(search.start(np.zeros(4)), saved)
    with pytest.raises(KeyError):
        restored_search(search.start(np.zeros(5)), {})


def test_a_search_that_gives_no_state_is_named():
    class Silent(OpenAIES):
        def learned(self, state, candidates, fitness):
            return None

    search = Silent()
    state = search.start(np.zeros(3))
    rows = search.ask(state, np.random.default_rng(0))
    with pytest.raises(TypeError, match=r"learned of Silent must return the new state, a .*State .* got None"):
        search.tell(state, rows, sphere(rows))


@settings(max_examples=15, deadline=None)
@given(
    name=st.sampled_from(["cma", "separable", "cem", "full cem", "es", "pgpe", "snes", "hill climbing"]),
    values=st.lists(st.integers(-50, 50), min_size=40, max_size=40, unique=True),
    seed=st.integers(0, 99),
)
def test_only_the_order_of_fitness_counts(name, values, seed):
    search = SEARCHES[name]
    state = run(search, np.ones(3), 3, seed=seed)
    rows = search.ask(state, np.random.default_rng(seed))
    fitness = np.array(values[: len(rows)], dtype=float)
    one, other = (search.tell(state, rows, each) for each in (fitness, np.exp(fitness / 10.0) - 7.0))
    assert np.array_equal(one.mean, other.mean)
    assert search.spread(one) == search.spread(other)


@settings(max_examples=15, deadline=None)
@given(angle=st.floats(0.1, 3.0), seed=st.integers(0, 99))
def test_full_cma_does_not_know_the_axes(angle, seed):
    """What it does in rotated coordinates is what it does, rotated; the separable one is bound to the axes."""
    turn = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
    generator = np.random.default_rng(seed)
    search = CMA(population=6)
    straight, turned = search.start([1.0, 2.0]), search.start(turn @ [1.0, 2.0])
    for _ in range(8):
        rows = search.ask(straight, generator)
        fitness = -np.square(rows) @ [1.0, 100.0]
        straight, turned = search.tell(straight, rows, fitness), search.tell(turned, rows @ turn.T, fitness)
    assert turned.mean == pytest.approx(turn @ straight.mean, rel=1e-8, abs=1e-10)
    assert turned.covariance == pytest.approx(turn @ straight.covariance @ turn.T, rel=1e-8, abs=1e-10)
    assert turned.sigma == pytest.approx(straight.sigma, rel=1e-9)


@settings(max_examples=15, deadline=None)
@given(scale=st.floats(0.1, 10.0), shift=st.floats(-5.0, 5.0), seed=st.integers(0, 99))
def test_searches_do_not_know_the_unit(scale, shift, seed):
    for search, wide in ((CMA(sigma=0.5), CMA(sigma=0.5 * scale)), (SNES(), SNES(init_sigma=0.5 * scale))):
        states: Any = [search.start(np.ones(3)), wide.start(scale * np.ones(3) + shift)]
        generator = np.random.default_rng(seed)
        for _ in range(5):
            rows = search.ask(states[0], generator)
            fitness = sphere(rows)
            states = [
                search.tell(states[0], rows, fitness),
                wide.tell(states[1], scale * rows + shift, fitness),
            ]
        assert states[1].mean == pytest.approx(scale * states[0].mean + shift, rel=1e-6, abs=1e-6)


# ------------------------------------------------------------------------------------------------- CMA-ES in particular
@pytest.mark.parametrize(("separable", "condition"), [(False, 1e6), (True, 1e6)])
def test_it_finds_an_optimum_of_scaled_axes(separable, condition):
    weights = condition ** (np.arange(5) / 4.0)
    search = CMA(separable=separable, target=-1e-8, max_evaluations=20_000)
    state = run(search, np.ones(5), 9999, lambda rows: -np.square(rows) @ weights)
    assert search.stop(state) == ("target",)
    assert state.evaluations < 3000


def test_more_parameters_make_it_separable():
    search = CMA()
    assert [search.is_separable(n) for n in (500, 501)] == [False, True]
    assert search.start(np.zeros(501)).covariance.shape == (501,)
    assert CMA(separable=False).start(np.zeros(501)).covariance.shape == (501, 501)


def test_axes_are_computed_when_they_are_old():
    search = CMA()
    state, generator = search.start(np.zeros(40)), np.random.default_rng(0)
    gap, seen = search.constants(state).eigen_gap, []
    for _ in range(12):
        rows = search.ask(state, generator)
        state = search.tell(state, rows, sphere(rows))
        seen.append(state.decomposed)
    assert sorted(set(seen)) == [0, *range(math.ceil(gap), 13, math.ceil(gap))] and 2 < gap < 4
    product = (state.axes * np.square(state.scales)) @ state.axes.T
    assert state.decomposed == 12 and product == pytest.approx(state.covariance, abs=1e-12)


@pytest.mark.parametrize("separable", [False, True])
@pytest.mark.parametrize("num_params", [2, 6])
def test_an_optimum_in_the_corner_of_bounds_is_found(separable, num_params):
    search = CMA(sigma=0.5, lower=0.0, upper=2.0, separable=separable, max_evaluations=20_000)
    state = run(search, np.ones(num_params), 4000, lambda rows: rows.sum(axis=1), seed=1)
    assert state.best_fitness == pytest.approx(2.0 * num_params, abs=1e-6)
    assert state.mean == pytest.approx(np.full(num_params, 2.0), abs=1e-4) and state.sigma < 0.5


def test_candidates_stay_within_bounds_and_find_an_optimum_there():
    search = CMA(lower=[0.5, -1.0], upper=[2.0, 1.0], target=-0.25 - 1e-9, max_evaluations=4000)
    state, generator = search.start([1.5, 0.5]), np.random.default_rng(0)
    while not search.stop(state):
        rows = search.ask(state, generator)
        assert (rows >= [0.5, -1.0]).all() and (rows <= [2.0, 1.0]).all()
        state = search.tell(state, rows, sphere(rows))
    assert search.stop(state) == ("target",) and state.best == pytest.approx([0.5, 0.0], abs=1e-4)
    for wrong in ([0.4, 0.0], [1.0, 2.0]):
        with pytest.raises(ValueError, match="hold the mean"):
            search.start(wrong)
    with pytest.raises(ValueError, match="lower must lie below upper"):
        CMA(lower=1.0, upper=0.0).start([0.5])
    with pytest.raises(ValueError, match=r"got 1 and 0 in entry 40$"):
        CMA(lower=np.eye(50)[40], upper=1.0 - np.eye(50)[40]).start(np.zeros(50))
    with pytest.raises(ShapeError, match="lower"):
        CMA(lower=[0.0, 0.0]).start([0.5])
    for name in ("lower", "upper"):
        for bound, error in (("x", TypeError), (["a", 1.0], TypeError), (True, TypeError), (math.nan, ValueError)):
            with pytest.raises(error, match=f"^{name} must "):
                CMA(**{name: bound})
        with pytest.raises(ValueError, match=rf"^{name} must not be NaN, got NaN at \[40\]$"):
            CMA(**{name: np.where(np.arange(50) == 40, math.nan, 0.0)})


def ended(search: CMA, mean: Any, fitness: Any, generations: int = 3000) -> tuple[str, ...]:
    return search.stop(run(search, mean, generations, fitness))


def test_why_it_ends_is_said():
    none = replace(CMA(population=8), tolfun=0.0, tolfunhist=0.0)
    assert ended(replace(none, target=-1.0), np.ones(2), sphere) == ("target",)
    assert ended(replace(none, max_generations=3), np.ones(2), sphere) == ("maxiter",)
    assert ended(replace(none, max_evaluations=30), np.ones(2), sphere) == ("maxfevals",)
    assert ended(replace(none, tolfunhist=1e-6), np.ones(2), sphere) == ("tolfunhist",)
    assert "tolfun" in ended(replace(none, tolfun=1e-6), np.ones(2), sphere)
    assert ended(replace(none, tolx=1e-3), np.ones(2), sphere) == ("tolx",)
    assert "tolupsigma" in ended(replace(none, tolupsigma=100.0), np.ones(2), lambda rows: rows[:, 0])
    ill = ended(replace(none, conditioncov=1e3), np.ones(2), lambda rows: -np.square(rows) @ [1.0, 1e8])
    assert ill == ("conditioncov",)
    assert ended(replace(none, sigma=1e-17), np.ones(2), sphere)[0].startswith("noeffect")
    noise = np.random.default_rng(0)
    flat = replace(none, tolx=0.0, tolupsigma=math.inf, conditioncov=math.inf)
    assert "stagnation" in ended(flat, np.ones(2), lambda rows: noise.normal(size=len(rows)))
    assert none.stop(none.start(np.ones(2))) == () and len(set(STOP_REASONS)) == 11


def test_restarts_double_the_population():
    search = RestartedCMA(cma=CMA(population=4, tolx=0.5), max_restarts=2)
    state, generator, seen = search.start(np.ones(2)), np.random.default_rng(0), []
    while not search.stop(state):
        rows = search.ask(state, generator)
        assert len(rows) == search.num_candidates(state)
        seen.append((state.restarts, len(rows)))
        state = search.tell(state, rows, sphere(rows))
    assert sorted(set(seen)) == [(0, 4), (1, 8), (2, 16)]
    assert (search.stop(state), STOP_REASONS[state.reason]) == (("tolx",), "tolx")
    assert state.best_fitness >= state.run.best_fitness and state.evaluations == sum(count for _, count in seen)
    assert state.origin.tolist() == [1.0, 1.0]


def test_runs_that_have_ended_are_counted_with_the_last():
    search = RestartedCMA(cma=CMA(population=4, tolx=0.5), max_restarts=2)
    state, generator, counts = search.start(np.ones(2)), np.random.default_rng(0), []
    while not search.stop(state):
        counts.append(search.finished(state)[0])
        state, _ = told(search, state, generator, sphere)
    assert list(dict.fromkeys(counts)) == [0, 1, 2]  # three runs, of which the last one goes on
    count, left = search.finished(state)
    assert count == 3 and np.array_equal(left, state.mean)


def test_bipop_shares_evaluations_between_large_and_small_populations():
    search = RestartedCMA(cma=CMA(population=6, tolx=0.3, max_evaluations=6000), rule="bipop", max_restarts=30)
    state, generator, runs = search.start(np.ones(3)), np.random.default_rng(0), {}
    while not search.stop(state):
        rows = search.ask(state, generator)
        runs[state.restarts] = (state.is_small, len(rows), state.run.first_sigma)
        state = search.tell(state, rows, sphere(rows))
    small, large = ([each for each in runs.values() if each[0] is kind] for kind in (True, False))
    assert [count for _, count, _ in large] == [6 * 2**k for k in range(len(large))] and len(large) > 3
    assert len(small) > 2 and all(count <= large[-1][1] / 2 and 0.005 <= sigma <= 0.5 for _, count, sigma in small)
    assert search.stop(state) == ("maxfevals",)
    assert state.small_evaluations + state.large_evaluations == state.evaluations
    assert 0.2 < state.small_evaluations / state.large_evaluations < 1.5


def test_restarts_leave_a_local_optimum():
    def rastrigin(rows: np.ndarray) -> np.ndarray:
        return -(10 * rows.shape[1] + (np.square(rows) - 10 * np.cos(2 * math.pi * rows)).sum(axis=1))

    once = CMA(sigma=0.5, target=-1e-6, max_evaluations=60_000)
    assert "target" not in once.stop(run(once, np.full(3, 3.0), 9999, rastrigin))
    search = RestartedCMA(cma=replace(once, lower=-5.0, upper=5.0))
    assert search.stop(run(search, np.full(3, 3.0), 9999, rastrigin)) == ("target",)


def told(search: Search[Any], state: Any, generator: Any, fitness: Any) -> tuple[Any, np.ndarray]:
    rows = search.ask(state, generator)
    assert len(rows) == search.num_candidates(state)
    return search.tell(state, rows, fitness(rows)), rows


@pytest.mark.parametrize("window", [1, 4])
def test_ends_of_runs_are_compared_in_the_same_generations(window):
    """What is asked beside them is what would be asked without, whatever they are found to be."""
    plain: Search[Any] = RestartedCMA(cma=CMA(population=4, tolx=0.5), max_restarts=3)
    plain = plain if window == 1 else AveragedMean(search=plain, window=window)
    search, draws = Reviewed(search=plain, reviews=2), [np.random.default_rng(0), np.random.default_rng(0)]
    state, alone, ends, asked = search.start(np.full(2, 3.0)), plain.start(np.full(2, 3.0)), [], []
    while not plain.stop(alone):
        before = alone
        alone, own = told(plain, alone, draws[0], sphere)
        state, rows = told(search, state, draws[1], sphere)
        assert np.array_equal(rows[: len(own)], own) and np.array_equal(state.mean, alone.mean)
        assert not search.stop(state) or not len(state.contenders)
        asked.append(rows[len(own) :])
        count, end = plain.finished(alone)
        if count > plain.finished(before)[0]:
            ends.append(end)
            assert window > 1 or np.array_equal(end, alone.left if not plain.stop(alone) else alone.mean)
            if count == 1:
                assert np.array_equal(search.recommended(state), end)
        elif not ends:
            assert np.array_equal(search.recommended(state), alone.mean) and not len(asked[-1])
    assert len(ends) == 4 and search.stop(state) == ()  # the last end is compared first
    while not search.stop(state):
        state, rows = told(search, state, draws[1], sphere)
        asked.append(rows)
    assert [len(rows) for rows in asked[-2:]] == [2, 2] and search.stop(state) == plain.stop(alone)
    best = ends[int(np.argmax(sphere(np.array(ends))))]
    assert np.array_equal(search.recommended(state), best)
    shown = {row.tobytes() for rows in asked for row in rows}
    assert shown == {end.tobytes() for end in ends}  # each of them, and nothing else


def test_an_average_of_a_run_that_has_ended_is_that_of_its_means():
    search = AveragedMean(search=RestartedCMA(cma=CMA(population=4, tolx=0.5)), window=99)
    state, generator, means = search.start(np.full(2, 3.0)), np.random.default_rng(0), []
    while not state.run.restarts:
        state, _ = told(search, state, generator, sphere)
        means.append(state.run.left if state.run.restarts else state.run.mean)
    assert search.finished(state)[0] == 1 and search.finished(state)[1] == pytest.approx(np.mean(means, axis=0))


def test_contenders_that_are_better_on_average_by_hand():
    search, own = Reviewed(search=RestartedCMA(cma=CMA(population=2)), reviews=2), np.array([[0.3], [-0.2]])
    state = replace(search.start(np.zeros(1)), contenders=np.array([[1.0], [2.0]]))
    state = replace(state, gains=np.zeros(2), counts=np.zeros(2))

    def after(state: Any, *fitness: float) -> Any:
        rows = np.concatenate([own, state.incumbent[None], state.contenders])
        return search.tell(state, rows, [0.0, 0.0, *fitness])

    once = after(state, 10.0, 11.0, 14.0)
    assert once.gains.tolist() == [1.0, 4.0] and once.incumbent.tolist() == [0.0] and len(once.contenders) == 2
    twice = after(once, 0.0, 0.5, -3.0)  # 1.5 and 1 in two generations
    assert twice.incumbent.tolist() == [1.0] and not len(twice.contenders)
    assert after(once, 0.0, -1.0, -4.0).incumbent.tolist() == [0.0]
    assert after(once, 0.0, NAN, 1.0).incumbent.tolist() == [2.0]  # what has no value is no contender
    assert after(once, NAN, NAN, -5.0).incumbent.tolist() == [2.0]
    later = replace(once, counts=np.array([1.0, 0.0]))  # meets another incumbent from now on
    later = after(later, 0.0, 1.0, 9.0)
    assert later.incumbent.tolist() == [1.0] and later.contenders.tolist() == [[2.0]]
    assert (later.gains.tolist(), later.counts.tolist()) == ([0.0], [0.0])


def test_the_noise_of_ranks_by_hand():
    # Three candidates, one evaluated twice. Ranks of (10, 20, 30, 10, 20, 30): no value lies between 10 and 10.
    # limit(R) = theta median |R - i|, i = 1 .. 5, with R = 1 for both: theta 2; s = -2 0.2 2 = -0.8.
    values = np.array([10.0, 20.0, 30.0])
    assert rank_noise(values, np.array([10.0])) == pytest.approx(-0.8)
    # (10, 20, 30) and (40, 20, 30): four values lie between 10 and 40: 2 4 - 2 0.2 2 = 7.2.
    assert rank_noise(values, np.array([40.0])) == pytest.approx(7.2)


def test_noise_raises_repetitions_and_then_the_step_size():
    search = CMA(population=10, reevaluated=4, max_repetitions=3.0, sigma=0.1)
    state, noise = search.start(np.zeros(4)), np.random.default_rng(1)
    rows = search.ask(state, np.random.default_rng(0))
    assert len(rows) == 14 and np.array_equal(rows[10:], rows[:4])
    quiet = search.tell(state, rows, sphere(rows))
    assert quiet.noise < 0 and quiet.repetitions == 1.0
    loud = noise.normal(size=14)
    found = search.tell(state, rows, loud)
    assert found.noise > 0 and found.repetitions == 1.5
    most = replace(state, repetitions=3.0)
    widened, same = search.tell(most, rows, loud), found
    assert widened.repetitions == 3.0 and widened.sigma == pytest.approx(same.sigma * (1 + 2 / 14))
    assert search.tell(most, rows, sphere(rows)).repetitions == 2.0
    # The mean of two values ranks: only the second of them is good here.
    ranked = search.tell(state, rows, np.r_[0.0, np.ones(9), 4.0, np.ones(3)])
    plain = replace(search, reevaluated=0)
    assert np.array_equal(ranked.mean, plain.tell(plain.start(np.zeros(4)), rows[:10], np.r_[2.0, np.ones(9)]).mean)


@pytest.mark.parametrize(
    "search",
    [CMA(population=6, elitism=True), CEM(population=6, best_frac=0.4, extra_std=0.0, elitism=True)],
    ids=["cma", "cem"],
)
def test_elitism_brings_the_best_back(search):
    state, generator = search.start(np.zeros(3)), np.random.default_rng(0)
    rows = search.ask(state, generator)
    fitness = sphere(rows)
    state = search.tell(state, rows, fitness)
    again = search.ask(state, generator)
    assert np.array_equal(again[0], rows[fitness.argmax()])
    far = again.copy()
    far[0] += 1e6  # as one that somebody puts in: the mean goes no farther than a drawn one would take it
    if isinstance(search, CMA):
        moved = search.tell(state, far, np.arange(6.0)[::-1]).mean - state.mean
        assert np.linalg.norm(moved) < 10.0


@pytest.mark.parametrize(
    ("make", "about"),
    [
        (lambda: CMA(sigma=-0.1), "sigma"),
        (lambda: CMA(population=1), "population"),
        (lambda: CMA(population=4, reevaluated=5), "reevaluated"),
        (lambda: CMA(max_evaluations=0), "max_evaluations"),
        (lambda: CEM(population=10, best_frac=0.05), "best_frac must leave at least one of population=10 candidates"),
        (lambda: CEM(population=10, best_frac=1.5), "best_frac"),
        (lambda: CEM(population=20, covariance="ful"), "covariance"),
        (lambda: ARS(num_best=9), "num_best"),
        (lambda: ARS(sigma=0.0), "sigma"),
        (lambda: OpenAIES(shaping="rank"), "shaping"),
        (lambda: PGPE(init_sigma=-1.0), "init_sigma"),
        (lambda: SNES(population=1), "population"),
        (lambda: HillClimb(init_sigma=9.0), "init_sigma"),
    ],
)
def test_bad_settings_are_named(make, about):
    with pytest.raises(ValueError, match=about):
        make()
