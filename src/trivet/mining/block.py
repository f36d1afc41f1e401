"""What a selector sees: one block of anchors against all references, detached, and the choice it gives back."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from trivet.geometry import Distance, from_squared, to_squared


@dataclass(frozen=True)
class Block:
    """B anchors against M references. Nothing here carries a gradient.

    Attributes:
        squared: `(B, M)` squared Euclidean distances, of unit rows if the loss normalises them.
        positive: `(B, M)` bool, same class and not the same item.
        negative: `(B, M)` bool, another class.
        distance: the loss's distance, in which `margin` is given.
        margin: the loss's margin, 0 if it has none.
        dimension: d of the embeddings.
    """

    squared: Tensor
    positive: Tensor
    negative: Tensor
    distance: Distance
    margin: float
    dimension: int

    @property
    def similarities(self) -> Tensor:
        """Cosine similarities `(B, M)` of unit rows."""
        return 1 - self.squared / 2

    def beyond(self, squared: Tensor, margin: float) -> Tensor:
        """Squared distances that lie `margin`, in the loss's distance, beyond the given ones."""
        return to_squared(from_squared(squared, self.distance) + margin, self.distance)


@dataclass(frozen=True)
class Choice:
    """S references for each of B anchors: column numbers `index (B, S)` and, where one was found, `chosen (B, S)`.

    Where nothing was chosen the index is 0 and means nothing.
    """

    index: Tensor
    chosen: Tensor


@dataclass(frozen=True)
class Everyone:
    """A whole set of references for each of B anchors, not tied to one positive: `chosen (B, M)` bool."""

    chosen: Tensor


def nearest_of(block: Block, mask: Tensor) -> Choice:
    """The nearest reference among `mask (B, M)`; the lowest index wins a tie."""
    return _extreme(block.squared.masked_fill(~mask, torch.inf), mask, largest=False)


def farthest_of(block: Block, mask: Tensor) -> Choice:
    """The farthest reference among `mask (B, M)`; the lowest index wins a tie."""
    return _extreme(block.squared.masked_fill(~mask, -torch.inf), mask, largest=True)


def uniform_of(mask: Tensor, uniform: Tensor) -> Choice:
    """References drawn uniformly among `mask (B, M)`, one for each number of `uniform (B, S)` in [0, 1)."""
    if mask.shape[1] == 0:
        return nothing(uniform)
    rank = mask.cumsum(dim=1)  # (B, M): how many candidates up to and with this column
    count = rank[:, -1:]
    wanted = (uniform * count).floor().long().clamp_max((count - 1).clamp_min(0)) + 1  # (B, S), 1-based
    chosen = (count > 0).expand_as(uniform)
    return Choice(torch.searchsorted(rank, wanted).where(chosen, 0), chosen)


def nothing(shape_of: Tensor) -> Choice:
    """A choice in which no slot of the `(B, S)` tensor is filled."""
    empty = torch.zeros_like(shape_of, dtype=torch.int64)
    return Choice(empty, empty.bool())


def _extreme(values: Tensor, mask: Tensor, *, largest: bool) -> Choice:
    if values.shape[1] == 0:
        return nothing(values.new_zeros((len(values), 1)))
    chosen = mask.any(dim=1, keepdim=True)
    index = values.argmax(dim=1, keepdim=True) if largest else values.argmin(dim=1, keepdim=True)
    return Choice(index.where(chosen, 0), chosen)
