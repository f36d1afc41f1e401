"""Le, Odobez: Theoretical Guarantees of Deep Embedding Losses Under Label Noise (2018).

`checks` goes through the statements of sections 3 to 5 and 7 and of the supplement that a computation can decide. The
theory is in `trivet.theory.noise`; here it meets simulation, enumeration and the mining that training uses, and the
equations that are misprinted meet what they must be.
"""

from __future__ import annotations

import itertools

import numpy as np
import torch

from trivet.mining import mine
from trivet.papers.checks import Check
from trivet.theory import noise
from trivet.theory.noise import Floats, PairRates

DRAWS, TOLERANCE = 2_000_000, 0.0012  # pairs simulated; over three standard errors of a rate
RATES = ((2, 0.3), (2, 0.8), (3, 0.1), (3, 0.5), (10, 0.3), (10, 0.5), (10, 0.8))  # classes, noise rate
MARGIN, BETA = 0.2, 1.4
SETTINGS = ((0.2, 1 / 3), (0.2, 1 / 2), (0.5, 1 / 3), (0.5, 1 / 2))  # noise rate, weight of negatives, for 3 classes


def checks() -> list[Check]:
    """One row for each statement; a few seconds, seeded."""
    return [
        *pair_rate_checks(),
        *loss_checks(),
        *weight_checks(),
        *bound_checks(),
        *risk_checks(),
        *margin_checks(),
        *sampling_checks(),
    ]


def printed_pair_rates(noise_rate: float, num_classes: int) -> PairRates:
    """Equations 7 and 8 as printed; the last factor of the first of these must be 1 - 1 / (K - 1)."""
    p, others = noise_rate, num_classes - 1
    positive = 2 * p * (1 - p) + p**2 * (1 - 2 / others)
    negative = 2 * p * (1 - p) / others + p**2 * (others - 1) / others**2
    return PairRates(np.asarray(positive), np.asarray(negative))


def pair_rate_checks() -> list[Check]:
    """Section 3: how often pairs are wrong."""
    generator = np.random.default_rng(0)
    off = {"exact +": 0.0, "exact -": 0.0}
    nearest_print = np.inf
    for classes, p in RATES:
        first, second = (_observed(np.zeros(DRAWS, dtype=np.int64), p, classes, generator) for _ in range(2))
        other = _observed(np.ones(DRAWS, dtype=np.int64), p, classes, generator)
        broken, joined = float((first != second).mean()), float((first == other).mean())
        exact = noise.pair_noise_rates(p, classes)
        off["exact +"] = max(off["exact +"], abs(broken - float(exact.positive)))
        off["exact -"] = max(off["exact -"], abs(joined - float(exact.negative)))
        if p >= 0.3:
            nearest_print = min(nearest_print, abs(broken - float(printed_pair_rates(p, classes).positive)))
    grid, sizes = np.linspace(0, 1, 101), np.array([[2], [3], [10], [100], [1000]])
    rates = noise.pair_noise_rates(grid, sizes)
    kappa = sizes / (sizes - 1)
    ratio = np.abs(rates.negative - rates.positive / (sizes - 1)).max()
    square = np.abs(1 - rates.positive - rates.negative - (1 - kappa * grid) ** 2).max()
    below = float(printed_pair_rates(0.8, 2).positive)
    true = float(noise.pair_noise_rates(0.8, 2).positive)
    many = np.array([float(printed_pair_rates(p, 10**6).positive) for p in grid])
    limit = max(
        np.abs(many - grid * (2 - grid)).max(), np.abs(noise.pair_noise_rates(grid, np.inf).positive - many).max()
    )
    transition, priors = np.array([[0.8, 0.15, 0.05], [0.1, 0.7, 0.2], [0.0, 0.3, 0.7]]), np.array([0.5, 0.3, 0.2])
    formula, counted = noise.class_pair_noise_rates(transition, priors), _drawn_rates(transition, priors, generator)
    of_classes = max(abs(float(a) - b) for a, b in zip(formula, counted, strict=True))
    sixty = float(noise.noise_rate_of_pairs(0.6, np.inf))
    return [
        _check(
            "eq7",
            "Equation 7 is the exact share of negative pairs that symmetric noise turns into positive ones.",
            f"simulated share within {TOLERANCE}, {DRAWS} pairs",
            f"largest difference {off['exact -']:.5f}",
            off["exact -"] < TOLERANCE,
        ),
        _check(
            "eq8",
            "Equation 8 misprints the share of positive pairs that turn negative: its last factor must be 1 - 1/(K-1).",
            f"simulated share within {TOLERANCE} of 2p - kappa p^2, farther from the print for K <= 10, p >= 0.3",
            f"largest difference {off['exact +']:.5f}; smallest difference from the print {nearest_print:.5f}",
            off["exact +"] < TOLERANCE < nearest_print,
        ),
        _check(
            "eq8-below-zero",
            "With two classes the printed equation 8 gives a negative probability for p > 2/3.",
            "print below 0, exact rate 2p (1-p): one label of the two moves",
            f"print {below:.4f}, exact {true:.4f} at p = 0.8",
            below < 0 and abs(true - 2 * 0.8 * 0.2) < 1e-12,
        ),
        _check(
            "rate-identities",
            "The two rates differ by the factor K - 1, and 1 minus their sum is (1 - kappa p)^2.",
            "differences below 1e-12",
            f"{ratio:.1e} and {square:.1e}",
            max(ratio, square) < 1e-12,
        ),
        _check(
            "many-classes",
            "For many classes the printed and the corrected equation 8 both become 2p - p^2.",
            "differences below 3e-6 at a million classes",
            f"{limit:.1e}",
            limit < 3e-6,
        ),
        _check(
            "class-dependent-rates",
            "With a transition matrix and class priors the rates follow from the probability of equal observed labels.",
            f"simulated shares within {2 * TOLERANCE}",
            f"largest difference {of_classes:.5f}",
            of_classes < 2 * TOLERANCE,
        ),
        _check(
            "discussion-sixty-percent",
            "Section 7 reads 60 % of wrong positive pairs as a noise rate of 36.8 %.",
            "0.368 within 0.0005, for many classes",
            f"{sixty:.6f}",
            abs(sixty - 0.368) <= 0.0005,
        ),
    ]


