"""Measures of a network in an experiment of a paper."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from scipy.spatial.distance import squareform
from torch import nn

from trivet.commands.evaluate.trained_model import collapse_index
from trivet.datasets import Dataset, Splits
from trivet.metrics import evaluate
from trivet.models import Embedder, in_unit_range
from trivet.training.class_sample import class_sample
from trivet.training.components import make_batches
from trivet.training.config import RunConfig
from trivet.training.embed_dataset import embed, raw_inputs
from trivet.training.loop import NotFiniteError

Measured = dict[str, float | int | str | list[Any] | None]
"""Measure -> value, of a run at a step: a number, or rows of numbers for a picture."""
TRAIN = "train"
MOST = 6000  # training items that are measured
SPREAD, STATISTICS = 1000, 2000  # held-out items whose distances are measured; that batch norm is calibrated with


@dataclass(eq=False)
class MeasuredModel:
    """A network at a step of a run."""

    model: Embedder
    config: RunConfig
    splits: Splits
    step: int
    _known: dict[str, np.ndarray] = field(default_factory=dict)

    def items(self, split: str) -> Dataset:
        """Those of an evaluation split, or of "train": at most `MOST`, of as many classes as this allows."""
        if split != TRAIN:
            return self.splits.evaluation[split]
        train = self.splits.train
        if len(train) <= MOST:
            return train
        return train.subset(class_sample(train.labels[list(train.labels)[-1]], MOST, least=10, seed=0))

    def embeddings(self, split: str) -> np.ndarray:
        if split not in self._known:
            embeddings = embed(self.model, self.items(split).inputs)
            if not np.isfinite(embeddings).all():
                raise NotFiniteError(f"the embeddings of {split} are not finite")
            self._known[split] = embeddings
        return self._known[split]


def evaluated(subject: MeasuredModel, *, measures: Sequence[str] = (), only: str = "") -> Measured:
    """Measures of the evaluation splits at all levels, or of one split; none are recall at each K of the settings."""
    values: Measured = {}
    for split in [only] if only else subject.splits.evaluation:
        values |= _measures(subject, split, subject.embeddings(split), measures)
    return values


def inputs_recall(subject: MeasuredModel) -> Measured:
    """Recall of the inputs as they are, under the names of `recall`: for a row of a table beside those of networks."""
    values: Measured = {}
    for split, items in subject.splits.evaluation.items():
        values |= _measures(subject, split, raw_inputs(items.inputs))
    return values


def backbone_recall(subject: MeasuredModel) -> Measured:
    """Recall of the features of the backbone, where the network has one."""
    values: Measured = {}
    if subject.model.backbone is not None:
        for split, items in subject.splits.evaluation.items():
            features = _measures(subject, split, embed(subject.model.backbone, items.inputs))
            values |= {f"zero-shot {name}": value for name, value in features.items()}
    return values


def collapse(subject: MeasuredModel) -> Measured:
    """The fine/coarse index of training and held-out items: near 0 where fine classes fall together."""
    values: Measured = {}
    for split in (TRAIN, *subject.splits.evaluation):
        index = collapse_index(subject.embeddings(split), subject.items(split))
        if index is not None:
            values[f"{split}/fine-coarse"] = index.index
    return values


def training_set(subject: MeasuredModel) -> Measured:
    """Recall and NMI of all training items, however many."""
    items = subject.splits.train
    return _measures(subject, TRAIN, embed(subject.model, items.inputs), (*_recalls(subject), "nmi"), items)


def sub_clusters(subject: MeasuredModel) -> Measured:
    """Spread and modes of the classes trained on, and a map of some."""
    from trivet_papers.levi2021.sub_clusters import class_map, shape_of_classes  # here: it is of one paper

    points, labels = subject.embeddings(TRAIN), subject.items(TRAIN).labels[subject.splits.level]
    values: Measured = {f"{TRAIN}/{name}": value for name, value in shape_of_classes(points, labels).items()}
    return values | {f"{TRAIN}/map": class_map(points, labels)}


def holdout_map(subject: MeasuredModel) -> Measured:
    """A map of held-out items, by their finest classes."""
    from trivet_papers.levi2021.sub_clusters import class_map  # here: it is of one paper

    split, items = next(iter(subject.splits.evaluation.items()))
    return {f"{split}/map": class_map(subject.embeddings(split), list(items.labels.values())[-1])}


def neighbourhoods(subject: MeasuredModel) -> Measured:
    """The share of the nearest held-out items of a class with the same view, the finest level; and some to draw."""
    from trivet_papers.levi2021.neighbourhoods import (
        chance_share,
        neighbour_rows,
        view_share,
    )  # here: it is of one paper

    split, items = next(iter(subject.splits.evaluation.items()))
    points, classes = subject.embeddings(split), items.labels[subject.splits.level]
    views = list(items.labels.values())[-1]
    images = in_unit_range(items.inputs.batch(np.arange(len(items)))).mean(dim=1).numpy()
    return {
        f"{split}/same view": view_share(points, classes, views),
        f"{split}/same view by chance": chance_share(classes, views),
        f"{split}/neighbours": neighbour_rows(points, classes, views, images),
    }


def spread(subject: MeasuredModel) -> Measured:
    """Distances among held-out items: their mean, median and largest, the effective rank, and recall@1 among these.

    The statistics of batch norm that an untrained network lacks are first taken from training items.
    """
    holdout = next(iter(subject.splits.evaluation.values()))
    labels = list(holdout.labels.values())[-1]
    items = holdout.subset(class_sample(labels, SPREAD, least=10, seed=0))
    model = calibrated(subject.model, subject.splits) if subject.step == 0 else subject.model
    points = embed(model, items.inputs).astype(np.float64)
    distances = torch.pdist(torch.from_numpy(points)).numpy()
    nearest = squareform(distances)
    np.fill_diagonal(nearest, np.inf)
    classes = items.labels[list(items.labels)[-1]]
    values = np.linalg.svd(points - points.mean(axis=0), compute_uv=False)
    shares = values[values > 0] / max(values.sum(), np.finfo(float).tiny)
    return {
        "distance mean": float(distances.mean()),
        "distance median": float(np.median(distances)),
        "diameter": float(distances.max()),
        "effective rank": float(np.exp(-(shares * np.log(shares)).sum())),
        "sample recall@1": float((classes[nearest.argmin(axis=1)] == classes).mean()),
    }


def first_batch(subject: MeasuredModel) -> Measured:
    """Hardest triplet of each anchor of the first batch and its diameter, before a step, in plain distances."""
    from trivet_papers.xu2024.training import batch_hard_hinges  # here: it is of one paper

    splits = subject.splits
    index = make_batches(subject.config, splits.train, splits.level).batch(0, 0)
    model = copy.deepcopy(subject.model).train()
    with torch.no_grad():
        embeddings = model(splits.train.inputs.batch(index)).double()
        margin = float(getattr(subject.config.loss, "margin", 0.0))
        hinges = batch_hard_hinges(embeddings, torch.from_numpy(splits.train.labels[splits.level][index]), margin)
    largest = float(torch.pdist(embeddings).max())
    return {"first loss max": float(hinges.max()), "first loss mean": float(hinges.mean()), "first diameter": largest}


def calibrated(model: Embedder, splits: Splits) -> Embedder:
    """A copy of the network whose batch norm has the statistics of training items, if it learns them."""
    model = copy.deepcopy(model).train()
    norms = [
        module for module in model.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.training
    ]
    if norms:
        for norm in norms:
            norm.reset_running_stats()
            norm.momentum = None  # the mean over all that it sees
        some = np.random.default_rng(0).permutation(len(splits.train))[:STATISTICS]
        with torch.no_grad():
            for rows in np.array_split(some, max(1, min(8, len(some) // 2))):  # a single item has no statistics
                model(splits.train.inputs.batch(rows))
    return model.eval()


def _recalls(subject: MeasuredModel) -> tuple[str, ...]:
    return tuple(f"recall@{k}" for k in subject.config.evaluation.k)


def _measures(
    subject: MeasuredModel,
    split: str,
    embeddings: np.ndarray,
    measures: Sequence[str] = (),
    items: Dataset | None = None,
) -> Measured:
    """ "SPLIT/LEVEL/MEASURE" -> value; without names recall at each K of the settings."""
    measures, options = measures or _recalls(subject), subject.config.evaluation
    by_level = evaluate(
        **(items or subject.items(split)).evaluation_arguments(embeddings),
        measures=measures,
        nmi_plus_multiple=options.nmi_plus,
        distance=options.distance,
    )
    rows = {level: result.as_json() for level, result in by_level.items()}
    return {f"{split}/{level}/{name}": row[name] for level, row in rows.items() for name in measures}
