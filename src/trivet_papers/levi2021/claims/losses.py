"""Sections 3, 4.1 and 4.3: the losses, which maps have none without noise, and easy positives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from trivet.distances import Distance
from trivet.losses import ContrastiveLoss, MarginLoss, MultiSimilarityLoss, TripletLoss
from trivet.losses.triplet import Variant
from trivet.metrics import nmi
from trivet.mining import mine
from trivet_papers.checks import Check
from trivet_papers.levi2021 import risk
from trivet_papers.levi2021.claims.rows import check, repeated_labels, squared_distances

FLOAT32 = 5e-8  # of a loss with beta, which is held in float32
# Eight unit vectors in the plane, no two distances equal; the last has no other of its class.
ROWS = ((1, 0), (12 / 13, 5 / 13), (3 / 5, 4 / 5), (8 / 17, 15 / 17), (-9 / 41, 40 / 41), (-4 / 5, 3 / 5))
VECTORS = torch.tensor((*ROWS, (-15 / 17, -8 / 17), (20 / 29, -21 / 29)), dtype=torch.float64)
LABELS = torch.tensor((0, 0, 1, 0, 1, 1, 0, 2))


HYPERPARAMETERS = {"margin": 0.2, "beta": 1.2, "pull": 2.0, "push": 50.0, "threshold": 1.0}  # as section 5 has them


def _with_hyperparameters(
    *, margin: float, beta: float, pull: float, push: float, threshold: float
) -> tuple[float, float]:
    """The margin and the multi-similarity loss of the test vectors by their formulas, summed over pairs and anchors."""
    rows, labels = VECTORS[:-1], LABELS[:-1]  # of a class with two vectors at least
    d, similarity = squared_distances(rows).sqrt(), rows @ rows.T
    other = labels[:, None] != labels
    same = ~other & ~torch.eye(len(rows), dtype=torch.bool)
    hinges = (d[same] - beta + margin).clamp(min=0).sum() + (beta - d[other] + margin).clamp(min=0).sum()
    near, far = (
        (1 + ((scale * (similarity - threshold)).exp() * pairs).sum(1)).log().sum() / abs(scale)
        for scale, pairs in ((-pull, same), (push, other))
    )
    return float(hinges), float(near + far)


def losses() -> Iterator[Check]:
    """Section 3: the losses over a whole set, with its eight test vectors."""
    objectives_of = (
        ContrastiveLoss(margin=1.0),
        TripletLoss(positives="all", negatives="all", reduction="objective"),
        MarginLoss(
            distance="squared_euclidean", normalize=False, positives="all", negatives="all", reduction="objective"
        ),
    )
    objectives = [loss(VECTORS, LABELS).item() for loss in objectives_of]
    n, margin, beta = len(VECTORS), 0.2, 1.2
    d = squared_distances(VECTORS)
    other = LABELS[:, None] != LABELS
    distinct = ~other & ~torch.eye(n, dtype=torch.bool)
    hinge = (d[:, :, None] - d[:, None] + margin).clamp(min=0)
    between_terms = [
        float(d[distinct].sum() + (1 - d[other]).clamp(min=0).sum()) / n**2,
        float((hinge * distinct[:, :, None] * other[:, None]).sum()) / n**3,
        float((d[distinct] - beta + margin).clamp(min=0).sum() + (beta - d[other] + margin).clamp(min=0).sum()) / n**2,
    ]
    self_terms = [0.0, float((margin - d[other]).clamp(min=0).sum()) / n**3, n * max(0.0, margin - beta) / n**2]
    # At beta 0.1 a sample with itself is not free.
    low = MarginLoss(
        beta=0.1, distance="squared_euclidean", normalize=False, positives="all", negatives="all", reduction="objective"
    )
    at_low = float((d[distinct] + 0.1).sum() + (0.3 - d[other]).clamp(min=0).sum()) / n**2 + n * 0.1 / n**2
    sums = {
        (variant, positives): float(
            TripletLoss(positives=positives, negatives="all", reduction="sum", variant=variant)(VECTORS, LABELS)
        )
        for variant in _VARIANTS
        for positives in _SETS
    }
    lopsided = max(
        abs(
            float(risk.expected_triplet_loss(rows, labels, margin=margin, self_terms="excluded"))
            - _mirrored(rows, labels)
        )
        for rows, labels in ((d, risk.label_probabilities(2, 4, 0.8)), (d[:6, :6], risk.label_probabilities(3, 2, 0.6)))
    )
    slopes = []
    for kind, distances in zip(_DISTANCES[:2], (d, d.sqrt()), strict=True):
        shared = MarginLoss(distance=kind, normalize=False, positives="all", negatives="all", reduction="sum")
        (slope,) = torch.autograd.grad(shared(VECTORS, LABELS), shared.beta)
        counted = int((distances[other] < beta + margin).sum()) - int((distances[distinct] > beta - margin).sum())
        slopes.append((float(slope.sum()), counted))
    of_section_5 = (
        MarginLoss(positives="all", negatives="all", reduction="sum"),
        MultiSimilarityLoss(positives="all", negatives="all", reduction="sum", threshold=1.0),
    )
    yield check.values(
        "objectives",
        "The contrastive, triplet and margin losses over all ordered pairs or triplets, a sample with itself "
        "included, of the eight test vectors (squared distances).",
        (0.595503886158, 0.120108083953, 0.457266903294),
        objectives,
        FLOAT32,
    )
    yield check.values(
        "self-pairs",
        "In these sums a sample with itself adds nothing to the contrastive loss, (margin - D_an)_+ for each "
        "negative to the triplet loss and (margin - beta)_+ to the margin loss.",
        [*(between + within for between, within in zip(between_terms, self_terms, strict=True)), at_low],
        [*objectives, low(VECTORS, LABELS).item()],
        FLOAT32,
        also=self_terms[1] > 0,
    )
    yield check(
        "triplet-hinge",
        "Error: section 3 has the distance of positive and negative in the hinge, the proofs that of anchor and "
        "negative; the sums over all triplets are equal, with noise too, but not those over easy positives.",
        "equal to 1e-12 over all triplets, not over easy positives",
        f"all {sums['an', 'all']:.6f} and {sums['pn', 'all']:.6f}, expected {lopsided:.1e} apart, "
        f"easy {sums['an', 'easy']:.6f} and {sums['pn', 'easy']:.6f}",
        abs(sums["an", "all"] - sums["pn", "all"]) < 1e-12 * sums["an", "all"]
        and lopsided < 1e-12
        and abs(sums["an", "easy"] - sums["pn", "easy"]) > 1e-3,
    )
    yield check(
        "beta-gradient",
        "The summed margin loss rises with a shared beta by the number of active negatives less that of active "
        "positives.",
        "4 with squared, 8 with plain distances for the test vectors",
        f"{slopes[0][0]:g} and {slopes[1][0]:g}, counted {slopes[0][1]} and {slopes[1][1]}",
        slopes == [(4.0, 4), (8.0, 8)],
    )
    yield check.values(
        "hyperparameters",
        "By default the margin and the multi-similarity loss have the constants of section 5: margin 0.2, beta "
        "1.2; 2 and 50; threshold 1 is asked for, as the default is 0.5.",
        _with_hyperparameters(**HYPERPARAMETERS),
        [loss(VECTORS[:-1], LABELS[:-1]).sum().item() for loss in of_section_5],
        1e-6,
    )


def easy_positives() -> Iterator[Check]:
    """Section 4.3: the sampling, and the measure it is judged by."""
    d = squared_distances(VECTORS)
    same = LABELS[:, None] == LABELS
    printed = d.masked_fill(~same, torch.inf).argmin(1).tolist()
    chosen = {}
    for distance in _DISTANCES:
        triplets = mine(VECTORS, LABELS, positives="easy", negatives="hard", distance=distance)
        chosen[distance] = dict(zip(triplets.anchor.tolist(), triplets.positive.tolist(), strict=True))
    nearest = dict(enumerate((1, 0, 4, 1, 5, 4, 3)))
    clusters = (0, 0, 0, 0, 1, 1, 2, 2), (0, 0, 1, 1, 2, 2, 3, 4)
    reference = MultiSimilarityLoss(positives="easy", threshold=1.0)
    yield check(
        "easy-not-itself",
        "Error: the set from which the nearest positive is taken holds the anchor, whose distance to itself is the "
        "least; the same in the minimum of appendix B. It must be left out.",
        "each of the eight test vectors by the printed rule; 1, 0, 4, 1, 5, 4, 3 and none when it is left out",
        f"{printed} and {chosen['squared_euclidean']}",
        printed == list(range(8)) and chosen["squared_euclidean"] == nearest,
    )
    yield check(
        "easy-any-distance",
        "The easy positive is the same by squared distance, by distance and, for unit vectors, by similarity.",
        "one choice",
        f"{len({tuple(sorted(each.items())) for each in chosen.values()})} of {len(chosen)} rules",
        all(each == nearest for each in chosen.values()),
    )
    yield check.values(
        "easy-multi-similarity",
        "With multi-similarity, the easy positive takes the place of the mined positives, and the rule for "
        "negatives stays.",
        (0.577391283648,),
        (float(reference(VECTORS, LABELS)),),
        1e-9,
    )
    yield check.values(
        "nmi",
        "NMI is the mutual information over the mean of the two entropies, as in the book that the paper cites.",
        (0.516237553211, 0.632250089551, 0.0, 1.0),
        [nmi(LABELS.numpy(), np.array(row)) for row in (*clusters, (0,) * 8, LABELS.tolist())],
        1e-11,
    )


def without_noise() -> Iterator[Check]:
    """Section 4.1: which maps have no loss when labels are sure."""
    triplet = risk.label_probabilities(2, 2, 1.0)[:3]  # two samples of A and one of B
    line = squared_distances(torch.tensor([[0.0], [1.0], [1.9]], dtype=torch.float64))
    hinge = float(line[1, 0] - line[1, 2]) + 0.2
    diameter, gap = float(line[0, 1].sqrt()), float(line[:2, 2].sqrt().min())
    loss = float(risk.expected_triplet_loss(line, triplet, margin=0.2))
    near = squared_distances(torch.tensor([[0.0], [0.1], [5.0]], dtype=torch.float64))
    at_margin = float(risk.expected_margin_loss(near, 0.2, triplet, margin=0.2))
    above = float(risk.expected_margin_loss(near, 0.3, triplet, margin=0.2))
    agree = zero = pair_agree = pair_zero = 0
    generator = torch.Generator().manual_seed(0)
    maps, margin, beta = 400, 0.3, 0.6
    sure, classes = risk.label_probabilities(2, 3, 1.0), repeated_labels(2, 3)
    same = classes[:, None] == classes
    for _ in range(maps):
        spread = torch.rand(1, generator=generator, dtype=torch.float64)
        centres = torch.tensor([[0.0], [1.2]], dtype=torch.float64)[classes]
        d = squared_distances(centres + 0.5 * spread * torch.randn(6, 1, generator=generator, dtype=torch.float64))
        within = d.masked_fill(~same, 0).amax(1)
        across = d.masked_fill(same, torch.inf).amin(1)
        free = float(risk.expected_triplet_loss(d, sure, margin=margin)) == 0
        agree += free == bool((within + margin <= across).all())
        zero += free
        free = float(risk.expected_margin_loss(d, beta, sure, margin=margin)) == 0
        pair_agree += free == bool((within <= beta - margin).all() and (across >= beta + margin).all())
        pair_zero += free
    yield check(
        "triplet-diameter",
        "Error: a diameter below twice the margin plus the gap between the classes is said to give zero triplet "
        "loss, but A = {0, 1}, B = {1.9} with margin 0.2 has a hinge of 0.39.",
        "the condition holds, hinge 0.39, loss above 0",
        f"{diameter:.2g} < {0.4 + gap:.2g}, hinge {hinge:.2f}, loss {loss:.4f}",
        diameter < 0.4 + gap and abs(hinge - 0.39) < 1e-9 and loss > 0,
    )
    yield check(
        "triplet-zero",
        "Without noise the triplet loss is zero exactly if for every anchor the largest distance inside its class "
        "plus the margin is at most the least distance to another class.",
        f"the same verdict for {maps} random maps, some of either kind",
        f"{agree} agree, {zero} have no loss",
        agree == maps and 0 < zero < maps,
    )
    yield check(
        "margin-beta-equal",
        "Error: beta = margin is said to leave maps with spread-out classes without margin loss, but it forces the "
        "distances inside a class to 0.",
        "A = {0, 0.1}, B = {5}, margin 0.2: loss above 0 with beta 0.2, 0 with beta 0.3",
        f"{at_margin:.5f} and {above:.5f}",
        at_margin > 0 and above == 0,
    )
    yield check(
        "margin-zero",
        "Without noise the margin loss is zero exactly if distances are at most beta - margin inside classes and "
        "at least beta + margin between them.",
        f"the same verdict for {maps} random maps, some of either kind",
        f"{pair_agree} agree, {pair_zero} have no loss",
        pair_agree == maps and 0 < pair_zero < maps,
    )


_VARIANTS: tuple[Variant, ...] = ("an", "pn")
_SETS: tuple[Literal["all", "easy"], ...] = ("all", "easy")
_DISTANCES: tuple[Distance, ...] = ("squared_euclidean", "euclidean", "cosine")


def _mirrored(distances: Tensor, probabilities: Tensor) -> float:
    """The expected triplet loss over distinct triplets, margin 0.2, with the distance of positive and negative."""
    weights = risk.triplet_weights(probabilities, self_terms="excluded")
    hinge = (distances[:, :, None] - distances[None] + 0.2).clamp(min=0)
    return float((weights * hinge).sum()) / len(weights) ** 3
