"""Embeddings in a folder of shards: parquet files of so many rows, which several processes write, and one npy file.

shards.json           what the shards are of, written first
part-00000.parquet    the rows of the first items: id, columns, embedding; written whole, as all of these
...
vectors.npy           the embeddings of all rows `(N, d)` float32, to be memory-mapped; written last
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet

from trivet.io.atomic_files import PARTIAL, atomic_file, write_json
from trivet.io.npz_files import read_array
from trivet.io.overwrite_guard import EMBEDDED, SHARDS
from trivet.io.parquet_files import open_parquet, parquet_table, table_of
from trivet.io.table import DataTable, check_embeddings, concatenated
from trivet.io.vector_columns import EMBEDDING, vector_blocks, vector_columns
from trivet.runtime.record import Record
from trivet.runtime.safe_read import parse_json, read_json

VECTORS = "vectors.npy"
SHARD_FILE = re.compile(r"part-(?P<number>[0-9]{5,})\.parquet")
LOCKS = re.compile(r"\.lock|\..+\.trivet-lock")
SHARD = b"trivet.shard"  # in the metadata of a parquet file: `ShardMark`
ROWS_PER_SHARD, MOST_SHARDS = 65536, 10**6


class Manifest(Record):
    """Content of `shards.json`.

    `key` names the model, the data and the rows of a shard; `items` counts what is to be embedded, of which some may
    turn out to be unreadable.
    """

    key: str
    trivet: str
    model: str
    data: str
    inputs: str
    items: int
    rows_per_shard: int
    dimension: int
    columns: list[str]
    levels: list[str]


class Skip(Record):
    """An image that could not be read."""

    id: str
    reason: str


class ShardMark(Record):
    """Mark of a shard in its metadata.

    Attributes:
        file_times, contents: fingerprints of the files of its items, if each is one: by size and times, and by bytes.
    """

    key: str
    number: int
    skipped: list[Skip]
    file_times: str = ""
    contents: str = ""


def count_shards(manifest: Manifest) -> int:
    """Number of shards when all are written."""
    return -(-manifest.items // manifest.rows_per_shard)


def shard_path(folder: Path, number: int) -> Path:
    """The file of a shard, counted from 0."""
    return folder / f"part-{number:05d}.parquet"


def missing(folder: Path, manifest: Manifest) -> list[int]:
    """The shards that are not there yet."""
    return [number for number in range(count_shards(manifest)) if not shard_path(folder, number).is_file()]


def is_shard_file(name: str) -> bool:
    """Test whether a file in a folder of shards is one that Trivet writes there, or left there when it was killed."""
    partial = PARTIAL.fullmatch(name)
    name = partial["name"] if partial else name
    return name in (SHARDS, VECTORS) or SHARD_FILE.fullmatch(name) is not None or LOCKS.fullmatch(name) is not None


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write `shards.json`."""
    write_json(folder / SHARDS, manifest.as_json())


def read_manifest(folder: Path) -> Manifest:
    """Read `shards.json`; ValueError if it is missing or broken."""
    path = folder / SHARDS
    try:
        manifest = Manifest.read(read_json(path, "a list of shards"))
        if min(manifest.items, manifest.rows_per_shard, manifest.dimension) < 1:
            raise ValueError("it counts less than one")
        if count_shards(manifest) > MOST_SHARDS:
            raise ValueError(f"it counts {count_shards(manifest)} shards, and at most {MOST_SHARDS} are made")
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} must say what the shards beside it are: {error}; embed the items again.") from None
    return manifest


def write_shard(
    folder: Path,
    manifest: Manifest,
    mark: ShardMark,
    embeddings: npt.NDArray[Any],
    ids: Sequence[str],
    columns: Mapping[str, npt.NDArray[Any]],
) -> None:
    """Write the rows of one shard, which may be none if no image could be read.

    Args:
        embeddings: `(n, d)`.
        ids, columns: n values each.
    """
    assert list(columns) == manifest.columns
    metadata = {EMBEDDED: manifest.model, SHARD.decode(): mark.model_dump_json()}
    table = table_of(embeddings, ids, columns, levels=manifest.levels, metadata=metadata)
    with atomic_file(shard_path(folder, mark.number)) as partial:
        # Random digits are not smaller when compressed, and a dictionary of them is larger.
        texts = ["id", *manifest.columns]
        pa.parquet.write_table(table, partial, use_dictionary=texts, compression=dict.fromkeys(texts, "snappy"))


