"""Texts with their labels in a file: as vectors of their n-grams, or as tokens of a network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Literal

import numpy as np
from torch import Tensor

from trivet.datasets.config import DATA_SETS, DataConfig, DatasetEntry, ItemKind
from trivet.datasets.dataset import Dataset, Inputs, RowInputs, Splits
from trivet.datasets.image_decoding import Progress
from trivet.datasets.splitting import ListedConfig, column_subsets, make_splits
from trivet.datasets.vectors import VectorInputs, dataset_of
from trivet.io.read_embeddings import TEXT, read_texts
from trivet.models import Tokenize, Tokens, fit_ngrams


class TextsConfig(ListedConfig):
    """Texts with labels.

    Args:
        path: texts and labels: a .csv, .tsv, .parquet or .jsonl, or the folder of a saved Hugging Face data set.
        text: the column of the texts.
    """

    name: Literal["texts"] = "texts"
    path: Path
    text: str = TEXT

    @property
    def item_kind(self) -> ItemKind:
        """The kind of the items."""
        return "texts"

    @property
    def text_column(self) -> str:
        """The column of the texts."""
        return self.text


@dataclass(frozen=True, eq=False)
class TextInputs(RowInputs):
    """Texts, of which a batch is the token ids `(B, L)` int64, L those of its longest text, -1 where one has ended.

    Attributes:
        texts: M texts, shared by all subsets, as are their tokens.
        tokens: of the M texts.
        rows: `(N,)` the texts that these inputs are.
        trained: the texts of the training part, of whose characters n-grams are made.
    """

    texts: Sequence[str]
    tokens: Tokens
    rows: np.ndarray
    trained: np.ndarray

    @property
    def shape(self) -> tuple[int, ...]:
        """The most tokens that a text may have."""
        return (self.tokens.longest,)

    def batch(self, index: np.ndarray) -> Tensor:
        return self.tokens.padded(self.rows[index])

    def show(self, index: int) -> str:
        return self.texts[int(self.rows[index])]

    def ngrams(self) -> np.ndarray:
        """Vectors `(N, d)` of the texts by their character n-grams, see `trivet.models.fit_ngrams`."""
        vectors = _ngrams_of(tuple(self.texts[row] for row in self.trained.tolist()))
        return vectors([self.texts[row] for row in self.rows.tolist()])


@lru_cache(maxsize=1)  # which all splits have
def _ngrams_of(texts: tuple[str, ...]) -> Callable[[Sequence[str]], np.ndarray]:
    return fit_ngrams(texts)


def load_texts(config: TextsConfig, data_root: Path, progress: Progress | None) -> Splits:
    """The texts of `config.path` as vectors, labelled by the other columns and split as `config.split` says.

    Raises:
        ValueError: if the file is broken, a row has no text or label, or the split cannot be.
    """
    return with_ngrams(*unencoded(config))


def with_ngrams(splits: Splits, texts: Sequence[str]) -> Splits:
    """The splits with the vectors of the n-grams of M texts, those of the training items, for vectors `(M, 0)`."""
    vectors = ngrams_of_training(splits, texts)
    return with_inputs(splits, lambda inputs: replace(inputs, vectors=vectors))


def with_tokens(splits: Splits, texts: Sequence[str], tokenize: Tokenize) -> Splits:
    """The splits with the tokens of M texts for vectors `(M, 0)`."""
    tokens = tokenize(texts)
    assert isinstance(splits.train.inputs, VectorInputs)
    trained = splits.train.inputs.rows
    splits = with_inputs(splits, lambda inputs: TextInputs(texts, tokens, inputs.rows, trained))
    if not tokens.cut:
        return splits
    warning = (
        f"{tokens.cut} of {len(texts)} texts have more than {tokens.longest} tokens and are cut there; "
        "model.max_tokens says where."
    )
    return replace(splits, warnings=(*splits.warnings, warning))


def with_inputs(splits: Splits, change: Callable[[VectorInputs], Inputs]) -> Splits:
    """The splits with other inputs in place of those of each data set."""

    def changed(data: Dataset) -> Dataset:
        assert isinstance(data.inputs, VectorInputs)
        return replace(data, inputs=change(data.inputs))

    evaluation = {name: changed(data) for name, data in splits.evaluation.items()}
    return replace(splits, train=changed(splits.train), evaluation=evaluation)


def texts_like(config: DataConfig, path: Path, tokenize: Tokenize | None = None) -> Dataset:
    """The texts of another file as a run on `config` takes them, with what the other columns say.

    Args:
        path: of a file with the same column of texts; labels are not needed.
        tokenize: that of the network, if it takes tokens.

    Raises:
        ValueError: as `load_texts`; for n-grams also if the texts of the run cannot be read any more.
    """
    text = config.text_column or TEXT
    read = partial(read_texts, path, text=text, others=True, remedy=f"call that of its texts {text!r}")
    try:
        table = read()
    except ValueError:  # a column that nobody named may be at fault
        table = read(levels=())
    texts = list(table.texts or ())
    if tokenize is None:
        table = replace(table, embeddings=vectors_of(config, texts))
    items = dataset_of(table, path, text=text, labelled=False)
    rows = np.arange(len(texts))
    return items if tokenize is None else replace(items, inputs=TextInputs(texts, tokenize(texts), rows, rows))


def vectors_of(config: DataConfig, texts: Sequence[str]) -> np.ndarray:
    """The vectors `(N, d)` of other texts, as a run on `config` takes them.

    Raises:
        ValueError: as `texts_like`.
    """
    unencoded_data = DATA_SETS.entry(config.name).unencoded
    assert unencoded_data is not None, config.name
    return _ngrams_of(_trained(unencoded_data(config)[0]))(texts)


def ngrams_of_training(splits: Splits, texts: Sequence[str]) -> np.ndarray:
    """The vectors `(N, d)` of N texts by the n-grams of those that are trained on."""
    return _ngram_vectors(_trained(splits), tuple(texts))


@lru_cache(maxsize=1)  # a command may read a file several times
def _ngram_vectors(trained: tuple[str, ...], texts: tuple[str, ...]) -> np.ndarray:
    """The vectors `(N, d)` of texts by the n-grams of those that are trained on."""
    return _ngrams_of(trained)(texts)


def _trained(splits: Splits) -> tuple[str, ...]:
    return tuple(text for i in range(len(splits.train)) if (text := str(splits.train.show(i))))


def unencoded(config: TextsConfig) -> tuple[Splits, list[str]]:
    """The split texts, whose vectors have no numbers yet, and the texts of all rows."""
    table = read_texts(
        config.path,
        text=config.text,
        levels=config.levels,
        tags=config.tag_cells,
        others=True,
        skip_empty=config.skip_empty,
        remedy="set data.text to the one that holds the texts (trivet train --set data.text=COLUMN)",
    )
    items = dataset_of(table, config.path, text=config.text, named=config.levels is not None)
    splits = make_splits(items, config, column_subsets(table.splits, config.path), config.path)
    return replace(splits, warnings=table.notes), list(table.texts or ())


ENTRY = DatasetEntry(
    TextsConfig,
    load_texts,
    description="texts with labels: csv, parquet, JSON lines",
    unencoded=unencoded,
)
