"""Rollouts as files (design.md 5): complete or not there, never unpickled, and clear about what is wrong."""

from __future__ import annotations

import copy
import enum
import errno
import json
import os
import pickle
import re
import subprocess
import sys
import threading
import zipfile
from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import gymnasium
import numpy as np
import pandas as pd
import pytest
import torch
from interruptions import is_interrupted, last_times
from test_training_snapshots import Killed, die_after

from metaroll.data import recordings
from metaroll.data.compare import first_difference, rollouts_equal
from metaroll.data.folders import atomic_files, file_sets
from metaroll.data.folders.atomic_files import write_atomic, write_files
from metaroll.data.recordings import load_rollout, load_rollouts, recordings_in, save_rollout, save_rollouts
from metaroll.data.step_sequence import StepSequence
from metaroll.errors import RecordingError, in_shell
from metaroll.types import EnvSpec

SUFFIXES = [".npz", ".csv", ".parquet"]


class Hidden(NamedTuple):
    h: Any
    c: Any


class Color(enum.Enum):
    RED = 3


@dataclass
class Physics:
    mass: float


def make(start: int = 0, length: int = 3, **data: Any) -> StepSequence:
    numbers = np.arange(start, start + length + 1)
    mission = np.empty(length, dtype=object)
    mission[:] = ["go", None, ["a", 1.5]][:length] + ["stop"] * (length - 3)
    arrays: dict[str, Any] = {
        "rewards": numbers[:-1] / 3,
        "observations": {"image": numbers.astype(np.uint8)[:, None, None].repeat(2, 2), "speed": numbers / 7},
        "actions": numbers[:-1].astype(np.float32)[:, None],
        "hidden": Hidden(numbers.astype(np.float16), numbers[:-1] > 0),
        "mission": mission,
        "rollout_info": {"env_name": "pendulum", "plan": {"seed": (1, 2, 3), "init_state": np.ones(2), "task": None}},
        "truncated": np.arange(length) == length - 1,
    }
    return StepSequence(**{**arrays, **data})


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_concatenations_keep_bounds_ends_and_final_entries(tmp_path: Path, suffix: str) -> None:
    parts = [make(), make(10, 4), StepSequence.concat([make(20, 3), make(30, 5)])]
    for number, rollout in enumerate([make(), StepSequence.concat(parts), StepSequence.concat(parts)[[0, 9]]]):
        path = tmp_path / f"{number}{suffix}"
        save_rollout(rollout, path)
        back = load_rollout(path)
        assert first_difference(back, rollout) is None
        assert back.observations["image"].flags.writeable
    assert load_rollout(tmp_path / f"1{suffix}").get_rollout(0).next_observations["speed"][-1] == 3 / 7


def test_named_tuples_are_of_the_same_name_and_fields(tmp_path: Path) -> None:
    save_rollout(make(), tmp_path / "a.npz")
    save_rollout(make(), tmp_path / "b.npz")
    first, second = load_rollout(tmp_path / "a.npz"), load_rollout(tmp_path / "b.npz")
    assert type(first.hidden).__name__ == "Hidden" and first.hidden._fields == ("h", "c")
    assert type(first.hidden) is type(second.hidden) is not Hidden
    assert len(StepSequence.concat([first, second])) == 6
    assert rollouts_equal(pickle.loads(pickle.dumps(first)), first) and rollouts_equal(copy.deepcopy(first), first)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_named_tuples_whose_fields_were_renamed(tmp_path: Path, suffix: str) -> None:
    renamed = namedtuple("renamed", ["x", "class"], rename=True)  # field "_1"
    odd = type("no identifier", (renamed,), {})
    rollout = make(hidden=renamed(np.zeros(3), np.ones(4)), rollout_info={"odd": odd(1, 2)})
    save_rollout(rollout, tmp_path / f"r{suffix}")
    assert first_difference(load_rollout(tmp_path / f"r{suffix}"), rollout) is None


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_two_columns_of_the_same_name(tmp_path: Path, suffix: str) -> None:
    rollout = make(**{"a[0]": np.zeros(3), "a": np.ones((3, 1))})
    save_rollout(rollout, tmp_path / f"r{suffix}")
    assert first_difference(load_rollout(tmp_path / f"r{suffix}"), rollout) is None


def test_rollout_info_of_every_kind(tmp_path: Path) -> None:
    info = {
        "numbers": [1, 2.5, float("nan"), -float("inf"), 3 + 1j, 10**30, True, None],
        "scalars": (np.float32(0.1), np.int64(3), np.bool_(True), np.str_("x"), np.datetime64("2020-01-01")),
        "tuple": ((), Hidden(1, "ä\ud800")),
        "sets": [{1, 2}, frozenset({"a"})],
        "bytes": b"\x00\xff",
        "arrays": [np.zeros((0, 2)), np.array(["a", None], dtype=object), np.array(3), np.ones(2, dtype=">i4")],
        "tensor": torch.ones(2, dtype=torch.bfloat16),
        5: "five",
        (1, "two"): {"$": "dollar"},
        "path": tmp_path,
    }
    for suffix in SUFFIXES:
        save_rollout(make(rollout_info=info), tmp_path / f"r{suffix}")
        assert first_difference(load_rollout(tmp_path / f"r{suffix}"), make(rollout_info=info)) is None
    save_rollout(make(rollout_info={"color": Color.RED, "physics": Physics(2.0)}), tmp_path / "plain.npz")
    assert load_rollout(tmp_path / "plain.npz").rollout_info == {"color": 3, "physics": {"mass": 2.0}}


