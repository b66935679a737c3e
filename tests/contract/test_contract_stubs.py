"""Editors see the library: the stub is that of the lazy table, and a user's script finds the types of the classes."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest
from doc_pages import page, python_blocks

import metaroll
import metaroll.plugins
from metaroll.config import MISSING
from metaroll.configs.table import run_options
from metaroll.training.algorithms.registry import ALGORITHM_NAMES

ROOT = Path(__file__).parents[2]
# What a user writes, and the type that pyright finds in `reveal_type` of it.
REVEALED = {
    "metaroll.agent('ppo', 'Pendulum-v1', seed=0, learning_rate=3e-4)": "Agent",
    "metaroll.agent('ppo', 'Pendulum-v1').learn(1000)": "Agent",
    "metaroll.agent('sac', 'Pendulum-v1', gamma=0.9, hidden_sizes=[64, 64])": "Agent",
    "metaroll.agent(str(spec), 'Pendulum-v1', **vars(spec))": "Agent",
    "metaroll.load('ppo').act": "(obs: Any, *, deterministic: bool = True)",
    "metaroll.load('pearl').adapt([])": "AdaptedAgent",
    "metaroll.load('pearl').explore('point-robot', episodes=3)": "list[StepSequence]",
    "metaroll.TaskFamily.from_params('CartPole-v1', {'length': (0.3, 0.7)})": "TaskFamily",
    "metaroll.get_family('point-robot')": "TaskFamily",
    "metaroll.get_family('point-robot').split()": "tuple[list[EnvUpdate], list[EnvUpdate]]",
    "metaroll.get_family('point-robot').horizon": "int | None",
    "metaroll.rollout('point-robot', metaroll.policies.IdlePolicy(spec), seed=0)": "StepSequence",
    "rollout('point-robot', None).rewards": "ndarray",
    "metaroll.RolloutEngine('point-robot', None)": "RolloutEngine",
    "metaroll.RolloutPlan(seed=(0, 0, 1))": "RolloutPlan",
    "metaroll.PPO": "type[PPO]",
    "metaroll.PEARL": "type[PEARL]",
    "metaroll.PEARL.augment_env_spec(spec, 5)": "EnvSpec",
    "metaroll.LocalRunner(run_dir='run', seed=1)": "LocalRunner",
    "metaroll.LocalRunner(run_dir='run').total_env_steps": "int",
    "metaroll.StepSequence.concat([])": "StepSequence",
    "metaroll.DomainRandomizer(metaroll.UniformDomainParam('mass', mean=1, halfspan=0.5))": "DomainRandomizer",
    "metaroll.make_slots('Pendulum-v1', 4)": "Slots",
    "metaroll.policies.TanhGaussianMLPPolicy(spec, hidden_sizes=(64, 64))": "TanhGaussianMLPPolicy",
    "metaroll.policies.QFunction(spec)": "QFunction",
    "metaroll.bootstrap_ci": "num_reps: int",
    "metaroll.lab.check_task_env('point-robot')": "TaskEnvReport",
    "metaroll.lab.check_task_env('point-robot').failed": "list[str]",
    "metaroll.MW_TASKS_PER_ENV": "50",
    "metaroll.__version__": "str",
    "metaroll.plugins.MLP": "type[MLP]",
    "metaroll.plugins.GaussianHead.of(spec, 'Mine', 1.0, 0.1)": "GaussianHead",
    "metaroll.testing.check_policy": "contexts: Sequence",
}
MISTAKES = {
    "metaroll.agent('sac', 'Pendulum-v1', seed='one')": '"seed"',
    "metaroll.load('ppo').learn(steps=3)": '"steps"',
    "metaroll.TaskFamily.from_params('CartPole-v1', parameters={})": '"parameters"',
    "metaroll.LocalRunner(run_directory='run')": '"run_directory"',
    "metaroll.RolloutPlan(sead=1)": '"sead"',
    "metaroll.configs.SACConfig(gradient_stepz=3)": '"gradient_stepz"',
    "metaroll.plugins.serach_row": '"serach_row"',
    "metaroll.PERAL": '"PERAL"',
}


@pytest.fixture(scope="module")
def stubs():
    spec = importlib.util.spec_from_file_location("stubs", ROOT / "tools" / "stubs.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_stub_is_that_of_the_table(stubs):
    assert stubs.main(["--check"]) == 0, "run python tools/stubs.py --write"
    listed = re.search(r"^__all__ = \[\n(.*?)\]", stubs.STUB.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    assert listed is not None
    assert sorted(re.findall(r'"(\w+)"', listed[1])) == sorted(metaroll.__all__)


def test_new_names_of_the_table_are_picked_up(stubs):
    source = (
        '_MODULES = {"b": ["make", "Thing", "LIMIT"], "a.c": [' + ", ".join(repr("x" * 30 + i) for i in "dcba") + "]}"
    )
    text = stubs.stub_text(source + '\n_ROOMS = ("room",)')
    assert "from metaroll import room as room\n" in text
    assert "from metaroll.b import LIMIT, Thing, make\n" in text
    assert "from metaroll.a.c import (\n    xxx" in text
    assert '__all__ = [\n    "LIMIT",\n    "Thing",\n    "__version__",\n    "make",\n' in text
    with pytest.raises(ValueError, match="there is no _MODULES"):
        stubs.stub_text("_HOME = {}")


@pytest.mark.parametrize("name", ["STUB", "AGENT", "CONFIGS"])
def test_an_old_stub_is_refused(stubs, tmp_path, monkeypatch, capsys, name):
    monkeypatch.setattr(stubs, name, tmp_path / "stub.pyi")
    assert stubs.main(["--check"]) == 1
    assert "run python tools/stubs.py --write" in capsys.readouterr().err
    assert stubs.main(["--write"]) == 0
    assert stubs.main(["--check"]) == 0


def _keys_of(tree: ast.Module) -> dict[str, dict[str, tuple[str, str]]]:
    """Name of an algorithm -> key of its options -> type and text, as a type checker finds them in the stub."""
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}

    def keys(name: str) -> dict[str, tuple[str, str]]:
        node, found = classes[name], {}
        for base in reversed(node.bases):
            found |= {} if ast.unparse(base) == "TypedDict" else keys(ast.unparse(base))
        for field, text in zip(node.body, [*node.body[1:], None], strict=True):
            if isinstance(field, ast.AnnAssign):
                told = text.value.value if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant) else ""
                found[ast.unparse(field.target)] = (ast.unparse(field.annotation), " ".join(told.split()))
        return found

    overloads = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.args.args[0].annotation]
    kinds = {ast.unparse(n.args.args[0].annotation): ast.unparse(n.args.kwarg.annotation) for n in overloads}
    assert kinds.pop("str | Algorithm | type[Any]") == "Any", "the last overload takes any name, and rows"
    return {kind[9:-2]: keys(options[7:-1]) for kind, options in kinds.items()}


def test_the_options_of_each_algorithm_are_keywords_of_agent(stubs):
    found = _keys_of(ast.parse(stubs.AGENT.read_text("utf-8")))
    assert list(found) == list(ALGORITHM_NAMES)
    shown: dict[str, str] = {}  # editors show the text of the first overload that has a key
    for keys in found.values():
        shown |= {name: text for name, (_, text) in keys.items() if name not in shown}
    for algo, keys in found.items():
        options = {option.name: option for option in run_options(algo)}
        assert keys.keys() == {*options, "run_dir", "tasks"}, algo
        for name, option in options.items():
            kind = str(option.kind.__name__)
            if option.choices:
                kind = f"Literal[{', '.join(map(repr, option.choices))}]"
            kind = f"Sequence[{kind}]" if option.many else kind
            kind = "Any" if name in stubs._OBJECTS else kind + " | None" * option.optional
            assert keys[name][0] == kind, (algo, name)
            default = list(option.default) if isinstance(option.default, tuple) else option.default
            end = "Set by the preset." if option.default is MISSING else f"Without a preset: {default!r}."
            text = re.sub(r"\bnull\b", "None", f"{option.help} {end}")
            assert text in keys[name][1] and text in shown[name], (algo, name)
            if shown[name] != text:
                assert re.search(rf"\b{algo}\b[^:.]*: {re.escape(text)}", shown[name]), (algo, name)


def pyright(folder: Path, *arguments: str) -> Any:
    """The output of pyright in ``folder``, with the library and the installed packages in its path."""
    places = [str(ROOT / "src"), sysconfig.get_path("purelib")]
    command = [sys.executable, "-m", "pyright", "--outputjson", *arguments]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(places)}
    return json.loads(subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=110, env=env).stdout)


def test_a_type_checker_knows_the_public_names(tmp_path):
    head = ["import metaroll", "from metaroll import EnvSpec, rollout", "", "spec = EnvSpec.from_env(object())"]
    lines = [*head, *(f"reveal_type({code})" for code in REVEALED), *MISTAKES]
    (tmp_path / "script.py").write_text("\n".join(lines), "utf-8")
    blocks = [block for name in ("plugins", "evolution") for block in python_blocks(page(f"{name}.md"))]
    files = {f"{name[1]}.py": block for block in blocks if (name := re.match(r"# (\w+)\.py\n", block))}
    assert {*files} == {"half.py", "reinforce.py", "all_or_nothing.py", "random_steps.py"}
    for name, block in files.items():
        (tmp_path / name).write_text(block, "utf-8")
    config = {"extraPaths": [str(ROOT / "src")], "typeCheckingMode": "standard", "pythonVersion": "3.11"}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps({**config, "strict": [*files]}), "utf-8")
    found: dict[str, list[tuple[str, str]]] = {}
    for entry in pyright(tmp_path, "--pythonpath", sys.executable, "--project", ".")["generalDiagnostics"]:
        assert Path(entry["file"]).name == "script.py", entry
        line = lines[entry["range"]["start"]["line"]]
        found.setdefault(line, []).append((entry["severity"], entry["message"]))
    for code, kind in REVEALED.items():
        ((severity, message),) = found.pop(f"reveal_type({code})")
        assert severity == "information", (code, message)
        shown = message.partition(" is ")[2].strip('"')
        assert kind in shown and "Unknown" not in shown and shown != "object", (code, message)
    for code, name in MISTAKES.items():
        said = found.pop(code)
        assert any(severity == "error" and name in message for severity, message in said), (code, said)
    assert not found


def test_no_type_of_the_interface_of_plugins_is_unknown(tmp_path):
    found = pyright(tmp_path, "--verifytypes", "metaroll.plugins", "--ignoreexternal")["typeCompleteness"]
    exported = {symbol["name"] for symbol in found["symbols"] if symbol["isExported"]}
    assert {f"metaroll.plugins.{name}" for name in metaroll.plugins.__all__} <= exported
    unknown = {s["name"]: s["diagnostics"] for s in found["symbols"] if not (s["isTypeKnown"] or s["isTypeAmbiguous"])}
    assert not unknown
