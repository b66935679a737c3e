"""Pictures of single rollouts."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from sampler_envs import Oscillator

from metaroll.errors import DamagedFileError
from metaroll.lab.figures.plots import plot_rollout
from metaroll.rollouts.single.rollout import rollout


@pytest.fixture(scope="module")
def example():
    return rollout(Oscillator(), lambda obs: np.tanh(obs[:1]), seed=0, record_dts=True)


@pytest.mark.parametrize(
    ("kind", "index"),
    [("all", None), ("observations", 1), ("states", None), ("actions", 0), ("rewards", 3), ("dts", 2)],
)
def test_every_kind_is_drawn(kind, index, example, tmp_path):
    path = plot_rollout(example, kind, index, tmp_path / "deep" / "picture.png")
    assert path == tmp_path / "deep" / "picture.png" and path.read_bytes().startswith(b"\x89PNG")
    assert [p.name for p in path.parent.iterdir()] == ["picture.png"]


@pytest.mark.parametrize(
    ("kind", "index", "error", "text"),
    [("color", None, ValueError, "kind must"), ("states", 2, IndexError, "index must")],
)
def test_what_cannot_be_drawn_is_refused(kind, index, error, text, example, tmp_path):
    with pytest.raises(error, match=text):
        plot_rollout(example, kind, index, tmp_path / "picture.png")


def test_times_that_were_not_recorded_are_refused_with_the_cure(tmp_path):
    plain = rollout(Oscillator(), lambda obs: np.tanh(obs[:1]), seed=0)
    with pytest.raises(ValueError, match="record_dts=True"):
        plot_rollout(plain, "dts", path=tmp_path / "picture.png")


def test_settings_of_matplotlib_change_no_picture(example, tmp_path, monkeypatch):
    """A ``matplotlibrc`` in the current folder, which may be of anybody, had LaTeX started."""
    import matplotlib

    plain = plot_rollout(example, "rewards", None, tmp_path / "plain.png").read_bytes()
    monkeypatch.setitem(matplotlib.rcParams, "text.usetex", True)
    monkeypatch.setitem(matplotlib.rcParams, "lines.dotted_pattern", [9.0, 9.0])
    monkeypatch.setitem(matplotlib.rcParams, "axes.facecolor", "red")
    assert plot_rollout(example, "rewards", None, tmp_path / "set.png").read_bytes() == plain
    assert matplotlib.rcParams["text.usetex"] and matplotlib.rcParams["axes.facecolor"] == "red"


def test_settings_that_matplotlib_cannot_read_are_named(example, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "matplotlibrc").write_bytes(b"\xff\xfe")
    (tmp_path / "matplotlib.py").write_text("import pathlib\npathlib.Path('matplotlibrc').read_text('utf-8')\n")
    monkeypatch.delitem(sys.modules, "matplotlib")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(DamagedFileError, match=r"^matplotlibrc: it is damaged.*repair the file, or remove it"):
        plot_rollout(example, path="a.png")
