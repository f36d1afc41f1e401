"""Tuples that were chosen elsewhere, or one after another, in place of a strategy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from trivet.distances import Distance
from trivet.mining.batch import Batch
from trivet.mining.counter_rng import CounterRng
from trivet.mining.distance_block import DistanceBlock
from trivet.mining.label_groups import LabelGroups
from trivet.mining.selected_set import SelectedItems, SelectedSet
from trivet.mining.strategy import Selection, Strategy

Disjoint = Literal[False, True, "random"]


class IndexTuples:
    """Index tuples by anchor: what they choose for a block.

    Args:
        anchors, positives: `(P,)` each; pair i pulls anchor i to positive i.
        negative_anchors, negatives: `(Q,)` each. With `paired`, P = Q and negative i belongs to pair i.
        distance, margin: of the loss.
    """

    random = False

    def __init__(
        self,
        anchors: Tensor,
        positives: Tensor,
        negative_anchors: Tensor,
        negatives: Tensor,
        *,
        paired: bool,
        distance: Distance,
        margin: float,
    ) -> None:
        self.anchors, self.positives, self.negatives = anchors, positives, negatives
        self._by_anchor, self._by_negative_anchor = LabelGroups(anchors), LabelGroups(negative_anchors)
        self.selects_set, self.distance, self.margin = not paired, distance, margin

    def numbers(self, batch: Batch) -> int:
        """About how many numbers the choice for one anchor holds, for the size of a block."""
        return max(len(batch.references), self._by_anchor.largest * batch.dimension)

    def select(self, block: DistanceBlock, rng: CounterRng | None) -> Selection:
        """The tuples of the block's anchors."""
        slots, filled = _slots(self._by_anchor, block.anchor_index, len(self.positives))
        positives = SelectedItems(_at(self.positives, slots), filled)
        negatives: SelectedItems | SelectedSet
        if not self.selects_set:
            negatives = SelectedItems(_at(self.negatives, slots), filled)
        else:
            rows, filled = _slots(self._by_negative_anchor, block.anchor_index, len(self.negatives))
            # A penalty of infinity for all but the listed columns; one column more takes the empty slots.
            penalty = block.to_negatives.new_full((len(block.labels), block.size + 1), torch.inf)
            penalty.scatter_(1, _at(self.negatives, rows).where(filled, block.size), 0)
            penalty = penalty[:, :-1]
            negatives = SelectedSet(penalty, (penalty + block.to_negatives).isfinite().sum(dim=1, keepdim=True))
        return Selection(positives, negatives)


def check_index_tuples(indices: Sequence[Tensor], batch: Batch, *, distance: Distance, margin: float) -> IndexTuples:
    """Check index tuples made elsewhere.

    Args:
        indices: three tensors `(T,)`, anchors, positives and negatives of triplets; or four, anchors and positives
            `(P,)` and anchors and negatives `(Q,)` of pairs, each of which counts once.

    Raises:
        ValueError: if they are not whole numbers of equal length within range, or contradict the labels.
    """
    if len(indices) not in (3, 4):
        raise ValueError(
            "indices must be 3 tensors (anchors, positives, negatives) or 4 (anchors, positives, anchors, negatives): "
            f"got {len(indices)}."
        )
    columns = list(indices)
    paired = len(columns) == 3
    if paired:
        columns.insert(2, columns[0])
    sizes = (len(batch.labels), len(batch.references))
    for column, other, name in ((0, 1, "positives"), (2, 3, "negatives")):
        anchor, item = columns[column], columns[other]
        if any(x.ndim != 1 or x.is_floating_point() or x.dtype == torch.bool for x in (anchor, item)):
            raise ValueError(f"indices must be whole numbers in one dimension: got {anchor.dtype} and {item.dtype}.")
        if len(anchor) != len(item):
            raise ValueError(f"indices of anchors and {name} must match: got {len(anchor)} and {len(item)}.")
        if len(anchor) == 0:
            continue
        if anchor.min() < 0 or anchor.max() >= sizes[0] or item.min() < 0 or item.max() >= sizes[1]:
            raise ValueError(
                f"indices must lie in [0, {sizes[0]}) for anchors and in [0, {sizes[1]}) for {name}: got up to "
                f"{int(anchor.max())} and {int(item.max())}; mine them in the same batch."
            )
        if not batch.adjacency.agree(anchor, item, positive=name == "positives").all():
            raise ValueError(
                f"indices must agree with the labels: got {name} that are none of their anchor by the labels; mine "
                "them with the same labels, or pass no labels."
            )
    columns = [column.to(batch.labels) for column in columns]
    if not paired:  # pairs are sets: one that comes twice counts once
        columns[:2] = torch.unique(torch.stack(columns[:2]), dim=1)
        columns[2:] = torch.unique(torch.stack(columns[2:]), dim=1)
    return IndexTuples(*columns, paired=paired, distance=distance, margin=margin)


