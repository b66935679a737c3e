"""Cases of ``digests.py``."""

from collections.abc import Callable
from pathlib import Path

from _digest_parts import Parts

CASES: dict[str, Callable[[Path], Parts]] = {}
QUICK: set[str] = set()
