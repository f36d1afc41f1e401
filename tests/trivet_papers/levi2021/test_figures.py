from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from matplotlib.lines import Line2D
from tests.nightly import sampled
from tests.trivet_papers.drawn_figures import rows, sound

from trivet.reports.figure import encode
from trivet_papers.figure import Figure
from trivet_papers.levi2021 import figures as drawings

SMALL: dict[str, Any] = {"p": (0.8,), "largest": 40, "most_classes": 4, "size": 2, "rank": (1, 3)}


def x_of(line: Line2D) -> npt.NDArray[np.float64]:
    return np.asarray(line.get_xdata(), dtype=np.float64)


def y_of(line: Line2D) -> npt.NDArray[np.float64]:
    return np.asarray(line.get_ydata(), dtype=np.float64)


@pytest.fixture(scope="module")
def drawn() -> dict[str, Figure]:
    return {figure.name: figure for figure in drawings.figures(**SMALL)}


def test_every_figure_says_what_it_is(drawn: Mapping[str, Figure]) -> None:
    assert list(drawn) == ["collapsed-or-split", "thresholds", "theorems", "push"]
    for figure in drawn.values():
        sound(figure)


@pytest.mark.parametrize("name", sampled(["thresholds", "collapsed-or-split", "theorems", "push"], 2))
def test_pictures_can_be_written(drawn: Mapping[str, Figure], name: str) -> None:
    assert len(encode(drawn[name].picture, "svg")) < 1e6


@pytest.mark.parametrize(
    ("size", "collapsed", "split"),
    [(2, 0.5248, 1.3536), (4, 1.3609472, 1.57771776), (6, 2.0076911493, 1.5926730588), (8, 2.6008072021, 1.8239671435)],
)
def test_losses_of_two_classes_are_those_of_the_spec(
    drawn: Mapping[str, Figure], size: int, collapsed: float, split: float
) -> None:
    (line,) = rows(drawn["collapsed-or-split"], loss="triplet", classes=2, positives="easy", class_size=size)
    assert (line["collapsed"], line["split"]) == pytest.approx((collapsed, split), abs=1e-9)
    assert line["ratio"] == pytest.approx(split / collapsed)
    assert line["threshold"] == 6


def test_the_picture_shows_the_numbers(drawn: Mapping[str, Figure]) -> None:
    figure = drawn["collapsed-or-split"]
    titles = {axes.get_title("left"): axes for axes in figure.picture.axes}
    axes = titles["Triplet loss, 5 classes"]
    easy, every, *marks = (line for line in axes.get_lines() if len(x_of(line)) != 2)
    for line, positives in ((easy, "easy"), (every, "all")):
        shown = rows(figure, loss="triplet", classes=5, positives=positives)
        np.testing.assert_array_equal(x_of(line), [row["class_size"] for row in shown])
        np.testing.assert_allclose(y_of(line), [row["ratio"] for row in shown], rtol=1e-15)
    assert easy.get_linestyle() != every.get_linestyle()
    assert marks == []  # the split wins from 48 on, beyond the largest class asked for
    (mark,) = (line for line in titles["Triplet loss, 2 classes"].get_lines() if len(x_of(line)) == 1)
    assert list(x_of(mark)) == [6]

    image = drawn["thresholds"].picture.axes[0].images[0].get_array()
    assert image is not None
    values = [row["threshold"] for row in rows(drawn["thresholds"], loss="triplet")]
    np.testing.assert_array_equal(np.ma.filled(image, math.nan).ravel(), values)

    titles = {axes.get_title("left"): axes for axes in drawn["theorems"].picture.axes}
    cut = titles["c  Along the dashed line of b"].get_lines()
    for line, case in zip(cut, ("exact", "excluded", "independent"), strict=True):
        np.testing.assert_array_equal(y_of(line), [row["value"] for row in rows(drawn["theorems"], case=case)])

    titles = {axes.get_title("left"): axes for axes in drawn["push"].picture.axes}
    line = titles["a  Claim 3: a sample and beta"].get_lines()[0]
    np.testing.assert_array_equal(y_of(line), [row["ratio"] for row in rows(drawn["push"], panel="a")])


def test_thresholds_are_those_of_the_spec() -> None:
    figure = drawings.thresholds(5, margin=1, beta=1, largest=700)
    for classes, p, expected in ((2, 0.55, 6), (3, 0.6, 10), (3, 0.7, 8), (5, 0.6, 30), (5, 0.9, 82), (5, 0.99, 632)):
        assert rows(figure, loss="triplet", classes=classes, p=p)[0]["threshold"] == expected
    assert {row["threshold"] for row in rows(figure, loss="margin")} == {2, 4}
    (never,) = rows(drawings.thresholds(5, margin=1, beta=1, largest=630), loss="triplet", never=1)
    assert (never["classes"], never["p"]) == (5, 0.99)
    assert math.isnan(never["threshold"])


