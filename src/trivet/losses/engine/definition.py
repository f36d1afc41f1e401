"""Definition of a loss: its options, its declarations and its formula, all that the engine reads of it."""

# No postponed annotations: signatures of losses in other files hold these types.
from abc import ABC, abstractmethod
from dataclasses import InitVar, dataclass, field
from typing import Any, ClassVar, Literal, TypeVar, cast, dataclass_transform

import torch

from trivet.distances import Distance
from trivet.losses.engine.block_view import BlockView, LossSum, LossTerms
from trivet.mining.batch import Batch
from trivet.mining.index_tuples import Disjoint
from trivet.mining.negatives import NegativeName, NegativeSelector
from trivet.mining.positives import PositiveName, PositiveSelector
from trivet.mining.strategy import Strategy
from trivet.runtime.arguments import explain_arguments

Reduction = Literal["mean", "mean-active", "max", "sum", "anchors", "objective"]
Term = Literal["triplet", "pair", "set", "proxy"]

Definition = TypeVar("Definition")


@dataclass_transform(kw_only_default=True, eq_default=False, field_specifiers=(field,))
def loss_options(definition: type[Definition]) -> type[Definition]:
    """Make the annotated names of a loss the keyword arguments of its constructor, beside those of `LossDefinition`.

    One with `field(default=..., init=False)` is fixed: no argument of this loss. `metadata=ABOVE_ZERO` has it checked.
    """
    made: Any = dataclass(kw_only=True, eq=False, repr=False)(definition)
    made.__init__ = explain_arguments(made.__init__)
    return cast(type[Definition], made)


@loss_options
class LossDefinition(ABC):
    """Options, declarations and formula of a loss. Subclasses of `EmbeddingLoss` add options and give the formula.

    Args:
        margin: the margin the bands of the selectors use by default.
        distance: of the formula and of the choices; "cosine" is 1 - S, which always normalises.
        positives, negatives: a selector, or the name of one.
        normalize: divide rows by their norm first.
        reduction: over what the sum of the terms is divided, see `reductions` of the subclass. "max" keeps, after
            trimming, only those equal to the largest term of the batch, and needs a formula that gives `LossTerms`.
        trim: share of the terms, those with the largest loss, that is left out before any reduction; in [0, 1). With a
            set of negatives each triplet of a block is then held.
        trim_positives_only: `trim` leaves out positives instead, those that pull hardest; what a term has beside its
            positive stays.
        disjoint: each item of the batch in at most one triplet, anchors by index (True) or in a "random" order; for one
            positive and one negative per anchor.
        block_size: anchors per block; None chooses one by memory.
        generator: seeds the random choices; None takes torch's global generator.

    Attributes:
        reductions: the ones the loss takes.
        term: what a term is about: a "triplet"; a "pair", where positives and negatives count apart; the "set" of what
            was chosen for an anchor; or an item and the "proxy" of its class, where no two items are compared.
        needs_set: whether the negatives must be a set, not one or some for each positive.
        sums_sets: whether `set_sum` gives the sum over a set of negatives without a term for each of them.
        negative_weight: how much a negative of a set counts: by its "distance", the same "within-reach", or "always".
        nearest_is_hardest: whether no term of a set is larger than that with the nearest negative.
        third_side: whether the formula reads the distances between positives and negatives, too.
        objective_power: the paper's objective divides by N M to this power, for the reduction "objective".
        parameter: the name of what is learned, if anything is.
        parameters_per: "class" or "sample" where there is one for each, chosen by number; else None.
        parameter_weight: times the sum of the parameters of the batch's classes or samples, each once, is added.
        norm_weight: times the mean of |x|^2 over the batch is added, and over the references that are no item of it;
            references of a `with_batch` call do not count.
        references_as_anchors: whether the references have the terms, each against all items of the batch.
        not_settings: arguments that the settings of a run do not have: it gives them, another setting covers
            them, or they say nothing about classes.
    """

    reductions: ClassVar[tuple[Reduction, ...]]
    term: ClassVar[Term] = "triplet"
    needs_set: ClassVar[bool] = False
    not_settings: ClassVar[frozenset[str]] = frozenset(
        {"num_classes", "num_samples", "embedding_dim", "block_size", "generator"}
    )
    objective_power: ClassVar[int] = 1
    parameter: ClassVar[str] = ""
    references_as_anchors: ClassVar[bool] = False
    sums_sets: bool = field(default=False, init=False)
    negative_weight: Literal["distance", "within-reach", "always"] = field(default="distance", init=False)
    nearest_is_hardest: bool = field(default=False, init=False)
    parameters_per: Literal["class", "sample"] | None = field(default=None, init=False)
    parameter_weight: float = field(default=0.0, init=False)
    norm_weight: float = field(default=0.0, init=False)
    third_side: bool = field(default=False, init=False)

    margin: float
    distance: Distance
    positives: PositiveName | PositiveSelector
    negatives: NegativeName | NegativeSelector
    normalize: bool
    reduction: Reduction
    trim: float = 0.0
    trim_positives_only: bool = False
    disjoint: Disjoint = False
    block_size: int | None = None
    generator: InitVar[torch.Generator | None] = None
    strategy: Strategy = field(init=False)

    @abstractmethod
    def __post_init__(self, generator: torch.Generator | None) -> None:
        """Check the options and prepare what depends on them."""

    @abstractmethod
    def formula(self, block: BlockView) -> LossTerms | LossSum:
        """The loss of a block of anchors."""

    def set_sum(self, block: BlockView) -> LossSum:
        """The sum of the `formula` over a set of negatives for each anchor; for losses that declare `sums_sets`."""
        raise NotImplementedError(f"{type(self).__name__} must give the sum over a set, as it declares sums_sets.")

    @property
    def sums_only(self) -> bool:
        """Return whether the sums over sets of negatives are all that is needed, and can be had."""
        possible = self.sums_sets and (self.sums_bands or not self.strategy.negatives.selects_band)
        return possible and self.trim == 0 and self.reduction != "max"

    @property
    def sums_bands(self) -> bool:
        """Return whether `set_sum` gives the sum where each positive has a set of its own, too."""
        return self.term == "pair"  # of which each item counts once

    def evaluate(self, block: BlockView) -> LossTerms | LossSum:
        """The terms of a block, or their sum where no more is needed."""
        return self.set_sum(block) if self.sums_only and not block.paired else self.formula(block)

    def numbers(self, batch: Batch) -> int:
        """Return about how many numbers the formula stores for each anchor beside the choice, for a block's size."""
        slots = batch.adjacency.most if self.strategy.positives.pairwise else 1
        third = 2 * slots * batch.dimension if self.third_side else 0
        if self.term != "triplet" or self.sums_only or not self.strategy.selects_set:
            return third
        return third + slots * len(batch.references)
