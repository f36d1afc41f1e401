"""The chosen triplets of a block, for the losses that are one formula on each."""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import pad, softplus

from trivet.losses.engine import BlockView, LossTerms
from trivet.mining.batch import Batch
from trivet.mining.strategy import Strategy

VECTORS = 64  # numbers, a multiple of what a CPU takes at once


def chosen_triplets(rows: BlockView) -> tuple[Tensor, Tensor, Tensor]:
    """D(a, p), D(a, n) and which triplets are chosen; the three broadcast together.

    `(B, S)` each if every positive has its negative; against a set of negatives `(B, S, 1)`, `(B, 1, M)` and
    `(B, S, M)`. Where nothing is chosen the distances are finite and mean nothing.
    """
    if rows.paired:
        return rows.to_positive, rows.to_negative, rows.positive_chosen
    to_negative = rows.to_negative.where(rows.negative_chosen, 0)
    chosen = rows.positive_chosen[:, :, None] & rows.negative_chosen[:, None]
    return rows.to_positive[:, :, None], to_negative[:, None], chosen


def triplet_terms(
    rows: BlockView, values: Tensor, to_positive: Tensor, chosen: Tensor, *, all_active: bool = False
) -> LossTerms:
    """Terms of the shape `chosen_triplets` gives; `all_active` for values that may be 0 or less and still count."""
    return LossTerms(
        values.flatten(1),
        chosen.flatten(1),
        active=chosen.flatten(1) if all_active else None,
        pull=to_positive.expand_as(values).flatten(1),
        every=rows.every and rows.paired,
    )


def triplets_held(strategy: Strategy, batch: Batch) -> int:
    """How many triplets of an anchor `chosen_triplets` holds beside its distances."""
    if not strategy.negatives.listed:
        return 0
    return (batch.largest_class if strategy.positives.pairwise else 1) * len(batch.references)


def softplus_log(exponents: Tensor) -> Tensor:
    """log(1 + exp(x)) to the last digit, without overflow; of equal numbers the same, wherever they stand."""
    # A CPU takes what is left over after whole vectors by another exp and log, which round otherwise.
    size, missing = exponents.numel(), -exponents.numel() % VECTORS
    flat = pad(exponents.flatten(), (0, missing)) if missing else exponents.contiguous()
    values: Tensor = softplus(flat, threshold=40)  # torch's own threshold of 20 drops 2e-9
    return values[:size].view(exponents.shape) if missing else values
