"""By what noise multiplies the risk, and up to which noise rate: sections 4 and 5.3, supplement A.2."""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from trivet.label_noise.theory import pairs
from trivet.runtime.arguments import check_at_least, check_count, check_name
from trivet.runtime.arrays import Booleans, Floats, Integers

Reduction = Literal["sum", "mean"]
MOST_LABELINGS = 2**18  # of 18 items of two classes: 36 MiB
CHUNK = 4096  # labelings whose pairs are looked at together


class RiskFactors(NamedTuple):
    """By what noise multiplies the risk of a pair, each an array: C_t = 1 - q_t - q_t w_{-t} / w_t."""

    positive: Floats
    negative: Floats

    @property
    def smallest(self) -> Floats:
        """Q, the smaller of the two; the paper's condition for tolerance is Q >= 0 (eq. 22)."""
        return np.minimum(self.positive, self.negative)


class Labelings(NamedTuple):
    """All L = K^N ways in which N items may be labelled, and the probability of each."""

    observed: Integers  # (L, N)
    probability: Floats  # (L,)


class MarginPartition(NamedTuple):
    """Pairs that the margin loss uses, with their true label and with the opposite one: three disjoint masks."""

    both: Booleans  # T_m: used either way
    clean_only: Booleans  # T_m^+: used with the true label, lost to noise
    noisy_only: Booleans  # T_m^-: used only with the wrong label


class ResidualMultipliers(NamedTuple):
    """By what the residual of the margin loss multiplies the change in the loss of a pair, each an array."""

    clean_only_positive: Floats  # of T_m^+, eq. 47
    clean_only_negative: Floats
    noisy_only_positive: Floats  # of T_m^-, eq. 48
    noisy_only_negative: Floats


def negative_weight(num_classes: npt.ArrayLike, samples_per_class: npt.ArrayLike) -> Floats:
    """w_{-1} / w_{+1}: how often a negative pair is used for each time a positive one is, with classes of equal size.

    (s - 1) / ((K - 1) s), whether each positive pair meets one negative of its anchor, drawn uniformly (the paper's
    1-1 sampling), or all of them. The paper takes 1 / K; for classes without end it is 1 / (K - 1).

    Args:
        num_classes: K, whole and at least 2, any shape.
        samples_per_class: s, whole and at least 2, or infinite, any shape that broadcasts with K.

    Raises:
        ValueError: if a number is out of range.

    Source:
        Le, Odobez, 2018, section 4.1 (N^ij) and eq. 15, corrected.

    Example:
        >>> float(negative_weight(3, 2)), float(negative_weight(3, np.inf))
        (0.25, 0.5)
    """
    classes = pairs.as_classes(num_classes)
    samples = pairs.as_integers(2, samples_per_class, name="samples_per_class", infinite=True)
    return (1 - 1 / samples) / (classes - 1)


def risk_factors(rates: pairs.PairRates, weight: npt.ArrayLike) -> RiskFactors:
    """By what noise multiplies the risk of a pair whose weight depends on its observed label alone.

    The expected risk of a pair is, with l its auxiliary loss,

        (1 - q_t) w_t l + q_t w_{-t} (d_max - l) = C_t w_t l + w_{-t} q_t d_max,
        C_{+1} = 1 - q_{+1} (1 + w),    C_{-1} = 1 - q_{-1} (1 + 1 / w).

    With w = 1 / (K - 1) both factors are (1 - kappa p)^2, never negative; with the paper's w = 1 / K the factor of
    negative pairs is the smaller one and falls below 0 at `tolerated_noise_rate`.

    Args:
        rates: of `pair_noise_rates` or `class_pair_noise_rates`.
        weight: w = w_{-1} / w_{+1} > 0, any shape that broadcasts with the rates.

    Raises:
        ValueError: if a number is out of range.

    Source:
        Le, Odobez, 2018, eq. 11, 17 and 22.

    Example:
        >>> from trivet.label_noise.theory import pair_noise_rates
        >>> factors = risk_factors(pair_noise_rates(0.5, 3), 1 / 3)
        >>> float(factors.smallest)
        -0.25
    """
    q_positive = pairs.as_within(0, 1, rates.positive, name="rates.positive")
    q_negative = pairs.as_within(0, 1, rates.negative, name="rates.negative")
    w = pairs.as_above_zero(weight, name="weight")
    return RiskFactors(1 - q_positive * (1 + w), 1 - q_negative * (1 + 1 / w))


