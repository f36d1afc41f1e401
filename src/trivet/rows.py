"""The engine: a formula on a row of the distance matrix becomes a loss with its exact gradient, for any N.

The `(N, M)` matrix of distances between anchors and references is cut into row blocks. In each block the selectors
choose positives and negatives on detached distances, the loss's formula is evaluated with autograd, and the gradient
with respect to embeddings, references and parameters is accumulated; no more than one block exists at a time.
A batch that fits one block takes the ordinary autograd path.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from trivet.geometry import Distance, distances_between, from_squared, squared_distances
from trivet.mining.batch import Batch, Draws, check_batch
from trivet.mining.block import Block, Choice
from trivet.mining.names import check_at_least, check_name
from trivet.mining.negatives import NegativeName, NegativeSelector, negative_selector
from trivet.mining.positives import PositiveName, PositiveSelector, positive_selector
from trivet.mining.selection import Strategy, unit_rows_need

Reduction = Literal["mean", "mean-active", "sum", "anchors", "objective"]


class Rows:
    """What a formula sees: B anchors, their chosen positives and negatives, and differentiable distances to them.

    Attributes:
        labels: `(B,)` labels of the anchors.
        has_candidates: `(B,)` bool, anchors that have a positive and a negative among the references.
        paired: whether negative slot s belongs to positive slot s; otherwise negatives are a set per anchor.
        positive_chosen: `(B, S)` bool, which positive slots are filled.
        negative_chosen: `(B, S)` bool if paired, else `(B, M)`.
    """

    def __init__(self, block: Block, strategy: Strategy, draws: Draws | None) -> None:
        self.selection = selection = strategy.select(block, draws)
        self.labels = block.labels
        self.has_candidates = ~(selection.no_positive | selection.no_negative)
        self.paired = isinstance(selection.negatives, Choice)
        self.positive_chosen = selection.positives.chosen
        self.negative_chosen = selection.negatives.chosen
        self._block = block

    @cached_property
    def to_positive(self) -> Tensor:
        """Distances `(B, S)` from each anchor to its positives; where none is chosen the value means nothing."""
        if self.selection.positives.index is self._block.own_columns:
            return from_squared(self._block.own_squared, self._block.distance)
        return self._to(self.selection.positives)

    @cached_property
    def to_negative(self) -> Tensor:
        """Distances `(B, S)` to the negative of each positive slot if paired; where none is chosen they mean nothing.

        Otherwise `(B, M)` to all references, infinite for those that are not chosen negatives.
        """
        if isinstance(self.selection.negatives, Choice):
            return self._to(self.selection.negatives)
        return from_squared(self._block.squared, self._block.distance).masked_fill(~self.negative_chosen, torch.inf)

    @property
    def positive_to_negative(self) -> Tensor:
        """Distances from each chosen positive to its negative: `(B, S)` if paired, else `(B, S, M)`."""
        block, positives, negatives = self._block, self.selection.positives, self.selection.negatives
        if len(block.references) == 0:
            return block.squared.new_zeros(negatives.chosen.shape if self.paired else (*positives.index.shape, 0))
        if isinstance(negatives, Choice):
            return distances_between(
                block.references[positives.index], block.references[negatives.index], distance=block.distance
            )
        squared = squared_distances(block.references[positives.index].flatten(0, 1), block.references)
        return from_squared(squared, block.distance).reshape(*positives.index.shape, -1)

    def _to(self, choice: Choice) -> Tensor:
        block = self._block
        if len(block.references) == 0:
            return block.squared.new_zeros(choice.index.shape)
        if choice.index.shape[1] * block.dimension <= max(len(block.references), 4096):
            # By differences: right for near-duplicates, and the gradient needs no matrix product.
            return distances_between(block.anchors[:, None], block.references[choice.index], distance=block.distance)
        return from_squared(block.squared.gather(1, choice.index), block.distance)


@dataclass(frozen=True)
class RowTerms:
    """The terms of a loss, one by one.

    Attributes:
        values: `(B, T)` the terms; where `chosen` is False the value means nothing.
        chosen: `(B, T)` bool.
        parts: how many parts a term is the sum of.
        active: `(B, T)` how many parts of a term are not zero; None where a term is one part.
    """

    values: Tensor
    chosen: Tensor
    parts: int = 1
    active: Tensor | None = None

    def sum(self) -> RowSum:
        """Add up the chosen terms."""
        active = self.values.detach() > 0 if self.active is None else self.active
        return RowSum(
            total=self.values.where(self.chosen, 0).sum(),
            count=self.chosen.sum(),
            active=active.where(self.chosen, 0).sum(),
            used=self.chosen.any(dim=1),
            parts=self.parts,
        )


@dataclass(frozen=True)
class RowSum:
    """The terms of a block added up.

    Attributes:
        total: their sum, differentiable.
        count: how many there are.
        active: how many of their parts are not zero.
        used: `(B,)` bool, the anchors that have a term.
        parts: how many parts a term is the sum of.
    """

    total: Tensor
    count: Tensor
    active: Tensor
    used: Tensor
    parts: int = 1


class StepRecord:
    """What the last evaluation of a loss did. Numbers stay on the device until they are read.

    "dropped" anchors took part in no term; a distance is in the loss's unit and NaN where there was none.
    """

    def __init__(self, tally: Tensor) -> None:
        self._tally = tally

    @cached_property
    def _read(self) -> tuple[float, ...]:
        return tuple(self._tally.tolist())

    @property
    def anchors(self) -> int:
        """Anchors in the batch."""
        return int(self._read[0])

    @property
    def dropped(self) -> dict[str, int]:
        """Anchors without a term, by reason: no positive, no negative (and a positive), or none of the wanted kind."""
        _, used, no_positive, no_negative, *_ = self._read
        unmatched = max(0, self.anchors - int(used) - int(no_positive) - int(no_negative))
        return {"no positive": int(no_positive), "no negative": int(no_negative), "no match": unmatched}

    @property
    def terms(self) -> int:
        """Terms of the loss: triplets, pairs or anchors."""
        return int(self._read[10])

    @property
    def active_fraction(self) -> float:
        """Share of the terms that are not zero; of their parts, for a loss whose terms are sums of several."""
        return _ratio(self._read[11], self._read[12])

    @property
    def hard_fraction(self) -> float:
        """Share of the chosen positives that lie farther from the anchor than their (nearest) chosen negative."""
        return _ratio(self._read[4], self._read[5])

    @property
    def mean_to_positive(self) -> float:
        """Mean distance from an anchor to a chosen positive."""
        return _ratio(self._read[6], self._read[7], empty=math.nan)

    @property
    def mean_to_negative(self) -> float:
        """Mean distance from an anchor to a chosen negative."""
        return _ratio(self._read[8], self._read[9], empty=math.nan)


class RowLoss(nn.Module, ABC):
    """A loss that is a formula on row blocks. Subclasses hold options and give the formula.

    Args:
        distance: "squared_euclidean", "euclidean", or "cosine" (1 - S, which always normalises).
        positives, negatives: a selector, or the name of one.
        margin: the margin the bands of the selectors use by default.
        normalize: divide rows by their norm first.
        reduction: over what the sum of the terms is divided, see `reductions` of the subclass.
        trim: share of the terms, those with the largest loss, that is left out; in [0, 1).
        block_size: anchors per block; None chooses one by memory.
        generator: source of the random choices, on the CPU; None makes one seeded from torch's global generator.
    """

    reductions: tuple[Reduction, ...]
    last: StepRecord | None

    def __init__(
        self,
        *,
        distance: Distance,
        positives: PositiveName | PositiveSelector,
        negatives: NegativeName | NegativeSelector,
        margin: float,
        normalize: bool,
        reduction: Reduction,
        trim: float = 0.0,
        block_size: int | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        check_name(distance, get_args(Distance), name="distance")
        check_name(reduction, self.reductions, name="reduction")
        if not 0 <= trim < 1:
            raise ValueError(f"trim must lie in [0, 1), the share of terms left out: got {trim}.")
        if block_size is not None and block_size < 1:
            raise ValueError(f"block_size must be at least 1 anchor: got {block_size}; None chooses it by memory.")
        self.strategy = Strategy(
            positive_selector(positives),
            negative_selector(negatives),
            distance=distance,
            margin=check_at_least(0, margin, name="margin"),
        )
        self.normalize = normalize or distance == "cosine"
        self.reduction: Reduction = reduction
        self.trim = trim
        self.block_size = block_size
        self.generator = torch.Generator() if generator is None else generator
        if generator is None:
            self.generator.manual_seed(int(torch.randint(2**62, ())))
        self.last = None

    @abstractmethod
    def formula(self, rows: Rows) -> RowTerms | RowSum:
        """The loss of a block of anchors."""

    def objective_size(self, anchors: int, references: int) -> int:
        """What the paper's objective divides by; for losses that offer the reduction "objective"."""
        return anchors * references

    def numbers(self, batch: Batch) -> int:
        """About how many numbers the formula holds for each anchor, for the choice of the block size."""
        return len(batch.references) + batch.classes.largest * batch.dimension

    def check(self, batch: Batch) -> None:
        """Raise ValueError if the loss cannot be computed for this batch; for losses that know more of labels."""

    @property
    def margin(self) -> float:
        """The margin, in the unit of the distance."""
        return self.strategy.margin

    def check_reach(self, value: float, *, name: str) -> None:
        """Raise ValueError if `value` exceeds every distance on the unit sphere and the embeddings lie on it."""
        diameter = 4.0 if self.strategy.distance == "squared_euclidean" else 2.0
        if value > diameter and (self.normalize or unit_rows_need(self.strategy) is not None):
            raise ValueError(
                f"{name} must not exceed {diameter:g}, the diameter of the unit sphere in {self.strategy.distance}: "
                f"got {value:g}, which no embedding can satisfy; choose a smaller one."
            )

    def optimizer_groups(self) -> list[dict[str, Any]]:
        """Parameter groups for an optimiser, with the loss's own learning rates; empty without parameters."""
        return []

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor,
        *,
        references: Tensor | None = None,
        reference_labels: Tensor | None = None,
        ids: Tensor | None = None,
        reference_ids: Tensor | None = None,
    ) -> Tensor:
        """The loss of a batch, against itself or against `references`.

        Shape:
            embeddings `(N, d)` float; labels `(N,)` integer; references `(M, d)`, reference_labels `(M,)`.
            `ids (N,)`, `reference_ids (M,)` integer tell rows of the same item, which are never compared.
            Returns a scalar, exactly 0 with a graph when nothing can be chosen.

        Raises:
            ValueError: if shapes or dtypes disagree, or a row is not finite.
        """
        with torch.autocast(device_type=embeddings.device.type, enabled=False):
            batch = check_batch(
                embeddings,
                labels,
                references=references,
                reference_labels=reference_labels,
                ids=ids,
                reference_ids=reference_ids,
                normalize=self.normalize,
                unit_rows_for=unit_rows_need(self.strategy),
            )
            self.check(batch)
            return self._reduce(batch)

    def _reduce(self, batch: Batch) -> Tensor:
        draws = self.strategy.draws(self.generator)
        ranges = list(batch.blocks(self.block_size, self.numbers(batch)))

        def rows_of(anchors: Tensor, references: Tensor, number: int) -> Rows:
            return Rows(self.strategy.block(batch, anchors, references, ranges[number]), self.strategy, draws)

        kept: list[Tensor] | None = None
        if self.trim > 0:
            kept = self._kept(batch, ranges, rows_of)
            if draws is not None:
                draws.restart()
        tallies: list[Tensor] = []

        def evaluate(anchors: Tensor, references: Tensor, number: int) -> Tensor:
            rows = rows_of(anchors, references, number)
            terms = self.formula(rows)
            if kept is not None:
                assert isinstance(terms, RowTerms)
                terms = replace(terms, chosen=terms.chosen & kept[number])
            result = terms.sum() if isinstance(terms, RowTerms) else terms
            tallies.append(_tally(rows, result))
            return result.total

        if len(ranges) == 1:
            total = evaluate(batch.embeddings, batch.references, 0)
        else:
            references = None if batch.references is batch.embeddings else batch.references
            parameters = [parameter for parameter in self.parameters() if parameter.requires_grad]
            total = _Blocks.apply(evaluate, ranges, torch.is_grad_enabled(), batch.embeddings, references, *parameters)
        tally = torch.stack(tallies).sum(dim=0) if tallies else total.new_zeros(13, dtype=torch.float64)
        self.last = StepRecord(tally)
        divisors: dict[Reduction, Tensor | int] = {
            "mean": tally[10].clamp_min(1).to(total.dtype),
            "mean-active": tally[11].clamp_min(1).to(total.dtype),
            "sum": 1,
            "anchors": max(1, len(batch.labels)),
            "objective": max(1, self.objective_size(len(batch.labels), len(batch.references))),
        }
        # The second term is exactly 0: it ties an empty batch to the graph of its embeddings.
        return total / divisors[self.reduction] + batch.embeddings.sum() * 0

    @torch.no_grad()
    def _kept(
        self, batch: Batch, ranges: Sequence[tuple[int, int]], rows_of: Callable[[Tensor, Tensor, int], Rows]
    ) -> list[Tensor]:
        """Which terms survive trimming, per block: the smallest losses of the whole batch, ties by index."""
        blocks: list[RowTerms] = []
        for number, span in enumerate(ranges):
            terms = self.formula(rows_of(batch.embeddings[slice(*span)], batch.references, number))
            assert isinstance(terms, RowTerms)
            blocks.append(terms)
        if not blocks:
            return []
        values = torch.cat([terms.values[terms.chosen] for terms in blocks])
        number = min(len(values), max(1, math.ceil(round((1 - self.trim) * len(values), 9))))
        keep = torch.zeros(len(values), dtype=torch.bool, device=values.device)
        keep[values.argsort(stable=True)[:number]] = True
        pieces = torch.split(keep, [int(terms.chosen.sum()) for terms in blocks])
        return [
            torch.zeros_like(terms.chosen).masked_scatter(terms.chosen, piece)
            for terms, piece in zip(blocks, pieces, strict=True)
        ]

    def get_extra_state(self) -> dict[str, Tensor]:
        """The state of the random choices, so that a resumed run draws the same ones."""
        return {"generator": self.generator.get_state()}

    def set_extra_state(self, state: dict[str, Tensor]) -> None:
        """Restore the state of the random choices."""
        self.generator.set_state(state["generator"].cpu())


