"""What is counted in the source from commit to commit: each count has a name, a meaning and, if there is one, a bound.

Counts are about ideas, not about the length of anything. In ``counts.json``, ``ceilings`` are today's figures of the
counts that are ideas: a larger figure is a breach, and a smaller one lowers the ceiling. ``commits`` are the figures of
commits that are compared with.
"""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ideas
import reached
import walks
from source_trees import Module, Source, code_lines, code_tokens, comment_lines, resolved, walk

__all__ = [
    "COUNTS",
    "RECORD",
    "Count",
    "Record",
    "core_breaches",
    "lowered",
    "measured",
    "page",
    "ratchet",
    "table",
    "where",
]

RECORD = Path(__file__).with_name("counts.json")
PAGE = Path(__file__).parent.parent / "docs" / "counts.md"
REVIEWED, BEFORE = "a745dda", "d0fc4bbe"
"""The commit that the bounds were set on, and the one before the rebuild, which token counts are compared with."""
TITLES = {
    REVIEWED: f"{REVIEWED}, measured",
    BEFORE: f"before part I ({BEFORE})",
    "e62c0f5a": "after part I (e62c0f5a)",
    "6af7eb0a": "after part II (6af7eb0a)",
    "0221f93b": "after part III (0221f93b)",
    "HEAD": "after part IV",
}
"""Commit of the record -> its column on the page. The rebuild had four parts; the last cannot name its own commit."""

OUTSIDE_CORE = {
    "__main__.py": "lab: the command line",
    "compat/": "compat: documented constructors and groups of names",
    "contrib/": "contrib",
    "functional/gradients/quantiles.py": "contrib: only TQC uses it",
    "lab/": "lab",
}
"""Modules and folders that go to lab, contrib or compat, and are not of the core; the rest is.

An entry that nothing matches is a breach.
"""

MOVED = {
    "learners/epopt.py": "contrib/epopt.py",
    "learners/off_policy/soft_losses.py": "contrib/discrete_sac.py",
}
"""Where modules of the commits that are compared with lay, and where they (or most of their users) lie now."""

WERE_LAB = (
    "cli/",
    "data/logs/",
    "diagnostics/",
    "envs/real/",
    "functional/series/held_signals.py",
    "functional/series/lags.py",
    "functional/series/real_delays.py",
    "functional/series/row_times.py",
    "functional/series/signals.py",
    "rollouts/single/interactive.py",
    "rollouts/single/video.py",
    "training/comparing/",
    "training/display/",
    "training/evaluation/group_comparison.py",
    "training/evaluation/inference_result.py",
    "training/evaluation/robustness.py",
    "training/figures/",
    "training/report/",
    "training/session/comparison.py",
    "training/session/inferring.py",
    "training/session/randomization_baselines.py",
    "training/session/run_groups.py",
    "training/session/sizes.py",
    "training/session/run_reports.py",
    "training/session/sim2real.py",
)
"""Where modules of lab lay in the commits that are compared with."""

READ = {
    "SAC": ("SAC", "learners/"),
    "PPO": ("PPO", "learners/"),
    "PEARL": ("PEARL", "learners/"),
    "CMA-ES": ("CMA", "functional/search/"),
}
"""What a reader opens: algorithm -> its class, and the room in which it is defined."""

MANY_ARGUMENTS = 15

_FILE_READERS = (
    r"numpy\.load|numpy\.lib\.format\.(read_\w+|open_memmap)"
    r"|json\.(load|loads|JSONDecoder)|yaml\.\w*(load|Loader|parse|scan|compose)\w*|pandas\.read_\w+"
    r"|pyarrow\.(\w+\.)*(read_\w+|ParquetFile|ParquetDataset|dataset|open_\w+)"
)
_DOORS = {
    _FILE_READERS: "data/doors/",
    r"concurrent\.futures\.(process\.)?ProcessPoolExecutor": "processes/",
    r"(shutil)?\.rmtree": "data/folders/",
}


