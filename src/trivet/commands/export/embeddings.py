"""`trivet export` of embeddings: a folder that viewers and vector databases read, with what is known of each item."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import cast

import numpy as np
import pyarrow.parquet as pq

from trivet.commands.export.item_card import item_card
from trivet.commands.export.item_table import ItemTable, exact_index, float32_recall, read_items, with_views
from trivet.commands.export.options import ExportOptions, TableForm
from trivet.commands.export.pgvector import INDEX, LOAD, ROWS, write_pgvector
from trivet.commands.export.projector import CONFIG, METADATA, TENSORS, write_projector
from trivet.commands.export.qdrant import COLLECTION, POINTS, write_qdrant
from trivet.commands.export.record import ExportedEmbeddings
from trivet.io.atomic_files import atomic_folder
from trivet.knn.index import EXACT_ROWS, build_index
from trivet.runtime.progress import work

DESCRIPTION, CARD, TABLE = "export.json", "README.md", "items.parquet"
NAMES = frozenset((DESCRIPTION, CARD, TABLE, TENSORS, METADATA, CONFIG, LOAD, INDEX, ROWS, COLLECTION, POINTS))
INSIDE = (f"{POINTS}/*.json",)
VIEWS = ("parquet", "projector")  # that show a map, suspects and verdicts
NAME = 48  # characters of the name of a table, of four bytes at most


def export_embeddings(request: ExportOptions) -> ExportedEmbeddings:
    """Write embeddings, of a file or of a split of a run, in the form that the options name, with a card.

    A search in float32, as other programs make it, is compared with that of `trivet search` on up to 200 items; the
    share of the nearest that it finds is on the card. Viewers also get a map, neighbours, and by the rules of `trivet
    diagnose` and `trivet audit` verdicts and suspect labels.

    Raises:
        ValueError, OSError: if the embeddings or the output cannot be used, or hold what the form cannot.
    """
    items, to = read_items(request), cast(TableForm, request.to)
    name = collection_name(request.output)
    with atomic_folder(
        request.output, NAMES, mark=DESCRIPTION, what="exported embeddings", force=request.force
    ) as folder:
        exact = exact_index(items)
        with work("searching in float32"):
            recall = float32_recall(items, exact, seed=request.seed)
        if to in VIEWS:
            many = len(exact) > EXACT_ROWS
            index = build_index(items.embeddings, distance=items.distance, seed=request.seed) if many else exact
            items = with_views(items, index, seed=request.seed)
        with work(f"writing {to}"):
            _write(to, folder, items, name)
        made = ExportedEmbeddings(
            source=items.vectors.name,
            to=to,
            output=str(request.output),
            files={},
            items=len(items.vectors),
            dimension=items.embeddings.shape[1],
            distance=items.distance,
            columns=items.table.column_names,
            recall=recall,
            checked=f"A search in float32 finds {_percent(recall)} % of the 10 nearest of trivet search.",
            map=items.map,
            level=items.level if to in VIEWS else None,
            verdicts=items.verdicts,
            notes=items.notes,
        )
        (folder / CARD).write_text(item_card(made, items, name), encoding="utf-8")
        description = made.as_json() | {"output": name}
        del description["files"]
        (folder / DESCRIPTION).write_text(json.dumps(description, indent=1) + "\n", encoding="utf-8")
        made.files = {
            file.relative_to(folder).as_posix(): file.stat().st_size
            for file in sorted(folder.rglob("*"))
            if file.is_file()
        }
    return made


def _write(to: TableForm, folder: Path, items: ItemTable, name: str) -> None:
    if to == "parquet":
        pq.write_table(items.table, folder / TABLE)
    elif to == "projector":
        write_projector(folder, items.table)
    elif to == "pgvector":
        write_pgvector(folder, items.table, name, items.distance)
    else:
        write_qdrant(folder, items.table, items.distance)


def collection_name(output: Path) -> str:
    """The name of a table or a collection: that of the folder, with lines for what is no letter or digit.

    Example:
        >>> collection_name(Path("handed over/birds 2"))
        'birds_2'
    """
    return re.sub(r"\W+", "_", output.resolve().name)[:NAME].strip("_").lower() or "items"


def _percent(share: float) -> str:
    return f"{np.floor(1000 * share) / 10:.1f}"  # 100.0 only where nothing is missed
