"""Embeddings of known fate on the features of pretrained networks: what is made of them, and what is known of each.

Images go through EfficientNet-Lite0 (ImageNet), texts through all-MiniLM-L6-v2. Of each data set half of the classes
are trained on. The items of the other classes are cut in two: one half is diagnosed, the other, which the diagnosis
never sees, says what became of the embedding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import nn

from readers import Array, cifar_archive, cub_archive, descend, encoded, idx, picture, pooled, texts
from trivet.losses import TripletLoss
from trivet.metrics import retrieve
from trivet.samplers import PKBatches

MOST = 4000  # items of the classes that were not trained on
CLEAR = 0.10  # of recall@1 that was lost on the other half, from which it must be told
SLIGHT = 0.01  # from which, if it is more than two standard errors, it must not be called healthy


@dataclass(frozen=True, eq=False)
class RealFate:
    """An embedding beside its reference, and what is known of it.

    Attributes:
        name: what was done.
        fate: "good", "slightly worse", "worse" or "chance".
        lost: of recall@1 against the reference on the half that is not diagnosed; None where the fate is by making.
        embeddings, reference, labels: of the half that is diagnosed.
    """

    data: str
    name: str
    fate: str
    lost: float | None
    embeddings: Array
    reference: Array
    labels: Array


def fates(folder: Path, weights: Path, encoder: Path) -> Iterator[RealFate]:
    """All cases of all data sets; features are kept in the folder."""
    for data in IMAGES | TEXTS:
        features, labels = features_of(data, folder, weights, encoder)
        yield from of_data(data, features / np.linalg.norm(features, axis=1, keepdims=True), labels)


def features_of(data: str, folder: Path, weights: Path, encoder: Path) -> tuple[Array, Array]:
    """The features `(N, d)` of a data set and its labels; kept in the folder."""
    path = folder / f"{data}.npz"
    if not path.exists():
        features, labels = TEXTS[data](encoder) if data in TEXTS else IMAGES[data](weights)
        folder.mkdir(parents=True, exist_ok=True)
        np.savez(path, embeddings=features, labels=labels)
    with np.load(path) as held:
        return held["embeddings"].astype(np.float32), held["labels"]


def of_data(data: str, features: Array, labels: Array) -> Iterator[RealFate]:
    """Eight cases: four that should be good, and four that should not."""
    random = np.random.default_rng(0)
    labels = np.unique(labels, return_inverse=True)[1]
    seen = np.isin(labels, random.permutation(labels.max() + 1)[: (labels.max() + 1) // 2])
    trained_on, others = (random.permutation(np.flatnonzero(part)) for part in (seen, ~seen))
    middle = len(trained_on) // 2
    held_out, trained_on = trained_on[:middle][: MOST // 2], trained_on[middle:]
    asked, truth = np.sort(others[:MOST][::2]), np.sort(others[:MOST][1::2])

    def heads(name: str, head: nn.Module, on: Array, **options: Any) -> Iterator[RealFate]:
        train(head, features[trained_on], on, **options)
        yield judged(name, apply(head, features), asked, truth)

    def judged(name: str, embeddings: Array, rows: Array, other: Array) -> RealFate:
        own, before = (
            retrieve(one[other], labels[other], measures=("recall@1",), distance="cosine").values[:, 0]
            for one in (embeddings, features)
        )
        fate, lost = fate_of(before - own), float((before - own).mean())
        return RealFate(data, name, fate, lost, embeddings[rows], features[rows], labels[rows])

    def made(name: str, fate: str, embeddings: Array) -> RealFate:
        return RealFate(data, name, fate, None, embeddings, features[asked], labels[asked])

    torch.manual_seed(0)
    width = features.shape[1]
    own = labels[trained_on]
    jitter = random.standard_normal(features.shape).astype(np.float32) / np.sqrt(width)
    yield made("features with a little noise", "good", (features + 0.02 * jitter)[asked])
    mean = features[trained_on].mean(axis=0)
    axes = np.linalg.svd(features[trained_on][:4000] - mean, full_matrices=False)[2][:128]
    yield judged("128 principal axes of the training items", (features - mean) @ axes.T, asked, truth)
    gentle = nn.Linear(width, width)
    nn.init.eye_(gentle.weight)
    nn.init.zeros_(gentle.bias)
    yield from heads("layer that begins as the identity, 30 steps of rate 1e-4", gentle, own, steps=30, rate=1e-4)
    head = nn.Linear(width, 256)
    train(head, features[trained_on], own, steps=300, rate=1e-3)
    half = len(held_out) // 2
    embedded = apply(head, features)
    yield judged("linear head, other items of the classes trained on", embedded, held_out[:half], held_out[half:])
    deep = nn.Sequential(nn.Linear(width, 256), nn.ReLU(), nn.Linear(256, 64))
    yield from heads("two layers, 64 dimensions, 600 steps, classes not trained on", deep, own, steps=600, rate=1e-3)
    wild = nn.Sequential(nn.Linear(width, 128), nn.ReLU(), nn.Linear(128, 32))
    yield from heads("two layers, 32 dimensions, rate 1", wild, own, steps=300, rate=1.0)
    astray = nn.Sequential(nn.Linear(width, 128), nn.ReLU(), nn.Linear(128, 32))
    yield from heads("trained on permuted labels", astray, random.permutation(own), steps=600, rate=1e-2)
    if data in ("cub", "clinc150"):
        yield made("rows in another order than the labels", "chance", features[random.permutation(asked)])
    else:
        yield made("random vectors", "chance", random.standard_normal((len(asked), 64)))


def fate_of(lost: Array) -> str:
    """What became of an embedding that lost so much of recall@1 on each item that is not diagnosed."""
    error = float(lost.std() / np.sqrt(len(lost)))
    if lost.mean() >= CLEAR:
        return "worse"
    return "slightly worse" if lost.mean() >= max(SLIGHT, 2 * error) else "good"


def train(head: nn.Module, features: Array, labels: Array, *, steps: int, rate: float, seed: int = 0) -> None:
    """Triplets with semi-hard negatives, on batches of at most 16 classes with 8 items each."""
    classes = np.unique(labels, return_inverse=True)[1]
    batches = PKBatches(classes, num_classes=min(16, int(classes.max()) + 1), samples_per_class=8, seed=seed)
    loss, optimizer = TripletLoss(negatives="semihard", normalize=True), torch.optim.Adam(head.parameters(), lr=rate)
    descend(head, optimizer, loss, batches, features, classes, steps)


def apply(head: nn.Module, features: Array) -> Array:
    with torch.no_grad():
        return np.concatenate([head(part).numpy() for part in torch.from_numpy(features).split(2048)])


def cub(weights: Path) -> tuple[Array, Array]:
    """The first fifty classes of CUB-200-2011 at 128 pixels."""
    archive, names = cub_archive()
    return pooled(weights, [picture(archive, name) for name in names], 128), of_folders(names)


def cifar10(weights: Path) -> tuple[Array, Array]:
    """20,000 training images of CIFAR-10 at 96 pixels."""
    archive = cifar_archive()
    names = sorted(name for name in archive.namelist() if "/train/" in name and name.endswith(".jpg"))
    return pooled(weights, [picture(archive, name) for name in names], 96), of_folders(names)


def of_folders(names: list[str]) -> Array:
    return np.array([Path(name).parent.name for name in names])


def fashion_mnist(weights: Path) -> tuple[Array, Array]:
    """The test images of Fashion-MNIST at 64 pixels."""
    images, labels = idx("fashion-mnist")
    return pooled(weights, [lambda one=one: Image.fromarray(one).convert("RGB") for one in images], 64), labels


def of_texts(data: str) -> Callable[[Path], tuple[Array, Array]]:
    """The training texts of a data set."""

    def made(encoder: Path) -> tuple[Array, Array]:
        rows = texts(data)
        return encoded(encoder, [text for text, _ in rows]), np.array([intent for _, intent in rows])

    return made


IMAGES = {"cub": cub, "cifar10": cifar10, "fashion-mnist": fashion_mnist}
TEXTS = {data: of_texts(data) for data in ("clinc150", "banking77")}
