from __future__ import annotations

import math
from itertools import product
from statistics import fmean
from typing import Any

import numpy as np
import pytest
from tests.trivet_papers.drawn_figures import rows, sound

from trivet.reports.figure import encode
from trivet_papers.figure import Figure
from trivet_papers.xu2024 import figures as drawings
from trivet_papers.xu2024 import isometry, nearest_separated, point_sets, scaling_figures
from trivet_papers.xu2024.training import train_digits

SMALL = {"points": 6, "starts": 1, "repeats": 1, "steps": 30, "cases": 1, "trainings": 0}


@pytest.fixture(scope="module")
def five() -> Figure:
    return drawings.five_points(starts=8, margin=0.0)


@pytest.fixture(scope="module")
def collapse() -> Figure:
    return drawings.collapse(seed=0, points=8, dimension=2, starts=4, margin=0.0)


def pairs(points: list[list[float]]) -> list[float]:
    return [math.dist(p, q) for k, p in enumerate(points) for q in points[:k]]


def test_five_points_are_those_of_the_reference(five: Figure) -> None:
    found = rows(five)
    values = {row["what"]: row["value"] for row in found if row["value"] is not None}
    assert values["loss"] == pytest.approx(1.2071524383, abs=1e-9)
    assert values["d_haus"] == pytest.approx(0.63842428, rel=1e-3)
    assert values["d_iso"] == pytest.approx(0.61395797, rel=1e-3)
    assert values["d_iso / loss"] == pytest.approx(0.50860, abs=1e-3)
    assert values["d_haus / d_iso"] == pytest.approx(1.03985, abs=1e-3)
    places = {
        what: [[row["x"], row["y"]] for row in found if row["what"] == what] for what in ("f", "f*_haus", "f*_iso")
    }
    assert places["f"] == [[0.0, 0.0], [2.0, 0.5], [1.0, 1.5], [1.2, 0.2], [3.0, 1.0]]
    moved = [math.dist(p, q) for p, q in zip(places["f"], places["f*_haus"], strict=True)]
    assert max(moved) == pytest.approx(values["d_haus"], rel=1e-6)
    changed = [abs(a - b) for a, b in zip(pairs(places["f"]), pairs(places["f*_iso"]), strict=True)]
    assert max(changed) == pytest.approx(values["d_iso"], rel=1e-6)
    items = {row["what"]: row["item"] for row in found}
    assert (items["anchor"], items["positive"], items["negative"]) == (2, 1, 4)
    first, second = (places["f*_iso"][items[f"isometric pair, {end}"] - 1] for end in ("first", "second"))
    before = math.dist(*(places["f"][items[f"isometric pair, {end}"] - 1] for end in ("first", "second")))
    assert abs(before - math.dist(first, second)) == pytest.approx(values["d_iso"], rel=1e-3)


def test_border_is_where_the_other_class_just_has_no_loss(five: Figure) -> None:
    points = {"A": [[0.0, 0.0], [2.0, 0.5], [1.0, 1.5]], "B": [[1.2, 0.2], [3.0, 1.0]]}
    border = [row for row in rows(five) if row["what"] == "boundary of f"]
    assert len(border) > 400
    for row in border:
        own = points[row["class"]]
        room = [math.dist(x, (row["x"], row["y"])) - max(math.dist(x, other) for other in own) for x in own]
        assert min(room) == pytest.approx(0, abs=1e-9)
    stars: dict[str, list[tuple[float, float]]] = {"A": [], "B": []}
    for row in rows(five):
        if row["what"] == "f*_haus":
            stars[row["class"]].append((row["x"], row["y"]))
    for name, other in (("A", "B"), ("B", "A")):
        reach = {x: max(math.dist(x, y) for y in stars[name]) for x in stars[name]}
        assert all(math.dist(x, z) >= reach[x] - 1e-6 for x, z in product(stars[name], stars[other]))


