"""Do two checkouts of metaroll compute the same numbers, bit for bit? If not, where do they differ first?

    git worktree add ../before COMMIT
    python benchmarks/digests.py ../before                  # all cases
    python benchmarks/digests.py ../before --cases sac td3  # those whose names contain one of these
    python benchmarks/digests.py                            # this checkout twice: is every case repeatable?
    python benchmarks/digests.py --write                    # store the digests of this processor
    python benchmarks/digests.py --check                    # some cases against the stored digests

Each checkout runs in its own process with one thread (``OMP_NUM_THREADS=1``): the cases beside this script with the
``metaroll`` of the checkout, of which they use documented names only. The two alternate, case by case. The bits of a
matrix product depend on the processor and on the library that computes it, so stored digests hold for one key only.
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
"""Modules that hold the cases."""
PACKAGES = ("numpy", "scipy", "torch", "gymnasium", "mujoco", "sbi")
"""Packages whose versions are part of the key: others may round differently."""

SHOWN = 4
"""How many differing entries of a case are shown."""

Entries = dict[str, list[Any]]


# -- in the process of a checkout --------------------------------------------------------------------------------------


def serve() -> None:
    """Send the names of all cases, then run the one that each line of the input names, in its own folder."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # output of the library must not mix with the answers
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
    """Family and model: libraries choose their kernels by them, and a name such as ``AMD EPYC`` is not enough."""
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        fields = dict(reversed([[part.strip() for part in line.split(":", 1)] for line in lines if ":" in line]))
        return f"family {fields.get('cpu family', 'unknown')}, model {fields.get('model', 'unknown')}"
    return "unknown"


def run_case(case: Any) -> dict[str, Any]:
    """Run a case; returns its entries and their digest. A case that raises has one entry, ``failed``."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        parts = importlib.import_module("_digest_parts").Parts()
        try:
            case(parts, Path(folder))
            return {"entries": parts.entries, "digest": parts.digest}
        except Exception as error:  # the other cases still run
            sys.stderr.write(traceback.format_exc())
            reason = f"{type(error).__name__}: {error}".replace(folder, "FOLDER")
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
            raise SystemExit(f"{folder} is not a checkout of metaroll: it has no src/metaroll")
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
            raise SystemExit(f"the process of {self.folder} ended before its first case; its error is printed above")
        if not Path(self.hello["metaroll"]).is_relative_to(self.folder):
            raise SystemExit(f"the process must import metaroll of {self.folder}, got {self.hello['metaroll']}")

    def _answer(self) -> Any:
        line = self._process.stdout.readline() if self._process.stdout else ""
        return json.loads(line) if line else None

    def run(self, case: str) -> dict[str, Any]:
        """Run a case in the process. If the process ends, the case has failed, and a new process is started."""
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
    """Where two results differ: the epoch (from 1), the name of the entry, and its value on each side."""

    epoch: int
    entry: str
    before: Any
    after: Any


def differences(before: Entries, after: Entries) -> list[Difference]:
    """Entries of ``before`` that ``after`` lacks or changes, each at its first differing epoch; earliest first."""
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

    Entries that only ``after`` has do not count as a difference; they are listed as ``added``.
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
    """The commit of a checkout, with ``-dirty`` appended if files differ from it."""
    command = ["git", "-C", str(folder), "describe", "--always", "--dirty", "--abbrev=8", "--exclude=*"]
    return subprocess.run(command, capture_output=True, text=True).stdout.strip() or "unknown"


def write(lines: Sequence[Mapping[str, Any]]) -> None:
    """Replace the stored lines of the same cases and key by ``lines``; all others stay."""
    replaced = [(line["config"], key_of(line)) for line in lines]
    kept = [line for line in read_results(NAME) if (line["config"], key_of(line)) not in replaced]
    path = RESULTS / f"{NAME}.jsonl"
    fresh = path.with_suffix(".new")
    fresh.write_text("".join(json.dumps(line, allow_nan=False) + "\n" for line in [*kept, *lines]), encoding="utf-8")
    fresh.replace(path)


# -- the three modes ---------------------------------------------------------------------------------------------------


def show(line: Mapping[str, Any]) -> None:
    print(json.dumps(line, allow_nan=False), flush=True)


def compare_checkouts(args: argparse.Namespace, after: Checkout) -> list[str]:
    """Run the cases in both checkouts; returns their statuses."""
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


def write_digests(args: argparse.Namespace, after: Checkout) -> list[str]:
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


def check_digests(args: argparse.Namespace, after: Checkout) -> list[str]:
    key = after.hello["key"]
    lines = [
        line for line in read_results(NAME) if key_of(line) == key_of(make_line("", key, metric="entries", value=0))
    ]
    stored = {line["config"]["case"]: line for line in lines}
    if not lines:
        sys.stderr.write(f"no digests are stored for {json.dumps(key)}: the cases run, but are compared with nothing\n")
    statuses = []
    for case in chosen(args, after):
        result = compared(stored.get(case), after.run(case))
        known = {"metric": "differing_entries", "value": result.pop("differing"), **result}
        commit = stored[case]["commit"] if case in stored else None
        show(make_line(case, key, **known, before=commit, after=commit_of(after.folder)))
        statuses.append(result["status"])
    return statuses


def chosen(args: argparse.Namespace, checkout: Checkout) -> list[str]:
    names = checkout.hello["quick"] if args.check else checkout.hello["cases"]
    return [case for case in names if any(text in case for text in args.cases)]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("before", type=Path, nargs="?", default=HERE.parent, help="folder of the other checkout")
    parser.add_argument("--cases", nargs="+", default=[""], help="only cases whose names contain one of these")
    parser.add_argument("--write", action="store_true", help="store the digests of this processor in the results")
    parser.add_argument(
        "--check", "--quick", action="store_true", help="compare some cases with the results, writing nothing"
    )
    args = parser.parse_args()
    begun, after = time.monotonic(), Checkout(HERE.parent)
    try:
        mode = write_digests if args.write else check_digests if args.check else compare_checkouts
        statuses = mode(args, after)
    finally:
        after.close()
    counts = ", ".join(f"{statuses.count(status)} {status}" for status in sorted(set(statuses)))
    sys.stderr.write(f"{counts or 'no case of that name'}; {time.monotonic() - begun:.0f} s\n")
    if {"differs", "failed"} & set(statuses) or not statuses:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
