"""What several runs find nearest to the same queries, for the page of `trivet compare`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from trivet.commands.compare.runs import Run
from trivet.datasets import Dataset
from trivet.datasets.preview import preview_record
from trivet.io.embedding_table import Vectors
from trivet.metrics import neighbours
from trivet.runtime.arrays import Floats, Integers
from trivet.runtime.progress import reporter, steps
from trivet.training.checkpoint_selection import load_splits

DIFFERENT, RANDOM, NEIGHBOURS = 4, 2, 5  # queries about which runs disagree, other queries, and neighbours of each
MOST_RUNS = 8


@dataclass(frozen=True, eq=False)
class Seen:
    """A run on the split whose neighbours are shown.

    Attributes:
        name: of the run.
        vectors: its embeddings.
        asked: positions `(Q,)` of the queries.
        hits: `(Q,)` recall@1 of each query.
    """

    name: str
    vectors: Vectors
    asked: Integers
    hits: Floats


def shared_gallery(
    run: Run, split: str, level: str, seen: Sequence[Seen], *, data_root: Path | None
) -> tuple[dict[str, Any], list[str]]:
    """The nearest items of a few queries in each run, as JSON, and what must be said of it.

    Args:
        run: whose data show the items.
        level: by which a neighbour is right.
        seen: runs on the same items; at most eight are shown.
    """
    notes = [f"Neighbours are shown of the first {MOST_RUNS} runs."] if len(seen) > MOST_RUNS else []
    seen = seen[:MOST_RUNS]
    dataset: Dataset | None = None
    try:
        dataset = load_splits(run.config, data_root, reporter("reading images")).evaluation.get(split)
    except (ValueError, OSError) as error:  # moved or deleted: the neighbours can be named all the same
        reason = " ".join(str(error).split())
        notes.append(f"Items are shown by their ids, as the data of {run.name} cannot be loaded: {reason}")
    place = {} if dataset is None else {name: i for i, name in enumerate(dataset.ids)}
    first = seen[0]
    names = first.vectors.names()

    def item(vectors: Vectors, name: str, row: int) -> dict[str, Any]:
        shown = dataset.show(place[name]) if dataset is not None and name in place else None
        return {
            "id": name,
            **preview_record(shown),
            "labels": {at: str(column[row]) for at, column in vectors.labels.items()},
        }

    queries = []
    for position, why in steps(_chosen(seen), "neighbours"):
        name = names[position]
        found = []
        for one in seen:
            own = one.vectors.names()
            row = own.index(name)
            near = [
                item(one.vectors, own[i], i) | {"similarity": similarity}
                for i, similarity in _nearest(one.vectors, row)
            ]
            found.append({"run": one.name, "neighbours": near})
        queries.append(item(first.vectors, name, position) | {"why": why, "runs": found})
    return {"split": split, "level": level, "queries": queries}, notes


def _chosen(seen: Sequence[Seen]) -> list[tuple[int, str]]:
    """Positions of queries among the items of the first run, with the reason: the runs disagree, or at random."""
    first = seen[0]
    names = first.vectors.names()
    order = {names[row]: number for number, row in enumerate(first.asked.tolist())}
    hits = np.empty((len(seen), len(first.asked)))
    for number, one in enumerate(seen):
        own = one.vectors.names()
        hits[number, [order[own[row]] for row in one.asked.tolist()]] = one.hits
    mixed = np.random.default_rng(0).permutation(len(first.asked))
    apart = hits.var(axis=0)
    differing = [at for at in mixed[np.argsort(-apart[mixed], kind="stable")].tolist() if apart[at] > 0][:DIFFERENT]
    others = [at for at in mixed.tolist() if at not in differing][:RANDOM]
    said = []
    for at in differing:
        right = [one.name for one, hit in zip(seen, hits[:, at], strict=True) if hit > 0.5]
        said.append((int(first.asked[at]), f"The nearest item is right in {_of(right, len(seen))}."))
    return [*said, *((int(first.asked[at]), "Drawn at random.") for at in others)]


def _of(names: Sequence[str], count: int) -> str:
    if not names:
        return "none for certain"
    return ", ".join(names) + (" alone" if len(names) == 1 and count > 2 else "")


def _nearest(vectors: Vectors, row: int) -> list[tuple[int, float]]:
    """Positions of the nearest items that a query may retrieve, with their cosine similarities."""
    protocol = vectors.protocol
    rows = np.arange(len(vectors)) if protocol is None else protocol.retrieved
    kept = rows != row
    if protocol is not None and protocol.cameras is not None:
        finest = list(vectors.labels.values())[-1]
        kept &= (finest[rows] != finest[row]) | (protocol.cameras[rows] != protocol.cameras[row])
    rows = np.concatenate([[row], rows[kept]])
    if len(rows) < 2:
        return []
    found = neighbours(vectors.embeddings[rows], [0], min(NEIGHBOURS, len(rows) - 1), distance="cosine")
    places, distances = rows[found.indices[0]].tolist(), found.distances[0].tolist()
    return [(i, round(1 - distance, 4)) for i, distance in zip(places, distances, strict=True)]
