"""Random selectors draw from the right set, with the right probabilities."""

from __future__ import annotations

import itertools

import pytest
import torch
from scipy.stats import chisquare
from tests import reference

import trivet

DRAWS = 4000


def counts(embeddings: torch.Tensor, labels: torch.Tensor, seed: int, **strategy: object) -> dict[tuple[int, int], int]:
    """How often each (anchor, chosen item) came up when anchors 0 and 1 are repeated against the batch."""
    anchors = embeddings[:2].repeat_interleave(DRAWS, dim=0)
    column = strategy.pop("column")
    mined = trivet.mine(
        anchors,
        labels[:2].repeat_interleave(DRAWS),
        references=embeddings,
        reference_labels=labels,
        ids=torch.arange(2).repeat_interleave(DRAWS),
        reference_ids=torch.arange(len(embeddings)),
        generator=torch.Generator().manual_seed(seed),
        **strategy,
    )
    pairs = torch.stack([mined.anchor // DRAWS, getattr(mined, column)], dim=1).unique(dim=0, return_counts=True)
    return {(int(a), int(j)): int(count) for (a, j), count in zip(*pairs, strict=True)}


def check_uniform(found: dict[tuple[int, int], int], anchor: int, candidates: list[int]) -> None:
    drawn = {j: count for (a, j), count in found.items() if a == anchor}
    assert set(drawn) == set(candidates)
    assert chisquare(list(drawn.values())).pvalue > 1e-3


def batch(dimension: int, size: int = 12) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(dimension)
    rows = torch.nn.functional.normalize(torch.randn(size, dimension, generator=generator, dtype=torch.float64), dim=1)
    return rows, torch.arange(size) % 2


@pytest.mark.parametrize("dimension", [3, 128, 512])
def test_random_positive_is_uniform_and_never_the_anchor(dimension: int) -> None:
    embeddings, labels = batch(dimension)
    found = counts(embeddings, labels, 0, positives="random", negatives="hard", column="positive")
    check_uniform(found, 0, [2, 4, 6, 8, 10])
    check_uniform(found, 1, [3, 5, 7, 9, 11])


@pytest.mark.parametrize("rule", ["random", "semihard", "violating"])
@pytest.mark.parametrize("kind", ["squared_euclidean", "euclidean"])
@pytest.mark.parametrize("dimension", [3, 128, 512])
def test_negative_is_uniform_over_its_candidates(rule: str, kind: str, dimension: int) -> None:
    embeddings, labels = batch(dimension)
    plain = reference.batch(embeddings.tolist(), labels.tolist(), kind)
    found = counts(
        embeddings, labels, 1, positives="easy", negatives=rule, distance=kind, margin=1.0, column="negative"
    )
    for anchor in (0, 1):
        (positive,) = reference.chosen_positives(plain, anchor, "easy")
        candidates = reference.negative_candidates(plain, anchor, positive, rule, 1.0)
        assert len(candidates) > 1
        check_uniform(found, anchor, candidates)


def test_an_empty_band_falls_back_to_all_negatives() -> None:
    embeddings, labels = batch(3)
    found = counts(embeddings, labels, 2, positives="easy", negatives="semihard", margin=0.0, column="negative")
    check_uniform(found, 0, [1, 3, 5, 7, 9, 11])


def test_distance_weighted_cap_flattens_the_weights() -> None:
    embeddings, labels = batch(3)
    strategy = trivet.DistanceWeighted(cap=1e-30, upper_cutoff=None)
    found = counts(embeddings, labels, 4, positives="easy", negatives=strategy, column="negative")
    check_uniform(found, 0, [1, 3, 5, 7, 9, 11])


def test_positive_and_negative_are_drawn_independently() -> None:
    embeddings, labels = batch(3)
    anchors = embeddings[:1].repeat(DRAWS, 1)
    mined = trivet.mine(
        anchors,
        torch.zeros(DRAWS, dtype=torch.int64),
        references=embeddings,
        reference_labels=labels,
        positives="random",
        negatives="random",
        generator=torch.Generator().manual_seed(8),
    )
    pairs = torch.stack([mined.positive, mined.negative], dim=1).unique(dim=0, return_counts=True)[1]
    assert len(pairs) == 36
    assert chisquare(pairs.tolist()).pvalue > 1e-3


def test_cutoff_of_distance_weighting() -> None:
    embeddings = torch.zeros(5, 128, dtype=torch.float64)
    for row, d in enumerate((0.0, 0.0, 0.2, 0.6, 0.9)):
        cosine = 1 - d**2 / 2
        embeddings[row, 0], embeddings[row, 1] = cosine, (1 - cosine**2) ** 0.5
    strategy = trivet.DistanceWeighted(cutoff=1.0)
    found = counts(
        embeddings, torch.tensor([0, 0, 1, 1, 1]), 9, positives="easy", negatives=strategy, column="negative"
    )
    check_uniform(found, 0, [2, 3, 4])  # all lie below the cutoff and weigh the same


@pytest.mark.parametrize("dimension", [3, 128, 512])
def test_distance_weighted_between_random_points(dimension: int) -> None:
    """In high dimension they lie near sqrt(2), where 1 / q is flat, so that all of them are drawn."""
    embeddings, labels = batch(dimension)
    strategy = trivet.DistanceWeighted(upper_cutoff=None)
    found = counts(embeddings, labels, 10, positives="easy", negatives=strategy, column="negative")
    plain = reference.batch(embeddings.tolist(), labels.tolist(), "euclidean")
    for anchor in (0, 1):
        negatives = plain.negatives(anchor)
        expected = reference.distance_weights([plain.d(anchor, n) for n in negatives], dimension, None)
        check_shares([found.get((anchor, n), 0) for n in negatives], expected)


def check_shares(drawn: list[int], shares: list[float]) -> None:
    """Chi-square against probabilities; those expected less than five times count together."""
    total = sum(drawn)
    likely = [i for i, share in enumerate(shares) if share * total >= 5]
    rest = [i for i in range(len(shares)) if i not in likely]
    found = [drawn[i] for i in likely] + [sum(drawn[i] for i in rest)]
    expected = [shares[i] * total for i in likely] + [sum(shares[i] for i in rest) * total]
    assert all(share > 0 or count == 0 for count, share in zip(drawn, shares, strict=True))
    if expected[-1] < 1:  # next to nothing is left over
        assert found[-1] <= 8
        found[-2:], expected[-2:] = [sum(found[-2:])], [sum(expected[-2:])]
    assert len(found) > 1
    assert chisquare(found, expected).pvalue > 1e-3


def on_a_line(places: list[float], own: list[int], draws: int, **strategy: object) -> trivet.MinedTriplets:
    """What `draws` anchors at 0 choose among references at `places`; all but `own` are negatives."""
    labels = torch.ones(len(places), dtype=torch.int64)
    labels[own] = 0
    return trivet.mine(
        torch.zeros(draws, 1, dtype=torch.float64),
        torch.zeros(draws, dtype=torch.int64),
        references=torch.tensor(places, dtype=torch.float64)[:, None],
        reference_labels=labels,
        distance="euclidean",
        generator=torch.Generator().manual_seed(len(places)),
        **strategy,
    )


@pytest.mark.parametrize("size", [63, 64, 65, 128, 1000])
@pytest.mark.parametrize("rule", ["random", "semihard", "violating"])
def test_uniform_over_any_number_of_references(size: int, rule: str) -> None:
    places = [(j if not 5 <= j < 9 else 5) / size for j in range(size)]  # four of them are one point
    half = size // 2
    mined = on_a_line(places, [half], 12 * size, positives="easy", negatives=rule, margin=0.2501)
    low, high = {
        "random": (-1, 2),
        "semihard": (half / size, half / size + 0.2501),
        "violating": (-1, half / size + 0.2501),
    }[rule]
    candidates = [j for j in range(size) if j != half and low < places[j] < high]
    drawn = torch.bincount(mined.negative, minlength=size)
    assert drawn.sum() == drawn[candidates].sum() == 12 * size
    assert chisquare(drawn[candidates].tolist()).pvalue > 1e-3


@pytest.mark.parametrize("size", [63, 64, 65, 128, 1000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_distance_weighted_over_any_number_of_references(size: int, dtype: torch.dtype) -> None:
    """On an arc in dimension 16, from 0.9 to 1.9, so that the weights differ by a factor of thousands."""
    distances = 0.9 + torch.arange(size, dtype=torch.float64) / size
    cosines = 1 - distances**2 / 2
    references = torch.zeros(size, 16, dtype=torch.float64)
    references[:, 0], references[:, 1] = cosines, (1 - cosines**2).sqrt()
    labels = torch.ones(size, dtype=torch.int64)
    labels[size // 2] = 0
    anchors = torch.zeros(12 * size, 16, dtype=dtype)
    anchors[:, 0] = 1
    mined = trivet.mine(
        anchors,
        torch.zeros(12 * size, dtype=torch.int64),
        references=references.to(dtype),
        reference_labels=labels,
        positives="easy",
        negatives=trivet.DistanceWeighted(upper_cutoff=None),
        generator=torch.Generator().manual_seed(size),
    )
    drawn = torch.bincount(mined.negative, minlength=size).tolist()
    assert drawn.pop(size // 2) == 0
    assert sum(drawn) == 12 * size
    negatives = [d for j, d in enumerate(distances.tolist()) if j != size // 2]
    check_shares(drawn, reference.distance_weights(negatives, 16, None))


def check_choices(picks: torch.Tensor, candidates: list[int]) -> None:
    """Rows of `picks (T, k)` hold different items, and every ordered choice of them is as likely as any other."""
    choices = list(itertools.permutations(candidates, picks.shape[1]))
    assert len(picks) >= 10 * len(choices)
    rows, found = picks.unique(dim=0, return_counts=True)
    drawn = dict(zip(map(tuple, rows.tolist()), found.tolist(), strict=True))
    assert set(drawn) <= set(choices)
    assert chisquare([drawn.get(choice, 0) for choice in choices]).pvalue > 1e-3


SEVERAL = {  # on a line with places 0.0 to 0.9 and the positive at 0.5
    "random": (lambda k: trivet.RandomNegative(k=k), [0, 1, 2, 3, 4, 6, 7, 8, 9]),
    "semihard": (lambda k: trivet.SemihardNegative(k=k, margin=0.35), [6, 7, 8]),
    "violating": (lambda k: trivet.ViolatingNegative(k=k, margin=0.15), [0, 1, 2, 3, 4, 6]),
    "fallback": (lambda k: trivet.SemihardNegative(k=k, margin=0.0), [0, 1, 2, 3, 4, 6, 7, 8, 9]),
}


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("rule", SEVERAL)
def test_several_negatives_are_a_uniform_choice_of_different_ones(rule: str, k: int) -> None:
    make, candidates = SEVERAL[rule]
    mined = on_a_line([j / 10 for j in range(10)], [5], 6000, positives="easy", negatives=make(k))
    assert mined.anchor.tolist() == [a for a in range(6000) for _ in range(k)]
    check_choices(mined.negative.view(-1, k), candidates)


@pytest.mark.parametrize("k", [2, 3])
def test_several_positives_are_a_uniform_choice_of_different_ones(k: int) -> None:
    positives = trivet.RandomPositive(k=k)
    mined = on_a_line([j / 10 for j in range(10)], [0, 2, 3, 6, 8, 9], 6000, positives=positives, negatives="random")
    check_choices(mined.positive.view(-1, k), [0, 2, 3, 6, 8, 9])
    check_shares(torch.bincount(mined.negative, minlength=10)[[1, 4, 5, 7]].tolist(), [0.25] * 4)


def test_fewer_candidates_than_wanted_are_all_taken() -> None:
    mined = on_a_line([j / 10 for j in range(10)], [5], 50, positives="easy", negatives=SEVERAL["semihard"][0](5))
    assert mined.anchor.tolist() == [a for a in range(50) for _ in range(3)]
    assert mined.negative.view(50, 3).sort(dim=1).values.tolist() == [[6, 7, 8]] * 50
    fewer = on_a_line([0.0, 0.1, 0.2], [0, 1], 50, positives=trivet.RandomPositive(k=3), negatives="random")
    assert fewer.positive.view(50, 2).sort(dim=1).values.tolist() == [[0, 1]] * 50


def test_several_distance_weighted_negatives_are_independent() -> None:
    embeddings, labels = batch(3)
    mined = trivet.mine(
        embeddings[:1].repeat(DRAWS, 1),
        torch.zeros(DRAWS, dtype=torch.int64),
        references=embeddings,
        reference_labels=labels,
        positives="easy",
        negatives=trivet.DistanceWeighted(upper_cutoff=None, k=2),
        generator=torch.Generator().manual_seed(11),
    )
    plain = reference.batch(embeddings.tolist(), labels.tolist(), "euclidean")
    negatives = plain.negatives(0)
    shares = reference.distance_weights([plain.d(0, n) for n in negatives], 3, None)
    first, second = mined.negative.view(-1, 2).unbind(dim=1)
    pairs = torch.bincount(first * 12 + second, minlength=144).tolist()
    check_shares([pairs[m * 12 + n] for m in negatives for n in negatives], [p * q for p in shares for q in shares])


@pytest.mark.parametrize("positives", [64, 65, 70])
@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize("rule", ["semihard", "violating"])
def test_uniform_with_many_positives(rule: str, k: int, positives: int) -> None:
    """Beyond 64 positives the negatives are sorted; each positive still draws among its own candidates."""
    own = [j * 128 // positives for j in range(positives)]
    tied = [own[0], own[positives // 2]]  # two of them have a negative at their own distance
    places = [j / 128 for j in [*range(128), *tied]]
    selector = (trivet.SemihardNegative if rule == "semihard" else trivet.ViolatingNegative)(margin=0.15, k=k)
    mined = on_a_line(places, own, 1500, positives="all", negatives=selector)
    for positive in tied:
        low = places[positive] if rule == "semihard" else -1
        candidates = [j for j, x in enumerate(places) if j not in own and low < x < places[positive] + 0.15]
        assert len(candidates) > 2
        picks = mined.negative[mined.positive == positive].view(-1, k)
        assert len(picks) == 1500
        assert k == 1 or (picks[:, 0] != picks[:, 1]).all()
        for place in range(k):
            drawn = torch.bincount(picks[:, place], minlength=130)
            assert drawn.sum() == drawn[candidates].sum()
            assert chisquare(drawn[candidates].tolist()).pvalue > 1e-3


def test_random_positives_of_a_large_class() -> None:
    places = [j / 200 for j in range(200)]
    mined = on_a_line(places, list(range(150)), 3000, positives="random", negatives="random")
    assert chisquare(torch.bincount(mined.positive, minlength=150).tolist()).pvalue > 1e-3
    assert chisquare(torch.bincount(mined.negative, minlength=200)[150:].tolist()).pvalue > 1e-3
