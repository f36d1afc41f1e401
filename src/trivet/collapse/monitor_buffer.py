"""Buffer of the updates since the last check of a monitor, which the next check reads."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median_low
from typing import Any, NamedTuple

import torch
from torch import Tensor

from trivet.collapse.batch_measures import (
    MOST,
    NEIGHBOR_MEASURES,
    PAIRED,
    SUM_MEASURES,
    PairDistances,
    batch_sums,
    neighbor_measures,
    neighbor_stats,
    pair_distances,
    sum_measures,
)
from trivet.distances.device import without_autocast
from trivet.runtime.json_numbers import as_json, with_nan

SMALL = 2**16  # numbers of a batch up to which it is kept and measured with others
NORM = SUM_MEASURES.index("norm")

MonitorBatch = Sequence[Tensor]
"""Embeddings `(N, d)`, perhaps with labels, and these perhaps with fine classes, `(N,)`.

Or with `related_pairs`, and these perhaps with 1 for the items of the right side, 0 for others, `(N,)`.
"""


class CheckValues(NamedTuple):
    """Values of one check."""

    # running, loss: of the updates the median, NaN left out; the first as `SUM_MEASURES`.
    running: list[float]
    loss: float
    compared: list[float]  # of the last batch, as `NEIGHBOR_MEASURES`
    finite: bool  # whether all numbers of all updates are


class MonitorBuffer:
    """Losses, sums of embeddings and measures of the updates since the last check.

    On a CPU they are read at once, on a device all at the check, for which it must finish its work.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begin anew."""
        self._losses: list[Tensor | float] = []
        self._totals: list[Tensor | float] = []  # of embeddings: not finite where one of these is not
        self._waiting: list[MonitorBatch] = []  # small ones that are yet to be measured
        self._sums: list[tuple[int, list[Tensor]]] = []  # how many items batches have, and their sums
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
        if batch[0].numel() <= SMALL:
            self._waiting.append(_moved(batch, copy=True))
            return
        with without_autocast(batch[0].device.type):  # distances need all their digits
            self._measure()
            self._add([tensor[None] for tensor in _moved(batch)], paired=False)

    def read(self, batch: MonitorBatch) -> CheckValues:
        """Read what was kept, the last of it this batch, and forget it."""
        with without_autocast(batch[0].device.type):
            pairs = self._measure()
            if len(batch) > 1 and pairs is None:  # of the first rows
                pairs = pair_distances(*(tensor[None] for tensor in _moved([tensor[:MOST] for tensor in batch])))
            rows = [] if pairs is None else neighbor_stats(pairs)
        sums, measured, losses, totals = self._sums, self._measured, self._losses, self._totals
        self.forget()
        read = iter(_read([*rows, *losses, *totals, *(tensor for _, chunks in sums for tensor in chunks)]))
        stats = [next(read) for _ in rows]
        compared = neighbor_measures(*stats) if rows else [math.nan] * len(NEIGHBOR_MEASURES)
        loss_of, total_of = [next(read) for _ in losses], [next(read) for _ in totals]
        for count, chunks in sums:
            measured += [sum_measures(count, *row) for row in zip(*(next(read) for _ in chunks), strict=True)]
        columns = list(zip(*measured, strict=True))
        numbers = (*loss_of, *total_of, *columns[NORM])  # the norm is not finite where an embedding is not
        return CheckValues(
            [_middle(column) for column in columns], _middle(loss_of), compared, all(map(math.isfinite, numbers))
        )

    def state_dict(self) -> dict[str, list[Any]]:
        """All that a resumed run needs, as JSON."""
        self._measure()
        for count, chunks in self._sums:
            self._measured += [sum_measures(count, *row) for row in zip(*_read(chunks), strict=True)]
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
        alike = len({(*(tensor.shape for tensor in batch), batch[0].device) for batch in waiting}) == 1
        pairs = None
        for group in [waiting] if alike else [[batch] for batch in waiting]:
            batches = [torch.stack(tensors) for tensors in zip(*group, strict=True)]
            pairs = self._add(batches, paired=batches[0].shape[1] <= PAIRED)
        return pairs

    def _add(self, batches: MonitorBatch, *, paired: bool) -> PairDistances | None:
        """Measure batches of one kind; returns their pairs, if they are wanted or are a relation's."""
        needed = len(batches) > 1 and (paired or batches[1].ndim == 3)
        pairs = pair_distances(*batches) if needed else None
        self._sums.append((batches[0].shape[1], batch_sums(*batches, pairs=pairs)))
        return pairs


def _moved(batch: MonitorBatch, *, copy: bool = False) -> list[Tensor]:
    """The same without a graph and on one device: embeddings float32, and copies with labels int64."""
    points = batch[0].detach().to(torch.float32, copy=copy)
    levels = (level.detach().to(points.device) for level in batch[1:])
    return [points, *((level.to(torch.int64, copy=True) for level in levels) if copy else levels)]


def _number(value: Tensor) -> Tensor | float:
    """A number where it can be read at no cost, else a copy of it on its device."""
    return value.item() if value.is_cpu else value.clone()


def _read(chunks: Sequence[Tensor | float]) -> list[Any]:
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
    known = [value for value in values if not math.isnan(value)]
    return median_low(known) if known else math.nan
