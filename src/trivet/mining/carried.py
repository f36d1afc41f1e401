"""Items that belong together by what they carry."""

from __future__ import annotations

from abc import abstractmethod
from copy import copy
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy import sparse
from torch import Tensor

from trivet.mining.adjacency import MAX_STORED, Adjacency, MatrixAdjacency
from trivet.mining.relations import ComparedRelation, signature_of


class CarriedRelation(ComparedRelation):
    """Items that belong together by what they carry: tags, or pairs.

    Attributes:
        incidence: `(K, T)` of 0 and 1, which of T things each of K numbers carries.
    """

    incidence: sparse.csr_array
    _references: tuple[Tensor, npt.NDArray[Any]] | None = None  # items that are compared, and what they carry `(T, M)`

    def carry(self, incidence: sparse.csr_array) -> None:
        """Set what each number carries."""
        most = np.diff(incidence.indptr).max(initial=0)  # counts of what is shared are bytes where that is enough
        self.incidence = incidence.astype(np.uint8 if most < 2**8 else np.int32)
        self.signature = signature_of(incidence.data, incidence.indices, incidence.indptr)

    def rows(self, items: Tensor) -> sparse.csr_array:
        """Rows `(B, T)` of the incidence, of these items."""
        return self.incidence[items.cpu().numpy()]

    def compare(self, items: Tensor, others: Tensor) -> Adjacency:
        """The comparison of a batch with its references, whose rows are looked up once where they are few."""
        relation = self
        if len(others) * self.incidence.shape[1] <= MAX_STORED:
            relation = copy(self)
            relation._references = others, self.rows(others).toarray(order="F").T
        return MatrixAdjacency(relation.compared, items, others)

    def shared(self, anchors: Tensor, others: Tensor) -> Tensor:
        """Return how many things each two items share, `(B, M)` uint8 or int32."""
        if self._references is not None and others is self._references[0]:
            return torch.from_numpy(self.rows(anchors) @ self._references[1]).to(anchors.device)
        rows, of_others = self.rows(anchors), self.rows(others)
        carried = np.unique(rows.indices)
        if len(carried) < rows.shape[1]:
            rows, of_others = rows[:, carried], of_others[:, carried]
        dense = of_others.toarray(order="F").T  # a sparse one takes five times as long
        return torch.from_numpy(rows @ dense).to(anchors.device)

    def _positive_pairs(self, anchors: Tensor, others: Tensor) -> tuple[Tensor, Tensor]:
        shared = (self.rows(others) @ self.rows(anchors).T.tocsr()).T.tocsr()  # sparse, as most share nothing
        rows = np.repeat(np.arange(len(anchors)), np.diff(shared.indptr))
        enough = shared.data >= self.least_shared(anchors)[rows]
        row, column = (
            torch.from_numpy(ends[enough].astype(np.int64)).to(anchors.device) for ends in (rows, shared.indices)
        )
        positive = self.positive_by_shared(anchors[row], others[column], torch.from_numpy(shared.data[enough]))
        return row[positive], column[positive]

    def _most_compared(self, anchors: Tensor, others: Tensor) -> int:
        carriers = self.rows(others).sum(axis=0, dtype=np.int64)
        return int((self.rows(anchors) @ carriers).max(initial=0))

    def least_shared(self, anchors: Tensor) -> npt.NDArray[np.float64]:
        """The least number of things, or a bound of it, that each of `anchors (B,)` shares with a positive."""
        return np.ones(len(anchors))

    @abstractmethod
    def positive_by_shared(self, anchors: Tensor, others: Tensor, shared: Tensor) -> Tensor:
        """Return which pairs of items `(P,)` and `(P,)` that share so many things, at least one, are positives."""
