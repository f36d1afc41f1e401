"""Sections 4.1, 4.2 and 5.3: what noise does to the risk, and up to which noise rate."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
from scipy.optimize import minimize

from trivet.runtime.arrays import Floats, Integers
from trivet_papers.checks import Check
from trivet_papers.le2018 import theory
from trivet_papers.le2018.claims.pairs import SETTINGS, check, printed_pair_rates
from trivet_papers.le2018.skews import BETA, MARGIN, distances_of, pairs_of, unit_points
from trivet_papers.le2018.theory import PairRates


def bound_checks() -> Iterator[Check]:
    """Sections 4.1, 4.2 and 5.3: up to which noise rate the losses are tolerant."""
    grid, sizes = np.linspace(0, 1, 201), np.array([5, 10, 12, 100, 1000, 10**6])
    limits = theory.tolerated_noise_rate(sizes, 1 / sizes)
    worst = {-1: np.inf, 1: -np.inf}
    for number, limit in zip(sizes[:-1], limits[:-1], strict=True):
        for side in worst:
            q = theory.risk_factors(theory.pair_noise_rates(limit + side * 1e-4, number), 1 / number).smallest
            worst[side] = min(worst[side], float(q)) if side < 0 else max(worst[side], float(q))
    gap = theory.risk_factors(theory.pair_noise_rates(grid, 10**6), 1e-6).smallest - (1 - grid) ** 2
    order = max(
        float(np.subtract(*theory.risk_factors(theory.pair_noise_rates(grid, number), 1 / number)[::-1]).max())
        for number in (2, 3, 5, 10, 100)
    )
    skews = np.array([1.0, 1.05, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0])
    p = theory.noise_rate_bound(skews)
    wrong = 2 * p - p**2
    corrected, printed = 1 - wrong * skews, 1 - (2 * p + wrong**2) * skews
    half = theory.noise_rate_bound(skews, least=0.5)
    q_printed, q_half = 1 - (2 * p - p**2) * skews, 1 - (2 * half - half**2) * skews
    breaks = theory.implied_skew([0.3, 0.5, 0.6])
    back = float(np.abs(theory.noise_rate_bound(breaks) - [0.3, 0.5, 0.6]).max())
    many, eta, rate = 10**7, 2.0, 0.2
    rates = theory.pair_noise_rates(rate, many)
    easy, hard = (float(theory.risk_factors(rates, w).negative) for w in (1 / (eta * many), eta / many))
    worst_case = 1 - (2 * rate - rate**2) * eta
    yield check(
        "eq25",
        "For many classes the condition for tolerance becomes (1 - p)^2 >= 0.",
        "difference below 1e-5 at a million classes",
        f"{np.abs(gap).max():.1e}",
        float(np.abs(gap).max()) < 1e-5,
    )
    yield check(
        "tolerated-noise-rate",
        "With the paper's weights any p < 1 is tolerated only for infinitely many classes, not for few.",
        "smallest factor changes sign at a limit that grows with K: below 0.7 at 10, above 0.99 at a million",
        f"limit {limits[1]:.6f} at 10, {limits[-1]:.6f} at a million; factor {worst[-1]:+.1e} below it, "
        f"{worst[1]:+.1e} above it",
        bool(worst[-1] > 0 > worst[1] and (np.diff(limits) > 0).all() and limits[1] < 0.7 and limits[-1] > 0.99),
    )
    yield check(
        "corruption-asymmetry",
        "With the paper's weights the factor of negative pairs is never above that of positive pairs (section 7).",
        "negative minus positive factor at most 1e-12",
        f"{order:.1e}",
        order <= 1e-12,
    )
    yield check(
        "eq26",
        "Equation 26 misprints 2p + q^2 for 2p - p^2: only the latter is 0 at the bound of equation 27.",
        "corrected condition 0 within 1e-12 for skews of 1 to 10, printed one below -0.05",
        f"{np.abs(corrected).max():.1e}; at most {printed.max():.3f}",
        bool(np.abs(corrected).max() < 1e-12 and printed.max() < -0.05),
    )
    yield check(
        "eq27-inverse",
        "A method that breaks at p = 0.3, 0.5 or 0.6 has a skew of 1.96, 1.33 or 1.19.",
        "1 / (2p - p^2), and its bound is p within 1e-12",
        ", ".join(f"{skew:.4f}" for skew in breaks) + f"; bound off by {back:.1e}",
        bool(back < 1e-12 and np.abs(breaks - [1.96, 4 / 3, 1.19]).max() < 0.002),
    )
    yield check(
        "eq37",
        "Equation 37 is the bound for Q >= 0, although the text before it asks for Q >= 0.5.",
        "Q = 0 within 1e-12 at the printed bound; Q = 0.5 at 1 - sqrt(1 - gamma / 2)",
        f"|Q| {np.abs(q_printed).max():.1e}; |Q - 0.5| {np.abs(q_half - 0.5).max():.1e}",
        bool(np.abs(q_printed).max() < 1e-12 and np.abs(q_half - 0.5).max() < 1e-12),
    )
    yield check(
        "skew-per-pair",
        "The bound of equation 27 is reached by the easy pairs, of weight 1/(eta K); the hard ones, of weight "
        "eta/K, tolerate more.",
        "factor of easy pairs 1 - (2p - p^2) eta within 1e-5, of hard ones above it",
        f"{easy:.6f} against {worst_case:.6f}; hard {hard:.6f}",
        abs(easy - worst_case) < 1e-5 and hard > worst_case + 0.1,
    )


def risk_checks() -> Iterator[Check]:
    """Section 4.1 and proposition 1: the expected risk under noise."""
    truth = np.array([0, 0, 1, 1, 2, 2])
    d = distances_of(unit_points(6, 3, seed=2))
    errors = {"corrected": 0.0, "printed": np.inf, "hatless": np.inf}
    for p, weight in SETTINGS:
        noisy = _noisy_weighted_risk(truth, d, p, weight)
        exact = _rescaled_risk(truth, d, theory.pair_noise_rates(p, 3), weight)
        errors["corrected"] = max(errors["corrected"], abs(noisy - exact))
        printed = _rescaled_risk(truth, d, printed_pair_rates(p, 3), weight)
        errors["printed"] = min(errors["printed"], abs(noisy - printed))
        errors["hatless"] = min(errors["hatless"], abs(noisy - _noisy_weighted_risk(truth, d, 0.0, weight)))
    excess, signs, dropped = _upper_bounds()
    equal, zero_sum, positive, at_random = 0.0, 0.0, np.inf, 0.0
    for classes, samples in ((2, 3), (2, 4), (3, 2)):
        labels = np.repeat(np.arange(classes), samples)
        same = (labels[:, None] == labels) & ~np.eye(len(labels), dtype=bool)
        for p in (0.0, 0.2, 0.4, 0.8, 1 - 1 / classes):
            table = theory.single_negative_coefficients(labels, theory.symmetric_transition(p, classes))
            factor = float(theory.single_negative_factor(p, num_classes=classes, samples_per_class=samples))
            push = -factor * theory.negative_weight(classes, samples)
            expected = np.where(same, factor, push)
            np.fill_diagonal(expected, 0)
            equal = max(equal, float(np.abs(table - expected).max()))
            zero_sum = max(zero_sum, float(np.abs(table.sum(axis=1)).max()))
    for classes, samples in itertools.product((2, 3, 5, 10), (2, 5)):
        grid = np.setdiff1d(np.linspace(0, 1, 21), [1 - 1 / classes])
        options = {"num_classes": classes, "samples_per_class": samples}
        grid = grid[np.abs(grid - (1 - 1 / classes)) > 1e-9]
        positive = min(positive, float(theory.single_negative_factor(grid, **options).min()))
        at_random = max(at_random, abs(float(theory.single_negative_factor(1 - 1 / classes, **options))))
    mean_gap, mean_ratio = 0.0, 0.0
    three, pairs_of_three = np.repeat(np.arange(3), 2), pairs_of(np.repeat(np.arange(3), 2))
    for p in (0.2, 0.4, 0.5, 0.8):
        table = theory.single_negative_coefficients(three, theory.symmetric_transition(p, 3), reduction="mean")
        pull, push = (table[mask] for mask in pairs_of_three)
        mean_gap = max(mean_gap, float(np.ptp(pull)), float(np.ptp(push)))
        mean_ratio = max(mean_ratio, abs(float(push.mean() / pull.mean() + theory.negative_weight(3, 2))))
    distance_to_square = []
    for samples in (2, 5, 20):
        grid = np.linspace(0, 1, 11)
        factors = theory.single_negative_factor(grid, num_classes=10, samples_per_class=samples)
        distance_to_square.append(float(np.abs(factors - (1 - grid * 10 / 9) ** 2).max()))
    q_negative = float(theory.risk_factors(theory.pair_noise_rates(0.5, 3), 1 / 3).smallest)
    still = float(theory.single_negative_factor(0.5, num_classes=3, samples_per_class=2))
    at_half = noisy_coefficients(three, 0.5)
    of_clean = _minimiser(noisy_coefficients(three, 0.0))
    gap = float(np.abs(_minimiser(at_half) - of_clean).max())
    by_factors = theory.risk_factors(theory.pair_noise_rates(0.5, 3), 1 / 3)
    as_if = np.where(pairs_of_three[0], by_factors.positive, 0) - np.where(
        pairs_of_three[1], by_factors.negative * theory.negative_weight(3, 2), 0
    )
    gap_by_factors = float(np.abs(_minimiser(as_if) - of_clean).max())
    off_line, disagreeing, reordered = _noisy_order(0.4)
    yield check(
        "eq17",
        "With weights that depend on the label alone noise scales the risk of a pair by C_t and adds a constant.",
        "expectation over all 729 labelings of 3 classes of 2 within 1e-12",
        f"{errors['corrected']:.1e}",
        errors["corrected"] < 1e-12,
    )
    yield check(
        "eq17-with-eq8",
        "With the printed equation 8 in place of the exact rate equation 17 fails.",
        "off by more than 0.05",
        f"off by at least {errors['printed']:.3f}",
        errors["printed"] > 0.05,
    )
    yield check(
        "eq16",
        "The first line of equation 16 lacks the hat: what it expands is the noisy risk, not the clean one.",
        "clean risk off by more than 0.05 (own bound), noisy risk met within 1e-12",
        f"off by at least {errors['hatless']:.3f}; {errors['corrected']:.1e}",
        errors["corrected"] < 1e-12 and errors["hatless"] > 0.05,
    )
    yield check(
        "eq21",
        "The upper bound of equation 21 holds whatever the sign of Q; Q >= 0 is needed only for the step after it.",
        "never exceeded by more than 1e-12, with Q of both signs among the cases",
        f"largest excess {excess:.1e}; Q from {signs[0]:.2f} to {signs[1]:.2f}",
        excess < 1e-12 and signs[0] < 0 < signs[1],
    )
    yield check(
        "eq43",
        "The middle line of equation 43 has lost the weights of the pairs: as printed it is no upper bound.",
        "exceeded without the weights",
        f"exceeded by up to {dropped:.2f}",
        dropped > 0.01,
    )
    yield check(
        "one-risk-factor",
        "With balanced classes and real 1-1 sampling from observed labels noise multiplies the clean risk of every "
        "embedding by one number c(p).",
        "coefficients of all labelings equal to c(p) and -c(p) (s-1)/((K-1)s) within 1e-12, adding up to 0",
        f"largest difference {equal:.1e}, largest sum {zero_sum:.1e}",
        max(equal, zero_sum) < 1e-12,
    )
    yield check(
        "one-risk-factor-mean",
        "The same holds for the mean over the pairs used, whose number depends on the labels.",
        "coefficients equal within each kind of pair, ratio -(s-1)/((K-1)s), within 1e-12; 3 classes of 2",
        f"{mean_gap:.1e} and {mean_ratio:.1e}",
        max(mean_gap, mean_ratio) < 1e-12,
    )
    yield check(
        "risk-factor-positive",
        "c(p) is positive at every noise rate but that of random labels, 1 - 1/K, where it is 0.",
        "least value above 0 elsewhere, below 1e-12 there",
        f"{positive:.1e}; {at_random:.1e}",
        positive > 1e-9 and at_random < 1e-12,
    )
    yield check(
        "risk-factor-square",
        "c(p) is near (1 - kappa p)^2, the nearer the larger the classes.",
        "largest difference falls with 2, 5, 20 items of each of 10 classes, below 0.02",
        ", ".join(f"{value:.5f}" for value in distance_to_square),
        distance_to_square == sorted(distance_to_square, reverse=True) and distance_to_square[0] < 0.02,
    )
    yield check(
        "proposition-1-q",
        "Q >= 0 is not needed for proposition 1: the risk factor is positive where Q is negative.",
        "Q < 0 < c at p = 0.5, 3 classes of 2",
        f"Q = {q_negative:.4f}, c = {still:.4f}",
        q_negative < 0 < still,
    )
    yield check(
        "proposition-1",
        "The minimiser of the clean unhinged risk minimises the expected noisy one under 1-1 sampling.",
        "the lowest of 12 descents of 3 classes of 2 on a circle has the same distances at p = 0 and 0.5 within "
        "1e-5, although Q < 0; with the paper's factors in place of the exact ones it has others",
        f"{gap:.1e} apart, Q = {by_factors.smallest:.2f}; {gap_by_factors:.2f} apart",
        gap < 1e-5 and by_factors.smallest < 0 and gap_by_factors > 0.1,
    )
    yield check(
        "proposition-1-condition-2",
        "Condition 2 of proposition 1 is not needed: the noisy risk orders embeddings as the clean one does, also "
        "where S+ and S- disagree.",
        "no pair of 300 random embeddings reordered at p = 0.4, risks on a line within 1e-12",
        f"{reordered} reordered, {disagreeing} where S+ and S- disagree; off the line by {off_line:.1e}",
        reordered == 0 < disagreeing and off_line < 1e-12,
    )


def margin_checks() -> Iterator[Check]:
    """Section 5.3 and supplement A.2: the margin loss with its hinge."""
    generator = np.random.default_rng(3)
    d, flags = generator.uniform(0, 2, 10_000), generator.random(10_000) < 0.5
    options = {"margin": MARGIN, "beta": BETA}
    sets = theory.margin_partition(d, flags, **options)
    clean, flipped = (theory.hinged_margin_loss(d, t, **options) > 0 for t in (flags, ~flags))
    wrong = sum(
        int((selected != expected).sum())
        for selected, expected in zip(sets, (clean & flipped, clean & ~flipped, ~clean & flipped), strict=True)
    )
    in_exactly_1 = int((np.sum(sets, axis=0) == 1).sum())
    off = [_multipliers_off(classes) for classes in (10**3, 10**4, 10**5)]
    # z times the multipliers of T_m^+ against those of T_m^-, at the extreme skews of gamma below and above one half.
    ahead = {}
    for gamma in (0.25, 0.75):
        multipliers = theory.residual_multipliers(0.3, 100, positive_skew=[2.0], negative_skew=[2.0 * gamma])
        z = float(theory.residual_ratio(gamma))
        ahead[gamma] = float((z * multipliers.clean_only_negative - multipliers.noisy_only_negative)[0])
    yield check(
        "margin-partition",
        "The three sets of pairs of section 5.3 are disjoint and cover all pairs.",
        "each of 10000 pairs in one set, that of its active losses",
        f"{in_exactly_1} in one set, {wrong} in another set than their losses say",
        in_exactly_1 == len(d) and wrong == 0,
    )
    yield check(
        "eq45-48",
        "Equations 45 to 48 leave out terms of relative order 1/K only.",
        "relative difference from the exact multipliers falls tenfold with tenfold K, below 1e-3 at 100000",
        ", ".join(f"{value:.1e}" for value in off),
        all(8 < a / b < 12 for a, b in itertools.pairwise(off)) and off[-1] < 1e-3,
    )
    yield check(
        "residual-heuristic",
        "The inequality behind z |T_m^+| > |T_m^-| fails for negative pairs of extreme skews when gamma < 1/2, so "
        "it is a heuristic.",
        "z times the multiplier of T_m^+ below that of T_m^- at gamma = 0.25, above it at 0.75",
        f"ahead by {ahead[0.25]:.5f} and {ahead[0.75]:.5f}",
        ahead[0.25] < 0 < ahead[0.75],
    )


def _noisy_weighted_risk(truth: Integers, distances: Floats, noise_rate: float, weight: float) -> float:
    """The sum over pairs of the weighted auxiliary loss under the observed labels, in expectation over all of them."""
    observed, probability = theory.labelings(truth, theory.symmetric_transition(noise_rate, 3))
    positive, negative = pairs_of(observed)
    risks = (np.where(positive, distances, 0) + np.where(negative, weight * (2 - distances), 0)).sum(axis=(1, 2))
    return float(probability @ risks)


def _rescaled_risk(truth: Integers, distances: Floats, rates: PairRates, weight: float) -> float:
    """Equation 17: the clean risk of the pairs times their factors, and the constants."""
    factors = theory.risk_factors(rates, weight)
    positive, negative = pairs_of(truth)
    of_positive = factors.positive * distances + weight * rates.positive * 2
    of_negative = factors.negative * weight * (2 - distances) + rates.negative * 2
    return float(of_positive[positive].sum() + of_negative[negative].sum())


def _upper_bounds() -> tuple[float, tuple[float, float], float]:
    """By how much equation 21 is exceeded, the range of Q, and by how much the middle line of equation 43 is."""
    generator = np.random.default_rng(5)
    p, classes = generator.uniform(0, 1, 10_000), generator.integers(2, 20, 10_000)
    to_positive, to_negative = -generator.uniform(0, 10, (2, 10_000))  # S+ and S- of a better embedding
    factors = theory.risk_factors(theory.pair_noise_rates(p, classes), 1 / classes)
    change = factors.positive * to_positive + factors.negative * to_negative / classes
    q = factors.smallest
    excess = float((change - q * (to_positive + to_negative / classes)).max())
    return excess, (float(q.min()), float(q.max())), float((change - q * (to_positive + to_negative)).max())


def noisy_coefficients(truth: Integers, noise_rate: float) -> Floats:
    """Weights with which each pair pulls (> 0) or pushes (< 0) in the expected risk of 1-1 sampling, `(N, N)`."""
    classes = int(truth.max()) + 1
    return theory.single_negative_coefficients(truth, theory.symmetric_transition(noise_rate, classes))


def _minimiser(coefficients: Floats) -> Floats:
    """Distances `(N, N)` of the points of a circle with the lowest risk that 12 descents from random points reach."""
    table, generator = (coefficients + coefficients.T) / 2, np.random.default_rng(6)

    def distances(angles: Floats) -> Floats:
        return np.asarray(np.sqrt(2 - 2 * np.cos(angles[:, None] - angles) + 1e-12))  # differentiable at 0

    def risk(angles: Floats) -> tuple[float, Floats]:
        d = distances(angles)
        return float((table * d).sum()), (2 * table * np.sin(angles[:, None] - angles) / d).sum(axis=1)

    starts = generator.uniform(0, 2 * np.pi, (12, len(table)))
    ends = [minimize(risk, start, jac=True, method="BFGS", options={"gtol": 1e-10}) for start in starts]
    return distances(min(ends, key=lambda end: float(end.fun)).x)


def _noisy_order(noise_rate: float) -> tuple[float, int, int]:
    """Clean and noisy risk of random embeddings of 3 classes of 2.

    How far they are off one rising line, how many pairs of embeddings have S+ and S- in opposite orders, and how many
    pairs the noise puts in another order.
    """
    labels = np.repeat(np.arange(3), 2)
    clean, noisy = (
        theory.single_negative_coefficients(labels, theory.symmetric_transition(p, 3)) for p in (0.0, noise_rate)
    )
    rows = np.random.default_rng(11).standard_normal((300, 6, 3))
    rows /= np.linalg.norm(rows, axis=2, keepdims=True)
    d = np.linalg.norm(rows[:, :, None] - rows[:, None], axis=3)
    before, after = ((table * d).sum(axis=(1, 2)) for table in (clean, noisy))
    factor = float(theory.single_negative_factor(noise_rate, num_classes=3, samples_per_class=2))
    positive, negative = pairs_of(labels)
    sums = d[:, positive].sum(axis=1), (2 - d[:, negative]).sum(axis=1)
    sign = [np.sign(values[:, None] - values) for values in (before, after, *sums)]
    return (
        float(np.abs(after - factor * before).max()),
        int((sign[2] * sign[3] < 0).sum()) // 2,
        int((sign[0] != sign[1]).sum()) // 2,
    )


def _multipliers_off(classes: int) -> float:
    """The largest relative difference of equations 47 and 48 from the multipliers with exact rates and exact Q."""
    p, as_positive, as_negative = 0.3, 2.0, 1.5
    rates = theory.pair_noise_rates(p, classes)
    factors = theory.risk_factors(rates, as_negative / as_positive / classes)
    exact = (
        (1 - rates.positive - factors.smallest) * as_positive,
        (1 - rates.negative - factors.smallest) * as_negative / classes,
        rates.positive * as_negative / classes,
        rates.negative * as_positive,
    )
    multipliers = theory.residual_multipliers(p, classes, positive_skew=as_positive, negative_skew=as_negative)
    return max(abs(float(value / truth) - 1) for value, truth in zip(multipliers, exact, strict=True))
