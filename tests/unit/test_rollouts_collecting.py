"""At least n: prefixes, estimates and rounds, by hand."""

from __future__ import annotations

import pytest

from metaroll.errors import RolloutError
from metaroll.rollouts.collecting import collect_at_least, enough, still_missing


@pytest.mark.parametrize(
    ("sizes", "bounds", "length"),
    [
        ([], (None, 1), None),
        ([3, 3, 3], (None, 6), 2),
        ([3, 3, 3], (3, 6), 3),
        ([3, 3, 3], (2, None), 2),
        ([3, 3, 3], (None, 10), None),
        ([3, 3, 3], (4, 1), None),
    ],
)
def test_the_shortest_prefix(sizes, bounds, length):
    assert enough(sizes, *bounds) == length


@pytest.mark.parametrize(
    ("sizes", "started", "bounds", "more"),
    [
        ([5, 5], 2, (None, 10), 0),
        ([5, 5], 2, (3, 10), 1),
        ([5, 5], 2, (None, 21), 3),  # 11 are missing, of 5 each
        ([1, 1], 2, (None, 100), 4),  # twice as many as were started
        ([], 3, (None, 2), 2),  # of all dropped ones nothing is known
        ([2], 3, (2, None), 1),
    ],
)
def test_how_many_are_missing(sizes, started, bounds, more):
    assert still_missing(sizes, started, *bounds) == more


def test_rounds_until_there_is_enough():
    rounds = []

    def run(number, count):
        rounds.append((number, count))
        return [1 + k % 3 for k in range(number, number + count)]

    found = collect_at_least(run, int, 2, min_size=9, nothing=ValueError)
    assert found == [1, 2, 3, 1, 2]  # 9 in all; the sixth was run, and is dropped
    assert rounds == [(0, 2), (2, 4)]
    assert collect_at_least(run, int, 4, min_count=3, nothing=ValueError) == [1, 2, 3, 1]


def test_nothing_but_dropped_ones_is_an_error_in_the_end():
    with pytest.raises(LookupError, match="32"):
        collect_at_least(lambda number, count: [], len, 8, min_count=8, nothing=lambda n: LookupError(str(n)))


def test_an_error_holds_what_earlier_rounds_brought():
    def run(number, count):
        if number:
            error = RolloutError("broken")
            error.completed = [7]
            raise error
        return [5]

    with pytest.raises(RolloutError) as caught:
        collect_at_least(run, int, 1, min_size=100, nothing=ValueError)
    assert caught.value.completed == [5, 7]
