"""The variance of what re-ranking gains, over other items of the same classes.

Re-ranked lists rest on many items of the gallery at once, so that what one item does cannot be read from distances, as
it can for a plain ranking. Instead a random third of the items of each class is left out, as queries and from the
gallery, and both rankings are made anew, 20 times: the variance is twice that of these gains. Were
fewer left out, a measure such as recall@1, which jumps, would seem to vary too much. Of more than 600 items some are
taken, and what they tell is the ratio to the variance of independent queries.

Source:
    Shao, Wu, "A general theory for jackknife variance estimation", Annals of Statistics 1989 (leaving out d items).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from trivet.knn.kinds import Reranking
from trivet.knn.retrieval_by_index import retrieve_by_index
from trivet.metrics.intervals import Variance, variance_of_mean
from trivet.metrics.retrieval import Retrieval
from trivet.metrics.sampling_variance import chosen_units
from trivet.mining import Relation
from trivet.runtime.arrays import Booleans, Floats, Integers
from trivet.runtime.progress import steps

DRAWS = 20
SHARE = 3  # one in so many is left out
FEWEST = 40  # items


def gain_variances(
    embeddings: np.ndarray,
    relations: Mapping[str, np.ndarray | Relation],
    reranked: Mapping[str, Retrieval],
    plain: Mapping[str, Retrieval],
    *,
    rerank: Reranking,
    options: Mapping[str, Any],
) -> dict[str, Variance]:
    """Level -> the variance of each measure of `reranked` less `plain`; NaN where there are fewer than 40 items.

    Args:
        embeddings, relations: of the queries.
        options: others of `retrieve_by_index`, as both were measured with, without `sample`.
    """
    gallery = options.get("gallery")
    first = next(iter(reranked.values()))
    self_rows = np.arange(len(embeddings)) if gallery is None else options.get("self_rows")
    count = len(embeddings if gallery is None else gallery)
    unit_of = np.full(len(embeddings), -1) if self_rows is None else np.array(self_rows)
    lone = np.flatnonzero(unit_of < 0)
    unit_of[lone] = count + np.arange(len(lone))
    # Items of the gallery that are no queries have no class here, and are drawn alike.
    classes = np.full(count + len(lone), first.classes.max() + 1)
    classes[unit_of] = first.classes
    if gallery is not None and isinstance(labels := next(iter(options["gallery_labels"].values())), np.ndarray):
        numbers = dict(zip(first.labels.tolist(), range(len(first.labels)), strict=True))
        classes[:count] = [numbers.get(label, first.classes.max() + 1) for label in labels.tolist()]
    chosen = chosen_units(classes, np.arange(len(classes)) >= count)

    def gains(units: Booleans) -> dict[str, Floats]:
        """The gains `(Q, m)` of the queries among these units, with their gallery; NaN for what does not count."""
        queries, items = np.flatnonzero(units[unit_of]), np.flatnonzero(units[:count])
        some = _of_rows(options, queries, items, unit_of)
        names = first.measures
        both = [
            retrieve_by_index(
                embeddings[queries],
                {level: relation[queries] for level, relation in relations.items()},
                **{**some, "measures": names, "kind": "exact", "rerank": way},
            ).levels
            for way in (rerank, None)
        ]
        return {level: both[0][level].values - both[1][level].values for level in relations}

    taken = np.zeros(len(classes), bool)
    taken[chosen] = True
    complete = gains(taken) if len(chosen) >= FEWEST else {}
    generator, thinned = np.random.default_rng(0), list[dict[str, Floats]]()
    for _ in steps(range(DRAWS), "intervals of what re-ranking gains") if complete else ():
        some = taken.copy()
        some[chosen[left_out(classes[chosen], generator)]] = False
        thinned.append({level: np.nanmean(values, axis=0) for level, values in gains(some).items()})
    variances = {}
    for level, retrieval in reranked.items():
        counted = retrieval.counted & plain[level].counted
        values = retrieval.values - plain[level].only(retrieval.measures).values
        independent = variance_of_mean(values[counted], retrieval.classes[counted], over="queries", average="micro")
        if level not in complete:
            variances[level] = Variance(np.full(len(retrieval.measures), np.nan), 1, independent.units)
            continue
        known = ~np.isnan(complete[level][:, 0])
        of_classes = retrieval.classes[np.flatnonzero(taken[unit_of])][known]
        alone = variance_of_mean(complete[level][known], of_classes, over="queries", average="micro").values
        each = np.array([means[level] for means in thinned])
        jackknife = (SHARE - 1) * each.var(axis=0, ddof=1)
        ratio = np.maximum(1, jackknife / np.where(alone > 0, alone, np.inf))
        degrees = min(independent.degrees, DRAWS - 1)
        variances[level] = Variance(independent.values * ratio, degrees, independent.units)
    return variances


def left_out(classes: Integers, generator: np.random.Generator) -> Booleans:
    """A random third of the items of each class `(n,)`, of a class that cannot be divided by 3 one more or less."""
    order = generator.permutation(len(classes))
    order = order[np.argsort(classes[order], kind="stable")]
    chosen = np.zeros(len(classes), bool)
    chosen[order[generator.integers(SHARE) :: SHARE]] = True
    return chosen


def _of_rows(options: Mapping[str, Any], queries: Integers, items: Integers, unit_of: Integers) -> dict[str, Any]:
    """Options of a retrieval for some queries and gallery items."""
    some = {name: value for name, value in options.items() if name not in ("self_rows", "junk", "sample")}
    if "cameras" in some:
        some["cameras"] = some["cameras"][queries]
    if options.get("gallery") is None:
        return some
    position = np.full(max(int(unit_of.max()), int(items.max())) + 1, -1)
    position[items] = np.arange(len(items))
    some["gallery"] = options["gallery"][items]
    some["gallery_labels"] = {level: relation[items] for level, relation in options["gallery_labels"].items()}
    some["self_rows"] = position[unit_of[queries]]
    for name in ("gallery_cameras", "junk"):
        if name in options:
            some[name] = options[name][items]
    return some
