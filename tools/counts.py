"""What is counted in the source from commit to commit. Each count has a name, a meaning and, in many cases, a bound.

Bounds are on ideas, not on the length of modules or classes. In ``counts.json``, ``ceilings`` has the current figures
of the counts that are ideas: a larger figure is a breach, and a smaller one means that the ceiling must be lowered.
``commits`` has the figures of earlier commits for comparison.
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
"""The commit for which the bounds were set, and the one before the rebuild, to which token counts are compared."""
TITLES = {
    REVIEWED: f"{REVIEWED}, measured",
    BEFORE: f"before part I ({BEFORE})",
    "e62c0f5a": "after part I (e62c0f5a)",
    "6af7eb0a": "after part II (6af7eb0a)",
    "0221f93b": "after part III (0221f93b)",
    "HEAD": "after part IV",
}
"""Commit of the record -> title of its column on the page.

The rebuild had four parts. The last figures are committed with the source, so their own commit is not known.
"""

OUTSIDE_CORE = {
    "__main__.py": "lab: the command line",
    "compat/": "compat: documented constructors and groups of names",
    "contrib/": "contrib",
    "functional/gradients/quantiles.py": "contrib: only TQC uses it",
    "lab/": "lab",
}
"""Modules and folders that belong to lab, contrib or compat; everything else is the core.

An entry that matches no module is a breach.
"""

MOVED = {
    "learners/epopt.py": "contrib/epopt.py",
    "learners/off_policy/soft_losses.py": "contrib/discrete_sac.py",
}
"""Where modules were in the earlier commits, and where they (or most of their users) are now."""

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
"""Where modules of lab were in the earlier commits."""

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
        reviewed: The figure that the review gives for a745dda; ``None`` if it gives none.
        limit: The largest figure allowed at the end of the rebuild; ``None`` if there is no bound.
        share: Instead of ``limit``: the largest allowed share of the figure before the rebuild.
        is_idea: Whether the figure must not grow from commit to commit.
        decimals: Number of decimals that are written.
    """

    meaning: str
    reviewed: float | None = None
    limit: float | None = None
    share: float | None = None
    is_idea: bool = False
    decimals: int = 0

    def text(self, value: float | None) -> str:
        """A figure as text."""
        return "" if value is None else f"{value:,.{self.decimals}f}"

    def bound(self, record: Record) -> float | None:
        """The limit, computed from ``share`` if that is given."""
        before = record.commits.get(BEFORE, {}).get(_name_of(self))
        return self.limit if self.share is None or before is None else self.share * before


def _read(name: str, files: float, lines: float, limits: tuple[float | None, float | None]) -> dict[str, Count]:
    kind, room = READ[name]
    opened = (
        f"The module of {room} that defines {kind}, the modules of {room} that it imports, and so on. Imports count "
        "wherever they are; `__init__` does not count."
    )
    return {
        f"files to read for {name}": Count(opened, files, limits[0], is_idea=True),
        f"lines to read for {name}": Count(f"All lines of these files ({name}), with docstrings.", lines, limits[1]),
        f"lines to read for {name}, with formulas": Count(
            f"The same, with the imported modules of functional/ ({name}), so that code moved there still counts."
        ),
    }