def check_disjoint(disjoint: Disjoint, strategy: Strategy) -> None:
    """Raise ValueError unless the strategy chooses triplets that can be kept apart."""
    if not isinstance(disjoint, bool | str) or disjoint not in (False, True, "random"):
        raise ValueError(f"disjoint must be False, True (anchors by index) or 'random': got {disjoint!r}.")
    several = strategy.negatives.k > 1 or strategy.positives.k > 1
    if disjoint and (strategy.positives.pairwise or strategy.negatives.selects_set or several):
        raise ValueError(
            "disjoint needs a strategy with one positive and one negative per anchor: got "
            f"{type(strategy.positives).__name__} and {type(strategy.negatives).__name__}; use for instance 'easy' "
            "and 'hard'."
        )


@torch.no_grad()
def disjoint_triplets(
    strategy: Strategy, batch: Batch, rng: CounterRng | None, *, order: Disjoint
) -> tuple[Tensor, Tensor, Tensor]:
    """Triplets of which no two share an item, at most N / 3, chosen anchor after anchor among what is left.

    Args:
        order: True goes by index, "random" in a random order.
    """
    anchors = torch.arange(len(batch.labels), device=batch.labels.device)
    if order == "random":
        assert rng is not None
        anchors = rng.uniform(anchors, 1, stream=2).flatten().argsort()
    taken = torch.zeros(len(batch.references), dtype=torch.bool, device=anchors.device)
    used = torch.zeros(len(batch.labels), dtype=torch.bool, device=anchors.device)
    rest = batch.without(taken)
    triplets: list[tuple[int, int, int]] = []
    for anchor in anchors.tolist():
        if used[anchor]:
            continue
        selection = strategy.select(strategy.block(rest, (anchor, anchor + 1)), rng)
        assert isinstance(selection.negatives, SelectedItems)
        if not selection.positives.chosen[0, 0]:
            continue
        positive, negative = int(selection.positives.index[0, 0]), int(selection.negatives.index[0, 0])
        triplets.append((anchor, positive, negative))
        used[anchor] = True
        taken[[positive, negative]] = True
        if batch.ids is not None and batch.reference_ids is not None:
            met = torch.stack([batch.ids[anchor], batch.reference_ids[positive], batch.reference_ids[negative]])
            taken |= torch.isin(batch.reference_ids, met)
            used |= torch.isin(batch.ids, met)
    first, second, third = torch.tensor(triplets, dtype=torch.int64, device=anchors.device).reshape(-1, 3).unbind(dim=1)
    return first, second, third


def disjoint_tuples(strategy: Strategy, batch: Batch, rng: CounterRng | None, *, order: Disjoint) -> IndexTuples:
    """The `disjoint_triplets` of a strategy in its place."""
    anchor, positive, negative = disjoint_triplets(strategy, batch, rng, order=order)
    columns = (anchor, positive, anchor, negative)
    return IndexTuples(*columns, paired=True, distance=strategy.distance, margin=strategy.margin)


def _slots(groups: LabelGroups, anchors: Tensor, total: int) -> tuple[Tensor, Tensor]:
    """Numbers `(B, S)` of the tuples of each anchor, and which slots hold one."""
    numbers = groups.positions(*groups.ranges(anchors), groups.largest)
    filled = numbers < total
    return numbers.where(filled, 0), filled


def _at(items: Tensor, numbers: Tensor) -> Tensor:
    return items[numbers] if len(items) else numbers
