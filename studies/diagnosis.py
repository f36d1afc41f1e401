"""How well collapse is detected: modes, what a network forgot, verdicts on embeddings of known condition, and time.

    TRIVET_DATA=... .venv/bin/python studies/diagnosis.py                 # about 30 minutes on one busy core
    .venv/bin/python studies/diagnosis.py --parts mode-calibration
    ... --parts real-verdicts --weights tf_efficientnet_lite0.safetensors --text-encoder all-MiniLM-L6-v2

mode-calibration: how often trivet.collapse.count_modes finds one mode in one Gaussian, two in two Gaussians whose means
lie 4 standard deviations apart, and what it finds in shapes that are not Gaussian; and its time.

class-collapse: networks trained on a coarse label alone (parity of digits, alphabet of characters), with and without
easy positives, with several losses and batch shapes; and networks trained on the fine label, which are healthy. For
each, recall@1 of the fine level and measures that do not use it, with the rank correlation of the two over the runs of
a data set. The methods were chosen on the runs of seed 0; the other seeds are the test. The embeddings are
kept in the folder of --runs as RUN.SPLIT.npz and reused.

trained-verdicts: trivet.diagnose on the training items of the networks of class-collapse, given, besides
the labels: nothing, the raw inputs, the untrained network, or the fine label.

verdicts: trivet.diagnose on the embeddings of known condition of fates.py. The thresholds were chosen on the first
half, the cases with an even number within their kind; the second half is the test.

real-verdicts: trivet.diagnose on forty embeddings of pretrained features, real_fates.py, with the features as reference
and without one. Nothing was chosen on them: the rules of the result were set before, and tried on Omniglot and MNIST.
Needs --weights and --text-encoder, unless the features are in the folder of --runs.

reference-modes: how far apart the modes of a class lie in untrained networks, pixels and features, beside the classes:
where the labels are those of the data, and where they are groups of them. Nothing is trained.

inside-verdicts: trivet.diagnose on heads trained on groups of classes or on the classes, real_groups.py, given the
labels trained on and the features, but no finer label. Needs what real-verdicts needs.

run-verdicts: what the records of whole runs say, run_fates.py: an ImageNet network fine-tuned on CUB, small networks on
MNIST and heads on vectors, well and badly trained; their fate is measured on items kept out. Some provoke a cause that
the record should name. Needs what real-verdicts needs.

equal-twins: how often one of two embeddings that are as good as each other is called worse. Linear heads on the pixels
of MNIST and Omniglot that differ in the seed alone, on classes they were not trained on; Gaussian clusters with
noise of their own; and the designs of intervals.py, of the same classes and of others, by recall@1 and by MAP@R.

equal-encoders: the same of different encoders that are as good as each other over all classes, compared on five or
eight of them, equal_encoders.py. Needs what real-verdicts needs.

large: trivet.diagnose of 100,000 x 128 in 1,000 classes, on all cores; needs a quiet machine.

Results go to studies/results/diagnosis.json and .md; parts that are not run keep their former results.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import platform
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from itertools import permutations, product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.spatial.distance import pdist, squareform
from scipy.stats import spearmanr
from sklearn.metrics import silhouette_score

import pages
import trivet
from equal_encoders import subsets
from fates import FAMILIES
from intervals import NOISE, designs
from pages import table
from real_fates import apply, features_of
from real_fates import fates as real_fates
from real_fates import train as train_head
from real_groups import DATA as GROUPED
from real_groups import MOST, groupings, insides
from run_fates import CAUSES, run_fates
from trivet.collapse import (
    THRESHOLDS,
    class_modes,
    count_modes,
    diagnose,
    fine_coarse_index,
    mode_index,
    mode_retention,
    mode_sharing,
)
from trivet.collapse.modes import SPLIT
from trivet.collapse.significance import compare_with_reference
from trivet.datasets import DataConfig, Dataset, load
from trivet.io.atomic_files import write_atomic
from trivet.losses import MarginLoss, MultiSimilarityLoss, TripletLoss
from trivet.losses.engine import EmbeddingLoss
from trivet.metrics import Retrieval, cluster, recall_at_k, retrieve
from trivet.models import Embedder, ModelConfig, build
from trivet.samplers import PKBatches
from trivet.training.config import TrainingConfig
from trivet.training.embed_dataset import embed, raw_inputs
from trivet.training.loop import Batches, Learner, fit, step_seed

TRIALS = 200
TWINS, JITTERED, DESIGNED = 8, 250, 40
DRAWS, DRAWN = 12, 1500  # of a data set, of whose classes the modes are counted
DEVICES = (0.5, 1.0, 2.0)  # how far a second device moves items, over their mean distance from the middle
MEASURES = (
    *("modes", "retention, raw", "retention, untrained", "mode index, raw", "fine/coarse", "within/between"),
    *("silhouette", "clusters of it", "effective rank", "local dimension"),
)
SILHOUETTE = 300  # items of a class that are clustered
LARGEST = 3000  # items of a split that are kept
ALPHABETS, DRAWINGS = 10, 10
LEVELS = {
    "digits": ("parity", "digit"),
    "mnist": ("parity", "digit"),
    "omniglot": ("alphabet", "character"),
    "fashion-mnist": ("group", "item"),
}
MODELS = {
    "digits": ModelConfig(name="conv2", embedding_dim=8),
    "mnist": ModelConfig(name="conv2", embedding_dim=8),
    "omniglot": ModelConfig(name="conv3", embedding_dim=128),
    "fashion-mnist": ModelConfig(name="conv4", embedding_dim=64),
}
TRAINING = {"digits": (300, 1e-3), "mnist": (400, 3e-4), "omniglot": (800, 1e-3), "fashion-mnist": (400, 1e-3)}
Row = dict[str, Any]


@dataclass(frozen=True)
class Run:
    """A network to train: on which label, with which loss and positives, and on which batches."""

    data: str
    level: str  # "coarse" or "fine"
    loss: str
    positives: str
    shape: tuple[int, int]  # classes and items of each in a batch
    seed: int

    @property
    def name(self) -> str:
        classes, items = self.shape
        return f"{self.data}-{self.level}-{self.loss}-{self.positives}-{classes}x{items}-s{self.seed}"


def runs() -> list[Run]:
    """All networks, the seeds 0 first."""
    found = []
    for seed in (0, 1, 2):
        for positives in ("random", "easy"):
            found += [Run("digits", "coarse", "triplet", positives, (2, k), seed) for k in (60, 20, 6)]
            found += [Run("mnist", "coarse", "triplet", positives, (2, k), seed) for k in (60, 12)]
            if seed < 2:
                found += [Run("omniglot", "coarse", "triplet", positives, shape, seed) for shape in ((4, 32), (10, 6))]
                found.append(Run("omniglot", "coarse", "margin", positives, (4, 32), seed))
        if seed < 2:
            for positives in ("multi-similarity", "easy"):
                found.append(Run("omniglot", "coarse", "multi-similarity", positives, (4, 32), seed))
            found.append(Run("digits", "fine", "triplet", "random", (10, 12), seed))
            found.append(Run("fashion-mnist", "fine", "triplet", "random", (10, 12), seed))
            found.append(Run("omniglot", "fine", "triplet", "random", (30, 4), seed))
        if seed == 0:
            found.append(Run("digits", "fine", "multi-similarity", "multi-similarity", (10, 12), seed))
            found.append(Run("fashion-mnist", "fine", "multi-similarity", "multi-similarity", (10, 12), seed))
            found.append(Run("omniglot", "fine", "multi-similarity", "multi-similarity", (30, 4), seed))
    return found


def datasets(data: str, level: str) -> dict[str, Dataset]:
    """ "train", "seen" (other items of the trained classes) and, where some were held out, "unseen" (other classes)."""
    splits = load(DataConfig.parse({"name": data} | ({"image_size": 14} if data == "mnist" else {}), source=data), None)
    if data == "omniglot":
        return _omniglot(splits.train, splits.evaluation["unseen"])
    if level == "coarse":
        return {"train": splits.train, **splits.evaluation}
    # The splits hold fine classes out: here all ten are trained on, digits as a whole, clothing its test images.
    parts = [*([splits.train] if data == "digits" else []), *splits.evaluation.values()]
    whole = _joined(parts)
    order = np.random.RandomState(0).permutation(len(whole))
    count = int(0.6 * len(order))
    return {"train": whole.subset(order[:count]), "seen": whole.subset(order[count:])}


def _joined(parts: list[Dataset]) -> Dataset:
    """Subsets of one data set in memory as one."""
    return replace(
        parts[0],
        inputs=replace(parts[0].inputs, rows=np.concatenate([part.inputs.rows for part in parts])),
        labels={level: np.concatenate([part.labels[level] for part in parts]) for level in parts[0].labels},
        ids=tuple(name for part in parts for name in part.ids),
    )


def _omniglot(background: Dataset, evaluation: Dataset) -> dict[str, Dataset]:
    """Ten drawings of each character of ten alphabets: few enough for these networks to fit, and so to collapse."""

    def part(dataset: Dataset, second: bool) -> Dataset:
        alphabet, character = dataset.labels["alphabet"], dataset.labels["character"]
        first = np.searchsorted(character, character)  # items lie character by character
        drawing = np.arange(len(character)) - first
        chosen = np.isin(alphabet, np.unique(alphabet)[:ALPHABETS]) & ((drawing >= DRAWINGS) == second)
        return dataset.subset(np.flatnonzero(chosen))

    return {"train": part(background, False), "seen": part(background, True), "unseen": part(evaluation, False)}


def train(run: Run, dataset: Dataset) -> tuple[Embedder, Embedder]:
    """The trained network and its initial state."""
    level = LEVELS[run.data][run.level == "fine"]
    classes, items = run.shape
    steps, rate = TRAINING[run.data]
    batches = PKBatches(dataset.labels[level], num_classes=classes, samples_per_class=items, seed=run.seed)
    before, network = (build(MODELS[run.data], dataset.inputs.shape, run.seed) for _ in range(2))
    generator = torch.Generator().manual_seed(step_seed(run.seed, 0, 3))
    loss: EmbeddingLoss
    if run.loss == "triplet":
        negatives = "semihard" if run.data == "omniglot" or run.level == "fine" else "random"
        loss = TripletLoss(positives=run.positives, negatives=negatives, generator=generator)
    elif run.loss == "margin":
        loss = MarginLoss(
            positives=run.positives,
            negatives="distance-weighted",
            num_classes=len(dataset.names[level]),
            generator=generator,
        )
    else:
        loss = MultiSimilarityLoss(threshold=0.5, positives=run.positives, generator=generator)
    task = Learner(network, loss, TrainingConfig(steps=steps, learning_rate=rate, accelerator="cpu"), seed=run.seed)
    if not fit(task, Batches(dataset, level, batches, None, seed=run.seed, start=0, steps=steps)):
        raise KeyboardInterrupt
    return before, network


def make(folder: Path) -> None:
    """Train what is missing from the folder, and store the embeddings of every split."""
    folder.mkdir(parents=True, exist_ok=True)
    loaded: dict[tuple[str, bool], dict[str, Dataset]] = {}
    for run in runs():
        key = run.data, run.level == "fine"
        if (folder / f"{run.name}.train.npz").exists():
            continue
        if key not in loaded:
            loaded[key] = datasets(run.data, run.level)
        began = time.perf_counter()
        before, network = train(run, loaded[key]["train"])
        seconds = time.perf_counter() - began
        coarse, fine = LEVELS[run.data]
        for split in reversed(loaded[key]):  # "train" last: its file says that all are there
            dataset = _at_most(loaded[key][split])
            whole = io.BytesIO()
            np.savez(
                whole,
                embeddings=embed(network, dataset.inputs),
                labels=dataset.labels[LEVELS[run.data][run.level == "fine"]],
                coarse=dataset.labels[coarse],
                fine=dataset.labels[fine],
                reference_untrained=embed(before, dataset.inputs),
                reference_raw=raw_inputs(dataset.inputs),
                seconds=seconds,
            )
            write_atomic(folder / f"{run.name}.{split}.npz", whole.getvalue())
        print(f"{run.name}: {seconds:.1f} s", flush=True)


def _at_most(dataset: Dataset) -> Dataset:
    if len(dataset) <= LARGEST:
        return dataset
    return dataset.subset(np.sort(np.random.RandomState(0).permutation(len(dataset))[:LARGEST]))


def retained(run: Run, folder: Path) -> list[Row]:
    """The measures of a network on each split of trained classes, and its fine recall@1 on the others."""
    unseen = folder / f"{run.name}.unseen.npz"
    other = np.load(unseen) if unseen.exists() else None
    rows = []
    for split in ("train", "seen"):
        held = np.load(folder / f"{run.name}.{split}.npz")
        embeddings, labels = held["embeddings"], held["labels"]
        row: Row = {"run": run.name, "split": split, **asdict(run), "seconds": float(held["seconds"])}
        row["fine recall@1"] = recall_at_k(embeddings, held["fine"], (1,))[1]
        row["trained recall@1"] = recall_at_k(embeddings, labels, (1,))[1]
        if other is not None:
            row["unseen fine recall@1"] = recall_at_k(other["embeddings"], other["fine"], (1,))[1]
        row["fine/coarse"] = fine_coarse_index(embeddings, held["coarse"], held["fine"])
        row["modes"] = class_modes(embeddings, labels).mean
        row["retention, raw"] = mode_retention(embeddings, held["reference_raw"], labels).mean
        row["retention, untrained"] = mode_retention(embeddings, held["reference_untrained"], labels).mean
        row["mode index, raw"] = mode_index(embeddings, held["reference_raw"], labels)
        row["within/between"] = pair_ratio(embeddings, labels)
        row |= inside(embeddings, labels)
        rows.append(row)
    return rows


def pair_ratio(embeddings: np.ndarray, labels: np.ndarray) -> float:
    """Mean distance within classes over mean distance between them, over all pairs."""
    distances = squareform(pdist(embeddings.astype(np.float64)))
    same = labels[:, None] == labels
    return float((distances[same].sum() / (same.sum() - len(labels))) / distances[~same].mean())


def inside(embeddings: np.ndarray, labels: np.ndarray) -> Row:
    """Means over the classes of the best silhouette of 2 to 10 clusters, its k, effective rank and local dimension."""
    found = []
    for label in np.unique(labels):
        points = embeddings[labels == label].astype(np.float64)[:SILHOUETTE]
        if len(points) < 30:
            continue
        scores = {k: silhouette_score(points, cluster(points, k, seed=0, restarts=3).assignment) for k in range(2, 11)}
        best = max(scores, key=lambda k: scores[k])
        shares = np.linalg.svd(points - points.mean(axis=0), compute_uv=False) ** 2
        shares = shares[shares > 0] / shares.sum()
        near = np.sort(squareform(pdist(points)), axis=1)[:, 1:11] + 1e-12
        dimension = np.mean(1 / np.log(near[:, -1:] / near[:, :-1]).mean(axis=1))  # Levina, Bickel 2004
        found.append((scores[best], best, np.exp(-(shares * np.log(shares)).sum()), dimension))
    names = ("silhouette", "clusters of it", "effective rank", "local dimension")
    means = np.mean(found, axis=0).tolist() if found else [None] * 4
    return dict(zip(names, means, strict=True))


def correlations(rows: list[Row]) -> list[Row]:
    """Spearman's, of each measure with the fine recall@1, over the coarsely trained runs of a data set and split."""
    found = []
    for data in ("digits", "mnist", "omniglot"):
        for split in ("train", "seen"):
            for seeds in ((0,), (1, 2)):
                chosen = [
                    row
                    for row in rows
                    if (row["data"], row["split"], row["level"]) == (data, split, "coarse") and row["seed"] in seeds
                ]
                if not chosen:
                    continue
                result: Row = {"data": data, "split": split, "seeds": seeds, "runs": len(chosen)}
                for measure in MEASURES:
                    values = [row[measure] for row in chosen]
                    recalls = [row["fine recall@1"] for row in chosen]
                    constant = len(set(values)) == 1 or None in values
                    result[measure] = None if constant else float(spearmanr(values, recalls).statistic)
                found.append(result)
    return found


