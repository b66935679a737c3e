"""Calls that are bound to fail are told before they are made, and no others."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from metaroll.checks import takes_arguments


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
