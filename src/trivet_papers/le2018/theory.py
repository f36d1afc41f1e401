"""Label noise: how often pairs are wrong, what that does to the risk of unhinged losses, and how much is tolerated.

Each of N items of K classes has a true label and an observed one. Symmetric noise at rate p keeps a label with
probability 1 - p and else replaces it by one of the K - 1 others, drawn uniformly, independently for each item;
kappa = K / (K - 1). A pair is positive (t = +1) if its true labels agree and else negative (t = -1). Distances d are
Euclidean, between points of the unit sphere, so at most d_max = 2. Arguments are not checked; K may be infinite.

Source:
    Le, Odobez, "Theoretical Guarantees of Deep Embedding Losses Under Label Noise", 2018; equations by its numbers.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.stats import binom

from trivet.label_noise.tolerance import (
    implied_skew,
    negative_weight,
    noise_rate_bound,
    smaller_root,
    tolerated_noise_rate,
)
from trivet.losses.unhinged import DIAMETER
from trivet.runtime.arrays import Booleans, Floats, Integers

__all__ = ["implied_skew", "negative_weight", "noise_rate_bound", "tolerated_noise_rate"]  # part of the theory, too

CHUNK = 4096  # labelings whose pairs are counted at once


class PairRates(NamedTuple):
    """Rates at which the observed labels of a pair say the opposite of the true ones, each an array in [0, 1]."""

    positive: Floats  # q_{+1}: of one class, observed with two labels
    negative: Floats  # q_{-1}: of two classes, observed with one label


class RiskFactors(NamedTuple):
    """By what noise multiplies the risk of a pair, each an array: C_t = 1 - q_t - q_t w_{-t} / w_t."""

    positive: Floats
    negative: Floats

    @property
    def smallest(self) -> Floats:
        """Q, the smaller of the two; the paper's condition for tolerance is Q >= 0 (eq. 22)."""
        return np.minimum(self.positive, self.negative)


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


def pair_noise_rates(noise_rate: npt.ArrayLike, num_classes: npt.ArrayLike) -> PairRates:
    """Rates at which symmetric noise turns a positive pair into a negative one and the reverse.

        q_{+1} = 2 p - kappa p^2,    q_{-1} = q_{+1} / (K - 1),    1 - q_{+1} - q_{-1} = (1 - kappa p)^2.

    Source:
        Section 3, eq. 7; eq. 8 is corrected: its last factor must be 1 - 1 / (K - 1).
    """
    p, classes = np.asarray(noise_rate, np.float64), np.asarray(num_classes, np.float64)
    positive = p * (2 - p / (1 - 1 / classes))
    return PairRates(positive, positive / (classes - 1))


def simulated_pair_rates(
    noise_rate: float, num_classes: int, *, draws: int, generator: np.random.Generator
) -> PairRates:
    """The rates of `pair_noise_rates` counted among so many pairs of each kind whose labels are drawn, by eq. 6."""

    def observed(truth: int) -> Integers:
        to = (truth + generator.integers(1, num_classes, draws)) % num_classes
        return np.where(generator.random(draws) < noise_rate, to, truth)

    first = observed(0)
    return PairRates(np.asarray((first != observed(0)).mean()), np.asarray((first == observed(1)).mean()))


def class_pair_noise_rates(transition: npt.ArrayLike, priors: npt.ArrayLike | None = None) -> PairRates:
    """The rates of `pair_noise_rates` for noise that depends on the class (eq. 5), of two items drawn independently.

    With T the transition `(K, K)`, from true labels (rows) to observed ones (columns), pi the priors `(K,)`, 1 / K by
    default, and sums over the classes y and y',

        q_{+1} = 1 - sum_y pi_y^2 (T T')_{yy} / sum_y pi_y^2,
        q_{-1} = sum_{y != y'} pi_y pi_y' (T T')_{yy'} / (1 - sum_y pi_y^2).
    """
    table = np.asarray(transition, np.float64)
    shares = np.full(len(table), 1 / len(table)) if priors is None else np.asarray(priors, np.float64)
    agree = shares[:, None] * shares * (table @ table.T)
    different = 1 - np.eye(len(table))
    within, between = np.trace(agree), (agree * different).sum()
    pairs_between = (np.outer(shares, shares) * different).sum()
    return PairRates(np.asarray(1 - within / np.square(shares).sum()), np.asarray(between / pairs_between))


