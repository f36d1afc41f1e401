"""Reads embeddings and texts with what is known of each row, from files, folders of shards and runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from trivet.config.base import nearest
from trivet.io.embedding_table import Vectors, select_rows
from trivet.io.formats import open_rows, open_vectors, run_embeddings
from trivet.io.overwrite_guard import is_run_folder
from trivet.io.tag_cells import TagCells, with_tags
from trivet.io.vector_choice import NO_CHOICE, VectorChoice
from trivet.io.vector_columns import check_no_vectors, nested_vectors

TEXT = "text"  # the column of texts where none is named


def read_vectors(
    path: Path,
    *,
    levels: Sequence[str] | None = None,
    tags: TagCells | None = None,
    choice: VectorChoice = NO_CHOICE,
    split: str | None = None,
    text: str | None = None,
    others: bool = False,
    cells: bool = False,
    skip_empty: bool | None = None,
) -> Vectors:
    """Read embeddings and what is known of each row.

    * a table (csv, tsv, txt, JSON lines, a JSON array, parquet, a Hugging Face data set saved on disk): the embeddings
      are a column of lists of numbers, also written as texts, or columns with one stem, numbered from 0 or 1 (e0, e1,
      ...); all others that are not nested or binary are columns. A csv holds texts, kept as written; an empty field
      is a missing value, and so is "nan" in a column of numbers. The rows of a csv of numbers alone are described by
      another file, see `trivet.io.npz_files.matrix_table`.
    * `.npz`: the embeddings are a two-dimensional array; every one-dimensional array of length N is a column.
    * `.npy`: the embeddings; the columns are in a csv file with a header and N rows.
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
        tags: what cells of several labels are; by default such a column is no level, and an error where it is named.
        choice: which column holds the embeddings, what whole numbers stand for, and the other file of a pair.
        split: the rows of that split only; in a run, the split whose embeddings are read, by default the main one.
        text: a column whose values are wanted as texts of any length, level or not; by default "text", if it is there
            and no level is named so.
        others: also read the columns that are nothing of these, as texts.
        cells: also read all columns with their types.
        skip_empty: leave out the rows without a class name, id, split or camera, said in the notes; None, as False,
            where the error is not to offer it.

    Raises:
        ValueError: if a file is missing, broken or of another kind; if embeddings are not `(N, d)` with N, d >= 1, or
            lengths disagree; if several columns may be the embeddings, or whole numbers have no meaning yet; if a level
            or split is not there; if one of the rows read has no class name, id, split or camera, or the id of another.
    """
    if choice.table is not None and path.suffix.lower() not in (".npy", ".csv", ".tsv", ".txt"):
        raise ValueError(
            f"--table describes the rows of an .npy file or of numbers without names: got {path}; leave it out."
        )
    name = path.name
    if is_run_folder(path):
        file = run_embeddings(path, split)
        path, split, name = file, None, f"{path.resolve().name} ({file.stem})"
    source = with_tags(open_vectors(path, choice), tags, levels)
    if text is None and TEXT in source.columns and TEXT not in (levels or ()):
        text = TEXT
    return select_rows(source, levels, split, text=text, name=name, others=others, cells=cells, skip_empty=skip_empty)


def read_texts(
    path: Path,
    *,
    text: str = TEXT,
    levels: Sequence[str] | None = None,
    tags: TagCells | None = None,
    split: str | None = None,
    others: bool = False,
    skip_empty: bool | None = None,
    remedy: str = "name the one that holds the texts with --text",
) -> Vectors:
    """Read texts with their labels: csv with a line that names the columns, parquet, JSON lines, Hugging Face on disk.

    Args:
        text: the column that holds the texts; all others are as in `read_vectors`.
        levels, tags, split, others: as in `read_vectors`.
        skip_empty: as in `read_vectors`, also the rows without a text.
        remedy: what to do where the column of texts is called otherwise, for the error.

    Returns:
        What is known of each row, its text among it; the embeddings are `(N, 0)`, as none are made yet.

    Raises:
        ValueError: if the file is broken or empty, a row has no text, or as `read_vectors`.
    """
    source = open_rows(path, "texts")
    check_no_vectors(source, text)
    source = with_tags(source, tags, levels)
    if text not in source.columns:
        guess, _, _ = nearest(text, source.columns).partition("Allowed")
        if nested := nested_vectors(source.types):
            remedy += f", or write the vectors in {nested[0]} in a column 'embedding' of their own"
        raise ValueError(
            f"a file of texts must have a column {text!r}: {path} has {', '.join(map(repr, source.columns))}; {guess}"
            f"{remedy}."
        )
    if text in (levels or ()):
        raise ValueError(
            f"a label level must be a different column from the texts: got {text!r} for both; choose another."
        )
    if source.values(text).values.dtype.kind not in "UO":
        raise ValueError(f"the column {text!r} of {path} must hold texts: it holds numbers; name another.")
    return select_rows(source, levels, split, text=text, needs={text: "text"}, others=others, skip_empty=skip_empty)
