"""The record of `trivet migrate`: the output of `--json`, and what its page shows."""

from __future__ import annotations

from trivet.reports.shared_records import Ends, ItemRecord, NeighbourRecord, StampedRecord
from trivet.runtime.record import Number, Record


class AgreementRecord(Record):
    """Neighbours of the same queries in both embeddings.

    `overlap` is the mean share of the k nearest that both have; `first_changed` and `none_shared` are shares of the
    queries: those with another nearest item, and those with none of their k nearest in common.
    """

    queries: str = ""
    count: int
    k: int
    overlap: Number | None = None
    first_changed: Number | None = None
    none_shared: Number | None = None


class MeasureChange(Record):
    """A measure in both embeddings, and the new one less the old one with its interval; see `CompareRecord`.

    `outcome` is "better", "worse", "no gain", where a point or more is ruled out, or "open".
    """

    measure: str
    old: Number
    new: Number
    difference: Number
    interval: Ends
    outcome: str


class LevelChange(Record):
    """Measures of the queries at a level; `gained` are right at the first place in the new embedding alone, `lost` in
    the old one alone.
    """

    level: str
    queries: int
    classes: int
    gained: int
    lost: int
    measures: list[MeasureChange] = []


class RetrievedItem(NeighbourRecord):
    """A neighbour of a query; `right` is None without labels."""

    right: bool | None = None


class ChangedQuery(ItemRecord):
    """A query with its neighbours in both embeddings; `change` is "gained", "lost" or "changed"."""

    change: str = ""
    old: list[RetrievedItem] = []
    new: list[RetrievedItem] = []


class MigrateRecord(StampedRecord):
    """A change of encoder: the answer, agreement of neighbours, and at each level measures with paired intervals.

    `outcome` is that of recall@1 at the level that decides, "no labels" without one. Thumbnails are for the page only.
    """

    old: str = ""
    new: str = ""
    items: int = 0
    headline: str = ""
    outcome: str = ""
    level: str | None = None
    confidence: Number | None = None
    agreements: list[AgreementRecord] = []
    levels: list[LevelChange] = []
    examples: list[ChangedQuery] = []
    notes: list[str] = []
