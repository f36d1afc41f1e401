"""A strategy at work: positives and negatives chosen for a block of anchors."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from torch import Tensor

from trivet.distances import Distance
from trivet.mining.batch import Batch
from trivet.mining.counter_rng import CounterRng
from trivet.mining.distance_block import MAX_STORED_DIFFERENCES, DistanceBlock
from trivet.mining.negatives import NegativeSelector
from trivet.mining.positives import PositiveSelector
from trivet.mining.selected_set import SelectedItems, SelectedSet, nothing


class Selection(NamedTuple):
    """Positives and negatives chosen for a block of anchors."""

    positives: SelectedItems  # (B, S); where each has negatives of its own, only the slots that have one
    negatives: SelectedItems | SelectedSet  # one per positive slot `(B, S)`, or a set of references per anchor


@dataclass(frozen=True)
class Strategy:
    """Positives x negatives, and the distance and margin they are chosen by.

    Attributes:
        unit_rows_for: the name of the selector that means something for unit rows only, or None.

    Raises:
        ValueError: if a positive that needs the negative is joined with several.
    """

    positives: PositiveSelector
    negatives: NegativeSelector
    distance: Distance
    margin: float
    random: bool = field(init=False, repr=False)  # whether anything is drawn
    selects_set: bool = field(init=False, repr=False)  # whether it gives a set of negatives for each anchor
    unit_rows_for: str | None = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.positives.needs_negative and (self.negatives.selects_set or self.negatives.k > 1):
            raise ValueError(
                f"{type(self.positives).__name__} needs one negative: got {type(self.negatives).__name__}; use a rule "
                "that gives one, such as negatives='semihard' or 'hard'."
            )
        selectors = (self.positives, self.negatives)
        unit_rows_for = next((type(selector).__name__ for selector in selectors if selector.unit_rows), None)
        object.__setattr__(self, "random", self.positives.random or self.negatives.random)
        object.__setattr__(self, "selects_set", self.negatives.selects_set)
        object.__setattr__(self, "unit_rows_for", unit_rows_for)

    def numbers(self, batch: Batch) -> int:
        """About how many numbers the choice for one anchor holds, for the size of a block."""
        references, dimension = batch.references.shape
        return max(references, min(MAX_STORED_DIFFERENCES, batch.adjacency.most * dimension))

    def block(self, batch: Batch, span: tuple[int, int]) -> DistanceBlock:
        """The block of the anchors in `span`, to select from."""
        return DistanceBlock(batch, span, distance=self.distance, margin=self.margin)

    def select(self, block: DistanceBlock, rng: CounterRng | None) -> Selection:
        """Choose for a block; `rng` is needed where something is random."""
        if self.positives.needs_negative:
            # One negative for each positive, or where it does not depend on the positive, one for all.
            slots = block.same_class.shape[1] if self.negatives.needs_positive else min(1, block.same_class.shape[1])
            every = SelectedItems(block.same_class_columns[:, :slots], block.positive[:, :slots])
            if slots == 0:
                every = nothing(block.label_column)
            negatives = self.negatives.choose(block, every, self._negative_uniforms(block, rng, every.index.shape[1]))
            assert isinstance(negatives, SelectedItems)
            positives = self.positives.choose(block, self._positive_uniforms(block, rng), negatives)
            if slots > 1:
                slot = (every.index == positives.index).long().argmax(dim=1, keepdim=True)
                index, chosen = (each.gather(1, slot) for each in (negatives.index, negatives.chosen))
                negatives = SelectedItems(index, chosen, negatives.all_chosen)
        else:
            positives = self.positives.choose(block, self._positive_uniforms(block, rng), None)
            slots = positives.index.shape[1]
            negatives = self.negatives.choose(block, positives, self._negative_uniforms(block, rng, slots))
        if isinstance(negatives, SelectedSet):
            if negatives.bands is not None:
                positives = SelectedItems(positives.index, positives.chosen & (negatives.bands.counts > 0))
        else:
            if self.negatives.k > 1:
                fields = (positives.index, positives.chosen)
                index, chosen = (each.repeat_interleave(self.negatives.k, dim=1) for each in fields)
                positives = SelectedItems(index, chosen, positives.all_chosen)
            if not (positives.all_chosen and negatives.all_chosen):
                both = positives.chosen & negatives.chosen
                positives, negatives = SelectedItems(positives.index, both), SelectedItems(negatives.index, both)
        return Selection(positives, negatives)

    def _positive_uniforms(self, block: DistanceBlock, rng: CounterRng | None) -> Tensor:
        if rng is None or not self.positives.random:
            return block.label_column
        return rng.uniform(block.anchor_index, self.positives.slots(block), stream=0)

    def _negative_uniforms(self, block: DistanceBlock, rng: CounterRng | None, slots: int) -> Tensor:
        slots *= self.negatives.k
        if rng is None or not self.negatives.random:
            return block.label_column.expand(-1, slots)
        return rng.uniform(block.anchor_index, slots, stream=1)
