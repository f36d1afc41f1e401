"""Variance of retrieval measures over other items or other classes: an item is a query, and is retrieved by others.

The gallery is as random as the queries. Let L_i be the weight of query i times its value less the mean of its class,
and what the measure loses when item i leaves the gallery. Were these influences all, the variance would be the sum of
their squares. But what a query i and an item j do together, e_ij (the loss of query i by j, less its mean over such j),
is in both L_i and L_j, though it varies once: so much is taken off,

    V = sum_c n_c / (n_c - 1) sum_{i in c} (L_i - mean of c)^2 - sum_ij (e_ij^2 + e_ij e_ji).

Without the second sum the standard error of recall@1 would be some 1.4 times too large; without the losses, that of
R-precision about half. V is at least the variance of independent queries. Of a difference of embeddings the products
e_ij e_ji, of two items that find each other, are not taken off: equal ones would be called different too often.

In a class of two or three items what they have in common cannot be told from what the class is: there the variance over
classes takes its place, with a weight of (3 / n)^2 where n is larger. Over classes the units are classes, and e_ij is
what is left of the table of losses, by class of query and of item, after the effects of its rows and columns.

A relation's classes are the groups of items that it connects. Items with tags are one group, and drawn alike: j is then
a positive of i or another item, as it happens.

Of more than `LIMIT` items `DRAWS` samples are taken, and the ratio of V to the variance of independent queries is
theirs.

Source:
    Efron, Stein, "The jackknife estimate of variance", Annals of Statistics 1981 (the second sum: what the jackknife
    counts twice).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch

from trivet.metrics.intervals import AVERAGES, OVERS, Average, Over, Variance, totals, variance_of_mean
from trivet.metrics.protocols import RetrievalTask
from trivet.runtime.arrays import Booleans, Floats, Integers

LIMIT = 600  # items whose pairs are looked at
DRAWS = 3  # samples of so many of more; with one the half-width would vary by 7 % with the order of the items, not 4
FEWEST = 25  # of a class, where all do not fit
ALONE = 3  # items of a class up to which it is one unit


class RankedQueries(Protocol):
    """Fields of `Retrieval` that are read here."""

    @property
    def measures(self) -> tuple[str, ...]: ...
    @property
    def values(self) -> Floats: ...
    @property
    def classes(self) -> Integers: ...
    @property
    def counted(self) -> Booleans: ...
    @property
    def task(self) -> RetrievalTask | None: ...
    @property
    def level(self) -> int: ...


@dataclass(frozen=True, eq=False)
class Removals:
    """Losses of each query without each gallery item, of U items: a query, a gallery row, or both in one."""

    classes: Integers  # (U,) 0 .. C - 1
    queries: Booleans  # (U,) that count
    gallery: Booleans  # (U,)
    same: Booleans  # (U, U) a query and an item of its class that it may retrieve
    other: Booleans  # (U, U) a query and an item of another class
    values: Floats  # (m, U) of each query; 0 of what is none
    losses: Floats  # (m, U, U) value of the query less that without the item
    complete: bool  # whether these are all items
    scale: float  # gallery rows for each query, here over all
    of_difference: bool = False  # values and losses are those of a difference of embeddings

    def variances(self, over: Over, averages: Sequence[Average]) -> dict[Average, tuple[Floats, Floats]]:
        """Variance `(m,)` of the measures of these queries, and that of independent queries, for each average."""
        sizes = np.bincount(self.classes[self.queries])
        variances: dict[Average, tuple[Floats, Floats]] = {}
        by_weights: dict[bytes, tuple[Floats, Floats]] = {}  # where classes are of one size, both averages are one
        for average in averages:
            weights = np.zeros(len(self.classes))
            weights[self.queries] = (
                1 / self.queries.sum()
                if average == "micro"
                else 1 / (np.count_nonzero(sizes) * sizes[self.classes[self.queries]])
            )
            key = weights.tobytes()
            if key not in by_weights:
                by_weights[key] = _over_items(self, weights) if over == "queries" else _over_classes(self, weights)
            variances[average] = by_weights[key]
        return variances

    def counted_twice(self, together: Floats) -> Floats:
        """Squares of what two units do together `(U, U)`, as far as the influences of both count it."""
        return np.square(together) if self.of_difference else together * (together + together.T)


def sampling_variances(
    retrievals: Sequence[RankedQueries], weights: Sequence[float] = (1,), averages: Sequence[Average] = AVERAGES
) -> dict[tuple[Over, Average], Variance]:
    """Variances of the weighted sum of the measures of some retrievals, such as a difference.

    Args:
        retrievals: of the same queries in the same order, with the same measures. Where galleries are of other classes
            than that of the first, variances add up.
        weights: one of each, such as (1, -1).
    """
    first = retrievals[0]
    counted = np.logical_and.reduce([each.counted for each in retrievals])
    values = _weighted([each.values for each in retrievals], weights)[counted]
    variances = {
        (over, average): variance_of_mean(values, first.classes[counted], over=over, average=average)
        for over in OVERS
        for average in averages
    }
    if any(each.task is None for each in retrievals) or not counted.any():
        return variances
    samples: list[Removals] = []
    for seed in range(DRAWS):
        each_removed = [_removals(each, counted, seed) for each in retrievals]
        removals = each_removed[0]
        if any(not np.array_equal(removals.classes, each.classes) for each in each_removed):
            alone = [sampling_variances([each], averages=averages) for each in retrievals]
            return {
                key: replace(plain, values=_weighted([each[key].values for each in alone], np.square(weights)))
                for key, plain in variances.items()
            }
        if removals.queries.any():  # few queries among many items: perhaps none is looked at
            values = _weighted([each.values for each in each_removed], weights)
            losses = _weighted([each.losses for each in each_removed], weights)
            of_difference = len(retrievals) > 1
            samples.append(replace(removals, values=values, losses=losses, of_difference=of_difference))
        if removals.complete:
            break
    estimates = {over: [each.variances(over, averages) for each in samples] for over in OVERS}
    for (over, average), plain in variances.items() if samples else ():
        exact, independent = np.mean([each[average] for each in estimates[over]], axis=0)
        ratio = np.where(independent > 0, exact / np.where(independent > 0, independent, 1), 1)
        if over == "queries":
            ratio = 1 + (ratio - 1) * np.mean([each.scale for each in samples])
        unvaried = exact if samples[0].complete else 0
        by_ratio = np.where(plain.values == 0, unvaried, plain.values * ratio)
        variances[over, average] = replace(plain, values=by_ratio)
    return variances


def _weighted(arrays: Sequence[Floats], weights: Sequence[float] | Floats) -> Floats:
    return np.asarray(sum(weight * array for weight, array in zip(weights, arrays, strict=True)))


def losses_of(
    distances: Floats, same: Booleans, measures: Sequence[str], grades: Floats | None = None
) -> tuple[Floats, Floats]:
    """Each measure of each query, and what it loses without each item.

    Without an item that is a positive, those farther rise by a rank and there is a positive less; without another item
    the positives farther rise. Each measure is a sum over the positives, so both follow from running sums.

    Args:
        distances: `(Q, M)`, infinite for what a query may not retrieve; equal ones in the order of columns.
        same: `(Q, M)` the positives among the others.
        measures: names as in `measures_of`.
        grades: `(Q, M)` the gains of the positives in ndcg; None where all are equal.

    Returns:
        `(m, Q)` and `(m, Q, M)`.
    """
    order = np.argsort(distances, axis=1, kind="stable")
    hits = np.take_along_axis(same, order, axis=1)
    reached: Integers = np.cumsum(hits, axis=1)
    nearer_positives: Integers = reached - hits
    sizes: Integers = reached[:, -1:]
    width = max(1, int(sizes.max(initial=0)))
    rows, ranks = np.nonzero(hits)
    numbers: Integers = nearer_positives[rows, ranks]
    negatives = np.zeros((len(distances), width), np.int64)
    negatives[rows, numbers] = ranks - numbers
    position = np.arange(width)
    present = position < sizes
    weights = np.zeros(negatives.shape)
    weights[rows, numbers] = 1 if grades is None else np.take_along_axis(grades, order, axis=1)[rows, ranks]
    values = np.empty((len(measures), len(distances)))
    losses = np.empty((len(measures), *distances.shape))
    for measure, name in enumerate(measures):
        complete, without = _scales(name, weights)

        def gains(nearer: Integers, before: Integers, count: Integers, name: str = name) -> Floats:
            return np.where(present, _gains(name, nearer, before, count, weights), 0.0)

        gained = gains(negatives, position, sizes) * complete
        values[measure] = gained.sum(axis=1)
        risen = gains(np.maximum(negatives - 1, 0), position, sizes) * complete - gained
        without_other = np.pad(-_from_end(risen), ((0, 0), (0, 1)))
        before, after = gains(negatives, position, sizes - 1), gains(negatives, position - 1, sizes - 1)
        rest = np.cumsum(before, axis=1) - before + _from_end(after) - after
        without_same = np.pad(np.where(present, values[measure][:, None] - rest * without, 0), ((0, 0), (0, 1)))
        ordered = np.where(
            hits,
            np.take_along_axis(without_same, nearer_positives, axis=1),
            np.take_along_axis(without_other, nearer_positives, axis=1),
        )
        np.put_along_axis(losses[measure], order, ordered, axis=1)
    return values, losses


def _scales(name: str, grades: Floats) -> tuple[Floats, Floats]:
    """Factors of the terms of positives `(Q, R)` with these gains: of all `(Q, 1)`, and without each `(Q, R)`.

    That of ndcg is one over the sum of the best ranking, in which those after one that leaves rise by a rank.
    """
    if not name.startswith("ndcg"):
        return np.ones((len(grades), 1)), np.ones(grades.shape)
    falling = np.argsort(-grades, axis=1, kind="stable")
    best = np.take_along_axis(grades, falling, axis=1)
    ranks = np.arange(best.shape[1])
    discounts = np.where(ranks < int(name.partition("@")[2] or len(ranks)), 1 / np.log2(ranks + 2), 0)
    there, risen = best * discounts, best * np.concatenate([[0.0], discounts[:-1]])
    without = np.empty(grades.shape)
    np.put_along_axis(without, falling, np.cumsum(there, axis=1) - there + _from_end(risen) - risen, axis=1)
    complete = there.sum(axis=1, keepdims=True)
    return 1 / np.where(complete > 0, complete, np.inf), 1 / np.where(without > 0, without, np.inf)


def _gains(name: str, nearer: Integers, before: Integers, count: Integers, grades: Floats) -> Floats:
    """Term of a positive in a measure, with `nearer` other items and `before` positives nearer, of `count`.

    That of ndcg is not yet divided by the best; see `_scales`.
    """
    measure, _, k = name.partition("@")
    rank, most = nearer + before, np.maximum(count, 1)
    limit = most if name in ("r-precision", "map@r") else int(k) if k else np.iinfo(np.int64).max
    inside = rank < limit
    if measure == "recall":
        return np.asarray(inside & (before == 0), np.float64)
    if measure == "mrr":
        return np.where(before == 0, 1 / np.maximum(rank + 1, 1), 0.0)
    if measure == "rbp":
        return np.asarray(0.5 ** (rank + 1.0))
    if measure == "precision":
        return np.asarray(inside / limit)
    if measure == "map":
        return np.asarray(inside * (before + 1) / np.maximum(rank + 1, 1) / np.minimum(limit, most))
    if measure == "ndcg":
        return np.asarray(inside * grades / np.log2(np.maximum(rank, 0) + 2))
    return np.asarray(inside / most)  # r-precision, found


def _from_end(values: Floats) -> Floats:
    """Sums of each column and those after it."""
    return np.cumsum(values[:, ::-1], axis=1)[:, ::-1]


def _removals(retrieval: RankedQueries, counted: Booleans, seed: int) -> Removals:
    """Values and losses of all items, or of a sample; equal distances are in random order."""
    task = retrieval.task
    assert task is not None
    level, count = task.levels[retrieval.level], len(task.gallery)
    # An item that is both a query and in the gallery is a single unit.
    rows_of = np.full(len(task.queries), -1) if task.self_rows is None else task.self_rows.numpy()
    lone = np.flatnonzero(rows_of < 0)
    unit = rows_of.copy()
    unit[lone] = count + np.arange(len(lone))
    classes = np.concatenate([level.gallery.numpy(), level.queries.numpy()[lone]])
    chosen = chosen_units(classes, np.arange(len(classes)) >= count, seed)
    position = np.full(len(classes), -1)
    position[chosen] = np.arange(len(chosen))
    queries = np.flatnonzero(position[unit] >= 0)
    queries = queries[np.argsort(position[unit[queries]])]
    rows = chosen[chosen < count]
    left, right = torch.from_numpy(queries)[:, None], torch.from_numpy(rows)[None]
    distances = torch.cdist(task.queries.rows(left[:, 0]), task.gallery.rows(right[0]))
    alike, ignored, grades = level.table(left[:, 0], right[0])
    same, other = alike & task.allows(left, right), ~alike
    if ignored is not None:
        other &= ~ignored
    if task.self_rows is not None:
        other &= task.self_rows[left] != right
    distances.masked_fill_(~(same | other), torch.inf)
    values, losses = losses_of(
        distances.numpy(), same.numpy(), retrieval.measures, None if grades is None else grades.numpy()
    )
    total, units = len(retrieval.measures), len(chosen)
    pairs = np.ix_(position[unit[queries]], position[rows])
    aligned = len(queries) == len(rows) == units  # both in the order of units

    def spread(pairs_of: np.ndarray) -> np.ndarray:
        if aligned:
            return pairs_of
        table = np.zeros((*pairs_of.shape[:-2], units, units), pairs_of.dtype)
        table[..., pairs[0], pairs[1]] = pairs_of
        return table

    is_query, in_gallery, values_of = np.zeros(units, bool), chosen < count, np.zeros((total, units))
    is_query[position[unit[queries[counted[queries]]]]] = True
    values_of[:, position[unit[queries]]] = values
    numbers = np.unique(classes[chosen], return_inverse=True)[1].ravel()
    complete = units == len(classes)
    scale = len(rows) / count * counted.sum() / max(1, is_query.sum())
    return Removals(
        numbers, is_query, in_gallery, spread(same.numpy()), spread(other.numpy()), values_of, spread(losses),
        complete, 1.0 if complete else float(scale),
    )  # fmt: skip


def chosen_units(classes: Integers, lone: Booleans, seed: int = 0) -> Integers:
    """Numbers of all units, or of about `LIMIT`, in random order: of each class of some, all or `FEWEST` and more.

    Args:
        classes: `(U,)` of units, which are items, or queries that are no items.
        lone: `(U,)` which are such queries.
        seed: of the order and the choice.
    """
    generator = np.random.default_rng(seed)
    order = generator.permutation(len(classes))
    if len(classes) <= LIMIT:
        return order
    _, numbers = np.unique(classes, return_inverse=True)
    most = max(FEWEST, LIMIT // (numbers.max() + 1))
    strata = (2 * numbers + lone)[order]
    by_stratum = np.argsort(strata, kind="stable")
    sizes = np.bincount(strata)
    within = np.empty(len(order), np.int64)
    within[by_stratum] = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    order = order[within < most]
    turn = generator.permutation(numbers.max() + 1)
    counts = np.zeros(len(turn), np.int64)
    np.add.at(counts, turn[numbers[order]], 1)
    before = np.cumsum(counts) - counts
    return np.asarray(order[before[turn[numbers[order]]] < LIMIT])


def _over_items(removals: Removals, weights: Floats) -> tuple[Floats, Floats]:
    """`Removals.variances` over items, with the weight `(U,)` of each query."""
    classes, same, other = removals.classes, removals.same, removals.other
    count = int(classes.max()) + 1
    strata = 4 * classes + 2 * removals.queries + removals.gallery
    sizes = np.bincount(strata)
    correction = (sizes / np.maximum(sizes - 1, 1))[strata]
    in_class = totals(weights[:, None], classes, count)[:, 0]
    positives, others = same.sum(axis=1), other.sum(axis=1)
    fewer, known = np.where(same, (positives / np.maximum(positives - 1, 1))[:, None], 1.0), same | other
    members = np.bincount(classes[removals.gallery], minlength=count)
    single = np.where(members < 2, 0.0, np.minimum(1.0, np.square(ALONE / np.maximum(members, 1))))
    between = _by_class(removals, weights)[0] if single.any() else np.zeros((len(removals.values), count))

    def squares(influences: Floats) -> Floats:
        means = np.bincount(strata, influences) / np.maximum(sizes, 1)
        return np.asarray(np.bincount(classes, np.square(influences - means[strata]) * correction, count), np.float64)

    results = np.empty((2, len(removals.values)))
    for measure, (values, losses) in enumerate(zip(removals.values, removals.losses, strict=True)):
        weighted = weights[:, None] * losses
        positive_means, other_means = _row_means(weighted, same, positives), _row_means(weighted, other, others)
        together = (weighted - np.where(same, positive_means, other_means)) * known
        mean = np.bincount(classes, weights * values, count) / np.where(in_class > 0, in_class, 1)
        direct = weights * (values - mean[classes])
        twice = np.bincount(classes, (fewer * removals.counted_twice(together)).sum(axis=1), count)
        within = squares(direct + weighted.sum(axis=0)) - twice
        results[1, measure] = squares(direct).sum()
        results[0, measure] = max(results[1, measure], ((1 - single) * within + single * between[measure]).sum())
    return results[0], results[1]


def _row_means(table: Floats, mask: Booleans, counts: Integers) -> Floats:
    return np.asarray((np.einsum("ij,ij->i", table, mask) / np.maximum(counts, 1))[:, None])


def _over_classes(removals: Removals, weights: Floats) -> tuple[Floats, Floats]:
    """`Removals.variances` over classes, with the weight `(U,)` of each query."""
    by_class, independent = _by_class(removals, weights)
    return np.maximum(by_class.sum(axis=1), independent), independent


def _by_class(removals: Removals, weights: Floats) -> tuple[Floats, Floats]:
    """Terms of each class in the variance over classes `(m, C)`, and the variance of independent classes `(m,)`."""
    members = np.eye(int(removals.classes.max()) + 1)[removals.classes]  # (U, C)
    count = members.shape[1]
    added, independent = np.zeros((len(removals.values), count)), np.zeros(len(removals.values))
    for measure, (values, losses) in enumerate(zip(removals.values, removals.losses, strict=True)):
        direct = members.T @ (weights * (values - weights @ values))
        independent[measure] = count / max(1, count - 1) * np.square(direct).sum()
        if count < 3:  # a table of two classes has nothing left after its rows and columns
            added[measure] = independent[measure] / count
            continue
        table = members.T @ (weights[:, None] * losses) @ members
        np.fill_diagonal(table, 0)
        left = _interactions(table)
        cells = count * (count - 1)
        influence = direct + table.sum(axis=0)
        added[measure] = count / (count - 1) * np.square(influence - influence.mean())
        added[measure] -= cells / max(1, cells - 2 * count + 1) * removals.counted_twice(left).sum(axis=1)
    return added, independent


def _interactions(table: Floats) -> Floats:
    """Rest of a table `(C, C)` without its diagonal after the effects of rows and columns, C > 2."""
    count = len(table)
    mean = table.sum() / (count * (count - 1))
    of_rows, of_columns = (table.sum(axis=axis) / (count - 1) - mean for axis in (1, 0))
    rows, columns = (
        ((count - 1) ** 2 * effect + (count - 1) * across) / (count * (count - 2))
        for effect, across in ((of_rows, of_columns), (of_columns, of_rows))
    )
    left = table - mean - rows[:, None] - columns
    np.fill_diagonal(left, 0)
    return np.asarray(left)
