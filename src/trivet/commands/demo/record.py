"""The record of `trivet demo`: the numbers of `--json`, and what only the page shows."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any, Self

from pydantic import Field

from trivet.reports.shared_records import StampedRecord
from trivet.runtime.record import Number, Record


class SeedSpread(Record):
    """Mean, sample standard deviation (0 for one value) and values over seeds."""

    mean: Number
    std: Number
    values: list[Number]

    @classmethod
    def of(cls, values: Sequence[float]) -> Self:
        """The spread of some values."""
        std = statistics.stdev(values) if len(values) > 1 else 0.0
        return cls(mean=statistics.fmean(values), std=std, values=list(values))


class DemoRow(Record):
    """The measures of one embedding on a split, at a label level.

    It is of the networks trained with "random" or "easy" `positives`, or of a reference with a `name`.
    """

    positives: str | None = None
    name: str | None = None
    split: str
    level: str
    recall_1: SeedSpread | None = Field(None, alias="recall@1")
    recall_2: SeedSpread | None = Field(None, alias="recall@2")
    recall_4: SeedSpread | None = Field(None, alias="recall@4")
    recall_8: SeedSpread | None = Field(None, alias="recall@8")
    nmi: SeedSpread | None = None
    nmi_plus: SeedSpread | None = Field(None, alias="nmi+")

    @property
    def title(self) -> str:
        """The name of the embedding in a table."""
        return self.name or f"{self.positives} positives"

    @property
    def measures(self) -> dict[str, SeedSpread]:
        """Measure -> its spread, for those that were measured."""
        return {
            field.alias or name: value
            for name, field in type(self).model_fields.items()
            if isinstance(value := getattr(self, name), SeedSpread)
        }


class DemoMap(Record):
    """Items in the plane with the fine-coarse index, their digits and the parities of these."""

    points: list[list[Number]] = []
    index: Number | None = None
    digit: list[int] = []
    parity: list[int] = []
    thumbnails: list[str | None] = []


class DemoRecord(StampedRecord):
    """Results of a demo; positives -> collapse index and map; split -> easy less random of each seed."""

    results: list[DemoRow] = []
    references: list[DemoRow] = []
    collapse: dict[str, SeedSpread] = {}
    gains: dict[str, list[Number]] = {}
    maps: dict[str, DemoMap] = {}
    environment: dict[str, Any] = {}
    settings: dict[str, Any] = {}
    seconds: Number | None = None
    text: list[str] = []

    def recall(self, split: str, level: str, *, positives: str | None = None, name: str | None = None) -> SeedSpread:
        """Recall@1 of the networks trained with such positives, or of the reference of this name."""
        rows = self.results if name is None else self.references
        wanted = (positives, name, split, level)
        row = next(row for row in rows if (row.positives, row.name, row.split, row.level) == wanted)
        assert row.recall_1 is not None, "every row has recall@1"
        return row.recall_1
