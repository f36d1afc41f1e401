"""Embeds a whole data set with a network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from trivet.datasets import Dataset, Inputs, TextInputs
from trivet.datasets.features import loaded_inputs
from trivet.datasets.judged_pairs import JudgedPairs, pair_cells
from trivet.datasets.sides import SidedInputs
from trivet.models import Embedder, SidedBatch, in_unit_range

IMAGES_PER_BATCH = 256


@torch.no_grad()
def embed(model: Embedder, inputs: Inputs, progress: Callable[[int, int], None] | None = None) -> np.ndarray:
    """Embeddings `(N, d)` float32 in evaluation mode; the mode the model was in is restored."""
    was_training, device = model.training, model.device
    model.eval()
    chunks = []
    for start in range(0, len(inputs), IMAGES_PER_BATCH):
        index = np.arange(start, min(start + IMAGES_PER_BATCH, len(inputs)))
        chunks.append(model(inputs.batch(index).to(device)).float().cpu().numpy())
        if progress:
            progress(int(index[-1]) + 1, len(inputs))
    model.train(was_training)
    assert chunks, "a data set is never empty"
    return np.concatenate(chunks)


def check_embedded(embeddings: np.ndarray, ids: Sequence[str]) -> None:
    """Raise ValueError that names the items whose embeddings `(N, d)` are not finite."""
    broken = np.flatnonzero(~np.isfinite(embeddings).all(axis=1))
    if len(broken):
        listed = ", ".join(ids[row] for row in broken[:4]) + (", ..." if len(broken) > 4 else "")
        raise ValueError(
            f"embeddings must be finite: those of {listed} hold NaN or infinity ({len(broken)} of {len(ids)} items); "
            "check these inputs, or train again with a lower learning rate."
        )


def raw_inputs(inputs: Inputs) -> np.ndarray:
    """The images themselves, in [0, 1], as rows `(N, C * H * W)` float32: what any embedding has to beat.

    Texts have no numbers of their own: theirs are the vectors of their character n-grams, fitted on the training texts.
    See `comparable` for inputs of two sides.
    """
    inputs = loaded_inputs(inputs)
    if isinstance(inputs, SidedInputs):
        rows = [torch.from_numpy(raw_inputs(side)) for side in inputs.sides]
        return SidedBatch(torch.from_numpy(inputs.right), (rows[0], rows[1])).joined(rows).numpy()
    if isinstance(inputs, TextInputs):
        return inputs.ngrams()
    batches = np.array_split(np.arange(len(inputs)), -(-len(inputs) // IMAGES_PER_BATCH))
    return np.concatenate([in_unit_range(inputs.batch(index)).flatten(1).numpy() for index in batches])


def comparable(inputs: Inputs) -> bool:
    """False if inputs of two sides have no space in common, as images and texts."""
    if not isinstance(inputs, SidedInputs):
        return True
    kinds = [TextInputs if isinstance(side, TextInputs) else side.shape for side in map(loaded_inputs, inputs.sides)]
    return kinds[0] == kinds[1]


def label_names(dataset: Dataset, span: slice = slice(None)) -> dict[str, tuple[str, ...]]:
    """Level -> the class name of each item, or of some."""
    return {
        level: tuple(dataset.names[level][label] for label in labels[span].tolist())
        for level, labels in dataset.labels.items()
    }


def item_columns(datasets: Sequence[Dataset], spans: Sequence[slice] | None = None) -> dict[str, np.ndarray]:
    """Column -> the value `(N,)` of each item of all parts: class names or the cells of pairs, other columns, queries
    and gallery.

    Where one part has queries and a gallery, an item of a part without is neither.

    Args:
        spans: of each part, the items that are meant; all, if not given.
    """
    spans = [slice(None)] * len(datasets) if spans is None else spans
    protocols = [dataset.protocol for dataset in datasets if dataset.protocol is not None]
    tables: list[dict[str, Sequence[Any] | np.ndarray]] = []
    for dataset, span in zip(datasets, spans, strict=True):
        protocol, nothing = dataset.protocol, np.zeros(len(dataset), bool)
        table: dict[str, Sequence[Any] | np.ndarray] = {**label_names(dataset, span)}
        for level, numbers in dataset.numbers.items():
            relation = dataset.relations[level]
            assert isinstance(relation, JudgedPairs)
            table[level] = pair_cells(relation, numbers[span])
        table |= {name: values[span] for name, values in dataset.columns.items()}
        if protocols:
            table |= {f"is_{key}": getattr(protocol, key, nothing)[span] for key in ("query", "gallery", "junk")}
        if any(each.cameras is not None for each in protocols):
            cameras = None if protocol is None else protocol.cameras
            table["camera"] = (np.full(len(dataset), -1) if cameras is None else cameras)[span]
        tables.append(table)
    return {name: np.array([value for table in tables for value in table[name]]) for name in tables[0]}
