"""The result of an audit of any relation: items with what they are labelled as, most suspect first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from trivet.commands.audit.items import Items
from trivet.commands.audit.record import AuditRecord, Suspect
from trivet.metrics.points import as_points, spans
from trivet.runtime.arrays import Floats, Integers

ROWS = 256  # items compared at once
Near = Callable[[Integers], tuple[Integers, Floats]]


@dataclass(frozen=True, eq=False)
class Audited:
    """An audit of classes, tags or pairs.

    A class, a set of tags and the right content of a pair are labels of items: a decision keeps one, gives another, or
    drops the item. Of the left content of pairs there may be several items; one is added for a pair that is missing.

    Attributes:
        items: the items.
        record: without the names of files.
        suspects: S items, most suspect first; none where nothing can be judged.
        positions: `(S,)` which items these are.
        reasons: number of a suspect -> what speaks for its label and against it.
        near: positions `(Q,)` -> those of the nearest others `(Q, k)`, nearest first, and their distances.
        columns, rows: of the table of suspects.
        retained: items of each label that `--drop-above` leaves.
    """

    items: Items
    record: AuditRecord
    suspects: Sequence[Suspect]
    positions: Integers
    reasons: Callable[[int], list[str]]
    near: Near
    columns: Sequence[str]
    rows: Iterable[Sequence[Any]]
    retained: int = 0


def nearest_items(items: Items, count: int) -> Near:
    """Position of items -> their nearest others by their distance, so many."""

    def near(rows: Integers) -> tuple[Integers, Floats]:
        points = as_points(items.embeddings, distance=items.distance)
        most = min(count, len(points) - 1)
        indices, distances = np.empty((len(rows), most), np.int64), np.empty((len(rows), most))
        for start, stop in spans(len(rows), ROWS):
            block = torch.from_numpy(rows[start:stop])
            gaps = torch.cdist(points[block], points)
            gaps[torch.arange(len(block)), block] = torch.inf
            nearest = gaps.topk(most, dim=1, largest=False)
            indices[start:stop], distances[start:stop] = nearest.indices.numpy(), nearest.values.numpy()
        return indices, distances

    return near
