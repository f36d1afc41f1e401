"""Blocks shared among threads, in order, each thread alone; one thread for what is short; the number as before."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import pytest
import torch

import trivet
from trivet.distances import pairwise, threads
from trivet.distances.threads import LEAST_SHARED, MOST_ALONE, share, shared_product, single_thread


@pytest.fixture(autouse=True)
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    with ThreadPoolExecutor(1) as pool:  # threads to come have the number of the process
        assert torch.get_num_threads() == pool.submit(torch.get_num_threads).result() == 2
    torch.set_num_threads(before)


def test_results_come_in_order_from_two_threads_that_work_alone() -> None:
    together = threading.Barrier(2, timeout=60)  # each block waits for one that another thread works on
    found = []

    def work(block: int) -> tuple[int, int]:
        together.wait()
        return 10 * block, torch.get_num_threads()

    share(range(6), work, lambda block, result: found.append((block, result)))
    assert found == [(block, (10 * block, 1)) for block in range(6)]


@pytest.mark.parametrize(("blocks", "number"), [(1, 2), (3, 1)])
def test_what_one_thread_does_starts_none(blocks: int, number: int) -> None:
    torch.set_num_threads(number)
    found = []

    def work(block: int) -> tuple[int, threading.Thread, int]:
        return block, threading.current_thread(), torch.get_num_threads()

    share(range(blocks), work, lambda _, result: found.append(result))
    assert found == [(block, threading.current_thread(), 1) for block in range(blocks)]
    assert torch.get_num_threads() == number
    torch.set_num_threads(2)


@pytest.mark.parametrize("blocks", [1, 9])
@pytest.mark.parametrize("where", ["work", "take"])
def test_an_error_is_raised_and_the_threads_are_as_before(where: str, blocks: int) -> None:
    def fail(*_: object) -> None:
        raise KeyError(where)

    with pytest.raises(KeyError, match=where):
        share(range(blocks), fail if where == "work" else abs, fail if where == "take" else lambda *_: None)


@pytest.mark.parametrize("error", [False, True])
def test_what_is_short_works_on_one_thread(error: bool) -> None:
    for numbers, expected in ((MOST_ALONE, 1), (MOST_ALONE + 1, 2)):
        with nullcontext() if not error else pytest.raises(KeyError), single_thread(numbers):
            assert torch.get_num_threads() == expected
            if error:
                raise KeyError
        assert torch.get_num_threads() == 2


@pytest.mark.parametrize("error", [False, True])
def test_a_long_product_of_what_is_short_takes_all_threads(error: bool) -> None:
    with single_thread(MOST_ALONE):
        for multiplications, expected in ((LEAST_SHARED - 1, 1), (LEAST_SHARED, 2)):
            with nullcontext() if not error else pytest.raises(KeyError), shared_product(multiplications):
                assert torch.get_num_threads() == expected
                if error:
                    raise KeyError
            assert torch.get_num_threads() == 1
    with shared_product(LEAST_SHARED):  # of a large batch
        assert torch.get_num_threads() == 2
    assert torch.get_num_threads() == 2


def test_products_of_a_step_are_shared_by_their_length(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []
    monkeypatch.setattr(pairwise, "shared_product", lambda number: taken.append(number) or shared_product(number))
    loss = trivet.MultiSimilarityLoss(positives="all", negatives="all")
    embeddings = torch.randn(25, 16, generator=torch.Generator().manual_seed(0)).requires_grad_()
    loss(embeddings, torch.arange(25) % 5)
    assert taken == [25 * 25 * 18, 25 * 25 * 18]  # distances, and their gradient; two columns more in one product


class Watched(trivet.TripletLoss):
    """A loss that notes on how many threads its formula runs."""

    def formula(self, block: trivet.BlockView) -> trivet.LossTerms:
        self.threads = torch.get_num_threads()
        return super().formula(block)


@pytest.mark.parametrize("limit", [1025, 1024])
def test_a_small_batch_takes_one_thread(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "MOST_ALONE", limit)
    loss = Watched(positives="easy", negatives="hard", normalize=True)
    embeddings = torch.randn(25, 16, generator=torch.Generator().manual_seed(0)).requires_grad_()
    loss(embeddings, torch.arange(25) % 5)  # 25 x 16 numbers, and 25 x 25 distances
    assert loss.threads == (1 if limit > 1024 else 2)
