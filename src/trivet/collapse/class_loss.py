"""Classes that lost against another embedding of the same items: which, and by how much."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from trivet.collapse.retention import FALSE
from trivet.collapse.thresholds import THRESHOLDS
from trivet.metrics import Retrieval


@dataclass(frozen=True)
class ClassLoss:
    """A class whose items find each other less often than in the first reference, beyond doubt."""

    number: int  # its place among the sorted labels
    items: int  # how many were asked
    # recall, reference_recall: recall@1 of its items in both, in [0, 1].
    recall: float
    reference_recall: float


def lost_classes(now: Retrieval, other: Retrieval) -> Iterator[ClassLoss]:
    """The classes that lost beyond doubt.

    By Student's t of each class, two more queries that each side wins one of, and the false discovery rate.

    Source:
        Benjamini, Hochberg, "Controlling the false discovery rate", 1995.
    """
    from scipy import stats  # here: it takes half a second to load

    gains, numbers = now.values[:, 0] - other.values[:, 0], now.labels[now.classes]
    chances = np.ones(len(now.labels))
    for number in np.unique(numbers).tolist():
        of = gains[numbers == number]
        if -float(of.mean()) >= THRESHOLDS["lost"].value:
            more = np.concatenate([of, [1.0, -1.0]])
            chances[number] = stats.ttest_1samp(more, 0.0, alternative="less").pvalue
    for number in np.flatnonzero(stats.false_discovery_control(chances) <= FALSE).tolist():
        of = numbers == number
        shares = (float(retrieval.values[of, 0].mean()) for retrieval in (now, other))
        yield ClassLoss(number, int(of.sum()), *shares)
