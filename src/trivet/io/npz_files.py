"""Embeddings in npz files, and in npy files with a csv file beside them."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trivet.io.csv_files import csv_table
from trivet.io.table import DataTable, arrow_column, check_embeddings, listed, read_errors
from trivet.io.vector_columns import EMBEDDINGS
from trivet.runtime.safe_read import check_expanded


def npz_table(path: Path) -> DataTable:
    """The embeddings of an npz file, and its arrays of a value for each as columns."""
    headers = _npz_headers(path)
    key = next((name for name in EMBEDDINGS if name in headers), None)
    if key is None:
        candidates = [name for name, (shape, dtype) in headers.items() if len(shape) == 2 and dtype.kind == "f"]
        guess = f"; if {candidates[0]!r} are the embeddings, save them under that name" if len(candidates) == 1 else ""
        raise ValueError(
            f"{path} must hold the embeddings as 'embeddings', 'embedding', 'features' or 'vectors': it has "
            f"{listed(list(headers))}{guess or '; name the (N, d) floating-point array so'}."
        )
    _check_no_objects(path, repr(key), headers[key][1])
    check_embeddings(path, *headers[key])
    count = headers[key][0][0]
    shapes = {name: shape for name, (shape, dtype) in headers.items() if name != key and dtype.kind in "biufUSMO"}

    def read(name: str) -> pa.ChunkedArray:
        values = _npz_array(path, name, headers)
        with read_errors(path, "npz"):  # bytes that are not UTF-8
            values = np.char.decode(values, "utf-8") if values.dtype.kind == "S" else values
            return pa.chunked_array([pa.array(values.astype(values.dtype.newbyteorder("=")))])

    return DataTable(
        path,
        {name: pa.null() for name, shape in shapes.items() if shape == (count,)},  # known once they are read
        count,
        read,
        lambda names: iter(pa.table({name: read(name) for name in names}).to_batches()),
        lambda name: arrow_column(path, name, read(name)),
        vectors=_npz_array(path, key, headers),
        shapes={name: shape for name, shape in shapes.items() if shape != (count,)},
    )


def read_integers(path: Path, names: Sequence[str]) -> list[npt.NDArray[np.int64]]:
    """One-dimensional arrays of whole numbers of an npz file.

    Raises:
        ValueError: if the file is broken, one is not in it, or holds something else.
    """
    headers = _npz_headers(path)
    for name in names:
        shape, dtype = headers.get(name, ((), np.dtype(object)))
        if len(shape) != 1 or dtype.kind not in "iu":
            raise ValueError(
                f"{path} must hold the arrays {' and '.join(names)}, each (N,) of whole numbers: it has "
                f"{listed(list(headers))}; save it again."
            )
    return [_npz_array(path, name, headers).astype(np.int64) for name in names]


Headers = dict[str, tuple[tuple[int, ...], np.dtype[Any]]]


def _npz_headers(path: Path) -> Headers:
    """Shape and dtype of each array of an npz file, whose sizes are checked."""
    headers, total = {}, 0
    with read_errors(path, "npz"), zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            if member.filename.endswith(".npy"):
                with archive.open(member) as file:
                    headers[member.filename.removesuffix(".npy")] = shape, dtype = _header(file)
                    _check_size(shape, dtype, member.file_size - file.tell())
                total += member.file_size
    check_expanded(path, total)
    return headers


def _npz_array(path: Path, name: str, headers: Headers) -> npt.NDArray[Any]:
    _check_no_objects(path, repr(name), headers[name][1])
    with read_errors(path, "npz"), np.load(path, allow_pickle=False) as arrays:
        return np.asarray(arrays[name])


def npy_table(path: Path, table: Path | None = None) -> DataTable:
    """The embeddings of an npy file, mapped, and the columns of the csv file beside it, which errors about them name.

    Args:
        table: the csv file; by default the one of the same stem.
    """
    embeddings, table = read_array(path), table or path.with_suffix(".csv")
    check_embeddings(path, embeddings.shape, embeddings.dtype)
    if not table.is_file():
        raise ValueError(
            f"an .npy file needs a csv file that describes its rows: {table} does not exist; write it with a header "
            "and one row per embedding, or name another table."
        )
    columns = csv_table(table)
    if columns.count != len(embeddings):
        raise ValueError(
            f"{table} must hold one row per embedding: it has {columns.count} rows below its header and {path} "
            f"{len(embeddings)}; write both from the same items."
        )
    return replace(columns, vectors=embeddings)


def read_array(path: Path) -> npt.NDArray[Any]:
    """The array of an npy file, a read-only memory map; ValueError if the file is broken, or holds Python objects."""
    with read_errors(path, "npy"), path.open("rb") as file:
        shape, dtype = _header(file)
        available = path.stat().st_size - file.tell()
    _check_no_objects(path, "it", dtype)
    with read_errors(path, "npy"):
        _check_size(shape, dtype, available)
        return np.lib.format.open_memmap(path, mode="r") if 0 not in shape else np.empty(shape, dtype)


def _check_size(shape: tuple[int, ...], dtype: np.dtype[Any], available: int) -> None:
    """ValueError unless the values of an array take the bytes that are there for them."""
    if not dtype.hasobject and math.prod(shape) * dtype.itemsize != available:
        raise ValueError(f"it holds {available} bytes for an array of shape {shape} of {dtype}")


def _header(file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and dtype of an npy file, which tell objects before anything is unpickled."""
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(file)
    return shape, dtype


def _check_no_objects(path: Path, what: str, dtype: np.dtype[Any]) -> None:
    if dtype.hasobject:
        raise ValueError(
            f"{path} must hold numbers and texts only: {what} holds Python objects, which are never loaded; "
            "save texts with .astype(str), and vectors, which have one length, with np.stack."
        )
