"""The memory of past batches against a plain queue, and the loss over it against its definition."""

from __future__ import annotations

import copy
from collections import deque
from statistics import fmean

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import reference
from torch import Tensor

import trivet
from trivet.samplers import CrossBatchMemory

Item = tuple[list[float], int, int]  # embedding, label, id


@st.composite
def streams(draw: st.DrawFn, ids: st.SearchStrategy[int]) -> list[list[Item]]:
    """Batches of 0 to 8 items on a small grid, so that ties and duplicates are common."""
    point = st.lists(st.integers(-2, 2).map(float), min_size=2, max_size=2)
    return draw(st.lists(st.lists(st.tuples(point, st.integers(0, 2), ids), max_size=8), max_size=5))


def tensors(items: list[Item], dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    return (
        torch.tensor([x for x, _, _ in items], dtype=dtype).reshape(-1, 2),
        torch.tensor([label for _, label, _ in items], dtype=torch.int64),
        torch.tensor([id_ for _, _, id_ in items], dtype=torch.int64),
    )


def content(memory: CrossBatchMemory) -> list[Item]:
    columns = [memory.embeddings.tolist(), memory.labels.tolist(), memory.ids.tolist()]
    return list(zip(*columns, strict=True))


def some_batch(seed: int, rows: int, dim: int = 3) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return (
        torch.randn(rows, dim, dtype=torch.float64, generator=generator),
        torch.randint(2, (rows,), generator=generator),
        torch.randint(12, (rows,), generator=generator),
    )


@given(st.integers(1, 9), streams(st.integers(-(2**62), 2**62)))
@settings(deadline=None, max_examples=150)
def test_holds_the_last_rows_first_in_first_out(size: int, stream: list[list[Item]]) -> None:
    memory = CrossBatchMemory(size=size, embedding_dim=2)
    queue: deque[tuple[int, Item]] = deque(maxlen=size)
    number = 0
    for items in stream:
        memory.add(*tensors(items))
        for item in items:
            queue.append((number, item))
            number += 1
        assert len(memory) == len(queue)
        assert content(memory) == [item for _, item in sorted(queue, key=lambda entry: entry[0] % size)]


@given(
    st.integers(1, 9),
    streams(st.integers(0, 6)),
    st.sampled_from(["easy", "hard"]),
    st.sampled_from(["hard", "semihard-hardest", "all"]),
    st.sampled_from([None, 1, 3]),
)
@settings(deadline=None, max_examples=80)
def test_the_loss_over_the_memory_equals_the_definition(
    size: int, stream: list[list[Item]], positives: str, negatives: str, block_size: int | None
) -> None:
    memory = CrossBatchMemory(size=size, embedding_dim=2)
    loss = trivet.TripletLoss(positives=positives, negatives=negatives, margin=0.5, block_size=block_size)
    queue: deque[Item] = deque(maxlen=size)

    def definition(items: list[Item], others: list[Item]) -> float:
        problem = reference.Problem(
            [x for x, _, _ in items],
            [label for _, label, _ in items],
            [x for x, _, _ in others],
            [label for _, label, _ in others],
            lambda a, j: items[a][2] == others[j][2],
            "squared_euclidean",
        )
        chosen = reference.triplets(problem, positives, negatives, 0.5)
        return fmean([reference.hinge(problem, triplet, 0.5) for triplet in chosen]) if chosen else 0.0

    for items in stream:
        embeddings, labels, ids = tensors(items)
        past = loss(
            embeddings,
            labels,
            references=memory.embeddings,
            reference_labels=memory.labels,
            ids=ids,
            reference_ids=memory.ids,
        )
        assert past.item() == pytest.approx(definition(items, list(queue)), rel=1e-9, abs=1e-9)
        value = memory(loss, embeddings, labels, ids)
        assert value.item() == pytest.approx(definition(items, [*items, *queue]), rel=1e-9, abs=1e-9)
        queue.extend(items)


def test_an_item_meets_neither_itself_nor_its_past() -> None:
    memory = CrossBatchMemory(size=8, embedding_dim=1)
    # Item 5 some steps ago, where it is again now; item 6 at the same place, another item; item 7 far away.
    memory.add(torch.tensor([[0.0], [0.0], [3.0], [0.5]]), torch.tensor([1, 1, 1, 2]), torch.tensor([5, 6, 7, 8]))
    embeddings, labels, ids = torch.tensor([[0.0], [2.0]]), torch.tensor([1, 1]), torch.tensor([5, 6])
    references = memory.references(embeddings, labels, ids)
    mined = trivet.mine(embeddings, labels, positives="easy", negatives="hard", ids=ids, **references._asdict())
    assert references.reference_ids.tolist() == [5, 6, 5, 6, 7, 8]
    assert mined.anchor.tolist() == [0, 1]
    assert mined.positive.tolist() == [3, 4]  # the old row of item 6; the row of item 7
    assert mined.negative.tolist() == [5, 5]


@pytest.mark.parametrize("block_size", [None, 2])
@pytest.mark.parametrize("size", [3, 7, 20], ids=["smaller than a batch", "overwritten before backward", "not full"])
def test_the_gradient_is_that_of_plain_autograd(size: int, block_size: int | None) -> None:
    memory = CrossBatchMemory(size=size, embedding_dim=3).double()
    for seed in (0, 1):
        memory.add(*some_batch(seed, 5))
    embeddings, labels, ids = some_batch(2, 6)
    past, past_labels, past_ids = (part.clone() for part in (memory.embeddings, memory.labels, memory.ids))

    ours = embeddings.clone().requires_grad_()
    loss = trivet.TripletLoss(margin=2.0, positives="all", negatives="all", block_size=block_size)
    value = memory(loss, ours, labels, ids)
    value.backward()

    theirs = embeddings.clone().requires_grad_()
    rows, classes, items = torch.cat([theirs, past]), [*labels, *past_labels], [*ids, *past_ids]
    hinges = [
        torch.relu((rows[a] - rows[p]).square().sum() - (rows[a] - rows[n]).square().sum() + 2.0)
        for a in range(6)
        for p in range(len(rows))
        for n in range(len(rows))
        if classes[p] == classes[a] != classes[n] and items[p] != items[a] != items[n]
    ]
    assert len(hinges) > 20
    expected = torch.stack(hinges).mean()
    expected.backward()
    torch.testing.assert_close(value, expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-10, atol=1e-10)
    assert not memory.embeddings.requires_grad


@pytest.mark.parametrize("steps", [0, 1, 4], ids=["empty", "part full", "overwriting"])
def test_resumes_exactly(steps: int) -> None:
    whole = CrossBatchMemory(size=7, embedding_dim=3)
    for seed in range(steps):
        whole.add(*some_batch(seed, 5))
    resumed = CrossBatchMemory(size=7, embedding_dim=3)
    resumed.load_state_dict(copy.deepcopy(whole.state_dict()))
    loss = trivet.TripletLoss(positives="easy", negatives="hard", margin=2.0)
    for seed in range(10, 14):
        values = [memory(loss, *some_batch(seed, 5)).item() for memory in (whole, resumed)]
        assert values[0] == values[1]
        assert values[0] > 0
        assert content(resumed) == content(whole)


def test_keeps_a_copy_and_gives_views() -> None:
    memory = CrossBatchMemory(size=3, embedding_dim=3).double()
    embeddings, labels, ids = some_batch(0, 2)
    embeddings.requires_grad_()
    memory.add(embeddings, labels, ids)
    before = content(memory)
    with torch.no_grad():
        embeddings.zero_()
    labels.fill_(9)
    ids.fill_(9)
    assert content(memory) == before
    assert memory.embeddings.grad_fn is None
    assert memory.embeddings.data_ptr() == memory.stored_embeddings.data_ptr()
    assert memory.labels.data_ptr() == memory.stored_labels.data_ptr()
    assert memory.ids.data_ptr() == memory.stored_ids.data_ptr()


def test_evaluation_remembers_nothing() -> None:
    memory = CrossBatchMemory(size=6, embedding_dim=3)
    loss = trivet.TripletLoss(margin=4.0)
    memory(loss, *some_batch(0, 4))
    before = content(memory)
    memory.eval()
    with torch.no_grad():
        memory(loss, *some_batch(1, 4))
    assert content(memory) == before


rows, numbers = torch.zeros(2, 3), torch.arange(2)


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ((torch.tensor([[0.0, 1.0, 2.0], [0.0, torch.nan, 0.0]]), numbers, numbers), "row 1 holds NaN or infinity"),
        ((torch.full((2, 3), 1e200, dtype=torch.float64), numbers, numbers), "numbers too large to square"),
        ((torch.zeros(2, 4), numbers, numbers), "dimension of the memory: got 4 and 3; .*embedding_dim=4"),
        ((torch.zeros(3), numbers, numbers), r"shape \(N, d\)"),
        ((torch.zeros(2, 3, dtype=torch.int64), numbers, numbers), "embeddings must be floating point"),
        ((rows, torch.arange(3), numbers), "labels must hold one number per embedding"),
        ((rows, numbers, torch.arange(1)), "ids must hold one number per embedding"),
        ((rows, numbers.float(), numbers), "labels must be a tensor of integers"),
        ((rows, numbers, numbers > 0), "ids must be a tensor of integers"),
        ((rows, numbers, None), "ids must identify the item"),
        ((rows, numbers, numbers.to("meta")), "ids must hold numbers: got a tensor on the meta device"),
    ],
)
def test_a_wrong_batch_is_said_and_leaves_the_memory_as_it_was(batch: tuple[Tensor, ...], message: str) -> None:
    memory = CrossBatchMemory(size=4, embedding_dim=3)
    memory.add(*some_batch(0, 3))
    before = copy.deepcopy(memory.state_dict())
    for call in (memory.add, memory.references, lambda *given: memory(trivet.TripletLoss(), *given)):
        with pytest.raises(ValueError, match=message):
            call(*batch)
        assert all(torch.equal(value, before[name]) for name, value in memory.state_dict().items())


