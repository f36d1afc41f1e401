"""What holds for every loss on triplets, sets and proxies: blocks, derivatives, degenerate batches, trimming."""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Callable

import pytest
import torch
from tests.every_loss import EVERY_LOSS, PROXIES
from torch import Tensor

import trivet
from trivet.losses import LOSSES as REGISTRY

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
        (random_batch(4)[0].float(), [3, 3, 3, 3]),
        (random_batch(4)[0].float(), [0, 1, 2, 3]),
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


# Options that are numbers at or above 0, of each loss; "margin" of all that take one.
RANGED = {
    "triplet": ["soft_margin"],
    "contrastive": ["positive_margin"],
    "margin": ["beta", "beta_learning_rate", "beta_penalty"],
    "multi-similarity": ["positive_scale", "negative_scale"],
    "nca": ["temperature"],
    "selectively-contrastive": ["hard_weight", "temperature"],
    "n-pair": ["temperature", "l2_weight"],
    "supcon": ["temperature"],
    "circle": ["scale"],
    "approx-ndcg": ["temperature"],
    "unhinged-margin": ["beta"],
} | {name: ["scale", "proxy_learning_rate"] for name in PROXIES}


@pytest.mark.parametrize("name", EVERY_LOSS)
def test_an_option_out_of_its_range_is_named(name: str) -> None:
    options = RANGED.get(name, [])
    if "margin" in inspect.signature(REGISTRY[name]).parameters and name != "arcface":
        options = [*options, "margin"]
    for option in options:
        for value in (-1.0, math.inf, math.nan):
            with pytest.raises(ValueError, match=f"{option} must be a finite number"):
                EVERY_LOSS[name](**{option: value})
    for option in {"scale", "temperature", "positive_scale", "negative_scale"} & set(options):
        with pytest.raises(ValueError, match=f"{option} must be a finite number above 0: got 0"):
            EVERY_LOSS[name](**{option: 0.0})


def test_a_margin_that_is_set_later_is_that_of_the_bands_too() -> None:
    rows, labels = torch.tensor([[0.0], [1.0], [1.3], [5.0]]), torch.tensor([0, 0, 1, 2])
    band = trivet.SemihardNegative(otherwise="drop")
    loss = trivet.TripletLoss(margin=0.1, positives="easy", negatives=band, distance="euclidean")
    assert loss(rows, labels).item() == 0
    loss.margin = 0.5
    assert loss(rows, labels).item() == pytest.approx(1 - 1.3 + 0.5)


@pytest.mark.parametrize("name", EVERY_LOSS)
def test_an_argument_of_a_wrong_type_is_one_sentence_that_names_it(name: str) -> None:
    for option in inspect.signature(REGISTRY[name]).parameters:
        for wrong in [torch.nn.Linear(2, 2), object(), [1.0], {"a": 1}, torch.ones(2), int, "word"]:
            with pytest.raises(ValueError, match=rf"^{option} (must|=) [^\n]+\.$"):
                EVERY_LOSS[name](**{option: wrong})
