"""Generates ``src/metaroll/compat/constructors.py``: documented constructors with real parameters, based on configs.

Names and defaults of parameters are those of the documents (``tests/contract/documented_api.json``). Types and texts
are those of the config fields that they set; ``metaroll.concepts`` knows the documented names of fields.

python tools/constructors.py --write   write the module
python tools/constructors.py --check   status 1 if it is out of date, 0 otherwise
"""

from __future__ import annotations

import argparse
import ast
import importlib
import inspect
import json
import re
import subprocess
import sys
import textwrap
from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from metaroll.concepts import CONCEPTS
from metaroll.config import Config, Option, options_of

__all__ = ["CONSTRUCTORS", "TARGET", "Constructor", "module_text"]

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "src" / "metaroll" / "compat" / "constructors.py"
_DOCUMENTED = ROOT / "tests" / "contract" / "documented_api.json"
_WIDTH = 120


@dataclass(frozen=True, kw_only=True)
class Constructor:
    """One documented class.

    Attributes:
        name: Name of the class.
        documented: Its keywords, if ``documented_api.json`` does not list them.
        base: Module and class that it extends, ``module:Class``.
        config: Module and class of the config that its parameters set.
        about: Further lines of its docstring.
        first: First line of its docstring; if empty, that of ``base``.
        hidden: Fields of the config that it does not offer.
        kept: Parameters that only become attributes: name -> type, default and text.
        abstract: Methods of ``base`` that a subclass must implement.
        generic: Whether ``base`` is generic in its config.
        before: Statements before the call of the constructor of ``base``.
        defaults: Defaults that are objects: name -> expression.
        imports: Import statements that these expressions and annotations need.
    """

    name: str
    base: str
    config: str
    about: str
    documented: str = ""
    first: str = ""
    hidden: tuple[str, ...] = ()
    kept: dict[str, tuple[str, str, str]] = field(default_factory=dict)
    abstract: tuple[str, ...] = ()
    generic: bool = False
    before: tuple[str, ...] = ()
    defaults: dict[str, str] = field(default_factory=dict)
    imports: tuple[str, ...] = ()


CONSTRUCTORS: tuple[Constructor, ...] = (
    Constructor(
        name="OffPolicyRLAlgorithm",
        base="metaroll.learners.off_policy.base:OffPolicyLearner",
        config="metaroll.learners.off_policy.configs:OffPolicyConfig",
        first="Base of off-policy learners of users: see ``OffPolicyLearner``, with the constructor of metarl.",
        about=(
            "A subclass implements learning in ``train_once``. Its own attributes must exist before it calls this "
            "constructor, which ends with ``init_opt()``; ``state_parts`` names the attributes that it learns, for "
            "snapshots (``metaroll.plugins.parts``)."
        ),
        hidden=("replay_size",),
        kept={
            "use_target": ("bool", "False", "Whether to use target networks (for subclasses that can do without)."),
            "n_eval_trajs": (
                "int | None",
                "None",
                "Episodes of an evaluation, if the runner was given no evaluator.",
            ),
        },
        abstract=("train_once",),
        generic=True,
    ),
    Constructor(
        name="CEM",
        base="metaroll.learners.evolution:CEM",
        config="metaroll.learners.evolution_configs:CEMLearnerConfig",
        about="The constructor is that of metarl.",
        kept={"baseline": ("Any", "", "Kept as an attribute for code written for metarl; not used.")},
        imports=(
            "from metaroll.functional.search.multi_start import Starts",
            "from metaroll.learners.trials import Trials",
            "from metaroll.policies.acting import ActingPolicy",
        ),
    ),
    Constructor(
        name="CMAES",
        base="metaroll.learners.evolution:CMAES",
        config="metaroll.learners.evolution_configs:CMAESLearnerConfig",
        about="The constructor is that of metarl.",
        kept={"baseline": ("Any", "", "Kept as an attribute for code written for metarl; not used.")},
    ),
    Constructor(
        name="PEARL",
        base="metaroll.learners.pearl:PEARL",
        config="metaroll.learners.pearl_config:PEARLConfig",
        about="The constructor is that of garage.",
        defaults={
            "policy_class": "ContextConditionedPolicy",
            "encoder_class": "MLPEncoder",
            "optimizer_class": "torch.optim.Adam",
        },
        imports=(
            "from metaroll.policies.context import ContextConditionedPolicy",
            "from metaroll.policies.networks import MLPEncoder",
        ),
    ),
    Constructor(
        name="MetaEvaluator",
        base="metaroll.training.evaluation.meta_evaluator:MetaEvaluator",
        config="metaroll.configs.evaluation:MetaEvaluationConfig",
        documented=(
            "*, test_task_sampler=None, max_path_length=None, n_exploration_traj=10, n_test_tasks=None, "
            "n_test_rollouts=1, prefix='MetaTest', test_task_names=None, worker_class=DefaultWorker, worker_args=None"
        ),
        about=(
            "The constructor is that of garage; ``metaroll.training.evaluation.meta_evaluator`` describes the "
            "episodes of an evaluation."
        ),
        kept={
            "worker_class": (
                "type[Worker] | None",
                "",
                "``DefaultWorker`` or ``PEARLWorker``, whose behavior the rollout engine reproduces.",
            ),
            "worker_args": (
                "Mapping[str, Any] | None",
                "",
                "Further arguments of the worker; its ``deterministic`` replaces the one below.",
            ),
        },
        before=("deterministic = evaluates_deterministically(worker_class, worker_args, deterministic)",),
        imports=(
            "from metaroll.rollouts.garage.workers import DefaultWorker, Worker, evaluates_deterministically",
            "from metaroll.tasks.task_sampler import TaskSampler",
        ),
    ),
)


