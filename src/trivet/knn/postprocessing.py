"""Rankings that look again at what an index finds: query expansion, and re-ranking by reciprocal neighbours.

Squared distances are taken relative to D, the mean squared distance of two indexed rows, so that neither the scale of
an embedding nor a part that all rows share matters; for cosine the rows are directions.

- Expansion: the query is replaced by the weighted mean of itself, with weight 1, and of its 10 nearest rows x, each
  with weight max(0, 1 - |q - x|^2 / D)^3, and searched for again.
- Re-ranking: rows are neighbours if each is among the 20 nearest of the other. Those of a row, with those of most of
  its neighbours, weighted by exp(-|x - y|^2 / 2 D), and averaged over its 6 nearest, make a sparse vector. The nearest
  rows of a query are ordered by 0.7 J + 0.3 |q - x|^2 / 2 D, where J is the Jaccard distance of both vectors. In the
  source, queries and gallery are one set; here neighbours are looked for among indexed rows alone, so that an answer
  does not depend on what else is looked for, and only the first 100 rows are ordered anew, or as many as are wanted.

Source:
    Chum et al., "Total recall: automatic query expansion with a generative feature model for object retrieval", ICCV
    2007; Radenović, Tolias, Chum, "Fine-tuning CNN image retrieval with no human annotation", TPAMI 2019 (weights by
    the third power of similarity); Zhong, Zheng, Cao, Li, "Re-ranking person re-identification with k-reciprocal
    encoding", CVPR 2017 (20, 6 and 0.3).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_matrix, vstack

from trivet.distances import Array
from trivet.knn.index import Index, Nearest
from trivet.knn.kinds import Reranking
from trivet.metrics.points import spans
from trivet.runtime.arguments import check_count
from trivet.runtime.arrays import Booleans, Floats, Integers

EXPANDED, POWER = 10, 3
RECIPROCAL, AVERAGED, OF_DISTANCE = 20, 6, 0.3
MOSTLY = 2 / 3  # of the neighbours of a neighbour, which must be shared for them to be joined
ORDERED = 100  # rows that are ordered anew
BLOCK = 256  # rows whose neighbours are compared at once
MEASURED = 10_000  # rows, at most, of which D is the mean


class RerankedIndex:
    """An index whose finds are looked at again; it is searched as the index is, and gives the same distances.

    Neighbours of rows are remembered: memory O(N) times some hundred numbers once all rows were looked at.
    """

    def __init__(self, index: Index, kind: Reranking) -> None:
        """Search `index`, and expand each query, or re-rank what is found."""
        self.index, self.kind = index, kind
        present = np.setdiff1d(np.arange(len(index)), index.removed)
        drawn = np.random.default_rng(0).permutation(present)[:MEASURED]
        rows = index.rows(np.sort(drawn)).astype(np.float64)
        self._spread = 2 * float(np.square(rows - rows.mean(axis=0)).sum(axis=1).mean()) or 1.0
        self._present = len(present)
        self._vectors, self._averages = _Remembered(len(index)), _Remembered(len(index))
        count = min(RECIPROCAL, self._present - 1)
        self._neighbours = np.full((len(index), count), -1)
        self._squared = np.full((len(index), count), np.inf)
        self._compared = np.zeros(len(index), bool)

    def search(self, queries: Array, k: int, *, leave_out: Sequence[int] | npt.NDArray[Any] | None = None) -> Nearest:
        """The first k rows for each query; see `Index.search`. Distances are those of the index, and need not rise.

        Args:
            leave_out: `(Q,)` the row that each query is, which it must not find, -1 for none.
        """
        rows = self._ranked(*self.index.checked(queries, leave_out), k)
        return Nearest(rows, self.index.distances(queries, rows))

    def search_rows(self, rows: Sequence[int] | npt.NDArray[Any], k: int) -> Nearest:
        """The first k *other* rows for rows of the index."""
        numbers = np.asarray(rows, np.int64)
        rows = self._ranked(self.index.rows(numbers), numbers, k)
        return Nearest(rows, self.index.distances_of_rows(numbers, rows))

    def _ranked(self, queries: npt.NDArray[np.float32], without: Integers, k: int) -> Integers:
        ranked = self._expanded if self.kind == "expansion" else self._reranked
        return ranked(queries, check_count(k, name="k"), without)

    def _expanded(self, queries: npt.NDArray[np.float32], k: int, without: Integers) -> Integers:
        rows, squared = self.index.nearest(queries, EXPANDED, without)
        weights = np.where(rows >= 0, np.clip(1 - squared / self._spread, 0, None), 0) ** POWER
        total = queries.astype(np.float64)
        for column in range(rows.shape[1]):
            total += weights[:, column, None] * self.index.rows(np.maximum(rows[:, column], 0))
        means = total / (1 + weights.sum(axis=1, keepdims=True))
        return self.index.nearest(np.ascontiguousarray(means, np.float32), k, without)[0]

    def _reranked(self, queries: npt.NDArray[np.float32], k: int, without: Integers) -> Integers:
        rows, squared = self.index.nearest(queries, max(k, ORDERED, RECIPROCAL), without)
        self._average(np.unique(np.concatenate([rows[rows >= 0], without[without >= 0]])))
        vectors = self._averages_of(queries, rows, squared, without)
        scores = OF_DISTANCE * squared / (2 * self._spread)
        dense = np.zeros(len(self.index))
        for number in range(len(queries)):
            present = rows[number] >= 0
            of_query, of_rows = vectors[number], self._averages.rows(rows[number, present])
            dense[of_query.indices] = of_query.data
            shared = np.minimum(of_rows.data, dense[of_rows.indices])
            dense[of_query.indices] = 0
            least = np.bincount(
                np.repeat(np.arange(of_rows.shape[0]), np.diff(of_rows.indptr)), shared, of_rows.shape[0]
            )
            sums = of_query.data.sum() + np.asarray(of_rows.sum(axis=1)).ravel()
            jaccard = 1 - least / np.where(sums > least, sums - least, 1)
            scores[number, present] += (1 - OF_DISTANCE) * jaccard
        order = np.lexsort((rows, scores))[:, :k]
        return np.take_along_axis(rows, order, axis=1)

    def _averages_of(
        self, queries: npt.NDArray[np.float32], rows: Integers, squared: Floats, without: Integers
    ) -> csr_matrix:
        """The averaged vectors of queries with these nearest rows; of a query that is a row, those of the row."""
        count = self._neighbours.shape[1]
        new = self._encoded(queries, rows[:, :count], squared[:, :count], np.full(len(rows), -1))
        averaged = self._mean(new, rows)
        is_row = without >= 0
        if not is_row.any():
            return averaged
        stacked = vstack([averaged, self._averages.rows(without[is_row])], format="csr")
        order = np.arange(len(rows))
        order[is_row] = len(rows) + np.arange(is_row.sum())
        return stacked[order]

    def _mean(self, vectors: csr_matrix, rows: Integers) -> csr_matrix:
        """The mean of each vector and of those of the nearest of these rows, whose own are known."""
        nearest = rows[:, : AVERAGED - 1]
        counts = 1 + (nearest >= 0).sum(axis=1)
        query, column = np.nonzero(nearest >= 0)
        pairs = self._vectors.rows(nearest[query, column])
        into = csr_matrix((np.ones(len(query)), (query, np.arange(len(query)))), (len(rows), len(query)))
        return csr_matrix((vectors + into @ pairs).multiply(1 / counts[:, None]))

    def _average(self, rows: Integers) -> None:
        """Make the averaged vectors of rows known."""
        rows = self._averages.unknown(rows)
        self._compare(rows)
        nearest = self._neighbours[rows, : AVERAGED - 1]
        self._encode(np.unique(np.concatenate([rows, nearest[nearest >= 0]])))
        for start, stop in spans(len(rows), BLOCK):
            some = rows[start:stop]
            self._averages.add(some, self._mean(self._vectors.rows(some), self._neighbours[some]))

    def _encode(self, rows: Integers) -> None:
        """Make the vectors of rows known."""
        rows = self._vectors.unknown(rows)
        self._compare(rows)
        for start, stop in spans(len(rows), BLOCK):
            some = rows[start:stop]
            vectors = self._encoded(self.index.rows(some), self._neighbours[some], self._squared[some], some)
            self._vectors.add(some, vectors)

    def _compare(self, rows: Integers) -> None:
        """Make the nearest others of rows known."""
        rows = np.unique(rows[~self._compared[rows]])
        if len(rows) and self._neighbours.shape[1]:
            count = self._neighbours.shape[1]
            self._neighbours[rows], self._squared[rows] = self.index.nearest(self.index.rows(rows), count, rows)
        self._compared[rows] = True

    def _encoded(
        self, points: npt.NDArray[np.float32], rows: Integers, squared: Floats, numbers: Integers
    ) -> csr_matrix:
        """The vectors `(n, N)` of points with these nearest rows; `numbers` are those of the points, -1 for none."""
        self._compare(rows[rows >= 0])
        neighbour = self._reciprocal(rows, squared)
        first = np.concatenate([np.where(neighbour, rows, -1), numbers[:, None]], axis=1)  # (n, k + 1)
        half = max(1, round(RECIPROCAL / 2))
        others = self._neighbours[np.maximum(rows, 0), :half]  # (n, k, h)
        self._compare(np.unique(others[(others >= 0) & neighbour[:, :, None]]))
        mutual = self._reciprocal(others, self._squared[np.maximum(rows, 0), :half], half) & neighbour[:, :, None]
        sets = np.concatenate([np.where(mutual, others, -1), np.where(neighbour, rows, -1)[:, :, None]], axis=2)
        size = len(self.index) + 1
        row = np.arange(len(rows))
        shared = (sets >= 0) & np.isin(row[:, None, None] * size + sets, row[:, None] * size + first)
        joined = shared.sum(axis=2) >= MOSTLY * (sets >= 0).sum(axis=2)
        sets = np.where((joined & neighbour)[:, :, None], sets, -1)
        members = np.concatenate([first, sets.reshape(len(rows), -1)], axis=1)
        keys = np.unique((row[:, None] * size + members)[members >= 0])
        of, member = keys // size, keys % size
        weights = np.empty(len(keys))
        for start, stop in spans(len(keys), BLOCK * RECIPROCAL):
            pairs = slice(start, stop)
            far = self.index.squared(points[of[pairs]], member[pairs, None])[:, 0]
            weights[pairs] = np.exp(-far / (2 * self._spread))
        sums = np.bincount(of, weights, len(rows))
        return csr_matrix((weights / sums[of], (of, member)), (len(rows), len(self.index)))

    def _reciprocal(self, rows: Integers, squared: Floats, count: int = RECIPROCAL) -> Booleans:
        """Mask of the rows that have a point at this squared distance among their `count` nearest."""
        count = min(count, self._neighbours.shape[1])
        if not count:
            return np.zeros(rows.shape, bool)
        return np.asarray((rows >= 0) & (squared <= self._squared[np.maximum(rows, 0), count - 1]))


class _Remembered:
    """Sparse rows `(N, N)`, made known some at a time."""

    def __init__(self, count: int) -> None:
        self._position = np.full(count, -1)
        self._blocks: list[csr_matrix] = []
        self._stored = 0

    def unknown(self, rows: Integers) -> Integers:
        """Rows of these that are not known."""
        return rows[self._position[rows] < 0]

    def add(self, rows: Integers, vectors: csr_matrix) -> None:
        self._position[rows] = self._stored + np.arange(len(rows))
        self._stored += len(rows)
        self._blocks.append(vectors)

    def rows(self, rows: Integers) -> csr_matrix:
        """Known rows, in this order."""
        if len(self._blocks) > 1:
            self._blocks = [vstack(self._blocks, format="csr")]
        if not self._blocks:
            return csr_matrix((0, len(self._position)))
        return self._blocks[0][self._position[rows]]
