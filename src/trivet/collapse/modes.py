"""Modes of a class: how many separate blobs its points form, compared with one Gaussian of any shape."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from trivet.collapse.spread import class_members, fine_coarse_index
from trivet.distances import Array, as_classes, as_rows
from trivet.runtime.arrays import Booleans, Floats, Integers

LEAST = 20  # points; fewer are one mode
LARGEST = 1000  # points; of more, so many are drawn at random
AXES = 8  # principal axes that are looked at
SPLIT_SIZE = 5  # points in each part of a split
VALLEY, SLACK = 0.6, 0.7  # points at a cut over the m of the sparser part: at most 0.6 + 0.7 / sqrt(m)
SIGNIFICANCE = 0.045
SPLIT = 0.01  # chance that a mode is seen in any class where there is none
COMPARED = 200  # classes whose modes are compared with each other; of more, some at even distances

Reason = Literal["split", "one Gaussian", "no valley", "too few", "constant"]


@dataclass(frozen=True)
class Split:
    """The cut of a set of points in two that one Gaussian is least likely to allow."""

    share: float  # of the variance along the best axis that is left inside two parts
    expected: float  # that share's mean for one Gaussian, about 0.36
    threshold: float  # the largest share that counts as two parts on this axis
    p_value: float  # chance of a share as small on any axis for one Gaussian, at most
    # points around the cut over points in the fullest place of the sparser part, in windows of equal width.
    valley: float
    valley_threshold: float  # the largest `valley` that separates two parts
    upper: Booleans  # `(n,)` the points above the cut

    @property
    def reason(self) -> Reason:
        if self.share > self.threshold:
            return "one Gaussian"
        return "split" if self.valley <= self.valley_threshold else "no valley"


@dataclass(frozen=True, eq=False)
class Modes:
    """The modes of a set of points and what speaks for them.

    Attributes:
        count: of modes, at least 1.
        assignment: `(n,)` the mode of each point, 0 .. count - 1, the largest first; -1 for a point that was not drawn.
        reason: "split" for two modes or more; else why it is one: "one Gaussian" (no axis falls into two parts more
            than a Gaussian would), "no valley" (one does, but the points between the parts lie denser than in one of
            them), "too few" points, or a "constant" set.
        split: of the whole set, before any other; None if no axis was looked at.
    """

    count: int
    assignment: Integers
    reason: Reason
    split: Split | None = None


@dataclass(frozen=True, eq=False)
class ClassModes:
    """The modes of each class; C classes."""

    labels: npt.NDArray[Any]  # (C,) the label of each class, ascending
    modes: tuple[Modes, ...]  # C

    @property
    def counts(self) -> Integers:
        """Modes of each class `(C,)`."""
        return np.array([modes.count for modes in self.modes], np.int64)

    @property
    def mean(self) -> float:
        """Mean number of modes of a class, at least 1."""
        return float(self.counts.mean())


def count_modes(points: Array, *, seed: int = 0, significance: float = SIGNIFICANCE) -> Modes:
    """The number of modes of a set of points, by splitting it in two as long as no part looks like one Gaussian.

    Along each of the first 8 principal axes the points are cut in two where the least variance is left inside the
    parts. For n points of one Gaussian, whatever its covariance, the principal scores point in a uniformly random
    direction of the n - 1 centred ones, so the share s of the variance that is left has the same distribution on every
    axis, about normal with

        mean 1 - 2/pi - 1/n  and  standard deviation sqrt((8/pi - 24/pi^2) / n) (1 - 2.7/n).

    The set is split on the axis where s is least likely, if that is rarer than `significance`, of which axis j gets a
    part proportional to 3^-j, and if there is a valley: of windows a sixth of the distance of the two means to either
    side, the one at the cut holds at most 0.6 + 0.7 / sqrt(m) times the m points of the fullest one in the part where
    that is emptier. Without this second condition flat shapes would be cut to pieces. The parts are treated in the same
    way, each with its share n_part / n of `significance`.

    Scale, rotation and shift change nothing. In 200 trials each (studies/diagnosis.py) one Gaussian gives one mode in
    at least 95 %, and two of equal size, 4 standard deviations apart along the longest axis, give two in at least 85 %
    but where n = 40 points have 128 dimensions. What lies apart along a short axis only is seen no better than its rank
    among the axes allows. A flat shape, such as a uniform cube, may give two for small n.

    Args:
        points: `(n, d)` floating point. Fewer than 20 are one mode; of more than 1000, so many are drawn at random.
            Equal points, or points that differ by rounding alone, are one mode.
        seed: of that draw, not negative.
        significance: chance of more than one mode for one Gaussian, at most, in (0, 1).

    Source:
        Recursive splits against a Gaussian: Hamerly, Elkan, "Learning the k in k-means", NIPS 2003; the share of
        significance of a part: Kimes, Liu, Hayes, Marron, "Statistical significance for hierarchical clustering",
        Biometrics 2017. The distribution of s: Hartigan, "Asymptotic distributions for clustering criteria", Annals
        of Statistics 1978; the terms in 1/n are fitted.

    Example:
        >>> one = torch.special.ndtri(torch.linspace(0.01, 0.99, 50))[:, None]
        >>> count_modes(one).count, count_modes(torch.cat([one, one + 5])).count
        (1, 2)
    """
    _check(seed, significance)
    if not len(points):
        raise ValueError("points must hold at least one point: got none.")
    return _count(as_rows(points).cpu().numpy(), _rounding(points), seed, significance)


def class_modes(embeddings: Array, labels: Array, *, seed: int = 0, significance: float = SIGNIFICANCE) -> ClassModes:
    """`count_modes` of each class.

    Args:
        embeddings: `(N, d)` floating point.
        labels: `(N,)` of any integer dtype.
        seed, significance: as in `count_modes`; each class is drawn from by the same seed.

    Example:
        >>> one = torch.special.ndtri(torch.linspace(0.01, 0.99, 50))[:, None]
        >>> modes = class_modes(torch.cat([one, one + 5, one]), np.repeat([7, 7, 9], 50))
        >>> modes.counts.tolist(), modes.mean
        ([2, 1], 1.5)
    """
    _check(seed, significance)
    rows = as_rows(embeddings).cpu().numpy()
    if not len(rows):
        raise ValueError("embeddings must hold at least one item: got none.")
    classes = as_classes(labels, count=len(rows)).numpy()
    tolerance = _rounding(embeddings)
    return ClassModes(
        labels=np.unique(np.asarray(labels)),
        modes=tuple(_count(rows[items], tolerance, seed, significance) for items in class_members(classes)),
    )


def mode_sharing(embeddings: Array, labels: Array, modes: ClassModes) -> float | None:
    """Measure how far the modes of one class part the others, too: the share along the modes of another class.

    Between the modes of a class, their centroids less that of all of them, each weighted by its items, span a space.
    The share of their squared lengths that lies in the space of another class is averaged over all ordered pairs of
    classes. It is about 1 where the same thing differs in each class, such as the device that took a picture, and small
    where classes are made of unrelated things: at most 0.32 in 52 unions of classes of real data sets
    (studies/diagnosis.py, reference-modes).

    Args:
        embeddings: `(N, d)` floating point.
        labels: `(N,)` of any integer dtype.
        modes: of these classes; some of those with two modes or more are compared where there are over 200.

    Returns:
        In [0, 1]; None where fewer than two classes have two modes.

    Example:
        >>> one = torch.special.ndtri(torch.linspace(0.01, 0.99, 50))
        >>> a, b = (torch.cat([one - 4, one + 4]), torch.cat([0 * one, 0 * one]))
        >>> points, labels = torch.stack([torch.cat([a, a]), torch.cat([b, b])], dim=1), np.repeat([0, 1], 100)
        >>> round(mode_sharing(points, labels, class_modes(points, labels)), 6)
        1.0
    """
    rows = as_rows(embeddings).cpu().numpy()
    classes = as_classes(labels, count=len(rows)).numpy()
    split = np.flatnonzero(modes.counts > 1)
    if len(split) < 2:
        return None
    split = split[np.unique(np.linspace(0, len(split) - 1, min(COMPARED, len(split))).round().astype(int))]
    offsets, spaces = [], []
    for number in split.tolist():
        members, of = rows[classes == number], modes.modes[number]
        sizes = np.bincount(of.assignment[of.assignment >= 0])
        means = np.stack([members[of.assignment == mode].mean(axis=0) for mode in range(of.count)])
        offset = np.sqrt(sizes / sizes.sum())[:, None] * (means - np.average(means, axis=0, weights=sizes))
        _, lengths, axes = np.linalg.svd(offset, full_matrices=False)
        offsets.append(offset)
        spaces.append(axes[lengths > lengths.max() * 1e-6])
    products = (np.concatenate(offsets) @ np.concatenate(spaces).T) ** 2
    for axis, chunks in enumerate((offsets, spaces)):
        products = np.add.reduceat(products, np.cumsum([0, *map(len, chunks[:-1])]), axis=axis)
    shares = products / np.array([(offset**2).sum() for offset in offsets])[:, None]
    return float(np.minimum(shares, 1)[~np.eye(len(split), dtype=bool)].mean())


def _check(seed: int, significance: float) -> None:
    if seed < 0:
        raise ValueError(f"seed must not be negative: got {seed}.")
    if not 0 < significance < 1:
        raise ValueError(f"significance must be above 0 and below 1: got {significance}.")


def _rounding(points: Array) -> float:
    """Differences up to this part of the largest coordinate are rounding."""
    precision = torch.finfo(points.dtype) if isinstance(points, Tensor) else np.finfo(points.dtype)
    return 8 * max(float(precision.eps), float(np.finfo(np.float64).eps))


def _count(rows: Floats, tolerance: float, seed: int, significance: float) -> Modes:
    assignment = np.full(len(rows), -1, np.int64)
    drawn = np.arange(len(rows))
    if len(rows) > LARGEST:
        drawn = np.sort(np.random.default_rng(seed).permutation(len(rows))[:LARGEST])
    size = float(np.abs(rows).max())
    rows = (rows[drawn] - rows[drawn[0]]) / (size or 1.0)  # less a row and not the mean: equal rows become exactly 0
    first = _best_split(rows, tolerance, significance)
    chunks = sorted(_chunks(rows, np.arange(len(rows)), first, tolerance, significance), key=len, reverse=True)
    for number, block in enumerate(chunks):
        assignment[drawn[block]] = number
    if first is None:
        reason: Reason = "constant" if len(rows) >= LEAST or np.abs(rows).max() <= tolerance else "too few"
        return Modes(1, assignment, reason)
    return Modes(len(chunks), assignment, first.reason, first)


def _chunks(
    rows: Floats, items: Integers, split: Split | None, tolerance: float, significance: float
) -> Iterator[Integers]:
    """The items `(m,)` as one part or, split, as the parts of both halves."""
    if split is None or split.reason != "split":
        yield items
        return
    for half in (items[split.upper], items[~split.upper]):
        share = significance * len(half) / len(items)
        yield from _chunks(rows, half, _best_split(rows[half], tolerance, share), tolerance, share)


def _best_split(rows: Floats, tolerance: float, significance: float) -> Split | None:
    """The cut of `(n, d)` points in two that one Gaussian is least likely to allow; None if there is no axis to cut."""
    from scipy.special import ndtr, ndtri

    n = len(rows)
    if n < LEAST:
        return None
    scores = _principal_scores(rows, tolerance)
    if not scores.shape[1]:
        return None
    share, cut = _shares(scores)
    expected, deviation = _single_gaussian(n)
    weights = 3.0 ** -np.arange(1, len(share) + 1)
    weights /= weights.sum()
    p_values = ndtr((share - expected) / deviation) / weights
    upper = scores > cut
    valleys, limits = _valleys(scores, cut)
    # An axis with a valley goes before one without: along that one the points are flat, not in two parts.
    axis = int(np.lexsort((p_values, valleys > limits))[0])
    if p_values[axis] > significance:
        axis = int(np.argmin(p_values))
    return Split(
        share=float(share[axis]),
        expected=expected,
        threshold=expected + deviation * float(ndtri(significance * weights[axis])),
        p_value=min(1.0, float(p_values[axis])),
        valley=float(valleys[axis]),
        valley_threshold=float(limits[axis]),
        upper=upper[:, axis],
    )


def _principal_scores(rows: Floats, tolerance: float) -> Floats:
    """Coordinates `(n, j)` along the first principal axes, each centred and of length 1; axes of rounding left out."""
    centred = rows - rows.mean(axis=0)
    n, d = centred.shape
    wide = d > n
    squares, vectors = np.linalg.eigh(centred @ centred.T if wide else centred.T @ centred)
    axes = np.flatnonzero(squares > n * tolerance**2)[::-1][: min(AXES, n - 1)]
    scores = vectors[:, axes] if wide else centred @ vectors[:, axes]
    lengths = np.linalg.norm(scores, axis=0)
    return np.asarray(scores[:, lengths > 0] / lengths[lengths > 0], np.float64)


def _shares(scores: Floats) -> tuple[Floats, Floats]:
    """Least share of the variance of each column `(n, j)` inside two parts `(j,)`, and the cut between them."""
    n = len(scores)
    ordered = np.sort(scores, axis=0)
    below = np.cumsum(ordered, axis=0)[SPLIT_SIZE - 1 : n - SPLIT_SIZE]
    size = np.arange(SPLIT_SIZE, n - SPLIT_SIZE + 1)[:, None]
    # Equal values cannot be parted.
    gap = ordered[SPLIT_SIZE : n - SPLIT_SIZE + 1] > ordered[SPLIT_SIZE - 1 : n - SPLIT_SIZE]
    between = np.where(gap, below**2 * n / (size * (n - size)), 0.0)
    best = between.argmax(axis=0)
    columns = np.arange(scores.shape[1])
    cut = (ordered[best + SPLIT_SIZE - 1, columns] + ordered[best + SPLIT_SIZE, columns]) / 2
    return np.clip(1 - between[best, columns], 0, 1), cut


def _single_gaussian(n: int) -> tuple[float, float]:
    """Mean and standard deviation of the least share for n points of a Gaussian."""
    mean = 1 - 2 / math.pi - 1 / n
    return mean, math.sqrt((8 / math.pi - 24 / math.pi**2) / n) * (1 - 2.7 / n)


def _valleys(scores: Floats, cut: Floats) -> tuple[Floats, Floats]:
    """Points around the cut of each column over points in the sparser part's densest place `(j,)`; its limit."""
    valleys = []
    for values, position in zip(np.sort(scores, axis=0).T, cut.tolist(), strict=True):
        first = int(np.searchsorted(values, position, side="right"))  # of the upper part
        if not 0 < first < len(values):  # no two parts
            valleys.append((len(values), 1))
            continue
        half = (values[first:].mean() - values[:first].mean()) / 6
        around = np.searchsorted(values, values + half, side="right") - np.searchsorted(values, values - half)
        middle = np.searchsorted(values, position + half, side="right") - np.searchsorted(values, position - half)
        valleys.append((int(middle), min(int(around[:first].max()), int(around[first:].max()))))
    middles, sides = np.array(valleys, np.float64).T
    return middles / sides, VALLEY + SLACK / np.sqrt(sides)


def reference_modes(known: Array, classes: Array, *, seed: int = 0) -> ClassModes:
    """Modes of classes `(N,)` from 0 on in `known (N, d)`; where there is one a class, any sees more by 1 % chance."""
    return class_modes(known, classes, seed=seed, significance=SPLIT / (int(classes.max()) + 1))


def modes_index(points: Tensor, classes: Tensor, modes: ClassModes) -> float | None:
    """`fine_coarse_index` of the modes of a reference; None where no class has two."""
    if modes.mean == 1:
        return None
    fine = np.zeros(len(classes), dtype=np.int64)
    for number, modes_of_class in enumerate(modes.modes):
        fine[classes.numpy() == number] = modes_of_class.assignment + 1
    counted = torch.from_numpy(np.flatnonzero(fine))  # of a large class some are
    pairs = classes.numpy() * (int(fine.max()) + 1) + fine
    return fine_coarse_index(points[counted], classes[counted], pairs[counted])
