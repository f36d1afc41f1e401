"""Where the nearest same-class item stands among all others, by counting: no sorting, no lists of neighbours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

TILE = (256, 4096)  # rows and columns counted at once: 8 MiB, which stays in a cache
BLOCK_ENTRIES = 2**21  # of a block of whole rows: 16 MiB, and as much for each of a few copies of it
TIE = 1e-12


@dataclass(frozen=True)
class Ranks:
    """Standing of the nearest same-class item ("positive") of each item among the others; fields `(N,)` int64.

    Two squared distances from item i are tied when they differ by at most 1e-12 x (|x_i|^2 + their size), x_i
    centred: about a thousand times the rounding error of the float64 products, so equal rows always tie, and
    a millionth of what two neighbouring float32 numbers of that size differ by.
    """

    nearer: Tensor  # others strictly nearer than the nearest positive
    tied: Tensor  # others as far as the nearest positive, itself among them
    positives: Tensor  # same-class items among the tied; 0 where the class has no other item

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


def ranks(points: Tensor, levels: Sequence[Tensor], *, tile: tuple[int, int] = TILE) -> list[Ranks]:
    """Ranks of every item for each labeling, in one pass over the distances of `points (N, d)`, centred, float64."""
    squares = points.square().sum(dim=1)
    ceilings, floors, positives = [], [], []
    for classes in levels:
        nearest, tied = _nearest_positives(points, squares, classes)
        slack = TIE * (squares + nearest)
        # Of D = |x|^2 + |y|^2 - 2xy a tile holds only xy - |y|^2 / 2, which falls as D grows.
        ceilings.append((squares - nearest + slack)[:, None] / 2)
        floors.append((squares - nearest - slack)[:, None] / 2)
        positives.append(tied)
    nearer = torch.zeros(len(levels), len(points), dtype=torch.int64, device=points.device)
    within = torch.zeros_like(nearer)
    for start, stop in _spans(len(points), tile[0]):
        for left, right in _spans(len(points), tile[1]):
            scores = torch.addmm(squares[left:right] / -2, points[start:stop], points[left:right].T)
            own = torch.arange(start, stop, device=points.device)
            own = own[(own >= left) & (own < right)]
            scores[own - start, own - left] = -torch.inf
            for level, (ceiling, floor) in enumerate(zip(ceilings, floors, strict=True)):
                nearer[level, start:stop] += _count(scores > ceiling[start:stop])
                within[level, start:stop] += _count(scores >= floor[start:stop])
    return [Ranks(*fields) for fields in zip(nearer, within - nearer, positives, strict=True)]


def squared_blocks(points: Tensor) -> Iterator[tuple[int, int, Tensor]]:
    """Row blocks (start, stop, squared distances `(B, N)`) of `points (N, d)`; infinite from an item to itself."""
    squares = points.square().sum(dim=1)
    for start, stop in _spans(len(points), max(1, min(TILE[0], BLOCK_ENTRIES // max(1, len(points))))):
        squared = torch.addmm(squares, points[start:stop], points.T, alpha=-2)
        squared.add_(squares[start:stop, None]).clamp_min_(0)
        squared[torch.arange(stop - start), torch.arange(start, stop)] = torch.inf
        yield start, stop, squared


def _nearest_positives(points: Tensor, squares: Tensor, classes: Tensor) -> tuple[Tensor, Tensor]:
    """Squared distance to the nearest same-class item (infinite without one) and how many tie at it."""
    nearest = torch.full_like(squares, torch.inf)
    tied = torch.zeros(len(points), dtype=torch.int64, device=points.device)
    order = torch.argsort(classes, stable=True).to(points.device)
    for members in torch.split(order, torch.bincount(classes).tolist()):
        if len(members) == 1:
            continue
        own = squares[members]
        for start, stop, squared in squared_blocks(points[members]):
            rows = members[start:stop]
            least = squared.amin(dim=1)
            nearest[rows] = least
            tied[rows] = _count(squared <= (least + TIE * (own[start:stop] + least))[:, None])
    return nearest, tied


def _spans(count: int, step: int) -> Iterator[tuple[int, int]]:
    return ((start, min(start + step, count)) for start in range(0, count, step))


def _count(mask: Tensor) -> Tensor:
    # Summing a bool tensor as such is ten times slower on a CPU.
    return mask.view(torch.uint8).sum(dim=1, dtype=torch.int32).long()
