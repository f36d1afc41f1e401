"""The card beside exported embeddings: what the columns are, the verdicts, and how each program opens them."""

from __future__ import annotations

from collections.abc import Mapping

from trivet.commands.export.card import escaped
from trivet.commands.export.item_table import EMBEDDING, MAP_X, NEIGHBOURS, SUSPECT, ItemTable
from trivet.commands.export.pgvector import INDEXED, OPERATORS, quoted
from trivet.commands.export.record import ExportedEmbeddings
from trivet.datasets.table import are_image_paths
from trivet.io.read_embeddings import TEXT
from trivet.knn.index import EF_SEARCH, EXACT_ROWS
from trivet.runtime.text import counted

METRICS = {"cosine": "cosine", "euclidean": "l2"}  # as LanceDB names them

ATLAS = """embedding-atlas items.parquet --x map_x --y map_y --neighbors neighbors{text}"""
LANCE = """import lancedb
import pyarrow.parquet as pq

table = pq.read_table("items.parquet")
items = lancedb.connect("lancedb").create_table({name}, table)
query = table.column("embedding")[0].as_py()
nearest = items.search(query).distance_type({metric}).limit(10).to_list()"""
FIFTYONE = """import fiftyone as fo
import fiftyone.brain as fob
import numpy as np
import pyarrow.parquet as pq

table = pq.read_table("items.parquet")
rows = table.drop_columns(["embedding", "neighbors"]).to_pylist()
taken = ("id", "filepath", "tags", "metadata")  # fields of every sample
dataset = fo.Dataset({name})
dataset.add_samples(
    fo.Sample(
        filepath=row[{path}],
        **{{f"{{key}}_" if key in taken else key: value for key, value in row.items() if value is not None}},
    )
    for row in rows
)
embeddings = np.stack(table.column("embedding").to_numpy()){unit}
points = np.stack([table.column(axis).to_numpy() for axis in ("map_x", "map_y")], axis=1)
fob.compute_visualization(dataset, points=points, embeddings=embeddings, brain_key="map")
fob.compute_similarity(dataset, embeddings=embeddings, metric="euclidean", brain_key="similarity")
dataset.persistent = True"""
UNIT = """  # unit rows, as FiftyOne centres vectors before it takes cosines
embeddings /= np.maximum(np.linalg.norm(embeddings, axis=1, keepdims=True), 1e-30)"""
QDRANT = """put() {{
    curl --fail -X PUT "$QDRANT_URL/collections/$1" -H "Content-Type: application/json" --data-binary "@$2"
}}
put {name} collection.json
for file in points/*.json; do put "{name}/points?wait=true" "$file"; done"""
MEANINGS: Mapping[str, str] = {
    "id": "the id of the item, or the number of its row",
    MAP_X: "where the map has the item, with map_y",
    NEIGHBOURS: "rows of the 10 nearest others, counted from 0, nearest first, and their distances",
    "proposed_label": "the label that the audit proposes, the item's own where no other is more probable",
    "probability_wrong": "that the label is wrong",
    "probability_not_separable": "that it is wrong, or that its class overlaps with another there",
    "evidence": "what speaks for the label and against it",
    "duplicate": "exact or near",
    "duplicate_of": "the id of the item that it resembles",
    "outlier": "whether it lies far from all others",
    EMBEDDING: "the vector",
}


