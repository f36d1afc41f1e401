"""Buffer of the updates since the last check of a monitor, which the next check reads."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from trivet.collapse.batch_measures import (
    MOST,
    NEIGHBOR_MEASURES,
    PAIRED,
    SUM_MEASURES,
    BatchSums,
    NeighborStats,
    PairDistances,
    batch_sums,
    neighbor_measures,
    neighbor_stats,
    pair_distances,
    sum_measures,
)
from trivet.collapse.json_numbers import as_json, with_nan
from trivet.distances.device import without_autocast

SMALL = 2**16  # numbers of a batch up to which it is kept and measured with others
NORM = SUM_MEASURES.index("norm")


class MonitorBatch(NamedTuple):
    """Embeddings `(N, d)` with labels and fine classes `(N,)`; or several of one size."""

    embeddings: Tensor
    labels: Tensor | None
    fine: Tensor | None

    @property
    def kind(self) -> tuple[torch.Size, torch.device, bool, bool]:
        """Shape, device and levels, which batches that are measured at once have in common."""
        return self.embeddings.shape, self.embeddings.device, self.labels is None, self.fine is None

    def each(self, change: Callable[[Tensor], Tensor]) -> MonitorBatch:
        """The same with a change to each tensor."""
        points, labels, fine = self
        return MonitorBatch(
            change(points), None if labels is None else change(labels), None if fine is None else change(fine)
        )

    def copied(self) -> MonitorBatch:
        """The same now, whatever becomes of these tensors: embeddings float32, labels int64, on one device."""
        points, labels, fine = self.embeddings.detach(), self.labels, self.fine
        return MonitorBatch(
            points.to(torch.float32, copy=True),
            None if labels is None else labels.to(points.device, torch.int64, copy=True),
            None if fine is None else fine.to(points.device, torch.int64, copy=True),
        )

    def without_graph(self) -> MonitorBatch:
        """The same without a graph, float32 and on one device, not copied where it is so already."""
        device = self.embeddings.device
        moved = self.each(lambda tensor: tensor.detach().to(device))
        return moved._replace(embeddings=moved.embeddings.float())


class CheckValues(NamedTuple):
    """Values of one check.

    Attributes:
        running, loss: of the updates the median, NaN left out; the first as `SUM_MEASURES`.
        compared: of the last batch, as `NEIGHBOR_MEASURES`.
        finite: whether all numbers of all updates are.
    """

    running: list[float]
    loss: float
    compared: list[float]
    finite: bool


class MonitorBuffer:
    """Losses, sums of embeddings and measures of the updates since the last check.

    On a CPU they are read at once, on a device all at the check, for which it must finish its work.
    """

    def __init__(self) -> None:
        self._losses: list[Tensor | float] = []
        self._totals: list[Tensor | float] = []  # of embeddings: not finite where one of these is not
        self._waiting: list[MonitorBatch] = []  # small ones that are yet to be measured
        self._sums: list[tuple[BatchSums[Tensor], int]] = []  # of batches, and how many items they have
        self._measured: list[list[float]] = []  # running measures of an interrupted run

    def add_update(self, embeddings: Tensor | None, loss: Tensor | float | None) -> None:
        """Store what is needed of each update.

        Args:
            embeddings: of a batch that is not kept; the measures of others tell whether they are finite.
        """
        if loss is not None:
            self._losses.append(_number(loss.detach()) if isinstance(loss, Tensor) else float(loss))
        if embeddings is not None:
            self._totals.append(_number(embeddings.detach().sum(dtype=torch.float32)))

    def add_batch(self, batch: MonitorBatch) -> None:
        """Measure a batch, or, as some cost little more than one, keep a copy of a small one until the next check."""
        if batch.embeddings.numel() <= SMALL:
            self._waiting.append(batch.copied())
            return
        with without_autocast(batch.embeddings.device.type):  # distances need all their digits
            self._measure()
            self._add(batch.without_graph().each(_unsqueezed))

    def read(self, batch: MonitorBatch) -> CheckValues:
        """Read what was kept, the last of it this batch, and forget it."""
        with without_autocast(batch.embeddings.device.type):
            pairs = self._measure()
            rows = () if batch.labels is None else neighbor_stats(pairs or _first_pairs(batch))
        sums, measured, losses, totals = self._sums, self._measured, self._losses, self._totals
        self.forget()
        read = iter(_read([*rows, *losses, *totals, *(tensor for batch_sum, _ in sums for tensor in batch_sum)]))
        compared = (
            neighbor_measures(NeighborStats(*(next(read) for _ in rows)))
            if rows
            else [math.nan] * len(NEIGHBOR_MEASURES)
        )
        loss_of, total_of = [next(read) for _ in losses], [next(read) for _ in totals]
        for batch_sum, count in sums:
            measured += sum_measures(BatchSums(*(next(read) for _ in batch_sum)), count)
        columns = list(zip(*measured, strict=True))
        numbers = (*loss_of, *total_of, *columns[NORM])  # the norm is not finite where an embedding is not
        return CheckValues(
            [_middle(column) for column in columns], _middle(loss_of), compared, all(map(math.isfinite, numbers))
        )

    def forget(self) -> None:
        """Begin anew."""
        self._losses, self._totals, self._waiting, self._sums, self._measured = [], [], [], [], []

    def state_dict(self) -> dict[str, list[Any]]:
        """All that a resumed run needs, as JSON."""
        self._measure()
        for batch_sum, count in self._sums:
            self._measured += sum_measures(BatchSums(*_read(batch_sum)), count)
        self._sums = []
        losses, totals = ([*map(float, values)] for values in (self._losses, self._totals))
        return {"losses": as_json(losses), "totals": as_json(totals), "measured": as_json(self._measured)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state_dict`."""
        self.forget()
        self._losses, self._totals, self._measured = (with_nan(state[key]) for key in ("losses", "totals", "measured"))

    def _measure(self) -> PairDistances | None:
        """Measure the batches that wait, at once if they are of one kind; returns the pairs of the last, if known."""
        waiting, self._waiting = self._waiting, []
        alike = len({batch.kind for batch in waiting}) == 1
        pairs = None
        for group in [waiting] if alike else [[batch] for batch in waiting]:
            batches = MonitorBatch(*map(_stacked, zip(*group, strict=True)))
            points, labels, fine = batches
            pairs = pair_distances(points, labels, fine) if labels is not None and points.shape[1] <= PAIRED else None
            self._add(batches, pairs)
        return pairs

    def _add(self, batches: MonitorBatch, pairs: PairDistances | None = None) -> None:
        self._sums.append((batch_sums(*batches, pairs=pairs), batches.embeddings.shape[1]))