def loss_checks() -> list[Check]:
    """Sections 4.1 and 5: the auxiliary and the unhinged losses."""
    d = np.linspace(0, 2, 401)
    other = d[:, None]
    yes, no = np.ones(len(d), dtype=bool), np.zeros(len(d), dtype=bool)
    flip = np.abs(noise.auxiliary_loss(d, yes) + noise.auxiliary_loss(d, no) - 2).max()
    parts = noise.auxiliary_loss(d, yes) + noise.auxiliary_loss(other, no[:, None]) + MARGIN
    split = np.abs(noise.unhinged_triplet_loss(d, other, margin=MARGIN) - parts).max()
    options = {"margin": MARGIN, "beta": BETA}
    unhinged = noise.unhinged_margin_loss(d, yes, **options) + noise.unhinged_margin_loss(d, no, **options)
    constant = np.abs(unhinged - (2 * 2 + 2 * MARGIN)).max()
    hinged = noise.hinged_margin_loss(d, yes, **options) + noise.hinged_margin_loss(d, no, **options)
    inner = np.abs(d - BETA) <= MARGIN
    printed = 2 * (2 + 2 * MARGIN)
    to_hinged = np.abs(hinged[inner] - 2 * MARGIN).max()
    to_print = min(np.abs(hinged[inner] - printed).min(), np.abs(unhinged - printed).min())
    # The noisy risk of a pair of T_m at one distance, with its weights as a positive and as a negative.
    q, weight, noisy_weight = 0.3, 0.5, 2.0
    own, flipped = (noise.hinged_margin_loss(d[inner], flags[inner], **options) for flags in (yes, no))
    risk = (1 - q) * weight * own + q * noisy_weight * flipped
    factor, corrected_constant = 1 - q - q * noisy_weight / weight, 2 * MARGIN * q * noisy_weight
    corrected = np.abs(risk - (factor * weight * own + corrected_constant)).max()
    unweighted = np.abs(risk - (factor * own + corrected_constant)).max()
    return [
        _check(
            "eq10",
            "The auxiliary loss of a pair and of the pair with its label flipped add up to the diameter 2.",
            "difference below 1e-12",
            f"{flip:.1e}",
            flip < 1e-12,
        ),
        _check(
            "eq12",
            "The unhinged triplet loss is the sum of the auxiliary losses of its two pairs and the margin.",
            "difference below 1e-12",
            f"{split:.1e}",
            split < 1e-12,
        ),
        _check(
            "eq32",
            "The unhinged margin loss of a pair and of the pair with its label flipped add up to 2 (2 + margin).",
            "difference below 1e-12",
            f"{constant:.1e}",
            constant < 1e-12,
        ),
        _check(
            "eq35-constant",
            "The constant 2 (2 + 2 margin) printed in equation 35 fits neither form: the hinged loss gives 2 margin.",
            "2 margin within 1e-12 where both labels are active; the print off by more than 0.1",
            f"{to_hinged:.1e}; print off by at least {to_print:.2f}",
            to_hinged < 1e-12 and to_print > 0.1,
        ),
        _check(
            "eq35-weight",
            "The first term printed in equation 35 lacks the weight of the pair.",
            "with the weight the noisy risk is met within 1e-12, without it missed by more than 0.01",
            f"{corrected:.1e}; {unweighted:.3f}",
            corrected < 1e-12 and unweighted > 0.01,
        ),
    ]


