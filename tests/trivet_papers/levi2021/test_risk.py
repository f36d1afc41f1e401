from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import product

import numpy as np
import pytest
import torch

from trivet.losses import MarginLoss, TripletLoss
from trivet_papers.levi2021 import easy_risk, risk

SETTINGS = [(2, 2, 0.8), (2, 3, 0.55), (3, 2, 0.45), (3, 1, 0.9), (4, 1, 0.7)]

LEVELS = (0.55, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)


def labelings(num_classes: int, size: int, p: float) -> Iterator[tuple[tuple[int, ...], float]]:
    """Every labelling of the samples, sorted by class, and its probability."""
    own = [c for c in range(num_classes) for _ in range(size)]
    for labels in product(range(num_classes), repeat=len(own)):
        yield labels, math.prod(p if a == b else (1 - p) / (num_classes - 1) for a, b in zip(labels, own, strict=True))


def points(count: int, dim: int = 2, seed: int = 0) -> torch.Tensor:
    return torch.randn(count, dim, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def squared(embeddings: torch.Tensor) -> torch.Tensor:
    return (embeddings[:, None] - embeddings).square().sum(-1)


def triplet_objective(d: list[list[float]], labels: tuple[int, ...], margin: float) -> float:
    """The paper's sum over all triplets, p = a among them, / n^3."""
    n = range(len(d))
    return (
        sum(
            max(0.0, d[i][j] - d[i][k] + margin) for i in n for j in n for k in n if labels[i] == labels[j] != labels[k]
        )
        / len(d) ** 3
    )


def margin_objective(d: list[list[float]], beta: list[float], labels: tuple[int, ...], margin: float) -> float:
    n = range(len(d))
    total = 0.0
    for i in n:
        for j in n:
            gap = d[i][j] - beta[i]
            total += max(0.0, margin + gap if labels[i] == labels[j] else margin - gap)
    return total / len(d) ** 2


def easy_losses(
    d: list[list[float]], beta: float, labels: tuple[int, ...], margin: float
) -> tuple[list[float], list[float]]:
    """The triplet and margin losses of every anchor with its nearest positive and all its negatives."""
    triplet, pair = [], []
    for i, row in enumerate(d):
        others = [j for j in range(len(d)) if j != i]
        positives = sorted((row[j], j) for j in others if labels[j] == labels[i])[:1]
        negatives = [j for j in others if labels[j] != labels[i]]
        triplet.append(sum(max(0.0, row[j] - row[k] + margin) for _, j in positives for k in negatives))
        pull = sum(max(0.0, row[j] - beta + margin) for _, j in positives)
        pair.append(pull + sum(max(0.0, beta - row[k] + margin) for k in negatives))
    return triplet, pair


@pytest.mark.parametrize(("num_classes", "size", "p"), SETTINGS)
def test_expected_losses_are_the_means_over_all_labelings(num_classes: int, size: int, p: float) -> None:
    probabilities = risk.label_probabilities(num_classes, size, p)
    n = num_classes * size
    d = squared(points(n))
    beta = points(n, 1, seed=1)[:, 0].abs()
    drawn = list(labelings(num_classes, size, p))
    expected = sum(weight * triplet_objective(d.tolist(), labels, 0.7) for labels, weight in drawn)
    assert risk.expected_triplet_loss(d, probabilities, margin=0.7).item() == pytest.approx(expected, rel=1e-12)
    expected = sum(weight * margin_objective(d.tolist(), beta.tolist(), labels, 0.3) for labels, weight in drawn)
    assert risk.expected_margin_loss(d, beta, probabilities, margin=0.3).item() == pytest.approx(expected, rel=1e-12)
    triplet, pair = torch.zeros(n, dtype=torch.float64), torch.zeros(n, dtype=torch.float64)
    for labels, weight in drawn:
        one, other = easy_losses(d.tolist(), 0.9, labels, 0.3)
        triplet += weight * torch.tensor(one, dtype=torch.float64)
        pair += weight * torch.tensor(other, dtype=torch.float64)
    torch.testing.assert_close(
        easy_risk.expected_easy_triplet_losses(d, probabilities, margin=0.3), triplet, rtol=1e-12, atol=0
    )
    torch.testing.assert_close(
        easy_risk.expected_easy_margin_losses(d, 0.9, probabilities, margin=0.3), pair, rtol=1e-12, atol=0
    )
    each = torch.full((n,), 0.9, dtype=torch.float64)
    torch.testing.assert_close(
        easy_risk.expected_easy_margin_losses(d, each, probabilities, margin=0.3), pair, rtol=1e-12, atol=0
    )


def test_easy_expectations_are_the_means_of_the_losses() -> None:
    embeddings = points(6, 3)
    d = squared(embeddings)
    triplet = TripletLoss(margin=0.4, positives="easy", negatives="all", reduction="sum")
    pair = MarginLoss(
        margin=0.4,
        beta=1.0,
        distance="squared_euclidean",
        positives="easy",
        negatives="all",
        reduction="anchors",
        normalize=False,
    )
    all_triplets = TripletLoss(margin=0.4, positives="all", negatives="all", reduction="objective")
    for labels, _ in list(labelings(3, 2, 0.7))[1::9]:
        classes = torch.tensor(labels)
        certain = torch.nn.functional.one_hot(classes, 3).double()
        easy = easy_risk.expected_easy_triplet_losses(d, certain, margin=0.4).sum().item()
        assert triplet(embeddings, classes).item() == pytest.approx(easy, rel=1e-10)
        easy = easy_risk.expected_easy_margin_losses(d, 1.0, certain, margin=0.4).mean().item()
        assert pair(embeddings, classes).item() == pytest.approx(easy, rel=1e-6)
        value = risk.expected_triplet_loss(d, certain, margin=0.4).item()
        assert all_triplets(embeddings, classes).item() == pytest.approx(value, rel=1e-10)


@pytest.mark.parametrize(("num_classes", "size", "p"), SETTINGS)
def test_weights_are_probabilities_of_the_drawn_labels(num_classes: int, size: int, p: float) -> None:
    probabilities = risk.label_probabilities(num_classes, size, p)
    n = range(len(probabilities))
    match, weights = risk.match_probabilities(probabilities), risk.triplet_weights(probabilities)
    apart = risk.triplet_weights(probabilities, self_terms="excluded")
    copies = risk.triplet_weights(probabilities, self_terms="independent")
    drawn = list(labelings(num_classes, size, p))
    for i, j in product(n, n):
        assert match[i, j].item() == pytest.approx(sum(w for y, w in drawn if y[i] == y[j]), rel=1e-12)
        for k in n:
            expected = sum(w for y, w in drawn if y[i] == y[j] != y[k])
            assert weights[i, j, k].item() == pytest.approx(expected, abs=1e-14)
            assert apart[i, j, k].item() == pytest.approx(expected if len({i, j, k}) == 3 else 0, abs=1e-14)
            rows = [probabilities[place].tolist() for place in (i, j, k)]
            fresh = sum(a * b * (1 - c) for a, b, c in zip(*rows, strict=True))
            assert copies[i, j, k].item() == pytest.approx(fresh, abs=1e-14)
    if size > 1:
        q = (1 - p) / (num_classes - 1)
        assert match[0, 1].item() == pytest.approx(p * p + (num_classes - 1) * q * q, rel=1e-12)
        assert (match[0, 1] - match[0, -1]).item() == pytest.approx((p - q) ** 2, rel=1e-9)


@pytest.mark.parametrize("self_terms", ["excluded", "independent"])
def test_pairs_of_a_sample_with_itself(self_terms: risk.SelfTerms) -> None:
    """Two samples of two classes, p = 1/2."""
    probabilities = risk.label_probabilities(2, 1, 0.5)
    d = torch.tensor([[0.0, 1.0], [1.0, 0.0]], dtype=torch.float64)
    both = risk.expected_margin_loss(d, 1.0, probabilities, margin=0.2, self_terms=self_terms).item()
    off_diagonal = 2 * 0.2 / 4
    diagonal = 2 * 0.5 * 1.2 / 4 if self_terms == "independent" else 0
    assert both == pytest.approx(off_diagonal + diagonal, rel=1e-12)
    sure = risk.expected_margin_loss(d, 0.1, probabilities, margin=0.2).item()
    assert sure == pytest.approx((2 * 0.1 + 2 * 0.5 * 1.1) / 4, rel=1e-12)
    without = risk.expected_margin_loss(d, 0.1, probabilities, margin=0.2, self_terms="excluded").item()
    assert without == pytest.approx(2 * 0.5 * 1.1 / 4, rel=1e-12)


def test_leading_dimensions_and_gradient() -> None:
    probabilities = risk.label_probabilities(2, 3, 0.8)
    several = torch.stack([squared(points(6, seed=seed)) for seed in range(3)])
    beta = points(18, 1, seed=9).reshape(3, 6)
    values = risk.expected_triplet_loss(several, probabilities, margin=0.5)
    pairs = risk.expected_margin_loss(several, beta, probabilities, margin=0.5)
    for place in range(3):
        assert values[place] == risk.expected_triplet_loss(several[place], probabilities, margin=0.5)
        assert pairs[place] == risk.expected_margin_loss(several[place], beta[place], probabilities, margin=0.5)
    embeddings = points(6).requires_grad_()

    def value(rows: torch.Tensor) -> torch.Tensor:
        return risk.expected_triplet_loss(squared(rows), probabilities, margin=0.5)

    assert torch.autograd.gradcheck(value, (embeddings,))


def test_nothing_falls_below_the_bounds() -> None:
    for seed, (num_classes, size, p) in enumerate(SETTINGS):
        probabilities = risk.label_probabilities(num_classes, size, p)
        n = num_classes * size
        beta = points(n, 1, seed=seed)[:, 0]
        for scale in (0.1, 0.5, 1.0):
            d = squared(scale * points(n, 3, seed=seed))
            free = risk.expected_triplet_loss(d, probabilities, margin=0.3, self_terms="excluded")
            assert free >= risk.triplet_lower_bound(probabilities, margin=0.3) - 1e-15
            assert risk.expected_margin_loss(d, beta, probabilities, margin=0.3) >= risk.margin_lower_bound(
                probabilities, margin=0.3
            )


@pytest.mark.parametrize(("pull", "push"), [(0.5, 0.2), (0.2, 0.5), (0.3, 0.3), (0.4, 0.0), (0.0, 0.4), (0.0, 0.0)])
def test_opposed_hinges_on_a_grid(pull: float, push: float) -> None:
    grid = np.linspace(-2, 2, 401)
    values = np.array([pull * max(0, u + 0.5) + push * max(0, 0.5 - u) for u in grid.tolist()])
    np.testing.assert_allclose(risk.opposed_hinges(grid, pull, push, margin=0.5), values, rtol=0, atol=1e-15)
    found = risk.opposed_hinges_minimum(pull, push, margin=0.5)
    best = grid[values <= values.min() + 1e-12]
    assert found.value == pytest.approx(values.min(), abs=1e-12)
    assert (max(found.low, -2), min(found.high, 2)) == pytest.approx((best[0], best[-1]), abs=1e-9)


def test_easy_positives_by_hand() -> None:
    """Anchor sure of class 0; the others are of it with probabilities 1/2, 1/4, 1."""
    others = torch.tensor([[0.5, 0.5], [0.25, 0.75], [1.0, 0.0]])
    anchor = torch.tensor([1.0, 0.0])
    torch.testing.assert_close(easy_risk.easy_positive_probabilities(anchor, others), torch.tensor([0.5, 0.125, 0.375]))
    expected = torch.tensor([[0, 0.375, 0], [0.125, 0, 0], [0.375, 0.375, 0]])
    torch.testing.assert_close(easy_risk.easy_triplet_weights(anchor, others), expected)
    none = torch.empty(0, 2)
    assert easy_risk.easy_positive_probabilities(anchor, none).shape == (0,)
    assert easy_risk.easy_triplet_weights(anchor, none).shape == (0, 0)


def test_the_anchor_is_not_among_its_positives() -> None:
    probabilities = risk.label_probabilities(2, 4, 0.8)
    d = risk.class_distances(2, 4, within=0, across=1)
    for losses in (
        easy_risk.expected_easy_triplet_losses(d, probabilities, margin=1),
        easy_risk.expected_easy_margin_losses(d, 0.7, probabilities, margin=1),
    ):
        torch.testing.assert_close(losses, losses[:1].expand(8), rtol=1e-12, atol=0)
    other = squared(points(8))
    changed = other.clone().fill_diagonal_(7)
    one, two = (easy_risk.expected_easy_triplet_losses(rows, probabilities, margin=1) for rows in (other, changed))
    assert torch.equal(one, two)


def halves(num_classes: int, size: int, margin: float) -> tuple[torch.Tensor, torch.Tensor]:
    collapsed = risk.class_distances(num_classes, size, within=0, across=margin)
    split = collapsed.clone()
    split[: size // 2, size // 2 : size] = split[size // 2 : size, : size // 2] = margin
    return collapsed, split


@pytest.mark.parametrize(
    ("num_classes", "size", "p"), [(2, 2, 0.8), (2, 6, 0.7), (3, 4, 0.8), (5, 2, 0.6), (4, 4, 1.0)]
)
def test_split_losses_are_those_of_the_two_maps(num_classes: int, size: int, p: float) -> None:
    probabilities = risk.label_probabilities(num_classes, size, p)
    maps = halves(num_classes, size, 0.5)
    triplet = easy_risk.collapsed_and_split_triplet_losses(num_classes, [size], p, margin=0.5)
    for d, closed in zip(maps, triplet, strict=True):
        losses = easy_risk.expected_easy_triplet_losses(d, probabilities, margin=0.5)
        assert losses[0].item() == pytest.approx(closed[0], rel=1e-10, abs=1e-12)
    for beta in (0.0, 0.3, 0.7, 1.5):
        pair = easy_risk.collapsed_and_split_margin_losses(num_classes, [size], p, beta=beta, margin=0.5)
        for d, closed in zip(maps, pair, strict=True):
            losses = easy_risk.expected_easy_margin_losses(d, beta, probabilities, margin=0.5)
            assert losses[0].item() == pytest.approx(closed[0], rel=1e-10, abs=1e-12)
    one, other = (easy_risk.expected_easy_triplet_losses(d, probabilities, margin=0.5) for d in maps)
    torch.testing.assert_close(one[size:], other[size:], rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(("num_classes", "size", "p"), [(2, 2, 0.8), (2, 4, 0.7), (3, 2, 0.45), (4, 2, 0.6)])
def test_split_losses_over_all_positives(num_classes: int, size: int, p: float) -> None:
    """The first anchor's sums over all its positives and negatives, mean over every labelling."""
    margin, beta = 0.5, 0.7
    triplet = easy_risk.collapsed_and_split_triplet_losses(num_classes, [size], p, margin=margin, positives="all")
    pair = easy_risk.collapsed_and_split_margin_losses(
        num_classes, [size], p, beta=beta, margin=margin, positives="all"
    )
    for place, distances in enumerate(halves(num_classes, size, margin)):
        d = distances[0].tolist()
        triplets = pairs = 0.0
        for labels, weight in labelings(num_classes, size, p):
            others = range(1, len(labels))
            positives = [j for j in others if labels[j] == labels[0]]
            negatives = [k for k in others if labels[k] != labels[0]]
            triplets += weight * sum(max(0, d[j] - d[k] + margin) for j in positives for k in negatives)
            pairs += weight * sum(max(0, d[j] - beta + margin) for j in positives)
            pairs += weight * sum(max(0, beta - d[k] + margin) for k in negatives)
        assert triplet[place][0] == pytest.approx(triplets, rel=1e-12)
        assert pair[place][0] == pytest.approx(pairs, rel=1e-12)


@pytest.mark.parametrize("p", [0.6, 0.8])
def test_pull_push_ratio_is_that_of_the_worst_order(p: float) -> None:
    q = 1 - p

    def ratio(nearer: tuple[bool, ...], own: bool) -> float:
        pull = 0.0
        for label, match in ((p, p), (q, q)):  # the anchor shows the label of its class, or the other
            unmatched = math.prod(1 - match if same else match for same in nearer)
            pull += label * unmatched * (match if own else 1 - match)
        return pull / (2 * p * q if own else p * p + q * q)

    for count in range(8):
        assert (count >= easy_risk.push_threshold(p)) == (easy_risk.pull_push_ratio(p, count) < 1)
        orders = list(product([True, False], repeat=count))
        assert easy_risk.pull_push_ratio(p, count) == pytest.approx(
            max(ratio(one, own) for one in orders for own in (True, False))
        )
        same = max(ratio((True,) * count, own) for own in (True, False))
        assert easy_risk.pull_push_ratio(p, count, nearer="same-class") == pytest.approx(same)


@pytest.mark.parametrize(
    ("p", "rank", "steps"),
    [
        (0.6, 1, 1),
        (0.6, 1, 2),
        (0.6, 3, 1),
        (0.6, 3, 2),
        (0.7, 1, 3),
        (0.7, 2, 4),
        (0.8, 2, 3),
        (0.7, 3, 2),
        (0.95, 1, 5),
    ],
)
def test_pair_ratio_is_that_of_the_worst_order(p: float, rank: int, steps: int) -> None:
    def ratio(shares: tuple[bool, ...]) -> float:
        """Weights of the (t + j)-th as positive and t-th as negative, over the reverse, by all labels of the pair."""
        far = near = 0.0
        for label, match in ((p, p), (1 - p, 1 - p)):
            own = [match if same else 1 - match for same in shares]
            before = label * math.prod(1 - each for each in own[: rank - 1])
            near += before * own[rank - 1] * (1 - own[-1])
            far += before * math.prod(1 - each for each in own[rank - 1 : -1]) * own[-1]
        return far / near

    worst = max(ratio(shares) for shares in product([True, False], repeat=rank + steps))
    assert (worst < 1 - 1e-12) == (steps >= easy_risk.pair_push_threshold(p, rank))
    assert easy_risk.pair_pull_push_ratio(p, rank, steps) == pytest.approx(worst, rel=1e-12)
    alike = ratio((True,) * (rank + steps))
    assert easy_risk.pair_pull_push_ratio(p, rank, steps, nearer="same-class") == pytest.approx(alike, rel=1e-12)


def test_pair_thresholds_far_down_the_order() -> None:
    """Where no float holds the chance that none of the nearer ones matches."""
    assert easy_risk.pair_push_threshold(0.6, 8000, nearer="same-class") == 2
    assert math.isfinite(easy_risk.pair_pull_push_ratio(0.8, 5000, 3, nearer="same-class"))


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: risk.label_probabilities(1, 2, 0.8), "num_classes must be at least 2"),
        (lambda: risk.label_probabilities(2, 0, 0.8), "samples_per_class must"),
        (lambda: risk.label_probabilities(2, 2, 1.1), r"p must lie in \[0, 1\]"),
        (lambda: risk.label_probabilities(2, 2, math.nan), r"p must lie in \[0, 1\]"),
        (lambda: risk.triplet_weights(torch.eye(2), self_terms="sure"), "self_terms = 'sure' is not known"),
        (lambda: risk.expected_triplet_loss(torch.zeros(2, 2), torch.eye(2), margin=0), "margin must be"),
        (lambda: risk.collapse_turn_limit(4, 0.25), "p must differ from 1 / num_classes"),
        (
            lambda: risk.affine_dimension(torch.tensor([[0.0, 1, 9], [1, 0, 1], [9, 1, 0]]).double()),
            "squared distances",
        ),
        (lambda: risk.margin_noise_limit(1), "num_classes"),
        (lambda: easy_risk.collapsed_and_split_margin_losses(2, [2], 0.8, beta=-1), "beta must"),
        (lambda: easy_risk.triplet_split_threshold(2, 0.8, largest=1), "largest must"),
        (lambda: easy_risk.push_threshold(0.5), r"p must lie in \(1/2, 1\)"),
        (lambda: easy_risk.push_threshold(0.8, nearer="sorted"), "nearer = 'sorted' is not known"),
        (lambda: easy_risk.pair_push_threshold(0.8, 0), "rank must"),
        (lambda: easy_risk.pair_pull_push_ratio(0.8, 1, 0), "steps must"),
        (
            lambda: easy_risk.collapsed_and_split_triplet_losses(2, [2], 0.8, positives="hard"),
            "positives = 'hard' is not known",
        ),
        (
            lambda: easy_risk.collapsed_and_split_margin_losses(2, [2], 0.8, beta=1, positives="no"),
            "positives = 'no' is not",
        ),
    ],
)
def test_bad_input_is_a_stated_error(call: Callable[[], object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        call()
