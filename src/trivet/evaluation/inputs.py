"""What every measure checks first: embeddings as float64 points, labels as class numbers."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from trivet.geometry import check_embeddings, unit_rows

Array = npt.NDArray[Any] | Tensor
Metric = Literal["euclidean", "cosine"]


def as_points(embeddings: Array, *, distance: Metric = "euclidean") -> Tensor:
    """Centred float64 points `(N, d)` whose Euclidean order is the order of `distance`, on the device of `embeddings`.

    For "cosine" the rows are first divided by their norm; rows of zeros get one direction of their own, at right
    angles to every other, so that their similarity to other rows is 0 and they coincide with each other.

    Raises:
        ValueError: if `embeddings` is not a finite floating-point `(N, d)` array, or `distance` is not known.
    """
    if isinstance(embeddings, np.ndarray):
        if embeddings.dtype.kind != "f":
            raise ValueError(
                f"embeddings must be floating point: got {embeddings.dtype}; convert them with .astype(np.float32)."
            )
        embeddings = torch.from_numpy(embeddings.astype(np.float64, order="C"))
    check_embeddings(embeddings)
    points = embeddings.detach().to(torch.float64)
    if distance == "cosine":
        points = _directions(points)
    elif distance != "euclidean":
        raise ValueError(f"distance must be 'euclidean' or 'cosine': got {distance!r}.")
    if len(points):
        points = points - points.mean(dim=0)
    if not bool(torch.isfinite(points.square().sum())):
        raise ValueError("embeddings must have finite squares: these are too large; divide them by their largest norm.")
    return points


def as_classes(labels: Array, *, count: int, name: str = "labels") -> Tensor:
    """Labels of any integer dtype as class numbers 0 .. C - 1 `(N,)` int64, exact for every 64-bit value.

    Raises:
        ValueError: if they are not integers (bool counts as not), or not one per embedding.
    """
    values = labels.detach().cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
    if values.shape != (count,):
        raise ValueError(
            f"{name} must hold one class per embedding: got shape {values.shape} for {count} embeddings; "
            "give one integer for each row."
        )
    if values.dtype.kind not in "iu":
        raise ValueError(
            f"{name} must be integers: got {values.dtype}; "
            "number the classes with np.unique(labels, return_inverse=True)[1]."
        )
    return torch.from_numpy(np.unique(values, return_inverse=True)[1].astype(np.int64))


def _directions(points: Tensor) -> Tensor:
    points = points / points.abs().amax(dim=1, keepdim=True).clamp_min(torch.finfo(torch.float64).tiny)
    zero = ~points.any(dim=1)
    return torch.cat([unit_rows(points), zero[:, None].to(points)], dim=1)
