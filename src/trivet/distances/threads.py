"""Threads of torch: blocks of rows shared among them, and a single one for what is short."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

import torch

MOST_ALONE = 2**21  # numbers of an operation whose sharing gains less than it costs where a thread has to be waited for
LEAST_SHARED = 2**27  # multiplications of a product that gains more by sharing than it may have to wait

_outside = ContextVar("_outside", default=1)  # threads of torch outside the `single_thread` that this is in
Block = TypeVar("Block")
Result = TypeVar("Result")


def share(blocks: Sequence[Block], work: Callable[[Block], Result], take: Callable[[Block, Result], None]) -> None:
    """Call `take` with each block and what `work` makes of it, in order; `work` runs in as many threads as torch has.

    Each thread works alone, on memory that stays in its cache: faster than all threads on one block. Meanwhile torch
    runs on one thread everywhere, so this is no generator: the number is as before whenever it has returned or raised.
    """
    threads = torch.get_num_threads()
    try:
        if min(threads, len(blocks)) > 1:
            with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
                try:
                    for block, result in zip(blocks, pool.map(work, blocks), strict=True):
                        take(block, result)
                finally:
                    pool.shutdown(cancel_futures=True)
        else:  # a thread takes longer to start than a small block to work on
            torch.set_num_threads(1)
            for block in blocks:
                take(block, work(block))
    finally:
        torch.set_num_threads(threads)  # the number is that of the process too, for threads to come


@contextmanager
def single_thread(numbers: int) -> Iterator[None]:
    """A context in which torch works on one thread, if its operations take so few `numbers` at once.

    An operation on several threads ends when the last of them has. On a machine that is busy with other things, such as
    the workers that load data, one of them is often not running, and hundreds of short operations wait for it each
    time, many times as long as they take.
    """
    threads = 1 if torch.compiler.is_compiling() or numbers > MOST_ALONE else torch.get_num_threads()
    if threads == 1:
        yield
        return
    torch.set_num_threads(1)
    outside = _outside.set(threads)
    try:
        yield
    finally:
        _outside.reset(outside)
        torch.set_num_threads(threads)


@contextmanager
def shared_product(multiplications: int) -> Iterator[None]:
    """A context, within `single_thread`, in which torch works on all threads for a product of so many multiplications.

    If they take long: milliseconds, of which a wait for another thread is a part.
    """
    threads = 1 if torch.compiler.is_compiling() or multiplications < LEAST_SHARED else _outside.get()
    if threads == 1:
        yield
        return
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(1)
