"""tools/mutants.py draws mistakes reproducibly, plants one at a time, and records which test detects it."""

from __future__ import annotations

import importlib
import json
import textwrap
from pathlib import Path
from types import ModuleType

import psutil
import pytest

TOOLS = Path(__file__).parents[2] / "tools"

SUMS = '''
"""Sums: 1 + 1."""
from __future__ import annotations

__all__ = ["down", "total"]

HALF: float = 0.5


def total(numbers: list[int], start: int | None = None) -> int:
    """All of them, 2 + 2."""
    if start is not None and start < 0:
        raise ValueError(f"start is {start + 1}" + "not 0")
    return sum(numbers[1:], numbers[0])


def down(number: int) -> int:
    while number > 0:
        number -= 1
    return number
'''
UNUSED = """
def never(a, b):
    return max(a, b)
"""
TESTS = """
import subprocess
import sys

from tiny.runs.unused import never
from tiny.sums import down, total


def test_total():
    assert total([1, 2, 3]) == 6


def test_down():
    sleep = [sys.executable, "-c", "import time; time.sleep(60)", "OF_A_MUTANT"]
    child = subprocess.Popen(sleep, start_new_session=True)
    assert down(3) <= 0
    child.kill()
    child.wait()


def test_that_fails_whatever_the_source_is():
    assert not total([1])
"""


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(TOOLS))
        return importlib.import_module("mutants")


def mutations_of(tool: ModuleType, source: str) -> dict[str, list[tuple[str, str]]]:
    result: dict[str, list[tuple[str, str]]] = {}
    for one in tool.mutations_of("module.py", textwrap.dedent(source)):
        result.setdefault(one.kind, []).append((one.original, one.mutated))
    return result


@pytest.mark.parametrize(
    ("source", "kind", "expected"),
    [
        ("a < b", "comparison", [("a < b", "a <= b"), ("a < b", "a >= b")]),
        ("(a) == (b)", "comparison", [("(a) == (b)", "(a) != (b)")]),
        ("a is  not b", "comparison", [("a is  not b", "a is b")]),
        ("a not in b", "comparison", [("a not in b", "a in b")]),
        ("a = b - c", "arithmetic", [("b - c", "b + c")]),
        ("a = b ** c", "arithmetic", [("b ** c", "b * c")]),
        ("a *= b", "arithmetic", [("a *= b", "a /= b")]),
        ("a = b and c", "boolean", [("b and c", "b or c")]),
        ("a = not b", "not", [("not b", "b")]),
        ("a = 2, 0.5", "number", [("2", "3"), ("0.5", "1.5")]),
        ("a = True", "truth", [("True", "False")]),
        ("a = f(None)", "none", [("None", "0")]),
        ("for a in b:\n    continue", "jump", [("continue", "break")]),
        ("a.b = c", "assignment", [("a.b = c", "pass")]),
        ("a(b)", "call", [("a(b)", "pass")]),
        ("x = a(b, c, d)", "arguments", [("a(b, c, d)", "a(c, b, d)")]),
        ("def f():\n    return a", "return", [("return a", "return None")]),
        ("x = a[1:b]", "slice", [("a[1:b]", "a[:b]"), ("a[1:b]", "a[1:]")]),
        ("x = min(a)", "extreme", [("min(a)", "max(a)")]),
        ("x = np.maximum(ä, b)", "extreme", [("np.maximum(ä, b)", "np.minimum(ä, b)")]),
    ],
)
def test_each_kind_of_change(tool, source, kind, expected):
    assert sorted(mutations_of(tool, source)[kind]) == sorted(expected)


@pytest.mark.parametrize(
    "source",
    [
        '"""1 < 2"""',
        "__all__ = [a + b]",
        "def f(a: int | 1 = b) -> tuple[1, None]:\n    raise ValueError(f'{1 + 2}', 3 < 4)",
        "x: TypeAlias = Callable[[int], None]",
        "if TYPE_CHECKING:\n    x = 1",
        "from a import b",
        "x = f'{a + 1}'",
        "x = a + 'text'",
        "x = ShapeError(1 + 2, hint=3)",
        "x = f(hint=1)",
        "@overload\ndef f(a=1):\n    ...",
    ],
)
def test_code_that_no_user_sees_is_never_changed(tool, source):
    assert mutations_of(tool, source) == {}


@pytest.mark.parametrize(
    ("source", "kind"), [("x = a is None", "none"), ("x = a[0:]", "slice"), ("x = f(a, a)", "arguments")]
)
def test_pointless_changes_are_not_made(tool, source, kind):
    assert kind not in mutations_of(tool, source)


