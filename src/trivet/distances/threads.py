"""Blocks of rows shared among torch's threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

Block = TypeVar("Block")
Result = TypeVar("Result")


def share(blocks: Sequence[Block], work: Callable[[Block], Result], take: Callable[[Block, Result], None]) -> None:
    """Call `take` with each block and what `work` makes of it, in order; `work` runs in as many threads as torch has.

    Each thread works alone, on memory that stays in its cache: faster than all threads on one block. Meanwhile torch
    runs on one thread everywhere, so this is no generator: the number is as before whenever it has returned or raised.
    """
    threads = torch.get_num_threads()
    with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        try:
            for block, result in zip(blocks, pool.map(work, blocks), strict=True):
                take(block, result)
        finally:
            pool.shutdown(cancel_futures=True)
            torch.set_num_threads(threads)  # the number is that of the process too, for threads to come
