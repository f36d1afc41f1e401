"""Grades: items that belong together by how relevant they are to each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy import sparse
from torch import Tensor

from trivet.mining.relations import TwoSided, signature_of

Grade = Callable[[Tensor, Tensor], Tensor]


class Grades(TwoSided):
    """Items by grades of relevance: positives from a grade on, negatives below one, ignored in between.

    Args:
        relevance: a symmetric matrix `(K, K)`, dense or sparse (scipy), or a symmetric function of the numbers of
            anchors `(B,)` and others `(M,)`, int64 tensors, that gives `(B, M)`. With `sides`, a matrix `(L, R)` of
            the grades of two sides, whose rows are not compared with their own.
        positive: the least grade of a positive.
        negative: grades below it are negatives; None takes `positive`, so that nothing is ignored.
        items: `(N,)` the numbers of the items in the matrix or for the function, such as their classes; None takes all
            of the matrix.
        sides: whether the rows and the columns of the matrix are two sides.

    Attributes:
        left, right: the items of the rows and of the columns, with `sides`.

    Raises:
        ValueError: if the matrix is not symmetric, has a number that is not finite, or the grades are not in order.

    Example:
        >>> grades = Grades([[1.0, 0.5, 0.0], [0.5, 1.0, 0.0], [0.0, 0.0, 1.0]], positive=1.0, negative=0.5)
        >>> classes = grades[[0, 0, 1, 2]]  # two items of class 0, one of 1 and one of 2
        >>> classes.positive(classes.items[:1], classes.items), classes.ignored(classes.items[:1], classes.items)
        (tensor([[ True,  True, False, False]]), tensor([[False, False,  True, False]]))
    """

    advice = "draw items that are relevant to each other into each batch"

    def __init__(
        self,
        relevance: object,
        *,
        positive: float,
        negative: float | None = None,
        items: Tensor | None = None,
        sides: bool = False,
    ) -> None:
        self.least_positive, self.least_ignored = positive, positive if negative is None else negative
        if not self.least_ignored <= positive:
            raise ValueError(
                f"negative must not exceed positive, {positive}: got {negative}; grades below it are none."
            )
        self.first_of_right = 0
        self.grade: Grade
        if callable(relevance):
            if items is None or sides:
                raise ValueError(
                    "items must be given for a function of relevance, and no sides: pass the numbers of the items it "
                    "knows, such as torch.arange(n)."
                )
            self.grade = relevance
        else:
            matrix = _grades(relevance, symmetric=not sides)
            self.signature = signature_of(*_arrays(matrix))
            self.first_of_right = matrix.shape[0] if sides else 0
            self.grade = _of_sides(matrix) if sides else _of_matrix(matrix)
            if items is None:
                items = torch.arange(matrix.shape[0] + (matrix.shape[1] if sides else 0))
        self.items = items

    def relevance(self, anchors: Tensor, others: Tensor) -> Tensor:
        """The grades `(B, M)` float64; NaN within a side."""
        return self.grade(anchors, others).double()

    def compared(self, anchors: Tensor, others: Tensor) -> tuple[Tensor, Tensor]:
        grades = self.relevance(anchors, others)
        return grades >= self.least_positive, ~(grades < self.least_ignored)  # within a side there is none


def _grades(relevance: object, *, symmetric: bool) -> Tensor | sparse.csr_array:
    matrix = sparse.csr_array(relevance) if sparse.issparse(relevance) else torch.as_tensor(np.asarray(relevance))
    if matrix.ndim != 2 or (symmetric and matrix.shape[0] != matrix.shape[1]):
        kind = "a square matrix (K, K)" if symmetric else "a matrix (L, R)"
        raise ValueError(
            f"relevance must be {kind}, or a function: got shape {tuple(matrix.shape)}; pass sides=True if rows and "
            "columns are items of two kinds."
        )
    values = matrix.data if isinstance(matrix, sparse.csr_array) else matrix.numpy()
    if not np.isfinite(values).all():
        raise ValueError("relevance must be finite: got a number that is not; give 0 to what is not relevant.")
    if symmetric:
        differs = (matrix != matrix.T).sum() if isinstance(matrix, sparse.csr_array) else (matrix != matrix.T).any()
        if differs:
            raise ValueError(
                "relevance must be symmetric: got a matrix that differs from its transpose; take the mean of both, or "
                "pass sides=True if rows and columns are items of two kinds."
            )
    return matrix


def _of_matrix(matrix: Tensor | sparse.csr_array) -> Grade:
    if isinstance(matrix, sparse.csr_array):
        return lambda anchors, others: torch.from_numpy(
            matrix[anchors.cpu().numpy()][:, others.cpu().numpy()].toarray()
        ).to(anchors.device)
    tables = {matrix.device: matrix}  # on each device that asks

    def grade(anchors: Tensor, others: Tensor) -> Tensor:
        if anchors.device not in tables:
            tables[anchors.device] = matrix.to(anchors.device)
        return tables[anchors.device][anchors[:, None], others]

    return grade


def _of_sides(matrix: Tensor | sparse.csr_array) -> Grade:
    """Grades of the rows, numbered first, and the columns after them; NaN within a side."""
    rows, grade = matrix.shape[0], _of_matrix(matrix)

    def of_sides(anchors: Tensor, others: Tensor) -> Tensor:
        grades = torch.full((len(anchors), len(others)), torch.nan, dtype=torch.float64, device=anchors.device)
        left, other_left = anchors < rows, others < rows
        for first, second, turned in ((left, ~other_left, False), (~left, other_left, True)):
            if first.any() and second.any():
                a, b = anchors[first], others[second]
                block = grade(b, a - rows).T if turned else grade(a, b - rows)
                grades[first.nonzero(), second.nonzero()[:, 0]] = block.double()
        return grades

    return of_sides


def _arrays(matrix: Tensor | sparse.csr_array) -> tuple[npt.NDArray[Any], ...]:
    """The arrays that a matrix consists of."""
    if isinstance(matrix, Tensor):
        return (matrix.numpy(),)
    return matrix.data, matrix.indices, matrix.indptr
