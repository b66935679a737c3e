"""Files are whole or not there, trees come back bitwise, and damage is an error with a hint."""

from __future__ import annotations

import dataclasses
import enum
import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import torch

from metaroll.errors import SnapshotError
from metaroll.training.store import files
from metaroll.training.store.files import (
    load_tree,
    read_json,
    save_tree,
    to_plain,
    tree_structure,
    write_atomic,
    write_json,
)
from metaroll.training.store.metrics_log import MetricsLog, read_metrics


def test_json_has_no_nan_and_no_arrays(tmp_path: Path) -> None:
    path = tmp_path / "summary.json"
    write_json(
        path, {"a": math.nan, "b": [math.inf, -math.inf], "c": np.arange(2), "d": np.float32(0.5), 1: torch.ones(1)}
    )
    assert read_json(path) == {"a": None, "b": ["Infinity", "-Infinity"], "c": [0, 1], "d": 0.5, "1": [1.0]}
    with pytest.raises(TypeError, match="only numbers"):
        to_plain(object())


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "summary.json"
    write_json(path, {"epoch": 1})

    def full_disk(descriptor: int) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OSError, match="no space"):
        write_json(path, {"epoch": 2})
    monkeypatch.undo()
    assert read_json(path) == {"epoch": 1}
    write_atomic(path, b"{}")  # the temporary file that was left is in nobody's way
    assert [p.name for p in tmp_path.iterdir()] == ["summary.json"]


def example_tree() -> dict[str, Any]:
    parameter = torch.nn.Parameter(torch.arange(6.0).reshape(2, 3))
    return {
        "optimizer": {"state": {0: {"step": torch.tensor(3.0), "exp_avg": parameter}}, "param_groups": [{"lr": 3e-4}]},
        "generator": np.random.default_rng(5).bit_generator.state,  # 128-bit integers
        "torch": torch.Generator().manual_seed(1).get_state(),
        "half": torch.tensor([1.5, math.nan], dtype=torch.bfloat16),
        "tuple": (1, "two", None, True, (), []),
        "odd": {"$array": 1, "plain": 2},
        "floats": [math.nan, math.inf, -math.inf, -0.0, 0.1],
        "scalars": [np.float32(0.1), np.int64(-3), np.bool_(True)],
        "strided": np.arange(12, dtype=np.uint16).reshape(3, 4)[:, ::2],
        "swapped": np.arange(3, dtype=">f8"),
        "empty": np.zeros((0, 4), dtype=np.float32),
        "zero_dim": np.array(7.0),
        "texts": np.array(["one", "three"]),
        "complex": np.array([1.0 + 2.0j]),
        "set": {1, 2},
        "bytes": b"data",
        "keys": {1.5: 0, "$": 1},
        "a/b": np.ones(1),
        "a": {"b": np.zeros(1)},
    }


def test_a_tree_comes_back_bit_for_bit(tmp_path: Path) -> None:
    tree = example_tree()
    sums = save_tree(tmp_path, "algorithm", tree)
    assert set(sums) == {"algorithm.safetensors", "algorithm.json"}
    back = load_tree(tmp_path, "algorithm")
    assert list(back) == list(tree)
    assert back["generator"] == tree["generator"]
    assert back["tuple"] == tree["tuple"]
    assert back["odd"] == tree["odd"]
    assert list(back["optimizer"]["state"]) == [0]
    assert torch.equal(back["optimizer"]["state"][0]["exp_avg"], tree["optimizer"]["state"][0]["exp_avg"])
    assert back["optimizer"]["state"][0]["step"].shape == ()
    assert torch.equal(back["torch"], tree["torch"])
    assert back["half"].dtype == torch.bfloat16
    assert torch.equal(back["half"].view(torch.int16), tree["half"].view(torch.int16))
    assert np.array(back["floats"]).tobytes() == np.array(tree["floats"]).tobytes()
    assert [type(s) for s in back["scalars"]] == [np.float32, np.int64, np.bool_]
    assert [back[name] for name in ("set", "bytes", "keys")] == [tree[name] for name in ("set", "bytes", "keys")]
    for name in ("strided", "swapped", "empty", "zero_dim", "texts", "complex", "a/b"):
        assert back[name].shape == tree[name].shape
        np.testing.assert_array_equal(back[name], tree[name])
    assert back["a"]["b"] == 0.0
    assert back["strided"].dtype == np.uint16
    back["strided"][0, 0] = 9  # memory of its own


