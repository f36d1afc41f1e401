"""Levi, Xiao, Wang, Darrell: Rethinking preventing class-collapsing in metric learning with margin-based losses (2021).

The claim shown here is that of section 5.1 (figure 2, table 1) on a small set of real images: a network trained on
the parity of digits with random positives makes one blob of the three digits of a parity; with easy positives, and
everything else the same, the digits stay apart.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch

from trivet.collapse import fine_coarse_index
from trivet.commands.demo.page import write_demo_report
from trivet.commands.demo.record import DemoMap, DemoRecord, DemoRow, SeedSpread
from trivet.datasets import Dataset, DigitsConfig, Splits, load
from trivet.datasets.preview import preview_record
from trivet.io.atomic_files import atomic_folder, write_atomic, write_json
from trivet.losses import TripletLoss
from trivet.metrics import evaluate, recall_at_k
from trivet.models import Embedder, ModelConfig, build
from trivet.reports.figure import COLOURS, encode, panels, style
from trivet.runtime.progress import report, show_progress
from trivet.samplers import PKBatches
from trivet.training.config import TrainingConfig
from trivet.training.embed_dataset import embed, raw_inputs
from trivet.training.loop import Batches, Learner, fit, step_seed
from trivet.training.run_folder import RECORD, REPORT
from trivet.training.run_log import environment

Positives = Literal["random", "easy"]
ARMS: tuple[Positives, Positives] = ("random", "easy")
SEEDS = (0, 1, 2)
STEPS, SAMPLES_PER_CLASS, MARGIN, KS = 300, 60, 0.2, (1, 2, 4, 8)
MEASURES = (*(f"recall@{k}" for k in KS), "nmi", "nmi+")
NUMBERS = ModelConfig(name="conv2", embedding_dim=8, normalize=True)
PICTURE = ModelConfig(name="conv2", embedding_dim=2, normalize=False)
PICTURE_FILE = "picture.svg"
COARSE, FINE, TRAINED_CLASSES, OTHER_CLASSES = "parity", "digit", "seen", "unseen"


class Network(NamedTuple):
    """A trained network and how it was trained."""

    positives: Positives
    seed: int
    model: Embedder


def train_parity(splits: Splits, model: ModelConfig, positives: Positives, seed: int) -> Network:
    """Train on parity alone: squared triplet loss, margin 0.2, random negatives, 300 steps of 60 even and 60 odd.

    Two networks of the same seed share the initial weights, the batches and the negative rule.
    """
    labels = splits.train.labels[COARSE]
    batches = PKBatches(labels, num_classes=2, samples_per_class=SAMPLES_PER_CLASS, seed=seed)
    network = build(model, splits.train.inputs.shape, seed)
    loss = TripletLoss(
        margin=MARGIN,
        positives=positives,
        negatives="random",
        generator=torch.Generator().manual_seed(step_seed(seed, 0, 3)),
    )
    task = Learner(network, loss, TrainingConfig(steps=STEPS, learning_rate=1e-3, accelerator="cpu"), seed=seed)
    finished = fit(task, Batches(splits.train, COARSE, batches, None, seed=seed, start=0, steps=STEPS))
    if not finished:
        raise KeyboardInterrupt
    return Network(positives, seed, network)


def demonstrate(folder: Path, *, force: bool = False, command: str = "", progress: bool = False) -> DemoRecord:
    """Train both arms with three seeds, compare them, and write the page, the picture and the record to `folder`."""
    threads = torch.get_num_threads()
    names = frozenset((PICTURE_FILE, RECORD, REPORT))
    try:
        torch.set_num_threads(1)  # networks this small gain nothing from more, and lose much on a busy machine
        with atomic_folder(folder, names, mark=PICTURE_FILE, what="a demo", force=force) as new:
            return _demonstrate(new, command=command, progress=progress)
    finally:
        torch.set_num_threads(threads)


def _demonstrate(folder: Path, *, command: str, progress: bool) -> DemoRecord:
    began = time.perf_counter()
    splits = load(DigitsConfig(), None)
    total = len(ARMS) * (len(SEEDS) + 1)
    with show_progress("demo", show=progress):
        networks: list[Network] = []
        for seed in SEEDS:
            for arm in ARMS:
                report("demo", len(networks), total, f"training with {arm} positives, seed {seed}")
                networks.append(train_parity(splits, NUMBERS, arm, seed))
        flat: dict[str, Network] = {}
        for arm in ARMS:
            report("demo", len(networks) + len(flat), total, f"training with {arm} positives in the plane")
            flat[arm] = train_parity(splits, PICTURE, arm, SEEDS[0])
        report("demo", total, total, "measuring")
        record = measure(splits, networks)
    items = splits.evaluation[TRAINED_CLASSES]
    record.maps = {arm: plane(items, flat[arm]) for arm in ARMS}
    record.stamped(command)
    record.environment = environment()
    record.settings = {
        "images": "scikit-learn digits, 8 x 8 pixels",
        "trained on": f"{len(splits.train)} images of the digits 0 to 5, with the label odd or even alone",
        "network": "conv2, embedding of dimension 8 on the unit sphere (map: dimension 2, not normalised)",
        "loss": f"triplet, squared Euclidean distance, margin {MARGIN}, one triplet per anchor, random negatives",
        "batch": f"{SAMPLES_PER_CLASS} even and {SAMPLES_PER_CLASS} odd images",
        "optimiser": f"Adam, learning rate 0.001, {STEPS} steps",
        "seeds": list(SEEDS),
    }
    record.seconds = round(time.perf_counter() - began, 1)
    record.text = sentences(record)
    write_atomic(folder / PICTURE_FILE, picture(record, items))
    write_json(folder / RECORD, record.as_json(unset=False))
    write_demo_report(record, folder / REPORT)
    return record


def measure(splits: Splits, networks: Sequence[Network]) -> DemoRecord:
    """Recall, NMI and the fine/coarse index of the networks, beside raw pixels and networks that were not trained."""
    results, references = [], []
    indices: dict[str, list[float]] = {arm: [] for arm in ARMS}
    for split, dataset in splits.evaluation.items():
        measured: dict[str, list[dict[str, Any]]] = {arm: [] for arm in ARMS}
        for network in networks:
            embeddings = embed(network.model, dataset.inputs)
            evaluation = evaluate(embeddings, dataset.labels, measures=MEASURES, seed=network.seed)
            measured[network.positives].append({level: result.as_json() for level, result in evaluation.items()})
            if split == TRAINED_CLASSES:
                index = fine_coarse_index(embeddings, dataset.labels[COARSE], dataset.labels[FINE])
                indices[network.positives].append(index)
        for level in (FINE, COARSE):
            for arm in ARMS:
                spreads = {name: SeedSpread.of([result[level][name] for result in measured[arm]]) for name in MEASURES}
                results.append(_row(spreads, positives=arm, split=split, level=level))
        untrained = [
            embed(build(NUMBERS, dataset.inputs.shape, seed), dataset.inputs)
            for seed in sorted({n.seed for n in networks})
        ]
        for name, sets in (("raw pixels", [raw_inputs(dataset.inputs)]), ("untrained network", untrained)):
            for level in (FINE, COARSE):
                recalls = [recall_at_k(rows, dataset.labels[level], KS) for rows in sets]
                spreads = {f"recall@{k}": SeedSpread.of([recall[k] for recall in recalls]) for k in KS}
                references.append(_row(spreads, name=name, split=split, level=level))
    collapse = {arm: SeedSpread.of(values) for arm, values in indices.items()}
    record = DemoRecord(results=results, references=references, collapse=collapse)
    for split in splits.evaluation:
        random, easy = (record.recall(split, FINE, positives=arm).values for arm in ARMS)
        record.gains[split] = [e - r for e, r in zip(easy, random, strict=True)]
    record.gains = dict(record.gains)  # set, so that it is written
    return record


def _row(spreads: Mapping[str, SeedSpread], **of: str) -> DemoRow:
    return DemoRow.read({**of, **spreads})


def plane(dataset: Dataset, network: Network) -> DemoMap:
    """A two-dimensional embedding of a data set, for the map."""
    embeddings = embed(network.model, dataset.inputs)
    return DemoMap(
        points=np.round(embeddings.astype(float), 4).tolist(),
        index=fine_coarse_index(embeddings, dataset.labels[COARSE], dataset.labels[FINE]),
        digit=dataset.labels[FINE].tolist(),
        parity=dataset.labels[COARSE].tolist(),
        thumbnails=[preview_record(dataset.show(i))["thumbnail"] for i in range(len(dataset))],
    )


def picture(record: DemoRecord, dataset: Dataset) -> bytes:
    """The two maps side by side, as SVG: colour is the digit, shape the parity."""
    digits, parities = dataset.labels[FINE], dataset.labels[COARSE]
    present = np.unique(digits).tolist()
    names = {
        digit: f"{dataset.names[FINE][digit]} ({dataset.names[COARSE][parities[digits == digit][0]]})"
        for digit in present
    }
    order = np.random.default_rng(0).permutation(len(digits))
    with style():
        drawn, axes = panels(1, len(ARMS), height=4.5)
        drawn.suptitle("Held-out digits, trained on odd or even", fontweight="bold")
        for ax, arm in zip(axes[0], ARMS, strict=True):
            points = np.array(record.maps[arm].points)
            dots = partial(
                ax.plot, linestyle="none", markersize=5, markeredgewidth=0.5, markeredgecolor="white", alpha=0.8
            )
            for rows in np.array_split(order, 12):  # one digit after the other, the last would hide the rest
                for number, digit in enumerate(present):
                    chosen, marker = points[rows[digits[rows] == digit]], "o^"[digit % 2]
                    dots(*chosen.T, marker=marker, color=COLOURS[number], label=names[digit])
            index = f"fine/coarse index {record.maps[arm].index:.2f}"
            ax.set(title=f"{arm} positives: {index}", aspect="equal", adjustable="datalim", xticks=[], yticks=[])
            ax.spines[:].set(visible=True, color="#cccccc")
        drawn.legend(handles=axes[0][0].lines[: len(present)], loc="outside lower center", ncols=len(present))
        return encode(drawn, "svg")


def sentences(record: DemoRecord) -> list[str]:
    """Sentences that follow from the numbers."""

    def recall(arm: str, split: str, level: str = FINE) -> float:
        return record.recall(split, level, positives=arm).mean

    def pixels(split: str) -> float:
        return record.recall(split, FINE, name="raw pixels").mean

    gains = record.gains
    index = {arm: record.collapse[arm].mean for arm in ARMS}
    text = [
        "Trained on odd or even only: with random positives the nearest neighbour is the same digit for "
        f"{100 * recall('random', 'seen'):.1f} % of the held-out images of 0 to 5, with easy positives for "
        f"{100 * recall('easy', 'seen'):.1f} %.",
        f"Gain in each of the {len(gains['seen'])} seeds: {_points(gains['seen'])} points on the digits 0 to 5 that "
        f"were seen, {_points(gains['unseen'])} on the digits 6 to 9 that were not.",
        f"With random positives, digits of the same parity are {index['random']:.2f} times as far apart as the two "
        f"parities; with easy positives, {index['easy']:.2f} times: "
        + (
            "random positives merge them into blobs."
            if index["easy"] > 3 * index["random"]
            else "no collapse is seen here."
        ),
        f"Parity, the trained label, is correct for {100 * recall('random', 'seen', COARSE):.1f} % and "
        f"{100 * recall('easy', 'seen', COARSE):.1f} % of the nearest neighbours.",
    ]
    if pixels("seen") > recall("easy", "seen"):
        text.append(
            f"Raw pixels find the digit for {100 * pixels('seen'):.1f} %, more often than any network here: on images "
            "this small, the demo shows what a loss forgets, not what a network adds."
        )
    return text


def _points(gains: Sequence[float]) -> str:
    return ", ".join(f"{100 * gain:+.1f}" for gain in gains)