# ------------------------------------------------------------------------------------------------ what is counted
@dataclass(frozen=True)
class Count:
    """One count.

    Attributes:
        meaning: What is counted, where, and what is left out.
        reviewed: The figure at a745dda as the review states it; ``None``: it states none.
        limit: The largest figure allowed at the end of the rebuild; ``None``: there is no bound.
        share: In place of ``limit``: the largest share of the figure before the rebuild.
        is_idea: Whether the figure may not become larger from commit to commit.
        decimals: How many are written.
    """

    meaning: str
    reviewed: float | None = None
    limit: float | None = None
    share: float | None = None
    is_idea: bool = False
    decimals: int = 0

    def text(self, value: float | None) -> str:
        """A figure as it is written."""
        return "" if value is None else f"{value:,.{self.decimals}f}"

    def bound(self, record: Record) -> float | None:
        """The limit, that of a share computed."""
        before = record.commits.get(BEFORE, {}).get(_name_of(self))
        return self.limit if self.share is None or before is None else self.share * before


def _read(name: str, files: float, lines: float, limits: tuple[float | None, float | None]) -> dict[str, Count]:
    kind, room = READ[name]
    opened = (
        f"The module of {room} that defines {kind}, those of {room} that it imports, and so on. Imports count wherever "
        "they stand; `__init__` does not."
    )
    return {
        f"files to read for {name}": Count(opened, files, limits[0], is_idea=True),
        f"lines to read for {name}": Count(f"All lines of these files ({name}), docstrings too.", lines, limits[1]),
        f"lines to read for {name}, with formulas": Count(
            f"The same, with the modules of functional/ that are imported ({name}): what moves there does not go."
        ),
    }


_LEARN = (
    'From `agent("ppo", "Pendulum-v1")` and `.learn` to the first step of the slot loop, the second time in a process'
)
_STEP = "The first batch of 64 steps that a new `SAC` draws and the gradient step on it, in a process that has done one"
COUNTS: dict[str, Count] = {
    "files": Count("Python files of the package, every `__init__.py` too.", 461, 280),
    "classes": Count("Class statements, at any depth.", 813, 540),
    "names in metaroll.__all__": Count("Public names of the top package, without `__version__`.", 288, 180),
    "code tokens": Count("Tokens without comments, docstrings, indentation and ends of lines.", share=0.88),
    "code tokens of the core": Count(
        "The same without lab, contrib, compat and what only these use (listed at the end).", share=0.82
    ),
    "code lines": Count("Lines that hold more than a comment or a docstring.", 58700),
    "constructors with 15 or more arguments": Count(
        "`__init__` with at least 15 named arguments beside `self`; `compat/` is left out.", 15, 4, is_idea=True
    ),
    "perceptrons": Count("", 7, 4, is_idea=True),
    "Adams": Count("", 5, 2, is_idea=True),
    "epoch loops": Count("", 4, 1, is_idea=True),
    "replay memories": Count("", 2, 1, is_idea=True),
    "setups": Count("", 9, 1, is_idea=True),
    "description classes": Count("", 26, 1, is_idea=True),
    "second readers, pools and rmtree": Count(
        "Functions named in a module that read npz, YAML, JSON or Parquet outside `data/doors/`, `ProcessPoolExecutor` "
        "outside `processes/`, `rmtree` outside `data/folders/`; each counts once for a module. Names are resolved "
        "through imports.",
        9,
        0,
        is_idea=True,
    ),
    "literal probes": Count(
        '`getattr(x, "name", ...)` and `hasattr(x, "name")` outside ADAPTERS of `tools/architecture.py`.',
        59,
        30,
        is_idea=True,
    ),
    '"is it overridden?" tests': Count("", 14, 0, is_idea=True),
    **_read("SAC", 14, 2756, (6, 1400)),
    **_read("PPO", 9, 2035, (5, 1300)),
    **_read("PEARL", 8, 2514, (6, 1700)),
    **_read("CMA-ES", 5, 799, (None, None)),
    "files to the first step": Count(f"{_LEARN}: files entered.", 89, 45),
    "moves to the first step": Count("The same: calls in another file than the call before.", 801, 300),
    "functions to the first step": Count("The same: functions entered, by file and name.", 497),
    "calls to the first step": Count(
        "The same: all calls but those of comprehensions, generator expressions and lambdas.", 2556
    ),
    "files of a gradient step": Count(f"{_STEP}: files entered.", 15, 9),
    "calls of a gradient step": Count("The same: calls, all that Python makes.", 232, 120),
    "x=x keywords": Count("Keyword arguments whose value is the variable of the same name.", 659),
    "identical entries of Args": Count(
        "First lines of entries below `Args:` that stand more than once in docstrings of classes and functions; each "
        "place counts.",
        785,
    ),
    "checks and raises, % of code lines": Count(
        "Lines of code of a `raise`, of an `if` in whose body one stands, of calls of functions whose names begin with "
        "check_ or require_, and of such functions.",
        11.5,
        decimals=1,
    ),
    "raises per 1,000 code lines": Count("`raise` statements.", 32, decimals=1),
    "comments, % of code lines": Count("Lines that hold a comment alone.", 0.8, decimals=1),
    "lines that no documented name reaches": Count(
        "Lines of functions, classes and assignments at the top of modules that the names in the tables of `compat/` "
        "do not reach, in however many steps, by names, strings and imports; and all lines of modules of which nothing "
        "is reached.",
        38100,
    ),
    "the same, % of all lines": Count("Of all lines of the package.", 42, decimals=1),
}
COUNTS |= {
    name: Count(
        " ".join((finder.__doc__ or "").split()).replace("``", "`"),
        COUNTS[name].reviewed,
        COUNTS[name].limit,
        is_idea=True,
    )
    for name, finder in ideas.IDEAS.items()
}


