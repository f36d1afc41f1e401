"""Images held in memory, and images decoded from their files when they are needed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from trivet.data.images import Progress, Source, decode_files, to_thumbnail


@dataclass(frozen=True, eq=False)
class ArrayInputs:
    """Images in memory.

    Attributes:
        pixels: `(M, C, H, W)`, shared by all subsets.
        white: the pixel value that becomes 1.
        channels: C, or 3 where C is 1: the grey image is repeated.
        rows: `(N,)` the rows of `pixels` that these inputs are.
    """

    pixels: np.ndarray
    white: float
    channels: int
    rows: np.ndarray

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.channels, *self.pixels.shape[2:])

    def __len__(self) -> int:
        return len(self.rows)

    def batch(self, index: np.ndarray) -> Tensor:
        images = torch.from_numpy(self.pixels[self.rows[index]].astype(np.float32)) / self.white
        return images.expand(-1, self.channels, -1, -1).contiguous()

    def show(self, index: int) -> Image.Image:
        return to_thumbnail((self.pixels[self.rows[index]] * (255 / self.white)).round().astype(np.uint8))

    def subset(self, index: np.ndarray) -> ArrayInputs:
        return replace(self, rows=self.rows[index])


def in_memory(pixels: np.ndarray, *, white: float = 255, channels: int | None = None) -> ArrayInputs:
    """All rows of `pixels (N, C, H, W)` as inputs, `white` as 1, with C channels if `channels` is None."""
    return ArrayInputs(pixels, white, channels or pixels.shape[1], np.arange(len(pixels)))


@dataclass(frozen=True, eq=False)
class FileInputs:
    """Images decoded anew for each batch, with threads: for data that do not fit in memory.

    Attributes:
        sources: M files, shared by all subsets.
        rows: `(N,)` the sources that these inputs are.
        boxes: `(M, 4)`, what each image is cut to; see `decode_image`.
    """

    sources: Sequence[Source]
    size: int
    channels: int
    rows: np.ndarray
    boxes: np.ndarray | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.channels, self.size, self.size)

    def __len__(self) -> int:
        return len(self.rows)

    def batch(self, index: np.ndarray) -> Tensor:
        return torch.from_numpy(self._decode(index)).float() / 255

    def show(self, index: int) -> Image.Image:
        return to_thumbnail(self._decode(np.array([index]))[0])

    def subset(self, index: np.ndarray) -> FileInputs:
        return replace(self, rows=self.rows[index])

    def decode_all(
        self, memory_gb: float, progress: Progress | None
    ) -> tuple[ArrayInputs | FileInputs, dict[int, str]]:
        """All of these inputs, in memory if there is room for them, and why some cannot be decoded, by position."""
        shape = (len(self), *self.shape)
        pixels = None if math.prod(shape) > memory_gb * 1e9 else np.empty(shape, np.uint8)
        broken = self._decode_into(np.arange(len(self)), pixels, progress)
        return self if pixels is None else in_memory(pixels), broken

    def _decode(self, index: np.ndarray) -> np.ndarray:
        pixels = np.empty((len(index), *self.shape), np.uint8)
        for position, reason in self._decode_into(index, pixels, None).items():
            raise ValueError(
                f"{self.sources[self.rows[index[position]]]} could be decoded when the run began and no longer can "
                f"({reason}); restore the file and resume the run."
            )
        return pixels

    def _decode_into(self, index: np.ndarray, pixels: np.ndarray | None, progress: Progress | None) -> dict[int, str]:
        rows = self.rows[index]
        return decode_files(
            [self.sources[row] for row in rows.tolist()],
            size=self.size,
            channels=self.channels,
            into=pixels,
            boxes=None if self.boxes is None else self.boxes[rows],
            progress=progress,
        )


def image_file(path: Path, shape: tuple[int, ...]) -> FileInputs:
    """One image file as an input of that shape.

    Raises:
        ValueError: if it cannot be decoded, or inputs of that shape are no images.
    """
    size, channels = check_square(shape)
    broken = decode_files([path], size=size, channels=channels, into=None)
    if broken:
        raise ValueError(f"{path} must be an image that can be read: it cannot ({broken[0]}); repair or convert it.")
    return FileInputs([path], size, channels, np.arange(1))


def check_square(shape: tuple[int, ...]) -> tuple[int, int]:
    """Side and channels of square images of a shape (C, H, H); ValueError for other inputs."""
    if len(shape) != 3 or shape[1] != shape[2]:
        raise ValueError(f"this network needs inputs of shape {shape}, not square images; use data of that shape.")
    return shape[1], shape[0]


def average_pool(images: np.ndarray, size: int) -> np.ndarray:
    """Means of equal square patches: `(N, 1, size, size)` from `(N, H, H)` uint8; the same values if H is `size`."""
    patch = images.shape[1] // size
    if patch == 1:
        return images[:, None]
    patches = images.reshape(len(images), size, patch, size, patch)
    return np.asarray(patches.mean(axis=(2, 4), dtype=np.float32))[:, None]
