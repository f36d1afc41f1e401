"""Out-of-scope rejection: does the distance to the nearest gallery item detect queries of unknown classes?"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from trivet.distances import Array, as_classes
from trivet.metrics.intervals import OVERS, Average, Interval, Over, check_options, middle
from trivet.metrics.nearest import along, nearest_allowed
from trivet.metrics.points import Metric, as_numpy, as_points
from trivet.metrics.protocols import row_numbers
from trivet.metrics.roc import Roc, false_at
from trivet.runtime.arrays import Floats, Integers
from trivet.runtime.progress import steps

RESAMPLES = 1000  # place the ends of a 95 % interval within about a tenth of its half width


@dataclass(frozen=True)
class Rejection:
    """Quality of the distance to the nearest gallery item as a detector of queries out of scope.

    Queries whose distances differ by at most 1e-13 of themselves are tied, and tied queries count as if put in random
    order: a constant embedding has `auroc` 0.5 and `fpr_at_95_tpr` 0.95, which is chance.
    """

    auroc: float  # chance that a query out of scope is farther than one in scope, in [0, 1]
    fpr_at_95_tpr: float  # share of queries out of scope accepted where 95 % of those in scope are; small is good
    in_scope: int  # queries
    out_of_scope: int
    scores: RejectionScores = field(compare=False, repr=False)  # what follows is found from

    @property
    def macro(self) -> float | None:
        """Mean over the classes in scope of the AUROC of their queries; None where the labels were not given."""
        classes = self.per_class()
        return math.fsum(classes.values()) / len(classes) if classes else None

    def per_class(self) -> dict[Any, float]:
        """Label -> AUROC of the queries in scope of that class against all out of scope; empty without labels."""
        return self.scores.per_class()

    def intervals(
        self, average: Average = "micro", *, level: float = 0.95, seed: int = 0
    ) -> dict[str, dict[str, Interval]]:
        """Measure -> percentile bootstrap intervals over "queries" and over "classes", of a gallery that stays.

        Queries in scope and queries out of scope are drawn each within their own kind. Over "classes" those in scope
        are drawn as whole classes, and those out of scope, which are of none, one by one; without labels that interval
        is NaN, as is one with fewer than two units in scope. With "macro" there is the mean of the AUROC of the classes
        alone.
        """
        check_options(average, level)
        names = ("auroc", "fpr_at_95_tpr") if average == "micro" else ("auroc",)
        drawn = {over: self.scores.resampled(over, average, seed) for over in OVERS}
        return {
            name: {over: middle(values[:, column], level=level) for over, values in drawn.items()}
            for column, name in enumerate(names)
        }


@dataclass(frozen=True, eq=False)
class RejectionScores:
    """Ranks of the distances of queries to their nearest gallery item, tied ones equal."""

    groups: int  # distances that do not tie
    inside: Integers  # (I,) ranks in scope, class by class
    outside: Integers  # (O,)
    sizes: Integers | None  # (C,) queries of each class in scope; None where the labels are not known
    labels: npt.NDArray[Any] | None  # (C,)

    def per_class(self) -> dict[Any, float]:
        if self.sizes is None or self.labels is None:
            return {}
        accepted = self._up_to(self.outside, None)
        farther = 1 - (accepted[:-1] + accepted[1:])[self.inside] / (2 * len(self.outside))
        means = np.add.reduceat(farther, np.cumsum(self.sizes) - self.sizes) / self.sizes
        return dict(zip(self.labels.tolist(), means.tolist(), strict=True))

    def resampled(self, over: Over, average: Average, seed: int) -> Floats:
        """AUROC and FPR at 95 % TPR `(RESAMPLES, 2)`; NaN with fewer than two units, or without labels for them."""
        values = np.full((RESAMPLES, 2), math.nan)
        if self.sizes is None and (over == "classes" or average == "macro"):
            return values
        sizes = np.array([len(self.inside)]) if self.sizes is None else self.sizes
        if (len(sizes) if over == "classes" else len(self.inside)) < 2:
            return values
        weights = np.ones(len(self.inside)) if average == "micro" else 1 / np.repeat(sizes, sizes)
        units = np.arange(len(sizes) if over == "classes" else len(self.inside))
        # With "macro" as many queries of each class are drawn as it has.
        first, spans = np.zeros(len(units), np.int64), np.full(len(units), len(units))
        if over == "queries" and average == "macro":
            first, spans = np.repeat(np.cumsum(sizes) - sizes, sizes), np.repeat(sizes, sizes)
        generator, others = np.random.default_rng(seed), len(self.outside)
        for number in steps(range(RESAMPLES), f"bootstrap of {len(units)} {over}"):
            known = np.bincount(first + generator.integers(spans), minlength=len(units))
            unknown = np.bincount(generator.integers(others, size=others), minlength=others).astype(np.float64)
            true = self._up_to(self.inside, weights * (known if over == "queries" else np.repeat(known, sizes)))
            false = self._up_to(self.outside, unknown)
            area = np.diff(false) @ (true[1:] + true[:-1]) / (2 * true[-1] * false[-1])
            values[number] = area, false_at(true, false, 0.95)
        return values

    def _up_to(self, ranks: Integers, weights: Floats | None) -> Floats:
        """`(T + 1,)` the weight of the queries accepted, from none to all."""
        counts = np.bincount(ranks, weights, self.groups)
        return np.concatenate([[0.0], np.cumsum(counts)])


def rejection(
    queries: Array,
    out_of_scope: Array,
    gallery: Array,
    *,
    labels: Array | None = None,
    self_rows: Array | None = None,
    distance: Metric = "euclidean",
) -> Rejection:
    """Rejection of queries by their distance to the nearest gallery item.

    The gallery holds items of the known classes, for instance the training items. A query that is in it too would be
    nearest to itself: name its row in `self_rows`. The distances are exact, see `nearest_allowed`. Memory O(Q + M).

    Args:
        queries: `(Q, d)` floating point.
        out_of_scope: `(Q,)` bool, whether a query belongs to none of the classes of the gallery.
        gallery: `(M, d)` floating point, M >= 1.
        labels: `(Q,)` of any integer dtype, the class of each query, for the values and intervals of classes; those of
            queries out of scope are not read.
        self_rows: `(Q,)` integer, the row of the gallery that is the query itself, which is passed over; -1 where it is
            not there.
        distance: "euclidean", or "cosine" (1 - cosine similarity; a row of zeros has similarity 0 to other rows).

    Raises:
        ValueError: if shapes or dtypes disagree, a row is not finite, the gallery is empty or holds nothing but a query
            itself, or the queries are all in scope or all out of it.

    Source:
        Larson et al., "An Evaluation Dataset for Intent Classification and Out-of-Scope Prediction", EMNLP 2019 (the
        task); Hendrycks, Gimpel, "A Baseline for Detecting Misclassified and Out-of-Distribution Examples in Neural
        Networks", ICLR 2017 (AUROC); Liang, Li, Srikant, "Enhancing the Reliability of Out-of-distribution Image
        Detection in Neural Networks", ICLR 2018 (FPR at 95 % TPR).

    Example:
        >>> rejection(np.array([[0.1], [0.9], [7.0]]), np.array([False, False, True]), np.array([[0.0], [1.0]]))
        Rejection(auroc=1.0, fpr_at_95_tpr=0.0, in_scope=2, out_of_scope=1)
    """
    query_points, known = as_points(queries, distance=distance), as_points(gallery, distance=distance)
    if query_points.shape[1] != known.shape[1]:
        raise ValueError(
            f"queries and gallery must have the same dimension: got shapes {tuple(queries.shape)} and "
            f"{tuple(gallery.shape)}; embed both with the same model."
        )
    if not len(known):
        raise ValueError("the gallery must hold at least one item: got none; give the items of the known classes.")
    outside = as_numpy(out_of_scope)
    if outside.shape != (len(query_points),) or outside.dtype != np.bool_:
        raise ValueError(
            f"out_of_scope must hold True or False for each of the {len(query_points)} queries: got {outside.dtype} of "
            f"shape {outside.shape}; compare the labels of the queries with the label of out-of-scope queries."
        )
    if outside.all() or not outside.any():
        raise ValueError(
            f"queries must include both in-scope and out-of-scope ones: got {int((~outside).sum())} and "
            f"{int(outside.sum())}; add queries of the missing kind."
        )
    inside = np.flatnonzero(~outside)
    sizes = names = None
    if labels is not None:
        as_classes(labels, count=len(query_points))
        names, classes, sizes = np.unique(as_numpy(labels)[inside], return_inverse=True, return_counts=True)
        inside = inside[np.argsort(classes.ravel(), kind="stable")]
    count = len(query_points)
    self_row = None if self_rows is None else row_numbers(self_rows, len(known), absent=True, size=count)
    order, rows = along(query_points), torch.arange(len(known))

    def allowed(left: Tensor) -> tuple[Tensor]:
        mask = torch.ones(len(left), len(known), dtype=torch.bool)
        return (mask if self_row is None else self_row[left, None] != rows,)

    nearest = np.empty(count)
    nearest[order] = nearest_allowed(torch.cat([query_points, known]), order, count + rows, allowed)[0][0].numpy()
    if np.isinf(nearest).any():
        raise ValueError(
            "the gallery must hold an item beside itself for each query: query "
            f"{int(np.flatnonzero(np.isinf(nearest))[0])} is all of it; add items of the known classes."
        )
    curve = Roc.of(nearest, ~outside)
    return Rejection(
        auroc=curve.area,
        fpr_at_95_tpr=curve.false_at(0.95),
        in_scope=int(curve.true[-1]),
        out_of_scope=int(curve.false[-1]),
        scores=RejectionScores(len(curve.least), curve.group[inside], curve.group[outside], sizes, names),
    )
