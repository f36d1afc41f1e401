"""`trivet index --add` and `--remove`: changes of an index without making it anew."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from trivet.commands.index.options import IndexOptions
from trivet.commands.index.record import IndexAbout, IndexResult
from trivet.commands.index.run import ITEMS, NAMES, read_source, write_items
from trivet.commands.search.run import IndexFolder
from trivet.io.atomic_files import atomic_folder
from trivet.io.formats import open_rows
from trivet.io.parquet_files import open_parquet
from trivet.io.table import listed, read_errors
from trivet.knn.index import DESCRIPTION, Index
from trivet.runtime.text import counted

MANY = 0.2  # share of removed rows from which on an index is better made anew


def add_items(request: IndexOptions) -> IndexResult:
    """Add embeddings to an index; an item that it has gives way to that of the same id.

    Raises:
        ValueError: if the index or the embeddings cannot be read, or these do not fit: of another dimension or model,
            or without ids or its label columns.
    """
    with atomic_folder(request.output, NAMES, mark=DESCRIPTION, what="an index", force=True) as folder:
        index, about, items = _opened(request.output)
        source = read_source(request, about.levels)
        if None not in (about.model, source.about.model) and about.model != source.about.model:
            raise ValueError(
                f"what is added must be embedded by the model of the index: {request.source} was made by another than "
                f"{request.output}; embed it with that, or index all anew."
            )
        if not source.with_ids:
            raise ValueError(
                f"what is added must have ids, as an item of the index gives way to that of its id: {request.source} "
                "has no column 'id'; add one."
            )
        changed = index.extended(source.embeddings)
        added = source.items
        if "split" in items.column_names and "split" not in added.column_names:
            added = added.append_column("split", pa.array([""] * len(added), pa.large_string()))
        added = added.select(items.column_names)
        present = ~np.isin(np.arange(len(items)), index.removed)
        replaced = present & np.asarray(pc.is_in(items["id"], value_set=pc.unique(added["id"])))
        changed = changed.without(np.flatnonzero(replaced))
        write_items(folder, pa.concat_tables([items, added]))
        changed.save(folder)
    return _result(changed, about, source.notes, len(added), int(replaced.sum()))


def remove_items(request: IndexOptions) -> IndexResult:
    """Remove the items of an index whose ids are in a file.

    Raises:
        ValueError: if the index or the ids cannot be read, or the index lacks one of them.
    """
    ids = _read_ids(request.source)
    with atomic_folder(request.output, NAMES, mark=DESCRIPTION, what="an index", force=True) as folder:
        index, about, items = _opened(request.output)
        present = np.setdiff1d(np.arange(len(items)), index.removed)
        names = np.asarray(items["id"].take(pa.array(present))).astype(np.str_)
        if len(unknown := np.setdiff1d(ids, names)):
            raise ValueError(
                f"the ids to remove must be of items of {request.output}: it has none with "
                f"{listed(unknown[:3].tolist())}, {counted(len(unknown), 'id')} in all; leave them out."
            )
        rows = present[np.isin(names, ids)]
        if len(rows) == len(present):
            raise ValueError(f"an index must have an item: {request.source} names all; remove the folder instead.")
        changed = index.without(rows)
        write_items(folder, items)
        changed.save(folder)
    return _result(changed, about, [], 0, len(rows))


def _read_ids(path: Path) -> npt.NDArray[np.str_]:
    """The different texts in the column `id` of a table."""
    table = open_rows(path, "ids")
    if "id" not in table.columns:
        raise ValueError(
            f"the items to remove must be named in a column 'id': {path} has {listed(table.columns)}; rename the one "
            "that holds the ids."
        )
    return np.unique(np.asarray(table.values("id").values).astype(np.str_))


def _opened(path: Path) -> tuple[Index, IndexAbout, pa.Table]:
    """The index in a folder, read to be changed, its description and the table of its items."""
    about = IndexFolder(path).about
    with read_errors(path / ITEMS, "parquet"):
        read = open_parquet(path / ITEMS).read()
        items = read.cast(pa.schema([(name, pa.large_string()) for name in read.column_names]))
    return Index.load(path, to_change=True), about, items


def _result(index: Index, about: IndexAbout, notes: list[str], added: int, removed: int) -> IndexResult:
    share = len(index.removed) / len(index)
    if share > MANY:
        notes = [*notes, f"{100 * share:.0f} % of its rows are removed ones, which searches pass over: index all anew."]
    return IndexResult(
        **index.info.as_json(),
        bytes_per_item=index.bytes_per_item,
        notes=notes,
        about=about,
        present=len(index) - len(index.removed),
        added=added,
        removed=removed,
    )
