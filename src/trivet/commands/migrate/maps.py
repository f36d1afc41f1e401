"""Linear maps between the embeddings: fitted on half of the items, measured on the other half, both ways round."""

from __future__ import annotations

import numpy as np
import torch

from trivet.collapse.significance import FLOOR
from trivet.commands.migrate.changes import MEASURES, change_words, difference_words, measure_changes
from trivet.commands.migrate.items import ItemSpace, MigratedItems, SearchTask
from trivet.commands.migrate.record import MapRecord, SearchRow
from trivet.distances import unit_rows
from trivet.knn.agreement import neighbour_agreement
from trivet.metrics import Retrieval
from trivet.models.linear_map import FEWEST, LinearMap, fit_map
from trivet.reports.page import percent
from trivet.runtime.arrays import Integers
from trivet.runtime.progress import steps
from trivet.training.compatible_head import compatible_head

OLD, NEW, OLD_MAPPED, NEW_MAPPED, HEAD = "old", "new", "old, mapped", "new, mapped", "new, head"
SEARCHES = ((OLD, OLD), (NEW, NEW), (NEW, OLD_MAPPED), (NEW_MAPPED, OLD), (OLD_MAPPED, NEW))  # queries and gallery
HEAD_SEARCHES = ((HEAD, OLD), (HEAD, HEAD))
HALVES, INNER = 2, 5  # a fifth of the fitted half chooses the step of a head


def measure_maps(items: MigratedItems, k: int, seed: int, *, head: bool = False) -> MapRecord | None:
    """Fit and measure maps from old to new and from new to old; None where a half has too few items to fit them.

    Args:
        k: how many neighbours are compared.
        seed: of the halves.
        head: train a compatible head as well.

    Raises:
        ValueError: if a head is to be trained without labels, or not for cosine distance.
    """
    task = items.tasks[0]
    if head and not task.relations:
        raise ValueError("--head trains by labels: the items have none; name a column with --labels, or leave it out.")
    if head and (items.old.distance, items.new.distance) != ("cosine", "cosine"):
        raise ValueError("--head trains for cosine distance: got euclidean; leave it out, or --distance cosine.")
    pairs = (*SEARCHES, *(HEAD_SEARCHES if head else ()))
    halves = _halves(items.groups, np.random.default_rng(seed))
    searches = [task.within(half) for half in halves]
    if min(map(len, halves)) < FEWEST or not all(len(of.queries) > 1 and len(of.gallery) > 1 for of in searches):
        return None
    record = MapRecord(k=min(k, *(len(of.gallery) - 1 for of in searches)))
    overlaps: dict[tuple[str, str], list[np.ndarray]] = {pair: [] for pair in pairs}
    retrieved: dict[tuple[str, str], list[Retrieval]] = {pair: [] for pair in pairs}
    for search, fitting in steps(zip(searches, reversed(halves), strict=True), "maps"):
        spaces = _spaces(items, fitting, record, seed, head=head)
        nearest = {pair: search.nearest(spaces[pair[0]], spaces[pair[1]], record.k) for pair in pairs}
        for pair in pairs:
            native = nearest[(OLD, OLD) if pair[1] == OLD else (NEW, NEW)]
            overlaps[pair].append(neighbour_agreement(native, nearest[pair]).overlap)
            if search.relations:
                retrieved[pair].append(_retrieve(search, spaces, pair))
    level = next(iter(task.relations), None)
    for pair in pairs:
        row = SearchRow(queries=pair[0], gallery=pair[1], overlap=float(np.nanmean(np.concatenate(overlaps[pair]))))
        if level is not None:
            row.from_old, row.from_new = (
                measure_changes(
                    retrieved[pair], retrieved[name, name], level, name, known_classes=pair in HEAD_SEARCHES
                )
                for name in (OLD, NEW)
            )
        record.searches.append(row)
    if level is not None:
        _judge(record)
    return record


