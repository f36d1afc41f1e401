"""A faiss index of embeddings: exact, or approximate with its recall measured; arrays in, nearest rows out."""

from __future__ import annotations

import errno
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypedDict

import numpy as np
import numpy.typing as npt
import torch

from trivet.arguments import check_count, check_name
from trivet.documents import check_types, read_json
from trivet.evaluation.inputs import Metric, Points, spans
from trivet.extras import load
from trivet.files import whole_file
from trivet.geometry import Array
from trivet.geometry.arrays import Floats, Integers
from trivet.neighbours.stored import check_stored
from trivet.progress import report, work

Kind = Literal["exact", "hnsw", "ivf"]
VECTORS, DESCRIPTION, FORMAT = "index.faiss", "index.json", 1

EXACT_ROWS, HNSW_ROWS = 100_000, 1_000_000  # "auto": exact up to the first, hnsw up to the second, ivf beyond
LINKS, EF_CONSTRUCTION, EF_SEARCH = 32, 200, 128
NPROBE = 8
ROWS_PER_LIST = 64  # training rows of each inverted list; faiss asks for 39 or more
SAMPLE, NEAREST, ENOUGH = 1000, 10, 0.95  # recall@10 of up to 1,000 rows
FAR = 1e15  # spreads of the index, whose square has a place in float32
SPARE = 16  # candidates beyond k, which float64 distances put in order
# faiss compares up to 19 queries at a time by differences, more by products, which lose the digits of near-duplicates.
QUERIES = 16
LINKED = 2048  # rows that join an hnsw graph at once: some seconds on one thread


@dataclass(frozen=True, eq=False)
class Nearest:
    """The k nearest rows of each query, nearest first; fields `(Q, k)`. Where fewer were found: row -1 at infinity."""

    indices: Integers
    distances: Floats


@dataclass(frozen=True)
class IndexInfo:
    """What an index is.

    Attributes:
        distance: "euclidean", or "cosine" (1 - cosine similarity).
        dimension, items: d and N of the embeddings.
        kind: "exact" compares with every row; "hnsw" walks a graph of neighbours; "ivf" looks into the nearest lists.
        parameters: hnsw: M, efConstruction, efSearch; ivf: nlist, nprobe, training_rows; exact: none.
        seed: of the training rows of ivf and of the rows that recall is measured on.
        recall: recall@`recall_at` of the search against the exact one, 1 for an exact index.
        recall_at: the 10 of recall@10, or N - 1 if that is less.
        recall_queries: the number of rows it was measured on.
    """

    distance: Metric
    dimension: int
    items: int
    kind: Kind
    parameters: Mapping[str, int]
    seed: int
    recall: float = 1.0
    recall_at: int = NEAREST
    recall_queries: int = 0


class IndexDescription(TypedDict):
    """What `index.json` holds: the fields of `IndexInfo`, and those of `Index` that are not in the other file."""

    format: int
    distance: Metric
    dimension: int
    items: int
    kind: Kind
    parameters: dict[str, int]
    seed: int
    recall: float
    recall_at: int
    recall_queries: int
    scale: float
    centre: list[float]
    about: dict[str, Any]


