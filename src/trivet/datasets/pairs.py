"""Pairs in a file: it lists what belongs together, such as queries and documents or images and texts; no classes.

One file, because all of it makes items of the rows of one table: texts, images, vectors, and their splits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from trivet.config.base import nearest
from trivet.datasets.config import Channels, DataConfig, DatasetEntry, ItemKind
from trivet.datasets.config import Side as PixelSide
from trivet.datasets.dataset import Dataset, Inputs, Splits
from trivet.datasets.image_decoding import Progress
from trivet.datasets.inputs import ArrayInputs, FileInputs
from trivet.datasets.judged_pairs import JudgedPairs, pair_cells
from trivet.datasets.pair_splits import drawn_subsets, listed_subsets
from trivet.datasets.sides import SidedInputs
from trivet.datasets.splitting import TRAIN
from trivet.datasets.table import are_image_paths, path_inside
from trivet.datasets.texts import TextInputs, ngrams_of_training, with_inputs, with_ngrams
from trivet.datasets.vectors import VectorInputs, VectorsConfig, check_finite, vectors_like
from trivet.io.beir import is_beir, read_beir
from trivet.io.embedding_table import Vectors
from trivet.io.image_cells import ImageCell, NamedImages, named_images
from trivet.io.image_file import Frame
from trivet.io.label_columns import FIRST
from trivet.io.pair_table import PairSide, PairTable, read_pairs
from trivet.io.query_gallery import QueryGallery
from trivet.io.read_embeddings import TEXT, read_vectors
from trivet.io.tag_cells import PAIRS
from trivet.io.vector_choice import VectorChoice
from trivet.models import Tokenize
from trivet.models.towers import SIDES
from trivet.runtime.arrays import Integers

LEVEL = "pair"
MEMORY_GB = 4  # of decoded images, beyond which files are read again
REVERSED = "-reversed"  # ends the name of an evaluation split whose queries are the right side


class PairsConfig(DataConfig):
    """Pairs of texts, such as queries and documents, or of images and texts.

    Args:
        path: a csv, tsv, parquet or JSON file with a pair in each row, or a folder in the layout of BEIR.
        left, right: the columns of both sides; by default those with usual names, such as query and answer.
        negatives: columns of hard negatives of the left side; by default negative, negative_1, ...
        score: the column that says how much a pair belongs together; by default score, similarity, label, ...
        relevant: the least score of a pair that belongs together; 1 where scores are whole numbers.
        split: "auto" follows the column split, else "groups": pairs that share no content are held out, or where most
            hang together "queries": contents of the left side, with what belongs to no other.
        holdout: share of the left side that is held out.
        seed: decides which groups or queries are.
        left_vectors, right_vectors: files of vectors made elsewhere, by the ids that the columns of both sides hold, as
            trivet embed writes them; for images and texts, say, by two encoders.
        images: the side whose column holds images or their paths, left, right or both; the other holds texts.
        root: the folder that the paths start from, where it is not that of the table.
        image_size: side of the images in pixels, or [height, width]: larger where details matter.
        resize: shorter side before the cut to image_size, such as 256 before 224; by default only the shape is cut.
        towers: "separate" for a network of each side, which begin alike where the settings name one, and of vectors a
            head of each; "shared" for one of both, for vectors of one space, such as CLIP's; "auto" takes vectors of
            equal length for those of one space.
        skip_empty: leave out rows without a side or a score.
    """

    name: Literal["pairs"] = "pairs"
    path: Path
    left: str | None = None
    right: str | None = None
    negatives: tuple[str, ...] | None = None
    score: str | None = None
    relevant: float | None = Field(None, gt=0)
    split: Literal["auto", "groups", "queries"] = "auto"
    holdout: float = Field(0.2, gt=0, lt=1)
    seed: int = Field(0, ge=0)
    left_vectors: Path | None = None
    right_vectors: Path | None = None
    images: Literal["none", "left", "right", "both"] = "none"
    root: Path | None = None
    image_size: PixelSide | tuple[PixelSide, PixelSide] = 64
    resize: PixelSide | None = None
    channels: Channels = 3
    towers: Literal["auto", "shared", "separate"] = "auto"
    skip_empty: bool = False

    @model_validator(mode="after")
    def _check_vectors(self) -> Self:
        if (self.left_vectors is None) != (self.right_vectors is None):
            raise ValueError("left_vectors and right_vectors go together: got one of them; give both, or neither.")
        if self.images != "none" and self.left_vectors is not None:
            raise ValueError("the items are the images or their vectors: remove images, or left_ and right_vectors.")
        for key in ("root", "image_size", "resize") if self.images == "none" else ():
            if getattr(self, key) != type(self).model_fields[key].default:
                raise ValueError(f"{key} is for images: remove it, or set images to the side that has them.")
        if self.images in SIDES and self.towers == "shared":
            raise ValueError('towers = "shared" is for sides of one kind: images and texts need a network each.')
        return self

    @property
    def item_kind(self) -> ItemKind:
        """The kind of the items, of both kinds where these differ."""
        left, right = self.side_kinds
        return left if left == right else "images and texts"

    @property
    def side_kinds(self) -> tuple[ItemKind, ItemKind]:
        """The kinds of the items of both sides: texts, images, or vectors."""
        if self.left_vectors is not None:
            return ("vectors", "vectors")
        left: ItemKind = "images" if self.images in ("left", "both") else "texts"
        return (left, "images" if self.images in ("right", "both") else "texts")

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Shape (C, H, W) of an image."""
        height, width = (self.image_size,) * 2 if isinstance(self.image_size, int) else self.image_size
        return (self.channels, height, width)

    def frame(self, shape: tuple[int, ...]) -> Frame:
        """The resizing of images to a shape, by way of `resize`."""
        return Frame.of(shape, self.resize)

    @property
    def separate(self) -> bool:
        """True if each side gets a network of its own; vectors of two spaces have numbers of their own in one."""
        return self.towers == "separate" and self.left_vectors is None

    @property
    def label_levels(self) -> tuple[str, ...]:
        return (LEVEL,)

    @property
    def text_column(self) -> str:
        """The column of the contents of both sides."""
        return TEXT


