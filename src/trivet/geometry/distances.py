"""Distances that stay right when all points lie close together."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

# "cosine" is 1 - S for rows of unit norm: half the squared Euclidean distance, so one matrix serves all three.
Distance = Literal["squared_euclidean", "euclidean", "cosine"]


def check_embeddings(embeddings: Tensor, *, name: str = "embeddings") -> None:
    """Raise ValueError unless `embeddings` is a floating-point `(N, d)` tensor whose squared distances are finite.

    One scalar is read back; under `torch.compile` nothing is, and the error comes from the device.
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
    squares = embeddings.detach().square().sum(dim=1)
    usable = squares <= torch.finfo(embeddings.dtype).max / 4
    if torch.compiler.is_compiling():
        torch._assert_async(usable.all(), f"{name} must be finite and small enough to square: a row is not.")
    elif not bool(usable.all()):
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


class References:
    """M references made ready for products with many blocks of anchors; differentiable with respect to both.

    All rows are centred on the reference nearest to the mean of the references first: |x|^2 + |y|^2 - 2xy loses all
    digits of the distance when the points lie far from the origin and close together, which is what a collapsed
    embedding looks like. On a row, not on the mean itself, so that points on a grid stay on it and equal distances
    stay equal. Never computed in half precision.

    Args:
        rows: the references `(M, d)`, M >= 1.
    """

    def __init__(self, rows: Tensor) -> None:
        with torch.autocast(device_type=rows.device.type, enabled=False):
            fixed = rows.detach()
            central = (fixed - fixed.mean(dim=0)).square().sum(dim=1).argmin()
            self._centre = fixed.index_select(0, central[None])[0]
            self._rows = rows - self._centre
            squares = self._rows.square().sum(dim=1, keepdim=True)
            # One product gives the distance: (-2x, |x|^2, 1) . (y, 1, |y|^2).
            self._right = torch.cat([self._rows, torch.ones_like(squares), squares], dim=1)  # (M, d + 2)

    def squared_distances(self, anchors: Tensor) -> Tensor:
        """Squared Euclidean distances `(B, M)` of `anchors (B, d)` to all references, >= 0.

        The error is about 1e-7 (float32) of the largest squared distance from the central row, whatever the distance
        itself is: for near-duplicates in a spread-out set use `distances_between`.
        """
        with torch.autocast(device_type=anchors.device.type, enabled=False):
            squared = self._left(anchors) @ self._right.T
            with torch.no_grad():  # the gradient is that of the product, also where rounding went below 0
                squared.clamp_min_(0)
            return squared

    def reach(self, anchors: Tensor) -> Tensor:
        """Numbers `(B, 1)` above all squared distances of the `anchors (B, d)` to the references."""
        squares = (anchors - self._centre).square().sum(dim=1, keepdim=True)
        farthest = torch.maximum(squares, self._right[:, -1].max())
        return 5 * farthest + torch.finfo(farthest.dtype).tiny  # at most four times the larger square

    def gradient_buffer(self) -> Tensor:
        """Zeros into which `add_gradient` accumulates over the blocks."""
        return torch.zeros_like(self._right)

    def add_gradient(self, grad: Tensor, anchors: Tensor, buffer: Tensor | None) -> Tensor:
        """Given `grad (B, M)` of the squared distances, add to the buffer and return that of the anchors `(B, d)`."""
        if buffer is not None:
            buffer.addmm_(grad.T, self._left(anchors))
        of_left = grad @ self._right  # (B, d + 2)
        return 2 * (of_left[:, -2:-1] * (anchors - self._centre) - of_left[:, :-2])

    def gradient(self, buffer: Tensor) -> Tensor:
        """The gradient `(M, d)` of the references that the buffer holds."""
        return buffer[:, :-2] + 2 * buffer[:, -1:] * self._rows

    def _left(self, anchors: Tensor) -> Tensor:
        rows = anchors - self._centre
        squares = rows.square().sum(dim=1, keepdim=True)
        return torch.cat([-2 * rows, squares, torch.ones_like(squares)], dim=1)


def squared_distances(a: Tensor, b: Tensor) -> Tensor:
    """Squared Euclidean distances `(N, M)` between the rows of `a (N, d)` and `b (M, d)`; see `References`."""
    return References(b).squared_distances(a) if len(b) else a @ b.T


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


def from_squared_matrix(squared: Tensor, distance: Distance) -> Tensor:
    """As `from_squared`, several times faster; a plain distance of 0 becomes that of the smallest normal number."""
    if distance == "euclidean":
        return squared.clamp_min(torch.finfo(squared.dtype).tiny).sqrt_()
    return from_squared(squared, distance)
