"""The doors to files: plain files only, a budget before anything is allocated, one error for all damage."""

from __future__ import annotations

import io
import json
import os
import re
import struct
from datetime import time
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from metaroll.data.doors.array_files import load_npz
from metaroll.data.doors.budget import Budget
from metaroll.data.doors.csv_files import parse_csv
from metaroll.data.doors.json_files import json_lines, parse_json, read_json, read_json_dict
from metaroll.data.doors.parquet_files import number_columns
from metaroll.data.doors.plain_files import check_plain_name, damage, open_plain, read_bytes, read_text
from metaroll.data.doors.tensor_files import load_tensors
from metaroll.data.doors.yaml_files import read_yaml
from metaroll.errors import DamagedFileError, LogError, PosteriorError, RecordingError, SnapshotError


def test_errors_of_each_format_are_errors_of_damaged_files():
    for kind in (LogError, PosteriorError, RecordingError, SnapshotError):
        error = kind("a: line 3: x", "a", 3)
        assert isinstance(error, DamagedFileError) and isinstance(error, ValueError)
        assert (str(error), error.path, error.line, kind("x").path) == ("a: line 3: x", "a", 3, None)


def test_only_plain_files_are_opened(tmp_path: Path):
    (tmp_path / "a").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    os.mkfifo(tmp_path / "pipe")
    for name, words in {
        "link": f"link to {tmp_path / 'a'}",
        "pipe": "pipe",
        ".": "folder",
    }.items():
        with pytest.raises(LogError, match=f"{re.escape(words)}.*; restore it") as caught:
            read_bytes(tmp_path / name, 10, LogError, "restore it")
        assert caught.value.path == tmp_path / name
    with pytest.raises(FileNotFoundError, match="none"):
        read_bytes(tmp_path / "none", 10)
    with pytest.raises(NotADirectoryError, match="a/b"):
        read_bytes(tmp_path / "a" / "b", 10)
    with open_plain(tmp_path / "a") as file:
        assert file.read() == b"x"


def test_the_size_of_a_file_is_limited_and_text_is_utf_8(tmp_path: Path):
    (tmp_path / "a").write_bytes(b"one\ntwo\n\xff")
    with pytest.raises(DamagedFileError, match=r"9 bytes.* 8"):
        read_bytes(tmp_path / "a", 8)
    with pytest.raises(DamagedFileError, match=r"a: line 3: .*UTF-8"):
        read_text(tmp_path / "a", 9)


@pytest.mark.parametrize("name", ["../outside.bin", "/etc/passwd", "a/b", "", "..", ".", "a\\b", "a\0", 3, None])
def test_names_that_lead_out_of_a_folder_are_refused(name):
    assert check_plain_name("rows-1.bin") == "rows-1.bin"
    with pytest.raises(DamagedFileError, match="file in the same folder"):
        check_plain_name(name)


@pytest.mark.parametrize(
    "raised", [KeyError("x"), RecursionError(), MemoryError(), struct.error("x"), OverflowError("x"), OSError("x")]
)
def test_all_errors_while_reading_become_one_error(raised):
    with pytest.raises(SnapshotError, match=r"^f: it .*; restore it$"), damage("f", SnapshotError, "restore it"):
        raise raised
    with pytest.raises(ImportError), damage("f"):
        raise ImportError("x")
    with pytest.raises(PermissionError, match="'f'"), damage("f"):
        raise PermissionError(13, "no")


def test_bytes_and_entries_count_against_a_budget():
    budget = Budget(1000, "pass more")
    budget.spend(400, "a")
    with pytest.raises(DamagedFileError, match=r"1000 bytes.*\(many\); pass more"):
        budget.spend_entries(10, "many")
    budget.beside().spend(1000, "all of another")
    assert Budget.of_file(10, 3, 5)._left == 30