def tolerated_noise_rate(num_classes: npt.ArrayLike, weight: npt.ArrayLike) -> Floats:
    """The largest p such that no symmetric noise up to p makes a factor of `risk_factors` negative; 1 if none does.

    Args:
        num_classes: K, whole and at least 2, any shape.
        weight: w = w_{-1} / w_{+1} > 0, any shape that broadcasts with K; the paper's is 1 / K.

    Raises:
        ValueError: if a number is out of range.

    Source:
        Le, Odobez, 2018, eq. 24 and 25, which are solved here for every K; the paper's limit of many classes is 1.

    Example:
        >>> round(float(tolerated_noise_rate(10, 1 / 10)), 8)
        0.62863979
    """
    classes, w = pairs.as_classes(num_classes), pairs.as_above_zero(weight, name="weight")
    # The factors are at least 0 for q_{+1} up to 1 / (1 + w) and up to (K - 1) w / (1 + w).
    limit = np.minimum(1, (classes - 1) * w) / (1 + w)
    highest = 1 - 1 / classes
    always = limit >= highest * (1 - 1e-14)  # at w = 1 / (K - 1) the two agree but for rounding
    return np.where(always, 1.0, pairs.smaller_root(np.minimum(limit, highest), highest))


def noise_rate_bound(skew: npt.ArrayLike, *, least: float = 0.0) -> Floats:
    """The noise rate below which Q = 1 - (2 p - p^2) skew stays at or above `least`, for many classes.

        p < 1 - sqrt(1 - (1 - least) / skew).

    A worst case in the authors' words, not a theorem: with a skew the weight of a pair depends on more than its label.

    Args:
        skew: at least 1, any shape, infinite allowed: eta, how much more often the hard negatives are drawn than
            uniformly (triplets), or 1 / gamma = eta^+ / eta^- (margin loss).
        least: in [0, 1); the paper derives its bounds with 0, and asks for 0.5 in the text of section 5.3.

    Raises:
        ValueError: if a number is out of range.

    Source:
        Le, Odobez, 2018, eq. 26 (where 2p + q^2 must be 2p - p^2), 27, 37 and 46.

    Example:
        >>> round(float(noise_rate_bound(2.0)), 8), round(float(noise_rate_bound(2.0, least=0.5)), 8)
        (0.29289322, 0.1339746)
    """
    share = (1 - pairs.check_least(least)) / pairs.as_skew(skew)
    return np.asarray(share / (1 + np.sqrt(1 - share)))  # 1 - sqrt(1 - share), to the last digit when it is small


def skewed_risk_factor(noise_rate: npt.ArrayLike, skew: npt.ArrayLike) -> Floats:
    """Q = 1 - (2 p - p^2) skew: the smallest risk factor of skewed sampling, for many classes.

    It is at least `least` up to the `noise_rate_bound` of the skew.

    Args:
        noise_rate: p in [0, 1], any shape.
        skew: as of `noise_rate_bound`, finite, any shape that broadcasts with p.

    Raises:
        ValueError: if a number is out of range.

    Source:
        Le, Odobez, 2018, eq. 26 (where 2p + q^2 must be 2p - p^2) and 46.

    Example:
        >>> float(skewed_risk_factor(0.5, 2.0))
        -0.5
    """
    p = pairs.as_within(0, 1, noise_rate, name="noise_rate")
    return np.asarray(1 - p * (2 - p) * pairs.as_above_zero(pairs.as_skew(skew), name="skew"))


