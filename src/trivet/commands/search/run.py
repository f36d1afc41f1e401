"""`trivet search`: finds the nearest items in an index by id, image, text or vector."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from PIL import Image

from trivet.commands.index.record import IndexAbout
from trivet.commands.index.run import ITEMS
from trivet.commands.index.text_queries import text_embeddings
from trivet.commands.network_of_side import network_of_query
from trivet.commands.search.options import SearchOptions
from trivet.commands.search.record import SearchAnswer, SearchNeighbour, SearchQuery, SearchRecord
from trivet.commands.search.result import SearchResult
from trivet.datasets import DataConfig, Dataset, load
from trivet.datasets.inputs import image_file
from trivet.datasets.preview import Preview, preview_record
from trivet.io.atomic_files import recover
from trivet.io.formats import FORMATS
from trivet.io.npz_files import read_array
from trivet.io.overwrite_guard import is_saved, sharded
from trivet.io.parquet_files import open_parquet
from trivet.io.read_embeddings import read_vectors
from trivet.io.table import is_text, read_errors
from trivet.io.vector_choice import NO_CHOICE, VectorChoice
from trivet.io.vector_columns import decoded
from trivet.knn.index import DESCRIPTION, Index, Nearest
from trivet.knn.kinds import Reranking
from trivet.knn.postprocessing import RerankedIndex
from trivet.reports.page import write_page
from trivet.runtime.arguments import check_count
from trivet.runtime.arrays import Array
from trivet.training.run_folder import CONFIG, RunFolder, model_hash, trained_model

SHARP_PIXELS = 32  # sides up to this are shown as squares, not smoothed


class IndexFolder:
    """An index on disk, opened for searching: vectors and items stay there until they are needed.

    A query that is itself a row of the index is left out of its own result by row number. `k` beyond the items gives
    all of them. Every search raises ValueError, in one sentence, if the query cannot be used.
    """

    def __init__(
        self, path: Path, *, recall: float | None = None, postprocess: Literal["none", Reranking] | None = None
    ) -> None:
        """Open the folder that `make_index` made.

        Args:
            recall: as `Index.with_recall` takes it.
            postprocess: what a search does with what it finds; None for what the index says.
        """
        recover(path)
        self.path = path
        self.pictures: dict[str, Image.Image] = {}  # the queries that are no files, by name
        self.index = Index.load(path)
        if recall is not None:
            self.index = self.index.with_recall(recall)
        try:
            self.about = IndexAbout.read(self.index.about)
            if self.about.run is not None and self.about.model is None:
                raise ValueError("it has no 'model'")
            if any(example.row >= len(self.index) for example in self.about.texts):
                raise ValueError("it has texts of rows that are not there")
        except ValueError as error:
            raise ValueError(f"{path / DESCRIPTION} must describe an index: {error}; index them again.") from None
        self.postprocess = self.about.postprocess
        if postprocess is not None:
            if self.postprocess == "whitening":
                raise ValueError(
                    f"the rows of {path} are whitened, and searched as they are: got --postprocess {postprocess}; "
                    "leave it out, or index the embeddings again with another."
                )
            self.postprocess = None if postprocess == "none" else postprocess
        self.searched: Index | RerankedIndex = self.index
        if self.postprocess in ("expansion", "reciprocal"):
            self.searched = RerankedIndex(self.index, self.postprocess)
        columns = {"id", *self.about.levels, *(["split"] if self.about.data is not None else [])}
        try:
            self._table = open_parquet(path / ITEMS)
            rows = self._table.metadata.num_rows
        except (OSError, ValueError) as error:
            reason = " ".join(str(error).split())
            raise ValueError(f"{path / ITEMS} must hold the items of the index: {reason}; index them again.") from None
        schema = self._table.schema_arrow
        texts = {field.name for field in schema if is_text(field.type)}
        if rows != len(self.index) or not columns <= texts:
            raise ValueError(
                f"{path / ITEMS} must hold an item for each of the {len(self.index)} vectors of the index, with "
                f"columns {', '.join(sorted(columns))}: it has {rows} rows; index them again."
            )

    @property
    def run(self) -> RunFolder | None:
        """The run that the index was made from; None for an index of a file."""
        path = self.about.run
        if path is not None and not (Path(path) / CONFIG).is_file():
            raise ValueError(
                f"the run that {self.path} indexes must exist: {path} is missing; restore it, or index again."
            )
        return None if path is None else RunFolder.open(Path(path))

    def row_of(self, id: str) -> int | None:
        """The row number of an item, or None if there is no such item."""
        start = 0
        for group in range(self._table.num_row_groups):
            with read_errors(self.path / ITEMS, "parquet"):
                ids = self._table.read_row_group(group, ["id"]).column("id").cast(pa.large_string())
            rows = start + np.flatnonzero(np.asarray(pc.equal(ids, pa.scalar(id, pa.large_string()))))
            if len(present := np.setdiff1d(rows, self.index.removed)):
                return int(present[0])
            start += len(ids)
        return None

    def search_id(self, id: str, k: int) -> list[SearchQuery]:
        """The nearest others of an indexed item."""
        row = self.row_of(id)
        if row is None:
            raise ValueError(f"no item of {self.path} has the id {id!r}; ids look like {self._some_ids()}.")
        query = SearchQuery(name=id, kind="id", labels=self._labels(self._read_items([row])[row]), row=row)
        return self._answers([query], self.searched.search_rows([row], k))

    def search_images(self, images: Sequence[Path | Image.Image], k: int) -> list[SearchQuery]:
        """The items nearest to each image file or picture, embedded by the model of the run."""
        run = self._run_for("an image")
        self._check_unchanged(run)
        names = [f"image {i}" if isinstance(each, Image.Image) else str(each) for i, each in enumerate(images)]
        of_images = network_of_query(run, trained_model(run), "images", searched=self.about.side)
        if of_images.tokenize is not None:
            raise ValueError(f"the run {run.path} embeds texts: {names[0]} cannot be looked for; use --text for words.")
        self.pictures = {name: each for name, each in zip(names, images, strict=True) if isinstance(each, Image.Image)}
        queries = [SearchQuery(name=name, kind="image") for name in names]
        return self._answers(queries, self.searched.search(of_images.network.embed(images), k))

    def search_texts(self, texts: Sequence[str], k: int) -> list[SearchQuery]:
        """The items nearest to each text, embedded as the indexed texts were."""
        queries = [SearchQuery(name=text, kind="text") for text in texts]
        run = self.run
        if run is not None:
            self._check_unchanged(run)
        return self._answers(queries, self.searched.search(text_embeddings(texts, self.index, self.about, run), k))

    def search_vectors(self, path: Path, k: int, choice: VectorChoice = NO_CHOICE) -> list[SearchQuery]:
        """The items nearest to each row of a file: `.npy` of shape (d,) or (n, d), or what `read_vectors` reads."""
        labels: Mapping[str, Any] = {}
        ids: Any = None
        if path.suffix.lower() == ".npy":
            vectors = decoded(path, np.atleast_2d(read_array(path)), choice.codes)
        else:
            read = read_vectors(path, choice=choice)
            vectors, labels, ids = read.embeddings, read.labels, read.ids
        queries = [
            SearchQuery(
                name=f"{path.name} row {row}" if ids is None else str(ids[row]),
                kind="vector",
                labels={level: str(labels[level][row]) for level in self.about.levels if level in labels},
            )
            for row in range(len(vectors))
        ]
        return self.search_rows(vectors, queries, k)

    def search_rows(self, vectors: Array, queries: list[SearchQuery], k: int) -> list[SearchQuery]:
        """The items nearest to each vector `(Q, d)`, which is that of a query."""
        return self._answers(queries, self.searched.search(vectors, k))

    def search(self, query: str, k: int, choice: VectorChoice = NO_CHOICE) -> list[SearchQuery]:
        """Search for the id of an item, an image file, or a file of vectors, whichever `query` is."""
        path = Path(query)
        is_file, is_id = path.is_file() or sharded(path) or is_saved(path), self.row_of(query) is not None
        if is_file and is_id:
            raise ValueError(
                f"a query must be unambiguous: {query!r} is the id of an item and also a file; use --id {query} for "
                f"the item, or ./{query} for the file."
            )
        if is_id:
            return self.search_id(query, k)
        if not is_file:
            raise ValueError(
                f"a query must be the id of an item, such as {self._some_ids()}, or a file: {query!r} is neither; use "
                "--text for words."
            )
        vectors = path.is_dir() or path.suffix.lower() in FORMATS
        return self.search_vectors(path, k, choice) if vectors else self.search_images([path], k)

    def _check_unchanged(self, run: RunFolder) -> None:
        """ValueError unless the model of the run is still the one that made the index."""
        if model_hash(run) != self.about.model:
            raise ValueError(
                f"the model of {run.path} must be the one that made the index: it was retrained since; index it again."
            )

    def _run_for(self, what: str) -> RunFolder:
        if self.run is None:
            raise ValueError(
                f"{what} can be embedded for an index of a run only: {self.path} indexes the file "
                f"{self.about.source}; use trivet index --run RUN if a run made it, or give a vector."
            )
        return self.run

    def _answers(self, queries: list[SearchQuery], nearest: Nearest) -> list[SearchQuery]:
        """The queries with their neighbours, of which rows below 0 are none."""
        items = self._read_items(np.unique(nearest.indices[nearest.indices >= 0]).tolist())

        def neighbour(row: int, distance: float) -> SearchNeighbour:
            item = items[row]
            return SearchNeighbour(
                row=row, id=item["id"], distance=distance, labels=self._labels(item), split=item.get("split")
            )

        return answered(queries, nearest, neighbour)

    def _labels(self, item: Mapping[str, str]) -> dict[str, str]:
        return {level: item[level] for level in self.about.levels}

    def _read_items(self, rows: Sequence[int]) -> dict[int, dict[str, str]]:
        """The items of sorted row numbers; only the row groups that hold them are read."""
        sizes = [self._table.metadata.row_group(group).num_rows for group in range(self._table.num_row_groups)]
        starts = np.cumsum([0, *sizes])
        groups = np.searchsorted(starts, rows, side="right") - 1
        items: dict[int, dict[str, str]] = {}
        for group in np.unique(groups).tolist():
            here = [row for row, at in zip(rows, groups.tolist(), strict=True) if at == group]
            with read_errors(self.path / ITEMS, "parquet"):
                rows_of_group = self._table.read_row_group(group).take([row - int(starts[group]) for row in here])
                records = rows_of_group.to_pylist()
                if any(not isinstance(text, str) for item in records for text in item.values()):
                    raise ValueError("an item has no text where one belongs")
            items |= dict(zip(here, records, strict=True))
        return items

    def _some_ids(self) -> str:
        removed = set(self.index.removed.tolist())
        present = (row for row in range(len(self.index)) if row not in removed)
        items = self._read_items(list(itertools.islice(present, 3)))
        return ", ".join(repr(item["id"]) for item in items.values())

    def result(
        self, queries: list[SearchQuery], k: int, *, data_root: Path | None = None, command: str = ""
    ) -> SearchResult:
        """The answers to queries as a result, whose page has pictures if the index is of a run."""
        info = self.index.info
        write = partial(self.sheet, queries, k=k, data_root=data_root, command=command)
        about = {"index": str(self.path), "k": k, "distance": info.distance, "recall": info.recall}
        return SearchResult(SearchAnswer.of(queries, **about, postprocess=self.postprocess), write)

    def sheet(
        self, queries: list[SearchQuery], path: Path, *, k: int, data_root: Path | None = None, command: str = ""
    ) -> None:
        """Write a page of the queries and their neighbours, with pictures if the index is of a run."""
        # Of a file only the run that made it is known, not where its images lie.
        pictures = None if self.about.data is None or self.run is None else _Pictures(self, self.run, data_root)
        if pictures is not None:
            for query in queries:
                query.thumbnail, query.text = preview_record(pictures.of_query(query)).values()
                for item in query.neighbours:
                    item.thumbnail, item.text = preview_record(pictures.of_item(item.id, item.split)).values()
        record = SearchRecord(
            index=self.path.resolve().name,
            info=self.index.info,
            k=k,
            level=self.about.level or next(reversed(self.about.levels), None),
            images=pictures is not None,
            pixels=pictures is not None and pictures.side <= SHARP_PIXELS,
            queries=queries,
        )
        write_page("sheet.html", path, {"record": record.stamped(command)})


def answered(
    queries: list[SearchQuery], nearest: Nearest, neighbour: Callable[[int, float], SearchNeighbour]
) -> list[SearchQuery]:
    """The queries with their neighbours, of which rows below 0 are none.

    Args:
        neighbour: makes one of a row and its distance.
    """
    for query, rows, distances in zip(queries, nearest.indices.tolist(), nearest.distances.tolist(), strict=True):
        query.neighbours = [neighbour(row, distance) for row, distance in zip(rows, distances, strict=True) if row >= 0]
    return queries


class _Pictures:
    """Pictures or texts of the items of a run's evaluation splits, and of image queries."""

    def __init__(self, folder: IndexFolder, run: RunFolder, data_root: Path | None) -> None:
        self._config: DataConfig = run.config().data
        self._splits: Mapping[str, Dataset] | None = None
        self._data_root, self._folder = data_root, folder
        model = trained_model(run)
        shapes = [network.input_shape for network in model.networks]
        self._shape = next((shape for shape in shapes if len(shape) == 3), shapes[0])
        self._tokenize = model.tokenize
        self._positions: dict[tuple[str, str], int] = {}
        self.side = max(self._shape[1:], default=0)  # of vectors and texts there are no pictures

    def of_query(self, query: SearchQuery) -> Preview | None:
        if query.kind == "image":
            source = self._folder.pictures.get(query.name, Path(query.name))
            return image_file(source, self._config.frame(self._shape)).show(0)
        if query.row is None:
            return None
        item = self._folder._read_items([query.row])[query.row]
        return self.of_item(item["id"], item["split"])

    def of_item(self, id: str, split: str | None) -> Preview | None:
        assert split is not None, "an index of a run must have the split of each item"
        path = self._config.path_of(id)
        if path is not None:  # a few files instead of the whole data set
            return image_file(path, self._config.frame(self._shape)).show(0) if path.is_file() else None
        if self._splits is None:
            data = load(self._config, self._data_root, tokenize=self._tokenize)
            self._splits = {"train": data.train, **data.evaluation}  # training items can be indexed, too
            self._positions = {
                (name, id): position
                for name, dataset in self._splits.items()
                for position, id in enumerate(dataset.ids)
            }
        position = self._positions.get((split, id))
        return None if position is None else self._splits[split].show(position)


def search_folder(request: SearchOptions, *, command: str = "") -> SearchResult:
    """Search an index folder."""
    k = check_count(request.k, name="--k")
    folder = IndexFolder(request.index, recall=request.recall, postprocess=request.postprocess)
    if request.id is not None:
        queries = folder.search_id(request.id, k)
    elif request.text is not None:
        queries = folder.search_texts([request.text], k)
    else:
        queries = folder.search(request.query or "", k, request.choice)
    return folder.result(queries, k, data_root=request.data_root, command=command)
