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


def close(value: float) -> object:
    return pytest.approx(value, abs=1e-12, rel=0)


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
