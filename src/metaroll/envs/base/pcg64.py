"""The first numbers of ``np.random.Generator(np.random.PCG64(seed))`` for many seeds at once, in every bit.

Gymnasium's ``reset(seed=)`` makes such a generator, which takes 10 microseconds; of many, it takes under one. A seed is
spread by NumPy's ``SeedSequence`` (M. E. O'Neill 2015, "Developing a seed_seq alternative", with a pool of four words).
The generator is PCG XSL RR 128/64 (O'Neill 2014, "PCG: A family of simple fast space-efficient statistically good
algorithms for random number generation", HMC-CS-2014-0905).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

__all__ = ["pcg64_uniforms"]

_WORD = 0xFFFF_FFFF
_POOL = 4
_INIT_A, _MULT_A, _INIT_B, _MULT_B = 0x43B0D7E5, 0x931E8875, 0x8B51F9DD, 0x58F38DED
_MIX_LEFT, _MIX_RIGHT = np.uint32(0xCA01F9DD), np.uint32(0x4973F715)
_FACTOR_HIGH, _FACTOR_LOW = np.uint64(0x2360ED051FC65DA4), np.uint64(0x4385DF649FCCF645)
_HALF, _MASK = np.uint64(32), np.uint64(_WORD)

Wide = tuple[np.ndarray, np.ndarray]
"""Upper and lower 64 bits of numbers of 128 bits."""


def pcg64_uniforms(seeds: np.ndarray, count: int) -> np.ndarray:
    """The result of ``Generator(PCG64(seed)).random(count)`` for each seed.

    Args:
        seeds: Integers of at most 32 bits, ``(N,)``.
        count: Numbers per seed.

    Returns:
        float64 in [0, 1), shape ``(N, count)``.

    Raises:
        ValueError: A seed is negative, or has more bits.
    """
    seeds = np.asarray(seeds)
    if seeds.size and (seeds.min() < 0 or int(seeds.max()) > _WORD):
        raise ValueError(f"seeds must lie in [0, 2**32), got {seeds.min()} to {seeds.max()}")
    words = _spread(seeds.astype(np.uint32))
    start, sequence = (words[0], words[1]), (words[2], words[3])
    increment = (sequence[0] << np.uint64(1) | sequence[1] >> np.uint64(63), sequence[1] << np.uint64(1) | np.uint64(1))
    state = _step(_sum(increment, start), increment)
    out = np.empty((len(seeds), count))
    for number in range(count):
        state = _step(state, increment)
        high, low = state
        mixed, turn = high ^ low, high >> np.uint64(58)
        mixed = mixed >> turn | mixed << (-turn & np.uint64(63))
        out[:, number] = (mixed >> np.uint64(11)) * 2.0**-53
    return out


def _constants(first: int, factor: int) -> Iterator[tuple[np.uint32, np.uint32]]:
    """The constants of each hash of ``SeedSequence``: before and after the multiplication."""
    while True:
        following = first * factor & _WORD
        yield np.uint32(first), np.uint32(following)
        first = following


def _hashed(values: np.ndarray, constants: tuple[np.uint32, np.uint32]) -> np.ndarray:
    values = (values ^ constants[0]) * constants[1]
    return values ^ values >> np.uint32(16)


def _spread(seeds: np.ndarray) -> list[np.ndarray]:
    """``SeedSequence(seed).generate_state(4, np.uint64)`` as four columns ``(N,)``."""
    constants = _constants(_INIT_A, _MULT_A)
    pool = [_hashed(values, next(constants)) for values in (seeds, *[np.zeros_like(seeds)] * (_POOL - 1))]
    for source in range(_POOL):
        for target in range(_POOL):
            if source != target:
                mixed = _MIX_LEFT * pool[target] - _MIX_RIGHT * _hashed(pool[source], next(constants))
                pool[target] = mixed ^ mixed >> np.uint32(16)
    constants = _constants(_INIT_B, _MULT_B)
    words = [_hashed(pool[i % _POOL], next(constants)).astype(np.uint64) for i in range(8)]
    return [low | high << _HALF for low, high in zip(words[::2], words[1::2], strict=True)]


def _sum(a: Wide, b: Wide) -> Wide:
    low = a[1] + b[1]
    return a[0] + b[0] + (low < a[1]), low


def _step(state: Wide, increment: Wide) -> Wide:
    """The next state: times the factor, plus the increment, modulo 2**128."""
    high, low = state
    # Upper half of low * _FACTOR_LOW, from products of 32 bits.
    a, b, c, d = low >> _HALF, low & _MASK, _FACTOR_LOW >> _HALF, _FACTOR_LOW & _MASK
    lower, middle = b * d, a * d
    middle = middle + (lower >> _HALF)
    other = b * c + (middle & _MASK)
    carried = a * c + (middle >> _HALF) + (other >> _HALF)
    product = (high * _FACTOR_LOW + low * _FACTOR_HIGH + carried, low * _FACTOR_LOW)
    return _sum(product, increment)
