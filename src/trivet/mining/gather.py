"""A batch spread over the processes of torch.distributed: what each one brings, and the whole of it with gradients.

Each process takes its own rows as anchors and the rows of all processes as references. With T_r the sum of the terms
of process r, and C their number over all processes, the loss is V = (T_0 + ... + T_(W-1)) / C, the same on every
process. `sum_over_processes` adds up the T_r and hands W times the gradient of V to the own one; `gather_rows` brings
home what the other processes found for the own rows. So the gradient with respect to the own rows is exactly W times
that of a single process which holds the whole batch, and the mean over the processes of the gradients of parameters,
which all that train in parallel take, is that of the single process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable

from trivet.mining.batch import Batch
from trivet.mining.label_groups import LabelGroups

DTYPES = (torch.float32, torch.float64)
HEADER_SIZE = 10  # passed, rows, dimension, dtype, ids, gradient, shared references, relation, two seeds
TEXT_SIZE = 2048  # bytes of an error that the other processes are told
# What every process must do alike with its rows, how a number in its header reads, and what helps.
ALIKE: list[tuple[str, Callable[[int], str], str]] = [
    ("pass embeddings of the same dimension", lambda d: f"d = {d}", "embed with the same model"),
    (
        "pass embeddings of the same dtype",
        lambda kind: str(DTYPES[kind]).removeprefix("torch."),
        "use the same precision everywhere",
    ),
    ("give ids, or none of them", lambda present: "ids" if present else "none", "pass ids everywhere"),
    (
        "require a gradient of its embeddings, or none of them",
        lambda wanted: "a required gradient" if wanted else "no gradient",
        "call the loss everywhere under the same torch.no_grad(), with embeddings that require a gradient",
    ),
    ("pass the same references", lambda count: f"{count} references", "keep equal memories everywhere"),
    (
        "pass labels by the same relation",
        lambda signature: f"one of signature {signature}" if signature else "classes",
        "make the relation of all items on every process, and take the rows of each batch, relation[rows]",
    ),
]


@dataclass(frozen=True)
class LocalBatch:
    """The rows of one process."""

    embeddings: Tensor  # (N, d) float32 or float64
    labels: Tensor  # (N,) int64
    ids: Tensor | None  # (N,) int64, which rows are the same item, in any process; None if an item is its own row only
    seeds: tuple[int, int]  # of the random choices; those of process 0 count
    shared: int = 0  # how many further references every process has, the same ones
    signature: int = 0  # of the relation that the labels are of


@dataclass(frozen=True)
class Gathered:
    """The rows of all processes: M of them, those of process 0 first.

    The gradient of each row is summed over the processes and goes to the one that brought it.
    """

    embeddings: Tensor  # (M, d)
    labels: Tensor  # (M,) int64
    ids: Tensor  # (M,) int64, the given ones, else 0 .. M - 1
    seeds: tuple[int, int]  # the same on every process
    counts: list[int]  # how many rows each process brought
    start: int  # which row is the first of this process


def gather(check: Callable[[], LocalBatch], group: dist.ProcessGroup | None = None) -> Gathered:
    """Join the rows of all processes, or raise an error on all of them. Every process of the group must call it.

    Rows do not lose a bit on the way, and no two processes need bring the same number of them. Where gradients are
    wanted, backward must run on every process too; it exchanges the gradient of the gathered rows.

    Each process's gradient of its parameters is that of its own rows times the number of processes: the mean over them,
    which DistributedDataParallel takes, is the gradient of the loss.

    Args:
        check: makes the own part, or raises. It runs in here because a process that fails must tell the others, which
            would wait for its rows forever.
        group: the processes that share the batch; None for all.

    Raises:
        ValueError: on every process, if one brings no row, if dimension, dtype, the presence of ids or the want for a
            gradient differ, or if the check of another process failed. A failed check is raised as it is on its own
            process. Also if torch.distributed is not initialised.

    Example:
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> batch = gather(lambda: LocalBatch(torch.ones(2, 3), torch.tensor([5, 7]), ids=None, seeds=(1, 2)))
        >>> batch.counts, batch.labels, batch.ids
        ([2], tensor([5, 7]), tensor([0, 1]))
        >>> dist.destroy_process_group()
    """
    rank = _rank(group)
    local: LocalBatch | None = None
    failure: Exception | None = None
    header = [0] * HEADER_SIZE
    try:
        local = check()
        header = _header(local)
    except Exception as error:  # whatever it is: the others wait for this process, and must be told first
        failure = error
    headers = _concatenated(torch.tensor([header], dtype=torch.int64), group).tolist()
    passed, counts, *shared, first, second = (list(column) for column in zip(*headers, strict=True))
    if not all(passed):
        texts = _concatenated(_encoded(failure), group)
        if failure is not None:
            raise failure
        failed = passed.index(0)
        raise ValueError(f"every process must pass a valid batch: process {failed} got {_decoded(texts[failed])}")
    assert local is not None
    _check_agreement(counts, *shared)
    embeddings = gather_rows(local.embeddings, counts, group)
    columns = [local.labels] if local.ids is None else [local.labels, local.ids]
    labels, *ids = gather_rows(torch.stack(columns, dim=1), counts, group).T.contiguous()
    return Gathered(
        embeddings,
        labels,
        ids[0] if ids else torch.arange(len(labels), device=labels.device),
        (first[0], second[0]),
        counts,
        sum(counts[:rank]),
    )


def gather_batch(check: Callable[[], Batch], key: Tensor, group: dist.ProcessGroup | None) -> tuple[Batch, Tensor]:
    """The anchors of this process against the rows of all, and the key of the random choices of process 0.

    Args:
        check: makes the own batch. Where it is not compared with itself, every process must have the same references;
            they come after the gathered rows.
        key: `(2,)` int64, the own one.
    """
    local_batches: list[Batch] = []

    def local_batch() -> LocalBatch:
        local_batches.append(batch := check())
        first, second = key.tolist()
        shared = 0 if batch.references is batch.embeddings else len(batch.references)
        ids = batch.ids if batch.items is not None else None
        return LocalBatch(batch.embeddings, batch.labels, ids, (first, second), shared, batch.relation.signature)

    gathered = gather(local_batch, group)
    batch = local_batches[0]
    references, labels, ids = [gathered.embeddings], [gathered.labels], [gathered.ids]
    if batch.references is not batch.embeddings:
        references.append(batch.references)
        labels.append(batch.reference_labels)
        strangers = -1 - torch.arange(len(batch.references), device=gathered.ids.device)  # no row of the batch
        ids.append(strangers if batch.items is None or batch.reference_ids is None else batch.reference_ids)
    reference_labels, reference_ids = torch.cat(labels), torch.cat(ids)
    stop = gathered.start + len(batch.labels)
    joined = Batch(
        batch.embeddings,
        batch.labels,
        torch.cat(references),
        reference_labels,
        gathered.ids[gathered.start : stop],
        reference_ids,
        batch.relation,
        None if batch.items is None else LabelGroups(reference_ids),
        total=sum(gathered.counts),
        first=gathered.start,
    )
    return joined, torch.tensor(gathered.seeds, device=key.device)


def references_as_anchors(batch: Batch, processes: Processes | None) -> Batch:
    """The references, but for gathered rows, as anchors against the items; each of several processes takes a share."""
    first, labels, items = 0, batch.labels, batch.embeddings
    rows, classes = batch.references, batch.reference_labels
    if processes is not None:
        (items, rows), (labels, classes) = (each.tensor_split([batch.total]) for each in (rows, classes))
    total = len(rows)
    if processes is not None:
        share = processes.share(total)
        rows, classes, first = rows[share], classes[share], share.start
    return Batch(
        rows,
        classes,
        items,
        labels,
        None,
        None,
        batch.relation,
        None,
        total,
        first,
        graph=batch.graph,
        exact=batch.exact,
    )


@dataclass(frozen=True)
class Processes:
    """The processes that share a batch."""

    group: dist.ProcessGroup | None

    def share(self, number: int) -> slice:
        """This process's range of so many things, of which each process takes about as many."""
        rank, size = _rank(self.group), dist.get_world_size(self.group)
        return slice(number * rank // size, number * (rank + 1) // size)

    def add_up(self, local: Tensor) -> Tensor:
        """The sum of a tensor over all of them."""
        return sum_over_processes(local, group=self.group)

    def largest(self, local: Tensor) -> Tensor:
        """The largest of a scalar that each of them has."""
        return _concatenated(local[None], self.group).max()

    def add_before(self, local: Tensor) -> Tensor:
        """The sum of a scalar over those of lower rank."""
        return _concatenated(local[None], self.group)[: _rank(self.group)].sum()


def gather_rows(rows: Tensor, counts: Sequence[int], group: dist.ProcessGroup | None = None) -> Tensor:
    """The rows `(n, ...)` of all processes in the order of their ranks, `(sum(counts), ...)`, of the same dtype.

    Differentiable once. In backward, every process must take part: its gradient is summed over the processes, and each
    gets the part of its own rows.

    Args:
        counts: how many rows each process brings.
    """
    assert counts[_rank(group)] == len(rows)
    gathered: Tensor = _GatherRows.apply(rows, list(counts), group)
    return gathered


def sum_over_processes(
    local: Tensor, *, gathered: Tensor | None = None, group: dist.ProcessGroup | None = None
) -> Tensor:
    """The sum of a tensor of any shape over all processes, in its dtype.

    Its gradient, which is the same on every process, goes to `local` times their number, as the sum of them.

    Args:
        gathered: the gathered rows that `local` was made of. Then backward passes by them, and exchanges their
            gradient, also on a process whose `local` happens to use none of them; the others would wait for it forever.
    """
    _rank(group)
    total: Tensor = _Sum.apply(local, gathered, group)
    return total


def _rank(group: dist.ProcessGroup | None) -> int:
    if not (dist.is_available() and dist.is_initialized()):
        raise ValueError(
            "gather=True needs an initialised process group: got none; call torch.distributed.init_process_group first "
            "and start the program with torchrun, or leave gather out if there is one process."
        )
    rank = dist.get_rank(group)
    if rank < 0:
        raise ValueError(
            "a process that gathers must belong to the process group: this one does not; "
            "call the loss on the members of the group only, or pass another group."
        )
    return rank


def _header(local: LocalBatch) -> list[int]:
    rows, dimension = local.embeddings.shape
    wants_gradient = torch.is_grad_enabled() and local.embeddings.requires_grad
    kind = DTYPES.index(local.embeddings.dtype)
    return [
        1,
        rows,
        dimension,
        kind,
        local.ids is not None,
        wants_gradient,
        local.shared,
        local.signature,
        *local.seeds,
    ]


def _check_agreement(counts: list[int], *columns: list[int]) -> None:
    """Raise ValueError unless every process brings rows of the same kind; the same sentence on every process."""
    if 0 in counts:
        raise ValueError(
            f"every process must pass at least one row: got none from process {counts.index(0)}; give each process a "
            "part of every batch, for instance with drop_last=True in its sampler."
        )
    for column, (must, describe, remedy) in zip(columns, ALIKE, strict=True):
        for process, value in enumerate(column):
            if value != column[0]:
                raise ValueError(
                    f"every process must {must}: got {describe(column[0])} from process 0 and {describe(value)} from "
                    f"process {process}; {remedy}."
                )


def _encoded(failure: Exception | None) -> Tensor:
    """The text of an error as bytes `(1, TEXT_SIZE)`, cut or filled up with zeros."""
    text = "" if failure is None else f"{type(failure).__name__}: {failure}"
    content = text.encode(errors="replace")[:TEXT_SIZE]
    return torch.tensor([[*content, *[0] * (TEXT_SIZE - len(content))]], dtype=torch.uint8)


def _decoded(content: Tensor) -> str:
    return bytes(content.tolist()).rstrip(b"\0").decode(errors="ignore")


class _GatherRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, counts: list[int], group: dist.ProcessGroup | None) -> Tensor:
        ctx.counts, ctx.group = counts, group
        largest = max(counts)
        if len(rows) < largest:
            rows = torch.cat([rows, rows.new_zeros(largest - len(rows), *rows.shape[1:])])
        together = _concatenated(rows, group)
        if min(counts) == largest:
            return together
        pieces = zip(torch.split(together, largest), counts, strict=True)
        return torch.cat([piece[:count] for piece, count in pieces])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        rank = dist.get_rank(ctx.group)
        return torch.split(_added(grad, ctx.group), ctx.counts)[rank], None, None


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, local: Tensor, gathered: Tensor | None, group: dist.ProcessGroup | None) -> Tensor:
        ctx.size = dist.get_world_size(group)
        return _added(local, group)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        # No gradient for `gathered`: being an input is enough for backward to pass by its node, with zeros if need be.
        return grad * ctx.size, None, None


