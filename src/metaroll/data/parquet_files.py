"""Recordings as ``.parquet``: the header lies in the metadata of the schema, every row is a step."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

import numpy as np

from metaroll.data.columns import columns_to_arrays, expected_columns, recording_columns
from metaroll.data.plain_data import to_json
from metaroll.data.recording_format import read_header
from metaroll.data.tables import make_table, open_table, table_values, write_table

__all__ = ["prepare_parquet", "read_parquet"]


def prepare_parquet(header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Callable[[BinaryIO], None]:
    """A function that writes the recording into an open file; whatever cannot be written is an error now."""
    table = make_table(recording_columns(header, arrays, ".parquet"), to_json(header))
    return lambda file: write_table(table, file)


def read_parquet(file: BinaryIO) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Header and arrays of a recording."""
    table, text = open_table(file)
    header = read_header(json.loads(text))
    columns = expected_columns(header, table.num_rows, table.num_columns)
    return header, columns_to_arrays(header, [table_values(table, i, column) for i, column in enumerate(columns)])
