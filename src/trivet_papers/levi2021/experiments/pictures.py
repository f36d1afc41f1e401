"""Figures 2 to 6 of Levi et al., drawn of runs."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.patches import Rectangle

from trivet.reports.figure import BLACK, BLUE, COLOURS, GREEN, ORANGE, panels
from trivet_papers.experiment import Cell, Factor, Results
from trivet_papers.figure import Figure, in_percent, label_outer, legend_above, name_ends, plain_ticks, tidy
from trivet_papers.levi2021.experiments.common import EASY, LOSSES, PROXIES, USUAL
from trivet_papers.levi2021.neighbourhoods import unpacked
from trivet_papers.lines import SOFT, SeedLine, handle, seed_curve

MANY, MARKERS = COLOURS[:7], "o^"
COLOUR_OF = {"triplet": BLUE, "margin": GREEN, "MS": ORANGE, PROXIES: BLACK}
SOURCE = "Levi et al. 2021, figure {}"


def numbers(lines: Sequence[tuple[Cell, SeedLine]], axis: str) -> dict[str, list[Any]]:
    """The values of all lines, a row for each seed."""
    tables = [
        {**factors, axis: x, "seed": list(range(len(values))), "recall@1": values}
        for factors, line in lines
        for x, values in line
        if values
    ]
    return tidy(tables) if tables else {axis: [], "recall@1": []}


def by_step(results: Results, measure: str, steps: Sequence[int], unit: str) -> Figure:
    """Recall of characters over the training, with and without easy positives."""
    picture, axes = panels(1, 1, height=3.6, width=5.6)
    panel, lines, ends = axes[0][0], [], []
    for loss in (*LOSSES, PROXIES):
        for positives, dashes in ((EASY, "-"), (USUAL, "--")):
            if loss == PROXIES and positives == EASY:
                continue
            line = [(float(at), results.numbers(measure, at, loss=loss, positives=positives)) for at in steps]
            seed_curve(panel, line, COLOUR_OF[loss], dashes)
            lines.append(({"loss": loss, "positives": positives}, line))
            last = line[-1][1]
            if last:
                ends.append((("EPS + " if positives == EASY else "") + loss, statistics.fmean(last), COLOUR_OF[loss]))
    panel.set_xscale("log")
    plain_ticks(panel, steps)
    in_percent(panel.yaxis)
    label_outer(axes, unit, "recall@1 of characters, %")
    name_ends(panel, [(name, y) for name, y, _ in ends], [colour for *_, colour in ends], x=steps[-1])
    legend_above(picture, [handle("easy positives", BLACK), handle("without", BLACK, "--")])
    return Figure(
        "by-step",
        f"Recall of characters by {unit}, trained on alphabets",
        SOURCE.format("5a"),
        "Lines: mean over the seeds; bands: 95 % intervals; dots: the seeds.",
        numbers(lines, unit),
        picture,
    )


def by_images(results: Results, measure: str, images: Sequence[int]) -> Figure:
    """Recall of characters by the images of an alphabet in a batch."""
    picture, axes = panels(1, 1, height=3.2, width=5.0)
    panel, lines = axes[0][0], []
    for positives, colour in ((EASY, BLUE), (USUAL, BLACK)):
        line = [(float(count), results.numbers(measure, images=count, positives=positives)) for count in images]
        seed_curve(panel, line, colour, "-" if positives == EASY else "--")
        lines.append(({"positives": positives}, line))
    panel.set_xscale("log")
    plain_ticks(panel, images)
    in_percent(panel.yaxis)
    label_outer(axes, "images per alphabet in a batch", "recall@1 of characters, %")
    legend_above(picture, [handle("easy positives", BLUE), handle("random positives", BLACK, "--")])
    return Figure(
        "by-images",
        "Recall of characters by the images per alphabet in a batch, margin loss",
        SOURCE.format("5b"),
        "Lines: mean over the seeds; bands: 95 % intervals; dots: the seeds.",
        numbers(lines, "images"),
        picture,
    )


def by_trimming(results: Results, measures: Mapping[str, str], shares: Sequence[float]) -> Figure:
    """Recall over the share of the terms left out, beside easy positives.

    Args:
        measures: of each data set.
    """
    picture, axes = panels(1, len(measures), height=3.2, width=2.2 + 2.4 * len(measures))
    lines: list[tuple[Cell, SeedLine]] = []
    for panel, (data, measure) in zip(axes[0], measures.items(), strict=True):
        for loss, colour in (("triplet", BLUE), ("margin", GREEN)):
            line = [(share, results.numbers(measure, data=data, loss=loss, trim=share)) for share in shares]
            seed_curve(panel, line, colour)
            easy = results.numbers(measure, data=data, loss=loss, trim=EASY)
            if easy:
                panel.axhline(statistics.fmean(easy), color=colour, linestyle=":")
            lines += [
                ({"data": data, "loss": loss, "positives": "usual"}, line),
                ({"data": data, "loss": loss, "positives": EASY}, [(0.0, easy)]),
            ]
        panel.set_title(data, loc="left")
        in_percent(panel.xaxis, panel.yaxis)
    label_outer(axes, "share of the terms left out, %", "recall@1, %")
    easy_line = handle("with easy positives, all terms", BLACK, ":")
    legend_above(picture, [handle("triplet", BLUE), handle("margin", GREEN), easy_line])
    return Figure(
        "by-trimming",
        "Recall by the share of the largest terms left out",
        SOURCE.format("4"),
        "Lines: mean over the seeds; bands: 95 % intervals; dots: the seeds. Dotted: the same loss with easy positives "
        "and all terms.",
        numbers(lines, "share"),
        picture,
    )


def class_maps(
    results: Results,
    measure: str,
    what: str,
    *,
    name: str = "class-maps",
    figure: str = "6",
    digits: bool = False,
    **more: Factor,
) -> Figure:
    """Items in the plane by their classes, of the first seed, without and with easy positives.

    Args:
        what: a class is, in a word.
        digits: whether the classes are, which are named, and of which the odd ones have a mark of their own.
        more: the other factors of the two arms.
    """
    picture, axes = panels(1, 2, height=3.6)
    records = []
    seed = results.seeds[0] if results.seeds else 0
    for panel, positives, title in zip(axes[0], (USUAL, EASY), ("usual positives", "easy positives"), strict=True):
        rows = results.get(seed, measure, None, positives=positives, **more) or []
        labels = sorted({label for *_, label in rows})
        for index, label in enumerate(labels):
            xy = [(x, y) for x, y, row_label in rows if row_label == label]
            panel.plot(
                [x for x, _ in xy],
                [y for _, y in xy],
                marker=MARKERS[label % 2 if digits else index // len(MANY) % 2],
                color=MANY[index % len(MANY)],
                linestyle="none",
                markersize=4,
                markeredgewidth=0,
                alpha=0.8,
                label=str(label),
            )
        panel.set_title(title, loc="left")
        panel.set(aspect="equal", adjustable="datalim", xticks=[], yticks=[])
        panel.spines[:].set(visible=True, color="#cccccc")
        records += [{"positives": positives, "x": x, "y": y, what: label} for x, y, label in rows]
    if digits and axes[0][0].lines:
        handles = axes[0][0].lines
        picture.legend(handles=handles, loc="outside lower center", ncols=len(handles), handletextpad=0.1)
    return Figure(
        name,
        f"Items by their {what}, without and with easy positives",
        SOURCE.format(figure),
        f"A colour and mark for each {what}; the first seed.",
        tidy(records) if records else {"x": [], "y": []},
        picture,
    )


def nearest_items(results: Results, measure: str, **more: Factor) -> Figure:
    """Items and their nearest, of the first seed, without and with easy positives: a frame tells what they share."""
    picture, axes = panels(1, 2, height=3.1)
    records = []
    seed = results.seeds[0] if results.seeds else 0
    frames = {(1, 1): GREEN, (1, 0): ORANGE}  # by class and view
    for panel, positives, title in zip(axes[0], (USUAL, EASY), ("usual positives", "easy positives"), strict=True):
        for row, rank, same_class, same_view, text in (
            results.get(seed, measure, None, positives=positives, **more) or []
        ):
            left, low = 1.1 * rank + 0.4 * (rank > 0), -1.1 * row
            panel.imshow(unpacked(text), cmap="gray_r", extent=(left, left + 1, low, low + 1), origin="upper")
            frame = BLACK if rank == 0 else frames.get((same_class, same_view), SOFT)
            panel.add_patch(Rectangle((left, low), 1, 1, fill=False, edgecolor=frame, linewidth=1.6))
            cells = {"query": row, "rank": rank, "same character": same_class, "same view": same_view}
            records.append({"positives": positives, **cells})
        panel.autoscale_view()
        panel.set_title(title, loc="left")
        panel.set(aspect="equal", xticks=[], yticks=[])
        panel.spines[:].set_visible(False)
    kinds = {"query": BLACK, "same character, same view": GREEN, "same character, other view": ORANGE, "other": SOFT}
    legend_above(picture, [handle(name, colour) for name, colour in kinds.items()])
    return Figure(
        "nearest-items",
        "The nearest items of some, without and with easy positives",
        SOURCE.format("3"),
        "Each row: an item drawn at random, and its nearest others; the first seed.",
        tidy(records) if records else {"query": [], "rank": []},
        picture,
    )
