"""Curves over the noise rate, beside the topline of fewer clean items."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from trivet.reports.figure import BLUE, GREEN, ORANGE, Figure, columns, in_percent, panels
from trivet_papers.experiment import Drawing, Factor, Results

METHODS = {"random": "triplet, random", "fixed": "triplet, fixed", "marginal": "marginal"}
COLOURS = {"random": BLUE, "fixed": ORANGE, "marginal": GREEN}
SOFT = "#7d8794"
NAMES = {"recall": "recall@1", "nmi": "NMI"}
READING = (
    "Lines are means over seeds, dots single seeds. Solid: trained with labels of which a share p is wrong. Dashed: "
    "the topline, a share 1 - p of the items with clean labels. Dotted: the network before training. Last panel: the "
    "first over the second, for all methods. Test labels are clean."
)
Row = dict[str, Any]
Cell = Mapping[str, Factor]


def _cell(data: str, method: str, kind: str, p: float) -> Cell:
    return {"data": data, "method": method, "labels": "noise" if p == 0 else kind, "p": p}


def curves_figure(short: str, data: str, measure: str, source: str, rates: Sequence[float], before: Cell) -> Drawing:
    """A panel for each method, and one for the ratios of all."""

    def draw(results: Results) -> Figure:
        picture, axes = panels(2, 2, height=5.2, sharex=True)
        flat = [axes[0, 0], axes[0, 1], axes[1, 0]]
        rows: list[Row] = []
        for panel, (method, name) in zip(flat, METHODS.items(), strict=True):
            method_rows = _rows(results, data, method, measure, rates)
            rows += method_rows
            for key, line in (("noise", "-"), ("topline", "--")):
                _curve(panel, method_rows, key, COLOURS[method], line)
            start = results.numbers(measure, None, **before)
            if start:
                panel.axhline(fmean(start), color=SOFT, linestyle=":", linewidth=1.2)
            panel.set_title(name)
            panel.set_ylabel(f"{NAMES[short]} (%)")
            _curve(axes[1, 1], method_rows, "ratio", COLOURS[method], "-")
        low = min(panel.get_ylim()[0] for panel in flat)
        high = max(panel.get_ylim()[1] for panel in flat)
        for panel in flat:
            panel.set_ylim(low, high)
            in_percent(panel.yaxis)
        axes[1, 1].axhline(1, color=SOFT, linewidth=0.8)
        axes[1, 1].set_title("noise / topline")
        axes[1, 1].set_ylabel(f"ratio of {NAMES[short]}")
        for panel in axes.flat:
            panel.grid(visible=True, axis="y")
        for panel in axes[1]:
            panel.set_xlabel("noise rate p")
        _legend(picture)
        names = ("data", "method", "p", "seed", "noise", "topline", "ratio")
        title = f"{data}: {NAMES[short]} by the noise rate"
        return Figure(short, title, f"Le and Odobez (2018), {source}", READING, columns(rows, names), picture)

    return Drawing(draw)


def clustering_figure(sources: Sequence[tuple[str, str]], rates: Sequence[float]) -> Drawing:
    """A panel of ratios of NMI for each data set."""

    def draw(results: Results) -> Figure:
        picture, axes = panels(1, len(sources), height=3.0, sharey=True)
        rows: list[Row] = []
        for panel, (data, measure) in zip(axes[0], sources, strict=True):
            for method in METHODS:
                method_rows = _rows(results, data, method, measure, rates)
                rows += method_rows
                _curve(panel, method_rows, "ratio", COLOURS[method], "-")
            panel.axhline(1, color=SOFT, linewidth=0.8)
            panel.set_title(data)
            panel.set_xlabel("noise rate p")
            panel.grid(visible=True, axis="y")
        axes[0, 0].set_ylabel("NMI, noise / topline")
        handles = [Line2D([], [], color=COLOURS[method], label=name) for method, name in METHODS.items()]
        picture.legend(handles=handles, loc="outside upper center", ncols=3)
        names = ("data", "method", "p", "seed", "noise", "topline", "ratio")
        return Figure(
            "clustering",
            "What noise leaves of NMI, on three data sets",
            "Le and Odobez (2018), figure 4",
            "NMI under noise over that of the topline, a share 1 - p of the items with clean labels. Lines are means "
            "over seeds, dots single seeds.",
            columns(rows, names),
            picture,
        )

    return Drawing(draw)


def human_figure(data: str, measure: str, human: Mapping[str, float], before: Cell) -> Drawing:
    """Labels of people and the topline by the rate; beside them drawn noise as frequent as the worst of these."""

    def draw(results: Results) -> Figure:
        picture, axes = panels(1, 3, height=3.2, sharey=True)
        rows: list[Row] = []
        for panel, (method, name) in zip(axes[0], METHODS.items(), strict=True):
            method_rows: list[Row] = []
            for kind, p in (("clean", 0.0), *human.items()):
                factors = _cell(data, method, "noise", p) if kind == "clean" else _of_people(data, method, kind, p)
                drawn = p == max(human.values())
                for seed in results.seeds:
                    of = results.of(seed)
                    row: Row = {"data": data, "method": method, "labels": kind, "p": p, "seed": seed}
                    row["noise"] = of(measure, **factors)
                    row["topline"] = of(measure, **_cell(data, method, "topline", p))
                    row["drawn"] = of(measure, **_cell(data, method, "noise", p)) if drawn else math.nan
                    method_rows.append(row)
            rows += method_rows
            colour = COLOURS[method]
            _curve(panel, method_rows, "noise", colour, "-")
            _curve(panel, method_rows, "topline", colour, "--")
            for row in method_rows:
                panel.plot([row["p"]], [row["drawn"]], color=colour, marker="x", linestyle="")
            start = results.numbers(measure, None, **before)
            if start:
                panel.axhline(fmean(start), color=SOFT, linestyle=":", linewidth=1.2)
            panel.set_title(name)
            panel.set_xlabel("share of wrong labels")
            panel.grid(visible=True, axis="y")
            in_percent(panel.yaxis)
        axes[0, 0].set_ylabel("recall@1 (%)")
        _legend(picture, Line2D([], [], color=SOFT, marker="x", linestyle="", label="drawn noise"))
        names = ("data", "method", "labels", "p", "seed", "noise", "topline", "drawn")
        return Figure(
            "human",
            f"{data}: labels of people",
            "an addition to Le and Odobez (2018), whose noise is drawn",
            "Solid: the labels that people gave (aggregate of three, one of them, the worst). Dashed: the topline, as "
            "many clean items as these labels have right ones. Crosses: uniform noise as frequent as the worst. "
            "Dotted: before training. Test labels are clean.",
            columns(rows, names),
            picture,
        )

    return Drawing(draw)


def _of_people(data: str, method: str, kind: str, p: float) -> Cell:
    return {"data": data, "method": method, "labels": kind, "p": p}


def _rows(results: Results, data: str, method: str, measure: str, rates: Sequence[float]) -> list[Row]:
    rows = []
    for p in rates:
        for seed in results.seeds:
            of = results.of(seed)
            noise, topline = (of(measure, **_cell(data, method, kind, p)) for kind in ("noise", "topline"))
            row: Row = {"data": data, "method": method, "p": p, "seed": seed}
            rows.append(row | {"noise": noise, "topline": topline, "ratio": noise / topline})
    return rows


def _curve(axes: Axes, rows: Sequence[Row], key: str, colour: str, line: str) -> None:
    there = [row for row in rows if not math.isnan(row[key])]
    at = sorted({row["p"] for row in there})
    means = [fmean(row[key] for row in there if row["p"] == p) for p in at]
    axes.plot(at, means, color=colour, linestyle=line)
    dots = [row["p"] for row in there], [row[key] for row in there]
    axes.plot(*dots, color=colour, marker="o", markersize=2.5, linestyle="", alpha=0.4, markeredgewidth=0)


def _legend(picture: Any, *more: Line2D) -> None:
    handles = [
        Line2D([], [], color=SOFT, linestyle="-", label="labels with noise"),
        Line2D([], [], color=SOFT, linestyle="--", label="topline: 1 − p clean items"),
        Line2D([], [], color=SOFT, linestyle=":", label="before training"),
        *more,
    ]
    picture.legend(handles=handles, loc="outside upper center", ncols=len(handles))
