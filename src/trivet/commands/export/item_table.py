"""The items of embeddings as a table: their columns, and for viewers a map, neighbours, suspect labels and verdicts."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch

from trivet.collapse import Verdict
from trivet.commands.audit.audited import Audited
from trivet.commands.audit.items import first_level, items_of_vectors
from trivet.commands.audit.options import AuditOptions
from trivet.commands.audit.run import audit_classes
from trivet.commands.audit.tags import audit_tags
from trivet.commands.diagnose.inputs import input_of_vectors
from trivet.commands.diagnose.run import diagnose_input
from trivet.commands.displayed_items import plane_coordinates
from trivet.commands.export.options import ExportOptions
from trivet.commands.inputs import default_distance, run_distance
from trivet.io.embedding_table import Vectors
from trivet.io.overwrite_guard import is_run_folder
from trivet.io.parquet_files import level_line, table_of
from trivet.io.read_embeddings import TEXT, read_vectors
from trivet.io.tag_cells import PAIRS
from trivet.knn.index import NEAREST, Index, build_index
from trivet.metrics.points import Metric, spans
from trivet.runtime.progress import report, work
from trivet.runtime.text import abbreviated, counted

MAP_X, MAP_Y, NEIGHBOURS, EMBEDDING = "map_x", "map_y", "neighbors", "embedding"
SUSPECT = {
    "proposed_label": pa.string(),
    "probability_wrong": pa.float64(),
    "probability_not_separable": pa.float64(),
    "evidence": pa.string(),
    "duplicate": pa.string(),
    "duplicate_of": pa.string(),
    "outlier": pa.bool_(),
}
WRITTEN = (EMBEDDING, MAP_X, MAP_Y, NEIGHBOURS, *SUSPECT)
MAPPED = 10_000  # items up to which t-SNE draws them; it takes a minute for these
SAMPLE = 200  # items whose neighbours a search in float32 must find
NAMED = 8  # columns that are left out, in a note
QUERIES = 16  # of these at once
SEARCHED = 1000  # rows whose neighbours are found between two reports


@dataclass(frozen=True, eq=False)
class ItemTable:
    """Embeddings and what is known of their items.

    Attributes:
        vectors: the rows as they were read.
        embeddings: `(N, d)` float32.
        table: `id`, the columns of the file, those of `WRITTEN` that were made; the last is `embedding`, d float32.
        distance: by which they are compared.
        level: the label level that is judged; None without labels.
        map: how items were laid out; None where they were not.
        verdicts: on the embedding and on the labels, a line each.
        notes: what a reader must know.
    """

    vectors: Vectors
    embeddings: npt.NDArray[np.float32]
    table: pa.Table
    distance: Metric
    level: str | None
    map: str | None = None
    verdicts: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def read_items(request: ExportOptions) -> ItemTable:
    """The rows of a file or of a split of a run with their columns, without what viewers show."""
    path = request.source

    def read(levels: list[str] | None) -> Vectors:
        return read_vectors(
            path, cells=True, levels=levels, tags=request.tags, choice=request.choice, split=request.split,
            skip_empty=request.skip_empty,
        )  # fmt: skip

    vectors, level = read(None), request.labels
    if level is not None and level not in vectors.labels:  # such as a column of numbers
        vectors = read([*vectors.labels, level])
    if level is None and (vectors.tags or any(name != TEXT for name in vectors.labels)):
        level = next(iter(vectors.tags), None) or first_level(vectors, TEXT)
    distance = request.distance or (run_distance(path) if is_run_folder(path) else default_distance(vectors))
    with np.errstate(over="ignore"):
        embeddings = np.array(vectors.embeddings, np.float32)  # a copy, as torch wants it writable
    if not np.isfinite(embeddings).all():
        row = int(np.flatnonzero(~np.isfinite(embeddings).all(axis=1))[0])
        raise ValueError(
            f"embeddings must fit into float32, as other programs hold them: item {vectors.names()[row]!r} of "
            f"{vectors.name} has a number beyond 3.4e38; divide all by their largest."
        )
    names = [name for name in vectors.columns if name != "id" and name not in WRITTEN]
    notes = list(vectors.notes)
    if replaced := [name for name in vectors.columns if name in WRITTEN]:
        notes.append(f"Columns with the names of what is written are left out: {abbreviated(replaced, NAMED)}.")
    if vectors.nested:
        notes.append(f"Columns of lists, objects or bytes are left out: {abbreviated(vectors.nested, NAMED)}.")
    zeros = int((~embeddings.any(axis=1)).sum())
    if zeros and distance == "cosine":
        notes.append(
            f"{counted(zeros, 'item')} of zeros only have no direction: each program ranks them by a rule of its own."
        )
    table = table_of(
        embeddings,
        vectors.names(),
        {name: vectors.cells[name] for name in names},
        levels=[level_line(name, vectors.tags.get(name)) for name in vectors.labels if name in names],
        metadata={"trivet.distance": distance},
    )
    return ItemTable(vectors, embeddings, table, distance, level, notes=notes)


def with_views(items: ItemTable, index: Index, *, seed: int) -> ItemTable:
    """The items with a map, neighbours, suspect labels and verdicts.

    Args:
        index: of their embeddings.
    """
    columns, drawn = _map(items, seed)
    judged, verdicts, notes = _judged(items, seed)
    columns |= judged | {NEIGHBOURS: _neighbours(index)}
    table = items.table.select([name for name in items.table.column_names if name != EMBEDDING])
    for name, column in columns.items():
        table = table.append_column(name, column)
    table = table.append_column(items.table.schema.field(EMBEDDING), items.table.column(EMBEDDING))
    metadata = (items.table.schema.metadata or {}) | {"trivet.map": drawn, "trivet.verdicts": "\n".join(verdicts)}
    return replace(
        items,
        table=table.replace_schema_metadata(metadata),
        map=drawn,
        verdicts=verdicts,
        notes=[*items.notes, *notes],
    )


def _map(items: ItemTable, seed: int) -> tuple[dict[str, pa.Array], str]:
    """The columns of the map, and how it was drawn."""
    with work("map"):
        ways = plane_coordinates(items.embeddings, seed=seed, most=MAPPED)
    way, coordinates = list(ways.items())[-1]
    xy = np.array(coordinates).reshape(-1, 2)
    return {MAP_X: pa.array(xy[:, 0]), MAP_Y: pa.array(xy[:, 1])}, way


def _neighbours(index: Index) -> pa.Array:
    """The 10 nearest other rows of each, nearest first: numbers of rows from 0, and distances."""
    ids, distances = list[list[int]](), list[list[float]]()
    for start, stop in spans(len(index), SEARCHED):
        nearest = index.search_rows(np.arange(start, stop), min(NEAREST, len(index)))
        for rows, gaps in zip(nearest.indices.tolist(), nearest.distances.tolist(), strict=True):
            ids.append([row for row in rows if row >= 0])
            distances.append(gaps[: len(ids[-1])])
        report("neighbours", stop, len(index))
    return pa.StructArray.from_arrays(
        [pa.array(ids, pa.list_(pa.int64())), pa.array(distances, pa.list_(pa.float64()))], ["ids", "distances"]
    )


def _judged(items: ItemTable, seed: int) -> tuple[dict[str, pa.Array], list[str], list[str]]:
    """Columns of suspects, verdicts on the embedding and on the labels, and notes; none without labels."""
    vectors, level = items.vectors, items.level
    if level is None:
        return {}, [], ["No column of labels: nothing is judged."]
    verdicts, notes = list[str](), list[str]()
    try:
        subject = replace(input_of_vectors(vectors, level), distance=items.distance)
        diagnosis = diagnose_input(subject, seed=seed).summary
        verdicts += [Verdict(**verdict.as_json()).title for verdict in diagnosis.verdicts]
    except ValueError as error:
        notes.append(f"Not diagnosed: {error}")
    if vectors.tags.get(level) == PAIRS:
        return {}, verdicts, [*notes, "Pairs are audited by what lists them, with trivet audit --pairs."]
    try:
        of_audit = items_of_vectors(vectors, level, distance=items.distance)
        audit = audit_tags if of_audit.tagged else audit_classes
        audited = audit(AuditOptions(embeddings=Path(vectors.name), seed=seed), of_audit)
    except ValueError as error:
        return {}, verdicts, [*notes, f"Not audited: {error}"]
    rate = audited.record.noise_rate
    verdicts.append(audited.record.headline if rate is None else rate.headline())
    return _suspects(audited, len(vectors)), verdicts, [*notes, *audited.record.notes]


def _suspects(audited: Audited, count: int) -> dict[str, pa.Array]:
    """Columns `(N,)` of what is said of the suspects, null for others; none where the embedding cannot judge."""
    positions = audited.positions.tolist()[: len(audited.suspects)]
    columns = {}
    for name, kind in SUSPECT.items():
        values = dict(zip(positions, (getattr(suspect, name) for suspect in audited.suspects), strict=True))
        if any(value is not None for value in values.values()):
            columns[name] = pa.array([values.get(row) for row in range(count)], kind)
    return columns


def float32_recall(items: ItemTable, exact: Index, *, seed: int) -> float:
    """Share of the nearest of up to 200 items that a plain search in float32 finds, as other programs compute it.

    Found is what lies no farther than the last of the nearest that `exact` finds, so that ties count.
    """
    points = torch.from_numpy(items.embeddings)
    k = min(NEAREST, len(points) - 1)
    if not k:
        return 1.0
    if items.distance == "cosine":
        points = points / points.norm(dim=1, keepdim=True)
    sample = np.sort(np.random.default_rng(seed).choice(len(points), min(SAMPLE, len(points)), replace=False))
    rows = np.empty((len(sample), k), np.int64)
    for start, stop in spans(len(sample), QUERIES):
        numbers = torch.from_numpy(sample[start:stop])
        if items.distance == "cosine":
            gaps = 1 - points[numbers] @ points.T
        else:
            gaps = torch.cdist(points[numbers], points, compute_mode="donot_use_mm_for_euclid_dist")
        gaps[torch.arange(len(numbers)), numbers] = torch.inf
        rows[start:stop] = gaps.topk(k, largest=False).indices.numpy()
    last = exact.search_rows(sample, k).distances[:, -1:]
    return float((exact.distances_of_rows(sample, rows) <= last).mean())


def exact_index(items: ItemTable) -> Index:
    """The index that compares with every row."""
    return build_index(items.embeddings, distance=items.distance, kind="exact")