@dataclass(frozen=True)
class _Parameter:
    name: str
    annotation: str
    default: str
    text: str
    field: str = ""
    """Field of the config that it sets; if empty, it is passed to the base or kept."""
    keyword: str = ""
    """Parameter of the base to which it is passed."""

    @property
    def read(self) -> str:
        """Its name in the base."""
        return self.field or self.keyword


def module_text() -> str:
    """The text of the module."""
    documented = {entry["name"]: entry for entry in json.loads(_DOCUMENTED.read_text("utf-8"))}
    classes = [
        _class_text(one, _keywords_of(one.documented) if one.documented else documented[one.name]["params"])
        for one in CONSTRUCTORS
    ]
    targets = sorted({target for one in CONSTRUCTORS for target in (one.base, one.config)})
    bases = {one.base for one in CONSTRUCTORS}
    imports = "\n".join(_import(target, target in bases) for target in targets)
    imports += "".join(f"\n{line}" for one in CONSTRUCTORS for line in one.imports)
    names = ", ".join(
        repr(one.name) for one in sorted(CONSTRUCTORS, key=lambda one: (not one.name.isupper(), one.name))
    )
    text = (
        '"""Documented constructors, with their names and defaults, on configs; written by tools/constructors.py."""'
        "\n\n"
        "from __future__ import annotations\n\n"
        "from abc import abstractmethod\nfrom collections.abc import Callable, Mapping, Sequence\n"
        "from typing import Any, ClassVar, Literal\n\n"
        f"import torch\nfrom torch import nn\n\n"
        f"from metaroll.config import config_of, understands\n{imports}\n"
        f"from metaroll.types import EnvSpec, EnvUpdate\n\n__all__ = [{names}]\n\n\n" + "\n\n".join(classes)
    )
    return _formatted(text)


def _keywords_of(parameters: str) -> list[dict[str, Any]]:
    """Keywords of a signature, in the form of ``documented_api.json``."""
    arguments = ast.parse(f"lambda {parameters}: None", mode="eval").body.args  # type: ignore[attr-defined]
    pairs = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    return [{"name": one.arg, "default": ast.unparse(default), "kwonly": True} for one, default in pairs]


def _import(target: str, is_base: bool) -> str:
    """The import of a base or config; a base may have the name of the class that extends it."""
    module, _, name = target.partition(":")
    return f"from {module} import {name}" + (f" as {_as_base(name)}" if is_base else "")


