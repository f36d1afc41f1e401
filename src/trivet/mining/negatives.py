"""Which items of other classes an anchor is pushed away from."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol, get_args

import torch
from torch import Tensor

from trivet.mining.block import Block, Choice, Everyone, nothing, rank_of, uniform_negative
from trivet.mining.names import check_at_least, check_name, nearest

NegativeName = Literal[
    "random",
    "hard",
    "semihard",
    "semihard-hardest",
    "violating",
    "distance-weighted",
    "multi-similarity",
    "all",
]
Otherwise = Literal["random", "drop"]


class NegativeSelector(Protocol):
    """A rule that picks negatives, given the chosen positives where it matters.

    Attributes:
        random: whether it uses the uniform numbers it is given.
        unit_rows: whether it means something for embeddings of unit norm only.
        listed: whether it gives a whole set of negatives per anchor (`Everyone`) rather than one per positive.
    """

    unit_rows: ClassVar[bool]
    listed: ClassVar[bool]

    @property
    def random(self) -> bool: ...

    def choose(self, block: Block, positives: Choice, uniform: Tensor) -> Choice | Everyone:
        """One negative per positive slot, `(B, S)`, or a set of negatives per anchor, `(B, M)`.

        `uniform` holds a number in [0, 1) for each positive slot if the selector is random.
        """
        ...


@dataclass(frozen=True)
class RandomNegative:
    """A negative drawn uniformly for each positive."""

    random: ClassVar[bool] = True
    unit_rows: ClassVar[bool] = False
    listed: ClassVar[bool] = False

    def choose(self, block: Block, positives: Choice, uniform: Tensor) -> Choice:
        """One negative per positive slot, `(B, S)`."""
        return uniform_negative(block, uniform)


@dataclass(frozen=True)
class HardNegative:
    """The nearest negative of the anchor (batch-hard, Hermans et al. 2017; EPHN with easy positives)."""

    random: ClassVar[bool] = False
    unit_rows: ClassVar[bool] = False
    listed: ClassVar[bool] = False

    def choose(self, block: Block, positives: Choice, uniform: Tensor) -> Choice:
        """The same negative for every positive slot, `(B, S)`."""
        if block.to_negatives.shape[1] == 0:
            return nothing(positives.index)
        index = block.to_negatives.argmin(dim=1, keepdim=True)  # the lowest of tied ones
        return Choice(index.expand_as(positives.index), (block.negatives > 0).expand_as(positives.index))


@dataclass(frozen=True)
class SemihardNegative:
    """A negative drawn uniformly from the band d_ap < d_an < d_ap + margin, both strict (FaceNet, section 3.2).

    Args:
        margin: width of the band in the loss's distance; None takes the loss's margin.
        otherwise: when the band is empty, "random" draws among all negatives and "drop" leaves the triplet out.
    """

    margin: float | None = None
    otherwise: Otherwise = "random"
    random: ClassVar[bool] = True
    unit_rows: ClassVar[bool] = False
    listed: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_name(self.otherwise, get_args(Otherwise), name="otherwise")
        if self.margin is not None:
            check_at_least(0, self.margin, name="margin")

    def choose(self, block: Block, positives: Choice, uniform: Tensor) -> Choice:
        """One negative per positive slot, `(B, S)`."""
        ranked, to_positive = _Ranked(block), _squared_to(block, positives)
        margin = block.margin if self.margin is None else self.margin
        start, stop = ranked.after(to_positive), ranked.before(block.beyond(to_positive, margin))
        return _or_else(ranked.draw(start, stop, uniform), block, uniform, self.otherwise)


@dataclass(frozen=True)
class ViolatingNegative:
    """A negative drawn uniformly among d_an < d_ap + margin, harder than the positive or not.

    Le and Odobez 2018, eq. 28, call this random semi-hard.

    Args:
        margin: in the loss's distance; None takes the loss's margin.
        otherwise: when none violates the margin, "random" draws among all negatives, "drop" leaves the triplet out.
    """

    margin: float | None = None
    otherwise: Otherwise = "drop"
    random: ClassVar[bool] = True
    unit_rows: ClassVar[bool] = False
    listed: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_name(self.otherwise, get_args(Otherwise), name="otherwise")
        if self.margin is not None:
            check_at_least(0, self.margin, name="margin")

    def choose(self, block: Block, positives: Choice, uniform: Tensor) -> Choice:
        """One negative per positive slot, `(B, S)`."""
        ranked = _Ranked(block)
        margin = block.margin if self.margin is None else self.margin
        stop = ranked.before(block.beyond(_squared_to(block, positives), margin))
        return _or_else(ranked.draw(torch.zeros_like(stop), stop, uniform), block, uniform, self.otherwise)


@dataclass(frozen=True)
class SemihardHardestNegative:
    """The nearest negative strictly beyond the positive: d_an > d_ap (Le and Odobez 2018, eq. 29; Xuan et al., SHN).

    Args:
        otherwise: when no negative lies beyond, "random" draws among all negatives, "drop" leaves the triplet out.
    """

    otherwise: Otherwise = "drop"
    unit_rows: ClassVar[bool] = False
    listed: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_name(self.otherwise, get_args(Otherwise), name="otherwise")

    @property
    def random(self) -> bool:
        """Only the fallback is random."""
        return self.otherwise == "random"

    def choose(self, block: Block, positives: Choice, uniform: Tensor) -> Choice:
        """One negative per positive slot, `(B, S)`."""
        ranked = _Ranked(block)
        start = ranked.after(_squared_to(block, positives))
        found = ranked.draw(start, block.negatives, torch.zeros_like(start, dtype=torch.float64))
        return _or_else(found, block, uniform, self.otherwise)


@dataclass(frozen=True)
class DistanceWeighted:
    """A negative drawn with probability proportional to 1 / q(d), q the density of distances on the unit sphere.

    q(d) ~ d^(k-2) (1 - d^2/4)^((k-3)/2) in dimension k. Weights are taken in log space and normalised for each anchor
    over the negatives it may choose, so no anchor is lost in high dimension. An anchor without a negative nearer than
    `upper_cutoff` draws uniformly, or is dropped.

    Args:
        cutoff: distances below it are weighted like it, in [0, 2].
        upper_cutoff: negatives at or beyond this distance are not chosen; None or infinity for no limit.
        cap: upper limit of 1 / q (unnormalised), or None.
        dimension: k, >= 2; None takes the embeddings' own.
        otherwise: "random" or "drop", for an anchor without a negative below the upper cutoff.

    Source:
        Wu et al., "Sampling Matters in Deep Embedding Learning", ICCV 2017, section 3.
    """

    cutoff: float = 0.5
    upper_cutoff: float | None = 1.4
    cap: float | None = None
    dimension: int | None = None
    otherwise: Otherwise = "random"
    random: ClassVar[bool] = True
    unit_rows: ClassVar[bool] = True
    listed: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_name(self.otherwise, get_args(Otherwise), name="otherwise")
        if not 0 < self.cutoff <= 2:
            raise ValueError(f"cutoff must lie in (0, 2], a distance between unit vectors: got {self.cutoff}.")
        if self.upper_cutoff is not None and not self.upper_cutoff > 0:
            raise ValueError(f"upper_cutoff must be above 0, a distance, or infinite: got {self.upper_cutoff}.")
        if self.cap is not None and not self.cap > 0:
            raise ValueError(f"cap must be above 0, a weight: got {self.cap}.")
        if self.dimension is not None and self.dimension < 2:
            raise ValueError(f"dimension must be at least 2 for a density of distances: got {self.dimension}.")

    def choose(self, block: Block, positives: Choice, uniform: Tensor) -> Choice:
        """One negative per positive slot, `(B, S)`."""
        if block.to_negatives.shape[1] == 0:
            return nothing(uniform)
        cumulative = self.probabilities(block).cumsum(dim=1)  # (B, M)
        total = cumulative[:, -1:]
        index = torch.searchsorted(cumulative, uniform.clamp_max(1 - 2**-40) * total, right=True)
        chosen = (total > 0).expand_as(uniform)
        return _or_else(Choice(index.where(chosen, 0), chosen), block, uniform, self.otherwise)

    def probabilities(self, block: Block) -> Tensor:
        """Probability of each reference `(B, M)`, float64; rows of anchors that have nothing to choose are zero."""
        if block.to_negatives.shape[1] == 0:
            return block.to_negatives.double()
        k = block.dimension if self.dimension is None else self.dimension
        distances = block.to_negatives.double().sqrt()  # infinite where there is no negative
        allowed = distances < (torch.inf if self.upper_cutoff is None else self.upper_cutoff)
        x = distances.clamp_min(self.cutoff)
        log_weights = (2 - k) * x.log() - (k - 3) / 2 * (1 - x.square() / 4).clamp_min(1e-8).log()
        if self.cap is not None:
            log_weights = log_weights.clamp_max(math.log(self.cap))
        log_weights = log_weights.masked_fill(~allowed, -torch.inf)
        return torch.softmax(log_weights, dim=1).masked_fill(~allowed, 0)


@dataclass(frozen=True)
class MultiSimilarityNegatives:
    """All negatives more similar than the least similar positive minus epsilon (Wang et al., CVPR 2019, eq. 6).

    Args:
        epsilon: a difference of cosine similarities.
        reference: "least-similar" compares with the least similar positive of the anchor's class, "chosen" with the
            least similar of its chosen positives.
    """

    epsilon: float = 0.1
    reference: Literal["least-similar", "chosen"] = "least-similar"
    random: ClassVar[bool] = False
    unit_rows: ClassVar[bool] = True
    listed: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_at_least(0, self.epsilon, name="epsilon")
        check_name(self.reference, ("least-similar", "chosen"), name="reference")

    def choose(self, block: Block, positives: Choice, uniform: Tensor) -> Everyone:
        """The mined negatives, `(B, M)`; none for an anchor without a positive."""
        if self.reference == "chosen":
            if positives.index.shape[1] == 0:
                return Everyone(torch.zeros_like(block.negative))
            reached, chosen = _squared_to(block, positives), positives.chosen
        else:
            if block.own.shape[1] == 0:
                return Everyone(torch.zeros_like(block.negative))
            reached, chosen = block.to_own, block.positive
        farthest = reached.masked_fill(~chosen, -torch.inf).amax(dim=1, keepdim=True)
        # S = 1 - D / 2, so S_an > S_ap - epsilon is D_an < D_ap + 2 epsilon; to what is no negative D is infinite.
        return Everyone(block.to_negatives < farthest + 2 * self.epsilon)


@dataclass(frozen=True)
class AllNegatives:
    """Every item of another class."""

    random: ClassVar[bool] = False
    unit_rows: ClassVar[bool] = False
    listed: ClassVar[bool] = True

    def choose(self, block: Block, positives: Choice, uniform: Tensor) -> Everyone:
        """All negatives, `(B, M)`."""
        return Everyone(block.negative)


NEGATIVES: dict[str, type[NegativeSelector]] = {
    "random": RandomNegative,
    "hard": HardNegative,
    "semihard": SemihardNegative,
    "semihard-hardest": SemihardHardestNegative,
    "violating": ViolatingNegative,
    "distance-weighted": DistanceWeighted,
    "multi-similarity": MultiSimilarityNegatives,
    "all": AllNegatives,
}


def negative_selector(selector: NegativeName | NegativeSelector) -> NegativeSelector:
    """The selector itself, or the default one of that name."""
    if not isinstance(selector, str):
        return selector
    if selector not in NEGATIVES:
        raise ValueError(f"negatives = {selector!r} is not a negative strategy; {nearest(selector, NEGATIVES)}")
    return NEGATIVES[selector]()


class _Ranked:
    """The negatives of each anchor from near to far, so that a band of distances is a range of ranks."""

    def __init__(self, block: Block) -> None:
        self._count = block.negatives
        self._squared, self._order = block.to_negatives.sort(dim=1, stable=True)

    def after(self, squared: Tensor) -> Tensor:
        """Rank of the first negative strictly beyond `squared (B, S)`."""
        return torch.searchsorted(self._squared, squared, right=True)

    def before(self, squared: Tensor) -> Tensor:
        """Number of negatives strictly nearer than `squared (B, S)`."""
        return torch.searchsorted(self._squared, squared)

    def draw(self, start: Tensor, stop: Tensor, uniform: Tensor) -> Choice:
        """A negative of rank in [start, stop), drawn uniformly: rank `start` where the uniform number is 0."""
        if self._order.shape[1] == 0:
            return nothing(uniform)
        size = (torch.minimum(stop, self._count) - start).clamp_min(0)
        chosen = size > 0
        return Choice(self._order.gather(1, (start + rank_of(uniform, size)).where(chosen, 0)), chosen)


def _squared_to(block: Block, positives: Choice) -> Tensor:
    """Squared distances `(B, S)` to the positives, right for near-duplicates."""
    if positives.index is block.own_columns:
        return block.to_own
    if len(block.references) == 0:
        return block.to_own.new_zeros(positives.index.shape)
    return (block.anchors.detach()[:, None] - block.references.detach()[positives.index]).square().sum(dim=-1)


def _or_else(found: Choice, block: Block, uniform: Tensor, otherwise: Otherwise) -> Choice:
    if otherwise == "drop":
        return found
    fallback = uniform_negative(block, uniform)
    return Choice(found.index.where(found.chosen, fallback.index), found.chosen | fallback.chosen)