def noise_rate_of_pairs(positive_rate: npt.ArrayLike, num_classes: npt.ArrayLike) -> Floats:
    """The smaller noise rate p at which a share q_{+1} <= 1 - 1 / K of the positive pairs is wrong.

    p = (1 - sqrt(1 - kappa q_{+1})) / kappa    (eq. 8 corrected, solved for p)
    """
    return smaller_root(np.asarray(positive_rate, np.float64), 1 - 1 / np.asarray(num_classes, np.float64))


def symmetric_transition(noise_rate: float, num_classes: int) -> Floats:
    """The `(K, K)` probabilities of the observed labels (columns) given the true ones (rows), eq. 6.

    Raises:
        ValueError: if K is 1.
    """
    if num_classes < 2:
        raise ValueError(f"a wrong label needs another class: got {num_classes}.")
    table = np.full((num_classes, num_classes), noise_rate / (num_classes - 1))
    np.fill_diagonal(table, 1 - noise_rate)
    return table


def auxiliary_loss(distances: npt.ArrayLike, positive: npt.ArrayLike) -> Floats:
    """l^A: the distance of a positive pair, and d_max minus the distance of a negative one (definition 1, eq. 9)."""
    d = np.asarray(distances, np.float64)
    return np.asarray(np.where(positive, d, DIAMETER - d))


def unhinged_triplet_loss(to_positive: npt.ArrayLike, to_negative: npt.ArrayLike, *, margin: float = 0.2) -> Floats:
    """l^U = d_max + d(a, p) - d(a, n) + margin, the auxiliary losses of both pairs and the margin (definition 3)."""
    return DIAMETER + np.asarray(to_positive, np.float64) - np.asarray(to_negative, np.float64) + margin


def unhinged_margin_loss(
    distances: npt.ArrayLike, positive: npt.ArrayLike, *, margin: float = 0.2, beta: float = 1.4
) -> Floats:
    """l^M = d_max + (d - beta) t + margin of pairs (definition 5, eq. 31)."""
    return DIAMETER + _signed(distances, positive, margin, beta)


def hinged_margin_loss(
    distances: npt.ArrayLike, positive: npt.ArrayLike, *, margin: float = 0.2, beta: float = 1.4
) -> Floats:
    """max(0, (d - beta) t + margin) of pairs (eq. 2)."""
    return np.maximum(0, _signed(distances, positive, margin, beta))


def _signed(distances: npt.ArrayLike, positive: npt.ArrayLike, margin: float, beta: float) -> Floats:
    difference = np.asarray(distances, np.float64) - beta
    return np.where(positive, difference, -difference) + margin


def risk_factors(rates: PairRates, weight: npt.ArrayLike) -> RiskFactors:
    """By what noise multiplies the risk of a pair whose weight depends on its observed label alone.

    The expected risk of a pair is, with l its auxiliary loss and w = w_{-1} / w_{+1} the weight,

        (1 - q_t) w_t l + q_t w_{-t} (d_max - l) = C_t w_t l + w_{-t} q_t d_max,
        C_{+1} = 1 - q_{+1} (1 + w),    C_{-1} = 1 - q_{-1} (1 + 1 / w).

    With w = 1 / (K - 1) both factors are (1 - kappa p)^2, never negative; with the paper's w = 1 / K the factor of
    negative pairs is the smaller one and falls below 0 at `tolerated_noise_rate`.

    Source:
        Eq. 11, 17 and 22.
    """
    w = np.asarray(weight, np.float64)
    return RiskFactors(1 - rates.positive * (1 + w), 1 - rates.negative * (1 + 1 / w))


def skewed_risk_factor(noise_rate: npt.ArrayLike, skew: npt.ArrayLike) -> Floats:
    """Q = 1 - (2 p - p^2) skew: the smallest risk factor of skewed sampling, for many classes.

    Source:
        Eq. 26 (where 2p + q^2 must be 2p - p^2) and 46.
    """
    p = np.asarray(noise_rate, np.float64)
    return np.asarray(1 - p * (2 - p) * np.asarray(skew, np.float64))


