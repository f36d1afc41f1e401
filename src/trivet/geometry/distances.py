"""Distances that stay right when all points lie close together."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

# "cosine" is 1 - S for rows of unit norm: half the squared Euclidean distance, so one matrix serves all three.
Distance = Literal["squared_euclidean", "euclidean", "cosine"]


def check_embeddings(embeddings: Tensor, *, name: str = "embeddings") -> None:
    """Raise ValueError unless `embeddings` is a floating-point `(N, d)` tensor whose squared distances are finite.

    One scalar is read back.
    """
    if embeddings.ndim != 2 or embeddings.shape[1] == 0:
        raise ValueError(
            f"{name} must have shape (N, d) with d >= 1: got {tuple(embeddings.shape)}; flatten each item to one row."
        )
    if not embeddings.is_floating_point():
        raise ValueError(f"{name} must be floating point: got {embeddings.dtype}; convert them with {name}.float().")
    if embeddings.dtype not in (torch.float32, torch.float64):
        embeddings = embeddings.float()
    # A squared distance is at most four times the largest squared norm.
    usable = 4 * embeddings.detach().square().sum(dim=1) <= torch.finfo(embeddings.dtype).max
    if not bool(usable.all()):
        rows = (~usable).nonzero().flatten()
        shown = ", ".join(str(row) for row in rows[:8].tolist()) + (", ..." if len(rows) > 8 else "")
        what = "NaN or infinity" if not bool(torch.isfinite(embeddings).all()) else "numbers too large to square"
        raise ValueError(
            f"{name} must be finite: rows {shown} hold {what} ({len(rows)} of {len(embeddings)}); "
            "lower the learning rate, or look for the inputs of these rows."
        )


def unit_rows(embeddings: Tensor) -> Tensor:
    """Rows divided by their Euclidean norm `(N, d)`; a row of zeros stays zero, and so does its gradient."""
    squares = embeddings.square().sum(dim=1, keepdim=True)
    apart = squares > 0
    return embeddings * torch.where(apart, torch.where(apart, squares, 1).rsqrt(), 0)


def squared_distances(a: Tensor, b: Tensor) -> Tensor:
    """Squared Euclidean distances `(N, M)` between the rows of `a (N, d)` and `b (M, d)`; differentiable, >= 0.

    Both are centred on the row of `b` nearest to its mean first: |x|^2 + |y|^2 - 2xy loses all digits of the distance
    when the points lie far from the origin and close together, which is what a collapsed embedding looks like. A row,
    not the mean itself, so that points on a grid stay on it and equal distances stay equal.

    The error is about 1e-7 (float32) of the largest squared distance from that row, whatever the distance itself is:
    for near-duplicates in a spread-out set use `distances_between`. Never computed in half precision.
    """
    with torch.autocast(device_type=a.device.type, enabled=False):
        centre = _central_row(b.detach())
        a, b = a - centre, b - centre
        # One product gives the distance: (-2x, |x|^2, 1) . (y, 1, |y|^2).
        left = torch.cat([-2 * a, a.square().sum(dim=1, keepdim=True), a.new_ones(len(a), 1)], dim=1)
        right = torch.cat([b, b.new_ones(len(b), 1), b.square().sum(dim=1, keepdim=True)], dim=1)
        return (left @ right.T).clamp_min(0)


def _central_row(rows: Tensor) -> Tensor:
    if len(rows) == 0:
        return rows.new_zeros(rows.shape[1])
    return rows[(rows - rows.mean(dim=0)).square().sum(dim=1).argmin()]


def distances_between(a: Tensor, b: Tensor, *, distance: Distance) -> Tensor:
    """Distance of each row of `a (..., d)` to the same row of `b (..., d)`, by differences; for "cosine", unit rows."""
    # No matrix product here: it loses the digits that separate near-duplicates.
    return from_squared((a - b).square().sum(dim=-1), distance)


def from_squared(squared: Tensor, distance: Distance) -> Tensor:
    """Turn squared Euclidean distances into `distance`; the gradient of a plain distance of exactly 0 is 0."""
    assert distance in get_args(Distance)
    if distance == "squared_euclidean":
        return squared
    if distance == "cosine":
        return squared / 2
    apart = squared > 0
    return torch.where(apart, torch.where(apart, squared, 1).sqrt(), 0)


def to_squared(value: Tensor, distance: Distance) -> Tensor:
    """The inverse of `from_squared`, for values >= 0."""
    assert distance in get_args(Distance)
    if distance == "squared_euclidean":
        return value
    return value * 2 if distance == "cosine" else value.square()
