"""Detection of the data at a path: their kind, the settings that read them, and which columns are labels."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from trivet.datasets.equal_items import COMPARED, content_keys, row_keys
from trivet.datasets.folder import SUFFIXES, FolderConfig, list_folder
from trivet.datasets.image_files import Listing, check_there
from trivet.datasets.inputs import FileInputs
from trivet.datasets.table import IMAGE, TableConfig, holds_images, list_table
from trivet.io.embedding_table import CAMERA, ID, PROTOCOL_COLUMNS, SPLIT, plain_levels
from trivet.io.formats import TABLES, open_rows, open_vectors
from trivet.io.hf_dataset import is_saved
from trivet.io.image_file import Frame, open_image
from trivet.io.overwrite_guard import sharded
from trivet.io.table import ColumnValues, DataTable, is_text, listed
from trivet.io.vector_columns import holds_vectors
from trivet.runtime.arguments import check_name
from trivet.runtime.arrays import Integers
from trivet.runtime.progress import reporter

LABELS = ("label", "class", "class_name", "category", "target", "intent", "species", "identity", "product", "pid")
TEXTS = ("text", "sentence", "utterance", "query", "question", "review", "description", "title", "content", "body")
FIRST = 1000  # rows that tell what a column holds
NEARLY = 0.9  # of them at least
SAMPLED_IMAGES = 500  # images that are opened
GREY = ("1", "L", "LA", "I;16")  # modes of images without colours


@dataclass(frozen=True)
class Images:
    """Properties of a sample of the images.

    Attributes:
        num_decoded: how many were decoded.
        broken: position in the list -> why it cannot be.
        sides: `(N, 2)` height and width of the others, upright or not.
        grey: whether none has colours.
    """

    num_decoded: int
    broken: Mapping[int, str]
    sides: Integers
    grey: bool


@dataclass(frozen=True)
class DetectedData:
    """Data at a path.

    Attributes:
        kind: the data set that reads them: "folder", "table", "vectors" or "texts".
        data: the settings by which it does.
        items: how many there are.
        levels: label level -> the class of each item `(N,)` int64, coarse level first.
        main: the level that is most likely meant.
        divided: whether the data say what is trained on.
        listing: of images.
        images: what some of them are like.
        notes: what else was seen, in sentences.
        guessed: what was guessed of the columns, in a sentence; empty where nothing was.
    """

    kind: str
    data: dict[str, Any]
    items: int
    levels: Mapping[str, Integers]
    main: str
    divided: bool
    listing: Listing | None = None
    images: Images | None = None
    notes: tuple[str, ...] = ()
    guessed: str = ""

    def sizes(self, level: str) -> Integers:
        """The number of items of each class, the smallest first."""
        counts = np.bincount(self.levels[level])
        return np.sort(counts[counts > 0])


@dataclass
class _Columns:
    """Columns that may be label levels, as numbers of classes."""

    numbers: dict[str, Integers] = field(default_factory=dict)
    texts: set[str] = field(default_factory=set)  # those that hold texts

    def classes(self, name: str) -> int:
        return int(self.numbers[name].max()) + 1

    def within(self, fine: str, coarse: str) -> bool:
        """Test whether each class of one lies in one class of the other."""
        pairs = self.numbers[fine].astype(np.int64) * self.classes(coarse) + self.numbers[coarse]
        return len(np.unique(pairs)) == self.classes(fine)


def detect(path: Path, labels: Sequence[str] | None = None, text: str | None = None) -> DetectedData:
    """Detect the data at a path: a folder of images, a table of images or texts, or vectors.

    Args:
        labels: the columns, or names of folder levels, that are labels, coarse first; guessed, if not given.
        text: the column of texts.
    """
    if path.is_dir() and not sharded(path) and not is_saved(path):
        if (path / "config.toml").is_file():
            raise ValueError(f"init needs data: {path} is a run, whose settings are in {path / 'config.toml'}.")
        _refuse_text(text, path, "a folder of images")
        return _folder(path, labels)
    suffix = path.suffix.lower()
    numbers = path.with_suffix(".npy") if suffix == ".csv" else path
    if sharded(path) or suffix in (".npz", ".npy") or (suffix == ".csv" and numbers.is_file()):
        _refuse_text(text, path, "vectors")
        return _vectors(numbers, labels)
    if suffix in SUFFIXES:
        raise ValueError(f"init needs a folder of images, or a table that lists them: got the image {path}.")
    if not path.is_dir() and suffix not in TABLES:
        raise ValueError(
            f"data must be a folder of images, a table ({', '.join(TABLES)}) or vectors (.npz, .npy, .parquet): got "
            f"{path}; save them as one of these."
        )
    rows = open_rows(path)
    image = None if text is not None else _image_column(rows)
    if image is not None:
        return _table(rows, image, labels)
    if suffix == ".parquet" and text is None and holds_vectors(rows):
        return _vectors(path, labels)
    return _texts(rows, text, labels)


def _refuse_text(text: str | None, path: Path, what: str) -> None:
    if text is not None:
        raise ValueError(f"--text names the column of texts of a table: {path} holds {what}; leave it out.")


def _folder(path: Path, labels: Sequence[str] | None) -> DetectedData:
    tables = sorted(file for file in path.iterdir() if file.suffix.lower() in TABLES and not file.name.startswith("."))
    config = FolderConfig(root=path, levels=None if labels is None else tuple(labels))
    try:
        listing = list_folder(config)
    except ValueError as error:
        lists = [file for file in tables if _lists_images(file)]
        if len(lists) == 1:  # images in no class folders, and a table that says their classes
            return detect(lists[0], labels)
        if tables:
            names = listed([file.name for file in tables])
            raise ValueError(f"{str(error).removesuffix('.')}; or give a table: {path} holds {names}.") from None
        raise
    first = next(iter(listing.names.values()))
    if (
        len(first) == 1 and len(listing.names) > 1 and labels is None and not listing.subsets
    ):  # a folder around the folders of the classes
        return _folder(path / first[0], labels)
    data = {"name": "folder", "root": str(path)} | ({} if labels is None else {"levels": list(labels)})
    levels = dict(listing.labels)
    main = next(
        (name for name in reversed(levels) if np.median(np.bincount(levels[name])) >= 2), list(levels)[-1]
    )  # the finest that has classes of several images
    named = labels is not None or len(levels) == 1
    guessed = "" if named else f"The folders within each other are levels, called {' > '.join(levels)}, coarse first."
    return _with_images(
        DetectedData("folder", data, len(listing.ids), levels, main, bool(listing.subsets), guessed=guessed), listing
    )


def _lists_images(file: Path) -> bool:
    try:
        return _image_column(open_rows(file)) is not None
    except ValueError:
        return False


def _table(rows: DataTable, image: str, labels: Sequence[str] | None) -> DetectedData:
    data: dict[str, Any] = {"name": "table", "path": str(rows.path)}
    if image != next((name for name in IMAGE if name in rows.names), None):
        data["image"] = image
    levels, main, guessed = _levels(rows, labels, leave=(image,))
    data["levels"] = list(levels)
    listing = list_table(TableConfig.parse(data, source=str(rows.path)), rows)
    first = listing.sources[0]
    if isinstance(first, Path) and not first.exists() and first.relative_to(_folder_of(rows.path)).exists():
        data["root"] = "."  # paths that begin where trivet was started
        listing = list_table(TableConfig.parse(data, source=str(rows.path)), rows)
    detected = DetectedData("table", data, len(listing.ids), levels, main, bool(listing.subsets), guessed=guessed)
    return _with_images(detected, listing)


def _folder_of(table: Path) -> Path:
    """Default folder in which the paths of a table start."""
    return table if table.is_dir() else table.parent


def _vectors(path: Path, labels: Sequence[str] | None) -> DetectedData:
    source = open_vectors(path)
    assert source.vectors is not None
    levels, main, guessed = _levels(source, labels, leave=("text",))
    data = {"name": "vectors", "path": str(path), "levels": list(levels)}
    notes = []
    rows = source.vectors[: max(1, COMPARED // source.vectors[0].nbytes)]
    same = len(rows) - len(set(row_keys(rows)))
    if same:
        notes.append(f"Copies of other vectors, number for number: {same:,} of {len(rows):,}.")
        notes.append("A copy is found first, and raises recall: leave copies out, unless they are items of their own.")
    divided = SPLIT[0] in source.columns
    return DetectedData("vectors", data, source.count, levels, main, divided, notes=tuple(notes), guessed=guessed)


def _texts(rows: DataTable, text: str | None, labels: Sequence[str] | None) -> DetectedData:
    column = _text_column(rows) if text is None else text
    if column is None:
        raise ValueError(
            f"a table must have a column of image paths or of texts beside its labels: {rows.path} has "
            f"{listed(rows.names)}; name the column of texts with --text, or save vectors as .npz or .parquet."
        )
    check_name(column, rows.names, name="--text")
    levels, main, guessed = _levels(rows, labels, leave=(column,))
    data = {"name": "texts", "path": str(rows.path), "levels": list(levels)}
    if column != "text":
        data["text"] = column
    notes = () if text is not None or column == "text" else (f"The column {column!r} was taken for the texts.",)
    return DetectedData("texts", data, rows.count, levels, main, SPLIT[0] in rows.names, notes=notes, guessed=guessed)


def _image_column(rows: DataTable) -> str | None:
    """The column of images or of their paths, one with a usual name first."""
    for name in sorted(rows.names, key=lambda name: IMAGE.index(name) if name in IMAGE else len(IMAGE)):
        if holds_images(rows.types[name]):
            return name
        if is_text(rows.types[name]):
            some = [value for value in next(rows.batches([name])).column(0).slice(0, FIRST).to_pylist() if value]
            if some and sum(Path(value).suffix.lower() in SUFFIXES for value in some) >= NEARLY * len(some):
                return name
    return None


def _text_column(rows: DataTable) -> str | None:
    """The column of texts: one with a usual name, else the one of the longest texts of those that hardly repeat."""
    named = next((name for usual in TEXTS for name in rows.columns if name.lower() == usual), None)
    if named is not None:
        return named
    plain, _ = plain_levels(rows)
    lengths = {}
    for name in rows.columns:
        if name in plain or name in (*ID, *SPLIT, *CAMERA, *PROTOCOL_COLUMNS):
            continue
        values = rows.values(name).values[:FIRST]
        if values.dtype.kind in "UO":
            lengths[name] = float(np.mean([len(value) for value in values.tolist()]))
    return max(lengths, key=lambda name: lengths[name], default=None)


def _levels(
    source: DataTable, labels: Sequence[str] | None, leave: Sequence[str]
) -> tuple[dict[str, Integers], str, str]:
    """The label levels with the class of each item, coarse first, the one most likely meant, and what was guessed."""
    path = source.path
    if labels is not None:
        for name in labels:
            check_name(name, source.columns, name="--labels")
        levels = {name: _numbers(path, name, source.values(name)) for name in labels}
        fine = [name for name in reversed(levels) if np.median(np.bincount(levels[name])) >= 2]
        return levels, (fine or list(levels)[-1:])[0], ""
    plain, passed_over = plain_levels(source)
    known = _Columns()
    for name, column in plain.items():
        if name not in leave and not column.missing.any():
            known.numbers[name] = _numbers(path, name, column)
            if column.values.dtype.kind in "UO":
                known.texts.add(name)
    for name in [name for name in known.numbers if known.classes(name) < 2]:
        del known.numbers[name]
    if not known.numbers:
        unlike = [name for name in passed_over if name not in leave]
        why = f"nearly every row has its own {listed(unlike)}" if unlike else f"it has {listed(list(source.columns))}"
        raise ValueError(
            f"training needs a column of labels that items share: {path} has none ({why}); add one, or name it with "
            "--labels."
        )
    named = next((name for usual in LABELS for name in known.numbers if name.lower() == usual), None)
    main = named or max(known.numbers, key=lambda name: (name in known.texts, known.classes(name)))
    chain = _nested(known, main)
    return {name: known.numbers[name] for name in chain}, main, _guess(known, chain, main, named is not None)


def _nested(known: _Columns, main: str) -> list[str]:
    """The columns whose classes lie in those of the next, or the reverse, coarse first, with the main one."""
    chain = [main]
    for name in sorted(known.numbers, key=known.classes):
        if name == main or any(known.classes(name) == known.classes(other) for other in chain):
            continue
        if all(known.within(*sorted((name, other), key=known.classes, reverse=True)) for other in chain):
            chain.append(name)
    return sorted(chain, key=known.classes)


def _guess(known: _Columns, chain: Sequence[str], main: str, by_name: bool) -> str:
    why = "by its name" if by_name else "as the one of most classes" if len(known.numbers) > 1 else "as the only one"
    text = f"Guessed: {main!r} is the label, {why}"
    if len(chain) > 1:
        text += f"; {' > '.join(chain)}, coarse first, as each class of one lies in one class of the one before"
    others = [f"{name!r} ({known.classes(name):,} classes)" for name in known.numbers if name not in chain]
    return text + (f". Not taken: {listed(others)}." if others else ".") + " --labels names others."


def _numbers(path: Path, name: str, column: ColumnValues) -> Integers:
    if column.missing.any():
        raise ValueError(
            f"every row of {path} must have a label: {column.missing.sum():,} of "
            f"{len(column.missing):,} have none in {name!r}; fill them in, or leave out these rows."
        )
    values = pa.array(column.values).dictionary_encode()
    return np.asarray(values.indices.to_numpy(), np.int64)


def _with_images(detected: DetectedData, listing: Listing) -> DetectedData:
    """With what some of the images are like, spread over all."""
    check_there(listing)
    count = len(listing.ids)
    positions = np.unique(np.linspace(0, count - 1, min(count, SAMPLED_IMAGES)).astype(np.int64)).tolist()
    some = [listing.sources[position] for position in positions]
    frame = Frame(3, (64, 64))
    inputs = FileInputs(some, frame, np.arange(len(some)))
    broken = inputs.decode_all(0, reporter("looking at images"))[1]
    sides, grey = [], True
    for i, source in enumerate(some):
        if i in broken:
            continue
        with open_image(source if isinstance(source, Path) else io.BytesIO(source.read())) as image:
            sides.append((image.height, image.width))
            grey &= image.mode in GREY
    if not sides:
        raise ValueError(
            f"images must be readable: none of {len(some)} that were looked at in {listing.location} is, first "
            f"{listing.ids[positions[0]]} ({broken[0]})."
        )
    images = Images(len(some), {positions[i]: why for i, why in broken.items()}, np.array(sides, np.int64), grey)
    keys = content_keys([listing.items(FileInputs(listing.sources, frame, np.arange(count), listing.boxes))])
    same = count - len(set(keys))
    notes = () if not same else (f"Copies of other images, byte for byte: {same:,}.",)
    return replace(detected, listing=listing, images=images, notes=(*detected.notes, *notes))
