"""`find_drift`: what it answers for planted changes, and for none."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from trivet.drift import find_drift
from trivet.drift.permutation import Units
from trivet.drift.planted import DRAWS, SHARES, detectable_share, equivalent_share, plant_clusters, power_of

Array = np.ndarray[Any, np.dtype[Any]]


def made(seed: int = 0, count: int = 900) -> tuple[Array, list[str]]:
    """Items of nine classes, whose means lie apart."""
    draw = np.random.default_rng(seed)
    classes = draw.integers(9, size=count)
    means = 3 * np.random.default_rng(99).normal(size=(9, 12))
    return means[classes] + draw.normal(size=(count, 12)), [f"class {number}" for number in classes.tolist()]


def divided(rows: Array, names: list[str], new: Array) -> dict[str, Any]:
    """The arguments of a comparison of some items with the others."""
    labels = np.array(names)
    return {"reference": rows[~new], "now": rows[new], "labels": (labels[~new].tolist(), labels[new].tolist())}


def test_halves_of_the_same_data_are_alike() -> None:
    rows, names = made()
    drift = find_drift(**divided(rows, names, np.arange(900) >= 600))
    assert drift.answer == "alike"
    assert [*drift.p] == ["items", "scope", "clusters", "shares", "classes"]
    assert min(drift.adjusted.values()) > 0.05
    assert (drift.clusters, len(drift.typical_now), drift.compared) == ([], 0, (600, 300))
    assert drift.detectable is not None
    assert drift.detectable <= 0.2
    assert list(drift.power) == list(SHARES)
    assert drift.power[1.0] == 1.0


def test_a_class_that_is_new() -> None:
    rows, names = made()
    new = (np.arange(900) >= 600) | (np.array(names) == "class 4")
    drift = find_drift(**divided(rows, names, new))
    assert drift.answer == "differs"
    assert drift.changed("items")
    assert drift.changed("scope")
    assert drift.changed("clusters")
    assert drift.changed("shares")
    assert not drift.changed("classes")
    share = np.mean(np.array(names)[new] == "class 4")
    assert drift.equivalent == pytest.approx(share, rel=0.6)
    (cluster,) = drift.clusters
    labels = np.array(names)[new]
    assert {*labels[cluster.rows].tolist()} == {"class 4"}
    assert {*labels[drift.typical_now[:50]].tolist()} == {"class 4"}
    assert {*labels[drift.farthest[:50]].tolist()} == {"class 4"}
    first = drift.classes[0]
    assert (first.name, first.reference, first.items[0], first.within_p) == ("class 4", 0.0, 0, None)
    assert first.now == pytest.approx(share)
    assert first.share_p == 0.001


def test_shares_of_classes_and_changes_within_are_told_apart() -> None:
    rows, names = made(count=1800)
    labels, draw = np.array(names), np.random.default_rng(1)
    of_class = np.array([int(name[-1]) for name in names])
    more = draw.random(1800) < np.where(of_class < 4, 0.5, 0.2)
    drift = find_drift(**divided(rows, names, more))
    assert drift.changed("shares")
    assert not drift.changed("classes")
    assert {each.name for each in drift.classes[:3]} < {f"class {number}" for number in range(9)}
    moved = rows.copy()
    new = draw.random(1800) < 0.3
    moved[new & (labels == "class 7")] += 0.8
    drift = find_drift(**divided(moved, names, new))
    assert drift.changed("classes")
    assert not drift.changed("shares")
    assert [each.name for each in drift.classes if (each.within_p or 0) <= 0.05] == ["class 7"]


def test_tags_are_classes_of_which_an_item_has_several() -> None:
    rows, names = made()
    new = np.arange(900) >= 600
    options = divided(rows, names, new)
    one = find_drift(**options)
    tags = [[(name,) if name != "class 1" else (name, "rare") for name in side] for side in options["labels"]]
    several = find_drift(options["reference"], options["now"], labels=(tags[0], tags[1]))
    by_name = {each.name: each for each in several.classes}
    assert by_name["rare"].items == by_name["class 1"].items
    assert by_name["class 5"].now == {each.name: each for each in one.classes}["class 5"].now
    without = [[name if name != "class 3" else "" for name in side] for side in options["labels"]]
    named = find_drift(options["reference"], options["now"], labels=(without[0], without[1]))
    assert "class 3" not in {each.name for each in named.classes}


def test_groups_keep_items_that_resemble_each_other_from_being_a_change() -> None:
    """Each group lies somewhere else; without groups every item counts as an observation of its own."""
    draw = np.random.default_rng(5)
    group = np.repeat(np.arange(60), 20)
    rows = draw.normal(size=(60, 8))[group] + 0.3 * draw.normal(size=(1200, 8))
    new = draw.permutation(60)[group] < 20
    names = [f"author {number}" for number in group.tolist()]
    groups = ([name for name, now in zip(names, new, strict=True) if not now],)
    groups += ([name for name, now in zip(names, new, strict=True) if now],)
    alone = find_drift(rows[~new], rows[new])
    together = find_drift(rows[~new], rows[new], groups=(groups[0], groups[1]))
    assert alone.answer == "differs"
    assert together.answer != "differs"
    assert together.p["items"] > 0.1


def test_few_items_leave_it_unclear() -> None:
    rows, _ = made()
    drift = find_drift(rows[:8], rows[8:10])
    assert drift.answer == "unclear"
    assert drift.detectable is None
    assert drift.scope is None
    assert find_drift(rows[:1], rows[1:2]).answer == "unclear"


def test_one_seed_gives_one_result_whatever_the_length_of_rows() -> None:
    rows, _ = made()
    first = find_drift(rows[:600], rows[600:])
    assert find_drift(rows[:600], rows[600:]).p == first.p
    assert find_drift(7 * rows[:600], 7 * rows[600:]).p == pytest.approx(first.p)
    shifted = find_drift(rows[:600] + 1e4, rows[600:] + 1e4, distance="euclidean")
    assert shifted.p == pytest.approx(find_drift(rows[:600], rows[600:], distance="euclidean").p, abs=0.02)
    assert find_drift(rows[:600], rows[600:], seed=1).p != first.p


def test_many_items_are_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trivet.drift.changes.MOST", 150)
    rows, names = made()
    new = (np.arange(900) >= 600) | (np.array(names) == "class 4")
    drift = find_drift(**divided(rows, names, new))
    assert drift.compared == (150, 150)
    assert drift.answer == "differs"
    labels = np.array(names)[new]
    assert {*labels[drift.typical_now[:15]].tolist()} == {"class 4"}


def test_a_planted_cluster_is_all_new() -> None:
    rows, _ = made(count=300)
    units = Units.of(np.arange(300) >= 200, np.where(np.arange(300) < 30, np.arange(300) // 3, -1))
    import torch

    points = torch.from_numpy(rows).float()
    planted = plant_clusters(points, units, np.random.default_rng(0)).reshape(len(SHARES), DRAWS, -1)
    assert (planted.sum(axis=2) == units.now.sum()).all()
    centres = np.random.default_rng(0).integers(300, size=DRAWS)
    nearest: list[list[int]] = []
    for centre in centres.tolist():
        distance = [math.inf] * len(units)
        for row, unit in zip(rows.tolist(), units.unit.tolist(), strict=True):
            distance[unit] = min(distance[unit], math.dist(row, rows[centre].tolist()))
        nearest.append(sorted(range(len(units)), key=distance.__getitem__))
    for number, share in enumerate(SHARES):
        for draw, order in enumerate(nearest):
            items = chosen = 0
            while items < share * 100 - 1e-6 and chosen < units.now.sum():
                items += int(units.sizes[order[chosen]])
                chosen += 1
            assert planted[number, draw, order[:chosen]].all()


def test_power_and_what_follows_from_it() -> None:
    null = np.arange(99.0)
    statistics = np.repeat(np.linspace(80, 110, len(SHARES)), 4)
    power = power_of(statistics, null, 0.05)
    assert power == {
        share: float((1 + sum(other >= value for other in null.tolist())) / 100 <= 0.05)
        for share, value in zip(SHARES, statistics[::4].tolist(), strict=True)
    }
    assert detectable_share(power) == min(share for share in SHARES if power[share] == 1)
    assert detectable_share({0.1: 1.0, 0.5: 0.7, 1.0: 0.9}) == 1.0
    assert detectable_share({0.1: 1.0, 0.5: 0.9, 1.0: 0.7}) is None
    assert equivalent_share(statistics, 80.0) == SHARES[0]
    assert equivalent_share(statistics, (statistics[8] + statistics[4]) / 2) == pytest.approx(
        (SHARES[1] + SHARES[2]) / 2
    )
    assert equivalent_share(statistics, 111.0) is None


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"now": np.zeros((3, 5))}, "reference and now must have the same dimension: got 12 and 5"),
        ({"now": np.zeros((0, 12))}, "both sets must have items: now has none"),
        ({"now": np.full((3, 12), np.nan)}, "now must be finite"),
        ({"level": 0.0}, "level must lie between 0 and 1: got 0.0"),
        ({"permutations": 9}, "permutations must be at least"),
        ({"labels": (["a"], ["b"])}, "labels must have an entry for each item: got 1 for the 600 of reference"),
        ({"groups": (["a"] * 600, ["b"])}, "groups must have an entry for each item: got 1 for the 300 of now"),
    ],
)
def test_mistakes(change: dict[str, Any], sentence: str) -> None:
    rows, _ = made()
    with pytest.raises(ValueError, match=sentence):
        find_drift(**{"reference": rows[:600], "now": rows[600:]} | change)
