"""The measures as pages show them: names, meanings, units, and values by chance."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Literal

from trivet.reports.items import is_number
from trivet.reports.page import MISSING, number, percent


@dataclass(frozen=True)
class Measure:
    """A measure as pages show it.

    Attributes:
        name: as people write it.
        meaning: in words; empty where the name says it.
        unit: a "share" is shown in percent, a "number" as it is.
        better: the good end of its scale, if there is one.
        chance: its value without knowledge of the classes; None where that depends on the data, and is in the record.
    """

    name: str
    meaning: str = ""
    unit: Literal["share", "number"] = "share"
    better: Literal["more", "less"] | None = None
    chance: float | None = None

    def show(self, value: Any) -> str:
        """A value with its unit."""
        if self.unit == "number":
            return plain(value)
        return f"{percent(value)}\u00a0%" if is_number(value) else MISSING


def plain(value: Any) -> str:
    """A number to three digits, a count whole."""
    if not is_number(value):
        return MISSING
    return number(round(value)) if isinstance(value, int) or abs(value) >= 1000 else f"{value:.3g}"


def _measures(page: str) -> dict[str, Measure]:
    """The rows of `measures.csv` for the pages of evaluations, or of diagnoses."""
    with files("trivet.reports").joinpath("measures.csv").open(encoding="utf-8") as file:
        rows: list[dict[str, Any]] = [row for row in csv.DictReader(file) if row.pop("page") == page]
    for row in rows:
        row.update(better=row["better"] or None, chance=float(row["chance"]) if row["chance"] else None)
    return {row.pop("key"): Measure(**row) for row in rows}


EVALUATION = _measures("evaluation")
"""Measures of an evaluation, in their order on a page; see `measure_key`."""

CLUSTERING = ("nmi", "nmi-geometric", "ami", "nmi+")
VERIFICATION = ("roc-auc", "tar@far", "verification-accuracy")

DIAGNOSIS = _measures("diagnosis")
"""Measures of a diagnosis, in their order on a page, and then those of the monitor."""

OVERS: tuple[Literal["queries"], Literal["classes"]] = ("queries", "classes")
SAMPLED = {"queries": "other items", "classes": "other classes"}
"""What an interval is about: other items of these classes, as queries and in the gallery, or other classes."""
SAMPLED_PAIRS = {**SAMPLED, "classes": "other groups"}
"""The same of pairs."""


def finite(value: object) -> float | None:
    """The number, or None for what is not one."""
    return value if is_number(value) else None


def interval(ends: Sequence[Any] | None) -> Sequence[float] | None:
    """The ends, or None where one of them is no number."""
    return ends if ends and all(map(is_number, ends)) else None


def together(lists: Iterable[Sequence[str]]) -> list[str]:
    """Names of all lists, each once, in their order."""
    return list(dict.fromkeys(name for names in lists for name in names))


def in_order(measured: Iterable[str]) -> list[str]:
    """Recalls by their K, then the measures of `EVALUATION`, of those that were measured."""
    known = set(measured)
    recalls = sorted((name for name in known if re.fullmatch(r"recall@\d+", name)), key=lambda name: int(name[7:]))
    return [*recalls, *(name for name in EVALUATION if name in known)]


def best_text(texts: Iterable[str]) -> str | None:
    """The largest number as shown; None where all are equal, or there is one."""
    numbers = {text for text in texts if text != MISSING}
    return max(numbers, key=float) if len(numbers) > 1 else None


def best_line(measure: str, shares: Mapping[str, float | None], outcomes: Mapping[str, str]) -> list[str]:
    """A sentence on the best of three or more by a measure, and on which differ clearly from the first; none of fewer.

    Args:
        shares: name -> the measure; the first is what the others are compared with.
        outcomes: name -> "better", "worse", or another word where neither is clear, of the others.

    Example:
        >>> best_line("recall@1", {"a": 0.5, "b": 0.7, "c": 0.4}, {"b": "better", "c": "open"})
        ['b has the highest recall@1 of the 3, 70.0\xa0%. Compared with a, clearly better: b; no clear difference: c.']
    """
    texts = {name: percent(share) for name, share in shares.items() if share is not None}
    if len(texts) < 3:
        return []
    most = max(texts.values(), key=float)
    best = [name for name, text in texts.items() if text == most]
    ways: dict[str, list[str]] = {"clearly better": [], "clearly worse": [], "no clear difference": []}
    for name, outcome in outcomes.items():
        ways[f"clearly {outcome}" if outcome in ("better", "worse") else "no clear difference"].append(name)
    clear = "; ".join(f"{words}: {', '.join(names)}" for words, names in ways.items() if names)
    return [
        f"{' and '.join(best)} {'has' if len(best) == 1 else 'have'} the highest {named(measure)} of the {len(texts)}, "
        f"{most}\u00a0%. Compared with {next(iter(shares))}, {clear}."
    ]


def measure_key(name: str) -> str:
    """The key in `EVALUATION` of a measure of a record, which has a number for K, or a rate."""
    key = re.sub(r"@\d+$", "@K", re.sub(r"=[^_]*$", "", name))
    return "ndcg" if key == "ndcg@K" else key


def named(measure: str | None) -> str:
    """A measure of an evaluation as people write it."""
    name = measure or ""
    if name.startswith("tar@far="):
        return f"TAR@FAR {100 * float(name.removeprefix('tar@far=')):g}\u00a0%"
    known, (_, at, k) = EVALUATION.get(measure_key(name)), name.partition("@")
    if known is None:
        return name
    return known.name.removesuffix("@K") + at + k if k.isdigit() else known.name


def short_name(measure: str) -> str:
    """The same in the head of a column."""
    return named(measure).replace("recall@", "R@")


def between(ends: Sequence[Any] | None, render: Callable[[float | None], str] = percent) -> str:
    """An interval in words."""
    known = interval(ends)
    return MISSING if known is None else f"{render(known[0])} to {render(known[1])}"


def by_chance(measure: str, share: float | None) -> str:
    """A share that is a small power of ten keeps its digits."""
    return f"{100 * share:g}" if share is not None and measure.startswith("tar@far=") else percent(share)
