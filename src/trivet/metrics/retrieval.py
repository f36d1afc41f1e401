"""Retrieval measures: per query, their means over queries and over classes, and their values by chance."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from trivet.distances import Array
from trivet.metrics.intervals import NONE, OVERS, Average, Difference, Interval, Over, Variance, check_options, clipped
from trivet.metrics.points import Metric
from trivet.metrics.positive_ranks import ExactSearch, PositiveRanks
from trivet.metrics.protocols import Labels, RetrievalTask, retrieval_task
from trivet.metrics.sampling_variance import sampling_variances
from trivet.metrics.tie_expectations import (
    MEASURES,
    chance_of,
    check_measures,
    first_decides,
    gains_decide,
    measures_of,
)
from trivet.mining.gather import sum_over_processes
from trivet.runtime.arguments import explain_arguments
from trivet.runtime.arrays import Booleans, Floats, Integers
from trivet.runtime.progress import report

WithoutPositive = Literal["miss", "drop"]


@dataclass(frozen=True, eq=False)
class Retrieval:
    """Retrieval measures at one label level; Q queries, m measures, C classes of queries.

    The classes of a relation are the groups of items that it connects, directly or through others, with the numbers of
    the groups for labels; all items are one class if one group has more than half of them, as with tags.
    """

    measures: tuple[str, ...]
    values: Floats  # (Q, m) of each query, in [0, 1]; NaN for a query that is dropped
    classes: Integers  # (Q,) class of each query, 0 .. C - 1
    labels: npt.NDArray[Any]  # (C,) the label of each class
    positives: Integers  # (Q,) items that are right for a query and that it may retrieve
    gallery: int  # items that are retrieved from
    chance: dict[str, float]  # mean over the queries when all distances are equal
    # What intervals are found from; None of results that were read from a file.
    task: RetrievalTask | None = field(default=None, repr=False)
    level: int = 0  # number of the label level in the task

    @property
    def counted(self) -> Booleans:
        """`(Q,)` whether a query is not dropped."""
        return ~np.isnan(self.values[:, 0])

    @property
    def without_positive(self) -> int:
        """Queries with nothing to be found."""
        return int((self.positives == 0).sum())

    def mean(self, average: Average = "micro") -> dict[str, float]:
        """Each measure, averaged over the queries (micro), or over the means of the classes (macro).

        Raises:
            ValueError: if every query is dropped.
        """
        known = self.counted
        if not known.any():
            raise ValueError(
                "retrieval needs a query that has a positive when those without are dropped: none has one; give more "
                "items of a class, or count them as misses."
            )
        if average == "micro":
            means = self.values[known].mean(axis=0)
        else:
            means = np.array([list(row.values()) for row in self.per_class().values()]).mean(axis=0)
        return dict(zip(self.measures, means.tolist(), strict=True))

    def per_class(self) -> dict[Any, dict[str, float]]:
        """Label -> the means over the queries of the class; classes of which every query is dropped are left out."""
        known = self.counted
        counts = np.bincount(self.classes[known], minlength=len(self.labels))
        sums = [
            np.bincount(self.classes[known], weights=column[known], minlength=len(self.labels))
            for column in self.values.T
        ]
        means = np.stack(sums, axis=1)[counts > 0] / counts[counts > 0, None]
        labels = self.labels[counts > 0].tolist()
        return {
            label: dict(zip(self.measures, row, strict=True)) for label, row in zip(labels, means.tolist(), strict=True)
        }

    def intervals(self, average: Average = "micro", *, level: float = 0.95) -> dict[str, dict[str, Interval]]:
        """Measure -> interval over "queries" (other items of these classes) and over "classes" (other classes).

        Items vary as queries and in the gallery; see `sampling_variances`. A measure that is 1 for every embedding has
        an interval of no width. NaN over queries where no class has two of them, as with pairs, over classes with fewer
        than two, as with tags, and where all queries are dropped.

        Args:
            average: of the mean that the interval is for.
            level: the coverage, in (0, 1).
        """
        check_options(average, level)
        if not self.counted.any():
            return {name: dict.fromkeys(OVERS, NONE) for name in self.measures}
        means = self.mean(average)
        ends = {over: self._variances[over, average].intervals([*means.values()], level=level) for over in OVERS}
        return {
            name: {over: Interval(1, 1) if mean == self.chance[name] == 1 else ends[over][number] for over in OVERS}
            for number, (name, mean) in enumerate(means.items())
        }

    @cached_property
    def _variances(self) -> dict[tuple[Over, Average], Variance]:
        return sampling_variances([self])

    def only(self, measures: Sequence[str]) -> Retrieval:
        """The same of some of its measures."""
        columns = [self.measures.index(name) for name in measures]
        return replace(self, measures=tuple(measures), values=self.values[:, columns])

    def by(self, measures: Sequence[str]) -> Retrieval:
        """Other measures of the same queries, ranked anew.

        Raises:
            ValueError: if it was read from a file, or a name is not that of a measure.
        """
        if self.task is None:
            raise ValueError("a retrieval that was read from a file cannot be ranked anew: embed the items again.")
        names, task = check_measures(measures), replace(self.task, levels=[self.task.levels[self.level]])
        (ranked,) = _rank(task, names, "miss" if self.counted.all() else "drop")
        return replace(ranked, task=self.task, level=self.level)

    def differences(self, other: Retrieval, *, level: float = 0.95) -> dict[str, dict[Over, Difference]]:
        """Measure -> over -> mean of this less that of another embedding, of the same queries in the same order.

        Items vary alike for both, so the interval is narrower than those of the two means suggest. A query that either
        drops is left out of both.
        """
        names = [name for name in self.measures if name in other.measures]
        first, second = self.only(names), other.only(names)
        both = first.counted & second.counted
        values = first.values[both] - second.values[both]
        means = values.mean(axis=0).tolist() if both.any() else [math.nan] * len(names)
        differences: dict[str, dict[Over, Difference]] = {name: {} for name in names}
        variances = sampling_variances([first, second], (1, -1), ("micro",))
        for over in OVERS:
            ends = variances[over, "micro"].intervals(means, level=level, bounded=False)
            for name, mean, interval in zip(names, means, ends, strict=True):
                differences[name][over] = Difference(mean, clipped(interval, -1, 1))
        return differences


@explain_arguments
def retrieve(
    embeddings: Array,
    labels: Labels,
    *,
    gallery: Array | None = None,
    gallery_labels: Labels | None = None,
    sample: Array | None = None,
    cameras: Array | None = None,
    gallery_cameras: Array | None = None,
    self_rows: Array | None = None,
    junk: Array | None = None,
    measures: Sequence[str] = MEASURES,
    distance: Metric = "euclidean",
    without_positive: WithoutPositive = "miss",
    distributed: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Retrieval:
    """Exact retrieval measures of every query: among the other items of one set, or from a gallery.

    Items as far as a positive count as if put in random order, and each measure is its exact expectation, so a constant
    embedding scores chance. What counts as tied: see `PositiveRanks`. Ranks are found by counting, block by block, in
    memory O(N); float32 products decide where their rounding cannot, and float64 differences elsewhere.

    Args:
        embeddings: `(Q, d)` floating point, the queries; numpy, also memory-mapped, or torch.
        labels: `(Q,)` of any integer dtype: items of the query's class are right. Or a relation of Q items: its
            positives are right, and what it ignores is left out of the ranking of that query.
        gallery: `(M, d)` to retrieve from; without it the queries are, each but itself.
        gallery_labels: `(M,)`, or a relation of M items under the same rule.
        sample: without a gallery, the row numbers `(S,)` that are asked; the others are only retrieved.
        cameras, gallery_cameras: integers `(Q,)` and `(M,)`: an item of the query's class with the query's camera is
            neither right nor wrong (Market-1501). Without a gallery, `cameras` is for both.
        self_rows: `(Q,)` the gallery row that is the query itself, -1 where there is none; it is left out, whatever
            class the gallery gives it: then it counts neither as a positive nor as a wrong item.
        junk: `(M,)` bool, the gallery items that are neither right nor wrong; they are taken out.
        measures: "recall@K" (one is found), "precision@K", "found@K" (the share found), "map@K", "ndcg@K",
            "r-precision", "map@r", "map", "mrr", "rbp" (rank-biased precision, persistence 1/2), "ndcg". In ndcg a
            positive gains its relevance, without a power of 2, and 1 where relevance is binary; other items gain
            nothing.
        distance: "euclidean", or "cosine" (1 - cosine similarity; a row of zeros has similarity 0 to other rows).
        without_positive: a query with nothing to be found is a miss, or is dropped.
        distributed: share the queries among the processes of torch.distributed; each must call with the same input,
            and each gets the result that one process would get, bit for bit.
        progress: called with the queries done and their number.

    Source:
        Musgrave et al., ECCV 2020 (MAP@R, R-precision); Zheng et al., "Scalable Person Re-identification", ICCV 2015
        (cameras and junk); Järvelin, Kekäläinen, "Cumulated gain-based evaluation of IR techniques", TOIS 2002 (gains
        of graded relevance).

    Example:
        >>> result = retrieve(np.array([[0.0], [1.0], [3.0], [4.5]]), np.array([0, 0, 1, 0]), measures=("recall@1",))
        >>> result.mean()
        {'recall@1': 0.5}
    """
    by_level = retrieve_levels(
        embeddings,
        {"labels": labels},
        gallery=gallery,
        gallery_labels=None if gallery_labels is None else {"labels": gallery_labels},
        sample=sample,
        cameras=cameras,
        gallery_cameras=gallery_cameras,
        self_rows=self_rows,
        junk=junk,
        measures=measures,
        distance=distance,
        without_positive=without_positive,
        distributed=distributed,
        progress=progress,
    )
    return by_level["labels"]


def retrieve_levels(
    embeddings: Array,
    labels: Mapping[str, Labels],
    *,
    gallery: Array | None = None,
    gallery_labels: Mapping[str, Labels] | None = None,
    sample: Array | None = None,
    cameras: Array | None = None,
    gallery_cameras: Array | None = None,
    self_rows: Array | None = None,
    junk: Array | None = None,
    measures: Sequence[str] = MEASURES,
    distance: Metric = "euclidean",
    without_positive: WithoutPositive = "miss",
    distributed: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Retrieval]:
    """`retrieve` at every label level; the distances are computed once for all.

    Args:
        labels: level -> `(Q,)` integers, or a relation of Q items; at least one level.
        gallery_labels: the same levels -> `(M,)`, or a relation of M items.
    """
    names = check_measures(measures)
    if without_positive not in ("miss", "drop"):
        raise ValueError(f"without_positive must be 'miss' or 'drop': got {without_positive!r}.")
    task = retrieval_task(
        embeddings, labels, gallery, gallery_labels, sample, cameras, gallery_cameras, self_rows, junk, distance
    )
    ranked = _rank(task, names, without_positive, distributed=distributed, progress=progress)
    return dict(zip(labels, ranked, strict=True))


def _rank(
    task: RetrievalTask,
    names: tuple[str, ...],
    without_positive: WithoutPositive,
    *,
    distributed: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> list[Retrieval]:
    """The measures at every level of a task."""
    search, queries = ExactSearch(task, first=first_decides(names), graded=gains_decide(names)), len(task.queries)
    values = torch.zeros(2, len(task.levels), queries, len(names), dtype=torch.float64)  # found, and by chance
    positives = torch.zeros(len(task.levels), queries, dtype=torch.int64)
    first, step = _share() if distributed else (0, 1)
    blocks, done = search.blocks()[first::step], 0

    def measured(standings: list[PositiveRanks]) -> list[tuple[Tensor, Tensor, Tensor]]:
        return [(measures_of(each, names), chance_of(each, names), each.sizes) for each in standings]

    def take(block: Tensor, results: list[tuple[Tensor, Tensor, Tensor]]) -> None:
        nonlocal done
        for level, result in enumerate(results):
            values[0, level, block], values[1, level, block], positives[level, block] = result
        done += len(block)
        report("queries", min(done * step, queries), queries)
        if progress:
            progress(min(done * step, queries), queries)

    report("queries", 0, queries)
    search.stand_all(blocks, measured, take)
    if distributed and step > 1:
        values, positives = map(sum_over_processes, (values, positives))  # each value is one number and zeros
    return [to_retrieval(names, values[:, i], positives[i], task, i, without_positive) for i in range(len(task.levels))]


def recall_at_k(
    embeddings: Array,
    labels: Labels,
    ks: Sequence[int] = (1, 2, 4, 8),
    *,
    distance: Metric = "euclidean",
    without_positive: WithoutPositive = "miss",
) -> dict[int, float]:
    """Share of items with at least one positive, such as an item of their class, among their K nearest other items.

    Args:
        embeddings: `(N, d)` floating point, N >= 2.
        labels: `(N,)` of any integer dtype, or a relation.
        ks: each at least 1; a K beyond N - 1 takes all others.
        distance, without_positive: as in `retrieve`, which also says how ties count.

    Returns:
        {K: share in [0, 1]}, in the order of `ks`.

    Raises:
        ValueError: as `retrieve`; or if a K is below 1, or nothing is left to average over.

    Source:
        Levi et al., ICCV 2021, section 5, after Jegou et al., "Product quantization for nearest neighbor search".

    Example:
        >>> recall_at_k(np.array([[0.0], [1.0], [3.0], [4.5]]), np.array([0, 0, 1, 0]), ks=(1, 2))
        {1: 0.5, 2: 0.75}
    """
    if not ks or any(k < 1 for k in ks):
        raise ValueError(f"ks must name at least one K, each at least 1: got {tuple(ks)}.")
    names = [f"recall@{k}" for k in ks]
    means = retrieve(embeddings, labels, measures=names, distance=distance, without_positive=without_positive).mean()
    return {k: means[name] for k, name in zip(ks, names, strict=True)}


def to_retrieval(
    names: tuple[str, ...],
    values: Tensor,
    positives: Tensor,
    task: RetrievalTask,
    level: int,
    without_positive: WithoutPositive,
) -> Retrieval:
    """Collect the values `(2, Q, m)` of each query, found and by chance, at the level of that number."""
    (values, chance), without = values, positives == 0
    values[without] = 0.0 if without_positive == "miss" else torch.nan
    total = len(without) if without_positive == "miss" else int((~without).sum())
    means = chance[~without].sum(dim=0) / max(1, total)
    classes, labels = task.levels[level].labels
    return Retrieval(
        measures=names,
        values=values.numpy(),
        classes=classes,
        labels=labels,
        positives=positives.numpy(),
        gallery=len(task.gallery),
        chance=dict(zip(names, means.tolist(), strict=True)),
        task=task,
        level=level,
    )


def _share() -> tuple[int, int]:
    if not torch.distributed.is_initialized():
        raise ValueError(
            "distributed evaluation needs an initialised process group: call torch.distributed.init_process_group "
            "first, or start with torchrun --no-python trivet evaluate."
        )
    return torch.distributed.get_rank(), torch.distributed.get_world_size()
