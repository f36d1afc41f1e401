"""Blocks shared among threads: in order, each thread alone, and the number of threads as before."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from trivet.distances.threads import share


@pytest.fixture(autouse=True)
def two_threads():
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    with ThreadPoolExecutor(1) as pool:  # threads to come have the number of the process
        assert torch.get_num_threads() == pool.submit(torch.get_num_threads).result() == 2
    torch.set_num_threads(threads)


def test_results_come_in_order_from_two_threads_that_work_alone() -> None:
    together = threading.Barrier(2, timeout=60)  # each block waits for one that another thread works on
    found = []

    def work(block: int) -> tuple[int, int]:
        together.wait()
        return 10 * block, torch.get_num_threads()

    share(range(6), work, lambda block, result: found.append((block, result)))
    assert found == [(block, (10 * block, 1)) for block in range(6)]


@pytest.mark.parametrize("where", ["work", "take"])
def test_an_error_is_raised_and_the_threads_are_as_before(where: str) -> None:
    def fail(*_: object) -> None:
        raise KeyError(where)

    with pytest.raises(KeyError, match=where):
        share(range(9), fail if where == "work" else abs, fail if where == "take" else lambda *_: None)
