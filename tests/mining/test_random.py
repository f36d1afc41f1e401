"""Random selectors draw from the right set, with the right probabilities."""

from __future__ import annotations

import pytest
import torch
from scipy.stats import chisquare

import reference
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


def test_random_positive_is_uniform_and_never_the_anchor() -> None:
    embeddings, labels = batch(3)
    found = counts(embeddings, labels, 0, positives="random", negatives="hard", column="positive")
    check_uniform(found, 0, [2, 4, 6, 8, 10])
    check_uniform(found, 1, [3, 5, 7, 9, 11])


@pytest.mark.parametrize("rule", ["random", "semihard", "violating"])
@pytest.mark.parametrize("kind", ["squared_euclidean", "euclidean"])
def test_negative_is_uniform_over_its_candidates(rule: str, kind: str) -> None:
    embeddings, labels = batch(3)
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


@pytest.mark.parametrize("dimension", [3, 128, 512])
def test_distance_weighted_follows_its_closed_form(dimension: int) -> None:
    # In high dimension random points all lie at sqrt(2), so points of known distance are made by hand.
    embeddings = torch.zeros(9, dimension, dtype=torch.float64)
    cosines = [1 - d**2 / 2 for d in (0.0, 0.0, 1.2, 1.25, 1.3, 1.22, 1.28, 1.39, 1.45)]
    for row, cosine in enumerate(cosines):
        embeddings[row, 0], embeddings[row, 1] = cosine, (1 - cosine**2) ** 0.5
    labels = torch.tensor([0, 0, 1, 1, 1, 1, 1, 1, 1])
    found = counts(embeddings, labels, 3, positives="easy", negatives="distance-weighted", column="negative")
    plain = reference.batch(embeddings.tolist(), labels.tolist(), "euclidean")
    expected = reference.distance_weights([plain.d(0, n) for n in range(2, 9)], dimension, 1.4)
    drawn = [found.get((0, n), 0) for n in range(2, 9)]
    assert sum(drawn) == DRAWS
    likely = [i for i, p in enumerate(expected) if p * DRAWS >= 5]
    unlikely = [i for i in range(7) if i not in likely]
    merged = [drawn[i] for i in likely] + [sum(drawn[i] for i in unlikely)]
    shares = [expected[i] * DRAWS for i in likely] + [sum(expected[i] for i in unlikely) * DRAWS]
    if shares[-1] < 5:  # too few for chi-square: only their rarity is checked
        assert merged.pop() <= 25
        shares.pop()
        shares = [share * sum(merged) / sum(shares) for share in shares]
    if len(merged) > 1:
        assert chisquare(merged, shares).pvalue > 1e-3


def test_distance_weighted_reaches_every_anchor_in_high_dimension() -> None:
    generator = torch.Generator().manual_seed(0)
    rows = torch.nn.functional.normalize(torch.randn(128, 512, generator=generator), dim=1)
    labels = torch.arange(128) % 32
    strategy = trivet.DistanceWeighted(upper_cutoff=None, otherwise="drop")
    mined = trivet.mine(rows, labels, positives="easy", negatives=strategy)
    assert mined.anchor.tolist() == list(range(128))


def test_distance_weighted_cap_flattens_the_weights() -> None:
    embeddings, labels = batch(3)
    strategy = trivet.DistanceWeighted(cap=1e-30, upper_cutoff=None)
    found = counts(embeddings, labels, 4, positives="easy", negatives=strategy, column="negative")
    check_uniform(found, 0, [1, 3, 5, 7, 9, 11])


def test_a_selector_of_its_own_margin_and_fallback() -> None:
    embeddings, labels = batch(3)
    plain = reference.batch(embeddings.tolist(), labels.tolist(), "euclidean")
    (positive,) = reference.chosen_positives(plain, 0, "easy")
    for strategy, rule in (
        (trivet.SemihardNegative(margin=0.6), "semihard"),
        (trivet.ViolatingNegative(margin=0.6), "violating"),
    ):
        found = counts(
            embeddings,
            labels,
            5,
            positives="easy",
            negatives=strategy,
            distance="euclidean",
            margin=0.0,
            column="negative",
        )
        candidates = reference.negative_candidates(plain, 0, positive, rule, 0.6)
        assert len(candidates) > 1
        check_uniform(found, 0, candidates)
    # The farthest positive of all: no negative lies beyond, or below the cutoff, so all are drawn from.
    line = torch.tensor([[0.0], [9.0], [1.0], [2.0], [3.0]], dtype=torch.float64)
    everyone = trivet.SemihardHardestNegative(otherwise="random")
    found = counts(line, torch.tensor([0, 0, 1, 1, 1]), 6, positives="easy", negatives=everyone, column="negative")
    check_uniform(found, 0, [2, 3, 4])
    unit = torch.tensor([[1.0, 0.0], [1.0, 0.0], [-1.0, 0.0], [-1.0, 0.0]], dtype=torch.float64)
    found = counts(
        unit, torch.tensor([0, 0, 1, 1]), 7, positives="easy", negatives="distance-weighted", column="negative"
    )
    check_uniform(found, 0, [2, 3])


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
