"""Distances that stay right when all points lie close together."""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from trivet.distances import device
from trivet.distances.threads import shared_product, single_thread
from trivet.runtime.arrays import how_to_float, how_to_tensor
from trivet.runtime.lazy import lazy
from trivet.runtime.text import rows_hold

SAMPLED = 4096  # rows, about, among which a central one is looked for, and that are worked on at once

# "cosine" is 1 - S for rows of unit norm: half the squared Euclidean distance, so one matrix serves all three.
Distance = Literal["squared_euclidean", "euclidean", "cosine"]


class RowNorms(NamedTuple):
    """Euclidean norms `(N,)` of rows, and the least and the largest of them; NaN where they are not known."""

    values: Tensor
    least: float
    largest: float


def check_embeddings(embeddings: Tensor, *, name: str = "embeddings", pairs: int = 1) -> RowNorms:
    """Raise ValueError unless `embeddings` is a floating-point `(N, d)` tensor whose squared distances are finite.

    With `pairs`, unless the sum of so many of them is finite. Two numbers are read back; under `torch.compile` nothing
    is, and the error comes from the device.
    """
    if not isinstance(embeddings, Tensor):
        raise ValueError(
            f"{name} must be a tensor: got {type(embeddings).__name__}; {how_to_tensor(embeddings, name)}."
        )
    check_dense(embeddings, name=name)
    if embeddings.ndim != 2 or embeddings.shape[1] == 0:
        raise ValueError(
            f"{name} must have shape (N, d) with d >= 1: got {tuple(embeddings.shape)}; flatten each item to one row."
        )
    if not embeddings.is_floating_point():
        raise ValueError(f"{name} must be floating point: got {embeddings.dtype}; {how_to_float(embeddings, name)}.")
    if embeddings.dtype not in (torch.float32, torch.float64):
        embeddings = embeddings.float()
    # A squared distance is at most four times the largest squared norm.
    limit = math.sqrt(torch.finfo(embeddings.dtype).max / (4 * pairs))
    with single_thread(embeddings.numel()):
        norms = row_norms(embeddings.detach())
    least = largest = math.nan
    if torch.compiler.is_compiling():
        usable = (norms <= limit).all()
        torch._assert_async(usable, f"{name} must be finite and small enough to square: a row is not.")
    elif norms.shape[0]:
        least, largest = device.read_extremes(norms)
        if largest <= limit:  # not where a norm is NaN, as both then are
            return RowNorms(norms, least, largest)
        rows = (~(norms <= limit)).nonzero().flatten().tolist()
        what = "NaN or infinity" if not bool(torch.isfinite(embeddings).all()) else "numbers too large to square"
        raise ValueError(
            f"{name} must be finite: {rows_hold(rows, what)} ({len(rows)} of {len(embeddings)}); lower the learning "
            "rate, or check the inputs of these rows."
        )
    return RowNorms(norms, least, largest)


def check_dense(values: Tensor, *, name: str) -> None:
    """Raise ValueError unless a tensor holds plain numbers side by side: not sparse, nested, quantized or on "meta"."""
    if values.is_nested:
        raise ValueError(
            f"{name} must be one dense tensor: got a nested one; join its rows with torch.stack({name}.unbind())."
        )
    if values.layout != torch.strided:
        raise ValueError(f"{name} must be dense: got {values.layout}; convert them with {name}.to_dense().")
    if values.is_quantized:
        raise ValueError(f"{name} must be plain numbers: got {values.dtype}; convert them with {name}.dequantize().")
    if values.is_meta:
        raise ValueError(f"{name} must hold numbers: got a tensor on the meta device; compute them on a real one.")


def unit_rows(embeddings: Tensor) -> Tensor:
    """Rows divided by their Euclidean norm `(N, d)`; a row of zeros stays zero, and so does its gradient.

    Of any size: before they are squared, rows are divided by their largest entry.
    """
    if embeddings.shape[-1] == 0:
        return embeddings
    largest = embeddings.detach().abs().amax(dim=-1, keepdim=True)
    rows = embeddings / largest.masked_fill(largest == 0, torch.inf)
    squares = row_sums(rows.square()).unsqueeze(-1)
    return rows / squares.masked_fill(squares == 0, torch.inf).sqrt()


def unit_rows_of(embeddings: Tensor, norms: RowNorms) -> Tensor:
    """As `unit_rows`, in fewer operations; of equal rows the same to the last bit, whatever stands beside them."""
    if torch.compiler.is_compiling() or embeddings.numel() == 0:
        return unit_rows(embeddings)
    rows, lengths, kind = embeddings, norms.values, torch.finfo(embeddings.dtype)
    if not norms.least >= math.sqrt(kind.tiny / kind.eps) / kind.eps:  # squares lose digits: powers of 2 lose none
        exponents = torch.frexp(embeddings.detach().abs().amax(dim=1, keepdim=True)).exponent
        rows = embeddings * torch.ldexp(torch.ones_like(lengths[:, None]), -exponents.clamp(-120, 120))
        lengths = row_norms(rows.detach())
        lengths = lengths.masked_fill(lengths == 0, torch.inf)
    units: Tensor = _UnitRows.apply(rows, lengths)
    return units


