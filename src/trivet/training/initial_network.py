"""The network of a run before its first step."""

from __future__ import annotations

import numpy as np
import torch

from trivet.datasets import Dataset
from trivet.distances import unit_rows
from trivet.models import Embedder, build, in_unit_range
from trivet.training.config import RunConfig
from trivet.training.embed_dataset import embed

FITTED = 20_000  # training items from which a projection is found
EMBEDDED = 5_000  # where a backbone must embed them first


def untrained(config: RunConfig, train: Dataset) -> Embedder:
    """The network of the settings, the same each time.

    A residual head, or a linear one on pretrained features, of fewer dimensions than its input begins as a projection.
    It is found from at most 20,000 random training items, 5,000 where a backbone gives their features; these are of
    length 1 where embeddings are.

    Args:
        train: the training items, without those that are held out.

    Raises:
        ValueError: if the settings do not fit the inputs.
    """
    model = build(config.model, train.inputs.shape, config.seed)
    model.resize = getattr(config.data, "resize", None)
    head = model.unfitted
    if head is not None:
        backbone = model.backbone
        rows = np.random.default_rng(config.seed).permutation(len(train))[: FITTED if backbone is None else EMBEDDED]
        items = train.subset(np.sort(rows))
        if backbone is not None:
            features = torch.from_numpy(embed(backbone, items.inputs))  # of length 1 if embeddings are
        else:
            features = in_unit_range(items.inputs.batch(np.arange(len(items)))).flatten(1)
            features = unit_rows(features) if config.model.normalize else features
        head.fit_base(features)
    return model
