"""The record of `trivet demo`."""

from __future__ import annotations

from typing import Literal, TypedDict

DemoMeasure = Literal["recall@1", "recall@2", "recall@4", "recall@8", "nmi", "nmi+"]


class SeedSpread(TypedDict):
    """Over seeds: the mean, the sample standard deviation and the values."""

    mean: float
    std: float
    values: list[float]


DemoRow = TypedDict(
    "DemoRow",
    {
        "split": str,
        "level": str,
        "recall@1": SeedSpread | None,
        "recall@2": SeedSpread | None,
        "recall@4": SeedSpread | None,
        "recall@8": SeedSpread | None,
        "nmi": SeedSpread | None,
        "nmi+": SeedSpread | None,
    },
)
"""The measures of one embedding on a split, at a label level."""


class DemoResult(DemoRow):
    """Measures of the networks trained with "random" or with "easy" positives."""

    positives: str


class DemoReference(DemoRow):
    """Measures of an untrained reference."""

    name: str


class DemoMap(TypedDict):
    """Items in the plane, with their digits and the parities of these."""

    points: list[list[float]]
    digit: list[int]
    parity: list[int]
    thumbnails: list[str | None]


class DemoRecord(TypedDict):
    """Content of the page of the demo; positives -> collapse index and map; split -> easy less random of each seed."""

    results: list[DemoResult]
    references: list[DemoReference]
    collapse: dict[str, SeedSpread]
    gains: dict[str, list[float]]
    maps: dict[str, DemoMap]
    text: list[str]
    settings: dict[str, object]
    environment: dict[str, object]
    seconds: float | None
    command: str
    created: str
    trivet: str
