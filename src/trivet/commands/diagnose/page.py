"""The page of `trivet diagnose`, and the parts of it that the page of a run shows too."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trivet.reports.diagnosis_record import DiagnosisRecord, DiagnosisSection, ThresholdRecord
from trivet.reports.history_record import HistoryRecord
from trivet.reports.items import MOST_DOTS, embedding_maps, grouped_queries, is_number, triplet_dots
from trivet.reports.measures import DIAGNOSIS, plain
from trivet.reports.page import MISSING, Pictures, decimal, number, percent, same_length, write_page
from trivet.reports.verdict_view import FINE, FINE_ENDS, OF, TONES, VerdictView, measure_of, verdict
from trivet.runtime.record import Number
from trivet.runtime.text import counted, noun

SCRIPTS = ("dots.js", "plots.js", "diagnosis.js")
_MOST_ROWS = 50


_KEY = ("recall", "chance", "relative_spread", "effective_rank", "occupied", "effective_classes", "class_spread",
        "strangers", "reference_shrinkage")  # fmt: skip
_COLUMNS: dict[str, tuple[str, Callable[[Any], str], str]] = {
    "class": ("class", str, ""),
    "items": ("items", plain, ""),
    "spread": ("spread", decimal, "distances within the class over those to other classes; 0: a point"),
    "effective_rank": ("effective rank", lambda value: f"{value:.1f}", "directions in use inside the class"),
    "recall@1": ("recall@1, %", percent, "its items whose nearest other item is of the class"),
    "modes": ("modes", plain, "separate blobs that its items form"),
    "retention": (
        "neighbours kept, %",
        percent,
        "how many of the reference's neighbourhoods within the class are kept",
    ),
}


@dataclass
class ClassView:
    """The classes of a section, the tightest first; `ordered` is the column that they are ordered by."""

    columns: list[str]
    rows: list[list[str]]
    visible: int
    ordered: int | None
    tight: float | None
    tight_count: int | None
    spread_count: int

    @property
    def count(self) -> int:
        return len(self.rows)


@dataclass
class SectionView:
    """A diagnosed embedding."""

    label: str
    section: DiagnosisSection
    verdicts: list[VerdictView]
    classes: ClassView | None

    @property
    def facts(self) -> list[str]:
        section = self.section
        facts = [f"by {section.level}"] if section.level else []
        facts += [f"{number(section.items)} {noun(section.items, 'item')}"] if section.items is not None else []
        facts += [counted(section.dimension, "dimension")] if section.dimension is not None else []
        facts += [f"{section.distance} distance"] if section.distance else []
        return facts + ([f"compared with: {section.reference}"] if section.reference else [])

    @property
    def rank(self) -> int:
        """The place among other sections: what is bad comes first."""
        return min((TONES.index(entry.tone) for entry in self.verdicts), default=len(TONES))

    @property
    def notes(self) -> list[str]:
        return self.section.notes

    @property
    def values(self) -> list[Number]:
        """The singular values."""
        return self.section.spectrum.values if self.section.spectrum else []

    @property
    def spread_out(self) -> bool:
        """True unless all items are equal."""
        return any(value > 0 for value in self.values)


@dataclass
class MeasureRow:
    """A measure of all sections: the value in each, and whether it is the best."""

    name: str
    meaning: str
    way: str
    cells: list[tuple[str, bool]]


@dataclass
class DiagnosisView:
    """Contents of diagnosis_parts.html: the sections, and their measures side by side."""

    sections: list[SectionView]
    comparison: list[MeasureRow]
    measures: list[MeasureRow]
    meanings: list[tuple[str, str]]

    @property
    def several(self) -> bool:
        return len(self.sections) > 1

    @property
    def thresholds(self) -> list[ThresholdRecord]:
        return next((thresholds for view in self.sections if (thresholds := view.section.thresholds)), [])

    @property
    def shapes(self) -> bool:
        """True if there is a histogram or a spectrum."""
        return any(view.section.histograms or view.values for view in self.sections)

    @property
    def classes(self) -> bool:
        return any(view.classes for view in self.sections)


def write_diagnosis_report(record: DiagnosisRecord, path: Path) -> None:
    """Write the page of a diagnosis; a part that the record lacks is left out."""
    sections, pictures = named_sections(record.sections), Pictures()
    names = list(dict.fromkeys(section.name for section in sections.values()))
    same_run = len(names) == 1 and len({section.split for section in sections.values()}) == len(sections)
    content, plots = diagnosis_content(sections, compare=not same_run)
    for name in names:
        tone_down([view for view in content.sections if view.section.name == name])
    queries = {
        label: groups
        for label, section in sections.items()
        if (groups := grouped_queries(section.level, section.queries, pictures)) is not None
    }
    maps = embedding_maps(
        {label: plane_map for label, section in sections.items() if (plane_map := section.map)}, pictures
    )
    scatter = {
        label: {section.level: triplet_dots(label, dots)}
        for label, section in sections.items()
        if (dots := section.scatter)
    }
    context = {
        "record": record,
        "diagnosis": content,
        "run": names[0] if same_run and len(sections) > 1 else None,
        "history": history_content(record.history),
        "maps": maps,
        "scatter": scatter,
        "queries": queries,
        "most_dots": MOST_DOTS,
    }
    plots |= {"maps": maps, "scatter": scatter, "history": record.history, "of": "Embedding"}
    write_page("diagnosis.html", path, context, plots, script=SCRIPTS, pictures=pictures)


def named_sections(sections: Sequence[DiagnosisSection]) -> dict[str, DiagnosisSection]:
    """Sections by name and split, numbered where these are not unique."""
    named: dict[str, DiagnosisSection] = {}
    for section in sections:
        label = first = ", ".join([section.name or "embeddings", *([section.split] if section.split else [])])
        copy = 2
        while label in named:
            label, copy = f"{first} ({copy})", copy + 1
        named[label] = section
    return named


def diagnosis_content(
    sections: Mapping[str, DiagnosisSection], *, compare: bool, most_rows: int = _MOST_ROWS
) -> tuple[DiagnosisView, dict[str, Any]]:
    """Contents of the templates for diagnosed embeddings, and the plots of diagnosis.js.

    Args:
        sections: label -> section.
        compare: whether they are rivals, of which one may be the best by a measure, and not parts of one.
        most_rows: of a table of classes that are shown at first.
    """
    prepared = [_section(label, section, most_rows) for label, section in sections.items()]
    flat = [_flat(section) for section in sections.values()]
    content = DiagnosisView(
        sections=prepared,
        comparison=_measures(flat, _KEY, compare=compare) if len(prepared) > 1 else [],
        measures=_measures(flat, _all(flat), compare=compare and len(prepared) > 1),
        meanings=_meanings(sections),
    )
    return content, {
        "distances": [section.histograms for section in sections.values()],
        "spectra": [section.spectrum for section in sections.values()],
        "embeddings": list(sections),
    }


def history_content(history: HistoryRecord | None) -> HistoryRecord | None:
    """Training seen on one sample, checked; None where there is nothing."""
    if history is None or not history.moments:
        return None
    moments, edges, field = history.moments, history.edges, history.field
    for moment in moments:
        where = f"the history at step {moment.step}"
        same_length(where, {"s_ap": len(moment.s_ap), "s_an": len(moment.s_an)})
        if moment.within:
            _check_bins(where, edges, {"within": moment.within, "between": moment.between})
    if field:
        changes = {"change_ap": field.change_ap, "change_an": field.change_an}
        rows = {f"rows of {name}": len(change) for name, change in changes.items()}
        same_length("the predicted motion", {"values of s_an": len(field.s_an), **rows})
        wide = {f"columns of {name}": len(row) for name, change in changes.items() for row in change[:1]}
        same_length("the predicted motion", {"values of s_ap": len(field.s_ap), **wide})
    return history


def _section(label: str, section: DiagnosisSection, most_rows: int) -> SectionView:
    if histograms := section.histograms:
        shares = {name: bins for name, bins in histograms if name != "edges" and bins is not None}
        _check_bins(f"the distances of {label}", histograms.edges, shares)
    return SectionView(label, section, list(map(verdict, section.verdicts)), _classes(label, section, most_rows))


def _check_bins(where: str, edges: Sequence[float], series: Mapping[str, Sequence[float]]) -> None:
    same_length(where, {"bins": len(edges) - 1} | {name: len(shares) for name, shares in series.items() if shares})


def tone_down(sections: Sequence[SectionView]) -> bool:
    """Turn good verdicts neutral if one among these sections is bad; returns whether one is."""
    verdicts = [entry for view in sections for entry in view.verdicts]
    bad = any(entry.tone == "bad" for entry in verdicts)
    for entry in verdicts:
        if bad and entry.tone == "good":
            entry.tone = "calm"
    return bad


def _measures(flat: Sequence[Mapping[str, float]], keys: Sequence[str], *, compare: bool) -> list[MeasureRow]:
    """One row for each measure that any section has: its value in each; if they are compared, the best is marked."""
    names = list(dict.fromkeys(name for values in flat for name in values))
    fine = [name for name in names if name not in DIAGNOSIS and _compares_recall(name)]
    rows = []
    for name in [key for first in keys for key in (first, *(fine if first == "recall" else [])) if key in names]:
        measure = measure_of(name)
        better = measure.better if compare else None
        texts = [measure.show(values_of.get(name)) for values_of in flat]
        numbers = [values_of[name] for values_of in flat if name in values_of]
        best = measure.show((max if better == "more" else min)(numbers)) if better and len(set(texts)) > 1 else None
        way = {"more": "▲", "less": "▼", None: ""}[better]
        rows.append(MeasureRow(measure.name, measure.meaning, way, [(text, text == best) for text in texts]))
    return rows


def _all(flat: Sequence[Mapping[str, float]]) -> list[str]:
    """Names of all measures: the known ones in their order, then the others of the sections."""
    others = dict.fromkeys(name for values in flat for name in values)
    return [*DIAGNOSIS, *(name for name in others if name not in DIAGNOSIS and not _compares_recall(name))]


def _compares_recall(name: str) -> bool:
    """True for a measure of a finer level or of a reference."""
    return name.endswith(FINE_ENDS) or OF in name


def _flat(section: DiagnosisSection) -> dict[str, float]:
    """Measures by one name each; those of references, of finer levels and of sampling too."""
    measures = section.measures
    flat = {name: value for name, value in measures if is_number(value)}
    sampling = measures.sampling or {}
    flat |= {name: value for name in ("dropped", "active_fraction") if is_number(value := sampling.get(name))}
    for level, values in measures.fine.items():
        flat |= {f"{level}_{name}": value for name in FINE if is_number(value := values.get(name))}
    for ranked in measures.rankings[:1]:
        both = {name: getattr(ranked, name) for name in ("map_at_r", "reference_map_at_r")}
        flat |= {name: value for name, value in both.items() if is_number(value)}
    for comparison in measures.comparisons:
        finer = "" if comparison.level == section.level else f"{comparison.level}_"
        flat |= {f"{finer}{OF}{comparison.reference}": value} if is_number(value := comparison.reference_recall) else {}
    return flat


def _meanings(sections: Mapping[str, DiagnosisSection]) -> list[tuple[str, str]]:
    """The columns of the class tables that need a word."""
    tables = [table for section in sections.values() if (table := section.classes)]
    known = [
        _COLUMNS[name]
        for name in dict.fromkeys(name for class_table in tables for name in class_table.columns)
        if name in _COLUMNS
    ]
    return [(title.removesuffix(", %"), meaning) for title, _, meaning in known if meaning]


def _classes(label: str, section: DiagnosisSection, most_rows: int) -> ClassView | None:
    """The class table, the tightest class first."""
    table = section.classes
    if not table or not table.rows:
        return None
    names, rows = table.columns, table.rows
    for row in rows:
        same_length(f"the class table of {label}", {"columns": len(names), "cells": len(row)})
    spread = names.index("spread") if "spread" in names else None
    spreads = [] if spread is None else [value for row in rows if is_number(value := row[spread])]
    if spread is not None and spreads:
        rows = sorted(rows, key=lambda row: _last_if_unknown(row[spread]))
    tight = next((threshold.value for threshold in section.thresholds if threshold.name == "tight"), None)
    known = [_COLUMNS.get(name, (name.replace("_", " "), plain, "")) for name in names]
    return ClassView(
        columns=[title for title, _, _ in known],
        rows=[
            [
                render(cell) if isinstance(cell, str) or is_number(cell) else MISSING
                for cell, (_, render, _) in zip(row, known, strict=True)
            ]
            for row in rows
        ],
        visible=min(len(rows), most_rows),
        ordered=spread if spreads else None,
        tight=tight,
        tight_count=sum(value < tight for value in spreads) if tight is not None and spreads else None,
        spread_count=len(spreads),
    )


def _last_if_unknown(cell: object) -> float:
    return cell if is_number(cell) else math.inf