class _UnitRows(torch.autograd.Function):
    """Rows divided by their norms, whose gradient is what is orthogonal to the row, divided by the norm."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, norms: Tensor) -> Tensor:
        lengths = norms[:, None]
        with single_thread(rows.numel()):
            units = rows / lengths
        ctx.save_for_backward(rows, lengths, units)
        return units

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        rows, lengths, units = ctx.saved_tensors
        if torch.is_grad_enabled():  # to be differentiated again
            lengths = torch.linalg.vector_norm(rows, dim=1, keepdim=True).masked_fill(lengths.isinf(), torch.inf)
            units = rows / lengths
        with single_thread(grad.numel()):
            along = (grad * units).sum(dim=1, keepdim=True)
            return torch.addcmul(grad, units, along, value=-1) / lengths, None


def row_norms(rows: Tensor) -> Tensor:
    """Euclidean norms `(N,)`, computed in an order that depends on d alone, as `row_sums`."""
    if rows.is_cpu:
        norms: Tensor = torch.linalg.vector_norm(rows, dim=1)
        return norms
    return row_sums(rows.square()).sqrt()


def row_sums(values: Tensor) -> Tensor:
    """The sums `(...)` over the last dimension of `values (..., d)`, added up in an order that depends on d alone.

    So the sum of a row has the same bits whatever rows stand beside it.
    """
    if values.is_cpu:  # there `sum` takes each row by itself, in one order
        return values.sum(dim=-1)
    while values.shape[-1] > 1:
        half = values.shape[-1] // 2
        folded, rest = values[..., :half] + values[..., half : 2 * half], values[..., 2 * half :]
        values = torch.cat([folded, rest], dim=-1) if rest.shape[-1] else folded
    return values.sum(dim=-1)


class Products:
    """Squared distances between N anchors and M references by matrix products, block by block; differentiable.

    All rows are centred on a reference near the mean of the references first: |x|^2 + |y|^2 - 2xy loses all digits of
    the distance when the points lie far from the origin and close together, which is what a collapsed embedding looks
    like. On a row, not on the mean itself, so that points on a grid stay on it and equal distances stay equal. Never
    computed in half precision.

    Args:
        anchors: `(N, d)`.
        references: `(M, d)`, M >= 1; the anchors themselves for distances within a set.
    """

    def __init__(self, anchors: Tensor, references: Tensor) -> None:
        with device.without_autocast(references.device.type):
            some = references.detach()
            if (step := some.shape[0] // SAMPLED) > 1:
                some = some[::step]
            central = torch.linalg.vector_norm(some - some.mean(dim=0), dim=1).argmin(dim=0, keepdim=True)
            centre = some.index_select(0, central)  # (1, d)
            # One product gives the distance: (-2x, |x|^2, 1) . (y, 1, |y|^2).
            self.right = _centred(references, centre)  # (M, d + 2)
            self.within = anchors is references
            self.anchors = self.right if self.within else _centred(anchors, centre)

    @lazy
    def left(self) -> Tensor:
        """(-2x, |x|^2, 1) of the anchors, `(N, d + 2)`."""
        same = self.anchors
        with torch.set_grad_enabled(same.requires_grad):  # whoever reads it first
            return torch.cat([-2 * same[:, :-2], same[:, -1:], same[:, -2:-1]], dim=1)

    def squared_distances(self, start: int, stop: int, columns: slice = slice(None)) -> Tensor:
        """Squared Euclidean distances `(stop - start, M)` of these anchors to all references, or some, >= 0.

        The error is about 1e-7 (float32) of the largest squared distance from the central row, whatever the distance
        itself is: for near-duplicates in a spread-out set use `distances_between`.
        """
        with device.without_autocast(self.right.device.type):
            left, right = self.left[start:stop], self.right[columns]
            with shared_product(left.numel() * len(right)):
                squared = left @ right.T
            with torch.set_grad_enabled(False):  # the gradient is that of the product, also where rounding went below 0
                squared.clamp_min_(0)
            return squared

    def bounds(self, start: int, stop: int) -> tuple[Tensor, float]:
        """Half the largest squared distances `(stop - start, 1)` that these anchors can have, and the share of that by
        which theirs may be off the exact ones.

        For every order in which a product adds up; 0 where all rows are the same.
        """
        # Each of d + 2 products and sums rounds, and so do centring and differences; see Higham, "Accuracy and
        # Stability of Numerical Algorithms", section 3.1. |x| + |y| squared is at most 2 (|x|^2 + |y|^2).
        kind, terms = self.right.dtype, self.right.shape[1]
        share = (terms + 14) * torch.finfo(kind).eps / 2
        if kind == torch.float32:  # where products of less than float32 are allowed
            share += device.product_rounding(self.right.device)
        return self._largest_square + self.anchors.detach()[start:stop, -1:], 4 * share

    @lazy
    def _largest_square(self) -> Tensor:
        return self.right[:, -1].detach().amax()


def _centred(rows: Tensor, centre: Tensor) -> Tensor:
    """The rows x `(N, d)` less the centre `(1, d)`, a one and |x|^2, `(N, d + 2)`."""
    if rows.requires_grad or torch.compiler.is_compiling():
        rows = rows - centre
        squares = rows.square().sum(dim=1, keepdim=True)
        return torch.cat([rows, torch.ones_like(squares), squares], dim=1)
    # Part by part, as every fresh copy of a large memory of past batches takes as long as a product with it.
    centred_rows = torch.ones((len(rows), rows.shape[1] + 2), dtype=rows.dtype, device=rows.device)
    for start in range(0, len(rows), SAMPLED):
        chunk = centred_rows[start : start + SAMPLED]
        centred = torch.sub(rows[start : start + SAMPLED], centre, out=chunk[:, :-2])
        torch.sum(centred.square(), dim=1, out=chunk[:, -1])
    return centred_rows


class ProductGradients:
    """The gradient of a function of `Products`, added up block by block.

    Args:
        learned: for how many references, the first ones, a gradient is wanted.
        scale: a factor of all gradients that are added.
    """

    def __init__(self, products: Products, *, learned: int, scale: float = 1.0) -> None:
        self._products, self._learned, self._scale = products, learned, scale

    @lazy
    def _of_left(self) -> Tensor:
        return torch.zeros_like(self._products.anchors)

    @lazy
    def _of_right(self) -> Tensor:
        return torch.zeros_like(self._products.right[: self._learned])

    def add(self, grad: Tensor, start: int, stop: int) -> None:
        """Take in the gradient `(stop - start, M)` of the squared distances of these anchors; once for each of them."""
        right = self._products.right
        covers_all = stop - start == self._products.anchors.shape[0]
        if covers_all and self._products.within and self._learned == right.shape[0]:
            # Of the rows as anchors and as references in one. The transpose is copied first: a sum of the two as they
            # lie in memory takes many times as long.
            both = grad.T.clone(memory_format=torch.contiguous_format).add_(grad)
            with shared_product(both.numel() * right.shape[1]):
                self._of_left = both @ right
            return
        with shared_product(grad.numel() * right.shape[1]):
            if covers_all:
                self._of_left = grad @ right
                if self._learned:
                    self._of_right = grad[:, : self._learned].T @ self._products.left
                return
            torch.mm(grad, right, out=self._of_left[start:stop])
            if self._learned:
                self._of_right.addmm_(grad[:, : self._learned].T, self._products.left[start:stop])

    def add_to(self, anchors: Tensor, references: Tensor) -> None:
        """Add the gradients of the anchors `(N, d)` and of the first references `(learned, d)` to these tensors.

        One tensor where each anchor is the same reference.
        """
        sums, rows = self._of_left, self._products.anchors[:, :-2]
        anchors.add_(torch.addcmul(sums[:, :-2], rows, sums[:, -2:-1], value=-1), alpha=-2 * self._scale)
        if "_of_right" in self.__dict__:
            sums, rows = self._of_right, self._products.right[: self._learned, :-2]
            references.add_(torch.addcmul(sums[:, :-2], rows, sums[:, -1:], value=2), alpha=self._scale)


def squared_distances(a: Tensor, b: Tensor) -> Tensor:
    """Squared Euclidean distances `(N, M)` between the rows of `a (N, d)` and `b (M, d)`; see `Products`."""
    return Products(a, b).squared_distances(0, len(a)) if len(b) else a @ b.T


def distances_between(a: Tensor, b: Tensor, *, distance: Distance) -> Tensor:
    """Distance of each row of `a (..., d)` to the same row of `b (..., d)`, by differences; for "cosine", unit rows."""
    # No matrix product here: it loses the digits that separate near-duplicates.
    return from_squared(row_sums((a - b).square()), distance)


def from_squared(squared: Tensor, distance: Distance) -> Tensor:
    """Turn squared Euclidean distances into `distance`; the gradient of a plain distance of exactly 0 is 0."""
    if distance == "squared_euclidean":
        return squared
    if distance == "cosine":
        return squared / 2
    assert distance == "euclidean"
    if not squared.requires_grad and not torch.compiler.is_compiling():
        return squared.sqrt()
    # A squared distance of 0 counts as the smallest normal number, without a gradient; its root is taken off again.
    tiny = torch.finfo(squared.dtype).tiny
    return squared.clamp_min(tiny).sqrt() - math.sqrt(tiny)


def squared_beyond(squared: Tensor, margin: float, distance: Distance) -> Tensor:
    """Squared distances that lie `margin`, in the unit of `distance`, beyond the given ones."""
    if distance == "euclidean":  # (d + m)^2 = d^2 + m (2 d + m), which leaves d^2 as it is for m = 0
        return squared + margin * (2 * from_squared(squared, distance) + margin)
    return squared + (2 * margin if distance == "cosine" else margin)
