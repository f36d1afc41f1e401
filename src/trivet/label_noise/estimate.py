"""How many labels are wrong, and which classes are confused, estimated from embeddings and labels alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from trivet.arguments import check_count
from trivet.evaluation.inputs import Metric, as_points
from trivet.geometry import Array, as_classes
from trivet.geometry.arrays import Booleans, Floats, Integers
from trivet.geometry.distances import Products

MOST, LEAST = 20, 3  # neighbours, where none are asked for
SPLITS = 5  # an item's neighbours come from the other splits
DEEP = (0.1, 0.2, 0.3, 0.45, 0.6, 0.8, 1.0)  # shares of the items that may be looked at, the deepest of each class
MANY = 3000  # items; of fewer, the least share would be too few anchors
LARGE = 40  # items of the median class; where it has fewer, the deepest items of all classes together are taken
ROUNDS, STEPS = 4, 10
SHRINK = 20  # anchors that one rate for all classes counts for in a row of the transition
QUANTILE = 1.96
BLOCK_ENTRIES = 2**22
TABLES = 100  # classes; of more, as_json leaves the matrices out


@dataclass(frozen=True, eq=False)
class NoiseEstimate:
    """An estimate of label noise; C classes, in ascending order of their labels.

    Attributes:
        rate: share of wrong labels, in [0, 1].
        interval: a 95 % interval of the rate; see `estimate_noise` for what it covers.
        transition: `(C, C)`, T[i, j] = P(observed j | true i); rows add up to 1.
        transition_low, transition_high: `(C, C)`, 95 % interval of each entry, for the sampling of the anchors only.
        priors: `(C,)` shares of the true classes.
        neighbours: k.
        method: in words, for a report.
    """

    rate: float
    interval: tuple[float, float]
    transition: Floats
    transition_low: Floats
    transition_high: Floats
    priors: Floats
    neighbours: int
    method: str
    verdict: str = "estimated"
    reason: str = ""

    def as_json(self, *, largest: int = 20) -> dict[str, Any]:
        """All of it as plain values; for more than 100 classes the matrices are None.

        "largest" lists the entries off the diagonal by the share of all items they stand for, P(true) T, largest first,
        with the positions of their classes.
        """
        share = self.priors[:, None] * self.transition
        np.fill_diagonal(share, -1.0)
        places = np.argsort(-share, axis=None, kind="stable")[: min(largest, len(share) * (len(share) - 1))]
        rows, columns = np.unravel_index(places, share.shape)
        small = len(share) <= TABLES
        return {
            "rate": self.rate,
            "interval": list(self.interval),
            "transition": self.transition.tolist() if small else None,
            "transition_low": self.transition_low.tolist() if small else None,
            "transition_high": self.transition_high.tolist() if small else None,
            "priors": self.priors.tolist(),
            "neighbours": self.neighbours,
            "method": self.method,
            "largest": [
                {
                    "true": i,
                    "observed": j,
                    "probability": float(self.transition[i, j]),
                    "low": float(self.transition_low[i, j]),
                    "high": float(self.transition_high[i, j]),
                    "share": float(share[i, j]),
                }
                for i, j in zip(rows.tolist(), columns.tolist(), strict=True)
            ],
        }


def estimate_noise(
    embeddings: Array,
    labels: Array,
    *,
    neighbours: int | None = None,
    folds: Array | None = None,
    seed: int = 0,
    distance: Metric = "cosine",
) -> NoiseEstimate:
    """The rate of wrong labels and the transition matrix, told apart from classes that overlap.

    Neighbours whose labels disagree may be wrong, or their classes may meet there. Wrong labels are also found deep
    inside a class, overlap is not. So the noise is read where the neighbours agree best (anchors):

    1. Items are split in 5. The labels y_j of an item's k nearest neighbours in the other splits are drawn from m T,
       where m, a distribution over classes, is its surroundings; m is found by maximum likelihood (10 steps of EM).
       The item's own label plays no part.
    2. An item lies in the class of largest m. Its anchors are the share q of the items that lie in it, in each split,
       where that m is largest; if the median class has under 40 items, the share q of all items that lie anywhere.
    3. T[i, j] is the share of anchors of class i that are labelled j, shrunk by 20 items towards one rate for all
       classes and all wrong labels alike. As neighbours and own label are independent given the true class, choosing
       anchors by the former leaves the latter unbiased.

    T starts at a rate of 0.1, the steps are done four times with the least q, then q is the largest of 0.1, 0.2, 0.3,
    0.45, 0.6, 0.8, 1 whose rate exceeds that at each smaller q by at most a standard error of the difference: sets
    without overlap use all items, others the deepest. With under 3,000 items, 0.1 is left out. The rate is the mean of
    1 - T[i, i] over the items (over the anchors, where those of all classes are taken together).

    Noise that is rarer deep inside the classes, as that of people is, is missed there. So T is also fitted to the own
    labels of all items by maximum likelihood, their mixtures m given, which leave to overlap all that overlap can
    explain, and taken if its rate is higher; not where anchors of all classes are taken together.

    The upper end of the interval adds sampling error (Wilson) to the rate; from the lower one all disagreement at the
    anchors is taken off that the mixtures m could explain. Noise of people, who err where classes meet, is still
    underestimated and may lie above the interval; classes that overlap everywhere, and items that the embedding puts
    deep into another class, are taken for noise. Measured (benchmarks/label_noise.py): mostly within 3 points, up to 9
    too low for people's labels of which 41 % are wrong, up to 6 too high in embeddings that were trained, out of fold,
    on the noisy labels.

    Args:
        embeddings: `(N, d)` floating point, N >= 2, best of a network that was not trained on these labels, or
            out-of-fold; a network that has learned wrong labels by heart hides them.
        labels: `(N,)` of any integer dtype, of at least two classes.
        neighbours: k; None for half the size of the median class, within 3 and 20.
        folds: `(N,)` integers, which network made a row, where several did; rows of different ones are not compared.
        seed: of the splits, not negative.
        distance: "cosine" or "euclidean".

    Raises:
        ValueError: if shapes or dtypes disagree, a row is not finite, there is one class only, a number is out of
            range, or an item has not `neighbours` others to be compared with.

    Source:
        Anchors and T: Patrini et al., "Making Deep Neural Networks Robust to Label Noise", CVPR 2017, section 4, with
        posteriors from neighbours as in Zhu, Song, Liu, "Clusterability as an Alternative to Anchor Points When
        Learning with Noisy Labels", ICML 2021. The choice of q: Lepskii, "On a problem of adaptive estimation in
        Gaussian white noise", Theory of Probability and its Applications 35, 1991. The numbers are chosen here.

    Example:
        >>> angles = np.repeat([0.0, 1.0], 50) + np.linspace(0, 0.1, 100) % 0.01
        >>> points = np.stack([np.cos(angles), np.sin(angles)], axis=1)
        >>> labels = np.repeat([0, 1], 50)
        >>> labels[:10] = 1
        >>> estimate = estimate_noise(points, labels)
        >>> round(estimate.rate, 2), estimate.interval[0] < 0.1 < estimate.interval[1]
        (0.1, True)
    """
    setting = Setting.of(embeddings, labels, folds=folds, distance=distance)
    k = setting.usual_neighbours() if neighbours is None else check_count(neighbours, name="neighbours")
    setting.check(k, seed)
    return fit_noise(setting, surroundings(setting, 2 * k + 10), k, seed).estimate


@dataclass(frozen=True, eq=False)
class Setting:
    """Checked inputs: points `(N, width)` to compare by Euclidean distance, class numbers, and fold numbers `(N,)`."""

    points: torch.Tensor
    values: npt.NDArray[Any]  # (C,) labels
    classes: Integers
    folds: Integers
    distance: Metric

    @classmethod
    def of(cls, embeddings: Array, labels: Array, *, folds: Array | None, distance: Metric) -> Setting:
        points = as_points(embeddings, distance=distance)
        classes = as_classes(labels, count=len(points)).numpy()
        values = labels.detach().cpu().numpy() if isinstance(labels, torch.Tensor) else np.asarray(labels)
        if len(points) == 0 or classes.max() == 0:
            raise ValueError(
                f"labels must hold at least two classes: got {min(1, len(points))}; without a second class no label "
                "can be wrong."
            )
        given = np.zeros(len(points), np.int64)
        if folds is not None:
            given = as_classes(folds, count=len(points), name="folds").numpy()
        return cls(points, np.unique(values), classes, given, distance)

    @property
    def typical(self) -> int:
        """Items of the median class."""
        return int(np.median(np.bincount(self.classes)))

    @property
    def comparable(self) -> int:
        """Others that every item can be compared with."""
        return int(np.bincount(self.folds).min()) - 1

    def usual_neighbours(self) -> int:
        return max(1, min(MOST, max(LEAST, self.typical // 2), self.comparable))

    def check(self, k: int, seed: int) -> None:
        if k > self.comparable:
            raise ValueError(
                f"neighbours must not exceed the {self.comparable} others that each item can be compared with: got "
                f"{k}; use fewer, or add more items."
            )
        if seed < 0:
            raise ValueError(f"seed must not be negative: got {seed}.")


@dataclass(frozen=True, eq=False)
class Surroundings:
    """The K nearest others of each item, nearest first, and its nearest items of the own and of other classes."""

    indices: Integers  # (N, K)
    distances: Floats  # (N, K)
    to_positive: Floats  # (N,), infinite where there is none
    to_negative: Floats  # (N,)


def surroundings(setting: Setting, k: int) -> Surroundings:
    """Up to k neighbours of each item among those of its fold; of equally near ones (float32) the first comes first."""
    k = min(k, setting.comparable)
    count = len(setting.points)
    indices, distances = np.empty((count, k), np.int64), np.empty((count, k))
    positive, negative = np.full(count, np.inf), np.full(count, np.inf)
    for fold in range(setting.folds.max() + 1):
        items = np.flatnonzero(setting.folds == fold)
        points = setting.points[torch.from_numpy(items)]
        classes, products = torch.from_numpy(setting.classes[items]), Products(points, points)
        step = max(1, BLOCK_ENTRIES // len(items))
        for start in range(0, len(items), step):
            stop = min(start + step, len(items))
            squared = products.squared_distances(start, stop).float()
            squared[torch.arange(stop - start), torch.arange(start, stop)] = torch.inf
            same = classes[start:stop, None] == classes
            rows = items[start:stop]
            positive[rows] = squared.masked_fill(~same, torch.inf).amin(dim=1).double().sqrt().numpy()
            negative[rows] = squared.masked_fill(same, torch.inf).amin(dim=1).double().sqrt().numpy()
            # Distance above, index below: one order without ties.
            order = (squared.view(torch.int32).long() << 32) | torch.arange(len(items))
            nearest = order.topk(k, largest=False).values & 0xFFFFFFFF  # ascending
            indices[rows] = items[nearest.numpy()]
            distances[rows] = squared.gather(1, nearest).double().sqrt().numpy()
    return Surroundings(indices, distances, positive, negative)


@dataclass(frozen=True, eq=False)
class Fit:
    """An estimate, and how far its wrong labels go one way, from i to j but not from j to i: in [0, 1]."""

    estimate: NoiseEstimate
    one_way: float


def fit_noise(setting: Setting, around: Surroundings, k: int, seed: int) -> Fit:
    """The steps of `estimate_noise`."""
    classes, count = setting.classes, len(setting.values)
    split = _splits(setting.folds, seed)
    other = split[around.indices] != split[:, None]
    used = other & (np.cumsum(other, axis=1) <= k)
    width = min(k, used.shape[1])
    # The k of other splits come first, in their order; a row with fewer is filled up with weights of 0.
    columns = np.argsort(~used, axis=1, kind="stable")[:, :width]
    nearby = classes[np.take_along_axis(around.indices, columns, axis=1)]  # (N, k)
    weights = np.take_along_axis(used, columns, axis=1).astype(np.float64)
    each = setting.typical >= LARGE
    shares = DEEP if len(classes) >= MANY else DEEP[1:]
    transition = _even(0.1, count)
    for _ in range(ROUNDS):
        masses = memberships(nearby, weights, transition)
        inside, depth = _largest(nearby, masses)
        chosen = _deepest(inside, depth, split, shares[0], each)
        transition = _shrunk(_table(inside[chosen], classes[chosen], count))
    masses = memberships(nearby, weights, transition)
    inside, depth = _largest(nearby, masses)
    priors = np.bincount(inside, minlength=count) / len(inside)
    tried: list[tuple[float, float, Floats, Booleans]] = []  # rate, items it is worth, table, anchors
    for share in shares:
        chosen = _deepest(inside, depth, split, share, each)
        table = _table(inside[chosen], classes[chosen], count)
        rate, worth = _rate(_shrunk(table), table.sum(axis=1), priors if each else None)
        if not all(rate - less[0] <= _deviation(less[0], less[1], worth) for less in tried):
            break
        tried.append((rate, worth, table, chosen))
    rate, worth, table, chosen = tried[-1]
    transition, anchors = _shrunk(table), table.sum(axis=1)
    explained = _explained(nearby[chosen], masses[chosen], classes[chosen], transition)
    least, _ = _rate(explained, anchors, priors if each else None)
    share, where = shares[len(tried) - 1], "in each class" if each else "in the classes together"
    method = f"labels of the {share:.0%} of items deepest {where}"
    if each:
        everywhere = _explained(nearby, masses, classes, transition)
        beyond = float(priors @ (1 - np.diag(everywhere)))
        if beyond > rate:
            rate, transition, anchors = beyond, everywhere, len(classes) * priors
            method = "labels that overlapping classes do not explain, over all items"
    low, high = _wilson(transition, anchors[:, None] + SHRINK)
    estimate = NoiseEstimate(
        rate=rate,
        interval=(float(_wilson(min(least, rate), worth)[0]), float(_wilson(rate, worth)[1])),
        transition=transition,
        transition_low=low,
        transition_high=high,
        priors=priors,
        neighbours=k,
        method=f"{method}, by their {k} nearest neighbours ({setting.distance})",
    )
    return Fit(estimate, _one_way(table))


def memberships(
    nearby: Integers, weights: Floats, transition: Floats, *, prior: Floats | None = None, strength: float = 0.0
) -> Floats:
    """The mixture of true classes around each item, as masses `(n, k)` on its neighbours; those of a label add up.

    Maximises sum_j w_j log (m T)[y_j] over distributions m on the labels among `nearby`, by EM from the shares of the
    labels; with a prior `(C,)` the mean of `strength` further items of that distribution is mixed in at each step.
    """
    masses = np.zeros(weights.shape)
    step = max(1, BLOCK_ENTRIES // nearby.shape[1] ** 2)
    for start in range(0, len(nearby), step):
        labels, own = nearby[start : start + step], weights[start : start + step]
        among = transition[labels[:, :, None], labels[:, None, :]]  # (n, true, observed)
        total = np.maximum(own.sum(axis=1, keepdims=True), 1e-300)
        more = np.zeros(own.shape)
        if prior is not None:
            more = prior[labels] / (labels[:, :, None] == labels[:, None, :]).sum(axis=2)
        mass = (own + strength * more) / (total + strength)
        for _ in range(STEPS):
            seen = np.einsum("ns,nsj->nj", mass, among)
            given = mass * np.einsum("nj,nsj->ns", own / np.maximum(seen, 1e-12), among)
            mass = (given + strength * more) / (total + strength)
        masses[start : start + step] = mass
    return masses


def _splits(folds: Integers, seed: int) -> Integers:
    """A split for each item, of sizes that differ by at most one in each fold."""
    random, split = np.random.default_rng(seed), np.empty(len(folds), np.int64)
    for fold in range(folds.max() + 1):
        items = np.flatnonzero(folds == fold)
        split[items] = random.permutation(len(items)) % SPLITS
    return split


def _largest(nearby: Integers, masses: Floats) -> tuple[Integers, Floats]:
    """The class of largest mass `(n,)` and that mass; of equal ones that of the nearest neighbour."""
    inside, depth = np.empty(len(nearby), np.int64), np.empty(len(nearby))
    step = max(1, BLOCK_ENTRIES // nearby.shape[1] ** 2)
    for start in range(0, len(nearby), step):
        labels, mass = nearby[start : start + step], masses[start : start + step]
        sums = np.einsum("nij,nj->ni", (labels[:, :, None] == labels[:, None, :]).astype(np.float64), mass)
        # Sums of the same masses in another order differ by rounding.
        best = (sums >= sums.max(axis=1, keepdims=True) * (1 - 1e-9)).argmax(axis=1)
        rows = np.arange(len(labels))
        inside[start : start + step], depth[start : start + step] = labels[rows, best], sums[rows, best]
    return inside, depth


def _deepest(inside: Integers, depth: Floats, split: Integers, share: float, each: bool) -> Booleans:
    """Where an item is among this share of its split, or of its class in its split, by depth; ties are all in."""
    group = inside * SPLITS + split if each else split
    order = np.lexsort((-depth, group))
    first = np.flatnonzero(np.r_[True, np.diff(group[order]) > 0])
    sizes = np.diff(np.r_[first, len(order)])
    last = first + np.ceil(share * sizes - 1e-9).astype(np.int64) - 1
    chosen = np.empty(len(inside), np.bool_)
    chosen[order] = depth[order] >= np.repeat(depth[order][last], sizes) - 1e-9
    return chosen


def _table(inside: Integers, observed: Integers, count: int) -> Floats:
    table = np.zeros((count, count))
    np.add.at(table, (inside, observed), 1.0)
    return table


def _even(rate: float, count: int) -> Floats:
    """The transition of symmetric noise."""
    even = np.full((count, count), rate / (count - 1))
    np.fill_diagonal(even, 1 - rate)
    return even


def _shrunk(table: Floats) -> Floats:
    """Rows of counts as a transition, with 20 further items at the rate of the whole table, but at least 0.001."""
    anchors = table.sum(axis=1, keepdims=True)
    rate = max(1e-3, 1 - float(np.trace(table) / anchors.sum()))
    return np.asarray((table + SHRINK * _even(rate, len(table))) / (anchors + SHRINK))


def _rate(transition: Floats, anchors: Floats, priors: Floats | None) -> tuple[float, float]:
    """The rate over items, and how many items drawn at random would tell it as well; by anchors without priors."""
    weights = anchors / anchors.sum() if priors is None else np.where(anchors > 0, priors, 0.0)
    weights = weights / weights.sum()
    held = anchors > 0
    return float(weights @ (1 - np.diag(transition))), float(1 / (weights[held] ** 2 / anchors[held]).sum())


def _deviation(rate: float, fewer: float, more: float) -> float:
    """Standard deviation of the difference of two rates, of which the second is over more items, the first among them.

    A rate of 0 is taken for that of one wrong item in two more.
    """
    rate = (rate * fewer + 1) / (fewer + 2)
    return math.sqrt(max(0.0, rate * (1 - rate) * (1 / fewer - 1 / more)))


def _explained(nearby: Integers, masses: Floats, observed: Integers, transition: Floats) -> Floats:
    """T of largest likelihood `(C, C)` if the mixtures around the anchors are right, and their own labels drawn."""
    for _ in range(2 * STEPS):
        given = masses * transition[nearby, observed[:, None]]
        given /= np.maximum(given.sum(axis=1, keepdims=True), 1e-300)
        table = np.zeros_like(transition)
        np.add.at(table, (nearby, np.broadcast_to(observed[:, None], nearby.shape)), given)
        sums = table.sum(axis=1, keepdims=True)
        transition = np.where(sums > 0, table / np.maximum(sums, 1e-300), transition)
    return transition


def _wilson(share: Any, count: Any) -> tuple[Floats, Floats]:
    """The 95 % interval of Wilson, "Probable Inference", JASA 1927."""
    share, count = np.asarray(share, np.float64), np.asarray(count, np.float64)
    spread = QUANTILE**2 / count
    centre = (share + spread / 2) / (1 + spread)
    half = np.sqrt(spread * (share * (1 - share) + spread / 4)) / (1 + spread)
    return np.clip(centre - half, 0, 1), np.clip(centre + half, 0, 1)


def _one_way(table: Floats) -> float:
    """Of counts n off the diagonal, the sum of (n_ij - n_ji)^2 over that of (n_ij + n_ji)^2, each less its chance part.

    0 where classes are taken for each other equally often, which overlap does too; 1 where only one for the other is.
    """
    off = table - np.diag(np.diag(table))
    both = off + off.T
    squares = float((both**2 - both).sum())
    return float(np.clip((((off - off.T) ** 2) - both).sum() / squares, 0, 1)) if squares > 0 else 0.0
