"""Which labels are probably wrong, what they should be, and the evidence."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from trivet.arguments import check_count
from trivet.evaluation.inputs import Metric
from trivet.geometry import Array
from trivet.geometry.arrays import Floats, Integers
from trivet.label_noise.estimate import (
    BLOCK_ENTRIES,
    NoiseEstimate,
    Setting,
    Surroundings,
    fit_noise,
    memberships,
    surroundings,
)

NEIGHBOURS = 50  # where none are asked for
BAND = 5  # the distance to this neighbour is the width of the weights
STRENGTH = 0.5  # items that the shares of the classes count for beside the neighbours
LINKS = 10  # nearest items of the own class


@dataclass(frozen=True, eq=False)
class Suspects:
    """The labels of N items, judged; all in the order of the items.

    Attributes:
        probability_wrong: `(N,)` in [0, 1].
        proposed: `(N,)` the label value of the most probable class, which may be the item's own.
        order: `(N,)` positions, most suspect first; equal ones by position.
        neighbour_agreement: `(N,)` share of the k neighbours that have the item's label.
        positive_margin: `(N,)` how much nearer the nearest item of the own label is than that of any other: the
            difference of the cosine similarities in [-2, 2], or the distances' for "euclidean". Positive is good; NaN
            where there is no other item of the label, or none of another.
        mode_share: `(N,)` in (0, 1], share of the items of that label in the same mode of the class. Items of a class
            belong to one mode where links join them, between two items of which each is among the other's 10 nearest
            of that label, or one is the other's nearest; both among the k nearest at all. Small with high agreement: a
            rare mode. Small with low agreement: lost among others.
        neighbours: `(N, k)` positions of the nearest others, nearest first.
        neighbour_distances: `(N, k)` Euclidean distances to them; of unit rows for "cosine".
        noise: the estimate that the probabilities rest on.
    """

    probability_wrong: Floats
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
) -> Suspects:
    """The probability of each label to be wrong, given its neighbours' labels, which may be wrong too.

    With m the mixture of true classes around item i and T the transition of the noise, by Bayes

        P(true = c | neighbours, label y) proportional to m(c) T[c, y],    probability_wrong = 1 - P(true = y | ...),

    the odds of being wrong multiplied by one number for all items, so that the mean is the estimated rate.

    m maximises sum_j w_j log (m T)[y_j] over the k neighbours (EM), where half an item of the shares of the classes is
    added. The weight of a neighbour at distance D is exp(-(D / D_5)^2), D_5 the distance to the fifth, so that a small
    cluster is judged by its own items, however many neighbours are looked at: rare modes of a class are not errors.

    T is that of `estimate_noise`, mixed with symmetric noise of the same rate: of T as much as its wrong labels go one
    way (from i to j but not from j to i). What goes both ways may be overlap, which m holds already.

    Args:
        embeddings: `(N, d)` floating point, N >= 2, best of a network that was not trained on these labels, or
            out-of-fold.
        labels: `(N,)` of any integer dtype, of at least two classes.
        neighbours: k; None for 50, or all others where there are fewer. The estimate of the noise has its own.
        folds: `(N,)` integers, which network made a row, where several did; rows of different ones are not compared,
            and modes are those of a fold.
        seed: of the splits of `estimate_noise`, not negative.
        distance: "cosine" or "euclidean".

    Raises:
        ValueError: if shapes or dtypes disagree, a row is not finite, there is one class only, a number is out of
            range, or an item has not `neighbours` others to be compared with.

    Source:
        Bayes with a transition: Northcutt, Jiang, Chuang, "Confident Learning", JAIR 70, 2021, section 3, where the
        posteriors are a classifier's. Weights by a neighbour's distance: Zelnik-Manor, Perona, "Self-Tuning Spectral
        Clustering", NIPS 2004.

    Example:
        >>> angles = np.repeat([0.0, 1.0], 20) + np.linspace(0, 0.1, 40) % 0.01
        >>> points = np.stack([np.cos(angles), np.sin(angles)], axis=1)
        >>> labels = np.repeat([3, 8], 20)
        >>> labels[4] = 8
        >>> suspects = find_suspects(points, labels)
        >>> int(suspects.order[0]), int(suspects.proposed[4]), bool(suspects.probability_wrong[4] > 0.5)
        (4, 3, True)
    """
    setting = Setting.of(embeddings, labels, folds=folds, distance=distance)
    k = (
        max(1, min(NEIGHBOURS, setting.comparable))
        if neighbours is None
        else check_count(neighbours, name="neighbours")
    )
    setting.check(k, seed)
    usual = setting.usual_neighbours()
    around = surroundings(setting, max(k, 2 * usual + 10))
    fit = fit_noise(setting, around, usual, seed)
    noise = fit.estimate
    count = len(setting.values)
    even = np.full((count, count), noise.rate / (count - 1))
    np.fill_diagonal(even, 1 - noise.rate)
    wrong, proposed = _posterior(
        setting.classes,
        around,
        k,
        transition=fit.one_way * noise.transition + (1 - fit.one_way) * even,
        priors=noise.priors,
        rate=noise.rate,
    )
    indices = around.indices[:, :k]
    same = setting.classes[indices] == setting.classes[:, None]
    return Suspects(
        probability_wrong=wrong,
        proposed=setting.values[proposed].astype(np.int64),
        order=np.argsort(-wrong, kind="stable"),
        neighbour_agreement=same.mean(axis=1),
        positive_margin=_margin(around, distance),
        mode_share=_mode_share(indices, same, setting),
        neighbours=indices,
        neighbour_distances=around.distances[:, :k],
        noise=noise,
    )


def _posterior(
    classes: Integers, around: Surroundings, k: int, *, transition: Floats, priors: Floats, rate: float
) -> tuple[Floats, Integers]:
    """Probability `(N,)` that the true class is another one, and the most probable class; of equal ones the own."""
    distances = around.distances[:, :k]
    band = distances[:, [min(BAND, k) - 1]]
    with np.errstate(divide="ignore", invalid="ignore"):
        weights = np.where(band > 0, np.exp(-((distances / band) ** 2)), distances == 0)
    weights *= k / weights.sum(axis=1, keepdims=True)
    # The own class stands first, without a weight: it may be the true one also where no neighbour has it.
    nearby = np.concatenate([classes[:, None], classes[around.indices[:, :k]]], axis=1)
    weights = np.concatenate([np.zeros((len(classes), 1)), weights], axis=1)
    own, other, best, rest = np.empty(len(classes)), np.empty(len(classes)), classes.copy(), np.empty(len(classes))
    step = max(1, BLOCK_ENTRIES // nearby.shape[1] ** 2)
    for start in range(0, len(classes), step):
        part = slice(start, start + step)
        labels = nearby[part]
        masses = memberships(labels, weights[part], transition, prior=priors, strength=STRENGTH)
        masses *= transition[labels, labels[:, :1]]
        sums = np.einsum("nij,nj->ni", (labels[:, :, None] == labels[:, None, :]).astype(np.float64), masses)
        own[part], rest[part] = sums[:, 0], np.where(labels != labels[:, :1], masses, 0.0).sum(axis=1)
        sums[labels == labels[:, :1]] = 0.0
        # Sums of the same masses in another order differ by rounding.
        first = (sums >= sums.max(axis=1, keepdims=True) * (1 - 1e-9)).argmax(axis=1)
        rows = np.arange(len(labels))
        other[part], best[part] = sums[rows, first], labels[rows, first]
    factor = _factor(own, rest, rate)
    wrong = factor * rest / np.maximum(own + factor * rest, 1e-300)
    return wrong, np.where(factor * other > own, best, classes)


def _factor(own: Floats, rest: Floats, rate: float) -> float:
    """What to multiply `rest` with so that its mean share of both `(N,)` is the rate; within e^-40 and e^40."""
    low, high = -40.0, 40.0
    while high - low > 1e-9:
        middle = (low + high) / 2
        share = math.exp(middle) * rest / np.maximum(own + math.exp(middle) * rest, 1e-300)
        low, high = (middle, high) if share.mean() < rate else (low, middle)
    return math.exp(low)


def _margin(around: Surroundings, distance: Metric) -> Floats:
    """Of unit rows S = 1 - D^2 / 2, so the difference of similarities is half that of the squared distances."""
    positive, negative = around.to_positive, around.to_negative
    if distance == "cosine":
        positive, negative = positive**2 / 2, negative**2 / 2
    with np.errstate(invalid="ignore"):
        margin = negative - positive
    return np.where(np.isfinite(margin), margin, np.nan)


def _mode_share(indices: Integers, same: np.ndarray, setting: Setting) -> Floats:
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    def links(most: int) -> csr_array:
        rows, columns = np.nonzero(same & (np.cumsum(same, axis=1) <= most))
        return csr_array((np.ones(len(rows)), (rows, indices[rows, columns])), shape=(len(indices), len(indices)))

    many = links(LINKS)
    _, mode = connected_components(many.minimum(many.T) + links(1), directed=False)
    of_class = setting.folds * len(setting.values) + setting.classes
    return np.asarray(np.bincount(mode)[mode] / np.bincount(of_class)[of_class], np.float64)
