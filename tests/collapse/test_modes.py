from __future__ import annotations

import math
from collections.abc import Callable
from statistics import fmean

import numpy as np
import pytest
import torch
from scipy.stats import binom

from trivet.collapse import class_modes, count_modes, mode_sharing

TAIL = 1e-4  # chance that a correct method fails a test of shares of trials


def least_share(values: list[float], part: int) -> tuple[float, float]:
    """The least share of variance inside two parts of at least `part` values, and the valley between them."""
    ordered = sorted(values)
    whole = sum((v - fmean(values)) ** 2 for v in values)

    def inside(cut: int) -> float:
        return sum((v - fmean(side)) ** 2 for side in (ordered[:cut], ordered[cut:]) for v in side) / whole

    best = min(range(part, len(values) - part + 1), key=inside)
    parts = ordered[:best], ordered[best:]
    reach = (fmean(parts[1]) - fmean(parts[0])) / 6

    def around(centre: float) -> int:
        return sum(abs(v - centre) <= reach for v in values)

    cut = (ordered[best - 1] + ordered[best]) / 2
    return inside(best), around(cut) / min(max(around(v) for v in side) for side in parts)


def gaussian(n: int, d: int, seed: int, *, spectrum: str = "equal") -> np.ndarray:
    deviations = np.ones(d) if spectrum == "equal" else 1 / np.arange(1, d + 1)
    return np.random.default_rng(seed).standard_normal((n, d)) * deviations


def blobs(sizes: list[int], d: int = 3, apart: float = 8.0, seed: int = 0) -> np.ndarray:
    return gaussian(sum(sizes), d, seed) + apart * np.repeat(np.arange(len(sizes)), sizes)[:, None] * np.eye(d)[0]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("apart", [0.0, 3.0, 9.0])
