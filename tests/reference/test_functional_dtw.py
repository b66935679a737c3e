"""Dynamic time warping against dtw-python, which is GPL-3: a reference in tests, never a dependency."""

from __future__ import annotations

import dtw
import numpy as np
import pytest
import torch

from metaroll.functional import kernels
from metaroll.functional.series import dtw as own
from metaroll.functional.series.dtw import dtw_distances
from metaroll.functional.series.step_patterns import rabiner_juang, step_pattern_of

NAMES = ("symmetric1", "symmetric2", "asymmetric", "symmetricP0", "symmetricP05", "symmetricP1", "symmetricP2")
NAMES += ("asymmetricP0", "asymmetricP05", "asymmetricP1", "asymmetricP2")
NAMES += tuple(f"typeI{w}{s}" for w in "abcd" for s in ("", "s")) + tuple(f"typeII{w}" for w in "abcd")
NAMES += ("typeIIIc", "typeIVc")
OBJECTS = ("mori2006", "rigid", "_asymmetricP0b", "_asymmetricItakura")
RABINER_JUANG = [(kind, w, smoothed) for kind in range(1, 8) for w in "abcd" for smoothed in (False, True)]


def theirs(x: np.ndarray, y: np.ndarray, pattern, open_end: bool) -> list[float] | None:
    try:
        return [
            dtw.dtw(a, b, step_pattern=pattern, open_end=open_end, distance_only=True).distance
            for a, b in zip(x, y, strict=True)
        ]
    except ValueError:  # no open end, or no path
        return None


def check(ours, pattern) -> None:
    """The same numbers as dtw-python's, from NumPy and from torch; errors where it has errors."""
    rng = np.random.default_rng(0)
    for n, m, dims in ((12, 13, 1), (9, 14, 3), (20, 11, 2), (1, 1, 4)):
        x, y = rng.normal(size=(2, n, dims)), rng.normal(size=(2, m, dims))
        for open_end in (False, True):
            expected = theirs(x, y, pattern, open_end)
            if expected is None:
                with pytest.raises(ValueError, match=r"no open end|no warping path"):
                    dtw_distances(x, y, ours, open_end=open_end)
                continue
            np.testing.assert_allclose(dtw_distances(x, y, ours, open_end=open_end), expected, rtol=1e-9, atol=1e-9)
            on_torch = own._distances(torch, torch.from_numpy(x), torch.from_numpy(y), step_pattern_of(ours), open_end)
            np.testing.assert_allclose(on_torch, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_patterns_by_name(name: str) -> None:
    check(name, getattr(dtw.stepPattern, name))


@pytest.mark.parametrize("name", OBJECTS)
def test_objects_of_dtw_python(name: str) -> None:
    check(getattr(dtw.stepPattern, name), getattr(dtw.stepPattern, name))


@pytest.mark.parametrize(("kind", "weighting", "smoothed"), RABINER_JUANG)
def test_rabiner_juang_patterns(kind: int, weighting: str, smoothed: bool) -> None:
    reference = dtw.stepPattern.rabinerJuangStepPattern(kind, weighting, smoothed)
    check(rabiner_juang(kind, weighting, smoothed), reference)


def test_long_series_of_many_dimensions(monkeypatch) -> None:
    """In blocks of pairs, too: no number depends on how they are cut."""
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(6, 150, 4)), rng.normal(size=(6, 170, 4))
    found = dtw_distances(x, y, open_end=True)
    np.testing.assert_allclose(found, theirs(x, y, "symmetric2", True), rtol=1e-9)
    monkeypatch.setattr(own, "_MOST_CELLS", 300)
    np.testing.assert_array_equal(dtw_distances(x, y, open_end=True), found)
    monkeypatch.setitem(kernels._LOOPS, "warp_by_steps", None)
    np.testing.assert_array_equal(dtw_distances(x, y, open_end=True), found)
