"""Items as records show them: in the plane, and queries with their nearest neighbours."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from trivet.datasets import Dataset
from trivet.datasets.preview import Preview, item_title, preview_record
from trivet.metrics import QueryGallery, neighbours
from trivet.reports.shared_records import ItemRecord, NeighbourRecord, PlaneMap
from trivet.runtime.arrays import Integers
from trivet.training.embed_dataset import label_names

Array = npt.NDArray[Any]
ITERATIONS = 500  # of t-SNE; as many more lower its loss by less than 1 %, and take as long again


@dataclass(frozen=True, eq=False, kw_only=True)
class DisplayedItems:
    """Items that a record shows.

    Attributes:
        ids: N texts.
        labels: level -> `(N,)` class names.
        show: position of an item -> what a page shows of it; None where there is nothing to show.
    """

    ids: Sequence[str]
    labels: Mapping[str, npt.NDArray[np.str_]]
    show: Callable[[int], Preview | None] | None = None

    def record(self, i: int) -> ItemRecord:
        """An item with its preview and its labels."""
        preview = preview_record(None if self.show is None else self.show(i))
        return ItemRecord(id=self.ids[i], **preview, labels={at: str(names[i]) for at, names in self.labels.items()})

    def neighbours(self, nearest: Sequence[tuple[int, float]]) -> list[NeighbourRecord]:
        """The neighbours of a query, given as `nearest_items` finds them."""
        return [NeighbourRecord(**dict(self.record(i)), similarity=similarity) for i, similarity in nearest]

    def plane_map(self, embeddings: Array, sample: Integers, *, seed: int) -> PlaneMap:
        """A sample of the items in the plane, see `plane_coordinates`."""
        rows = sample.tolist()
        previews = [None if self.show is None else self.show(i) for i in rows]
        return PlaneMap(
            coordinates=plane_coordinates(embeddings[sample], seed=seed),
            labels={level: names[sample].tolist() for level, names in self.labels.items()},
            ids=[item_title(self.ids[i], preview) for i, preview in zip(rows, previews, strict=True)],
            thumbnails=[] if self.show is None else [preview_record(preview)["thumbnail"] for preview in previews],
        )


def dataset_items(dataset: Dataset) -> DisplayedItems:
    """The items of a data set."""
    labels = {level: np.array(names) for level, names in label_names(dataset).items()}
    return DisplayedItems(ids=dataset.ids, labels=labels, show=dataset.show)


def nearest_items(embeddings: Array, query: int, k: int, allowed: Integers | None = None) -> list[tuple[int, float]]:
    """Positions of the `k` nearest other items, or of those that are allowed, with their cosine similarities."""
    if allowed is None:
        return nearest_of_each(embeddings, [query], k)[0]
    rows = np.concatenate([[query], allowed[allowed != query]])
    return [(int(rows[i]), similarity) for i, similarity in nearest_of_each(embeddings[rows], [0], k)[0]]


def nearest_of_each(embeddings: Array, queries: Sequence[int], k: int) -> list[list[tuple[int, float]]]:
    """The `nearest_items` of each of some queries, among all items."""
    if len(embeddings) < 2:
        return [[] for _ in queries]
    nearest = neighbours(embeddings, np.asarray(queries, np.int64), min(k, len(embeddings) - 1), distance="cosine")
    return [
        [(i, round(1 - distance, 4)) for i, distance in zip(indices, distances, strict=True)]
        for indices, distances in zip(nearest.indices.tolist(), nearest.distances.tolist(), strict=True)
    ]


def retrievable(protocol: QueryGallery | None, finest: Array, query: int) -> Integers | None:
    """Positions of the items that a query may retrieve by a protocol; None for all others.

    Args:
        finest: `(N,)` the class of each item at the finest level.
    """
    if protocol is None:
        return None
    rows = protocol.retrieved
    if protocol.cameras is None:
        return rows
    other = (finest[rows] != finest[query]) | (protocol.cameras[rows] != protocol.cameras[query])
    allowed: Integers = rows[other]
    return allowed


def plane_coordinates(embeddings: Array, *, seed: int, most: int | None = None) -> dict[str, list[list[float]]]:
    """Way of drawing -> the place of each row in the plane: a 2-D embedding as it is, else by PCA and, if it
    has more dimensions and items that differ, by t-SNE.

    Args:
        most: rows up to which t-SNE draws them; None for any number.
    """
    points = embeddings.astype(np.float64)
    if points.shape[1] == 2:
        coordinates = {"as is": points}
    else:
        coordinates = {"PCA": _plane(points)}
        many = most is not None and len(points) > most
        if points.shape[1] > 2 and len(points) > 10 and not many and np.ptp(points, axis=0).any():
            coordinates["t-SNE"] = _t_sne(points, seed)
    return {name: np.round(xy, 4).tolist() for name, xy in coordinates.items()}


def _t_sne(points: Array, seed: int) -> Array:
    """The map of t-SNE `(N, 2)`, which begins with that of PCA."""
    from sklearn.manifold import TSNE  # takes a second to load

    perplexity = min(30, (len(points) - 1) // 3)
    drawing: Array = TSNE(perplexity=perplexity, init="pca", random_state=seed, max_iter=ITERATIONS).fit_transform(
        points
    )
    return drawing


def _plane(points: Array) -> Array:
    """The first two principal components `(N, 2)`; the second is 0 for one-dimensional points."""
    centred = points - points.mean(axis=0)
    _, _, axes = np.linalg.svd(centred, full_matrices=False)
    plane = centred @ axes[:2].T
    return np.pad(plane, ((0, 0), (0, 2 - plane.shape[1])))
