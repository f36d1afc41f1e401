"""The forecast of equation (17) against batch and dimension: of random points, and of small networks."""

from __future__ import annotations

import math
from statistics import fmean

import numpy as np
from matplotlib.colors import TwoSlopeNorm
from matplotlib.patches import Rectangle

from trivet.reports.figure import BLUE, GREEN, RED, panels, style
from trivet_papers.figure import DIVERGING, Figure, columns
from trivet_papers.lines import SOFT, handle
from trivet_papers.xu2024 import point_sets
from trivet_papers.xu2024.training import train_digits

DIMENSIONS = (4, 8, 16, 32, 64, 128, 256, 512, 1024)
TRAINED_BATCHES = ((2, 2), (4, 4), (8, 4), (10, 8))  # classes, samples of each
TRAINED_DIMENSIONS = (4, 8, 32, 128, 512)
UNIT = "units of the embedding"


def scaling(*, seed: int, repeats: int, margin: float) -> Figure:
    """Both sides of the forecast diameter - 2 loss of untrained points, by batch and dimension."""
    cells = {
        (batch, d): point_sets.scale(n, int(batch.split("x")[1]), d, seed=seed, repeats=repeats, margin=margin)
        for batch, n in point_sets.BATCHES.items()
        for d in DIMENSIONS
    }
    rows = [
        {"batch": batch, "points": point_sets.BATCHES[batch], "dimension": d}
        | {"diameter": cell.diameter, "loss": cell.loss, "mean_loss": cell.mean_loss, "forecast": cell.forecast}
        | {"mean_distance": cell.mean_distance, "vacuous": int(cell.forecast <= 0)}
        for (batch, d), cell in cells.items()
    ]
    batches = list(point_sets.BATCHES)
    forecast = np.array([[cells[batch, d].forecast for d in DIMENSIONS] for batch in batches])
    with style():
        picture, axes = panels(1, 1, height=6.0)
        axes[0, 0].remove()
        grid = picture.add_gridspec(2, 2, height_ratios=(1, 1.15))
        top = picture.add_subplot(grid[0, :])
        by_batch, by_dimension = (picture.add_subplot(grid[1, k]) for k in (0, 1))
        shade = float(np.abs(forecast).max())
        image = top.imshow(
            forecast,
            cmap=DIVERGING.removesuffix("_r"),  # blue is what promises something
            norm=TwoSlopeNorm(0, -shade, shade),
            aspect="auto",
            interpolation="nearest",
        )
        for (row, column), value in np.ndenumerate(forecast):
            ink = "white" if abs(value) > 0.6 * shade else "black"
            box = {"facecolor": "white", "edgecolor": "none", "pad": 1.2, "alpha": 0.8} if value <= 0 else None
            top.text(column, row, f"{value:.1f}", ha="center", va="center", color=ink, bbox=box)
            if value <= 0:
                corner = (column - 0.5, row - 0.5)
                top.add_patch(Rectangle(corner, 1, 1, fill=False, hatch="////", edgecolor=RED, linewidth=0, alpha=0.55))
        top.set_xticks(range(len(DIMENSIONS)), [str(d) for d in DIMENSIONS])
        names = [f"{batch.replace('x', ' × ')} = {n}" for batch, n in point_sets.BATCHES.items()]
        top.set_yticks(range(len(batches)), names)
        top.set_xlabel("dimension $d$")
        top.set_ylabel("batch $P × K = N$")
        top.set_title("lower bound of the diameter, diameter − 2 × loss (hatched: at most 0, vacuous)")
        picture.colorbar(image, ax=top, label=UNIT, pad=0.01)
        sides = (("diameter", BLUE, "-", "o"), ("2 × loss", RED, "--", "s"))
        sizes = [point_sets.BATCHES[batch] for batch in batches]
        for panel, across, chosen in (
            (by_batch, sizes, [cells[batch, 32] for batch in batches]),
            (by_dimension, DIMENSIONS, [cells["8x4", d] for d in DIMENSIONS]),
        ):
            heights = {"diameter": [cell.diameter for cell in chosen], "2 × loss": [2 * cell.loss for cell in chosen]}
            for name, colour, line, marker in sides:
                panel.plot(across, heights[name], color=colour, linestyle=line, marker=marker, markersize=5, label=name)
            low, high = heights["2 × loss"], heights["diameter"]
            empty = [above <= below for above, below in zip(high, low, strict=True)]
            panel.fill_between(across, high, low, where=empty, color=RED, alpha=0.12, interpolate=True)
            panel.set_xscale("log", base=2)
            panel.set_xticks(across, [str(each) for each in across])
            panel.minorticks_off()
            panel.set_ylabel(f"distance ({UNIT})")
        by_dimension.set_xticks(DIMENSIONS[::2], [str(d) for d in DIMENSIONS[::2]])
        by_batch.set_xlabel("batch size $N$, at $d$ = 32")
        by_dimension.set_xlabel("dimension $d$, at 8 × 4 = 32")
        by_batch.set_ylim(0)
        by_dimension.set_ylim(0)
        by_batch.legend(loc="lower right")
        by_dimension.legend(loc="upper left")
    return Figure(
        name="scaling",
        title="When the bound of equation (17) is informative",
        source="Xu et al. (2024), equation (17) with c = 2; the dashed lines of figure 5",
        reading=(
            "The points are untrained and normally distributed. In blue cells their nearest separated embedding keeps "
            "at least this diameter; in hatched cells the bound is at most 0 and therefore vacuous. Below left, the "
            "loss grows with the batch while the diameter hardly does. Below right, the diameter grows like the root "
            "of 2 d while the loss stays. So the bound becomes vacuous for large batches and low dimensions. Even "
            "above 0 it holds for the nearest separated embedding, not for the trained one."
        ),
        numbers=columns(rows, tuple(rows[0])),
        picture=picture,
    )