def load_pairs(config: PairsConfig, data_root: Path | None, progress: Progress | None) -> Splits:
    """Load the contents of both sides as vectors of their n-grams, split as the file or `config.split` says.

    Each evaluation split searches the right side for the left one, and the split of its name with "-reversed" the left
    for the right one.

    Raises:
        ValueError: if the file is broken, sides or scores are not clear, or the pairs cannot be split.
    """
    splits, contents = unencoded(config)
    if config.images == "both":
        images = images_of(config, contents, progress)
        return with_inputs(splits, lambda inputs: images.subset(inputs.rows))
    assert config.images == "none", "the settings of a run are checked"
    if config.left_vectors is None or config.right_vectors is None:
        return with_ngrams(splits, contents)
    sides = read_pair_table(config)
    left, right = (
        vectors_by_id(side, path, config)
        for side, path in ((sides.left, config.left_vectors), (sides.right, config.right_vectors))
    )
    widths = left.shape[1], right.shape[1]
    if config.towers == "shared" and widths[0] != widths[1]:
        raise ValueError(
            f'data.towers = "shared" needs vectors of one length: got {widths[0]} on the left and {widths[1]} on the '
            'right; set "separate".'
        )
    vectors = np.concatenate([_placed(left, 0, widths, config), _placed(right, 1, widths, config)])
    return with_inputs(splits, lambda inputs: replace(inputs, vectors=vectors))