def _as_base(name: str) -> str:
    return name if name not in {one.name for one in CONSTRUCTORS} else f"_{name}"


def _formatted(text: str) -> str:
    """The text as ``make format`` formats it."""
    for command in (["check", "--fix-only", "--quiet", "--select", "F401,I"], ["format", "--quiet"]):
        ruff = [str(Path(sys.executable).with_name("ruff")), *command, "--stdin-filename", str(TARGET), "-"]
        text = subprocess.run(ruff, input=text, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    return text


def _class_text(constructor: Constructor, documented: Sequence[dict[str, Any]]) -> str:
    base, config = _loaded(constructor.base), _loaded(constructor.config)
    positional, keywords = _parameters(constructor, documented, base, config)
    passed = [p for p in (*positional, *keywords) if p.keyword]
    first = f"{passed[0].name}, " if positional else ""
    rest = "".join(f", {p.keyword}={p.name}" for p in passed[bool(first) :])
    of_config = "".join(f"{p.name!r}: {p.name}, " for p in (*positional, *keywords) if p.field)
    signature = ", ".join(["self", *map(_in_signature, positional), "*", *map(_in_signature, keywords)])
    kept = "".join(f"        self.{name} = {name}\n" for name in constructor.kept)
    parent = _as_base(base.__name__) + (f"[{config.__name__}]" if constructor.generic else "")
    settings = f"config_of({config.__name__}, None, {{{of_config}}})"
    before = "".join(f"        {line}\n" for line in constructor.before)
    body = f"{kept}{before}        super().__init__({first}{settings}{rest})\n"
    others = {p.keyword: p.name for p in passed if p.keyword != p.name}
    known = ", ".join([config.__name__, *(f"{name}={called!r}" for name, called in others.items())])
    names = f"    names_given: ClassVar[Mapping[str, str]] = {others!r}\n\n" if others else ""
    hook = (
        "    @classmethod\n    def __subclasshook__(cls, kind: type) -> Any:\n"
        '        """Learners of metaroll are subclasses of the documented class, whichever constructor made them."""\n'
        f"        is_known = {_as_base(base.__name__)} in kind.__mro__ and cls is {constructor.name}\n"
        "        return True if is_known else NotImplemented\n\n"
    )
    return (
        f"class {constructor.name}({parent}):\n{_docstring(constructor, base, [*positional, *keywords])}\n"
        f"{names}"
        f"    @understands({known})\n    def __init__({signature}) -> None:\n{body}\n{hook}"
        + "".join(_abstract(base, name) for name in constructor.abstract)
    )


def _loaded(target: str) -> Any:
    module, name = target.split(":")
    return getattr(importlib.import_module(module), name)


def _parameters(
    constructor: Constructor, documented: Sequence[dict[str, Any]], base: Any, config: type[Config]
) -> tuple[list[_Parameter], list[_Parameter]]:
    """Positional parameters, and keyword-only ones: those that are documented, then those of metaroll."""
    options = {option.name: option for option in options_of(config) if option.name not in constructor.hidden}
    accepted = inspect.signature(base.__init__).parameters
    texts = _texts_of(base)
    positional: list[_Parameter] = []
    keywords: list[_Parameter] = []
    for entry in documented:
        name = entry["name"]
        default = constructor.defaults.get(name, entry["default"] or "")
        options_here = [field for field in (name, *_fields_of(name, options)) if field in options]
        if name in constructor.kept:
            kind, usual, text = constructor.kept[name]
            parameter = _Parameter(name, kind, default or usual, text)
        elif options_here:
            option = options[options_here[0]]
            parameter = _Parameter(name, _annotation(option), default, option.help, option.name)
        else:
            keyword = next(field for field in (name, *_fields_of(name, accepted)) if field in accepted)
            parameter = _Parameter(name, str(accepted[keyword].annotation), default, texts[keyword], keyword=keyword)
        (keywords if entry["kwonly"] else positional).append(parameter)
    done = {p.read or p.name for p in (*positional, *keywords)}
    for option in options.values():
        if option.name not in done:
            text = "" if option.default is inspect.Parameter.empty else repr(option.default)
            keywords.append(_Parameter(option.name, _annotation(option), text, option.help, option.name))
    for name, (kind, usual, text) in constructor.kept.items():
        if name not in done:
            keywords.append(_Parameter(name, kind, usual, text))
    for name, argument in accepted.items():
        if name in ("self", "config", *done) or argument.kind is argument.VAR_KEYWORD:
            continue
        default = "" if argument.default is argument.empty else repr(argument.default)
        default = constructor.defaults.get(name, default)
        keywords.append(_Parameter(name, str(argument.annotation), default, texts[name], keyword=name))
    return positional, keywords


def _fields_of(name: str, known: Container[str]) -> list[str]:
    """The fields in ``known`` that a documented name means."""
    return [f for concept in CONCEPTS if name in concept.documented for f in concept.fields if f in known]


def _annotation(option: Option) -> str:
    base = f"Literal[{', '.join(map(repr, option.choices))}]" if option.choices else option.kind.__name__
    if option.many:
        base = f"Sequence[{base}]"
    return f"{base} | None" if option.optional else base


def _in_signature(parameter: _Parameter) -> str:
    default = f" = {parameter.default}" if parameter.default else ""
    return f"{parameter.name}: {parameter.annotation}{default}"


def _texts_of(base: Any) -> dict[str, str]:
    """Name -> text, from ``Args`` of a class; texts ``See ...`` are replaced by those of classes that it extends."""
    texts: dict[str, str] = {}
    for one in base.__mro__[:-1]:
        for name, text in _own_texts(inspect.cleandoc(one.__doc__ or "")).items():
            if texts.get(name, "See").startswith("See"):
                texts[name] = text
    return texts


def _own_texts(docstring: str) -> dict[str, str]:
    """The same for one docstring, which has one entry per name or list of names."""
    texts: dict[str, str] = {}
    names: list[str] = []
    for line in docstring.partition("\nArgs:\n")[2].partition("\n\n")[0].splitlines():
        if line.startswith("    ") and not line.startswith("     "):
            head, _, text = line.strip().partition(": ")
            names = head.split(", ")
            texts.update(dict.fromkeys(names, text))
        else:
            texts.update({name: f"{texts[name]} {line.strip()}" for name in names})
    return texts


def _docstring(constructor: Constructor, base: Any, parameters: Sequence[_Parameter]) -> str:
    first = constructor.first or inspect.cleandoc(base.__doc__).splitlines()[0]
    lines = [f'    """{first}', ""]
    if constructor.about:
        lines += [*textwrap.wrap(constructor.about, _WIDTH - 4, initial_indent="    ", subsequent_indent="    "), ""]
    lines.append("    Args:")
    renamed = {p.read: p.name for p in parameters if p.read and p.read != p.name}
    pattern = re.compile(rf"\b({'|'.join(renamed)})\b")
    for p in parameters:
        text = f"{p.name}: {pattern.sub(lambda match: renamed[match[0]], p.text)}".replace("null", "``None``")
        lines += textwrap.wrap(text, _WIDTH, initial_indent=" " * 8, subsequent_indent=" " * 12)
    return "\n".join([*lines, '    """', ""])


def _abstract(base: Any, name: str) -> str:
    method = getattr(base, name)
    source = ast.parse(textwrap.dedent(inspect.getsource(method))).body[0]
    assert isinstance(source, ast.FunctionDef)
    arguments = ast.unparse(source.args)
    returns = ast.unparse(source.returns) if source.returns else "None"
    return (
        f"    @abstractmethod\n    def {name}({arguments}) -> {returns}:\n"
        f'        """See ``{base.__name__}.{name}``."""\n\n'
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the module, or check that it is up to date."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--write", action="store_true", help="write the module")
    action.add_argument("--check", action="store_true", help="compare it with configs and documents")
    args = parser.parse_args(arguments)
    text = module_text()
    if args.write:
        TARGET.write_text(text, "utf-8")
        return 0
    if TARGET.is_file() and TARGET.read_text("utf-8") == text:
        return 0
    print(f"{TARGET} is out of date: run python tools/constructors.py --write", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
