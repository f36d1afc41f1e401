"""Index triplets, for losses and loops of one's own."""

from __future__ import annotations

from typing import NamedTuple, get_args

import torch
from torch import Tensor

from trivet.arguments import check_at_least, check_name
from trivet.geometry import Distance
from trivet.mining.batch import check_batch
from trivet.mining.block import Choice
from trivet.mining.draws import Draws, new_key
from trivet.mining.given import Disjoint, check_disjoint, disjoint_triplets
from trivet.mining.negatives import NegativeName, NegativeSelector, negative_selector
from trivet.mining.positives import PositiveName, PositiveSelector, positive_selector
from trivet.mining.selection import Selectors, unit_rows_need


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
    disjoint: Disjoint = False,
    references: Tensor | None = None,
    reference_labels: Tensor | None = None,
    ids: Tensor | None = None,
    reference_ids: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> Triplets:
    """The triplets a strategy chooses, by anchor, then positive slot, then negative.

    They are index tuples as the losses and miners of pytorch-metric-learning use them.

    Args:
        positives, negatives: a selector, or the name of one.
        margin: width of the bands of "semihard" and "violating", in the unit of `distance`.
        normalize: divide rows by their norm first; "cosine" always does.
        disjoint: each item in at most one triplet, at most N / 3 of them: anchors choose one after another among what
            is left, by index, or with "random" in a random order. Not for sets of negatives.
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
    check_name(distance, get_args(Distance), name="distance")
    strategy = Selectors(
        positive_selector(positives),
        negative_selector(negatives),
        distance=distance,
        margin=check_at_least(0, margin, name="margin"),
    )
    check_disjoint(disjoint, strategy)
    batch = check_batch(
        embeddings,
        labels,
        references=references,
        reference_labels=reference_labels,
        ids=ids,
        reference_ids=reference_ids,
        normalize=normalize or distance == "cosine",
        unit_rows_for=unit_rows_need(strategy),
    )
    draws = Draws(new_key(generator).to(batch.labels.device)) if strategy.random or disjoint == "random" else None
    if disjoint:
        return Triplets(*disjoint_triplets(strategy, batch, draws, order=disjoint))
    slots = batch.largest_class if strategy.positives.pairwise else 1
    matrices = slots if strategy.negatives.listed else 1  # every combination is written out
    numbers = matrices * len(batch.references) + batch.largest_class * batch.dimension
    parts = []
    for span in batch.blocks(None, numbers):
        block = strategy.block(batch, span)
        selection = strategy.select(block, draws)
        chosen, start = selection.positives, span[0]
        if isinstance(selection.negatives, Choice):
            row, slot = chosen.chosen.nonzero(as_tuple=True)
            parts.append((row + start, chosen.index[row, slot], selection.negatives.index[row, slot]))
        else:
            triples = chosen.chosen[:, :, None] & selection.negatives.chosen(block)[:, None, :]  # (B, S, M)
            row, slot, negative = triples.nonzero(as_tuple=True)
            parts.append((row + start, chosen.index[row, slot], negative))
    if not parts:
        nobody = torch.zeros(0, dtype=torch.int64, device=embeddings.device)
        return Triplets(nobody, nobody, nobody)
    return Triplets(*(torch.cat(column) for column in zip(*parts, strict=True)))