MISSED = {
    "files": "tried: (1) modules of 90 lines or fewer with at most one importer put into it: 57, of which eight were "
    "read and none inlined (generated, named in users' files, loaded by a registry, or a formula with its source); (2) "
    "all 172 modules under 100 lines inlined, counted: 385 would be left, of a library that does "
    "what the review counted and more.",
    "classes": "tried: (1) hill climbing, four epoch loops, nine setups and 25 descriptions became one of each "
    "(issues before): configs and contracts that replaced them are classes, too; (2) classes without bases and "
    "`__init__`, which functions might replace: 17, nearly all of them mixins. 267 are dataclasses, 132 named tuples, "
    "39 errors, 26 protocols.",
    "code tokens": "tried: (1) one of each idea (perceptron, loop, memory, description, reader), one drawing of "
    "charts, four functions that tests alone used: thousands of tokens went, and as many came with contracts, views, "
    "rooms of names and declared state; (2) the 203 pairs that a search for duplicates lists: signatures of protocols "
    "and documented constructors. What is missing to the bound is as much as all of `lab`, so only features could go.",
    "code tokens of the core": "tried: (1) learners on configs, declared state and one loop: 62,207 to 46,695 tokens "
    "(25 % fewer). What they now share came in other rooms: the conformance kits in `testing/` 12,756; configs, state, "
    "contracts and tables of names at the top and in `configs/` 22,680; bodies, heads and batches in `policies/` and "
    "`processing/` 7,973. The other rooms changed by 4 % or less; (2) functions and classes that nothing in the "
    "package uses by name: 96 with 1,577 lines, all of them public, documented or called by a framework, so none went. "
    "What is missing to the bound is more than all of `envs/` (111,116).",
    "Adams": "tried: (1) one step for both kinds of arrays, through the moments of `functional/adam.py`: 34 to 39 % of "
    "the entries equal after one step, and 1.1 to 1.5 times the time; (2) torch's fused step on views: 42 % equal. "
    "`torch.optim.Adam` itself stays, since documented PEARL takes it as an argument.",
    "lines to read for SAC": "tried: (1) settings as fields of configs rather than arguments and properties: 3,193 to "
    "2,297; (2) `learners/base.py` divided, so that only what SAC uses is read, counted: 2,047, by moving alone. "
    "Without docstrings, comments and blank lines 1,310 are left; 128 comments and shapes of gradient steps joined.",
    "lines to read for PPO": "tried: (1) as SAC, 2,181 to 1,853; (2) `learners/base.py` divided, counted: 1,684, by "
    "moving alone. Gradients by hand beside autograd are 496 lines, and 4.7 times as fast.",
    "lines to read for PEARL": "tried: (1) networks, update and config as pure functions and declared parts: 2,436 to "
    "2,016; (2) `learners/base.py` divided, counted: 1,715, by moving alone.",
    "files to the first step": "tried: (1) options in one pass, 110 to 110; (2) `agent()` that builds nothing, and "
    "`learn` that resolves nothing again: 110; two more came since with rooms. 30 of the files are entered for three "
    "calls or fewer, each a check or a "
    "notice; a third is the display and the snapshot.",
    "moves to the first step": "tried: (1) options in one pass, names of a run's options renamed where files are "
    "read: 1,340 to 1,021; (2) `agent()` that builds nothing: 852, and `learn` that resolves nothing again: 783, not "
    "kept, as errors of building would come at `learn`. With 112 files the least is about 111.",
    "files of a gradient step": "tried: (1) a plain batch cut without `data_format.py`: 15 to 14; (2) products as "
    "partial functions of torch: 14. The rest are rooms (checks, seeding, replay, formulas), which are not merged.",
    "calls of a gradient step": "tried: (1) memory of all layers in one call, the kind of a layer chosen once: 313 to "
    "232; (2) products as partial functions: 204, not kept, as the kernel's seam was not readable any more. Counted is "
    "the first step of a new learner, which sets up three kernels.",
}
"""Counts above their bounds: what was tried, the figures it gave, and why the bound is not met."""

