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
class SelectedSet:
    """A whole set of references for each of B anchors, not tied to one positive.

    Attributes:
        penalty: `(B, M)`, 0 for the chosen and infinite for others, to be added to a distance; None for all
            negatives.
    """

    penalty: Tensor | None
    count: Tensor | int  # how many are chosen, `(B, 1)`, or one number if all anchors have as many

    def chosen(self, to_negatives: Tensor) -> Tensor:
        """Return which references are chosen, `(B, M)` bool, given `DistanceBlock.to_negatives`."""
        if self.penalty is None:
            return to_negatives < torch.inf
        return to_negatives + self.penalty < torch.inf


def nothing(shape_of: Tensor) -> SelectedItems:
    """A choice in which no slot of the `(B, S)` tensor is filled."""
    empty = torch.zeros_like(shape_of, dtype=torch.int64)
    return SelectedItems(empty, empty.bool())
