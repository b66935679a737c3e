"""specs/sampling.md 0.3: the seed that is set once, and the seeds of global generators that are derived from it."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from metaroll.seeding import GlobalStream, effective_seed, get_base_seed, isolated_rng, set_seed

GOLDEN = {
    (0,): 813134492,
    (0, 0, 1): 4276188331,
    (0, 1, 0): 229607210,
    (0, 1, 1): 3918913762,
    (1, 0, 0): 532102107,
    (1, 0, 1): 2754337450,
    (1, 1, 0): 713485941,
    (1, 1, 1): 3511146676,
}


@pytest.fixture(autouse=True)
def forget():
    yield
    set_seed(None)


@pytest.mark.parametrize(("seeds", "expected"), GOLDEN.items())
def test_golden_values(seeds, expected):
    """specs/sampling.md 0.3: the values of upstream's own test; None and 0 are equivalent."""
    assert effective_seed(*seeds) == expected
    assert effective_seed(*(s or None if i else s for i, s in enumerate(seeds))) == expected
    assert set_seed(*(np.int64(s) for s in seeds)) == expected and get_base_seed() == seeds[0]


def test_any_integers_do_and_nothing_else():
    assert effective_seed(5, -1) != effective_seed(5, 1)
    assert 0 <= effective_seed(-(10**30), 2**70) < 2**32
    set_seed(4)
    for wrong in (1.0, "1", True, object(), "", np.arange(2)):
        with pytest.raises(TypeError, match="seed must be an integer"):
            set_seed(wrong)
        with pytest.raises(TypeError, match="sub_seed must be an integer"):
            set_seed(1, wrong)
    assert get_base_seed() == 4  # what was refused is not remembered
    assert set_seed(None) is None and get_base_seed() is None


def draw():
    return random.random(), np.random.rand(), torch.rand(1).item()


def test_a_stream_goes_on_where_it_ended_and_the_callers_generators_stay():
    with isolated_rng(9):
        expected = [draw(), draw()]
    before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
    stream = GlobalStream(9)
    with stream.active():
        first = draw()
    with pytest.raises(ArithmeticError), stream.active():
        second = draw()
        raise ArithmeticError
    assert [first, second] == expected
    assert (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()) == before