def test_the_evidence_is_the_least_share_its_null_and_the_valley(seed: int, apart: float) -> None:
    n = 40
    values = gaussian(n, 1, seed)
    values[: n // 3] += apart
    share, valley = least_share(values[:, 0].tolist(), part=5)
    found = count_modes(values)
    assert found.split.share == pytest.approx(share, rel=1e-9)
    assert found.split.valley == pytest.approx(valley)
    assert found.split.expected == pytest.approx(1 - 2 / math.pi - 1 / n)
    deviation = math.sqrt((8 / math.pi - 24 / math.pi**2) / n) * (1 - 2.7 / n)
    z = (share - found.split.expected) / deviation
    assert found.split.p_value == pytest.approx(0.5 * math.erfc(-z / math.sqrt(2)))
    assert found.split.threshold == pytest.approx(
        found.split.expected - 1.6953977 * deviation
    )  # the normal quantile of 0.045
    assert (found.reason == "split") == (share <= found.split.threshold and valley <= found.split.valley_threshold)


@pytest.mark.parametrize("n", [25, 100])
def test_shares_of_gaussians_have_the_stated_mean_and_deviation(n: int) -> None:
    trials = 400
    shares = [
        count_modes(points[:, None]).split.share for points in np.random.default_rng(n).standard_normal((trials, n))
    ]
    deviation = math.sqrt((8 / math.pi - 24 / math.pi**2) / n) * (1 - 2.7 / n)
    assert fmean(shares) == pytest.approx(1 - 2 / math.pi - 1 / n, abs=5 * deviation / math.sqrt(trials))
    assert np.std(shares) == pytest.approx(deviation, rel=5 / math.sqrt(2 * trials))


@pytest.mark.parametrize(
    ("n", "d", "spectrum"), [(40, 2, "equal"), (40, 32, "1/k"), (100, 8, "equal"), (100, 32, "equal")]
)
def test_one_gaussian_is_one_mode_and_two_are_two(n: int, d: int, spectrum: str) -> None:
    trials = 80
    one = [count_modes(gaussian(n, d, seed, spectrum=spectrum)).count for seed in range(trials)]
    assert sum(count == 1 for count in one) >= binom.ppf(TAIL, trials, 0.95)
    two = []
    for seed in range(trials):
        points = gaussian(n, d, 10_000 + seed, spectrum=spectrum)
        points[: n // 2, 0] += 4
        two.append(count_modes(points).count)
    assert sum(count == 2 for count in two) >= binom.ppf(TAIL, trials, 0.9)


def test_separate_blobs_are_found_the_largest_first() -> None:
    sizes = [30, 50, 40]
    found = count_modes(blobs(sizes, apart=20))
    assert (found.count, found.reason) == (3, "split")
    assert found.assignment.tolist() == [2] * 30 + [0] * 50 + [1] * 40
    assert found.split.p_value < 0.01  # three on a line look less like two than two do
    assert found.split.valley <= found.split.valley_threshold


def test_scale_rotation_shift_and_order_change_nothing() -> None:
    points = blobs([40, 60], d=4, apart=5, seed=1)
    points[:40] *= [1, 2, 1, 0.5]
    found = count_modes(points)
    assert found.count == 2
    rotation = np.linalg.qr(gaussian(4, 4, 2))[0]
    order = np.random.default_rng(3).permutation(100)
    for scale in (1e-30, 1e6):
        moved = count_modes((scale * (points @ rotation + 7))[order])
        assert moved.assignment.tolist() == found.assignment[order].tolist()
        assert moved.split.p_value == pytest.approx(found.split.p_value, rel=1e-6)
        assert moved.split.share == pytest.approx(found.split.share, rel=1e-9)


def test_float32_and_torch_give_the_same() -> None:
    points = blobs([40, 60], seed=4)
    found = count_modes(points)
    for same in (points.astype(np.float32), torch.from_numpy(points), torch.from_numpy(points).float()):
        assert count_modes(same).assignment.tolist() == found.assignment.tolist()


def test_a_flat_shape_has_no_valley() -> None:
    found = count_modes(np.linspace(0, 1, 400)[:, None])
    assert (found.count, found.reason) == (1, "no valley")
    assert found.split.share < found.split.threshold
    assert found.split.valley == pytest.approx(1, abs=0.05)


def test_an_axis_with_a_valley_goes_before_a_flatter_one() -> None:
    blob = np.random.default_rng(5).permutation(np.repeat(np.arange(3), 200))
    points = np.stack([np.linspace(-90, 90, 600), 20 * blob + gaussian(600, 1, 5)[:, 0]], axis=1)
    flat, found = count_modes(points[:, :1]), count_modes(points)
    assert flat.reason == "no valley"
    assert flat.split.share < found.split.share
    assert found.count == 3
    assert len(np.unique(3 * found.assignment + blob)) == 3


@pytest.mark.parametrize(
    ("points", "reason"),
    [
        (np.zeros((1, 2)), "constant"),
        (np.full((50, 3), 0.1), "constant"),
        (np.full((5, 3), 0.1), "constant"),
        (blobs([9, 10]), "too few"),
        ((1 + 1e-8 * gaussian(60, 3, 0)).astype(np.float32), "constant"),
        (np.float32(1) + np.float32(1e-7) * np.arange(60, dtype=np.float32)[:, None].round(-1) / 10, "constant"),
    ],
    ids=["one point", "equal points", "few equal points", "nineteen points", "equal in float32", "rounding"],
)
def test_what_cannot_be_split_is_one_mode_that_says_so(points: np.ndarray, reason: str) -> None:
    found = count_modes(points)
    assert (found.count, found.reason, found.split) == (1, reason, None)
    assert not found.assignment.any()


def test_modes_may_be_single_places_and_an_outlier_is_none() -> None:
    assert count_modes(np.repeat([[0.0, 0.0], [1.0, 1.0]], 20, axis=0)).count == 2
    points = gaussian(100, 3, 0)
    points[0] = 1000
    assert count_modes(points).count == 1


def test_of_a_large_set_a_thousand_points_are_drawn() -> None:
    points = blobs([700, 900])
    found = count_modes(points, seed=1)
    assert found.count == 2
    assert (found.assignment >= 0).sum() == 1000
    assert set(found.assignment[:700]) == {-1, 1}
    assert count_modes(points, seed=1).assignment.tolist() == found.assignment.tolist()
    assert count_modes(points, seed=2).assignment.tolist() != found.assignment.tolist()


def test_a_smaller_significance_needs_more_evidence() -> None:
    points = blobs([30, 30], apart=4)
    p_value = count_modes(points).split.p_value
    assert count_modes(points, significance=p_value * 1.01).count == 2
    assert count_modes(points, significance=p_value * 0.99).reason == "one Gaussian"


def test_a_part_gets_its_share_of_the_significance() -> None:
    inner = blobs([15, 15], apart=4.5, seed=8)
    alone = count_modes(inner)
    assert alone.count == 2
    whole = np.concatenate([inner, 1000 + gaussian(70, 3, 9)])
    assert count_modes(whole, significance=alone.split.p_value / 0.3 * 1.05).count == 3
    assert count_modes(whole, significance=alone.split.p_value / 0.3 * 0.95).count == 2


def test_classes_are_counted_one_by_one() -> None:
    parts = {9: blobs([40, 40]), -3: gaussian(50, 3, 1), 2**40: gaussian(5, 3, 2)}
    labels = np.concatenate([np.full(len(points), label) for label, points in parts.items()])
    order = np.random.default_rng(0).permutation(len(labels))
    found = class_modes(torch.from_numpy(np.concatenate(list(parts.values()))[order]), labels[order])
    assert found.labels.tolist() == [-3, 9, 2**40]
    assert found.counts.tolist() == [1, 2, 1]
    assert found.mean == pytest.approx(4 / 3)
    assert [modes.reason for modes in found.modes] == ["one Gaussian", "split", "too few"]
    inside = np.concatenate(list(parts.values()))[order][labels[order] == 9]
    assert found.modes[1].assignment.tolist() == count_modes(inside).assignment.tolist()


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: count_modes(np.zeros((0, 2))), "points must hold at least one"),
        (lambda: count_modes(np.zeros((3, 2)), seed=-1), "seed must not be negative: got -1"),
        (lambda: count_modes(np.zeros((3, 2)), significance=0), "significance must be above 0"),
        (lambda: count_modes(np.zeros((3, 2)), significance=1.0), "significance must be above 0"),
        (lambda: count_modes(np.full((3, 1), np.nan)), "NaN"),
        (lambda: count_modes(np.zeros((3, 2), int)), "floating point"),
        (lambda: class_modes(np.zeros((0, 2)), np.zeros(0, int)), "at least one item"),
        (lambda: class_modes(np.zeros((3, 2)), np.zeros(2, int)), r"labels must .* shape \(2,\)"),
        (lambda: class_modes(np.zeros((3, 2)), np.zeros(3, int), seed=-2), "seed must not be negative"),
    ],
)
def test_bad_input_is_a_stated_error(call: Callable[[], object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        call()


def test_points_on_a_few_spots() -> None:
    """Many equal rows: a cut goes between spots, never through one."""
    random = np.random.default_rng(0)
    for spots in (2, 3, 30):
        points = random.standard_normal((spots, 4))[np.arange(90) % spots]
        assert 1 <= count_modes(points).count <= spots


def test_how_far_the_modes_of_a_class_are_those_of_another() -> None:
    """Two, three and two modes; the last class has one, and is not asked."""
    centres = {
        0: [[0, 0, 0], [9, 0, 0]],
        1: [[0, 30, 0], [9, 30, 0], [9, 39, 0]],
        2: [[30, 0, 0], [36, 6, 3]],
        3: [[0, 0, 50]],
    }
    sizes = {0: [40, 25], 1: [30, 30, 50], 2: [30, 30], 3: [40]}
    random, rows, labels = np.random.default_rng(0), [], []
    for label, each in centres.items():
        for centre, size in zip(each, sizes[label], strict=True):
            rows += (np.array(centre) + 0.5 * random.standard_normal((size, 3))).tolist()
            labels += [label] * size
    points, classes = np.array(rows), np.array(labels)
    modes = class_modes(points, classes)
    assert modes.counts.tolist() == [2, 3, 2, 1]
    offsets = []
    for number in range(3):
        own, of = points[classes == number], modes.modes[number].assignment
        offsets.append(
            [(math.sqrt((of == mode).mean()), own[of == mode].mean(axis=0) - own.mean(axis=0)) for mode in set(of)]
        )
    shares = []
    for one in offsets:
        for other in offsets:
            if one is not other:
                space = np.array([vector for _, vector in other]).T
                along = sum(
                    weight**2 * float(np.sum((space @ np.linalg.lstsq(space, vector, rcond=None)[0]) ** 2))
                    for weight, vector in one
                )
                shares.append(along / sum(weight**2 * float(vector @ vector) for weight, vector in one))
    assert mode_sharing(points, classes, modes) == pytest.approx(fmean(shares))
    kept = np.isin(classes, [0, 3])
    assert mode_sharing(points[kept], classes[kept], class_modes(points[kept], classes[kept])) is None
