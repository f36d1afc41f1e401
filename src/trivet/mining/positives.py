"""Selectors of positives: the items of its own class that an anchor is pulled towards."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
from torch import Tensor

from trivet.mining.distance_block import DistanceBlock
from trivet.mining.selected_set import SelectedItems, Selector, nothing
from trivet.runtime.arguments import AT_LEAST_ZERO, COUNT, brief_repr, nearest

__all__ = [
    "AllPositives",
    "EasyPositive",
    "HardPositive",
    "MultiSimilarityPositives",
    "RandomPositive",
    "SemihardPositive",
]

PositiveName = Literal["easy", "hard", "semihard", "random", "all", "multi-similarity"]


class PositiveSelector(Selector):
    """A rule that picks among the references of the anchor's class; see `Selector`.

    Attributes:
        pairwise: whether every positive may be chosen, in the slots of `DistanceBlock.same_class`; otherwise `k` are.
        needs_negative: whether it needs the chosen negative, which is then chosen first, or one for each slot.
    """

    pairwise: ClassVar[bool] = False
    needs_negative: ClassVar[bool] = False

    def slots(self, block: DistanceBlock) -> int:
        """Return how many numbers for each anchor it uses if it is random: one for each item of the class."""
        return block.same_class.shape[1]

    @abstractmethod
    def choose(self, block: DistanceBlock, uniform: Tensor, negatives: SelectedItems | None) -> SelectedItems:
        """The positives `(B, k)`, or `(B, S)` of a pairwise selector.

        `uniform (B, slots)` if it is random; `negatives`, `(B, 1)` or one for each slot, if it is to know the negative.
        """


@dataclass(frozen=True)
class _OfTheClass(PositiveSelector):
    """A rule that considers the anchor's class alone.

    Args:
        max_positive_similarity: positives with a larger cosine similarity are left out, such as copies of the anchor.
    """

    max_positive_similarity: float | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        limit = self.max_positive_similarity
        if limit is not None and not -1 <= limit < 1:
            raise ValueError(
                f"max_positive_similarity must lie in [-1, 1), a cosine similarity: got {limit}; 0.9999 "
                "excludes copies of the anchor, None excludes nothing."
            )

    @property
    def unit_rows(self) -> bool:
        return self.max_positive_similarity is not None

    def _allowed(self, block: DistanceBlock) -> Tensor:
        """Slots of `DistanceBlock.same_class (B, S)` that hold a positive that is not too similar."""
        limit = self.max_positive_similarity
        if limit is None:
            return block.positive
        return block.positive & (block.to_same_class >= 2 * (1 - limit))  # S = 1 - D / 2 between unit rows


@dataclass(frozen=True)
class EasyPositive(_OfTheClass):
    """The nearest item of the same class (easy positive sampling, Levi et al., ICCV 2021, section 4.3).

    Args:
        k: the k nearest, each with negatives of its own.
    """

    k: int = field(default=1, metadata=COUNT)

    def choose(self, block: DistanceBlock, uniform: Tensor, negatives: SelectedItems | None) -> SelectedItems:
        return _nearest(block, block.to_same_class, self._allowed(block), self.k)


@dataclass(frozen=True)
class HardPositive(_OfTheClass):
    """The farthest item of the same class (batch-hard, Hermans et al. 2017).

    Args:
        k: the k farthest, each with negatives of its own.
    """

    k: int = field(default=1, metadata=COUNT)

    def choose(self, block: DistanceBlock, uniform: Tensor, negatives: SelectedItems | None) -> SelectedItems:
        return _nearest(block, -block.to_same_class, self._allowed(block), self.k)


@dataclass(frozen=True)
class SemihardPositive(_OfTheClass):
    """The farthest item of the same class that is still nearer than the chosen negative (strictly).

    The counterpart of the semi-hard negative: the hardest positive of those that are on the right side. The negative is
    chosen first. One whose rule needs the positive, such as "semihard", is chosen for every item of the class, and goes
    with the farthest item that is nearer than its own: each of the two is then semi-hard beside the other.
    """

    needs_negative = True

    def choose(self, block: DistanceBlock, uniform: Tensor, negatives: SelectedItems | None) -> SelectedItems:
        assert negatives is not None
        nearer = (block.to_same_class < block.squared_to(negatives.index)) & negatives.chosen
        return _nearest(block, -block.to_same_class, self._allowed(block) & nearer, 1)


@dataclass(frozen=True)
class RandomPositive(_OfTheClass):
    """An item of the same class drawn uniformly.

    Args:
        k: how many different ones, each with negatives of its own.
    """

    k: int = field(default=1, metadata=COUNT)
    random = True

    def choose(self, block: DistanceBlock, uniform: Tensor, negatives: SelectedItems | None) -> SelectedItems:
        return _nearest(block, uniform, self._allowed(block), self.k)


@dataclass(frozen=True)
class AllPositives(_OfTheClass):
    """Every item of the same class, each with negatives of its own."""

    pairwise = True

    def choose(self, block: DistanceBlock, uniform: Tensor, negatives: SelectedItems | None) -> SelectedItems:
        allowed = self._allowed(block)
        return SelectedItems(
            block.same_class_columns, allowed, all_chosen=block.slots_filled and allowed is block.positive
        )


@dataclass(frozen=True)
class MultiSimilarityPositives(PositiveSelector):
    """Positives less similar than the most similar negative plus epsilon (Wang et al., CVPR 2019, eq. 7).

    An anchor without a negative gives none.
    """

    epsilon: float = field(default=0.1, metadata=AT_LEAST_ZERO)
    pairwise = True
    unit_rows = True

    def choose(self, block: DistanceBlock, uniform: Tensor, negatives: SelectedItems | None) -> SelectedItems:
        if block.size == 0:
            return SelectedItems(block.same_class_columns, block.positive)
        # S = 1 - D / 2, so S_ap < S_an + epsilon is D_ap > D_an - 2 epsilon.
        hard = block.to_same_class > block.to_nearest - 2 * self.epsilon
        return SelectedItems(block.same_class_columns, hard if block.slots_filled else block.positive & hard)


POSITIVES: dict[str, type[PositiveSelector]] = {
    "easy": EasyPositive,
    "hard": HardPositive,
    "semihard": SemihardPositive,
    "random": RandomPositive,
    "all": AllPositives,
    "multi-similarity": MultiSimilarityPositives,
}


def positive_selector(selector: PositiveName | PositiveSelector) -> PositiveSelector:
    """The selector itself, or the default one of that name."""
    if isinstance(selector, PositiveSelector):
        return selector
    if not isinstance(selector, str) or selector not in POSITIVES:
        raise ValueError(
            f"positives = {brief_repr(selector)} is not a positive strategy; {nearest(selector, POSITIVES)}"
        )
    return POSITIVES[selector]()


def _nearest(block: DistanceBlock, ranking: Tensor, allowed: Tensor, k: int) -> SelectedItems:
    """The `k` allowed slots with the smallest `ranking (B, S)`, as columns; the lowest index wins a tie."""
    slots = ranking.shape[1]
    if slots == 0:
        return nothing(ranking.new_zeros((len(ranking), k)))
    if k == 1 and allowed is block.positive and block.slots_filled:
        slot = ranking.argmin(dim=1, keepdim=True)
        return SelectedItems(block.same_class_columns.gather(1, slot), block.all_true(1), all_chosen=True)
    ranking = ranking.masked_fill(~allowed, torch.inf)
    if k == 1:
        slot = ranking.argmin(dim=1, keepdim=True)
        return SelectedItems(block.same_class_columns.gather(1, slot), allowed.any(dim=1, keepdim=True))
    order = ranking.argsort(dim=1, stable=True)[:, :k]
    slot = torch.cat([order, order[:, :1].expand(-1, k - order.shape[1])], dim=1)
    rank = torch.arange(k, device=slot.device)
    return SelectedItems(block.same_class_columns.gather(1, slot), rank < allowed.sum(dim=1, keepdim=True))