DIFFERENCES = {
    "perceptrons": "the review says seven without a list; the rule finds eight modules: four in `functional/`, two in "
    "`policies/`, `processing/baselines.py` and `learners/off_policy/networks.py`, now in `policies/networks.py`.",
    "second readers, pools and rmtree": "the review counts some, without a list; the rule counts every module and "
    "function outside the rooms, of which there were none at a745dda.",
    '"is it overridden?" tests': "the rule finds two more, in `types.py`, that look into `vars(cls)`.",
    "files to read for SAC": "the same number, of 18 lines fewer.",
    "files to read for PEARL": "one more, of 78 lines fewer. PPO: the same number, one line fewer; CMA-ES: equal.",
    "moves to the first step": "less than 1 % more, as functions and calls; the review does not say what it ran first.",
    "identical entries of Args": "the review does not say its rule; all lines below `Args:` that are repeated are 884.",
    "checks and raises, % of code lines": "less by 0.3 points; the review does not say what belongs to a check.",
    "lines that no documented name reaches": "3.6 % more; the review does not say how a name reaches a line.",
}
"""Count -> why its figure at a745dda is not the review's."""


def _name_of(count: Count) -> str:
    return next(name for name, other in COUNTS.items() if other is count)


# ------------------------------------------------------------------------------------------------ measuring
def where(source: Source, probes: Iterable[str]) -> dict[str, list[str]]:
    """Name of a count -> its cases, for those that have some that can be listed.

    Args:
        source: The package.
        probes: Probes of literal names outside adapters.
    """
    return {
        **{name: finder(source) for name, finder in ideas.IDEAS.items()},
        "constructors with 15 or more arguments": sorted(_large_constructors(source)),
        "second readers, pools and rmtree": sorted(set(_second_ways(source))),
        "literal probes": list(probes),
        **{f"files to read for {name}": _opened(source, name) for name in READ},
    }