def labelings(labels: npt.ArrayLike, transition: npt.ArrayLike) -> tuple[Integers, Floats]:
    """Every one of the L = K^N ways in which noise may label N items `(L, N)`, and its probability `(L,)`, by eq. 5."""
    table, truth = np.asarray(transition, np.float64), np.asarray(labels)
    observed = np.indices((len(table),) * len(truth), dtype=np.int64).reshape(len(truth), -1).T
    return observed, table[truth, observed].prod(axis=1)


def single_negative_coefficients(
    labels: npt.ArrayLike, transition: npt.ArrayLike, *, reduction: Literal["sum", "mean"] = "sum"
) -> Floats:
    """The coefficients `(N, N)` of the distances in the expected risk of the unhinged triplet loss, by enumeration.

    The observed labels are drawn, then one observed negative of the anchor, uniformly, for each ordered pair that is
    observed positive; anchors without one are left out. The expectation over both draws is

        sum_{a, j} c_{aj} d(a, j) + constant,    with sum_j c_{aj} = 0 for each a.

    With balanced classes and symmetric noise c_{aj} depends on the true label of the pair alone, so that noise
    multiplies the clean risk of every embedding by one number, `single_negative_factor`. The reduction is over the
    pairs used; "mean" is 0 for a labeling that uses none.

    Source:
        Definition 4 and proposition 1; an exact form of it for finite classes, not in the paper.
    """
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

    Source:
        Proposition 1; an exact form of it for finite classes, not in the paper.
    """
    rates = np.asarray(noise_rate, np.float64)
    factors = [_single_negative_factor(p, num_classes, samples_per_class) for p in rates.flat]
    return np.array(factors).reshape(rates.shape)


def _single_negative_factor(p: float, classes: int, samples: int) -> float:
    """The coefficient of d(a, j) for two items of one class, by the label a is observed with: its own or another."""
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
    """Find the pairs with a margin loss above 0 by their true label, and by the opposite one; margin above 0.

    Used either way: |d - beta| < margin. Used with the true label alone: positive pairs at d >= beta + margin and
    negative ones at d <= beta - margin. With the wrong one alone: the reverse. Every pair is in exactly one set.

    Source:
        Section 5.3, eq. 33 to 35.
    """
    d, flags = np.broadcast_arrays(np.asarray(distances, np.float64), np.asarray(positive))
    far, near = d >= beta + margin, d <= beta - margin
    return MarginPartition(~(far | near), np.where(flags, far, near), np.where(flags, near, far))


def residual_multipliers(
    noise_rate: npt.ArrayLike, num_classes: npt.ArrayLike, *, positive_skew: npt.ArrayLike, negative_skew: npt.ArrayLike
) -> ResidualMultipliers:
    """The multipliers of the two residual sums of the margin loss, for many classes.

    With q = 2 p - p^2, eta^+_ij the weight of a pair used as a positive one and eta^-_ij K times its weight as a
    negative one, eta^+ the largest of the first and eta^- the smallest of the second, eta^- <= eta^+,

        T_m^+:  q (eta^+ / eta^- - 1) eta^+_ij  for t = +1,    q (eta^+ / eta^-) eta^-_ij / K  for t = -1,
        T_m^-:  q eta^-_ij / K  for t = +1,                    q eta^+_ij / K  for t = -1.

    Terms of relative order 1 / K are left out, as in the paper. It concludes that the residual is negative "with high
    probability" if z |T_m^+| > |T_m^-| (`residual_ratio`); that is a heuristic and is not decided here.

    Source:
        Eq. 44 to 48.
    """
    p, classes = np.asarray(noise_rate, np.float64), np.asarray(num_classes, np.float64)
    as_positive, as_negative = np.asarray(positive_skew, np.float64), np.asarray(negative_skew, np.float64)
    wrong, ratio = p * (2 - p), as_positive.max() / as_negative.min()
    terms = (
        wrong * (ratio - 1) * as_positive,
        wrong * ratio * as_negative / classes,
        wrong * as_negative / classes,
        wrong * as_positive / classes,
    )
    return ResidualMultipliers(*(np.array(term) for term in np.broadcast_arrays(*terms)))


def residual_ratio(gamma: npt.ArrayLike) -> Floats:
    """z = 1 / (1 / gamma - 1) for gamma = eta^- / eta^+: what the paper weighs |T_m^+| with against |T_m^-|."""
    share = np.asarray(gamma, np.float64)
    return np.divide(share, 1 - share, out=np.full_like(share, np.inf), where=share < 1)
