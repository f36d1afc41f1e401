"""Labels redrawn with known mistakes on the same embedding: how much of a lower end is wrong, and how sure to be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from trivet.label_noise.classifiers import ClassScores, class_scores
from trivet.label_noise.neighbourhoods import LabelledPoints, Neighborhoods
from trivet.label_noise.posterior import Posterior, drawn_columns, fit_posterior
from trivet.runtime.arrays import Booleans, Floats, Integers
from trivet.runtime.progress import steps

SIMULATED = 2  # draws
MOST = 0.9  # share of the labels of a class that are wrong
SUREST, FLATTEST = 40.0, 0.1  # log odds and slope at most and at least


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
