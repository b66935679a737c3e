"""Mutation testing: small mistakes (mutants) in the source, the tests that detect them, and branch coverage.

    python tools/mutants.py draw --seed 0 --count 200   # draw mutants, start the record
    python tools/mutants.py map                         # which lines each test executes; branch coverage
    python tools/mutants.py run                         # the tests of each mutant that has no result yet
    python tools/mutants.py show                        # the record by package
    python tools/mutants.py compare OLD NEW             # status 1 if a mutant that OLD kills survives in NEW

The record (tests/mutants.jsonl) grows by a line per result, so an interrupted run loses nothing. The checkout is not
changed: tests run in a copy, in a virtual environment that imports the copy first (both in the folder ``--work``).

A mutant is killed if a test fails or hangs. Only tests that execute its lines are run, first those of the file that is
named after its module, then the quickest. The other results are ``survived`` (all tests passed), ``survived in part``
(the tests that fit into ``--budget`` passed; ``left`` is the number of the others), and ``not covered`` (no test
executes it). Some mutants change nothing that can be observed. So the share of killed mutants says little; what counts
is that shortened tests kill the same mutants. To check that, ``draw`` into a new record with the same source and seed,
then ``map``, ``run`` and ``compare``.

Lines that run in another process count for all tests of the file that started the process. Code whose result is cached
counts for the first test that runs it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
import uuid
from bisect import bisect
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from math import sqrt
from pathlib import Path
from typing import Any

import psutil
from mutations import Mutation, changes_something, code_lines, function_lines, mutations_of

TOOLS = Path(__file__).resolve().parent
RECORD = Path("tests") / "mutants.jsonl"
NOT_COPIED = (".*", "runs", "build", "dist")
"""Files and folders of a checkout that tests do not need."""
HELPERS = ("test_recorder.py", "coverage_saver.py")

KILLED = ("killed", "timeout")
RESULTS = (*KILLED, "survived", "survived in part", "not covered")
TOP = "(top)"
LEAST_PER_PACKAGE = 2

FIRST_SECONDS = 10.0
"""Tests up to this total time run first, the others only if these pass."""
PATIENCE_SECONDS = 60.0
PATIENCE = 5.0
"""Tests hang if they take PATIENCE times as long as in the map, and PATIENCE_SECONDS more."""
STOPPED_SECONDS = 5.0
"""A longer time between two polls means that this process was suspended, which may fail tests with a time limit."""
POLL_SECONDS = 0.1


# -- the record --------------------------------------------------------------------------------------------------------


@dataclass
class Record:
    """The content of a JSONL file: a draw, its mutants, their results, and the coverage of the tests."""

    path: Path
    draw: dict[str, Any] = field(default_factory=dict)
    mutants: dict[str, dict[str, Any]] = field(default_factory=dict)
    results: dict[str, dict[str, Any]] = field(default_factory=dict)
    coverage: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Record:
        """Read a file. Lines that were cut off by an interruption are skipped; later lines replace earlier ones."""
        if not path.exists():
            raise SystemExit(f"{path} does not exist: create it with `python tools/mutants.py draw`")
        record = cls(path)
        for text in path.read_text(encoding="utf-8").splitlines():
            try:
                line = json.loads(text)
            except ValueError:
                continue
            kind = line.pop("record")
            if kind == "mutant":
                record.mutants[line["id"]] = line
            elif kind == "result":
                record.results[line["id"]] = line
            else:
                setattr(record, kind, line)
        return record

    def add(self, kind: str, /, **line: Any) -> None:
        """Append a line to the file."""
        text = self.path.read_text(encoding="utf-8") if self.path.exists() else ""
        with self.path.open("a", encoding="utf-8") as file:
            begin = "\n" if text and not text.endswith("\n") else ""
            file.write(begin + json.dumps({"record": kind, **line}, ensure_ascii=False) + "\n")
        if kind == "result":
            self.results[line["id"]] = line

    def result(self, mutant: str) -> str:
        """The result of a mutant; empty if it has not run."""
        return self.results[mutant]["result"] if mutant in self.results else ""


def modules_of(source: Path) -> dict[str, str]:
    """Path below ``source`` -> text, for all modules."""
    return {
        path.relative_to(source).as_posix(): path.read_text(encoding="utf-8") for path in sorted(source.rglob("*.py"))
    }


def digest(modules: dict[str, str]) -> str:
    """A hash of the source."""
    joined = "\0".join(f"{path}\0{text}" for path, text in sorted(modules.items()))
    return hashlib.sha256(joined.encode()).hexdigest()[:16]


def package_of(path: str) -> str:
    """The top-level folder of a module; modules outside such folders are one package, TOP."""
    return path.partition("/")[0] if "/" in path else TOP


def commit_of(folder: Path) -> str:
    """The commit that is checked out; empty if there is none."""
    result = subprocess.run(
        ["git", "-C", str(folder), "rev-parse", "--short=8", "HEAD"], capture_output=True, text=True, check=False
    )
    return result.stdout.strip()


# -- the draw ----------------------------------------------------------------------------------------------------------


def draw(modules: dict[str, str], seed: int, count: int) -> list[Mutation]:
    """Draw mutations from all packages by lines of code, at least LEAST_PER_PACKAGE each; the same for equal sources.

    Modules of a package are drawn by lines of code, at equal distances. Within a module, the weight of a kind is the
    square root of its frequency; otherwise most mutations would change numbers.
    """
    rng = random.Random(f"mutants {seed}")
    choices = {path: mutations_of(path, text) for path, text in modules.items()}
    sizes = {path: code_lines(modules[path]) for path, mutations in choices.items() if mutations}
    packages: dict[str, list[str]] = defaultdict(list)
    for path in sizes:
        packages[package_of(path)].append(path)
    shares = _shares({name: sum(sizes[path] for path in paths) for name, paths in packages.items()}, count)
    drawn: list[Mutation] = []
    for name, paths in packages.items():
        places = list(accumulate(sizes[path] for path in paths))
        step, begin = places[-1] / shares[name] if shares[name] else 0.0, rng.random()
        for number in range(shares[name]):
            first = paths[min(bisect(places, (begin + number) * step), len(paths) - 1)]
            for path in [first, *rng.sample(paths, len(paths))]:
                if (mutation := _one_of(choices[path], modules[path], rng)) is not None:
                    drawn.append(mutation)
                    break
    return drawn


def _shares(sizes: dict[str, int], count: int) -> dict[str, int]:
    """``count`` divided in proportion to sizes, each share at least LEAST_PER_PACKAGE if possible."""
    least = min(LEAST_PER_PACKAGE, count // len(sizes)) if sizes else 0
    exact = {name: count * size / sum(sizes.values()) for name, size in sizes.items()}
    shares = {name: max(least, int(value)) for name, value in exact.items()}
    while (missing := count - sum(shares.values())) != 0:
        step = 1 if missing > 0 else -1
        free = [name for name in shares if step > 0 or shares[name] > least]
        shares[max(free, key=lambda name: step * (exact[name] - shares[name]))] += step
    return shares


def _one_of(choices: list[Mutation], source: str, rng: random.Random) -> Mutation | None:
    """Draw a mutation and remove it from ``choices``; None if none is left."""
    while choices:
        kinds = Counter(one.kind for one in choices)
        (kind,) = rng.choices(list(kinds), [sqrt(number) for number in kinds.values()])
        mutation = rng.choice([one for one in choices if one.kind == kind])
        choices.remove(mutation)
        if changes_something(mutation, source):
            return mutation
    return None


# -- a copy of the checkout, and tests in it ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Workspace:
    """A copy of a checkout, with a virtual environment in which it comes first in the import path."""

    folder: Path
    source: str
    """Path of the package in the checkout."""

    @property
    def tree(self) -> Path:
        return self.folder / "tree"

    @property
    def package(self) -> Path:
        return self.tree / self.source

    @property
    def python(self) -> Path:
        return self.folder / "environment" / "bin" / "python"

    def make(self, checkout: Path) -> None:
        """Make a new copy of ``checkout``."""
        if self.folder.exists():
            shutil.rmtree(self.folder)
        others, caches = shutil.ignore_patterns(*NOT_COPIED), shutil.ignore_patterns("__pycache__")

        def ignored(folder: str, names: list[str]) -> set[str]:
            return caches(folder, names) | (others(folder, names) if Path(folder) == checkout else set())

        shutil.copytree(checkout, self.tree, ignore=ignored, symlinks=True)
        self._make_environment()

    def _make_environment(self) -> None:
        """An environment like this one, except that the copy is imported first.

        This holds in all processes, also if a test changes the environment variables of those that it starts.
        """
        home = self.python.parent.parent
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)
        code = "import sysconfig; print(sysconfig.get_path('purelib'))"
        packages = Path(
            subprocess.run([self.python, "-c", code], check=True, capture_output=True, text=True).stdout[:-1]
        )
        for name in HELPERS:
            shutil.copy(TOOLS / name, packages)
        places = dict.fromkeys([sysconfig.get_path("purelib"), *(p for p in sys.path if p.endswith("-packages"))])
        (packages / "copy_first.pth").write_text(
            f"{self.package.parent}\n"
            + "".join(f"import site; site.addsitedir({place!r})\n" for place in places)
            + "import os; os.getenv('TEST_RECORDER_CONTEXT') and os.getenv('COVERAGE_PROCESS_START')"
            " and __import__('coverage_saver')\n",
            encoding="utf-8",
        )
        for script in Path(sysconfig.get_path("scripts")).iterdir():
            target = self.python.parent / script.name
            if script.is_dir() or target.exists():
                continue
            content = script.read_bytes()
            if content.startswith(b"#!") and b"python" in content.partition(b"\n")[0]:
                target.write_bytes(f"#!{self.python}\n".encode() + content.partition(b"\n")[2])
                target.chmod(0o755)
            else:
                target.symlink_to(script)

    def restore(self, modules: dict[str, str]) -> None:
        """Restore the source of the copy, in which a killed run may have left a mutant."""
        for path, text in modules.items():
            module = self.package / path
            if module.read_text(encoding="utf-8") != text:
                module.write_text(text, encoding="utf-8")

    def pytest(self, arguments: Iterable[str]) -> list[str | Path]:
        """The command that runs tests in the copy."""
        options = ("-q", "-p", "test_recorder", "-p", "no:cacheprovider")
        return [self.python, "-m", "pytest", *options, *arguments]

    @contextmanager
    def mutated(self, mutation: Mutation) -> Iterator[None]:
        """Put a mutant into the copy, and restore the source afterwards."""
        path = self.package / mutation.path
        text, times = path.read_bytes(), path.stat()
        path.write_bytes(mutation.apply(text.decode()).encode())
        # A time of its own for each mutant, since Python would else reuse cached bytecode of another one.
        stamp = int(times.st_mtime) + 10 + int(mutation.id[:6], 16)
        os.utime(path, (stamp, stamp))
        try:
            yield
        finally:
            path.write_bytes(text)
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


@dataclass
class Outcome:
    """How a session of tests ended."""

    passed: bool = False
    hung: bool = False
    stopped: bool = False
    """Whether the session was suspended for a while, so that a failure may be due to a time limit."""
    test: str = ""
    """The test that failed, or that was running at the end."""
    when: str = ""
    error: str = ""
    seconds: dict[str, float] = field(default_factory=dict)


def variables_for_tests(**more: str) -> dict[str, str]:
    """Environment variables of tests: one thread, cached bytecode, no time limits, since this program checks them."""
    cleared = dict.fromkeys(("COVERAGE_PROCESS_START", "TEST_RECORDER_CONTEXT", "TEST_RECORDER_TESTS"), "")
    fast = {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "", "PYTEST_TIMEOUT": "0"}
    return {**os.environ, **cleared, **fast, **more}


def run_tests(workspace: Workspace, tests: list[str], limit_seconds: float) -> Outcome:
    """Run the tests in this order, up to the first that fails."""
    report, chosen = workspace.folder / "report.jsonl", workspace.folder / "tests.json"
    report.unlink(missing_ok=True)
    chosen.write_text(json.dumps(tests), encoding="utf-8")
    token = uuid.uuid4().hex
    variables = variables_for_tests(
        TEST_RECORDER_REPORT=str(report), TEST_RECORDER_TESTS=str(chosen), MUTANTS_TOKEN=token
    )
    files = list(dict.fromkeys(test.partition("::")[0] for test in tests))
    with (workspace.folder / "pytest.txt").open("wb") as output:
        process = subprocess.Popen(
            workspace.pytest(["-x", *files]),
            cwd=workspace.tree,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        outcome = Outcome()
        try:
            outcome.hung, outcome.stopped = _wait(process, limit_seconds)
        finally:
            end_all_with("MUTANTS_TOKEN", token, process)
    _read_report(outcome, report)
    outcome.passed = process.returncode == 0 and not outcome.hung
    if not outcome.passed and not outcome.error:
        lines = (workspace.folder / "pytest.txt").read_text(encoding="utf-8", errors="replace").split("\n")
        outcome.test, outcome.when = outcome.test or "(session)", outcome.when or "session"
        last = next((line for line in reversed(lines) if line.strip()), "")
        outcome.error = f"status {process.returncode}: {last.strip()}"[:200]
    return outcome


def _wait(process: subprocess.Popen[bytes], limit_seconds: float) -> tuple[bool, bool]:
    """Wait for the process; returns whether it hung, and whether it or this process was suspended.

    Time in which one of them was suspended does not count.
    """
    waited, was_stopped = 0.0, False
    last = time.monotonic()
    while process.poll() is None:
        time.sleep(POLL_SECONDS)
        now = time.monotonic()
        elapsed, last = now - last, now
        with suppress(psutil.NoSuchProcess):
            if elapsed > STOPPED_SECONDS or psutil.Process(process.pid).status() == psutil.STATUS_STOPPED:
                was_stopped, elapsed = True, 0.0
        waited += elapsed
        if waited > limit_seconds:
            return True, was_stopped
    return False, was_stopped


def _read_report(outcome: Outcome, report: Path) -> None:
    lines = report.read_text(encoding="utf-8").splitlines() if report.exists() else []
    for line in map(json.loads, lines):
        if "start" in line:
            outcome.test = line["start"]
        elif "failed" in line and not outcome.error:
            outcome.test, outcome.when, outcome.error = line["failed"], line["when"], line["error"]
            outcome.seconds.setdefault(line["failed"], 0.0)
        elif "end" in line:
            outcome.seconds[line["end"]] = line["seconds"]
            if not outcome.error:
                outcome.test = ""
    if outcome.error:
        return
    if outcome.hung:
        outcome.when, outcome.error = "hang", "the tests took too long"


def end_all_with(variable: str, value: str, process: subprocess.Popen[bytes]) -> None:
    """Kill the process and all that have inherited the variable, also in other sessions."""
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    while heirs := [one for one in psutil.process_iter() if _has(one, variable, value)]:
        for one in heirs:
            with suppress(psutil.NoSuchProcess):
                one.kill()
        psutil.wait_procs(heirs, timeout=5.0)
    process.wait()


def _has(process: psutil.Process, variable: str, value: str) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE and process.environ().get(variable) == value
    except psutil.Error:
        return False


# -- the map: which lines a test executes ------------------------------------------------------------------------------

SETTINGS = """[run]
branch = true
parallel = true
core = ctrace
patch = _exit
context = ${{TEST_RECORDER_CONTEXT-}}
data_file = {data}
include = {package}/*
disable_warnings = no-data-collected, module-not-measured, couldnt-parse, module-not-imported, already-imported
"""


@dataclass(frozen=True)
class CoverageMap:
    """The measurements of a run of all tests."""

    folder: Path

    @property
    def data_file(self) -> Path:
        return self.folder / "data"

    @property
    def tests_file(self) -> Path:
        return self.folder / "tests.jsonl"

    @property
    def about_file(self) -> Path:
        return self.folder / "about.json"

    def make(self, workspace: Workspace, arguments: list[str], about: dict[str, Any]) -> None:
        """Run all tests once in the copy, and measure which lines they execute."""
        if self.folder.exists():
            shutil.rmtree(self.folder)
        self.folder.mkdir(parents=True)
        settings = self.folder / "settings.ini"
        settings.write_text(SETTINGS.format(data=self.data_file, package=workspace.package), encoding="utf-8")
        variables = variables_for_tests(COVERAGE_PROCESS_START=str(settings), TEST_RECORDER_REPORT=str(self.tests_file))
        subprocess.run(workspace.pytest(arguments), cwd=workspace.tree, env=variables, check=False)
        self.combine()
        self.about_file.write_text(json.dumps(about), encoding="utf-8")

    def combine(self) -> None:
        """Combine the measurements of all processes into one file."""
        from coverage import Coverage

        parts = [str(path) for path in sorted(self.folder.glob("data.*"))]
        if not parts:
            raise SystemExit("nothing was measured: did the tests start? Is coverage.py installed?")
        coverage = Coverage(data_file=str(self.data_file), config_file=False, branch=True)
        coverage.combine(parts, strict=True)
        coverage.save()

    @cached_property
    def about(self) -> dict[str, Any]:
        if not self.about_file.exists():
            raise SystemExit(f"there is no map in {self.folder}: create it with `python tools/mutants.py map`")
        return json.loads(self.about_file.read_text(encoding="utf-8"))

    @cached_property
    def _data(self) -> Any:
        from coverage import CoverageData

        data = CoverageData(str(self.data_file))
        data.read()
        return data

    @cached_property
    def tests(self) -> dict[str, float]:
        """Test -> seconds, in the order in which they ran, without those that failed or were skipped."""
        lines = map(json.loads, self.tests_file.read_text(encoding="utf-8").splitlines())
        return {line["end"]: line["seconds"] for line in lines if line.get("outcome") == "passed"}

    @cached_property
    def failed(self) -> list[str]:
        lines = map(json.loads, self.tests_file.read_text(encoding="utf-8").splitlines())
        return list(dict.fromkeys(line["failed"] for line in lines if "failed" in line))

    @cached_property
    def _tests_of_files(self) -> dict[str, list[str]]:
        result: dict[str, list[str]] = defaultdict(list)
        for test in self.tests:
            result[test.partition("::")[0]].append(test)
        return result

    def contexts(self, module: Path) -> dict[int, list[str]]:
        """Line -> the contexts that execute it: tests, files of tests, and "" for imports of modules."""
        return self._data.contexts_by_lineno(str(module))

    def tests_of(self, contexts: Iterable[str]) -> set[str]:
        """The passed tests among ``contexts``, and in the files among them."""
        result: set[str] = set()
        for context in contexts:
            result.update([context] if context in self.tests else self._tests_of_files.get(context, ()))
        return result

    def coverage(self, package: Path, modules: dict[str, str]) -> dict[str, Any]:
        """Lines and branches that the tests execute, in total and by package."""
        from coverage import Coverage

        measurement = Coverage(data_file=str(self.data_file), config_file=False, branch=True)
        measurement.load()
        measurement.get_data().touch_files([str(package / path) for path in modules])
        report = self.folder / "report.json"
        measurement.json_report([str(package / path) for path in modules], outfile=str(report), pretty_print=False)
        files = json.loads(report.read_text(encoding="utf-8"))["files"]
        sums: dict[str, Counter[str]] = defaultdict(Counter)
        for path in modules:
            summary = files.get(str(package / path)) or files[os.path.relpath(package / path)]
            for name in ("", package_of(path)):
                for key in ("num_statements", "covered_lines", "num_branches", "covered_branches"):
                    sums[name][key] += summary["summary"][key]
        return {"total": _share(sums.pop("")), "packages": {name: _share(sums[name]) for name in sorted(sums)}}


def _share(counts: Counter[str]) -> dict[str, float]:
    """Numbers of lines and branches, all and executed; ``percent`` is of both together, as in coverage.py."""
    total = counts["num_statements"] + counts["num_branches"]
    executed = counts["covered_lines"] + counts["covered_branches"]
    return {
        "lines": counts["num_statements"],
        "lines_run": counts["covered_lines"],
        "branches": counts["num_branches"],
        "branches_run": counts["covered_branches"],
        "percent": round(100.0 * executed / total, 2) if total else 100.0,
    }


# -- which tests run for a mutant --------------------------------------------------------------------------------------


@dataclass
class Chosen:
    """The tests of a mutant."""

    covering: set[str]
    stages: list[list[str]]
    """Each runs if all tests before it have passed."""
    left: int
    """Number of tests that do not fit into the budget."""
    seconds: float


class Chooser:
    """Chooses the tests of a mutant from a map."""

    def __init__(
        self,
        coverage_map: CoverageMap,
        modules: dict[str, str],
        package: Path,
        budget: float,
        killers: dict[str, str] | None = None,
    ) -> None:
        self._map, self._modules, self._package, self._budget = coverage_map, modules, package, budget
        self._killers = killers or {}
        self._contexts: dict[str, dict[int, list[str]]] = {}
        self._order = {test: place for place, test in enumerate(coverage_map.tests)}

    def _contexts_of(self, path: str) -> dict[int, list[str]]:
        if path not in self._contexts:
            self._contexts[path] = self._map.contexts(self._package / path)
        return self._contexts[path]

    def covering(self, mutation: Mutation) -> set[str]:
        """Tests that execute a mutation.

        Code at the top level of modules and classes runs only once, so for it all tests that use the module count.
        """
        lines = self._contexts_of(mutation.path)
        contexts = {context for line in mutation.lines for context in lines.get(line, ())}
        if not mutation.always and contexts != {""}:
            return self._map.tests_of(contexts)
        in_functions = function_lines(self._modules[mutation.path])
        return self._map.tests_of(contexts) | self._map.tests_of(
            context for line in in_functions for context in lines.get(line, ())
        )

    def choose(self, mutation: Mutation) -> Chosen:
        """The test that killed it before, then those of the file named after the module, then of the quickest files.

        Tests are added as long as they fit into the budget.
        """
        covering = self.covering(mutation)
        files: dict[str, list[str]] = defaultdict(list)
        for test in covering:
            files[test.partition("::")[0]].append(test)
        seconds = self._map.tests
        killers = [test for test in [self._killers.get(mutation.id, "")] if test in covering]
        totals = {name: sum(seconds[test] for test in tests) for name, tests in files.items()}
        ranked = sorted(files, key=lambda name: (-closeness(name, mutation.path), totals[name], name))
        chosen: list[str] = []
        first, spent = 0, 0.0
        for name in ranked:
            taken: list[str] = []
            for test in sorted(files[name], key=lambda test: (seconds[test], test)):
                if spent + seconds[test] <= self._budget or not chosen + taken:
                    taken.append(test)
                    spent += seconds[test]
            chosen += sorted(taken, key=self._order.__getitem__)
            if spent <= FIRST_SECONDS or not first:
                first = len(chosen)
        stages = [stage for stage in (killers, chosen[:first], chosen[first:]) if stage]
        return Chosen(covering, stages, len(covering - {*chosen, *killers}), spent)


def closeness(test_file: str, path: str) -> int:
    """Number of words of a module's path in the name of a test file; 0 unless all words of the module's name are."""
    words = set(Path(test_file).stem.removeprefix("test_").split("_"))
    parts = path.removesuffix(".py").removesuffix("/__init__").split("/")
    own = {word for word in parts[-1].split("_") if word}
    return len(words & {word for part in parts for word in part.split("_")}) if own <= words else 0


# -- runs --------------------------------------------------------------------------------------------------------------


def run_mutant(workspace: Workspace, mutation: Mutation, chosen: Chosen, seconds: dict[str, float]) -> dict[str, Any]:
    """Run the tests of a mutant; returns its line for the record."""
    line: dict[str, Any] = {"id": mutation.id, "covering": len(chosen.covering)}
    if not chosen.covering:
        return {**line, "result": "not covered"}
    with workspace.mutated(mutation):
        for tests in chosen.stages:
            outcome = _run_twice_if_late(workspace, tests, seconds)
            if not outcome.passed:
                result = "timeout" if outcome.hung else "killed"
                error = plain(outcome.error)
                return {**line, "result": result, "test": outcome.test, "when": outcome.when, "error": error}
    if chosen.left:
        return {**line, "result": "survived in part", "left": chosen.left}
    return {**line, "result": "survived"}


def plain(error: str) -> str:
    """The text without paths and addresses, which differ between machines."""
    return re.sub(r"(/[\w.+-]+){2,}", "PATH", re.sub(r"\b0x[0-9A-Fa-f]+", "ADDRESS", error))


def _run_twice_if_late(workspace: Workspace, tests: list[str], seconds: dict[str, float]) -> Outcome:
    """Run tests, and run them again if a failure may be due to a slow machine."""
    limit = PATIENCE_SECONDS + PATIENCE * sum(seconds[test] for test in tests)
    outcome = run_tests(workspace, tests, limit)
    usual = PATIENCE * seconds.get(outcome.test, 0.0) + STOPPED_SECONDS
    is_late = outcome.stopped or outcome.seconds.get(outcome.test, 0.0) > usual
    return run_tests(workspace, tests, limit) if is_late and not outcome.passed and not outcome.hung else outcome


def drawn_mutations(record: Record, modules: dict[str, str]) -> list[Mutation]:
    """The mutations of a record, found in the source."""
    paths = {line["path"] for line in record.mutants.values()}
    known = {one.id: one for path in sorted(paths & set(modules)) for one in mutations_of(path, modules[path])}
    if missing := [line for name, line in record.mutants.items() if name not in known]:
        one = missing[0]
        raise SystemExit(
            f"{len(missing)} mutants are not in this source, among them {one['path']}:{one['line']} {one['original']!r}"
            ": draw again, or check out the source of the record"
        )
    return [known[name] for name in record.mutants]


def doubtful_killers(workspace: Workspace, record: Record, seconds: dict[str, float]) -> set[str]:
    """Tests that killed a mutant but also fail without one."""
    killers = {line["test"] for line in record.results.values() if line["result"] == "killed"} & set(seconds)
    tests = [test for test in seconds if test in killers]
    doubtful: set[str] = set()
    while tests:
        outcome = run_tests(workspace, tests, PATIENCE_SECONDS + PATIENCE * sum(seconds[test] for test in tests))
        if outcome.passed or not outcome.test:
            return doubtful
        doubtful.add(outcome.test)
        tests = tests[tests.index(outcome.test) + 1 :] if outcome.test in tests else []
    return doubtful


# -- tables ------------------------------------------------------------------------------------------------------------


def table_of(record: Record) -> str:
    """A table with a row per package: mutants by result, and branch coverage."""
    rows: dict[str, Counter[str]] = defaultdict(Counter)
    for name, line in record.mutants.items():
        for package in (package_of(line["path"]), "total"):
            rows[package][record.result(name) or "to run"] += 1
    heads = ["mutants", *RESULTS, "to run", "coverage %"]
    shares = {**record.coverage.get("packages", {}), "total": record.coverage.get("total", {})}
    lines = ["| package | " + " | ".join(heads) + " |", "|---" * (len(heads) + 1) + "|"]
    for package in [*sorted(set(rows) - {"total"}), "total"]:
        counts = [rows[package].total(), *(rows[package][head] for head in (*RESULTS, "to run"))]
        share = shares.get(package, {}).get("percent", "")
        lines.append(f"| {package} | " + " | ".join(map(str, counts)) + f" | {share} |")
    return "\n".join(lines)


def compare(old: Record, new: Record) -> tuple[list[str], bool]:
    """Lines about differences, and whether ``new`` kills all mutants that ``old`` kills, with no less coverage."""
    lines: list[str] = []
    if old.draw.get("source") != new.draw.get("source"):
        lines.append("The sources differ: only mutants in both records are compared.")
    both = [name for name in old.mutants if name in new.mutants]
    killed = [name for name in both if old.result(name) in KILLED]
    lost = [name for name in killed if new.result(name) not in KILLED]
    gained = [name for name in both if new.result(name) in KILLED and old.result(name) not in (*KILLED, "")]
    lines.append(
        f"{len(both)} of {len(old.mutants)} mutants are in both; {len(killed)} were killed, {len(lost)} of these no"
        f" longer are; {len(gained)} others are now"
    )
    for name in lost:
        one, before = old.mutants[name], old.results[name]
        now = new.result(name) or "not run"
        lines.append(
            f"  {now}: {one['path']}:{one['line']} {one['function']}: {one['original']!r} -> {one['mutated']!r}"
            f" (killed by {before['test']})"
        )
    good = not lost and bool(both)
    for name in ["total", *sorted({*old.coverage.get("packages", {}), *new.coverage.get("packages", {})})]:
        was, now = (
            (record.coverage.get("total") if name == "total" else record.coverage.get("packages", {}).get(name)) or {}
            for record in (old, new)
        )
        if was.get("percent") != now.get("percent"):
            lines.append(f"coverage of {name}: {was.get('percent', 'none')} -> {now.get('percent', 'none')}")
        if name == "total" and was and now.get("percent", 0.0) < was["percent"]:
            good = False
    return lines, good


# -- the command line --------------------------------------------------------------------------------------------------


def main(arguments: list[str] | None = None) -> int:
    """Run one command; the status is 1 if something was lost."""
    options = _parser().parse_args(arguments)
    command: Callable[[argparse.Namespace], int] = options.command
    return command(options)


def _parser() -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--root", type=Path, default=TOOLS.parent, help="the checkout")
    common.add_argument("--source", default="src/metaroll", help="the package, below the checkout")
    common.add_argument("--record", type=Path, help=f"the file of results ({RECORD} of the checkout)")
    common.add_argument("--work", type=Path, default=Path("/var/tmp/mutants"), help="folder of the copy and the map")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)

    one = commands.add_parser("draw", parents=[common], help="draw mutants and start a record")
    one.add_argument("--seed", type=int, default=0)
    one.add_argument("--count", type=int, default=200)
    one.set_defaults(command=_draw)

    one = commands.add_parser("map", parents=[common], help="run all tests once, with coverage")
    one.add_argument("--pytest", default='-m "not slow"', help="arguments of pytest")
    one.set_defaults(command=_map)

    one = commands.add_parser("run", parents=[common], help="run the tests of mutants that have no result")
    one.add_argument("--budget", type=float, default=120.0, help="seconds of tests per mutant, as measured in the map")
    one.add_argument("--killers", type=Path, help="a record; the test that killed a mutant there runs first")
    one.add_argument("--most", type=int, help="largest number of mutants to run")
    one.set_defaults(command=_run)

    one = commands.add_parser("show", parents=[common], help="print a record by package")
    one.set_defaults(command=_show)

    one = commands.add_parser("compare", help="compare two records")
    one.add_argument("old", type=Path)
    one.add_argument("new", type=Path)
    one.set_defaults(command=_compare)
    return parser


def _record_path(options: argparse.Namespace) -> Path:
    return options.record or options.root / RECORD


def _draw(options: argparse.Namespace) -> int:
    path = _record_path(options)
    if path.exists():
        raise SystemExit(f"{path} exists: name another record with --record, or remove it")
    modules = modules_of(options.root / options.source)
    mutations = draw(modules, options.seed, options.count)
    record = Record(path)
    record.add("draw", seed=options.seed, count=len(mutations), commit=commit_of(options.root), source=digest(modules))
    for one in mutations:
        record.add(
            "mutant",
            id=one.id,
            path=one.path,
            function=one.function,
            kind=one.kind,
            line=one.line,
            original=one.original,
            mutated=one.mutated,
            occurrence=one.occurrence,
        )
    print(table_of(Record.read(path)))
    return 0


def _places(options: argparse.Namespace) -> tuple[Workspace, CoverageMap]:
    work = options.work.resolve()
    return Workspace(work / "copy", options.source), CoverageMap(work / "map")


def _about(options: argparse.Namespace) -> dict[str, Any]:
    return {
        "commit": commit_of(options.root),
        "source": digest(modules_of(options.root / options.source)),
        "tests": digest(modules_of(options.root / "tests")),
    }


def _map(options: argparse.Namespace) -> int:
    record = Record.read(_record_path(options))
    workspace, coverage_map = _places(options)
    workspace.make(options.root)
    coverage_map.make(workspace, shlex.split(options.pytest), _about(options))
    return _finish_map(record, workspace, coverage_map)


def _finish_map(record: Record, workspace: Workspace, coverage_map: CoverageMap) -> int:
    modules = modules_of(workspace.package)
    shares = coverage_map.coverage(workspace.package, modules)
    about = coverage_map.about
    record.add("coverage", commit=about["commit"], source=about["source"], tests=len(coverage_map.tests), **shares)
    for test in coverage_map.failed:
        print(f"fails without mutants, so it is not used: {test}")
    print(table_of(Record.read(record.path)))
    return 0


def _run(options: argparse.Namespace) -> int:
    record = Record.read(_record_path(options))
    workspace, coverage_map = _places(options)
    about = _about(options)
    for name, key in (("source", "source"), ("tests", "tests")):
        if coverage_map.about[key] != about[key]:
            raise SystemExit(f"the {name} of this checkout differ from those of the map: `python tools/mutants.py map`")
    modules = modules_of(options.root / options.source)
    workspace.restore(modules)
    known = Record.read(options.killers).results if options.killers else {}
    killers = {name: line["test"] for name, line in known.items() if line["result"] in KILLED}
    chooser = Chooser(coverage_map, modules, workspace.package, options.budget, killers)
    todo = [one for one in drawn_mutations(record, modules) if not record.result(one.id)]
    chosen = {one.id: chooser.choose(one) for one in todo}
    todo.sort(key=lambda one: chosen[one.id].seconds)  # an interrupted run has as many results as possible
    for number, mutation in enumerate(todo[: options.most], start=1):
        line = run_mutant(workspace, mutation, chosen[mutation.id], coverage_map.tests)
        record.add("result", **line)
        print(
            f"{number}/{len(todo)} {line['result']}: {mutation.path}:{mutation.line} {line.get('test', '')}", flush=True
        )
    for test in sorted(doubtful_killers(workspace, record, coverage_map.tests)):
        print(f"also fails without a mutant, so its kills must be run again: {test}")
    print(table_of(record))
    return 0


def _show(options: argparse.Namespace) -> int:
    print(table_of(Record.read(_record_path(options))))
    return 0


def _compare(options: argparse.Namespace) -> int:
    lines, good = compare(Record.read(options.old), Record.read(options.new))
    print("\n".join(lines))
    return 0 if good else 1


def _leave(number: int, frame: object) -> None:
    """End this process in order: child processes are killed, and the source of the copy is restored."""
    raise SystemExit(128 + number)


if __name__ == "__main__":
    for one in (signal.SIGINT, signal.SIGTERM):  # shells start background processes with SIGINT ignored
        signal.signal(one, _leave)
    sys.exit(main())
