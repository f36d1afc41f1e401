"""Vectors of texts: by character n-grams, or by an encoder that is installed."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trivet.data.vectors import CsvTable, Vectors, check_columns, select_rows

DIMENSIONS = 256
TEXT = "text"


def read_texts(
    path: Path,
    encode: Callable[[list[str]], npt.NDArray[Any]],
    *,
    text: str = TEXT,
    levels: Sequence[str] | None = None,
    split: str | None = None,
) -> tuple[Vectors, list[str]]:
    """Read a csv file of texts with their labels; the file is encoded as UTF-8, and its first line names the columns.

    Args:
        path: the file.
        encode: N texts -> `(N, d)` floating point.
        text: the column that holds the texts; all others are as in `trivet.data.read_vectors`.
        levels, split: as in `trivet.data.read_vectors`.

    Returns:
        The vectors with what is known of each row, and the texts `(N,)`.

    Raises:
        ValueError: if the file is broken or empty, a row has no text, or as `trivet.data.read_vectors` and `encode`.
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
        raise ValueError(f"a label level must be another column than the texts: got {text!r} for both; name another.")
    if len(table) == 0:
        raise ValueError(f"{path} must hold at least one text: it has no row below its header; add some.")
    # The numbers of the rows stand for their vectors until it is known which rows are asked for.
    rows = np.arange(len(table), dtype=np.float64)[:, None]
    found = select_rows(path, table.source(rows, without=text), levels, split)
    chosen = found.embeddings[:, 0].astype(np.int64).tolist()
    column = table.texts(text)
    texts = [column[row] or "" for row in chosen]
    empty = [row for row, one in zip(chosen, texts, strict=True) if not one.strip()]
    if empty:
        shown = ", ".join(map(str, empty[:8])) + (", ..." if len(empty) > 8 else "")
        raise ValueError(
            f"every row of {path} must have a text: {len(empty)} of {len(texts)} have none, rows {shown} counted from "
            "0; fill them in, or leave out these rows."
        )
    return replace(found, embeddings=encode(texts)), texts


def ngram_vectors(texts: Sequence[str], *, seed: int = 0) -> npt.NDArray[np.float32]:
    """Vectors `(N, d)` of length 1 from the characters of N texts; d is 256, or less for few texts.

    The counts n of each run of 2 to 5 characters within words, as 1 + log n, are weighted by how rare the run is
    (tf-idf), and projected on the d directions of largest singular value. Texts are near that have parts of words in
    common, in any language, whatever they mean.

    Args:
        texts: at least two, none of them blank.
        seed: of the projection.

    Raises:
        ValueError: if there are fewer, or one is blank.

    Source:
        Cavnar, Trenkle, "N-Gram-Based Text Categorization", SDAIR 1994; Deerwester et al., "Indexing by Latent
        Semantic Analysis", Journal of the American Society for Information Science 41, 1990.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.utils.extmath import randomized_svd

    blank = [place for place, one in enumerate(texts) if not one.strip()]
    if blank or len(texts) < 2:
        got = f"text {blank[0]} (from 0) is; leave it out" if blank else f"got {len(texts)}; add some"
        raise ValueError(f"texts must be at least two, and none of them blank: {got}.")
    counts = TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 5), sublinear_tf=True).fit_transform(texts)
    _, _, directions = randomized_svd(counts, min(DIMENSIONS, *counts.shape), random_state=seed)
    vectors = counts @ directions.T
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.maximum(norms, np.finfo(np.float32).tiny), np.float32)


def encoder_vectors(texts: Sequence[str], encoder: str) -> npt.NDArray[np.float32]:
    """Vectors `(N, d)` of N texts from a sentence-transformers model, by name or folder.

    Raises:
        ValueError: if the library is not installed, or the model cannot be loaded.
    """
    found = load_encoder(encoder).encode(list(texts), show_progress_bar=False)
    return np.asarray(found, dtype=np.float32)


def load_encoder(name: str) -> Any:
    """The sentence-transformers model; weights are taken from safetensors only."""
    try:
        library = importlib.import_module("sentence_transformers")  # the extra `text`, which need not be installed
    except ImportError:
        raise ValueError(
            "a text model needs sentence-transformers, which is not installed: run pip install 'trivet[text]'."
        ) from None
    try:
        return library.SentenceTransformer(name, model_kwargs={"use_safetensors": True})
    except Exception as error:  # hub, files and transformers raise many kinds; all are raised again, in one sentence
        reason = str(error).strip().partition("\n")[0]
        raise ValueError(
            f"the text model {name} could not be loaded ({type(error).__name__}: {reason}); check the name or folder, "
            "or download it."
        ) from None