class _Blocks(torch.autograd.Function):
    """Evaluate block after block, with the gradient of each taken at once, so that only one exists at a time."""

    @staticmethod
    def forward(
        ctx: Any,
        evaluate: Callable[[Tensor, Tensor, int], Tensor],
        ranges: Sequence[tuple[int, int]],
        grad_enabled: bool,
        embeddings: Tensor,
        references: Tensor | None,
        *parameters: Tensor,
    ) -> Tensor:
        wants_gradient = grad_enabled and any(ctx.needs_input_grad)
        leaf = embeddings.detach()
        others = leaf if references is None else references.detach()
        gradients = [torch.zeros_like(leaf), torch.zeros_like(others), *map(torch.zeros_like, parameters)]
        sum_of_totals = leaf.new_zeros(())
        for number, (start, stop) in enumerate(ranges):
            with torch.set_grad_enabled(wants_gradient):
                anchors = leaf[start:stop].detach().requires_grad_(wants_gradient)
                against = others.detach().requires_grad_(wants_gradient)
                total = evaluate(anchors, against, number)
            sum_of_totals += total.detach()
            if wants_gradient:
                found = torch.autograd.grad(total, [anchors, against, *parameters], allow_unused=True)
                for gradient, part in zip([gradients[0][start:stop], *gradients[1:]], found, strict=True):
                    if part is not None:
                        gradient += part
        if references is None:
            gradients[:2] = [gradients[0] + gradients[1]]
        ctx.save_for_backward(*gradients)
        ctx.own = references is None
        return sum_of_totals

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        first, *rest = (saved * grad for saved in ctx.saved_tensors)
        return (None, None, None, first, *([None] if ctx.own else []), *rest)


