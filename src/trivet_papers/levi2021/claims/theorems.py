"""Section 4.2: labels drawn at random, and theorems 1 and 2."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from trivet_papers.checks import Check
from trivet_papers.levi2021 import risk
from trivet_papers.levi2021.claims.rows import check, repeated_labels, squared_distances

# t, s, p, m, self terms, loss of the collapsed map, lowest loss known; margin 1.
TRIPLET_SEARCHES: tuple[tuple[int, int, float, int, risk.SelfTerms, float, float], ...] = (
    (2, 4, 0.8, 2, "exact", 0.12, 0.12),
    (2, 4, 0.8, 2, "excluded", 0.105, 0.105),
    (2, 4, 0.8, 8, "exact", 0.12, 0.105),
    (2, 4, 0.6, 2, "exact", 0.18, 0.175),
    (2, 8, 0.7, 2, "exact", 0.18375, 0.18375),
    (3, 3, 0.45, 2, "excluded", 0.1490686728, 0.1490686728),
)
SEARCHED = 2e-5  # how near a search comes


def label_model() -> Iterator[Check]:
    """Probabilities that labels agree."""
    gap_error = weight_error = 0.0
    for t, s, p in ((2, 3, 0.8), (3, 3, 0.45), (3, 3, 0.1), (5, 2, 0.7)):
        probabilities = risk.label_probabilities(t, s, p)
        match, weights = risk.match_probabilities(probabilities), risk.triplet_weights(probabilities)
        classes, q = repeated_labels(t, s), (1 - p) / (t - 1)
        gap_error = max(gap_error, abs(float(match[0, 1] - match[0, -1]) - (p - q) ** 2))
        same = (classes[:, None] == classes).double()
        expected = (p - q) ** 2 * (same[:, :, None] - same[:, None])
        distinct = _distinct(len(classes))
        errors = (weights - weights.transpose(1, 2) - expected).abs()[distinct]
        weight_error = max(weight_error, float(errors.max()))
    p, weights = 0.8, risk.triplet_weights(risk.label_probabilities(2, 3, 0.8))
    inside = p**2 + (1 - p) ** 2 - float(weights[0, 1, 2])
    across = p**2 + (1 - p) ** 2 - float(weights[0, 1, 3])
    yield check.below(
        "match-gap",
        "Labels of one class agree more often than labels of two classes, by (p - q)^2.",
        gap_error,
        where=" for t = 2, 3, 5",
    )
    yield check.below(
        "triplet-weight-gap",
        "Swapping the positive and the negative of a triplet changes its weight by (p - q)^2 if just one of them "
        "is of the anchor's class, and not at all otherwise.",
        weight_error,
        where=" over all distinct triplets, t = 2, 3, 5",
    )
    yield check.values(
        "triple-match",
        "For two classes three labels agree with probability p^3 + q^3 inside a class, p q otherwise.",
        (p**3 + (1 - p) ** 3, p * (1 - p)),
        (inside, across),
        1e-12,
    )


def pair_minima() -> Iterator[Check]:
    """The two opposed hinges that both theorems reduce to."""
    grid = np.linspace(-2, 2, 801)
    error, corners = 0.0, True
    for t, s, p in ((2, 3, 0.8), (3, 3, 0.45), (3, 3, 0.1), (5, 3, 0.6)):
        weights = risk.triplet_weights(risk.label_probabilities(t, s, p))
        for j, k in ((1, s), (1, 2), (s, s + 1)):  # (in, out), (in, in), (out, out)
            # Equal weights come out equal to rounding only.
            pull, push = round(float(weights[0, j, k]), 14), round(float(weights[0, k, j]), 14)
            values = pull * np.maximum(0, grid + 1) + push * np.maximum(0, 1 - grid)
            minimum = risk.opposed_hinges_minimum(pull, push, margin=1.0)
            best = grid[values <= values.min() + 1e-12]
            error = max(error, abs(values.min() - minimum.value))
            right = (-1.0, -1.0) if j == 1 and k == s else (-1.0, 1.0)
            betas = (minimum.low, minimum.high, float(best[0]), float(best[-1]))
            corners &= bool(np.allclose(betas, (*right, *right), atol=1e-9))
    p, q, w, h, margin = 0.8, 0.2, 0.0, 1.0, 1.0  # x_j on the anchor, x_k the margin away

    def hinge(to_j: float, to_k: float) -> float:
        return max(0.0, to_j - to_k + margin)

    defined, printed = p * hinge(w, h) + q * hinge(h, w), p * hinge(h, w) + q * hinge(w, h)
    constant = q * hinge(w, h) + q * hinge(h, w)
    rows = risk.label_probabilities(3, 2, 0.6)
    joint = torch.einsum("a,b,c->abc", rows[0], rows[1], rows[2])
    paired = torch.einsum("rrs->rs", joint)  # the first two show r, the third s
    different, all_pairs = float(paired.sum() - paired.trace()), float(paired.sum())
    weight = float(risk.triplet_weights(rows)[0, 1, 2])
    yield check(
        "triplet-pair-minimum",
        "Per anchor, two samples j, k have the lowest loss, 2 margin min(W_ijk, W_ikj), with j nearer by the "
        "margin if only j is of the anchor's class, and anywhere within the margin of each other otherwise.",
        "value within 1e-12 of a grid search and these places, for t = 2, 3, 5, with p = 0.45 and 0.1 at t = 3",
        f"error {error:.1e}, places {'as stated' if corners else 'others'}",
        error < 1e-12 and corners,
    )
    yield check(
        "triplet-k-swapped",
        "Error: in the printed cases of K the distances w and h are exchanged, so the optimum would be the worst.",
        "by the definition 2 q margin = 0.4 at w = 0, h = margin, p = 0.8; as printed 1.6",
        f"{defined:.4g} and {printed:.4g}",
        abs(defined - 0.4) < 1e-12 and printed > defined,
    )
    yield check(
        "triplet-k-constant",
        "Error: the constant rows of K are printed as 2 margin; the row where neither label is the anchor's is "
        "2 q margin.",
        "0.4 at p = 0.8, margin 1, not 2",
        f"{constant:.4g}",
        abs(constant - 2 * q * margin) < 1e-12 and constant != 2 * margin,
    )
    yield check(
        "triplet-k-same-label",
        "Error: K has a row for two equal labels, which the sum it stands in leaves out: with it the weight of a "
        "triplet would only be the probability of a match.",
        "the weight is the sum over different labels, not over all (t = 3, p = 0.6)",
        f"weight {weight:.4f}, different {different:.4f}, all {all_pairs:.4f}",
        abs(weight - different) < 1e-12 and all_pairs > weight + 0.01,
    )


def triplet_theorem() -> Iterator[Check]:
    """Theorem 1: where the collapsed map minimises the expected triplet loss, and where it does not."""
    probabilities = risk.label_probabilities(2, 4, 0.8)
    steps = (0.0, 0.25, 0.5, 1.0, 2.0)
    simplices = [risk.class_distances(2, 4, within=c, across=c + 1) for c in steps]
    family = {
        kind: [float(risk.expected_triplet_loss(d, probabilities, margin=1, self_terms=kind)) for d in simplices]
        for kind in _KINDS
    }
    bound = risk.triplet_lower_bound(probabilities, margin=1)
    dimensions = [risk.affine_dimension(d) for d in simplices]
    off_family = min(
        float(risk.expected_triplet_loss(d, probabilities, margin=1, self_terms="excluded")) - bound
        for d in (_perturbed(base, seed) for seed, base in enumerate(simplices))
    )
    yield check.values(
        "triplet-simplices",
        "Over distinct triplets every map with distances c inside classes and c + margin across has the same, "
        "least, loss.",
        (0.105,) * 5,
        family["excluded"],
        1e-12,
        also=abs(bound - 0.105) < 1e-12,
    )
    yield check(
        "triplet-simplices-only",
        "Over distinct triplets no other map reaches that minimum loss.",
        "above it for perturbed distances",
        f"by {off_family:.1e} at least",
        off_family > 1e-9,
    )
    yield check(
        "triplet-simplex-dimension",
        "Error: collapse is the only minimiser over distinct triplets only in fewer than n - 1 dimensions, for "
        "c > 0 the points span n - 1.",
        "1 for c = 0, 7 for c > 0, with n = 8",
        str(dimensions),
        dimensions == [1, 7, 7, 7, 7],
    )
    yield check.values(
        "triplet-true-self-terms",
        "Error: with the true probability of a label to agree with itself, more than n - 2 dimensions have "
        "minima that are not collapsed, at c >= margin.",
        (0.12, 0.11625, 0.1125, 0.105, 0.105),
        family["exact"],
        1e-12,
    )
    yield check.values(
        "triplet-independent-self-terms",
        "With a fresh label for each mention of a sample, as the proof factorises, collapse is the only minimiser "
        "among them.",
        (0.16, 0.1625, 0.165, 0.17, 0.1875),
        family["independent"],
        1e-12,
        also=min(family["independent"][1:]) > family["independent"][0],
    )
    yield _norm()
    yield _self_terms()
    yield from _rotation()


def _norm() -> Check:
    margin, probabilities = 0.25, risk.label_probabilities(2, 4, 0.8)
    losses = [
        float(risk.expected_triplet_loss(risk.class_distances(2, 4, within=0, across=d), probabilities, margin=margin))
        for d in (margin, margin**2)
    ]
    return check(
        "triplet-norm",
        "Error: the conclusion puts classes at distance margin; D is squared, so it is D = margin, the distance its "
        "square root.",
        "D = 0.25 costs less than D = 0.0625 with margin 0.25",
        f"{losses[0]:.5f} and {losses[1]:.5f}",
        losses[0] < losses[1] - 1e-4,
    )


def _self_terms() -> Check:
    probabilities = risk.label_probabilities(2, 4, 0.8)
    d = squared_distances(torch.randn(8, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64))
    total = float(risk.expected_triplet_loss(d, probabilities, margin=1))
    distinct = float(risk.expected_triplet_loss(d, probabilities, margin=1, self_terms="excluded"))
    extra = float(((1 - risk.match_probabilities(probabilities)) * (1 - d).clamp(min=0)).sum()) / 8**3
    return check(
        "triplet-self-terms",
        "The terms with the anchor as its own positive add P(labels differ) (margin - D)_+ for each pair, over n^3.",
        f"{extra:.12f} for a random map, to 1e-12",
        f"{total - distinct:.12f}",
        abs(total - distinct - extra) < 1e-12 and extra > 0,
    )


def _rotation() -> Iterator[Check]:
    def change(t: int, s: int, p: float) -> float:
        probabilities = risk.label_probabilities(t, s, p)
        collapsed = risk.class_distances(t, s, within=0, across=1)
        moved = collapsed.clone()  # one sample turned about the other classes' centres
        moved[0, 1:s] = moved[1:s, 0] = 4e-4
        losses = (risk.expected_triplet_loss(d, probabilities, margin=1) for d in (moved, collapsed))
        return float(next(losses)) - float(next(losses))

    signs, predicted = [], []
    cases = ((2, 11, 0.6), (2, 13, 0.6), (2, 2, 0.8), (2, 40, 0.55), (3, 10, 0.45), (3, 11, 0.45), (3, 2, 0.6))
    for t, s, p in cases:
        q = (1 - p) / (t - 1)
        signs.append(change(t, s, p) < 0)
        predicted.append((t - 1) * s * (p - q) ** 2 < 1 - p**2 - (t - 1) * q**2)
    yield check.values(
        "triplet-rotation",
        "Error: in t to n - 2 dimensions collapse need not be even a local minimum; turning one sample by D = 4e-4 "
        "lowers the loss for classes of 11 and raises it for 13 (t = 2, p = 0.6).",
        (-3.0e-8, 2.2e-8),
        (change(2, 11, 0.6), change(2, 13, 0.6)),
        1e-9,
    )
    yield check(
        "triplet-rotation-criterion",
        "That turn lowers the loss exactly if (n - s) (p - q)^2 < 1 - m_s.",
        f"{[bool(value) for value in predicted]} for (t, s, p) = {list(cases)}",
        str(signs),
        signs == predicted and True in signs and False in signs,
    )
    yield check.values(
        "triplet-rotation-sizes",
        "For two classes that is s (1 - 4 p q) < 2 p q: up to classes of 49.5 for p = 0.55, of 12 for p = 0.6, of "
        "none for p = 0.8.",
        (49.5, 12, 8 / 9),
        [risk.collapse_turn_limit(2, p) for p in (0.55, 0.6, 0.8)],
        1e-9,
    )


def margin_theorem() -> Iterator[Check]:
    """Theorem 2: where the collapsed map minimises the expected margin loss, and where it does not."""
    p = 0.8
    probabilities = risk.label_probabilities(2, 4, p)
    match = risk.match_probabilities(probabilities)
    inside, across = float(match[0, 1]), float(match[0, 4])
    limits = {t: risk.margin_noise_limit(t) for t in (2, 3, 4, 5, 10, 1000)}
    at_limit = [
        float(risk.match_probabilities(risk.label_probabilities(t, 2, limit))[0, 1]) for t, limit in limits.items()
    ]

    def loss(t: int, s: int, p: float, d: Tensor, beta: float) -> float:
        return float(risk.expected_margin_loss(d, beta, risk.label_probabilities(t, s, p), margin=0.2))

    def flat(t: int, s: int, p: float, within: float, across: float, beta: float) -> float:
        return loss(t, s, p, risk.class_distances(t, s, within=within, across=across), beta)

    pull = risk.opposed_hinges_minimum(inside, 1 - inside, margin=0.2)
    push = risk.opposed_hinges_minimum(across, 1 - across, margin=0.2)
    three = float(risk.match_probabilities(risk.label_probabilities(3, 2, 0.6))[0, 1])
    two = {
        level: float(risk.match_probabilities(risk.label_probabilities(2, 2, level))[0, 1])
        for level in (0.0, 0.2, 0.45, 0.499, 0.5, 0.501, 0.55, 0.9)
    }
    low = risk.opposed_hinges_minimum(three, 1 - three, margin=0.2)
    continuum = [flat(2, 4, p, c, c + 0.4, c + 0.2) for c in (0.0, 0.25, 0.799, 2.0)]
    spans = [
        risk.affine_dimension(risk.class_distances(2, 4, within=c, across=c + 0.4)) for c in (0.0, 0.25, 0.799, 2.0)
    ]
    modes = risk.class_distances(2, 4, within=0, across=1.4)
    modes[:2, 2:4] = modes[2:4, :2] = 1.0
    fixed, two_modes = flat(2, 4, p, 0, 1.4, 1.2), loss(2, 4, p, modes, 1.2)
    yield check(
        "margin-weights",
        "Error: the weights of the proof are p and 1 - p; labels of one class agree with probability m_s, of two "
        "with m_d.",
        "0.68 and 0.32 at p = 0.8, t = 2",
        f"{inside:.4g} and {across:.4g}",
        abs(inside - 0.68) < 1e-12 and abs(across - 0.32) < 1e-12,
    )
    yield check(
        "margin-slope",
        "Error: for two classes the slope between the hinges is (2p - 1)^2, inside and across, not 2p - 1.",
        "0.36 at p = 0.8",
        f"{2 * inside - 1:.4g} and {1 - 2 * across:.4g}",
        abs(2 * inside - 1 - 0.36) < 1e-12 and abs(1 - 2 * across - 0.36) < 1e-12,
    )
    yield check(
        "margin-pair-minimum",
        "With m_s above 1/2 the loss of a same-class pair is lowest at D = beta - margin and that of a "
        "different-class pair at D = beta + margin: the proof says maximal where it is minimal.",
        "-0.2 and 0.2 around beta",
        f"[{pull.low:.2g}, {pull.high:.2g}] and [{push.low:.2g}, {push.high:.2g}]",
        (pull.low, pull.high, push.low, push.high) == (-0.2, -0.2, 0.2, 0.2),
    )
    yield check(
        "margin-needs-more",
        "Error: for more than two classes p above 1/2 is not enough; m_s must exceed 1/2, so p the limit "
        "(1 + sqrt(1 - t (3 - t) / 2)) / t.",
        "0.500000, 0.666667, 0.683013, 0.689898, 0.700000, 0.707047 for t = 2, 3, 4, 5, 10, 1000, m_s = 1/2 there",
        ", ".join(f"{limit:.6f}" for limit in limits.values()) + f"; m_s {min(at_limit):.6f} to {max(at_limit):.6f}",
        np.allclose(list(limits.values()), (0.5, 0.666667, 0.683013, 0.689898, 0.7, 0.707047), atol=1e-6)
        and np.allclose(at_limit, 0.5, atol=1e-12),
    )
    yield check(
        "margin-two-classes",
        "For two classes m_s exceeds 1/2 for every p other than 1/2, below it too.",
        "above 1/2 but at p = 1/2, for eight p from 0 to 0.9",
        ", ".join(f"{level:g}: {value:.6f}" for level, value in two.items()),
        all((value > 0.5 + 1e-9) == (level != 0.5) for level, value in two.items()),
    )
    yield check(
        "margin-below-limit",
        "With m_s below 1/2 same-class pairs, too, have the lowest loss at D = beta + margin.",
        "0.2 above beta for t = 3, p = 0.6",
        f"[{low.low:.2g}, {low.high:.2g}]",
        (low.low, low.high) == (0.2, 0.2),
    )
    yield check.values(
        "margin-continuum",
        "Error: from n - 1 dimensions on collapse is not the only minimiser; D = c inside, c + 2 margin across "
        "and beta = c + margin cost the same for every c.",
        (risk.margin_lower_bound(probabilities, margin=0.2),) * 4,
        continuum,
        1e-12,
        also=spans == [1, 7, 7, 7],
    )
    yield check.values(
        "margin-fixed-beta",
        "Error: with beta fixed above the margin the collapsed map is no minimiser; a class in two modes costs "
        "less (t = 2, s = 4, p = 0.8, margin 0.2, beta 1.2, in the plane).",
        (0.232, 0.192),
        (fixed, two_modes),
        1e-9,
        also=risk.affine_dimension(modes) == 2,
    )
    for t, s, level, other, beta, expected in (
        (3, 4, 0.6, 0.4, 0.2, (0.13066667, 0.11866667)),
        (10, 5, 0.6, 0.4, 0.2, (0.0448, 0.03697778)),
        (3, 12, 0.6, 0.0, -0.2, (0.14311111, 0.13955556)),
    ):
        what = "equal distances of 2 margin" if other else "everything on one point with beta = -margin"
        yield check.values(
            f"margin-not-collapsed-t{t}-s{s}",
            f"Error: with {t} classes of {s} and p = {level}, {what} costs less than collapse.",
            expected,
            (flat(t, s, level, 0, 0.4, 0.2), flat(t, s, level, other, other, beta)),
            1e-8,
        )


def searches() -> Iterator[Check]:
    """Both theorems by descent from random maps."""
    for t, s, p, m, kind, collapsed, known in TRIPLET_SEARCHES:
        labels = risk.label_probabilities(t, s, p)
        d = risk.class_distances(t, s, within=0, across=1)
        value = float(risk.expected_triplet_loss(d, labels, margin=1, self_terms=kind))
        best = risk.search_triplet_minimum(
            labels, embedding_dim=m, margin=1, self_terms=kind, steps=600, generator=torch.Generator().manual_seed(0)
        )
        minimal = collapsed == known
        classes = repeated_labels(t, s)
        within = float(best.distances[(classes[:, None] == classes) & ~torch.eye(t * s, dtype=torch.bool)].mean())
        yield check(
            f"triplet-search-t{t}-s{s}-p{p}-m{m}-{kind}",
            f"With {t} classes of {s}, p = {p}, in {m} dimensions, self terms {kind}, the collapsed map is "
            f"{'the best found' if minimal else 'not a minimiser'}.",
            f"collapsed {collapsed:.10f}, best {known:.6f} to {SEARCHED:g}, "
            f"within classes {'0' if minimal else 'above 0.1'}",
            f"collapsed {value:.10f}, best {best.value:.10f}, within classes {within:.2f}",
            abs(value - collapsed) < 1e-10
            and abs(best.value - known) < SEARCHED
            and (best.value > value - 1e-9) == minimal
            and (within < 0.01 if minimal else within > 0.1),
        )
    four = risk.label_probabilities(4, 2, 0.8)
    needed = risk.affine_dimension(risk.class_distances(4, 2, within=0, across=1))
    flat = risk.search_triplet_minimum(
        four, embedding_dim=2, margin=1, self_terms="excluded", steps=300, generator=torch.Generator().manual_seed(0)
    )
    least = risk.triplet_lower_bound(four, margin=1)
    yield check(
        "triplet-too-few-dimensions",
        "With fewer than t - 1 dimensions the distances between all classes cannot equal the margin, and the "
        "argument for the minimum does not apply.",
        "four classes need 3 dimensions; in 2 the best found lies above the bound",
        f"{needed} dimensions, {flat.value:.5f} against {least:.5f}",
        needed == 3 and flat.value > least + 1e-4,
    )
    for t, level, known in ((2, 0.8, 0.112), (3, 0.75, 0.09479167)):
        labels = risk.label_probabilities(t, 4, level)
        best = risk.search_margin_minimum(
            labels, embedding_dim=2, margin=0.2, steps=600, generator=torch.Generator().manual_seed(0)
        )
        value = float(
            risk.expected_margin_loss(risk.class_distances(t, 4, within=0, across=0.4), 0.2, labels, margin=0.2)
        )
        yield check(
            f"margin-search-t{t}",
            f"With beta free, {t} classes of 4 and p = {level}, collapse attains the minimum loss in the plane.",
            f"{known:.8f}, to 1e-8; best found not below and within {SEARCHED:g}",
            f"{value:.8f}, best {best.value:.8f}, bound {risk.margin_lower_bound(labels, margin=0.2):.8f}",
            abs(value - known) < 1e-8
            and -1e-12 < best.value - value < SEARCHED
            and abs(value - risk.margin_lower_bound(labels, margin=0.2)) < 1e-12,
        )
    labels = risk.label_probabilities(2, 4, 0.8)
    fixed = risk.search_margin_minimum(
        labels, embedding_dim=2, margin=0.2, beta=1.2, steps=600, generator=torch.Generator().manual_seed(0)
    )
    inside = fixed.distances[:4, :4][~torch.eye(4, dtype=torch.bool)]
    yield check(
        "margin-search-fixed-beta",
        "Error: with beta fixed at 1.2, margin 0.2, the best map found in the plane has two modes in a class (t = 2"
        ", s = 4, p = 0.8).",
        f"0.192 to {SEARCHED:g}; D inside a class 0 or 1 to 0.01 (own bound), both",
        f"{fixed.value:.6f}, D from {float(inside.min()):.3f} to {float(inside.max()):.3f}",
        abs(fixed.value - 0.192) < SEARCHED
        and bool(torch.minimum(inside.abs(), (inside - 1).abs()).max() < 0.01)
        and bool(inside.max() > 0.9 and inside.min() < 0.1),
    )


_KINDS: tuple[risk.SelfTerms, ...] = ("exact", "excluded", "independent")


def _distinct(count: int) -> Tensor:
    same = torch.eye(count, dtype=torch.bool)
    return ~(same[:, :, None] | same[:, None] | same[None])


def _perturbed(distances: Tensor, seed: int) -> Tensor:
    """Symmetric random changes of up to 0.05, the diagonal kept."""
    noise = torch.rand(distances.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return distances + 0.025 * (noise + noise.T).fill_diagonal_(0)
