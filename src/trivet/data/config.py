"""Settings of the data."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from trivet.config import Config
from trivet.data.noise import NoiseConfig

FOLDER_ONLY = ("root", "levels", "split", "holdout", "seed", "allow_corrupt", "memory_gb")
RESERVED_LEVELS = ("id", "split", "embedding")  # the other columns of a table of embeddings


class DataConfig(Config):
    """Which labelled images are trained on and evaluated, and how they are prepared."""

    name: Literal["digits", "mnist", "fashion-mnist", "omniglot", "folder"] = Field(
        description='The data set; "folder" is your own images, one folder per class.'
    )
    level: str | None = Field(None, description="The label level trained on; the coarsest one if not given.")
    image_size: int | None = Field(
        None,
        ge=2,
        le=4096,
        description="Side of the square images in pixels. Default: 8 (digits), 28 (mnist, fashion-mnist, omniglot), "
        "64 (folder). digits, mnist and fashion-mnist are average-pooled, so it must divide 8 or 28.",
    )
    channels: Literal[1, 3] | None = Field(
        None, description="1 is grey, 3 is RGB. Default: 3 for folder, 1 otherwise; a grey image is repeated to give 3."
    )
    augment: Literal["none", "crop-flip"] = Field(
        "none",
        description="crop-flip: shift each training image by up to 1/8 of its side; folder images are also mirrored.",
    )
    folds: int | None = Field(
        None,
        ge=2,
        description="Validate inside the training classes: they are split into so many class-disjoint folds, one of "
        'which is not trained on but evaluated, as "validation".',
    )
    fold: int = Field(0, ge=0, description="Which of the folds is held out, from 0.")
    noise: NoiseConfig | None = Field(None, description="Wrong labels on purpose, a section of its own: [data.noise].")
    decisions: Path | None = Field(
        None,
        description="A csv file id,decision,label of training labels to keep, to change (relabel) or to leave out "
        "(drop), as trivet audit writes it; trivet train --labels FILE sets it.",
    )
    root: Path | None = Field(None, description="folder only: the folder of images, relative to the current folder.")
    levels: tuple[str, ...] | None = Field(
        None, description='folder only: names of the nested folder levels, coarse first, such as ["make", "model"].'
    )
    split: Literal["auto", "class-disjoint", "in-class"] = Field(
        "auto",
        description="folder only. class-disjoint: the first half of the classes in sorted order is trained on, the "
        "rest is unseen. in-class: a share of every class is held out. auto: train/ and test/ (or val/) folders as "
        "given, otherwise class-disjoint.",
    )
    holdout: float = Field(0.2, gt=0, lt=1, description='The share of every class held out by split = "in-class".')
    seed: int = Field(0, ge=0, description='Decides which images split = "in-class" holds out.')
    allow_corrupt: float = Field(
        0.01, ge=0, le=1, description="folder only: unreadable images are skipped; above this share the run stops."
    )
    memory_gb: float = Field(
        4, ge=0, description="folder only: decoded images stay in memory up to this size; else files are read again."
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.fold >= (self.folds or 1):
            raise ValueError(f"fold must be below folds, {self.folds or 'which is not set'}: got {self.fold}.")
        if self.name == "folder":
            if self.root is None:
                raise ValueError(
                    'name = "folder" needs root: set data.root to the folder that holds the class folders.'
                )
            if self.levels is not None and (len(set(self.levels)) != len(self.levels) or not all(self.levels)):
                raise ValueError(f"levels must be different, non-empty names: got {list(self.levels)}; rename them.")
            if clash := [name for name in self.levels or () if name in RESERVED_LEVELS]:
                raise ValueError(
                    f"levels must not be named {', '.join(RESERVED_LEVELS)}, which are columns of the embeddings: "
                    f"got {clash[0]!r}; rename it."
                )
            in_class = self.split == "in-class"
            unused = [key for key in ("holdout", "seed") if not in_class and self._is_set(key)]
            if unused:
                raise ValueError(f'{unused[0]} is used by split = "in-class" only: remove it, or set that split.')
        else:
            unused = [key for key in FOLDER_ONLY if self._is_set(key)]
            if unused:
                raise ValueError(f'{unused[0]} is for name = "folder" only: remove it for {self.name}.')
            side = {"digits": 8, "mnist": 28, "fashion-mnist": 28}.get(self.name)
            if side and self.image_size and side % self.image_size:
                raise ValueError(
                    f"image_size must divide {side} for {self.name}: got {self.image_size}; "
                    f"use one of {', '.join(str(size) for size in range(2, side + 1) if side % size == 0)}."
                )
        return self

    def _is_set(self, key: str) -> bool:
        return bool(getattr(self, key) != type(self).model_fields[key].default)
