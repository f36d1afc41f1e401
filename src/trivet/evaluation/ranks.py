"""Where the nearest same-class item stands among all others, by counting: no sorting, no lists of neighbours."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

TILE = (256, 4096)  # rows and columns counted at once: 8 MiB, which stays in a cache
BLOCK_ENTRIES = 2**21  # of a block of whole rows: 16 MiB, and as much for each of a few copies of it
PAIR_ENTRIES = 2**16  # of the rows of a few pairs: 512 KiB
DIFFERENCES = "donot_use_mm_for_euclid_dist"
TIE = 1e-13  # of a distance: some hundred times its own rounding error


@dataclass(frozen=True)
class Ranks:
    """Standing of the nearest same-class item ("positive") of each item among the others; fields `(N,)` int64.

    A distance from an item is tied with that of its nearest positive when they differ by at most 1e-13 of the latter,
    however small that is beside the spread of all items. Both are those of the float64 rows, by differences of
    coordinates: equal rows are at distance 0, which ties with nothing else. In cosine, rows along one ray are equal;
    equal angles below about 0.01 may differ by more than 1e-13 of themselves, since unit rows are rounded.
    """

    nearer: Tensor  # others strictly nearer than the nearest positive
    tied: Tensor  # others as far as the nearest positive, itself among them
    positives: Tensor  # same-class items among the tied; all three are 0 where the class has no other item

    def hits_at(self, k: int) -> Tensor:
        """Chance `(N,)` float64 that one of the `k` nearest others is a positive, ties in random order; 0 without any.

        With r = k - nearer places left for the tied, p of them positive: 1 - C(tied - p, r) / C(tied, r).
        """
        places = k - self.nearer
        miss = torch.ones(len(self.nearer), dtype=torch.float64, device=self.nearer.device)
        negatives = self.tied - self.positives
        for taken in range(int(torch.minimum(places, negatives).amax().clamp_min(0))):
            left = (negatives - taken).clamp_min(0).double() / (self.tied - taken).clamp_min(1)
            miss = torch.where(taken < places, miss * left, miss)
        miss = torch.where(places > negatives, 0, miss)
        return torch.where((places > 0) & (self.positives > 0), 1 - miss, 0)


class Points:
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

    def blocks(self, members: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Blocks of rows `(B,)` of the members, their norm^2 `(B,)` and squared distances `(B, M)`, own infinite."""
        points = self.points[members]
        for start, stop in _spans(len(members), max(1, min(TILE[0], BLOCK_ENTRIES // max(1, len(members))))):
            centred = points - points[start:stop].mean(dim=0)
            squares = centred.square().sum(dim=1)
            squared = torch.addmm(squares, centred[start:stop], centred.T, alpha=-2)
            squared.add_(squares[start:stop, None])
            squared[torch.arange(stop - start), torch.arange(start, stop)] = torch.inf
            yield members[start:stop], squares[start:stop], squared

    def nearest(self, left: Tensor, right: Tensor, squares: Tensor, squared: Tensor) -> tuple[Tensor, Tensor]:
        """Distance `(B,)` from rows `left` to the nearest of rows `right`, and which it is: of a tie the lowest number.

        Infinite, and N, where all of `squared (B, M)`, their squared distances by products, are infinite.
        """
        least = squared.amin(dim=1)
        limit = torch.where(least.isfinite(), least + 2 * self.slack(squares, least.clamp_min(0)), -torch.inf)
        close = squared <= limit[:, None]
        found, first = torch.full_like(least, torch.inf), torch.full_like(left, len(self.points))
        some, others = _held(close)
        if len(some):
            close, others = _part(close, some, others), right[others]
            distances = self.distances(left[some], others, close).masked_fill_(~close, torch.inf)
            found[some] = distances.amin(dim=1)
            tied = distances <= found[some, None] * (1 + TIE)
            first[some] = torch.where(tied, others, len(self.points)).amin(dim=1)
        return found, first

    def distances(self, left: Tensor, right: Tensor, wanted: Tensor) -> Tensor:
        """Distances `(B, M)` by differences from rows `left` to rows `right`, right at least where `wanted (B, M)`."""
        rows, row = self.twins[left].unique(return_inverse=True)
        columns, column = self.twins[right].unique(return_inverse=True)
        if 4 * int(_count(wanted).sum()) > len(rows) * len(columns):
            distances = torch.cdist(self.points[rows], self.points[columns], compute_mode=DIFFERENCES)
            return distances.index_select(1, column).index_select(0, row)
        distances = torch.full(wanted.shape, torch.inf, dtype=torch.float64, device=wanted.device)
        row, column = wanted.nonzero(as_tuple=True)
        for start, stop in _spans(len(row), max(1, PAIR_ENTRIES // self.points.shape[1])):
            some, others = row[start:stop], column[start:stop]
            apart = self.points.index_select(0, left[some]) - self.points.index_select(0, right[others])
            distances[some, others] = torch.linalg.vector_norm(apart, dim=1)
        return distances


def along(points: Tensor) -> Tensor:
    """Row numbers in the order of the coordinate that varies most, so that the rows of a cluster come together."""
    return torch.argsort(points[:, points.var(dim=0, correction=0).argmax()], stable=True)


def ranks(points: Tensor, levels: Sequence[Tensor], *, tile: tuple[int, int] = TILE) -> list[Ranks]:
    """Ranks of every item for each labeling, in one pass over the distances of `points (N, d)` float64."""
    order = along(points)
    points = points[order]
    classes = [level.to(points.device)[order] for level in levels]
    rows = Points(points)
    nearest = [_nearest_positives(rows, level) for level in classes]
    counts = torch.zeros(3, len(levels), len(points), dtype=torch.int64, device=points.device)
    nearer, tied, positives = counts
    numbers = torch.arange(len(points), device=points.device)
    for left, right in _spans(len(points), tile[1]):
        centre = points[left:right].mean(dim=0)
        columns = points[left:right] - centre
        halves = columns.square().sum(dim=1) / -2
        for start, stop in _spans(len(points), tile[0]):
            block = points[start:stop] - centre
            squares = block.square().sum(dim=1)
            # Of D = |x|^2 + |y|^2 - 2xy a tile holds only xy - |y|^2 / 2, which falls as D grows.
            scores = torch.addmm(halves, block, columns.T)
            own = numbers[max(start, left) : min(stop, right)]
            scores[own - start, own - left] = -torch.inf
            close = []
            for level, distance in enumerate(nearest):
                squared = distance[start:stop].square()
                slack = rows.slack(squares, squared)
                alone = squared.isinf()
                ceiling = torch.where(alone, torch.inf, (squares - squared + slack) / 2)
                floor = torch.where(alone, torch.inf, (squares - squared - slack) / 2)
                above = scores > ceiling[:, None]
                nearer[level, start:stop] += _count(above)
                close.append(above ^ (scores >= floor[:, None]))
            some, others = _held(functools.reduce(torch.bitwise_or, close))
            if not len(some):
                continue
            close = [_part(mask, some, others) for mask in close]
            some, others = some + start, others + left
            distances = rows.distances(some, others, functools.reduce(torch.bitwise_or, close))
            for level, mask in enumerate(close):
                limit = nearest[level][some, None]
                below = mask & (distances < limit * (1 - TIE))
                equal = (mask & (distances <= limit * (1 + TIE))) ^ below
                nearer[level, some] += _count(below)
                tied[level, some] += _count(equal)
                positives[level, some] += _count(equal & (classes[level][some, None] == classes[level][others]))
    unsorted = torch.empty_like(counts)
    unsorted[:, :, order] = counts
    return [Ranks(*fields) for fields in unsorted.unbind(dim=1)]


def _nearest_positives(rows: Points, classes: Tensor) -> Tensor:
    """Distance `(N,)` to the nearest same-class item, infinite without one."""
    nearest = torch.full((len(classes),), torch.inf, dtype=torch.float64, device=classes.device)
    order = torch.argsort(classes, stable=True)
    for members in torch.split(order, torch.bincount(classes).tolist()):
        if len(members) > 1:
            for block, squares, squared in rows.blocks(members):
                nearest[block] = rows.nearest(block, members, squares, squared)[0]
    return nearest


def _spans(count: int, step: int) -> Iterator[tuple[int, int]]:
    return ((start, min(start + step, count)) for start in range(0, count, step))


def _count(mask: Tensor) -> Tensor:
    # Summing a bool tensor as such is ten times slower on a CPU.
    return mask.view(torch.uint8).sum(dim=1, dtype=torch.int32).long()


def _held(mask: Tensor) -> tuple[Tensor, Tensor]:
    """The rows and the columns that are true anywhere."""
    columns = mask.view(torch.uint8).amax(dim=0).nonzero()[:, 0]
    rows = mask.index_select(1, columns).any(dim=1).nonzero()[:, 0]
    return rows, columns


def _part(mask: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    return mask.index_select(0, rows).index_select(1, columns)