def separations(rows: list[Row]) -> list[Row]:
    """How often a run with easy positives has the larger value than one with the loss's usual positives."""
    found = []
    for data, split in product(("digits", "mnist", "omniglot"), ("train", "seen")):
        chosen = [row for row in rows if (row["data"], row["split"], row["level"]) == (data, split, "coarse")]
        easy, usual = ([row for row in chosen if (row["positives"] == "easy") == arm] for arm in (True, False))
        result: Row = {"data": data, "split": split, "runs": len(chosen)}
        for measure in MEASURES:
            if any(row[measure] is None for row in chosen):
                result[measure] = None
                continue
            pairs = [np.sign(a[measure] - b[measure]) for a, b in product(easy, usual)]
            result[measure] = float(np.mean(pairs) + 1) / 2
        found.append(result)
    return found


def class_collapse(folder: Path) -> Row:
    make(folder)
    rows = []
    for run in runs():
        rows += retained(run, folder)
        print(json.dumps(rows[-1]), flush=True)
    return {"rows": rows, "correlations": correlations(rows), "separations": separations(rows)}


def gaussian(generator: np.random.Generator, n: int, d: int, spectrum: str, *, two: str = "") -> np.ndarray:
    """`(n, d)` points of one Gaussian, or of two whose means lie 4 standard deviations apart along an axis."""
    deviations = np.ones(d) if spectrum == "equal" else 1 / np.arange(1, d + 1)
    points = generator.standard_normal((n, d)) * deviations
    if two:
        axis = np.eye(d)[0] if two == "longest axis" else generator.standard_normal(d)
        axis = axis / np.linalg.norm(axis)
        points[: n // 2] += 4 * np.linalg.norm(axis * deviations) * axis
    return points


SHAPES: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "uniform cube, d = 4": lambda generator, n: generator.uniform(size=(n, 4)),
    "exponential, d = 4": lambda generator, n: generator.exponential(size=(n, 4)),
    "Student t of 4, d = 4": lambda generator, n: generator.standard_t(4, size=(n, 4)),
    "cap of a sphere, d = 8": lambda generator, n: normalised(0.4 * generator.standard_normal((n, 8)) + np.eye(8)[0]),
    "arc of a half circle, d = 8": lambda generator, n: arc(generator, n),
}


