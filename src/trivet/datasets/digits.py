"""The 8x8 digits that come with scikit-learn."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np

from trivet.datasets.config import Channels, DatasetEntry, PooledConfig, Side
from trivet.datasets.dataset import Dataset, Splits, choose_level
from trivet.datasets.image_decoding import Progress
from trivet.datasets.inputs import average_pool, in_memory

PARITIES = ("even", "odd")
DIGITS = tuple("0123456789")


class DigitsConfig(PooledConfig):
    """The 8x8 digits; a size of 2 or 4 pixels is an average."""

    name: Literal["digits"] = "digits"
    image_size: Side = 8
    channels: Channels = 1
    side = 8


def load_digits(config: DigitsConfig, data_root: Path, progress: Progress | None) -> Splits:
    """Digits with levels parity > digit.

    Of digits 0-5, shuffled by RandomState(0), the first 60 % are trained on (649) and the rest are "seen" (434);
    digits 6-9 are "unseen" (714).
    """
    from sklearn.datasets import load_digits as bundled_digits

    bundle = bundled_digits()
    images, digit = bundle.images.astype(np.uint8), bundle.target.astype(np.int64)
    items = Dataset(
        name="digits",
        inputs=in_memory(average_pool(images, config.image_size), white=16, channels=config.channels),
        labels={"parity": digit % 2, "digit": digit},
        names={"parity": PARITIES, "digit": DIGITS},
        ids=tuple(f"digits/{row:04d}" for row in range(len(digit))),
    )
    trained = np.random.RandomState(0).permutation(np.flatnonzero(digit <= 5))
    count = int(0.6 * len(trained))
    return Splits(
        train=items.subset(trained[:count]),
        evaluation={"seen": items.subset(trained[count:]), "unseen": items.subset(np.flatnonzero(digit >= 6))},
        level=choose_level(config.level, items.labels),
    )


ENTRY = DatasetEntry(
    DigitsConfig,
    load_digits,
    description="1,797 digits of 8x8 pixels, part of scikit-learn",
    levels=("parity", "digit"),
    published="scikit-learn, from the UCI repository (CC BY 4.0)",
)
