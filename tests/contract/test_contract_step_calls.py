"""Rules that the syntax trees of src must keep (design.md 3 and 4): who steps, who draws, who unpickles.

Each rule is first shown to catch planted code, and to leave what is right alone.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

PACKAGE = Path(__file__).parents[2] / "src" / "metaroll"
MODULES = sorted(PACKAGE.rglob("*.py"))
Node = TypeVar("Node", bound=ast.AST)
Rule = Callable[[ast.Module, str], Iterator[str]]


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


# ------------------------------------------------------------------------------------------------- reading the trees
@functools.lru_cache(maxsize=1)
def _by_class(tree: ast.Module) -> dict[type, list[Any]]:
    """All nodes of the tree, collected once for all rules."""
    found: dict[type, list[Any]] = {}
    for node in ast.walk(tree):
        found.setdefault(type(node), []).append(node)
    return found


def nodes_of(tree: ast.Module, kind: type[Node]) -> list[Node]:
    """The nodes of a class, which has no subclasses."""
    return _by_class(tree).get(kind, [])


def aliases_of(tree: ast.Module) -> dict[str, str]:
    """Local name -> dotted name that it stands for, from all imports of the module."""
    found = {}
    for node in nodes_of(tree, ast.Import):
        for alias in node.names:
            found[alias.asname or alias.name.split(".")[0]] = alias.name if alias.asname else alias.name.split(".")[0]
    for node in nodes_of(tree, ast.ImportFrom):
        if node.module and not node.level:
            for alias in node.names:
                found[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return found


def dotted(node: ast.expr, aliases: dict[str, str]) -> str:
    """``np.random.rand`` -> ``numpy.random.rand``; empty if the expression is not a plain dotted name of an import."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in aliases:
        return ""
    return ".".join([aliases[node.id], *reversed(parts)])


def last_name(node: ast.expr) -> str:
    """The name nearest to the call: ``self._env`` -> ``_env``, ``optimizers["qf"]`` -> ``optimizers``, else empty."""
    while isinstance(node, ast.Subscript | ast.Call):
        node = node.value if isinstance(node, ast.Subscript) else node.func
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def calls(tree: ast.Module) -> list[ast.Call]:
    return nodes_of(tree, ast.Call)


def has_generator(call: ast.Call) -> bool:
    """Whether ``generator=`` (or ``**kwargs``, which may hold it) is given, and not the literal None."""
    given = [k.value for k in call.keywords if k.arg in ("generator", None)]
    return any(not (isinstance(value, ast.Constant) and value.value is None) for value in given)


# --------------------------------------------------------------------------------------------------------- the rules
SLOT_LOOP = "rollouts/engine/slot_loop.py"
STEPS_OF_TRAINING = ("optim", "scheduler", "trainer", "trained")
STEPPING_ENVS = {
    # Slots over environments, and what stands for other Slots or resumes one environment.
    "envs/slots/gym_slots.py",
    "envs/slots/vector_slots.py",
    "envs/base/slot_proxies.py",
    "envs/base/env_state.py",
    # Simulators: many as slots, one as an environment.
    "envs/base/simulator_slots.py",
    "envs/base/batched_env.py",
    "envs/sims/simulator.py",
    "envs/sims/sim_env.py",
    # The loop of a device, which has no slots there: it steps the rows of a simulator, as slots do on the host.
    "rollouts/engine/device_block.py",
    # An environment of the old Gym API as one of Gymnasium's.
    "envs/base/old_gym.py",
    # Wrappers, which step the one environment, or the Slots, that they wrap.
    "envs/wrappers/base.py",
    # What tries which attributes episodes change, with a copy of its own.
    "tasks/env_copies.py",
    # The conformance kit of Slots.
    "envs/base/checks.py",
}
"""All other modules that may call ``step``: adapters that implement ``Slots``, slots of simulators, wrappers."""


