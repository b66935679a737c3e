"""The door to YAML files of names and values.

They are read with limits: no configuration is deep or huge, and aliases can make one so.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, final

import yaml

from metaroll.data.doors.plain_files import damage, long_integer, read_text
from metaroll.errors import LARGEST_SEED, DamagedFileError

__all__ = ["parse_yaml", "read_yaml"]

_MOST_BYTES = 2**18
_MOST_ENTRIES = 10_000
_MOST_DEPTH = 20
_MOST_DIGITS = 200
"""Maximum length of an integer, in any notation, with signs, zeros and underscores."""


def read_yaml(path: str | Path, error: type[DamagedFileError] = DamagedFileError, hint: str = "") -> dict[str, Any]:
    """Names and values of a file; nothing for an empty one.

    Args:
        path: The file.
        error: Class of the error for a damaged one.
        hint: Last part of error messages.

    Raises:
        FileNotFoundError: There is no such file.
        DamagedFileError: ``error``: it is not YAML, is not a mapping, gives a name twice, is larger or deeper than any
            configuration, or holds an integer of more bits than a seed.
    """
    with damage(path, error, hint):
        return parse_yaml(read_text(path, _MOST_BYTES, error, hint))


def parse_yaml(text: str) -> dict[str, Any]:
    """Names and values of a text; see ``read_yaml``."""
    try:
        document = _Loader(text).get_single_data()
    except yaml.MarkedYAMLError as caught:
        mark = caught.problem_mark or caught.context_mark
        detail = " ".join(part for part in (caught.context, caught.problem, caught.note) if part)
        raise DamagedFileError(
            f"it is not valid YAML: {' '.join(detail.split())}", None, None if mark is None else mark.line + 1
        ) from caught
    except yaml.YAMLError as caught:
        raise DamagedFileError(f"it is not valid YAML: {' '.join(str(caught).split())}") from caught
    except DamagedFileError:
        raise
    except Exception as caught:  # tags of YAML (!!bool x, !!timestamp x) raise KeyError, AttributeError and more
        detail = f"{type(caught).__name__}: {' '.join(str(caught).split())[:200]}"
        raise DamagedFileError(f"it cannot be read as a configuration ({detail})") from caught
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise DamagedFileError(f"it must hold lines `name: value`, got {type(document).__name__}")
    return document


@final
class _Loader(yaml.SafeLoader):
    """Composes no more, and nothing deeper, than a configuration needs, and no name twice."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = self._entries = 0
        self._sizes: dict[int, int] = {}
        """Entries of each node with all that its aliases refer to, each as often as it is used, by its id."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event, before = self.peek_event(), self._entries
        line = event.start_mark.line + 1
        if self._depth > _MOST_DEPTH:
            raise DamagedFileError(f"it is nested deeper than {_MOST_DEPTH} levels", None, line)
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        if isinstance(event, yaml.AliasEvent) and id(node) not in self._sizes:
            raise DamagedFileError("it contains itself: an alias (*name) must refer to something before it", None, line)
        self._entries += self._sizes[id(node)] if isinstance(event, yaml.AliasEvent) else 1
        self._sizes[id(node)] = self._entries - before
        if self._entries > _MOST_ENTRIES:
            raise DamagedFileError(
                f"it has more than {_MOST_ENTRIES} entries, with what its aliases refer to", None, line
            )
        return node

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        # Before its text is converted, which takes long for numbers to the base of 60.
        if len(node.value) > _MOST_DIGITS or abs(value := super().construct_yaml_int(node)) > LARGEST_SEED:
            raise long_integer(node.value, node.start_mark.line + 1)
        return value

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        names: set[tuple[str, str]] = set()
        for name, _ in node.value:
            if isinstance(name, yaml.ScalarNode):
                if (name.tag, name.value) in names:
                    line = name.start_mark.line + 1
                    raise DamagedFileError(f"it gives {name.value!r} a second time: keep one of them", None, line)
                names.add((name.tag, name.value))
        return node


_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_yaml_int)