def test_json_is_counted_before_it_is_parsed(tmp_path: Path):
    assert parse_json(b'{"a": [1, "\\u00e9", null]}') == {"a": [1, "é", None]}
    for text, words in {
        "[" * 500 + "]" * 500: "400 levels",
        '{"a": 1,\n"b"}': "not valid JSON",
        "9" * 5000: r"9{20}\.\.\.9{10} .*128 bits",
    }.items():
        with pytest.raises(DamagedFileError, match=words):
            parse_json(text)
    assert parse_json('"' + "[" * 500 + '"') == "[" * 500
    with pytest.raises(DamagedFileError, match="lists and dicts"):
        parse_json("[" + "[]," * 100 + "[]]", Budget(3000))
    (tmp_path / "a.json").write_text('{"a":\n1\n')
    with pytest.raises(SnapshotError, match=r"a\.json: line 3: .*; hint") as caught:
        read_json(tmp_path / "a.json", SnapshotError, "hint")
    assert caught.value.line == 3
    (tmp_path / "a.json").write_text("[1]")
    with pytest.raises(DamagedFileError, match="JSON object, got list"):
        read_json_dict(tmp_path / "a.json")


def test_lines_of_json_are_numbered():
    lines = json_lines(b'{"a":1}\n{"a":2}\n[3]\n{"torn', Budget())
    assert [next(lines), next(lines)] == [(1, {"a": 1}), (2, {"a": 2})]
    with pytest.raises(DamagedFileError, match="JSON object") as caught:
        next(lines)
    assert caught.value.line == 3


def test_yaml_of_other_types_is_an_error_of_the_file(tmp_path: Path):
    for text in ("a: !!bool maybe", "a: !!timestamp never", "a: !!python/object/apply:os.system [x]"):
        (tmp_path / "a.yaml").write_text(text)
        with pytest.raises(LogError, match=r"a\.yaml: .*; hint"):
            read_yaml(tmp_path / "a.yaml", LogError, "hint")


def test_cells_of_csv_are_counted_before_they_are_made():
    assert parse_csv('a,b\n1,"x\ny"\n', Budget()) == [["a", "b"], ["1", "x\ny"]]
    with pytest.raises(DamagedFileError, match="its cells"):
        parse_csv("," * 1000, Budget(10_000))
    with pytest.raises(DamagedFileError, match="field larger than") as caught:
        parse_csv("a\n" + "x" * 200_000, Budget(), lines_before=4)
    assert caught.value.line == 6


def test_arrays_come_back_as_numpy_reads_them(tmp_path: Path):
    arrays = {
        "a": np.arange(12.0).reshape(3, 4),
        "order": np.asfortranarray(np.arange(6, dtype=">i4").reshape(2, 3)),
        "text": np.array(["ab", "c"]),
        "time": np.array(["2020-01-01"], "M8[D]"),
        "none": np.zeros((0, 3)),
        "one": np.float32(3),
    }
    np.savez_compressed(tmp_path / "a.npz", **arrays)
    loaded = load_npz(tmp_path / "a.npz")
    for name, array in arrays.items():
        assert loaded[name].dtype == array.dtype and loaded[name].flags.writeable
        assert loaded[name].flags.f_contiguous == np.asarray(array).flags.f_contiguous
        np.testing.assert_array_equal(loaded[name], array)


def test_safetensors_come_back_and_every_offset_is_checked(tmp_path: Path):
    path = tmp_path / "a.safetensors"
    arrays = {"a": np.arange(6.0).reshape(2, 3), "b": np.array([True]), "c": np.zeros((0, 2), np.float16)}
    save_file(arrays, path)
    for name, (_, values) in load_tensors(path).items():
        assert values.dtype == arrays[name].dtype
        np.testing.assert_array_equal(values, arrays[name])
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    for change, words in (
        ({"dtype": "F99"}, "dtype"),
        ({"shape": [2, 10**12]}, "longer"),
        ({"shape": [-1]}, "shape"),
        ({"data_offsets": [10**9, 10**9 + 48]}, "begin"),
    ):
        text = json.dumps({**header, "a": {**header["a"], **change}}).encode()
        path.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + length :])
        with pytest.raises(SnapshotError, match=words):
            load_tensors(path, SnapshotError)
    path.write_bytes(b"\xff" * 8 + data[8:])
    with pytest.raises(DamagedFileError, match="header"):
        load_tensors(path)