def stepping(tree: ast.Module, where: str) -> Iterator[str]:
    """Only the slot loop and ``STEPPING_ENVS`` step environments; optimizers may step anywhere."""
    if where == SLOT_LOOP or where in STEPPING_ENVS:
        return
    called = set()
    for call in calls(tree):
        if isinstance(call.func, ast.Attribute) and call.func.attr == "step":
            called.add(call.func)
            owner = last_name(call.func.value).lower()
            if not any(word in owner for word in STEPS_OF_TRAINING):
                yield f"line {call.lineno}: {ast.unparse(call.func)}(...) steps an environment"
        elif last_name(call.func) == "getattr" and any(
            isinstance(arg, ast.Constant) and arg.value == "step" for arg in call.args
        ):
            yield f"line {call.lineno}: getattr(..., 'step')"
    for node in nodes_of(tree, ast.Attribute):  # step = env.step
        if node.attr == "step" and node not in called:
            owner = last_name(node.value).lower()
            if "env" in owner or "slots" in owner:
                yield f"line {node.lineno}: {ast.unparse(node)} is taken for a call"


PICKLES = ("pickle", "cloudpickle", "dill", "joblib", "shelve", "marshal", "_pickle")
BETWEEN_OWN_PROCESSES = "rollouts/"


def unpickling(tree: ast.Module, where: str) -> Iterator[str]:
    """No file is ever unpickled; only messages between our own processes, and copies in memory, are."""
    aliases = aliases_of(tree)
    for call in calls(tree):
        name = dotted(call.func, aliases)
        package, _, function = name.partition(".")
        line = f"line {call.lineno}: {name}"
        if package in PICKLES and function in ("load", "loads", "open", "Unpickler"):
            copied = call.args[0] if call.args else None
            is_copy = isinstance(copied, ast.Call) and dotted(copied.func, aliases).endswith(".dumps")
            if not where.startswith(BETWEEN_OWN_PROCESSES) and not is_copy:
                yield f"{line} unpickles"
        elif name in ("torch.load", "torch.jit.load", "pandas.read_pickle", "yaml.load", "yaml.unsafe_load"):
            yield f"{line} may unpickle; snapshots are safetensors and JSON"
        elif name == "numpy.load":
            allowed = [k.value for k in call.keywords if k.arg in ("allow_pickle", None)]
            if any(not (isinstance(value, ast.Constant) and value.value is False) for value in allowed):
                yield f"{line} with allow_pickle"


NUMPY_WITHOUT_STATE = {
    "Generator",
    "SeedSequence",
    "default_rng",
    "BitGenerator",
    "PCG64",
    "PCG64DXSM",
    "Philox",
    "SFC64",
}
TORCH_DRAWS = {"rand", "randn", "randint", "randperm", "normal", "bernoulli", "multinomial", "poisson", "binomial"}
TORCH_DRAWS |= {"rand_like", "randn_like", "randint_like", "dropout"}
IN_PLACE_DRAWS = {
    "normal_",
    "uniform_",
    "random_",
    "bernoulli_",
    "exponential_",
    "geometric_",
    "cauchy_",
    "log_normal_",
}
INITIALIZERS = {
    "xavier_uniform_",
    "xavier_normal_",
    "kaiming_uniform_",
    "kaiming_normal_",
    "trunc_normal_",
    "orthogonal_",
}
STATE_OF_TORCH = {"manual_seed", "seed", "set_rng_state", "get_rng_state", "initial_seed", "fork_rng"}


def _global_draw(name: str, method: str, call: ast.Call) -> bool:
    package, _, function = name.rpartition(".")
    if package == "numpy.random":
        return function not in NUMPY_WITHOUT_STATE
    if package == "random":
        return function != "Random" or not call.args
    if package in ("torch", "torch.cuda", "torch.random") and function in STATE_OF_TORCH | {"manual_seed_all"}:
        return True
    draws = function in TORCH_DRAWS if package in ("torch", "torch.nn.functional") else method in IN_PLACE_DRAWS
    return (draws or method in INITIALIZERS | {"rsample"}) and not has_generator(call)


def global_randomness(tree: ast.Module, where: str) -> Iterator[str]:
    """All randomness comes from generators that are passed in; only seeding.py knows the global ones."""
    if where == "seeding.py":
        return
    aliases = aliases_of(tree)
    finals = {n for t in nodes_of(tree, ast.Try) for s in t.finalbody for n in ast.walk(s)}
    for call in calls(tree):
        name = dotted(call.func, aliases)
        if name == "random.getstate" or (name == "random.setstate" and call in finals):
            continue  # shelters Python's generator from third-party code, where torch is not to be loaded
        method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        if _global_draw(name, method, call):
            yield f"line {call.lineno}: {ast.unparse(call.func)}(...) uses a global generator"


