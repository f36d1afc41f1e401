"""Synthetic embeddings with noisy labels, and how skewed the choice of negatives is on them: section 4.2."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
import torch

from trivet.mining import mine
from trivet.runtime.arrays import Booleans, Floats, Integers

MARGIN, BETA = 0.2, 1.4
Negatives = Literal["random", "violating", "semihard-hardest"]


class SkewSampling(NamedTuple):
    """Effect of a way of choosing negatives on the synthetic embeddings of `sampled_skews`."""

    preference: Floats  # rho_b of ten bins of the rank of the negative: picks, over what uniform picks would give
    noise_skew: float  # how much more often than uniformly a negative of the anchor's own class is picked; NaN if none
    picks: int
    active_positives: float  # the share of the positive pairs with a margin loss above 0
    positive_skew: float  # eta^+, eta^- of the margin loss; NaN if no positive pair is active
    negative_skew: float

    @property
    def skew(self) -> float:
        """eta: the largest preference of a bin."""
        return float(self.preference.max())


def sampled_skews(spread: float, noise_rate: float, negatives: Negatives, *, batches: int) -> SkewSampling:
    """The skews of a way of choosing negatives, measured on synthetic embeddings.

    100 classes of 50 points around random centres on the unit sphere of 64 dimensions, with symmetric noise; batches of
    12 observed classes of 5. Ranks are those of the distances to the anchor among its observed negatives.

    Args:
        spread: the standard deviation of each coordinate around the centre, before rows are normalised.
        noise_rate: p in [0, 1).
        negatives: "random" for a uniform choice, "violating" for the paper's random semi-hard (eq. 28),
            "semihard-hardest" for its fixed semi-hard (eq. 29).
        batches: how many.
    """
    classes, samples, bins = 100, 50, 10
    generator = np.random.default_rng(9)
    truth = np.repeat(np.arange(classes), samples)
    rows = unit_points(classes, 64, seed=10)[truth] + spread * generator.standard_normal((len(truth), 64))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    observed = observed_labels(truth, noise_rate, classes, generator)
    drawn = torch.Generator().manual_seed(0)
    picked, possible = np.zeros(bins), np.zeros(bins)
    wrong, wrong_possible, picks = 0, 0.0, 0
    edges = np.linspace(0, 2, 21)
    of_positives, of_picks, of_candidates = (np.zeros((2, 20)) for _ in range(3))  # inactive and active, by distance
    for _ in range(batches):
        chosen = generator.choice(np.flatnonzero(np.bincount(observed, minlength=classes) >= 5), 12, replace=False)
        batch = np.concatenate([generator.choice(np.flatnonzero(observed == k), 5, replace=False) for k in chosen])
        labels = observed[batch]
        d = distances_of(rows[batch])
        same, different = pairs_of(labels)
        true_mates = truth[batch][:, None] == truth[batch]
        triplets = mine(
            torch.from_numpy(rows[batch]),
            torch.from_numpy(labels),
            positives="all",
            negatives=negatives,
            margin=MARGIN,
            distance="euclidean",
            generator=drawn,
        )
        a, n = triplets.anchor.numpy(), triplets.negative.numpy()
        count = different.sum(axis=1)[a]  # m, of each pick
        rank = (different[a] & (d[a] < d[a, n][:, None])).sum(axis=1)
        picked += np.bincount(bins * rank // count, minlength=bins)
        for size, times in zip(*np.unique(count, return_counts=True), strict=True):
            possible += times * np.bincount(bins * np.arange(size) // size, minlength=bins) / size
        wrong += int(true_mates[a, n].sum())
        wrong_possible += float(((different & true_mates).sum(axis=1)[a] / count).sum())
        picks += len(a)
        for table, values, active in (
            (of_positives, d[same], d[same] > BETA - MARGIN),
            (of_picks, d[a, n], d[a, n] < BETA + MARGIN),
            (of_candidates, d[a][different[a]], np.ones(int(count.sum()), dtype=bool)),
        ):
            for k in (0, 1):
                table[k] += np.histogram(values[active == k], edges)[0]
    positives, active = of_positives.sum(axis=0), of_positives[1]
    usable = (positives >= 50) & (active > 0)
    pulls = (active / max(active.sum(), 1))[usable] / (positives / positives.sum())[usable]
    candidates, active_picks = of_candidates[1], of_picks[1]
    usable = (candidates >= 50) & (active_picks > 0)
    pushes = (active_picks / max(active_picks.sum(), 1))[usable] / (candidates / candidates.sum())[usable]
    return SkewSampling(
        picked / possible,
        wrong / wrong_possible if wrong_possible else np.nan,
        picks,
        float(active.sum() / positives.sum()),
        float(pulls.max()) if len(pulls) else np.nan,
        float(pushes.min()) if len(pushes) else np.nan,
    )


def unit_points(count: int, dimension: int, *, seed: int) -> Floats:
    rows = np.random.default_rng(seed).standard_normal((count, dimension))
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))


def distances_of(rows: Floats) -> Floats:
    return np.asarray(np.linalg.norm(rows[:, None] - rows, axis=2))


def observed_labels(labels: Integers, noise_rate: float, num_classes: int, generator: np.random.Generator) -> Integers:
    moves = generator.integers(1, num_classes, len(labels))
    return (labels + np.where(generator.random(len(labels)) < noise_rate, moves, 0)) % num_classes


def pairs_of(labels: Integers) -> tuple[Booleans, Booleans]:
    """Positive and negative pairs `(..., N, N)` of labels `(..., N)`, without an item and itself."""
    same = labels[..., :, None] == labels[..., None, :]
    return same & ~np.eye(labels.shape[-1], dtype=bool), ~same