spaces = gymnasium.spaces
SPACES = [
    spaces.Box(-1, 1, (2, 3), np.float32),
    spaces.Box(np.array([0, -np.inf]), np.array([1, np.inf]), dtype=np.float64),
    spaces.Box(0, 255, (84, 84, 3), np.uint8),
    spaces.Box(0, 1, (0,), np.float32),
    spaces.Discrete(3, start=-1),
    spaces.MultiDiscrete([[2, 3], [4, 5]], start=[[1, 0], [0, 2]]),
    spaces.MultiBinary(4),
    spaces.MultiBinary((2, 3)),
    spaces.Text(5, min_length=2, charset="abc"),
    spaces.Dict(b=spaces.Discrete(2), a=spaces.Tuple([spaces.Discrete(2), spaces.Box(0, 1, ())])),
    spaces.OneOf([spaces.Discrete(2), spaces.Box(0, 1, (2,))]),
    spaces.Sequence(spaces.Box(0, 1, (2,)), stack=True),
    spaces.Graph(spaces.Box(0, 1, (2,)), spaces.Discrete(3)),
]


@pytest.mark.parametrize("space", SPACES, ids=lambda space: type(space).__name__)
def test_spaces_of_the_environment(tmp_path: Path, space: gymnasium.Space) -> None:
    spec = EnvSpec(space, spaces.Box(-1, 1, (2,)), 100, action_labels=("a", "b"))
    save_rollout(make(rollout_info={"env_spec": spec}), tmp_path / "r.npz")
    back = load_rollout(tmp_path / "r.npz").rollout_info["env_spec"]
    assert back == spec and isinstance(back, EnvSpec) and back.action_labels == ("a", "b")
    assert repr(back) == repr(spec)
    assert (tmp_path / "r.npz").stat().st_size < 10_000


def test_a_space_of_somebody_else_is_named(tmp_path: Path) -> None:
    class Sphere(gymnasium.Space[np.ndarray]):
        pass

    with pytest.raises(
        RecordingError, match=r"rollout_info\['space'\] cannot be written: Sphere is not a Gymnasium space"
    ):
        save_rollout(make(rollout_info={"space": Sphere()}), tmp_path / "r.npz")


def test_files_are_readable_without_this_library(tmp_path: Path) -> None:
    for suffix in SUFFIXES:
        save_rollout(make(), tmp_path / f"r{suffix}")
    arrays = np.load(tmp_path / "r.npz")
    assert arrays["observations.speed"].tolist() == [0, 1 / 7, 2 / 7, 3 / 7]
    assert json.loads(arrays["header"].tobytes())["length"] == 3
    for frame in (pd.read_csv(tmp_path / "r.csv", skiprows=1), pd.read_parquet(tmp_path / "r.parquet")):
        assert frame["observations.speed"].tolist() == [0, 1 / 7, 2 / 7, 3 / 7]
        assert frame["observations.image[0,1]"].tolist() == [0, 1, 2, 3]
        assert frame["rewards"].isna().tolist() == [False, False, False, True]
    first = (tmp_path / "r.csv").read_text().splitlines()[0]
    assert json.loads(first.removeprefix("# "))["version"] == 2
    save_rollout(make(), tmp_path / "again.npz")
    assert (tmp_path / "again.npz").read_bytes() == (tmp_path / "r.npz").read_bytes()


def test_awkward_names_and_texts(tmp_path: Path) -> None:
    rollout = make(
        infos={
            "a.b": np.zeros(3),
            "a": {"b": np.ones(3)},
            "x/y\x00": np.zeros(3),
            3: np.zeros(3),
            "header": np.ones(3),
        },
        text=np.array(['comma, "quote"', "line\nbreak\r", "\r"]),
        **{"infos.a.b": np.full(3, 2.0)},
    )
    for suffix in SUFFIXES:
        save_rollout(rollout, tmp_path / f"r{suffix}")
        assert first_difference(load_rollout(tmp_path / f"r{suffix}"), rollout) is None


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_what_cannot_be_written_is_named_before_anything_is(tmp_path: Path, suffix: str) -> None:
    thing = np.array([object()] * 3, dtype=object)
    holds_itself: list[Any] = []
    holds_itself.append(holds_itself)
    bad = {
        r"rollout_info\['plan'\]\['task'\] cannot be written: .* got object": {
            "rollout_info": {"plan": {"task": object()}}
        },
        r"field '?mission'?.* got object": {"mission": thing},
        "rollout_info cannot be written: it is nested too deeply": {"rollout_info": holds_itself},
        "field 'names' cannot be written: .* StringDType": {"names": np.array(["a"] * 3, np.dtypes.StringDType())},
        "field 'masked' cannot be written: it is a MaskedArray": {"masked": np.ma.masked_array([1, 2, 3])},
        "field 'sparse' cannot be written": {"sparse": torch.eye(3).to_sparse(), "mission": torch.zeros(3)},
        "field 'rows' cannot be written: its dtype .* holds objects": {"rows": np.zeros(3, [("a", "O")])},
    }
    if suffix != ".npz":
        bad[f"a {suffix} file cannot carry field 'pairs'"] = {"pairs": np.zeros(3, [("a", "f4"), ("b", "i1")])}
        bad[f"a {suffix} file cannot carry field 'long'"] = {"long": np.zeros(3, np.longdouble)}
    for match, data in bad.items():
        with pytest.raises(RecordingError, match=match):
            save_rollout(make(**data), tmp_path / f"r{suffix}")
        with pytest.raises(RecordingError, match=match):
            save_rollouts([make(), make(**data)], tmp_path / "many", suffix=suffix)
    assert list(tmp_path.iterdir()) == []


