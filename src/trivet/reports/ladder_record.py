"""The section "ladder" of the record of a run: the candidates that were compared, and which of them is the result."""

from __future__ import annotations

from pydantic import Field

from trivet.runtime.record import Number, Record


class CandidateRecord(Record):
    """A candidate, and how it did on the items that choose.

    `encoder` is the candidate that it begins as, "" where it begins from nothing. `difference` is that of MAP@R from
    the best encoder before it, `against`, with a 90 % interval over classes, whose lower end is that of one-sided 95 %.
    `better` says that it was the best when it was tried.
    `reason` says in a sentence why it was not tried. `parameters` counts those that were trained.
    """

    name: str
    rung: str
    encoder: str = ""
    recall: Number | None = Field(None, alias="recall@1")
    map_at_r: Number | None = Field(None, alias="map@r")
    against: str = ""
    difference: Number | None = None
    low: Number | None = None
    high: Number | None = None
    better: bool = False
    reason: str = ""
    seconds: Number = 0
    parameters: int | None = None


class ConfirmedRecord(Record):
    """A candidate beside its encoder, on held-out items that did not choose it.

    `classes` is None of items with tags. `low` and `high` are the 90 % interval of the difference of MAP@R, over
    classes; `passed` says that MAP@R is not lower, nor recall@1 beyond doubt.
    """

    items: int
    classes: int | None = None
    encoder: str
    recall: Number = Field(alias="recall@1")
    encoder_recall: Number
    map_at_r: Number = Field(alias="map@r")
    encoder_map_at_r: Number
    low: Number | None = None
    high: Number | None = None
    passed: bool


class LadderRecord(Record):
    """All candidates in the order in which they were tried.

    `folds_of` says of what the items are that choose: "classes" that are not trained on, or "items" of those that are.
    `best` is the best candidate by these, `result` the one that confirming left. Where they are of classes that are
    trained on, `new_classes` is the result trained on half of the classes and measured on the others. `missing` are
    encoders of the catalogue whose weights were not on this machine. `reason` says why nothing was held out. `modes` is
    the mean number of modes of a class in the best encoder, if most classes have several. `unit` is what items have at
    the level: "class", "tag" or "group".
    """

    folds_of: str = "classes"
    items: int | None = None
    classes: int | None = None
    unit: str = "class"
    candidates: list[CandidateRecord] = []
    best: str = ""
    result: str = ""
    confirmed: ConfirmedRecord | None = None
    new_classes: ConfirmedRecord | None = None
    missing: list[str] = []
    minutes: Number | None = None
    seconds: Number = 0
    reason: str = ""
    modes: Number | None = None
