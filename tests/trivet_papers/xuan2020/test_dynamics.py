"""The triplet scatter diagram, one simulated step on it, and the checks of its paper."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from tests import reference

import trivet
from trivet_papers.xuan2020 import dynamics
from trivet_papers.xuan2020.dynamics import (
    DIRECTIONS,
    directions,
    entangle,
    first_order_rates,
    loss_slopes,
    loss_value,
    movement,
    movement_areas,
    positive_negative_similarity,
    regions,
    simulated_step,
    triplet_coordinates,
    triplet_scatter,
    triplet_vectors,
    vector_field,
)

LOSSES = ["first-order", "vanilla", "second-order"]

LONG = {"1st": "first-order", "v": "vanilla", "2nd": "second-order"}

# Section 6 of the specification of extreme triplets, as printed there.
# S_ap S_an gamma loss | L beta |fa'|^2 |fp'|^2 |fn'|^2 dS_ap dS_an
STEPS = """
0.5 0.5 0.5 1st 0.6931471806 0.0500000000 1.0018750000 1.0525000000 0.9525000000 0.0538645735 -0.0585415379
0.5 0.5 0.5 2nd 0.5759394199 0.0437823499 1.0003594177 1.0223703985 0.9785880486 0.0241745583 -0.0250727150
0.5 0.5 0.5 v 0.2000000000 0.2000000000 1.0300000000 0.8400000000 1.2400000000 0.2095543717 -0.2256959380
0.3 0.95 0.5 1st 1.0700553357 0.0657010463 0.9194756345 1.0437372552 0.8794846396 0.1084021956 -0.0048721865
0.3 0.95 0.5 2nd 0.7960787325 0.0548905638 0.9264332522 1.0245303940 0.9036417414 0.0620827075 -0.0053061083
0.3 0.95 0.5 v 1.5000000000 0.2000000000 0.7852853032 0.7760000000 1.0240000000 0.3463642856 -0.0242584267
0.7 -0.3 -0.4 1st 0.3132616875 0.0268941421 1.0559328529 1.0383750939 1.0168597802 0.0329533024 -0.0546455091
0.7 -0.3 -0.4 2nd 0.5090141341 0.0398912121 1.0097221215 1.0168975269 0.9929627996 0.0087884194 0.0185856873
0.7 -0.3 -0.4 v -1.8000000000 0.2000000000 1.5185999633 0.9040000000 1.6240000000 0.1852309092 -0.3086284806
"""

# q loss S_ap S_an | dS_ap dS_an at p = 0.4, dS_ap dS_an at p = 0.8
ENTANGLED = """
sqrt 1st .9 .9 0.0076905645 -0.0106024254 0.0021602677 -0.0058429154
sqrt v .9 .9 0.0232437939 -0.0489258601 -0.0004530183 -0.0320272419
sqrt 2nd .9 .9 -0.0086881019 -0.0180282644 -0.0148510122 -0.0189373334
sqrt 2nd .3 .95 0.0609496328 0.0079511302 0.0598165581 0.0212083687
sqrt 2nd .6 .8 0.0082168809 -0.0199495166 0.0015448394 -0.0158233774
prod 1st .6 .8 0.0489516593 -0.0183030265 0.0434293498 -0.0078440245
prod 2nd .6 .8 0.0102663964 -0.0212169827 0.0056438705 -0.0183583096
"""

# Section 5.1: gamma loss alpha | % with dS_ap < 0, % with dS_an > 0
SIGNS = """
0.2 1st 0.1 0.787 0.000
0.2 v 0.1 2.283 0.000
0.2 2nd 0.1 8.592 4.495
0.2 2nd 1e-4 8.098 4.657
0.5 2nd 0.1 15.390 11.875
0.8 1st 0.1 5.812 4.978
0.8 1st 1e-4 5.527 5.527
0.8 2nd 1e-4 20.927 21.790
"""

# q loss gamma p | % top-right, bottom-right, bottom-left, top-left, top, box, and the mean at the right
AREAS = """
sqrt 1st .2 .4 7.53 82.58 9.89 0 74.3 16.4 -0.04582
sqrt 1st .5 .8 17.08 62.74 20.18 0 92.3 33.8 -0.04290
sqrt 1st .8 .8 20.35 56.81 22.84 0 93.3 36.6 -0.04143
sqrt v .5 .8 16.23 62.63 21.14 0 90.7 29.2 -0.22223
sqrt 2nd .2 .8 19.51 53.40 27.09 0 68.2 3.4 -0.02172
sqrt 2nd .5 .8 30.78 39.71 29.52 0 68.4 2.6 -0.02229
prod 1st .5 .8 11.48 74.69 13.83 0 86.2 30.9 nan
prod 2nd .5 .8 18.63 56.03 25.34 0 58.0 2.5 nan
"""

# Section 6.1: what `reference.EXTREME_TRIPLETS` is without shared vectors, and losses over it: first order mean and
# sum, means of the second-order and of the hinged vanilla loss.
DISJOINT = {
    "EPHN": [(0, 2, 7), (3, 4, 6)],
    "EPSHN": [(0, 2, 7), (3, 4, 6)],
    "HPHN": [(0, 1, 7), (3, 5, 2)],
    "EPEN": [(0, 2, 4), (3, 5, 1)],
}

MEANS = {
    "EPHN": (0.6494009437, 5.1952075493, 0.6058685711, 0.1878289073),
    "EPSHN": (0.5917596354, 4.7340770836, 0.5659432355, 0.0114356820),
    "HPHN": (0.6767914457, 5.4143315660, 0.6091892854, 0.2177675777),
    "EPEN": (0.3934353761, 3.1474830088, 0.4927647563, 0.0),
}

NAMED: dict[str, Any] = {
    "EPHN": ("easy", "hard"),
    "EPSHN": ("easy", "semihard-hardest"),
    "HPHN": ("hard", "hard"),
    "EPEN": ("easy", "easy"),
}


def table(text: str) -> list[list[str]]:
    return [line.split() for line in text.strip().splitlines()]


def dot(x: Sequence[float], y: Sequence[float]) -> float:
    return math.fsum(a * b for a, b in zip(x, y, strict=True))


def add(*parts: tuple[float, Sequence[float]]) -> list[float]:
    return [math.fsum(factor * row[i] for factor, row in parts) for i in range(len(parts[0][1]))]


def plain_step(s_ap: float, s_an: float, gamma: float, loss: str, rate: float) -> tuple[float, float]:
    """One step of gradient descent on three vectors, then the changes of S_ap and S_an."""
    a, p, n = reference.triplet_of(s_ap, s_an, gamma)
    if loss == "vanilla":  # of |a - p|^2 - |a - n|^2
        slopes = (add((2, n), (-2, p)), add((2, p), (-2, a)), add((2, a), (-2, n)))
    elif loss == "first-order":  # of log(1 + exp(a.n - a.p))
        s = 1 / (1 + math.exp(s_ap - s_an))
        slopes = (add((s, n), (-s, p)), add((-s, a)), add((s, a)))
    else:  # of log(1 + exp((a.n)^2 / 2 - a.p + (a.p)^2 / 2))
        s = 1 / (1 + math.exp(s_ap - s_ap**2 / 2 - s_an**2 / 2))
        slopes = (add((s * s_an, n), (-s * (1 - s_ap), p)), add((-s * (1 - s_ap), a)), add((s * s_an, a)))
    a, p, n = (reference.unit(add((1, row), (-rate, slope))) for row, slope in zip((a, p, n), slopes, strict=True))
    return dot(a, p) - s_ap, dot(a, n) - s_an


def random_points(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1, 1, (count, 3))


@pytest.mark.parametrize("row", table(STEPS), ids=lambda row: " ".join(row[:4]))
def test_reference_steps(row: list[str]) -> None:
    s_ap, s_an, gamma = map(float, row[:3])
    loss = LONG[row[3]]
    value, beta, anchor, positive, negative, change_ap, change_an = map(float, row[4:])
    moved = simulated_step(s_ap, s_an, gamma, loss=loss, learning_rate=0.1)
    found = (moved.beta, moved.anchor_squared, moved.positive_squared, moved.negative_squared)
    assert [float(x) for x in found] == pytest.approx([beta, anchor, positive, negative], abs=1e-10)
    assert [float(moved.change_ap), float(moved.change_an)] == pytest.approx([change_ap, change_an], abs=1e-10)
    assert float(loss_value(s_ap, s_an, loss=loss, margin=0.2)) == pytest.approx(value, abs=1e-10)


@pytest.mark.parametrize("row", table(ENTANGLED), ids=lambda row: " ".join(row[:4]))
def test_reference_entanglement(row: list[str]) -> None:
    s_ap, s_an, *expected = map(float, row[2:])
    moved = simulated_step(s_ap, s_an, 0.5, loss=LONG[row[1]], learning_rate=0.1)
    for strength, wanted in ((0.4, expected[:2]), (0.8, expected[2:])):
        found = entangle(s_ap, s_an, moved.change_ap, moved.change_an, strength=strength, factor=row[0])
        assert [float(x) for x in found] == pytest.approx(wanted, abs=1e-10)


@pytest.mark.parametrize("row", table(SIGNS), ids=lambda row: " ".join(row[:3]))
def test_reference_sign_areas(row: list[str]) -> None:
    gamma, rate, leaves, nears = (float(row[i]) for i in (0, 2, 3, 4))
    areas = movement_areas(vector_field(loss=LONG[row[1]], gamma=gamma, learning_rate=rate, size=200))
    assert 100 * areas.positive_leaves == pytest.approx(leaves, abs=0.1)
    assert 100 * areas.negative_nears == pytest.approx(nears, abs=0.1)


@pytest.mark.parametrize("row", table(AREAS), ids=lambda row: " ".join(row[:4]))
def test_reference_movement_areas(row: list[str]) -> None:
    gamma, strength, *shares, right = map(float, row[2:])
    field = vector_field(loss=LONG[row[1]], gamma=gamma, strength=strength, factor=row[0], size=200)
    areas = movement_areas(field)
    ways = (areas.top_right, areas.bottom_right, areas.bottom_left, areas.top_left)
    found = [100 * share for share in (*ways, areas.top, areas.box)]
    assert found == pytest.approx(shares, abs=0.1)
    assert sum(ways) == pytest.approx(1, abs=1e-12)
    if not math.isnan(right):
        assert areas.right == pytest.approx(right, abs=1e-5)


@pytest.mark.parametrize(
    ("s_ap", "s_an", "expected"),
    [
        (0.9, 0.2, (-0.0383433495, 0.0766866991)),
        (0.3, 0.95, (-0.3842339464, 0.5214603559)),
        (0.7, -0.3, (-0.1196736363, -0.1196736363)),
    ],
)
def test_reference_slopes(s_ap: float, s_an: float, expected: tuple[float, float]) -> None:
    assert [float(x) for x in loss_slopes(s_ap, s_an, loss="second-order")] == pytest.approx(expected, abs=1e-10)


def test_top_left_on_the_whole_diagram() -> None:
    axis = np.linspace(-1, 1, 201)
    for gamma, count in ((-0.5, 1584), (0.5, 99)):
        moved = simulated_step(axis[None, :], axis[:, None], gamma, loss="second-order", learning_rate=0.1)
        assert int((directions(moved.change_ap, moved.change_an) == 3).sum()) == count


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("rate", [0.01, 0.1, 0.4, 1.0])
def test_a_step_equals_the_definition(loss: Any, rate: float) -> None:
    points = random_points(50)
    moved = simulated_step(*points.T, loss=loss, learning_rate=rate)
    expected = [plain_step(*point, loss, rate) for point in points.tolist()]
    found = np.stack([moved.change_ap, moved.change_an], axis=1)
    assert found == pytest.approx(np.array(expected), abs=1e-12)


@pytest.mark.parametrize("loss", LOSSES)
def test_slopes_are_those_of_the_value(loss: Any) -> None:
    points, h = random_points(50) * 0.99, 1e-6
    for s_ap, s_an, _ in points.tolist():
        by_ap = loss_value(s_ap + h, s_an, loss=loss) - loss_value(s_ap - h, s_an, loss=loss)
        by_an = loss_value(s_ap, s_an + h, loss=loss) - loss_value(s_ap, s_an - h, loss=loss)
        slopes = [float(x) for x in loss_slopes(s_ap, s_an, loss=loss)]
        assert slopes == pytest.approx([float(by_ap) / (2 * h), float(by_an) / (2 * h)], abs=1e-8)


def test_entanglement_equals_the_definition() -> None:
    for s_ap, s_an, change in random_points(50).tolist():
        product = max(0.0, s_ap * s_an)
        for factor, q in (("sqrt", math.sqrt(product)), ("prod", product)):
            found = entangle(s_ap, s_an, change, 0.25, strength=0.6, factor=factor)
            expected = [change + 0.6 * q * 0.25, 0.25 + 0.6 * q * change]
            assert [float(x) for x in found] == pytest.approx(expected, abs=1e-15)


def test_a_field_is_one_step_at_each_midpoint() -> None:
    field = vector_field(loss="second-order", gamma=-0.3, strength=0.4, learning_rate=0.2, size=5, low=-1, high=0.5)
    assert field.s_ap.tolist() == field.s_an.tolist() == pytest.approx([-0.85, -0.55, -0.25, 0.05, 0.35])
    for row, s_an in enumerate(field.s_an.tolist()):
        for column, s_ap in enumerate(field.s_ap.tolist()):
            of_ap, of_an = plain_step(s_ap, s_an, -0.3, "second-order", 0.2)
            q = math.sqrt(max(0.0, s_ap * s_an))
            expected = (of_ap + 0.4 * q * of_an, of_an + 0.4 * q * of_ap)
            found = (field.change_ap[row, column], field.change_an[row, column])
            assert found == pytest.approx(expected, abs=1e-14)


def test_areas_leave_out_cells_without_a_direction() -> None:
    axis = np.array([0.25, 0.95])
    nowhere = np.array([[1.0, math.nan], [-1.0, 0.5]])
    areas = movement_areas(dynamics.VectorField(axis, axis, nowhere, np.array([[1.0, 1.0], [2.0, -4.0]])))
    assert (areas.top_right, areas.bottom_right, areas.bottom_left, areas.top_left) == (1 / 3, 1 / 3, 0, 1 / 3)
    assert (areas.positive_leaves, areas.negative_nears) == (1 / 3, 2 / 3)
    assert (areas.top, areas.box, areas.right) == (0.5, 0, -4)
    low = movement_areas(vector_field(loss="vanilla", size=4, high=0.5))
    assert all(math.isnan(x) for x in (low.top, low.box, low.right))


@pytest.mark.parametrize("loss", LOSSES)
def test_corners_and_vectors_that_vanish(loss: Any) -> None:
    for s_ap, s_an in ((0.0, 0.0), (0.0, 1.0), (1.0, 0.0), (1.0, 1.0), (-1.0, 1.0), (1.0, -1.0)):
        moved = simulated_step(s_ap, s_an, math.nan if s_ap or s_an else 0.5, loss=loss)
        assert np.isfinite([moved.change_ap, moved.change_an]).all()
    # The positive is the opposite of the anchor and a step of half the way takes it to 0, with the anchor for some.
    half = {"first-order": 1 + math.exp(-1), "vanilla": 0.25, "second-order": (1 + math.exp(-1.5)) / 2}[loss]
    lost = simulated_step(-1.0, 0.0, 0.0, loss=loss, learning_rate=half)
    assert float(lost.positive_squared) == pytest.approx(0, abs=1e-15)
    assert math.isnan(lost.change_ap)
    assert math.isfinite(lost.change_an) or float(lost.anchor_squared) < 1e-14


def test_a_norm_of_nothing_but_rounding_is_zero() -> None:
    # f_n - f_p lies along the anchor and is 2 t long: a step of beta = 1 / (2 t) takes the anchor to 0.
    for t in np.linspace(0.2, 0.95, 40).tolist():
        moved = simulated_step(-t, t, 1.0, loss="first-order", learning_rate=(1 + math.exp(-2 * t)) / (2 * t))
        assert float(moved.anchor_squared) == pytest.approx(0, abs=1e-14)
        assert math.isnan(moved.change_ap)
        assert math.isnan(moved.change_an)


def test_vectors_have_the_similarities() -> None:
    points = np.concatenate([random_points(20), [[1, 0.5, 1], [-1, 1, -1], [0, -1, 0.3]]])
    vectors = triplet_vectors(*points.T, embedding_dim=4)
    assert vectors.shape == (23, 3, 4)
    pn = positive_negative_similarity(*points.T)
    for (s_ap, s_an, gamma), (a, p, n), s_pn in zip(points.tolist(), vectors.tolist(), pn.tolist(), strict=True):
        expected = [1, 1, 1, s_ap, s_an, s_pn]
        assert [dot(a, a), dot(p, p), dot(n, n), dot(a, p), dot(a, n), dot(p, n)] == pytest.approx(expected, abs=1e-14)
        plain = reference.triplet_of(s_ap, s_an, gamma)
        assert [row[:3] for row in (a, p, n)] == [pytest.approx(row, abs=1e-14) for row in plain]


def test_placing_equals_the_definition() -> None:
    rows = np.random.default_rng(1).normal(size=(12, 5))
    rows[4] = 3 * rows[0]  # a positive on its anchor
    triplets = np.array([[0, 1, 2], [3, 5, 6], [0, 4, 7], [8, 9, 10], [11, 0, 3]])
    placed = triplet_coordinates(rows, triplets)
    for index, s_ap, s_an, gamma in zip(triplets.tolist(), placed.s_ap, placed.s_an, placed.gamma, strict=True):
        a, p, n = (reference.unit(rows[i].tolist()) for i in index)
        assert (s_ap, s_an) == pytest.approx((dot(a, p), dot(a, n)), abs=1e-15)
        if index[1] == 4:
            assert math.isnan(gamma)
            continue
        beside_p, beside_n = (reference.unit(add((1, row), (-dot(a, row), a))) for row in (p, n))
        assert gamma == pytest.approx(dot(beside_p, beside_n), abs=1e-13)
    assert placed.triplets.tolist() == triplets.tolist()
    mined = trivet.MinedTriplets(*torch.from_numpy(triplets).unbind(dim=1))
    again = triplet_coordinates(torch.from_numpy(rows), mined)
    assert np.array_equal(again.gamma, placed.gamma, equal_nan=True)
    assert again.s_ap.tolist() == placed.s_ap.tolist()
    none = triplet_coordinates(rows, np.zeros((0, 3), dtype=np.int64))
    assert none.s_ap.shape == none.gamma.shape == (0,)


def test_placing_near_duplicates_and_zeros() -> None:
    tiny = 1e-9
    rows = np.array([[1.0, 0.0, 0.0], [1.0, tiny, 0.0], [1.0, 0.6 * tiny, 0.8 * tiny], [0.0, 0.0, 0.0]])
    placed = triplet_coordinates(rows, np.array([[0, 1, 2], [0, 1, 3]]))
    assert placed.gamma[0] == pytest.approx(0.6, abs=1e-6)
    assert 0 <= 1 - placed.s_ap[0] <= 1e-15
    assert placed.s_an[1] == 0
    assert math.isnan(placed.gamma[1])


def extreme_rows() -> torch.Tensor:
    rows = torch.tensor(reference.EXTREME_ROWS, dtype=torch.float64)
    rows[2, 2] += 1e-11  # rows 2 and 6 are equally similar to row 7, and rounding must not decide which is nearer
    return rows


@pytest.mark.parametrize("miner", list(NAMED))
def test_scatter_of_the_reference_batch(miner: str) -> None:
    positives, negatives = NAMED[miner]
    labels = torch.tensor(reference.EXTREME_LABELS)
    placed = triplet_scatter(extreme_rows(), labels, positives=positives, negatives=negatives)
    assert [tuple(row) for row in placed.triplets.tolist()] == reference.EXTREME_TRIPLETS[miner]
    pairs = [reference.extreme_similarities(triplet) for triplet in reference.EXTREME_TRIPLETS[miner]]
    assert np.stack([placed.s_ap, placed.s_an], axis=1) == pytest.approx(np.array(pairs), abs=1e-10)
    first, total, second, hinged = MEANS[miner]
    found = {loss: loss_value(placed.s_ap, placed.s_an, loss=loss, margin=0.2) for loss in LOSSES}
    assert found["first-order"].mean() == pytest.approx(first, abs=1e-10)
    assert found["first-order"].sum() == pytest.approx(total, abs=1e-9)
    assert found["second-order"].mean() == pytest.approx(second, abs=1e-10)
    assert np.maximum(found["vanilla"], 0).mean() == pytest.approx(hinged, abs=1e-10)
    once = triplet_scatter(extreme_rows(), labels, positives=positives, negatives=negatives, disjoint=True)
    assert [tuple(row) for row in once.triplets.tolist()] == DISJOINT[miner]


def test_regions_equal_the_definition() -> None:
    s_ap = np.array([0.95, 0.5, 0.5, 0.5, 0.2, 0.85, 0.95])
    s_an = np.array([0.1, 0.45, 0.5, 0.1, 0.99, 0.8, 0.93])
    found = regions(s_ap, s_an)
    assert found.correct.tolist() == [True, True, False, True, False, True, True]
    assert found.easy_positive.tolist() == [True, False, False, False, False, False, True]
    assert found.hard_negative.tolist() == [False, False, False, False, True, False, True]
    assert found.semi_hard.tolist() == [False, True, False, False, False, True, True]
    assert regions(s_ap, s_an, width=0.5).semi_hard.tolist() == [False, True, False, True, False, True, True]


def test_directions() -> None:
    up, down, none = 1e-3, -1e-3, 1e-13
    table = [
        (up, up, "top-right"), (up, down, "bottom-right"), (up, none, "bottom-right"), (down, down, "bottom-left"),
        (none, none, "bottom-left"), (0, 0, "bottom-left"), (down, up, "top-left"), (none, up, "top-left"),
    ]  # fmt: skip
    found = directions([row[0] for row in table], [row[1] for row in table])
    assert [DIRECTIONS[number] for number in found] == [row[2] for row in table]
    assert directions(none, none, tolerance=0) == 0
    assert directions([math.nan, 1], [1, math.nan]).tolist() == [-1, -1]


def test_movement_of_given_rows() -> None:
    def at(*degrees: float) -> np.ndarray:
        return np.array([[math.cos(math.radians(x)), math.sin(math.radians(x))] for x in degrees])

    before, after = at(0, 40, 90, 50, 120), at(0, 30, 80, 50, 130) * 7
    triplets = np.array([[0, 1, 2], [0, 1, 4], [0, 4, 3], [0, 4, 2], [1, 0, 0]])
    moved = movement(before, after, triplets)
    assert [DIRECTIONS[way] for way in moved.direction] == [
        "top-right", "bottom-right", "bottom-left", "top-left", "top-right",
    ]  # fmt: skip
    assert moved.before[0] == pytest.approx([math.cos(math.radians(40)), 0], abs=1e-15)
    assert moved.after[0] == pytest.approx([math.cos(math.radians(30)), math.cos(math.radians(80))], abs=1e-15)
    assert moved.shares == {"top-right": 0.4, "bottom-right": 0.2, "bottom-left": 0.2, "top-left": 0.2}
    assert all(math.isnan(x) for x in movement(before, after, triplets[:0]).shares.values())
    assert movement(before, before * 3, triplets).shares["bottom-left"] == 1


BAD: list[tuple[Callable[[], object], str]] = [
    (lambda: simulated_step(1.5, 0.0, 0.0, loss="vanilla"), r"s_ap must lie in \[-1, 1\]: got 1.5 \(1 of 1 values\)"),
    (lambda: simulated_step(0.0, math.nan, 0.0, loss="vanilla"), r"s_an must lie in \[-1, 1\]: got nan"),
    (lambda: simulated_step(0.0, 0.0, math.nan, loss="vanilla"), r"gamma must lie in \[-1, 1\]: got nan"),
    (lambda: simulated_step(0.0, 0.0, 0.0, loss="vanilla", learning_rate=0), "learning_rate must be a finite number"),
    (lambda: loss_slopes(0.0, 2.0, loss="vanilla"), "s_an must lie"),
    (lambda: first_order_rates(0.0, 0.0, 1.1, loss="vanilla"), "gamma must lie"),
    (lambda: entangle(0.0, 0.0, 0.0, 0.0, strength=1.1), r"strength must lie in \[0, 1\]: got 1.1"),
    (lambda: entangle(0.0, 0.0, 0.0, 0.0, strength=1, factor="root"), "factor = 'root'"),
    (lambda: vector_field(loss="vanilla", size=0), "size must be a whole number of at least 1"),
    (lambda: vector_field(loss="vanilla", low=0.5, high=0.5), "-1 <= low < high <= 1: got 0.5 and 0.5"),
    (lambda: triplet_coordinates(np.full((3, 2), np.nan), np.array([[0, 1, 2]])), "embeddings must be finite"),
]


@pytest.mark.parametrize(("call", "message"), BAD, ids=[message for _, message in BAD])
def test_errors(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
