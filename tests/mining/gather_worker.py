"""Checks that run in several processes at once, in crews of two and of four.

A check is a function of the `Crew`; it fails by raising. Each has a process group of its own, so that one that fails
in the middle leaves no message to the next, and waits no longer than `PATIENCE` for the others. Every process writes
one JSON line per check, `{"check", "rank", "error"}`, to the file `<rank>.jsonl` of the folder given as argument.
"""

from __future__ import annotations

import math
import random

import tests.mining.gather_losses  # noqa: F401  # importing it adds its checks to those that run here
import torch
import torch.distributed as dist
from tests.mining.crew import PATIENCE, Crew, check, message
from torch import Tensor

from trivet.distances import check_embeddings
from trivet.mining.gather import Gathered, LocalBatch, gather, gather_rows, sum_over_processes

MARGIN = 2.0
COUNTS = [5, 2, 7, 4]
LABELS = [0, 1, 1, 0, 2, 0, 2, 1, 1, 0, 3, 1, 2, 0, 0, 1, 4, 2]


def weight(label: int) -> int:
    """An anchor counts by its class, so that anchors and references have different gradients."""
    return 1 + label % 3


def definition(rows: list[list[float]], labels: list[int]) -> tuple[float, list[list[float]]]:
    """Mean over all ordered pairs of D^2 if they share a label, else max(0, MARGIN - D^2); its gradient."""
    total, count, gradient = 0.0, 0, [[0.0] * len(rows[0]) for _ in rows]
    for a, x in enumerate(rows):
        for j, y in enumerate(rows):
            if a == j:
                continue
            squared = math.dist(x, y) ** 2
            count += 1
            if labels[a] != labels[j] and squared >= MARGIN:
                continue
            sign = 1 if labels[a] == labels[j] else -1
            total += weight(labels[a]) * (squared if sign > 0 else MARGIN - squared)
            for k in range(len(x)):
                step = 2 * sign * weight(labels[a]) * (x[k] - y[k])
                gradient[a][k] += step
                gradient[j][k] -= step
    return total / count, [[value / count for value in row] for row in gradient]


def whole_batch(counts: list[int]) -> tuple[list[list[float]], list[int]]:
    """The same on every process."""
    source = random.Random(7)
    size = sum(counts)
    return [[source.gauss(0, 0.8) for _ in range(3)] for _ in range(size)], [LABELS[i % 18] for i in range(size)]


def shared_loss(embeddings: Tensor, labels: Tensor, group: dist.ProcessGroup | None) -> Tensor:
    """The loss of `definition`, of which each process computes the terms of its own anchors."""
    batch = gather(lambda: LocalBatch(embeddings, labels, ids=None, seeds=(0, 0)), group)
    own_ids = batch.ids[batch.start : batch.start + len(labels), None]
    squared = (embeddings[:, None] - batch.embeddings).square().sum(dim=-1)
    terms = squared.where(labels[:, None] == batch.labels, (MARGIN - squared).relu()) * (1 + labels[:, None] % 3)
    compared = own_ids != batch.ids
    total = sum_over_processes(terms[compared].sum(), gathered=batch.embeddings, group=group)
    return total / sum_over_processes(compared.sum(), group=group)


def gathered(
    crew: Crew, *, embeddings: Tensor | None = None, ids: Tensor | None = None, seeds: tuple[int, int] = (0, 0)
) -> Gathered:
    """Gather a batch of which only one thing matters."""
    rows = torch.ones(2, 3) if embeddings is None else embeddings
    return gather(lambda: LocalBatch(rows, torch.zeros(len(rows), dtype=torch.int64), ids, seeds), crew.group)


def assert_close(found: Tensor, expected: list[list[float]], tolerance: float) -> None:
    wanted = torch.tensor(expected, dtype=torch.float64)
    error = float((found.double() - wanted).abs().max() / wanted.abs().max())
    assert error <= tolerance, error


def assert_usable(crew: Crew) -> None:
    """The group still works."""
    assert gathered(crew).counts == [2] * crew.size


def loss_equals_the_definition(crew: Crew, counts: list[int], dtype: torch.dtype, tolerance: float) -> None:
    rows, labels = whole_batch(counts)
    value, gradient = definition(rows, labels)
    span = crew.span(counts)
    embeddings = torch.tensor(rows[span], dtype=dtype, requires_grad=True)
    loss = shared_loss(embeddings, torch.tensor(labels[span]), crew.group)
    loss.backward()
    assert math.isclose(loss.item(), value, rel_tol=tolerance), (loss.item(), value)
    assert embeddings.grad.dtype == dtype
    size = dist.get_world_size(crew.group)
    assert_close(embeddings.grad / size, gradient[span], tolerance)


