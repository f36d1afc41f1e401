"""Losses that read how relevant items are to each other."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
import torch
from tests import reference
from tests.reference import Rule
from torch import Tensor

import trivet
from trivet.mining import distance_block

TAGS = trivet.Tags([["a"], ["a", "b"], ["b", "c", "d"], [], ["d"], ["a", "b", "c"]], match=0.5)
LOSSES: dict[str, Callable[..., trivet.EmbeddingLoss]] = {
    "contrastive": partial(trivet.ContrastiveLoss, margin=8.0, positive_margin=0.1, relevance_margin=True),
    "multi-similarity": partial(trivet.MultiSimilarityLoss, relevance_margin=True),
    "approximate NDCG": trivet.ApproxNDCGLoss,
}


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("negatives", ["all", "hard"])
@pytest.mark.parametrize("block_size", [None, 2])
def test_the_gradient_is_the_derivative(name: str, negatives: str, block_size: int | None) -> None:
    rows = torch.randn(9, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    others = torch.randn(6, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).requires_grad_()
    loss = LOSSES[name](positives="all", negatives=negatives, block_size=block_size)

    def value(x: Tensor, y: Tensor) -> Tensor:
        return loss(x, TAGS[torch.arange(9) % 6], references=y, reference_labels=TAGS)

    assert torch.autograd.gradcheck(value, (rows, others), fast_mode=True)


@pytest.mark.parametrize("threshold", [0.25, 0.75])
def test_negatives_of_higher_grades_have_a_higher_threshold(threshold: float) -> None:
    graded = [[1.0, 0.75, 0.25], [0.75, 1.0, 0.5], [0.25, 0.5, 1.0]]
    rows, labels = reference.V8, reference.V8_LABELS
    problem = replace(reference.batch(rows, labels, "cosine"), grade=lambda u, v: graded[u][v])
    terms = reference.multi_similarity_terms(
        problem, Rule("all"), Rule("all"), 2.0, 50.0, threshold, skip_if_any_empty=False, relevance_margin=True
    )
    options = {"positives": "all", "negatives": "all", "reduction": "sum", "relevance_margin": True}
    loss = trivet.MultiSimilarityLoss(threshold=threshold, **options)
    value = loss(torch.tensor(rows, dtype=torch.float64), trivet.Grades(graded, positive=1.0)[labels])
    assert value.item() == pytest.approx(reference.reduced(terms, "sum", 8, 1), rel=1e-12)


@pytest.mark.parametrize("distance", ["squared_euclidean", "euclidean"])
def test_which_side_of_the_margin_does_not_depend_on_rounding(
    distance: trivet.distances.Distance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Integers far from 0: each distance is exact by differences, and off by products of float32."""
    monkeypatch.setattr(distance_block, "MAX_EXACT", 0)
    generator = torch.Generator().manual_seed(0)
    rows = torch.randint(4, (24, 2), generator=generator) + 3001.0
    rows[::2] *= -1  # far from the mean, too
    grades = trivet.Grades([[1.0, 0.0, 0.5], [0.0, 1.0, 0.75], [0.5, 0.75, 1.0]], positive=0.75)
    relation = grades[torch.arange(24) % 3]
    loss = trivet.ContrastiveLoss(margin=4.0, relevance_margin=True, distance=distance, reduction="sum")
    squared = (rows[:, None] - rows).square().sum(dim=2)
    far = squared if distance == "squared_euclidean" else squared.sqrt()
    pairs = ~torch.eye(24, dtype=torch.bool)
    relevance = relation.relevance(relation.items, relation.items).float()
    beyond = far - 4 * (1 - relevance)
    hinges = torch.where(relevance >= 0.75, beyond, -beyond).relu()[pairs]
    for block_size in (None, 5):
        loss.block_size = block_size
        assert loss(rows, relation).item() == pytest.approx(hinges.sum().item(), rel=1e-6)
        assert loss.last.active_fraction == pytest.approx((hinges > 0).double().mean().item(), rel=1e-12)


