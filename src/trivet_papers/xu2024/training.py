"""Small networks trained on digits: the experiments of the paper, as far as a minute goes."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import torch
from scipy.spatial.distance import cdist
from torch import Tensor, nn

from trivet.collapse.isometry import Reduction
from trivet.runtime.arrays import Floats, Integers
from trivet_papers.xu2024 import isometry


@dataclass(frozen=True)
class SpreadMeasurement:
    """Embeddings of held-out digits."""

    embeddings: Floats = field(compare=False)  # (597, d)
    labels: Integers = field(compare=False)  # (597,) the digits
    diameter: float
    mean_distance: float
    recall: float  # at 1


@dataclass(frozen=True)
class Training:
    """A small network before and after training."""

    before: SpreadMeasurement
    after: SpreadMeasurement
    first_loss: float  # of the hardest triplet of the first batch

    @property
    def shrinkage(self) -> float:
        """The mean distance after over that before; collapsed below 0.05."""
        return self.after.mean_distance / self.before.mean_distance

    @property
    def forecast(self) -> float:
        """The diameter equation (17) promises."""
        return isometry.diameter_bound(self.before.diameter, self.first_loss)


def train_digits(
    num_classes: int,
    samples_per_class: int,
    d: int,
    *,
    seed: int,
    reduction: Reduction = "max",
    noise: float = 0.0,
    margin: float = 0.0,
    steps: int = 800,
) -> Training:
    """Train two convolutions and a linear map on 1200 digits of 8 x 8 pixels, and measure the 597 others.

    Adam at 0.001 on batch-hard hinges of plain distances, batches of some samples of some classes; 1 to 5 seconds.

    Args:
        num_classes: of a batch, 2 to 10.
        samples_per_class: in a batch, 1 to 80.
        d: dimension of the embedding, >= 1.
        reduction: "max" trains on the hardest triplet of a batch alone, "mean" on the hardest one of each anchor.
        noise: share of the training labels that are replaced by a random digit.
    """
    from sklearn.datasets import load_digits  # here: it is slow to load

    digits = load_digits()
    order = np.random.RandomState(0).permutation(len(digits.target))
    pixels, labels = digits.data[order] / 16, digits.target[order]
    pixels = (pixels - pixels[:1200].mean()) / pixels[:1200].std()
    images = torch.tensor(pixels, dtype=torch.float32).reshape(-1, 1, 8, 8)
    random = np.random.RandomState(seed)
    trained = labels[:1200].copy()
    if noise:
        replaced = random.rand(1200) < noise
        trained[replaced] = random.randint(0, 10, replaced.sum())
    members = [np.flatnonzero(trained == c) for c in range(10)]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = nn.Sequential(
            *(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Flatten(), nn.Linear(128, d)),
        )
    adam = torch.optim.Adam(network.parameters(), lr=1e-3)
    classes = torch.arange(num_classes).repeat_interleave(samples_per_class)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # networks this small gain nothing from more
    try:
        before = _spread(network, images[1200:], labels[1200:])
        first = math.nan
        for step in range(steps):
            chosen = random.permutation(10)[:num_classes]
            rows = np.concatenate([random.permutation(members[c])[:samples_per_class] for c in chosen])
            hinges = batch_hard_hinges(network(images[rows]), classes, margin)
            if step == 0:
                first = float(hinges.detach().max())
            adam.zero_grad()
            torch.autograd.backward(hinges.max() if reduction == "max" else hinges.mean())
            adam.step()
        return Training(before, _spread(network, images[1200:], labels[1200:]), first)
    finally:
        torch.set_num_threads(threads)


def batch_hard_hinges(z: Tensor, classes: Tensor, margin: float) -> Tensor:
    """Distances of the farthest positive and nearest negative of each anchor `(N,)`."""
    same = classes[:, None] == classes
    with torch.no_grad():
        # No matrix product here: it loses the digits of a collapsed embedding.
        distances = torch.cdist(z, z, compute_mode="donot_use_mm_for_euclid_dist")
        positive = distances.masked_fill(~same, -1).argmax(1)
        negative = distances.masked_fill(same, torch.inf).argmin(1)
    to_positive, to_negative = (
        ((z - z[other]).square().sum(1) + isometry.SMOOTH).sqrt() for other in (positive, negative)
    )
    return (to_positive - to_negative + margin).relu()


def _spread(network: nn.Module, images: Tensor, labels: Integers) -> SpreadMeasurement:
    with torch.no_grad():
        embeddings = network(images).double().numpy()
    distances = cdist(embeddings, embeddings)
    mean, most = distances.sum() / (len(labels) * (len(labels) - 1)), distances.max()
    np.fill_diagonal(distances, np.inf)
    hits = labels[distances.argmin(axis=1)] == labels
    return SpreadMeasurement(embeddings, labels, float(most), float(mean), float(hits.mean()))
