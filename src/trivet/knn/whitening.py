"""PCA whitening of embeddings: the map, fitted without labels, and the file that an index has it in.

Source:
    Jegou, Chum, "Negative evidences and co-occurences in image retrieval: the benefit of PCA and whitening", ECCV 2012.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from trivet.io.atomic_files import atomic_file
from trivet.io.npz_files import read_array
from trivet.metrics.points import Points
from trivet.models.linear_map import LinearMap

WHITENING = "whitening.npy"  # (d + 1, d): the mean, then the matrix
SHARE = 0.8  # of the variance; all of it did worse on CLINC150, BANKING77 and CUB-200-2011
LEARNED = 65536  # rows, at most, that a map is fitted on


def whitening_map(rows: Tensor) -> LinearMap:
    """The map that brings `rows (N, d)` to mean 0 and their principal directions to variance 1, the others to 0.

    Those directions are the fewest that hold 80 % of the variance; all of them would make much of what is noise. Of
    more than 65,536 rows so many are drawn. Rows that are all equal are only moved.
    """
    if len(rows) > LEARNED:
        rows = rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))[:LEARNED]]
    rows = rows.double()
    mean = rows.mean(dim=0)
    centred = rows - mean
    variances, directions = torch.linalg.eigh(centred.T @ centred / len(rows))  # smallest first
    before = variances.clamp_min(0).cumsum(dim=0) - variances.clamp_min(0)
    principal = before + variances > (1 - SHARE) * variances.clamp_min(0).sum()
    scales = torch.where(principal, variances, 1.0).rsqrt() * principal
    matrix = (directions * scales) @ directions.T if principal.any() else torch.eye(len(mean)).double()
    return LinearMap("whitening", matrix, mean, torch.zeros_like(mean))


def whitened(points: Points, whitening: LinearMap | None) -> Points:
    """The points after a map, if there is one, float32 in memory; for cosine their directions are mapped."""
    if whitening is None:
        return points
    rows = np.empty((len(points), points.dimension), np.float32)
    for start, stop in points.pieces():
        rows[start:stop] = whitening(points.rows(slice(start, stop))[:, : points.dimension]).numpy()
    return Points(rows, distance=points.distance, name=points.name)


def write_whitening(folder: Path, whitening: LinearMap) -> None:
    """Write the map of an index into its folder."""
    with atomic_file(folder / WHITENING) as partial, partial.open("wb") as sink:
        np.save(sink, torch.cat([whitening.source_mean[None], whitening.matrix]).numpy(), allow_pickle=False)


def read_whitening(folder: Path, dimension: int) -> LinearMap:
    """The map of an index of so many dimensions.

    Raises:
        ValueError: if the folder has none, or a broken one.
    """
    path = folder / WHITENING
    try:
        rows = read_array(path)
        if rows.shape != (dimension + 1, dimension) or rows.dtype != np.float64 or not np.isfinite(rows).all():
            raise ValueError(f"it has no {dimension + 1} x {dimension} finite numbers in float64")
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(
            f"{path} must hold the whitening of the index: {reason}; index the embeddings again."
        ) from None
    mean, matrix = torch.from_numpy(rows[0].copy()), torch.from_numpy(rows[1:].copy())
    return LinearMap("whitening", matrix, mean, torch.zeros_like(mean))
