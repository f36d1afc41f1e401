"""The record of `trivet drift`: the output of `--json`, and what its page shows."""

from __future__ import annotations

from typing import Literal

from trivet.reports.shared_records import ItemRecord, StampedRecord
from trivet.runtime.record import Number, Record


class ComparedSet(Record):
    """A set: how many items it has, how many of them were compared, and in how many groups they are."""

    name: str
    items: int
    compared: int
    groups: int | None = None


class DriftQuestion(Record):
    """A question with the p value of its test, that adjusted for the number of questions, and the answer.

    "items": as a whole; "scope": more out of scope; "clusters": new ones; "shares": of the classes; "classes": the
    items within classes.
    """

    question: str
    p: Number
    adjusted: Number
    changed: bool
    sentence: str


class PowerRow(Record):
    """A share of the new items in a cluster that the reference lacks, and in which share of draws it is detected."""

    share: Number
    power: Number


class ScopeRecord(Record):
    """Shares of items out of scope, and the excess among the new ones with its 95 % interval."""

    now: Number
    reference: Number
    excess: Number
    interval: list[Number]


class ClusterRecord(Record):
    """A new cluster: its items, its shares of both sets, its p value, commonest label, and most central items."""

    items: int
    now: Number
    reference: Number
    p: Number
    new: bool = True
    label: str | None = None
    ids: list[str] = []
    examples: list[ItemRecord] = []


class ClassDriftRow(Record):
    """A class: its shares of both sets and its items in both; the p values of a change of the share and within it."""

    name: str
    reference: Number
    now: Number
    reference_items: int
    now_items: int
    share_p: Number
    within_p: Number | None = None


class CanaryRecord(Record):
    """recall@1 of canaries among as many items of both sets, their difference, its 99 % interval, whether it fell."""

    level: str
    queries: int
    reference: Number
    now: Number
    difference: Number
    interval: list[Number]
    fell: bool
    gallery: int = 0
    sentence: str = ""


class DriftRecord(StampedRecord):
    """Changes from a reference to new data; `detectable` and `equivalent` are shares of the new items."""

    headline: str = ""
    answer: Literal["differs", "alike", "unclear"] = "unclear"
    false_alarms: Number = 0.05
    p: Number = 1.0
    reference: ComparedSet | None = None
    now: ComparedSet | None = None
    questions: list[DriftQuestion] = []
    power: list[PowerRow] = []
    detectable: Number | None = None
    equivalent: Number | None = None
    scope: ScopeRecord | None = None
    clusters: list[ClusterRecord] = []
    level: str | None = None
    classes: list[ClassDriftRow] = []
    farthest: list[ItemRecord] = []
    more: list[ItemRecord] = []
    fewer: list[ItemRecord] = []
    canaries: CanaryRecord | None = None
    notes: list[str] = []
