"""The page of a forecast: a verdict with its bound and curves, or a map that anyone can read."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from tests.pages import page_words, write_forecast_report
from tests.watched import HOSTILE, Watched

from trivet.commands.forecast.page import forecast_context, heat_maps, shade
from trivet.reports.forecast_record import ForecastRecord

Shape = tuple[int, int, int]


def bound(width: float, loss: float) -> dict[str, Any]:
    found = width - 2 * loss
    return {"items": 8, "diameter": width, "loss": loss, "bound": found, "vacuous": found <= 0, "sentence": "A bound."}


def told(probability: float) -> dict[str, Any]:
    ends = [probability / 2, (1 + probability) / 2]
    return {"probability": probability, "interval": ends, "evidence": {"fall": -0.5}, "step": 19, "end": 400}


def grid(
    classes: list[int], samples: list[int], dims: list[int], *, reason: str = "too few classes.", lost: int = 64
) -> dict[str, Any]:
    """A map with a probability that tells the shape; batches of `lost` classes could not be tried."""

    def cell(shape: Shape) -> dict[str, Any]:
        chance = 1 - 1 / (1 + shape[0] * shape[1] / shape[2])
        known = shape[0] != lost
        return {
            **dict(zip(("classes", "samples", "dim"), shape, strict=True)),
            "forecast": told(chance) if known else None,
            "outlook": "open" if known else None,
            "bound": bound(math.sqrt(shape[2]), math.log(shape[0])) if known else None,
            "reason": None if known else reason,
        }

    return {
        "steps": 20, "of": 400, "axes": {"classes": classes, "samples": samples, "dim": dims}, "seconds": 3.2,
        "here": {"classes": classes[0], "samples": samples[0], "dim": dims[0]},
        "cells": [cell(shape) for shape in product(classes, samples, dims)],
        "config": "small", "command": "trivet forecast small.toml --grid", "trivet": "0.1.0",
        "created": "2026-01-31T12:00:00Z",
    }  # fmt: skip


def single(text: str = "A collapse of the network is likely.", seeds: int = 2) -> dict[str, Any]:
    steps = list(range(20))
    series = {
        "step": [float(step) for step in steps],
        "relative_spread": [0.9 * 0.9**step for step in steps],
        "within": [0.5 * 0.9**step for step in steps],
        "between": [0.7 * 0.9**step for step in steps],
        "s_ap": [1 - 0.2 * 0.9**step for step in steps],
        "s_an": [1 - 0.4 * 0.9**step for step in steps],
        "hard": [0.5 + step / 50 for step in steps],
        "recall": [0.4 for _ in steps],
        "effective_rank": [None for _ in steps],
        "loss": [0.3 for _ in steps],
    }
    event = {"step": 7, "kind": "exploding-norm", "rule": f"norm 99, over 9 {text}", "changes": [], "evidence": {}}
    return {
        "steps": 20, "of": 400, "forecast": told(0.83), "outlook": "likely", "verdict": text, "changes": [text],
        "bound": bound(1.9, 1.2) | {"sentence": text}, "seconds": 1.5,
        "seeds": [
            {"seed": k, "forecast": told(0.8), "bound": bound(1.9, 1.2), "events": [event], "series": series}
            for k in range(seeds)
        ],
        "config": text, "command": text, "trivet": "0.1.0", "created": "2026-01-31T12:00:00Z",
    }  # fmt: skip


def test_the_colours_can_be_read_and_told_apart_by_the_colour_blind() -> None:
    def light(colour: str) -> float:
        colour = {"#000": "#000000", "#fff": "#ffffff"}.get(colour, colour)
        parts = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
        parts = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

    for k in range(101):
        ground, ink = shade(k / 100)
        dark, bright = sorted((light(ground), light(ink)))
        assert (bright + 0.05) / (dark + 0.05) >= 4.5, k
    blues = [int(shade(k / 10)[0][5:], 16) - int(shade(k / 10)[0][1:3], 16) for k in range(11)]
    assert blues == sorted(blues, reverse=True)  # ever less blue, ever more red: seen with any colour blindness
    assert blues[0] > 100 > -100 > blues[-1]


@pytest.mark.parametrize(
    ("axes", "titles", "across", "heads", "columns"),
    [
        (
            ([2, 4], [3, 8], [4, 32]),
            ["3 samples of each class", "8 samples of each class"],
            "dimensions",
            [["2 × 3", "4 × 3"], ["2 × 8", "4 × 8"]],
            ["4", "32"],
        ),
        (([2], [3, 8], [4, 32]), ["2 classes"], "dimensions", [["2 × 3", "2 × 8"]], ["4", "32"]),
        (([2, 4], [3], [4, 32]), ["3 samples of each class"], "dimensions", [["2 × 3", "4 × 3"]], ["4", "32"]),
        (([2, 4], [3, 8], [32]), ["32 dimensions"], "samples of each class", [["2 classes", "4 classes"]], ["3", "8"]),
    ],
    ids=["all three", "one number of classes", "one number of samples", "one dimension"],
)
def test_every_shape_has_one_cell_in_the_row_and_column_that_say_so(
    axes: tuple[list[int], list[int], list[int]],
    titles: list[str],
    across: str,
    heads: list[list[str]],
    columns: list[str],
) -> None:
    found = grid(*axes)
    maps = heat_maps(ForecastRecord.read(found))
    assert [shown.title for shown in maps] == titles
    assert {shown.across for shown in maps} == {across}
    assert [[head for head, _, _ in shown.rows] for shown in maps] == heads
    assert all(shown.columns == columns for shown in maps)
    cells = {(cell["classes"], cell["samples"], cell["dim"]) for cell in found["cells"]}
    for shown in maps:
        for head, under, row in shown.rows:
            for column, cell in zip(shown.columns, row, strict=True):
                p, k, dim = (int(word) for word in cell.description.partition(":")[0].split() if word.isdigit())
                cells.remove((p, k, dim))  # each is there once
                assert {int(word) for word in f"{shown.title} {head} {column}".split() if word.isdigit()} == {
                    p,
                    k,
                    dim,
                }
                assert under in ("", f"{p * k} items")
                assert cell.text == f"{100 - 100 / (1 + p * k / dim):.0f}"
                assert cell.here == ((p, k, dim) == (2, 3, axes[2][0]))
                assert cell.informative == (math.sqrt(dim) > 2 * math.log(p))
    assert not cells


def test_a_cell_says_everything_when_pointed_at(tmp_path: Path, watch: Callable[[Path], Watched]) -> None:
    write_forecast_report(grid([2, 4, 64], [3, 8], [4, 32], reason="too few of <b>them</b>."), tmp_path / "map.html")
    watched = watch(tmp_path / "map.html")
    page = watched.page
    assert page.locator(".heat").count() == 2
    cells = page.locator(".heat").first.locator("td")
    assert cells.count() == 6
    first = cells.first
    assert first.inner_text().split() == ["60", "30–80"]
    assert first.get_attribute("title") == (
        "2 classes × 3 samples, 4 dimensions: a point with 60 %, mean distance 30 to 80 % of that at the "
        "start; bound 2 − 2 × 0.693 = 0.614"
    )
    assert first.evaluate("cell => getComputedStyle(cell).backgroundColor") == "rgb({}, {}, {})".format(
        *(int(shade(0.6)[0][k : k + 2], 16) for k in (1, 3, 5))
    )
    assert "here" in str(first.get_attribute("class"))
    assert "informative" in str(first.get_attribute("class"))
    vacuous = cells.nth(2)
    assert str(vacuous.get_attribute("title")).endswith("bound 2 − 2 × 1.39 = -0.773, vacuous")
    assert "informative" not in str(vacuous.get_attribute("class"))
    unknown = cells.nth(4)
    assert unknown.inner_text() == "–"
    assert unknown.get_attribute("title") == "64 classes × 3 samples, 4 dimensions: too few of <b>them</b>."
    assert "vacuous (it excludes nothing) in 2 of 8" in page.inner_text("main")

    page.locator("summary").click()
    rows = page.locator(".forecasts tbody tr").evaluate_all(
        "rows => rows.map(r => [...r.cells].map(c => c.textContent))"
    )
    assert len(rows) == 12
    assert rows[0] == ["2 × 3", "6", "4", "60", "30 to 80", "open", "2", "0.693", "0.614", "no"]
    assert rows[4][-1] == "yes"
    assert rows[8] == ["64 × 3", "192", "4", "too few of <b>them</b>."]
    assert watched.offences == []


def test_a_map_fits_a_phone_and_keeps_its_colours_in_the_dark_and_on_paper(
    tmp_path: Path, watch: Callable[[Path], Watched]
) -> None:
    write_forecast_report(grid([2, 4, 8, 16], [2, 8], [4, 16, 32, 128, 512]), tmp_path / "map.html")
    watched = watch(tmp_path / "map.html")
    page = watched.page
    cell = page.locator(".heat td").nth(4)
    colour = "cell => getComputedStyle(cell).backgroundColor + getComputedStyle(cell).color"
    before = cell.evaluate(colour)
    page.emulate_media(color_scheme="dark")
    assert cell.evaluate(colour) == before
    page.emulate_media(media="print")
    assert cell.evaluate(colour) == before
    assert cell.evaluate("cell => getComputedStyle(cell).printColorAdjust") == "exact"
    page.emulate_media(media="screen")
    page.set_viewport_size({"width": 390, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    for inner, outer in page.locator(".heats .scroll").evaluate_all(
        "all => all.map(e => [e.scrollWidth, e.clientWidth])"
    ):
        assert inner <= outer
    assert watched.offences == []


def test_one_run_has_a_verdict_its_bound_and_the_curves_of_its_steps(
    tmp_path: Path, watch: Callable[[Path], Watched]
) -> None:
    record = single()
    record["seeds"][1]["series"] = {name: values[:15] for name, values in record["seeds"][1]["series"].items()}
    write_forecast_report(record, tmp_path / "one.html")
    watched = watch(tmp_path / "one.html")
    text = watched.page.inner_text("#forecast").replace("\u00a0", " ")
    parts = [
        "A point is likely: 83 %",
        "A collapse of the network is likely.",
        "What to change",
        "exploding norm, norm 99, over 9",
        "Evidence",
        "fall",
        "Bound: vacuous",
        "1.9 − 2 × 1.2 = -0.5, on 8 items before any step",
    ]
    places = [text.index(part) for part in parts]
    assert places == sorted(places)
    spreads = watched.plot("Relative spread")
    assert [trace["name"] for trace in spreads] == ["seed 0", "seed 1"]
    assert spreads[0]["y"] == pytest.approx(record["seeds"][0]["series"]["relative_spread"], rel=1e-3)
    assert spreads[1]["y"][15:] == [None] * 5
    (loss,) = watched.plot("Loss")
    assert loss["x"] == list(range(20))
    assert watched.page.get_by_text("Effective rank").count() == 0  # nothing of it is known
    assert watched.page.locator(".chance i").get_attribute("style") == "left: 83.00%"
    assert watched.offences == []


def test_hostile_texts_are_shown_and_do_nothing(tmp_path: Path, watch: Callable[[Path], Watched]) -> None:
    hostile = " ".join(HOSTILE)
    write_forecast_report(single(hostile), tmp_path / "one.html")
    write_forecast_report(grid([2, 64], [3], [4, 32], reason=hostile), tmp_path / "map.html")
    for name in ("one.html", "map.html"):
        watched = watch(tmp_path / name)
        body = watched.page.locator("main").evaluate("main => main.textContent")
        for text in HOSTILE:
            assert text.replace("\udcff", "?") in body
        watched.page.set_viewport_size({"width": 390, "height": 800})
        assert watched.page.evaluate("document.documentElement.scrollWidth") <= 390
        assert watched.offences == []


def test_what_is_absent_is_left_out(tmp_path: Path) -> None:
    assert forecast_context(None) is None
    none = {"forecast": None, "outlook": None, "verdict": "No forecast: nothing to measure."}
    page = tmp_path / "none.html"
    write_forecast_report(single() | none, page)
    assert "No forecast: nothing to measure." in page_words(page)
    assert 'class="chance"' not in page.read_text()
    write_forecast_report(single(), page)
    assert 'class="chance"' in page.read_text()
    write_forecast_report({}, page)
    assert "<section" not in page.read_text().partition("<script")[0]
