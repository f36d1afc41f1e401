"""Which items of its own class an anchor is pulled towards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol

import torch
from torch import Tensor

from trivet.mining.block import Block, Choice, nothing, uniform_of
from trivet.mining.names import check_at_least, nearest

PositiveName = Literal["easy", "hard", "random", "all", "multi-similarity"]


class PositiveSelector(Protocol):
    """A rule that picks among the references of the anchor's class.

    Attributes:
        pairwise: whether every positive may be chosen, in the slots of `Block.own`; otherwise one is, in one slot.
        random: whether it uses the uniform numbers it is given.
        unit_rows: whether it means something for embeddings of unit norm only.
    """

    pairwise: ClassVar[bool]
    random: ClassVar[bool]
    unit_rows: ClassVar[bool]

    def choose(self, block: Block, uniform: Tensor) -> Choice:
        """The positives `(B, 1)`, or `(B, S)` of a pairwise selector; `uniform (B, 1)` if it is random."""
        ...


@dataclass(frozen=True)
class EasyPositive:
    """The nearest item of the same class (easy positive sampling, Levi et al., ICCV 2021, section 4.3)."""

    pairwise: ClassVar[bool] = False
    random: ClassVar[bool] = False
    unit_rows: ClassVar[bool] = False

    def choose(self, block: Block, uniform: Tensor) -> Choice:
        """The nearest positive, `(B, 1)`; the lowest index wins a tie."""
        return _pick(block, block.to_own.masked_fill(~block.positive, torch.inf), largest=False)


@dataclass(frozen=True)
class HardPositive:
    """The farthest item of the same class (batch-hard, Hermans et al. 2017)."""

    pairwise: ClassVar[bool] = False
    random: ClassVar[bool] = False
    unit_rows: ClassVar[bool] = False

    def choose(self, block: Block, uniform: Tensor) -> Choice:
        """The farthest positive, `(B, 1)`; the lowest index wins a tie."""
        return _pick(block, block.to_own.masked_fill(~block.positive, -torch.inf), largest=True)


@dataclass(frozen=True)
class RandomPositive:
    """An item of the same class drawn uniformly."""

    pairwise: ClassVar[bool] = False
    random: ClassVar[bool] = True
    unit_rows: ClassVar[bool] = False

    def choose(self, block: Block, uniform: Tensor) -> Choice:
        """One positive, `(B, 1)`."""
        slot = uniform_of(block.positive, uniform)
        if block.own.shape[1] == 0:
            return slot
        return Choice(block.own_columns.gather(1, slot.index), slot.chosen)


@dataclass(frozen=True)
class AllPositives:
    """Every item of the same class, each with negatives of its own."""

    pairwise: ClassVar[bool] = True
    random: ClassVar[bool] = False
    unit_rows: ClassVar[bool] = False

    def choose(self, block: Block, uniform: Tensor) -> Choice:
        """All positives, `(B, S)`."""
        return Choice(block.own_columns, block.positive)


@dataclass(frozen=True)
class MultiSimilarityPositives:
    """Positives less similar than the most similar negative plus epsilon (Wang et al., CVPR 2019, eq. 7).

    An anchor without a negative gives none.
    """

    epsilon: float = 0.1
    pairwise: ClassVar[bool] = True
    random: ClassVar[bool] = False
    unit_rows: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_at_least(0, self.epsilon, name="epsilon")

    def choose(self, block: Block, uniform: Tensor) -> Choice:
        """The mined positives, `(B, S)`."""
        if block.to_negatives.shape[1] == 0:
            return Choice(block.own_columns, block.positive)
        nearest_negative = block.to_negatives.amin(dim=1, keepdim=True)
        # S = 1 - D / 2, so S_ap < S_an + epsilon is D_ap > D_an - 2 epsilon.
        return Choice(block.own_columns, block.positive & (block.to_own > nearest_negative - 2 * self.epsilon))


POSITIVES: dict[str, type[PositiveSelector]] = {
    "easy": EasyPositive,
    "hard": HardPositive,
    "random": RandomPositive,
    "all": AllPositives,
    "multi-similarity": MultiSimilarityPositives,
}


def positive_selector(selector: PositiveName | PositiveSelector) -> PositiveSelector:
    """The selector itself, or the default one of that name."""
    if not isinstance(selector, str):
        return selector
    if selector not in POSITIVES:
        raise ValueError(f"positives = {selector!r} is not a positive strategy; {nearest(selector, POSITIVES)}")
    return POSITIVES[selector]()


def _pick(block: Block, distances: Tensor, *, largest: bool) -> Choice:
    if distances.shape[1] == 0:
        return nothing(distances.new_zeros((len(distances), 1)))
    slot = distances.argmax(dim=1, keepdim=True) if largest else distances.argmin(dim=1, keepdim=True)
    return Choice(block.own_columns.gather(1, slot), block.positive.any(dim=1, keepdim=True))