def normalised(points: np.ndarray) -> np.ndarray:
    return points / np.linalg.norm(points, axis=1, keepdims=True)


def arc(generator: np.random.Generator, n: int) -> np.ndarray:
    angle = generator.uniform(0, np.pi, n)
    return np.stack([np.cos(angle), np.sin(angle), *np.zeros((6, n))], axis=1) + 0.1 * generator.standard_normal((n, 8))


def mode_calibration(_: Path) -> Row:
    cells, shapes = [], []
    for n, d in product((20, 40, 100, 400), (2, 8, 32, 128)):
        for spectrum in ("equal", "1/k"):
            generator = np.random.default_rng((n, d, len(spectrum)))
            cell: Row = {"n": n, "d": d, "spectrum": spectrum}
            for name, wanted, two in (
                ("one", 1, ""),
                ("two", 2, "longest axis"),
                ("two, random axis", 2, "random axis"),
            ):
                counts = [count_modes(gaussian(generator, n, d, spectrum, two=two)).count for _ in range(TRIALS)]
                cell[name] = float(np.mean(np.array(counts) == wanted))
            cells.append(cell)
            print(json.dumps(cell), flush=True)
    for (name, draw), n in product(SHAPES.items(), (100, 400)):
        generator = np.random.default_rng(n)
        counts = [count_modes(draw(generator, n)).count for _ in range(TRIALS)]
        shapes.append(
            {"shape": name, "n": n, "one": float(np.mean(np.array(counts) == 1)), "mean": float(np.mean(counts))}
        )
    generator = np.random.default_rng(0)
    times = []
    for classes, items, d in ((1000, 100, 128), (100, 1000, 128)):
        points = generator.standard_normal((classes * items, d))
        began = time.perf_counter()
        class_modes(points, np.repeat(np.arange(classes), items))
        times.append({"classes": classes, "items": items, "d": d, "seconds": time.perf_counter() - began})
    return {"cells": cells, "shapes": shapes, "times": times, "trials": TRIALS}


