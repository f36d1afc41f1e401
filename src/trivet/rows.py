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
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from trivet.geometry import Distance, distances_between, from_squared, squared_distances
from trivet.mining.batch import Batch, Draws, Selection, check_batch, draw, select
from trivet.mining.block import Choice
from trivet.mining.names import check_name
from trivet.mining.negatives import NegativeName, NegativeSelector, negative_selector
from trivet.mining.positives import PositiveName, PositiveSelector, positive_selector
from trivet.mining.triplets import unit_rows_need

Reduction = Literal["mean", "mean-active", "sum", "anchors", "objective"]
DIAMETERS: dict[Distance, float] = {"squared_euclidean": 4.0, "euclidean": 2.0, "cosine": 2.0}  # of the unit sphere


class Rows:
    """What a formula sees: B anchors, their chosen positives and negatives, and differentiable distances to them.

    Attributes:
        labels: `(B,)` labels of the anchors.
        has_candidates: `(B,)` bool, anchors that have a positive and a negative among the references.
        paired: whether negative slot s belongs to positive slot s; otherwise negatives are a set per anchor.
        positive_chosen: `(B, S)` bool, which positive slots are filled.
        negative_chosen: `(B, S)` bool if paired, else `(B, M)`.
    """

    def __init__(
        self, anchors: Tensor, references: Tensor, labels: Tensor, selection: Selection, squared: Tensor, kind: Distance
    ) -> None:
        self.labels = labels
        self.has_candidates = ~(selection.no_positive | selection.no_negative)
        self.paired = isinstance(selection.negatives, Choice)
        self.positive_chosen = selection.positives.chosen
        self.negative_chosen = selection.negatives.chosen
        self._anchors, self._references = anchors, references
        self._selection, self._squared, self._kind = selection, squared, kind

    @cached_property
    def to_positive(self) -> Tensor:
        """Distances `(B, S)` from each anchor to its positives; where none is chosen the value means nothing."""
        return self._to(self._selection.positives)

    @cached_property
    def to_negative(self) -> Tensor:
        """Distances `(B, S)` to the negative of each positive slot if paired, else `(B, M)` to all references."""
        if isinstance(self._selection.negatives, Choice):
            return self._to(self._selection.negatives)
        return from_squared(self._squared, self._kind)

    @property
    def positive_to_negative(self) -> Tensor:
        """Distances from each chosen positive to its negative: `(B, S)` if paired, else `(B, S, M)`."""
        positives = self._references[self._selection.positives.index]  # (B, S, d)
        if isinstance(self._selection.negatives, Choice):
            negatives = self._references[self._selection.negatives.index]
            return distances_between(positives, negatives, distance=self._kind)
        squared = squared_distances(positives.flatten(0, 1), self._references)
        return from_squared(squared, self._kind).reshape(*positives.shape[:2], -1)

    def _to(self, choice: Choice) -> Tensor:
        slots, dimension = choice.index.shape[1], self._anchors.shape[1]
        if len(self._references) == 0:
            return self._squared.new_zeros(choice.index.shape)
        if slots * dimension <= max(len(self._references), 4096):
            return distances_between(
                self._anchors[:, None], self._references[choice.index], distance=self._kind
            )  # by differences: exact, and its gradient needs no matrix product
        return from_squared(self._squared.gather(1, choice.index), self._kind)


@dataclass(frozen=True)
class RowTerms:
    """The terms of a loss, one by one.

    Attributes:
        values: `(B, T)` the terms; where `chosen` is False the value means nothing.
        chosen: `(B, T)` bool.
        parts: `(B, T)` how many non-zero parts a term has; None where a term is one part.
    """

    values: Tensor
    chosen: Tensor
    parts: Tensor | None = None

    def sum(self) -> RowSum:
        """Add up the chosen terms."""
        parts = self.values.detach() > 0 if self.parts is None else self.parts
        return RowSum(
            total=self.values.where(self.chosen, 0).sum(),
            count=self.chosen.sum(),
            active=parts.where(self.chosen, 0).sum(),
        )


