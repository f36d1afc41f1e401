"""The probe of a run: held-out items that its guard asks, of the validation part or left out of training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from trivet.collapse.probe import STEP_COST, Probe
from trivet.datasets import Dataset, Splits
from trivet.mining import Relation
from trivet.models import Embedder
from trivet.runtime.arrays import Integers
from trivet.runtime.text import counted
from trivet.training.checkpoint_selection import selection_split
from trivet.training.class_sample import class_sample
from trivet.training.config import GuardConfig
from trivet.training.embed_dataset import embed

FEWEST, MOST = 100, 300  # items: fewer cannot tell a loss and are not left out; more are asked for by settings alone
LEAST = 4  # items of a class in it, so that there is something to retrieve
OF_A_CLASS, OF_ALL = 5, 20  # training leaves out at most one item in so many


@dataclass(frozen=True)
class ProbeItems:
    """The items of a probe.

    Attributes:
        items: to embed.
        split: the evaluation split they are of; None where they were left out of training.
        rows: ascending positions of the training items that are left out.
        levels: the level that is trained on, and a finer one if there is one.
    """

    items: Dataset
    split: str | None
    rows: Integers
    levels: tuple[str, ...]

    @property
    def sentence(self) -> str:
        """A sentence on the items of the probe."""
        level = self.levels[0]
        classes = counted(len(self.items.classes(level)), self.items.unit(level))
        where = (
            f"left out of training, so that {self.rows.size} fewer are trained on"
            if self.split is None
            else f"of the split {self.split}"
        )
        return f"The guard asks a probe of {len(self.items)} items in {classes}, {where}."

    def probe_of(self, model: Embedder, *, cosine: bool) -> Probe:
        """The function that the monitor calls: embeddings `(M, d)` of the items, their labels, and their finer ones.

        Args:
            model: in training; it is left in the mode it is in.
            cosine: give unit rows, as embeddings of the run are compared by cosine.
        """
        known = [self.items.relation(level) for level in self.levels]
        labels = [each if isinstance(each, Relation) else torch.from_numpy(each) for each in known]

        def embed_items() -> Sequence[Any]:
            embeddings = torch.from_numpy(embed(model, self.items.inputs))
            return (torch.nn.functional.normalize(embeddings) if cosine else embeddings), *labels

        return embed_items


def probe_items(guard: GuardConfig, splits: Splits, *, batch_size: int, seed: int) -> ProbeItems | None:
    """The probe of a run; None where the settings ask for none, or there are too few items.

    Of the validation part, if there is one. Else training items are left out: at most a twentieth of all and a fifth of
    a class, four or more of each class in it, by the finest level whose classes have enough. Unless the settings name a
    number, a call costs as much as a step, with 100 to 300 items. The choice depends on the seed, the items and the
    size of a batch alone.
    """
    wanted = guard.probe
    if wanted is None:
        wanted = min(MOST, max(FEWEST, STEP_COST * batch_size))
    level, finest = splits.level, list(splits.train.labels)[-1]
    levels = (level,) if finest == level or finest in splits.train.relations else (level, finest)
    split = selection_split(splits)
    if not wanted:
        return None
    if split is not None:
        dataset = splits.evaluation[split]
        rows = class_sample(_finest(dataset, levels, LEAST), wanted, least=LEAST, seed=seed)
        items = dataset.subset(rows)
        if len(items.classes(level)) < 2:
            return None
        return ProbeItems(items, split, np.zeros(0, dtype=np.int64), levels)
    if not guard.leaves_out:
        return None
    labels = _finest(splits.train, levels, LEAST * OF_A_CLASS)
    rows = _left_out(labels, min(wanted, len(splits.train) // OF_ALL), seed=seed)
    if len(rows) < FEWEST or len(splits.train.classes(level, rows)) < 2:
        return None
    return ProbeItems(splits.train.subset(rows), None, rows, levels)


def no_probe_reason(guard: GuardConfig, splits: Splits) -> str:
    """The reason why there is no probe of as many items as the settings name; empty where they name none."""
    if not guard.probe:
        return ""
    split, needed = selection_split(splits), "in two classes or more"
    if split is not None:
        return f"The guard asks no probe: it needs {LEAST} items of a class, {needed}, and the split {split} has fewer."
    items = len(splits.train)
    return (
        f"The guard asks no probe: it needs {FEWEST} items {needed}, at most a twentieth of the {items} training items "
        f"and a fifth of a class, and guard.probe = {guard.probe}."
    )


def _finest(dataset: Dataset, levels: tuple[str, ...], items: int) -> Integers:
    """The labels of the finest of the levels, if at least half of its classes have so many items; else of the first.

    Items with tags or of pairs are of one class.
    """
    finest, coarse = (dataset.labels[level] for level in (levels[-1], levels[0]))
    if levels[-1] not in dataset.relations and np.median(np.unique(finest, return_counts=True)[1]) >= items:
        return finest
    return np.zeros_like(coarse) if levels[0] in dataset.relations else coarse


def _left_out(labels: Integers, most: int, *, seed: int) -> Integers:
    """Ascending positions of at most `most` items, of random classes or, if these are few, of all."""
    generator = np.random.default_rng(seed)
    classes, counts = np.unique(labels, return_counts=True)
    large = generator.permutation(classes[counts >= LEAST * OF_A_CLASS])
    each = max(LEAST, -(-most // max(1, len(large))))
    chosen: list[Integers] = []
    left = most
    for label in large:
        rows = generator.permutation(np.flatnonzero(labels == label))
        rows = rows[: min(each, len(rows) // OF_A_CLASS, left)]
        if len(rows) < LEAST:
            break
        chosen.append(rows)
        left -= len(rows)
    return np.sort(np.concatenate(chosen)) if chosen else np.zeros(0, dtype=np.int64)
