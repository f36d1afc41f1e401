"""Texts with their labels in a file: as vectors, of n-grams or a sentence encoder, or as tokens of a network."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field

from trivet.datasets.config import DatasetEntry
from trivet.datasets.dataset import Dataset, Inputs, Splits
from trivet.datasets.image_decoding import Progress
from trivet.datasets.splitting import ListedConfig
from trivet.datasets.text_inputs import TextInputs
from trivet.datasets.vectors import VectorInputs, dataset_of, split_rows
from trivet.io.atomic_files import write_atomic
from trivet.io.embedding_table import Vectors
from trivet.io.text_files import TEXT, read_texts
from trivet.models import Tokenize, encoder_vectors, fit_ngrams
from trivet.runtime.progress import reporter

CACHE = "encoded"  # the folder of encoded texts, among the data sets


class TextsConfig(ListedConfig):
    """Texts with labels."""

    name: Literal["texts"] = "texts"
    path: Path = Field(
        description="The texts and their labels: a .csv, .tsv, .parquet or .jsonl (JSON lines), or the folder of a "
        "Hugging Face data set saved on disk, relative to the current folder."
    )
    text: str = Field(TEXT, description="The column of the texts.")
    encoder: str | None = Field(
        None,
        description="The sentence-transformers model that makes vectors of the texts, by name or folder (extra text). "
        "Default: character n-grams of 2 to 5 characters, fitted on the texts of the training part, which need no "
        "model and know no meaning.",
    )

    @property
    def text_column(self) -> str:
        """The column of the texts."""
        return self.text


def load_texts(config: TextsConfig, data_root: Path, progress: Progress | None) -> Splits:
    """The texts of `config.path` as vectors, labelled by the other columns and split as `config.split` says.

    Vectors of an encoder are kept below `data_root`, and made again when the texts or the encoder change.

    Raises:
        ValueError: if the file is broken, a row has no text or label, the encoder cannot be used, or the split cannot
            be.
    """
    splits, texts = _unencoded(config)
    vectors = _encoded(texts, config, _texts(splits.train), data_root)
    return _with_inputs(splits, lambda inputs: replace(inputs, vectors=vectors))


def load_tokens(config: TextsConfig, tokenize: Tokenize) -> Splits:
    """As `load_texts`, but with the texts as the tokens that a network takes.

    Raises:
        ValueError: as `load_texts`; also if the settings name an encoder.
    """
    if config.encoder is not None:
        raise ValueError(
            f"data.encoder makes vectors that stay as they are, and a network of texts reads the texts: got "
            f'{config.encoder}; remove it, or train a head on its vectors: model.name = "residual".'
        )
    splits, texts = _unencoded(config)
    tokens = tokenize(texts)
    assert isinstance(splits.train.inputs, VectorInputs)
    trained = splits.train.inputs.rows
    splits = _with_inputs(splits, lambda inputs: TextInputs(texts, tokens, inputs.rows, trained))
    if not tokens.cut:
        return splits
    warning = (
        f"{tokens.cut} of {len(texts)} texts have more than {tokens.longest} tokens and are cut there; "
        "model.max_tokens says where."
    )
    return replace(splits, warnings=(*splits.warnings, warning))


def _with_inputs(splits: Splits, change: Callable[[VectorInputs], Inputs]) -> Splits:
    """The splits with other inputs in place of those of each data set."""

    def changed(data: Dataset) -> Dataset:
        assert isinstance(data.inputs, VectorInputs)
        return replace(data, inputs=change(data.inputs))

    evaluation = {name: changed(data) for name, data in splits.evaluation.items()}
    return replace(splits, train=changed(splits.train), evaluation=evaluation)


def texts_like(config: TextsConfig, path: Path, data_root: Path, tokenize: Tokenize | None = None) -> Dataset:
    """The texts of another file as a run on `config` takes them, with what the other columns say.

    Args:
        path: of a file with the same column of texts; labels are not needed.
        tokenize: that of the network, if it takes tokens.

    Raises:
        ValueError: as `load_texts`; for n-grams also if the texts of the run cannot be read any more.
    """
    try:
        table, texts = _read(path, config.text, None)
    except ValueError:  # a column that nobody named may be at fault
        table, texts = _read(path, config.text, ())
    if tokenize is not None:
        items = dataset_of(replace(table, texts=texts), path, text=config.text, labelled=False)
        rows = np.arange(len(texts))
        return replace(items, inputs=TextInputs(texts, tokenize(texts), rows, rows))
    trained = [] if config.encoder is not None else _texts(_unencoded(config)[0].train)
    vectors = _encoded(texts, config, trained, data_root)
    return dataset_of(replace(table, embeddings=vectors, texts=texts), path, text=config.text, labelled=False)


def _unencoded(config: TextsConfig) -> tuple[Splits, list[str]]:
    """The split texts, whose vectors have no numbers yet, and the texts of all rows."""
    table, texts = _read(config.path, config.text, config.levels)
    named = config.levels is not None
    items = dataset_of(replace(table, texts=texts), config.path, text=config.text, named=named)
    return split_rows(items, table, config), texts


def _read(path: Path, text: str, levels: Sequence[str] | None) -> tuple[Vectors, list[str]]:
    return read_texts(path, lambda texts: np.empty((len(texts), 0), np.float32), text=text, levels=levels, others=True)


def _texts(items: Dataset) -> list[str]:
    return [str(items.show(i)) for i in range(len(items))]


def _encoded(texts: Sequence[str], config: TextsConfig, trained: Sequence[str], data_root: Path) -> np.ndarray:
    """The vectors `(N, d)` of the texts: by n-grams of those trained on, or of the encoder, once made and then kept."""
    if config.encoder is None:
        return fit_ngrams(trained)(texts)
    file = data_root / CACHE / f"{_fingerprint(texts, config.encoder)}.npy"
    if file.is_file():
        cached: np.ndarray = np.load(file, allow_pickle=False)
        return cached
    vectors = encoder_vectors(texts, config.encoder, reporter("encoding texts"))
    sink = io.BytesIO()
    np.save(sink, vectors)
    with contextlib.suppress(OSError):  # a folder of data sets that cannot be written: they are made again next time
        write_atomic(file, sink.getvalue())
    return vectors


def _fingerprint(texts: Sequence[str], encoder: str) -> str:
    """Hash of the texts and the encoder, of a folder also of when its files were changed."""
    folder = Path(encoder)
    files = sorted(file for file in folder.rglob("*") if file.is_file()) if folder.is_dir() else []
    known = [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    return hashlib.sha256(json.dumps([encoder, known, list(texts)]).encode()).hexdigest()[:32]


ENTRY = DatasetEntry(TextsConfig, load_texts, description="texts with labels: csv, parquet, JSON lines")
