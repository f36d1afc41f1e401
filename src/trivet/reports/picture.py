"""A small static picture of 2-D embeddings side by side, for places that show no scripts."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from trivet.reports.page import same_length

# Okabe and Ito, "Color Universal Design"; the order of plots.js.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7", "#333333", "#F0E442")
_SIDE = 380  # pixels of one square panel at full size; pages show the picture at about half of it
_GAP = 24
_TOP = 108
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True)
class Panel:
    """One scatter panel.

    Args:
        title, subtitle: two lines above the panel.
        points: (x, y) of each point, any unit; both axes get the same scale.
        classes: the fine class of each point, an index into `names`; it gives the colour.
        names: the fine classes.
        coarse: the coarse class of each fine class, an index into `coarse_names`; it gives the shape
            (even: circle, odd: triangle). Empty: circles only.
        coarse_names: the coarse classes, for the legend.
    """

    title: str
    subtitle: str
    points: Sequence[tuple[float, float]]
    classes: Sequence[int]
    names: Sequence[str]
    coarse: Sequence[int] = ()
    coarse_names: Sequence[str] = ()


def scatter_svg(panels: Sequence[Panel], *, title: str) -> str:
    """The panels side by side as one SVG, with the legend of the first below them.

    Points with a coordinate that is not finite are left out.

    Raises:
        ValueError: if there is no panel, or a panel's points, classes and names do not fit together.

    Example:
        >>> svg = scatter_svg([Panel("one", "", [(0.0, 0.0), (1.0, 2.0)], [0, 1], ["cat", "dog"])], title="Two points")
        >>> svg.count("<use"), svg.startswith("<svg")
        (4, True)
    """
    if not panels:
        raise ValueError("a picture needs at least one panel: got none; pass the points to draw.")
    for panel in panels:
        _check(panel)
    width = max(len(panels) * (_SIDE + _GAP) + _GAP, 2 * _SIDE)
    left = (width - len(panels) * (_SIDE + _GAP) + _GAP) / 2
    legend, legend_height = _legend(panels[0], width)
    height = _TOP + _SIDE + 20 + legend_height
    drawn = "".join(_panel(panel, left + k * (_SIDE + _GAP)) for k, panel in enumerate(panels))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" font-family="Helvetica, Arial, sans-serif" fill="#222">\n<title>{_text(title)}</title>\n'
        f'<defs>{_shapes(panels)}</defs>\n<rect width="{width}" height="{height}" fill="#fff"/>\n'
        f"{_line(width / 2, 34, title, size=26, width=width - 2 * _GAP, weight='bold')}\n{drawn}{legend}</svg>\n"
    )


def _check(panel: Panel) -> None:
    same_length(
        f"points and classes of panel {panel.title!r}", {"points": len(panel.points), "classes": len(panel.classes)}
    )
    if panel.coarse:
        same_length(
            f"names and coarse classes of panel {panel.title!r}",
            {"names": len(panel.names), "coarse classes": len(panel.coarse)},
        )
    if any(not 0 <= c < len(panel.names) for c in panel.classes):
        raise ValueError(
            f"classes of panel {panel.title!r} must be indices into its {len(panel.names)} names: "
            f"got {min(panel.classes)} to {max(panel.classes)}; pass one name per class."
        )


def _shapes(panels: Sequence[Panel]) -> str:
    shapes = {}
    for panel in panels:
        for c in range(len(panel.names)):
            shapes[_shape(panel, c)] = COLOURS[c % len(COLOURS)], bool(panel.coarse and panel.coarse[c] % 2)
    return "".join(
        f'<path id="{key}" d="{"M0-6.5 6 5H-6z" if triangle else "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0-10 0z"}" '
        f'fill="{colour}" fill-opacity=".8" stroke="#fff" stroke-width=".8"/>'
        for key, (colour, triangle) in shapes.items()
    )


def _shape(panel: Panel, c: int) -> str:
    return f"{'t' if panel.coarse and panel.coarse[c] % 2 else 'c'}{c % len(COLOURS)}"


def _panel(panel: Panel, left: float) -> str:
    places = [
        (x, y, c)
        for (x, y), c in zip(panel.points, panel.classes, strict=True)
        if math.isfinite(x) and math.isfinite(y)
    ]
    random.Random(0).shuffle(places)  # drawn class by class, the last class would hide the others
    xs, ys = [x for x, _, _ in places] or [0.0], [y for _, y, _ in places] or [0.0]
    centre_x, centre_y = (min(xs) + max(xs)) / 2, (min(ys) + max(ys)) / 2
    scale = (_SIDE - 36) / (max(max(xs) - min(xs), max(ys) - min(ys)) or 1.0)
    middle_x, middle_y = left + _SIDE / 2, _TOP + _SIDE / 2
    uses = "".join(
        f'<use href="#{_shape(panel, c)}" x="{middle_x + scale * (x - centre_x):.1f}" '
        f'y="{middle_y - scale * (y - centre_y):.1f}"/>\n'
        for x, y, c in places
    )
    return (
        f"{_line(middle_x, 70, panel.title, size=24, width=_SIDE, weight='bold')}\n"
        f"{_line(middle_x, 97, panel.subtitle, size=21, width=_SIDE)}\n"
        f'<rect x="{left:g}" y="{_TOP}" width="{_SIDE}" height="{_SIDE}" rx="6" fill="#fafafa" stroke="#ccc"/>\n{uses}'
    )


def _legend(panel: Panel, width: int) -> tuple[str, int]:
    """The classes in rows, and the height they take; the group of each class follows it in brackets."""
    entries = []
    for c, name in enumerate(panel.names):
        group = f" ({panel.coarse_names[panel.coarse[c]]})" if panel.coarse and panel.coarse_names else ""
        entries.append((_shape(panel, c), _shorten(f"{name}{group}", 24)))
    cell = 38 + 11 * max((len(text) for _, text in entries), default=0)
    rows = math.ceil(len(entries) / max(1, (width - _GAP) // cell))
    per_row = math.ceil(len(entries) / max(1, rows))
    start = (width - per_row * cell) / 2 + 12
    parts = []
    for k, (key, text) in enumerate(entries):
        x, y = start + k % per_row * cell, _TOP + _SIDE + 38 + 32 * (k // per_row)
        parts.append(
            f'<use href="#{key}" transform="translate({x:g} {y - 8}) scale(1.5)"/>'
            f'<text x="{x + 16:g}" y="{y}" font-size="22">{_text(text)}</text>\n'
        )
    return "".join(parts), 32 * rows + 12


def _line(x: float, y: float, text: str, *, size: int, width: float, weight: str = "normal") -> str:
    """Centred text, shortened to about `width` pixels."""
    short = _shorten(text, int(width / (0.62 * size)))
    place = f'x="{x:g}" y="{y:g}" font-size="{size}" font-weight="{weight}" text-anchor="middle"'
    return f"<text {place}>{_text(short)}</text>"


def _shorten(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"


def _text(text: str) -> str:
    return escape(_NOT_XML.sub("\ufffd", text))
