"""Every value of the V8 vectors, for the plain-Python reference and for the engine, whole and in blocks."""

from __future__ import annotations

from statistics import fmean

import pytest
import torch
from tests import reference

import trivet
from trivet.distances import squared_distances
from trivet.mining import DistanceBlock
from trivet.mining.batch import check_batch

ROWS = torch.tensor(reference.V8, dtype=torch.float64)
LABELS = torch.tensor(reference.V8_LABELS)
KINDS = ["squared_euclidean", "euclidean"]
BLOCKS = [None, 3, 1]
DISTANCES = {
    "01": 0.3922322703, "02": 0.8944271910, "03": 1.0289915109, "04": 1.5617376189, "05": 1.8973665961,
    "06": 1.9402850003, "07": 0.7878385972, "12": 0.5262348116, "13": 0.6726727940, "14": 1.2863841728,
    "15": 1.7364862842, "16": 1.9977362754, "17": 1.1330576458, "23": 0.1533929978, "24": 0.8381163549,
    "25": 1.4142135624, "26": 1.9523741204, "27": 1.5267725707, "34": 0.6963730592, "35": 1.3015827469,
    "36": 1.9133477609, "37": 1.6213584568, "45": 0.6914107177, "46": 1.5908634401, "47": 1.9276222405,
    "56": 1.0737509844, "57": 1.9930915165, "67": 1.5923243882,
}  # fmt: skip
ALL = {"positives": "all", "negatives": "all"}


def problem(kind: str) -> reference.Problem:
    return reference.batch(reference.V8, reference.V8_LABELS, kind)


def close(value: float, abs: float = 6e-13) -> object:
    return pytest.approx(value, abs=abs, rel=0)


def test_distances() -> None:
    plain = squared_distances(ROWS, ROWS).sqrt()
    for pair, expected in DISTANCES.items():
        i, j = int(pair[0]), int(pair[1])
        assert reference.measure(reference.V8[i], reference.V8[j], "euclidean") == close(expected, 6e-11)
        assert plain[i, j].item() == close(expected, 6e-11)


@pytest.mark.parametrize("block_size", BLOCKS)
@pytest.mark.parametrize(
    ("kind", "objective", "mean", "active", "mean_active"),
    [
        ("squared_euclidean", 0.120108083953, 0.783876894965, 42, 1.455771376363),
        ("euclidean", 0.057535413243, 0.376473302258, 43, 0.682905059910),
    ],
)
def test_triplet(
    kind: str, objective: float, mean: float, active: int, mean_active: float, block_size: int | None
) -> None:
    plain = problem(kind)
    hinges = [reference.hinge(plain, t, 0.2) for t in reference.triplets(plain, "all", "all", 0.2)]
    with_self = sum(hinges) + sum(max(0.0, 0.2 - plain.d(a, n)) for a in range(8) for n in plain.negatives(a))
    swapped = [reference.hinge(plain, t, 0.2, "pn") for t in reference.triplets(plain, "all", "all", 0.2)]
    assert len(hinges) == 78
    assert sum(h > 0 for h in hinges) == active
    assert [with_self / 8**3, fmean(hinges), fmean(swapped)] == close([objective, mean, mean])
    assert fmean(h for h in hinges if h > 0) == close(mean_active)

    def engine(**options: object) -> float:
        loss = trivet.TripletLoss(distance=kind, block_size=block_size, **ALL, **options)
        value = loss(ROWS, LABELS).item()
        assert loss.last.terms == (78 if options.get("reduction") != "objective" else 78 + sum_of_negatives)
        return value

    sum_of_negatives = sum(len(plain.negatives(a)) for a in range(8))
    assert engine(reduction="objective") == close(objective)
    assert engine() == close(mean)
    assert engine(variant="pn") == close(mean)
    assert engine(reduction="objective", variant="pn") == close(objective)
    assert engine(reduction="mean-active") == close(mean_active)


@pytest.mark.parametrize("block_size", BLOCKS)
@pytest.mark.parametrize(("kind", "expected"), [("squared_euclidean", 0.595503886158), ("euclidean", 0.400960612186)])
def test_contrastive(kind: str, expected: float, block_size: int | None) -> None:
    plain = problem(kind)
    pull = sum(plain.d(a, p) for a in range(8) for p in plain.positives(a))
    push = sum(max(0.0, 1 - plain.d(a, n)) for a in range(8) for n in plain.negatives(a))
    assert (pull + push) / 64 == close(expected)
    loss = trivet.ContrastiveLoss(margin=1.0, distance=kind, block_size=block_size)
    assert loss(ROWS, LABELS).item() == close(expected)