def write_vectors(folder: Path, manifest: Manifest) -> None:
    """Write `vectors.npy`, once all shards are there; at most some thousand rows are held at once."""
    table = _rows(folder, manifest)
    shape = (table.count, manifest.dimension)
    with atomic_file(folder / VECTORS) as partial, partial.open("wb") as sink:
        header = {"descr": np.lib.format.dtype_to_descr(np.dtype(np.float32)), "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(sink, header)
        for _, rows in vector_blocks(table, vector_columns(table)[EMBEDDING]):
            rows.tofile(sink)


def open_shards(folder: Path, manifest: Manifest, numbers: Sequence[int] | None = None) -> list[pa.parquet.ParquetFile]:
    """Some or all shards, checked to be of this folder.

    Raises:
        ValueError: if one is missing or broken, or of other embeddings.
    """
    if numbers is None:
        numbers = range(count_shards(manifest))
        if lacking := missing(folder, manifest):
            raise ValueError(
                f"{folder} must hold all its shards: {len(lacking)} of {len(numbers)} are missing, first "
                f"{shard_path(folder, lacking[0]).name}; go on with the same trivet embed, which writes only these."
            )
    return [_open_shard(shard_path(folder, number), manifest, number) for number in numbers]


def _open_shard(path: Path, manifest: Manifest, number: int) -> pa.parquet.ParquetFile:
    file = open_parquet(path)
    mark = mark_of(path, file)
    again = "remove it, and go on with the same trivet embed."
    if mark.key != manifest.key or mark.number != number:
        reason = "of other embeddings" if mark.key != manifest.key else f"number {mark.number}"
        raise ValueError(
            f"the shards of a folder must be of one model and the same items: {path} is {reason} than {SHARDS} says; "
            f"{again}"
        )
    names = ["id", *manifest.columns, EMBEDDING]
    if file.schema_arrow.names != names:
        raise ValueError(f"{path} must have the columns {', '.join(names)}: got {file.schema_arrow.names}; {again}")
    if file.metadata.num_rows + len(mark.skipped) != _items_of(manifest, number):
        raise ValueError(
            f"{path} must hold {_items_of(manifest, number)} items: it has {file.metadata.num_rows}, and names "
            f"{len(mark.skipped)} that could not be read; {again}"
        )
    kind = file.schema_arrow.field(EMBEDDING).type
    width = getattr(kind, "list_size", None)  # of a list of one length
    if width != manifest.dimension or kind.value_type != pa.float32():
        raise ValueError(
            f"the embeddings of {path} must be {manifest.dimension} numbers in float32, as {SHARDS} says: got "
            f"{kind}; {again}"
        )
    return file


def mark_of(path: Path, file: pa.parquet.ParquetFile) -> ShardMark:
    """Read the mark of a shard; ValueError if there is none."""
    try:
        return ShardMark.read(parse_json((file.schema_arrow.metadata or {})[SHARD].decode()))
    except (KeyError, ValueError) as error:
        reason = "it says of no shard that it is one" if isinstance(error, KeyError) else str(error)
        raise ValueError(
            f"{path} must be a shard that trivet embed wrote: {reason}; remove it, and go on with the same command."
        ) from None


def _items_of(manifest: Manifest, number: int) -> int:
    rows = manifest.rows_per_shard
    return min(rows, manifest.items - number * rows)


def shards_table(folder: Path) -> DataTable:
    """The columns of a folder of shards, and its embeddings: `vectors.npy`, mapped, or else those of a column.

    Raises:
        ValueError: if a shard or what it holds is missing, broken, or of other embeddings.
    """
    manifest = read_manifest(folder)
    table, path = _rows(folder, manifest), folder / VECTORS
    shape = (table.count, manifest.dimension)
    check_embeddings(f"the embeddings of {folder}", shape)
    if not path.is_file():
        return table
    mapped = read_array(path)
    if mapped.shape != shape or mapped.dtype != np.float32:
        raise ValueError(
            f"{path} must hold the {shape[0]} x {shape[1]} numbers in float32 of the shards beside it: got "
            f"{mapped.dtype} of shape {mapped.shape}; remove it, and go on with the same trivet embed."
        )
    return replace(table.without([EMBEDDING]), vectors=mapped)


def _rows(folder: Path, manifest: Manifest) -> DataTable:
    files = open_shards(folder, manifest)
    return concatenated(folder, [parquet_table(shard_path(folder, number), file) for number, file in enumerate(files)])
