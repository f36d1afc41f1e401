"""Does a sampling strategy still find anything to learn from in an embedding?"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from trivet.collapse.spread import class_members
from trivet.distances import Array, as_classes, as_rows, unit_rows
from trivet.losses.engine import EmbeddingLoss
from trivet.mining import mine
from trivet.runtime.arrays import Floats
from trivet.runtime.progress import steps

BATCHES = 32


@dataclass(frozen=True)
class SamplingStrategy:
    """Sampling of a training: a loss with its selectors, and the shape of a batch.

    Attributes:
        loss: any loss of Trivet; a copy is evaluated, so its record and its random state stay as they are.
        classes_per_batch: P >= 2.
        samples_per_class: K >= 2.
    """

    loss: EmbeddingLoss
    classes_per_batch: int
    samples_per_class: int

    def __post_init__(self) -> None:
        if self.classes_per_batch < 2 or self.samples_per_class < 2:
            raise ValueError(
                "a batch needs at least two classes and two samples of each: got classes_per_batch = "
                f"{self.classes_per_batch} and samples_per_class = {self.samples_per_class}."
            )


@dataclass(frozen=True)
class SamplingStats:
    """Means over random batches; shares in [0, 1].

    Attributes:
        batches: that were drawn.
        loss: its mean value.
        active_fraction, hard_fraction: see `StepStats`.
        dropped: share of the anchors without a term.
        mean_to_positive, mean_to_negative: mean distance to what was chosen, in the unit of the loss's distance; NaN
            where nothing was.
        s_ap, s_an: mean cosine similarity to the nearest positive and to the nearest negative of a batch, the centre of
            its triplet scatter.
        choices: positives that an anchor chooses from. With 1 every rule chooses the same one: easy positives are the
            same as random ones then.
    """

    batches: int
    loss: float
    active_fraction: float
    hard_fraction: float
    dropped: float
    mean_to_positive: float
    mean_to_negative: float
    s_ap: float
    s_an: float
    choices: float


def sampling(
    embeddings: Array, labels: Array, strategy: SamplingStrategy, *, batches: int = BATCHES, seed: int = 0
) -> SamplingStats:
    """Evaluate the loss on random batches of P classes x K items of finished embeddings.

    A class with fewer than K items gives all it has; classes of one item are left out.

    Args:
        embeddings: `(N, d)` floating point.
        labels: `(N,)` of any integer dtype; two classes of at least two items.
        batches: at least 1.
        seed: of the batches.

    Raises:
        ValueError: if shapes or dtypes disagree, a row is not finite, fewer than two classes have two items, or the
            loss cannot be evaluated.
    """
    points = as_rows(embeddings).cpu()
    classes = as_classes(labels, count=len(points))
    members = [rows for rows in class_members(classes.numpy()) if len(rows) > 1]
    if len(members) < 2:
        raise ValueError(
            f"a batch needs two classes of at least two items: got {len(members)}; give more items of each class."
        )
    if batches < 1:
        raise ValueError(f"batches must be at least 1: got {batches}.")
    generator = np.random.default_rng(seed)
    loss = copy.deepcopy(strategy.loss).cpu()
    kind = next((parameter.dtype for parameter in loss.parameters()), torch.float64)
    rows_of_values = []
    for _ in steps(range(batches), "batches of the strategy"):
        chosen = generator.permutation(len(members))[: strategy.classes_per_batch]
        rows = [generator.permutation(members[members_of])[: strategy.samples_per_class] for members_of in chosen]
        index = torch.from_numpy(np.concatenate(rows))
        batch, batch_labels = points[index].to(kind), classes[index]
        with torch.no_grad():
            value = float(loss(batch, batch_labels))
        assert loss.last is not None
        record = loss.last
        units = unit_rows(as_rows(batch))
        pairs = mine(units, batch_labels, positives="easy", negatives="hard", distance="cosine")
        rows_of_values.append(
            (
                value,
                record.active_fraction,
                record.hard_fraction,
                sum(record.dropped.values()) / len(index),
                record.mean_to_positive,
                record.mean_to_negative,
                _similarity(units, pairs.anchor, pairs.positive),
                _similarity(units, pairs.anchor, pairs.negative),
                float(np.mean([len(members_of) - 1 for members_of in rows])),
            )
        )
    return SamplingStats(batches, *(_mean(np.array(column)) for column in zip(*rows_of_values, strict=True)))


def _similarity(units: Tensor, left: Tensor, right: Tensor) -> float:
    """Mean cosine of pairs, by differences, which keep the digits of near-duplicates; NaN without any."""
    distances = (units[right] - units[left]).square().sum(dim=1) / 2
    return _mean((1 - distances).clamp(-1, 1).numpy())


def _mean(values: Floats) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else math.nan
