"""A table of images: a column of paths, and columns of labels."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Literal, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field, model_validator

from trivet.datasets.archives import check_inside
from trivet.datasets.config import DataConfig, DatasetEntry
from trivet.datasets.dataset import Dataset, Splits
from trivet.datasets.image_decoding import Progress
from trivet.datasets.image_files import ImageFilesConfig, Listing, check_there, load_listing, without_unreadable
from trivet.datasets.inputs import FileInputs
from trivet.datasets.splitting import Split, TagsConfig, column_subsets
from trivet.datasets.tags import tag_relations
from trivet.io.embedding_table import class_labels, select_rows
from trivet.io.formats import open_rows
from trivet.io.image_cells import ImageCell, holds_images, image_bytes
from trivet.io.image_file import SUFFIXES, UNREAD, Frame, Source
from trivet.io.label_columns import ADDRESS, FIRST, ID, NEARLY, PROTOCOL_COLUMNS, SPLIT
from trivet.io.table import DataTable, is_text, listed
from trivet.io.tag_cells import with_tags
from trivet.io.vector_columns import EMBEDDING
from trivet.runtime.text import noun

IMAGE = ("path", "image", "file", "filename", "file_name", "image_path", "img")
LABEL = ("label", "class")


class TableConfig(TagsConfig, ImageFilesConfig):
    """A table of images.

    Args:
        path: a csv, tsv, parquet or JSON file, or the folder of a saved Hugging Face data set.
        root: the folder that the paths start from, where it is not that of the table.
        levels: columns that are label levels, coarse first; by default label, or class.
        split: "auto" follows the column split, else "class-disjoint", half of the classes, or "in-class", a share of
            each.
        box: four columns of a box in pixels that each image is cut to, in the order of box_form.
        box_form: the order: "corners" left, upper, right, lower; "size" left, upper, width, height.
        skip_empty: leave out rows without a path, a label or another value that each must have.
    """

    name: Literal["table"] = "table"
    path: Path
    image: str | None = Field(
        None,
        description="The column of paths; in parquet and Hugging Face data it may hold the images themselves. Default: "
        f"the first of {', '.join(IMAGE)} that is there.",
    )
    root: Path | None = None
    levels: tuple[str, ...] | None = None
    split: Split = "auto"
    box: tuple[str, str, str, str] | None = None
    box_form: Literal["corners", "size"] = "corners"
    skip_empty: bool = False

    reserved = (*ID, *SPLIT, *PROTOCOL_COLUMNS, EMBEDDING)

    @model_validator(mode="after")
    def _check_box(self) -> Self:
        if self.box_form != "corners" and self.box is None:
            raise ValueError("box_form is used with box only: remove it, or name the columns of the box.")
        return self


def load_table(config: TableConfig, data_root: Path, progress: Progress | None) -> Splits:
    """See `list_table`, for what it raises, too; also if more than `config.allow_corrupt` of the images are broken."""
    rows = open_rows(config.path)
    listing = list_table(config, rows)
    splits = load_listing(config, listing, progress)
    items = splits.train
    units = {level: f"{items.num_classes(level):,} {noun(2, items.unit(level))}" for level in items.labels}
    counts = " > ".join(f"{level} ({count})" for level, count in units.items())
    image = _image_column(config, rows)
    return replace(splits, summary=f"{config.path.name}: {rows.count:,} rows, images in {image!r}, labels {counts}.")


def table_like(config: DataConfig, path: Path, frame: Frame, progress: Progress | None, *, unread: bool) -> Dataset:
    """The images of another table as a run on `config` takes them, with what its other columns say.

    Labels are not needed. Unreadable images are listed in `skipped`.

    Args:
        frame: what the images are brought to.
        unread: no image is read yet, and none left out.

    Raises:
        ValueError: as `list_table`, but for labels and split; also if no image can be read.
    """
    rows = open_rows(path, "a table of images")
    settings = config if isinstance(config, TableConfig) else TableConfig(path=path)
    settings = settings.model_copy(update={"path": path})
    try:
        listing, splits = _list_rows(settings, rows, settings.levels or _default_levels(rows))
    except ValueError:  # a label, which is not needed, may be at fault
        listing, splits = _list_rows(settings, rows, ())
    check_there(listing)
    items = listing.items(FileInputs(listing.sources, frame, np.arange(rows.count), listing.boxes))
    if splits is not None:
        items = replace(items, columns={**items.columns, SPLIT[0]: tuple(splits.tolist())})
    return items if unread else without_unreadable(items, path, progress)


def list_table(config: TableConfig, rows: DataTable) -> Listing:
    """The images of a table, labelled by its columns, split by its column `split` or as `config.split` says.

    An item is named by the column `id`, else by its path. `is_query`, `is_gallery` and `is_junk`, with `camera`, are
    the protocol of what is evaluated. Other columns are kept.

    Raises:
        ValueError: if a column is missing, a row has no path or no label, a path lies outside the root, ids repeat, or
            the column `split` cannot be used.
    """
    listing, splits = _list_rows(config, rows, config.levels or _default_levels(rows))
    return replace(listing, subsets=column_subsets(splits, rows.path))


def _list_rows(config: TableConfig, rows: DataTable, levels: tuple[str, ...]) -> tuple[Listing, np.ndarray | None]:
    """The images of a table with these label levels and other columns, and what its column `split` says of each."""
    image = _image_column(config, rows)
    if image in levels:
        raise ValueError(f"a label level must be a different column from the images: got {image!r} for both.")
    needs = {} if image not in rows.columns else {image: "path"}
    rows = with_tags(rows, config.tag_cells if levels else None, levels)
    vectors = select_rows(rows, levels, None, needs=needs, others=True, skip_empty=config.skip_empty)
    if len(vectors) < rows.count:
        rows = rows.take(vectors.rows)
    used = {image, *(config.box or ())}
    labels, names = class_labels(vectors)
    relations = tag_relations(names, vectors.tags)
    sources, ids = _sources(config, rows, image)
    if vectors.ids is not None:
        ids = tuple(vectors.ids.tolist())
    elif ids is None or len(set(ids)) < len(ids):
        ids = _numbered(rows, image, ids)
    listing = Listing(
        name=config.path.stem,
        location=config.path,
        sources=sources,
        ids=ids,
        labels=labels,
        names=names,
        protocol=vectors.protocol,
        boxes=_boxes(config, rows),
        columns={name: tuple(values) for name, values in vectors.others.items() if name not in used},
        relations=relations,
        where=lambda row: f"{rows.where(np.array([row]))} of {config.path.name}",
        notes=vectors.notes,
    )
    return listing, vectors.splits


def _image_column(config: TableConfig, rows: DataTable) -> str:
    if config.image is not None:
        rows.column(config.image, "the images")
        return config.image
    there = next((name for name in IMAGE if name in rows.names), None)
    if there is None:
        raise ValueError(
            f"a table of images must have a column of paths: {config.path} has {listed(rows.names)}; name the one that "
            "holds them with data.image."
        )
    return there


def image_column(rows: DataTable, *, web: bool = False) -> str | None:
    """The column of images or of their paths, one with a usual name first; None where there is none.

    Args:
        web: of their addresses.
    """
    for name in sorted(rows.names, key=lambda name: IMAGE.index(name) if name in IMAGE else len(IMAGE)):
        if holds_images(rows.types[name]) and not web:
            return name
        if is_text(rows.types[name]):
            some = [value for value in next(rows.batches([name])).column(0).slice(0, FIRST).to_pylist() if value]
            addresses = [ADDRESS.fullmatch(value) is not None for value in some]
            if web and some and sum(addresses) >= NEARLY * len(some):
                return name
            if not web and some and not addresses[0] and are_image_paths(some):
                return name
    return None


def are_image_paths(texts: Sequence[str]) -> bool:
    """Test whether nearly all texts end as the names of image files do."""
    endings = [PurePosixPath(text.partition("?")[0]).suffix.lower() in SUFFIXES | UNREAD for text in texts]
    return sum(endings) >= NEARLY * len(texts)


def _default_levels(rows: DataTable) -> tuple[str, ...]:
    there = next((name for name in LABEL if name in rows.names), None)
    if there is None:
        raise ValueError(
            f"a table of images must have a column of labels: {rows.path} has {listed(rows.names)}; name those that "
            "are label levels with data.levels, coarse first."
        )
    return (there,)


def _sources(config: TableConfig, rows: DataTable, image: str) -> tuple[Sequence[Source], tuple[str, ...] | None]:
    """The images, and their paths if they have any."""
    column = rows.column(image, "the images")
    if holds_images(column.type):
        data = image_bytes(column)
        empty = np.flatnonzero(data.is_null().to_numpy())
        if len(empty):
            raise ValueError(
                f"every row of {config.path} must hold its image: {len(empty):,} do not, {rows.where(empty)}; save the "
                "data set again with the images in it."
            )
        return _Lazy(len(data), partial(ImageCell, data)), None
    if not is_text(column.type):
        raise ValueError(
            f"the images must be a column of paths, or of the images themselves: {image!r} of {config.path} holds "
            f"{column.type}; name another with data.image."
        )
    web = np.flatnonzero(pc.match_substring_regex(column, f"^{ADDRESS.pattern}").to_numpy())
    if len(web):
        raise ValueError(
            f"the images must be files: {image!r} of {config.path} holds {len(web):,} addresses, such as "
            f"{column[int(web[0])].as_py()!r}, and nothing is downloaded; download them, with curl or img2dataset, and "
            "write a column of the paths of the files."
        )
    root = config.root or (config.path if config.path.is_dir() else config.path.parent)
    if not root.is_dir():
        raise ValueError(f"data.root must be a folder: {root} is none; correct it.")
    paths = column.to_pylist()
    # Most paths are plain; only those that might leave the root are looked at one by one.
    for row in np.flatnonzero(pc.match_substring_regex(column, r"\.\.|^/|\\|^[A-Za-z]:").to_numpy()).tolist():
        paths[row] = _inside(paths[row], root, rows, row)
    return _Lazy(len(paths), partial(_path, root, paths)), tuple(paths)


def _inside(path: str, root: Path, rows: DataTable, row: int) -> str:
    """See `path_inside`, of a row."""
    try:
        return path_inside(path, root)
    except ValueError:
        raise ValueError(
            f"a path must lie below {root}: {rows.where(np.array([row]))} of {rows.path} has {path!r}; correct it, or "
            "set data.root."
        ) from None


def path_inside(path: str, root: Path) -> str:
    """A path relative to the root, of which it may be an absolute one. A "\\" is a "/", unless a file has that name.

    Raises:
        ValueError: if it leads out of the root.
    """
    if (absolute := Path(path)).is_absolute() and not absolute.is_relative_to(root.absolute()):
        raise ValueError(f"a path must lie below {root}: got {path!r}; correct it, or set data.root.")
    plain = absolute.relative_to(root.absolute()).as_posix() if absolute.is_absolute() else path
    if "\\" in plain and not (root / plain).exists():
        plain = plain.replace("\\", "/")
    check_inside(posixpath.normpath(plain), root)
    return plain


class RepeatedImageError(ValueError):
    """Two rows of a table of images have one path, as those of captions may."""


def _numbered(rows: DataTable, image: str, ids: tuple[str, ...] | None) -> tuple[str, ...]:
    """The numbers of the rows as ids of images without a path; ValueError if two rows have one path."""
    if ids is None:
        return tuple(str(row) for row in range(rows.count))
    first: dict[str, int] = {}
    for row, path in enumerate(ids):
        if path in first:
            raise RepeatedImageError(
                f"each image must be in one row, or have an id: {rows.where(np.array([first[path], row]))} of "
                f"{rows.path} both have {path!r} in {image!r}; remove one, or add a column id."
            )
        first[path] = row
    return ids


def _boxes(config: TableConfig, rows: DataTable) -> np.ndarray | None:
    if config.box is None:
        return None
    edges = []
    for name in config.box:
        column = rows.column(name, "each edge of the box")
        try:
            edges.append(column.cast(pa.float64()).to_numpy())
        except pa.ArrowInvalid:
            raise ValueError(f"the column {name!r} of {config.path} must hold numbers, of a box in pixels.") from None
    boxes = np.stack(edges, axis=1)
    if config.box_form == "size":
        boxes[:, 2:] += boxes[:, :2]
    wrong = np.flatnonzero(~(np.isfinite(boxes).all(axis=1) & (boxes[:, :2] < boxes[:, 2:]).all(axis=1)))
    if len(wrong):
        raise ValueError(
            f"every row of {config.path} must have a box with a width and a height: {len(wrong):,} have none, "
            f"{rows.where(wrong)}; correct them, or choose box_form."
        )
    return boxes


def _path(root: Path, names: Sequence[str], row: int) -> Path:
    return root / names[row]


@dataclass(frozen=True, eq=False)
class _Lazy(Sequence[Source]):
    """Images by row, each made when it is needed; a million of them are no million objects."""

    length: int
    make: Callable[[int], Source]

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, row: int) -> Source:  # type: ignore[override]  # no slices
        return self.make(range(self.length)[row])  # beyond the end, where an iteration ends, IndexError


ENTRY = DatasetEntry(TableConfig, load_table, description="your own images, listed in a csv, tsv or parquet file")