def test_texts_that_a_kind_of_file_cannot_carry(tmp_path: Path) -> None:
    long = make(text=np.array(["x" * 200_000, "", ""]))
    with pytest.raises(RecordingError, match=r"a \.csv file cannot carry field 'text': an entry is longer than 131072"):
        save_rollout(long, tmp_path / "r.csv")
    half = make(text=np.array(["\ud800", "", ""]))
    with pytest.raises(RecordingError, match=r"a \.parquet file cannot carry the text in field 'text'"):
        save_rollout(half, tmp_path / "r.parquet")
    assert list(tmp_path.iterdir()) == []
    save_rollout(half, tmp_path / "r.csv")
    assert rollouts_equal(load_rollout(tmp_path / "r.csv"), half)


def test_structured_arrays_and_long_doubles_in_npz(tmp_path: Path) -> None:
    rollout = make(pairs=np.ones(3, [("a", "f4"), ("b", "i1")]), long=np.full(3, np.longdouble(1) / 3))
    save_rollout(rollout, tmp_path / "r.npz")
    assert first_difference(load_rollout(tmp_path / "r.npz"), rollout) is None


# ---- damage ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("share", [0.0, 0.3, 0.5, 0.99])
def test_a_file_that_was_cut_off(tmp_path: Path, suffix: str, share: float) -> None:
    path = tmp_path / f"r{suffix}"
    save_rollout(make(length=30), path)
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])
    with pytest.raises(RecordingError, match=rf"/r\{suffix}: (line 1: )?it"):
        load_rollout(path)


def test_a_csv_file_cut_off_anywhere_is_recognized(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    save_rollout(make(), path)
    data = path.read_bytes()
    for length in range(len(data)):
        path.write_bytes(data[:length])
        with pytest.raises(RecordingError):
            load_rollout(path)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_files_of_others(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"r{suffix}"
    frame = pd.DataFrame({"a": [1.0, 2.0]})
    writers: dict[str, Callable[[], Any]] = {
        ".npz": lambda: np.savez(path, a=np.zeros(2)),
        ".csv": lambda: frame.to_csv(path),
        ".parquet": lambda: frame.to_parquet(path),
    }
    writers[suffix]()
    with pytest.raises(RecordingError, match="is not a rollout recorded by metaroll"):
        load_rollout(path)
    path.write_bytes(b"\x00garbage" * 50)
    with pytest.raises(RecordingError, match=r"/r\.\w+: "):
        load_rollout(path)


class Malicious:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("/this/was/run",)


def with_header(path: Path, change: Callable[[dict[str, Any]], None], **arrays: np.ndarray) -> None:
    """Rewrite a ``.npz`` recording with another header and more arrays (``None`` takes one out)."""
    old = dict(np.load(path))
    header = json.loads(old["header"].tobytes())
    change(header)
    old["header"] = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    np.savez(path, **{name: array for name, array in {**old, **arrays}.items() if array is not None})  # pyright: ignore[reportArgumentType]


def test_pickles_are_not_loaded(tmp_path: Path) -> None:
    path = tmp_path / "r.npz"
    save_rollout(make(), path)
    with_header(path, lambda header: None, rewards=np.array([Malicious()] * 3, dtype=object))
    with pytest.raises(RecordingError, match="allow_pickle"):
        load_rollout(path)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda h: h.update(version=3), "version 3 of the format, this metaroll reads 2: use a newer metaroll"),
        (lambda h: h.update(version=1), "version 1 of the format, this metaroll reads 2"),
        (lambda h: h.update(version="2"), "version '2' of the format"),
        (lambda h: h.update(format="other"), "not a rollout recorded by metaroll"),
        (lambda h: h["fields"].pop("mission"), "it holds 'mission', which its header does not name"),
        (
            lambda h: h["fields"]["rewards"][0].update(name="gone"),
            "the array 'gone', .* is missing",
        ),
        (lambda h: h["fields"]["rewards"][0].update(dtype="<f4"), "the array 'rewards' must be <f4"),
        (lambda h: h.update(length=4), "from 0 to the number of steps 4"),
        (lambda h: h.update(rollout_bounds=[0, 9]), "rollout bounds must increase"),
        (lambda h: h.pop("fields"), "its header lacks the entry 'fields'"),
        (lambda h: h["fields"].pop("rewards"), r"/r\.npz: "),
        (lambda h: h.update(data_format="jax"), "data_format must be"),
        (lambda h: h.update(rollout_info={"$": "pickle"}), "value of unknown kind 'pickle'"),
        (lambda h: h["fields"]["hidden"].update(fields=["import os", "c"]), r"/r\.\w+: "),
        (lambda h: h["fields"]["hidden"].update({"$": "list"}), "value of unknown kind 'list'"),
        (lambda h: h["fields"].update(mission=h["fields"]["mission"][0]), r"/r\.\w+: "),
        (lambda h: h["fields"]["rewards"][0].update(torch="save"), "torch has no dtype 'save'"),
    ],
)
def test_headers_that_do_not_fit(tmp_path: Path, change: Callable[[dict[str, Any]], None], match: str) -> None:
    path = tmp_path / "r.npz"
    save_rollout(make(), path)
    with_header(path, change)
    with pytest.raises(RecordingError, match=match):
        load_rollout(path)


