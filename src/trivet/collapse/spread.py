"""How far apart the fine classes inside a coarse class lie, against how far apart the coarse classes lie."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from trivet.geometry import check_embeddings


def fine_coarse_index(
    embeddings: npt.NDArray[Any] | Tensor, coarse: npt.NDArray[Any] | Tensor, fine: npt.NDArray[Any] | Tensor
) -> float:
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
        >>> fine_coarse_index(np.array([[0.0], [1.0], [10.0], [13.0]]), np.array([0, 0, 1, 1]), np.array([0, 1, 2, 3]))
        0.18181818181818182
    """
    if isinstance(embeddings, np.ndarray):
        if embeddings.dtype.kind != "f":
            raise ValueError(
                f"embeddings must be floating point: got {embeddings.dtype}; convert them with .astype(np.float32)."
            )
        embeddings = torch.from_numpy(embeddings.astype(np.float64, order="C"))
    check_embeddings(embeddings)
    points = embeddings.detach().cpu().double()
    if len(points):
        points = points - points[0]  # by a row and not the mean: equal rows become exactly 0
    outer = _numbered(coarse, count=len(points), name="coarse")
    if not len(outer) or outer.max() == 0:
        raise ValueError("coarse must hold at least two classes; the index compares them.")
    inner = _numbered(fine, count=len(points), name="fine")
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


def _numbered(labels: npt.NDArray[Any] | Tensor, *, count: int, name: str) -> Tensor:
    values = labels.detach().cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
    if values.shape != (count,) or (count and values.dtype.kind not in "iu"):
        raise ValueError(
            f"{name} must hold one integer per embedding: got {values.dtype} of shape {values.shape} for {count} "
            "embeddings; number the classes with np.unique(labels, return_inverse=True)[1]."
        )
    return torch.from_numpy(np.unique(values, return_inverse=True)[1].astype(np.int64))
