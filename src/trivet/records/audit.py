"""The record of `trivet audit`."""

from __future__ import annotations

from typing import TypedDict

from trivet.records.items import Ends


class NoiseRate(TypedDict):
    """The estimated share of wrong labels, with its 95 % interval."""

    estimate: float
    interval: Ends


class Transition(TypedDict):
    """By true class (rows) what the labels are (columns), with the ends of each entry."""

    classes: list[str]
    matrix: list[list[float | None]]
    low: list[list[float | None]]
    high: list[list[float | None]]


class LabelledItem(TypedDict):
    """What is shown of an item: its thumbnail as a data URI, or its text."""

    id: str
    label: str
    thumbnail: str | None
    text: str | None


class Beside(LabelledItem):
    """A neighbour, by cosine similarity or else by distance."""

    similarity: float | None
    distance: float | None


class ShownSuspect(LabelledItem):
    """An item of the page with the label proposed for it and its nearest neighbours."""

    proposed: str
    probability: float | None
    evidence: list[str]
    neighbours: list[Beside]


class AuditRecord(TypedDict):
    """What the page of an audit shows, the most suspect items first."""

    name: str
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
    transition: Transition | None
    notes: list[str]
    shown: list[ShownSuspect]
    class_names: list[str]
    command: str
    created: str
    trivet: str