def test_foreign_arrays_and_damaged_bytes(tmp_path: Path) -> None:
    path = tmp_path / "r.npz"
    save_rollout(make(), path)
    with_header(path, lambda header: None, extra=np.zeros(2))
    with pytest.raises(RecordingError, match="it holds 'extra', which its header does not name"):
        load_rollout(path)
    save_rollout(make(), path, overwrite=True)
    data = bytearray(path.read_bytes())
    place = data.find(np.float64(1 / 7).tobytes())
    data[place] ^= 1
    path.write_bytes(data)
    with pytest.raises(RecordingError, match="CRC"):
        load_rollout(path)


def test_a_csv_file_whose_line_endings_another_program_changed(tmp_path: Path) -> None:
    path, text = tmp_path / "r.csv", np.array(["a\nb", "c", "d"])
    save_rollout(make(text=text), path)
    changed = path.read_bytes().replace(b"\n", b"\r\n")
    path.write_bytes(changed)
    assert rollouts_equal(load_rollout(path), make(text=text))
    path.write_bytes(changed.replace(b"0.0", b"1.0", 1))
    with pytest.raises(RecordingError, match=r"it is damaged \(checksum mismatch"):
        load_rollout(path)


@pytest.mark.parametrize(
    ("old", "new", "match"),
    [
        ("rewards,", "reward,", "a column 'reward' where its header names 'rewards'"),
        ("\nFalse,", "\nmaybe,", "row 1 of column 'done' holds 'maybe', not bool"),
        ("\nFalse,False,False,0.0,", "\nFalse,False,False,,", "row 1 of column 'rewards' holds '', not float64"),
        ("\nFalse,False,False,0.0,", "\nFalse,False,False,0.0,1,", "row 1 has"),
        ("\nFalse,False,False,0.0,0,", "\nFalse,False,False,0.0,300,", r"/r\.\w+: "),
    ],
)
def test_csv_files_that_were_edited_badly(tmp_path: Path, old: str, new: str, match: str) -> None:
    path = tmp_path / "r.csv"
    save_rollout(make(), path)
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(RecordingError, match=r"where its header names|it is damaged \(checksum mismatch"):
        load_rollout(path)
    path.write_text(re.sub(r',"crc32":"[0-9a-f]{8}"', "", text.replace(old, new, 1)))  # as earlier versions wrote
    with pytest.raises(RecordingError, match=match):
        load_rollout(path)


# ---- files and folders -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_full_disk_leaves_everything_as_it_was(tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / f"r{suffix}"
    save_rollout(make(), path)
    before = path.read_bytes()
    calls = []

    def full_disk(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) != 2:  # of the two rollouts below, the second does not fit
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(RecordingError, match=f"r{suffix} cannot be written: No space left on device"):
        save_rollout(make(7), path, overwrite=True)
    with pytest.raises(RecordingError, match="No space left on device"):
        save_rollouts([make(), make()], tmp_path / "many", suffix=suffix)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir() if p.is_file()] == [path.name]
    assert list((tmp_path / "many").iterdir()) == []


# a device of Linux, not a package; the test above needs none
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_device_without_space(tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "new").symlink_to("/dev/full")
    monkeypatch.setattr(atomic_files, "temporary_path", lambda path: tmp_path / "new")  # where new content is written
    with pytest.raises(RecordingError, match=f"r{suffix} cannot be written: No space left on device"):
        save_rollout(make(length=2000), tmp_path / f"r{suffix}")
    assert list(tmp_path.iterdir()) == []


def test_writers_of_the_same_path_do_not_touch_what_the_other_is_writing(tmp_path: Path) -> None:
    path = tmp_path / "r.npz"

    def write(file: BinaryIO) -> None:
        file.write(b"first ")
        file.flush()
        write_atomic(path, b"the other one, in the middle of this one")
        file.write(b"second")

    write_files({path: write})
    assert path.read_bytes() == b"first second"
    assert list(tmp_path.iterdir()) == [path]


MISTAKES: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: save_rollout(make(), "gone/r.npz"), RecordingError, "there is no folder gone; make it first"),
    (lambda: save_rollout(make(), "folder.npz", overwrite=True), RecordingError, r"folder\.npz .*: Is a directory"),
    (lambda: load_rollout("folder.npz"), RecordingError, r"folder\.npz: it is a folder"),
    (lambda: load_rollout("empty"), RecordingError, "empty: it is a folder; load_rollouts"),
    (lambda: save_rollouts([make()], "file"), RecordingError, "the folder file"),
    (lambda: save_rollout(make(), f"{'r' * 300}.npz"), RecordingError, "File name too long"),
    (lambda: load_rollout("nowhere.npz"), FileNotFoundError, r"nowhere\.npz"),
    (lambda: load_rollouts("nowhere"), FileNotFoundError, "nowhere"),
    (lambda: load_rollouts("empty"), RecordingError, "empty"),
    (lambda: load_rollouts("file"), NotADirectoryError, "file is a file, .* import-log file --m"),
    (lambda: save_rollout(make(), "r.pkl"), ValueError, ".npz, .csv, .parquet, got"),
    (lambda: load_rollout("r"), ValueError, ".npz, .csv, .parquet, got"),
    (lambda: load_rollout("r.npz", max_bytes=0), ValueError, "max_bytes"),
    (lambda: save_rollout({}, "r.npz"), TypeError, "rollout must be a StepSequence"),  # type: ignore[arg-type]
    (lambda: save_rollouts([make(), {}], "new"), TypeError, "rollouts .* at position 1"),  # type: ignore[list-item]
    (lambda: save_rollouts(3, "new"), TypeError, "rollouts"),  # type: ignore[arg-type]
    (lambda: save_rollouts([make()], 3), TypeError, "folder"),  # type: ignore[arg-type]
    (lambda: load_rollouts(None), TypeError, "folder"),  # type: ignore[arg-type]
    (lambda: save_rollout(make(), 3), TypeError, "path"),  # type: ignore[arg-type]
    (lambda: load_rollout(3), TypeError, "path"),  # type: ignore[arg-type]
    (
        lambda: save_rollouts([make(), make(rollout_info=object())], "new"),
        RecordingError,
        r"rollouts\[1\]: rollout_info",
    ),
    (lambda: save_rollouts(make(), "new"), TypeError, r"rollouts .*; pass \[rollout\]"),
    (lambda: save_rollouts([], "new"), ValueError, "StepSequence"),
]


