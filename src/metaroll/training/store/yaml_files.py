"""YAML files of names and values, read with limits: nobody needs a deep or a huge one, and aliases can make one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

__all__ = ["read_yaml"]

_MOST_BYTES = 2**18
_MOST_ENTRIES = 10_000
_MOST_DEPTH = 20


def read_yaml(path: Path) -> dict[str, Any]:
    """Names and values of a file; nothing for an empty one.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It is no YAML, is no mapping, gives a name twice, or is larger or deeper than any configuration.
    """
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    size = path.stat().st_size
    if size > _MOST_BYTES:
        raise ValueError(f"{path} must have at most {_MOST_BYTES} bytes to be a configuration, got {size}")
    try:
        document = _document(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not valid YAML: {' '.join(str(error).split())}") from error
    except ValueError as error:
        raise ValueError(f"{path} cannot be read as a configuration: {error}") from error
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise ValueError(f"{path} must hold lines `name: value`, got {type(document).__name__}")
    return document


def _document(text: str) -> Any:
    _check_depth(text)
    loader = yaml.SafeLoader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        _count(node, {}, set())
        return loader.construct_document(node)
    finally:
        loader.dispose()


def _check_depth(text: str) -> None:
    """The parser that gives events needs no stack; what makes a tree of them does."""
    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _MOST_DEPTH:
            line = event.start_mark.line + 1
            raise ValueError(f"line {line} is nested deeper than {_MOST_DEPTH} levels")


def _count(node: yaml.Node, counted: dict[int, int], around: set[int]) -> int:
    """Entries of ``node`` with all that its aliases stand for, each as often as it is used.

    Args:
        node: Part of the document.
        counted: Entries of the parts that were counted before.
        around: The parts that ``node`` lies in.
    """
    key, line = id(node), node.start_mark.line + 1
    if key in around:
        raise ValueError(f"line {line} contains itself: an alias (*name) must stand for something before it")
    if key in counted:
        return counted[key]
    if isinstance(node, yaml.MappingNode):
        _check_names(node)
        parts = [part for pair in node.value for part in pair]
    else:
        parts = node.value if isinstance(node, yaml.SequenceNode) else []
    total = 1
    for part in parts:
        total += _count(part, counted, around | {key})
        if total > _MOST_ENTRIES:
            raise ValueError(f"line {line} has more than {_MOST_ENTRIES} entries, with what its aliases stand for")
    counted[key] = total
    return total


def _check_names(node: yaml.MappingNode) -> None:
    names: set[tuple[str, str]] = set()
    for name, _ in node.value:
        if not isinstance(name, yaml.ScalarNode):
            continue
        if (name.tag, name.value) in names:
            raise ValueError(f"line {name.start_mark.line + 1} gives {name.value!r} a second time: keep one of them")
        names.add((name.tag, name.value))