def training(*, seed: int, repeats: int) -> Figure:
    """Diameter of the test set after training on the hardest triplet of each batch, by batch and dimension."""
    settings = {(batch, 32) for batch in TRAINED_BATCHES} | {((8, 4), d) for d in TRAINED_DIMENSIONS}
    trained = {
        (batch, d): [train_digits(*batch, d, seed=at) for at in range(seed, seed + repeats)]
        for batch, d in sorted(settings)
    }
    rows = [
        {"classes": batch[0], "samples_per_class": batch[1], "points": batch[0] * batch[1], "dimension": d, "seed": at}
        | {"diameter_before": each.before.diameter, "diameter_after": each.after.diameter, "forecast": each.forecast}
        | {"mean_distance_before": each.before.mean_distance, "mean_distance_after": each.after.mean_distance}
        | {"recall_after": each.after.recall, "first_loss": each.first_loss}
        for (batch, d), runs in trained.items()
        for at, each in enumerate(runs, seed)
    ]
    with style():
        picture, axes = panels(1, 2, height=3.6, sharey=True)
        by_batch = [(batch[0] * batch[1], trained[batch, 32]) for batch in TRAINED_BATCHES]
        by_dimension = [(d, trained[(8, 4), d]) for d in TRAINED_DIMENSIONS]
        for panel, groups in ((axes[0, 0], by_batch), (axes[0, 1], by_dimension)):
            across = [x for x, _ in groups]
            for x, runs in groups:
                for each in runs:
                    down = each.shrinkage < 0.05
                    mark, colour = ("X", RED) if down else ("o", GREEN)
                    panel.plot(x, each.after.diameter, mark, color=colour, markersize=7, alpha=0.85, zorder=3)
            before = [fmean(each.before.diameter for each in runs) for _, runs in groups]
            panel.plot(across, before, color=SOFT, linestyle=":", marker="D", markersize=4)
            bound = [fmean(each.forecast for each in runs) for _, runs in groups]
            panel.plot(across, [value if value > 0 else math.nan for value in bound], color=BLUE, linestyle="--")
            panel.set_xscale("log", base=2)
            panel.set_yscale("log")
            panel.minorticks_off()
            panel.grid(visible=True, axis="y")
        axes[0, 0].set_xticks([x for x, _ in by_batch], [f"{p} × {k}\n= {p * k}" for p, k in TRAINED_BATCHES])
        axes[0, 0].set_xlabel("batch $P × K = N$, at $d$ = 32")
        axes[0, 1].set_xticks(TRAINED_DIMENSIONS, [str(d) for d in TRAINED_DIMENSIONS])
        axes[0, 1].set_xlabel("dimension $d$, at 8 × 4 = 32")
        axes[0, 0].set_ylabel(f"diameter of the test set\n({UNIT})")
        picture.legend(
            handles=[
                handle("trained", GREEN, "", "o", markersize=7),
                handle("collapsed (mean distance < 5 %)", RED, "", "X", markersize=7),
                handle("untrained", SOFT, ":", "D", markersize=4),
                handle("bound of (17)", BLUE, "--"),
            ],
            loc="outside lower center",
            ncols=4,
            columnspacing=1.2,
        )
    return Figure(
        name="training",
        title="Small networks trained on the hardest triplet of each batch",
        source="Xu et al. (2024), figure 5, on digits of 8 x 8 pixels and a small network instead of Market-1501",
        reading=(
            "Each mark is the diameter of 597 held-out digits after 800 steps of one network. Larger batches (left) "
            "and fewer dimensions (right) end smaller, down to collapse, as the paper says. The dashed line is the "
            "lower bound of equation (17), a mean over the networks. Marks below it violate the bound, as training "
            "does not end at the nearest separated embedding."
        ),
        numbers=columns(rows, tuple(rows[0])),
        picture=picture,
    )
