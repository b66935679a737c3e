"""Random numbers by position: published integers, exact addressing, and the distributions."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.stats
import torch

from metaroll.functional import philox
from metaroll.functional.philox import integers32, normals, normals_block, philox4x32, stream_keys, uniforms

# kat_vectors of Random123 1.14.0 (https://github.com/DEShawResearch/random123), lines "philox4x32 10".
KNOWN = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]
KINDS = [(uniforms, np.float32), (uniforms, np.float64), (normals, np.float32), (normals, np.float64)]


def many_keys(num: int) -> np.ndarray:
    return stream_keys([(3, i, i % 2) for i in range(num)])


@pytest.mark.parametrize(("counter", "key", "words"), KNOWN)
def test_published_integers(counter, key, words) -> None:
    assert tuple(int(w) for w in philox4x32(np.array(counter), np.array(key))) == words
    assert tuple(int(w) for w in philox4x32(torch.tensor(counter), torch.tensor(key))) == words


def test_torch_gives_the_same_integers() -> None:
    counter = np.random.default_rng(0).integers(0, 2**32, (50, 4), dtype=np.uint32)
    key = np.random.default_rng(1).integers(0, 2**32, (50, 2), dtype=np.uint32)
    ours = np.stack(philox4x32(counter, key), axis=1)
    theirs = torch.stack(philox4x32(torch.from_numpy(counter), torch.from_numpy(key)), dim=1)
    assert ours.dtype == np.uint32 and ours.shape == (50, 4)
    np.testing.assert_array_equal(ours.astype(np.int64), theirs.numpy())


def test_counters_and_keys_are_broadcast() -> None:
    words = philox4x32((np.arange(5)[:, None], 1, np.arange(3), 2), (7, np.arange(3)))
    assert words[0].shape == (5, 3)
    assert int(words[2][4, 1]) == int(philox4x32(np.array([4, 1, 1, 2]), np.array([7, 1]))[2])
    with pytest.raises(ValueError, match="counter must have 4 words"):
        philox4x32(np.zeros(3, dtype=int), np.zeros(2, dtype=int))


def test_the_layout_of_a_stream_is_the_documented_one() -> None:
    (key,) = keys = stream_keys([(11, 12, 13)])
    assert key.tolist() == [11, 12, 0, 13]
    words = philox4x32((np.arange(3), 0, 5, 13), (11, 12))
    np.testing.assert_array_equal(integers32(keys, 5, 12)[0], np.stack(words, axis=1).ravel())
    far = 4 * (2**32 + 9)  # a block that needs more than 32 bits
    np.testing.assert_array_equal(
        integers32(keys, 5, 4, start=far)[0], np.stack(philox4x32((9, 0, 5 + 256, 13), (11, 12)))
    )


@pytest.mark.parametrize(("draw", "dtype"), KINDS)
def test_a_number_depends_on_its_position_alone(draw, dtype) -> None:
    keys = many_keys(37)
    whole = draw(keys, 2, 0, 64, dtype)
    assert whole.dtype == dtype and whole.shape == (37, 64)
    for first, count in ((0, 64), (10, 10), (3, 1), (7, 33), (63, 1), (5, 0)):
        np.testing.assert_array_equal(draw(keys, 2, first, count, dtype), whole[:, first : first + count])
    ages = np.random.default_rng(0).integers(0, 50, 37)
    own = draw(keys, 2, ages, 13, dtype)
    np.testing.assert_array_equal(own, np.stack([whole[i, age : age + 13] for i, age in enumerate(ages)]))
    np.testing.assert_array_equal(draw(keys[[30, 4]], 2, ages[[30, 4]], 13, dtype), own[[30, 4]])


@pytest.mark.parametrize(("draw", "dtype"), KINDS)
def test_numbers_do_not_depend_on_tiles(draw, dtype, monkeypatch) -> None:
    keys = many_keys(1300)
    whole = draw(keys, 1, 3, 50, dtype)  # several tiles
    monkeypatch.setattr(philox, "_TILE", 600)
    np.testing.assert_array_equal(draw(keys, 1, 3, 50, dtype), whole)
    np.testing.assert_array_equal(draw(keys[7:8], 1, 3, 50, dtype), whole[7:8])


@pytest.mark.parametrize("dim", [1, 2, 3, 6])
def test_blocks_of_noise_are_the_same_numbers(dim: int) -> None:
    keys = many_keys(40)
    whole = normals(keys, 2, 0, 40 * dim).reshape(40, 40, dim)
    ages = np.random.default_rng(0).integers(0, 30, 40)
    block = normals_block(keys, 2, ages, 8, dim)
    assert block.shape == (8, 40, dim) and block.flags.c_contiguous and block.dtype == np.float32
    for i, age in enumerate(ages):
        np.testing.assert_array_equal(block[:, i], whole[i, age : age + 8])
    np.testing.assert_array_equal(normals_block(keys, 2, 4, 8, dim), whole[:, 4:12].transpose(1, 0, 2))


def test_roles_and_rows_have_streams_of_their_own() -> None:
    keys = many_keys(200)
    draws = np.concatenate([normals(keys, role, 0, 400, np.float64) for role in (0, 1)])
    correlations = np.corrcoef(draws)[~np.eye(400, dtype=bool)]
    assert abs(correlations).max() < 6.0 / np.sqrt(400)
    np.testing.assert_allclose(correlations.std(), 1.0 / np.sqrt(400), rtol=0.02)
    flat = draws[:, :-1].ravel() @ draws[:, 1:].ravel() / draws[:, 1:].size  # neighbors within a stream
    assert abs(flat) < 4.0 / np.sqrt(draws.size)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_distributions(dtype) -> None:
    keys = many_keys(1000)
    u, z = uniforms(keys, 0, 0, 200, dtype).ravel(), normals(keys, 1, 0, 200, dtype).ravel()
    assert u.min() >= 0.0 and u.max() < 1.0
    assert scipy.stats.kstest(u, "uniform").pvalue > 1e-3
    assert scipy.stats.kstest(z, "norm").pvalue > 1e-3
    moments = [z.mean(dtype=np.float64), z.std(dtype=np.float64), scipy.stats.skew(z), scipy.stats.kurtosis(z)]
    np.testing.assert_allclose(moments, [0.0, 1.0, 0.0, 0.0], atol=0.05)
    assert 4.0 < np.abs(z).max() < 8.7
    pairs = z.reshape(-1, 2).astype(np.float64)  # the cosine and the sine of one angle
    assert abs(np.corrcoef(pairs**2, rowvar=False)[0, 1]) < 0.02


def test_extreme_words_give_finite_normals() -> None:
    for word in (0, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF):
        for fill, lanes, dtype in ((philox._normals32, 4, np.float32), (philox._normals64, 2, np.float64)):
            out = np.empty((1, lanes, 3), dtype=dtype)
            fill(tuple(np.full((1, 3), word, dtype=np.uint32) for _ in range(4)), out)
            assert np.isfinite(out).all() and np.abs(out).max() < 8.7


def test_small_seeds_are_their_own_keys_and_large_ones_are_mixed() -> None:
    small = stream_keys([(0, 0, 0), (2**32 - 1, 2**32 - 1, 2**32 - 1)])
    assert small.tolist() == [[0, 0, 0, 0], [2**32 - 1, 2**32 - 1, 0, 2**32 - 1]]
    seeds = (0, 1, 2**32, 2**33, 2**63, 2**64, 2**70, 2**70 + 1)
    triples = list(itertools.product(seeds, (0, 2**32), (0, 2**40)))
    keys = stream_keys(np.array(triples, dtype=object))
    assert len(np.unique(keys, axis=0)) == len(triples)
    for triple, key in zip(triples, keys, strict=True):
        np.testing.assert_array_equal(stream_keys([triple])[0], key)  # whatever stands in the other rows
        assert (key[2] >= 2**31) == (max(triple) >= 2**32)


def test_neighboring_large_seeds_never_collide() -> None:
    table = np.stack(np.meshgrid(2**40 + np.arange(100), np.arange(100), np.arange(3), indexing="ij"), axis=-1)
    keys = stream_keys(table.reshape(-1, 3))
    assert len(np.unique(keys[:, :2], axis=0)) == len(keys)  # even the two words of the key alone tell them apart


@pytest.mark.parametrize(
    ("seeds", "error", "match"),
    [
        ([(1, 2)], ValueError, "shape"),
        ([(1, -2, 3)], ValueError, "negative|least 0"),
        ([(2**70, -2, 3)], ValueError, "negative|least 0"),
        ([(1.5, 2, 3)], TypeError, "integer"),
        ([(2**70, 2.5, 3)], TypeError, "integer"),
        ([(True, True, False)], TypeError, "integer"),
    ],
)
def test_wrong_seeds(seeds, error, match: str) -> None:
    with pytest.raises(error, match=match):
        stream_keys(seeds)


def test_wrong_arguments() -> None:
    keys = many_keys(3)
    for call, error, match in (
        (lambda: uniforms(keys, 256, 0, 1), ValueError, "role"),
        (lambda: uniforms(keys, 0, -1, 1), ValueError, "positions"),
        (lambda: uniforms(keys, 0, [0, 1], 1), ValueError, "one per row"),
        (lambda: uniforms(keys, 0, 0.5, 1), TypeError, "start"),
        (lambda: uniforms(keys, 0, 2**56, 1), ValueError, "positions"),
        (lambda: normals(keys, 0, 0, 1, np.float16), TypeError, "float32 or float64"),
        (lambda: uniforms(keys.astype(np.int64), 0, 0, 1), ValueError, "stream_keys"),
    ):
        with pytest.raises(error, match=match):
            call()


def test_no_rows_and_no_numbers() -> None:
    assert uniforms(many_keys(3)[:0], 0, 0, 5).shape == (0, 5)
    assert normals(many_keys(3), 0, 0, 0).shape == (3, 0)
    assert stream_keys(np.zeros((0, 3), dtype=int)).shape == (0, 4)
