"""Random numbers by position: Philox4x32-10, without a generator object per rollout.

A number depends on its stream (the row's seed triple and a role) and on its position in the stream, and on nothing
else: any part of a stream can be computed at any time, for any set of rows, with the same bits. The integers are those
of Salmon et al. 2011 ("Parallel random numbers: as easy as 1, 2, 3", SC '11, doi:10.1145/2063384.2063405), equal in
NumPy, numba and torch. Normal numbers come from NumPy's ``log``, ``cos`` and ``sin`` alone (numba's and torch's differ
in the last bit); these may differ between kinds of processors, as all of NumPy's do.

Layout of a stream: block ``b`` of four 32-bit words is Philox of the counter ``(b mod 2**32, keys[2], role + 256 * (b
div 2**32), keys[3])`` under the key ``(keys[0], keys[1])``. A float32 takes one word (position ``p`` lies in block
``p // 4``), a float64 two words (block ``p // 2``). Numbers of different kinds that are drawn from one role share
words: give each kind of number its own role.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from metaroll.checks import check_seed, check_whole, entry_text
from metaroll.errors import ShapeError
from metaroll.functional.kernels import compiled

__all__ = [
    "integers32",
    "normals",
    "normals_block",
    "philox4x32",
    "stream_keys",
    "torch_normals",
    "torch_uniforms",
    "uniforms",
]

_ROUNDS = 10
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)  # golden ratio and sqrt(3) - 1, by which Weyl's sequence moves the key
_WORD = 0xFFFF_FFFF
_FACTORS = np.array(_MULTIPLIERS, dtype=np.uint64)[:, None, None]
_KEY_PATH = (
    np.arange(_ROUNDS, dtype=np.uint64)[:, None, None, None] * np.array(_KEY_STEPS, dtype=np.uint64)[:, None, None]
)
_MASK, _HALF = np.uint64(_WORD), np.uint64(32)
_LARGE = 0x8000_0000  # set in keys[2] where a seed had to be mixed
_TILE = (
    8192  # blocks per tile: what is alive then fits the L2 cache (measured: 6 ns per word; 9 with 4096, 20 with 1024)
)

Words = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def philox4x32(counter: Any, key: Any) -> tuple[Any, Any, Any, Any]:
    """Philox4x32 with ten rounds, as published.

    Args:
        counter: Shape ``(..., 4)``, or a tuple of four arrays; integers, taken modulo 2**32.
        key: Shape ``(..., 2)``, or a tuple of two arrays; broadcast against the counter's.

    Returns:
        Four uint32 arrays of the broadcast shape; four int64 tensors, on their device, if the counter holds tensors.

    Raises:
        ShapeError: The last axis has not 4 (or 2) entries.
    """
    c, k = _lanes("counter", counter, 4), _lanes("key", key, 2)
    if isinstance(c[0], torch.Tensor):
        return _philox_torch(c, k)
    numbers = [np.asarray(x).astype(np.uint64) & _MASK for x in (*c, *k)]
    shape = np.broadcast_shapes(*(x.shape for x in numbers))
    c0, c1, c2, c3, k0, k1 = (np.broadcast_to(x, shape).reshape(1, -1) for x in numbers)
    words = _rounds(np.stack([c0, c2]), np.stack([c1, c3]), _round_keys(np.stack([k0, k1])))
    return tuple(x.reshape(shape) for x in words)  # type: ignore[return-value]


def _lanes(name: str, words: Any, count: int) -> list[Any]:
    if isinstance(words, tuple | list):
        lanes = list(words)
    else:
        lanes = [words[..., i] for i in range(words.shape[-1] if words.ndim else 0)]
    if len(lanes) != count:
        raise ShapeError(f"{name} must have {count} words along its last axis, got {len(lanes)}")
    return lanes


def _philox_torch(counter: Sequence[Any], key: Sequence[Any]) -> tuple[Any, Any, Any, Any]:
    # int64 products wrap modulo 2**64, and a masked shift takes their upper half whatever the sign.
    device = counter[0].device
    c0, c1, c2, c3, k0, k1 = (torch.as_tensor(x, device=device).to(torch.int64) & _WORD for x in (*counter, *key))
    for _ in range(_ROUNDS):
        p0, p1 = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c1, c2, c3 = ((p1 >> 32) & _WORD) ^ c1 ^ k0, p1 & _WORD, ((p0 >> 32) & _WORD) ^ c3 ^ k1, p0 & _WORD
        k0, k1 = (k0 + _KEY_STEPS[0]) & _WORD, (k1 + _KEY_STEPS[1]) & _WORD
    shape = torch.broadcast_shapes(c0.shape, c1.shape, c2.shape, c3.shape)
    return tuple(x.expand(shape) for x in (c0, c1, c2, c3))  # type: ignore[return-value]


def _round_keys(key: np.ndarray) -> np.ndarray:
    """Keys of all rounds ``(rounds, 2, 1, n)`` from the first ones ``(2, 1, n)``, uint64 below 2**32."""
    return key + _KEY_PATH & _MASK


def _rounds(even: np.ndarray, odd: np.ndarray, keys: np.ndarray) -> Words:
    """All rounds, on uint64 lanes that hold 32-bit words and are overwritten.

    Args:
        even: Words 0 and 2 of the counters, shape ``(2, B, n)``.
        odd: Words 1 and 3.
        keys: Keys of all rounds, ``(rounds, 2, 1, n)``.

    Returns:
        Four contiguous uint32 arrays ``(B, n)``.
    """
    loop = compiled("philox", even.size)
    if loop is not None:
        words = np.empty((4, *even.shape[1:]), dtype=np.uint32)
        loop(even, odd, np.ascontiguousarray(keys), words)
        return words[0], words[1], words[2], words[3]
    product = np.empty_like(even)
    swapped = product[::-1]
    for key in keys:
        np.multiply(even, _FACTORS, out=product)
        np.right_shift(swapped, _HALF, out=even)
        np.bitwise_xor(even, odd, out=even)
        np.bitwise_xor(even, key, out=even)
        np.bitwise_and(swapped, _MASK, out=odd)
    first, second = even.astype(np.uint32), odd.astype(np.uint32)
    return first[0], second[0], first[1], second[1]


def stream_keys(seeds: Any) -> np.ndarray:
    """Keys of the streams of rollouts, from their seed triples.

    Triples of numbers below 2**32 are their own key: ``(seed, sub_seed, 0, sub_sub_seed)``, so no two of them share
    one. Where a number of a triple is larger, the key is Philox of ``(seed, sub_seed)`` as two 64-bit numbers under
    ``sub_sub_seed``, with the highest bit of the third word set: no such key equals one of small numbers, and among
    each other they differ but for an accident of 2**-127 per pair. Numbers from 2**64 on are folded to 64 bits first
    (SHA-256 of their decimal digits).

    Args:
        seeds: Integers of at least 0, shape ``(N, 3)``: ``(seed, sub_seed, sub_sub_seed)``.

    Returns:
        uint32, shape ``(N, 4)``: two words of the key, and words 1 and 3 of the counter. Rows can be taken, put
        together and copied as those of any array.

    Raises:
        ShapeError: The shape is not ``(N, 3)``.
        TypeError: They are not integers.
        ValueError: One of them is negative.
    """
    table = _seed_table(seeds)
    keys = np.zeros((len(table), 4), dtype=np.uint32)
    keys[:, 0], keys[:, 1], keys[:, 3] = table[:, 0], table[:, 1], table[:, 2]
    large = (table > _MASK).any(axis=1)
    if large.any():
        low, high = table[large] & _MASK, table[large] >> _HALF
        words = philox4x32((low[:, 0], high[:, 0], low[:, 1], high[:, 1]), (low[:, 2], high[:, 2]))
        keys[large] = np.stack(words, axis=1)
        keys[large, 2] |= np.uint32(_LARGE)
    return keys


def _seed_table(seeds: Any) -> np.ndarray:
    table = np.asarray(seeds)
    if table.ndim != 2 or table.shape[1] != 3:
        raise ShapeError(f"seeds must have shape (N, 3): (seed, sub_seed, sub_sub_seed) per row, got {table.shape}")
    if table.dtype.kind == "f" and not isinstance(seeds, np.ndarray):
        table = np.asarray(seeds, dtype=object)  # integers from 2**63 on beside smaller ones
    if table.dtype.kind == "O":
        rows = [[check_seed("seeds", value) for value in row] for row in table]
        return np.array([[_fold(value) for value in row] for row in rows], dtype=np.uint64).reshape(-1, 3)
    if table.size and table.dtype.kind not in "iu":
        raise TypeError(f"seeds must be integers, got dtype {table.dtype}")
    if table.size and table.min() < 0:
        raise ValueError(f"seeds must not be negative, got {table.min()}")
    return table.astype(np.uint64)


def _fold(value: int) -> int:
    if value < 2**64:
        return value
    return int.from_bytes(hashlib.sha256(str(value).encode()).digest()[:8], "little")


def uniforms(keys: np.ndarray, role: int, start: Any, count: int, dtype: Any = np.float64) -> np.ndarray:
    """Uniform numbers in [0, 1) at positions ``start`` to ``start + count`` of each row's stream.

    Args:
        keys: From ``stream_keys``, shape ``(N, 4)``.
        role: Which of the row's streams, 0 to 255.
        start: First position, one for all or one per row ``(N,)``.
        count: Numbers per row.
        dtype: float64 (53 random bits, two words each) or float32 (24 bits, one word).

    Returns:
        Shape ``(N, count)``.

    Raises:
        TypeError: ``dtype`` is another, or positions are not integers.
        ValueError: ``role`` or a position lies outside.
    """
    single = _is_single(dtype)
    fill = _uniforms32 if single else _uniforms64
    return _by_rows(_draw(keys, role, start, count, 4 if single else 2, np.dtype(dtype), fill))


def normals(keys: np.ndarray, role: int, start: Any, count: int, dtype: Any = np.float32) -> np.ndarray:
    """Standard normal numbers at positions ``start`` to ``start + count`` of each row's stream.

    By Box and Muller 1958 ("A note on the generation of random normal deviates"): the numbers at positions ``2j`` and
    ``2j + 1`` are ``sqrt(-2 log u) cos(a)`` and ``sqrt(-2 log u) sin(a)``.

    Args:
        keys: From ``stream_keys``, shape ``(N, 4)``.
        role: Which of the row's streams, 0 to 255.
        start: First position, one for all or one per row ``(N,)``.
        count: Numbers per row.
        dtype: float32 (one word each; up to 6.7 standard deviations) or float64 (two words; up to 8.6; ten times
            slower, since NumPy computes its ``cos`` and ``sin`` one by one).

    Returns:
        Shape ``(N, count)``.

    Raises:
        TypeError: ``dtype`` is another, or positions are not integers.
        ValueError: ``role`` or a position lies outside.
    """
    single = _is_single(dtype)
    fill = _normals32 if single else _normals64
    return _by_rows(_draw(keys, role, start, count, 4 if single else 2, np.dtype(dtype), fill))


def normals_block(keys: np.ndarray, role: int, start: Any, num_steps: int, dim: int) -> np.ndarray:
    """Standard normal noise of the next steps of all rows, the same numbers as those of ``normals``.

    Args:
        keys: From ``stream_keys``, shape ``(N, 4)``.
        role: Which of the row's streams, 0 to 255.
        start: Steps that each row has made, ``(N,)`` or one for all.
        num_steps: Steps K.
        dim: Numbers per step D; step ``t`` of row ``i`` has those at positions ``(start[i] + t) * D`` and following.

    Returns:
        float32, shape ``(K, N, D)``.

    Raises:
        TypeError: Positions are not integers.
        ValueError: ``role`` or a position lies outside.
    """
    num_steps, dim = check_whole("num_steps", num_steps), check_whole("dim", dim)
    first = np.multiply(start, dim)
    flat = _draw(keys, role, first, num_steps * dim, 4, np.dtype(np.float32), _normals32)
    shape = (num_steps, dim, len(keys))
    return np.ascontiguousarray(flat.reshape(shape).transpose(0, 2, 1))


def integers32(keys: np.ndarray, role: int, count: int, start: Any = 0) -> np.ndarray:
    """Random 32-bit words, such as integer seeds for environments (``>> 1`` where they must have 31 bits).

    Args:
        keys: From ``stream_keys``, shape ``(N, 4)``.
        role: Which of the row's streams, 0 to 255.
        count: Words per row.
        start: First position, one for all or one per row ``(N,)``.

    Returns:
        uint32, shape ``(N, count)``.

    Raises:
        TypeError: Positions are not integers.
        ValueError: ``role`` or a position lies outside.
    """
    return _by_rows(_draw(keys, role, start, count, 4, np.dtype(np.uint32), _integers32))


def torch_uniforms(keys: torch.Tensor, role: int, start: torch.Tensor, count: int, dtype: torch.dtype) -> torch.Tensor:
    """``uniforms`` on the device of ``keys``, with the same bits.

    Args:
        keys: Keys from ``stream_keys`` as int64 ``(N, 4)``.
        role: Which of the row's streams.
        start: First position of each row, int64 ``(N,)``.
        count: Numbers per row.
        dtype: ``torch.float64`` or ``torch.float32``.

    Returns:
        Shape ``(count, N)``.
    """
    if dtype is torch.float32:
        words, offset = _torch_words(keys, role, start, count, 4)
        return _torch_stretch([(word >> 8).to(dtype) * 2.0**-24 for word in words], offset, count)
    words, offset = _torch_words(keys, role, start, count, 2)
    lanes = [
        ((high >> 5).to(dtype) * 67108864.0 + (low >> 6).to(dtype)) * 2.0**-53 for high, low in (words[:2], words[2:])
    ]
    return _torch_stretch(lanes, offset, count)


def torch_normals(keys: torch.Tensor, role: int, start: torch.Tensor, count: int) -> torch.Tensor:
    """``normals`` in float32 on the device of ``keys``: of the same integers, by torch's ``log``, ``cos`` and ``sin``.

    Arguments and result are those of ``torch_uniforms``.
    """
    words, offset = _torch_words(keys, role, start, count, 4)
    lanes: list[torch.Tensor] = []
    for first, second in (words[:2], words[2:]):
        radius = (-2.0 * ((first >> 1).to(torch.float32) * 2.0**-31 + 2.0**-32).log()).sqrt()
        angle = (second - ((second >> 31) << 32)).to(torch.float32) * float(np.float32(np.pi * 2.0**-31))
        lanes += [angle.cos() * radius, angle.sin() * radius]
    return _torch_stretch(lanes, offset, count)


def _torch_words(
    keys: torch.Tensor, role: int, start: torch.Tensor, count: int, per_block: int
) -> tuple[Any, torch.Tensor]:
    """Words ``(B, N)`` of all blocks that hold the numbers, and where in the first block each row begins, ``(N,)``."""
    first = torch.div(start, per_block, rounding_mode="floor")
    num_blocks = -(-(per_block - 1 + count) // per_block)
    blocks = first + torch.arange(num_blocks, device=keys.device)[:, None]
    k0, k1, c1, c3 = keys.unbind(1)
    return _philox_torch((blocks, c1, role + ((blocks >> 32) << 8), c3), (k0, k1)), start - first * per_block


def _torch_stretch(lanes: Sequence[torch.Tensor], offset: torch.Tensor, count: int) -> torch.Tensor:
    """The ``count`` numbers of each row from its ``offset (N,)`` on, of lanes ``(B, N)``."""
    flat = torch.stack(list(lanes), dim=1).flatten(0, 1)
    return flat.gather(0, offset + torch.arange(count, device=offset.device)[:, None])


def _is_single(dtype: Any) -> bool:
    if np.dtype(dtype) not in (np.dtype(np.float32), np.dtype(np.float64)):
        raise TypeError(f"dtype must be float32 or float64, got {np.dtype(dtype)}")
    return np.dtype(dtype) == np.dtype(np.float32)


def _by_rows(flat: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(flat.T)


def _draw(
    keys: np.ndarray, role: int, start: Any, count: int, per_block: int, dtype: np.dtype, fill: Callable[..., None]
) -> np.ndarray:
    """Numbers at positions ``start`` and following, one column per row of ``keys``: shape ``(count, N)``."""
    role, count = check_whole("role", role, 0, 255), check_whole("count", count, 0)
    if keys.ndim != 2 or keys.shape[1] != 4 or keys.dtype != np.uint32:
        raise ShapeError(f"keys must be those of stream_keys, uint32 (N, 4), got {keys.dtype} {keys.shape}")
    first = np.asarray(start)
    if first.dtype.kind not in "iu":
        raise TypeError(f"start must hold integers, got dtype {first.dtype}")
    if first.ndim and first.shape != (len(keys),):
        raise ShapeError(f"start must be one position, or one per row ({len(keys)},), got {first.shape}")
    if first.size and (first.min() < 0 or int(first.max()) + count >= 2**56):
        raise ValueError(f"positions must lie in [0, 2**56), got start {entry_text(first)}")
    if not len(keys) or not count:
        return np.empty((count, len(keys)), dtype=dtype)
    block, offset = np.divmod(first.astype(np.int64), per_block)
    low, high = int(offset.min()), int(offset.max())
    flat = _draw_blocks(keys, role, block, -(-(high + count) // per_block), per_block, dtype, fill)
    if low == high:
        return flat[low : low + count]
    out = np.empty((count, len(keys)), dtype=dtype)
    for shift in range(low, high + 1):
        rows = np.flatnonzero(offset == shift)
        out[:, rows] = flat[shift : shift + count].take(rows, axis=1)
    return out


def _draw_blocks(
    keys: np.ndarray,
    role: int,
    block: np.ndarray,
    num_blocks: int,
    per_block: int,
    dtype: np.dtype,
    fill: Callable[..., None],
) -> np.ndarray:
    """All numbers of the blocks from ``block`` on (one, or one per row): shape ``(num_blocks * per_block, N)``."""
    num_rows = len(keys)
    out = np.empty((num_blocks, per_block, num_rows), dtype=dtype)
    for rows, blocks in _tiles(num_rows, num_blocks):
        numbers = (block[rows] if block.ndim else block) + np.arange(blocks.start, blocks.stop)[:, None]
        fill(_tile_words(keys[rows], role, numbers), out[blocks, :, rows])
    return out.reshape(num_blocks * per_block, num_rows)


def _tiles(num_rows: int, num_blocks: int) -> Iterator[tuple[slice, slice]]:
    height = min(num_rows, max(_TILE // num_blocks, 512))
    width = max(1, min(num_blocks, _TILE // height))
    for row in range(0, num_rows, height):
        for block in range(0, num_blocks, width):
            yield slice(row, min(row + height, num_rows)), slice(block, min(block + width, num_blocks))


def _tile_words(keys: np.ndarray, role: int, blocks: np.ndarray) -> Words:
    """Words of blocks ``(B, n)`` or ``(B, 1)`` of n rows: four contiguous uint32 arrays ``(B, n)``."""
    k = keys.T.astype(np.uint64, order="C")
    even = np.empty((2, len(blocks), len(keys)), dtype=np.uint64)
    odd = np.empty_like(even)
    even[0] = blocks & _WORD
    even[1] = role + ((blocks >> 32) << 8)
    odd[...] = k[2:, None]
    return _rounds(even, odd, _round_keys(k[:2, None]))


# Fillers: from the words of a tile, four arrays (B, n) that may be overwritten, to numbers (B, per_block, n). NumPy's
# functions take other paths for strided data, which may round differently: log, cos and sin see contiguous arrays only.


def _integers32(words: Words, out: np.ndarray) -> None:
    for lane, word in enumerate(words):
        out[:, lane] = word


def _uniforms32(words: Words, out: np.ndarray) -> None:
    for lane, word in enumerate(words):
        np.right_shift(word, 8, out=word)
        np.multiply(word.astype(np.float32), np.float32(2**-24), out=out[:, lane])


def _unit53(high: np.ndarray, low: np.ndarray) -> np.ndarray:
    """Whole numbers below 2**53 from the upper 27 and 26 bits of two words, as float64."""
    return np.right_shift(high, 5) * 67108864.0 + np.right_shift(low, 6)


def _uniforms64(words: Words, out: np.ndarray) -> None:
    for lane in range(2):
        np.multiply(_unit53(words[2 * lane], words[2 * lane + 1]), 2.0**-53, out=out[:, lane])


def _normals32(words: Words, out: np.ndarray) -> None:
    for lane in (0, 2):
        word = words[lane]
        np.right_shift(word, 1, out=word)
        radius = word.view(np.int32).astype(np.float32)  # signed numbers convert faster
        np.multiply(radius, np.float32(2.0**-31), out=radius)
        np.add(radius, np.float32(2.0**-32), out=radius)  # in (0, 1]
        np.log(radius, out=radius)
        np.multiply(radius, np.float32(-2.0), out=radius)
        np.sqrt(radius, out=radius)
        angle = words[lane + 1].view(np.int32).astype(np.float32)
        np.multiply(angle, np.float32(np.pi * 2.0**-31), out=angle)  # in [-pi, pi]
        np.multiply(np.cos(angle), radius, out=out[:, lane])
        np.sin(angle, out=angle)
        np.multiply(angle, radius, out=out[:, lane + 1])


def _normals64(words: Words, out: np.ndarray) -> None:
    radius = np.sqrt(-2.0 * np.log((_unit53(words[0], words[1]) + 0.5) * 2.0**-53))
    angle = (2.0 * np.pi * 2.0**-53) * _unit53(words[2], words[3])
    np.multiply(radius, np.cos(angle), out=out[:, 0])
    np.multiply(radius, np.sin(angle), out=out[:, 1])
