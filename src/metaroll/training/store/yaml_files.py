"""YAML files of names and values, written in one piece (``data/doors/yaml_files.py`` reads them)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

import yaml

from metaroll.data.folders.atomic_files import write_text

__all__ = ["write_yaml"]


def write_yaml(path: Path, document: Mapping[str, Any], header: str = "") -> None:
    """Write plain data as YAML, in one piece."""
    text = yaml.dump(dict(document), Dumper=_Dumper, sort_keys=False, allow_unicode=True)
    write_text(path, header + text)


@final
class _Dumper(yaml.SafeDumper):
    """Writes lists and tuples in one line each and everything else in separate lines, without aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_sequence(self, tag: str, sequence: Any, flow_style: bool | None = None) -> yaml.SequenceNode:
        return super().represent_sequence(tag, sequence, True)
