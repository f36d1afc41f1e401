"""Images held in memory, and images decoded from their files when they are needed."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from trivet.datasets.dataset import RowInputs
from trivet.datasets.image_decoding import Decoders, Progress, decode_files
from trivet.datasets.preview import to_thumbnail
from trivet.io.image_file import Frame, Region, Source, decode_image

# What becomes of the image `(C, H', W')` at a position of a batch, as it is stored: `(C, H, W)`.
Change = Callable[[int, np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Crops:
    """A change that takes a part of each image of a batch; what is decoded for it can be cut while it is decoded."""

    crops: Sequence[Region]

    def __call__(self, position: int, image: np.ndarray) -> np.ndarray:
        top, left, height, width = self.crops[position]
        return image[:, top : top + height, left : left + width]


@dataclass(frozen=True, eq=False)
class ArrayInputs(RowInputs):
    """Images in memory.

    Attributes:
        pixels: `(M, C, H', W')`, shared by all subsets.
        white: the pixel value that becomes 1.
        channels: C, or 3 where C is 1: the grey image is repeated.
        rows: `(N,)` the rows of `pixels` that these inputs are.
        size: H and W, what a batch has of the centre of each image.
    """

    pixels: np.ndarray
    white: float
    channels: int
    rows: np.ndarray
    size: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.channels, *self.size)

    @property
    def stored_shape(self) -> tuple[int, int]:
        """H' and W', with the edges that a batch lacks."""
        return self.pixels.shape[2], self.pixels.shape[3]

    def batch(self, index: np.ndarray) -> Tensor:
        pixels = _centre(self.size, self.pixels[self.rows[index]])
        images = torch.from_numpy(pixels if self._in_bytes else pixels.astype(np.float32))
        return (images if self._in_bytes else images / self.white).expand(-1, self.channels, -1, -1).contiguous()

    def changed(self, index: np.ndarray, change: Change, mirrored: Sequence[bool]) -> Tensor:
        """Images `(B, C, H, W)`, each made from the one that is stored: bytes, or float32 in [0, 1].

        Args:
            mirrored: which of the B are mirrored.
        """
        kind = np.uint8 if self._in_bytes else np.float32
        images = ChangedImages((len(index), *self.shape), change, mirrored, kind, like=self.pixels)
        for position, row in enumerate(self.rows[index].tolist()):
            images[position] = self.pixels[row].astype(kind, copy=False)
        return torch.from_numpy(images.made) if self._in_bytes else torch.from_numpy(images.made) / self.white

    @property
    def _in_bytes(self) -> bool:
        return self.pixels.dtype == np.uint8 and self.white == 255

    def show(self, index: int) -> Image.Image:
        pixels = _centre(self.size, self.pixels[self.rows[index]])
        return to_thumbnail((pixels * (255 / self.white)).round().astype(np.uint8))


def in_memory(
    pixels: np.ndarray, *, white: float = 255, channels: int | None = None, size: tuple[int, int] | None = None
) -> ArrayInputs:
    """All rows of `pixels (N, C, H, W)` as inputs, `white` as 1.

    Args:
        channels: C if None.
        size: of the centre that a batch has; H and W if None.
    """
    return ArrayInputs(pixels, white, channels or pixels.shape[1], np.arange(len(pixels)), size or pixels.shape[2:])


@dataclass(frozen=True, eq=False)
class FileInputs(RowInputs):
    """Images decoded anew for each batch, with threads, or kept at their own sizes.

    Attributes:
        sources: M files, shared by all subsets.
        frame: how they are brought to one size.
        rows: `(N,)` the sources that these inputs are.
        boxes: `(M, 4)`, what each image is cut to; see `decode_image`.
        full_size: whether images keep what a square or rectangle of the frame cuts off, for crops that change.
        decoded: M images in memory, if there is room for them; only where they are whole.
    """

    sources: Sequence[Source]
    frame: Frame
    rows: np.ndarray
    boxes: np.ndarray | None = None
    full_size: bool = False
    decoded: Sequence[np.ndarray | None] | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return self.frame.shape

    @property
    def stored_shape(self) -> tuple[int, int]:
        """H' and W', with the edges that a batch lacks; whole images have more."""
        return self.frame.cover

    def batch(self, index: np.ndarray) -> Tensor:
        with Decoders() as decoders:
            return self.begin_batch(index, decoders)()

    def begin_batch(self, index: np.ndarray, decoders: Decoders) -> Callable[[], Tensor]:
        """Begin what `batch` does; what comes back waits for its end."""
        finish = self.begin(index, self._centres(len(index)), [False] * len(index), decoders)
        return lambda: finish().contiguous()

    def begin(
        self, index: np.ndarray, change: Change, mirrored: Sequence[bool], decoders: Decoders
    ) -> Callable[[], Tensor]:
        """Begin to decode images, each of which is changed by the thread that decodes it.

        What comes back waits for the last one, and gives `(B, C, H, W)` of bytes.

        Args:
            mirrored: which of the B are mirrored.
        """
        rows = self.rows[index].tolist()
        images = ChangedImages((len(index), *self.shape), change, mirrored)
        if self.decoded is not None:
            for position, row in enumerate(rows):
                image = self.decoded[row]
                assert image is not None
                images[position] = image
            return lambda: torch.from_numpy(images.made)
        if isinstance(change, Crops) and not self.full_size:
            finish = decoders.begin(
                range(len(rows)), lambda i: self._decode(rows[i], change.crops[i], mirrored[i]), images.made
            )
        else:
            finish = decoders.begin(range(len(rows)), lambda i: self._decode(rows[i]), images)

        def finished() -> Tensor:
            for position, reason in finish().items():
                raise ValueError(
                    f"{self.sources[rows[position]]} could be decoded when the run began and no longer can "
                    f"({reason}); restore the file and resume the run."
                )
            return torch.from_numpy(images.made)

        return finished

    def _decode(self, row: int, region: Region | None = None, mirror: bool = False) -> np.ndarray:
        return decode_image(
            self.sources[row],
            size=self.frame.cover,
            channels=self.frame.channels,
            box=None if self.boxes is None else self.boxes[row],
            overflow=self.full_size,
            region=region,
            mirror=mirror,
        )

    def _centres(self, count: int) -> Change:
        if self.full_size:
            return lambda _, image: _centre(self.frame.size, image)
        (high, wide), (height, width) = self.frame.cover, self.frame.size
        return Crops([Region((high - height) // 2, (wide - width) // 2, height, width)] * count)

    def show(self, index: int) -> Image.Image:
        return to_thumbnail(self.batch(np.array([index]))[0].numpy())

    def decode_all(
        self, memory_gb: float, progress: Progress | None
    ) -> tuple[ArrayInputs | FileInputs, dict[int, str]]:
        """All of these inputs, in memory if there is room for them, and why some cannot be decoded, by position."""
        room, rows = memory_gb * 1e9, self.rows.tolist()
        shape = (len(rows), self.frame.channels, *self.frame.cover)
        images: _BoundedImages | np.ndarray | None = None
        if self.full_size:
            images = _BoundedImages(len(rows), room)
        elif math.prod(shape) <= room:
            images = _empty_images(shape, np.uint8)
        broken = decode_files(len(rows), lambda i: self._decode(rows[i]), images, progress)
        if isinstance(images, _BoundedImages):
            return (self if images.full else replace(self, rows=np.arange(len(rows)), decoded=list(images))), broken
        return self if images is None else in_memory(images, size=self.frame.size), broken


class _BoundedImages(list["np.ndarray | None"]):
    """Images by position, until they take more than `room` bytes; then none is kept."""

    def __init__(self, count: int, room: float) -> None:
        super().__init__([None] * count)
        self._left = room
        self._lock = threading.Lock()  # files are decoded by threads
        self.full = False

    def __setitem__(self, position: Any, image: Any) -> None:
        with self._lock:
            self._left -= image.nbytes
            if self._left < 0 and not self.full:
                self.full = True
                self.clear()
            if not self.full:
                super().__setitem__(position, image)


class ChangedImages:
    """Images `made (B, C, H, W)` that are changed as they come, and then mirrored if they are to be."""

    def __init__(
        self,
        shape: tuple[int, ...],
        change: Change,
        mirrored: Sequence[bool],
        dtype: type[np.generic] = np.uint8,
        *,
        like: np.ndarray | None = None,
    ) -> None:
        self.change, self.mirrored, self.made = change, mirrored, _empty_images(shape, dtype, like=like)

    def __setitem__(self, position: int, image: np.ndarray, /) -> None:
        changed, target = self.change(position, image), self.made[position]
        if not self.mirrored[position]:
            target[...] = changed
            return
        # One channel after the other: in a third of the time that numpy takes for all at once.
        for channel, to in zip(np.broadcast_to(changed, target.shape), target, strict=True):
            to[...] = channel[:, ::-1]


def _empty_images(shape: tuple[int, ...], dtype: type[np.generic], *, like: np.ndarray | None = None) -> np.ndarray:
    """Room for images `(N, C, H, W)`: the colours of a pixel lie side by side, as in a decoded image and in `like`.

    Copied into another order, an image takes ten times as long.
    """
    if like is not None and like.strides[1] >= like.strides[3]:
        return np.empty(shape, dtype)
    count, channels, height, width = shape
    return np.empty((count, height, width, channels), dtype).transpose(0, 3, 1, 2)


def _centre(size: tuple[int, ...], images: np.ndarray) -> np.ndarray:
    """The centre `(..., H, W)` of images `(..., H', W')`."""
    height, width = size
    top, left = (images.shape[-2] - height) // 2, (images.shape[-1] - width) // 2
    return images[..., top : top + height, left : left + width]


def image_file(path: Source, frame: Frame) -> FileInputs:
    """One image file, or picture, as an input; ValueError if it cannot be decoded."""
    inputs = FileInputs([path], frame, np.arange(1))
    broken = inputs.decode_all(0, None)[1]
    if broken:
        raise ValueError(f"{path} must be an image that can be read: it cannot ({broken[0]}); repair or convert it.")
    return inputs
