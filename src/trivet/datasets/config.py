"""Settings shared by all data sets, and how a data set registers its own."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from trivet.config.base import NamedConfig
from trivet.config.registry import Registry
from trivet.datasets.dataset import (
    DISJOINT,
    Splits,
    check_disjoint,
    check_evaluable,
    check_trainable,
    choose_level,
)
from trivet.datasets.holdout import HoldoutUnit, hold_out_fold, holdout_unit
from trivet.datasets.image_decoding import Progress
from trivet.datasets.label_noise import NoiseConfig, superclass
from trivet.io.image_file import Frame

Side = Annotated[int, Field(ge=2, le=4096, description="Side of the square images in pixels.")]
Channels = Annotated[Literal[1, 3], Field(description="1 is grey, 3 is RGB; a grey image is repeated to give 3.")]


ItemKind = Literal["images", "texts", "vectors", "images and texts"]  # the last of pairs, a side each


class DatasetEntry(NamedTuple):
    """A data set.

    Attributes:
        config: its settings.
        load: settings, the folder of data sets and what is called with progress -> the data; see `catalogue.load`.
        description: what it holds, in a few words.
        levels: its label levels, coarse first; empty where the data decide.
        published: where it comes from and under which licence; empty for data of one's own.
        folders: what its folder below that of the data sets may be called.
        counts: version -> subset -> images and classes as they were published, where these are checked; the version ""
            is the only one, the subset "" the whole set.
        files: the files it needs, in a folder of its name.
        unencoded: settings -> the data of texts before they are encoded, vectors `(M, 0)`, and the M texts; else None.
        fetch: downloads into a folder and returns where the files lie; None where Trivet cannot.
    """

    config: type[DataConfig]
    load: Callable[[Any, Path, Progress | None], Splits]
    description: str
    levels: tuple[str, ...] = ()
    published: str = ""
    folders: tuple[str, ...] = ()
    counts: Mapping[str, Mapping[str, tuple[int, int]]] = MappingProxyType({})
    files: tuple[str, ...] = ()
    unencoded: Callable[[Any], tuple[Splits, list[str]]] | None = None
    fetch: Callable[[Path], Path] | None = None


DATA_SETS: Registry[DatasetEntry] = Registry("data set")  # `catalogue` fills it


class DataConfig(NamedConfig):
    """Settings of a data set: which labelled items are trained on and evaluated, and how they are prepared.

    `DataConfig.parse` gives the settings of the data set that `name` names; each has a class of its own.

    Args:
        name: a data set of docs/data.md: "folder" or "table" for images of yours, "vectors", "texts" or
            "pairs", "python:FILE.py:NAME" for code.
        level: the label level trained on, where it is not the coarsest or, of a published set, that of its papers.
        augment: random cuts of training images, against learning them by heart; see docs/data.md for each.
        jitter: brightness, contrast and saturation vary by a factor up to 1 + jitter, where light differs.
        erase: share of training images with a random rectangle of noise, where things are partly hidden.
        folds: parts of the training data, of which one is held out to choose and compare by; 0 for none.
        folds_of: "classes" for parts that share none, of pairs no group; "items" of every class, of pairs queries,
            where those that are evaluated are of trained ones.
        fold: which fold is held out, from 0, to repeat a run on others.
        noise: artificial label noise; a separate section, [data.noise].
        decisions: a csv file of trivet audit with labels to change or items to drop, as trivet train --labels sets it.
    """

    name: str
    level: str | None = None
    augment: Literal["none", "flip", "crop-flip", "pad-crop", "random-resized-crop"] = "none"
    jitter: float = Field(0.0, ge=0, lt=1)
    erase: float = Field(0.0, ge=0, le=1)
    folds: int | None = Field(None, ge=0, le=10_000)
    folds_of: HoldoutUnit = "classes"
    fold: int = Field(0, ge=0)
    noise: NoiseConfig | None = None
    decisions: Path | None = None

    mirrored: ClassVar[bool] = False  # whether an image and its mirror image are of one class

    @classmethod
    def names(cls) -> Collection[str]:
        """The names of the data sets of Trivet."""
        return DATA_SETS

    @classmethod
    def named(cls, name: str) -> type[DataConfig] | None:
        """The settings of a data set."""
        entry = DATA_SETS.find(name)
        return None if entry is None else entry.config

    @property
    def label_levels(self) -> tuple[str, ...] | None:
        """The label levels, coarse first, where they are known before the data are read."""
        return DATA_SETS.entry(self.name).levels or None

    @property
    def item_kind(self) -> ItemKind:
        """The kind of the items."""
        return "vectors"

    @property
    def side_kinds(self) -> tuple[ItemKind, ItemKind] | None:
        """The kinds of the items of both sides; None where items have none."""
        return None

    @property
    def separate(self) -> bool:
        """True if each side gets a network of its own where the settings name one."""
        return False

    @property
    def input_shape(self) -> tuple[int, ...] | None:
        """The shape of an input, where it is known before the data are read."""
        return None

    @property
    def text_column(self) -> str | None:
        """The column of a data set that holds the text of each item, if there is one."""
        return None

    def frame(self, shape: tuple[int, ...]) -> Frame:
        """The resizing of images of other files to a shape (C, H, W) that a network takes, as these are.

        Raises:
            ValueError: if inputs of that shape are no images.
        """
        return Frame.of(shape)

    def path_of(self, id: str) -> Path | None:
        """The file of an item, if each is one."""
        return None

    @model_validator(mode="before")
    @classmethod
    def _refuse_foreign(cls, values: Any) -> Any:
        """Refuse a setting of other data sets, by the names of those that have it."""
        for key in values.keys() - cls.model_fields if isinstance(values, dict) else ():
            owners = [name for name, entry in DATA_SETS.items() if key in entry.config.model_fields]
            if owners:
                names = " or ".join(f'"{name}"' for name in sorted(owners, key="folder".__ne__)[:3])
                names += ", for instance," if len(owners) > 3 else ""
                raise ValueError(f"{key} is for name = {names} only: remove it for {values.get('name')}.")
        return values

    @property
    def changes_images(self) -> bool:
        """True if training images are changed at random."""
        return self.augment != "none" or self.jitter > 0 or self.erase > 0

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.augment == "flip" and not self.mirrored:
            raise ValueError(
                f'augment = "flip" mirrors photographs: {self.name} has none; use crop-flip, which then shifts only.'
            )
        if self.folds == 1:
            raise ValueError("folds must be at least 2, one of which is held out, or 0 to hold none out: got 1.")
        if self.fold >= (self.folds or 1):
            raise ValueError(f"fold must be below folds, {self.folds or 'which is not set'}: got {self.fold}.")
        levels = self.label_levels
        if levels is not None:
            try:
                level = choose_level(self.level, levels)
                if self.noise is not None and self.noise.superclass is not None:
                    superclass(self.noise.superclass, levels, level)
            except ValueError as error:
                raise ValueError(str(error).removeprefix("data.")) from None  # the path is said already
        return self


class ImagesConfig(DataConfig):
    """Settings of a data set of square images."""

    image_size: Side
    channels: Channels

    @property
    def item_kind(self) -> ItemKind:
        """The kind of the items."""
        return "images"

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape (C, H, W) of an image."""
        return (self.channels, self.image_size, self.image_size)


def with_validation_fold(splits: Splits, config: DataConfig) -> Splits:
    """The splits with the fold that is held out, if there is one.

    Raises:
        ValueError: if they cannot be trained on or evaluated.
    """
    of: HoldoutUnit = config.folds_of
    if config.folds:
        of = holdout_unit(splits.train, splits.level, of)
        if of != config.folds_of and splits.level in splits.train.numbers:
            note = "Pairs connect most of the training queries, so the folds are of queries, not of groups."
            splits = replace(splits, warnings=(*splits.warnings, note))
        splits = hold_out_fold(splits, config.folds, config.fold, of)
    check_trainable(splits.train, splits.level)
    check_evaluable(splits.evaluation)
    check_disjoint(splits, ("unseen",) if of == "items" else DISJOINT)
    return splits
