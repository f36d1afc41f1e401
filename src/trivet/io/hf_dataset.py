"""A data set of the library `datasets` of Hugging Face, saved on disk: its arrow files, read by pyarrow alone."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from trivet.io.overwrite_guard import SPLITS_FILE, STATE
from trivet.io.table import read_errors
from trivet.runtime.safe_read import check_expanded, check_regular, read_json

INFO = "dataset_info.json"
NAMES = pa.dictionary(pa.int64(), pa.string())
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
    _check_different(path / SPLITS_FILE, [Path(name).name for name in names])
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
    paths = []
    for file in files:
        if not isinstance(file, dict) or not isinstance(file.get("filename"), str):
            raise ValueError(f"{path / STATE} must name each arrow file; save the data set again.")
        paths.append(path / Path(file["filename"]).name)  # in the folder itself, whatever the name says
    _check_different(path / STATE, paths)
    tables = [_read_file(file) for file in paths]
    with read_errors(path, "Hugging Face data set"):
        table = pa.concat_tables(tables)
    features = _json(path / INFO).get("features") if (path / INFO).is_file() else None
    for name in table.column_names:
        feature = features.get(name) if isinstance(features, dict) else None
        if isinstance(feature, dict) and feature.get("_type") == "ClassLabel":
            named = _named(path, name, table.column(name), feature.get("names"))
            table = table.set_column(table.column_names.index(name), name, named)
    return table


def _check_different(path: Path, names: Sequence[object]) -> None:
    """ValueError if a file names another twice, so that its rows would be read as often."""
    if len(set(names)) < len(names):
        raise ValueError(f"{path} must name each part of the data set once: it names one twice; save it again.")


def _read_file(path: Path) -> pa.Table:
    """The rows of an arrow file, mapped, of which every value is checked to be one."""
    check_regular(path, "a part of a data set")
    with read_errors(path, "arrow"):
        # As a buffer, whose end the reader knows: a map does not check that what it gives lies within the file.
        content = pa.memory_map(str(path)).read_buffer()
        expanded = sum(map(_expanded, pa.ipc.MessageReader.open_stream(pa.BufferReader(content))))
    check_expanded(path, expanded)
    with read_errors(path, "arrow"):
        table = pa.ipc.open_stream(pa.BufferReader(content)).read_all()
        table.validate(full=True)
    return table


def _expanded(message: pa.ipc.Message) -> int:
    """The bytes that the buffers of a message have when they are decompressed; 0 if none is compressed.

    Source:
        "Arrow Columnar Format", IPC messages: Message.fbs.
    """
    content = memoryview(message.metadata)

    def number(form: str, offset: int) -> int:
        return int(struct.unpack_from(form, content, offset)[0])

    def entry(table: int, index: int) -> int:
        """The offset of what an entry of a table points at, or 0 if it is left out."""
        entries = table - number("<i", table)
        offset = number("<H", entries + 4 + 2 * index) if 4 + 2 * index < number("<H", entries) else 0
        return table + offset + number("<I", table + offset) if offset else 0

    batch = entry(number("<I", 0), 2)
    if message.type == "dictionary batch":
        batch = entry(batch, 1)
    if message.type == "schema" or not entry(batch, 3):
        return 0
    buffers = entry(batch, 2)
    offsets = [buffers + 4 + 16 * index for index in range(number("<I", buffers))]
    starts = [number("<q", offset) for offset in offsets if number("<q", offset + 8)]  # those that are not empty
    return sum(int.from_bytes(message.body[start : start + 8], "little", signed=True) for start in starts)


def _named(path: Path, column: str, numbers: pa.ChunkedArray, names: Any) -> pa.ChunkedArray:
    if not isinstance(names, list) or not pa.types.is_integer(numbers.type):
        return numbers
    lowest, highest = (end.as_py() for end in pc.min_max(numbers).values())
    if highest is not None and (highest >= len(names) or lowest < -1):
        raise ValueError(
            f"the column {column!r} of {path} must hold class numbers below {len(names)}, the number of its names: it "
            f"has {lowest} to {highest}; save it again."
        )
    known = pc.if_else(pc.greater_equal(numbers, 0), numbers, None).cast(pa.int64())  # -1 is no class
    texts = pa.array([str(name) for name in names], pa.string())
    return pa.chunked_array([pa.DictionaryArray.from_arrays(chunk, texts) for chunk in known.chunks], NAMES)


def _json(path: Path) -> dict[str, Any]:
    try:
        values = read_json(path, "a description of a data set")
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} must be a json file: {error}; save the data set again.") from None
    if not isinstance(values, dict):
        raise ValueError(f"{path} must be a json object; save the data set again.")
    return values
