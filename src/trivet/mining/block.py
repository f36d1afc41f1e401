"""What a selector sees: one block of anchors against all references, and the choice it gives back."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from trivet.geometry import Distance, from_squared, squared_distances, to_squared
from trivet.mining.batch import Batch


class Block:
    """B anchors against M references. What selectors read carries no gradient; nothing is computed before it is read.

    The references of the anchor's own class are few, and listed: `own (B, S)` are their columns, S the size of the
    largest class. All others are negatives, and only their distances form a matrix.

    Args:
        anchors, references: `(B, d)` and `(M, d)`, of unit rows if the loss normalises them.
        span: which anchors of the batch these are.
        distance: the loss's distance, in which `margin` is given.
        margin: the loss's margin, 0 if it has none.
    """

    def __init__(
        self,
        batch: Batch,
        anchors: Tensor,
        references: Tensor,
        span: tuple[int, int],
        *,
        distance: Distance,
        margin: float,
    ) -> None:
        self.anchors, self.references, self.distance, self.margin = anchors, references, distance, margin
        self.labels = batch.labels[slice(*span)]
        self.dimension = batch.dimension
        self._batch, self._span = batch, span

    @cached_property
    def own(self) -> Tensor:
        """Columns `(B, S)` of the references of the anchor's class, ascending; M where a class has fewer."""
        return self._batch.classes.positions(self.labels)

    @cached_property
    def own_columns(self) -> Tensor:
        """`own`, with column 0 for the empty slots."""
        return self.own.where(self.own < len(self.references), 0)

    @cached_property
    def positive(self) -> Tensor:
        """Which slots of `own (B, S)` hold another item of the class."""
        filled = self.own < len(self.references)
        if self._batch.ids is None or self._batch.reference_ids is None or self.own.shape[1] == 0:
            return filled
        ids = self._batch.ids[slice(*self._span), None]
        return filled & (self._batch.reference_ids[self.own_columns] != ids)

    @cached_property
    def excluded(self) -> Tensor:
        """Columns `(B, E)` that are no negatives, ascending, then M: the class, and rows of the same item."""
        if self._batch.items is None or self._batch.ids is None:
            return self.own
        same = self._batch.items.positions(self._batch.ids[slice(*self._span)])
        other_label = self._batch.reference_labels[same.clamp_max(len(self.references) - 1)] != self.labels[:, None]
        return torch.cat([self.own, same.where(other_label, len(self.references))], dim=1).sort(dim=1).values

    @cached_property
    def negatives(self) -> Tensor:
        """How many negatives each anchor has, `(B, 1)`."""
        return len(self.references) - (self.excluded < len(self.references)).sum(dim=1, keepdim=True)

    @cached_property
    def negative(self) -> Tensor:
        """Which references are negatives, `(B, M)` bool."""
        mask = torch.ones((len(self.anchors), len(self.references) + 1), dtype=torch.bool, device=self.anchors.device)
        return mask.scatter_(1, self.excluded, False)[:, :-1]

    @cached_property
    def own_squared(self) -> Tensor:
        """Squared distances `(B, S)` to `own`, differentiable, right for near-duplicates; empty slots mean nothing.

        By differences where these are few, else by a matrix product in float64.
        """
        if self.own.shape[1] * self.dimension <= max(len(self.references), 4096):
            return (self.anchors[:, None] - self.references[self.own_columns]).square().sum(dim=-1)
        squared = squared_distances(self.anchors.double(), self.references.double())
        return squared.gather(1, self.own_columns).to(self.anchors.dtype)

    @cached_property
    def squared(self) -> Tensor:
        """Squared distances `(B, M)` to all references, differentiable."""
        return squared_distances(self.anchors, self.references)

    @cached_property
    def to_own(self) -> Tensor:
        """`own_squared` without gradient."""
        return self.own_squared.detach()

    @cached_property
    def to_negatives(self) -> Tensor:
        """Squared distances `(B, M)` to the negatives, without gradient; infinite for all that are none."""
        if "squared" in self.__dict__:
            squared = self.squared.detach().clone()
        else:
            with torch.no_grad():
                squared = squared_distances(self.anchors, self.references)
        if squared.shape[1] == 0:
            return squared
        empty = self.excluded == len(self.references)
        infinite = squared.new_full((), torch.inf).where(~empty, -torch.inf)
        return squared.scatter_reduce_(1, self.excluded.where(~empty, 0), infinite, "amax")

    def beyond(self, squared: Tensor, margin: float) -> Tensor:
        """Squared distances that lie `margin`, in the loss's distance, beyond the given ones."""
        return to_squared(from_squared(squared, self.distance) + margin, self.distance)


@dataclass(frozen=True)
class Choice:
    """S references for each of B anchors: column numbers `index (B, S)` and, where one was found, `chosen (B, S)`.

    Where nothing was chosen the index is a column too, and means nothing.
    """

    index: Tensor
    chosen: Tensor


@dataclass(frozen=True)
class Everyone:
    """A whole set of references for each of B anchors, not tied to one positive: `chosen (B, M)` bool."""

    chosen: Tensor


def uniform_of(mask: Tensor, uniform: Tensor) -> Choice:
    """Columns drawn uniformly among `mask (B, C)`, one for each number of `uniform (B, S)` in [0, 1)."""
    if mask.shape[1] == 0:
        return nothing(uniform)
    rank = mask.cumsum(dim=1)  # (B, C): how many candidates up to and with this column
    wanted = rank_of(uniform, rank[:, -1:]) + 1
    chosen = (rank[:, -1:] > 0).expand_as(uniform)
    return Choice(torch.searchsorted(rank, wanted).where(chosen, 0), chosen)


def uniform_negative(block: Block, uniform: Tensor) -> Choice:
    """Negatives drawn uniformly, one for each number of `uniform (B, S)`; no distance is computed."""
    rank = rank_of(uniform, block.negatives)  # (B, S): how many negatives stand before the wanted one
    # An excluded column stands before it if no more than `rank` negatives stand before that column.
    columns, total = block.excluded, len(block.references)
    before = (columns - torch.arange(columns.shape[1], device=rank.device)).where(columns < total, total)
    chosen = (block.negatives > 0).expand_as(uniform)
    return Choice((rank + torch.searchsorted(before, rank, right=True)).where(chosen, 0), chosen)


def rank_of(uniform: Tensor, count: Tensor) -> Tensor:
    """Whole numbers 0 .. count - 1 from numbers in [0, 1); 0 where the count is 0."""
    return (uniform * count).floor().long().clamp_max((count - 1).clamp_min(0))


def nothing(shape_of: Tensor) -> Choice:
    """A choice in which no slot of the `(B, S)` tensor is filled."""
    empty = torch.zeros_like(shape_of, dtype=torch.int64)
    return Choice(empty, empty.bool())
