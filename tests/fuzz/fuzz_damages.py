"""Damages of files, each a function of a generator and the content: deterministic, whatever the file."""

from __future__ import annotations

import copy
import io
import json
import re
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import yaml

Damage = Callable[[np.random.Generator, bytes], bytes]
Made = Callable[[], bytes]
"""Makes a content when it is tried: most of thousands are only counted."""


def flip(rng: np.random.Generator, data: bytes, count: int = 1) -> bytes:
    out = bytearray(data)
    for place in rng.integers(0, max(1, len(out)), count if out else 0):
        out[place] ^= 1 << int(rng.integers(8))
    return bytes(out)


def flip_many(rng: np.random.Generator, data: bytes) -> bytes:
    return flip(rng, data, 12)


def cut(rng: np.random.Generator, data: bytes) -> bytes:
    return data[: int(rng.integers(0, max(1, len(data))))]


def _span(rng: np.random.Generator, data: bytes) -> tuple[int, int]:
    begin = int(rng.integers(0, max(1, len(data))))
    return begin, min(len(data), begin + int(rng.integers(1, 64)))


def insert(rng: np.random.Generator, data: bytes) -> bytes:
    begin, end = _span(rng, data)
    return data[:begin] + rng.bytes(end - begin) + data[begin:]


def double(rng: np.random.Generator, data: bytes) -> bytes:
    begin, end = _span(rng, data)
    return data[:end] + data[begin:end] + data[end:]


def remove(rng: np.random.Generator, data: bytes) -> bytes:
    begin, end = _span(rng, data)
    return data[:begin] + data[end:]


def swap(rng: np.random.Generator, data: bytes) -> bytes:
    (a, b), (c, d) = sorted([_span(rng, data), _span(rng, data)])
    return data[:a] + data[c:d] + data[b:c] + data[a:b] + data[max(b, d) :]


def huge_bytes(rng: np.random.Generator, data: bytes) -> bytes:
    """A declared size, perhaps, becomes the largest there is."""
    place, width = int(rng.integers(0, max(1, len(data) - 8))), int(rng.choice([2, 4, 8]))
    filled = bytes([255] * (width - 1) + [int(rng.choice([127, 255]))])
    return data[:place] + filled + data[place + width :]


def huge_digits(rng: np.random.Generator, data: bytes) -> bytes:
    found = list(re.finditer(rb"\d+", data))
    if not found:
        return data + b"9" * 30
    one = found[int(rng.integers(len(found)))]
    number = [b"9" * 9, b"9" * 18, b"9" * 5000, b"-1", b"1e400", b"NaN", b"0"][int(rng.integers(7))]
    return data[: one.start()] + number + data[one.end() :]


def empty(rng: np.random.Generator, data: bytes) -> bytes:
    return b""


BYTES: dict[str, Damage] = {
    "flip": flip,
    "flip_many": flip_many,
    "cut": cut,
    "insert": insert,
    "double": double,
    "remove": remove,
    "swap": swap,
    "huge_bytes": huge_bytes,
    "huge_digits": huge_digits,
}

# ---- trees -----------------------------------------------------------------------------------------------------------

DEEP: Any = "x"
for _ in range(300):
    DEEP = [DEEP]
VALUES: tuple[Any, ...] = (
    None,
    [],
    {},
    [0] * 5000,
    float("nan"),
    float("-inf"),
    -1,
    0,
    10**30,
    1.5,
    "x",
    "../outside.bin",
    True,
    DEEP,
    {"$": "array", "dtype": "<f8", "shape": [10**10], "data": ""},
    {"$": "space", "plain": {"kind": "box", "low": 0.0, "high": 1.0, "shape": [10**9, 3], "dtype": "<f8"}},
    {"$": ["x"]},
)
"""What stands in turn in the place of each entry."""


