"""References of a trained network, and their measures, kept for the next run on the same items.

Kept by content: a file is named by all that goes in (embeddings, labels, protocol, measures, the code that measures),
so it is never out of date, and several processes may write it.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from trivet import metrics
from trivet.collapse.significance import RAW, UNTRAINED, ZERO_SHOT
from trivet.datasets import Dataset
from trivet.io.atomic_files import write_atomic
from trivet.metrics import Retrieval, retrieve_levels
from trivet.metrics.points import Metric, Points, spans, twins
from trivet.metrics.protocols import RetrievalTask, retrieval_task
from trivet.mining import Relation
from trivet.models import Embedder
from trivet.runtime.cache import limit_size
from trivet.runtime.fingerprint import fingerprint
from trivet.runtime.progress import announce
from trivet.runtime.version import __version__
from trivet.training.embed_dataset import comparable, embed, raw_inputs

WORTH = 2 * 10**9  # coordinates of all pairs that are compared; what takes less than a second is not kept
RAW_NUMBERS = 10**8  # raw inputs beyond this many numbers are not compared: 800 MB in float64
WIDE = 2  # raw inputs of more numbers than this times their number are taken in the space that they span
COLUMNS = 4096  # of them that are multiplied at once
ARRAYS = ("values", "classes", "labels", "positives")  # of a `Retrieval`
BROKEN = (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile)  # what a damaged file leads to


def run_references(untrained: Embedder | None, dataset: Dataset) -> dict[str, np.ndarray]:
    """Name -> embeddings `(N, d)` of the items that a trained network must not fall below.

    The untrained network, its backbone alone where it has one, and the inputs as they are unless they are too many, or
    have no space in common. A network that is nothing but its backbone stands there once, as that.

    Args:
        untrained: None where it cannot be made again.
    """
    references = {} if untrained is None or untrained.headless else {UNTRAINED: embed(untrained, dataset.inputs)}
    if untrained is not None and untrained.backbone is not None:
        references[ZERO_SHOT] = embed(untrained.backbone, dataset.inputs)
    if comparable(dataset.inputs) and len(dataset) * int(np.prod(dataset.inputs.shape)) <= RAW_NUMBERS:
        raw = raw_inputs(dataset.inputs)
        # Of the first reference coordinates count, too.
        references[RAW] = in_their_span(raw) if references and raw.shape[1] > WIDE * len(raw) else raw
    return references


def in_their_span(rows: np.ndarray) -> np.ndarray:
    """Coordinates `(N, N)` float64 of N rows `(N, d)` in the space that they span: lengths and angles stay.

    All that is measured of their distances stays, too, up to rounding, and takes a time of N^3 in place of N^2 d.
    Equal rows stay equal.
    """
    from scipy.linalg.blas import dsyrk  # half of all products: the other half is the same

    points = Points(rows)
    numbers, members = torch.unique(twins(points), return_inverse=True)
    products = torch.zeros(len(numbers), len(numbers), dtype=torch.float64).numpy()
    for start, stop in spans(points.dimension, COLUMNS):
        columns = rows[numbers.numpy(), start:stop].astype(np.float64)
        products += dsyrk(1.0, columns.T, trans=1, lower=1)
    squares, axes = torch.linalg.eigh(torch.from_numpy(products))  # which reads the lower half
    coordinates: np.ndarray = (axes * squares.clamp_min(0).sqrt())[members].numpy()
    return coordinates


def baseline_retrieval(
    embeddings: np.ndarray, dataset: Dataset, measures: Sequence[str], distance: Metric, folder: Path | None
) -> dict[str, Retrieval]:
    """`retrieve_levels` of the items of a data set, taken from a file where it was found before.

    Args:
        embeddings: `(N, d)` of the items.
        folder: where files are kept; None for nowhere. One that cannot be written is left alone.
    """
    arguments = dataset.evaluation_arguments(embeddings)
    pairs = len(arguments["embeddings"]) * len(arguments.get("gallery", embeddings))
    if folder is None or pairs * embeddings.shape[1] < WORTH:
        return retrieve_levels(**arguments, measures=measures, distance=distance)
    file = folder / f"{_fingerprint(arguments, measures, distance)}.npz"
    with contextlib.suppress(*BROKEN):
        stored = _read(file, list(dataset.labels), retrieval_task(**arguments, distance=distance))
        os.utime(file)
        announce(f"A baseline of these items was measured before: taken from {file}.")
        return stored
    retrieved = retrieve_levels(**arguments, measures=measures, distance=distance)
    with contextlib.suppress(OSError):
        write_atomic(file, _bytes(retrieved))
        limit_size(folder)
    return retrieved


def _fingerprint(arguments: Mapping[str, Any], measures: Sequence[str], distance: str) -> str:
    """Digest of the arguments and of the code that measures."""
    code = [file.read_bytes() for file in sorted(Path(str(metrics.__file__)).parent.glob("*.py"))]
    values: list[Any] = [list(measures), distance, __version__, torch.__version__, np.__version__, *code]
    for name, value in arguments.items():
        levels = value.items() if isinstance(value, Mapping) else ((name, value),)
        for level, known in levels:
            related = isinstance(known, Relation)
            values += [name, level, *([known.signature, known.items.numpy()] if related else [known])]
    return fingerprint(values)[:32]


def _bytes(retrieved: Mapping[str, Retrieval]) -> bytes:
    arrays: dict[str, np.ndarray] = {}
    for number, result in enumerate(retrieved.values()):
        known = {"measures": result.measures, "gallery": result.gallery, "chance": result.chance}
        arrays |= {f"{number} {name}": getattr(result, name) for name in ARRAYS}
        arrays[f"{number} known"] = np.frombuffer(json.dumps(known).encode(), np.uint8)
    sink = io.BytesIO()
    np.savez(sink, **arrays, allow_pickle=False)
    return sink.getvalue()


def _read(file: Path, levels: Sequence[str], task: RetrievalTask) -> dict[str, Retrieval]:
    """Read what `_bytes` wrote; the checksums of the file are checked on reading."""
    retrieved = {}
    with file.open("rb") as source, np.load(source, allow_pickle=False) as arrays:
        for number, level in enumerate(levels):
            known = json.loads(arrays[f"{number} known"].tobytes())
            stored = {name: arrays[f"{number} {name}"] for name in ARRAYS}
            retrieved[level] = Retrieval(
                **stored, **known | {"measures": tuple(known["measures"])}, task=task, level=number
            )
    return retrieved
