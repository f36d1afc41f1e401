"""The data sets by name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from trivet.data.config import DataConfig
from trivet.data.dataset import Splits, check_evaluable, check_trainable
from trivet.data.decisions import apply_decisions
from trivet.data.digits import load_digits
from trivet.data.folder import load_folder
from trivet.data.images import Progress
from trivet.data.mnist import load_fashion_mnist, load_mnist
from trivet.data.noise import add_noise
from trivet.data.omniglot import load_omniglot
from trivet.data.root import find_root
from trivet.evaluation.folds import class_folds


class Available(NamedTuple):
    """A data set that `load` knows; `levels` are its label levels, coarse first."""

    name: str
    description: str
    levels: tuple[str, ...]


def available() -> list[Available]:
    """All data sets that `load` knows."""
    return [
        Available("digits", "1,797 digits of 8x8 pixels, part of scikit-learn", ("parity", "digit")),
        Available("mnist", "70,000 digits of 28x28 pixels", ("parity", "digit")),
        Available("fashion-mnist", "70,000 pieces of clothing of 28x28 pixels", ("group", "item")),
        Available("omniglot", "32,460 handwritten characters of 50 alphabets", ("alphabet", "character")),
        Available("folder", "your own images, one folder per class", ("class",)),
    ]


def load(config: DataConfig, data_root: Path | None, progress: Progress | None = None) -> Splits:
    """Load a data set, split it, put in the label noise and carry out the decisions that `config` asks for, in this
    order; the same each time.

    Args:
        config: which data, and how they are prepared and split.
        data_root: see `find_root`; "digits" and "folder" do not use it.
        progress: called with (images decoded, images in all) now and then, for data that take time.

    Raises:
        ValueError: if files are missing, broken or not laid out as they must be; if `config.level` is not a level; if
            a training class has one image only, there is only one training class, an evaluation split has fewer than
            two images, or `config.noise` or `config.decisions` does not fit the data.
    """
    if config.name == "digits":
        splits = load_digits(config)
    elif config.name == "folder":
        splits = load_folder(config, progress)
    elif config.name == "omniglot":
        splits = load_omniglot(config, find_root(data_root), progress)
    else:
        splits = {"mnist": load_mnist, "fashion-mnist": load_fashion_mnist}[config.name](config, find_root(data_root))
    if config.folds is not None:
        splits = hold_out_fold(splits, config.folds, config.fold)
    check_trainable(splits.train, splits.level)
    check_evaluable(splits.evaluation)
    if config.noise is not None:
        splits = add_noise(splits, config.noise)
    return splits if config.decisions is None else apply_decisions(splits, config.decisions)


def hold_out_fold(splits: Splits, folds: int, fold: int) -> Splits:
    """With one of the class-disjoint folds of the training items as the main evaluation split, "validation".

    Raises:
        ValueError: if there are fewer classes than folds.

    Source:
        Musgrave, Belongie, Lim, "A Metric Learning Reality Check", ECCV 2020, section 3.3.
    """
    try:
        held_out = class_folds(splits.train.labels[splits.level], folds)[fold]
    except ValueError:
        raise ValueError(
            f"data.folds must be at most the number of training classes at level {splits.level!r}: got {folds}; "
            "ask for fewer folds, or train on a finer level."
        ) from None
    kept = np.setdiff1d(np.arange(len(splits.train)), held_out)
    return replace(
        splits,
        train=splits.train.subset(kept),
        evaluation={"validation": splits.train.subset(held_out), **splits.evaluation},
    )
