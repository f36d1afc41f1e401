"""Detection of the data at a path: their kind, the settings that read them, and which columns are labels."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trivet.datasets.config import DataConfig, ItemKind
from trivet.datasets.equal_items import content_keys, copies
from trivet.datasets.folder import FolderConfig, list_folder
from trivet.datasets.image_files import Listing, check_there
from trivet.datasets.inputs import FileInputs
from trivet.datasets.judged_pairs import hang_together
from trivet.datasets.pair_contents import judged_pairs, read_pair_table
from trivet.datasets.pair_images import images_of, sides_of_images
from trivet.datasets.pairs_config import LEVEL as PAIR
from trivet.datasets.pairs_config import PairsConfig
from trivet.datasets.table import IMAGE, RepeatedImageError, TableConfig, image_column, list_table
from trivet.io.beir import is_beir
from trivet.io.embedding_table import Vectors, class_labels, select_rows
from trivet.io.formats import TABLES, open_rows, open_vectors, remedy
from trivet.io.image_file import SUFFIXES, Frame, Source, open_image
from trivet.io.label_columns import (
    is_numeric,
    is_text_name,
    label_columns,
    label_rank,
    text_column,
)
from trivet.io.overwrite_guard import is_saved, sharded
from trivet.io.pair_table import PairSides, likely_sides
from trivet.io.table import ColumnValues, DataTable, is_text, listed
from trivet.io.tag_cells import JOINED, TagCells, with_tags
from trivet.io.vector_choice import NO_CHOICE, VectorChoice
from trivet.io.vector_columns import (
    LISTED_NUMBERS,
    VectorColumns,
    check_no_vectors,
    is_usual,
    nested_vectors,
    vector_columns,
)
from trivet.models.towers import SIDES
from trivet.runtime.arguments import check_name
from trivet.runtime.arrays import Integers
from trivet.runtime.progress import reporter
from trivet.runtime.text import typed

KINDS = {1: "as there is no better one", 2: "as the only one of numbers", 3: "as the only one of words"}
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
        kind: the data set that reads them: "folder", "table", "vectors", "texts" or "pairs".
        data: the settings by which it does.
        items: how many there are.
        levels: label level -> the class of each item `(N,)` int64, coarse level first.
        main: the level that is most likely meant.
        divided: whether the data say what is trained on.
        listing: of images.
        images: what some of them are like.
        notes: what else was seen, in sentences.
        guessed: what was guessed of the columns, in a sentence; empty where nothing was.
        tags: the levels of tags -> the number of items with each tag.
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
    tags: Mapping[str, Integers] = field(default_factory=dict)

    @property
    def item_kind(self) -> ItemKind:
        """The kind of the items."""
        if self.kind == "pairs":
            return DataConfig.parse(self.data, source="pairs").item_kind
        if self.images is not None:
            return "images"
        return "texts" if self.kind == "texts" else "vectors"

    def sizes(self, level: str) -> Integers:
        """The number of items of each class or tag, the smallest first."""
        counts = self.tags[level] if level in self.tags else np.bincount(self.levels[level])
        return np.sort(counts[counts > 0])


@dataclass(frozen=True)
class _Columns:
    """Columns that may be label levels, as numbers of classes."""

    numbers: Mapping[str, Integers]

    def classes(self, name: str) -> int:
        return int(self.numbers[name].max()) + 1

    def within(self, fine: str, coarse: str) -> bool:
        """Test whether each class of one lies in one class of the other."""
        pairs = self.numbers[fine].astype(np.int64) * self.classes(coarse) + self.numbers[coarse]
        return len(np.unique(pairs)) == self.classes(fine)


def detect(
    path: Path,
    labels: Sequence[str] | None = None,
    text: str | None = None,
    choice: VectorChoice = NO_CHOICE,
    *,
    tags: TagCells | None = None,
    pairs: PairSides | None = None,
    skip_empty: bool = False,
    root: Path | None = None,
) -> DetectedData:
    """Detect the data at a path: images, a table of images, texts or pairs, vectors, or the layout of BEIR.

    Args:
        labels: the columns, or names of folder levels, that are labels, coarse first; guessed, if not given.
        text: the column of texts.
        choice: of vectors, which are then meant.
        tags: what cells of several labels are.
        pairs: the columns of pairs of texts, which are then meant.
        skip_empty: leave out rows of a table that lack a label or another value that each must have.
        root: the folder that the paths of a table of images start from; by default that of the table, the one below it
            that has them, or the current one.
    """
    vectors = choice != NO_CHOICE
    if vectors and text is not None:
        raise ValueError("--text is for texts, --table, --embedding and --codes for vectors: leave one out.")
    if pairs is not None or is_beir(path):
        options = {
            "--labels": labels,
            "--text": text,
            "--separator": tags,
            "a choice of vectors": choice if vectors else None,
        }
        if wrong := [name for name, value in options.items() if value is not None]:
            raise ValueError(f"pairs have two columns of texts, and no labels: leave {wrong[0]} out.")
        return _pairs(path, pairs or PairSides(), skip_empty, root)
    if path.is_dir() and not sharded(path) and not is_saved(path):
        if (path / "config.toml").is_file():
            raise ValueError(f"init needs data: {path} is a run, whose settings are in {path / 'config.toml'}.")
        _refuse_text(text, path, "a folder of images")
        if tags is not None:
            raise ValueError(f"--separator is for the cells of a table: {path} is a folder of images; leave it out.")
        return _folder(path, labels, skip_empty, root)
    suffix = path.suffix.lower()
    numbers = path.with_suffix(".npy") if suffix == ".csv" else path
    if sharded(path) or suffix in (".npz", ".npy") or (suffix == ".csv" and numbers.is_file()):
        _refuse_text(text, path, "vectors")
        return _vectors(numbers, labels, tags, choice, skip_empty)
    if suffix in SUFFIXES:
        raise ValueError(f"init needs a folder of images, or a table that lists them: got the image {path}.")
    if not path.is_dir() and suffix not in TABLES:
        raise ValueError(
            f"data must be a folder of images, a table ({', '.join(TABLES)}) or vectors (.npz, .npy, a table): got "
            f"{path}; {remedy(path)}."
        )
    rows = open_rows(path, choice=choice)
    image = None if text is not None or vectors else image_column(rows)
    if image is not None:
        return _table(rows, image, labels, tags, skip_empty, root)
    columns = vector_columns(rows, choice.embedding)
    if text is None and (vectors or rows.vectors is not None or columns):
        column = text_column(_without(rows, columns))
        if vectors or column is None or not is_text_name(column) or any(map(is_usual, columns)):
            return _vectors(path, labels, tags, choice, skip_empty)
    return _texts(rows, text, labels, tags, skip_empty)


def _refuse_text(text: str | None, path: Path, what: str) -> None:
    if text is not None:
        raise ValueError(f"--text names the column of texts of a table: {path} holds {what}; leave it out.")


def _folder(path: Path, labels: Sequence[str] | None, skip_empty: bool, root: Path | None) -> DetectedData:
    tables = sorted(file for file in path.iterdir() if file.suffix.lower() in TABLES and not file.name.startswith("."))
    config = FolderConfig(root=path, levels=None if labels is None else tuple(labels))
    try:
        listing = list_folder(config)
        first = next(iter(listing.names.values()))
        if tables and len(first) == len(listing.names) == 1:
            raise ValueError(f"the images of {path} must lie in a folder per class: all lie in {first[0]!r}.")
    except ValueError as error:
        lists = [file for file in tables if _lists_images(file)]
        if len(lists) == 1:  # images in no class folders, and a table that says their classes
            return detect(lists[0], labels, skip_empty=skip_empty, root=root)
        if tables:
            names = listed([file.name for file in lists or tables])
            raise ValueError(f"{str(error).removesuffix('.')}; or give a table: {path} holds {names}.") from None
        raise
    if (
        len(first) == 1 and len(listing.names) > 1 and labels is None and not listing.subsets
    ):  # a folder around the folders of the classes
        return _folder(path / first[0], labels, skip_empty, root)
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
        return image_column(open_rows(file)) is not None
    except ValueError:
        return False


def _table(
    rows: DataTable,
    image: str,
    labels: Sequence[str] | None,
    tags: TagCells | None,
    skip_empty: bool,
    root: Path | None,
) -> DetectedData:
    data: dict[str, Any] = {"name": "table", "path": str(rows.path)}
    if image != next((name for name in IMAGE if name in rows.names), None):
        data["image"] = image
    try:
        known, levels, main, guessed = _levels(rows, labels, tags, image, skip_empty)
    except ValueError as error:
        raise _offering_pairs(error, rows, labels) from None
    data |= _settings(levels, tags, skip_empty)
    data |= {} if root is None else {"root": str(root)}
    try:
        listing = list_table(TableConfig.parse(data, source=str(rows.path)), rows)
    except RepeatedImageError as error:
        raise _offering_pairs(error, rows, labels) from None
    first = listing.sources[0]
    if root is None and isinstance(first, Path) and not first.exists():
        folder = rows.path if rows.path.is_dir() else rows.path.parent
        count = len(listing.sources)
        names = [Path(str(listing.sources[i])).relative_to(folder) for i in range(0, count, max(1, count // 20))]
        below = [Path(), *sorted(entry for entry in folder.iterdir() if entry.is_dir())]
        roots = [other for other in below if 2 * sum((other / name).exists() for name in names) > len(names)]
        if len(roots) > 1:
            raise ValueError(
                f"the images of {rows.path} must lie in one folder: {names[0]} and others are in "
                f"{listed([*map(str, roots)])}; name it "
                f"with --data-root, such as --data-root {typed(roots[-1])}."
            )
        if roots:
            data["root"] = str(roots[0])
            listing = list_table(TableConfig.parse(data, source=str(rows.path)), rows)
    divided, sizes = bool(listing.subsets), _tag_sizes(known)
    detected = DetectedData("table", data, len(listing.ids), levels, main, divided, guessed=guessed, tags=sizes)
    return _with_images(detected, listing)


def _offering_pairs(error: ValueError, rows: DataTable, labels: Sequence[str] | None) -> ValueError:
    """The error of a table without labels, with the advice to read its rows as pairs where it may have two sides."""
    sides = likely_sides(rows) if labels is None else None
    if sides is None:
        return error
    where = f"{sides[0]!r} and {sides[1]!r}"
    return ValueError(f"{str(error).removesuffix('.')}; or train on {where} as pairs with --pairs.")


def _settings(levels: Iterable[str], tags: TagCells | None, skip_empty: bool) -> dict[str, Any]:
    """The settings of what the rows of a table are."""
    settings: dict[str, Any] = {"levels": list(levels)}
    if tags is not None:
        settings |= {"separator": tags.separator} | ({} if tags.match == "any" else {"match": tags.match})
    return settings | ({"skip_empty": True} if skip_empty else {})


def _tag_sizes(rows: Vectors) -> dict[str, Integers]:
    """Level of tags -> the number of items with each tag."""
    counts = {
        level: Counter(tag for cell in rows.labels[level].tolist() for tag in cell.split(JOINED)) for level in rows.tags
    }
    return {level: np.array([*of_tags.values()]) for level, of_tags in counts.items()}


def _vectors(
    path: Path, labels: Sequence[str] | None, tags: TagCells | None, choice: VectorChoice, skip_empty: bool
) -> DetectedData:
    source = open_vectors(path, choice)
    assert source.vectors is not None
    known, levels, main, guessed = _levels(source, labels, tags, None, skip_empty)
    data: dict[str, Any] = {"name": "vectors", "path": str(path), **_settings(levels, tags, skip_empty)}
    answers = {"table": choice.table, "embedding": choice.embedding, "codes": choice.codes}
    data |= {name: str(answer) for name, answer in answers.items() if answer is not None}
    notes = []
    if (column := text_column(source)) is not None and is_text_name(column):
        notes.append(f"Beside the vectors there are texts: --text {typed(column)} trains on these.")
    notes += copies(source.vectors)
    divided, sizes = known.splits is not None, _tag_sizes(known)
    return DetectedData(
        "vectors", data, len(known), levels, main, divided, notes=tuple(notes), guessed=guessed, tags=sizes
    )


def _texts(
    rows: DataTable, text: str | None, labels: Sequence[str] | None, tags: TagCells | None, skip_empty: bool
) -> DetectedData:
    vectors = vector_columns(rows)
    column = text_column(_without(rows, vectors)) if text is None else text
    if column is None:
        if web := image_column(rows, web=True):
            _levels(rows, labels, tags, web, skip_empty)
            list_table(TableConfig(path=rows.path, image=web), rows)
        if nested := nested_vectors(rows.types):
            raise ValueError(
                f"vectors must be in a column: {rows.path} holds them in {listed(nested)}; write them in a column "
                "'embedding' of their own."
            )
        of_vectors = "name that of vectors with --embedding" if vectors else f"write vectors as {LISTED_NUMBERS}"
        raise ValueError(
            f"a table must have a column of image paths or of texts beside its labels: {rows.path} has "
            f"{listed(rows.names)}; name the column of texts with --text, or {of_vectors}."
        )
    check_name(column, rows.names, name="--text")
    check_no_vectors(rows, column)
    try:
        known, levels, main, guessed = _levels(rows, labels, tags, column, skip_empty)
    except ValueError as error:
        raise _offering_pairs(error, rows, labels) from None
    data: dict[str, Any] = {"name": "texts", "path": str(rows.path), **_settings(levels, tags, skip_empty)}
    if column != "text":
        data["text"] = column
    notes = [] if text is not None or column == "text" else [f"The column {column!r} was taken for the texts."]
    if text is None and any(not columns.unreadable for columns in vectors.values()):
        notes.append(f"Beside the texts there are vectors: --embedding {typed(next(iter(vectors)))} trains on these.")
    divided, sizes = known.splits is not None, _tag_sizes(known)
    return DetectedData(
        "texts", data, len(known), levels, main, divided, notes=tuple(notes), guessed=guessed, tags=sizes
    )


def _pairs(path: Path, columns: PairSides, skip_empty: bool, root: Path | None) -> DetectedData:
    data: dict[str, Any] = {"name": "pairs", "path": str(path)} | ({"skip_empty": True} if skip_empty else {})
    named = {name: value for name, value in columns._asdict().items() if value is not None}
    data |= {name: str(value) if isinstance(value, Path) else value for name, value in named.items()}
    config = PairsConfig.parse(data, source=str(path))
    assert isinstance(config, PairsConfig)
    table = read_pair_table(config)
    relation = judged_pairs(table, config)
    groups = relation.groups
    divided = table.splits is not None and "train" in (names := set(table.splits.tolist())) and len(names) > 1
    guessed = "" if is_beir(path) else f"Each {table.left.name} belongs to its {table.right.name}."
    if not divided:
        data["split"] = "queries" if hang_together(groups[relation.paired_left(np.arange(len(groups)))]) else "groups"
    sides = table.left, table.right
    of_images, images = sides_of_images(table), None
    if any(of_images) and config.left_vectors is None:
        data["images"] = "both" if all(of_images) else SIDES[of_images.index(True)]
        data |= {} if root is None else {"root": str(root)}
        images = _pair_images(data, [side.contents for side, known in zip(sides, of_images, strict=True) if known])
    return DetectedData(
        "pairs", data, len(groups), {PAIR: groups}, PAIR, divided, images=images, notes=table.notes, guessed=guessed
    )


def _pair_images(data: dict[str, Any], paths: Sequence[Sequence[str]]) -> Images:
    """Properties of some images of pairs; ValueError if one cannot be read."""
    config = PairsConfig.parse(data, source="pairs")
    assert isinstance(config, PairsConfig)
    inputs = [images_of(config, each, None, unread=True) for each in paths]
    sources = [source for each in inputs if isinstance(each, FileInputs) for source in each.sources]
    spread = np.linspace(0, len(sources) - 1, min(len(sources), SAMPLED_IMAGES), dtype=int)
    some = [sources[i] for i in np.unique(spread).tolist()]
    images = _looked_at(some)
    for position, reason in images.broken.items():
        raise ValueError(f"every image of a pair must be readable: {some[position]} cannot be read ({reason}).")
    return images


def _without(rows: DataTable, vectors: Mapping[str, VectorColumns]) -> DataTable:
    return rows.without([name for columns in vectors.values() for name in columns.names])


def _levels(
    source: DataTable, labels: Sequence[str] | None, tags: TagCells | None, item: str | None, skip_empty: bool
) -> tuple[Vectors, dict[str, Integers], str, str]:
    """The rows, the class of each at its label levels, coarse first, the level most likely meant, and what was guessed.

    Args:
        item: the column of the texts or images.
    """
    guessed = ""
    if labels is None and tags is None:
        labels, main, guessed = _guessed_levels(source.without([item or "text"]))
    elif labels is None:
        source = with_tags(source.without([] if item is None else [item]), tags, None)
        labels = [*source.tags]
    for name in labels:
        check_name(name, list(source.types), name="--labels")
    needs = {item: "text or path"} if item in source.columns and is_text(source.types[item]) else {}
    source = source if source.tags else with_tags(source, tags, labels)
    rows = select_rows(source, labels, None, needs=needs, skip_empty=skip_empty)
    levels = class_labels(rows)[0]
    if not guessed:
        fine = [name for name in reversed(levels) if name in rows.tags or np.median(np.bincount(levels[name])) >= 2]
        main = (fine or list(levels)[-1:])[0]
    return rows, levels, main, guessed


def _guessed_levels(source: DataTable) -> tuple[list[str], str, str]:
    """The label levels, coarse first, the one most likely meant, and what was guessed; ValueError if that is open."""
    path, (columns, passed_over) = source.path, label_columns(source)
    columns = {name: column for name, column in columns.items() if len(pc.unique(pa.array(column.values))) > 1}
    if not columns:
        others = f"it has {listed(source.names)}" if source.names else "it has no other column"
        why = "; ".join(passed_over.values()) or others
        raise ValueError(
            f"training needs a column of labels that items share: {path} has none ({why}); add one, or name it with "
            "--labels."
        )
    ranks = {name: label_rank(name, column) for name, column in columns.items()}
    best = [name for name in columns if ranks[name] == max(ranks.values())]
    known = _Columns({name: _numbers(column) for name, column in columns.items()})
    best.sort(key=lambda name: (known.classes(name), not is_numeric(columns[name])))
    kind = ranks[best[0]][0]
    if kind == 0 or not all(known.within(fine, coarse) for coarse, fine in pairwise(best)):
        what = "which one is meant" if len(columns) > 1 else "whether the only one is meant"
        raise ValueError(
            f"the column of labels must be named with --labels, as it is open {what}: {path} has "
            f"{_counted(known, columns)}."
        )
    main = best[-1]
    labelled = ~columns[main].missing
    known = _Columns({n: _numbers(c)[labelled] for n, c in columns.items() if not c.missing[labelled].any()})
    likely = {n: numbers for n, numbers in known.numbers.items() if ranks[n][0] >= min(2, kind)}  # people are no levels
    chain = _nested(_Columns(likely), main)
    why = "by its name"
    if kind < 4:
        why = "as the only one" if len(columns) == 1 else "as the finest" if len(best) > 1 else KINDS[kind]
    text = f"Guessed: {main!r} is the label, {why}"
    if len(chain) > 1:
        text += f"; {' > '.join(chain)}, coarse first, as each class of one lies in one class of the one before"
    others = _counted(known, [name for name in known.numbers if name not in chain])
    return chain, main, text + (f". Not taken: {others}." if others else ".") + " --labels names others."


def _counted(known: _Columns, names: Iterable[str]) -> str:
    return ", ".join(f"{name!r} ({known.classes(name):,} classes)" for name in names)


def _nested(known: _Columns, main: str) -> list[str]:
    """The columns whose classes lie in those of the next, or the reverse, coarse first, with the main one."""
    chain = [main]
    for name in sorted(known.numbers, key=known.classes):
        if name == main or any(known.classes(name) == known.classes(other) for other in chain):
            continue
        if all(known.within(*sorted((name, other), key=known.classes, reverse=True)) for other in chain):
            chain.append(name)
    return sorted(chain, key=known.classes)


def _numbers(column: ColumnValues) -> Integers:
    return np.asarray(pa.array(column.values).dictionary_encode().indices.to_numpy(), np.int64)


def _with_images(detected: DetectedData, listing: Listing) -> DetectedData:
    """With what some of the images are like, spread over all."""
    check_there(listing)
    count = len(listing.ids)
    positions = np.unique(np.linspace(0, count - 1, min(count, SAMPLED_IMAGES)).astype(np.int64)).tolist()
    some = [listing.sources[position] for position in positions]
    images = _looked_at(some)
    if not len(images.sides):
        raise ValueError(
            f"images must be readable: none of {len(some)} that were looked at in {listing.location} is, first "
            f"{listing.ids[positions[0]]} ({images.broken[0]})."
        )
    images = replace(images, broken={positions[i]: why for i, why in images.broken.items()})
    frame = Frame(3, (64, 64))
    keys = content_keys([listing.items(FileInputs(listing.sources, frame, np.arange(count), listing.boxes))])
    same = count - len(set(keys))
    notes = (*listing.notes, *([f"Copies of other images, byte for byte: {same:,}."] if same else []))
    return replace(detected, listing=listing, images=images, notes=(*detected.notes, *notes))


def _looked_at(sources: Sequence[Source]) -> Images:
    """Properties of some images, of which those that cannot be decoded are listed by their positions."""
    inputs = FileInputs(sources, Frame(3, (64, 64)), np.arange(len(sources)))
    broken = inputs.decode_all(0, reporter("looking at images"))[1]
    sides, grey = [], True
    for i, source in enumerate(sources):
        if i in broken:
            continue
        file = source if isinstance(source, Path) else io.BytesIO(source.read())  # type: ignore[union-attr]  # of a list
        with open_image(file) as image:
            sides.append((image.height, image.width))
            grey &= image.mode in GREY
    return Images(len(sources), broken, np.array(sides, np.int64), grey)
