"""Negatives that a loss picked in its last batch, to estimate the skew of its strategy."""

from __future__ import annotations

import torch
from torch import Tensor

from trivet.distances import Array, as_classes, device
from trivet.label_noise.skew import PickCounts, counted, margin_bins
from trivet.losses import MarginLoss
from trivet.losses.engine import BlockView, EmbeddingLoss, LossTerms
from trivet.losses.engine.formula_block import FormulaBlock
from trivet.mining.batch import check_batch
from trivet.mining.counter_rng import CounterRng
from trivet.mining.distance_block import DistanceBlock
from trivet.mining.index_tuples import IndexTuples, disjoint_tuples
from trivet.mining.selected_set import SelectedItems
from trivet.mining.strategy import Strategy
from trivet.mining.trimming import smallest
from trivet.runtime.arrays import Floats

MOST_ANCHORS = 128  # of a batch that are looked at


def unpicked(loss: EmbeddingLoss) -> str | None:
    """Explain why a loss picks no negatives that could be counted; None where it does."""
    name = type(loss).__name__
    if loss.term == "proxy":
        return f"{name} compares items with proxies and picks no negatives"
    if loss.parameters_per == "sample":
        return f"{name} has a boundary per sample, which is not supported"
    if not loss.strategy.negatives.selects_set:
        if loss.trim and loss.term != "triplet":
            return f"trimming {name} leaves no list of picked negatives"
        return None
    if loss.trim or loss.reduction == "max":
        return f"{name} uses a set of negatives, of which trim or reduction = 'max' keeps only some triplets"
    if loss.negative_weight == "distance":
        return f"{name} weights a set of negatives by distance and picks none of them"
    return None


@torch.no_grad()
def loss_picks(
    loss: EmbeddingLoss, embeddings: Tensor, labels: Tensor, *, true_labels: Array | None = None
) -> PickCounts:
    """Count what a loss picked from the batch it was evaluated on last, the first 128 anchors at most.

    The choice is made again, with the random numbers of that evaluation, so it is the same; the loss is left as it is.
    Each chosen positive with its negative is a pick; what trimming leaves out, or the reduction "max", is none. Of a
    set of negatives those count whose hinge is open, once for each positive: in the unhinged losses all.

    Args:
        loss: evaluated on this batch alone, without references, and not since.
        embeddings, labels: as the loss got them.
        true_labels: `(N,)`, where they are known.

    Raises:
        ValueError: if `unpicked` says why the picks of the loss cannot be counted.
    """
    reason = unpicked(loss)
    if reason is not None:
        raise ValueError(f"a loss must pick negatives for its skew to be known: {reason}; use another strategy.")
    with device.without_autocast(embeddings.device.type):
        batch = check_batch(
            embeddings.detach(), labels, normalize=loss.normalize, unit_rows_for=loss.strategy.unit_rows_for
        )
        strategy: Strategy | IndexTuples = loss.strategy
        rng = None
        if loss.strategy.random or loss.disjoint == "random":
            key = loss.key - torch.tensor([0, 1], device=loss.key.device)  # it has counted on since
            rng = CounterRng(key.to(batch.labels.device))
        if loss.disjoint:
            strategy, rng = disjoint_tuples(loss.strategy, batch, rng, order=loss.disjoint), None
        joint = bool(loss.trim) or loss.reduction == "max"  # where one term decides about another
        count = len(batch.labels)
        block = FormulaBlock(batch, (0, count if joint else min(count, MOST_ANCHORS)), strategy)
        rows = BlockView(block, strategy, rng)
        if rows.paired:
            picked, active = _paired(loss, rows, block.size)
        else:  # of sets, as often as a hinge is open
            loss.evaluate(rows)  # settles where hinges begin
            reach = rows.reach
            if reach is None:  # nowhere: all are open
                to_positive = rows.to_positive
                reach = (
                    to_positive.new_full((len(to_positive), 1), torch.inf)
                    if loss.term == "pair"
                    else rows.at_positives(torch.full_like(to_positive, torch.inf), -torch.inf)
                )
            chosen = rows.negative_chosen[:, None] if loss.term == "pair" else rows.triplet_chosen
            open_hinges = (rows.to_negative[:, None] < reach[:, :, None]) & chosen
            picked = active = open_hinges.sum(dim=1).double()
        wrong = None
        if true_labels is not None:
            truth = as_classes(true_labels, count=count, name="true_labels").to(picked.device)
            wrong = truth[: len(picked), None] == truth
        return counted(block.to_negatives, picked, active, wrong=wrong, distances=_bins(loss, rows, block, picked))


def _paired(loss: EmbeddingLoss, rows: BlockView, size: int) -> tuple[Tensor, Tensor]:
    """Count how often each reference `(B, M)` is a picked negative, and with a loss that is not zero."""
    negatives = rows.selection.negatives
    assert isinstance(negatives, SelectedItems)
    terms, chosen = loss.formula(rows), rows.positive_chosen
    active = chosen
    if isinstance(terms, LossTerms) and terms.values.shape == chosen.shape:  # a term for each pick
        if loss.trim:
            ordered = terms.pull if loss.trim_positives_only and terms.pull is not None else terms.values
            values = ordered.where(terms.chosen, torch.nan)
            cut = smallest(lambda: [values], 1 - loss.trim, values)
            terms = terms.trim(cut, positives_only=loss.trim_positives_only)
        if loss.reduction == "max":
            terms = terms.hardest(here=torch.ones((), dtype=torch.bool, device=chosen.device))
        chosen = terms.chosen
        active = chosen & (terms.values > 0 if terms.active is None else terms.active > 0)
    if loss.term == "pair" and loss.negative_weight != "distance" and isinstance(terms, LossTerms):
        active = chosen & ((terms.values[:, chosen.shape[1] :] if terms.push is None else terms.push) > 0)
    shape = torch.zeros(len(chosen), size, dtype=torch.float64, device=chosen.device)
    columns = negatives.index
    return shape.scatter_add(1, columns, chosen.double()), shape.scatter_add(1, columns, active.double())


def _bins(loss: EmbeddingLoss, rows: BlockView, block: DistanceBlock, picked: Tensor) -> Floats | None:
    """The counts for gamma: of the margin loss with Euclidean distances of unit rows."""
    if not isinstance(loss, MarginLoss) or loss.strategy.distance != "euclidean" or not loss.normalize:
        return None
    reach = loss.beta_of(rows) + loss.margin
    positives, negatives = rows.positive_chosen, rows.positive_chosen if rows.paired else rows.negative_chosen
    return margin_bins(
        rows.to_positive[positives],
        rows.to_positive[positives & (rows.to_positive > reach - 2 * loss.margin)],
        block.to_negatives[picked.any(dim=1)].sqrt(),
        rows.to_negative[negatives & (rows.to_negative < reach)],
    )
