"""Views of the class of an item that leave its own label out: linear classifiers of two kinds, and its neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from trivet.label_noise.logistic import CLASSES, Logistic
from trivet.label_noise.neighbourhoods import LabelledPoints, Neighborhoods
from trivet.runtime.arrays import Booleans, Floats, Integers
from trivet.runtime.progress import report

CANDIDATES, NEARBY = 32, 11  # classes that are weighed for an item; those of them that its neighbours bring
BAND = 5  # the distance to this neighbour is the width of the weights
STRENGTH = 0.5  # items that the shares of the classes count for beside the neighbours
BLOCK_ENTRIES = 2**22  # numbers worked on at once


@dataclass(frozen=True, eq=False)
class ClassScores:
    """Scores of the M classes that come into question for each of N items."""

    candidates: Integers  # `(N, M)` classes, that of the item's label first; all classes where there are at most 32
    # `(N, M, V)`, logarithms of probabilities up to a constant of each item: normal distributions, neighbours and, up
    # to 1,000 classes, logistic regression.
    scores: Floats
    repeated: Booleans  # `(N, M)` where a candidate stands a second time, and does not count


NORMAL, NEAREST, LOGISTIC = 0, 1, 2  # places of the views in the scores


def class_scores(
    setting: LabelledPoints, around: Neighborhoods, weights: Floats, logistic: Sequence[Logistic]
) -> ClassScores:
    """The views, from items `(N,)` that count as much as their weights in [0, 1].

    Normal distributions: around the means of the classes, with one covariance, estimated from the items within their
    classes and shrunk towards a multiple of the identity (linear discriminant analysis; Ledoit, Wolf, "A
    well-conditioned estimator for large-dimensional covariance matrices", Journal of Multivariate Analysis 88, 2004).
    An item is left out of the mean of its class and of the covariance when it is judged itself, exactly (Sherman,
    Morrison): for the covariance S of n items, the mean m of a class of M and v = x - m, without x they are
    S - (M / (M - 1)) v v' / n and m - v / (M - 1). The shrinkage is that of all items.

    Neighbours: the shares of the classes among the nearest, a neighbour at distance D counting exp(-(D / D_5)^2), D_5
    being the distance to the fifth, so that a small cluster is judged by its own items. Half an item of the shares of
    all items is added.

    Logistic regression: see `logistics`.
    """
    count = len(setting.values)
    few = min(CANDIDATES, count)
    candidates = np.empty((len(weights), few), np.int64)
    scores = np.empty((len(weights), few, 3 if logistic else 2))
    repeated = np.zeros((len(weights), few), np.bool_)
    near, done = _near(around), 0
    for fold in range(setting.folds.max() + 1):
        items, points = setting.of_fold(fold)
        classes = setting.classes[items]
        linear = _Linear(points, classes, weights[items], count)
        shares = linear.masses / linear.masses.sum()
        step = max(1, BLOCK_ENTRIES // max(count, around.indices.shape[1] ** 2))
        for start in range(0, len(items), step):
            rows, block = items[start : start + step], slice(start, start + step)
            all_scores = linear.scores(block)
            neighbor_classes = setting.classes[around.indices[rows]]
            counted = near[rows] * weights[around.indices[rows]]
            chosen, again = _candidates(classes[block], all_scores, neighbor_classes, counted, few)
            mass = np.zeros(chosen.shape)
            for j in range(neighbor_classes.shape[1]):
                mass += counted[:, [j]] * (chosen == neighbor_classes[:, [j]])
            candidates[rows], repeated[rows] = chosen, again
            scores[rows, :, NORMAL] = np.take_along_axis(all_scores, chosen, axis=1)
            scores[rows, :, NEAREST] = np.log(mass + STRENGTH * shares[chosen] + 1e-12)
            if logistic:
                scores[rows, :, LOGISTIC] = np.take_along_axis(logistic[fold].logs(block), chosen, axis=1)
            done += len(rows)
            report("probabilities of the classes", done, len(weights))
    return ClassScores(candidates, scores, repeated)


def logistics(setting: LabelledPoints, weights: Floats, seed: int) -> list[Logistic]:
    """The logistic regressions of each fold; none for over 1,000 classes."""
    count = len(setting.values)
    if count > CLASSES:
        return []
    return [
        Logistic(points, setting.classes[items], weights[items], count, seed=seed)
        for items, points in map(setting.of_fold, range(setting.folds.max() + 1))
    ]


def _near(around: Neighborhoods) -> Floats:
    """The weights of the neighbours `(N, k)`, of k in all."""
    band = around.distances[:, [min(BAND, around.distances.shape[1]) - 1]]
    with np.errstate(divide="ignore", invalid="ignore"):
        weights = np.where(band > 0, np.exp(-((around.distances / band) ** 2)), around.distances == 0)
    return np.asarray(weights, np.float64)


def _candidates(
    labels: Integers, scores: Floats, neighbor_classes: Integers, counted: Floats, few: int
) -> tuple[Integers, Booleans]:
    """The candidates of some items: own class, those of the best scores, those with the largest mass nearby."""
    count = scores.shape[1]
    if few == count:
        order = np.tile(np.arange(count), (len(labels), 1))
        order[np.arange(len(labels)), labels] = 0
        order[:, 0] = labels
        return order, np.zeros(order.shape, np.bool_)
    best = torch.from_numpy(scores).topk(few - 1 - NEARBY, dim=1).indices.numpy()
    same = neighbor_classes[:, :, None] == neighbor_classes[:, None, :]
    mass = np.einsum("nij,nj->ni", same.astype(np.float64), counted)
    mass[(np.tril(same, -1)).any(axis=2)] = -1.0  # only the nearest item of each class stands for it
    most = np.argsort(-mass, axis=1, kind="stable")[:, :NEARBY]
    candidates = np.concatenate([labels[:, None], best, np.take_along_axis(neighbor_classes, most, axis=1)], axis=1)
    if candidates.shape[1] < few:  # fewer neighbours than classes they may bring
        candidates = np.concatenate([candidates, np.repeat(labels[:, None], few - candidates.shape[1], axis=1)], axis=1)
    equal = np.tril(candidates[:, :, None] == candidates[:, None, :], -1)
    return candidates, equal.any(axis=2)


class _Linear:
    """The linear classifiers of the items of a fold; `masses (C,)` are the sums of the weights."""

    def __init__(self, points: torch.Tensor, classes: Integers, weights: Floats, count: int) -> None:
        y, w = torch.from_numpy(classes), torch.from_numpy(weights)
        total = float(w.sum())
        masses = torch.zeros(count, dtype=torch.float64).index_add_(0, y, w)
        means = _means(points, y, w, masses)
        deviations = means[y]  # in place from here on: it is as large as the points
        torch.sub(points, deviations, out=deviations).mul_(w.sqrt()[:, None])
        free = max(total - int((masses > 0).sum()), 1.0)
        covariance = deviations.T @ deviations / free
        width = len(covariance)
        level = float(covariance.trace()) / width
        squares = float(covariance.square().sum())
        fourth = float(deviations.square_().sum(dim=1).square().sum())
        spread = (fourth / total - squares * (free / total) ** 2) / total
        del deviations
        shrinkage = min(1.0, max(0.0, spread / max(squares - width * level**2, 1e-300)))
        self._flat = level <= 1e-300
        shrunk = (1 - shrinkage) * covariance + shrinkage * level * torch.eye(width, dtype=torch.float64)
        values, axes = torch.linalg.eigh(shrunk)
        whiten = axes / values.clamp_min(max(1e-10 * level, 1e-300)).sqrt()
        self._rows = (points - means.mean(dim=0)) @ whiten
        self._means = _means(self._rows, y, w, masses)
        self._classes, self._weights, self._factor = y, w, (1 - shrinkage) / free
        self.masses = masses.numpy()

    def scores(self, rows_slice: slice) -> Floats:
        """Scores `(n, C)` of some items by the classifiers without the item itself; 0 where all points coincide."""
        rows, y, w, means = self._rows[rows_slice], self._classes[rows_slice], self._weights[rows_slice], self._means
        masses = torch.from_numpy(self.masses)
        if self._flat:
            return np.zeros((len(rows), len(masses)))
        deviations = rows - means[y]  # v
        length = deviations.square().sum(dim=1)
        rest = (masses[y] - w).clamp_min(1e-9)
        removed = self._factor * w * masses[y] / rest
        # Sherman-Morrison: x' (1 - a v v')^-1 x = x'x + a (v'x)^2 / (1 - a v'v), with x the item less a mean.
        gain = removed / (1 - removed * length).clamp_min(1e-6)
        squared = rows.square().sum(dim=1)[:, None] - 2 * rows @ means.T + means.square().sum(dim=1)
        along = (deviations * rows).sum(dim=1)[:, None] - deviations @ means.T
        squared += gain[:, None] * along.square()
        to_mean = (masses[y] / rest).square() * (length + gain * length.square())
        squared[torch.arange(len(rows)), y] = to_mean
        shares = masses.clamp_min(1e-9).log() - float(masses.sum().log())
        return np.asarray((shares - squared / 2).numpy())


def _means(rows: torch.Tensor, y: torch.Tensor, w: torch.Tensor, masses: torch.Tensor) -> torch.Tensor:
    means = torch.zeros((len(masses), rows.shape[1]), dtype=torch.float64).index_add_(0, y, w[:, None] * rows)
    return means / masses.clamp_min(1e-9)[:, None]