@dataclass(frozen=True, eq=False)
class Index:
    """Embeddings that can be searched; made by `build_index` or `Index.load`.

    It holds (point - centre) / scale in float32, where the points are the embeddings, or for "cosine" their directions
    as in `evaluation.inputs.Points`. The centre keeps the digits of a nearly collapsed embedding. Distances are
    computed in float64 from these, by differences; their error is about 1e-7 of the largest distance from the centre.

    Attributes:
        info: what it is.
        centre: `(width,)` float64, the mean of the points.
        scale: the largest coordinate of a point less the centre; 1 if all points are 0.
        faiss: the faiss index.
        about: whatever its maker wants to keep beside it, JSON values.
    """

    info: IndexInfo
    centre: Floats
    scale: float
    faiss: Any
    about: Mapping[str, Any] = field(default_factory=dict)

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
        points = Points(queries, distance=self.info.distance, name="queries")
        if points.dimension != self.info.dimension:
            raise ValueError(
                f"queries must have the {self.info.dimension} dimensions of the index: got {points.dimension}; embed "
                "them with the model that made the indexed embeddings."
            )
        without = np.full(len(points), -1) if leave_out is None else np.asarray(leave_out)
        if without.shape != (len(points),) or not np.isin(without, np.arange(-1, len(self))).all():
            raise ValueError(
                f"leave_out must hold a row number below {len(self)}, or -1, for each of the {len(points)} queries: "
                f"got {without.tolist()[:8]}."
            )
        return self._measured(*self._nearest(self._inside(points.rows(slice(None))), k, without))

    def search_rows(self, rows: Sequence[int] | npt.NDArray[Any], k: int) -> Nearest:
        """The k nearest *other* rows of rows of the index, each left out of its own result by row number.

        Raises:
            ValueError: if a row number or `k` is out of range.
        """
        queries = np.asarray(rows, dtype=np.int64)
        if queries.ndim != 1 or (queries.size and not (queries.min() >= 0 and queries.max() < len(self))):
            raise ValueError(f"rows must be a list of row numbers from 0 to {len(self) - 1}: got {queries.tolist()}.")
        return self._measured(*self._nearest_to_rows(queries, k))

    def _inside(self, points: torch.Tensor) -> npt.NDArray[np.float32]:
        """Points `(n, width)` as they are in the index."""
        inside = (points.numpy() - self.centre) / self.scale
        if inside.size and np.abs(inside).max() > FAR:
            raise ValueError(
                f"queries must lie within {FAR:g} times the spread of the indexed embeddings: one does not; embed "
                "them with the model that made these."
            )
        return np.ascontiguousarray(inside, dtype=np.float32)

    def _nearest_to_rows(self, rows: Integers, k: int) -> tuple[Integers, Floats]:
        return self._nearest(self.faiss.reconstruct_batch(rows), k, rows)

    def _nearest(self, queries: npt.NDArray[np.float32], k: int, without: npt.NDArray[Any]) -> tuple[Integers, Floats]:
        """Rows and squared distances within the index, `(Q, k)` each; where there is none, -1 and infinity."""
        k = min(check_count(k, name="k"), len(self) - bool((without >= 0).all()))
        indices, squared = np.full((len(queries), k), -1), np.full((len(queries), k), np.inf)
        if not k:  # the only row is left out
            return indices, squared
        for start in range(0, len(queries), QUERIES):
            block = slice(start, start + QUERIES)
            _, rows = self.faiss.search(queries[block], min(k + 1 + SPARE, len(self)))
            rows[rows == without[block, None]] = -1
            far = self._squared(queries[block], rows)
            order = np.lexsort((rows, far))[:, :k]
            indices[block] = np.take_along_axis(rows, order, axis=1)
            squared[block] = np.take_along_axis(far, order, axis=1)
            report("searching", min(start + QUERIES, len(queries)), len(queries))
        return indices, squared

    def _measured(self, indices: Integers, squared: Floats) -> Nearest:
        """The distances that are asked for."""
        if self.info.distance == "cosine":  # between unit rows, D = 2 - 2 S
            return Nearest(indices, squared * (self.scale**2 / 2))
        return Nearest(indices, np.sqrt(squared) * self.scale)

    def _squared(self, queries: npt.NDArray[np.float32], nearest: Integers) -> Floats:
        """Squared distances within the index, `(Q, n)` float64, to the rows `found (Q, n)`; infinity for row -1."""
        squared = np.full(nearest.shape, np.inf)
        for place, rows in enumerate(nearest):
            real = rows >= 0
            points = self.faiss.reconstruct_batch(rows[real]).astype(np.float64)
            squared[place, real] = np.square(points - queries[place]).sum(axis=1)
        return squared

    def save(self, folder: Path) -> None:
        """Write `index.faiss` and `index.json` into `folder`, each whole or not at all.

        Raises:
            OSError: if they cannot be written.
        """
        faiss = load("faiss")
        description = {"format": FORMAT, **asdict(self.info), "scale": self.scale, "centre": self.centre.tolist()}
        with whole_file(folder / VECTORS) as vectors, whole_file(folder / DESCRIPTION) as text:
            try:
                faiss.write_index(self.faiss, str(vectors))
            except RuntimeError as error:  # what faiss makes of a full disk
                raise OSError(errno.EIO, str(error).rpartition(": ")[2], str(folder / VECTORS)) from None
            text.write_text(json.dumps({**description, "about": self.about}, allow_nan=False, indent=1), "utf-8")

    @classmethod
    def load(cls, folder: Path) -> Index:
        """The index that `save` wrote; its vectors stay on disk and are read where a search needs them.

        Raises:
            ValueError: if the folder holds none, a broken one, or one of a newer format.
        """
        faiss = load("faiss")
        info, description = _read_description(folder)
        # Inverted lists are mapped by the older flag; the newer one, of faiss 1.11, maps the other kinds.
        mapped = faiss.IO_FLAG_MMAP if info.kind == "ivf" else getattr(faiss, "IO_FLAG_MMAP_IFC", faiss.IO_FLAG_MMAP)
        try:
            check_stored(folder / VECTORS, info.kind, info.items, len(description["centre"]))
            inner = faiss.read_index(str(folder / VECTORS), mapped | faiss.IO_FLAG_READ_ONLY)
            centre = np.array(description["centre"], dtype=np.float64)
            if inner.d != info.dimension + (info.distance == "cosine"):  # as many as `Points` have
                raise ValueError(f"it holds vectors of {inner.d} numbers")
            if not math.isfinite(scale := float(description["scale"])) or scale <= 0 or not np.isfinite(centre).all():
                raise ValueError("its centre or scale is not finite")
        except (OSError, RuntimeError, ValueError, OverflowError) as error:
            reason = str(error).rpartition(": ")[2]
            raise ValueError(
                f"{folder / VECTORS} must hold the vectors that {DESCRIPTION} describes: {reason}; index them again."
            ) from None
        return cls(info, centre, scale, inner, description["about"])