def test_numbers_too_large_for_the_memory_are_said() -> None:
    memory = CrossBatchMemory(size=4, embedding_dim=3)
    with pytest.raises(ValueError, match=r"embeddings as torch\.float32 must be finite: rows 0, 1"):
        memory.add(torch.full((2, 3), 1e30, dtype=torch.float64), numbers, numbers)
    assert len(memory) == 0


def test_a_memory_on_another_device_is_said() -> None:
    memory = CrossBatchMemory(size=4, embedding_dim=3).to("meta")
    with pytest.raises(ValueError, match=r"embeddings must lie on the memory's device: .*memory\.to\('cpu'\)"):
        memory.add(rows, numbers, numbers)


@pytest.mark.parametrize(("size", "dim", "message"), [(0, 3, "size must be"), (3, -1, "embedding_dim must be")])
def test_a_memory_needs_a_row_and_a_dimension(size: int, dim: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CrossBatchMemory(size=size, embedding_dim=dim)


# Two devices are the subject, so there is nothing to check where there is one.
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_does_the_same() -> None:
    here, there = (CrossBatchMemory(size=7, embedding_dim=3).to(device) for device in ("cpu", "cuda"))
    loss = trivet.TripletLoss(positives="easy", negatives="hard", margin=2.0)
    for seed in range(4):
        batch = some_batch(seed, 5)
        value = there(loss, *(part.cuda() for part in batch))
        assert value.item() == pytest.approx(here(loss, *batch).item(), rel=1e-5)
    assert content(there) == content(here)
