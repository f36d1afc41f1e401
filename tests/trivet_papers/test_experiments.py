"""What the experiments of all papers have in common: their figures and tables can be made of any results."""

from __future__ import annotations

from typing import Any

import pytest
from matplotlib.figure import Figure
from tests.nightly import sampled
from tests.trivet_papers.made_results import filled

from trivet.reports.figure import style
from trivet_papers.catalogue import experiments
from trivet_papers.experiment import Arm, Drawing, Results, Size
from trivet_papers.figure import in_percent


class Anything(dict[str, Any]):
    """A value for every measure."""

    def get(self, measure: str, default: Any = None) -> Any:
        if measure.endswith("/map"):
            return [(0.1 * i, 0.2 * i, i % 3) for i in range(9)]
        if measure.endswith("/neighbours"):
            return [(0, place, 1, place % 2, 98 * "5a") for place in range(3)]
        if measure.endswith("points"):
            pairs = [[0.5, 0.6, 0.7], [0.4, 0.9, 0.8]]
            return pairs if measure.startswith("train") else [*pairs, [0, 1, 3]]
        return 0.5


@pytest.mark.parametrize("size", sampled(["here", "paper"], 2))
@pytest.mark.parametrize("key", [one.key for one in experiments("all")])
def test_what_is_shown_can_be_shown(key: str, size: Size) -> None:
    (one,) = experiments(key)
    recipe = one.recipe(size)

    def anything(arm: Arm, seed: int, step: int) -> Anything:
        return Anything()

    for found, some in ((Results({}, recipe.arms), False), (filled(recipe.arms, anything, 2), True)):
        for part in recipe.shows:
            if isinstance(part, Drawing):
                with style():
                    figure = part.draw(found)
                (length,) = {len(column) for column in figure.numbers.values()}
                assert (length > 0) is some
            else:
                assert set(part.printed) <= {head for head, _ in part.rows}
                for _, factors in part.rows:
                    for column in part.columns:
                        assert len(found.numbers(column.measure, column.at, **factors)) == 2 * some


@pytest.mark.parametrize("limits", [(0.0, 1.0), (0.94, 0.955)])
def test_ticks_in_percent_differ(limits: tuple[float, float]) -> None:
    picture = Figure()
    axes = picture.subplots()
    axes.set_ylim(limits)
    in_percent(axes.yaxis)
    picture.draw_without_rendering()
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert len(set(labels)) == len(labels) > 3
    assert [float(label) / 100 for label in labels] == pytest.approx(list(axes.get_yticks()))