@check
def value_and_gradient_equal_the_definition(crew: Crew) -> None:
    counts = COUNTS[: crew.size]
    for rows in (counts, [4] * crew.size, [1] * crew.size):
        loss_equals_the_definition(crew, rows, torch.float64, 1e-12)
    loss_equals_the_definition(crew, counts, torch.float32, 1e-5)
    loss_equals_the_definition(Crew(crew.rank, crew.size, None), counts, torch.float64, 1e-12)


@check
def value_has_the_same_bits_on_every_process(crew: Crew) -> None:
    rows, labels = whole_batch(COUNTS[: crew.size])
    span = crew.span(COUNTS)
    loss = shared_loss(torch.tensor(rows[span]), torch.tensor(labels[span]), crew.group)
    assert not loss.requires_grad
    assert len(set(gather_rows(loss[None], [1] * crew.size, crew.group).tolist())) == 1


@check
def incoming_gradient_scales_the_own_one(crew: Crew) -> None:
    counts = COUNTS[: crew.size]
    rows, labels = whole_batch(counts)
    span = crew.span(counts)
    embeddings = torch.tensor(rows[span], dtype=torch.float64, requires_grad=True)
    (4 * shared_loss(embeddings, torch.tensor(labels[span]), crew.group)).backward()
    assert_close(embeddings.grad / (4 * crew.size), definition(rows, labels)[1][span], 1e-12)


@check
def process_that_uses_no_gathered_row_takes_part_in_backward(crew: Crew) -> None:
    embeddings = torch.ones(2, 3, requires_grad=True)
    batch = gathered(crew, embeddings=embeddings)
    own = embeddings.sum() * 0 if crew.rank == 0 else (crew.rank * batch.embeddings).sum()
    sum_over_processes(own, gathered=batch.embeddings, group=crew.group).backward()
    assert embeddings.grad.tolist() == [[float(crew.size * sum(range(crew.size)))] * 3] * 2


@check
def labels_and_ids_are_exact(crew: Crew) -> None:
    values = [-(2**63), 2**63 - 1, 2**53, 2**53 + 1, 2**24 + 1]
    own = torch.tensor([value - crew.rank if value > 0 else value + crew.rank for value in values])
    everyone = [value - r if value > 0 else value + r for r in range(crew.size) for value in values]
    batch = gather(lambda: LocalBatch(torch.zeros(5, 1), own, ids=own.flip(0), seeds=(0, 0)), crew.group)
    assert batch.labels.tolist() == everyone
    assert batch.ids.tolist() == [value for r in range(crew.size) for value in reversed(everyone[5 * r : 5 * r + 5])]
    assert batch.labels.dtype == batch.ids.dtype == torch.int64


@check
def rows_come_in_the_order_of_the_ranks_bit_for_bit(crew: Crew) -> None:
    counts = COUNTS[: crew.size]
    rows, _ = whole_batch(counts)
    span = crew.span(counts)
    batch = gathered(crew, embeddings=torch.tensor(rows[span], dtype=torch.float64))
    assert batch.embeddings.tolist() == rows
    assert batch.ids.tolist() == list(range(sum(counts)))
    assert (batch.counts, batch.start) == (counts, span.start)


@check
def rows_of_any_shape(crew: Crew) -> None:
    counts = COUNTS[: crew.size]
    everything = torch.arange(sum(counts) * 6).reshape(-1, 2, 3)
    own = everything[crew.span(counts)]
    assert gather_rows(own, counts, crew.group).equal(everything)
    assert gather_rows(own[:, 1, 2], counts, crew.group).equal(everything[:, 1, 2])
    transposed = gather_rows(own.float().transpose(1, 2), counts, crew.group)
    assert transposed.equal(everything.float().transpose(1, 2))


@check
def sums_keep_every_digit(crew: Crew) -> None:
    added = sum(range(crew.size))
    own = torch.tensor([2.0**52 + 1, crew.rank], dtype=torch.float64)
    assert sum_over_processes(own, group=crew.group).tolist() == [crew.size * (2**52 + 1), added]
    assert own.tolist() == [2.0**52 + 1, crew.rank]
    assert sum_over_processes(torch.tensor(2**60 + crew.rank), group=crew.group).item() == crew.size * 2**60 + added


