"""The chosen triplets of a block, for the losses that are one formula on each."""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import pad, softplus

from trivet.losses.engine import BlockView, LossSum, LossTerms

VECTORS = 64  # numbers, a multiple of what a CPU takes at once


def chosen_triplets(block: BlockView) -> tuple[Tensor, Tensor, Tensor]:
    """D(a, p), D(a, n) and which triplets are chosen; the three broadcast together.

    `(B, S)` each if every positive has its negative; against a set of negatives `(B, S, 1)`, `(B, 1, M)` and
    `(B, S, M)`. Where nothing is chosen the distances are finite and mean nothing.
    """
    if block.paired:
        return block.to_positive, block.to_negative, block.positive_chosen
    to_negative = block.to_negative.where(block.negative_chosen, 0)
    chosen = block.positive_chosen[:, :, None] & block.negative_chosen[:, None]
    return block.to_positive[:, :, None], to_negative[:, None], chosen


def flat_terms(
    block: BlockView, values: Tensor, to_positive: Tensor, chosen: Tensor, *, all_active: bool = False
) -> LossTerms:
    """Terms of the shape `chosen_triplets` gives; `all_active` for values that may be 0 or less and still count."""
    return LossTerms(
        values.flatten(1),
        chosen.flatten(1),
        active=chosen.flatten(1) if all_active else None,
        pull=to_positive.expand_as(values).flatten(1),
        all_chosen=block.all_chosen and block.paired,
    )


def triplet_total(block: BlockView, total: Tensor, active: Tensor | None = None) -> LossSum:
    """The `total` of the chosen triplets of a block with a set of negatives, and how many of them are not zero."""
    return LossSum(total, block.positive_count * block.negative_count, active=active, anchors=len(block.labels))


def stable_softplus(exponents: Tensor) -> Tensor:
    """log(1 + exp(x)) to the last digit, without overflow; of equal numbers the same, wherever they stand."""
    # A CPU takes what is left over after whole vectors by another exp and log, which round otherwise.
    size, missing = exponents.numel(), -exponents.numel() % VECTORS
    flat = pad(exponents.flatten(), (0, missing)) if missing else exponents.contiguous()
    values: Tensor = softplus(flat, threshold=40)  # torch's own threshold of 20 drops 2e-9
    return values[:size].view(exponents.shape) if missing else values
