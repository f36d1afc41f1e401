"""Neighbourhoods by which labels are judged: the items of a fold, as points, and the nearest of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.nn.functional import pad

from trivet.distances import Array, as_classes
from trivet.distances.pairwise import Products
from trivet.distances.threads import share
from trivet.metrics.nearest import smallest
from trivet.metrics.points import Metric, as_numpy, as_points, distances_of_pairs, spans
from trivet.metrics.positive_ranks import DIFFERENCES
from trivet.mining.adjacency import true_entries
from trivet.runtime.arrays import Floats, Integers
from trivet.runtime.progress import report

ROWS, COLUMNS = 512, 4096  # compared at once: 8 MiB
NEIGHBOURS = 50  # where none are asked for


@dataclass(frozen=True, eq=False)
class LabelledPoints:
    """Checked inputs: points `(N, width)` to compare by Euclidean distance, class numbers, and fold numbers `(N,)`."""

    points: torch.Tensor
    values: npt.NDArray[Any]  # (C,) labels
    classes: Integers
    folds: Integers
    distance: Metric

    @classmethod
    def of(
        cls,
        embeddings: Array,
        labels: Array,
        *,
        folds: Array | None,
        distance: Metric,
        neighbours: int | None = None,
        seed: int = 0,
    ) -> LabelledPoints:
        points = as_points(embeddings, distance=distance)
        classes = as_classes(labels, count=len(points)).numpy()
        values = as_numpy(labels)
        if len(points) == 0 or classes.max() == 0:
            raise ValueError(
                f"labels must hold at least two classes: got {min(1, len(points))}; without a second class no label "
                "can be wrong."
            )
        folds_of = np.zeros(len(points), np.int64)
        if folds is not None:
            folds_of = as_classes(folds, count=len(points), name="folds").numpy()
        comparable = int(np.bincount(folds_of).min()) - 1
        if neighbours is not None and neighbours > comparable:
            raise ValueError(
                f"neighbours must not exceed the {comparable} others that each item can be compared with: got "
                f"{neighbours}; use fewer, or add more items."
            )
        if comparable == 0:
            raise ValueError(
                "a label is judged by others: each fold must hold at least two items; one holds a single one."
            )
        if seed < 0:
            raise ValueError(f"seed must not be negative: got {seed}.")
        return cls(points, np.unique(values), classes, folds_of, distance)

    def subset(self, rows: Integers) -> LabelledPoints | None:
        """Subset of the items, or None if they are of one class, or one is alone in its fold."""
        values, classes = np.unique(self.classes[rows], return_inverse=True)
        folds = np.unique(self.folds[rows], return_inverse=True)[1]
        if len(values) < 2 or np.bincount(folds).min() < 2:
            return None
        return LabelledPoints(self.points[torch.from_numpy(rows)], self.values[values], classes, folds, self.distance)

    def of_fold(self, fold: int) -> tuple[Integers, torch.Tensor]:
        """The numbers `(n,)` of the items of a fold, and their points, which are no copy where there is one fold."""
        items = np.flatnonzero(self.folds == fold)
        alone = len(items) == len(self.points)
        return items, self.points if alone else self.points[torch.from_numpy(items)]

    @property
    def comparable(self) -> int:
        """Others that every item can be compared with."""
        return int(np.bincount(self.folds).min()) - 1

    @property
    def lone(self) -> npt.NDArray[np.bool_]:
        """Items `(N,)` that are the only ones of their label in their fold."""
        group = self.folds * len(self.values) + self.classes
        return np.asarray(np.bincount(group)[group] == 1)


@dataclass(frozen=True, eq=False)
class Neighborhoods:
    """The K nearest others of each item, nearest first, and its nearest items of the own and of other classes."""

    indices: Integers  # (N, K)
    distances: Floats  # (N, K)
    to_positive: Floats  # (N,), infinite where there is none
    to_negative: Floats  # (N,)


def find_neighborhoods(setting: LabelledPoints, k: int) -> Neighborhoods:
    """Up to k neighbours of each item among those of its fold.

    They are found in float32, which errs by about 1e-7 of the largest squared distance, and put in order by their exact
    distances; of equal ones the first comes first.
    """
    k = min(k, setting.comparable)
    count = len(setting.points)
    indices, distances = np.empty((count, k), np.int64), np.empty((count, k))
    positive, negative = np.full(count, np.inf), np.full(count, np.inf)
    done = 0
    for fold in range(setting.folds.max() + 1):
        items, points = setting.of_fold(fold)
        search = _Search(points, torch.from_numpy(setting.classes[items]), k)

        def take(start: int, block: tuple[torch.Tensor, ...], items: Integers = items) -> None:
            nonlocal done
            rows = items[start : start + ROWS]
            near, exact, to_positive, to_negative = (values.numpy() for values in block)
            indices[rows], distances[rows] = items[near], exact
            positive[rows], negative[rows] = to_positive, to_negative
            done += len(rows)
            report("nearest neighbours", done, count)

        share(range(0, len(items), ROWS), search.nearest, take)
    return Neighborhoods(indices, distances, positive, negative)


class _Search:
    """The k nearest of the items of a fold, block by block."""

    def __init__(self, points: torch.Tensor, classes: torch.Tensor, k: int) -> None:
        single = (points - points.mean(dim=0)).float()
        self.points, self.classes, self.k, self.products = points, classes, k, Products(single, single)
        self.labels = classes.int().numpy()
        self.members = torch.split(torch.argsort(classes, stable=True), torch.bincount(classes).tolist())

    def nearest(self, start: int) -> tuple[torch.Tensor, ...]:
        """Numbers and distances `(B, k)` of the nearest of a block, nearest first, and `(B,)` to positive, negative."""
        block = torch.arange(start, min(start + ROWS, len(self.points)))
        classes, labels = self.classes[block], self.labels
        values, columns = torch.empty(len(block), 0), torch.empty(len(block), 0, dtype=torch.int64)
        to_other = torch.full((len(block),), torch.inf)
        for first, end in spans(len(self.points), COLUMNS):
            squared = self.products.squared_distances(start, start + len(block), slice(first, end))
            inside = (block >= first) & (block < end)
            squared[inside, block[inside] - first] = torch.inf
            same = torch.from_numpy(labels[block.numpy(), None] == labels[first:end])  # in numpy, six times as fast
            to_other = torch.minimum(to_other, squared.masked_fill(same, torch.inf).amin(dim=1))
            values, columns = self._merged(values, columns, squared, first)
        pairs = block.repeat_interleave(self.k), columns.ravel()
        exact = distances_of_pairs(self.points, pairs[0], self.points, pairs[1]).view(columns.shape)
        exact, order = exact.sort(dim=1, stable=True)
        near = columns.gather(1, order)
        same = self.classes[near] == classes[:, None]
        to_positive, to_negative = (exact.masked_fill(~wanted, torch.inf).amin(dim=1) for wanted in (same, ~same))
        # Where it is not among the neighbours, it is the nearest of all.
        for number in torch.unique(classes[to_positive.isinf()]).tolist():
            rows = ((classes == number) & to_positive.isinf()).nonzero()[:, 0]
            others = torch.cdist(self.points[block[rows]], self.points[self.members[number]], compute_mode=DIFFERENCES)
            others.masked_fill_(self.members[number] == block[rows, None], torch.inf)
            to_positive[rows] = others.amin(dim=1)
        return near, exact, to_positive, torch.where(to_negative.isinf(), to_other.double().sqrt(), to_negative)

    def _merged(
        self, values: torch.Tensor, columns: torch.Tensor, squared: torch.Tensor, first: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The nearest so far `(B, k)`, by column, and those of the columns from `first` on."""
        if values.shape[1] < self.k:
            values = torch.cat([values, squared], dim=1)
            columns = torch.cat([columns, torch.arange(first, first + squared.shape[1]).expand(squared.shape)], dim=1)
        else:
            row, column = true_entries(squared < values.amax(dim=1, keepdim=True))
            counts = torch.bincount(row, minlength=len(values))
            offset = torch.arange(len(row)) - (counts.cumsum(0) - counts)[row] + self.k
            more = int(counts.max())
            values, columns = pad(values, (0, more), value=torch.inf), pad(columns, (0, more))
            values[row, offset], columns[row, offset] = squared[row, column], column + first
        best = smallest(values, min(self.k, values.shape[1]))
        return values.gather(1, best), columns.gather(1, best)
