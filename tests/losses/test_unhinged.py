"""The unhinged losses: the vectors of the specification of label noise, and the identities of its section 4."""

from __future__ import annotations

from itertools import product
from statistics import fmean

import pytest
import torch
from tests import reference

import trivet

ROWS = 2 * torch.tensor(reference.V8, dtype=torch.float64)  # the length must not matter
LABELS = torch.tensor(reference.V8_LABELS)
PLAIN = reference.batch(reference.V8, reference.V8_LABELS, "euclidean")
PAIRS = {
    1: [(a, p) for a in range(8) for p in PLAIN.positives(a)],
    -1: [(a, n) for a in range(8) for n in PLAIN.negatives(a)],
}


def auxiliary(d: float, t: int) -> float:
    return d if t == 1 else 2 - d


def close(value: float) -> object:
    return pytest.approx(value, abs=1e-12, rel=0)


def test_the_auxiliary_loss_adds_up_to_the_vectors() -> None:
    sums = {t: sum(auxiliary(PLAIN.d(*pair), t) for pair in PAIRS[t]) for t in (1, -1)}
    assert [sums[1], sums[-1], sums[1] + sums[-1]] == close([21.778012493353, 25.493921121821, 47.271933615174])


@pytest.mark.parametrize("d", [0.0, 0.3, 1.2, 1.4, 1.59, 1.7, 2.0])
def test_identities(d: float) -> None:
    assert auxiliary(d, 1) == close(2 - auxiliary(d, -1))
    assert reference.unhinged_pair(d, 1) + reference.unhinged_pair(d, -1) == close(4.4)
    if abs(d - 1.4) <= 0.2:
        hinged = [max(0.0, (d - 1.4) * t + 0.2) for t in (1, -1)]
        assert sum(hinged) == close(0.4)
    for other in (0.0, 0.7, 2.0):
        parts = auxiliary(d, 1) + auxiliary(other, -1) + 0.2
        assert reference.unhinged_triplet(d, other) == close(parts)


@pytest.mark.parametrize("block_size", [None, 1, 3])
def test_vectors(block_size: int | None) -> None:
    triplets = [
        reference.unhinged_triplet(PLAIN.d(a, p), PLAIN.d(a, n))
        for a, p, n in reference.triplets(PLAIN, "all", "all", 0.2)
    ]
    pairs = [reference.unhinged_pair(PLAIN.d(*pair), t) for t in (1, -1) for pair in PAIRS[t]]
    assert [fmean(triplets), fmean(pairs)] == close([2.114691682141, 2.186998814557])
    triplet = trivet.UnhingedTripletLoss(block_size=block_size)
    assert triplet(ROWS, LABELS).item() == close(2.114691682141)
    assert triplet.last.terms == 78
    assert triplet.last.active_fraction == 1
    assert triplet.last.dropped == {"no positive": 1, "no negative": 0, "no match": 0}
    pair = trivet.UnhingedMarginLoss(block_size=block_size)
    assert pair(ROWS, LABELS).item() == close(2.186998814557)
    assert pair.last.terms == 56
    hinged = trivet.MarginLoss(
        beta=1.4, learn_beta=False, positives="all", negatives="all", reduction="mean", block_size=block_size
    ).double()
    hinged.beta.fill_(1.4)
    assert hinged(ROWS, LABELS).item() == close(0.326458656228)
    for share in (0.1, 0.5):
        cut = trivet.UnhingedTripletLoss(block_size=block_size, trim=share)
        assert cut(ROWS, LABELS).item() == close(fmean(reference.trimmed(triplets, share)))
        cut_pairs = trivet.UnhingedMarginLoss(block_size=block_size, trim=share)
        assert cut_pairs(ROWS, LABELS).item() == close(fmean(reference.trimmed(pairs, share)))


def test_the_farthest_positives_can_be_left_out() -> None:
    kept = sorted(PAIRS[1], key=lambda pair: PLAIN.d(*pair))[:13]  # of 18
    expected = [reference.unhinged_pair(PLAIN.d(*pair), 1) for pair in kept]
    expected += [reference.unhinged_pair(PLAIN.d(*pair), -1) for pair in PAIRS[-1]]
    loss = trivet.UnhingedMarginLoss(trim=0.3, trim_positives_only=True)
    assert loss(ROWS, LABELS).item() == close(fmean(expected))


def test_sums_and_terms_agree() -> None:
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(60, 5, dtype=torch.float64, generator=generator)
    labels = torch.randint(6, (60,), generator=generator)
    by_sums = trivet.UnhingedTripletLoss()
    by_terms = trivet.UnhingedTripletLoss(trim=1e-9)  # rounds to no triplet left out
    found = []
    for loss in (by_sums, by_terms):
        leaf = rows.clone().requires_grad_()
        value = loss(leaf, labels)
        found.append((value.detach(), torch.autograd.grad(value, leaf)[0], loss.last.terms))
    assert found[0][2] == found[1][2] > 1000
    torch.testing.assert_close(found[0][:2], found[1][:2], rtol=1e-12, atol=1e-14)


def test_label_noise_scales_the_loss() -> None:
    """Over all labelings of three classes of two, drawn 1-1: one factor of the clean loss, and a constant."""
    generator = torch.Generator().manual_seed(0)
    truth, p = [0, 0, 1, 1, 2, 2], 0.2
    loss = trivet.UnhingedTripletLoss(reduction="sum")
    clean, noisy = [], []
    for _ in range(3):
        rows = torch.randn(6, 3, dtype=torch.float64, generator=generator)
        distances = torch.cdist(*[torch.nn.functional.normalize(rows, dim=1)] * 2)

        def risk(labels: tuple[int, ...], distances: torch.Tensor = distances) -> float:
            # The expectation over one uniform negative for each positive is the mean over all of them.
            same = torch.tensor(labels)[:, None] == torch.tensor(labels)
            positive, negative = same & ~torch.eye(6, dtype=torch.bool), ~same
            if not negative.any():
                return 0.0
            far = distances.where(negative, 0).sum(1) / negative.sum(1)
            return float(((2 + distances - far[:, None] + 0.2) * positive).sum())

        everyone = torch.tensor(truth)
        assert loss(rows, everyone).item() == pytest.approx(4 * risk(tuple(truth)))  # four negatives each
        clean.append(risk(tuple(truth)))
        chance = {True: 1 - p, False: p / 2}
        total = 0.0
        for labels in product(range(3), repeat=6):
            weight = 1.0
            for drawn, true in zip(labels, truth, strict=True):
                weight *= chance[drawn == true]
            total += weight * risk(labels)
        noisy.append(total)
    factors = [(noisy[i] - noisy[0]) / (clean[i] - clean[0]) for i in (1, 2)]
    assert factors == [pytest.approx(0.5243, abs=1e-8)] * 2


def test_options_that_cannot_be_used() -> None:
    with pytest.raises(ValueError, match="beta must not exceed 2"):
        trivet.UnhingedMarginLoss(beta=2.5)
    with pytest.raises(ValueError, match="beta must be a finite number of at least 0"):
        trivet.UnhingedMarginLoss(beta=float("nan"))
    with pytest.raises(ValueError, match="margin must be a finite number of at least 0"):
        trivet.UnhingedTripletLoss(margin=-0.1)
