"""Limits on the memory that reading a file may take, so that a small file cannot fill the machine."""

from __future__ import annotations

from typing import final

from metaroll.errors import DamagedFileError

__all__ = ["MAX_BYTES", "Budget"]

MAX_BYTES = 2**30
"""Bytes that a file may take by default."""
_ENTRY = 64
"""Approximate bytes of an entry (a value in a list or a dict), without its content."""


@final
class Budget:
    """Bytes of memory that reading a file may take; entries count as the bytes that Python needs for each.

    Args:
        max_bytes: How many.
        hint: A hint where they are not enough; empty if there is nothing.
    """

    def __init__(self, max_bytes: int = MAX_BYTES, hint: str = "") -> None:
        self._max_bytes = self._left = max_bytes
        self._hint = hint

    @classmethod
    def of_file(cls, size: int, factor: int, max_bytes: int = MAX_BYTES, hint: str = "") -> Budget:
        """The budget for a file of ``size`` bytes, which may always take ``factor`` times its size."""
        return cls(max(max_bytes, factor * size), hint)

    def beside(self) -> Budget:
        """Another budget of the same size, for temporary memory."""
        return Budget(self._max_bytes, self._hint)

    def spend(self, count: int, what: str) -> None:
        """Take ``count`` bytes for ``what``, before they are allocated.

        Raises:
            DamagedFileError: Fewer are left.
        """
        self._left -= max(count, 0)
        if self._left < 0:
            hint = f"; {self._hint}" if self._hint else ""
            raise DamagedFileError(f"it would take more than {self._max_bytes} bytes of memory ({what}){hint}")

    def spend_entries(self, count: int, what: str) -> None:
        """Take the bytes of ``count`` entries of lists and dicts; see ``spend``."""
        self.spend(_ENTRY * count, what)
