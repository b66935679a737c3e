"""tools/architecture.py reports planted breaches of its rules, and none in the source."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def tool() -> Iterator[ModuleType]:
    sys.path.insert(0, str(ROOT / "tools"))  # as for a script, whose folder is in the path
    spec = importlib.util.spec_from_file_location("architecture", ROOT / "tools" / "architecture.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["architecture"] = module  # its dataclasses look themselves up there
    spec.loader.exec_module(module)
    yield module
    sys.path.remove(str(ROOT / "tools"))


def package_of(tmp_path: Path, files: dict[str, str]) -> Path:
    """A package of these files, by their paths below it."""
    package = tmp_path / "metaroll"
    for path, text in {"__init__.py": "", **files}.items():
        target = package / path
        target.parent.mkdir(parents=True, exist_ok=True)
        (target.parent / "__init__.py").touch()
        target.write_text(text, encoding="utf-8")
    return package


PLANTED = {
    "import cycle": (
        {
            "data/a.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from metaroll.data.b import B",
            "data/b.py": "def f():\n    from metaroll.data import a",
        },
        "import cycle: metaroll.data.a, metaroll.data.b",
    ),
    "folders that import each other": (
        {
            "data/a.py": "import metaroll.tasks.a",
            "tasks/a.py": "",
            "tasks/b.py": "from metaroll.data.b import x",
            "data/b.py": "",
        },
        "folders that import each other: data and tasks",
    ),
    "a folder that is too full": ({f"data/m{i}.py": "" for i in range(21)}, "data has 21 modules"),
    "a missing module": (
        {"data/a.py": "from metaroll.data.gone import x"},
        "metaroll.data.gone, which does not exist",
    ),
    "an import upwards by a string": (
        {"data/a.py": "HOME = 'metaroll.tasks.a'", "tasks/a.py": "import metaroll.data.a"},
        "data/a.py names metaroll.tasks.a in a string",
    ),
    "a composed name": (
        {"data/a.py": "import importlib\ndef f(x):\n    return importlib.import_module(f'metaroll.{x}')"},
        "data/a.py imports a module of metaroll by a composed name",
    ),
    "a chain of classes": (
        {
            "data/a.py": "from abc import ABC\nclass A(ABC): pass\nclass B(A, ABC): pass\nclass C(B, ABC): pass",
            "data/b.py": "from metaroll.data.a import C as Parent\nclass D(Parent): pass",
        },
        "data/b.py: D is 4 classes deep",
    ),
    "a concrete parent": (
        {"data/a.py": "class A:\n    def __init__(self): pass\nclass B(A): pass"},
        "data/a.py: B extends A, which is concrete",
    ),
    "an abstract parent that is instantiated": (
        {"data/a.py": "from abc import ABC\nclass A(ABC): pass\nclass B(A): pass\na = A()"},
        "data/a.py: B extends A, which is concrete",
    ),
    "an algorithm's name": (
        {"data/a.py": "def f(name):\n    return name == 'pearl'"},
        "data/a.py names an algorithm (line 2): 'pearl'",
    ),
    "an algorithm's name in a class": ({"data/a.py": "class PPOBuffer: pass"}, "data/a.py names an algorithm"),
    "a second reader": (
        {"data/a.py": "import numpy as n\nx = n.load('a')"},
        "data/a.py (line 2) reads a file format by numpy.load: only data/doors/ may",
    ),
    "a second reader under an alias": (
        {"data/a.py": "from json import loads as read\n"},
        "data/a.py (line 1) reads a file format by json.loads",
    ),
    "a reader that is assigned": (
        {"data/a.py": "import yaml\nread = yaml.safe_load\n"},
        "data/a.py (line 2) reads a file format by yaml.safe_load",
    ),
    "a file that is opened": ({"data/a.py": "with open('a') as f: pass"}, "data/a.py (line 1) opens a file by open"),
    "a path that is opened": (
        {"data/a.py": "def f(path):\n    return path.open('rb').read(), path.read_text()"},
        "data/a.py (line 2) opens a file by .read_text",
    ),
    "a folder that is removed": (
        {"data/a.py": "import shutil\ndef f(p):\n    shutil.rmtree(p)"},
        "data/a.py (line 3) removes or moves files by shutil.rmtree: only data/folders/ may",
    ),
    "a second way to start processes": (
        {"data/a.py": "from concurrent.futures import ProcessPoolExecutor as Pool"},
        "data/a.py (line 1) starts a process by concurrent.futures.ProcessPoolExecutor: only processes/ may",
    ),
    "a fork": ({"data/a.py": "import os\nos.fork()"}, "data/a.py (line 2) starts a process by os.fork"),
    "an exception that is not needed": (
        {"data/a.py": ""},
        "lab/cli/main.py does not use os.open: remove it from ELSEWHERE",
    ),
    "probes": ({"data/a.py": "x = getattr(1, 'real', 0)\n" * 60}, "60 probes of literal names"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_planted_breaches_are_reported(
    name: str, tool: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    files, expected = PLANTED[name]

    assert tool.main(["--check", "--source", str(package_of(tmp_path, files))]) == 1
    assert expected in capsys.readouterr().out


def test_allowed_code_is_not_reported(tool: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    base = '"""Such as PEARL."""\nclass Mixin:\n    """Of PPO."""\nclass A(Mixin): pass  # PPO'
    package = package_of(tmp_path, {"learners/pearl.py": "class PEARL: pass", "learners/base.py": base})

    tool.main(["--check", "--source", str(package)])

    assert "learners/" not in capsys.readouterr().out


def test_the_source_keeps_the_rules_and_the_picture_is_up_to_date(
    tool: ModuleType, capsys: pytest.CaptureFixture
) -> None:
    assert tool.main(["--check"]) == 0, capsys.readouterr().out


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/architecture.md"])
def test_files_named_in_pages_about_the_code_exist(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    named = {path.rstrip("/") for path in re.findall(r"`(\w[\w/.]*(?:/|\.py|\.svg|\.yaml|\.json))[` ]", text)}
    rooms = ("src", "tests", "tools", "benchmarks")
    files = [path.relative_to(ROOT).as_posix() for room in rooms for path in (ROOT / room).rglob("*")]
    missing = {name for name in named if not any(f"/{path}".endswith(f"/{name}") for path in files)}
    assert len(named) > 5 and not missing


def test_every_folder_in_the_picture_has_its_place_in_the_text() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(\w+)/` \| (.*) \|$", page, re.MULTILINE))
    folders = [path.parent.relative_to(ROOT / "src" / "metaroll") for path in (ROOT / "src").rglob("*/__init__.py")]
    rooms = {folder.parts[:2] for folder in folders if folder.parts}
    assert {room[0] for room in rooms} == set(rows)
    assert [room for room in rooms if f"`{room[-1]}/`" not in rows[room[0]] and len(room) == 2] == []


# ------------------------------------------------------------------------------------------------ counts
ADAM = """
def step(p, g, m, v, t, lr, b1, b2):
    m = b1 * m + (1 - b1) * g
    v = b2 * v + (1 - b2) * g * g
    return p - lr * (m / (1 - b1**t)) / ((v / (1 - b2**t)) ** 0.5 + 1e-8), m, v
