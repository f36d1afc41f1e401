"""What holds for every loss on triplets, sets and proxies: blocks, derivatives, degenerate batches, trimming."""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Callable
from statistics import fmean

import numpy as np
import pytest
import torch
from tests import reference
from tests.every_loss import EVERY_LOSS, PROXIES
from torch import Tensor

import trivet

BAND = {"positives": "random", "negatives": "semihard"}
ALL = {"positives": "all", "negatives": "all"}
MINED = {"positives": "multi-similarity", "negatives": "multi-similarity"}
PAIRED = {"positives": "all", "negatives": "random"}
LOSSES: dict[str, Callable[..., trivet.EmbeddingLoss]] = EVERY_LOSS | {
    "contrastive": lambda **o: trivet.ContrastiveLoss(margin=20.0, **o),  # above most distances
    "triplet, pn": lambda **o: trivet.TripletLoss(variant="pn", **{**ALL, **o}),
    "soft triplet": lambda **o: trivet.TripletLoss(soft=True, **{**ALL, **o}),
    "soft triplet, hard": lambda **o: trivet.TripletLoss(soft=True, positives="hard", negatives="hard", **o),
    "soft triplet, pn": lambda **o: trivet.TripletLoss(soft=True, variant="pn", **{**ALL, **o}),
    "nca, all": lambda **o: trivet.NCATripletLoss(temperature=0.5, **ALL, **o),
    "nca, band": lambda **o: trivet.NCATripletLoss(**BAND, **o),
    "second-order, all": lambda **o: trivet.SecondOrderTripletLoss(**ALL, **o),
    "second-order, mined": lambda **o: trivet.SecondOrderTripletLoss(**MINED, **o),
    "selectively contrastive, all": lambda **o: trivet.SelectivelyContrastiveLoss(hard_weight=0.7, **ALL, **o),
    "n-pair, all": lambda **o: trivet.NPairLoss(positives="all", l2_weight=0.1, temperature=2.0, **o),
    "n-pair, unit rows": lambda **o: trivet.NPairLoss(normalize=True, temperature=0.1, **MINED, **o),
    "unhinged triplet, mined": lambda **o: trivet.UnhingedTripletLoss(**MINED, **o),
    "unhinged triplet, 1-1": lambda **o: trivet.UnhingedTripletLoss(**PAIRED, **o),
    "unhinged margin, 1-1": lambda **o: trivet.UnhingedMarginLoss(**PAIRED, **o),
}


