"""Whole runs of known fate: fine-tuned, collapsed or good; and what their own records say of them.

Networks are trained by `trivet.tasks.train` on CUB (EfficientNet-Lite0 that begins with its ImageNet weights, 64
pixels) and on MNIST (small networks that begin at random). Other test items are kept out of the run: there
the trained network is compared with what the run is compared with, and that decides the fate before any verdict is
read.

Fate: `lost` is the largest loss of recall@1, over the label levels, against the untrained network (for CUB that is the
zero-shot backbone) or the raw inputs, on the items that were kept out. "worse" if 10 points or more were lost,
"slightly worse" if 1 point or more and more than two standard errors of the paired difference, else "good".

Four runs provoke a cause, which the record should name.
"""

from __future__ import annotations

import gzip
import io
import re
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import nn

from real_fates import fate_of
from trivet.data import Dataset
from trivet.data.folder import load_images
from trivet.data.root import find_root
from trivet.evaluation import retrieve
from trivet.models import build
from trivet.records import RunRecord
from trivet.tasks.measure import run_references
from trivet.tasks.train import train
from trivet.training.config import RunConfig
from trivet.training.embedding import embed
from trivet.training.run_folder import RunFolder, trained_model

Settings = dict[str, Any]
CUB_ITEMS = 20  # of a class
MNIST_ITEMS = (2000, 3500, 5000)  # of the test images: the ends of those trained on, evaluated, and kept out


class Lite0(nn.Module):
    """EfficientNet-Lite0 with its ImageNet weights, whose pooled features are the embedding.

    Args:
        weights: a safetensors file.
        fixed: keep the batch-norm layers in evaluation mode.
        frozen: train a linear layer that begins as the identity, on features that stay as they are.
    """

    def __init__(
        self, input_shape: tuple[int, ...], embedding_dim: int, weights: str, fixed: bool = True, frozen: bool = False
    ) -> None:
        import timm
        from safetensors.torch import load_file

        super().__init__()
        self.fixed = fixed
        self.net = timm.create_model("tf_efficientnet_lite0")
        self.net.load_state_dict(load_file(weights))
        self.net.requires_grad_(not frozen)
        self.last: nn.Module = nn.Linear(embedding_dim, embedding_dim) if frozen else nn.Identity()
        if isinstance(self.last, nn.Linear):
            nn.init.eye_(self.last.weight)
            nn.init.zeros_(self.last.bias)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        features: torch.Tensor = self.net.forward_features(2 * images - 1).mean((2, 3))
        embeddings: torch.Tensor = self.last(features)
        return embeddings

    def train(self, mode: bool = True) -> Lite0:
        super().train(mode)
        if self.fixed:
            self.net.eval()
        return self


@dataclass(frozen=True)
class Case:
    """A run, and the cause that it provokes, as its sentence begins."""

    data: str
    name: str
    settings: dict[str, Settings]
    cause: str | None = None
    model: Settings = field(default_factory=dict)


def cub_case(
    name: str,
    *,
    steps: int,
    rate: float,
    cause: str | None = None,
    negatives: str = "semihard",
    shape: tuple[int, int] = (8, 4),
    **model: Any,
) -> Case:
    settings: dict[str, Settings] = {
        "data": {"image_size": 64, "augment": "crop-flip"},
        "batch": {"num_classes": shape[0], "samples_per_class": shape[1]},
        "loss": {"name": "triplet", "positives": "random", "negatives": negatives},
        "training": {"steps": steps, "learning_rate": rate},
    }
    return Case("cub", name, settings, cause, {"embedding_dim": 1280, **model})


def mnist_case(
    name: str,
    *,
    level: str,
    steps: int,
    rate: float,
    model: Settings,
    cause: str | None = None,
    positives: str = "random",
) -> Case:
    classes, size, negatives = {"parity": ((2, 60), 14, "random"), "digit": ((10, 12), 28, "semihard")}[level]
    settings: dict[str, Settings] = {
        "data": {"image_size": size, "channels": 1, "levels": ["parity", "digit"], "level": level},
        "batch": {"num_classes": classes[0], "samples_per_class": classes[1]},
        "loss": {"name": "triplet", "positives": positives, "negatives": negatives},
        "training": {"steps": steps, "learning_rate": rate},
    }
    return Case("mnist", name, settings, cause, model)


STATISTICS, RATE, BY_HEART = "Batch-norm statistics", "The learning rate", "The training classes"
SMALL = {"name": "conv2", "embedding_dim": 8}
CASES = (
    mnist_case("ten digits", level="digit", steps=300, rate=1e-3, model={"name": "conv4", "embedding_dim": 64}),
    mnist_case("ten digits, rate 1", level="digit", steps=200, rate=1.0, model={"name": "mlp"}, cause=RATE),
    mnist_case("odd or even, all positives", level="parity", steps=400, rate=3e-4, positives="all", model=SMALL),
    mnist_case("odd or even, easy positives", level="parity", steps=400, rate=3e-4, positives="easy", model=SMALL),
    cub_case(
        "frozen, a layer that begins as the identity, rate 1e-3", steps=200, rate=1e-3, frozen=True, cause=BY_HEART
    ),
    cub_case("frozen, the same layer, rate 1", steps=60, rate=1.0, frozen=True, cause=RATE),
    cub_case("fine-tuned gently: fixed statistics, rate 1e-6", steps=30, rate=1e-6),
    cub_case("fine-tuned, moving batch-norm statistics, rate 1e-7", steps=60, rate=1e-7, fixed=False, cause=STATISTICS),
    cub_case("frozen, the same layer, rate 1e-4, 30 steps", steps=30, rate=1e-4, frozen=True),
    cub_case("hardest negatives, fixed statistics, rate 1e-3", steps=40, rate=1e-3, negatives="hard", shape=(16, 4)),
    cub_case("fine-tuned, moving batch-norm statistics, rate 1e-2", steps=60, rate=1e-2, fixed=False),
)


