"""Retention: how much of the structure within classes that a reference embedding shows is still there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from trivet.collapse.spread import class_members
from trivet.distances import Array, as_classes, as_rows
from trivet.runtime.arrays import Floats, Integers

LEAST = 6  # items of a class; fewer tell nothing
LARGEST = 1000  # items of a class; of more, so many are drawn at random
ITEMS = 20  # for each principal axis inside the classes
FALSE = 0.01  # share of the classes that lost their inside that may be there by chance
LIKELIER = 10.0  # log of the likelihood ratio from which some classes have lost their inside: healthy heads reach 6
SHARE = 0.1  # of the classes, at least: in fewer, single items may have been moved
ROUNDS = 200  # of expectation and maximisation
NARROWEST = 0.03  # standard deviation of the retention of intact classes: they may all have exactly 1


@dataclass(frozen=True, eq=False)
class Retention:
    """Share of the neighbourhoods inside each class that an embedding keeps; C classes."""

    labels: npt.NDArray[Any]  # (C,) the label of each class, ascending
    values: Floats  # (C,) at most 1; NaN for a class of fewer than 6 items, or one that the reference has on one point
    errors: Floats  # (C,) the standard error of each over the items
    items: Integers  # (C,) how many it is of

    @property
    def mean(self) -> float:
        """Mean over the classes that have a value: 1 all kept, 0 as by chance."""
        return float(np.nanmean(self.values))


def mode_retention(embeddings: Array, reference: Array, labels: Array, *, seed: int = 0) -> Retention:
    """Rank the nearest class-mate of each item in a reference: 1 if it is the nearest there, 0 as by chance.

    Of an item, r is the rank (1 nearest, n - 1 farthest) that its nearest neighbour inside its class of n, by the
    embedding, has among its class-mates by the reference. The retention of a class is, over its items,

        1 - (mean r - mean r_0) / (n / 2 - mean r_0),

    where r_0 is the rank of the nearest by the reference itself, 1 but for ties: 1 if every nearest neighbour is the
    nearest of the reference too, 0 on average if neighbours are random, below 0 if they are farther than random. A
    class whose modes are mapped to one blob no longer has its like near each item, and its retention falls; what
    happened between the classes has no part in it, nor has the scale. Equal distances share the mean of their ranks,
    and equally near neighbours count as their mean: a class on one point has retention 0.

    Args:
        embeddings: `(N, d)` floating point.
        reference: `(N, e)` floating point, the same items: by the backbone, by the network before training, or the raw
            inputs. An embedding of its own family (the same network untrained) keeps more by architecture alone.
        labels: `(N,)` of any integer dtype; the classes trained on.
        seed: of the draw of 1000 items of a class that has more, not negative.

    Raises:
        ValueError: if shapes or dtypes disagree, a row is not finite, no class has both 6 items and differences in the
            reference, or `seed` is negative.

    Source:
        A rank error as in Lee, Verleysen, "Nonlinear Dimensionality Reduction", 2007 (mean relative rank error), of
        the one nearest neighbour and inside a class.

    Example:
        >>> line = np.arange(12.0)[:, None]
        >>> mode_retention(line, -2 * line, np.zeros(12, int)).mean
        1.0
    """
    if seed < 0:
        raise ValueError(f"seed must not be negative: got {seed}.")
    rows, before = as_rows(embeddings).cpu().numpy(), as_rows(reference).cpu().numpy()
    if len(rows) != len(before):
        raise ValueError(
            f"reference must hold the same items as embeddings: got {len(before)} rows for {len(rows)}; "
            "embed the same items with both."
        )
    classes = as_classes(labels, count=len(rows)).numpy()
    members = class_members(classes)
    values, errors, sizes = np.full(len(members), np.nan), np.full(len(members), np.nan), np.zeros(len(members), int)
    for number, items in enumerate(members):
        if len(items) > LARGEST:
            items = np.sort(np.random.default_rng(seed).permutation(items)[:LARGEST])
        if len(items) >= LEAST:
            shares = _retention(rows[items], before[items])
            values[number], sizes[number] = shares.mean(), len(items)
            errors[number] = shares.std(ddof=1) / np.sqrt(len(items))
    if np.isnan(values).all():
        raise ValueError(
            f"retention needs a class of at least {LEAST} items that the reference does not have on one point: "
            f"got none among {len(values)} classes; give more items of a class, or another reference."
        )
    return Retention(labels=np.unique(np.asarray(labels)), values=values, errors=errors, items=sizes)


def lost_inside(retention: Retention, *, below: float) -> Integers:
    """The numbers of the classes that retain no more of the neighbourhoods inside them than by chance.

    All, where their mean is below a number. Else those below it whose retention is less than half of the median of all
    beyond doubt, by Student's t over their items and a false discovery rate of 1 %, as where classes are large; the
    standard error is that of neighbours at random at least, as ten items that depend on each other may agree. And a
    tenth of the classes or more, below half of the median, that are more likely than not of the lost ones in a mixture,
    as where many are small, see `mixture_of_lost`.

    Source:
        Benjamini, Hochberg, "Controlling the false discovery rate", 1995.
    """
    from scipy import stats  # here: it takes half a second to load

    known = np.flatnonzero(np.isfinite(retention.values))
    if retention.mean < below:
        return known
    values, items = retention.values[known], retention.items[known]
    errors = np.maximum(retention.errors[known], _errors_at_random(items))
    chances = stats.t.cdf((values - np.median(values) / 2) / errors, items - 1)
    singly = (values < below) & (stats.false_discovery_control(chances) <= FALSE)
    probabilities, gain = mixture_of_lost(values, items)
    together = (probabilities > 0.5) & (values < np.median(values) / 2)
    if gain < LIKELIER or together.mean() < SHARE:
        together[:] = False
    lost: Integers = known[singly | together]
    return lost


def mixture_of_lost(values: Floats, items: Integers) -> tuple[Floats, float]:
    """Probability `(C,)` that a class lost its inside, and what that some did adds to the log likelihood of all.

    A class that lost it has a retention about 0, with the deviation of neighbours at random: the rank of each is
    uniform among the n - 1 others. The others are normal, with any mean and deviation; so are all if none was lost.

    Args:
        values: `(C,)` the retention of each class.
        items: `(C,)` how many items it is of.

    Source:
        Dempster, Laird, Rubin, "Maximum likelihood from incomplete data via the EM algorithm", 1977.
    """

    def log_density(mean: float, deviation: Floats | float) -> Floats:
        return np.asarray(-0.5 * np.square((values - mean) / deviation) - np.log(deviation * np.sqrt(2 * np.pi)))

    lost = log_density(0, _errors_at_random(items))
    alone = float(log_density(values.mean(), max(NARROWEST, values.std())).sum())
    share, mean, deviation = 0.5, float(np.max(values)), max(NARROWEST, float(values.std()))
    probabilities, total = np.zeros(len(values)), -np.inf
    for _ in range(ROUNDS):
        with np.errstate(divide="ignore"):
            each = np.log(share) + lost, np.log1p(-share) + log_density(mean, deviation)
        both = np.logaddexp(*each)
        probabilities, before, total = np.exp(each[0] - both), total, float(both.sum())
        intact = 1 - probabilities
        if intact.sum() < 1 or total - before < 1e-9:
            break
        share, mean = float(probabilities.mean()), float(intact @ values / intact.sum())
        deviation = max(NARROWEST, float(np.sqrt(intact @ np.square(values - mean) / intact.sum())))
    return probabilities, total - alone


def _errors_at_random(items: Integers) -> Floats:
    """Deviation `(C,)` of the retention of classes of so many items whose neighbours are random."""
    return np.asarray(np.sqrt((np.square(items - 1.0) - 1) / 12 / items) / (items / 2 - 1))


def inside_structure(embeddings: Array, labels: Array, *, seed: int = 0) -> Retention:
    """Retention between two halves of the directions inside the classes: above 0, these hold more than noise.

    The first principal axes of the rows about their class means, one for 20 items, are dealt to two halves in turn.
    Where the inside of a class is one Gaussian, one half knows nothing of the other, whatever the covariance that
    classes share; where there are clusters, curves or tails, items that are near in one half are so in the other, too.

    Args:
        embeddings: `(N, d)` floating point, d >= 2.
        labels: `(N,)` of any integer dtype.
        seed: as in `mode_retention`.

    Raises:
        ValueError: as `mode_retention` does.
    """
    rows = as_rows(embeddings).cpu().numpy()
    classes = as_classes(labels, count=len(rows)).numpy()
    inside = rows.copy()
    for items in class_members(classes):
        inside[items] -= inside[items].mean(axis=0)
    _, axes = np.linalg.eigh(inside.T @ inside)
    # More axes than that follow the items, and hide in one half what they have in the other.
    scores = (rows - rows.mean(axis=0)) @ axes[:, ::-1][:, : max(2, len(rows) // ITEMS)]
    first = np.arange(1, scores.shape[1] + 1) // 2 % 2 == 0  # the axes 0, 3, 4, 7, 8 and so on
    return mode_retention(scores[:, first], scores[:, ~first], labels, seed=seed)


def _retention(rows: Floats, before: Floats) -> Floats:
    """Retention `(n,)` of the items of a class `(n, d)` with its reference `(n, e)`; NaN if that has it on one point.

    Their mean is that of the class.
    """
    from scipy.stats import rankdata  # here, as above

    ranks = rankdata(_squared_distances(before), axis=1)  # (n, n), of the n - 1 others and, last, the item itself
    best, chance = float(ranks.min(axis=1).mean()), len(rows) / 2
    if best == chance:
        return np.full(len(rows), np.nan)
    distances = _squared_distances(rows)
    nearest = distances == distances.min(axis=1, keepdims=True)
    shares: Floats = 1 - ((ranks * nearest).sum(axis=1) / nearest.sum(axis=1) - best) / (chance - best)
    return shares


def _squared_distances(rows: Floats) -> Floats:
    """Squared distances `(n, n)` in a unit that makes them at most 4, without the digits of rounding; infinite to self.

    Rounded, points that coincide are equally far from every other.
    """
    rows = rows - rows[0]  # by a row and not the mean: equal rows become exactly 0
    rows = rows - rows.mean(axis=0)
    rows = rows / (float(np.linalg.norm(rows, axis=1).max()) or 1.0)
    squares = (rows**2).sum(axis=1)
    distances = np.round(squares[:, None] + squares - 2 * rows @ rows.T, 12) + 0.0  # no -0
    np.fill_diagonal(distances, np.inf)
    return np.asarray(distances, np.float64)
