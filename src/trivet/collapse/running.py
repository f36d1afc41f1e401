"""Collapse measures of a single training batch, which the monitor follows: most need no distance matrix."""

from __future__ import annotations

import torch
from torch import Tensor

MOST = 256  # rows of a batch of which distances are compared

RUNNING = ("mean_distance", "relative_spread", "within", "between", "fine_index", "norm", "norm_tail")
"""What `running_measures` gives, in this order."""

COMPARED = ("recall", "fine_recall", "fine_items", "hard", "s_ap", "s_an", "effective_rank")
"""What `compared_measures` gives, in this order."""


@torch.no_grad()
def running_measures(embeddings: Tensor, labels: Tensor | None, fine: Tensor | None = None) -> Tensor:
    """Measures of a batch in O(N d), on its device and without waiting for it; NaN where one is not defined.

    Lengths are root mean squares over pairs of items. With n items of a class, sum s and sum of squares q, the squared
    distances inside it add up to n q - |s|^2; nothing N x N is made.

    Args:
        embeddings: `(..., N, d)` floating point: one batch, or several of one size.
        labels: `(..., N)` integer, or None.
        fine: `(..., N)` integer, classes inside the classes, or None.

    Returns:
        `(..., 7)` float32, named by `RUNNING`: mean_distance of all pairs; relative_spread, the deviation from the
        centre over the norm, in [0, 1]; within and between, of pairs of one class and of two; fine_index, how far apart
        the centres of fine classes inside a class are, over the same of classes, both without what the spread of a few
        items adds; norm; norm_tail, the largest over the median.
    """
    *several, count, dimension = embeddings.shape
    if count == 0:
        return torch.full((*several, len(RUNNING)), torch.nan, device=embeddings.device)
    points = embeddings.detach().float().reshape(-1, count, dimension)
    unknown = points.new_full(points.shape[:1], torch.nan)
    squares = points.square().sum(dim=2)
    norms = squares.sqrt()
    tail = norms.amax(dim=1) / norms.median(dim=1).values
    centred = points - points[:, :1]  # keeps the digits of a collapsed embedding
    centred = centred - centred.mean(dim=1, keepdim=True)
    total = centred.square().sum(dim=(1, 2))
    spread = (total / squares.sum(dim=1)).clamp(0, 1).sqrt()
    apart = (2 * total / (count - 1)).sqrt() if count > 1 else unknown
    within = between = index = unknown
    if labels is not None:
        classes = labels.reshape(-1, count)
        inside, pairs = _inside(centred, classes)
        everything, all_pairs = 2 * count * total, count * (count - 1)
        own, other = inside / pairs, (everything - inside).clamp_min(0) / (all_pairs - pairs)
        within, between = own.sqrt(), other.sqrt()
        if fine is not None:
            deep, deep_pairs = _inside(centred, _pairs(classes, fine.reshape(-1, count)))
            beside = (inside - deep) / (pairs - deep_pairs) - deep / deep_pairs
            index = (beside.clamp_min(0) / (other - own)).sqrt()
            index = torch.where(other > own, index, torch.nan)
    norm = squares.mean(dim=1).sqrt()
    return torch.stack([apart, spread, within, between, index, norm, tail], dim=1).reshape(*several, -1)


