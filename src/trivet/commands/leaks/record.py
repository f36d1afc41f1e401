"""The record of `trivet leaks`: the output of `--json`, and what its page shows."""

from __future__ import annotations

from trivet.reports.shared_records import StampedRecord
from trivet.runtime.record import Number, Record


class RecallWithout(Record):
    """recall@1 of the queries, of those that are no copies, and the first less the second with its 95 % interval."""

    recall: Number
    without: Number
    difference: Number
    interval: list[Number] | None = None


class LeakedItem(Record):
    """A copy: its kind, its id and class, and those of the item that it is a copy of; thumbnails are data URIs."""

    kind: str
    id: str
    original: str
    label: str = ""
    original_label: str = ""
    text: str | None = None
    original_text: str | None = None
    thumbnail: str | None = None
    original_thumbnail: str | None = None


class LeakCounts(Record):
    """The items of one split that are copies of items of another, by kind.

    "by_encoder" counts images that are near by their embeddings only, "other_class" the copies whose class the other
    item lacks. Texts that are "alike" by their embeddings, and "word_twins", which differ by one word, are not among
    the copies.
    """

    split: str
    searched: str
    items: int
    copies: int
    exact: int
    near: int
    cropped: int
    by_encoder: int
    alike: int
    word_twins: int
    other_class: int
    sentence: str
    recall: RecallWithout | None = None
    leaks: list[LeakedItem] = []


class GroupCrossing(Record):
    """The groups of a column that have items on both sides."""

    column: str
    split: str
    searched: str
    groups: int
    crossing: list[str]
    sentence: str


class LeaksRecord(StampedRecord):
    """Copies across the splits of a data set, each compared with those before it."""

    name: str = ""
    content: str = ""
    headline: str = ""
    splits: dict[str, int] = {}
    comparisons: list[LeakCounts] = []
    groups: list[GroupCrossing] = []
    notes: list[str] = []
