"""Class spread: how large classes are, and how far apart the finer classes within them, relative to other classes."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from trivet.collapse.distances import centred
from trivet.collapse.hubs import NEIGHBOURS, nearest_others
from trivet.distances import Array, as_classes, as_rows, unit_rows
from trivet.metrics.points import spans
from trivet.mining.relations import Relation
from trivet.runtime.arrays import Floats, Integers

QUERIES = 5000  # items that are asked for their nearest neighbour, and for what surrounds them
LEAST_NEIGHBOURS = 6  # of fewer, so many are of one other class where classes overlap
STRANGE, FOREIGN = 0.1, 0.6  # at most such a share of the neighbours has the item's label, at least such another one
BLOCK = 256  # items that are compared with all at a time


def fine_coarse_index(embeddings: Array, coarse: Array, fine: Array) -> float:
    """Mean distance of fine class centroids inside a coarse class / mean distance of coarse class centroids.

    About 0.1 for a network trained on the coarse labels whose classes collapsed, about 1 for one that kept the fine
    classes apart. A ratio: the scale of the embedding cancels. Both means give pairs of centroids equal weight, the
    numerator's pooled over all coarse classes; a centroid is the mean of its items. A fine class that lies in two
    coarse classes counts as one in each.

    Args:
        embeddings: `(N, d)` floating point, computed in float64.
        coarse, fine: `(N,)` of any integer dtype.

    Returns:
        A number >= 0; infinite if only the coarse centroids coincide, NaN if the fine ones do too (all rows equal).

    Raises:
        ValueError: if shapes or dtypes disagree, a row is not finite, there are fewer than two coarse classes, or no
            coarse class holds two fine ones.

    Example:
        >>> points = torch.tensor([[0.0], [1.0], [10.0], [13.0]])
        >>> fine_coarse_index(points, coarse=torch.tensor([0, 0, 1, 1]), fine=torch.tensor([0, 1, 2, 3]))
        0.18181818181818182
    """
    points = as_rows(embeddings).cpu()
    if len(points):
        points = points - points[0]  # by a row and not the mean: equal rows become exactly 0
    outer = as_classes(coarse, count=len(points), name="coarse")
    if not len(outer) or outer.max() == 0:
        raise ValueError("coarse must hold at least two classes; the index compares them.")
    inner = as_classes(fine, count=len(points), name="fine")
    groups, members = torch.unique(torch.stack([outer, inner], dim=1), dim=0, return_inverse=True)
    fine_centroids = _centroids(points, members)
    within = [torch.pdist(fine_centroids[groups[:, 0] == number]) for number in range(int(outer.max()) + 1)]
    pooled = torch.cat(within)
    if not len(pooled):
        raise ValueError("fine must split at least one coarse class in two: got one fine class in each.")
    return float(pooled.mean() / torch.pdist(_centroids(points, outer)).mean())


@dataclass(frozen=True, eq=False)
class ClassSpread:
    """Size of each class and its distance from the others; fields `(C,)`, in the order of the sorted labels.

    Attributes:
        within: root mean square distance of two items of the class; NaN for a class of one item.
        between: root mean square distance of an item of the class and one of another; NaN for a single class.
    """

    within: Floats
    between: Floats

    @property
    def ratio(self) -> Floats:
        """within / between `(C,)`: 0 for a class that is one point, about 1 for one that is no class to the eye."""
        # 0 / 0, two classes on one point, is NaN: nothing tells them apart.
        with np.errstate(divide="ignore", invalid="ignore"):
            return self.within / self.between


def class_spread(embeddings: Array, labels: Array) -> ClassSpread:
    """Spread of every class within itself and from the others, over all pairs, in O(N d).

    Args:
        embeddings: `(N, d)` floating point, N >= 1.
        labels: `(N,)` of any integer dtype.

    Example:
        >>> class_spread(np.array([[0.0], [1.0], [10.0], [13.0]]), np.array([0, 0, 1, 1])).within
        array([1., 3.])
    """
    points = as_rows(embeddings).cpu()
    classes = as_classes(labels, count=len(points))
    if not len(points):
        raise ValueError("class_spread needs at least one item: got none.")
    points = centred(points)
    sizes, means, scatter = class_scatter(points, classes)
    others = len(points) - sizes
    # Of two sets, the mean squared distance is the sum of their variances and the squared distance of their means.
    total = points.square().sum()
    rest = (points.sum(dim=0) - sizes[:, None] * means) / others[:, None]
    spread = (total - scatter - sizes * means.square().sum(dim=1)) / others - rest.square().sum(dim=1)
    between = scatter / sizes + spread.clamp_min(0) + (means - rest).square().sum(dim=1)
    within = torch.where(sizes > 1, 2 * scatter / (sizes - 1), torch.nan)
    between = torch.where(others > 0, between, torch.nan)
    return ClassSpread(within=within.sqrt().numpy(), between=between.sqrt().numpy())


@dataclass(frozen=True)
class RelatedSpread:
    """Distances to what an item belongs together with, under a relation; NaN where no item has any.

    Attributes:
        ratio: median over the items of the root mean square distance to these over that to its negatives: 0 where all
            that belongs together lies on one point, about 1 where it lies as far apart as all else.
        alignment: mean squared distance of two items that belong together on the unit sphere, in [0, 4].
    """

    ratio: float
    alignment: float


def related_spread(embeddings: Array, relation: Relation, rows: Integers) -> RelatedSpread:
    """Spread of what belongs together beside what does not, of some items.

    Args:
        embeddings: `(N, d)` floating point.
        relation: of these N items.
        rows: `(Q,)` the items that are asked.
    """
    raw = as_rows(embeddings).cpu()
    points, unit = raw - raw[0], unit_rows(raw)  # by a row and not the mean: equal rows become exactly 0
    ratios, near, pairs = [], 0.0, 0
    for start, stop in spans(len(rows), BLOCK):
        block = torch.from_numpy(rows[start:stop])
        positive, neutral = relation.compared(relation.items[block], relation.items)
        others = block[:, None] != torch.arange(len(points))
        positive, negative = positive & others, ~neutral & others
        squares = torch.cdist(points[block], points).square()
        within, between = (torch.where(mask, squares, 0).sum(dim=1) / mask.sum(dim=1) for mask in (positive, negative))
        ratios.append((within / between).sqrt())
        near += float(torch.where(positive, torch.cdist(unit[block], unit).square(), 0).sum())
        pairs += int(positive.sum())
    known = torch.cat(ratios)
    known = known[known.isfinite()]
    return RelatedSpread(
        ratio=float(np.median(known.numpy())) if len(known) else math.nan,
        alignment=near / pairs if pairs else math.nan,
    )


def class_scatter(points: Tensor, classes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Size of each class `(C,)`, its mean `(C, d)`, and the sum of squared distances of its items to that `(C,)`."""
    sizes, means = torch.bincount(classes), _centroids(points, classes)
    squares = (points - means[classes]).square().sum(dim=1)
    return sizes, means, points.new_zeros(len(sizes)).index_add_(0, classes, squares)


