"""The door to CSV: cells are counted before they are made."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from metaroll.data.doors.budget import Budget
from metaroll.errors import DamagedFileError

__all__ = ["parse_csv"]


def parse_csv(
    text: str, budget: Budget, *, delimiter: str = ",", skip_space: bool = False, lines_before: int = 0
) -> Sequence[list[str]]:
    """The rows of cells of a text.

    Args:
        text: The content of the file, perhaps without its first lines.
        budget: Memory that they may take.
        delimiter: Between cells.
        skip_space: Whether blanks after a delimiter belong to no cell.
        lines_before: Lines of the file before the text.

    Raises:
        DamagedFileError: It is not CSV (names the line), or takes too much.
    """
    budget.spend(4 * len(text), "its text")
    budget.spend_entries(text.count(delimiter) + text.count("\n") + text.count("\r") + 1, "its cells")
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=skip_space)
    try:
        return list(reader)
    except csv.Error as error:
        raise DamagedFileError(f"it is not a valid .csv file: {error}", None, lines_before + reader.line_num) from error