@pytest.mark.parametrize("block_size", BLOCKS)
@pytest.mark.parametrize(
    ("kind", "positive_sum", "negative_sum", "active", "slope", "objective", "eps_sum", "appendix_b"),
    [
        ("squared_euclidean", 18.950758583977, 10.314323226865, (10, 14), 4, 0.457266903294, 2.660899653979,
         1.621902860105),
        ("euclidean", 6.589148219651, 9.493915586724, (10, 18), 8, 0.251297871975, 0.913347760858, 1.300907918448),
    ],
)  # fmt: skip
def test_margin(
    kind: str,
    positive_sum: float,
    negative_sum: float,
    active: tuple[int, int],
    slope: int,
    objective: float,
    eps_sum: float,
    appendix_b: float,
    block_size: int | None,
) -> None:
    plain = problem(kind)
    pull = [max(0.0, plain.d(a, p) - 1.2 + 0.2) for a in range(8) for p in plain.positives(a)]
    push = [max(0.0, 1.2 - plain.d(a, n) + 0.2) for a in range(8) for n in plain.negatives(a)]
    easy = [max(0.0, plain.d(a, p) - 1.0) for a in range(8) for p in reference.chosen_positives(plain, a, "easy")]
    assert [sum(pull), sum(push), sum(easy)] == close([positive_sum, negative_sum, eps_sum])
    assert (sum(x > 0 for x in pull), sum(x > 0 for x in push)) == active
    assert sum(x > 0 for x in easy) == 1
    assert (sum(pull) + sum(push)) / 64 == close(objective)  # the pairs i = j give (0.2 - 1.2)_+ = 0
    assert (sum(easy) + sum(push)) / 8 == close(appendix_b)

    def engine(**options: object) -> trivet.MarginLoss:
        loss = trivet.MarginLoss(distance=kind, block_size=block_size, **options).double()
        loss.beta.data.fill_(1.2)  # in float64: the parameter starts as float32
        return loss

    loss = engine(reduction="sum", **ALL)
    value = loss(ROWS, LABELS)
    value.backward()
    assert value.item() == close(positive_sum + negative_sum, 2e-12)
    assert loss.beta.grad.item() == pytest.approx(slope)
    assert loss.last.active_fraction * loss.last.terms == pytest.approx(sum(active))
    assert engine(reduction="objective", **ALL)(ROWS, LABELS).item() == close(objective)
    eps = engine(positives="easy", negatives="all", reduction="anchors")
    assert eps(ROWS, LABELS).item() == close(appendix_b)


@pytest.mark.parametrize("block_size", BLOCKS)
@pytest.mark.parametrize(
    ("kind", "against_all", "against_hardest"),
    [("squared_euclidean", 0.260837510379, 0.640837683710), ("euclidean", 0.159386671708, 0.414947863856)],
)
def test_easy_positives(kind: str, against_all: float, against_hardest: float, block_size: int | None) -> None:
    plain = problem(kind)
    every = [reference.hinge(plain, t, 0.2) for t in reference.triplets(plain, "easy", "all", 0.2)]
    hardest = reference.triplets(plain, "easy", "hard", 0.2)
    assert [p for _, p, _ in hardest] == [1, 0, 4, 1, 5, 4, 3]
    assert [n for *_, n in hardest] == [7, 2, 3, 2, 3, 6, 5]
    assert [reference.chosen_positives(plain, a, "hard") for a in range(8)] == [[6], [6], [5], [6], [2], [2], [1], []]
    assert (len(every), sum(h > 0 for h in every)) == (31, 11)
    assert [fmean(every), fmean(reference.hinge(plain, t, 0.2) for t in hardest)] == close(
        [against_all, against_hardest]
    )
    for negatives, expected in (("all", against_all), ("hard", against_hardest)):
        loss = trivet.TripletLoss(distance=kind, positives="easy", negatives=negatives, block_size=block_size)
        assert loss(ROWS, LABELS).item() == close(expected)
    mined = trivet.mine(ROWS, LABELS, positives="easy", negatives="hard", distance=kind)
    assert list(zip(*(column.tolist() for column in mined), strict=True)) == hardest
    farthest = trivet.mine(ROWS, LABELS, positives="hard", negatives="hard", distance=kind)
    assert farthest.positive.tolist() == [6, 6, 5, 6, 2, 2, 1]


