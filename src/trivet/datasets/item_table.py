"""Items in memory with their labels, as the table that training reads: of vectors, texts, or images and their paths."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from PIL import Image
from torch import Tensor

from trivet.datasets.arrays import (
    as_matrix,
    cells,
    check_not_a_column,
    check_rows,
    label_columns,
    label_variables,
)
from trivet.datasets.config import ItemKind
from trivet.datasets.frames import check_dimensions, check_order, is_frame
from trivet.datasets.judged_pairs import SIDES
from trivet.datasets.table import are_image_paths
from trivet.io.atomic_files import write_atomic
from trivet.io.embedding_table import select_rows
from trivet.io.label_columns import ID, SPLIT
from trivet.io.read_embeddings import TEXT
from trivet.io.table import arrow_table
from trivet.io.tag_cells import LIST, TagCells, TagMatch, with_tags
from trivet.io.vector_columns import EMBEDDING
from trivet.mining.pairs import Pairs

KINDS: dict[str, ItemKind] = {TEXT: "texts", "image": "images", EMBEDDING: "vectors"}
IMAGE = "image"  # the name of a column of images, or of their paths
NAME = "the items"  # what errors call them
VARIABLES = ("items", "labels")


@dataclass(frozen=True, eq=False)
class LabelledItems:
    """Items and what is known of each.

    Attributes:
        table: a column "embedding", "text" or "image", and the others; of pairs the columns "left" and "right".
        levels: names of the columns that are labels, coarse first; none of pairs.
        kind: of the items.
        tags: what the cells of these are where an item has several; None where it has one.
        root: the folder that paths of images start from; None without paths.
    """

    table: pa.Table
    levels: list[str]
    kind: ItemKind
    tags: TagCells | None = None
    root: Path | None = None

    @property
    def paired(self) -> bool:
        """True if each row is a pair."""
        return SIDES[0] in self.table.column_names and not self.levels

    @property
    def text(self) -> str | None:
        """The name of the column of texts; None without."""
        return TEXT if self.table.column_names[0] == TEXT else None

    def write(self, path: Path) -> None:
        """Write the table as a parquet file, whole or not at all."""
        sink = pa.BufferOutputStream()
        pa.parquet.write_table(self.table, sink)
        write_atomic(path, sink.getvalue().to_pybytes())


def item_table(
    items: Any,
    labels: Any = None,
    *,
    ids: Any = None,
    split: Any = None,
    separator: str | None = None,
    match: TagMatch = "any",
) -> LabelledItems:
    """The table of some items, checked.

    Args:
        items: vectors `(N, d)` in any form that `read_arrays` takes, N texts, N paths of image files, or N images of
            Pillow; of pairs a tuple of the texts or images of both sides.
        labels: as `read_arrays` takes them; None for items without.
        ids: N different names of the items.
        split: the part that each item belongs to: "train", or another one that is evaluated.
        separator, match: as in `read_arrays`.

    Raises:
        ValueError: if the items are of no such kind, or a row lacks something.
    """
    if isinstance(labels, Pairs):
        for parameter, value in (("ids", ids), ("split", split)):
            if value is not None:
                raise ValueError(f"{parameter} is of single items, and these are pairs: leave it out.")
        return _pair_table(items, labels)
    check_not_a_column(items, labels, VARIABLES)
    levels, tags = ({}, None) if labels is None else label_columns(labels, variables=VARIABLES)
    check_order({"items": items, **label_variables(labels, "labels"), "ids": ids, "split": split})
    name, column, root = _item_column(items)
    if name == EMBEDDING:
        check_rows((len(column), column.type.list_size), levels, VARIABLES)
    reserved = [level for level in levels if level in (EMBEDDING, TEXT, IMAGE, ID[0], SPLIT[0])]
    if reserved:
        raise ValueError(f"a label level must not be called {reserved[0]!r}, as another column is: rename it.")
    columns = {name: column}
    columns |= {level: cells(values, "labels", len(column), level=level) for level, values in levels.items()}
    for other, parameter, values in ((ID[0], "ids", ids), (SPLIT[0], "split", split)):
        if values is not None:
            columns[other] = cells(values, parameter, len(column))
    several = [level for level in levels if separator or pa.types.is_list(columns[level].type)]
    of_tags = TagCells(separator or LIST, match if tags is None else tags.match) if several else None
    table = pa.table(columns)
    without_items = table.drop_columns(name) if name != TEXT else table
    checked = with_tags(arrow_table(Path(NAME), without_items), of_tags, several)
    select_rows(checked, list(levels), None, needs={TEXT: TEXT} if name == TEXT else None, name=NAME)
    if name == EMBEDDING:
        matrix = column.flatten().to_numpy().reshape(len(column), -1)
        check_dimensions(items, matrix, {level: columns[level] for level in levels}, VARIABLES)
    return LabelledItems(table, list(levels), KINDS[name], of_tags, root)


def _pair_table(items: Any, pairs: Pairs) -> LabelledItems:
    """The table of pairs, a row for each, whose sides are texts or images."""
    if not isinstance(items, tuple) or len(items) != 2:
        raise ValueError(
            f"items of pairs must be a tuple of both sides: got {type(items).__name__}; pass (left, right)."
        )
    sides = [_item_column(side) for side in items]
    kinds = [KINDS[name] for name, _, _ in sides]
    roots = [root for _, _, root in sides if root is not None]
    if "vectors" in kinds or len(roots) > 1:
        raise ValueError(
            f"items of pairs must be texts, and on at most one side paths of images: got {' and '.join(kinds)}; write "
            "a table of them, for trivet train FILE --pairs."
        )
    numbers, first_of_right = pairs.items.numpy(), pairs.first_of_right
    counts = [int((numbers < first_of_right).sum()), int((numbers >= first_of_right).sum())]
    if counts != [len(column) for _, column, _ in sides]:
        raise ValueError(
            f"both sides must have as many items as the pairs say: got {[len(column) for _, column, _ in sides]} for "
            f"{counts}; pass trivet.Pairs of these sides."
        )
    ends = np.sort(pairs.incidence.tocsc().indices.reshape(-1, 2), axis=1)
    lacking = np.flatnonzero(~np.isin(numbers, ends)).tolist()
    if lacking:
        of_right = lacking[0] >= counts[0]
        raise ValueError(
            f"each item must belong to another: {len(lacking)} of {len(numbers)} belong to none, first row "
            f"{lacking[0] - counts[0] * of_right} on the {SIDES[of_right]}; leave them out."
        )
    row_of = np.empty(pairs.incidence.shape[0], np.int64)
    row_of[numbers[::-1]] = np.concatenate([*map(np.arange, counts)])[::-1]  # the first of equal content
    rows = row_of[ends].T
    table = {name: column.take(pa.array(some)) for name, (_, column, _), some in zip(SIDES, sides, rows, strict=True)}
    kind: ItemKind = kinds[0] if kinds[0] == kinds[1] else "images and texts"
    return LabelledItems(pa.table(table), [], kind, root=next(iter(roots), None))


def _item_column(items: Any) -> tuple[str, pa.Array, Path | None]:
    """Name of the column of items, its cells, and the folder that paths start from."""
    if isinstance(items, str | bytes | Path | Image.Image):
        raise ValueError(f"items must be several: got one {type(items).__name__}; pass a list of them.")
    if isinstance(items, Tensor | np.ndarray) and items.ndim in (3, 4):
        raise ValueError(
            f"items must be vectors (N, d), or a list of images: got an array of shape {tuple(items.shape)}; make "
            "images of it with list(map(PIL.Image.fromarray, items)), or vectors with an encoder."
        )
    if not (is_frame(items) or isinstance(items, Tensor)) and isinstance(items, Iterable):
        entries = list(items)
        if not entries:
            raise ValueError("items must be at least one: got none.")
        if all(isinstance(item, Image.Image) for item in entries):
            return IMAGE, pa.array([_png(image) for image in entries]), None
        texts = [item for item in entries if isinstance(item, str)]
        if all(isinstance(item, Path) for item in entries) or (len(texts) == len(entries) and are_image_paths(texts)):
            return IMAGE, *_paths([Path(item).resolve() for item in entries])
        if texts and all(isinstance(item, str) or item is None or isinstance(item, float) for item in entries):
            return TEXT, cells(entries, "items", len(entries)), None
        if texts or any(isinstance(item, Path | Image.Image) for item in entries):
            kinds = sorted({type(item).__name__ for item in entries})
            raise ValueError(
                f"items must be of one kind, vectors, texts, paths of images or images: got {', '.join(kinds)}."
            )
    matrix = as_matrix(items, NAME, VARIABLES[0])
    flat = pa.array(np.ascontiguousarray(matrix if matrix.dtype.itemsize > 2 else matrix.astype(np.float32)).ravel())
    return EMBEDDING, pa.FixedSizeListArray.from_arrays(flat, matrix.shape[1]), None


def _paths(paths: Sequence[Path]) -> tuple[pa.Array, Path]:
    missing = [path for path in paths if not path.is_file()]
    if missing:
        raise ValueError(f"items that are paths must be image files: {missing[0]} does not exist; correct the path.")
    root = Path(os.path.commonpath([path.parent for path in paths]))
    return pa.array([path.relative_to(root).as_posix() for path in paths]), root


def _png(image: Image.Image) -> bytes:
    """The file of an image, which loses nothing."""
    file = io.BytesIO()
    try:
        image.save(file, "PNG")
    except OSError:  # of a mode that it lacks, such as CMYK
        file = io.BytesIO()
        image.convert("RGB").save(file, "PNG")
    return file.getvalue()