@pytest.mark.parametrize("name", LOSSES)
def test_what_relevance_must_be(name: str) -> None:
    loss, rows = LOSSES[name](positives="all", negatives="all"), torch.eye(3)
    grades = trivet.Grades([[3.0, 2.0, 0.0], [2.0, 3.0, 0.0], [0.0, 0.0, 3.0]], positive=2.0)
    with pytest.raises(ValueError, match=r"relevance must lie in \[0, 1\] for this loss: got 0 to 3; divide"):
        loss(rows, grades)
    pairs = [torch.tensor([i]) for i in (0, 1, 0, 2)]
    with pytest.raises(ValueError, match="labels must be given to a loss that reads how relevant items are"):
        loss(rows, None, indices=pairs)
    assert loss(rows, torch.tensor([0, 0, 1]), indices=pairs) > 0


def test_a_threshold_above_every_similarity() -> None:
    with pytest.raises(ValueError, match="threshold must not exceed 1 with relevance_margin"):
        trivet.MultiSimilarityLoss(threshold=1.5, relevance_margin=True)


def test_the_approximate_ndcg_of_a_batch_with_ties() -> None:
    """Every two rows of V8 several times, so that positives tie with positives and with negatives."""
    graded = [[1.0, 0.75, 0.25], [0.75, 0.5, 0.5], [0.25, 0.5, 1.0]]
    rows, labels = reference.V8[:4] * 3, [0, 1, 2, 0, 2, 1, 1, 2, 0, 1, 0, 0]
    related: list[list[bool | None]] = [[True, True, False], [True, True, None], [False, None, True]]
    problem = replace(
        reference.batch(rows, labels, "cosine"),
        related=lambda u, v: related[u][v],
        grade=lambda u, v: graded[u][v],
    )
    rule = Rule("all")
    terms = reference.set_terms(
        problem, rule, rule, lambda *chosen: reference.approx_ndcg(problem, *chosen, 0.25), both=False
    )

    relation = Listed(torch.tensor(graded), related)[labels]
    for block_size in (None, 1, 5):
        loss = trivet.ApproxNDCGLoss(temperature=0.25, reduction="sum", block_size=block_size)
        value = loss(torch.tensor(rows, dtype=torch.float64), relation)
        assert value.item() == pytest.approx(reference.reduced(terms, "sum", 12, 1), rel=1e-12)
    assert loss.last.terms == 12


class Listed(trivet.Relation):
    """Three classes with grades that do not decide what is positive, and what is ignored."""

    def __init__(self, grades: Tensor, related: list[list[bool | None]]) -> None:
        self.grades, self.related, self.items = grades, related, torch.arange(3)

    def positive(self, anchors: Tensor, others: Tensor) -> Tensor:
        return torch.tensor([[self.related[u][v] is True for v in others.tolist()] for u in anchors.tolist()])

    def ignored(self, anchors: Tensor, others: Tensor) -> Tensor:
        return torch.tensor([[self.related[u][v] is None for v in others.tolist()] for u in anchors.tolist()])

    def relevance(self, anchors: Tensor, others: Tensor) -> Tensor:
        return self.grades[anchors][:, others].double()


def test_at_a_low_temperature_it_is_the_ndcg() -> None:
    """And positives of no relevance are no positives."""
    rows = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.6, 0.8], [0.0, 1.0]], dtype=torch.float64)
    grades = [[1.0, 0.25, 0.0, 0.75], [0.25, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0], [0.75, 0.0, 0.0, 1.0]]
    loss = trivet.ApproxNDCGLoss(temperature=0.001, reduction="sum")
    graded = trivet.Grades(grades, positive=0.25)
    value = loss(rows[:1], graded[[0]], references=rows[1:], reference_labels=graded[[1, 2, 3]])
    best = 0.75 + 0.25 / math.log2(3)
    assert value.item() == pytest.approx(1 - (0.25 + 0.75 / math.log2(4)) / best, rel=1e-9)
    everything = trivet.Grades(grades, positive=0.0)
    assert loss(rows[2:3], everything[[2]], references=rows, reference_labels=everything).item() == 0
    assert loss.last.terms == 0
