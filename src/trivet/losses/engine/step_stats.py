"""Statistics of a step of a loss: counted block by block, read on demand."""

from __future__ import annotations

import math
from typing import Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

from trivet.losses.engine.block_view import BlockView, LossSum, LossTerms, finite_sums
from trivet.mining.selected_set import SelectedItems
from trivet.runtime.lazy import lazy

Number = TypeVar("Number", Tensor, float)


class StepCounts(NamedTuple, Generic[Number]):
    """Counts and sums behind a `StepStats`; all but the first four are of the anchors that have a term.

    Attributes:
        anchors, used: of the batch, and those with a term.
        alone, unopposed: anchors without a term that have no positive, and those that have one but no negative.
        inverted, compared: positives farther than the nearest negative, of those compared with one.
        to_positive, positives: sum of the distances to the chosen positives, and how many.
        to_negative, negatives: the same of the negatives.
        terms, active, parts: terms, parts of them that are not zero, and all parts.
    """

    anchors: Number
    used: Number
    alone: Number
    unopposed: Number
    inverted: Number
    compared: Number
    to_positive: Number
    positives: Number
    to_negative: Number
    negatives: Number
    terms: Number
    active: Number
    components: Number


class StepStats:
    """Statistics of the last evaluation of a loss. Numbers stay on the device until they are read.

    "dropped" anchors took part in no term; a distance is in the loss's unit and NaN where there was none. With the
    reduction "max" all of this is about the terms among which the largest was sought, not about that one alone.

    Args:
        counted: notes of a block that are counted when somebody reads, or the counts of several blocks as a vector.
    """

    def __init__(self, counted: BlockNotes | Tensor) -> None:
        self._counted = counted

    @lazy
    def _read(self) -> StepCounts[float]:
        tally = self._counted if isinstance(self._counted, Tensor) else step_counts(self._counted)
        return StepCounts(*tally.tolist())

    @lazy
    def _activity(self) -> tuple[float, float]:
        """Parts of terms that are not zero, and all parts: without counting all else, as it is asked for more often."""
        counted = self._counted
        if isinstance(counted, Tensor) or "_read" in self.__dict__:
            return self._read.active, self._read.components
        return float(counted.result.count_active), float(counted.result.count * counted.result.components)

    def __repr__(self) -> str:
        shares = ("active_fraction", "hard_fraction", "mean_to_positive", "mean_to_negative")
        numbers = ", ".join(f"{name}={getattr(self, name):.4g}" for name in shares)
        return f"StepStats(anchors={self.anchors}, terms={self.terms}, {numbers}, dropped={self.dropped})"

    @property
    def anchors(self) -> int:
        """Anchors in the batch."""
        return int(self._read.anchors)

    @property
    def dropped(self) -> dict[str, int]:
        """Anchors without a term, by reason: no positive, no negative (and a positive), or none of the wanted kind."""
        read = self._read
        unmatched = max(0, self.anchors - int(read.used) - int(read.alone) - int(read.unopposed))
        return {"no positive": int(read.alone), "no negative": int(read.unopposed), "no match": unmatched}

    @property
    def terms(self) -> int:
        """Terms of the loss: triplets, pairs or anchors."""
        return int(self._read.terms)

    @property
    def active_fraction(self) -> float:
        """Share of the terms that are not zero; of their parts, for a loss whose terms are sums of several."""
        return _ratio(*self._activity)

    @property
    def hard_fraction(self) -> float:
        """Share of the chosen positives that lie farther from the anchor than their (nearest) chosen negative."""
        return _ratio(self._read.inverted, self._read.compared)

    @property
    def mean_to_positive(self) -> float:
        """Mean distance from an anchor to a chosen positive."""
        return _ratio(self._read.to_positive, self._read.positives, empty=math.nan)

    @property
    def mean_to_negative(self) -> float:
        """Mean distance from an anchor to a chosen negative."""
        return _ratio(self._read.to_negative, self._read.negatives, empty=math.nan)


class BlockNotes(NamedTuple):
    """Results of a block that step statistics need; nothing here holds a graph.

    Attributes:
        positive, negatives: `(B, S)` and `(B, 1)`, the candidates of an anchor: which slots, how many; or one
            number.
        to_positive, pulled: `(B, S)` distances to the positives and which are chosen.
    """

    result: LossTerms | LossSum  # the terms
    positive: Tensor
    negatives: Tensor | int
    to_positive: Tensor
    pulled: Tensor
    to_negative: Tensor  # distances to the negatives, `(B, S)`, or to a set `(B, M)` that is infinite elsewhere
    negative_count: Tensor | int  # which of the former are chosen, or how many of a set, `(B, 1)` or one number
    selects_set: bool  # whether the negatives are a set
    beyond: bool  # whether each chosen negative lies beyond its positive


def block_notes(block: BlockView, result: LossTerms | LossSum) -> BlockNotes:
    """Collect what step statistics need of a block."""
    negatives, bands = block.selection.negatives, block.bands
    return BlockNotes(
        result.detach(),
        *block.candidates,
        block.to_positive.detach(),
        block.positive_chosen,
        block.to_negative.detach(),
        negatives.chosen if isinstance(negatives, SelectedItems) else negatives.count,
        selects_set=not isinstance(negatives, SelectedItems),
        beyond=bands is not None and bands.low is not None,
    )


@torch.no_grad()
def step_counts(notes: BlockNotes) -> Tensor:
    """The `StepCounts` of a block, as a vector `(13,)` float64 that can be added to others."""
    result, nearest, negative_sum = notes.result, notes.to_negative, notes.to_negative
    used = result.used[:, None]
    negatives, negative_count = (
        torch.full_like(used, number, dtype=torch.int64) if isinstance(number, int) else number
        for number in (notes.negatives, notes.negative_count)
    )
    if notes.selects_set:
        negative_sum = finite_sums(nearest)[:, None]
        nearest = nearest.amin(dim=1, keepdim=True) if nearest.shape[1] else negative_sum + torch.inf
    alone, unopposed = ~notes.positive.any(dim=1), negatives[:, 0] == 0
    pulled, pushed = notes.pulled & used, (negative_count > 0) & used
    compared = pulled & (nearest < torch.inf)
    inverted = torch.zeros_like(compared) if notes.beyond else (notes.to_positive > nearest) & compared
    numbers = StepCounts(
        anchors=torch.ones_like(used).sum(),
        used=used.sum(),
        alone=(alone & ~used[:, 0]).sum(),
        unopposed=(unopposed & ~alone & ~used[:, 0]).sum(),
        inverted=inverted.sum(),
        compared=compared.sum(),
        to_positive=notes.to_positive.where(pulled, 0).sum(),
        positives=pulled.sum(),
        to_negative=negative_sum.where(pushed, 0).sum(),
        negatives=negative_count.where(pushed, 0).sum(),
        terms=torch.as_tensor(result.count, device=used.device),
        active=torch.as_tensor(result.count_active, device=used.device),
        components=torch.as_tensor(result.count * result.components, device=used.device),
    )
    return torch.stack([number.double() for number in numbers])


def _ratio(numerator: float, denominator: float, empty: float = 0.0) -> float:
    return numerator / denominator if denominator else empty