def vectors_of_side(config: PairsConfig, path: Path, choice: VectorChoice) -> Dataset:
    """The vectors of another file as a run on `config` takes them; which side they are of, their length says.

    Raises:
        ValueError: if the file cannot be used, or the length does not say it.
    """
    assert config.left_vectors is not None
    assert config.right_vectors is not None
    items = vectors_like(VectorsConfig(path=path), path, choice)
    assert isinstance(items.inputs, VectorInputs)
    widths = tuple(
        read_vectors(file, levels=()).embeddings.shape[1] for file in (config.left_vectors, config.right_vectors)
    )
    width = items.inputs.vectors.shape[1]
    if width not in widths:
        raise ValueError(
            f"the vectors of {path} must have the length of a side that the run was trained on, {widths[0]} or "
            f"{widths[1]}: got {width}; make them with the encoder of that side."
        )
    if config.towers == "separate" and widths[0] == widths[1]:
        raise ValueError(
            f"the length of the vectors of {path} must say of which side they are, and both have {width}: embed the "
            f"pairs themselves, with trivet embed RUN {config.name}."
        )
    placed = _placed(np.asarray(items.inputs.vectors), widths.index(width), widths, config)
    return replace(items, inputs=replace(items.inputs, vectors=placed))


def load_sides(
    config: PairsConfig, tokenize: Sequence[Tokenize | None], progress: Progress | None = None, *, unread: bool = False
) -> Splits:
    """The contents of both sides, each read as the network of its side takes them.

    Args:
        tokenize: what makes tokens of the texts of a side; None for a network that takes the vectors of their n-grams,
            or images.
        unread: no image is read yet.

    Raises:
        ValueError: as `load_pairs`; also if the items are vectors, or an image is missing or cannot be read.
    """
    if config.left_vectors is not None:
        raise ValueError(
            'vectors of both sides have a head each within one network: set model.name = "linear" or "residual" in '
            "place of towers."
        )
    splits, contents = unencoded(config)
    relation = splits.train.relations[LEVEL]
    assert isinstance(relation, JudgedPairs)
    first = relation.first_of_right
    left, right = (
        _texts_of_side(splits, contents, span, each)
        if kind == "texts"
        else _images_of_side(config, contents, span, progress, unread=unread)
        for kind, span, each in zip(
            config.side_kinds, (slice(0, first), slice(first, len(contents))), tokenize, strict=True
        )
    )

    def change(inputs: VectorInputs) -> SidedInputs:
        of_right = inputs.rows >= first
        return SidedInputs((left(inputs.rows[~of_right]), right(inputs.rows[of_right])), of_right)

    return with_inputs(splits, change)


def _texts_of_side(
    splits: Splits, contents: Sequence[str], span: slice, tokenize: Tokenize | None
) -> Callable[[Integers], Inputs]:
    """Inputs of the contents of a side from their numbers, which lie in a span."""
    unread = splits.train.inputs
    assert isinstance(unread, VectorInputs)
    if tokenize is None:
        vectors = ngrams_of_training(splits, unread.previews)
        return lambda rows: replace(unread, vectors=vectors, rows=rows)
    tokens = tokenize(contents[span])
    # By the numbers of all contents: those of the other side have no tokens.
    before, after = np.zeros(span.start, np.int64), np.full(len(contents) - span.stop, tokens.starts[-1])
    numbered = tokens._replace(starts=np.concatenate([before, tokens.starts, after]))
    return lambda rows: TextInputs(contents, numbered, rows, unread.rows)


def pair_items(config: PairsConfig, split: str | None = None) -> Vectors:
    """The contents of both sides of a table, the left ones first, without vectors, and with the cells of their pairs.

    Of the left side those that something belongs to; of the right one all that may be found.

    Args:
        split: the pairs of which split of the table; all, if not given.

    Raises:
        ValueError: as `load_pairs`, or if there is no such split.
    """
    table = read_pair_table(config)
    relation = judged_pairs(table, config)
    left = relation.first_of_right
    judged, gallery = table.pairs, np.arange(left, len(relation.groups))
    if split is not None:
        if table.splits is None:
            raise ValueError(f"--split chooses rows of a table: {config.path} has no column split; leave it out.")
        if split not in (names := sorted({*table.splits.tolist()})):
            raise ValueError(
                f"some pairs of {config.path} must be of the split {split!r}: none is; {nearest(split, names)}"
            )
        judged = judged[table.splits == split]
        gallery = gallery if table.collection else np.unique(judged[:, 1]) + left
    queries = np.intersect1d(judged[:, 0], relation.pairs[:, 0])
    numbers = np.concatenate([queries, gallery])
    ids, contents = _side_ids(table, config), [*table.left.contents, *table.right.contents]
    return Vectors(
        name=config.path.name,
        embeddings=np.empty((len(numbers), 0), np.float32),
        labels={LEVEL: np.array(pair_cells(relation, numbers))},
        ids=np.array(ids)[numbers],
        splits=None,
        cameras=None,
        protocol=None,
        rows=np.arange(len(numbers)),
        columns=(table.left.name, table.right.name),
        texts=[contents[number] for number in numbers.tolist()],
        notes=table.notes,
        tags={LEVEL: PAIRS},
    )