def _halves(groups: Integers, draw: np.random.Generator) -> list[Integers]:
    """Row numbers of two halves, with each group in one of them."""
    names, number = np.unique(groups, return_inverse=True)
    half = np.zeros(len(names), np.int64)
    half[draw.permutation(len(names))[: len(names) // HALVES]] = 1
    return [np.flatnonzero(half[number] == side) for side in range(HALVES)]


def _spaces(
    items: MigratedItems, fitting: Integers, record: MapRecord, seed: int, *, head: bool
) -> dict[str, ItemSpace]:
    """The embeddings and their images under maps that are fitted on some of the items."""
    spaces = {OLD: items.old, NEW: items.new}
    for source, target, name in ((OLD, NEW, OLD_MAPPED), (NEW, OLD, NEW_MAPPED)):
        rows, targets = (_as_compared(spaces[side]) for side in (source, target))
        generator = torch.Generator().manual_seed(seed)
        fitted: LinearMap = fit_map(rows[fitting], targets[fitting], generator=generator)
        record.fitted.setdefault(f"{source} to {target}", []).append(fitted.name)
        spaces[name] = ItemSpace(name, fitted(rows).numpy(), spaces[target].distance)
    if head:
        groups = items.groups[fitting]
        inner = np.isin(groups, np.random.default_rng(seed).permutation(np.unique(groups))[::INNER])
        trained = compatible_head(
            rows,
            targets,
            next(iter(items.tasks[0].relations.values())),
            start=fitted,
            fitting=fitting[~inner],
            choosing=fitting[inner],
            generator=generator,
        )
        record.fitted.setdefault(HEAD, []).append(trained.name)
        spaces[HEAD] = ItemSpace(HEAD, trained(rows).numpy(), items.old.distance)
    return spaces


def _as_compared(space: ItemSpace) -> torch.Tensor:
    """Rows as a search compares them: for cosine of length 1."""
    rows = torch.from_numpy(np.asarray(space.rows, np.float64))
    return unit_rows(rows) if space.distance == "cosine" else rows


def _retrieve(search: SearchTask, spaces: dict[str, ItemSpace], pair: tuple[str, str]) -> Retrieval:
    """The measures of the queries that have something to find in their half."""
    level = next(iter(search.relations))
    return search.retrieve(spaces[pair[0]], spaces[pair[1]], MEASURES, without_positive="drop")[level]


def _judge(record: MapRecord) -> None:
    """Decide whether mapping the old index suffices, by recall@1."""
    mapped = search_of(record, NEW, OLD_MAPPED)
    change, gain = mapped.from_new[0], search_of(record, NEW, NEW).from_old[0]
    if change.outcome == "worse":
        record.outcome = "re-embed"
    else:
        record.outcome = "suffices" if change.interval[0] >= -FLOOR else "open"
    if gain.outcome == "better":
        record.gain_retained = mapped.from_old[0].difference / gain.difference


def search_of(record: MapRecord, queries: str, gallery: str) -> SearchRow:
    """The search of these queries in this gallery."""
    return next(row for row in record.searches if (row.queries, row.gallery) == (queries, gallery))


def map_sentence(record: MapRecord) -> str:
    """Sentence on what a mapped index would do."""
    mapped = search_of(record, NEW, OLD_MAPPED)
    if not mapped.from_new:
        return (
            f"An index of mapped old items finds {percent(mapped.overlap)}\u00a0% of the {record.k} nearest of the new "
            "embedding."
        )
    share = ""
    if (retained := record.gain_retained) is not None:
        share = f" keeps {100 * max(0, retained):.0f}\u00a0% of the gain and"
    change = f"{difference_words(mapped.from_new[0])} against the new embedding alone"
    return {
        "suffices": f"Mapping suffices: an index of mapped old items{share} loses no point ({change}).",
        "re-embed": f"Embed all items anew: an index of mapped old items{share} is worse ({change}).",
        "open": f"Cannot tell whether mapping suffices: an index of mapped old items{share} may lose more than a point "
        f"({change}).",
    }[record.outcome]


def head_sentence(record: MapRecord) -> str:
    """Sentence on what a compatible head gains and costs; empty without one."""
    if HEAD not in record.fitted:
        return ""
    there, alone = search_of(record, HEAD, OLD).from_old[0], search_of(record, HEAD, HEAD).from_new[0]
    return (
        f"A head that is trained to search the old index finds there {change_words(there)} of the old embedding, and "
        f"in an index of its own {change_words(alone)} of the new one, on other items of the classes of its training."
    )
