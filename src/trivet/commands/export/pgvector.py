"""Rows for PostgreSQL with pgvector: a table, its rows as COPY reads them, and an index."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from trivet.commands.export.item_table import EMBEDDING
from trivet.commands.export.text_rows import batches, copy_cell, vector_texts
from trivet.knn.index import EF_CONSTRUCTION, EXACT_ROWS, LINKS
from trivet.metrics.points import Metric

LOAD, INDEX, ROWS = "load.sql", "index.sql", "items.tsv"
OPERATORS: dict[Metric, tuple[str, str]] = {
    "cosine": ("<=>", "vector_cosine_ops"),
    "euclidean": ("<->", "vector_l2_ops"),
}
MOST, INDEXED = 16_000, 2000  # dimensions of a vector, and of one with an index
NAME = 63  # bytes of a name
RESERVED = ("tableoid", "xmin", "cmin", "xmax", "cmax", "ctid")  # of every table


def write_pgvector(folder: Path, table: pa.Table, name: str, distance: Metric) -> None:
    """Write what psql runs to make and fill a table, what makes its index, and its rows.

    Up to 100,000 rows no index is needed, as for `trivet index`, and beyond `load.sql` makes it.

    Raises:
        ValueError: if a text or a name is none for PostgreSQL, or rows are too long.
    """
    dimension = table.schema.field(EMBEDDING).type.list_size
    if dimension > MOST:
        raise ValueError(
            f"pgvector takes up to {MOST} dimensions: got {dimension}; shorten the embeddings, or use --to parquet."
        )
    columns = [column for column in table.column_names if column != EMBEDDING]
    for column in columns:
        if len(column.encode()) > NAME or "\0" in column:
            raise ValueError(
                f"names in PostgreSQL have up to {NAME} bytes, none NUL: got {column!r}; rename the column."
            )
    with (folder / ROWS).open("w", encoding="utf-8", newline="\n") as rows:
        for batch in batches(table):
            cells = [list(map(copy_cell, batch.column(column).to_pylist())) for column in columns]
            for column, texts in zip(columns, cells, strict=True):
                if odd := next((text for text in texts if "\0" in text), None):
                    raise ValueError(
                        f"texts in PostgreSQL hold no NUL: column {column!r} has {odd!r}; remove it, or use --to "
                        "parquet."
                    )
            vectors = vector_texts(batch.column(EMBEDDING), ",").to_pylist()
            rows.writelines("\t".join(row) + f"\t[{vector}]\n" for *row, vector in zip(*cells, vectors, strict=True))
    definitions = [
        f"    {quoted(column)} {_type(table.schema.field(column).type)}{' PRIMARY KEY' if column == 'id' else ''}"
        for column in columns
    ]
    lines = [
        r"\set ON_ERROR_STOP on",
        r"\encoding UTF8",
        "BEGIN;",
        "CREATE EXTENSION IF NOT EXISTS vector;",
        f"CREATE TABLE {quoted(name)} (",
        ",\n".join([*definitions, f"    {EMBEDDING} vector({dimension}) NOT NULL"]),
        ");",
        rf"\copy {quoted(name)} FROM '{ROWS}'",
        *([rf"\ir {INDEX}"] if table.num_rows > EXACT_ROWS and dimension <= INDEXED else []),
        "COMMIT;",
    ]
    (folder / LOAD).write_text("\n".join(lines) + "\n", encoding="utf-8")
    if dimension <= INDEXED:
        (folder / INDEX).write_text(
            f"CREATE INDEX ON {quoted(name)} USING hnsw ({EMBEDDING} {OPERATORS[distance][1]}) "
            f"WITH (m = {LINKS}, ef_construction = {EF_CONSTRUCTION});\n",
            encoding="utf-8",
        )


def quoted(name: str) -> str:
    """The name of a table or a column as SQL reads it; with a line below where every table has such a column."""
    return '"{}"'.format((f"{name}_" if name in RESERVED else name).replace('"', '""'))


def _type(kind: pa.DataType) -> str:
    if pa.types.is_boolean(kind):
        return "boolean"
    if pa.types.is_integer(kind):
        return "numeric" if pa.types.is_uint64(kind) else "bigint"
    return "double precision" if pa.types.is_floating(kind) else "text"
