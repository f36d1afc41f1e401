"""The sets that `trivet drift` compares: vectors, read or made by an encoder, and what is known of their items."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from trivet.commands.diagnose.encoders import EmbeddingReader
from trivet.commands.displayed_items import DisplayedItems
from trivet.commands.drift.options import DriftOptions
from trivet.commands.shared_options import ItemOptions, tag_cells
from trivet.datasets.equal_items import row_keys
from trivet.datasets.preview import Preview
from trivet.io.embedding_table import Vectors
from trivet.io.npz_files import read_array
from trivet.io.overwrite_guard import is_saved, sharded
from trivet.io.read_embeddings import read_vectors
from trivet.io.table import check_embeddings
from trivet.io.tag_cells import JOINED


@dataclass(frozen=True, eq=False)
class ItemSet:
    """Items with their vectors, and what a page shows of each, by its position."""

    vectors: Vectors
    show: Callable[[int], Preview | None] | None

    @property
    def displayed(self) -> DisplayedItems:
        return DisplayedItems(ids=self.vectors.names(), labels=self.vectors.labels, show=self.show)

    def column(self, name: str, option: str) -> list[str]:
        """The value of each item in a column.

        Raises:
            ValueError: if there is none of this name.
        """
        vectors = self.vectors
        columns: dict[str, Sequence[str]] = {
            **{level: names.tolist() for level, names in vectors.labels.items()},
            **vectors.others,
        }
        if vectors.cameras is not None:
            columns.setdefault("camera", vectors.cameras.tolist())
        if name not in columns:
            raise ValueError(
                f"{option} must name a column: {vectors.name} has no {name!r}; it has {', '.join(columns) or 'none'}."
            )
        return [*columns[name]]

    def labels(self, level: str) -> list[str | Sequence[str]]:
        """The class name of each item, or its tags."""
        names: list[str] = self.vectors.labels[level].tolist()
        return [name.split(JOINED) for name in names] if level in self.vectors.tags else [*names]


def read_set(path: Path, request: DriftOptions, level: str | None = None) -> ItemSet:
    """Read a set, or embed its items by the encoder.

    Args:
        level: the column of labels; by default all that may be.

    Raises:
        ValueError: as `read_vectors`, or if the encoder does not take such items.
    """
    try:
        return _read(path, request, None if level is None else [level])
    except ValueError:  # a column that nobody named may be at fault
        if level is not None or request.separator is not None:
            raise
        return _read(path, request, [])


def _read(path: Path, request: DriftOptions, levels: Sequence[str] | None) -> ItemSet:
    tags, skip_empty = tag_cells(request.separator, None), request.skip_empty
    if request.encoder is None and path.suffix.lower() == ".npy" and not _described(path, request):
        return ItemSet(_bare(path), None)
    if request.encoder is None:
        vectors = read_vectors(
            path,
            levels=levels,
            tags=tags,
            choice=request.choice,
            text=request.text,
            others=True,
            skip_empty=skip_empty,
        )
        return _with_texts(vectors, request.text or "text")
    images = path.is_dir() and not sharded(path) and not is_saved(path)
    reader = EmbeddingReader(
        ItemOptions(
            images=path if images else None,
            texts=None if images else path,
            text=request.text,
            network=request.network,
            separator=request.separator,
            skip_empty=skip_empty,
        )
    )
    vectors = replace(reader(request.encoder, levels=levels, others=True), name=path.name)
    return ItemSet(vectors, reader.show) if images else _with_texts(vectors, request.text or "text")


def _described(path: Path, request: DriftOptions) -> bool:
    """Return whether another file says what the rows of an .npy file are."""
    return request.table is not None or path.with_suffix(".csv").is_file()


def _bare(path: Path) -> Vectors:
    """The rows of an .npy file that no other describes, and which have numbers only."""
    rows = read_array(path)
    check_embeddings(f"the embeddings of {path}", rows.shape)
    return Vectors(
        name=path.name,
        embeddings=rows,
        labels={},
        rows=np.arange(len(rows)),
    )


def _with_texts(vectors: Vectors, text: str) -> ItemSet:
    labels = {level: names for level, names in vectors.labels.items() if level != text}
    texts = vectors.texts
    return ItemSet(replace(vectors, labels=labels), None if texts is None else texts.__getitem__)


def shared_level(sets: Sequence[ItemSet], group: str | None) -> tuple[str | None, str | None]:
    """The only label level that all sets have, if there is one; else why none is taken, where some could be."""
    levels = [
        level
        for level in sets[0].vectors.labels
        if level != group and all(level in each.vectors.labels for each in sets[1:])
    ]
    if len(levels) > 1:
        names = ", ".join(map(repr, levels))
        return None, f"Several columns may be labels ({names}): name one with --labels to compare by class."
    return (levels[0], None) if levels else (None, None)


def galleries(sets: Sequence[ItemSet], queries: Vectors, seed: int) -> list[Vectors]:
    """The items of two sets without those whose vectors are those of queries, as many of either, at random.

    A query finds less among fewer items, whatever they are.

    Raises:
        ValueError: if a set has no other items.
    """
    rows = {*row_keys(np.asarray(queries.embeddings, np.float32))}
    others = []
    for each in sets:
        keys = row_keys(np.asarray(each.vectors.embeddings, np.float32))
        others.append(np.flatnonzero([key not in rows for key in keys]))
        if not len(others[-1]):
            raise ValueError(
                f"canaries must be other items than those they search: {each.vectors.name} holds nothing else; "
                "give others."
            )
    count = min(map(len, others))
    draw = np.random.default_rng(seed)
    return [
        each.vectors.select(np.sort(draw.permutation(some)[:count])) for each, some in zip(sets, others, strict=True)
    ]
