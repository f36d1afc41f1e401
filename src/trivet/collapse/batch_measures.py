"""Collapse measures of single training batches, which the monitor follows.

Each has two halves: on the device of a batch, in few operations and without waiting for it, sums and what each item is
nearest to; then, once these were read as lists, the measures in plain Python.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

import torch
from torch import Tensor

from trivet.metrics.points import spans
from trivet.metrics.relation_levels import COMPARED
from trivet.mining.relations import Relation

MOST = 256  # rows of a batch of which distances are compared
PAIRED = 128  # rows up to which all distances cost no more than the sums of the classes

SUM_MEASURES = ("mean_distance", "relative_spread", "within", "between", "fine_index", "norm", "norm_tail")
"""What `sum_measures` gives, in this order."""

NEIGHBOR_MEASURES = ("recall", "fine_recall", "fine_items", "hard", "s_ap", "s_an", "effective_rank")
"""What `neighbor_measures` gives, in this order."""


class PairDistances(NamedTuple):
    """Batches with the distances of all their pairs."""

    # points, centred: `(B, N, d)` float32, as they were and about their mean, that of their side where there are two.
    points: Tensor
    centred: Tensor
    norms: Tensor  # `(B, N)` of the points
    products: Tensor  # `(B, N, N)` scalar products of the centred rows
    squared: Tensor  # `(B, N, N)` squared distances, >= 0 and 0 on the diagonal
    alike: list[Tensor]  # `(B, N, N)` positives, and perhaps those of one fine class, an item with itself too
    unlike: Tensor | None  # `(B, N, N)` negatives; None where these are all others
    right: Tensor | None  # `(B, N)` whether an item is of the right side; None where there is one side


def related_pairs(relation: Relation) -> tuple[Tensor, Tensor]:
    """Rows `(n,)` of a batch to measure, and which of them belong together, `(n, n)` int8: 1, 0, or -1 for ignored.

    All rows of a small batch; of a large one some anchors, evenly, and a positive of each.
    """
    count, items = len(relation), relation.items
    rows = torch.arange(count, device=items.device)
    if count > MOST:
        anchors = torch.linspace(0, count - 1, MOST // 2, device=items.device).long()
        others = relation.positive(items[anchors], items) & (rows != anchors[:, None])
        rows = torch.unique(torch.cat([anchors, others.int().argmax(dim=1)[others.any(dim=1)]]))
    codes = pair_codes(relation[rows])
    return rows, codes.fill_diagonal_(1)


def pair_codes(relation: Relation) -> Tensor:
    """Pairs of N items, `(N, N)` int8: 1 for positives, 0 for negatives, -1 for ignored ones."""
    items = relation.items
    codes = torch.empty((len(items), len(items)), dtype=torch.int8, device=items.device)
    for start, stop in spans(len(items), max(1, COMPARED // max(1, len(items)))):
        positive, neutral = relation.compared(items[start:stop], items)
        codes[start:stop] = positive.to(torch.int8) - (neutral & ~positive).to(torch.int8)
    return codes


def pair_distances(points: Tensor, *levels: Tensor) -> PairDistances:
    """All pairs of batches `(B, N, d)` float32.

    Args:
        levels: labels and perhaps fine classes `(B, N)` integer; or `(B, N, N)` as of `related_pairs`, and perhaps
            `(B, N)` integer, 1 for the items of the right of two sides.
    """
    centred = _centred(points)
    products = centred @ centred.mT
    squares = products.diagonal(dim1=1, dim2=2)  # of these products, so that an item is at 0 from itself
    squared = torch.sub(squares[:, :, None] + squares[:, None], products, alpha=2).clamp_min_(0)
    unlike = right = None
    if levels[0].ndim == 3:
        alike, unlike = [levels[0] == 1], levels[0] == 0
        if len(levels) > 1:
            right = levels[1] == 1
            centred = _about_sides(points, right)
            products = centred @ centred.mT
    else:
        alike = [classes[:, :, None] == classes[:, None] for classes in levels]
        if len(alike) > 1:
            alike[1] = alike[1] & alike[0]
    return PairDistances(
        points, centred, torch.linalg.vector_norm(points, dim=2), products, squared, alike, unlike, right
    )


def batch_sums(points: Tensor, *levels: Tensor, pairs: PairDistances | None = None) -> list[Tensor]:
    """Add up what `sum_measures` needs of batches, on their device and without waiting for it.

    With n items of a class, sum s and sum of squares q, the squared distances inside it add up to 2 (n q - |s|^2), over
    ordered pairs: that takes O(N d), and nothing N x N is made. Where the distances of all pairs are known they are
    added up instead.

    Args:
        points: `(B, N, d)` float32, N >= 2.
        levels: `(B, N)` integer: labels, and perhaps classes inside the classes.
        pairs: of these batches, if known; needed for another relation than classes.

    Returns:
        Each `(B,)`: the sum of the squared norms; the median norm, of an even number the lower of the middle two, and
        the largest; the sum of the squared distances over ordered pairs; and, for each level, this sum over pairs of
        one class, and how many these are with those of an item with itself. For another relation than classes this is
        of positives, then NaN twice, then of ignored pairs; and of each of two sides the number of its items, the sum
        of their squared norms, and that of the squared distances over their ordered pairs.
    """
    norms = torch.linalg.vector_norm(points, dim=2) if pairs is None else pairs.norms
    ordered = norms.sort(dim=1).values
    count = norms.shape[1]
    if pairs is not None:
        everything = pairs.squared.sum(dim=(1, 2))
        sums: list[tuple[Tensor, ...]] = [_selected(pairs.squared, alike) for alike in pairs.alike]
        if pairs.unlike is not None:
            unknown = torch.full_like(everything, torch.nan)
            sums += [(unknown, unknown), _selected(pairs.squared, ~(pairs.alike[0] | pairs.unlike))]
        for side in () if pairs.right is None else (~pairs.right, pairs.right):
            items, deviations = side.sum(dim=1), pairs.centred.square().sum(dim=2)
            squares = (norms.square() * side).sum(dim=1)
            sums.append((items, squares, 2 * items * (deviations * side).sum(dim=1)))
    else:
        centred = _centred(points)
        everything = 2 * count * centred.square().sum(dim=(1, 2))
        # A number for each (class, fine class): equal where both are.
        both = [levels[0].long() * (fine.max().long() + 1) + fine.long() for fine in levels[1:]]
        sums = [_inside(centred, classes) for classes in (*levels[:1], *both)]
    return [norms.square().sum(dim=1), ordered[:, (count - 1) // 2], ordered[:, -1], everything, *chain(*sums)]


def sum_measures(
    count: int,
    squares: float,
    middle: float,
    largest: float,
    everything: float,
    inside: float | None = None,
    pairs: float = 0,
    fine_inside: float | None = None,
    fine_pairs: float = 0,
    ignored: float = 0,
    ignored_pairs: float = 0,
    *sides: float,
) -> list[float]:
    """The measures of a batch of `count` items, named by `SUM_MEASURES`, from its `batch_sums`; NaN if not defined.

    Lengths are root mean squares over pairs of items: mean_distance of all pairs; relative_spread, the deviation from
    the centre over the norm, in [0, 1]; within and between, of positives and of negatives, which are pairs of one class
    and of two; fine_index, how far apart the centres of fine classes inside a class are, over the same of classes, both
    without what the spread of a few items adds; norm; norm_tail, the largest over the median. Of two sides, which may
    lie apart, mean_distance and relative_spread are those of the narrower one.

    Args:
        sides: of the left and of the right side, how many items it has, the sum of their squares, and `everything`.
    """
    all_pairs = count * (count - 1)
    shapes = [_shape(count, squares, everything)]
    if sides:
        shapes = [_shape(*sides[:3]), _shape(*sides[3:])]
    share, square = min(shapes, key=lambda shape: math.inf if math.isnan(shape[0]) else shape[0])
    within = between = index = math.nan
    if inside is not None:
        pairs -= count
        inner, outer = (
            _ratio(inside, pairs),
            _ratio(_nonnegative(everything - inside - ignored), all_pairs - pairs - ignored_pairs),
        )
        within, between = math.sqrt(inner), math.sqrt(outer)
        if fine_inside is not None and outer > inner:
            fine_pairs -= count
            separation = _ratio(inside - fine_inside, pairs - fine_pairs) - _ratio(fine_inside, fine_pairs)
            index = math.sqrt(_ratio(_nonnegative(separation), outer - inner))
    spread = 1.0 if share > 1 else math.sqrt(share)
    distance, norm = math.sqrt(square), math.sqrt(squares / count)
    tail = largest / middle if middle else largest * math.inf
    return [distance, spread, within, between, index, norm, tail]


def _shape(count: float, squares: float, everything: float) -> tuple[float, float]:
    """The squares of relative_spread and mean_distance of some items; NaN of fewer than two."""
    if count < 2:
        return math.nan, math.nan
    return _ratio(everything / (2 * count), squares), everything / (count * (count - 1))


def neighbor_stats(pairs: PairDistances) -> list[Tensor]:
    """Gather the arguments of `neighbor_measures` of the last of some batches, on its device."""
    squared, alike = pairs.squared[-1], [pairs_of_level[-1] for pairs_of_level in pairs.alike]
    same = alike[0]
    unlike = same.logical_not() if pairs.unlike is None else pairs.unlike[-1]
    sides = torch.stack([same, unlike])
    sides[0].fill_diagonal_(False)
    nearest = squared.where(sides, torch.inf).min(dim=2)
    points, (count, width) = pairs.points[-1], pairs.points.shape[1:]
    products = pairs.products[-1] if count <= width else pairs.centred[-1].T @ pairs.centred[-1]
    return [
        pairs.norms[-1],
        nearest.values,
        nearest.indices,
        (points[nearest.indices] * points).sum(dim=2),
        squared.where(same, 0).amax(dim=1),
        _eigenvalues(products.double()),
        same.sum(dim=1) if pairs.unlike is None else same.sum(dim=1).where(unlike.any(dim=1), count),
        *chain(*((deep.sum(dim=1), deep.gather(1, nearest.indices[0][:, None])[:, 0]) for deep in alike[1:])),
    ]


def neighbor_measures(
    norms: Sequence[float],
    nearest: Sequence[Sequence[float]],
    which: Sequence[Sequence[int]],
    products: Sequence[Sequence[float]],
    farthest: Sequence[float],
    eigenvalues: Sequence[float],
    sizes: Sequence[int],
    fine_sizes: Sequence[int] | None = None,
    hits: Sequence[bool] | None = None,
) -> list[float]:
    """The measures named by `NEIGHBOR_MEASURES`; NaN where one is not defined.

    recall, the share of items whose nearest other item is of their class, or is a positive where ignored ones are left
    out; fine_recall, the share whose nearest positive is of their fine class, of those that have one of another fine
    class too, and fine_items, how many these are; hard, the share whose farthest positive is farther than their nearest
    negative; s_ap and s_an, the mean cosine similarity to the nearest positive and to the nearest negative;
    effective_rank, exp of the entropy of the normalised singular values of the centred rows, in [1, d]. Items without a
    positive or a negative are left out.

    Args:
        norms: of the N items.
        nearest, which, products: `(2, N)` squared distances to the nearest positive, itself left out, and to the
            nearest negative, infinite without one; which items these are; and the scalar products with them.
        farthest: squared distance to the farthest positive; 0 without one.
        eigenvalues: of the products of the centred rows, or of columns where these are fewer; one NaN where a row is
            not finite.
        sizes, fine_sizes: how many items are of its class, and of its fine class in it; N without a negative.
        hits: whether the nearest positive is of its fine class.

    Source:
        s_ap, s_an: Xuan et al., "Extreme Triplet Learning", submission to ICLR 2020, section 3; effective rank: Roy,
        Vetterli, EUSIPCO 2007.
    """
    items = recalled = hard = 0
    s_ap = s_an = 0.0
    for norm, positive, negative, nearest_positive, nearest_negative, to_positive, to_negative, far, size in zip(
        norms, *nearest, *which, *products, farthest, sizes, strict=True
    ):
        if 1 < size < len(norms):
            items += 1
            recalled += positive < negative
            hard += far > negative
            s_ap += _cosine(to_positive, norm, norms[int(nearest_positive)])
            s_an += _cosine(to_negative, norm, norms[int(nearest_negative)])
    fine_items = fine_recall = math.nan
    if hits is not None and fine_sizes is not None:
        fine = [hit for size, fine_size, hit in zip(sizes, fine_sizes, hits, strict=True) if 1 < fine_size < size]
        fine_items, fine_recall = float(len(fine)), _ratio(sum(fine), len(fine))
    means = [_ratio(total, items) for total in (recalled, hard, s_ap, s_an)]
    return [means[0], fine_recall, fine_items, *means[1:], _effective_rank(eigenvalues)]


def _cosine(product: float, norm: float, other_norm: float) -> float:
    """Cosine of rows with this scalar product and these norms; 0 where one of them is 0, NaN where both are."""
    if norm and other_norm:
        return product / (norm * other_norm)
    return 0.0 if norm or other_norm else math.nan


def _effective_rank(eigenvalues: Sequence[float]) -> float:
    """exp of the entropy of the singular values, roots of the eigenvalues, over their sum; NaN where all are 0."""
    values = [math.sqrt(value) for value in eigenvalues if not value <= 0]
    total = sum(values)
    return math.exp(-sum(value / total * math.log(value / total) for value in values)) if values else math.nan


def _eigenvalues(products: Tensor) -> Tensor:
    try:
        values: Tensor = torch.linalg.eigvalsh(products)
    except torch.linalg.LinAlgError:  # type: ignore[attr-defined]  # as where a row is not finite; torch has it
        values = products.new_full((1,), torch.nan)
    return values


def _centred(points: Tensor) -> Tensor:
    centred = points - points[:, :1]  # keeps the digits of a collapsed embedding
    return centred - centred.mean(dim=1, keepdim=True)


def _about_sides(points: Tensor, right: Tensor) -> Tensor:
    """The rows of batches `(B, N, d)`, each less the mean of its side."""
    about = torch.empty_like(points)
    for side in (~right, right):
        first = points.gather(1, side.int().argmax(dim=1)[:, None, None].expand(-1, 1, points.shape[2]))
        rows, items = points - first, side[:, :, None]
        mean = (rows * items).sum(dim=1, keepdim=True) / items.sum(dim=1, keepdim=True)
        about = torch.where(items, rows - mean, about)
    return about


def _inside(centred: Tensor, classes: Tensor) -> tuple[Tensor, Tensor]:
    """Sum of squared distances over ordered pairs of one class, and the number of pairs, of each batch `(B, N, d)`.

    Pairs of an item with itself are counted too.
    """
    batches, count, dimension = centred.shape
    order = torch.argsort(classes, dim=1, stable=True)
    ordered = classes.gather(1, order)
    number = torch.zeros_like(ordered)
    # 0, 0, 1, ... in each batch: no reading back of how many classes there are
    number[:, 1:] = (ordered[:, 1:] != ordered[:, :-1]).cumsum(1)
    number = (number + count * torch.arange(batches, device=number.device)[:, None]).flatten()
    rows = centred.gather(1, order[:, :, None].expand(-1, -1, dimension)).flatten(0, 1)
    sums = torch.zeros_like(rows).index_add_(0, number, rows)
    counts = torch.zeros_like(number).index_add_(0, number, torch.ones_like(number))
    squares = torch.zeros_like(rows[:, 0]).index_add_(0, number, rows.square().sum(dim=1))
    inside = 2 * (counts * squares - sums.square().sum(dim=1)).clamp_min(0)
    return inside.view(batches, count).sum(dim=1), counts.square().view(batches, count).sum(dim=1)


def _selected(squared: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor]:
    """Sum of the squared distances of some pairs, and their number, of each batch `(B, N, N)`."""
    return squared.where(chosen, 0).sum(dim=(1, 2)), chosen.sum(dim=(1, 2))


def _nonnegative(value: float) -> float:
    """The value, or 0 where it is below; NaN stays."""
    return 0.0 if value < 0 else value


def _ratio(numerator: float, denominator: float) -> float:
    """part / whole, NaN where the second is 0."""
    return numerator / denominator if denominator else math.nan