def trained_verdicts(folder: Path) -> Row:
    rows = []
    for run in runs():
        held = np.load(folder / f"{run.name}.train.npz")
        coarse = run.level == "coarse"
        given: dict[str, Row] = {
            "nothing": {},
            "raw inputs": {"reference": held["reference_raw"]},
            "untrained network": {"reference": held["reference_untrained"]},
        } | ({"fine label": {"fine": {"fine": held["fine"]}}} if coarse else {})
        for name, options in given.items():
            found = diagnose(held["embeddings"], held["labels"], **options)
            arm = "fine" if not coarse else "easy" if run.positives == "easy" else "usual"
            rows.append(
                {
                    "run": run.name,
                    "data": run.data,
                    "arm": arm,
                    "given": name,
                    "found": [verdict.kind for verdict in found.verdicts],
                }
            )
        print(rows[-1], flush=True)
    return {"rows": rows}


def verdicts(_: Path) -> Row:
    rows = []
    for family in FAMILIES:
        for number, fate in enumerate(family()):
            found = diagnose(fate.embeddings, fate.labels, fate.reference, fate.strategy)
            kinds = [verdict.kind for verdict in found.verdicts]
            severity = next((one.severity for one in found.verdicts if one.kind == fate.kind), None)
            rows.append(
                {
                    "half": ("first", "second")[number % 2],
                    "fate": fate.name,
                    "kind": fate.kind,
                    "severity": fate.severity,
                    "found": kinds,
                    "found_severity": severity,
                    # What is spread out has no other verdict; a dead sampler may come beside another kind.
                    "right": kinds in (["healthy"], ["spread-out"]) if fate.kind == "healthy" else fate.kind in kinds,
                    "severity_right": fate.severity is None or severity == fate.severity,
                    "called_collapsed": found.collapsed,
                    "rules": [verdict.rule for verdict in found.verdicts],
                }
            )
            print(rows[-1], flush=True)
    return {"rows": rows}


def real_verdicts(folder: Path, weights: Path, encoder: Path) -> Row:
    rows = []
    for fate in real_fates(folder / "features", weights, encoder):
        beside, alone = (
            diagnose(fate.embeddings, fate.labels, known, distance="cosine")
            for known in ({"features": fate.reference}, None)
        )
        (compared,) = beside.measures.comparisons
        kinds, bare = ([verdict.kind for verdict in found.verdicts] for found in (beside, alone))
        rows.append(
            {
                "data": fate.data,
                "case": fate.name,
                "fate": fate.fate,
                "lost": fate.lost,
                "recall": compared.score,
                "reference_recall": compared.reference_score,
                "interval": [compared.low, compared.high],
                "with": kinds,
                "without": bare,
                "right": _right(fate.fate, kinds),
                "right_without": _right(fate.fate, bare, compared=False),
            }
        )
        print(json.dumps(rows[-1]), flush=True)
    return {"rows": rows}


