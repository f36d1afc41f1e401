"""The page of `trivet forecast --report`, and the part of it that the page of a run shows too."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from trivet.reports.forecast_record import Cell, ForecastRecord, SeedRecord
from trivet.reports.items import Curve, Limits, curve
from trivet.reports.monitor_record import Series
from trivet.reports.page import MISSING, cents, ends, significant, write_page

# Blue and orange are told apart by the colour-blind, and both ends are dark enough for white text.
_LOW, _MIDDLE, _HIGH = (0, 84, 134), (244, 240, 232), (172, 66, 0)
_DARK, _LIGHT = "#000", "#fff"
_CURVES: tuple[tuple[str, dict[str, str], Limits], ...] = (
    ("Mean distance within and between classes", {"within": "within classes", "between": "between classes"}, None),
    (
        "Similarity to the nearest item in the batch",
        {"s_ap": "of the same class (s_ap)", "s_an": "of another class (s_an)"},
        None,
    ),
    ("Hard anchors and recall@1", {"hard": "hard", "recall": "recall@1"}, (0, 1)),
    ("Loss", {"loss": "loss"}, None),
    ("Effective rank", {"effective_rank": "effective rank"}, None),
)


def write_forecast_report(record: ForecastRecord, path: Path) -> None:
    """Write the page of a forecast: of one run, or of the map of a grid."""
    curves = _curves(record.seeds)
    context = {"record": record, "forecast": forecast_context(record), "curves": curves}
    write_page("forecast.html", path, context, {"curves": curves})


@dataclass(frozen=True)
class HeatCell:
    """A cell as text: the interval of its mean distance in per cent or "", all of it in words, whether its bound is not
    vacuous, and whether it is the settings.
    """

    text: str
    ends: str
    description: str
    style: str
    informative: bool
    here: bool


@dataclass(frozen=True)
class HeatMap:
    """Cells as a table; a row is its head, what stands under it, and its cells."""

    title: str
    across: str
    columns: list[str]
    rows: list[tuple[str, str, list[HeatCell]]]


@dataclass(frozen=True)
class ForecastContext:
    """Content of the template forecast_parts.html, which needs no scripts: one run, or maps with all cells as rows."""

    record: ForecastRecord
    maps: list[HeatMap]
    bounds: int
    vacuous: int


def forecast_context(record: ForecastRecord | None) -> ForecastContext | None:
    """Context of the template forecast_parts.html; None without a forecast."""
    if not record or not (record.verdict or record.cells):
        return None
    bounds = [cell.bound for cell in record.cells if cell.bound]
    return ForecastContext(record, heat_maps(record), len(bounds), sum(bound.vacuous for bound in bounds))


def heat_maps(record: ForecastRecord) -> list[HeatMap]:
    """The cells of a grid as tables: shape of the batch by dimension, one for each number of samples of a class.

    With one dimension there is one table, of classes by samples.
    """
    axes = record.axes
    if axes is None or not record.cells:
        return []
    cells = {(cell.classes, cell.samples, cell.dim): cell for cell in record.cells}

    def row(head: str, under: str, shapes: Iterable[tuple[int, int, int]]) -> tuple[str, str, list[HeatCell]]:
        return head, under, [_cell(cells[shape], record.here) for shape in shapes]

    if len(axes.dim) == 1:
        (dim,) = axes.dim
        rows = [row(f"{p} classes", "", ((p, k, dim) for k in axes.samples)) for p in axes.classes]
        return [HeatMap(f"{dim} dimensions", "samples of each class", list(map(str, axes.samples)), rows)]
    if len(axes.classes) == 1:
        (p,) = axes.classes
        tables = {f"{p} classes": [(p, k) for k in axes.samples]}
    else:
        tables = {f"{k} samples of each class": [(p, k) for p in axes.classes] for k in axes.samples}
    return [
        HeatMap(
            title,
            "dimensions",
            list(map(str, axes.dim)),
            [row(f"{p} × {k}", f"{p * k} items", ((p, k, dim) for dim in axes.dim)) for p, k in batches],
        )
        for title, batches in tables.items()
    ]


def shade(probability: float) -> tuple[str, str]:
    """The colour of a probability, blue over pale to orange, and that of the text on it."""
    share = min(1.0, max(0.0, probability))
    (low, high), way = ((_LOW, _MIDDLE), 2 * share) if share < 0.5 else ((_MIDDLE, _HIGH), 2 * share - 1)
    mixed = [round(a + (b - a) * way) for a, b in zip(low, high, strict=True)]
    luminance = _luminance(mixed)
    # The contrast with black is (luminance + 0.05) / 0.05, that with white 1.05 / (luminance + 0.05).
    ink = _DARK if (luminance + 0.05) ** 2 > 0.05 * 1.05 else _LIGHT
    return "#" + "".join(f"{value:02x}" for value in mixed), ink


def _luminance(colour: Sequence[int]) -> float:
    channels = [value / 255 for value in colour]
    channels = [channel / 12.92 if channel <= 0.04045 else ((channel + 0.055) / 1.055) ** 2.4 for channel in channels]
    return sum(weight * channel for weight, channel in zip((0.2126, 0.7152, 0.0722), channels, strict=True))


def _cell(cell: Cell, here: Mapping[str, int]) -> HeatCell:
    forecast, bound = cell.forecast, cell.bound
    style, text, interval = "", MISSING, ""
    description = f"{cell.classes} classes × {cell.samples} samples, {cell.dim} dimensions: "
    if forecast:
        text, interval = cents(forecast.probability), ends(forecast.interval, "–")
        style = "background: {}; color: {}".format(*shade(forecast.probability))
        description += f"a point with {text} %, mean distance {ends(forecast.interval)} % of that at the start"
    else:
        description += cell.reason or "not known"
    if bound:
        diameter, loss, low = map(significant, (bound.diameter, bound.loss, bound.bound))
        description += f"; bound {diameter} − 2 × {loss} = {low}" + (", vacuous" if bound.vacuous else "")
    informative = bound is not None and not bound.vacuous
    shape = {"classes": cell.classes, "samples": cell.samples, "dim": cell.dim}
    return HeatCell(text, interval, description, style, informative, here=shape == here)


def _curves(seeds: Sequence[SeedRecord]) -> list[Curve]:
    """The relative spread of each seed, and the other series of the first."""
    if not seeds:
        return []
    first, steps = seeds[0].series, max((probe.series["step"] for probe in seeds), key=len)
    spreads = {f"seed {probe.seed}": probe.series.get("relative_spread", []) for probe in seeds}
    wanted: list[tuple[str, Series, Limits]] = [("Relative spread", spreads, (0, 1))]
    for title, names, limits in _CURVES:
        wanted.append((title, {label: first.get(name, []) for name, label in names.items()}, limits))
    # The probe of a seed may have had fewer looks.
    padded = (
        (title, {name: values + [None] * (len(steps) - len(values)) for name, values in series.items()}, limits)
        for title, series, limits in wanted
    )
    return [
        drawn
        for title, series, limits in padded
        if (drawn := curve(title, [round(step or 0) for step in steps], series, limits))
    ]
