"""Retrieval among the items of one set: recall at K, nearest pairs, nearest neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from trivet.evaluation.inputs import Metric, as_points
from trivet.evaluation.ranks import Points, Ranks, along, ranks
from trivet.geometry import Array, as_classes

Singletons = Literal["miss", "drop"]
Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


def recall_at_k(
    embeddings: Array,
    labels: Array,
    ks: Sequence[int] = (1, 2, 4, 8),
    *,
    distance: Metric = "euclidean",
    singletons: Singletons = "miss",
) -> dict[int, float]:
    """Share of items with at least one same-class item among their K nearest other items.

    Items tied at the distance of the nearest same-class item count as if put in random order, and the result is the
    exact expectation: a constant embedding scores chance. What counts as tied: see `Ranks`.

    Args:
        embeddings: `(N, d)` floating point, N >= 2; compared in float64, memory O(N).
        labels: `(N,)` of any integer dtype.
        ks: each at least 1; a K beyond N - 1 takes all others.
        distance: "euclidean", or "cosine" (1 - cosine similarity; a row of zeros has similarity 0 to other rows).
        singletons: an item alone in its class is a miss, or is dropped from the mean.

    Returns:
        {K: share in [0, 1]}, in the order of `ks`.

    Raises:
        ValueError: if shapes or dtypes disagree, a row is not finite, N < 2, a K is below 1, or nothing is left to
            average over.

    Source:
        Levi et al., ICCV 2021, section 5, after Jegou et al., "Product quantization for nearest neighbor search".

    Example:
        >>> recall_at_k(np.array([[0.0], [1.0], [3.0], [4.5]]), np.array([0, 0, 1, 0]), ks=(1, 2))
        {1: 0.5, 2: 0.75}
    """
    hits = hits_at_k(embeddings, labels, ks, distance=distance, singletons=singletons)
    return mean_recall(hits, ks)


def hits_at_k(
    embeddings: Array,
    labels: Array,
    ks: Sequence[int] = (1, 2, 4, 8),
    *,
    distance: Metric = "euclidean",
    singletons: Singletons = "miss",
) -> Floats:
    """Per query what `recall_at_k` averages: the chance of a hit `(N, len(ks))` float64, in [0, 1].

    An item alone in its class has 0 when it is a miss, and NaN when it is dropped. Arguments and errors as there.
    """
    points, classes = _checked(embeddings, labels, distance)
    return hits_of(ranks(points, [classes])[0], ks, singletons=singletons)


def hits_of(standing: Ranks, ks: Sequence[int], *, singletons: Singletons = "miss") -> Floats:
    """`hits_at_k` from ranks that are already counted."""
    if not ks or any(k < 1 for k in ks):
        raise ValueError(f"ks must name at least one K, each at least 1: got {tuple(ks)}.")
    if singletons not in ("miss", "drop"):
        raise ValueError(f"singletons must be 'miss' or 'drop': got {singletons!r}.")
    hits = torch.stack([standing.hits_at(k) for k in ks], dim=1)
    if singletons == "drop":
        hits[standing.positives == 0] = torch.nan
    return hits.cpu().numpy()


def mean_recall(hits: Floats, ks: Sequence[int]) -> dict[int, float]:
    """Mean of `hits (N, len(ks))` over the queries that are not dropped (NaN)."""
    kept = hits[~np.isnan(hits[:, 0])]
    if not len(kept):
        raise ValueError("recall needs a class of at least two items when singletons are dropped: every class has one.")
    return dict(zip(ks, kept.mean(axis=0).tolist(), strict=True))


@dataclass(frozen=True)
class NearestPairs:
    """For each item its nearest same-class item and its nearest other-class item; fields `(N,)`.

    Where there is none (a class of one item; a single class) the index is -1 and the similarity NaN.
    """

    positive: Integers
    negative: Integers
    s_ap: Floats  # cosine similarity to the nearest same-class item, in [-1, 1]
    s_an: Floats  # cosine similarity to the nearest other-class item, in [-1, 1]


def nearest_pairs(embeddings: Array, labels: Array) -> NearestPairs:
    """Nearest positive and nearest negative of each item, by cosine similarity, over the whole set.

    The two similarities are the coordinates of the triplet scatter diagram. Of tied items (as in `Ranks`) the one with
    the lowest index is taken.

    Args:
        embeddings: `(N, d)` floating point, N >= 2; a row of zeros has similarity 0 to other rows.
        labels: `(N,)` of any integer dtype.

    Raises:
        ValueError: if shapes or dtypes disagree, a row is not finite, or N < 2.

    Source:
        Xuan et al., "Extreme Triplet Learning", figures 1 and 6.
    """
    points, classes = _checked(embeddings, labels, "cosine")
    classes = classes.to(points.device)
    rows = Points(points)
    order = along(points)
    # Written in place: small results kept from each block would pin the freed blocks between them.
    found = torch.empty(2, len(points), dtype=torch.int64, device=points.device)
    similarities = torch.empty(2, len(points), dtype=torch.float64, device=points.device)
    for block, squares, squared in rows.blocks(order):
        same = classes[block, None] == classes[order]
        for side, others in enumerate((same, ~same)):
            distance, first = rows.nearest(block, order, squares, torch.where(others, squared, torch.inf))
            paired = distance.isfinite()
            # Between unit rows D = 2 - 2 S, and D keeps the digits of near-duplicates.
            similarity = (1 - distance.square() / 2).clamp(-1, 1)
            found[side, block] = torch.where(paired, first, -1)
            similarities[side, block] = torch.where(paired, similarity, torch.nan)
    positive, negative = found.cpu().numpy()
    s_ap, s_an = similarities.cpu().numpy()
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
    for place, row in enumerate(rows.tolist()):
        squared = (points - points[row]).square().sum(dim=1)
        squared[row] = torch.inf
        nearest = torch.argsort(squared, stable=True)[:k]
        indices[place] = nearest.cpu().numpy()
        values[place] = squared[nearest].cpu().numpy()
    return Neighbours(indices=indices, distances=np.sqrt(values) if distance == "euclidean" else values / 2)


def _checked(embeddings: Array, labels: Array, distance: Metric) -> tuple[Tensor, Tensor]:
    points = as_points(embeddings, distance=distance)
    if len(points) < 2:
        raise ValueError(f"retrieval needs at least two items: got {len(points)}.")
    return points, as_classes(labels, count=len(points))
