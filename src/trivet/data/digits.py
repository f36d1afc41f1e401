"""The 8x8 digits that come with scikit-learn."""

from __future__ import annotations

import numpy as np

from trivet.data.config import DataConfig
from trivet.data.dataset import Dataset, Splits, choose_level
from trivet.data.inputs import average_pool, in_memory

PARITIES = ("even", "odd")
DIGITS = tuple("0123456789")


def load_digits(config: DataConfig) -> Splits:
    """Digits with levels parity > digit.

    Of digits 0-5, shuffled by RandomState(0), the first 60 % are trained on (649) and the rest are "seen" (434);
    digits 6-9 are "unseen" (714).
    """
    from sklearn.datasets import load_digits as bundled_digits

    bundle = bundled_digits()
    images, digit = bundle.images.astype(np.uint8), bundle.target.astype(np.int64)
    whole = Dataset(
        name="digits",
        inputs=in_memory(average_pool(images, config.image_size or 8), white=16, channels=config.channels),
        labels={"parity": digit % 2, "digit": digit},
        names={"parity": PARITIES, "digit": DIGITS},
        ids=tuple(f"digits/{row:04d}" for row in range(len(digit))),
    )
    trained = np.random.RandomState(0).permutation(np.flatnonzero(digit <= 5))
    count = int(0.6 * len(trained))
    return Splits(
        train=whole.subset(trained[:count]),
        evaluation={"seen": whole.subset(trained[count:]), "unseen": whole.subset(np.flatnonzero(digit >= 6))},
        level=choose_level(config.level, whole.labels),
    )