def _unsqueezed(tensor: Tensor) -> Tensor:
    """As several of which it is the only one."""
    return tensor[None]


def _first_pairs(batch: MonitorBatch) -> PairDistances:
    """The pairs of the first rows of a batch."""
    points, labels, fine = batch.each(lambda tensor: tensor[:MOST]).without_graph().each(_unsqueezed)
    assert labels is not None
    return pair_distances(points, labels, fine)


def _number(value: Tensor) -> Tensor | float:
    """A number where it can be read at no cost, else a copy of it on its device."""
    return value.item() if value.is_cpu else value.clone()


def _read(chunks: Sequence[Tensor | float | None]) -> list[Any]:
    """Read tensors as lists, and leave the rest; those of a device are brought from it at once."""
    away = [value for value in chunks if isinstance(value, Tensor) and not value.is_cpu]
    if away:
        flat = torch.cat([value.to(away[0].device).flatten() for value in away]).cpu()
        sizes = [value.numel() for value in away]
        host = (values.view(value.shape) for values, value in zip(torch.split(flat, sizes), away, strict=True))
        chunks = [next(host) if isinstance(value, Tensor) and not value.is_cpu else value for value in chunks]
    return [value.tolist() if isinstance(value, Tensor) else value for value in chunks]


def _middle(values: Sequence[float]) -> float:
    """The median, of an even number the lower of the middle two; without those that are NaN."""
    known = sorted([value for value in values if not math.isnan(value)])
    return known[(len(known) - 1) // 2] if known else math.nan


def _stacked(chunks: Sequence[Tensor | None]) -> Any:
    """Tensors of one shape as one more; None of None."""
    known = [tensor for tensor in chunks if tensor is not None]
    return torch.stack(known) if known else None
