"""The engine: a formula on a row of the distance matrix becomes a loss with its exact gradient, for any N.

The `(N, M)` matrix of distances between anchors and references is cut into row blocks. In each block the selectors
choose positives and negatives on detached distances, the loss's formula is evaluated with autograd, and the gradient
with respect to embeddings, references and parameters is accumulated; no more than one block exists at a time.
For a second derivative, and for `torch.compile`, a batch that fits one block is evaluated by ordinary autograd.
"""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import torch
import torch.distributed as dist
from torch import Tensor, nn

from trivet.arguments import check_at_least, check_name
from trivet.geometry import Distance, from_squared, squared_distances
from trivet.lazy import lazy
from trivet.mining.batch import Batch, check_batch
from trivet.mining.block import Block, Choice, Gradients
from trivet.mining.draws import Draws, new_key
from trivet.mining.gather import Processes, gather_batch, sum_over_processes
from trivet.mining.given import Disjoint, Given, check_disjoint, disjoint_triplets, given_tuples
from trivet.mining.negatives import NegativeName, NegativeSelector, negative_selector
from trivet.mining.positives import PositiveName, PositiveSelector, positive_selector
from trivet.mining.selection import Strategy, unit_rows_need
from trivet.mining.trimming import Cut, smallest

Reduction = Literal["mean", "mean-active", "max", "sum", "anchors", "objective"]
MOST_HELD = 64  # terms of an anchor that trimming holds, rather than to compute them again


class Rows:
    """What a formula sees: B anchors, their chosen positives and negatives, and differentiable distances to them.

    Attributes:
        labels: `(B,)` labels of the anchors.
        ids: `(B,)` the items of the anchors, or None.
        paired: whether negative slot s belongs to positive slot s; otherwise negatives are a set per anchor.
        positive_chosen: `(B, S)` bool, which positive slots are filled.
    """

    def __init__(self, block: Block, strategy: Strategy | Given, draws: Draws | None) -> None:
        with torch.no_grad():
            self.selection = selection = strategy.select(block, draws)
        self.labels, self.ids = block.labels, block.ids
        self.paired = isinstance(selection.negatives, Choice)
        self.positive_chosen = selection.positives.chosen
        self._block = block

    @property
    def candidates(self) -> tuple[Tensor, Tensor]:
        """Which slots of the anchor's class hold a positive, `(B, L)` bool, and how many negatives there are, `(B, 1)`.

        Chosen or not.
        """
        return self._block.positive, self._block.negatives

    @lazy
    def to_positive(self) -> Tensor:
        """Distances `(B, S)` from each anchor to its positives; where none is chosen the value means nothing."""
        if self._pairs is not None:
            return self._pairs[:, : self.positive_chosen.shape[1]]
        return self._block.listed(self.selection.positives.index)

    @lazy
    def to_negative(self) -> Tensor:
        """Distances `(B, S)` to the negative of each positive slot if paired; where none is chosen they mean nothing.

        Otherwise `(B, M)` to all references, infinite for those that are not chosen negatives.
        """
        block, negatives = self._block, self.selection.negatives
        if isinstance(negatives, Choice):
            if self._pairs is not None:
                return self._pairs[:, self.positive_chosen.shape[1] :]
            if block.size and negatives.index.shape[1] * block.dimension > max(block.size, 4096):
                return block.to_set(None).gather(1, negatives.index).where(negatives.chosen, 0)
            return block.listed(negatives.index)
        return block.to_set(negatives.penalty)

    @lazy
    def _pairs(self) -> Tensor | None:
        """Distances to positives and then negatives in one list `(B, 2 S)`, where both are short."""
        positives, negatives = self.selection.positives, self.selection.negatives
        if not isinstance(negatives, Choice) or positives.index is self._block.own_columns:
            return None
        columns = torch.cat([positives.index, negatives.index], dim=1)
        return self._block.listed(columns) if columns.shape[1] * self._block.dimension <= 4096 else None

    @lazy
    def negative_chosen(self) -> Tensor:
        """Which slots `(B, S)` have a negative if paired, else which references `(B, M)` are chosen negatives."""
        negatives = self.selection.negatives
        return negatives.chosen if isinstance(negatives, Choice) else negatives.chosen(self._block)

    @property
    def negative_count(self) -> Tensor:
        """How many negatives each anchor has, `(B,)`."""
        negatives = self.selection.negatives
        return negatives.chosen.sum(dim=1) if isinstance(negatives, Choice) else negatives.count[:, 0]

    @lazy
    def negative_total(self) -> Tensor:
        """The sum `(B,)` of the distances to the chosen set of negatives, 0 without one; not for paired negatives."""
        distances = self.to_negative
        if distances.shape[1] == 0:
            return distances.sum(dim=1)
        total: Tensor = _FiniteSum.apply(distances)
        return total

    @property
    def anchor_norms(self) -> Tensor:
        """Squared Euclidean norms `(B,)` of the anchors, differentiable."""
        return self._block.anchors.square().sum(dim=1)

    @lazy
    def reference_norms(self) -> Tensor:
        """Squared Euclidean norms `(M,)` of the references, differentiable."""
        return self._block.reference_squares

    @property
    def positive_norms(self) -> Tensor:
        """Squared Euclidean norms `(B, S)` of the positives, differentiable; where none is chosen they mean nothing."""
        index = self.selection.positives.index
        return (
            self.reference_norms[index] if len(self.reference_norms) else self._block.references.new_zeros(index.shape)
        )

    def add_gradients(self, total: Tensor, parameters: Sequence[Tensor], sums: Gradients) -> None:
        """Add the gradient of `total`, which was computed from these rows, to `sums`."""
        self._block.add_gradients(total, parameters, sums)

    @property
    def positive_to_negative(self) -> Tensor:
        """Distances from each chosen positive to its negative: `(B, S)` if paired, else `(B, S, M)`."""
        block, positives, negatives = self._block, self.selection.positives, self.selection.negatives
        shape = positives.index.shape
        if block.size == 0:
            return block.references.new_zeros(shape if self.paired else (*shape, 0))
        if isinstance(negatives, Choice):
            return block.between(positives.index, negatives.index)
        squared = squared_distances(block.references[positives.index].flatten(0, 1), block.references)
        return from_squared(squared, block.distance).reshape(*shape, block.size)


