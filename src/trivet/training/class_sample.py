"""Draws a sample of items from each class, for measures that need no more."""

from __future__ import annotations

import numpy as np

from trivet.datasets import Dataset


def map_sample(dataset: Dataset, most: int, *, seed: int) -> np.ndarray:
    """Positions of at most `most` items, at least 20 of each finest class that is there if it has so many."""
    return level_sample(dataset, list(dataset.labels)[-1], most, least=20, seed=seed)


def evaluation_sample(dataset: Dataset, most: int, *, seed: int) -> Dataset:
    """At most `most` random items of an evaluation split, in their order.

    Of one with queries and a gallery, the items of random finest classes that are asked for, in whole classes, at
    least one; without those of other classes recall is higher than that of the whole split.
    """
    generator = np.random.default_rng(seed)
    if dataset.protocol is None:
        return dataset.subset(np.sort(generator.permutation(len(dataset))[:most]))
    level, labels = list(dataset.labels.items())[-1]
    rows = dataset.related(level)
    classes, sizes = np.unique(labels[rows], return_counts=True)
    order = generator.permutation(len(classes))
    selected = classes[order[: max(1, int(np.searchsorted(np.cumsum(sizes[order]), most, side="right")))]]
    return dataset.subset(rows[np.isin(labels[rows], selected)])


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