def test_the_size_of_a_parquet_file_is_added_up_page_by_page():
    """0.1 MB that expanded to 1.4 GB; a page cannot give wrong sizes, since it is expanded by them."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    texts = pa.DictionaryArray.from_arrays(pa.array(np.zeros(200_000, np.int32)), ["x" * 7000])
    out = pa.BufferOutputStream()
    pq.write_table(pa.table({"t": np.zeros(200_000), "text": texts}), out, compression="gzip")
    data = out.getvalue().to_pybytes()
    assert len(data) < 2**17
    columns = number_columns(io.BytesIO(data), Budget(2**26))
    assert columns["text"][5] is columns["text"][199_999] and columns["t"].shape == (200_000,)
    with pytest.raises(DamagedFileError, match="200000 rows"):
        number_columns(io.BytesIO(data), Budget(2**20))
    out = pa.BufferOutputStream()
    pq.write_table(pa.table({"text": ["x" * 5_000_000] * 2}), out, compression="zstd", use_dictionary=False)
    with pytest.raises(DamagedFileError, match="pages"):
        number_columns(io.BytesIO(out.getvalue().to_pybytes()), Budget(2**20))


@pytest.mark.parametrize(
    "kind", ["large_string", "large_binary", "string_view", "binary_view", "binary", "decimal256", "time64", "json"]
)
def test_each_type_of_a_parquet_file_is_added_up_by_what_it_expands_to(kind: str):
    """Only two types of texts stayed in their dictionaries: 0.1 MB that expanded to 6 GB."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    text = "x" * 20_000
    rows = 200 if kind not in ("decimal256", "time64") else 20_000
    types = {"binary": pa.binary(20_000), "decimal256": pa.decimal256(70, 2), "time64": pa.time64("us"), "json": None}
    values = {"decimal256": Decimal("1.50"), "time64": time(1, 2), "json": text}
    value = values.get(kind, text.encode() if "binary" in kind else text)
    if kind == "json":
        cells = pa.ExtensionArray.from_storage(pa.json_(), pa.array([text] * rows))
    else:
        cells = pa.array([value] * rows, types[kind] if kind in types else getattr(pa, kind)())
    out = pa.BufferOutputStream()
    pq.write_table(pa.table({"t": np.zeros(rows), "c": cells}), out, compression="zstd", write_statistics=False)
    data = out.getvalue().to_pybytes()
    assert len(data) < 2**12
    if kind in ("binary", "decimal256", "time64"):
        with pytest.raises(DamagedFileError, match=r"1048576 bytes .*(rows|column 'c')"):
            number_columns(io.BytesIO(data), Budget(2**20))
        assert number_columns(io.BytesIO(data), Budget(2**24))["c"][7] == value
    elif kind == "json":
        assert list(number_columns(io.BytesIO(data), Budget(2**20))) == ["t"]
    else:
        column = number_columns(io.BytesIO(data), Budget(2**20))["c"]
        assert column[7] == value and column[7] is column[rows - 1]


@pytest.mark.parametrize(
    "digits", ["0x" + "f" * 60, "0b" + "1" * 5000, "1" + "0" * 400, "-" + "9" * 5000, "1" + ":59" * 9000]
)
def test_an_integer_of_yaml_has_at_most_128_bits(tmp_path: Path, digits: str):
    """Longer ones could be read, but neither printed nor converted to a float: ``metaroll list`` broke."""
    seeds = f"seed: {2**128 - 1}\na: -0x{'f' * 32}\n"
    (tmp_path / "c.yaml").write_text(f"{seeds}b: [{digits}]\n")
    with pytest.raises(DamagedFileError, match=r"c\.yaml: line 3: .*\S+\.\.\.\S+ .*128 bits"):
        read_yaml(tmp_path / "c.yaml")
    (tmp_path / "c.yaml").write_text(seeds)
    assert read_yaml(tmp_path / "c.yaml") == {"seed": 2**128 - 1, "a": 1 - 2**128}