def reference_modes(folder: Path, weights: Path, encoder: Path) -> Row:
    rows: list[Row] = []

    def judged(data: str, of: str, known: np.ndarray, levels: dict[str, np.ndarray]) -> None:
        for level, labels in levels.items():
            modes = class_modes(known, labels, significance=SPLIT / len(np.unique(labels)))
            rows.append(
                {"data": data, "of": of, "level": level}
                | {"split": float((modes.counts > 1).mean()), "index": mode_index(known, known, labels)}
                | {"sharing": mode_sharing(known, labels, modes)}
            )

    for data, (coarse, fine) in LEVELS.items():
        for dataset in datasets(data, "fine").values():
            for seed in range(DRAWS if len(dataset) > DRAWN else 1):
                part = dataset.subset(np.sort(np.random.RandomState(seed).permutation(len(dataset))[:DRAWN]))
                levels = {"classes": part.labels[fine], "groups": part.labels[coarse]}
                judged(data, "pixels", raw_inputs(part.inputs), levels)
                for name, width in (("conv4", 64), ("conv2", 8), ("mlp", 64)):
                    model = ModelConfig.model_validate({"name": name, "embedding_dim": width})
                    before = build(model, part.inputs.shape, seed)
                    judged(data, f"untrained {name}", embed(before, part.inputs), levels)
        print(rows[-1], flush=True)
    for data in GROUPED:
        features, labels = features_of(data, folder / "features", weights, encoder)
        names, classes = np.unique(labels, return_inverse=True)
        for seed in range(DRAWS):
            drawn = np.random.default_rng(seed).permutation(len(classes))[: MOST // 2]
            judged(data, "features", features[drawn], {"classes": classes[drawn]})
            for grouping, group_of in groupings(data, names, seed):
                kept = drawn[group_of[classes[drawn]] >= 0]
                judged(data, "features", features[kept], {grouping: group_of[classes[kept]]})
            # Half of the items as if taken with a second device, which moves them all alike.
            known, random = features[drawn], np.random.default_rng(seed)
            away = random.standard_normal(known.shape[1])
            away *= np.linalg.norm(known - known.mean(axis=0), axis=1).mean() / np.linalg.norm(away)
            second = random.random(len(known)) < 0.5
            for size in DEVICES:
                moved = known + size * second[:, None] * away
                judged(data, f"features, second device {size:g}", moved, {"classes": classes[drawn]})
        print(rows[-1], flush=True)
    return {"rows": rows}


def inside_verdicts(folder: Path, weights: Path, encoder: Path) -> Row:
    rows = []
    for one in insides(folder / "features", weights, encoder):
        found = diagnose(one.embeddings, one.labels, {"features": one.reference}, distance="cosine")
        names = ("data", "grouping", "way", "split", "seed", "inside", "lost")
        measured = ("reference_split", "reference_mode_index", "mode_index", "class_spread")
        rows.append(
            {name: getattr(one, name) for name in names}
            | {name: getattr(found.measures, name) for name in measured}
            | {"verdicts": [verdict.kind for verdict in found.verdicts]}
        )
        print(json.dumps(rows[-1]), flush=True)
    return {"rows": rows}


def run_verdicts(folder: Path, weights: Path, encoder: Path) -> Row:
    rows = []
    for fate in run_fates(folder / "run-fates", folder / "features", weights, encoder):
        section = fate.record.diagnosis[fate.split].as_json()
        kinds = [verdict["kind"] for verdict in section["verdicts"]]
        said = [verdict["cause"] for verdict in section["verdicts"] if verdict["kind"] == "worse-than-reference"]
        rows.append(
            {
                "half": fate.half,
                "data": f"{fate.data}, seed {fate.seed}",
                "case": fate.case.name,
                "fate": fate.fate,
                "lost": fate.lost,
                "rank_biased_lost": fate.rank_biased_lost,
                "against": f"{fate.reference}, {fate.level}",
                "comparisons": section["measures"]["comparisons"],
                "verdicts": kinds,
                "right": _right(fate.fate, kinds),
                "provoked": fate.case.cause,
                "true": [one for one in (fate.case.cause, *fate.case.also) if one],
                "named": [name for name, words in CAUSES.items() if said and words in said[0]],
                "said": said[0] if said else None,
            }
        )
        print(json.dumps(rows[-1] | {"comparisons": None}), flush=True)
    return {"rows": rows}


def _right(fate: str, kinds: list[str], *, compared: bool = True) -> bool:
    """Whether these verdicts do justice to a fate; a loss that is not asked for cannot be told."""
    told = {"no-better-than-chance", "worse-than-reference"} & {*kinds}
    if fate == "chance":
        return "no-better-than-chance" in kinds
    if fate == "worse" and compared:
        return bool(told)
    if fate == "good":
        return kinds in (["healthy"], ["spread-out"])
    return "healthy" not in kinds


def worse(now: Retrieval, reference: Retrieval, measure: str = "recall@1") -> bool:
    return compare_with_reference(now, reference, name="", level="", measure=measure).worse


def designed_twins() -> list[Row]:
    rows = []
    for number, (name, (draw, overs)) in enumerate(designs().items()):
        told, recalls = [], []
        for seed in range(DESIGNED):
            random = np.random.default_rng((2026, number, seed))
            points, labels = draw(random, overs[seed % len(overs)] == "classes")  # of others, or of the same
            a, b = (
                retrieve(points + NOISE * points.std() * random.normal(size=points.shape), labels) for _ in range(2)
            )
            for measure in ("recall@1", "map@r"):
                told += [worse(x, y, measure) for x, y in ((a, b), (b, a))]
            recalls.append(a.mean()["recall@1"])
        about = {"of": name, "classes": len(np.unique(labels)), "recalls": [min(recalls), max(recalls)]}
        rows.append(about | {"pairs": len(told), "told": sum(told)})
        print(rows[-1], flush=True)
    return rows


def equal_twins(_: Path) -> Row:
    rows = []
    for name in ("mnist", "omniglot"):
        settings = DataConfig.parse({"name": name, "image_size": 14}, source=name)
        splits = load(settings, None)
        parts = [splits.evaluation["unseen"]] if name == "omniglot" else [splits.train, *splits.evaluation.values()]
        level = LEVELS[name][1]
        pixels = np.concatenate([raw_inputs(part.inputs)[:8000] for part in parts])
        names = [part.names[level][label] for part in parts for label in part.labels[level][:8000].tolist()]
        labels = np.unique(names, return_inverse=True)[1]
        kept = np.flatnonzero(labels < min(400, labels.max() + 1))
        pixels, labels = pixels[kept] / np.linalg.norm(pixels[kept], axis=1, keepdims=True), labels[kept]
        half = labels < (labels.max() + 1) // 2
        other, hits = labels[~half][:4000], []
        for seed in range(TWINS):
            torch.manual_seed(seed)
            head = torch.nn.Linear(pixels.shape[1], 64)
            train_head(head, pixels[half], labels[half], steps=150, rate=1e-3, seed=seed)
            embedded = apply(head, pixels[~half][:4000])
            hits.append(retrieve(embedded, other, measures=("recall@1",), distance="cosine"))
        told = [worse(a, b) for a, b in permutations(hits, 2)]
        about = {
            "of": f"heads on {name}",
            "classes": len(np.unique(other)),
            "recalls": [one.mean()["recall@1"] for one in hits],
        }
        rows.append(about | {"pairs": len(told), "told": sum(told)})
        print(rows[-1], flush=True)
    for classes in (2, 5, 20, 100):
        told, recalls = [], []
        for seed in range(JITTERED):
            random = np.random.default_rng((classes, seed))
            labels = np.arange(400) % classes
            base = random.standard_normal((classes, 16))[labels] + 1.5 * random.standard_normal((400, 16))
            a, b = (
                retrieve(base + random.standard_normal(base.shape), labels, measures=("recall@1",)) for _ in range(2)
            )
            told += [worse(x, y) for x, y in ((a, b), (b, a))]
            recalls.append(a.mean()["recall@1"])
        about = {"of": "clusters with noise", "classes": classes, "recalls": [min(recalls), max(recalls)]}
        rows.append(about | {"pairs": len(told), "told": sum(told)})
        print(rows[-1], flush=True)
    rows += designed_twins()
    return {"rows": rows}


def equal_encoders(folder: Path, weights: Path, encoder: Path) -> Row:
    rows = []
    for one in subsets(folder / "features", weights, encoder):
        rows.append(asdict(one))
        print(rows[-1], flush=True)
    return {"rows": rows}


def large(_: Path) -> Row:
    threads = torch.get_num_threads()
    torch.set_num_threads(os.cpu_count() or 1)
    generator = np.random.default_rng(0)
    labels = np.repeat(np.arange(1000), 100)
    points = generator.standard_normal((1000, 128))[labels] + 0.6 * generator.standard_normal((len(labels), 128))
    points = points.astype(np.float32)
    seconds = []
    for _ in range(5):
        began = time.perf_counter()
        diagnose(points, labels)
        seconds.append(time.perf_counter() - began)
    torch.set_num_threads(threads)
    peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return {"seconds": seconds, "peak_mib": int(peak.split()[1]) / 1024, "cores": os.cpu_count()}


def page(record: Row) -> str:
    lines = ["# Measures of collapse", ""]
    for part, found in record["parts"].items():
        about = found["environment"]
        lines += [
            f"## {part}",
            "",
            f"`studies/diagnosis.py --parts {part}`, {found['created'][:10]}; shared "
            f"{about['machine']} server, torch {about['torch']}, numpy {about['numpy']}, scikit-learn "
            f"{about['scikit-learn']}. The method is described in that file.",
            "",
            *TABLES[part](found),
            "",
        ]
    return "\n".join(lines) + "\n"


def number(value: float | None, digits: int = 2) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def _calibration_tables(found: Row) -> list[str]:
    names = ("one", "two", "two, random axis")
    cells = [
        [str(c["n"]), str(c["d"]), c["spectrum"], *(f"{100 * c[name]:.1f}" for name in names)] for c in found["cells"]
    ]
    shapes = [[s["shape"], str(s["n"]), f"{100 * s['one']:.1f}", number(s["mean"])] for s in found["shapes"]]
    return [
        f"Share of {found['trials']} trials, in per cent, with the right number of modes: one Gaussian; two Gaussians "
        "of equal halves with means 4 standard deviations apart along the longest axis; along a random direction, in "
        "standard deviations of that direction.",
        "",
        *table(["n", "d", "standard deviations", "one", "two", "two, random direction"], cells),
        "Shapes in one piece that are not Gaussian.",
        "",
        *table(["shape", "n", "one mode, %", "mean count"], shapes),
        *(f"{t['classes']:,} classes of {t['items']} x {t['d']}: {t['seconds']:.1f} s.\n" for t in found["times"]),
    ]


def _collapse_tables(found: Row) -> list[str]:
    shown = [
        [
            row["run"],
            row["split"],
            *(f"{100 * row[key]:.1f}" for key in ("fine recall@1", "trained recall@1")),
            f"{100 * row['unseen fine recall@1']:.1f}" if "unseen fine recall@1" in row else "–",
            *(number(row[measure]) for measure in MEASURES),
        ]
        for row in found["rows"]
    ]
    related = [
        [
            row["data"],
            row["split"],
            "0 (chosen on)" if row["seeds"] == [0] else ", ".join(map(str, row["seeds"])),
            str(row["runs"]),
            *(number(row[measure]) for measure in MEASURES),
        ]
        for row in found["correlations"]
    ]
    apart = [
        [row["data"], row["split"], str(row["runs"]), *(number(row[measure]) for measure in MEASURES)]
        for row in found["separations"]
    ]
    levels = [
        [data, split, index, *(_range(found["rows"], data, split, index, arm) for arm in ("usual", "easy", "fine"))]
        for data, split, index in product(LEVELS, ("train", "seen"), ("mode index, raw", "within/between"))
    ]
    return [
        "Range over the runs on the coarse label with the loss's usual positives, with easy positives, and over the "
        "runs on the fine label.",
        "",
        *table(["data", "split", "measure", "usual positives", "easy positives", "fine label"], levels),
        "Spearman's rank correlation with fine recall@1 over the runs trained on the coarse label; methods were chosen "
        "on seed 0. train: items trained on; seen: other items of the trained classes.",
        "",
        *table(["data", "split", "seeds", "runs", *MEASURES], related),
        "How often a run with easy positives has the larger value than one with the loss's usual positives, over all "
        "seeds; 1 or 0: the measure separates them; 0.5: it does not.",
        "",
        *table(["data", "split", "runs", *MEASURES], apart),
        "All runs; the name says data, level trained on, loss, positives, batch and seed; recall in per cent.",
        "",
        *table(["run", "split", "fine recall@1", "trained level", "unseen, fine", *MEASURES], shown),
    ]


def _range(rows: list[Row], data: str, split: str, measure: str, arm: str) -> str:
    values = [
        row[measure]
        for row in rows
        if (row["data"], row["split"]) == (data, split)
        and arm == ("fine" if row["level"] == "fine" else "easy" if row["positives"] == "easy" else "usual")
    ]
    known = [value for value in values if value is not None]
    return f"{min(known):.2f} to {max(known):.2f} ({len(known)} of {len(values)})" if known else "–"


def _verdict_tables(found: Row) -> list[str]:
    lines = []
    for half in ("first", "second"):
        rows = [row for row in found["rows"] if row["half"] == half]
        healthy = [row for row in rows if row["kind"] == "healthy"]
        use = "on which thresholds were chosen" if half == "first" else "the test"
        lines += [
            f"The {half} half, {use}: the right kind for {sum(row['right'] for row in rows)} of {len(rows)}, the right "
            f"severity for {sum(row['severity_right'] for row in rows)}; "
            f"{sum(row['called_collapsed'] for row in healthy)} of {len(healthy)} healthy ones called collapsed.",
            "",
        ]
        kinds = dict.fromkeys(row["kind"] for row in rows)
        lines += table(
            ["kind", "cases", "right"],
            (
                [
                    kind,
                    str(sum(row["kind"] == kind for row in rows)),
                    str(sum(row["right"] for row in rows if row["kind"] == kind)),
                ]
                for kind in kinds
            ),
        )
        lines += [""]
    wrong = [row for row in found["rows"] if not (row["right"] and row["severity_right"])]
    lines += ["Not as expected:", ""] if wrong else ["All as expected.", ""]
    lines += (
        table(
            ["half", "case", "expected", "verdict", "rule"],
            (
                [
                    row["half"],
                    row["fate"],
                    f"{row['kind']} {row['severity'] or ''}".strip(),
                    f"{', '.join(row['found'])} {row['found_severity'] or ''}".strip(),
                    "; ".join(row["rules"]),
                ]
                for row in wrong
            ),
        )
        if wrong
        else []
    )
    return lines


def _trained_tables(found: Row) -> list[str]:
    def share(data: str, arm: str, given: str) -> str:
        chosen = [row for row in found["rows"] if (row["data"], row["arm"], row["given"]) == (data, arm, given)]
        return f"{sum('class-collapse' in row['found'] for row in chosen)} of {len(chosen)}" if chosen else "–"

    arms = ("usual", "easy", "fine")
    others = {kind for row in found["rows"] for kind in row["found"]} - {"healthy", "spread-out", "class-collapse"}
    return [
        "Runs called class collapse; the others are called healthy or spread out"
        + (f", or {', '.join(sorted(others))}" if others else "")
        + ".",
        "",
        *table(
            ["data", "given besides labels", "usual positives", "easy positives", "fine label trained on"],
            (
                [data, given, *(share(data, arm, given) for arm in arms)]
                for data in LEVELS
                for given in ("nothing", "raw inputs", "untrained network", "fine label")
            ),
        ),
    ]


def _large_tables(found: Row) -> list[str]:
    seconds = sorted(found["seconds"])
    return [
        f"{np.median(seconds):.1f} s (rounds of {seconds[0]:.1f} to {seconds[-1]:.1f} s), {found['peak_mib']:.0f} MiB "
        f"in all, on {found['cores']} cores; goals 20 s and 2 GiB.",
    ]


ENCODED = (
    "real-verdicts",
    "reference-modes",
    "inside-verdicts",
    "run-verdicts",
    "equal-encoders",
)  # need the pretrained networks
PARTS: dict[str, Callable[..., Row]] = {
    "mode-calibration": mode_calibration,
    "class-collapse": class_collapse,
    "trained-verdicts": trained_verdicts,
    "verdicts": verdicts,
    "real-verdicts": real_verdicts,
    "reference-modes": reference_modes,
    "inside-verdicts": inside_verdicts,
    "run-verdicts": run_verdicts,
    "equal-twins": equal_twins,
    "equal-encoders": equal_encoders,
    "large": large,
}


def _real_tables(found: Row) -> list[str]:
    rows = found["rows"]
    counted = [
        [
            fate,
            str(len(chosen)),
            str(sum(row["right"] for row in chosen)),
            str(sum(row["right_without"] for row in chosen)),
            ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds)),
        ]
        for fate in ("good", "slightly worse", "worse", "chance")
        if (chosen := [row for row in rows if row["fate"] == fate])
        for kinds in [[row["with"][0] for row in chosen]]
    ]
    cases = [
        [
            row["data"],
            row["case"],
            row["fate"],
            "by making" if row["lost"] is None else f"{100 * row['lost']:+.1f}",
            f"{100 * row['recall']:.1f} / {100 * row['reference_recall']:.1f}",
            " to ".join(f"{100 * end:+.1f}" for end in row["interval"]),
            ", ".join(row["with"]),
            ", ".join(row["without"]),
            "yes" if row["right"] and row["right_without"] else "no",
        ]
        for row in rows
    ]
    return [
        "The fate is by making, or what recall@1 lost against the features on items that were not diagnosed: worse "
        "from 10 points, slightly worse from 1 if that is more than two standard errors, else good. Right is, of a "
        "good one, healthy or spread out; of a slightly worse one, anything but healthy; of a worse one, worse than "
        "its reference or no better than chance; of chance, that.",
        "",
        *table(["fate", "cases", "right", "right without reference", "first verdict"], counted),
        "Recall@1 in per cent, of the embedding and of the features; its difference in points, with its interval.",
        "",
        *table(
            ["data", "case", "fate", "lost elsewhere", "recall@1", "interval", "with", "without reference", "right"],
            cases,
        ),
    ]


