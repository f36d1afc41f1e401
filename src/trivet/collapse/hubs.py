"""Hubs: how unevenly items are among the nearest of others, and who is among the nearest of nobody."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from trivet.runtime.arrays import Floats, Integers
from trivet.runtime.extras import installed, load

NEIGHBOURS = 10
BLOCK = 256  # rows that are compared with all at a time where faiss is not installed


@dataclass(frozen=True, eq=False)
class Hubness:
    """Unevenness of the ten nearest of all items; N items.

    Attributes:
        skewness: of how many items have an item among their ten nearest; 0 where all have as many.
        unfound: share of the items that are among nobody's ten nearest, in [0, 1].
        nearest: `(N, k)` the rows of the nearest of each.

    Source:
        Radovanovic, Nanopoulos, Ivanovic, "Hubs in space", JMLR 2010, section 2 (the skewness of k-occurrences, and
        antihubs).
    """

    skewness: float
    unfound: float
    nearest: Integers


def hubness(points: Tensor, *, k: int = NEIGHBOURS) -> Hubness:
    """Unevenness of the neighbours of all items, by their `k` nearest others, or all where there are fewer.

    Args:
        points: `(N, d)`, N >= 2. Of equal rows the first are nearest: give them in random order.
    """
    rows = np.arange(len(points))
    near = nearest_others(points, rows, min(k, len(points) - 1))
    counts = np.bincount(near.ravel(), minlength=len(points)).astype(np.float64)
    offsets = counts - counts.mean()
    deviation = float(offsets.std())
    return Hubness(
        skewness=float((offsets**3).mean() / deviation**3) if deviation else 0.0,
        unfound=float((counts == 0).mean()),
        nearest=near,
    )


def shared_neighbors(nearest: Integers, others: Integers) -> Floats:
    """Share `(N,)` of the nearest of each item that are among its nearest in another embedding, in [0, 1].

    Args:
        nearest, others: `(N, k)` of both, see `Hubness`.
    """
    common: Floats = (nearest[:, :, None] == others[:, None, :]).any(axis=2).mean(axis=1)
    return common


def nearest_others(points: Tensor, queries: Integers, k: int) -> Integers:
    """The k nearest other rows `(Q, k)` of some rows, by float32 distances."""
    points = points - points.mean(dim=0)
    # Scaled, so that no embedding is too small or too large for float32.
    rows = np.ascontiguousarray((points / (float(points.abs().max()) or 1.0)).float().numpy())
    if installed("faiss"):
        _, near = load("faiss").knn(rows[queries], rows, k + 1)
    else:  # half as fast
        everyone, blocks = torch.from_numpy(rows), range(0, len(queries), BLOCK)
        distances = (torch.cdist(everyone[queries[start : start + BLOCK]], everyone) for start in blocks)
        nearest = [block.topk(k + 1, largest=False).indices for block in distances]
        near = torch.cat(nearest).numpy()
    others = near != queries[:, None]
    # Among many equal rows an item itself may be missing; then the last one is too many.
    others[others.all(axis=1), -1] = False
    neighbors: Integers = near[others].reshape(len(queries), k)
    return neighbors
