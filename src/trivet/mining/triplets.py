"""Index triplets, for losses and loops of one's own."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from trivet.geometry import Distance
from trivet.mining.batch import block_distances, check_batch, draw, select
from trivet.mining.block import Choice
from trivet.mining.negatives import NegativeName, NegativeSelector, negative_selector
from trivet.mining.positives import PositiveName, PositiveSelector, positive_selector


class Triplets(NamedTuple):
    """T triplets: `anchor`, `positive` and `negative`, each `(T,)` int64.

    Anchors count rows of the embeddings, positives and negatives rows of the references.
    """

    anchor: Tensor
    positive: Tensor
    negative: Tensor


@torch.no_grad()
def mine(
    embeddings: Tensor,
    labels: Tensor,
    *,
    positives: PositiveName | PositiveSelector = "easy",
    negatives: NegativeName | NegativeSelector = "semihard",
    margin: float = 0.2,
    distance: Distance = "squared_euclidean",
    normalize: bool = False,
    references: Tensor | None = None,
    reference_labels: Tensor | None = None,
    ids: Tensor | None = None,
    reference_ids: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> Triplets:
    """The triplets a strategy chooses, by anchor, then positive slot, then negative.

    Args:
        positives, negatives: a selector, or the name of one.
        margin: width of the bands of "semihard" and "violating", in the unit of `distance`.
        normalize: divide rows by their norm first; "cosine" always does.
        ids: the item of each row; rows of the same item are never compared.
        generator: source of the random choices; None takes torch's own.

    Shape:
        embeddings `(N, d)` float; labels `(N,)` integer; references `(M, d)`, reference_labels `(M,)`.
        A strategy that takes all negatives gives every combination, up to N M^2 of them.

    Raises:
        ValueError: as `trivet.TripletLoss`.

    Example:
        >>> embeddings = torch.tensor([[0.0], [1.0], [5.0], [2.0]])
        >>> mine(embeddings, torch.tensor([0, 0, 0, 1]), positives="easy", negatives="hard")
        Triplets(anchor=tensor([0, 1, 2]), positive=tensor([1, 0, 1]), negative=tensor([3, 3, 3]))
    """
    pulled, pushed = positive_selector(positives), negative_selector(negatives)
    batch = check_batch(
        embeddings,
        labels,
        references=references,
        reference_labels=reference_labels,
        ids=ids,
        reference_ids=reference_ids,
        normalize=normalize or distance == "cosine",
        unit_rows_for=unit_rows_need(pulled, pushed),
    )
    draws = draw(batch, pulled, pushed, generator)
    parts = []
    for start, stop in batch.blocks(None):
        selection = select(
            block_distances(batch, start, stop),
            batch.relations(start, stop),
            pulled,
            pushed,
            draws.rows(start, stop),
            distance=distance,
            margin=margin,
            dimension=batch.embeddings.shape[1],
        )
        chosen = selection.positives
        if isinstance(selection.negatives, Choice):
            row, slot = chosen.chosen.nonzero(as_tuple=True)
            parts.append((row + start, chosen.index[row, slot], selection.negatives.index[row, slot]))
        else:
            triples = chosen.chosen[:, :, None] & selection.negatives.chosen[:, None, :]  # (B, S, M)
            row, slot, negative = triples.nonzero(as_tuple=True)
            parts.append((row + start, chosen.index[row, slot], negative))
    if not parts:
        nobody = torch.zeros(0, dtype=torch.int64, device=embeddings.device)
        return Triplets(nobody, nobody, nobody)
    return Triplets(*(torch.cat(column) for column in zip(*parts, strict=True)))


def unit_rows_need(positives: PositiveSelector, negatives: NegativeSelector) -> str | None:
    """The name of the selector that means something for unit rows only, or None."""
    return next((type(selector).__name__ for selector in (positives, negatives) if selector.unit_rows), None)
