"""A faiss index of embeddings: exact, or approximate with its recall measured; arrays in, nearest rows out."""

from __future__ import annotations

import errno
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import torch

from trivet.distances import Array
from trivet.io.atomic_files import atomic_file
from trivet.knn import codes
from trivet.knn.index_checks import check_stored
from trivet.knn.kinds import IndexKind, Kind
from trivet.knn.whitening import read_whitening, whitened, write_whitening
from trivet.metrics.points import Metric, Points, spans
from trivet.models.linear_map import LinearMap
from trivet.runtime.arguments import check_count, check_name
from trivet.runtime.arrays import Floats, Integers
from trivet.runtime.extras import load
from trivet.runtime.progress import report, work
from trivet.runtime.record import Record
from trivet.runtime.safe_read import read_json

VECTORS, DESCRIPTION = "index.faiss", "index.json"
ROWS = "vectors.npy"  # what an index of codes is of
LISTS = ("ivf", "ivf-pq")

EXACT_ROWS, HNSW_ROWS = 100_000, 1_000_000  # "auto": exact up to the first, hnsw up to the second, ivf beyond
LINKS, EF_CONSTRUCTION, EF_SEARCH = 32, 200, 128
NPROBE = 8
ROWS_PER_LIST = 64  # training rows of each inverted list; faiss asks for 39 or more
SAMPLE, NEAREST, ENOUGH = 1000, 10, 0.95  # recall@10 of up to 1,000 rows
FAR = 1e15  # spreads of the index, whose square has a place in float32
SPARE = 16  # candidates beyond k, which float64 distances put in order
# faiss compares up to 19 queries at a time by differences, more by products, which lose the digits of near-duplicates.
QUERIES = 16
CACHED = 2**16  # numbers of candidates that are compared at once: half a MiB, which stays in a cache
LINKED = 2048  # rows that join an hnsw graph at once: some seconds on one thread


@dataclass(frozen=True, eq=False)
class Nearest:
    """The k nearest rows of each query, nearest first; fields `(Q, k)`. Where fewer were found: row -1 at infinity."""

    indices: Integers
    distances: Floats


class IndexInfo(Record):
    """Description of an index.

    Attributes:
        distance: "euclidean", or "cosine" (1 - cosine similarity).
        dimension, items: d and N of the embeddings.
        kind: "exact" compares with every row; "hnsw" walks a graph of neighbours; "ivf" looks into the nearest lists;
            "int8" and "binary" compare with the short code of every row, "ivf-pq" with those in the nearest lists, and
            rank what they find by the rows themselves, which lie on disk.
        parameters: hnsw: M, efConstruction, efSearch; ivf: nlist, nprobe, training_rows; of codes bytes, of a code, and
            candidates, for each of up to 10 neighbours that are asked for; ivf-pq: all of these; exact: none.
        seed: of the training rows of lists and codes and of the rows that recall is measured on.
        recall: recall@`recall_at` of the search against the exact one, 1 for an exact index.
        recall_at: the 10 of recall@10, or N - 1 if that is less.
        recall_queries: the number of rows it was measured on.
        recall_items: N as it was then: without the rows that were added since.
        tried: the efforts that were measured, least first: efSearch, nprobe or candidates, and their recall.
    """

    distance: Metric
    dimension: int
    items: int
    kind: Kind
    parameters: dict[str, int]
    seed: int
    recall: float
    recall_at: int
    recall_queries: int
    recall_items: int
    tried: list[dict[str, float]]


class IndexFile(IndexInfo):
    """Contents of `index.json`: the description of an index, and what of it is not in the other file."""

    format: Literal[1]
    scale: float
    centre: list[float]
    removed: list[int]
    whitened: bool
    about: dict[str, Any]