def test_a_draw_is_reproducible_and_covers_every_package(tool):
    modules = tool.modules_of(TOOLS.parent / "src" / "metaroll" / "functional" / "posteriors")
    modules |= {"small/one.py": "x = 1\ny = 2\nz = 3\n"}
    drawn = tool.draw(modules, seed=0, count=40)
    assert drawn == tool.draw(modules, seed=0, count=40) != tool.draw(modules, seed=1, count=40)
    assert len({one.id for one in drawn}) == len(drawn) == 40
    assert sum(one.path == "small/one.py" for one in drawn) == tool.LEAST_PER_PACKAGE
    assert {tool.package_of(one.path) for one in drawn} == {tool.package_of(path) for path in modules}
    assert len({one.kind for one in drawn}) > 8


def test_exactly_one_change_is_made(tool):
    for source in (SUMS + "text = 'ä'; x = a < 1  # ä\n", UNUSED):
        changes = tool.mutations_of("module.py", source)
        assert changes
        for one in changes:
            before, after = source.encode()[: one.start], source.encode()[one.start + len(one.original.encode()) :]
            assert one.apply(source).encode() == before + one.mutated.encode() + after
            assert tool.changes_something(one, source)
            assert source.count("\n", 0, len(before.decode())) + 1 == one.line
            with pytest.raises(ValueError, match="the source has changed"):
                one.apply("#" + source)


def test_changes_without_effect_are_recognized(tool):
    (one,) = [one for one in tool.mutations_of("m.py", "x = (yield 0x1) + 1") if one.original == "0x1"]
    assert tool.changes_something(one, "x = (yield 0x1) + 1") is False  # no yield outside functions
    same = tool.Mutation("m.py", "", "number", 1, original="0x1", mutated="1", start=4)
    assert tool.changes_something(same, "x = 0x1") is False