"""
IDEAS = {
    "a forward pass in a loop": (
        "perceptrons",
        {"a.py": "def f(x, ws):\n    for w, b in ws:\n        x = x @ w + b\n        x = np.tanh(x)\n    return x"},
        1,
    ),
    "an unrolled one, in place": (
        "perceptrons",
        {
            "a.py": "def f(x, w, v):\n    x = np.matmul(x, w)\n    np.maximum(x, 0, out=x)\n    x = relu(x)\n"
            "    return x @ v"
        },
        1,
    ),
    "a backward pass alone": (
        "perceptrons",
        {"a.py": "def f(d, hs, ws):\n    for h, w in zip(hs, ws):\n        d = np.matmul(d, w)\n        d *= h > 0\n"},
        1,
    ),
    "one of layers that are modules": (
        "perceptrons",
        {
            "a.py": "def f(self, x):\n    act = ACTIVATIONS[self.a]\n    for layer in self.layers:\n"
            "        x = act(layer(x))"
        },
        1,
    ),
    "one with helpers of other modules": (
        "perceptrons",
        {
            "b.py": "def product(x, w):\n    return x @ w",
            "a.py": "from metaroll.b import product as times\n\ndef f(x, w, activation):\n"
            "    for v in w:\n        x = activation(times(x, v)) if v is not w[-1] else times(x, v)\n    return x",
        },
        1,
    ),
    "forward and backward in one module count once": (
        "perceptrons",
        {
            "a.py": "def f(x, w, v):\n    return tanh(x @ w) @ v\n\ndef g(d, w, v, slope):\n"
            "    return ((d @ v) * slope) @ w"
        },
        1,
    ),
    "ones whose activation is a lower bound": (
        "perceptrons",
        {
            "a.py": "def f(x, w, v):\n    return np.maximum(x @ w, 0) @ v",
            "b.py": "def f(x, w, v):\n    return torch.mm(torch.mm(x, w).clamp(min=0), v)",
            "c.py": "def f(x, w, v):\n    h = np.matmul(x, w)\n    np.maximum(h, 0.0, out=h)\n    return h @ v",
            "d.py": "def f(x, ws):\n    for w in ws:\n        x = torch.mm(x, w)\n        x.clamp_(0)\n    return x",
            "e.py": "def f(x, w, v):\n    h = x @ w\n    return np.where(h > 0, h, 0.01 * h) @ v",
            "f.py": "def f(x, w, v):\n    h = x @ w\n    h[h < 0] = 0\n    return h @ v",
            "g.py": "def f(x, w, v):\n    h = x @ w\n    on = h > 0\n    return (h * on) @ v",
            "h.py": "def f(x, w, v):\n    h = x @ w\n    return torch.maximum(h, torch.zeros_like(h)) @ v",
            "i.py": "def f(x, w, v):\n    h = x @ w\n    return np.maximum(h, 0.1 * h) @ v",
            "j.py": "def f(x, w, v):\n    h = x @ w\n    return (h * (h > 0).astype(float)) @ v",
            "k.py": "def f(x, w, v):\n    return np.clip(x @ w, 0, None) @ v",
        },
        11,
    ),
    "ones with a function for each layer": (
        "perceptrons",
        {
            "a.py": "def first(x, w):\n    return np.maximum(x @ w, 0)\n\ndef last(x, w):\n    return x @ w\n\n"
            "def f(x, w, v):\n    return last(first(x, w), v)",
            "b.py": "class Net:\n    def first(self, x):\n        return self.times(x).clamp(min=0)\n"
            "    def times(self, x):\n        return x @ self.w\n    def last(self, x):\n        return x @ self.v\n"
            "    def f(self, x):\n        h = self.first(x)\n        return self.last(h)",
            "c.py": "def floor(x):\n    return np.maximum(x, 0)",
            "d.py": "from metaroll.c import floor as bent\n\ndef f(x, w, v):\n    return bent(x @ w) @ v",
            "e.py": "from metaroll.a import first as layer_a, last\n\ndef f(x, w, v):\n    h = layer_a(x, w)\n"
            "    return last(h, v)",
            "g.py": "def first(x, w):\n    h = np.tanh(x @ w)\n    return h, 1 - h * h\n\n"
            "def f(x, w, v):\n    h, kept = first(x, w)\n    return h @ v, kept",
        },
        5,
    ),
    "no perceptron: bounds against 0, clipped actions, callers of a perceptron": (
        "perceptrons",
        {
            "a.py": "def f(x, k, b):\n    u = np.clip(k @ x, -1, 1)\n    return b @ u",
            "b.py": "def f(x, w, v):\n    return np.maximum(x @ w, 1e-8) @ v",
            "c.py": "def f(values, axes):\n    return (axes * np.maximum(values, 0)) @ axes.T",
            "d.py": "def f(x, w):\n    return np.maximum(x @ w, 0)",
            "e.py": "def net(x, w, v):\n    return np.tanh(np.tanh(x @ w) @ v)",
            "g.py": "from metaroll.e import net\n\ndef f(x, w, v, u):\n    return net(x, w, v) @ u",
        },
        1,
    ),
    "no perceptron: powers of a matrix, one layer, a list of torch's, a cell with gates": (
        "perceptrons",
        {
            "a.py": "def f(x, w):\n    for _ in range(9):\n        x = x @ w\n    return x",
            "b.py": "def f(x, w):\n    return np.tanh(x @ w)",
            "c.py": "net = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1))",
            "d.py": "def f(xs, h, w, u):\n    for x in xs:\n        z = sigmoid(x @ w + h @ u)\n"
            "        n = tanh(x @ w + h @ u)\n        h = (1 - z) * n + z * h\n    return h",
        },
        0,
    ),
    "Adam by hand": ("Adams", {"a.py": ADAM}, 1),
    "Adams with decay rates that are numbers": (
        "Adams",
        {
            "a.py": "def f(p, g, m, v):\n    m = 0.9*m + 0.1*g\n    v = 0.999*v + 0.001*g*g\n"
            "    return p - m / (np.sqrt(v) + 1e-8)",
            "b.py": "KEEP, TAKE = 0.9, 0.1\nLONG = 0.999\n\ndef f(p, g, m, v):\n    m2 = KEEP * m + TAKE * g\n"
            "    v2 = LONG * v + (1 - LONG) * g**2\n    return p - m2 * v2 ** -0.5",
            "c.py": "def f(p, g, m, v, a, b, c, d):\n    m = a * m + b * g\n    v = c * v + d * np.power(g, 2)\n"
            "    return p - m / v ** (1 / 2)",
            "d.py": "def f(self, g):\n    self.m += 0.1 * (g - self.m)\n    self.v += 0.001 * (g * g - self.v)\n"
            "    return self.m / self.v.pow(0.5)",
        },
        4,
    ),
    "Adams in place": (
        "Adams",
        {
            "a.py": "def f(p, g, m, v):\n    m.lerp_(g, 0.1)\n    v.mul_(0.999).addcmul_(g, g, value=0.001)\n"
            "    p.addcdiv_(m, v.sqrt().add_(1e-8), value=-0.1)",
            "b.py": "def f(p, g, m, v):\n    torch._foreach_lerp_(m, g, 0.1)\n    torch._foreach_mul_(v, 0.999)\n"
            "    torch._foreach_addcmul_(v, g, g, 0.001)\n    torch._foreach_addcdiv_(p, m, torch._foreach_sqrt(v))",
            "c.py": "def f(p, g, m, v):\n    m *= 0.9\n    m += 0.1 * g\n    v *= 0.999\n    v += 0.001 * g * g\n"
            "    p -= m / np.sqrt(v)",
            "d.py": "def f(p, g, m, v):\n    np.multiply(m, 0.9, out=m)\n    np.add(m, 0.1 * g, out=m)\n"
            "    v = torch.lerp(v, g.square(), 0.001)\n    return p - m * torch.rsqrt(v)",
        },
        4,
    ),
    "Adam of torch, below its optimizers": ("Adams", {"a.py": "import torch\ndef f(p):\n    torch._fused_adam_(p)"}, 1),
    "Adam of torch, by two modules": (
        "Adams",
        {"a.py": "import torch\no = torch.optim.Adam", "b.py": "from torch.optim import AdamW as Steps"},
        1,
    ),
    "no Adam: one moment, evolution paths without a square": (
        "Adams",
        {
            "a.py": "def f(g, v, b):\n    v = b * v + (1 - b) * g * g\n    return g / (v**0.5 + 1e-8), v",
            "c.py": "def f(g, v):\n    v.mul_(0.999).addcmul_(g, g, value=0.001)\n    return g / v.sqrt()",
            "d.py": "def f(x, y, z):\n    return (0.5 * x + 0.5 * y) / np.sqrt(z * z + 3.0 * x + 2.0 * y)",
            "e.py": "def f(target, source):\n    for t, s in zip(target, source):\n        t.lerp_(s, 0.005)",
            "b.py": "def f(p, q, y, c, d):\n    return (1 - c) * p + (c * (2 - c)) ** 0.5 * y, (1 - d) * q + d * y",
        },
        0,
    ),
    "loops over epochs": (
        "epoch loops",
        {
            "learners/a.py": "def train(runner):\n    for epoch in runner.step_epochs():\n"
            "        for epoch_step in range(9):\n            runner.obtain_samples(epoch)",
            "inference/b.py": "def fit(self, n):\n    for iteration in range(n):\n        self.collect()",
        },
        2,
    ),
    "loops over epochs, written otherwise": (
        "epoch loops",
        {
            "a.py": "def f(self, n):\n    epoch = 0\n    while epoch < n:\n        self.collect()\n        epoch += 1",
            "b.py": "def f(self):\n    while True:\n        self.iteration += 1\n        self.obtain_samples()",
            "c.py": "def f(self, n):\n    return [self.train_once(epoch) for epoch in range(n)]",
            "d.py": "def f(self, runner):\n    epochs = runner.step_epochs()\n    for number in epochs:\n"
            "        self.learn(number)",
            "e.py": "def f(self, runner):\n    return [self.learn(number) for number in runner.step_epochs()]",
        },
        5,
    ),
    "no loop over epochs: passes over data, columns by epoch": (
        "epoch loops",
        {
            "learners/a.py": "def f(data):\n    for epoch in range(9):\n        step(data)\n    for x in data:\n"
            "        collect(x)",
            "b.py": "def f(self):\n    epoch = None\n    while epoch is None:\n        epoch = self.restore()",
            "c.py": "def step_epochs(self):\n    while self.epoch < self.n_epochs:\n        yield self.epoch\n"
            "        self.epoch += 1",
        },
        0,
    ),
    "replay memories": (
        "replay memories",
        {
            "a.py": "class Ring:\n    def __init__(self, capacity): pass\n    def add_path(self, p): pass\n"
            "    def sample_transitions(self, n): pass",
            "b.py": "class Steps:\n    max_size: int\n    def push(self, p): pass\n    def draw(self, n): pass",
        },
        2,
    ),
    "no replay memory: no capacity, no draws, or only made of memories": (
        "replay memories",
        {
            "a.py": "class Sampler:\n    def __init__(self, tasks): pass\n    def add(self, t): pass\n"
            "    def sample(self): pass",
            "b.py": "class Log:\n    def __init__(self, capacity): pass\n    def add(self, x): pass",
            "c.py": "class Ring:\n    def __init__(self, capacity): pass\n    def add(self, p): pass\n"
            "    def sample(self): pass\n"
            "class Many:\n    def __init__(self, capacity):\n        self.rings = [Ring(capacity)]\n"
            "    def add(self, p): pass\n    def sample(self): pass",
        },
        1,
    ),
    "descriptions, and what extends them": (
        "description classes",
        {
            "a.py": "class Algorithm:\n    name: str\n    def build(self): pass\nclass Builder:\n"
            "    def build(self): pass",
            "b.py": "from metaroll.a import Algorithm\nclass A(Algorithm): pass\nclass B(A): pass",
        },
        3,
    ),
    "options beside descriptions": (
        "setups",
        {
            "algorithms/a.py": "class Algorithm:\n    name: str\n    def build(self): pass\n@dataclass\n"
            "class More:\n    a: int = 1"
            "\n@dataclass\nclass Given:\n    a: int",
            "b.py": "class LateSetup: pass\n@dataclass\nclass Elsewhere:\n    a: int = 1",
        },
        2,
    ),
    "is it overridden?": (
        '"is it overridden?" tests',
        {
            "a.py": "a = type(x).draw is not Base.draw\nb = cls.act == Policy.act\nc = 'act' in vars(type(x))\n"
            "d = 'act' not in cls.__dict__"
        },
        4,
    ),
    "is it overridden? by functions, tuples and getattr": (
        '"is it overridden?" tests',
        {
            "a.py": "a = type(x).draw.__func__ is not Base.draw\nb = x.draw.__func__ is not Base.draw.__func__\n"
            "c = type(x).act not in (Base.act, Other.act)\nd = getattr(type(x), 'act') is not Base.act\n"
            "e = type(x).rows.fget is not Base.rows.fget\nf = 'act' in type(x).__dict__.keys()\n"
            "g = 'act' in vars(x.__class__)\nh = Base.draw is not x.draw.__func__"
        },
        8,
    ),
    "no test of an override": (
        '"is it overridden?" tests',
        {
            "a.py": "a = x.kind is Kind.new\nb = x.rows is not y.rows\nc = type(x).__eq__ is object.__eq__\n"
            "d = 'act' in vars(x)\ne = x.kind in (Kind.new, Kind.old)\nf = x.draw.__func__ is not y.draw.__func__\n"
            "g = getattr(x, name) is not Base.act"
        },
        0,
    ),
    "readers outside their folder, each once per module": (
        "readers, pools and rmtree outside their folders",
        {
            "a.py": "import json\nx, y = json.loads(a), json.loads(b)",
            "b.py": "from shutil import rmtree as clear\nfrom concurrent.futures import ProcessPoolExecutor",
        },
        3,
    ),
    "no reader outside its folder: one inside it, and writers": (
        "readers, pools and rmtree outside their folders",
        {
            "data/doors/a.py": "import yaml\nyaml.safe_load(x)",
            "a.py": "import json, numpy as np\njson.dumps(x)\nnp.memmap(y)",
            "processes/a.py": "from concurrent.futures import ProcessPoolExecutor",
        },
        0,
    ),
    "constructors with many arguments": (
        "constructors with 15 or more arguments",
        {
            "a.py": f"class A:\n    def __init__(self, {', '.join(f'a{i}' for i in range(10))}, *, "
            f"{', '.join(f'b{i}=0' for i in range(5))}): pass",
            "b.py": f"class B:\n    def __init__(self, {', '.join(f'a{i}' for i in range(14))}, *rest, **more): pass",
            "compat/c.py": f"class C:\n    def __init__(self, {', '.join(f'a{i}' for i in range(20))}): pass",
        },
        1,
    ),
    "what a reader opens": (
        "files to read for SAC",
        {
            "learners/soft.py": "def f():\n    from metaroll.learners.base import Base\n"
            "import metaroll.functional.a\nclass SAC: pass",
            "learners/base.py": "from metaroll.learners import runner\nclass Base: pass",
            "learners/runner.py": "",
            "learners/other.py": "import metaroll.learners.soft",
            "functional/a.py": "",
        },
        3,
    ),
}


@pytest.mark.parametrize("name", IDEAS)
def test_ideas_are_counted_and_lookalikes_are_not(name: str, tool: ModuleType, tmp_path: Path) -> None:
    idea, files, expected = IDEAS[name]

    cases = tool.counts.where(tool.Source.read(package_of(tmp_path, files)), [])[idea]

    assert len(cases) == expected, cases


def test_figures_of_a_small_package(tool: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    package = package_of(
        tmp_path,
        {
            "__init__.py": '_MODULES = {"a": ["f", "g"], "b": ["h"]}',
            "a.py": '"""Text."""\n\n# A line.\ndef f(x):  # beside code\n    """Text.\n\n    Args:\n'
            "        x: The number.\n"
            '    """\n    if x < 0:\n        raise ValueError(x)\n    return g(x=x, y=1)\n\n\ndef g(x, y):\n'
            '    """Text.\n\n'
            '    Args:\n        x: The number.\n        y: Another.\n    """\n    return x + y\n\n\n'
            "def left():\n    return 1\n",
            "lab/cli/b.py": "class A:\n    class B: pass\n",
            "compat/seed.py": 'TABLE = {"a": ["f"]}\n',
        },
    )
    assert tool.main(["--json", "--source", str(package)]) == 0
    figures = json.loads(capsys.readouterr().out)

    expected = {
        "files": 6,  # three of them __init__
        "classes": 2,
        "names in metaroll.__all__": 3,
        "code lines": 12,
        "code tokens": 17 + (6 + 5 + 5 + 11) + (8 + 4) + (5 + 2) + 7 + 9,
        "x=x keywords": 1,
        "identical entries of Args": 2,
        "checks and raises, % of code lines": round(100 * 2 / 12, 1),
        "raises per 1,000 code lines": round(1000 / 12, 1),
        "comments, % of code lines": round(100 / 12, 1),
        "lines that no documented name reaches": 2 + 1 + 2 + 1,  # left, the table of names, lab/cli/b.py, TABLE
        "files to read for SAC": None,
        "files to the first step": None,  # it does not run
    }
    assert {name: figures[name] for name in expected} == expected
    assert figures["code tokens"] - figures["code tokens of the core"] == 7 + 9  # those of cli and compat