@dataclass(frozen=True, eq=False)
class Index:
    """Embeddings that can be searched; made by `build_index` or `Index.load`.

    It holds (point - centre) / scale in float32, where the points are the embeddings, or for "cosine" their directions
    as in `metrics.points.Points`. The centre keeps the digits of a nearly collapsed embedding. Distances are computed
    in float64 from these, by differences; their error is about 1e-7 of the largest distance from the centre.

    Attributes:
        centre: `(width,)` float64, the mean of the points.
        scale: the largest coordinate of a point less the centre; 1 if all points are 0.
        about: whatever its maker wants to keep beside it, JSON values.
        removed: sorted numbers of rows that no search finds any more.
        stored: of an index of codes, the rows `(n, width)` of row numbers `(n,)`, as an exact index would hold them.
        whitening: the map, from d dimensions to d, that embeddings and queries go through first; for cosine, their
            directions.
    """

    info: IndexInfo
    centre: Floats
    scale: float
    faiss: Any
    about: Mapping[str, Any] = field(default_factory=dict)
    removed: Integers = field(default_factory=lambda: np.empty(0, np.int64))
    stored: Callable[[Integers], npt.NDArray[np.float32]] | None = None
    whitening: LinearMap | None = None

    def __len__(self) -> int:
        return self.info.items

    def search(self, queries: Array, k: int, *, leave_out: Sequence[int] | npt.NDArray[Any] | None = None) -> Nearest:
        """The k nearest rows of each query; equal distances by lowest row.

        Args:
            queries: `(Q, d)` floating point, not normalized.
            k: at least 1; beyond the rows there are, all of them.
            leave_out: `(Q,)` the row number that each query must not find, -1 for none.

        Raises:
            ValueError: if the queries do not fit the index or a row of them is not finite, or `k` or `leave_out` is out
                of range.
        """
        inside, without = self.checked(queries, leave_out)
        return self._measured(*self.nearest(inside, k, without))

    def checked(
        self, queries: Array, leave_out: Sequence[int] | npt.NDArray[Any] | None = None
    ) -> tuple[npt.NDArray[np.float32], Integers]:
        """Queries `(Q, d)` as rows of the index would be, and the row `(Q,)` that each must not find, -1 for none."""
        inside = self._queries(queries)
        without = np.full(len(inside), -1) if leave_out is None else np.asarray(leave_out)
        if without.shape != (len(inside),) or not np.isin(without, np.arange(-1, len(self))).all():
            raise ValueError(
                f"leave_out must hold a row number below {len(self)}, or -1, for each of the {len(inside)} queries: "
                f"got {without.tolist()[:8]}."
            )
        return inside, without

    def search_rows(self, rows: Sequence[int] | npt.NDArray[Any], k: int) -> Nearest:
        """The k nearest *other* rows of rows of the index, each left out of its own result by row number.

        Raises:
            ValueError: if a row number or `k` is out of range.
        """
        queries = np.asarray(rows, dtype=np.int64)
        if queries.ndim != 1 or (queries.size and not (queries.min() >= 0 and queries.max() < len(self))):
            raise ValueError(f"rows must be a list of row numbers from 0 to {len(self) - 1}: got {queries.tolist()}.")
        return self._measured(*self.nearest(self.rows(queries), k, queries))

    def distances(self, queries: Array, rows: Integers) -> Floats:
        """Distances `(Q, n)` from each query to rows `(Q, n)` of the index, as a search gives them; infinity for -1.

        Raises:
            ValueError: if the queries cannot be searched for.
        """
        return self._measured(rows, self.squared(self._queries(queries), rows)).distances

    def distances_of_rows(self, numbers: Integers, rows: Integers) -> Floats:
        """Distances `(Q, n)` from rows `(Q,)` of the index to rows `(Q, n)` of it, as a search gives them."""
        return self._measured(rows, self.squared(self.rows(numbers), rows)).distances

    @property
    def bytes_per_item(self) -> int:
        """Bytes of each row that a search reads: its numbers or code, its number in a list, its links in a graph."""
        numbers = 4 * len(self.centre)
        links = 2 * 4 * self.info.parameters.get("M", 0)  # in the lowest layer, which nearly all rows have alone
        listed = 8 if self.info.kind in LISTS else 0
        return self.info.parameters.get("bytes", numbers) + links + listed

    def with_recall(self, wanted: float) -> Index:
        """This index with the least effort that was measured to find a share `wanted` of the nearest.

        Raises:
            ValueError: if no effort was, or `wanted` is no share.
        """
        _check_share(wanted)
        info = self.info
        if info.recall >= wanted and not info.tried:
            return self
        enough = next((attempt for attempt in info.tried if attempt["recall"] >= wanted), None)
        if enough is None:
            best = max([attempt["recall"] for attempt in info.tried] or [info.recall])
            raise ValueError(
                f"the recall of a search must be one that the index was measured to reach, at most {best:.4g}: got "
                f"{wanted}; index the embeddings again with --recall {wanted}."
            )
        parameters = {**info.parameters, **{name: int(value) for name, value in enough.items() if name != "recall"}}
        return replace(self, info=info.model_copy(update={"parameters": parameters, "recall": enough["recall"]}))

    def rows(self, numbers: Integers) -> npt.NDArray[np.float32]:
        """The rows `(n, width)` of row numbers `(n,)`, as they are in the index."""
        if self.stored is not None:
            return self.stored(numbers)
        vectors: npt.NDArray[np.float32] = self.faiss.reconstruct_batch(numbers)
        return vectors

    def extended(self, embeddings: Array) -> Index:
        """This index, which is changed, with the rows `(n, d)` of further embeddings behind its own.

        Centre, codes and lists stay those that were learned, and the recall that which was measured.

        Raises:
            ValueError: if the embeddings do not fit the index, or a row of them is not finite.
        """
        inside, number = self._queries(embeddings, name="embeddings"), len(self)
        coded = self.info.kind in codes.KINDS
        report("adding", 0, len(inside))
        for start, stop in spans(len(inside), LINKED):
            rows = inside[start:stop]
            self.faiss.add(codes.coded(rows, self.info.kind, self.info.dimension) if coded else rows)
            report("adding", stop, len(inside))
        stored = self.stored
        if stored is not None:
            of_index = stored

            def stored(numbers: Integers) -> npt.NDArray[np.float32]:
                rows = np.empty((len(numbers), inside.shape[1]), np.float32)
                earlier = numbers < number
                rows[earlier], rows[~earlier] = of_index(numbers[earlier]), inside[numbers[~earlier] - number]
                return rows

        info = self.info.model_copy(update={"items": number + len(inside)})
        return replace(self, info=info, stored=stored)

    def without(self, rows: Sequence[int] | npt.NDArray[Any]) -> Index:
        """This index without some rows, by number: they are not found any more. The numbers of the others stay."""
        removed = np.union1d(self.removed, np.asarray(rows, np.int64))
        if len(removed) and not (removed[0] >= 0 and removed[-1] < len(self)):
            raise ValueError(f"rows must be row numbers from 0 to {len(self) - 1}: got {removed.tolist()[:8]}.")
        return replace(self, removed=removed)

    def _queries(self, queries: Array, *, name: str = "queries") -> npt.NDArray[np.float32]:
        """Queries `(Q, d)`, checked, as they would be in the index."""
        points = Points(queries, distance=self.info.distance, name=name)
        if points.dimension != self.info.dimension:
            raise ValueError(
                f"{name} must have the {self.info.dimension} dimensions of the index: got {points.dimension}; embed "
                "them with the model that made the indexed embeddings, one in each row."
            )
        return self._inside(whitened(points, self.whitening).rows(slice(None)), name=name)

    def _inside(self, points: torch.Tensor, *, name: str = "queries") -> npt.NDArray[np.float32]:
        """Points `(n, width)` as they are in the index."""
        inside = (points.numpy() - self.centre) / self.scale
        if inside.size and np.abs(inside).max() > FAR:
            raise ValueError(
                f"{name} must lie within {FAR:g} times the spread of the indexed embeddings: one does not; embed "
                "them with the model that made these."
            )
        return np.ascontiguousarray(inside, dtype=np.float32)

    def nearest(self, queries: npt.NDArray[np.float32], k: int, without: npt.NDArray[Any]) -> tuple[Integers, Floats]:
        """Row numbers and squared distances `(Q, k)` of the rows nearest to some; where there is none, -1 and infinity.

        Args:
            queries: `(Q, width)`, as rows of the index.
            without: `(Q,)` the row that each must not find, -1 for none.
        """
        k = min(check_count(k, name="k"), len(self) - bool((without >= 0).all()))
        indices, squared = np.full((len(queries), k), -1), np.full((len(queries), k), np.inf)
        if not k:  # the only row is left out
            return indices, squared
        for start in range(0, len(queries), QUERIES):
            block = slice(start, start + QUERIES)
            rows = self._candidates(queries[block], k)
            rows[rows == without[block, None]] = -1
            far = self.squared(queries[block], rows)
            order = np.lexsort((rows, far))[:, :k]
            indices[block] = np.take_along_axis(rows, order, axis=1)
            squared[block] = np.take_along_axis(far, order, axis=1)
            report("searching", min(start + QUERIES, len(queries)), len(queries))
        return indices, squared

    def _candidates(self, queries: npt.NDArray[np.float32], k: int) -> Integers:
        """Rows that may be among the k nearest, and one more, `(Q, n)`; -1 where there are fewer."""
        count = k + 1 + SPARE
        kind, parameters = self.info.kind, self.info.parameters
        if kind in codes.KINDS:
            count = max(count, codes.candidates(k, parameters["candidates"], NEAREST))
            queries = codes.coded(queries, kind, self.info.dimension)
        if kind == "hnsw":  # each time: others may share what is inside
            self.faiss.hnsw.efSearch = parameters["efSearch"]
        elif kind in LISTS:
            self.faiss.nprobe = parameters["nprobe"]
        depth = count
        while True:
            candidates: Integers = self.faiss.search(queries, min(depth, len(self)))[1]
            ended = (candidates < 0).any(axis=1)  # there are no more that its lists or links lead to
            if len(self.removed):
                candidates[np.isin(candidates, self.removed)] = -1
            if depth >= len(self) or (ended | ((candidates >= 0).sum(axis=1) >= count)).all():
                return candidates
            depth *= 2

    def _measured(self, indices: Integers, squared: Floats) -> Nearest:
        """The distances that are asked for."""
        if self.info.distance == "cosine":  # between unit rows, D = 2 - 2 S
            return Nearest(indices, squared * (self.scale**2 / 2))
        return Nearest(indices, np.sqrt(squared) * self.scale)

    def squared(self, queries: npt.NDArray[np.float32], nearest: Integers) -> Floats:
        """Squared distances within the index, `(Q, n)` float64, to the rows `found (Q, n)`; infinity for row -1."""
        squared = np.full(nearest.shape, np.inf)
        pairs = np.argwhere(nearest >= 0)
        for start, stop in spans(len(pairs), max(1, CACHED // queries.shape[1])):
            query, column = pairs[start:stop].T
            points = self.rows(nearest[query, column]).astype(np.float64)
            squared[query, column] = np.square(points - queries[query]).sum(axis=1)
        return squared

    def save(self, folder: Path) -> None:
        """Write `index.faiss`, `index.json`, of an index of codes `vectors.npy`, and of a whitened one `whitening.npy`.

        Each is whole or not there.

        Raises:
            OSError: if they cannot be written.
        """
        faiss = load("faiss")
        if self.stored is not None:
            header = {"descr": "<f4", "fortran_order": False, "shape": (len(self), len(self.centre))}
            with atomic_file(folder / ROWS) as partial, partial.open("wb") as sink:
                np.lib.format.write_array_header_1_0(sink, header)
                for start, stop in spans(len(self), LINKED):
                    self.stored(np.arange(start, stop)).astype("<f4", copy=False).tofile(sink)
                    report(f"writing {ROWS}", stop, len(self))
        description = {"format": 1, **self.info.as_json(), "scale": self.scale, "centre": self.centre.tolist()}
        description |= {"removed": self.removed.tolist(), "whitened": self.whitening is not None}
        if self.whitening is not None:
            write_whitening(folder, self.whitening)
        with atomic_file(folder / VECTORS) as vectors, atomic_file(folder / DESCRIPTION) as text:
            try:
                (faiss.write_index_binary if self.info.kind == "binary" else faiss.write_index)(
                    self.faiss, str(vectors)
                )
            except RuntimeError as error:  # what faiss makes of a full disk
                raise OSError(errno.EIO, str(error).rpartition(": ")[2], str(folder / VECTORS)) from None
            text.write_text(json.dumps({**description, "about": self.about}, allow_nan=False, indent=1), "utf-8")

    @classmethod
    def load(cls, folder: Path, *, to_change: bool = False) -> Index:
        """The index that `save` wrote; its vectors stay on disk and are read where a search needs them.

        Args:
            to_change: read it into memory, so that rows can be added.

        Raises:
            ValueError: if the folder holds none, or a broken one.
        """
        faiss = load("faiss")
        file = _read_description(folder)
        info = IndexInfo(**{name: getattr(file, name) for name in IndexInfo.model_fields})
        # Inverted lists are mapped by the older flag; the newer one, of faiss 1.11, maps the other kinds.
        newer = getattr(faiss, "IO_FLAG_MMAP_IFC", faiss.IO_FLAG_MMAP)
        mapped = faiss.IO_FLAG_MMAP if info.kind in LISTS else newer
        stored: Callable[[Integers], npt.NDArray[np.float32]] | None = None
        try:
            width = info.dimension + (info.distance == "cosine")  # as many as `Points` have
            centre = np.array(file.centre, dtype=np.float64)
            if centre.shape != (width,):
                raise ValueError(f"its centre has {len(centre)} numbers where {width} belong")
            if info.kind in codes.KINDS:
                check_stored(folder / VECTORS, info.kind, info.items, codes.coded_width(info.kind, info.dimension))
                rows = codes.read_rows(folder / ROWS, info.items, width, mapped=not to_change)
                mapped |= faiss.IO_FLAG_SKIP_PRECOMPUTE_TABLE  # of ivf-pq, larger than the codes

                def stored(numbers: Integers) -> npt.NDArray[np.float32]:
                    return np.asarray(rows[numbers])
            else:
                check_stored(folder / VECTORS, info.kind, info.items, width)
            read = faiss.read_index_binary if info.kind == "binary" else faiss.read_index
            inner = read(str(folder / VECTORS), 0 if to_change else mapped | faiss.IO_FLAG_READ_ONLY)
            removed = np.array(file.removed, dtype=np.int64)
            if (np.diff(removed) < 1).any() or (len(removed) and (removed[0] < 0 or removed[-1] >= info.items)):
                raise ValueError("its removed rows are not among its rows")
            if not math.isfinite(file.scale) or file.scale <= 0 or not np.isfinite(centre).all():
                raise ValueError("its centre or scale is not finite")
        except (OSError, RuntimeError, ValueError, OverflowError) as error:
            reason = str(error).rpartition(": ")[2]
            raise ValueError(
                f"{folder / VECTORS} must hold the vectors that {DESCRIPTION} describes: {reason}; index them again."
            ) from None
        whitening = read_whitening(folder, info.dimension) if file.whitened else None
        return cls(info, centre, file.scale, inner, file.about, removed, stored, whitening)


def build_index(
    embeddings: Array,
    *,
    distance: Metric = "cosine",
    kind: IndexKind = "auto",
    recall: float | None = None,
    seed: int = 0,
    about: Mapping[str, Any] | None = None,
    whitening: LinearMap | None = None,
) -> Index:
    """Index embeddings, with parameters chosen by their number, and measure what an approximate kind misses.

    "auto" is exact up to 100,000 rows, hnsw up to 1,000,000, ivf beyond. hnsw: M = 32, efConstruction = 200, and
    efSearch from 128 up. ivf: nlist is 4 sqrt(N), but at most N / 39; k-means on 64 rows for each list, drawn by
    `numpy.random.default_rng(seed)`; nprobe from 8 up. efSearch or nprobe is doubled until recall@10 of up to 1,000
    random rows, the share of the 10 found that lie no farther than the 10th nearest, reaches `recall`, or every row is
    looked at.

    Codes, on request only: int8 has a byte for each dimension, binary a bit; ivf-pq has lists as ivf, of codes of a
    byte for 4 dimensions (for 1 below 16, 2 below 32, 8 from 256 on). 20 candidates for each of 10 neighbours, doubled
    until recall is enough; of ivf-pq, where all lists are not enough. The rows themselves, float32, stay in
    `embeddings`, or once saved in a file that is mapped.

    Args:
        embeddings: `(N, d)` floating point, N >= 1, numpy (also memory-mapped) or torch; not normalized.
        distance: "cosine" (1 - cosine similarity; a row of zeros has similarity 0 to other rows, and zeros coincide
            with zeros) or "euclidean".
        kind: or which kind to build whatever N.
        recall: above 0, up to 1; 0.95 if not given.
        seed: 0 .. 2^31 - 1. The same seed gives the same exact or ivf index; the links of hnsw also depend on how its
            threads take turns.
        about: kept with the index, JSON values.
        whitening: a map from d dimensions to d, see `Index`.

    Raises:
        ValueError: if a row is not finite, there is none, or an option is not known or out of range; or if ivf-pq has
            fewer than 10,000 rows to learn codes from.

    Source:
        Johnson, Douze, Jegou, "Billion-scale similarity search with GPUs" (ivf); Malkov, Yashunin, "Efficient and
        robust approximate nearest neighbor search using hierarchical navigable small world graphs" (hnsw).

    Example:
        >>> index = build_index(np.array([[1.0, 0.0], [0.0, 2.0], [3.0, 3.0]]))
        >>> index.search_rows([0], k=2).indices.tolist()
        [[2, 1]]
    """
    check_name(kind, get_args(IndexKind), name="kind")
    if not 0 <= seed < 2**31:
        raise ValueError(f"seed must be between 0 and 2^31 - 1: got {seed}.")
    wanted = ENOUGH if recall is None else _check_share(recall)
    points = Points(embeddings, distance=distance)
    if not len(points):
        raise ValueError("an index needs at least one row: got none; check the file that the embeddings come from.")
    by_number: Kind = "exact" if len(points) <= EXACT_ROWS else "hnsw" if len(points) <= HNSW_ROWS else "ivf"
    chosen: Kind = by_number if kind == "auto" else kind
    codes.check_rows(chosen, len(points))
    points = whitened(points, whitening)
    centre, reach = points.centre()
    scale = max(reach, float(np.abs(centre).max()) / FAR) or 1.0
    info = IndexInfo(
        distance=distance,
        dimension=points.dimension,
        items=len(points),
        kind=chosen,
        parameters={},
        seed=seed,
        recall=1.0,
        recall_at=min(NEAREST, len(points) - 1),
        recall_queries=0,
        recall_items=len(points),
        tried=[],
    )
    inner, parameters = _fill(Index(info, centre, scale, None), points)
    info = info.model_copy(update={"parameters": parameters})
    index = Index(info, centre, scale, inner, about or {}, whitening=whitening)
    if chosen in codes.KINDS:
        index = replace(index, stored=lambda rows: index._inside(points.rows(torch.from_numpy(rows))))
    if chosen != "exact" and info.recall_at:
        index = replace(index, info=_tune(index, points, wanted))
    return index


def _check_share(recall: float) -> float:
    if not 0 < recall <= 1:
        raise ValueError(f"recall must be a share above 0, at most 1: got {recall}.")
    return recall


def _sample(items: int, count: int, seed: int) -> Integers:
    """`count` different row numbers, sorted; all rows if there are no more."""
    return np.sort(np.random.default_rng(seed).choice(items, min(count, items), replace=False))


def _fill(index: Index, points: Points) -> tuple[Any, dict[str, int]]:
    """The faiss index of all points, and its parameters."""
    faiss = load("faiss")
    width, items, kind, seed = points.width, len(points), index.info.kind, index.info.seed
    inner: Any
    parameters: dict[str, int] = {}
    learned = 0  # rows that are drawn for training
    if kind in codes.KINDS:
        width = codes.coded_width(kind, points.dimension)
        parameters = {"bytes": codes.code_bytes(kind, points.dimension), "candidates": codes.CANDIDATES}
    if kind in LISTS:
        lists = max(1, min(round(4 * math.sqrt(items)), items // 39))
        learned = min(ROWS_PER_LIST * lists, items)
        if kind == "ivf-pq":
            inner = faiss.IndexIVFPQ(faiss.IndexFlatL2(width), width, lists, parameters["bytes"], codes.BITS)
            inner.pq.cp.seed, inner.pq.cp.min_points_per_centroid = seed, 1
        else:
            inner = faiss.IndexIVFFlat(faiss.IndexFlatL2(width), width, lists)
        inner.cp.seed, inner.cp.min_points_per_centroid = seed, 1  # 1: no warning for a tiny set
        inner.cp.max_points_per_centroid = ROWS_PER_LIST
        inner.nprobe = min(NPROBE, lists)
        parameters = {"nlist": lists, "nprobe": inner.nprobe, "training_rows": learned, **parameters}
    elif kind == "binary":
        inner = faiss.IndexBinaryFlat(8 * parameters["bytes"])
    elif kind == "int8":
        inner = faiss.IndexScalarQuantizer(width, faiss.ScalarQuantizer.QT_8bit)
        inner.sq.rangestat, inner.sq.rangestat_arg = faiss.ScalarQuantizer.RS_quantiles, codes.CLIPPED
        learned = min(codes.LEARNED, items)
    elif kind == "hnsw":
        inner = faiss.IndexHNSWFlat(width, LINKS)
        inner.hnsw.efConstruction, inner.hnsw.efSearch = EF_CONSTRUCTION, EF_SEARCH
        parameters = {"M": LINKS, "efConstruction": EF_CONSTRUCTION, "efSearch": EF_SEARCH}
    else:
        inner = faiss.IndexFlatL2(width)

    def put(points: torch.Tensor) -> npt.NDArray[Any]:
        inside = index._inside(points)
        return codes.coded(inside, kind, index.info.dimension) if kind in codes.KINDS else inside

    if learned:
        rows = _sample(items, learned, seed)
        with work(f"k-means, {lists} lists" if kind in LISTS else f"learning codes, {kind}"):
            chosen = np.empty((learned, width), np.float32)
            for start, stop in spans(learned, points.piece):
                chosen[start:stop] = put(points.rows(torch.from_numpy(rows[start:stop])))
            inner.train(chosen)
            del chosen
    report("indexing", 0, items)
    for start, stop in spans(items, min(points.piece, LINKED if kind == "hnsw" else items)):
        inner.add(put(points.rows(slice(start, stop))))
        report("indexing", stop, items)
    if kind == "ivf":
        inner.make_direct_map(True)  # to find a row by its number
    return inner, parameters


def _tune(index: Index, points: Points, wanted: float) -> IndexInfo:
    """Double the effort of a search until its recall is enough or it looks at everything; returns what came of it."""
    info = index.info
    most = {"efSearch": len(index), "nprobe": info.parameters.get("nlist", 0), "candidates": codes.MOST_CANDIDATES}
    limits = {name: limit for name, limit in most.items() if name in info.parameters}
    sample = _sample(len(index), SAMPLE, info.seed)
    reach = _reach(index, points, sample)
    while True:
        effort = {name: info.parameters[name] for name in limits}
        with work(f"measuring recall at {', '.join(f'{name} {value}' for name, value in effort.items())}"):
            _, squared = replace(index, info=info).nearest(index.rows(sample), info.recall_at, sample)
        recall = float((squared <= reach[:, None]).mean())
        tried = [*info.tried, {**effort, "recall": recall}]
        info = info.model_copy(update={"recall": recall, "recall_queries": len(sample), "tried": tried})
        name = next((name for name, limit in limits.items() if effort[name] < limit), None)
        if recall >= wanted or name is None:
            return info
        parameters = {**info.parameters, name: min(2 * effort[name], limits[name])}
        info = info.model_copy(update={"parameters": parameters})


def _reach(index: Index, points: Points, sample: Integers) -> Floats:
    """Squared distance `(Q,)` from each sampled row to the last of its nearest others, by comparing with every row."""
    faiss = load("faiss")
    queries = index.rows(sample)
    best = np.full((len(sample), index.info.recall_at), np.inf)
    for start, stop in points.pieces():
        rows = index._inside(points.rows(slice(start, stop)))
        _, nearest = faiss.knn(queries, rows, min(index.info.recall_at + 1 + SPARE, len(rows)))
        nearest = np.where(nearest + start == sample[:, None], -1, nearest + start)
        best = np.sort(np.concatenate([best, index.squared(queries, nearest)], axis=1), axis=1)[:, : best.shape[1]]
        report("exact neighbours of a sample", stop, len(points))
    return best[:, -1]


def _read_description(folder: Path) -> IndexFile:
    path = folder / DESCRIPTION
    try:
        return IndexFile.read(read_json(path, "the description of an index"))
    except (FileNotFoundError, NotADirectoryError):
        raise ValueError(
            f"an index folder must hold {DESCRIPTION}: {folder} does not; give the folder `trivet index` made."
        ) from None
    except ValueError as error:
        raise ValueError(f"{path} must describe an index: {error}; index the embeddings again.") from None
