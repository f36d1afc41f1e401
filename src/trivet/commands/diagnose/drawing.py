"""Plots of a diagnosis drawn by matplotlib: distances, and the triplet scatter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from trivet.reports.diagnosis_record import DiagnosisSection, Histograms, SectionScatter
from trivet.reports.figure import BLACK, BLUE, ORANGE, panels, style

HEIGHT = 2.7  # inches of a row


def draw_sections(sections: Sequence[DiagnosisSection]) -> Figure:
    """A row for each embedding: the shares of distances within and between classes, and the triplet scatter."""
    with style():
        picture, axes = panels(len(sections), 2, height=HEIGHT * len(sections))
        for (left, right), section in zip(axes, sections, strict=True):
            title = section.name if section.split is None else f"{section.name} ({section.split})"
            if section.histograms is not None:
                _draw_distances(left, section.histograms)
            if section.scatter is not None:
                _draw_scatter(right, section.scatter)
            left.set_title(f"{title}: {section.level}".replace("$", r"\$"), loc="left")
    return picture


def _draw_distances(axis: Any, histograms: Histograms) -> None:
    series = {
        "within": (histograms.within, BLUE, "-"),
        "between": (histograms.between, ORANGE, "-"),
        "within, reference": (histograms.reference_within, BLUE, ":"),
        "between, reference": (histograms.reference_between, ORANGE, ":"),
    }
    for name, (shares, colour, dash) in series.items():
        if shares is not None:
            axis.stairs(shares, histograms.edges, label=name, color=colour, linestyle=dash, linewidth=1.4)
    axis.set(xlabel="distance, in units of the mean", ylabel="share of pairs", ylim=(0, None))
    axis.legend()


def _draw_scatter(axis: Any, scatter: SectionScatter) -> None:
    positive, negative = (np.array(values, float) for values in (scatter.s_ap, scatter.s_an))
    right = positive > negative
    for mask, colour, name in ((right, BLUE, "nearest is positive"), (~right, ORANGE, "nearest is negative")):
        axis.plot(positive[mask], negative[mask], ".", color=colour, markersize=2.5, alpha=0.6, label=name)
    low = float(np.nanmin([positive.min(initial=1.0), negative.min(initial=1.0)]))
    axis.plot([low, 1], [low, 1], color=BLACK, linewidth=0.8)
    axis.set(xlabel="similarity to the nearest positive", ylabel="to the nearest negative")
    axis.legend(markerscale=3)
