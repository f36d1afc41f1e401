"""Pairs in a file: it lists what belongs together, such as queries and documents or images and texts; no classes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from trivet.datasets.config import DatasetEntry
from trivet.datasets.dataset import Dataset, Inputs, Splits
from trivet.datasets.image_decoding import Progress
from trivet.datasets.judged_pairs import JudgedPairs
from trivet.datasets.pair_contents import judged_pairs, read_pair_table, side_ids
from trivet.datasets.pair_images import check_images, images_of
from trivet.datasets.pair_splits import drawn_subsets, listed_subsets
from trivet.datasets.pair_vectors import vectors_of_sides
from trivet.datasets.pairs_config import LEVEL, PairsConfig
from trivet.datasets.sides import SidedInputs
from trivet.datasets.splitting import TRAIN
from trivet.datasets.texts import TextInputs, ngrams_of_training, with_inputs, with_ngrams
from trivet.datasets.vectors import VectorInputs
from trivet.io.pair_table import PairTable
from trivet.io.query_gallery import QueryGallery
from trivet.io.read_embeddings import TEXT
from trivet.models import Tokenize
from trivet.runtime.arrays import Integers

REVERSED = "-reversed"  # ends the name of an evaluation split whose queries are the right side


def load_pairs(config: PairsConfig, data_root: Path | None, progress: Progress | None) -> Splits:
    """Load the contents of both sides as vectors of their n-grams, split as the file or `config.split` says.

    Each evaluation split searches the right side for the left one, and the split of its name with "-reversed" the left
    for the right one.

    Raises:
        ValueError: if the file is broken, sides or scores are not clear, or the pairs cannot be split.
    """
    splits, contents = unencoded(config)
    if config.images == "both":
        images = images_of(config, contents, progress)
        return with_inputs(splits, lambda inputs: images.subset(inputs.rows))
    assert config.images == "none", "the settings of a run are checked"
    if config.left_vectors is None:
        return with_ngrams(splits, contents)
    vectors = vectors_of_sides(config)
    return with_inputs(splits, lambda inputs: replace(inputs, vectors=vectors))


def load_sides(
    config: PairsConfig, tokenize: Sequence[Tokenize | None], progress: Progress | None = None, *, unread: bool = False
) -> Splits:
    """The contents of both sides, each read as the network of its side takes them.

    Args:
        tokenize: what makes tokens of the texts of a side; None for a network that takes the vectors of their n-grams,
            or images.
        unread: no image is read yet.

    Raises:
        ValueError: as `load_pairs`; also if the items are vectors, or an image is missing or cannot be read.
    """
    if config.left_vectors is not None:
        raise ValueError(
            'vectors of both sides have a head each within one network: set model.name = "linear" or "residual" in '
            "place of towers."
        )
    splits, contents = unencoded(config)
    relation = splits.train.relations[LEVEL]
    assert isinstance(relation, JudgedPairs)
    first = relation.first_of_right
    left, right = (
        _texts_of_side(splits, contents, span, each)
        if kind == "texts"
        else _images_of_side(config, contents, span, progress, unread=unread)
        for kind, span, each in zip(
            config.side_kinds, (slice(0, first), slice(first, len(contents))), tokenize, strict=True
        )
    )

    def change(inputs: VectorInputs) -> SidedInputs:
        of_right = inputs.rows >= first
        return SidedInputs((left(inputs.rows[~of_right]), right(inputs.rows[of_right])), of_right)

    return with_inputs(splits, change)


def _texts_of_side(
    splits: Splits, contents: Sequence[str], span: slice, tokenize: Tokenize | None
) -> Callable[[Integers], Inputs]:
    """Inputs of the contents of a side from their numbers, which lie in a span."""
    unread = splits.train.inputs
    assert isinstance(unread, VectorInputs)
    if tokenize is None:
        vectors = ngrams_of_training(splits, unread.previews)
        return lambda rows: replace(unread, vectors=vectors, rows=rows)
    tokens = tokenize(contents[span])
    # By the numbers of all contents: those of the other side have no tokens.
    before, after = np.zeros(span.start, np.int64), np.full(len(contents) - span.stop, tokens.starts[-1])
    numbered = tokens._replace(starts=np.concatenate([before, tokens.starts, after]))
    return lambda rows: TextInputs(contents, numbered, rows, unread.rows)


def _images_of_side(
    config: PairsConfig, contents: Sequence[str], span: slice, progress: Progress | None, *, unread: bool
) -> Callable[[Integers], Inputs]:
    """Inputs of the images of a side from their numbers, which lie in a span."""
    images = images_of(config, contents[span], progress, unread=unread)
    return lambda rows: images.subset(rows - span.start)


def unencoded(config: PairsConfig) -> tuple[Splits, list[str]]:
    """The splits, whose vectors have no numbers yet, and the contents of both sides."""
    table = read_pair_table(config)
    check_images(table, config)
    texts = [*table.left.contents, *table.right.contents]
    relation = judged_pairs(table, config)
    items = _all_items(table, texts, relation, config)
    notes = list(table.notes)
    if table.splits is None or config.split != "auto":
        subsets = drawn_subsets(relation, table, notes, split=config.split, holdout=config.holdout, seed=config.seed)
    else:
        subsets = listed_subsets(relation, table, notes)
    left, trained = relation.first_of_right, subsets.pop(TRAIN)
    linked = np.isin(trained, relation.pairs)
    every, nothing = np.ones(len(trained), bool), np.zeros(len(trained), bool)
    # Folds of it are measured in both directions at once.
    train = replace(items.subset(trained), protocol=QueryGallery(linked, every, nothing))
    evaluation = {}
    for split, rows in subsets.items():
        forward, backward = rows < left, rows >= left
        answered = np.isin(rows, relation.pairs[np.isin(relation.pairs[:, 0], rows), 1])
        for name, query, gallery in ((split, forward, backward), (split + REVERSED, answered, forward)):
            nothing = np.zeros(len(rows), bool)
            used = np.flatnonzero(query | gallery)
            protocol = QueryGallery(query, gallery, nothing).subset(used)
            evaluation[name] = replace(items.subset(rows[used]), protocol=protocol)
    pairs = np.isin(relation.pairs, train.numbers[LEVEL]).all(axis=1).sum()
    summary = (
        f"{config.path.name}: {len(table.left.contents):,} of {table.left.name!r}, {len(table.right.contents):,} of "
        f"{table.right.name!r}, {len(relation.pairs):,} pairs that belong together, {pairs:,} of them trained on."
    )
    return Splits(train, evaluation, LEVEL, summary=summary, warnings=tuple(notes)), texts


def _all_items(table: PairTable, contents: list[str], relation: JudgedPairs, config: PairsConfig) -> Dataset:
    """Every content of both sides as an item, whose class is its group."""
    ids, texts = side_ids(table, config), list[str]()
    for of_side, kind in zip((table.left, table.right), config.side_kinds, strict=True):
        texts += [""] * len(of_side.contents) if kind == "images" else of_side.contents
    _, first = np.unique(relation.groups, return_index=True)
    count = len(ids)
    side = (table.left.name,) * len(table.left.ids) + (table.right.name,) * len(table.right.ids)
    return Dataset(
        table.path.stem,
        VectorInputs(np.empty((count, 0), np.float32), texts if any(texts) else contents, np.arange(count), table.path),
        {LEVEL: relation.groups},
        {LEVEL: tuple(ids[row] for row in first.tolist())},
        ids,
        columns={TEXT: tuple(texts), "side": side},
        relations={LEVEL: relation},
        numbers={LEVEL: np.arange(count)},
    )


ENTRY = DatasetEntry(
    PairsConfig,
    load_pairs,
    description="pairs of texts or images, such as queries and documents",
    unencoded=unencoded,
)
