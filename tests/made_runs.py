"""Run folders made without training, from embeddings in which the neighbours of each item are known."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from trivet.io.parquet_files import write_embeddings

CLASSES, ITEMS = 6, 60


def placed(wrong: Sequence[int], labels: np.ndarray) -> np.ndarray:
    """Embeddings `(N, d)`: classes far apart; an item in `wrong` lies beside the next class, nearest to items of it."""
    count = int(labels.max()) + 1
    centre, beside = labels.copy(), np.zeros(len(labels))
    centre[list(wrong)] = (labels[list(wrong)] + 1) % count
    beside[list(wrong)] = 0.3  # each in a direction of its own, so that two of them are no neighbours
    apart = np.random.default_rng(0).uniform(-0.01, 0.01, (len(labels), count))
    return np.concatenate([np.eye(count)[centre] + apart, np.diag(beside)], axis=1)


def make_run(
    path: Path,
    wrong: Sequence[int] = (),
    *,
    settings: str = "",
    seed: int = 0,
    labels: np.ndarray | None = None,
    order: Sequence[int] | None = None,
    split: str = "unseen",
    record: Mapping[str, Any] | None = None,
    name: str = "easy",
    embeddings: np.ndarray | None = None,
) -> Path:
    """A finished run whose recall@1 is 0 for the items in `wrong` and 1 for the others.

    Args:
        settings: further lines of config.toml.
        order: of the rows in the file.
        name: of the positives.
        embeddings: `(N, d)` in place of those that `wrong` describes.
    """
    labels = np.repeat(np.arange(CLASSES), ITEMS // CLASSES) if labels is None else labels
    path.mkdir(parents=True)
    lines = f'seed = {seed}\n[data]\nname = "digits"\n[loss]\nname = "triplet"\npositives = "{name}"\n{settings}'
    (path / "config.toml").write_text(lines)
    rows = np.arange(len(labels)) if order is None else np.asarray(order)
    ids = tuple(f"digits/{row:04d}" for row in rows)
    names = {"digit": tuple(f"d{label}" for label in range(labels.max() + 1))}
    (path / "embeddings").mkdir()
    write_embeddings(
        path / "embeddings" / f"{split}.parquet",
        (placed(wrong, labels) if embeddings is None else embeddings)[rows],
        ids,
        {"digit": [names["digit"][label] for label in labels[rows]]},
        levels=["digit"],
    )
    share = 1 - len(wrong) / len(labels)
    whole = {
        "status": "finished",
        "run": path.name,
        "level": "digit",
        "step": 800,
        "seconds": {"training": 2.0},
        "evaluation": {
            split: [
                {"name": "trained", "levels": {"digit": {"recall@1": share, "nmi": 0.5, "chance_recall@1": 0.1}}},
                {"name": "raw inputs", "levels": {"digit": {"recall@1": 0.4}}},
            ]
        },
        "intervals": {split: {"digit": {"recall@1": {"queries": [0.1, 0.2], "classes": [0.3, 0.4]}}}},
        **(record or {}),
    }
    (path / "record.json").write_text(json.dumps(whole))
    return path