@pytest.mark.parametrize("kind", KINDS)
def test_semihard_candidates(kind: str) -> None:
    expected = [[], [2], [0], [4], [3], [], [2]]
    plain = problem(kind)
    pairs = [(a, reference.chosen_positives(plain, a, "easy")[0]) for a in range(7)]
    assert [reference.negative_candidates(plain, a, p, "semihard", 0.2) for a, p in pairs] == expected
    mined = trivet.mine(
        ROWS, LABELS, positives="easy", negatives=trivet.SemihardNegative(otherwise="drop"), distance=kind
    )
    assert dict(zip(mined.anchor.tolist(), mined.negative.tolist(), strict=True)) == {
        a: found[0] for a, found in enumerate(expected) if found
    }


@pytest.mark.parametrize("block_size", BLOCKS)
@pytest.mark.parametrize(
    ("share", "kept", "expected"), [(0.1, 71, 0.529030625950), (0.25, 59, 0.239570320849), (0.5, 39, 0.005858898703)]
)
def test_trimmed(share: float, kept: int, expected: float, block_size: int | None) -> None:
    plain = problem("squared_euclidean")
    hinges = [reference.hinge(plain, t, 0.2) for t in reference.triplets(plain, "all", "all", 0.2)]
    assert len(reference.trimmed(hinges, share)) == kept
    assert fmean(reference.trimmed(hinges, share)) == close(expected)
    loss = trivet.TripletLoss(trim=share, block_size=block_size, **ALL)
    assert loss(ROWS, LABELS).item() == close(expected)
    assert loss.last.terms == kept


@pytest.mark.parametrize(
    ("k", "upper", "anchor", "expected"),
    [
        (3, 1.4, 0, {2: 0.4683199306, 7: 0.5316800694}),
        (3, 1.4, 4, {1: 0.3512144845, 3: 0.6487855155}),
        (128, 1.4, 0, {2: 3.4379891154e-06, 7: 0.9999965620}),
        (128, 1.4, 4, {1: 2.52224e-23, 3: 1.0}),
        (2, 1.4, 7, {0: 0.5272785158, 1: 0.4727214842}),
        (3, None, 0, {2: 0.3145237848, 4: 0.1801318109, 5: 0.1482679341, 7: 0.3570764702}),
        (128, None, 7, {5: 1.0, 4: 3.25e-62}),
        (3, 1.4, 6, {5: 1.0}),
    ],
)
def test_distance_weights(k: int, upper: float | None, anchor: int, expected: dict[int, float]) -> None:
    plain = problem("euclidean")
    negatives = plain.negatives(anchor)
    by_hand = dict(
        zip(negatives, reference.distance_weights([plain.d(anchor, n) for n in negatives], k, upper), strict=True)
    )
    batch = check_batch(ROWS, LABELS)
    block = DistanceBlock(batch, (anchor, anchor + 1), distance="euclidean", margin=0.2)
    weights = trivet.DistanceWeighted(upper_cutoff=upper, dimension=k).weights(block)[0]
    found = weights / weights.sum()
    largest = sorted(by_hand, key=by_hand.__getitem__, reverse=True)[: len(expected)]
    assert set(largest) == set(expected)
    for n, probability in expected.items():
        assert by_hand[n] == pytest.approx(probability, rel=2e-3 if probability < 1e-5 else 1e-9)
        assert found[n].item() == pytest.approx(by_hand[n], rel=1e-9)
    assert found.sum().item() == pytest.approx(1)


SETS = {
    "positives": [[3, 6], [0, 3, 6], [4, 5], [0, 1, 6], [2, 5], [2], [0, 1, 3]],
    "negatives": [[2, 4, 5, 7], [2, 4, 5, 7], [0, 1, 3], [2, 4, 5, 7], [3], [3, 6], [2, 4, 5, 7]],
    "eps negatives": [[], [2], [0, 1, 3], [2, 4], [3], [], [2, 4, 5, 7]],
}