@pytest.mark.parametrize(("call", "error", "told"), MISTAKES)
def test_paths_that_cannot_be_written_or_read(call: Callable[[], Any], error: type[Exception], told: str) -> None:
    Path("folder.npz").mkdir()
    Path("empty").mkdir()
    Path("file").write_text("")
    with pytest.raises(error, match=told):
        call()
    assert sorted(path.name for path in Path().iterdir()) == ["empty", "file", "folder.npz"]


def test_overwriting_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "rollout_0.npz"
    save_rollout(make(), path)
    with pytest.raises(FileExistsError, match="pass overwrite=True"):
        save_rollout(make(5), path)
    with in_shell(), pytest.raises(FileExistsError, match="pass overwrite=True"):
        save_rollouts([make(5)], tmp_path)  # of a user's module that a command has imported
    assert rollouts_equal(load_rollout(path), make())
    save_rollout(make(5), path, overwrite=True)
    assert rollouts_equal(load_rollout(path), make(5))


def test_a_folder_of_rollouts_comes_back_in_order(tmp_path: Path) -> None:
    rollouts = [make(i) for i in range(12)]
    paths = save_rollouts(rollouts, tmp_path / "new" / "runs")
    assert [path.name for path in paths[:2]] == ["rollout_0000.npz", "rollout_0001.npz"]
    assert all(rollouts_equal(a, b) for a, b in zip(load_rollouts(tmp_path / "new" / "runs"), rollouts, strict=True))
    with pytest.raises(FileExistsError, match="holds 12 rollouts already"):
        save_rollouts(rollouts, tmp_path / "new" / "runs")
    save_rollouts([make(50), make(51)], tmp_path / "new" / "runs", overwrite=True, suffix=".csv")
    assert [r.rewards[0] * 3 for r in load_rollouts(tmp_path / "new" / "runs")] == [50, 51]


def test_a_folder_in_the_way_of_one_rollout_leaves_the_others_alone(tmp_path: Path) -> None:
    save_rollouts([make(0), make(1)], tmp_path)
    (tmp_path / "rollout_0002.npz").mkdir()
    with pytest.raises(RecordingError, match="Is a directory; what was there before is unchanged"):
        save_rollouts([make(5), make(6), make(7)], tmp_path, overwrite=True)
    assert [r.rewards[0] * 3 for r in load_rollouts(tmp_path)] == [0, 1]
    save_rollouts([make(8)], tmp_path, overwrite=True)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["rollout_0000.npz", "rollout_0002.npz"]


@pytest.mark.parametrize("starts", [[5], [5, 6, 7]])
@pytest.mark.parametrize("old", [[], [0, 1]])
def test_a_kill_at_any_file_operation_leaves_all_old_rollouts_or_all_new_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: list[int], starts: list[int]
) -> None:
    leftover = ".rollout_0000.npz.99999999-0a1b2c3d.tmp"  # of a writer of an earlier version
    seen, finished = set(), False
    for count in range(100):
        folder = tmp_path / str(count)
        folder.mkdir()
        (folder / "notes.txt").write_text("of somebody else")
        (folder / leftover).write_text("")
        if old:
            save_rollouts([make(i) for i in old], folder)
        with monkeypatch.context() as patch:
            die_after(patch, count)
            try:
                save_rollouts([make(i) for i in starts], folder, overwrite=True, suffix=".csv")
                finished = True
            except Killed:
                pass
        if old or recordings_in(folder):
            seen.add(tuple(r.rewards[0] * 3 for r in load_rollouts(folder)))
        new = [make(8), make(9)]
        save_rollouts(new, folder, overwrite=True)
        assert all(map(rollouts_equal, load_rollouts(folder), new))
        assert sorted(os.listdir(folder)) == ["notes.txt", "rollout_0000.npz", "rollout_0001.npz"]
        if finished:
            break
    assert finished and count > 5
    assert seen == {tuple(starts), *([tuple(old)] if old else [])}


