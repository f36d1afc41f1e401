"""Vectors made elsewhere, such as by a sentence encoder or a pretrained network, with their labels in a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from trivet.datasets.config import DatasetEntry
from trivet.datasets.dataset import Dataset, RowInputs, Splits
from trivet.datasets.image_decoding import Progress
from trivet.datasets.splitting import ListedConfig, column_subsets, make_splits
from trivet.datasets.tags import tag_relations
from trivet.io.embedding_table import Vectors, class_labels
from trivet.io.label_columns import SPLIT
from trivet.io.read_embeddings import TEXT, read_vectors
from trivet.io.table import listed
from trivet.io.vector_choice import Codes, VectorChoice

CHECKED = 2**28  # bytes of vectors up to which all are checked at the start; others when they are read
CHUNK = 2**24  # of the numbers that are checked at once


class VectorsConfig(ListedConfig):
    """Vectors made elsewhere.

    Args:
        path: vectors: a table (csv, tsv, JSON lines, JSON, parquet, Hugging Face), an .npz, an .npy with a csv of its
            rows, or shards; the last two may exceed memory.
        table: the csv file of the rows of an .npy, where it is not beside it with the same stem.
        embedding: the column of the vectors, of numbered ones the first, where several could be.
        codes: what vectors of whole numbers hold: "bits", 8 in each as numpy.packbits writes them, "int8" or "uint8".
        text: column that pages show of each item; by default "text", else the id.
    """

    name: Literal["vectors"] = "vectors"
    path: Path
    table: Path | None = None
    embedding: str | None = None
    codes: Codes | None = None
    text: str | None = None

    @property
    def choice(self) -> VectorChoice:
        """Choice of the vectors of the file."""
        return VectorChoice(self.table, self.embedding, self.codes)

    @property
    def text_column(self) -> str:
        """The column that is shown, if it is there."""
        return TEXT if self.text is None else self.text


@dataclass(frozen=True, eq=False)
class VectorInputs(RowInputs):
    """Rows of an array in memory or on disk, of which a batch is read when it is needed.

    Attributes:
        vectors: `(M, d)` floating point, shared by all subsets.
        previews: what pages show of the M rows.
        rows: `(N,)` the rows that these inputs are.
        path: of the file, which errors name.
    """

    vectors: np.ndarray
    previews: Sequence[str]
    rows: np.ndarray
    path: Path

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.vectors.shape[1],)

    def batch(self, index: np.ndarray) -> Tensor:
        rows = self.rows[index]
        values = np.asarray(self.vectors[rows], np.float32)
        check_finite(values, rows, self.path)
        return torch.from_numpy(values)

    def show(self, index: int) -> str:
        return self.previews[int(self.rows[index])]


def load_vectors(config: VectorsConfig, data_root: Path, progress: Progress | None) -> Splits:
    """The rows of `config.path`, labelled by its columns and split as `config.split` says.

    Items are named by the column id, else by the numbers of their rows from 0.

    Raises:
        ValueError: if the file is broken, a row has no label, a vector is not finite, or the split cannot be.
    """
    vectors = read_vectors(
        config.path,
        choice=config.choice,
        levels=config.levels,
        tags=config.tag_cells,
        text=config.text,
        others=True,
        skip_empty=config.skip_empty,
    )
    items = dataset_of(vectors, config.path, text=config.text_column, named=config.levels is not None)
    splits = make_splits(items, config, column_subsets(vectors.splits, config.path), config.path)
    return replace(splits, warnings=vectors.notes)


def vectors_like(config: VectorsConfig, path: Path, choice: VectorChoice) -> Dataset:
    """The vectors of another file as a run on `config` takes them, with what other columns say; labels are not needed.

    Raises:
        ValueError: as `load_vectors`.
    """
    choice = VectorChoice(choice.table, choice.embedding or config.embedding, choice.codes or config.codes)
    try:
        table = read_vectors(path, choice=choice, text=config.text, others=True)
    except ValueError:  # a column that nobody named may be at fault
        table = read_vectors(path, choice=choice, levels=(), text=config.text, others=True)
    return dataset_of(table, path, text=config.text_column, labelled=False)


def dataset_of(vectors: Vectors, path: Path, *, text: str, named: bool = False, labelled: bool = True) -> Dataset:
    """All rows as items. Label levels that are not named have the one of fewest classes first, and none is the text.

    Args:
        path: of the file, which errors name.
        text: what the column of texts is called, if there is one.
        named: whether the label levels were.
        labelled: whether each item must have a label.

    Raises:
        ValueError: if there is no label level, a label is blank, or vectors of at most 256 MiB are not finite.
    """
    if not named:
        vectors = replace(vectors, labels={name: column for name, column in vectors.labels.items() if name != text})
    if not vectors.labels and labelled:
        raise ValueError(
            f"training needs a label for each row: {path} has no label column{vectors.why_none()}; add one, or name it "
            "in data.levels."
        )
    count = len(vectors)
    if vectors.embeddings.nbytes <= CHECKED:
        step = max(1, CHUNK // max(1, vectors.embeddings.shape[1]))
        for start in range(0, count, step):
            chunk = np.asarray(vectors.embeddings[start : start + step])
            check_finite(chunk, vectors.rows[start : start + step], path)
    labels, names = class_labels(vectors)
    if not named:
        levels = sorted(names, key=lambda level: len(names[level]))
        labels, names = {level: labels[level] for level in levels}, {level: names[level] for level in levels}
    ids = tuple(vectors.names())
    previews = ids if vectors.texts is None else vectors.texts
    inputs = VectorInputs(vectors.embeddings, previews, np.arange(count), path)
    columns = {name: tuple(values) for name, values in vectors.others.items()}
    if vectors.texts is not None and text not in labels:
        columns = {text: tuple(vectors.texts), **columns}
    if vectors.splits is not None and not labelled:  # else it says what is trained on
        columns[SPLIT[0]] = tuple(vectors.splits.tolist())
    relations = tag_relations(names, {level: match for level, match in vectors.tags.items() if level in names})
    return Dataset(
        path.stem, inputs, labels, names, ids, protocol=vectors.protocol, columns=columns, relations=relations
    )


def check_finite(values: np.ndarray, rows: np.ndarray, path: Path) -> None:
    """ValueError unless all values `(B, d)` are finite; `rows (B,)` are their numbers in the file."""
    wrong = rows[~np.isfinite(values).all(axis=1)]
    if len(wrong):
        raise ValueError(
            f"the vectors of {path} must be finite: {len(wrong)} of {len(rows)} are not, rows "
            f"{listed([str(row) for row in np.sort(wrong)[:9]])} counted from 0; embed them again, or leave them out."
        )


ENTRY = DatasetEntry(
    VectorsConfig, load_vectors, description="vectors made elsewhere, with labels: tables, npz, npy and csv"
)
