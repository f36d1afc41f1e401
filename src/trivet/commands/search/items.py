"""`trivet search` for queries in memory, in an index or among vectors in memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
from PIL import Image
from torch import Tensor

from trivet.commands.search.record import SearchAnswer, SearchNeighbour, SearchQuery, SearchRecord
from trivet.commands.search.result import SearchResult
from trivet.commands.search.run import IndexFolder, answered
from trivet.datasets.arrays import as_matrix, read_arrays
from trivet.datasets.item_table import item_table
from trivet.knn.index import build_index
from trivet.knn.kinds import IndexKind, Reranking
from trivet.knn.postprocessing import RerankedIndex
from trivet.metrics.points import Metric
from trivet.reports.page import write_page
from trivet.runtime.arguments import check_count

COMMAND = "trivet.search(index, queries)"


def search_items(
    index: Any,
    queries: Any,
    options: Mapping[str, Any],
    *,
    labels: Any,
    ids: Any,
    distance: Metric | None,
    kind: IndexKind | None,
) -> SearchResult:
    """Find the items nearest to queries in memory; see `trivet.search`.

    Args:
        options: those of the command.
    """
    k, chosen = check_count(options["k"], name="k"), {name: options[name] for name in ("recall", "postprocess")}
    if not isinstance(index, str | Path):
        return _among_vectors(
            index, queries, k, labels, ids, distance=distance or "cosine", kind=kind or "auto", **chosen
        )
    known = {"labels": labels, "ids": ids, "distance": distance, "kind": kind}
    if wrong := [name for name, value in known.items() if value is not None]:
        raise ValueError(f"an index has its own {wrong[0]}: got {index}; leave {wrong[0]} out.")
    folder = IndexFolder(Path(index), **chosen)
    if isinstance(queries, str | Image.Image):
        queries = [queries]
    if _are_vectors(queries):
        rows = _rows(queries)
        return folder.result(folder.search_rows(rows, _vector_queries(rows), k), k, command=COMMAND)
    entries = list(queries)
    of_texts = item_table(entries).kind == "texts"  # which are checked to be of one kind
    answers = folder.search_texts(entries, k) if of_texts else folder.search_images([*map(_image, entries)], k)
    return folder.result(answers, k, command=COMMAND)


def _among_vectors(
    vectors: Any,
    queries: Any,
    k: int,
    labels: Any,
    ids: Any,
    *,
    distance: Metric,
    kind: IndexKind,
    recall: float | None,
    postprocess: Literal["none"] | Reranking | None,
) -> SearchResult:
    if not _are_vectors(vectors):
        raise ValueError(
            "what is searched must be vectors or an index folder: got texts or images; embed them as the queries were, "
            "and pass them themselves as ids to see which was found."
        )
    if not _are_vectors(queries):
        raise ValueError(
            "queries among vectors must be vectors: got texts or images; embed them as these were, such as by "
            "result.embed of a training, or search in an index folder of it."
        )
    known = read_arrays(vectors, {} if labels is None else labels, ids=ids, variables=("index", "labels"))
    matrix, levels, names = known.embeddings, dict(known.labels), known.ids
    rows = _rows(queries)
    index = build_index(matrix, distance=distance, kind=kind, recall=recall)
    rerank = None if postprocess == "none" else postprocess
    searched = index if rerank is None else RerankedIndex(index, rerank)

    def neighbour(row: int, distance: float) -> SearchNeighbour:
        known_labels = {level: str(column[row]) for level, column in levels.items()}
        name = str(row if names is None else names[row])
        return SearchNeighbour(row=row, id=name, distance=distance, labels=known_labels)

    answers = answered(_vector_queries(rows), searched.search(rows, k), neighbour)
    record = SearchRecord(index="vectors", info=index.info, k=k, level=next(reversed(levels), None), queries=answers)

    def write(path: Path) -> None:
        write_page("sheet.html", path, {"record": record.stamped(COMMAND)})

    about = {"index": "vectors", "k": k, "distance": distance, "recall": index.info.recall, "postprocess": rerank}
    return SearchResult(SearchAnswer.of(answers, **about), write)


def _image(query: Any) -> Path | Image.Image:
    return Path(query) if isinstance(query, str) else query


def _are_vectors(items: Any) -> bool:
    """Test whether items are numbers."""
    if isinstance(items, Tensor) or hasattr(items, "columns"):
        return True
    first = next(iter(items), None) if isinstance(items, Iterable) else items
    return not isinstance(first, str | Path | Image.Image)


def _rows(queries: Any) -> np.ndarray:
    """Queries `(Q, d)`, of one vector as well."""
    first = next(iter(queries), ()) if isinstance(queries, Iterable) else ()
    single = not hasattr(queries, "columns") and np.ndim(first) == 0
    return as_matrix([queries] if single else queries, "the queries")


def _vector_queries(rows: np.ndarray) -> list[SearchQuery]:
    return [SearchQuery(name=str(number), kind="vector") for number in range(len(rows))]
