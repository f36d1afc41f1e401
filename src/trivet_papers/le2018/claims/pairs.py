"""Sections 3 to 5: how often pairs are wrong, the losses of pairs, and how often each is used."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import torch

from trivet.mining import mine
from trivet.runtime.arrays import Floats
from trivet_papers.checks import Check, Checker
from trivet_papers.le2018 import theory
from trivet_papers.le2018.skews import BETA, MARGIN, distances_of, observed_labels, pairs_of, unit_points
from trivet_papers.le2018.theory import PairRates

check = Checker("le2018")
DRAWS, TOLERANCE = 2_000_000, 0.0012  # pairs simulated; over three standard errors of a rate
RATES = ((2, 0.3), (2, 0.8), (3, 0.1), (3, 0.5), (10, 0.3), (10, 0.5), (10, 0.8))  # classes, noise rate
SETTINGS = ((0.2, 1 / 3), (0.2, 1 / 2), (0.5, 1 / 3), (0.5, 1 / 2))  # noise rate, weight of negatives, for 3 classes


def printed_pair_rates(noise_rate: npt.ArrayLike, num_classes: int) -> PairRates:
    """Equations 7 and 8 as printed; the last factor of the first of these must be 1 - 1 / (K - 1)."""
    p, others = np.asarray(noise_rate, dtype=np.float64), num_classes - 1
    positive = 2 * p * (1 - p) + p**2 * (1 - 2 / others)
    negative = 2 * p * (1 - p) / others + p**2 * (others - 1) / others**2
    return PairRates(np.asarray(positive), np.asarray(negative))


def injection_checks() -> Iterator[Check]:
    """Section 3.2: how single labels are corrupted."""
    generator = np.random.default_rng(7)
    same_error, other_error = 0.0, 0.0
    for classes, p in RATES:
        row = theory.symmetric_transition(p, classes)[0]
        drawn = np.bincount(
            observed_labels(np.zeros(200_000, dtype=np.int64), p, classes, generator), minlength=classes
        )
        off = np.abs(drawn / 200_000 - row) / np.sqrt(row * (1 - row) / 200_000)  # in standard errors
        same_error, other_error = max(same_error, float(off[0])), max(other_error, float(off[1:].max()))
    reduced = max(
        float(abs(a - b))
        for classes, p in RATES
        for a, b in zip(
            theory.class_pair_noise_rates(theory.symmetric_transition(p, classes)),
            theory.pair_noise_rates(p, classes),
            strict=True,
        )
    )
    identity = bool((theory.symmetric_transition(0.0, 5) == np.eye(5)).all())
    try:
        theory.symmetric_transition(0.3, 1)
        refused = False
    except ValueError:
        refused = True
    yield check(
        "eq6",
        "Symmetric noise keeps a label with probability 1 - p and gives each other one with p/(K-1).",
        "shares of 200000 drawn labels within 4 and 5 (own bound: many labels) standard errors",
        f"{same_error:.1f} and {other_error:.1f} standard errors off",
        same_error < 4 and other_error < 5,
    )
    yield check.below(
        "eq5",
        "The class-dependent noise of equation 5 contains the symmetric one: it gives the same pair rates.",
        reduced,
    )
    yield check(
        "no-noise",
        "At p = 0 every label stays, and with a single class there is no other label to take.",
        "the identity; one class with p = 0.3 refused",
        f"{'the identity' if identity else 'not the identity'}; {'refused' if refused else 'accepted'}",
        identity and refused,
    )


def pair_rate_checks() -> Iterator[Check]:
    """Section 3: how often pairs are wrong."""
    generator = np.random.default_rng(0)
    off = {"exact +": 0.0, "exact -": 0.0}
    nearest_print = np.inf
    for classes, p in RATES:
        broken, joined = map(float, theory.simulated_pair_rates(p, classes, draws=DRAWS, generator=generator))
        exact = theory.pair_noise_rates(p, classes)
        off["exact +"] = max(off["exact +"], abs(broken - float(exact.positive)))
        off["exact -"] = max(off["exact -"], abs(joined - float(exact.negative)))
        if p >= 0.3:
            nearest_print = min(nearest_print, abs(broken - float(printed_pair_rates(p, classes).positive)))
    grid, sizes = np.linspace(0, 1, 101), np.array([[2], [3], [10], [100], [1000]])
    rates = theory.pair_noise_rates(grid, sizes)
    kappa = sizes / (sizes - 1)
    ratio = np.abs(rates.negative - rates.positive / (sizes - 1)).max()
    square = np.abs(1 - rates.positive - rates.negative - (1 - kappa * grid) ** 2).max()
    below = float(printed_pair_rates(0.8, 2).positive)
    true = float(theory.pair_noise_rates(0.8, 2).positive)
    many = np.array([float(printed_pair_rates(p, 10**6).positive) for p in grid])
    limit = max(
        np.abs(many - grid * (2 - grid)).max(), np.abs(theory.pair_noise_rates(grid, np.inf).positive - many).max()
    )
    transition, priors = np.array([[0.8, 0.15, 0.05], [0.1, 0.7, 0.2], [0.0, 0.3, 0.7]]), np.array([0.5, 0.3, 0.2])
    formula, counted = theory.class_pair_noise_rates(transition, priors), _drawn_rates(transition, priors, generator)
    of_classes = max(abs(float(a) - b) for a, b in zip(formula, counted, strict=True))
    sixty = float(theory.noise_rate_of_pairs(0.6, np.inf))
    yield check(
        "eq7",
        "Equation 7 is the exact share of negative pairs that symmetric noise turns into positive ones.",
        f"simulated share within {TOLERANCE}, {DRAWS} pairs",
        f"largest difference {off['exact -']:.5f}",
        off["exact -"] < TOLERANCE,
    )
    yield check(
        "eq8",
        "Equation 8 misprints the share of positive pairs that turn negative: its last factor must be 1 - 1/(K-1).",
        f"simulated share within {TOLERANCE} of 2p - kappa p^2, farther from the print for K <= 10, p >= 0.3",
        f"largest difference {off['exact +']:.5f}; smallest difference from the print {nearest_print:.5f}",
        off["exact +"] < TOLERANCE < nearest_print,
    )
    yield check(
        "eq8-below-zero",
        "With two classes the printed equation 8 gives a negative probability for p > 2/3.",
        "print below 0, exact rate 2p (1-p): one label of the two moves",
        f"print {below:.4f}, exact {true:.4f} at p = 0.8",
        below < 0 and abs(true - 2 * 0.8 * 0.2) < 1e-12,
    )
    yield check(
        "rate-identities",
        "The two rates differ by the factor K - 1, and 1 minus their sum is (1 - kappa p)^2.",
        "differences below 1e-12",
        f"{ratio:.1e} and {square:.1e}",
        max(ratio, square) < 1e-12,
    )
    yield check(
        "many-classes",
        "For many classes the printed and the corrected equation 8 both become 2p - p^2.",
        "differences below 3e-6 at a million classes",
        f"{limit:.1e}",
        limit < 3e-6,
    )
    yield check(
        "class-dependent-rates",
        "With a transition matrix and class priors the rates follow from the probability of equal observed labels.",
        f"simulated shares within {2 * TOLERANCE}",
        f"largest difference {of_classes:.5f}",
        of_classes < 2 * TOLERANCE,
    )
    yield check(
        "discussion-sixty-percent",
        "Section 7 reads 60 % of wrong positive pairs as a noise rate of 36.8 %.",
        "0.368 within 0.0005, for many classes",
        f"{sixty:.6f}",
        abs(sixty - 0.368) <= 0.0005,
    )


def loss_checks() -> Iterator[Check]:
    """Sections 4.1 and 5: the auxiliary and the unhinged losses."""
    d = np.linspace(0, 2, 401)
    other = d[:, None]
    yes, no = np.ones(len(d), dtype=bool), np.zeros(len(d), dtype=bool)
    flip = np.abs(theory.auxiliary_loss(d, yes) + theory.auxiliary_loss(d, no) - 2).max()
    loss_terms = theory.auxiliary_loss(d, yes) + theory.auxiliary_loss(other, no[:, None]) + MARGIN
    split = np.abs(theory.unhinged_triplet_loss(d, other, margin=MARGIN) - loss_terms).max()
    options = {"margin": MARGIN, "beta": BETA}
    unhinged = theory.unhinged_margin_loss(d, yes, **options) + theory.unhinged_margin_loss(d, no, **options)
    constant = np.abs(unhinged - (2 * 2 + 2 * MARGIN)).max()
    hinged = theory.hinged_margin_loss(d, yes, **options) + theory.hinged_margin_loss(d, no, **options)
    inner = np.abs(d - BETA) <= MARGIN
    printed = 2 * (2 + 2 * MARGIN)
    to_hinged = np.abs(hinged[inner] - 2 * MARGIN).max()
    to_print = min(np.abs(hinged[inner] - printed).min(), np.abs(unhinged - printed).min())
    # A positive and a negative pair that share the anchor.
    of_both = theory.unhinged_margin_loss(d, yes, **options) + theory.unhinged_margin_loss(
        other, no[:, None], **options
    )
    translated = np.abs(of_both - theory.unhinged_triplet_loss(d, other, margin=MARGIN) - (2 + MARGIN)).max()
    expected = 0.0
    for p, w in SETTINGS:
        rates = theory.pair_noise_rates(p, 3)
        factors = theory.risk_factors(rates, w)
        for flags, rate, scale, same_weight, flipped_weight in (
            (yes, rates.positive, factors.positive, 1.0, w),
            (no, rates.negative, factors.negative, w, 1.0),
        ):
            unflipped, flipped = theory.auxiliary_loss(d, flags), theory.auxiliary_loss(d, ~flags)
            noisy = (1 - rate) * same_weight * unflipped + rate * flipped_weight * flipped
            scaled = scale * same_weight * unflipped + flipped_weight * rate * 2
            expected = max(expected, float(np.abs(noisy - scaled).max()))
    # The noisy risk of a pair of T_m at one distance, with its weights as a positive and as a negative.
    q, weight, noisy_weight = 0.3, 0.5, 2.0
    unflipped, flipped = (theory.hinged_margin_loss(d[inner], flags[inner], **options) for flags in (yes, no))
    risk = (1 - q) * weight * unflipped + q * noisy_weight * flipped
    factor, corrected_constant = 1 - q - q * noisy_weight / weight, 2 * MARGIN * q * noisy_weight
    corrected = np.abs(risk - (factor * weight * unflipped + corrected_constant)).max()
    unweighted = np.abs(risk - (factor * unflipped + corrected_constant)).max()
    yield check.below(
        "eq10", "The auxiliary loss of a pair and of the pair with its label flipped add up to the diameter 2.", flip
    )
    yield check.below(
        "eq11",
        "The noisy risk of one pair is its clean risk times C_t, and a constant.",
        expected,
        where=" at all distances",
    )
    yield check.below(
        "eq12", "The unhinged triplet loss is the sum of the auxiliary losses of its two pairs and the margin.", split
    )
    yield check.below(
        "eq32",
        "The unhinged margin loss of a pair and of the pair with its label flipped add up to 2 (2 + margin).",
        constant,
    )
    yield check(
        "section5.2-translation",
        "The unhinged margin losses of a positive and a negative pair add up to the unhinged triplet loss and a "
        "constant, without beta.",
        "constant 2 + margin within 1e-12",
        f"{translated:.1e}",
        translated < 1e-12,
    )
    yield check(
        "eq35-constant",
        "The constant 2 (2 + 2 margin) printed in equation 35 fits neither form: the hinged loss gives 2 margin.",
        "2 margin within 1e-12 where both labels are active; the print off by more than 0.1",
        f"{to_hinged:.1e}; print off by at least {to_print:.2f}",
        to_hinged < 1e-12 and to_print > 0.1,
    )
    yield check(
        "eq35-weight",
        "The first term printed in equation 35 lacks the weight of the pair.",
        "with the weight the noisy risk is met within 1e-12, without it missed by more than 0.01",
        f"{corrected:.1e}; {unweighted:.3f}",
        corrected < 1e-12 and unweighted > 0.01,
    )


def weight_checks() -> Iterator[Check]:
    """Section 4.1: how often each pair is used."""
    classes, samples = 4, 3
    labels = torch.arange(classes * samples) % classes
    rows = torch.from_numpy(unit_points(len(labels), 5, seed=1))
    count = {"positive": np.zeros((len(labels),) * 2), "negative": np.zeros((len(labels),) * 2)}
    everyone = mine(rows, labels, positives="all", negatives="all")
    np.add.at(count["positive"], (everyone.anchor.numpy(), everyone.positive.numpy()), 1)
    np.add.at(count["negative"], (everyone.anchor.numpy(), everyone.negative.numpy()), 1)
    uses = {name: np.unique(table[table > 0]).tolist() for name, table in count.items()}
    expected = {"positive": [(classes - 1) * samples], "negative": [samples - 1]}
    d = distances_of(rows.numpy())
    a, positives, negatives = (index.numpy() for index in everyone)
    triplets = float(theory.unhinged_triplet_loss(d[a, positives], d[a, negatives], margin=MARGIN).sum())
    same, different = pairs_of(labels.numpy())
    of_pairs = (classes - 1) * samples * theory.auxiliary_loss(d, same)[same].sum()
    of_pairs += (samples - 1) * theory.auxiliary_loss(d, same)[different].sum() + MARGIN * len(a)
    split = abs(triplets - float(of_pairs))
    drawn = mine(rows, labels, positives="all", negatives="random", generator=torch.Generator().manual_seed(0))
    pairs = len(labels) * (classes - 1) * samples
    share, weight = len(drawn.negative) / pairs, float(theory.negative_weight(classes, samples))
    grid = np.linspace(0, 1, 1001)
    off, least, zeros = 0.0, np.inf, 0.0
    for number in (2, 3, 10, 100):
        factors = theory.risk_factors(theory.pair_noise_rates(grid, number), theory.negative_weight(number, np.inf))
        square = (1 - grid * number / (number - 1)) ** 2
        off = max(off, *(float(np.abs(factor - square).max()) for factor in factors))
        least = min(least, float(factors.smallest.min()))
        at_random = theory.pair_noise_rates(1 - 1 / number, number)
        zeros = max(zeros, abs(float(theory.risk_factors(at_random, theory.negative_weight(number, np.inf)).smallest)))
    yield check(
        "all-triplets",
        "Over all triplets of K classes of s a positive pair occurs (K-1) s times and a negative pair s-1 times.",
        f"{expected['positive'][0]} and {expected['negative'][0]} for K = {classes}, s = {samples}",
        f"{uses['positive']} and {uses['negative']}",
        uses == expected,
    )
    yield check.below(
        "eq13",
        "The unhinged triplet losses of all triplets add up to the auxiliary losses of the pairs, each as often as "
        "it occurs, and the margins.",
        split,
        1e-9,
    )
    yield check(
        "eq15",
        "Under 1-1 sampling a negative pair is drawn with probability (s-1)/((K-1)s), not 1/K as in equation 15.",
        f"share drawn equal to the weight {weight:.6f}, different from {1 / classes:.6f}",
        f"{share:.6f}",
        abs(share - weight) < 1e-12 and abs(share - 1 / classes) > 0.01,
    )
    yield check(
        "exact-weights",
        "With the weight 1/(K-1) of large classes both risk factors are (1 - kappa p)^2, never negative.",
        "difference below 1e-12, smallest factor above -1e-12, 0 at p = 1 - 1/K",
        f"difference {off:.1e}, smallest factor {least:.1e}, {zeros:.1e} at 1 - 1/K",
        max(off, zeros, -least) < 1e-12,
    )


def _drawn_rates(transition: Floats, priors: Floats, generator: np.random.Generator) -> tuple[float, float]:
    """Shares of the wrong among simulated pairs of one class and of two."""
    truth = generator.choice(len(priors), (2, DRAWS), p=priors)
    ends = transition.cumsum(axis=1)[truth]  # (2, pairs, K)
    observed = (generator.random((2, DRAWS, 1)) > ends).sum(axis=2)
    same, together = truth[0] == truth[1], observed[0] == observed[1]
    return float((~together[same]).mean()), float(together[~same].mean())
