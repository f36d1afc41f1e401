"""`trivet train --vectors` and `--texts`: settings for a head on vectors or a text network, without a settings file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from trivet.config.base import overridden
from trivet.datasets import DataConfig, Splits, load
from trivet.datasets.dataset import holds_items_out
from trivet.models import ModelConfig, TextNetworkConfig, tokenize_of
from trivet.models.config import TEXT
from trivet.training.checkpoint_selection import SPLITS
from trivet.training.config import RunConfig

SOURCE = "the settings of trivet train --vectors or --texts"
FEWER, FOLDS = 2, 4  # of the training classes, one of which is held out to choose the step; fewer where they are few
ITEM_FOLDS = 5  # of the items of each class, where queries are of classes that are trained on
ENOUGH, HOLDOUT_CLASSES = 8, 12  # training classes from which on there are FOLDS; how many are held out of many
CLASSES, SAMPLES = 32, 8  # of a batch
STEPS, EVERY = 200, 20  # optimiser steps, and those between two looks at the held-out classes
RATE = (
    1e-3  # the learning rate at the end; it rises from near 0 over all steps, so that the first looks see small changes
)
SAMPLE = 10_000  # items that a look sees at most, and as many training items beside them
MARGIN = 0.4
TUNED, TUNED_CLASSES, TUNED_SAMPLES = 2e-5, 16, 4  # of a network of texts: learning rate, and batch


def head_settings(
    data: Mapping[str, Any], overrides: Sequence[str] = (), *, data_root: Path | None = None
) -> tuple[RunConfig, str]:
    """Settings that suit the data, and what they are, in a sentence.

    A linear residual head begins as the vectors themselves and is trained for a few steps with random positives and
    violating negatives. The rate rises over all steps, so that the first looks see small changes of the vectors, and
    later ones larger ones. A part of the training classes is held out, by which the step to keep is chosen; where no
    step is better than the vectors as they are, these stay. The numbers were chosen on class-disjoint folds of the
    training classes of CLINC150, BANKING77 and CUB.

    Where `overrides` name a network of texts, "model.name=text:FOLDER", it is trained end to end in place of a head:
    for as many steps, at a rate that is usual for pretrained transformers.

    Args:
        data: the settings of the data set.
        overrides: "section.key=value", which come last.
        data_root: see `trivet.datasets.load`.

    Raises:
        ValueError: if no label level is named, and those that are there do not lie within each other.
    """
    requested = overridden({"data": dict(data)}, overrides)
    config = DataConfig.parse(requested["data"], source=SOURCE)
    name = requested.get("model", {}).get("name")
    network = None
    if isinstance(name, str) and name.startswith(TEXT):
        network = ModelConfig.parse({**requested["model"]}, source=SOURCE)
    splits = load(config, data_root, tokenize=None if network is None else tokenize_of(network))
    if not {"levels", "level"} & requested["data"].keys():
        _check_nested(splits, requested["data"]["path"])
    values = suited(requested, splits, network)
    settings = RunConfig.parse(RunConfig.with_overrides(values, overrides), source=SOURCE)
    return settings, _summary(settings, int(np.prod(splits.train.inputs.shape)))


def _check_nested(splits: Splits, path: str) -> None:
    """ValueError unless the classes of each label level lie in those of the coarser one: else they are other tasks."""
    labels = list(splits.train.labels.values())
    for coarse, fine in pairwise(labels):
        if len(np.unique(np.stack([coarse, fine]), axis=1).T) > len(np.unique(fine)):
            counts = [f"{level!r} ({len(names):,} classes)" for level, names in splits.train.names.items()]
            raise ValueError(
                f"the column of labels must be named with --labels, as it is open which one is meant: {path} has "
                f"{', '.join(counts)}."
            )


def suited(requested: Mapping[str, Any], splits: Splits, network: ModelConfig | None = None) -> dict[str, Any]:
    """Settings of a head, or of a network of texts, that suit the data: see `head_settings`.

    Args:
        requested: settings that are known already, of which "data" is needed.
        splits: the data, as these settings divide them.
        network: of texts, that is to be trained in place of a head.
    """
    data, folds = requested["data"], requested["data"].get("folds")
    classes = len(np.unique(splits.train.labels[splits.level]))
    width = int(np.prod(splits.train.inputs.shape))
    values: dict[str, Any] = {
        "data": dict(data),
        "model": {"name": "residual", "embedding_dim": width},
        "loss": {"name": "triplet", "margin": MARGIN, "positives": "random", "negatives": "violating"},
        "training": {"steps": STEPS, "learning_rate": RATE, "warmup_steps": "all"},
        "evaluation": {"distance": "cosine", "every": EVERY, "sample": SAMPLE, "nmi_plus": 2, "map_points": 500},
    }
    if network is not None:
        values["model"] = {"name": network.name}
        values["training"] = {"steps": STEPS, "optimizer": "adamw", "learning_rate": TUNED, "warmup_steps": EVERY}
    if "name" in requested.get("loss", {}):
        del values["loss"]
    choosable = any(name in splits.evaluation for name in SPLITS)
    of = data.get("folds_of") or ("items" if holds_items_out(splits) else "classes")
    if choosable or folds is not None:
        pass
    elif of == "items":
        values["data"] |= {"folds": ITEM_FOLDS, "folds_of": "items"}
        choosable = True
    elif classes >= 2 * FEWER:
        folds = max(FOLDS, round(classes / HOLDOUT_CLASSES)) if classes >= ENOUGH else FEWER
        values["data"]["folds"] = folds
        classes -= -(-classes // folds)
        choosable = True
    if choosable:
        values["choosing"] = {"keep": "best", "measure": "recall@1"}
    most, samples = (CLASSES, SAMPLES) if network is None else (TUNED_CLASSES, TUNED_SAMPLES)
    if requested.get("batch", {}).get("size") is None:
        values["batch"] = {"num_classes": min(most, classes), "samples_per_class": samples}
    return values


def _summary(settings: RunConfig, width: int) -> str:
    model, folds = settings.model, settings.data.folds
    network = f"A network {model.name} of {model.embedding_dim} dimensions"
    if isinstance(model, TextNetworkConfig):
        network = f"The whole network {model.name}"
    if model.name == "residual":
        begins = "the vectors themselves" if model.embedding_dim >= width else "a projection of the vectors"
        network = f"A linear head of {model.embedding_dim} dimensions that begins as {begins}"
    chosen = "the last step is kept"
    if settings.choosing.keep == "best":
        split = "the split val"
        if folds and settings.data.folds_of == "items":
            split = f"one of {folds} folds of the items of each class, held out, as the queries are of trained classes"
        elif folds:
            split = f"one of {folds} folds of the training classes, held out"
        chosen = f"the step is chosen by {split}"
    steps, epochs = settings.training.steps, settings.training.epochs
    length = f"{steps} steps" if epochs is None else f"{epochs} epochs"
    return f"{network}, {length}; {chosen}. The run folder has all settings in config.toml."