def implied_skew(noise_rate: npt.ArrayLike, *, least: float = 0.0) -> Floats:
    """The skew whose `noise_rate_bound` is this noise rate: (1 - least) / (2 p - p^2); infinite at p = 0.

    Args:
        noise_rate: p in [0, 1], any shape: where a method is seen to break. Above `noise_rate_bound(1)` no skew has
            such a bound, and the result is below 1.
        least: as of `noise_rate_bound`.

    Raises:
        ValueError: if a number is out of range.

    Source:
        Le, Odobez, 2018, inverse of eq. 27 and 37.

    Example:
        >>> implied_skew([0.3, 0.5]).round(7).tolist()
        [1.9607843, 1.3333333]
    """
    p = pairs.as_within(0, 1, noise_rate, name="noise_rate")
    wrong = p * (2 - p)
    return np.divide(1 - pairs.check_least(least), wrong, out=np.full_like(wrong, np.inf), where=wrong > 0)


def labelings(labels: npt.ArrayLike, transition: npt.ArrayLike) -> Labelings:
    """Every way in which noise may label a few items, and its probability: exact expectations by enumeration.

    Args:
        labels: `(N,)` true labels, integers in 0 .. K - 1.
        transition: `(K, K)` as of `class_pair_noise_rates`.

    Returns:
        K^N labelings, the last item changing fastest; their probabilities add up to 1.

    Raises:
        ValueError: if a shape or a number is out of range, or K^N exceeds 2^18.

    Source:
        Le, Odobez, 2018, eq. 5.

    Example:
        >>> from trivet.label_noise.theory import symmetric_transition
        >>> every = labelings([0, 1], symmetric_transition(0.25, 2))
        >>> every.observed.tolist(), every.probability.tolist()
        ([[0, 0], [0, 1], [1, 0], [1, 1]], [0.1875, 0.5625, 0.0625, 0.1875])
    """
    table = pairs.as_transition(transition)
    truth = np.asarray(labels)
    usable = truth.ndim == 1 and truth.dtype.kind in "iu" and len(truth) > 0
    if not usable or not ((truth >= 0) & (truth < len(table))).all():
        raise ValueError(
            f"labels must be integers from 0 to {len(table) - 1}, a row of the transition each, at least one: got "
            f"{truth.dtype} of shape {truth.shape}; number the classes with np.unique(labels, return_inverse=True)[1]."
        )
    if len(table) ** len(truth) > MOST_LABELINGS:
        raise ValueError(
            f"num_classes ** len(labels) must not exceed {MOST_LABELINGS}: got {len(table)} ** {len(truth)}; "
            "take fewer items, or single_negative_factor, which does not enumerate."
        )
    observed = np.indices((len(table),) * len(truth), dtype=np.int64).reshape(len(truth), -1).T  # (L, N)
    return Labelings(observed, table[truth, observed].prod(axis=1))


def single_negative_coefficients(
    labels: npt.ArrayLike, transition: npt.ArrayLike, *, reduction: Reduction = "sum"
) -> Floats:
    """The coefficients of the distances in the expected risk of the unhinged triplet loss, exact by enumeration.

    The observed labels are drawn, then one observed negative of the anchor, uniformly, for each ordered pair that is
    observed positive; anchors without one are left out. The expectation over both draws is

        sum_{a, j} c_{aj} d(a, j) + constant,    with sum_j c_{aj} = 0 for each a.

    With balanced classes and symmetric noise c_{aj} depends on the true label of the pair alone, so that noise
    multiplies the clean risk of every embedding by one number, `single_negative_factor`.

    Args:
        labels: `(N,)` true labels, integers in 0 .. K - 1.
        transition: `(K, K)` as of `class_pair_noise_rates`.
        reduction: "sum" over the pairs used, or "mean", which is 0 for a labeling that uses none.

    Returns:
        `(N, N)`, anchors in rows, 0 on the diagonal; with "sum" and no noise, 1 for each positive pair.

    Raises:
        ValueError: as `labelings`, or if the reduction is unknown.

    Source:
        Le, Odobez, 2018, definition 4 and proposition 1; an exact form of it for finite classes, not in the paper.

    Example:
        >>> from trivet.label_noise.theory import symmetric_transition
        >>> single_negative_coefficients([0, 0, 1, 1], symmetric_transition(0.0, 2)).tolist()[0]
        [0.0, 1.0, -0.5, -0.5]
    """
    check_name(reduction, get_args(Reduction), name="reduction")
    observed, probability = labelings(labels, transition)
    number = observed.shape[1]
    expected = np.zeros((number, number))
    for start in range(0, len(observed), CHUNK):
        block = observed[start : start + CHUNK]
        same = block[:, :, None] == block[:, None]  # (L, N, N)
        positives = same.sum(axis=2) - 1  # (L, N)
        negatives = number - 1 - positives
        push = positives / np.maximum(negatives, 1)
        coefficients = np.where(same, (negatives > 0)[:, :, None], -push[:, :, None])
        weight = probability[start : start + CHUNK]
        if reduction == "mean":
            weight = weight / np.maximum(positives.sum(axis=1), 1)
        expected += np.tensordot(weight, coefficients, axes=1)
    np.fill_diagonal(expected, 0)
    return expected


