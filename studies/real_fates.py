"""Embeddings of known fate on the features of pretrained networks: what is made of them, and what is known of each.

Images go through EfficientNet-Lite0 (ImageNet), texts through all-MiniLM-L6-v2. Of each data set half of the classes
are trained on. The items of the other classes are cut in two: one half is diagnosed, the other, which the diagnosis
never sees, says what became of the embedding.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import nn

from trivet.datasets.download import find_root
from trivet.losses import TripletLoss
from trivet.metrics import retrieve
from trivet.samplers import PKBatches

Array = np.ndarray[Any, np.dtype[Any]]

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
    for step in range(steps):
        rows = batches.batch(*divmod(step, batches.steps_per_epoch))
        value = loss(head(torch.from_numpy(features[rows])), torch.from_numpy(classes[rows]))
        optimizer.zero_grad()
        value.backward()
        optimizer.step()


def apply(head: nn.Module, features: Array) -> Array:
    with torch.no_grad():
        return np.concatenate([head(part).numpy() for part in torch.from_numpy(features).split(2048)])


def network(weights: Path) -> nn.Module:
    import timm
    from safetensors.torch import load_file

    net: nn.Module = timm.create_model("tf_efficientnet_lite0")
    net.load_state_dict(load_file(weights))
    return net.eval().to(memory_format=torch.channels_last)


def pooled(weights: Path, images: list[Callable[[], Image.Image]], side: int) -> Array:
    """The mean of the last features `(N, 1280)` of images scaled to `side`."""
    net, rows = network(weights), []
    for start in range(0, len(images), 64):
        scaled = [image().resize((side, side), Image.Resampling.BICUBIC) for image in images[start : start + 64]]
        pixels = torch.from_numpy(np.stack([np.asarray(one) for one in scaled])).permute(0, 3, 1, 2)
        batch = ((pixels.float() / 255) - 0.5) / 0.5
        with torch.inference_mode():
            rows.append(net.forward_features(batch.contiguous(memory_format=torch.channels_last)).mean((2, 3)).numpy())
    return np.concatenate(rows)


def _picture(archive: zipfile.ZipFile, name: str) -> Callable[[], Image.Image]:
    """The middle square of an image in an archive."""

    def read() -> Image.Image:
        image = Image.open(io.BytesIO(archive.read(name))).convert("RGB")
        side = min(image.size)
        left, top = ((length - side) // 2 for length in image.size)
        return image.crop((left, top, left + side, top + side))

    return read


def cub(weights: Path) -> tuple[Array, Array]:
    """The first fifty classes of CUB-200-2011 at 128 pixels."""
    archive = zipfile.ZipFile(find_root(None) / "cub" / "CUB_200_2011_first50_128px.zip")
    names = sorted(name for name in archive.namelist() if name.endswith(".jpg"))
    labels = np.array([Path(name).parent.name for name in names])
    return pooled(weights, [_picture(archive, name) for name in names], 128), labels


def cifar10(weights: Path) -> tuple[Array, Array]:
    """20,000 training images of CIFAR-10 at 96 pixels."""
    archive = zipfile.ZipFile(find_root(None) / "cifar-n" / "cifar10_jpg_train20k_test10k.zip")
    names = sorted(name for name in archive.namelist() if "/train/" in name and name.endswith(".jpg"))
    labels = np.array([Path(name).parent.name for name in names])
    return pooled(weights, [_picture(archive, name) for name in names], 96), labels


def _idx(name: str) -> tuple[Array, Array]:
    root = find_root(None) / name
    with gzip.open(root / "t10k-images-idx3-ubyte.gz") as file:
        images = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 28, 28)
    with gzip.open(root / "t10k-labels-idx1-ubyte.gz") as file:
        return images, np.frombuffer(file.read(), np.uint8, offset=8)


def fashion_mnist(weights: Path) -> tuple[Array, Array]:
    """The test images of Fashion-MNIST at 64 pixels."""
    images, labels = _idx("fashion-mnist")
    return pooled(weights, [lambda one=one: Image.fromarray(one).convert("RGB") for one in images], 64), labels


def encoded(encoder: Path, texts: list[str]) -> Array:
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(encoder), device="cpu").encode(texts, batch_size=128, convert_to_numpy=True)


def clinc150(encoder: Path) -> tuple[Array, Array]:
    """The training texts of CLINC150."""
    rows = json.loads((find_root(None) / "clinc150" / "data_full.json").read_text())["train"]
    return encoded(encoder, [text for text, _ in rows]), np.array([intent for _, intent in rows])


def banking77(encoder: Path) -> tuple[Array, Array]:
    """The training texts of BANKING77."""
    with open(find_root(None) / "banking77" / "train.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return encoded(encoder, [row["text"] for row in rows]), np.array([row["category"] for row in rows])


IMAGES = {"cub": cub, "cifar10": cifar10, "fashion-mnist": fashion_mnist}
TEXTS = {"clinc150": clinc150, "banking77": banking77}
