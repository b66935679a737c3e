"""One JSON object per measurement: printed, and appended to ``benchmarks/results/NAME.jsonl``."""

from __future__ import annotations

import json
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


def versions(*packages: str) -> dict[str, str]:
    """Versions of Python and of the packages that matter for a measurement."""
    return {"python": platform.python_version(), **{name: metadata.version(name) for name in packages}}


def report(name: str, quick: bool, **measurement: Any) -> None:
    """Print ``measurement``; full runs are also appended to the committed results."""
    line = json.dumps({"what": name, "subject": "metaroll", **measurement})
    print(line, flush=True)
    if not quick:
        RESULTS.mkdir(exist_ok=True)
        with open(RESULTS / f"{name}.jsonl", "a", encoding="utf-8") as file:
            file.write(line + "\n")