def single_negative_factor(noise_rate: npt.ArrayLike, *, num_classes: int, samples_per_class: int) -> Floats:
    """c(p): by what symmetric noise multiplies the unhinged triplet risk under 1-1 sampling, exact for any size.

    Balanced classes, one uniform observed negative for each ordered observed-positive pair, summed over these (see
    `single_negative_coefficients`): for every embedding the expected risk is c(p) times the clean one plus a constant.
    c(0) = 1, c(1 - 1 / K) = 0, and c is near (1 - kappa p)^2. As long as c(p) > 0 the noisy risk has the minimisers of
    the clean one. A negative pair has the coefficient -c(p) (s - 1) / ((K - 1) s).

    Args:
        noise_rate: p in [0, 1], any shape.
        num_classes: K, at least 2.
        samples_per_class: s, at least 2.

    Returns:
        An array of the shape of p.

    Raises:
        ValueError: if a number is out of range.

    Source:
        Le, Odobez, 2018, proposition 1; an exact form of it for finite classes, not in the paper.

    Example:
        >>> round(float(single_negative_factor(0.2, num_classes=3, samples_per_class=2)), 10)
        0.5243
    """
    classes = int(pairs.as_classes(check_count(num_classes, name="num_classes")))
    samples = int(
        pairs.as_integers(2, check_count(samples_per_class, name="samples_per_class"), name="samples_per_class")
    )
    rates = pairs.as_within(0, 1, noise_rate, name="noise_rate")
    return np.array([_single_negative_factor(p, classes, samples) for p in rates.flat]).reshape(rates.shape)


def _single_negative_factor(p: float, classes: int, samples: int) -> float:
    """The coefficient of d(a, j) for two items of one class, by the label a is observed with: its own or another."""
    from scipy.stats import binom  # takes a second to load

    correct, moved = 1 - p, p / (classes - 1)
    outside = (classes - 1) * samples
    # How many of the other items have which chance of the label of a.
    same = [(samples - 2, correct), (outside, moved)]
    another = [(samples - 2, moved), (samples, correct), (outside - samples, moved)]
    total = 0.0
    for chance, match, groups in ((1 - p, correct, same), (p, moved, another)):
        mass = np.ones(1)  # of the number of items, without a and j, observed with the label of a
        for count, share in groups:
            mass = np.convolve(mass, binom.pmf(np.arange(count + 1), count, share))
        positives = np.arange(len(mass))
        push = (mass * positives / (len(mass) - positives)).sum()  # j is one of the negatives
        pull = mass[:-1].sum()  # without a negative nothing is drawn
        total += chance * (match * pull - (1 - match) * push)
    return float(total)


def margin_partition(
    distances: npt.ArrayLike, positive: npt.ArrayLike, *, margin: float = 0.2, beta: float = 1.4
) -> MarginPartition:
    """Find the pairs with a margin loss above 0 by their true label, and by the opposite one.

    Used either way: |d - beta| < margin. Used with the true label alone: positive pairs at d >= beta + margin and
    negative ones at d <= beta - margin. With the wrong one alone: the reverse. Every pair is in exactly one set.

    Args:
        distances: d in [0, 2], any shape.
        positive: bool, t = +1, any shape that broadcasts with it.
        margin: alpha, above 0.
        beta: the boundary, at least 0.

    Returns:
        Three masks of the common shape.

    Raises:
        ValueError: if a number is out of range or `positive` is not bool.

    Source:
        Le, Odobez, 2018, section 5.3, eq. 33 to 35.

    Example:
        >>> margin_partition([0.5, 0.5, 1.5], [True, False, True]).clean_only.tolist()
        [False, True, False]
    """
    if not margin > 0:
        raise ValueError(f"margin must be above 0: got {margin}; without one a pair at beta is in no set.")
    check_at_least(0, margin, name="margin")
    check_at_least(0, beta, name="beta")
    d, flags = np.broadcast_arrays(pairs.as_distances(distances), pairs.as_flags(positive))
    far, near = d >= beta + margin, d <= beta - margin
    return MarginPartition(~(far | near), np.where(flags, far, near), np.where(flags, near, far))


