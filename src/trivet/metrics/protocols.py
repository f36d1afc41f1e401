"""Retrieval protocols: which items are queries, what they retrieve from, and what is excluded (own camera, junk)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from trivet.distances import Array, as_classes
from trivet.metrics.points import Metric, Points, as_numpy
from trivet.metrics.relation_levels import LevelClasses, LevelRelation, unique_labels
from trivet.mining.relations import Classes, Relation
from trivet.runtime.arrays import Booleans

Labels = Array | Relation


@dataclass(frozen=True)
class RetrievalTask:
    """Queries, a gallery, their classes at each level, and what a query may not retrieve."""

    queries: Points
    gallery: Points
    levels: list[LevelClasses]
    self_rows: Tensor | None = None  # `(Q,)` the gallery row that is the query itself, -1 where there is none
    # what query and gallery items must not share within a class, `(Q,)` and `(M,)`: their cameras.
    groups: tuple[Tensor, Tensor] | None = None

    def allows(self, queries: Tensor, items: Tensor) -> Tensor:
        """Return which pairs of a query and a gallery row of its class count: not itself, and none of its group."""
        allowed = torch.ones((queries + items).shape, dtype=torch.bool)
        if self.self_rows is not None:
            allowed &= self.self_rows[queries] != items
        if self.groups is not None:
            allowed &= self.groups[0][queries] != self.groups[1][items]
        return allowed

    def unanswerable(self, level: int) -> tuple[Tensor, Tensor, Tensor]:
        """Queries `(Q,)` without a positive at the level of that number, as masks by what is amiss.

        Their class is not in the gallery; else only by the query itself; else only by items of the query's group.
        """
        classes, groups = self.levels[level], self.groups
        members = classes.counts[classes.queries]
        itself = torch.zeros(len(members), dtype=torch.bool)
        if self.self_rows is not None:
            itself = (self.self_rows >= 0) & (classes.gallery[self.self_rows] == classes.queries)
        absent, alone = members == 0, (members > 0) & (members == itself.long())
        near = torch.zeros_like(members)
        if groups is not None:
            many = 1 + int(torch.cat(groups).max())
            near = torch.bincount(classes.gallery * many + groups[1], minlength=many * len(classes.counts))
            near = near[classes.queries * many + groups[0]]
            if self.self_rows is not None:  # which is counted already where it is of the group
                itself &= groups[1][self.self_rows] != groups[0]
            near = near + itself
        return absent, alone, ~absent & ~alone & (members == near)


def retrieval_task(
    embeddings: Array,
    labels: Mapping[str, Labels],
    gallery: Array | None = None,
    gallery_labels: Mapping[str, Labels] | None = None,
    sample: Array | None = None,
    cameras: Array | None = None,
    gallery_cameras: Array | None = None,
    self_rows: Array | None = None,
    junk: Array | None = None,
    distance: Metric = "euclidean",
) -> RetrievalTask:
    """The task that the arguments of `retrieve_levels` describe, checked."""
    if not isinstance(labels, Mapping) or not labels:
        raise ValueError(f"labels must hold at least one level: got {type(labels).__name__}; give {{'class': labels}}.")
    if (gallery is None) != (gallery_labels is None):
        raise ValueError("a gallery and its labels go together: got one of them; give both, or neither.")
    if gallery is None or gallery_labels is None:
        for name, value in (("gallery_cameras", gallery_cameras), ("self_rows", self_rows), ("junk", junk)):
            if value is not None:
                raise ValueError(f"{name} belongs to a gallery: got none; give one, or leave {name} out.")
        points = Points(embeddings, distance=distance)
        if len(points) < 2:
            raise ValueError(f"retrieval needs at least two items: got {len(points)}.")
        rows = torch.arange(len(points)) if sample is None else row_numbers(sample, len(points))
        queries = points if sample is None else Points(_pick(embeddings, rows), distance=distance)
        levels = [_single_set_level(values, rows, len(points), _named(level)) for level, values in labels.items()]
        groups = None
        if cameras is not None:
            numbers = as_classes(cameras, count=len(points), name="cameras")
            groups = numbers[rows], numbers
        return RetrievalTask(queries, points, levels, rows, groups)
    if sample is not None:
        raise ValueError("sample applies to a single set: got a gallery as well; pass only the queries to use.")
    if list(labels) != list(gallery_labels):
        raise ValueError(
            f"queries and gallery must have the same label levels: got {list(labels)} and {list(gallery_labels)}."
        )
    count, retained = len(gallery), None
    if junk is not None:
        retained = torch.from_numpy(~_mask(junk, count)).nonzero()[:, 0]
    queries = Points(embeddings, distance=distance, name="queries")
    points = Points(gallery if retained is None else _pick(gallery, retained), distance=distance, name="gallery")
    if not len(points) or not len(queries):
        raise ValueError(f"retrieval needs a query and a gallery item: got {len(queries)} and {len(points)}.")
    if queries.dimension != points.dimension:
        raise ValueError(
            f"queries and gallery must have the same dimension: got {queries.dimension} and {points.dimension}; embed "
            "both with the same network."
        )
    self_positions = None
    if self_rows is not None:
        self_positions = row_numbers(self_rows, count, absent=True, size=len(queries))
        if retained is not None:
            position = torch.full((count + 1,), -1)
            position[retained] = torch.arange(len(retained))
            self_positions = position[self_positions]
    levels = [
        _query_gallery_level(values, gallery_labels[level], len(queries), count, retained, self_positions, level)
        for level, values in labels.items()
    ]
    groups = None
    if (cameras is None) != (gallery_cameras is None):
        raise ValueError("cameras and gallery_cameras go together: got one of them; give both, or neither.")
    if cameras is not None and gallery_cameras is not None:
        groups = _joint_classes(cameras, gallery_cameras, len(queries), count, retained, "cameras")
    return RetrievalTask(queries, points, levels, self_positions, groups)


def _named(level: str) -> str:
    return "labels" if level == "labels" else f"labels[{level!r}]"


def _single_set_level(labels: Labels, rows: Tensor, count: int, name: str) -> LevelClasses:
    labels = plain_labels(labels)
    if isinstance(labels, Relation):
        check_length(labels, count, name)
        return LevelRelation(labels, labels.items[rows], labels.items, rows)
    classes = as_classes(labels, count=count, name=name)
    return LevelClasses(classes[rows], classes, unique_labels(as_numpy(labels)[rows.numpy()]))


def _query_gallery_level(
    labels: Labels,
    gallery_labels: Labels,
    query_count: int,
    gallery_count: int,
    retained: Tensor | None,
    self_rows: Tensor | None,
    name: str,
) -> LevelClasses:
    labels, gallery_labels = plain_labels(labels), plain_labels(gallery_labels)
    if isinstance(labels, Relation) and isinstance(gallery_labels, Relation):
        check_length(labels, query_count, f"query {name}")
        check_length(gallery_labels, gallery_count, f"gallery {name}")
        relation, items = labels.joined(gallery_labels)
        return LevelRelation(relation, relation.items, items if retained is None else items[retained], self_rows)
    if isinstance(labels, Relation) or isinstance(gallery_labels, Relation):
        raise ValueError(
            f"queries and gallery must have labels of one kind: got {type(labels).__name__} and "
            f"{type(gallery_labels).__name__}; make one relation of all items, and take the rows of each with "
            "relation[rows]."
        )
    classes = _joint_classes(labels, gallery_labels, query_count, gallery_count, retained, name)
    return LevelClasses(*classes, unique_labels(as_numpy(labels)))


def plain_labels(labels: Labels) -> Labels:
    """Integers in place of a relation that means the same; other labels as they are."""
    return labels.items if isinstance(labels, Classes) else labels


def check_length(relation: Relation, count: int, name: str) -> None:
    """Raise a ValueError if a relation is not one of `count` items."""
    if len(relation) != count:
        raise ValueError(
            f"{name} must be a relation of one item per embedding: got {len(relation)} items for {count} embeddings; "
            "take the rows of these with relation[rows]."
        )


def _pick(embeddings: Array, rows: Tensor) -> Array:
    return embeddings[rows] if isinstance(embeddings, Tensor) else embeddings[rows.numpy()]


def row_numbers(values: Array, count: int, *, absent: bool = False, size: int | None = None) -> Tensor:
    """The row numbers of `sample`, or of `self_rows`, where -1 stands for none, checked."""
    rows = as_numpy(values)
    name, least = ("self_rows", -1) if absent else ("sample", 0)
    if rows.ndim != 1 or rows.dtype.kind not in "iu" or not len(rows) or size not in (None, len(rows)):
        raise ValueError(f"{name} must be a list of row numbers, one per query: got {rows.dtype} of {rows.shape}.")
    if rows.min() < least or rows.max() >= count:
        raise ValueError(f"{name} must be row numbers from {least} to {count - 1}: got {rows.min()} to {rows.max()}.")
    return torch.from_numpy(rows.astype(np.int64))


def _mask(values: Array, count: int) -> Booleans:
    mask = as_numpy(values)
    if mask.shape != (count,) or mask.dtype != np.bool_:
        raise ValueError(f"junk must be a bool for each of the {count} gallery items: got {mask.dtype} {mask.shape}.")
    return mask


def _joint_classes(
    queries: Array, gallery: Array, query_count: int, gallery_count: int, retained: Tensor | None, name: str
) -> tuple[Tensor, Tensor]:
    """Class numbers of both that mean the same."""
    as_classes(queries, count=query_count, name=f"query {name}")
    as_classes(gallery, count=gallery_count, name=f"gallery {name}")
    left, right = as_numpy(queries), as_numpy(gallery)
    if np.result_type(left, right).kind == "f":  # signed and unsigned 64-bit integers: no dtype holds both
        left, right = left.astype(object), right.astype(object)
    numbers = torch.from_numpy(np.unique(np.concatenate([left, right]), return_inverse=True)[1].astype(np.int64))
    gallery_numbers = numbers[query_count:]
    return numbers[:query_count], gallery_numbers if retained is None else gallery_numbers[retained]
