"""The page of `trivet forecast --report`, and the part of it that the page of a run shows too."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from trivet.reports.forecast_record import Bound, Cell, Chance, ForecastRecord, SeedRecord
from trivet.reports.items import is_number
from trivet.reports.page import MISSING, same_length, write_page

_TONES = {"likely": ("bad", "✕"), "unlikely": ("good", "✓"), "open": ("warn", "!")}
_WORDS = {"likely": "Collapse likely", "unlikely": "No early sign of collapse", "open": "Uncertain"}
# Blue and orange are told apart by the colour-blind, and both ends are dark enough for white text.
_LOW, _MIDDLE, _HIGH = (0, 84, 134), (244, 240, 232), (172, 66, 0)
_DARK, _LIGHT = "#000", "#fff"
_CURVES: tuple[tuple[str, dict[str, str], list[float] | None], ...] = (
    ("Mean distance within and between classes", {"within": "within classes", "between": "between classes"}, None),
    (
        "Similarity to the nearest item in the batch",
        {"s_ap": "of the same class (s_ap)", "s_an": "of another class (s_an)"},
        None,
    ),
    ("Hard anchors and recall@1", {"hard": "hard", "recall": "recall@1"}, [0, 1]),
    ("Loss", {"loss": "loss"}, None),
    ("Effective rank", {"effective_rank": "effective rank"}, None),
)


def write_forecast_report(record: ForecastRecord, path: Path) -> None:
    """Write the page of a forecast: of one run, or of the map of a grid.

    Raises:
        ValueError: if series that belong together differ in length.
        OSError: if the file cannot be written.
    """
    curves = _curves(record["seeds"])
    context = {"record": record, "forecast": forecast_context(record), "curves": curves}
    write_page("forecast.html", path, context, {"curves": curves})


def forecast_context(record: ForecastRecord | None) -> dict[str, Any] | None:
    """Context of the template forecast_parts.html, without scripts; None without one."""
    if not record or not (record["verdict"] or record["cells"]):
        return None
    bounds = [cell["bound"] for cell in record["cells"] if cell["bound"]]
    return {
        "steps": record["steps"],
        "of": record["of"],
        "maps": heat_maps(record),
        "cells": [_row(cell) for cell in record["cells"]],
        "bounds": len(bounds),
        "vacuous": sum(bound["vacuous"] for bound in bounds),
        "single": None if record["cells"] else _single(record),
    }


def heat_maps(record: ForecastRecord) -> list[dict[str, Any]]:
    """The cells of a grid as tables: shape of the batch by dimension, one for each number of samples of a class.

    With one dimension there is one table, of classes by samples.

    Returns:
        [{"title", "across", "columns": [text], "rows": [(head, under it, [cell])]}]; of a cell "text", "ends" (the
        interval in per cent, or ""), "description" (everything in words), "style", "informative" (the bound is not
        vacuous) and "here" (the settings themselves).
    """
    if not record["cells"]:
        return []
    axes, here = record["axes"], record["here"]
    cells = {(cell["classes"], cell["samples"], cell["dim"]): cell for cell in record["cells"]}

    def row(head: str, under: str, shapes: Iterable[tuple[int, int, int]]) -> tuple[str, str, list[dict[str, Any]]]:
        return head, under, [_cell(cells[shape], here) for shape in shapes]

    if len(axes["dim"]) == 1:
        (dim,) = axes["dim"]
        rows = [row(f"{p} classes", "", ((p, k, dim) for k in axes["samples"])) for p in axes["classes"]]
        columns = [str(k) for k in axes["samples"]]
        return [{"title": f"{dim} dimensions", "across": "samples of each class", "columns": columns, "rows": rows}]
    if len(axes["classes"]) == 1:
        (p,) = axes["classes"]
        tables = {f"{p} classes": [(p, k) for k in axes["samples"]]}
    else:
        tables = {f"{k} samples of each class": [(p, k) for p in axes["classes"]] for k in axes["samples"]}
    return [
        {
            "title": title,
            "across": "dimensions",
            "columns": [str(dim) for dim in axes["dim"]],
            "rows": [row(f"{p} × {k}", f"{p * k} items", ((p, k, dim) for dim in axes["dim"])) for p, k in batches],
        }
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


def _cell(cell: Cell, here: Mapping[str, int]) -> dict[str, Any]:
    forecast, bound = cell["forecast"], cell["bound"]
    shape = {"classes": cell["classes"], "samples": cell["samples"], "dim": cell["dim"]}
    style, text, ends = "", MISSING, ""
    description = f"{cell['classes']} classes × {cell['samples']} samples, {cell['dim']} dimensions: "
    if forecast:
        text, ends = _cents(forecast["probability"]), _between(forecast["interval"], "–")
        style = "background: {}; color: {}".format(*shade(forecast["probability"]))
        description += f"{text} %, 90 % interval {_between(forecast['interval'], ' to ')} %"
    else:
        description += cell["reason"] or "not known"
    if bound:
        description += f"; bound {_bound(bound)}" + (", vacuous" if bound["vacuous"] else "")
    informative = bound is not None and not bound["vacuous"]
    return {
        "text": text,
        "ends": ends,
        "description": description,
        "style": style,
        "informative": informative,
        "here": shape == here,
    }


def _row(cell: Cell) -> dict[str, Any]:
    forecast, bound = cell["forecast"], cell["bound"]
    return {
        "shape": f"{cell['classes']} × {cell['samples']}",
        "items": cell["classes"] * cell["samples"],
        "dim": cell["dim"],
        **_chance(forecast),
        "outlook": cell["outlook"],
        "tone": _TONES.get(cell["outlook"] or "", ("", ""))[0],
        "diameter": _plain(bound and bound["diameter"]),
        "loss": _plain(bound and bound["loss"]),
        "bound": _plain(bound and bound["bound"]),
        "vacuous": bound and bound["vacuous"],
        "reason": cell["reason"],
    }


def _chance(forecast: Chance | None) -> dict[str, str]:
    if forecast is None:
        return {"probability": MISSING, "interval": MISSING}
    return {"probability": _cents(forecast["probability"]), "interval": _between(forecast["interval"], " to ")}


def _single(record: ForecastRecord) -> dict[str, Any]:
    forecast, outlook, bound = record["forecast"], record["outlook"] or "", record["bound"]
    tone, sign = _TONES.get(outlook, ("warn", "!"))
    return {
        "tone": tone,
        "sign": sign,
        "words": _WORDS.get(outlook, "No forecast"),
        "verdict": record["verdict"],
        "changes": record["changes"],
        "probability": forecast and forecast["probability"],
        "text": _chance(forecast)["probability"],
        "interval": forecast and [100 * end for end in forecast["interval"]],
        "ends": _chance(forecast)["interval"],
        "evidence": [
            (name.replace("_", " "), _plain(value))
            for name, value in (forecast or {"evidence": {}})["evidence"].items()
        ],
        "bound": bound,
        "formula": bound and _bound(bound),
        "events": [(probe["seed"], event) for probe in record["seeds"] for event in probe["events"]],
        "seeds": [
            {
                "seed": probe["seed"],
                **_chance(probe["forecast"]),
                "bound": _plain(probe["bound"] and probe["bound"]["bound"]),
            }
            for probe in record["seeds"]
        ],
    }


def _curves(seeds: Sequence[SeedRecord]) -> list[dict[str, Any]]:
    """The relative spread of each seed, and the other series of the first."""
    if not seeds:
        return []
    first = seeds[0]["series"]
    spreads = {f"seed {probe['seed']}": probe["series"].get("relative_spread", []) for probe in seeds}
    wanted: list[tuple[str, dict[str, list[float | None]], list[float] | None]] = [("Relative spread", spreads, [0, 1])]
    for title, names, limits in _CURVES:
        wanted.append((title, {label: first.get(name, []) for name, label in names.items()}, limits))
    curves = []
    for title, series, limits in wanted:
        series = {name: values for name, values in series.items() if any(is_number(value) for value in values)}
        if not series:
            continue
        steps = max((probe["series"]["step"] for probe in seeds), key=len)
        # The probe of a seed may have had fewer looks.
        series = {name: values + [None] * (len(steps) - len(values)) for name, values in series.items()}
        same_length(f"the curves {title!r}", {"steps": len(steps)} | {name: len(v) for name, v in series.items()})
        curves.append({"title": title, "step": steps, "series": series, "limits": limits, "past": [], "marks": []})
    return curves


def _cents(share: float) -> str:
    """Per cent without decimals; what is not quite 0 or 100 is not said to be."""
    return "<1" if 0 < share < 0.005 else ">99" if 0.995 <= share < 1 else f"{100 * share:.0f}"


def _between(interval: Sequence[float], word: str) -> str:
    return word.join(f"{100 * end:.0f}" for end in interval)


def _bound(bound: Bound) -> str:
    return f"{_plain(bound['diameter'])} − 2 × {_plain(bound['loss'])} = {_plain(bound['bound'])}"


def _plain(value: Any) -> str:
    return f"{value:.3g}".replace("-", "−") if is_number(value) else MISSING