def residual_multipliers(
    noise_rate: npt.ArrayLike, num_classes: npt.ArrayLike, *, positive_skew: npt.ArrayLike, negative_skew: npt.ArrayLike
) -> ResidualMultipliers:
    """The multipliers of the two residual sums of the margin loss, for many classes.

    With q = 2 p - p^2, eta^+ the largest positive skew and eta^- the smallest negative one,

        T_m^+:  q (eta^+ / eta^- - 1) eta^+_ij  for t = +1,    q (eta^+ / eta^-) eta^-_ij / K  for t = -1,
        T_m^-:  q eta^-_ij / K  for t = +1,                    q eta^+_ij / K  for t = -1.

    Terms of relative order 1 / K are left out, as in the paper. The paper concludes that the residual is negative "with
    high probability" if z |T_m^+| > |T_m^-| (`residual_ratio`); that is a heuristic and is not decided here.

    Args:
        noise_rate: p in [0, 1], of any shape that broadcasts with the skews.
        num_classes: K, whole and at least 2, likewise.
        positive_skew: eta^+_ij > 0, any shape: the weight a pair has when it is used as a positive one.
        negative_skew: eta^-_ij > 0, any shape: K times its weight as a negative one. The smallest must not exceed the
            largest positive skew.

    Returns:
        Arrays of the common shape.

    Raises:
        ValueError: if a number is out of range.

    Source:
        Le, Odobez, 2018, eq. 44 to 48.

    Example:
        >>> multipliers = residual_multipliers(0.5, 10, positive_skew=2.0, negative_skew=1.0)
        >>> [round(float(value), 9) for value in multipliers]
        [1.5, 0.15, 0.075, 0.15]
    """
    p, classes = pairs.as_within(0, 1, noise_rate, name="noise_rate"), pairs.as_classes(num_classes)
    as_positive = pairs.as_above_zero(positive_skew, name="positive_skew")
    as_negative = pairs.as_above_zero(negative_skew, name="negative_skew")
    largest, smallest = as_positive.max(initial=0), as_negative.min(initial=np.inf)
    if not smallest <= largest:
        raise ValueError(
            "the smallest negative_skew must not exceed the largest positive_skew: got "
            f"{float(smallest)} and {float(largest)}; the bound assumes that positives are the more skewed."
        )
    wrong, ratio = p * (2 - p), largest / smallest
    terms = (
        wrong * (ratio - 1) * as_positive,
        wrong * ratio * as_negative / classes,
        wrong * as_negative / classes,
        wrong * as_positive / classes,
    )
    return ResidualMultipliers(*(np.array(term) for term in np.broadcast_arrays(*terms)))


def residual_ratio(gamma: npt.ArrayLike) -> Floats:
    """z = 1 / (1 / gamma - 1): what the paper weighs |T_m^+| with against |T_m^-|; infinite at gamma = 1.

    Args:
        gamma: eta^- / eta^+ in (0, 1], any shape.

    Raises:
        ValueError: if gamma is out of range.

    Source:
        Le, Odobez, 2018, supplement, after eq. 48.

    Example:
        >>> residual_ratio([0.5, 0.8, 1.0]).round(9).tolist()
        [1.0, 4.0, inf]
    """
    share = pairs.as_within(0, 1, pairs.as_above_zero(gamma, name="gamma"), name="gamma")
    return np.divide(share, 1 - share, out=np.full_like(share, np.inf), where=share < 1)
