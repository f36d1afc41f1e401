"""Decoding image files into square arrays of bytes."""

from __future__ import annotations

import io
import math
import os
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

import numpy as np
from PIL import Image, ImageOps


class Packed(Protocol):
    """A file in a larger one."""

    def read(self) -> bytes: ...


Source = Path | Packed | np.ndarray  # a file, or pixels (H, W) or (H, W, 3) uint8 of a set that is published as arrays
Progress = Callable[[int, int], None]

THREADS = min(16, os.cpu_count() or 1)
CHUNK = 512  # files queued at once: an interrupted run waits for these only


def decode_image(source: Source, *, size: int, channels: int, box: np.ndarray | None = None) -> np.ndarray:
    """One image as `(channels, size, size)` uint8: turned upright, shorter side resized to `size`, centre cropped.

    The first frame of an animation; transparent parts on white; 16-bit grey keeps its upper eight bits.

    Args:
        box: left, upper, right and lower edge in pixels of the file, `(4,)`: what the image is cut to first, as far as
            it lies within.

    Raises:
        Exception: whatever Pillow finds wrong with the file.
    """
    with _opened(source) as opened:
        width, height = opened.size
        across, down = (width, height) if box is None else (box[2] - box[0], box[3] - box[1])
        if across > 0 and down > 0:  # JPEG only: decode at about the size that is needed
            opened.draft("RGB", (int(2 * size * width / across), int(2 * size * height / down)))
        image: Image.Image = opened
        if box is not None:
            image = image.crop(_within(box * np.tile([image.width / width, image.height / height], 2), image.size))
        image = ImageOps.exif_transpose(image)
        if image.mode.startswith("I;16"):
            image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
        elif image.mode in ("I", "F"):
            raise ValueError("32-bit pixels have no fixed range; save it as 8-bit")
        elif "A" in image.getbands() or "transparency" in image.info:
            image = image.convert("RGBA")
            image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
        image = image.convert("L" if channels == 1 else "RGB")
        image = ImageOps.fit(image, (size, size), method=Image.Resampling.BICUBIC)
        return np.asarray(image).reshape(size, size, channels).transpose(2, 0, 1)


def _opened(source: Source) -> Image.Image:
    if isinstance(source, np.ndarray):
        return Image.fromarray(source)
    return Image.open(source if isinstance(source, Path) else io.BytesIO(source.read()))


def _within(box: np.ndarray, size: tuple[int, int]) -> tuple[int, int, int, int]:
    """A box in whole pixels that lies within an image."""
    left, upper = (int(max(0, math.floor(edge))) for edge in box[:2])
    right, lower = (int(min(side, math.ceil(edge))) for edge, side in zip(box[2:], size, strict=True))
    if left >= right or upper >= lower:
        raise ValueError(f"the box {[round(float(edge), 1) for edge in box]} holds no pixel of the image")
    return left, upper, right, lower


def decode_files(
    sources: Sequence[Source],
    *,
    size: int,
    channels: int,
    into: np.ndarray | None,
    boxes: np.ndarray | None = None,
    progress: Progress | None = None,
) -> dict[int, str]:
    """Decode every file with threads, file i into `into[i]` if an array `(N, channels, size, size)` uint8 is given.

    Args:
        boxes: `(N, 4)`, see `decode_image`.

    Returns:
        Position -> why that file could not be decoded; its row of `into` is undefined. A file of more pixels than
        Pillow thinks safe is one of these.
    """

    def decode(position: int) -> str | None:
        try:
            box = None if boxes is None else boxes[position]
            pixels = decode_image(sources[position], size=size, channels=channels, box=box)
        except (Image.DecompressionBombWarning, Image.DecompressionBombError):
            return f"more than {Image.MAX_IMAGE_PIXELS:,} pixels"
        except Exception as error:  # Pillow's readers raise many kinds on broken files
            return f"{type(error).__name__}: {error}"
        if into is not None:
            into[position] = pixels
        return None

    broken: dict[int, str] = {}
    with warnings.catch_warnings(), ThreadPoolExecutor(THREADS) as pool:
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        for start in range(0, len(sources), CHUNK):
            chunk = range(start, min(start + CHUNK, len(sources)))
            broken.update((i, reason) for i, reason in zip(chunk, pool.map(decode, chunk), strict=True) if reason)
            if progress is not None:
                progress(chunk.stop, len(sources))
    return broken


def to_thumbnail(pixels: np.ndarray) -> Image.Image:
    """An image of at most 64 pixels a side from `(C, H, W)` uint8, C being 1 or 3."""
    image = Image.fromarray(pixels[0] if len(pixels) == 1 else np.ascontiguousarray(pixels.transpose(1, 2, 0)))
    image.thumbnail((64, 64))
    return image