@torch.no_grad()
def compared_measures(embeddings: Tensor, labels: Tensor, fine: Tensor | None = None) -> Tensor:
    """Measures of a batch from the distances of its first 256 rows; NaN where one is not defined.

    Args:
        embeddings: `(N, d)` floating point.
        labels: `(N,)` integer.
        fine: `(N,)` integer, classes inside the classes, or None.

    Returns:
        `(7,)` float32, named by `COMPARED`: recall, the share of items whose nearest other item is of their class;
        fine_recall, the share whose nearest positive is of their fine class, of those that have one of another fine
        class too, and fine_items, how many these are; hard, the share whose farthest positive is farther than their
        nearest negative; s_ap and s_an, the mean cosine similarity to the nearest positive and to the nearest
        negative; effective_rank, exp of the entropy of the normalised singular values of the centred rows, in [1, d].
        Items without a positive or a negative are left out.

    Source:
        s_ap, s_an: Xuan et al., "Extreme Triplet Learning", submission to ICLR 2020, section 3; effective rank: Roy,
        Vetterli, EUSIPCO 2007.
    """
    points, own = embeddings.detach()[:MOST].float(), labels[:MOST]
    count = len(points)
    unknown = points.new_full((), torch.nan)
    if count < 2:
        return unknown.expand(len(COMPARED)).clone()
    centred = points - points[0]
    centred = centred - centred.mean(dim=0)
    squares = centred.square().sum(dim=1)
    squared = torch.addmm(squares, centred, centred.T, alpha=-2).add_(squares[:, None]).clamp_min_(0)
    same = own[:, None] == own
    itself = torch.eye(count, dtype=torch.bool, device=points.device)
    positive, negative = same & ~itself, ~same
    usable = positive.any(dim=1) & negative.any(dim=1)
    nearest_positive = squared.masked_fill(~positive, torch.inf).min(dim=1)
    nearest_negative = squared.masked_fill(~negative, torch.inf).min(dim=1)
    farthest = squared.masked_fill(~positive, -torch.inf).amax(dim=1)

    def mean(values: Tensor) -> Tensor:
        return values.float().where(usable, 0).sum() / usable.sum()

    norms = points.square().sum(dim=1).sqrt().clamp_min(torch.finfo(points.dtype).tiny)

    def cosine(other: Tensor) -> Tensor:
        return mean((points * points[other]).sum(dim=1) / (norms * norms[other]))

    fine_recall, fine_items = unknown, unknown
    if fine is not None:
        inner = fine[:MOST]
        deep = (inner[:, None] == inner) & positive
        mixed = deep.any(dim=1) & (positive & ~deep).any(dim=1)
        hits = inner[nearest_positive.indices] == inner
        fine_items = mixed.sum().float()
        fine_recall = (hits & mixed).sum() / fine_items
    products = centred @ centred.T if count <= centred.shape[1] else centred.T @ centred
    values = torch.linalg.eigvalsh(products.double()).clamp_min(0).sqrt()
    shares = values / values.sum()
    rank = torch.special.entr(shares).sum().exp().float()
    return torch.stack(
        [
            mean(nearest_positive.values < nearest_negative.values),
            fine_recall,
            fine_items,
            mean(farthest > nearest_negative.values),
            cosine(nearest_positive.indices),
            cosine(nearest_negative.indices),
            rank,
        ]
    )


def _inside(centred: Tensor, classes: Tensor) -> tuple[Tensor, Tensor]:
    """Of each batch `(B, N, d)` the sum of squared distances over ordered pairs of one class, and how many pairs."""
    batches, count, dimension = centred.shape
    order = torch.argsort(classes, dim=1, stable=True)
    ordered = classes.gather(1, order)
    number = torch.zeros_like(ordered)
    # 0, 0, 1, ... in each batch: no reading back of how many classes there are
    number[:, 1:] = (ordered[:, 1:] != ordered[:, :-1]).cumsum(1)
    number = (number + count * torch.arange(batches, device=number.device)[:, None]).flatten()
    rows = centred.gather(1, order[:, :, None].expand(-1, -1, dimension)).flatten(0, 1)
    sums = torch.zeros_like(rows).index_add_(0, number, rows)
    counts = torch.zeros_like(rows[:, 0]).index_add_(0, number, torch.ones_like(rows[:, 0]))
    squares = torch.zeros_like(rows[:, 0]).index_add_(0, number, rows.square().sum(dim=1))
    inside = 2 * (counts * squares - sums.square().sum(dim=1)).clamp_min(0)
    pairs = counts * (counts - 1)
    return inside.view(batches, count).sum(dim=1), pairs.view(batches, count).sum(dim=1)


def _pairs(labels: Tensor, fine: Tensor) -> Tensor:
    """A number for each (class, fine class): equal where both are."""
    return labels.long() * (fine.max().long() + 1) + fine.long()
