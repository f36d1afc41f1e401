"""Texts with their labels in a csv file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trivet.tables.csv import CsvTable
from trivet.tables.source import check_columns, listed
from trivet.tables.vectors import Vectors, select_rows

TEXT = "text"


def read_texts(
    path: Path,
    encode: Callable[[list[str]], npt.NDArray[Any]],
    *,
    text: str = TEXT,
    levels: Sequence[str] | None = None,
    split: str | None = None,
) -> tuple[Vectors, list[str]]:
    """Read a csv file of texts with their labels; its first line names the columns.

    Args:
        path: the file.
        encode: N texts -> `(N, d)` floating point.
        text: the column that holds the texts; all others are as in `trivet.tables.read_vectors`.
        levels, split: as in `trivet.tables.read_vectors`.

    Returns:
        The vectors with what is known of each row, and the texts `(N,)`.

    Raises:
        ValueError: if the file is broken or empty, a row has no text, or as `trivet.tables.read_vectors` and `encode`.
    """
    if not path.is_file():
        raise ValueError(f"texts must be read from a csv file: {path} does not exist; check the path.")
    table = CsvTable.read(path)
    check_columns(path, table.columns)
    if text not in table.columns:
        raise ValueError(
            f"a csv file of texts must have a column {text!r}: {path} has {', '.join(map(repr, table.columns))}; name "
            "the one that holds the texts with --text."
        )
    if text in (levels or ()):
        raise ValueError(
            f"a label level must be a different column from the texts: got {text!r} for both; choose another."
        )
    if len(table) == 0:
        raise ValueError(f"{path} must hold at least one text: it has no row below its header; add some.")
    # The numbers of the rows stand for their vectors until it is known which rows are asked for.
    rows = np.arange(len(table), dtype=np.float64)[:, None]
    selected = select_rows(path, table.source(rows, without=text), levels, split)
    chosen = selected.embeddings[:, 0].astype(np.int64).tolist()
    column = table.texts(text)
    texts = [column[row] or "" for row in chosen]
    empty = [row for row, one in zip(chosen, texts, strict=True) if not one.strip()]
    if empty:
        shown = listed([str(row) for row in empty[:9]])
        raise ValueError(
            f"every row of {path} must have a text: {len(empty)} of {len(texts)} have none, rows {shown} counted from "
            "0; fill them in, or leave out these rows."
        )
    return replace(selected, embeddings=encode(texts)), texts
