"""Several starts of one search: rounds by hand, two hills, what is given up, ends, bounds, resuming, bad input."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from metaroll.errors import ShapeError
from metaroll.functional.search.base import Search, restored_search
from metaroll.functional.search.cma import CMA
from metaroll.functional.search.finite_differences import ARS
from metaroll.functional.search.multi_start import MultiStart, MultiStartState, Starts
from metaroll.functional.search.restarts import RestartedCMA
from metaroll.state import tree_of

FORK = -10.0 / 12.0  # 10 - (x - 3)^2 = -(x + 3)^2
STEADY = CMA(sigma=0.05, population=6)


def hills(rows: np.ndarray) -> np.ndarray:
    """A hill of height 10 at (3, 0), and one of height 0 at (-3, 0), which all see that are left of ``FORK``."""
    x, rest = rows[:, 0], np.square(rows[:, 1:]).sum(axis=1)
    return np.maximum(10.0 - np.square(x - 3.0), -np.square(x + 3.0)) - rest


def run(search: Search[Any], state: Any, generations: int, fitness: Any = hills, seed: int = 0) -> Any:
    generator = np.random.default_rng(seed)
    for _ in range(generations):
        rows = search.ask(state, generator)
        assert len(rows) == search.num_candidates(state)
        state = search.tell(state, rows, fitness(rows))
    return state


def multi(search: Search[Any] = STEADY, **rules: Any) -> MultiStart:
    return MultiStart(search=search, rules=Starts(**{"starts": 4, "round_length": 3, **rules}))


# ------------------------------------------------------------------------------------------------------------- by hand
def test_rounds_take_the_same_number_of_candidates():
    assert Starts(starts=8, round_length=10).rounds == ((8, 10), (4, 20), (2, 40))
    assert Starts(starts=9, round_length=4, reduction=3).rounds == ((9, 4), (3, 12))
    assert Starts(starts=5, round_length=6).rounds == ((5, 6), (3, 10), (2, 15))
    assert Starts(starts=3, round_length=7, reduction=9).rounds == ((3, 7),)
    assert Starts().rounds == ()


def test_starts_are_given_up_after_each_round():
    search = multi()
    state, generator, seen = search.start(np.zeros(2)), np.random.default_rng(0), []
    for _ in range(12):
        rows = search.ask(state, generator)
        seen.append(len(rows))
        state = search.tell(state, rows, hills(rows))
    assert seen == [24] * 3 + [12] * 6 + [6] * 3
    assert (state.generation, state.evaluations, state.runs[0].generation) == (12, sum(seen), 12)
    assert search.numbers(state)["starts"] == 1.0 and search.numbers(state)["leading_start"] == state.starts[0]
    assert np.array_equal(state.mean, state.runs[0].mean)


def test_it_is_the_loop_over_single_searches():
    """A slow reference: searches of their own, scores as lists, and the best half by sorting."""
    search = multi()
    state = search.start(np.array([-1.0, 0.5]))
    left = {number: (each, 0.0) for number, each in enumerate(state.runs)}
    generators = [np.random.default_rng(5), np.random.default_rng(5)]
    for generation in range(1, 11):
        rows = search.ask(state, generators[0])
        state = search.tell(state, rows, hills(rows))
        for number, (each, score) in left.items():
            tried = STEADY.ask(each, generators[1])
            values = hills(tried)
            left[number] = STEADY.tell(each, tried, values), score + generation * float(np.median(values))
        if generation in (3, 9):
            ranked = sorted(left, key=lambda number: left[number][1], reverse=True)
            left = {number: left[number] for number in sorted(ranked[: len(ranked) // 2])}
        assert state.starts.tolist() == list(left)
        assert np.allclose(state.scores, [score for _, score in left.values()])
        best = max(left, key=lambda number: left[number][1])
        assert state.starts[state.leader] == best and np.array_equal(state.mean, left[best][0].mean)
        for found, (expected, _) in zip(state.runs, left.values(), strict=True):
            assert repr(tree_of(found)) == repr(tree_of(expected))


def test_one_start_is_the_search_itself():
    one = multi(starts=1)
    found, alone = run(one, one.start(np.ones(3)), 8), run(STEADY, STEADY.start(np.ones(3)), 8)
    assert np.array_equal(found.mean, alone.mean) and found.best_fitness == alone.best_fitness


def test_a_lucky_candidate_does_not_save_a_start():
    search = multi(starts=2, round_length=2)
    state = search.start(np.zeros(2))
    for _ in range(2):
        rows = search.ask(state, np.random.default_rng(0))
        state = search.tell(state, rows, np.r_[[99.0] + [0.0] * 5, [1.0] * 6])
    assert state.starts.tolist() == [1] and state.best_fitness == 99.0


# ----------------------------------------------------------------------------------------------------------- two hills
def test_of_several_starts_one_is_on_the_higher_hill():
    """The first start never is; another one with P(-2 + 3 z > FORK) = 0.35, so that of 7 one is in 95 %."""
    once, first, single, found = CMA(sigma=0.3, population=6), np.array([-2.0, 0.0]), [], []
    search = multi(once, starts=8, round_length=15, start_std=3.0)
    assert hills(run(once, once.start(first), 60).mean[None])[0] < 0.01
    for seed in range(12):
        state = search.seeded(search.start(first), seed)
        above = [bool(each.mean[0] > FORK) for each in state.runs]
        state = run(search, state, 60, seed=seed)
        assert (hills(state.mean[None])[0] > 9.9) == any(above)
        single += above[1:]
        found.append(any(above))
    assert 0.25 < np.mean(single) < 0.45 and np.mean(found) >= 0.9


def test_starts_follow_from_the_seed():
    search = multi()
    begun = search.start(np.zeros(2))
    assert np.array_equal(begun.runs[0].mean, np.zeros(2))
    others = [search.seeded(begun, seed) for seed in (1, 1, 2)]
    places = [np.stack([each.mean for each in state.runs]) for state in others]
    assert np.array_equal(places[0], places[1]) and not np.array_equal(places[0][1:], places[2][1:])
    wide = multi(starts=200, start_std=2.0).start(np.full(3, 7.0))
    offsets = np.stack([each.mean for each in wide.runs[1:]]) - 7.0
    assert offsets.std() == pytest.approx(2.0, rel=0.1)
    near = multi(ARS(sigma=0.1), starts=200).start(np.zeros(3))
    assert np.stack([each.mean for each in near.runs[1:]]).std() == pytest.approx(0.1, rel=0.1)
    restarts = multi(RestartedCMA(cma=STEADY)).start(np.zeros(2))
    assert len({each.seed for each in restarts.runs}) == 4


def test_starts_lie_within_bounds():
    boxed = CMA(sigma=0.3, population=6, lower=[0.0, -1.0], upper=[1.0, 4.0])
    for rules in ({"starts": 60}, {"starts": 60, "start_std": 3.0}):
        search = multi(boxed, **rules)
        state = search.start(np.array([0.5, 0.0]))
        places = np.stack([each.mean for each in state.runs])
        rows = search.ask(state, np.random.default_rng(0))
        for found in (places, rows):
            assert (found >= [0.0, -1.0]).all() and (found <= [1.0, 4.0]).all()
        assert places[:, 1].max() > 3.0
    half = multi(CMA(sigma=2.0, lower=0.0), starts=30).start(np.array([0.1, 0.1]))
    assert min(each.mean.min() for each in half.runs) == 0.0


# ---------------------------------------------------------------------------------------------- ends, and what is lost
def test_a_start_without_any_fitness_is_given_up():
    search = multi(starts=2, round_length=1)
    state = search.start(np.zeros(2))
    rows = search.ask(state, np.random.default_rng(0))
    found = search.tell(state, rows, np.r_[np.full(6, math.nan), np.zeros(6)])
    assert found.starts.tolist() == [1]
    longer = multi(starts=2).tell(state, rows, np.r_[np.full(6, math.nan), np.zeros(6)])
    assert longer.runs[0] is state.runs[0] and longer.latest.tolist() == [-math.inf, 0.0] and longer.leader == 1


def test_a_start_that_has_ended_is_asked_no_more():
    search = multi(CMA(population=6, sigma=0.05, tolx=0.5), starts=3, round_length=50)
    state = run(search, search.start(np.zeros(2)), 1)
    generator, counts = np.random.default_rng(1), []
    while not search.stop(state):
        rows = search.ask(state, generator)
        counts.append(len(rows))
        state = search.tell(state, rows, hills(rows))
    assert set(counts) == {18, 12, 6} and counts == sorted(counts, reverse=True)
    assert search.stop(state) == ("tolx",) and len(state.runs) == 3
    assert search.num_candidates(state) == 18  # whoever goes on in spite of it asks all


def test_a_target_ends_all_with_the_start_that_reached_it():
    search = multi(CMA(population=6, sigma=0.05, target=9.0), starts=8, start_std=3.0, round_length=500)
    state, generator = search.seeded(search.start(np.array([-2.0, 0.0])), 3), np.random.default_rng(0)
    while not search.stop(state):
        rows = search.ask(state, generator)
        state = search.tell(state, rows, hills(rows))
    assert search.stop(state) == ("target",) and len(state.runs) == 8
    assert state.runs[state.leader].best_fitness == state.best_fitness >= 9.0
    assert np.array_equal(state.mean, state.runs[state.leader].mean)


# ------------------------------------------------------------------------------------------------------------ resuming


# ----------------------------------------------------------------------------------------------------------- bad input
@pytest.mark.parametrize(
    "wrong", [{"starts": 0}, {"round_length": 0}, {"reduction": 1}, {"start_std": 0.0}, {"start_std": math.nan}]
)
def test_bad_rules_are_named(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Starts(**wrong)


@pytest.mark.parametrize("change", [{"scores": np.zeros(3)}, {"runs": {}}, {"leader": 4}, {"starts": np.arange(5)}])
def test_a_saved_state_of_another_size_is_refused(change):
    search = multi()
    tree = tree_of(search.start(np.zeros(2)))
    with pytest.raises(ShapeError, match="one entry for each start"):
        restored_search(search.start(np.zeros(2)), {**tree, **change})


def test_bounds_that_exclude_the_mean_are_named():
    with pytest.raises(ValueError, match="hold the mean"):
        multi(CMA(lower=1.0)).start(np.zeros(2))
    assert isinstance(multi(CMA(lower=-1.0)).start(np.zeros(2)), MultiStartState)