def test_one_process_at_a_time_saves_into_a_folder(tmp_path: Path) -> None:
    save_rollouts([make(0)], tmp_path)
    (tmp_path / ".metaroll-new").mkdir()
    program = "import sys, time\nfrom metaroll.data.folders.locks import FolderLock\n"
    program += "lock = FolderLock(sys.argv[1])\nprint('locked', flush=True)\ntime.sleep(60)"
    command = [sys.executable, "-c", program, str(tmp_path / ".metaroll-new")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None and other.stdout.readline()
        with pytest.raises(FileExistsError, match=rf"metaroll-new is in use by process {other.pid}: wait"):
            save_rollouts([make(1)], tmp_path, overwrite=True)
        save_rollout(make(1), tmp_path / "mine.npz")  # of no set
        (tmp_path / "mine.npz").unlink()
        other.kill()
    assert load_rollouts(tmp_path)[0].rewards[0] == 0
    save_rollouts([make(3)], tmp_path, overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == ["rollout_0000.npz"]


def test_rollouts_that_could_not_be_moved_into_place(tmp_path: Path) -> None:
    """Row 2: the half that was moved was loaded with the other half of the old ones."""
    save_rollouts([make(0), make(1), make(2)], tmp_path)
    save_rollouts([make(5), make(6)], tmp_path / "other")
    new = tmp_path / ".metaroll-new"
    (tmp_path / "other").rename(new)
    assert [r.rewards[0] * 3 for r in load_rollouts(tmp_path)] == [0, 1, 2]  # the list is missing
    for names in ("{", '["../rollout_0000.npz"]', '{"a": 1}', '["rollout_0000.npz", "rollout_0009.npz"]'):
        (new / "complete.json").write_text(names)
        with pytest.raises(RecordingError, match=rf"{new / 'complete.json'}.* save all files again"):
            load_rollouts(tmp_path)
    (new / "complete.json").write_text('["rollout_0000.npz", "rollout_0001.npz"]')
    assert [r.rewards[0] * 3 for r in load_rollouts(tmp_path)] == [5, 6]
    with pytest.raises(FileExistsError, match="holds 2 rollouts already"):
        save_rollouts([make(7)], tmp_path)


@pytest.mark.parametrize("name", ["rollout_0000.npz", "rollout_0007.npz", "mine.npz"])
def test_a_rollout_saved_beside_a_set_whose_writer_was_killed_stays(tmp_path: Path, name: str) -> None:
    save_rollouts([make(0)], tmp_path)
    save_rollouts([make(5), make(6)], tmp_path / "other")
    (tmp_path / "other").rename(tmp_path / ".metaroll-new")
    (tmp_path / ".metaroll-new" / "complete.json").write_text('["rollout_0000.npz", "rollout_0001.npz"]')
    assert load_rollout(tmp_path / "rollout_0000.npz").rewards[0] * 3 == 5  # as load_rollouts says
    save_rollout(make(8), tmp_path / name, overwrite=True)
    assert load_rollout(tmp_path / name).rewards[0] * 3 == 8
    assert sorted(r.rewards[0] * 3 for r in load_rollouts(tmp_path)) == (
        [6, 8] if name.endswith("0.npz") else [5, 6, 8]
    )
    assert (tmp_path / ".metaroll-new").exists() == (name == "mine.npz")  # which moving the others does not touch
    with pytest.raises(FileExistsError, match="exists already"):  # also where it had not been moved yet
        save_rollout(make(9), tmp_path / "rollout_0001.npz")
    assert load_rollout(tmp_path / "rollout_0001.npz").rewards[0] * 3 == 6


@pytest.fixture
def at_second_read(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], list[Path]]:
    """What another one does when the second file is about to be read; the files that are read."""

    def install(act: Callable[[], Any]) -> list[Path]:
        read, paths = recordings._read, []

        def overtaken(path: Path, limit: int) -> StepSequence:
            paths.append(path)
            if len(paths) == 2:
                act()
            return read(path, limit)

        monkeypatch.setattr(recordings, "_read", overtaken)
        return paths

    return install


def test_a_reader_that_a_writer_overtakes_reads_again(tmp_path: Path, at_second_read: Any) -> None:
    save_rollouts([make(0), make(1)], tmp_path)
    paths = at_second_read(lambda: save_rollouts([make(5), make(6)], tmp_path, overwrite=True))
    assert [r.rewards[0] * 3 for r in load_rollouts(tmp_path)] == [5, 6] and len(paths) == 4


def test_a_reader_of_a_folder_without_rollouts_sees_no_half_of_the_first_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def half(folder: Path) -> list[Path]:
        monkeypatch.undo()
        return save_rollouts([make(5), make(6)], folder)[:1]

    monkeypatch.setattr(recordings, "recordings_in", half)
    assert [r.rewards[0] * 3 for r in load_rollouts(tmp_path)] == [5, 6]


def test_one_rollout_is_read_again_where_its_file_was_moved_meanwhile(tmp_path: Path, at_second_read: Any) -> None:
    save_rollouts([make(0), make(1)], tmp_path / "other")
    new = tmp_path / ".metaroll-new"
    (tmp_path / "other").rename(new)
    (new / "complete.json").write_text('["rollout_0000.npz", "rollout_0001.npz"]')
    paths = at_second_read(lambda: save_rollouts([make(5), make(6)], tmp_path, overwrite=True))
    assert load_rollout(tmp_path / "rollout_0000.npz").rewards[0] == 0
    assert load_rollout(tmp_path / "rollout_0001.npz").rewards[0] * 3 == 6
    assert [path.parent for path in paths] == [new, new, tmp_path]


@pytest.mark.parametrize("load", [load_rollouts, lambda folder: [load_rollout(folder / "rollout_0001.npz")]])
def test_a_file_of_the_first_set_that_is_moved_while_it_is_read_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, load: Callable[[Path], list[StepSequence]]
) -> None:
    save_rollouts([make(5), make(6)], tmp_path / "other")
    new = tmp_path / ".metaroll-new"
    (tmp_path / "other").rename(new)
    (new / "complete.json").write_text('["rollout_0000.npz", "rollout_0001.npz"]')
    opened = recordings.open_plain

    def moved(path: Path) -> Any:
        if path.parent == new:
            os.replace(path, tmp_path / path.name)  # as its writer does next
        return opened(path)

    monkeypatch.setattr(recordings, "open_plain", moved)
    assert load(tmp_path)[-1].rewards[0] * 3 == 6


