"""Nearest neighbours of the same queries in several runs, for the page of `trivet compare`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from trivet.commands.compare.record import RunNeighbours, SharedGallery, SharedQuery
from trivet.commands.compare.runs import StoredRun
from trivet.datasets import Dataset
from trivet.datasets.preview import preview_record
from trivet.io.embedding_table import Vectors
from trivet.metrics import neighbours
from trivet.reports.shared_records import NeighbourRecord
from trivet.runtime.arrays import Floats, Integers
from trivet.runtime.progress import reporter, steps
from trivet.training.components import load_splits

DIFFERENT, RANDOM, NEIGHBOURS = 4, 2, 5  # queries about which runs disagree, other queries, and neighbours of each
MOST_RUNS = 8


@dataclass(frozen=True, eq=False)
class QueryHits:
    """A run on the split whose neighbours are shown.

    Attributes:
        name: of the run.
        vectors: its embeddings.
        asked: positions `(Q,)` of the queries.
        hits: `(Q,)` recall@1 of each query.
    """

    name: str
    vectors: Vectors
    queries: Integers
    hits: Floats


def shared_gallery(
    run: StoredRun, split: str, level: str, runs: Sequence[QueryHits], *, data_root: Path | None
) -> tuple[SharedGallery, list[str]]:
    """The nearest items of a few queries in each run, and notes on it.

    Args:
        run: whose data show the items.
        level: by which a neighbour is right.
        runs: runs on the same items; at most eight are shown.
    """
    notes = [f"Neighbours are shown of the first {MOST_RUNS} runs."] if len(runs) > MOST_RUNS else []
    runs = runs[:MOST_RUNS]
    dataset: Dataset | None = None
    try:
        dataset = load_splits(run.config, data_root, reporter("reading images")).evaluation.get(split)
    except (ValueError, OSError) as error:  # moved or deleted: the neighbours can be named all the same
        reason = " ".join(str(error).split())
        notes.append(f"Items are shown by their ids, as the data of {run.name} cannot be loaded: {reason}")
    positions = {} if dataset is None else {name: i for i, name in enumerate(dataset.ids)}
    first = runs[0]
    names = first.vectors.names()

    def item(vectors: Vectors, name: str, row: int) -> dict[str, Any]:
        preview = dataset.show(positions[name]) if dataset is not None and name in positions else None
        return {
            "id": name,
            **preview_record(preview),
            "labels": {at: str(column[row]) for at, column in vectors.labels.items()},
        }

    queries = []
    for position, why in steps(_chosen(runs), "neighbours"):
        name = names[position]
        per_run = []
        for run_hits in runs:
            local_names = run_hits.vectors.names()
            near = [
                NeighbourRecord(**item(run_hits.vectors, local_names[i], i), similarity=similarity)
                for i, similarity in _nearest(run_hits.vectors, local_names.index(name))
            ]
            per_run.append(RunNeighbours(run=run_hits.name, neighbours=near))
        queries.append(SharedQuery(**item(first.vectors, name, position), why=why, runs=per_run))
    return SharedGallery(split=split, level=level, queries=queries), notes


def _chosen(runs: Sequence[QueryHits]) -> list[tuple[int, str]]:
    """Positions of queries among the items of the first run, with the reason: the runs disagree, or at random."""
    first = runs[0]
    names = first.vectors.names()
    order = {names[row]: number for number, row in enumerate(first.queries.tolist())}
    hits = np.empty((len(runs), len(first.queries)))
    for number, run_hits in enumerate(runs):
        local_names = run_hits.vectors.names()
        hits[number, [order[local_names[row]] for row in run_hits.queries.tolist()]] = run_hits.hits
    mixed = np.random.default_rng(0).permutation(len(first.queries))
    variance = hits.var(axis=0)
    differing = [at for at in mixed[np.argsort(-variance[mixed], kind="stable")].tolist() if variance[at] > 0][
        :DIFFERENT
    ]
    others = [at for at in mixed.tolist() if at not in differing][:RANDOM]
    reasons = []
    for at in differing:
        right = [run_hits.name for run_hits, hit in zip(runs, hits[:, at], strict=True) if hit > 0.5]
        reasons.append((int(first.queries[at]), f"The nearest item is right in {_of(right, len(runs))}."))
    return [*reasons, *((int(first.queries[at]), "Drawn at random.") for at in others)]


def _of(names: Sequence[str], count: int) -> str:
    if not names:
        return "none for certain"
    return ", ".join(names) + (" alone" if len(names) == 1 and count > 2 else "")


def _nearest(vectors: Vectors, row: int) -> list[tuple[int, float]]:
    """Positions of the nearest items that a query may retrieve, with their cosine similarities."""
    protocol = vectors.protocol
    rows = np.arange(len(vectors)) if protocol is None else protocol.retrieved
    mask = rows != row
    if protocol is not None and protocol.cameras is not None:
        finest = list(vectors.labels.values())[-1]
        mask &= (finest[rows] != finest[row]) | (protocol.cameras[rows] != protocol.cameras[row])
    rows = np.concatenate([[row], rows[mask]])
    if len(rows) < 2:
        return []
    result = neighbours(vectors.embeddings[rows], [0], min(NEIGHBOURS, len(rows) - 1), distance="cosine")
    positions, distances = rows[result.indices[0]].tolist(), result.distances[0].tolist()
    return [(i, round(1 - distance, 4)) for i, distance in zip(positions, distances, strict=True)]
