"""Nearest neighbours of the same queries in several runs, for the page of `trivet compare`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from trivet.commands.compare.record import RunNeighbours, SharedGallery, SharedQuery
from trivet.commands.compare.runs import StoredRun
from trivet.commands.displayed_items import DisplayedItems, nearest_items, retrievable
from trivet.datasets import Dataset
from trivet.io.embedding_table import Vectors
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
        dataset = load_splits(run.folder.config(), data_root, reporter("reading images")).evaluation.get(split)
    except (ValueError, OSError) as error:  # moved or deleted: the neighbours can be named all the same
        reason = " ".join(str(error).split())
        notes.append(f"Items are shown by their ids, as the data of {run.name} cannot be loaded: {reason}")
    positions = {} if dataset is None else {name: i for i, name in enumerate(dataset.ids)}

    def items_of(vectors: Vectors) -> DisplayedItems:
        names = vectors.names()
        at = [positions.get(name) for name in names]
        return DisplayedItems(
            ids=names,
            labels=vectors.labels,
            show=lambda i: None if dataset is None or (position := at[i]) is None else dataset.show(position),
        )

    displayed = [items_of(run_hits.vectors) for run_hits in runs]
    queries = []
    for position, why in steps(_chosen(runs), "neighbours"):
        name = displayed[0].ids[position]
        per_run = []
        for run_hits, items in zip(runs, displayed, strict=True):
            vectors, row = run_hits.vectors, items.ids.index(name)
            allowed = retrievable(vectors.protocol, list(vectors.labels.values())[-1], row)
            near = items.neighbours(nearest_items(vectors.embeddings, row, NEIGHBOURS, allowed))
            per_run.append(RunNeighbours(run=run_hits.name, neighbours=near))
        queries.append(SharedQuery(**dict(displayed[0].record(position)), why=why, runs=per_run))
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
