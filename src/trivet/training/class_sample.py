"""Draws a sample of items from each class, for measures that need no more."""

from __future__ import annotations

import numpy as np

from trivet.datasets import Dataset
from trivet.datasets.holdout import pairs_of
from trivet.io.query_gallery import QueryGallery
from trivet.runtime.arrays import Integers


def map_sample(dataset: Dataset, most: int, *, seed: int) -> np.ndarray:
    """Positions of at most `most` items, at least 20 of each finest class that is there if it has so many."""
    return level_sample(dataset, list(dataset.labels)[-1], most, least=20, seed=seed)


def evaluation_sample(dataset: Dataset, most: int, *, seed: int) -> Dataset:
    """At most `most` random items of an evaluation split, in their order.

    Of one with queries and a gallery, the items of random finest classes that are asked for, in whole classes, of pairs
    random queries with what belongs to them, at least one; without other items recall is higher than that of the whole
    split.
    """
    generator = np.random.default_rng(seed)
    if dataset.protocol is None:
        return dataset.subset(np.sort(generator.permutation(len(dataset))[:most]))
    level, labels = list(dataset.labels.items())[-1]
    if level in dataset.numbers:
        return dataset.subset(_query_sample(dataset, dataset.protocol, level, most, generator))
    rows = dataset.related(level)
    classes, sizes = np.unique(labels[rows], return_counts=True)
    order = generator.permutation(len(classes))
    selected = classes[order[: max(1, int(np.searchsorted(np.cumsum(sizes[order]), most, side="right")))]]
    return dataset.subset(rows[np.isin(labels[rows], selected)])


def _query_sample(
    dataset: Dataset, protocol: QueryGallery, level: str, most: int, generator: np.random.Generator
) -> Integers:
    """Positions of random queries of a split of pairs and what belongs to them: at most `most`, one query at least.

    Where both sides are queries, those of the left one are drawn.
    """
    relation, numbers = pairs_of(dataset, level), dataset.numbers[level]
    position = np.full(len(relation.groups), -1)
    position[numbers] = np.arange(len(numbers))
    pairs = position[relation.pairs]
    pairs = pairs[(pairs >= 0).all(axis=1)]
    if not protocol.query[pairs[:, 0]].any():
        pairs = pairs[:, ::-1]
    queries, answers = pairs[protocol.query[pairs[:, 0]]].T
    drawn = generator.permutation(np.unique(queries))
    rank = np.full(len(dataset), len(drawn))
    rank[drawn] = np.arange(len(drawn))
    np.minimum.at(rank, answers, rank[queries])  # an answer comes with the first query that it belongs to
    sizes = np.cumsum(np.bincount(rank, minlength=len(drawn))[: len(drawn)])
    return np.flatnonzero(rank < max(1, int(np.searchsorted(sizes, most, side="right"))))


def level_sample(dataset: Dataset, level: str, most: int, *, least: int, seed: int) -> np.ndarray:
    """Positions of at most `most` items by the classes of a level, see `class_sample`; of tags or pairs random ones."""
    if dataset.has_tags(level):
        return np.sort(np.random.default_rng(seed).permutation(len(dataset))[:most])
    return class_sample(dataset.labels[level], most, least=least, seed=seed)


def class_sample(labels: np.ndarray, most: int, *, least: int, seed: int) -> np.ndarray:
    """Positions of at most `most` items: some of each class, or `least` of each of some classes if there are many.

    A few items of every one of many classes would show no class at all.
    """
    if len(labels) <= most:
        return np.arange(len(labels))
    generator = np.random.default_rng(seed)
    classes = generator.permutation(np.unique(labels))
    each = max(least, -(-most // len(classes)))
    chosen: list[np.ndarray] = []
    while sum(map(len, chosen)) < most and len(chosen) < len(classes):
        chosen.append(generator.permutation(np.flatnonzero(labels == classes[len(chosen)]))[:each])
    return np.sort(np.concatenate(chosen)[:most])
