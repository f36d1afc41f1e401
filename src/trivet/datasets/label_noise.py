"""Label noise in the training items of a run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Literal, Self

import numpy as np
from pydantic import Field, model_validator

from trivet.config.base import Config
from trivet.datasets.dataset import Dataset, Inputs, Splits, TrainingNoise, check_classes, check_trainable
from trivet.label_noise import Noisy, boundary, by_transition, pair_flip, symmetric, topline, within_superclass
from trivet.models import in_unit_range
from trivet.runtime.arguments import check_name

NEIGHBOURS = 10  # of other classes, by which `boundary` tells how near these are
CHUNK = 4096  # images flattened together


class NoiseConfig(Config):
    """Settings of label noise: which labels of the trained level are made wrong, in the training items only.

    Args:
        kind: wrong labels: any other class, the next, one of the same superclass, drawn from matrix, or at boundaries
            as people err.
        rate: share of wrong labels; with transition, matrix says it.
        exact: exactly this share, instead of on average, to repeat a paper.
        seed: decides which labels are wrong: another one repeats a study.
        matrix: for transition only: a row of label probabilities for each trained class, by name.
        superclass: for within-superclass only: a label level above the trained one.
        topline: train on a random share 1 - rate with true labels instead, to see what noise costs beside fewer items.
    """

    kind: Literal["symmetric", "pair-flip", "within-superclass", "transition", "boundary"]
    rate: float | None = Field(None, ge=0, lt=1)
    exact: bool = False
    seed: int = Field(0, ge=0)
    matrix: tuple[tuple[float, ...], ...] | None = None
    superclass: str | None = None
    topline: bool = False

    @model_validator(mode="after")
    def _check(self) -> Self:
        for key, kind in (("matrix", "transition"), ("superclass", "within-superclass")):
            is_set = getattr(self, key) is not None
            if is_set and self.kind != kind:
                raise ValueError(f'{key} is for kind = "{kind}" only: remove it for {self.kind}.')
            if not is_set and self.kind == kind:
                raise ValueError(f'kind = "{kind}" needs {key}: set data.noise.{key}.')
        if self.rate is None and self.kind != "transition":
            raise ValueError(f'kind = "{self.kind}" needs rate: set data.noise.rate to a share in [0, 1).')
        if self.rate is not None and self.kind == "transition":
            raise ValueError('kind = "transition" takes its rate from matrix: remove rate.')
        if self.matrix is not None and any(len(row) != len(self.matrix) for row in self.matrix):
            raise ValueError(
                f"matrix must have as many columns as rows, {len(self.matrix)}: got rows of "
                f"{sorted({len(row) for row in self.matrix})} numbers; give the probability of every label in each row."
            )
        return self


def add_noise(splits: Splits, config: NoiseConfig) -> Splits:
    """The splits with label noise in the training items, or with as few of these as the topline has.

    Only the labels of the trained level change, among the classes that have training items; other levels and the
    evaluation splits stay true. Items of a class that is left with one item have no positive: they are dropped.

    Raises:
        ValueError: if the noise does not fit the data, or fewer than two classes are left.
    """
    train, level = splits.train, splits.level
    check_classes(train, level, "data.noise")
    truth = train.labels[level]
    present, labels = np.unique(truth, return_inverse=True)
    if config.topline:
        selected = topline(labels, _rate(labels, config), generator=config.seed)
        train, truth = train.subset(selected), truth[selected]
        observed = truth
    else:
        observed = present[_noisy(train, level, labels, config).labels]
    selected = np.flatnonzero(np.bincount(observed)[observed] > 1)
    noise = TrainingNoise(config.kind, config.topline, truth[selected], dropped=len(truth) - len(selected))
    train = replace(train, labels={**train.labels, level: observed}).subset(selected)
    check_trainable(train, level)
    return replace(splits, train=train, noise=noise)


def noise_summary(splits: Splits) -> dict[str, str | float] | None:
    """Summary of the noise in the training labels, for the record of a run.

    Returns:
        {"kind", "topline", "items" trained on, "wrong" of them, "rate" that this is, "dropped" items of classes that
        were left with one}; None without noise.
    """
    if splits.noise is None:
        return None
    wrong = int((splits.train.labels[splits.level] != splits.noise.true_labels).sum())
    return {
        "kind": splits.noise.kind,
        "topline": splits.noise.topline,
        "items": len(splits.train),
        "wrong": wrong,
        "rate": wrong / len(splits.train),
        "dropped": splits.noise.dropped,
    }


def _noisy(train: Dataset, level: str, labels: np.ndarray, config: NoiseConfig) -> Noisy:
    seed, exact = config.seed, config.exact
    if config.kind == "transition":
        return by_transition(labels, _matrix(labels, config), generator=seed, exact=exact)
    assert config.rate is not None
    if config.kind in ("symmetric", "pair-flip"):
        make = symmetric if config.kind == "symmetric" else pair_flip
        return make(labels, config.rate, generator=seed, exact=exact)
    if config.kind == "within-superclass":
        assert config.superclass is not None
        above = train.labels[superclass(config.superclass, train.labels, level)]
        return within_superclass(labels, above, config.rate, generator=seed, exact=exact)
    k = min(NEIGHBOURS, len(train) - int(np.bincount(labels).max()))
    return boundary(labels, _flat(train.inputs), config.rate, generator=seed, k=k, exact=exact)


def superclass(wanted: str, levels: Iterable[str], level: str) -> str:
    """The wanted level, which must lie above the trained one; ValueError if it does not."""
    levels = list(levels)
    above = levels[: levels.index(level)]
    if not above:
        raise ValueError(
            f"data.noise.superclass needs a label level above the trained one: {level!r} is the first of {levels}; "
            "set data.level to a finer level."
        )
    check_name(wanted, above, name="data.noise.superclass")
    return wanted


def _matrix(labels: np.ndarray, config: NoiseConfig) -> np.ndarray:
    matrix, classes = np.array(config.matrix), int(labels.max()) + 1
    if len(matrix) != classes:
        raise ValueError(
            f"data.noise.matrix must have a row for each of the {classes} classes that are trained on: got "
            f"{len(matrix)}; leave out classes without training items."
        )
    return matrix


def _rate(labels: np.ndarray, config: NoiseConfig) -> float:
    if config.rate is not None:
        return config.rate
    return float(1 - np.diagonal(_matrix(labels, config))[labels].mean())


def _flat(inputs: Inputs) -> np.ndarray:
    spans = [np.arange(start, min(start + CHUNK, len(inputs))) for start in range(0, len(inputs), CHUNK)]
    return np.concatenate([in_unit_range(inputs.batch(span)).flatten(1).numpy() for span in spans])
