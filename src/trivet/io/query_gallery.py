"""Evaluation protocol: which items are queries, which are retrieved, and what a query may not retrieve."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NotRequired, TypedDict

import numpy as np
import numpy.typing as npt

from trivet.runtime.arrays import Booleans, Integers


class RetrievalArguments(TypedDict):
    """Arguments of `retrieve_levels` and `evaluate`: the queries, and the gallery where it is of other items."""

    embeddings: npt.NDArray[Any]
    labels: Mapping[str, Any]
    gallery: NotRequired[npt.NDArray[Any]]
    gallery_labels: NotRequired[Mapping[str, Any]]
    self_rows: NotRequired[Integers]
    cameras: NotRequired[Integers]
    gallery_cameras: NotRequired[Integers]


@dataclass(frozen=True, eq=False)
class QueryGallery:
    """The published way to evaluate a data set, for one evaluation split of N items.

    A query never retrieves itself. Items that are neither queries nor in the gallery are not used.

    Attributes:
        query: `(N,)` whether an item is a query.
        gallery: `(N,)` whether an item is retrieved from; an item may be both.
        junk: `(N,)` whether a gallery item is neither right nor wrong: it is taken out of every ranking.
        cameras: `(N,)` the camera of each item: a query retrieves none of its own class and camera. None without.

    Raises:
        ValueError: if these do not go together, or there is no query or nothing to retrieve.
    """

    query: Booleans
    gallery: Booleans
    junk: Booleans
    cameras: Integers | None = None

    def __post_init__(self) -> None:
        count = len(self.query)
        columns = [self.query, self.gallery, self.junk]
        if any(column.shape != (count,) or column.dtype != np.bool_ for column in columns):
            kinds = ", ".join(f"{column.dtype} {column.shape}" for column in columns)
            raise ValueError(f"query, gallery and junk must be bools of one shape (N,): got {kinds}; make them agree.")
        if self.cameras is not None and (self.cameras.shape != (count,) or self.cameras.dtype != np.int64):
            raise ValueError(
                f"cameras must be int64 of shape ({count},): got {self.cameras.dtype} of shape {self.cameras.shape}."
            )
        if not self.query.any() or not (self.gallery & ~self.junk).any():
            raise ValueError(
                f"a protocol needs a query and a gallery item that is not junk: got {int(self.query.sum())} queries "
                f"and {int((self.gallery & ~self.junk).sum())} such items; mark some."
            )

    def subset(self, index: np.ndarray) -> QueryGallery | None:
        """Protocol of the items at the positions `index (M,)`; None where no query or nothing to retrieve is left."""
        query, gallery, junk = self.query[index], self.gallery[index], self.junk[index]
        if not query.any() or not (gallery & ~junk).any():
            return None
        cameras = None if self.cameras is None else self.cameras[index]
        return replace(self, query=query, gallery=gallery, junk=junk, cameras=cameras)

    @property
    def retrieved(self) -> Integers:
        """Positions `(M,)` of the gallery items that are not junk."""
        return np.flatnonzero(self.gallery & ~self.junk)

    def arguments(self, embeddings: npt.NDArray[Any], labels: Mapping[str, Any]) -> RetrievalArguments:
        """Arguments of `retrieve_levels` and `evaluate` for this protocol, from all N embeddings and labels, of which
        a relation takes rows as an array does."""
        queries, retrieved = np.flatnonzero(self.query), self.retrieved
        position = np.full(len(self.query), -1)
        position[retrieved] = np.arange(len(retrieved))
        arguments: RetrievalArguments = {
            "embeddings": embeddings[queries],
            "labels": {level: values[queries] for level, values in labels.items()},
            "gallery": embeddings[retrieved],
            "gallery_labels": {level: values[retrieved] for level, values in labels.items()},
            "self_rows": position[queries],
        }
        if self.cameras is not None:
            arguments["cameras"], arguments["gallery_cameras"] = self.cameras[queries], self.cameras[retrieved]
        return arguments

    def related(self, labels: Integers) -> Integers:
        """Positions of the queries, and of the retrieved items of a query's class: without junk and distractors.

        Args:
            labels: `(N,)` classes.
        """
        known = np.isin(labels, labels[self.query])
        return np.flatnonzero(self.query | (known & self.gallery & ~self.junk))

    def unanswered(self, labels: Integers) -> Integers:
        """The classes of queries that have nothing to retrieve: none of their items is in the gallery.

        Args:
            labels: `(N,)` classes.
        """
        return np.setdiff1d(labels[self.query], labels[self.retrieved])

    def counts(self) -> dict[str, int | bool]:
        """Numbers of queries and gallery items, how many of these are junk, and whether cameras count."""
        return {
            "queries": int(self.query.sum()),
            "gallery": len(self.retrieved),
            "junk": int((self.gallery & self.junk).sum()),
            "cameras": self.cameras is not None,
        }