@dataclass(frozen=True)
class RowSum:
    """The terms of a block added up: their `total`, their `count` and the number of them that are not zero."""

    total: Tensor
    count: Tensor
    active: Tensor


class StepRecord:
    """What the last evaluation of a loss did. Numbers stay on the device until they are read.

    "dropped" anchors took part in no term; a distance is in the loss's unit and NaN where there was none.
    """

    def __init__(self, tally: Tensor, count: Tensor, active: Tensor) -> None:
        self._tally, self._count, self._active = tally, count, active

    @cached_property
    def _read(self) -> tuple[float, ...]:
        return tuple(torch.cat([self._tally, self._count[None].double(), self._active[None].double()]).tolist())

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
        return int(self._read[-2])

    @property
    def active_fraction(self) -> float:
        """Non-zero terms, as a share of the terms (of their parts, for a loss whose terms have several)."""
        return _ratio(self._read[-1], self._read[-2])

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
        self.distance: Distance = distance
        self.positives = positive_selector(positives)
        self.negatives = negative_selector(negatives)
        self.margin = at_least(0, margin, name="margin")
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

    def width(self, slots: int) -> int:
        """How many `(B, M)` matrices the formula holds at once, for the choice of the block size."""
        return 1

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
                unit_rows_for=unit_rows_need(self.positives, self.negatives),
            )
            return self._reduce(batch, draw(batch, self.positives, self.negatives, self.generator))

    def _reduce(self, batch: Batch, draws: Draws) -> Tensor:
        ranges = list(batch.blocks(self.block_size, self.width(draws.positives.shape[1])))
        kept = self._kept(batch, draws, ranges) if self.trim > 0 else None
        tallies: list[Tensor] = []

        def evaluate(anchors: Tensor, references: Tensor, number: int) -> RowSum:
            rows, selection = self._rows(batch, anchors, references, draws, ranges[number])
            terms = self.formula(rows)
            if kept is not None:
                assert isinstance(terms, RowTerms)
                terms = RowTerms(terms.values, terms.chosen & kept[number], terms.parts)
            tallies.append(_tally(rows, selection))
            return terms.sum() if isinstance(terms, RowTerms) else terms

        if len(ranges) == 1:
            result = evaluate(batch.embeddings, batch.references, 0)
        else:
            own = batch.references is batch.embeddings
            parameters = [parameter for parameter in self.parameters() if parameter.requires_grad]
            result = RowSum(
                *_Blocks.apply(evaluate, ranges, batch.embeddings, None if own else batch.references, *parameters)
            )
        tally = torch.stack(tallies).sum(dim=0) if tallies else result.total.new_zeros(10, dtype=torch.float64)
        self.last = StepRecord(tally, result.count, result.active)
        anchors, references = len(batch.labels), len(batch.references)
        divisors: dict[Reduction, Tensor | int] = {
            "mean": result.count,
            "mean-active": result.active,
            "sum": 1,
            "anchors": anchors,
            "objective": self.objective_size(anchors, references),
        }
        divisor = divisors[self.reduction]
        # The second term is exactly 0: it ties an empty batch to the graph of its embeddings.
        value = result.total / (divisor.clamp_min(1) if isinstance(divisor, Tensor) else max(divisor, 1))
        return value + batch.embeddings.sum() * 0

    def _rows(
        self, batch: Batch, anchors: Tensor, references: Tensor, draws: Draws, span: tuple[int, int]
    ) -> tuple[Rows, Selection]:
        squared = squared_distances(anchors, references)
        selection = select(
            squared,
            batch.relations(*span),
            self.positives,
            self.negatives,
            draws.rows(*span),
            distance=self.distance,
            margin=self.margin,
            dimension=anchors.shape[1],
        )
        return Rows(anchors, references, batch.labels[slice(*span)], selection, squared, self.distance), selection

    @torch.no_grad()
    def _kept(self, batch: Batch, draws: Draws, ranges: Sequence[tuple[int, int]]) -> list[Tensor]:
        """Which terms survive trimming, per block: the smallest losses of the whole batch, ties by index."""
        blocks: list[RowTerms] = []
        for start, stop in ranges:
            rows, _ = self._rows(batch, batch.embeddings[start:stop], batch.references, draws, (start, stop))
            terms = self.formula(rows)
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


