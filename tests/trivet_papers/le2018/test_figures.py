"""The figures of label noise: their numbers against the specification and plain Python, and the pictures of these."""

from __future__ import annotations

import math
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_hex
from tests.trivet_papers.drawn_figures import rows, sound
from tests.trivet_papers.le2018.test_theory import close

from trivet.reports.figure import BLUE, RED, encode
from trivet_papers.figure import Figure, table
from trivet_papers.le2018 import figures as drawings

NAMES = ["pair-rates", "tolerance", "risk", "partition", "residual"]


@cache
def drawn(**options: Any) -> dict[str, Figure]:
    default: dict[str, Any] = {"classes": (2, 3, 10), "samples_per_class": (2, 4), "grid": 11, "draws": 5000}
    return {figure.name: figure for figure in drawings.figures(**(default | options))}


def wrong_pairs(p: float, classes: int) -> tuple[float, float]:
    """The shares of wrong pairs of one class and of two, over all observed labels of two items."""
    share = {True: 1 - p, False: p / (classes - 1)}
    pairs = list(product(range(classes), repeat=2))
    return (
        sum(share[a == 0] * share[b == 0] for a, b in pairs if a != b),
        sum(share[a == 0] * share[b == 1] for a, b in pairs if a == b),
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_figure_is_whole(name: str) -> None:
    figure = drawn()[name]
    assert list(drawn()) == NAMES
    sound(figure)
    figure.picture.draw_without_rendering()
    assert all(
        text.get_fontsize() >= 8.5 for text in figure.picture.findobj(lambda artist: hasattr(artist, "get_fontsize"))
    )
    # Nothing is written outside the picture.
    box = figure.picture.bbox
    for axes in figure.picture.axes:
        inside = axes.get_tightbbox()
        assert inside.x0 >= box.x0 - 1
        assert inside.y0 >= box.y0 - 1
        assert inside.x1 <= box.x1 + 1
        assert inside.y1 <= box.y1 + 1


def test_a_map_stays_small() -> None:
    assert len(encode(drawn()["tolerance"].picture, "svg")) < 500_000


def test_the_same_seed_gives_the_same_numbers() -> None:
    def numbers(seed: int) -> bytes:
        return table(drawings.pair_rates((2, 3), grid=11, draws=500, generator=np.random.default_rng(seed)).numbers)

    assert numbers(3) == numbers(3) != numbers(4)
    same = drawings.pair_rates((2, 3, 10), grid=11, draws=5000, generator=np.random.default_rng(0))
    assert table(same.numbers) == table(drawn()["pair-rates"].numbers)


def test_pair_rates() -> None:
    figure = drawn()["pair-rates"]
    for row in rows(figure):
        classes, p = row["num_classes"], row["noise_rate"]
        positive, negative = wrong_pairs(p, classes)
        if row["source"] == "printed":  # too small by p^2 / (K - 1)
            positive -= p * p / (classes - 1)
        if row["source"] == "simulated":
            assert abs(row["positive"] - positive) <= 4 * math.sqrt(positive * (1 - positive) / 5000) + 1e-12
            assert abs(row["negative"] - negative) <= 4 * math.sqrt(negative * (1 - negative) / 5000) + 1e-12
        else:
            assert [row["positive"], row["negative"]] == close([positive, negative])
    assert rows(figure, source="printed", num_classes=2, noise_rate=0.8)[0]["positive"] == close(-0.32)
    assert rows(figure, source="corrected", num_classes=10, noise_rate=0.5)[0]["positive"] == close(0.722222222, 9)
    assert len(rows(figure)) == 3 * 3 * 11


def test_the_picture_of_pair_rates_shows_the_numbers() -> None:
    figure = drawn()["pair-rates"]
    left, right = figure.picture.axes
    for axes, name, sources in ((left, "positive", 3), (right, "negative", 2)):
        lines = {tuple(np.round(line.get_ydata(), 12)) for line in axes.lines}
        assert len(axes.lines) == 3 * sources
        for source in ("corrected", "simulated", "printed")[:sources]:
            for classes in (2, 3, 10):
                found = rows(figure, source=source, num_classes=classes)
                assert tuple(round(row[name], 12) for row in found) in lines
    assert to_hex(left.lines[0].get_color()) == BLUE.lower()
    assert left.lines[0].get_linestyle() == "-" != left.lines[1].get_linestyle()
    assert left.get_xlabel().endswith("(%)")
    assert left.get_ylabel().endswith("(%)")


def test_tolerance() -> None:
    figure = drawings.tolerance((5, 10, 12, 100), (2, 4), grid=11)
    for classes, p, q in ((10, 0.3, 0.388889), (10, 0.5, 0.117284), (10, 0.7, -0.045679), (100, 0.9, -0.001653)):
        row = rows(figure, panel="a", num_classes=classes)[round(10 * p)]
        assert [row["noise_rate"], row["q"]] == close([p, q], 6)
    limits = {5: 0.47340137, 10: 0.62863979, 12: 0.66242908, 100: 0.89149132}
    crossings = {
        round(float(line.get_xdata()[0]), 8) for line in figure.picture.axes[0].lines if len(line.get_xdata()) == 1
    }
    assert crossings == set(limits.values())
    by_size = rows(figure, panel="b")
    assert sorted({row["num_classes"] for row in by_size})[:2] == [2, 4]
    assert [row["noise_rate"] for row in by_size if row["samples_per_class"] == math.inf] == [1.0] * 11
    for row in by_size:
        classes, s, p = row["num_classes"], row["samples_per_class"], row["noise_rate"]
        w = 1 / classes if math.isnan(s) else (1 - 1 / s) / (classes - 1)
        assert row["weight"] == close(w)
        wrong = 2 * p - classes / (classes - 1) * p * p
        smallest = min(1 - wrong * (1 + w), 1 - wrong / (classes - 1) * (1 + 1 / w))
        assert smallest == close(0.0, 9) or (p == 1 and s == math.inf)
    for row in rows(figure, panel="c"):
        assert 1 - (2 * row["noise_rate"] - row["noise_rate"] ** 2) * row["skew"] == close(row["q"], 9)
    marks = [(row["noise_rate"], round(row["skew"], 7)) for row in rows(figure, panel="c, marks")]
    assert marks == [(0.3, 1.9607843), (0.5, 1.3333333), (0.6, 1.1904762)]
    for row in rows(figure, panel="d"):
        assert row["q"] == close(1 - (2 * row["noise_rate"] - row["noise_rate"] ** 2) * row["skew"])
    image = figure.picture.axes[3].images[0].get_array()
    assert image.ravel().tolist() == [row["q"] for row in rows(figure, panel="d")]


def test_risk() -> None:
    figure = drawn()["risk"]
    expected = {
        (2, 4, 0.2): 0.3765888, (2, 4, 0.4): 0.0428672, (3, 2, 0.2): 0.5243, (3, 2, 0.4): 0.18346667,
        (3, 2, 0.5): 0.07421875, (3, 2, 0.6): 0.0123, (3, 2, 0.8): 0.0528,
    }  # fmt: skip
    for (classes, samples, p), factor in expected.items():
        row = rows(figure, num_classes=classes, samples_per_class=samples)[round(10 * p)]
        assert [row["noise_rate"], row["factor"]] == close([p, factor], 8)
    for row in rows(figure):
        classes, p = row["num_classes"], row["noise_rate"]
        square = (1 - p * classes / (classes - 1)) ** 2
        assert row["large_classes"] == close(square)
        assert row["q_of_the_paper"] == close(1 - (1 - square) / classes * (classes + 1))
        assert row["factor"] > -1e-12
    lowest = next(axes for axes in figure.picture.axes if axes.get_title().startswith("How far"))
    curve = [row["factor"] - row["large_classes"] for row in rows(figure, num_classes=3, samples_per_class=2)]
    assert curve in [line.get_ydata().tolist() for line in lowest.lines if len(line.get_xdata()) == 11]
    assert [axes.get_title() for axes in figure.picture.axes[:3]] == [f"$K$ = {n} classes" for n in (2, 3, 10)]


@pytest.mark.parametrize(("margin", "beta"), [(0.2, 1.4), (0.5, 0.3), (0.4, 1.8), (1.0, 1.0)])
def test_partition(margin: float, beta: float) -> None:
    figure = drawings.partition(grid=11, margin=margin, beta=beta)
    for row in rows(figure):
        true, wrong = (max(0.0, (row["distance"] - beta) * t + margin) for t in (row["t"], -row["t"]))
        assert [row["loss_true_label"], row["loss_wrong_label"]] == close([true, wrong])
        if min(abs(row["distance"] - edge) for edge in (beta - margin, beta + margin)) > 1e-9:
            used = [true > 0 and wrong > 0, true > 0 == wrong, wrong > 0 == true]
            assert [row["both"], row["clean_only"], row["noisy_only"]] == used
    left, right = figure.picture.axes
    for axes, t in ((left, 1), (right, -1)):
        assert axes.lines[0].get_ydata().tolist() == [row["loss_true_label"] for row in rows(figure, t=t)]
        assert to_hex(axes.lines[1].get_color()) == RED.lower()
        shades = [patch.get_x() for patch in axes.patches]
        assert shades == close([0.0] + [edge for edge in (beta - margin, beta + margin) if 0 < edge < 2])


def test_residual() -> None:
    figure = drawings.residual((2, 3, 10), grid=11, gamma=0.5)
    for row in rows(figure, panel="a"):
        p, largest, wrong = row["noise_rate"], 2.0, 2 * row["noise_rate"] - row["noise_rate"] ** 2
        assert row["value"] == close(
            {
                "clean_only_positive": wrong * (largest - 1) * largest,
                "clean_only_negative": wrong * largest / 10,
                "noisy_only_positive": wrong / 10,
                "noisy_only_negative": wrong * largest / 10,
            }[row["pair"]]
        ), p
    z = {row["gamma"]: 1 / (1 / row["gamma"] - 1) for row in rows(figure, panel="b")}
    for row in rows(figure, panel="b"):
        gamma = row["gamma"]
        exact = {("extreme", 1): 10 / gamma, ("extreme", -1): z[gamma], ("equal", -1): 1 / (1 - gamma)}
        assert row["value"] == pytest.approx(exact[row["pair"], row["t"]], rel=1e-9)
    curve = [row["value"] for row in rows(figure, panel="b", pair="extreme", t=-1)]
    assert curve in [line.get_ydata().tolist() for line in figure.picture.axes[1].lines if len(line.get_xdata()) == 11]
    assert min(value for gamma, value in z.items() if gamma > 0.5) > 1 > max(v for g, v in z.items() if g < 0.49)


def test_one_class_and_many() -> None:
    assert {row["num_classes"] for row in rows(drawings.risk((7,), (3,), grid=11))} == {7}
    many = drawn(classes=(30, 2, 3, 4, 5, 6), samples_per_class=(9, 2, 3, 4))
    assert [axes.get_title() for axes in many["risk"].picture.axes[:6]] == [
        f"$K$ = {number} classes" for number in (2, 3, 4, 5, 6, 30)
    ]
    many["risk"].picture.draw_without_rendering()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"classes": ()}, "classes must be 1 to 6 different whole numbers of at least 2: got none"),
        ({"classes": (1, 2)}, "classes must be 1 to 6 .*: got 1, 2"),
        ({"classes": (3, 3)}, "classes must be 1 to 6 different .*: got 3, 3"),
        ({"classes": range(2, 9)}, "classes must be 1 to 6"),
        ({"classes": (2.0,)}, "classes must be 1 to 6 different whole numbers"),
        ({"samples_per_class": (1,)}, "samples_per_class must be 1 to 4 different whole numbers of at least 2: got 1"),
        ({"classes": (1000,), "samples_per_class": (11,)}, "must not exceed 10000: got 1000 times 11"),
        ({"grid": 10}, "grid must be a whole number from 11 to 401: got 10"),
        ({"grid": 402}, "grid must be a whole number from 11 to 401: got 402"),
        ({"draws": 99}, "draws must be a whole number from 100 to 1000000: got 99"),
        ({"margin": 0.0}, r"margin must lie in \(0, 1\].*got 0.0"),
        ({"margin": math.nan}, r"margin must lie in \(0, 1\].*got nan"),
        ({"beta": 2.0}, r"beta must lie in \(0, 2\).*got 2.0"),
        ({"gamma": 1.0}, r"gamma must lie in \(0, 1\).*got 1.0"),
        ({"seed": -1}, "seed must be a finite number of at least 0: got -1"),
    ],
)
def test_options_out_of_range(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        drawings.figures(**options)