def test_arrays_are_a_plain_safetensors_file(tmp_path: Path) -> None:
    save_tree(tmp_path, "net", {"weight": torch.ones(2, 2)})
    np.testing.assert_array_equal(
        safetensors.numpy.load_file(tmp_path / "net.safetensors")["net/weight"], np.ones((2, 2))
    )


class Color(enum.IntEnum):
    RED = 1


@dataclasses.dataclass
class Place:
    x: float = 0.0


@pytest.mark.parametrize("value", [object(), Color.RED, Place(), np.array([object()]), np.ma.masked_array([1])])
def test_what_would_not_come_back_is_refused_by_name(tmp_path: Path, value: Any) -> None:
    with pytest.raises(TypeError, match=r"run\['inner'\]"):
        save_tree(tmp_path, "run", {"inner": value})
    assert not list(tmp_path.iterdir())
    assert not files.is_tree(value)


def test_damage_is_an_error_with_a_cure(tmp_path: Path) -> None:
    save_tree(tmp_path, "net", {"weight": np.arange(100.0)})
    arrays, structure = tmp_path / "net.safetensors", tmp_path / "net.json"
    whole, text = arrays.read_bytes(), structure.read_text()

    arrays.write_bytes(whole[:-8])
    with pytest.raises(SnapshotError, match=r"damaged \(\d+ bytes instead of \d+\); choose another snapshot"):
        load_tree(tmp_path, "net")
    arrays.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(SnapshotError, match="checksum"):
        load_tree(tmp_path, "net")
    arrays.unlink()
    with pytest.raises(SnapshotError, match="missing"):
        load_tree(tmp_path, "net")
    arrays.write_bytes(whole)
    structure.write_text(text[:20])
    with pytest.raises(SnapshotError, match="not valid JSON"):
        load_tree(tmp_path, "net")
    structure.write_text(json.dumps({**json.loads(text), "format": 99}))
    with pytest.raises(SnapshotError, match="must have format 2, got 99"):
        load_tree(tmp_path, "net")
    structure.write_text(text.replace("net/weight", "net/other"))
    with pytest.raises(SnapshotError, match="does not fit"):
        load_tree(tmp_path, "net")


@pytest.mark.parametrize(
    "document",
    [
        {"format": 2},
        {"format": 2, "arrays": {"size": 3}, "tree": {}},
        {"format": 2, "arrays": None},
        {"format": 2, "arrays": "right", "tree": {"$": "no such"}},
        {"format": 2, "arrays": "right", "tree": {"$": "float", "bits": "text"}},
    ],
)
def test_a_document_of_something_else_is_an_error_with_a_cure(tmp_path: Path, document: dict[str, Any]) -> None:
    """Well-formed JSON that is no tree of ours."""
    sums = save_tree(tmp_path, "t", {"x": np.zeros(2, np.uint8)})
    if document.get("arrays") == "right":
        document = {**document, "arrays": sums["t.safetensors"]}
    (tmp_path / "t.json").write_text(json.dumps(document))
    with pytest.raises(SnapshotError, match=r"t\.json .*from_epoch"):
        load_tree(tmp_path, "t")


def test_files_have_one_mode(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        save_tree(tmp_path, "t", {"x": np.zeros(2)})
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o640}


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    monkeypatch.setattr(os, "fsync", lambda descriptor: os.write(full, b"x"))
    try:
        with pytest.raises(OSError, match=r"No space left on device: '.*summary\.json'"):
            write_json(tmp_path / "summary.json", {})
        log = MetricsLog(tmp_path)
        log.append(0, 1, "train", {"loss": 1.0})
        with pytest.raises(OSError, match=r"No space left on device: '.*metrics\.jsonl'"):
            log.flush()
    finally:
        os.close(full)
    monkeypatch.undo()
    assert (tmp_path / "metrics.jsonl").read_bytes() == b""  # no half line
    log.flush()
    assert len(read_metrics(tmp_path)) == 1


def test_structure_tells_shapes_not_values() -> None:
    one = {"w": torch.zeros(2, 3), "n": [1, np.zeros(4)]}
    assert tree_structure(one) == {"w": "float32[2, 3]", "n": ["int", "float64[4]"]}
    assert tree_structure(one) == tree_structure({"w": torch.ones(2, 3), "n": [7, np.ones(4)]})
    assert tree_structure(one) != tree_structure({"w": torch.zeros(3, 2), "n": [1, np.zeros(4)]})