def class_members(classes: Integers) -> list[Integers]:
    """The rows of each class 0 .. C - 1, in order."""
    order = np.argsort(classes, kind="stable")
    return np.split(order, np.cumsum(np.bincount(classes))[:-1]) if len(classes) else []


def stranger_share(around: Integers, labels: Integers, *, same: float, other: float) -> float:
    """Share of items whose neighbours `around (Q, k)` hold at most `same` of their label `(Q,)`, and `other` or more of
    one other label."""
    alike = around == labels[:, None]
    counts = (around[:, :, None] == around[:, None]).sum(axis=2)
    return float(((alike.sum(axis=1) <= same) & (np.where(alike, 0, counts).max(axis=1) >= other)).mean())


def _centroids(points: Tensor, classes: Tensor) -> Tensor:
    sums = points.new_zeros(int(classes.max()) + 1, points.shape[1]).index_add_(0, classes, points)
    return sums / torch.bincount(classes)[:, None]


def strangers(embeddings: Array, labels: Array, *, seed: int = 0) -> float:
    """Share of items that lie among items which mostly share one other label.

    Of the ten nearest neighbours (fewer where the median class has fewer than 11 items) at most a tenth have the
    item's own label and at least six tenths one other label. Where classes overlap, neighbours are mixed, and few items
    are strangers; where labels were exchanged, many are. Where the median class has fewer than seven items, none is
    called one: of three neighbours two are often of one other class.

    Args:
        embeddings: `(N, d)` floating point, N >= 2.
        labels: `(N,)` of any integer dtype.
        seed: of the 5,000 items that are asked where there are more.
    """
    points = as_rows(embeddings).cpu()
    classes = as_classes(labels, count=len(points))
    k = min(NEIGHBOURS, int(torch.bincount(classes).double().median()) - 1, len(points) - 1)
    if k < LEAST_NEIGHBOURS:
        return 0.0
    # Of equal rows the first are found: in random order, which says nothing of the class.
    order = np.random.default_rng(seed).permutation(len(points))
    points, classes = points[order], classes[torch.from_numpy(order)]
    queries = np.sort(np.random.default_rng(seed).permutation(len(points))[:QUERIES])
    labels_of = classes.numpy()
    around = labels_of[nearest_others(points, queries, k)]
    return stranger_share(around, labels_of[queries], same=STRANGE * k, other=FOREIGN * k)
