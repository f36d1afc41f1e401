"""The rank of each positive of a query, found by counting the items that are closer, without lists of neighbours."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Self, TypeVar

import numpy as np
import torch
from torch import Tensor

from trivet.distances.threads import share
from trivet.metrics.points import Points, distances_of_pairs, spans, twins
from trivet.metrics.protocols import RetrievalTask
from trivet.metrics.rank_counting import ROWS, SortedCodes, count_rows, many_within_reach, sorted_counts
from trivet.metrics.relation_levels import LevelClasses, RelatedRows
from trivet.mining.adjacency import true_entries
from trivet.runtime.lazy import lazy

T = TypeVar("T")

TIE = 1e-13  # of a distance: some hundred times its own rounding error
TILE = (1024, 4096)  # queries and gallery rows compared at once: 16 MiB of float32 for each thread
ENTRIES = 2**21  # of an array (queries, positives) of a block: 16 MiB
FEW = 32  # positives up to which float32 products are worth their doubtful pairs
SHORT = 256  # queries of a block at least, for which the gallery is centred anew
SPAN = 32  # gallery rows that are sorted for each of many positives: to look one up takes longer
MANY = 64  # of a class with more items the distances are taken as a matrix
SHARE = 16  # a tile of which more than 1/16 is in doubt is decided as a whole
WIDTH = 128  # coordinates of a float32 product: rounding errors grow with them
SMALLEST = 1e-150  # squares of a smaller spread are lost anyway
PREPARED = 2**27  # numbers of a gallery that is kept centred in float32: 512 MiB
DIFFERENCES = "donot_use_mm_for_euclid_dist"


@dataclass(frozen=True)
class PositiveRanks:
    """The positives of a block of Q queries, nearest first; fields `(Q, R)` int64.

    R is the most positives of a query, or 1 where the nearest is enough.

    A distance is tied with that of a positive when they differ by at most 1e-13 of the latter, however small that is
    beside the spread of all items. Both are those of the float64 rows, by differences of coordinates: equal rows are
    at distance 0, which ties with nothing else. In cosine, rows along one ray are equal; equal angles below about 0.01
    may differ by more than 1e-13 of themselves, since unit rows are rounded. Distances below 1e-150, which only float64
    holds, lose digits, and below 1e-162 they are 0.
    """

    sizes: Tensor  # (Q,) positives of each query; beyond them the columns mean nothing
    nearer: Tensor  # items strictly nearer than the positive, of those the query may retrieve
    tied: Tensor  # items as far as the positive, itself among them
    positives_nearer: Tensor
    positives_tied: Tensor
    retrievable: Tensor  # (Q,) items each query may retrieve

    def of(self, queries: Tensor) -> Self:
        """The same of some queries."""
        return replace(self, **{field.name: getattr(self, field.name)[queries] for field in fields(self)})

    def kinds(self) -> tuple[Tensor, Tensor]:
        """Queries `(K,)` that chance treats differently, and which of them stands for each query `(Q,)`."""
        _, which = torch.unique(torch.stack([self.retrievable, self.sizes]), dim=1, return_inverse=True)
        first = which.new_zeros(int(which.max()) + 1 if len(which) else 0)
        return first.scatter_(0, which, torch.arange(len(which))), which

    def equally_far(self) -> Self:
        """The same if all items were equally far."""
        zero = torch.zeros(len(self.sizes), max(1, int(self.sizes.max())), dtype=torch.int64)
        tied, positives = (counts[:, None].expand_as(zero) for counts in (self.retrievable, self.sizes))
        return replace(self, nearer=zero, tied=tied, positives_nearer=zero, positives_tied=positives)

    def gained(self, discounts: Tensor) -> Tensor:
        """Gain `(Q, R)` of the positives, of their discounts."""
        return discounts

    def ideal(self, discounts: Tensor) -> Tensor:
        """Sum `(Q,)` of the gains of the best ranking, of the discounts `(n,)` of the ranks that count."""
        totals = torch.cat([discounts.new_zeros(1), discounts.cumsum(dim=0)])
        return totals[self.sizes.clamp_max(len(discounts))]


@dataclass(frozen=True)
class GradedRanks(PositiveRanks):
    """The same with the relevance of each positive."""

    gains: Tensor  # (Q, R) float64, above 0; 0 beyond `sizes`

    def kinds(self) -> tuple[Tensor, Tensor]:
        return (torch.arange(len(self.sizes)),) * 2

    def gained(self, discounts: Tensor) -> Tensor:
        return self.gains * discounts

    def ideal(self, discounts: Tensor) -> Tensor:
        best = self.gains.sort(dim=1, descending=True).values[:, : len(discounts)]
        return best @ discounts[: best.shape[1]]


class ExactSearch:
    """Exact standings of the positives of a task.

    Args:
        first: whether the standing of the nearest positive is enough.
        graded: whether the relevance of each positive is needed.
    """

    def __init__(self, task: RetrievalTask, *, first: bool = False, graded: bool = False) -> None:
        self.task, self.queries, self.gallery, self.first = task, task.queries, task.gallery, first
        self.graded = graded
        self.prepared = _Gallery(self.gallery, self.queries)
        self.query_twins = twins(self.queries)
        self.gallery_twins = self.query_twins if self.gallery is self.queries else twins(self.gallery)
        self._scratch = threading.local()
        self.has_twins = bool((self.gallery_twins != torch.arange(len(self.gallery))).any())

    def scratch(self, name: str, dtype: torch.dtype, rows: int, columns: int) -> Tensor:
        """Memory `(rows, columns)` that each tile uses anew: fresh memory costs more than what is done with it."""
        buffer = getattr(self._scratch, name, torch.empty(0))
        if buffer.numel() < rows * columns:
            buffer = torch.empty(rows * columns, dtype=dtype)
            setattr(self._scratch, name, buffer)
        return buffer[: rows * columns].view(rows, columns)

    def stand_all(
        self, blocks: Sequence[Tensor], work: Callable[[list[PositiveRanks]], T], take: Callable[[Tensor, T], None]
    ) -> None:
        """Call `take` with each block and what `work` makes of its standing, in order; see `share`."""
        onednn = torch.backends.mkldnn.enabled
        self.prepared.rows(0, 0)
        # It takes float32 products in bfloat16 where torch.set_float32_matmul_precision is "medium".
        torch.backends.mkldnn.enabled = False  # type: ignore[assignment]  # typed as its descriptor
        try:
            share(blocks, lambda block: work(self.rank(block)), take)
        finally:
            torch.backends.mkldnn.enabled = onednn

    def blocks(self) -> list[Tensor]:
        """Query numbers `(B,)`, block by block: queries of one class together, as many as memory allows."""
        order = torch.arange(len(self.queries))
        sizes = [level.sizes for level in self.task.levels]
        for level, size in zip(self.task.levels, sizes, strict=True):  # the last key is the first to decide
            order = order[torch.argsort(level.queries[order], stable=True)]
            order = order[torch.argsort(size[order], stable=True)]
        most = torch.stack(sizes).amax(dim=0)[order].clamp_min(1)
        tall = TILE[0] if self.first else _queries(len(self.gallery), int(most.max()))
        blocks, start = [], 0
        while start < len(order):
            stop = min(start + tall, len(order))
            rows = most[start:stop].cummax(dim=0).values * torch.arange(1, stop - start + 1)
            stop = start + max(1, int((rows <= ENTRIES).sum()))
            blocks.append(order[start:stop])
            start = stop
        return blocks

    def rank(self, block: Tensor) -> list[PositiveRanks]:
        """The standing of the positives of some queries, at each level."""
        queries = _Queries(self, block)
        wanted = [self._wanted(level, block, queries.rows) for level in self.task.levels]
        most = max(level.width for level in wanted)
        wide = most > FEW  # then its sorted products serve all levels
        for start, stop in spans(len(self.gallery), _columns(len(block), most)):
            tile = _Tile(self, queries, start, stop)
            for level in wanted:
                if level.width:
                    tile.count(level, sort=wide)
        return [level.ranks(len(self.gallery)) for level in wanted]

    def _wanted(self, level: LevelClasses, block: Tensor, queries: Tensor) -> _Wanted:
        self_rows = None if self.task.self_rows is None else self.task.self_rows[block]
        related = level.related(block, self_rows, graded=self.graded)
        sizes, rows, columns = related.sizes, related.rows, related.columns
        distances = torch.full(columns.shape, torch.inf, dtype=torch.float64)
        some = self.task.allows(block[rows], columns)
        starts = sizes.cumsum(0) - sizes
        for alike in level.alike(block, MANY):
            positions = starts[alike, None] + torch.arange(int(sizes[alike[0]]))
            members = columns[positions[0]]
            to_members = _distances_between(queries[alike], self.gallery, members)
            distances[positions] = to_members.masked_fill_(~some[positions], torch.inf)
            some[positions] = False
        distances[some] = distances_of_pairs(self.queries, block[rows[some]], self.gallery, columns[some])
        return _Wanted(related, distances, first=self.first)


class _Wanted:
    """The positives of a block of queries at one level: their distances, and what is counted of the negatives.

    Args:
        related: the rows that the queries are related to.
        distances: to the positives, query by query, infinite for a pair that is left out.
        first: keep the nearest positive only.
    """

    def __init__(self, related: RelatedRows, distances: Tensor, *, first: bool) -> None:
        members = related.sizes
        self._rows = torch.cat([related.rows, related.ignored_rows])
        self._columns = torch.cat([related.columns, related.ignored_columns])
        self.sizes = torch.bincount(related.rows[distances.isfinite()], minlength=len(members))
        self.left_out = members + torch.bincount(related.ignored_rows, minlength=len(members)) - self.sizes
        # Set into a rectangle: row by row, as they come.
        present = torch.arange(int(members.max())) < members[:, None]
        positions = torch.full(present.shape, torch.inf, dtype=torch.float64)
        positions[present] = distances
        self.width = int(self.sizes.max())
        self.gains: Tensor | None = None
        if related.gains is not None:
            gains = torch.zeros_like(positions).masked_scatter_(
                present, related.gains.masked_fill(distances.isinf(), 0)
            )
            self.gains = gains.gather(1, positions.argsort(dim=1)[:, : self.width])
        if first and self.width:
            self.width = 1
            self.distances = positions.amin(dim=1, keepdim=True)
        else:
            self.distances = torch.from_numpy(np.sort(positions.numpy(), axis=1)[:, : self.width].copy())
        self.below, self.above = self.distances * (1 - TIE), self.distances * (1 + TIE)
        if first and self.width:
            self._nearer = torch.zeros_like(self.sizes)[:, None]
            self._tied = (positions <= self.above).sum(dim=1, keepdim=True)
        else:
            self._nearer = torch.searchsorted(self.distances, self.below)
            self._tied = torch.searchsorted(self.distances, self.above, right=True) - self._nearer
        self.nearer = torch.zeros(self.distances.shape, dtype=torch.int64)
        self.tied = torch.zeros_like(self.nearer)

    def pairs(self, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """These pairs among gallery rows start .. stop: place in the block, column from `start`."""
        some = (self._columns >= start) & (self._columns < stop)
        return self._rows[some], self._columns[some] - start

    def ranks(self, gallery: int) -> PositiveRanks:
        """The result, once all `gallery` rows have been counted."""
        ranks = PositiveRanks(
            sizes=self.sizes,
            nearer=self.nearer + self._nearer,
            tied=self.tied + self._tied,
            positives_nearer=self._nearer,
            positives_tied=self._tied,
            retrievable=gallery - self.left_out,
        )
        return ranks if self.gains is None else GradedRanks(**vars(ranks), gains=self.gains)


class _Gallery:
    """The gallery centred, scaled to norms of at most 1 and rounded to float32, kept where it is not too large.

    Centred on their mean, as rounding errors grow with the norms; scaled, like the queries, by a power of two.
    """

    def __init__(self, points: Points, queries: Points) -> None:
        self._points = points
        some = points.rows(torch.arange(0, len(points), max(1, len(points) // 4096)))
        self.centre = some.mean(dim=0)
        farthest = max(
            float(torch.linalg.vector_norm(some.rows(slice(*span)) - self.centre, dim=1).max())
            for some in ((points,) if queries is points else (points, queries))
            for span in some.pieces()
        )
        self.scale = 2.0 ** -math.ceil(math.log2(farthest)) if farthest > SMALLEST else 1.0
        self._rows: Tensor | None = None

    def rows(self, start: int, stop: int) -> Tensor:
        """Rows and half their norm^2 `(n, width + 1)`."""
        if len(self._points) * self._points.width > PREPARED:
            return self._prepare(start, stop)
        if self._rows is None:
            self._rows = torch.empty(len(self._points), self._points.width + 1, dtype=torch.float32)
            for span in self._points.pieces():
                self._rows[slice(*span)] = self._prepare(*span)
        return self._rows[start:stop]

    def _prepare(self, start: int, stop: int) -> Tensor:
        exact = (self._points.rows(slice(start, stop)) - self.centre) * self.scale
        return torch.cat([exact, exact.square().sum(dim=1, keepdim=True) / 2], dim=1).float()


class _Queries:
    """The queries of a block as the products need them: `(B, d)` rows and their norm^2 `(B,)`."""

    def __init__(self, search: ExactSearch, block: Tensor) -> None:
        self.numbers, self.rows = block, search.queries.rows(block)
        self.centre = self.rows.mean(dim=0)  # for float64: rows of one class may lie close together
        self.doubles = self.rows - self.centre
        self.doubles_squares = self.doubles.square().sum(dim=1)
        scaled = (self.rows - search.prepared.centre) * search.prepared.scale
        self.singles = torch.cat([scaled, torch.full((len(block), 1), -1.0)], dim=1).float()
        self.singles_squares = scaled.square().sum(dim=1)


class _Tile:
    """Queries of a block against a span of the gallery.

    What is compared are keys v = |y|^2 / 2 - q y of centred rows, which grow with the distance, D^2 = |q|^2 + 2 v.
    A key is wrong by rounding; where that could decide, the pair is in doubt, and its distance is taken by differences.
    """

    def __init__(self, search: ExactSearch, queries: _Queries, start: int, stop: int) -> None:
        self.search, self.queries, self.block, self.start, self.stop = search, queries, queries.numbers, start, stop
        self.entries = len(self.block) * (stop - start)

    def count(self, wanted: _Wanted, *, sort: bool) -> None:
        """Add the negatives of this span that are nearer than each positive, and those as far.

        Args:
            sort: whether float64 products are sorted for another level anyway.
        """
        if not self._few_distinct:
            if not sort and self._count_by_singles(wanted):
                return
            if self._count_by_doubles(wanted):
                return
        rows, columns = wanted.pairs(self.start, self.stop)
        distances = self._distances.index_put((rows, columns), torch.tensor(torch.inf, dtype=torch.float64))
        nearer, reached = sorted_counts(distances, wanted.below, wanted.above)
        wanted.nearer += nearer
        wanted.tied += reached - nearer

    def _count_by_singles(self, wanted: _Wanted) -> bool:
        """By float32 products; False, and nothing counted, if in doubt."""
        keys, squares, error = self._singles
        middle = ((wanted.distances * self.search.prepared.scale).square() - squares[:, None]) / 2
        error = error[:, None] + 4 * TIE * (middle.abs() + squares[:, None])
        # A positive that is not there stands where the last of the row does.
        absent = middle.isinf()
        low, high = ((middle + sign * error).masked_fill_(absent, -torch.inf) for sign in (-1, 1))
        low, high = (bound.cummax(dim=1).values.float() for bound in (low, high))
        low, high = torch.nextafter(low, torch.tensor(-torch.inf)), torch.nextafter(high, torch.tensor(torch.inf))
        high.masked_fill_(high == torch.finfo(torch.float32).min, -torch.inf)  # the row has none
        rows, columns = wanted.pairs(self.start, self.stop)
        if many_within_reach(keys.numpy(), high.numpy()):
            return self._count_sorted(wanted, low, high, rows, columns)
        hidden = keys[rows, columns]
        keys[rows, columns] = torch.inf
        counted = [
            count_rows(keys[start:stop].numpy(), low[start:stop].numpy(), high[start:stop].numpy(), start)
            for start, stop in spans(len(keys), ROWS)
        ]
        doubtful_pairs = [pairs for _, doubtful in counted for pairs in doubtful]
        few = sum(len(row) for row, *_ in doubtful_pairs) * SHARE <= self.entries
        if few:
            wanted.nearer += torch.from_numpy(np.concatenate([counts for counts, _ in counted]))
            row, column = (
                torch.from_numpy(np.concatenate([pairs[side] for pairs in doubtful_pairs])) for side in (0, 1)
            )
            start, stop = (
                torch.from_numpy(np.concatenate([np.full(len(pairs[0]), pairs[side]) for pairs in doubtful_pairs]))
                for side in (2, 3)
            )
            key = keys[row, column, None]
            first = torch.maximum((key > high[row]).sum(dim=1), start)
            end = torch.minimum((key >= low[row]).sum(dim=1), stop)
            self._decide(wanted, row, column, first, end)
        keys[rows, columns] = hidden
        return few

    def _count_sorted(self, wanted: _Wanted, low: Tensor, high: Tensor, rows: Tensor, columns: Tensor) -> bool:
        """By the sorted codes of the float32 products, but for the pairs `rows`, `columns` of positives."""
        codes = self._codes
        below, above = codes.of_bounds(low, high)
        nearer = torch.searchsorted(codes.sorted, below)
        reached = torch.searchsorted(codes.sorted, above, right=True)
        # Places in the sorted rows that are in doubt for some positive, each once.
        before = torch.cat([torch.zeros_like(reached[:, :1]), reached[:, :-1]], dim=1)
        first = torch.maximum(nearer, before)
        counts = (reached - first).clamp_min_(0).ravel()
        if int(counts.sum()) * SHARE > self.entries:
            return False
        row = torch.arange(len(nearer)).repeat_interleave(wanted.width).repeat_interleave(counts)
        position = torch.arange(len(row)) - (counts.cumsum(0) - counts - first.ravel()).repeat_interleave(counts)
        doubtful = codes.sorted[row, position]
        valid = ~torch.isin(row * self.stop + codes.columns(doubtful), rows * self.stop + columns)
        row, doubtful = row[valid], doubtful[valid]
        positive_codes = codes.of_pairs(self._singles[0], rows, columns)
        # Of the positives themselves those are taken off that are below a bound.
        after = (below[rows] <= positive_codes[:, None]).sum(dim=1)
        taken = torch.bincount(rows * (wanted.width + 1) + after, minlength=len(nearer) * (wanted.width + 1))
        wanted.nearer += nearer - taken.view(len(nearer), -1).cumsum(dim=1)[:, :-1]
        passed, open_ = ((bound[row] < doubtful[:, None]).sum(dim=1) for bound in (above, below - 1))
        self._decide(wanted, row, codes.columns(doubtful), passed, open_)
        return True

    def _count_by_doubles(self, wanted: _Wanted) -> bool:
        """By float64 products and sorting, for any number of positives; False, and nothing counted, if in doubt."""
        keys, squares = self._doubles
        squared = wanted.distances.square()
        slack = rounding_error(self.queries.rows.shape[1], squares[:, None], squared) / 2
        middle = (squared - squares[:, None]) / 2
        absent = middle.isinf()
        largest = torch.finfo(torch.float64).max  # a positive that is not there: surely farther than any
        low, high = ((middle + sign * slack).masked_fill_(absent, largest) for sign in (-1, 1))
        low, high = low.cummax(dim=1).values, high.cummax(dim=1).values
        rows, columns = wanted.pairs(self.start, self.stop)
        hidden = keys[rows, columns]
        keys[rows, columns] = torch.inf
        counted = self._count_hidden(wanted, keys, low, high)
        keys[rows, columns] = hidden
        return counted

    def _count_hidden(self, wanted: _Wanted, keys: Tensor, low: Tensor, high: Tensor) -> bool:
        """Count where no key `(B, n)` is that of a positive."""
        nearer, reached = sorted_counts(keys, low, high)
        doubtful = (nearer != reached).any(dim=1).nonzero()[:, 0]
        if int((reached - nearer).amax(dim=1).sum()) * SHARE > self.entries:
            return False
        doubtful_pairs = []
        for start, stop in spans(len(doubtful), max(1, ENTRIES // (self.stop - self.start))):
            some = doubtful[start:stop]
            first = torch.searchsorted(high[some], keys[some])
            end = torch.searchsorted(low[some], keys[some], right=True)
            row, column = true_entries(first < end)
            doubtful_pairs.append((some[row], column, first[row, column], end[row, column]))
        if sum(len(row) for row, *_ in doubtful_pairs) * SHARE > self.entries:
            return False
        wanted.nearer += nearer
        for row, column, first, end in doubtful_pairs:
            self._decide(wanted, row, column, first, end)
        return True

    def _decide(self, wanted: _Wanted, rows: Tensor, columns: Tensor, first: Tensor, end: Tensor) -> None:
        """Count pairs `(P,)` for their positives first .. end - 1, by differences of coordinates."""
        search = self.search
        positions = torch.arange(wanted.width)
        for start, stop in spans(len(rows), max(1, ENTRIES // max(1, wanted.width))):
            row, column = rows[start:stop], columns[start:stop]
            distance = distances_of_pairs(search.queries, self.block[row], search.gallery, column + self.start)[:, None]
            open_ = (positions >= first[start:stop, None]) & (positions < end[start:stop, None])
            nearer = distance < wanted.below[row]
            tied = (distance <= wanted.above[row]) ^ nearer
            wanted.nearer.index_add_(0, row, (open_ & nearer).long())
            wanted.tied.index_add_(0, row, (open_ & tied).long())

    @lazy
    def _few_distinct(self) -> bool:
        if not self.search.has_twins:
            return False
        rows = len(torch.unique(self.search.query_twins[self.block]))
        columns = len(torch.unique(self.search.gallery_twins[self.start : self.stop]))
        return rows * columns * SHARE <= self.entries

    @lazy
    def _singles(self) -> tuple[Tensor, Tensor, Tensor]:
        """Keys `(B, n)` float32, and of each query norm^2 and a bound of the error of its keys, float64.

        Half the norm^2 of y is one more coordinate. A sum of w products is wrong by at most (w + 1) u s, u = 2^-24 and
        s = |q| |y| + |y|^2 / 2, and the sum of parts of them by u s for each; rounding the rows adds 2 u s.
        """
        gallery = self.search.prepared.rows(self.start, self.stop)
        queries, squares = self.queries.singles, self.queries.singles_squares
        keys = self.search.scratch("keys", torch.float32, len(queries), len(gallery))
        width = queries.shape[1]
        chunks = max(1, width // WIDTH)
        for chunk in range(chunks):
            left, right = width * chunk // chunks, width * (chunk + 1) // chunks
            torch.addmm(keys, queries[:, left:right], gallery[:, left:right].T, beta=min(left, 1), alpha=-1, out=keys)
        farthest, unit = float((2 * gallery[:, -1].max()).sqrt()) * 1.001, 2.0**-24
        steps = -(-width // chunks) + chunks + 6
        error = unit * (steps * (squares.sqrt() * farthest + farthest**2 / 2) + 3 * farthest**2)
        error += torch.finfo(torch.float64).eps * (width + 8) * (squares.sqrt() + farthest).square()
        return keys, squares, 1.01 * error + width * torch.finfo(torch.float32).tiny

    @lazy
    def _codes(self) -> SortedCodes:
        """Codes of all keys of `_singles`."""
        keys, squares, _ = self._singles
        gallery = self.search.prepared.rows(self.start, self.stop)
        farthest, query = float((2 * gallery[:, -1].max()).sqrt()), float(squares.max().sqrt())
        slack = (query + farthest) ** 2 / 100 + 1e-30  # the products are rounded; all rows may be equal
        codes = self.search.scratch("codes", torch.int32, *keys.shape)
        return SortedCodes(keys, codes, -(query**2) / 2 - slack, query * farthest + farthest**2 / 2 + slack)

    @lazy
    def _doubles(self) -> tuple[Tensor, Tensor]:
        """Keys `(B, n)` float64 of rows centred on these queries, and norm^2 of each query."""
        points = self.search.gallery
        keys = torch.empty(len(self.block), self.stop - self.start, dtype=torch.float64)
        for start, stop in spans(self.stop - self.start, points.piece):
            gallery = points.rows(slice(self.start + start, self.start + stop)) - self.queries.centre
            halves = gallery.square().sum(dim=1) / 2
            keys[:, start:stop] = torch.addmm(halves, self.queries.doubles, gallery.T, alpha=-1)
        return keys, self.queries.doubles_squares

    @lazy
    def _distances(self) -> Tensor:
        """Distances `(B, n)` by differences; equal rows are compared once."""
        twins = self.search.query_twins[self.block], self.search.gallery_twins[self.start : self.stop]
        rows, row = torch.unique(twins[0], return_inverse=True)
        columns, column = torch.unique(twins[1], return_inverse=True)
        distances = _distances_between(self.search.queries.rows(rows), self.search.gallery, columns)
        return distances.index_select(0, row).index_select(1, column)


def _distances_between(rows: Tensor, points: Points, numbers: Tensor) -> Tensor:
    """Distances `(B, n)` of rows `(B, width)` to the points of these numbers `(n,)`, by differences of coordinates."""
    distances = torch.empty(len(rows), len(numbers), dtype=torch.float64)
    for start, stop in spans(len(numbers), points.piece):
        distances[:, start:stop] = torch.cdist(rows, points.rows(numbers[start:stop]), compute_mode=DIFFERENCES)
    return distances


def rounding_error(width: int, squares: Tensor, squared: Tensor) -> Tensor:
    """A bound of the rounding error of squared distances near `squared` from rows of norm^2 `squares`, in float64.

    An xy of d products is wrong by at most (d + 8) / 2 eps |x| |y|, D by (d + 8) / 2 eps (|x| + |y|)^2, and
    (|x| + |y|)^2 <= 8 (|x|^2 + D). Twice the width of a tie is added.
    """
    return (4 * (width + 8) * torch.finfo(torch.float64).eps + 4 * TIE) * (squares + squared)


def _columns(queries: int, width: int) -> int:
    """Gallery rows of a tile: more for many positives, as each is looked up in every tile."""
    return max(TILE[1], min(SPAN * width, 2 * ENTRIES // queries))


def _queries(gallery: int, width: int) -> int:
    """Queries of a block: fewer for many positives, so that a tile holds as much of the gallery as it should."""
    if width <= FEW:
        return TILE[0]
    return max(1, min(TILE[0], max(SHORT, 2 * ENTRIES // min(gallery, SPAN * width))))