def at_least(low: float, value: float, *, name: str) -> float:
    """The value, or ValueError if it is below `low` or not finite."""
    if not math.isfinite(value) or value < low:
        raise ValueError(f"{name} must be a finite number of at least {low}: got {value}.")
    return value


class _Blocks(torch.autograd.Function):
    """Evaluate block after block, with the gradient of each taken at once, so that only one exists at a time."""

    @staticmethod
    def forward(
        ctx: Any,
        evaluate: Callable[[Tensor, Tensor, int], RowSum],
        ranges: Sequence[tuple[int, int]],
        embeddings: Tensor,
        references: Tensor | None,
        *parameters: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        wants_gradient = any(ctx.needs_input_grad)
        leaf = embeddings.detach()
        others = leaf if references is None else references.detach()
        gradients = [torch.zeros_like(leaf), torch.zeros_like(others), *map(torch.zeros_like, parameters)]
        total = leaf.new_zeros(())
        count, active = total.long(), total.long()
        for number, (start, stop) in enumerate(ranges):
            with torch.set_grad_enabled(wants_gradient):
                anchors = leaf[start:stop].detach().requires_grad_(wants_gradient)
                against = others.detach().requires_grad_(wants_gradient)
                result = evaluate(anchors, against, number)
            total += result.total.detach()
            count += result.count
            active += result.active
            if wants_gradient:
                found = torch.autograd.grad(result.total, [anchors, against, *parameters], allow_unused=True)
                for gradient, part in zip([gradients[0][start:stop], *gradients[1:]], found, strict=True):
                    if part is not None:
                        gradient += part
        if references is None:
            gradients[:2] = [gradients[0] + gradients[1]]
        ctx.save_for_backward(*gradients)
        ctx.own = references is None
        ctx.mark_non_differentiable(count, active)
        return total, count, active

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        first, *rest = (saved * grad for saved in ctx.saved_tensors)
        return (None, None, first, *([None] if ctx.own else []), *rest)


@torch.no_grad()
def _tally(rows: Rows, selection: Selection) -> Tensor:
    """Counts and sums `(10,)` float64 behind a `StepRecord`."""
    to_positive, to_negative = rows.to_positive.detach(), rows.to_negative.detach()
    if rows.paired:
        nearest_negative, compared = to_negative, rows.positive_chosen
        used = compared.any(dim=1)
    else:
        apart = to_negative.masked_fill(~rows.negative_chosen, torch.inf)
        nearest_negative = (
            apart.amin(dim=1, keepdim=True) if apart.shape[1] else apart.new_full((len(apart), 1), torch.inf)
        )
        compared = rows.positive_chosen & nearest_negative.isfinite()
        used = rows.positive_chosen.any(dim=1) | rows.negative_chosen.any(dim=1)
    numbers = [
        torch.ones_like(used).sum(),
        used.sum(),
        (selection.no_positive & ~used).sum(),
        (selection.no_negative & ~selection.no_positive & ~used).sum(),
        ((to_positive > nearest_negative) & compared).sum(),
        compared.sum(),
        to_positive.where(rows.positive_chosen, 0).sum(),
        rows.positive_chosen.sum(),
        to_negative.where(rows.negative_chosen, 0).sum(),
        rows.negative_chosen.sum(),
    ]
    return torch.stack([number.double() for number in numbers])


def _ratio(part: float, whole: float, empty: float = 0.0) -> float:
    return part / whole if whole else empty
