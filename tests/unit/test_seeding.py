"""Generators are derived, never global."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from metaroll.seeding import (
    as_generator,
    as_torch_generator,
    derive_seed,
    isolated_rng,
    policy_generator,
    seed_sequence,
)
from metaroll.tasks.plan_table import plan_env_seed


def test_none_sub_seeds_count_as_zero():
    """design.md 4.6."""
    assert seed_sequence(3).generate_state(4).tolist() == seed_sequence(3, 0, 0).generate_state(4).tolist()
    assert seed_sequence(3).generate_state(4).tolist() != seed_sequence(3, 0, 1).generate_state(4).tolist()


def test_the_policy_of_a_rollout_draws_from_a_child_of_its_seed():
    root = seed_sequence(1, 2, 3)
    child = np.random.SeedSequence(root.entropy, spawn_key=(*root.spawn_key, 3))
    assert policy_generator((1, 2, 3)).random() == np.random.Generator(np.random.PCG64(child)).random()
    assert plan_env_seed((1, 2, 3)) == plan_env_seed((1, 2, 3)) != plan_env_seed((1, 2, 4))


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ((-1,), ValueError, "seed must not be negative"),
        ((1.5,), TypeError, "seed must be an integer"),
        ((0, True), TypeError, "sub_seed"),
        ((0, 0, -2), ValueError, "sub_sub_seed"),
    ],
)
def test_bad_seeds_are_refused(arguments, error, text):
    with pytest.raises(error, match=text):
        seed_sequence(*arguments)


def test_isolated_rng_seeds_and_restores_the_global_generators():
    before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state()
    draws = []
    for _ in range(2):
        with isolated_rng(7):
            draws.append((random.random(), np.random.rand(), torch.rand(1).item()))
    assert draws[0] == draws[1]
    assert random.getstate() == before[0] and np.random.get_state()[1].tolist() == before[1]
    assert torch.equal(torch.get_rng_state(), before[2])
    with pytest.raises(KeyError), isolated_rng(7):
        raise KeyError
    assert random.getstate() == before[0]


def test_derive_seed_separates_its_parts():
    assert derive_seed("a", 1) == derive_seed("a", 1)
    assert (
        len({derive_seed("a", 1), derive_seed("a", 2), derive_seed("b", 1), derive_seed("a1"), derive_seed("a", "1")})
        == 5
    )
    assert 0 <= derive_seed("x") < 2**31


def test_as_generator():
    generator = np.random.default_rng(0)
    assert as_generator(generator) is generator
    assert as_generator(5).random() == as_generator(5).random()
    assert as_generator(None).random() != as_generator(None).random()
    torch_generator = torch.Generator()
    assert as_torch_generator(torch_generator) is torch_generator
    assert as_torch_generator(None).initial_seed() != as_torch_generator(None).initial_seed()


@pytest.mark.parametrize(
    ("convert", "given", "error"),
    [
        (as_generator, "x", TypeError),
        (as_generator, 2.5, TypeError),
        (as_generator, torch.Generator(), TypeError),
        (as_generator, -1, ValueError),
        (as_torch_generator, "x", TypeError),
        (as_torch_generator, np.random.default_rng(0), TypeError),
    ],
)
def test_other_things_than_generators_are_refused(convert, given, error):
    with pytest.raises(error, match=r"generator must be a .* or None, got"):
        convert(given)
    with pytest.raises(TypeError, match=r"write torch\.Generator\(\)\.manual_seed\(3\)"):
        as_torch_generator(np.int64(3))
    for seed, kind in ((True, TypeError), (0.5, TypeError), (-1, ValueError), (2**64, ValueError)):
        with pytest.raises(kind, match="seed must be"), isolated_rng(seed):
            pass
