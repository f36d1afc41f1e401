"""Recall@1 by chance under a relation: an exact test by permutations of the items."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from trivet.collapse.batch_measures import pair_codes
from trivet.collapse.hubs import nearest_others
from trivet.collapse.significance import PERMUTATIONS, PERMUTED_LEVEL
from trivet.metrics.intervals import middle
from trivet.mining.relations import Classes, Relation, TwoSided
from trivet.runtime.arrays import Integers
from trivet.runtime.progress import steps

PAIRED = 64  # single pairs that a relation is asked about at once, as a table
MOST = 10_000  # items that are permuted: a byte for each two of them
RANKED = 2**24  # nearest items that are listed
UNDECIDED = 1e-3  # share of the queries whose nearest are all ignored, about
WRONG, RIGHT, IGNORED = 0, 1, -1  # see `pair_codes`

Codes = npt.NDArray[np.int8]


def relation_recall_by_chance(
    points: Tensor, relation: Relation, queries: Integers, *, seed: int = 0
) -> tuple[float, float]:
    """Between which values recall@1 lies in 99 % of the permutations of the items under their rule.

    As `recall_by_chance`, an exact test for any neighbours. What is ignored is passed over, as in retrieval. The items
    of two sides are permuted side by side, as the sides may lie apart.

    Args:
        points: `(N, d)`; of equal rows the first are nearest, so they come in random order. Of more than 10,000 so many
            are taken, with the queries.
        relation: of these N items.
        queries: `(Q,)` the rows that are asked for their nearest, Q <= 10,000.
        seed: of the 2,000 permutations.
    """
    if len(points) > MOST:
        others = np.random.default_rng(seed).permutation(np.setdiff1d(np.arange(len(points)), queries))
        rows = np.sort(np.concatenate([queries, others[: MOST - len(queries)]]))
        points, relation, queries = points[torch.from_numpy(rows)], relation[rows], np.searchsorted(rows, queries)
    codes, sides = pair_codes(relation).numpy(), sides_of(relation)
    if len(sides) == 1:
        ranked = [_ranked(points, codes, queries, sides[0])]
    else:
        queries = np.concatenate([np.intersect1d(queries, side) for side in sides])
        ranked = [
            _ranked(points, codes, np.intersect1d(queries, side), other)
            for side, other in zip(sides, sides[::-1], strict=True)
        ]
    depth = max(near.shape[1] for near in ranked)
    # A side with fewer candidates has their last one again, which is ignored where it is looked at.
    nearest = np.concatenate([np.pad(near, ((0, 0), (0, depth - near.shape[1])), mode="edge") for near in ranked])
    return recall_by_permutations(nearest, queries, codes, sides, seed=seed)


def recall_by_permutations(
    nearest: Integers,
    queries: Integers,
    codes: Codes,
    sides: Sequence[Integers],
    *,
    answerable: bool = False,
    seed: int = 0,
) -> tuple[float, float]:
    """Between which values recall@1 lies in 99 % of the permutations of the items, where their nearest are known.

    Args:
        nearest: `(Q, k)` the rows of the nearest of each query, the nearest first; the first that is not ignored
            decides.
        queries: `(Q,)` their rows.
        codes: `(N, N)` of the items, see `pair_codes`.
        sides: the rows that are permuted among each other.
        answerable: whether a query without a positive, or with ignored ones alone, is left out; else it is a miss.
        seed: of the 2,000 permutations.
    """
    recalls, generator = np.empty(PERMUTATIONS), np.random.default_rng(seed)
    has_positive = (codes == RIGHT).any(axis=1)
    for number in steps(range(PERMUTATIONS), "permutations of the items"):
        items = np.arange(len(codes))
        for side in sides:
            items[side] = generator.permutation(side)
        undecided, right = np.arange(len(queries)), 0
        if answerable:
            undecided = undecided[has_positive[items[queries]]]
        total = len(undecided)
        for column in nearest.T:
            met = codes[items[queries[undecided]], items[column[undecided]]]
            right += int((met == RIGHT).sum())
            undecided = undecided[met == IGNORED]
            if not len(undecided):
                break
        recalls[number] = right / max(1, total - len(undecided) if answerable else total)
    ends = middle(recalls, level=PERMUTED_LEVEL)
    return ends.low, ends.high


def are_positive(relation: Relation, anchors: Tensor, others: Tensor) -> Tensor:
    """Return whether each of the items `others (B,)` belongs to the one of `anchors (B,)`, `(B,)` bool."""
    if isinstance(relation, Classes):
        return anchors == others
    blocks = zip(torch.split(anchors, PAIRED), torch.split(others, PAIRED), strict=True)
    return torch.cat([relation.positive(*block).diagonal() for block in blocks])


def _ranked(points: Tensor, codes: Codes, queries: Integers, candidates: Integers) -> Integers:
    """The nearest candidates `(Q, k)` of each query, so many that hardly a query has nothing but ignored ones there."""
    if not len(queries):
        return np.empty((0, 1), np.int64)
    ignored = float((codes[np.ix_(queries, candidates)] == IGNORED).mean())
    depth = len(candidates) if ignored == 1 else 1 if not ignored else math.ceil(math.log(UNDECIDED, ignored))
    most = len(candidates) - int(np.isin(queries, candidates).any())
    return nearest_others(points, queries, max(1, min(depth, most, RANKED // len(queries))), among=candidates)


def sides_of(relation: Relation) -> list[Integers]:
    """The rows of each side, or all."""
    first = relation.first_of_right if isinstance(relation, TwoSided) else 0
    left = relation.items.numpy() < first
    return [rows for rows in (np.flatnonzero(left), np.flatnonzero(~left)) if len(rows)]
