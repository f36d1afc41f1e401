"""Alignment of the items of a class, and uniformity on the sphere."""

from __future__ import annotations

import math

import numpy as np
import torch

from trivet.collapse.distances import pair_distances
from trivet.collapse.spread import class_scatter
from trivet.distances import Array, as_classes, as_rows, unit_rows

ROWS = 4096  # of all pairs of which the uniformity is taken; more are sampled
TEMPERATURE = 2.0


def alignment(embeddings: Array, labels: Array) -> float:
    """Mean squared distance of two items of one class on the unit sphere, in [0, 4]; NaN without such a pair.

    All pairs, in O(N d): the squared distances of n rows of a class sum to n sum |x|^2 - |sum x|^2.

    Args:
        embeddings: `(N, d)` floating point; rows are divided by their norm.
        labels: `(N,)` of any integer dtype.

    Source:
        Wang, Isola, "Understanding Contrastive Representation Learning through Alignment and Uniformity on the
        Hypersphere", ICML 2020, with exponent 2; positives are the pairs of one class.
    """
    points = unit_rows(as_rows(embeddings).cpu())
    classes = as_classes(labels, count=len(points))
    if not len(points):
        return math.nan
    sizes, _, scatter = class_scatter(points, classes)
    pairs = int((sizes * (sizes - 1)).sum()) // 2
    return float((scatter * sizes).sum()) / pairs if pairs else math.nan


def uniformity(embeddings: Array, *, seed: int = 0) -> float:
    """Logarithm of the mean of exp(-2 D) over pairs of unit rows at squared distance D: 0 if all coincide, least if
    they spread over the whole sphere; in [-8, 0].

    Over all pairs of up to 4,096 rows; of more, over those of a random 4,096.

    Args:
        embeddings: `(N, d)` floating point, N >= 2; rows are divided by their norm.
        seed: of the rows that are drawn.

    Source:
        Wang, Isola, ICML 2020, with t = 2.
    """
    points = as_rows(embeddings).cpu()
    if len(points) < 2:
        raise ValueError(f"uniformity needs at least two items: got {len(points)}.")
    if len(points) > ROWS:
        points = points[torch.from_numpy(np.random.default_rng(seed).permutation(len(points))[:ROWS])]
    squared = pair_distances(unit_rows(points)).square()
    return float(torch.logsumexp(-TEMPERATURE * squared, dim=0)) - math.log(len(squared))
