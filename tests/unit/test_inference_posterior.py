"""Issue 15 item 5: a posterior is a folder. What needs sbi is in test_inference_neural.py."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest

from metaroll.data.posteriors.folder import DESCRIPTION, DRAWS, Draws, read_draws, write_folder
from metaroll.errors import PosteriorError, ShapeError
from metaroll.inference.posterior import Posterior

PRIOR = {"mass": (0.5, 2.0), "length": (0.1, 1.0)}
VALUES = np.random.default_rng(0).uniform([0.9, 0.4], [1.1, 0.5], (500, 2))


def made() -> Posterior:
    return Posterior(PRIOR, [1.0, 2.0, 3.0], VALUES, description={"algorithm": "by hand"})


def test_draws_and_prior_come_back(tmp_path):
    folder = made().save(tmp_path / "runs" / "posterior")
    assert sorted(os.listdir(folder)) == [DRAWS, DESCRIPTION] and os.listdir(folder.parent) == ["posterior"]
    back = Posterior.load(folder)
    np.testing.assert_array_equal(back.draws, VALUES)
    np.testing.assert_array_equal(back.observed, [1.0, 2.0, 3.0])
    assert back.prior == made().prior and back.description == {"algorithm": "by hand"} and not back.has_estimator
    assert "mass = 1" in repr(back) and "prior +- 0.43" in repr(back)
    told = json.loads((folder / DESCRIPTION).read_text())
    assert told["format"] == 1 and told["num_draws"] == 500 and {"metaroll", "numpy", "torch"} <= set(told["versions"])


def test_drawing_again_from_draws_alone():
    posterior = made()
    again = posterior.sample(50, seed=3)
    assert again.shape == (50, 2) and {tuple(row) for row in again} <= {tuple(row) for row in VALUES}
    np.testing.assert_array_equal(again, posterior.sample(50, seed=3))
    with pytest.raises(ValueError, match="draws only"):
        posterior.log_prob(again)


def test_a_new_posterior_replaces_the_old_one_and_nothing_else(tmp_path):
    folder = made().save(tmp_path / "p")
    Posterior(PRIOR, None, VALUES[:7]).save(folder)
    assert len(Posterior.load(folder).draws) == 7 and os.listdir(tmp_path) == ["p"]
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "mine.txt").write_text("keep")
    with pytest.raises(FileExistsError, match="holds no posterior"):
        made().save(tmp_path / "notes")
    assert os.listdir(tmp_path / "notes") == ["mine.txt"]


def test_an_interrupted_writer_leaves_the_old_posterior(tmp_path, monkeypatch):
    folder = made().save(tmp_path / "p")
    monkeypatch.setattr("metaroll.data.posteriors.folder.write_text", lambda *_: (_ for _ in ()).throw(OSError(28)))
    with pytest.raises(OSError):
        Posterior(PRIOR, None, VALUES[:7]).save(folder)
    assert len(Posterior.load(folder).draws) == 500 and os.listdir(tmp_path) == ["p"]


def test_damage_is_found(tmp_path):
    folder = made().save(tmp_path / "p")
    whole = (folder / DRAWS).read_bytes()
    for content, words in ((whole[:-9], "bytes instead of"), (whole[:-9] + b"123456789", "checksum mismatch")):
        (folder / DRAWS).write_bytes(content)
        with pytest.raises(PosteriorError, match=words):
            Posterior.load(folder)
    (folder / DRAWS).unlink()
    with pytest.raises(PosteriorError, match="missing"):
        Posterior.load(folder)
    told = json.loads((folder / DESCRIPTION).read_text())
    for change, words in (({"observed": [9.0]}, "checksum"), ({"format": 7}, "format 1, got 7")):
        (folder / DESCRIPTION).write_text(json.dumps({**told, **change}))
        with pytest.raises(PosteriorError, match=words):
            Posterior.load(folder)
    (folder / DESCRIPTION).write_text("{")
    with pytest.raises(PosteriorError, match="not valid JSON"):
        Posterior.load(folder)
    for path, words in ((tmp_path, "has no posterior.json"), (tmp_path / "none", "no such folder")):
        with pytest.raises(PosteriorError, match=words):
            Posterior.load(path)


def test_pickles_are_refused(tmp_path):
    path = tmp_path / DRAWS
    np.savez(path, names=np.array(["a"]), values=np.array([[object()]], dtype=object))
    with pytest.raises(PosteriorError, match="holds objects, which are not read"):
        read_draws(path)


def test_columns_by_name(tmp_path):
    folder = write_folder(tmp_path / "p", Draws(("a", "b"), np.array([[1.0, 2.0], [3.0, 4.0]])), {})
    np.testing.assert_array_equal(read_draws(folder, ["b", "a"]).values, [[2.0, 1.0], [4.0, 3.0]])
    with pytest.raises(PosteriorError, match=r"is a posterior of \['a', 'b'\], not of 'c'"):
        read_draws(folder, ["a", "c"])


def test_a_file_of_a_posterior_is_no_folder(tmp_path):
    folder = made().save(tmp_path / "p")
    for path in (folder / DESCRIPTION, folder / DRAWS):
        with pytest.raises(PosteriorError, match=f"{path.name} is not a posterior folder: it is a file; name"):
            Posterior.load(path)


def test_what_is_no_posterior():
    with pytest.raises(ValueError, match="got neither"):
        Posterior(PRIOR)
    with pytest.raises(ValueError, match="finite"):
        Posterior(PRIOR, None, [[np.nan, 1.0]])
    with pytest.raises(ShapeError):
        Posterior(PRIOR, None, [[1.0]])
    with pytest.raises(ValueError, match="observed must"):
        Posterior(PRIOR, [np.nan], VALUES)