def measured(source: Source, probes: Iterable[str], package: Path | None = None) -> dict[str, float | None]:
    """Name of a count -> its figure; ``None`` where it cannot be told.

    Args:
        source: The package.
        probes: Probes of literal names outside adapters.
        package: Its folder, to walk through it; ``None``: no walks.
    """
    modules = list(source.modules.values())
    listed = where(source, probes)
    lines = sum(len(code_lines(module)) for module in modules) or 1
    total = sum(len(module.text.splitlines()) for module in modules) or 1
    unreached = reached.unreached_lines(source)
    tokens = {module.path: len(code_tokens(module)) for module in modules}
    figures: dict[str, float | None] = {
        **{name: len(cases) for name, cases in listed.items()},
        "files": len(modules),
        "classes": sum(isinstance(node, ast.ClassDef) for module in modules for node in module.nodes),
        "names in metaroll.__all__": _public_names(source),
        "code tokens": sum(tokens.values()),
        "code tokens of the core": sum(n for path, n in tokens.items() if not is_outside_core(path)),
        "code lines": lines,
        "x=x keywords": sum(_is_repeated(node) for module in modules for node in module.nodes),
        "identical entries of Args": _identical_entries(modules),
        "checks and raises, % of code lines": 100 * sum(map(_check_lines, modules)) / lines,
        "raises per 1,000 code lines": 1000
        * sum(isinstance(node, ast.Raise) for module in modules for node in module.nodes)
        / lines,
        "comments, % of code lines": 100 * sum(map(comment_lines, modules)) / lines,
        "lines that no documented name reaches": unreached,
        "the same, % of all lines": 100 * unreached / total,
    }
    by_path = {module.path: module for module in modules}
    for name in READ:
        paths = listed[f"files to read for {name}"]
        if not paths:
            figures[f"files to read for {name}"] = None
        for suffix, opened in ("", paths), (", with formulas", _opened(source, name, "functional/")):
            number = sum(len(by_path[path].text.splitlines()) for path in opened)
            figures[f"lines to read for {name}{suffix}"] = number or None
    if package is not None:
        figures |= _walked(package)
    return {name: _rounded(COUNTS[name], figures.get(name)) for name in COUNTS}


def _rounded(count: Count, value: float | None) -> float | None:
    if value is None:
        return None
    return round(value, count.decimals) if count.decimals else int(value)


def _walked(package: Path) -> dict[str, float | None]:
    try:
        learn, step = walks.learn_walk(package), walks.step_walk(package)
    except RuntimeError:
        return {}
    return {
        "files to the first step": learn.files,
        "moves to the first step": learn.moves,
        "functions to the first step": learn.functions,
        "calls to the first step": learn.calls,
        "files of a gradient step": step.files,
        "calls of a gradient step": step.calls,
    }


def _public_names(source: Source) -> int:
    top = min(source.modules.values(), key=lambda module: len(module.name))
    for node in top.tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in ("_MODULES", "__all__"):
            values = node.value.values if isinstance(node.value, ast.Dict) else [node.value]
            names = [inner.value for value in values for inner in walk(value) if isinstance(inner, ast.Constant)]
            return sum(isinstance(name, str) and not name.startswith("__") for name in names)
    return 0


def _large_constructors(source: Source) -> Iterator[str]:
    for module in source.modules.values():
        for node in module.nodes:
            if isinstance(node, ast.ClassDef) and not module.path.startswith("compat/"):
                made = [m for m in node.body if isinstance(m, ast.FunctionDef) and m.name == "__init__"]
                named = [a for m in made for a in (*m.args.posonlyargs, *m.args.args, *m.args.kwonlyargs)]
                if len(named) - 1 >= MANY_ARGUMENTS:
                    yield f"{module.path}: {node.name} ({len(named) - 1})"


def _second_ways(source: Source) -> Iterator[str]:
    rules = {re.compile(names): room for names, room in _DOORS.items()}
    for module in source.modules.values():
        for _, name in resolved(module):
            if any(names.fullmatch(name) and not module.path.startswith(room) for names, room in rules.items()):
                yield f"{module.path}: {name}"