def _modes_tables(found: Row) -> list[str]:
    least, seen, alike = (THRESHOLDS[name].value for name in ("union", "seen", "sharing"))

    def ends(values: list[float]) -> str:
        return f"{min(values):.2f} to {max(values):.2f}" if values else "–"

    def cells(data: str, of: str, level: str) -> list[str]:
        rows = [row for row in found["rows"] if (row["data"], row["of"], row["level"]) == (data, of, level)]
        counted = [row for row in rows if row["split"] >= seen]
        indices, sharing = ([row[of] for row in counted if row[of] is not None] for of in ("index", "sharing"))
        unions = sum(row["index"] >= least and (row["sharing"] or 0) < alike for row in counted)
        return [data, of, level, *map(str, (len(rows), len(counted))), ends(indices), ends(sharing), str(unions)]

    keys = dict.fromkeys((row["data"], row["of"], row["level"]) for row in found["rows"])
    return [
        f"Counted: with modes in {seen:g} of the classes or more. The mode index of the reference itself, how far the "
        f"same thing parts every class, and how many of the counted have {least:g} or more of the first and less than "
        f"{alike:g} of the second: there a class collapse may be told. A second device moves half of the items alike, "
        "by so many times their mean distance from the middle.",
        "",
        *table(
            ["data", "reference", "labels", "references", "counted", "mode index", "sharing", "unions"],
            (cells(*key) for key in keys),
        ),
    ]


