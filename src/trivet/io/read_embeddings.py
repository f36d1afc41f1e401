"""Reads embeddings from any source: npz, npy with csv, parquet, a folder of shards, or a run folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from trivet.config.base import nearest
from trivet.io.embedding_source import EmbeddingSource
from trivet.io.embedding_table import Vectors, select_rows
from trivet.io.npz_files import read_npy, read_npz
from trivet.io.overwrite_guard import SHARDS, sharded
from trivet.io.parquet_files import read_parquet
from trivet.io.shards import read_shards
from trivet.runtime.progress import work
from trivet.runtime.safe_read import read_json


def read_vectors(
    path: Path,
    *,
    levels: Sequence[str] | None = None,
    table: Path | None = None,
    split: str | None = None,
    text: str | None = None,
    others: bool = False,
) -> Vectors:
    """Read embeddings and what is known of each row.

    * `.npz`: the embeddings are the array "embeddings", "embedding", "features" or "vectors"; every
      one-dimensional array of length N is a column.
    * `.npy`: the embeddings; the columns are in a csv file with a header and N rows. A csv holds texts, kept as
      written; an empty field is a missing value, and so is "nan" in a column of numbers.
    * `.parquet`: the embeddings are a list column of one of the names above, else floating-point columns with one
      prefix, numbered from 0 or 1 (e0, e1, ...); all others that are not nested or binary are columns.
    * a folder of shards, as `trivet embed` writes it: the embeddings are mapped where its `vectors.npy` is there, else
      held in memory; all else is as in a parquet file.
    * the folder of a run: its `embeddings/SPLIT.parquet`.

    The column "id" names the rows, "split" their split, "camera" ("cam", "camid") their camera; "is_query",
    "is_gallery" and "is_junk" hold true or false and say which rows are asked and which retrieved. The others are label
    levels, apart from the row numbers pandas writes (a csv column without a name, `__index_level_0__`).
    Class names are texts: integers "7", also where stored as 7.0; bools "false" and "true".

    Args:
        path: the file or folder.
        levels: the columns that are label levels, in this order, of any type; by default those that hold texts,
            integers, bools or floats that are all integral, in the order of the file; but none with a text of more than
            1,000 characters, and none where less than a fifth of the rows share their value with another row of the
            file (of 20 rows or more): texts and file names are no classes.
        table: the csv file of an npy file; by default the one beside it of the same stem.
        split: the rows of that split only; in a run, the split whose embeddings are read, by default the main one.
        text: a column whose values are wanted as texts of any length, level or not.
        others: also read the columns that are nothing of these, as texts.

    Raises:
        ValueError: if a file is missing, broken or of another kind; if embeddings are not `(N, d)` floating point with
            N, d >= 1, or lengths disagree; if a level or split is not there; if one of the rows read has no class name,
            id, split or camera, or the id of another.
    """
    if table is not None and path.suffix.lower() != ".npy":
        raise ValueError(f"only an .npy file takes a separate table: got {path} and the table {table}; leave it out.")
    if sharded(path):
        with work(f"reading {path.name}"):
            return select_rows(path, read_shards(path), levels, split, text=text, others=others)
    if path.is_dir():
        file = _run_file(path, split)
        with work(f"reading {file.name}"):
            return _read(file, f"{path.resolve().name} ({file.stem})", levels, table, None, text, others)
    if not path.is_file():
        raise ValueError(f"embeddings must be read from a file or a run folder: {path} does not exist; check the path.")
    with work(f"reading {path.name}"):
        return _read(path, path.name, levels, table, split, text, others)


def _read(
    path: Path,
    name: str,
    levels: Sequence[str] | None,
    table: Path | None,
    split: str | None,
    text: str | None,
    others: bool,
) -> Vectors:
    path, source = _open(path, levels, table)
    return select_rows(path, source, levels, split, text=text, name=name, others=others)


def open_vectors(path: Path) -> EmbeddingSource:
    """The embeddings and columns of a file or a folder of shards, before it is known what its columns are.

    Raises:
        ValueError: if it is missing, broken or of another kind.
    """
    with work(f"reading {path.name}"):
        return read_shards(path) if sharded(path) else _open(path, None, None)[1]


def _open(path: Path, levels: Sequence[str] | None, table: Path | None) -> tuple[Path, EmbeddingSource]:
    """The file that holds the columns, and what is in it."""
    suffix = path.suffix.lower()
    if suffix == ".npz":
        return path, read_npz(path, levels)
    if suffix == ".npy":
        return read_npy(path, table or path.with_suffix(".csv"))
    if suffix == ".parquet":
        return path, read_parquet(path)
    raise ValueError(
        f"embeddings must be a .npz, .npy or .parquet file or a run folder: got {path}; save them as one of these."
    )


def _run_file(path: Path, split: str | None) -> Path:
    """The file of the embeddings of a split of a run."""
    if not (path / "config.toml").is_file():
        raise ValueError(
            f"a folder of embeddings must be a run, with a config.toml, or of shards, with a {SHARDS}: {path} has "
            "neither; give the folder `trivet train` or `trivet embed` made, or a .npz, .npy or .parquet file."
        )
    files = {file.stem: file for file in sorted((path / "embeddings").glob("*.parquet"))}
    if not files:
        raise ValueError(
            f"a run must hold embeddings: {path} has no embeddings/*.parquet; write them with `trivet evaluate {path}`."
        )
    if split is None:
        return files.get(_main_split(path), next(iter(files.values())))
    if split not in files:
        raise ValueError(f"the run {path} has no embeddings of the split {split!r}; {nearest(split, files)}")
    return files[split]


def _main_split(path: Path) -> str:
    """The first split of the record; empty where there is no record, or not one that can be read."""
    try:
        record = read_json(path / "record.json", "the record of a run")
        return str(next(iter(record["evaluation"])))
    except (OSError, ValueError, KeyError, TypeError, StopIteration):  # missing, no JSON, or of another form
        return ""