@pytest.fixture(scope="module")
def checkout(tool, tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("checkout")
    for path, text in {
        "src/tiny/__init__.py": "",
        "src/tiny/sums.py": SUMS,
        "src/tiny/runs/__init__.py": "",
        "src/tiny/runs/unused.py": UNUSED,
        "tests/test_sums.py": TESTS,
        "tests/conftest.py": "",
    }.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return root


def keep_only(kept: dict[tuple[str, str], str], path: Path) -> None:
    """Remove all mutants from a record except those with the changes ``kept``, (original, mutated)."""
    lines = [json.loads(text) for text in path.read_text().splitlines()]
    kept_lines = [one for one in lines if one["record"] == "draw" or (one["original"], one["mutated"]) in kept]
    path.write_text("".join(json.dumps(one) + "\n" for one in kept_lines))


EXPECTED = {
    ("numbers[1:]", "numbers[:]"): "killed",
    ("number > 0", "number >= 0"): "survived",
    ("number -= 1", "number += 1"): "timeout",
    ("max(a, b)", "min(a, b)"): "not covered",
}


def test_killed_survived_hanging_and_not_covered_are_distinguished(tool, checkout, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(tool, "PATIENCE_SECONDS", 2.0)
    where = ["--root", str(checkout), "--source", "src/tiny", "--work", str(tmp_path)]
    assert tool.main(["draw", *where, "--count", "22"]) == 0
    keep_only(EXPECTED, checkout / "tests" / "mutants.jsonl")
    assert tool.main(["map", *where, "--pytest", "tests"]) == 0
    assert "test_that_fails_whatever_the_source_is" in capsys.readouterr().out
    before = tool.modules_of(checkout / "src")

    assert tool.main(["run", *where, "--most", "1"]) == 0
    record = tool.Record.read(checkout / "tests" / "mutants.jsonl")
    assert len(record.results) == 1 < len(record.mutants) == 4
    killed = tmp_path / "copy" / "tree" / "src" / "tiny" / "sums.py"
    killed.write_text(killed.read_text().replace("number > 0", "number > 1"))  # as a run that is killed leaves it
    assert tool.main(["run", *where]) == 0  # continues

    record = tool.Record.read(checkout / "tests" / "mutants.jsonl")
    ends = {(one["original"], one["mutated"]): record.results[name] for name, one in record.mutants.items()}
    assert {key: line["result"] for key, line in ends.items()} == EXPECTED
    assert ends["numbers[1:]", "numbers[:]"]["test"] == "tests/test_sums.py::test_total"
    assert ends["number -= 1", "number += 1"]["test"] == "tests/test_sums.py::test_down"
    assert tool.modules_of(checkout / "src") == before == tool.modules_of(tmp_path / "copy" / "tree" / "src")
    assert not [one for one in psutil.process_iter(["cmdline"]) if "OF_A_MUTANT" in (one.info["cmdline"] or ())]

    # Lines: sums.py has 11 that are executed at some time but for the `raise`, unused.py `def` but not `return`.
    assert record.coverage["packages"]["runs"] == {
        "lines": 2, "lines_run": 1, "branches": 0, "branches_run": 0, "percent": 50.0,
    }  # fmt: skip
    total = record.coverage["total"]
    assert (total["branches"], total["branches_run"]) == (4, 3)  # the error is never raised
    assert tool.main(["compare", str(record.path), str(record.path)]) == 0


def test_the_test_that_killed_a_mutant_before_is_tried_first(tool, tmp_path):
    coverage_map = tool.CoverageMap(tmp_path)
    seconds = {
        "tests/test_a.py::x": 1.0,
        "tests/test_a.py::y": 2.0,
        "tests/test_sums.py::z": 30.0,
        "tests/test_b.py::w": 99.0,
    }
    coverage_map.__dict__["tests"] = seconds
    (mutation,) = tool.mutations_of("sums.py", "def f():\n    return g")
    lines = {2: ["", "tests/test_b.py", "tests/test_sums.py::z", "tests/test_a.py::x", "tests/test_a.py::y"]}

    def chosen(**options):
        chooser = tool.Chooser(coverage_map, {}, tmp_path, 100.0, **options)
        chooser._contexts["sums.py"] = lines
        return chooser.choose(mutation)

    a, near, left = ["tests/test_a.py::x", "tests/test_a.py::y"], ["tests/test_sums.py::z"], ["tests/test_b.py::w"]
    assert (chosen().stages, chosen().left) == ([near, a], 1)
    assert chosen(killers={mutation.id: left[0]}).stages == [left, near, a]
    assert chosen(killers={mutation.id: left[0]}).left == 0
    assert chosen(killers={mutation.id: "tests/test_gone.py::v"}).stages == [near, a]


def test_paths_and_addresses_are_not_recorded(tool):
    assert (
        tool.plain("OSError: /tmp/a-1/b.npz: 1/2 of <f at 0x7F00fe> in /c/d")
        == "OSError: PATH: 1/2 of <f at ADDRESS> in PATH"
    )


def record_of(tool: ModuleType, path: Path, results: dict[str, str], percent: float) -> Path:
    record = tool.Record(path)
    record.add("draw", seed=0, count=2, source="s")
    for name, result in results.items():
        record.add(
            "mutant", id=name, path=f"room/{name}.py", function="f", kind="number", line=1, original="1", mutated="2"
        )
        record.add("result", id=name, result=result, test="tests/test_x.py::test_y")
    record.add("coverage", total={"percent": percent}, packages={"room": {"percent": percent}})
    return path


@pytest.mark.parametrize(
    ("results", "percent", "status", "text"),
    [
        ({"a": "killed", "b": "survived"}, 90.0, 0, "1 were killed, 0 of these no longer are"),
        ({"a": "timeout", "b": "killed"}, 91.0, 0, "1 others are now"),
        ({"a": "survived", "b": "killed"}, 90.0, 1, "survived: room/a.py:1 f: '1' -> '2' (killed by tests/test_x.py"),
        ({"b": "survived"}, 90.0, 0, "1 of 2 mutants are in both"),
        ({"a": "killed", "b": "survived"}, 89.9, 1, "coverage of total: 90.0 -> 89.9"),
    ],
)
def test_killed_mutants_must_be_killed_again(tool, tmp_path, capsys, results, percent, status, text):
    old = record_of(tool, tmp_path / "old.jsonl", {"a": "killed", "b": "survived"}, 90.0)
    new = record_of(tool, tmp_path / "new.jsonl", results, percent)
    assert tool.main(["compare", str(old), str(new)]) == status
    assert text in capsys.readouterr().out


def test_an_interruption_loses_only_the_line_that_it_cut_off(tool, tmp_path):
    path = record_of(tool, tmp_path / "record.jsonl", {"a": "killed", "b": "survived"}, 90.0)
    with path.open("a") as file:
        file.write('{"record": "result", "id": "a", "resu')
    record = tool.Record.read(path)
    record.add("result", id="b", result="timeout")
    again = tool.Record.read(path)
    assert (again.result("a"), again.result("b")) == ("killed", "timeout")
    assert len(again.mutants) == 2


def test_the_committed_record_is_whole(tool):
    record = tool.Record.read(TOOLS.parent / "tests" / "mutants.jsonl")
    assert len(record.mutants) == record.draw["count"] == 200
    assert set(record.results) <= set(record.mutants)
    assert {line["result"] for line in record.results.values()} <= set(tool.RESULTS)
    assert all(line["test"] for line in record.results.values() if line["result"] == "killed")


def test_test_files_named_after_a_module_are_close_to_it(tool):
    path = "functional/series/dtw.py"
    near, far = (tool.closeness(f"tests/unit/test_{name}.py", path) for name in ("functional_dtw", "functional_series"))
    assert near > far == 0