def test_a_rollout_that_is_added_meanwhile_does_not_delay_a_reader(tmp_path: Path, at_second_read: Any) -> None:
    save_rollouts([make(0), make(1)], tmp_path)
    paths = at_second_read(lambda: save_rollout(make(2), tmp_path / "rollout_0002.npz"))
    assert [r.rewards[0] * 3 for r in load_rollouts(tmp_path)] == [0, 1] and len(paths) == 2


def test_a_file_or_a_folder_in_the_way_of_new_files_is_named(tmp_path: Path) -> None:
    save_rollouts([make(0)], tmp_path)
    new = tmp_path / ".metaroll-new"
    new.write_text("")
    with pytest.raises(FileExistsError, match=rf"{new} must be a folder, and is a file: remove it"):
        save_rollouts([make(1)], tmp_path, overwrite=True)
    assert load_rollouts(tmp_path)[0].rewards[0] == 0
    new.unlink()
    (new / ".lock").mkdir(parents=True)
    with pytest.raises(FileExistsError, match=rf"{new / '.lock'} must be a plain file: remove it"):
        save_rollouts([make(1)], tmp_path, overwrite=True)


def test_one_thread_at_a_time_saves_into_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_rollouts([make(0)], tmp_path)
    refused: list[Exception] = []

    def save() -> None:
        with pytest.raises(FileExistsError, match="another thread is saving into") as error:
            save_rollouts([make(9)], tmp_path, overwrite=True)
        refused.append(error.value)

    def from_elsewhere(*arguments: Any) -> None:
        monkeypatch.undo()
        other = threading.Thread(target=save)
        other.start()
        other.join()
        file_sets.clear(*arguments)

    monkeypatch.setattr(file_sets, "clear", from_elsewhere)
    save_rollouts([make(1)], tmp_path, overwrite=True)
    assert refused and load_rollouts(tmp_path)[0].rewards[0] * 3 == 1


@pytest.mark.parametrize("name", ["rollout_0007.npz", "mine.npz"])
def test_a_rollout_saved_while_a_set_is_written_is_kept_or_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """If it were saved, moving the set would remove it."""
    clear, refused = file_sets.clear, []

    def save() -> None:
        try:
            save_rollout(make(9), tmp_path / name)
        except FileExistsError as error:
            refused.append(str(error))

    def meanwhile(*arguments: Any) -> None:
        monkeypatch.undo()
        other = threading.Thread(target=save)
        other.start()
        other.join()
        clear(*arguments)

    monkeypatch.setattr(file_sets, "clear", meanwhile)
    save_rollouts([make(1), make(2)], tmp_path)
    is_kept = name == "mine.npz"
    assert [r.rewards[0] * 3 for r in load_rollouts(tmp_path)] == ([9] if is_kept else []) + [1, 2]
    assert [f"another thread is saving into {tmp_path}; wait until it is done"] * (not is_kept) == refused


def test_rollouts_that_another_one_saved_after_the_first_look_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace_set = recordings.replace_set

    def later(*arguments: Any) -> None:
        monkeypatch.undo()
        save_rollouts([make(5), make(6)], tmp_path)
        replace_set(*arguments)

    monkeypatch.setattr(recordings, "replace_set", later)
    with pytest.raises(FileExistsError, match="holds 2 rollouts already"):
        save_rollouts([make(7)], tmp_path)
    assert [r.rewards[0] * 3 for r in load_rollouts(tmp_path)] == [5, 6]
    assert not (tmp_path / ".metaroll-new").exists()


def test_an_interrupt_anywhere_leaves_a_whole_set_and_lets_the_next_one_save(tmp_path: Path) -> None:
    old, new = [make(0)], [make(5), make(6)]
    save_rollouts(old, tmp_path)

    def save() -> None:
        save_rollouts(new, tmp_path, overwrite=True)

    for at in last_times(save, ("/folders/file_sets.py",)):
        save_rollouts(old, tmp_path, overwrite=True)
        is_interrupted(save, at, ("/folders/file_sets.py",))
        assert [r.rewards[0] * 3 for r in load_rollouts(tmp_path)] in ([0], [5, 6])


def test_a_file_that_another_process_writes_now_is_not_removed(tmp_path: Path) -> None:
    mine = tmp_path / f".rollout_0009.npz.{os.getpid()}-0a1b2c3d.tmp"
    mine.write_text("")
    for number in (1, 2):
        save_rollouts([make(number)], tmp_path, overwrite=True)
        assert mine.exists()


def test_numbers_in_names_are_sorted_by_size(tmp_path: Path) -> None:
    for name in ("log_10.npz", "log_9.npz", "log_2.csv", "LOG_1.NPZ"):
        save_rollout(make(int("".join(filter(str.isdigit, name)))), tmp_path / name)
    (tmp_path / "notes.txt").write_text("not a rollout")
    (tmp_path / ".log_3.npz.tmp").write_text("left by a process that was killed")
    assert [round(float(r.rewards[0] * 3)) for r in load_rollouts(tmp_path)] == [1, 2, 9, 10]
    (tmp_path / "bad.npz").write_text("")
    with pytest.raises(RecordingError, match=r"bad\.npz: it is not a \.npz file"):
        load_rollouts(tmp_path)