def _inside_tables(found: Row) -> list[str]:
    def counted(way: str, inside: str, split: str) -> list[str]:
        rows = [
            row["verdicts"]
            for row in found["rows"]
            if (row["way"], row["inside"], row["split"]) == (way, inside, split)
        ]
        kinds = ("class-collapse", "worse-than-reference", "spread-out", "healthy")
        return [str(len(rows)), *(str(sum(kind in verdicts for verdicts in rows)) for kind in kinds)]

    rows = found["rows"]
    keys = sorted({(row["way"], row["inside"], row["split"]) for row in rows})
    return [
        "What became of the classes, on items that were not trained on: lost if recall@1 by class is 10 points lower "
        "than in the features, slightly lost if lower by 1 point and two standard errors, else kept. The diagnosis "
        "knows the label trained on and the features. train: items trained on; seen: others of the same classes.",
        "",
        *table(
            ["trained on", "classes", "split", "heads", "class collapse", "worse than reference", "open", "healthy"],
            ([way, inside, split, *counted(way, inside, split)] for way, inside, split in keys),
        ),
        "Points of recall@1 by class that were lost; share of the classes in which the features show modes; mode index "
        "of the features and of the embedding.",
        "",
        *table(
            [
                "data",
                "groups",
                "trained on",
                "seed",
                "lost",
                "split",
                "with modes",
                "features",
                "embedding",
                "verdicts",
            ],
            (
                [
                    *(row["data"], row["grouping"], row["way"], str(row["seed"]), f"{100 * row['lost']:+.1f}"),
                    *(row["split"], number(row["reference_split"]), number(row["reference_mode_index"])),
                    *(number(row["mode_index"]), ", ".join(row["verdicts"])),
                ]
                for row in rows
            ),
        ),
    ]