def build_index(
    embeddings: Array,
    *,
    distance: Metric = "cosine",
    kind: Literal["auto", "exact", "hnsw", "ivf"] = "auto",
    seed: int = 0,
    about: Mapping[str, Any] | None = None,
) -> Index:
    """Index embeddings, with parameters chosen by their number, and measure what an approximate kind misses.

    "auto" is exact up to 100,000 rows, hnsw up to 1,000,000, ivf beyond. hnsw: M = 32, efConstruction = 200, and
    efSearch from 128 up. ivf: nlist is 4 sqrt(N), but at most N / 39; k-means on 64 rows for each list, drawn by
    `numpy.random.default_rng(seed)`; nprobe from 8 up. efSearch or nprobe is doubled until recall@10 of up to 1,000
    random rows reaches 0.95 or every row is looked at. Recall@10 is the share of the 10 nearest rows found that lie no
    farther than the 10th nearest.

    Args:
        embeddings: `(N, d)` floating point, N >= 1, numpy (also memory-mapped) or torch; not normalized.
        distance: "cosine" (1 - cosine similarity; a row of zeros has similarity 0 to other rows, and zeros coincide
            with zeros) or "euclidean".
        kind: or which kind to build whatever N.
        seed: 0 .. 2^31 - 1. The same seed gives the same exact or ivf index; the links of hnsw also depend on how its
            threads take turns.
        about: kept with the index, JSON values.

    Raises:
        ValueError: if a row is not finite, there is none, or an option is not known or out of range.

    Source:
        Johnson, Douze, Jegou, "Billion-scale similarity search with GPUs" (ivf); Malkov, Yashunin, "Efficient and
        robust approximate nearest neighbor search using hierarchical navigable small world graphs" (hnsw).

    Example:
        >>> index = build_index(np.array([[1.0, 0.0], [0.0, 2.0], [3.0, 3.0]]))
        >>> index.search_rows([0], k=2).indices.tolist()
        [[2, 1]]
    """
    check_name(kind, ("auto", "exact", "hnsw", "ivf"), name="kind")
    if not 0 <= seed < 2**31:
        raise ValueError(f"seed must be between 0 and 2^31 - 1: got {seed}.")
    points = Points(embeddings, distance=distance)
    if not len(points):
        raise ValueError("an index needs at least one row: got none; check the file that the embeddings come from.")
    chosen: Kind = _by_number(len(points)) if kind == "auto" else kind
    centre, scale = _centre(points)
    info = IndexInfo(distance, points.dimension, len(points), chosen, {}, seed, recall_at=min(NEAREST, len(points) - 1))
    inner, parameters = _fill(Index(info, centre, scale, None), points)
    info = replace(info, parameters=parameters)
    if chosen != "exact" and info.recall_at:
        info = _tune(Index(info, centre, scale, inner), points)
    return Index(info, centre, scale, inner, about or {})


def _by_number(items: int) -> Kind:
    return "exact" if items <= EXACT_ROWS else "hnsw" if items <= HNSW_ROWS else "ivf"


def _sample(items: int, count: int, seed: int) -> Integers:
    """`count` different row numbers, sorted; all rows if there are no more."""
    return np.sort(np.random.default_rng(seed).choice(items, min(count, items), replace=False))


def _centre(points: Points) -> tuple[Floats, float]:
    """The mean of the points, and the scale of `Index`."""
    total = np.zeros(points.width)
    for start, stop in points.pieces():
        total += points.rows(slice(start, stop)).numpy().sum(axis=0)
    centre = total / len(points)
    largest = max(float(np.abs(points.rows(slice(*span)).numpy() - centre).max()) for span in points.pieces())
    return centre, max(largest, float(np.abs(centre).max()) / FAR) or 1.0


