"""Retrieval measures from the neighbour lists of an index, for galleries too large for comparison, and re-ranking."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from trivet.distances import Array
from trivet.knn.index import IndexInfo, build_index
from trivet.knn.kinds import Kind, Reranking
from trivet.knn.postprocessing import RerankedIndex
from trivet.metrics.points import Metric, spans
from trivet.metrics.positive_ranks import PositiveRanks
from trivet.metrics.protocols import Labels, RetrievalTask, plain_labels, retrieval_task
from trivet.metrics.relation_levels import LevelClasses
from trivet.metrics.retrieval import Retrieval, WithoutPositive, to_retrieval
from trivet.metrics.tie_expectations import FULL_RANKING, chance_of, check_measures, gains_decide, measures_of
from trivet.mining.relations import Relation
from trivet.runtime.progress import steps

LONGEST = 2048  # neighbours listed for a query
BEYOND = 2**40  # the rank of a positive that was not listed
QUERIES = 4096  # whose lists are held at once


@dataclass(frozen=True, eq=False)
class IndexRetrieval:
    """Measures as `Retrieval` holds them, and the index they came from with its own recall."""

    levels: dict[str, Retrieval]
    index: IndexInfo
    listed: int  # neighbours of each query that were looked at


def retrieve_by_index(
    embeddings: Array,
    labels: Mapping[str, Labels],
    *,
    kind: Kind,
    rerank: Reranking | None = None,
    gallery: Array | None = None,
    gallery_labels: Mapping[str, Labels] | None = None,
    sample: Array | None = None,
    cameras: Array | None = None,
    gallery_cameras: Array | None = None,
    self_rows: Array | None = None,
    junk: Array | None = None,
    measures: Sequence[str] = ("recall@1", "recall@2", "recall@4", "recall@8", "r-precision", "map@r"),
    distance: Metric = "euclidean",
    without_positive: WithoutPositive = "miss",
    seed: int = 0,
) -> IndexRetrieval:
    """Retrieval measures that need only the nearest items, from an index that states its recall.

    An approximate index (see `build_index`) is tuned to find at least 95 % of the exact ten nearest of up to 1,000 of
    its rows; `index.recall` says what it finds, and a measure is off by about as much. Ties count in the order of row
    numbers.

    Args:
        labels, gallery, gallery_labels, sample, cameras, gallery_cameras, own, junk, distance, without_positive: as in
            `retrieve_levels`.
        kind: of the index, see `build_index`.
        rerank: how what it finds is looked at again, see `RerankedIndex`; ties then count as it orders them.
        measures: "recall@K", "precision@K", "found@K", "map@K", "ndcg@K", "r-precision", "map@r"; the others need every
            rank, and "ndcg@K" by a relation the relevance of every positive.
        seed: of the index.

    Raises:
        ValueError: as `retrieve_levels`; or if a measure needs every rank, or more than 2048 neighbours of a query.
    """
    names = check_measures(measures)
    graded = [name for name in names if gains_decide([name])]
    if graded and any(isinstance(plain_labels(values), Relation) for values in labels.values()):
        raise ValueError(
            f"{graded[0]} by a relation needs the relevance of every positive: got neighbour lists; leave it out, "
            "or use retrieve."
        )
    ranked = [name for name in names if name in FULL_RANKING]
    if ranked:
        raise ValueError(f"{ranked[0]} needs the rank of every positive: got neighbour lists; leave it out.")
    task = retrieval_task(
        embeddings, labels, gallery, gallery_labels, sample, cameras, gallery_cameras, self_rows, junk, distance
    )
    most = [int(k) for _, _, k in (name.partition("@") for name in names) if k.isdigit()]
    largest = max(level.largest for level in task.levels)
    if {"r-precision", "map@r"} & {*names}:
        most.append(largest)
    further = 1 + max(level.most_ignored for level in task.levels) if task.groups is None else largest
    listed = min(max(most) + further, len(task.gallery))
    if listed > LONGEST:
        raise ValueError(
            f"an index lists at most {LONGEST} neighbours: {', '.join(names)} need {listed}; use a "
            "smaller K, or leave out r-precision and map@r, which need as many neighbours as a class has items."
        )
    index = build_index(task.gallery.embeddings, distance=distance, kind=kind, seed=seed)
    searched = index if rerank is None else RerankedIndex(index, rerank)
    values = torch.zeros(2, len(labels), len(task.queries), len(names), dtype=torch.float64)
    positives = torch.zeros(len(labels), len(task.queries), dtype=torch.int64)
    for start, stop in steps(list(spans(len(task.queries), QUERIES)), "queries, in blocks"):
        block = torch.arange(start, stop)
        without = None if task.self_rows is None else task.self_rows[block].numpy()
        listed_rows = searched.search(task.queries.embeddings[block.numpy()], listed, leave_out=without).indices
        for number, level_classes in enumerate(task.levels):
            hits, count, left_out = _hits(task, level_classes, block, torch.from_numpy(listed_rows))
            ranks = _ranks(hits, count, len(task.gallery) - left_out)
            values[:, number, block] = torch.stack([measures_of(ranks, names), chance_of(ranks, names)])
            positives[number, block] = count
    levels = {
        level: to_retrieval(names, values[:, i], positives[i], task, i, without_positive)
        for i, level in enumerate(labels)
    }
    return IndexRetrieval(levels, index.info, listed)


def _hits(task: RetrievalTask, level: LevelClasses, block: Tensor, nearest: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mark the positives among the nearest `(B, k)`, those that may not be retrieved moved behind; and count `(B,)`.

    The counts are of the positives in the gallery, and of the items that labels leave out or that may not be retrieved.
    """
    self_rows = None if task.self_rows is None else task.self_rows[block]
    related = level.related(block, self_rows)
    allowed = task.allows(block[related.rows], related.columns)
    positives = torch.bincount(related.rows[allowed], minlength=len(block))
    left_out = related.sizes + torch.bincount(related.ignored_rows, minlength=len(block)) - positives
    items = len(task.gallery)
    wanted = torch.arange(len(block))[:, None] * items + nearest
    wanted[nearest < 0] = -1
    relevant, ignored = (
        torch.isin(wanted, rows * items + columns)
        for rows, columns in ((related.rows, related.columns), (related.ignored_rows, related.ignored_columns))
    )
    valid = (nearest >= 0) & ~ignored & ~(relevant & ~task.allows(block[:, None], nearest.clamp_min(0)))
    order = torch.argsort((~valid).byte(), dim=1, stable=True)
    return (relevant & valid).gather(1, order), positives, left_out


def _ranks(hits: Tensor, positives: Tensor, retrievable: Tensor) -> PositiveRanks:
    """The ranks of the positives that were listed, none tied; those that were not come after everything."""
    order = torch.argsort((~hits).byte(), dim=1, stable=True)[:, : max(1, int(hits.sum(dim=1).max()))]
    nearer = order.where(hits.gather(1, order), BEYOND)
    single = torch.ones_like(nearer)
    return PositiveRanks(
        sizes=positives,
        nearer=nearer,
        tied=single,
        positives_nearer=torch.arange(nearer.shape[1]).expand_as(nearer),
        positives_tied=single,
        retrievable=retrievable,
    )