def paired_vectors(config: PairsConfig, items: Vectors) -> Vectors:
    """The items of `pair_items` with the vectors of both sides, from the files of the settings.

    Raises:
        ValueError: if a content has no vector, or those of both sides differ in length.
    """
    assert config.left_vectors is not None
    assert config.right_vectors is not None
    table = read_pair_table(config)
    left, right = (
        vectors_by_id(table.left, config.left_vectors, config),
        vectors_by_id(table.right, config.right_vectors, config),
    )
    if left.shape[1] != right.shape[1]:
        raise ValueError(
            f"vectors of both sides must have one length to be compared: got {left.shape[1]} in {config.left_vectors} "
            f"and {right.shape[1]} in {config.right_vectors}; give those of one space, such as what a run that was "
            "trained on both makes of each (trivet embed RUN FILE)."
        )
    rows = {id: row for row, id in enumerate(_side_ids(table, config))}
    positions = np.array([rows[id] for id in items.names()])
    return replace(items, embeddings=np.concatenate([left, right])[positions])


def _images_of_side(
    config: PairsConfig, contents: Sequence[str], span: slice, progress: Progress | None, *, unread: bool
) -> Callable[[Integers], Inputs]:
    """Inputs of the images of a side from their numbers, which lie in a span."""
    images = images_of(config, contents[span], progress, unread=unread)
    return lambda rows: images.subset(rows - span.start)


def images_of(
    config: PairsConfig, paths: Sequence[str], progress: Progress | None, *, unread: bool = False
) -> FileInputs | ArrayInputs:
    """Images by their paths or names, in memory where there is room for them.

    Raises:
        ValueError: if one is missing or cannot be read.
    """
    root = image_root(config)
    cells = _images_in_cells(config.path).cells
    sources = tuple(cells.get(path) or root / path_inside(path, root) for path in paths)
    files = [(path, source) for path, source in zip(paths, sources, strict=True) if isinstance(source, Path)]
    if lacking := [path for path, source in files if not source.is_file()]:
        remedy = "add them, leave their rows out, or name the folder that the paths start from with data.root"
        if len(lacking) == len(paths):
            remedy = f'data.images = "{config.images}" says which side has them, data.root where the paths start'
        raise ValueError(
            f"every image of {config.path} must be a file below {root}: {len(lacking):,} of {len(paths):,} are not, "
            f"first {lacking[0][:60]!r}; {remedy}."
        )
    frame, full_size = Frame.of(config.image_shape, config.resize), config.augment == "random-resized-crop"
    if unread:
        return FileInputs(sources, frame, np.arange(len(sources)), full_size=full_size)
    return _decoded_files(sources, frame, full_size, progress)


@lru_cache(maxsize=2)  # a ladder reads both sides again for each encoder of texts
def _decoded_files(
    sources: tuple[Path | ImageCell, ...], frame: Frame, full_size: bool, progress: Progress | None
) -> FileInputs | ArrayInputs:
    files = FileInputs(sources, frame, np.arange(len(sources)), full_size=full_size)
    images, broken = files.decode_all(MEMORY_GB, progress)
    if broken:
        position, reason = next(iter(broken.items()))
        raise ValueError(
            f"every image of a pair must be readable: {len(broken):,} of {len(sources):,} cannot be read, first "
            f"{sources[position]} ({reason}); repair them, or leave their rows out."
        )
    return images