def test_picture_shows_the_five_points(five: Figure) -> None:
    haus = five.picture.axes[1]
    stars = [tuple(line.get_xydata()[k]) for line in haus.lines if line.get_marker() == "*" for k in range(2)]
    wanted = [(row["x"], row["y"]) for row in rows(five) if row["what"] == "f*_haus"]
    assert all(star in wanted for star in stars)
    arrows = [text for text in haus.texts if getattr(text, "arrowprops", None)]
    assert len(arrows) == 5
    edged = [text for text in arrows if text.arrowprops["path_effects"]]
    assert 1 <= len(edged) < 5


def test_collapse_shows_each_set_and_its_nearest(collapse: Figure) -> None:
    for seed in range(4):
        found = [row for row in rows(collapse) if row["seed"] == seed]
        drawn = np.random.RandomState(seed).randn(8, 2)
        before = [[row["x"], row["y"]] for row in found]
        after = [[row["nearest_x"], row["nearest_y"]] for row in found]
        np.testing.assert_allclose(before, drawn, rtol=1e-12)
        assert [row["class"] for row in found] == ["A", "B"] * 4
        one = found[0]
        assert max(map(math.dist, before, after)) == pytest.approx(one["d_haus"], rel=1e-9)
        assert max(pairs(before)) == pytest.approx(one["diameter_before"], rel=1e-12)
        assert max(pairs(after)) == pytest.approx(one["diameter_after"], rel=1e-12)
        assert fmean(pairs(after)) == pytest.approx(one["mean_distance_after"], rel=1e-12)
        axes = collapse.picture.axes[seed]
        joined = [line.get_xydata().tolist() for line in axes.lines if len(line.get_xydata()) == 2]
        assert all([p, q] in joined for p, q in zip(before, after, strict=True) if p != q)
        assert f"seed {seed}" in axes.get_title()


def test_collapse_above_the_plane_shows_the_main_axes() -> None:
    found = drawings.collapse(seed=1, points=6, dimension=5, starts=1, margin=0.0)
    one = [row for row in rows(found) if row["seed"] == 1]
    shown = np.array([[row["x"], row["y"]] for row in one])
    points = np.random.RandomState(1).randn(6, 5)
    spread = np.linalg.svd(points - points.mean(axis=0), compute_uv=False)[:2]
    np.testing.assert_allclose(np.sqrt((shown**2).sum(axis=0)), spread, rtol=1e-9)
    assert found.picture.axes[2].get_xlabel().startswith("first principal axis")


def test_descent_has_the_ratios_of_the_sets() -> None:
    figure = drawings.descent(seed=0, dimension=2, steps=5, repeats=5, margin=0.0)
    for row in rows(figure, step=5):
        (ratio,) = point_sets.shrinkage(row["points"], row["reduction"], [5])
        assert row["diameter_ratio"] == pytest.approx(ratio, rel=1e-9)
    assert {row["diameter_ratio"] for row in rows(figure) if row["step"] == 0} == {1.0}
    curve = figure.picture.axes[0].lines[0].get_xydata()
    part = [row for row in rows(figure) if row["reduction"] == "sum" and row["points"] == 4]
    np.testing.assert_allclose(curve, [[row["step"], 100 * row["diameter_ratio"]] for row in part])


def test_scaling_has_the_cells_of_the_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(point_sets, "BATCHES", {"2x2": 4, "8x4": 32})
    figure = drawings.scaling(seed=0, repeats=5, margin=0.0)
    cells = {(row["batch"], row["dimension"]): row for row in rows(figure)}
    assert len(cells) == 18
    for (batch, d), cell in cells.items():
        scale = point_sets.scale(point_sets.BATCHES[batch], int(batch[2]), d)
        assert [cell[name] for name in ("diameter", "loss", "mean_loss", "forecast")] == [
            *(scale.diameter, scale.loss, scale.mean_loss, scale.forecast)
        ]
        assert cell["vacuous"] == (scale.forecast <= 0)
    heat, *_ = figure.picture.axes
    assert heat.images[0].get_array()[1, 3] == cells["8x4", 32]["forecast"]
    assert len(heat.patches) == sum(cell["vacuous"] for cell in cells.values()) > 0


