"""Base of all selectors, and their choices for a block of anchors: some references each, or a whole set of them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from trivet.runtime.arguments import check_options


class Selector:
    """A rule that picks references for each anchor; a dataclass, whose fields are its options.

    Attributes:
        random: whether it uses the uniform numbers it is given.
        unit_rows: whether it means something for embeddings of unit norm only.
        k: how many it gives, positives for each anchor, negatives for each positive.
    """

    def __post_init__(self) -> None:
        check_options(self)

    # Properties, as a subclass may have an option of the name.
    @property
    def random(self) -> bool:
        return False

    @property
    def unit_rows(self) -> bool:
        return False

    @property
    def k(self) -> int:
        return 1


@dataclass(frozen=True)
class SelectedItems:
    """S references for each of B anchors: column numbers `index (B, S)` and, where one was found, `chosen (B, S)`.

    Where nothing was chosen the index is a column too, and means nothing.
    """

    index: Tensor
    chosen: Tensor
    all_chosen: bool = False  # whether it is known that one was found in every slot


@dataclass(frozen=True)
class Bands:
    """The negatives of each positive slot that lie between two distances; those of an anchor together are its set."""

    low: Tensor | None  # (B, S) squared distances, exclusive; None where there is no lower end
    high: Tensor  # (B, S) squared distances, exclusive; infinitely low for an empty slot
    counts: Tensor  # (B, S) how many negatives lie in the band, as floats
    holders: Tensor  # (B, M) in how many bands each reference lies, as floats


@dataclass(frozen=True)
class SelectedSet:
    """A whole set of references for each of B anchors; with `bands` each belongs to some of the positives only.

    Attributes:
        penalty: `(B, M)`, 0 for the chosen and infinite for others, to be added to a distance; None for all
            negatives.
    """

    penalty: Tensor | None
    count: Tensor | int  # how many are chosen, `(B, 1)`, or one number if all anchors have as many
    bands: Bands | None = None  # which of them belong to which positive; None where all belong to each

    def chosen(self, to_negatives: Tensor) -> Tensor:
        """Return which references are chosen, `(B, M)` bool, given `DistanceBlock.to_negatives`."""
        if self.penalty is None:
            return to_negatives < torch.inf
        return to_negatives + self.penalty < torch.inf

    def of_positives(self, to_negatives: Tensor) -> Tensor:
        """Return which references are chosen for each positive, `(B, S, M)` bool, or for all alike `(B, 1, M)`."""
        if self.bands is None:
            return self.chosen(to_negatives)[:, None]
        inside = to_negatives[:, None] < self.bands.high[:, :, None]
        return inside if self.bands.low is None else inside & (to_negatives[:, None] > self.bands.low[:, :, None])


def nothing(shape_of: Tensor) -> SelectedItems:
    """A choice in which no slot of the `(B, S)` tensor is filled."""
    empty = torch.zeros_like(shape_of, dtype=torch.int64)
    return SelectedItems(empty, empty.bool())