_LEARN = (
    'From `agent("ppo", "Pendulum-v1")` and `.learn` to the first step of the slot loop, the second time in a process'
)
_STEP = (
    "The first batch of 64 steps that a new `SAC` draws and the gradient step on it, in a process that has done this "
    "once before"
)
COUNTS: dict[str, Count] = {
    "files": Count("Python files of the package, including every `__init__.py`.", 461, 280),
    "classes": Count("Class statements, at any depth.", 813, 540),
    "names in metaroll.__all__": Count("Public names of the top package, without `__version__`.", 288, 180),
    "code tokens": Count("Tokens without comments, docstrings, indentation and line ends.", share=0.88),
    "code tokens of the core": Count(
        "The same without lab, contrib, compat and the modules that only these use (listed at the end).", share=0.82
    ),
    "code lines": Count("Lines with code, not only a comment or a docstring.", 58700),
    "constructors with 15 or more arguments": Count(
        "`__init__` methods with at least 15 named arguments besides `self`, outside `compat/`.", 15, 4, is_idea=True
    ),
    "perceptrons": Count("", 7, 4, is_idea=True),
    "Adams": Count("", 5, 2, is_idea=True),
    "epoch loops": Count("", 4, 1, is_idea=True),
    "replay memories": Count("", 2, 1, is_idea=True),
    "setups": Count("", 9, 1, is_idea=True),
    "description classes": Count("", 26, 1, is_idea=True),
    "readers, pools and rmtree outside their folders": Count(
        "Uses of functions that read npz, YAML, JSON or Parquet outside `data/doors/`, of `ProcessPoolExecutor` "
        "outside `processes/`, and of `rmtree` outside `data/folders/`; each function counts once per module. Names "
        "are resolved through imports.",
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
    "files to the first step": Count(f"{_LEARN}: files whose functions are called.", 89, 45),
    "moves to the first step": Count("The same: calls in another file than the previous call.", 801, 300),
    "functions to the first step": Count("The same: different functions called, by file and name.", 497),
    "calls to the first step": Count(
        "The same: all calls except those of comprehensions, generator expressions and lambdas.", 2556
    ),
    "files of a gradient step": Count(f"{_STEP}: files whose functions are called.", 15, 9),
    "calls of a gradient step": Count("The same: all Python calls.", 232, 120),
    "x=x keywords": Count("Keyword arguments whose value is the variable of the same name.", 659),
    "identical entries of Args": Count(
        "First lines of entries below `Args:` that occur more than once in docstrings of classes and functions; each "
        "occurrence counts.",
        785,
    ),
    "checks and raises, % of code lines": Count(
        "Code lines of `raise` statements, of each `if` with one in its body, and of functions whose names begin with "
        "check_ or require_ and of calls of these.",
        11.5,
        decimals=1,
    ),
    "raises per 1,000 code lines": Count("`raise` statements.", 32, decimals=1),
    "comments, % of code lines": Count("Lines with only a comment.", 0.8, decimals=1),
    "lines that no documented name reaches": Count(
        "Lines of top-level functions, classes and assignments that cannot be reached from the names in the tables of "
        "`compat/`, in any number of steps through names, strings and imports; and all lines of modules in which "
        "nothing is reached.",
        38100,
    ),
    "the same, % of all lines": Count("Their share of all lines of the package.", 42, decimals=1),
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
    "files": "tried: (1) merging modules of 90 lines or fewer that have at most one importer into that importer: "
    "there are 57; eight were read and none was merged (they are generated, named in users' files, loaded by a "
    "registry, or a formula with its source); (2) counting what would be left if all 172 modules (then) under 100 "
    "lines were merged: 385 files, in a library that does more than the one that the review counted.",
    "classes": "tried: (1) one class instead of several: hill climbing, four epoch loops, nine setups and 25 "
    "description classes went in earlier parts, but the configs and contracts that replaced them are classes, too; "
    "(2) functions instead of classes without bases and `__init__`: there are 17, nearly all of them mixins. 267 "
    "classes are dataclasses, 133 named tuples, 39 errors and 26 protocols.",
    "code tokens": "tried: (1) one implementation of each idea (perceptron, loop, memory, description, reader), one "
    "way to draw charts, and no functions that only tests used: this removed thousands of tokens, but contracts, "
    "views, tables of public names and declared state added as many; (2) a search for duplicates: its 203 pairs are "
    "signatures of protocols and documented constructors. The excess is larger than all of `lab`, so only removing "
    "features would meet the bound.",
    "code tokens of the core": "tried: (1) learners with configs, declared state and one loop: 62,207 tokens became "
    "46,695 (25 % fewer), but the code that they now share was added elsewhere: the conformance kits in `testing/` "
    "(12,756); configs, state, contracts and tables of names at the top and in `configs/` (22,680); bodies, heads and "
    "batches in `policies/` and `processing/` (7,973). Other folders changed by 4 % or less; (2) a search for "
    "functions and classes that nothing in the package uses by name: there are 96 with 1,577 lines, all of them "
    "public, documented or called by a framework, so none was removed. The excess is larger than all of `envs/` "
    "(111,116).",
    "Adams": "tried: (1) one step for NumPy and torch, with the moments of `functional/adam.py`: only 34 to 39 % of "
    "the entries had the same bits after one step, and it took 1.1 to 1.5 times as long; (2) torch's fused step on "
    "views: 42 % had the same bits. `torch.optim.Adam` itself stays, because the documented PEARL takes it as an "
    "argument.",
    "lines to read for SAC": "tried: (1) settings as fields of configs instead of arguments and properties: 3,193 "
    "became 2,297; (2) counting what splitting `learners/base.py` would give, so that only what SAC uses is read: "
    "2,047, by moving code alone. 1,310 lines are code. 128 comments with equations and shapes of gradient steps were "
    "added later.",
    "lines to read for PPO": "tried: (1) the same as for SAC: 2,181 became 1,853; (2) splitting `learners/base.py` "
    "would give 1,684, by moving code alone. Gradients by hand take 496 lines, and are 4.7 times as fast as autograd.",
    "lines to read for PEARL": "tried: (1) networks, update and config as pure functions and declared parts: 2,436 "
    "became 2,016; (2) splitting `learners/base.py` would give 1,715, by moving code alone.",
    "files to the first step": "tried: (1) resolving options in one pass: still 110; (2) an `agent()` that builds "
    "nothing and a `learn` that does not resolve the options again: still 110. Modules that came later, such as "
    "tables of public names, added the others. 30 of the files are entered for three calls or fewer, each a check or "
    "a notice; a third of all files belong to the display and the snapshot.",
    "moves to the first step": "tried: (1) resolving options in one pass, with former names replaced where files are "
    "read: 1,340 became 1,021 (checks of arguments that came later are moves, too); (2) an `agent()` that builds "
    "nothing: 852, and a `learn` that does not resolve the options again: 783. This was not kept, because errors in "
    "building would only appear in `learn`. The minimum is one less than the number of files.",
    "files of a gradient step": "tried: (1) splitting a plain batch without `data_format.py`: 15 became 14; (2) "
    "products as partial functions of torch: still 14. The others are separate modules for good reasons (checks, "
    "seeding, replay, formulas).",
    "calls of a gradient step": "tried: (1) allocating the memory of all layers in one call and choosing the kind of a "
    "layer once: 313 became 232; (2) products as partial functions: 204, not kept, because the interface of the kernel "
    "was no longer readable. The count is for the first step of a new learner, which sets up three kernels.",
}
"""Counts above their bounds: two attempts with their figures, and why the bound is not met."""

DIFFERENCES = {
    "perceptrons": "the review counts seven, but does not list them. The rule matches eight modules: four in "
    "`functional/`, two in `policies/`, `processing/baselines.py`, and `learners/off_policy/networks.py`, which is "
    "now in `policies/networks.py`.",
    "readers, pools and rmtree outside their folders": "the review counts nine, but does not list them. The rule "
    "counts every pair of a module and a function, and at a745dda these folders did not exist.",
    '"is it overridden?" tests': "the rule matches two more, in `types.py`, that test `vars(cls)`.",
    "files to read for SAC": "the same number, with 18 lines fewer.",
    "files to read for PEARL": "one more, with 78 lines fewer in all. For PPO the number is the same, with one line "
    "fewer; for CMA-ES both are equal.",
    "moves to the first step": "less than 1 % more, as for functions and calls. The review does not say what it ran "
    "before.",
    "identical entries of Args": "the review does not state its rule. All repeated lines below `Args:` are 884.",
    "checks and raises, % of code lines": "0.3 points less. The review does not say what counts as a check.",
    "lines that no documented name reaches": "3.6 % more. The review does not say how a name reaches a line.",
}
"""Count -> why its figure at a745dda differs from the review's."""


def _name_of(count: Count) -> str:
    return next(name for name, other in COUNTS.items() if other is count)


# ------------------------------------------------------------------------------------------------ measuring
def where(source: Source, probes: Iterable[str]) -> dict[str, list[str]]:
    """Name of a count -> its cases, for counts whose cases can be listed.

    Args:
        source: The package.
        probes: Probes of literal names outside adapters.
    """
    return {
        **{name: finder(source) for name, finder in ideas.IDEAS.items()},
        "constructors with 15 or more arguments": sorted(_large_constructors(source)),
        "readers, pools and rmtree outside their folders": sorted(set(_second_ways(source))),
        "literal probes": list(probes),
        **{f"files to read for {name}": _opened(source, name) for name in READ},
    }


def measured(source: Source, probes: Iterable[str], package: Path | None = None) -> dict[str, float | None]:
    """Name of a count -> its figure; ``None`` if it cannot be determined.

    Args:
        source: The package.
        probes: Probes of literal names outside adapters.
        package: Its folder, for the walks through it; ``None`` for no walks.
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
        for node in module.of(ast.ClassDef):
            if not module.path.startswith("compat/"):
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
    """Paths of the files that a reader opens for an algorithm, its own first; [] if its class does not exist.

    Args:
        source: The package.
        name: The algorithm.
        more: Further rooms whose modules are opened, too.
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
    """The contents of ``counts.json``: figures of commits, and ceilings of ideas, by name."""

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
    """The record with ceilings lowered to the current figures, and with those that are new."""
    figures = {name: len(cases[name]) for name, count in COUNTS.items() if count.is_idea}
    return Record(record.commits, {name: min(n, record.ceilings.get(name, n)) for name, n in figures.items()})


def ratchet(record: Record, cases: Mapping[str, list[str]]) -> Iterator[str]:
    """Ideas that occur in more places than the record allows, and ceilings that are now too high."""
    for name, count in COUNTS.items():
        if not count.is_idea:
            continue
        number, ceiling = len(cases[name]), record.ceilings.get(name)
        if not number and name.startswith("files to read"):
            yield f"{name}: its class is no longer in its room; correct READ in tools/counts.py"
        elif ceiling is None:
            yield f"{name}: there is no ceiling yet: python tools/architecture.py --lower"
        elif number > ceiling:
            listed = "".join(f"\n    {case}" for case in cases[name])
            yield f"{name}: {number}, at most {ceiling}: use an existing one (docs/counts.md){listed}"
        elif number < ceiling:
            yield f"{name}: {number}, and the ceiling is still {ceiling}: python tools/architecture.py --lower"


def is_outside_core(path: str) -> bool:
    """Whether a module, in this or an earlier commit, belongs to lab, contrib or compat."""
    return MOVED.get(path, path).startswith((*OUTSIDE_CORE, *WERE_LAB))


def core_breaches(source: Source) -> Iterator[str]:
    """Entries of OUTSIDE_CORE that match no module, and entries of MISSED that are not counts."""
    yield from (f"{name} is not a count: remove it from MISSED" for name in MISSED if name not in COUNTS)
    paths = [module.path for module in source.modules.values()]
    for entry in OUTSIDE_CORE:
        if not any(path.startswith(entry) for path in paths):
            yield f"{entry} no longer exists: remove it from OUTSIDE_CORE"


def table(record: Record, figures: Mapping[str, float | None]) -> str:
    """The counts of the source next to those of a745dda, with their bounds."""
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

A review of the source at commit a745dda set bounds on ideas that the code implements more than once.
`tools/architecture.py` prints the current figures; `--counts` lists where each idea occurs, `--json` prints one object,
`--source` counts another checkout, and `--record` stores its figures. The length of modules and classes has no limit.

A ceiling is the current figure, and `make lint` enforces it: an idea must not occur in one more place. If you removed a
place, `--lower` lowers the ceiling. Files and calls of a walk depend on the version of Python, here 3.11.
"""


def page(record: Record) -> str:
    """The text of ``docs/counts.md``: each count with its figures at the commits of the record, and its meaning."""
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
    lines += ["", "## What each count means", ""]
    lines += [f"- **{name}**: {count.meaning}" for name, count in COUNTS.items()]
    lines += ["", "## Bounds that are missed", ""]
    lines += [f"- **{name}**: {why}" for name, why in MISSED.items()]
    lines += ["", "## Where figures differ from those of the review", ""]
    lines += [f"- **{name}**: {why}" for name, why in DIFFERENCES.items()]
    lines += ["", "## What does not belong to the core", "", "| modules | why |", "|---|---|"]
    lines += [f"| `{path}` | {why} |" for path, why in OUTSIDE_CORE.items()]
    return "\n".join([*lines, ""])