def _run_tables(found: Row) -> list[str]:
    def worst(row: Row) -> str:
        one = min(row["comparisons"], key=lambda one: one["difference"])
        ends = " to ".join(f"{100 * one[end]:+.1f}" for end in ("low", "high"))
        return f"{100 * one['recall']:.1f} / {100 * one['reference_recall']:.1f} ({ends})"

    def counted(rows: list[Row]) -> list[str]:
        told = [row for row in rows if "worse-than-reference" in row["verdicts"]]
        asked = [row for row in told if row["provoked"] and "network-collapse" not in row["verdicts"]]
        return [
            str(sum(row["right"] for row in rows)),
            str(sum(row["fate"] == "good" and not row["right"] for row in rows)),
            str(sum(row["fate"] != "good" and row["verdicts"] == ["healthy"] for row in rows)),
            f"{sum(row['provoked'] in row['named'] for row in asked)} of {len(asked)}",
            str(sum(bool({*row["named"]} - {*row["true"]}) for row in told)),
        ]

    rows = found["rows"]
    lines = [
        "The fate is what recall@1 lost on items that were kept out of the run, in points, against the reference and "
        "at the level where it lost most: worse from 10 points, slightly worse from 1 if that is more than two "
        "standard errors, else good. Right is as above. Recall@1 of the run and of a reference is that of the largest "
        "loss in its record, in per cent, with the interval of the difference. A cause is asked for where one was "
        "provoked and the run is called worse, but not collapsed: then the collapse is the cause. Settings and rules "
        "were chosen on the first half.",
        "",
        *table(
            ["half", "fate", "runs", "right", "accused though good", "healthy though worse", "cause named", "another"],
            (
                [half, fate, str(len(chosen)), *counted(chosen)]
                for half in ("first", "second")
                for fate in ("good", "slightly worse", "worse")
                if (chosen := [row for row in rows if row["half"] == half and row["fate"] == fate])
            ),
        ),
    ]
    for half in ("first", "second"):
        lines += [
            f"The {half} half:",
            "",
            *table(
                [
                    "data",
                    "run",
                    "fate",
                    "lost elsewhere",
                    "against",
                    "recall@1",
                    "verdicts",
                    "right",
                    "provoked",
                    "named",
                ],
                (
                    [
                        *(row["data"], row["case"], row["fate"], f"{100 * row['lost']:+.1f}", row["against"]),
                        *(worst(row), ", ".join(row["verdicts"]), "yes" if row["right"] else "no"),
                        *(row["provoked"] or "–", ", ".join(row["named"]) or "–"),
                    ]
                    for row in rows
                    if row["half"] == half
                ),
            ),
        ]
    return lines


def _twin_tables(found: Row) -> list[str]:
    pairs, told = (sum(row[key] for row in found["rows"]) for key in ("pairs", "told"))
    return [
        f"{told} of {pairs} called worse ({100 * told / pairs:.2f} %; goal at most 1 %).",
        "",
        *table(
            ["of", "classes", "recall@1", "ordered pairs", "called worse"],
            (
                [
                    row["of"],
                    str(row["classes"]),
                    f"{100 * min(row['recalls']):.1f} to {100 * max(row['recalls']):.1f}",
                    str(row["pairs"]),
                    str(row["told"]),
                ]
                for row in found["rows"]
            ),
        ),
    ]


def _encoder_tables(found: Row) -> list[str]:
    total, told = (sum(row[key] for row in found["rows"]) for key in ("pairs", "told"))
    return [
        f"One called worse than the other in {told} of {total}.",
        "",
        *table(
            ["of", "all classes", "recall@1 over all", "classes drawn", "draws", "10 points apart", "called worse"],
            (
                [
                    *(row["of"], str(row["all_classes"]), " / ".join(f"{100 * one:.1f}" for one in row["recalls"])),
                    *map(str, (row["classes"], row["pairs"], row["large"], row["told"])),
                ]
                for row in found["rows"]
            ),
        ),
    ]


TABLES: dict[str, Callable[[Row], list[str]]] = {
    "mode-calibration": _calibration_tables,
    "class-collapse": _collapse_tables,
    "trained-verdicts": _trained_tables,
    "verdicts": _verdict_tables,
    "real-verdicts": _real_tables,
    "reference-modes": _modes_tables,
    "inside-verdicts": _inside_tables,
    "run-verdicts": _run_tables,
    "equal-twins": _twin_tables,
    "equal-encoders": _encoder_tables,
    "large": _large_tables,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--runs", type=Path, default=Path("runs/diagnosis"), help="the folder of trained embeddings")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "diagnosis.json")
    parser.add_argument("--weights", type=Path, default=Path("tf_efficientnet_lite0.safetensors"))
    parser.add_argument("--text-encoder", type=Path, default=Path("all-MiniLM-L6-v2"), help="a folder")
    options = parser.parse_args()
    torch.set_num_threads(1)
    before = pages.read(options.output).get("parts", {})
    about = {"trivet": trivet.__version__, **pages.versions("torch", "numpy", "scipy", "scikit-learn")}
    about |= {"python": platform.python_version(), "machine": platform.machine()}
    for part in options.parts:
        needs = (options.weights, options.text_encoder) if part in ENCODED else ()
        found = PARTS[part](options.runs, *needs)
        found |= {"created": datetime.now(UTC).isoformat(timespec="seconds"), "environment": about}
        # Through JSON, so that the page is the same whether a part was measured now or before.
        before[part] = json.loads(json.dumps(found))
        record: Row = {"parts": {name: before[name] for name in PARTS if name in before}}
        pages.write(options.output, record, page(record))


if __name__ == "__main__":
    main()
