"""Embeddings in npz files, and in npy files with a csv file beside them."""

from __future__ import annotations

import logging
import math
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trivet.io.csv_files import csv_table, unnamed
from trivet.io.table import DataTable, arrow_column, check_embeddings, listed, read_errors
from trivet.io.vector_choice import NO_CHOICE, VectorChoice
from trivet.io.vector_columns import choose, is_usual, stored_vectors
from trivet.runtime.safe_read import check_expanded

log = logging.getLogger("trivet")
PROJECTOR = (("vectors", "metadata"), ("tensors", "metadata"), ("vecs", "meta"))  # how pairs of files are called


def npz_table(path: Path, choice: VectorChoice = NO_CHOICE) -> DataTable:
    """The embeddings of an npz file, and its arrays of a value for each as columns."""
    headers = _npz_headers(path)
    numeric = {name: dtype.kind != "f" for name, (_, dtype) in headers.items() if dtype.kind in "biuf"}
    matrices = {name: integers for name, integers in numeric.items() if len(headers[name][0]) == 2}
    if choice.embedding is None and not any(map(is_usual, matrices)):
        for name in filter(is_usual, headers):  # of objects, or of another shape: that is said
            _check_no_objects(path, repr(name), headers[name][1])
            matrices |= {name: numeric[name]} if name in numeric else {}
    described = {name: f"{dtype} of shape {shape}" for name, (shape, dtype) in headers.items()}
    key = choose(path, matrices, choice.embedding, names=described)
    check_embeddings(path, headers[key][0])
    count = headers[key][0][0]
    shapes = {name: shape for name, (shape, dtype) in headers.items() if name != key and dtype.kind in "biufUSMO"}

    arrays = _opened(path)  # once: opening takes time for each array of the file

    def read(name: str) -> pa.ChunkedArray:
        values = _npz_array(path, arrays, name, headers)
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
        vectors=_npz_array(path, arrays, key, headers),
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
    arrays = _opened(path)
    return [_npz_array(path, arrays, name, headers).astype(np.int64) for name in names]


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


def _opened(path: Path) -> np.lib.npyio.NpzFile:
    with read_errors(path, "npz"):
        return np.lib.npyio.NpzFile(path.open("rb"), own_fid=True)


def _npz_array(path: Path, arrays: np.lib.npyio.NpzFile, name: str, headers: Headers) -> npt.NDArray[Any]:
    _check_no_objects(path, repr(name), headers[name][1])
    with read_errors(path, "npz"):
        return np.asarray(arrays[name])


def npy_table(path: Path, choice: VectorChoice) -> DataTable:
    """The embeddings of an npy file, mapped, and the columns of the csv file beside it, which errors about them name.

    The csv file is `choice.table`, by default the one of the same stem.
    """
    embeddings, table = read_array(path), choice.table or path.with_suffix(".csv")
    check_embeddings(path, embeddings.shape)
    if not table.is_file():
        raise ValueError(
            f"an .npy file needs a csv file that describes its rows: {table} does not exist; write it with a header "
            "and one row per embedding, or name another with --table."
        )
    return with_rows_of(csv_table(table), path, embeddings)


def matrix_table(path: Path, choice: VectorChoice) -> DataTable:
    """A csv file; one of numbers alone, without names, with the columns of the file that describes its rows, if any.

    That file is `choice.table`, by default metadata.tsv beside vectors.tsv, as the projector of TensorBoard has them.
    """
    columns = csv_table(path)
    pairs = (path.with_name(path.name.replace(*names)) for names in PROJECTOR)
    table = choice.table or next((pair for pair in pairs if pair != path and pair.is_file()), None)
    if table is None or columns.names != unnamed(len(columns.names)):
        if choice.table is not None:
            raise ValueError(
                f"--table describes the rows of an .npy file or of numbers without names: {path} names its columns; "
                "leave it out."
            )
        return columns
    vectors = stored_vectors(columns, NO_CHOICE).vectors
    assert vectors is not None
    described = csv_table(table)
    if len(described.names) == 1 and described.count == len(vectors) - 1:  # as the projector reads one column
        log.warning("%s has as many lines as %s, so the first is taken for a label, not for a name.", table, path)
        described = csv_table(table, names=False)
    return with_rows_of(described, path, vectors)


def with_rows_of(columns: DataTable, path: Path, vectors: npt.NDArray[Any]) -> DataTable:
    """The columns of a csv file, and the vectors of another file that it describes."""
    if columns.count != len(vectors):
        raise ValueError(
            f"{columns.path} must hold one row per embedding: it has {columns.count} rows below its header and {path} "
            f"{len(vectors)}; write both from the same items."
        )
    return replace(columns, vectors=vectors)


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