def test_maps_of_the_theorems_are_those_of_the_spec() -> None:
    figure = drawings.theorems([2], 0.8, margin=1.0, size=4)
    for case, values in {
        "exact": (0.12, 0.11625, 0.1125, 0.105, 0.105),
        "excluded": (0.105,) * 5,
        "independent": (0.16, 0.1625, 0.165, 0.17, 0.1875),
    }.items():
        shown = {round(row["within"], 9): row for row in rows(figure, panel="c", case=case)}
        for within, value in zip((0, 0.25, 0.5, 1, 2), values, strict=True):
            assert shown[within]["value"] == pytest.approx(value, abs=1e-12)
            assert shown[within]["across"] == pytest.approx(within + 1)
    clean, noisy = (rows(figure, panel="ab", case=case) for case in ("no noise", "noise"))
    for row in clean:
        if abs(row["across"] - row["within"] - 1) > 1e-9:
            assert (row["value"] == 0) == (row["across"] > row["within"] + 1)
    assert min(row["value"] for row in noisy) >= 0.105 - 1e-12
    assert all(row["across"] >= row["within"] * 0.75 - 1e-12 for row in noisy)
    turn = {(row["classes"], row["p"]): row["value"] for row in rows(figure, panel="d")}
    assert [turn[2, p] for p in (0.55, 0.6, 0.8)] == pytest.approx([49.5, 12, 8 / 9])
    limit = {row["classes"]: row["value"] for row in rows(figure, panel="f")}
    assert (limit[2], limit[3], limit[1000]) == pytest.approx((0.5, 2 / 3, 0.707047), abs=1e-6)


@pytest.mark.parametrize(
    ("case", "place", "value"),
    [
        ("beta fixed above the margin", 1.0, 0.64),
        ("beta at the margin", 0.0, 0.64),
        ("too noisy", 2.0, 0.88),
    ],
)
def test_where_a_pair_of_one_class_costs_least(case: str, place: float, value: float) -> None:
    """2 margin min(m_s, 1 - m_s), with m_s = .68 for two classes at p = .8 and .44 for three at p = .6."""
    shown = rows(drawings.theorems([2], 0.8, margin=1.0, size=2), panel="e", case=case)
    least = min(shown, key=lambda row: float(row["value"]))
    assert (least["within"], least["value"]) == pytest.approx((place, value), abs=1e-12)


def test_push_is_that_of_the_spec() -> None:
    figure = drawings.push((0.6, 0.8, 0.95), (1, 5))
    for p, nearer, apart in ((0.6, 1, 2), (0.8, 4, 7), (0.95, 44, 58)):
        for panel, expected in (("a", nearer), ("c", apart)):
            shown = rows(figure, panel=panel, p=p)
            assert {row["threshold"] for row in shown} == {expected}
            assert min(row["nearer"] for row in shown if row["ratio"] < 1 - 1e-9) == expected
    assert [row["threshold"] for row in rows(figure, panel="b", case="worst") if row["p"] in (0.6, 0.7, 0.9)] == [
        1,
        1,
        15,
    ]
    assert [rows(figure, panel="d", p=p, rank=5)[0]["threshold"] for p in (0.6, 0.7, 0.9)] == [3, 6, 43]


def test_the_unit_of_distance_is_the_margin(drawn: Mapping[str, Figure]) -> None:
    one, half = drawn["theorems"].numbers, drawings.theorems([2, 5], 0.8, margin=0.5, size=2).numbers
    for column in ("within", "across", "beta"):
        np.testing.assert_allclose(half[column], 0.5 * np.array(one[column]), rtol=1e-12)


def change(**options: Sequence[float] | float) -> Callable[[], object]:
    return lambda: drawings.figures(**{**SMALL, **options})


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (change(classes=()), "classes must be given one to 6"),
        (change(p=(0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9)), "p must be given one to 6"),
        (change(p=(0.5,)), r"p must lie in \(1/2, 1\)"),
        (change(p=(0.8, 1.0)), r"p must lie in \(1/2, 1\)"),
        (change(p=(math.nan,)), r"p must lie in \(1/2, 1\)"),
        (change(classes=(1,)), "num_classes must be at least 2"),
        (change(margin=0), "margin must be"),
        (change(beta=-1), "beta must be"),
        (change(largest=1), "largest must be"),
        (change(most_classes=2), "most_classes must be at least 3"),
        (change(size=1), "size must be at least 2"),
        (change(size=31), "size times classes at most 60"),
        (change(rank=(0,)), "rank must be"),
        (change(rank=(1, 201)), "rank must be at most 200"),
    ],
)
def test_bad_options_are_a_stated_error(call: Callable[[], object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        call()
