"""The diameter of embeddings after training, by batch and dimension, with the bound of equation (17)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from trivet.reports.figure import BLUE, GREEN, RED, Figure, columns, panels
from trivet_papers.experiment import Drawing, Factor, Results

COLLAPSED = 0.05  # of the mean distance before training; what keeps less has collapsed
FACTOR = 2.0  # c of equation (17), as the paper has it
SOFT = "#7d8794"
LEAST = 1e-4  # where the axes end: smaller values are drawn there
READING = (
    "Each mark is a trained network: the largest distance among held-out items, or what they keep of their mean "
    "distance. Crosses have collapsed: they keep less than 5 %. Dotted: before training. Dashed: the lower bound of "
    "equation (17) with factor 2, mean over seeds, where it is above 0; marks below it violate it."
)


@dataclass(frozen=True)
class Panel:
    """Runs side by side: what stands on the axis and the factors of each."""

    title: str
    across: str
    runs: tuple[tuple[int, Mapping[str, Factor]], ...]


def collapse_figure(
    name: str, title: str, source: str, drawn_panels: Sequence[Panel], *, with_shrinkage: bool = False
) -> Drawing:
    """A panel for each part, two in a row; with `with_shrinkage` one more beside the only part, of what is kept."""

    def draw(results: Results) -> Figure:
        wide = 2 if len(drawn_panels) > 1 or with_shrinkage else 1
        tall = math.ceil((len(drawn_panels) + with_shrinkage) / wide)
        picture, axes = panels(tall, wide, height=0.6 + 2.5 * tall)
        rows = []
        for index, panel in enumerate(drawn_panels):
            rows += _diameters(axes[divmod(index, wide)], panel, results)
        if with_shrinkage:
            _shrinkage(axes[0, 1], drawn_panels[0], results)
        for empty in range(len(drawn_panels) + with_shrinkage, tall * wide):
            axes[divmod(empty, wide)].remove()
        handles = [
            Line2D([], [], color=GREEN, marker="o", linestyle="", label="trained"),
            Line2D([], [], color=RED, marker="X", linestyle="", label="collapsed (keeps < 5 %)"),
            Line2D([], [], color=SOFT, linestyle=":", marker="D", markersize=3, label="untrained"),
            Line2D([], [], color=BLUE, linestyle="--", label="bound of (17)"),
        ]
        picture.legend(handles=handles, loc="outside upper center", ncols=4, columnspacing=1.2)
        names = ("panel", "across", "seed", "diameter_before", "diameter_after", "bound", "kept", "kept_half_way")
        return Figure(name, title, source, READING, columns(rows, names), picture)

    return Drawing(draw)


def _rows(panel: Panel, results: Results) -> list[dict[str, float | str]]:
    rows: list[dict[str, float | str]] = []
    for across, factors in panel.runs:
        half = results.arm(**factors).steps[1]
        for seed in results.seeds:
            of = results.of(seed)
            before = of("diameter", at=0, **factors)
            start = of("distance mean", at=0, **factors)
            rows.append(
                {
                    "panel": panel.title,
                    "across": across,
                    "seed": seed,
                    "diameter_before": before,
                    "diameter_after": of("diameter", **factors),
                    "bound": before - FACTOR * of("first loss max", at=0, **factors),
                    "kept": of("distance mean", **factors) / start,
                    "kept_half_way": of("distance mean", at=half, **factors) / start,
                }
            )
    return [row for row in rows if not math.isnan(float(row["kept"]))]


def _diameters(axes: Axes, panel: Panel, results: Results) -> list[dict[str, float | str]]:
    rows = _rows(panel, results)
    _marks(axes, panel, rows, "diameter_after", LEAST)
    at = sorted({float(row["across"]) for row in rows})
    for key, colour, line, marker in (("diameter_before", SOFT, ":", "D"), ("bound", BLUE, "--", "")):
        heights = [fmean(float(row[key]) for row in rows if row["across"] == x) for x in at]
        visible = [value if value > 0 else math.nan for value in heights]
        axes.plot(at, visible, color=colour, linestyle=line, marker=marker, markersize=3)
    axes.set_ylabel("diameter, held-out items")
    return rows


def _shrinkage(axes: Axes, panel: Panel, results: Results) -> None:
    rows = _rows(panel, results)
    _marks(axes, panel, rows, "kept", LEAST)
    at = sorted({float(row["across"]) for row in rows})
    half = [fmean(max(float(row["kept_half_way"]), LEAST) for row in rows if row["across"] == x) for x in at]
    axes.plot(at, half, color=SOFT, linewidth=1)
    axes.axhline(COLLAPSED, color=RED, linewidth=1, linestyle=":")
    if at:
        axes.annotate(
            "half way", (at[0], half[0]), color=SOFT, textcoords="offset points", xytext=(2, 5), fontsize="small"
        )
    axes.set_ylabel("kept of the mean distance")


def _marks(axes: Axes, panel: Panel, rows: Sequence[Mapping[str, float | str]], key: str, least: float) -> None:
    for row in rows:
        down = float(row["kept"]) < COLLAPSED
        axes.plot(
            *([float(row["across"])], [max(float(row[key]), least)]),
            marker="X" if down else "o",
            color=RED if down else GREEN,
            markersize=5,
            markeredgewidth=0,
            linestyle="",
            alpha=0.75,
            zorder=3,
        )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    ticks = sorted({x for x, _ in panel.runs})
    axes.set_xticks(ticks if len(ticks) < 10 else [4, 8, 16, 32, 64, 128, 256, 576])
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.minorticks_off()
    axes.grid(visible=True, axis="y")
    axes.set_title(panel.title)
    axes.set_xlabel(panel.across)