def test_without_pyarrow_the_message_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"pip install 'pandas>=2.2' 'pyarrow>=16.0'"):
        save_rollout(make(), tmp_path / "r.parquet")
    save_rollout(make(), tmp_path / "r.csv")


def test_an_archive_with_an_entry_twice_is_no_recording(tmp_path: Path) -> None:
    path = tmp_path / "r.npz"
    save_rollout(make(), path)
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate name"):
        archive.writestr("rewards.npy", b"")
    with pytest.raises(RecordingError):
        load_rollout(path)


@pytest.mark.parametrize("suffix", [".npz", ".csv"])
@pytest.mark.parametrize("nothing", [{}, ()])
def test_structures_without_parts_come_back(nothing: Any, suffix: str, tmp_path: Path) -> None:
    rollout = StepSequence(rewards=[1.0, 2.0], observations=nothing, actions=np.zeros((2, 1)))
    save_rollout(rollout, tmp_path / f"r{suffix}")
    again = load_rollout(tmp_path / f"r{suffix}")
    assert again.observations == nothing and rollouts_equal(again, rollout)


# ---- files that were made to fill the memory -------------------------------------------------------------------------

MEBIBYTE = 2**20


def zeros(length: int, **data: Any) -> StepSequence:
    return StepSequence(rewards=np.zeros(length), observations=np.zeros(length), actions=np.zeros(length), **data)


def test_sizes_that_an_archive_declares_are_checked_first(tmp_path: Path) -> None:
    path = tmp_path / "r.npz"
    save_rollout(zeros(200_000), path)  # 5 MB
    assert len(load_rollout(path, max_bytes=1)) == 200_000  # the file is as large as what it holds
    with zipfile.ZipFile(path) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in entries.items():
            archive.writestr(name, data)
    with pytest.raises(RecordingError, match="pass a larger max_bytes"):
        load_rollout(path, max_bytes=MEBIBYTE)
    with pytest.raises(RecordingError, match="pass a larger max_bytes"):
        load_rollouts(tmp_path, max_bytes=MEBIBYTE)
    assert len(load_rollout(path)) == len(load_rollout(path, max_bytes=8 * MEBIBYTE)) == 200_000


def test_an_array_that_is_smaller_than_its_shape_takes_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "r.npz"
    save_rollout(make(), path)
    text = path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    old = b"'shape': (3,), }"
    assert old in entries["rewards.npy"] and text
    entries["rewards.npy"] = entries["rewards.npy"].replace(old + b" " * 12, b"'shape': (3000000000000,), }")
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in entries.items():
            archive.writestr(name, data)
    with pytest.raises(RecordingError, match="'rewards' is longer or shorter"):
        load_rollout(path)


def test_a_space_of_a_header_may_not_fill_the_memory(tmp_path: Path) -> None:
    space = gymnasium.spaces.Box(0.0, 1.0, (1000, 1000))
    save_rollout(zeros(3, rollout_info={"space": space}), tmp_path / "r.npz")
    assert load_rollout(tmp_path / "r.npz").rollout_info["space"] == space
    with pytest.raises(RecordingError, match="a Box space"):
        load_rollout(tmp_path / "r.npz", max_bytes=MEBIBYTE)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_table_may_not_fill_the_memory(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"r{suffix}"
    save_rollout(zeros(3, text=np.array(["abc"] * 3, "<U9000000")), path)
    with pytest.raises(RecordingError, match="rows of its dtypes and shapes"):
        load_rollout(path, max_bytes=MEBIBYTE)


def test_what_parquet_stores_once_may_not_fill_the_memory(tmp_path: Path) -> None:
    path = tmp_path / "r.parquet"
    save_rollout(zeros(200_000), path)
    assert path.stat().st_size < MEBIBYTE / 4
    with pytest.raises(RecordingError, match="rows of its dtypes and shapes"):
        load_rollout(path, max_bytes=MEBIBYTE)
    texts = np.full(500, None, dtype=object)
    texts[:] = ["x" * 5000] * 500
    save_rollout(zeros(500, text=texts), path, overwrite=True)
    with pytest.raises(RecordingError, match="the texts of column 'text'"):
        load_rollout(path, max_bytes=MEBIBYTE)
    assert load_rollout(path).text[7] == texts[7]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_integers_of_any_length_come_back(tmp_path: Path, suffix: str) -> None:
    """The JSON of files has none of more than 128 bits, and Python writes none of more than 4300 digits."""
    values = [1 << 128, -(1 << 128) + 1, -(1 << 20_000)]
    path = tmp_path / f"r{suffix}"
    save_rollout(zeros(2, counts=np.array([values, None], dtype=object)), path)
    assert load_rollout(path).counts[0] == values


def test_pipes_and_devices_are_no_recordings(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.npz")
    (tmp_path / "zeros.npz").symlink_to("/dev/zero")
    for name in ("pipe.npz", "zeros.npz"):
        with pytest.raises(RecordingError, match=r"a pipe or a device|it is a link to /dev/zero"):
            load_rollout(tmp_path / name)
    with pytest.raises(RecordingError, match=r"a pipe or a device|it is a link to /dev/zero"):
        save_rollout(make(), tmp_path / "pipe.npz", overwrite=True)
    save_rollout(make(), tmp_path / "r.npz")
    assert len(load_rollouts(tmp_path)) == 1
