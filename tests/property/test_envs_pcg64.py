"""First numbers of many of NumPy's generators at once."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium.utils import seeding
from hypothesis import given
from hypothesis import strategies as st

from metaroll.envs.base.pcg64 import pcg64_uniforms

SEEDS = st.lists(st.integers(0, 2**32 - 1) | st.sampled_from([0, 1, 2**31 - 1, 2**32 - 1]), min_size=1, max_size=40)


@given(SEEDS, st.integers(0, 9))
def test_numbers_are_those_of_gymnasium_generators(seeds, count):
    """Bit for bit, and so are NumPy's own."""
    found = pcg64_uniforms(np.array(seeds), count)
    np.testing.assert_array_equal(found, [seeding.np_random(seed)[0].random(count) for seed in seeds])
    np.testing.assert_array_equal(found, [np.random.Generator(np.random.PCG64(s)).random(count) for s in seeds])


def test_many_seeds_are_exact_and_none_is_warned_about(recwarn):
    seeds = np.random.default_rng(0).integers(2**31, size=5000)
    expected = [np.random.Generator(np.random.PCG64(seed)).random(4) for seed in seeds.tolist()]
    np.testing.assert_array_equal(pcg64_uniforms(seeds, 4), expected)
    assert not recwarn.list
    assert pcg64_uniforms(np.zeros(0, dtype=np.int64), 4).shape == (0, 4)


@pytest.mark.parametrize("seed", [-1, 2**32])
def test_other_seeds_are_refused(seed):
    with pytest.raises(ValueError, match="seeds must lie in"):
        pcg64_uniforms(np.array([seed]), 1)
