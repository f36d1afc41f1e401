"""Image files with labels, as a folder, a table or a published list names them: split, and decoded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

import numpy as np
from pydantic import Field, model_validator

from trivet.datasets.config import Channels, ImagesConfig, Side, with_validation_fold
from trivet.datasets.dataset import Dataset, Inputs, Skipped, Splits
from trivet.datasets.image_decoding import Progress
from trivet.datasets.inputs import FileInputs
from trivet.datasets.splitting import SplitConfig, make_splits
from trivet.io.image_file import Frame, Source
from trivet.io.query_gallery import QueryGallery
from trivet.mining import Relation


class ImageFilesConfig(SplitConfig, ImagesConfig):
    """Settings of a data set of image files with labels.

    Args:
        image_size: side of the images in pixels, or [height, width]: larger where details matter.
        resize: shorter side before the cut to image_size, such as 256 before 224; by default only the shape is cut.
        allow_corrupt: share of unreadable images, which are skipped, above which the run stops.
        memory_gb: decoded images kept in memory, beyond which files are read again: less where memory is short.
    """

    image_size: Side | tuple[Side, Side] = 64  # type: ignore[assignment]  # a square, or height and width
    resize: Side | None = None
    channels: Channels = 3
    allow_corrupt: float = Field(0.01, ge=0, le=1)
    memory_gb: float = Field(4, ge=0)

    mirrored = True

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape (C, H, W) of an image."""
        size = self.image_size
        return (self.channels, *((size, size) if isinstance(size, int) else size))

    def frame(self, shape: tuple[int, ...]) -> Frame:
        """The resizing to images of that shape, by way of `resize`."""
        return Frame.of(shape, self.resize)

    @model_validator(mode="after")
    def _check_resize(self) -> Self:
        least = min(self.input_shape[1:])
        if self.resize is not None and self.resize < least:
            raise ValueError(
                f"resize must be at least the shorter side of image_size, {least}: got {self.resize}; raise it."
            )
        return self


@dataclass(frozen=True, eq=False)
class Listing:
    """Image files with labels.

    Attributes:
        name: of the data set.
        place: where they are, for errors.
        sources: N files.
        ids: N different strings.
        labels: level -> `(N,)` int64, coarse level first; a value indexes `names[level]`.
        names: level -> class names; split = "class-disjoint" trains on the first half of them.
        subsets: "train", then "test" and "val" or one of them, -> the positions of their items; empty where none are
            given, so that classes or items are held out.
        protocol: which items are queries and which are retrieved, all of one part; None without.
        boxes: `(N, 4)` left, upper, right and lower edge in pixels of the file, that each image is cut to; or None.
        columns: other columns of the items, N texts each.
        relations: the levels of tags -> see `Dataset`.
        where: where the list names the item at a position, such as "line 7 of items.csv"; None where the id tells.
        notes: what is odd about the list, in sentences.
    """

    name: str
    location: Path
    sources: Sequence[Source]
    ids: tuple[str, ...]
    labels: Mapping[str, np.ndarray]
    names: Mapping[str, tuple[str, ...]]
    subsets: Mapping[str, np.ndarray] = field(default_factory=dict)
    protocol: QueryGallery | None = None
    boxes: np.ndarray | None = None
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    relations: Mapping[str, Relation] = field(default_factory=dict)
    where: Callable[[int], str] | None = None
    notes: tuple[str, ...] = ()

    def items(self, inputs: Inputs) -> Dataset:
        """All items of the list, whose images are the inputs."""
        return Dataset(
            self.name,
            inputs,
            self.labels,
            self.names,
            self.ids,
            protocol=self.protocol,
            columns=self.columns,
            relations=self.relations,
        )


def load_listing(config: ImageFilesConfig, listing: Listing, progress: Progress | None) -> Splits:
    """The images of a list, split as it says or as `config.split` says.

    The main evaluation split is "test" (or "val" without it), called "seen" if all its classes are trained on, "unseen"
    if none is, "mixed" otherwise; "val" beside "test" keeps its name.

    Raises:
        ValueError: if the split cannot be made, or more than `config.allow_corrupt` of the images are broken.
    """
    files = _files(config, listing)
    _split(config, listing, files)  # before it takes time to decode them
    inputs, broken = files.decode_all(config.memory_gb, progress)
    if len(broken) > config.allow_corrupt * len(files):
        first = "; ".join(f"{_where(listing, i)} ({reason})" for i, reason in list(broken.items())[:3])
        raise ValueError(
            f"at most {100 * config.allow_corrupt:.2f} % of the images may be unreadable: {len(broken)} of "
            f"{len(files)} in {listing.location} are, first {first}; repair or remove them, or raise "
            "data.allow_corrupt."
        )
    readable = np.setdiff1d(np.arange(len(files)), np.array(list(broken), np.int64))
    splits = make_splits(listing.items(inputs), config, listing.subsets, listing.location, readable)
    skipped = tuple(Skipped(_where(listing, i), reason) for i, reason in broken.items())
    return replace(splits, train=replace(splits.train, skipped=skipped), warnings=listing.notes)


