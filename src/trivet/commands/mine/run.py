"""`trivet mine`: hard negatives of all items of a file, as triplets in a parquet file; on after a kill."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import trivet
from trivet.io.atomic_files import LOCK, atomic_file, partial_folder, write_json
from trivet.io.embedding_source import listed
from trivet.io.embedding_table import Vectors, class_numbers
from trivet.io.overwrite_guard import MINED, is_run_folder
from trivet.io.read_embeddings import read_vectors
from trivet.io.table import open_rows
from trivet.knn.hard_negatives import HardNegatives, MiningCounts, MiningRules, hard_negatives
from trivet.knn.index import Index, build_index
from trivet.metrics.points import Metric, Points, spans
from trivet.runtime.arrays import Integers
from trivet.runtime.fingerprint import fingerprint
from trivet.runtime.progress import steps
from trivet.runtime.safe_read import read_json
from trivet.training.run_folder import RunFolder

CHUNK = 4096  # anchors that are mined for at once, and lost at most by a kill
KEY = "mine.json"
ROLES = ("anchor", "positive", "negative")
FAR = ("to_positive", "to_negative")


def mine_file(
    source: Path,
    output: Path,
    *,
    rules: MiningRules,
    corpus: Path | None = None,
    pairs: Path | None = None,
    level: str | None = None,
    split: str | None = None,
    text: str | None = None,
    distance: Metric | None = None,
    kind: Literal["auto", "exact", "hnsw", "ivf", "ivf-pq"] = "auto",
    recall: float | None = None,
) -> dict[str, Any]:
    """Mine hard negatives for all items of a file, see `hard_negatives`; returns the JSON of `trivet mine`.

    Writes a parquet file with a row for each triplet: the ids `anchor`, `positive` and `negative`, the distances
    `to_positive` and `to_negative`, and the numbers of the rows in their files, `anchor_row` and so on. Its metadata
    say what was mined and how, as JSON under "trivet.mined".

    Anchors are mined for in chunks of 4,096, which are kept beside the output, with the index, until it is whole. After
    a kill the same call goes on from them; a call with other data or options begins anew.

    Args:
        source: what `read_vectors` reads: the anchors, and without `corpus` also the items they are compared with.
        corpus: the items that positives and negatives are taken from.
        pairs: a table with the columns `anchor` and `positive`: ids, or row numbers of a file without ids. Without a
            `level` only these pairs are left out.
        level: the label column; by default the only one there is, and none with `pairs`.
        split: take only the rows of this split of `source`.
        text: a column of texts, written as `anchor_text`, `positive_text` and `negative_text`.
        distance: by default that of the run's evaluation, and "cosine" for a file.
        kind, recall: of the index, as in `build_index`; its seed is that of the rules.

    Raises:
        ValueError: if a file, a column or an option cannot be used.
        OSError: if the output cannot be written.
    """
    if corpus is not None and corpus.resolve() == source.resolve():
        raise ValueError(f"the items of {source} are compared with each other anyway: leave out --corpus.")
    if distance is None:
        distance = RunFolder.open(source).config().evaluation.distance if is_run_folder(source) else "cosine"
    rules.check_distance(distance)
    levels = None if level is None and pairs is None else [] if level is None else [level]
    anchors = read_vectors(source, levels=levels, split=split, text=text)
    if pairs is None:
        level = level or _only_level(source, anchors)
    items = anchors if corpus is None else read_vectors(corpus, levels=[] if level is None else [level], text=text)
    if items.embeddings.shape[1] != anchors.embeddings.shape[1]:
        raise ValueError(
            f"both files must have embeddings of one model: {source} has {anchors.embeddings.shape[1]} dimensions, "
            f"{corpus} has {items.embeddings.shape[1]}."
        )
    listed_pairs = None if pairs is None else _read_pairs(pairs, anchors, items)
    numbers: tuple[Integers, ...] = ()
    if level is not None:
        numbers, _ = class_numbers(*(item.labels[level] for item in ((items,) if corpus is None else (items, anchors))))
    arguments: dict[str, Any] = {"labels": numbers[0] if numbers else None, "pairs": listed_pairs, "rules": rules}
    if corpus is not None:
        arguments |= {"anchors": anchors.embeddings, "anchor_labels": numbers[1] if numbers else None}
        Points(anchors.embeddings, distance=distance, name="anchors")  # that no chunk is refused after hours
    rows = np.arange(len(anchors)) if listed_pairs is None else np.unique(listed_pairs[:, 0])
    settings = {"distance": distance, "kind": kind, "recall": recall, **asdict(rules)}
    with partial_folder(output) as folder:
        key = _key(settings, [anchors, items], [*numbers, *([] if listed_pairs is None else [listed_pairs])])
        index = _index(folder, items, key, settings)
        chunks = list(enumerate(spans(len(rows), CHUNK)))
        chunk_files = [folder / f"part-{number:05d}.parquet" for number, _ in chunks]
        reused = sum(item.is_file() for item in chunk_files)
        for number, (start, stop) in steps(chunks, "mining, in chunks"):
            if not chunk_files[number].is_file():
                _write_chunk(chunk_files[number], hard_negatives(index, rows=rows[start:stop], **arguments))
        record = {
            "trivet": trivet.__version__,
            "source": str(source.resolve()),
            "corpus": None if corpus is None else str(corpus.resolve()),
            "pairs": None if pairs is None else str(pairs.resolve()),
            "level": level,
            "split": split,
            "distance": distance,
            "rules": asdict(rules),
            "index": {"kind": index.info.kind, "parameters": dict(index.info.parameters), "recall": index.info.recall},
            **_summary(chunk_files),
        }
        _write_output(output, chunk_files, anchors, items, record)
    return {"output": str(output), **record, "chunks": len(chunk_files), "reused": reused}


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


def _key(settings: dict[str, Any], sets: Sequence[Vectors], numbers: Sequence[Integers]) -> str:
    """Fingerprint of the settings and all numbers of a mining."""
    embeddings = [vectors.embeddings for vectors in dict.fromkeys(sets)]
    blocks = [rows[start:stop] for rows in embeddings for start, stop in spans(len(rows), CHUNK)]
    return fingerprint([trivet.__version__, CHUNK, settings, *blocks, *numbers])


def _index(folder: Path, items: Vectors, key: str, settings: dict[str, Any]) -> Index:
    """The index of the items, in the folder, whose vectors stay on disk. What is there of another key is removed."""
    mark = folder / KEY
    if not mark.is_file() or read_json(mark, "a list of parts") != {"key": key}:
        for item in folder.iterdir():
            if item.name != LOCK:
                item.unlink()
        made = {name: settings[name] for name in ("distance", "kind", "recall", "seed")}
        build_index(items.embeddings, **made).save(folder)
        write_json(mark, {"key": key})
    return Index.load(folder)


def _write_chunk(path: Path, mined: HardNegatives) -> None:
    """The triplets of a chunk, by their positions."""
    columns = {role: getattr(mined, f"{role}s") for role in ROLES} | {name: getattr(mined, name) for name in FAR}
    metadata = {MINED: json.dumps(mined.counts._asdict())}
    with atomic_file(path) as partial:
        pq.write_table(pa.table(columns).replace_schema_metadata(metadata), partial)


def _summary(chunk_files: Sequence[Path]) -> dict[str, Any]:
    """The counts of all chunks, and how far positives and negatives are on average; None without a triplet."""
    counts = MiningCounts.total(
        MiningCounts(**json.loads(pq.read_schema(file).metadata[MINED.encode()])) for file in chunk_files
    )
    sums = np.zeros(3)
    for file in chunk_files:
        near, far = (column.to_numpy() for column in pq.read_table(file, columns=list(FAR)).columns)
        sums += near.sum(), far.sum(), (far < near).sum()
    means = (sums / counts.taken).tolist() if counts.taken else [None] * 3
    return {"triplets": counts.taken, "counts": counts._asdict(), **dict(zip((*FAR, "nearer"), means, strict=True))}


def _write_output(
    output: Path, chunk_files: Sequence[Path], anchors: Vectors, items: Vectors, record: dict[str, Any]
) -> None:
    sets = (anchors, items, items)
    fields = [(role, pa.string()) for role in ROLES] + [(name, pa.float64()) for name in FAR]
    fields += [(f"{role}_row", pa.int64()) for role in ROLES]
    if anchors.texts is not None:
        fields += [(f"{role}_text", pa.string()) for role in ROLES]
    schema = pa.schema(fields).with_metadata({MINED: json.dumps(record)})
    ids = {id(vectors): pa.array(vectors.names(), pa.string()) for vectors in sets}
    texts = {id(vectors): pa.array(vectors.texts, pa.string()) for vectors in sets if vectors.texts is not None}

    def columns(chunk: pa.Table) -> Iterator[pa.Array | npt.NDArray[Any] | pa.ChunkedArray]:
        yield from (ids[id(vectors)].take(chunk[role]) for role, vectors in zip(ROLES, sets, strict=True))
        yield from (chunk[name] for name in FAR)
        yield from (vectors.rows[chunk[role].to_numpy()] for role, vectors in zip(ROLES, sets, strict=True))
        if texts:
            yield from (texts[id(vectors)].take(chunk[role]) for role, vectors in zip(ROLES, sets, strict=True))

    with atomic_file(output) as partial, pq.ParquetWriter(partial, schema) as writer:
        for file in chunk_files:
            writer.write_table(pa.table(list(columns(pq.read_table(file))), schema=schema))
