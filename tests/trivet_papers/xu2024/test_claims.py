"""The checks of this paper hold, and fail where what they check is wrong."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from trivet_papers.checks import Check
from trivet_papers.xu2024 import isometry, nearest_separated, point_sets, training
from trivet_papers.xu2024.claims import collapse, sizes, theorems
from trivet_papers.xu2024.isometry import batch_hard_loss, diameter
from trivet_papers.xu2024.nearest_separated import descend, loss_sandwich


def test_descent_below_the_forecast() -> None:
    classes = np.arange(6) % 2
    np.testing.assert_allclose(point_sets.SHRINKING[[0, 5]], [[1.7641, 0.4002], [0.1440, 1.4543]], atol=5e-5)
    assert batch_hard_loss(point_sets.SHRINKING, classes) == pytest.approx(1.409210, abs=1e-6)
    rounded = np.round(point_sets.SHRINKING, 4)  # as printed; their loss is not the printed one
    assert batch_hard_loss(rounded, classes) == pytest.approx(1.409181, abs=1e-6)
    end = descend(point_sets.SHRINKING, classes, reduction="max", steps=1000)
    assert end.steps == 533
    assert batch_hard_loss(end.points, classes) == end.losses[-1] == 0
    assert diameter(end.points) == pytest.approx(0.121555, abs=1e-5)
    assert end.diameters[0] == pytest.approx(3.338656, abs=1e-6)
    assert end.diameter_after(10**6) == end.diameters[-1] == pytest.approx(diameter(end.points), rel=1e-9)


@pytest.mark.parametrize(("place", "n"), list(enumerate(point_sets.DESCENTS)))
def test_descent_shrinks_as_tabled(place: int, n: int) -> None:
    steps = (50, 1000) if n <= 20 else (50,)  # the rest takes seconds; trivet simulate --check has it
    for reduction in ("sum", "max"):
        wanted = [collapse.SHRINKAGES[reduction, at][place] for at in steps]
        assert point_sets.shrinkage(n, reduction, steps) == pytest.approx(wanted, abs=1e-3)


@pytest.mark.parametrize("batch", ["2x2", "8x4"])  # the larger ones take seconds
def test_loss_grows_with_the_batch_and_diameter_with_the_dimension(batch: str) -> None:
    for d, printed in zip(collapse.DIMENSIONS, collapse.SCALES[batch], strict=True):
        size, most, mean, forecast = map(float, printed)
        found = point_sets.scale(point_sets.BATCHES[batch], int(batch.split("x")[1]), d)
        assert found.diameter == pytest.approx(size, rel=6e-3)
        assert (found.loss, found.mean_loss) == (pytest.approx(most, abs=0.01), pytest.approx(mean, abs=0.01))
        assert found.forecast == pytest.approx(forecast, abs=0.01 if abs(forecast) < 10 else 0.1)


def test_random_cases_are_measured_as_said() -> None:
    kind = point_sets.PointSet(5, 2, 2, 0.1)
    (case,) = point_sets.cases(kind, 1, seed=3)
    points = np.random.RandomState(3).randn(5, 2)
    sandwich = loss_sandwich(points, np.arange(5) % 2, margin=0.1)
    assert case.ratios == (
        sandwich.isometric_per_loss,
        sandwich.hausdorff_per_isometric,
        sandwich.hausdorff_per_loss,
    )
    assert case.nearest_diameter == diameter(sandwich.hausdorff.witness)
    (line,) = point_sets.cases(point_sets.PointSet(4, 1, 2), 1, seed=3)
    points = np.random.RandomState(3).randn(4, 1)
    exact = nearest_separated.distance_on_a_line(points, np.arange(4) % 2)
    assert line.hausdorff == pytest.approx(exact, abs=1e-9)
    assert math.isnan(line.nearest_diameter)


@pytest.fixture(scope="module", autouse=True)
def once() -> Iterator[None]:
    """The distance on a line, which takes seconds for all that is measured, is computed once for each of few sets."""
    right, known = nearest_separated.distance_on_a_line, {}

    def distance(points: np.ndarray, labels: np.ndarray, **options: Any) -> float:
        key = (points.shape, points.tobytes(), labels.tobytes(), *sorted(options.items()))
        if key not in known:
            known[key] = right(points, labels, **options)
        return known[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nearest_separated, "distance_on_a_line", distance)
        patch.setattr(theorems, "SETS_ON_A_LINE", 6)
        yield


@pytest.fixture(scope="module")
def few() -> dict[point_sets.PointSet, list[point_sets.Case]]:
    kinds = [kind for kind in point_sets.RANGES if kind.points < 10 and kind.dimension > 1]
    return {kind: point_sets.cases(kind, 1) for kind in kinds}


def test_quick_statements_of_the_paper_check_out(few: dict[point_sets.PointSet, list[point_sets.Case]]) -> None:
    rows = [
        *sizes.definition_checks(),
        *theorems.inequality_checks(few),
        *theorems.range_checks(few),
        *theorems.proof_checks(),
        *collapse.forecast_checks(few),
        *collapse.hinge_checks(),
    ]
    assert [row.id for row in rows if not row.holds] == []
    assert len({row.id for row in rows}) == len(rows)
    assert all(row.id.startswith("xu2024-") and row.statement.endswith(".") for row in rows)


def without_hinge(points: np.ndarray, labels: np.ndarray, **options: Any) -> float:
    """The loss of the short version: that of separated points is below 0, of collapsed ones 0 and the margin."""
    return isometry.hardest_triplet(points, labels).violation + options.get("margin", 0.0)


def without_margin(points: np.ndarray, labels: np.ndarray, **options: Any) -> float:
    return batch_hard_loss(points, labels, **options | {"margin": 0.0})


def one_way(f: np.ndarray, g: np.ndarray, labels: np.ndarray) -> float:
    """The Hausdorff distance from the images of f to those of g alone, of one class."""
    return float(np.linalg.norm(f[:, None] - g, axis=2).min(axis=1).max())


@pytest.mark.parametrize(
    ("name", "broken", "part", "failed"),
    [
        ("nearest_images", lambda f, g, labels: g, sizes.definition_checks, {"displacement-lemma"}),
        ("displacement", lambda f, g: 0.5, sizes.definition_checks, {"displacement-bounds-hausdorff"}),
        (
            "hardest_triplet",
            lambda *a, **k: isometry.Triplet(0, 0, 0, 1.0),
            sizes.definition_checks,
            {"short-version-hinge"},
        ),
        (
            "batch_hard_loss",
            lambda *a, **k: 1.0,
            sizes.definition_checks,
            {"zero-loss", "collapse-is-optimal-without-margin"},
        ),
        ("batch_hard_loss", without_hinge, sizes.definition_checks, {"collapse-is-optimal-without-margin"}),
        ("batch_hard_loss", without_margin, sizes.definition_checks, {"collapse-is-optimal-without-margin"}),
        ("class_hausdorff_distance", one_way, sizes.definition_checks, {"hausdorff-both-ways"}),
        ("thickness", lambda points: 1.0, theorems.proof_checks, {"thickness-zero"}),
        ("displacement", lambda f, g: 0.5, theorems.proof_checks, {"lemma-not-linear"}),
        ("diameter_bound", lambda d, loss: d, collapse.forecast_checks, {"equation-17-nearest"}),
        ("diameter_bound", lambda d, loss: d - loss, collapse.forecast_checks, {"equation-17-factor"}),
    ],
)
def test_a_broken_function_fails_its_check(
    few: dict[point_sets.PointSet, list[point_sets.Case]],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    broken: Callable[..., Any],
    part: Callable[..., Iterator[Check]],
    failed: set[str],
) -> None:
    monkeypatch.setattr(isometry, name, broken)
    rows = part(few) if part is collapse.forecast_checks else part()
    assert failed <= {row.id.removeprefix("xu2024-") for row in rows if not row.holds}


def test_random_positives_for_the_hardest_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(z: torch.Tensor, classes: torch.Tensor, margin: float) -> torch.Tensor:
        distances, same = torch.cdist(z, z), classes[:, None] == classes
        others = same & ~torch.eye(len(z), dtype=torch.bool)
        positive = torch.multinomial(others.double(), 1, generator=torch.Generator().manual_seed(0))
        nearest = distances.masked_fill(same, torch.inf).amin(1)
        return (distances.gather(1, positive)[:, 0] - nearest + margin).relu()

    assert [row.holds for row in collapse.hinge_checks()] == [True]
    monkeypatch.setattr(training, "batch_hard_hinges", wrong)
    assert [row.holds for row in collapse.hinge_checks()] == [False]


def test_a_case_out_of_range_fails_its_check(few: dict[point_sets.PointSet, list[point_sets.Case]]) -> None:
    kind, found = next(iter(few.items()))
    wide = point_sets.Case(loss=1.0, isometric=0.4, hausdorff=1.1, enclosing=1.0, diameter=5.0, nearest_diameter=1.0)
    rows = theorems.range_checks({kind: [*found, wide]})
    assert [row.holds for row in rows] == [False]
    assert [row.holds for row in theorems.range_checks({kind: found})] == [True]


@pytest.mark.parametrize(
    ("measure", "factor", "failed"),
    [
        ("isometric", 1.5, "xu2024-theorem-3.3-lower"),
        ("isometric", 0.9, "xu2024-theorem-3.3-lower"),
        ("isometric", 1 / 1.5, "xu2024-theorem-3.3-lower"),
        ("hausdorff", 1.5, "xu2024-theorem-3.2-lower"),
        ("hausdorff", 0.9, "xu2024-theorem-3.2-lower"),
        ("hausdorff", 1.1, "xu2024-loss-four-hausdorff"),
        ("isometric", 2.5, "xu2024-theorem-3.3-upper"),
        ("hausdorff", 1.6, "xu2024-forecast-factor"),
    ],
)
def test_wrong_distances_fail_the_bounds(
    few: dict[point_sets.PointSet, list[point_sets.Case]],
    monkeypatch: pytest.MonkeyPatch,
    measure: str,
    factor: float,
    failed: str,
) -> None:
    right = nearest_separated.distance_on_a_line

    def wrong(*given: Any, **options: Any) -> float:
        return right(*given, **options) * (factor if options.get("measure", "hausdorff") == measure else 1)

    monkeypatch.setattr(nearest_separated, "distance_on_a_line", wrong)
    assert failed in {row.id for row in theorems.inequality_checks(few) if not row.holds}


Sizes = dict[tuple[int, int, int], point_sets.Scale]


@pytest.fixture(scope="module")
def right_sizes() -> Sizes:
    """Both sides of equation (17) for all batches and dimensions of the table."""
    cells = [(n, int(batch.split("x")[1]), d) for batch, n in point_sets.BATCHES.items() for d in collapse.DIMENSIONS]
    return {cell: point_sets.scale(*cell) for cell in cells}


TABLE = {f"scale-{batch}" for batch in point_sets.BATCHES}
VACUOUS = TABLE | {"equation-17-vacuous"}


@pytest.mark.parametrize(
    ("wrong", "failed"),
    [
        (lambda size, d: size, set()),
        (lambda size, d: replace(size, diameter=1.005 * size.diameter), TABLE),
        (lambda size, d: replace(size, mean_loss=size.mean_loss + 0.02), TABLE),
        (lambda size, d: replace(size, loss=size.mean_loss), VACUOUS),
        (lambda size, d: replace(size, diameter=size.mean_distance), VACUOUS),
        (lambda size, d: replace(size, diameter=4 * size.diameter / d**0.5), VACUOUS | {"scales"}),
        (lambda size, d: replace(size, loss=0.1 * size.diameter), VACUOUS | {"scales", "scales-with-batch"}),
        (lambda size, d: replace(size, mean_distance=size.diameter), {"scales-with-batch"}),
    ],
)
def test_wrong_sizes_fail_the_table(
    right_sizes: Sizes,
    monkeypatch: pytest.MonkeyPatch,
    wrong: Callable[[point_sets.Scale, int], point_sets.Scale],
    failed: set[str],
) -> None:
    monkeypatch.setattr(collapse, "scale", lambda n, k, d: wrong(right_sizes[n, k, d], d))
    assert {row.id.removeprefix("xu2024-") for row in collapse._scale_checks() if not row.holds} == failed


def test_a_bound_of_one_loss_fails_the_table(right_sizes: Sizes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collapse, "scale", lambda *cell: right_sizes[cell])
    monkeypatch.setattr(isometry, "diameter_bound", lambda diameter, loss: diameter - loss)
    assert {row.id.removeprefix("xu2024-") for row in collapse._scale_checks() if not row.holds} == VACUOUS
