"""A batch in one block can be differentiated twice, and compiled into one graph."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from tests.nightly import sampled

import trivet

LOSSES: dict[str, Callable[[], trivet.EmbeddingLoss]] = {
    "easy x hard": lambda: trivet.TripletLoss(positives="easy", negatives="hard", distance="euclidean"),
    "random x semihard": lambda: trivet.TripletLoss(positives="random", negatives="semihard"),
    "all triplets": lambda: trivet.TripletLoss(positives="all", negatives="all", margin=1.0),
    "all soft triplets": lambda: trivet.TripletLoss(positives="all", negatives="all", soft=True),
    "contrastive": lambda: trivet.ContrastiveLoss(margin=1.0, distance="euclidean"),
    "trimmed": lambda: trivet.ContrastiveLoss(margin=1.0, distance="euclidean", trim=0.3),
    "margin": lambda: trivet.MarginLoss(num_classes=4),
    "multi-similarity": lambda: trivet.MultiSimilarityLoss(threshold=0.5, negative_scale=5.0),
    "second-order": lambda: trivet.SecondOrderTripletLoss(),
    "n-pair": lambda: trivet.NPairLoss(),
    "supcon": lambda: trivet.SupConLoss(),
    "supcon of triplets": lambda: trivet.SupConLoss(positives="all", negatives=trivet.mining.HardNegative(k=2)),
    "approximate NDCG": lambda: trivet.ApproxNDCGLoss(temperature=0.5),
    "proxies": lambda: trivet.ProxyNCALoss(num_classes=4, embedding_dim=3),
    "centres": lambda: trivet.ArcFaceLoss(num_classes=4, embedding_dim=3, scale=4.0, sub_centers=2),
    "proxies as anchors": lambda: trivet.ProxyAnchorLoss(num_classes=4, embedding_dim=3, scale=4.0),
}


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    rows = torch.randn(12, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return torch.nn.functional.normalize(rows, dim=1), torch.arange(12) % 4


@pytest.mark.parametrize("name", LOSSES)
def test_second_derivative(name: str) -> None:
    rows, labels = batch()
    loss = LOSSES[name]().double()
    key = loss.key.clone()

    def value(rows: torch.Tensor) -> torch.Tensor:
        loss.key.copy_(key)
        return loss(rows, labels)

    assert torch.autograd.gradgradcheck(value, rows.requires_grad_(), fast_mode=True)
    (slope,) = torch.autograd.grad(value(rows), rows, create_graph=True)
    assert slope.requires_grad


def test_several_blocks_say_that_they_have_no_second_derivative() -> None:
    rows, labels = batch()
    loss = trivet.TripletLoss(positives="easy", negatives="hard", block_size=5, normalize=True)
    with pytest.raises(RuntimeError, match="set block_size to the number of anchors"):
        torch.autograd.grad(loss(rows.requires_grad_(), labels), rows, create_graph=True)


@pytest.mark.parametrize(
    "name",
    sampled(
        [
            "easy x hard",
            "random x semihard",
            "all triplets",
            "margin",
            "multi-similarity",
            "trimmed",
            "supcon",
            "supcon of triplets",
            "centres",
            "proxies as anchors",
            "contrastive",
            "n-pair",
            "proxies",
        ],
        4,
    ),
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")  # of torch's own compiler
def test_one_graph_that_is_compiled_once(name: str) -> None:
    rows, labels = batch()
    loss = LOSSES[name]().double()
    key = loss.key.clone()
    torch._dynamo.reset()
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    for turn in range(2):
        leaf = (rows * (1 + 1e-3 * turn)).requires_grad_()
        loss.key.copy_(key)
        expected = loss(leaf, labels)
        (slope,) = torch.autograd.grad(expected, leaf)
        loss.key.copy_(key)
        found = compiled(leaf, labels)
        assert found.item() == pytest.approx(expected.item(), rel=1e-12)
        torch.testing.assert_close(torch.autograd.grad(found, leaf)[0], slope, rtol=1e-10, atol=1e-12)
    assert loss.key[1] == key[1] + (1 if loss.strategy.random else 0)
    with torch.compiler.set_stance("fail_on_recompile"):
        for others in ([0] * 6 + [1] * 3 + [2, 2, 3], [3] * 12, list(range(4)) * 3):
            leaf = rows.clone().requires_grad_()
            (slope,) = torch.autograd.grad(compiled(leaf, torch.tensor(others)), leaf)
            assert slope.isfinite().all()
        rows[3, 1] = torch.nan
        with pytest.raises(RuntimeError, match="embeddings must be finite"):
            compiled(rows.requires_grad_(), labels)
