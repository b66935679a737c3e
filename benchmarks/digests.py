"""Whether two checkouts of metaroll compute the same numbers, bit by bit, and what differs first where they do not.

    git worktree add ../before COMMIT
    python benchmarks/digests.py ../before                  # all cases
    python benchmarks/digests.py ../before --cases sac td3  # those whose names hold one of these texts
    python benchmarks/digests.py                            # this checkout twice: is every case repeatable?
    python benchmarks/digests.py --write                    # commit the numbers of this processor
    python benchmarks/digests.py --check                    # some cases against those that are committed

Each checkout runs in a process of its own with one thread (``OMP_NUM_THREADS=1``), with the cases that stand beside
this script and its own ``metaroll``, through documented names alone; the two take turns, case by case. The bits of a
matrix product depend on the processor and on the library that computes it: committed numbers hold for one key alone.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from _reporting import RESULTS, check_line, machine, read_results, versions

HERE = Path(__file__).resolve().parent
NAME = "digests"
MODULES = ("_digest_learning", "_digest_rollouts", "_digest_measures", "_digest_files")
"""Where the cases stand."""
PACKAGES = ("numpy", "scipy", "torch", "gymnasium", "mujoco", "sbi")
"""Packages whose versions are part of the key: other ones may round in another way."""

SHOWN = 4
"""How many differing entries of a case are shown."""

Entries = dict[str, list[Any]]


# -- in the process of a checkout --------------------------------------------------------------------------------------


def serve() -> None:
    """Say which cases there are, then run the one that each line names, in a folder of its own."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the library prints is no answer
    warnings.simplefilter("ignore")
    cases: dict[str, Any] = {}
    quick: list[str] = []
    for module in map(importlib.import_module, MODULES):
        cases |= module.CASES.runs
        quick += module.CASES.quick
    torch: Any = importlib.import_module("torch")
    torch.set_num_threads(1)
    vectors = torch.backends.cpu.get_cpu_capability()
    key = {**machine(), "model": model_of_processor(), "vectors": vectors, "versions": versions(*PACKAGES)}
    metaroll = importlib.import_module("metaroll")
    hello = {"cases": list(cases), "quick": quick, "key": key, "metaroll": metaroll.__file__}
    answers.write(json.dumps(hello) + "\n")
    answers.flush()
    for line in sys.stdin:
        answers.write(json.dumps(run_case(cases[line.rstrip("\n")])) + "\n")
        answers.flush()


def model_of_processor() -> str:
    """Family and model, which a name such as ``AMD EPYC`` leaves open; libraries choose their kernels by them."""
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        fields = dict(reversed([[part.strip() for part in line.split(":", 1)] for line in lines if ":" in line]))
        return f"family {fields.get('cpu family', 'unknown')}, model {fields.get('model', 'unknown')}"
    return "unknown"


def run_case(case: Any) -> dict[str, Any]:
    """Its entries and their digest; a case that raises has one entry, ``failed``."""
    with tempfile.TemporaryDirectory() as text, contextlib.chdir(text):
        parts = importlib.import_module("_digest_parts").Parts()
        try:
            case(parts, Path(text))
            return {"entries": parts.entries, "digest": parts.digest}
        except Exception as error:  # the other cases still run
            sys.stderr.write(traceback.format_exc())
            reason = f"{type(error).__name__}: {error}".replace(text, "FOLDER")
            return {"entries": {"failed": [reason]}, "digest": "failed"}


SERVER = """import importlib.util, os, sys
spec = importlib.util.spec_from_file_location("digests", os.path.join(sys.argv[1], "digests.py"))
module = importlib.util.module_from_spec(spec)
sys.modules["digests"] = module
spec.loader.exec_module(module)
module.serve()
"""


