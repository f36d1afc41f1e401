"""Texts with their labels in a csv, parquet or JSON lines file, or in a Hugging Face data set saved on disk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trivet.config.base import nearest
from trivet.io.embedding_source import EmbeddingSource, listed
from trivet.io.embedding_table import Vectors, select_rows
from trivet.io.table import open_rows

TEXT = "text"


def read_texts(
    path: Path,
    encode: Callable[[list[str]], npt.NDArray[Any]],
    *,
    text: str = TEXT,
    levels: Sequence[str] | None = None,
    split: str | None = None,
    others: bool = False,
) -> tuple[Vectors, list[str]]:
    """Read a file of texts with their labels: csv with a line that names the columns, parquet, or JSON lines.

    Args:
        path: the file.
        encode: N texts -> `(N, d)` floating point.
        text: the column that holds the texts; all others are as in `trivet.io.read_embeddings.read_vectors`.
        levels, split, others: as in `trivet.io.read_embeddings.read_vectors`.

    Returns:
        The vectors with what is known of each row, and the texts `(N,)`.

    Raises:
        ValueError: if the file is broken or empty, a row has no text, or as
            `trivet.io.read_embeddings.read_vectors` and `encode`.
    """
    opened = open_rows(path, "texts").source
    columns, column_of = opened.columns, opened.column
    if text not in columns:
        guess, _, _ = nearest(text, columns).partition("Allowed")
        raise ValueError(
            f"a file of texts must have a column {text!r}: {path} has {', '.join(map(repr, columns))}; {guess}name the "
            "one that holds the texts with --text, or for trivet train with --set data.text=COLUMN."
        )
    if text in (levels or ()):
        raise ValueError(
            f"a label level must be a different column from the texts: got {text!r} for both; choose another."
        )
    texts_of_all = column_of(text)
    if len(texts_of_all.missing) == 0:
        raise ValueError(f"{path} must hold at least one text: it has no row of them; add some.")
    if texts_of_all.values.dtype.kind not in "UO":
        raise ValueError(f"the column {text!r} of {path} must hold texts: it holds numbers; name another.")
    # The numbers of the rows stand for their vectors until it is known which rows are asked for.
    rows = np.arange(len(texts_of_all.missing), dtype=np.float64)[:, None]
    source = EmbeddingSource(rows, [name for name in columns if name != text], column_of)
    selected = select_rows(path, source, levels, split, others=others)
    chosen = selected.embeddings[:, 0].astype(np.int64)
    texts = np.where(texts_of_all.missing, "", texts_of_all.values)[chosen].tolist()
    empty = [row for row, value in zip(chosen.tolist(), texts, strict=True) if not value.strip()]
    if empty:
        examples = listed([str(row) for row in empty[:9]])
        raise ValueError(
            f"every row of {path} must have a text: {len(empty)} of {len(texts)} have none, rows {examples} counted "
            "from 0; fill them in, or leave out these rows."
        )
    return replace(selected, embeddings=encode(texts)), texts
