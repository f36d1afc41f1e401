"""Retrieval protocols: which items are queries, what they retrieve from, and what is excluded (own camera, junk)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from trivet.distances import Array, as_classes
from trivet.metrics.points import Metric, Points
from trivet.metrics.positive_ranks import ExactSearch, LevelClasses
from trivet.runtime.arrays import Booleans, Integers


@dataclass(frozen=True)
class RetrievalTask:
    """Queries, a gallery, their classes at each level, and what a query may not retrieve; see `ExactSearch`."""

    queries: Points
    gallery: Points
    levels: list[LevelClasses]
    self_rows: Tensor | None
    groups: tuple[Tensor, Tensor] | None
    labels: list[tuple[Integers, npt.NDArray[Any]]]  # per level the classes (Q,) of the queries and their labels

    def search(self, *, first: bool = False) -> ExactSearch:
        """The exact search; see `ExactSearch`."""
        return ExactSearch(
            self.queries, self.gallery, self.levels, self_rows=self.self_rows, groups=self.groups, first=first
        )


def retrieval_task(
    embeddings: Array,
    labels: Mapping[str, Array],
    gallery: Array | None,
    gallery_labels: Mapping[str, Array] | None,
    sample: Array | None,
    cameras: Array | None,
    gallery_cameras: Array | None,
    self_rows: Array | None,
    junk: Array | None,
    distance: Metric,
) -> RetrievalTask:
    """The task that the arguments of `retrieve_levels` describe, checked."""
    if not labels:
        raise ValueError("labels must hold at least one level: got none; give {'class': labels}.")
    if (gallery is None) != (gallery_labels is None):
        raise ValueError("a gallery and its labels go together: got one of them; give both, or neither.")
    if gallery is None or gallery_labels is None:
        for name, value in (("gallery_cameras", gallery_cameras), ("self_rows", self_rows), ("junk", junk)):
            if value is not None:
                raise ValueError(f"{name} belongs to a gallery: got none; give one, or leave {name} out.")
        points = Points(embeddings, distance=distance)
        if len(points) < 2:
            raise ValueError(f"retrieval needs at least two items: got {len(points)}.")
        rows = torch.arange(len(points)) if sample is None else _rows(sample, len(points))
        queries = points if sample is None else Points(_pick(embeddings, rows), distance=distance)
        levels, names = [], []
        for level, values in labels.items():
            classes = as_classes(values, count=len(points), name=_named(level))
            levels.append(LevelClasses(classes[rows], classes))
            names.append(_unique_labels(_numpy(values)[rows.numpy()]))
        groups = None
        if cameras is not None:
            numbers = as_classes(cameras, count=len(points), name="cameras")
            groups = numbers[rows], numbers
        return RetrievalTask(queries, points, levels, rows, groups, names)
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
        self_positions = _rows(self_rows, count, absent=True, size=len(queries))
        if retained is not None:
            position = torch.full((count + 1,), -1)
            position[retained] = torch.arange(len(retained))
            self_positions = position[self_positions]
    levels, names = [], []
    for level, values in labels.items():
        levels.append(
            LevelClasses(*_joint_classes(values, gallery_labels[level], len(queries), count, retained, level))
        )
        names.append(_unique_labels(_numpy(values)))
    groups = None
    if (cameras is None) != (gallery_cameras is None):
        raise ValueError("cameras and gallery_cameras go together: got one of them; give both, or neither.")
    if cameras is not None and gallery_cameras is not None:
        groups = _joint_classes(cameras, gallery_cameras, len(queries), count, retained, "cameras")
    return RetrievalTask(queries, points, levels, self_positions, groups, names)


def _numpy(values: Array) -> npt.NDArray[Any]:
    return values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)


def _named(level: str) -> str:
    return "labels" if level == "labels" else f"labels[{level!r}]"


def _unique_labels(labels: npt.NDArray[Any]) -> tuple[Integers, npt.NDArray[Any]]:
    names, classes = np.unique(labels, return_inverse=True)
    return classes.astype(np.int64), names


def _pick(embeddings: Array, rows: Tensor) -> Array:
    return embeddings[rows] if isinstance(embeddings, Tensor) else embeddings[rows.numpy()]


def _rows(values: Array, count: int, *, absent: bool = False, size: int | None = None) -> Tensor:
    rows = _numpy(values)
    name, least = ("self_rows", -1) if absent else ("sample", 0)
    if rows.ndim != 1 or rows.dtype.kind not in "iu" or not len(rows) or size not in (None, len(rows)):
        raise ValueError(f"{name} must be a list of row numbers, one per query: got {rows.dtype} of {rows.shape}.")
    if rows.min() < least or rows.max() >= count:
        raise ValueError(f"{name} must be row numbers from {least} to {count - 1}: got {rows.min()} to {rows.max()}.")
    return torch.from_numpy(rows.astype(np.int64))


def _mask(values: Array, count: int) -> Booleans:
    mask = _numpy(values)
    if mask.shape != (count,) or mask.dtype != np.bool_:
        raise ValueError(f"junk must be a bool for each of the {count} gallery items: got {mask.dtype} {mask.shape}.")
    return mask


def _joint_classes(
    queries: Array, gallery: Array, query_count: int, gallery_count: int, retained: Tensor | None, name: str
) -> tuple[Tensor, Tensor]:
    """Class numbers of both that mean the same."""
    as_classes(queries, count=query_count, name=f"query {name}")
    as_classes(gallery, count=gallery_count, name=f"gallery {name}")
    left, right = _numpy(queries), _numpy(gallery)
    if np.result_type(left, right).kind == "f":  # signed and unsigned 64-bit integers: no dtype holds both
        left, right = left.astype(object), right.astype(object)
    numbers = torch.from_numpy(np.unique(np.concatenate([left, right]), return_inverse=True)[1].astype(np.int64))
    gallery_numbers = numbers[query_count:]
    return numbers[:query_count], gallery_numbers if retained is None else gallery_numbers[retained]
