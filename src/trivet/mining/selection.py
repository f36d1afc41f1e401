"""A strategy at work: positives and negatives chosen for a block of anchors."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from trivet.geometry import Distance
from trivet.mining.batch import Batch, Draws
from trivet.mining.block import Block, Choice, Everyone
from trivet.mining.negatives import NegativeSelector
from trivet.mining.positives import PositiveSelector


@dataclass(frozen=True)
class Selection:
    """What was chosen for a block of anchors.

    Attributes:
        positives: `(B, S)`; in a tuple strategy only the slots that also have a negative.
        negatives: one per positive slot `(B, S)`, or a set of references per anchor `(B, M)`.
        no_positive, no_negative: `(B,)` bool, anchors without any candidate of that kind.
    """

    positives: Choice
    negatives: Choice | Everyone
    no_positive: Tensor
    no_negative: Tensor


@dataclass(frozen=True)
class Strategy:
    """Positives x negatives, and the distance and margin they are chosen by."""

    positives: PositiveSelector
    negatives: NegativeSelector
    distance: Distance
    margin: float

    def draws(self, generator: torch.Generator | None) -> Draws | None:
        """The random numbers of a batch; None, and `generator` left as it is, where nothing is random."""
        return Draws(generator) if self.positives.random or self.negatives.random else None

    def block(self, batch: Batch, anchors: Tensor, references: Tensor, span: tuple[int, int]) -> Block:
        """The block of the anchors in `span`."""
        return Block(batch, anchors, references, span, distance=self.distance, margin=self.margin)

    def select(self, block: Block, draws: Draws | None) -> Selection:
        """Choose for a block; blocks must come in order where something is random."""
        size, device = len(block.anchors), block.anchors.device
        positives = self.positives.choose(
            block, _numbers(draws, self.positives.random, (size, 1), stream=0, device=device)
        )
        slots = positives.index.shape[1]
        negatives = self.negatives.choose(
            block, positives, _numbers(draws, self.negatives.random, (size, slots), stream=1, device=device)
        )
        if isinstance(negatives, Choice):
            both = positives.chosen & negatives.chosen
            positives, negatives = replace(positives, chosen=both), replace(negatives, chosen=both)
        return Selection(positives, negatives, ~block.positive.any(dim=1), block.negatives[:, 0] == 0)


def unit_rows_need(strategy: Strategy) -> str | None:
    """The name of the selector that means something for unit rows only, or None."""
    selectors = (strategy.positives, strategy.negatives)
    return next((type(selector).__name__ for selector in selectors if selector.unit_rows), None)


def _numbers(draws: Draws | None, random: bool, shape: tuple[int, int], *, stream: int, device: torch.device) -> Tensor:
    if draws is None or not random:
        return torch.zeros((), dtype=torch.float64, device=device).expand(shape)
    return draws.next_rows(shape, stream, device)
