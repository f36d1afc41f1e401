"""A step launches few kernels, and on a device that must be waited for it reads nothing back once it has begun."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tests.launches import Launches
from tests.nightly import sampled
from tests.programs import Programs
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

import trivet
from trivet.distances import device

EXTREMES = {"positives": "easy", "negatives": "hard"}
HARDEST = {"positives": "hard", "negatives": "hard"}
ALL = {"positives": "all", "negatives": "all"}
TRIPLET = {"margin": 0.2, "distance": "euclidean", "normalize": True}

LOSSES: dict[str, Callable[[], trivet.EmbeddingLoss]] = {
    "EPHN": lambda: trivet.TripletLoss(**TRIPLET, **EXTREMES),
    "batch-hard": lambda: trivet.TripletLoss(**TRIPLET, **HARDEST),
    "EPSHN": lambda: trivet.TripletLoss(**TRIPLET, positives="easy", negatives="semihard-hardest"),
    "semi-hard": lambda: trivet.TripletLoss(**TRIPLET, positives="all", negatives="semihard"),
    "all semi-hard": lambda: trivet.TripletLoss(**TRIPLET, positives="all", negatives="all-semihard"),
    "easy x semi-hard": lambda: trivet.TripletLoss(**TRIPLET, positives="easy", negatives="semihard"),
    "all triplets": lambda: trivet.TripletLoss(**TRIPLET, **ALL),
    "violating": lambda: trivet.TripletLoss(**TRIPLET, positives="all", negatives="violating"),
    "random triplets": lambda: trivet.TripletLoss(**TRIPLET, positives="random", negatives="random"),
    "EPHN, trimmed": lambda: trivet.TripletLoss(**TRIPLET, **EXTREMES, trim=0.1),
    "hardest triplet": lambda: trivet.TripletLoss(**TRIPLET, **HARDEST, reduction="max"),
    "EPHN, NCA": lambda: trivet.NCATripletLoss(**EXTREMES),
    "EPHN, second-order": lambda: trivet.SecondOrderTripletLoss(**EXTREMES),
    "EPHN, selectively contrastive": lambda: trivet.SelectivelyContrastiveLoss(**EXTREMES),
    "unhinged triplets": lambda: trivet.UnhingedTripletLoss(**ALL),
    "distance-weighted margin": lambda: trivet.MarginLoss(positives="all", negatives="distance-weighted"),
    "margin of classes": lambda: trivet.MarginLoss(**ALL, num_classes=32),
    "unhinged margin": lambda: trivet.UnhingedMarginLoss(**ALL),
    "contrastive, trimmed": lambda: trivet.ContrastiveLoss(margin=1.5, normalize=True, trim=0.1),
    "contrastive": lambda: trivet.ContrastiveLoss(margin=1.5, distance="euclidean", normalize=True, reduction="sum"),
    "multi-similarity": lambda: trivet.MultiSimilarityLoss(threshold=0.5),
    "n-pair": lambda: trivet.NPairLoss(l2_weight=0.1),
    "n-pair of unit rows": lambda: trivet.NPairLoss(positives="all", normalize=True, temperature=0.1),
    "supcon": lambda: trivet.SupConLoss(),
    "circle": lambda: trivet.CircleLoss(),
    "proxy-NCA": lambda: trivet.ProxyNCALoss(num_classes=32, embedding_dim=128),
    "ArcFace": lambda: trivet.ArcFaceLoss(num_classes=32, embedding_dim=128, sub_centers=3, scale=8.0),
    "CosFace": lambda: trivet.CosFaceLoss(num_classes=32, embedding_dim=128, scale=8.0),
    "proxy-anchor": lambda: trivet.ProxyAnchorLoss(num_classes=32, embedding_dim=128),
}

# Without parameters, so nobody moves them to the device; these draw.
UNMOVED = ["semi-hard", "easy x semi-hard", "random triplets"]

WATCHED = {"the monitor, small batches": (64, 128), "the monitor, large batches": (1024, 128)}
"""Between two of its looks."""


MOST = {  # forward and backward, of a batch of 64 and of 128 with 4 of each class
    "EPHN": (45, 70),
    "batch-hard": (45, 70),
    "EPSHN": (65, 105),
    "semi-hard": (70, 95),
    "all semi-hard": (90, 115),
    "easy x semi-hard": (65, 95),
    "all triplets": (60, 80),
    "violating": (60, 90),
    "random triplets": (45, 45),
    "EPHN, trimmed": (70, 90),
    "hardest triplet": (65, 90),
    "EPHN, NCA": (45, 70),
    "EPHN, second-order": (55, 80),
    "EPHN, selectively contrastive": (55, 80),
    "unhinged triplets": (60, 75),
    "distance-weighted margin": (95, 95),
    "margin of classes": (80, 100),
    "unhinged margin": (60, 70),
    "contrastive, trimmed": (85, 95),
    "contrastive": (60, 80),
    "multi-similarity": (95, 125),
    "n-pair": (90, 90),
    "n-pair of unit rows": (80, 80),
    "proxy-NCA": (75, 75),
    "supcon": (95, 95),
    "circle": (110, 110),
    "ArcFace": (120, 120),
    "CosFace": (90, 90),
    "proxy-anchor": (135, 115),
}


def batch(size: int = 64) -> tuple[Tensor, Tensor]:
    rows = torch.randn(size, 128, generator=torch.Generator().manual_seed(0))
    return torch.nn.functional.normalize(rows, dim=1).requires_grad_(), torch.arange(size) % (size // 4)


def step(loss: trivet.EmbeddingLoss, embeddings: Tensor, labels: Tensor) -> None:
    torch.autograd.grad(loss(embeddings, labels), [embeddings, *loss.parameters()])


def test_a_small_batch_launches_few_kernels() -> None:
    """What a GPU pays, and at these sizes a CPU: forward and backward, views and reshapes not counted."""
    found = {}
    for name, make in LOSSES.items():
        loss, counts = make(), []
        for size in (64, 128):
            embeddings, labels = batch(size)
            with Launches() as mode:
                step(loss, embeddings, labels)
            counts.append(mode.total)
        found[name] = counts
    more = {
        name: counts for name, counts in found.items() if any(a > b for a, b in zip(counts, MOST[name], strict=True))
    }
    assert more == {}


def as_elsewhere(patch: pytest.MonkeyPatch) -> None:
    """Take what lies in this machine's memory for something that a device would have to be asked for."""
    patch.setattr(device, "read_freely", lambda values: False)


