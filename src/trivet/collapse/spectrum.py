"""Directions that an embedding uses: singular values and effective rank."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from trivet.collapse.distances import centred
from trivet.distances import Array, as_rows
from trivet.runtime.arrays import Floats

DIRECT = 2**22  # numbers up to which the singular values are found without the covariance, and keep all digits


def singular_values(embeddings: Array) -> Floats:
    """Singular values `(min(N, d),)` of the centred rows, largest first, >= 0.

    Above 4 million numbers they are the roots of the eigenvalues of the covariance: below 1e-7 of the largest they are
    rounding.

    Args:
        embeddings: `(N, d)` floating point, N >= 1.
    """
    points = as_rows(embeddings).cpu()
    if not len(points):
        raise ValueError("a spectrum needs at least one item: got none.")
    points = centred(points)
    if points.numel() <= DIRECT:
        direct: Floats = torch.linalg.svdvals(points).numpy()
        return direct
    return by_products(points)


def by_products(rows: Tensor) -> Floats:
    """Singular values of centred rows by the products of rows or of columns: faster, and rounding below 1e-7."""
    tall = len(rows) >= rows.shape[1]
    squares = torch.linalg.eigvalsh(rows.T @ rows if tall else rows @ rows.T)
    values: Floats = squares.flip(0).clamp_min(0).sqrt().numpy()
    return values


def effective_rank(embeddings: Array) -> float:
    """exp of the entropy of the singular values of the centred rows over their sum: 1 .. min(N, d); 0 if all are equal.

    Args:
        embeddings: `(N, d)` floating point, N >= 1.

    Source:
        Roy, Vetterli, "The effective rank", EUSIPCO 2007; Garrido et al., "RankMe", ICML 2023, which does not centre.

    Example:
        >>> round(effective_rank(np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])), 9)
        2.0
    """
    return rank_of(singular_values(embeddings))


def rank_of(singular_values: Floats) -> float:
    """The effective rank of a spectrum of values >= 0; 0 if all are 0."""
    total = float(singular_values.sum())
    if not total:
        return 0.0
    shares = singular_values[singular_values > 0] / total
    return math.exp(-float((shares * np.log(shares)).sum()))