def weight_checks() -> list[Check]:
    """Section 4.1: how often each pair is used."""
    classes, samples = 4, 3
    labels = torch.arange(classes * samples) % classes
    rows = torch.from_numpy(_points(len(labels), 5, seed=1))
    count = {"positive": np.zeros((len(labels),) * 2), "negative": np.zeros((len(labels),) * 2)}
    everyone = mine(rows, labels, positives="all", negatives="all")
    np.add.at(count["positive"], (everyone.anchor.numpy(), everyone.positive.numpy()), 1)
    np.add.at(count["negative"], (everyone.anchor.numpy(), everyone.negative.numpy()), 1)
    found = {name: np.unique(table[table > 0]).tolist() for name, table in count.items()}
    expected = {"positive": [(classes - 1) * samples], "negative": [samples - 1]}
    drawn = mine(rows, labels, positives="all", negatives="random", generator=torch.Generator().manual_seed(0))
    pairs = len(labels) * (classes - 1) * samples
    share, weight = len(drawn.negative) / pairs, float(noise.negative_weight(classes, samples))
    grid = np.linspace(0, 1, 1001)
    off, least, zeros = 0.0, np.inf, 0.0
    for number in (2, 3, 10, 100):
        factors = noise.risk_factors(noise.pair_noise_rates(grid, number), noise.negative_weight(number, np.inf))
        square = (1 - grid * number / (number - 1)) ** 2
        off = max(off, *(float(np.abs(factor - square).max()) for factor in factors))
        least = min(least, float(factors.smallest.min()))
        at_random = noise.pair_noise_rates(1 - 1 / number, number)
        zeros = max(zeros, abs(float(noise.risk_factors(at_random, noise.negative_weight(number, np.inf)).smallest)))
    return [
        _check(
            "all-triplets",
            "Over all triplets of K classes of s a positive pair occurs (K-1) s times and a negative pair s-1 times.",
            f"{expected['positive'][0]} and {expected['negative'][0]} for K = {classes}, s = {samples}",
            f"{found['positive']} and {found['negative']}",
            found == expected,
        ),
        _check(
            "eq15",
            "Under 1-1 sampling a negative pair is drawn with probability (s-1)/((K-1)s), not 1/K as in equation 15.",
            f"share drawn equal to the weight {weight:.6f}, different from {1 / classes:.6f}",
            f"{share:.6f}",
            abs(share - weight) < 1e-12 and abs(share - 1 / classes) > 0.01,
        ),
        _check(
            "exact-weights",
            "With the weight 1/(K-1) of large classes both risk factors are (1 - kappa p)^2, never negative.",
            "difference below 1e-12, least factor above -1e-12, 0 at p = 1 - 1/K",
            f"difference {off:.1e}, least factor {least:.1e}, {zeros:.1e} at 1 - 1/K",
            max(off, zeros, -least) < 1e-12,
        ),
    ]


