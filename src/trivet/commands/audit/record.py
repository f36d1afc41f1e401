"""The record of `trivet audit`."""

from __future__ import annotations

from typing import TypedDict

from trivet.reports.shared_records import Ends


class NoiseRate(TypedDict):
    """The share of wrong labels with its 95 % interval, or why it cannot be told.

    The verdict is "estimated"; "cannot-tell", between the ends of the interval, without an estimate; or
    "uninformative", without either.
    """

    verdict: str
    estimate: float | None
    interval: Ends | None
    reason: str


class DuplicateCounts(TypedDict):
    """Numbers of items with an exact or a near duplicate, and with one of another label."""

    exact: int
    near: int
    other_label: int


class Transition(TypedDict):
    """Shares of the labels (columns) in each true class (rows), with the ends of their intervals."""

    classes: list[str]
    matrix: list[list[float | None]]
    low: list[list[float | None]]
    high: list[list[float | None]]


class LabelledItem(TypedDict):
    """An item with its thumbnail as a data URI, or its text."""

    id: str
    label: str
    thumbnail: str | None
    text: str | None


class NearbyItem(LabelledItem):
    """A neighbour, by cosine similarity or else by distance."""

    similarity: float | None
    distance: float | None


class SuspectItem(LabelledItem):
    """An item of the page with the label proposed for it and its nearest neighbours.

    `offered` is what a person may choose with one key: see `trivet.commands.audit.run.offered`; nothing if it is the
    item's own. `duplicate` is "exact" or "near", `duplicate_label` "same" or "other".
    """

    proposed: str
    offered: str | None
    probability: float | None
    evidence: list[str]
    duplicate: str | None
    duplicate_of: str | None
    duplicate_label: str | None
    outlier: bool | None
    neighbours: list[NearbyItem]


class AuditRecord(TypedDict):
    """Contents of the page of an audit, the most suspect items first."""

    name: str
    of_run: bool | None
    split: str | None
    level: str
    items: int | None
    classes: int | None
    distance: str
    folds: int | None
    neighbours: int | None
    method: str
    noise_rate: NoiseRate | None
    above_half: int | None
    called_wrong: int | None
    expected_wrong: float | None
    duplicates: DuplicateCounts | None
    outliers: int | None
    transition: Transition | None
    notes: list[str]
    selected: list[SuspectItem]
    class_names: list[str]
    command: str
    created: str
    trivet: str
