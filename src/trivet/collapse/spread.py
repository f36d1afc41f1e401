"""How far apart the fine classes inside a coarse class lie, against how far apart the coarse classes lie."""

from __future__ import annotations

import torch
from torch import Tensor

from trivet.geometry import Array, as_classes, as_rows


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
    within = [torch.pdist(fine_centroids[groups[:, 0] == one]) for one in range(int(outer.max()) + 1)]
    pooled = torch.cat(within)
    if not len(pooled):
        raise ValueError("fine must split at least one coarse class in two: got one fine class in each.")
    return float(pooled.mean() / torch.pdist(_centroids(points, outer)).mean())


def _centroids(points: Tensor, classes: Tensor) -> Tensor:
    sums = points.new_zeros(int(classes.max()) + 1, points.shape[1]).index_add_(0, classes, points)
    return sums / torch.bincount(classes)[:, None]
