"""The changes between a reference and new data: of the items as a whole, of classes, of the share out of scope."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from trivet.distances import Array
from trivet.drift.comparison import FREQUENCIES, SAMPLED, FourierFeatures, largest_statistics
from trivet.drift.permutation import (
    BLOCK,
    Units,
    holm,
    mean_differences,
    p_value,
    share_differences,
    standardised,
    step_down,
)
from trivet.drift.planted import detectable_share, equivalent_share, plant_clusters, power_of
from trivet.drift.scope import NewCluster, Scope, ScopeShare, find_new_clusters, measure_scope, scope_share
from trivet.metrics.points import Metric, Points
from trivet.runtime.arrays import Floats, Integers
from trivet.runtime.progress import steps, work

Question = Literal["items", "scope", "clusters", "shares", "classes"]
Answer = Literal["differs", "alike", "unclear"]
Labels = Sequence[str | Sequence[str]]
Groups = Sequence[str]

LEVEL = 0.05
PERMUTATIONS = 50  # for each time that a p value can be as large as the level by chance
FEWEST = 5  # items of a class on either side, within which it is tested
MOST = 100_000  # items of a side that are compared
TYPICAL = 100  # items of each side that the change is explained by
NARROW = 0  # the scale of the features by which they are chosen


@dataclass(frozen=True)
class ClassChange:
    """A class in both sets.

    Attributes:
        name: of the class or tag.
        reference, now: its shares of the items.
        items: how many it has in the reference, and how many are new.
        share_p: adjusted p value of the change of its share.
        within_p: adjusted p value of a change among its items; None where either side has less than five.
    """

    name: str
    reference: float
    now: float
    items: tuple[int, int]
    share_p: float
    within_p: float | None


@dataclass(frozen=True, eq=False)
class Drift:
    """Changes between a reference and new data.

    Attributes:
        level: the chance of a false alarm.
        p: question -> p value of its permutation test.
        adjusted: question -> p value, adjusted by Holm's procedure for the number of questions.
        power: share of the new items that are a cluster which the reference lacks -> share of the draws in which the
            question "items" alone finds it.
        equivalent: the share of such a cluster that changes the items as much as they do; None for more than any.
        scope: None where the reference has too few items.
        clusters: new ones, each at the level, if there are any at the level for all questions together.
        classes: of labelled items, those whose share changed most first.
        farthest: positions of the new items that lie farthest from the reference, if more are out of scope.
        typical_now, typical_reference: positions in the sets of the items around which most has come, or has gone, if
            the items changed.
        compared: how many items of the reference, and of the new data.
    """

    level: float
    p: dict[Question, float]
    adjusted: dict[Question, float]
    power: dict[float, float]
    equivalent: float | None
    scope: ScopeShare | None
    clusters: list[NewCluster] = field(default_factory=list)
    classes: list[ClassChange] = field(default_factory=list)
    farthest: Integers = field(default_factory=lambda: np.empty(0, np.int64))
    typical_now: Integers = field(default_factory=lambda: np.empty(0, np.int64))
    typical_reference: Integers = field(default_factory=lambda: np.empty(0, np.int64))
    compared: tuple[int, int] = (0, 0)

    @property
    def answer(self) -> Answer:
        """Return whether the sets differ, at the level; "unclear" where no planted change would have come to light."""
        if min(self.adjusted.values()) <= self.level:
            return "differs"
        return "unclear" if self.detectable is None else "alike"

    @property
    def detectable(self) -> float | None:
        """The least share of a new cluster that is found in 80 % of the draws; None for none."""
        return detectable_share(self.power)

    def changed(self, question: Question) -> bool:
        """Return whether a question is answered by yes, at the level for all together."""
        return self.adjusted.get(question, 1.0) <= self.level


def find_drift(
    reference: Array,
    now: Array,
    *,
    labels: tuple[Labels, Labels] | None = None,
    groups: tuple[Groups, Groups] | None = None,
    distance: Metric = "cosine",
    level: float = LEVEL,
    permutations: int | None = None,
    seed: int = 0,
) -> Drift:
    """Find out whether new data is like a reference: drawn from the same items, so that any could be in either set.

    Each question has an exact permutation test: whether the items differ as a whole, whether more of them are out of
    scope or in new clusters and, with labels, whether the shares of the classes differ, and the items within classes.
    Holm's procedure keeps the chance of any false alarm at the level. How small a change would have come to light is
    measured by planting clusters. Of more than 100,000 items of a side so many at random are compared.

    Args:
        reference: `(N, d)` floating point.
        now: `(M, d)` floating point, of the same model.
        labels: a class name for each item of both, or a sequence of tags, or "" for none.
        groups: the name of a group for each item of both, such as an author, whose items resemble each other and change
            sides together; "" for an item by itself. A group in both sets is a unit in each.
        distance: "cosine" or "euclidean".
        level: chance of a false alarm, in (0, 1).
        permutations: at random, of each test; by default 50 / level - 1, which are 999 for 5 %.
        seed: of the permutations and samples.

    Raises:
        ValueError: if the sets have no items, other dimensions, rows that are not finite, or other numbers of labels or
            groups, or options are out of range.

    Example:
        >>> draw = np.random.default_rng(0)
        >>> before, after = draw.normal(size=(300, 8)), draw.normal(size=(200, 8))
        >>> find_drift(before, after).answer
        'alike'
        >>> find_drift(before, np.concatenate([after[:170], draw.normal(3, 0.1, size=(30, 8))])).answer
        'differs'
    """
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1: got {level}; 0.05 is one false alarm in twenty.")
    permutations = round(PERMUTATIONS / level) - 1 if permutations is None else permutations
    if permutations < 1 / level - 1:
        raise ValueError(
            f"permutations must be at least 1 / level - 1 for a p value as small as the level {level}: got "
            f"{permutations}; use more."
        )
    draws = [np.random.default_rng([seed, number]) for number in range(8)]
    sides = [Points(reference, distance=distance, name="reference"), Points(now, distance=distance, name="now")]
    _check(sides, labels, groups)
    chosen = [np.sort(draws[0].permutation(len(side))[:MOST]) for side in sides]
    points = _rows(sides, chosen)
    count = len(chosen[0])
    is_now = np.arange(len(points)) >= count
    units = Units.of(is_now, None if groups is None else _numbers(groups, chosen))
    with work("distances to the reference"):
        scope = measure_scope(points, units, draws[1])
    share = None if scope is None else scope_share(scope, units, permutations, draws[2])
    p: dict[Question, float] = {}
    with work("permutations of the items"):
        assignments = np.concatenate([units.permuted(permutations, draws[3]), plant_clusters(points, units, draws[4])])
        features = FourierFeatures.of(points, draws[5])
        statistics = largest_statistics(
            points, units, assignments, features, permutations=permutations, generator=draws[5]
        )
    null, planted = statistics[: 1 + permutations], statistics[1 + permutations :]
    p["items"] = p_value(null)
    clusters: list[NewCluster] = []
    if scope is not None and share is not None:
        with work("new clusters"):
            clusters = find_new_clusters(points, units, scope, permutations=permutations, generator=draws[7])
        p["scope"] = share.p
        p["clusters"] = min((cluster.p for cluster in clusters), default=1.0)
    classes: list[ClassChange] = []
    if labels is not None:
        names, members = _members(labels, chosen)
        if names:
            differences = share_differences(units, members, permutations, draws[6])
            p["shares"] = p_value((np.square(differences) / np.asarray(members.mean(axis=1))).sum(axis=1))
            within = _within(points, units, members, features, permutations, draws[6])
            if within:
                p["classes"] = min(within.values())
            classes = _class_changes(names, members, is_now, differences, within)
    adjusted = holm(p)
    drift = Drift(
        level=level,
        p=p,
        adjusted=adjusted,
        power=power_of(planted, null[1:], level / len(p)),
        equivalent=equivalent_share(planted, float(null[0])),
        scope=share,
        classes=classes,
        compared=(count, len(points) - count),
    )
    return _explained(drift, points, units, features, scope, clusters, chosen)


def _check(sides: Sequence[Points], labels: tuple[Labels, Labels] | None, groups: tuple[Groups, Groups] | None) -> None:
    if empty := [side.name for side in sides if not len(side)]:
        raise ValueError(f"both sets must have items: {empty[0]} has none.")
    if sides[0].dimension != sides[1].dimension:
        raise ValueError(
            f"reference and now must have the same dimension: got {sides[0].dimension} and {sides[1].dimension}; embed "
            "both with the same model."
        )
    for name, both in (("labels", labels), ("groups", groups)):
        for side, values in zip(sides, both or (), strict=both is not None):
            if len(values) != len(side):
                raise ValueError(
                    f"{name} must have an entry for each item: got {len(values)} for the {len(side)} of {side.name}."
                )


def _rows(sides: Sequence[Points], chosen: Sequence[Integers]) -> Tensor:
    """Points `(N, width)` float32 of both sets, less the mean of some and divided by their largest coordinate.

    So they keep the digits by which items differ where all lie close together, far from 0.
    """
    some = torch.cat(
        [
            side.rows(torch.from_numpy(of_side[:: 1 + len(of_side) // SAMPLED]))
            for side, of_side in zip(sides, chosen, strict=True)
        ]
    )
    centre = some.mean(dim=0)
    scale = float((some - centre).abs().max()) or 1.0
    rows, start = torch.empty(sum(map(len, chosen)), sides[0].width), 0
    for side, of_side in zip(sides, chosen, strict=True):
        for piece in torch.split(torch.from_numpy(of_side), side.piece):
            rows[start : start + len(piece)] = (side.rows(piece) - centre) / scale
            start += len(piece)
    return rows


def _numbers(groups: tuple[Groups, Groups], chosen: Sequence[Integers]) -> Integers:
    """The number of the group of each item that is compared; -1 for none."""
    names = [values[row] for values, rows in zip(groups, chosen, strict=True) for row in rows.tolist()]
    numbers = {name: number for number, name in enumerate(sorted({*names} - {""}))}
    return np.array([numbers.get(name, -1) for name in names], np.int64)


def _members(labels: tuple[Labels, Labels], chosen: Sequence[Integers]) -> tuple[list[str], csr_array]:
    """The names of the classes or tags, and which items are in each, `(C, N)`."""
    values = [of[row] for of, rows in zip(labels, chosen, strict=True) for row in rows.tolist()]
    pairs = [
        (name, item)
        for item, names in enumerate(values)
        for name in ([names] if isinstance(names, str) else dict.fromkeys(names))
        if name
    ]
    names = sorted({name for name, _ in pairs})
    numbers = {name: number for number, name in enumerate(names)}
    rows, columns = [numbers[name] for name, _ in pairs], [item for _, item in pairs]
    return names, csr_array((np.ones(len(pairs), np.float32), (rows, columns)), shape=(len(names), len(values)))


def _within(
    points: Tensor,
    units: Units,
    members: csr_array,
    features: FourierFeatures,
    permutations: int,
    generator: np.random.Generator,
) -> dict[int, float]:
    """Number of each class that has five items on either side -> adjusted p value of a change among its items."""
    numbers, statistics = [], []
    for number in steps(range(members.shape[0]), "classes"):
        items = np.sort(members.indices[members.indptr[number] : members.indptr[number + 1]]).astype(np.int64)
        some = units.subset(items)
        count = int(some.is_now.sum())
        if min(count, len(items) - count) >= FEWEST:
            numbers.append(number)
            assignments = some.permuted(permutations, generator)
            statistics.append(
                largest_statistics(
                    points[torch.from_numpy(items)],
                    some,
                    assignments,
                    features,
                    permutations=permutations,
                    generator=generator,
                )
            )
    if not numbers:
        return {}
    values = step_down(standardised(np.stack(statistics, axis=1), permutations))
    return dict(zip(numbers, values.tolist(), strict=True))


def _class_changes(
    names: Sequence[str], members: csr_array, is_now: np.ndarray, differences: Floats, within: dict[int, float]
) -> list[ClassChange]:
    deviation = differences.std(axis=0)
    sizes = np.abs(differences) / np.where(deviation > 0, deviation, 1)
    values = step_down(sizes).tolist()
    new = (members @ is_now.astype(np.float64)).astype(int).tolist()
    old = (members @ (~is_now).astype(np.float64)).astype(int).tolist()
    counts = int((~is_now).sum()), int(is_now.sum())
    changes = [
        ClassChange(name, old[i] / counts[0], new[i] / counts[1], (old[i], new[i]), values[i], within.get(i))
        for i, name in enumerate(names)
    ]
    order = np.argsort(-sizes[0], kind="stable")
    return [changes[i] for i in order.tolist()]


def _explained(
    drift: Drift,
    points: Tensor,
    units: Units,
    features: FourierFeatures,
    scope: Scope | None,
    clusters: Sequence[NewCluster],
    chosen: Sequence[Integers],
) -> Drift:
    """The changes with new clusters, and the items around which most has come or gone."""
    if drift.changed("clusters"):
        called = [replace(each, rows=chosen[1][each.rows]) for each in clusters if each.p <= drift.level]
        drift = replace(drift, clusters=sorted(called, key=lambda each: -each.share))
    if scope is not None and drift.changed("scope"):
        order = np.argsort(-scope.distances[-len(chosen[1]) :], kind="stable")
        drift = replace(drift, farthest=chosen[1][order[:TYPICAL]])
    if not drift.changed("items"):
        return drift
    difference = torch.from_numpy(mean_differences(units, units.now[None], lambda rows: features(points[rows]))[0])
    direction = difference.float().reshape(-1, 2 * FREQUENCIES)
    direction[NARROW + 1 :] = 0
    witness = torch.cat([features(some) @ direction.flatten() for some in torch.split(points, BLOCK)]).numpy()
    count = len(chosen[0])
    return replace(
        drift,
        typical_now=chosen[1][np.argsort(-witness[count:], kind="stable")[:TYPICAL]],
        typical_reference=chosen[0][np.argsort(witness[:count], kind="stable")[:TYPICAL]],
    )
