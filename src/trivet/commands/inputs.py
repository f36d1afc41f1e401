"""Inputs that several commands read alike: embeddings of files and runs, and how they are compared."""

from __future__ import annotations

from pathlib import Path

from trivet.io.embedding_table import Vectors
from trivet.io.overwrite_guard import is_run_folder
from trivet.metrics.points import Metric
from trivet.training.run_folder import CONFIG, RunFolder


def default_distance(vectors: Vectors) -> Metric:
    """The distance of a file for which none is named: "euclidean" in one dimension, where directions say nothing."""
    return "cosine" if vectors.embeddings.shape[1] > 1 else "euclidean"


def run_distance(path: Path) -> Metric:
    """The distance that a run is evaluated by, and "cosine" for a file or an encoder."""
    is_run = is_run_folder(path) and (path / CONFIG).is_file()
    distance: Metric = RunFolder.open(path).section("evaluation").distance if is_run else "cosine"
    return distance