SWITCHES = {
    "torch.set_default_dtype",
    "torch.set_default_device",
    "torch.set_num_threads",
    "torch.set_num_interop_threads",
    "torch.use_deterministic_algorithms",
    "torch.autograd.set_detect_anomaly",
    "multiprocessing.set_start_method",
    "torch.multiprocessing.set_start_method",
    "numpy.seterr",
    "numpy.set_printoptions",
    "logging.basicConfig",
    "os.chdir",
    "warnings.filterwarnings",
    "warnings.simplefilter",
}
OWN_PROCESS = "rollouts/workers/worker_main.py"


def global_switches(tree: ast.Module, where: str) -> Iterator[str]:
    """No global switch stays flipped, except in worker processes and threads of pools, which are ours alone."""
    if where == OWN_PROCESS:
        return
    aliases = aliases_of(tree)
    given = [word.value for call in calls(tree) for word in call.keywords if word.arg == "initializer"]
    own_threads = {name.id for name in given if isinstance(name, ast.Name)}
    restored: dict[str, set[ast.AST]] = {name: set() for name in SWITCHES}  # switch -> nodes after which it is put back
    for node in nodes_of(tree, ast.With):
        if any("catch_warnings" in ast.unparse(item) for item in node.items):
            for name in ("warnings.filterwarnings", "warnings.simplefilter"):
                restored[name].update(ast.walk(node))
    ends = [node for node in nodes_of(tree, ast.Try) if node.finalbody]
    for node in nodes_of(tree, ast.FunctionDef):
        if node.name in own_threads:
            restored["torch.set_num_threads"].update(ast.walk(node))  # each thread has its own number
        elif any(node.lineno <= end.lineno <= (node.end_lineno or 0) for end in ends):
            finals = [n for t in ast.walk(node) if isinstance(t, ast.Try) for s in t.finalbody for n in ast.walk(s)]
            for name in {dotted(n.func, aliases) for n in finals if isinstance(n, ast.Call)} & SWITCHES:
                restored[name].update(ast.walk(node))
    for call in calls(tree):
        name = dotted(call.func, aliases)
        if name in SWITCHES and call not in restored[name]:
            yield f"line {call.lineno}: {name} changes a global"


def prints(tree: ast.Module, where: str) -> Iterator[str]:
    """Only the command line prints."""
    if not where.startswith("lab/cli/"):
        for call in calls(tree):
            if isinstance(call.func, ast.Name) and call.func.id == "print":
                yield f"line {call.lineno}: print"


RULES: list[Rule] = [stepping, unpickling, global_randomness, global_switches, prints]


# --------------------------------------------------------------------------------------------------------- the tests
def test_the_source_keeps_the_rules() -> None:
    breaches = []
    for path in MODULES:
        tree, name = ast.parse(path.read_text(encoding="utf-8")), name_of(path)
        breaches += [f"{name} {breach} ({rule.__doc__})" for rule in RULES for breach in rule(tree, name)]
    assert breaches == []


