"""The numbers that the rules of a diagnosis compare measures with, and where each comes from."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from importlib.resources import files


@dataclass(frozen=True)
class Threshold:
    """A number that a rule compares a measure with, and where it comes from."""

    value: float
    measure: str
    meaning: str
    origin: str


def _read() -> dict[str, Threshold]:
    """The rows of `thresholds.csv`."""
    with files("trivet.collapse").joinpath("thresholds.csv").open(encoding="utf-8") as file:
        return {name: Threshold(float(value), *words) for name, value, *words in [*csv.reader(file)][1:]}


THRESHOLDS = _read()
"""Name -> threshold; every rule of `diagnose` compares with one of these."""


def exploding_norm(norm: float, norm_tail: float) -> str | None:
    """The rule by which norms exploded, in words with its numbers; None where they did not."""
    tail, scale = THRESHOLDS["norm"].value, THRESHOLDS["scale"].value
    if norm > scale:
        return f"root mean square norm {norm:.3g}, over {scale:g}"
    return f"largest norm {norm_tail:.3g} times the median, over {tail:g}" if norm_tail > tail else None