def bound_checks() -> list[Check]:
    """Sections 4.1, 4.2 and 5.3: up to which noise rate the losses are tolerant."""
    grid, sizes = np.linspace(0, 1, 201), np.array([5, 10, 12, 100, 1000, 10**6])
    limits = noise.tolerated_noise_rate(sizes, 1 / sizes)
    worst = {-1: np.inf, 1: -np.inf}
    for number, limit in zip(sizes[:-1], limits[:-1], strict=True):
        for side in worst:
            q = noise.risk_factors(noise.pair_noise_rates(limit + side * 1e-4, number), 1 / number).smallest
            worst[side] = min(worst[side], float(q)) if side < 0 else max(worst[side], float(q))
    gap = noise.risk_factors(noise.pair_noise_rates(grid, 10**6), 1e-6).smallest - (1 - grid) ** 2
    order = max(
        float(np.subtract(*noise.risk_factors(noise.pair_noise_rates(grid, number), 1 / number)[::-1]).max())
        for number in (2, 3, 5, 10, 100)
    )
    skews = np.array([1.0, 1.05, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0])
    p = noise.noise_rate_bound(skews)
    wrong = 2 * p - p**2
    corrected, printed = 1 - wrong * skews, 1 - (2 * p + wrong**2) * skews
    half = noise.noise_rate_bound(skews, least=0.5)
    q_printed, q_half = 1 - (2 * p - p**2) * skews, 1 - (2 * half - half**2) * skews
    breaks = noise.implied_skew([0.3, 0.5, 0.6])
    back = float(np.abs(noise.noise_rate_bound(breaks) - [0.3, 0.5, 0.6]).max())
    many, eta, rate = 10**7, 2.0, 0.2
    rates = noise.pair_noise_rates(rate, many)
    easy, hard = (float(noise.risk_factors(rates, w).negative) for w in (1 / (eta * many), eta / many))
    worst_case = 1 - (2 * rate - rate**2) * eta
    return [
        _check(
            "eq25",
            "For many classes the condition for tolerance becomes (1 - p)^2 >= 0.",
            "difference below 1e-5 at a million classes",
            f"{np.abs(gap).max():.1e}",
            float(np.abs(gap).max()) < 1e-5,
        ),
        _check(
            "tolerated-noise-rate",
            "With the paper's weights any p < 1 is tolerated only for infinitely many classes, not for few.",
            "smallest factor changes sign at a limit that grows with K: below 0.7 at 10, above 0.99 at a million",
            f"limit {limits[1]:.6f} at 10, {limits[-1]:.6f} at a million; factor {worst[-1]:+.1e} below it, "
            f"{worst[1]:+.1e} above it",
            bool(worst[-1] > 0 > worst[1] and (np.diff(limits) > 0).all() and limits[1] < 0.7 and limits[-1] > 0.99),
        ),
        _check(
            "corruption-asymmetry",
            "With the paper's weights the factor of negative pairs is never above that of positive pairs (section 7).",
            "negative minus positive factor at most 1e-12",
            f"{order:.1e}",
            order <= 1e-12,
        ),
        _check(
            "eq26",
            "Equation 26 misprints 2p + q^2 for 2p - p^2: only the latter is 0 at the bound of equation 27.",
            "corrected condition 0 within 1e-12 for skews of 1 to 10, printed one below -0.05",
            f"{np.abs(corrected).max():.1e}; at most {printed.max():.3f}",
            bool(np.abs(corrected).max() < 1e-12 and printed.max() < -0.05),
        ),
        _check(
            "eq27-inverse",
            "A method that breaks at p = 0.3, 0.5 or 0.6 has a skew of 1.96, 1.33 or 1.19.",
            "1 / (2p - p^2), and its bound is p within 1e-12",
            ", ".join(f"{skew:.4f}" for skew in breaks) + f"; bound off by {back:.1e}",
            bool(back < 1e-12 and np.abs(breaks - [1.96, 4 / 3, 1.19]).max() < 0.002),
        ),
        _check(
            "eq37",
            "Equation 37 is the bound for Q >= 0, although the text before it asks for Q >= 0.5.",
            "Q = 0 within 1e-12 at the printed bound; Q = 0.5 at 1 - sqrt(1 - gamma / 2)",
            f"|Q| {np.abs(q_printed).max():.1e}; |Q - 0.5| {np.abs(q_half - 0.5).max():.1e}",
            bool(np.abs(q_printed).max() < 1e-12 and np.abs(q_half - 0.5).max() < 1e-12),
        ),
        _check(
            "skew-per-pair",
            "The bound of equation 27 is reached by the easy pairs, of weight 1/(eta K); the hard ones, of weight "
            "eta/K, tolerate more.",
            "factor of easy pairs 1 - (2p - p^2) eta within 1e-5, of hard ones above it",
            f"{easy:.6f} against {worst_case:.6f}; hard {hard:.6f}",
            abs(easy - worst_case) < 1e-5 and hard > worst_case + 0.1,
        ),
    ]


