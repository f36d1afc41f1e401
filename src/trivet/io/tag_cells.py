"""Cells that hold several labels, tags: lists of them, or texts with a mark between them."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa

from trivet.io.table import LONGEST, ColumnValues, DataTable, is_list, is_readable

TagMatch = Literal["any", "all"] | float
CellRule = TagMatch | Literal["pairs"]  # the rule of a column: "pairs" for cells of pairs, see `datasets.judged_pairs`
PAIRS: Literal["pairs"] = "pairs"
JOINED = ";"  # between the tags in the name of a set of them
LIST, SINGLE = "list", "none"  # separators that are no marks
ENTRIES = ("choices", "labels", "tags", "categories", "category", "label", "name", "category_id")


@dataclass(frozen=True)
class TagCells:
    """An answer to what cells of several labels are.

    Attributes:
        separator: the mark between the tags of a cell; "list" where a cell is a list, of the file or as JSON; "none"
            where each cell is one class, whatever it holds.
        match: which items belong together, see `trivet.Tags`.
    """

    separator: str
    match: TagMatch = "any"


class SeveralLabels(NamedTuple):
    """A cell that seems to hold several labels, and the separator by which they are read as tags."""

    cell: str
    separator: str


def tag_set(text: str) -> str:
    """The name of a set of tags from a text with them in any order: in order and each once, joined by ";"."""
    return JOINED.join(sorted({name.strip() for name in text.split(JOINED) if name.strip()}))


def tag_match(text: str) -> TagMatch:
    """Read how tags match: "any", "all", or a Jaccard index in (0, 1].

    Raises:
        ValueError: if it is none of these.
    """
    if text == "any":
        return "any"
    if text == "all":
        return "all"
    try:
        index = float(text)
    except ValueError:
        index = 0.0
    if not 0 < index <= 1:
        raise ValueError(f"match must be any, all, or a Jaccard index in (0, 1], such as 0.5: got {text!r}.")
    return index


def several_labels(names: Sequence[str]) -> SeveralLabels | None:
    """The first of different class names that is several labels: a list or an object as text, or pieces between marks.

    Semicolons or bars count where a piece occurs in two names, commas where every piece is a name.
    """
    nested = [name for name in names if re.fullmatch(r"\s*(\[(.*[,'\"].*)?\]|\{.*\})\s*", name, re.DOTALL)]
    if len(nested) > 0.5 * len(names):
        return SeveralLabels(nested[0], LIST)
    there = {name.strip() for name in names}
    for mark in ";|,":
        divided = {name: [piece.strip() for piece in name.split(mark)] for name in names if mark in name}
        often = Counter(piece for pieces in divided.values() for piece in set(pieces) if piece)
        shared = [
            name for name, pieces in divided.items() if any(often[piece] > 1 or piece in there for piece in pieces)
        ]
        entire = [name for name, pieces in divided.items() if all(piece in there for piece in pieces)]
        if several := entire if mark == "," else shared:
            return SeveralLabels(several[0], mark)
    return None


def holds_lists(kind: pa.DataType) -> bool:
    """Test whether the cells of a column are lists of labels, or objects with such lists; vectors are none."""
    if pa.types.is_struct(kind):
        return any(holds_lists(field.type) for field in kind if field.name in ENTRIES)
    if not is_list(kind):
        return False
    inner = kind.value_type
    if pa.types.is_struct(inner):
        return any(is_readable(field.type) for field in inner if field.name in ENTRIES)
    return is_readable(inner) and not pa.types.is_floating(inner)


def with_tags(source: DataTable, cells: TagCells | None, levels: Sequence[str] | None) -> DataTable:
    """The table with its columns of tags as texts: the tags of each row in order, each once, joined by ";".

    Args:
        cells: what the user says of cells of several labels; None for nothing.
        levels: the columns that are label levels; those whose cells hold several labels, if not given.

    Raises:
        ValueError: if no cell of these columns holds several labels, or a tag holds a ";".
    """
    if cells is None:
        return source
    names = [name for name in (source.types if levels is None else levels) if name in source.types]
    if cells.separator == SINGLE:
        return replace(source, tags={**source.tags, **dict.fromkeys(names)})
    columns = {name: column for name in names if (column := _tag_column(source, name, cells.separator, levels))}
    if not columns:
        where = "any column" if levels is None else " or ".join(map(repr, levels))
        what = "lists" if cells.separator == LIST else f"labels with {cells.separator!r} between them"
        raise ValueError(
            f"--separator {cells.separator} must be for cells that hold {what}: no cell of {where} of {source.path} "
            "does; leave it out, or name the column with --labels."
        )
    return replace(
        source,
        types={name: pa.string() if name in columns else kind for name, kind in source.types.items()},
        values=lambda name: columns[name] if name in columns else source.values(name),
        tags={**source.tags, **dict.fromkeys(columns, cells.match)},
    )


def _tag_column(source: DataTable, name: str, separator: str, levels: Sequence[str] | None) -> ColumnValues | None:
    """The tags of each row; None where no cell of the column holds several."""
    lists = holds_lists(source.types[name])
    if lists and separator == LIST:
        cells: list[Any] = source.read(name).to_pylist()
        missing = [cell is None for cell in cells]
    elif name in source.columns and (column := source.values(name)).values.dtype.kind in "UO":
        cells, missing = column.values.tolist(), column.missing.tolist()
        if levels is None and several_labels(list(dict.fromkeys(cells))) is None:
            return None
    else:
        return None
    joined: dict[str, str] = {}  # of each different cell
    keys = [cell if isinstance(cell, str) else json.dumps(cell, default=str) for cell in cells]
    several = lists
    for key, cell, lacks in zip(keys, cells, missing, strict=True):
        if key not in joined:
            tags = [] if lacks else sorted({*_tags(cell, separator)})
            if wrong := [tag for tag in tags if JOINED in tag]:
                raise ValueError(
                    f"a tag must hold no {JOINED!r}, which stands between tags: {name!r} of {source.path} has "
                    f"{wrong[0]!r}; rename it."
                )
            several |= len(tags) > 1
            joined[key] = JOINED.join(tags)
    if not several:
        return None
    kind = object if max(map(len, joined.values())) > LONGEST else np.str_
    texts = [joined[key] for key in keys]
    return ColumnValues(np.array(texts, kind), np.array([not text for text in texts]), True)


def _tags(cell: Any, separator: str) -> list[str]:
    """The tags of a cell, without white space around them."""
    if separator != LIST:
        return [piece.strip() for piece in cell.split(separator) if piece.strip()]
    if isinstance(cell, str):
        try:
            cell = json.loads(cell) if cell.strip()[:1] in "[{" else cell
        except json.JSONDecodeError:
            cell = re.findall(r"'((?:[^'\\]|\\.)*)'", cell) or cell  # as Python writes a list
    return [text for entry in _entries(cell) if (text := str(entry).strip())]


def _entries(cell: Any) -> list[Any]:
    """The labels in a list, or in an object or a list of objects, as annotation programs export their choices."""
    if isinstance(cell, dict):
        return next((_entries(cell[key]) for key in ENTRIES if key in cell), [])
    if isinstance(cell, list):
        return [label for entry in cell for label in _entries(entry)]
    return [] if cell is None else [cell]
