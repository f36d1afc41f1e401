"""`trivet index`: makes a folder of vectors and items that can be searched."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from trivet.commands.index.options import IndexOptions
from trivet.commands.index.record import IndexAbout, IndexResult
from trivet.commands.index.text_queries import text_embeddings, text_examples
from trivet.datasets.judged_pairs import sides_of_cells
from trivet.datasets.splitting import TRAIN
from trivet.distances import unit_rows
from trivet.io.atomic_files import atomic_folder, write_atomic
from trivet.io.embedding_table import Vectors
from trivet.io.overwrite_guard import EMBEDDED, is_run_folder, sharded
from trivet.io.read_embeddings import TEXT, read_vectors
from trivet.io.shards import read_manifest
from trivet.io.tag_cells import PAIRS
from trivet.knn.index import DESCRIPTION, ROWS, VECTORS, build_index
from trivet.knn.whitening import WHITENING, whitening_map
from trivet.metrics.points import Metric
from trivet.models import SideName
from trivet.models.linear_map import LinearMap
from trivet.models.towers import SIDES
from trivet.runtime.text import typed
from trivet.runtime.version import __version__
from trivet.training.run_folder import RunFolder, model_hash

ITEMS = "items.parquet"
NAMES = frozenset((VECTORS, ROWS, WHITENING, DESCRIPTION, ITEMS))
ITEMS_PER_GROUP = 8192  # of `items.parquet`, the least that is read at once


@dataclass(frozen=True, eq=False)
class Source:
    """The embeddings `(N, d)` to index, what is known of them, and the table of their items."""

    embeddings: np.ndarray
    items: pa.Table
    with_ids: bool
    about: IndexAbout
    maker: RunFolder | None
    distance: Metric
    notes: list[str]


def make_index(request: IndexOptions) -> IndexResult:
    """Index a file or folder of embeddings, or those of all evaluation splits of a run, as the options say.

    Writes `index.faiss`, `index.json` and `items.parquet` (row by row: id, split where there is one, a text column for
    each label level) into the output folder.
    """
    source = read_source(request)
    with atomic_folder(request.output, NAMES, mark=DESCRIPTION, what="an index", force=request.force) as folder:
        index = build_index(
            source.embeddings,
            distance=source.distance,
            kind=request.kind,
            recall=request.recall,
            seed=request.seed,
            about=source.about.as_json(unset=False),
            whitening=_whitening(source) if request.postprocess == "whitening" else None,
        )
        if source.about.text_model is not None:
            text_embeddings(["a text"], index, source.about, source.maker)
        write_items(folder, source.items)
        index.save(folder)
    return IndexResult(
        **index.info.as_json(),
        bytes_per_item=index.bytes_per_item,
        notes=source.notes,
        about=source.about,
        present=len(index),
    )


def _whitening(source: Source) -> LinearMap:
    """The whitening map of the embeddings, fitted on those of the training items where a run has them."""
    rows = source.embeddings
    if source.maker is not None and (source.maker.path / "embeddings" / f"{TRAIN}.parquet").is_file():
        trained = read_vectors(source.maker.path, split=TRAIN).embeddings
        rows = trained if trained.shape[1] == rows.shape[1] else rows
    numbers = torch.from_numpy(np.asarray(rows, np.float32))
    return whitening_map(unit_rows(numbers) if source.distance == "cosine" else numbers)


def write_items(folder: Path, items: pa.Table) -> None:
    """Write the table of the items of an index."""
    sink = pa.BufferOutputStream()
    pq.write_table(items, sink, row_group_size=ITEMS_PER_GROUP)
    write_atomic(folder / ITEMS, sink.getvalue().to_pybytes())


def read_source(request: IndexOptions, levels: Sequence[str] | None = None) -> Source:
    """Read a file or folder of embeddings, or those of all evaluation splits of a run, as the options say.

    Args:
        levels: the label columns to read, if it is known which.
    """
    source, run, text_model = request.source, request.run, request.text_model
    splits: list[str] | None = None
    maker = RunFolder.open(source if run is None else run) if run is not None or is_run_folder(source) else None
    distance = request.distance or ("cosine" if maker is None else maker.section("evaluation").distance)
    data = None if maker is None else maker.section("data")
    if maker is not None and data is not None and text_model is not None and data.name != "vectors":
        raise ValueError(
            f"--text-model is for vectors of an encoder that nothing else names: the run {maker.path} has its own way "
            "from its data to embeddings; leave it out."
        )
    if is_run_folder(source):
        if run is not None:
            raise ValueError(f"--run names the run that made a file: {source} is a run itself; leave it out.")
        assert maker is not None
        splits = _splits(maker) if request.split is None else [request.split]
    text = getattr(data, "text_column", None) or TEXT
    sets = []
    for name in [request.split] if splits is None else splits:
        vectors = read_vectors(source, levels=levels, split=name, choice=request.choice, skip_empty=request.skip_empty)
        if vectors.texts is None and text in vectors.columns:
            vectors = read_vectors(
                source, levels=levels, split=name, choice=request.choice, text=text, skip_empty=request.skip_empty
            )
        sets.append(vectors)
    sets, side = _searched_side(sets, request.side, source)
    if not is_run_folder(source):
        if maker is not None:
            side = _check_made_by(maker, source, sets[0].embeddings.shape[1]) or side
        elif text_model is not None and _model_of(source) is not None:
            raise ValueError(
                f"--text-model must make the embeddings from texts: the model of a run made those of {source}; name "
                "that run with --run, and no --text-model if it was trained on texts."
            )
    about = IndexAbout(
        trivet=__version__,
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        source=str(source.resolve()),
        levels=list(sets[0].labels),
        postprocess=request.postprocess,
    )
    if maker is not None:
        about.run, about.model, about.side = str(maker.path.resolve()), model_hash(maker), side
    else:
        about.model = _model_of(source)
    if text_model is not None:
        about.text_model = str(Path(text_model).resolve()) if Path(text_model).is_dir() else text_model
        about.text_prefix = request.text_prefix
    if maker is not None or text_model is not None:
        about.texts = text_examples(sets)
    if maker is not None and data is not None and splits is not None:
        record = maker.record()
        about.data, about.splits = data.name, splits
        if side is None:
            about.level = (record and record.level) or data.level or next(iter(sets[0].labels), None)
    items = _items(splits, sets)
    notes = list(dict.fromkeys(note for vectors in sets for note in vectors.notes))
    embeddings = sets[0].embeddings if len(sets) == 1 else np.concatenate([vectors.embeddings for vectors in sets])
    with_ids = all(vectors.ids is not None for vectors in sets)
    return Source(embeddings, items, with_ids, about, maker, distance, notes)


def _splits(run: RunFolder) -> list[str]:
    """The evaluation splits of a run, the main one first."""
    record = run.record()
    splits = list(record.evaluation) if record else []
    if not splits:
        raise ValueError(
            f"a run must have been evaluated to be indexed: {run.path} has not; evaluate it with "
            f"`trivet evaluate {typed(run.path)}`, or name one of the splits it has embeddings of with --split."
        )
    return splits


def _searched_side(sets: list[Vectors], side: SideName | None, source: Path) -> tuple[list[Vectors], SideName | None]:
    """The items of one side of pairs, each once, and that side: by default the one that is searched.

    Their cells say what belongs to an item, which is no label of it. Without pairs, all items and no side.

    Raises:
        ValueError: if a side is named and there are no pairs, or none of its items.
    """
    level = next((level for level, rule in sets[0].tags.items() if rule == PAIRS), None)
    if level is None:
        if side is not None:
            raise ValueError(
                f"--side is for items of pairs: {source} does not say what belongs together; leave it out."
            )
        return sets, None
    sides = [sides_of_cells(vectors.labels[level]) for vectors in sets]
    if side is None:
        protocol = sets[0].protocol
        side = SIDES[max(sides[0] if protocol is None else sides[0][protocol.gallery])]
    of_side, indexed = list[Vectors](), np.empty(0, np.str_)
    for vectors, side_numbers in zip(sets, sides, strict=True):
        names = np.array(vectors.names())
        rows = np.flatnonzero((side_numbers == SIDES.index(side)) & ~np.isin(names, indexed))
        labels = {name: values for name, values in vectors.labels.items() if name != level}
        of_side.append(replace(vectors, labels=labels).select(rows))
        indexed = np.concatenate([indexed, names[rows]])
    if not len(indexed):
        raise ValueError(
            f"some items must be of the side that is indexed: {source} has none on the {side}; leave --side out."
        )
    return of_side, side


def _check_made_by(run: RunFolder, source: Path, dimension: int) -> SideName | None:
    """The side of a run whose network made the embeddings of a file; ValueError if they are not those of its model."""
    if dimension != (model_dimension := run.section("model").embedding_dim):
        raise ValueError(
            f"the model of --run must have made the embeddings: that of {run.path} gives {model_dimension} dimensions, "
            f"{source} has {dimension}; name the run that trivet embed was given."
        )
    model = _model_of(source)
    if len(run.section("model").networks) > 1:
        side = next((side for side in SIDES if model_hash(run, side=side) == model), None)
        if side is not None:
            return side
    if model not in (None, model_hash(run)):
        raise ValueError(
            f"the model of --run must have made the embeddings: {source} was made by another than that of "
            f"{run.path}, or before it was trained anew; embed the items again with trivet embed."
        )
    return None


def _model_of(source: Path) -> str | None:
    """The hash of the model that made a file of embeddings, where it says so."""
    if sharded(source):
        return read_manifest(source).model
    metadata = (pq.read_schema(source).metadata or {}) if source.suffix.lower() == ".parquet" else {}
    model = metadata.get(EMBEDDED.encode())
    return None if model is None else model.decode(errors="replace")


def _items(splits: Sequence[str] | None, sets: Sequence[Vectors]) -> pa.Table:
    """The table of the items; of a run, its parts are the splits."""
    columns: dict[str, pa.ChunkedArray] = {}

    def add(name: str, values: Sequence[np.ndarray]) -> None:
        columns[name] = pa.chunked_array([pa.array(column, pa.large_string()) for column in values], pa.large_string())

    add("id", [np.arange(len(vectors)).astype(np.str_) if vectors.ids is None else vectors.ids for vectors in sets])
    if splits is not None:
        add("split", [np.full(len(vectors), name) for name, vectors in zip(splits, sets, strict=True)])
    elif sets[0].splits is not None:
        add("split", [sets[0].splits])
    for level in sets[0].labels:
        add(level, [vectors.labels[level] for vectors in sets])
    return pa.table(columns)
