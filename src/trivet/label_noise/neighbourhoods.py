"""Neighbourhoods by which labels are judged: the items of a fold, as points, and the nearest of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from trivet.distances import Array, as_classes
from trivet.distances.pairwise import Products
from trivet.metrics.nearest import smallest
from trivet.metrics.points import Metric, as_numpy, as_points, spans
from trivet.runtime.arrays import Floats, Integers
from trivet.runtime.progress import report

BLOCK_ENTRIES = 2**22
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
    count, width = setting.points.shape
    indices, distances = np.empty((count, k), np.int64), np.empty((count, k))
    positive, negative = np.full(count, np.inf), np.full(count, np.inf)
    done = 0
    for fold in range(setting.folds.max() + 1):
        items = np.flatnonzero(setting.folds == fold)
        points = setting.points[torch.from_numpy(items)]
        single = (points - points.mean(dim=0)).float()
        classes, products = torch.from_numpy(setting.classes[items]), Products(single, single)
        for start, stop in spans(len(items), max(1, BLOCK_ENTRIES // len(items))):
            squared = products.squared_distances(start, stop)
            squared[torch.arange(stop - start), torch.arange(start, stop)] = torch.inf
            nearest = smallest(squared, k)
            for first, end in spans(stop - start, max(1, BLOCK_ENTRIES // max(1, k * width))):
                block = slice(start + first, start + end)
                differences = points[nearest[first:end]] - points[block, None]
                exact, order = torch.linalg.vector_norm(differences, dim=2).sort(dim=1, stable=True)
                near, rows = nearest[first:end].gather(1, order), items[block]
                indices[rows], distances[rows] = items[near.numpy()], exact.numpy()
                same = classes[near] == classes[block, None]
                # Where it is not among the neighbours, it is looked for among all.
                for to, wanted in ((positive, same), (negative, ~same)):
                    to[rows] = exact.masked_fill(~wanted, torch.inf).amin(dim=1).numpy()
            rows = items[start:stop]
            for to, same_class in ((positive, True), (negative, False)):
                missing = np.flatnonzero(np.isinf(to[rows]))
                if len(missing):
                    same = classes[start + missing, None] == classes
                    others = squared[missing].masked_fill_(same != same_class, torch.inf)
                    to[rows[missing]] = others.amin(dim=1).double().sqrt().numpy()
            done += stop - start
            report("nearest neighbours", done, count)
    return Neighborhoods(indices, distances, positive, negative)
