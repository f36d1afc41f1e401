"""Relations: who belongs with whom. Classes, tags, pairs of two sides, grades of relevance, or a rule of one's own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from typing import Any, ClassVar, Literal, Self
from zlib import crc32

import numpy as np
import numpy.typing as npt
import torch
from scipy import sparse
from torch import Tensor
from torch.nn.functional import normalize, pad

from trivet.mining.adjacency import Adjacency, ClassAdjacency, MatrixAdjacency, UnlabelledAdjacency

__all__ = ["Classes", "Grades", "Guided", "Pairs", "Relation", "Tags"]

Rows = Tensor | npt.NDArray[Any] | slice | Sequence[int]
Match = Literal["any", "all"] | float
Grade = Callable[[Tensor, Tensor], Tensor]


class Relation(ABC):
    """N items, and a rule by which any two of them belong together, or do not, or neither.

    It stands wherever labels do. The rule knows items by numbers, `items`; `relation[rows]` are some of the items under
    the same rule, such as those of a batch. It must be symmetric. A rule of one's own sets `items` and gives
    `positive`, and `ignored` if some pairs are to count neither as positives nor as negatives.

    Attributes:
        items: `(N,)` int64.
        signature: a checksum of the rule, by which processes that share a batch know whether they have the same.
        advice: what a batch needs, for a warning.

    Example:
        >>> import trivet
        >>> class Near(trivet.Relation):
        ...     def __init__(self, years):
        ...         self.years, self.items = torch.tensor(years), torch.arange(len(years))
        ...
        ...     def positive(self, anchors, others):
        ...         return (self.years[anchors][:, None] - self.years[others]).abs() <= 1
        ...
        ...     def ignored(self, anchors, others):
        ...         return (self.years[anchors][:, None] - self.years[others]).abs() == 2
        >>> near = Near([2001, 2002, 2003, 2009])
        >>> trivet.ContrastiveLoss(margin=1.0, reduction="sum")(torch.tensor([[0.0], [1.0], [2.0], [2.5]]), near)
        tensor(5.5000)
    """

    items: Tensor
    signature: int = 0
    advice: ClassVar[str] = "draw items that belong together into each batch"

    @abstractmethod
    def positive(self, anchors: Tensor, others: Tensor) -> Tensor:
        """Return which of the items `others (M,)` belong to each of `anchors (B,)`, `(B, M)` bool."""

    def ignored(self, anchors: Tensor, others: Tensor) -> Tensor | None:
        """Return which are neither positives nor negatives, `(B, M)` bool; None if none."""
        return None

    def relevance(self, anchors: Tensor, others: Tensor) -> Tensor:
        """Grades `(B, M)` float64 of how much each belongs to each; by default 1 for positives, else 0."""
        return self.positive(anchors, others).double()

    def compared(self, anchors: Tensor, others: Tensor) -> tuple[Tensor, Tensor]:
        """Return which are positives, and which are no negatives: positives or ignored, `(B, M)` bool each."""
        positive, ignored = self.positive(anchors, others), self.ignored(anchors, others)
        return positive, positive if ignored is None else positive | ignored

    def compare(self, items: Tensor, others: Tensor) -> Adjacency:
        """The comparison of the items of a batch with its references."""
        return MatrixAdjacency(self.compared, items, others)

    def numbers(self, items: Tensor) -> Tensor:
        """The numbers `(K,)` of the classes or tags of some items, for what is learned of each.

        Raises:
            ValueError: of a relation that has none.
        """
        raise ValueError(
            f"labels must be classes or tags, as something is learned for each: got {type(self).__name__}; "
            "use another loss."
        )

    def alone(self, numbers: Tensor) -> Relation:
        """Items of which each has one of these classes or tags `(K,)`, such as proxies.

        Raises:
            ValueError: as `numbers`.
        """
        self.numbers(self.items)
        raise NotImplementedError(f"{type(self).__name__} must give the items of a number each, as it has numbers.")

    def joined(self, other: Relation) -> tuple[Relation, Tensor]:
        """A relation that knows the items of both, those of this one by their numbers, and the numbers of the others.

        Raises:
            ValueError: if their rules differ.
        """
        mine, theirs = self.__dict__, other.__dict__
        if type(self) is not type(other) or any(mine[name] is not theirs.get(name) for name in mine if name != "items"):
            raise ValueError(
                f"labels and reference_labels must follow one rule: got {type(self).__name__} and "
                f"{type(other).__name__} made separately; make one of all items, and take the rows of each with "
                "relation[rows]."
            )
        return self, other.items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, rows: Rows) -> Self:
        if not isinstance(rows, slice):
            rows = torch.as_tensor(rows, device=self.items.device)
        return self.with_items(self.items[rows])

    def to(self, device: torch.device | str) -> Self:
        """The same with its numbers on another device."""
        return self.with_items(self.items.to(device))

    def with_items(self, items: Tensor) -> Self:
        """The same rule for other items, by their numbers."""
        other = copy(self)
        other.items = items
        return other


class Classes(Relation):
    """Items of one class belong together, all others do not. Integer labels mean this.

    Args:
        labels: `(N,)` integer.
    """

    advice = "draw at least two of each class, for instance with PKBatches"

    def __init__(self, labels: Tensor) -> None:
        self.items = labels

    def positive(self, anchors: Tensor, others: Tensor) -> Tensor:
        return anchors[:, None] == others

    def compare(self, items: Tensor, others: Tensor) -> Adjacency:
        return ClassAdjacency(items, others)

    def numbers(self, items: Tensor) -> Tensor:
        return items

    def alone(self, numbers: Tensor) -> Relation:
        return Classes(numbers)


class Unlabelled(Classes):
    """Items of which nothing is known, as where indices alone say what is compared: each is a class of its own.

    Args:
        count: N.
        first: the number of the first.
    """

    def __init__(self, count: int, first: int = 0) -> None:
        super().__init__(first + torch.arange(count))

    def compare(self, items: Tensor, others: Tensor) -> Adjacency:
        return UnlabelledAdjacency(items, others)


class _Compared(Relation):
    """A relation that finds positives and what is no negative at once."""

    @abstractmethod
    def compared(self, anchors: Tensor, others: Tensor) -> tuple[Tensor, Tensor]:
        """Return which are positives, and which are no negatives, `(B, M)` bool each."""

    def positive(self, anchors: Tensor, others: Tensor) -> Tensor:
        return self.compared(anchors, others)[0]

    def ignored(self, anchors: Tensor, others: Tensor) -> Tensor | None:
        positive, neutral = self.compared(anchors, others)
        return neutral & ~positive


class _Carried(_Compared):
    """Items that belong together by what they carry: tags, or pairs.

    Attributes:
        incidence: `(K, T)` of 0 and 1, which of T things each of K numbers carries.
    """

    incidence: sparse.csr_array

    def _carry(self, incidence: sparse.csr_array) -> None:
        most = np.diff(incidence.indptr).max(initial=0)  # counts of what is shared are bytes where that is enough
        self.incidence = incidence.astype(np.uint8 if most < 2**8 else np.int32)
        self.signature = _signature(*_arrays(incidence))

    def rows(self, items: Tensor) -> sparse.csr_array:
        """Rows `(B, T)` of the incidence, of these items."""
        return self.incidence[items.cpu().numpy()]

    def shared(self, anchors: Tensor, others: Tensor) -> Tensor:
        """Return how many things each two items share, `(B, M)` uint8 or int32."""
        rows = self.rows(anchors)
        carried = np.unique(rows.indices)
        of_others = np.ascontiguousarray(
            self.rows(others)[:, carried].toarray().T
        )  # a sparse one takes five times as long
        return torch.from_numpy(rows[:, carried] @ of_others).to(anchors.device)


class Tags(_Carried):
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
        self._carry(sparse.vstack([matrix, sparse.eye_array(matrix.shape[1], dtype=np.uint8)], format="csr"))
        self.items = torch.arange(matrix.shape[0])  # the numbers after these carry one tag each

    def compared(self, anchors: Tensor, others: Tensor) -> tuple[Tensor, Tensor]:
        shared = self.shared(anchors, others)
        shares = shared > 0
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

    def _least_shared(self, first: Tensor, second: Tensor) -> Tensor:
        """The least number of shared tags that a positive needs, by how many tags two items have in all."""
        index = 1.0 if self.match == "all" else float(self.match)
        most = sum(int(sizes.amax()) for sizes in (first, second) if len(sizes))
        total = torch.arange(most + 1, device=first.device, dtype=torch.float64)
        least = (total * index / (1 + index)).floor()  # or the next, as a quotient of whole numbers decides
        return least + (least / (total - least).clamp_min(1) < index)

    def relevance(self, anchors: Tensor, others: Tensor) -> Tensor:
        """The Jaccard index of the tags of each two items, `(B, M)` float64; 0 where neither has any."""
        shared = self.shared(anchors, others).double()
        return shared / (self._sizes(anchors)[:, None] + self._sizes(others) - shared).clamp_min(1)

    def _sizes(self, items: Tensor) -> Tensor:
        return torch.from_numpy(np.diff(self.rows(items).indptr)).to(items.device)

    def numbers(self, items: Tensor) -> Tensor:
        return torch.from_numpy(self.rows(items).indices).to(items.device, torch.int64)

    def alone(self, numbers: Tensor) -> Relation:
        items, tags = self.incidence.shape
        return self.with_items(items - tags + numbers)

    def joined(self, other: Relation) -> tuple[Relation, Tensor]:
        alike = isinstance(other, Tags) and other.match == self.match and np.array_equal(other.names, self.names)
        if not isinstance(other, Tags) or not alike or other.incidence is self.incidence:
            return super().joined(other)
        both = self.with_items(torch.arange(len(self), device=self.items.device))
        both._carry(sparse.vstack([self.rows(self.items), other.rows(other.items)], format="csr"))
        return both, len(self) + torch.arange(len(other), device=self.items.device)


class Pairs(_Carried):
    """Two sides whose rows belong together: queries and documents, images and texts.

    Row i of the left side belongs to row i of the right one, and any listed pairs belong together besides. All other
    rows of the other side are negatives; rows of one side are not compared. Rows of equal content are one item: what
    belongs to one of them belongs to all.

    Args:
        left, right: the contents of each side, `(L,)` and `(R,)` values that sort, such as texts, paths or numbers; or
            how many rows there are, if none comes twice.
        listed: further pairs `(P, 2)` of row numbers, left and right.
        aligned: whether row i belongs to row i; then both sides have as many.

    Attributes:
        left, right: the two sides, each a relation `(L,)` and `(R,)`; the pairs themselves are both, one after another.

    Raises:
        ValueError: if aligned sides differ in length, or a listed row does not exist.

    Example:
        >>> pairs = Pairs(["a", "b", "a"], ["x", "y", "z"])
        >>> pairs.left.positive(pairs.left.items, pairs.right.items)
        tensor([[ True, False,  True],
                [False,  True, False],
                [ True, False,  True]])
    """

    advice = "draw both rows of a pair into each batch"

    def __init__(
        self,
        left: int | Sequence[Any],
        right: int | Sequence[Any],
        listed: Sequence[tuple[int, int]] | Tensor | npt.NDArray[Any] = (),
        *,
        aligned: bool = True,
    ) -> None:
        sides = [_numbered(side) for side in (left, right)]
        sizes = [len(side) for side in sides]
        if aligned and sizes[0] != sizes[1]:
            raise ValueError(
                f"left and right must have as many rows, as row i belongs to row i: got {sizes[0]} and {sizes[1]}; "
                "pass aligned=False and the pairs as listed."
            )
        further = np.asarray(listed, dtype=np.int64).reshape(-1, 2)
        if len(further) and ((further < 0) | (further >= sizes)).any():
            raise ValueError(
                f"listed must hold rows of left in [0, {sizes[0]}) and of right in [0, {sizes[1]}): got "
                f"{further.min(axis=0).tolist()} to {further.max(axis=0).tolist()}."
            )
        contents = [int(side.max()) + 1 if len(side) else 0 for side in sides]
        rows = np.concatenate([np.repeat(np.arange(sizes[0] if aligned else 0)[:, None], 2, axis=1), further])
        ends = np.stack([sides[0][rows[:, 0]], sides[1][rows[:, 1]] + contents[0]], axis=1)
        ends = np.unique(ends, axis=0)
        offsets = np.repeat(np.arange(len(ends)), 2)
        carried = np.ones(ends.size, dtype=np.uint8)
        self._carry(sparse.csr_array((carried, (ends.ravel(), offsets)), shape=(sum(contents), len(ends))))
        self.first_of_right = contents[0]
        self.items = torch.from_numpy(np.concatenate([sides[0], sides[1] + contents[0]]))

    @property
    def left(self) -> Self:
        return self.with_items(self.items[self.items < self.first_of_right])

    @property
    def right(self) -> Self:
        return self.with_items(self.items[self.items >= self.first_of_right])

    def compared(self, anchors: Tensor, others: Tensor) -> tuple[Tensor, Tensor]:
        within = (anchors < self.first_of_right)[:, None] == (others < self.first_of_right)
        positive = self.shared(anchors, others) > 0
        if not within.any():
            return positive, positive
        return positive & ~within, positive | within


class Grades(_Compared):
    """Items by grades of relevance: positives from a grade on, negatives below one, ignored in between.

    Args:
        relevance: a symmetric matrix `(K, K)`, dense or sparse (scipy), or a symmetric function of the numbers of
            anchors `(B,)` and others `(M,)`, int64 tensors, that gives `(B, M)`. With `sides`, a matrix `(L, R)` of
            the grades of two sides, whose rows are not compared with their own.
        positive: the least grade of a positive.
        negative: grades below it are negatives; None takes `positive`, so that nothing is ignored.
        items: `(N,)` the numbers of the items in the matrix or for the function, such as their classes; None takes all
            of the matrix.
        sides: whether the rows and the columns of the matrix are two sides.

    Attributes:
        left, right: the items of the rows and of the columns, with `sides`.

    Raises:
        ValueError: if the matrix is not symmetric, has a number that is not finite, or the grades are not in order.

    Example:
        >>> grades = Grades([[1.0, 0.5, 0.0], [0.5, 1.0, 0.0], [0.0, 0.0, 1.0]], positive=1.0, negative=0.5)
        >>> classes = grades[[0, 0, 1, 2]]  # two items of class 0, one of 1 and one of 2
        >>> classes.positive(classes.items[:1], classes.items), classes.ignored(classes.items[:1], classes.items)
        (tensor([[ True,  True, False, False]]), tensor([[False, False,  True, False]]))
    """

    advice = "draw items that are relevant to each other into each batch"

    def __init__(
        self,
        relevance: object,
        *,
        positive: float,
        negative: float | None = None,
        items: Tensor | None = None,
        sides: bool = False,
    ) -> None:
        self.least_positive, self.least_ignored = positive, positive if negative is None else negative
        if not self.least_ignored <= positive:
            raise ValueError(
                f"negative must not exceed positive, {positive}: got {negative}; grades below it are none."
            )
        self.first_of_right = 0
        self.grade: Grade
        if callable(relevance):
            if items is None or sides:
                raise ValueError(
                    "items must be given for a function of relevance, and no sides: pass the numbers of the items it "
                    "knows, such as torch.arange(n)."
                )
            self.grade = relevance
        else:
            matrix = _grades(relevance, symmetric=not sides)
            self.signature = _signature(*_arrays(matrix))
            self.first_of_right = matrix.shape[0] if sides else 0
            self.grade = _of_sides(matrix) if sides else _of_matrix(matrix)
            if items is None:
                items = torch.arange(matrix.shape[0] + (matrix.shape[1] if sides else 0))
        self.items = items

    @property
    def left(self) -> Self:
        return self.with_items(self.items[self.items < self.first_of_right])

    @property
    def right(self) -> Self:
        return self.with_items(self.items[self.items >= self.first_of_right])

    def relevance(self, anchors: Tensor, others: Tensor) -> Tensor:
        """The grades `(B, M)` float64; NaN within a side."""
        return self.grade(anchors, others).double()

    def compared(self, anchors: Tensor, others: Tensor) -> tuple[Tensor, Tensor]:
        grades = self.relevance(anchors, others)
        return grades >= self.least_positive, ~(grades < self.least_ignored)  # within a side there is none


class Guided(_Compared):
    """A relation without the negatives that a guide finds more similar than a positive, which may be false ones.

    They are ignored. For an anchor without a positive among the references all negatives count.

    Args:
        relation: of N items.
        vectors: `(N, g)` of its items by the guide, such as a larger encoder; compared by cosine similarity. For the
            `Pairs` of two sides those of the left side, then those of the right one.
        margin: how much less similar than its least similar positive an anchor's negative may be to be ignored; with a
            negative number, how much more similar it must be.

    Source:
        Solatorio, "GISTEmbed: Guided In-sample Selection of Training Negatives for Text Embedding Fine-tuning", 2024;
        there each anchor has one positive and the margin is 0.

    Example:
        >>> guide = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.9, 0.4], [0.0, 1.0]])
        >>> guided = Guided(Classes(torch.tensor([0, 0, 1, 1])), guide)
        >>> guided.ignored(guided.items[:1], guided.items)  # 0.91 to the third, 0.8 to the positive
        tensor([[False, False,  True, False]])
    """

    def __init__(self, relation: Relation, vectors: Tensor, margin: float = 0.0) -> None:
        if len(vectors) != len(relation):
            raise ValueError(
                f"vectors must hold one row for each item of the relation: got {len(vectors)} for {len(relation)}."
            )
        self.relation, self.margin, self.items = relation, margin, torch.arange(len(relation))
        self.vectors = normalize(vectors.detach().cpu().double(), dim=1)
        self.signature = _signature(self.vectors.numpy(), np.array([relation.signature]))
        self.advice = relation.advice  # type: ignore[misc]

    def compared(self, anchors: Tensor, others: Tensor) -> tuple[Tensor, Tensor]:
        numbers = self.relation.items.to(anchors.device)
        positive, neutral = self.relation.compared(numbers[anchors], numbers[others])
        guide = self.vectors.to(anchors.device)
        similarity = (guide[anchors] @ guide[others].T).float()  # rounded, so that equal ones are equal
        least = pad(similarity.masked_fill(~positive, torch.inf), (0, 1), value=torch.inf).amin(dim=1, keepdim=True)
        return positive, neutral | (similarity > least - self.margin)


def _arrays(matrix: Tensor | sparse.csr_array) -> tuple[npt.NDArray[Any], ...]:
    """The arrays that a matrix consists of."""
    if isinstance(matrix, Tensor):
        return (matrix.numpy(),)
    return matrix.data, matrix.indices, matrix.indptr


def _signature(*arrays: npt.NDArray[Any]) -> int:
    checksum = 0
    for array in arrays:
        checksum = crc32(np.ascontiguousarray(array).data, crc32(repr(array.shape).encode(), checksum))
    return checksum


def _incidence(tags: Any) -> tuple[sparse.csr_array, npt.NDArray[Any]]:
    """Incidence `(N, T)` of items and tags, and the tags."""
    if isinstance(tags, Tensor):
        coordinates: Tensor = tags.detach().cpu().to_sparse_coo().coalesce()  # type: ignore[no-untyped-call]
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


def _numbered(side: int | Sequence[Any]) -> npt.NDArray[np.int64]:
    """The number of the content of each row."""
    if isinstance(side, int):
        return np.arange(side)
    return np.unique(np.asarray(side), return_inverse=True)[1].astype(np.int64)


def _grades(relevance: object, *, symmetric: bool) -> Tensor | sparse.csr_array:
    matrix = sparse.csr_array(relevance) if sparse.issparse(relevance) else torch.as_tensor(np.asarray(relevance))
    if matrix.ndim != 2 or (symmetric and matrix.shape[0] != matrix.shape[1]):
        kind = "a square matrix (K, K)" if symmetric else "a matrix (L, R)"
        raise ValueError(
            f"relevance must be {kind}, or a function: got shape {tuple(matrix.shape)}; pass sides=True if rows and "
            "columns are items of two kinds."
        )
    values = matrix.data if isinstance(matrix, sparse.csr_array) else matrix.numpy()
    if not np.isfinite(values).all():
        raise ValueError("relevance must be finite: got a number that is not; give 0 to what is not relevant.")
    if symmetric:
        differs = (matrix != matrix.T).sum() if isinstance(matrix, sparse.csr_array) else (matrix != matrix.T).any()
        if differs:
            raise ValueError(
                "relevance must be symmetric: got a matrix that differs from its transpose; take the mean of both, or "
                "pass sides=True if rows and columns are items of two kinds."
            )
    return matrix


def _of_matrix(matrix: Tensor | sparse.csr_array) -> Grade:
    if isinstance(matrix, sparse.csr_array):
        return lambda anchors, others: torch.from_numpy(
            matrix[anchors.cpu().numpy()][:, others.cpu().numpy()].toarray()
        ).to(anchors.device)
    tables = {matrix.device: matrix}  # on each device that asks

    def grade(anchors: Tensor, others: Tensor) -> Tensor:
        table = tables.setdefault(anchors.device, matrix.to(anchors.device))
        return table[anchors[:, None], others]

    return grade


def _of_sides(matrix: Tensor | sparse.csr_array) -> Grade:
    """Grades of the rows, numbered first, and the columns after them; NaN within a side."""
    rows, grade = matrix.shape[0], _of_matrix(matrix)

    def of_sides(anchors: Tensor, others: Tensor) -> Tensor:
        grades = torch.full((len(anchors), len(others)), torch.nan, dtype=torch.float64, device=anchors.device)
        left, other_left = anchors < rows, others < rows
        for first, second, turned in ((left, ~other_left, False), (~left, other_left, True)):
            if first.any() and second.any():
                a, b = anchors[first], others[second]
                block = grade(b, a - rows).T if turned else grade(a, b - rows)
                grades[first.nonzero(), second.nonzero()[:, 0]] = block.double()
        return grades

    return of_sides