def split_listing(config: ImageFilesConfig, listing: Listing, readable: np.ndarray | None = None) -> Splits:
    """As `load_listing`, but no image is decoded before it is asked for.

    Args:
        readable: the positions of the images that can be read; all, if not given.

    Raises:
        ValueError: if no image is there, one is listed twice, or the split cannot be made.
    """
    return _split(config, listing, _files(config, listing), readable)


def _split(config: ImageFilesConfig, listing: Listing, files: FileInputs, readable: np.ndarray | None = None) -> Splits:
    splits = make_splits(listing.items(files), config, listing.subsets, listing.location, readable)
    return with_validation_fold(splits, config)


def _files(config: ImageFilesConfig, listing: Listing) -> FileInputs:
    """All images of the list, checked to be there and different."""
    check_there(listing)
    _check_different(listing)
    return FileInputs(
        listing.sources,
        config.frame(config.input_shape),
        np.arange(len(listing.ids)),
        listing.boxes,
        full_size=config.augment == "random-resized-crop",
    )


def without_unreadable(items: Dataset, location: Path, progress: Progress | None) -> Dataset:
    """Items whose images are in files, but for those that cannot be read, which are listed in `skipped`.

    Raises:
        ValueError: if none can be read.
    """
    assert isinstance(items.inputs, FileInputs)
    broken = items.inputs.decode_all(0, progress)[1]
    readable = np.setdiff1d(np.arange(len(items)), np.array(list(broken), np.int64))
    if not len(readable):
        raise ValueError(
            f"{location} must hold or name images that can be read: none of {len(items)} can, first {broken[0]}; "
            "repair or convert them."
        )
    skipped = tuple(Skipped(items.ids[i], reason) for i, reason in broken.items())
    return replace(items.subset(readable), skipped=skipped)


def path_levels(
    paths: Sequence[str], levels: Sequence[str], skip: int = 0
) -> tuple[dict[str, np.ndarray], dict[str, tuple[str, ...]]]:
    """Labels and class names of each level, from the folders of the paths below the first `skip`."""
    labels, names = {}, {}
    for depth, level in enumerate(levels, start=1):
        labels[level], names[level] = numbered(["/".join(path.split("/")[skip:-1][:depth]) for path in paths])
    return labels, names


def numbered(texts: Sequence[str], order: Sequence[str] | None = None) -> tuple[np.ndarray, tuple[str, ...]]:
    """The number of each text `(N,)` int64, and the texts that occur, sorted or as in `order`."""
    there = set(texts)
    names = tuple(sorted(there)) if order is None else tuple(name for name in order if name in there)
    number = {name: i for i, name in enumerate(names)}
    return np.array([number[text] for text in texts], np.int64), names


def _where(listing: Listing, position: int) -> str:
    return listing.ids[position] if listing.where is None else f"{listing.ids[position]}, {listing.where(position)}"


def check_there(listing: Listing, published: str | None = None) -> None:
    """ValueError, one sentence, for lists whose images are not there at all.

    Args:
        published: where they are published, if they are.
    """
    count = len(listing.sources)
    some = [listing.sources[i] for i in range(0, count, max(1, count // 20))]
    if all(isinstance(source, Path) and not source.exists() for source in some):
        raise ValueError(
            f"the images of {listing.name} must lie where its list names them: of {len(listing.ids)}, such as "
            f"{some[0]}, none was found; get the images too{f' from {published}' if published else ''}, or correct the "
            "folder: of a table, --data-root of init and data.root in settings."
        )


def _check_different(listing: Listing) -> None:
    if len(set(listing.ids)) < len(listing.ids):
        first: dict[str, int] = {}
        twice = next(i for i, id in enumerate(listing.ids) if first.setdefault(id, i) != i)
        raise ValueError(
            f"each image of {listing.location} must be listed once: {listing.ids[twice]!r} is listed twice, as items "
            f"{first[listing.ids[twice]]} and {twice} (counted from 0); remove one."
        )