def test_ceilings_of_ideas_are_only_lowered(tool: ModuleType, tmp_path: Path) -> None:
    counts = tool.counts
    cases = {name: [f"{name} {i}" for i in range(3)] for name, count in counts.COUNTS.items() if count.is_idea}
    record = counts.lowered(counts.Record({}, {}), cases)
    assert set(record.ceilings.values()) == {3} and not list(counts.ratchet(record, cases))

    more = list(counts.ratchet(record, {**cases, "Adams": [*cases["Adams"], "a.py: step"]}))
    assert len(more) == 1 and more[0].startswith("Adams: 4, at most 3") and "a.py: step" in more[0]

    fewer = {**cases, "setups": cases["setups"][:1]}
    assert list(counts.ratchet(record, fewer)) == [
        "setups: 1, and the ceiling is still 3: python tools/architecture.py --lower"
    ]
    lower = counts.lowered(record, fewer)
    assert lower.ceilings["setups"] == 1 and lower.ceilings["Adams"] == 3
    assert counts.lowered(lower, cases).ceilings["setups"] == 1

    lost = list(counts.ratchet(record, {**cases, "files to read for PPO": []}))
    assert len(lost) == 1 and "READ" in lost[0]

    lower.save(tmp_path / "counts.json")
    assert counts.Record.load(tmp_path / "counts.json") == lower


