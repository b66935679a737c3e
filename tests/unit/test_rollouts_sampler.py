"""specs/sampling.md 9: the interface of samplers and its bounds."""

from __future__ import annotations

import numpy as np
import pytest

from metaroll.rollouts.samplers.sampler import SamplerBase


class Empty(SamplerBase):
    def reinit(self, env=None, policy=None):
        self.given = (env, policy)

    def sample(self):
        return []


def test_sampler_base_is_abstract_and_keeps_its_bounds():
    """specs/sampling.md 9: reinit and sample are abstract; at least one bound is needed."""
    with pytest.raises(TypeError, match="abstract"):
        SamplerBase(min_rollouts=1)
    sampler = Empty(min_rollouts=3)
    assert (sampler.min_rollouts, sampler.min_steps, sampler.sample()) == (3, None, [])
    sampler.reinit("env")
    assert sampler.given == ("env", None)


def test_set_min_count_replaces_both():
    """specs/sampling.md 9: set_min_count replaces both bounds."""
    sampler = Empty(min_rollouts=3)
    sampler.set_min_count(min_steps=np.int64(5))
    assert (sampler.min_rollouts, sampler.min_steps) == (None, 5)
    sampler.set_min_count(2, 4)
    assert (sampler.min_rollouts, sampler.min_steps) == (2, 4)


@pytest.mark.parametrize(
    ("bounds", "error"),
    [
        ({}, ValueError),
        ({"min_rollouts": 0}, ValueError),
        ({"min_rollouts": 2, "min_steps": -1}, ValueError),
        ({"min_steps": 2.5}, TypeError),
        ({"min_rollouts": True}, TypeError),
    ],
)
def test_bad_bounds_are_refused_and_change_nothing(bounds, error):
    with pytest.raises(error, match="min_"):
        Empty(**bounds)
    sampler = Empty(min_rollouts=3)
    with pytest.raises(error, match="min_"):
        sampler.set_min_count(**bounds)
    assert (sampler.min_rollouts, sampler.min_steps) == (3, None)
