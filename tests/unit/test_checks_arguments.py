"""Calls that are bound to fail are told before they are made, and no others."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from metaroll.checks import (
    check_fraction,
    check_number,
    check_seed,
    check_unit_interval,
    check_whole,
    described,
    plain_number,
    takes_arguments,
)
from metaroll.errors import shortened


def with_namespace(func):
    """Hands on one argument more than it is given, under the name and signature of ``func``."""

    @functools.wraps(func)
    def handed_on(*args):
        return func("extra", *args)

    return handed_on


class Called:
    def __call__(self, x, axis):
        return x


@pytest.mark.parametrize(
    ("func", "taken"),
    [
        (lambda x, axis: x, True),
        (lambda x, **kwargs: x, True),
        (functools.partial(np.quantile, q=0.5), True),
        (Called(), True),
        (np.mean, True),
        (max, True),  # tells nothing about itself
        (lambda x: x, False),
        (lambda x, y, axis: x, False),
    ],
)
def test_what_takes_an_array_and_an_axis(func, taken):
    assert takes_arguments(func, np.zeros(3), axis=0) is taken


def test_what_a_decorator_hands_on_is_its_own_affair():
    assert takes_arguments(with_namespace(lambda extra, x: x), 1)


@pytest.mark.parametrize("bits", [2000, 20_000])
@pytest.mark.parametrize("sign", [1, -1])
def test_integers_that_no_float_and_no_text_holds_are_refused_in_short(bits, sign):
    """Python raised ``OverflowError``, or would not write them, wherever they were looked at."""
    huge = sign << bits
    for check in (
        lambda: check_whole("n", huge),
        lambda: check_seed("n", huge),
        lambda: check_number("n", huge, -np.inf),
        lambda: check_unit_interval("n", huge),
        lambda: check_fraction("n", huge),
        lambda: plain_number("n", huge),
    ):
        with pytest.raises(ValueError, match=r"^n must .*got (-?inf$|.*\.\.\.)") as caught:
            check()
        assert len(str(caught.value)) < 160
    assert len(described(huge)) < 80 and shortened([1 << 20_000]) == "an object of type list"


def test_seeds_may_be_larger_than_counts():
    assert check_seed("seed", 2**128 - 1) == 2**128 - 1 and check_whole("n", 2**63 - 1) == 2**63 - 1
    for check, value in ((check_seed, 2**128), (check_whole, 2**63)):
        with pytest.raises(ValueError, match="n must be at most"):
            check("n", value)
