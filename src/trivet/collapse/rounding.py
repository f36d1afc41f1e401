"""Rounding: what a search loses that computes distances by products, far from the origin."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from trivet.collapse.distances import relative_spread
from trivet.collapse.hubs import BLOCK, nearest_others
from trivet.collapse.relation_chance import are_positive
from trivet.distances import Array
from trivet.metrics.points import spans
from trivet.mining.relations import Relation
from trivet.runtime.arrays import Integers

DIGITS = 1e4  # times the relative rounding error, below which rounding may change who is nearest


def rounding_error(embeddings: Array) -> float:
    """Relative rounding error of a coordinate: eps of the dtype."""
    known = torch.finfo(embeddings.dtype) if isinstance(embeddings, Tensor) else np.finfo(embeddings.dtype)
    return float(known.eps)


def rounding_loss(embeddings: Array, points: Tensor, relation: Relation, rows: Integers | None, seed: int) -> float:
    """See `Measures.rounding_loss`; over the rows, or all for None."""
    kind = torch.float64 if rounding_error(embeddings) < torch.finfo(torch.float32).eps else torch.float32
    if relative_spread(points, points) ** 2 > DIGITS * torch.finfo(kind).eps:
        return 0.0
    order = torch.from_numpy(np.random.default_rng(seed).permutation(len(points)))
    entries = torch.argsort(order)[torch.arange(len(points)) if rows is None else torch.from_numpy(rows)]
    exact = nearest_others(points[order], entries.numpy(), 1)[:, 0]
    rounded, items = points[order].to(kind), relation.items[order]
    squares = rounded.square().sum(dim=1)
    nearest = []
    for start, stop in spans(len(entries), BLOCK):
        block = entries[start:stop]
        squared = squares - 2 * (rounded[block] @ rounded.T)
        squared[torch.arange(len(block)), block] = torch.inf
        nearest.append(squared.argmin(dim=1))
    right = [
        float(are_positive(relation, items[entries], items[near]).double().mean())
        for near in (torch.from_numpy(exact), torch.cat(nearest))
    ]
    return max(0.0, right[0] - right[1])