class Checkout:
    """A process that runs cases with the library of one folder."""

    def __init__(self, folder: Path) -> None:
        if not (folder / "src" / "metaroll").is_dir():
            raise SystemExit(f"{folder} is no checkout: there is no src/metaroll in it")
        self.folder = folder
        self._start()

    def _start(self) -> None:
        path = os.pathsep.join([str(self.folder / "src"), str(HERE)])
        environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", SERVER, str(HERE)],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.hello = self._answer()
        if self.hello is None:
            raise SystemExit(f"the process of {self.folder} ended before its first case; its error stands above")
        if not Path(self.hello["metaroll"]).is_relative_to(self.folder):
            raise SystemExit(f"metaroll of {self.folder} was to be imported, got {self.hello['metaroll']}")

    def _answer(self) -> Any:
        line = self._process.stdout.readline() if self._process.stdout else ""
        return json.loads(line) if line else None

    def run(self, case: str) -> dict[str, Any]:
        """The answer of the process; one that has ended with the case is a failure, and started again."""
        if self._process.stdin is None:
            raise RuntimeError("the process has no pipes")
        self._process.stdin.write(case + "\n")
        self._process.stdin.flush()
        answer = self._answer()
        if answer is None:
            status = self._process.wait()
            self._start()
            return {"entries": {"failed": [f"the process ended with status {status}"]}, "digest": "failed"}
        return answer

    def close(self) -> None:
        self._process.communicate()


# -- comparing ---------------------------------------------------------------------------------------------------------


class Difference(NamedTuple):
    """Where two results part: the epoch (from 1), the name of the entry, and what stands there on each side."""

    epoch: int
    entry: str
    before: Any
    after: Any


def differences(before: Entries, after: Entries) -> list[Difference]:
    """Each entry of ``before`` that is not in ``after`` as it was, at its first epoch; the earliest stand first."""
    listed = []
    for name, old in before.items():
        new = after.get(name, [])
        for epoch in range(max(len(old), len(new))):
            pair = [values[epoch] if epoch < len(values) else "missing" for values in (old, new)]
            if pair[0] != pair[1]:
                listed.append(Difference(epoch + 1, name, *pair))
                break
    return sorted(listed, key=lambda difference: difference.epoch)


