"""Settings of pairs: a table or a folder, its sides, and how it is divided."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from trivet.datasets.config import Channels, DataConfig, ItemKind
from trivet.datasets.config import Side as PixelSide
from trivet.io.image_file import Frame
from trivet.io.read_embeddings import TEXT
from trivet.models.towers import SIDES

LEVEL = "pair"


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
