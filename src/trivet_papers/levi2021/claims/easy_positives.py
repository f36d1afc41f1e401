"""Appendix B: expected losses with easy positives, and claims 1 to 4."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from trivet_papers.checks import Check
from trivet_papers.levi2021 import easy_risk, risk
from trivet_papers.levi2021.claims.rows import check, repeated_labels, squared_distances

LEVELS = (0.55, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
# Smallest even class sizes from which on the split map wins, by number of classes, for these p.
TRIPLET_THRESHOLDS: dict[int, tuple[int | None, ...]] = {
    2: (6, 6, 6, 6, 6, 6, 6),
    3: (10, 10, 8, 6, 6, 6, 6),
    5: (28, 30, 36, 48, 82, 148, 632),
    10: (96, 106, 138, 198, 384, 756, 3722),
    20: (268, 298, 388, 572, 1120, 2216, None),
}
PAIR_THRESHOLDS = {
    0.6: (2, 2, 2, 3),
    0.7: (3, 4, 5, 6),
    0.8: (7, 11, 13, 14),
    0.9: (21, 37, 42, 43),
    0.95: (58, 103, 115, 116),
}
RANKS = (1, 2, 3, 5)
SPLIT_VECTORS = (
    (2, 2, 0.8, 0.5248, 1.3536),
    (2, 4, 0.8, 1.3609472, 1.57771776),
    (2, 6, 0.8, 2.0076911493, 1.5926730588),
    (2, 8, 0.8, 2.6008072021, 1.8239671435),
    (2, 8, 0.9, 1.6330719972, 1.0889992940),
    (2, 16, 0.9, 3.0417792793, 2.0157111000),
    (2, 8, 0.6, 3.4852890677, 2.5435707063),
    (3, 4, 0.8, 2.1234873679, 2.9771034582),
    (3, 8, 0.8, 3.8915772527, 3.3817479244),
)


def easy_expectation() -> Iterator[Check]:
    """Appendix B: expected losses with easy positives."""
    for t, s, p in ((2, 4, 0.8), (3, 2, 0.7)):
        probabilities = risk.label_probabilities(t, s, p)
        n = t * s
        d = squared_distances(torch.randn(n, 2, generator=torch.Generator().manual_seed(t), dtype=torch.float64))
        labels = torch.cartesian_prod(*[torch.arange(t)] * n)
        weights = probabilities[torch.arange(n), labels].prod(1)
        triplet, pair = _easy_losses(d, labels, margin=0.3, beta=0.8)
        measured_triplet = float(easy_risk.expected_easy_triplet_losses(d, probabilities, margin=0.3)[0])
        measured_pair = float(easy_risk.expected_easy_margin_losses(d, 0.8, probabilities, margin=0.3)[0])
        error = max(abs(measured_triplet - float(weights @ triplet)), abs(measured_pair - float(weights @ pair)))
        yield check.below(
            f"easy-enumeration-t{t}",
            f"The closed form of the expected easy-positive losses is their mean over all {len(labels)} labellings "
            f"of {n} samples.",
            error,
        )
    size, p, beta = 4, 0.8, 1.5  # margin 1; both parts of f1 without their positive part, as claim 2 prints them
    probabilities = risk.label_probabilities(2, size, p)
    d = risk.class_distances(2, size, within=0, across=1)
    easy = easy_risk.easy_positive_probabilities(probabilities[0], probabilities[1:])
    printed = {}
    for b in (0.5, beta):
        terms = (1 - risk.match_probabilities(probabilities))[0, 1:] * (b - d[0, 1:] + 1) + easy * (d[0, 1:] - b + 1)
        printed[b] = float(terms.sum()) - float(easy_risk.expected_easy_margin_losses(d, b, probabilities, margin=1)[0])
    yield check(
        "easy-positive-parts",
        "Error: the expected margin losses of claim 2 are printed without positive parts, which is wrong once "
        "beta exceeds the margin.",
        "no difference at beta 0.5, some at 1.5 (margin 1)",
        f"{printed[0.5]:.1e} and {printed[beta]:.4f}",
        abs(printed[0.5]) < 1e-12 and printed[beta] < -1e-3,
    )


def claim_1() -> Iterator[Check]:
    """Claim 1: with easy positives two modes cost less than one, for the triplet loss."""
    for t, expected in TRIPLET_THRESHOLDS.items():
        thresholds = tuple(easy_risk.triplet_split_threshold(t, p) for p in LEVELS)
        yield check(
            f"claim-1-t{t}",
            f"With {t} classes, from some class size on, a class in two halves costs less than on one point.",
            f"{expected} for p = {LEVELS}, None above 4000",
            str(thresholds),
            thresholds == expected,
        )
    last = easy_risk.triplet_split_threshold(20, 0.99, largest=20000)
    values = [easy_risk.collapsed_and_split_triplet_losses(t, [s], p) for t, s, p, _, _ in SPLIT_VECTORS]
    sizes = np.arange(2, 101, 2)
    wins = {}
    for t, p in product((2, 3, 5, 10), LEVELS):
        collapsed, split = easy_risk.collapsed_and_split_triplet_losses(t, sizes, p)
        wins[t, p] = split < collapsed
    turning = sorted({t for (t, _), won in wins.items() if bool((won[:-1] & ~won[1:]).any())})
    n, t = 12, 3
    printed, mended = (sum(i < limit for i in range(1, n + 1)) for limit in (t / (2 * n), n / (2 * t)))
    slow = _unmatched(5, 0.6, 40)
    fast = _unmatched(2, 0.6, 40)
    bound = 2 * 0.6**40
    yield check(
        "claim-1-at-last",
        "Claim 1 holds for 20 classes and p = 0.99 as well, beyond classes of 4000.",
        "a size above 4000",
        str(last),
        last is not None and last > 4000,
    )
    yield check.values(
        "claim-1-losses",
        "The losses of an anchor, its class on one point and in two halves, for nine settings; of two classes with "
        "p = 0.8 the split wins from n = 12 on.",
        [value for row in SPLIT_VECTORS for value in row[3:]],
        [float(value[0]) for pair in values for value in pair],
        1e-9,
    )
    yield from _drawn_labels()
    yield _others()
    yield _all_positives()
    yield check(
        "claim-1-turns",
        "Whether the split wins is not monotone in the class size: for five classes or more it can win, lose and "
        "win again.",
        "turns back for t = 5 or 10, never for t = 2",
        f"t = {turning}",
        2 not in turning and bool({5, 10} & set(turning)),
    )
    yield check(
        "claim-1-rate",
        "Error: the bound 2 p^j on the chance that j nearer samples do not match is one of two classes; of more "
        "it falls like (1 - q)^j only.",
        f"below {bound:.1e} for t = 2, above for t = 5 (p = 0.6, j = 40, no sample of the anchor's class)",
        f"{fast:.1e} and {slow:.1e}",
        fast <= bound < slow,
    )
    yield _no_match()
    yield check(
        "claim-1-halves",
        "Error: the halves of the first class are printed as the indices below and above t / (2n), which leaves "
        "the first empty; n / (2t) is meant.",
        "none below t / (2n), some below n / (2t), with n = 12, t = 3",
        f"{printed} and {mended}",
        printed == 0 and mended > 0,
    )


def no_match_probability(p: float, same: int, others: int) -> float:
    """P(no label of `same` samples of the anchor's class and `others` of the other one is that of the anchor), t =
    2."""
    q = 1 - p
    return p ** (others + 1) * q**same + p**same * q ** (others + 1)


def _no_match() -> Check:
    p = 0.7
    rows = torch.tensor([[p, 1 - p], [1 - p, p]], dtype=torch.float64)
    error, gap = 0.0, np.inf
    for same, others in product(range(4), range(4)):
        true = float((rows[0] * (1 - rows[0]) ** same * (1 - rows[1]) ** others).sum())
        error = max(error, abs(no_match_probability(p, same, others) - true))
        if same and others:  # printed: m counts those of the anchor's class, and the last exponent is j + 1
            printed = p ** (same + 1) * (1 - p) ** others + p**others * (1 - p) ** (same + others + 3)
            gap = min(gap, abs(printed - true))
    return check(
        "claim-1-no-match",
        "Error: the chance that none of the j - 2 nearer samples matches is printed with m, those of the anchor's "
        "class, and with q^(j+1); m must count those of the other class, and the power is q^(m+1).",
        "the sum over both labels of the anchor to 1e-12, the print off by more than 0.001, p = 0.7, up to 3 of each",
        f"{error:.1e}; {gap:.4f}",
        error < 1e-12 and gap > 1e-3,
    )


def _others() -> Check:
    largest, changed = 0.0, 1.0
    for t, s, p in ((2, 6, 0.8), (3, 4, 0.7)):
        probabilities = risk.label_probabilities(t, s, p)
        first, second = (easy_risk.expected_easy_triplet_losses(d, probabilities, margin=1) for d in _halves(t, s))
        largest = max(largest, float((first - second)[s:].abs().max()))
        changed = min(changed, float((first - second)[:s].abs().min()))
    return check(
        "claim-1-other-anchors",
        "Splitting the first class changes nothing for anchors of the others, so one anchor of that class decides.",
        "below 1e-12 for the others, above 0.01 for those of the class (own bounds; t = 2, 3)",
        f"{largest:.1e} and {changed:.3f}",
        largest < 1e-12 and changed > 0.01,
    )


def _all_positives() -> Check:
    sizes = np.arange(2, 401, 2)
    least = min(
        float((split / collapsed).min())
        for t, p in product((2, 3, 5, 10), LEVELS)
        for collapsed, split in [easy_risk.collapsed_and_split_triplet_losses(t, sizes, p, positives="all")]
    )
    return check(
        "claim-1-all-positives",
        "With all positives a class in two halves never costs less than on one point: the gain is that of easy "
        "positives.",
        "never below 1 of the collapsed loss, t = 2, 3, 5, 10, classes of up to 400",
        f"at least {least:.4f}",
        least > 1,
    )


def _drawn_labels() -> Iterator[Check]:
    generator = torch.Generator().manual_seed(0)
    draws = 20000
    for size in (4, 8):
        classes, p = repeated_labels(2, size), 0.8
        flips = torch.rand(draws, 2 * size, generator=generator) >= p
        labels = torch.where(flips, 1 - classes, classes)
        errors = []
        for d, expected in zip(
            _halves(2, size), easy_risk.collapsed_and_split_triplet_losses(2, [size], p), strict=True
        ):
            losses, _ = _easy_losses(d, labels, margin=1, beta=1)
            errors.append(abs(float(losses.mean()) - float(expected[0])) / (float(losses.std()) / draws**0.5))
        yield check(
            f"claim-1-drawn-s{size}",
            f"The mean loss over drawn labels is the expected one, for two classes of {size} and p = {p}.",
            "within 3 standard errors",
            f"{errors[0]:.1f} on one point, {errors[1]:.1f} in two halves",
            max(errors) < 3,
        )


def claim_2() -> Iterator[Check]:
    """Claim 2: the same for the margin loss."""
    wide = {easy_risk.margin_split_threshold(t, p, beta=b) for t in (2, 3, 5, 10) for p in LEVELS for b in (2.0, 3.0)}
    near = {easy_risk.margin_split_threshold(t, p, beta=b) for t in (2, 3, 5, 10) for p in LEVELS for b in (1.0, 1.5)}
    error = 0.0
    for t, p, b in product((2, 3, 5), (0.6, 0.9), (0.0, 0.5, 1.5, 2.5)):
        sizes = np.array([2, 4, 8, 20])
        collapsed, split = easy_risk.collapsed_and_split_margin_losses(t, sizes, p, beta=b)
        for index, size in enumerate(sizes.tolist()):
            probabilities = risk.label_probabilities(t, size, p)
            easy = easy_risk.easy_positive_probabilities(probabilities[0], probabilities[1:])[size // 2 - 1 : size - 1]
            differ = 1 - float(risk.match_probabilities(probabilities)[0, 1])
            gain = size / 2 * differ - float(easy.sum()) * (max(0, 2 - b) - max(0, 1 - b))
            error = max(error, abs(collapsed[index] - split[index] - gain))
    classes = repeated_labels(3, 4)
    collapsed_map, split_map = _halves(3, 4)
    changed = (1 + (collapsed_map != split_map)[0].nonzero().flatten()).tolist()
    yield check(
        "claim-2-wide-beta",
        "With beta of at least twice the margin a class in two halves costs less from two samples on.",
        "{2} over t = 2, 3, 5, 10, p = 0.55 .. 0.99, beta = 2 and 3 margins",
        str(wide),
        wide == {2},
    )
    yield check(
        "claim-2-near-beta",
        "With beta of 1 or 1.5 margins it does so from four samples on at the latest.",
        "at most 4 over the same grid",
        str(near),
        all(size is not None and size <= 4 for size in near),
    )
    yield check.below(
        "claim-2-gain",
        "The gain is the sum over the other half of (1 - m_s) margin less the easy-positive probability times "
        "(2 margin - beta)_+ - (margin - beta)_+.",
        error,
        where=" over t = 2, 3, 5",
    )
    yield check(
        "claim-2-index",
        "Error: the samples whose distance differs between the two maps are printed as those up to n / 2, right "
        "for two classes only; they end at n / t.",
        "the last is 4 = n / t, not 6, with t = 3, n = 12",
        f"{changed} of {len(classes)}",
        max(changed) == len(classes) // 3 < len(classes) // 2,
    )
    yield from _displays()


def _displays() -> Iterator[Check]:
    """The three displays of the proof of claim 2, term by term; two classes of eight, beta 0.7, margin 1."""
    size, p, q, beta, margin = 8, 0.8, 0.2, 0.7, 1.0
    probabilities = risk.label_probabilities(2, size, p)
    easy = easy_risk.easy_positive_probabilities(probabilities[0], probabilities[1:])
    differ = (1 - risk.match_probabilities(probabilities))[0, 1:]
    maps = [d[0, 1:] for d in _halves(2, size)]
    collapsed, split = (
        easy * (d - beta + margin).clamp(min=0) + differ * (beta - d + margin).clamp(min=0) for d in maps
    )
    half = range(size // 2 + 1, size + 1)  # the paper's j: the anchor is the first
    match = [p**2 * q ** (j - 2) + q**2 * p ** (j - 2) for j in half]
    first = [2 * p * q * beta + each * (2 * margin - beta) for each in match]
    second = [2 * p * q * (beta + margin) + each * (margin - beta) for each in match]
    here = slice(size // 2 - 1, size - 1)

    def error(printed: Sequence[float], values: Tensor) -> float:
        return float((torch.tensor(printed, dtype=torch.float64) - values[here]).abs().max())

    untouched = torch.ones(len(easy), dtype=torch.bool)
    untouched[here] = False
    same = float((collapsed - split)[untouched].abs().max())
    yield check(
        "claim-2-first-line",
        "Error: the first line of the proof compares f1 with itself; outside the other half, the terms "
        "of f1 and f2 are equal.",
        "equal to 1e-12 there, not in the other half",
        f"{same:.1e} apart, in the other half {float((collapsed - split)[here].abs().min()):.3f} at least",
        same < 1e-12 and float((collapsed - split)[here].abs().min()) > 0.01,
    )
    yield check(
        "claim-2-displays",
        "Error: both displays for the other half carry f2; the first is that of f2, the second that of f1.",
        "first: f2 to 1e-12; second: f1 to 1e-12 and not f2",
        f"first {error(first, split):.1e} from f2; second {error(second, collapsed):.1e} from f1, "
        f"{error(second, split):.3f} from f2",
        error(first, split) < 1e-12 and error(second, collapsed) < 1e-12 and error(second, split) > 0.01,
    )


def claim_3() -> Iterator[Check]:
    """Claim 3: a far sample is pushed to beta + margin."""
    levels = (0.6, 0.7, 0.8, 0.9, 0.95)
    worst = [easy_risk.push_threshold(p) for p in levels]
    same = [easy_risk.push_threshold(p, nearer="same-class") for p in levels]
    count = easy_risk.push_threshold(0.8)
    differ = 1 - float(risk.match_probabilities(risk.label_probabilities(2, 2, 0.8))[0, 1])
    ends = []
    for nearer in (count - 1, count):  # all nearer samples of the other class, the sample of the anchor's
        rows = torch.tensor([[0.2, 0.8]] * nearer + [[0.8, 0.2]], dtype=torch.float64)
        easy = float(easy_risk.easy_positive_probabilities(torch.tensor([0.8, 0.2], dtype=torch.float64), rows)[-1])
        ends.append(risk.opposed_hinges_minimum(easy, differ, margin=0.2).high)
    yield check(
        "claim-3-worst",
        "Error: how many nearer samples it takes until the next is pushed to beta + margin depends on p; in the "
        "worst order of two classes it grows quickly.",
        f"[1, 1, 4, 15, 44] for p = {levels}",
        str(worst),
        worst == [1, 1, 4, 15, 44],
    )
    yield check(
        "claim-3-same-class",
        "One nearer sample is enough when the nearer ones are of the anchor's class.",
        f"1 for p = {levels}",
        str(same),
        set(same) == {1},
    )
    yield check(
        "claim-3-place",
        "With so many nearer samples the least expected margin loss of the pair lies at D = beta + margin, with "
        "one fewer at beta - margin.",
        "-0.2 and 0.2 around beta for p = 0.8, margin 0.2",
        f"{ends[0]:.2g} and {ends[1]:.2g}",
        ends == [-0.2, 0.2],
    )


def claim_4() -> Iterator[Check]:
    """Claim 4: the farther of two samples is pushed the margin beyond the nearer."""
    worst = {p: tuple(easy_risk.pair_push_threshold(p, rank) for rank in RANKS) for p in PAIR_THRESHOLDS}
    same = {easy_risk.pair_push_threshold(p, rank, nearer="same-class") for p in PAIR_THRESHOLDS for rank in RANKS}
    misled, early = 0, 0
    for p, rank in product(PAIR_THRESHOLDS, RANKS):
        threshold, q = easy_risk.pair_push_threshold(p, rank), 1 - p
        printed_rank = rank + 1  # the paper counts the anchor as the first
        for j in range(1, 401):
            printed = q ** (printed_rank + 1) < 4 * p ** (printed_rank + j - 1)
            misled += printed and j < threshold
            early += not printed and j < threshold
    generator = torch.Generator().manual_seed(0)
    excess = -1.0
    for _ in range(50):
        classes = torch.randint(0, 2, (9,), generator=generator)
        rows = torch.where(classes[:, None] == torch.arange(2), 0.8, 0.2).double()
        anchor = rows[0]
        weights = easy_risk.easy_triplet_weights(anchor, rows[1:])
        for far in range(1, 8):
            unmatched = float((anchor * (1 - rows[1 : far + 1]).prod(0)).sum())
            excess = max(excess, float(weights[far, :far].max()) - unmatched)
    yield check(
        "claim-4-worst",
        "Error: how many ranks apart two samples must be until the farther is pushed margin beyond the nearer "
        "depends on p and on the nearer one's rank (two classes, worst order).",
        f"{PAIR_THRESHOLDS} for the ranks {RANKS}",
        str(worst),
        worst == PAIR_THRESHOLDS,
    )
    yield check(
        "claim-4-same-class",
        "Two ranks apart is enough, and needed, when all of them are of the anchor's class.",
        "{2}",
        str(same),
        same == {2},
    )
    yield check(
        "claim-4-inequality",
        "Error: the proof asks for q^(t+1) < 4 p^(t+j-1), which holds for small j where the claim fails; reversed, "
        "it implies the claim.",
        "cases where it holds and the claim fails; none where it does not hold and the claim fails",
        f"{misled} and {early}",
        misled > 0 and early == 0,
    )
    yield check(
        "claim-4-bound",
        "Error: the weight of the farther positive is printed as at least the chance that no nearer sample "
        "matches; it is at most that.",
        "never above, for 50 random orders of two classes, p = 0.8",
        f"largest excess {excess:.1e}",
        excess < 0,
    )


def _halves(num_classes: int, size: int) -> tuple[Tensor, Tensor]:
    """D of f1, every class on a point, and of f2, the first class in two halves; margin 1."""
    collapsed = risk.class_distances(num_classes, size, within=0, across=1)
    split = collapsed.clone()
    split[: size // 2, size // 2 : size] = split[size // 2 : size, : size // 2] = 1
    return collapsed, split


def _unmatched(num_classes: int, p: float, count: int) -> float:
    """P(none of `count` samples of the second class has the label of an anchor of the first)."""
    rows = risk.label_probabilities(num_classes, 1, p)
    return float((rows[0] * (1 - rows[1]) ** count).sum())


def _easy_losses(distances: Tensor, labels: Tensor, *, margin: float, beta: float) -> tuple[Tensor, Tensor]:
    """The two losses of anchor 0 with its nearest positive and all negatives, for each labelling `(L, n)`."""
    order = distances[0, 1:].argsort(stable=True)
    d = distances[0, 1:][order]
    match = labels[:, 1:][:, order] == labels[:, :1]  # (L, n - 1)
    first = one_hot(match.int().argmax(1), len(d)).double() * match.any(1, keepdim=True)
    negative = (~match).double()
    hinge = (d[:, None] - d + margin).clamp(min=0)
    triplet = ((first @ hinge) * negative).sum(1)
    pair = first @ (d - beta + margin).clamp(min=0) + negative @ (beta - d + margin).clamp(min=0)
    return triplet, pair