PLANTED = [
    (stepping, "rollouts/single/rollout.py", "obs = env.step(action)"),
    (stepping, "rollouts/engine/engine.py", "self._slots.step(actions, active)"),
    (stepping, "learners/pearl.py", "self.envs[0].unwrapped.step(a)"),
    (stepping, "training/run/runner.py", "step = env.step\nstep(a)"),
    (stepping, "training/run/runner.py", "getattr(env, 'step')(a)"),
    (stepping, "lab/checking/trials.py", "result = env.step(action)"),
    (stepping, "envs/base/task_family.py", "env.step(action)"),
    (stepping, "envs/point/point_robot.py", "self.env.step(action)"),
    (unpickling, "training/store/files.py", "import pickle\npickle.load(file)"),
    (unpickling, "training/store/files.py", "from pickle import loads as read\nread(path.read_bytes())"),
    (unpickling, "training/store/files.py", "import torch\ntorch.load(path, weights_only=True)"),
    (unpickling, "rollouts/engine/engine.py", "import torch\ntorch.load(path)"),
    (unpickling, "data/paths.py", "import numpy as np\nnp.load(path, allow_pickle=True)"),
    (unpickling, "lab/cli/options.py", "import yaml\nyaml.load(text, Loader=yaml.Loader)"),
    (global_randomness, "envs/x.py", "import numpy as np\nnp.random.uniform(0, 1)"),
    (global_randomness, "envs/x.py", "from numpy.random import rand\nrand(3)"),
    (global_randomness, "envs/x.py", "import numpy.random as npr\nnpr.seed(0)"),
    (global_randomness, "envs/x.py", "import random\nrandom.shuffle(tasks)"),
    (global_randomness, "envs/x.py", "import random\nrandom.setstate(state)"),
    (global_randomness, "policies/x.py", "import torch\ntorch.randn(3)"),
    (global_randomness, "policies/x.py", "import torch\ntorch.randn(3, generator=None)"),
    (global_randomness, "policies/x.py", "import torch\ntorch.randn_like(x)"),
    (global_randomness, "policies/x.py", "import torch\ntorch.manual_seed(0)"),
    (global_randomness, "policies/x.py", "weight.uniform_(-1, 1)"),
    (global_randomness, "policies/x.py", "from torch import nn\nnn.init.xavier_uniform_(w)"),
    (global_randomness, "policies/x.py", "distribution.rsample()"),
    (global_switches, "rollouts/engine/engine.py", "import torch\ntorch.set_num_threads(1)"),
    (global_switches, "lab/cli/main.py", "import warnings\nwarnings.filterwarnings('ignore')"),
    (prints, "training/run/runner.py", "print('epoch')"),
]

RIGHT = [
    (stepping, SLOT_LOOP, "self._slots.step(actions, active)"),
    (stepping, "envs/slots/gym_slots.py", "env.step(action)"),
    (stepping, "learners/pearl.py", "self._policy_optimizer.step()\noptimizers['qf'].step()\nscheduler.step()"),
    (stepping, "rollouts/failures.py", "raise_at(error.step)"),
    (unpickling, "rollouts/workers/transports.py", "import cloudpickle\ncloudpickle.loads(message)"),
    (unpickling, "training/run/runner.py", "import cloudpickle\ncloudpickle.loads(cloudpickle.dumps(env))"),
    (unpickling, "data/paths.py", "import numpy as np\nnp.load(path)\nnp.load(path, allow_pickle=False)"),
    (unpickling, "lab/cli/options.py", "import yaml, json\nyaml.safe_load(text)\njson.load(file)"),
    (global_randomness, "envs/x.py", "import numpy as np\nnp.random.default_rng(3).uniform()"),
    (global_randomness, "envs/x.py", "rng.normal(size=3)\nsampler.sample(4)"),
    (global_randomness, "policies/x.py", "import torch\ntorch.randn(3, generator=generator)"),
    (global_randomness, "policies/x.py", "weight.uniform_(-1, 1, generator=generator)"),
    (
        global_randomness,
        "x.py",
        "import random\ns = random.getstate()\ntry:\n    f()\nfinally:\n    random.setstate(s)",
    ),
    (global_randomness, "seeding.py", "import numpy as np\nnp.random.seed(0)"),
    (global_switches, OWN_PROCESS, "import torch\ntorch.set_num_threads(1)"),
    (global_switches, "x.py", "import warnings\nwith warnings.catch_warnings():\n    warnings.simplefilter('ignore')"),
    (
        global_switches,
        "x.py",
        "import os\ndef f():\n    os.chdir(a)\n    try:\n        g()\n    finally:\n        os.chdir(b)",
    ),
    (prints, "lab/cli/main.py", "print('done')"),
]


def test_no_exemption_is_unused() -> None:
    """Every exempted module still steps environments."""
    for name in STEPPING_ENVS:
        tree = ast.parse((PACKAGE / name).read_text(encoding="utf-8"))
        assert list(stepping(tree, "elsewhere.py")), name


@pytest.mark.parametrize(("rule", "where", "code"), PLANTED)
def test_rules_catch_planted_code(rule: Rule, where: str, code: str) -> None:
    assert len(list(rule(ast.parse(code), where))) == 1


@pytest.mark.parametrize(("rule", "where", "code"), RIGHT)
def test_rules_accept_correct_code(rule: Rule, where: str, code: str) -> None:
    assert list(rule(ast.parse(code), where)) == []
