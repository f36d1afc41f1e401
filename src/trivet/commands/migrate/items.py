"""Items of `trivet migrate` in both embeddings, matched by id, and the retrieval of some of them from others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from trivet.commands.evaluate.options import EvaluateOptions
from trivet.commands.evaluate.run import WAYS, read_embeddings
from trivet.commands.evaluate.sets import (
    QueriesAndGallery,
    camera_options,
    check_same_items,
    check_same_texts,
    number_classes,
    positions_of,
    related,
    same_queries,
    self_rows,
)
from trivet.commands.migrate.options import MigrateOptions
from trivet.datasets.judged_pairs import JudgedPairs
from trivet.datasets.preview import Preview
from trivet.datasets.tags import tag_relations
from trivet.io.embedding_table import Names, Vectors
from trivet.knn.index import build_index
from trivet.metrics import Retrieval, retrieve_levels
from trivet.metrics.points import Metric
from trivet.mining import Relation
from trivet.runtime.arrays import Floats, Integers
from trivet.runtime.text import counted


@dataclass(frozen=True, eq=False)
class ItemSpace:
    """An embedding of N items: `rows (N, d)` and how they are compared."""

    name: str
    rows: Floats
    distance: Metric


@dataclass(frozen=True, eq=False)
class SearchTask:
    """Queries among N items and what they retrieve from; no query finds itself.

    Attributes:
        name: of the queries, "" where there is one task alone.
        queries, gallery: `(Q,)` and `(M,)` row numbers of items.
        self_rows: `(Q,)` the position in `gallery` of each query itself, -1 where it is not there.
        relations: level -> class numbers `(N,)`, or a relation of N items.
        cameras: `(N,)` numbers, where a query ignores items of its class and camera.
    """

    name: str
    queries: Integers
    gallery: Integers
    self_rows: Integers
    relations: Mapping[str, np.ndarray | Relation] = field(default_factory=dict)
    cameras: Integers | None = None

    def within(self, rows: Integers) -> SearchTask:
        """The search of the queries among some items, in those of the gallery among them."""
        among = np.zeros(1 + max(self.queries.max(), self.gallery.max(), rows.max()), np.bool_)
        among[rows] = True
        chosen = among[self.queries]
        number = np.append(np.where(among[self.gallery], np.cumsum(among[self.gallery]) - 1, -1), -1)
        return replace(
            self,
            queries=self.queries[chosen],
            gallery=self.gallery[among[self.gallery]],
            self_rows=number[self.self_rows[chosen]],
        )

    def nearest(self, queries: ItemSpace, gallery: ItemSpace, k: int) -> Integers:
        """Row numbers `(Q, k)` of the nearest items of each query, nearest first; -1 where there are fewer."""
        index = build_index(gallery.rows[self.gallery], distance=gallery.distance, kind="exact")
        indices = index.search(queries.rows[self.queries], k, leave_out=self.self_rows).indices
        rows: Integers = np.where(indices < 0, -1, self.gallery[indices])
        return rows

    def retrieve(
        self, queries: ItemSpace, gallery: ItemSpace, measures: Sequence[str], **options: Any
    ) -> dict[str, Retrieval]:
        """Level -> the measures of the queries of one space in the gallery of another, by the distance of the latter.

        Args:
            options: of `retrieve_levels`.
        """
        cameras: dict[str, Any] = {}
        if self.cameras is not None:
            cameras = {"cameras": self.cameras[self.queries], "gallery_cameras": self.cameras[self.gallery]}
        return retrieve_levels(
            queries.rows[self.queries],
            {level: relation[self.queries] for level, relation in self.relations.items()},
            gallery=gallery.rows[self.gallery],
            gallery_labels={level: relation[self.gallery] for level, relation in self.relations.items()},
            self_rows=self.self_rows,
            measures=measures,
            distance=gallery.distance,
            **cameras,
            **options,
        )


@dataclass(frozen=True, eq=False)
class MigratedItems:
    """N items in both embeddings.

    Attributes:
        ids, labels: `(N,)` the id of each, and level -> its class name.
        groups: `(N,)` numbers of groups of which no two items may be on two sides: what pairs connect, else each id.
        show: row number -> what a page shows of an item, None where there is nothing to show.
        tasks: the searches; those at the level that decides come first.
        notes: sentences on what was left out.
    """

    old: ItemSpace
    new: ItemSpace
    ids: Sequence[str]
    labels: Mapping[str, Names]
    groups: Integers
    show: Callable[[int], Preview | None]
    tasks: Sequence[SearchTask]
    notes: Sequence[str] = ()


def read_items(request: MigrateOptions) -> MigratedItems:
    """Read both embeddings, and match their items.

    Raises:
        ValueError: if they cannot be read, have no item in common, or differ in labels.
    """
    request.check(request.embeddings)
    if len(request.left_vectors or request.embeddings) != 2:
        raise ValueError(
            f"a change of encoder takes two embeddings: got {len(request.left_vectors or request.embeddings)}; give "
            "the old one, then the new one."
        )
    names = {each.name for each in fields(EvaluateOptions)}
    shared = {each.name: getattr(request, each.name) for each in fields(request) if each.name in names}
    sets, show = read_embeddings(EvaluateOptions(**shared))
    old, new, notes = _matched(*sets)
    sides = [[each.queries, *([] if each.gallery is None else [each.gallery])] for each in (old, new)]
    spaces = [
        ItemSpace(each.name, np.concatenate([vectors.embeddings for vectors in of]), each.distance)
        for each, of in zip((old, new), sides, strict=True)
    ]
    rows = np.concatenate([vectors.rows for vectors in sides[0]])
    texts = [text for vectors in sides[0] for text in vectors.texts or [""] * len(vectors)]

    def preview(item: int) -> Preview | None:
        return texts[item] or None if show is None else show(int(rows[item]))

    ids = [name for vectors in sides[0] for name in vectors.names()]
    tasks = _tasks(old)
    relation = next(iter(tasks[0].relations.values()), None)
    levels = old.queries.labels.keys() if old.gallery is None else old.queries.labels.keys() & old.gallery.labels.keys()
    return MigratedItems(
        old=spaces[0],
        new=spaces[1],
        ids=ids,
        labels={level: np.concatenate([vectors.labels[level] for vectors in sides[0]]) for level in levels},
        groups=relation.groups[relation.items.numpy()]
        if isinstance(relation, JudgedPairs)
        else np.unique(ids, return_inverse=True)[1],
        show=preview,
        tasks=tasks,
        notes=notes,
    )


def _matched(old: QueriesAndGallery, new: QueriesAndGallery) -> tuple[QueriesAndGallery, QueriesAndGallery, list[str]]:
    """Both with the items that both have, in the order of the first, and sentences on what was left out.

    Where one of them has no labels, those of the other are taken.
    """
    if (old.gallery is None) != (new.gallery is None):
        with_gallery, without = (new, old) if old.gallery is None else (old, new)
        raise ValueError(
            f"both embeddings must be searched alike: {with_gallery.name} says which items are queries, {without.name} "
            "does not; leave the columns is_query and is_gallery out of both, or add them to both."
        )
    notes: list[str] = []
    pairs = [(old.queries, new.queries, "queries" if old.gallery is not None else "items")]
    if old.gallery is not None and new.gallery is not None:
        pairs.append((old.gallery, new.gallery, "gallery items"))
    sides = []
    for first, other, what in pairs:
        rows = np.arange(len(first))
        if first.ids is not None and other.ids is not None:
            positions = positions_of(first.ids, other.ids)
            rows = np.flatnonzero(positions >= 0)
            if len(rows) < 2:
                raise ValueError(
                    f"both embeddings must be of the same items: {new.name} has {counted(len(rows), 'id')} of the "
                    f"{len(first):,} of {old.name}, such as {str(first.ids[0])!r}; write the same ids in both."
                )
            if len(rows) < max(len(first), len(other)):
                notes.append(
                    f"{len(rows):,} {what} are in both: {len(first) - len(rows):,} of {old.name} and "
                    f"{len(other) - len(rows):,} of {new.name} were left out."
                )
            first, other = first.select(rows), other.select(positions[rows])
        same_queries((old.name, new.name), first.ids, other.ids, (len(first), len(other)))
        if not other.labels or not first.labels:
            check_same_texts((old.name, first), (new.name, other), np.arange(len(first)))
            known = other if not first.labels else first
            first, other = (replace(each, labels=known.labels, tags=known.tags) for each in (first, other))
        else:
            check_same_items((old.name, first), (new.name, other))
        sides.append((first, other))
    galleries: list[Vectors | None] = [*sides[1]] if len(sides) > 1 else [None, None]
    return (
        replace(old, queries=sides[0][0], gallery=galleries[0]),
        replace(new, queries=sides[0][1], gallery=galleries[1]),
        [*notes, *dict.fromkeys(note for each in (old, new) for note in each.queries.notes)],
    )


def _tasks(sets: QueriesAndGallery) -> list[SearchTask]:
    """The searches of a set: its queries in its gallery, or each item in the others; pairs from either side."""
    queries = np.arange(len(sets.queries))
    relations: dict[str, np.ndarray | Relation] = {}
    if sets.queries.labels:
        labels, gallery_labels, names = number_classes(sets)
        if sets.gallery is not None:
            labels = {level: np.concatenate([labels[level], gallery_labels[level]]) for level in labels}
        relations = related(labels, tag_relations(names, sets.queries.tags))
    cameras = np.concatenate([*camera_options(sets).values()]) if sets.cameras else None
    if sets.gallery is not None:
        gallery = len(queries) + np.arange(len(sets.gallery))
        rows = self_rows(sets.queries, sets.gallery, by_id=sets.by_id)
        itself = np.full(len(queries), -1) if rows is None else rows
        return [SearchTask("", queries, gallery, itself, dict(reversed(relations.items())), cameras)]
    tasks = []
    for level, relation in relations.items():
        if isinstance(relation, JudgedPairs):
            is_left = (relation.items < relation.first_of_right).numpy()
            for name, side in zip(WAYS, (is_left, ~is_left), strict=True):
                first, other = np.flatnonzero(side), np.flatnonzero(~side)
                tasks.append(SearchTask(name, first, other, np.full(len(first), -1), {name: relation}))
            del relations[level]
            break
    if relations or not tasks:
        tasks.append(SearchTask("", queries, queries, queries, dict(reversed(relations.items())), cameras))
    return tasks
