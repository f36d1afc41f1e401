"""Distances of all pairs, against plain Python over the pairs."""

from __future__ import annotations

import itertools
import math
import statistics

import numpy as np
import pytest
import torch

from trivet.collapse import distances as module
from trivet.collapse.distances import Extent, extent, pair_distances, root_mean_square_distance


def by_definition(points: np.ndarray) -> Extent:
    distances = [math.dist(a, b) for a, b in itertools.combinations(points.tolist(), 2)]
    return Extent(
        diameter=max(distances),
        mean=sum(distances) / len(distances),
        median=statistics.median(distances),
        root_mean_square=math.sqrt(sum(d * d for d in distances) / len(distances)),
    )


def close(found: Extent, expected: Extent, tolerance: float) -> None:
    for name in ("diameter", "mean", "median", "root_mean_square"):
        assert getattr(found, name) == pytest.approx(getattr(expected, name), rel=tolerance), name


Pass = module._Pass
RANDOM = np.random.default_rng(0)
SETS = {
    "normal": RANDOM.standard_normal((301, 5)),
    "two points": np.array([[0.0, 0.0]] * 30 + [[1.0, 1.0]] * 30),
    "two rows": RANDOM.standard_normal((2, 3)),
    "grid": np.array(list(itertools.product(range(5), repeat=3)), dtype=np.float64),
    "one outlier": np.concatenate([RANDOM.standard_normal((100, 2)), [[1e6, 0.0]]]),
    "far from the origin": 1e6 + RANDOM.standard_normal((80, 4)),
    "tiny": 1e-200 * RANDOM.standard_normal((50, 4)),
    "one dimension": RANDOM.standard_normal((64, 1)),
}


@pytest.mark.parametrize("points", SETS.values(), ids=SETS.keys())
def test_it_is_that_of_all_pairs(points: np.ndarray) -> None:
    close(extent(points), by_definition(points), 1e-9)


@pytest.mark.parametrize("few", [1, 10**9], ids=["some by differences", "all by differences"])
@pytest.mark.parametrize("points", SETS.values(), ids=SETS.keys())
def test_distances_of_pairs_stand_in_the_order_of_the_rows(
    points: np.ndarray, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BLOCK", (7, 50))
    monkeypatch.setattr(module, "FEW", few)
    expected = [math.dist(a, b) for a, b in itertools.combinations(points.tolist(), 2)]
    assert pair_distances(points).tolist() == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("points", SETS.values(), ids=SETS.keys())
def test_it_is_that_of_all_pairs_block_by_block(points: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STORED", 1)
    monkeypatch.setattr(module, "BLOCK", (7, 50))
    monkeypatch.setattr(module, "SAMPLE", 2**14)
    # Of the median 1e-4 is promised.
    close(extent(points), by_definition(points), 1e-4)


@pytest.mark.parametrize("name", ["normal", "grid", "one outlier", "two points"])
def test_float32_is_within_what_is_promised(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STORED", 1)
    monkeypatch.setattr(module, "DOUBLE_PRECISION", 1)
    close(extent(SETS[name]), by_definition(SETS[name]), 1e-4)


def test_a_median_far_below_the_rest_keeps_its_digits_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    points = np.concatenate([1e-5 * RANDOM.standard_normal((90, 3)), RANDOM.standard_normal((10, 3))])
    monkeypatch.setattr(module, "STORED", 1)
    monkeypatch.setattr(module, "DOUBLE_PRECISION", 1)
    close(extent(points), by_definition(points), 1e-4)


@pytest.mark.parametrize("guess", [(-1.0, 99.0), (-1e-3, 1e-3), (50.0, 60.0), (0.9, 1.0), (1.0, 1.1)])
def test_a_guess_that_misses_the_median_does_not_matter(
    guess: tuple[float, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "STORED", 1)
    monkeypatch.setattr(module, "_guess", lambda points: guess)
    for name in ("normal", "two points", "grid"):
        close(extent(SETS[name]), by_definition(SETS[name]), 1e-4)


def test_one_pass_over_the_pairs_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STORED", 1)
    passes = []
    monkeypatch.setattr(module, "_Pass", lambda *args: passes.append(Pass(*args)) or passes[-1])
    for points in (SETS["normal"], SETS["one dimension"], SETS["two points"]):
        passes.clear()
        extent(points)
        assert len(passes) == 1


@pytest.mark.parametrize("sparse", [0, 10**9], ids=["what is in the bins", "everything"])
def test_pairs_in_bins_are_the_same_whichever_are_offered(sparse: int, monkeypatch: pytest.MonkeyPatch) -> None:
    points = torch.from_numpy(SETS["normal"]).float()
    distances = np.array([math.dist(a, b) for a, b in itertools.combinations(points.tolist(), 2)])
    monkeypatch.setattr(module, "SPARSE", sparse)
    found = Pass(points, 2.0, 3.0)
    assert found.bins.numpy() == pytest.approx(np.histogram(distances, module.BINS, (2.0, 3.0))[0], abs=1)
    assert found.below == (distances <= 2).sum()
    assert found.bins.sum() == ((distances > 2) & (distances <= 3)).sum()


def test_equal_rows_have_no_distance_at_all() -> None:
    assert extent(np.full((40, 3), 0.1)) == Extent(0.0, 0.0, 0.0, 0.0)
    assert root_mean_square_distance(np.full((40, 3), 0.1)) == 0


@pytest.mark.parametrize("measure", [extent, root_mean_square_distance])
def test_one_item_has_no_pair(measure: object) -> None:
    assert callable(measure)
    with pytest.raises(ValueError, match="at least two items: got 1"):
        measure(np.zeros((1, 3)))
