"""Maps and arrows of a vector field on the scatter diagram, and their columns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.figure import Figure as Picture
from matplotlib.patches import Rectangle

from trivet.reports.figure import BLUE, GREEN, PINK, RED
from trivet.runtime.arrays import Floats
from trivet_papers.figure import DIVERGING, Columns
from trivet_papers.xuan2020.dynamics import DIRECTIONS, VectorField, directions

WAYS = dict(zip(DIRECTIONS, zip((RED, BLUE, GREEN, PINK), ("//", "", "..", "xx"), strict=True), strict=True))
SERIES = (1.0, 3.0)  # of each power of ten, the edges of colour steps
STEPS = 5  # of colour on each side of 0
S_AP, S_AN = "similarity to the positive, $S_{ap}$", "similarity to the negative, $S_{an}$"


def field_columns(field: VectorField, **parameters: Any) -> Columns:
    """A field with its parameters, for `tidy`."""
    cells = {"s_ap": field.s_ap, "s_an": field.s_an[:, None]}
    return parameters | cells | {"change_ap": field.change_ap, "change_an": field.change_an}


def colour_steps(fields: Any) -> list[float]:
    """Edges of colour steps on both sides of 0, up to the first of 1, 3, 10, 30, ... x 10^k above all changes."""
    largest = max(float(np.nanmax(np.abs(change))) for field in fields for change in (field.change_ap, field.change_an))
    power = math.floor(math.log10(largest))
    edges = sorted(base * 10.0**exponent for base in SERIES for exponent in range(power - 4, power + 2))
    top = next(i for i, edge in enumerate(edges) if edge >= largest)
    above = [float(f"{edge:g}") for edge in edges[top - STEPS + 2 : top + 1]]
    return [*(-edge for edge in reversed(above)), 0.0, *above]


def _colours(steps: Sequence[float]) -> tuple[ListedColormap, BoundaryNorm]:
    half = len(steps) // 2
    shades = np.linspace(0.03, 0.42, half)
    colours = matplotlib.colormaps[DIVERGING](np.concatenate([shades, 1 - shades[::-1]]))
    return ListedColormap(colours), BoundaryNorm(steps, len(colours))


def draw_map(axes: Axes, field: VectorField, change: str, steps: Sequence[float]) -> None:
    values: Floats = getattr(field, f"change_{change}")
    colours, norm = _colours(steps)
    axes.imshow(
        values, extent=(0, 1, 0, 1), cmap=colours, norm=norm, interpolation="bilinear", interpolation_stage="data"
    )
    if np.nanmin(values) < 0 < np.nanmax(values):
        axes.contour(field.s_ap, field.s_an, values, levels=[0.0], colors="black", linewidths=1.2)
    _unit_square(axes)


def draw_arrows(axes: Axes, field: VectorField) -> None:
    """Arrows of true direction, their length as the square root of the change."""
    way = directions(field.change_ap, field.change_an, tolerance=0)
    size = np.hypot(field.change_ap, field.change_an)
    longest = np.nanmax(size)
    factor = 1.6 / len(field.s_ap) / np.sqrt(longest * np.where(size > 0, size, 1))
    s_ap, s_an = np.meshgrid(field.s_ap, field.s_an)
    for number, name in enumerate(DIRECTIONS):
        here = way == number
        if here.any():
            arrows = axes.quiver(
                s_ap[here],
                s_an[here],
                (factor * field.change_ap)[here],
                (factor * field.change_an)[here],
                color=WAYS[name][0],
                angles="xy",
                scale_units="xy",
                scale=1,
                width=0.0085,
                headwidth=4,
                headlength=4.5,
                headaxislength=4,
                pivot="mid",
                clip_on=False,
            )
            arrows.set_in_layout(False)
    _unit_square(axes)


def _unit_square(axes: Axes) -> None:
    axes.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    axes.set_xticks((0, 0.5, 1), ("0", "0.5", "1"))
    axes.set_yticks((0, 0.5, 1), ("0", "0.5", "1"))
    axes.spines[["top", "right"]].set_visible(True)


def colour_bar(picture: Picture, axes: Any, steps: Sequence[float], location: str) -> None:
    """One colour bar for all maps."""
    colours, norm = _colours(steps)
    picture.colorbar(
        ScalarMappable(norm, colours),
        ax=axes,
        location=location,
        shrink=0.85,
        aspect=45,
        pad=0.02,
        ticks=steps,
        format="{x:g}",
        label="change of the similarity in one step",
    )


def legend_of_ways(picture: Picture, used: set[int]) -> None:
    """The colours of the arrows."""
    names = ("\u2197 top-right", "\u2198 bottom-right", "\u2199 bottom-left", "\u2196 top-left")
    entries = [
        (Rectangle((0, 0), 1, 1, color=WAYS[DIRECTIONS[way]][0]), names[way]) for way in sorted(used) if way >= 0
    ]
    picture.legend(*zip(*entries, strict=True), loc="outside upper center", ncols=4, handlelength=1, handleheight=0.7)


def name_axes(picture: Picture) -> None:
    """Once for all panels, which are scatter diagrams."""
    picture.supxlabel(S_AP, fontsize=9)
    picture.supylabel(S_AN, fontsize=9)