@torch.no_grad()
def _tally(rows: Rows, result: RowSum) -> Tensor:
    """Counts and sums `(13,)` float64 behind a `StepRecord`, over the anchors that have a term."""
    used = result.used[:, None]
    pulled, pushed = rows.positive_chosen & used, rows.negative_chosen & used
    to_positive, to_negative = rows.to_positive.detach(), rows.to_negative.detach()
    if rows.paired:
        nearest_negative, compared = to_negative, pulled
    else:
        apart = to_negative.masked_fill(~pushed, torch.inf)
        nearest_negative = (
            apart.amin(dim=1, keepdim=True) if apart.shape[1] else apart.new_full((len(apart), 1), torch.inf)
        )
        compared = pulled & nearest_negative.isfinite()
    selection = rows.selection
    numbers = [
        torch.ones_like(used).sum(),
        used.sum(),
        (selection.no_positive & ~result.used).sum(),
        (selection.no_negative & ~selection.no_positive & ~result.used).sum(),
        ((to_positive > nearest_negative) & compared).sum(),
        compared.sum(),
        to_positive.where(pulled, 0).sum(),
        pulled.sum(),
        to_negative.where(pushed, 0).sum(),
        pushed.sum(),
        result.count,
        result.active,
        result.count * result.parts,
    ]
    return torch.stack([number.double() for number in numbers])


def _ratio(part: float, whole: float, empty: float = 0.0) -> float:
    return part / whole if whole else empty