def test_stale_page_of_counts_and_stale_entries_are_reported(
    tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tool.Source.read(package_of(tmp_path, {"lab/cli/a.py": ""}))
    written = tool.counts.PAGE.read_text(encoding="utf-8")
    (tmp_path / "counts.md").write_text(written.replace("| perceptrons | 7 |", "| perceptrons | 6 |"), encoding="utf-8")
    monkeypatch.setattr(tool.counts, "PAGE", tmp_path / "counts.md")

    stale = tool._committed_breaches(source)

    assert "counts.md is out of date: python tools/architecture.py --page" in stale
    assert "functional/gradients/quantiles.py no longer exists: remove it from OUTSIDE_CORE" in stale
    assert not any(line.startswith("lab/ no longer exists") for line in stale)


def test_the_record_has_a_figure_for_every_count(tool: ModuleType) -> None:
    record = tool.counts.Record.load()
    assert {tool.counts.REVIEWED, tool.counts.BEFORE} <= record.commits.keys()
    for figures in record.commits.values():
        assert figures.keys() == tool.counts.COUNTS.keys() and None not in figures.values()


def test_walks_record_the_functions_that_are_called(tool: ModuleType) -> None:
    package = ROOT / "src" / "metaroll"
    learn, step = tool.walks.learn_walk(package), tool.walks.step_walk(package)

    assert ("training/session/agent.py", "agent") in learn.entries[:10]  # after its keywords were understood
    assert ("rollouts/engine/slot_loop.py", "advance") in learn.entries
    assert not {"step", "<lambda>", "<genexpr>"} & {name for _, name in learn.entries}
    assert 20 < learn.files <= learn.functions <= learn.calls and learn.files <= learn.moves < learn.calls

    assert {path.partition("/")[0] for path, _ in step.entries} >= {"learners", "functional", "data"}
    assert not any(path.startswith(("envs/", "rollouts/", "training/")) for path, _ in step.entries)
    assert 5 < step.files < learn.files and step.calls < learn.calls
