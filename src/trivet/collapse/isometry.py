"""The size of an embedding that separates its classes, bounded by its size and its triplet loss before.

Source:
    Xu et al., "Mathematical Justification of Hard Negative Mining via Isometric Approximation Theorem", ICLR 2024.
"""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
from scipy.spatial.distance import cdist, pdist

from trivet.distances import Array, as_classes, as_rows
from trivet.runtime.arguments import check_at_least, check_name
from trivet.runtime.arrays import Booleans, Floats, Integers

Reduction = Literal["mean", "max"]


def batch_hard_loss(embeddings: Array, labels: Array, *, margin: float = 0.0, reduction: Reduction = "max") -> float:
    """Hinge of D(a, p) - D(a, n) + margin over the farthest positive (itself allowed) and nearest negative of a.

    "max", over all anchors, is the hinge of the worst of all triplets and the loss of the inequalities here; "mean" is
    what training uses, never larger. Either is 0 exactly if the points are separated, and 0 with one class.

    Args:
        embeddings: `(N, d)` floating point, N >= 1; D is the plain Euclidean distance of the rows as they are.
        labels: `(N,)` of any integer dtype.
        margin: alpha, >= 0, in the unit of D.

    Source:
        Equation (4) with hard mining; Hermans et al., "In Defense of the Triplet Loss", 2017.

    Example:
        >>> batch_hard_loss(np.array([[0.0], [2.0], [1.0], [3.0]]), np.array([0, 0, 1, 1]))
        1.0
    """
    check_name(reduction, get_args(Reduction), name="reduction")
    points, classes = as_points_and_classes(embeddings, labels)
    hinges = np.maximum(
        -gaps_of(cdist(points, points), same_class(classes), check_at_least(0, margin, name="margin")), 0.0
    )
    return float(hinges.max() if reduction == "max" else hinges.mean())


def diameter(embeddings: Array) -> float:
    """Largest distance between two rows of `(N, d)`, N >= 1.

    Example:
        >>> diameter(np.array([[0.0, 0.0], [3.0, 4.0], [1.0, 1.0]]))
        5.0
    """
    points = as_points(embeddings)
    return float(pdist(points).max()) if len(points) > 1 else 0.0


def diameter_bound(diameter: float, loss: float) -> float:
    """diameter - 2 loss, below which the nearest separated embedding does not shrink; says nothing if not above 0.

    With the loss of the hardest triplet it holds where d_haus <= that loss, which is not proven but was never seen to
    fail. It is about the nearest separated embedding: training often ends elsewhere, and then at a smaller diameter.

    Source:
        Equation (17) with its c = 2.
    """
    return diameter - 2.0 * loss


def as_points(embeddings: Array) -> Floats:
    points: Floats = as_rows(embeddings).cpu().numpy()
    if not len(points):
        raise ValueError("embeddings must hold at least one row: got none; there is no distance to measure.")
    return points


def as_points_and_classes(embeddings: Array, labels: Array) -> tuple[Floats, Integers]:
    points = as_points(embeddings)
    return points, as_classes(labels, count=len(points)).numpy()


def same_class(classes: Integers) -> Booleans:
    same: Booleans = classes[:, None] == classes
    return same


def gaps_of(distances: Floats, same: Booleans, margin: float) -> Floats:
    """D(a, n) - D(a, p) - margin of each anchor `(N,)`; infinite without a negative."""
    farthest = np.where(same, distances, -np.inf).max(axis=1)
    nearest = np.where(same, np.inf, distances).min(axis=1)
    gaps: Floats = nearest - farthest - margin
    return gaps
