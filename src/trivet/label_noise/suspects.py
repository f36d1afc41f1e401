"""The probability of each label to be wrong, what it should be, and the evidence."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from trivet.distances import Array
from trivet.label_noise.duplicates import conflicting
from trivet.label_noise.estimate import NoiseAnalysis, NoiseEstimate, judge
from trivet.label_noise.neighbourhoods import LabelledPoints, Neighborhoods
from trivet.metrics.points import Metric
from trivet.runtime.arrays import Booleans, Floats, Integers

LINKS = 10  # nearest items of the own class
HALF_ITEM = 0.5  # items that are expected to be wrong at least, so that the probabilities keep the order of the items


@dataclass(frozen=True, eq=False)
class Suspects:
    """The labels of N items, judged; all in the order of the items.

    Attributes:
        probability_wrong: `(N,)` in [0, 1]; NaN everywhere if the embedding is uninformative (`noise.verdict`), as the
            next two.
        probability_not_separable: `(N,)` that it is wrong or classes overlap there: the same odds, multiplied so that
            the mean is the share of all labels that disagree, the upper end.
        probability_proposed: `(N,)` that the proposed label is right.
        proposed: `(N,)` the label value of the other class that the item speaks for most, if that class is more
            probable than the item's own; else the item's own.
        order: `(N,)` positions, most suspect first; equal ones by position.
        neighbour_agreement: `(N,)` share of the k neighbours that have the item's label.
        positive_margin: `(N,)` how much nearer the nearest item of the own label is than that of any other: the
            difference of the cosine similarities in [-2, 2], or the distances' for "euclidean". Positive is good; NaN
            where there is no other item of the label, or none of another.
        mode_share: `(N,)` in (0, 1], share of the items of that label in the same mode of the class. Items of a class
            belong to one mode where links join them, between two items of which each is among the other's 10 nearest
            of that label, or one is the other's nearest; both among the k nearest at all.
        neighbours: `(N, k)` positions of the nearest others, nearest first.
        neighbour_distances: `(N, k)` how far they are, Euclidean between the unit rows for "cosine".
        noise: the estimate that the probabilities rest on.
    """

    probability_wrong: Floats
    probability_not_separable: Floats
    probability_proposed: Floats
    proposed: Integers
    order: Integers
    neighbour_agreement: Floats
    positive_margin: Floats
    mode_share: Floats
    neighbours: Integers
    neighbour_distances: Floats
    noise: NoiseEstimate


def find_suspects(
    embeddings: Array,
    labels: Array,
    *,
    neighbours: int | None = None,
    folds: Array | None = None,
    seed: int = 0,
    distance: Metric = "cosine",
    least: float = 0.0,
) -> Suspects:
    """The probability of each label to be wrong, given views of the item that leave its label out.

    With p(c | x) as `estimate_noise` fits it, by Bayes

        P(true = c | x, label y) proportional to p(c | x) T[c, y],    probability_wrong = 1 - P(true = y | x, y),

    T being counted on the fifth of the items of whose class p is surest (`posterior._of_deepest`), and a label being
    that of a neighbour as often as `posterior._copied` says. The log odds of being wrong are multiplied by
    `noise.slope`, and the odds by one number for all items, so that the mean is the estimated rate, or where the
    verdict is "cannot-tell" the lower end, `noise.least`: what overlapping classes may explain is held against no
    label. Half an item is expected to be wrong at least, so that the probabilities keep the order, which knows no such
    difference. Of equal items with several labels none is called wrong (above one half) unless most of the neighbours
    that are not equal have other labels, too. An item that is the only one of its label (in its fold) has the mean.

    Which other class is proposed is decided by p(c | x) and by how often other items of that class have this label
    (`posterior._other`). A small cluster of a class is judged by its own items, through the weights of the neighbours:
    rare modes of a class are not errors.

    Args:
        embeddings, labels, neighbours, folds, seed, distance: as in `estimate_noise`; modes are those of a fold.
        least: share of the labels known to be wrong from elsewhere, such as the `noise.least` of another embedding of
            the same labels, in [0, 1). The mean probability is at least that; `noise` is of this embedding alone.

    Raises:
        ValueError: as `estimate_noise`, or if `least` is out of range.

    Source:
        Bayes with a transition: Northcutt, Jiang, Chuang, "Confident Learning", JAIR 70, 2021, section 3. Weights by a
        neighbour's distance: Zelnik-Manor, Perona, "Self-Tuning Spectral Clustering", NIPS 2004.

    Example:
        >>> random = np.random.default_rng(0)
        >>> labels = np.repeat([3, 8], 50)
        >>> points = random.normal(size=(100, 4)) + 6 * (labels == 8)[:, None]
        >>> labels[:5] = 8
        >>> suspects = find_suspects(points, labels, distance="euclidean")
        >>> sorted(suspects.order[:5].tolist()), int(suspects.proposed[4]), bool(suspects.probability_wrong[4] > 0.5)
        ([0, 1, 2, 3, 4], 3, True)
    """
    if not 0 <= least < 1:
        raise ValueError(f"least must lie in [0, 1): got {least}; give a share of the labels, not %.")
    analysis = judge(embeddings, labels, neighbours, folds, seed, distance)
    setting, indices = analysis.setting, analysis.around.indices
    wrong, not_separable, proposed, of_proposed, doubt = _probabilities(analysis, least)
    same = setting.classes[indices] == setting.classes[:, None]
    return Suspects(
        probability_wrong=wrong,
        probability_not_separable=not_separable,
        probability_proposed=of_proposed,
        proposed=setting.values[proposed].astype(np.int64),
        order=np.argsort(-doubt, kind="stable"),
        neighbour_agreement=same.mean(axis=1),
        positive_margin=_margin(analysis.around, distance),
        mode_share=_mode_share(indices, same, setting),
        neighbours=indices,
        neighbour_distances=analysis.around.distances,
        noise=analysis.noise,
    )


def _probabilities(analysis: NoiseAnalysis, least: float) -> tuple[Floats, Floats, Integers, Floats, Floats]:
    """Wrong, wrong or not separable, the proposed classes, those being right, and what items are ordered by `(N,)`."""
    noise, lone, classes = analysis.noise, analysis.setting.lone, analysis.setting.classes
    mean = max(least, noise.least if noise.rate is None else noise.rate, HALF_ITEM / len(lone))
    doubt = np.where(lone, -np.inf, noise.slope * analysis.model.doubt)
    if noise.verdict == "uninformative" or lone.all():
        nothing = np.full(len(lone), np.nan)
        return nothing, nothing, classes.copy(), nothing, np.zeros(len(lone))
    shift, most = _shift(doubt[~lone], mean), max(mean, 1 - noise.agreement)
    wrong = np.where(lone, mean, _sigmoid(doubt + shift))
    wrong = np.where(_copies_alone(analysis), np.minimum(wrong, 0.5), wrong)
    disagrees = np.where(lone, most, _sigmoid(doubt + _shift(doubt[~lone], most)))
    posterior, rows = analysis.model.posterior, np.arange(len(lone))
    other = analysis.views.candidates[rows, analysis.model.other]
    with np.errstate(divide="ignore"):
        share = np.log(posterior[rows, analysis.model.other]) - np.log(np.maximum(1 - posterior[:, 0], 1e-300))
    share = np.minimum(share, 0.0)
    beyond = ~lone & (doubt + shift + share > 0)  # the other class alone outweighs the own one
    of_proposed = np.where(beyond, wrong * np.exp(share), 1 - wrong)
    if lone.any():
        rate = min(max(mean, 1e-12), 1 - 1e-12)
        doubt = np.where(lone, math.log(rate) - math.log1p(-rate) - shift, doubt)
    return wrong, disagrees, np.where(beyond, other, classes), of_proposed, doubt


def _copies_alone(analysis: NoiseAnalysis) -> Booleans:
    """Return whether equal items with other labels `(N,)` are all that speaks against a label.

    Nothing else does where most of the neighbours that are not equal have the label, or there are none.
    """
    around, classes = analysis.around, analysis.setting.classes
    unequal = around.distances > 0
    same = (classes[around.indices] == classes[:, None]) & unequal
    return np.asarray(conflicting(around, classes) & (2 * same.sum(axis=1) >= unequal.sum(axis=1)))


def _sigmoid(logits: Floats) -> Floats:
    return np.asarray(np.where(logits >= 0, 1 / (1 + np.exp(-np.abs(logits))), 1 - 1 / (1 + np.exp(-np.abs(logits)))))


def _shift(doubt: Floats, rate: float) -> float:
    """Number to add to the log odds so that the mean probability is the rate, to e^-40."""
    high = 40.0 + float(np.abs(doubt).max())
    low = -high
    while high - low > 1e-9:
        middle = (low + high) / 2
        low, high = (middle, high) if _sigmoid(doubt + middle).mean() < rate else (low, middle)
    return low


def _margin(around: Neighborhoods, distance: Metric) -> Floats:
    """Margin of each item; of unit rows S = 1 - D^2 / 2, so it is half the difference of the squared distances."""
    positive, negative = around.to_positive, around.to_negative
    if distance == "cosine":
        positive, negative = positive**2 / 2, negative**2 / 2
    with np.errstate(invalid="ignore"):
        margin = negative - positive
    return np.where(np.isfinite(margin), margin, np.nan)


def _mode_share(indices: Integers, same: np.ndarray, setting: LabelledPoints) -> Floats:
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    def links(most: int) -> csr_array:
        rows, columns = np.nonzero(same & (np.cumsum(same, axis=1) <= most))
        return csr_array((np.ones(len(rows)), (rows, indices[rows, columns])), shape=(len(indices), len(indices)))

    many = links(LINKS)
    _, mode = connected_components(many.minimum(many.T) + links(1), directed=False)
    of_class = setting.folds * len(setting.values) + setting.classes
    return np.asarray(np.bincount(mode)[mode] / np.bincount(of_class)[of_class], np.float64)