def risk_checks() -> list[Check]:
    """Section 4.1 and proposition 1: the expected risk under noise."""
    truth = np.array([0, 0, 1, 1, 2, 2])
    d = _distances_of(_points(6, 3, seed=2))
    errors = {"corrected": 0.0, "printed": np.inf}
    for p, weight in SETTINGS:
        noisy = _noisy_weighted_risk(truth, d, p, weight)
        exact = _rescaled_risk(truth, d, noise.pair_noise_rates(p, 3), weight)
        errors["corrected"] = max(errors["corrected"], abs(noisy - exact))
        printed = _rescaled_risk(truth, d, printed_pair_rates(p, 3), weight)
        errors["printed"] = min(errors["printed"], abs(noisy - printed))
    kept, signs, dropped = _upper_bounds()
    equal, zero_sum, positive, at_random = 0.0, 0.0, np.inf, 0.0
    for classes, samples in ((2, 3), (2, 4), (3, 2)):
        labels = np.repeat(np.arange(classes), samples)
        same = (labels[:, None] == labels) & ~np.eye(len(labels), dtype=bool)
        for p in (0.0, 0.2, 0.4, 0.8, 1 - 1 / classes):
            table = noise.one_to_one_coefficients(labels, noise.symmetric_transition(p, classes))
            factor = float(noise.one_to_one_factor(p, num_classes=classes, samples_per_class=samples))
            push = -factor * noise.negative_weight(classes, samples)
            expected = np.where(same, factor, push)
            np.fill_diagonal(expected, 0)
            equal = max(equal, float(np.abs(table - expected).max()))
            zero_sum = max(zero_sum, float(np.abs(table.sum(axis=1)).max()))
    for classes, samples in itertools.product((2, 3, 5, 10), (2, 5)):
        grid = np.setdiff1d(np.linspace(0, 1, 21), [1 - 1 / classes])
        options = {"num_classes": classes, "samples_per_class": samples}
        grid = grid[np.abs(grid - (1 - 1 / classes)) > 1e-9]
        positive = min(positive, float(noise.one_to_one_factor(grid, **options).min()))
        at_random = max(at_random, abs(float(noise.one_to_one_factor(1 - 1 / classes, **options))))
    distance_to_square = []
    for samples in (2, 5, 20):
        grid = np.linspace(0, 1, 11)
        found = noise.one_to_one_factor(grid, num_classes=10, samples_per_class=samples)
        distance_to_square.append(float(np.abs(found - (1 - grid * 10 / 9) ** 2).max()))
    q_negative = float(noise.risk_factors(noise.pair_noise_rates(0.5, 3), 1 / 3).smallest)
    still = float(noise.one_to_one_factor(0.5, num_classes=3, samples_per_class=2))
    advantage, q_two = _advantage_of_the_clean_minimiser(0.3)
    return [
        _check(
            "eq17",
            "With weights that depend on the label alone noise scales the risk of a pair by C_t and adds a constant.",
            "expectation over all 729 labelings of 3 classes of 2 within 1e-12",
            f"{errors['corrected']:.1e}",
            errors["corrected"] < 1e-12,
        ),
        _check(
            "eq17-with-eq8",
            "With the printed equation 8 in place of the exact rate equation 17 fails.",
            "off by more than 0.05",
            f"off by at least {errors['printed']:.3f}",
            errors["printed"] > 0.05,
        ),
        _check(
            "eq21",
            "The upper bound of equation 21 holds whatever the sign of Q; Q >= 0 is needed only for the step after it.",
            "never exceeded by more than 1e-12, with Q of both signs among the cases",
            f"largest excess {kept:.1e}; Q from {signs[0]:.2f} to {signs[1]:.2f}",
            kept < 1e-12 and signs[0] < 0 < signs[1],
        ),
        _check(
            "eq43",
            "The middle line of equation 43 has lost the weights of the pairs: as printed it is no upper bound.",
            "exceeded without the weights",
            f"exceeded by up to {dropped:.2f}",
            dropped > 0.01,
        ),
        _check(
            "one-risk-factor",
            "With balanced classes and real 1-1 sampling from observed labels noise multiplies the clean risk of every "
            "embedding by one number c(p).",
            "coefficients of all labelings equal to c(p) and -c(p) (s-1)/((K-1)s) within 1e-12, adding up to 0",
            f"largest difference {equal:.1e}, largest sum {zero_sum:.1e}",
            max(equal, zero_sum) < 1e-12,
        ),
        _check(
            "risk-factor-positive",
            "c(p) is positive at every noise rate but that of random labels, 1 - 1/K, where it is 0.",
            "least value above 0 elsewhere, below 1e-12 there",
            f"{positive:.1e}; {at_random:.1e}",
            positive > 1e-9 and at_random < 1e-12,
        ),
        _check(
            "risk-factor-square",
            "c(p) is near (1 - kappa p)^2, the nearer the larger the classes.",
            "largest difference falls with 2, 5, 20 items of each of 10 classes, below 0.02",
            ", ".join(f"{value:.5f}" for value in distance_to_square),
            distance_to_square == sorted(distance_to_square, reverse=True) and distance_to_square[0] < 0.02,
        ),
        _check(
            "proposition-1-q",
            "Q >= 0 is not needed for proposition 1: the risk factor is positive where Q is negative.",
            "Q < 0 < c at p = 0.5, 3 classes of 2",
            f"Q = {q_negative:.4f}, c = {still:.4f}",
            q_negative < 0 < still,
        ),
        _check(
            "proposition-1",
            "The minimiser of the clean unhinged risk minimises the expected noisy one under 1-1 sampling.",
            "two opposite points beat 2000 random embeddings at p = 0.3, where Q < 0",
            f"ahead by at least {advantage:.3f}; Q = {q_two:.2f}",
            advantage > 0 > q_two,
        ),
    ]


