"""Embeddings as points whose Euclidean order is the order a measure asks for."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from trivet.geometry import Array, as_rows, unit_rows

Metric = Literal["euclidean", "cosine"]


def as_points(embeddings: Array, *, distance: Metric = "euclidean") -> Tensor:
    """Float64 points `(N, d)` whose Euclidean order is the order of `distance`, on the device of `embeddings`.

    For "cosine" the rows are first divided by their norm; rows of zeros get one direction of their own, at right
    angles to every other, so that their similarity to other rows is 0 and they coincide with each other.

    Raises:
        ValueError: if `embeddings` is not a finite floating-point `(N, d)` array, or `distance` is not known.
    """
    points = as_rows(embeddings)
    if distance == "cosine":
        points = _directions(points)
    elif distance != "euclidean":
        raise ValueError(f"distance must be 'euclidean' or 'cosine': got {distance!r}.")
    if not bool(torch.isfinite(points.square().sum())):
        raise ValueError("embeddings must have finite squares: these are too large; divide them by their largest norm.")
    return points


def _directions(points: Tensor) -> Tensor:
    points = points / points.abs().amax(dim=1, keepdim=True).clamp_min(torch.finfo(torch.float64).tiny)
    zero = ~points.any(dim=1)
    return torch.cat([unit_rows(points), zero[:, None].to(points)], dim=1)
