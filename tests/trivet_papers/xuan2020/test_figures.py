"""The figures of `trivet simulate dynamics` show what they say."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.trivet_papers.drawn_figures import sound
from tests.trivet_papers.xuan2020.test_dynamics import plain_step

from trivet.reports.figure import encode, style
from trivet_papers.figure import Figure
from trivet_papers.xuan2020 import figures as drawings
from trivet_papers.xuan2020.dynamics import Movement, vector_field


def moved(before: list[tuple[float, float]], after: list[tuple[float, float]], direction: list[int]) -> Movement:
    return Movement(np.array(before), np.array(after), np.array(direction, dtype=np.int8))


def stand_in(loss: str, seed: int) -> dict[tuple[str, str], Movement]:
    """Four triplets, one for each direction, in each phase and mining."""
    before = [(0.5, 0.4), (0.3, 0.2), (0.1, -0.5), (0.7, 0.9)]
    after = [(0.6, 0.5), (0.4, 0.1), (0.0, -0.6), (0.6, 0.95)]
    return {
        (phase, name): moved(before, after, [0, 1, 2, 3]) for phase in ("initial", "late") for name in ("HPHN", "EPEN")
    }


@pytest.fixture(scope="module")
def drawn() -> list[Figure]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(drawings, "digit_movement", stand_in)
        patch.setattr(drawings, "AREA_CELLS", 20)
        return drawings.figures(loss=["first-order"], gamma=[0.5], entanglement=[0.8], grid=4)


def test_all_figures_are_drawn_and_their_columns_fit(drawn: list[Figure]) -> None:
    names = ["scatter", "entanglement-first-order", "changes-first-order", "fields-p80", "areas"]
    assert [figure.name for figure in drawn] == [*names, "movement-first-order"]
    for figure in drawn:
        sound(figure)
    assert encode(drawn[-2].picture, "png")[:4] == b"\x89PNG"


def test_the_papers_losses_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[tuple[str, Any]] = []
    for name in ("_scatter", "_entanglement", "_changes", "_fields", "_areas", "_movement"):
        monkeypatch.setattr(drawings, name, lambda *given, name=name: called.append((name, given[0])))
    drawings.figures()
    assert [loss for name, loss in called if name == "_entanglement"] == ["first-order", "second-order"]
    assert [loss for name, loss in called if name == "_changes"] == ["first-order", "vanilla", "second-order"]
    assert [loss for name, loss in called if name == "_movement"] == ["first-order", "second-order"]
    assert len([name for name, _ in called if name == "_fields"]) == 2


def test_maps_hold_the_changes(drawn: list[Figure]) -> None:
    figure = drawn[1]
    rows = list(zip(*figure.numbers.values(), strict=True))
    assert list(figure.numbers) == ["drawn", "gamma", "p", "s_ap", "s_an", "change_ap", "change_an"]
    assert {row[:3] for row in rows} == {(what, 0.5, p) for what in ("map", "arrow") for p in (0.0, 0.8)}
    assert len(rows) == 2 * (4 * 4 + 20 * 20)
    for _, gamma, p, s_ap, s_an, change_ap, change_an in rows[::7]:
        of_ap, of_an = plain_step(s_ap, s_an, gamma, "first-order", 0.1)
        tie = p * math.sqrt(s_ap * s_an)
        assert (change_ap, change_an) == pytest.approx((of_ap + tie * of_an, of_an + tie * of_ap), abs=1e-13)
    shown = figure.picture.axes[3].images[0].get_array()  # second row, p = 0.8
    assert shown is not None
    assert shown.ravel().tolist() == [row[6] for row in rows if row[0] == "map" and row[2] == 0.8]


def test_arrows_point_where_the_triplet_goes(drawn: list[Figure]) -> None:
    figure = drawn[3]
    of = {(x, y): (u, v) for x, y, u, v in zip(*list(figure.numbers.values())[3:], strict=True)}
    quivers: list[Any] = list(figure.picture.axes[0].collections)
    assert sum(len(quiver.U) for quiver in quivers) == len(of) == 14 * 14
    for quiver in quivers:
        for (x, y), u, v in zip(quiver.XY, quiver.U, quiver.V, strict=True):
            change = of[x, y]
            assert math.atan2(v, u) == pytest.approx(math.atan2(change[1], change[0]))
            assert math.hypot(u, v) <= 1.6 / 14 + 1e-12


def test_areas_are_the_shares_of_the_specification() -> None:
    with style():
        figure = drawings._areas(("first-order", "second-order"), [0.5], [0.4, 0.8], vector_field)
    found = {
        (loss, p): [100 * values[i] for values in shares]
        for shares in [[figure.numbers[way] for way in ("top_right", "bottom_right", "bottom_left", "top_left")]]
        for i, (loss, p) in enumerate(zip(figure.numbers["loss"], figure.numbers["p"], strict=True))
    }
    assert found["first-order", 0.4] == pytest.approx([10.18, 77.46, 12.36, 0], abs=0.1)
    assert found["first-order", 0.8] == pytest.approx([17.08, 62.74, 20.18, 0], abs=0.1)
    assert found["second-order", 0.4] == pytest.approx([20.72, 55.11, 24.16, 0], abs=0.1)
    assert found["second-order", 0.8] == pytest.approx([30.78, 39.71, 29.52, 0], abs=0.1)
    bars: list[Any] = list(figure.picture.axes[1].patches)  # way by way, p by p
    widths: list[float] = [bar.get_width() for bar in bars]
    assert [bar.get_x() for bar in bars[2:6]] == pytest.approx([20.72, 30.78, 75.83, 70.49], abs=0.2)
    assert widths[:4] == pytest.approx([20.72, 30.78, 55.11, 39.71], abs=0.1)


def test_the_scatter_of_given_embeddings(tmp_path: Path) -> None:
    rows = np.array([[1, 0], [0.8, 0.6], [0.6, 0.8], [0, 1]])
    np.savez(tmp_path / "four.npz", embeddings=rows, kind=np.array(["a", "a", "b", "b"]), other=np.array([0, 0, 0, 1]))
    with style():
        figure = drawings._scatter(str(tmp_path / "four.npz"), "kind", 0)
    first = [
        figure.numbers[key][0] for key in ("strategy", "anchor", "positive", "negative", "s_ap", "s_an", "correct")
    ]
    assert first[:4] == ["EPHN", 0, 1, 2]
    assert first[4:] == pytest.approx([0.8, 0.6, 1])
    second = [figure.numbers[key][1] for key in ("anchor", "positive", "negative", "s_ap", "s_an", "correct")]
    assert second[:3] == [1, 0, 2]
    assert second[3:] == pytest.approx([0.8, 0.96, 0])
    assert figure.numbers["hard_negative"][:2] == [0, 1]
    assert "four.npz, classes kind" in figure.title
    wrong = figure.picture.axes[0].lines[2].get_xydata()
    assert len(np.asarray(wrong)) == figure.numbers["correct"].count(0)
    with pytest.raises(ValueError, match=r"one column of classes must be chosen: four\.npz has kind, other; add"):
        drawings._scatter(str(tmp_path / "four.npz"), None, 0)
    np.savez(tmp_path / "lone.npz", embeddings=rows, kind=np.array(["a", "b", "c", "d"]))
    with pytest.raises(ValueError, match="triplets need a class of two items"):
        drawings._scatter(str(tmp_path / "lone.npz"), None, 0)


def test_movement_panels(drawn: list[Figure]) -> None:
    figure = drawn[-1]
    assert figure.numbers["direction"][:4] == ["top-right", "bottom-right", "bottom-left", "top-left"]
    assert figure.numbers["change_an"][:4] == pytest.approx([0.1, -0.1, -0.1, 0.05])
    titles = [axes.get_title() for axes in figure.picture.axes]
    assert titles == [f"moved to the {way}" for way in ("top left", "top right", "bottom left", "bottom right")]
    for axes, place in zip(figure.picture.axes, [(0.7, 0.9), (0.5, 0.4), (0.1, -0.5), (0.3, 0.2)], strict=True):
        assert np.asarray(axes.lines[0].get_xydata()).tolist() == [list(place)]
        assert next(text.get_text() for text in axes.texts) == "initial, HPHN: 25 %"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss": ["second"]}, r"loss = 'second' is not known; did you mean 'second-order'"),
        ({"gamma": [1.5]}, r"gamma must lie in \[-1, 1\]: got 1.5"),
        ({"entanglement": [0.4, -0.1]}, r"entanglement must lie in \[0, 1\]: got 0.4, -0.1"),
        ({"entanglement": [math.nan]}, r"entanglement must lie in \[0, 1\]: got nan"),
        ({"factor": "root"}, "factor = 'root' is not known"),
        ({"learning_rate": 0.0}, "learning_rate must be a finite number above 0"),
        ({"grid": 1}, "grid must be at least 2: got 1"),
        ({"seed": -1}, r"seed must lie in \[0, 2\^63\): got -1"),
        ({"labels": "make"}, "labels names a column of a file: got 'make' without embeddings"),
    ],
)
def test_errors(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        drawings.figures(**options)
