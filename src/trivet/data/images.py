"""Many image files decoded at once, with threads, each by `pictures.decode_image`."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import Protocol

import numpy as np
from PIL import Image

from trivet.pictures import FORMATS, Frame, Source, decode_image, open_image

__all__ = [
    "FORMATS",
    "Decoded",
    "Frame",
    "Progress",
    "Source",
    "decode_files",
    "decode_image",
    "open_image",
    "to_thumbnail",
]

Progress = Callable[[int, int], None]


class Decoded(Protocol):
    """Takes decoded images, in any order and from several threads: an array, a list or the like."""

    def __setitem__(self, position: int, image: np.ndarray, /) -> None: ...


THREADS = min(16, os.cpu_count() or 1)
CHUNK = 512  # files between two words on the progress


def decode_files(
    sources: Sequence[Source],
    *,
    size: int | tuple[int, int],
    channels: int,
    into: Decoded | None,
    boxes: np.ndarray | None = None,
    whole: bool = False,
    mirrored: Sequence[bool] | None = None,
    progress: Progress | None = None,
) -> dict[int, str]:
    """Decode every file with threads, file i into `into[i]`, as `(channels, H, W)` uint8.

    Args:
        into: takes the images; None only looks whether they can be decoded.
        boxes: `(N, 4)`; see `decode_image`, also for `size` and `whole`.
        mirrored: which of the N are mirrored; None for none.

    Returns:
        Position -> why that file could not be decoded; its row of `into` is undefined. A file of more pixels than
        Pillow thinks safe is one of these.
    """

    def decode(position: int) -> str | None:
        try:
            box = None if boxes is None else boxes[position]
            mirror = mirrored is not None and mirrored[position]
            pixels = decode_image(sources[position], size=size, channels=channels, box=box, whole=whole, mirror=mirror)
        except (Image.DecompressionBombWarning, Image.DecompressionBombError):
            return f"more than {Image.MAX_IMAGE_PIXELS:,} pixels"
        except Exception as error:  # Pillow's readers raise many kinds on broken files
            return f"{type(error).__name__}: {error}"
        if into is not None:
            into[position] = pixels
        return None

    def decode_some(left: Iterator[int]) -> dict[int, str]:
        """Why files cannot be decoded, of those that this thread took: each takes the next, until none is left."""
        return {position: reason for position in left if (reason := decode(position)) is not None}

    broken: dict[int, str] = {}
    with warnings.catch_warnings(), ThreadPoolExecutor(THREADS) as pool:
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        for start in range(0, len(sources), CHUNK):
            chunk = range(start, min(start + CHUNK, len(sources)))
            left = iter(chunk)  # of all threads: a task for each file would take a fifth of the time of small ones
            tasks = [pool.submit(decode_some, left) for _ in range(THREADS)]
            try:
                wait(tasks, return_when=FIRST_EXCEPTION)
            finally:
                for _ in left:  # at an error or an interruption, threads end after the file in hand
                    pass
            for task in tasks:
                broken.update(task.result())
            if progress is not None:
                progress(chunk.stop, len(sources))
    return dict(sorted(broken.items()))


def to_thumbnail(pixels: np.ndarray) -> Image.Image:
    """An image of at most 64 pixels a side from `(C, H, W)` uint8, C being 1 or 3."""
    image = Image.fromarray(pixels[0] if len(pixels) == 1 else np.ascontiguousarray(pixels.transpose(1, 2, 0)))
    image.thumbnail((64, 64))
    return image
