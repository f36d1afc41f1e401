"""Selectors of negatives: the items of other classes that an anchor is pushed away from."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Literal, get_args

import torch
from torch import Tensor

from trivet.distances import device, exact_order, squared_beyond
from trivet.mining.distance_block import DistanceBlock
from trivet.mining.selected_set import Bands, SelectedItems, SelectedSet, Selector, nothing
from trivet.runtime.arguments import AT_LEAST_ZERO, COUNT, brief_repr, check_name, nearest

__all__ = [
    "AllNegatives",
    "AllSemihardNegatives",
    "AllViolatingNegatives",
    "DistanceWeighted",
    "EasyNegative",
    "HardNegative",
    "MultiSimilarityNegatives",
    "RandomNegative",
    "SemihardHardestNegative",
    "SemihardNegative",
    "ViolatingNegative",
]

NegativeName = Literal[
    "random",
    "easy",
    "hard",
    "semihard",
    "semihard-hardest",
    "violating",
    "distance-weighted",
    "multi-similarity",
    "all",
    "all-semihard",
    "all-violating",
]
NEVER = 1e30  # minus the logarithm of a weight of what may not be drawn
Otherwise = Literal["random", "farthest", "drop"]
OTHERWISE: Mapping[str, Any] = {"check": partial(check_name, allowed=get_args(Otherwise))}
MOST_COUNTED = 64  # positives of an anchor for which counting is faster than sorting its negatives


class NegativeSelector(Selector):
    """A rule that picks negatives, given the chosen positives where it matters; see `Selector`.

    Attributes:
        selects_set: whether it gives a whole set of negatives per anchor (`SelectedSet`) rather than k for each
            positive.
        selects_band: whether it is a set for each positive.
        needs_positive: whether the choice depends on the positive.
    """

    selects_set: ClassVar[bool] = False
    selects_band: ClassVar[bool] = False
    needs_positive: ClassVar[bool] = False

    @abstractmethod
    def choose(self, block: DistanceBlock, positives: SelectedItems, uniform: Tensor) -> SelectedItems | SelectedSet:
        """k negatives per positive slot, `(B, S k)`, those of a slot side by side, or a set of negatives per anchor.

        `uniform` holds a number in [0, 1) for each negative slot if the selector is random.
        """


@dataclass(frozen=True)
class RandomNegative(NegativeSelector):
    """A negative drawn uniformly for each positive.

    Args:
        k: how many different ones for each positive.
    """

    k: int = field(default=1, metadata=COUNT)
    random = True

    def choose(self, block: DistanceBlock, positives: SelectedItems, uniform: Tensor) -> SelectedItems:
        return _uniform(block, uniform, self.k)


@dataclass(frozen=True)
class EasyNegative(NegativeSelector):
    """The farthest negative of the anchor (EPEN with easy positives, Xuan et al., section 6.1).

    Args:
        k: the k farthest.
    """

    k: int = field(default=1, metadata=COUNT)

    def choose(self, block: DistanceBlock, positives: SelectedItems, uniform: Tensor) -> SelectedItems:
        return _nearest(block, self.k, uniform, farthest=True)


@dataclass(frozen=True)
class HardNegative(NegativeSelector):
    """The nearest negative of the anchor (batch-hard, Hermans et al. 2017; EPHN with easy positives).

    Args:
        k: the k nearest.
    """

    k: int = field(default=1, metadata=COUNT)

    def choose(self, block: DistanceBlock, positives: SelectedItems, uniform: Tensor) -> SelectedItems:
        return _nearest(block, self.k, uniform)


@dataclass(frozen=True)
class SemihardNegative(NegativeSelector):
    """A negative drawn uniformly from the band d_ap < d_an < d_ap + margin, both strict (FaceNet, section 3.2).

    Args:
        margin: width of the band in the loss's distance; None takes the loss's margin.
        otherwise: when the band is empty, "random" draws among all negatives, "farthest" takes the k farthest of them
            and "drop" leaves the triplet out.
        k: how many different ones for each positive.
    """

    margin: float | None = field(default=None, metadata=AT_LEAST_ZERO)
    otherwise: Otherwise = field(default="random", metadata=OTHERWISE)
    k: int = field(default=1, metadata=COUNT)
    random = True
    needs_positive = True

    def choose(self, block: DistanceBlock, positives: SelectedItems, uniform: Tensor) -> SelectedItems:
        to_positive = block.squared_to(positives.index)
        band = _between(block, to_positive, _beyond(block, to_positive, self.margin), uniform, self.k)
        return _or_else(band, block, uniform, self.otherwise, self.k)


@dataclass(frozen=True)
class ViolatingNegative(NegativeSelector):
    """A negative drawn uniformly among d_an < d_ap + margin, harder than the positive or not.

    Le and Odobez 2018, eq. 28, call this random semi-hard.

    Args:
        margin: in the loss's distance; None takes the loss's margin.
        otherwise: when none violates the margin, "random" draws among all negatives, "farthest" takes the k farthest
            and "drop" leaves the triplet out.
        k: how many different ones for each positive.
    """

    margin: float | None = field(default=None, metadata=AT_LEAST_ZERO)
    otherwise: Otherwise = field(default="drop", metadata=OTHERWISE)
    k: int = field(default=1, metadata=COUNT)
    random = True
    needs_positive = True

    def choose(self, block: DistanceBlock, positives: SelectedItems, uniform: Tensor) -> SelectedItems:
        high = _beyond(block, block.squared_to(positives.index), self.margin)
        return _or_else(_between(block, None, high, uniform, self.k), block, uniform, self.otherwise, self.k)


@dataclass(frozen=True)
class SemihardHardestNegative(NegativeSelector):
    """The nearest negative strictly beyond the positive: d_an > d_ap (Le and Odobez 2018, eq. 29; Xuan et al., SHN).

    With all positives and otherwise="farthest" it is the semi-hard rule of TensorFlow's `triplet_semihard_loss` and of
    `BatchSemiHardTripletLoss` in sentence-transformers.

    Args:
        otherwise: when no negative lies beyond, "random" draws among all negatives, "farthest" takes the k farthest and
            "drop" leaves the triplet out.
        k: the k nearest of those beyond.
    """

    otherwise: Otherwise = field(default="drop", metadata=OTHERWISE)
    k: int = field(default=1, metadata=COUNT)
    needs_positive = True

    @property
    def random(self) -> bool:
        return self.otherwise == "random"

    def choose(self, block: DistanceBlock, positives: SelectedItems, uniform: Tensor) -> SelectedItems:
        to_positive = block.squared_to(positives.index)
        if block.size == 0:
            return nothing(uniform)
        if to_positive.shape[1] > MOST_COUNTED:
            choice = _Ranked(block).take(to_positive, self.k)
        else:
            choice = block.nearest_beyond(to_positive, self.k)
        return _or_else(choice, block, uniform, self.otherwise, self.k)


@dataclass(frozen=True)
class DistanceWeighted(NegativeSelector):
    """A negative drawn with probability proportional to 1 / q(d), q the density of distances on the unit sphere.

    q(d) ~ d^(k-2) (1 - d^2/4)^((k-3)/2) in dimension k. Weights are taken in log space and normalised for each anchor
    over the negatives it may choose, so no anchor is lost in high dimension. An anchor without a negative nearer than
    `upper_cutoff` draws uniformly, or is dropped.

    Args:
        cutoff: distances below it are weighted like it, in [0, 2].
        upper_cutoff: negatives at or beyond this distance are not chosen; None or infinity for no limit.
        cap: upper limit of 1 / q (unnormalised), or None.
        dimension: k, >= 2; None takes the embeddings' own.
        otherwise: "random", "farthest" or "drop", for an anchor without a negative below the upper cutoff.
        k: how many for each positive, drawn independently, so one can come twice.

    Source:
        Wu et al., "Sampling Matters in Deep Embedding Learning", ICCV 2017, section 3.
    """

    cutoff: float = 0.5
    upper_cutoff: float | None = 1.4
    cap: float | None = None
    dimension: int | None = None
    otherwise: Otherwise = field(default="random", metadata=OTHERWISE)
    k: int = field(default=1, metadata=COUNT)
    random = True
    unit_rows = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.cutoff <= 2:
            raise ValueError(f"cutoff must lie in (0, 2], a distance between unit vectors: got {self.cutoff}.")
        if self.upper_cutoff is not None and not self.upper_cutoff > 0:
            raise ValueError(f"upper_cutoff must be above 0, a distance, or infinite: got {self.upper_cutoff}.")
        if self.cap is not None and not self.cap > 0:
            raise ValueError(f"cap must be above 0, a weight: got {self.cap}.")
        if self.dimension is not None and self.dimension < 2:
            raise ValueError(f"dimension must be at least 2 for a density of distances: got {self.dimension}.")

    def choose(self, block: DistanceBlock, positives: SelectedItems, uniform: Tensor) -> SelectedItems:
        if block.size == 0:
            return nothing(uniform)
        weights = self.weights(block)
        chosen = (weights.amax(dim=1, keepdim=True) > 0).expand_as(uniform)
        choice = SelectedItems(exact_order.weighted(weights, uniform), chosen)
        # Here the k are independent, so are those of the fallback.
        return _or_else(choice, block, uniform, self.otherwise, 1)

    def weights(self, block: DistanceBlock) -> Tensor:
        """Weight of each reference `(B, M)`, at most 1; 0 for what may not be chosen, or is below 2e-35."""
        k = block.dimension if self.dimension is None else self.dimension
        # In place, pass by pass: log weight = (2 - k) log d - (k - 3) / 2 log(1 - d^2 / 4)
        squared = block.to_negatives.clamp(self.cutoff**2, 4)
        rest = (squared / -4).add_(1).clamp_min_(1e-8).log_()
        weights = squared.log_().mul_((2 - k) / 2).sub_(rest, alpha=(k - 3) / 2)
        if self.cap is not None:
            weights.clamp_max_(math.log(self.cap))
        limit = torch.inf if self.upper_cutoff is None else self.upper_cutoff**2
        # Far below all others where not allowed; not infinitely, with which exp takes 100 times as long.
        allowed = torch.lt(block.to_negatives, limit, out=rest)
        weights.add_(allowed.sub_(1), alpha=2 * NEVER)
        largest = weights.amax(dim=1, keepdim=True).clamp_min(-NEVER)
        return exact_order.relative_powers(weights, largest)


@dataclass(frozen=True)
class MultiSimilarityNegatives(NegativeSelector):
    """All negatives more similar than the least similar positive minus epsilon (Wang et al., CVPR 2019, eq. 6).

    Args:
        epsilon: a difference of cosine similarities.
        reference: "least-similar" compares with the least similar positive of the anchor's class, "chosen" with the
            least similar of its chosen positives.
    """

    epsilon: float = field(default=0.1, metadata=AT_LEAST_ZERO)
    reference: Literal["least-similar", "chosen"] = "least-similar"
    unit_rows = True
    selects_set = True
    needs_positive = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_name(self.reference, ("least-similar", "chosen"), name="reference")

    def choose(self, block: DistanceBlock, positives: SelectedItems, uniform: Tensor) -> SelectedSet:
        if self.reference == "chosen":
            reached, chosen, every = block.squared_to(positives.index), positives.chosen, positives.all_chosen
        else:
            reached, chosen, every = block.to_same_class, block.positive, block.slots_filled
        if reached.shape[1] == 0:
            farthest = reached.new_full((len(reached), 1), -torch.inf)
        else:
            reached = reached if every else reached.masked_fill(~chosen, -torch.inf)
            farthest = reached.amax(dim=1, keepdim=True)
        # S = 1 - D / 2, so S_an > S_ap - epsilon is D_an < D_ap + 2 epsilon; to what is no negative D is infinite.
        limit = farthest + 2 * self.epsilon
        block.settle_negatives(limit)
        near = exact_order.below(block.to_negatives, limit)
        count = near.sum(dim=1, keepdim=True).long()
        return SelectedSet(near.reciprocal_().sub_(1), count)


@dataclass(frozen=True)
class AllNegatives(NegativeSelector):
    """Every item of another class."""

    selects_set = True

    def choose(self, block: DistanceBlock, positives: SelectedItems, uniform: Tensor) -> SelectedSet:
        return SelectedSet(None, block.negative_count)


@dataclass(frozen=True)
class AllViolatingNegatives(NegativeSelector):
    """Every negative with d_an < d_ap + margin, harder than the positive or not: all that `ViolatingNegative` draws of.

    Args:
        margin: in the loss's distance; None takes the loss's margin.
    """

    margin: float | None = field(default=None, metadata=AT_LEAST_ZERO)
    selects_set = True
    selects_band = True
    needs_positive = True

    def choose(self, block: DistanceBlock, positives: SelectedItems, uniform: Tensor) -> SelectedSet:
        to_positive = block.squared_to(positives.index)
        high = _beyond(block, to_positive, self.margin)
        high = high if positives.all_chosen else high.masked_fill(~positives.chosen, -torch.inf)
        low = self._low(to_positive)
        block.settle_negatives(high if low is None else torch.cat([low, high], dim=1))
        if high.shape[1] > MOST_COUNTED:
            counts, holders = _ranked_bands(block.to_negatives, low, high)
        else:
            counts, holders = exact_order.band_counts(block.to_negatives, low, high)
        chosen = holders.clamp_max(1)
        count = chosen.sum(dim=1, keepdim=True).long()
        return SelectedSet(chosen.reciprocal_().sub_(1), count, Bands(low, high, counts, holders))

    def _low(self, to_positive: Tensor) -> Tensor | None:
        return None


@dataclass(frozen=True)
class AllSemihardNegatives(AllViolatingNegatives):
    """Every negative of the band d_ap < d_an < d_ap + margin, both strict: all that `SemihardNegative` draws of.

    With all positives, `TripletMarginMiner(type_of_triplets="semihard")` of pytorch-metric-learning.

    Args:
        margin: width of the band in the loss's distance; None takes the loss's margin.
    """

    def _low(self, to_positive: Tensor) -> Tensor | None:
        return to_positive


NEGATIVES: dict[str, type[NegativeSelector]] = {
    "random": RandomNegative,
    "easy": EasyNegative,
    "hard": HardNegative,
    "semihard": SemihardNegative,
    "semihard-hardest": SemihardHardestNegative,
    "violating": ViolatingNegative,
    "distance-weighted": DistanceWeighted,
    "multi-similarity": MultiSimilarityNegatives,
    "all": AllNegatives,
    "all-semihard": AllSemihardNegatives,
    "all-violating": AllViolatingNegatives,
}


def negative_selector(selector: NegativeName | NegativeSelector, *, sets_only: bool = False) -> NegativeSelector:
    """The selector itself, or the default one of that name; ValueError of others, and with `sets_only` of no set."""
    known = NEGATIVES.get(selector) if isinstance(selector, str) else selector
    if sets_only and not getattr(known, "selects_set", False):
        sets = [name for name, negatives in NEGATIVES.items() if negatives.selects_set]
        raise ValueError(
            f"negatives must be a set for each anchor: got {brief_repr(selector)}; pass one of {', '.join(sets)}, or "
            "use NCATripletLoss for one negative of each positive."
        )
    if isinstance(selector, NegativeSelector):
        return selector
    if not isinstance(selector, str) or selector not in NEGATIVES:
        raise ValueError(
            f"negatives = {brief_repr(selector)} is not a negative strategy; {nearest(selector, NEGATIVES)}"
        )
    return NEGATIVES[selector]()


class _Ranked:
    """The negatives of each anchor from near to far, so that a band of distances is a range of ranks."""

    def __init__(self, block: DistanceBlock) -> None:
        self._count = block.negatives
        self._squared, self._order = block.exact_to_negatives.sort(dim=1, stable=True)

    def between(self, low: Tensor | None, high: Tensor, uniform: Tensor, k: int) -> SelectedItems:
        """k different negatives strictly between, for each slot `(B, S)`."""
        stop = torch.minimum(torch.searchsorted(self._squared, high), self._count)
        start = torch.zeros_like(stop) if low is None else torch.searchsorted(self._squared, low, right=True)
        rank, chosen = _ranks(uniform, (stop - start).clamp_min(0), k)
        return self._at(start.repeat_interleave(k, dim=1) + rank, chosen)

    def take(self, low: Tensor, k: int) -> SelectedItems:
        """The k nearest strictly beyond `low (B, S)`."""
        start = torch.searchsorted(self._squared, low, right=True)
        rank = (start[:, :, None] + torch.arange(k, device=low.device)).flatten(1)
        return self._at(rank, rank < self._count)

    def _at(self, rank: Tensor, chosen: Tensor) -> SelectedItems:
        return SelectedItems(self._order.gather(1, rank.where(chosen, 0)), chosen)


def _ranked_bands(values: Tensor, low: Tensor | None, high: Tensor) -> tuple[Tensor, Tensor]:
    """As `exact_order.band_counts`, of sorted rows, where a band is a range of ranks."""
    ranked, order = values.sort(dim=1)
    stop = torch.searchsorted(ranked, high)
    start = torch.zeros_like(stop) if low is None else torch.searchsorted(ranked, low, right=True)
    counts = (stop - start).clamp_min_(0).to(values.dtype)
    ends = values.new_zeros(
        values.shape[0], values.shape[1] + 1
    )  # of the bands that begin at a rank less those that end
    ends.scatter_add_(1, start, counts.sign()).scatter_add_(1, stop, -counts.sign())
    return counts, torch.empty_like(values).scatter_(1, order, ends.cumsum(dim=1)[:, :-1])


def _beyond(block: DistanceBlock, to_positive: Tensor, margin: float | None) -> Tensor:
    return squared_beyond(to_positive, block.margin if margin is None else margin, block.distance)


def _between(block: DistanceBlock, low: Tensor | None, high: Tensor, uniform: Tensor, k: int) -> SelectedItems:
    """k different negatives whose squared distance lies strictly between `low` and `high (B, S)`."""
    if block.size == 0 or high.shape[1] == 0:
        return nothing(uniform)
    if high.shape[1] > MOST_COUNTED:
        return _Ranked(block).between(low, high, uniform, k)
    if block.rounded.exact is not None:
        block.settle_negatives(high if low is None else torch.cat([low, high], dim=1))
    ranges = exact_order.ranges(block.to_negatives, low, high)
    rank, chosen = _ranks(uniform, ranges.count, k)
    if k == 1:
        return SelectedItems(ranges.column(rank), chosen)
    # One slot after the other: the k choices of a slot are ranks in the same range.
    columns = [ranges.column(rank[:, choice::k]) for choice in range(k)]
    return SelectedItems(torch.stack(columns, dim=2).flatten(1), chosen)


def _uniform(block: DistanceBlock, uniform: Tensor, k: int) -> SelectedItems:
    """Negatives drawn uniformly, k different ones for each slot of the positive; no distance is computed."""
    slots, count = uniform.shape[1] // k, block.negative_count
    every = block.all_opposed and k == 1
    # How many negatives stand before it.
    if every:
        rank, chosen = (uniform * count).long(), block.all_true(slots)
    else:
        rank, chosen = _ranks(uniform, block.negatives.expand(-1, slots), k)
    column = block.excluded.negative_at(rank)
    return SelectedItems(column if every else column.where(chosen, 0), chosen, every)


def _ranks(uniform: Tensor, count: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """k different ranks below `count (B, S)` for each slot, `(B, S k)`, and which of them exist."""
    uniform, count = uniform.reshape(*count.shape, k), count.long()
    taken: list[Tensor] = []
    for choice in range(k):
        left = (count - choice).clamp_min_(0) if choice else count
        rank = (uniform[:, :, choice] * left).long()  # downwards: never rounded up to left
        # The rank counts those not taken: step over the taken ones, from the lowest.
        for other in torch.stack(taken, dim=0).sort(dim=0).values if taken else []:
            rank = rank + (rank >= other)
        taken.append(rank)
    if k == 1:
        return taken[0], count > 0
    chosen = torch.arange(k, device=count.device) < count[:, :, None]
    return torch.stack(taken, dim=2).flatten(1), chosen.flatten(1)


def _nearest(block: DistanceBlock, k: int, shape_of: Tensor, *, farthest: bool = False) -> SelectedItems:
    """The k nearest or farthest negatives, the same for every positive slot."""
    if block.size == 0:
        return nothing(shape_of)
    index, slots = block.nearest_negatives(k, farthest=farthest), shape_of.shape[1] // k
    index = index if slots == 1 else index.repeat(1, slots)
    if k == 1 and block.all_opposed:
        return SelectedItems(index, block.all_true(slots), all_chosen=True)
    return SelectedItems(index, (torch.arange(k, device=index.device) < block.negatives).repeat(1, slots))


def _or_else(
    choice: SelectedItems, block: DistanceBlock, uniform: Tensor, otherwise: Otherwise, k: int
) -> SelectedItems:
    """The choice, or where a slot of the positive has nothing, other negatives: drawn among all, or the farthest."""
    if otherwise == "drop":
        return choice
    if device.read_freely(choice.chosen) and bool(choice.chosen.all()):
        return replace(choice, all_chosen=True)
    if block.size == 0:
        return choice
    drawn = otherwise == "random"
    fallback = _uniform(block, uniform, k) if drawn else _nearest(block, k, choice.index, farthest=True)
    empty = ~choice.chosen
    if k > 1:
        empty = empty.view(len(empty), -1, k).all(dim=2).repeat_interleave(k, dim=1)
    index = fallback.index.where(empty, choice.index)
    if fallback.all_chosen:
        return SelectedItems(index, fallback.chosen, all_chosen=True)
    return SelectedItems(index, choice.chosen | (fallback.chosen & empty))