@dataclass(frozen=True, eq=False)
class RunFate:
    """A run, what became of it on items that were kept out, and its record.

    Attributes:
        lost: of recall@1, against `reference` at `level`.
        split: the evaluation split of the record.
    """

    case: Case
    fate: str
    lost: float
    reference: str
    level: str
    record: RunRecord
    split: str


def run_fates(folder: Path, weights: Path) -> Iterator[RunFate]:
    """Train what is missing below the folder, and compare each case on the items that were kept out."""
    for data, write in {"cub": _cub, "mnist": _mnist}.items():
        if not (folder / data / "kept-out").exists():
            write(folder / data)
    for case in CASES:
        data = folder / case.data
        network = {"name": f"python:{Path(__file__).resolve()}:Lite0", "weights": str(weights.resolve())}
        config = RunConfig.model_validate(
            case.settings
            | {"data": {"name": "folder", "root": str(data / "run"), **case.settings["data"]}}
            | {"model": (network if case.data == "cub" else {}) | case.model}
            | {"evaluation": {"distance": "cosine", "every": 1000, "map_points": 2}}
        )
        run = folder / "runs" / re.sub(r"\W+", "-", f"{case.data} {case.name}")
        known = RunFolder(run).record() if run.exists() else None
        if known is not None and known["status"] == "finished" and known["diagnosis"]:
            record = known
        else:
            record = train(config, run, force=run.exists())
        (split,) = record["diagnosis"].keys() - {"train"}
        yield RunFate(case, *_compared(run, config, data / "kept-out"), record=record, split=split)


def _compared(run: Path, config: RunConfig, kept_out: Path) -> tuple[str, float, str, str]:
    """Fate, loss, and the reference and the level of that loss."""
    model = trained_model(RunFolder.open(run)).cpu()
    items = load_images(kept_out, model.input_shape)
    names = ("class",) if len(items.labels) == 1 else ("parity", "digit")
    labels = dict(zip(names, items.labels.values(), strict=True))
    own = _hits(embed(model, items.inputs), labels)
    found = []
    for reference, rows in _references(config, items).items():
        for level, hits in _hits(rows, labels).items():
            lost = hits - own[level]
            found.append((float(lost.mean()), fate_of(lost), reference, level))
    lost, fate, reference, level = max(found)
    return fate, lost, reference, level


def _references(config: RunConfig, items: Dataset) -> dict[str, np.ndarray]:
    return run_references(build(config.model, items.inputs.shape, config.seed), items)


def _hits(rows: np.ndarray, labels: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {
        level: retrieve(rows, classes, measures=("recall@1",), distance="cosine").values[:, 0]
        for level, classes in labels.items()
    }


def _cub(folder: Path) -> None:
    """Twenty images of each of the classes 1 to 25 to train on; of the others twenty to measure, twenty kept out."""
    archive = zipfile.ZipFile(find_root(None) / "cub" / "CUB_200_2011_first50_128px.zip")
    names = sorted(name for name in archive.namelist() if name.endswith(".jpg"))
    classes = sorted({Path(name).parent.name for name in names})

    files = []
    for number, label in enumerate(classes):
        of_class = [name for name in names if Path(name).parent.name == label]
        places = ("run/train",) if number < len(classes) // 2 else ("run/test", "kept-out")
        for start, place in enumerate(places):
            files += [
                (f"{place}/{label}/{Path(name).name}", lambda name=name: archive.read(name))
                for name in of_class[CUB_ITEMS * start :][:CUB_ITEMS]
            ]
    _write(folder, files)


def _mnist(folder: Path) -> None:
    root = find_root(None) / "mnist"
    with gzip.open(root / "t10k-images-idx3-ubyte.gz") as file:
        images = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 28, 28)
    with gzip.open(root / "t10k-labels-idx1-ubyte.gz") as file:
        labels = np.frombuffer(file.read(), np.uint8, offset=8)

    def png(image: np.ndarray) -> bytes:
        sink = io.BytesIO()
        Image.fromarray(image).save(sink, "png")
        return sink.getvalue()

    def place(number: int) -> str:
        return ("run/train", "run/test", "kept-out")[int(np.searchsorted(MNIST_ITEMS, number, side="right"))]

    last = MNIST_ITEMS[-1]
    _write(
        folder,
        [
            (f"{place(i)}/{'odd' if label % 2 else 'even'}/{label}/{i:05}.png", lambda image=image: png(image))
            for i, (image, label) in enumerate(zip(images[:last], labels[:last].tolist(), strict=True))
        ],
    )


def _write(folder: Path, files: list[tuple[str, Callable[[], bytes]]]) -> None:
    for name, content in sorted(files, key=lambda one: one[0].startswith("kept-out")):  # last: it says all are there
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content())