def margin_checks() -> list[Check]:
    """Section 5.3 and supplement A.2: the margin loss with its hinge."""
    generator = np.random.default_rng(3)
    d, flags = generator.uniform(0, 2, 10_000), generator.random(10_000) < 0.5
    options = {"margin": MARGIN, "beta": BETA}
    sets = noise.margin_partition(d, flags, **options)
    clean, flipped = (noise.hinged_margin_loss(d, t, **options) > 0 for t in (flags, ~flags))
    wrong = sum(
        int((found != expected).sum())
        for found, expected in zip(sets, (clean & flipped, clean & ~flipped, ~clean & flipped), strict=True)
    )
    in_one = int((np.sum(sets, axis=0) == 1).sum())
    off = [_multipliers_off(classes) for classes in (10**3, 10**4, 10**5)]
    # z times the multipliers of T_m^+ against those of T_m^-, at the extreme skews of gamma below and above one half.
    ahead = {}
    for gamma in (0.25, 0.75):
        found = noise.residual_multipliers(0.3, 100, positive_skew=[2.0], negative_skew=[2.0 * gamma])
        z = float(noise.residual_ratio(gamma))
        ahead[gamma] = float((z * found.clean_only_negative - found.noisy_only_negative)[0])
    return [
        _check(
            "margin-partition",
            "The three sets of pairs of section 5.3 are disjoint and cover all pairs.",
            "each of 10000 pairs in one set, that of its active losses",
            f"{in_one} in one set, {wrong} in another set than their losses say",
            in_one == len(d) and wrong == 0,
        ),
        _check(
            "eq45-48",
            "Equations 45 to 48 leave out terms of relative order 1/K only.",
            "relative difference from the exact multipliers falls tenfold with tenfold K, below 1e-3 at 100000",
            ", ".join(f"{value:.1e}" for value in off),
            all(8 < a / b < 12 for a, b in itertools.pairwise(off)) and off[-1] < 1e-3,
        ),
        _check(
            "residual-heuristic",
            "The inequality behind z |T_m^+| > |T_m^-| fails for negative pairs of extreme skews when gamma < 1/2, so "
            "it is a heuristic.",
            "z times the multiplier of T_m^+ below that of T_m^- at gamma = 0.25, above it at 0.75",
            f"ahead by {ahead[0.25]:.5f} and {ahead[0.75]:.5f}",
            ahead[0.25] < 0 < ahead[0.75],
        ),
    ]