@check
def seeds_are_those_of_process_0(crew: Crew) -> None:
    assert gathered(crew, seeds=(2**62 - 1 - crew.rank, 17 + crew.rank)).seeds == (2**62 - 1, 17)


@check
def rows_that_do_not_fit_together(crew: Crew) -> None:
    second, last = crew.rank == 1, crew.rank == crew.size - 1
    of_last = f"got d = 128 from process 0 and d = 64 from process {crew.size - 1}; "
    for said, options in (
        ("at least one row: got none from process 1; give", {"embeddings": torch.zeros(0 if second else 3, 2)}),
        (f"of the same dimension: {of_last}", {"embeddings": torch.zeros(2, 64 if last else 128)}),
        (
            "of the same dtype: got float32 from process 0 and float64 from process 1; ",
            {"embeddings": torch.zeros(2, 3, dtype=torch.float64 if crew.rank else torch.float32)},
        ),
        (
            "give ids, or none of them: got none from process 0 and ids from process 1; ",
            {"ids": torch.arange(2) if second else None},
        ),
        (
            "got a required gradient from process 0 and no gradient from process 1; ",
            {"embeddings": torch.ones(2, 3, requires_grad=crew.rank == 0)},
        ),
    ):
        text = message(lambda options=options: gathered(crew, **options))
        assert said in text, text
        assert_usable(crew)
    with torch.set_grad_enabled(crew.rank == 0):
        assert message(lambda: gathered(crew, embeddings=torch.ones(2, 3, requires_grad=True))) == text


@check
def row_that_is_not_finite(crew: Crew) -> None:
    embeddings = torch.zeros(4, 2)
    if crew.rank == 1:
        embeddings[2, 1] = torch.nan

    def part() -> LocalBatch:
        check_embeddings(embeddings)
        return LocalBatch(embeddings, torch.zeros(4, dtype=torch.int64), ids=None, seeds=(0, 0))

    text = message(lambda: gather(part, crew.group))
    own = message(lambda: check_embeddings(torch.full((4, 2), torch.nan)))
    start = own[: own.index(":")]
    if crew.rank == 1:
        assert text.startswith(start), text
    else:
        wanted = f"every process must pass a valid batch: process 1 got ValueError: {start}"
        assert text.startswith(wanted), text
    assert_usable(crew)


@check
def errors_on_several_processes(crew: Crew) -> None:
    def part() -> LocalBatch:
        if crew.rank > 0:
            raise KeyError(f"Größe {crew.rank}")
        return LocalBatch(torch.zeros(1, 1), torch.zeros(1, dtype=torch.int64), ids=None, seeds=(0, 0))

    text = message(lambda: gather(part, crew.group), KeyError if crew.rank > 0 else ValueError)
    wanted = f"'Größe {crew.rank}'" if crew.rank > 0 else "process 1 got KeyError: 'Größe 1'"
    assert text.endswith(wanted), text
    assert_usable(crew)


@check
def long_error_is_cut(crew: Crew) -> None:
    def part() -> LocalBatch:
        raise ValueError("x" + "é" * 5000)

    def good() -> LocalBatch:
        return LocalBatch(torch.zeros(1, 1), torch.zeros(1, dtype=torch.int64), ids=None, seeds=(0, 0))

    text = message(lambda: gather(part if crew.rank == 0 else good, crew.group))
    assert text.endswith("é")
    assert len(text) == 5001 if crew.rank == 0 else 900 < len(text) < 1200
    assert_usable(crew)


@check
def group_of_some_processes(crew: Crew) -> None:
    members = sorted({1, crew.size - 1})
    group = dist.new_group(members, timeout=PATIENCE)
    embeddings = torch.full((1, 2), float(crew.rank), requires_grad=True)

    def part() -> LocalBatch:
        return LocalBatch(embeddings, torch.tensor([crew.rank]), ids=None, seeds=(crew.rank, 0))

    if crew.rank not in members:
        assert message(lambda: gather(part, group)).startswith(
            "a process that gathers must belong to the process group"
        )
        return
    batch = gather(part, group)
    assert batch.labels.tolist() == members
    assert (batch.start, batch.seeds) == (members.index(crew.rank), (1, 0))
    sum_over_processes(batch.embeddings.sum(), gathered=batch.embeddings, group=group).backward()
    assert embeddings.grad.tolist() == [[float(len(members) ** 2)] * 2]