def _fill(index: Index, points: Points) -> tuple[Any, dict[str, int]]:
    """The faiss index of all points, and its parameters."""
    faiss = load("faiss")
    width, items, kind = points.width, len(points), index.info.kind
    inner: Any
    parameters: dict[str, int] = {}
    if kind == "exact":
        inner = faiss.IndexFlatL2(width)
    elif kind == "hnsw":
        inner = faiss.IndexHNSWFlat(width, LINKS)
        inner.hnsw.efConstruction, inner.hnsw.efSearch = EF_CONSTRUCTION, EF_SEARCH
        parameters = {"M": LINKS, "efConstruction": EF_CONSTRUCTION, "efSearch": EF_SEARCH}
    else:
        lists = max(1, min(round(4 * math.sqrt(items)), items // 39))
        rows = _sample(items, ROWS_PER_LIST * lists, index.info.seed)
        inner = faiss.IndexIVFFlat(faiss.IndexFlatL2(width), width, lists)
        inner.cp.seed, inner.cp.min_points_per_centroid = index.info.seed, 1  # 1: no warning for a tiny set
        inner.cp.max_points_per_centroid = ROWS_PER_LIST
        with work(f"k-means, {lists} lists"):
            inner.train(index._inside(points.rows(torch.from_numpy(rows))))
        inner.nprobe = min(NPROBE, lists)
        parameters = {"nlist": lists, "nprobe": inner.nprobe, "training_rows": len(rows)}
    report("indexing", 0, items)
    for start, stop in spans(items, min(points.piece, LINKED if kind == "hnsw" else items)):
        inner.add(index._inside(points.rows(slice(start, stop))))
        report("indexing", stop, items)
    if kind == "ivf":
        inner.make_direct_map(True)  # to find a row by its number
    return inner, parameters


def _tune(index: Index, points: Points) -> IndexInfo:
    """Double the effort of a search until its recall is enough or it looks at everything; returns what came of it."""
    info, parameters = index.info, dict(index.info.parameters)
    name, holder, limit = (
        ("efSearch", index.faiss.hnsw, len(index))
        if info.kind == "hnsw"
        else ("nprobe", index.faiss, parameters["nlist"])
    )
    sample = _sample(len(index), SAMPLE, info.seed)
    reach = _reach(index, points, sample)
    while True:
        with work(f"measuring recall at {name} {parameters[name]}"):
            _, squared = index._nearest_to_rows(sample, info.recall_at)
        recall = float((squared <= reach[:, None]).mean())
        if recall >= ENOUGH or parameters[name] >= limit:
            return replace(info, parameters=parameters, recall=recall, recall_queries=len(sample))
        parameters[name] = min(2 * parameters[name], limit)
        setattr(holder, name, parameters[name])


def _reach(index: Index, points: Points, sample: Integers) -> Floats:
    """Squared distance `(Q,)` from each sampled row to the last of its nearest others, by comparing with every row."""
    faiss = load("faiss")
    queries = index.faiss.reconstruct_batch(sample)
    best = np.full((len(sample), index.info.recall_at), np.inf)
    for start, stop in points.pieces():
        rows = index._inside(points.rows(slice(start, stop)))
        _, nearest = faiss.knn(queries, rows, min(index.info.recall_at + 1 + SPARE, len(rows)))
        nearest = np.where(nearest + start == sample[:, None], -1, nearest + start)
        best = np.sort(np.concatenate([best, index._squared(queries, nearest)], axis=1), axis=1)[:, : best.shape[1]]
        report("exact neighbours of a sample", stop, len(points))
    return best[:, -1]


def _read_description(folder: Path) -> tuple[IndexInfo, dict[str, Any]]:
    path = folder / DESCRIPTION
    newer = 0
    try:
        description = read_json(path, "the description of an index")
        newer = description.get("format", 0) if isinstance(description, dict) else 0
        check_types(IndexDescription, description)
        if newer <= FORMAT:
            if lacking := IndexDescription.__annotations__.keys() - description.keys():
                raise KeyError(min(lacking))
            return IndexInfo(**{name: description[name] for name in IndexInfo.__dataclass_fields__}), description
    except (FileNotFoundError, NotADirectoryError):
        raise ValueError(
            f"an index folder must hold {DESCRIPTION}: {folder} does not; give the folder `trivet index` made."
        ) from None
    except (KeyError, ValueError) as error:
        if not isinstance(newer, int) or newer <= FORMAT:
            raise ValueError(
                f"{path} must describe an index: {type(error).__name__}: {error}; index the embeddings again."
            ) from None
    raise ValueError(
        f"{path} must be of format {FORMAT} or older: got format {newer}; use the newer Trivet that wrote it."
    )
