"""Embeddings in npz files, and in npy files with a csv file beside them."""

from __future__ import annotations

import logging
import math
import re
import zipfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trivet.io.csv_files import csv_table, unnamed
from trivet.io.label_columns import PROTOCOL_COLUMNS
from trivet.io.table import DataTable, arrow_column, check_embeddings, listed, read_errors
from trivet.io.vector_choice import NO_CHOICE, VectorChoice
from trivet.io.vector_columns import choose, is_usual, stored_vectors
from trivet.runtime.safe_read import check_expanded

log = logging.getLogger("trivet")
PROJECTOR = (("vectors", "metadata"), ("tensors", "metadata"), ("vecs", "meta"))  # how pairs of files are called
MOST_SETS = 8  # that a message lists
SETS = ("train", "test", "val", "dev")
# In names such as X_train, Xtrain, train_labels, ytr.
SET_WORD = re.compile("(?<![a-z])[xy]?(train|training|tr|test|testing|te|val|validation|dev)[xy]?(?![a-z])")


def npz_table(path: Path, choice: VectorChoice = NO_CHOICE) -> DataTable:
    """The embeddings of an npz file, and its arrays of a value for each as columns."""
    headers = _npz_headers(path)
    key = _key(path, headers, choice)
    check_embeddings(f"the embeddings of {path}", headers[key][0])
    count = headers[key][0][0]
    others = _of_other_sets(path, {name: shape for name, (shape, _) in headers.items()}, key)
    shapes = {
        name: shape
        for name, (shape, dtype) in headers.items()
        if name != key and name not in others and dtype.kind in "biufUSMO"
    }

    types = {True: pa.large_string(), False: pa.null()}  # those of numbers are known once they are read
    arrays = _opened(path)  # once: opening takes time for each array of the file

    def read(name: str) -> pa.ChunkedArray:
        values = _npz_array(path, arrays, name, headers)
        with read_errors(path, "npz"):  # bytes that are not UTF-8
            values = np.char.decode(values, "utf-8") if values.dtype.kind == "S" else values
            return pa.chunked_array([pa.array(values.astype(values.dtype.newbyteorder("=")))])

    return DataTable(
        path,
        {name: types[headers[name][1].kind in "US"] for name, shape in shapes.items() if shape == (count,)},
        count,
        read,
        lambda names: iter(pa.table({name: read(name) for name in names}).to_batches()),
        lambda name: arrow_column(path, name, read(name)),
        vectors=_npz_array(path, arrays, key, headers),
        shapes={name: shape for name, shape in shapes.items() if shape != (count,)},
    )


def arrays_of_rows(path: Path, choice: VectorChoice) -> list[str]:
    """The arrays of an npz file that have an entry for each of the embeddings."""
    headers = _npz_headers(path)
    key = _key(path, headers, choice)
    shapes = {name: shape for name, (shape, _) in headers.items()}
    others = _divided(shapes, key)[1]
    return [name for name, shape in shapes.items() if shape[:1] == shapes[key][:1] and name not in others]


def _key(path: Path, headers: Headers, choice: VectorChoice) -> str:
    """The array of the embeddings."""
    numeric = {name: dtype.kind != "f" for name, (_, dtype) in headers.items() if dtype.kind in "biuf"}
    matrices = {name: integers for name, integers in numeric.items() if len(headers[name][0]) == 2}
    if choice.embedding is None and not any(map(is_usual, matrices)):
        for name in filter(is_usual, headers):  # of objects, or of another shape: that is said
            _check_no_objects(path, repr(name), headers[name][1])
            matrices |= {name: numeric[name]} if name in numeric else {}
    described = {name: f"{dtype} of shape {shape}" for name, (shape, dtype) in headers.items()}
    return choose(path, matrices, choice.embedding, names=described)


