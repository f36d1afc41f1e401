"""Index triplets and pairs, for losses and loops of one's own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, get_args

import torch
from torch import Tensor

from trivet.distances import Distance
from trivet.mining.batch import Batch, Labels, check_batch
from trivet.mining.counter_rng import CounterRng, new_key
from trivet.mining.distance_block import DistanceBlock
from trivet.mining.index_tuples import Disjoint, check_disjoint, disjoint_triplets
from trivet.mining.negatives import NegativeName, NegativeSelector, negative_selector
from trivet.mining.positives import PositiveName, PositiveSelector, positive_selector
from trivet.mining.selected_set import SelectedItems, SelectedSet
from trivet.mining.strategy import Strategy
from trivet.runtime.arguments import check_at_least, check_name, explain_arguments


class MinedPairs(NamedTuple):
    """P positive pairs, `anchor` and `positive`, and Q negative ones, `negative_anchor` and `negative`; all int64.

    Anchors count rows of the embeddings, positives and negatives rows of the references.
    """

    anchor: Tensor
    positive: Tensor
    negative_anchor: Tensor
    negative: Tensor


class MinedTriplets(NamedTuple):
    """T triplets: `anchor`, `positive` and `negative`, each `(T,)` int64.

    Anchors count rows of the embeddings, positives and negatives rows of the references.
    """

    anchor: Tensor
    positive: Tensor
    negative: Tensor


@explain_arguments
@torch.no_grad()
def mine(
    embeddings: Tensor,
    labels: Labels,
    *,
    positives: PositiveName | PositiveSelector = "easy",
    negatives: NegativeName | NegativeSelector = "semihard",
    margin: float = 0.2,
    distance: Distance = "squared_euclidean",
    normalize: bool = False,
    disjoint: Disjoint = False,
    references: Tensor | None = None,
    reference_labels: Labels | None = None,
    ids: Tensor | None = None,
    reference_ids: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> MinedTriplets:
    """The triplets a strategy chooses, by anchor, then positive slot, then negative.

    They are index tuples as the losses and miners of pytorch-metric-learning use them. An anchor without a positive is
    in no triplet, and with a set of negatives a pair is in several: `mine_pairs` gives what losses on pairs compare.

    Args:
        positives, negatives: a selector, or the name of one.
        margin: width of the bands of "semihard" and "violating", in the unit of `distance`.
        normalize: divide rows by their norm first; "cosine" always does.
        disjoint: each item in at most one triplet, at most N / 3 of them: anchors choose one after another among what
            is left, by index, or with "random" in a random order. Not for sets of negatives.
        ids: the item of each row; rows of the same item are never compared.
        generator: source of the random choices; None takes torch's own.

    Shape:
        embeddings `(N, d)` float; labels `(N,)` integer, or a relation of N items; references `(M, d)`,
        reference_labels likewise.
        A strategy that takes all negatives gives every combination, up to N M^2 of them.

    Raises:
        ValueError: as `trivet.TripletLoss`.

    Example:
        >>> embeddings = torch.tensor([[0.0], [1.0], [5.0], [2.0]])
        >>> mine(embeddings, torch.tensor([0, 0, 0, 1]), positives="easy", negatives="hard")
        MinedTriplets(anchor=tensor([0, 1, 2]), positive=tensor([1, 0, 1]), negative=tensor([3, 3, 3]))
    """
    strategy = _strategy(positives, negatives, distance, margin)
    check_disjoint(disjoint, strategy)
    batch = check_batch(
        embeddings,
        labels,
        references=references,
        reference_labels=reference_labels,
        ids=ids,
        reference_ids=reference_ids,
        normalize=normalize or distance == "cosine",
        unit_rows_for=strategy.unit_rows_for,
    )
    rng = CounterRng(new_key(generator).to(batch.labels.device)) if strategy.random or disjoint == "random" else None
    if disjoint:
        return MinedTriplets(*_joined([disjoint_triplets(strategy, batch, rng, order=disjoint)], 3, embeddings.device))
    tuples = []
    for start, block, chosen, against in _selections(strategy, batch, rng):
        if isinstance(against, SelectedItems):
            row, slot = chosen.chosen.nonzero(as_tuple=True)
            negative = against.index[row, slot]
        else:
            triples = chosen.chosen[:, :, None] & against.of_positives(block.to_negatives)  # (B, S, M)
            row, slot, negative = triples.nonzero(as_tuple=True)
        tuples.append((row + start, chosen.index[row, slot], negative))
    return MinedTriplets(*_joined(tuples, 3, embeddings.device))


@explain_arguments
@torch.no_grad()
def mine_pairs(
    embeddings: Tensor,
    labels: Labels,
    *,
    positives: PositiveName | PositiveSelector = "all",
    negatives: NegativeName | NegativeSelector = "all",
    margin: float = 0.2,
    distance: Distance = "squared_euclidean",
    normalize: bool = False,
    references: Tensor | None = None,
    reference_labels: Labels | None = None,
    ids: Tensor | None = None,
    reference_ids: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> MinedPairs:
    """The pairs a strategy chooses, by anchor: what a loss on pairs or sets compares, as its `indices`.

    Where negatives are a set, each chosen positive and each chosen negative of an anchor once, also where it has only
    one of the two; otherwise the two pairs of each triplet of `mine`.

    Args, shape, raises:
        As `mine`; up to N M pairs of each kind.

    Example:
        >>> embeddings = torch.tensor([[0.0], [1.0], [2.0]])
        >>> mine_pairs(embeddings, torch.tensor([0, 0, 1]))  # the last has no positive
        MinedPairs(anchor=tensor([0, 1]), positive=tensor([1, 0]), negative_anchor=tensor([0, 1, 2, 2]), \
negative=tensor([2, 2, 0, 1]))
    """
    strategy = _strategy(positives, negatives, distance, margin)
    batch = check_batch(
        embeddings,
        labels,
        references=references,
        reference_labels=reference_labels,
        ids=ids,
        reference_ids=reference_ids,
        normalize=normalize or distance == "cosine",
        unit_rows_for=strategy.unit_rows_for,
    )
    rng = CounterRng(new_key(generator).to(batch.labels.device)) if strategy.random else None
    near, far = [], []
    for start, block, chosen, against in _selections(strategy, batch, rng):
        row, slot = chosen.chosen.nonzero(as_tuple=True)
        near.append((row + start, chosen.index[row, slot]))
        if isinstance(against, SelectedItems):
            far.append((row + start, against.index[row, slot]))
        else:
            row, negative = against.chosen(block.to_negatives).nonzero(as_tuple=True)
            far.append((row + start, negative))
    return MinedPairs(*_joined(near, 2, embeddings.device), *_joined(far, 2, embeddings.device))


def _strategy(
    positives: PositiveName | PositiveSelector,
    negatives: NegativeName | NegativeSelector,
    distance: Distance,
    margin: float,
) -> Strategy:
    check_name(distance, get_args(Distance), name="distance")
    return Strategy(
        positive_selector(positives),
        negative_selector(negatives),
        distance=distance,
        margin=check_at_least(0, margin, name="margin"),
    )


def _selections(
    strategy: Strategy, batch: Batch, rng: CounterRng | None
) -> Iterator[tuple[int, DistanceBlock, SelectedItems, SelectedItems | SelectedSet]]:
    """Yield the first anchor of each block, the block, and the chosen positives and negatives."""
    slots = batch.adjacency.most if strategy.positives.pairwise else 1
    matrices = slots if strategy.selects_set else 1  # every combination is written out
    numbers = matrices * len(batch.references) + batch.adjacency.most * batch.dimension
    for span in batch.blocks(None, numbers):
        block = strategy.block(batch, span)
        selection = strategy.select(block, rng)
        yield span[0], block, selection.positives, selection.negatives


def _joined(chunks: Sequence[tuple[Tensor, ...]], columns: int, device: torch.device) -> list[Tensor]:
    if not chunks:
        return [torch.zeros(0, dtype=torch.int64, device=device)] * columns
    return [torch.cat(column).to(device) for column in zip(*chunks, strict=True)]
