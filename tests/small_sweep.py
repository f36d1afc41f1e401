"""A sweep of a tiny head on vectors, a second for each trial."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np


def write_vectors(path: Path) -> None:
    """96 vectors of 12 classes, which lie in the first six of twelve directions."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(12), 8)
    known = rng.normal(size=(12, 6))[labels] + 0.7 * rng.normal(size=(96, 6))
    found = np.concatenate([known, 3 * rng.normal(size=(96, 6))], axis=1).astype(np.float32)
    np.savez(path, embeddings=found, kind=np.array([f"k{label:02d}" for label in labels]))


def settings(folder: Path, **sweep: Any) -> dict[str, Any]:
    """Settings with a section [sweep]; the vectors lie in the folder."""
    if not (folder / "x.npz").exists():
        write_vectors(folder / "x.npz")
    vary = {"loss.margin": [0.1, 0.2, 0.4], "training.learning_rate": {"low": 1e-4, "high": 0.1, "log": True}}
    return {
        "data": {"name": "vectors", "path": str(folder / "x.npz"), "folds": 3},
        "batch": {"num_classes": 3, "samples_per_class": 4},
        "model": {"name": "linear", "embedding_dim": 6},
        "loss": {"name": "triplet"},
        "training": {"steps": 20, "checkpoint_every": 5, "accelerator": "cpu"},
        "evaluation": {"every": 5, "map_points": 10, "nmi_plus": 1},
        "sweep": {"trials": 3, "heartbeat": 1, "vary": vary, **sweep},
    }