class _FiniteSum(torch.autograd.Function):
    """The sum of the finite entries of each row, in float arithmetic: a mask takes ten times as long on a CPU."""

    @staticmethod
    def forward(ctx: Any, distances: Tensor) -> Tensor:
        ctx.save_for_backward(distances)
        return distances.nan_to_num(posinf=0.0).sum(dim=1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (distances,) = ctx.saved_tensors
        return torch.lt(distances, torch.inf, out=torch.empty_like(distances)) * grad[:, None]


@dataclass(frozen=True)
class RowTerms:
    """The terms of a loss, one by one.

    Attributes:
        values: `(B, T)` the terms; where `chosen` is False the value means nothing.
        chosen: `(B, T)` bool.
        parts: how many parts a term is the sum of.
        active: `(B, T)` how many parts of a term are not zero; None where a term is one part.
        pull: `(B, T)` what the positive brings to a term, by which positives are trimmed; infinitely low for a term
            without one. None if the terms have no such part.
        push: `(B, T)` what remains of a term without its positive; None if the whole term goes.
    """

    values: Tensor
    chosen: Tensor
    parts: int = 1
    active: Tensor | None = None
    pull: Tensor | None = None
    push: Tensor | None = None

    def trim(self, cut: Cut, *, positives_only: bool) -> RowTerms:
        """Without the terms, or positives, that do not survive the cut."""
        if not positives_only:
            return replace(self, chosen=self.chosen & cut.keep(self.values.detach(), self.chosen))
        assert self.pull is not None
        pulled = self.chosen & (self.pull.detach() > -torch.inf)
        gone = pulled & ~cut.keep(self.pull.detach(), pulled)
        if self.push is None:
            return replace(self, chosen=self.chosen & ~gone)
        active = None if self.active is None else torch.where(gone, (self.push.detach() > 0).long(), self.active)
        return replace(self, values=torch.where(gone, self.push, self.values), active=active)

    @property
    def largest(self) -> Tensor:
        """The largest chosen term, a scalar without a graph; infinitely low if none is chosen."""
        values = self.values.detach().where(self.chosen, -torch.inf)
        return values.amax() if values.numel() else values.new_full((), -torch.inf)

    def hardest(self, *, here: Tensor) -> RowTerms:
        """Only the terms equal to the largest; none at all unless `here`, a bool scalar, is True."""
        return replace(self, chosen=self.chosen & (self.values.detach() >= self.largest) & here)

    def sum(self) -> RowSum:
        """Add up the chosen terms."""
        if self.active is None:
            active = ((self.values.detach() > 0) & self.chosen).count_nonzero()
        else:
            active = self.active.where(self.chosen, 0).sum()
        return RowSum(
            total=self.values.where(self.chosen, 0).sum(),
            count=self.chosen.count_nonzero(),
            active=active,
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

    "dropped" anchors took part in no term; a distance is in the loss's unit and NaN where there was none. With the
    reduction "max" all of this is about the terms among which the largest was sought, not about that one alone.
    """

    def __init__(self, tally: Callable[[], Tensor]) -> None:
        self._tally = tally

    @lazy
    def _read(self) -> tuple[float, ...]:
        return tuple(self._tally().tolist())

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
        reduction: over what the sum of the terms is divided, see `reductions` of the subclass. "max" keeps, after
            trimming, only those equal to the largest term of the batch, and needs a formula that gives `RowTerms`.
        trim: share of the terms, those with the largest loss, that is left out; in [0, 1).
        trim_positives_only: `trim` leaves out positives instead, those that pull hardest; what a term has beside its
            positive stays.
        disjoint: each item of the batch in at most one triplet, see `trivet.mine`.
        block_size: anchors per block; None chooses one by memory.
        generator: seeds the random choices; None takes torch's global generator.
    """

    reductions: tuple[Reduction, ...]
    last: StepRecord | None
    key: Tensor

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
        trim_positives_only: bool = False,
        disjoint: Disjoint = False,
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
        check_disjoint(disjoint, self.strategy)
        self.trim, self.trim_positives_only, self.disjoint = trim, trim_positives_only, disjoint
        self.block_size = block_size
        self.register_buffer("key", new_key(generator))  # a seed, and how many batches have drawn with it
        self.last = None

    @abstractmethod
    def formula(self, rows: Rows) -> RowTerms | RowSum:
        """The loss of a block of anchors."""

    def objective_size(self, anchors: int, references: int) -> int:
        """What the paper's objective divides by; for losses that offer the reduction "objective"."""
        return anchors * references

    def numbers(self, batch: Batch) -> int:
        """About how many numbers the formula holds for each anchor beside the choice, for the size of a block."""
        return 0

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
        with_batch: bool = False,
        indices: Sequence[Tensor] | None = None,
        gather: bool | dist.ProcessGroup = False,
    ) -> Tensor:
        """The loss of a batch, against itself or against `references`.

        Args:
            ids, reference_ids: the items of the rows; rows of the same item are never compared.
            with_batch: compare with the batch itself too, whose rows then stand before the references.
            indices: index tuples in place of the loss's own strategy, as `trivet.mine` and the miners of
                pytorch-metric-learning give them: anchors, positives and negatives of triplets, each `(T,)`; or
                anchors, positives `(P,)` and anchors, negatives `(Q,)` of pairs.
            gather: the batch is that of all processes of torch.distributed (or of a group), of which each brings its
                part and computes the terms of its own anchors. The value and the gradient of the embeddings are those
                of one process with the whole batch; gradients of parameters are shares, to be summed over the
                processes: under DistributedDataParallel, which averages them, multiply the loss by their number.
                `references`, the same on every process, come after the whole batch, also without `with_batch`.

        Shape:
            embeddings `(N, d)` float; labels `(N,)` integer; references `(M, d)`, reference_labels `(M,)`.
            `ids (N,)`, `reference_ids (M,)` integer. Returns a scalar, exactly 0 with a graph when nothing can be
            chosen.

        Raises:
            ValueError: if shapes or dtypes disagree, a row is not finite, or indices contradict the labels.
        """

        def checked() -> Batch:
            if gather and indices is not None:
                raise ValueError("indices count the rows of one process: got them with gather; leave one of them out.")
            if gather and references is embeddings:
                raise ValueError(
                    "references must be the same on every process: got the embeddings themselves with gather; "
                    "leave them out, the rows of all processes are compared anyway."
                )
            batch = check_batch(
                embeddings,
                labels,
                references=references,
                reference_labels=reference_labels,
                ids=ids,
                reference_ids=reference_ids,
                with_batch=with_batch and not gather,
                normalize=self.normalize,
                unit_rows_for=None if indices is not None else unit_rows_need(self.strategy),
            )
            self.check(batch)
            return batch

        with torch.autocast(device_type=embeddings.device.type, enabled=False):
            if not gather:
                return self._reduce(checked(), indices, None)
            processes = Processes(None if gather is True else gather)
            batch, key = gather_batch(checked, self.key, processes.group)
            self.key.copy_(key)
            return self._reduce(batch, None, processes)

    def _reduce(self, batch: Batch, indices: Sequence[Tensor] | None, processes: Processes | None) -> Tensor:
        strategy, draws = self._chooser(batch, indices)
        evaluation = _Evaluation(self, batch, strategy, draws, processes)
        if batch.compared_with_itself and batch.total > 1 and batch.classes.largest < 2:
            warnings.warn(
                f"a batch must hold two samples of a class, or there is no positive: got {batch.total} classes of one "
                "sample; draw at least two of each class, for instance with PKBatches.",
                stacklevel=2,
            )
        if torch.compiler.is_compiling():
            total = evaluation.add_up(batch, None)
            total = total + batch.embeddings.sum() * 0  # exactly 0: ties an empty batch to the graph of its embeddings
        else:
            references = None if batch.own else batch.references
            parameters = [parameter for parameter in self.parameters() if parameter.requires_grad]
            total = _Blocks.apply(evaluation, torch.is_grad_enabled(), batch.embeddings, references, *parameters)
        count = evaluation.count  # of terms, or of active parts, whichever the reduction asks for
        if processes is not None:
            count = processes.add_up(count)
            total = sum_over_processes(total, gathered=batch.references, group=processes.group)
        self.last = evaluation.record()
        if self.reduction in ("mean", "mean-active", "max"):
            return total / count.clamp_min(1).to(total.dtype)
        if self.reduction == "anchors":
            return total / max(1, batch.total)
        return (
            total
            if self.reduction == "sum"
            else total / max(1, self.objective_size(batch.total, len(batch.references)))
        )

    def _chooser(self, batch: Batch, indices: Sequence[Tensor] | None) -> tuple[Strategy | Given, Draws | None]:
        """What chooses for this batch, and the random numbers it needs."""
        strategy = self.strategy
        if indices is not None:
            return given_tuples(indices, batch, distance=strategy.distance, margin=strategy.margin), None
        draws = None
        if strategy.random or self.disjoint == "random":
            draws = Draws(self.key.clone())
            self.key += torch.tensor([0, 1], device=self.key.device)
        if self.disjoint:
            anchor, positive, negative = disjoint_triplets(strategy, batch.whole(), draws, order=self.disjoint)
            columns = (anchor, positive, anchor, negative)
            return Given(*columns, paired=True, distance=strategy.distance, margin=strategy.margin), None
        return strategy, draws


class _Evaluation:
    """One evaluation of a loss: its blocks, and what they add up to."""

    def __init__(
        self,
        loss: RowLoss,
        batch: Batch,
        strategy: Strategy | Given,
        draws: Draws | None,
        processes: Processes | None,
    ) -> None:
        self.batch, self._processes = batch, processes
        numbers = strategy.numbers(batch) + loss.numbers(batch)
        self.spans = list(batch.blocks(loss.block_size, numbers))
        self._loss, self._strategy, self._draws = loss, strategy, draws
        self.count = torch.zeros((), dtype=torch.int64, device=batch.embeddings.device)
        self._tally: Tensor | None = None
        self._notes: _Notes | None = None

    def rows(self, batch: Batch, number: int, *, leaves: bool = False) -> Rows:
        """The rows of a block; `batch` is that of the evaluation, or the same without its graph."""
        return Rows(self._strategy.block(batch, self.spans[number], leaves=leaves), self._strategy, self._draws)

    def _all_terms(self) -> Iterator[RowTerms | RowSum]:
        """The terms of every block in turn, without a graph."""
        batch = self.batch.detach()
        for number in range(len(self.spans)):
            with torch.no_grad():
                yield self._loss.formula(self.rows(batch, number))

    def _cut(self, whole: RowTerms | RowSum | None = None) -> Cut:
        """Where trimming cuts, over the terms of the whole batch; they are computed again if they are not given."""

        held: list[Tensor] = []  # where the terms are few

        def passes() -> Iterator[Tensor]:
            if held:
                yield from held
                return
            for terms in self._all_terms() if whole is None else [whole]:
                assert isinstance(terms, RowTerms)
                values, chosen = terms.values.detach(), terms.chosen
                if self._loss.trim_positives_only:
                    if terms.pull is None:
                        raise ValueError(
                            "trim_positives_only needs a loss whose terms have a positive: "
                            f"{type(self._loss).__name__} has none; leave it off."
                        )
                    values = terms.pull.detach()
                    chosen = chosen & (values > -torch.inf)
                values = values.where(chosen, torch.nan)
                if whole is not None or values.shape[1] <= MOST_HELD:
                    held.append(values)
                yield values

        share, processes = 1 - self._loss.trim, self._processes
        if processes is None:
            return smallest(passes, share, self.batch.embeddings)
        return smallest(passes, share, self.batch.embeddings, processes.add_up, processes.add_before)

    def _largest(self, cut: Cut | None = None, whole: RowTerms | None = None) -> Tensor:
        """Which blocks `(K,)` hold a largest term of the whole batch; of terms not given, those that survive the cut.

        Blocks rather than the value: where another order of operations rounds a term anew, none may equal it later.
        """
        largest = self.batch.embeddings.new_full((len(self.spans),), -torch.inf)
        cut = None if cut is None else replace(cut)  # it counts down
        for number, terms in enumerate(self._all_terms() if whole is None else [whole]):
            assert isinstance(terms, RowTerms)
            if cut is not None:
                terms = terms.trim(cut, positives_only=self._loss.trim_positives_only)
            largest[number] = terms.largest
        most = largest.max()
        return largest >= (most if self._processes is None else self._processes.largest(most))

    def add_up(self, batch: Batch, sums: Gradients | None, parameters: Sequence[Tensor] = ()) -> Tensor:
        """The sum of all terms: with `sums` the gradient of each block is added to them at once, otherwise autograd's.

        `batch` is that of the evaluation, or the same without its graph.
        """
        loss, total = self._loss, torch.zeros((), dtype=torch.float64, device=batch.embeddings.device)
        cut = self._cut() if loss.trim and len(self.spans) > 1 else None
        largest = self._largest(cut) if loss.reduction == "max" and len(self.spans) > 1 else None
        self.count = torch.zeros_like(self.count)
        self._tally = torch.zeros(13, dtype=torch.float64, device=batch.embeddings.device)
        # What outlives a block stands here, before the first: a small tensor kept from each would cut up the memory
        # that the next needs in one piece, and the process would grow with every block.
        # Freed at once and never touched: after it glibc keeps the memory of one block for the next, instead of giving
        # it back to the system and faulting in every page again, which takes as long as the arithmetic.
        torch.empty(2**25 - 2**14, dtype=torch.uint8)
        for number in range(len(self.spans)):
            rows = self.rows(batch, number, leaves=sums is not None)
            with torch.set_grad_enabled(sums is not None or torch.is_grad_enabled()):
                terms = loss.formula(rows)
                if loss.trim:
                    assert isinstance(terms, RowTerms)
                    cut = cut or self._cut(terms)
                    terms = terms.trim(cut, positives_only=loss.trim_positives_only)
                result = kept = terms.sum() if isinstance(terms, RowTerms) else terms
                if loss.reduction == "max":
                    assert isinstance(terms, RowTerms)
                    largest = self._largest(whole=terms) if largest is None else largest
                    kept = terms.hardest(here=largest[number]).sum()
            self._note(rows, result, kept)
            if sums is not None:
                rows.add_gradients(kept.total, parameters, sums)
            if sums is None:
                total = total + kept.total
            else:
                total += kept.total.detach()
        return total.to(batch.embeddings.dtype)

    def _note(self, rows: Rows, result: RowSum, kept: RowSum) -> None:
        if self._loss.reduction in ("mean", "max"):
            self.count += kept.count
        elif self._loss.reduction == "mean-active":
            self.count += kept.active
        notes = _notes(rows, result)
        if len(self.spans) == 1 and self._processes is None and not torch.compiler.is_compiling():
            self._notes = notes  # added up when somebody reads the record
        else:
            assert self._tally is not None
            self._tally += _tally(notes)

    def record(self) -> StepRecord:
        """The step record, of all processes."""
        notes, tally = self._notes, self._tally
        if notes is not None:
            return StepRecord(lambda: _tally(notes))
        assert tally is not None
        if self._processes is not None:
            tally = self._processes.add_up(tally)
        return StepRecord(lambda: tally)


class _Blocks(torch.autograd.Function):
    """Evaluate block after block, with the gradient of each taken at once, so that only one exists at a time."""

    @staticmethod
    def forward(
        ctx: Any,
        evaluation: _Evaluation,
        grad_enabled: bool,
        embeddings: Tensor,
        references: Tensor | None,
        *parameters: Tensor,
    ) -> Tensor:
        batch = evaluation.batch.detach()
        own = batch.own
        if not (grad_enabled and any(ctx.needs_input_grad)):
            return evaluation.add_up(batch, None)
        learned = batch.references[: own or None] if own or ctx.needs_input_grad[3] else None
        sums = Gradients(
            anchors=torch.zeros_like(batch.embeddings),
            references=None if learned is None else torch.zeros_like(learned),
            parameters=[torch.zeros_like(parameter) for parameter in parameters],
        )
        total = evaluation.add_up(batch, sums, parameters)
        sums.finish(batch.references)
        if own and sums.references is not None:
            sums.anchors.add_(sums.references)
        ctx.evaluation = evaluation
        gradients = (sums.anchors, None if own else sums.references, *sums.parameters)
        ctx.save_for_backward(*gradients, embeddings, references, *parameters)
        return total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        saved = ctx.saved_tensors
        gradients, inputs = saved[: len(saved) // 2], saved[len(saved) // 2 :]
        if not torch.is_grad_enabled():
            return (None, None, *(None if gradient is None else gradient * grad for gradient in gradients))
        evaluation: _Evaluation = ctx.evaluation
        if len(evaluation.spans) > 1:
            raise RuntimeError(
                "a second derivative needs the whole batch in one block: got create_graph=True with several; "
                "set block_size to the number of anchors."
            )
        # Views, as the references may have been made of the embeddings: what comes that way is not for us to add.
        views: list[Any] = [None if x is None else x.view_as(x) for x in inputs[:2]]
        batch, references = evaluation.batch, views[1]
        if references is None:
            references = batch.own_references(views[0])
        with torch.autocast(device_type=references.device.type, enabled=False):
            total = evaluation.add_up(replace(batch, embeddings=views[0], references=references), None)
        leaves = [*views, *inputs[2:]]
        wanted = [x for x, needed in zip(leaves, ctx.needs_input_grad[2:], strict=True) if needed]
        found = iter(torch.autograd.grad(total, wanted, grad, create_graph=True, allow_unused=True))
        return (None, None, *(next(found) if needed else None for needed in ctx.needs_input_grad[2:]))


@dataclass(frozen=True)
class _Notes:
    """What of a block a step record needs; nothing here is as large as the matrix or holds a graph.

    Attributes:
        result: the sum of the terms.
        positive, negatives: `(B, S)` and `(B, 1)`, the candidates of an anchor: which slots, how many.
        to_positive, pulled: `(B, S)` distances to the positives and which are chosen.
        nearest: `(B, S)` or `(B, 1)` distance to the nearest chosen negative.
        negative_sum, negative_count: `(B, S)` or `(B, 1)`, of the distances to the chosen negatives.
    """

    result: RowSum
    positive: Tensor
    negatives: Tensor
    to_positive: Tensor
    pulled: Tensor
    nearest: Tensor
    negative_sum: Tensor
    negative_count: Tensor


def _notes(rows: Rows, result: RowSum) -> _Notes:
    to_negative, negatives = rows.to_negative.detach(), rows.selection.negatives
    if isinstance(negatives, Choice):
        nearest, negative_sum, negative_count = to_negative, to_negative, negatives.chosen
    else:
        negative_sum, negative_count = rows.negative_total.detach()[:, None], negatives.count
        nearest = to_negative.amin(dim=1, keepdim=True) if to_negative.shape[1] else negative_sum + torch.inf
    return _Notes(
        replace(result, total=result.total.detach()),
        *rows.candidates,
        rows.to_positive.detach(),
        rows.positive_chosen,
        nearest,
        negative_sum,
        negative_count,
    )


@torch.no_grad()
def _tally(notes: _Notes) -> Tensor:
    """Counts and sums `(13,)` float64 behind a `StepRecord`, over the anchors that have a term."""
    result = notes.result
    used = result.used[:, None]
    alone, unopposed = ~notes.positive.any(dim=1), notes.negatives[:, 0] == 0
    pulled, pushed = notes.pulled & used, (notes.negative_count > 0) & used
    compared = pulled & (notes.nearest < torch.inf)
    numbers = [
        torch.ones_like(used).sum(),
        used.sum(),
        (alone & ~result.used).sum(),
        (unopposed & ~alone & ~result.used).sum(),
        ((notes.to_positive > notes.nearest) & compared).sum(),
        compared.sum(),
        notes.to_positive.where(pulled, 0).sum(),
        pulled.sum(),
        notes.negative_sum.where(pushed, 0).sum(),
        notes.negative_count.where(pushed, 0).sum(),
        result.count,
        result.active,
        result.count * result.parts,
    ]
    return torch.stack([number.double() for number in numbers])


def _ratio(part: float, whole: float, empty: float = 0.0) -> float:
    return part / whole if whole else empty
