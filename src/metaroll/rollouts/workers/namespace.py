"""The memory of one worker."""

from __future__ import annotations

from typing import Any

__all__ = ["GlobalNamespace"]


class GlobalNamespace:
    """Empty object, one per worker, first argument of every function that runs there; set attributes on it freely."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"nothing called {name!r} has been stored in this worker's namespace; set it with invoke_all first, and "
            "again after a worker was replaced (SamplerPool.describe_workers() tells), or with SamplerPool.keep, "
            "which does so by itself"
        )
