"""The diameter of embeddings after training, by batch and dimension, with the bound of equation (17)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from matplotlib.axes import Axes

from trivet.reports.figure import BLUE, GREEN, RED, panels
from trivet_papers.experiment import Cell, Drawing, Results, SeedValue
from trivet_papers.figure import Figure, columns, direct_label, in_percent, legend_above
from trivet_papers.lines import COLOURS, DASHES, SOFT, Row, SeedLine, handle, seed_curve

COLLAPSED = 0.05  # of the mean distance before training; what keeps less has collapsed
FACTOR = 2.0  # c of equation (17), as the paper has it
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
    runs: tuple[tuple[int, Cell], ...]


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
            handle("trained", GREEN, "", "o"),
            handle("collapsed (keeps < 5 %)", RED, "", "X"),
            handle("untrained", SOFT, ":", "D", markersize=3),
            handle("bound of (17)", BLUE, "--"),
        ]
        picture.legend(handles=handles, loc="outside upper center", ncols=4, columnspacing=1.2)
        names = ("panel", "across", "seed", "diameter_before", "diameter_after", "bound", "kept", "kept_half_way")
        return Figure(name, title, source, READING, columns(rows, names), picture)

    return Drawing(draw)


def length_figure(name: str, runs: Sequence[tuple[str, Cell]]) -> Drawing:
    """Curves of the mean distance that is left, and of recall@1, over the steps of training, for each of these runs."""
    measures = (("kept", "kept of the mean distance"), ("recall", "recall@1 of held-out items, %"))

    def draw(results: Results) -> Figure:
        picture, axes = panels(1, 2, height=3.2)
        rows: list[Row] = []
        for (label, factors), colour, dashes in zip(runs, COLOURS, DASHES, strict=False):
            lines: dict[str, SeedLine] = {key: [] for key, _ in measures}
            for step in results.arm(**factors).steps:
                seeds = [{"seed": seed, **_at(results.of(seed), factors, step)} for seed in results.seeds]
                seeds = [values for values in seeds if not math.isnan(values["kept"])]
                rows += [{"run": label, "step": step, **values} for values in seeds]
                for key, line in lines.items():
                    line.append((step, [values[key] for values in seeds]))
            for panel, line in zip(axes[0], lines.values(), strict=True):
                seed_curve(panel, line, colour, dashes)
        for panel, (_, text) in zip(axes[0], measures, strict=True):
            panel.set_xlabel("steps")
            panel.set_ylabel(text)
        axes[0, 0].set_yscale("log")
        axes[0, 0].axhline(COLLAPSED, color=RED, linewidth=1, linestyle=":")
        in_percent(axes[0, 1].yaxis)
        legend_above(
            picture, [handle(label, *style) for (label, _), *style in zip(runs, COLOURS, DASHES, strict=False)]
        )
        return Figure(
            name,
            "Scale and retrieval by the steps of training",
            "Xu et al. (2024), figure 5, which has one length: 40,000 steps",
            "Left, what held-out items keep of their mean distance: below 5 %, dotted, its scale has collapsed. Right, "
            "whether retrieval is lost with it. Lines: means over seeds with the 95 % interval; marks: seeds.",
            columns(rows, ("run", "step", "seed", "kept", "recall")),
            picture,
        )

    return Drawing(draw)


def _at(of: SeedValue, factors: Cell, step: int) -> dict[str, float]:
    share = of("distance mean", at=step, **factors) / of("distance mean", at=0, **factors)
    share = share if math.isnan(share) else max(share, LEAST)
    return {"kept": share, "recall": of("sample recall@1", at=step, **factors)}


def _rows(panel: Panel, results: Results) -> list[Row]:
    rows: list[Row] = []
    for across, factors in panel.runs:
        half = results.arm(**factors).steps[-2]
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


def _diameters(axes: Axes, panel: Panel, results: Results) -> list[Row]:
    rows = _rows(panel, results)
    _marks(axes, panel, rows, "diameter_after")
    at = sorted({float(row["across"]) for row in rows})
    for key, colour, line, marker in (("diameter_before", SOFT, ":", "D"), ("bound", BLUE, "--", "")):
        heights = [fmean(float(row[key]) for row in rows if row["across"] == x) for x in at]
        visible = [value if value > 0 else math.nan for value in heights]
        axes.plot(at, visible, color=colour, linestyle=line, marker=marker, markersize=3)
    axes.set_ylabel("diameter, held-out items")
    return rows


def _shrinkage(axes: Axes, panel: Panel, results: Results) -> None:
    rows = _rows(panel, results)
    _marks(axes, panel, rows, "kept")
    at = sorted({float(row["across"]) for row in rows})
    half = [fmean(max(float(row["kept_half_way"]), LEAST) for row in rows if row["across"] == x) for x in at]
    axes.plot(at, half, color=SOFT, linewidth=1)
    axes.axhline(COLLAPSED, color=RED, linewidth=1, linestyle=":")
    if at:
        direct_label(axes, at[0], half[0], "half way", SOFT, xytext=(2, 5), fontsize="small")
    axes.set_ylabel("kept of the mean distance")


def _marks(axes: Axes, panel: Panel, rows: Sequence[Row], key: str) -> None:
    for row in rows:
        down = float(row["kept"]) < COLLAPSED
        mark, colour, height = ("X" if down else "o"), (RED if down else GREEN), max(float(row[key]), LEAST)
        axes.plot(row["across"], height, mark, color=colour, markersize=5, markeredgewidth=0, alpha=0.75, zorder=3)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    ticks = sorted({x for x, _ in panel.runs})
    axes.set_xticks(ticks if len(ticks) < 10 else [4, 8, 16, 32, 64, 128, 256, 576])
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.minorticks_off()
    axes.grid(visible=True, axis="y")
    axes.set_title(panel.title)
    axes.set_xlabel(panel.across)