def item_card(made: ExportedEmbeddings, items: ItemTable, name: str) -> str:
    """The card as Markdown.

    Args:
        name: of the table or collection.
    """
    sections = [
        f"# {escaped(name)}",
        f"{counted(made.items, 'embedding')} of dimension {made.dimension}, exported with Trivet. Compare them by "
        f"{made.distance} distance. {made.checked}",
    ]
    if made.verdicts:
        lines = "\n".join(f"- {escaped(verdict)}" for verdict in made.verdicts)
        sections.append(f"## Verdicts\n\nBy {escaped(made.level)}:\n\n{lines}")
    if made.map is not None:
        sections.append(f"The map was drawn by {made.map}.")
    sections += {"parquet": _viewers, "projector": _projector, "pgvector": _pgvector, "qdrant": _qdrant}[made.to](
        made, items, name
    )
    known = [column for column in made.columns if column in MEANINGS]
    sections.append(
        "## Columns\n\n" + "\n".join(f"- `{column}`: {MEANINGS[column]}" for column in known) + "\n\nThe others are "
        "those of the file."
    )
    if made.notes:
        sections.append("## Notes\n\n" + "\n".join(f"- {escaped(note)}" for note in made.notes))
    return "\n\n".join(sections) + "\n"


def _viewers(made: ExportedEmbeddings, items: ItemTable, name: str) -> list[str]:
    text = f" --text {TEXT}" if TEXT in made.columns else ""
    values = {
        "name": repr(name),
        "path": repr(_path_column(items)),
        "metric": repr(METRICS[made.distance]),
    }
    return [
        f"## Embedding Atlas\n\nAfter `pip install embedding-atlas`:\n\n```sh\n{ATLAS.format(text=text)}\n```",
        f"## LanceDB\n\nAfter `pip install lancedb`:\n\n```python\n{LANCE.format_map(values)}\n```",
        "## FiftyOne\n\nAfter `pip install fiftyone`:\n\n```python\n"
        + FIFTYONE.format_map(values | {"unit": UNIT if made.distance == "cosine" else ""})
        + "\n```",
    ]


def _path_column(items: ItemTable) -> str:
    """The column of paths of images; the id where there is none."""
    for column in items.table.column_names:
        if str(items.table.schema.field(column).type) in ("string", "large_string"):
            some = [value for value in items.table.column(column).slice(0, 100).to_pylist() if value]
            if column not in SUSPECT and some and are_image_paths(some):
                return str(column)
    return "id"


def _projector(made: ExportedEmbeddings, items: ItemTable, name: str) -> list[str]:
    return [
        "## TensorBoard\n\nAfter `pip install tensorboard`, in this folder, and then under Projector:\n\n```sh\n"
        "tensorboard --logdir .\n```\n\nOr load `tensors.tsv` and `metadata.tsv` into a projector by hand."
    ]


def _pgvector(made: ExportedEmbeddings, items: ItemTable, name: str) -> list[str]:
    operator, table = OPERATORS[made.distance][0], quoted(name)
    if made.dimension > INDEXED:
        index = f"Search compares with every row: pgvector indexes up to {INDEXED} dimensions."
    elif made.items > EXACT_ROWS:
        index = (
            f"`load.sql` makes an hnsw index. `SET hnsw.ef_search = {EF_SEARCH};` before a search, or more, to miss "
            "fewer of the nearest."
        )
    else:
        index = (
            "Without an index, search compares with every row and is exact. `index.sql` makes an hnsw index, which is "
            f"faster and misses some; `SET hnsw.ef_search = {EF_SEARCH};` before a search, or more, to miss fewer."
        )
    return [
        "## PostgreSQL\n\nIn this folder; the table must not exist yet:\n\n```sh\npsql -f load.sql\n```",
        "The nearest of an item:\n\n```sql\n"
        f"SELECT other.id, other.embedding {operator} item.embedding AS distance\n"
        f"FROM {table} AS item, {table} AS other\n"
        f"WHERE item.id = 'ID' AND other.id <> item.id\n"
        "ORDER BY distance LIMIT 10;\n```\n\n" + index,
    ]


def _qdrant(made: ExportedEmbeddings, items: ItemTable, name: str) -> list[str]:
    return [
        "## Qdrant\n\nIn this folder; the collection must not exist yet:\n\n```sh\n"
        + QDRANT.format(name=name)
        + "\n```",
        "The id of a point is a UUID of version 5 of the id of its item, in the name space of URLs: "
        "`uuid.uuid5(uuid.NAMESPACE_URL, id)`.",
    ]
