"""Labels redrawn from fitted models on the same embedding: what overlap shows, and how much of a lower end is wrong."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch

from trivet.label_noise.classifiers import ClassScores, class_scores
from trivet.label_noise.neighbourhoods import NEIGHBOURS, LabelledPoints, Neighborhoods, find_neighborhoods
from trivet.label_noise.posterior import Overlap, Posterior, drawn_columns, fit_overlap, fit_posterior
from trivet.runtime.arrays import Booleans, Floats, Integers
from trivet.runtime.progress import steps

ITEMS, PER_CLASS, AXES = 2000, 20, 128  # items and principal axes that labels are redrawn on, at most
SEARCHES, REDRAWS, SIMULATED = 4, 12, 2
MOST = 0.9  # share of the labels of a class that are wrong
DEEPEST = (0.3, 0.6)
SUREST, FLATTEST = 40.0, 0.1  # log odds and slope at most and at least
CLOSE = 0.01  # how near the agreement of a redraw is to be to that of the labels for the search to end


def overlap_excess(setting: LabelledPoints, seed: int) -> float:
    """Standard deviations by which more of the deepest labels disagree than if classes only overlapped.

    p(c | x) is fitted as if all labels were right (`posterior.fit_overlap`). A classifier of redrawn labels agrees with
    them less often than that of the labels themselves, for it adds its own errors; so all powers of p are multiplied by
    the one number with which it agrees as often. Then labels are drawn from p twelve times, and each time p is fitted
    again. Overlap makes labels disagree the less, the surer the embedding is; wrong labels fall everywhere. So more of
    the deepest disagree than of these redraws: `deep_shares`, of which that with the larger excess counts.

    At most 2,000 items, or 20 for each class, are redrawn, in their first 128 principal axes.

    Source:
        A parametric bootstrap: Efron, Tibshirani, "An Introduction to the Bootstrap", 1993, chapter 6. The rest is
        chosen here.
    """
    random = np.random.default_rng(seed)
    setting = _smaller(setting, random)
    around = find_neighborhoods(setting, max(1, min(NEIGHBOURS, setting.comparable)))
    first = _overlap(setting, around, setting.classes)
    disagrees = first.best != setting.classes

    def redrawn(log: float) -> tuple[Booleans, Floats]:
        drawn = first.draw(math.exp(log), random)
        fitted = _overlap(setting, around, drawn)
        return fitted.best != drawn, fitted.depth

    log = _stretch(lambda log: 1 - float(redrawn(log)[0].mean()), 1 - float(disagrees.mean()))
    shares = np.array([deep_shares(*redrawn(log)) for _ in steps(range(REDRAWS), "labels redrawn from overlap")])
    mean, few = shares.mean(axis=0), 0.75 * np.array(DEEPEST) * max(1.0, float(disagrees.sum()))
    deviation = np.sqrt(np.maximum(shares.var(axis=0, ddof=1), np.maximum(mean, 1 / few) / few))  # Poisson at least
    return float(((deep_shares(disagrees, first.depth) - mean) / deviation).max())


def deep_shares(disagrees: Booleans, depth: Floats) -> Floats:
    """Shares that disagree of the deepest 0.3 and 0.6 of the items, in units of the share of all.

    Items weigh from 1 for the deepest down to 0. The ratios are 1 if labels disagree everywhere alike, and 0 if none of
    the deepest does.
    """
    _, inverse, counts = np.unique(depth, return_inverse=True, return_counts=True)
    ranks = -(counts.cumsum() - (counts - 1) / 2)[inverse] / len(depth)  # equal ones share theirs
    weights = np.maximum(0.0, 1 - (ranks - ranks.min())[:, None] / np.array(DEEPEST))
    return np.asarray(disagrees @ weights / weights.sum(axis=0) / max(float(disagrees.mean()), 1e-300))


class RedrawnMistakes(NamedTuple):
    """Mistakes that are known, in redraws.

    Attributes:
        share: of the labels, relative to the lower end that is read from them; in [0, 1].
        slope: by which the log odds that a label is wrong are to be multiplied, in (0, 1].
    """

    share: float
    slope: float


def redrawn_mistakes(
    setting: LabelledPoints,
    around: Neighborhoods,
    views: ClassScores,
    first: Posterior,
    least: float,
    read: Callable[[Posterior, Integers], float],
    seed: int,
) -> RedrawnMistakes:
    """Redraw labels with mistakes, to see how many of them a fit finds and how sure it should be of each.

    True classes are drawn from p(c | x) and labels from p T on this embedding, T sending the share `least` of the items
    to where the fitted one does. With few items in a class the fit is surer than it should be, and takes some overlap
    for mistakes: of redrawn labels it is known which are wrong. Their logistic regression on the log odds of the
    fit gives the slope.

    Args:
        read: the lower end of a model and its labels.

    Source:
        Platt, "Probabilistic outputs for support vector machines", 1999 (the regression; here on redraws).
    """
    random, count = np.random.default_rng(seed), len(setting.values)
    rows = np.arange(len(setting.classes))
    logs = views.scores @ first.powers + np.where(views.repeated, -np.inf, 0.0)
    off = np.ones((count, count)) if first.transition is None else first.transition.copy()
    np.fill_diagonal(off, 0.0)
    off *= least / max(float(off.sum(axis=1)[first.best].mean()), 1e-300)
    off /= np.maximum(1.0, off.sum(axis=1, keepdims=True) / MOST)
    np.fill_diagonal(off, 1 - off.sum(axis=1))
    wrongs: list[Booleans] = []
    ends, odds = [], []
    for _ in steps(range(SIMULATED), "labels redrawn with mistakes"):
        truth = views.candidates[rows, drawn_columns(np.exp(logs - logs.max(axis=1, keepdims=True)), random)]
        labels = drawn_columns(off[truth], random)
        judged = class_scores(replace(setting, classes=labels), around, np.ones(len(rows)), ())
        model = fit_posterior(judged, labels, count, seed=seed)
        wrongs.append(truth != labels)
        ends.append(read(model, labels))
        odds.append(model.doubt)
    share = sum(float(wrong.mean()) for wrong in wrongs) / max(sum(ends), 1e-300)
    return RedrawnMistakes(min(1.0, share), _slope(np.concatenate(odds), np.concatenate(wrongs)))


def _slope(odds: Floats, wrong: Booleans) -> float:
    """The slope of a logistic regression of what is wrong on log odds, in (0, 1]; 1 where all or none is."""
    from scipy.optimize import minimize

    if wrong.all() or not wrong.any():
        return 1.0
    odds = np.clip(odds, -SUREST, SUREST)

    def loss(line: Floats) -> float:
        fitted = line[0] * odds + line[1]
        return float((np.logaddexp(0, fitted) - wrong * fitted).mean())

    return float(np.clip(minimize(loss, np.array([1.0, 0.0])).x[0], FLATTEST, 1.0))


def _overlap(setting: LabelledPoints, around: Neighborhoods, classes: Integers) -> Overlap:
    views = class_scores(replace(setting, classes=classes), around, np.ones(len(classes)), ())
    return fit_overlap(views, classes, len(setting.values))


def _stretch(agreement: Callable[[float], float], wanted: float) -> float:
    """The logarithm that gives redraws nearly the wanted agreement, by secants; the best of those tried."""
    tried: list[tuple[float, float]] = []
    log = 0.0
    for _ in range(SEARCHES):
        tried.append((agreement(log), log))
        nearest, log = min(tried, key=lambda pair: abs(pair[0] - wanted))
        if abs(nearest - wanted) <= CLOSE:
            break
        slope = 0.25
        if len(tried) > 1:
            other, at = sorted(tried, key=lambda pair: abs(pair[0] - wanted))[1]
            slope = float(np.clip((nearest - other) / (log - at), 0.05, 1.0)) if log != at else slope
        log += float(np.clip((wanted - nearest) / slope, -1.0, 1.0))
    return min(tried, key=lambda pair: abs(pair[0] - wanted))[1]


def _smaller(setting: LabelledPoints, random: np.random.Generator) -> LabelledPoints:
    """Some of the items in their first principal axes; all where there are few."""
    most = max(ITEMS, PER_CLASS * len(setting.values))
    if len(setting.classes) > most:
        setting = setting.subset(np.sort(random.permutation(len(setting.classes))[:most])) or setting
    points = setting.points - setting.points.mean(dim=0)
    if points.shape[1] > AXES:  # randomised subspace iteration
        axes = torch.from_numpy(random.normal(size=(points.shape[1], AXES)))
        for _ in range(3):
            axes = torch.linalg.qr(points.T @ (points @ axes)).Q
        points = points @ axes
    return replace(setting, points=points)
