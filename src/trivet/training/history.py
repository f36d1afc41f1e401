"""The training history: triplets and distances of one fixed sample of items, measured at several steps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from trivet.collapse import class_spread, effective_rank
from trivet.collapse.dynamics import SimulatedLoss, vector_field
from trivet.datasets import Dataset
from trivet.losses import NCATripletLoss, SecondOrderTripletLoss, TripletLoss
from trivet.losses.engine import EmbeddingLoss
from trivet.metrics import nearest_pairs
from trivet.metrics.points import Metric, as_points
from trivet.metrics.positive_ranks import DIFFERENCES, TIE
from trivet.models import Embedder
from trivet.reports.history_record import HistoryRecord, Moment, MotionRecord
from trivet.runtime.arrays import Booleans, Floats, Integers
from trivet.runtime.record import Number
from trivet.training.class_sample import level_sample
from trivet.training.embed_dataset import embed

ITEMS = 256  # of the sample: few, so that looking costs little beside training
LEAST = 8  # items of each class in it, where a class has so many
SERIES = (1, 2, 5)  # times a power of ten: the steps that are looked at, beside the first and the last
BINS = 40
LEVELS = np.linspace(0, 1, 201)  # of the quantiles that are kept of distances, from which the bins are filled at last
TOP = 0.995  # quantile of the distances at which the last bin ends; what is longer counts there
GAMMA, ENTANGLEMENT, ARROWS = 0.5, 0.4, 20  # of the predicted motion


def moments(steps: int) -> list[int]:
    """The steps that are looked at: 0, 1, 2, 5, 10, 20, 50, ... below `steps`, and `steps`."""
    powers = [10**power for power in range(len(str(steps)))]
    return sorted({0, steps, *(step for power in powers for factor in SERIES if (step := factor * power) < steps)})


class History:
    """Measures of a sample of the training items, in evaluation mode and without augmentation.

    The sample depends on the seed and the items alone, and is the same at every moment.

    Attributes:
        moments: what was seen so far, of distances their quantiles at `LEVELS`; a checkpoint keeps it. None of items
            with tags or of pairs, which have no classes.
    """

    def __init__(
        self, train: Dataset, level: str, *, steps: int, distance: Metric, motion: SimulatedLoss | None, seed: int
    ) -> None:
        self._level, self._distance, self._motion = level, distance, motion
        self._items = train.subset(level_sample(train, level, ITEMS, least=LEAST, seed=seed))
        self._steps = frozenset(() if train.has_tags(level) else moments(steps))
        self.moments: list[Moment] = []

    def load(self, moments: Sequence[Moment]) -> None:
        """Go on from the moments of a checkpoint; a last step that is none now, since steps were added, is left out."""
        self.moments = [moment for moment in moments if moment.step in self._steps]

    def measure(self, step: int, model: Embedder) -> None:
        """See the sample, if this is a step to do so; embeddings that are not finite are not looked at."""
        if step in self._steps:
            self._see(step, model)

    def close(self, step: int, model: Embedder) -> None:
        """See the sample after the last step, also where training ended before the one of the settings."""
        if self._steps and all(moment.step != step for moment in self.moments):
            self._see(step, model)

    def _see(self, step: int, model: Embedder) -> None:
        embeddings = embed(model, self._items.inputs)
        if np.isfinite(embeddings).all():
            labels = self._items.labels[self._level]
            self.moments.append(_measure(step, embeddings, labels, self._distance))

    def record(self) -> HistoryRecord | None:
        """The section of the run record; None before anything was seen.

        In `s_ap` and `s_an` similarities of each item to its nearest positive and negative; in `within` and `between`
        shares of the distances inside and between classes, in units of the mean distance at the first moment, in the
        bins between `edges`.
        """
        if not self.moments:
            return None
        unit = self.moments[0].mean_distance or 1.0
        sides = [side for moment in self.moments for side in (moment.within, moment.between) if side]
        top = max(np.interp(TOP, LEVELS, side) for side in sides)
        edges = np.linspace(0, float(top) / unit or 1.0, BINS + 1)
        lowest = min(value or 0.0 for moment in self.moments for value in (0.0, *moment.s_ap, *moment.s_an))

        def shares(side: list[Number]) -> list[Number]:
            return _shares(np.array(side) / unit, edges)

        return HistoryRecord(
            level=self._level,
            items=len(self._items),
            moments=[
                moment.model_copy(update={"within": shares(moment.within), "between": shares(moment.between)})
                for moment in self.moments
            ],
            edges=[round(edge, 5) for edge in edges.tolist()],
            field=predicted_motion(self._motion, low=-1.0 if lowest < 0 else 0.0),
        )


def predicted_motion(loss: SimulatedLoss | None, *, low: float = 0.0) -> MotionRecord | None:
    """The motion of triplets by a gradient step, by a model of the loss; None where none describes it.

    A triplet loss of squared distances of unit rows is the "vanilla" one with its hinge open; the NCA loss of
    temperature 1 and the soft triplet loss of cosine distances are "first-order".

    Args:
        loss: see `motion_of`.
        low: where both axes begin: 0 or -1; they end at 1.

    Returns:
        rows of the changes are by s_an; None where a change is not defined.

    Source:
        Xuan et al., "Extreme Triplet Learning", submission to ICLR 2020, eqs. 9-12.
    """
    if loss is None:
        return None
    field = vector_field(loss=loss, gamma=GAMMA, strength=ENTANGLEMENT, size=ARROWS, low=low)
    change_ap, change_an = ([_rounded(row) for row in rows] for rows in (field.change_ap, field.change_an))
    return MotionRecord(
        loss=loss,
        s_ap=[round(value, 5) for value in field.s_ap.tolist()],
        s_an=[round(value, 5) for value in field.s_an.tolist()],
        change_ap=change_ap,
        change_an=change_an,
        gamma=GAMMA,
        entanglement=ENTANGLEMENT,
    )


def motion_of(loss: EmbeddingLoss, *, normalize: bool) -> SimulatedLoss | None:
    """The model that describes a loss of embeddings of any length, or of length 1; None where there is none."""
    if isinstance(loss, SecondOrderTripletLoss):
        return "second-order"
    if isinstance(loss, NCATripletLoss):
        return "first-order" if loss.temperature == 1 else None
    if not isinstance(loss, TripletLoss) or loss.variant != "an" or loss.soft_margin:
        return None
    if loss.soft:
        return "first-order" if loss.distance == "cosine" else None
    return "vanilla" if normalize and loss.distance == "squared_euclidean" else None


def _measure(step: int, embeddings: Floats, labels: Integers, distance: Metric) -> Moment:
    points = as_points(embeddings, distance=distance)
    pairs = nearest_pairs(embeddings, labels)
    usable = np.isfinite(pairs.s_ap) & np.isfinite(pairs.s_an)
    distances = torch.cdist(points, points, compute_mode=DIFFERENCES).numpy()
    same = labels[:, None] == labels
    above = np.triu(np.ones_like(same), 1)
    ratios = class_spread(points, labels).ratio
    ratios = ratios[np.isfinite(ratios)]
    within, between = (
        np.quantile(values, LEVELS).tolist() if len(values) else []
        for values in (distances[above & same], distances[above & ~same])
    )
    return Moment(
        step=step,
        s_ap=_rounded(pairs.s_ap[usable]),
        s_an=_rounded(pairs.s_an[usable]),
        mean_distance=float(distances[above].mean()),
        effective_rank=effective_rank(points),
        recall=_recall(distances, same),
        class_spread=round(float(np.median(ratios)), 5) if len(ratios) else None,
        within=within,
        between=between,
    )


def _recall(distances: Floats, same: Booleans) -> float:
    """Recall@1, expected under random order of ties, as `trivet.metrics` has it: for few items this is faster."""
    others = distances + np.diag(np.full(len(distances), np.inf))
    tied = others <= others.min(axis=1, keepdims=True) * (1 + TIE)
    return float(((tied & same).sum(axis=1) / tied.sum(axis=1)).mean())


def _shares(quantiles: Floats, edges: Floats) -> list[Number]:
    """The share of the values in each bin, from their quantiles at `LEVELS`; all 0 without values."""
    if not len(quantiles):
        return [0.0] * (len(edges) - 1)
    below = np.interp(edges, quantiles, LEVELS)
    below[0], below[-1] = 0, 1  # many equal values at an end are all in its bin
    return [round(share, 6) for share in np.diff(below).tolist()]


def _rounded(values: Floats) -> list[Number | None]:
    return [round(value, 5) if np.isfinite(value) else None for value in values.tolist()]
