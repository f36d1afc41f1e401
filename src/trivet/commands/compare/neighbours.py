"""Nearest neighbours of the same queries in several runs, for the page of `trivet compare`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from trivet.commands.compare.record import RunNeighbours, SharedGallery, SharedQuery
from trivet.commands.compare.runs import JUDGED, Measured
from trivet.commands.displayed_items import DisplayedItems, nearest_items, retrievable
from trivet.datasets import Dataset
from trivet.io.embedding_table import Vectors
from trivet.runtime.progress import reporter, steps
from trivet.training.components import load_splits

DIFFERENT, RANDOM, NEIGHBOURS = 4, 2, 5  # queries about which runs disagree, other queries, and neighbours of each
MOST_RUNS = 8


def shared_gallery(level: str, runs: Sequence[Measured], *, data_root: Path | None) -> tuple[SharedGallery, list[str]]:
    """The nearest items of a few queries in each run, and notes on it; the data of the first run show the items.

    Args:
        level: by which a neighbour is right.
        runs: on the same items; at most eight are shown.
    """
    run, split = runs[0].run, runs[0].split
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

    displayed = [items_of(of_run.vectors) for of_run in runs]
    queries = []
    for position, why in steps(_chosen(level, runs), "neighbours"):
        name = displayed[0].ids[position]
        per_run = []
        for of_run, items in zip(runs, displayed, strict=True):
            vectors, row = of_run.vectors, items.ids.index(name)
            allowed = retrievable(vectors.protocol, list(vectors.labels.values())[-1], row)
            near = items.neighbours(nearest_items(vectors.embeddings, row, NEIGHBOURS, allowed))
            per_run.append(RunNeighbours(run=of_run.run.name, neighbours=near))
        queries.append(SharedQuery(**dict(displayed[0].record(position)), why=why, runs=per_run))
    return SharedGallery(split=split, level=level, queries=queries), notes


def _chosen(level: str, runs: Sequence[Measured]) -> list[tuple[int, str]]:
    """Positions of queries among the items of the first run, with the reason: the runs disagree, or at random."""
    first = runs[0]
    order = {name: number for number, name in enumerate(first.query_ids.tolist())}
    hits = np.empty((len(runs), len(first.queries)))
    for number, of_run in enumerate(runs):
        hits[number, [order[name] for name in of_run.query_ids.tolist()]] = of_run.column(level, JUDGED)
    mixed = np.random.default_rng(0).permutation(len(first.queries))
    variance = hits.var(axis=0)
    differing = [at for at in mixed[np.argsort(-variance[mixed], kind="stable")].tolist() if variance[at] > 0][
        :DIFFERENT
    ]
    others = [at for at in mixed.tolist() if at not in differing][:RANDOM]
    reasons = []
    for at in differing:
        right = [of_run.run.name for of_run, hit in zip(runs, hits[:, at], strict=True) if hit > 0.5]
        reasons.append((int(first.queries[at]), f"The nearest item is right in {_of(right, len(runs))}."))
    return [*reasons, *((int(first.queries[at]), "Drawn at random.") for at in others)]


def _of(names: Sequence[str], count: int) -> str:
    if not names:
        return "none for certain"
    return ", ".join(names) + (" alone" if len(names) == 1 and count > 2 else "")
