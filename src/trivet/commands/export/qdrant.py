"""Points for Qdrant: the bodies of the requests that make a collection and fill it."""

from __future__ import annotations

import json
import math
import uuid
from pathlib import Path

import pyarrow as pa

from trivet.commands.export.item_table import EMBEDDING
from trivet.commands.export.text_rows import vector_texts
from trivet.metrics.points import Metric

COLLECTION, POINTS, FILE = "collection.json", "points", "{:06}.json"
DISTANCES: dict[Metric, str] = {"cosine": "Cosine", "euclidean": "Euclid"}
POINTS_PER_FILE, BYTES, DIGITS = 1000, 2**24, 12  # a request may have 32 MiB; of a number, with its comma


def write_qdrant(folder: Path, table: pa.Table, distance: Metric) -> None:
    """Write the description of the collection, and its points in files that are a request each.

    The id of a point is a UUID of version 5 of the item's id, so that an item exported again takes the place of its
    point; the payload holds the id itself and the other columns.
    """
    dimension = table.schema.field(EMBEDDING).type.list_size
    described = {"vectors": {"size": dimension, "distance": DISTANCES[distance]}}
    (folder / COLLECTION).write_text(json.dumps(described) + "\n", encoding="utf-8")
    names = [name for name in table.column_names if name != EMBEDDING]
    (folder / POINTS).mkdir()
    size = max(1, min(POINTS_PER_FILE, BYTES // (DIGITS * dimension)))
    for number, start in enumerate(range(0, table.num_rows, size), start=1):
        (chunk,) = table.slice(start, size).combine_chunks().to_batches()
        payloads = chunk.select(names).to_pylist()
        vectors = vector_texts(chunk.column(EMBEDDING), ",").to_pylist()
        points = [
            f'{{"id":"{point_id(payload["id"])}","payload":{_json(payload)},"vector":[{vector}]}}'
            for payload, vector in zip(payloads, vectors, strict=True)
        ]
        (folder / POINTS / FILE.format(number)).write_text(
            '{"points":[\n' + ",\n".join(points) + "\n]}\n", encoding="utf-8", newline="\n"
        )


def point_id(id: str) -> str:
    """The id of the point of an item: a UUID of version 5, in the name space of URLs.

    Example:
        >>> point_id("picture 007")
        '6a01f859-43c9-5322-a197-2c8c0348e7d3'
    """
    return str(uuid.uuid5(uuid.NAMESPACE_URL, id))


def _json(payload: dict[str, object]) -> str:
    values = {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in payload.items()
    }
    return json.dumps(values, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
