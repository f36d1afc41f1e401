"""Artificial label noise: makes some labels of N items in C classes wrong, and records which.

`labels` are `(N,)` integers of at least 0, and `noise_rate` is p in [0, 1), the expected share of wrong ones; a wrong
label is always another class than the true one. Each item is wrong independently of the others, or with `exact` a fixed
number is, round(p N) unless stated, each choice of items equally likely. A generator, or its seed, decides everything.
Shapes and numbers out of range, and one class where some must be wrong, are a ValueError.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from trivet.distances import Array, as_rows
from trivet.distances.pairwise import Products
from trivet.metrics.nearest import order_keys
from trivet.metrics.points import spans
from trivet.runtime.arguments import check_count
from trivet.runtime.arrays import Booleans, Floats, Integers, how_to_number

Seed = np.random.Generator | int

BLOCK_ENTRIES = 2**22  # of distances looked at together: 32 MiB


@dataclass(frozen=True, eq=False)
class Noisy:
    """Labels with noise.

    Attributes:
        labels: `(N,)`, what is observed.
        wrong: `(N,)`, where that is not the true label.
    """

    labels: Integers
    wrong: Booleans


def symmetric(
    labels: npt.ArrayLike, noise_rate: float, *, generator: Seed, num_classes: int | None = None, exact: bool = False
) -> Noisy:
    """A wrong label is one of the C - 1 other classes, each equally likely.

    Where a rate r counts labels drawn anew from all C classes, the true one among them, p = r (C - 1) / C.

    Args:
        num_classes: C; None for the largest label plus 1.

    Source:
        Le, Odobez, "Theoretical Guarantees of Deep Embedding Losses Under Label Noise", 2018, eq. 6.

    Example:
        >>> symmetric([0, 0, 1, 1], 0.5, generator=0, exact=True)
        Noisy(labels=array([1, 0, 0, 1]), wrong=array([ True, False,  True, False]))
    """
    truth, random, wrong, classes = _drawn(labels, noise_rate, generator, num_classes, exact)
    step = random.integers(1, max(classes, 2), len(truth))
    return Noisy(np.where(wrong, (truth + step) % classes, truth), wrong)


def pair_flip(
    labels: npt.ArrayLike, noise_rate: float, *, generator: Seed, num_classes: int | None = None, exact: bool = False
) -> Noisy:
    """A wrong label is the next class: class c is taken for (c + 1) mod C.

    Source:
        Han et al., "Co-teaching", NeurIPS 2018, there called pair flipping.

    Example:
        >>> pair_flip([0, 0, 2, 1], 0.5, generator=0, exact=True)
        Noisy(labels=array([1, 0, 0, 1]), wrong=array([ True, False,  True, False]))
    """
    truth, _, wrong, classes = _drawn(labels, noise_rate, generator, num_classes, exact)
    return Noisy(np.where(wrong, (truth + 1) % classes, truth), wrong)


def by_transition(labels: npt.ArrayLike, transition: npt.ArrayLike, *, generator: Seed, exact: bool = False) -> Noisy:
    """The observed label is drawn from the row of the true one: class-conditional noise.

    Args:
        transition: T `(C, C)` of probabilities of the observed labels (columns) given the true ones (rows); rows add up
            to 1 within 1e-8.
        exact: in each class c, of n items, make exactly round(n (1 - T_cc)) labels wrong.

    Source:
        Le, Odobez, 2018, eq. 5.

    Example:
        >>> by_transition([0, 0, 1, 1], [[0.5, 0.5], [0.0, 1.0]], generator=0, exact=True)
        Noisy(labels=array([1, 0, 1, 1]), wrong=array([ True, False, False, False]))
    """
    truth, table, random = _labels(labels), _transition(transition), np.random.default_rng(generator)
    if truth.max() >= len(table):
        raise ValueError(
            f"each label must have a row of the transition, 0 to {len(table) - 1}: got {truth.max()}; "
            f"{how_to_number(labels)}, or give a row for each."
        )
    observed = truth.copy()
    for true_class in np.unique(truth):
        items = np.flatnonzero(truth == true_class)
        others = table[true_class].copy()
        others[true_class] = 0
        rate = others.sum()
        if rate > 0:
            wrong = items[_chosen(len(items), rate, exact, random)]
            observed[wrong] = random.choice(len(table), len(wrong), p=others / rate)
    return Noisy(observed, observed != truth)


def within_superclass(
    labels: npt.ArrayLike, superclass: npt.ArrayLike, noise_rate: float, *, generator: Seed, exact: bool = False
) -> Noisy:
    """A wrong label is one of the other classes of the same superclass, each equally likely.

    A class that is alone in its superclass keeps its labels, and p is the rate among the items of the other classes.

    Args:
        superclass: `(N,)` integers, the superclass of each item; from a table of the superclass of each class,
            `table[labels]`.
        exact: make exactly round(p M) labels wrong, where M items are of classes that are not alone.

    Source:
        Patrini et al., "Making Deep Neural Networks Robust to Label Noise", CVPR 2017, flip within the superclasses
        of CIFAR-100, there to the next class.

    Example:
        >>> within_superclass([0, 1, 2, 3, 4], [0, 0, 1, 1, 2], 0.5, generator=1, exact=True)
        Noisy(labels=array([1, 0, 2, 3, 4]), wrong=array([ True,  True, False, False, False]))
    """
    truth, random = _labels(labels), np.random.default_rng(generator)
    above = np.asarray(superclass)
    if above.shape != truth.shape or above.dtype.kind not in "iu":
        raise ValueError(
            f"superclass must hold one integer per item, {len(truth)}: got {above.dtype} of shape {above.shape}; with "
            "a table of the superclass of each class, use table[labels]."
        )
    members = {parent: np.unique(truth[above == parent]) for parent in np.unique(above).tolist()}
    if sum(map(len, members.values())) > len(np.unique(truth)):
        first = next(c for c in np.unique(truth).tolist() if len(np.unique(above[truth == c])) > 1)
        raise ValueError(
            f"each class must lie in one superclass: class {first} lies in {len(np.unique(above[truth == first]))}; "
            "use a coarser grouping of the classes."
        )
    _check_rate(noise_rate, max(map(len, members.values())), among="in a superclass")
    movable = np.flatnonzero(np.isin(above, [parent for parent, classes in members.items() if len(classes) > 1]))
    wrong = np.zeros(len(truth), np.bool_)
    wrong[movable] = _chosen(len(movable), noise_rate, exact, random)
    observed = truth.copy()
    for parent, classes in members.items():
        items = np.flatnonzero(wrong & (above == parent))
        if len(items):
            step = random.integers(1, len(classes), len(items))
            observed[items] = classes[(np.searchsorted(classes, truth[items]) + step) % len(classes)]
    return Noisy(observed, wrong)


def boundary(
    labels: npt.ArrayLike, embeddings: Array, noise_rate: float, *, generator: Seed, k: int = 10, exact: bool = False
) -> Noisy:
    """Items near another class are wrong more often, and take the class of a neighbour: noise that depends on the item.

    Go outwards from item i, nearest item first, until k items of other classes are met, and let s_i in (0, 1] be their
    share of all items met. Item i is wrong with probability

        min(1, lambda s_i),    lambda such that the mean over all items is p,

    and takes the class of one of these k items, each equally likely. The share among a fixed number of neighbours would
    be 0 for most items of classes that lie well apart, and tell nothing about these. Distances are Euclidean; of items
    equally near (in float32) the one of lowest index is met first. Time grows with N^2 d.

    Args:
        embeddings: `(N, d)` floating point: of a network that is not to be tested on these labels, or the inputs.
        k: from 1 to the number of items outside of the largest class.
        exact: items are drawn one after the other with probability proportional to s_i of those left.

    Source:
        The rule is chosen here, after the assumption of Menon, van Rooyen, Natarajan, "Learning from Binary Labels with
        Instance-dependent Noise", Machine Learning 107, 2018, that noise grows with the difficulty of the item.

    Example:
        >>> points = np.array([[0.0], [1.0], [2.0], [3.0], [4.0], [5.0]])
        >>> boundary([0, 0, 0, 1, 1, 1], points, 0.3, generator=0, k=2, exact=True)
        Noisy(labels=array([0, 1, 0, 0, 1, 1]), wrong=array([False,  True, False,  True, False, False]))
    """
    truth, random = _labels(labels), np.random.default_rng(generator)
    _check_rate(noise_rate, len(np.unique(truth)))
    points = as_rows(embeddings).cpu()
    if len(points) != len(truth):
        raise ValueError(
            f"labels must hold one class per embedding: got {len(truth)} labels for {len(points)} embeddings."
        )
    if noise_rate == 0:
        return Noisy(truth, np.zeros(len(truth), np.bool_))
    outside = len(truth) - int(np.unique(truth, return_counts=True)[1].max())
    if check_count(k, name="k") > outside:
        raise ValueError(f"k must not exceed the items outside of the largest class, {outside}: got {k}; lower it.")
    others, share = _others_around(points, truth, k)  # (N, k), (N,)
    if exact:
        count = round(noise_rate * len(truth))
        wrong = np.zeros(len(truth), np.bool_)
        wrong[random.choice(len(truth), count, replace=False, p=share / share.sum())] = True
    else:
        wrong = random.random(len(truth)) < _scaled_to_mean(share, noise_rate)
    drawn = others[np.arange(len(truth)), random.integers(0, k, len(truth))]
    return Noisy(np.where(wrong, drawn, truth), wrong)


def topline(labels: npt.ArrayLike, noise_rate: float, *, generator: Seed) -> Integers:
    """Draw the items that a topline trains on: as many clean ones as noise at this rate leaves, drawn uniformly.

    The ratio of a noisy run to its topline says what the wrong labels did beyond the loss of right ones.

    Returns:
        Positions in ascending order, `(M,)`.

    Source:
        Le, Odobez, 2018, the comparison called topline there.

    Example:
        >>> topline([0, 0, 1, 1], 0.5, generator=0).tolist()
        [0, 2]
    """
    truth, random = _labels(labels), np.random.default_rng(generator)
    _check_rate(noise_rate, 2)
    return np.sort(random.permutation(len(truth))[: round((1 - noise_rate) * len(truth))])


def _drawn(
    labels: npt.ArrayLike, rate: float, generator: Seed, num_classes: int | None, exact: bool
) -> tuple[Integers, np.random.Generator, Booleans, int]:
    """The labels, the generator, the items that are to be wrong, and the number of classes."""
    truth, random = _labels(labels), np.random.default_rng(generator)
    largest = int(truth.max())
    if num_classes is not None and check_count(num_classes, name="num_classes") <= largest:
        raise ValueError(f"num_classes must exceed the largest label, {largest}: got {num_classes}; raise it.")
    classes = largest + 1 if num_classes is None else num_classes
    _check_rate(rate, classes)
    return truth, random, _chosen(len(truth), rate, exact, random), classes


def _chosen(count: int, rate: float, exact: bool, random: np.random.Generator) -> Booleans:
    if not exact:
        return random.random(count) < rate
    chosen = np.zeros(count, np.bool_)
    chosen[random.permutation(count)[: round(rate * count)]] = True
    return chosen


def _others_around(points: torch.Tensor, labels: Integers, k: int) -> tuple[Integers, Floats]:
    """Classes `(N, k)` of the k nearest items of other classes, and their share `(N,)` of the items up to the last."""
    classes, products = torch.from_numpy(labels), Products(points, points)
    others = torch.empty(len(points), k, dtype=torch.int64)
    nearer = torch.empty(len(points), dtype=torch.int64)  # items of the own class
    last = torch.iinfo(torch.int64).max
    for start, stop in spans(len(points), max(1, BLOCK_ENTRIES // len(points))):
        order = order_keys(products.squared_distances(start, stop).float())
        order[torch.arange(stop - start), torch.arange(start, stop)] = last  # the item itself
        same = classes[start:stop, None] == classes
        nearest = order.masked_fill(same, last).topk(k, largest=False).values  # ascending
        others[start:stop] = classes[nearest & 0xFFFFFFFF]
        nearer[start:stop] = (same & (order < nearest[:, -1:])).sum(dim=1)
    return others.numpy(), k / (k + nearer.numpy())


def _scaled_to_mean(share: Floats, mean: float) -> Floats:
    """min(1, lambda share) with this mean, for shares above 0 and a mean in (0, 1)."""
    descending = np.sort(share)[::-1]
    left = descending[::-1].cumsum()[::-1]  # of the items after those whose probability is 1
    scale = (mean * len(share) - np.arange(len(share))) / left
    certain = int(np.argmax(scale * descending <= 1))
    return np.asarray(np.minimum(1, scale[certain] * share))


def _labels(values: npt.ArrayLike) -> Integers:
    labels = np.asarray(values)
    if labels.ndim != 1 or not len(labels) or labels.dtype.kind not in "iu" or labels.min() < 0:
        raise ValueError(
            f"labels must be integers of at least 0, one per item, at least one: got {labels.dtype} of shape "
            f"{labels.shape}; {how_to_number(values) if labels.size and labels.ndim == 1 else 'give one for each'}."
        )
    return labels.astype(np.int64)


def _check_rate(rate: float, classes: int, *, among: str = "in the labels") -> None:
    if not 0 <= rate < 1:
        raise ValueError(f"noise_rate must lie in [0, 1): got {rate}; give a share, not %.")
    if rate > 0 and classes < 2:
        raise ValueError(
            f"a wrong label needs another class: there is one {among} and noise_rate is {rate}; add a class or use 0."
        )


def _transition(values: npt.ArrayLike) -> Floats:
    matrix = np.asarray(values, dtype=np.float64)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"transition must have shape (C, C): got {matrix.shape}; give a row for each true class.")
    if not ((matrix >= 0) & (matrix <= 1)).all() or not (abs(matrix.sum(axis=1) - 1) <= 1e-8).all():
        raise ValueError(
            "transition must hold probabilities in [0, 1] whose rows add up to 1 within 1e-8: got sums from "
            f"{matrix.sum(axis=1).min():g} to {matrix.sum(axis=1).max():g}; divide each row of counts by its sum."
        )
    return matrix