@pytest.mark.parametrize("name", LOSSES)
def test_nothing_is_read_back_once_a_step_has_begun(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    loss = LOSSES[name]()
    as_elsewhere(monkeypatch)
    reads: list[int] = []

    def read(numbers: Tensor) -> list[float]:  # norms, sizes of classes, labels of proxies
        reads.append(len(numbers))
        return [1.0, 1.0] if numbers.is_floating_point() else [4.0, 4.0]

    monkeypatch.setattr(device, "read", read)
    with FakeTensorMode(
        allow_non_fake_inputs=True
    ) as mode:  # fails on .item(), .tolist(), nonzero and all sizes by data
        embeddings, labels = (mode.from_tensor(x) for x in batch())
        step(loss, embeddings, labels)
    assert len(reads) <= 4


@pytest.mark.parametrize("each", sampled([3, 1], 2))  # losses
def test_nothing_is_brought_back_from_a_device(each: int, programs: Programs, tmp_path: Path) -> None:
    """Of a device of its own type, where also a copy to the CPU is seen."""
    run = programs.run("tests.pretended_device_worker:main", each, folder=tmp_path)
    assert run.returncode == 0, run.stderr.decode()
    found = json.loads(run.stdout)
    assert list(found) == [*[*LOSSES, *(f"{name}, not moved" for name in UNMOVED)][::each], *WATCHED]
    assert {name: brought for name, (_, brought) in found.items() if brought} == {}
    assert max(len(reads) for reads, _ in found.values()) <= 4
    assert {number for reads, _ in found.values() for number in reads} == {2}


@pytest.mark.parametrize("copies", [1, 3])
@pytest.mark.parametrize("name", LOSSES)
def test_it_is_the_same_step_on_every_device(name: str, copies: int, monkeypatch: pytest.MonkeyPatch) -> None:
    embeddings, labels = batch(32)
    embeddings = embeddings.detach()[torch.arange(32) // copies].requires_grad_()
    labels = labels[torch.randperm(32, generator=torch.Generator().manual_seed(1))]
    found = []
    for elsewhere in (False, True):
        torch.manual_seed(0)
        loss = LOSSES[name]()
        if elsewhere:
            as_elsewhere(monkeypatch)
        value = loss(embeddings, labels)
        assert loss.last is not None
        found.append((value.detach(), *torch.autograd.grad(value, [embeddings]), torch.tensor(loss.last.terms)))
    torch.testing.assert_close(found[0], found[1], rtol=1e-4, atol=1e-6)
