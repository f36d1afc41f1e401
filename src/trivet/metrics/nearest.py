"""Nearest pairs and nearest neighbours within one set, exact for near-duplicates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from trivet.distances import Array, as_classes
from trivet.metrics.points import Metric, as_points, distances_of_pairs, spans
from trivet.metrics.positive_ranks import DIFFERENCES, TIE, rounding_error
from trivet.runtime.arrays import Floats, Integers

ROWS = 256  # of a block
BLOCK_ENTRIES = 2**21  # of a block of whole rows: 16 MiB, and as much for each of a few copies of it


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
            f"{queries.shape}; sort them with np.unique(sample)."
        )
    order = along(points)
    wanted = torch.zeros(len(points), dtype=torch.bool)
    wanted[torch.from_numpy(queries.astype(np.int64))] = True

    def sides(rows: Tensor) -> tuple[Tensor, Tensor]:
        same = classes[rows, None] == classes[order]
        return same & (rows[:, None] != order), ~same

    left = order[wanted[order]]
    distances, numbers = nearest_allowed(points, left, order, sides, 2)
    neighbours = torch.empty(2, len(points), dtype=torch.int64)
    similarities = torch.empty(2, len(points), dtype=torch.float64)
    neighbours[:, left] = numbers
    # Between unit rows D = 2 - 2 S, and D keeps the digits of near-duplicates.
    similarities[:, left] = (1 - distances.square() / 2).clamp(-1, 1).masked_fill(numbers < 0, torch.nan)
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


def nearest_allowed(
    points: Tensor,
    left: Tensor,
    right: Tensor,
    allowed: Callable[[Tensor], tuple[Tensor, ...]],
    sides: int = 1,
) -> tuple[Tensor, Tensor]:
    """Distance from some rows to the nearest of others, exact for near-duplicates, and which row that is.

    Products of centred rows find what may be nearest, and differences of these decide: of
    D = |x|^2 + |y|^2 - 2xy the products lose what is small beside |x|^2, and differences lose nothing. Centred on rows
    near them, as those of one block are in the order `along`, the products tell apart what is small beside all.

    Args:
        points: `(N, d)` float64.
        left, right: row numbers `(Q,)` and `(M,)`.
        allowed: gives, for rows `(B,)` of `left`, for each side the pairs `(B, M)` that count.

    Returns:
        Distances and row numbers `(sides, Q)`: of a tie the lowest number; infinite and -1 without a pair.
    """
    # One row for all that equal it, so that many equal rows are compared once.
    distinct, group = torch.unique(points, dim=0, return_inverse=True)
    twins = group.new_zeros(len(distinct)).scatter_(0, group, torch.arange(len(points)).to(group))[group]
    others = points[right]
    # Written in place: small results kept from each block would pin the freed blocks between them.
    distances = torch.full((sides, len(left)), torch.inf, dtype=torch.float64)
    numbers = torch.full((sides, len(left)), -1, dtype=torch.int64)
    for start, stop in spans(len(left), max(1, min(ROWS, BLOCK_ENTRIES // max(1, len(right))))):
        rows = left[start:stop]
        centre = points[rows].mean(dim=0)
        centred, from_centre = others - centre, points[rows] - centre
        squares = from_centre.square().sum(dim=1)
        squared = torch.addmm(centred.square().sum(dim=1), from_centre, centred.T, alpha=-2).add_(squares[:, None])
        for side, mask in enumerate(allowed(rows)):
            masked = torch.where(mask, squared, torch.inf)
            least = masked.amin(dim=1)
            slack = rounding_error(points.shape[1], squares, least.clamp_min(0))
            close = masked <= torch.where(least.isfinite(), least + 2 * slack, -torch.inf)[:, None]
            some, columns = _nonempty(close)
            if len(some):
                close, columns = close.index_select(0, some).index_select(1, columns), right[columns]
                exact = _distances(points, twins, rows[some], columns, close).masked_fill_(~close, torch.inf)
                smallest = exact.amin(dim=1)
                tied = exact <= smallest[:, None] * (1 + TIE)
                distances[side, start + some] = smallest
                numbers[side, start + some] = torch.where(tied, columns, len(points)).amin(dim=1)
    return distances, numbers


def _distances(points: Tensor, twins: Tensor, left: Tensor, right: Tensor, wanted: Tensor) -> Tensor:
    """Distances `(B, M)` by differences from rows `left` to rows `right`, right at least where `wanted (B, M)`."""
    rows, row = torch.unique(twins[left], return_inverse=True)
    columns, column = torch.unique(twins[right], return_inverse=True)
    if 4 * int(wanted.count_nonzero()) > len(rows) * len(columns):
        distances = torch.cdist(points[rows], points[columns], compute_mode=DIFFERENCES)
        return distances.index_select(1, column).index_select(0, row)
    distances = torch.full(wanted.shape, torch.inf, dtype=torch.float64)
    row, column = wanted.nonzero(as_tuple=True)
    distances[row, column] = distances_of_pairs(points, left[row], points, right[column])
    return distances


def along(points: Tensor) -> Tensor:
    """Row numbers in the order of the coordinate that varies most, so that the rows of a cluster come together."""
    return torch.argsort(points[:, points.var(dim=0, correction=0).argmax()], stable=True)


def order_keys(squared: Tensor) -> Tensor:
    """Integers that order squared distances `(B, M)` float32, of equal ones the first; their last 32 bits: the column.

    Without ties, and rounding that differs by machine has no part in the order of equal ones.
    """
    return (squared.view(torch.int32).long() << 32) | torch.arange(squared.shape[1])


def smallest(squared: Tensor, k: int) -> Tensor:
    """Columns `(B, k)` of the smallest entries of each row `(B, M)`, rising; of equal entries the first."""
    more = min(k + 1, squared.shape[1])
    values, columns = squared.topk(more, dim=1, largest=False)
    if more > k:
        tied = values[:, k] == values[:, k - 1]
        if tied.any():  # which of them is in depends on their order
            columns[tied, :k] = order_keys(squared[tied]).topk(k, largest=False).values & 0xFFFFFFFF
    return columns[:, :k].sort(dim=1).values


def _nonempty(mask: Tensor) -> tuple[Tensor, Tensor]:
    """The rows and the columns that are true anywhere."""
    columns = mask.view(torch.uint8).amax(dim=0).nonzero()[:, 0]
    rows = mask.index_select(1, columns).any(dim=1).nonzero()[:, 0]
    return rows, columns
