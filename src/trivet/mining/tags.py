"""Tags: items with any number of labels."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from scipy import sparse
from torch import Tensor

from trivet.mining.carried import CarriedRelation
from trivet.mining.relations import Relation

Match = Literal["any", "all"] | float


class Tags(CarriedRelation):
    """Items with any number of tags; two belong together by the tags that they share, and do not if they share none.

    Args:
        tags: of N items: a matrix `(N, T)` of 0 and 1, dense or sparse (scipy, torch), or a list with the tags of
            each, any values that sort. An item without tags shares none with any.
        match: "any" shared tag makes a positive; "all" needs equal tags; a number in (0, 1] needs a Jaccard index of
            that much, shared tags over those that either has. What shares a tag but is no positive is ignored.

    Attributes:
        names: `(T,)` array of the tags: the values in order, or the numbers of the columns.

    Raises:
        ValueError: if the matrix is none of 0 and 1, or `match` no such choice.

    Example:
        >>> tags = Tags([["red", "round"], ["red"], ["blue", "round"]], match=0.5)
        >>> tags.positive(tags.items[:2], tags.items)
        tensor([[ True,  True, False],
                [ True,  True, False]])
        >>> tags.ignored(tags.items[:2], tags.items)
        tensor([[False, False,  True],
                [False, False, False]])
    """

    advice = "draw items that share tags into each batch"

    def __init__(self, tags: object, match: Match = "any") -> None:
        if match not in ("any", "all") and not (isinstance(match, float | int) and 0 < match <= 1):
            raise ValueError(f"match must be 'any', 'all' or a Jaccard index in (0, 1]: got {match!r}.")
        self.match = match
        matrix, self.names = _incidence(tags)
        self.carry(sparse.vstack([matrix, sparse.eye_array(matrix.shape[1], dtype=np.uint8)], format="csr"))
        self.items = torch.arange(matrix.shape[0])  # the numbers after these carry one tag each

    def compared(self, anchors: Tensor, others: Tensor) -> tuple[Tensor, Tensor]:
        shared = self.shared(anchors, others)
        shares = shared.bool()
        if self.match == "any":
            return shares, shares
        first, second = self._sizes(anchors), self._sizes(others)
        least, sizes = self._least_shared(first, second).to(shared.dtype), np.unique(first.cpu().numpy()).tolist()
        if len(sizes) == 1:
            return shared >= least[sizes[0] + second], shares
        positive = torch.empty_like(shares)
        for size in sizes:  # mostly few
            rows = first == size
            positive[rows] = shared[rows] >= least[size + second]
        return positive, shares

    def with_positives(self) -> Tensor:
        if self.match != "all":
            return super().with_positives()
        numbers = self.partition
        repeated = torch.bincount(numbers)[numbers] > 1
        return (repeated & (self._sizes(self.items) > 0)).nonzero()[:, 0]

    @property
    def partition(self) -> Tensor:
        carried = self.rows(self.items)
        carried.sort_indices()
        first: dict[bytes, int] = {}
        sets = (tags.tobytes() for tags in np.split(carried.indices, carried.indptr[1:-1]))
        numbers = [first.setdefault(tags, len(first)) for tags in sets][: len(self)]
        return torch.tensor(numbers, dtype=torch.int64, device=self.items.device)

    def least_shared(self, anchors: Tensor) -> npt.NDArray[np.float64]:
        least: npt.NDArray[np.float64] = np.ceil((1 - 1e-9) * self._index * self._sizes(anchors).cpu().numpy())
        return least

    def positive_by_shared(self, anchors: Tensor, others: Tensor, shared: Tensor) -> Tensor:
        if self.match == "any":
            return shared > 0
        first, second = self._sizes(anchors), self._sizes(others)
        return shared >= self._least_shared(first, second)[first + second]

    def _least_shared(self, first: Tensor, second: Tensor) -> Tensor:
        """The least number of shared tags that a positive needs, by how many tags two items have in all."""
        index = self._index
        most = sum(int(sizes.amax()) for sizes in (first, second) if len(sizes))
        total = torch.arange(most + 1, device=first.device, dtype=torch.float64)
        least = (total * index / (1 + index)).floor()  # or the next, as a quotient of whole numbers decides
        return least + (least / (total - least).clamp_min(1) < index)

    def relevance(self, anchors: Tensor, others: Tensor) -> Tensor:
        """The Jaccard index of the tags of each two items, `(B, M)` float64; 0 where neither has any."""
        shared = self.shared(anchors, others).double()
        return shared / (self._sizes(anchors)[:, None] + self._sizes(others) - shared).clamp_min(1)

    @property
    def _index(self) -> float:
        """The least Jaccard index of a positive."""
        return {"any": 0.0, "all": 1.0}[self.match] if isinstance(self.match, str) else self.match

    def _sizes(self, items: Tensor) -> Tensor:
        return torch.from_numpy(np.diff(self.incidence.indptr)[items.cpu().numpy()]).to(items.device)

    def numbers(self, items: Tensor) -> Tensor:
        return torch.from_numpy(self.rows(items).indices).to(items.device, torch.int64)

    def alone(self, numbers: Tensor) -> Relation:
        items, tags = self.incidence.shape
        return self.with_items(items - tags + numbers)

    def joined(self, other: Relation) -> tuple[Tags, Tensor]:
        alike = isinstance(other, Tags) and other.match == self.match and np.array_equal(other.names, self.names)
        if not isinstance(other, Tags) or not alike or other.incidence is self.incidence:
            return self, super().joined(other)[1]
        both = self.with_items(torch.arange(len(self), device=self.items.device))
        both.carry(sparse.vstack([self.rows(self.items), other.rows(other.items)], format="csr"))
        return both, len(self) + torch.arange(len(other), device=self.items.device)


def _incidence(tags: Any) -> tuple[sparse.csr_array, npt.NDArray[Any]]:
    """Incidence `(N, T)` of items and tags, and the tags."""
    if isinstance(tags, Tensor):
        coordinates: Tensor = tags.detach().cpu().to_sparse_coo().coalesce()  # type: ignore[no-untyped-call]  # of torch
        tags = sparse.coo_array((coordinates.values().numpy(), coordinates.indices().numpy()), shape=tuple(tags.shape))
    if not (sparse.issparse(tags) or isinstance(tags, np.ndarray)):
        return _incidence_of_lists([_values(of_item) for of_item in tags])
    if tags.ndim != 2:
        raise ValueError(f"tags must be a matrix of 0 and 1, a row for each item: got shape {tags.shape}.")
    matrix = sparse.csr_array(tags)
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    odd = matrix.data[matrix.data != 1]
    if len(odd):
        raise ValueError(f"tags must be a matrix of 0 and 1: got {odd[0]}; compare it with a limit, as tags > 0.5.")
    return matrix.astype(np.uint8), np.arange(matrix.shape[1])


def _incidence_of_lists(lists: list[set[Any]]) -> tuple[sparse.csr_array, npt.NDArray[Any]]:
    names, numbers = np.unique(np.array([tag for of_item in lists for tag in of_item]), return_inverse=True)
    rows = np.repeat(np.arange(len(lists)), [len(of_item) for of_item in lists])
    carried = np.ones(len(rows), dtype=np.uint8)
    return sparse.csr_array((carried, (rows, numbers.astype(np.int64))), shape=(len(lists), len(names))), names


def _values(tags: object) -> set[Any]:
    if isinstance(tags, str) or not isinstance(tags, Iterable):
        raise ValueError(
            f"tags must be a list of tags for each item: got {tags!r}; split it, as {tags!r}.split(';'), or put a "
            "single tag into a list."
        )
    return set(tags)