def image_root(config: PairsConfig) -> Path:
    """The folder that the paths of images start from."""
    return config.root or (config.path if config.path.is_dir() else config.path.parent)


def vectors_by_id(side: PairSide, path: Path, config: PairsConfig) -> npt.NDArray[np.float32]:
    """The vectors `(C, d)` of the contents of a side, by their ids."""
    known = read_vectors(path, levels=())
    rows = {id: row for row, id in enumerate(known.names())}
    wanted = side.ids if is_beir(config.path) else side.contents
    if lacking := [content for content in wanted if content not in rows]:
        raise ValueError(
            f"each {side.name!r} of {config.path} must be an id in {path}: {len(lacking)} of {len(wanted)} are "
            f"not, first {lacking[0][:60]!r}; embed these too, or correct the ids."
        )
    positions = np.array([rows[content] for content in wanted])
    vectors = np.asarray(known.embeddings[positions], np.float32)
    check_finite(vectors, positions, path)
    return vectors


def _placed(
    vectors: npt.NDArray[np.floating], side: int, widths: tuple[int, int], config: PairsConfig
) -> npt.NDArray[np.float32]:
    """The vectors of a side: of one space as they are, of two in numbers of their own, with 0 in those of the other.

    A linear map of the latter is a head for each side.
    """
    if config.towers == "shared" or (config.towers == "auto" and widths[0] == widths[1]):
        return vectors.astype(np.float32)
    placed = np.zeros((len(vectors), sum(widths)), np.float32)
    start = widths[0] * side
    placed[:, start : start + widths[side]] = vectors
    return placed


def unencoded(config: PairsConfig) -> tuple[Splits, list[str]]:
    """The splits, whose vectors have no numbers yet, and the contents of both sides."""
    table = read_pair_table(config)
    _check_images(table, config)
    texts = [*table.left.contents, *table.right.contents]
    relation = judged_pairs(table, config)
    items = _all_items(table, texts, relation, config)
    notes = list(table.notes)
    if table.splits is None or config.split != "auto":
        subsets = drawn_subsets(relation, table, notes, split=config.split, holdout=config.holdout, seed=config.seed)
    else:
        subsets = listed_subsets(relation, table, notes)
    left, trained = relation.first_of_right, subsets.pop(TRAIN)
    linked = np.isin(trained, relation.pairs)
    every, nothing = np.ones(len(trained), bool), np.zeros(len(trained), bool)
    # Folds of it are measured in both directions at once.
    train = replace(items.subset(trained), protocol=QueryGallery(linked, every, nothing))
    evaluation = {}
    for split, rows in subsets.items():
        forward, backward = rows < left, rows >= left
        answered = np.isin(rows, relation.pairs[np.isin(relation.pairs[:, 0], rows), 1])
        for name, query, gallery in ((split, forward, backward), (split + REVERSED, answered, forward)):
            nothing = np.zeros(len(rows), bool)
            used = np.flatnonzero(query | gallery)
            protocol = QueryGallery(query, gallery, nothing).subset(used)
            evaluation[name] = replace(items.subset(rows[used]), protocol=protocol)
    pairs = np.isin(relation.pairs, train.numbers[LEVEL]).all(axis=1).sum()
    summary = (
        f"{config.path.name}: {len(table.left.contents):,} of {table.left.name!r}, {len(table.right.contents):,} of "
        f"{table.right.name!r}, {len(relation.pairs):,} pairs that belong together, {pairs:,} of them trained on."
    )
    return Splits(train, evaluation, LEVEL, summary=summary, warnings=tuple(notes)), texts


def read_pair_table(config: PairsConfig) -> PairTable:
    """The table or folder of the settings."""
    if is_beir(config.path):
        return read_beir(config.path)
    return read_pairs(
        config.path,
        left=config.left,
        right=config.right,
        negatives=config.negatives,
        score=config.score,
        skip_empty=config.skip_empty,
    )


def _images_in_cells(path: Path) -> NamedImages:
    return NamedImages({}, {}) if is_beir(path) else named_images(path)


