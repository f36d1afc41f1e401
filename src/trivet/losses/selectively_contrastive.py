"""The selectively contrastive triplet loss."""

from __future__ import annotations

import math

import torch

from trivet.arguments import check_at_least
from trivet.losses.chosen import chosen_triplets, log_one_plus_exp, triplet_terms, triplets_held
from trivet.mining import NegativeName, NegativeSelector, PositiveName, PositiveSelector
from trivet.mining.batch import Batch
from trivet.mining.given import Disjoint
from trivet.rows import Reduction, RowLoss, Rows, RowTerms


def selectively_contrastive_rows(rows: Rows, *, hard_weight: float, temperature: float) -> RowTerms:
    """hard_weight S_an for each chosen triplet with S_an > S_ap, log(1 + exp((S_an - S_ap) / temperature)) for others.

    S = 1 - D. A term may be negative, so all count as active.
    """
    rows.settle(rows.to_positive)
    to_positive, to_negative, chosen = chosen_triplets(rows)
    logistic = log_one_plus_exp((to_positive - to_negative) / temperature)
    values = (hard_weight * (1 - to_negative)).where(to_negative < to_positive, logistic)
    return triplet_terms(rows, values, to_positive, chosen, all_active=True)


class SelectivelyContrastiveLoss(RowLoss):
    """Only push the negative where it is the harder one; elsewhere the triplet loss of NCA.

    Mean over the chosen triplets (a, p, n) of, with S the cosine similarity,

        hard_weight * S_an                               if S_an > S_ap,
        log(1 + exp((S_an - S_ap) / temperature))        otherwise.

    A hard triplet does not pull its positive at all, so that batches of hard negatives do not collapse.

    Args:
        hard_weight: lambda of the paper, >= 0.
        temperature: of the difference of similarities, > 0.
        positives, negatives: a selector, or the name of one; "easy" and "hard" is EPHN.
        margin: width of the bands of "semihard" and "violating", in 1 - S; the loss has none.
        reduction: "mean" over the triplets or "sum".
        trim: share of the triplets, those with the largest loss, left out.
        trim_positives_only: `trim` leaves out the triplets with the farthest positives.
        disjoint: each item in at most one triplet, see `trivet.mine`.
        block_size, generator: see `RowLoss`.

    Shape:
        embeddings `(N, d)` float, normalised here; labels `(N,)` integer; returns a scalar,
        exactly 0 with a graph when no triplet can be chosen. With negatives="all" each triplet is held.

    Raises:
        ValueError: if shapes disagree, a row is not finite, or an option is out of range.

    Source:
        Xuan, Stylianou, Liu, Pless, "Hard Negative Examples are Hard, but Useful", ECCV 2020; lambda 1 and temperature
        0.1 are theirs. Their code also takes a negative of S_an > 0.8 for hard and leaves out positives of
        S_ap > 0.9999; the paper's formula, which is this one, does not.

    Example:
        >>> embeddings = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])
        >>> loss = SelectivelyContrastiveLoss(reduction="sum")
        >>> loss(embeddings, torch.tensor([0, 0, 1]))  # 0.6 and 0.8, for the anchors 0 and 1
        tensor(1.4000)
    """

    reductions = ("mean", "sum")

    def __init__(
        self,
        *,
        hard_weight: float = 1.0,
        temperature: float = 0.1,
        positives: PositiveName | PositiveSelector = "easy",
        negatives: NegativeName | NegativeSelector = "hard",
        margin: float = 0.2,
        reduction: Reduction = "mean",
        trim: float = 0.0,
        trim_positives_only: bool = False,
        disjoint: Disjoint = False,
        block_size: int | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(
            distance="cosine",
            positives=positives,
            negatives=negatives,
            margin=margin,
            normalize=True,
            reduction=reduction,
            trim=trim,
            trim_positives_only=trim_positives_only,
            disjoint=disjoint,
            block_size=block_size,
            generator=generator,
        )
        if not 0 < temperature < math.inf:
            raise ValueError(f"temperature must be a finite number above 0: got {temperature}.")
        self.hard_weight = check_at_least(0, hard_weight, name="hard_weight")
        self.temperature = temperature

    def numbers(self, batch: Batch) -> int:
        """More where every triplet is held."""
        return super().numbers(batch) + triplets_held(self.strategy, batch)

    def formula(self, rows: Rows) -> RowTerms:
        """One term for each chosen triplet."""
        return selectively_contrastive_rows(rows, hard_weight=self.hard_weight, temperature=self.temperature)
