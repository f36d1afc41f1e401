"""Scores of each tag for each item, by the other items: logistic regression out of fold, and the neighbours."""

from __future__ import annotations

import numpy as np
import torch
from scipy import sparse
from torch.nn.functional import softplus

from trivet.label_noise.classifiers import STRENGTH
from trivet.label_noise.logistic import FITTED, FOLDS, fit_weights
from trivet.label_noise.neighbourhoods import NEIGHBOURS, LabelledPoints, find_neighborhoods
from trivet.runtime.arrays import Booleans, Floats, Integers
from trivet.runtime.progress import steps

BAND = 10  # the distance to this neighbour is the width of the weights
ITERATIONS = 40  # of L-BFGS
LEAST = 1e-6  # share of a tag among the neighbours


def tag_scores(setting: LabelledPoints, carried: Booleans, seed: int) -> Floats:
    """Scores `(N, T, 3)`: log odds by the neighbours, by logistic regression, and of the share of the tag.

    Equal rows say nothing of each other.
    """
    share = np.clip(carried.mean(axis=0), LEAST, 1 - LEAST)
    around = find_neighborhoods(setting, min(NEIGHBOURS, setting.comparable))
    band = around.distances[:, [min(BAND, around.distances.shape[1]) - 1]]
    weights = np.where(around.distances > 0, np.exp(-((around.distances / np.maximum(band, 1e-300)) ** 2)), 0.0)
    count, neighbours = weights.shape
    offsets = np.arange(count + 1) * neighbours
    near = sparse.csr_array((weights.ravel(), around.indices.ravel(), offsets), shape=(count, count))
    shares = (near @ carried.astype(np.float64) + STRENGTH * share) / (weights.sum(axis=1)[:, None] + STRENGTH)
    odds = np.broadcast_to(_log_odds(share), carried.shape)
    by_neighbours = _log_odds(np.clip(shares, LEAST, 1 - LEAST))
    return np.stack([by_neighbours, _logits(setting.points, carried, share, np.random.default_rng(seed)), odds], axis=2)


def _logits(points: torch.Tensor, carried: Booleans, share: Floats, random: np.random.Generator) -> Floats:
    """Logits `(N, T)` by logistic regressions on the items of other folds."""
    centred = points - points.mean(dim=0)
    rows = (centred / centred.square().mean().sqrt().clamp_min(1e-150)).float()
    content = np.unique(points.numpy(), axis=0, return_inverse=True)[1].ravel()
    fold_of = (random.permutation(int(content.max()) + 1) % FOLDS)[content]
    logits = np.empty(carried.shape)
    for fold in steps(range(FOLDS), "logistic regression of the tags, folds"):
        others = np.flatnonzero(fold_of != fold)
        if len(others) > FITTED:
            others = np.sort(random.permutation(others)[:FITTED])
        weights = _fit(rows[torch.from_numpy(others)], carried[others], share)
        items: Integers = np.flatnonzero(fold_of == fold)
        logits[items] = torch.addmm(weights[-1], rows[torch.from_numpy(items)], weights[:-1]).numpy()
    return logits


def _log_odds(share: Floats) -> Floats:
    return np.asarray(np.log(share) - np.log1p(-share))


def _fit(rows: torch.Tensor, carried: Booleans, share: Floats) -> torch.Tensor:
    targets = torch.from_numpy(carried).float()

    def loss(logits: torch.Tensor) -> tuple[float, torch.Tensor]:
        value = float((softplus(logits) - targets * logits).double().sum())
        return value, logits.sigmoid_() - targets

    start = np.zeros((rows.shape[1] + 1, carried.shape[1]))
    start[-1] = _log_odds(share)
    return fit_weights(rows, start, loss, ITERATIONS)
