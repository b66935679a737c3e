"""Conformance kits: plain functions that check whether an implementation keeps the promises of its protocol.

For environments, policies, searches, samplers and learners of ours and of others. Each raises a ``ConformanceError``
(an ``AssertionError``) that names the promise, what was seen, and a hint; under pytest a call is a whole test.
"""

from typing import TYPE_CHECKING

from metaroll.envs.base.checks import check_slots
from metaroll.errors import ConformanceError
from metaroll.exports import missing_attribute as _missing_attribute
from metaroll.rollouts.single.replay import assert_worker_invariant
from metaroll.testing.learners import check_learner
from metaroll.testing.policies import check_policy
from metaroll.testing.samplers import check_sampler
from metaroll.testing.searches import check_search

__all__ = [
    "ConformanceError",
    "assert_worker_invariant",
    "check_learner",
    "check_policy",
    "check_sampler",
    "check_search",
    "check_slots",
]


if not TYPE_CHECKING:  # a type checker would accept any name

    def __getattr__(name: str) -> object:
        raise _missing_attribute(__name__, name, __all__)