@pytest.mark.parametrize("digits", [str(2**128), "1" + "0" * 400, "-" + "9" * 5000])
def test_an_integer_of_json_has_at_most_128_bits(digits: str):
    text = '{"text": "' + digits + '",\n"fraction": 1.' + digits.strip("-") + ',\n"seed": %s}'
    assert parse_json(text % -(2**128 - 1))["seed"] == -(2**128 - 1)
    with pytest.raises(DamagedFileError, match="128 bits") as caught:
        parse_json(text % digits)
    assert caught.value.line == 3
    with pytest.raises(DamagedFileError, match="128 bits") as caught:
        list(json_lines(b'{"a": 1}\n{"a": ' + digits.encode() + b"}\n", Budget()))
    assert caught.value.line == 2


def test_columns_of_a_parquet_file_have_the_declared_number_of_rows():
    """Its metadata declared 10 rows, its pages held a million: their size was counted by the metadata."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    out = pa.BufferOutputStream()
    pq.write_table(pa.table({"t": np.zeros(100_000)}), out, compression="zstd", write_statistics=False)
    data = bytearray(out.getvalue().to_pybytes())
    begin = data.index(b"\xc0\x9a\x0c", len(data) - 8 - int.from_bytes(data[-8:-4], "little"))
    data[begin : begin + 3] = b"\x94\x80\x00"  # 10, in as many bytes as 100000
    assert pq.ParquetFile(io.BytesIO(data)).metadata.num_rows == 10
    with pytest.raises(DamagedFileError, match=r"10 rows.* 100000"):
        number_columns(io.BytesIO(data), Budget(2**26))


def test_short_texts_of_a_parquet_file_are_added_up_as_objects():
    """A page of texts of two letters takes ten times as many bytes in Python."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    out = pa.BufferOutputStream()
    texts = pa.array([f"{i:x}" for i in range(20_000)])
    pq.write_table(pa.table({"text": texts}), out, compression="zstd")
    with pytest.raises(DamagedFileError, match="column 'text'"):
        number_columns(io.BytesIO(out.getvalue().to_pybytes()), Budget(2**20))


def test_a_column_that_has_the_name_of_a_part_of_another_is_refused():
    import pyarrow as pa
    import pyarrow.parquet as pq

    out = pa.BufferOutputStream()
    pq.write_table(pa.table({"pos": [1.0], "pos.all": [[1.0, 2.0]]}), out)
    with pytest.raises(DamagedFileError, match=r"'pos\.all'"):
        number_columns(io.BytesIO(out.getvalue().to_pybytes()), Budget())


def test_files_of_a_run_that_are_no_plain_files_are_refused(tmp_path: Path):
    """A pipe as ``metrics.jsonl`` made ``metaroll list`` wait forever; rows were read from any path."""
    from metaroll.lab.runs.run_reports import read_run
    from metaroll.training.store.row_files import load_rows

    os.mkfifo(tmp_path / "metrics.jsonl")
    assert re.search("metrics.jsonl: .*pipe", read_run(tmp_path).problem)
    (tmp_path / "outside.bin").write_bytes(b"12345678")
    (tmp_path / "in").mkdir()
    files = [{"name": "../outside.bin", "size": 8, "crc32": 2598427311}]
    with pytest.raises(SnapshotError, match=r"outside.bin"):
        load_rows(tmp_path / "in", {"dtype": "<f8", "shape": [1], "files": files}, "hint")
    with pytest.raises(SnapshotError, match=r"8 bytes .* 8000000000000"):
        load_rows(tmp_path, {"dtype": "<f8", "shape": [10**12], "files": [{**files[0], "name": "outside.bin"}]}, "hint")
