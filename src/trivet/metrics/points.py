"""Embeddings prepared for a distance: points whose Euclidean order is that of the distance, made float64 piece by
piece.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from trivet.distances import Array, check_dense, unit_rows
from trivet.runtime.arrays import Floats, how_to_float
from trivet.runtime.text import rows_hold

Metric = Literal["euclidean", "cosine"]
PIECE = 2**21  # numbers made float64 at once: 16 MiB
PAIR_NUMBERS = 2**19  # of the rows of a few pairs: 4 MiB, which stays in a cache


class Points:
    """Rows `(N, width)`, compared by Euclidean distance; an array on disk stays there, and is read piece by piece.

    For "cosine" the rows are divided by their norm; rows of zeros get one direction of their own, at right angles to
    every other, so that their similarity to other rows is 0 and they coincide with each other.

    Args:
        embeddings: `(N, d)` floating point; numpy (also memory-mapped) or torch, which is brought to the CPU.

    Raises:
        ValueError: if they are not a finite floating-point `(N, d)` array whose squares are finite, or `distance` is
            not known.
    """

    def __init__(self, embeddings: Array, *, distance: Metric = "euclidean", name: str = "embeddings") -> None:
        if distance not in ("euclidean", "cosine"):
            raise ValueError(f"distance must be 'euclidean' or 'cosine': got {distance!r}.")
        if not isinstance(embeddings, Tensor | np.ndarray):
            raise ValueError(
                f"{name} must be an array of numpy or torch: got {type(embeddings).__name__}; convert them with "
                f"np.asarray({name})."
            )
        if isinstance(embeddings, Tensor):
            check_dense(embeddings, name=name)
            embeddings = embeddings.detach().cpu()
            floating = embeddings.is_floating_point()
        else:
            floating = embeddings.dtype.kind == "f"
        if embeddings.ndim != 2 or embeddings.shape[1] == 0:
            raise ValueError(
                f"{name} must have shape (N, d) with d >= 1: got {tuple(embeddings.shape)}; flatten each item to a row."
            )
        if not floating:
            raise ValueError(
                f"{name} must be floating point: got {embeddings.dtype}; {how_to_float(embeddings, name)}."
            )
        self.distance, self.name = distance, name
        self.dimension = embeddings.shape[1]
        self.width = self.dimension + (distance == "cosine")
        self.embeddings = embeddings
        self._check()

    def __len__(self) -> int:
        return len(self.embeddings)

    def centre(self) -> tuple[Floats, float]:
        """The mean `(width,)` of the points, and the largest coordinate of a point less that."""
        total = np.zeros(self.width)
        for start, stop in self.pieces():
            total += self.rows(slice(start, stop)).numpy().sum(axis=0)
        mean = total / len(self)
        return mean, max(float(np.abs(self.rows(slice(*span)).numpy() - mean).max()) for span in self.pieces())

    def rows(self, which: Tensor | slice) -> Tensor:
        """The points `(n, width)` float64 of a slice, or of row numbers `(n,)`."""
        points = self._raw(which)
        if self.distance == "cosine":
            points = points / points.abs().amax(dim=1, keepdim=True).clamp_min(torch.finfo(torch.float64).tiny)
            zero = ~points.any(dim=1)
            points = torch.cat([unit_rows(points), zero[:, None].to(points)], dim=1)
        return points

    @property
    def piece(self) -> int:
        """Rows that are a few MiB."""
        return max(1, PIECE // self.width)

    def pieces(self) -> Iterator[tuple[int, int]]:
        """Spans of so many rows."""
        return spans(len(self), self.piece)

    def _raw(self, which: Tensor | slice) -> Tensor:
        if isinstance(self.embeddings, Tensor):
            chosen = self.embeddings[which] if isinstance(which, slice) else self.embeddings.index_select(0, which)
            return chosen.to(torch.float64)
        rows = self.embeddings[which if isinstance(which, slice) else which.numpy()]
        return torch.from_numpy(rows.astype(np.float64, order="C"))

    def _check(self) -> None:
        limit = math.sqrt(torch.finfo(torch.float64).max / (4 * max(1, len(self))))
        broken: list[int] = []
        finite = True
        for start, stop in self.pieces():
            piece = self._raw(slice(start, stop))
            norms = torch.linalg.vector_norm(piece, dim=1)
            if norms.max().item() <= limit:  # a norm that is NaN is the largest
                continue
            entries = torch.isfinite(piece).all(dim=1)
            finite = finite and bool(entries.all())
            usable = norms <= limit if self.distance == "euclidean" else entries
            broken += ((~usable).nonzero()[:, 0] + start).tolist()
        if broken:
            what = "numbers too large to square" if finite else "NaN or infinity"
            todo = "divide all rows by their largest norm" if finite else "check the inputs of these rows"
            raise ValueError(
                f"{self.name} must be finite: {rows_hold(broken, what)} ({len(broken)} of {len(self)}); {todo}."
            )


def as_numpy(values: Array) -> npt.NDArray[Any]:
    return values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)


def as_points(embeddings: Array, *, distance: Metric = "euclidean") -> Tensor:
    """All rows of `Points` at once: `(N, width)` float64 on the CPU, made piece by piece to need no copies."""
    points = Points(embeddings, distance=distance)
    rows = torch.empty(len(points), points.width, dtype=torch.float64)
    for start, stop in points.pieces():
        rows[start:stop] = points.rows(slice(start, stop))
    return rows


def distances_of_pairs(left: Points | Tensor, rows: Tensor, right: Points | Tensor, columns: Tensor) -> Tensor:
    """Distances `(P,)` between rows `(P,)` of one set and rows `(P,)` of another, by differences of coordinates.

    Equal rows are at exactly 0.
    """
    width = left.width if isinstance(left, Points) else left.shape[1]
    rows_of, columns_of = (
        points.rows if isinstance(points, Points) else partial(torch.index_select, points, 0)
        for points in (left, right)
    )
    distances = torch.empty(len(rows), dtype=torch.float64)
    for start, stop in spans(len(rows), max(1, PAIR_NUMBERS // width)):
        differences = rows_of(rows[start:stop]).sub_(columns_of(columns[start:stop]))
        torch.linalg.vector_norm(differences, dim=1, out=distances[start:stop])
    return distances


def twins(points: Points) -> Tensor:
    """Number `(N,)`, for each row, of one row that equals it, the same for all that are equal.

    Rows are grouped by a 64-bit hash of their bits, and compared with the row they are said to equal.
    """
    generator = torch.Generator().manual_seed(0)
    factors = torch.randint(-(2**62), 2**62, (points.width,), generator=generator) * 2 + 1
    hashes = torch.empty(len(points), dtype=torch.int64)
    for start, stop in points.pieces():
        bits = (points.rows(slice(start, stop)) + 0.0).view(torch.int64)  # -0.0 becomes 0.0
        bits = bits ^ (bits >> 32)
        bits *= -7046029254386353131  # an odd number of mixed bits (2^64 over the golden ratio)
        bits ^= bits >> 29
        hashes[start:stop] = (bits * factors).sum(dim=1)
    _, first, group = np.unique(hashes.numpy(), return_index=True, return_inverse=True)
    twin = torch.from_numpy(first[group])
    numbers = torch.arange(len(points))
    shared = (twin != numbers).nonzero()[:, 0]
    for start, stop in spans(len(shared), max(1, PIECE // points.width)):
        some = shared[start:stop]
        different = (points.rows(some) != points.rows(twin[some])).any(dim=1)
        twin[some[different]] = some[different]
    return twin


def spans(count: int, step: int) -> Iterator[tuple[int, int]]:
    """Consecutive (start, stop) that cover 0 .. count - 1."""
    return ((start, min(start + step, count)) for start in range(0, count, step))