def compared(before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> dict[str, Any]:
    """``status`` (``equal``, ``differs``, ``failed`` or ``missing``), how many entries differ, and the first of them.

    Entries that only ``after`` has are no difference; they are listed as ``added``.
    """
    failures = {
        side: result["entries"]["failed"][0]
        for side, result in (("before", before), ("after", after))
        if result is not None and "failed" in result["entries"]
    }
    if failures:
        return {"status": "failed", "differing": 0, "first": failures}
    if before is None:
        return {"status": "missing", "differing": 0}
    listed = differences(before["entries"], after["entries"])
    if listed:
        first = [difference._asdict() for difference in listed[:SHOWN]]
        return {"status": "differs", "differing": len(listed), "first": first}
    return {"status": "equal", "differing": 0, "added": sorted(set(after["entries"]) - set(before["entries"]))}


# -- lines -------------------------------------------------------------------------------------------------------------


def make_line(case: str, key: Mapping[str, Any], **known: Any) -> dict[str, Any]:
    """A measurement in the schema of all benchmarks; ``value`` counts entries."""
    named = {name: value for name, value in key.items() if name != "versions"}
    head = {"what": NAME, "subject": "metaroll", "peer": "none", "unit": "entries", "ratio": None, "slots": None}
    line = {**head, **known, "config": {"case": case}, "machine": named, "versions": key["versions"]}
    check_line(line)
    return line


def key_of(line: Mapping[str, Any]) -> tuple[Any, Any]:
    return line["machine"], line["versions"]


def commit_of(folder: Path) -> str:
    """The commit of a checkout, with ``-dirty`` behind it where files differ from it."""
    command = ["git", "-C", str(folder), "describe", "--always", "--dirty", "--abbrev=8", "--exclude=*"]
    return subprocess.run(command, capture_output=True, text=True).stdout.strip() or "unknown"


def write(lines: Sequence[Mapping[str, Any]]) -> None:
    """Put ``lines`` in place of those of the same case and key; the others stay."""
    replaced = [(line["config"], key_of(line)) for line in lines]
    kept = [line for line in read_results(NAME) if (line["config"], key_of(line)) not in replaced]
    path = RESULTS / f"{NAME}.jsonl"
    fresh = path.with_suffix(".new")
    fresh.write_text("".join(json.dumps(line, allow_nan=False) + "\n" for line in [*kept, *lines]), encoding="utf-8")
    fresh.replace(path)


# -- the three ways ----------------------------------------------------------------------------------------------------


def show(line: Mapping[str, Any]) -> None:
    print(json.dumps(line, allow_nan=False), flush=True)


def compare_checkouts(args: argparse.Namespace, after: Checkout) -> list[str]:
    """Run the cases in both; the statuses."""
    before, statuses = Checkout(args.before.resolve()), []
    commits = {"before": commit_of(before.folder), "after": commit_of(after.folder)}
    try:
        for case in chosen(args, after):
            result = compared(before.run(case), after.run(case))
            key = after.hello["key"]
            known = {"metric": "differing_entries", "value": result.pop("differing"), **result, **commits}
            show(make_line(case, key, **known))
            statuses.append(result["status"])
    finally:
        before.close()
    return statuses


def write_committed(args: argparse.Namespace, after: Checkout) -> list[str]:
    lines, statuses, commit = [], [], commit_of(after.folder)
    for case in chosen(args, after):
        result = after.run(case)
        failed = "failed" in result["entries"]
        line = make_line(
            case, after.hello["key"], metric="entries", value=len(result["entries"]), commit=commit, **result
        )
        statuses.append("failed" if failed else "written")
        show({name: value for name, value in line.items() if failed or name != "entries"})
        lines += [] if failed else [line]
    write(lines)
    return statuses


def check_committed(args: argparse.Namespace, after: Checkout) -> list[str]:
    key = after.hello["key"]
    mine = [
        line for line in read_results(NAME) if key_of(line) == key_of(make_line("", key, metric="entries", value=0))
    ]
    committed = {line["config"]["case"]: line for line in mine}
    if not mine:
        sys.stderr.write(f"no digests are committed for {json.dumps(key)}: the cases are run, and compared with none\n")
    statuses = []
    for case in chosen(args, after):
        result = compared(committed.get(case), after.run(case))
        known = {"metric": "differing_entries", "value": result.pop("differing"), **result}
        commit = committed[case]["commit"] if case in committed else None
        show(make_line(case, key, **known, before=commit, after=commit_of(after.folder)))
        statuses.append(result["status"])
    return statuses


def chosen(args: argparse.Namespace, checkout: Checkout) -> list[str]:
    names = checkout.hello["quick"] if args.check else checkout.hello["cases"]
    return [case for case in names if any(text in case for text in args.cases)]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("before", type=Path, nargs="?", default=HERE.parent, help="folder of the other checkout")
    parser.add_argument("--cases", nargs="+", default=[""], help="only cases whose names hold one of these texts")
    parser.add_argument("--write", action="store_true", help="put the numbers of this processor into the results")
    parser.add_argument(
        "--check", "--quick", action="store_true", help="some cases against the results, nothing written"
    )
    args = parser.parse_args()
    begun, after = time.monotonic(), Checkout(HERE.parent)
    try:
        way = write_committed if args.write else check_committed if args.check else compare_checkouts
        statuses = way(args, after)
    finally:
        after.close()
    counts = ", ".join(f"{statuses.count(status)} {status}" for status in sorted(set(statuses)))
    sys.stderr.write(f"{counts or 'no case of that name'}; {time.monotonic() - begun:.0f} s\n")
    if {"differs", "failed"} & set(statuses) or not statuses:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
