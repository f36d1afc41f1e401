"""Nearest pairs and nearest neighbours within one set, exact for near-duplicates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from trivet.distances import Array, as_classes
from trivet.metrics.points import Metric, as_points, spans
from trivet.metrics.positive_ranks import DIFFERENCES, TIE
from trivet.runtime.arrays import Floats, Integers

ROWS = 256  # of a block
BLOCK_ENTRIES = 2**21  # of a block of whole rows: 16 MiB, and as much for each of a few copies of it
PAIR_ENTRIES = 2**16  # of the rows of a few pairs: 512 KiB


@dataclass(frozen=True)
class NearestPairs:
    """Nearest same-class item and nearest other-class item of each queried item; fields `(Q,)`.

    Where there is none (a class of one item; a single class) the index is -1 and the similarity NaN.
    """

    positive: Integers
    negative: Integers
    s_ap: Floats  # cosine similarity to the nearest same-class item, in [-1, 1]
    s_an: Floats  # cosine similarity to the nearest other-class item, in [-1, 1]


def nearest_pairs(embeddings: Array, labels: Array, *, sample: npt.NDArray[Any] | None = None) -> NearestPairs:
    """Nearest positive and nearest negative of each item, by cosine similarity, over the whole set.

    The two similarities are the coordinates of the triplet scatter diagram. Of items tied within 1e-13 of
    the distance the one with the lowest index is taken.

    Args:
        embeddings: `(N, d)` floating point, N >= 2; a row of zeros has similarity 0 to other rows.
        labels: `(N,)` of any integer dtype.
        sample: the different row numbers `(Q,)`, rising, that are asked; all by default.

    Raises:
        ValueError: if shapes or dtypes disagree, a row is not finite, N < 2, or `sample` holds other numbers.

    Source:
        Xuan et al., "Extreme Triplet Learning", figures 1 and 6.
    """
    points = as_points(embeddings, distance="cosine")
    if len(points) < 2:
        raise ValueError(f"nearest pairs need at least two items: got {len(points)}.")
    classes = as_classes(labels, count=len(points))
    queries = np.arange(len(points)) if sample is None else np.asarray(sample)
    known = queries.ndim == 1 and queries.dtype.kind in "iu" and len(queries) > 0
    if not known or queries[0] < 0 or queries[-1] >= len(points) or (np.diff(queries.astype(np.int64)) < 1).any():
        raise ValueError(
            f"sample must hold different row numbers from 0 to {len(points) - 1}, rising: got {queries.dtype} of shape "
            f"{queries.shape}; sort them with numpy.unique."
        )
    rows = _Rows(points)
    order = _along(points)
    wanted = torch.zeros(len(points), dtype=torch.bool)
    wanted[torch.from_numpy(queries.astype(np.int64))] = True
    # Written in place: small results kept from each block would pin the freed blocks between them.
    neighbours = torch.empty(2, len(points), dtype=torch.int64)
    similarities = torch.empty(2, len(points), dtype=torch.float64)
    for block, squares, squared in rows.blocks(order, wanted[order].nonzero()[:, 0]):
        same = classes[block, None] == classes[order]
        for side, others in enumerate((same, ~same)):
            distance, first = rows.nearest(block, order, squares, torch.where(others, squared, torch.inf))
            paired = distance.isfinite()
            # Between unit rows D = 2 - 2 S, and D keeps the digits of near-duplicates.
            similarity = (1 - distance.square() / 2).clamp(-1, 1)
            neighbours[side, block] = torch.where(paired, first, -1)
            similarities[side, block] = torch.where(paired, similarity, torch.nan)
    positive, negative = neighbours.numpy()[:, queries]
    s_ap, s_an = similarities.numpy()[:, queries]
    return NearestPairs(positive=positive, negative=negative, s_ap=s_ap, s_an=s_an)


@dataclass(frozen=True)
class Neighbours:
    """The k nearest others of each query, nearest first; fields `(queries, k)`."""

    indices: Integers
    distances: Floats


def neighbours(
    embeddings: Array, queries: Sequence[int] | npt.NDArray[Any], k: int, *, distance: Metric = "euclidean"
) -> Neighbours:
    """The `k` nearest other rows of a few query rows, itself left out by index; equal distances by lowest index.

    Distances are Euclidean, or 1 - cosine similarity, and come from differences of rows, exact for near-duplicates.

    Args:
        embeddings: `(N, d)` floating point.
        queries: row numbers in 0 .. N - 1.
        k: 1 .. N - 1.

    Raises:
        ValueError: if a row is not finite, a query is not a row number, or `k` is out of range.
    """
    points = as_points(embeddings, distance=distance)
    rows = np.asarray(queries)
    if rows.ndim != 1 or (rows.size and rows.dtype.kind not in "iu"):
        raise ValueError(f"queries must be a list of row numbers: got {rows.dtype} of shape {rows.shape}.")
    if rows.size and not (rows.min() >= 0 and rows.max() < len(points)):
        raise ValueError(f"queries must be row numbers from 0 to {len(points) - 1}: got {rows.min()} to {rows.max()}.")
    if not 1 <= k < len(points):
        raise ValueError(f"k must be between 1 and the {len(points) - 1} other items: got {k}.")
    indices = np.empty((len(rows), k), dtype=np.int64)
    values = np.empty((len(rows), k))
    for position, row in enumerate(rows.tolist()):
        squared = (points - points[row]).square().sum(dim=1)
        squared[row] = torch.inf
        nearest = torch.argsort(squared, stable=True)[:k]
        indices[position] = nearest.numpy()
        values[position] = squared[nearest].numpy()
    return Neighbours(indices=indices, distances=np.sqrt(values) if distance == "euclidean" else values / 2)


class _Rows:
    """Rows `(N, d)` float64 to compare: fast by products of centred rows, and by differences where that is too close.

    Of D = |x|^2 + |y|^2 - 2xy the products lose what is small beside |x|^2, and differences lose nothing. Centred on
    rows near them, as those of one block are in the order `along`, the products tell apart what is small beside all.
    """

    def __init__(self, points: Tensor) -> None:
        self.points = points
        # One row for all that equal it, so that many equal rows are compared once.
        distinct, group = torch.unique(points, dim=0, return_inverse=True)
        self.twins = group.new_zeros(len(distinct)).scatter_(0, group, torch.arange(len(points)).to(group))[group]

    def slack(self, squares: Tensor, squared: Tensor) -> Tensor:
        """A bound of the rounding error of the squared distances up to `squared` from rows of norm^2 `squares`.

        An xy of d products is wrong by at most (d + 8) / 2 eps |x| |y|, D by (d + 8) / 2 eps (|x| + |y|)^2, and
        (|x| + |y|)^2 <= 8 (|x|^2 + D). Twice the width of a tie is added.
        """
        width = self.points.shape[1]
        return (4 * (width + 8) * torch.finfo(torch.float64).eps + 4 * TIE) * (squares + squared)

    def blocks(self, members: Tensor, positions: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Blocks of some of the members, by their places `(Q,)` among them.

        Rows `(B,)`, their norm^2 `(B,)` and squared distances to all members `(B, M)`, own infinite.
        """
        points = self.points[members]
        for start, stop in spans(len(positions), max(1, min(ROWS, BLOCK_ENTRIES // max(1, len(members))))):
            rows = positions[start:stop]
            centred = points - points[rows].mean(dim=0)
            squares = centred.square().sum(dim=1)
            squared = torch.addmm(squares, centred[rows], centred.T, alpha=-2)
            squares = squares[rows]
            squared.add_(squares[:, None])
            squared[torch.arange(len(rows)), rows] = torch.inf
            yield members[rows], squares, squared

    def nearest(self, left: Tensor, right: Tensor, squares: Tensor, squared: Tensor) -> tuple[Tensor, Tensor]:
        """Distance `(B,)` from rows `left` to the nearest of rows `right`, and which it is: of a tie the lowest number.

        Infinite, and N, where all of `squared (B, M)`, their squared distances by products, are infinite.
        """
        least = squared.amin(dim=1)
        limit = torch.where(least.isfinite(), least + 2 * self.slack(squares, least.clamp_min(0)), -torch.inf)
        close = squared <= limit[:, None]
        smallest, first = torch.full_like(least, torch.inf), torch.full_like(left, len(self.points))
        some, others = _nonempty(close)
        if len(some):
            close, others = _submask(close, some, others), right[others]
            distances = self.distances(left[some], others, close).masked_fill_(~close, torch.inf)
            smallest[some] = distances.amin(dim=1)
            tied = distances <= smallest[some, None] * (1 + TIE)
            first[some] = torch.where(tied, others, len(self.points)).amin(dim=1)
        return smallest, first

    def distances(self, left: Tensor, right: Tensor, wanted: Tensor) -> Tensor:
        """Distances `(B, M)` by differences from rows `left` to rows `right`, right at least where `wanted (B, M)`."""
        rows, row = self.twins[left].unique(return_inverse=True)
        columns, column = self.twins[right].unique(return_inverse=True)
        if 4 * int(_count(wanted).sum()) > len(rows) * len(columns):
            distances = torch.cdist(self.points[rows], self.points[columns], compute_mode=DIFFERENCES)
            return distances.index_select(1, column).index_select(0, row)
        distances = torch.full(wanted.shape, torch.inf, dtype=torch.float64)
        row, column = wanted.nonzero(as_tuple=True)
        for start, stop in spans(len(row), max(1, PAIR_ENTRIES // self.points.shape[1])):
            some, others = row[start:stop], column[start:stop]
            differences = self.points.index_select(0, left[some]) - self.points.index_select(0, right[others])
            distances[some, others] = torch.linalg.vector_norm(differences, dim=1)
        return distances


def _along(points: Tensor) -> Tensor:
    """Row numbers in the order of the coordinate that varies most, so that the rows of a cluster come together."""
    return torch.argsort(points[:, points.var(dim=0, correction=0).argmax()], stable=True)


def _count(mask: Tensor) -> Tensor:
    # Summing a bool tensor as such is ten times slower on a CPU.
    return mask.view(torch.uint8).sum(dim=1, dtype=torch.int32).long()


def _nonempty(mask: Tensor) -> tuple[Tensor, Tensor]:
    """The rows and the columns that are true anywhere."""
    columns = mask.view(torch.uint8).amax(dim=0).nonzero()[:, 0]
    rows = mask.index_select(1, columns).any(dim=1).nonzero()[:, 0]
    return rows, columns


def _submask(mask: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    return mask.index_select(0, rows).index_select(1, columns)
