"""Equal rows are equally far to the last bit: choices at exact ties do not depend on blocks, and beyond is beyond."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from tests.nightly import sampled
from torch import Tensor

from trivet import (
    ContrastiveLoss,
    EmbeddingLoss,
    MarginLoss,
    MultiSimilarityLoss,
    SelectivelyContrastiveLoss,
    TripletLoss,
    mine,
)
from trivet.distances import Products, device
from trivet.losses.set_sums import stable_softplus
from trivet.mining import (
    AllSemihardNegatives,
    EasyNegative,
    HardNegative,
    MultiSimilarityNegatives,
    SemihardHardestNegative,
    SemihardNegative,
    ViolatingNegative,
    distance_block,
)

NEGATIVES = ("hard", "easy", "semihard", "semihard-hardest", "violating")


@pytest.fixture(autouse=True, params=[distance_block.MAX_EXACT, 0], ids=["differences", "products"])
def _both_ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is small is computed by differences, or by products and where rounding matters again, as what is large."""
    monkeypatch.setattr(distance_block, "MAX_EXACT", request.param)


def copies(seed: int, rows: int = 16, dimension: int = 8, times: int = 3) -> tuple[Tensor, Tensor]:
    """Each of `rows / times` points several times, in classes drawn at random."""
    generator = torch.Generator().manual_seed(seed)
    points = torch.randn(rows, dimension, generator=generator)[torch.arange(rows) // times]
    return points, torch.randint(2, (rows,), generator=generator)


def outcome(loss: EmbeddingLoss, embeddings: Tensor, labels: Tensor) -> tuple[float, Tensor]:
    leaf = embeddings.clone().requires_grad_()
    value = loss(leaf, labels)
    value.backward()
    assert leaf.grad is not None
    return value.item(), leaf.grad


def check_same_in_blocks(make: type[EmbeddingLoss], embeddings: Tensor, labels: Tensor, **options: object) -> None:
    losses = [make(**options, block_size=size, generator=torch.Generator().manual_seed(0)) for size in (None, 1, 3)]
    value, gradient = outcome(losses[0], embeddings, labels)
    for loss in losses[1:]:
        again, other = outcome(loss, embeddings, labels)
        assert again == pytest.approx(value, rel=1e-5, abs=1e-7)
        assert (other - gradient).abs().max() <= 1e-5 * max(1.0, gradient.abs().max().item())


@pytest.mark.parametrize("negatives", sampled(NEGATIVES, 2))
def test_choices_among_copies_are_the_same_in_blocks_of_any_size(negatives: str) -> None:
    for seed in range(3):
        embeddings, labels = copies(seed)
        check_same_in_blocks(TripletLoss, embeddings, labels, positives="easy", negatives=negatives)
        check_same_in_blocks(
            TripletLoss, embeddings, labels, positives="hard", negatives=negatives, normalize=True, distance="euclidean"
        )


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (TripletLoss, {"margin": 0.0, "positives": "all", "negatives": "all"}),
        (TripletLoss, {"positives": "all", "negatives": "all-semihard", "margin": 1.0}),
        (TripletLoss, {"positives": "all", "negatives": "all-semihard", "margin": 1.0, "reduction": "max"}),
        (TripletLoss, {"positives": "all", "negatives": "all", "reduction": "max"}),
        (TripletLoss, {"positives": "all", "negatives": "all", "trim": 0.3}),
        (ContrastiveLoss, {"margin": 2.0, "normalize": True, "trim": 0.3}),
        (MarginLoss, {"margin": 0.0, "negatives": "all"}),
        (MultiSimilarityLoss, {"positives": "multi-similarity", "negatives": MultiSimilarityNegatives(epsilon=0.0)}),
        (SelectivelyContrastiveLoss, {"positives": "all", "negatives": "all"}),
    ],
    ids=["hinge", "band", "max of bands", "max", "trim", "trimmed pairs", "margin", "mined sets", "cases"],
)
def test_sets_of_copies_are_the_same_in_blocks_of_any_size(
    make: type[EmbeddingLoss], options: dict[str, object]
) -> None:
    for seed in range(3):
        check_same_in_blocks(make, *copies(seed), **options)


