"""Threads that decode many image files at once."""

from __future__ import annotations

import os
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import ExitStack
from functools import cached_property
from typing import Protocol, Self

import numpy as np
from PIL import Image

Progress = Callable[[int, int], None]
THREADS = min(16, os.cpu_count() or 1)
CHUNK = 512  # files between two words on the progress


class Decoded(Protocol):
    """Takes decoded images, in any order and from several threads: an array, a list or the like."""

    def __setitem__(self, position: int, image: np.ndarray, /) -> None: ...


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
        self, positions: Iterable[int], decode: Callable[[int], np.ndarray], into: Decoded | None
    ) -> Callable[[], dict[int, str]]:
        """Begin to decode the files at the positions; what comes back waits for the end.

        Args:
            into: takes the images; None only looks whether they can be decoded.

        Returns:
            What gives position -> why that file could not be decoded, whose place of `into` is undefined. A file of
            more pixels than Pillow thinks safe is one of these.
        """

        def try_decode(position: int) -> str | None:
            try:
                pixels = decode(position)
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
            return {position: reason for position in left if (reason := try_decode(position)) is not None}

        def finish() -> dict[int, str]:
            try:
                wait(tasks, return_when=FIRST_EXCEPTION)
            finally:  # at an error or an interruption, threads end after the file in hand
                deque(left, 0)
                self._unfinished.remove(left)
            return dict(sorted((position, reason) for task in tasks for position, reason in task.result().items()))

        left = iter(positions)  # of all threads: a task for each file takes long
        threads = self._threads
        self._unfinished.append(left)
        tasks = [threads.submit(decode_some) for _ in range(THREADS)]
        return finish


def decode_files(
    count: int, decode: Callable[[int], np.ndarray], into: Decoded | None, progress: Progress | None = None
) -> dict[int, str]:
    """Decode files 0 to `count` - 1 as `Decoders.begin` does, and return what it gives; progress is called."""
    broken: dict[int, str] = {}
    with Decoders() as decoders:
        for start in range(0, count, CHUNK):
            chunk = range(start, min(start + CHUNK, count))
            broken |= decoders.begin(chunk, decode, into)()
            if progress is not None:
                progress(chunk.stop, count)
    return broken