def _concatenated(rows: Tensor, group: dist.ProcessGroup | None) -> Tensor:
    """Rows `(n, ...)`, as many on each process, one after the other: `(W * n, ...)`."""
    sent = _sendable(rows, group).contiguous()  # NCCL sends nothing else
    received = sent.new_empty((dist.get_world_size(group) * len(sent), *sent.shape[1:]))
    dist.all_gather_into_tensor(received, sent, group=group)
    return received.to(rows.device)


def _added(values: Tensor, group: dist.ProcessGroup | None) -> Tensor:
    total = _sendable(values, group).clone(memory_format=torch.contiguous_format)
    dist.all_reduce(total, group=group)
    return total.to(values.device)


def _sendable(values: Tensor, group: dist.ProcessGroup | None) -> Tensor:
    kind = carrier(values.device.type, dist.get_backend_config(group))
    return values if kind == values.device.type else values.to(kind)


def carrier(device: str, backends: str) -> str:
    """The kind of device on which values must lie to be sent.

    Args:
        device: the kind where they lie.
        backends: what sends from which kind, as torch.distributed writes it.

    Example:
        >>> carrier("cuda", "cpu:gloo,cuda:nccl"), carrier("cuda", "cpu:gloo,cuda:gloo"), carrier("cpu", "cuda:nccl")
        ('cuda', 'cpu', 'cuda')
    """
    known = dict(pair.split(":") for pair in backends.split(","))
    # Gloo says that it knows other devices, but gathers on the CPU only.
    if device in known and (device == "cpu" or known[device] != "gloo"):
        return device
    return "cpu" if "cpu" in known else next(iter(known))