def multi_similarity_case(case: str) -> tuple[list[list[int]], list[list[int]], dict[str, object]]:
    """Positives, negatives and options of the engine for a row of the table."""
    plain = problem("cosine")
    positives = [reference.chosen_positives(plain, a, "multi-similarity") for a in range(8)]
    easy = [reference.chosen_positives(plain, a, "easy") for a in range(8)]
    every = [plain.positives(a) for a in range(8)]
    mined = [reference.listed_negatives(plain, a, "multi-similarity", every[a]) for a in range(8)]
    by_easy = [reference.listed_negatives(plain, a, "multi-similarity", easy[a]) for a in range(8)]
    assert positives[:7] == SETS["positives"]
    assert mined[:7] == SETS["negatives"]
    assert by_easy[:7] == SETS["eps negatives"]
    return {
        "no mining": (every, [plain.negatives(a) for a in range(8)], ALL),
        "mining": (positives, mined, {}),
        "easy": (easy, mined, {"positives": "easy"}),
        "easy reference": (
            easy,
            by_easy,
            {"positives": "easy", "negatives": trivet.MultiSimilarityNegatives(reference="chosen")},
        ),
    }[case]


@pytest.mark.parametrize("block_size", BLOCKS)
@pytest.mark.parametrize(
    ("case", "scale", "threshold", "by_batch", "by_kept"),
    [
        ("no mining", 50, 1.0, 1.428750566915, 1.632857790760),
        ("mining", 50, 1.0, 1.416228702441, 1.618547088504),
        ("easy", 50, 1.0, 0.577391283648, 0.659875752741),
        ("easy reference", 50, 1.0, 0.577391283187, 0.659875752214),
        ("mining", 40, 0.5, 1.248202433175, None),
    ],
)
def test_multi_similarity(
    case: str, scale: int, threshold: float, by_batch: float, by_kept: float | None, block_size: int | None
) -> None:
    positives, negatives, options = multi_similarity_case(case)
    terms = reference.multi_similarity(problem("cosine"), positives, negatives, b=scale, threshold=threshold)
    assert len(terms) == 7
    assert sum(terms) / 8 == close(by_batch)
    loss = trivet.MultiSimilarityLoss(negative_scale=scale, threshold=threshold, block_size=block_size, **options)
    assert loss(ROWS, LABELS).item() == close(by_batch)
    if by_kept is not None:
        assert fmean(terms) == close(by_kept)
        kept = trivet.MultiSimilarityLoss(threshold=threshold, reduction="mean", block_size=block_size, **options)
        assert kept(ROWS, LABELS).item() == close(by_kept)


@pytest.mark.parametrize("block_size", BLOCKS)
def test_every_loss_can_be_trimmed(block_size: int | None) -> None:
    squared, plain, cosine = (problem(kind) for kind in ("squared_euclidean", "euclidean", "cosine"))
    options = {"reduction": "mean", "trim": 0.25, "block_size": block_size}
    pairs = [
        term
        for a in range(8)
        for term in [squared.d(a, p) for p in squared.positives(a)]
        + [max(0.0, 1 - squared.d(a, n)) for n in squared.negatives(a)]
    ]
    contrastive = trivet.ContrastiveLoss(margin=1.0, **options)
    assert contrastive(ROWS, LABELS).item() == close(fmean(reference.trimmed(pairs, 0.25)))
    tuples = [
        max(0.0, plain.d(a, p) - 1.0) + max(0.0, 1.4 - plain.d(a, n))
        for a, p, n in reference.triplets(plain, "easy", "hard", 0.2)
    ]
    margin = trivet.MarginLoss(positives="easy", negatives="hard", learn_beta=False, **options).double()
    margin.beta.fill_(1.2)
    assert margin(ROWS, LABELS).item() == close(fmean(reference.trimmed(tuples, 0.25)))
    everyone = range(8)
    anchors = reference.multi_similarity(
        cosine, [cosine.positives(a) for a in everyone], [cosine.negatives(a) for a in everyone]
    )
    similarity = trivet.MultiSimilarityLoss(**ALL, **options)
    assert similarity(ROWS, LABELS).item() == close(fmean(reference.trimmed(anchors, 0.25)))
