"""Which items of its own class an anchor is pulled towards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol

import torch
from torch import Tensor

from trivet.mining.block import Block, Choice, farthest_of, nearest_of, nothing, uniform_of
from trivet.mining.names import nearest

PositiveName = Literal["easy", "hard", "random", "all", "multi-similarity"]


class PositiveSelector(Protocol):
    """A rule that picks columns in a row of the distance matrix.

    Attributes:
        pairwise: whether every positive may be chosen; then there are as many slots as the largest class has items.
        random: whether it uses the uniform numbers it is given.
        unit_rows: whether it means something for embeddings of unit norm only.
    """

    pairwise: ClassVar[bool]
    random: ClassVar[bool]
    unit_rows: ClassVar[bool]

    def choose(self, block: Block, uniform: Tensor) -> Choice:
        """The positives `(B, S)` of each anchor, one for each slot of `uniform (B, S)`."""
        ...


@dataclass(frozen=True)
class EasyPositive:
    """The nearest item of the same class (easy positive sampling, Levi et al., ICCV 2021, section 4.3)."""

    pairwise: ClassVar[bool] = False
    random: ClassVar[bool] = False
    unit_rows: ClassVar[bool] = False

    def choose(self, block: Block, uniform: Tensor) -> Choice:
        """The nearest positive, `(B, 1)`."""
        return nearest_of(block, block.positive)


@dataclass(frozen=True)
class HardPositive:
    """The farthest item of the same class (batch-hard, Hermans et al. 2017)."""

    pairwise: ClassVar[bool] = False
    random: ClassVar[bool] = False
    unit_rows: ClassVar[bool] = False

    def choose(self, block: Block, uniform: Tensor) -> Choice:
        """The farthest positive, `(B, 1)`."""
        return farthest_of(block, block.positive)


@dataclass(frozen=True)
class RandomPositive:
    """An item of the same class drawn uniformly."""

    pairwise: ClassVar[bool] = False
    random: ClassVar[bool] = True
    unit_rows: ClassVar[bool] = False

    def choose(self, block: Block, uniform: Tensor) -> Choice:
        """One positive, `(B, 1)`."""
        return uniform_of(block.positive, uniform)


@dataclass(frozen=True)
class AllPositives:
    """Every item of the same class, each with negatives of its own."""

    pairwise: ClassVar[bool] = True
    random: ClassVar[bool] = False
    unit_rows: ClassVar[bool] = False

    def choose(self, block: Block, uniform: Tensor) -> Choice:
        """All positives in column order, `(B, S)`."""
        return _listed(block.positive, uniform)


@dataclass(frozen=True)
class MultiSimilarityPositives:
    """Positives less similar than the most similar negative plus epsilon (Wang et al., CVPR 2019, eq. 7).

    An anchor without a negative gives none.
    """

    epsilon: float = 0.1
    pairwise: ClassVar[bool] = True
    random: ClassVar[bool] = False
    unit_rows: ClassVar[bool] = True

    def choose(self, block: Block, uniform: Tensor) -> Choice:
        """The mined positives in column order, `(B, S)`."""
        if block.squared.shape[1] == 0:
            return nothing(uniform)
        similarities = block.similarities
        hardest = similarities.masked_fill(~block.negative, -torch.inf).amax(dim=1, keepdim=True)
        return _listed(block.positive & (similarities < hardest + self.epsilon), uniform)


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


def _listed(mask: Tensor, uniform: Tensor) -> Choice:
    """The columns of `mask (B, M)` packed to the left of the slots of `uniform (B, S)`, in order."""
    slots = uniform.shape[1]
    slot = (mask.cumsum(dim=1) - 1).where(mask, slots)  # (B, M); the last, extra slot takes all that is not chosen
    columns = torch.arange(mask.shape[1], device=mask.device).expand_as(mask)
    index = columns.new_zeros((len(mask), slots + 1)).scatter_(1, slot, columns)[:, :slots]
    chosen = torch.arange(slots, device=mask.device) < mask.sum(dim=1, keepdim=True)
    return Choice(index.where(chosen, 0), chosen)