def sampling_checks() -> list[Check]:
    """Sections 4 and 4.2: which triplets are chosen."""
    labels = torch.arange(60) % 12
    rows = torch.from_numpy(_points(60, 8, seed=4))
    table = _distances_of(rows.numpy())

    def picks(negatives: str) -> tuple[Floats, Floats]:
        found = mine(
            rows,
            labels,
            positives="all",
            negatives="violating" if negatives == "random" else "semihard-hardest",
            margin=MARGIN,
            distance="euclidean",
            generator=torch.Generator().manual_seed(0),
        )
        a, p, n = (index.numpy() for index in found)
        return table[a, p], table[a, n]

    to_positive, to_negative = picks("random")
    harder, least = float((to_negative < to_positive).mean()), float((to_positive - to_negative + MARGIN).min())
    fixed_positive, fixed_negative = picks("fixed")
    beyond = float((fixed_negative > fixed_positive).mean())
    solved = float((fixed_negative >= fixed_positive + MARGIN).mean())
    cases = {
        "a = p = n": (0, 0, 0),
        "a = p, n apart": (0, 0, 1),
        "a = n, p apart": (0, 1, 0),
        "p = n, a apart": (0, 1, 1),
        "all apart": (0, 1, 2),
    }
    left_out = [
        name
        for name, (a, p, n) in cases.items()
        if not (a == p == n or (a != p and p != n and a != n) or (a != p and a == n))
    ]
    return [
        _check(
            "eq28",
            "Random semi-hard sampling draws from all negatives of positive loss, even ones nearer than the positive.",
            "every loss above 0, some negatives nearer than the positive",
            f"least loss {least:.4f}; {harder:.0%} nearer",
            least > 0 and harder > 0,
        ),
        _check(
            "eq29",
            "Fixed semi-hard sampling takes the nearest negative beyond the positive, perhaps beyond the margin too.",
            "all beyond the positive, some with loss 0",
            f"{beyond:.0%} beyond the positive, {solved:.1%} with loss 0",
            beyond == 1 and solved > 0,
        ),
        _check(
            "section4-cases",
            "The list of true labels of an observed triplet in section 4 leaves out two of the five cases.",
            "the clean case and that of equal positive and negative left out",
            "; ".join(left_out),
            left_out == ["a = p, n apart", "p = n, a apart"],
        ),
    ]


def _check(name: str, statement: str, expected: str, found: str, holds: bool) -> Check:
    return Check(f"le2018-{name}", statement, expected, found, bool(holds))


def _points(count: int, dimension: int, *, seed: int) -> Floats:
    rows = np.random.default_rng(seed).standard_normal((count, dimension))
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))


def _distances_of(rows: Floats) -> Floats:
    return np.asarray(np.linalg.norm(rows[:, None] - rows, axis=2))


def _observed(
    labels: noise.Integers, noise_rate: float, num_classes: int, generator: np.random.Generator
) -> noise.Integers:
    moves = generator.integers(1, num_classes, len(labels))
    return (labels + np.where(generator.random(len(labels)) < noise_rate, moves, 0)) % num_classes


