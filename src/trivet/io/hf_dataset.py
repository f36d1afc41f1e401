"""A data set of the library `datasets` of Hugging Face, saved on disk: its arrow files, read by pyarrow alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from trivet.io.overwrite_guard import SPLITS_FILE, STATE
from trivet.io.table import read_errors
from trivet.runtime.safe_read import read_json

INFO = "dataset_info.json"
SPLIT_COLUMN = "split"  # the column that the names of the parts of a dictionary of data sets become


def read_saved(path: Path) -> pa.Table:
    """The rows of a data set, or of all parts of a dictionary of them, whose names become a column `split`.

    The arrow files are memory-mapped. Class numbers (`ClassLabel`) become their names.

    Raises:
        ValueError: if a file is missing or broken, or the parts have different columns.
    """
    if not (path / SPLITS_FILE).is_file():
        return _read_split(path)
    names = _json(path / SPLITS_FILE).get("splits")
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{path / SPLITS_FILE} must list the parts of the data set as 'splits'; save it again.")
    tables = [_read_split(path / Path(name).name) for name in names]
    if SPLIT_COLUMN not in tables[0].column_names:
        tables = [
            table.append_column(SPLIT_COLUMN, pa.repeat(pa.scalar(name), len(table)))
            for name, table in zip(names, tables, strict=True)
        ]
    with read_errors(path, "Hugging Face data set"):
        return pa.concat_tables(tables)


def _read_split(path: Path) -> pa.Table:
    files = _json(path / STATE).get("_data_files")
    if not isinstance(files, list) or not files:
        raise ValueError(f"{path / STATE} must list the arrow files of the data set; save it again.")
    tables = []
    for file in files:
        if not isinstance(file, dict) or not isinstance(file.get("filename"), str):
            raise ValueError(f"{path / STATE} must name each arrow file; save the data set again.")
        data = path / Path(file["filename"]).name  # in the folder itself, whatever the name says
        with read_errors(data, "arrow"):
            tables.append(pa.ipc.open_stream(pa.memory_map(str(data))).read_all())
    with read_errors(path, "Hugging Face data set"):
        table = pa.concat_tables(tables)
    features = _json(path / INFO).get("features") if (path / INFO).is_file() else None
    for name in table.column_names:
        feature = features.get(name) if isinstance(features, dict) else None
        if isinstance(feature, dict) and feature.get("_type") == "ClassLabel":
            named = _named(path, name, table.column(name), feature.get("names"))
            table = table.set_column(table.column_names.index(name), name, named)
    return table


def _named(path: Path, column: str, numbers: pa.ChunkedArray, names: Any) -> pa.ChunkedArray:
    if not isinstance(names, list) or not pa.types.is_integer(numbers.type):
        return numbers
    lowest, highest = (end.as_py() for end in pc.min_max(numbers).values())
    if highest is not None and (highest >= len(names) or lowest < -1):
        raise ValueError(
            f"the column {column!r} of {path} must hold class numbers below {len(names)}, the number of its names: it "
            f"has {lowest} to {highest}; save it again."
        )
    known = pc.if_else(pc.greater_equal(numbers, 0), numbers, None)  # -1 is no class
    return pa.chunked_array([pa.array([str(name) for name in names], pa.string()).take(known)])


def _json(path: Path) -> dict[str, Any]:
    try:
        values = read_json(path, "a description of a data set")
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} must be a json file: {error}; save the data set again.") from None
    if not isinstance(values, dict):
        raise ValueError(f"{path} must be a json object; save the data set again.")
    return values
