"""Generates files from other source: the stubs of ``metaroll``, and the names of its task families.

``src/metaroll/__init__.pyi`` shows editors and type checkers the names that ``metaroll`` loads lazily. The ``.pyi``
next to ``configs``, ``plugins`` and the other rooms of public names do the same for these. ``src/metaroll/_agent.pyi``
has the options of each algorithm as keywords of ``metaroll.agent``, from the configs.
``src/metaroll/envs/lookup/family_names.py`` lists the task families without importing simulators.

python tools/stubs.py --write   write the files
python tools/stubs.py --check   status 1 if one is out of date, 0 otherwise
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from metaroll.config import MISSING, Config, Option, options_of
from metaroll.configs.run import RunConfig
from metaroll.configs.table import evaluation_config, parts_of_algorithm, run_options
from metaroll.training.algorithms.registry import ALGORITHM_NAMES

__all__ = [
    "AGENT",
    "CONFIGS",
    "FAMILIES",
    "ROOMS",
    "STUB",
    "agent_text",
    "configs_text",
    "families_text",
    "room_file",
    "room_text",
    "stub_text",
]

PACKAGE = Path(__file__).parents[1] / "src" / "metaroll"
STUB = PACKAGE / "__init__.pyi"
CONFIGS = PACKAGE / "configs" / "__init__.pyi"
ROOMS = ("contrib", "lab", "plugins", "policies", "search", "sims", "statistics", "wrappers")
"""Packages and modules whose names are also loaded lazily."""
AGENT = PACKAGE / "_agent.pyi"
FAMILIES = PACKAGE / "envs" / "lookup" / "family_names.py"

_STUBS = {"agent": "_agent"}
"""Names that have a separate stub."""
_AGENT_HEAD = '''"""The options of each algorithm as keywords of ``metaroll.agent``; written by tools/stubs.py.

Editors show the first explanation of a key, so if several algorithms have it, the explanation is for all of them.
The last overload takes algorithms that are only known at run time, options under names of other libraries, and
misspelled options, for which ``metaroll.agent`` itself raises the error.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack, overload

from metaroll.training.algorithms.algorithm import Algorithm
from metaroll.training.session.agent import Agent

