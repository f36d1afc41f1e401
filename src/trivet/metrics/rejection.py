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
from trivet.metrics.intervals import (
    NONE,
    OVERS,
    Average,
    Interval,
    Over,
    Variance,
    check_options,
    share_interval,
    variance_of_mean,
)
from trivet.metrics.nearest import along, nearest_allowed
from trivet.metrics.points import Metric, as_numpy, as_points
from trivet.metrics.protocols import row_numbers
from trivet.metrics.roc import Roc, false_at
from trivet.runtime.arrays import Floats, Integers

ACCEPTED = 0.95  # share of the queries in scope at which those out of scope are counted


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

    def intervals(self, average: Average = "micro", *, level: float = 0.95) -> dict[str, dict[str, Interval]]:
        """Measure -> intervals over "queries" and over "classes", of a gallery that stays.

        Over "classes" those in scope vary as whole classes, and those out of scope, which are of none, each on its own.
        Without labels that interval is NaN, as is one with fewer than two units of either kind; it has no width where
        all distances tie. With "macro" there is the mean of the AUROC of the classes alone.

        Source:
            DeLong, DeLong, Clarke-Pearson, "Comparing the areas under two or more correlated receiver operating
            characteristic curves", Biometrics 1988 (the variance of AUROC).
        """
        check_options(average, level)
        if average == "macro" and self.macro is None:
            return {"auroc": dict.fromkeys(OVERS, NONE)}
        measures = {"auroc": self.auroc if average == "micro" else self.macro}
        if average == "micro":
            measures["fpr_at_95_tpr"] = self.fpr_at_95_tpr
        units = min(self.in_scope, self.out_of_scope)
        if self.scores.groups == 1 and units > 1:
            return {name: dict.fromkeys(OVERS, Interval(value or 0, value or 0)) for name, value in measures.items()}
        variances = {over: self.scores.variances(over, average) for over in OVERS}
        return {
            name: {
                over: share_interval(
                    value or 0.0, float(of.values[number]), degrees=of.degrees, units=units, level=level
                )
                for over, of in variances.items()
            }
            for number, (name, value) in enumerate(measures.items())
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
        means = np.add.reduceat(self._farther(), np.cumsum(self.sizes) - self.sizes) / self.sizes
        return dict(zip(self.labels.tolist(), means.tolist(), strict=True))

    def variances(self, over: Over, average: Average) -> Variance:
        """Variance of AUROC and of FPR at 95 % TPR, that over queries in scope plus that over those out of scope.

        The first vary by the share of queries out of scope that is farther than each; FPR by whether each is accepted,
        times the slope of the curve there. The others likewise, by the (weighted) share that is nearer, and by whether
        each is accepted. Degrees of freedom: Welch's.
        """
        sizes = np.array([len(self.inside)]) if self.sizes is None else self.sizes
        classes = np.repeat(np.arange(len(sizes)), sizes)
        weights = np.ones(len(classes)) if average == "micro" else 1 / sizes[classes]
        true, false = self._up_to(self.inside, weights), self._up_to(self.outside, None)
        limit = int(np.searchsorted(true / true[-1], ACCEPTED, side="left")) - 1  # the group at which so many are
        spread = math.sqrt(ACCEPTED * (1 - ACCEPTED) / len(self.inside))
        ends = max(0.5, ACCEPTED - spread), min(1.0, ACCEPTED + spread)
        low, high = (false_at(true, false, end) for end in ends)
        slope = (high - low) / (ends[1] - ends[0])
        nearer = (true[1:] + true[:-1])[self.outside] / (2 * true[-1])
        known = variance_of_mean(
            np.stack([self._farther(), slope * (self.inside <= limit)], axis=1), classes, over=over, average=average
        )
        unknown = variance_of_mean(
            np.stack([nearer, self.outside <= limit], axis=1),
            np.zeros(len(self.outside), np.int64),
            over="queries",
            average="micro",
        )
        values = known.values + unknown.values
        both = [(of.values[0], of.degrees) for of in (known, unknown)]
        terms = sum(value**2 / degrees for value, degrees in both)
        degrees = float(values[0] ** 2 / terms) if terms > 0 else known.degrees
        return Variance(values, degrees, known.units)

    def _farther(self) -> Floats:
        """Share of the queries out of scope that is farther than each in scope, a tie counting half."""
        accepted = self._up_to(self.outside, None)
        return np.asarray(1 - (accepted[:-1] + accepted[1:])[self.inside] / (2 * len(self.outside)))

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