@pytest.mark.parametrize("size", [12, 200])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_lowest_of_equally_far_items_is_chosen(size: int, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(1)
    point = torch.randn(1, 7, generator=generator, dtype=dtype)
    other = torch.randn(size, 7, generator=generator, dtype=dtype) * 0.3
    other[2::3] = point  # of class 1, each as far from any other row
    labels = torch.zeros(size, dtype=torch.int64)
    labels[2::3] = 1
    for rule in (HardNegative(k=2), EasyNegative(k=2)):
        found = mine(other, labels, positives="easy", negatives=rule)
        own = labels[found.anchor] == 0
        assert found.negative[own].reshape(-1, 2).unique(dim=0).tolist() == [[2, 5]]


@pytest.mark.parametrize("size", [15, 210])
def test_a_negative_at_the_distance_of_the_positive_does_not_lie_beyond_it(size: int) -> None:
    rows = torch.randn(size // 3, 5, generator=torch.Generator().manual_seed(2)).repeat(3, 1) + 3
    anchors, labels = torch.arange(size // 3), torch.arange(size) // (size // 3)
    labels[-size // 3 :] = 0  # two copies of each row in class 0, one in class 1
    for rule in (
        SemihardHardestNegative(),
        SemihardNegative(margin=0.5, otherwise="drop"),
        AllSemihardNegatives(margin=0.5),
    ):
        found = mine(rows, labels, positives="hard", negatives=rule)
        exact = (rows[found.anchor] - rows[found.positive]).square().sum(1)
        assert len(found.anchor) == 0 or bool(
            ((rows[found.anchor] - rows[found.negative]).square().sum(1) > exact).all()
        )
    drawn = mine(rows, labels, positives="easy", negatives=ViolatingNegative(margin=0.0))
    assert not set(drawn.anchor.tolist()) & set(anchors.tolist())  # a copy at 0, and none nearer


@pytest.mark.parametrize("margin", [1e-3, 1e6])
def test_a_wide_band_begins_as_sharply_as_a_narrow_one(margin: float) -> None:
    rows = torch.randn(5, 5, generator=torch.Generator().manual_seed(2)).repeat(3, 1) + 3
    labels = torch.tensor([0] * 5 + [1] * 5 + [0] * 5)
    found = mine(rows, labels, positives="hard", negatives=SemihardNegative(margin=margin, otherwise="drop", k=4))
    near, far = ((rows[found.anchor] - rows[each]).square().sum(1) for each in (found.positive, found.negative))
    assert bool((far > near).all())


def test_equal_logistic_terms_are_equal_wherever_they_stand() -> None:
    for number in torch.linspace(-3, 3, 40).tolist():
        assert len({*stable_softplus(torch.full((7, 9), number)).flatten().tolist()}) == 1


def switch(name: str) -> Callable[[str], None]:
    """What sets one of torch's newer switches of precision, such as "mkldnn.matmul"."""
    backend = torch.backends
    for part in name.split(".") if name else []:
        backend = getattr(backend, part)
    return lambda precision: setattr(backend, "fp32_precision", precision)


@pytest.fixture
def _precision() -> Iterator[None]:
    """Torch's switches as they were, after a test that turns them."""
    yield
    torch.set_float32_matmul_precision("highest")
    for name in ("", "mkldnn.matmul", "cuda.matmul") if hasattr(torch.backends, "fp32_precision") else ():
        switch(name)("none")
    assert torch.get_float32_matmul_precision() == "highest"


NEWER = pytest.mark.skipif(not hasattr(torch.backends, "fp32_precision"), reason="switches of torch 2.9")


@NEWER
@pytest.mark.usefixtures("_precision")
@pytest.mark.parametrize("negatives", NEGATIVES)
@pytest.mark.parametrize(("name", "precision"), [("", "tf32"), ("mkldnn.matmul", "bf16"), ("cuda.matmul", "tf32")])
def test_products_of_less_precision_change_no_choice(
    negatives: str, name: str, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some processors then multiply float32 numbers with 8 or 11 bits each; so does this one here."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(60) % 20
    rows = torch.randn(20, 32, generator=generator)[labels] + 0.3 * torch.randn(60, 32, generator=generator)

    def found() -> list[list[int]]:
        generator = torch.Generator().manual_seed(1)
        return [column.tolist() for column in mine(rows, labels, negatives=negatives, generator=generator)]

    def reduced(products: Products, start: int, stop: int) -> Tensor:
        left, right = (products.left[start:stop], products.right)
        if precision == "bf16":
            left, right = left.bfloat16().float(), right.bfloat16().float()
        else:
            left, right = ((x.view(torch.int32) & ~0x1FFF).view(torch.float32) for x in (left, right))
        return (left @ right.T).clamp_min(0)

    before = found()
    switch(name)(precision)
    if name != "cuda.matmul":
        monkeypatch.setattr(Products, "squared_distances", reduced)
    assert found() == before


@pytest.mark.usefixtures("_precision")
def test_the_bound_on_rounding_is_that_of_the_device() -> None:
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    assert (device.product_rounding(cpu), device.product_rounding(gpu)) == (0, 0)
    torch.set_float32_matmul_precision("high")
    assert (device.product_rounding(cpu), device.product_rounding(gpu)) == (2**-9, 2**-9)
    torch.set_float32_matmul_precision("medium")
    assert device.product_rounding(cpu) == 2**-6
    if hasattr(torch.backends, "fp32_precision"):
        switch("cuda.matmul")("ieee")
        assert (device.product_rounding(cpu), device.product_rounding(gpu)) == (2**-6, 0)
        switch("mkldnn.matmul")("ieee")
        switch("cuda.matmul")("tf32")
        assert (device.product_rounding(cpu), device.product_rounding(gpu)) == (0, 2**-9)
