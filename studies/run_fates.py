"""Whole runs of known fate: fine-tuned, collapsed or good; and what their own records say of them.

Networks are trained by `trivet.commands.train.run`: EfficientNet-Lite0 that begins with its ImageNet weights, on CUB
at 64
pixels; small networks that begin at random, on MNIST and Fashion-MNIST; heads on vectors, of the same ImageNet network
(CUB at 128 pixels) and of a sentence encoder (CLINC150, BANKING77). Other items are kept out of the run: there the
trained network is compared with what the run is compared with, and that decides the fate before any verdict is read.

Fate: `lost` is the largest loss of recall@1, over the label levels, against the untrained network, the backbone alone
or the raw inputs, on the items that were kept out. "worse" if 10 points or more were lost, "slightly worse" if 1 point
or more and more than two standard errors of the paired difference, else "good".

The settings were chosen by the fate alone, on the data sets of the first half, before any run had a verdict. Points
lost, of what was tried:

- CUB, fine-tuned: 30 steps of rate 1e-5: -4.8; 1e-2: +26.6 (60 steps); all positives, 120 steps of 1e-4: -8.4; moving
  statistics, 60 steps of 1e-7: +12.2, 40 of 1e-4: +11.8; hardest negatives of 16 x 4, 40 of 1e-3: +23.0; 80 % of the
  labels wrong, 120 of 1e-4: +7.6.
- CUB, a layer on the frozen network: 30 steps of 1e-4: -2.6; 200 of 1e-3: +3.2, not significant, left out; 60 of rate
  1: +5.6.
- MNIST: ten digits, conv4, rate 1e-3: -1.8, 0.1: -2.2, 1: -1.0 (the last two left out); mlp, rate 1: +3.8. Odd or
  even: all positives +46.5, easy +7.9.
- CUB's features / CLINC150: residual layer, 30 steps of 1e-4: 0.0 / -0.1; 400 of 1e-3: +6.2 / -0.5; of 1e-2: +11.4 /
  +2.0; 100 or 200 of rate 1: +3.8, not significant / +2.3. Linear layer of full width, 400 of 1e-3: +11.2 / not tried;
  of 64 or 128 dimensions +10.0 / +2.0. Two layers, 64 dimensions, 600 of 1e-3: +14.0 / +7.3, of 1e-2: not tried /
  +17.9, 32 dimensions, 200 of rate 1: not tried / +26.4. 60 % of the labels wrong, 400 of 1e-3: +13.2 / +1.2, of 1e-2:
  not tried / +11.0. Hardest negatives, 400 of 1e-2: +7.8 / +1.6 or, with two layers, +15.9 (left out).

The first half was judged by the rules as they were: 24 of 25 right, the cause that was provoked named in 4 of 10. Then
three causes were added or changed: labels, a start below the raw inputs, and how a high rate is told. Judged again,
labels were named in three runs whose labels are right, since the network knows the birds badly at 64 pixels; so labels
of the evaluation are judged, too, and must be better. The second half was judged after that. Then a second measurement
of a high rate was added, how far the weights moved per step: its threshold was set before any run was measured, and
checked on the first half and on other runs; the verdicts of the second half, though not this number, were known when it
was designed. A cause counts as another one if the case neither provokes it nor has it by its making.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from readers import Array, cub_archive, idx, write_file
from real_fates import IMAGES, TEXTS, fate_of, features_of, of_folders
from trivet.commands.evaluate.baselines import run_references
from trivet.commands.evaluate.trained_model import evaluate_run
from trivet.commands.train.run import train
from trivet.datasets import DataConfig, load, load_file
from trivet.datasets.folder import load_images
from trivet.metrics import retrieve
from trivet.reports.run_record import RunRecord
from trivet.training.components import begun, load_splits
from trivet.training.config import RunConfig
from trivet.training.embed_dataset import embed
from trivet.training.run_folder import RunFolder, trained_model

Settings = dict[str, Any]

CUB_ITEMS = 20  # of a class that are trained on, measured, or kept out
MNIST_ITEMS = (2000, 3500, 5000)  # of a seed: the ends of those trained on, measured, and kept out
VECTORS = 40  # of a class
CAUSES = {
    "statistics": "Batch-norm statistics of training batches",
    "rate": "The learning rate of",
    "by heart": "The training classes were learned",
    "labels": "Many training labels are probably wrong",
    "start": "The network began lower still",
}
"""Name -> words of the sentence that names it."""


@dataclass(frozen=True)
class Case:
    """A run: settings, the cause that they provoke, if one, and causes that it has besides, by its making.

    Without settings, those of `chosen_head`.
    """

    name: str
    settings: dict[str, Settings]
    cause: str | None = None
    also: tuple[str, ...] = ()


def run_of(
    name: str,
    *,
    model: Settings,
    batch: tuple[int, int],
    steps: int,
    rate: float,
    cause: str | None = None,
    also: tuple[str, ...] = (),
    data: Settings | None = None,
    noise: float = 0,
    **loss: Any,
) -> Case:
    settings = {
        "data": (data or {}) | ({"noise": {"kind": "symmetric", "rate": noise}} if noise else {}),
        "model": model,
        "batch": {"num_classes": batch[0], "samples_per_class": batch[1]},
        "loss": {"name": "triplet", "positives": "random", "negatives": "semihard", **loss},
        "training": {"steps": steps, "learning_rate": rate},
    }
    return Case(name, settings, cause, also)


def fine_tuned(
    name: str, steps: int, rate: float, *, batch: tuple[int, int] = (8, 4), model: Settings | None = None, **other: Any
) -> Case:
    network = {"name": "timm:tf_efficientnet_lite0", "embedding_dim": 1280, **(model or {})}
    crops = {"image_size": 64, "augment": "crop-flip"}
    return run_of(name, model=network, batch=batch, steps=steps, rate=rate, data=crops, **other)


def digits(name: str, steps: int, rate: float, *, model: Settings, **other: Any) -> Case:
    data = {"image_size": 28, "channels": 1, "levels": ["parity", "digit"], "level": "digit"}
    return run_of(name, model=model, batch=(10, 12), steps=steps, rate=rate, data=data, **other)


def parity(name: str, steps: int, rate: float, **other: Any) -> Case:
    data = {"image_size": 14, "channels": 1, "levels": ["parity", "digit"], "level": "parity"}
    small = {"name": "conv2", "embedding_dim": 8}
    return run_of(name, model=small, batch=(2, 60), steps=steps, rate=rate, data=data, negatives="random", **other)


def head(name: str, steps: int, rate: float, *, kind: str = "residual", width: int | None = None, **other: Any) -> Case:
    """Of the width of the vectors, if no other is given."""
    model = {"name": kind} | ({"embedding_dim": width} if width else {})
    return run_of(name, model=model, batch=(16, 8), steps=steps, rate=rate, **other)


IMAGENET = (
    fine_tuned("fine-tuned, 30 steps of rate 1e-5", 30, 1e-5),
    fine_tuned("fine-tuned, all positives, 120 steps of rate 1e-4", 120, 1e-4, positives="all"),
    fine_tuned("a layer on the frozen network, 30 steps of rate 1e-4", 30, 1e-4, model={"freeze": "all"}),
    fine_tuned("moving statistics, 60 steps of rate 1e-7", 60, 1e-7, model={"batch_norm": "train"}, cause="statistics"),
    fine_tuned("moving statistics, 40 steps of rate 1e-4", 40, 1e-4, model={"batch_norm": "train"}, cause="statistics"),
    fine_tuned("fine-tuned, 60 steps of rate 1e-2", 60, 1e-2, cause="rate"),
    fine_tuned("a layer on the frozen network, 60 steps of rate 1", 60, 1.0, model={"freeze": "all"}, cause="rate"),
    fine_tuned("hardest of 16 x 4, 40 steps of rate 1e-3", 40, 1e-3, negatives="hard", batch=(16, 4)),
    fine_tuned(
        "80 % of the labels wrong, 120 steps of rate 1e-4", 120, 1e-4, noise=0.8, cause="labels", also=("by heart",)
    ),
)
SMALL = (
    digits("ten classes, conv4, 300 steps of rate 1e-3", 300, 1e-3, model={"name": "conv4", "embedding_dim": 64}),
    digits("ten classes, mlp, 200 steps of rate 1", 200, 1.0, model={"name": "mlp"}, cause="rate", also=("start",)),
    parity("two classes, all positives, 400 steps of rate 3e-4", 400, 3e-4, positives="all", also=("start",)),
    parity("two classes, easy positives, 400 steps of rate 3e-4", 400, 3e-4, positives="easy", also=("start",)),
)
HEADS = (
    Case("residual layer, step chosen by held-out classes", {}),
    head("residual layer, 30 steps of rate 1e-4", 30, 1e-4),
    head("residual layer, 400 steps of rate 1e-2", 400, 1e-2, cause="by heart"),
    head("linear layer, 400 steps of rate 1e-3", 400, 1e-3, kind="linear", cause="by heart", also=("start",)),
    head("two layers, 64 dimensions, 600 steps of rate 1e-3", 600, 1e-3, kind="mlp", width=64, cause="start"),
    head(
        "two layers, 32 dimensions, 200 steps of rate 1", 200, 1.0, kind="mlp", width=32, cause="rate", also=("start",)
    ),
    head(
        "60 % of the labels wrong, residual layer, 400 steps of rate 1e-2",
        *(400, 1e-2),
        noise=0.6,
        cause="labels",
        also=("by heart",),
    ),
)
HALVES = {
    "first": (("cub", 0), ("mnist", 0), ("cub-features", 0), ("clinc150", 0)),
    "second": (("cub", 1), ("mnist", 1), ("fashion-mnist", 0), ("cub-features", 1), ("banking77", 0)),
}
"""Half -> data sets, and the seeds by which they are cut and trained on."""


def cases(data: str) -> Sequence[Case]:
    return IMAGENET if data == "cub" else SMALL if data.endswith("mnist") else HEADS


@dataclass(frozen=True, eq=False)
class RunFate:
    """A run, what became of it on items that were kept out, and its record.

    Attributes:
        half: the first, on which settings and rules were chosen, or the second, the test.
        lost: of recall@1, against `reference` at `level`.
        rank_biased_lost: of rank-biased precision there, which decides on no fate.
        split: the evaluation split of the record.
    """

    half: str
    data: str
    seed: int
    case: Case
    fate: str
    lost: float
    rank_biased_lost: float
    reference: str
    level: str
    record: RunRecord
    split: str


def run_fates(folder: Path, features: Path, weights: Path, encoder: Path) -> Iterator[RunFate]:
    """Train what is missing below the folder, and compare each case on the items that were kept out."""
    for half, data, seed in ((half, *one) for half, sets in HALVES.items() for one in sets):
        place = folder / f"{data}-{seed}"
        if not (place / "complete").exists():
            _write(data, seed, place, (features, weights, encoder))
            (place / "complete").touch()
        for case in cases(data):
            config = config_of(case, place, weights, seed)
            run = place / "runs" / re.sub(r"\W+", "-", case.name)
            known = RunFolder(run).record() if run.exists() else None
            if known is not None and known.status == "finished" and known.diagnosis:
                record = evaluate_run(run)  # by the rules of today
            else:
                record = train(config, run, force=run.exists())
            (split,) = record.diagnosis.keys() - {"train", "validation"}
            fate = compared(trained_model(RunFolder.open(run)).cpu(), config, place)
            yield RunFate(half, data, seed, case, *fate, record=record, split=split)


def config_of(case: Case, place: Path, weights: Path, seed: int) -> RunConfig:
    if (place / "run.npz").exists():
        data: Settings = {"name": "vectors", "path": str(place / "run.npz")}
        if not case.settings:
            return chosen_head(data, seed)
        with np.load(place / "run.npz") as held:
            model: Settings = {"embedding_dim": held["embeddings"].shape[1]}
    else:
        data = {"name": "folder", "root": str(place / "run")}
        model = {"weights": str(weights.resolve())} if case in IMAGENET else {}
    return RunConfig.model_validate(
        case.settings
        | {"data": data | case.settings["data"], "model": model | case.settings["model"], "seed": seed}
        | {"evaluation": {"distance": "cosine", "every": 1000, "map_points": 2}}
    )


def chosen_head(data: Settings, seed: int) -> RunConfig:
    """A residual layer on vectors, whose step some of the training classes choose."""
    splits = load(DataConfig.parse(data, source="data"), None)
    classes = len(np.unique(splits.train.labels[splits.level]))
    folds = max(4, round(classes / 12))
    settings = {
        "seed": seed,
        "data": data | {"folds": folds},
        "model": {"name": "residual", "embedding_dim": splits.train.inputs.shape[0]},
        "loss": {"name": "triplet", "margin": 0.4, "positives": "random", "negatives": "violating"},
        "batch": {"num_classes": min(32, classes - -(-classes // folds)), "samples_per_class": 8},
        "training": {"steps": 200, "learning_rate": 1e-3, "warmup_steps": "all"},
        "evaluation": {"distance": "cosine", "every": 20, "sample": 10_000, "nmi_plus": 2, "map_points": 500},
        "choosing": {"keep": "best", "measure": "recall@1"},
    }
    return RunConfig.parse(settings, source="chosen head")


def compared(model: Any, config: RunConfig, place: Path) -> tuple[str, float, float, str, str]:
    """Fate, losses, and the reference and the level of the first, on the items that were kept out."""
    if (place / "run.npz").exists():
        items = load_file(config.data, place / "kept-out.npz", None)
        with np.load(place / "kept-out.npz") as held:
            labels = {"class": np.unique(held["class"], return_inverse=True)[1]}
    else:
        items = load_images(place / "kept-out", config.data.frame(model.input_shape))
        names = ("class",) if len(items.labels) == 1 else ("parity", "digit")
        labels = dict(zip(names, items.labels.values(), strict=True))

    def hits(rows: Array) -> dict[str, Array]:
        return {
            level: retrieve(rows, classes, measures=("recall@1", "rbp"), distance="cosine").values
            for level, classes in labels.items()
        }

    own = hits(embed(model, items.inputs))
    found = []
    before = begun(config, load_splits(config, None))[0]
    for reference, rows in run_references(before, items).items():
        for level, others in hits(rows).items():
            lost = others - own[level]
            found.append((*lost.mean(axis=0).tolist(), fate_of(lost[:, 0]), reference, level))
    lost, rank_biased_lost, fate, reference, level = max(found)
    return fate, lost, rank_biased_lost, reference, level


def _write(data: str, seed: int, place: Path, sources: tuple[Path, Path, Path]) -> None:
    """The items of a run, and those kept out of it."""
    if data == "cub":
        _write_cub(seed, place)
    elif data.endswith("mnist"):
        _write_mnist(data, seed, place)
    else:
        name = data.removesuffix("-features")
        assert name in IMAGES | TEXTS
        _write_vectors(*features_of(name, *sources), seed, place)


def _trained_on(labels: Array, seed: int) -> Array:
    """Which items are of the classes trained on: a half of them, and with the next seed the other half."""
    classes = np.random.default_rng(seed // 2).permutation(np.unique(labels))
    mask: Array = np.isin(labels, classes[: len(classes) // 2]) ^ (seed % 2 == 1)
    return mask


def _write_cub(seed: int, place: Path) -> None:
    """Twenty images of each of 25 classes to train on; of the 25 others twenty to measure, twenty kept out."""
    archive, sorted_names = cub_archive()
    names, labels = np.array(sorted_names), of_folders(sorted_names)
    trained = _trained_on(labels, seed)
    for label in np.unique(labels):
        rows = np.random.default_rng(seed).permutation(np.flatnonzero(labels == label))
        for number, part in enumerate(("run/train",) if trained[rows[0]] else ("run/test", "kept-out")):
            for name in names[rows[CUB_ITEMS * number :][:CUB_ITEMS]].tolist():
                write_file(place / part / label / Path(name).name, archive.read(name))


def _write_mnist(data: str, seed: int, place: Path) -> None:
    """Test images in random order, for neighbours in the file are of one writer; with the next seed, others."""
    images, labels = idx(data)
    last = MNIST_ITEMS[-1]
    rows = np.random.default_rng(seed // 2).permutation(len(images))[last * (seed % 2) :][:last]
    for number, row in enumerate(rows.tolist()):
        part = ("run/train", "run/test", "kept-out")[int(np.searchsorted(MNIST_ITEMS, number, side="right"))]
        sink = io.BytesIO()
        Image.fromarray(images[row]).save(sink, "png")
        parity = "odd" if labels[row] % 2 else "even"
        write_file(place / part / parity / str(labels[row]) / f"{row:05}.png", sink.getvalue())


def _write_vectors(vectors: Array, labels: Array, seed: int, place: Path) -> None:
    """Forty items of a class: those of half the classes to train on; of the others half to measure, half kept out."""
    chosen = [
        np.random.default_rng(seed).permutation(np.flatnonzero(labels == label))[:VECTORS]
        for label in np.unique(labels)
    ]
    rows = np.concatenate(chosen)
    place_of = np.where(np.arange(len(rows)) % 2, "test", "kept-out")
    split = np.where(_trained_on(labels, seed)[rows], "train", place_of)
    for name, kept in (("run", split != "kept-out"), ("kept-out", split == "kept-out")):
        columns = {"class": labels[rows[kept]].astype(str)} | ({"split": split[kept]} if name == "run" else {})
        place.mkdir(parents=True, exist_ok=True)
        np.savez(place / f"{name}.npz", embeddings=vectors[rows[kept]], **columns)