'''
_OBJECTS = ("policy",)
"""Options for which Python accepts objects besides names."""
_WIDTH = 120


def stub_text(source: str) -> str:
    """The stub of a package.

    Args:
        source: Text of its ``__init__.py``, with ``_MODULES`` (module -> public names) and ``_ROOMS`` (packages that
            are attributes).

    Raises:
        ValueError: One of these tables is missing.
    """
    homes = {name: _STUBS.get(name, module) for name, module in _table(source).items()}
    rooms = "".join(f"from metaroll import {room} as {room}\n" for room in _constant(source, "_ROOMS"))
    return _names_text("names of metaroll", homes, rooms, {"__version__": "str"})


def configs_text(source: str) -> str:
    """The stub of ``metaroll.configs``.

    Args:
        source: Text of its ``__init__.py``, with ``_CONTRIBUTED`` (public name -> module).
    """
    homes: dict[str, str] = _constant(source, "_CONTRIBUTED")
    for node in ast.parse(source).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("metaroll."):
            homes |= {alias.name: str(node.module) for alias in node.names if alias.asname is None}
    return _names_text("configs", {name: module.removeprefix("metaroll.") for name, module in homes.items()})


def room_text(room: str, source: str) -> str:
    """The stub of a room.

    Args:
        room: Name of the room.
        source: Text of its module, with ``_MODULES`` (module -> public names).
    """
    return _names_text(f"names of metaroll.{room}", _table(source))


def room_file(room: str) -> Path:
    """The file of a room: a module, or the ``__init__`` of a package."""
    return PACKAGE / f"{room}.py" if (PACKAGE / f"{room}.py").exists() else PACKAGE / room / "__init__.py"


def _table(source: str) -> dict[str, str]:
    """Name -> module."""
    return {name: module for module, names in _constant(source, "_MODULES").items() for name in names}


def _names_text(
    title: str, homes: Mapping[str, str], rooms: str = "", own: Mapping[str, str] = MappingProxyType({})
) -> str:
    """A stub of imported names (name -> module), and of the names of the package itself (name -> type)."""
    modules = sorted(set(homes.values()))
    imports = [rooms, *(_import(module, [name for name in homes if homes[name] == module]) for module in modules)]
    types = "".join(f"{name}: {kind}\n" for name, kind in own.items())
    listed = "".join(f'    "{name}",\n' for name in sorted([*own, *homes], key=_place))
    head = f'"""The public {title}, and where they are defined; written by tools/stubs.py."""'
    return "\n".join(filter(None, (f"{head}\n", "".join(imports), types, f"__all__ = [\n{listed}]\n")))


def agent_text(source: str) -> str:
    """The stub of ``metaroll.agent``, with an overload for each algorithm.

    Args:
        source: Text of the module that defines it.
    """
    (function,) = (
        node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef) and node.name == "agent"
    )
    signature = source.splitlines(keepends=True)[function.lineno - 1 : function.body[0].end_lineno]
    options = {arg.arg: arg.annotation for arg in function.args.kwonlyargs if arg.arg != "seed"}  # in a config
    folders = "".join(f"    {name}: {ast.unparse(kind)}\n" for name, kind in options.items() if kind)
    overloads = (
        f'@overload\ndef agent(algo: Literal["{name}"], env: Any, '
        f"**options: Unpack[{_options_name(name)}]) -> Agent: ...\n"
        for name in ALGORITHM_NAMES
    )
    classes = _class("Folders", [], folders), *_option_classes()
    parts = (_AGENT_HEAD, *classes, "\n", *overloads, "@overload\n", *signature)
    return re.sub(r"\n{3,}", "\n\n", "".join(parts))


def families_text() -> str:
    """The text of the module with the names of families."""
    from metaroll.envs.lookup.registry import family_names  # importing this registers all families

    rows = "".join(f'    "{name}",\n' for name in family_names())
    head = '"""Names of all families of tasks; written by tools/stubs.py."""\n\n__all__ = ["FAMILY_NAMES"]\n'
    return f"{head}\nFAMILY_NAMES = (\n{rows})\n"


def _option_classes() -> Iterator[str]:
    """A class for the options of each algorithm, after the classes of the configs whose fields it has."""
    texts: dict[str, dict[str, list[str]]] = {}
    for name in ALGORITHM_NAMES:
        for option in run_options(name):
            texts.setdefault(option.name, {}).setdefault(_text(option), []).append(name)
    written = set[type]()
    for name in ALGORITHM_NAMES:
        wanted = {option.name: option for option in run_options(name)}
        kinds = (RunConfig, *parts_of_algorithm(name), evaluation_config(name))
        parts = [part for kind in kinds for part in _complete(kind, wanted)]
        bases = [part for part in parts if not any(part is not other and issubclass(other, part) for other in parts)]
        for kind in (kind for base in bases for kind in reversed(base.__mro__) if _is_config(kind)):
            if kind not in written:
                written.add(kind)
                own = [option for option in options_of(kind) if option.name in kind.__annotations__]
                parents = [_config_name(base) for base in kind.__bases__ if _is_config(base)]
                if _config_name(kind) not in parents:  # a search has the name of its settings, its base
                    yield _class(_config_name(kind), parents, _keys(own, texts))
        inherited = {option.name: _text(option) for base in reversed(bases) for option in options_of(base)}
        own = [option for option in wanted.values() if _text(option) != inherited.get(option.name)]
        yield _class(_options_name(name), ["Folders", *map(_config_name, bases)], _keys(own, texts))


def _complete(kind: type[Config], wanted: Mapping[str, Option]) -> list[type[Config]]:
    """The config, if all its fields are in ``wanted``; otherwise those of its bases for which this holds."""
    if all(option.name in wanted and _type(option) == _type(wanted[option.name]) for option in options_of(kind)):
        return [kind]
    return [part for base in kind.__bases__ if _is_config(base) for part in _complete(base, wanted)]


def _is_config(kind: type) -> bool:
    return issubclass(kind, Config) and kind is not Config


def _config_name(kind: type[Config]) -> str:
    return kind.__name__.removesuffix("Config")


def _options_name(algorithm: str) -> str:
    return "".join(word.capitalize() for word in algorithm.split("-")) + "Options"


def _class(name: str, bases: Sequence[str], keys: str) -> str:
    """A ``TypedDict``, formatted as by ``make format``."""
    parts = [*(bases or ["TypedDict"]), *(["total=False"] if keys else [])]
    head = f"class {name}({', '.join(parts)}):"
    if len(f"{head} ...") > _WIDTH:
        inside = f"    {', '.join(parts)}\n"
        inside = inside if len(inside) <= _WIDTH + 1 else "".join(f"    {part},\n" for part in parts)
        head = f"class {name}(\n{inside}):"
    return f"\n{head}\n{keys}\n" if keys else f"{head} ...\n"


def _keys(options: Iterable[Option], texts: dict[str, dict[str, list[str]]]) -> str:
    """Keys of a ``TypedDict``, with the texts that editors show.

    Args:
        options: The options of the keys.
        texts: Name of an option -> text -> algorithms with this text. Options that are written are removed.
    """
    rows: list[str] = []
    for option in options:
        # A config may redefine a field of its base. Editors show the text that holds for the first algorithm.
        is_first = _text(option) == next(iter(texts.get(option.name, ())), "")
        known = texts.pop(option.name) if is_first else {}
        shown = [f"{', '.join(names)}: {text}" for text, names in known.items()] if len(known) > 1 else [_text(option)]
        rows += [f"    {option.name}: {_type(option)}", *map(_wrapped, ('"""' + "\n".join(shown) + '"""').splitlines())]
    return "".join(f"{row}\n" for row in rows)


def _wrapped(text: str) -> str:
    return textwrap.fill(text, _WIDTH, initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False)


def _text(option: Option) -> str:
    default = list(option.default) if isinstance(option.default, tuple) else option.default
    shown = "Set by the preset" if option.default is MISSING else f"Without a preset: {default!r}"
    return re.sub(r"\bnull\b", "None", f"{option.help} {shown}.")


def _type(option: Option) -> str:
    if option.name in _OBJECTS:
        return "Any"
    text = f"Literal[{', '.join(map(json.dumps, option.choices))}]" if option.choices else option.kind.__name__
    text = f"Sequence[{text}]" if option.many else text
    return f"{text} | None" if option.optional else text


def _constant(source: str, name: str) -> Any:
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for t in node.targets):
            return ast.literal_eval(node.value)
    raise ValueError(f"there is no {name}: expected _MODULES = {{module: [names]}} and _ROOMS = (package,)")


def _import(module: str, names: Sequence[str]) -> str:
    """One import statement, formatted as by ``make format``."""
    ordered = sorted(names, key=_place)
    line = f"from metaroll.{module} import {', '.join(ordered)}\n"
    if len(line) <= _WIDTH + 1:
        return line
    rows = "".join(f"    {name},\n" for name in ordered)
    return f"from metaroll.{module} import (\n{rows})\n"


def _place(name: str) -> tuple[int, str]:
    """Sort key: constants, then classes, then functions."""
    kind = 0 if name.isupper() and len(name) > 1 else 1 if name[:1].isupper() else 2
    return kind, name


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the files, or check that they are up to date."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--write", action="store_true", help="write the files")
    action.add_argument("--check", action="store_true", help="compare the files with their sources")
    args = parser.parse_args(arguments)
    texts = {
        STUB: stub_text((PACKAGE / "__init__.py").read_text("utf-8")),
        CONFIGS: configs_text((PACKAGE / "configs" / "__init__.py").read_text("utf-8")),
        **{room_file(room).with_suffix(".pyi"): room_text(room, room_file(room).read_text("utf-8")) for room in ROOMS},
        AGENT: agent_text((PACKAGE / "training" / "session" / "agent.py").read_text("utf-8")),
        FAMILIES: families_text(),
    }
    if args.write:
        for path, text in texts.items():
            path.write_text(text, "utf-8")
        return 0
    stale = [path for path, text in texts.items() if not (path.is_file() and path.read_text("utf-8") == text)]
    for path in stale:
        print(f"{path} is out of date: run python tools/stubs.py --write", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
