"""`trivet mine`: hard negatives of all items of a file, as triplets in a parquet file; on after a kill."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from trivet.commands.inputs import run_distance
from trivet.commands.mine.options import MineOptions
from trivet.datasets.tags import column_relations
from trivet.io.atomic_files import LOCK, atomic_file, partial_folder, write_json
from trivet.io.embedding_table import Vectors
from trivet.io.formats import open_rows
from trivet.io.overwrite_guard import MINED
from trivet.io.read_embeddings import read_vectors
from trivet.io.table import listed
from trivet.knn.hard_negatives import HardNegatives, MiningCounts, MiningRules, hard_negatives
from trivet.knn.index import Index, build_index
from trivet.metrics.points import Metric, Points, spans
from trivet.mining import Relation
from trivet.runtime.arrays import Integers
from trivet.runtime.fingerprint import fingerprint
from trivet.runtime.progress import steps
from trivet.runtime.record import Record
from trivet.runtime.safe_read import read_json
from trivet.runtime.version import __version__

CHUNK = 4096  # anchors that are mined for at once, and lost at most by a kill
KEY = "mine.json"
ROLES = ("anchor", "positive", "negative")
FAR = ("to_positive", "to_negative")


class MiningIndex(Record):
    """The index that triplets were mined with."""

    kind: str
    parameters: dict[str, int]
    recall: float


class MiningResult(Record):
    """Settings and counts of a mining; means over the triplets are None where there is none.

    Attributes:
        rules, counts: `MiningRules` and `MiningCounts`.
        nearer: the share of triplets whose negative is nearer than the positive.
        chunks, reused: how many there were, and how many of them before; not in the file.
    """

    output: str = ""
    trivet: str
    source: str
    corpus: str | None
    pairs: str | None
    level: str | None
    split: str | None
    distance: Metric
    rules: dict[str, int | float | str | None]
    index: MiningIndex
    triplets: int
    counts: dict[str, int]
    to_positive: float | None
    to_negative: float | None
    nearer: float | None
    chunks: int = 0
    reused: int = 0


def mine_file(request: MineOptions) -> MiningResult:
    """Mine hard negatives for all items of a file as the options say, see `hard_negatives`.

    Writes a parquet file with a row for each triplet: the ids `anchor`, `positive` and `negative`, the distances
    `to_positive` and `to_negative`, the numbers of the rows in their files, `anchor_row` and so on, and with `text`
    their texts. Its metadata say what was mined and how, as JSON under "trivet.mined".

    Anchors are mined for in chunks of 4,096, which stay beside the output, with the index, until it is whole. After
    a kill the same call goes on from them; a call with other data or options begins anew.
    """
    source, corpus, pairs, level = request.vectors, request.corpus, request.pairs, request.labels
    rules = MiningRules(**{field.name: getattr(request, field.name) for field in fields(MiningRules)})
    if corpus is not None and corpus.resolve() == source.resolve():
        raise ValueError(f"the items of {source} are compared with each other anyway: leave out --corpus.")
    distance = request.distance or run_distance(source)
    rules.check_distance(distance)
    levels = None if level is None and pairs is None else [] if level is None else [level]
    read = partial(read_vectors, tags=request.tags, text=request.text)
    anchors = read(source, levels=levels, choice=request.choice, split=request.split)
    if pairs is None:
        level = level or _only_level(source, anchors)
    levels = [] if level is None else [level]
    its = replace(request.choice, table=None)
    items = anchors if corpus is None else read(corpus, levels=levels, choice=its)
    if items.embeddings.shape[1] != anchors.embeddings.shape[1]:
        raise ValueError(
            f"both files must have embeddings of one model: {source} has {anchors.embeddings.shape[1]} dimensions, "
            f"{corpus} has {items.embeddings.shape[1]}."
        )
    listed_pairs = None if pairs is None else _read_pairs(pairs, anchors, items)
    names: tuple[str, ...] = ()
    labels: list[Relation] = []
    sides = (items,) if corpus is None else (items, anchors)
    match = None if level is None else items.tags.get(level)
    if level is not None:
        if match != anchors.tags.get(level):
            raise ValueError(
                f"both files must have tags at level {level!r}, or classes: one of them has tags; name another."
            )
        labels, names = column_relations(*(side.labels[level] for side in sides), match=match)
    mined = partial(hard_negatives, labels=labels[0] if labels else None, pairs=listed_pairs, rules=rules)
    if corpus is not None:
        mined = partial(mined, anchors=anchors.embeddings, anchor_labels=labels[1] if labels else None)
        Points(anchors.embeddings, distance=distance, name="anchors")  # that no chunk is refused after hours
    rows = np.arange(len(anchors)) if listed_pairs is None else np.unique(listed_pairs[:, 0])
    kind, recall = request.kind, request.recall
    with partial_folder(request.output) as folder:
        embeddings = [vectors.embeddings for vectors in dict.fromkeys([anchors, items])]
        blocks = [rows[start:stop] for rows in embeddings for start, stop in spans(len(rows), CHUNK)]
        numbers = [*(side.items.numpy() for side in labels), *([] if listed_pairs is None else [listed_pairs])]
        tags = {"match": match, "names": () if match is None else names}
        settings = {"distance": distance, "kind": kind, "recall": recall, **tags, **asdict(rules)}
        key = fingerprint([__version__, CHUNK, settings, *blocks, *numbers])
        index = _index(
            folder,
            key,
            lambda: build_index(items.embeddings, distance=distance, kind=kind, recall=recall, seed=rules.seed),
        )
        chunks = list(enumerate(spans(len(rows), CHUNK)))
        chunk_files = [folder / f"part-{number:05d}.parquet" for number, _ in chunks]
        reused = sum(item.is_file() for item in chunk_files)
        for number, (start, stop) in steps(chunks, "mining, in chunks"):
            if not chunk_files[number].is_file():
                _write_chunk(chunk_files[number], mined(index, rows=rows[start:stop]))
        info = index.info
        del index  # its file is mapped, and goes with the folder, which Windows refuses meanwhile
        counts, (to_positive, to_negative, nearer) = _summary(chunk_files)
        record = MiningResult(
            trivet=__version__,
            source=str(source.resolve()),
            corpus=None if corpus is None else str(corpus.resolve()),
            pairs=None if pairs is None else str(pairs.resolve()),
            level=level,
            split=request.split,
            distance=distance,
            rules=asdict(rules),
            index=MiningIndex(kind=info.kind, parameters=info.parameters, recall=info.recall),
            triplets=counts.taken,
            counts=counts._asdict(),
            to_positive=to_positive,
            to_negative=to_negative,
            nearer=nearer,
        )
        _write_output(request.output, chunk_files, anchors, items, record)
    return record.model_copy(update={"output": str(request.output), "chunks": len(chunk_files), "reused": reused})


def _only_level(path: Path, vectors: Vectors) -> str:
    if len(vectors.labels) != 1:
        raise ValueError(
            f"one label column must say which items are no negatives: {path} has {listed(list(vectors.labels))}"
            f"{vectors.why_none()}; name one with --labels, or list positives with --pairs."
        )
    return next(iter(vectors.labels))


def _read_pairs(path: Path, anchors: Vectors, items: Vectors) -> Integers:
    """The positions `(P, 2)` of the ids that a table pairs."""
    table = open_rows(path, "pairs")
    columns = []
    for role, vectors in zip(ROLES[:2], (anchors, items), strict=True):
        ids = table.column(role, f"the {role}s of pairs").cast(pa.large_string())
        positions = pc.index_in(ids, pa.array(vectors.names(), pa.large_string()))
        if positions.null_count:
            row = positions.is_null().to_numpy().argmax()
            raise ValueError(
                f"each {role} of a pair must be the id of an item, or its row number in a file without ids: "
                f"{vectors.name} has no {ids[row].as_py()!r}, of row {row} of {path}; correct or remove it."
            )
        columns.append(positions.to_numpy().astype(np.int64))
    return np.stack(columns, axis=1)


def _index(folder: Path, key: str, build: Callable[[], Index]) -> Index:
    """The index in the folder, whose vectors stay on disk. What is there of another key is removed."""
    mark = folder / KEY
    if not mark.is_file() or read_json(mark, "a list of parts") != {"key": key}:
        for item in folder.iterdir():
            if item.name != LOCK:
                item.unlink()
        build().save(folder)
        write_json(mark, {"key": key})
    return Index.load(folder)


def _write_chunk(path: Path, mined: HardNegatives) -> None:
    """The triplets of a chunk, by their positions."""
    columns = {role: getattr(mined, f"{role}s") for role in ROLES} | {name: getattr(mined, name) for name in FAR}
    metadata = {MINED: json.dumps(mined.counts._asdict())}
    with atomic_file(path) as partial:
        pq.write_table(pa.table(columns).replace_schema_metadata(metadata), partial)


def _summary(chunk_files: Sequence[Path]) -> tuple[MiningCounts, list[float | None]]:
    """The counts of all chunks, and how far positives and negatives are on average; None without a triplet."""
    counts = MiningCounts.total(
        MiningCounts(**json.loads(pq.read_schema(file).metadata[MINED.encode()])) for file in chunk_files
    )
    sums = np.zeros(3)
    for file in chunk_files:
        near, far = (column.to_numpy() for column in pq.read_table(file, columns=list(FAR)).columns)
        sums += near.sum(), far.sum(), (far < near).sum()
    return counts, (sums / counts.taken).tolist() if counts.taken else [None] * 3


def _write_output(
    output: Path, chunk_files: Sequence[Path], anchors: Vectors, items: Vectors, record: MiningResult
) -> None:
    sets = (anchors, items, items)
    fields = [(role, pa.string()) for role in ROLES] + [(name, pa.float64()) for name in FAR]
    fields += [(f"{role}_row", pa.int64()) for role in ROLES]
    all_texts = all(vectors.texts is not None for vectors in sets)
    if all_texts:
        fields += [(f"{role}_text", pa.string()) for role in ROLES]
    schema = pa.schema(fields).with_metadata({MINED: json.dumps(record.as_json(unset=False))})
    ids = {id(vectors): pa.array(vectors.names(), pa.string()) for vectors in sets}
    texts = {id(vectors): pa.array(vectors.texts, pa.string()) for vectors in sets if vectors.texts is not None}

    def columns(chunk: pa.Table) -> Iterator[pa.Array | npt.NDArray[Any] | pa.ChunkedArray]:
        yield from (ids[id(vectors)].take(chunk[role]) for role, vectors in zip(ROLES, sets, strict=True))
        yield from (chunk[name] for name in FAR)
        yield from (vectors.rows[chunk[role].to_numpy()] for role, vectors in zip(ROLES, sets, strict=True))
        if all_texts:
            yield from (texts[id(vectors)].take(chunk[role]) for role, vectors in zip(ROLES, sets, strict=True))

    with atomic_file(output) as partial, pq.ParquetWriter(partial, schema) as writer:
        for file in chunk_files:
            writer.write_table(pa.table(list(columns(pq.read_table(file))), schema=schema))
