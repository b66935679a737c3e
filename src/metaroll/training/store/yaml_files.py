"""YAML files of names and values, written in one piece.

They are read with limits: nobody needs a deep or a huge one, and aliases can make one.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

import yaml

from metaroll.data.folders.atomic_files import write_text

__all__ = ["read_yaml", "write_yaml"]

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
        document = _Loader(path.read_text(encoding="utf-8")).get_single_data()
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not valid YAML: {' '.join(str(error).split())}") from error
    except ValueError as error:
        raise ValueError(f"{path} cannot be read as a configuration: {error}") from error
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise ValueError(f"{path} must hold lines `name: value`, got {type(document).__name__}")
    return document


def write_yaml(path: Path, document: Mapping[str, Any], header: str = "") -> None:
    """Write plain data as YAML, in one piece."""
    text = yaml.dump(dict(document), Dumper=_Dumper, sort_keys=False, allow_unicode=True)
    write_text(path, header + text)


@final
class _Dumper(yaml.SafeDumper):
    """Writes lists and tuples in one line each and everything else in lines of its own, without aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_sequence(self, tag: str, sequence: Any, flow_style: bool | None = None) -> yaml.SequenceNode:
        return super().represent_sequence(tag, sequence, True)


@final
class _Loader(yaml.SafeLoader):
    """Composes no more, and nothing deeper, than a configuration needs, and no name twice."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = self._entries = 0
        self._sizes: dict[int, int] = {}
        """Entries of each node with all that its aliases stand for, each as often as it is used, by its id."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event, before = self.peek_event(), self._entries
        line = event.start_mark.line + 1
        if self._depth > _MOST_DEPTH:
            raise ValueError(f"line {line} is nested deeper than {_MOST_DEPTH} levels")
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        if isinstance(event, yaml.AliasEvent) and id(node) not in self._sizes:
            raise ValueError(f"line {line} contains itself: an alias (*name) must stand for something before it")
        self._entries += self._sizes[id(node)] if isinstance(event, yaml.AliasEvent) else 1
        self._sizes[id(node)] = self._entries - before
        if self._entries > _MOST_ENTRIES:
            raise ValueError(f"line {line} has more than {_MOST_ENTRIES} entries, with what its aliases stand for")
        return node

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        names: set[tuple[str, str]] = set()
        for name, _ in node.value:
            if isinstance(name, yaml.ScalarNode):
                if (name.tag, name.value) in names:
                    line = name.start_mark.line + 1
                    raise ValueError(f"line {line} gives {name.value!r} a second time: keep one of them")
                names.add((name.tag, name.value))
        return node
