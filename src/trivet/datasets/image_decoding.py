"""Many image files decoded at once, with threads, each by `pictures.decode_image`."""

from __future__ import annotations

import os
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import ExitStack
from functools import cached_property
from typing import Protocol, Self

import numpy as np
from PIL import Image

from trivet.io.image_file import FORMATS, Frame, Region, Source, decode_image, open_image

__all__ = [
    "FORMATS",
    "Decoded",
    "Decoders",
    "Frame",
    "Progress",
    "Region",
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


class Decoders:
    """Threads that decode image files: those of one call after the other, without a pause between two.

    In a with statement, which ends them, each after the file in hand. From the first call on, until then, the process
    has Pillow's warnings ignored, and that of an image of too many pixels raised.
    """

    def __init__(self) -> None:
        self._closing = ExitStack()
        self._unfinished: list[Iterator[int]] = []  # what is left of each call: one that is at its end is drained

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for left in self._unfinished:
            deque(left, 0)
        self._closing.close()

    @cached_property
    def _threads(self) -> ThreadPoolExecutor:
        self._closing.enter_context(warnings.catch_warnings())
        warnings.filterwarnings("ignore", module=r"PIL\.")
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        return self._closing.enter_context(ThreadPoolExecutor(THREADS))

    def begin(
        self,
        sources: Sequence[Source],
        *,
        size: int | tuple[int, int],
        channels: int,
        into: Decoded | None,
        boxes: np.ndarray | None = None,
        full_size: bool = False,
        crops: Sequence[Region] | None = None,
        mirrored: Sequence[bool] | None = None,
        among: range | None = None,
    ) -> Callable[[], dict[int, str]]:
        """Begin to decode files as `decode_files` does; what comes back waits for the end, and has what it returns.

        Args:
            among: the positions of those that are decoded; None for all.
        """

        def decode(position: int) -> str | None:
            try:
                pixels = decode_image(
                    sources[position],
                    size=size,
                    channels=channels,
                    box=None if boxes is None else boxes[position],
                    overflow=full_size,
                    region=None if crops is None else crops[position],
                    mirror=mirrored is not None and mirrored[position],
                )
            except (Image.DecompressionBombWarning, Image.DecompressionBombError):
                return f"more than {Image.MAX_IMAGE_PIXELS:,} pixels"
            except FileNotFoundError:  # whose words name the file once more
                return "no such file"
            except Exception as error:  # Pillow's readers raise many kinds on broken files
                return f"{type(error).__name__}: {error}"
            if into is not None:
                into[position] = pixels
            return None

        def decode_some() -> dict[int, str]:
            """Decode one file after the other until none is left; return why some cannot be decoded, by position."""
            return {position: reason for position in left if (reason := decode(position)) is not None}

        def finish() -> dict[int, str]:
            try:
                wait(tasks, return_when=FIRST_EXCEPTION)
            finally:  # at an error or an interruption, threads end after the file in hand
                deque(left, 0)
                self._unfinished.remove(left)
            broken: dict[int, str] = {}
            for task in tasks:
                broken.update(task.result())
            return dict(sorted(broken.items()))

        left = iter(range(len(sources)) if among is None else among)  # of all threads: a task for each file takes long
        threads = self._threads
        self._unfinished.append(left)
        tasks = [threads.submit(decode_some) for _ in range(THREADS)]
        return finish


def decode_files(
    sources: Sequence[Source],
    *,
    size: int | tuple[int, int],
    channels: int,
    into: Decoded | None,
    boxes: np.ndarray | None = None,
    full_size: bool = False,
    progress: Progress | None = None,
) -> dict[int, str]:
    """Decode every file with threads, file i into `into[i]`, as `(channels, H, W)` uint8.

    Args:
        into: takes the images; None only looks whether they can be decoded.
        boxes: `(N, 4)`; see `decode_image`, also for `size` and `full_size`.

    Returns:
        Position -> why that file could not be decoded; its row of `into` is undefined. A file of more pixels than
        Pillow thinks safe is one of these.
    """
    broken: dict[int, str] = {}
    with Decoders() as decoders:
        for start in range(0, len(sources), CHUNK):
            chunk = range(start, min(start + CHUNK, len(sources)))
            broken |= decoders.begin(
                sources, size=size, channels=channels, into=into, boxes=boxes, full_size=full_size, among=chunk
            )()
            if progress is not None:
                progress(chunk.stop, len(sources))
    return broken


def to_thumbnail(pixels: np.ndarray) -> Image.Image:
    """An image of at most 64 pixels a side from `(C, H, W)` uint8, C being 1 or 3."""
    image = Image.fromarray(pixels[0] if len(pixels) == 1 else np.ascontiguousarray(pixels.transpose(1, 2, 0)))
    image.thumbnail((64, 64))
    return image
