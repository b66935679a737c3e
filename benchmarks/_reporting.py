"""One JSON object per measurement: checked, printed, and appended to ``benchmarks/results/NAME.jsonl``."""

from __future__ import annotations

import functools
import json
import math
import platform
import re
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"

_KEYS = ("what", "subject", "peer", "metric", "value", "unit", "ratio", "slots", "config", "versions")
_TEXTS = ("what", "subject", "peer", "metric", "unit")
_NAME = re.compile(r"[a-z0-9]+(?:[-_.][a-z0-9]+)*")


def versions(*packages: str) -> dict[str, str]:
    """Versions of Python and of the packages that matter for a measurement, as far as they are installed."""
    installed = {"python": platform.python_version()}
    for name in packages:
        try:
            installed[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return installed


@functools.cache
def machine() -> dict[str, str]:
    """The processor and the BLAS kernels: speeds on different ones cannot be compared."""
    from threadpoolctl import threadpool_info

    try:
        named = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        named = None
    kernels = [
        f"{pool['internal_api']} {pool['version']} ({pool.get('architecture', 'unknown')})"
        for pool in threadpool_info()
        if pool["user_api"] == "blas"
    ]
    return {"processor": named[1] if named else platform.processor() or platform.machine(), "blas": ", ".join(kernels)}


def check_line(line: Any) -> None:
    """Raise ``ValueError`` unless ``line`` is a measurement with all keys of the schema and the right types.

    Required are ``what``, ``subject``, ``peer``, ``metric``, ``value``, ``unit``, ``ratio``, ``slots``, ``config`` and
    ``versions``; more are allowed. ``peer`` is the other package's lower-case PyPI name, or ``floor``, ``loop``,
    ``policy``, ``numpy``, ``eager``, ``published`` or ``none``. ``ratio`` above 1 means that ours is better, except for
    ``metric=evaluations``, where it is ours over the peer's; it and ``slots`` are null where meaningless.
    ``value`` is null only where ``missing`` gives the reason.
    """
    if not isinstance(line, Mapping):
        raise ValueError(f"a measurement must be an object, got {line!r}")
    absent = [key for key in _KEYS if key not in line]
    if absent:
        raise ValueError(f"a measurement must have {', '.join(_KEYS)}; {', '.join(absent)} not found in {line!r}")
    for key in _TEXTS:
        if not isinstance(line[key], str) or not line[key]:
            raise ValueError(f"{key} must be a string that is not empty, got {line[key]!r}")
    if not _NAME.fullmatch(line["peer"]):
        raise ValueError(f"peer must be a lower-case PyPI name (or floor, loop, ...), got {line['peer']!r}")
    if "missing" in line:
        if line["value"] is not None or not isinstance(line["missing"], str) or not line["missing"]:
            raise ValueError(f"missing must give the reason, and value must be null, got {line!r}")
    elif not _is_number(line["value"]):
        raise ValueError(f"value must be a finite number, got {line['value']!r}")
    if line["ratio"] is not None and not (_is_number(line["ratio"]) and line["ratio"] >= 0):
        raise ValueError(f"ratio must be a finite number of at least 0, or null, got {line['ratio']!r}")
    slots = line["slots"]
    if slots is not None and (isinstance(slots, bool) or not isinstance(slots, int) or slots < 1):
        raise ValueError(f"slots must be a whole number of at least 1, or null, got {slots!r}")
    if not isinstance(line["config"], Mapping):
        raise ValueError(f"config must be an object, got {line['config']!r}")
    known = line["versions"]
    if not isinstance(known, Mapping) or "python" not in known or not all(isinstance(v, str) for v in known.values()):
        raise ValueError(f"versions must name at least Python's, got {known!r}")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def report(
    what: str,
    quick: bool,
    *,
    peer: str,
    metric: str,
    value: float | None,
    unit: str,
    config: Mapping[str, Any],
    versions: Mapping[str, str],
    ratio: float | None = None,
    slots: int | None = None,
    **more: Any,
) -> dict[str, Any]:
    """Print a measurement (see ``check_line``); those of full runs are also appended to the committed results."""
    head = {"what": what, "subject": "metaroll", "peer": peer, "metric": metric, "value": value, "unit": unit}
    line = {**head, "ratio": ratio, "slots": slots, "config": dict(config), **more}
    line |= {"machine": machine(), "versions": dict(versions)}
    check_line(line)
    text = json.dumps(line, allow_nan=False)
    print(text, flush=True)
    if not quick:
        RESULTS.mkdir(exist_ok=True)
        with open(RESULTS / f"{what}.jsonl", "a", encoding="utf-8") as file:
            file.write(text + "\n")
    return line


def report_missing(what: str, quick: bool, *, peer: str, reason: str, **known: Any) -> dict[str, Any]:
    """Report that a peer could not be measured, and why; ``known`` as in ``report``, without a value."""
    return report(what, quick, peer=peer, value=None, missing=reason, **known)


def read_results(what: str) -> list[dict[str, Any]]:
    """Lines of ``results/<what>.jsonl``, oldest first; empty without such a file."""
    path = RESULTS / f"{what}.jsonl"
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def newest_of(what: str, metric: str, config: Mapping[str, Any]) -> dict[str, Any] | None:
    """The newest line of a metric with exactly this ``config``; lines of other settings are ignored."""
    wanted = json.loads(json.dumps(dict(config)))
    lines = [line for line in read_results(what) if line["metric"] == metric and line["config"] == wanted]
    return lines[-1] if lines else None
