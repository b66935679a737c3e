"""The structure of the source: figures, rules and a picture, all from the syntax trees.

Usage: python tools/architecture.py [--check] [--svg docs/architecture.svg] [--source src/metaroll]
       python tools/architecture.py [--counts | --json | --record COMMIT | --lower | --page] [--source src/metaroll]

Without options it prints figures of the structure and the table of counts (``counts.py``, docs/counts.md); for the
walks among them the package runs in a separate process. ``--svg`` writes the picture of the rooms. ``--check`` names
each breach of the rules below and ends with status 1 if there is one. Imports count wherever they are, also under
TYPE_CHECKING and inside functions. A folder is the package that directly contains a module.

- Imported modules exist, there are no import cycles, and no two folders import each other.
- A folder has at most MODULES_PER_FOLDER modules, not counting its ``__init__``.
- No string names a module of a higher folder (an import upwards in disguise), and no name of a module is composed
  outside the doors of the package (DOORS).
- Class hierarchies are at most CLASS_DEPTH deep; a class without a base of metaroll has depth 1. A class is abstract or
  final: if another class of metaroll extends it, it names ABC or Protocol among its bases, has an abstract member, or
  is a mixin (no base, no ``__init__``), and is never instantiated. Named tuples and configs (which only list fields),
  exceptions, and documented constructors (each of which extends a learner) are exempt.
- Outside ADAPTERS, literal names are probed (``getattr(x, "name", ...)``, ``hasattr(x, "name")``) fewer than PROBES
  times.
- The name of an algorithm, in an identifier or a string, occurs only in its own modules, in those that list all
  algorithms (ALGORITHM_LISTS), and in DOCUMENTED names.
- There is one way for operations that can fail: files are opened, parsed and removed, and processes started, only in
  the folders of ONE_WAY; exceptions are listed in ELSEWHERE with their reasons. Names are resolved through imports and
  aliases, and count wherever they are mentioned, called or not.
- No idea of ``counts.py`` occurs in more places than its ceiling in ``counts.json`` allows. Ceilings are only lowered.
- The committed picture is the one that ``--svg`` writes, and docs/counts.md is the one that ``--page`` writes.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import gc
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path

import counts
import walks
from source_trees import Module, Source, code_lines, identifiers, resolved, strings

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "metaroll"
PICTURE = ROOT / "docs" / "architecture.svg"

MODULES_PER_FOLDER = 20
CLASS_DEPTH = 3
CONFIG = ("metaroll.config", "Config")
"""The base of all configs, which only list fields."""
CONSTRUCTORS = "metaroll.compat.constructors"
"""Documented constructors, each of which extends a learner."""
PROBES = 60

ADAPTERS = {
    "lab/display/consoles.py": "output streams of the calling program",
    "data/compare.py": "values of users: named tuples of any kind",
    "data/data_format.py": "values of users: named tuples of any kind",
    "data/plain_data.py": "values of users: named tuples of any kind",
    "envs/base/batching.py": "environments of users",
    "envs/base/constructors.py": "environments of users",
    "envs/base/env_state.py": "environments of users",
    "envs/base/gymnasium_states.py": "environments of Gymnasium",
    "envs/base/old_gym.py": "environments of users",
    "envs/lookup/registry.py": "modules and objects of users, named by a string",
    "envs/lookup/source.py": "environments of users",
    "envs/metaworld/goal_sampler.py": "benchmarks of Meta-World",
    "envs/metaworld/rotations.py": "functions of Meta-World",
    "envs/metaworld/tasks.py": "tasks of Meta-World",
    "envs/mujoco/gymnasium_envs.py": "environments of Gymnasium",
    "envs/mujoco/gymnasium_rules.py": "environments of Gymnasium",
    "envs/slots/gym_slots.py": "environments of users",
    "envs/slots/vector_slots.py": "vector environments of Gymnasium",
    "learners/foreign.py": "algorithms of users",
    "own_code.py": "modules of users",
    "policies/adapters.py": "policies of users",
    "rollouts/garage/local_sampler.py": "agents and updates written for garage",
    "rollouts/garage/workers.py": "agents and updates written for garage",
    "rollouts/single/vector_env.py": "the attributes that Gymnasium's VectorEnv passes on",
    "tasks/domain_access.py": "environments of users",
    "tasks/env_copies.py": "environments of users",
    "tasks/finite_samplers.py": "environments of users and their constructors",
    "tasks/task_key.py": "tasks of users",
    "tasks/task_sampler.py": "environments of users",
    "tasks/updates.py": "environments of users and their constructors",
}
"""Modules that use objects of classes outside metaroll, with what these objects are."""

ALGORITHM = re.compile(
    r"(?:(?<![A-Za-z])|(?<=[a-z])(?=[A-Z]))(?i:(pearl|maml|promp(?!t)|ppo|epopt|distill|rl2|(?:hill_?)?climbing))"
)
ALGORITHM_MODULES = re.compile(
    r"contrib/\w+\.py|(learners|training/algorithms)/((maml|off_policy|on_policy)/\w+|(pearl|maml|ppo|epopt|distillation|rl2|evolution|off_policy)\w*)\.py"
)
ALGORITHM_LISTS = (
    "__init__.py",
    "plugins/__init__.py",
    "compat/",
    "configs/",
    "training/algorithms/registry.py",
    "training/session/demo.py",
    "lab/inferring/sim2real.py",
)
DOCUMENTED = re.compile(r"\bPEARLWorker\b|\bProMP's\b")
"""Names that contain that of an algorithm but mean something else: a worker of garage, and the library ProMP."""

DOORS = ("__init__.py", "compat/", "configs/__init__.py", "exports.py", "lab/cli/")
"""The doors of the package, which may import a module by a composed name."""

CONCRETE_PARENTS = {
    "DictIndexProxy": "documented: a step is a proxy of its sequence with more members",
    "DefaultWorker": "documented: garage's PEARLWorker is a DefaultWorker that also fills a context",
    "MLP": "a documented network; Q functions and encoders save their parameters under the same names",
    "RobotEnv": "users create it from their own robot files, and Gymnasium's robots extend it",
    "RealRolloutSamplerForSBI": "documented: the sampler of recordings extends that of real rollouts",
    "SampleProcessor": "documented: ProMP's other processors extend it",
    "DiceSampleProcessor": "as in ProMP, the DICE processor for many tasks extends it",
    "SimEnv": "documented: created from a model and a task, which the systems of the catalog fill in",
    "SimulatorSlots": "the documented SimSlots adds the domain parameters of simulated systems to it",
}
"""Concrete classes that other classes extend, with reasons. An entry that is not needed is a breach."""

UPWARDS = {"tasks/domain_access.py": "metaroll.envs.mujoco.model_params"}
"""Modules that name a higher one. Any environment may hold a MuJoCo model, which only that module reads.