def random_batch(size: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(size)
    rows = torch.randn(size, 3, dtype=torch.float64, generator=generator)
    return rows, torch.randint(4, (size,), generator=generator)


def gradients(loss: trivet.EmbeddingLoss, embeddings: Tensor, labels: Tensor, block_size: int | None) -> list[Tensor]:
    loss = copy.copy(loss)
    loss.block_size, loss.key = block_size, torch.tensor([7, 0])
    leaf = embeddings.clone().requires_grad_()
    value = loss(leaf, labels)
    return [value.detach(), *torch.autograd.grad(value, [leaf, *loss.parameters()])]


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("trim", [0.0, 0.4])
def test_blocks_change_neither_value_nor_gradient(name: str, trim: float) -> None:
    embeddings, labels = random_batch(14)
    loss = LOSSES[name](trim=trim).double()
    whole = gradients(loss, embeddings, labels, None)
    assert whole[1].any()
    for block_size in (1, 3):
        for a, b in zip(whole, gradients(loss, embeddings, labels, block_size), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("name", [name for name in LOSSES if name != "circle"])  # whose weights are constants in it
@pytest.mark.parametrize("block_size", [None, 4])
def test_gradient_is_the_derivative(name: str, block_size: int | None) -> None:
    embeddings, labels = random_batch(9)
    loss = LOSSES[name](block_size=block_size).double()

    def value(x: Tensor, *rest: Tensor) -> Tensor:
        loss.key = torch.tensor([3, 0])
        if name in PROXIES:
            return torch.func.functional_call(loss, {"proxies": rest[0]}, (x, labels))
        return loss(x, labels, references=rest[0], reference_labels=torch.tensor([0, 1, 2, 3, 3, 2, 1, 0]))

    others = torch.randn(len(loss.proxies) if name in PROXIES else 8, 3, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(value, (embeddings.requires_grad_(), others), fast_mode=True)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("trim", [0.0, 0.4])
@pytest.mark.parametrize(
    ("embeddings", "labels"),
    [
        (torch.zeros(0, 3), []),
        (torch.ones(1, 3), [0]),
        (torch.eye(3)[:2], [0, 1]),
        (torch.eye(3)[:2], [1, 1]),
        (torch.randn(4, 3), [3, 3, 3, 3]),
        (torch.randn(4, 3), [0, 1, 2, 3]),
        (torch.ones(4, 3), [0, 0, 1, 1]),
        (100 * torch.eye(3).repeat(2, 1), [0, 1, 2, 0, 1, 2]),
    ],
    ids=["empty", "one item", "two classes", "two items", "one class", "all single", "all equal", "large"],
)
def test_degenerate_batches_have_a_finite_gradient(
    name: str, trim: float, embeddings: Tensor, labels: list[int]
) -> None:
    leaf = embeddings.clone().requires_grad_()
    loss = LOSSES[name](block_size=3, trim=trim)
    value = loss(leaf, torch.tensor(labels, dtype=torch.int64))
    value.backward()
    assert torch.isfinite(value)
    assert torch.isfinite(leaf.grad).all()
    if loss.last.terms == 0:
        assert value.item() == pytest.approx(
            0.1 * leaf.detach().square().sum() / max(1, len(leaf)) if "n-pair, all" in name else 0
        )


@pytest.mark.parametrize("name", [name for name in LOSSES if name not in PROXIES])
def test_no_references(name: str) -> None:
    leaf = torch.tensor(reference.V8[:3]).requires_grad_()
    loss = LOSSES[name]()
    loss(
        leaf, torch.tensor([0, 1, 2]), references=torch.zeros(0, 2), reference_labels=torch.zeros(0, dtype=torch.int64)
    ).backward()
    assert loss.last.terms == 0
    assert torch.isfinite(leaf.grad).all()


@pytest.mark.parametrize("name", LOSSES)
def test_half_precision_is_computed_in_single(name: str) -> None:
    embeddings, labels = random_batch(12)
    low = embeddings.to(torch.bfloat16)
    loss = LOSSES[name]()
    exact = gradients(loss, low.float(), labels, None)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = gradients(loss, low, labels, None)
    assert found[0].dtype == torch.float32
    assert found[0].item() == exact[0].item()
    assert (found[1].float() - exact[1]).norm() / exact[1].norm() < 1e-2


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("shift", [0.25, 0.4])
def test_trimming_leaves_out_the_largest_terms(name: str, shift: float) -> None:
    embeddings, labels = random_batch(14)
    whole, trimmed = (LOSSES[name](trim=trim, generator=torch.Generator().manual_seed(1)) for trim in (0.0, shift))
    full, part = whole(embeddings, labels).item(), trimmed(embeddings, labels).item()
    assert part < full
    assert trimmed.last.terms == pytest.approx((1 - shift) * whole.last.terms, abs=1)


@pytest.mark.parametrize("name", LOSSES)
def test_a_direction_of_descent(name: str) -> None:
    embeddings, labels = random_batch(12)
    loss = LOSSES[name]()
    value, slope = gradients(loss, embeddings, labels, None)[:2]
    assert gradients(loss, embeddings - 1e-5 * slope, labels, None)[0] < value


@pytest.mark.parametrize("name", EVERY_LOSS)
def test_an_array_is_named_for_what_it_is(name: str) -> None:
    rows, labels = np.ones((4, 3), np.float32), np.array([0, 0, 1, 1])
    loss = EVERY_LOSS[name]()
    for embeddings in (rows, rows.tolist()):
        kind = type(embeddings).__name__
        with pytest.raises(
            ValueError, match=rf"^embeddings must be a tensor: got {kind}; convert them with torch\.as_"
        ):
            loss(embeddings, labels)
    with pytest.raises(ValueError, match=r"^labels must be a tensor: got ndarray; convert them with torch\.as_tensor"):
        loss(torch.from_numpy(rows), labels)
    assert loss.last is None


@pytest.mark.parametrize("name", EVERY_LOSS)
def test_a_loss_shows_its_options(name: str) -> None:
    loss = EVERY_LOSS[name]()
    shown = repr(loss)
    assert shown.startswith(f"{type(loss).__name__}(")
    assert "\n" not in shown
    for key, argument in inspect.signature(type(loss)).parameters.items():
        if argument.default is not None:
            assert f"{key}=" in shown, key
    again = copy.copy(loss)
    again.trim = 0.375
    assert "trim=0.375" in repr(again)


def test_what_a_loss_shows_of_rules_and_boundaries() -> None:
    assert "negatives=HardNegative(k=3)" in repr(trivet.TripletLoss(negatives=trivet.HardNegative(k=3)))
    assert "beta=1.25" in repr(trivet.MarginLoss(beta=1.25))
    assert "beta=<98 numbers>, num_classes=98" in repr(trivet.MarginLoss(num_classes=98))


def test_a_record_shows_its_numbers() -> None:
    loss = trivet.TripletLoss(margin=1.0, distance="euclidean", positives="all", negatives="all")
    loss(torch.tensor([[0.0, 0.0], [3.0, 4.0], [6.0, 8.0]]), torch.tensor([7, 7, 1]))
    assert repr(loss.last) == (
        "StepStats(anchors=3, terms=2, active_fraction=0.5, hard_fraction=0, mean_to_positive=5, "
        "mean_to_negative=7.5, dropped={'no positive': 1, 'no negative': 0, 'no match': 0})"
    )


ROWS, LABELS = torch.tensor(reference.V8, dtype=torch.float64), torch.tensor(reference.V8_LABELS)
SQUARED, PLAIN = (
    reference.batch(reference.V8, reference.V8_LABELS, kind) for kind in ("squared_euclidean", "euclidean")
)
# The class, and the value of a triplet by its similarities and distances.
TRIPLETS: dict[str, tuple[Callable[..., trivet.EmbeddingLoss], Callable[[int, int, int], float]]] = {
    "soft": (
        lambda **o: trivet.TripletLoss(soft=True, **o),
        lambda a, p, n: reference.log_one_plus_exp(SQUARED.d(a, p) - SQUARED.d(a, n)),
    ),
    "nca": (trivet.NCATripletLoss, lambda a, p, n: reference.nca(PLAIN.s(a, p), PLAIN.s(a, n))),
    "second-order": (
        trivet.SecondOrderTripletLoss,
        lambda a, p, n: reference.second_order(PLAIN.s(a, p), PLAIN.s(a, n)),
    ),
    "selectively contrastive": (
        trivet.SelectivelyContrastiveLoss,
        lambda a, p, n: reference.selectively_contrastive(PLAIN.s(a, p), PLAIN.s(a, n)),
    ),
    "unhinged triplet": (
        trivet.UnhingedTripletLoss,
        lambda a, p, n: reference.unhinged_triplet(PLAIN.d(a, p), PLAIN.d(a, n)),
    ),
}


@pytest.mark.parametrize("name", TRIPLETS)
@pytest.mark.parametrize("block_size", [None, 3])
@pytest.mark.parametrize("negatives", ["hard", "all"])
def test_the_farthest_positives_can_be_left_out(name: str, block_size: int | None, negatives: str) -> None:
    make, value = TRIPLETS[name]
    triplets = reference.triplets(PLAIN, "all", negatives, 0.2)
    nearest = sorted(triplets, key=lambda triplet: PLAIN.d(*triplet[:2]))[: math.ceil(0.7 * len(triplets))]
    loss = make(positives="all", negatives=negatives, trim=0.3, trim_positives_only=True, block_size=block_size)
    assert loss(ROWS, LABELS).item() == pytest.approx(fmean(value(*triplet) for triplet in nearest), rel=1e-12)


@pytest.mark.parametrize("name", TRIPLETS)
def test_index_triplets_take_the_place_of_the_strategy(name: str) -> None:
    make, value = TRIPLETS[name]
    triplets = [(0, 6, 7), (1, 0, 2), (4, 2, 6), (4, 5, 3)]
    loss = make()
    found = loss(ROWS, LABELS, indices=tuple(torch.tensor(triplets).T))
    assert found.item() == pytest.approx(fmean(value(*triplet) for triplet in triplets), rel=1e-12)


@pytest.mark.parametrize("name", TRIPLETS)
def test_disjoint_triplets(name: str) -> None:
    make, value = TRIPLETS[name]
    used: set[int] = set()
    expected = []
    for a in range(8):  # anchor after anchor, the nearest of what is left
        positives, negatives = ([j for j in js if j not in used] for js in (PLAIN.positives(a), PLAIN.negatives(a)))
        if a not in used and positives and negatives:
            triplet = (a, *(min(js, key=lambda j: (PLAIN.d(a, j), j)) for js in (positives, negatives)))
            used |= set(triplet)
            expected.append(value(*triplet))
    loss = make(positives="easy", negatives="hard", disjoint=True)
    assert loss(ROWS, LABELS).item() == pytest.approx(fmean(expected), rel=1e-12)
    assert loss.last.terms == len(expected) == 2