def _of_other_sets(path: Path, shapes: Mapping[str, tuple[int, ...]], key: str) -> list[str]:
    """The arrays that describe other vectors of an npz file than those of `key`, such as y_test beside X_train.

    Raises:
        ValueError: if it cannot be told of which set an array is.
    """
    vectors, others, unclear = _divided(shapes, key)
    if unclear:
        raise ValueError(
            f"{path} holds several sets, {listed(vectors)}, and of which {listed(unclear)} is cannot be told; "
            f"{how_to_join(path, shapes, vectors)}"
        )
    if left := [name for name in others if len(shapes[name]) == 1]:
        log.warning(
            "%s holds several sets: %s is read, and %s left out as of another; rename what belongs to it. For all of "
            "them, %s",
            path,
            key,
            listed(left),
            how_to_join(path, shapes, vectors),
        )
    return others


def how_to_join(path: Path, shapes: Mapping[str, tuple[int, ...]], vectors: Sequence[str]) -> str:
    """The lines of Python that save some sets of an npz file as one, with a column split."""
    if len(vectors) > MOST_SETS:
        return "save them as one file with a column split."
    arrays, labels, counts = [], [], []
    for name in vectors:
        foreign = {word for group in _divided(shapes, name)[1:] for word in group}
        columns = [other for other, shape in shapes.items() if shape == shapes[name][:1] and other not in foreign]
        arrays.append(f"a[{name!r}]")
        labels.append(f"a[{columns[0]!r}]" if columns else f"LABELS_OF_{name}")
        counts.append(shapes[name][0])
    splits = [_set_word(name) or name for name in vectors]
    return (
        f"save one file with a column split: a = numpy.load({str(path)!r}); numpy.savez({f'{path.stem}_all.npz'!r}, "
        f"embeddings=numpy.concatenate([{', '.join(arrays)}]), label=numpy.concatenate([{', '.join(labels)}]), "
        f"split=numpy.repeat({splits}, {counts}))"
    )


def _divided(shapes: Mapping[str, tuple[int, ...]], key: str) -> tuple[list[str], list[str], list[str]]:
    """The vectors of all sets, `key` first; the arrays of other sets than its; and those of which this is unclear.

    The names of two sets differ in one piece, which their labels share, or in a word of `SETS`.
    """
    alike = [name for name, shape in shapes.items() if len(shape) == 2 and shape[1:] == shapes[key][1:]]
    sets = [name for name in alike if name != key]
    word, words = _set_word(key), {_set_word(name) for name in sets} - {_set_word(key), None}
    rows = [shapes[name][0] for name in (key, *sets)]
    shared = {(sum(rows),), *([(rows[0],)] if rows[0] in rows[1:] else [])}
    differences = {_difference(key, name) for name in sets}
    others, unclear = [], []
    for name in shapes.keys() - {key, *PROTOCOL_COLUMNS}:
        of = _set_word(name)
        if (of and of != word and (word or of in words)) or any(
            theirs in name and _is_counterpart(name, ours, theirs, shapes) for ours, theirs in differences
        ):
            others.append(name)
        elif word and words and not of and shapes[name] in shared:
            unclear.append(name)
    return [key, *sets], sorted(others), sorted(unclear)


def _set_word(name: str) -> str | None:
    """The word of `SETS` that the name of an array has; None without one."""
    match = SET_WORD.search(re.sub("([a-z])([A-Z])", r"\1_\2", name).lower())
    return None if match is None else next(word for word in SETS if word[:2] == match[1][:2])


def _difference(first: str, second: str) -> tuple[str, str]:
    """The pieces in which two names differ, between the start and the end that they share."""
    start = _common(first, second)
    end = _common(first[start:][::-1], second[start:][::-1])
    return first[start : len(first) - end], second[start : len(second) - end]


def _is_counterpart(name: str, ours: str, theirs: str, names: Collection[str]) -> bool:
    """Test whether a name is another of the file once it has the piece of our vectors for that of theirs."""
    positions = [match.start() for match in re.finditer(re.escape(theirs), name)]
    renamed = {name[:position] + ours + name[position + len(theirs) :] for position in positions}
    return not renamed.isdisjoint(names)


def _common(first: str, second: str) -> int:
    """The length of the start that two texts share."""
    return next(
        (i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), min(len(first), len(second))
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
    check_embeddings(f"the embeddings of {path}", embeddings.shape)
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
                f"--table describes the rows of an .npy file or of numbers alone, without names: {path} has more; "
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
