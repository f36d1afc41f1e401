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
    """A measure, that of a reference, and the difference with its interval; see `CompareRecord`.

    `outcome` is "better", "worse", "no gain", where a point or more is ruled out, or "open".
    """

    measure: str
    value: Number
    reference: Number
    difference: Number
    interval: Ends
    outcome: str


class LevelChange(Record):
    """Measures of the new embedding at a level, with the old one as reference; `gained` are queries that are right at
    the first place in the new embedding alone, `lost` in the old one alone.
    """

    level: str
    queries: int
    classes: int
    gained: int
    lost: int
    measures: list[MeasureChange] = []


class SearchRow(Record):
    """Queries of one embedding in a gallery of another, at the level that decides; see `MapRecord`.

    `overlap` is the mean share of the k nearest that the gallery's embedding finds without a map; `from_old` and
    `from_new` are differences from the old embedding alone and from the new one alone.
    """

    queries: str
    gallery: str
    overlap: Number | None = None
    from_old: list[MeasureChange] = []
    from_new: list[MeasureChange] = []


class MapRecord(Record):
    """Linear maps between the embeddings, fitted on half of the items and measured on the other, both ways round.

    `outcome` is of new queries in an index of old items that are mapped: "suffices", where the loss of a point from the
    new embedding is ruled out, "re-embed", where it is a point or more beyond doubt, or "open"; empty without labels.
    `gain_retained` is the share of the gain in recall@1 that is left. `fitted` has the maps: from -> their names.
    """

    k: int
    fitted: dict[str, list[str]] = {}
    outcome: str = ""
    gain_retained: Number | None = None
    searches: list[SearchRow] = []


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

    `outcome` is that of recall@1 at the level that decides, "no labels" without one; `linear_map` is None with too few
    items. Thumbnails are for the page only.
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
    linear_map: MapRecord | None = None
    examples: list[ChangedQuery] = []
    notes: list[str] = []