def _drawn_rates(transition: Floats, priors: Floats, generator: np.random.Generator) -> tuple[float, float]:
    """Shares of the wrong among simulated pairs of one class and of two."""
    truth = generator.choice(len(priors), (2, DRAWS), p=priors)
    ends = transition.cumsum(axis=1)[truth]  # (2, pairs, K)
    observed = (generator.random((2, DRAWS, 1)) > ends).sum(axis=2)
    same, together = truth[0] == truth[1], observed[0] == observed[1]
    return float((~together[same]).mean()), float(together[~same].mean())


def _pairs(labels: noise.Integers) -> tuple[noise.Booleans, noise.Booleans]:
    """Of labels `(..., N)`: the positive pairs and the negative ones `(..., N, N)`, without an item and itself."""
    same = labels[..., :, None] == labels[..., None, :]
    return same & ~np.eye(labels.shape[-1], dtype=bool), ~same


def _noisy_weighted_risk(truth: noise.Integers, distances: Floats, noise_rate: float, weight: float) -> float:
    """The sum over pairs of the weighted auxiliary loss under the observed labels, in expectation over all of them."""
    observed, probability = noise.labelings(truth, noise.symmetric_transition(noise_rate, 3))
    positive, negative = _pairs(observed)
    risks = (np.where(positive, distances, 0) + np.where(negative, weight * (2 - distances), 0)).sum(axis=(1, 2))
    return float(probability @ risks)


def _rescaled_risk(truth: noise.Integers, distances: Floats, rates: PairRates, weight: float) -> float:
    """Equation 17: the clean risk of the pairs times their factors, and the constants."""
    factors = noise.risk_factors(rates, weight)
    positive, negative = _pairs(truth)
    of_positive = factors.positive * distances + weight * rates.positive * 2
    of_negative = factors.negative * weight * (2 - distances) + rates.negative * 2
    return float(of_positive[positive].sum() + of_negative[negative].sum())


def _upper_bounds() -> tuple[float, tuple[float, float], float]:
    """By how much equation 21 is exceeded, the range of Q, and by how much the middle line of equation 43 is."""
    generator = np.random.default_rng(5)
    p, classes = generator.uniform(0, 1, 10_000), generator.integers(2, 20, 10_000)
    to_positive, to_negative = -generator.uniform(0, 10, (2, 10_000))  # S+ and S- of a better embedding
    factors = noise.risk_factors(noise.pair_noise_rates(p, classes), 1 / classes)
    change = factors.positive * to_positive + factors.negative * to_negative / classes
    q = factors.smallest
    kept = float((change - q * (to_positive + to_negative / classes)).max())
    return kept, (float(q.min()), float(q.max())), float((change - q * (to_positive + to_negative)).max())


def _advantage_of_the_clean_minimiser(noise_rate: float) -> tuple[float, float]:
    """How far two classes at opposite points are ahead of random embeddings in noisy risk, and Q."""
    labels = np.repeat([0, 1], 3)
    table = noise.one_to_one_coefficients(labels, noise.symmetric_transition(noise_rate, 2))
    best = (table * _distances_of(np.where(labels[:, None] == 0, [[1.0, 0.0]], [[-1.0, 0.0]]))).sum()
    generator = np.random.default_rng(6)
    others = generator.standard_normal((2000, 6, 2))
    others /= np.linalg.norm(others, axis=2, keepdims=True)
    risks = (table * np.linalg.norm(others[:, :, None] - others[:, None], axis=3)).sum(axis=(1, 2))
    q = noise.risk_factors(noise.pair_noise_rates(noise_rate, 2), 1 / 2).smallest
    return float(risks.min() - best), float(q)


def _multipliers_off(classes: int) -> float:
    """The largest relative difference of equations 47 and 48 from the multipliers with exact rates and exact Q."""
    p, as_positive, as_negative = 0.3, 2.0, 1.5
    rates = noise.pair_noise_rates(p, classes)
    factors = noise.risk_factors(rates, as_negative / as_positive / classes)
    exact = (
        (1 - rates.positive - factors.smallest) * as_positive,
        (1 - rates.negative - factors.smallest) * as_negative / classes,
        rates.positive * as_negative / classes,
        rates.negative * as_positive,
    )
    found = noise.residual_multipliers(p, classes, positive_skew=as_positive, negative_skew=as_negative)
    return max(abs(float(value / truth) - 1) for value, truth in zip(found, exact, strict=True))
