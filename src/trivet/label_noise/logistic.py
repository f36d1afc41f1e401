"""Multinomial logistic regression, out of fold: what it says of an item comes from a fit without that item."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from trivet.metrics.folds import stratified_folds
from trivet.runtime.arrays import Floats, Integers
from trivet.runtime.progress import steps

FOLDS = 5
FITTED = 20_000  # items that a fold is fitted to at most
ENTRIES = 2**23  # items times classes that a fold is fitted to at most
CLASSES = 1000  # of more, no classifier is fitted
PENALTY = 30.0  # of half the squared weights, beside the sum of the losses; rows have a mean squared entry of 1
ITERATIONS = 20  # of L-BFGS; to stop early keeps the classifier smooth as well


class Logistic:
    """Classifiers of the items `(N, d)` of one fold of networks, each fitted to four fifths of them, at most 20,000.

    Where classes are not normally distributed, as counts of n-grams are not, it separates them better than linear
    discriminant analysis; where they are and items are few, it is worse. Items count by their weights in [0, 1], and
    `fold (N,)` is the fifth of each, stratified by class.
    """

    def __init__(self, points: torch.Tensor, classes: Integers, weights: Floats, count: int, *, seed: int) -> None:
        random = np.random.default_rng(seed)
        centred = points - points.mean(dim=0)
        self._rows = (centred / centred.square().mean().sqrt().clamp_min(1e-150)).float()
        self.fold = stratified_folds(classes, FOLDS, random)
        most = min(FITTED, ENTRIES // count)
        self._weights: list[torch.Tensor] = []
        for fold in steps(range(FOLDS), "logistic regression, folds"):
            others = np.flatnonzero(self.fold != fold)
            if len(others) > most:
                others = np.sort(random.permutation(others)[:most])
            some = torch.from_numpy(others)
            self._weights.append(_fit(self._rows[some], classes[others], weights[others], count))

    def logs(self, rows_slice: slice) -> Floats:
        """Logarithms of the probabilities of the classes `(n, C)` of some items."""
        rows, fold = self._rows[rows_slice], self.fold[rows_slice]
        logs = np.empty((len(rows), self._weights[0].shape[1]))
        for number, weights in enumerate(self._weights):
            members = np.flatnonzero(fold == number)
            logits = torch.addmm(weights[-1], rows[torch.from_numpy(members)], weights[:-1])
            logs[members] = logits.double().log_softmax(dim=1).numpy()
        return logs


def _fit(rows: torch.Tensor, classes: Integers, counted: Floats, count: int) -> torch.Tensor:
    labels, position, each = torch.from_numpy(classes), torch.arange(len(rows)), torch.from_numpy(counted).float()

    def loss(logits: torch.Tensor) -> tuple[float, torch.Tensor]:
        total = logits.logsumexp(dim=1)
        value = float((each * (total - logits[position, labels])).double().sum())
        errors = (logits - total[:, None]).exp_()
        errors[position, labels] -= 1
        errors *= each[:, None]
        return value, errors

    return fit_weights(rows, np.zeros((rows.shape[1] + 1, count)), loss, ITERATIONS)


def fit_weights(
    rows: torch.Tensor, start: Floats, loss: Callable[[torch.Tensor], tuple[float, torch.Tensor]], iterations: int
) -> torch.Tensor:
    """Weights `(d + 1, C)`, the last row being the intercepts, of the least loss with the penalty.

    Args:
        rows: `(n, d)`.
        start: the first weights.
        loss: of logits `(n, C)`, and its derivatives by them.
    """
    from scipy.optimize import minimize

    items = len(rows)

    def penalised(flat: Floats) -> tuple[float, Floats]:
        weights = torch.from_numpy(flat).float().reshape(start.shape)
        value, errors = loss(torch.addmm(weights[-1], rows, weights[:-1]))
        value += PENALTY / 2 * float(weights[:-1].double().square().sum())
        slope = torch.empty_like(weights)
        torch.addmm(weights[:-1], rows.T, errors, beta=PENALTY, out=slope[:-1])
        torch.sum(errors, dim=0, out=slope[-1])
        return value / items, (slope.double() / items).numpy().ravel()

    solution = minimize(penalised, start.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": iterations})
    return torch.from_numpy(solution.x).float().reshape(start.shape)
