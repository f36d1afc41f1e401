"""The network of a run before its first step."""

from __future__ import annotations

import numpy as np

from trivet.data import Dataset
from trivet.geometry import unit_rows
from trivet.models import Embedder, build, in_unit_range
from trivet.training.config import RunConfig

FITTED = 20_000  # training items from which a projection is found


def untrained(config: RunConfig, train: Dataset) -> Embedder:
    """The network of the settings, the same each time.

    A residual head of fewer dimensions than its input begins as a projection, found from at most 20,000 random training
    items, of length 1 where embeddings are.

    Args:
        train: the training items, without those that are held out.

    Raises:
        ValueError: if the settings do not fit the inputs.
    """
    model = build(config.model, train.inputs.shape, config.seed)
    head = model.unfitted
    if head is not None:
        rows = np.sort(np.random.default_rng(config.seed).permutation(len(train))[:FITTED])
        features = in_unit_range(train.inputs.batch(rows)).flatten(1)
        head.fit_base(unit_rows(features) if config.model.normalize else features)
    return model
