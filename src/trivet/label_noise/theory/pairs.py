"""Rates of wrong pairs under wrong labels, and the losses of pairs: sections 3, 4.1 and 5."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from trivet.losses.unhinged import DIAMETER
from trivet.runtime.arguments import check_at_least, check_count
from trivet.runtime.arrays import Booleans, Floats, Integers


class PairRates(NamedTuple):
    """Rates at which the observed labels of a pair say the opposite of the true ones, each an array in [0, 1]."""

    positive: Floats  # q_{+1}: of one class, observed with two labels
    negative: Floats  # q_{-1}: of two classes, observed with one label


def pair_noise_rates(noise_rate: npt.ArrayLike, num_classes: npt.ArrayLike) -> PairRates:
    """Rates at which symmetric noise turns a positive pair into a negative one and the reverse.

        q_{+1} = 2 p - kappa p^2,    q_{-1} = q_{+1} / (K - 1),    1 - q_{+1} - q_{-1} = (1 - kappa p)^2.

    Args:
        noise_rate: p in [0, 1], any shape.
        num_classes: K, whole and at least 2, or infinite, any shape that broadcasts with p.

    Returns:
        Arrays of the common shape.

    Raises:
        ValueError: if a number is out of range.

    Source:
        Le, Odobez, 2018, section 3, eq. 7; eq. 8 is corrected: its last factor must be 1 - 1 / (K - 1).

    Example:
        >>> rates = pair_noise_rates(0.5, 3)
        >>> float(rates.positive), float(rates.negative)
        (0.625, 0.3125)
    """
    p, classes = as_within(0, 1, noise_rate, name="noise_rate"), as_classes(num_classes, infinite=True)
    positive = p * (2 - p / (1 - 1 / classes))
    return PairRates(positive, positive / (classes - 1))


def simulated_pair_rates(
    noise_rate: float, num_classes: int, *, draws: int, generator: np.random.Generator
) -> PairRates:
    """The rates of `pair_noise_rates` counted among pairs whose labels are drawn: by simulation, not by a formula.

    Args:
        noise_rate: p in [0, 1].
        num_classes: K, at least 2.
        draws: how many pairs of each kind, at least 1.
        generator: source of the labels.

    Returns:
        Two scalars, as arrays of shape (); their standard error is at most 1 / (2 sqrt(draws)).

    Raises:
        ValueError: if a number is out of range.

    Source:
        Le, Odobez, 2018, eq. 6, as it stands.

    Example:
        >>> rates = simulated_pair_rates(0.0, 5, draws=10, generator=np.random.default_rng(0))
        >>> float(rates.positive), float(rates.negative)
        (0.0, 0.0)
    """
    p = float(as_within(0, 1, noise_rate, name="noise_rate"))
    classes = int(as_classes(check_count(num_classes, name="num_classes")))
    size = check_count(draws, name="draws")

    def observed(truth: int) -> Integers:
        to = (truth + generator.integers(1, classes, size)) % classes
        return np.where(generator.random(size) < p, to, truth)

    first = observed(0)
    return PairRates(np.asarray((first != observed(0)).mean()), np.asarray((first == observed(1)).mean()))


def class_pair_noise_rates(transition: npt.ArrayLike, priors: npt.ArrayLike | None = None) -> PairRates:
    """The rates of `pair_noise_rates` for noise that depends on the class, of two items drawn independently.

    With T the transition and pi the priors, and sums over the classes y and y',

        q_{+1} = 1 - sum_y pi_y^2 (T T')_{yy} / sum_y pi_y^2,
        q_{-1} = sum_{y != y'} pi_y pi_y' (T T')_{yy'} / (1 - sum_y pi_y^2).

    Args:
        transition: `(K, K)`, K >= 2, of entries in [0, 1] whose rows add up to 1 within 1e-8: the probability of each
            observed label (column) given the true one (row).
        priors: `(K,)`, the share of each class, at least 0, adding up to 1 within 1e-8, two of them above 0; None for
            1 / K each.

    Returns:
        Two scalars, as arrays of shape ().

    Raises:
        ValueError: if a shape or a number is out of range.

    Source:
        Le, Odobez, 2018, eq. 5, gives the noise; the rates follow from it.

    Example:
        >>> rates = class_pair_noise_rates([[0.5, 0.5], [0.0, 1.0]])
        >>> float(rates.positive), float(rates.negative)
        (0.25, 0.5)
    """
    table = as_transition(transition)
    shares = np.full(len(table), 1 / len(table)) if priors is None else np.asarray(priors, dtype=np.float64)
    if shares.shape != (len(table),) or not (shares >= 0).all() or not abs(shares.sum() - 1) <= 1e-8:
        raise ValueError(
            f"priors must be {len(table)} shares of at least 0 that add up to 1, one per class: got shape "
            f"{shares.shape} and sum {shares.sum():g}; divide the sizes of the classes by their sum."
        )
    if np.count_nonzero(shares) < 2:
        raise ValueError("priors must be above 0 for at least two classes: got one class, which has no negative pair.")
    agree = shares[:, None] * shares * (table @ table.T)
    same_class = np.square(shares).sum()
    within = np.trace(agree)
    between = (agree * (1 - np.eye(len(table)))).sum()
    pairs_between = (np.outer(shares, shares) * (1 - np.eye(len(table)))).sum()
    return PairRates(np.asarray(1 - within / same_class), np.asarray(between / pairs_between))


def noise_rate_of_pairs(positive_rate: npt.ArrayLike, num_classes: npt.ArrayLike) -> Floats:
    """The noise rate p at which a share q_{+1} of the positive pairs is wrong; the inverse of `pair_noise_rates`.

    The smaller of the two solutions, (1 - sqrt(1 - kappa q_{+1})) / kappa, which lies in [0, 1 - 1 / K].

    Args:
        positive_rate: q_{+1} in [0, 1 - 1 / K], any shape; no noise gives more.
        num_classes: K, whole and at least 2, or infinite, any shape that broadcasts with it.

    Raises:
        ValueError: if a number is out of range.

    Source:
        Le, Odobez, 2018, eq. 8 corrected; section 7 has q of about 60 % at p of about 36.8 %, for many classes.

    Example:
        >>> round(float(noise_rate_of_pairs(0.6, np.inf)), 8)
        0.36754447
    """
    classes = as_classes(num_classes, infinite=True)
    highest = 1 - 1 / classes
    rate = as_within(0, 1, positive_rate, name="positive_rate")
    if not (rate <= highest).all():
        raise ValueError(
            "positive_rate must not exceed 1 - 1 / num_classes, which uniformly random labels give: got "
            f"{float(rate.max())}; lower it or raise num_classes."
        )
    return smaller_root(rate, highest)


def auxiliary_loss(distances: npt.ArrayLike, positive: npt.ArrayLike) -> Floats:
    """l^A: the distance of a positive pair, and d_max minus the distance of a negative one; in [0, 2].

    The values of a pair as a positive and as a negative one add up to d_max = 2 (eq. 10).

    Args:
        distances: d in [0, 2], any shape.
        positive: bool, t = +1, any shape that broadcasts with it.

    Raises:
        ValueError: if a distance is out of range or `positive` is not bool.

    Source:
        Le, Odobez, 2018, definition 1, eq. 9.

    Example:
        >>> auxiliary_loss([0.5, 0.5], [True, False]).tolist()
        [0.5, 1.5]
    """
    return np.asarray(np.where(as_flags(positive), as_distances(distances), DIAMETER - as_distances(distances)))


def unhinged_triplet_loss(to_positive: npt.ArrayLike, to_negative: npt.ArrayLike, *, margin: float = 0.2) -> Floats:
    """l^U = d_max + d(a, p) - d(a, n) + margin of triplets at these distances; in [margin, 4 + margin].

    It is the sum of the auxiliary losses of the two pairs and the margin. `trivet.UnhingedTripletLoss` is its mean
    over the triplets of a batch.

    Args:
        to_positive: d(a, p) in [0, 2], any shape.
        to_negative: d(a, n) in [0, 2], any shape that broadcasts with it.
        margin: alpha, at least 0.

    Raises:
        ValueError: if a number is out of range.

    Source:
        Le, Odobez, 2018, definition 3, eq. 12.

    Example:
        >>> float(unhinged_triplet_loss(0.5, 1.5))
        1.2
    """
    check_at_least(0, margin, name="margin")
    return DIAMETER + as_distances(to_positive) - as_distances(to_negative) + margin


def unhinged_margin_loss(
    distances: npt.ArrayLike, positive: npt.ArrayLike, *, margin: float = 0.2, beta: float = 1.4
) -> Floats:
    """l^M = d_max + (d - beta) t + margin of pairs; the values for t and -t add up to 2 d_max + 2 margin (eq. 32).

    `trivet.UnhingedMarginLoss` is its mean over the pairs of a batch.

    Args:
        distances: d in [0, 2], any shape.
        positive: bool, t = +1, any shape that broadcasts with it.
        margin: alpha, at least 0.
        beta: the boundary, at least 0.

    Raises:
        ValueError: if a number is out of range or `positive` is not bool.

    Source:
        Le, Odobez, 2018, definition 5, eq. 31.

    Example:
        >>> unhinged_margin_loss([1.0, 1.0], [True, False]).round(9).tolist()
        [1.8, 2.6]
    """
    return DIAMETER + _signed(distances, positive, margin, beta)


def hinged_margin_loss(
    distances: npt.ArrayLike, positive: npt.ArrayLike, *, margin: float = 0.2, beta: float = 1.4
) -> Floats:
    """max(0, (d - beta) t + margin) of pairs; where |d - beta| <= margin the values for t and -t add up to 2 margin.

    Args:
        distances, positive, margin, beta: as of `unhinged_margin_loss`.

    Raises:
        ValueError: if a number is out of range or `positive` is not bool.

    Source:
        Le, Odobez, 2018, eq. 2.

    Example:
        >>> hinged_margin_loss([1.0, 1.0], [True, False]).round(9).tolist()
        [0.0, 0.6]
    """
    return np.maximum(0, _signed(distances, positive, margin, beta))


def symmetric_transition(noise_rate: float, num_classes: int) -> Floats:
    """The `(K, K)` probabilities of the observed labels (columns) given the true ones (rows) under symmetric noise.

    Args:
        noise_rate: p in [0, 1].
        num_classes: K, at least 2.

    Raises:
        ValueError: if a number is out of range.

    Source:
        Le, Odobez, 2018, eq. 6.

    Example:
        >>> symmetric_transition(0.5, 3).tolist()
        [[0.5, 0.25, 0.25], [0.25, 0.5, 0.25], [0.25, 0.25, 0.5]]
    """
    p, classes = float(as_within(0, 1, noise_rate, name="noise_rate")), int(as_classes(num_classes))
    table = np.full((classes, classes), p / (classes - 1))
    np.fill_diagonal(table, 1 - p)
    return table


def smaller_root(rate: Floats, highest: Floats) -> Floats:
    """The smaller p with 2 p - p^2 / highest = rate, for rate <= highest, without loss of digits near 0."""
    return np.asarray(rate / (1 + np.sqrt(1 - rate / highest)))


def _signed(distances: npt.ArrayLike, positive: npt.ArrayLike, margin: float, beta: float) -> Floats:
    """(d - beta) t + margin."""
    check_at_least(0, margin, name="margin")
    check_at_least(0, beta, name="beta")
    difference = as_distances(distances) - beta
    return np.where(as_flags(positive), difference, -difference) + margin


def as_distances(values: npt.ArrayLike) -> Floats:
    d = np.asarray(values, dtype=np.float64)
    usable = (d >= 0) & (d <= DIAMETER + 1e-9)  # a square root may round above the diameter
    text = "distances must lie in [0, 2], as between unit rows: got {}; divide the embeddings by their norms first."
    return _usable(d, usable, text)


def as_flags(values: npt.ArrayLike) -> Booleans:
    flags = np.asarray(values)
    if flags.dtype != np.bool_:
        raise ValueError(
            f"positive must be bool, True for a pair of one class: got {flags.dtype}; write t == 1 for t of +1, -1."
        )
    return flags


def as_within(low: float, high: float, values: npt.ArrayLike, *, name: str) -> Floats:
    shares = np.asarray(values, dtype=np.float64)
    text = f"{name} must lie in [{low:g}, {high:g}]: got {{}}; give a share, not %."
    return _usable(shares, (shares >= low) & (shares <= high), text)


def as_above_zero(values: npt.ArrayLike, *, name: str) -> Floats:
    numbers = np.asarray(values, dtype=np.float64)
    return _usable(numbers, (numbers > 0) & np.isfinite(numbers), f"{name} must be finite and above 0: got {{}}.")


def as_skew(values: npt.ArrayLike) -> Floats:
    skew = np.asarray(values, dtype=np.float64)
    text = "skew must be at least 1, which uniform sampling has: got {}; a gamma goes in as 1 / gamma."
    return _usable(skew, skew >= 1, text)


def check_least(value: float) -> float:
    if not 0 <= value < 1:
        raise ValueError(f"least must lie in [0, 1): got {value}; Q is 1 without noise.")
    return value


def as_classes(values: npt.ArrayLike, *, infinite: bool = False) -> Floats:
    return as_integers(2, values, name="num_classes", infinite=infinite)


def as_integers(low: int, values: npt.ArrayLike, *, name: str, infinite: bool = False) -> Floats:
    numbers = np.asarray(values, dtype=np.float64)
    usable = (numbers >= low) & (numbers == np.floor(numbers)) & (infinite | np.isfinite(numbers))
    what = "whole and at least" if not infinite else "whole (or infinite) and at least"
    return _usable(numbers, usable, f"{name} must be {what} {low}: got {{}}.")


def as_transition(values: npt.ArrayLike) -> Floats:
    transition = np.asarray(values, dtype=np.float64)
    if transition.ndim != 2 or transition.shape[0] != transition.shape[1] or len(transition) < 2:
        raise ValueError(
            f"transition must have shape (K, K) with K >= 2: got {transition.shape}; give a row for each true class."
        )
    if not ((transition >= 0) & (transition <= 1)).all() or not (abs(transition.sum(axis=1) - 1) <= 1e-8).all():
        raise ValueError(
            "transition must hold probabilities in [0, 1] whose rows add up to 1 within 1e-8: got sums from "
            f"{transition.sum(axis=1).min():g} to {transition.sum(axis=1).max():g}; "
            "divide each row of counts by its sum."
        )
    return transition


def _usable(values: Floats, usable: Booleans, text: str) -> Floats:
    """The values, or ValueError with the first that is not usable set into the text."""
    if not usable.all():
        raise ValueError(text.format(float(np.broadcast_to(values, usable.shape)[~usable][0])))
    return values