def test_ranges_are_the_ratios_of_the_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(point_sets, "RANGES", {point_sets.PointSet(5, 1, 2): (), point_sets.PointSet(5, 2, 2, 0.1): ()})
    figure = drawings.ranges(seed=2, cases=1)
    found = {(row["points"], row["dimension"], row["margin"]): row for row in rows(figure)}
    points = np.random.RandomState(2).randn(5, 1)
    loss = isometry.batch_hard_loss(points, np.arange(5) % 2)
    exact = nearest_separated.distance_on_a_line(points, np.arange(5) % 2)
    assert found[5, 1, 0.0]["d_haus_per_loss"] == pytest.approx(exact / loss, rel=1e-9)
    for row in found.values():
        assert row["d_iso_per_loss"] >= 0.5 - 1e-9
        assert row["d_haus_per_d_iso"] * row["d_iso_per_loss"] == pytest.approx(row["d_haus_per_loss"], rel=1e-9)
    shown = [line.get_xdata()[0] for line in figure.picture.axes[2].lines if line.get_marker() == "o"]
    assert shown == [row["d_haus_per_loss"] for row in rows(figure)]


def test_training_marks_every_network(monkeypatch: pytest.MonkeyPatch) -> None:
    first = [train_digits(2, 2, 4, seed=seed, steps=2) for seed in (5, 6)]
    monkeypatch.setattr(scaling_figures, "train_digits", lambda p, k, d, seed: first[seed - 5])
    figure = drawings.training(seed=5, repeats=2)
    assert len(rows(figure)) == 16
    assert rows(figure)[0]["forecast"] == first[0].before.diameter - 2 * first[0].first_loss
    shown = [line.get_ydata()[0] for line in figure.picture.axes[0].lines if line.get_marker() in "oX"]
    assert shown == [each.after.diameter for each in first] * 4


def test_training_is_repeatable_and_measures_what_it_says() -> None:
    one, same, other = (train_digits(3, 2, 4, seed=seed, steps=3, noise=0.5) for seed in (0, 0, 1))
    assert one == same != other
    assert one.before.mean_distance == pytest.approx(0.148, rel=0.02)
    assert 0 < one.after.mean_distance <= one.after.diameter
    assert one.shrinkage == one.after.mean_distance / one.before.mean_distance
    mean = train_digits(3, 2, 4, seed=0, steps=3, noise=0.5, reduction="mean")
    assert mean.before == one.before
    assert mean.after != one.after


def test_all_figures_at_a_small_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(point_sets, "BATCHES", {"2x2": 4, "8x4": 32})
    monkeypatch.setattr(point_sets, "RANGES", {point_sets.PointSet(6, 2, 2, 0.1): ()})
    for options in ({}, {"margin": 0.5, "dimension": 3, "seed": 3, "steps": 1}):
        drawn = drawings.figures(**{**SMALL, **options})
        assert [figure.name for figure in drawn] == ["five-points", "collapse", "descent", "scaling", "ranges"]
        for figure in drawn:
            sound(figure)


def test_same_options_same_picture() -> None:
    first, second = (encode(drawings.five_points(starts=1, margin=0.0).picture, "svg") for _ in range(2))
    assert first == second


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"points": 3}, "points must be between 4 and 200: got 3; give such a number."),
        ({"points": 201}, "points must be between 4 and 200"),
        ({"dimension": 1}, "dimension must be between 2 and 1024: got 1"),
        ({"starts": 0}, "starts must be at least 1: got 0"),
        ({"repeats": 0}, "repeats must be at least 1"),
        ({"steps": 0}, "steps must be at least 1"),
        ({"cases": 0}, "cases must be at least 1"),
        ({"trainings": -1}, "trainings must be at least 0: got -1"),
        ({"seed": -1}, "seed must be between 0 and"),
        ({"margin": -0.1}, "margin must be a finite number of at least 0: got -0.1"),
        ({"margin": math.nan}, "margin must be a finite number"),
    ],
)
def test_errors(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        drawings.figures(**{**SMALL, **options})
