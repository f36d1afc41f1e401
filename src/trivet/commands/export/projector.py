"""The files of TensorBoard's embedding projector, which knows no quotes and no escapes."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from trivet.commands.export.item_table import EMBEDDING, NEIGHBOURS
from trivet.commands.export.text_rows import batches, plain_cell, vector_texts

TENSORS, METADATA, CONFIG = "tensors.tsv", "metadata.tsv", "projector_config.pbtxt"


def write_projector(folder: Path, table: pa.Table) -> None:
    """Write vectors, metadata and the file by which TensorBoard finds both in its log folder.

    Metadata have a line of names if there is more than one column, as the projector wants it; breaks and tabs in texts
    become spaces.
    """
    names = [name for name in table.column_names if name not in (EMBEDDING, NEIGHBOURS)]
    with (
        (folder / TENSORS).open("w", encoding="utf-8") as tensors,
        (folder / METADATA).open("w", encoding="utf-8") as metadata,
    ):
        if len(names) > 1:
            metadata.write("\t".join(map(plain_cell, names)) + "\n")
        for batch in batches(table):
            tensors.writelines(f"{line}\n" for line in vector_texts(batch.column(EMBEDDING), "\t").to_pylist())
            cells = [map(plain_cell, batch.column(name).to_pylist()) for name in names]
            metadata.writelines("\t".join(row) + "\n" for row in zip(*cells, strict=True))
    (folder / CONFIG).write_text(
        f'embeddings {{\n  tensor_name: "embedding"\n  tensor_path: "{TENSORS}"\n  metadata_path: "{METADATA}"\n}}\n',
        encoding="utf-8",
    )