def sides_of_images(table: PairTable) -> list[bool]:
    """Test whether the left and the right side hold images, in their cells or by their paths."""
    in_cells = _images_in_cells(table.path).names
    return [side.name in in_cells or are_image_paths(side.contents[:FIRST]) for side in (table.left, table.right)]


def _check_images(table: PairTable, config: PairsConfig) -> None:
    """ValueError if a side whose column holds images is to be read as texts."""
    if config.left_vectors is not None:
        return
    in_cells = _images_in_cells(config.path).names
    sides = zip((table.left.name, table.right.name), config.side_kinds, strict=True)
    if texts := [name for name, kind in sides if name in in_cells and kind == "texts"]:
        side = "both" if len(texts) > 1 or config.images != "none" else SIDES[texts[0] == table.right.name]
        raise ValueError(
            f"a side of images must be read as images: {texts[0]!r} of {config.path} holds them; set data.images = "
            f'"{side}".'
        )


def judged_pairs(table: PairTable, config: PairsConfig) -> JudgedPairs:
    """The relation of the contents of a table, by the settings.

    Raises:
        ValueError: if the least score of what belongs together is not clear, or no pair has it.
    """
    relevant = _least_relevant(table, config.relevant)
    positions = {text: position for position, text in enumerate(table.right.contents)}
    equal = [(i, positions[text]) for i, text in enumerate(table.left.contents) if text in positions]
    relation = JudgedPairs(
        len(table.left.contents),
        len(table.right.contents),
        table.pairs,
        table.grades,
        relevant=relevant,
        equal=np.array(equal, np.int64).reshape(-1, 2),
    )
    if not len(relation.pairs):
        raise ValueError(
            f"some pairs of {table.path} must belong together: no score reaches data.relevant = {relevant:g}; lower it."
        )
    return relation


def _all_items(table: PairTable, contents: list[str], relation: JudgedPairs, config: PairsConfig) -> Dataset:
    """Every content of both sides as an item, whose class is its group."""
    ids, texts = _side_ids(table, config), list[str]()
    for of_side, kind in zip((table.left, table.right), config.side_kinds, strict=True):
        texts += [""] * len(of_side.contents) if kind == "images" else of_side.contents
    _, first = np.unique(relation.groups, return_index=True)
    count = len(ids)
    side = (table.left.name,) * len(table.left.ids) + (table.right.name,) * len(table.right.ids)
    return Dataset(
        table.path.stem,
        VectorInputs(np.empty((count, 0), np.float32), texts if any(texts) else contents, np.arange(count), table.path),
        {LEVEL: relation.groups},
        {LEVEL: tuple(ids[row] for row in first.tolist())},
        ids,
        columns={TEXT: tuple(texts), "side": side},
        relations={LEVEL: relation},
        numbers={LEVEL: np.arange(count)},
    )


def _side_ids(table: PairTable, config: PairsConfig) -> tuple[str, ...]:
    """Different ids of the contents of both sides; images are named by their paths."""
    sides = (table.left, table.right)
    named = [
        side.contents if kind == "images" else side.ids for side, kind in zip(sides, config.side_kinds, strict=True)
    ]
    ids = (*named[0], *named[1])
    if len(set(ids)) == len(ids):
        return ids
    return tuple(f"{side.name}-{id}" for side, names in zip(sides, named, strict=True) for id in names)


def _least_relevant(table: PairTable, relevant: float | None) -> float:
    """The least score of what belongs together; ValueError that asks for it where scores are no whole numbers."""
    if relevant is not None:
        return relevant
    fractional = table.grades[table.grades != np.floor(table.grades)]
    if len(fractional):
        least = float(np.quantile(table.grades, 0.75))
        raise ValueError(
            f"the least score of a pair that belongs together must be known: {table.path} has scores from "
            f"{table.grades.min():g} to {table.grades.max():g}; set data.relevant, such as "
            f"--set data.relevant={least:g}, or beside vectors and encoders --relevant {least:g}."
        )
    return 1.0


ENTRY = DatasetEntry(
    PairsConfig,
    load_pairs,
    description="pairs of texts or images, such as queries and documents",
    unencoded=unencoded,
)
