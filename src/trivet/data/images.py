"""Decoding image files into square arrays of bytes."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO

import numpy as np
from PIL import Image, ImageOps

from trivet.documents import check_regular

Progress = Callable[[int, int], None]

THREADS = min(16, os.cpu_count() or 1)
FORMATS = ("JPEG", "PNG", "BMP", "WEBP", "GIF", "TIFF")  # those of the suffixes in `trivet.data.folder`
CHUNK = 512  # files queued at once: an interrupted run waits for these only


def open_image(source: Path | BinaryIO, formats: tuple[str, ...] = FORMATS) -> Image.Image:
    """An image file, opened but not decoded: every image that Trivet reads is opened here.

    Pillow knows many more formats, some of which start other programs (PostScript) or read other files; under whatever
    name a file comes, only these are tried.

    Raises:
        ValueError: if it is a device or a pipe.
        Exception: whatever Pillow finds wrong with the file.
    """
    if isinstance(source, Path):
        check_regular(source, "an image")
    return Image.open(source, formats=formats)


def decode_image(path: Path, *, size: int, channels: int) -> np.ndarray:
    """One image file as `(channels, size, size)` uint8: turned upright, shorter side resized to `size`, centre cropped.

    The first frame of an animation; transparent parts on white; 16-bit grey keeps its upper eight bits.

    Raises:
        Exception: whatever Pillow finds wrong with the file.
    """
    with open_image(path) as opened:
        opened.draft("RGB", (2 * size, 2 * size))  # JPEG only: decode at about the size that is needed
        image: Image.Image = ImageOps.exif_transpose(opened)
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


def decode_files(
    paths: Sequence[Path], *, size: int, channels: int, into: np.ndarray | None, progress: Progress | None = None
) -> dict[int, str]:
    """Decode every file with threads, file i into `into[i]` if an array `(N, channels, size, size)` uint8 is given.

    Returns:
        Position -> why that file could not be decoded; its row of `into` is undefined. A file of more pixels than
        Pillow thinks safe is one of these.
    """

    def decode(position: int) -> str | None:
        try:
            pixels = decode_image(paths[position], size=size, channels=channels)
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
        for start in range(0, len(paths), CHUNK):
            chunk = range(start, min(start + CHUNK, len(paths)))
            broken.update((i, reason) for i, reason in zip(chunk, pool.map(decode, chunk), strict=True) if reason)
            if progress is not None:
                progress(chunk.stop, len(paths))
    return broken


def to_thumbnail(pixels: np.ndarray) -> Image.Image:
    """An image of at most 64 pixels a side from `(C, H, W)` uint8, C being 1 or 3."""
    image = Image.fromarray(pixels[0] if len(pixels) == 1 else np.ascontiguousarray(pixels.transpose(1, 2, 0)))
    image.thumbnail((64, 64))
    return image