def _is_repeated(node: ast.AST) -> bool:
    return isinstance(node, ast.keyword) and isinstance(node.value, ast.Name) and node.value.id == node.arg


def _identical_entries(modules: Iterable[Module]) -> int:
    entries: Counter[str] = Counter()
    for module in modules:
        for node in module.nodes:
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                entries.update(_entries(ast.get_docstring(node) or ""))
    return sum(count for count in entries.values() if count > 1)


def _entries(docstring: str) -> Iterator[str]:
    is_inside = False
    for line in docstring.splitlines():
        if line.strip() and not line.startswith(" "):
            is_inside = line == "Args:"
        elif is_inside and re.match(r" {4}\*{0,2}\w+( \(.*\))?: ", line):
            yield line.strip()


def _lines_of(first: ast.stmt | ast.expr, last: ast.stmt | ast.expr) -> set[int]:
    return set(range(first.lineno, (last.end_lineno or first.lineno) + 1))


def _check_lines(module: Module) -> int:
    spans: set[int] = set()
    for node in module.nodes:
        if isinstance(node, ast.If) and any(isinstance(inner, ast.Raise) for inner in node.body):
            spans |= _lines_of(node, node.body[-1])
        elif isinstance(node, ast.Raise | ast.FunctionDef | ast.Call) and _checks(node):
            spans |= _lines_of(node, node)
    return len(spans & code_lines(module))


def _checks(node: ast.Raise | ast.FunctionDef | ast.Call) -> bool:
    if isinstance(node, ast.Raise):
        return True
    function = node if isinstance(node, ast.FunctionDef) else node.func
    names = (getattr(function, name, "") for name in ("name", "id", "attr"))
    return any(_CHECKS.match(name) for name in names)


_CHECKS = re.compile(r"_?(check|require)_")


def _opened(source: Source, name: str, *more: str) -> list[str]:
    """Paths of the files that a reader opens for an algorithm, its own first; [] if the class is not there.

    Args:
        source: The package.
        name: The algorithm.
        more: Rooms beside its own whose modules are opened, too.
    """
    kind, room = READ[name]
    roots = [
        module.name
        for module in source.modules.values()
        if module.path.startswith(room)
        and any(isinstance(node, ast.ClassDef) and node.name == kind for node in module.tree.body)
    ]
    opened: list[str] = []
    while roots:
        module = source.modules[roots.pop(0)]
        if module.path.startswith((room, *more)) and module.path not in opened and not module.is_init:
            opened.append(module.path)
            roots += sorted(source.imports[module.name])
    return opened