def places(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    items = tree.items() if isinstance(tree, dict) else enumerate(tree[:3]) if isinstance(tree, list) else ()
    for key, value in items:
        yield from places(value, (*path, key))


def with_value(tree: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    tree = copy.deepcopy(tree)
    inner = tree
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return tree


def without(tree: Any, path: tuple[Any, ...]) -> Any:
    tree = copy.deepcopy(tree)
    inner = tree
    for key in path[:-1]:
        inner = inner[key]
    del inner[path[-1]]
    return tree


def changed_trees(tree: Any) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Every entry in turn replaced by each of ``VALUES``, or left out."""
    for path in places(tree):
        place = "/".join(map(str, path))
        for number, value in enumerate(VALUES):
            yield f"{place}={number}", partial(with_value, tree, path, value)
        if path:
            yield f"{place} left out", partial(without, tree, path)


def json_changes(data: bytes, seal: Callable[[Any], Any] = lambda tree: tree) -> Iterator[tuple[str, Made]]:
    for name, tree in changed_trees(json.loads(data)):
        yield name, lambda tree=tree: json.dumps(seal(tree())).encode()


def line_changes(data: bytes) -> Iterator[tuple[str, Made]]:
    """Of JSON lines: an entry of the first, the second, the third and the last line replaced."""
    lines = data.splitlines()
    for number in sorted({0, 1, 2, len(lines) - 1} & set(range(len(lines)))):
        for name, changed in json_changes(lines[number]):
            parts = lines[:number], changed, lines[number + 1 :]
            yield f"line {number}: {name}", lambda parts=parts: b"\n".join([*parts[0], parts[1](), *parts[2], b""])


_DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # ten times as fast, where it was built


def yaml_changes(data: bytes) -> Iterator[tuple[str, Made]]:
    for name, tree in changed_trees(yaml.safe_load(data)):
        yield name, lambda tree=tree: yaml.dump(tree(), Dumper=_DUMPER).encode()


BOMB = b"a: &a0 [x,x,x,x,x,x,x,x,x]\n" + b"".join(
    b"b%d: &a%d [%s]\n" % (i, i, b",".join([b"*a%d" % (i - 1)] * 9)) for i in range(1, 12)
)
TEXTS: dict[str, bytes] = {
    "bomb of aliases": BOMB,
    "bomb in an entry": b"observations: \n  x: &a [1, *a]\n",
    "deep": b"[" * 100_000,
    "deep dicts": b'{"a":' * 100_000,
    "deep and closed": b"[" * 900 + b"]" * 900,
    "tags": b"a: !!python/object/apply:os.system [true]\n",
    "a tag that raises": b"a: !!bool maybe\nb: !!timestamp never\n",
    "a time that raises": b"a: !!timestamp never\n",
    "binary": b"a: !!binary '####'\n",
    "a number of 5000 digits": b"a: " + b"9" * 5000,
    "JSON of 5000 digits": b'{"a": ' + b"9" * 5000 + b"}",
    "zeros": b"\0" * 5000,
    "ff": b"\xff" * 5000,
    "UTF-16": '{"a": 1}\n'.encode("utf-16"),
    "a name twice": b"a: 1\na: 2\n",
    "lines": b"\n" * 3_000_000,
    "many lists": b"[" + b"[]," * 3_000_000 + b"[]]",
    "many lists in a line": b"[" + b"[]," * 3_000_000 + b"[]]\n",
    "a list": b"[1, 2]\n",
    "a number": b"3\n",
    "a text": b'"x"\n',
    "null": b"null\n",
    "open quote": b'a: "' + b"x" * 1000,
    "commas": b"," * 200_000 + b"\n",
    "a long line": b"a,b\n" + b"x" * 300_000 + b",1\n",
}

# ---- archives --------------------------------------------------------------------------------------------------------


def npy(descr: str, shape: str, data: bytes = b"", order: str = "False", version: int = 1) -> bytes:
    header = f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}\n".encode()
    size = len(header).to_bytes(2 if version == 1 else 4, "little")
    return b"\x93NUMPY" + bytes([version, 0]) + size + header + data


ARRAYS: dict[str, bytes] = {
    "huge": npy("'<f8'", "(1000000000, 1000)"),
    "beyond all": npy("'<f8'", "(99999999999999999999,)"),
    "negative": npy("'<f8'", "(-1,)"),
    "no number": npy("'<f8'", "('a',)"),
    "objects": npy("'|O'", "(1,)", b"cos\nsystem\n(S'touch /tmp/x'\ntR."),
    "fields": npy("[('a', '<f8'), ('b', '|O')]", "(1,)", b"x" * 16),
    "many fields": npy("[('a', '<f8')]", "(2,)", b"x" * 16),
    "huge texts": npy("'<U1000000000'", "(0,)"),
    "nothing, huge": npy("'<f8'", "(0, 1000000000000)"),
    "many columns": npy("'<f8'", "(0, 100000000)"),
    "Python 2": npy("'<f8'", "(1L,)", b"x" * 8),
    "unknown": npy("'<q99'", "(1,)", b"x" * 8),
    "code": npy("__import__('os').system('true')", "(1,)", b"x" * 8),
    "deep": npy("(" * 3000 + ")" * 3000, "(1,)", b"x" * 8),
    "long header": npy("'<f8'", "(" + "1," * 20000 + ")", version=2),
    "many axes": npy("'<f8'", "(" + "1," * 60 + ")", b"x" * 8),
    "escapes": npy("'\\d'", "(1,)", b"x" * 8),
    "too short": npy("'<f8'", "(3,)", b"x" * 8),
    "too long": npy("'<f8'", "(1,)", b"x" * 80),
    "version 9": npy("'<f8'", "(1,)", b"x" * 8, version=9),
    "no header": b"x" * 50,
    "empty": b"",
    "void": npy("'|V8'", "(1,)", b"x" * 8),
    "subarrays": npy("'(1000000,1000000)f8'", "(0,)"),
}


def archive(members: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as file:
        for name, data in members.items():
            file.writestr(name, data)
    return out.getvalue()


def npz_changes(data: bytes, big: bool) -> Iterator[tuple[str, bytes | Made]]:
    """Each array in turn replaced, taken out, or renamed; archives that are bombs."""
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        members = {name: file.read(name) for name in file.namelist()}
    for name in members:
        for kind, array in ARRAYS.items():
            yield f"{name}: {kind}", partial(archive, {**members, name: array})
        yield f"{name} taken out", archive({key: value for key, value in members.items() if key != name})
        yield f"{name} renamed", archive({("../" + key if key == name else key): v for key, v in members.items()})
    yield "another method", archive(members, zipfile.ZIP_LZMA)
    yield "no arrays", archive({})
    yield "a text", archive({**members, "readme.txt": b"x"})
    yield "many", archive({f"{i}.npy": ARRAYS["empty"] for i in range(60_000)}) if big else archive(members)
    first = next(iter(members))
    size = 3_700_000_000 if big else 1_200_000_000
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file:
        for name, value in members.items():
            if name != first:
                file.writestr(name, value)
        with file.open(first, "w", force_zip64=True) as entry:
            entry.write(npy("'|u1'", f"({size},)"))
            zeros = b"\0" * (1 << 22)
            for _ in range(size // len(zeros) if big else 1):
                entry.write(zeros)
    yield "a bomb", out.getvalue()