The list must not become longer.
"""

ONE_WAY = {
    "reads a file format": (
        ("data/doors/",),
        r"(numpy\.(load|memmap|fromfile|loadtxt|genfromtxt)|numpy\.lib\.format\.(read_\w+|open_memmap))"
        r"|json\.(load|loads|JSONDecoder)|yaml\.\w*(load|Loader|parse|scan|compose)\w*|csv\.\w*[rR]eader|(zipfile|gzip|bz2|lzma|tarfile)\.\w+"
        r"|safetensors(\.\w+)?\.(load\w*|safe_open)|pyarrow\.(\w+\.)*(read_\w+|ParquetFile|ParquetDataset|dataset|open_\w+)"
        r"|pandas\.read_\w+|h5py\.\w+|torch\.load|pickle\.(load|Unpickler)|(shelve|marshal|dill|joblib)\.\w+",
    ),
    "opens a file": (
        ("data/doors/", "data/folders/", "processes/"),
        r"open|(os|io|codecs)\.(open|fdopen|open_code)|os\.(read|pread)|\.(read_text|read_bytes|write_text|write_bytes|open)"
        r"|mmap\.mmap|fileinput\.\w+",
    ),
    "removes or moves files": (
        ("data/folders/",),
        r"shutil\.(rmtree|move|copytree|copy\w*)|os\.(remove|unlink|rmdir|removedirs|rename|renames|replace|truncate|ftruncate)"
        r"|\.(unlink|rmdir|rmtree|rename)",
    ),
    "starts a process": (
        ("processes/",),
        r"subprocess(\.\w+)*|os\.(fork|forkpty|posix_spawn\w*|spawn\w*|exec\w*|system|popen)|pty\.\w+|multiprocessing(\.\w+)*"
        r"|concurrent\.futures\.(ProcessPoolExecutor|process(\.\w+)*)|(joblib|loky)(\.\w+)*",
    ),
}
"""Operation -> the folders where it is allowed, and a pattern of names; ``.name`` is a method of any object."""

_DESCRIPTOR = "a system descriptor, not a file of a user"
_OWN_TEXT = "a file of this package"
_GROWS = "a file that grows in a folder that is renamed when it is complete"
_KEY = "the user's key, created once and read without following links; plain bytes"
_ZIP = "writes a reproducible archive"
ELSEWHERE = {
    ("lab/cli/main.py", "os.open"): _DESCRIPTOR,
    ("lab/logs/robot_log.py", "os.open"): "a new log, in which each line is one write",
    ("data/posteriors/folder.py", "open"): _GROWS,
    ("data/recording_files.py", "zipfile.ZipFile"): _ZIP,
    ("data/recording_files.py", "zipfile.ZipInfo"): _ZIP,
    ("data/replay/streams.py", "numpy.memmap"): "memory in a new temporary file without a name",
    (
        "envs/metaworld/tasks.py",
        "pickle.Unpickler",
    ): "tasks of Meta-World; accepts only arrays and its environments",
    ("lab/real/stopping.py", "os.read"): _DESCRIPTOR,
    ("rollouts/workers/messages.py", "mmap.mmap"): "memory that a worker shares with its parent",
    ("rollouts/workers/ray_session.py", "open"): "Ray's own token of at most 1024 characters, read as Ray does",
    ("rollouts/workers/transports.py", "os.open"): _DESCRIPTOR,
    ("rollouts/workers/transports.py", "os.read"): _DESCRIPTOR,
    ("training/algorithms/registry.py", ".read_text"): _OWN_TEXT,
    ("lab/display/json_output.py", "os.open"): _DESCRIPTOR,
    ("lab/report/page_parts.py", ".read_text"): _OWN_TEXT,
    ("training/session/machine.py", ".read_text"): "small system files in /proc and /sys",
    ("training/store/files.py", "open"): "flushes a temporary file that safetensors has written",
    ("training/store/ownership.py", "os.open"): _KEY,
    ("training/store/ownership.py", "os.read"): _KEY,
    ("training/store/ownership.py", "os.unlink"): _KEY,
    ("training/store/row_files.py", "open"): _GROWS,
}
"""(module, name) of exceptions to ONE_WAY -> reason. An entry that is not needed is a breach."""


# ------------------------------------------------------------------------------------------------ graphs
def reachable(graph: dict[str, set[str]]) -> dict[str, set[str]]:
    """Node -> all nodes that are reachable from it in one or more steps."""
    closure = {node: set(others) for node, others in graph.items()}
    for middle in closure:
        for others in closure.values():
            if middle in others:
                others |= closure[middle]
    return closure


def cycles(graph: dict[str, set[str]]) -> list[list[str]]:
    """The groups of nodes that can be reached from one another."""
    closure = reachable(graph)
    groups = {
        tuple(sorted(other for other in closure[node] if node in closure[other]))
        for node in closure
        if node in closure[node]
    }
    return [list(group) for group in sorted(groups)]


# ------------------------------------------------------------------------------------------------ rules
def import_breaches(source: Source) -> Iterator[str]:
    """Missing modules, cycles of modules, folders that import each other, and folders that are too full."""
    package = min(source.modules, key=len)
    for module in source.modules.values():
        for node in module.of(ast.ImportFrom):
            name = None if node.level else node.module
            if name and name.partition(".")[0] == package and name not in source.modules:
                yield f"{module.path} imports {name}, which does not exist"
    for group in cycles(source.imports):
        yield f"import cycle: {', '.join(group)}"
    for folder, others in sorted(source.folder_imports.items()):
        for other in sorted(others):
            if folder < other and folder in source.folder_imports[other]:
                yield f"folders that import each other: {folder or 'the top'} and {other}"
    into = {(f, o) for f, others in source.folder_imports.items() for o in others if f"{o}/".startswith("lab/")}
    into = {(folder, other) for folder, other in into if folder and not f"{folder}/".startswith("lab/")}
    yield from (f"{folder} imports {other}, but nothing outside lab may" for folder, other in sorted(into))
    for folder, modules in sorted(source.folders.items()):
        if len(modules) > MODULES_PER_FOLDER:
            yield f"{folder or 'the top'} has {len(modules)} modules, at most {MODULES_PER_FOLDER}"


def string_import_breaches(source: Source) -> Iterator[str]:
    """Modules named in strings by a lower folder, and names of modules composed outside the doors."""
    above = reachable(source.folder_imports)
    needed: set[str] = set()
    for module in source.modules.values():
        if module.path.startswith(DOORS):
            continue
        for _, value in strings(module):
            name = value.partition(":")[0]
            target = source.modules.get(name) if "." in name else None
            if target and target.folder != module.folder and module.folder in above[target.folder]:
                if UPWARDS.get(module.path) == name:
                    needed.add(module.path)
                    continue
                yield f"{module.path} names {name} in a string, but that is in a higher folder"
        for node in module.of(ast.Call):
            if node.args and ast.unparse(node.func).endswith("import_module"):
                head = node.args[0].values[0] if isinstance(node.args[0], ast.JoinedStr) else None
                if isinstance(head, ast.Constant) and str(head.value).startswith("metaroll"):
                    yield f"{module.path} imports a module of metaroll by a composed name"
    yield from (f"{path} no longer names a higher module: remove it from UPWARDS" for path in UPWARDS.keys() - needed)


@dataclass
class Class:
    """A class of metaroll: where it is, the keys (module, name) of its bases, and whether it is abstract or exempt."""

    where: str
    bases: list[tuple[str, str]]
    is_abstract: bool
    is_exempt: bool


def classes_of(source: Source) -> dict[tuple[str, str], Class]:
    """(module, name) -> class, for all top-level classes."""
    classes = {}
    for module in source.modules.values():
        names: dict[str, tuple[str, str]] = {}
        for node in module.of(ast.ImportFrom):
            for alias, origin in zip(node.names, source.origins(node, module), strict=True):
                names[alias.asname or alias.name] = source.home(origin)
        definitions = [node for node in module.tree.body if isinstance(node, ast.ClassDef)]
        names |= {node.name: (module.name, node.name) for node in definitions}
        for node in definitions:
            bases = []
            for head in (ast.unparse(base).partition("[")[0] for base in node.bases):
                first, _, last = head.rpartition(".")
                bases.append((names.get(first, (first, ""))[0], last) if first else names.get(head, ("", head)))
            where = f"{module.path}: {node.name}"
            classes[module.name, node.name] = Class(where, bases, *_kind_of(node, {name for _, name in bases}))
    return classes


def _kind_of(node: ast.ClassDef, bases: set[str]) -> tuple[bool, bool]:
    """Whether a class is abstract, and whether it is exempt."""
    members = [member for member in node.body if isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef)]
    has_abstract = any("abstract" in ast.unparse(mark) for member in members for mark in member.decorator_list)
    is_mixin = not node.bases and all(member.name != "__init__" for member in members)
    is_exempt = "NamedTuple" in bases or any(name.endswith(("Error", "Exception", "Warning")) for name in bases)
    return bool(bases & {"ABC", "Protocol"}) or has_abstract or is_mixin, is_exempt


def class_breaches(source: Source) -> Iterator[str]:
    """Class hierarchies that are too deep, and concrete classes that are extended."""
    classes = classes_of(source)
    calls = (node.func for module in source.modules.values() for node in module.of(ast.Call))
    called = {call.id if isinstance(call, ast.Name) else getattr(call, "attr", "") for call in calls}
    needed: set[str] = set()

    def is_record(key: tuple[str, str]) -> bool:
        bases = classes[key].bases
        return key == CONFIG or (bool(bases) and all(base in classes and is_record(base) for base in bases))

    def depth(key: tuple[str, str]) -> int:
        if is_record(key):
            return 0
        return 1 + max((depth(base) for base in classes[key].bases if base in classes), default=0)

    for key, entry in classes.items():
        if key[0] == CONSTRUCTORS:
            continue
        if depth(key) > CLASS_DEPTH and not entry.is_exempt:
            yield f"{entry.where} is {depth(key)} classes deep, at most {CLASS_DEPTH}"
        for base in entry.bases:
            parent = classes.get(base)
            if parent is None or parent.is_exempt or is_record(base) or (parent.is_abstract and base[1] not in called):
                continue
            if base[1] in CONCRETE_PARENTS:
                needed.add(base[1])
            else:
                yield f"{entry.where} extends {base[1]}, which is concrete: a class must be abstract or final"
    for name in sorted(CONCRETE_PARENTS.keys() - needed):
        yield f"{name} is no longer a concrete parent: remove it from CONCRETE_PARENTS"


def probes(source: Source, *, everywhere: bool = False) -> list[str]:
    """Probes of literal names, outside adapters unless ``everywhere``."""
    return [
        f"{module.path}:{node.lineno} {ast.unparse(node)}"
        for module in source.modules.values()
        if everywhere or module.path not in ADAPTERS
        for node in module.of(ast.Call)
        if isinstance(node.func, ast.Name)
        and node.func.id in ("getattr", "hasattr")
        and len(node.args) > 1
        and isinstance(node.args[1], ast.Constant)
    ]


def algorithm_breaches(source: Source) -> Iterator[str]:
    """Algorithms that are named outside their own modules."""
    for module in source.modules.values():
        if module.path.startswith(ALGORITHM_LISTS) or ALGORITHM_MODULES.fullmatch(module.path):
            continue
        for line, text in sorted({*strings(module), *identifiers(module)}):
            if ALGORITHM.search(DOCUMENTED.sub("", text)):
                yield f"{module.path} names an algorithm (line {line}): {text[:60]!r}"


def one_way_breaches(source: Source) -> Iterator[str]:
    """Operations of ONE_WAY in other folders, and entries of ELSEWHERE that are no longer needed."""
    rules = {operation: (rooms, re.compile(names)) for operation, (rooms, names) in ONE_WAY.items()}
    needed: set[tuple[str, str]] = set()
    for module in source.modules.values():
        for line, name in resolved(module):
            for operation, (rooms, names) in rules.items():
                if module.path.startswith(rooms) or not names.fullmatch(name):
                    continue
                if (module.path, name) in ELSEWHERE:
                    needed.add((module.path, name))
                else:
                    yield f"{module.path} (line {line}) {operation} by {name}: only {', '.join(rooms)} may"
    for path, name in sorted(ELSEWHERE.keys() - needed):
        yield f"{path} does not use {name}: remove it from ELSEWHERE"


def breaches(source: Source) -> list[str]:
    """All breaches of the rules, in a fixed order."""
    messages = [
        *import_breaches(source),
        *string_import_breaches(source),
        *class_breaches(source),
        *algorithm_breaches(source),
        *one_way_breaches(source),
    ]
    counted = probes(source)
    if len(counted) >= PROBES:
        messages.append(
            f"{len(counted)} probes of literal names outside adapters, where fewer than {PROBES} are allowed; declare "
            "the member with a default in the contract:" + "".join(f"\n    {probe}" for probe in counted)
        )
    return messages


# ------------------------------------------------------------------------------------------------ figures
def used_once(module: Module) -> int:
    """Number of private functions and methods that are used only once."""
    uses = Counter(
        node.id if isinstance(node, ast.Name) else node.attr
        for node in module.nodes
        if isinstance(node, ast.Name | ast.Attribute)
    )
    names = [node.name for node in module.nodes if isinstance(node, ast.FunctionDef)]
    return sum(name.startswith("_") and not name.startswith("__") and uses[name] == 1 for name in names)


def figures(source: Source, package: Path) -> dict[str, int | str]:
    """Figures of the structure, by name."""
    modules = list(source.modules.values())
    raises = sum(isinstance(node, ast.Raise) for module in modules for node in module.nodes)
    return {
        "lines": sum(len(module.text.splitlines()) for module in modules),
        "lines of code (no docstring, comment, blank)": sum(len(code_lines(module)) for module in modules),
        "modules (without __init__)": sum(not module.is_init for module in modules),
        "modules in the fullest folder": max(map(len, source.folders.values())),
        "import cycles": len(cycles(source.imports)),
        "folders in a cycle": sum(map(len, cycles(source.folder_imports))),
        "probes of literal names": len(probes(source, everywhere=True)),
        "- outside adapters": len(probes(source)),
        "raise": raises,
        "private functions used once": sum(map(used_once, modules)),
        'files from rollout("Pendulum-v1") to its first step': _files_of_rollout(package, from_step=False),
        "files from that step to a replay buffer": _files_of_rollout(package, from_step=True),
    }


def _files_of_rollout(package: Path, from_step: bool) -> int | str:
    try:
        return walks.rollout_files(package, from_step)
    except RuntimeError:
        return "does not run here"


# ------------------------------------------------------------------------------------------------ picture
WIDTH, MARGIN, GAP = 1000, 20, 46
FOLDER_WIDTH, FOLDER_HEIGHT, FOLDERS_PER_LINE = 104, 34, 5
STYLE = """<style>
text { font-family: sans-serif; font-size: 12px; fill: #1f2937; }
.name { font-size: 15px; font-weight: bold; }
.small { font-size: 11px; fill: #4b5563; }
.room { fill: #eef2f7; stroke: #64748b; }
.folder { fill: #ffffff; stroke: #94a3b8; }
.arrow { stroke: #2563eb; stroke-width: 1.5; fill: none; marker-end: url(#head); }
</style>
<defs><marker id="head" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto">
<path d="M0,0 L8,4 L0,8 z" fill="#2563eb"/></marker></defs>"""
FOUNDATION = "checks, errors, seeding, types"
Place = tuple[float, float, float, float]
"""Left, top, width and height of a box."""


def rooms_of(source: Source) -> tuple[dict[str, dict[str, int]], dict[str, set[str]]]:
    """Room -> its folders with their numbers of modules ("" for the room itself), and room -> rooms that it imports."""
    rooms: dict[str, dict[str, int]] = {}
    below: dict[str, set[str]] = {}
    for folder, modules in sorted(source.folders.items()):
        room, _, inner = folder.partition("/")
        room = room or FOUNDATION
        rooms.setdefault(room, {})[inner] = sum(module.path != "__main__.py" for module in modules)
        others = {other.partition("/")[0] or FOUNDATION for other in source.folder_imports[folder]}
        below.setdefault(room, set()).update(others - {room})
    # These two export names of other rooms, which they import on first use.
    lazy = {"compat", "plugins"} & {module.folder for module in source.modules.values()}
    for room in lazy:
        rooms.setdefault(room, {"": 1})  # the tables of names are in `__init__.py`, which is not counted elsewhere
        below[room] = below.keys() - {"lab", "contrib", "compat", "plugins"}
    if "contrib" in below:
        below["contrib"] |= lazy & {"plugins"}
    return rooms, below


def rows_of(below: dict[str, set[str]]) -> list[list[str]]:
    """Rooms in rows, from top to bottom; each room is in the row above the highest room that it imports."""
    heights: dict[str, int] = {}
    while len(heights) < len(below):
        known = len(heights)
        for room, others in below.items():
            if room not in heights and others <= heights.keys():
                heights[room] = 1 + max((heights[other] for other in others), default=-1)
        if len(heights) == known:
            raise ValueError(f"rooms import one another: {', '.join(sorted(below.keys() - heights.keys()))}")
    return [sorted(room for room in below if heights[room] == row) for row in range(max(heights.values()), -1, -1)]


def places_of(rooms: dict[str, dict[str, int]], rows: list[list[str]]) -> dict[str, Place]:
    """Room -> left, top, width and height of its box."""
    places: dict[str, Place] = {}
    top = float(MARGIN)
    for row in rows:
        lines = {room: -(-sum(map(bool, rooms[room])) // FOLDERS_PER_LINE) for room in row}
        widest = {room: min(FOLDERS_PER_LINE, sum(map(bool, rooms[room]))) for room in row}
        widths = {room: max(150.0, 8.0 * len(room), widest[room] * (FOLDER_WIDTH + 8) + 16.0) for room in row}
        height = 44.0 + max(lines.values()) * (FOLDER_HEIGHT + 8)
        left = (WIDTH - sum(widths.values()) - 40.0 * (len(row) - 1)) / 2
        for room in row:
            places[room] = (left, top, widths[room], height)
            left += widths[room] + 40.0
        top += height + GAP
    return places


def picture(source: Source) -> str:
    """The rooms as an SVG. Each box is above all that it imports; arrows that follow from others are left out."""
    rooms, below = rooms_of(source)
    rows = rows_of(below)
    places, closure = places_of(rooms, rows), reachable(below)
    height = max(top + tall for _, top, _, tall in places.values()) + MARGIN
    parts = [
        "<!-- written by tools/architecture.py; do not edit -->",
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}">',
        STYLE,
        f'<rect width="{WIDTH}" height="{height:g}" fill="#ffffff"/>',
    ]
    for room, others in sorted(below.items()):
        direct = sorted(other for other in others if not any(other in closure[third] for third in others))
        parts += [_arrow(places[room], places[other], places.values()) for other in direct]
    for room, folders in rooms.items():
        parts += _room(room, folders, *places[room])
    return "\n".join([*parts, "</svg>", ""])


def _arrow(upper: Place, lower: Place, boxes: Iterable[Place]) -> str:
    """An arrow from the bottom of a box to the top of another, vertical if they overlap, and around boxes between."""
    left, right = max(upper[0], lower[0]), min(upper[0] + upper[2], lower[0] + lower[2])
    begin = end = (left + right) / 2
    if left >= right:
        begin, end = upper[0] + upper[2] / 2, lower[0] + lower[2] / 2
    top, bottom = upper[1] + upper[3], lower[1]
    between: dict[float, list[Place]] = {}
    for box in boxes:
        if top < box[1] < bottom:
            between.setdefault(box[1], []).append(box)
    points = [(begin, top)]
    for row_top, row in sorted(between.items()):
        row_bottom = row_top + max(box[3] for box in row)
        straight = begin + (end - begin) * ((row_top + row_bottom) / 2 - top) / (bottom - top)
        x = _free(straight, row)
        points += [(x, row_top - 6), (x, row_bottom + 6)]
    points.append((end, bottom))
    return f'<path class="arrow" d="M{" L".join(f"{x:g},{y:g}" for x, y in points)}"/>'


def _free(x: float, row: Iterable[Place]) -> float:
    """The nearest horizontal position that is at least 12 away from every box of a row."""
    edges = [(left - 12, left + width + 12) for left, _, width, _ in row]
    open_to = [x, *(edge for pair in edges for edge in pair)]
    return min((p for p in open_to if not any(a < p < b for a, b in edges)), key=lambda p: abs(p - x))


def _room(room: str, folders: dict[str, int], left: float, top: float, width: float, height: float) -> list[str]:
    """A box with its name, its number of modules, and the boxes of its folders."""
    count = sum(folders.values())
    parts = [
        f'<rect class="room" x="{left:g}" y="{top:g}" width="{width:g}" height="{height:g}" rx="6"/>',
        f'<text class="name" x="{left + 12:g}" y="{top + 20:g}">{escape(room)}</text>',
        f'<text class="small" x="{left + 12:g}" y="{top + 36:g}">{count} module{"s" * (count != 1)}</text>',
    ]
    for i, (name, size) in enumerate((name, size) for name, size in folders.items() if name):
        x = left + 12 + i % FOLDERS_PER_LINE * (FOLDER_WIDTH + 8)
        y = top + 44 + i // FOLDERS_PER_LINE * (FOLDER_HEIGHT + 8)
        parts += [
            f'<rect class="folder" x="{x:g}" y="{y:g}" width="{FOLDER_WIDTH}" height="{FOLDER_HEIGHT}" rx="4"/>',
            f'<text x="{x + 8:g}" y="{y + 15:g}">{escape(name)}</text>',
            f'<text class="small" x="{x + 8:g}" y="{y + 29:g}">{size} modules</text>',
        ]
    return parts


def main(arguments: Iterable[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="name each breach; exit status 1 if there is one")
    parser.add_argument("--svg", type=Path, help="write the picture of the rooms to this file")
    parser.add_argument("--source", type=Path, default=SOURCE, help="folder of the package or of a checkout")
    parser.add_argument("--counts", action="store_true", help="print each count, its meaning and its places")
    parser.add_argument("--json", action="store_true", help="print the counts as one JSON object")
    parser.add_argument("--record", metavar="COMMIT", help="store the counts in counts.json under this commit")
    parser.add_argument("--lower", action="store_true", help="lower the ceilings in counts.json to the current figures")
    parser.add_argument("--page", action="store_true", help="write docs/counts.md")
    args = parser.parse_args(None if arguments is None else list(arguments))
    package = args.source.resolve()
    package = package / "src" / "metaroll" if (package / "src" / "metaroll").is_dir() else package
    if not (package / "__init__.py").is_file():
        parser.error(f"--source must be the folder of a package or a checkout with src/metaroll, got {args.source}")
    with gc_paused():
        return _run(package, args)


@contextlib.contextmanager
def gc_paused() -> Iterator[None]:
    """Millions of nodes of trees stay until the end: looking for cycles among them is a third of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _run(package: Path, args: argparse.Namespace) -> int:
    source = Source.read(package)
    if args.svg:
        args.svg.write_text(picture(source), encoding="utf-8")
    if args.check:
        messages = breaches(source)
        if package == SOURCE:
            messages += _committed_breaches(source)
        print("\n".join(messages))
        return 1 if messages else 0
    if not args.svg:
        _count(source, package, args)
    return 0


def _committed_breaches(source: Source) -> list[str]:
    """Generated files that are out of date, and ideas above their ceilings."""
    record = counts.Record.load()
    messages = [*counts.ratchet(record, counts.where(source, probes(source))), *counts.core_breaches(source)]
    if not PICTURE.exists() or PICTURE.read_text(encoding="utf-8") != picture(source):
        messages.append(f"{PICTURE.name} is out of date: python tools/architecture.py --svg docs/{PICTURE.name}")
    if not counts.PAGE.exists() or counts.PAGE.read_text(encoding="utf-8") != counts.page(record):
        messages.append(f"{counts.PAGE.name} is out of date: python tools/architecture.py --page")
    return messages


def _count(source: Source, package: Path, args: argparse.Namespace) -> None:
    """Print, store or write the counts, depending on the options."""
    record, known = counts.Record.load(), probes(source)
    if args.lower or args.page:
        if args.lower:
            record = counts.lowered(record, counts.where(source, known))
            record.save()
        counts.PAGE.write_text(counts.page(record), encoding="utf-8")
        return
    current = counts.measured(source, known, package)
    if args.record:
        record.commits[args.record] = current
        record.save()
        counts.PAGE.write_text(counts.page(record), encoding="utf-8")
    elif args.json:
        print(json.dumps(current, ensure_ascii=False))
    elif args.counts:
        cases = counts.where(source, known)
        for name, count in counts.COUNTS.items():
            print(f"{name}: {count.text(current[name]) or 'unknown'}\n  {count.meaning}")
            print("".join(f"    {case}\n" for case in cases.get(name, ())), end="")
    else:
        for name, value in figures(source, package).items():
            print(f"{name:55} {value if isinstance(value, str) else format(value, '8,')}")
        print(f"\n{counts.table(record, current)}")


if __name__ == "__main__":
    sys.exit(main())
