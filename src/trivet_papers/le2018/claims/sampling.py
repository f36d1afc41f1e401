"""Sections 4, 4.2 and 7 and supplement A.3: which triplets are chosen, how skewed that is, and the measure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
import torch

from trivet.metrics.clustering import nmi
from trivet.mining import mine
from trivet.runtime.arrays import Floats
from trivet_papers.checks import Check
from trivet_papers.le2018.claims.pairs import check
from trivet_papers.le2018.skews import MARGIN, distances_of, observed_labels, pairs_of, sampled_skews, unit_points

BATCHES = 100  # of 60, to measure a skew


def sampling_checks() -> Iterator[Check]:
    """Sections 4 and 4.2: which triplets are chosen."""
    labels = torch.arange(60) % 12
    rows = torch.from_numpy(unit_points(60, 8, seed=4))
    table = distances_of(rows.numpy())

    def picks(negatives: str) -> tuple[Floats, Floats]:
        triplets = mine(
            rows,
            labels,
            positives="all",
            negatives="violating" if negatives == "random" else "semihard-hardest",
            margin=MARGIN,
            distance="euclidean",
            generator=torch.Generator().manual_seed(0),
        )
        a, p, n = (index.numpy() for index in triplets)
        return table[a, p], table[a, n]

    to_positive, to_negative = picks("random")
    harder, least = float((to_negative < to_positive).mean()), float((to_positive - to_negative + MARGIN).min())
    fixed_positive, fixed_negative = picks("fixed")
    beyond = float((fixed_negative > fixed_positive).mean())
    solved = float((fixed_negative >= fixed_positive + MARGIN).mean())
    most, chosen = 0, []
    for negatives in ("violating", "semihard-hardest", "random"):
        triplets = mine(rows, labels, positives="all", negatives=negatives, margin=MARGIN, distance="euclidean")
        _, count = np.unique(np.stack([index.numpy() for index in triplets[:2]]), axis=1, return_counts=True)
        most = max(most, int(count.max()))
        chosen.append(len(count))
    same, others = pairs_of(labels.numpy())
    pair_rows = np.nonzero(same)[0]
    d_pair, to_others = table[same][:, None], np.where(others[pair_rows], table[pair_rows], np.nan)
    candidates = [int(rule.any(axis=1).sum()) for rule in (to_others < d_pair + MARGIN, to_others > d_pair)]
    candidates.append(int(same.sum()))
    # Corrupted pairs among those that uniform 1-1 sampling uses, of 12 classes of 5 with labels of p = 0.3.
    generator, truth = np.random.default_rng(8), np.arange(60) % 12
    noisy = observed_labels(truth, 0.3, 12, generator)
    together, different = pairs_of(noisy)
    uniform = mine(
        rows, torch.from_numpy(noisy), positives="all", negatives="random", generator=torch.Generator().manual_seed(0)
    )
    used = np.zeros((60, 60), dtype=bool)
    for other in (uniform.positive, uniform.negative):
        used[uniform.anchor.numpy(), other.numpy()] = True
    same = truth[:, None] == truth
    wrong_positive, wrong_negative = float(used[together & ~same].mean()), float(used[different & same].mean())
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
    yield check(
        "eq28",
        "Random semi-hard sampling draws from all negatives of positive loss, even ones nearer than the positive.",
        "every loss above 0, some negatives nearer than the positive",
        f"least loss {least:.4f}; {100 * harder:.0f} % nearer",
        least > 0 and harder > 0,
    )
    yield check(
        "eq29",
        "Fixed semi-hard sampling takes the nearest negative beyond the positive, perhaps beyond the margin too.",
        "all beyond the positive, some with loss 0",
        f"{100 * beyond:.0f} % beyond the positive, {100 * solved:.1f} % with loss 0",
        beyond == 1 and solved > 0,
    )
    yield check(
        "one-to-one",
        "Both semi-hard samplings are 1-1 schemes as definition 4 asks, but for the pairs without a candidate.",
        "one negative for each pair with a candidate: random, fixed, uniform " + ", ".join(map(str, candidates)),
        f"at most {most}; " + ", ".join(map(str, chosen)),
        most == 1 and chosen == candidates and min(chosen) < candidates[-1],
    )
    yield check(
        "section7-asymmetry",
        "A corrupted positive pair is always sampled, a corrupted negative one only sometimes.",
        "all corrupted positives used, fewer than all and more than none of the corrupted negatives",
        f"{100 * wrong_positive:.0f} % and {100 * wrong_negative:.0f} %",
        wrong_positive == 1 > wrong_negative > 0,
    )
    yield check(
        "section4-cases",
        "The list of true labels of an observed triplet in section 4 leaves out two of the five cases.",
        "the clean case and that of equal positive and negative left out",
        "; ".join(left_out),
        left_out == ["a = p, n apart", "p = n, a apart"],
    )


def skew_checks() -> Iterator[Check]:
    """Section 4.2: the skew eta of the samplings, which the paper does not compute, on synthetic embeddings."""
    skews = {
        (spread, p): [
            sampled_skews(spread, p, negatives, batches=BATCHES) for negatives in ("violating", "semihard-hardest")
        ]
        for spread, p in ((0.1, 0.0), (0.1, 0.3), (0.1, 0.5), (0.2, 0.0), (0.2, 0.3), (0.2, 0.5))
    }
    uniform = {spread: sampled_skews(spread, 0.3, "random", batches=BATCHES) for spread in (0.1, 0.2)}
    off = max(float(np.abs(row.preference - 1).max()) * np.sqrt(row.picks / 10) for row in uniform.values())
    ordered = sum(random.skew < fixed.skew for random, fixed in skews.values())
    above = min(random.skew for random, _ in skews.values())
    of_uniform = max(row.skew for row in uniform.values())
    by_noise = {key: [row.noise_skew for row in rows] for key, rows in skews.items() if key[1] > 0}
    overlapping = [fixed > random for (spread, _), (random, fixed) in by_noise.items() if spread == 0.2]
    tight = [fixed > random for (spread, _), (random, fixed) in by_noise.items() if spread == 0.1]
    to_share = max(abs(row.positive_skew * row.active_positives - 1) for row in uniform.values())
    gammas = [row.negative_skew / row.positive_skew for row in (skews[0.2, 0.3][0], uniform[0.2])]
    yield check(
        "skew-of-uniform",
        "Negatives that are drawn uniformly have no skew.",
        "each tenth of the ranks picked as often as it occurs, within 4 standard errors",
        f"{off:.1f} standard errors",
        off < 4,
    )
    yield check(
        "skew-conjecture",
        "Fixed semi-hard sampling is more skewed than random semi-hard, and this than uniform, on synthetic data.",
        "order holds in 6 of 6 cases: tight and overlapping classes, p = 0, 0.3, 0.5",
        f"in {ordered} of 6; random at least {above:.2f}, uniform at most {of_uniform:.2f}",
        ordered == len(skews) and above > of_uniform,
    )
    yield check(
        "skew-conjecture-noise",
        "Measured by how much more often wrong negatives are picked, the conjectured order holds for overlapping "
        "classes only and is reversed for tight ones.",
        "fixed above random at spread 0.2, below it at 0.1; p = 0.3 and 0.5",
        "; ".join(f"spread {s}, p = {p}: {b:.2f} against {a:.2f}" for (s, p), (a, b) in by_noise.items()),
        all(overlapping) and not any(tight),
    )
    yield check(
        "margin-skews",
        "Of the margin loss the largest positive skew is 1 over the share of active positive pairs, and random "
        "semi-hard negatives have the smaller gamma than uniform ones.",
        "product 1 within 1e-9; both gammas in (0, 1], that of random below that of uniform",
        f"product off by {to_share:.1e}; gamma {gammas[0]:.2f} and {gammas[1]:.2f}",
        to_share < 1e-9 and 0 < gammas[0] < gammas[1] <= 1,
    )


def measure_checks() -> Iterator[Check]:
    """Supplement A.3: the measure of the clustering."""
    truth = [0, 0, 1, 0, 1, 1, 0, 2]
    clusters = [0, 0, 0, 0, 1, 1, 2, 2]
    share = {kind: np.array(sorted(Counter(values).values())) / 8 for kind, values in (("y", truth), ("c", clusters))}
    entropy = {kind: float(-(values * np.log(values)).sum()) for kind, values in share.items()}
    joint = np.array(list(Counter(zip(truth, clusters, strict=True)).values())) / 8
    shared = entropy["y"] + entropy["c"] + float((joint * np.log(joint)).sum())
    as_printed = shared / np.sqrt(entropy["y"] * entropy["c"])
    labels = torch.tensor(truth), torch.tensor(clusters)
    geometric, arithmetic = nmi(*labels, average="geometric"), nmi(*labels)
    yield check(
        "a3-nmi",
        "The paper's NMI divides by the geometric mean of the entropies, that of others by the arithmetic one.",
        "formula of A.3 within 1e-12, other than the arithmetic one",
        f"{geometric:.12f}, formula {as_printed:.12f}; arithmetic {arithmetic:.12f}",
        abs(geometric - as_printed) < 1e-12 and abs(arithmetic - as_printed) > 1e-4,
    )