# ------------------------------------------------------------------------------------------------ record, table, page
@dataclass(frozen=True)
class Record:
    """What ``counts.json`` holds: figures of commits, and ceilings of ideas, by name."""

    commits: dict[str, dict[str, float | None]]
    ceilings: dict[str, int]

    @classmethod
    def load(cls, path: Path = RECORD) -> Record:
        tree: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        return cls(tree.get("commits", {}), tree.get("ceilings", {}))

    def save(self, path: Path = RECORD) -> None:
        tree = {"commits": self.commits, "ceilings": self.ceilings}
        temporary = path.with_suffix(".tmp")
        temporary.write_text(json.dumps(tree, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        temporary.replace(path)


def lowered(record: Record, cases: Mapping[str, list[str]]) -> Record:
    """The record with ceilings of today's figures, where these are smaller or there is none yet."""
    figures = {name: len(cases[name]) for name, count in COUNTS.items() if count.is_idea}
    return Record(record.commits, {name: min(n, record.ceilings.get(name, n)) for name, n in figures.items()})


def ratchet(record: Record, cases: Mapping[str, list[str]]) -> Iterator[str]:
    """Ideas that stand in more places than the record allows, and ceilings that are too high by now."""
    for name, count in COUNTS.items():
        if not count.is_idea:
            continue
        number, ceiling = len(cases[name]), record.ceilings.get(name)
        if not number and name.startswith("files to read"):
            yield f"{name}: its class is not in its room any more: see READ in tools/counts.py"
        elif ceiling is None:
            yield f"{name}: there is no ceiling yet: python tools/architecture.py --lower"
        elif number > ceiling:
            listed = "".join(f"\n    {case}" for case in cases[name])
            yield f"{name}: {number}, at most {ceiling}: use one that is there (docs/counts.md){listed}"
        elif number < ceiling:
            yield f"{name}: {number}, and the ceiling is still {ceiling}: python tools/architecture.py --lower"


def is_outside_core(path: str) -> bool:
    """Whether a module, here or in a commit of before, goes to lab, contrib or compat."""
    return MOVED.get(path, path).startswith((*OUTSIDE_CORE, *WERE_LAB))


def core_breaches(source: Source) -> Iterator[str]:
    """Entries of OUTSIDE_CORE that match no module, and of MISSED that are no counts."""
    yield from (f"{name} is no count: take it out of MISSED" for name in MISSED if name not in COUNTS)
    paths = [module.path for module in source.modules.values()]
    for entry in OUTSIDE_CORE:
        if not any(path.startswith(entry) for path in paths):
            yield f"there is no {entry} any more: take it out of OUTSIDE_CORE"


def table(record: Record, figures: Mapping[str, float | None]) -> str:
    """The counts of the source beside those of a745dda, and their bounds."""
    reviewed = record.commits.get(REVIEWED, {})
    rows: list[tuple[str, ...]] = [("count", f"{REVIEWED}, review", REVIEWED, "now", "at most")]
    for name, count in COUNTS.items():
        bound = count.bound(record)
        columns = (count.reviewed, reviewed.get(name), figures[name], bound)
        rows.append((name, *(count.text(value) or "-" for value in columns)))
    return _aligned(rows)


def _aligned(rows: list[tuple[str, ...]]) -> str:
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    return "\n".join(
        "  ".join([row[0].ljust(widths[0]), *(text.rjust(w) for text, w in zip(row[1:], widths[1:], strict=True))])
        for row in rows
    )


_PAGE_HEAD = """# What is counted

Written by `python tools/architecture.py --page`; `make lint` fails when it is out of date.

A review of the source at commit a745dda set bounds on what stands in the code more than once. `tools/architecture.py`
prints today's figures; `--counts` lists where each idea stands, `--json` prints one object, `--source` takes another
checkout, `--record` keeps its figures. The length of a module or a class has no limit.

A ceiling is the figure of today, and `make lint` holds it: an idea may not stand in one place more. Where it stands in
one place less, `--lower` lowers the ceiling. Files and calls of a walk depend on Python's version, here 3.11.
"""


def page(record: Record) -> str:
    """``docs/counts.md``: what each count means, and its figures at the commits of the record."""
    titles = [TITLES.get(commit, commit) for commit in record.commits]
    head = ["count", f"{REVIEWED}, review", *titles, "ceiling", "at most"]
    lines = [
        _PAGE_HEAD,
        "| " + " | ".join(head) + " |",
        "|---" + "|---:" * (len(head) - 1) + "|",
    ]
    for name, count in COUNTS.items():
        values = [count.reviewed, *(figures.get(name) for figures in record.commits.values())]
        values += [record.ceilings.get(name), count.bound(record)]
        lines.append("| " + " | ".join([name, *(count.text(value) for value in values)]) + " |")
    lines += ["", "## What each means", ""]
    lines += [f"- **{name}**: {count.meaning}" for name, count in COUNTS.items()]
    lines += ["", "## Bounds that are missed", ""]
    lines += [f"- **{name}**: {why}" for name, why in MISSED.items()]
    lines += ["", "## Where figures differ from the review's", ""]
    lines += [f"- **{name}**: {why}" for name, why in DIFFERENCES.items()]
    lines += ["", "## What is not of the core", "", "| modules | why |", "|---|---|"]
    lines += [f"| `{path}` | {why} |" for path, why in OUTSIDE_CORE.items()]
    return "\n".join([*lines, ""])
