"""Random numbers come from generators derived here; nothing touches a global generator for longer than a ``with``."""

from __future__ import annotations

import hashlib
import random
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from metaroll.checks import check_whole, described

__all__ = [
    "GlobalStates",
    "GlobalStream",
    "as_generator",
    "as_torch_generator",
    "derive_seed",
    "effective_seed",
    "fresh_seed",
    "get_base_seed",
    "global_states",
    "isolated_rng",
    "policy_generator",
    "seed_sequence",
    "set_seed",
    "torch_generator",
]


def fresh_seed() -> int:
    """A seed from the operating system's entropy; record it, then everything can be replayed."""
    return secrets.randbits(31)


_base_seed: int | None = None


def set_seed(seed: int | None, sub_seed: int | None = None, sub_sub_seed: int | None = None) -> int | None:
    """Remember ``seed`` as the seed of samplers that are built without one.

    No generator is touched: the samplers derive their own generators from it. ``None`` forgets the seed.

    Returns:
        ``effective_seed(seed, sub_seed, sub_sub_seed)``, with which third-party code may be seeded:
        ``with isolated_rng(set_seed(3)): ...``. ``None`` for ``None``.
    """
    global _base_seed
    effective = None if seed is None else effective_seed(seed, sub_seed, sub_sub_seed)
    _base_seed = None if seed is None else int(seed)
    return effective


def get_base_seed() -> int | None:
    """The seed that ``set_seed`` was given last, or ``None``."""
    return _base_seed


def effective_seed(seed: int, sub_seed: int | None = None, sub_sub_seed: int | None = None) -> int:
    """A 32-bit seed for global generators: MD5 of ``"seed-sub-subsub"``.

    Any integers do; ``None`` sub-seeds count as 0. Used where a documented function seeds global generators; what is
    ours draws from ``seed_sequence``.
    """
    parts = []
    for name, given in (("seed", seed), ("sub_seed", sub_seed), ("sub_sub_seed", sub_sub_seed)):
        value = 0 if given is None and name != "seed" else given
        if isinstance(value, bool) or not isinstance(value, int | np.integer):
            raise TypeError(f"{name} must be an integer, got {described(value)}")
        parts.append(str(int(value)))
    return int.from_bytes(hashlib.md5("-".join(parts).encode(), usedforsecurity=False).digest(), "big") % 2**32


def seed_sequence(seed: int, sub_seed: int | None = None, sub_sub_seed: int | None = None) -> np.random.SeedSequence:
    """The source of all randomness of the rollout ``(seed, sub_seed, sub_sub_seed)``; ``None`` sub-seeds count as 0."""
    return np.random.SeedSequence(_whole("seed", seed), spawn_key=_sub_seeds(sub_seed, sub_sub_seed))


def _sub_seeds(sub_seed: int | None, sub_sub_seed: int | None) -> tuple[int, int]:
    return (
        0 if sub_seed is None else _whole("sub_seed", sub_seed),
        0 if sub_sub_seed is None else _whole("sub_sub_seed", sub_sub_seed),
    )


def _whole(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name} must be an integer, got {described(value)}")
    if value < 0:
        raise ValueError(f"{name} must not be negative, got {value}")
    return int(value)


def derive_seed(*parts: int | str) -> int:
    """One 31-bit seed from several names and numbers, the same on every machine (SHA-256 of their text)."""
    text = "\x1f".join(f"{type(p).__name__}:{p}" for p in parts)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") >> 1


def as_generator(generator: np.random.Generator | int | Sequence[int] | None) -> np.random.Generator:
    """``generator`` itself, one seeded with it, or (``None``) one with fresh entropy.

    Raises:
        TypeError: It is something else.
        ValueError: It is a negative seed.
    """
    if isinstance(generator, np.random.Generator):
        return generator
    try:
        return np.random.default_rng(generator)
    except (TypeError, ValueError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(
            "generator must be a NumPy Generator, a seed (an integer of at least 0) or None, got "
            f"{described(generator)}"
        ) from error


def as_torch_generator(generator: torch.Generator | None) -> torch.Generator:
    """``generator`` itself, or (``None``) one with fresh entropy.

    Raises:
        TypeError: It is something else.
    """
    if generator is None:
        return torch_generator(fresh_seed())
    if not isinstance(generator, torch.Generator):
        is_seed = isinstance(generator, int | np.integer) and not isinstance(generator, bool)
        hint = f"; write torch.Generator().manual_seed({generator})" if is_seed else ""
        raise TypeError(f"generator must be a torch.Generator or None, got {described(generator)}{hint}")
    return generator


def torch_generator(seed: int, device: str | torch.device = "cpu") -> torch.Generator:
    """A new torch generator with this seed."""
    generator = torch.Generator(device=device)
    generator.manual_seed(int(seed) & 0x7FFF_FFFF_FFFF_FFFF)
    return generator


@contextmanager
def isolated_rng(seed: int) -> Iterator[None]:
    """Seed the global generators of ``random``, NumPy and torch (CPU and CUDA), and give them back as they were.

    For third-party code that draws from them; slow, since three generator states are saved and restored.
    """
    seed = check_whole("seed", seed, 0, 2**64 - 1)  # the largest that torch takes
    before = global_states()
    try:
        random.seed(seed)
        np.random.seed(seed & 0xFFFF_FFFF)
        # torch.manual_seed also seeds every CUDA device (lazily where CUDA has not started).
        torch.default_generator.manual_seed(seed)
        if before[3] is not None:
            torch.cuda.manual_seed_all(seed)
        yield
    finally:
        _set_global_states(before)


class GlobalStream:
    """One seeded stream of the global generators, in pieces: each ``with stream.active():`` continues where the last
    ended, and gives the caller's generators back as they were.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._states: GlobalStates | None = None

    @contextmanager
    def active(self) -> Iterator[None]:
        """The global generators are this stream's."""
        with isolated_rng(self._seed):
            if self._states is not None:
                _set_global_states(self._states)
            try:
                yield
            finally:
                self._states = global_states()


GlobalStates = tuple[Any, Any, Any, list[Any] | None]


def global_states() -> GlobalStates:
    """States of the generators of ``random``, NumPy, torch on the CPU, and torch on CUDA if that has started."""
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() and torch.cuda.is_initialized() else None
    return random.getstate(), np.random.get_state(), torch.get_rng_state(), cuda


def _set_global_states(states: GlobalStates) -> None:
    python_state, numpy_state, torch_state, cuda_states = states
    random.setstate(python_state)
    np.random.set_state(numpy_state)
    torch.set_rng_state(torch_state)
    if cuda_states is not None:
        torch.cuda.set_rng_state_all(cuda_states)


_POLICY = 3
"""Number of the child of a rollout's seed sequence from which its policy draws."""


def policy_generator(seed: tuple[int, int, int]) -> np.random.Generator:
    """The generator that the policy of the rollout seeded with ``seed`` draws from when the rollout begins.

    Noise of steps is no stream but numbers by position (``functional/philox.py``), as the environment's seed is.
    """
    # The child of seed_sequence(*seed), without building its parent.
    child = np.random.SeedSequence(_whole("seed", seed[0]), spawn_key=(*_sub_seeds(*seed[1:]), _POLICY))
    return np.random.Generator(np.random.PCG64(child))
