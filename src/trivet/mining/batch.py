"""Anchors and the references they are compared with: checked once, cut into row blocks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from trivet.geometry import Distance, check_embeddings, squared_distances, unit_rows
from trivet.mining.block import Block, Choice, Everyone
from trivet.mining.negatives import NegativeSelector
from trivet.mining.positives import PositiveSelector

ENTRIES_PER_BLOCK = 2**22  # 16 MiB for each float32 matrix of a block


@dataclass(frozen=True)
class Batch:
    """N anchors and M references with labels; `ids` tell which rows are the same item.

    Attributes:
        embeddings: `(N, d)` float32 or float64.
        labels: `(N,)` int64.
        references: `(M, d)`; the embeddings themselves where nothing else was given.
        reference_labels: `(M,)` int64.
        ids, reference_ids: `(N,)` and `(M,)` int64; None where no anchor is among the references.
    """

    embeddings: Tensor
    labels: Tensor
    references: Tensor
    reference_labels: Tensor
    ids: Tensor | None
    reference_ids: Tensor | None

    def relations(self, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """Same class but not the same item, and other class, each `(B, M)` bool, for anchors start to stop."""
        same_class = self.labels[start:stop, None] == self.reference_labels
        positive, negative = same_class, ~same_class
        if self.ids is not None and self.reference_ids is not None:
            other_item = self.ids[start:stop, None] != self.reference_ids
            positive, negative = positive & other_item, negative & other_item
        return positive, negative

    def slots(self, positives: PositiveSelector) -> int:
        """How many positives an anchor may get: the size of the largest class for a pairwise selector, else 1."""
        if not positives.pairwise or len(self.reference_labels) == 0:
            return 1
        return int(torch.unique(self.reference_labels, return_counts=True)[1].max())

    def blocks(self, size: int | None, width: int = 1) -> Iterator[tuple[int, int]]:
        """Ranges of anchors; by default so many that `width` matrices of a block hold about 4 million numbers."""
        if size is None:
            size = max(1, ENTRIES_PER_BLOCK // max(1, width * len(self.references)))
        yield from ((start, min(start + size, len(self.labels))) for start in range(0, len(self.labels), size))


@dataclass(frozen=True)
class Draws:
    """Uniform numbers in [0, 1) for each (anchor, slot), drawn before the batch is cut into blocks."""

    positives: Tensor
    negatives: Tensor

    def rows(self, start: int, stop: int) -> Draws:
        """The numbers of anchors start to stop."""
        return Draws(self.positives[start:stop], self.negatives[start:stop])


def check_batch(
    embeddings: Tensor,
    labels: Tensor,
    *,
    references: Tensor | None = None,
    reference_labels: Tensor | None = None,
    ids: Tensor | None = None,
    reference_ids: Tensor | None = None,
    normalize: bool = False,
    unit_rows_for: str | None = None,
) -> Batch:
    """Check a batch and bring it to the dtypes the selectors work in.

    Half precision becomes float32. Without `references` the batch is compared with itself, and without `ids` an item
    is the same as another only if it is the same row.

    Args:
        normalize: divide rows by their norm.
        unit_rows_for: the strategy that needs unit rows, checked unless `normalize` is set.

    Raises:
        ValueError: if shapes, dtypes or lengths disagree, a row is not finite, or only one of a pair was given.
    """
    embeddings, labels = _rows(embeddings, labels, "")
    if (references is None) != (reference_labels is None):
        missing = "reference_labels" if reference_labels is None else "references"
        raise ValueError(f"references and reference_labels must come together: got no {missing}; pass both or neither.")
    own = references is None or reference_labels is None
    if references is not None and reference_labels is not None:
        references, reference_labels = _rows(references, reference_labels, "reference_")
        if references.shape[1] != embeddings.shape[1]:
            raise ValueError(
                f"references must have the dimension of the embeddings: got {references.shape[1]} and "
                f"{embeddings.shape[1]}; embed both with the same model."
            )
        references = references.to(embeddings.dtype)
        if (ids is None) != (reference_ids is None):
            missing = "reference_ids" if reference_ids is None else "ids"
            raise ValueError(f"ids and reference_ids must come together: got no {missing}; pass both or neither.")
    elif reference_ids is not None:
        raise ValueError("reference_ids need references: got none; pass references, or ids alone.")
    if unit_rows_for is not None and not normalize:
        for rows in [embeddings] if own or references is None else [embeddings, references]:
            _check_unit(rows, unit_rows_for)
    if normalize:
        embeddings = unit_rows(embeddings)
        references = None if references is None else unit_rows(references)
    if ids is not None:
        ids = _integers(ids, "ids", len(embeddings))
    elif own:
        ids = torch.arange(len(embeddings), device=embeddings.device)
    if own:
        reference_ids = ids
    elif reference_ids is not None and references is not None:
        reference_ids = _integers(reference_ids, "reference_ids", len(references))
    return Batch(
        embeddings,
        labels,
        embeddings if references is None else references,
        labels if reference_labels is None else reference_labels,
        ids,
        reference_ids,
    )


def draw(
    batch: Batch, positives: PositiveSelector, negatives: NegativeSelector, generator: torch.Generator | None
) -> Draws:
    """The uniform numbers the selectors need for this batch; zeros for a selector that is not random."""
    shape, device = (len(batch.labels), batch.slots(positives)), batch.embeddings.device

    def numbers(random: bool) -> Tensor:
        if not random:
            return torch.zeros(shape, dtype=torch.float64, device=device)
        return torch.rand(shape, dtype=torch.float64, generator=generator).to(device)

    return Draws(numbers(positives.random), numbers(negatives.random))


@dataclass(frozen=True)
class Selection:
    """What was chosen for a block of anchors.

    Attributes:
        positives: `(B, S)`; in a tuple strategy only the slots that also have a negative.
        negatives: one per positive slot `(B, S)`, or a set of references per anchor `(B, M)`.
        no_positive, no_negative: `(B,)` bool, anchors without any candidate of that kind.
    """

    positives: Choice
    negatives: Choice | Everyone
    no_positive: Tensor
    no_negative: Tensor


def select(
    squared: Tensor,
    relations: tuple[Tensor, Tensor],
    positives: PositiveSelector,
    negatives: NegativeSelector,
    draws: Draws,
    *,
    distance: Distance,
    margin: float,
    dimension: int,
) -> Selection:
    """Choose positives and negatives for a block of anchors from its squared distances `(B, M)`."""
    block = Block(squared.detach(), *relations, distance, margin, dimension)
    chosen = positives.choose(block, draws.positives)
    against = negatives.choose(block, chosen, draws.negatives)
    if isinstance(against, Choice):
        both = chosen.chosen & against.chosen
        chosen, against = replace(chosen, chosen=both), replace(against, chosen=both)
    return Selection(chosen, against, ~block.positive.any(dim=1), ~block.negative.any(dim=1))


def block_distances(batch: Batch, start: int, stop: int) -> Tensor:
    """Squared distances `(B, M)` of anchors start to stop to all references."""
    return squared_distances(batch.embeddings[start:stop], batch.references)


def _rows(embeddings: Tensor, labels: Tensor, prefix: str) -> tuple[Tensor, Tensor]:
    check_embeddings(embeddings, name="references" if prefix else "embeddings")
    if embeddings.dtype not in (torch.float32, torch.float64):
        embeddings = embeddings.float()
    return embeddings, _integers(labels, f"{prefix}labels", len(embeddings))


def _integers(values: Tensor, name: str, length: int) -> Tensor:
    if not isinstance(values, Tensor) or values.dtype == torch.bool or values.is_floating_point():
        kind = values.dtype if isinstance(values, Tensor) else type(values).__name__
        raise ValueError(
            f"{name} must be a tensor of integers: got {kind}; number the classes, for instance with "
            "torch.tensor(names).unique(return_inverse=True)[1] or numpy.unique(names, return_inverse=True)[1]."
        )
    if values.ndim != 1 or len(values) != length:
        raise ValueError(
            f"{name} must hold one number per embedding: got shape {tuple(values.shape)} for {length} embeddings. "
            f"If each image has two views in the batch, repeat it: {name}.repeat(2)."
        )
    return values.to(torch.int64)


def _check_unit(rows: Tensor, strategy: str) -> None:
    if len(rows) == 0:
        return
    norms = rows.detach().norm(dim=1)
    low, high = torch.stack([norms.min(), norms.max()]).tolist()
    if low < 0.99 or high > 1.01:
        raise ValueError(
            f"{strategy} needs embeddings of unit norm: got norms from {low:.3g} to {high:.3g}; "
            "pass normalize=True to the loss, or normalise the embeddings."
        )
